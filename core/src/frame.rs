//! The memory that payload travels in between host, FTL and media.
//!
//! ```text
//!            frame 0        frame 1              frame n
//! payload  [4096 bytes]  [4096 bytes]  …        stamp (8 bytes)  …
//! oob      [16.. bytes]  [16.. bytes]  …        [16.. bytes]     …
//! ```
//!
//! One pool belongs to one drive. A host interface receives a block straight into a frame and gives the frame to the
//! FTL; the FTL keeps it as its write buffer; the device programs from it. So the payload is moved once, from the frame
//! to the medium. Frames are named by index, so handing one over moves four bytes. The pool is bounded: a host that
//! finds no free frame waits, which is the back-pressure of the whole drive.
//!
//! A frame holds real bytes or a [`Stamp`]; a pool has as many of each as its owner asked for.

use crate::stamp::Stamp;
use crate::{BLOCK_BYTES, OOB_BYTES_MIN};

/// Names one frame of a pool.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Frame(pub u32);

/// What a frame can hold.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FrameForm {
    /// A whole block.
    Bytes,
    /// Eight bytes that stand for a block.
    Stamp,
}

/// What a frame, or a block on media, holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Payload<'a> {
    /// A whole block.
    Bytes(&'a [u8; BLOCK_BYTES]),
    /// Eight bytes that stand for a block.
    Stamp(Stamp),
}

/// Where payload is read to.
#[derive(PartialEq, Eq, Debug)]
pub enum PayloadMut<'a> {
    /// A whole block.
    Bytes(&'a mut [u8; BLOCK_BYTES]),
    /// Eight bytes that stand for a block.
    Stamp(&'a mut Stamp),
}

#[repr(C, align(4096))]
#[derive(Clone)]
struct Page([u8; BLOCK_BYTES]);

/// A bounded pool of frames. Byte frames come first, stamp frames after them.
pub struct Frames {
    pages: Vec<Page>,
    stamps: Vec<Stamp>,
    oob: Vec<u8>,
    oob_bytes: usize,
    free_pages: Vec<Frame>,
    free_stamps: Vec<Frame>,
}

impl Frames {
    /// A pool of `pages` byte frames and `stamps` stamp frames, each with `oob_bytes` out-of-band bytes.
    ///
    /// # Panics
    /// If `oob_bytes` is below [`OOB_BYTES_MIN`].
    #[must_use]
    pub fn new(pages: usize, stamps: usize, oob_bytes: usize) -> Frames {
        assert!(oob_bytes >= OOB_BYTES_MIN, "a frame has at least {OOB_BYTES_MIN} out-of-band bytes");
        let names = |range: std::ops::Range<usize>| range.rev().map(|index| Frame(index as u32)).collect::<Vec<_>>();
        Frames {
            pages: vec![Page([0; BLOCK_BYTES]); pages],
            stamps: vec![Stamp::ZERO; stamps],
            oob: vec![0; (pages + stamps) * oob_bytes],
            oob_bytes,
            free_pages: names(0..pages),
            free_stamps: names(pages..pages + stamps),
        }
    }

    /// Frames in the pool, taken or not.
    #[must_use]
    pub fn len(&self) -> usize {
        self.pages.len() + self.stamps.len()
    }

    /// Whether the pool has no frame at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Frames of `form` that nobody holds.
    #[must_use]
    pub fn available(&self, form: FrameForm) -> usize {
        match form {
            FrameForm::Bytes => self.free_pages.len(),
            FrameForm::Stamp => self.free_stamps.len(),
        }
    }

    /// Takes a frame out of the pool, or `None` when all are held. Its contents are whatever they were.
    #[must_use]
    #[inline]
    pub fn acquire(&mut self, form: FrameForm) -> Option<Frame> {
        match form {
            FrameForm::Bytes => self.free_pages.pop(),
            FrameForm::Stamp => self.free_stamps.pop(),
        }
    }

    /// Takes `count` frames, or none at all if there are not so many. Appends them to `frames`.
    #[must_use]
    pub fn acquire_many(&mut self, form: FrameForm, count: usize, frames: &mut Vec<Frame>) -> bool {
        let free = match form {
            FrameForm::Bytes => &mut self.free_pages,
            FrameForm::Stamp => &mut self.free_stamps,
        };
        if free.len() < count {
            return false;
        }
        frames.extend(free.drain(free.len() - count..).rev());
        true
    }

    /// Gives a frame back. The caller held it and uses it no more.
    #[inline]
    pub fn release(&mut self, frame: Frame) {
        match self.form(frame) {
            FrameForm::Bytes => self.free_pages.push(frame),
            FrameForm::Stamp => self.free_stamps.push(frame),
        }
        debug_assert!(self.free_pages.len() <= self.pages.len(), "frame {} was released twice", frame.0);
        debug_assert!(self.free_stamps.len() <= self.stamps.len(), "frame {} was released twice", frame.0);
    }

    /// What `frame` can hold.
    #[inline]
    #[must_use]
    pub fn form(&self, frame: Frame) -> FrameForm {
        if (frame.0 as usize) < self.pages.len() { FrameForm::Bytes } else { FrameForm::Stamp }
    }

    /// What `frame` holds.
    #[inline]
    #[must_use]
    pub fn payload(&self, frame: Frame) -> Payload<'_> {
        match self.pages.get(frame.0 as usize) {
            Some(page) => Payload::Bytes(&page.0),
            None => Payload::Stamp(self.stamps[frame.0 as usize - self.pages.len()]),
        }
    }

    /// Where payload for `frame` goes.
    #[inline]
    #[must_use]
    pub fn payload_mut(&mut self, frame: Frame) -> PayloadMut<'_> {
        let pages = self.pages.len();
        match self.pages.get_mut(frame.0 as usize) {
            Some(page) => PayloadMut::Bytes(&mut page.0),
            None => PayloadMut::Stamp(&mut self.stamps[frame.0 as usize - pages]),
        }
    }

    /// The bytes of a byte frame.
    ///
    /// # Panics
    /// If `frame` is a stamp frame.
    #[inline]
    #[must_use]
    pub fn bytes(&self, frame: Frame) -> &[u8; BLOCK_BYTES] {
        &self.pages[frame.0 as usize].0
    }

    /// The bytes of a byte frame, to be filled.
    ///
    /// # Panics
    /// If `frame` is a stamp frame.
    #[inline]
    #[must_use]
    pub fn bytes_mut(&mut self, frame: Frame) -> &mut [u8; BLOCK_BYTES] {
        &mut self.pages[frame.0 as usize].0
    }

    /// The bytes of several byte frames at once, to be filled: for one vectored read from a socket or file.
    ///
    /// # Panics
    /// If a frame is named twice, or is a stamp frame.
    #[inline]
    #[must_use]
    pub fn bytes_disjoint_mut<const N: usize>(&mut self, frames: [Frame; N]) -> [&mut [u8; BLOCK_BYTES]; N] {
        let pages = self.pages.get_disjoint_mut(frames.map(|frame| frame.0 as usize));
        pages.expect("byte frames, each named once").map(|page| &mut page.0)
    }

    /// The out-of-band bytes of `frame`.
    #[inline]
    #[must_use]
    pub fn oob(&self, frame: Frame) -> &[u8] {
        &self.oob[frame.0 as usize * self.oob_bytes..][..self.oob_bytes]
    }

    /// The out-of-band bytes of `frame`, to be filled.
    #[inline]
    #[must_use]
    pub fn oob_mut(&mut self, frame: Frame) -> &mut [u8] {
        &mut self.oob[frame.0 as usize * self.oob_bytes..][..self.oob_bytes]
    }

    /// Payload and out-of-band bytes of `frame` at once, to be filled.
    #[inline]
    #[must_use]
    pub fn both_mut(&mut self, frame: Frame) -> (PayloadMut<'_>, &mut [u8]) {
        let pages = self.pages.len();
        let payload = match self.pages.get_mut(frame.0 as usize) {
            Some(page) => PayloadMut::Bytes(&mut page.0),
            None => PayloadMut::Stamp(&mut self.stamps[frame.0 as usize - pages]),
        };
        (payload, &mut self.oob[frame.0 as usize * self.oob_bytes..][..self.oob_bytes])
    }

    /// Makes `to` hold what `from` holds, out-of-band bytes left alone. A stamp is expanded, bytes are recognised.
    ///
    /// # Panics
    /// If `from` holds bytes that no stamp stands for and `to` is a stamp frame.
    pub fn copy(&mut self, from: Frame, to: Frame) {
        match (self.form(from), self.form(to)) {
            (FrameForm::Bytes, FrameForm::Bytes) => {
                if let Ok([from, to]) = self.pages.get_disjoint_mut([from.0 as usize, to.0 as usize]) {
                    to.0.copy_from_slice(&from.0);
                }
            }
            _ => {
                let stamp = match self.payload(from) {
                    Payload::Stamp(stamp) => stamp,
                    Payload::Bytes(bytes) => Stamp::recognise(bytes).expect("a stamp frame is given only stamps"),
                };
                match self.payload_mut(to) {
                    PayloadMut::Bytes(bytes) => stamp.expand(bytes),
                    PayloadMut::Stamp(to) => *to = stamp,
                }
            }
        }
    }

    /// Makes `frame` hold zeroes.
    pub fn zero(&mut self, frame: Frame) {
        match self.payload_mut(frame) {
            PayloadMut::Bytes(bytes) => bytes.fill(0),
            PayloadMut::Stamp(stamp) => *stamp = Stamp::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_pool_gives_nothing_and_a_released_frame_comes_back() {
        let mut frames = Frames::new(1, 1, 16);
        let page = frames.acquire(FrameForm::Bytes).unwrap();
        assert_eq!(frames.acquire(FrameForm::Bytes), None);
        let stamp = frames.acquire(FrameForm::Stamp).unwrap();
        assert_eq!((frames.form(page), frames.form(stamp)), (FrameForm::Bytes, FrameForm::Stamp));
        frames.release(page);
        assert_eq!(frames.acquire(FrameForm::Bytes), Some(page));
    }

    #[test]
    fn acquire_many_takes_all_or_none() {
        let mut frames = Frames::new(3, 0, 16);
        let mut taken = Vec::new();
        assert!(!frames.acquire_many(FrameForm::Bytes, 4, &mut taken));
        assert!(frames.acquire_many(FrameForm::Bytes, 3, &mut taken));
        assert_eq!(taken, [Frame(0), Frame(1), Frame(2)]);
    }

    #[test]
    fn a_copy_between_forms_keeps_the_contents() {
        let mut frames = Frames::new(1, 2, 16);
        let (page, a, b) = (Frame(0), Frame(1), Frame(2));
        if let PayloadMut::Stamp(stamp) = frames.payload_mut(a) {
            *stamp = Stamp(77);
        }
        frames.copy(a, page);
        frames.copy(page, b);
        assert_eq!(frames.payload(b), Payload::Stamp(Stamp(77)));
    }
}
