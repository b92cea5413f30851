//! A namespace: what a host sees as one disk, and the arithmetic between its blocks and bytes.
//!
//! ```text
//!   namespace id    1        2        5         ids of a subsystem: 1 to NAMESPACES_MAX, with gaps
//!                 block    block   open-channel, or zoned
//!                 4 KiB    512 B   4 KiB + out-of-band bytes behind each block; 4 KiB
//! ```

use crate::command::Refusal;
use crate::hints::Hints;
use crate::wire::Status;
use openftl_core::{BLOCK_BYTES, Geometry};
use openftl_parts::target::IoError;
use openftl_zones::{Layout, Limits};

/// The greatest namespace id, and so how many namespaces a subsystem has at most.
pub const NAMESPACES_MAX: u32 = 64;

/// NSID of a command that means all namespaces.
pub const ALL_NAMESPACES: u32 = 0xffff_ffff;

/// The most bytes of one command with data, MDTS: the largest transaction of the drive.
pub const TRANSFER_BYTES_MAX: u32 = 1 << 20;

/// How the bytes of a block namespace are cut.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum BlockFormat {
    /// Blocks as the drive has them.
    FourKib,
    /// For hosts that know no other: eight of these in a block of the drive.
    Bytes512,
}

impl BlockFormat {
    /// Bytes of a block.
    #[must_use]
    pub fn bytes(self) -> u32 {
        1 << self.bytes_log2()
    }

    /// The logarithm of it.
    #[must_use]
    pub fn bytes_log2(self) -> u8 {
        match self {
            BlockFormat::FourKib => 12,
            BlockFormat::Bytes512 => 9,
        }
    }

    /// The most blocks of which a write is atomic, wherever it begins: not split in transactions, which are 256 blocks of
    /// the drive. One that begins inside a block of the drive touches one more than its length says.
    #[must_use]
    pub fn atomic_blocks(self) -> u32 {
        let per_drive_block = BLOCK_BYTES as u32 / self.bytes();
        TRANSFER_BYTES_MAX / self.bytes() - (per_drive_block - 1)
    }
}

/// What is behind a namespace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NamespaceKind {
    /// A block FTL.
    Block {
        /// How its bytes are cut.
        format: BlockFormat,
        /// Its capacity in bytes, a multiple of 4 KiB.
        bytes: u64,
        /// What its writes may say of the lifetime of their data.
        hints: Hints,
    },
    /// An Open-Channel device: the host has its own FTL.
    OpenChannel(Geometry),
    /// Zones that are written in order.
    Zoned(ZonedShape),
    /// Blocks in segments, each of which is written in order and deallocated as a whole.
    Segments(SegmentShape),
    /// Pages of any size.
    Pages(PageShape),
    /// Keys and values.
    Values(ValueShape),
}

/// What hosts learn of a key-value drive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ValueShape {
    /// Bytes that values may take, with what stands beside each.
    pub capacity_bytes: u64,
    /// Keys that there may be.
    pub keys_max: u64,
    /// Bytes of a key, at most.
    pub key_max: u8,
    /// Bytes of a value, at most, as the drive takes them; the command set may take less ([`ValueShape::value_max`]).
    pub drive_value_max: u32,
}

impl ValueShape {
    /// Bytes of a value, at most: no command has a part of a value, so a value is no longer than a transfer.
    #[must_use]
    pub fn value_max(&self) -> u32 {
        self.drive_value_max.min(TRANSFER_BYTES_MAX)
    }
}

/// What hosts learn of a store of pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageShape {
    /// Bytes that pages may take, with headers and what they leave of their last grains.
    pub capacity_bytes: u64,
    /// Bytes of a page, at most.
    pub page_bytes_max: u32,
}

/// What hosts learn of the segments of a namespace. Its blocks are those of the drive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SegmentShape {
    /// How many there are.
    pub segments: u32,
    /// Blocks of each.
    pub blocks: u32,
}

impl SegmentShape {
    /// Blocks of all.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        u64::from(self.segments) * u64::from(self.blocks)
    }
}

/// What hosts learn of the zones of a namespace. Its blocks are those of the drive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ZonedShape {
    /// How many there are.
    pub zones: u32,
    /// Blocks from one zone to the next: a power of two.
    pub size: u64,
    /// Blocks of each that can be written.
    pub capacity: u32,
    /// Zones that are open, at most.
    pub max_open: u32,
    /// Zones that are open or closed, at most.
    pub max_active: u32,
    /// Bytes of the descriptor extension of each, a multiple of 64; 0: they have none.
    pub extension_bytes: u32,
    /// Blocks of the random write area that a zone can be opened with (ZRWASZ), as many zones at a time as can be open; 0: there is none.
    pub window_blocks: u32,
}

impl ZonedShape {
    /// That of a drive.
    #[must_use]
    pub fn of(layout: &Layout, limits: Limits) -> ZonedShape {
        let Layout { zones, size, capacity, extension_bytes, window_blocks, .. } = *layout;
        let Limits { max_open, max_active } = limits;
        ZonedShape { zones, size, capacity, max_open, max_active, extension_bytes, window_blocks }
    }

    /// Bytes that can be written.
    #[must_use]
    pub fn capacity_bytes(&self) -> u64 {
        u64::from(self.zones) * u64::from(self.capacity) * BLOCK_BYTES as u64
    }
}

/// One namespace of a subsystem.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Namespace {
    /// NSID, 1 to [`NAMESPACES_MAX`].
    pub id: u32,
    /// What hosts recognise it by, on every path and after every restart.
    pub uuid: [u8; 16],
    /// What is behind it.
    pub kind: NamespaceKind,
}

/// Bytes of a namespace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// First byte.
    pub offset: u64,
    /// Bytes, at least one block.
    pub length: u64,
}

impl Span {
    /// One past the last byte.
    #[must_use]
    pub fn end(self) -> u64 {
        self.offset + self.length
    }
}

impl Namespace {
    /// The logarithm of the bytes of a block, metadata not counted.
    #[must_use]
    pub fn block_bytes_log2(&self) -> u8 {
        match self.kind {
            NamespaceKind::Block { format, .. } => format.bytes_log2(),
            NamespaceKind::OpenChannel(_)
            | NamespaceKind::Zoned(_)
            | NamespaceKind::Segments(_)
            | NamespaceKind::Pages(_)
            | NamespaceKind::Values(_) => BLOCK_BYTES.ilog2() as u8,
        }
    }

    /// Bytes behind each block of a transfer.
    #[must_use]
    pub fn metadata_bytes(&self) -> u32 {
        match self.kind {
            NamespaceKind::OpenChannel(geometry) => geometry.oob_bytes,
            _ => 0,
        }
    }

    /// What its writes may say of the lifetime of their data.
    #[inline]
    #[must_use]
    pub fn hints(&self) -> Hints {
        match self.kind {
            NamespaceKind::Block { hints, .. } => hints,
            _ => Hints::None,
        }
    }

    /// NSZE: blocks that can be named. An Open-Channel device has gaps among them, and zones have some behind their capacity. Of a store of
    /// pages and of a key-value drive none can be named: these are as many as its capacity.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        match self.kind {
            NamespaceKind::Block { format, bytes, .. } => bytes >> format.bytes_log2(),
            NamespaceKind::OpenChannel(geometry) => 1 << geometry.format().bits(),
            NamespaceKind::Zoned(shape) => u64::from(shape.zones) * shape.size,
            NamespaceKind::Segments(shape) => shape.blocks(),
            NamespaceKind::Pages(PageShape { capacity_bytes, .. })
            | NamespaceKind::Values(ValueShape { capacity_bytes, .. }) => capacity_bytes / BLOCK_BYTES as u64,
        }
    }

    /// The bytes of `blocks` blocks from `first` on.
    ///
    /// # Errors
    /// If they are not all in the namespace; `byte` is where the command says `first`.
    pub fn span(&self, first: u64, blocks: u64, byte: u8) -> Result<Span, Refusal> {
        let is_inside = first.checked_add(blocks).is_some_and(|end| end <= self.blocks());
        if !is_inside {
            return Err(Status::LBA_OUT_OF_RANGE.at(byte));
        }
        let log2 = self.block_bytes_log2();
        Ok(Span { offset: first << log2, length: blocks << log2 })
    }

    /// How a command ends whose request of the drive, from byte `offset` on, ended with `error`: the block that is named is
    /// one of the namespace and of the request, or the write pointer of the segment that refused it.
    #[must_use]
    pub fn failure(&self, error: IoError, offset: u64) -> Refusal {
        let bytes = |block| block * BLOCK_BYTES as u64;
        let byte = error.block().map(|block| bytes(block).max(offset)).or(error.write_pointer().map(bytes));
        Refusal { block: byte.map(|byte| byte >> self.block_bytes_log2()), ..Status::from(error).into() }
    }

    /// Bytes that travel with a transfer of these, metadata among them.
    #[inline]
    #[must_use]
    pub fn transfer_bytes(&self, length: u64) -> u32 {
        let blocks = length >> self.block_bytes_log2();
        (length + blocks * u64::from(self.metadata_bytes())) as u32
    }
}

/// A set of namespace ids.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct NamespaceSet(u64);

impl NamespaceSet {
    /// Adds `id`, if it is one.
    pub fn insert(&mut self, id: u32) {
        self.0 |= NamespaceSet::bit(id);
    }

    /// Takes `id` out.
    pub fn remove(&mut self, id: u32) {
        self.0 &= !NamespaceSet::bit(id);
    }

    /// Whether `id` is in it.
    #[inline]
    #[must_use]
    pub fn contains(self, id: u32) -> bool {
        self.0 & NamespaceSet::bit(id) != 0
    }

    /// Whether there is none in it.
    #[inline]
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Every id, in order.
    pub fn iter(self) -> impl Iterator<Item = u32> {
        (1..=NAMESPACES_MAX).filter(move |id| self.contains(*id))
    }

    fn bit(id: u32) -> u64 {
        if (1..=NAMESPACES_MAX).contains(&id) { 1 << (id - 1) } else { 0 }
    }
}

/// The namespaces of a subsystem, and which of them a controller has attached.
#[derive(Clone, Copy, Debug)]
pub struct Attached<'a> {
    /// Every namespace, at its id less one.
    pub all: &'a [Option<Namespace>],
    /// Those attached.
    pub set: NamespaceSet,
}

impl<'a> Attached<'a> {
    /// The attached namespace `id` (Base, "Namespace Identifiers": valid, allocated, active).
    ///
    /// # Errors
    /// If there can be no such namespace, or it is not attached.
    #[inline]
    pub fn get(self, id: u32) -> Result<&'a Namespace, Refusal> {
        if !(1..=NAMESPACES_MAX).contains(&id) {
            return Err(Status::INVALID_NAMESPACE.at(4));
        }
        match &self.all[id as usize - 1] {
            Some(namespace) if self.set.contains(id) => Ok(namespace),
            _ => Err(Status::INVALID_FIELD.at(4)),
        }
    }

    /// Every attached namespace, in the order of their ids.
    pub fn iter(self) -> impl Iterator<Item = &'a Namespace> + use<'a> {
        self.all.iter().flatten().filter(move |namespace| self.set.contains(namespace.id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(format: BlockFormat) -> Namespace {
        Namespace { id: 1, uuid: [1; 16], kind: NamespaceKind::Block { format, bytes: 1 << 20, hints: Hints::None } }
    }

    #[test]
    fn a_range_is_inside_or_refused_also_where_its_end_cannot_be_counted() {
        let namespace = block(BlockFormat::Bytes512);
        assert_eq!(namespace.blocks(), 2048);
        assert_eq!(namespace.span(2047, 1, 40), Ok(Span { offset: (1 << 20) - 512, length: 512 }));
        for (first, blocks) in [(2047, 2), (2048, 1), (u64::MAX, 1), (u64::MAX, u64::MAX), (1 << 55, 1)] {
            assert_eq!(namespace.span(first, blocks, 40), Err(Status::LBA_OUT_OF_RANGE.at(40)), "{first}, {blocks}");
        }
    }

    #[test]
    fn a_failure_names_the_first_block_of_the_namespace_that_the_request_could_not_read() {
        let check = |format: BlockFormat, block: u64, offset, named| {
            let failure = block_failure(format, block, offset);
            assert_eq!((failure.status, failure.block), (Status::UNRECOVERED_READ, Some(named)), "{format:?}");
        };
        check(BlockFormat::FourKib, 3, 4096, 3);
        check(BlockFormat::Bytes512, 3, 4096, 24);
        check(BlockFormat::Bytes512, 3, 3 * 4096 + 5 * 512, 29);
        let refused = block(BlockFormat::Bytes512).failure(IoError::ReadOnly, 4096);
        assert_eq!((refused.status, refused.block), (Status::WRITE_TO_READ_ONLY, None));
    }

    fn block_failure(format: BlockFormat, block_of_drive: u64, offset: u64) -> Refusal {
        block(format).failure(IoError::Uncorrectable { block: block_of_drive }, offset)
    }

    #[test]
    fn a_write_of_the_atomic_size_is_one_transaction_wherever_it_begins() {
        assert_eq!(BlockFormat::FourKib.atomic_blocks(), 256);
        let bytes = u64::from(BlockFormat::Bytes512.atomic_blocks()) * 512;
        for first in 0..8 {
            let (start, end) = (first * 512 / 4096, (first * 512 + bytes).div_ceil(4096));
            assert!(end - start <= 256, "from block {first}");
        }
        assert_eq!(BlockFormat::Bytes512.atomic_blocks(), 2041);
    }

    #[test]
    fn an_open_channel_namespace_counts_the_gaps_and_the_out_of_band_bytes() {
        let geometry = Geometry { groups: 3, ..Geometry::tiny() };
        let namespace = Namespace { id: 1, uuid: [1; 16], kind: NamespaceKind::OpenChannel(geometry) };
        assert_eq!(namespace.blocks(), 4 * 2 * 8 * 16);
        assert_eq!(namespace.transfer_bytes(2 * 4096), 2 * (4096 + 16));
    }
}
