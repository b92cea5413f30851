//! Every state in which a power cut can leave a drive of blocks, or of tables beside them.

use crate::crash_points::{CrashPoints, Judge, Left};
use crate::history::{Found, History};
use crate::liveness;
use crate::stage::Stage;
use crate::wire::{CrashPoint, Wire};
use openftl_parts::Access;
use std::num::NonZeroU64;
use std::rc::Rc;

/// Every recovered drive does some of everything and is closed. One of so many works for longer before that.
const GOES_ON: u64 = 10;

/// How drives of blocks and of tables are judged: by all that they hold.
pub struct BlockJudge {
    /// One recovery of so many is cut as well.
    cut_one_of: u64,
    /// Recoveries that could have been.
    prefixes: u64,
}

/// The crash points of one workload so far.
pub type BlockCrashPoints = CrashPoints<BlockJudge, Vec<Found>>;

impl BlockCrashPoints {
    /// None yet. Of the recoveries one of `cut_one_of` is cut as well: those of neighbouring cuts do nearly the same, and with all of
    /// them nearly all states are those of recoveries.
    #[must_use]
    pub fn new(cut_one_of: NonZeroU64) -> BlockCrashPoints {
        CrashPoints::by(BlockJudge { cut_one_of: cut_one_of.get(), prefixes: 0 })
    }

    /// Judges the states that a power cut could have left since the last call. `world` is watched ([`crate::wire::Wire::watch`]).
    ///
    /// # Errors
    /// What contradicts the model, and after which cut.
    pub fn judge(&mut self, world: &mut impl Stage) -> Result<(), String> {
        let crash_points = world.crash_points();
        self.judge_all(world, crash_points)
    }
}

impl<S: Stage> Judge<S> for BlockJudge {
    type Model = History;
    type Found = Vec<Found>;

    const KNOWS_RECOVERIES: bool = false;
    const THEN_OF_RECOVERY: &str = ": and then";

    fn wire(world: &S) -> &Wire {
        &world.rig().wire
    }

    fn left_by(&mut self, world: &S, crash_point: CrashPoint, history: &Rc<History>) -> S {
        world.after_cut(crash_point, history.clone())
    }

    /// Recoveries after other cuts than prefixes are not cut.
    fn is_cut(&mut self, _: Left, is_prefix: bool) -> bool {
        let is_cut = is_prefix && self.prefixes.is_multiple_of(self.cut_one_of);
        self.prefixes += u64::from(is_prefix);
        is_cut
    }

    fn recover(&mut self, world: &mut S, _: &Rc<History>, _: Left) -> Result<Vec<Found>, String> {
        world.block_world().open(Access::ReadWrite).map_err(|error| error.to_string())?;
        let found = world.read_all();
        world.block_world().history.verdict(&found)?;
        world.block_world().check();
        Ok(found)
    }

    fn crash_points(world: &mut S) -> Vec<CrashPoint> {
        world.crash_points().into_iter().map(|(crash_point, _)| crash_point).collect()
    }

    fn judge_again(
        &mut self,
        _: &S,
        _: CrashPoint,
        history: &Rc<History>,
        found: &Vec<Found>,
        _: Left,
    ) -> Result<(), String> {
        history.verdict(found).map(drop)
    }

    fn go_on(&mut self, world: &mut S, found: &Vec<Found>, left: Left) -> Result<bool, String> {
        let long = !left.is_of_recovery && left.number.is_multiple_of(GOES_ON);
        if long {
            world.work_on(found);
        } else {
            world.block_world().adopt(found);
        }
        liveness::prove(world, long);
        Ok(true)
    }
}
