//! The payload of a request lies in frames: it is looked at, filled, or lent to a reactor.

use std::ops::Range;

use openftl_bytes::RequestId;
use openftl_core::{Frame, Frames};
use openftl_parts::target::Target;

use super::{Behind, Served};
use crate::ServedDrive;
use crate::transfer::{Parcel, Room};

impl<T: ServedDrive> Served<'_, T> {
    /// The bytes of a finished read from byte `from` on, as far as they lie together.
    #[inline]
    pub fn slice(&self, id: RequestId, from: u64) -> &[u8] {
        match &self.behind {
            Behind::Drive { target, requests, .. } => requests.slice(target.frames(), id, from),
            Behind::Device { device, requests, .. } => requests.slice(&device.frames, id, from),
            Behind::Zones { drive, requests, .. } => requests.slice(drive.frames(), id, from),
            Behind::Pages { drive, requests, .. } => requests.slice(drive, id, from),
            Behind::Values { drive, requests, .. } => requests.slice(drive, id, from),
        }
    }

    /// Packs the same to be sent elsewhere: the page of their frame is held there as well, and not copied.
    pub fn pack(&self, id: RequestId, from: u64, parcel: &mut Parcel) {
        let (frames, frame, part) = match &self.behind {
            Behind::Drive { target, requests, .. } => frame_of(target.frames(), requests.place(id, from)),
            Behind::Zones { drive, requests, .. } => frame_of(drive.frames(), requests.place(id, from)),
            Behind::Pages { drive, requests, .. } => requests.frame(drive, id, from),
            Behind::Values { drive, requests, .. } => requests.frame(drive, id, from),
            // Out-of-band bytes lie beside pages.
            Behind::Device { .. } => return parcel.push_small(self.slice(id, from)),
        };
        parcel.push_page(frames.page(frame), part);
    }

    /// Where the bytes of an admitted write go from byte `from` on, as far as they lie together.
    #[inline]
    pub fn slice_mut(&mut self, id: RequestId, from: u64) -> &mut [u8] {
        match &mut self.behind {
            Behind::Drive { target, requests, .. } => requests.slice_mut(target.frames_mut(), id, from),
            Behind::Device { device, requests, .. } => requests.slice_mut(&mut device.frames, id, from),
            Behind::Zones { drive, requests, .. } => requests.slice_mut(drive.frames_mut(), id, from),
            Behind::Pages { drive, requests, .. } => requests.slice_mut(drive, id, from),
            Behind::Values { drive, requests, .. } => requests.slice_mut(drive, id, from),
        }
    }

    /// Puts `bytes` where those of an admitted write go from byte `from` on.
    pub fn fill(&mut self, id: RequestId, mut from: u64, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let room = self.slice_mut(id, from);
            let (now, rest) = bytes.split_at(room.len().min(bytes.len()));
            room[..now.len()].copy_from_slice(now);
            (from, bytes) = (from + now.len() as u64, rest);
        }
    }

    /// The memory of a write to a drive, of any kind, from byte `from` on, in pieces, for one vectored system call.
    pub fn room<const PIECES: usize>(&mut self, id: RequestId, from: u64) -> [&mut [u8]; PIECES] {
        match &mut self.behind {
            Behind::Drive { target, requests, .. } => pieces(target.frames_mut(), from, |at| requests.place(id, at)),
            Behind::Zones { drive, requests, .. } => pieces(drive.frames_mut(), from, |at| requests.place(id, at)),
            Behind::Pages { drive, requests, .. } => {
                let (pool, place) = requests.pool_and_place(drive, id);
                pieces(pool, from, place)
            }
            Behind::Values { drive, requests, .. } => {
                let (pool, place) = requests.pool_and_place(drive, id);
                pieces(pool, from, place)
            }
            Behind::Device { .. } => unreachable!("only for drives"),
        }
    }

    /// Lends the pages that the bytes of an admitted write go to, from byte `from` on, at most `bytes` of them, and as many pages.
    pub fn lend(&mut self, id: RequestId, from: u64, bytes: u64, pages: usize, rooms: &mut Vec<Room>) {
        self.with_frames(id, |frames, place| {
            let (mut at, end) = (from, from + bytes);
            while rooms.len() < pages && at < end {
                let (frame, part) = place(at);
                if at + part.len() as u64 > end {
                    break;
                }
                at += part.len() as u64;
                rooms.push(Room { page: frames.lend(frame), part });
            }
        });
    }

    /// They are back.
    pub fn take_back(&mut self, id: RequestId, from: u64, rooms: &mut Vec<Room>) {
        self.with_frames(id, |frames, place| {
            let mut at = from;
            for Room { page, part } in rooms.drain(..) {
                frames.put(place(at).0, Some(page));
                at += part.len() as u64;
            }
        });
    }

    /// The frames of an admitted write, and where in them each of its bytes goes.
    fn with_frames(&mut self, id: RequestId, act: impl FnOnce(&mut Frames, &dyn Fn(u64) -> (Frame, Range<usize>))) {
        match &mut self.behind {
            Behind::Drive { target, requests, .. } => act(target.frames_mut(), &|at| requests.place(id, at)),
            Behind::Zones { drive, requests, .. } => act(drive.frames_mut(), &|at| requests.place(id, at)),
            Behind::Pages { drive, requests, .. } => {
                let (pool, place) = requests.pool_and_place(drive, id);
                act(pool, &place);
            }
            Behind::Values { drive, requests, .. } => {
                let (pool, place) = requests.pool_and_place(drive, id);
                act(pool, &place);
            }
            Behind::Device { .. } => unreachable!("only for drives"),
        }
    }
}

/// The bytes of frames one after the other, from byte `from` of a request on; `place` says in which frame each byte lies.
fn pieces<const PIECES: usize>(
    frames: &mut Frames,
    from: u64,
    place: impl Fn(u64) -> (Frame, Range<usize>),
) -> [&mut [u8]; PIECES] {
    let mut at = from;
    let mut ranges: [_; PIECES] = std::array::from_fn(|_| 0..0);
    let taken = std::array::from_fn(|index| {
        let (frame, range) = place(at);
        at += range.len() as u64;
        ranges[index] = range;
        frame
    });
    let mut ranges = ranges.into_iter();
    let pieces = frames.bytes_disjoint_mut::<PIECES>(taken);
    pieces.map(|bytes| &mut bytes[ranges.next().expect("as many ranges as frames")])
}

/// A frame of these, and a part of it.
fn frame_of(frames: &Frames, (frame, part): (Frame, Range<usize>)) -> (&Frames, Frame, Range<usize>) {
    (frames, frame, part)
}
