//! A drive on a wire, with its clock, and the patience of whoever waits for it: what every world has, whatever the drive is for.

use crate::liveness::{Deadline, Patience, Waiting};
use crate::wire::Wire;
use openftl_blocks::{CheckReport, Ftl};
use openftl_core::{Clock, Nanos, Time, VirtualClock};
use openftl_media::EmulatedDevice;
use openftl_parts::config::Left;
use openftl_parts::{Access, Config, OpenError, ReadOnlyReason, Target};
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::cell::RefMut;

/// See the module.
pub struct Rig<F: Ftl<Media = Wire>> {
    /// The drive; `None` while it is closed.
    pub ftl: Option<F>,
    /// What the drive is connected to its device by.
    pub wire: Wire,
    /// Virtual time.
    pub clock: VirtualClock,
    /// What the drive is opened with.
    pub config: Config,
    /// What it is opened with from the next time on, if that is something else. Where that is refused because it needs more
    /// chunks, the drive is opened as it was made.
    pub next_config: Option<Config>,
    has_other_config: bool,
    /// What is asked for beside it.
    asked: F::Asked,
    /// Whether the drive may wear out, and refuse writes from then on.
    pub may_wear_out: bool,
    chance: Xoshiro256PlusPlus,
    patience: Patience,
    /// Since something last ended.
    waiting: Waiting,
    tag: u64,
}

/// Drives come and go, each with a megabyte of frames: an allocator that learns from large blocks (that of GNU does) keeps
/// such memory from now on, instead of giving it back to the system and having it zeroed page by page each time.
fn keep_freed_memory() {
    const LARGE_BYTES: usize = 24 << 20;
    drop(std::hint::black_box(Vec::<u8>::with_capacity(LARGE_BYTES)));
}

impl<F: Ftl<Media = Wire> + Target> Rig<F> {
    /// A new drive of this shape on a new device; `seed` is that of what the host draws.
    ///
    /// # Errors
    /// If there can be no such drive.
    pub fn try_new(
        device: EmulatedDevice,
        config: Config,
        shape: F::Shape,
        asked: F::Asked,
        seed: u64,
    ) -> Result<Rig<F>, OpenError> {
        keep_freed_memory();
        let (wire, mut clock) = (Wire::new(device), VirtualClock::default());
        let patience = Patience::with(&wire.device());
        let mut deadline = Deadline::new(&mut clock, patience, "a new drive is made".to_owned());
        let ftl = F::format(wire.clone(), config.clone(), shape, &mut deadline)?;
        Ok(Rig {
            ftl: Some(ftl),
            waiting: Waiting::new(patience, clock.0),
            wire,
            clock,
            config,
            next_config: None,
            has_other_config: false,
            asked,
            may_wear_out: false,
            chance: Xoshiro256PlusPlus::seed_from_u64(seed),
            patience,
            tag: 0,
        })
    }

    /// The same with another device, on which the drive is not open yet, from an instant on.
    #[must_use]
    pub fn with(&self, device: EmulatedDevice, at: Time) -> Rig<F> {
        self.on(Wire::new(device), at)
    }

    fn on(&self, wire: Wire, at: Time) -> Rig<F> {
        Rig {
            ftl: None,
            wire,
            clock: VirtualClock(at),
            config: self.config.clone(),
            next_config: self.next_config.clone(),
            has_other_config: self.has_other_config,
            asked: self.asked.clone(),
            may_wear_out: self.may_wear_out,
            chance: self.chance.clone(),
            patience: self.patience,
            waiting: Waiting::new(self.patience, at),
            tag: self.tag,
        }
    }

    /// The same once more, with the drive not open and its device as it is.
    #[must_use]
    pub fn fork(&self) -> Rig<F> {
        let device = self.device().fork().expect("memory for a small device").expect("a store in memory");
        self.with(device, self.clock.0)
    }

    /// The same, on a device that who only looks at it may write to: it is a copy.
    #[must_use]
    pub fn fork_to_look_at(&self, now: Time) -> Rig<F> {
        let device = self.device().fork().expect("memory for a small device").expect("a store in memory");
        self.on(Wire::to_copy(device), now)
    }

    /// The drive, which is open.
    ///
    /// # Panics
    /// If it is closed.
    pub fn ftl(&mut self) -> &mut F {
        self.ftl.as_mut().expect("the drive is open")
    }

    /// The device.
    #[must_use]
    pub fn device(&self) -> RefMut<'_, EmulatedDevice> {
        self.wire.device()
    }

    /// A number below `bound`, drawn from the seed.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.chance.next_u64() % bound
    }

    /// The tag of the next request.
    pub fn next_tag(&mut self) -> u64 {
        self.tag += 1;
        self.tag
    }

    /// Something has ended, or nothing was waited for.
    pub fn wait_anew(&mut self) {
        self.waiting.begin_anew(self.clock.0);
    }

    /// Lets the drive work until something has ended, or what was waited for may be there.
    ///
    /// # Errors
    /// Why nothing will end.
    pub fn step(&mut self) -> Result<Vec<F::Done>, String> {
        let mut done = Vec::new();
        let (now, progress) = (self.clock.now(), self.progress());
        self.ftl().poll(now, &mut done);
        if done.is_empty() {
            let Some(due) = self.ftl().next_due() else {
                // A chunk may have closed without any time.
                let is_still = self.progress() == progress;
                return if is_still { Err("nothing is due".to_owned()) } else { Ok(done) };
            };
            let now = self.clock.wait_until(due);
            self.ftl().poll(now, &mut done);
        }
        match done.is_empty() {
            true => self.waiting.poll(self.clock.0)?,
            false => self.waiting.begin_anew(self.clock.0),
        }
        Ok(done)
    }

    /// Counts what the drive has done.
    fn progress(&mut self) -> u64 {
        self.ftl().block().vitals().expect("a block FTL has them").progress
    }

    /// Submits a request with a tag of its own, and waits for its end while nothing else is under way. `answer` says whose end something is, and what
    /// came of it.
    ///
    /// # Errors
    /// As of the request.
    ///
    /// # Panics
    /// If it never ends.
    pub fn ask<R, E>(
        &mut self,
        submit: impl FnOnce(&mut F, Time, u64) -> Result<(), E>,
        answer: impl Fn(&F::Done) -> (u64, Result<R, E>),
    ) -> Result<R, E> {
        let (tag, now) = (self.next_tag(), self.clock.now());
        submit(self.ftl(), now, tag)?;
        let mut done = Vec::new();
        loop {
            let now = self.clock.now();
            self.ftl().poll(now, &mut done);
            if let Some((_, result)) = done.iter().map(&answer).find(|(other, _)| *other == tag) {
                return result;
            }
            let due = self.ftl().next_due();
            let due = due.unwrap_or_else(|| panic!("nothing is due: {}", self.ftl().describe()));
            self.clock.wait_until(due);
        }
    }

    /// Lets the drive work once, when something is due until then. `None`: nothing is.
    ///
    /// # Errors
    /// If it works without an end while no time passes.
    pub fn step_until(&mut self, until: Time) -> Result<Option<Vec<F::Done>>, String> {
        let Some(due) = self.ftl().next_due().filter(|due| *due <= until) else { return Ok(None) };
        let (now, mut done) = (self.clock.wait_until(due), Vec::new());
        self.ftl().poll(now, &mut done);
        // Time passes as it should; only a drive that never lets it pass is not alive.
        self.waiting.poll(self.waiting.since())?;
        Ok(Some(done))
    }

    /// The host asks for nothing until `span` has passed, and waits for nothing. Gives the end of that; see [`Rig::step_until`].
    pub fn begin_idle(&mut self, span: Nanos) -> Time {
        self.waiting.begin_anew(self.clock.0);
        self.clock.now() + span
    }

    /// Opens the drive.
    ///
    /// # Errors
    /// If it is refused.
    ///
    /// # Panics
    /// If it was opened and has no room to work.
    pub fn open(&mut self, access: Access) -> Result<(), OpenError> {
        if let Some(config) = self.next_config.take() {
            (self.config, self.has_other_config) = (config, true);
        }
        let mut opened = self.open_as_configured(access);
        if self.has_other_config && matches!(opened, Err(OpenError::OtherSize { .. })) {
            (self.config.left, self.config.checkpoint_log_blocks) = (Left::ALL, None);
            opened = self.open_as_configured(access);
        }
        let ftl = self.ftl.insert(opened?);
        let missing = &ftl.block().recovery_report().missing_room;
        assert!(missing.is_none(), "room is missing: {missing:?}, {}", ftl.describe());
        self.waiting.begin_anew(self.clock.0);
        Ok(())
    }

    fn open_as_configured(&mut self, access: Access) -> Result<F, OpenError> {
        let (wire, config, asked) = (self.wire.clone(), self.config.clone(), self.asked.clone());
        let mut deadline = Deadline::new(&mut self.clock, self.patience, "the drive is opened".to_owned());
        F::open_with(wire, config, asked, access, &mut deadline)
    }

    /// Closes the drive, with nothing under way.
    ///
    /// # Errors
    /// Why not all could be written, if it may wear out and has.
    ///
    /// # Panics
    /// If it cannot be closed otherwise, or not in time.
    pub fn close(&mut self) -> Result<(), ReadOnlyReason> {
        let before = self.ftl().describe();
        let ftl = self.ftl.take().expect("the drive is open");
        let deed = format!("the drive is closed, begun with {before}");
        match ftl.close(&mut Deadline::new(&mut self.clock, self.patience, deed)) {
            Ok(_) => Ok(()),
            Err(OpenError::Unwritable(reason)) if self.may_wear_out && is_of_wear(reason) => Err(reason),
            Err(error) => panic!("the drive cannot be closed: {error}; before that: {before}"),
        }
    }

    /// Has the drive verify itself.
    ///
    /// # Panics
    /// If that does not end in time.
    pub fn check(&mut self) -> CheckReport {
        let ftl = self.ftl.as_mut().expect("the drive is open");
        let mut deadline = Deadline::new(&mut self.clock, self.patience, "the drive checks itself".to_owned());
        ftl.check(&mut deadline, &mut |_, _| ()).expect("the device answers")
    }

    /// Whether the drive is read-only as one that is worn out may be.
    pub fn is_worn_out(&mut self) -> bool {
        self.ftl().read_only_reason().is_some_and(is_of_wear)
    }
}

fn is_of_wear(reason: ReadOnlyReason) -> bool {
    matches!(reason, ReadOnlyReason::WornOut | ReadOnlyReason::NoSuperblock | ReadOnlyReason::Spent)
}
