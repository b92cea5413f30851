//! The turn of a zone: what its columns do when something has happened.
//!
//! A turn visits the columns that are awake. A column that has nothing to do sleeps until it gets a unit to write, or moves. A column that has
//! something to do and cannot do it sleeps until what it waits for may have come:
//!
//! ```text
//!            ┌─ a unit waits, or the column moves ──▶ awake ── nothing to do ──▶ asleep ─┐
//!            └───────────────────────────────────────────────────────────────────────────┘
//!   awake ── no free chunk ──▶ without room ── any turn of the zone ──▶ awake
//!   awake ── the device has as many units as it may ──▶ waiting for units ── one of them is programmed, or fails ──▶ awake
//! ```
//!
//! Where the cache of the device is volatile, a completed unit is told of only when it is programmed, so each turn wakes the columns that
//! wait for units.

use crate::state::ZoneState;
use crate::writer::{NewChunk, OldChunk, Stage};
use crate::writing::UNITS_UNDER_WAY_MAX;
use crate::zones::Zones;
use openftl_core::PuId;
use openftl_parts::flash::Flash;

/// What a column waits for that cannot go on.
enum WaitsFor {
    /// A free chunk, and nothing that happens to the zone.
    Room,
    /// The device has as many units of it as it may have.
    Units,
    /// Whatever the next turn of the zone finds, if there is anything left to do.
    Other,
}

impl Zones {
    /// Lets every zone go on that has something left to do. One that ends may want padding, of which it hears nothing.
    pub(crate) fn go_on(&mut self, flash: &mut Flash) {
        self.coming_and_going.doom(flash, self.doomed.len());
        let has_room = self.lacks_room && self.gains_seen != flash.provisioning.tenant_gains();
        let is_stirred = std::mem::take(&mut self.is_stirred) || has_room;
        let may_want_padding = flash.geometry.mw_cunits > 0;
        self.lacks_room &= !is_stirred;
        for slot in 0..self.writers.len() {
            let Some(writer) = &mut self.writers[slot] else { continue };
            if std::mem::take(&mut writer.is_stirred)
                || (is_stirred && writer.may_act_elsewhere())
                || (writer.is_ending && may_want_padding)
                || writer.may_keep
                || (flash.geometry.volatile_cache && !writer.waiting_for_units.is_empty())
            {
                self.go_on_with(flash, slot as u32);
            }
        }
    }

    pub(crate) fn go_on_with(&mut self, flash: &mut Flash, slot: u32) {
        if self.writer(slot).is_orphan {
            return self.bury(flash, slot);
        }
        let writer = self.writer(slot);
        writer.awake.take_all(&mut writer.without_room);
        if !flash.may_program() {
            return;
        }
        if flash.geometry.volatile_cache {
            writer.awake.take_all(&mut writer.waiting_for_units);
        }
        let mut next = 0;
        while let Some(column) = self.writer(slot).awake.next(next) {
            next = column + 1;
            let waits_for = self.go_on_with_column(flash, slot, column);
            let writer = self.writer(slot);
            match waits_for {
                WaitsFor::Room => writer.without_room.insert(column),
                WaitsFor::Units => writer.waiting_for_units.insert(column),
                WaitsFor::Other if writer.may_go_on(column) => continue,
                WaitsFor::Other => {}
            }
            writer.awake.remove(column);
        }
        debug_assert!(
            (0..self.layout.width).all(|column| self.may_sleep(flash, slot, column)),
            "a column sleeps in a zone that may go on"
        );
        self.settle(flash, slot);
    }

    /// Whether a column is awake, or is woken when there is something to do for it.
    fn may_sleep(&self, flash: &Flash, slot: u32, at: u32) -> bool {
        let writer = self.writers[slot as usize].as_ref().expect("a slot that is named has a writer");
        if writer.waiting_for_units.contains(at) {
            let open = writer.columns[at as usize].new.and_then(|new| new.open);
            return open.is_some_and(|open| flash.units.uncompleted(open) > 0);
        }
        writer.awake.contains(at) || writer.without_room.contains(at) || !writer.may_go_on(at)
    }

    /// Lets a column go on. Returns what it waits for then.
    fn go_on_with_column(&mut self, flash: &mut Flash, slot: u32, at: u32) -> WaitsFor {
        loop {
            let column = &mut self.writer(slot).columns[at as usize];
            match column.stage {
                Stage::Failing { at: failed } if column.is_at_rest(flash) => self.leave_chunk(flash, slot, at, failed),
                Stage::Failing { .. } => return WaitsFor::Other,
                Stage::WithoutChunk => {
                    if !self.wants_chunk(flash, slot, at) {
                        return WaitsFor::Other;
                    }
                    let Some(pu) = self.choose_pu(flash, slot, at) else {
                        self.lacks_room = true;
                        self.gains_seen = flash.provisioning.tenant_gains();
                        return WaitsFor::Room;
                    };
                    if !self.take_chunk(flash, slot, at, pu) {
                        return WaitsFor::Other;
                    }
                }
                Stage::Copying { copied } if column.old.is_none_or(|old| copied >= old.blocks) => {
                    column.stage = Stage::Ready;
                    if std::mem::take(&mut column.is_refreshed) {
                        let zone = self.writer(slot).zone;
                        self.refreshed(flash, zone, at, copied);
                    }
                }
                Stage::Copying { copied } => {
                    if column.reading.is_none() {
                        self.read_next(flash, slot, at, copied);
                    }
                    return WaitsFor::Other;
                }
                Stage::Ready => {
                    let Some(unit) = self.writer(slot).first_waiting(at) else { return WaitsFor::Other };
                    if self.is_closed(flash, slot, at) {
                        return WaitsFor::Other;
                    }
                    let new = self.writer(slot).columns[at as usize].new.expect("a column that is ready has a chunk");
                    if new.open.is_some_and(|open| flash.units.uncompleted(open) >= UNITS_UNDER_WAY_MAX as usize) {
                        return WaitsFor::Units;
                    }
                    if !self.fill_holes(flash, slot, unit) {
                        // Who has the frames gives them back.
                        self.writer(slot).is_stirred = true;
                        return WaitsFor::Other;
                    }
                    self.write(flash, slot, at, unit);
                }
            }
        }
    }

    /// Whether a column without a chunk needs one now. One that only moves because it is weak stays where it is if there is none.
    fn wants_chunk(&mut self, flash: &Flash, slot: u32, at: u32) -> bool {
        let (zone, old) = (self.writer(slot).zone, self.writer(slot).columns[at as usize].old);
        let is_read_only = self.board.zone(zone).state == ZoneState::ReadOnly;
        // A block of a unit that began is lost, and the unit cannot be written as a whole anywhere else.
        if is_read_only && old.is_some_and(|old| !old.blocks.is_multiple_of(self.layout.unit_blocks)) {
            return false;
        }
        if self.writer(slot).first_waiting(at).is_some() {
            return true;
        }
        let is_refreshed = self.writer(slot).columns[at as usize].is_refreshed && self.has_room(flash);
        self.writer(slot).columns[at as usize].is_refreshed = is_refreshed;
        is_refreshed
    }

    /// Whether the chunk of a column takes nothing more, because a program has failed of which the column hears next.
    pub(crate) fn is_closed(&self, flash: &Flash, slot: u32, at: u32) -> bool {
        let writer = self.writers[slot as usize].as_ref().expect("a slot that is named has a writer");
        let open = writer.columns[at as usize].new.and_then(|new| new.open);
        open.is_none_or(|open| flash.units.room(open) == 0)
    }

    /// A program has failed at block `failed` of a column's chunk, all others there have ended, and the chunk is closed.
    fn leave_chunk(&mut self, flash: &mut Flash, slot: u32, at: u32, failed: u32) {
        let zone = self.writer(slot).zone;
        // What is behind the last block of a zone that has ended is padding.
        let failed = failed.min(self.layout.blocks_in_column(at, self.board.zone(zone).written));
        let column = &mut self.writer(slot).columns[at as usize];
        let new = column.new.take().expect("it failed");
        let (old, left) = match column.old {
            Some(old) if failed < old.blocks => (Some(old), Some((new.chunk, new.open))),
            old => {
                let blocks = failed;
                let kept = (blocks > 0).then_some(OldChunk { chunk: new.chunk, open: new.open, blocks, good: blocks });
                let left = if blocks > 0 { old.map(|old| (old.chunk, old.open)) } else { Some((new.chunk, new.open)) };
                (kept, left)
            }
        };
        column.old = old;
        column.stage = Stage::WithoutChunk;
        if let Some((chunk, open)) = left {
            self.doom(zone, chunk, open);
        }
        self.mark_dirty(zone);
        flash.stirred = true;
    }

    /// Gives a column a chunk of `pu` to go on in. Returns whether another may be open.
    fn take_chunk(&mut self, flash: &mut Flash, slot: u32, at: u32, pu: PuId) -> bool {
        let Some(open) = flash.open_tenant_chunk(pu) else { return false };
        let chunk = flash.units.chunk(open).chunk;
        let column = &mut self.writer(slot).columns[at as usize];
        column.new = Some(NewChunk { chunk, open: Some(open), submitted: 0, programmed: 0, readable: 0 });
        column.stage = Stage::Copying { copied: 0 };
        let moved = u64::from(column.old.is_some());
        self.statistics.columns_moved += moved;
        true
    }

    /// Whether a column could have another chunk now.
    pub(crate) fn has_room(&self, flash: &Flash) -> bool {
        self.order.iter().any(|pu| flash.provisioning.tenant_chunks_on_pu(*pu) > 0)
    }

    /// The parallel unit for a column: its own in the order, or the one with most free chunks, best where the zone has none yet.
    fn choose_pu(&mut self, flash: &Flash, slot: u32, at: u32) -> Option<PuId> {
        let writer = self.writers[slot as usize].as_ref().expect("a slot that is named has a writer");
        let format = flash.format;
        let taken = |pu: PuId| {
            let others = (0..).zip(&writer.columns).filter(|(column, _)| *column != at);
            others
                .filter_map(|(_, column)| column.new.map(|new| new.chunk).or(column.old.map(|old| old.chunk)))
                .any(|chunk| format.pu_of(chunk) == pu)
        };
        let pus = self.order.len();
        // The columns of a zone follow each other in the order, from where its first one was put.
        let base = (self.numbers[writer.zone as usize] as usize).wrapping_mul(self.layout.width as usize) % pus;
        let own = self.order[(base + at as usize) % pus];
        if flash.provisioning.tenant_chunks_on_pu(own) > 0 && !taken(own) {
            return Some(own);
        }
        let with_chunk = self.order.iter().copied().filter(|pu| flash.provisioning.tenant_chunks_on_pu(*pu) > 0);
        with_chunk.max_by_key(|pu| (!taken(*pu), flash.provisioning.tenant_chunks_on_pu(*pu)))
    }
}
