//! What is to be sent on one connection: small replies in a buffer, the bytes of reads straight from their frames, in
//! order, gathered into one system call.
//!
//! ```text
//!   segments   Small(44)   Read(#7, 4096)   Small(16+28)   Read(#9, 65536)  …
//!                 │             │               │               │
//!   small      [········································]       │
//!   frames                   [4096]                      [4096][4096][4096]…
//! ```
//!
//! What a slow peer does not take is moved from its frames to memory of the connection when others wait for frames. Zeroes
//! are a number: they are sent from a page that all connections share.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::os::fd::BorrowedFd;

use openftl_bytes::RequestId;
use openftl_core::BLOCK_BYTES;

use crate::ServedDrive;
use crate::channel::Secured;
use crate::link::Over;
use crate::served::Served;
use crate::transfer::{self, Moved, Parcel, SLICES_MAX, ZEROES};

/// Sent bytes at the buffer's front that are worth moving the rest for.
const COMPACT_BYTES: usize = 64 << 10;

/// What to send next.
#[derive(Debug)]
enum Segment {
    /// This many bytes of the buffer.
    Small(usize),
    /// The bytes of a finished read of this one of those that are served.
    Read { export: usize, id: RequestId, length: u64 },
    /// The same, moved out of its frames.
    Kept(Vec<u8>),
    /// This many zeroes.
    Zeroes(u64),
}

impl Segment {
    fn length(&self) -> u64 {
        match self {
            Segment::Small(bytes) => *bytes as u64,
            Segment::Read { length, .. } | Segment::Zeroes(length) => *length,
            Segment::Kept(bytes) => bytes.len() as u64,
        }
    }
}

/// A piece of what is in line.
enum Part<'a> {
    Small(&'a [u8]),
    Zeroes(usize),
    /// Bytes of a finished read from one on.
    Read {
        export: usize,
        id: RequestId,
        from: u64,
    },
}

/// The bytes waiting to be sent.
#[derive(Default, Debug)]
pub(crate) struct Output {
    /// Small replies. Whoever appends calls [`Output::seal`] afterwards.
    pub small: Vec<u8>,
    small_sent: usize,
    small_sealed: usize,
    segments: VecDeque<Segment>,
    /// Bytes of the first segment that are sent already.
    front_sent: u64,
    /// Segments whose bytes lie in frames.
    reads: usize,
    /// Bytes that were moved out of frames.
    kept_bytes: usize,
    /// Zeroes in line.
    zeroes: u64,
}

impl Output {
    pub fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// Bytes of small replies that wait, zeroes among them: what is not to be sent cannot be asked for without end.
    pub fn small_waiting(&self) -> usize {
        self.small.len() - self.small_sent + self.zeroes as usize
    }

    /// Whether bytes in frames wait to be sent.
    pub fn holds_frames(&self) -> bool {
        self.reads > 0
    }

    /// Whether bytes that were moved out of frames wait to be sent.
    pub fn has_kept(&self) -> bool {
        self.kept_bytes > 0
    }

    /// Memory that the peer keeps by not taking what it asked for.
    pub fn memory(&self) -> usize {
        self.kept_bytes + self.small.len()
    }

    /// Puts what was appended to `small` in line.
    pub fn seal(&mut self) {
        let grown = self.small.len() - self.small_sealed;
        if grown == 0 {
            return;
        }
        // A peer that never lets the buffer run empty does not make it grow for ever.
        if self.small_sent > COMPACT_BYTES {
            self.small.drain(..self.small_sent);
            self.small_sent = 0;
        }
        self.small_sealed = self.small.len();
        match self.segments.back_mut() {
            Some(Segment::Small(bytes)) => *bytes += grown,
            _ => self.segments.push_back(Segment::Small(grown)),
        }
    }

    /// Puts the bytes of a finished read in line.
    pub fn push_read(&mut self, export: usize, id: RequestId, length: u64) {
        self.seal();
        self.reads += 1;
        self.segments.push_back(Segment::Read { export, id, length });
    }

    /// Puts zeroes in line.
    pub fn push_zeroes(&mut self, bytes: u64) {
        self.seal();
        self.zeroes += bytes;
        self.segments.push_back(Segment::Zeroes(bytes));
    }

    /// Moves the bytes of reads from their frames to memory of the connection. Calls `ended` for each of them.
    pub fn move_aside<T: ServedDrive>(
        &mut self,
        served: &[Served<'_, T>],
        mut ended: impl FnMut(usize, RequestId, u64),
    ) -> u64 {
        let mut copied = 0;
        for segment in &mut self.segments {
            let Segment::Read { export, id, length } = *segment else { continue };
            let mut bytes = Vec::with_capacity(length as usize);
            while (bytes.len() as u64) < length {
                bytes.extend_from_slice(served[export].slice(id, bytes.len() as u64));
            }
            self.kept_bytes += bytes.len();
            copied += length;
            *segment = Segment::Kept(bytes);
            ended(export, id, length);
        }
        self.reads = 0;
        copied
    }

    /// Sends as much as fits in one system call. Calls `ended` for each read that is sent to its end.
    pub fn send<T: ServedDrive>(
        &mut self,
        socket: BorrowedFd<'_>,
        secured: Option<&mut Secured>,
        served: &[Served<'_, T>],
        ended: impl FnMut(usize, RequestId, u64),
    ) -> Result<Moved, Over> {
        let mut slices = [IoSlice::new(&[]); SLICES_MAX];
        let mut count = 0;
        self.for_each_part(|part| {
            let slice = match part {
                Part::Small(bytes) => bytes,
                Part::Zeroes(bytes) => &ZEROES[..bytes],
                Part::Read { export, id, from } => served[export].slice(id, from),
            };
            slices[count] = IoSlice::new(slice);
            count += 1;
            slice.len()
        });
        let moved = transfer::send(socket, secured, &slices[..count])?;
        self.advance(moved.bytes as u64, ended);
        Ok(moved)
    }

    /// Packs the same into `parcel`, to be sent elsewhere. It stays in line until [`Output::advance`] is told how much was sent.
    pub fn pack<T: ServedDrive>(&self, served: &[Served<'_, T>], parcel: &mut Parcel) {
        self.for_each_part(|part| {
            let before = parcel.bytes();
            match part {
                Part::Small(bytes) => parcel.push_small(bytes),
                Part::Zeroes(bytes) => parcel.push_zeroes(bytes),
                Part::Read { export, id, from } => served[export].pack(id, from, parcel),
            }
            parcel.bytes() - before
        });
    }

    /// About how many bytes are packed, or sent, at a time.
    pub fn bytes_at_once(&self) -> usize {
        let lengths = self.segments.iter().take(SLICES_MAX).map(Segment::length);
        (lengths.sum::<u64>() - self.front_sent).min((SLICES_MAX * BLOCK_BYTES) as u64) as usize
    }

    /// Calls `take` for each piece of what goes into one system call; it says how many bytes it took, and is given what is left of a
    /// longer one.
    fn for_each_part<'a>(&'a self, mut take: impl FnMut(Part<'a>) -> usize) {
        let mut left = SLICES_MAX;
        let mut small = self.small_sent;
        let mut skip = self.front_sent;
        for segment in &self.segments {
            if left == 0 {
                return;
            }
            match segment {
                Segment::Small(bytes) => {
                    // What is sent of the buffer's front is counted in `small_sent`, so `skip` is not applied twice.
                    let end = small + *bytes - skip as usize;
                    take(Part::Small(&self.small[small..end]));
                    (left, small) = (left - 1, end);
                }
                Segment::Kept(bytes) => {
                    take(Part::Small(&bytes[skip as usize..]));
                    left -= 1;
                }
                &Segment::Zeroes(length) | &Segment::Read { length, .. } => {
                    let mut from = skip;
                    while from < length {
                        if left == 0 {
                            return;
                        }
                        let part = match *segment {
                            Segment::Read { export, id, .. } => Part::Read { export, id, from },
                            _ => Part::Zeroes((length - from).min(ZEROES.len() as u64) as usize),
                        };
                        from += take(part) as u64;
                        left -= 1;
                    }
                }
            }
            skip = 0;
        }
    }

    /// So much of what is in line was sent. Calls `ended` for each read that is sent to its end.
    pub fn advance(&mut self, mut bytes: u64, mut ended: impl FnMut(usize, RequestId, u64)) {
        while let Some(front) = self.segments.front() {
            let length = front.length();
            let sent = bytes.min(length - self.front_sent);
            bytes -= sent;
            if let Segment::Small(_) = front {
                self.small_sent += sent as usize;
            }
            if self.front_sent + sent < length {
                self.front_sent += sent;
                return;
            }
            self.front_sent = 0;
            match self.segments.pop_front() {
                Some(Segment::Read { export, id, length }) => {
                    self.reads -= 1;
                    ended(export, id, length);
                }
                Some(Segment::Kept(bytes)) => self.kept_bytes -= bytes.len(),
                Some(Segment::Zeroes(bytes)) => self.zeroes -= bytes,
                Some(Segment::Small(_)) | None => {}
            }
        }
        self.small.clear();
        (self.small_sent, self.small_sealed) = (0, 0);
    }

    /// Forgets everything. Calls `ended` for each read that was in line.
    pub fn discard(&mut self, mut ended: impl FnMut(usize, RequestId)) {
        for segment in self.segments.drain(..) {
            if let Segment::Read { export, id, .. } = segment {
                ended(export, id);
            }
        }
        (self.reads, self.kept_bytes, self.zeroes) = (0, 0, 0);
    }
}
