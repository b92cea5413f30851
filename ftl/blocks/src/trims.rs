//! Trims: blocks become nowhere, in steps, so that a trim of any length holds nobody up.
//!
//! ```text
//!            begin           next             ready                    end
//!              │ trimmed       │ looked over    │ not looked at          │
//!              │ and logged    │ by this step   │ yet                    │
//! ```
//!
//! A step looks at up to [`Config::trim_step_entries`](openftl_parts::Config::trim_step_entries) entries of the map, those that
//! say where nothing is mapped included ([`Mapping::skip_unmapped`](openftl_parts::map::Mapping::skip_unmapped)); then what it
//! found leaves the map, and one record says so in the log. A drive does [`TRIM_STEPS_PER_TURN`] of them and then lets
//! others have their turn: reads are served between steps and writes are acknowledged.
//!
//! # Order
//! Older writes of the same blocks are committed, and have left the buffer, before a step trims them. Newer writes, of any
//! blocks, are committed when the trim has ended: a trim never takes away what was written after it was submitted. Trims
//! take effect in the order in which they were submitted.
//!
//! # Crashes
//! Each step is a record of its own, and the records are in the order of the blocks. So what a crash leaves of a trim that
//! was not yet durable is some of its blocks as zeroes, from the first on, and the others as they were; of a trim of up to
//! [`TRANSACTION_BLOCKS_MAX`] blocks all or nothing, because a step reaches that far. A durable trim, and a flush
//! after the trim has ended, wait for the record of its last step, and so for all of them. A step that finds nothing mapped
//! logs nothing: whatever made those blocks nowhere is in the log before.

use crate::block_ftl::BlockFtl;
use openftl_core::{Ppa, Time};
use openftl_parts::config::TRIM_STEP_ENTRIES;
use openftl_parts::journal::log_block::Record;
use openftl_parts::map::{Entry, Map, Place};
use openftl_parts::target::{Durability, Extent, IoError, REQUESTS_MAX};
use openftl_parts::words::TRANSACTION_BLOCKS_MAX;
use std::collections::VecDeque;
use std::ops::Range;

/// Steps after which other requests have their turn. A turn looks at less than one step more than these, because a step is
/// not cut short.
pub const TRIM_STEPS_PER_TURN: u32 = 4;

const _: () = assert!(
    TRIM_STEP_ENTRIES as usize >= TRANSACTION_BLOCKS_MAX + 4,
    "a trim as long as the longest write is one step, with the counts of the regions that it lies in"
);

/// Map pages of a step, where they are on media.
const PAGES_PER_STEP: u64 = 64;

struct WaitingTrim {
    tag: u64,
    began: Time,
    /// The first block that is not trimmed, and the block behind the last one.
    next: u64,
    end: u64,
    /// From `next` up to here no block has a committed version in the buffer.
    ready: u64,
    /// Entries that this step has looked at.
    looked: u64,
    durability: Durability,
    /// Older writes of the same blocks must be committed, and have left the buffer: those below this position.
    position: u64,
}

/// Trims that have not ended, in order.
#[derive(Default)]
pub(crate) struct Trims {
    waiting: VecDeque<WaitingTrim>,
    /// Entries that may still be looked at in this turn.
    budget: u64,
    /// The first trim waits for nothing but the next turn.
    wants_turn: bool,
}

impl Trims {
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether there is work for the next turn.
    #[inline]
    pub fn wants_turn(&self) -> bool {
        self.wants_turn
    }

    /// What is written from this position on is not committed before the first trim has ended.
    #[inline]
    pub fn position(&self) -> Option<u64> {
        self.waiting.front().map(|trim| trim.position)
    }
}

impl BlockFtl {
    pub(crate) fn trim(&mut self, tag: u64, first: u64, blocks: u64, durability: Durability) -> Result<(), IoError> {
        self.check_range(first, blocks, u64::MAX)?;
        if self.flash.read_only.is_some() {
            return Err(IoError::ReadOnly);
        }
        if self.transactions.trims.waiting.len() >= REQUESTS_MAX {
            return Err(IoError::QueueFull);
        }
        let durability = self.kept(durability);
        self.placement.objects.trim(Extent { first, blocks });
        self.count_ended_objects();
        let blocks = first..first + blocks;
        if self.must_stand_in_line(&blocks) {
            return self.hold_back_trim(tag, blocks, durability);
        }
        self.begin_trim((tag, self.flash.now), blocks, durability);
        Ok(())
    }

    pub(crate) fn begin_trim(&mut self, (tag, began): (u64, Time), blocks: Range<u64>, durability: Durability) {
        let position = self.trim_position(&blocks);
        self.transactions.push = self.transactions.push.max(position);
        let Range { start, end } = blocks;
        let trim = WaitingTrim { tag, began, next: start, end, ready: start, looked: 0, durability, position };
        self.transactions.trims.waiting.push_back(trim);
        self.advance_trims();
        self.flash.stirred = true;
    }

    /// Behind the newest write of these blocks that is not committed. Of a trim for which that is not found in a step,
    /// behind all writes.
    fn trim_position(&mut self, blocks: &Range<u64>) -> u64 {
        let committed = self.buffer.committed();
        let (mut next, mut looks) = (blocks.start, u64::from(self.config.trim_step_entries.max(1)));
        let mut newest = None;
        if matches!(self.map, Map::Paged(_)) && blocks.end - blocks.start > looks {
            return self.buffer.head();
        }
        loop {
            if let Map::Whole(map) = &self.map {
                next = map.skip_unmapped(next..blocks.end, &mut looks);
            }
            if next == blocks.end {
                break;
            }
            if looks == 0 {
                return self.buffer.head();
            }
            newest = newest.max(self.buffer.newest(&self.map, next));
            (next, looks) = (next + 1, looks - 1);
        }
        match newest {
            Some(newest) if newest >= committed => self.buffer.end_of_transaction(newest),
            _ => committed,
        }
    }

    /// A new turn: trims may go on.
    pub(crate) fn give_trims_a_turn(&mut self) {
        let steps = u64::from(TRIM_STEPS_PER_TURN);
        self.transactions.trims.budget = steps * u64::from(self.config.trim_step_entries.max(1));
        self.flash.stirred |= std::mem::take(&mut self.transactions.trims.wants_turn);
    }

    /// Where the block is being programmed that the first trim waits for, because it cannot be read from there yet.
    pub(crate) fn trim_waits_for(&self) -> Option<Ppa> {
        let trim = self.transactions.trims.waiting.front()?;
        let is_begun = self.buffer.committed() >= trim.position && trim.ready < trim.end;
        if is_begun { self.buffer.unreadable(&self.map, trim.ready) } else { None }
    }

    #[inline]
    pub(crate) fn advance_trims(&mut self) {
        if !self.transactions.trims.waiting.is_empty() {
            self.advance_waiting_trims();
        }
    }

    fn advance_waiting_trims(&mut self) {
        let may_grow = self.journal.may_grow(&self.flash);
        while let Some(trim) = self.transactions.trims.waiting.front() {
            let (tag, began, durability, position) = (trim.tag, trim.began, trim.durability, trim.position);
            if self.flash.read_only.is_some() {
                self.transactions.trims.waiting.pop_front();
                self.flash.stirred = true;
                self.end_with(tag, Err(IoError::ReadOnly));
                continue;
            }
            let has_room = self.journal.log.has_room() && self.has_room_for_changes(1);
            if self.buffer.committed() < position || !may_grow || !has_room {
                break;
            }
            if self.transactions.trims.budget == 0 {
                self.transactions.trims.wants_turn = true;
                break;
            }
            if !self.look_over() {
                break;
            }
            self.flash.stirred = true;
            if !self.trim_step() {
                continue;
            }
            self.transactions.trims.waiting.pop_front();
            match durability {
                Durability::Volatile => {
                    self.flash.statistics.write_latency.record(self.flash.now.since(began));
                    self.end_with(tag, Ok(()));
                }
                Durability::Durable => {
                    self.flash.statistics.host_flushes += 1;
                    self.wait_durable((tag, began), false, self.buffer.committed(), Some(self.journal.log.position()));
                }
            }
        }
    }

    /// Looks over what the next step of the first trim is to make nowhere. Returns whether all of it can be.
    fn look_over(&mut self) -> bool {
        let trims = &mut self.transactions.trims;
        let trim = trims.waiting.front_mut().expect("there is a first");
        let most = u64::from(self.config.trim_step_entries.max(1));
        let before = trim.looked;
        let mut can_go = true;
        if let Map::Paged(map) = &self.map
            && trim.ready < trim.end
        {
            // Whole pages cost no more than a block.
            let from = trim.ready;
            let (mut page, first) = (map.size().split(from).0, from);
            let mut ready = map.end_of(page).min(trim.end);
            while ready < trim.end && u64::from(page - map.size().split(first).0) + 1 < most.min(PAGES_PER_STEP) {
                page += 1;
                ready = map.end_of(page).min(trim.end);
            }
            let unreadable =
                |block: &u64| (from..ready).contains(block) && self.buffer.unreadable(&self.map, *block).is_some();
            let held = map.buffered_blocks().filter(unreadable).min();
            (trim.ready, can_go) = (held.unwrap_or(ready), held.is_none());
            trim.looked += (trim.ready - from).min(most);
        }
        while let Map::Whole(map) = &self.map
            && trim.ready < trim.end
            && trim.looked < most
        {
            if map.get(trim.ready) == Entry::UNMAPPED {
                let mut looks = most - trim.looked;
                trim.ready = map.skip_unmapped(trim.ready..trim.end, &mut looks);
                trim.looked = most - looks;
                continue;
            }
            // Nothing newer is committed before the trim has ended, so what has left does not come back.
            if self.buffer.unreadable(&self.map, trim.ready).is_some() {
                can_go = false;
                break;
            }
            (trim.ready, trim.looked) = (trim.ready + 1, trim.looked + 1);
        }
        let looked = trim.looked - before;
        trims.budget = trims.budget.saturating_sub(looked);
        self.flash.statistics.trim_entries += looked;
        can_go
    }

    /// Makes nowhere what was looked over, and logs it. Returns whether the trim ends with it.
    fn trim_step(&mut self) -> bool {
        let trim = self.transactions.trims.waiting.front_mut().expect("there is a first");
        let Range { start: first, end } = trim.next..trim.ready;
        (trim.next, trim.looked) = (trim.ready, 0);
        let is_last = trim.next == trim.end;
        let (mut next, mut looks, mut any) = (first, u64::MAX, false);
        if let Map::Paged(map) = &mut self.map {
            let mut invalid = Vec::new();
            any = map.trim(first..end, &mut invalid);
            invalid.into_iter().for_each(|ppa| self.flash.chunks.invalidate(ppa));
        }
        while let Map::Whole(map) = &self.map {
            next = map.skip_unmapped(next..end, &mut looks);
            if next == end {
                break;
            }
            let base = self.buffer.base(&self.map, next);
            if base != Entry::UNMAPPED {
                let there = self.buffer.rebase(&mut self.map, next, base, Entry::UNMAPPED);
                assert!(there, "block {next} is where the map says");
                any = true;
            }
            if let Place::Media(ppa) = base.place() {
                self.flash.chunks.invalidate(ppa);
            }
            next += 1;
        }
        if any {
            self.journal.log.append(&mut self.flash.frames, Record::Trimmed { first, blocks: end - first });
        }
        self.flash.statistics.host_blocks_trimmed += end - first;
        is_last
    }
}
