//! What crash points are found of: a world with a block drive, or one with a table drive.

use crate::drive::Drive;
use crate::history::{Found, History};
use crate::played::Played;
use crate::wire::CrashPoint;
use crate::world::{Judgeable, World};
use std::rc::Rc;

/// A world of blocks, and perhaps of tables, that can be cut, recovered and judged.
pub trait Stage: Played {
    /// The drive in it.
    type Drive: Drive;

    /// The world of its blocks: all of a block drive, the log area of a table drive.
    fn block_world(&mut self) -> &mut World<Self::Drive>;

    /// What the whole drive holds, by change. Nothing may be under way.
    fn read_all(&mut self) -> Vec<Found>;

    /// The states found by a watched wire since the last call, each with what the model said at that moment.
    fn crash_points(&mut self) -> Vec<Judgeable>;

    /// The world after a power cut, with the drive not opened yet and the model as it was then.
    #[must_use]
    fn after_cut(&self, crash_point: CrashPoint, history: Rc<History>) -> Self;

    /// The same drive once more, closed as it is: a power cut has left this device.
    #[must_use]
    fn fork(&self) -> Self;

    /// Goes on after the drive was opened and holds `found`, to show that it can.
    ///
    /// # Panics
    /// If what comes then contradicts the model.
    fn work_on(&mut self, found: &[Found]);
}
