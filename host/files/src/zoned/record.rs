//! Records of the catalog, and the batches that they are written in.
//!
//! A zone of the catalog is batches, one behind the other from its first block on. A batch is whole blocks:
//!
//! | bytes | field |
//! |---|---|
//! | 0-3 | magic `OFZB` |
//! | 4 | version |
//! | 5-7 | 0 |
//! | 8-15 | generation: how often the catalog has begun anew in the other zone |
//! | 16-19 | number of the batch in its zone, from 0 on; batch 0 has all that there was |
//! | 20-23 | blocks of the batch |
//! | 24-27 | bytes of its records |
//! | 28-31 | CRC32C of the header, with 0 here, and of the records |
//! | 32- | records; zeroes up to the end of the last block |
//!
//! A record says that a file is so from now on, or that it is gone:
//!
//! | bytes | field |
//! |---|---|
//! | 0-7 | number of the file |
//! | 8 | kind: 0 table, 1 log, 2 folder; 255: gone, and all below is 0 |
//! | 9 | 0 |
//! | 10-11 | length of the path |
//! | 12-13 | bytes of the tail |
//! | 14-15 | 0 |
//! | 16-19 | extents |
//! | 20-23 | 0 |
//! | 24-31 | bytes of the file |
//! | 32-39 | when it was last written, seconds since 1970 |
//! | 40- | the path |
//! | behind it, 12 bytes an extent | zone, first block in it, blocks |
//! | behind them | the tail: the last bytes of the file, which are in no block |

use crate::FileKind;
use openftl_core::BLOCK_BYTES;
use openftl_core::checksum::crc32c;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// `OFZB`, little-endian.
pub const BATCH_MAGIC: u32 = u32::from_le_bytes(*b"OFZB");
/// The version of this layout.
pub const BATCH_VERSION: u8 = 1;
/// The kind of a record of a file that is gone.
const GONE: u8 = 255;

/// Blocks of a zone that follow each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ZoneExtent {
    /// The zone.
    pub zone: u32,
    /// The first block, counted in its zone.
    pub first: u32,
    /// How many.
    pub blocks: u32,
}

#[derive(FromBytes, IntoBytes, Immutable, Unaligned, KnownLayout, Clone, Copy)]
#[repr(C)]
struct BatchHeader {
    magic: U32,
    version: u8,
    reserved: [u8; 3],
    generation: U64,
    number: U32,
    blocks: U32,
    bytes: U32,
    crc: U32,
}

const _: () = assert!(size_of::<BatchHeader>() == 32);

#[derive(FromBytes, IntoBytes, Immutable, Unaligned, KnownLayout, Clone, Copy)]
#[repr(C)]
struct RecordHeader {
    file: U64,
    kind: u8,
    reserved: u8,
    path: U16,
    tail: U16,
    reserved_too: U16,
    extents: U32,
    reserved_as_well: U32,
    bytes: U64,
    modified: U64,
}

const _: () = assert!(size_of::<RecordHeader>() == 40);

#[derive(FromBytes, IntoBytes, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
struct ExtentBytes {
    zone: U32,
    first: U32,
    blocks: U32,
}

/// What is recorded of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileRecord {
    /// Where it is found.
    pub path: String,
    /// What it is.
    pub kind: FileKind,
    /// Its size.
    pub bytes: u64,
    /// When it was last written, in seconds since 1970.
    pub modified: u64,
    /// Where it lies, in its order.
    pub extents: Vec<ZoneExtent>,
    /// Its end, if that is not in its extents: less than a block.
    pub tail: Vec<u8>,
}

/// Something that is no batch or no record, and what is wrong with it.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RecordError {
    /// Of somebody else.
    #[error("magic {0:#010x}, which is of no catalog of files")]
    Magic(u32),
    /// Of another version.
    #[error("format version {0}; this program knows {BATCH_VERSION}")]
    Version(u8),
    /// Not what was written.
    #[error("the checksum of a batch is {found:#010x}, and its bytes have {computed:#010x}")]
    Checksum {
        /// The one on media.
        found: u32,
        /// That of the bytes.
        computed: u32,
    },
    /// A batch that does not belong where it is.
    #[error("batch {found} is where batch {expected} should be")]
    Order {
        /// Its number.
        found: u32,
        /// What the number should be.
        expected: u32,
    },
    /// Impossible.
    #[error("a record of file {0} that makes no sense")]
    Record(u64),
    /// Impossible.
    #[error("a batch whose lengths make no sense")]
    Length,
}

/// The record that a file is gone.
#[must_use]
pub fn gone(file: u64) -> Vec<u8> {
    header(file, GONE).as_bytes().to_vec()
}

fn header(file: u64, kind: u8) -> RecordHeader {
    RecordHeader {
        file: U64::new(file),
        kind,
        reserved: 0,
        path: U16::ZERO,
        tail: U16::ZERO,
        reserved_too: U16::ZERO,
        extents: U32::ZERO,
        reserved_as_well: U32::ZERO,
        bytes: U64::ZERO,
        modified: U64::ZERO,
    }
}

impl FileRecord {
    /// Its bytes.
    #[must_use]
    pub fn encode(&self, file: u64) -> Vec<u8> {
        let header = RecordHeader {
            path: U16::new(self.path.len() as u16),
            tail: U16::new(self.tail.len() as u16),
            extents: U32::new(self.extents.len() as u32),
            bytes: U64::new(self.bytes),
            modified: U64::new(self.modified),
            ..header(file, self.kind as u8)
        };
        let mut bytes = header.as_bytes().to_vec();
        bytes.extend_from_slice(self.path.as_bytes());
        for ZoneExtent { zone, first, blocks } in &self.extents {
            let extent = ExtentBytes { zone: U32::new(*zone), first: U32::new(*first), blocks: U32::new(*blocks) };
            bytes.extend_from_slice(extent.as_bytes());
        }
        bytes.extend_from_slice(&self.tail);
        bytes
    }

    /// Reads the record at the beginning of `bytes`: of which file, what of it (`None`: it is gone), and the bytes behind the record.
    ///
    /// # Errors
    /// If it is none.
    pub fn decode(bytes: &[u8]) -> Result<(u64, Option<FileRecord>, &[u8]), RecordError> {
        let (header, rest) = RecordHeader::ref_from_prefix(bytes).map_err(|_| RecordError::Length)?;
        let file = header.file.get();
        let wrong = || RecordError::Record(file);
        if header.kind == GONE {
            return Ok((file, None, rest));
        }
        let kind = FileKind::from_byte(header.kind).ok_or_else(wrong)?;
        let (path, rest) = rest.split_at_checked(header.path.get().into()).ok_or_else(wrong)?;
        let path = std::str::from_utf8(path).map_err(|_| wrong())?.to_owned();
        if crate::path::normal(&path).as_deref() != Ok(path.as_str()) {
            return Err(wrong());
        }
        let count = header.extents.get() as usize;
        let (extents, rest) = <[ExtentBytes]>::ref_from_prefix_with_elems(rest, count).map_err(|_| wrong())?;
        let (tail, rest) = rest.split_at_checked(header.tail.get().into()).ok_or_else(wrong)?;
        let extents: Vec<ZoneExtent> = extents
            .iter()
            .map(|extent| ZoneExtent {
                zone: extent.zone.get(),
                first: extent.first.get(),
                blocks: extent.blocks.get(),
            })
            .collect();
        let blocks: u64 = extents.iter().map(|extent| u64::from(extent.blocks)).sum();
        let (bytes, in_blocks) = (header.bytes.get(), blocks * BLOCK_BYTES as u64);
        // The last block of a table may not be whole. A log file goes on behind whole blocks.
        let fits = match (kind, tail.len()) {
            (FileKind::Table, 0) => bytes <= in_blocks && in_blocks - bytes < BLOCK_BYTES as u64,
            (FileKind::Log, tail) => tail < BLOCK_BYTES && bytes == in_blocks + tail as u64,
            (FileKind::Folder, tail) => tail == 0 && bytes == 0 && in_blocks == 0,
            (FileKind::Table, _) => false,
        };
        if !fits || extents.iter().any(|extent| extent.blocks == 0) {
            return Err(wrong());
        }
        let modified = header.modified.get();
        Ok((file, Some(FileRecord { path, kind, bytes, modified, extents, tail: tail.to_vec() }), rest))
    }
}

/// Blocks of a batch with so many bytes of records.
#[must_use]
pub fn batch_blocks(record_bytes: usize) -> usize {
    (size_of::<BatchHeader>() + record_bytes).div_ceil(BLOCK_BYTES)
}

/// A batch as it is written, in whole blocks.
#[must_use]
pub fn encode_batch<'r>(generation: u64, number: u32, records: impl Iterator<Item = &'r [u8]>) -> Vec<u8> {
    let mut batch = vec![0; size_of::<BatchHeader>()];
    records.for_each(|record| batch.extend_from_slice(record));
    let bytes = batch.len() - size_of::<BatchHeader>();
    let mut header = BatchHeader {
        magic: U32::new(BATCH_MAGIC),
        version: BATCH_VERSION,
        reserved: [0; 3],
        generation: U64::new(generation),
        number: U32::new(number),
        blocks: U32::new(batch_blocks(bytes) as u32),
        bytes: U32::new(bytes as u32),
        crc: U32::ZERO,
    };
    batch[..size_of::<BatchHeader>()].copy_from_slice(header.as_bytes());
    header.crc = U32::new(crc32c(&batch));
    batch[..size_of::<BatchHeader>()].copy_from_slice(header.as_bytes());
    batch.resize(batch_blocks(bytes) * BLOCK_BYTES, 0);
    batch
}

/// What the first block of a batch says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BatchHead {
    /// How often the catalog has begun anew.
    pub generation: u64,
    /// Its number in its zone.
    pub number: u32,
    /// Blocks of it.
    pub blocks: u32,
}

/// Reads the head of the batch that begins with `block`.
///
/// # Errors
/// If it is none.
pub fn decode_head(block: &[u8]) -> Result<BatchHead, RecordError> {
    let (header, _) = BatchHeader::ref_from_prefix(block).map_err(|_| RecordError::Length)?;
    if header.magic.get() != BATCH_MAGIC {
        return Err(RecordError::Magic(header.magic.get()));
    }
    if header.version != BATCH_VERSION {
        return Err(RecordError::Version(header.version));
    }
    let (blocks, bytes) = (header.blocks.get(), header.bytes.get());
    if blocks == 0 || batch_blocks(bytes as usize) != blocks as usize {
        return Err(RecordError::Length);
    }
    Ok(BatchHead { generation: header.generation.get(), number: header.number.get(), blocks })
}

/// The records of a whole batch.
///
/// # Errors
/// If it does not verify.
pub fn decode_batch(batch: &[u8]) -> Result<&[u8], RecordError> {
    let (header, rest) = BatchHeader::ref_from_prefix(batch).map_err(|_| RecordError::Length)?;
    let records = rest.get(..header.bytes.get() as usize).ok_or(RecordError::Length)?;
    let mut summed = BatchHeader { crc: U32::ZERO, ..*header }.as_bytes().to_vec();
    summed.extend_from_slice(records);
    let (found, computed) = (header.crc.get(), crc32c(&summed));
    if found == computed { Ok(records) } else { Err(RecordError::Checksum { found, computed }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> FileRecord {
        FileRecord {
            path: "/db/000012.log".to_owned(),
            kind: FileKind::Log,
            bytes: 5 * 4096 + 3,
            modified: 1_790_000_000,
            extents: vec![ZoneExtent { zone: 2, first: 7, blocks: 4 }, ZoneExtent { zone: 9, first: 0, blocks: 1 }],
            tail: vec![1, 2, 3],
        }
    }

    #[test]
    fn records_survive_their_bytes_one_behind_the_other() {
        let mut bytes = record().encode(12);
        bytes.extend(gone(13));
        let (file, found, rest) = FileRecord::decode(&bytes).unwrap();
        assert_eq!((file, found), (12, Some(record())));
        assert_eq!(FileRecord::decode(rest), Ok((13, None, &[][..])));
    }

    #[test]
    fn records_that_are_cut_short_or_impossible_are_refused() {
        let bytes = record().encode(12);
        for length in 0..bytes.len() {
            assert!(FileRecord::decode(&bytes[..length]).is_err(), "{length} bytes");
        }
        let wrong = |change: fn(&mut FileRecord)| {
            let mut record = record();
            change(&mut record);
            assert_eq!(FileRecord::decode(&record.encode(12)), Err(RecordError::Record(12)));
        };
        wrong(|record| record.path = "db".to_owned());
        wrong(|record| record.bytes += 1);
        wrong(|record| record.tail = vec![0; BLOCK_BYTES]);
        wrong(|record| record.extents[0].blocks = 0);
        wrong(|record| record.tail.clear());
    }

    #[test]
    fn a_batch_has_these_bytes_and_a_changed_one_does_not_verify() {
        let records = [record().encode(12), gone(13)];
        let mut batch = encode_batch(7, 2, records.iter().map(Vec::as_slice));
        assert_eq!(batch.len(), BLOCK_BYTES);
        assert_eq!(&batch[..28], b"OFZB\x01\0\0\0\x07\0\0\0\0\0\0\0\x02\0\0\0\x01\0\0\0\x79\0\0\0");
        assert_eq!(decode_head(&batch), Ok(BatchHead { generation: 7, number: 2, blocks: 1 }));
        assert_eq!(decode_batch(&batch).unwrap(), records.concat());
        batch[50] ^= 1;
        assert!(matches!(decode_batch(&batch), Err(RecordError::Checksum { .. })));
        batch[0] = b'X';
        assert!(matches!(decode_head(&batch), Err(RecordError::Magic(_))));
    }
}
