//! A log under test, its host, and what that may find.

use openftl_append::LogFtl;
use openftl_core::{Clock, Frame, FrameForm, Nanos, Stamp, TraceHash, VirtualClock};
use openftl_media::{EmulatedDevice, Profile, Store, Timing};
use openftl_parts::target::{Done, IoError};
use openftl_parts::{Config, OpenError, ReadOnlyReason};
use openftl_sim::fate::States;
use openftl_sim::fault::{Fault, FaultKind, disturb};
use openftl_sim::liveness::{Deadline, Patience, Waiting};
use openftl_sim::played::Played;
use openftl_sim::step::{Moment, Step, ZoneDeed, ZoneDeedKind};
use openftl_sim::wire::{CrashPoint, Wire};

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
    pub ftl: Option<LogFtl<Wire>>,
    pub wire: Wire,
    pub model: Model,
    clock: VirtualClock,
    config: Config,
    patience: Patience,
    waiting: Waiting,
    under_way: Vec<(u64, Errand)>,
    tag: u64,
}

impl LogWorld {
    pub fn new(profile: Profile, config: Config, chunks: u32, seed: u64) -> LogWorld {
        let wire = Wire::new(EmulatedDevice::new(profile, chunks, Store::Stamps, Timing::Modelled, seed).unwrap());
        let patience = Patience::with(&wire.device());
        let mut clock = VirtualClock::default();
        let mut deadline = Deadline::new(&mut clock, patience, "a new drive is made".to_owned());
        let ftl = LogFtl::format(wire.clone(), config.clone(), &mut deadline).unwrap();
        let waiting = Waiting::new(patience, clock.0);
        let model = Model::default();
        LogWorld { ftl: Some(ftl), wire, model, clock, config, patience, waiting, under_way: Vec::new(), tag: 0 }
    }

    /// The world after a power cut, with the drive not opened yet.
    pub fn after_cut(&self, crash_point: CrashPoint, model: Model) -> LogWorld {
        let (wire, clock) = (Wire::new(crash_point.device), VirtualClock(crash_point.at));
        let waiting = Waiting::new(self.patience, clock.0);
        let config = self.config.clone();
        LogWorld { ftl: None, wire, model, clock, config, waiting, under_way: Vec::new(), ..*self }
    }

    pub fn ftl(&mut self) -> &mut LogFtl<Wire> {
        self.ftl.as_mut().expect("the drive is open")
    }

    fn frames(&mut self, count: usize) -> Vec<Frame> {
        let mut frames = Vec::new();
        while !self.ftl().frames_mut().acquire_many(FrameForm::Bytes, count, &mut frames) {
            self.pump();
        }
        frames
    }

    /// Appends as many blocks, unless there is no room. Returns whether there was.
    pub fn append(&mut self, count: usize) -> bool {
        let frames = self.frames(count);
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
        let frames = self.frames(count);
        let tag = self.begin();
        self.ftl().read(tag, first as u64, &frames).expect("the log has them");
        self.under_way.push((tag, Errand::Read { frames, expected }));
    }

    /// The tag of the next request. The host waits for it from now on.
    fn begin(&mut self) -> u64 {
        if self.under_way.is_empty() {
            self.waiting.begin_anew(self.clock.0);
        }
        self.tag += 1;
        self.tag
    }

    pub fn flush(&mut self) {
        let (tag, end) = (self.begin(), self.model.blocks.len());
        self.ftl().flush(tag);
        self.under_way.push((tag, Errand::Flush { end }));
    }

    fn expect_worn_out(&mut self, error: IoError) {
        let reason = self.ftl().block().read_only_reason();
        let is_worn =
            matches!(reason, Some(ReadOnlyReason::WornOut | ReadOnlyReason::NoSuperblock | ReadOnlyReason::Spent));
        assert!(error == IoError::ReadOnly && is_worn, "{error}: {}", self.ftl().describe());
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

    /// After a power cut the log has all that was flushed, and of the rest its first blocks.
    pub fn judge(&mut self) -> Result<(), String> {
        let found = self.found();
        let Model { blocks, durable, .. } = &self.model;
        if found.len() < *durable || !blocks.starts_with(&found) {
            return Err(format!("{} blocks are there, {durable} were flushed, {} written", found.len(), blocks.len()));
        }
        (self.model.durable, self.model.blocks) = (found.len(), found);
        Ok(())
    }
}

impl Played for LogWorld {
    fn wire(&self) -> &Wire {
        &self.wire
    }

    fn trace(&self) -> TraceHash {
        self.wire.trace()
    }

    fn is_open(&self) -> bool {
        self.ftl.is_some()
    }

    fn is_read_only(&mut self) -> bool {
        self.ftl().block().read_only_reason().is_some()
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

    fn set_next_config(&mut self, _config: Config) {}

    fn inject(&mut self, fault: Fault) -> bool {
        if matches!(fault.kind, FaultKind::Lose | FaultKind::Corrupt) {
            return false;
        }
        // A read that has failed once is not to fail once more.
        self.settle();
        let ftl = self.ftl.as_ref().expect("the drive is open");
        disturb(&mut self.wire.device(), ftl.block(), self.clock.0, fault)
    }

    fn requests_under_way(&self) -> usize {
        self.under_way.len()
    }

    fn pump(&mut self) {
        let (now, mut done) = (self.clock.now(), Vec::new());
        self.ftl().poll(now, &mut done);
        if done.is_empty() {
            let Some(due) = self.ftl().next_due() else { panic!("nothing is due: {}", self.ftl().describe()) };
            let now = self.clock.wait_until(due);
            self.ftl().poll(now, &mut done);
        }
        match done.is_empty() {
            true => {
                if let Err(waited) = self.waiting.poll(self.clock.0) {
                    panic!("{waited}: {}", self.ftl().describe());
                }
            }
            false => self.waiting.begin_anew(self.clock.0),
        }
        self.take(done);
    }

    fn settle(&mut self) {
        while !self.under_way.is_empty() {
            self.pump();
        }
    }

    fn idle(&mut self, span: Nanos) {
        let end = self.clock.0 + span;
        loop {
            let (now, mut done) = (self.clock.now(), Vec::new());
            self.ftl().poll(now, &mut done);
            self.take(done);
            match self.ftl().next_due() {
                Some(due) if due < end => _ = self.clock.wait_until(due),
                _ => break,
            }
        }
        self.clock.wait_until(end);
    }

    fn clean_restart(&mut self) {
        self.settle();
        let ftl = self.ftl.take().expect("the drive is open");
        let mut deadline = Deadline::new(&mut self.clock, self.patience, "the drive is closed".to_owned());
        match ftl.close(&mut deadline) {
            Ok(_) => self.model.durable = self.model.blocks.len(),
            Err(OpenError::Unwritable(
                ReadOnlyReason::WornOut | ReadOnlyReason::NoSuperblock | ReadOnlyReason::Spent,
            )) => {}
            Err(error) => panic!("the drive cannot be closed: {error}"),
        }
        Played::open(self).unwrap_or_else(|error| panic!("{error}"));
        self.judge().unwrap_or_else(|contradiction| panic!("{contradiction}"));
    }

    fn power_cut_at(&mut self, moment: Moment) -> States {
        self.ftl = None;
        self.under_way.clear();
        self.wire.power_cut(moment)
    }

    fn open(&mut self) -> Result<(), OpenError> {
        let mut deadline = Deadline::new(&mut self.clock, self.patience, "the drive is opened".to_owned());
        self.ftl = Some(LogFtl::open(self.wire.clone(), self.config.clone(), &mut deadline)?);
        self.waiting = Waiting::new(self.patience, self.clock.0);
        Ok(())
    }

    fn recover(&mut self) -> Result<(), String> {
        if self.ftl.is_none() {
            Played::open(self).map_err(|error| error.to_string())?;
        }
        self.judge()
    }

    fn probe(&self) {
        let device = self.wire.device().fork().expect("memory for a small device").expect("a store in memory");
        let (event, at, states) = (self.wire.events(), self.clock.0, States::prefix());
        let left = CrashPoint { device, fingerprint: 0, event, at, torn: false, fates: None, states };
        self.after_cut(left, self.model.clone()).prove();
    }

    fn verify_all(&mut self) {
        let len = self.model.blocks.len();
        for first in (0..len).step_by(READ_BLOCKS) {
            self.read(first, READ_BLOCKS.min(len - first));
        }
        self.settle();
    }

    fn check(&mut self) {
        self.verify_all();
    }
}

impl LogWorld {
    /// A drive after a power cut recovers, works and is closed.
    pub fn prove(&mut self) {
        self.recover().unwrap_or_else(|contradiction| panic!("{contradiction}"));
        self.append(30);
        self.flush();
        self.clean_restart();
        self.verify_all();
    }
}
