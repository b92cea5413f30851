//! Rebuilding the directory from the keys that stand behind values, when it is lost, or when the index of pages below was rebuilt.
//!
//! Behind each value stands its key, so keys are known without the directory. After the index of pages was rebuilt, pages that were deleted may be
//! back, and a batch may be there in part:
//!
//! | what is there | then |
//! |---|---|
//! | a value in the page of its key's number | the key has that value; if it was deleted, it may be back |
//! | values that share a number, and a list of them | as they and their versions say ([`crate::found_keys`]) |
//! | a page whose key has another number, or that has no key | it is deleted |
//!
//! Then all changes and runs are deleted, and one run of all keys is written with a manifest. What a key-value drive is like stands in its manifest
//! alone: if no version of that is left, nobody knows which number a key has, and nothing can be rebuilt.
//!
//! The superblock says meanwhile that the directory is being rebuilt, or the index of pages, if that was lost, too: a repair that was cut off begins
//! again with what it had begun with.

use crate::change::Count;
use crate::directory::Directory;
use crate::drive::ValueFtl;
use crate::finding::MERGES;
use crate::found_keys::FoundKeys;
use crate::ids::{self, CHANGES, EXTENTS, MANIFEST, RUNS, extent};
use crate::key::Key;
use crate::manifest::{Manifest, RunNote};
use crate::payload::gathered;
use crate::run::{Entry, PageOfKeys, fence_pages};
use openftl_core::{BLOCK_BYTES, Clock};
use openftl_pages::{Change, PageFacts, Session, StoreDone, StoreError, StoreRequest, StoreTarget};
use openftl_parts::RepairReport;
use openftl_parts::open_error::OpenError;
use openftl_parts::target::{Durability, Target};
use std::collections::BTreeSet;

/// Changes of a batch of a repair.
const BATCH: usize = 256;

fn refused(error: StoreError) -> OpenError {
    OpenError::Tenant { text: format!("the directory of keys cannot be written: {error}"), is_lost: false }
}

impl ValueFtl {
    /// Rebuilds the directory because of `damage`. What is written counts when [`openftl_pages::PageFtl::end_repair`] has ended.
    ///
    /// # Errors
    /// If there is no manifest, or no room for the directory.
    pub(crate) fn rebuild(&mut self, damage: &OpenError, clock: &mut dyn Clock) -> Result<(), OpenError> {
        let mut manifest = None;
        if self.store.bytes_now(MANIFEST, clock)?.is_some() {
            self.read_pages(&[MANIFEST], clock, |_, bytes| manifest = bytes.and_then(Manifest::read))?;
        }
        let Some(Manifest { shape, next_page, .. }) = manifest else {
            let text = "the manifest of the key-value drive is lost, and with it which number each key has: restore the drive from a copy";
            return Err(OpenError::Tenant { text: text.to_owned(), is_lost: false });
        };
        self.store.begin_repair_of_keys(clock)?;
        (self.shape, self.directory) = (shape, Directory::default());
        let mut found = FoundKeys::default();
        self.for_each_record(clock, &mut |record| found.take(record))?;
        let lost = self.store.list_now(EXTENTS, usize::MAX, clock)?.into_iter();
        let lost = lost.filter(|(_, bytes)| *bytes == 0).map(|(lpid, _)| lpid).collect();
        let number_of = |key: &Key| key.number(shape.seed, shape.number_bits);
        found.join(&lost, number_of, &mut |lpid| self.version_of(lpid, clock))?;
        let mut changes = Vec::new();
        for copied in std::mem::take(&mut found.copies) {
            match self.bytes_of(copied.number, clock)? {
                Some(bytes) => changes.push((extent(copied.number, copied.slot), Some(bytes))),
                None => found.leave_out(copied),
            }
        }
        let FoundKeys { keys, changes: of_keys, .. } = found;
        changes.extend(of_keys);
        // What goes makes room for what comes.
        changes.sort_by_key(|(_, bytes)| bytes.is_some());
        let mut old = self.store.list_now(CHANGES, usize::MAX, clock)?;
        old.extend(self.store.list_now(RUNS, usize::MAX, clock)?);
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
        report.keys = Some(key_count);
        Ok(())
    }

    /// The version of a page; 0: it cannot be read.
    fn version_of(&mut self, lpid: u64, clock: &mut dyn Clock) -> Result<u64, OpenError> {
        let facts = self.ask(StoreRequest::Stat { lpid }, clock)?;
        Ok(facts.ok().flatten().map_or(0, |facts| facts.version))
    }

    /// All of a page, however long. `None`: it cannot be read.
    fn bytes_of(&mut self, lpid: u64, clock: &mut dyn Clock) -> Result<Option<Vec<u8>>, OpenError> {
        let bytes = self.store.bytes_now(lpid, clock)?.unwrap_or(0) as usize;
        let frames = self.own.clone();
        let mut all = Vec::with_capacity(bytes);
        while all.len() < bytes {
            let read = StoreRequest::Read { lpid, offset: all.len() as u32, frames: &frames };
            if self.ask(read, clock)?.is_err() {
                return Ok(None);
            }
            let count = (bytes - all.len()).min(frames.len() * BLOCK_BYTES);
            all.extend(gathered(self.store.frames(), &frames, count));
        }
        Ok(Some(all))
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
        self.ask(request, clock)?.map(|_| ()).map_err(refused)
    }

    /// The same, with what comes of it.
    fn ask(
        &mut self,
        request: StoreRequest<'_>,
        clock: &mut dyn Clock,
    ) -> Result<Result<Option<PageFacts>, StoreError>, OpenError> {
        if let Err(error) = self.store.submit(clock.now(), 0, request) {
            return Ok(Err(error));
        }
        let mut done: Vec<StoreDone> = Vec::new();
        self.store.poll(clock.now(), &mut done);
        while done.is_empty() {
            clock.wait_until(self.store.next_due().ok_or(OpenError::Stopped)?);
            self.store.poll(clock.now(), &mut done);
        }
        Ok(done[0].result)
    }
}
