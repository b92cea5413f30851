//! Typed commands: 64 bytes in, what the host wants or the exact status out. Parsing never panics.
//!
//! | module | commands |
//! |---|---|
//! | [`fabrics`] | Connect, properties, authentication, on any queue |
//! | [`admin`] | on the admin queue |
//! | [`io`] | on the others, of block namespaces |
//! | [`open_channel`] | on the others, of Open-Channel namespaces |
//! | [`zoned`] | on the others, of zoned namespaces |
//! | [`pages`] | on the others, of stores of pages |
//! | [`values`] | on the others, of key-value drives |
//! | [`reservation`] | on the others, of every namespace: its reservation |

pub mod admin;
pub mod fabrics;
pub mod io;
pub mod open_channel;
pub mod pages;
pub mod reservation;
pub mod values;
pub mod zoned;

pub use admin::AdminCommand;
pub use fabrics::FabricsCommand;
pub use io::{Half, Io, IoCommand};
pub use open_channel::VectorCommand;
pub use pages::PageCommand;
pub use reservation::{Access, ReservationCommand};
pub use values::ValueCommand;
pub use zoned::{ZoneCommand, ZoneReport};

use crate::wire::entry::{SglDescriptor, SubmissionEntry};
use crate::wire::log::ErrorEntry;
use crate::wire::status::Status;

/// What a command returns: its status, and dwords 0 and 1 of the completion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answer {
    /// How it ended.
    pub status: Status,
    /// DW0 and DW1.
    pub result: u64,
}

impl Answer {
    /// Success, with a value.
    #[must_use]
    pub fn of(result: u64) -> Answer {
        Answer { status: Status::SUCCESS, result }
    }
}

impl From<Status> for Answer {
    fn from(status: Status) -> Answer {
        Answer { status, result: 0 }
    }
}

/// Why a command is refused, and which of its bits is at fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// How it ends.
    pub status: Status,
    /// Byte in bits 7 to 0, bit in bits 10 to 8, as the error log says it; FFFFh: none in particular.
    pub location: u16,
    /// The first block of the namespace that failed, or what else the completion says; `None`: the block with which the command begins.
    pub block: Option<u64>,
}

impl Refusal {
    /// With the bit at fault as well as the byte.
    #[must_use]
    pub fn bit(self, bit: u8) -> Refusal {
        Refusal { location: self.location | u16::from(bit) << 8, ..self }
    }

    /// What the completion says beside the status: where a segment goes on that was not written in order, as a block of the namespace; of
    /// pages what [`pages::refusal_of`] has of the error.
    pub(crate) fn result(self) -> u64 {
        match self.status {
            Status::SEGMENT_OVERWRITE | Status::SEGMENT_GAP | Status::CAPACITY_EXCEEDED => self.block.unwrap_or(0),
            status if pages::has_result(status) => self.block.unwrap_or(0),
            _ => 0,
        }
    }
}

impl From<Status> for Refusal {
    fn from(status: Status) -> Refusal {
        Refusal { status, location: ErrorEntry::NO_LOCATION, block: None }
    }
}

impl Status {
    /// A refusal because of this byte of the command.
    #[must_use]
    pub fn at(self, byte: u8) -> Refusal {
        Refusal { status: self, location: u16::from(byte), block: None }
    }
}

/// The data of a command: which way, and how many bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transfer {
    /// No data.
    None,
    /// The host sends this many bytes before the command can be done.
    ToController(u32),
    /// The controller sends at most this many bytes.
    ToHost(u32),
}

impl Transfer {
    /// How many bytes, in either direction.
    #[must_use]
    pub fn bytes(self) -> u32 {
        match self {
            Transfer::None => 0,
            Transfer::ToController(bytes) | Transfer::ToHost(bytes) => bytes,
        }
    }
}

/// Checks what all commands but those of fabrics have in common (Base, "Submission Queue Entry"): not one half of a fused
/// pair, and a data pointer that is an SGL.
///
/// # Errors
/// The field that is not as it should be.
#[inline]
pub(crate) fn check_flags(entry: &SubmissionEntry) -> Result<(), Refusal> {
    if entry.flags & FUSE != 0 {
        return Err(Status::INVALID_FIELD.at(1));
    }
    check_data_flags(entry)
}

/// FUSE, bits 1 and 0 of byte 1.
pub(crate) const FUSE: u8 = 0b11;

/// The same of a command that may be half of a fused pair.
///
/// # Errors
/// The field that is not as it should be.
#[inline]
pub(crate) fn check_data_flags(entry: &SubmissionEntry) -> Result<(), Refusal> {
    if entry.flags & 0b1100_0000 != SubmissionEntry::PSDT_SGL {
        return Err(Status::INVALID_FIELD.at(1).bit(6));
    }
    Ok(())
}

/// Checks that the data pointer has room for the transfer and can be used for it (Base, "Scatter Gather List"). A longer
/// one is fine, as SGLS says: Linux sends whole pages with Dataset Management.
///
/// # Errors
/// The field that is not as it should be.
#[inline]
pub(crate) fn check_data_pointer(entry: &SubmissionEntry, transfer: Transfer) -> Result<(), Refusal> {
    let bytes = match (transfer, entry.data.identifier) {
        (Transfer::None, _) => return Ok(()),
        (Transfer::ToController(bytes), SglDescriptor::IN_CAPSULE | SglDescriptor::TRANSPORT)
        | (Transfer::ToHost(bytes), SglDescriptor::TRANSPORT) => bytes,
        // There is nothing in the capsule that the controller could write to.
        (Transfer::ToHost(_), SglDescriptor::IN_CAPSULE) => return Err(Status::INVALID_FIELD.at(39)),
        _ => return Err(Status::SGL_TYPE_INVALID.at(39)),
    };
    if entry.data.length.get() < bytes {
        return Err(Status::DATA_SGL_LENGTH_INVALID.at(32));
    }
    Ok(())
}
