//! What a command of an NVMe host asks of an Open-Channel device.

use openftl_bytes::ByteRequest;
use openftl_bytes::device::DeviceRequest;
use openftl_core::{BLOCK_BYTES, Ppa, VECTOR_BLOCKS_MAX};
use openftl_media::Blocks;
use openftl_nvme::command::Refusal;
use openftl_nvme::command::open_channel::{VectorAction, VectorCommand, scalar_blocks};
use openftl_nvme::{IoCommand, Span};
use openftl_parts::target::Durability;

use crate::nvme::{Command, Part};

/// Room for the lists of a vector command.
pub(crate) struct Lists {
    at: [Ppa; VECTOR_BLOCKS_MAX],
    to: [Ppa; VECTOR_BLOCKS_MAX],
}

impl Default for Lists {
    fn default() -> Lists {
        Lists { at: [Ppa(0); VECTOR_BLOCKS_MAX], to: [Ppa(0); VECTOR_BLOCKS_MAX] }
    }
}

impl Lists {
    /// The lists of `vector` as they came in its capsule: which blocks, and, of a copy, where to.
    pub fn read(&mut self, vector: &VectorCommand, capsule: &[u8]) -> Result<(&[Ppa], &[Ppa]), Refusal> {
        let at = vector.at.read(vector.blocks, capsule, &mut self.at)?;
        let to = match vector.action {
            VectorAction::Copy => vector.to.read(vector.blocks, capsule, &mut self.to)?,
            _ => &[],
        };
        Ok((at, to))
    }
}

/// What `part` of `command` asks of a device. Lists have been read before.
pub(crate) fn device_request<'a>(command: &Command, part: Part, lists: &'a mut Lists) -> DeviceRequest<'a> {
    let blocks = |offset, length| scalar_blocks(Span { offset, length });
    match (part, command.io.expect("an I/O command").command) {
        (Part::Bytes(ByteRequest::Read { offset, length }), _) => DeviceRequest::Read(blocks(offset, length)),
        // "Deallocate" of whole chunks is what a reset is called in scalar form.
        (Part::Bytes(ByteRequest::Trim { offset, length, .. }), _) => {
            let first = Ppa(offset / BLOCK_BYTES as u64);
            DeviceRequest::Reset(Blocks::Scalar { first, count: (length / BLOCK_BYTES as u64) as u32 })
        }
        (Part::Bytes(ByteRequest::Flush), _) => DeviceRequest::Flush,
        (_, IoCommand::Write { span, durability, .. }) => {
            DeviceRequest::Write { blocks: scalar_blocks(span), fua: durability == Durability::Durable }
        }
        (_, IoCommand::OpenChannel(vector)) => {
            let (at, to) = lists.read(&vector, &command.heap).expect("they were read before");
            match vector.action {
                VectorAction::Reset => DeviceRequest::Reset(Blocks::Vector(at)),
                VectorAction::Write => DeviceRequest::Write { blocks: Blocks::Vector(at), fua: vector.fua },
                VectorAction::Read => DeviceRequest::Read(Blocks::Vector(at)),
                VectorAction::Copy => DeviceRequest::Copy { from: at, to, fua: vector.fua },
            }
        }
        (_, other) => unreachable!("{other:?} is no command of a device"),
    }
}
