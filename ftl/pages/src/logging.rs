//! What has changed is written to the log, in order, and made durable.
//!
//! ```text
//!   queue ──▶ gathered ──▶ group, written to a chunk of the log ──▶ programmed ──▶ flush of the device ──▶ durable
//!   (once the medium has its pages, or with their bytes)
//! ```
//!
//! A log of two lanes ([`crate::log`]) is written to in turn in two chunks, on different parallel units.
//!
//! A record says where a page is only when the medium has that for good. A durable batch does not wait until the unit of its last page is full:
//! what is short goes into the log with its bytes, and to its unit later; what is longer than half a unit has the unit written as it is.
//! While a unit of the log is under way, durable batches gather for the next one.

use crate::drive::{OWN, OWN_FLUSH, PageFtl};
use crate::log::Group;
use crate::open_chunk::{OpenChunk, Owner, Stream, UnitState};
use crate::pages::Pages;
use crate::place::{GRAINS_PER_BLOCK, HEADER_BYTES, Header, Kind, Place, grains_of};
use crate::queue::{Mutation, Queued};
use crate::record::{
    CARRIED_BYTES, CHANGE_BYTES, CHANGES_HEAD_BYTES, OTHER_BYTES, Record, begin_changes, end_changes, push,
    push_carried, push_change,
};
use crate::request::SessionId;
use crate::seen_log::is_beyond_reach;
use openftl_core::BLOCK_BYTES;
use openftl_core::checksum::crc32c;
use openftl_parts::flash::Flash;
use openftl_parts::target::{BlockTarget, Durability, Request};
use openftl_parts::words::{Handle, ReadOnlyReason};

/// Part of the log that mutations take before they are written without anybody waiting.
const LAZY_SHARE: usize = 32;

/// Part of the log that mutations take before what they wait for is written: a unit that nobody fills is not to keep all others waiting.
const PRESSED_SHARE: usize = 16;

/// What keeps a page from the medium.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Delay {
    /// Its units are being written.
    UnderWay,
    /// More has to be written first.
    Stuck,
}

impl Pages {
    fn delay(flash: &Flash, open: &OpenChunk, place: Place) -> Delay {
        if open.failed_at.is_some() {
            return Delay::Stuck;
        }
        let blocks = place.blocks(flash.format);
        let last = open.unit_of(blocks.end - 1).map(|unit| unit.state);
        match last {
            Some(UnitState::Written { id, .. }) if !flash.units.has_completed(id) => Delay::UnderWay,
            Some(UnitState::Written { .. }) if !flash.units.wants_padding(open.open) => Delay::UnderWay,
            _ => Delay::Stuck,
        }
    }

    /// Bytes that a page is carried with at most.
    pub(crate) fn carried_max(&self) -> u32 {
        self.unit_blocks * BLOCK_BYTES as u32 / 2
    }

    /// Whether the first mutation can be written to the log. If it `is_wanted`, has what it waits for written; short pages may be
    /// carried if `may_carry`.
    fn is_ready(&mut self, flash: &mut Flash, is_wanted: bool, may_carry: bool) -> bool {
        let changes = match self.queue.front() {
            Some(Mutation::Batch { changes, in_flight, .. }) if *in_flight > 0 => changes,
            Some(_) => return true,
            None => return false,
        };
        if !is_wanted {
            return false;
        }
        let carried_max = self.carried_max().min((self.log.group_bytes_max() / 2) as u32);
        let (mut is_ready, mut to_push) = (true, Vec::new());
        for Queued { place, is_in_flight, .. } in changes {
            let Some(place) = place.filter(|_| *is_in_flight) else { continue };
            let slot = self.slot_of[&place.chunk(flash.format)];
            let open = self.open[slot].as_ref().expect("a page in flight is in an open chunk");
            match Pages::delay(flash, open, place) {
                Delay::UnderWay => is_ready = false,
                Delay::Stuck if may_carry && place.bytes() <= carried_max => {}
                Delay::Stuck => {
                    is_ready = false;
                    if to_push.last() != Some(&slot) {
                        to_push.push(slot);
                    }
                }
            }
        }
        to_push.into_iter().for_each(|slot| self.push_out(flash, slot));
        is_ready
    }

    /// Writes the first mutation, which is ready, to the group that is being gathered.
    fn gather(&mut self, flash: &Flash) {
        // Ahead of all that names a page there.
        for chunk in std::mem::take(&mut self.opened) {
            self.gather_record(&Record::Opened { chunk, seal: flash.seals.get(chunk) });
        }
        match self.queue.pop().expect("it is ready") {
            Mutation::Other(record) => self.gather_record(&record),
            Mutation::Batch { session, wsn, digest, changes, .. } => {
                self.gather_batch(flash, session, wsn, digest, &changes);
            }
        }
        self.log.gathered_last = self.queue.logged;
    }

    fn gather_record(&mut self, record: &Record) {
        self.expect_room(OTHER_BYTES);
        push(self.log.gather(), record);
    }

    /// Begins another group if this one has no room for so many bytes.
    fn expect_room(&mut self, bytes: usize) {
        if self.log.gathered.len() + bytes > self.log.group_bytes_max() {
            self.log.close();
        }
    }

    fn gather_batch(&mut self, flash: &Flash, session: SessionId, wsn: u64, digest: u32, changes: &[Queued]) {
        self.expect_room(CHANGES_HEAD_BYTES + CARRIED_BYTES);
        let (mut at, mut count) = (begin_changes(self.log.gather(), session, wsn, digest, changes.is_empty()), 0);
        for (index, Queued { lpid, place, is_in_flight }) in changes.iter().enumerate() {
            let carried = place.filter(|_| *is_in_flight);
            let bytes = carried.map_or(CHANGE_BYTES, |place| CARRIED_BYTES + place.bytes() as usize);
            if self.log.gathered.len() + bytes > self.log.group_bytes_max() {
                end_changes(&mut self.log.gathered, at, count);
                self.log.close();
                (at, count) = (begin_changes(self.log.gather(), session, wsn, digest, false), 0);
            }
            match carried {
                None => push_change(&mut self.log.gathered, *lpid, *place),
                Some(place) => self.carry(flash, *lpid, place),
            }
            count += 1;
            if index + 1 == changes.len() {
                // Whether the batch ends stands just before the number of its changes.
                self.log.gathered[at - 1] = 1;
            }
        }
        end_changes(&mut self.log.gathered, at, count);
    }

    /// Writes a page with its bytes to the log.
    fn carry(&mut self, flash: &Flash, lpid: u64, place: Place) {
        let mut bytes = std::mem::take(&mut self.scratch);
        self.copy_buffered(flash, place, &mut bytes);
        let header = Header::read(&bytes).expect("the drive has written it");
        push_carried(&mut self.log.gathered, lpid, header.version, header.bytes);
        self.log.gathered.extend_from_slice(&bytes[HEADER_BYTES..]);
        self.statistics.carried_bytes += u64::from(header.bytes);
        self.scratch = bytes;
        let slot = self.slot_of[&place.chunk(flash.format)];
        let open = self.open[slot].as_mut().expect("a page in flight is in an open chunk");
        open.page_at(place).expect("it is in flight").owner = Owner::Logged;
    }

    /// Writes groups that are ready, as far as there is room; while a checkpoint waits for them, as far as there are chunks. Returns whether there
    /// was one.
    fn write_groups(&mut self, flash: &mut Flash, is_quiescing: bool) -> bool {
        let has_failed =
            |open: &OpenChunk| open.stream == Stream::Log && open.failed_at.is_some() && !open.pages.is_empty();
        // Those that have to be put again come first.
        if self.open.iter().flatten().any(has_failed) {
            return false;
        }
        let chunk_blocks = self.chunk_grains / GRAINS_PER_BLOCK;
        let mut has_acted = false;
        while let Some(group) = self.log.ready.front() {
            let bytes = group.records.len() as u32;
            let blocks = grains_of(bytes).div_ceil(GRAINS_PER_BLOCK) + 1;
            if !is_quiescing && !self.log.has_room(blocks, chunk_blocks) {
                break;
            }
            if self.is_far_ahead(flash) {
                has_acted |= self.push_log(flash);
                break;
            }
            let Group { records, last } = self.log.ready.pop_front().expect("there is one");
            let (lpid, version) = (self.log.next_group, self.next_version);
            let header = Header { kind: Kind::Group, lpid, version, bytes, crc: crc32c(&records) };
            let Some(place) = self.put(flash, header, &[&records], Owner::Group(lpid), Stream::Log, 0) else {
                self.log.ready.push_front(Group { records, last });
                if self.is_log_at_its_end(flash) {
                    flash.turn_read_only(ReadOnlyReason::WornOut);
                }
                break;
            };
            self.log.place(flash.format, last, place);
            self.statistics.log_bytes += u64::from(bytes);
            has_acted = true;
        }
        has_acted
    }

    /// Whether the next group would begin so far behind one that is not on media that it would seem to show that this one was there: a program
    /// may fail, those behind it be done, and the power go before what failed is written again (see [`crate::seen_log`]).
    fn is_far_ahead(&self, flash: &Flash) -> bool {
        let in_flight = self.log.placed.iter().rev().take_while(|placed| !placed.is_programmed).last();
        let open = self.logs.slots[self.logs.turn].and_then(|slot| self.open[slot].as_ref());
        in_flight.zip(open).is_some_and(|(placed, open)| {
            let begin = placed.place.blocks(flash.format).start;
            let is_there = placed.place.chunk(flash.format) == open.chunk;
            is_there && is_beyond_reach(&flash.geometry, begin, open.next_grain / GRAINS_PER_BLOCK)
        })
    }

    /// Writes groups again that were found after a power cut. Returns whether there was one.
    fn write_again(&mut self, flash: &mut Flash) -> bool {
        let mut has_acted = false;
        while let Some((number, version, records)) = self.log.again.pop_front() {
            let header =
                Header { kind: Kind::Group, lpid: number, version, bytes: records.len() as u32, crc: crc32c(&records) };
            let Some(place) = self.put(flash, header, &[&records], Owner::Group(number), Stream::Log, 0) else {
                self.log.again.push_front((number, version, records));
                if self.is_log_at_its_end(flash) {
                    flash.turn_read_only(ReadOnlyReason::WornOut);
                }
                return has_acted;
            };
            let old = self.log.move_to(flash.format, number, place);
            self.log.left.push(old);
            has_acted = true;
        }
        if self.log.last_in_flight().is_none() {
            let left = std::mem::take(&mut self.log.left);
            self.forget_groups(flash, left);
            return true;
        }
        has_acted | self.push_log(flash)
    }

    /// Has groups written that are not on media. Returns whether anything was.
    fn push_log(&mut self, flash: &mut Flash) -> bool {
        let Some(place) = self.log.last_in_flight() else { return false };
        let slot = self.slot_of[&place.chunk(flash.format)];
        let open = self.open[slot].as_ref().expect("a group in flight is in an open chunk");
        if Pages::delay(flash, open, place) == Delay::UnderWay {
            return false;
        }
        let before = flash.outbox.len();
        self.push_out(flash, slot);
        flash.outbox.len() > before
    }

    /// Whether the medium lacks a page that the log names, or will name, or that moves.
    pub(crate) fn has_in_flight(&self) -> bool {
        let counts = |owner: Owner| matches!(owner, Owner::Queued(..) | Owner::Logged | Owner::Moves(_));
        !self.carried.is_empty()
            || self.open.iter().flatten().any(|open| open.pages.iter().any(|page| counts(page.owner)))
    }

    /// Has all of those written. Returns whether anything was submitted.
    pub(crate) fn push_out_all(&mut self, flash: &mut Flash) -> bool {
        let before = flash.outbox.len();
        for slot in 0..self.open.len() {
            let counts = |owner: Owner| matches!(owner, Owner::Queued(..) | Owner::Logged | Owner::Moves(_));
            let has_any = self.open[slot].as_ref().is_some_and(|open| {
                let place = open.pages.iter().rev().find(|page| counts(page.owner)).map(|page| page.place);
                place.is_some_and(|place| Pages::delay(flash, open, place) == Delay::Stuck)
            });
            if has_any {
                self.push_out(flash, slot);
            }
        }
        flash.outbox.len() > before
    }
}

impl PageFtl {
    /// Goes on with the log. Returns whether anything was done.
    pub(crate) fn log(&mut self) -> bool {
        let mut has_acted = false;
        if self.pages.log.is_written_again() {
            return self.pages.write_again(&mut self.ftl.flash);
        }
        let may_carry = !self.checkpoint.is_quiescing();
        loop {
            let (pages, flash) = (&mut self.pages, &mut self.ftl.flash);
            let is_pressed = pages.queue.bytes() * PRESSED_SHARE > pages.log.bytes();
            let is_wanted = pages.queue.logged < self.wanted || is_pressed;
            let is_due = is_wanted || pages.queue.bytes() * LAZY_SHARE > pages.log.bytes();
            // Groups that find no room wait, and are not to pile up.
            if !is_due || pages.log.ready.len() > 2 || !pages.is_ready(flash, is_wanted, may_carry) {
                break;
            }
            pages.gather(flash);
            has_acted = true;
        }
        let (pages, flash) = (&mut self.pages, &mut self.ftl.flash);
        has_acted |= pages.write_groups(flash, !may_carry);
        if self.wanted <= pages.logged {
            return has_acted;
        }
        // What is under way ends first: those that wait meanwhile are written together.
        let is_under_way = pages.log.last_in_flight().is_some_and(|place| {
            let open = pages.slot_of.get(&place.chunk(flash.format)).and_then(|slot| pages.open[*slot].as_ref());
            open.is_some_and(|open| Pages::delay(flash, open, place) == Delay::UnderWay)
        });
        if !is_under_way && pages.log.ready.is_empty() && pages.log.close() {
            has_acted |= pages.write_groups(flash, !may_carry);
        }
        has_acted | pages.push_log(flash)
    }

    /// Begins a flush if somebody waits for what is logged, or a checkpoint for what it has written.
    pub(crate) fn begin_flush(&mut self) -> bool {
        let names =
            self.naming.is_some_and(|naming| naming.write <= self.acknowledged && naming.write > self.durable_write);
        let pages = &self.pages;
        let is_due = self.wanted > pages.durable && pages.logged > pages.durable && {
            let next = self.waiters.iter().map(|waiter| waiter.mutation).find(|mutation| *mutation > pages.durable);
            next.unwrap_or(self.wanted).min(self.wanted) <= pages.logged
        };
        let is_wanted = is_due || names || self.checkpoint.wants_flush(self.acknowledged, self.durable_write);
        if self.flushing.is_some() || !is_wanted {
            return false;
        }
        let is_begun = self.ftl.submit(self.ftl.flash.now, OWN_FLUSH, Request::Flush).is_ok();
        if is_begun {
            self.flushing = Some((self.acknowledged, self.pages.logged));
        }
        is_begun
    }

    /// Tells whoever waits for mutations that are durable by now. Returns whether there was one.
    pub(crate) fn tell_durable(&mut self) -> bool {
        let (durable, at) = (self.pages.durable, self.ftl.flash.now);
        while let Some((_, session, wsn)) = self.logged.pop_front_if(|(number, _, _)| *number <= durable) {
            if let Some(state) = self.pages.sessions.with(session) {
                state.durable = state.durable.max(wsn);
            }
        }
        let before = self.waiters.len();
        while let Some(waiter) = self.waiters.pop_front_if(|waiter| waiter.mutation <= durable) {
            self.done.push(crate::request::StoreDone { tag: waiter.tag, result: Ok(None), at });
        }
        self.waiters.len() < before
    }

    /// Writes blocks of the area. Returns the number of the write; `None`: not now, and the frames are given back.
    pub(crate) fn write_area(&mut self, first: u64, frames: &[openftl_core::Frame]) -> Option<u64> {
        let request = Request::Write { first, frames, durability: Durability::Volatile, handle: Handle::NONE };
        self.submit_area(request).or_else(|| {
            frames.iter().for_each(|frame| self.ftl.flash.frames.release(*frame));
            None
        })
    }

    /// Begins a request of the area.
    pub(crate) fn submit_area(&mut self, request: Request<'_>) -> Option<u64> {
        let write = self.next_write + 1;
        let is_begun = self.ftl.submit(self.ftl.flash.now, OWN | write, request).is_ok();
        if is_begun {
            self.next_write = write;
        }
        is_begun.then_some(write)
    }
}
