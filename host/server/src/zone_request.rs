//! What a command of an NVMe host asks of a zoned drive.

use openftl_bytes::ByteRequest;
use openftl_bytes::zones::ZoneAsk;
use openftl_core::BLOCK_BYTES;
use openftl_nvme::command::ZoneCommand;
use openftl_nvme::{IoCommand, Span};

use crate::nvme::{Command, Part};

/// What `part` of `command` asks of a zoned drive.
pub(crate) fn zone_request(command: &Command, part: Part) -> ZoneAsk {
    let blocks = |Span { offset, length }: Span| (offset / BLOCK_BYTES as u64, (length / BLOCK_BYTES as u64) as u32);
    match (part, command.io.expect("an I/O command").command) {
        (Part::Bytes(ByteRequest::Read { offset, length }), _) => {
            let (first, blocks) = blocks(Span { offset, length });
            ZoneAsk::Read { first, blocks }
        }
        (Part::Bytes(ByteRequest::Flush), _) => ZoneAsk::Flush,
        (_, IoCommand::Write { span, durability, .. }) => {
            let (first, blocks) = blocks(span);
            ZoneAsk::Write { first, blocks, durability }
        }
        (_, IoCommand::Zone(ZoneCommand::Append { span, durability })) => {
            let (zone, blocks) = blocks(span);
            ZoneAsk::Append { zone, blocks, durability }
        }
        (_, IoCommand::Zone(ZoneCommand::Act { first, action })) => ZoneAsk::Act { zone: first, action },
        (_, IoCommand::Zone(ZoneCommand::OpenWithWindow { first })) => ZoneAsk::OpenWithWindow { zone: first },
        (_, IoCommand::Zone(ZoneCommand::Commit { last })) => ZoneAsk::Commit { last },
        (_, IoCommand::Zone(ZoneCommand::Extend { first, bytes })) => ZoneAsk::Extend { zone: first, bytes },
        (_, IoCommand::Zone(ZoneCommand::ActOnAll { action })) => ZoneAsk::ActOnAll { action },
        (_, other) => unreachable!("{other:?} is no command of a zoned drive"),
    }
}
