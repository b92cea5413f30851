//! Merging the directory: its changes, and runs that are not much larger, become one run. It is written as one batch of its own session while
//! others are served, and is there as a whole when that is committed: with the manifest that names it, and without what went into it.

use crate::change::Count;
use crate::directory::{Cursor, Directory, smallest};
use crate::drive::ValueFtl;
use crate::error::ValueError;
use crate::ids;
use crate::key::Key;
use crate::manifest::{Manifest, RunNote};
use crate::payload::gathered;
use crate::run::{self, PageOfKeys, Run, fence_pages, read_entries};
use openftl_pages::{Change, GRAIN_BYTES, PageFacts, StoreError, StoreRequest, StoreTarget, grains_of};
use openftl_parts::target::{Durability, Target};
use std::collections::btree_map::Entry;

/// Pages that a merge reads and writes before others are served.
pub(crate) const PAGES_PER_TURN: u32 = 4;

/// The tag of what a merge asks of the pages; those of requests are their places.
pub(crate) const OF_MERGE: u64 = 1 << 40;

/// How far a merge is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MergePhase {
    /// Keys are gone through.
    Merging,
    /// A page of the run of this cursor is read.
    Reading(usize),
    /// What is at the end is staged: so many of these steps.
    Ending(usize),
    /// The batch is to be committed.
    Committing,
}

/// A merge under way.
pub(crate) struct Merge {
    /// Runs from this one on go into it, the newest one first.
    first_run: usize,
    cursors: Vec<Cursor>,
    /// The changes that go into it, the last one first.
    changes: Vec<run::Entry>,
    /// Keys that there were then.
    count: Count,
    page: PageOfKeys,
    fences: Vec<Key>,
    keys: u64,
    /// Pages at the end, and those that go.
    ends: Vec<(u64, Option<Vec<u8>>)>,
    /// Pages of changes that say nothing any more.
    outdated: Vec<u64>,
    pub phase: MergePhase,
}

impl Merge {
    /// The next key, and what is to be said of it.
    fn next(&self) -> Option<run::Entry> {
        let newest = self.changes.last().copied();
        smallest(newest.into_iter().chain(self.cursors.iter().filter_map(Cursor::head)))
    }

    fn pass(&mut self, key: &Key) {
        _ = self.changes.pop_if(|change| change.key == *key);
        self.cursors.iter_mut().for_each(|cursor| cursor.pass(key));
    }
}

impl ValueFtl {
    /// Bytes of a page of the directory, at most.
    pub(crate) fn run_page_bytes(&self) -> usize {
        crate::config::run_page_bytes(&self.store)
    }

    /// Whether a merge goes on without anything else happening.
    pub(crate) fn merge_waits_for_its_turn(&self) -> bool {
        let is_at_work = |merge: &Merge| matches!(merge.phase, MergePhase::Merging | MergePhase::Ending(_));
        self.merge_budget == 0 && self.merge.as_ref().is_some_and(is_at_work)
    }

    /// Goes on with a merge, or begins one. Returns whether anything was done.
    pub(crate) fn go_on_merging(&mut self) -> bool {
        let Some(merge) = &self.merge else { return self.begin_merge() };
        if self.merge_budget == 0 {
            return false;
        }
        let result = match merge.phase {
            MergePhase::Reading(_) | MergePhase::Committing => return false,
            MergePhase::Merging => self.merge_keys(),
            MergePhase::Ending(_) => self.end_merge(),
        };
        match result {
            Ok(()) => true,
            Err(StoreError::Busy | StoreError::Early { .. }) => false,
            Err(StoreError::NoSpace { .. }) if self.uncommitted > 0 => false,
            Err(error) => {
                self.give_up_merge(error.into());
                true
            }
        }
    }

    fn begin_merge(&mut self) -> bool {
        let many = self.shape.changes_max as usize / 2;
        if self.directory.changes.len() < many.max(1) || self.merge_error.is_some() || self.store.is_read_only() {
            return false;
        }
        let first_run = self.directory.first_to_merge(self.count.keys, self.shape.changes_max.into());
        let taken = std::mem::take(&mut self.directory.changes);
        let entries = taken.iter().map(|(key, pending)| run::Entry { key: *key, is_removed: pending.is_removed });
        self.merge = Some(Merge {
            first_run,
            cursors: self.directory.cursors(first_run, None),
            changes: entries.rev().collect(),
            count: self.count,
            page: PageOfKeys::new(),
            fences: Vec::new(),
            keys: 0,
            ends: Vec::new(),
            outdated: std::mem::take(&mut self.directory.outdated),
            phase: MergePhase::Merging,
        });
        self.directory.merging = taken;
        true
    }

    /// Merges until a page is full, or has to be read.
    fn merge_keys(&mut self) -> Result<(), StoreError> {
        let most = self.run_page_bytes();
        let merge = self.merge.as_mut().expect("a merge under way");
        loop {
            let lacking = merge.cursors.iter().position(|cursor| cursor.lacks_page(&self.directory.runs));
            if let Some(at) = lacking {
                return self.read_for_merge(at);
            }
            let next = merge.next();
            let is_full = next.is_none_or(|entry| !merge.page.has_room(&entry.key, most));
            if is_full && let Some(first) = merge.page.first {
                let lpid = ids::run(self.directory.next_page + merge.fences.len() as u64);
                let (session, wsn) = self.merges;
                self.store.stage(self.now, session, wsn, lpid, Change::Put(&[&merge.page.bytes]), None)?;
                self.statistics.run_bytes += u64::from(grains_of(merge.page.bytes.len() as u32)) * GRAIN_BYTES as u64;
                merge.fences.push(first);
                merge.page = PageOfKeys::new();
                self.merge_budget -= 1;
                return Ok(());
            }
            let Some(entry) = next else { break };
            merge.pass(&entry.key);
            // Where nothing older is left, nothing has to be said of a key that is there no more.
            if !entry.is_removed || merge.first_run > 0 {
                merge.page.push(entry);
                merge.keys += 1;
            }
        }
        self.prepare_end();
        Ok(())
    }

    fn read_for_merge(&mut self, at: usize) -> Result<(), StoreError> {
        let merge = self.merge.as_mut().expect("a merge under way");
        let cursor = &merge.cursors[at];
        let lpid = self.directory.runs[cursor.run].lpid(cursor.page);
        merge.phase = MergePhase::Reading(at);
        self.merge_budget -= 1;
        self.store.submit(self.now, OF_MERGE, StoreRequest::Read { lpid, offset: 0, frames: &self.merge_own })
    }

    /// All keys have been gone through: the first keys of pages follow, the manifest, and what goes.
    fn prepare_end(&mut self) {
        let most = self.run_page_bytes();
        let Directory { runs, merging, next_page, .. } = &self.directory;
        let merge = self.merge.as_mut().expect("a merge under way");
        let mut next = next_page + merge.fences.len() as u64;
        let mut notes: Vec<RunNote> = runs[..merge.first_run].iter().map(Run::note).collect();
        let fences = fence_pages(&merge.fences, most);
        if !merge.fences.is_empty() {
            let (pages, fence_pages) = (merge.fences.len() as u32, fences.len() as u32);
            notes.push(RunNote { first_page: *next_page, pages, fence_pages, keys: merge.keys });
        }
        for page in fences {
            merge.ends.push((ids::run(next), Some(page)));
            next += 1;
        }
        let manifest = Manifest { shape: self.shape, count: merge.count, next_page: next, runs: notes };
        merge.ends.push((ids::MANIFEST, Some(manifest.to_bytes())));
        merge.ends.extend(runs[merge.first_run..].iter().flat_map(Run::lpids).map(|lpid| (lpid, None)));
        let changes = merging.values().map(|pending| pending.counted).chain(merge.outdated.iter().copied());
        merge.ends.extend(changes.map(|counted| (ids::change(counted), None)));
        merge.phase = MergePhase::Ending(0);
    }

    fn end_merge(&mut self) -> Result<(), StoreError> {
        let merge = self.merge.as_mut().expect("a merge under way");
        let MergePhase::Ending(staged) = &mut merge.phase else { unreachable!("it is at its end") };
        let (session, wsn) = self.merges;
        while let Some((lpid, bytes)) = merge.ends.get(*staged) {
            match bytes {
                Some(bytes) => self.store.stage(self.now, session, wsn, *lpid, Change::Put(&[bytes]), None)?,
                None => self.store.stage(self.now, session, wsn, *lpid, Change::Delete, None)?,
            }
            *staged += 1;
        }
        self.store.submit(
            self.now,
            OF_MERGE,
            StoreRequest::Commit { session, wsn, durability: Durability::Volatile },
        )?;
        merge.phase = MergePhase::Committing;
        self.merges.1 += 1;
        Ok(())
    }

    /// The pages below have answered a merge.
    pub(crate) fn merge_answered(&mut self, result: Result<Option<PageFacts>, StoreError>) {
        let merge = self.merge.as_mut().expect("a merge under way");
        match (merge.phase, result) {
            (MergePhase::Reading(at), Ok(Some(facts))) => {
                let bytes = gathered(self.store.frames(), &self.merge_own, facts.bytes as usize);
                let Some(entries) = read_entries(&bytes) else { return self.give_up_merge(ValueError::Unrecovered) };
                let cursor = &mut merge.cursors[at];
                (cursor.entries, cursor.at, cursor.page) = (entries, 0, cursor.page + 1);
                merge.phase = MergePhase::Merging;
            }
            (MergePhase::Committing, Ok(_)) => self.merged(),
            (_, Err(error)) => self.give_up_merge(error.into()),
            (phase, Ok(_)) => unreachable!("nothing is asked for in {phase:?}"),
        }
    }

    fn merged(&mut self) {
        let merge = self.merge.take().expect("a merge under way");
        let directory = &mut self.directory;
        directory.runs.truncate(merge.first_run);
        let pages_of_fences = merge.ends.iter().filter(|(lpid, bytes)| bytes.is_some() && *lpid != ids::MANIFEST);
        let fence_pages = pages_of_fences.clone().count() as u32;
        let bytes = |bytes: &Vec<u8>| u64::from(grains_of(bytes.len() as u32)) * GRAIN_BYTES as u64;
        self.statistics.run_bytes += pages_of_fences.filter_map(|(_, page)| page.as_ref()).map(bytes).sum::<u64>();
        let manifest = merge.ends.iter().find(|(lpid, _)| *lpid == ids::MANIFEST);
        self.statistics.manifest_bytes += manifest.and_then(|(_, page)| page.as_ref()).map_or(0, bytes);
        self.statistics.merges += 1;
        if !merge.fences.is_empty() {
            let first_page = directory.next_page;
            directory.next_page += merge.fences.len() as u64 + u64::from(fence_pages);
            directory.runs.push(Run { first_page, fences: merge.fences, fence_pages, keys: merge.keys });
        }
        directory.merging.clear();
        directory.generation += 1;
    }

    /// The changes wait in memory as before.
    fn give_up_merge(&mut self, error: ValueError) {
        let merge = self.merge.take().expect("a merge under way");
        let (session, wsn) = self.merges;
        // A batch of which nothing was staged is none.
        _ = self.store.abort(self.now, session, wsn);
        for (key, pending) in std::mem::take(&mut self.directory.merging) {
            match self.directory.changes.entry(key) {
                Entry::Vacant(entry) => _ = entry.insert(pending),
                Entry::Occupied(_) => self.directory.outdated.push(pending.counted),
            }
        }
        self.directory.outdated.extend(merge.outdated);
        self.merge_error = Some(error);
    }
}

impl Run {
    fn note(&self) -> RunNote {
        let (pages, fence_pages) = (self.fences.len() as u32, self.fence_pages);
        RunNote { first_page: self.first_page, pages, fence_pages, keys: self.keys }
    }
}
