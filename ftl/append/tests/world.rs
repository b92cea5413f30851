//! A log under test, its host, and what that may find.

use openftl_append::LogFtl;
use openftl_blocks::Ftl;
use openftl_core::Frame;
use openftl_core::{Clock, Stamp};
use openftl_media::{EmulatedDevice, Profile, Store, Timing};
use openftl_parts::target::{Done, IoError, Target};
use openftl_parts::{Access, Config};
use openftl_sim::fault::{Fault, FaultKind, disturb};
use openftl_sim::played::Played;
use openftl_sim::rig::Rig;
use openftl_sim::step::{Step, ZoneDeed, ZoneDeedKind};
use openftl_sim::wire::{CrashPoint, Wire};
use std::ops::{Deref, DerefMut};

/// Blocks that are read at a time where all are.
const READ_BLOCKS: usize = 32;

/// What is known of the log.
#[derive(Clone, Default)]
pub struct Model {
    /// What was appended.
    blocks: Vec<Stamp>,
    /// So many blocks are there after a power cut.
    durable: usize,
    /// The last block that was made up. No two are the same.
    last: u64,
}

enum Errand {
    Read { frames: Vec<Frame>, expected: Vec<Stamp> },
    Flush { end: usize },
}

pub struct LogWorld {
    rig: Rig<LogFtl<Wire>>,
    pub model: Model,
    under_way: Vec<(u64, Errand)>,
}

impl Deref for LogWorld {
    type Target = Rig<LogFtl<Wire>>;

    fn deref(&self) -> &Rig<LogFtl<Wire>> {
        &self.rig
    }
}

impl DerefMut for LogWorld {
    fn deref_mut(&mut self) -> &mut Rig<LogFtl<Wire>> {
        &mut self.rig
    }
}

impl LogWorld {
    pub fn new(profile: Profile, config: Config, chunks: u32, seed: u64) -> LogWorld {
        let device = EmulatedDevice::new(profile, chunks, Store::Stamps, Timing::Modelled, seed).unwrap();
        let mut rig = Rig::try_new(device, config, (), (), seed).unwrap();
        rig.may_wear_out = true;
        LogWorld::of(rig, Model::default())
    }

    fn of(rig: Rig<LogFtl<Wire>>, model: Model) -> LogWorld {
        LogWorld { rig, model, under_way: Vec::new() }
    }

    /// The world after a power cut, with the drive not opened yet.
    pub fn after_cut(&self, crash_point: CrashPoint, model: Model) -> LogWorld {
        LogWorld::of(self.rig.with(crash_point.device, crash_point.at), model)
    }

    /// Appends as many blocks, unless there is no room. Returns whether there was.
    pub fn append(&mut self, count: usize) -> bool {
        let frames = self.frames(count as u64);
        let made: Vec<Stamp> = (1..=count as u64).map(|number| Stamp(self.model.last + number)).collect();
        for (stamp, frame) in made.iter().zip(&frames) {
            stamp.expand(self.ftl().frames_mut().bytes_mut(*frame));
        }
        self.model.last += count as u64;
        match self.ftl().append(&frames) {
            Ok(first) => {
                assert_eq!(first as usize, self.model.blocks.len(), "a log grows at its end");
                self.model.blocks.extend(made);
                true
            }
            Err(error) => {
                frames.into_iter().for_each(|frame| self.ftl().frames_mut().release(frame));
                match error {
                    IoError::OutOfRange { .. } => {}
                    error => self.expect_worn_out(error),
                }
                false
            }
        }
    }

    /// Reads blocks, and compares them when they are there.
    pub fn read(&mut self, first: usize, count: usize) {
        let expected = self.model.blocks[first..first + count].to_vec();
        let frames = self.frames(count as u64);
        let tag = self.begin();
        self.ftl().read(tag, first as u64, &frames).expect("the log has them");
        self.under_way.push((tag, Errand::Read { frames, expected }));
    }

    /// The tag of the next request. The host waits for it from now on.
    fn begin(&mut self) -> u64 {
        if self.under_way.is_empty() {
            self.wait_anew();
        }
        self.next_tag()
    }

    pub fn flush(&mut self) {
        let (tag, end) = (self.begin(), self.model.blocks.len());
        self.ftl().flush(tag);
        self.under_way.push((tag, Errand::Flush { end }));
    }

    fn expect_worn_out(&mut self, error: IoError) {
        assert!(error == IoError::ReadOnly && self.is_worn_out(), "{error}: {}", self.ftl().describe());
    }

    /// What the log holds now, by what its blocks say.
    fn found(&mut self) -> Vec<Stamp> {
        let mut found = Vec::new();
        loop {
            let frames = self.frames(1);
            let tag = self.begin();
            let is_there = self.ftl().read(tag, found.len() as u64, &frames).is_ok();
            if is_there {
                let mut done = Vec::new();
                while done.is_empty() {
                    let now = self.clock.now();
                    self.ftl().poll(now, &mut done);
                    if let (true, Some(due)) = (done.is_empty(), self.ftl().next_due()) {
                        self.clock.wait_until(due);
                    }
                }
                assert_eq!(done[0].result, Ok(()), "block {}", found.len());
                found.extend(Stamp::recognise(self.ftl().frames_mut().bytes(frames[0])));
            }
            self.ftl().frames_mut().release(frames[0]);
            if !is_there {
                return found;
            }
        }
    }

    /// A drive after a power cut recovers, works and is closed.
    pub fn prove(&mut self) {
        self.recover().unwrap_or_else(|contradiction| panic!("{contradiction}"));
        self.append(30);
        self.flush();
        self.clean_restart();
        self.verify_all();
    }
}

impl Played for LogWorld {
    type Ftl = LogFtl<Wire>;

    fn rig(&self) -> &Rig<LogFtl<Wire>> {
        &self.rig
    }

    fn rig_mut(&mut self) -> &mut Rig<LogFtl<Wire>> {
        &mut self.rig
    }

    /// What steps ask of zones is asked of the log.
    fn request(&mut self, step: &Step) {
        let Step::Zone(ZoneDeed { kind, pick, size }) = *step else { return self.flush() };
        let len = self.model.blocks.len();
        match kind {
            ZoneDeedKind::Read if len > 0 => {
                let first = pick as usize % len;
                self.read(first, (size as usize).clamp(1, READ_BLOCKS).min(len - first));
            }
            ZoneDeedKind::Append | ZoneDeedKind::Write => _ = self.append(size as usize % 40 + 1),
            ZoneDeedKind::AppendDurably => {
                self.append(size as usize % 40 + 1);
                self.flush();
            }
            _ => {}
        }
    }

    fn take(&mut self, done: Vec<Done>) {
        for Done { tag, result, .. } in done {
            let index = self.under_way.iter().position(|(other, _)| *other == tag).expect("a request under way");
            match self.under_way.swap_remove(index).1 {
                Errand::Flush { end } => match result {
                    Ok(()) => self.model.durable = self.model.durable.max(end),
                    Err(error) => self.expect_worn_out(error),
                },
                Errand::Read { frames, expected } => {
                    assert_eq!(result, Ok(()), "a read");
                    for (frame, expected) in frames.into_iter().zip(expected) {
                        assert_eq!(Stamp::recognise(self.ftl().frames_mut().bytes(frame)), Some(expected));
                        self.ftl().frames_mut().release(frame);
                    }
                }
            }
        }
        self.wire.look();
    }

    fn requests_under_way(&self) -> usize {
        self.under_way.len()
    }

    fn forget_requests(&mut self) {
        self.under_way.clear();
    }

    fn inject(&mut self, fault: Fault) -> bool {
        if matches!(fault.kind, FaultKind::Lose | FaultKind::Corrupt) {
            return false;
        }
        // A read that has failed once is not to fail once more.
        self.settle();
        let ftl = self.ftl.as_ref().expect("the drive is open");
        disturb(&mut self.wire.device(), ftl.block(), self.clock.0, fault)
    }

    /// After a power cut the log has all that was flushed, and of the rest its first blocks.
    fn judge(&mut self) -> Result<(), String> {
        let found = self.found();
        let Model { blocks, durable, .. } = &self.model;
        if found.len() < *durable || !blocks.starts_with(&found) {
            return Err(format!("{} blocks are there, {durable} were flushed, {} written", found.len(), blocks.len()));
        }
        (self.model.durable, self.model.blocks) = (found.len(), found);
        Ok(())
    }

    fn clean_restart(&mut self) {
        self.settle();
        if self.close().is_ok() {
            self.model.durable = self.model.blocks.len();
        }
        self.open(Access::ReadWrite).unwrap_or_else(|error| panic!("{error}"));
        self.judge().unwrap_or_else(|contradiction| panic!("{contradiction}"));
    }

    fn probe(&self) {
        LogWorld::of(self.rig.fork(), self.model.clone()).prove();
    }

    fn verify_all(&mut self) {
        let len = self.model.blocks.len();
        for first in (0..len).step_by(READ_BLOCKS) {
            self.read(first, READ_BLOCKS.min(len - first));
        }
        self.settle();
    }

    fn is_damaged(&self) -> bool {
        false
    }
}
