//! Every state in which a power cut can leave a drive of any kind that is [played](crate::played), recovered and judged; and every state in which
//! one can leave it during these recoveries.
//!
//! A copy of the device is cut, so what comes before is played once. States are counted once, however often a history comes to them; each is judged
//! by what was promised then, quickly: what a recovery may have changed is compared in each, and a part of the rest that is another one each time.

use crate::caught::caught;
use crate::fate::States;
use crate::played::Played;
use crate::wire::CrashPoint;
use rustc_hash::FxHashSet;
use std::fmt;

/// A world of which crash points are found.
pub trait Cut: Played {
    /// What is known of the drive.
    type Model: Clone;

    /// The world after a power cut, with the drive not opened yet and this model.
    fn left_by(&self, crash_point: CrashPoint, model: &Self::Model) -> Self;

    /// Recovers as [`Played::recover`] does, and compares what differs from state to state; of the rest what the number of the state says, so that
    /// others compare the others.
    ///
    /// # Errors
    /// What contradicts the model.
    fn recover_quickly(&mut self, number: u64) -> Result<(), String>;

    /// A drive that was recovered works, and is closed.
    fn work_and_close(&mut self);
}

/// The crash points of workloads so far.
pub struct PlayedCrashPoints {
    /// Of so many states that a cut of the workload left, one has its recovery cut everywhere.
    recoveries_cut: u64,
    /// Of so many recovered drives one works and is closed.
    works: u64,
    seen: FxHashSet<u64>,
    /// Different states that a cut of a workload left.
    pub cuts: u64,
    /// Different states that a cut of one of their recoveries left.
    pub recovery_cuts: u64,
    /// All of them by what is particular about them.
    pub states: States,
    /// Drives recovered from them that then worked and closed.
    pub closed: u64,
}

impl fmt::Display for PlayedCrashPoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PlayedCrashPoints { cuts, recovery_cuts, states, closed, .. } = self;
        write!(
            f,
            "{cuts} states after cuts of the workload, {recovery_cuts} after cuts of a recovery: {states}; {closed} worked on and closed"
        )
    }
}

impl PlayedCrashPoints {
    /// None yet. Of so many states that a cut of the workload leaves one has its recovery cut, and of so many recovered drives one works on.
    #[must_use]
    pub fn new(recoveries_cut: u64, works: u64) -> PlayedCrashPoints {
        PlayedCrashPoints {
            recoveries_cut,
            works,
            seen: FxHashSet::default(),
            cuts: 0,
            recovery_cuts: 0,
            states: States::NONE,
            closed: 0,
        }
    }

    /// All of them.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.cuts + self.recovery_cuts
    }

    /// Another workload begins, on another drive.
    pub fn begin_workload(&mut self) {
        self.seen.clear();
    }

    /// Judges the states that a power cut could have left since the last call, by what was known before. `world` is watched
    /// ([`crate::wire::Wire::watch`]), and nothing is under way.
    ///
    /// # Errors
    /// What contradicts the model, and after which cut.
    pub fn judge<W: Cut>(&mut self, world: &W, model: &W::Model) -> Result<(), String> {
        for crash_point in world.rig().wire.crash_points() {
            let name = describe(&crash_point);
            let is_prefix = crash_point.fates.is_none();
            let is_new = self.seen.insert(crash_point.fingerprint);
            if is_new {
                self.cuts += 1;
                self.states += crash_point.states;
            }
            let mut left = world.left_by(crash_point, model);
            let is_cut = is_new && is_prefix && self.cuts.is_multiple_of(self.recoveries_cut);
            if is_cut {
                left.rig().wire.watch();
            }
            let number = self.cuts;
            recovered(|| left.recover_quickly(number)).map_err(|error| format!("{name}: {error}"))?;
            let within = left.rig().wire.crash_points();
            left.rig().wire.ignore();
            if is_new {
                self.go_on(&mut left, self.cuts).map_err(|error| format!("{name}, and then: {error}"))?;
            }
            for crash_point in within {
                if !self.seen.insert(crash_point.fingerprint) {
                    continue;
                }
                self.recovery_cuts += 1;
                self.states += crash_point.states;
                let name = format!("{name}, then recovery {}", describe(&crash_point));
                let mut left = world.left_by(crash_point, model);
                let number = self.recovery_cuts;
                recovered(|| left.recover_quickly(number)).map_err(|error| format!("{name}: {error}"))?;
                self.go_on(&mut left, self.recovery_cuts).map_err(|error| format!("{name}, and then: {error}"))?;
            }
        }
        Ok(())
    }

    fn go_on<W: Cut>(&mut self, left: &mut W, number: u64) -> Result<(), String> {
        if number.is_multiple_of(self.works) {
            caught(|| left.work_and_close()).map_err(|failure| failure.to_string())?;
            self.closed += 1;
        }
        Ok(())
    }
}

fn recovered(recover: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
    caught(recover).unwrap_or_else(|panic| Err(panic.to_string()))
}

fn describe(crash_point: &CrashPoint) -> String {
    let CrashPoint { event, at, torn, fates, states, .. } = crash_point;
    let fates = fates.map_or(String::new(), |fates| format!(", {fates:?} ({states})"));
    format!("cut after event {event} at {} ns{}{fates}", at.0, if *torn { ", torn" } else { "" })
}
