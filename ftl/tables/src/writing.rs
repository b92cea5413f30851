//! Units of tables on their way to the medium, and what becomes of their chunks.
//!
//! A unit goes to the next column of its table. One whose program fails is written again behind the others, in the next column
//! that has room: the table says where each of its units is, so none has to be where it would have been. Blocks that cannot
//! be read yet are read from their frames, and a table that has ended is padded as far as MW_CUNITS asks for it.

use super::catalog::TableRuns;
use super::columns::{self, TablePlacement, Unit, Wish};
use super::moving::COPY;
use super::table::{Table, UnitPlace};
use super::{Tables, WRITING_MAX};
use openftl_blocks::reading::BlockPlace;
use openftl_core::{ChunkId, Frame, Ppa, PuId, VECTOR_BLOCKS_MAX};
use openftl_parts::flash::Flash;
use openftl_parts::flash::chunk_table::ChunkUse;
use openftl_parts::flash::oob::{BlockKind, Oob};
use openftl_parts::flash::units::{OpenChunk, OpenId};
use openftl_parts::journal::Journal;
use openftl_parts::words::Purpose;

/// Whether more can be appended to a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Room {
    /// So many blocks.
    Blocks(u32),
    /// Not now, but chunks are on their way to be free.
    Wait,
    /// No chunk is free, and none will be before a table is deleted.
    None,
}

impl Tables {
    fn pus(&self, flash: &Flash) -> Vec<PuId> {
        flash.geometry.pu_ids().collect()
    }

    /// Begins a table. `None` if too many are being written.
    pub(crate) fn begin(
        &mut self,
        flash: &mut Flash,
        number: u64,
        placement: TablePlacement,
        wish: Wish,
    ) -> Option<u32> {
        let writing = self.writing();
        if writing >= WRITING_MAX.min(self.open_chunks(flash) as usize) {
            return None;
        }
        let pus = self.pus(flash);
        let place_mask = (1 << flash.format.pu_bits) - 1;
        let unit = |pu: &PuId| Unit {
            group: flash.format.group_of(*pu),
            place: pu.0 & place_mask,
            chunks: self.chunks_on_pu(flash, *pu),
            writers: self.writers[pu.0 as usize],
        };
        let units: Vec<Unit> = pus.iter().map(unit).collect();
        let mut chosen = columns::columns(placement, wish, &units, writing as u32, self.turns, self.unit_blocks);
        chosen.truncate(self.open_chunks_of_one(flash) as usize);
        self.turns += 1;
        for index in &chosen {
            self.writers[pus[*index].0 as usize] += 1;
        }
        Some(self.add(Table::new(number, chosen.into_iter().map(|index| pus[index]))))
    }

    /// How many blocks can be appended now. Opens a chunk for the next unit if it has to.
    pub(crate) fn room(&mut self, flash: &mut Flash, journal: &mut Journal, slot: u32) -> Room {
        let unit = self.unit_blocks;
        let filled = self.table_mut(slot).writing().filling.len() as u32;
        if filled > 0 || self.frontier(flash, slot).is_some() {
            self.lacks_room = false;
            return Room::Blocks(unit - filled);
        }
        if self.is_room_coming(flash, journal, slot) { Room::Wait } else { Room::None }
    }

    /// Whether the table in `slot`, which has no room now, will have some, whatever the host does.
    fn is_room_coming(&mut self, flash: &mut Flash, journal: &mut Journal, slot: u32) -> bool {
        let copy = self.moving.as_ref().map(super::moving::Move::copy);
        self.lacks_room |= copy != Some(slot);
        // What moves ends by itself, and then gives back as many chunks as it took. On a read-only drive it does not.
        if copy.is_some_and(|copy| copy != slot) && flash.read_only.is_none() {
            return true;
        }
        // What is full is about to be closed, and another may be opened then.
        let is_closing = |open: &OpenChunk| {
            flash.chunks.usage(open.chunk) == ChunkUse::Tenant && open.is_closing(flash.geometry.blocks_per_chunk)
        };
        if self.coming_and_going.leaving() > 0 || flash.units.count_open(is_closing) > 0 {
            return true;
        }
        let is_owed = (0..flash.geometry.groups).any(|group| flash.provisioning.tenant_share_left(group) > 0);
        if !is_owed || flash.provisioning.coming() == 0 {
            return false;
        }
        // Nobody else may be in a hurry for what waits for the log.
        if flash.resets.waiting_for_log(journal.log.durable()) > 0 && journal.log.is_idle() {
            journal.force_log(flash);
        }
        true
    }

    /// Chunks that all tables together may have open, where the device has a limit.
    fn open_chunks(&self, flash: &Flash) -> u32 {
        let on_pus = flash.plan.open_tenant_chunks_on_pu.saturating_mul(flash.geometry.pus());
        flash.plan.open_tenant_chunks.min(on_pus)
    }

    /// Chunks that each of them may have open, so that none ever waits for another to end.
    fn open_chunks_of_one(&self, flash: &Flash) -> u32 {
        let all = self.open_chunks(flash);
        all / all.min(WRITING_MAX as u32)
    }

    fn has_limit(&self, flash: &Flash) -> bool {
        self.open_chunks(flash) < u32::MAX
    }

    /// Whether table `slot` may open one more chunk on `pu`.
    fn may_open_chunk(&self, flash: &Flash, slot: u32, pu: PuId) -> bool {
        if !self.has_limit(flash) {
            return true;
        }
        let is_of_table = |open: &OpenChunk| flash.chunks.usage(open.chunk) == ChunkUse::Tenant;
        let is_here = |open: &OpenChunk| is_of_table(open) && flash.format.pu_of(open.chunk) == pu;
        let writing = self.table(slot).writing.as_ref().expect("a table that is being written");
        let own = writing.open.iter().filter(|open| flash.units.room(**open) > 0).count() as u32;
        own < self.open_chunks_of_one(flash)
            && flash.units.count_open(is_of_table) < flash.plan.open_tenant_chunks
            && flash.units.count_open(is_here) < flash.plan.open_tenant_chunks_on_pu
    }

    /// Appends blocks, as many as there is room for at most. Their frames are the FTL's from now on.
    pub(crate) fn append(&mut self, flash: &mut Flash, slot: u32, frames: &[Frame]) {
        let unit_blocks = self.unit_blocks as usize;
        flash.statistics.host_blocks_written += frames.len() as u64;
        for frame in frames {
            let table = self.table_mut(slot);
            let oob = Oob { kind: BlockKind::Tenant, address: table.blocks.into(), sequence: table.number };
            oob.seal(&mut flash.frames, *frame);
            table.blocks += 1;
            let writing = table.writing();
            writing.filling.push(*frame);
            if writing.filling.len() == unit_blocks {
                let unit = table.units();
                let frames = std::mem::take(&mut table.writing().filling);
                self.write_unit(flash, slot, unit, &frames);
                // The list is used again, empty.
                let mut frames = frames;
                frames.clear();
                self.table_mut(slot).writing().filling = frames;
            }
        }
    }

    /// Nothing more comes, and nothing of it will be needed.
    pub(crate) fn abandon(&mut self, flash: &mut Flash, slot: u32) {
        let writing = self.table_mut(slot).writing();
        (writing.is_ended, writing.is_abandoned) = (true, true);
        let dropped = writing.again.len() as u32;
        (writing.unprogrammed, writing.unreadable) = (writing.unprogrammed - dropped, writing.unreadable - dropped);
        let again = std::mem::take(&mut writing.again).into_iter().flat_map(|(_, frames)| frames);
        for frame in again.chain(std::mem::take(&mut writing.filling)) {
            flash.frames.release(frame);
        }
        self.unsettle(flash, slot);
    }

    /// Nothing more comes.
    pub(crate) fn end(&mut self, flash: &mut Flash, slot: u32) {
        let table = self.table_mut(slot);
        let unit = table.units();
        let writing = table.writing();
        writing.is_ended = true;
        let frames = std::mem::take(&mut writing.filling);
        if !frames.is_empty() {
            self.write_unit(flash, slot, unit, &frames);
        }
        self.unsettle(flash, slot);
    }

    pub(crate) fn unsettle(&mut self, flash: &mut Flash, slot: u32) {
        if !self.unsettled.contains(&slot) {
            self.unsettled.push(slot);
        }
        flash.stirred = true;
    }

    /// Writes unit `unit` of a table to its next column, or has it wait if there is no room anywhere.
    pub(crate) fn write_unit(&mut self, flash: &mut Flash, slot: u32, unit: u32, frames: &[Frame]) {
        let Some(open) = self.frontier(flash, slot) else {
            let table = self.table_mut(slot);
            table.writing().again.push_back((unit, frames.to_vec()));
            table.set_place(unit, UnitPlace::Again);
            table.writing().unprogrammed += 1;
            table.writing().unreadable += 1;
            self.unsettle(flash, slot);
            return;
        };
        let mut blocks = [flash.padding; VECTOR_BLOCKS_MAX];
        blocks[..frames.len()].copy_from_slice(frames);
        let count = frames.len().next_multiple_of(flash.geometry.ws_min as usize);
        let owner = u64::from(slot) << 32 | u64::from(unit);
        let id = flash.write_unit(open, Purpose::Tenant, owner, &blocks[..count], frames.len() as u32);
        let chunk = flash.units.unit(id).chunk;
        self.waits.begin(id, slot, flash.format.pu_of(chunk), flash.now);
        let table = self.table_mut(slot);
        table.set_place(unit, UnitPlace::UnderWay(id));
        if !table.chunks.contains(&chunk) {
            table.chunks.push(chunk);
        }
        let writing = table.writing();
        writing.next = (writing.next + 1) % writing.columns.len();
        writing.unprogrammed += 1;
        writing.unreadable += 1;
    }

    /// The open chunk that the next unit of a table goes to: of its next column, or of the first one after it that has room.
    pub(crate) fn frontier(&mut self, flash: &mut Flash, slot: u32) -> Option<OpenId> {
        let unit = self.unit_blocks;
        let count = self.table_mut(slot).writing().columns.len();
        for step in 0..count {
            let writing = self.table_mut(slot).writing();
            let index = (writing.next + step) % count;
            let column = &writing.columns[index];
            let (pu, open) = (column.pu, column.open);
            let open = match open.filter(|open| flash.units.room(*open) >= unit) {
                Some(open) => Some(open),
                None => self.open_chunk(flash, slot, pu),
            };
            if let Some(open) = open {
                let writing = self.table_mut(slot).writing();
                writing.columns[index].open = Some(open);
                writing.next = index;
                return Some(open);
            }
        }
        // Nothing is left where it should go: anywhere will do.
        let may_open = self.pus(flash).into_iter().filter(|pu| self.may_open_chunk(flash, slot, *pu));
        let elsewhere = may_open.max_by_key(|pu| self.chunks_on_pu(flash, *pu))?;
        let open = self.open_chunk(flash, slot, elsewhere)?;
        self.writers[elsewhere.0 as usize] += 1;
        let writing = self.table_mut(slot).writing();
        writing.columns.push(super::table::Column { pu: elsewhere, open: Some(open) });
        writing.next = writing.columns.len() - 1;
        Some(open)
    }

    /// A chunk on `pu` for a table: one that is partly written and of no table, or a free one.
    fn open_chunk(&mut self, flash: &mut Flash, slot: u32, pu: PuId) -> Option<OpenId> {
        if !self.may_open_chunk(flash, slot, pu) {
            return None;
        }
        // What was written before stays dead in it for as long as the table lives. That costs nothing while there are free
        // chunks; without them a chunk is used again only where that is little, and reset first where it is much.
        let is_short = flash.provisioning.tenant_chunks_on_pu(pu) == 0;
        let wanted = if is_short { flash.geometry.blocks_per_chunk / 4 * 3 } else { 0 };
        let wanted = wanted.max(self.unit_blocks);
        let open = loop {
            let Some(open) = self.partial[pu.0 as usize].pop_front() else { break None };
            if flash.units.room(open) >= wanted {
                break Some(open);
            }
            // A chunk is released when it is full.
            self.close_chunk(flash, open);
        };
        let open = match open {
            Some(open) => open,
            None => flash.open_tenant_chunk(pu)?,
        };
        self.table_mut(slot).writing().open.push(open);
        Some(open)
    }

    /// Fills an open chunk of no table, and lets it go.
    fn close_chunk(&mut self, flash: &mut Flash, open: OpenId) {
        let Some(chunk) = flash.units.chunk_if_open(open) else { return };
        self.coming_and_going.leave_open(flash, chunk, open);
    }

    /// Lets tables that have something left to do do it.
    pub(crate) fn go_on(&mut self, flash: &mut Flash, journal: &mut Journal) {
        for at in (0..self.unsettled.len()).rev() {
            let slot = self.unsettled[at];
            if self.settle(flash, journal, slot) {
                self.unsettled.swap_remove(at);
            }
        }
        self.advance_move(flash);
    }

    /// Writes again what failed, and pads what has ended. Returns whether nothing is left to be done.
    fn settle(&mut self, flash: &mut Flash, journal: &mut Journal, slot: u32) -> bool {
        if !flash.may_program() {
            return false;
        }
        while let Some((unit, frames)) = self.table_mut(slot).writing().again.pop_front() {
            if self.frontier(flash, slot).is_none() {
                let coming = self.is_room_coming(flash, journal, slot);
                let writing = self.table_mut(slot).writing();
                writing.again.push_front((unit, frames));
                writing.has_failed = !coming;
                return false;
            }
            self.write_unit(flash, slot, unit, &frames);
            let writing = self.table_mut(slot).writing();
            writing.has_failed = false;
            // It was counted when it was first written.
            (writing.unprogrammed, writing.unreadable) = (writing.unprogrammed - 1, writing.unreadable - 1);
        }
        let writing = self.table_mut(slot).writing();
        if !writing.is_ended {
            return true;
        }
        if writing.unreadable == 0 {
            return true;
        }
        let open = writing.open.clone();
        for open in open {
            if flash.geometry.mw_cunits > 0 && flash.units.wants_padding(open) {
                flash.pad(open);
            }
        }
        false
    }

    /// Whether nothing of a table is on its way any more.
    pub(crate) fn is_at_rest(&self, slot: u32) -> bool {
        let writing = self.table(slot).writing.as_ref();
        writing.is_none_or(|writing| writing.is_ended && writing.unprogrammed == 0 && writing.unreadable == 0)
    }

    /// Where all of a table is, once it is on media.
    pub(crate) fn runs(&self, flash: &Flash, slot: u32) -> Option<TableRuns> {
        let table = self.table(slot);
        let runs = table.runs(self.unit_blocks, flash.format)?;
        Some(TableRuns { blocks: table.blocks, runs })
    }

    /// Whether a unit of a table can be written nowhere.
    pub(crate) fn has_failed(&mut self, slot: u32) -> bool {
        self.table_mut(slot).writing().has_failed
    }

    /// A table is written no more.
    pub(crate) fn written(&mut self, flash: &mut Flash, slot: u32) {
        let table = self.table_mut(slot);
        let Some(writing) = table.writing.take() else { return };
        for column in &writing.columns {
            self.writers[column.pu.0 as usize] -= 1;
        }
        for open in writing.open {
            let Some(chunk) = flash.units.chunk_if_open(open) else { continue };
            if !self.table(slot).chunks.contains(&chunk) {
                // It was opened for a unit that never came.
                self.release_chunk(flash, chunk, Some(open));
                continue;
            }
            // What has room left keeps it until the table is deleted.
            self.half_full.insert(chunk, open);
            if self.has_limit(flash) {
                flash.pad_by(open, flash.units.room(open));
            }
        }
    }

    /// A table is no more, and nobody reads it who did not begin before: its chunks are reset, or used for others.
    pub(crate) fn release(&mut self, flash: &mut Flash, slot: u32) {
        self.written(flash, slot);
        let table = self.remove(slot);
        // A copy that was given up makes none that was not there before.
        self.makes_room |= table.number != COPY;
        for chunk in table.chunks {
            let open = self.half_full.remove(&chunk);
            self.release_chunk(flash, chunk, open);
        }
    }

    /// A chunk is of no table any more.
    pub(crate) fn release_chunk(&mut self, flash: &mut Flash, chunk: ChunkId, open: Option<OpenId>) {
        let group = flash.group_of(chunk);
        match open.filter(|open| flash.units.room(*open) > 0) {
            Some(open) if flash.units.room(open) == flash.geometry.blocks_per_chunk => {
                self.coming_and_going.give_back(flash, chunk, open);
            }
            Some(open)
                if flash.chunks.is_suspect(chunk)
                    || self.has_limit(flash)
                    || flash.provisioning.tenant_has_too_much(group) =>
            {
                self.close_chunk(flash, open);
            }
            Some(open) => {
                // Nobody misses what is weak in it.
                flash.chunks.strengthen(chunk);
                self.partial[flash.format.pu_of(chunk).0 as usize].push_back(open);
            }
            None if flash.chunks.usage(chunk) == ChunkUse::Tenant => {
                match open.filter(|open| flash.units.chunk_if_open(*open).is_some()) {
                    Some(open) => self.coming_and_going.leave_open(flash, chunk, open),
                    None => self.coming_and_going.leave_closed(flash, chunk),
                }
            }
            None => {}
        }
    }

    /// Where block `block` of a table is: on media, or in a frame.
    pub(crate) fn block(&self, flash: &Flash, slot: u32, block: u32) -> BlockPlace {
        let (table, unit_blocks) = (self.table(slot), self.unit_blocks);
        let (unit, within) = (block / unit_blocks, (block % unit_blocks) as usize);
        let writing = || table.writing.as_ref().expect("only a table that is being written has frames");
        if unit == table.units() {
            return BlockPlace::Frame(writing().filling[within]);
        }
        match table.place(unit) {
            UnitPlace::Media(first) => BlockPlace::Media(Ppa(first.0 + within as u64)),
            UnitPlace::UnderWay(id) => BlockPlace::Frame(flash.units.unit(id).frames()[within]),
            UnitPlace::Again => {
                let again = writing().again.iter().find(|(other, _)| *other == unit);
                BlockPlace::Frame(again.expect("a unit whose program failed waits").1[within])
            }
        }
    }
}

impl Tables {
    /// Blocks that tables may still take now or when chunks on their way have been reset, and blocks that they could take if there
    /// were none.
    pub(crate) fn space(&self, flash: &Flash) -> (u64, u64) {
        let blocks = u64::from(flash.geometry.blocks_per_chunk);
        let groups = 0..flash.geometry.groups;
        let (left, all) = groups
            .map(|group| (flash.provisioning.tenant_share_left(group), flash.provisioning.tenant_share(group)))
            .fold((0, 0), |(left, all), (more, whole)| (left + u64::from(more), all + u64::from(whole)));
        let partial = self.partial.iter().flatten().map(|open| u64::from(flash.units.room(*open)));
        (left * blocks + partial.sum::<u64>() + self.coming_and_going.leaving() as u64 * blocks, all * blocks)
    }

    /// Tables that are being written.
    #[must_use]
    pub fn writing(&self) -> usize {
        self.slots.iter().flatten().filter(|table| table.writing.is_some() && table.number != COPY).count()
    }
}
