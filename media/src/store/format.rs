//! How a drive file is laid out. All integers are little-endian.
//!
//! ```text
//! 0                 header, profile text behind it, an entry of 64 bytes for each part behind that
//! header_bytes      one record of 16 bytes for each chunk, in address order
//! journal_start     the journal: entries of whole pages of 4096 bytes, one behind the other
//! chunks_start      the chunks, chunk_bytes apart:
//!                     block 0 [4096 payload][oob]  block 1 [4096][oob] …  lost-block bitmap  to a multiple of 4096
//! ```
//!
//! Payload and out-of-band bytes of a block lie side by side, so that one system call reads or writes a run of blocks
//! with both. A chunk that holds nothing is a hole in the file.
//!
//! # Header
//! | bytes | field | |
//! |---|---|---|
//! | 0-7 | magic | `OFTLNAND` |
//! | 8-11 | version | [`VERSION`] |
//! | 12-15 | header_bytes | where the chunk records begin |
//! | 16-19 | groups | |
//! | 20-23 | pus_per_group | |
//! | 24-27 | chunks_per_pu | |
//! | 28-31 | blocks_per_chunk | |
//! | 32-35 | oob_bytes | |
//! | 36-39 | block_bytes | 4096 |
//! | 40-47 | seed | what chance follows from |
//! | 48-55 | chunks_start | where the first chunk begins |
//! | 56-63 | chunk_bytes | from one chunk to the next |
//! | 64-67 | profile_bytes | length of the profile's TOML text, which begins at byte 80 |
//! | 68-71 | parts | entries of parts behind the profile's text; 0 for a device that is one |
//! | 72-75 | journal_pages | pages of 4096 bytes that the journal has, before the chunks |
//! | 76-79 | crc | CRC32C of bytes 0 to 75, the profile text and the entries |
//!
//! # Entry of a part
//! | bytes | field | |
//! |---|---|---|
//! | 0 | kind | 1 block, 2 open-channel, 3 zoned |
//! | 1-7 | reserved | zero |
//! | 8-15 | groups | the first, and one past the last |
//! | 16-23 | pus | of each group: the first, and one past the last |
//! | 24-31 | id | what hosts recognise it by |
//! | 32-63 | name | zeroes behind it |
//!
//! # Chunk record
//! | bytes | field | |
//! |---|---|---|
//! | 0 | state | as in the chunk descriptor; 0 in a record that was never written: free and new |
//! | 1 | flags | bit 0: the lost-block bitmap counts |
//! | 2-3 | reserved | zero |
//! | 4-7 | write_pointer | |
//! | 8-11 | resets | |
//! | 12-15 | crc | CRC32C of the chunk's number, as 4 bytes, and bytes 0 to 11 |
//!
//! A record is written after the blocks that it speaks of and is small enough never to be torn: what it says is there, as
//! long as the machine that serves the file does not crash.
//!
//! # Entry of the journal
//! With `durability = "machine"` records and lost-block bitmaps reach their places only after a crash can no longer undo the
//! blocks that they speak of. Before that they are entries of the journal ([`super::commit`]):
//!
//! | bytes | field | |
//! |---|---|---|
//! | 0-7 | magic | `OFTLJRNL` |
//! | 8-15 | sequence | one more than that of the entry before; no number is used twice |
//! | 16-19 | records | how many follow |
//! | 20-23 | bitmaps | how many follow them |
//! | 24-27 | reserved | zero |
//! | 28-31 | crc | CRC32C of bytes 0 to 27 and of what follows |
//! | 32- | records | the number of a chunk, as 4 bytes, and its record |
//! | | bitmaps | the number of a chunk, as 4 bytes, and its lost-block bitmap |
//!
//! The entries that count are those from the journal's first page on whose sequences follow each other. They are applied to
//! records and bitmaps in that order; whether some of them have been before makes no difference.

use crate::contract::ChunkState;
use crate::partition::Partition;
use crate::parts::{PART_NAME_BYTES_MAX, PARTS_MAX, PartKind, PartLabel, check_parts};
use crate::profile::{Profile, ProfileError};
use openftl_core::checksum::crc32c;
use openftl_core::{BLOCK_BYTES, Geometry};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, Unaligned};

/// The first eight bytes of a drive file.
pub const MAGIC: [u8; 8] = *b"OFTLNAND";
/// The first eight bytes of an entry of the journal.
pub const JOURNAL_MAGIC: [u8; 8] = *b"OFTLJRNL";
/// The version of this layout. Version 3 brought the journal.
pub const VERSION: u32 = 3;
/// Room for the header with its profile.
pub const HEADER_BYTES: u32 = 1 << 16;
/// The longest profile text that the header has room for.
pub const PROFILE_BYTES_MAX: usize = HEADER_BYTES as usize - size_of::<Header>();
/// What an entry of the journal is a multiple of.
pub const PAGE_BYTES: u64 = 4096;
/// Pages that a journal has at least.
const JOURNAL_PAGES_MIN: u64 = 64;

/// The header of a drive file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, Unaligned)]
#[repr(C)]
pub struct Header {
    /// [`MAGIC`].
    pub magic: [u8; 8],
    /// [`VERSION`].
    pub version: U32,
    /// Where the records begin.
    pub header_bytes: U32,
    /// As in the geometry.
    pub groups: U32,
    /// As in the geometry.
    pub pus_per_group: U32,
    /// As in the geometry.
    pub chunks_per_pu: U32,
    /// As in the geometry.
    pub blocks_per_chunk: U32,
    /// As in the geometry.
    pub oob_bytes: U32,
    /// Bytes of a block.
    pub block_bytes: U32,
    /// What chance follows from.
    pub seed: U64,
    /// Where the first chunk begins.
    pub chunks_start: U64,
    /// From one chunk to the next.
    pub chunk_bytes: U64,
    /// Length of the profile text.
    pub profile_bytes: U32,
    /// Entries behind the profile text.
    pub parts: U32,
    /// Pages of the journal.
    pub journal_pages: U32,
    /// See the table.
    pub crc: U32,
}
const _: () = assert!(size_of::<Header>() == 80);

/// What is kept of a part.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, Unaligned)]
#[repr(C)]
pub struct PartEntry {
    /// [`PartKind`].
    pub kind: u8,
    /// Zero.
    pub reserved: [u8; 7],
    /// The first group, and one past the last.
    pub groups: [U32; 2],
    /// The first parallel unit of each group, and one past the last.
    pub pus: [U32; 2],
    /// As in the label.
    pub id: U64,
    /// Zeroes behind it.
    pub name: [u8; PART_NAME_BYTES_MAX],
}
const _: () = assert!(size_of::<PartEntry>() == 64);

/// What is kept of a chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, Unaligned)]
#[repr(C)]
pub struct Record {
    /// Chunk state, or 0.
    pub state: u8,
    /// [`LOST_BLOCKS`].
    pub flags: u8,
    /// Zero.
    pub reserved: U16,
    /// As in the chunk descriptor.
    pub write_pointer: U32,
    /// Erases so far.
    pub resets: U32,
    /// See the table.
    pub crc: U32,
}
const _: () = assert!(size_of::<Record>() == 16);

/// Record flag: the lost-block bitmap counts.
pub const LOST_BLOCKS: u8 = 1 << 0;

/// The beginning of an entry of the journal.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, Unaligned)]
#[repr(C)]
pub struct JournalHeader {
    /// [`JOURNAL_MAGIC`].
    pub magic: [u8; 8],
    /// One more than that of the entry before.
    pub sequence: U64,
    /// Records that follow.
    pub records: U32,
    /// Bitmaps that follow them.
    pub bitmaps: U32,
    /// Zero.
    pub reserved: U32,
    /// See the table.
    pub crc: U32,
}
const _: () = assert!(size_of::<JournalHeader>() == 32);

/// What an entry of the journal says of a chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, Unaligned)]
#[repr(C)]
pub struct JournalRecord {
    /// Which chunk.
    pub number: U32,
    /// Its record.
    pub record: Record,
}
const _: () = assert!(size_of::<JournalRecord>() == 20);

/// An entry of the journal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JournalEntry {
    /// Its number.
    pub sequence: u64,
    /// What became of chunks.
    pub records: Vec<JournalRecord>,
    /// The lost-block bitmaps that changed, by the number of their chunk.
    pub bitmaps: Vec<(u32, Vec<u8>)>,
}

impl JournalEntry {
    /// Its bytes, up to whole pages.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut header = JournalHeader {
            magic: JOURNAL_MAGIC,
            sequence: self.sequence.into(),
            records: (self.records.len() as u32).into(),
            bitmaps: (self.bitmaps.len() as u32).into(),
            reserved: 0.into(),
            crc: 0.into(),
        };
        let mut bytes = [header.as_bytes(), self.records.as_bytes()].concat();
        for (number, bitmap) in &self.bitmaps {
            bytes.extend_from_slice(&number.to_le_bytes());
            bytes.extend_from_slice(bitmap);
        }
        header.crc = journal_checksum(&bytes).into();
        bytes[..size_of::<JournalHeader>()].copy_from_slice(header.as_bytes());
        bytes.resize(bytes.len().next_multiple_of(PAGE_BYTES as usize), 0);
        bytes
    }

    /// Reads the entry that begins with `bytes`, and says how many pages it has. `None` if none begins there that can be
    /// trusted.
    #[must_use]
    pub fn parse(bytes: &[u8], bitmap_bytes: usize) -> Option<(JournalEntry, u64)> {
        let (header, behind) = JournalHeader::read_from_prefix(bytes).ok()?;
        if header.magic != JOURNAL_MAGIC {
            return None;
        }
        let records_bytes = (header.records.get() as usize).checked_mul(size_of::<JournalRecord>())?;
        let bitmaps_bytes = (header.bitmaps.get() as usize).checked_mul(4 + bitmap_bytes)?;
        let payload = behind.get(..records_bytes.checked_add(bitmaps_bytes)?)?;
        let used = size_of::<JournalHeader>() + payload.len();
        if header.crc.get() != journal_checksum(&bytes[..used]) {
            return None;
        }
        let (records, bitmaps) = payload.split_at(records_bytes);
        let mut entries = vec![JournalRecord::new_zeroed(); header.records.get() as usize];
        entries.as_mut_bytes().copy_from_slice(records);
        let bitmaps = bitmaps.chunks_exact(4 + bitmap_bytes).map(|entry| {
            let (number, bitmap) = entry.split_first_chunk().expect("it has a number");
            (u32::from_le_bytes(*number), bitmap.to_vec())
        });
        let entry = JournalEntry { sequence: header.sequence.get(), records: entries, bitmaps: bitmaps.collect() };
        Some((entry, (used as u64).div_ceil(PAGE_BYTES)))
    }
}

/// CRC32C of an entry whose last byte is the last of `bytes`, without its own field.
fn journal_checksum(bytes: &[u8]) -> u32 {
    let (header, behind) = bytes.split_at(size_of::<JournalHeader>());
    crc32c(&[&header[..size_of::<JournalHeader>() - 4], behind].concat())
}

/// Where everything lies in the file of a geometry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    /// Bytes of a block with its out-of-band bytes.
    pub block_stride: u64,
    /// Where the bitmap begins in a chunk.
    pub bitmap_start: u64,
    /// From one chunk to the next.
    pub chunk_bytes: u64,
    /// Bytes of a lost-block bitmap.
    pub bitmap_bytes: u64,
    /// Where the journal begins. It ends where the first chunk begins.
    pub journal_start: u64,
    /// Where the first chunk begins.
    pub chunks_start: u64,
    /// Bytes of the whole file.
    pub file_bytes: u64,
}

impl Layout {
    /// The layout for `geometry`.
    #[must_use]
    pub fn of(geometry: &Geometry) -> Layout {
        let blocks = u64::from(geometry.blocks_per_chunk);
        let block_stride = BLOCK_BYTES as u64 + u64::from(geometry.oob_bytes);
        let bitmap_start = blocks * block_stride;
        let bitmap_bytes = blocks.div_ceil(8);
        let chunk_bytes = (bitmap_start + bitmap_bytes).next_multiple_of(PAGE_BYTES);
        let chunks = geometry.blocks() / blocks;
        let journal_start =
            (u64::from(HEADER_BYTES) + chunks * size_of::<Record>() as u64).next_multiple_of(PAGE_BYTES);
        // One entry may speak of every chunk, and it has to fit.
        let entry_bytes_max =
            size_of::<JournalHeader>() as u64 + chunks * (size_of::<JournalRecord>() as u64 + 4 + bitmap_bytes);
        let journal_pages = entry_bytes_max.div_ceil(PAGE_BYTES).max(JOURNAL_PAGES_MIN);
        let chunks_start = journal_start + journal_pages * PAGE_BYTES;
        Layout {
            block_stride,
            bitmap_start,
            chunk_bytes,
            bitmap_bytes,
            journal_start,
            chunks_start,
            file_bytes: chunks_start + chunks * chunk_bytes,
        }
    }
}

/// What the start of a drive file says.
#[derive(Clone, PartialEq, Debug)]
pub struct Start {
    /// The profile that the drive was made with.
    pub profile: Profile,
    /// Its geometry, with as many chunks as the drive has.
    pub geometry: Geometry,
    /// What chance follows from.
    pub seed: u64,
    /// What it is divided into, if it is.
    pub parts: Vec<PartLabel>,
}

/// The start of a file that cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum StartError {
    /// Another magic.
    #[error("it does not begin with OFTLNAND")]
    Magic,
    /// Written by a newer version.
    #[error("format version {0}")]
    Version(u32),
    /// Written by an older version.
    #[error("format version {0}")]
    OldVersion(u32),
    /// Shorter than it has to be.
    #[error("fewer than {expected} bytes")]
    Truncated {
        /// Bytes that there should be.
        expected: u64,
    },
    /// Bytes that do not verify.
    #[error("{0}")]
    Damaged(&'static str),
    /// The profile is an impossible one.
    #[error(transparent)]
    Profile(#[from] ProfileError),
}

impl Start {
    /// Reads the first [`HEADER_BYTES`] of a file, or all of it if it is shorter.
    ///
    /// # Errors
    /// If it is no drive file, of a newer version, cut off or damaged.
    pub fn parse(bytes: &[u8]) -> Result<Start, StartError> {
        if bytes.first_chunk() != Some(&MAGIC) {
            return Err(StartError::Magic);
        }
        let truncated = |expected: usize| StartError::Truncated { expected: expected as u64 };
        let (header, rest) = Header::read_from_prefix(bytes).map_err(|_| truncated(size_of::<Header>()))?;
        let version = header.version.get();
        if version > VERSION {
            return Err(StartError::Version(version));
        }
        if version < VERSION {
            return Err(StartError::OldVersion(version));
        }
        let wrong_checksum = || StartError::Damaged("the header's checksum is wrong");
        let profile_bytes = header.profile_bytes.get() as usize;
        if profile_bytes > PROFILE_BYTES_MAX {
            return Err(wrong_checksum());
        }
        let (text, rest) =
            rest.split_at_checked(profile_bytes).ok_or_else(|| truncated(size_of::<Header>() + profile_bytes))?;
        let text = std::str::from_utf8(text).map_err(|_| wrong_checksum())?;
        let count = header.parts.get() as usize;
        if count > PARTS_MAX {
            return Err(wrong_checksum());
        }
        let (entries, _) = <[PartEntry]>::ref_from_prefix_with_elems(rest, count)
            .map_err(|_| truncated(size_of::<Header>() + profile_bytes + count * size_of::<PartEntry>()))?;
        if header.crc.get() != header.checksum(text, entries) {
            return Err(wrong_checksum());
        }
        let profile = Profile::parse(text)?;
        let geometry = profile.geometry(header.chunks_per_pu.get())?;
        let seed = header.seed.get();
        if Header::new(&geometry, seed, text, entries) != header {
            return Err(StartError::Damaged("the header's geometry is not that of its profile"));
        }
        let parts: Option<Vec<PartLabel>> = entries.iter().map(PartEntry::label).collect();
        let parts = parts.filter(|parts| check_parts(&geometry, parts).is_ok());
        let parts = parts.ok_or(StartError::Damaged("the device cannot be divided as its header says"))?;
        Ok(Start { profile, geometry, seed, parts })
    }
}

impl Header {
    /// The header for a device of `geometry`.
    #[must_use]
    pub fn new(geometry: &Geometry, seed: u64, profile: &str, parts: &[PartEntry]) -> Header {
        let layout = Layout::of(geometry);
        let mut header = Header {
            magic: MAGIC,
            version: VERSION.into(),
            header_bytes: HEADER_BYTES.into(),
            groups: geometry.groups.into(),
            pus_per_group: geometry.pus_per_group.into(),
            chunks_per_pu: geometry.chunks_per_pu.into(),
            blocks_per_chunk: geometry.blocks_per_chunk.into(),
            oob_bytes: geometry.oob_bytes.into(),
            block_bytes: (BLOCK_BYTES as u32).into(),
            seed: seed.into(),
            chunks_start: layout.chunks_start.into(),
            chunk_bytes: layout.chunk_bytes.into(),
            profile_bytes: (profile.len() as u32).into(),
            parts: (parts.len() as u32).into(),
            journal_pages: (((layout.chunks_start - layout.journal_start) / PAGE_BYTES) as u32).into(),
            crc: 0.into(),
        };
        header.crc = header.checksum(profile, parts).into();
        header
    }

    /// What the checksum has to be.
    #[must_use]
    pub fn checksum(&self, profile: &str, parts: &[PartEntry]) -> u32 {
        let fields = &self.as_bytes()[..size_of::<Header>() - 4];
        crc32c(&[fields, profile.as_bytes(), parts.as_bytes()].concat())
    }
}

impl PartEntry {
    /// The entry of a part.
    #[must_use]
    pub fn new(label: &PartLabel) -> PartEntry {
        let PartLabel { name, kind, partition: Partition { groups, pus }, id } = label;
        let mut bytes = [0; PART_NAME_BYTES_MAX];
        bytes[..name.as_str().len()].copy_from_slice(name.as_str().as_bytes());
        PartEntry {
            kind: *kind as u8,
            reserved: [0; 7],
            groups: [groups.start.into(), groups.end.into()],
            pus: [pus.start.into(), pus.end.into()],
            id: (*id).into(),
            name: bytes,
        }
    }

    /// The part that it speaks of, if it is one.
    #[must_use]
    pub fn label(&self) -> Option<PartLabel> {
        let kind = PartKind::ALL.into_iter().find(|kind| *kind as u8 == self.kind)?;
        let end = self.name.iter().position(|byte| *byte == 0).unwrap_or(self.name.len());
        let name = std::str::from_utf8(&self.name[..end]).ok()?.parse().ok()?;
        let range = |ends: [U32; 2]| ends[0].get()..ends[1].get();
        let partition = Partition { groups: range(self.groups), pus: range(self.pus) };
        let label = PartLabel { name, kind, partition, id: self.id.get() };
        (PartEntry::new(&label) == *self).then_some(label)
    }
}

impl Record {
    /// The record of chunk number `number`.
    #[must_use]
    pub fn new(number: u32, state: ChunkState, write_pointer: u32, resets: u32, lost_blocks: bool) -> Record {
        let mut record = Record {
            state: state as u8,
            flags: if lost_blocks { LOST_BLOCKS } else { 0 },
            reserved: 0.into(),
            write_pointer: write_pointer.into(),
            resets: resets.into(),
            crc: 0.into(),
        };
        record.crc = record.checksum(number).into();
        record
    }

    /// What the checksum has to be.
    #[must_use]
    pub fn checksum(&self, number: u32) -> u32 {
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&number.to_le_bytes());
        bytes[4..].copy_from_slice(&self.as_bytes()[..12]);
        crc32c(&bytes)
    }

    /// The state that the record speaks of, if it can be trusted.
    #[must_use]
    pub fn state(&self, number: u32, blocks_per_chunk: u32) -> Option<ChunkState> {
        if self.as_bytes().iter().all(|byte| *byte == 0) {
            return Some(ChunkState::Free);
        }
        let state = [ChunkState::Free, ChunkState::Closed, ChunkState::Open, ChunkState::Offline]
            .into_iter()
            .find(|state| *state as u8 == self.state)?;
        (self.crc.get() == self.checksum(number) && self.write_pointer.get() <= blocks_per_chunk).then_some(state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    fn check(bytes: &[u8], expected: Expect) {
        let lines: Vec<String> = bytes
            .chunks(16)
            .map(|line| line.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" "))
            .collect();
        expected.assert_eq(&lines.join("\n"));
    }

    #[test]
    fn the_bytes_of_a_header_never_change() {
        let header = Header::new(&Geometry::tiny(), 0x0102_0304_0506_0708, "name = \"x\"\n", &[]);
        check(
            header.as_bytes(),
            expect![[r#"
                4f 46 54 4c 4e 41 4e 44 03 00 00 00 00 00 01 00
                02 00 00 00 02 00 00 00 08 00 00 00 10 00 00 00
                10 00 00 00 00 10 00 00 08 07 06 05 04 03 02 01
                00 10 05 00 00 00 00 00 00 10 01 00 00 00 00 00
                0b 00 00 00 00 00 00 00 40 00 00 00 20 7b 7c f8"#]],
        );
    }

    fn label() -> PartLabel {
        PartLabel {
            name: "flash".parse().unwrap(),
            kind: PartKind::OpenChannel,
            partition: Partition { groups: 1..2, pus: 0..2 },
            id: 0x1112_1314_1516_1718,
        }
    }

    #[test]
    fn the_bytes_of_a_part_and_of_a_header_with_parts_never_change() {
        let entry = PartEntry::new(&label());
        check(
            entry.as_bytes(),
            expect![[r#"
                02 00 00 00 00 00 00 00 01 00 00 00 02 00 00 00
                00 00 00 00 02 00 00 00 18 17 16 15 14 13 12 11
                66 6c 61 73 68 00 00 00 00 00 00 00 00 00 00 00
                00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00"#]],
        );
        let header = Header::new(&Geometry::tiny(), 0x0102_0304_0506_0708, "name = \"x\"\n", &[entry]);
        check(
            header.as_bytes(),
            expect![[r#"
                4f 46 54 4c 4e 41 4e 44 03 00 00 00 00 00 01 00
                02 00 00 00 02 00 00 00 08 00 00 00 10 00 00 00
                10 00 00 00 00 10 00 00 08 07 06 05 04 03 02 01
                00 10 05 00 00 00 00 00 00 10 01 00 00 00 00 00
                0b 00 00 00 01 00 00 00 40 00 00 00 0c e6 a0 c4"#]],
        );
    }

    #[test]
    fn parts_come_back_as_they_were_and_others_are_damage() {
        let tiny = Profile::builtin("tiny").unwrap();
        let (text, geometry) = (tiny.to_toml(), tiny.geometry(8).unwrap());
        let parse = |entries: &[PartEntry]| {
            let header = Header::new(&geometry, 7, &text, entries);
            Start::parse(&[header.as_bytes(), text.as_bytes(), entries.as_bytes()].concat())
        };
        let entry = PartEntry::new(&label());
        assert_eq!(parse(&[entry]).unwrap().parts, [label()]);
        assert_eq!(parse(&[]).unwrap().parts, []);
        let impossible = Err(StartError::Damaged("the device cannot be divided as its header says"));
        for wrong in [
            PartEntry { kind: 9, ..entry },
            PartEntry { name: [0; 32], ..entry },
            PartEntry { reserved: [1; 7], ..entry },
            PartEntry { groups: [1.into(), 9.into()], ..entry },
            PartEntry { pus: [1.into(), 1.into()], ..entry },
        ] {
            assert_eq!(parse(&[wrong]), impossible, "{wrong:?}");
        }
        assert_eq!(parse(&[entry, entry]), impossible, "two have the same");
        let header = Header::new(&geometry, 7, &text, &[entry]);
        let cut_off = Start::parse(&[header.as_bytes(), text.as_bytes(), &entry.as_bytes()[..63]].concat());
        assert!(matches!(cut_off, Err(StartError::Truncated { .. })), "{cut_off:?}");
        let damaged = PartEntry { id: 1.into(), ..entry };
        let damaged = Start::parse(&[header.as_bytes(), text.as_bytes(), damaged.as_bytes()].concat());
        assert_eq!(damaged, Err(StartError::Damaged("the header's checksum is wrong")));
    }

    #[test]
    fn the_bytes_of_a_record_never_change() {
        check(
            Record::new(7, ChunkState::Open, 12, 300, true).as_bytes(),
            expect!["04 01 00 00 0c 00 00 00 2c 01 00 00 a4 a3 1e 59"],
        );
    }

    #[test]
    fn a_record_is_trusted_only_in_its_own_place_and_undamaged() {
        let record = Record::new(7, ChunkState::Closed, 16, 3, false);
        assert_eq!(record.state(7, 16), Some(ChunkState::Closed));
        assert_eq!(record.state(8, 16), None, "another chunk's record");
        assert_eq!(Record { resets: 4.into(), ..record }.state(7, 16), None, "damaged");
        assert_eq!(Record::new_zeroed().state(7, 16), Some(ChunkState::Free), "never written");
        assert_eq!(Record::new(7, ChunkState::Closed, 17, 3, false).state(7, 16), None, "beyond the chunk");
    }

    fn entry() -> JournalEntry {
        let record = |number: u32, write_pointer| JournalRecord {
            number: number.into(),
            record: Record::new(number, ChunkState::Open, write_pointer, 300, number == 9),
        };
        JournalEntry { sequence: 77, records: vec![record(7, 12), record(9, 4)], bitmaps: vec![(9, vec![0b1010, 0])] }
    }

    #[test]
    fn the_bytes_of_an_entry_of_the_journal_never_change() {
        let bytes = entry().encode();
        assert_eq!(bytes.len() as u64, PAGE_BYTES);
        check(
            &bytes[..80],
            expect![[r#"
                4f 46 54 4c 4a 52 4e 4c 4d 00 00 00 00 00 00 00
                02 00 00 00 01 00 00 00 00 00 00 00 fd a1 24 0e
                07 00 00 00 04 00 00 00 0c 00 00 00 2c 01 00 00
                65 54 6f ce 09 00 00 00 04 01 00 00 04 00 00 00
                2c 01 00 00 bf 49 30 b5 09 00 00 00 0a 00 00 00"#]],
        );
        assert!(bytes[80..].iter().all(|byte| *byte == 0));
    }

    #[test]
    fn an_entry_of_the_journal_is_trusted_only_whole() {
        let bytes = entry().encode();
        assert_eq!(JournalEntry::parse(&bytes, 2), Some((entry(), 1)));
        for at in 0..78 {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert_eq!(JournalEntry::parse(&damaged, 2), None, "byte {at}");
        }
        assert_eq!(JournalEntry::parse(&bytes[..70], 2), None, "cut off");
        let large = JournalEntry { records: vec![entry().records[0]; 1000], ..entry() };
        assert_eq!(JournalEntry::parse(&large.encode(), 2), Some((large, 5)));
    }
}
