//! Requests that a zoned drive cannot fulfil.

use crate::state::{Action, ZoneState};
use openftl_parts::target::IoError;
use openftl_parts::words::{ReadOnlyReason, TRANSACTION_BLOCKS_MAX};

/// A request that a zoned drive cannot fulfil. Each of the first ones has a status of its own in NVMe.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ZoneError {
    /// Beyond the capacity of its zone, or over its end.
    #[error("blocks up to {end} of zone {zone}, whose capacity is {capacity}: write the rest to another zone")]
    Boundary {
        /// The zone.
        zone: u32,
        /// The block behind the last one.
        end: u64,
        /// Blocks of a zone.
        capacity: u32,
    },
    /// Nothing more can be written to it.
    #[error("zone {zone} is full: reset it before it is written")]
    Full {
        /// The zone.
        zone: u32,
    },
    /// The medium takes nothing more for it.
    #[error("zone {zone} is read only: its medium has failed")]
    ReadOnly {
        /// The zone.
        zone: u32,
    },
    /// It is lost.
    #[error("zone {zone} is offline")]
    Offline {
        /// The zone.
        zone: u32,
    },
    /// Not at the write pointer.
    #[error("a write at block {at} of zone {zone}, whose write pointer is {expected}: zones are written in order")]
    InvalidWrite {
        /// The zone.
        zone: u32,
        /// Where it was to begin.
        at: u32,
        /// Where it has to.
        expected: u32,
    },
    /// As many zones are open or closed as there may be.
    #[error("{limit} zones are active, as many as there may be: finish or reset one first")]
    TooManyActive {
        /// How many there may be.
        limit: u32,
    },
    /// As many zones are explicitly open as there may be.
    #[error("{limit} zones are open, as many as there may be: close one first")]
    TooManyOpen {
        /// How many there may be.
        limit: u32,
    },
    /// Not from this state.
    #[error("zone {zone} is {state:?}: {action:?} is not possible")]
    InvalidTransition {
        /// The zone.
        zone: u32,
        /// Its state.
        state: ZoneState,
        /// What was to be done.
        action: Action,
    },
    /// Only an empty zone takes an extension.
    #[error("zone {zone} is {state:?}: an extension is set while a zone is empty")]
    NotEmpty {
        /// The zone.
        zone: u32,
        /// Its state.
        state: ZoneState,
    },
    /// The zones of the drive have no extensions.
    #[error("zones of this drive have no descriptor extensions")]
    NoExtension,
    /// As many zones have a window as may have one.
    #[error("{limit} zones have a random write area, as many as there may be: finish or reset one first")]
    TooManyWindows {
        /// How many there may be.
        limit: u32,
    },
    /// Only an empty zone is given a window.
    #[error("zone {zone} is {state:?} and has no random write area: it is given one while it is empty")]
    WindowOfWritten {
        /// The zone.
        zone: u32,
        /// Its state.
        state: ZoneState,
    },
    /// The zones of the drive have no windows.
    #[error("zones of this drive have no random write areas")]
    NoWindows,
    /// The zone has none.
    #[error("zone {zone} has no random write area: open it with one while it is empty")]
    NoWindow {
        /// The zone.
        zone: u32,
    },
    /// Where the host says where it writes, nothing is appended.
    #[error("an append to zone {zone}, which has a random write area: write it")]
    AppendToWindow {
        /// The zone.
        zone: u32,
    },
    /// Not within a window.
    #[error(
        "blocks up to {end} of zone {zone} are to be committed, whose random write area is blocks {first} to {window_end}"
    )]
    OutsideWindow {
        /// The zone.
        zone: u32,
        /// The block behind the last one that was to be committed.
        end: u64,
        /// The first block of the window.
        first: u32,
        /// The block behind its last one.
        window_end: u32,
    },
    /// Not the first block of a zone.
    #[error("block {address} is not the first one of a zone; zones have {size} blocks")]
    NotAZone {
        /// What was given.
        address: u64,
        /// Blocks from one zone to the next.
        size: u64,
    },
    /// Beyond the last zone, or nothing at all.
    #[error("blocks {first} to {}, of a drive that has {blocks}", first.saturating_add(*count))]
    OutOfRange {
        /// The first.
        first: u64,
        /// How many.
        count: u64,
        /// Of the drive.
        blocks: u64,
    },
    /// Nothing, or more than a request may have.
    #[error("a write of {blocks} blocks: a request has 1 to {TRANSACTION_BLOCKS_MAX}")]
    Length {
        /// How many there were.
        blocks: usize,
    },
    /// The drive takes no writes.
    #[error("the drive is read-only: {0}")]
    DriveReadOnly(ReadOnlyReason),
    /// A block could not be read or written.
    #[error(transparent)]
    Io(#[from] IoError),
}

impl ZoneError {
    /// The zone that has refused, if it was one.
    #[must_use]
    pub fn zone(&self) -> Option<u32> {
        match *self {
            ZoneError::Boundary { zone, .. }
            | ZoneError::Full { zone }
            | ZoneError::ReadOnly { zone }
            | ZoneError::Offline { zone }
            | ZoneError::InvalidWrite { zone, .. }
            | ZoneError::NotEmpty { zone, .. }
            | ZoneError::WindowOfWritten { zone, .. }
            | ZoneError::NoWindow { zone }
            | ZoneError::AppendToWindow { zone }
            | ZoneError::OutsideWindow { zone, .. }
            | ZoneError::InvalidTransition { zone, .. } => Some(zone),
            ZoneError::TooManyActive { .. }
            | ZoneError::TooManyOpen { .. }
            | ZoneError::NoExtension
            | ZoneError::TooManyWindows { .. }
            | ZoneError::NoWindows
            | ZoneError::NotAZone { .. }
            | ZoneError::OutOfRange { .. }
            | ZoneError::Length { .. }
            | ZoneError::DriveReadOnly(_)
            | ZoneError::Io(_) => None,
        }
    }
}
