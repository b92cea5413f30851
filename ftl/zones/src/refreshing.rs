//! Refresh: what is weak of a zone moves to another chunk before it is lost, or the host is advised to give the zone up.
//!
//! ```text
//!   weak ──▶ waiting ──▶ checking ──▶ moving ──▶ the column goes on in another chunk
//!               │            │          └─ of a zone that is written: its chunk is padded, and moves as one that failed does
//!               │            └─ a block cannot be read: nothing moves, and the zone is better reset
//!               └─ no spare chunk: the zone is better finished, or reset; it is tried again when a chunk comes free
//! ```
//!
//! A chunk is found weak by reads of the host, by the scrub or by the device (`openftl_blocks::refresh`). All of it is read before anything
//! changes, because a column that has begun to move cannot stay where it was, and a block that is lost would make its zone read only.
//! One column is checked and copied at a time, within the allowance for care.
//!
//! A zone that is full stays what it was: its record names the old chunk until all of that can be read in the new one, and no flush waits
//! for it. One that is being written needs a chunk more than its zone has until the host has written as much as the device
//! holds back, so it moves only while the drive has more chunks than its zones can need, and one more for a chunk that fails meanwhile.
//!
//! Zones that are read only do not move, nor do those that end: they wait until they have. What is weak is not remembered over a restart: it
//! is found again.

use crate::board::Zone;
use crate::refresh::{CHECK, Step, UnderWay};
use crate::state::ZoneState;
use crate::writer::{NewChunk, OldChunk, Stage, Writer};
use crate::zones::Zones;
use openftl_blocks::refresh::REFRESHES_MAX;
use openftl_core::{ChunkId, Frame};
use openftl_media::{Completion, Status};
use openftl_parts::flash::Flash;
use openftl_parts::flash::chunk_table::ChunkUse;
use openftl_parts::flash::oob::{BlockKind, Oob};
use openftl_parts::flash::reads::{ReadId, Reader};
use openftl_parts::words::Phase;
use std::ops::Range;

/// Chunks beyond those that zones need, so that a column of a zone that is written may move: one to move to, and one for a chunk that
/// fails meanwhile.
const SPARES_TO_MOVE_MIN: u32 = 2;

/// What can be done about a weak chunk now.
enum Beginning {
    /// It holds nothing that counts, or moves by itself.
    Needless,
    Later,
    /// A chunk may come.
    NoRoom,
    /// None will.
    NoSpare,
    Check {
        zone: u32,
        column: u32,
    },
}

impl Zones {
    /// What `chunk` holds should move.
    pub(crate) fn refresh_chunk(&mut self, flash: &mut Flash, chunk: ChunkId) {
        if self.refresh.waiting.len() < REFRESHES_MAX {
            self.refresh.waiting.push_back(chunk);
            self.refresh.try_again(flash);
        } else {
            flash.chunks.strengthen(chunk);
        }
    }

    /// The zone and the column that `chunk` is of, if its blocks count.
    pub(crate) fn owner_of(&self, chunk: ChunkId) -> Option<(u32, u32)> {
        let width = self.layout.width;
        if let Some(index) = self.places.position(chunk) {
            return Some((index as u32 / width, index as u32 % width));
        }
        self.writers.iter().flatten().filter(|writer| !writer.is_orphan).find_map(|writer| {
            let is_here = |at: &u32| {
                let column = &writer.columns[*at as usize];
                column.old.is_some_and(|old| old.chunk == chunk) || column.new.is_some_and(|new| new.chunk == chunk)
            };
            (0..width).find(is_here).map(|column| (writer.zone, column))
        })
    }

    /// Blocks of a column that can be read in its chunk, which does not move.
    pub(crate) fn readable_in(&self, zone: u32, column: u32) -> Range<u32> {
        let owed = self.layout.blocks_in_column(column, self.board.zone(zone).written);
        let readable = match self.writer_of(zone).map(|writer| &writer.columns[column as usize]) {
            None => owed,
            Some(column) => match (column.old, column.new) {
                (Some(_), Some(_)) | (None, None) => 0,
                (Some(old), None) => old.blocks,
                (None, Some(new)) => new.readable.min(owed),
            },
        };
        0..readable
    }

    /// Chunks that the drive has beyond those that its zones and the columns that move can need.
    fn spare_chunks(&self, flash: &Flash) -> u32 {
        let share: u32 = (0..flash.geometry.groups).map(|group| flash.provisioning.tenant_share(group)).sum();
        let columns = self.writers.iter().flatten().flat_map(|writer| &writer.columns);
        let moving = columns.filter(|column| column.old.is_some() && column.new.is_some()).count();
        share.saturating_sub(self.layout.zones * self.layout.width + moving as u32)
    }

    /// Whether the device lets one more chunk be open, and all of another zone that ends.
    fn may_open_chunk(&self, flash: &Flash) -> bool {
        let open = flash.units.count_open(|open| flash.chunks.usage(open.chunk) == ChunkUse::Tenant);
        open.saturating_add(self.layout.width) < flash.plan.open_tenant_chunks
    }

    /// Goes on with what is refreshed, or begins with what should be.
    pub(crate) fn advance_refresh(&mut self, flash: &mut Flash) {
        if flash.phase != Phase::Working || flash.read_only.is_some() || !flash.may_program() {
            return;
        }
        match self.refresh.under_way {
            None => self.begin_refresh(flash),
            Some(UnderWay { step: Step::Checking { reading: 1.., .. }, .. }) => {}
            Some(under_way) if !self.is_as_before(under_way) => self.end_refresh(flash, under_way),
            Some(under_way @ UnderWay { step: Step::Checking { checked, .. }, .. }) => {
                let blocks = self.readable_in(under_way.zone, under_way.column);
                if checked < blocks.end {
                    self.check_next(flash, under_way, checked, blocks.end);
                } else if !self.refresh.is_stopped {
                    self.move_column(flash, under_way);
                }
            }
            Some(UnderWay { step: Step::Moving, .. }) => {}
        }
    }

    fn begin_refresh(&mut self, flash: &mut Flash) {
        let refresh = &mut self.refresh;
        if refresh.is_stopped || !refresh.may_begin || self.lacks_room || !flash.allowance.is_left() {
            return;
        }
        refresh.may_begin = false;
        for _ in 0..self.refresh.waiting.len() {
            let Some(chunk) = self.refresh.waiting.pop_front() else { return };
            // It may have been reset since, and be of anybody.
            let care = flash.chunks.weakness(chunk).filter(|_| flash.chunks.usage(chunk) == ChunkUse::Tenant);
            let (Some(care), Some((zone, column))) = (care, self.owner_of(chunk)) else { continue };
            if flash.chunks.is_offline(chunk) {
                self.recommend(zone);
                continue;
            }
            match self.beginning(flash, zone, column, chunk) {
                Beginning::Needless => {}
                Beginning::Later => self.refresh.waiting.push_back(chunk),
                Beginning::NoRoom => {
                    self.refresh.waiting.push_back(chunk);
                    self.refresh.lacks_room = true;
                }
                Beginning::NoSpare => {
                    self.refresh.waiting.push_back(chunk);
                    self.recommend(zone);
                }
                Beginning::Check { zone, column } => {
                    let number = self.numbers[zone as usize];
                    let step = Step::Checking { checked: 0, reading: 0 };
                    self.refresh.under_way = Some(UnderWay { zone, number, column, chunk, care, step });
                    flash.stirred = true;
                    return;
                }
            }
        }
    }

    fn beginning(&mut self, flash: &Flash, zone: u32, column: u32, chunk: ChunkId) -> Beginning {
        let check = Beginning::Check { zone, column };
        if !self.may_open_chunk(flash) {
            return Beginning::Later;
        }
        match self.board.zone(zone).state {
            ZoneState::Empty | ZoneState::ReadOnly | ZoneState::Offline => return Beginning::Needless,
            ZoneState::Full if self.writer_of(zone).is_some() => return Beginning::Later,
            ZoneState::Full if self.has_room(flash) => return check,
            ZoneState::Full => return Beginning::NoRoom,
            ZoneState::ImplicitlyOpen | ZoneState::ExplicitlyOpen | ZoneState::Closed => {}
        }
        let Some(writer) = self.writer_of(zone) else { return Beginning::Needless };
        if !writer.columns[column as usize].rests_in(chunk) {
            return Beginning::Later;
        }
        if self.spare_chunks(flash) < SPARES_TO_MOVE_MIN { Beginning::NoSpare } else { check }
    }

    /// Whether the column is still what it was when its refresh began.
    fn is_as_before(&self, under_way: UnderWay) -> bool {
        let UnderWay { zone, number, column, chunk, step, .. } = under_way;
        let shown = self.board.zone(zone).state;
        if self.numbers[zone as usize] != number || shown == ZoneState::Empty || shown == ZoneState::ReadOnly {
            return false;
        }
        match (self.writer_of(zone), step) {
            (Some(writer), Step::Moving) => writer.columns[column as usize].is_refreshed,
            (None, Step::Moving) => false,
            (None, Step::Checking { .. }) => self.chunk(zone, column) == Some(chunk),
            (Some(writer), Step::Checking { .. }) => {
                writer.columns[column as usize].rests_in(chunk) && !writer.is_ending
            }
        }
    }

    /// Whether a column is being copied because its chunk is weak: it gives that back. One that has no chunk to move to does not.
    pub(crate) fn is_refreshing(&self) -> bool {
        let moving = self.refresh.under_way.filter(|under_way| under_way.step == Step::Moving);
        moving.is_some_and(|UnderWay { zone, column, .. }| {
            self.writer_of(zone).is_some_and(|writer| writer.columns[column as usize].stage != Stage::WithoutChunk)
        })
    }

    /// What was under way has ended, or has been overtaken. Where the chunk still counts, it is looked at again.
    fn end_refresh(&mut self, flash: &mut Flash, UnderWay { chunk, .. }: UnderWay) {
        self.refresh.under_way = None;
        self.refresh.waiting.push_back(chunk);
        self.refresh.try_again(flash);
    }

    /// Reads the next blocks of a chunk, so that none is lost by moving.
    fn check_next(&mut self, flash: &mut Flash, under_way: UnderWay, checked: u32, end: u32) {
        let count = (end - checked).min(self.layout.unit_blocks);
        let Some(frames) = self.own_frames(flash, count as usize) else { return };
        let id = flash.reads.begin(Reader::Tenant, CHECK);
        let read = flash.reads.get_mut(id);
        for (block, frame) in (checked..).zip(&frames) {
            read.add(flash.format.ppa(under_way.chunk, block), *frame);
        }
        flash.statistics.relocation_reads += u64::from(count);
        flash.allowance.spend(count);
        let step = Step::Checking { checked, reading: count };
        self.refresh.under_way = Some(UnderWay { step, ..under_way });
        flash.submit_read(id);
    }

    /// Blocks have been read that are to move, if all of them can be.
    pub(crate) fn checked(&mut self, flash: &mut Flash, id: ReadId, completion: Completion) {
        let under_way = self.refresh.under_way.expect("a chunk is being checked");
        let Step::Checking { checked, reading } = under_way.step else {
            unreachable!("nothing moves while it is checked")
        };
        if completion.status != Status::Success {
            flash.is_unusual = true;
        }
        let read = flash.reads.get(id);
        let is_again = read.is_again;
        let failed = self.failed_of(flash, id, under_way.column, under_way.number, completion);
        if failed != 0 && !is_again {
            // Those that failed, and no others: with a second chance for all of them, another one might.
            let is_good = |at: &usize| failed >> at & 1 == 0;
            let good: Vec<Frame> = (0..read.frames().len()).filter(is_good).map(|at| read.frames()[at]).collect();
            good.into_iter().for_each(|frame| flash.frames.release(frame));
            flash.read_again(id, failed);
            return;
        }
        let frames: Vec<Frame> = read.frames().to_vec();
        flash.reads.end(id);
        frames.into_iter().for_each(|frame| flash.frames.release(frame));
        flash.stirred = true;
        let step = Step::Checking { checked: checked + reading, reading: 0 };
        let under_way = UnderWay { step, ..under_way };
        self.refresh.under_way = Some(under_way);
        if failed != 0 && self.is_as_before(under_way) {
            flash.statistics.read_failures += 1;
            self.give_up(flash, under_way);
        }
    }

    /// Blocks of a read that could not be read, or are not those of the column, a bit each.
    pub(crate) fn failed_of(&self, flash: &Flash, id: ReadId, column: u32, number: u64, completion: Completion) -> u64 {
        let read = flash.reads.get(id);
        let failed = |(index, (ppa, frame)): (usize, (&openftl_core::Ppa, &Frame))| {
            let block = self.layout.block_at(column, flash.format.block_of(*ppa));
            let is_read = completion.status.data_is_good() || completion.failed >> index & 1 == 0;
            let expected = Oob { kind: BlockKind::Tenant, address: block.into(), sequence: number };
            u64::from(!is_read || Oob::verify(&flash.frames, *frame) != Ok(expected)) << index
        };
        read.places().iter().zip(read.frames()).enumerate().map(failed).sum()
    }

    /// A block of the chunk is lost: it stays where it is, and weak, until the zone is reset.
    fn give_up(&mut self, flash: &mut Flash, under_way: UnderWay) {
        self.refresh.under_way = None;
        self.recommend(under_way.zone);
        self.refresh.try_again(flash);
    }

    /// All of the chunk can be read: the column leaves it.
    fn move_column(&mut self, flash: &mut Flash, under_way: UnderWay) {
        let UnderWay { zone, column: at, chunk, .. } = under_way;
        if let Some(slot) = self.slot_of(zone) {
            if self.spare_chunks(flash) < SPARES_TO_MOVE_MIN {
                return self.end_refresh(flash, under_way);
            }
            let writer = self.writer(slot);
            writer.waiting_for_units.remove(at);
            writer.awake.insert(at);
            let column = &mut writer.columns[at as usize];
            column.is_refreshed = true;
            // What was submitted ends, and the chunk is closed: as after a failure behind all that it has.
            if let Some(NewChunk { open, submitted, .. }) = column.new {
                column.stage = Stage::Failing { at: submitted };
                if let Some(open) = open {
                    flash.pad_by(open, flash.units.room(open));
                }
            }
        } else {
            if !self.has_room(flash) || !self.may_open_chunk(flash) {
                return self.end_refresh(flash, under_way);
            }
            let slot = self.begin_whole(zone);
            let writer = self.writer(slot);
            writer.awake.insert(at);
            let column = &mut writer.columns[at as usize];
            let NewChunk { open, readable, .. } = column.new.take().expect("it was just put there");
            column.old = Some(OldChunk { chunk, open, blocks: readable, good: readable });
            column.stage = Stage::WithoutChunk;
            column.is_refreshed = true;
        }
        self.refresh.under_way = Some(UnderWay { step: Step::Moving, ..under_way });
        self.is_stirred = true;
        flash.stirred = true;
    }

    /// Gives a zone of which all is on media a writer, so that its columns can move. Returns its slot.
    fn begin_whole(&mut self, zone: u32) -> u32 {
        let Zone { written, .. } = self.board.zone(zone);
        let layout = self.layout;
        let mut writer = Writer::new(zone, self.numbers[zone as usize], layout.width);
        (writer.is_ending, writer.is_whole) = (true, true);
        writer.begin_with(written.div_ceil(layout.unit_blocks));
        for (at, column) in (0..).zip(&mut writer.columns) {
            let Some(chunk) = self.chunk(zone, at) else { continue };
            let (open, blocks) = (self.half_full.remove(&chunk), layout.blocks_in_column(at, written));
            column.new = Some(NewChunk { chunk, open, submitted: blocks, programmed: blocks, readable: blocks });
            column.stage = Stage::Ready;
            self.set_chunk(zone, at, None);
        }
        self.add_writer(writer)
    }

    /// All that a column had in its weak chunk has been copied.
    pub(crate) fn refreshed(&mut self, flash: &mut Flash, zone: u32, column: u32, blocks: u32) {
        let is_it = |under_way: &mut UnderWay| (under_way.zone, under_way.column) == (zone, column);
        if let Some(UnderWay { care, .. }) = self.refresh.under_way.take_if(is_it) {
            let cared = &mut flash.statistics.cared[care as usize];
            cared.chunks += 1;
            cared.blocks += u64::from(blocks);
            let is_weak = |chunk: ChunkId| flash.chunks.weakness(chunk).is_some();
            let writer = self.writer_of(zone).expect("a column of it has moved");
            let is_strong = writer.columns.iter().all(|column| !column.new.is_some_and(|new| is_weak(new.chunk)));
            if is_strong {
                self.board.withdraw(zone);
            }
            self.refresh.try_again(flash);
        }
    }

    /// A full zone waits for a chunk to move to, and none will come.
    pub(crate) fn recommend_waiting(&mut self) {
        self.refresh.lacks_room = false;
        for index in 0..self.refresh.waiting.len() {
            let owner = self.owner_of(self.refresh.waiting[index]);
            if let Some((zone, _)) = owner.filter(|(zone, _)| self.board.zone(*zone).state == ZoneState::Full) {
                self.recommend(zone);
            }
        }
    }

    /// The host is better off without `zone`.
    pub(crate) fn recommend(&mut self, zone: u32) {
        if self.board.recommend(zone) {
            self.statistics.recommended += 1;
            self.changed.push(zone);
        }
    }
}
