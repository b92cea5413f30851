//! The catalog: what tables there are, where they lie, and what the host notes of them and of whatever else it keeps.
//!
//! An *entry* has a number, a note of the host's, which means nothing here, and a table or none. It takes one or more
//! logical blocks that follow each other, each a *part*, and is written as one transaction: in place where the new version is as
//! long, elsewhere if not, and then the old place is overwritten with free parts. Of two versions that are found the newer counts.
//!
//! # On media
//! | bytes of a part | field |
//! |---|---|
//! | 0-3 | magic `OFCT` |
//! | 4-5 | version |
//! | 6-7 | parts of the entry; 0: free |
//! | 8-9 | this part, from 0 on |
//! | 10-11 | bytes of this part |
//! | 12-15 | 0 |
//! | 16-23 | number |
//! | 24-31 | sequence of this version |
//! | 32-4095 | bytes |
//!
//! The bytes of all parts, one after the other:
//!
//! | bytes | field |
//! |---|---|
//! | 0-3 | length of the note |
//! | 4-7 | runs of the table; FFFF_FFFFh: the entry has none |
//! | 8-11 | blocks of the table |
//! | 12- | the note |
//! | behind it, 20 bytes a run | chunk, first block, units, first unit in the table, units from one to the next |
//!
//! All numbers are little-endian. That the bytes are what was written is for the block FTL to know: each part is a logical block.

use super::table::Run;
use openftl_core::{BLOCK_BYTES, ChunkId};
use openftl_parts::OpenError;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// `OFCT`, little-endian.
pub const CATALOG_MAGIC: u32 = u32::from_le_bytes(*b"OFCT");
/// The version of this layout.
pub const CATALOG_VERSION: u16 = 2;
/// The most parts of an entry.
pub const PARTS_MAX: usize = 64;
/// Bytes of an entry in one part.
pub const PART_BYTES: usize = BLOCK_BYTES - size_of::<Header>();
/// The longest note.
pub const NOTE_BYTES_MAX: usize = 32 * 1024;

/// Numbers and sequences are below this: they count up one by one, and no drive lives to come near.
const COUNT_MAX: u64 = 1 << 63;

const NO_TABLE: u32 = u32::MAX;

#[derive(FromBytes, IntoBytes, Immutable, Unaligned, KnownLayout, Clone, Copy)]
#[repr(C)]
struct Header {
    magic: U32,
    version: U16,
    parts: U16,
    part: U16,
    bytes: U16,
    reserved: U32,
    number: U64,
    sequence: U64,
}

const _: () = assert!(size_of::<Header>() == 32);

#[derive(FromBytes, IntoBytes, Immutable, Unaligned, KnownLayout, Clone, Copy)]
#[repr(C)]
struct Body {
    note: U32,
    runs: U32,
    blocks: U32,
}

#[derive(FromBytes, IntoBytes, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
struct RunBytes {
    chunk: U32,
    first: U32,
    units: U32,
    unit: U32,
    stride: U32,
}

const _: () = assert!(size_of::<Body>() == 12 && size_of::<RunBytes>() == 20);

/// A catalog that cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CatalogError {
    /// A block of it is lost.
    #[error("block {block} of the catalog cannot be read, and with it what it says of a table or a file: {reason}")]
    Lost {
        /// Which.
        block: u32,
        /// How it failed.
        reason: String,
    },
    /// A block holds something else.
    #[error("block {block} of the catalog holds something else (magic {magic:#010x})")]
    Magic {
        /// Which.
        block: u32,
        /// What it begins with.
        magic: u32,
    },
    /// Written by another version.
    #[error("block {block} of the catalog has format version {found}; this program knows {CATALOG_VERSION}")]
    Version {
        /// Which.
        block: u32,
        /// In the block.
        found: u16,
    },
    /// An entry cannot be true.
    #[error("entry {number} of the catalog, at its block {block}: {reason}")]
    Entry {
        /// Its number.
        number: u64,
        /// Its first block.
        block: u32,
        /// What is wrong with it.
        reason: String,
    },
}

impl From<CatalogError> for OpenError {
    fn from(error: CatalogError) -> OpenError {
        OpenError::Tenant { is_lost: matches!(error, CatalogError::Lost { .. }), text: error.to_string() }
    }
}

/// The table of an entry, as the catalog has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TableRuns {
    /// Its blocks.
    pub blocks: u32,
    /// Where they are.
    pub runs: Vec<Run>,
}

/// What is known of an entry.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Place {
    first: u32,
    parts: u32,
    sequence: u64,
    note: Vec<u8>,
}

/// Where each entry is, and what is free.
pub struct Catalog {
    /// Blocks that have a part.
    taken: Vec<bool>,
    places: FxHashMap<u64, Place>,
    /// No block below this is free.
    lowest: u32,
    next_sequence: u64,
    next_number: u64,
}

/// An entry that was found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Its number.
    pub number: u64,
    /// What the host noted.
    pub note: Vec<u8>,
    /// Its table, if it has one.
    pub table: Option<TableRuns>,
}

/// Parts to be written to blocks of the catalog that follow each other.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Parts {
    /// The first block.
    pub first: u32,
    /// Their contents.
    pub blocks: Vec<Box<[u8; BLOCK_BYTES]>>,
}

/// A part that was found.
struct FoundPart {
    block: u32,
    /// Of the whole entry; 0: the part is free.
    parts: u16,
    part: u16,
    bytes: Vec<u8>,
}

/// Puts the parts of entries together as their blocks are read.
#[derive(Default)]
pub struct Reader {
    /// By number and sequence.
    found: BTreeMap<(u64, u64), Vec<FoundPart>>,
}

impl Reader {
    /// Takes a block that is not empty.
    ///
    /// # Errors
    /// If it is no part of an entry.
    pub fn take(&mut self, block: u32, bytes: &[u8; BLOCK_BYTES]) -> Result<(), CatalogError> {
        let (header, rest) = Header::ref_from_prefix(bytes).expect("a block is longer than its header");
        if header.magic.get() != CATALOG_MAGIC {
            return Err(CatalogError::Magic { block, magic: header.magic.get() });
        }
        if header.version.get() != CATALOG_VERSION {
            return Err(CatalogError::Version { block, found: header.version.get() });
        }
        let (number, sequence) = (header.number.get(), header.sequence.get());
        let (parts, part) = (header.parts.get(), header.part.get());
        let is_free = parts == 0;
        let bytes = rest.get(..usize::from(header.bytes.get())).filter(|_| is_free || part < parts);
        let Some(bytes) = bytes.filter(|_| usize::from(parts) <= PARTS_MAX) else {
            let reason = format!("part {part} of {parts} with {} bytes", header.bytes.get());
            return Err(CatalogError::Entry { number, block, reason });
        };
        if number >= COUNT_MAX || sequence >= COUNT_MAX {
            let reason = format!("number {number} and sequence {sequence}: they cannot have come so far");
            return Err(CatalogError::Entry { number, block, reason });
        }
        // A free part counts for the numbers that have been used.
        self.found.entry((number, sequence)).or_default().push(FoundPart { block, parts, part, bytes: bytes.to_vec() });
        Ok(())
    }

    /// Takes the numbers that a block of the other copy names, so that no entry has them again. Gives the block as a free part.
    pub fn take_as_free(&mut self, block: u32, bytes: &[u8; BLOCK_BYTES]) -> Option<Parts> {
        let (header, _) = Header::ref_from_prefix(bytes).expect("a block is longer than its header");
        let (number, sequence) = (header.number.get(), header.sequence.get());
        if header.magic.get() != CATALOG_MAGIC || number >= COUNT_MAX || sequence >= COUNT_MAX {
            return None;
        }
        let free = FoundPart { block, parts: 0, part: 0, bytes: Vec::new() };
        self.found.entry((number, sequence)).or_default().push(free);
        Some(Parts { first: block, blocks: vec![part(number, sequence, (0, 0), &[])] })
    }

    /// The catalog of `blocks` blocks, its entries, and what is left of older versions and has to be overwritten.
    ///
    /// # Errors
    /// If an entry is not there as a whole.
    pub fn finish(self, blocks: u32) -> Result<(Catalog, Vec<Entry>, Vec<Parts>), CatalogError> {
        let mut catalog = Catalog::new(blocks);
        let mut entries: BTreeMap<u64, Entry> = BTreeMap::new();
        let mut stale = Vec::new();
        for ((number, sequence), mut parts) in self.found {
            catalog.next_sequence = catalog.next_sequence.max(sequence + 1);
            catalog.next_number = catalog.next_number.max(number + 1);
            parts.retain(|found| found.parts > 0);
            let Some((block, count)) = parts.first().map(|found| (found.block, found.parts)) else { continue };
            parts.sort_unstable_by_key(|found| found.part);
            let wrong = |reason: String| CatalogError::Entry { number, block, reason };
            let first = parts[0].block;
            let is_whole = parts.len() == usize::from(count)
                && (0..).zip(&parts).all(|(index, found)| {
                    (found.parts, u32::from(found.part), found.block) == (count, index, first + index)
                });
            if !is_whole {
                return Err(wrong(format!("only {} of its {count} parts are there", parts.len())));
            }
            let bytes: Vec<u8> = parts.into_iter().flat_map(|found| found.bytes).collect();
            let entry = decode(number, &bytes).ok_or_else(|| wrong("its bytes make no sense".to_owned()))?;
            let place = Place { first, parts: count.into(), sequence, note: entry.note.clone() };
            // Sequences rise, so of two versions this one is the newer.
            entries.insert(number, entry);
            catalog.take(&place);
            if let Some(older) = catalog.places.insert(number, place) {
                stale.push(catalog.free_parts(number, &older));
                catalog.give(&older);
            }
        }
        Ok((catalog, entries.into_values().collect(), stale))
    }
}

fn decode(number: u64, bytes: &[u8]) -> Option<Entry> {
    let (body, rest) = Body::ref_from_prefix(bytes).ok()?;
    let (note, runs) = rest.split_at_checked(body.note.get() as usize)?;
    let table = match body.runs.get() {
        NO_TABLE => runs.is_empty().then_some(None)?,
        count => {
            let runs = <[RunBytes]>::ref_from_bytes_with_elems(runs, count as usize).ok()?;
            let run = |run: &RunBytes| Run {
                chunk: ChunkId(run.chunk.get()),
                first: run.first.get(),
                units: run.units.get(),
                unit: run.unit.get(),
                stride: run.stride.get(),
            };
            Some(TableRuns { blocks: body.blocks.get(), runs: runs.iter().map(run).collect() })
        }
    };
    Some(Entry { number, note: note.to_vec(), table })
}

fn encode(note: &[u8], table: Option<&TableRuns>) -> Vec<u8> {
    let body = Body {
        note: U32::new(note.len() as u32),
        runs: U32::new(table.map_or(NO_TABLE, |table| table.runs.len() as u32)),
        blocks: U32::new(table.map_or(0, |table| table.blocks)),
    };
    let mut bytes = body.as_bytes().to_vec();
    bytes.extend_from_slice(note);
    for run in table.iter().flat_map(|table| &table.runs) {
        let run = RunBytes {
            chunk: U32::new(run.chunk.0),
            first: U32::new(run.first),
            units: U32::new(run.units),
            unit: U32::new(run.unit),
            stride: U32::new(run.stride),
        };
        bytes.extend_from_slice(run.as_bytes());
    }
    bytes
}

impl Catalog {
    /// An empty catalog of `blocks` blocks.
    #[must_use]
    pub fn new(blocks: u32) -> Catalog {
        Catalog {
            taken: vec![false; blocks as usize],
            places: FxHashMap::default(),
            lowest: 0,
            next_sequence: 1,
            next_number: 1,
        }
    }

    /// A number that no entry has had, as far as the catalog remembers.
    pub fn new_number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number - 1
    }

    fn take(&mut self, place: &Place) {
        self.taken[place.first as usize..(place.first + place.parts) as usize].fill(true);
    }

    fn give(&mut self, place: &Place) {
        self.taken[place.first as usize..(place.first + place.parts) as usize].fill(false);
        self.lowest = self.lowest.min(place.first);
    }

    /// Whether there is an entry `number`.
    #[must_use]
    pub fn has(&self, number: u64) -> bool {
        self.places.contains_key(&number)
    }

    /// Blocks that are free.
    #[must_use]
    pub fn free_blocks(&self) -> usize {
        self.taken.iter().filter(|taken| !**taken).count()
    }

    fn find(&mut self, parts: u32) -> Option<u32> {
        while self.taken.get(self.lowest as usize).copied().unwrap_or(false) {
            self.lowest += 1;
        }
        let mut length = 0;
        for block in self.lowest..self.taken.len() as u32 {
            length = if self.taken[block as usize] { 0 } else { length + 1 };
            if length == parts {
                return Some(block + 1 - parts);
            }
        }
        None
    }

    /// Parts to be written so that entry `number` is this, in their order. `None` if it has no room, or if sequences are used up.
    #[must_use]
    pub fn put(&mut self, number: u64, note: &[u8], table: Option<&TableRuns>) -> Option<Vec<Parts>> {
        let bytes = encode(note, table);
        let count = bytes.len().div_ceil(PART_BYTES);
        if count > PARTS_MAX || self.next_sequence >= COUNT_MAX {
            return None;
        }
        let older = self.places.get(&number).cloned();
        let first = match &older {
            Some(older) if older.parts as usize == count => older.first,
            _ => self.find(count as u32)?,
        };
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        let blocks = bytes.chunks(PART_BYTES).enumerate();
        let blocks = blocks.map(|(part, bytes)| self::part(number, sequence, (count, part), bytes)).collect();
        let mut written = vec![Parts { first, blocks }];
        let place = Place { first, parts: count as u32, sequence, note: note.to_vec() };
        self.take(&place);
        self.places.insert(number, place);
        if let Some(older) = older.filter(|older| older.first != first) {
            written.push(self.free_parts(number, &older));
            self.give(&older);
        }
        Some(written)
    }

    /// The same where only the place of the table is another. `None` also if there is no entry `number`.
    #[must_use]
    pub fn put_elsewhere(&mut self, number: u64, table: &TableRuns) -> Option<Vec<Parts>> {
        let note = self.places.get(&number)?.note.clone();
        self.put(number, &note, Some(table))
    }

    /// Parts to be written so that there is no entry `number`; `None` if there is none.
    #[must_use]
    pub fn remove(&mut self, number: u64) -> Option<Parts> {
        let place = self.places.remove(&number)?;
        let parts = self.free_parts(number, &place);
        self.give(&place);
        Some(parts)
    }

    fn free_parts(&self, number: u64, place: &Place) -> Parts {
        let blocks = (0..place.parts).map(|part| self::part(number, place.sequence, (0, part as usize), &[])).collect();
        Parts { first: place.first, blocks }
    }
}

fn part(number: u64, sequence: u64, (parts, part): (usize, usize), bytes: &[u8]) -> Box<[u8; BLOCK_BYTES]> {
    let header = Header {
        magic: U32::new(CATALOG_MAGIC),
        version: U16::new(CATALOG_VERSION),
        parts: U16::new(parts as u16),
        part: U16::new(part as u16),
        bytes: U16::new(bytes.len() as u16),
        reserved: U32::ZERO,
        number: U64::new(number),
        sequence: U64::new(sequence),
    };
    let mut block = Box::new([0; BLOCK_BYTES]);
    block[..size_of::<Header>()].copy_from_slice(header.as_bytes());
    block[size_of::<Header>()..][..bytes.len()].copy_from_slice(bytes);
    block
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The blocks of a catalog on media.
    #[derive(Clone, Default)]
    struct Blocks(BTreeMap<u32, Box<[u8; BLOCK_BYTES]>>);

    impl Blocks {
        fn write(&mut self, parts: Parts) {
            for (block, bytes) in (parts.first..).zip(parts.blocks) {
                self.0.insert(block, bytes);
            }
        }

        fn read(&self) -> Result<(Catalog, Vec<Entry>, Vec<Parts>), CatalogError> {
            let mut reader = Reader::default();
            for (block, bytes) in &self.0 {
                reader.take(*block, bytes)?;
            }
            reader.finish(16)
        }

        fn notes(&self) -> Vec<(u64, usize)> {
            self.read().unwrap().1.iter().map(|entry| (entry.number, entry.note.len())).collect()
        }
    }

    fn runs(count: u32) -> TableRuns {
        let run = |unit| Run { chunk: ChunkId(unit), first: 8, units: 3, unit, stride: count };
        TableRuns { blocks: count * 12, runs: (0..count).map(run).collect() }
    }

    #[test]
    fn an_entry_survives_its_bytes() {
        let (mut catalog, mut blocks) = (Catalog::new(16), Blocks::default());
        for parts in catalog.put(5, b"name", Some(&runs(300))).unwrap() {
            blocks.write(parts);
        }
        assert_eq!(blocks.0.len(), 2, "300 runs take two parts");
        let (_, entries, stale) = blocks.read().unwrap();
        assert_eq!(entries, [Entry { number: 5, note: b"name".to_vec(), table: Some(runs(300)) }]);
        assert!(stale.is_empty());
    }

    #[test]
    fn the_bytes_on_media_are_these() {
        let parts = Catalog::new(16).put(0x1234, b"note", Some(&runs(1))).unwrap();
        let text = parts[0].blocks[0][..72].iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        expect_test::expect![[r#"4f46435402000100000024000000000034120000000000000100000000000000040000000100000"#]]
            .assert_eq(&text[..79]);
        assert_eq!(&text[88..96], "6e6f7465");
    }

    #[test]
    fn a_crash_between_the_steps_of_an_update_leaves_the_old_or_the_new_version() {
        let (mut catalog, mut blocks) = (Catalog::new(16), Blocks::default());
        catalog.put(1, &[0; 100], None).unwrap().into_iter().for_each(|parts| blocks.write(parts));
        catalog.put(2, &[0; 100], None).unwrap().into_iter().for_each(|parts| blocks.write(parts));
        let steps = catalog.put(1, &[0; 9000], None).unwrap();
        assert_eq!(steps.len(), 2, "a longer version is written elsewhere, and then the old place is free");
        assert_eq!(blocks.notes(), [(1, 100), (2, 100)]);
        blocks.write(steps[0].clone());
        assert_eq!(blocks.notes(), [(1, 9000), (2, 100)]);
        let stale = blocks.read().unwrap().2;
        assert_eq!(stale, steps[1..], "what was left to do is found");
        blocks.write(steps[1].clone());
        assert_eq!(blocks.notes(), [(1, 9000), (2, 100)]);
        assert!(blocks.read().unwrap().2.is_empty());
    }

    #[test]
    fn what_is_removed_leaves_its_room_and_its_number_is_not_used_again() {
        let (mut catalog, mut blocks) = (Catalog::new(4), Blocks::default());
        let number = catalog.new_number();
        catalog.put(number, &[0; 12_000], None).unwrap().into_iter().for_each(|parts| blocks.write(parts));
        assert_eq!(catalog.put(99, &[0; 9000], None), None, "one block is left");
        blocks.write(catalog.remove(number).unwrap());
        assert_eq!(catalog.remove(number), None);
        assert!(blocks.notes().is_empty());
        let (mut catalog, ..) = blocks.read().unwrap();
        assert_eq!(catalog.free_blocks(), 16);
        assert!(catalog.new_number() > number);
    }

    #[test]
    fn a_version_whose_sequence_nobody_would_read_is_not_written() {
        let (mut catalog, mut blocks) = (Catalog::new(16), Blocks::default());
        catalog.put(7, b"note", None).unwrap().into_iter().for_each(|parts| blocks.write(parts));
        blocks.0.get_mut(&0).unwrap()[24..32].copy_from_slice(&(COUNT_MAX - 1).to_le_bytes());
        let (mut catalog, entries, _) = blocks.read().unwrap();
        assert_eq!(catalog.put(7, b"another", None), None);
        assert_eq!(blocks.read().unwrap().1, entries);
    }

    #[test]
    fn damage_is_named() {
        let (mut catalog, mut blocks) = (Catalog::new(16), Blocks::default());
        catalog.put(7, &[0; 9000], None).unwrap().into_iter().for_each(|parts| blocks.write(parts));
        let check = |blocks: &Blocks, expected: &str| {
            assert_eq!(blocks.read().map(|_| ()).unwrap_err().to_string(), expected);
        };
        let mut missing = blocks.clone();
        missing.0.remove(&1);
        check(&missing, "entry 7 of the catalog, at its block 0: only 2 of its 3 parts are there");
        let mut other = blocks.clone();
        other.0.get_mut(&1).unwrap()[0] = 0;
        check(&other, "block 1 of the catalog holds something else (magic 0x54434600)");
        let mut newer = blocks.clone();
        newer.0.get_mut(&0).unwrap()[4] = 9;
        check(&newer, "block 0 of the catalog has format version 9; this program knows 2");
        let mut counted = blocks.clone();
        counted.0.get_mut(&0).unwrap()[24..32].fill(0xFF);
        check(
            &counted,
            "entry 7 of the catalog, at its block 0: number 7 and sequence 18446744073709551615: they cannot have come so far",
        );
        blocks.0.get_mut(&0).unwrap()[32..36].fill(0xFF);
        check(&blocks, "entry 7 of the catalog, at its block 0: its bytes make no sense");
    }
}
