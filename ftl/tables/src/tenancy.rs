//! What the block FTL asks of tables, and tells them.

use super::table::UnitPlace;
use super::{Tables, WRITING_MAX};
use openftl_blocks::refresh::REFRESHES_MAX;
use openftl_core::{ChunkId, Geometry};
use openftl_media::Completion;
use openftl_parts::flash::Flash;
use openftl_parts::flash::reads::ReadId;
use openftl_parts::flash::shares::TenantChunks;
use openftl_parts::flash::units::UnitId;
use openftl_parts::journal::Journal;
use openftl_parts::tenant::Tenant;
use openftl_parts::words::Phase;
use std::ops::Range;

impl Tenant for Tables {
    fn frames_needed(&self, geometry: &Geometry) -> usize {
        let unit = self.unit_blocks;
        // With columns everywhere; a unit may be under way behind those that wait for it.
        let behind = if geometry.mw_cunits == 0 { 0 } else { geometry.pus() * (geometry.mw_cunits + unit) };
        WRITING_MAX * (behind + unit) as usize + Tables::frames_to_move(geometry, unit) as usize
    }

    fn chunks(&self) -> Option<&TenantChunks> {
        Some(&self.coming_and_going)
    }

    fn chunks_mut(&mut self) -> Option<&mut TenantChunks> {
        Some(&mut self.coming_and_going)
    }

    /// What a crash left of a table that was not committed, or was deleted.
    fn release_found(&mut self, flash: &mut Flash) {
        for (chunk, found) in self.coming_and_going.take_rest(flash) {
            let open = found.open(flash, chunk);
            self.release_chunk(flash, chunk, open);
        }
    }

    fn advance(&mut self, flash: &mut Flash, journal: &mut Journal) {
        if flash.phase != Phase::Recovering {
            self.go_on(flash, journal);
        }
    }

    fn unit_programmed(&mut self, flash: &mut Flash, id: UnitId) {
        self.waits.end(id, flash.now);
        let owner = flash.units.unit(id).owner;
        let slot = (owner >> 32) as u32;
        if let Some(table) = &mut self.slots[slot as usize] {
            table.writing().unprogrammed -= 1;
        }
    }

    fn unit_readable(&mut self, flash: &mut Flash, id: UnitId) {
        let unit = flash.units.unit(id);
        let (slot, index) = ((unit.owner >> 32) as u32, unit.owner as u32);
        let ppa = flash.format.ppa(unit.chunk, unit.first);
        for frame in &unit.frames()[..unit.used as usize] {
            flash.frames.release(*frame);
        }
        let table = self.table_mut(slot);
        table.set_place(index, UnitPlace::Media(ppa));
        table.writing().unreadable -= 1;
    }

    fn unit_failed(&mut self, flash: &mut Flash, id: UnitId) {
        self.waits.end(id, flash.now);
        let unit = flash.units.unit(id);
        let (slot, index) = ((unit.owner >> 32) as u32, unit.owner as u32);
        let frames = unit.frames()[..unit.used as usize].to_vec();
        let table = self.table_mut(slot);
        table.set_place(index, UnitPlace::Again);
        let writing = table.writing();
        if writing.is_abandoned {
            (writing.unprogrammed, writing.unreadable) = (writing.unprogrammed - 1, writing.unreadable - 1);
            frames.into_iter().for_each(|frame| flash.frames.release(frame));
        } else {
            writing.again.push_back((index, frames));
        }
        self.unsettle(flash, slot);
    }

    fn read_ended(&mut self, flash: &mut Flash, read: ReadId, completion: Completion) {
        self.unit_read(flash, read, completion);
    }

    fn leave(&mut self, flash: &mut Flash, chunk: ChunkId) {
        let was_last = self.coming_and_going.left(flash, chunk) && self.coming_and_going.leaving() == 0;
        if was_last && std::mem::take(&mut self.makes_room) {
            self.lacks_room = false;
            self.try_moving_again(flash);
        }
    }

    fn queue_weak(&mut self, flash: &mut Flash, chunk: ChunkId) {
        if self.weak.len() < REFRESHES_MAX {
            self.weak.push_back(chunk);
            self.may_move = true;
        } else {
            flash.chunks.strengthen(chunk);
        }
    }

    fn blocks_in(&self, flash: &Flash, chunk: ChunkId) -> Option<(Option<u64>, Vec<Range<u32>>)> {
        self.ranges_in(flash, chunk).map(|(number, blocks)| (Some(number), blocks))
    }
}
