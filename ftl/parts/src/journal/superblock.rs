//! The superblock: the one thing that recovery has to find by itself.
//!
//! It says whose flash this is, where the newest complete checkpoint is and which chunks hold the log since. It is never
//! overwritten: each new one is appended to two pairs of chunks in fixed places, each pair written in turns, in two
//! groups where the device has them. The valid one with the highest sequence counts.
//!
//! Places: the first chunks (of [`SEARCH_CHUNKS`]) that are not offline on the first parallel unit of group 0 and of
//! group 1; on a device with one group, on its first parallel unit alone.
//!
//! # On media
//! A record is a whole number of WS_MIN units, kind superblock, address = index of the block in the record:
//!
//! | bytes | field |
//! |---|---|
//! | 0-7 | magic `OFTLSUPR` |
//! | 8-11 | version |
//! | 12-15 | length in bytes |
//! | 16-19 | CRC32C of the whole length with this field 0 |
//! | 20-23 | flags: bit 0, the drive was closed cleanly; bit 1, the checkpoint has seals of copied blocks; bit 2, map entries have five bytes; bits 8 to 15, what else the tenant says |
//! | 24-31 | drive |
//! | 32-39 | sequence of the superblock |
//! | 40-47 | capacity in logical blocks |
//! | 48-51 | over-provisioning in millionths |
//! | 52-67 | geometry: groups, PUs per group, chunks per PU, blocks per chunk |
//! | 68-71 | blocks of the checkpoint; 0 = nothing was ever written |
//! | 72-79 | sequence of the checkpoint |
//! | 80-87 | first LSN of the log after the checkpoint |
//! | 88-95 | sequence that data had reached at the checkpoint: host blocks written, and what each crash skipped |
//! | 96-103 | the LSN below which the log was durable |
//! | 104-111 | number of extents of each copy of the checkpoint |
//! | 112-119 | number of chunks of each copy of the log |
//! | 120-123 | number of gaps in the log |
//! | 124-127 | logical blocks of the catalog of a table drive |
//! | 128-143 | the chunks for superblocks: two of place 0, two of place 1; FFFF_FFFFh = none |
//! | 144-151 | log blocks after which a checkpoint is due; 0 = as many as the map has |
//! | 152 | placement: its place in [`PlacementName::ALL`] |
//! | 153 | handles |
//! | 154-155 | objects |
//! | 156-159 | entries of a map page; 0 = the checkpoint has the whole map |
//! | 160-167 | bytes of memory for a map on media, as formatted; 0 = the checkpoint has the whole map |
//! | 168 | which pages of it stay in memory: the place of the policy in [`CachePolicy::ALL`] |
//! | 169-175 | 0 |
//! | 176-287 | the drive's [life](crate::accounts::life::Life), 14 counts (8 bytes each) |
//! | 288- | extents of copy 0, of copy 1: chunk, first block, blocks (4 bytes each) |
//! | | log chunks of copy 0, of copy 1 (4 bytes each) |
//! | | gaps: first LSN that does not count, first that counts again (8 bytes each) |

use crate::accounts::life::{Life, LifeBytes};
use crate::map::{Width, cache::CachePolicy, directory::PageSize};
use crate::placement_name::{HANDLES_MAX, OBJECTS_MAX, PlacementName};
use crate::words::{METADATA_COPIES, TenantNote};
use openftl_core::checksum::crc32c;
use openftl_core::units::Share;
use openftl_core::{BLOCK_BYTES, ChunkId, Geometry};
use rustc_hash::FxHashMap;
use std::mem::offset_of;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// `OFTLSUPR`, little-endian.
pub const SUPERBLOCK_MAGIC: u64 = u64::from_le_bytes(*b"OFTLSUPR");
/// The version of the drive's format.
pub const SUPERBLOCK_VERSION: u32 = 6;
/// Chunks at the beginning of a parallel unit in which superblocks are looked for.
pub const SEARCH_CHUNKS: u32 = 8;
/// The longest record.
pub const SUPERBLOCK_BYTES_MAX: usize = 64 * BLOCK_BYTES;
/// Gaps in the log that a superblock remembers; a recovery that would need one more takes a checkpoint.
pub const LOG_GAPS_MAX: usize = 64;

/// No count of a drive comes so far: half of what the out-of-band bytes have room for.
pub const COUNTS_END: u64 = 1 << 47;

const CLEAN: u32 = 1;
const COPIES: u32 = 2;
const WIDE: u32 = 4;
/// In the flags, behind which there are 8 bits of the tenant.
const MORE_SHIFT: u32 = 8;

#[derive(FromBytes, IntoBytes, Immutable, Unaligned, KnownLayout, Clone, Copy)]
#[repr(C)]
struct Header {
    magic: U64,
    version: U32,
    bytes: U32,
    crc: U32,
    flags: U32,
    drive: U64,
    sequence: U64,
    capacity_blocks: U64,
    over_provisioning: U32,
    groups: U32,
    pus_per_group: U32,
    chunks_per_pu: U32,
    blocks_per_chunk: U32,
    checkpoint_blocks: U32,
    checkpoint_sequence: U64,
    first_lsn: U64,
    position: U64,
    durable_below: U64,
    extents: [U32; METADATA_COPIES],
    log_chunks: [U32; METADATA_COPIES],
    log_gaps: U32,
    catalog_blocks: U32,
    places: [U32; 4],
    checkpoint_log_blocks: U64,
    placement: u8,
    handles: u8,
    objects_max: U16,
    map_page_entries: U32,
    map_bytes: U64,
    map_cache: u8,
    tenant: u8,
    tenant_words: [U16; 3],
    life: LifeBytes,
}

const _: () = assert!(size_of::<Header>() == 288);

#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, Unaligned)]
#[repr(C)]
struct ExtentBytes {
    chunk: U32,
    first: U32,
    blocks: U32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, Unaligned)]
#[repr(C)]
struct GapBytes {
    end: U64,
    next: U64,
}

/// Consecutive blocks of one chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Extent {
    /// Packed chunk address.
    pub chunk: u32,
    /// First block in it.
    pub first: u32,
    /// How many.
    pub blocks: u32,
}

/// Where a checkpoint is.
#[derive(Clone, PartialEq, Eq, Default, Debug, serde::Serialize)]
pub struct CheckpointPlace {
    /// Counts checkpoints since the drive was formatted; 0 = none yet.
    pub sequence: u64,
    /// Blocks of its body; each says its own index, so failed writes between them do no harm.
    pub blocks: u32,
    /// Where to look for them, in each of the copies.
    pub copies: [Vec<Extent>; METADATA_COPIES],
}

impl CheckpointPlace {
    /// The extents of both copies.
    pub fn extents(&self) -> impl Iterator<Item = &Extent> {
        self.copies.iter().flatten()
    }
}

/// Log sequence numbers that do not count: what a recovery found beyond the end of the log, and might have found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
pub struct LogGap {
    /// The first that does not count.
    pub end: u64,
    /// The first that counts again.
    pub next: u64,
}

/// What a superblock says.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Superblock {
    /// Which drive.
    pub drive: u64,
    /// Counts superblocks since the drive was formatted.
    pub sequence: u64,
    /// Logical blocks.
    pub capacity_blocks: u64,
    /// As formatted.
    pub over_provisioning: Share,
    /// Logical blocks in which a table drive keeps its catalog; 0: a block drive.
    pub catalog_blocks: u32,
    /// Which tenant has a catalog, and what it was formatted for.
    #[serde(skip_serializing_if = "is_default")]
    pub tenant: TenantNote,
    /// Groups, PUs per group, chunks per PU, blocks per chunk.
    pub geometry: [u32; 4],
    /// Whether the drive was closed cleanly, with nothing in its log.
    pub clean: bool,
    /// Whether the drive was formatted for blocks that the device copies: the checkpoint has [seals](crate::flash::seals) of them.
    pub copies: bool,
    /// The newest complete checkpoint.
    pub checkpoint: CheckpointPlace,
    /// The first LSN to replay on it.
    pub first_lsn: u64,
    /// The sequence that data had reached at the checkpoint. It counts host blocks, and skips some at each recovery, so that
    /// no two versions of a block ever have the same.
    pub position: u64,
    /// The LSN below which the log was durable when this was written.
    pub durable_below: u64,
    /// Chunks of each copy of the log, oldest first.
    pub log_chunks: [Vec<u32>; METADATA_COPIES],
    /// Numbers of the log since the checkpoint that do not count, in order.
    pub log_gaps: Vec<LogGap>,
    /// Chunks for superblocks: two of place 0, two of place 1; `u32::MAX` = none.
    pub places: [u32; 4],
    /// How the map is kept on media; `None`: it is in the checkpoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub map: Option<MapOnMedia>,
    /// What else sized the drive.
    pub sizing: Sizing,
    /// What the drive had done when this was written.
    pub life: Life,
}

fn is_default(note: &TenantNote) -> bool {
    *note == TenantNote::default()
}

/// A map on media, as its drive was formatted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
pub struct MapOnMedia {
    /// The size of its pages.
    pub page_entries: PageSize,
    /// Bytes of memory for it, where nothing else is said.
    pub memory_bytes: u64,
    /// Which pages stay in memory, where nothing else is said.
    pub cache: CachePolicy,
}

/// The settings besides capacity and over-provisioning that a drive was sized for when it was formatted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Sizing {
    /// Log blocks after which a checkpoint is due; `None`: as many as the map has.
    pub checkpoint_log_blocks: Option<u64>,
    /// What shares chunks.
    pub placement: PlacementName,
    /// Handles that writes may carry.
    pub handles: u8,
    /// Objects that may be written at a time.
    pub objects_max: u16,
}

/// A superblock that cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SuperblockError {
    /// No superblock at all.
    #[error("no superblock here")]
    Magic,
    /// Written by another version.
    #[error("the drive has format version {0}, this program knows version {SUPERBLOCK_VERSION}: {fix}", fix = fix(*.0))]
    Version(u32),
    /// Shorter than it says, or too long.
    #[error("a superblock of {0} bytes")]
    Length(u32),
    /// Whole, and of things that the device does not have.
    #[error("superblock {sequence} cannot be true: {reason}")]
    Untrue {
        /// Which superblock.
        sequence: u64,
        /// Which of its fields, and what it says.
        reason: String,
    },
    /// Damaged.
    #[error("superblock with CRC32C {found:#010x} where {expected:#010x} was expected")]
    Crc {
        /// In the superblock.
        found: u32,
        /// Of its contents.
        expected: u32,
    },
}

fn fix(version: u32) -> &'static str {
    if version > SUPERBLOCK_VERSION {
        "use a newer OpenFTL"
    } else {
        "use the older OpenFTL that wrote it, or copy its data and create it anew (`openftl create`)"
    }
}

impl Superblock {
    /// The size of map pages; `None`: the map is in the checkpoint.
    #[must_use]
    pub fn map_page(&self) -> Option<PageSize> {
        self.map.map(|map| map.page_entries)
    }

    /// The four counts of `geometry` that a superblock remembers.
    #[must_use]
    pub fn geometry_of(geometry: &Geometry) -> [u32; 4] {
        [geometry.groups, geometry.pus_per_group, geometry.chunks_per_pu, geometry.blocks_per_chunk]
    }

    /// Log chunks that a record has room for beside `extents`. It is whole units, of one chunk.
    #[must_use]
    pub fn log_chunks_max(geometry: &Geometry, extents: u64) -> u64 {
        let blocks = (SUPERBLOCK_BYTES_MAX / BLOCK_BYTES).min(geometry.blocks_per_chunk as usize);
        let bytes = blocks / geometry.ws_min as usize * geometry.ws_min as usize * BLOCK_BYTES;
        let left = (bytes as u64).saturating_sub(size_of::<Header>() as u64);
        let others = extents.saturating_mul(size_of::<ExtentBytes>() as u64);
        left.saturating_sub(others.saturating_add((LOG_GAPS_MAX * size_of::<GapBytes>()) as u64))
            / size_of::<U32>() as u64
    }

    /// The record, padded with zeroes to whole blocks.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; size_of::<Header>()];
        for Extent { chunk, first, blocks } in self.checkpoint.extents() {
            let extent = ExtentBytes { chunk: U32::new(*chunk), first: U32::new(*first), blocks: U32::new(*blocks) };
            bytes.extend_from_slice(extent.as_bytes());
        }
        for chunk in self.log_chunks.iter().flatten() {
            bytes.extend_from_slice(U32::new(*chunk).as_bytes());
        }
        for LogGap { end, next } in &self.log_gaps {
            bytes.extend_from_slice(GapBytes { end: U64::new(*end), next: U64::new(*next) }.as_bytes());
        }
        let length = bytes.len();
        let count = |len: usize| U32::new(len as u32);
        let (clean, copies) = (u32::from(self.clean) * CLEAN, u32::from(self.copies) * COPIES);
        let wide = u32::from(self.map.is_some_and(|map| map.page_entries.width() == Width::Wide)) * WIDE;
        let flags = clean | copies | wide | u32::from(self.tenant.more) << MORE_SHIFT;
        let header = Header {
            magic: U64::new(SUPERBLOCK_MAGIC),
            version: U32::new(SUPERBLOCK_VERSION),
            bytes: U32::ZERO,
            crc: U32::ZERO,
            flags: flags.into(),
            drive: U64::new(self.drive),
            sequence: U64::new(self.sequence),
            capacity_blocks: U64::new(self.capacity_blocks),
            over_provisioning: U32::new(self.over_provisioning.millionths),
            groups: U32::new(self.geometry[0]),
            pus_per_group: U32::new(self.geometry[1]),
            chunks_per_pu: U32::new(self.geometry[2]),
            blocks_per_chunk: U32::new(self.geometry[3]),
            checkpoint_blocks: U32::new(self.checkpoint.blocks),
            checkpoint_sequence: U64::new(self.checkpoint.sequence),
            first_lsn: U64::new(self.first_lsn),
            position: U64::new(self.position),
            durable_below: U64::new(self.durable_below),
            extents: self.checkpoint.copies.each_ref().map(|copy| count(copy.len())),
            log_chunks: self.log_chunks.each_ref().map(|copy| count(copy.len())),
            log_gaps: count(self.log_gaps.len()),
            catalog_blocks: U32::new(self.catalog_blocks),
            places: self.places.map(U32::new),
            checkpoint_log_blocks: U64::new(self.sizing.checkpoint_log_blocks.unwrap_or(0)),
            placement: self.sizing.placement.code(),
            handles: self.sizing.handles,
            objects_max: U16::new(self.sizing.objects_max),
            map_page_entries: U32::new(self.map.map_or(0, |map| map.page_entries.entries())),
            map_bytes: U64::new(self.map.map_or(0, |map| map.memory_bytes)),
            map_cache: self.map.map_or(0, |map| map.cache.code()),
            tenant: self.tenant.kind,
            tenant_words: self.tenant.words.map(U16::new),
            life: self.life.encode(),
        };
        bytes[..size_of::<Header>()].copy_from_slice(header.as_bytes());
        seal(&mut bytes);
        bytes.resize(length.next_multiple_of(BLOCK_BYTES), 0);
        bytes
    }

    /// The length that the first block of a record announces.
    ///
    /// # Errors
    /// If it is no superblock, or one of a newer version, or of an impossible length.
    pub fn length(first: &[u8]) -> Result<usize, SuperblockError> {
        let (header, _) = Header::ref_from_prefix(first).map_err(|_| SuperblockError::Length(first.len() as u32))?;
        if header.magic.get() != SUPERBLOCK_MAGIC {
            return Err(SuperblockError::Magic);
        }
        if header.version.get() != SUPERBLOCK_VERSION {
            return Err(SuperblockError::Version(header.version.get()));
        }
        let bytes = header.bytes.get() as usize;
        if !(size_of::<Header>()..=SUPERBLOCK_BYTES_MAX).contains(&bytes) {
            return Err(SuperblockError::Length(header.bytes.get()));
        }
        Ok(bytes)
    }

    /// Reads a record.
    ///
    /// # Errors
    /// If it is none, of a newer version, cut short or damaged.
    pub fn decode(bytes: &[u8]) -> Result<Superblock, SuperblockError> {
        let length = Superblock::length(bytes)?;
        let record = bytes.get(..length).ok_or(SuperblockError::Length(length as u32))?;
        let (header, rest) = Header::read_from_prefix(record).expect("the length was checked");
        let (found, expected) = (header.crc.get(), checksum(record));
        if found != expected {
            return Err(SuperblockError::Crc { found, expected });
        }
        let sequence = header.sequence.get();
        let Some(placement) = PlacementName::from_code(header.placement) else {
            let reason =
                format!("its placement is {}, and the last one is {}", header.placement, PlacementName::ALL.len() - 1);
            return Err(SuperblockError::Untrue { sequence, reason });
        };
        let untrue = |reason: String| SuperblockError::Untrue { sequence, reason };
        let width = if header.flags.get() & WIDE == 0 { Width::Narrow } else { Width::Wide };
        let map = match header.map_page_entries.get() {
            0 => None,
            entries => Some(MapOnMedia {
                page_entries: PageSize::described(entries, width).map_err(untrue)?,
                memory_bytes: header.map_bytes.get(),
                cache: CachePolicy::from_code(header.map_cache).ok_or_else(|| {
                    let last = CachePolicy::ALL.len() - 1;
                    untrue(format!("the policy of its map cache is {}, and the last one is {last}", header.map_cache))
                })?,
            }),
        };
        let bad = || SuperblockError::Length(length as u32);
        let mut rest = rest;
        let mut copies: [Vec<Extent>; METADATA_COPIES] = Default::default();
        for (copy, count) in copies.iter_mut().zip(header.extents) {
            let (extents, behind) =
                <[ExtentBytes]>::ref_from_prefix_with_elems(rest, count.get() as usize).map_err(|_| bad())?;
            let extent = |bytes: &ExtentBytes| Extent {
                chunk: bytes.chunk.get(),
                first: bytes.first.get(),
                blocks: bytes.blocks.get(),
            };
            *copy = extents.iter().map(extent).collect();
            rest = behind;
        }
        let mut log_chunks: [Vec<u32>; METADATA_COPIES] = Default::default();
        for (copy, count) in log_chunks.iter_mut().zip(header.log_chunks) {
            let (chunks, behind) =
                <[U32]>::ref_from_prefix_with_elems(rest, count.get() as usize).map_err(|_| bad())?;
            *copy = chunks.iter().map(|chunk| chunk.get()).collect();
            rest = behind;
        }
        let log_gaps =
            <[GapBytes]>::ref_from_bytes_with_elems(rest, header.log_gaps.get() as usize).map_err(|_| bad())?;
        Ok(Superblock {
            drive: header.drive.get(),
            sequence: header.sequence.get(),
            capacity_blocks: header.capacity_blocks.get(),
            over_provisioning: Share { millionths: header.over_provisioning.get() },
            catalog_blocks: header.catalog_blocks.get(),
            tenant: TenantNote {
                kind: header.tenant,
                words: header.tenant_words.map(U16::get),
                more: (header.flags.get() >> MORE_SHIFT) as u8,
            },
            geometry: [
                header.groups.get(),
                header.pus_per_group.get(),
                header.chunks_per_pu.get(),
                header.blocks_per_chunk.get(),
            ],
            clean: header.flags.get() & CLEAN != 0,
            copies: header.flags.get() & COPIES != 0,
            checkpoint: CheckpointPlace {
                sequence: header.checkpoint_sequence.get(),
                blocks: header.checkpoint_blocks.get(),
                copies,
            },
            first_lsn: header.first_lsn.get(),
            position: header.position.get(),
            durable_below: header.durable_below.get(),
            log_chunks,
            log_gaps: log_gaps.iter().map(|gap| LogGap { end: gap.end.get(), next: gap.next.get() }).collect(),
            places: header.places.map(U32::get),
            map,
            sizing: Sizing {
                checkpoint_log_blocks: Some(header.checkpoint_log_blocks.get()).filter(|blocks| *blocks > 0),
                placement,
                handles: header.handles,
                objects_max: header.objects_max.get(),
            },
            life: Life::decode(&header.life),
        })
    }

    /// Whether all of it can be true of a device of this shape, for which it was written.
    ///
    /// # Errors
    /// The first field that cannot.
    pub fn validate(&self, geometry: &Geometry) -> Result<(), SuperblockError> {
        let untrue = |reason: String| Err(SuperblockError::Untrue { sequence: self.sequence, reason });
        for (name, count) in [
            ("its sequence", self.sequence),
            ("the checkpoint's sequence", self.checkpoint.sequence),
            ("the first LSN", self.first_lsn),
            ("host blocks written", self.position),
            ("the LSN below which the log is durable", self.durable_below),
        ] {
            if count >= COUNTS_END {
                return untrue(format!("{name} is {count}, and no drive has counted that far"));
            }
        }
        if self.first_lsn == 0 {
            return untrue("the first LSN is 0, and they are counted from 1".to_owned());
        }
        if self.capacity_blocks == 0 || self.capacity_blocks > geometry.blocks() {
            let (capacity, blocks) = (self.capacity_blocks, geometry.blocks());
            return untrue(format!("capacity is {capacity} blocks, and the device has {blocks}"));
        }
        if u64::from(self.catalog_blocks) > self.capacity_blocks {
            let (catalog, capacity) = (self.catalog_blocks, self.capacity_blocks);
            return untrue(format!("the catalog has {catalog} blocks, and the whole capacity is {capacity}"));
        }
        let Sizing { handles, objects_max, .. } = self.sizing;
        if handles == 0 || handles > HANDLES_MAX || objects_max == 0 || objects_max > OBJECTS_MAX {
            return untrue(format!(
                "it is sized for {handles} handles (1 to {HANDLES_MAX}) and {objects_max} objects (1 to {OBJECTS_MAX})"
            ));
        }
        let format = geometry.format();
        for (index, chunk) in (0..).zip(self.places).filter(|(_, chunk)| *chunk != u32::MAX) {
            let address = format.unpack_chunk(ChunkId(chunk));
            if (address.group, address.pu) != (index / 2, 0) || address.chunk >= SEARCH_CHUNKS {
                return untrue(format!("chunk {chunk} is for superblocks, which nobody would find there"));
            }
        }
        let mut uses: FxHashMap<u32, &str> = FxHashMap::default();
        let places = self.places.iter().filter(|chunk| **chunk != u32::MAX);
        let extents = || self.checkpoint.extents();
        let named = places
            .map(|chunk| (*chunk, "superblocks"))
            .chain(self.log_chunks.iter().flatten().map(|chunk| (*chunk, "the log")))
            .chain(extents().map(|extent| (extent.chunk, "the checkpoint")));
        for (chunk, usage) in named {
            if !geometry.has_chunk(ChunkId(chunk)) {
                return untrue(format!("chunk {chunk} is for {usage}, and the device has no such chunk"));
            }
            // A lane of a checkpoint has several extents in one chunk; everything else is named once.
            let other = uses.insert(chunk, usage);
            if other.is_some_and(|other| other != usage || usage != "the checkpoint") {
                return untrue(format!("chunk {chunk} is for {usage}, and for {} too", other.unwrap_or_default()));
            }
        }
        if let Some(Extent { chunk, first, blocks }) = extents()
            .find(|extent| u64::from(extent.first) + u64::from(extent.blocks) > u64::from(geometry.blocks_per_chunk))
        {
            return untrue(format!("the checkpoint has {blocks} blocks of chunk {chunk} from block {first} on"));
        }
        let mut before = 0;
        for LogGap { end, next } in &self.log_gaps {
            if !(before..*next).contains(end) || *next >= COUNTS_END {
                return untrue(format!(
                    "the log has a gap from LSN {end} to {next}, and one before it ends at {before}"
                ));
            }
            before = *next;
        }
        let blocks: u64 = extents().map(|extent| u64::from(extent.blocks)).sum();
        if blocks > geometry.blocks() {
            return untrue(format!("the checkpoint lies in {blocks} blocks, and the device has {}", geometry.blocks()));
        }
        Ok(())
    }

    /// The chunks that the superblock names: of the checkpoint and of the log.
    pub fn chunks(&self) -> impl Iterator<Item = ChunkId> + '_ {
        let extents = self.checkpoint.extents().map(|extent| extent.chunk);
        extents.chain(self.log_chunks.iter().flatten().copied()).map(ChunkId)
    }

    /// Names no longer the chunks of checkpoint and log for which `is_other` holds.
    pub fn forget_chunks(&mut self, is_other: impl Fn(ChunkId) -> bool) {
        for copy in &mut self.checkpoint.copies {
            copy.retain(|extent| !is_other(ChunkId(extent.chunk)));
        }
        for copy in &mut self.log_chunks {
            copy.retain(|chunk| !is_other(ChunkId(*chunk)));
        }
    }

    /// Whether a log sequence number does not count.
    #[must_use]
    pub fn is_in_gap(&self, lsn: u64) -> bool {
        self.log_gaps.iter().any(|gap| (gap.end..gap.next).contains(&lsn))
    }

    /// How many log sequence numbers since the checkpoint do not count.
    #[must_use]
    pub fn log_skipped(&self) -> u64 {
        self.log_gaps.iter().map(|gap| gap.next.saturating_sub(gap.end.max(self.first_lsn))).sum()
    }

    /// Names `gap`, behind which nothing of the log counts, joined with the gaps that it reaches. Returns the first LSN that
    /// counts again, or `None` where there is no room to name one more.
    pub fn skip_log(&mut self, gap: LogGap) -> Option<u64> {
        let apart = self.log_gaps.partition_point(|known| known.next < gap.end);
        if apart == LOG_GAPS_MAX {
            return None;
        }
        let joined = self
            .log_gaps
            .drain(apart..)
            .fold(gap, |joined, known| LogGap { end: joined.end.min(known.end), next: joined.next.max(known.next) });
        self.log_gaps.push(joined);
        Some(joined.next)
    }
}

/// CRC32C of a record, whatever stands in its own place.
fn checksum(record: &[u8]) -> u32 {
    let mut record = record.to_vec();
    record[offset_of!(Header, crc)..][..4].fill(0);
    crc32c(&record)
}

/// Sets length and checksum of a record whose other fields and lists are in place, if there are as many bytes as the
/// lists need.
pub fn seal(record: &mut [u8]) {
    let available = record.len() as u64;
    let Ok((header, _)) = Header::mut_from_prefix(record) else { return };
    let sum = |counts: &[U32]| counts.iter().map(|count| u64::from(count.get())).sum::<u64>();
    let lists = sum(&header.extents) * size_of::<ExtentBytes>() as u64
        + sum(&header.log_chunks) * size_of::<U32>() as u64
        + u64::from(header.log_gaps.get()) * size_of::<GapBytes>() as u64;
    let length = size_of::<Header>() as u64 + lists;
    if length > available {
        return;
    }
    header.bytes = U32::new(length as u32);
    let crc = checksum(&record[..length as usize]);
    record[offset_of!(Header, crc)..][..4].copy_from_slice(&crc.to_le_bytes());
}

/// The rows of the table in `docs/FORMAT.md`.
#[must_use]
pub fn format_table() -> Vec<(usize, usize, &'static str)> {
    vec![
        (offset_of!(Header, magic), 8, "magic, `OFTLSUPR`"),
        (offset_of!(Header, version), 4, "format version, 6"),
        (offset_of!(Header, bytes), 4, "length of the record in bytes"),
        (offset_of!(Header, crc), 4, "CRC32C of the record with this field 0"),
        (
            offset_of!(Header, flags),
            4,
            "flags: bit 0, closed cleanly; bit 1, the checkpoint has seals of copied blocks; bit 2, map entries have five bytes; bits 8 to 15, what else the tenant says",
        ),
        (offset_of!(Header, drive), 8, "drive"),
        (offset_of!(Header, sequence), 8, "sequence of the superblock"),
        (offset_of!(Header, capacity_blocks), 8, "capacity in logical blocks"),
        (offset_of!(Header, over_provisioning), 4, "over-provisioning in millionths"),
        (offset_of!(Header, groups), 4, "groups"),
        (offset_of!(Header, pus_per_group), 4, "parallel units per group"),
        (offset_of!(Header, chunks_per_pu), 4, "chunks per parallel unit"),
        (offset_of!(Header, blocks_per_chunk), 4, "logical blocks per chunk"),
        (offset_of!(Header, checkpoint_blocks), 4, "blocks of the checkpoint; 0 = none yet"),
        (offset_of!(Header, checkpoint_sequence), 8, "sequence of the checkpoint"),
        (offset_of!(Header, first_lsn), 8, "first LSN to replay"),
        (offset_of!(Header, position), 8, "sequence that data had reached at the checkpoint"),
        (offset_of!(Header, durable_below), 8, "LSN below which the log was durable"),
        (offset_of!(Header, extents), 8, "extents of the checkpoint, of copy 0 and of copy 1 (4 bytes each)"),
        (offset_of!(Header, log_chunks), 8, "log chunks of copy 0 and of copy 1 (4 bytes each)"),
        (offset_of!(Header, log_gaps), 4, "gaps in the log"),
        (offset_of!(Header, catalog_blocks), 4, "logical blocks of the catalog of a table drive; 0 = a block drive"),
        (offset_of!(Header, places), 16, "chunks for superblocks, two of each place; FFFF_FFFFh = none"),
        (
            offset_of!(Header, checkpoint_log_blocks),
            8,
            "log blocks after which a checkpoint is due; 0 = as many as the map has",
        ),
        (offset_of!(Header, placement), 1, "placement that the drive was sized for"),
        (offset_of!(Header, handles), 1, "handles that it was sized for"),
        (offset_of!(Header, objects_max), 2, "objects that it was sized for"),
        (offset_of!(Header, map_page_entries), 4, "entries of a map page; 0 = the checkpoint has the whole map"),
        (offset_of!(Header, map_bytes), 8, "bytes of memory for a map on media, as formatted"),
        (offset_of!(Header, map_cache), 1, "which pages of it stay in memory"),
        (
            offset_of!(Header, tenant),
            1,
            "who has a catalog (bits 0 and 1): 0 tables, 1 zones, 2 zones that hosts see as segments, 3 zones that can have a random write area; of zones, units of 64 bytes of a zone descriptor extension (bits 2 to 7)",
        ),
        (
            offset_of!(Header, tenant_words),
            6,
            "of zones: parallel units of each (10 bits), how many (28), and how many can be open, less one (10)",
        ),
        (offset_of!(Header, life), 112, LifeBytes::COUNTS),
        (
            size_of::<Header>(),
            size_of::<ExtentBytes>(),
            "extents of copy 0, then of copy 1: chunk, first block, blocks (4 bytes each)",
        ),
        (size_of::<Header>(), 4, "behind them the log chunks of copy 0, then of copy 1"),
        (
            size_of::<Header>(),
            size_of::<GapBytes>(),
            "behind them the gaps: first LSN that does not count, first that counts again (8 bytes each)",
        ),
    ]
}

#[cfg(test)]
#[path = "superblock_tests.rs"]
mod tests;
