//! Blocks of zones on their way to the medium.

use crate::board::Zone;
use crate::record::SavedTail;
use crate::state::ZoneState;
use crate::writer::{NewChunk, OldChunk, Stage, UnitState, Writer, ZoneUnit};
use crate::zones::Zones;
use openftl_core::{Frame, VECTOR_BLOCKS_MAX};
use openftl_media::{Completion, Status};
use openftl_parts::flash::Flash;
use openftl_parts::flash::oob::{BlockKind, Oob};
use openftl_parts::flash::reads::{ReadId, Reader};
use openftl_parts::flash::units::UnitId;
use openftl_parts::words::Purpose;

/// Marks units that are copied from the chunk that a column moves away from.
const COPY: u32 = 1 << 31;

/// Units of a column that the device has and has not completed, at most. A recovery looks so far back for one that failed.
pub(crate) const UNITS_UNDER_WAY_MAX: u32 = 64;

/// What the medium says of block `block` of a zone with this number.
pub(crate) fn oob(block: u32, number: u64) -> Oob {
    Oob { kind: BlockKind::Tenant, address: block.into(), sequence: number }
}

fn owner(slot: u32, unit: u32) -> u64 {
    u64::from(slot) << 32 | u64::from(unit)
}

fn slot_and_unit(owner: u64) -> (u32, u32) {
    ((owner >> 32) as u32, owner as u32)
}

impl Zones {
    /// Takes blocks that the host has written to `zone`, behind all others.
    pub(crate) fn append(&mut self, flash: &mut Flash, zone: u32, frames: &[Frame]) {
        let slot = self.slot_to_write(zone);
        flash.statistics.host_blocks_written += frames.len() as u64;
        self.push(flash, slot, frames);
    }

    /// The slot of the writer of a zone that is written to, which has one from now on.
    pub(crate) fn slot_to_write(&mut self, zone: u32) -> u32 {
        if let Some(slot) = self.slot_of(zone) {
            return slot;
        }
        self.numbers[zone as usize] = self.next_number;
        self.next_number += 1;
        self.mark_dirty(zone);
        self.add_writer(Writer::new(zone, self.numbers[zone as usize], self.layout.width))
    }

    /// Puts blocks behind all others of a zone.
    pub(crate) fn push(&mut self, flash: &mut Flash, slot: u32, frames: &[Frame]) {
        let (unit_blocks, hole) = (self.layout.unit_blocks, self.hole);
        let writer = self.writers[slot as usize].as_mut().expect("the zone has a writer");
        for frame in frames {
            if !writer.units.back().is_some_and(|unit| unit.state == UnitState::Filling) {
                writer.begin_unit(unit_blocks, &mut self.spare);
            }
            let unit = writer.end_unit() - 1;
            let filling = writer.units.back_mut().expect("it was just looked at");
            let address = unit * unit_blocks + filling.skip + filling.frames.len() as u32;
            if Some(*frame) != hole {
                oob(address, writer.number).seal(&mut flash.frames, *frame);
            }
            filling.frames.push(*frame);
            if filling.skip + filling.frames.len() as u32 == unit_blocks {
                filling.state = UnitState::Waiting;
                writer.awake.insert(unit % self.layout.width);
            }
        }
        if self.board.zone(writer.zone).state == ZoneState::Full {
            writer.window = None;
            writer.is_ending = true;
        }
        self.go_on_with(flash, slot);
    }

    /// Nothing more is written to `zone`.
    pub(crate) fn end(&mut self, flash: &mut Flash, zone: u32) {
        self.mark_dirty(zone);
        let Some(slot) = self.slot_of(zone) else { return };
        let writer = self.writer(slot);
        writer.window = None;
        writer.is_ending = true;
        if let Some(last) = writer.units.back_mut()
            && last.state == UnitState::Filling
        {
            last.state = UnitState::Waiting;
            let column = (writer.end_unit() - 1) % writer.columns.len() as u32;
            writer.awake.insert(column);
        }
        self.go_on_with(flash, slot);
    }

    /// Nothing of `zone` is needed any more.
    pub(crate) fn empty(&mut self, flash: &mut Flash, zone: u32) {
        self.mark_dirty(zone);
        self.set_extension(zone, None);
        self.refresh.try_again(flash);
        let Some(slot) = self.slot_of(zone) else {
            for column in 0..self.layout.width {
                if let Some(chunk) = self.chunk(zone, column) {
                    self.doom(zone, chunk, None);
                }
                self.set_chunk(zone, column, None);
            }
            return;
        };
        self.writer_of[zone as usize] = crate::zones::NONE;
        let writer = self.writer(slot);
        writer.is_orphan = true;
        let saved = writer.saved.take();
        self.leave_tail(zone, saved);
        let hole = self.hole;
        let writer = self.writers[slot as usize].as_mut().expect("a slot that is named has a writer");
        if let Some(mut window) = writer.window.take() {
            window.take_frames().for_each(|frame| flash.frames.release(frame));
        }
        // Only a full chunk can be reset, and what is on its way ends when its chunk is closed.
        for open in writer.columns.iter().filter_map(|column| column.new.and_then(|new| new.open)) {
            flash.pad_by(open, flash.units.room(open));
        }
        for unit in &mut writer.units {
            if !matches!(unit.state, UnitState::UnderWay { .. }) {
                unit.state = UnitState::Readable;
                let frames = unit.frames.drain(..).filter(|frame| Some(*frame) != hole);
                frames.for_each(|frame| flash.frames.release(frame));
            }
        }
        writer.forget_readable(&mut self.spare);
        self.bury(flash, slot);
    }

    /// Lets go of an orphan that has nothing under way any more.
    pub(crate) fn bury(&mut self, flash: &mut Flash, slot: u32) {
        let writer = self.writer(slot);
        if !writer.is_orphan || writer.under_way() > 0 || writer.columns.iter().any(|column| column.reading.is_some()) {
            return;
        }
        let writer = self.writers[slot as usize].take().expect("it was just looked at");
        self.free_writers.push(slot);
        for column in writer.columns {
            if let Some(OldChunk { chunk, open, .. }) = column.old {
                self.doom(writer.zone, chunk, open);
            }
            if let Some(NewChunk { chunk, open, .. }) = column.new {
                self.doom(writer.zone, chunk, open);
            }
        }
        flash.stirred = true;
    }

    /// A tail is given back when the record of its zone, which names it no more, is written.
    pub(crate) fn leave_tail(&mut self, zone: u32, saved: Option<SavedTail>) {
        if let Some(SavedTail { tail, .. }) = saved {
            self.tail_of[tail as usize] = crate::zones::LEAVING;
            self.tails_leaving.push((tail, self.record_block_of(zone)));
        }
    }

    /// Writes a unit that waits to the chunk of its column.
    pub(crate) fn write(&mut self, flash: &mut Flash, slot: u32, at: u32, index: u32) {
        let padding = flash.padding;
        let (_, first) = self.layout.place_of_unit(index);
        let writer = self.writers[slot as usize].as_mut().expect("a slot that is named has a writer");
        let column = &mut writer.columns[at as usize];
        let new = column.new.as_mut().expect("a column that is ready has a chunk");
        let open = new.open.expect("and it is open");
        column.waiting_from = index + self.layout.width;
        let unit = &mut writer.units[(index - writer.first_unit) as usize];
        assert_eq!(new.submitted, first + unit.skip, "a chunk is written in order");
        let mut blocks = [padding; VECTOR_BLOCKS_MAX];
        blocks[..unit.frames.len()].copy_from_slice(&unit.frames);
        let count = unit.frames.len().next_multiple_of(flash.geometry.ws_min as usize);
        if count == 0 {
            // All of it is on media.
            unit.state = UnitState::Readable;
            writer.forget_readable(&mut self.spare);
            return;
        }
        let used = unit.frames.len() as u32;
        let id = flash.write_unit(open, Purpose::Tenant, owner(slot, index), &blocks[..count], used);
        unit.state = UnitState::UnderWay { id, is_programmed: false };
        new.submitted += count as u32;
        column.under_way += 1;
    }

    /// Reads the next unit of what a column moves away from.
    pub(crate) fn read_next(&mut self, flash: &mut Flash, slot: u32, at: u32, copied: u32) {
        let old = self.writer(slot).columns[at as usize].old.expect("it is copied from there");
        let count = (old.blocks - copied).min(self.layout.unit_blocks);
        let Some(frames) = self.own_frames(flash, count as usize) else { return };
        let id = flash.reads.begin(Reader::Tenant, owner(slot, at));
        let read = flash.reads.get_mut(id);
        for (block, frame) in (copied..).zip(&frames) {
            read.add(flash.format.ppa(old.chunk, block), *frame);
        }
        self.writer(slot).columns[at as usize].reading = Some(frames);
        flash.statistics.relocation_reads += u64::from(count);
        flash.submit_read(id);
    }

    /// A unit has been read that is to be copied.
    pub(crate) fn unit_read(&mut self, flash: &mut Flash, id: ReadId, completion: Completion) {
        let (slot, at) = slot_and_unit(flash.reads.get(id).owner);
        if completion.status != Status::Success {
            flash.is_unusual = true;
        }
        let number = self.writer(slot).number;
        let failed = self.failed_of(flash, id, at, number, completion);
        let writer = self.writers[slot as usize].as_mut().expect("it waits for the read");
        let (is_orphan, is_whole) = (writer.is_orphan, writer.is_whole);
        let column = &mut writer.columns[at as usize];
        let (copied, is_copying) = match column.stage {
            Stage::Copying { copied } => (copied, true),
            _ => (0, false),
        };
        let read = flash.reads.get(id);
        let reading = column.reading.take().expect("a unit of it was read");
        if failed != 0 && !read.is_again && !is_orphan {
            // Those that failed, and no others: with a second chance for all of them, another one might.
            column.reading = Some(reading);
            flash.read_again(id, failed);
            return;
        }
        // What is lost stays an error where it goes.
        let lost = read.places().iter().zip(read.frames()).enumerate().filter(|(index, _)| failed >> index & 1 != 0);
        let lost: Vec<(u32, Frame)> = lost.map(|(_, (ppa, frame))| (flash.format.block_of(*ppa), *frame)).collect();
        for (block, frame) in lost {
            let address = u64::from(self.layout.block_at(at, block));
            flash.frames.zero(frame);
            Oob { kind: BlockKind::Lost, address, sequence: number }.seal(&mut flash.frames, frame);
        }
        let frames = reading;
        flash.reads.end(id);
        flash.stirred = true;
        self.is_stirred = true;
        // What it was to be copied to may have failed meanwhile.
        if !is_orphan && (!is_copying || self.is_closed(flash, slot, at)) {
            frames.into_iter().for_each(|frame| flash.frames.release(frame));
            return;
        }
        flash.statistics.read_failures += u64::from(!is_orphan && failed != 0);
        if is_orphan || (failed != 0 && is_whole) {
            frames.into_iter().for_each(|frame| flash.frames.release(frame));
            // A zone of which all is on media needs no other chunk.
            return if is_orphan { self.bury(flash, slot) } else { self.stay(flash, slot, at) };
        }
        let column = &mut self.writer(slot).columns[at as usize];
        let new = column.new.as_mut().expect("it is copied there");
        let mut blocks = [flash.padding; VECTOR_BLOCKS_MAX];
        blocks[..frames.len()].copy_from_slice(&frames);
        let count = frames.len().next_multiple_of(flash.geometry.ws_min as usize);
        let open = new.open.expect("a chunk that is copied to is open");
        let unit = COPY | at;
        flash.write_unit(open, Purpose::Tenant, owner(slot, unit), &blocks[..count], frames.len() as u32);
        new.submitted += count as u32;
        column.under_way += 1;
        column.stage = Stage::Copying { copied: copied + frames.len() as u32 };
        self.statistics.blocks_moved += frames.len() as u64;
    }

    /// A column that was to move stays in its old chunk: a block of that is lost.
    fn stay(&mut self, flash: &mut Flash, slot: u32, at: u32) {
        let zone = self.writer(slot).zone;
        let column = &mut self.writer(slot).columns[at as usize];
        column.is_refreshed = false;
        column.stage = Stage::Failing { at: 0 };
        if let Some(open) = column.new.and_then(|new| new.open) {
            flash.pad_by(open, flash.units.room(open));
        }
        self.recommend(zone);
    }

    /// What is on media of `zone` is all that there will be.
    pub(crate) fn fail(&mut self, flash: &mut Flash, zone: u32) {
        let Zone { state, written, .. } = self.board.zone(zone);
        if state == ZoneState::ReadOnly {
            return;
        }
        self.changed.push(zone);
        self.board.put(zone, ZoneState::ReadOnly, written);
        self.mark_dirty(zone);
        flash.stirred = true;
    }

    /// The column, and its unit if it is none that is copied, of a unit under way.
    fn column_of(&self, flash: &Flash, id: UnitId) -> (u32, u32, Option<u32>) {
        let (slot, unit) = slot_and_unit(flash.units.unit(id).owner);
        match unit & COPY {
            0 => (slot, unit % self.layout.width, Some(unit)),
            _ => (slot, unit & !COPY, None),
        }
    }

    pub(crate) fn programmed(&mut self, flash: &mut Flash, id: UnitId) {
        let (slot, at, index) = self.column_of(flash, id);
        let unit = flash.units.unit(id);
        let (chunk, end) = (unit.chunk, unit.first + unit.count);
        let writer = self.writers[slot as usize].as_mut().expect("it has a unit under way");
        let zone = writer.zone;
        // Where what completes survives a power cut, this says that it has.
        if writer.waiting_for_units.remove(at) {
            writer.awake.insert(at);
            writer.is_stirred = true;
        }
        let column = &mut writer.columns[at as usize];
        if let Some(index) = index
            && let Some(unit) = writer.units.get_mut((index - writer.first_unit) as usize)
            && let UnitState::UnderWay { is_programmed, .. } = &mut unit.state
        {
            *is_programmed = true;
        }
        let (named, end_of_good) = (column.named(), column.end_of_good());
        if let Some(new) = column.new.as_mut().filter(|new| new.chunk == chunk) {
            let end = end.min(end_of_good);
            new.programmed = new.programmed.max(end);
            // What an earlier life of the drive has written there can be read with it.
            new.readable = new.readable.max(end.saturating_sub(flash.geometry.mw_cunits));
        }
        if !writer.is_orphan && column.named() != named {
            self.mark_dirty(zone);
        }
    }

    pub(crate) fn readable(&mut self, flash: &mut Flash, id: UnitId) {
        let (slot, at, index) = self.column_of(flash, id);
        let unit = flash.units.unit(id);
        let (chunk, first, end) = (unit.chunk, unit.first, unit.first + unit.count);
        let writer = self.writers[slot as usize].as_mut().expect("it has a unit under way");
        let column = &mut writer.columns[at as usize];
        column.under_way -= 1;
        if column.stage != Stage::Ready {
            writer.awake.insert(at);
        }
        writer.is_stirred |= writer.may_act();
        let column = &mut writer.columns[at as usize];
        let end_of_good = column.end_of_good();
        if let Some(new) = column.new.as_mut().filter(|new| new.chunk == chunk) {
            new.readable = new.readable.max(end.min(end_of_good));
        }
        let mut copied = Vec::new();
        // Behind a unit that failed it is written again.
        let is_void = matches!(column.stage, Stage::Failing { at } if first >= at);
        match index {
            None => copied.extend_from_slice(&unit.frames()[..unit.used as usize]),
            Some(index) => {
                let state = if is_void { UnitState::Waiting } else { UnitState::Readable };
                writer.readable_up_to(flash, &mut self.spare, index, state);
            }
        }
        copied.into_iter().for_each(|frame| flash.frames.release(frame));
        self.let_go_of_old(flash, slot, at);
    }

    /// A column whose old blocks can all be read in its new chunk needs the old one no more.
    fn let_go_of_old(&mut self, flash: &mut Flash, slot: u32, at: u32) {
        let writer = self.writers[slot as usize].as_mut().expect("a slot that is named has a writer");
        if writer.is_orphan {
            return;
        }
        let (zone, column) = (writer.zone, &mut writer.columns[at as usize]);
        let is_new = |old: OldChunk, new: NewChunk| new.readable >= old.good && new.programmed >= old.good;
        let is_failing = matches!(column.stage, Stage::Failing { .. });
        if let (Some(old), Some(new)) = (column.old, column.new)
            && is_new(old, new)
            && !is_failing
        {
            column.old = None;
            self.doom(zone, old.chunk, old.open);
            flash.stirred = true;
            self.refresh.try_again(flash);
        }
    }

    pub(crate) fn unit_failed(&mut self, flash: &mut Flash, id: UnitId) {
        let (slot, at, index) = self.column_of(flash, id);
        let unit = flash.units.unit(id);
        let (open, first) = (unit.open, unit.first);
        let writer = self.writers[slot as usize].as_mut().expect("it has a unit under way");
        let column = &mut writer.columns[at as usize];
        column.under_way -= 1;
        let failed = match column.stage {
            Stage::Failing { at } => at.min(first),
            _ => first,
        };
        column.stage = Stage::Failing { at: failed };
        writer.waiting_for_units.remove(at);
        writer.awake.insert(at);
        let mut copied = Vec::new();
        match index {
            None => copied.extend_from_slice(&unit.frames()[..unit.used as usize]),
            Some(index) => writer.readable_up_to(flash, &mut self.spare, index, UnitState::Waiting),
        }
        copied.into_iter().for_each(|frame| flash.frames.release(frame));
        // What was submitted behind it ends, and the chunk is closed.
        if flash.units.room(open) > 0 {
            flash.pad_by(open, flash.units.room(open));
        }
        self.is_stirred = true;
        flash.stirred = true;
    }

    /// Pads what has ended until it can be read, and lets go of what is on media for good.
    pub(crate) fn settle(&mut self, flash: &mut Flash, slot: u32) {
        self.end_kept(flash, slot);
        let writer = self.writers[slot as usize].as_mut().expect("a slot that is named has a writer");
        if !writer.is_ending {
            return;
        }
        let padded = if flash.geometry.mw_cunits > 0 || writer.may_keep { self.layout.width } else { 0 };
        // Each column for itself: another may wait for the chunk that this one gives back.
        for at in 0..padded {
            let column = &self.writer(slot).columns[at as usize];
            // Nothing may come between what is copied.
            if column.stage == Stage::Ready && self.writer(slot).first_waiting(at).is_none() {
                self.push_kept(flash, slot, at);
                let new = self.writer(slot).columns[at as usize].new;
                if let Some(open) = new.and_then(|new| new.open)
                    && flash.geometry.mw_cunits > 0
                    && flash.units.wants_padding(open)
                {
                    flash.pad(open);
                }
            }
        }
        let writer = self.writers[slot as usize].as_mut().expect("a slot that is named has a writer");
        if !writer.is_settled() {
            return;
        }
        let writer = self.writers[slot as usize].take().expect("it was just looked at");
        self.free_writers.push(slot);
        let zone = writer.zone;
        self.writer_of[zone as usize] = crate::zones::NONE;
        self.leave_tail(zone, writer.saved);
        for (at, column) in (0..).zip(writer.columns) {
            let new = column.new.map(|new| (new.chunk, new.open));
            let last = new.or(column.old.map(|old| (old.chunk, old.open)));
            self.set_chunk(zone, at, last.map(|(chunk, _)| chunk));
            if let Some((chunk, Some(open))) = last
                && flash.units.room(open) > 0
            {
                self.half_full.insert(chunk, open);
            }
        }
        self.mark_dirty(zone);
        flash.stirred = true;
        self.refresh.try_again(flash);
    }

    /// Writes padding to a column behind units that an earlier life of the drive has written, where nothing else will come.
    fn push_kept(&mut self, flash: &mut Flash, slot: u32, at: u32) {
        let layout = self.layout;
        let writer = self.writers[slot as usize].as_mut().expect("a slot that is named has a writer");
        if !writer.may_keep {
            return;
        }
        let is_here =
            |(index, unit): (u32, &ZoneUnit)| unit.state == UnitState::Kept && layout.place_of_unit(index).0 == at;
        let column = &mut writer.columns[at as usize];
        if column.under_way > 0 || !(writer.first_unit..).zip(&writer.units).any(is_here) {
            return;
        }
        let new = column.new.as_mut().expect("what was kept is in a chunk");
        let open = new.open.expect("and that is not full");
        let count = layout.unit_blocks.min(flash.units.room(open));
        if count > 0 {
            let blocks = [flash.padding; VECTOR_BLOCKS_MAX];
            flash.write_unit(open, Purpose::Tenant, owner(slot, COPY | at), &blocks[..count as usize], 0);
            new.submitted += count;
            column.under_way += 1;
        }
    }

    /// Units that an earlier life of the drive has written, and that can be read since more was written behind them.
    fn end_kept(&mut self, flash: &mut Flash, slot: u32) {
        let layout = self.layout;
        let writer = self.writers[slot as usize].as_mut().expect("a slot that is named has a writer");
        if !std::mem::take(&mut writer.may_keep) {
            return;
        }
        for index in writer.first_unit..writer.end_unit() {
            if writer.unit(index).is_none_or(|unit| unit.state != UnitState::Kept) {
                continue;
            }
            if !writer.is_kept_readable(flash, &layout, index) {
                writer.may_keep = true;
                continue;
            }
            let unit = writer.unit_mut(index).expect("it was just looked at");
            unit.frames.drain(..).for_each(|frame| flash.frames.release(frame));
            unit.state = UnitState::Readable;
        }
        writer.forget_readable(&mut self.spare);
    }
}

impl Writer {
    /// Unit `index` is `state` from now on; what can be read needs no frames.
    fn readable_up_to(&mut self, flash: &mut Flash, spare: &mut Vec<Vec<Frame>>, index: u32, state: UnitState) {
        let is_orphan = self.is_orphan;
        if state == UnitState::Waiting {
            let column = index as usize % self.columns.len();
            let waiting_from = &mut self.columns[column].waiting_from;
            *waiting_from = index.min(*waiting_from);
            self.awake.insert(column as u32);
        }
        let Some(unit) = self.unit_mut(index) else { return };
        if is_orphan || state == UnitState::Readable {
            unit.frames.drain(..).for_each(|frame| flash.frames.release(frame));
            unit.state = UnitState::Readable;
        } else {
            unit.state = state;
        }
        self.forget_readable(spare);
    }
}
