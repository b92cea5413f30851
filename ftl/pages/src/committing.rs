//! How batches end: each is committed when its turn in its session has come and its conditions hold, as one mutation of the map, or is given up.

use crate::drive::{PageFtl, QUEUE_SHARE, Waiter};
use crate::error::StoreError;
use crate::open_chunk::Owner;
use crate::place::Place;
use crate::queue::{Mutation, Queued};
use crate::reads::{ReadFor, Wanted};
use crate::request::{Session, StoreDone};
use crate::session::{Batch, Staged, Turn};
use openftl_parts::target::Durability;
use std::collections::btree_map::Entry;

impl PageFtl {
    /// Gives up what a batch has staged.
    pub(crate) fn drop_batch(&mut self, batch: Batch) {
        let (pages, flash) = (&mut self.pages, &mut self.ftl.flash);
        pages.staged -= batch.changes.len();
        for Staged { put, .. } in batch.changes {
            let Some((place, _)) = put.filter(|(place, _)| *place != Place::LOST) else { continue };
            let chunk = place.chunk(flash.format);
            let open = pages.slot_of.get(&chunk).and_then(|slot| pages.open[*slot].as_mut());
            if let Some(page) = open.and_then(|open| open.page_at(place)) {
                page.owner = Owner::Dead;
            }
            pages.chunks.get_mut(&chunk).expect("a chunk with a page is known").held -= place.grains();
            pages.kill(flash, place);
        }
        pages.statistics.batches_aborted += 1;
    }

    /// A batch is given up; whoever waits for it is told.
    pub(crate) fn give_up_batch(&mut self, batch: Batch, error: StoreError) {
        if let Some((tag, _)) = batch.commit {
            self.done.push(StoreDone { tag, result: Err(error), at: self.ftl.flash.now });
        }
        self.drop_batch(batch);
    }

    pub(crate) fn commit(
        &mut self,
        tag: u64,
        session: Session,
        wsn: u64,
        durability: Durability,
    ) -> Result<(), StoreError> {
        self.expect_writable()?;
        let state = self.pages.sessions.open(session)?;
        let known = state.turn(wsn)?;
        if let Turn::Committed(digest) = known {
            let staged = state.batches.remove(&wsn);
            let is_other = staged.as_ref().is_some_and(|batch| batch.digest() != digest);
            staged.into_iter().for_each(|batch| self.drop_batch(batch));
            if is_other {
                return Err(StoreError::Repeated { wsn });
            }
            self.committed(tag, durability, self.pages.queue.last());
            return Ok(());
        }
        let batch = state.batches.entry(wsn).or_default();
        if batch.commit.is_some() {
            return Err(StoreError::Committing { wsn });
        }
        batch.commit = Some((tag, durability));
        self.ftl.flash.stirred = true;
        if known == Turn::Next {
            self.commit_waiting();
        }
        Ok(())
    }

    /// A batch is committed by a mutation: whoever waits is told now, or when that is durable.
    pub(crate) fn committed(&mut self, tag: u64, durability: Durability, mutation: u64) {
        if durability == Durability::Volatile || mutation <= self.pages.durable {
            self.done.push(StoreDone { tag, result: Ok(None), at: self.ftl.flash.now });
            return;
        }
        self.wanted = self.wanted.max(mutation);
        self.waiters.push_back(Waiter { mutation, tag });
        self.ftl.flash.stirred = true;
    }

    /// Whether the map may change: there is room in the log for what is not in it yet, and in memory for leaves that are dirty.
    pub(crate) fn may_change(&self) -> bool {
        let (queue, log) = (&self.pages.queue, &self.pages.log);
        !self.checkpoint.is_quiescing()
            && queue.bytes() * QUEUE_SHARE < log.bytes()
            && !self.pages.index.is_full_of_changes()
    }

    /// Commits every batch whose turn it is. Returns whether there was one.
    pub(crate) fn commit_waiting(&mut self) -> bool {
        let mut has_acted = false;
        while self.may_change() {
            let ready = self.pages.sessions.all_mut().filter_map(|(number, state)| {
                let next = state.last + 1;
                state.batches.get(&next).and_then(|batch| batch.commit).map(|_| (number, next))
            });
            // In turn: one with many batches keeps nobody waiting, nor does one whose condition is not known.
            let turn = self.turn;
            let mut ready: Vec<(u32, u64)> = ready.collect();
            ready.sort_unstable_by_key(|(number, _)| (*number <= turn, *number));
            if self.holding.is_some_and(|(session, wsn, _)| !ready.contains(&(session, wsn))) {
                self.release_leaves();
            }
            let committed = ready.into_iter().find(|(session, wsn)| self.try_commit(*session, *wsn).is_some());
            let Some((session, _)) = committed else { break };
            (self.turn, has_acted) = (session, true);
        }
        has_acted
    }

    /// Commits a batch whose turn it is, or gives it up. `None`: a leaf or a version is not known yet.
    fn try_commit(&mut self, session: u32, wsn: u64) -> Option<()> {
        if !self.holds_leaves(session, wsn) {
            return None;
        }
        let state = self.pages.sessions.get_mut(session).expect("it was just found");
        let conditions =
            state.batches[&wsn].changes.iter().filter_map(|change| Some((change.lpid, change.if_version?)));
        let conditions: Vec<(u64, u64)> = conditions.collect();
        for (lpid, expected) in conditions {
            if self.version_of(lpid)? != expected {
                let state = self.pages.sessions.get_mut(session).expect("it was just found");
                let batch = state.batches.remove(&wsn).expect("it was just found");
                self.give_up_batch(batch, StoreError::Condition { lpid });
                self.release_leaves();
                return Some(());
            }
        }
        self.pages.reads.versions.clear();
        self.apply(session, wsn);
        self.release_leaves();
        Some(())
    }

    /// The version of a page, 0 if there is none; `None`: it is being read.
    fn version_of(&mut self, lpid: u64) -> Option<u64> {
        if let Some(carried) = self.pages.carried.get(&lpid) {
            return Some(carried.version);
        }
        let place = match self.pages.index.get(lpid) {
            None => return Some(0),
            Some(Place::LOST) => return Some(u64::MAX),
            Some(place) => place,
        };
        if let Entry::Vacant(entry) = self.pages.reads.versions.entry(place) {
            entry.insert(None);
            self.pages.begin_read(&mut self.ftl.flash, Wanted { tag: 0, lpid, what: ReadFor::Condition(place) });
        }
        self.pages.reads.versions.get(&place).copied().flatten()
    }

    /// The map has the changes of a batch from now on.
    fn apply(&mut self, session: u32, wsn: u64) {
        let (pages, flash) = (&mut self.pages, &mut self.ftl.flash);
        let state = pages.sessions.get_mut(session).expect("it was just found");
        let batch = state.batches.remove(&wsn).expect("it was just found");
        let (id, digest) = (state.id, batch.digest());
        pages.staged -= batch.changes.len();
        state.committed(wsn, digest);
        let number = pages.queue.last() + 1;
        let mut changes = Vec::with_capacity(batch.changes.len());
        let mut in_flight = 0;
        let mut killed = Vec::new();
        for (at, Staged { lpid, put, is_in_flight, .. }) in (0..).zip(batch.changes) {
            let place = put.map(|(place, _)| place);
            if let Some(place) = place.filter(|place| *place != Place::LOST) {
                let chunk = place.chunk(flash.format);
                pages.chunks.get_mut(&chunk).expect("a chunk with a page is known").held -= place.grains();
                if is_in_flight {
                    let open = pages.slot_of.get(&chunk).and_then(|slot| pages.open[*slot].as_mut());
                    let page = open.and_then(|open| open.page_at(place)).expect("a page in flight is in an open chunk");
                    page.owner = Owner::Queued(number, at);
                    in_flight += 1;
                }
            }
            pages.statistics.pages_put += u64::from(place.is_some());
            pages.statistics.pages_deleted += u64::from(place.is_none());
            killed.extend(pages.set(lpid, place));
            changes.push(Queued { lpid, place, is_in_flight });
        }
        pages.queue.push(Mutation::Batch { session: id, wsn, digest, changes, in_flight });
        // Chunks that become empty by this wait for it.
        killed.into_iter().for_each(|place| pages.kill(flash, place));
        pages.statistics.batches_committed += 1;
        self.logged.push_back((number, id, wsn));
        flash.stirred = true;
        if let Some((tag, durability)) = batch.commit {
            self.committed(tag, durability, number);
        }
    }
}
