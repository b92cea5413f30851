//! Every state in which a power cut can leave a drive of any kind that is [played](crate::played), recovered and judged; and every state in which
//! one can leave it during these recoveries.
//!
//! A copy of the device is cut, so what comes before is played once. States are counted once, however often a history comes to them; each is judged
//! by what was promised then, quickly: what a recovery may have changed is compared in each, and a part of the rest that is another one each time.

use crate::crash_points::{CrashPoints, Judge, Left};
use crate::played::Played;
use crate::wire::{CrashPoint, Wire};
use std::fmt;
use std::rc::Rc;

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

/// How such drives are judged: quickly, and of a state that comes again once more.
pub struct PlayedJudge {
    /// Of so many states that a cut of the workload left, one has its recovery cut everywhere.
    recoveries_cut: u64,
    /// Of so many recovered drives one works and is closed.
    works: u64,
}

/// The crash points of workloads so far.
pub type PlayedCrashPoints = CrashPoints<PlayedJudge, ()>;

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
        CrashPoints::by(PlayedJudge { recoveries_cut, works })
    }

    /// All of them.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.cuts + self.recovery_cuts
    }

    /// Another workload begins, on another drive.
    pub fn begin_workload(&mut self) {
        self.known.clear();
    }

    /// Judges the states that a power cut could have left since the last call, by what was known before. `world` is watched
    /// ([`crate::wire::Wire::watch`]), and nothing is under way.
    ///
    /// # Errors
    /// What contradicts the model, and after which cut.
    pub fn judge<W: Cut>(&mut self, world: &W, model: &W::Model) -> Result<(), String> {
        let model = Rc::new(model.clone());
        let crash_points = world.rig().wire.crash_points().into_iter();
        self.judge_all(world, crash_points.map(|crash_point| (crash_point, model.clone())))
    }
}

impl<W: Cut> Judge<W> for PlayedJudge {
    type Model = W::Model;
    type Found = ();

    fn wire(world: &W) -> &Wire {
        &world.rig().wire
    }

    fn left_by(&mut self, world: &W, crash_point: CrashPoint, model: &Rc<W::Model>) -> W {
        world.left_by(crash_point, model)
    }

    /// Recoveries after other cuts than prefixes are not cut.
    fn is_cut(&mut self, left: Left, is_prefix: bool) -> bool {
        is_prefix && left.number.is_multiple_of(self.recoveries_cut)
    }

    fn recover(&mut self, world: &mut W, _: &Rc<W::Model>, left: Left) -> Result<(), String> {
        world.recover_quickly(left.number)
    }

    /// Nothing is kept of what was found, so the drive recovers once more. Of a recovery that was cut, the first cut that left the state counts.
    fn judge_again(
        &mut self,
        world: &W,
        crash_point: CrashPoint,
        model: &Rc<W::Model>,
        (): &(),
        left: Left,
    ) -> Result<(), String> {
        match left.is_of_recovery {
            true => Ok(()),
            false => world.left_by(crash_point, model).recover_quickly(left.number),
        }
    }

    fn go_on(&mut self, world: &mut W, (): &(), left: Left) -> Result<bool, String> {
        let works = left.number.is_multiple_of(self.works);
        if works {
            world.work_and_close();
        }
        Ok(works)
    }
}
