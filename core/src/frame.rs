//! The memory that payload travels in between host, FTL and media.
//!
//! ```text
//!            frame 0        frame 1              frame n
//! payload  [4096 bytes]  [4096 bytes]  …        stamp (8 bytes)  …
//! oob      [16.. bytes]  [16.. bytes]  …        [16.. bytes]     …
//! ```
//!
//! One pool belongs to one drive. A host interface receives a block straight into a frame and gives the frame to the
//! FTL; the FTL keeps it as its write buffer; the device programs from it. So the payload is moved at most once, from the
//! frame to the medium. Frames are named by index, so handing one over moves four bytes. The pool is bounded: a host that
//! finds no free frame waits, which is the back-pressure of the whole drive.
//!
//! A frame holds real bytes or a [`Stamp`]; a pool has as many of each as its owner asked for.
//!
//! Bytes are in a [`Page`], which a frame may share: a store in RAM that programs from a frame holds on to its page
//! ([`Frames::page`]), and a read of such a store puts the store's page into the frame ([`Frames::put`]); neither copies. A frame
//! that is to be filled anew while its page is shared gets another page first, so nobody sees what is written to it later. What
//! that copies is counted ([`Frames::bytes_copied`]): nothing where a frame is released between two uses.

use crate::page::{FreshPages, Page, PagePool};
use crate::stamp::Stamp;
use crate::{BLOCK_BYTES, OOB_BYTES_MIN};
use std::ops::Range;

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

/// What a frame without a page holds.
static ZEROES: [u8; BLOCK_BYTES] = [0; BLOCK_BYTES];

/// A bounded pool of frames. Byte frames come first, stamp frames after them.
pub struct Frames {
    /// `None`: zeroes.
    pages: Vec<Option<Page>>,
    stamps: Vec<Stamp>,
    oob: Vec<u8>,
    oob_bytes: usize,
    free_pages: Vec<Frame>,
    free_stamps: Vec<Frame>,
    fresh: FreshPages,
    copied: u64,
}

impl Frames {
    /// A pool of `pages` byte frames and `stamps` stamp frames, each with `oob_bytes` out-of-band bytes, and with pages of its
    /// own.
    ///
    /// # Panics
    /// If `oob_bytes` is below [`OOB_BYTES_MIN`].
    #[must_use]
    pub fn new(pages: usize, stamps: usize, oob_bytes: usize) -> Frames {
        Frames::on(PagePool::default(), pages, stamps, oob_bytes)
    }

    /// The same, with pages of `pool`: best that of the store that they are written to, where pages end that are not needed any
    /// more.
    ///
    /// # Panics
    /// As [`Frames::new`].
    #[must_use]
    pub fn on(pool: PagePool, pages: usize, stamps: usize, oob_bytes: usize) -> Frames {
        assert!(oob_bytes >= OOB_BYTES_MIN, "a frame has at least {OOB_BYTES_MIN} out-of-band bytes");
        let names = |range: std::ops::Range<usize>| range.rev().map(|index| Frame(index as u32)).collect::<Vec<_>>();
        Frames {
            pages: std::iter::repeat_with(|| None).take(pages).collect(),
            stamps: vec![Stamp::ZERO; stamps],
            oob: vec![0; (pages + stamps) * oob_bytes],
            oob_bytes,
            free_pages: names(0..pages),
            free_stamps: names(pages..pages + stamps),
            fresh: FreshPages::of(pool),
            copied: 0,
        }
    }

    /// Bytes of payload that were copied because a frame was changed while another had its page.
    #[must_use]
    pub fn bytes_copied(&self) -> u64 {
        self.copied
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
            FrameForm::Bytes => {
                let page = &mut self.pages[frame.0 as usize];
                if page.as_ref().is_none_or(|page| !page.is_own()) {
                    // Whoever fills it next need not keep what it held.
                    *page = Some(self.fresh.take());
                }
                self.free_pages.push(frame);
            }
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
            Some(page) => Payload::Bytes(contents(page)),
            None => Payload::Stamp(self.stamps[frame.0 as usize - self.pages.len()]),
        }
    }

    /// Where payload for `frame` goes, all of it: what it held is lost.
    #[inline]
    #[must_use]
    pub fn payload_mut(&mut self, frame: Frame) -> PayloadMut<'_> {
        self.both_mut(frame).0
    }

    /// The bytes of a byte frame.
    ///
    /// # Panics
    /// If `frame` is a stamp frame.
    #[inline]
    #[must_use]
    pub fn bytes(&self, frame: Frame) -> &[u8; BLOCK_BYTES] {
        contents(&self.pages[frame.0 as usize])
    }

    /// The bytes of a byte frame, to be changed.
    ///
    /// # Panics
    /// If `frame` is a stamp frame.
    #[inline]
    #[must_use]
    pub fn bytes_mut(&mut self, frame: Frame) -> &mut [u8; BLOCK_BYTES] {
        self.own(frame);
        own_bytes(&mut self.pages[frame.0 as usize])
    }

    /// The bytes of a byte frame, all of them to be written: what they were is lost. For frames that are not released between two
    /// uses.
    ///
    /// # Panics
    /// If `frame` is a stamp frame.
    #[inline]
    #[must_use]
    pub fn bytes_anew(&mut self, frame: Frame) -> &mut [u8; BLOCK_BYTES] {
        anew(&mut self.pages[frame.0 as usize], &mut self.fresh)
    }

    /// The bytes of several byte frames at once, to be changed: for one vectored read from a socket or file.
    ///
    /// # Panics
    /// If a frame is named twice, or is a stamp frame.
    #[inline]
    #[must_use]
    pub fn bytes_disjoint_mut<const N: usize>(&mut self, frames: [Frame; N]) -> [&mut [u8; BLOCK_BYTES]; N] {
        frames.iter().for_each(|frame| self.own(*frame));
        let pages = self.pages.get_disjoint_mut(frames.map(|frame| frame.0 as usize));
        pages.expect("byte frames, each named once").map(own_bytes)
    }

    /// Copies a part of the bytes of `from` to the same length of those of `to`, which begins at byte `at`.
    ///
    /// # Panics
    /// If the two are one frame, a frame is a stamp frame, or a part reaches beyond its frame.
    #[inline]
    pub fn copy_part(&mut self, from: Frame, part: Range<usize>, to: Frame, at: usize) {
        self.own(to);
        let pages = self.pages.get_disjoint_mut([from.0 as usize, to.0 as usize]);
        let [from, to] = pages.expect("two byte frames");
        own_bytes(to)[at..at + part.len()].copy_from_slice(&contents(from)[part]);
    }

    /// Gives a byte frame a page that nobody else has, with the contents of the one that it had.
    #[inline]
    fn own(&mut self, frame: Frame) {
        self.copied += self.fresh.make_own(&mut self.pages[frame.0 as usize]);
    }

    /// The page of a byte frame with what that holds, for somebody else to fill; nobody else has it. The frame holds zeroes until the page
    /// is [put](Frames::put) there again.
    ///
    /// # Panics
    /// If `frame` is a stamp frame.
    #[must_use]
    pub fn lend(&mut self, frame: Frame) -> Page {
        self.own(frame);
        self.pages[frame.0 as usize].take().expect("it has just got one")
    }

    /// The page of a byte frame, to be held beside it; `None` if it holds zeroes. The frame gets another one when it is changed.
    ///
    /// # Panics
    /// If `frame` is a stamp frame.
    #[inline]
    #[must_use]
    pub fn page(&self, frame: Frame) -> Option<Page> {
        self.pages[frame.0 as usize].clone()
    }

    /// A byte frame holds what is in `page` from now on, or zeroes.
    ///
    /// # Panics
    /// If `frame` is a stamp frame.
    #[inline]
    pub fn put(&mut self, frame: Frame, page: Option<Page>) {
        if let Some(before) = std::mem::replace(&mut self.pages[frame.0 as usize], page) {
            self.fresh.give_back(before);
        }
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

    /// Where payload and out-of-band bytes for `frame` go, all of them: what it held is lost.
    #[inline]
    #[must_use]
    pub fn both_mut(&mut self, frame: Frame) -> (PayloadMut<'_>, &mut [u8]) {
        let pages = self.pages.len();
        let payload = match self.pages.get_mut(frame.0 as usize) {
            Some(page) => PayloadMut::Bytes(anew(page, &mut self.fresh)),
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
                let page = self.page(from);
                self.put(to, page);
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
        match self.form(frame) {
            FrameForm::Bytes => self.put(frame, None),
            FrameForm::Stamp => self.stamps[frame.0 as usize - self.pages.len()] = Stamp::ZERO,
        }
    }
}

#[inline]
fn contents(page: &Option<Page>) -> &[u8; BLOCK_BYTES] {
    page.as_ref().map_or(&ZEROES, Page::bytes)
}

/// The bytes of a page that nobody else has, whatever it contains.
#[inline]
fn anew<'a>(page: &'a mut Option<Page>, fresh: &mut FreshPages) -> &'a mut [u8; BLOCK_BYTES] {
    if page.as_ref().is_none_or(|page| !page.is_own()) {
        *page = Some(fresh.take());
    }
    own_bytes(page)
}

/// The bytes of a page that nobody else has.
#[inline]
fn own_bytes(page: &mut Option<Page>) -> &mut [u8; BLOCK_BYTES] {
    page.as_mut().and_then(Page::bytes_mut).expect("the frame was given a page of its own")
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

    #[test]
    fn what_a_store_holds_stays_as_it_was_whatever_is_written_to_the_frame() {
        let mut frames = Frames::new(2, 0, 16);
        let (one, other) = (Frame(0), Frame(1));
        frames.bytes_mut(one).fill(1);
        let held = frames.page(one).unwrap();
        frames.bytes_mut(one)[0] = 2;
        assert_eq!((held.bytes()[0], frames.bytes(one)[0], frames.bytes(one)[1]), (1, 2, 1));
        assert_eq!(frames.bytes_copied(), BLOCK_BYTES as u64);
        frames.put(other, Some(held.clone()));
        frames.copy_part(one, 0..8, other, 100);
        assert_eq!((held.bytes()[100], frames.bytes(other)[99..=101].to_vec()), (1, vec![1, 2, 1]));
        frames.put(other, Some(held.clone()));
        assert!(matches!(frames.payload_mut(other), PayloadMut::Bytes(_)));
        frames.put(other, Some(held.clone()));
        frames.bytes_anew(other).fill(3);
        assert_eq!(held.bytes(), &[1; BLOCK_BYTES], "what is overwritten as a whole is not copied");
        assert_eq!(frames.bytes_copied(), 2 * BLOCK_BYTES as u64);
    }

    #[test]
    fn a_frame_released_while_a_store_has_its_page_is_filled_again_without_a_copy() {
        let mut frames = Frames::new(1, 0, 16);
        let mut held = Vec::new();
        for round in 0..100 {
            let frame = frames.acquire(FrameForm::Bytes).unwrap();
            frames.bytes_mut(frame).fill(round);
            held.push(frames.page(frame).unwrap());
            frames.release(frame);
        }
        assert!(held.iter().zip(0..).all(|(page, round)| page.bytes() == &[round; BLOCK_BYTES]));
        assert_eq!(frames.bytes_copied(), 0);
    }

    #[test]
    fn a_zeroed_frame_is_zero_also_where_it_is_changed_in_part() {
        let mut frames = Frames::new(1, 0, 16);
        frames.bytes_mut(Frame(0)).fill(7);
        frames.zero(Frame(0));
        assert_eq!((frames.bytes(Frame(0)), frames.page(Frame(0)).is_none()), (&[0; BLOCK_BYTES], true));
        frames.bytes_mut(Frame(0))[5] = 1;
        assert_eq!(frames.bytes(Frame(0)).iter().map(|byte| u64::from(*byte)).sum::<u64>(), 1);
    }
}
