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

use crate::layout::Layout;
use crate::record::SavedTail;
use crate::writer::Writer;
use crate::zones::Zones;
use openftl_core::Frame;
use openftl_parts::flash::Flash;
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

    /// The block behind the last one that was written; that at the write pointer if none was.
    pub(crate) fn end(&self) -> u32 {
        self.first + self.slots.len() as u32
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

impl Writer {
    /// Whether the area has block `block` as it is now.
    pub(crate) fn has_saved(&self, block: u32, layout: &Layout) -> bool {
        let is_stale = match &self.window {
            Some(window) if block >= window.first => {
                window.slots.get((block - window.first) as usize).is_some_and(|slot| slot.is_stale)
            }
            _ => self.stale.contains(&block),
        };
        !is_stale && self.saved.as_ref().is_some_and(|saved| saved.has(block, layout))
    }

    /// The area has everything before block `end` as it is now, or needs it no more.
    pub(crate) fn all_saved_before(&mut self, end: u32) {
        self.stale.retain(|block| *block >= end);
        if let Some(window) = &mut self.window {
            (window.first..end).zip(&mut window.slots).for_each(|(_, slot)| slot.is_stale = false);
        }
    }
}

impl Zones {
    /// Blocks of `zone` from its write pointer on that were written to its window, those between them included.
    pub(crate) fn in_window(&self, zone: u32) -> Range<u32> {
        let window = self.writer_of(zone).and_then(|writer| writer.window.as_ref());
        window.map_or(0..0, |window| window.first..window.end())
    }

    /// The frame of a block that nobody has written.
    pub(crate) fn hole(&self) -> Frame {
        self.hole.expect("a drive with windows has one")
    }

    /// Takes blocks that the host has written to the window of `zone`, from block `at` on, and commits `committed` of its blocks.
    pub(crate) fn write_window(&mut self, flash: &mut Flash, zone: u32, at: u32, frames: &[Frame], committed: u32) {
        let slot = self.slot_to_write(zone);
        flash.statistics.host_blocks_written += frames.len() as u64;
        let (layout, first) = (self.layout, self.board.zone(zone).written - committed);
        let writer = self.writers[slot as usize].as_mut().expect("the zone has a writer");
        let window = writer.window.get_or_insert_with(|| Window::new(first, layout.window_blocks));
        for (block, frame) in (at..).zip(frames) {
            if let Some(old) = window.put(block, *frame) {
                flash.frames.release(old);
                let is_saved = writer.saved.as_ref().is_some_and(|saved: &SavedTail| saved.has(block, &layout));
                window.slots[(block - window.first) as usize].is_stale |= is_saved;
            }
        }
        self.commit(flash, zone, committed);
    }

    /// The first `blocks` blocks of the window of `zone` are behind its write pointer from now on.
    pub(crate) fn commit(&mut self, flash: &mut Flash, zone: u32, blocks: u32) {
        if blocks == 0 {
            return;
        }
        let hole = self.hole();
        let slot = self.slot_to_write(zone);
        let mut committed = std::mem::take(&mut self.committing);
        let writer = self.writers[slot as usize].as_mut().expect("the zone has a writer");
        match &mut writer.window {
            Some(window) => {
                for block in window.first..window.first + blocks {
                    let slot = window.slots.pop_front().unwrap_or_default();
                    committed.push(slot.frame.unwrap_or(hole));
                    if slot.is_stale {
                        writer.stale.push(block);
                    }
                }
                window.first += blocks;
            }
            // Nothing was written to it.
            None => committed.resize(blocks as usize, hole),
        }
        self.push(flash, slot, &committed);
        committed.clear();
        self.committing = committed;
    }

    /// Gives every block of a unit that is to be written, and that nobody has written, a frame of its own. Returns whether there were any left.
    pub(crate) fn fill_holes(&mut self, flash: &mut Flash, slot: u32, unit: u32) -> bool {
        let Some(hole) = self.hole else { return true };
        let frames = &self.writer(slot).unit(unit).expect("it waits").frames;
        let holes = frames.iter().filter(|frame| **frame == hole).count();
        if holes == 0 {
            return true;
        }
        let Some(mut own) = self.own_frames(flash, holes) else { return false };
        let unit_blocks = self.layout.unit_blocks;
        let writer = self.writers[slot as usize].as_mut().expect("a slot that is named has a writer");
        let number = writer.number;
        let found = writer.unit_mut(unit).expect("it waits");
        for (block, frame) in (unit * unit_blocks + found.skip..).zip(&mut found.frames) {
            if *frame == hole {
                *frame = own.pop().expect("they were counted");
                flash.frames.zero(*frame);
                crate::writing::oob(block, number).seal(&mut flash.frames, *frame);
            }
        }
        true
    }
}
