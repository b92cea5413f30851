//! The window of a zone (ZRWA): blocks from the write pointer on that the host writes in any order, and over again.
//!
//! ```text
//!   [ committed ……………………………………… ][ 5 |   | 2 | 9 |   |   ] … up to the capacity
//!                                 ▲ write pointer        ▲ a write behind the window commits its first blocks, as if they had been
//!                                   └──── in memory ────┘   appended; those without anything are zeroes
//! ```
//!
//! It is in memory alone. A flush saves what is in it with the tail of its zone (`flushing`), each block for itself, and the record says which
//! blocks there are; so what was flushed comes back, at the write pointer that is found or behind it. A block that is written again is saved
//! again, in its place: until then a power cut leaves the one or the other.

use openftl_core::Frame;
use std::collections::VecDeque;
use std::ops::Range;

/// A place for a block.
#[derive(Clone, Copy, Default, Debug)]
struct Slot {
    frame: Option<Frame>,
    /// The area has an older version of it.
    is_stale: bool,
}

/// The window of a zone.
#[derive(Debug)]
pub(crate) struct Window {
    /// The block at the write pointer.
    first: u32,
    /// From that on.
    slots: VecDeque<Slot>,
}

impl Window {
    /// An empty window of `blocks` blocks, from block `first` of a zone on.
    pub(crate) fn new(first: u32, blocks: u32) -> Window {
        // While a write is taken it is as long again.
        Window { first, slots: VecDeque::with_capacity(2 * blocks as usize) }
    }

    /// From the write pointer up to the last block that was written.
    pub(crate) fn blocks(&self) -> Range<u32> {
        self.first..self.first + self.slots.len() as u32
    }

    /// The frame of block `block`, if it was written.
    pub(crate) fn frame(&self, block: u32) -> Option<Frame> {
        self.slots.get(block.checked_sub(self.first)? as usize)?.frame
    }

    /// Blocks before block `end` that were written, with their frames.
    pub(crate) fn blocks_before(&self, end: u32) -> impl Iterator<Item = (u32, Frame)> + '_ {
        let slots = (self.first..end).zip(&self.slots);
        slots.filter_map(|(block, slot)| slot.frame.map(|frame| (block, frame)))
    }

    /// Whether the area has an older version of block `block`; `None`: the block is before the window.
    pub(crate) fn is_stale(&self, block: u32) -> Option<bool> {
        let at = block.checked_sub(self.first)?;
        Some(self.slots.get(at as usize).is_some_and(|slot| slot.is_stale))
    }

    /// The area has, or may have, an older version of block `block`, which was written.
    pub(crate) fn set_stale(&mut self, block: u32) {
        self.slots[(block - self.first) as usize].is_stale = true;
    }

    /// The area has everything before block `end` as it is.
    pub(crate) fn all_saved_before(&mut self, end: u32) {
        (self.first..end).zip(&mut self.slots).for_each(|(_, slot)| slot.is_stale = false);
    }

    /// Takes the first block out: its number, its frame if it was written, and whether the area has an older version of it.
    pub(crate) fn pop(&mut self) -> (u32, Option<Frame>, bool) {
        let (block, slot) = (self.first, self.slots.pop_front().unwrap_or_default());
        self.first += 1;
        (block, slot.frame, slot.is_stale)
    }

    /// Puts a frame to block `block`. Returns the one that was there.
    pub(crate) fn put(&mut self, block: u32, frame: Frame) -> Option<Frame> {
        let at = (block - self.first) as usize;
        while self.slots.len() <= at {
            self.slots.push_back(Slot::default());
        }
        self.slots[at].frame.replace(frame)
    }

    /// The area may have older versions of what is in it.
    pub(crate) fn all_stale(&mut self) {
        self.slots.iter_mut().for_each(|slot| slot.is_stale = true);
    }

    /// The frames of blocks that were written.
    pub(crate) fn take_frames(&mut self) -> impl Iterator<Item = Frame> + '_ {
        self.slots.drain(..).filter_map(|slot| slot.frame)
    }
}
