//! What a host of tables names, and what it is told.

use super::catalog::NOTE_BYTES_MAX;
use openftl_core::Time;
use openftl_parts::target::{Ended, IoError};
use openftl_parts::words::ReadOnlyReason;

/// Names a table for as long as it is there and nobody has released it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TableId {
    pub(crate) slot: u32,
    pub(crate) number: u64,
}

impl TableId {
    /// The number of its entry in the catalog.
    #[must_use]
    pub fn number(self) -> u64 {
        self.number
    }
}

/// A request that a table drive cannot fulfil.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TableError {
    /// No chunk is left.
    #[error("no chunk is free for another part of the table; delete tables to make room")]
    NoSpace,
    /// The catalog is full.
    #[error("the catalog has no room for another entry; delete tables or files to make room")]
    CatalogFull,
    /// Too many tables at a time.
    #[error("as many tables are being written as this drive can write at a time; end one first")]
    TooManyWriters,
    /// A note is too long.
    #[error("a note of {bytes} bytes: the longest has {NOTE_BYTES_MAX}")]
    NoteTooLong {
        /// Its length.
        bytes: usize,
    },
    /// Beyond the end of a table.
    #[error("blocks {first} to {} of a table that has {blocks}", first + count)]
    OutOfRange {
        /// The first that was asked for.
        first: u32,
        /// How many.
        count: u32,
        /// What there is.
        blocks: u32,
    },
    /// The drive takes no writes.
    #[error("the drive is read-only: {0}")]
    ReadOnly(ReadOnlyReason),
    /// A block could not be read or written.
    #[error(transparent)]
    Io(#[from] IoError),
}

/// A request has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TableDone {
    /// The host's tag.
    pub tag: u64,
    /// How.
    pub result: Result<(), TableError>,
    /// When.
    pub at: Time,
}

impl Ended for TableDone {
    type Outcome = Result<(), TableError>;

    fn tag(&self) -> u64 {
        self.tag
    }

    fn outcome(self) -> Self::Outcome {
        self.result
    }
}

/// An entry of the catalog as it was found when the drive was opened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FoundEntry {
    /// Its number.
    pub number: u64,
    /// The host's note.
    pub note: Vec<u8>,
    /// Its table and that table's blocks, if it has one.
    pub table: Option<(TableId, u32)>,
}
