//! What a host may ask of a zoned drive, and what it is told.

use crate::error::ZoneError;
use crate::state::Action;
use openftl_core::{Frame, Time};
use openftl_parts::target::{Durability, Ended};

/// What a host may ask. Addresses and lengths are in logical blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ZoneRequest<'a> {
    /// Reads blocks of one zone (1 to [`TRANSACTION_BLOCKS_MAX`](openftl_parts::words::TRANSACTION_BLOCKS_MAX)). Those that were not written read as zeroes.
    Read {
        /// First logical block.
        first: u64,
        /// Where to; the host's until the end and after.
        frames: &'a [Frame],
    },
    /// Writes blocks at the write pointer of a zone.
    Write {
        /// First logical block.
        first: u64,
        /// What; the FTL's from here on.
        frames: &'a [Frame],
        /// When to acknowledge.
        durability: Durability,
    },
    /// Writes blocks wherever the write pointer of a zone is, which [`ZoneDone::address`] says.
    Append {
        /// The first logical block of the zone.
        zone: u64,
        /// What; the FTL's from here on.
        frames: &'a [Frame],
        /// When to acknowledge.
        durability: Durability,
    },
    /// Opens an empty zone with a window (ZRWA), or once more one that has it.
    OpenWithWindow {
        /// The first logical block of the zone.
        zone: u64,
    },
    /// Commits the blocks of a window up to this one: the write pointer is behind it from then on. Those that were not written are zeroes.
    Commit {
        /// The last logical block.
        last: u64,
    },
    /// Acts on one zone.
    Act {
        /// The first logical block of the zone.
        zone: u64,
        /// What is to become of it.
        action: Action,
    },
    /// Acts on all zones that are in a state for it.
    ActOnAll {
        /// What is to become of them.
        action: Action,
    },
    /// Sets the zone descriptor extension of an empty zone, which is closed then. Durable with the next flush.
    Extend {
        /// The first logical block of the zone.
        zone: u64,
        /// A frame that begins with the extension, [`Layout::extension_bytes`](crate::Layout::extension_bytes) of it; it stays the host's.
        frame: Frame,
    },
    /// Makes everything before durable.
    Flush,
}

/// A request has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ZoneDone {
    /// The host's tag.
    pub tag: u64,
    /// How.
    pub result: Result<(), ZoneError>,
    /// Where an append is.
    pub address: Option<u64>,
    /// When.
    pub at: Time,
}

impl Ended for ZoneDone {
    type Outcome = Result<(), ZoneError>;

    fn tag(&self) -> u64 {
        self.tag
    }

    fn outcome(self) -> Self::Outcome {
        self.result
    }
}
