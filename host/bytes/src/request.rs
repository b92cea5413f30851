//! A byte request says what a host wants of a drive; its id names it until its release, and its end says what came of it.

use crate::span::Span;
use openftl_parts::target::{Durability, IoError};
use openftl_parts::words::Handle;

/// What to do; offsets and lengths in bytes, inside the drive, lengths at least 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ByteRequest {
    /// Reads. After it has finished, [`ByteRequests::slice`](crate::ByteRequests::slice) shows the bytes until the release.
    Read {
        /// First byte.
        offset: u64,
        /// Bytes.
        length: u64,
    },
    /// Writes. Between admission and start the host fills [`ByteRequests::slice_mut`](crate::ByteRequests::slice_mut).
    Write {
        /// First byte.
        offset: u64,
        /// Bytes.
        length: u64,
        /// When to acknowledge.
        durability: Durability,
        /// What it will live as long as. Of a block that is covered in part, all goes under it.
        handle: Handle,
    },
    /// Reads, lets the host look, and writes: nothing else changes the blocks meanwhile. It finishes twice. First its bytes can be
    /// looked at with [`ByteRequests::slice`](crate::ByteRequests::slice); then the host fills them and calls
    /// [`ByteRequests::write`](crate::ByteRequests::write), or releases the request, and nothing was written. After the write it
    /// has finished for good.
    Exchange {
        /// First byte.
        offset: u64,
        /// Bytes.
        length: u64,
        /// When to acknowledge.
        durability: Durability,
        /// What it will live as long as.
        handle: Handle,
    },
    /// Makes whole blocks errors until they are written, zeroed or trimmed.
    WriteUncorrectable {
        /// First byte, of a block.
        offset: u64,
        /// Bytes, of whole blocks.
        length: u64,
        /// When to acknowledge.
        durability: Durability,
    },
    /// Makes bytes read as zeroes.
    Zero {
        /// First byte.
        offset: u64,
        /// Bytes.
        length: u64,
        /// When to acknowledge.
        durability: Durability,
    },
    /// Says that bytes are needed no more. Whole blocks read as zeroes afterwards, others are left alone.
    Trim {
        /// First byte.
        offset: u64,
        /// Bytes.
        length: u64,
        /// When to acknowledge.
        durability: Durability,
    },
    /// Makes everything that has finished durable.
    Flush,
    /// Says that blocks are an object about to be written. Between admission and start the host says which:
    /// [`ByteRequests::set_extents`](crate::ByteRequests::set_extents).
    FlashAlloc,
}

impl ByteRequest {
    pub(crate) fn span(self) -> Span {
        match self {
            ByteRequest::Read { offset, length }
            | ByteRequest::Write { offset, length, .. }
            | ByteRequest::Exchange { offset, length, .. }
            | ByteRequest::WriteUncorrectable { offset, length, .. }
            | ByteRequest::Zero { offset, length, .. }
            | ByteRequest::Trim { offset, length, .. } => Span { offset, length },
            ByteRequest::Flush | ByteRequest::FlashAlloc => Span { offset: 0, length: 0 },
        }
    }

    /// Whether it makes blocks read otherwise.
    pub(crate) fn changes_blocks(self) -> bool {
        !matches!(self, ByteRequest::Read { .. } | ByteRequest::Flush | ByteRequest::FlashAlloc)
    }

    /// Whether the drive keeps its frames.
    pub(crate) fn is_write(self) -> bool {
        matches!(
            self,
            ByteRequest::Write { .. } | ByteRequest::WriteUncorrectable { .. } | ByteRequest::Exchange { .. }
        )
    }

    /// How many frames the request holds from admission on.
    #[must_use]
    pub fn frames_needed(self) -> usize {
        let span = self.span();
        match self {
            ByteRequest::Read { .. } | ByteRequest::WriteUncorrectable { .. } | ByteRequest::Exchange { .. } => {
                span.blocks() as usize
            }
            ByteRequest::Write { .. } => span.blocks() as usize + span.edges().count(),
            ByteRequest::Zero { .. } => span.edges().count(),
            ByteRequest::Trim { .. } | ByteRequest::Flush | ByteRequest::FlashAlloc => 0,
        }
    }
}

/// Names an admitted request until its release.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RequestId(pub(crate) u32);

impl RequestId {
    /// The place of the request, for tables beside this one: below the requests that there may be.
    #[inline]
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A request has ended; the host releases it when it has looked at its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Finished<K> {
    /// The request.
    pub id: RequestId,
    /// The host's ticket.
    pub ticket: K,
    /// How.
    pub result: Result<(), IoError>,
}
