//! Bytes that are received or sent on a socket: one system call, or with TLS one for each record.
//!
//! The server's thread makes it where it is, or packs all that it takes into a [`Transfer`] and has a reactor make it.

use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;
use std::os::fd::BorrowedFd;

use openftl_core::Time;
use openftl_core::page::Page;
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};

use crate::channel::{GATHERED_BYTES_MAX, Secured};
use crate::link::{Buffers, Over};

/// Pieces of memory in one system call; a quarter of what the system allows (`IOV_MAX`).
pub(crate) const SLICES_MAX: usize = 256;

/// What zeroes are sent from.
pub(crate) static ZEROES: [u8; 64 << 10] = [0; 64 << 10];

/// What a socket gave or took.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Moved {
    pub bytes: usize,
    /// It moved less than it was asked to, so it has no more now; unless the peer has closed its side.
    pub is_short: bool,
    /// It said that it has no more now.
    pub would_block: bool,
    /// The peer has closed its side.
    pub ended: bool,
}

/// Fills `rooms`, one after the other, with what the socket holds.
pub(crate) fn receive(
    socket: BorrowedFd<'_>,
    secured: Option<&mut Secured>,
    rooms: &mut [IoSliceMut<'_>],
) -> Result<Moved, Over> {
    if let Some(secured) = secured {
        return secured.receive(socket, rooms);
    }
    let room: usize = rooms.iter().map(|room| room.len()).sum();
    let received = match rooms {
        [room] => rustix::io::read(socket, &mut room[..]),
        rooms => rustix::io::readv(socket, rooms),
    };
    match received {
        Ok(0) => Ok(Moved { ended: true, ..Moved::default() }),
        Ok(bytes) => Ok(Moved { bytes, is_short: bytes < room, ..Moved::default() }),
        Err(Errno::AGAIN) => Ok(Moved { would_block: true, ..Moved::default() }),
        Err(Errno::INTR) => Ok(Moved::default()),
        Err(_) => Err(Over::Vanished),
    }
}

/// Sends as much of `slices` as the socket takes at once. TLS takes one piece of memory: they are copied there, as far as there is room.
/// What it did not take comes first again the next time, as TLS wants it.
pub(crate) fn send(
    socket: BorrowedFd<'_>,
    secured: Option<&mut Secured>,
    slices: &[IoSlice<'_>],
) -> Result<Moved, Over> {
    if let Some(secured) = secured {
        secured.gathered.clear();
        for slice in slices {
            let room = GATHERED_BYTES_MAX - secured.gathered.len();
            secured.gathered.extend_from_slice(&slice[..slice.len().min(room)]);
        }
        return secured.send(socket).map_err(|_| Over::Vanished);
    }
    let offered: usize = slices.iter().map(|slice| slice.len()).sum();
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    match sendmsg(socket, slices, &mut SendAncillaryBuffer::default(), flags) {
        Ok(bytes) => Ok(Moved { bytes, is_short: bytes < offered, ..Moved::default() }),
        Err(Errno::AGAIN | Errno::INTR) => Ok(Moved { would_block: true, ..Moved::default() }),
        Err(_) => Err(Over::Vanished),
    }
}

/// What is to be sent, held apart from frames and buffers of the connection.
#[derive(Default)]
pub(crate) struct Parcel {
    /// Small replies, one after the other.
    small: Vec<u8>,
    pieces: Vec<Piece>,
    bytes: usize,
}

enum Piece {
    /// The next bytes of `small`.
    Small(usize),
    /// This part of a page; `None`: of zeroes.
    Page(Option<Page>, Range<usize>),
    /// So many zeroes, at most as many as there are of them.
    Zeroes(usize),
}

impl Parcel {
    /// Nothing is left in it.
    pub fn clear(&mut self) {
        self.small.clear();
        self.pieces.clear();
        self.bytes = 0;
    }

    /// How much is in it.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn push_small(&mut self, bytes: &[u8]) {
        self.small.extend_from_slice(bytes);
        self.push(Piece::Small(bytes.len()), bytes.len());
    }

    pub fn push_page(&mut self, page: Option<Page>, part: Range<usize>) {
        let bytes = part.len();
        self.push(Piece::Page(page, part), bytes);
    }

    pub fn push_zeroes(&mut self, bytes: usize) {
        self.push(Piece::Zeroes(bytes), bytes);
    }

    fn push(&mut self, piece: Piece, bytes: usize) {
        self.pieces.push(piece);
        self.bytes += bytes;
    }

    fn send(&self, socket: BorrowedFd<'_>, secured: Option<&mut Secured>) -> Result<Moved, Over> {
        let mut slices = [IoSlice::new(&[]); SLICES_MAX];
        let mut small = &self.small[..];
        for (slice, piece) in slices.iter_mut().zip(&self.pieces) {
            *slice = IoSlice::new(match piece {
                Piece::Small(bytes) => small.split_off(..*bytes).expect("it was put there"),
                Piece::Page(Some(page), part) => &page.bytes()[part.clone()],
                Piece::Page(None, part) => &ZEROES[..part.len()],
                Piece::Zeroes(bytes) => &ZEROES[..*bytes],
            });
        }
        send(socket, secured, &slices[..self.pieces.len()])
    }
}

/// A part of a page, to be filled.
pub(crate) struct Room {
    pub page: Page,
    pub part: Range<usize>,
}

impl Room {
    /// What is in the first of its bytes.
    pub fn first(&self, bytes: usize) -> &[u8] {
        &self.page.bytes()[self.part.clone()][..bytes]
    }
}

/// What a transfer moves.
pub(crate) enum Load {
    /// To this part of a receive buffer, of which those from `start` on are not yet read.
    Received { buffer: Box<[u8]>, start: usize, room: Range<usize> },
    /// To these, one after the other: a long payload goes straight to where it belongs.
    Filled(Vec<Room>),
    /// As much of this as the socket takes.
    Sent(Parcel),
}

/// A system call on a socket, with all that it takes.
pub(crate) struct Transfer {
    /// What it moves was there, or there was room for it, about then.
    pub began: Time,
    pub load: Load,
    /// What lies between, if anything does.
    pub secured: Option<Box<Secured>>,
}

impl Transfer {
    /// Ends one whose connection is gone.
    pub fn end(self, socket: BorrowedFd<'_>, buffers: &mut Buffers) {
        if let Some(mut secured) = self.secured {
            secured.close(socket);
        }
        if let Load::Received { buffer, .. } = self.load {
            buffers.give(buffer);
        }
    }

    /// Makes it.
    pub fn make(&mut self, socket: BorrowedFd<'_>) -> Result<Moved, Over> {
        let secured = self.secured.as_deref_mut();
        match &mut self.load {
            Load::Received { buffer, room, .. } => {
                receive(socket, secured, &mut [IoSliceMut::new(&mut buffer[room.clone()])])
            }
            Load::Filled(rooms) => {
                let slices = rooms.iter_mut().map(|Room { page, part }| {
                    let bytes = page.bytes_mut().expect("nobody else has a page that is lent");
                    IoSliceMut::new(&mut bytes[part.clone()])
                });
                receive(socket, secured, &mut slices.collect::<Vec<_>>())
            }
            Load::Sent(parcel) => {
                let moved = parcel.send(socket, secured);
                // Pages are let go of here, not where everybody waits for it.
                parcel.clear();
                moved
            }
        }
    }
}
