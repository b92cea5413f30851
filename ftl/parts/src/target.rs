//! What a host interface may ask of a block FTL.
//!
//! Sans-IO like the layers below: `submit`, `poll`, `next_due`. Payload travels in [`Frames`], which belong to the FTL:
//!
//! - **Write**: the host acquires frames, fills them, submits. When `submit` returns `Ok` the frames are the FTL's, which
//!   releases them itself; on `Err` the host still holds them.
//! - **Read**: the host acquires frames, submits, waits for the [`Done`], looks, releases.
//!
//! A host that finds no frame available polls (and waits) until there are some: that is the drive's back-pressure.

use crate::placement_name::{HANDLES_MAX, PlacementName};
use crate::words::Handle;
use openftl_core::{Frame, FrameForm, Frames, Nanos, Time};
use std::ops::DerefMut;

/// Requests that wait for something, at most.
pub const REQUESTS_MAX: usize = 16_384;

/// When a write is acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum Durability {
    /// When it can be read back; a later flush makes it durable.
    #[default]
    Volatile,
    /// When it would survive a power cut (force unit access).
    Durable,
}

/// A set of handles, of which [`Handle::NONE`] is never one.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct HandleSet(u128);

impl HandleSet {
    #[inline]
    fn bit(handle: Handle) -> u128 {
        handle.0.checked_sub(1).and_then(|bit| 1_u128.checked_shl(bit.into())).unwrap_or(0)
    }

    /// Puts `handle` in, or takes it out.
    #[inline]
    pub fn set(&mut self, handle: Handle, is_in: bool) {
        let bit = HandleSet::bit(handle);
        self.0 = if is_in { self.0 | bit } else { self.0 & !bit };
    }

    /// Whether `handle` is in it.
    #[inline]
    #[must_use]
    pub fn contains(self, handle: Handle) -> bool {
        self.0 & HandleSet::bit(handle) != 0
    }

    /// Whether none is in it.
    #[inline]
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

const _: () = assert!(HANDLES_MAX as u32 <= u128::BITS, "a set holds every handle");

/// Which of its own deeds a drive is to keep note of: those to these handles.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct HandleWatch {
    /// [`Deed::Moved`].
    pub moved: HandleSet,
    /// [`Deed::Left`].
    pub left: HandleSet,
}

/// What a drive does by itself to what was written under a handle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Deed {
    /// What was still valid in a chunk of it has moved.
    Moved {
        /// How many blocks; at least one.
        blocks: u64,
        /// The lowest of them.
        first: u64,
    },
    /// Its writes went on elsewhere before their chunk was full.
    Left,
}

/// A drive has done something by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HandleEvent {
    /// To what was written under this handle.
    pub handle: Handle,
    /// When.
    pub at: Time,
    /// What.
    pub deed: Deed,
}

/// Blocks of the drive that follow each other.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Extent {
    /// First logical block.
    pub first: u64,
    /// How many; at least one.
    pub blocks: u64,
}

impl Extent {
    /// The block behind its last one.
    #[must_use]
    pub fn end(self) -> u64 {
        self.first.saturating_add(self.blocks)
    }
}

/// How a host expects to use blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExpectedUse {
    /// Again and again.
    Frequent,
    /// As others.
    Ordinary,
}

/// The most extents of one object.
pub const EXTENTS_MAX: usize = 256;

/// What a host may ask. Addresses and lengths are in logical blocks of 4 KiB.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Request<'a> {
    /// Reads `frames.len()` blocks (1 to [`crate::words::TRANSACTION_BLOCKS_MAX`]). Blocks never written, or trimmed, read as zeroes.
    Read {
        /// First logical block.
        first: u64,
        /// Where to; the host's until the [`Done`] and after.
        frames: &'a [Frame],
    },
    /// Writes `frames.len()` blocks (1 to [`crate::words::TRANSACTION_BLOCKS_MAX`]) as one transaction: after a crash all or none of
    /// them are there.
    Write {
        /// First logical block.
        first: u64,
        /// What to write; the FTL's from here on.
        frames: &'a [Frame],
        /// When to acknowledge.
        durability: Durability,
        /// What it will live as long as.
        handle: Handle,
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
    /// Makes any number of blocks read as zeroes. Serves trim and write zeroes alike. Up to [`crate::words::TRANSACTION_BLOCKS_MAX`] blocks are
    /// one transaction. A longer trim takes several, in the order of its blocks, and other requests are served in between
    ///; all of them have the promised durability when it ends.
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
    /// Says that these extents (1 to [`EXTENTS_MAX`]) are one object, about to be written and to end as a whole: FlashAlloc.
    /// Its blocks get clean chunks of their own, in whatever order and however interleaved with others they are written.
    FlashAlloc {
        /// Where the object is. No two overlap.
        extents: &'a [Extent],
    },
}

/// Why no object was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ObjectError {
    /// The drive places nothing by objects.
    #[error("this drive keeps no objects apart: open it with the placement `flash-alloc`")]
    NotKept,
    /// No extent, or too many.
    #[error("an object has 1 to {EXTENTS_MAX} extents, and this one {extents}")]
    Extents {
        /// As many as there are.
        extents: usize,
    },
    /// Two extents of the object share a block.
    #[error("logical block {block} is in two extents of the object")]
    Overlap {
        /// The first such block.
        block: u64,
    },
    /// As many objects as the drive can tell apart are being written.
    #[error(
        "{most} objects are being written, and this drive keeps no more apart; write or trim one of them to its end"
    )]
    TooMany {
        /// How many it can.
        most: u32,
    },
}

/// Why space that is written in order refuses a request. Nothing has happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AppendError {
    /// The block has been written since its segment was trimmed.
    #[error(
        "logical block {first} is written, and its segment goes on at block {expected}: trim the segment before it is written again"
    )]
    Overwrite {
        /// The first block asked for.
        first: u64,
        /// The write pointer of its segment; of a full one the block behind it.
        expected: u64,
    },
    /// Blocks before it are not written yet.
    #[error(
        "logical block {first} is beyond block {expected}, where its segment goes on: segments are written in order"
    )]
    Gap {
        /// The first block asked for.
        first: u64,
        /// The write pointer of its segment.
        expected: u64,
    },
    /// The request reaches into the next segment.
    #[error(
        "blocks {first} to {end} are of two segments, the first of which ends at block {boundary}: write each by itself"
    )]
    Crossing {
        /// The first block asked for.
        first: u64,
        /// The block behind the last one.
        end: u64,
        /// The first block of the next segment.
        boundary: u64,
    },
    /// As many segments are being written as there may be.
    #[error("{limit} segments are written in part, as many as there may be: fill or trim one of them first")]
    TooManyOpen {
        /// How many there may be.
        limit: u32,
    },
    /// The medium of the segment has failed. What is in it can be read.
    #[error("the segment that ends at block {boundary} takes no more writes: its medium has failed")]
    SegmentReadOnly {
        /// The block behind its last one.
        boundary: u64,
    },
    /// There is no such request to space that is written in order.
    #[error("segments have no such request: they are read, written in order, and trimmed")]
    NoSuchRequest,
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
    /// No object can be made of these extents. Nothing has happened.
    #[error(transparent)]
    Object(#[from] ObjectError),
    /// The drive is written in order, and this is not in order. Nothing has happened.
    #[error(transparent)]
    Append(#[from] AppendError),
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
            IoError::OutOfRange { .. }
            | IoError::QueueFull
            | IoError::ReadOnly
            | IoError::Object(_)
            | IoError::Append(_) => None,
        }
    }

    /// Where the segment goes on, if a write was not in order.
    #[must_use]
    pub fn write_pointer(self) -> Option<u64> {
        match self {
            IoError::Append(AppendError::Overwrite { expected, .. } | AppendError::Gap { expected, .. }) => {
                Some(expected)
            }
            _ => None,
        }
    }

    /// The same error of the block that is called by `name` of it: a part of a drive counts its blocks for itself.
    #[must_use]
    pub fn renamed(self, name: impl Fn(u64) -> u64) -> IoError {
        match self {
            IoError::Unrecovered { block } => IoError::Unrecovered { block: name(block) },
            IoError::WrongBlock { block } => IoError::WrongBlock { block: name(block) },
            IoError::Uncorrectable { block } => IoError::Uncorrectable { block: name(block) },
            other => other,
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

/// The end of a request, of whatever drive.
pub trait Ended {
    /// How it ended.
    type Outcome;

    /// The host's tag.
    fn tag(&self) -> u64;

    /// How it ended.
    fn outcome(self) -> Self::Outcome;
}

impl Ended for Done {
    type Outcome = Result<(), IoError>;

    fn tag(&self) -> u64 {
        self.tag
    }

    fn outcome(self) -> Self::Outcome {
        self.result
    }
}

/// What a drive makes of what hosts say of lifetimes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PlacementFacts {
    /// How it places what it writes.
    pub name: PlacementName,
    /// Handles that writes may carry besides [`Handle::NONE`], from 1 on; 0: none is heeded.
    pub handles: u8,
    /// Objects that may be written at a time; 0: none is kept apart.
    pub objects_max: u16,
    /// Blocks that a handle is given at a time: those of the chunks that it writes side by side. NVMe calls it a reclaim
    /// unit.
    pub unit_blocks: u64,
}

/// What a watch over a drive with requests under way looks at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Vitals {
    /// Changes whenever anything ends: a command of the device, a request, a step of a trim.
    pub progress: u64,
    /// The device has no command and nothing is due: without a new request nothing will ever end.
    pub is_still: bool,
    /// How long a drive that is not still may go without progress.
    pub patience: Nanos,
}

/// A drive at work, whatever may be asked of it.
pub trait Target {
    /// What is said of a request that has ended.
    type Done;

    /// The memory that payload travels in.
    fn frames(&self) -> &Frames;

    /// The same, to take frames from it and to fill them.
    fn frames_mut(&mut self) -> &mut Frames;

    /// Lets the drive work and appends what has ended by `now`.
    fn poll(&mut self, now: Time, done: &mut Vec<Self::Done>);

    /// When to poll again, if the drive has work under way. A time not after `now` means at once.
    fn next_due(&self) -> Option<Time>;

    /// Whether writes are refused for good.
    fn is_read_only(&self) -> bool;

    /// What a watch over the drive looks at. `None`: the drive is not watched.
    fn vitals(&self) -> Option<Vitals> {
        None
    }

    /// The watch has found that requests under way will not end: the drive takes no more writes from now on, and ends every
    /// request that it has with an error, at the next poll. Returns the state that it was in, for people.
    fn give_up(&mut self, _now: Time) -> String {
        String::new()
    }
}

/// A drive of 4 KiB logical blocks, seen from a host interface.
pub trait BlockTarget: Target<Done = Done> {
    /// Capacity in logical blocks.
    fn blocks(&self) -> u64;

    /// The form of frame that this drive's payload takes: bytes for a real drive, stamps for a simulated one.
    fn payload_form(&self) -> FrameForm;

    /// Starts a request.
    ///
    /// # Errors
    /// If it cannot be started. Nothing has happened then, and frames stay the caller's.
    fn submit(&mut self, now: Time, tag: u64, request: Request<'_>) -> Result<(), IoError>;

    /// Blocks of a segment, where segments are written in order and trimmed as a whole; `None`: any block can be written at any time.
    fn segment_blocks(&self) -> Option<u64> {
        None
    }

    /// What becomes of handles and objects. A drive that says nothing heeds none.
    fn placement(&self) -> PlacementFacts {
        PlacementFacts { name: PlacementName::HotCold, handles: 0, objects_max: 0, unit_blocks: 0 }
    }

    /// Blocks that can still be written under `handle` to the chunks that are open for it.
    fn handle_room(&self, _handle: Handle) -> u64 {
        0
    }

    /// From now on writes under `handle` go to other chunks than those before; what is left of these is padded. Returns
    /// false if the drive has no such handle.
    fn renew_handle(&mut self, _now: Time, _handle: Handle) -> bool {
        false
    }

    /// Has the drive keep note of these deeds of its own from now on, and of no others.
    fn watch_handles(&mut self, _watch: HandleWatch) {}

    /// Says how a host expects to use blocks from now on. A hint: it changes no answer, and a drive may ignore it.
    fn expect_use(&mut self, _extent: Extent, _expected: ExpectedUse) {}

    /// Appends those that it has kept note of, oldest first: the last few since it was opened.
    fn handle_events(&self, _events: &mut Vec<HandleEvent>) {}
}

/// A segment of a drive that is written in order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SegmentFacts {
    /// Blocks that were written since it was last trimmed: the next write begins behind them.
    pub written: u32,
    /// It can be written: its medium has not failed.
    pub is_writable: bool,
}

/// A drive whose segments are written in order and trimmed as a whole: [`BlockTarget::segment_blocks`] says how long they are.
///
/// After a power cut each segment has a prefix of what was written to it, at least as long as at the last flush. A trim that no flush followed may
/// be undone, as a whole.
pub trait SegmentTarget: BlockTarget {
    /// What is known of a segment.
    fn segment(&self, segment: u32) -> SegmentFacts;

    /// Segments that may be written in part at a time.
    fn segments_in_part_max(&self) -> u32;
}

/// What stands for a drive is one: a drive whose device is of a known type, a reference.
impl<T: DerefMut<Target: Target>> Target for T {
    type Done = <T::Target as Target>::Done;

    fn frames(&self) -> &Frames {
        (**self).frames()
    }

    fn frames_mut(&mut self) -> &mut Frames {
        (**self).frames_mut()
    }

    fn poll(&mut self, now: Time, done: &mut Vec<Self::Done>) {
        (**self).poll(now, done);
    }

    fn next_due(&self) -> Option<Time> {
        (**self).next_due()
    }

    fn is_read_only(&self) -> bool {
        (**self).is_read_only()
    }

    fn vitals(&self) -> Option<Vitals> {
        (**self).vitals()
    }

    fn give_up(&mut self, now: Time) -> String {
        (**self).give_up(now)
    }
}

/// The same of a drive of segments.
impl<T: DerefMut<Target: SegmentTarget>> SegmentTarget for T {
    fn segment(&self, segment: u32) -> SegmentFacts {
        (**self).segment(segment)
    }

    fn segments_in_part_max(&self) -> u32 {
        (**self).segments_in_part_max()
    }
}

/// The same of a drive of blocks.
impl<T: DerefMut<Target: BlockTarget>> BlockTarget for T {
    fn blocks(&self) -> u64 {
        (**self).blocks()
    }

    fn payload_form(&self) -> FrameForm {
        (**self).payload_form()
    }

    fn submit(&mut self, now: Time, tag: u64, request: Request<'_>) -> Result<(), IoError> {
        (**self).submit(now, tag, request)
    }

    fn segment_blocks(&self) -> Option<u64> {
        (**self).segment_blocks()
    }

    fn placement(&self) -> PlacementFacts {
        (**self).placement()
    }

    fn handle_room(&self, handle: Handle) -> u64 {
        (**self).handle_room(handle)
    }

    fn renew_handle(&mut self, now: Time, handle: Handle) -> bool {
        (**self).renew_handle(now, handle)
    }

    fn watch_handles(&mut self, watch: HandleWatch) {
        (**self).watch_handles(watch);
    }

    fn expect_use(&mut self, extent: Extent, expected: ExpectedUse) {
        (**self).expect_use(extent, expected);
    }

    fn handle_events(&self, events: &mut Vec<HandleEvent>) {
        (**self).handle_events(events);
    }
}
