//! The commands of an Open-Channel namespace (Open-Channel 2.0, "I/O Commands"), scalar and vector.
//!
//! Over fabrics the controller cannot fetch a list of addresses from the host's memory, so the list comes with the
//! command, in its capsule; dwords 10 and 11 are then an offset in the capsule's data, as in an SGL of that kind:
//!
//! ```text
//!   capsule   ┌ 64-byte entry ┬ list of addresses │ list of destinations ┐
//!             └───────────────┴─▲─────────────────┴─▲────────────────────┘
//!                     dwords 10, 11         dwords 14, 15 (copy)
//! ```
//!
//! A list of one is no list: the dwords are the address itself. Payload travels with its out-of-band bytes behind each
//! block.

use super::io::{DEALLOCATE, DatasetRange, FORCE_UNIT_ACCESS, IoCommand, covered, dataset_management, transferred};
use super::{Answer, Refusal, Transfer};
use crate::namespace::{Namespace, Span};
use crate::wire::entry::{SglDescriptor, SubmissionEntry};
use crate::wire::opcode::io as opcodes;
use crate::wire::status::Status;
use crate::wire::{U32, U64};
use openftl_core::{BLOCK_BYTES, Frame, Ppa, VECTOR_BLOCKS_MAX};
use openftl_media::{Blocks, Command, Completion};
use openftl_parts::target::Durability;
use openftl_parts::words::Handle;
use zerocopy::{FromBytes, IntoBytes};

/// A vector command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VectorCommand {
    /// What to do.
    pub action: VectorAction,
    /// How many blocks, or chunks to reset, 1 to [`VECTOR_BLOCKS_MAX`].
    pub blocks: u8,
    /// Which.
    pub at: AddressList,
    /// Where a copy goes.
    pub to: AddressList,
    /// Force unit access, or the write cache is off.
    pub fua: bool,
}

/// What a vector command does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum VectorAction {
    /// 90h.
    Reset,
    /// 91h.
    Write,
    /// 92h.
    Read,
    /// 93h.
    Copy,
}

/// Where the addresses of a vector command are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AddressList {
    /// There is one: this.
    One(Ppa),
    /// At this byte of the data in the capsule.
    InCapsule(u64),
}

impl AddressList {
    /// The addresses, of which there are `blocks`.
    ///
    /// # Errors
    /// If they are not all in the capsule.
    pub fn read<'a>(
        &self,
        blocks: u8,
        capsule: &[u8],
        addresses: &'a mut [Ppa; VECTOR_BLOCKS_MAX],
    ) -> Result<&'a [Ppa], Refusal> {
        let blocks = usize::from(blocks);
        match *self {
            AddressList::One(ppa) => addresses[0] = ppa,
            AddressList::InCapsule(offset) => {
                let list = usize::try_from(offset).ok().and_then(|offset| capsule.get(offset..));
                let list = list.and_then(|list| <[U64]>::ref_from_prefix_with_elems(list, blocks).ok());
                let Some((list, _)) = list else { return Err(Status::SGL_OFFSET_INVALID.at(40)) };
                for (address, ppa) in addresses.iter_mut().zip(list) {
                    *address = Ppa(ppa.get());
                }
            }
        }
        Ok(&addresses[..blocks])
    }
}

impl VectorCommand {
    /// Its data; the lists of addresses are not among them.
    #[must_use]
    pub fn transfer(&self, namespace: &Namespace) -> Transfer {
        let bytes = namespace.transfer_bytes(u64::from(self.blocks) * BLOCK_BYTES as u64);
        match self.action {
            VectorAction::Reset | VectorAction::Copy => Transfer::None,
            VectorAction::Write => Transfer::ToController(bytes),
            VectorAction::Read => Transfer::ToHost(bytes),
        }
    }

    /// The command for the device: `at` and `to` as [`AddressList::read`] read them, and a frame a block.
    #[must_use]
    pub fn for_device<'a>(&self, at: &'a [Ppa], to: &'a [Ppa], frames: &'a [Frame]) -> Command<'a> {
        let blocks = Blocks::Vector(at);
        match self.action {
            VectorAction::Reset => Command::Reset { blocks },
            VectorAction::Write => Command::Write { blocks, frames, fua: self.fua },
            VectorAction::Read => Command::Read { blocks, frames },
            VectorAction::Copy => Command::Copy { from: at, to, fua: self.fua },
        }
    }
}

/// The answer to a command that the device has ended: the bitmap of failed blocks in dwords 0 and 1.
#[must_use]
pub fn answer_of(completion: &Completion) -> Answer {
    Answer { status: completion.status.into(), result: completion.failed }
}

/// The blocks that a scalar command names.
#[must_use]
pub fn scalar_blocks(span: Span) -> Blocks<'static> {
    let block_bytes = BLOCK_BYTES as u64;
    Blocks::Scalar { first: Ppa(span.offset / block_bytes), count: (span.length / block_bytes) as u32 }
}

/// What a host says to have `command` done on `namespace`, a block of which travels in `block_bytes` bytes: the entry, and
/// lists that are appended to `capsule`, the data in the capsule so far. `None` if the command cannot be said, for want of
/// blocks or because there are too many: the device would answer [`openftl_media::Status::InvalidField`].
#[must_use]
pub fn entry_of(
    command: &Command<'_>,
    namespace: u32,
    block_bytes: u32,
    capsule: &mut Vec<u8>,
) -> Option<SubmissionEntry> {
    let (opcodes, blocks, frames, to, fua) = match *command {
        Command::Read { blocks, frames } => {
            ([opcodes::READ, opcodes::VECTOR_READ], blocks, Some(frames), &[][..], false)
        }
        Command::Write { blocks, frames, fua } => {
            ([opcodes::WRITE, opcodes::VECTOR_WRITE], blocks, Some(frames), &[][..], fua)
        }
        Command::Reset { blocks } => {
            ([opcodes::DATASET_MANAGEMENT, opcodes::VECTOR_RESET], blocks, None, &[][..], false)
        }
        Command::Copy { from, to, fua } => {
            ([opcodes::VECTOR_COPY, opcodes::VECTOR_COPY], Blocks::Vector(from), None, to, fua)
        }
        Command::Flush => {
            let (opcode, flags) = (opcodes::FLUSH, SubmissionEntry::PSDT_SGL);
            return Some(SubmissionEntry { opcode, flags, namespace: namespace.into(), ..SubmissionEntry::default() });
        }
    };
    let [scalar, vector] = opcodes;
    let count = blocks.len();
    let is_copy = matches!(command, Command::Copy { .. });
    if count == 0 || frames.is_some_and(|frames| frames.len() != count) || is_copy && to.len() != count {
        return None;
    }
    let mut dwords = [0_u32; 6];
    let mut put = |dword: usize, value: u64| {
        dwords[dword - 10] = value as u32;
        dwords[dword - 9] = (value >> 32) as u32;
    };
    let mut data = SglDescriptor {
        length: (frames.map_or(0, <[Frame]>::len) as u32 * block_bytes).into(),
        identifier: SglDescriptor::TRANSPORT,
        ..SglDescriptor::default()
    };
    let opcode = match blocks {
        Blocks::Vector(at) => {
            if count > VECTOR_BLOCKS_MAX {
                return None;
            }
            for (dword, list) in [(10, at), (14, to)] {
                match list {
                    [] => {}
                    [one] => put(dword, one.0),
                    list => {
                        put(dword, capsule.len() as u64);
                        list.iter().for_each(|ppa| capsule.extend_from_slice(&ppa.0.to_le_bytes()));
                    }
                }
            }
            vector
        }
        Blocks::Scalar { first, count } if scalar == opcodes::DATASET_MANAGEMENT => {
            let range = DatasetRange { attributes: 0.into(), blocks: count.into(), first: first.0.into() };
            data = SglDescriptor {
                address: (capsule.len() as u64).into(),
                length: (size_of::<DatasetRange>() as u32).into(),
                identifier: SglDescriptor::IN_CAPSULE,
                ..SglDescriptor::default()
            };
            capsule.extend_from_slice(range.as_bytes());
            dwords[1] = DEALLOCATE;
            scalar
        }
        Blocks::Scalar { first, .. } => {
            put(10, first.0);
            scalar
        }
    };
    if opcode != opcodes::DATASET_MANAGEMENT {
        let last = u16::try_from(count - 1).ok()?;
        dwords[2] = u32::from(last) | if fua { FORCE_UNIT_ACCESS } else { 0 };
    }
    Some(SubmissionEntry {
        opcode,
        flags: SubmissionEntry::PSDT_SGL,
        namespace: namespace.into(),
        data,
        dwords_10_15: dwords.map(U32::new),
        ..SubmissionEntry::default()
    })
}

pub(super) fn parse_open_channel(
    entry: &SubmissionEntry,
    namespace: &Namespace,
    is_write_through: bool,
) -> Result<IoCommand, Refusal> {
    let fua = entry.dword(12) & FORCE_UNIT_ACCESS != 0 || is_write_through;
    let durability = if fua { Durability::Durable } else { Durability::Volatile };
    let action = match entry.opcode {
        opcodes::FLUSH => return Ok(IoCommand::Flush),
        opcodes::READ => return Ok(IoCommand::Read(transferred(entry, namespace)?)),
        opcodes::WRITE => {
            let span = transferred(entry, namespace)?;
            return Ok(IoCommand::Write { span, durability, handle: Handle::NONE });
        }
        opcodes::VERIFY => return Ok(IoCommand::Verify(covered(entry, namespace)?)),
        opcodes::DATASET_MANAGEMENT => return Ok(dataset_management(entry)),
        opcodes::VECTOR_RESET => VectorAction::Reset,
        opcodes::VECTOR_WRITE => VectorAction::Write,
        opcodes::VECTOR_READ => VectorAction::Read,
        opcodes::VECTOR_COPY => VectorAction::Copy,
        _ => return Err(Status::INVALID_OPCODE.at(0)),
    };
    // A pointer to metadata (for a reset: to where the new descriptors go) points at memory that is not here.
    if entry.metadata.get() != 0 {
        return Err(Status::INVALID_FIELD.at(16));
    }
    let last = entry.dword(12) & 0xffff;
    if last >= VECTOR_BLOCKS_MAX as u32 {
        return Err(Status::INVALID_FIELD.at(48));
    }
    let list = |dword| match last {
        0 => AddressList::One(Ppa(entry.dword_pair(dword))),
        _ => AddressList::InCapsule(entry.dword_pair(dword)),
    };
    let blocks = last as u8 + 1;
    Ok(IoCommand::OpenChannel(VectorCommand { action, blocks, at: list(10), to: list(14), fua }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::namespace::{Attached, NamespaceKind, NamespaceSet};
    use openftl_core::{Geometry, Time};

    fn namespace() -> Namespace {
        Namespace { id: 1, uuid: [1; 16], kind: NamespaceKind::OpenChannel(Geometry::tiny()) }
    }

    fn parse(opcode: u8, dwords: [u32; 6], length: u32) -> Result<IoCommand, Refusal> {
        let entry = SubmissionEntry::with_data(opcode, 1, length, dwords);
        let mut set = NamespaceSet::default();
        set.insert(1);
        let mut all = vec![None; 64];
        all[0] = Some(namespace());
        crate::command::Io::parse(&entry, Attached { all: &all, set }, false).map(|io| io.command)
    }

    fn vector(opcode: u8, dwords: [u32; 6], length: u32) -> VectorCommand {
        match parse(opcode, dwords, length) {
            Ok(IoCommand::OpenChannel(command)) => command,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_list_of_one_is_the_address_itself() {
        let command = vector(opcodes::VECTOR_READ, [0x11, 0x22, 0, 0, 0, 0], 4112);
        assert_eq!(command.at, AddressList::One(Ppa(0x22_0000_0011)));
        let mut addresses = [Ppa(0); VECTOR_BLOCKS_MAX];
        let at = command.at.read(command.blocks, &[], &mut addresses).unwrap();
        assert_eq!(
            command.for_device(at, &[], &[]),
            Command::Read { blocks: Blocks::Vector(&[Ppa(0x22_0000_0011)]), frames: &[] }
        );
    }

    #[test]
    fn a_list_comes_in_the_capsule() {
        let command = vector(opcodes::VECTOR_COPY, [0, 0, 1 | 1 << 30, 0, 16, 0], 0);
        assert!(command.fua);
        let capsule = [1_u64, 2, 3, 4].map(U64::new);
        let (mut from, mut to) = ([Ppa(0); VECTOR_BLOCKS_MAX], [Ppa(0); VECTOR_BLOCKS_MAX]);
        let from = command.at.read(2, capsule.as_bytes(), &mut from).unwrap();
        let to = command.to.read(2, capsule.as_bytes(), &mut to).unwrap();
        assert_eq!((from, to), (&[Ppa(1), Ppa(2)][..], &[Ppa(3), Ppa(4)][..]));
    }

    #[test]
    fn a_list_that_is_not_in_the_capsule_is_refused() {
        let capsule = [0; 32];
        for offset in [17, 32, 33, u64::MAX] {
            let mut addresses = [Ppa(0); VECTOR_BLOCKS_MAX];
            let refused = AddressList::InCapsule(offset).read(2, &capsule, &mut addresses);
            assert_eq!(refused, Err(Status::SGL_OFFSET_INVALID.at(40)), "{offset}");
        }
    }

    #[test]
    fn what_an_open_channel_namespace_cannot_do_is_refused() {
        assert_eq!(parse(opcodes::COMPARE, [0; 6], 4112), Err(Status::INVALID_OPCODE.at(0)));
        assert_eq!(parse(opcodes::VECTOR_READ, [0, 0, 64, 0, 0, 0], 1 << 20), Err(Status::INVALID_FIELD.at(48)));
        assert_eq!(parse(opcodes::VECTOR_READ, [0; 6], 4096), Err(Status::DATA_SGL_LENGTH_INVALID.at(32)));
        assert_eq!(parse(opcodes::READ, [0, 0, 256, 0, 0, 0], 1 << 21), Err(Status::INVALID_FIELD.at(48)), "MDTS");
        assert_eq!(parse(opcodes::READ, [1 << 9, 0, 0, 0, 0, 0], 4112), Err(Status::LBA_OUT_OF_RANGE.at(40)));
    }

    #[test]
    fn the_bitmap_of_failed_blocks_is_the_result() {
        let completion = Completion {
            tag: 0,
            status: openftl_media::Status::OfflineChunk,
            failed: 0x8000_0000_0000_0001,
            at: Time::ZERO,
        };
        let answer = answer_of(&completion);
        assert_eq!((answer.status, answer.result), (Status::OFFLINE_CHUNK, 0x8000_0000_0000_0001));
    }

    #[test]
    fn scalar_commands_name_contiguous_blocks() {
        let Ok(IoCommand::Read(span)) = parse(opcodes::READ, [5, 0, 2, 0, 0, 0], 3 * 4112) else { panic!("a read") };
        assert_eq!(scalar_blocks(span), Blocks::Scalar { first: Ppa(5), count: 3 });
    }
}
