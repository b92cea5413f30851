//! The catalog: what is recorded of each file, and where the next batch goes. No drive is asked here.
//!
//! ```text
//!   zone 0  [ batch 0: everything │ 1 │ 2 │ … ]  full ──▶ zone 1  [ batch 0: everything │ 1 │ … ]  full ──▶ zone 0 …
//!            generation 4                                  generation 5
//! ```

use super::record::{batch_blocks, encode_batch};
use crate::FileError;
use openftl_core::BLOCK_BYTES;
use std::collections::BTreeMap;

/// The zones of the catalog: the first ones.
pub const CATALOG_ZONES: u32 = 2;

/// A change of the catalog: the number of a file, and its record; none if it is gone.
pub type Change = (u64, Option<Vec<u8>>);

/// Changes that are written together: of each file only the last one counts.
pub type Changes = BTreeMap<u64, Option<Vec<u8>>>;

/// See the module.
pub struct Catalog {
    /// The record of each file.
    records: BTreeMap<u64, Vec<u8>>,
    /// Bytes of all of them.
    bytes: usize,
    /// Blocks of a zone.
    capacity: u32,
    /// The zone that counts.
    zone: u32,
    generation: u64,
    /// Batches in it, and their blocks; [`Catalog::capacity`] if nothing more is to be written to it.
    batches: u32,
    written: u32,
    /// Changes up to this one are durable.
    pub(super) durable: u64,
    /// Why nothing can be written any more.
    pub(super) failed: Option<FileError>,
}

/// A batch that is to be written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Batch {
    /// The zone that it goes to.
    pub zone: u32,
    /// Its first block there.
    pub first: u32,
    /// Its blocks.
    pub bytes: Vec<u8>,
    /// A zone of the catalog that has to be empty first, where the batch goes.
    pub begins: bool,
}

impl Catalog {
    /// A catalog without files, whose zones have `capacity` blocks. Its first batch begins zone 0.
    #[must_use]
    pub fn new(capacity: u32) -> Catalog {
        Catalog {
            records: BTreeMap::new(),
            bytes: 0,
            capacity,
            zone: 1,
            generation: 0,
            batches: 0,
            written: capacity,
            durable: 0,
            failed: None,
        }
    }

    /// One that was found in `zone`: `batches` of `written` blocks. If something lies behind them that is no batch, it goes on in the
    /// other zone.
    #[must_use]
    pub fn found(capacity: u32, zone: u32, generation: u64, (batches, written): (u32, u32), is_torn: bool) -> Catalog {
        let written = if is_torn { capacity } else { written };
        Catalog { zone, generation, batches, written, ..Catalog::new(capacity) }
    }

    /// Takes a change in.
    pub fn apply(&mut self, (file, record): Change) {
        let older = match record {
            Some(record) => {
                self.bytes += record.len();
                self.records.insert(file, record)
            }
            None => self.records.remove(&file),
        };
        self.bytes -= older.map_or(0, |older| older.len());
    }

    /// The records.
    #[must_use]
    pub fn records(&self) -> &BTreeMap<u64, Vec<u8>> {
        &self.records
    }

    /// Bytes of all of them.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether so many bytes of records leave the half of a zone free. A catalog that is fuller would begin anew too often, and one that
    /// fills a zone could not.
    #[must_use]
    pub fn is_room(bytes: usize, capacity: u32) -> bool {
        batch_blocks(bytes) <= capacity as usize / 2
    }

    /// Blocks of a batch of these changes, if they fit behind the others.
    fn blocks_behind(&self, changes: &Changes) -> Option<u32> {
        let gone = super::record::gone(0).len();
        let blocks = batch_blocks(changes.values().map(|record| record.as_ref().map_or(gone, Vec::len)).sum());
        (blocks <= (self.capacity - self.written) as usize).then_some(blocks as u32)
    }

    /// Whether there is room for these changes: behind the others, or in the other zone with all that there is.
    ///
    /// # Errors
    /// If all that there is does not fit a zone.
    pub fn expect_room(&self, changes: &Changes) -> Result<(), FileError> {
        if self.blocks_behind(changes).is_some() {
            return Ok(());
        }
        let bytes = changes.iter().fold(self.bytes, |bytes, (file, record)| {
            bytes + record.as_ref().map_or(0, Vec::len) - self.records.get(file).map_or(0, Vec::len)
        });
        if batch_blocks(bytes) <= self.capacity as usize {
            return Ok(());
        }
        let capacity = u64::from(self.capacity) * BLOCK_BYTES as u64;
        Err(FileError::NoSpace(format!(
            "the catalog would have {bytes} bytes of records, more than the {capacity} of a zone: delete files, or make a drive with wider \
             zones"
        )))
    }

    /// Takes changes in, and returns the batch that says so: behind the others, or where there is no room, all that there is, in the other
    /// zone.
    ///
    /// # Errors
    /// If all that there is does not fit a zone. Then nothing was taken in.
    pub fn write(&mut self, changes: Changes) -> Result<Batch, FileError> {
        self.expect_room(&changes)?;
        let Some(blocks) = self.blocks_behind(&changes) else {
            changes.into_iter().for_each(|change| self.apply(change));
            return self.begin();
        };
        let records: Vec<Vec<u8>> =
            changes.iter().filter(|(_, record)| record.is_none()).map(|(file, _)| super::record::gone(*file)).collect();
        let mut gone = records.iter();
        let changed =
            changes.values().map(|record| record.as_deref().unwrap_or_else(|| gone.next().expect("one for each")));
        let changed: Vec<&[u8]> = changed.collect();
        let bytes = encode_batch(self.generation, self.batches, changed.into_iter());
        let batch = Batch { zone: self.zone, first: self.written, bytes, begins: false };
        self.written += blocks;
        self.batches += 1;
        changes.into_iter().for_each(|change| self.apply(change));
        Ok(batch)
    }

    /// A batch with all that there is, which begins the other zone.
    ///
    /// # Errors
    /// If that does not fit a zone.
    pub fn begin(&mut self) -> Result<Batch, FileError> {
        let blocks = batch_blocks(self.bytes) as u32;
        if blocks > self.capacity {
            return Err(FileError::NoSpace(format!("the catalog has {blocks} blocks, and a zone {}", self.capacity)));
        }
        self.zone = 1 - self.zone;
        self.generation += 1;
        (self.batches, self.written) = (1, blocks);
        let bytes = encode_batch(self.generation, 0, self.records.values().map(Vec::as_slice));
        Ok(Batch { zone: self.zone, first: 0, bytes, begins: true })
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::{FileRecord, decode_batch, decode_head, gone};
    use super::*;
    use crate::FileKind;

    fn folder(path: &str) -> FileRecord {
        let path = path.to_owned();
        FileRecord { path, kind: FileKind::Folder, bytes: 0, modified: 0, extents: Vec::new(), tail: Vec::new() }
    }

    fn batch_of(catalog: &mut Catalog, changes: Vec<Change>) -> (u32, u32, bool, u64, Vec<u8>) {
        let Batch { zone, first, bytes, begins } = catalog.write(changes.into_iter().collect()).unwrap();
        (zone, first, begins, decode_head(&bytes).unwrap().generation, decode_batch(&bytes).unwrap().to_vec())
    }

    #[test]
    fn batches_follow_each_other_until_the_zone_is_full_and_then_begin_the_other_with_everything() {
        let mut catalog = Catalog::new(3);
        let (a, b) = (folder("/a").encode(1), folder("/b").encode(2));
        let both = [a.clone(), b.clone()].concat();
        assert_eq!(batch_of(&mut catalog, vec![(1, Some(a.clone()))]), (0, 0, true, 1, a));
        assert_eq!(batch_of(&mut catalog, vec![(2, Some(b.clone()))]), (0, 1, false, 1, b.clone()));
        let third = batch_of(&mut catalog, vec![(3, Some(folder("/c").encode(3))), (4, None), (3, None)]);
        assert_eq!(third, (0, 2, false, 1, [gone(3), gone(4)].concat()), "only the last one counts");
        assert_eq!(batch_of(&mut catalog, Vec::new()), (1, 0, true, 2, both));
        assert_eq!(batch_of(&mut catalog, vec![(1, None)]), (1, 1, false, 2, gone(1)));
    }

    #[test]
    fn a_catalog_that_no_zone_can_hold_is_an_error_and_stays_as_it_was() {
        let mut catalog = Catalog::new(1);
        let long = |name: u64| (name, Some(folder(&format!("/{}", "x".repeat(1000))).encode(name)));
        assert!(!Catalog::is_room(1, 1), "half of a zone of one block is none");
        assert!(catalog.write((0..3).map(long).collect()).is_ok());
        let before = catalog.bytes();
        assert!(matches!(catalog.write(Changes::from([long(4)])), Err(FileError::NoSpace(_))));
        assert_eq!((catalog.bytes(), catalog.records().len()), (before, 3));
        let (zone, _, begins, generation, _) = batch_of(&mut catalog, vec![long(4), (0, None)]);
        assert_eq!((zone, begins, generation), (1, true, 2), "with one file less there is room");
    }

    #[test]
    fn a_torn_catalog_goes_on_in_the_other_zone() {
        let mut catalog = Catalog::found(8, 1, 5, (2, 3), true);
        assert_eq!(batch_of(&mut catalog, Vec::new()), (0, 0, true, 6, Vec::new()));
    }

    #[test]
    fn where_its_zone_fails_it_begins_the_other_with_everything_also_what_was_not_written() {
        let mut catalog = Catalog::new(8);
        let (a, b) = (folder("/a").encode(1), folder("/b").encode(2));
        batch_of(&mut catalog, vec![(1, Some(a.clone()))]);
        batch_of(&mut catalog, vec![(2, Some(b.clone()))]);
        let Batch { zone, first, bytes, begins } = catalog.begin().unwrap();
        assert_eq!((zone, first, begins, decode_head(&bytes).unwrap().generation), (1, 0, true, 2));
        assert_eq!(decode_batch(&bytes).unwrap(), [a, b].concat());
    }
}
