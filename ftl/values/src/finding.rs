//! What is found when a drive is opened: the manifest, the first keys of the pages of runs, and changes that no run has. Where values are is known
//! by then.

use crate::change::{CHANGE_BYTES, Change};
use crate::directory::Pending;
use crate::drive::{OWN_FRAMES, RUN_FRAMES, ValueFtl};
use crate::ids::{self, CHANGES, EXTENTS, MANIFEST, NUMBERS};
use crate::key::Key;
use crate::manifest::Manifest;
use crate::payload::gathered;
use crate::record::RECORD_BYTES;
use crate::run::{Run, read_entries};
use openftl_core::{BLOCK_BYTES, Clock, FrameForm};
use openftl_pages::{SessionId, StoreDone, StoreRequest, StoreTarget, grains_of};
use openftl_parts::open_error::OpenError;
use openftl_parts::target::Target;
use openftl_parts::words::Access;

/// The sessions of the store below.
const VALUES: SessionId = SessionId(*b"openftl values  ");
pub(crate) const MERGES: SessionId = SessionId(*b"openftl merges  ");

/// Marks the tags of reads of the drive for itself, whose number is below.
const OF_FINDING: u64 = 1 << 41;

pub(crate) fn lost(text: String) -> OpenError {
    OpenError::IndexLost(text)
}

impl ValueFtl {
    /// Takes the frames that the drive reads to for itself.
    pub(crate) fn keep_frames(&mut self) {
        let frames = self.store.frames_mut();
        let has_all = frames.acquire_many(FrameForm::Bytes, OWN_FRAMES, &mut self.own)
            && frames.acquire_many(FrameForm::Bytes, RUN_FRAMES, &mut self.merge_own);
        assert!(has_all, "the pool has frames for the drive itself");
    }

    /// Opens the sessions of the store below.
    pub(crate) fn open_sessions(&mut self) -> Result<(), OpenError> {
        for (id, session) in [(VALUES, &mut self.session), (MERGES, &mut self.merges)] {
            let (opened, last) = self.store.open_session(id).map_err(|error| lost(error.to_string()))?;
            *session = (opened, last + 1);
        }
        Ok(())
    }

    /// Reads pages, none of which is longer than a page of the directory. `None` for one that the medium has lost.
    pub(crate) fn read_pages(
        &mut self,
        lpids: &[u64],
        clock: &mut dyn Clock,
        take: impl FnMut(u64, Option<&[u8]>),
    ) -> Result<(), OpenError> {
        let parts: Vec<(u64, u32)> = lpids.iter().map(|lpid| (*lpid, 0)).collect();
        self.read_parts(&parts, clock, take)
    }

    /// Reads pages, each from a byte to its end: as many at a time as there are frames for.
    pub(crate) fn read_parts(
        &mut self,
        parts: &[(u64, u32)],
        clock: &mut dyn Clock,
        mut take: impl FnMut(u64, Option<&[u8]>),
    ) -> Result<(), OpenError> {
        let mut rest = parts;
        while !rest.is_empty() {
            let (mut reads, mut free) = (Vec::new(), self.own.len());
            while let Some((lpid, offset)) = rest.first() {
                let bytes = self.store.bytes_now(*lpid, clock)?.unwrap_or(0).saturating_sub(*offset) as usize;
                let frames = bytes.div_ceil(BLOCK_BYTES);
                if frames > free {
                    assert!(!reads.is_empty(), "a page of the directory fits into the frames of the drive");
                    break;
                }
                reads.push((*lpid, *offset, bytes, free - frames..free));
                (free, rest) = (free - frames, &rest[1..]);
            }
            let mut results = vec![None; reads.len()];
            let mut left = 0;
            for (tag, (lpid, offset, bytes, frames)) in (0..).zip(&reads) {
                if *bytes == 0 {
                    results[tag as usize] = Some(false);
                    continue;
                }
                let frames = &self.own[frames.clone()];
                let read = StoreRequest::Read { lpid: *lpid, offset: *offset, frames };
                self.store.submit(clock.now(), OF_FINDING | tag, read).map_err(|error| lost(error.to_string()))?;
                left += 1;
            }
            let mut done: Vec<StoreDone> = Vec::new();
            self.store.poll(clock.now(), &mut done);
            loop {
                for done in done.drain(..) {
                    // A check may come while requests or a merge are under way, and what these have asked ends meanwhile.
                    let Some(read) = results.get_mut((done.tag ^ OF_FINDING) as usize) else {
                        self.answers.push(done);
                        continue;
                    };
                    *read = Some(done.result.is_ok());
                    left -= 1;
                }
                if left == 0 {
                    break;
                }
                clock.wait_until(self.store.next_due().ok_or(OpenError::Stopped)?);
                self.store.poll(clock.now(), &mut done);
            }
            for ((lpid, _, bytes, frames), result) in reads.into_iter().zip(results) {
                let read = gathered(self.store.frames(), &self.own[frames], bytes);
                take(lpid, (result == Some(true)).then_some(&read[..]));
            }
        }
        Ok(())
    }

    /// Takes over all that there is.
    pub(crate) fn find(&mut self, access: Access, clock: &mut dyn Clock) -> Result<(), OpenError> {
        if self.store.bytes_now(MANIFEST, clock)?.is_none() {
            let text = "the key-value drive was not made to its end: make it again".to_owned();
            return Err(OpenError::Tenant { text, is_lost: false });
        }
        let mut manifest = None;
        self.read_pages(&[MANIFEST], clock, |_, bytes| manifest = bytes.and_then(Manifest::read))?;
        let manifest = manifest.ok_or_else(|| lost("the manifest of the key-value drive cannot be read".to_owned()))?;
        let Manifest { shape, count, next_page, runs } = manifest;
        (self.shape, self.count, self.directory.next_page) = (shape, count, next_page);
        for note in runs {
            let first = note.first_page + u64::from(note.pages);
            let pages: Vec<u64> = (first..first + u64::from(note.fence_pages)).map(ids::run).collect();
            let (mut fences, mut is_whole) = (Vec::<Key>::new(), true);
            self.read_pages(&pages, clock, |_, bytes| match bytes.and_then(read_entries) {
                Some(entries) => fences.extend(entries.iter().map(|entry| entry.key)),
                None => is_whole = false,
            })?;
            if !is_whole || fences.len() != note.pages as usize {
                return Err(lost(format!("the first keys of the directory's pages from {first} on cannot be read")));
            }
            let (first_page, fence_pages, keys) = (note.first_page, note.fence_pages, note.keys);
            self.directory.runs.push(Run { first_page, fences, fence_pages, keys });
        }
        let changes: Vec<u64> = self
            .store
            .list_now(CHANGES, usize::MAX, clock)?
            .into_iter()
            .filter(|(_, bytes)| *bytes as usize == CHANGE_BYTES)
            .map(|(lpid, _)| lpid)
            .collect();
        let (mut found, mut bad) = (Vec::new(), None);
        self.read_pages(&changes, clock, |lpid, bytes| match bytes.and_then(Change::read) {
            Some(change) => found.push((ids::counted(lpid), change)),
            None => bad = Some(lpid),
        })?;
        if let Some(lpid) = bad {
            return Err(lost(format!("change {} of the directory cannot be read", ids::counted(lpid))));
        }
        found.sort_unstable_by_key(|(counted, _)| *counted);
        for (counted, Change { key, is_removed, count }) in found {
            // Of two changes of a key the newer one counts; the other one's page goes with the next merge.
            if let Some(older) = self.directory.changes.insert(key, Pending { is_removed, counted }) {
                self.directory.outdated.push(older.counted);
            }
            self.count = count;
            self.directory.next_change = counted + 1;
        }
        self.staged = self.count;
        self.sum_up(clock)?;
        if access != Access::Inspect {
            self.open_sessions()?;
        }
        Ok(())
    }

    /// Bytes of values and grains of their pages, as they follow from the pages that there are.
    fn sum_up(&mut self, clock: &mut dyn Clock) -> Result<(), OpenError> {
        let (mut bytes, mut grains, mut extents) = (0, 0, 0);
        let end = *EXTENTS.end();
        let mut from = *NUMBERS.start();
        loop {
            let pages = self.store.list_now(from..=end, PAGES_SUMMED, clock)?;
            for (lpid, page) in &pages {
                bytes += u64::from(*page);
                grains += if *page == 0 { 0 } else { u64::from(grains_of(*page)) };
                extents += u64::from(EXTENTS.contains(lpid));
            }
            let Some((last, _)) = pages.last().filter(|_| pages.len() == PAGES_SUMMED) else { break };
            from = last + 1;
        }
        // Behind each value is a record, and a key that shares its number has one more in a list.
        self.value_bytes = bytes.saturating_sub((self.count.keys + extents) * RECORD_BYTES as u64);
        self.value_grains = grains;
        Ok(())
    }
}

/// Pages that are summed up at a time.
const PAGES_SUMMED: usize = 4096;
