//! Writing, from frames or from other blocks of the device: run by run, unit by unit.

use super::EmulatedDevice;
use super::chance::Draw;
use super::chunks::{ERASING, FAILURE_CLOSES, MARKED, PROGRAM_FAILS, SILENT};
use super::commands::Outcome;
use super::read::Page;
use crate::contract::{Blocks, ChunkState, Status};
use crate::store::StoreError;
use openftl_core::{ChunkId, Frame, Frames, Ppa, Time, VECTOR_BLOCKS_MAX};

/// Where the data of a write come from.
#[derive(Clone, Copy)]
pub(super) enum Source<'a> {
    Frames(&'a Frames, &'a [Frame]),
    /// Other blocks of the device, and when each of them is in the controller.
    Media(&'a [Ppa], &'a [Time]),
}

impl<'a> Source<'a> {
    pub(super) fn part(self, start: usize, len: usize) -> Source<'a> {
        match self {
            Source::Frames(frames, list) => Source::Frames(frames, &list[start..start + len]),
            Source::Media(ppas, times) => Source::Media(&ppas[start..start + len], &times[start..start + len]),
        }
    }

    /// How many blocks they are.
    pub(super) fn len(self) -> usize {
        match self {
            Source::Frames(_, list) => list.len(),
            Source::Media(ppas, _) => ppas.len(),
        }
    }

    /// When the whole of a part is at hand that was asked for at `now`.
    #[inline]
    fn ready(self, now: Time, start: usize, len: usize) -> Time {
        match self {
            Source::Frames(..) => now,
            Source::Media(_, times) => times[start..start + len].iter().copied().fold(now, Time::max),
        }
    }
}

impl EmulatedDevice {
    #[inline]
    pub(super) fn write(&mut self, frames: &Frames, blocks: Blocks<'_>, list: &[Frame], fua: bool) -> Outcome {
        let mut outcome = Outcome::good(self.now);
        if !self.is_well_formed(frames, blocks, list) {
            return Outcome::invalid(self.now);
        }
        match blocks {
            Blocks::Vector(ppas) => {
                let mut start = 0;
                while start < ppas.len() {
                    let len = self.run_length(&ppas[start..]);
                    let source = Source::Frames(frames, &list[start..start + len]);
                    self.write_run(&mut outcome, start, ppas[start], len, source, fua);
                    start += len;
                }
            }
            Blocks::Scalar { first, count } => {
                let source = Source::Frames(frames, list);
                self.write_run(&mut outcome, 0, first, count as usize, source, fua);
                outcome.failed = u64::from(outcome.failed != 0);
            }
        }
        outcome
    }

    /// How many addresses from the first on follow each other inside one chunk.
    #[inline]
    fn run_length(&self, ppas: &[Ppa]) -> usize {
        let first = ppas[0];
        let end_of_chunk = (1 << self.format.block_bits) - u64::from(self.format.block_of(first));
        let follows = |(index, ppa): (usize, &Ppa)| ppa.0 == first.0 + index as u64 && (index as u64) < end_of_chunk;
        ppas.iter().enumerate().take_while(|entry| follows(*entry)).count()
    }

    /// Writes consecutive blocks of one chunk, the first of which is block number `index` of the command.
    fn write_run(&mut self, outcome: &mut Outcome, index: usize, ppa: Ppa, len: usize, source: Source<'_>, fua: bool) {
        let (chunk, first) = match self.chunks.writable(ppa, len as u32) {
            Ok(place) => place,
            Err(status) => return outcome.fail_all(index..index + len, status),
        };
        if let Some(failure) = self.next_program_fails.take() {
            self.inject_program_failure(chunk, failure);
        }
        let flags = self.chunks.get(chunk).flags;
        if flags & ERASING != 0 {
            self.overtake_erase(chunk);
        }
        if flags & (PROGRAM_FAILS | SILENT) != 0 || self.chance.programs_fail {
            return self.write_units(outcome, index, chunk, first, len, source, fua);
        }
        let end = first + len as u32;
        let kept = self.keep(chunk, first, source).and_then(|()| self.settle(chunk, self.chunks.state_at(end), end));
        if let Err(error) = kept {
            self.store_error = Some(error);
            return outcome.fail_all(index..index + len, Status::WriteFault);
        }
        let unit = self.geometry.ws_min;
        let mut ready = self.now;
        if self.schedule.is_instant() {
            self.count_programs(len as u32);
            return;
        }
        for block in (first..end).step_by(unit as usize) {
            let at_hand = source.ready(self.now, (block - first) as usize, unit as usize);
            ready = self.program(outcome, chunk, block, ready.max(at_hand), fua, false);
        }
    }

    /// Writes one program operation after the other, each of which may fail.
    #[cold]
    fn write_units(
        &mut self,
        outcome: &mut Outcome,
        index: usize,
        chunk: ChunkId,
        first: u32,
        len: usize,
        source: Source<'_>,
        fua: bool,
    ) {
        let unit = self.geometry.ws_min as usize;
        let pu = self.format.pu_of(chunk);
        let mut ready = self.now;
        for start in (0..len).step_by(unit) {
            let block = first + start as u32;
            let blocks = index + start..index + start + unit;
            let entry = *self.chunks.get(chunk);
            let injected = entry.flags & PROGRAM_FAILS != 0;
            *self.chunks.flags_mut(chunk) &= !(PROGRAM_FAILS | FAILURE_CLOSES);
            let fails = injected || self.chance.draw(Draw::ProgramFail, pu, entry.resets);
            let end = block + unit as u32;
            ready = source.ready(ready, start, unit);
            if !fails {
                let part = source.part(start, unit);
                let kept = match entry.flags & SILENT {
                    0 => self.keep(chunk, block, part),
                    _ => self.keep_or_lose(chunk, block, part),
                };
                let kept = kept.and_then(|()| self.settle(chunk, self.chunks.state_at(end), end));
                if let Err(error) = kept {
                    self.store_error = Some(error);
                    return outcome.fail_all(blocks.start..index + len, Status::WriteFault);
                }
                ready = self.program(outcome, chunk, block, ready, fua, false);
                continue;
            }
            self.statistics.program_failures += 1;
            self.program(outcome, chunk, block, ready, fua, true);
            // Either the word line is bad and the next one may do, or the chunk cannot be programmed any more.
            let closes = if injected { entry.flags & FAILURE_CLOSES != 0 } else { self.chance.coin(pu) };
            let (settled, status) = if closes {
                (self.settle(chunk, ChunkState::Closed, block), Status::WriteFailedChunkClosedEarly)
            } else {
                (self.lose_unit(chunk, block, end), Status::WriteFailedWriteNextUnit)
            };
            if let Err(error) = settled {
                self.store_error = Some(error);
                return outcome.fail_all(blocks.start..index + len, Status::WriteFault);
            }
            if closes {
                return outcome.fail_all(blocks.start..index + len, status);
            }
            outcome.fail_all(blocks, status);
        }
    }

    /// A unit holds nothing; the write pointer moves on behind it.
    fn lose_unit(&mut self, chunk: ChunkId, first: u32, end: u32) -> Result<(), StoreError> {
        for block in first..end {
            self.mark_lost(chunk, block)?;
        }
        self.settle(chunk, self.chunks.state_at(end), end)
    }

    /// Gives the bits to the store.
    #[inline]
    pub(super) fn keep(&mut self, chunk: ChunkId, first: u32, source: Source<'_>) -> Result<(), StoreError> {
        match source {
            Source::Frames(frames, list) => self.backing.write(chunk, first, frames, list),
            Source::Media(ppas, _) => {
                for (block, from) in (first..).zip(ppas) {
                    self.backing.copy((self.format.chunk_of(*from), self.format.block_of(*from)), (chunk, block))?;
                }
                Ok(())
            }
        }
    }

    /// Lays one program operation out in time; gives the time at which the next one may enter the cache.
    #[inline]
    fn program(
        &mut self,
        outcome: &mut Outcome,
        chunk: ChunkId,
        first: u32,
        ready: Time,
        fua: bool,
        fails: bool,
    ) -> Time {
        let unit = self.geometry.ws_min;
        self.count_programs(unit);
        let pu = self.format.pu_of(chunk);
        let (acknowledged, done) = self.schedule.program(self.now, ready, pu, chunk, first, unit, fua);
        // A failure is known when the die has tried.
        outcome.at = outcome.at.max(if fails { done } else { acknowledged });
        *self.chunks.programmed_at_mut(chunk) = done;
        acknowledged.min(done)
    }

    #[inline]
    fn count_programs(&mut self, blocks: u32) {
        self.statistics.blocks_programmed += u64::from(blocks);
        self.statistics.programs += u64::from(blocks / self.geometry.ws_min);
    }

    pub(super) fn copy(&mut self, from: &[Ppa], to: &[Ppa], fua: bool) -> Outcome {
        let mut outcome = Outcome::good(self.now);
        let is_well_formed =
            self.geometry.vector_copy && (1..=VECTOR_BLOCKS_MAX).contains(&to.len()) && from.len() == to.len();
        if !is_well_formed {
            return Outcome::invalid(self.now);
        }
        let mut start = 0;
        while start < to.len() {
            let len = self.run_length(&to[start..]);
            let sources = &from[start..start + len];
            // One block that cannot be read keeps its whole run from being copied.
            match self.read_for_copy(sources) {
                Err((index, status)) => {
                    outcome.fail(start + index, status);
                    outcome.fail_all(start..start + len, status);
                }
                Ok(times) => {
                    let copied = self.statistics.blocks_programmed;
                    let source = Source::Media(sources, &times[..len]);
                    self.write_run(&mut outcome, start, to[start], len, source, fua);
                    self.statistics.blocks_copied += self.statistics.blocks_programmed - copied;
                }
            }
            start += len;
        }
        outcome
    }

    /// Reads the sources of a copy into the controller: when each of them is there. Blocks of one page that follow each other
    /// are sensed at once.
    fn read_for_copy(&mut self, sources: &[Ppa]) -> Result<[Time; VECTOR_BLOCKS_MAX], (usize, Status)> {
        for (index, ppa) in sources.iter().enumerate() {
            let (chunk, _, &entry) = self.chunks.readable(*ppa).map_err(|status| (index, status))?;
            if (entry.flags & MARKED != 0 || self.chance.reads_fail)
                && self.condition(*ppa, chunk, &entry) == Status::UnrecoveredRead
            {
                return Err((index, Status::UnrecoveredRead));
            }
        }
        self.statistics.blocks_read += sources.len() as u64;
        let mut times = [self.now; VECTOR_BLOCKS_MAX];
        if self.schedule.is_instant() {
            return Ok(times);
        }
        let mut start = 0;
        while start < sources.len() {
            let page_of = |ppa: &Ppa| (self.format.chunk_of(*ppa), self.schedule.page_of(self.format.block_of(*ppa)));
            let (chunk, page) = page_of(&sources[start]);
            let len = sources[start..].iter().take_while(|ppa| page_of(ppa) == (chunk, page)).count();
            let block = self.format.block_of(sources[start]);
            let time = if self.is_cached(chunk, block) {
                self.schedule.cached(self.now, len as u32)
            } else {
                self.sense(&Page { chunk, page, blocks: len as u32 })
            };
            times[start..start + len].fill(time);
            start += len;
        }
        Ok(times)
    }
}
