//! Why a drive cannot be opened, or formatted.

use crate::flash::plan::PlanError;
use crate::journal::superblock::{SEARCH_CHUNKS, SuperblockError};
use crate::words::ReadOnlyReason;
use openftl_core::{GeometryError, PuId};
use openftl_media::MediaError;

/// A drive that cannot be opened, or formatted.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OpenError {
    /// The device does not answer.
    #[error(transparent)]
    Media(#[from] MediaError),
    /// The device has an impossible shape.
    #[error("the device reports an impossible geometry: {0}")]
    Geometry(#[from] GeometryError),
    /// The capacity does not fit.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// No superblock was found.
    #[error(
        "no superblock was found on the device: it was never formatted, or holds something else. `openftl create` makes a new drive"
    )]
    NotFormatted,
    /// Superblocks were found, but none can be used.
    #[error("no superblock on the device can be used: {0}")]
    Superblock(#[from] SuperblockError),
    /// The drive was formatted on a device of another shape.
    #[error(
        "the drive was formatted on a device of another geometry (groups, PUs per group, chunks per PU, blocks per chunk): \
         {formatted:?}, and this one has {found:?}; open it with the profile it was created with"
    )]
    OtherGeometry {
        /// In the superblock.
        formatted: [u32; 4],
        /// Of the device.
        found: [u32; 4],
    },
    /// The drive was formatted for a setting that needs fewer chunks.
    #[error(
        "{field} = {asked} needs {needed} good chunks, and the drive, which was created with {field} = {formatted}, has \
         {good}: leave {field} away, or create another drive with it"
    )]
    OtherSize {
        /// The setting.
        field: &'static str,
        /// As asked for now.
        asked: String,
        /// As formatted.
        formatted: String,
        /// Chunks of the plan.
        needed: u64,
        /// Chunks that there are for it: of the device those that are not offline, or all that are not for tables.
        good: u64,
    },
    /// The drive was formatted for another FTL.
    #[error("this is a {found} drive, and it is to be opened as a {wanted} drive")]
    OtherKind {
        /// What it is.
        found: &'static str,
        /// What it should be.
        wanted: &'static str,
    },
    /// The metadata of a tenant cannot be used.
    #[error("{text}")]
    Tenant {
        /// What the tenant says of them.
        text: String,
        /// Whether blocks of them are lost, which a repair may bring back.
        is_lost: bool,
    },
    /// Of the index of a store of pages, or of the directory of a key-value drive, something is lost.
    #[error("{0}; run `openftl check --repair`")]
    IndexLost(String),
    /// What a tenant may hold at a time cannot be as it is asked for.
    #[error("{0}")]
    Limits(String),
    /// A drive that was formatted without map pages is to be opened with little memory for its map.
    #[error(
        "map_memory: the drive was created without it, and keeps its whole map in memory and in checkpoints; leave map_memory away, or copy its data to a drive that is created with it"
    )]
    WholeMap,
    /// Neither copy of a map page can be read.
    #[error(
        "map page {page} cannot be read, in neither copy, and with it where {blocks} logical blocks from {first} on are; run `openftl check --repair`"
    )]
    MapPageLost {
        /// Which.
        page: u32,
        /// The first of its blocks.
        first: u64,
        /// How many it has.
        blocks: u64,
    },
    /// Log is in a chunk that no superblock names.
    #[error(
        "chunk {chunk} holds log block {lsn}, and superblock {sequence}, the newest that can be read, does not know that \
         chunk: a newer superblock is lost; run `openftl check --repair`"
    )]
    SuperblockLost {
        /// The newest superblock left.
        sequence: u64,
        /// The address of the chunk.
        chunk: String,
        /// The log block.
        lsn: u64,
    },
    /// Both copies of a block of the log are lost.
    #[error(
        "log block {lsn} is lost in both copies, and all below {durable_below} had been promised: the map would be older \
         than it may be; run `openftl check --repair`"
    )]
    LogLost {
        /// The first that is lost.
        lsn: u64,
        /// What was durable.
        durable_below: u64,
    },
    /// Both copies of a block of the checkpoint cannot be read or do not verify.
    #[error(
        "checkpoint {sequence} lacks {missing} of its {blocks} blocks in both copies (the first is {first}): the map cannot \
         be trusted; run `openftl check --repair`"
    )]
    CheckpointLost {
        /// Which checkpoint.
        sequence: u64,
        /// Blocks that it should have.
        blocks: u32,
        /// Blocks that were not found.
        missing: u32,
        /// The first of them.
        first: u32,
    },
    /// Checkpoint and log together say something that cannot be.
    #[error("the map is inconsistent: {0}; run `openftl check --repair`")]
    Inconsistent(String),
    /// Too few chunks for superblocks.
    #[error("parallel unit {0:?} has no two good chunks among its first {SEARCH_CHUNKS}: no place for superblocks")]
    NoSuperblockPlace(PuId),
    /// The first writes to a new drive failed.
    #[error("the drive could not be written: {0}")]
    Unwritable(ReadOnlyReason),
    /// The device stopped completing commands.
    #[error("the device has stopped: nothing is due, and the drive still waits")]
    Stopped,
}

impl OpenError {
    /// Whether [`crate::Access::Repair`] may help.
    #[must_use]
    pub fn is_repairable(&self) -> bool {
        matches!(
            self,
            OpenError::SuperblockLost { .. }
                | OpenError::LogLost { .. }
                | OpenError::CheckpointLost { .. }
                | OpenError::Inconsistent(_)
                | OpenError::IndexLost(_)
        )
    }

    /// Whether blocks of a tenant's metadata cannot be read: some may be readable once the drive is open for use (MW_CUNITS).
    #[must_use]
    pub fn is_of_lost_blocks(&self) -> bool {
        matches!(self, OpenError::Tenant { is_lost: true, .. } | OpenError::IndexLost(_))
    }
}
