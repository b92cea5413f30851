//! The commands of I/O queues (NVM, "NVM Command Set Commands"), checked against the namespace that they name.
//!
//! What is left to do is said in bytes. The drive's own errors become a status through [`Status::from`].

use super::open_channel::{VectorCommand, parse_open_channel};
use super::pages::{PageCommand, parse_pages};
use super::reservation::{ReservationCommand, is_reservation, parse_reservation};
use super::values::{ValueCommand, is_for_values, parse_values};
use super::zoned::{ZoneCommand, parse_zoned};
use super::{FUSE, Refusal, Transfer, check_data_flags, check_data_pointer};
use crate::hints::Hints;
use crate::namespace::{ALL_NAMESPACES, Attached, Namespace, NamespaceKind, Span, TRANSFER_BYTES_MAX};
use crate::wire::data_placement::operation;
use crate::wire::entry::SubmissionEntry;
use crate::wire::opcode::io as opcodes;
use crate::wire::status::Status;
use crate::wire::{U16, U32, U64};
use openftl_core::BLOCK_BYTES;
use openftl_parts::target::{Durability, ExpectedUse, Extent};
use openftl_parts::words::Handle;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// What a host wants of a namespace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Io {
    /// NSID, of an attached namespace; [`ALL_NAMESPACES`] only in a flush.
    pub namespace: u32,
    /// What to do.
    pub command: IoCommand,
    /// The handle of a stream that takes the place of another: it is renewed before the command is carried out, so that the two
    /// share no chunk. Commands that are under way meanwhile have no order. Mostly [`Handle::NONE`].
    pub renewed: Handle,
    /// Which half of a fused pair it is.
    pub half: Half,
}

/// Which half of a fused pair a command is (Base, "Fused Operation"): of Compare and Write, the only pair that there is
/// (FUSES). The second comes right behind the first on the same queue, and is carried out only if the first succeeds.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Half {
    /// It stands for itself.
    #[default]
    None,
    /// FUSE 01b: Compare.
    First,
    /// FUSE 10b: Write.
    Second,
}

impl Half {
    /// What FUSE of a command says; 11b is reserved.
    #[inline]
    #[must_use]
    pub fn of(entry: &SubmissionEntry) -> Option<Half> {
        match entry.flags & FUSE {
            0b00 => Some(Half::None),
            0b01 => Some(Half::First),
            0b10 => Some(Half::Second),
            _ => None,
        }
    }
}

/// What to do with a namespace. Ranges are inside it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IoCommand {
    /// "Flush command": make durable what was completed.
    Flush,
    /// "Read command".
    Read(Span),
    /// "Write command".
    Write {
        /// Which bytes.
        span: Span,
        /// FUA, or the write cache is off.
        durability: Durability,
        /// What its directive says of the lifetime of the data.
        handle: Handle,
    },
    /// "Write Uncorrectable command": whole blocks of the drive. Not bound by the greatest transfer.
    WriteUncorrectable {
        /// Which bytes.
        span: Span,
        /// The write cache is off; the command has no FUA.
        durability: Durability,
    },
    /// "Write Zeroes command". Not bound by the greatest transfer, for there is none.
    Zero {
        /// Which bytes.
        span: Span,
        /// FUA, or the write cache is off.
        durability: Durability,
        /// DEAC: may be deallocated, as here they always are.
        deallocate: bool,
    },
    /// "Compare command": [`Status::COMPARE_FAILURE`] if what the host sends is not what is there.
    Compare(Span),
    /// "Verify command": read, and throw away. Not bound by the greatest transfer.
    Verify(Span),
    /// "Dataset Management command": the host sends as many ranges; [`Namespace::deallocated`] reads them.
    DatasetManagement {
        /// How many ranges, 1 to 256.
        ranges: u16,
        /// AD: deallocate them. Without it the ranges are hints, and nothing is to be done.
        deallocate: bool,
    },
    /// "Copy command": the host sends as many source ranges; [`Namespace::copy_plan`] reads them.
    Copy {
        /// First block of the destination.
        first: u64,
        /// How many source ranges, 1 to [`COPY_SOURCES_MAX`].
        sources: u16,
        /// FUA, or the write cache is off.
        durability: Durability,
        /// What its directive says of the lifetime of the copy.
        handle: Handle,
    },
    /// "I/O Management Receive command", Reclaim Unit Handle Status: [`Namespace::handle_status`] makes the data.
    HandleStatus {
        /// Bytes that the host wants.
        bytes: u32,
    },
    /// "I/O Management Send command", Reclaim Unit Handle Update: the host sends as many placement identifiers;
    /// [`Namespace::updated_handles`] reads them.
    HandleUpdate {
        /// How many, 1 to as many handles as there are.
        identifiers: u16,
    },
    /// "I/O Management Receive command" or "I/O Management Send command", No Action.
    Nothing,
    /// FlashAlloc, a command of ours: the host sends as many ranges, which are one object about to be written, and to end
    /// as a whole; [`Namespace::object`] reads them.
    ///
    /// | bytes of the command | |
    /// |---|---|
    /// | 0 | C1h |
    /// | 4 to 7 | NSID |
    /// | 24 to 39 | where the ranges are |
    /// | 40 | how many ranges, 0-based |
    /// | 41 to 63 | zeroes |
    ///
    /// | bytes of a range | |
    /// |---|---|
    /// | 0 to 3 | zeroes |
    /// | 4 to 7 | blocks, at least 1 |
    /// | 8 to 15 | first block |
    FlashAlloc {
        /// How many ranges, 1 to 256.
        ranges: u16,
    },
    /// FlashAlloc of one range, as the published firmware for the Cosmos+ board takes it. It has no data.
    ///
    /// | bytes of the command | |
    /// |---|---|
    /// | 0 | 82h |
    /// | 4 to 7 | NSID |
    /// | 40 to 43 | first block |
    /// | 56 to 59 | blocks, at least 1 |
    /// | others from 44 on | zeroes |
    FlashAllocRange {
        /// The object, checked.
        extent: Extent,
    },
    /// A command of an Open-Channel namespace.
    OpenChannel(VectorCommand),
    /// A command of a zoned namespace.
    Zone(ZoneCommand),
    /// A command of a store of pages.
    Page(PageCommand),
    /// A command of a key-value drive.
    Value(ValueCommand),
    /// A command about the reservation of a namespace of any kind.
    Reservation(ReservationCommand),
}

/// FUA, bit 30 of dword 12.
pub(super) const FORCE_UNIT_ACCESS: u32 = 1 << 30;

/// AD of Dataset Management, bit 2 of dword 11.
pub(super) const DEALLOCATE: u32 = 1 << 2;

/// The most source ranges of one Copy command (MSRC + 1).
pub const COPY_SOURCES_MAX: u16 = 128;

/// The most bytes of one Copy command, and of one of its source ranges (MCL, MSSRL): one transaction, so that the copy is
/// there whole or not at all.
pub const COPY_BYTES_MAX: u64 = TRANSFER_BYTES_MAX as u64;

/// A range of a Dataset Management command (NVM, "Dataset Management Range Definition").
#[derive(FromBytes, IntoBytes, Unaligned, Immutable, KnownLayout, Clone, Copy, Debug)]
#[repr(C)]
pub struct DatasetRange {
    /// 0: context attributes, hints. Bits 3 to 0 are AF, the access frequency (NVM, "Context Attributes").
    pub attributes: U32,
    /// 4: blocks; 0 is allowed.
    pub blocks: U32,
    /// 8: first block.
    pub first: U64,
}

/// A source range of a Copy command, format 0h (NVM, "Copy Source Range Entries").
#[derive(FromBytes, IntoBytes, Unaligned, Immutable, KnownLayout, Clone, Copy, Debug)]
#[repr(C)]
pub struct CopySource {
    /// 0.
    pub reserved: [u8; 8],
    /// 8: first block.
    pub first: U64,
    /// 16: blocks, 0-based.
    pub last: U16,
    /// 18: reserved, and tags of protection information.
    pub tags: [u8; 14],
}

impl DatasetRange {
    /// What AF says: frequent reads or writes (3h to 5h), or not (1h, 2h). `None`: nothing, or a reserved value.
    #[must_use]
    pub fn expected_use(&self) -> Option<ExpectedUse> {
        match self.attributes.get() & 0xf {
            1 | 2 => Some(ExpectedUse::Ordinary),
            3..=5 => Some(ExpectedUse::Frequent),
            _ => None,
        }
    }
}

const _: () = {
    assert!(size_of::<DatasetRange>() == 16);
    assert!(size_of::<CopySource>() == 32);
};

/// Where a copy goes and where it comes from.
#[derive(Clone, Copy, Debug)]
pub struct CopyPlan<'a> {
    /// The destination, as long as all sources together.
    pub to: Span,
    sources: &'a [CopySource],
    block_bytes_log2: u8,
}

impl CopyPlan<'_> {
    /// The sources, one after the other; all are to be read before the destination is written, which they may overlap.
    pub fn from(&self) -> impl Iterator<Item = Span> {
        let log2 = self.block_bytes_log2;
        self.sources.iter().map(move |source| Span {
            offset: source.first.get() << log2,
            length: (u64::from(source.last.get()) + 1) << log2,
        })
    }
}

impl Io {
    /// What the 64 bytes say to a controller with these namespaces. `is_write_through`: the host switched the write cache
    /// off.
    ///
    /// # Errors
    /// The status of what they say wrong.
    #[inline]
    pub fn parse(entry: &SubmissionEntry, namespaces: Attached<'_>, is_write_through: bool) -> Result<Io, Refusal> {
        check_data_flags(entry)?;
        let half = Half::of(entry).ok_or(Status::INVALID_FIELD.at(1))?;
        let id = entry.namespace.get();
        if entry.opcode == opcodes::FLUSH && id == ALL_NAMESPACES && half == Half::None {
            return Ok(Io { namespace: id, command: IoCommand::Flush, renewed: Handle::NONE, half });
        }
        if !is_known(entry.opcode) {
            return Err(Status::INVALID_OPCODE.at(0));
        }
        if id == ALL_NAMESPACES && is_for_values(entry.opcode, namespaces) {
            return Err(Status::INVALID_FIELD.at(4));
        }
        let namespace = namespaces.get(id)?;
        let durability = |fua: bool| if fua || is_write_through { Durability::Durable } else { Durability::Volatile };
        let command = match namespace.kind {
            _ if is_reservation(entry.opcode) => IoCommand::Reservation(parse_reservation(entry)?),
            NamespaceKind::Block { hints, .. } if is_hint(entry.opcode) => {
                parse_hint(entry, hints, namespace, namespaces)?
            }
            NamespaceKind::Block { .. } => parse_block(entry, namespace, durability)?,
            NamespaceKind::OpenChannel(_) => parse_open_channel(entry, namespace, is_write_through)?,
            NamespaceKind::Zoned(shape) => parse_zoned(entry, namespace, &shape, durability)?,
            NamespaceKind::Segments(_) => parse_segments(entry, namespace, durability)?,
            NamespaceKind::Pages(_) => parse_pages(entry, is_write_through)?,
            NamespaceKind::Values(shape) => parse_values(entry, &shape, is_write_through)?,
        };
        if half != Half::None {
            check_half(half, &command, namespace)?;
        }
        check_data_pointer(entry, command.transfer(namespace))?;
        Ok(Io { namespace: id, command, renewed: Handle::NONE, half })
    }
}

impl IoCommand {
    /// Whether its entry may carry a directive.
    #[inline]
    #[must_use]
    pub fn takes_directives(&self) -> bool {
        matches!(
            self,
            IoCommand::Write { .. }
                | IoCommand::WriteUncorrectable { .. }
                | IoCommand::Zero { .. }
                | IoCommand::Copy { .. }
        )
    }

    /// The same with a handle, if it writes data.
    #[inline]
    #[must_use]
    pub(crate) fn under(mut self, given: Handle) -> IoCommand {
        if let IoCommand::Write { handle, .. } | IoCommand::Copy { handle, .. } = &mut self {
            *handle = given;
        }
        self
    }

    /// Its data; `namespace` is the one that it names.
    #[inline]
    #[must_use]
    pub fn transfer(&self, namespace: &Namespace) -> Transfer {
        match self {
            IoCommand::Read(span) => Transfer::ToHost(namespace.transfer_bytes(span.length)),
            IoCommand::Write { span, .. } | IoCommand::Compare(span) => {
                Transfer::ToController(namespace.transfer_bytes(span.length))
            }
            IoCommand::Flush | IoCommand::WriteUncorrectable { .. } | IoCommand::Zero { .. } | IoCommand::Verify(_) => {
                Transfer::None
            }
            IoCommand::DatasetManagement { ranges, .. } => {
                Transfer::ToController(u32::from(*ranges) * size_of::<DatasetRange>() as u32)
            }
            IoCommand::HandleStatus { bytes } => Transfer::ToHost(*bytes),
            IoCommand::HandleUpdate { identifiers } => Transfer::ToController(u32::from(*identifiers) * 2),
            IoCommand::Nothing | IoCommand::FlashAllocRange { .. } => Transfer::None,
            IoCommand::FlashAlloc { ranges } => {
                Transfer::ToController(u32::from(*ranges) * size_of::<DatasetRange>() as u32)
            }
            IoCommand::Copy { sources, .. } => {
                Transfer::ToController(u32::from(*sources) * size_of::<CopySource>() as u32)
            }
            IoCommand::OpenChannel(command) => command.transfer(namespace),
            IoCommand::Zone(command) => command.transfer(),
            IoCommand::Page(command) => command.transfer(),
            IoCommand::Value(command) => command.transfer(),
            IoCommand::Reservation(command) => command.transfer(),
        }
    }
}

/// Checks that a command may be this half of a pair: of Compare and Write to a block namespace, within what is atomic (NACWU).
fn check_half(half: Half, command: &IoCommand, namespace: &Namespace) -> Result<(), Refusal> {
    let NamespaceKind::Block { format, .. } = namespace.kind else { return Err(Status::INVALID_FIELD.at(1)) };
    match (half, command) {
        (Half::First, IoCommand::Compare(span)) | (Half::Second, IoCommand::Write { span, .. }) => {
            let most = u64::from(format.atomic_blocks()) * u64::from(format.bytes());
            if span.length > most { Err(Status::ATOMIC_UNIT_EXCEEDED.at(48)) } else { Ok(()) }
        }
        _ => Err(Status::INVALID_FIELD.at(1)),
    }
}

/// Whether any kind of namespace has the opcode.
fn is_known(opcode: u8) -> bool {
    matches!(
        opcode,
        opcodes::FLUSH
            | opcodes::WRITE
            | opcodes::READ
            | opcodes::WRITE_UNCORRECTABLE
            | opcodes::COMPARE
            | opcodes::WRITE_ZEROES
            | opcodes::DATASET_MANAGEMENT
            | opcodes::VERIFY
            | opcodes::COPY
            | opcodes::VECTOR_RESET
            ..=opcodes::VECTOR_COPY
                | opcodes::ZONE_SEND
                | opcodes::ZONE_RECEIVE
                | opcodes::ZONE_APPEND
                | opcodes::PAGE_WRITE
                | opcodes::PAGE_READ
                | opcodes::PAGE_CONTROL
                | opcodes::PAGE_REPORT
                | opcodes::VALUE_LIST
                | opcodes::VALUE_DELETE
                | opcodes::VALUE_EXIST
    ) || is_hint(opcode)
        || is_reservation(opcode)
}

/// Whether a command is about the lifetime of what is written.
fn is_hint(opcode: u8) -> bool {
    matches!(
        opcode,
        opcodes::MANAGEMENT_RECEIVE | opcodes::MANAGEMENT_SEND | opcodes::FLASH_ALLOC | opcodes::FLASH_ALLOC_RANGE
    )
}

/// A command about the lifetime of what is written to a namespace that takes `hints`.
fn parse_hint(
    entry: &SubmissionEntry,
    hints: Hints,
    namespace: &Namespace,
    namespaces: Attached<'_>,
) -> Result<IoCommand, Refusal> {
    match entry.opcode {
        opcodes::FLASH_ALLOC | opcodes::FLASH_ALLOC_RANGE if hints != Hints::Objects => {
            return Err(Status::INVALID_OPCODE.at(0));
        }
        opcodes::FLASH_ALLOC => return Ok(IoCommand::FlashAlloc { ranges: (entry.dword(10) & 0xff) as u16 + 1 }),
        opcodes::FLASH_ALLOC_RANGE => {
            let extent = namespace.object_range(u64::from(entry.dword(10)), entry.dword(14))?;
            return Ok(IoCommand::FlashAllocRange { extent });
        }
        _ => {}
    }
    let Hints::DataPlacement { handles, .. } = hints else {
        let is_elsewhere = namespaces.iter().any(|namespace| namespace.hints().is_data_placement());
        return Err(if is_elsewhere { Status::FDP_DISABLED.at(4) } else { Status::INVALID_OPCODE.at(0) });
    };
    match (entry.dword(10) as u8, entry.opcode) {
        (operation::NONE, _) => Ok(IoCommand::Nothing),
        (operation::RECLAIM_UNIT_HANDLES, opcodes::MANAGEMENT_RECEIVE) => {
            let bytes = (u64::from(entry.dword(11)) + 1) * 4;
            if bytes > u64::from(TRANSFER_BYTES_MAX) {
                return Err(Status::INVALID_FIELD.at(44));
            }
            Ok(IoCommand::HandleStatus { bytes: bytes as u32 })
        }
        (operation::RECLAIM_UNIT_HANDLES, _) => {
            // NPID, 0-based.
            let last = (entry.dword(10) >> 16) as u16;
            if last >= u16::from(handles) {
                return Err(Status::INVALID_FIELD.at(42));
            }
            Ok(IoCommand::HandleUpdate { identifiers: last + 1 })
        }
        _ => Err(Status::INVALID_FIELD.at(40)),
    }
}

#[inline]
fn parse_block(
    entry: &SubmissionEntry,
    namespace: &Namespace,
    durability: impl Fn(bool) -> Durability,
) -> Result<IoCommand, Refusal> {
    let fua = entry.dword(12) & FORCE_UNIT_ACCESS != 0;
    Ok(match entry.opcode {
        opcodes::FLUSH => IoCommand::Flush,
        opcodes::READ => IoCommand::Read(transferred(entry, namespace)?),
        opcodes::WRITE => {
            let (span, durability) = (transferred(entry, namespace)?, durability(fua));
            IoCommand::Write { span, durability, handle: Handle::NONE }
        }
        opcodes::WRITE_UNCORRECTABLE => {
            IoCommand::WriteUncorrectable { span: whole_blocks(entry, namespace)?, durability: durability(false) }
        }
        opcodes::COMPARE => IoCommand::Compare(transferred(entry, namespace)?),
        opcodes::VERIFY => IoCommand::Verify(covered(entry, namespace)?),
        opcodes::WRITE_ZEROES => {
            let deallocate = entry.dword(12) & 1 << 25 != 0;
            IoCommand::Zero { span: covered(entry, namespace)?, durability: durability(fua), deallocate }
        }
        opcodes::DATASET_MANAGEMENT => dataset_management(entry),
        opcodes::COPY => {
            let dword = entry.dword(12);
            if dword >> 8 & 0xf != 0 {
                return Err(Status::INVALID_FIELD.at(49));
            }
            // PRINFOR, STCW, STCR and PRINFOW: no namespace has protection information.
            if dword >> 12 & 0xf != 0 || dword >> 24 & 0b11_1111 != 0 {
                return Err(Status::INVALID_FIELD.at(51));
            }
            let sources = (dword & 0xff) as u16 + 1;
            if sources > COPY_SOURCES_MAX {
                return Err(Status::COMMAND_SIZE_EXCEEDED.at(48));
            }
            let (first, durability) = (entry.dword_pair(10), durability(fua));
            IoCommand::Copy { first, sources, durability, handle: Handle::NONE }
        }
        _ => return Err(Status::INVALID_OPCODE.at(0)),
    })
}

/// Of a namespace of blocks in segments: those of blocks that neither write where something is written nor write two places.
fn parse_segments(
    entry: &SubmissionEntry,
    namespace: &Namespace,
    durability: impl Fn(bool) -> Durability,
) -> Result<IoCommand, Refusal> {
    match entry.opcode {
        opcodes::WRITE_UNCORRECTABLE | opcodes::WRITE_ZEROES | opcodes::COPY => Err(Status::INVALID_OPCODE.at(0)),
        _ => parse_block(entry, namespace, durability),
    }
}

/// "Dataset Management command", of any namespace.
pub(super) fn dataset_management(entry: &SubmissionEntry) -> IoCommand {
    let ranges = (entry.dword(10) & 0xff) as u16 + 1;
    IoCommand::DatasetManagement { ranges, deallocate: entry.dword(11) & DEALLOCATE != 0 }
}

/// The range of a command without data: SLBA in dwords 10 and 11, NLB, 0-based, in bits 15 to 0 of dword 12.
#[inline]
pub(super) fn covered(entry: &SubmissionEntry, namespace: &Namespace) -> Result<Span, Refusal> {
    check_protection(entry)?;
    namespace.span(entry.dword_pair(10), blocks(entry), 40)
}

/// PRINFO and STC: a check that cannot be made is not passed over.
#[inline]
pub(super) fn check_protection(entry: &SubmissionEntry) -> Result<(), Refusal> {
    if entry.dword(12) & (0xf << 26 | 1 << 24) != 0 {
        return Err(Status::INVALID_FIELD.at(51));
    }
    Ok(())
}

/// Blocks of a command: NLB, bits 15 to 0 of dword 12, 0-based.
pub(super) fn blocks(entry: &SubmissionEntry) -> u64 {
    u64::from(entry.dword(12) & 0xffff) + 1
}

/// The range of Write Uncorrectable: as [`covered`], and whole blocks of the drive. It is those that cannot be read; with
/// smaller blocks, others than the host names would be lost with them.
fn whole_blocks(entry: &SubmissionEntry, namespace: &Namespace) -> Result<Span, Refusal> {
    let span = covered(entry, namespace)?;
    let is_whole = |byte: u64| byte.is_multiple_of(BLOCK_BYTES as u64);
    match (is_whole(span.offset), is_whole(span.end())) {
        (true, true) => Ok(span),
        (false, _) => Err(Status::INVALID_FIELD.at(40)),
        (true, false) => Err(Status::INVALID_FIELD.at(48)),
    }
}

/// The range of a command with data: as [`covered`], and within MDTS, which does not count metadata (CTRATT, MEM).
#[inline]
pub(super) fn transferred(entry: &SubmissionEntry, namespace: &Namespace) -> Result<Span, Refusal> {
    let span = covered(entry, namespace)?;
    if span.length > u64::from(TRANSFER_BYTES_MAX) {
        return Err(Status::INVALID_FIELD.at(48));
    }
    Ok(span)
}

impl Namespace {
    /// The ranges of a Dataset Management command, checked as a whole first: nothing is deallocated if one is wrong. Empty
    /// ranges are left out.
    ///
    /// # Errors
    /// If there are not as many as the command says, or one is not in the namespace.
    pub fn deallocated<'a>(&self, ranges: u16, data: &'a [u8]) -> Result<impl Iterator<Item = Span> + 'a, Refusal> {
        let ranges = listed::<DatasetRange>(data, usize::from(ranges))?;
        for range in ranges {
            self.span(range.first.get(), u64::from(range.blocks.get()), 40)?;
        }
        let log2 = self.block_bytes_log2();
        Ok(ranges.iter().filter(|range| range.blocks.get() > 0).map(move |range| Span {
            offset: range.first.get() << log2,
            length: u64::from(range.blocks.get()) << log2,
        }))
    }

    /// What the context attributes of a Dataset Management command say of blocks of the drive. They are hints: ranges that are not in
    /// the namespace are left out.
    ///
    /// # Errors
    /// If there are not as many ranges as the command says.
    pub fn expected_uses(&self, ranges: u16, data: &[u8]) -> Result<Vec<(Extent, ExpectedUse)>, Refusal> {
        let block = BLOCK_BYTES as u64;
        let hint = |range: &DatasetRange| {
            let expected = range.expected_use()?;
            let span = self.span(range.first.get(), u64::from(range.blocks.get()), 40).ok()?;
            let (first, end) = (span.offset / block, span.end().div_ceil(block));
            (span.length > 0).then_some((Extent { first, blocks: end - first }, expected))
        };
        Ok(listed::<DatasetRange>(data, usize::from(ranges))?.iter().filter_map(hint).collect())
    }

    /// A range that is an object, or part of one, as an extent of the drive.
    fn object_range(&self, first: u64, blocks: u32) -> Result<Extent, Refusal> {
        let Span { offset, length } = self.span(first, u64::from(blocks), 40)?;
        let block = BLOCK_BYTES as u64;
        if length == 0 || !(offset | length).is_multiple_of(block) {
            return Err(Status::INVALID_FIELD.into());
        }
        Ok(Extent { first: offset / block, blocks: length / block })
    }

    /// The ranges of a FlashAlloc command as extents of the drive, all checked.
    ///
    /// # Errors
    /// If there are not as many as the command says, or one is empty, not in the namespace, or not of whole blocks of the drive.
    pub fn object(&self, ranges: u16, data: &[u8]) -> Result<Vec<Extent>, Refusal> {
        let extent = |range: &DatasetRange| self.object_range(range.first.get(), range.blocks.get());
        listed::<DatasetRange>(data, usize::from(ranges))?.iter().map(extent).collect()
    }

    /// The ranges of a Copy command to block `first`, all checked.
    ///
    /// # Errors
    /// If there are not as many as the command says, one of them or the destination is not in the namespace, or they are
    /// more than may be copied at once.
    pub fn copy_plan<'a>(&self, first: u64, sources: u16, data: &'a [u8]) -> Result<CopyPlan<'a>, Refusal> {
        let sources = listed::<CopySource>(data, usize::from(sources))?;
        let mut blocks = 0;
        for source in sources {
            let length = u64::from(source.last.get()) + 1;
            self.span(source.first.get(), length, 40)?;
            blocks += length;
        }
        let block_bytes_log2 = self.block_bytes_log2();
        // No source is longer than all of them together.
        if blocks << block_bytes_log2 > COPY_BYTES_MAX {
            return Err(Status::COMMAND_SIZE_EXCEEDED.at(48));
        }
        Ok(CopyPlan { to: self.span(first, blocks, 40)?, sources, block_bytes_log2 })
    }
}

/// The first `count` entries of a list that the host has sent.
fn listed<T: FromBytes + Immutable + KnownLayout + Unaligned>(data: &[u8], count: usize) -> Result<&[T], Refusal> {
    match <[T]>::ref_from_prefix_with_elems(data, count) {
        Ok((list, _)) => Ok(list),
        Err(_) => Err(Status::DATA_SGL_LENGTH_INVALID.at(32)),
    }
}

#[cfg(test)]
#[path = "io_tests.rs"]
mod tests;
