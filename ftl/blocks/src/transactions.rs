//! Transactions: how writes and trims become part of the map, in order, whole, and durably.
//!
//! A write of up to 1 MiB is one transaction. Its life, and what a crash after each step leaves:
//!
//! 1. **Buffered.** The map points at its frames; it is acknowledged unless it has to be durable. *Crash: none of it.*
//! 2. **Programmed.** Its blocks are on media, in any order, in several chunks. *Crash: none of it; nothing points at the
//!    blocks and garbage collection reclaims them.*
//! 3. **Committed.** Once all its blocks and those of every earlier transaction are programmed, its records are appended
//!    to the log, the last one marked. *Crash: none of it.*
//! 4. **Durable.** The log block with the last record is programmed. *Crash: all of it.*
//!
//! The data go before the records: the other order would leave a map that points at blocks which were never programmed.
//! What a transaction makes invalid becomes so at step 3, and its chunk is not reset before step 4: until then a crash
//! brings the older version back.
//!
//! A flush, and a durable write, wait for step 4 of everything before them. They push: partly filled units are padded.
//!
//! Where a crash of the machine behind the device has to be survived ([`openftl_media::Media::needs_flush`]), they wait for a flush of the
//! device after step 4 as well. All that wait share one, and those that come while it is under way share the next. Nothing else
//! needs it: what such a crash leaves is the device as it was at one moment, so records are never there without their data,
//! and a chunk is never reset without the log that allows it.
//! What trims do in between stands in [`crate::trims`].

use crate::block_ftl::BlockFtl;
use crate::trims::Trims;
use openftl_core::{ChunkId, Frame, Ppa, Time, VECTOR_BLOCKS_MAX};
use openftl_media::Status;
use openftl_parts::canary::Canary;
use openftl_parts::cleaning::throttle::{Room, Throttle};
use openftl_parts::flash::Errand;
use openftl_parts::flash::oob::{BlockKind, Oob};
use openftl_parts::flash::units::OpenId;
use openftl_parts::journal::log_block::Record;
use openftl_parts::map::{Entry, Map};
use openftl_parts::target::{Done, Durability, IoError, REQUESTS_MAX};
use openftl_parts::words::{Class, Handle, Purpose, ReadOnlyReason, TRANSACTION_BLOCKS_MAX};
use std::collections::VecDeque;
use std::ops::Range;

/// Writes that are held back and that a trim is compared with, at most.
const HELD_BACK_LOOKED_AT_MAX: usize = 64;

/// A write that the throttle holds back, or a trim of blocks that one before it is of: they take effect in order.
struct HeldBack {
    tag: u64,
    first: u64,
    blocks: u64,
    /// What the blocks are to be; `None`: trimmed.
    kind: Option<BlockKind>,
    durability: Durability,
    handle: Handle,
    began: Time,
}

/// Waits for everything below a position to be durable.
struct Waiter {
    tag: u64,
    began: Time,
    is_flush: bool,
    position: u64,
    /// The log position behind its last record, once that is appended.
    log_position: Option<u64>,
    /// Units of the tenant that were programmed before it began.
    tenant_units: u64,
}

/// What the device has flushed, where that is needed.
#[derive(Clone, Copy)]
struct Flushed {
    /// The log up to this position.
    log_position: u64,
    /// So many units of the tenant, which says in its own chunks what has changed, and nothing in the log.
    tenant_units: u64,
}

/// Requests that have not ended.
#[derive(Default)]
pub struct Transactions {
    writes: VecDeque<HeldBack>,
    /// Frames of the writes among them, in order.
    write_frames: VecDeque<Frame>,
    throttled_since: Option<Time>,
    waiters: VecDeque<Waiter>,
    pub(crate) trims: Trims,
    throttle: Throttle,
    /// Everything below this position is to be placed without waiting for full units.
    pub(crate) push: u64,
    /// Units of the tenant that have been programmed since the drive was opened.
    pub(crate) tenant_units: u64,
    /// `None`: nothing is known of what the device had when the drive was opened or formatted.
    flushed: Option<Flushed>,
    /// How far the flush of the device that is under way reaches.
    flushing: Option<Flushed>,
    /// The last time that a unit was wanted there was no open chunk to be had.
    pub(crate) stalled: bool,
}

impl Transactions {
    /// Whether no request waits.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.writes.is_empty() && self.waiters.is_empty() && self.trims.is_empty()
    }

    /// Whether writes of the host wait for room.
    #[inline]
    pub(crate) fn is_held_back(&self) -> bool {
        !self.writes.is_empty()
    }

    /// What is relocated earns the host its share.
    pub(crate) fn earn(&mut self, earned: i64) {
        self.throttle.earn(earned);
    }
}

impl BlockFtl {
    pub(crate) fn check_range(&self, first: u64, blocks: u64, most: u64) -> Result<(), IoError> {
        let capacity = self.flash.plan.capacity_blocks;
        if blocks == 0 || blocks > most || first.checked_add(blocks).is_none_or(|end| end > capacity) {
            return Err(IoError::OutOfRange { first, blocks, capacity });
        }
        Ok(())
    }

    pub(crate) fn check_read_range(&self, first: u64, blocks: usize) -> Result<(), IoError> {
        self.check_range(first, blocks as u64, TRANSACTION_BLOCKS_MAX as u64)
    }

    /// What a host that asks for `durability` gets.
    pub(crate) fn kept(&self, durability: Durability) -> Durability {
        match (self.config.lies_about_flush, self.config.write_through) {
            (true, _) => Durability::Volatile,
            (false, true) => Durability::Durable,
            (false, false) => durability,
        }
    }

    pub(crate) fn write(
        &mut self,
        tag: u64,
        first: u64,
        frames: &[Frame],
        kind: BlockKind,
        durability: Durability,
        handle: Handle,
    ) -> Result<(), IoError> {
        self.check_range(first, frames.len() as u64, TRANSACTION_BLOCKS_MAX as u64)?;
        if self.flash.read_only.is_some() {
            return Err(IoError::ReadOnly);
        }
        let durability = self.kept(durability);
        if self.transactions.writes.is_empty() && self.may_admit() {
            self.admit((tag, self.flash.now), first, frames.iter().copied(), frames.len(), kind, durability, handle);
            return Ok(());
        }
        if self.transactions.writes.len() >= REQUESTS_MAX {
            return Err(IoError::QueueFull);
        }
        self.flash.statistics.throttled += 1;
        self.transactions.throttled_since.get_or_insert(self.flash.now);
        self.transactions.write_frames.extend(frames);
        self.transactions.writes.push_back(HeldBack {
            tag,
            first,
            blocks: frames.len() as u64,
            kind: Some(kind),
            durability,
            handle,
            began: self.flash.now,
        });
        self.flash.stirred = true;
        Ok(())
    }

    /// Flushes: all that was acknowledged becomes durable.
    ///
    /// # Errors
    /// [`IoError::QueueFull`] if too many requests wait.
    pub fn flush(&mut self, tag: u64) -> Result<(), IoError> {
        if self.transactions.waiters.len() >= REQUESTS_MAX {
            return Err(IoError::QueueFull);
        }
        self.flash.statistics.host_flushes += 1;
        self.wait_durable((tag, self.flash.now), true, self.buffer.head(), None);
        Ok(())
    }

    /// A flush of a drive that lies.
    pub(crate) fn pretend_flush(&mut self, tag: u64) {
        self.flash.statistics.host_flushes += 1;
        self.done.push(Done { tag, result: Ok(()), at: self.flash.now });
    }

    /// Whether a trim of these blocks has to stand in line behind writes that are held back: they take effect in order.
    /// Of a long line nobody looks at every write.
    pub(crate) fn must_stand_in_line(&self, blocks: &Range<u64>) -> bool {
        let writes = &self.transactions.writes;
        let overlaps = |held: &HeldBack| held.first < blocks.end && blocks.start < held.first + held.blocks;
        writes.len() > HELD_BACK_LOOKED_AT_MAX || writes.iter().any(overlaps)
    }

    /// Puts a trim in line behind the writes that are held back.
    pub(crate) fn hold_back_trim(
        &mut self,
        tag: u64,
        blocks: Range<u64>,
        durability: Durability,
    ) -> Result<(), IoError> {
        if self.transactions.writes.len() >= REQUESTS_MAX {
            return Err(IoError::QueueFull);
        }
        let (first, blocks) = (blocks.start, blocks.end - blocks.start);
        let (kind, handle, began) = (None, Handle::NONE, self.flash.now);
        self.transactions.writes.push_back(HeldBack { tag, first, blocks, kind, durability, handle, began });
        self.flash.stirred = true;
        Ok(())
    }

    /// Chunks that the host may open now, and could when nothing waits to be collected.
    pub(crate) fn room(&self) -> Room {
        let plenty = self.flash.geometry.groups * openftl_parts::flash::plan::COLLECTION_HEADROOM_CHUNKS;
        Room { free: self.flash.provisioning.host_chunks(), plenty }
    }

    pub(crate) fn earned_by(&self, freed: u32, relocations: u32) -> i64 {
        self.room().earned(freed, relocations)
    }

    #[inline]
    fn may_admit(&self) -> bool {
        self.flash.meetings.marked() == 0 || self.transactions.throttle.may_write() || self.room().is_ample()
    }

    fn admit(
        &mut self,
        (tag, began): (u64, Time),
        first: u64,
        frames: impl Iterator<Item = Frame>,
        blocks: usize,
        kind: BlockKind,
        durability: Durability,
        handle: Handle,
    ) {
        if self.flash.meetings.marked() > 0 {
            self.transactions.throttle.spend(blocks);
        }
        let splits = self.flash.bugs.has(Canary::SplitTransaction);
        for (index, frame) in frames.enumerate() {
            if kind == BlockKind::Uncorrectable {
                self.flash.frames.zero(frame);
            }
            let block = first + index as u64;
            let class = self.placement.class_of(block, handle, self.buffer.head());
            self.buffer.push(&mut self.map, frame, kind, block, class, index + 1 == blocks || splits);
            if !self.placement.is_plain() {
                self.flash.statistics.placement.count(self.placement.counted_as(class), 1);
            }
            if self.buffer.waiting(class) >= self.unit_blocks as usize {
                self.placement.make_ready(class);
            }
        }
        self.flash.chunks.set_written(self.buffer.head());
        self.count_ended_objects();
        // The catalog of a table drive is its own, and not the host's.
        if first >= self.config.catalog_blocks.into() {
            self.flash.statistics.host_blocks_written += blocks as u64;
        }
        self.flash.statistics.host_blocks_marked += if kind == BlockKind::Uncorrectable { blocks as u64 } else { 0 };
        match durability {
            Durability::Volatile => {
                self.flash.statistics.write_latency.record(self.flash.now.since(began));
                self.done.push(Done { tag, result: Ok(()), at: self.flash.now });
            }
            Durability::Durable => {
                self.flash.statistics.host_flushes += 1;
                self.wait_durable((tag, began), false, self.buffer.head(), None);
            }
        }
        if self.placement.is_ready() {
            self.place_host();
        }
    }

    pub(crate) fn wait_durable(
        &mut self,
        (tag, began): (u64, Time),
        is_flush: bool,
        position: u64,
        log_position: Option<u64>,
    ) {
        self.transactions.push = self.transactions.push.max(position);
        let tenant_units = self.transactions.tenant_units;
        self.transactions.waiters.push_back(Waiter { tag, began, is_flush, position, log_position, tenant_units });
        self.flash.stirred = true;
    }

    /// Gives what is buffered to the device: full units, and partly filled ones if somebody waits for them.
    pub(crate) fn place_host(&mut self) {
        let push = self.pushed();
        if push > self.buffer.placed() {
            for class in (0..self.placement.classes()).map(|class| Class(class as u16)) {
                if self.buffer.first_waiting(class).is_some_and(|first| first < push) {
                    self.placement.make_ready(class);
                }
            }
        }
        if !self.placement.is_ready() {
            self.transactions.stalled = false;
            return;
        }
        let mut stalled = false;
        let ready = self.placement.take_ready();
        for class in ready.iter().copied() {
            if !self.place_class(class, push) {
                stalled = true;
                self.placement.make_ready(class);
            }
        }
        self.placement.keep(ready);
        let was_stalled = std::mem::replace(&mut self.transactions.stalled, stalled);
        // Also when a request was just submitted: only `advance` makes room.
        self.flash.stirred |= stalled && !was_stalled;
    }

    /// Everything below this position is to be placed without waiting for full units: what somebody waits for, and what
    /// so much has been written behind that it holds up the others.
    fn pushed(&self) -> u64 {
        let is_late = self.buffer.head() - self.buffer.placed() > self.lag_max();
        self.transactions.push.max(if is_late { self.buffer.placed() + 1 } else { 0 })
    }

    /// How far a block may fall behind the newest while it waits for a full unit of its class.
    fn lag_max(&self) -> u64 {
        if self.placement.is_plain() { u64::MAX } else { u64::from(self.config.host_frames / 2).max(1) }
    }

    /// Gives what is buffered of `class` to the device. Returns false if there is no open chunk to be had.
    pub(crate) fn place_class(&mut self, class: Class, push: u64) -> bool {
        while self.flash.may_program() {
            let waiting = self.buffer.waiting(class);
            let is_pushed = self.buffer.first_waiting(class).is_some_and(|first| first < push);
            if waiting == 0 || (waiting < self.unit_blocks as usize && !is_pushed) {
                break;
            }
            let Some(open) = self.host_frontier(class) else { return false };
            let placed = self.place_unit(class, open);
            if class != Class::ORDINARY {
                if !self.placement.placed(class, self.flash.chunks.label(placed.0), self.flash.now) {
                    self.flash.statistics.placement.unplaced += u64::from(placed.1);
                }
                self.placement.let_go_of_full(class, &self.flash.units);
            }
        }
        true
    }

    /// Writes a unit of `class` to `open`. Returns where, and how many blocks it has.
    fn place_unit(&mut self, class: Class, open: OpenId) -> (ChunkId, u32) {
        let room = self.flash.units.room(open) as usize;
        let used = self.buffer.waiting(class).min(self.unit_blocks as usize).min(room);
        let count = used.next_multiple_of(self.flash.geometry.ws_min as usize);
        let (chunk, first) = (self.flash.units.chunk(open).chunk, self.flash.units.chunk(open).next);
        let first = self.flash.format.ppa(chunk, first);
        let mut unit = [self.flash.padding; VECTOR_BLOCKS_MAX];
        for (index, place) in unit[..used].iter_mut().enumerate() {
            let (frame, sequence) = self.buffer.next_to_place(class).expect("counted");
            let slot = self.buffer.slot_mut(frame);
            slot.ppa = Ppa(first.0 + index as u64);
            if let Some(owners) = &mut self.owners {
                owners.set(slot.ppa, slot.block);
            }
            let is_forgotten = self.flash.bugs.has(Canary::ForgottenMark);
            let kind = if is_forgotten { BlockKind::Data } else { slot.kind };
            let oob = Oob { kind, address: slot.block, sequence };
            oob.seal(&mut self.flash.frames, frame);
            *place = frame;
        }
        self.flash.chunks.place(chunk, used as u32);
        self.flash.write_unit(open, Purpose::Data, 0, &unit[..count], used as u32);
        if self.flash.bugs.has(Canary::RecordBeforeData) {
            unit[..used].iter().for_each(|frame| self.buffer.programmed(*frame));
            self.buffer.advance();
        }
        (chunk, used as u32)
    }

    /// Writes the oldest blocks that wait wherever there is room: with their class they would wait for a chunk that
    /// nobody can free before they are written. Returns whether there was any.
    pub(crate) fn spill(&mut self) -> bool {
        let Some(class) = self.buffer.oldest().filter(|_| !self.placement.is_plain()) else { return false };
        let Some(open) = self.any_frontier() else { return false };
        let (chunk, blocks) = self.place_unit(class, open);
        self.placement.placed(class, self.flash.chunks.label(chunk), self.flash.now);
        self.flash.statistics.placement.spilled += u64::from(blocks);
        self.flash.stirred = true;
        true
    }

    pub(crate) fn advance_transactions(&mut self) {
        self.commit();
        self.advance_trims();
        while let Some(write) = self.transactions.writes.front() {
            if self.flash.read_only.is_some() {
                self.refuse_write();
                continue;
            }
            let HeldBack { tag, first, blocks, kind, durability, handle, began } = *write;
            let Some(kind) = kind else {
                self.transactions.writes.pop_front();
                self.begin_trim((tag, began), first..first + blocks, durability);
                self.end_of_wait();
                continue;
            };
            if !self.may_admit() {
                break;
            }
            self.transactions.writes.pop_front();
            let mut frames = std::mem::take(&mut self.transactions.write_frames);
            let blocks = blocks as usize;
            self.admit((tag, began), first, frames.drain(..blocks), blocks, kind, durability, handle);
            self.transactions.write_frames = frames;
            self.end_of_wait();
        }
        self.place_host();
        self.push_out();
        self.advance_waiters();
    }

    /// Notes how long writes were held back, once none is any more.
    fn end_of_wait(&mut self) {
        if self.transactions.writes.is_empty() {
            let since = self.transactions.throttled_since.take().unwrap_or(self.flash.now);
            self.flash.statistics.throttled_time += self.flash.now.since(since);
        }
    }

    fn refuse_write(&mut self) {
        let write = self.transactions.writes.pop_front().expect("there is a first");
        let frames = if write.kind.is_some() { write.blocks as usize } else { 0 };
        for frame in self.transactions.write_frames.drain(..frames) {
            self.flash.frames.release(frame);
        }
        self.end_with(write.tag, Err(IoError::ReadOnly));
    }

    pub(crate) fn end_with(&mut self, tag: u64, result: Result<(), IoError>) {
        self.flash.statistics.host_errors += u64::from(result.is_err());
        self.done.push(Done { tag, result, at: self.flash.now });
    }

    /// Commits whole transactions and lets go of what can be read from media.
    fn commit(&mut self) {
        // Asked at every turn, where mostly nothing has become complete.
        if self.buffer.has_complete() {
            self.commit_complete();
        }
        while let Some(frame) = self.buffer.release(&mut self.map) {
            self.flash.frames.release(frame);
            self.flash.stirred = true;
        }
    }

    fn commit_complete(&mut self) {
        // A trim waits for what is older, and what is newer waits for the trim.
        let limit = self.transactions.trims.position().unwrap_or(u64::MAX);
        let mut within = false;
        let may_grow = self.journal.may_grow(&self.flash);
        while self.buffer.has_complete()
            && (within
                || (may_grow
                    && self.has_room_for_transaction()
                    && self.buffer.committed() < limit
                    && self.journal.log.append_chunks(&mut self.flash)
                    && self.journal.log.has_room()))
        {
            let committed = self.buffer.commit().expect("it is complete");
            let old = match self.map {
                Map::Whole(_) => committed.old,
                Map::Paged(_) => self.put_change(committed.block, Entry::media(committed.ppa)),
            };
            if let Some(old) = old {
                self.flash.chunks.invalidate(old);
            }
            self.flash.chunks.commit(committed.ppa);
            let record = Record::Mapped { block: committed.block, ppa: committed.ppa, last: committed.last };
            self.journal.log.append(&mut self.flash.frames, record);
            within = !committed.last;
            self.flash.stirred = true;
        }
    }

    /// Writes padding behind units that somebody waits for and that count only when more is written behind them.
    fn push_out(&mut self) {
        if self.flash.geometry.mw_cunits == 0 || !self.flash.may_program() {
            return;
        }
        if let Some(ppa) = self.trim_waits_for() {
            self.pad_host_chunk(self.flash.format.chunk_of(ppa));
        }
        if !self.flash.geometry.volatile_cache {
            return;
        }
        let push = self.transactions.push;
        if self.buffer.committed() < push && self.buffer.placed() >= push {
            self.pad_host_frontiers();
        } else if self.buffer.head() - self.buffer.committed() > self.lag_max()
            && let Some(ppa) = self.buffer.oldest_under_way()
        {
            self.pad_host_chunk(self.flash.format.chunk_of(ppa));
        }
    }

    /// Open chunks that host writes go to.
    pub(crate) fn host_chunks_open(&self) -> impl Iterator<Item = OpenId> + '_ {
        self.host.open.iter().flatten().copied().chain(self.placement.open_chunks())
    }

    /// Writes padding behind what `chunk` holds, if it is an open one of the host and nothing else is on its way to it.
    fn pad_host_chunk(&mut self, chunk: ChunkId) {
        let open = self.host_chunks_open().find(|open| self.flash.units.chunk_if_open(*open) == Some(chunk));
        if let Some(open) = open.filter(|open| self.flash.units.wants_padding(*open)) {
            self.flash.pad(open);
        }
    }

    pub(crate) fn pad_host_frontiers(&mut self) {
        let open: Vec<OpenId> = self.host_chunks_open().filter(|open| self.flash.units.wants_padding(*open)).collect();
        for open in open {
            self.flash.pad(open);
        }
    }

    fn advance_waiters(&mut self) {
        if self.transactions.waiters.is_empty() {
            return;
        }
        let (committed, appended) = (self.buffer.committed(), self.journal.log.position());
        for waiter in &mut self.transactions.waiters {
            if waiter.position > committed {
                break;
            }
            waiter.log_position.get_or_insert(appended);
        }
        let programmed = self.programmed();
        let kept = if self.media.needs_flush() { self.transactions.flushed } else { Some(programmed) };
        // What was found in the log may be gone the next time, and nothing will write it again.
        let is_lost = self.journal.log.is_doubted() && self.flash.read_only.is_some();
        while let Some(waiter) = self.transactions.waiters.front() {
            let is_kept = |position: u64| {
                kept.is_some_and(|kept| position <= kept.log_position && waiter.tenant_units <= kept.tenant_units)
                    && !self.journal.log.is_in_doubt()
            };
            let result = match waiter.log_position {
                Some(position) if is_kept(position) || self.flash.bugs.has(Canary::FlushBeforeLog) => Ok(()),
                _ if !self.flash.may_program() || is_lost => Err(IoError::ReadOnly),
                _ => break,
            };
            let (tag, latency) = (waiter.tag, self.flash.now.since(waiter.began));
            let latencies = if waiter.is_flush {
                &mut self.flash.statistics.flush_latency
            } else {
                &mut self.flash.statistics.write_latency
            };
            latencies.record(latency);
            self.transactions.waiters.pop_front();
            self.end_with(tag, result);
        }
        let Some(Waiter { log_position: Some(position), .. }) = self.transactions.waiters.front() else { return };
        if *position <= programmed.log_position {
            self.flush_media();
        } else if !self.journal.log.is_submitted(*position) && self.journal.log.is_idle() {
            self.journal.force_log(&mut self.flash);
        }
    }

    /// What a flush of the device that begins now reaches.
    fn programmed(&self) -> Flushed {
        Flushed { log_position: self.journal.log.durable(), tenant_units: self.transactions.tenant_units }
    }

    /// Has the device flush what it has, unless it does, or need not.
    pub(crate) fn flush_media(&mut self) {
        if self.transactions.flushing.is_none() && self.media.needs_flush() && self.flash.may_program() {
            self.transactions.flushing = Some(self.programmed());
            self.flash.statistics.media_flushes += 1;
            self.flash.submit(Errand::Flush);
        }
    }

    pub(crate) fn media_flush_ended(&mut self, status: Status) {
        let reached = self.transactions.flushing.take().expect("it was under way");
        match status {
            Status::Success => self.transactions.flushed = Some(reached),
            // Tried again it might seem to work, and the data would still not be there.
            _ => self.flash.turn_read_only(ReadOnlyReason::StoreFault),
        }
    }
}
