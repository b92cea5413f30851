//! The Open-Channel 2.0 contract: what a device promises and what a host may ask.
//!
//! A device is sans-IO: it is told the time with every call, never asks for it and never blocks.
//!
//! ```text
//!   host ── submit(now, tag, command) ──▶ device
//!        ◀── poll(now) ─ completions ────
//!        ◀── next_due() ─ when to poll ──
//! ```
//!
//! # States of a chunk (2.0, section 2.2)
//! ```text
//!            first write           WP = CNLB, or write failed (02F1h)
//!   FREE ──────────────────▶ OPEN ──────────────────────────────────▶ CLOSED
//!     ▲                                                                  │
//!     └───────────────────────────── reset ──────────────────────────────┘
//!   any ── worn out, erase failed ──▶ OFFLINE
//! ```
//!
//! # Rules
//! - **Write**: at the write pointer, a multiple of WS_MIN, inside one chunk (a vector may hold several such runs, one
//!   after the other, in several chunks).
//! - **Read**: a closed chunk below its write pointer; an open chunk below WP − MW_CUNITS. Elsewhere
//!   [`Status::DeallocatedOrUnwritten`] if DULBE is set, predefined data (zeroes, out-of-band bytes FFh) if not.
//! - **Reset**: only closed chunks; free ones too if the geometry says so.
//! - Each rule holds in vector and in scalar form.

use openftl_core::page::PagePool;
use openftl_core::{ChunkId, Frame, Frames, Geometry, Nanos, Ppa, Time};

/// Chosen by the host, returned with the completion.
pub type Tag = u64;

/// The logical blocks that a command names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Blocks<'a> {
    /// Up to [`openftl_core::VECTOR_BLOCKS_MAX`] blocks, in any order (opcodes 90h to 93h).
    Vector(&'a [Ppa]),
    /// `count` blocks from `first` on (opcodes 01h, 02h, 09h). Addresses are contiguous in the packed, sparse space.
    Scalar {
        /// The first block.
        first: Ppa,
        /// How many; at most [`SCALAR_BLOCKS_MAX`].
        count: u32,
    },
}

/// The most blocks of one scalar read or write (the device's MDTS is 1 MiB).
pub const SCALAR_BLOCKS_MAX: u32 = 256;

impl Blocks<'_> {
    /// How many blocks are named.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Blocks::Vector(list) => list.len(),
            Blocks::Scalar { count, .. } => *count as usize,
        }
    }

    /// Whether no block is named.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Block number `index` of the command.
    #[inline]
    #[must_use]
    pub fn get(&self, index: usize) -> Ppa {
        match self {
            Blocks::Vector(list) => list[index],
            Blocks::Scalar { first, .. } => Ppa(first.0 + index as u64),
        }
    }
}

/// What a host may ask of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Command<'a> {
    /// Reads blocks into frames, one frame a block, payload and out-of-band bytes (92h, scalar 02h).
    Read {
        /// What to read.
        blocks: Blocks<'a>,
        /// Where to. The frames may not be looked at before the completion. After it they may share the device's pages.
        frames: &'a [Frame],
    },
    /// Writes blocks from frames, payload and out-of-band bytes (91h, scalar 01h). The device has taken the frames'
    /// contents when `submit` returns, and may share their pages; the host keeps them until the completion all the same,
    /// because a failed block has to be written elsewhere.
    Write {
        /// Where to write.
        blocks: Blocks<'a>,
        /// What to write.
        frames: &'a [Frame],
        /// Force unit access (CDW12 bit 30): complete when the blocks are safe: programmed, or in a cache that outlives
        /// the power ([`Geometry::volatile_cache`] false).
        fua: bool,
    },
    /// Resets chunks (90h, scalar 09h). A vector names the first block of each chunk; a scalar covers whole chunks.
    Reset {
        /// Which chunks.
        blocks: Blocks<'a>,
    },
    /// Copies blocks inside the device, payload and out-of-band bytes (93h). The rules of reading hold for `from`,
    /// those of writing for `to`.
    Copy {
        /// Sources.
        from: &'a [Ppa],
        /// Destinations, as many.
        to: &'a [Ppa],
        /// As for a write.
        fua: bool,
    },
    /// Completes when everything acknowledged before is safe, as for a write with `fua` (NVM Flush, 00h). Where
    /// [`Media::needs_flush`] says so, that includes a crash of the machine behind the device.
    Flush,
}

/// How a command ended. The value is the NVMe status: type in bits 10 to 8, code in bits 7 to 0.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u16)]
pub enum Status {
    /// All blocks are good.
    Success = 0x000,
    /// The command itself is wrong: no blocks, too many, frames that do not match, vector copy on a device without it.
    InvalidField = 0x002,
    /// An address that does not exist on the device.
    LbaOutOfRange = 0x080,
    /// The chunk is offline.
    OfflineChunk = 0x2C0,
    /// The chunk may not be reset in its state.
    InvalidReset = 0x2C1,
    /// A program failed. The blocks of the failed unit hold nothing; write on with the next unit.
    WriteFailedWriteNextUnit = 0x2F0,
    /// A program failed and the chunk is closed. Blocks below its write pointer can still be read.
    WriteFailedChunkClosedEarly = 0x2F1,
    /// Not at the write pointer, not a multiple of WS_MIN, a closed chunk, or one more open chunk than allowed.
    OutOfOrderWrite = 0x2F2,
    /// The data are good but took the error correction to its limits: refresh them.
    HighEcc = 0x2D0,
    /// The store behind the device failed (no space, an I/O error of the host file).
    WriteFault = 0x280,
    /// The data are lost.
    UnrecoveredRead = 0x281,
    /// Nothing to read there (DULBE set).
    DeallocatedOrUnwritten = 0x287,
}

impl Status {
    /// Whether the frames of a read hold the data.
    #[inline]
    #[must_use]
    pub fn data_is_good(self) -> bool {
        matches!(self, Status::Success | Status::HighEcc)
    }
}

/// A command has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completion {
    /// The host's tag.
    pub tag: Tag,
    /// Success, or the status of the first block that was not.
    pub status: Status,
    /// Bit `i` set where block `i` failed (completion DW0-1). Bit 0 stands for all of a scalar command.
    /// For [`Status::HighEcc`] the marked blocks are good but should be refreshed.
    pub failed: u64,
    /// When it ended.
    pub at: Time,
}

/// Chunk state, descriptor byte 0.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum ChunkState {
    /// Nothing written.
    Free = 0x01,
    /// Full, or closed by a failed write.
    Closed = 0x02,
    /// Partly written.
    Open = 0x04,
    /// Not to be used.
    Offline = 0x08,
}

/// One entry of the chunk information log (page CAh, 32 bytes).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChunkDescriptor {
    /// Bytes 8-15, SLBA: the chunk.
    pub chunk: ChunkId,
    /// Byte 0, CS.
    pub state: ChunkState,
    /// Byte 2, WLI: resets so far on a scale of 0 to 255 of the chunk's endurance.
    pub wear_index: u8,
    /// Bytes 16-23, CNLB.
    pub blocks: u32,
    /// Bytes 24-31, WP, as a block within the chunk.
    pub write_pointer: u32,
}

/// Chunk notification, bytes 20-21.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u16)]
pub enum NotifiedState {
    /// Bit 0: error rate low.
    ErrorRateLow = 1 << 0,
    /// Bit 1: error rate medium.
    ErrorRateMedium = 1 << 1,
    /// Bit 2: error rate high.
    ErrorRateHigh = 1 << 2,
    /// Bit 3: unrecoverable.
    Unrecoverable = 1 << 3,
    /// Bit 4: refreshed by the device.
    Refreshed = 1 << 4,
    /// Bit 8: wear-level index above the threshold.
    WearIndexHigh = 1 << 8,
}

/// Chunk notification, byte 22: what is meant.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum NotifiedScope {
    /// Bit 0: this many logical blocks from the address on.
    Blocks(u32),
    /// Bit 1: the chunk.
    Chunk,
    /// Bit 2: the parallel unit.
    ParallelUnit,
}

/// One entry of the chunk notification log (page D0h, 64 bytes).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Notification {
    /// Bytes 0-7, NC: counts from 1.
    pub count: u64,
    /// Bytes 8-15: the address.
    pub ppa: Ppa,
    /// Bytes 20-21.
    pub state: NotifiedState,
    /// Byte 22, and bytes 32-33 for [`NotifiedScope::Blocks`].
    pub scope: NotifiedScope,
}

/// The device has as many commands under way as it can hold; poll first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the device's queue is full")]
pub struct QueueFull;

/// An admin command failed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MediaError {
    /// The store or the link behind the device failed.
    #[error("the device does not answer: {0}")]
    Unavailable(String),
    /// An address that does not exist.
    #[error("chunk {0:?} does not exist on the device")]
    NoSuchChunk(ChunkId),
}

/// An Open-Channel device. It owns what it is made of, so that whoever holds it may forget its type.
pub trait Media: 'static {
    /// The shape of the device (E2h). Constant for as long as the device is open.
    fn geometry(&self) -> &Geometry;

    /// Starts a command. A command that breaks a rule is accepted and completes with its status, as on a real device.
    ///
    /// # Errors
    /// Only when the queue is full; nothing has happened then.
    fn submit(&mut self, now: Time, frames: &mut Frames, tag: Tag, command: Command<'_>) -> Result<(), QueueFull>;

    /// Where frames that are to be written to this device best have their pages from ([`Frames::on`]): a device that holds on to
    /// pages gives them back there. Frames of other pages do as well, and their pages are the device's until it needs them no more.
    fn page_pool(&self) -> PagePool {
        PagePool::default()
    }

    /// Appends the completions due by `now`, earliest first, in submission order where they fall together.
    fn poll(&mut self, now: Time, frames: &mut Frames, completions: &mut Vec<Completion>);

    /// When the next completion is due, if any command is under way and the device can tell.
    fn next_due(&self) -> Option<Time>;

    /// Whether completed writes survive a crash of the machine behind the device only when a flush, a write with FUA or a reset
    /// has completed after them. What survives is then the state of the device at one moment, no earlier than the last of these
    /// completions: all that was submitted before that moment, and nothing that was submitted after it. A host that has
    /// nothing to promise may therefore leave flushes out, and keeps the order of its writes without them.
    ///
    /// `false` for a device that has no such machine, and for one whose cache is volatile for its host anyway
    /// ([`Geometry::volatile_cache`]) and is written with FUA.
    fn needs_flush(&self) -> bool {
        false
    }

    /// Whether what is written is gone when the device is dropped, and what it is kept in stays as it was: who only looks at such a device may write to it
    /// what has to stand behind the blocks that it wants to read (MW_CUNITS).
    fn forgets_writes(&self) -> bool {
        false
    }

    /// Fills `descriptors` with the chunk information from `first` on, in the order of [`Geometry::chunk_ids`].
    ///
    /// # Errors
    /// If `first` does not exist, or the device does not answer.
    fn chunk_report(
        &mut self,
        now: Time,
        first: ChunkId,
        descriptors: &mut [ChunkDescriptor],
    ) -> Result<(), MediaError>;

    /// The chunk information of the whole device, in the order of [`Geometry::chunk_ids`].
    ///
    /// # Errors
    /// If the device does not answer.
    fn whole_chunk_report(&mut self, now: Time) -> Result<Vec<ChunkDescriptor>, MediaError> {
        let geometry = *self.geometry();
        let chunk = geometry.chunk_ids().next().expect("a device has chunks");
        let state = ChunkState::Offline;
        let unknown = ChunkDescriptor { chunk, state, wear_index: 0, blocks: 0, write_pointer: 0 };
        let mut descriptors = vec![unknown; geometry.chunks() as usize];
        self.chunk_report(now, chunk, &mut descriptors)?;
        Ok(descriptors)
    }

    /// Appends the notifications counted above `after`, oldest first (log page D0h).
    ///
    /// # Errors
    /// If the device does not answer.
    fn notifications(&mut self, now: Time, after: u64, notifications: &mut Vec<Notification>)
    -> Result<(), MediaError>;

    /// Deallocated or unwritten logical block error: whether a read of nothing fails (Set Features 05h, bit 16).
    fn set_dulbe(&mut self, dulbe: bool);

    /// Time that the die of each parallel unit has been busy, in the order of [`Geometry::pu_ids`]; empty if the device
    /// cannot tell.
    fn pu_busy(&self) -> Vec<Nanos>;
}
