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
//! in which every die has a [fate](crate::fate) of its own; their recoveries are not cut.

use crate::caught::{Failure, caught};
use crate::fate::States;
use crate::history::{Found, History};
use crate::liveness;
use crate::stage::Stage;
use crate::wire::CrashPoint;
use openftl_parts::Access;
use rustc_hash::FxHashMap;
use std::num::NonZeroU64;
use std::rc::Rc;

/// Every recovered drive does some of everything and is closed. One of so many works for longer before that.
const GOES_ON: u64 = 10;

/// The crash points of one workload so far.
pub struct CrashPoints {
    /// One recovery of so many is cut as well.
    cut_one_of: u64,
    /// Recoveries that could have been.
    prefixes: u64,
    /// What was found after the recovery of each state.
    known: FxHashMap<u64, Vec<Found>>,
    /// Different states that a cut of the workload left.
    pub cuts: u64,
    /// Different states that a cut of one of their recoveries left.
    pub recovery_cuts: u64,
    /// All of them by what is particular about them.
    pub states: States,
    /// Drives recovered from them that then worked and closed.
    pub closed: u64,
}

impl CrashPoints {
    /// None yet. Of the recoveries one of `cut_one_of` is cut as well: those of neighbouring cuts do nearly the same, and with all of
    /// them nearly all states are those of recoveries.
    pub fn new(cut_one_of: NonZeroU64) -> CrashPoints {
        CrashPoints {
            cut_one_of: cut_one_of.get(),
            prefixes: 0,
            known: FxHashMap::default(),
            cuts: 0,
            recovery_cuts: 0,
            states: States::NONE,
            closed: 0,
        }
    }

    /// Judges the states that a power cut could have left since the last call. `world` is watched ([`crate::wire::Wire::watch`]).
    ///
    /// # Errors
    /// What contradicts the model, and after which cut.
    pub fn judge(&mut self, world: &mut impl Stage) -> Result<(), String> {
        for (crash_point, history) in world.crash_points() {
            let name = describe(&crash_point);
            if let Some(found) = self.known.get(&crash_point.fingerprint) {
                history.verdict(found).map_err(|error| format!("{name}: {error}"))?;
                continue;
            }
            let fingerprint = crash_point.fingerprint;
            let found = self.recover(world, crash_point, &history).map_err(|error| format!("{name}{error}"))?;
            self.known.insert(fingerprint, found);
        }
        Ok(())
    }

    fn recover(
        &mut self,
        world: &impl Stage,
        crash_point: CrashPoint,
        history: &Rc<History>,
    ) -> Result<Vec<Found>, String> {
        self.cuts += 1;
        self.states += crash_point.states;
        let is_prefix = crash_point.fates.is_none();
        let is_cut = is_prefix && self.prefixes.is_multiple_of(self.cut_one_of);
        self.prefixes += u64::from(is_prefix);
        let mut recovered = world.after_cut(crash_point, history.clone());
        if is_cut {
            recovered.block_world().wire.watch();
        }
        let found = judge(&mut recovered).map_err(|error| format!(": {error}"))?;
        let crash_points = recovered.crash_points();
        recovered.block_world().wire.ignore();
        let goes_on = self.cuts.is_multiple_of(GOES_ON);
        self.go_on(&mut recovered, &found, goes_on).map_err(|error| format!(", and then: {error}"))?;
        for (crash_point, _) in crash_points {
            let name = describe(&crash_point);
            let fingerprint = crash_point.fingerprint;
            if let Some(found) = self.known.get(&fingerprint) {
                history.verdict(found).map_err(|error| format!(", then recovery {name}: {error}"))?;
                continue;
            }
            self.recovery_cuts += 1;
            self.states += crash_point.states;
            let mut recovered = world.after_cut(crash_point, history.clone());
            judge(&mut recovered)
                .and_then(|found| {
                    self.go_on(&mut recovered, &found, false).map_err(|error| format!("and then: {error}"))
                })
                .map_err(|error| format!(", then recovery {name}: {error}"))?;
        }
        Ok(found)
    }

    /// A recovered drive works and is closed; if `long`, it works for longer before that.
    fn go_on(&mut self, recovered: &mut impl Stage, found: &[Found], long: bool) -> Result<(), Failure> {
        caught(|| {
            if long {
                recovered.work_on(found);
            } else {
                recovered.block_world().adopt(found);
            }
            liveness::prove(recovered, long);
        })?;
        self.closed += 1;
        Ok(())
    }
}

fn describe(crash_point: &CrashPoint) -> String {
    let CrashPoint { event, at, torn, fates, states, .. } = crash_point;
    let fates = fates.map_or(String::new(), |fates| format!(", {fates:?} ({states})"));
    format!("cut after event {event} at {} ns{}{fates}", at.0, if *torn { ", torn" } else { "" })
}

/// Opens the drive and compares all of it with the model.
fn judge(world: &mut impl Stage) -> Result<Vec<Found>, String> {
    caught(|| {
        world.block_world().open(Access::ReadWrite).map_err(|error| error.to_string())?;
        let found = world.read_all();
        world.block_world().history.verdict(&found)?;
        world.block_world().check();
        Ok(found)
    })
    .unwrap_or_else(|panic| Err(panic.to_string()))
}
