//! What a host asks of blocks, request by request, and what the model is told of each.

use crate::block_contents::fill;
use crate::drive::Drive;
use crate::history::{Change, Kind};
use crate::played::Played;
use crate::world::World;
use openftl_core::{Clock, Frame, Time};
use openftl_parts::{Durability, Extent, Handle, IoError, ObjectError, Request};
use std::fmt;

/// A request under way.
pub(crate) enum Errand {
    Change { change: Change, durable: bool },
    Flush { tick: u64 },
    Announcement,
    Read { first: u64, frames: Vec<Frame>, allowed: Vec<Vec<Change>> },
}

impl fmt::Display for Errand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Errand::Change { change, durable } => {
                write!(f, "change {change}{}", if *durable { ", durable" } else { "" })
            }
            Errand::Flush { .. } => write!(f, "flush"),
            Errand::Announcement => write!(f, "announcement"),
            Errand::Read { first, .. } => write!(f, "read of {first}"),
        }
    }
}

impl<D: Drive> World<D> {
    /// Asks the drive, which may have blocks before those of the host.
    fn ask(&mut self, now: Time, tag: u64, request: Request<'_>) -> Result<(), IoError> {
        let of_drive = self.of_drive(request);
        self.ftl().ask(now, tag, of_drive)
    }

    fn submit(&mut self, request: Request<'_>, errand: Errand) -> u64 {
        let (now, tag) = (self.clock.now(), self.next_tag());
        if self.under_way.is_empty() {
            self.wait_anew();
        }
        self.under_way.push((tag, errand));
        self.add_to_trace([now.0, tag]);
        if let Err(error) = self.ask(now, tag, request) {
            self.expect_worn_out(error);
            self.refused(request);
        }
        self.collect_crash_points();
        tag
    }

    /// Forgets a request that was refused.
    fn refused(&mut self, request: Request<'_>) {
        if let Some((_, Errand::Change { change, .. })) = self.under_way.pop() {
            self.model().fail(change);
        }
        if let Request::Write { frames, .. }
        | Request::WriteUncorrectable { frames, .. }
        | Request::Read { frames, .. } = request
        {
            self.give_back(frames.to_vec());
        }
    }

    fn fill(&mut self, change: Change, first: u64, frames: &[Frame]) {
        let pool = self.ftl().frames_mut();
        for (block, frame) in (first..).zip(frames) {
            fill(pool.payload_mut(*frame), change, block);
        }
    }

    pub(crate) fn begin(&mut self, kind: Kind, first: u64, blocks: u64) -> Change {
        let change = self.model().begin(kind, first, blocks);
        for (_, errand) in &mut self.under_way {
            if let Errand::Read { first: from, allowed, .. } = errand {
                for (block, allowed) in (*from..).zip(allowed) {
                    if (first..first + blocks).contains(&block) {
                        allowed.push(change);
                    }
                }
            }
        }
        change
    }

    /// Submits a write; gives its tag.
    pub fn submit_write(&mut self, first: u64, blocks: u64, durability: Durability) -> u64 {
        let frames = self.frames(blocks);
        let change = self.begin(Kind::Write, first, blocks);
        self.fill(change, first, &frames);
        let durable = durability == Durability::Durable || self.config.write_through;
        let handle = self.handle;
        self.submit(Request::Write { first, frames: &frames, durability, handle }, Errand::Change { change, durable })
    }

    /// Announces an object, which the drive may refuse.
    pub fn submit_flash_alloc(&mut self, extents: &[Extent]) {
        let (now, tag) = (self.clock.now(), self.next_tag());
        match self.ask(now, tag, Request::FlashAlloc { extents }) {
            Ok(()) => self.under_way.push((tag, Errand::Announcement)),
            Err(IoError::Object(ObjectError::NotKept | ObjectError::TooMany { .. })) => {}
            Err(error) => self.expect_worn_out(error),
        }
    }

    /// Submits a write of uncorrectable blocks; gives its tag.
    pub fn submit_write_uncorrectable(&mut self, first: u64, blocks: u64, durability: Durability) -> u64 {
        let frames = self.frames(blocks);
        let change = self.begin(Kind::WriteUncorrectable, first, blocks);
        // What the frames hold must not come back.
        self.fill(change, first, &frames);
        let durable = durability == Durability::Durable || self.config.write_through;
        let request = Request::WriteUncorrectable { first, frames: &frames, durability };
        self.submit(request, Errand::Change { change, durable })
    }

    /// Submits a trim; gives its tag.
    pub fn submit_trim(&mut self, first: u64, blocks: u64, durability: Durability) -> u64 {
        let change = self.begin(Kind::Trim, first, blocks);
        let durable = durability == Durability::Durable || self.config.write_through;
        self.submit(Request::Trim { first, blocks, durability }, Errand::Change { change, durable })
    }

    /// Submits a flush; gives its tag.
    pub fn submit_flush(&mut self) -> u64 {
        let tick = self.model().begin_flush();
        self.submit(Request::Flush, Errand::Flush { tick })
    }

    /// Submits a read, to be compared with the model when it ends; gives its tag.
    pub fn submit_read(&mut self, first: u64, blocks: u64) -> u64 {
        let frames = self.frames(blocks);
        let allowed = self.history.readable(first, blocks);
        let request = Request::Read { first, frames: &frames };
        self.submit(request, Errand::Read { first, frames: frames.clone(), allowed })
    }

    /// Waits until a request has ended.
    pub fn wait(&mut self, tag: u64) {
        while self.under_way.iter().any(|(other, _)| *other == tag) {
            self.pump();
        }
    }

    /// Writes, and waits for it.
    pub fn write(&mut self, first: u64, blocks: u64) {
        let tag = self.submit_write(first, blocks, Durability::Volatile);
        self.wait(tag);
    }

    /// Trims, and waits for it.
    pub fn trim(&mut self, first: u64, blocks: u64) {
        let tag = self.submit_trim(first, blocks, Durability::Volatile);
        self.wait(tag);
    }

    /// Flushes, and waits for it.
    pub fn flush(&mut self) {
        let tag = self.submit_flush();
        self.wait(tag);
    }

    /// Fills the drive from its first block to its last.
    pub fn write_all(&mut self, step: u64) {
        for first in (0..self.blocks()).step_by(step as usize) {
            let blocks = step.min(self.blocks() - first);
            self.write(first, blocks);
        }
    }

    /// Reads and compares with the model.
    pub fn verify(&mut self, first: u64, blocks: u64) {
        let tag = self.submit_read(first, blocks);
        self.wait(tag);
    }

    /// Submits a request that may be refused or fail, with nothing else under way, and waits for its end.
    ///
    /// # Errors
    /// How it failed.
    pub fn attempt(&mut self, request: Request<'_>) -> Result<(), IoError> {
        self.settle();
        let (now, tag) = (self.clock.now(), self.next_tag());
        self.wait_anew();
        self.ask(now, tag, request)?;
        loop {
            if let Some(done) = self.step().into_iter().find(|done| done.tag == tag) {
                return done.result;
            }
        }
    }

    /// Reads blocks that may be lost: what they hold, by write.
    ///
    /// # Errors
    /// How the read failed.
    pub fn try_read(&mut self, first: u64, blocks: u64) -> Result<Vec<Change>, IoError> {
        let frames = self.frames(blocks);
        let result = self.attempt(Request::Read { first, frames: &frames });
        if result.is_err() {
            self.give_back(frames);
            return result.map(|()| Vec::new());
        }
        Ok(self.release(first, frames))
    }

    /// Writes where it may be refused.
    ///
    /// # Errors
    /// How the write failed.
    pub fn try_write(&mut self, first: u64, blocks: u64, durability: Durability) -> Result<(), IoError> {
        let frames = self.frames(blocks);
        self.settle();
        let change = self.begin(Kind::Write, first, blocks);
        self.fill(change, first, &frames);
        let (now, tag) = (self.clock.now(), self.next_tag());
        let write = Request::Write { first, frames: &frames, durability, handle: Handle::NONE };
        let result = match self.ask(now, tag, write) {
            Err(error) => {
                self.give_back(frames);
                Err(error)
            }
            Ok(()) => loop {
                if let Some(done) = self.step().into_iter().find(|done| done.tag == tag) {
                    break done.result;
                }
            },
        };
        match result {
            Ok(()) => self.model().complete(change, durability == Durability::Durable),
            Err(_) => self.model().fail(change),
        }
        result
    }
}
