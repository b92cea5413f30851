//! The commands for reservations (Base, "Reservation Register command" and those beside it), which every namespace has, and how every
//! other command accesses its namespace.

use super::io::IoCommand;
use super::open_channel::{VectorAction, VectorCommand};
use super::{PageCommand, Refusal, Transfer, ValueCommand, ZoneCommand};
use crate::namespace::TRANSFER_BYTES_MAX;
use crate::reservation::ReservationType;
use crate::wire::entry::SubmissionEntry;
use crate::wire::opcode::io as opcodes;
use crate::wire::reservation::{EXTENDED_REPORT, IGNORE_KEY, ReservationKeys, acquire, persistence, register, release};
use crate::wire::status::Status;
use zerocopy::FromBytes;

/// A command about the reservation of a namespace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReservationCommand {
    /// "Reservation Register command": the host sends [`Keys`].
    Register {
        /// What to do.
        action: Register,
        /// IEKEY: whatever the key of the host is.
        ignores_key: bool,
    },
    /// "Reservation Report command", with the extended data structure.
    Report {
        /// Bytes that the host wants.
        bytes: u32,
    },
    /// "Reservation Acquire command": the host sends [`Keys`].
    Acquire {
        /// What to do.
        action: Acquire,
        /// RTYPE, of the reservation that is made.
        kind: ReservationType,
    },
    /// "Reservation Release command": the host sends the first of [`Keys`].
    Release {
        /// What to do.
        action: Release,
    },
}

/// RREGA.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Register {
    /// The host is to be a registrant.
    Register,
    /// It is to be none.
    Unregister,
    /// It is to have another key.
    Replace,
}

/// RACQA.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Acquire {
    /// The host is to hold the reservation.
    Acquire,
    /// Registrants of a key are to be none, and if one holds the reservation, the host is to hold it.
    Preempt,
    /// The same, and their commands under way end before.
    PreemptAndAbort,
}

/// RRELA.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Release {
    /// The host is to hold the reservation of this type no longer.
    Release(ReservationType),
    /// There is to be no reservation and no registrant.
    Clear,
}

/// The data of these commands.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Keys {
    /// CRKEY, the key of the host.
    pub current: u64,
    /// NRKEY or PRKEY: its new key, or that of another host.
    pub other: u64,
}

/// What a command does to the data of its namespace, as far as reservations go (Base, "Command Behavior in the Presence of a Reservation";
/// the commands of our own are sorted the same way).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Nothing: commands about the reservation itself have rules of their own.
    None,
    /// It reads.
    Read,
    /// It changes them, or makes changes durable.
    Write,
}

impl Keys {
    /// Those of a command, as far as it has them.
    ///
    /// # Errors
    /// If the data are too short.
    pub fn of(command: ReservationCommand, data: &[u8]) -> Result<Keys, Refusal> {
        let too_short = Status::DATA_SGL_LENGTH_INVALID.at(32);
        if let ReservationCommand::Release { .. } = command {
            let current = data.first_chunk::<8>().ok_or(too_short)?;
            return Ok(Keys { current: u64::from_le_bytes(*current), other: 0 });
        }
        let (keys, _) = ReservationKeys::ref_from_prefix(data).map_err(|_| too_short)?;
        Ok(Keys { current: keys.current.get(), other: keys.other.get() })
    }
}

impl ReservationCommand {
    /// Bytes that the host sends.
    #[must_use]
    pub fn sends(&self) -> u32 {
        match self {
            ReservationCommand::Register { .. } | ReservationCommand::Acquire { .. } => {
                size_of::<ReservationKeys>() as u32
            }
            ReservationCommand::Release { .. } => size_of::<u64>() as u32,
            ReservationCommand::Report { .. } => 0,
        }
    }

    /// Whether commands under way of hosts that it preempts end before it does.
    #[must_use]
    pub fn aborts(&self) -> bool {
        matches!(self, ReservationCommand::Acquire { action: Acquire::PreemptAndAbort, .. })
    }

    /// Its data.
    pub(super) fn transfer(&self) -> Transfer {
        match self {
            ReservationCommand::Report { bytes } => Transfer::ToHost(*bytes),
            _ => Transfer::ToController(self.sends()),
        }
    }

    /// What a host says for it, with room for as many bytes of data as it has.
    #[must_use]
    pub fn entry(&self, namespace: u32) -> SubmissionEntry {
        let (opcode, dwords) = match *self {
            ReservationCommand::Register { action, ignores_key } => {
                let action = match action {
                    Register::Register => register::REGISTER,
                    Register::Unregister => register::UNREGISTER,
                    Register::Replace => register::REPLACE,
                };
                (opcodes::RESERVATION_REGISTER, [action | if ignores_key { IGNORE_KEY } else { 0 }, 0])
            }
            ReservationCommand::Report { bytes } => (opcodes::RESERVATION_REPORT, [bytes / 4 - 1, EXTENDED_REPORT]),
            ReservationCommand::Acquire { action, kind } => {
                let action = match action {
                    Acquire::Acquire => acquire::ACQUIRE,
                    Acquire::Preempt => acquire::PREEMPT,
                    Acquire::PreemptAndAbort => acquire::PREEMPT_AND_ABORT,
                };
                (opcodes::RESERVATION_ACQUIRE, [action | u32::from(kind.code()) << 8, 0])
            }
            ReservationCommand::Release { action } => {
                let dword = match action {
                    Release::Release(kind) => release::RELEASE | u32::from(kind.code()) << 8,
                    Release::Clear => release::CLEAR,
                };
                (opcodes::RESERVATION_RELEASE, [dword, 0])
            }
        };
        let dwords = [dwords[0], dwords[1], 0, 0, 0, 0];
        SubmissionEntry::with_data(opcode, namespace, self.transfer().bytes(), dwords)
    }
}

/// Whether an opcode is one of these commands.
pub(super) fn is_reservation(opcode: u8) -> bool {
    matches!(
        opcode,
        opcodes::RESERVATION_REGISTER
            | opcodes::RESERVATION_REPORT
            | opcodes::RESERVATION_ACQUIRE
            | opcodes::RESERVATION_RELEASE
    )
}

/// What the 64 bytes say of the reservation of a namespace.
pub(super) fn parse_reservation(entry: &SubmissionEntry) -> Result<ReservationCommand, Refusal> {
    let dword = entry.dword(10);
    let (action, ignores_key) = (dword & 0b111, dword & IGNORE_KEY != 0);
    let kind = || ReservationType::of((dword >> 8) as u8).ok_or(Status::INVALID_FIELD.at(41));
    let unknown = || Status::INVALID_FIELD.at(40);
    if ignores_key && matches!(entry.opcode, opcodes::RESERVATION_ACQUIRE | opcodes::RESERVATION_RELEASE) {
        return Err(unknown().bit(3));
    }
    Ok(match entry.opcode {
        opcodes::RESERVATION_REGISTER => {
            let action = match action {
                register::REGISTER => Register::Register,
                register::UNREGISTER => Register::Unregister,
                register::REPLACE => Register::Replace,
                _ => return Err(unknown()),
            };
            // Nothing is kept over a loss of power: RESCAP says so.
            if !matches!(dword >> 30, persistence::NO_CHANGE | persistence::CLEAR) {
                return Err(Status::INVALID_FIELD.at(43).bit(6));
            }
            ReservationCommand::Register { action, ignores_key }
        }
        opcodes::RESERVATION_REPORT => {
            let bytes = (u64::from(dword) + 1) * 4;
            if bytes > u64::from(TRANSFER_BYTES_MAX) {
                return Err(unknown());
            }
            // Over fabrics host identifiers have 128 bits, and the standard data structure has room for 64.
            if entry.dword(11) & EXTENDED_REPORT == 0 {
                return Err(Status::HOST_ID_FORMAT.at(44));
            }
            ReservationCommand::Report { bytes: bytes as u32 }
        }
        opcodes::RESERVATION_ACQUIRE => {
            let action = match action {
                acquire::ACQUIRE => Acquire::Acquire,
                acquire::PREEMPT => Acquire::Preempt,
                acquire::PREEMPT_AND_ABORT => Acquire::PreemptAndAbort,
                _ => return Err(unknown()),
            };
            ReservationCommand::Acquire { action, kind: kind()? }
        }
        _ => {
            let action = match action {
                release::RELEASE => Release::Release(kind()?),
                release::CLEAR => Release::Clear,
                _ => return Err(unknown()),
            };
            ReservationCommand::Release { action }
        }
    })
}

impl IoCommand {
    /// What it does to the data of its namespace.
    #[must_use]
    pub fn access(&self) -> Access {
        match self {
            IoCommand::Reservation(_) => Access::None,
            IoCommand::Read(_)
            | IoCommand::Compare(_)
            | IoCommand::Verify(_)
            | IoCommand::HandleStatus { .. }
            | IoCommand::OpenChannel(VectorCommand { action: VectorAction::Read, .. })
            | IoCommand::Zone(ZoneCommand::Report(_))
            | IoCommand::Page(
                PageCommand::Read { .. }
                | PageCommand::Stat { .. }
                | PageCommand::List { .. }
                | PageCommand::Session { .. }
                | PageCommand::Store,
            )
            | IoCommand::Value(
                ValueCommand::Retrieve { .. } | ValueCommand::List { .. } | ValueCommand::Exist { .. },
            ) => Access::Read,
            // What is a hint or no action writes as its command does.
            IoCommand::Flush
            | IoCommand::Write { .. }
            | IoCommand::WriteUncorrectable { .. }
            | IoCommand::Zero { .. }
            | IoCommand::DatasetManagement { .. }
            | IoCommand::Copy { .. }
            | IoCommand::HandleUpdate { .. }
            | IoCommand::Nothing
            | IoCommand::FlashAlloc { .. }
            | IoCommand::FlashAllocRange { .. }
            | IoCommand::OpenChannel(VectorCommand {
                action: VectorAction::Write | VectorAction::Reset | VectorAction::Copy,
                ..
            })
            | IoCommand::Zone(
                ZoneCommand::Append { .. }
                | ZoneCommand::Act { .. }
                | ZoneCommand::ActOnAll { .. }
                | ZoneCommand::OpenWithWindow { .. }
                | ZoneCommand::Commit { .. }
                | ZoneCommand::Extend { .. },
            )
            | IoCommand::Page(
                PageCommand::Write(_) | PageCommand::Open | PageCommand::Close { .. } | PageCommand::Abort { .. },
            )
            | IoCommand::Value(ValueCommand::Store { .. } | ValueCommand::Delete { .. }) => Access::Write,
        }
    }
}
