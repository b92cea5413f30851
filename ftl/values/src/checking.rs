//! Verifying a drive: every page, whether each is where the number of its key says, and whether the directory has the keys that have values, and no
//! others.

use crate::directory::smallest;
use crate::drive::ValueFtl;
use crate::ids::{EXTENTS, NUMBERS, RUNS, extent, number_of_extent};
use crate::key::Key;
use crate::record::{RECORD_BYTES, Record, read_list};
use crate::run::{Run, read_entries};
use openftl_blocks::check::CheckReport;
use openftl_core::Clock;
use openftl_parts::open_error::OpenError;
use openftl_parts::target::Target;
use std::collections::BTreeSet;
use std::ops::Bound;

/// Pages of which the records are read at a time.
const PAGES: usize = 64;

/// Bits that follow from all keys of a set, whatever their order.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
struct Digest {
    keys: u64,
    key_bytes: u64,
    sums: [u64; 2],
}

impl Digest {
    fn add(&mut self, key: &Key) {
        self.keys += 1;
        self.key_bytes += u64::from(key.length());
        for (seed, sum) in (1..).zip(&mut self.sums) {
            *sum = sum.wrapping_add(key.number([seed, seed], u64::BITS));
        }
    }
}

impl ValueFtl {
    /// Verifies pages and metadata as [`openftl_pages::PageFtl::check`] does, and that keys, their numbers and the directory agree. Nothing is
    /// written.
    ///
    /// # Errors
    /// If the device stops answering.
    pub fn check(
        &mut self,
        clock: &mut dyn Clock,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<CheckReport, OpenError> {
        self.end_merges(clock)?;
        let mut report = self.store.check(clock, progress)?;
        let of_values = self.check_values(clock, &mut report)?;
        let mut of_directory = Digest::default();
        if !self.for_each_key(clock, &mut |key| of_directory.add(&key))? {
            report.add("the directory of keys cannot be read to its end".to_owned());
        } else if of_values != of_directory {
            self.compare(clock, &mut report)?;
        }
        let of_runs: BTreeSet<u64> = self.directory.runs.iter().flat_map(Run::lpids).collect();
        let runs = self.store.list_now(RUNS, usize::MAX, clock)?;
        for (lpid, _) in runs.into_iter().filter(|(lpid, _)| !of_runs.contains(lpid)) {
            report.add(format!("page {lpid} is of the directory, and the manifest does not name it"));
        }
        let known = (self.count.keys, self.count.key_bytes);
        let found = (of_values.keys, of_values.key_bytes);
        if known != found {
            let text =
                format!("the drive counts {} keys of {} bytes, and has {} of {}", known.0, known.1, found.0, found.1);
            report.add(text);
        }
        report.keys = of_values.keys;
        Ok(report)
    }

    /// Waits until the directory is not being merged: until that has ended it has pages that no manifest names.
    fn end_merges(&mut self, clock: &mut dyn Clock) -> Result<(), OpenError> {
        let mut done = Vec::new();
        while self.merge.is_some() {
            self.poll(clock.now(), &mut done);
            if self.merge.is_some() {
                clock.wait_until(self.next_due().ok_or(OpenError::Stopped)?);
            }
        }
        self.done.append(&mut done);
        Ok(())
    }

    /// Verifies that each page is of keys with its number.
    fn check_values(&mut self, clock: &mut dyn Clock, report: &mut CheckReport) -> Result<Digest, OpenError> {
        let mut digest = Digest::default();
        let extents = self.store.list_now(EXTENTS, usize::MAX, clock)?;
        let mut unlisted: BTreeSet<u64> = extents.into_iter().map(|(lpid, _)| lpid).collect();
        self.for_each_record(clock, &mut |found| match found {
            Found::Value(lpid, key, number) => {
                digest.add(&key);
                if number != lpid {
                    report.add(format!("page {lpid} is of key {key}, whose number is {number}"));
                }
            }
            Found::Listed(lpid, key, number, slot) => {
                digest.add(&key);
                if number != lpid {
                    report.add(format!("key {key} is in list {lpid}, and its number is {number}"));
                }
                if !unlisted.remove(&extent(lpid, slot)) {
                    report.add(format!("key {key} is in list {lpid}, and has no value"));
                }
            }
            Found::Extent(lpid, key, number) => {
                if number != number_of_extent(lpid) {
                    report.add(format!("page {lpid} is of key {key}, whose number is {number}"));
                }
            }
            Found::Nothing(lpid) => report.add(format!("page {lpid} has no record of a key")),
        })?;
        unlisted.iter().for_each(|lpid| report.add(format!("page {lpid} is of a key that no list has")));
        Ok(digest)
    }

    /// Goes through the records of all pages of values that can be read.
    pub(crate) fn for_each_record(
        &mut self,
        clock: &mut dyn Clock,
        take: &mut dyn FnMut(Found),
    ) -> Result<(), OpenError> {
        let (seed, bits) = (self.shape.seed, self.shape.number_bits);
        for range in [NUMBERS, EXTENTS] {
            let is_extent = range == EXTENTS;
            let mut pages = self.store.list_now(range, usize::MAX, clock)?;
            pages.retain(|(_, bytes)| *bytes > 0);
            for pages in pages.chunks(PAGES) {
                let tails = pages.iter().map(|(lpid, bytes)| (*lpid, bytes.saturating_sub(RECORD_BYTES as u32)));
                let tails: Vec<(u64, u32)> = tails.collect();
                let mut lists = Vec::new();
                self.read_parts(&tails, clock, |lpid, bytes| {
                    // What cannot be read has been told of.
                    let Some(bytes) = bytes else { return };
                    match Record::read(bytes) {
                        Some(Record::Value(key)) if is_extent => take(Found::Extent(lpid, key, key.number(seed, bits))),
                        Some(Record::Value(key)) => take(Found::Value(lpid, key, key.number(seed, bits))),
                        Some(Record::Listed(..)) if !is_extent => lists.push(lpid),
                        _ => take(Found::Nothing(lpid)),
                    }
                })?;
                self.read_pages(&lists, clock, |lpid, bytes| match bytes.and_then(read_list) {
                    Some(list) => {
                        list.iter()
                            .for_each(|(key, slot)| take(Found::Listed(lpid, *key, key.number(seed, bits), *slot)));
                    }
                    None => take(Found::Nothing(lpid)),
                })?;
            }
        }
        Ok(())
    }

    /// Goes through the keys of the directory in their order. Returns whether all of it could be read.
    fn for_each_key(&mut self, clock: &mut dyn Clock, take: &mut dyn FnMut(Key)) -> Result<bool, OpenError> {
        let mut cursors = self.directory.cursors(0, None);
        let mut position: Option<Key> = None;
        loop {
            while let Some(at) = cursors.iter().position(|cursor| cursor.lacks_page(&self.directory.runs)) {
                let lpid = self.directory.runs[cursors[at].run].lpid(cursors[at].page);
                let mut entries = None;
                self.read_pages(&[lpid], clock, |_, bytes| entries = bytes.and_then(read_entries))?;
                let Some(entries) = entries else { return Ok(false) };
                let cursor = &mut cursors[at];
                (cursor.entries, cursor.at, cursor.page) = (entries, 0, cursor.page + 1);
            }
            let change = self.directory.next_change_from(position.as_ref().map_or(Bound::Unbounded, Bound::Excluded));
            let heads = cursors.iter().filter_map(|cursor| cursor.head());
            let Some(next) = smallest(change.into_iter().chain(heads)) else { return Ok(true) };
            if !next.is_removed {
                take(next.key);
            }
            cursors.iter_mut().for_each(|cursor| cursor.pass(&next.key));
            position = Some(next.key);
        }
    }

    /// Says which keys the directory lacks, and which it has for nothing.
    fn compare(&mut self, clock: &mut dyn Clock, report: &mut CheckReport) -> Result<(), OpenError> {
        let (mut listed, mut stored) = (BTreeSet::new(), BTreeSet::new());
        self.for_each_key(clock, &mut |key| _ = listed.insert(key))?;
        self.for_each_record(clock, &mut |found| {
            if let Found::Value(_, key, _) | Found::Listed(_, key, ..) = found {
                stored.insert(key);
            }
        })?;
        listed
            .difference(&stored)
            .for_each(|key| report.add(format!("key {key} is in the directory, and has no value")));
        stored
            .difference(&listed)
            .for_each(|key| report.add(format!("key {key} has a value, and is not in the directory")));
        Ok(())
    }
}

/// A record of a page: its page, its key, and the number of that.
pub(crate) enum Found {
    Value(u64, Key, u64),
    /// With its place in the list.
    Listed(u64, Key, u64, u16),
    Extent(u64, Key, u64),
    Nothing(u64),
}
