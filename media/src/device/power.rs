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
//!
//! Real flash leaves more than that, and a simulator may say what becomes of each die ([`DieFate`]): it may have come further in its
//! queue than the others, a unit that was being programmed may be readable in part, or once and then no more, and a chunk
//! that was being erased may have lost all it held, some of it, or nothing.

use super::chunks::{ERASING, LOST_BLOCKS};
use super::schedule::Program;
use super::{EmulatedDevice, Erase, Mark};
use crate::contract::ChunkState;
use crate::profile::Programming;
use crate::store::StoreError;
use openftl_core::{PuId, Time};

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

/// Some blocks of a unit or chunk: bit `n % 64` for block `n`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct BlockMask(pub u64);

impl BlockMask {
    fn has(self, block: u32) -> bool {
        self.0 >> (block % 64) & 1 == 1
    }
}

/// What becomes of a unit that was being programmed, and of the pages that share its word lines.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum ProgramFate {
    /// It was never written.
    #[default]
    Unwritten,
    /// None of it can be read.
    Torn,
    /// These blocks of it can be read.
    Partly(BlockMask),
    /// Each block can be read so many times.
    Fading {
        /// Reads that succeed.
        reads: u32,
    },
}

/// What becomes of a chunk that was being erased.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum EraseFate {
    /// None of what it held can be read.
    #[default]
    Lost,
    /// These blocks can be read.
    Partly(BlockMask),
    /// It holds what it held.
    Kept,
}

/// What becomes of the work of one die when the power goes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct DieFate {
    /// When it stops, not before the power goes: it may have come further in its queue than others.
    pub until: Time,
    /// Of the unit that it was programming.
    pub program: ProgramFate,
    /// Of the chunk that it was erasing.
    pub erase: EraseFate,
}

/// What a power cut took and left, where each die had a fate of its own.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Remains {
    /// What it took; units that are left in part or fading count as torn, and chunks that are left in part or whole as cut short.
    pub loss: PowerLoss,
    /// Units that can be read in part.
    pub programs_partly: u32,
    /// Units that can be read, and soon not any more.
    pub programs_fading: u32,
    /// Interrupted erases that left a part.
    pub erases_partly: u32,
    /// Interrupted erases that left everything.
    pub erases_kept: u32,
}

impl EmulatedDevice {
    /// Cuts the power at `now` and turns it on again. Commands under way never complete. With `torn`, a unit that was
    /// being programmed is left torn; without, it is left unwritten.
    ///
    /// # Errors
    /// If the store cannot note what is left.
    pub fn power_cut(&mut self, now: Time, torn: bool) -> Result<PowerLoss, StoreError> {
        let program = if torn { ProgramFate::Torn } else { ProgramFate::Unwritten };
        let fate = DieFate { until: now, program, erase: EraseFate::Lost };
        self.power_cut_by_die(now, |_| fate).map(|remains| remains.loss)
    }

    /// The same, and each die has a fate of its own.
    ///
    /// # Errors
    /// If the store cannot note what is left.
    pub fn power_cut_by_die(&mut self, now: Time, fate: impl Fn(PuId) -> DieFate) -> Result<Remains, StoreError> {
        let now = self.now.max(now);
        let fate = |pu: PuId| {
            let fate = fate(pu);
            DieFate { until: fate.until.max(now), ..fate }
        };
        // Whatever is done after this is done when the last die has stopped.
        self.now = self.geometry.pu_ids().map(|pu| fate(pu).until).fold(now, Time::max);
        let format = self.format;
        self.forget_erases_finished_by(|chunk| fate(format.pu_of(chunk)).until);
        self.queue.clear();
        self.commits.clear();
        self.log = super::NotificationLog::default();
        self.dulbe = false;
        self.next_program_fails = None;
        self.silent.end_waiting(None, |ppa| format.chunk_of(ppa));
        let mut unfinished = self.schedule.stop(self.now, |pu| fate(pu).until);
        if self.schedule.is_protected() {
            unfinished.retain(|program| program.accepted > fate(format.pu_of(program.chunk)).until);
        }
        let programs_lost = unfinished.len() as u32;
        let mut remains = Remains { loss: PowerLoss { programs_lost, ..PowerLoss::default() }, ..Remains::default() };
        // Erases first: a chunk that was reset too late is again what it was, and its unfinished programs count.
        let mut settled = Vec::new();
        for erase in std::mem::take(&mut self.erases) {
            if !settled.contains(&erase.chunk)
                && self.stop_erase(&erase, &fate(format.pu_of(erase.chunk)), &mut remains)?
            {
                settled.push(erase.chunk);
                remains.loss.erases_cut_short += 1;
            }
        }
        unfinished.sort_by_key(|program| program.chunk);
        for program in unfinished {
            // The first unit of a chunk that is not there decides; those behind it went the same way.
            if !settled.contains(&program.chunk) {
                settled.push(program.chunk);
                if self.roll_back(&program, &fate(format.pu_of(program.chunk)), &mut remains)? {
                    remains.loss.programs_lost -= 1;
                    remains.loss.programs_torn += 1;
                }
            }
        }
        Ok(remains)
    }

    /// Gives whether the unit is left torn.
    fn roll_back(&mut self, program: &Program, fate: &DieFate, remains: &mut Remains) -> Result<bool, StoreError> {
        let Program { chunk, first, .. } = *program;
        *self.chunks.programmed_at_mut(chunk) = self.now;
        if first >= self.chunks.get(chunk).write_pointer {
            // A failed operation that has closed the chunk before itself.
            return Ok(false);
        }
        let unit = self.geometry.ws_min;
        let is_torn = fate.program != ProgramFate::Unwritten && program.begins <= fate.until;
        let end = if is_torn { first + unit } else { first };
        let lost_below = self.marks_in(chunk, 0..end).filter(|(_, mark)| *mark == Mark::Lost);
        let mut lost: Vec<u32> = lost_below.map(|(ppa, _)| self.format.block_of(ppa)).collect();
        let mut fading = None;
        if is_torn {
            let blocks = self.shared_word_lines(first).flat_map(|first| first..first + unit);
            match fate.program {
                ProgramFate::Unwritten | ProgramFate::Torn => lost.extend(blocks),
                ProgramFate::Partly(readable) => {
                    remains.programs_partly += 1;
                    lost.extend(blocks.filter(|block| !readable.has(*block)));
                }
                ProgramFate::Fading { reads } => {
                    remains.programs_fading += 1;
                    fading = Some((blocks, reads));
                }
            }
        }
        self.undo(chunk, end..self.chunks.get(chunk).write_pointer)?;
        self.unmark(chunk, end);
        *self.chunks.flags_mut(chunk) &= !LOST_BLOCKS;
        for block in lost {
            self.mark_lost(chunk, block)?;
        }
        if let Some((blocks, reads)) = fading {
            blocks.for_each(|block| self.mark(chunk, block, Mark::Fading { reads }));
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

    /// Gives whether the erase was under way, and the chunk is left as that left it.
    fn stop_erase(&mut self, erase: &Erase, fate: &DieFate, remains: &mut Remains) -> Result<bool, StoreError> {
        let Erase { chunk, begins, before, overwritten, .. } = *erase;
        *self.chunks.flags_mut(chunk) &= !ERASING;
        if begins > fate.until && !overwritten {
            self.chunks.restore(chunk, before);
            self.settle(chunk, before.state, before.write_pointer)?;
            return Ok(false);
        }
        let keeps_new_data = overwritten && self.schedule.is_protected();
        if keeps_new_data || self.chunks.get(chunk).state == ChunkState::Offline {
            return Ok(false);
        }
        if !overwritten && fate.erase != EraseFate::Lost && before.write_pointer > 0 {
            let resets = self.chunks.get(chunk).resets;
            self.chunks.restore(chunk, before);
            *self.chunks.resets_mut(chunk) = resets;
            match fate.erase {
                EraseFate::Partly(readable) => {
                    remains.erases_partly += 1;
                    for block in (0..before.write_pointer).filter(|block| !readable.has(*block)) {
                        self.mark_lost(chunk, block)?;
                    }
                }
                EraseFate::Kept | EraseFate::Lost => remains.erases_kept += 1,
            }
            self.settle(chunk, before.state, before.write_pointer)?;
            return Ok(true);
        }
        self.forget_contents(chunk);
        for block in 0..self.geometry.blocks_per_chunk {
            self.mark_lost(chunk, block)?;
        }
        self.settle(chunk, ChunkState::Closed, self.geometry.blocks_per_chunk)?;
        Ok(true)
    }
}
