//! The commands of a key-value drive; [`crate::wire::values`] has the tables of their fields and statuses.
//!
//! | checked here | left to the drive |
//! |---|---|
//! | fields, lengths of keys, values and buffers | whether there is a key, and room for its value: [`ValueError`] |

use super::io::IoCommand;
use super::{Refusal, Transfer};
use crate::namespace::{Attached, NamespaceKind, TRANSFER_BYTES_MAX, ValueShape};
use crate::wire::U32;
use crate::wire::entry::SubmissionEntry;
use crate::wire::opcode::io as opcodes;
use crate::wire::status::Status;
use crate::wire::values::{LIST_BYTES_MIN, option};
use openftl_parts::target::Durability;
use openftl_values::{Condition, KEY_BYTES_MAX, Key, ValueError};

/// A command that only key-value drives have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ValueCommand {
    /// "Store command".
    Store {
        /// The key.
        key: Key,
        /// Bytes of its value.
        bytes: u32,
        /// Whether it is to exist.
        condition: Condition,
        /// The write cache is off; the command has no FUA.
        durability: Durability,
    },
    /// "Retrieve command".
    Retrieve {
        /// The key.
        key: Key,
        /// Bytes that the host has room for.
        bytes: u32,
    },
    /// "List command".
    List {
        /// The first key, or where it would be; `None`: from the first one on.
        from: Option<Key>,
        /// Bytes that the host has room for.
        bytes: u32,
    },
    /// "Delete command".
    Delete {
        /// The key.
        key: Key,
        /// It is an error if the key does not exist.
        needs_key: bool,
        /// The write cache is off; the command has no FUA.
        durability: Durability,
    },
    /// "Exist command".
    Exist {
        /// The key.
        key: Key,
    },
}

impl ValueCommand {
    /// Its data.
    pub(super) fn transfer(&self) -> Transfer {
        match *self {
            ValueCommand::Store { bytes: bytes @ 1.., .. } => Transfer::ToController(bytes),
            ValueCommand::Retrieve { bytes: bytes @ 1.., .. } | ValueCommand::List { bytes, .. } => {
                Transfer::ToHost(bytes)
            }
            ValueCommand::Store { .. }
            | ValueCommand::Retrieve { .. }
            | ValueCommand::Delete { .. }
            | ValueCommand::Exist { .. } => Transfer::None,
        }
    }

    /// What a host says for it, with room for as many bytes of data as it has. Neither `needs_key` nor durability are in it: these are features.
    #[must_use]
    pub fn entry(&self, namespace: u32) -> SubmissionEntry {
        let (opcode, key, bytes, options) = match *self {
            ValueCommand::Store { key, bytes, condition, .. } => {
                let options = match condition {
                    Condition::Always => 0,
                    Condition::IfExists => option::IF_EXISTS,
                    Condition::IfMissing => option::IF_MISSING,
                };
                (opcodes::VALUE_STORE, Some(key), bytes, options)
            }
            ValueCommand::Retrieve { key, bytes } => (opcodes::VALUE_RETRIEVE, Some(key), bytes, 0),
            ValueCommand::List { from, bytes } => (opcodes::VALUE_LIST, from, bytes, 0),
            ValueCommand::Delete { key, .. } => (opcodes::VALUE_DELETE, Some(key), 0, 0),
            ValueCommand::Exist { key } => (opcodes::VALUE_EXIST, Some(key), 0, 0),
        };
        let length = key.map_or(0, |key| u32::from(key.length()));
        let padded = key.map_or([0; KEY_BYTES_MAX], |key| key.padded());
        let (words, _) = padded.as_chunks::<4>();
        let word = |at: usize| u32::from_le_bytes(words[at]);
        SubmissionEntry {
            dwords_2_3: [word(0), word(1)].map(U32::new),
            ..SubmissionEntry::with_data(opcode, namespace, bytes, [bytes, length | options, 0, 0, word(2), word(3)])
        }
    }
}

/// Whether a command that names all namespaces is one of the key-value command set: it has an opcode of that set alone, or all namespaces are
/// key-value drives.
pub(super) fn is_for_values(opcode: u8, namespaces: Attached<'_>) -> bool {
    match opcode {
        opcodes::VALUE_LIST | opcodes::VALUE_DELETE | opcodes::VALUE_EXIST => true,
        opcodes::VALUE_STORE | opcodes::VALUE_RETRIEVE => {
            namespaces.iter().all(|one| matches!(one.kind, NamespaceKind::Values(_)))
                && namespaces.iter().next().is_some()
        }
        _ => false,
    }
}

/// What the 64 bytes say to a key-value drive.
pub(super) fn parse_values(
    entry: &SubmissionEntry,
    shape: &ValueShape,
    is_write_through: bool,
) -> Result<IoCommand, Refusal> {
    let (bytes, options) = (entry.dword(10), entry.dword(11) & option::ALL);
    let durability = if is_write_through { Durability::Durable } else { Durability::Volatile };
    Ok(IoCommand::Value(match entry.opcode {
        opcodes::FLUSH => return Ok(IoCommand::Flush),
        opcodes::VALUE_STORE => {
            let known = option::IF_EXISTS | option::IF_MISSING | option::NOT_COMPRESSED;
            let condition = match (options & option::IF_EXISTS != 0, options & option::IF_MISSING != 0) {
                _ if options & !known != 0 => return Err(Status::INVALID_FIELD.at(45)),
                (true, true) => return Err(Status::INVALID_FIELD.at(45)),
                (true, false) => Condition::IfExists,
                (false, true) => Condition::IfMissing,
                (false, false) => Condition::Always,
            };
            let key = key_of(entry, shape)?;
            if bytes > shape.value_max() {
                return Err(Status::INVALID_VALUE_SIZE.at(40));
            }
            ValueCommand::Store { key, bytes, condition, durability }
        }
        opcodes::VALUE_RETRIEVE => {
            expect_options(options, option::RAW)?;
            expect_buffer(bytes, 0)?;
            ValueCommand::Retrieve { key: key_of(entry, shape)?, bytes }
        }
        opcodes::VALUE_LIST => {
            expect_options(options, 0)?;
            expect_buffer(bytes, LIST_BYTES_MIN)?;
            let from = if length_of(entry) == 0 { None } else { Some(key_of(entry, shape)?) };
            ValueCommand::List { from, bytes }
        }
        opcodes::VALUE_DELETE => {
            expect_options(options, 0)?;
            ValueCommand::Delete { key: key_of(entry, shape)?, needs_key: false, durability }
        }
        opcodes::VALUE_EXIST => {
            expect_options(options, 0)?;
            ValueCommand::Exist { key: key_of(entry, shape)? }
        }
        _ => return Err(Status::INVALID_OPCODE.at(0)),
    }))
}

fn expect_options(options: u32, known: u32) -> Result<(), Refusal> {
    if options & !known == 0 { Ok(()) } else { Err(Status::INVALID_FIELD.at(45)) }
}

fn expect_buffer(bytes: u32, least: u32) -> Result<(), Refusal> {
    if (least..=TRANSFER_BYTES_MAX).contains(&bytes) { Ok(()) } else { Err(Status::INVALID_FIELD.at(40)) }
}

fn length_of(entry: &SubmissionEntry) -> usize {
    (entry.dword(11) & 0xff) as usize
}

/// The key of a command. What lies behind its length is not looked at.
fn key_of(entry: &SubmissionEntry, shape: &ValueShape) -> Result<Key, Refusal> {
    let length = length_of(entry);
    if length > KEY_BYTES_MAX {
        return Err(Status::INVALID_FIELD.at(44));
    }
    if length > usize::from(shape.key_max) {
        return Err(Status::INVALID_KEY_SIZE.at(44));
    }
    let [first, second] = entry.dwords_2_3.map(U32::get);
    let mut bytes = [0; KEY_BYTES_MAX];
    let words = [first, second, entry.dword(14), entry.dword(15)];
    words.iter().zip(bytes.as_chunks_mut::<4>().0).for_each(|(word, bytes)| *bytes = word.to_le_bytes());
    Key::new(&bytes[..length]).map_err(|_| Status::INVALID_KEY_SIZE.at(44))
}

/// How a command ends that the drive refused.
#[must_use]
pub fn refusal_of(error: ValueError) -> Refusal {
    Refusal::from(match error {
        ValueError::Busy => Status::NAMESPACE_NOT_READY,
        ValueError::CapacityExceeded { .. } | ValueError::KeysExceeded { .. } => Status::CAPACITY_EXCEEDED,
        ValueError::ValueSize { .. } => Status::INVALID_VALUE_SIZE,
        ValueError::KeySize { .. } => Status::INVALID_KEY_SIZE,
        ValueError::NoKey => Status::KEY_NOT_FOUND,
        ValueError::KeyExists => Status::KEY_EXISTS,
        ValueError::Unrecovered => Status::VALUE_UNRECOVERED,
        ValueError::ListSize { .. } => Status::INVALID_FIELD.at(40).status,
        ValueError::ReadOnly(_) => Status::WRITE_TO_READ_ONLY,
        ValueError::Log(_) => Status::WRITE_FAULT,
        ValueError::Frames { .. } | ValueError::Pages(_) => Status::INTERNAL_ERROR,
    })
}
