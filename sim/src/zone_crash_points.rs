//! Every state in which a power cut can leave a zoned drive, recovered and judged.

use crate::crash_points::{CrashPoints, Judge, Left};
use crate::wire::{CrashPoint, Wire};
use crate::zone_model::{FoundZone, ZoneModel};
use crate::zone_world::ZoneWorld;
use openftl_parts::Access;
use std::fmt;
use std::rc::Rc;

/// Of so many recoveries one is cut, everywhere.
const RECOVERIES_CUT: u64 = 8;

/// Of so many recovered drives one works for longer before it is closed.
const GOES_ON: u64 = 10;

/// How zoned drives are judged: by all that their zones hold.
pub struct ZoneJudge;

/// The crash points of a workload so far.
pub type ZoneCrashPoints = CrashPoints<ZoneJudge, Vec<FoundZone>>;

impl Default for ZoneCrashPoints {
    fn default() -> ZoneCrashPoints {
        CrashPoints::by(ZoneJudge)
    }
}

impl fmt::Display for ZoneCrashPoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} states after a power cut, {} after one during the recovery", self.cuts, self.recovery_cuts)
    }
}

impl ZoneCrashPoints {
    /// Judges every state that a power cut could have left since the last call, and every one that a cut of its recovery could.
    ///
    /// # Errors
    /// What contradicts the model, and after which cut.
    pub fn judge(&mut self, world: &mut ZoneWorld) -> Result<(), String> {
        let crash_points = world.take_crash_points();
        self.judge_all(world, crash_points)
    }
}

impl Judge<ZoneWorld> for ZoneJudge {
    type Model = ZoneModel;
    type Found = Vec<FoundZone>;

    fn name(CrashPoint { event, at, .. }: &CrashPoint, is_of_recovery: bool) -> String {
        if is_of_recovery {
            format!("cut after event {event}")
        } else {
            format!("cut after event {event} at {} ns", at.0)
        }
    }

    fn wire(world: &ZoneWorld) -> &Wire {
        &world.wire
    }

    fn left_by(&mut self, world: &ZoneWorld, crash_point: CrashPoint, model: &Rc<ZoneModel>) -> ZoneWorld {
        world.after_cut(crash_point, model.clone())
    }

    fn is_cut(&mut self, left: Left, _: bool) -> bool {
        left.number.is_multiple_of(RECOVERIES_CUT)
    }

    fn recover(&mut self, world: &mut ZoneWorld, _: &Rc<ZoneModel>, _: Left) -> Result<Vec<FoundZone>, String> {
        world.open(Access::ReadWrite).map_err(|error| error.to_string())?;
        world.find()
    }

    fn crash_points(world: &mut ZoneWorld) -> Vec<CrashPoint> {
        world.take_crash_points().into_iter().map(|(crash_point, _)| crash_point).collect()
    }

    fn judge_again(
        &mut self,
        _: &ZoneWorld,
        _: CrashPoint,
        model: &Rc<ZoneModel>,
        found: &Vec<FoundZone>,
        _: Left,
    ) -> Result<(), String> {
        model.verdict(found)
    }

    fn go_on(&mut self, world: &mut ZoneWorld, found: &Vec<FoundZone>, left: Left) -> Result<bool, String> {
        let goes_on = !left.is_of_recovery && left.number.is_multiple_of(GOES_ON);
        world.adopt(found);
        world.prove(if goes_on { 30 } else { 0 });
        Ok(true)
    }
}
