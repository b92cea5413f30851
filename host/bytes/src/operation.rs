//! An operation holds what is known of a request under way: its stage, its frames and its commands to the drive.

use crate::request::ByteRequest;
use crate::span::{EDGES_MAX, Span};
use openftl_core::{BLOCK_BYTES, Frame, Frames};
use openftl_parts::target::{Durability, Extent, IoError};
use openftl_parts::words::TRANSACTION_BLOCKS_MAX;

/// What a request is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// The place is free.
    Free,
    /// Admitted; a write is being filled.
    Admitted,
    /// Started, but other requests have their turn first.
    Waiting,
    /// Reading head and tail, or all of an exchange.
    Edges,
    /// An exchange that was read: the host looks at it.
    Shown,
    /// Doing what was asked.
    Body,
    /// Ended; the host has not released it.
    Finished,
}

/// One command to the drive on behalf of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Part {
    /// Transaction number so-and-so of a read or write; the trim of a zero or trim; the flush.
    Body(u32),
    /// Reads an edge block.
    EdgeRead(u8),
    /// Writes an edge block (of a zero; those of a write are in its body).
    EdgeWrite(u8),
}

pub(crate) struct Op<K> {
    pub(crate) request: ByteRequest,
    pub(crate) ticket: K,
    pub(crate) span: Span,
    pub(crate) stage: Stage,
    /// Order of arrival among started requests.
    pub(crate) arrival: u64,
    /// Earlier requests that have their turn first.
    pub(crate) turns_before: u32,
    /// Its place among those that change blocks, while it is there.
    pub(crate) changing: u32,
    pub(crate) parts_left: u32,
    /// Whether the frames of a write's body are the drive's.
    pub(crate) handed_over: bool,
    pub(crate) result: Result<(), IoError>,
    /// One a block, of reads and writes.
    pub(crate) frames: Vec<Frame>,
    /// Of an object.
    pub(crate) extents: Vec<Extent>,
    /// What edge blocks are read into.
    pub(crate) edge_frames: [Option<Frame>; EDGES_MAX],
}

impl<K> Op<K> {
    pub(crate) fn has_edges(&self) -> bool {
        matches!(self.request, ByteRequest::Write { .. } | ByteRequest::Zero { .. })
            && self.span.edges().next().is_some()
    }

    pub(crate) fn is_exchange(&self) -> bool {
        matches!(self.request, ByteRequest::Exchange { .. })
    }

    /// Whether it reads before it writes, so that nothing else may change its blocks in between.
    pub(crate) fn reads_first(&self) -> bool {
        self.has_edges() || self.is_exchange()
    }

    /// Whether the command with this tag is its trim: that of a zero or trim, whose only other commands are those of edges.
    pub(crate) fn is_trim(&self, tag: u64) -> bool {
        matches!(self.request, ByteRequest::Zero { .. } | ByteRequest::Trim { .. }) && tag >> 62 == 0
    }

    /// Commands of the body.
    pub(crate) fn body_parts(&self) -> u32 {
        match self.request {
            ByteRequest::Read { .. }
            | ByteRequest::Write { .. }
            | ByteRequest::Exchange { .. }
            | ByteRequest::WriteUncorrectable { .. } => {
                self.span.blocks().div_ceil(TRANSACTION_BLOCKS_MAX as u64) as u32
            }
            ByteRequest::Zero { .. } | ByteRequest::Trim { .. } => u32::from(!self.span.whole_blocks().is_empty()),
            ByteRequest::Flush | ByteRequest::FlashAlloc => 1,
        }
    }

    pub(crate) fn durability(&self) -> Durability {
        match self.request {
            ByteRequest::Write { durability, .. }
            | ByteRequest::Exchange { durability, .. }
            | ByteRequest::WriteUncorrectable { durability, .. }
            | ByteRequest::Zero { durability, .. }
            | ByteRequest::Trim { durability, .. } => durability,
            ByteRequest::Read { .. } | ByteRequest::Flush | ByteRequest::FlashAlloc => Durability::Volatile,
        }
    }

    /// Indices into `frames` of transaction `number`.
    pub(crate) fn transaction(&self, number: u32) -> std::ops::Range<usize> {
        let start = number as usize * TRANSACTION_BLOCKS_MAX;
        start..self.frames.len().min(start + TRANSACTION_BLOCKS_MAX)
    }
}

impl Part {
    /// The drive's tag: the place of the request below, and above, for those who debug, which part it is.
    pub(crate) fn tag(self, op: u32) -> u64 {
        let part = match self {
            Part::Body(number) => number,
            Part::EdgeRead(edge) => 1 << 31 | u32::from(edge),
            Part::EdgeWrite(edge) => 1 << 30 | u32::from(edge),
        };
        u64::from(part) << 32 | u64::from(op)
    }
}

/// A request that is started, not finished, and changes blocks.
pub(crate) struct Changing {
    pub(crate) op: u32,
    pub(crate) span: Span,
    pub(crate) reads_first: bool,
}

impl Changing {
    /// Whether the two take turns.
    pub(crate) fn takes_turns_with(&self, other: &Changing) -> bool {
        (self.reads_first || other.reads_first) && self.span.shares_a_block_with(&other.span)
    }
}

/// Joins what was on the drive with what the host wants, when all edge blocks have been read.
pub(crate) fn merge_edges<K>(op: &mut Op<K>, frames: &mut Frames) {
    for (index, edge) in op.span.edges().enumerate() {
        let old = op.edge_frames[index].expect("an edge has its frame until it is written");
        if let ByteRequest::Write { .. } = op.request {
            let new = op.frames[(edge.block - op.span.first_block()) as usize];
            // The old block gets the new bytes and takes the place of the half-filled frame, or the other way round:
            // whichever copies less.
            if edge.changed.len() * 2 <= BLOCK_BYTES {
                frames.copy_part(new, edge.changed.clone(), old, edge.changed.start);
                op.frames[(edge.block - op.span.first_block()) as usize] = old;
                frames.release(new);
            } else {
                frames.copy_part(old, 0..edge.changed.start, new, 0);
                frames.copy_part(old, edge.changed.end..BLOCK_BYTES, new, edge.changed.end);
                frames.release(old);
            }
            op.edge_frames[index] = None;
        } else {
            frames.bytes_mut(old)[edge.changed].fill(0);
        }
    }
}
