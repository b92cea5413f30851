//! Keeps a drive busy at a queue depth and checks every block that comes back.
//!
//! Every block written carries a stamp that names its address and its version: how often the driver has written it.
//! The driver remembers the version of each block, which is the whole reference model:
//!
//! ```text
//!   63           24 23        0
//!   ┌──────────────┬───────────┐
//!   │ block + 1    │ version   │      a block never written is the zero stamp
//!   └──────────────┴───────────┘
//! ```
//!
//! The host always has as many requests at the drive as the queue is deep. What the drive has no room for waits, and that
//! time belongs to its latency.
//!
//! A read may return any version from the last one acknowledged when it was submitted to the last one submitted when it
//! ended. Writes to one block take effect in the order of submission. Anything else is wrong data and ends the run.

use crate::outcome::Outcome;
use crate::workload::{Access, Operation, Workload};
use openftl_core::{Clock, Frame, FrameForm, Nanos, Payload, PayloadMut, Stamp, Time};
use openftl_ftl::target::TRANSACTION_BLOCKS_MAX;
use openftl_ftl::{BlockTarget, Done, Durability, Handle, IoError, Request};
use std::collections::VecDeque;
use std::ops::ControlFlow;

const VERSION_BITS: u32 = 24;
const VERSION_MASK: u32 = (1 << VERSION_BITS) - 1;

/// Requests between two looks at limits and progress.
const WATCH_REQUESTS: u64 = 1024;

/// Polls in a row in which nothing ends, after which the drive is said to hang.
const FRUITLESS_POLLS_MAX: u32 = 1_000_000;

/// When a phase ends. Requests under way are waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Limit {
    /// After this many requests.
    Requests(u64),
    /// When this many blocks have been written.
    BlocksWritten(u64),
    /// When the drive's clock shows this time.
    Until(Time),
    /// At this time, without waiting for anything: the drive is about to lose its power. See [`Driver::after_cut`].
    Cut(Time),
}

/// Why a run failed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RunError {
    /// The drive returned something else than what was written.
    #[error("block {block} came back as {found}, but {expected} was written: the drive returned wrong data")]
    WrongData {
        /// The logical block.
        block: u64,
        /// What was written.
        expected: String,
        /// What came back.
        found: String,
    },
    /// A request failed.
    #[error("{operation:?} of {blocks} blocks from block {first} on failed: {error}")]
    Failed {
        /// What was asked.
        operation: Operation,
        /// First logical block.
        first: u64,
        /// How many.
        blocks: u32,
        /// What the drive said.
        error: IoError,
    },
    /// Requests are under way, and the drive says that it has nothing to do.
    #[error("the drive hangs: {in_flight} requests are under way at {} s, and it gets nowhere", at.as_secs_f64())]
    Stalled {
        /// Requests under way.
        in_flight: usize,
        /// When.
        at: Time,
    },
}

#[derive(Clone, Copy)]
struct Slot {
    access: Access,
    /// When the host wanted it: before it was submitted, if the drive had no room.
    since: Time,
}

/// What can be seen of a phase while it runs.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a, T> {
    /// The drive.
    pub target: &'a T,
    /// Measured so far.
    pub outcome: &'a Outcome,
    /// On the drive's clock.
    pub now: Time,
}

/// Drives one drive: phase after phase, as it remembers what the drive holds.
pub struct Driver {
    /// How often each block was written.
    versions: Vec<u32>,
    queue_depth: usize,
    access_blocks_max: usize,
    slots: Vec<Slot>,
    /// Requests that the drive has no room for yet, and since when, in order.
    waiting: VecDeque<(Access, Time)>,
    /// Slots without a request under way.
    idle: Vec<u32>,
    /// Frames of the reads under way, `access_blocks_max` a slot.
    frames: Vec<Frame>,
    /// For each block of a read under way, the oldest version that it may return.
    oldest: Vec<u32>,
    write_frames: Vec<Frame>,
    done: Vec<Done>,
    durability: Durability,
    /// The least time from one request to the next.
    pace: Nanos,
    /// When the next request may come.
    next_at: Time,
    /// Writes under way when the power was cut: they took place or did not.
    in_doubt: Vec<Access>,
}

impl Driver {
    /// A driver for a new drive of `blocks` blocks, with at most `queue_depth` requests under way, none longer than
    /// `access_blocks_max` blocks.
    ///
    /// # Panics
    /// If the queue depth is zero, or an access is longer than a transaction or empty.
    #[must_use]
    pub fn new(blocks: u64, queue_depth: usize, access_blocks_max: usize) -> Driver {
        assert!(queue_depth > 0, "a driver needs a queue depth of at least 1");
        assert!(
            (1..=TRANSACTION_BLOCKS_MAX).contains(&access_blocks_max),
            "an access has 1 to {TRANSACTION_BLOCKS_MAX} blocks"
        );
        let nothing = Slot { access: Access { operation: Operation::Read, first: 0, blocks: 0 }, since: Time::ZERO };
        Driver {
            versions: vec![0; blocks as usize],
            queue_depth,
            access_blocks_max,
            waiting: VecDeque::with_capacity(queue_depth),
            slots: vec![nothing; queue_depth],
            idle: (0..queue_depth as u32).rev().collect(),
            frames: vec![Frame(0); queue_depth * access_blocks_max],
            oldest: vec![0; queue_depth * access_blocks_max],
            write_frames: Vec::with_capacity(access_blocks_max),
            done: Vec::with_capacity(queue_depth),
            durability: Durability::Volatile,
            pace: Nanos::ZERO,
            next_at: Time::ZERO,
            in_doubt: Vec::new(),
        }
    }

    /// From here on, requests come at least `pace` apart, so that drives of different speed get the same load.
    pub fn set_pace(&mut self, pace: Nanos) {
        self.pace = pace;
    }

    /// The drive lost its power after [`Limit::Cut`] and is back. What was under way took place or did not; all that
    /// was acknowledged must be there, so writes must have been durable.
    ///
    /// # Panics
    /// If writes were not durable: then the driver does not know what may be lost.
    pub fn after_cut(&mut self) {
        assert_eq!(self.durability, Durability::Durable, "only of durable writes is known what survives");
        self.waiting.clear();
        for (index, slot) in self.slots.iter_mut().enumerate() {
            if slot.access.blocks > 0 {
                if slot.access.operation == Operation::Write {
                    self.in_doubt.push(slot.access);
                }
                slot.access.blocks = 0;
                self.idle.push(index as u32);
            }
        }
    }

    /// From here on, writes are acknowledged when `durability` says.
    pub fn set_durability(&mut self, durability: Durability) {
        self.durability = durability;
    }

    /// Runs one phase. `watch` is called every thousand requests or so and may end the phase.
    ///
    /// # Errors
    /// [`RunError`] if the drive is at fault. A drive that turns read-only is not: see [`Outcome::turned_read_only`].
    pub fn run<T: BlockTarget>(
        &mut self,
        target: &mut T,
        clock: &mut impl Clock,
        workload: &mut Workload,
        limit: Limit,
        mut watch: impl FnMut(Progress<'_, T>) -> ControlFlow<()>,
    ) -> Result<Outcome, RunError> {
        let form = target.payload_form();
        let mut now = clock.now();
        let mut outcome = Outcome::new(now);
        let mut issued = Issued::default();
        let mut watched = 0;
        let mut more = true;
        let mut fruitless = 0;
        let cut = if let Limit::Cut(cut) = limit { cut } else { Time::NEVER };
        loop {
            if now >= cut {
                outcome.ended = now;
                return Ok(outcome);
            }
            while more && self.waiting.len() < self.idle.len() && now >= self.next_at {
                more = match limit {
                    Limit::Requests(requests) => issued.requests < requests,
                    Limit::BlocksWritten(blocks) => issued.blocks_written < blocks,
                    Limit::Until(end) | Limit::Cut(end) => now < end,
                };
                if more {
                    now = clock.now();
                    self.next_at = now + self.pace;
                    let access = workload.next_access();
                    issued.count(access);
                    self.waiting.push_back((access, now));
                }
            }
            while let Some(&(access, since)) = self.waiting.front() {
                // On a real clock time goes on between any two requests.
                now = clock.now();
                match self.submit(target, form, now, access, since)? {
                    Admission::Accepted => {}
                    Admission::Refused => break,
                    Admission::ReadOnly => {
                        outcome.turned_read_only = true;
                        more = false;
                    }
                }
                self.waiting.pop_front();
            }
            now = clock.now();
            target.poll(now, &mut self.done);
            let progressed = !self.done.is_empty();
            let told = clock.now();
            let mut done = std::mem::take(&mut self.done);
            for done in done.drain(..) {
                if told > done.at {
                    outcome.lateness.saturating_record(told.since(done.at).0);
                }
                more &= self.complete(target, &mut outcome, done)?;
            }
            self.done = done;
            if outcome.requests() >= watched + WATCH_REQUESTS {
                watched = outcome.requests();
                if watch(Progress { target, outcome: &outcome, now }).is_break() {
                    outcome.stopped = true;
                    more = false;
                }
            }
            let in_flight = self.queue_depth - self.idle.len();
            if !more && in_flight == 0 && self.waiting.is_empty() {
                return Ok(outcome);
            }
            // The host's own next step, where the drive's is later.
            let next = if more && self.waiting.len() < self.idle.len() { self.next_at.min(cut) } else { cut };
            now = match target.next_due() {
                // As long as requests end there may be more to submit at the same moment.
                _ if progressed => clock.now(),
                Some(due) if due <= now => clock.now(),
                Some(due) => clock.wait_until(due.min(next)),
                None if next != Time::NEVER => clock.wait_until(next),
                None => return Err(RunError::Stalled { in_flight, at: now }),
            };
            fruitless = if progressed { 0 } else { fruitless + 1 };
            if fruitless > FRUITLESS_POLLS_MAX {
                return Err(RunError::Stalled { in_flight, at: now });
            }
        }
    }

    #[inline]
    fn submit<T: BlockTarget>(
        &mut self,
        target: &mut T,
        form: FrameForm,
        now: Time,
        access: Access,
        since: Time,
    ) -> Result<Admission, RunError> {
        let blocks = access.blocks as usize;
        assert!(
            blocks <= self.access_blocks_max,
            "an access of {blocks} blocks on a driver for {}",
            self.access_blocks_max
        );
        let slot = *self.idle.last().expect("the caller made sure that a slot is idle");
        self.write_frames.clear();
        if !target.frames_mut().acquire_many(form, blocks, &mut self.write_frames) {
            return Ok(Admission::Refused);
        }
        let request = match access.operation {
            Operation::Read => {
                self.remember_oldest(slot, access);
                self.frames[slot as usize * self.access_blocks_max..][..blocks].copy_from_slice(&self.write_frames);
                Request::Read { first: access.first, frames: &self.write_frames }
            }
            Operation::Write => {
                let frames = target.frames_mut();
                for (index, &frame) in self.write_frames.iter().enumerate() {
                    let block = access.first + index as u64;
                    let stamp = stamp(block, self.versions[block as usize] + 1);
                    match frames.payload_mut(frame) {
                        PayloadMut::Stamp(payload) => *payload = stamp,
                        PayloadMut::Bytes(payload) => stamp.expand(payload),
                    }
                }
                Request::Write {
                    first: access.first,
                    frames: &self.write_frames,
                    durability: self.durability,
                    handle: Handle::NONE,
                }
            }
        };
        match target.submit(now, u64::from(slot), request) {
            Ok(()) => {
                self.idle.pop();
                self.slots[slot as usize] = Slot { access, since };
                if access.operation == Operation::Write {
                    for version in &mut self.versions[access.first as usize..][..blocks] {
                        *version += 1;
                    }
                }
                Ok(Admission::Accepted)
            }
            Err(error) => {
                for &frame in &self.write_frames {
                    target.frames_mut().release(frame);
                }
                match error {
                    IoError::QueueFull => Ok(Admission::Refused),
                    IoError::ReadOnly if access.operation == Operation::Write => Ok(Admission::ReadOnly),
                    error => Err(failed(access, error)),
                }
            }
        }
    }

    /// Before a read is submitted: the versions that are acknowledged by now.
    fn remember_oldest(&mut self, slot: u32, access: Access) {
        let blocks = access.blocks as usize;
        let oldest = &mut self.oldest[slot as usize * self.access_blocks_max..][..blocks];
        oldest.copy_from_slice(&self.versions[access.first as usize..][..blocks]);
        if self.idle.len() == self.queue_depth && self.in_doubt.is_empty() {
            return;
        }
        // Idle slots hold accesses of no blocks.
        for other in self.slots.iter().map(|slot| &slot.access).chain(&self.in_doubt) {
            let end = (other.first + u64::from(other.blocks)).min(access.first + blocks as u64);
            if other.operation == Operation::Write {
                for block in other.first.max(access.first)..end {
                    oldest[(block - access.first) as usize] -= 1;
                }
            }
        }
    }

    /// Ends a request; false if no more should be submitted.
    #[inline]
    fn complete<T: BlockTarget>(
        &mut self,
        target: &mut T,
        outcome: &mut Outcome,
        done: Done,
    ) -> Result<bool, RunError> {
        let slot = done.tag as usize;
        let Slot { access, since } = self.slots[slot];
        self.slots[slot].access.blocks = 0;
        self.idle.push(slot as u32);
        outcome.ended = outcome.ended.max(done.at);
        let hash = &mut outcome.trace_hash;
        hash.add(access.first << 1 | u64::from(access.operation == Operation::Write));
        hash.add(done.at.0);
        hash.add(u64::from(access.blocks) << 1 | u64::from(done.result.is_ok()));
        match access.operation {
            Operation::Write => match done.result {
                Ok(()) => outcome.writes.count(access.blocks, done.at.since(since)),
                Err(IoError::ReadOnly) => {
                    // Nothing of it is there, nor of any later one.
                    for version in &mut self.versions[access.first as usize..][..access.blocks as usize] {
                        *version -= 1;
                    }
                    outcome.turned_read_only = true;
                    return Ok(false);
                }
                Err(error) => return Err(failed(access, error)),
            },
            Operation::Read => {
                done.result.map_err(|error| failed(access, error))?;
                outcome.reads.count(access.blocks, done.at.since(since));
                for index in 0..access.blocks as usize {
                    let block = access.first + index as u64;
                    let place = slot * self.access_blocks_max + index;
                    let frames = target.frames_mut();
                    let versions = self.oldest[place]..=self.versions[block as usize];
                    check(frames.payload(self.frames[place]), block, versions)?;
                    frames.release(self.frames[place]);
                }
            }
        }
        Ok(true)
    }
}

#[derive(Clone, Copy, Default)]
struct Issued {
    requests: u64,
    blocks_written: u64,
}

impl Issued {
    #[inline]
    fn count(&mut self, access: Access) {
        self.requests += 1;
        if access.operation == Operation::Write {
            self.blocks_written += u64::from(access.blocks);
        }
    }
}

enum Admission {
    Accepted,
    /// Ask again after a poll.
    Refused,
    ReadOnly,
}

fn failed(access: Access, error: IoError) -> RunError {
    RunError::Failed { operation: access.operation, first: access.first, blocks: access.blocks, error }
}

/// What version `version` of `block` looks like.
#[inline]
fn stamp(block: u64, version: u32) -> Stamp {
    if version == 0 { Stamp::ZERO } else { Stamp((block + 1) << VERSION_BITS | u64::from(version & VERSION_MASK)) }
}

/// Checks what a read of `block` returned.
#[inline]
fn check(payload: Payload<'_>, block: u64, versions: std::ops::RangeInclusive<u32>) -> Result<(), RunError> {
    let found = match payload {
        Payload::Stamp(stamp) => Some(stamp),
        Payload::Bytes(bytes) => Stamp::recognise(bytes),
    };
    if found.is_some_and(|found| {
        found == stamp(block, *versions.end()) || versions.clone().any(|version| found == stamp(block, version))
    }) {
        return Ok(());
    }
    Err(RunError::WrongData { block, expected: describe(Some(stamp(block, *versions.end()))), found: describe(found) })
}

fn describe(stamp: Option<Stamp>) -> String {
    match stamp {
        None => "bytes that were never written".to_owned(),
        Some(Stamp::ZERO) => "zeroes".to_owned(),
        Some(Stamp(word)) => match word >> VERSION_BITS {
            0 => format!("the unknown stamp {word:#x}"),
            block => format!("block {} version {}", block - 1, word as u32 & VERSION_MASK),
        },
    }
}

#[cfg(test)]
#[path = "driver_tests.rs"]
mod tests;
