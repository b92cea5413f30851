//! What a power cut leaves behind.
//!
//! | at the moment of the cut | afterwards, cache unprotected | afterwards, cache protected |
//! |---|---|---|
//! | programmed | there | there |
//! | acknowledged, not yet being programmed | never written | there |
//! | accepted by nobody yet | never written | never written |
//! | being programmed | never written, or torn: cannot be read, and neither can the pages that share its word lines | there |
//! | being erased | closed, and cannot be read until it is reset again | the same |
//! | reset, the die not there yet | as it was before the reset | the same |
//!
//! On one chunk everything behind the first unit that was never written is gone as well: a die works in order.

use super::chunks::{ERASING, LOST_BLOCKS};
use super::schedule::Program;
use super::{EmulatedDevice, Erase, Mark};
use crate::contract::ChunkState;
use crate::profile::Programming;
use crate::store::StoreError;
use openftl_core::Time;

/// What a power cut took.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, serde::Serialize)]
pub struct PowerLoss {
    /// Program operations under way or still to come that left nothing behind.
    pub programs_lost: u32,
    /// Program operations that were left torn.
    pub programs_torn: u32,
    /// Chunks whose erase was cut short: they cannot be read until they are reset again.
    pub erases_cut_short: u32,
}

impl EmulatedDevice {
    /// Cuts the power at `now` and turns it on again. Commands under way never complete. With `torn`, a unit that was
    /// being programmed is left torn; without, it is left unwritten.
    ///
    /// # Errors
    /// If the store cannot note what is left.
    pub fn power_cut(&mut self, now: Time, torn: bool) -> Result<PowerLoss, StoreError> {
        self.now = self.now.max(now);
        self.forget_finished_erases();
        self.queue.clear();
        self.commits.clear();
        self.log = super::NotificationLog::default();
        self.dulbe = false;
        self.next_program_fails = None;
        let mut unfinished = self.schedule.stop(self.now);
        if self.schedule.is_protected() {
            unfinished.retain(|program| program.accepted > self.now);
        }
        let mut loss = PowerLoss { programs_lost: unfinished.len() as u32, ..PowerLoss::default() };
        // Erases first: a chunk that was reset too late is again what it was, and its unfinished programs count.
        let mut settled = Vec::new();
        for erase in std::mem::take(&mut self.erases) {
            if !settled.contains(&erase.chunk) && self.stop_erase(&erase)? {
                settled.push(erase.chunk);
                loss.erases_cut_short += 1;
            }
        }
        unfinished.sort_by_key(|program| program.chunk);
        for program in unfinished {
            // The first unit of a chunk that is not there decides; those behind it went the same way.
            if !settled.contains(&program.chunk) {
                settled.push(program.chunk);
                if self.roll_back(&program, torn)? {
                    loss.programs_lost -= 1;
                    loss.programs_torn += 1;
                }
            }
        }
        Ok(loss)
    }

    /// Gives whether the unit is left torn.
    fn roll_back(&mut self, program: &Program, torn: bool) -> Result<bool, StoreError> {
        let Program { chunk, first, .. } = *program;
        *self.chunks.programmed_at_mut(chunk) = self.now;
        if first >= self.chunks.get(chunk).write_pointer {
            // A failed operation that has closed the chunk before itself.
            return Ok(false);
        }
        let unit = self.geometry.ws_min;
        let is_torn = torn && program.begins <= self.now;
        let end = if is_torn { first + unit } else { first };
        let lost_below = self.marks_in(chunk, 0..end).filter(|(_, mark)| *mark == Mark::Lost);
        let mut lost: Vec<u32> = lost_below.map(|(ppa, _)| self.format.block_of(ppa)).collect();
        if is_torn {
            lost.extend(self.shared_word_lines(first).flat_map(|first| first..first + unit));
        }
        self.unmark(chunk, end);
        *self.chunks.flags_mut(chunk) &= !LOST_BLOCKS;
        for block in lost {
            self.mark_lost(chunk, block)?;
        }
        self.settle(chunk, self.chunks.state_at(end), end)?;
        Ok(is_torn)
    }

    /// The first blocks of the units on the same word lines as the unit at `first`, up to that unit itself.
    fn shared_word_lines(&self, first: u32) -> impl Iterator<Item = u32> + use<> {
        let unit = self.geometry.ws_min;
        let (earlier, distance) = match self.profile.chip.programming {
            Programming::OneShot => (0, 0),
            Programming::Shared => (self.profile.page_bit(first / unit), self.profile.pair_distance()),
        };
        (0..=earlier).map(move |pages| first - pages * distance * unit)
    }

    /// Gives whether the chunk is left unreadable.
    fn stop_erase(&mut self, erase: &Erase) -> Result<bool, StoreError> {
        let Erase { chunk, begins, before, overwritten, .. } = *erase;
        *self.chunks.flags_mut(chunk) &= !ERASING;
        if begins > self.now && !overwritten {
            self.chunks.restore(chunk, before);
            self.settle(chunk, before.state, before.write_pointer)?;
            return Ok(false);
        }
        let keeps_new_data = overwritten && self.schedule.is_protected();
        if keeps_new_data || self.chunks.get(chunk).state == ChunkState::Offline {
            return Ok(false);
        }
        self.forget_contents(chunk);
        for block in 0..self.geometry.blocks_per_chunk {
            self.mark_lost(chunk, block)?;
        }
        self.settle(chunk, ChunkState::Closed, self.geometry.blocks_per_chunk)?;
        Ok(true)
    }
}
