//! Resetting: a chunk is free at once for the host, and holds what it held until its die has begun to erase it.

use super::chance::Draw;
use super::chunks::{ERASING, MARKED, SILENT};
use super::commands::Outcome;
use super::{EmulatedDevice, Erase};
use crate::contract::{Blocks, ChunkState, NotifiedScope, NotifiedState, Status};
use openftl_core::{ChunkId, Ppa, Time, VECTOR_BLOCKS_MAX};

impl EmulatedDevice {
    pub(super) fn reset(&mut self, blocks: Blocks<'_>) -> Outcome {
        let mut outcome = Outcome::good(self.now);
        self.forget_finished_erases();
        match blocks {
            Blocks::Vector(ppas) => {
                if !(1..=VECTOR_BLOCKS_MAX).contains(&ppas.len()) {
                    return Outcome::invalid(self.now);
                }
                for (index, ppa) in ppas.iter().enumerate() {
                    self.reset_chunk(&mut outcome, index, *ppa);
                }
            }
            Blocks::Scalar { first, count } => {
                // The range begins with a chunk and ends with one; the gap behind the last one may be in it or not.
                let span = 1_u64 << self.format.block_bits;
                let chunks = u64::from(count).div_ceil(span);
                let last = u64::from(count) - chunks.saturating_sub(1) * span;
                if count == 0 || chunks > VECTOR_BLOCKS_MAX as u64 {
                    return Outcome::invalid(self.now);
                }
                if last < u64::from(self.geometry.blocks_per_chunk) {
                    outcome.fail(0, Status::InvalidReset);
                    return outcome;
                }
                for chunk in 0..chunks {
                    self.reset_chunk(&mut outcome, 0, Ppa(first.0 + chunk * span));
                }
            }
        }
        outcome
    }

    fn reset_chunk(&mut self, outcome: &mut Outcome, index: usize, ppa: Ppa) {
        let number = u32::try_from(ppa.0 >> self.format.block_bits).unwrap_or(u32::MAX);
        let chunk = ChunkId(number);
        if !self.chunks.exists(chunk) || self.format.block_of(ppa) != 0 {
            return outcome.fail(index, Status::InvalidReset);
        }
        let before = *self.chunks.get(chunk);
        match before.state {
            ChunkState::Closed => {}
            ChunkState::Free if self.geometry.reset_of_free => {}
            ChunkState::Free | ChunkState::Open => return outcome.fail(index, Status::InvalidReset),
            ChunkState::Offline => return outcome.fail(index, Status::OfflineChunk),
        }
        let pu = self.format.pu_of(chunk);
        let worn_out = before.resets >= self.profile.chip.endurance;
        let fails = worn_out || self.chance.draw(Draw::EraseFail, pu, before.resets);
        let state = if fails { ChunkState::Offline } else { ChunkState::Free };
        let resets = before.resets + 1;
        if let Err(error) = self.backing.record(chunk, state, 0, resets, false) {
            self.store_error = Some(error);
            return outcome.fail(index, Status::WriteFault);
        }
        self.chunks.set(chunk, state, 0);
        *self.chunks.resets_mut(chunk) = resets;
        let (begins, done) = self.schedule.erase(self.now, pu);
        outcome.at = outcome.at.max(done);
        self.statistics.chunk_resets += 1;
        if fails {
            self.statistics.erase_failures += 1;
            self.log.push(ppa, NotifiedState::Unrecoverable, NotifiedScope::Chunk);
            outcome.fail(index, Status::OfflineChunk);
        }
        let threshold = self.geometry.wear_index_threshold;
        if threshold > 0 && self.wear_index(resets) > threshold && self.wear_index(before.resets) <= threshold {
            self.log.push(ppa, NotifiedState::WearIndexHigh, NotifiedScope::Chunk);
        }
        let format = self.format;
        self.silent.end_waiting(Some(chunk), |ppa| format.chunk_of(ppa));
        if before.flags & SILENT != 0 && !fails && self.loses_erase(chunk, before.write_pointer) {
            // Nothing is erased, and nobody knows.
            return;
        }
        if let Some(earlier) = self.erases.iter_mut().find(|erase| erase.chunk == chunk && !erase.overwritten) {
            // A free chunk is reset once more while its first erase is under way: one longer erase.
            earlier.done = done;
        } else if done <= self.now {
            self.forget_contents(chunk);
        } else {
            // What it held stays until the die has begun: a power cut before that finds it as it was.
            *self.chunks.flags_mut(chunk) |= ERASING;
            self.erases.push(Erase { chunk, begins, done, before, overwritten: false });
        }
    }

    /// Lets go of what erased chunks held, where the die is done.
    pub(super) fn forget_finished_erases(&mut self) {
        let now = self.now;
        self.forget_erases_finished_by(|_| now);
    }

    /// The same where the die of each chunk has come to a moment of its own.
    pub(super) fn forget_erases_finished_by(&mut self, until: impl Fn(ChunkId) -> Time) {
        let mut index = 0;
        while index < self.erases.len() {
            if self.erases[index].done > until(self.erases[index].chunk) {
                index += 1;
                continue;
            }
            let erase = self.erases.remove(index);
            if !erase.overwritten {
                self.forget_contents(erase.chunk);
            }
        }
    }

    /// `chunk` is used again although its die may still be erasing it, as a die that works in order allows.
    pub(super) fn overtake_erase(&mut self, chunk: ChunkId) {
        if self.chunks.get(chunk).flags & ERASING != 0 {
            self.forget_contents(chunk);
            for erase in self.erases.iter_mut().filter(|erase| erase.chunk == chunk) {
                erase.overwritten = true;
            }
        }
    }

    /// Lets go of what `chunk` held.
    pub(super) fn forget_contents(&mut self, chunk: ChunkId) {
        self.backing.discard(chunk);
        self.unmark(chunk, 0);
        self.silent.forget(chunk);
        *self.chunks.flags_mut(chunk) &= !(MARKED | ERASING);
    }
}
