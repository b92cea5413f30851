//! The commands that make and keep an association (Base, "Fabrics Command Set").

use super::{Refusal, Transfer, check_data_pointer};
use crate::wire::entry::SubmissionEntry;
use crate::wire::fabrics::{AUTHENTICATION_PROTOCOL, AuthenticationDwords, ConnectData};
use crate::wire::opcode::fabrics as types;
use crate::wire::status::Status;
use zerocopy::{FromBytes, IntoBytes};

/// The longest authentication message, in bytes.
pub const AUTHENTICATION_BYTES_MAX: u32 = 8192;

/// What a host wants of the association.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FabricsCommand {
    /// "Connect Command": make a queue.
    Connect(Connect),
    /// "Property Get Command".
    PropertyGet {
        /// OFST.
        offset: u32,
        /// Bytes, 4 or 8.
        bytes: u8,
    },
    /// "Property Set Command".
    PropertySet {
        /// OFST.
        offset: u32,
        /// Bytes, 4 or 8.
        bytes: u8,
        /// VALUE.
        value: u64,
    },
    /// "Disconnect Command": delete this I/O queue.
    Disconnect,
    /// "Authentication Send Command": the host sends a message of this many bytes.
    AuthenticationSend {
        /// TL.
        bytes: u32,
    },
    /// "Authentication Receive Command": the host wants a message of at most this many bytes.
    AuthenticationReceive {
        /// AL.
        bytes: u32,
    },
}

/// The fields of a Connect command; those of its data are in [`ConnectData`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Connect {
    /// RECFMT.
    pub record_format: u16,
    /// QID.
    pub queue: u16,
    /// SQSIZE, 0-based.
    pub last_entry: u16,
    /// CATTR.
    pub attributes: u8,
    /// KATO.
    pub keep_alive_ms: u32,
}

impl FabricsCommand {
    /// What the 64 bytes say.
    ///
    /// # Errors
    /// The status of what they say wrong.
    pub fn parse(entry: &SubmissionEntry) -> Result<FabricsCommand, Refusal> {
        let command = match entry.fabrics_type() {
            types::CONNECT => FabricsCommand::Connect(Connect {
                record_format: entry.dword(10) as u16,
                queue: (entry.dword(10) >> 16) as u16,
                last_entry: entry.dword(11) as u16,
                attributes: (entry.dword(11) >> 16) as u8,
                keep_alive_ms: entry.dword(12),
            }),
            types::PROPERTY_GET => FabricsCommand::PropertyGet { offset: entry.dword(11), bytes: size(entry)? },
            types::PROPERTY_SET => FabricsCommand::PropertySet {
                offset: entry.dword(11),
                bytes: size(entry)?,
                value: entry.dword_pair(12),
            },
            types::DISCONNECT => {
                if entry.dword(10) as u16 != 0 {
                    return Err(Status::CONNECT_INCOMPATIBLE_FORMAT.at(40));
                }
                FabricsCommand::Disconnect
            }
            types::AUTHENTICATION_SEND => FabricsCommand::AuthenticationSend { bytes: message_bytes(entry)? },
            types::AUTHENTICATION_RECEIVE => FabricsCommand::AuthenticationReceive { bytes: message_bytes(entry)? },
            _ => return Err(Status::INVALID_FIELD.at(4)),
        };
        check_data_pointer(entry, command.transfer())?;
        Ok(command)
    }

    /// Its data.
    #[must_use]
    pub fn transfer(&self) -> Transfer {
        match *self {
            FabricsCommand::Connect(_) => Transfer::ToController(size_of::<ConnectData>() as u32),
            FabricsCommand::AuthenticationSend { bytes } => Transfer::ToController(bytes),
            FabricsCommand::AuthenticationReceive { bytes } => Transfer::ToHost(bytes),
            FabricsCommand::PropertyGet { .. } | FabricsCommand::PropertySet { .. } | FabricsCommand::Disconnect => {
                Transfer::None
            }
        }
    }
}

/// Size of a property: ATTRIB bits 2 to 0.
fn size(entry: &SubmissionEntry) -> Result<u8, Refusal> {
    match entry.dword(10) & 0b111 {
        0b000 => Ok(4),
        0b001 => Ok(8),
        _ => Err(Status::INVALID_FIELD.at(40)),
    }
}

/// Bytes of an authentication message, when it is one of the protocol that we speak.
fn message_bytes(entry: &SubmissionEntry) -> Result<u32, Refusal> {
    let dwords = AuthenticationDwords::ref_from_bytes(&entry.as_bytes()[40..48]).expect("eight bytes");
    if dwords.protocol != AUTHENTICATION_PROTOCOL {
        return Err(Status::INVALID_FIELD.at(43));
    }
    if dwords.protocol_specific_0 != 1 {
        return Err(Status::INVALID_FIELD.at(41));
    }
    if dwords.protocol_specific_1 != 1 {
        return Err(Status::INVALID_FIELD.at(42));
    }
    match dwords.length.get() {
        bytes @ 1..=AUTHENTICATION_BYTES_MAX => Ok(bytes),
        _ => Err(Status::INVALID_FIELD.at(44)),
    }
}
