//! What a host interface may ask of a block FTL.
//!
//! Sans-IO like the layers below: `submit`, `poll`, `next_due`. Payload travels in [`Frames`], which belong to the FTL:
//!
//! - **Write**: the host acquires frames, fills them, submits. When `submit` returns `Ok` the frames are the FTL's, which
//!   releases them itself; on `Err` the host still holds them.
//! - **Read**: the host acquires frames, submits, waits for the [`Done`], looks, releases.
//!
//! A host that finds no frame available polls (and waits) until there are some: that is the drive's back-pressure.

use openftl_core::{Frame, FrameForm, Frames, Time};

/// The most blocks of one write: 1 MiB, the largest transaction of OX-Block.
pub const TRANSACTION_BLOCKS_MAX: usize = 256;

/// When a write is acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum Durability {
    /// When it can be read back; a later flush makes it durable.
    #[default]
    Volatile,
    /// When it would survive a power cut (force unit access).
    Durable,
}

/// What a host may ask. Addresses and lengths are in logical blocks of 4 KiB.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Request<'a> {
    /// Reads `frames.len()` blocks (1 to [`TRANSACTION_BLOCKS_MAX`]). Blocks never written, or trimmed, read as zeroes.
    Read {
        /// First logical block.
        first: u64,
        /// Where to; the host's until the [`Done`] and after.
        frames: &'a [Frame],
    },
    /// Writes `frames.len()` blocks (1 to [`TRANSACTION_BLOCKS_MAX`]) as one transaction: after a crash all or none of
    /// them are there.
    Write {
        /// First logical block.
        first: u64,
        /// What to write; the FTL's from here on.
        frames: &'a [Frame],
        /// When to acknowledge.
        durability: Durability,
    },
    /// As a write, but of blocks whose reads fail with [`IoError::Uncorrectable`] until they are written or trimmed. What
    /// the frames hold is of no importance.
    WriteUncorrectable {
        /// First logical block.
        first: u64,
        /// As many as blocks; the FTL's from here on.
        frames: &'a [Frame],
        /// When to acknowledge.
        durability: Durability,
    },
    /// Makes any number of blocks read as zeroes, as one transaction. Serves trim and write zeroes alike.
    Trim {
        /// First logical block.
        first: u64,
        /// How many; any number from 1 to the capacity.
        blocks: u64,
        /// When to acknowledge.
        durability: Durability,
    },
    /// Completes when everything acknowledged before it is durable.
    Flush,
}

/// Why a request failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum IoError {
    /// The range reaches beyond the capacity, or is empty, or longer than a request may be.
    #[error("blocks {first}..{} are not on this drive of {capacity} blocks", first.saturating_add(*blocks))]
    OutOfRange {
        /// First block asked for.
        first: u64,
        /// Blocks asked for.
        blocks: u64,
        /// Blocks of the drive.
        capacity: u64,
    },
    /// No more requests can be held; poll, then ask again. Nothing has happened.
    #[error("the drive's request queue is full")]
    QueueFull,
    /// The drive takes no more writes: worn out, or an unplanned failure. Its data can be read.
    #[error("the drive is read-only")]
    ReadOnly,
    /// The medium lost this block.
    #[error("logical block {block} cannot be read from the medium")]
    Unrecovered {
        /// The logical block.
        block: u64,
    },
    /// What the medium returned for this block is not what was written: another block, or damaged.
    #[error("logical block {block} came back damaged or as another block")]
    WrongBlock {
        /// The logical block.
        block: u64,
    },
    /// The host wants this block to be an error: [`Request::WriteUncorrectable`].
    #[error("logical block {block} was marked as uncorrectable, and not written since")]
    Uncorrectable {
        /// The logical block.
        block: u64,
    },
}

impl IoError {
    /// The logical block that could not be read, if that is what went wrong.
    #[must_use]
    pub fn block(self) -> Option<u64> {
        match self {
            IoError::Unrecovered { block } | IoError::WrongBlock { block } | IoError::Uncorrectable { block } => {
                Some(block)
            }
            IoError::OutOfRange { .. } | IoError::QueueFull | IoError::ReadOnly => None,
        }
    }

    /// Of two errors of one request the one that its host is told: that of the first block.
    #[must_use]
    pub fn or_earlier(self, other: IoError) -> IoError {
        if other.block() < self.block() { other } else { self }
    }
}

/// A request has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Done {
    /// The host's tag.
    pub tag: u64,
    /// How.
    pub result: Result<(), IoError>,
    /// When.
    pub at: Time,
}

/// A drive of 4 KiB logical blocks, seen from a host interface.
pub trait BlockTarget {
    /// Capacity in logical blocks.
    fn blocks(&self) -> u64;

    /// The memory that payload travels in.
    fn frames(&self) -> &Frames;

    /// The same, to take frames from it and to fill them.
    fn frames_mut(&mut self) -> &mut Frames;

    /// The form of frame that this drive's payload takes: bytes for a real drive, stamps for a simulated one.
    fn payload_form(&self) -> FrameForm;

    /// Starts a request.
    ///
    /// # Errors
    /// If it cannot be started. Nothing has happened then, and frames stay the caller's.
    fn submit(&mut self, now: Time, tag: u64, request: Request<'_>) -> Result<(), IoError>;

    /// Lets the drive work and appends what has ended by `now`.
    fn poll(&mut self, now: Time, done: &mut Vec<Done>);

    /// When to poll again, if the drive has work under way. A time not after `now` means at once.
    fn next_due(&self) -> Option<Time>;

    /// Whether writes are refused for good.
    fn is_read_only(&self) -> bool;
}
