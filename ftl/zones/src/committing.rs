//! Blocks of windows on their way to units: what the host has written, and what is committed of it.

use crate::record::SavedTail;
use crate::window::Window;
use crate::writing::oob;
use crate::zones::Zones;
use openftl_core::Frame;
use openftl_parts::flash::Flash;
use std::ops::Range;

impl Zones {
    /// Blocks of `zone` from its write pointer on that were written to its window, those between them included.
    pub(crate) fn in_window(&self, zone: u32) -> Range<u32> {
        let window = self.writer_of(zone).and_then(|writer| writer.window.as_ref());
        window.map_or(0..0, Window::blocks)
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
                if is_saved {
                    window.set_stale(block);
                }
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
                for _ in 0..blocks {
                    let (block, frame, is_stale) = window.pop();
                    committed.push(frame.unwrap_or(hole));
                    if is_stale {
                        writer.stale.push(block);
                    }
                }
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
                oob(block, number).seal(&mut flash.frames, *frame);
            }
        }
        true
    }
}
