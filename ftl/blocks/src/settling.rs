//! What became of units: whose blocks are on media, whose frames are free, and where those go that the device did not take.

use crate::block_ftl::BlockFtl;
use openftl_media::Status;
use openftl_parts::flash::chunk_table::ChunkUse;
use openftl_parts::flash::units::{Event, UnitId};
use openftl_parts::tenant::Tenant;
use openftl_parts::words::{Purpose, ReadOnlyReason};

impl BlockFtl {
    pub(crate) fn unit_ended(&mut self, unit: UnitId, status: Status) {
        let is_copy = self.flash.units.unit(unit).is_copy();
        self.flash.units.came_back(unit);
        if self.flash.units.unit(unit).purpose == Purpose::Relocation {
            self.relocation_ended(unit);
        }
        match status {
            _ if is_copy && status.data_is_good() => self.copy_ended(unit),
            Status::UnrecoveredRead | Status::DeallocatedOrUnwritten | Status::OfflineChunk if is_copy => {
                self.read_instead_of_copy(unit);
            }
            Status::OutOfOrderWrite if self.flash.units.may_come_again(unit) => {}
            _ => self.unit_settled(unit, status),
        }
        self.flash.submit_held(unit);
    }

    fn unit_settled(&mut self, unit: UnitId, status: Status) {
        match status {
            Status::Success | Status::HighEcc => self.flash.units.completed(unit),
            Status::WriteFailedWriteNextUnit => self.flash.units.failed(unit, false),
            // Nothing was written, and nothing will be: the unit never ends, its blocks are read from their frames, and so
            // are those before it that MW_CUNITS hold back.
            Status::WriteFault => self.flash.turn_read_only(ReadOnlyReason::StoreFault),
            // Closed early, or behind one that was, or offline.
            _ => {
                self.flash.is_unusual = true;
                let (open, chunk) = (self.flash.units.unit(unit).open, self.flash.units.unit(unit).chunk);
                if self.flash.units.room(open) > 0 {
                    self.placement.closed_early(open, self.flash.chunks.label(chunk), self.flash.now);
                }
                self.flash.units.failed(unit, true);
            }
        }
    }

    pub(crate) fn settle_events(&mut self, tenant: &mut dyn Tenant) {
        while let Some(event) = self.flash.units.events.pop_front() {
            self.flash.stirred = true;
            match event {
                Event::Programmed(id) => {
                    let unit = self.flash.units.unit(id);
                    match unit.purpose {
                        Purpose::Data => {
                            for frame in &unit.frames()[..unit.used as usize] {
                                self.buffer.programmed(*frame);
                            }
                            self.buffer.advance();
                        }
                        Purpose::Log => self.journal.log.copy_durable(unit.owner),
                        Purpose::Tenant => {
                            self.transactions.tenant_units += 1;
                            tenant.unit_programmed(&mut self.flash, id);
                        }
                        _ => {}
                    }
                }
                Event::Readable(id) => {
                    let unit = self.flash.units.unit(id);
                    match unit.purpose {
                        Purpose::Data => {
                            for frame in &unit.frames()[..unit.used as usize] {
                                self.buffer.readable(*frame);
                            }
                        }
                        // The unit ends when its blocks are in the map.
                        Purpose::Relocation => {
                            self.collection.written(id);
                            continue;
                        }
                        Purpose::Checkpoint => self.journal.checkpoint.written(unit.frames()),
                        Purpose::Superblock => self.journal.superblock.copy_written(unit.owner),
                        Purpose::Tenant => tenant.unit_readable(&mut self.flash, id),
                        Purpose::Map => self.map_unit_readable(id),
                        Purpose::Log | Purpose::Padding | Purpose::Header | Purpose::Slack => {}
                    }
                    self.flash.units.finish(id);
                }
                Event::Failed(id) => self.unit_failed(tenant, id),
                Event::Closed(chunk) => {
                    tenant.chunk_closed(&mut self.flash, chunk);
                    if self.flash.chunks.usage(chunk) == ChunkUse::Open && !self.is_recycled(chunk) {
                        self.flash.chunks.set_usage(chunk, ChunkUse::Closed);
                        self.flash.room_changed = true;
                        if self.flash.chunks.weakness(chunk).is_some() {
                            self.queue_refresh(chunk);
                        }
                    }
                }
            }
        }
    }

    /// What was in the unit goes elsewhere. The chunk is retired once its other data has moved.
    fn unit_failed(&mut self, tenant: &mut dyn Tenant, id: UnitId) {
        self.flash.statistics.program_failures += 1;
        let chunk = self.flash.units.unit(id).chunk;
        self.flash.program_failed(&self.journal.superblock, chunk);
        let unit = self.flash.units.unit(id);
        let used = &unit.frames()[..unit.used as usize];
        match unit.purpose {
            Purpose::Data => {
                for frame in used.iter().rev() {
                    self.flash.chunks.abandon(self.buffer.slot(*frame).ppa);
                    self.buffer.place_again(*frame);
                    let class = self.buffer.slot(*frame).class;
                    if self.buffer.waiting(class) >= self.unit_blocks as usize {
                        self.placement.make_ready(class);
                    }
                }
            }
            Purpose::Relocation => {
                for frame in used.iter().rev() {
                    self.flash.chunks.abandon(self.buffer.slot(*frame).ppa);
                    self.collection.move_again(unit.owner, *frame);
                }
                self.place_again(id);
            }
            Purpose::Log => self.journal.log.copy_failed(unit.owner),
            Purpose::Checkpoint => self.journal.checkpoint.write_again(unit.owner as usize, unit.frames()),
            Purpose::Superblock => self.journal.superblock.copy_failed(unit.owner),
            Purpose::Tenant => tenant.unit_failed(&mut self.flash, id),
            Purpose::Map => self.map_unit_failed(id),
            // No unit is of headers or slack alone.
            Purpose::Padding | Purpose::Header | Purpose::Slack => {}
        }
        self.flash.units.finish(id);
    }
}
