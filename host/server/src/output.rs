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
use std::os::fd::{AsFd, BorrowedFd};

use openftl_bytes::RequestId;
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};

use crate::ServedDrive;
use crate::channel::{GATHERED_BYTES_MAX, Secured};
use crate::served::Served;

/// Pieces of memory in one system call; a quarter of what the system allows (`IOV_MAX`).
const SLICES_MAX: usize = 256;

/// Sent bytes at the buffer's front that are worth moving the rest for.
const COMPACT_BYTES: usize = 64 << 10;

/// What zeroes are sent from.
pub(crate) static ZEROES: [u8; 64 << 10] = [0; 64 << 10];

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

/// How sending went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Sent {
    /// Bytes that the system took.
    pub bytes: usize,
    /// Whether it would have taken more.
    pub takes_more: bool,
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
        socket: impl AsFd,
        served: &[Served<'_, T>],
        mut ended: impl FnMut(usize, RequestId, u64),
    ) -> Result<Sent, Errno> {
        let mut slices = [IoSlice::new(&[]); SLICES_MAX];
        let (count, offered) = self.gather(served, &mut slices);
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let bytes = match sendmsg(socket, &slices[..count], &mut SendAncillaryBuffer::default(), flags) {
            Ok(bytes) => bytes,
            Err(Errno::AGAIN | Errno::INTR) => 0,
            Err(error) => return Err(error),
        };
        self.advance(bytes as u64, &mut ended);
        Ok(Sent { bytes, takes_more: bytes == offered })
    }

    /// The same through TLS, which takes one piece of memory: what is in line is copied there. What was not taken comes first
    /// again the next time, as TLS wants it.
    pub fn send_secured<T: ServedDrive>(
        &mut self,
        secured: &mut Secured,
        socket: BorrowedFd<'_>,
        served: &[Served<'_, T>],
        mut ended: impl FnMut(usize, RequestId, u64),
    ) -> Result<Sent, Errno> {
        let mut slices = [IoSlice::new(&[]); SLICES_MAX];
        let (count, _) = self.gather(served, &mut slices);
        secured.gathered.clear();
        for slice in &slices[..count] {
            let room = GATHERED_BYTES_MAX - secured.gathered.len();
            secured.gathered.extend_from_slice(&slice[..slice.len().min(room)]);
        }
        let moved = secured.send(socket)?;
        self.advance(moved.bytes as u64, &mut ended);
        Ok(Sent { bytes: moved.bytes, takes_more: !moved.would_block })
    }

    fn gather<'a, T: ServedDrive>(
        &'a self,
        served: &'a [Served<'_, T>],
        slices: &mut [IoSlice<'a>; SLICES_MAX],
    ) -> (usize, usize) {
        let (mut count, mut offered) = (0, 0);
        let mut small = self.small_sent;
        let mut skip = self.front_sent;
        for segment in &self.segments {
            match segment {
                Segment::Small(bytes) => {
                    if count == SLICES_MAX {
                        break;
                    }
                    // What is sent of the buffer's front is counted in `small_sent`, so `skip` is not applied twice.
                    let left = *bytes - skip as usize;
                    slices[count] = IoSlice::new(&self.small[small..small + left]);
                    (count, offered, small) = (count + 1, offered + left, small + left);
                }
                Segment::Kept(bytes) => {
                    if count == SLICES_MAX {
                        break;
                    }
                    slices[count] = IoSlice::new(&bytes[skip as usize..]);
                    (count, offered) = (count + 1, offered + bytes.len() - skip as usize);
                }
                Segment::Zeroes(bytes) => {
                    let mut left = *bytes - skip;
                    while left > 0 && count < SLICES_MAX {
                        let slice = &ZEROES[..left.min(ZEROES.len() as u64) as usize];
                        slices[count] = IoSlice::new(slice);
                        (count, offered, left) = (count + 1, offered + slice.len(), left - slice.len() as u64);
                    }
                    if left > 0 {
                        break;
                    }
                }
                &Segment::Read { export, id, length } => {
                    let mut from = skip;
                    while from < length && count < SLICES_MAX {
                        let slice = served[export].slice(id, from);
                        slices[count] = IoSlice::new(slice);
                        (count, offered, from) = (count + 1, offered + slice.len(), from + slice.len() as u64);
                    }
                    if from < length {
                        break;
                    }
                }
            }
            skip = 0;
        }
        (count, offered)
    }

    fn advance(&mut self, mut bytes: u64, ended: &mut impl FnMut(usize, RequestId, u64)) {
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
