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

use super::io::{IoCommand, covered, dataset_management, transferred};
use super::{Answer, Refusal, Transfer};
use crate::namespace::{Namespace, Span};
use crate::wire::U64;
use crate::wire::entry::SubmissionEntry;
use crate::wire::opcode::io as opcodes;
use crate::wire::status::Status;
use openftl_core::{BLOCK_BYTES, Frame, Ppa, VECTOR_BLOCKS_MAX};
use openftl_ftl::target::Durability;
use openftl_media::{Blocks, Command, Completion};
use zerocopy::FromBytes;

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
        let bytes = namespace.transfer_bytes(u64::from(self.blocks)) as u32;
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

pub(super) fn parse_open_channel(
    entry: &SubmissionEntry,
    namespace: &Namespace,
    is_write_through: bool,
) -> Result<IoCommand, Refusal> {
    let fua = entry.dword(12) & 1 << 30 != 0 || is_write_through;
    let durability = if fua { Durability::Durable } else { Durability::Volatile };
    let action = match entry.opcode {
        opcodes::FLUSH => return Ok(IoCommand::Flush),
        opcodes::READ => return Ok(IoCommand::Read(transferred(entry, namespace)?)),
        opcodes::WRITE => return Ok(IoCommand::Write { span: transferred(entry, namespace)?, durability }),
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
    use crate::wire::U32;
    use crate::wire::entry::SglDescriptor;
    use openftl_core::{Geometry, Time};
    use zerocopy::IntoBytes;

    fn namespace() -> Namespace {
        Namespace { id: 1, uuid: [1; 16], kind: NamespaceKind::OpenChannel(Geometry::tiny()) }
    }

    fn parse(opcode: u8, dwords: [u32; 6], length: u32) -> Result<IoCommand, Refusal> {
        let entry = SubmissionEntry {
            opcode,
            flags: SubmissionEntry::PSDT_SGL,
            namespace: 1.into(),
            data: SglDescriptor {
                length: length.into(),
                identifier: SglDescriptor::TRANSPORT,
                ..SglDescriptor::default()
            },
            dwords_10_15: dwords.map(U32::new),
            ..SubmissionEntry::default()
        };
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
        assert_eq!(parse(opcodes::READ, [0, 0, 255, 0, 0, 0], 1 << 21), Err(Status::INVALID_FIELD.at(48)), "MDTS");
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
