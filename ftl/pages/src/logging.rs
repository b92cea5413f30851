//! What has changed is written to the ring, in order, and made durable.
//!
//! ```text
//!   queue ──▶ gathered ──▶ group, written as one transaction of the block FTL ──▶ flush ──▶ durable
//!   (once the medium has its pages, or with their bytes)
//! ```
//!
//! A record says where a page is only when the medium has that for good. A durable batch does not wait until the unit of its last page is full:
//! what is short goes into the ring with its bytes, and to its unit later; what is longer than half a unit has the unit written as it is.

use crate::drive::{OWN, OWN_FLUSH, PageFtl};
use crate::layout::RING_FIRST;
use crate::open_chunk::{OpenChunk, Owner, UnitState};
use crate::pages::Pages;
use crate::place::{HEADER_BYTES, Header, Place};
use crate::queue::{Mutation, Queued};
use crate::record::{
    CARRIED_BYTES, CHANGE_BYTES, CHANGES_HEAD_BYTES, GROUP_HEAD_BYTES, OTHER_BYTES, Record, begin_changes, end_changes,
    group_head, push, push_carried, push_change,
};
use crate::request::SessionId;
use crate::ring::Group;
use openftl_core::{BLOCK_BYTES, FrameForm};
use openftl_parts::flash::Flash;
use openftl_parts::target::{BlockTarget, Durability, Request};
use openftl_parts::words::Handle;

/// Part of the ring that mutations take before they are written without anybody waiting.
const LAZY_SHARE: usize = 32;

/// Part of the ring that mutations take before what they wait for is written: a unit that nobody fills is not to keep all others waiting.
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

    /// Whether the first mutation can be written to the ring. If it `is_wanted`, has what it waits for written; short pages may be
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
        let carried_max = self.carried_max().min((self.ring.group_bytes_max() / 2) as u32);
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
        match self.queue.pop().expect("it is ready") {
            Mutation::Other(record) => self.gather_record(&record),
            Mutation::Batch { session, wsn, digest, changes, .. } => {
                self.gather_batch(flash, session, wsn, digest, &changes);
            }
        }
        self.ring.gathered_last = self.queue.logged;
    }

    fn gather_record(&mut self, record: &Record) {
        self.expect_room(OTHER_BYTES);
        push(&mut self.ring.gathered, record);
    }

    /// Begins another group if this one has no room for so many bytes.
    fn expect_room(&mut self, bytes: usize) {
        if self.ring.gathered.len() + bytes > self.ring.group_bytes_max() {
            self.ring.close();
        }
    }

    fn gather_batch(&mut self, flash: &Flash, session: SessionId, wsn: u64, digest: u32, changes: &[Queued]) {
        self.expect_room(CHANGES_HEAD_BYTES + CARRIED_BYTES);
        let (mut at, mut count) = (begin_changes(&mut self.ring.gathered, session, wsn, digest, changes.is_empty()), 0);
        for (index, Queued { lpid, place, is_in_flight }) in changes.iter().enumerate() {
            let carried = place.filter(|_| *is_in_flight);
            let bytes = carried.map_or(CHANGE_BYTES, |place| CARRIED_BYTES + place.bytes() as usize);
            if self.ring.gathered.len() + bytes > self.ring.group_bytes_max() {
                end_changes(&mut self.ring.gathered, at, count);
                self.ring.close();
                (at, count) = (begin_changes(&mut self.ring.gathered, session, wsn, digest, false), 0);
            }
            match carried {
                None => push_change(&mut self.ring.gathered, *lpid, *place),
                Some(place) => self.carry(flash, *lpid, place),
            }
            count += 1;
            if index + 1 == changes.len() {
                // Whether the batch ends stands just before the number of its changes.
                self.ring.gathered[at - 1] = 1;
            }
        }
        end_changes(&mut self.ring.gathered, at, count);
    }

    /// Writes a page with its bytes to the ring.
    fn carry(&mut self, flash: &Flash, lpid: u64, place: Place) {
        let mut bytes = std::mem::take(&mut self.scratch);
        self.copy_buffered(flash, place, &mut bytes);
        let header = Header::read(&bytes).expect("the drive has written it");
        push_carried(&mut self.ring.gathered, lpid, header.version, header.bytes);
        self.ring.gathered.extend_from_slice(&bytes[HEADER_BYTES..]);
        self.statistics.carried_bytes += u64::from(header.bytes);
        self.scratch = bytes;
        let slot = self.slot_of[&place.chunk(flash.format)];
        let open = self.open[slot].as_mut().expect("a page in flight is in an open chunk");
        open.page_at(place).expect("it is in flight").owner = Owner::Logged;
    }

    /// Whether the medium lacks a page that the ring names, or will name, or that moves.
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
    /// Goes on with the ring. Returns whether anything was done.
    pub(crate) fn log(&mut self) -> bool {
        let mut has_acted = false;
        let may_carry = !self.checkpoint.is_quiescing();
        loop {
            let (pages, flash) = (&mut self.pages, &mut self.ftl.flash);
            let is_pressed = pages.queue.bytes() * PRESSED_SHARE > pages.ring.bytes();
            let is_wanted = pages.queue.logged < self.wanted || is_pressed;
            let is_due = is_wanted || pages.queue.bytes() * LAZY_SHARE > pages.ring.bytes();
            // Groups that find no room wait, and are not to pile up.
            if !is_due || pages.ring.ready.len() > 2 || !pages.is_ready(flash, is_wanted, may_carry) {
                break;
            }
            pages.gather(flash);
            has_acted = true;
        }
        let is_wanted = self.wanted > self.written;
        if is_wanted && self.pages.ring.ready.is_empty() {
            has_acted |= self.pages.ring.close();
        }
        has_acted | self.write_groups()
    }

    /// Writes groups that are ready, as far as there is room.
    fn write_groups(&mut self) -> bool {
        let mut has_acted = false;
        while let Some((place, blocks)) = self.pages.ring.room() {
            let mut frames = Vec::new();
            if !self.ftl.flash.frames.acquire_many(FrameForm::Bytes, blocks as usize, &mut frames) {
                break;
            }
            let group = self.pages.ring.ready.front().expect("there is one");
            let head = group_head(self.pages.ring.next_group, group.records.len() as u32);
            let mut rest = &group.records[..];
            for (index, frame) in frames.iter().enumerate() {
                let block = self.ftl.flash.frames.bytes_mut(*frame);
                let from = if index == 0 { GROUP_HEAD_BYTES } else { 0 };
                if index == 0 {
                    block[..GROUP_HEAD_BYTES].copy_from_slice(&head);
                }
                let count = rest.len().min(BLOCK_BYTES - from);
                block[from..from + count].copy_from_slice(&rest[..count]);
                block[from + count..].fill(0);
                rest = &rest[count..];
            }
            let first = u64::from(RING_FIRST) + self.pages.ring.block(place);
            let Some(write) = self.write_area(first, &frames) else { break };
            let Group { records, last } = self.pages.ring.ready.pop_front().expect("there is one");
            self.pages.statistics.ring_bytes += records.len() as u64;
            let ring = &mut self.pages.ring;
            ring.head = place + u64::from(blocks);
            ring.next_group += 1;
            self.groups.push_back((write, last));
            has_acted = true;
        }
        has_acted
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

    /// Begins a flush if somebody waits for what is written.
    pub(crate) fn begin_flush(&mut self) -> bool {
        let is_due = self.wanted > self.durable && self.written > self.durable && {
            let next = self.waiters.iter().map(|waiter| waiter.mutation).find(|mutation| *mutation > self.durable);
            next.unwrap_or(self.wanted).min(self.wanted) <= self.written
        };
        let is_wanted = is_due || self.checkpoint.wants_flush(self.acknowledged, self.durable_write);
        if self.flushing.is_some() || !is_wanted {
            return false;
        }
        let is_begun = self.ftl.submit(self.ftl.flash.now, OWN_FLUSH, Request::Flush).is_ok();
        if is_begun {
            self.flushing = Some((self.acknowledged, self.written));
        }
        is_begun
    }

    /// A flush has ended that was begun when so much was written.
    pub(crate) fn flushed(&mut self, write: u64, mutation: u64) {
        self.durable_write = self.durable_write.max(write);
        self.durable = self.durable.max(mutation);
        while let Some((_, session, wsn)) = self.logged.pop_front_if(|(number, _, _)| *number <= self.durable) {
            if let Some(state) = self.pages.sessions.with(session) {
                state.durable = state.durable.max(wsn);
            }
        }
        let at = self.ftl.flash.now;
        let durable = self.durable;
        while let Some(waiter) = self.waiters.pop_front_if(|waiter| waiter.mutation <= durable) {
            self.done.push(crate::request::StoreDone { tag: waiter.tag, result: Ok(None), at });
        }
    }
}
