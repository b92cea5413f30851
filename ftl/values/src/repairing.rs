//! Rebuilding the directory from the keys that stand behind values, when it is lost, or when the index of pages below was rebuilt.
//!
//! Behind each value stands its key, so keys are known without the directory. After the index of pages was rebuilt, pages that were deleted may be
//! back, and a batch may be there in part:
//!
//! | what is there | then |
//! |---|---|
//! | a value in the page of its key's number | the key has that value; if it was deleted, it may be back |
//! | a list, and the values that it names | the keys of both |
//! | a value that the list of its number does not have | its page is deleted |
//! | values that share a number, and neither a list nor a value in the page of that | they are given a list |
//! | a page whose key has another number, or that has no key | it is deleted |
//!
//! Then all changes and runs are deleted, and one run of all keys is written with a manifest. What a key-value drive is like stands in its manifest
//! alone: if no version of that is left, nobody knows which number a key has, and nothing can be rebuilt.

use crate::change::Count;
use crate::checking::Found;
use crate::directory::Directory;
use crate::drive::ValueFtl;
use crate::finding::MERGES;
use crate::ids::{self, CHANGES, EXTENTS, MANIFEST, RUNS, extent, number_of_extent, slot_of_extent};
use crate::key::Key;
use crate::manifest::{Manifest, RunNote};
use crate::record::list_bytes;
use crate::run::{Entry, PageOfKeys, fence_pages};
use openftl_core::Clock;
use openftl_pages::{Change, Session, StoreDone, StoreError, StoreRequest, StoreTarget};
use openftl_parts::open_error::OpenError;
use openftl_parts::target::{Durability, Target};
use openftl_parts::{IndexRepair, RepairReport};
use std::collections::{BTreeMap, BTreeSet};

/// Changes of a batch of a repair.
const BATCH: usize = 256;

fn refused(error: StoreError) -> OpenError {
    OpenError::Tenant { text: format!("the directory of keys cannot be written: {error}"), is_lost: false }
}

/// What the pages of values say of keys.
#[derive(Default)]
struct FoundKeys {
    /// Pages that are the value of one key.
    single: BTreeSet<u64>,
    /// Lists: keys and their places.
    lists: BTreeMap<u64, Vec<(Key, u16)>>,
    extents: BTreeMap<u64, Key>,
    keys: BTreeSet<Key>,
    /// What is to be written; `None`: deleted.
    changes: Vec<(u64, Option<Vec<u8>>)>,
}

impl FoundKeys {
    fn take(&mut self, found: Found) {
        match found {
            Found::Value(lpid, key, number) if number == lpid => {
                self.single.insert(lpid);
                self.keys.insert(key);
            }
            // An entry that cannot be is left out, so the list is written anew.
            Found::Listed(lpid, key, _, slot) => self.lists.entry(lpid).or_default().push((key, slot)),
            Found::Extent(lpid, key, number) if number == number_of_extent(lpid) => {
                self.extents.insert(lpid, key);
            }
            Found::Value(lpid, ..) | Found::Extent(lpid, ..) | Found::Nothing(lpid) => self.changes.push((lpid, None)),
        }
    }

    /// Brings lists and the values that they name together. `lost` are pages of such values that the medium has lost: whose they are only a list says.
    fn join(&mut self, lost: &BTreeSet<u64>, number_of: impl Fn(&Key) -> u64) {
        let mut named = BTreeSet::new();
        for (lpid, list) in &self.lists {
            let is_there = |(key, slot): &&(Key, u16)| {
                let page = extent(*lpid, *slot);
                number_of(key) == *lpid && (lost.contains(&page) || self.extents.get(&page) == Some(key))
            };
            let kept: Vec<(Key, u16)> = list.iter().filter(is_there).copied().collect();
            if kept.len() < list.len() {
                self.changes.push((*lpid, (!kept.is_empty()).then(|| list_bytes(&kept))));
            }
            named.extend(kept.iter().map(|(_, slot)| extent(*lpid, *slot)));
            self.keys.extend(kept.iter().map(|(key, _)| *key));
        }
        let mut anew: BTreeMap<u64, Vec<(Key, u16)>> = BTreeMap::new();
        for (lpid, key) in self.extents.iter().filter(|(lpid, _)| !named.contains(lpid)) {
            let number = number_of_extent(*lpid);
            let has_page = self.single.contains(&number) || self.lists.contains_key(&number);
            let list = anew.entry(number).or_default();
            if has_page || list.iter().any(|(other, _)| other == key) {
                self.changes.push((*lpid, None));
            } else {
                list.push((*key, slot_of_extent(*lpid)));
                self.keys.insert(*key);
            }
        }
        let lists = anew.into_iter().filter(|(_, list)| !list.is_empty());
        self.changes.extend(lists.map(|(number, list)| (number, Some(list_bytes(&list)))));
        let without_list = lost.iter().filter(|lpid| !named.contains(lpid));
        self.changes.extend(without_list.map(|lpid| (*lpid, None)));
    }
}

impl ValueFtl {
    /// Rebuilds the directory because of `damage`. What is written counts when [`openftl_pages::PageFtl::end_repair`] has ended.
    ///
    /// # Errors
    /// If there is no manifest, or no room for the directory.
    pub(crate) fn rebuild(&mut self, damage: &OpenError, clock: &mut dyn Clock) -> Result<(), OpenError> {
        let mut manifest = None;
        if self.store.bytes_of(MANIFEST).is_some() {
            self.read_pages(&[MANIFEST], clock, |_, bytes| manifest = bytes.and_then(Manifest::read))?;
        }
        let Some(Manifest { shape, next_page, .. }) = manifest else {
            let text = "the manifest of the key-value drive is lost, and with it which number each key has: restore the drive from a copy";
            return Err(OpenError::Tenant { text: text.to_owned(), is_lost: false });
        };
        self.store.begin_repair(clock)?;
        (self.shape, self.directory) = (shape, Directory::default());
        let mut found = FoundKeys::default();
        self.for_each_record(clock, &mut |record| found.take(record))?;
        let lost = self.store.pages_in(EXTENTS).filter(|(_, bytes)| *bytes == 0).map(|(lpid, _)| lpid).collect();
        found.join(&lost, |key| key.number(shape.seed, shape.number_bits));
        let FoundKeys { keys, mut changes, .. } = found;
        // What goes makes room for what comes.
        changes.sort_by_key(|(_, bytes)| bytes.is_some());
        let old: Vec<(u64, u32)> = self.store.pages_in(CHANGES).chain(self.store.pages_in(RUNS)).collect();
        changes.splice(0..0, old.iter().map(|(lpid, _)| (*lpid, None)));
        let behind = old.iter().filter(|(lpid, _)| RUNS.contains(lpid)).map(|(lpid, _)| lpid - RUNS.start() + 1);
        let first_page = behind.fold(next_page, u64::max);
        let key_count = keys.len() as u64;
        changes.extend(self.run_of(&keys, first_page));
        if !self.store.is_read_only() {
            self.write_all(changes, clock)?;
        }
        let report = self
            .store
            .repair_report_mut()
            .get_or_insert_with(|| RepairReport { damage: damage.to_string(), ..RepairReport::default() });
        report.index.get_or_insert_with(IndexRepair::default).keys = Some(key_count);
        Ok(())
    }

    /// A run of these keys, whose pages are counted from `first_page` on, and the manifest that names it.
    fn run_of(&self, keys: &BTreeSet<Key>, first_page: u64) -> Vec<(u64, Option<Vec<u8>>)> {
        let most = self.run_page_bytes();
        let (mut pages, mut fences, mut page, mut count) =
            (Vec::new(), Vec::new(), PageOfKeys::new(), Count::default());
        for key in keys {
            if !page.has_room(key, most) {
                fences.extend(page.first);
                pages.push(std::mem::replace(&mut page, PageOfKeys::new()).bytes);
            }
            page.push(Entry { key: *key, is_removed: false });
            count.add(key);
        }
        if let Some(first) = page.first {
            fences.push(first);
            pages.push(page.bytes);
        }
        let of_fences = fence_pages(&fences, most);
        let note = RunNote {
            first_page,
            pages: pages.len() as u32,
            fence_pages: of_fences.len() as u32,
            keys: keys.len() as u64,
        };
        pages.extend(of_fences);
        let next_page = first_page + pages.len() as u64;
        let runs = if keys.is_empty() { Vec::new() } else { vec![note] };
        let manifest = Manifest { shape: self.shape, count, next_page, runs }.to_bytes();
        let numbered = (first_page..).map(ids::run).zip(pages).map(|(lpid, bytes)| (lpid, Some(bytes)));
        numbered.chain([(MANIFEST, Some(manifest))]).collect()
    }

    /// Writes these changes, batch by batch, durably.
    fn write_all(&mut self, changes: Vec<(u64, Option<Vec<u8>>)>, clock: &mut dyn Clock) -> Result<(), OpenError> {
        let (session, last) = self.store.open_session(MERGES).map_err(refused)?;
        let batch = BATCH.min(self.store.batch_max());
        for (wsn, changes) in (last + 1..).zip(changes.chunks(batch)) {
            for (lpid, bytes) in changes {
                let piece = [bytes.as_deref().unwrap_or_default()];
                let change = if bytes.is_some() { Change::Put(&piece) } else { Change::Delete };
                self.stage_when_there_is_room((session, wsn), *lpid, change, clock)?;
            }
            self.ask_pages(StoreRequest::Commit { session, wsn, durability: Durability::Durable }, clock)?;
        }
        self.store.close_session(clock.now(), session, false).map_err(refused)
    }

    fn stage_when_there_is_room(
        &mut self,
        (session, wsn): (Session, u64),
        lpid: u64,
        change: Change<'_>,
        clock: &mut dyn Clock,
    ) -> Result<(), OpenError> {
        loop {
            match self.store.stage(clock.now(), session, wsn, lpid, change, None) {
                Err(StoreError::Busy) => {}
                result => return result.map_err(refused),
            }
            self.store.poll(clock.now(), &mut Vec::new());
            clock.wait_until(self.store.next_due().ok_or(OpenError::Stopped)?);
            self.store.poll(clock.now(), &mut Vec::new());
        }
    }

    /// Asks something of the pages below, and waits for its end.
    pub(crate) fn ask_pages(&mut self, request: StoreRequest<'_>, clock: &mut dyn Clock) -> Result<(), OpenError> {
        self.store.submit(clock.now(), 0, request).map_err(refused)?;
        let mut done: Vec<StoreDone> = Vec::new();
        self.store.poll(clock.now(), &mut done);
        while done.is_empty() {
            clock.wait_until(self.store.next_due().ok_or(OpenError::Stopped)?);
            self.store.poll(clock.now(), &mut done);
        }
        done[0].result.map(|_| ()).map_err(refused)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> Key {
        Key::new(text.as_bytes()).expect("a short key")
    }

    #[test]
    fn lists_and_the_values_that_they_name_are_brought_together() {
        let number_of = |key: &Key| u64::from(key.bytes()[0]);
        let (a, b) = (u64::from(b'a'), u64::from(b'b'));
        let mut found = FoundKeys::default();
        found.take(Found::Value(u64::from(b'c'), key("c"), u64::from(b'c')));
        found.take(Found::Value(7, key("d"), u64::from(b'd')));
        // Of the list of a, place 1 has another key, place 2 has nothing, and place 3 is lost.
        for (slot, text) in ["a0", "a1", "a2", "a3"].into_iter().enumerate() {
            found.take(Found::Listed(a, key(text), a, slot as u16));
        }
        found.take(Found::Extent(extent(a, 0), key("a0"), a));
        found.take(Found::Extent(extent(a, 1), key("ax"), a));
        // Of b there is no list.
        found.take(Found::Extent(extent(b, 4), key("b4"), b));
        found.take(Found::Nothing(9));
        found.join(&BTreeSet::from([extent(a, 3)]), number_of);
        let keys: Vec<Key> = found.keys.into_iter().collect();
        assert_eq!(keys, ["a0", "a3", "b4", "c"].map(key));
        let changes: BTreeMap<u64, Option<Vec<u8>>> = found.changes.into_iter().collect();
        let expected = BTreeMap::from([
            (7, None),
            (9, None),
            (a, Some(list_bytes(&[(key("a0"), 0), (key("a3"), 3)]))),
            (extent(a, 1), None),
            (b, Some(list_bytes(&[(key("b4"), 4)]))),
        ]);
        assert_eq!(changes, expected);
    }
}
