//! Every crash point of a workload: each state in which a power cut can leave the device is recovered and judged, and so
//! is each state in which a power cut can leave the device during that recovery, or during one of so many recoveries.
//!
//! ```text
//!   workload   ──●──●──●──●──●──●──▶        ● an event: a program unit, an erase, an acknowledgement
//!                   │
//!                   ├─ power goes at once, or at any later instant of the device, torn or not
//!                   ▼
//!   recovery   ──●──●──●──●──▶ judged       as many of these as there are different states
//!                      │
//!                      ▼
//!   recovery   ────────────▶ judged         and of these
//! ```
//!
//! A copy of the device is cut, so the workload runs only once. Two cuts count as one where they leave the device in the
//! same state: the recovery does not know which of them it was. What the host had been told may differ; each is judged.
//!
//! These are prefixes in time. On a wire that is watched [beyond](crate::wire::Wire::watch_beyond) each event has some states besides
//! in which every die has a [fate](crate::fate) of its own.
//!
//! The loop is the same for whatever a drive is for. A [`Judge`] says how one of a kind is recovered, and what is right:
//!
//! | judge | of |
//! |---|---|
//! | [`BlockJudge`](crate::block_crash_points::BlockJudge) | blocks, and tables beside them |
//! | [`ZoneJudge`](crate::zone_crash_points::ZoneJudge) | zones |
//! | [`PlayedJudge`](crate::played_crash_points::PlayedJudge) | whatever else is [played](crate::played) |
//! | [`FileJudge`](crate::file_crash_points::FileJudge) | a file system on segments |

use crate::caught::caught;
use crate::fate::States;
use crate::wire::{CrashPoint, Wire};
use rustc_hash::FxHashMap;
use std::rc::Rc;

/// Crash points that a watched wire has found, each with what was known of the drive at its moment.
pub struct Noted<M: ?Sized>(Vec<(CrashPoint, Rc<M>)>);

impl<M: ?Sized> Default for Noted<M> {
    fn default() -> Noted<M> {
        Noted(Vec::new())
    }
}

impl<M: ?Sized> Noted<M> {
    /// What was done since the last call left these states; what the host is told next does not count for them.
    pub fn note(&mut self, wire: &Wire, model: &Rc<M>) {
        let found = wire.crash_points().into_iter();
        self.0.extend(found.map(|crash_point| (crash_point, model.clone())));
    }

    /// All of them, once.
    pub fn take(&mut self) -> Vec<(CrashPoint, Rc<M>)> {
        std::mem::take(&mut self.0)
    }
}

/// A state that a power cut has left.
#[derive(Clone, Copy, Debug)]
pub struct Left {
    /// Which one it is of those that cuts of the workload left, or of those that cuts of recoveries did; from 1 on.
    pub number: u64,
    /// A recovery was cut.
    pub is_of_recovery: bool,
    /// The state of the device.
    pub fingerprint: u64,
}

/// How worlds `W` of one kind are recovered and judged.
pub trait Judge<W> {
    /// What is known of the drive at the moment of a cut.
    type Model: ?Sized;

    /// What was found after a recovery, to be judged again where another cut leaves the same state.
    type Found: Clone;

    /// Whether a state that a cut of a recovery left counts once, too: whenever it comes again, what was found then is judged.
    const KNOWS_RECOVERIES: bool = true;

    /// What messages have between the cut of a recovery and why the drive did not go on.
    const THEN_OF_RECOVERY: &str = ", and then";

    /// What messages say of a cut.
    fn name(crash_point: &CrashPoint, _is_of_recovery: bool) -> String {
        describe(crash_point)
    }

    /// What the device of a world is connected by.
    fn wire(world: &W) -> &Wire;

    /// The world after a power cut, with the drive not opened yet.
    fn left_by(&mut self, world: &W, crash_point: CrashPoint, model: &Rc<Self::Model>) -> W;

    /// Whether the recovery of this state of the workload is cut, too. `is_prefix`: all dies stopped at the same moment.
    fn is_cut(&mut self, left: Left, is_prefix: bool) -> bool;

    /// Opens the drive and compares it with the model.
    ///
    /// # Errors
    /// What contradicts the model.
    fn recover(&mut self, world: &mut W, model: &Rc<Self::Model>, left: Left) -> Result<Self::Found, String>;

    /// Where a power cut could have left the device during that.
    fn crash_points(world: &mut W) -> Vec<CrashPoint> {
        Self::wire(world).crash_points()
    }

    /// A state has come again of which this was found: compares it with the model of this moment.
    ///
    /// # Errors
    /// What contradicts the model.
    fn judge_again(
        &mut self,
        world: &W,
        crash_point: CrashPoint,
        model: &Rc<Self::Model>,
        found: &Self::Found,
        left: Left,
    ) -> Result<(), String>;

    /// A recovered drive works and is closed. Gives whether it was.
    ///
    /// # Errors
    /// What contradicts the model.
    fn go_on(&mut self, world: &mut W, found: &Self::Found, left: Left) -> Result<bool, String>;
}

/// The crash points of a workload so far, judged by `J`, with what was found of each.
pub struct CrashPoints<J, F> {
    /// Who judges them.
    pub judge: J,
    /// What was found after the recovery of each state.
    pub(crate) known: FxHashMap<u64, F>,
    /// Different states that a cut of the workload left.
    pub cuts: u64,
    /// Different states that a cut of one of their recoveries left.
    pub recovery_cuts: u64,
    /// Cuts that left a state that was known.
    pub repeated: u64,
    /// All states by what is particular about them.
    pub states: States,
    /// Drives recovered from them that then worked and closed.
    pub closed: u64,
}

impl<J, F: Clone> CrashPoints<J, F> {
    /// None yet.
    pub(crate) fn by(judge: J) -> CrashPoints<J, F> {
        CrashPoints {
            judge,
            known: FxHashMap::default(),
            cuts: 0,
            recovery_cuts: 0,
            repeated: 0,
            states: States::NONE,
            closed: 0,
        }
    }

    /// Judges these states of a world, each by what was known at its moment.
    ///
    /// # Errors
    /// What contradicts the model, and after which cut.
    pub(crate) fn judge_all<W>(
        &mut self,
        world: &W,
        crash_points: impl IntoIterator<Item = (CrashPoint, Rc<J::Model>)>,
    ) -> Result<(), String>
    where
        J: Judge<W, Found = F>,
    {
        for (crash_point, model) in crash_points {
            let name = J::name(&crash_point, false);
            let fingerprint = crash_point.fingerprint;
            let mut left = Left { number: self.cuts, is_of_recovery: false, fingerprint };
            let Some(crash_point) = self.judge_known(world, crash_point, &model, &name, left)? else { continue };
            self.cuts += 1;
            left.number = self.cuts;
            let is_cut = self.judge.is_cut(left, crash_point.fates.is_none());
            let (found, within) = self.recover(world, crash_point, &model, &name, left, is_cut)?;
            for crash_point in within {
                let name = format!("{name}, then recovery {}", J::name(&crash_point, true));
                let fingerprint = crash_point.fingerprint;
                let mut left = Left { number: self.recovery_cuts, is_of_recovery: true, fingerprint };
                let Some(crash_point) = self.judge_known(world, crash_point, &model, &name, left)? else { continue };
                self.recovery_cuts += 1;
                left.number = self.recovery_cuts;
                self.recover(world, crash_point, &model, &name, left, false)?;
            }
            self.known.insert(fingerprint, found);
        }
        Ok(())
    }

    /// Judges a state again that is known. Gives back the crash point of one that is not.
    fn judge_known<W>(
        &mut self,
        world: &W,
        crash_point: CrashPoint,
        model: &Rc<J::Model>,
        name: &str,
        left: Left,
    ) -> Result<Option<CrashPoint>, String>
    where
        J: Judge<W, Found = F>,
    {
        let Some(found) = self.known.get(&left.fingerprint) else { return Ok(Some(crash_point)) };
        self.repeated += 1;
        recovered(|| self.judge.judge_again(world, crash_point, model, found, left))
            .map_err(|error| format!("{name}: {error}"))?;
        Ok(None)
    }

    /// Has a drive recover, judges it, and has it work and close. Gives what was found, and where this recovery could have been cut.
    fn recover<W>(
        &mut self,
        world: &W,
        crash_point: CrashPoint,
        model: &Rc<J::Model>,
        name: &str,
        left: Left,
        is_cut: bool,
    ) -> Result<(F, Vec<CrashPoint>), String>
    where
        J: Judge<W, Found = F>,
    {
        self.states += crash_point.states;
        let mut copy = self.judge.left_by(world, crash_point, model);
        if is_cut {
            J::wire(&copy).watch();
        }
        let found = recovered(|| self.judge.recover(&mut copy, model, left));
        let found = found.map_err(|error| format!("{name}: {error}"))?;
        if J::KNOWS_RECOVERIES {
            self.known.insert(left.fingerprint, found.clone());
        }
        let within = J::crash_points(&mut copy);
        J::wire(&copy).ignore();
        let then = if left.is_of_recovery { J::THEN_OF_RECOVERY } else { ", and then" };
        let closed = recovered(|| self.judge.go_on(&mut copy, &found, left));
        self.closed += u64::from(closed.map_err(|error| format!("{name}{then}: {error}"))?);
        Ok((found, within))
    }
}

/// What `work` gives; a panic is an error.
fn recovered<T>(work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    caught(work).unwrap_or_else(|panic| Err(panic.to_string()))
}

fn describe(crash_point: &CrashPoint) -> String {
    let CrashPoint { event, at, torn, fates, states, .. } = crash_point;
    let fates = fates.map_or(String::new(), |fates| format!(", {fates:?} ({states})"));
    format!("cut after event {event} at {} ns{}{fates}", at.0, if *torn { ", torn" } else { "" })
}
