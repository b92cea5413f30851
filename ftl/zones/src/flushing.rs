//! Flushes: what a zone has behind its last good unit is saved in the area, because zones cannot be padded.
//!
//! ```text
//!   flush ──▶ whole units are on media ──▶ tails are saved, then records ──▶ flush of the block FTL ──▶ done
//!             (of what was written when    (one after the other: a record
//!             the flush began)              never says more than is there)
//! ```
//!
//! A flush costs the blocks that the medium does not have for good: less than a unit of each zone that was written, and on
//! devices that hold blocks back (MW_CUNITS, without power-loss protection) those of each column. Flushes that come while one
//! is under way share the next one. What a window has is saved with the tail, each block for itself. What is committed while a flush is under way
//! was in a window when it began, so it is saved, too.
//!
//! The record on media names the last tail until the next record is durable. So a tail is only added to while all of both fits into it;
//! else the zone takes another one, and the last is given back when the record is written.
//!
//! # Flushes without records
//! On a device whose power cuts take nothing that it has completed, and that holds nothing back, the write pointers of the chunks of a *segment* tell
//! what is durable. Its record is written when it has other chunks, and when it is 256 blocks behind; in between a flush writes nothing. After a power
//! cut all that was programmed is the segment's. A last unit that can be read moves to another chunk, since it may be one that was being programmed, and be
//! gone soon. A block that the medium has lost may be one that was durable, or of a program that failed when the power
//! went: either is an error where it is read, and the segment goes on behind it, unless nothing of the last unit is there. Zones promise that what was not durable is there as far as the write
//! pointer or not at all, and so have a new record with each flush.
//!
//! Tails and records are written twice, to different groups, so that none shares a write unit with its copy. The first is
//! submitted before the second, and so is never older. Where it cannot be read, the second says what was durable: it is as old as the first
//! was, or what that had beyond was not durable yet, and nothing that an older record names has been given back.
//!
//! Where a zone wants a chunk, and those of zones that were reset wait for their records to be durable, records alone are saved, whatever
//! a flush waits for.

use crate::board::Zone;
use crate::drive::ZoneFtl;
use crate::error::ZoneError;
use crate::face::Face;
use crate::record::SavedTail;
use crate::request::ZoneDone;
use crate::state::ZoneState;
use crate::writer::{Stage, UnitState, Writer};
use crate::zones::{NONE, Zones};
use openftl_core::{BLOCK_BYTES, Frame};
use openftl_parts::flash::Flash;
use openftl_parts::target::{BlockTarget, Durability, IoError, Request};
use openftl_parts::words::{AREA_COPIES, Handle, TRANSACTION_BLOCKS_MAX};

/// Marks the tags of what the drive asks of the block FTL.
pub(crate) const OWN: u64 = 1 << 63;
/// Of those, the flush that a host waits for, and the one that makes room.
pub(crate) const OWN_FLUSH: u64 = OWN | 1 << 62;
pub(crate) const ROOM_FLUSH: u64 = OWN_FLUSH | 1;

/// Blocks by which the record of a segment may be behind what is durable of it.
const SEGMENT_LAG_BLOCKS: u32 = 256;

/// A zone as it was when a flush began.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Target {
    zone: u32,
    number: u64,
    written: u32,
    /// The block behind its window, if it has one.
    end: u32,
}

/// How far a flush is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum FlushStage {
    /// Whole units are on their way to the medium.
    Writing,
    /// Tails of these are to be saved, from the last on; then records.
    Saving(Vec<Target>),
    /// What was saved is being written, up to this write.
    Saved(u64),
    /// The block FTL makes it durable.
    Flushing(u64),
}

/// A flush under way.
pub(crate) struct Flush {
    /// Whom it is for; nobody if the drive needs it itself.
    pub(crate) tags: Vec<u64>,
    pub(crate) targets: Vec<Target>,
    pub(crate) stage: FlushStage,
    /// Everything that cannot be read yet is saved, though it may survive a power cut.
    pub(crate) is_last: bool,
}

/// Whether what a zone has can be durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Saved {
    /// All of it, with the next record.
    All,
    /// Something has to be given back first.
    Later,
    /// A tail has to be given back first.
    NoTail,
    /// More than a tail holds has to be written elsewhere first.
    TooLong,
    /// The same, and the medium has failed.
    Lost,
}

impl Zones {
    /// What is to be durable: all that has been written so far.
    pub(crate) fn targets(&self) -> Vec<Target> {
        let writers = self.writers.iter().flatten().filter(|writer| !writer.is_orphan && !writer.is_whole);
        let target = |writer: &Writer| {
            let (zone, number) = (writer.zone, writer.number);
            let Zone { written, has_window, .. } = self.board.zone(zone);
            let window_blocks = if has_window { self.layout.window_blocks } else { 0 };
            Target { zone, number, written, end: (written + window_blocks).min(self.layout.capacity) }
        };
        writers.map(target).collect()
    }

    /// The block behind the last one of a target that is behind its write pointer by now.
    fn committed(&self, target: Target) -> u32 {
        self.board.zone(target.zone).written.min(target.end)
    }

    fn writer_for(&self, target: Target) -> Option<&Writer> {
        self.writer_of(target.zone).filter(|writer| writer.number == target.number)
    }

    /// Whether the medium has all that it will have of a target without more writes, and a tail has room for the rest. That is not so while a
    /// column moves and its record names the old chunk, whatever is behind that in the new one.
    fn is_on_media(&self, flash: &Flash, target: Target, is_last: bool) -> bool {
        let Some(writer) = self.writer_for(target).filter(|writer| !writer.is_whole) else { return true };
        let is_read_only = self.board.zone(target.zone).state == ZoneState::ReadOnly;
        if writer.is_ending && !is_read_only {
            return false;
        }
        let whole = target.written / self.layout.unit_blocks;
        // What waits for a medium that has failed is not waited for.
        let goes_on = |unit: u32| {
            let (column, _) = self.layout.place_of_unit(unit);
            !is_read_only || writer.columns[column as usize].stage == Stage::Ready
        };
        let is_written =
            (writer.first_unit..whole).all(|unit| match writer.unit(unit).expect("units follow each other").state {
                UnitState::Filling | UnitState::Waiting => !goes_on(unit),
                UnitState::UnderWay { id, is_programmed } => is_programmed || flash.units.has_completed(id),
                UnitState::Kept | UnitState::Readable => true,
            });
        let is_failing = writer.columns.iter().any(|column| matches!(column.stage, Stage::Failing { .. }));
        is_written && !is_failing && (is_read_only || self.fits_tail(flash, target, is_last))
    }

    /// Units of a target that would not survive a power cut, or, if `is_last`, that cannot be read on media.
    fn unsaved(&self, flash: &Flash, target: Target, is_last: bool) -> Vec<u32> {
        let Some(writer) = self.writer_for(target) else { return Vec::new() };
        let end = self.committed(target).div_ceil(self.layout.unit_blocks).min(writer.end_unit());
        // A record names the chunk that a column moves away from.
        let is_moving = |unit: u32| writer.columns[self.layout.place_of_unit(unit).0 as usize].old.is_some();
        let is_unsaved = |unit: &u32| match writer.unit(*unit).expect("units follow each other").state {
            UnitState::UnderWay { is_programmed, .. } => is_last || !is_programmed || is_moving(*unit),
            UnitState::Filling | UnitState::Waiting => true,
            UnitState::Kept => {
                (is_last || flash.geometry.volatile_cache) && !writer.is_kept_readable(flash, &self.layout, *unit)
            }
            UnitState::Readable => false,
        };
        (writer.first_unit..end).filter(is_unsaved).collect()
    }

    /// Whether the area has all of a target that would not survive a power cut.
    fn has_tail(&self, flash: &Flash, target: Target) -> bool {
        let (unit_blocks, committed) = (self.layout.unit_blocks, self.committed(target));
        let Some(writer) = self.writer_for(target) else { return true };
        let is_saved = |block: u32| writer.has_saved(block, &self.layout);
        let has_units = self.unsaved(flash, target, false).into_iter().all(|unit| {
            let mut blocks = unit * unit_blocks..((unit + 1) * unit_blocks).min(committed);
            blocks.all(is_saved)
        });
        let mut in_window = writer.window.iter().flat_map(|window| window.blocks_before(target.end));
        has_units && in_window.all(|(block, _)| is_saved(block))
    }

    /// Whether a tail has room for what would not survive a power cut of a target, or, if `is_last`, cannot be read on media.
    fn fits_tail(&self, flash: &Flash, target: Target, is_last: bool) -> bool {
        let unsaved = self.unsaved(flash, target, is_last);
        let first = unsaved.first().map_or(self.committed(target), |unit| unit * self.layout.unit_blocks);
        target.end - first.min(target.end) <= self.layout.tail_blocks
    }

    /// Whether a tail is given back when what is under way has ended.
    fn is_tail_coming(&self) -> bool {
        let gives_back = |writer: &Writer| {
            writer.is_ending && writer.saved.is_some() && self.board.zone(writer.zone).state != ZoneState::ReadOnly
        };
        !self.tails_leaving.is_empty() || self.writers.iter().flatten().any(gives_back)
    }

    /// By fewer blocks than this may what is durable of a zone be ahead of its record, if the chunks and the tail that the record names are those of
    /// the zone.
    fn lag_blocks_max(&self, flash: &Flash) -> u32 {
        if self.write_pointers_tell(flash) { SEGMENT_LAG_BLOCKS } else { 1 }
    }

    /// Whether what is durable of a segment is told by the write pointers of its chunks.
    pub(crate) fn write_pointers_tell(&self, flash: &Flash) -> bool {
        self.face == Face::Segments && !flash.geometry.volatile_cache && flash.geometry.mw_cunits == 0
    }

    /// A tail that nobody has.
    fn free_tail(&self) -> Option<u32> {
        self.tail_of.iter().position(|other| *other == NONE).map(|at| at as u32)
    }
}

impl ZoneFtl {
    /// Begins a flush of all that was written, or joins the one that waits to begin.
    pub(crate) fn begin_flush(&mut self, tag: Option<u64>, is_last: bool) {
        let may_join = self.flushes.len() > 1;
        match self.flushes.back_mut().filter(|_| may_join) {
            Some(next) => {
                next.tags.extend(tag);
                next.is_last |= is_last;
            }
            None => {
                let flush =
                    Flush { tags: tag.into_iter().collect(), targets: Vec::new(), stage: FlushStage::Writing, is_last };
                self.flushes.push_back(flush);
                if self.flushes.len() == 1 {
                    self.flushes[0].targets = self.zones.targets();
                }
            }
        }
        // After a clean stop records say where zones end.
        let open: Vec<u32> = self.zones.targets().into_iter().map(|target| target.zone).collect();
        open.into_iter().filter(|_| is_last).for_each(|zone| self.zones.mark_dirty(zone));
        self.ftl.flash.stirred = true;
    }

    /// Whether a power cut would take nothing: all that was written is on media or in the area, and records or write pointers say so.
    pub(crate) fn is_all_saved(&self) -> bool {
        let (zones, flash) = (&self.zones, &self.ftl.flash);
        self.area_lost.is_none()
            && self.flushes.is_empty()
            && zones.dirty.is_empty()
            && self.is_area_durable()
            && zones.targets().into_iter().all(|target| zones.has_tail(flash, target))
    }

    /// The flush under way need not wait for units that would have to be written first, if tails have room for them. Returns whether
    /// they have.
    pub(crate) fn save_at_once(&mut self) -> bool {
        let (zones, flash) = (&self.zones, &self.ftl.flash);
        if let Some(flush) = self.flushes.front_mut()
            && flush.targets.iter().all(|target| zones.fits_tail(flash, *target, flush.is_last))
        {
            flush.stage = FlushStage::Saving(std::mem::take(&mut flush.targets));
            return true;
        }
        false
    }

    /// Goes on with the flush under way. Returns whether it did anything.
    pub(crate) fn advance_flush(&mut self) -> bool {
        let Some(flush) = self.flushes.front_mut() else { return false };
        // The area takes nothing more, either.
        let is_refused = self.ftl.read_only_reason().map(ZoneError::DriveReadOnly);
        if let Some(error) = is_refused.or(self.area_lost.map(ZoneError::Io)) {
            self.end_flush(Err(error));
            return true;
        }
        match std::mem::replace(&mut flush.stage, FlushStage::Writing) {
            FlushStage::Writing => {
                let targets = std::mem::take(&mut flush.targets);
                let flash = &self.ftl.flash;
                let is_last = flush.is_last;
                let is_ready = targets.iter().all(|target| self.zones.is_on_media(flash, *target, is_last));
                let flush = self.flushes.front_mut().expect("it is there");
                if is_ready {
                    flush.stage = FlushStage::Saving(targets);
                } else {
                    flush.targets = targets;
                }
                is_ready
            }
            FlushStage::Saving(mut targets) => {
                let is_last = flush.is_last;
                let before = targets.len();
                let (mut lacks_tail, mut is_late) = (None, false);
                targets.retain(|target| {
                    let saved = self.save(*target, is_last);
                    lacks_tail = lacks_tail.or((saved == Saved::NoTail).then_some(*target));
                    is_late |= saved == Saved::TooLong;
                    matches!(saved, Saved::Later | Saved::NoTail | Saved::TooLong)
                });
                if is_late {
                    // A program has failed meanwhile: what it wrote is written elsewhere first.
                    self.flushes[0].targets = targets;
                    return true;
                }
                // Zones that are read only keep their tails, and nothing else is about to be given back.
                if let Some(target) = lacks_tail
                    && targets.len() == before
                    && !self.zones.is_tail_coming()
                {
                    self.zones.fail(&mut self.ftl.flash, target.zone);
                    self.failed.get_or_insert(ZoneError::ReadOnly { zone: target.zone });
                    targets.retain(|other| *other != target);
                }
                // What keeps it from going on is frames, which others give back, or a tail, which a record gives back.
                let saved = if targets.is_empty() || !self.zones.dirty.is_empty() { self.save_records() } else { None };
                let is_done = targets.is_empty() && self.zones.dirty.is_empty();
                let has_moved = targets.len() < before || is_done || saved.is_some();
                self.flushes[0].stage = match is_done {
                    true => FlushStage::Saved(self.next_write),
                    false => FlushStage::Saving(targets),
                };
                has_moved
            }
            FlushStage::Saved(write) if self.acknowledged >= write => {
                let is_begun = self.ftl.submit(self.ftl.flash.now, OWN_FLUSH, Request::Flush).is_ok();
                self.flushes[0].stage =
                    if is_begun { FlushStage::Flushing(self.acknowledged) } else { FlushStage::Saved(write) };
                is_begun
            }
            stage @ (FlushStage::Saved(_) | FlushStage::Flushing(_)) => {
                flush.stage = stage;
                false
            }
        }
    }

    /// The flush under way has ended, and the next one begins.
    pub(crate) fn end_flush(&mut self, result: Result<(), ZoneError>) {
        let Some(flush) = self.flushes.pop_front() else { return };
        self.has_ended_unsaved |= flush.is_last && result.is_err();
        let at = self.ftl.flash.now;
        for tag in flush.tags {
            let address = self.appended.remove(&tag);
            self.done.push(ZoneDone { tag, result, address, at });
        }
        if let Some(next) = self.flushes.front_mut() {
            next.targets = self.zones.targets();
        }
        self.ftl.flash.stirred = true;
    }

    /// Saves what the medium does not have of a zone, and has its record say how much is durable then.
    fn save(&mut self, target: Target, is_last: bool) -> Saved {
        let committed = self.zones.committed(target);
        let saved = self.save_tail(target, is_last);
        if saved == Saved::All
            && let Some(slot) = self.zones.slot_of(target.zone)
            && self.zones.writer(slot).number == target.number
            && self.zones.writer(slot).durable < committed
        {
            let recorded = self.zones.writer(slot).recorded;
            self.zones.writer(slot).durable = committed;
            if committed - recorded.min(committed) >= self.zones.lag_blocks_max(&self.ftl.flash) {
                self.zones.mark_dirty(target.zone);
            }
        }
        saved
    }

    /// Saves what the medium does not have of a zone.
    fn save_tail(&mut self, target: Target, is_last: bool) -> Saved {
        let units = self.zones.unsaved(&self.ftl.flash, target, is_last);
        let (layout, committed) = (self.zones.layout, self.zones.committed(target));
        let Some(writer) = self.zones.writer_for(target) else { return Saved::All };
        let first = units.first().map_or(committed / layout.unit_blocks, |unit| *unit) * layout.unit_blocks;
        let wanted = |block: &u32| *block < committed;
        let mut blocks: Vec<(u32, Frame)> = Vec::new();
        for unit in &units {
            let found = writer.unit(*unit).expect("it was just found");
            let begin = *unit * layout.unit_blocks + found.skip;
            blocks.extend((begin..).zip(found.frames.iter().copied()).filter(|(block, _)| wanted(block)));
        }
        let mut in_window: Vec<u32> = Vec::new();
        for (block, frame) in writer.window.iter().flat_map(|window| window.blocks_before(target.end)) {
            in_window.push(block);
            blocks.push((block, frame));
        }
        if blocks.is_empty() {
            // What the tail has is on media by now. After a clean stop the record says what is not.
            let slot = self.zones.slot_of(target.zone).expect("it has a writer");
            let writer = self.zones.writer(slot);
            writer.stale.clear();
            if let Some(saved) = writer.saved.take() {
                self.zones.leave_tail(target.zone, Some(saved));
                self.zones.mark_dirty(target.zone);
            }
            return Saved::All;
        }
        let end = in_window.last().map_or(committed, |block| block + 1);
        if end - first > layout.tail_blocks {
            if self.zones.board.zone(target.zone).state != ZoneState::ReadOnly {
                return Saved::TooLong;
            }
            // More than the medium can hold back: it has failed, and takes nothing more of this zone.
            self.failed.get_or_insert(ZoneError::ReadOnly { zone: target.zone });
            return Saved::Lost;
        }
        // The record on media names the last tail: what it needs there must not be overwritten. Where both fit into one, what is
        // there of the last flush need not be written again; else another tail is taken, and the last one is left.
        let last = writer.saved.clone();
        let same = last.as_ref().filter(|last| first >= last.first && end - last.first <= layout.tail_blocks);
        let Some(tail) = same.map(|same| same.tail).or_else(|| self.zones.free_tail()) else {
            return Saved::NoTail;
        };
        blocks.retain(|(block, _)| same.is_none() || !writer.has_saved(*block, &layout));
        let saved = Some(SavedTail::of(tail, first, &units, committed, &in_window, &layout));
        if blocks.is_empty() && saved == last {
            return Saved::All;
        }
        let copies = AREA_COPIES as usize;
        let Some(frames) = self.zones.own_frames(&mut self.ftl.flash, copies * blocks.len()) else {
            return Saved::Later;
        };
        let (first_copy, second_copy) = frames.split_at(blocks.len());
        for ((_, from), to) in blocks.iter().cycle().zip(&frames) {
            self.ftl.flash.frames.copy(*from, *to);
        }
        // Together as far as they are neighbours in the tail.
        let place = |index: usize| layout.tail_place(tail, blocks[index].0);
        let mut begin = 0;
        for end in 1..=blocks.len() {
            let goes_on =
                end < blocks.len() && place(end) == place(end - 1) + 1 && end - begin < TRANSACTION_BLOCKS_MAX;
            if !goes_on {
                if self.write_area(place(begin), &first_copy[begin..end], &second_copy[begin..end]).is_none() {
                    let left = first_copy[end..].iter().chain(&second_copy[end..]);
                    left.for_each(|frame| self.ftl.flash.frames.release(*frame));
                    return Saved::Later;
                }
                begin = end;
            }
        }
        self.zones.statistics.tail_blocks += blocks.len() as u64;
        self.zones.tail_of[tail as usize] = target.zone;
        self.zones.leave_tail(target.zone, last.filter(|last| last.tail != tail));
        let slot = self.zones.slot_of(target.zone).expect("it has a writer");
        let writer = self.zones.writer(slot);
        writer.saved = saved;
        writer.all_saved_before(target.end);
        self.zones.mark_dirty(target.zone);
        Saved::All
    }

    /// Writes records that are not as they are on media. Returns the last write, if there was any.
    pub(crate) fn save_records(&mut self) -> Option<u64> {
        let mut last = None;
        while let Some(block) = self.zones.dirty.first().copied() {
            let Some(frames) = self.zones.own_frames(&mut self.ftl.flash, AREA_COPIES as usize) else { break };
            let bytes = self.zones.layout.record_bytes();
            let mut page = [0; BLOCK_BYTES];
            let per_block = self.zones.layout.records_per_block;
            let zones = block * per_block..((block + 1) * per_block).min(self.zones.layout.zones);
            for (zone, to) in zones.clone().zip(page.chunks_exact_mut(bytes)) {
                self.zones.record(zone).write(to, &self.zones.layout);
            }
            frames.iter().for_each(|frame| self.ftl.flash.frames.bytes_mut(*frame).copy_from_slice(&page));
            let Some(write) = self.write_area(block.into(), &frames[..1], &frames[1..]) else { break };
            self.zones.dirty.pop_first();
            for zone in zones {
                if let Some(slot) = self.zones.slot_of(zone) {
                    let writer = self.zones.writer(slot);
                    writer.recorded = writer.durable;
                }
            }
            for (tail, _) in self.zones.tails_leaving.extract_if(.., |(_, of)| *of == block) {
                self.zones.tail_of[tail as usize] = NONE;
            }
            for doomed in self.zones.doomed.iter_mut().filter(|doomed| doomed.record_block == block) {
                doomed.write.get_or_insert(write);
                self.zones.doomed_due = self.zones.doomed_due.min(write);
            }
            self.zones.statistics.record_blocks += 1;
            last = Some(write);
        }
        last
    }

    /// Writes blocks of the area, in both copies. Returns the number of the last write, or nothing if they cannot be begun now: then
    /// the first copy may be newer than the second, as it is when the power is cut between them.
    fn write_area(&mut self, first: u64, frames: &[Frame], copies: &[Frame]) -> Option<u64> {
        if self.write_copy(first, frames, Handle::of_copy(0)).is_none() {
            copies.iter().for_each(|frame| self.ftl.flash.frames.release(*frame));
            return None;
        }
        self.write_copy(self.zones.layout.second_copy(first), copies, Handle::of_copy(1))
    }

    /// Writes blocks of one copy.
    fn write_copy(&mut self, first: u64, frames: &[Frame], handle: Handle) -> Option<u64> {
        let durability = Durability::Volatile;
        let request = Request::Write { first, frames, durability, handle };
        let (now, write) = (self.ftl.flash.now, self.next_write + 1);
        if let Err(error) = self.ftl.submit(now, OWN | write, request) {
            frames.iter().for_each(|frame| self.ftl.flash.frames.release(*frame));
            if error != IoError::QueueFull {
                self.area_lost = Some(error);
            }
            return None;
        }
        self.next_write = write;
        Some(write)
    }
}
