//! What is weak of a table moves before it is lost.
//!
//! ```text
//!   a chunk of a table is found weak ──▶ queue ──▶ its units are read one by one, verified, and written to a copy
//!                                                                                                  │ all of it on media
//!   the old chunk is released ◀── when that is durable ◀── the table's entry names the copy's chunks ◀──┘
//! ```
//!
//! The copy is a table that no entry names, of the units of that chunk alone, on the same parallel unit if there is room. Until it
//! is whole nothing changes for the table: it is read where it was, and may be deleted at any time. A power cut before leaves chunks that
//! nobody names, and one after it leaves the old chunk as such a one.
//!
//! A unit of which a block cannot be read any more stays where it is, and so does its chunk. One chunk moves at a time, never
//! during more reads than [`openftl_blocks::refresh`] allows, and none where it would have to wait for anything but the device.

use super::Tables;
use super::catalog::TableRuns;
use super::table::{Table, UnitPlace};
use openftl_core::{ChunkId, Frame, FrameForm, Geometry, Ppa};
use openftl_media::{Completion, Status};
use openftl_parts::flash::Flash;
use openftl_parts::flash::chunk_table::ChunkUse;
use openftl_parts::flash::oob::{BlockKind, Oob};
use openftl_parts::flash::reads::{ReadId, Reader};
use openftl_parts::words::{Care, Phase};
use std::ops::Range;

/// The number of a copy. No entry has it.
pub(crate) const COPY: u64 = u64::MAX;

/// What is being done about it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Copying,
    /// It cannot be done now, or not at all.
    GivenUp,
    /// What there is of the copy goes.
    Leaving,
}

/// A unit that is being read.
struct Reading {
    unit: u32,
    /// All of it.
    frames: Vec<Frame>,
    /// Its blocks that have not been read.
    left: Vec<u32>,
}

/// A chunk of a table on its way to another.
pub(crate) struct Move {
    slot: u32,
    chunk: ChunkId,
    care: Care,
    stage: Stage,
    /// Its units, and how many of them have been looked at.
    units: Vec<u32>,
    seen: usize,
    reading: Option<Reading>,
    /// The slot of the copy, and which of the units it has, in its order.
    copy: u32,
    copied: Vec<u32>,
    /// Blocks of them.
    blocks: u64,
}

impl Move {
    /// The slot of the copy.
    pub(crate) fn copy(&self) -> u32 {
        self.copy
    }
}

/// A table whose weak part is on media a second time.
pub(crate) struct Moved {
    pub(crate) number: u64,
    /// Where all of it is now.
    pub(crate) runs: TableRuns,
}

impl Tables {
    /// Frames that a move takes as a rule: a unit that is read, and those of a chunk or two that cannot be read yet.
    pub(crate) fn frames_to_move(geometry: &Geometry, unit_blocks: u32) -> u32 {
        unit_blocks * (2 * (units_behind(geometry, unit_blocks) + 2) + 1)
    }

    /// The table that `chunk` is of.
    fn slot_of(&self, chunk: ChunkId) -> Option<u32> {
        let is_of = |table: &Option<Table>| table.as_ref().is_some_and(|table| table.chunks.contains(&chunk));
        self.slots.iter().position(is_of).map(|slot| slot as u32)
    }
}

/// Units that are written behind one before it can be read.
fn units_behind(geometry: &Geometry, unit_blocks: u32) -> u32 {
    geometry.mw_cunits.div_ceil(unit_blocks)
}

impl Tables {
    /// Blocks of `chunk` that are of a table in the catalog, in their order, and its number.
    pub(crate) fn ranges_in(&self, flash: &Flash, chunk: ChunkId) -> Option<(u64, Vec<Range<u32>>)> {
        let table = self.table(self.slot_of(chunk)?);
        if table.writing.is_some() {
            return None;
        }
        let unit_blocks = self.unit_blocks;
        let mut ranges: Vec<Range<u32>> = Vec::new();
        for unit in 0..table.units() {
            if let Some(ppa) = self.place_in(flash, table, unit, chunk) {
                let first = flash.format.block_of(ppa);
                ranges.push(first..first + unit_blocks.min(table.blocks - unit * unit_blocks));
            }
        }
        ranges.sort_unstable_by_key(|range| range.start);
        Some((table.number, ranges))
    }

    /// Where unit `unit` of a table is, if it is in `chunk`.
    fn place_in(&self, flash: &Flash, table: &Table, unit: u32, chunk: ChunkId) -> Option<Ppa> {
        match table.place(unit) {
            UnitPlace::Media(ppa) if flash.format.chunk_of(ppa) == chunk => Some(ppa),
            _ => None,
        }
    }

    /// Goes on with what moves, or begins with what should.
    pub(crate) fn advance_move(&mut self, flash: &mut Flash) {
        if flash.phase != Phase::Working || flash.read_only.is_some() {
            return;
        }
        let Some(moving) = &self.moving else { return self.begin_move(flash) };
        if moving.reading.is_some() {
            return;
        }
        match moving.stage {
            Stage::Copying if moving.seen < moving.units.len() => self.read_next_unit(flash),
            Stage::Copying => self.end_copy(flash),
            Stage::GivenUp => {
                let copy = moving.copy;
                self.moving().stage = Stage::Leaving;
                self.abandon(flash, copy);
            }
            Stage::Leaving if self.is_at_rest(moving.copy) => {
                let copy = moving.copy;
                self.moving = None;
                self.release(flash, copy);
                // Units of other tables may have waited for what it gives back.
                flash.stirred = true;
            }
            Stage::Leaving => {}
        }
    }

    /// What could not move before may be able to now.
    pub(crate) fn try_moving_again(&mut self, flash: &mut Flash) {
        self.may_move = true;
        flash.stirred |= !self.weak.is_empty();
    }

    fn moving(&mut self) -> &mut Move {
        self.moving.as_mut().expect("a chunk is being moved")
    }

    fn begin_move(&mut self, flash: &mut Flash) {
        if !self.may_move || self.lacks_room || !flash.allowance.is_left() {
            return;
        }
        self.may_move = false;
        for _ in 0..self.weak.len() {
            let Some(chunk) = self.weak.pop_front() else { return };
            // It may have been reset since, and be of anybody.
            let care = flash.chunks.weakness(chunk).filter(|_| flash.chunks.usage(chunk) == ChunkUse::Tenant);
            let Some(care) = care.filter(|_| !flash.chunks.is_offline(chunk)) else { continue };
            let Some(slot) = self.slot_of(chunk) else {
                flash.chunks.strengthen(chunk);
                continue;
            };
            let table = self.table(slot);
            if table.writing.is_some() {
                self.weak.push_back(chunk);
            } else if !table.is_deleted {
                if !self.try_move(flash, slot, chunk, care) {
                    self.weak.push_front(chunk);
                }
                return;
            }
        }
    }

    /// Begins to move `chunk` of a table, if there is a chunk to move it to.
    fn try_move(&mut self, flash: &mut Flash, slot: u32, chunk: ChunkId, care: Care) -> bool {
        let frames = Tables::frames_to_move(&flash.geometry, self.unit_blocks) as usize;
        if flash.frames.available(FrameForm::Bytes) < frames {
            return false;
        }
        let pu = flash.format.pu_of(chunk);
        let copy = self.add(Table::new(COPY, std::iter::once(pu)));
        self.writers[pu.0 as usize] += 1;
        let table = self.table(slot);
        let units: Vec<u32> =
            (0..table.units()).filter(|unit| self.place_in(flash, table, *unit, chunk).is_some()).collect();
        // It begins only where there is room for all of it, or it would be in the way of the host for nothing.
        let has_room = self.frontier(flash, copy).is_some_and(|open| {
            let pu = flash.format.pu_of(flash.units.chunk(open).chunk);
            let needed = units.len() as u32 * self.unit_blocks;
            flash.units.room(open) >= needed || flash.provisioning.tenant_chunks_on_pu(pu) > 0
        });
        if !has_room {
            self.release(flash, copy);
            return false;
        }
        self.moving = Some(Move {
            slot,
            chunk,
            care,
            stage: Stage::Copying,
            units,
            seen: 0,
            reading: None,
            copy,
            copied: Vec::new(),
            blocks: 0,
        });
        flash.stirred = true;
        true
    }

    fn read_next_unit(&mut self, flash: &mut Flash) {
        let (behind, unit_blocks) = (units_behind(&flash.geometry, self.unit_blocks), self.unit_blocks);
        let moving = self.moving.as_ref().expect("a chunk is being moved");
        let (unit, chunk, slot, copy) = (moving.units[moving.seen], moving.chunk, moving.slot, moving.copy);
        let writing = self.table_mut(copy).writing();
        if writing.has_failed {
            return self.give_up_move(flash, true);
        }
        // With more of them some will be readable without any written behind them.
        if writing.unreadable >= (behind + 2) * writing.open.len().max(1) as u32 {
            return;
        }
        let table = self.table(slot);
        let first = self.place_in(flash, table, unit, chunk).expect("the table is as it was");
        let blocks = unit_blocks.min(table.blocks - unit * unit_blocks);
        let mut frames = Vec::new();
        if !flash.frames.acquire_many(FrameForm::Bytes, blocks as usize, &mut frames) {
            return self.give_up_move(flash, true);
        }
        let id = flash.reads.begin(Reader::Tenant, 0);
        let read = flash.reads.get_mut(id);
        for (at, frame) in (0..).zip(&frames) {
            read.add(Ppa(first.0 + at), *frame);
        }
        flash.statistics.relocation_reads += u64::from(blocks);
        flash.allowance.spend(blocks);
        let moving = self.moving();
        moving.seen += 1;
        let left = (unit * unit_blocks..).take(blocks as usize).collect();
        moving.reading = Some(Reading { unit, frames, left });
        flash.submit_read(id);
    }

    pub(crate) fn unit_read(&mut self, flash: &mut Flash, id: ReadId, completion: Completion) {
        let moving = self.moving.as_mut().expect("a chunk is being moved");
        let mut reading = moving.reading.take().expect("a unit was read");
        let (copy, slot) = (moving.copy, moving.slot);
        let (is_wanted, is_again) = (moving.stage == Stage::Copying, flash.reads.get(id).is_again);
        let failed = match is_wanted {
            true => self.failed_of(flash, id, &reading.left, self.table(slot).number, completion),
            false => 0,
        };
        if completion.status != Status::Success {
            flash.is_unusual = true;
        }
        if failed != 0 && !is_again {
            let mut at = 0..;
            reading.left.retain(|_| at.next().is_some_and(|at| failed >> at & 1 != 0));
            self.moving().reading = Some(reading);
            flash.read_again(id, failed);
            return;
        }
        let is_good = is_wanted && failed == 0;
        flash.reads.end(id);
        flash.stirred = true;
        if is_good {
            let moving = self.moving();
            let at = moving.copied.len() as u32;
            moving.copied.push(reading.unit);
            moving.blocks += reading.frames.len() as u64;
            self.write_unit(flash, copy, at, &reading.frames);
        } else {
            flash.statistics.read_failures += u64::from(is_wanted);
            reading.frames.into_iter().for_each(|frame| flash.frames.release(frame));
        }
    }

    /// Which of the blocks of a read could not be read, or are not those blocks of table `number`.
    fn failed_of(&self, flash: &Flash, id: ReadId, blocks: &[u32], number: u64, completion: Completion) -> u64 {
        let frames = flash.reads.get(id).frames();
        let failed = |(at, (block, frame)): (usize, (&u32, &Frame))| {
            let is_read = completion.status.data_is_good() || completion.failed >> at & 1 == 0;
            let expected = Oob { kind: BlockKind::Tenant, address: (*block).into(), sequence: number };
            u64::from(!is_read || Oob::verify(&flash.frames, *frame) != Ok(expected)) << at
        };
        blocks.iter().zip(frames).enumerate().map(failed).sum()
    }

    /// All of it that can be read is in the copy, or on its way there.
    fn end_copy(&mut self, flash: &mut Flash) {
        let moving = self.moving();
        let copy = moving.copy;
        if moving.copied.is_empty() {
            return self.give_up_move(flash, false);
        }
        let writing = self.table_mut(copy).writing();
        if writing.has_failed {
            self.give_up_move(flash, true);
        } else if !writing.is_ended {
            self.end(flash, copy);
        }
    }

    /// What has been copied is not needed. The chunk is to be moved later if `again`.
    fn give_up_move(&mut self, flash: &mut Flash, again: bool) {
        let moving = self.moving();
        moving.stage = Stage::GivenUp;
        let chunk = moving.chunk;
        if again {
            self.weak.push_back(chunk);
        }
        flash.stirred = true;
    }

    /// The table in `slot` is in the catalog no more: nothing of it needs to move.
    pub(crate) fn delete(&mut self, flash: &mut Flash, slot: u32) {
        self.table_mut(slot).is_deleted = true;
        if self.moving.as_ref().is_some_and(|moving| moving.slot == slot) {
            self.leave_moving_table(flash);
        }
    }

    /// What is being moved stays where it is.
    pub(crate) fn leave_moving_table(&mut self, flash: &mut Flash) {
        if self.moving().stage == Stage::Copying {
            self.give_up_move(flash, false);
        }
    }

    /// A chunk that was of a table is released: all that it held has moved.
    pub(crate) fn release_moved_chunk(&mut self, flash: &mut Flash, chunk: ChunkId) {
        let open = self.half_full.remove(&chunk);
        self.release_chunk(flash, chunk, open);
    }

    /// Where the table is of which a chunk has been copied. It is still read where it was.
    pub(crate) fn moved(&self, flash: &Flash) -> Option<Moved> {
        let moving = self.moving.as_ref().filter(|moving| moving.stage == Stage::Copying)?;
        let is_copied = moving.seen == moving.units.len() && !moving.copied.is_empty() && moving.reading.is_none();
        if !is_copied || !self.is_at_rest(moving.copy) {
            return None;
        }
        let (table, copy) = (self.table(moving.slot), self.table(moving.copy));
        let places = (0..).zip(&moving.copied).map(|(at, unit)| (*unit, copy.place(at)));
        let runs = table.runs_with(places, self.unit_blocks, flash.format)?;
        Some(Moved { number: table.number, runs: TableRuns { blocks: table.blocks, runs } })
    }

    /// From now on the table is where [`Tables::moved`] says. Gives back its old chunk if nothing of it is there any more.
    pub(crate) fn end_move(&mut self, flash: &mut Flash) -> Option<ChunkId> {
        let Move { slot, chunk, care, copied, copy, blocks, .. } = self.moving.take().expect("a chunk was moved");
        self.written(flash, copy);
        let copy = self.remove(copy);
        let table = self.table_mut(slot);
        for (at, unit) in (0..).zip(&copied) {
            table.set_place(*unit, copy.place(at));
        }
        table.chunks.extend(copy.chunks);
        let moved = &mut flash.statistics.cared[care as usize];
        moved.chunks += 1;
        moved.blocks += blocks;
        self.try_moving_again(flash);
        // Units of other tables wait for the room that it gives back, which takes a flush.
        flash.stirred = true;
        let table = self.table(slot);
        let is_empty = (0..table.units()).all(|unit| self.place_in(flash, table, unit, chunk).is_none());
        if is_empty {
            self.table_mut(slot).chunks.retain(|other| *other != chunk);
        }
        is_empty.then_some(chunk)
    }
}
