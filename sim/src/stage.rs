//! What a run is played on, and crash points are found of: a world with a block drive or one with a table drive.

use crate::drive::{Drive, TableDrive};
use crate::fate::States;
use crate::history::{Found, History};
use crate::step::{Deed, Moment};
use crate::table_world::TableWorld;
use crate::wire::CrashPoint;
use crate::world::{Ftl, Judgeable, World};
use openftl_core::Nanos;
use std::rc::Rc;

/// A world that can be cut, recovered and judged.
pub trait Stage: Sized {
    /// The drive in it.
    type Drive: Drive;

    /// The world of its blocks: all of a block drive, the log area of a table drive.
    fn blocks(&mut self) -> &mut World<Self::Drive>;

    /// The same, to look at.
    fn world(&self) -> &World<Self::Drive>;

    /// Does something with a table; nothing on a drive without.
    fn perform(&mut self, deed: Deed);

    /// Waits until there are frames for a request of so many blocks, which reads of tables may have.
    fn await_frames(&mut self, _blocks: u64) {}

    /// Requests that have not ended.
    fn requests_under_way(&self) -> usize;

    /// Lets the drive work once more, and books what has ended.
    fn pump(&mut self);

    /// Waits until no request is under way.
    fn settle(&mut self);

    /// Lets the drive work until `span` has passed.
    fn idle(&mut self, span: Nanos);

    /// Closes the drive and opens it again.
    fn clean_restart(&mut self);

    /// The FTL is gone, and the power goes at a later instant of the device.
    fn power_cut_at(&mut self, moment: Moment) -> States;

    /// Opens the drive after a power cut and compares all of it with the model, which goes on with what was found.
    ///
    /// # Errors
    /// What contradicts the model.
    fn recover(&mut self) -> Result<(), String>;

    /// What the whole drive holds, by change. Nothing may be under way.
    fn read_all(&mut self) -> Vec<Found>;

    /// Reads the whole drive and compares it with the model.
    fn verify_all(&mut self);

    /// The states found by a watched wire since the last call, each with what the model said at that moment.
    fn crash_points(&mut self) -> Vec<Judgeable>;

    /// The world after a power cut, with the drive not opened yet and the model as it was then.
    fn after_cut(&self, crash_point: CrashPoint, history: Rc<History>) -> Self;

    /// The same drive once more, closed as it is: a power cut has left this device.
    fn fork(&self) -> Self;

    /// Goes on after the drive was opened and holds `found`, to show that it can.
    fn work_on(&mut self, found: &[Found]);
}

impl Stage for World {
    type Drive = Ftl;

    fn blocks(&mut self) -> &mut World {
        self
    }

    fn world(&self) -> &World {
        self
    }

    fn perform(&mut self, _deed: Deed) {}

    fn requests_under_way(&self) -> usize {
        World::requests_under_way(self)
    }

    fn pump(&mut self) {
        World::pump(self);
    }

    fn settle(&mut self) {
        World::settle(self);
    }

    fn idle(&mut self, span: Nanos) {
        World::idle(self, span);
    }

    fn clean_restart(&mut self) {
        World::clean_restart(self);
    }

    fn power_cut_at(&mut self, moment: Moment) -> States {
        World::power_cut_at(self, moment)
    }

    fn recover(&mut self) -> Result<(), String> {
        World::recover(self)
    }

    fn read_all(&mut self) -> Vec<Found> {
        World::read_all(self)
    }

    fn verify_all(&mut self) {
        World::verify_all(self);
    }

    fn crash_points(&mut self) -> Vec<Judgeable> {
        World::crash_points(self)
    }

    fn after_cut(&self, crash_point: CrashPoint, history: Rc<History>) -> World {
        World::after_cut(self, crash_point, history)
    }

    fn fork(&self) -> World {
        World::fork(self)
    }

    fn work_on(&mut self, found: &[Found]) {
        World::work_on(self, found);
    }
}

impl Stage for TableWorld {
    type Drive = TableDrive;

    fn blocks(&mut self) -> &mut World<TableDrive> {
        self
    }

    fn world(&self) -> &World<TableDrive> {
        self
    }

    fn perform(&mut self, deed: Deed) {
        TableWorld::perform(self, deed);
    }

    fn await_frames(&mut self, blocks: u64) {
        TableWorld::await_frames(self, blocks);
    }

    fn requests_under_way(&self) -> usize {
        TableWorld::requests_under_way(self)
    }

    fn pump(&mut self) {
        TableWorld::pump(self);
    }

    fn settle(&mut self) {
        TableWorld::settle(self);
    }

    fn idle(&mut self, span: Nanos) {
        TableWorld::idle(self, span);
    }

    fn clean_restart(&mut self) {
        TableWorld::clean_restart(self);
    }

    fn power_cut_at(&mut self, moment: Moment) -> States {
        TableWorld::power_cut_at(self, moment)
    }

    fn recover(&mut self) -> Result<(), String> {
        TableWorld::recover(self)
    }

    fn read_all(&mut self) -> Vec<Found> {
        TableWorld::read_all(self)
    }

    fn verify_all(&mut self) {
        TableWorld::verify_all(self);
    }

    fn crash_points(&mut self) -> Vec<Judgeable> {
        TableWorld::crash_points(self)
    }

    fn after_cut(&self, crash_point: CrashPoint, history: Rc<History>) -> TableWorld {
        TableWorld::after_cut(self, crash_point, history)
    }

    fn fork(&self) -> TableWorld {
        TableWorld::fork(self)
    }

    fn work_on(&mut self, found: &[Found]) {
        TableWorld::work_on(self, found);
    }
}
