//! What a run is played on: a drive of any kind, its host, and the model that judges both.

use crate::fate::States;
use crate::fault::{Fault, FaultKind, disturb};
use crate::liveness;
use crate::stage::Stage;
use crate::step::{Moment, Range, Step};
use crate::wire::Wire;
use crate::zone_world::ZoneWorld;
use openftl_core::{Nanos, TraceHash};
use openftl_parts::{Access, BlockTarget, Config, Extent, Handle, OpenError};

/// See the module.
pub trait Played: Sized {
    /// Between the FTL and its device.
    fn wire(&self) -> &Wire;

    /// A hash over all that has happened.
    fn trace(&self) -> TraceHash;

    /// Whether the drive is open.
    fn is_open(&self) -> bool;

    /// Whether it takes no writes any more.
    fn is_read_only(&mut self) -> bool;

    /// Submits what a step asks of the drive.
    fn request(&mut self, step: &Step);

    /// What the drive is opened with from the next time on.
    fn set_next_config(&mut self, config: Config);

    /// Lets something go wrong. Gives whether there was a place for it.
    fn inject(&mut self, fault: Fault) -> bool;

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

    /// Opens the drive.
    ///
    /// # Errors
    /// If it is refused.
    fn open(&mut self) -> Result<(), OpenError>;

    /// Opens the drive after a power cut, if it is not open, and compares all of it with the model, which goes on with what was found.
    ///
    /// # Errors
    /// What contradicts the model.
    fn recover(&mut self) -> Result<(), String>;

    /// Has a copy of what a power cut has left recover, work and close.
    fn probe(&self);

    /// Reads the whole drive and compares it with the model.
    fn verify_all(&mut self);

    /// Has the drive verify itself, unless something on the medium was damaged.
    fn check(&mut self);
}

impl<S: Stage> Played for S {
    fn wire(&self) -> &Wire {
        &self.world().wire
    }

    fn trace(&self) -> TraceHash {
        self.world().trace()
    }

    fn is_open(&self) -> bool {
        self.world().ftl.is_some()
    }

    fn is_read_only(&mut self) -> bool {
        self.blocks().ftl().is_read_only()
    }

    fn request(&mut self, step: &Step) {
        if let Step::Write(range, _) | Step::WriteUncorrectable(range, _) | Step::Read(range) = step {
            self.await_frames(range.blocks);
        }
        let blocks = self.blocks();
        match step {
            Step::Write(range, durability) => _ = blocks.submit_write(range.first, range.blocks, *durability),
            Step::WriteUncorrectable(range, durability) => {
                blocks.submit_write_uncorrectable(range.first, range.blocks, *durability);
            }
            Step::Trim(range, durability) => _ = blocks.submit_trim(range.first, range.blocks, *durability),
            Step::Read(range) => _ = blocks.submit_read(range.first, range.blocks),
            Step::Handle(handle) => blocks.handle = Handle(*handle),
            Step::Announce(Range { first, blocks: count }) => {
                blocks.submit_flash_alloc(&[Extent { first: *first, blocks: *count }]);
            }
            Step::Flush => _ = blocks.submit_flush(),
            Step::Table(deed) => self.perform(*deed),
            other => unreachable!("{other} is no request for blocks or tables"),
        }
    }

    fn set_next_config(&mut self, config: Config) {
        self.blocks().next_config = Some(config);
    }

    fn inject(&mut self, fault: Fault) -> bool {
        let blocks = self.blocks();
        let injected = blocks.inject(fault);
        blocks.is_hurt |= injected;
        injected
    }

    fn requests_under_way(&self) -> usize {
        Stage::requests_under_way(self)
    }

    fn pump(&mut self) {
        Stage::pump(self);
    }

    fn settle(&mut self) {
        Stage::settle(self);
    }

    fn idle(&mut self, span: Nanos) {
        Stage::idle(self, span);
    }

    fn clean_restart(&mut self) {
        Stage::clean_restart(self);
    }

    fn power_cut_at(&mut self, moment: Moment) -> States {
        Stage::power_cut_at(self, moment)
    }

    fn open(&mut self) -> Result<(), OpenError> {
        self.blocks().open(Access::ReadWrite)
    }

    fn recover(&mut self) -> Result<(), String> {
        Stage::recover(self)
    }

    fn probe(&self) {
        liveness::probe(self.fork());
    }

    fn verify_all(&mut self) {
        Stage::verify_all(self);
    }

    fn check(&mut self) {
        if !self.blocks().history.is_damaged() {
            self.blocks().check();
        }
    }
}

impl Played for ZoneWorld {
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
        self.ftl().is_read_only()
    }

    fn request(&mut self, step: &Step) {
        match step {
            Step::Zone(deed) => self.perform(*deed),
            Step::Flush => self.flush(),
            other => unreachable!("{other} is no request for zones"),
        }
    }

    fn set_next_config(&mut self, config: Config) {
        self.next_config = Some(config);
    }

    fn inject(&mut self, fault: Fault) -> bool {
        if fault.kind == FaultKind::Retry {
            // A read that has failed once is not to fail once more: then its block would be lost, and nothing to blame.
            self.settle();
        }
        if matches!(fault.kind, FaultKind::Lose | FaultKind::Corrupt) {
            return self.lose(fault.pick, fault.kind == FaultKind::Corrupt);
        }
        let ftl = self.ftl.as_ref().expect("the drive is open");
        disturb(&mut self.wire.device(), ftl.block(), self.clock.0, fault)
    }

    fn requests_under_way(&self) -> usize {
        ZoneWorld::requests_under_way(self)
    }

    fn pump(&mut self) {
        ZoneWorld::pump(self);
    }

    fn settle(&mut self) {
        ZoneWorld::settle(self);
    }

    fn idle(&mut self, span: Nanos) {
        ZoneWorld::idle(self, span);
    }

    fn clean_restart(&mut self) {
        ZoneWorld::clean_restart(self);
    }

    fn power_cut_at(&mut self, moment: Moment) -> States {
        ZoneWorld::power_cut_at(self, moment)
    }

    fn open(&mut self) -> Result<(), OpenError> {
        ZoneWorld::open(self)
    }

    fn recover(&mut self) -> Result<(), String> {
        let found = ZoneWorld::recover(self)?;
        self.adopt(&found);
        Ok(())
    }

    fn probe(&self) {
        let mut twin = self.fork();
        if let Err(contradiction) = Played::recover(&mut twin) {
            panic!("{contradiction}");
        }
        twin.prove(0);
    }

    fn verify_all(&mut self) {
        ZoneWorld::verify_all(self);
    }

    fn check(&mut self) {
        if !self.model.is_hurt() {
            ZoneWorld::check(self);
        }
    }
}
