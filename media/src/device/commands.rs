//! What each command does: the rules of the contract, block by block.

use super::chance::Draw;
use super::chunks::{Chunk, ERASING, FAILURE_CLOSES, LOST_BLOCKS, MARKED, PROGRAM_FAILS, WEAK_BLOCKS};
use super::{EmulatedDevice, Erase, Mark};
use crate::contract::{Blocks, ChunkState, Command, NotifiedScope, NotifiedState, SCALAR_BLOCKS_MAX, Status};
use crate::store::{Fetched, StoreError};
use openftl_core::{ChunkId, Frame, Frames, PayloadMut, Ppa, Time, VECTOR_BLOCKS_MAX};

/// How a command ends, in the making.
pub(super) struct Outcome {
    pub status: Status,
    pub failed: u64,
    pub at: Time,
}

impl Outcome {
    fn good(at: Time) -> Outcome {
        Outcome { status: Status::Success, failed: 0, at }
    }

    fn invalid(at: Time) -> Outcome {
        Outcome { status: Status::InvalidField, failed: 0, at }
    }

    /// Block number `index` ended with `status`. A failure outweighs a block that is good with high ECC.
    fn fail(&mut self, index: usize, status: Status) {
        match (self.status, status) {
            (Status::Success, _) => self.status = status,
            (Status::HighEcc, worse) if worse != Status::HighEcc => {
                (self.status, self.failed) = (worse, 0);
            }
            (Status::HighEcc, _) => {}
            (_, Status::HighEcc) => return,
            _ => {}
        }
        self.failed |= 1 << index.min(63);
    }

    fn fail_all(&mut self, blocks: std::ops::Range<usize>, status: Status) {
        for index in blocks {
            self.fail(index, status);
        }
    }
}

/// Where the data of a write come from.
#[derive(Clone, Copy)]
enum Source<'a> {
    Frames(&'a Frames, &'a [Frame]),
    Media(&'a [Ppa]),
}

/// Consecutive blocks on one page, sensed together.
struct Page {
    chunk: ChunkId,
    page: u32,
    blocks: u32,
}

impl EmulatedDevice {
    #[inline]
    pub(super) fn carry_out(&mut self, frames: &mut Frames, command: Command<'_>) -> Outcome {
        match command {
            Command::Read { blocks, frames: list } => self.read(frames, blocks, list),
            Command::Write { blocks, frames: list, fua } => self.write(frames, blocks, list, fua),
            Command::Reset { blocks } => self.reset(blocks),
            Command::Copy { from, to, fua } => self.copy(from, to, fua),
            Command::Flush => self.flush(),
        }
    }

    /// Whether a read or write names as many blocks and frames as it may.
    #[inline]
    fn is_well_formed(&self, frames: &Frames, blocks: Blocks<'_>, list: &[Frame]) -> bool {
        let max = match blocks {
            Blocks::Vector(_) => VECTOR_BLOCKS_MAX,
            Blocks::Scalar { .. } => SCALAR_BLOCKS_MAX as usize,
        };
        let len = blocks.len();
        (1..=max).contains(&len) && list.len() == len && frames.oob(list[0]).len() == self.geometry.oob_bytes as usize
    }

    #[inline]
    fn read(&mut self, frames: &mut Frames, blocks: Blocks<'_>, list: &[Frame]) -> Outcome {
        let mut outcome = Outcome::good(self.now);
        if !self.is_well_formed(frames, blocks, list) {
            return Outcome::invalid(self.now);
        }
        let mut page: Option<Page> = None;
        let mut fetched = 0;
        for (index, frame) in list.iter().enumerate() {
            let ppa = blocks.get(index);
            if index >= fetched && self.backing.fetches_runs() {
                fetched = index + self.fetch_run(blocks, index);
            }
            match self.chunks.readable(ppa) {
                Ok((chunk, block, &entry)) => {
                    self.statistics.blocks_read += 1;
                    let status = self.fetch(frames, *frame, ppa, chunk, block, &entry);
                    if status != Status::Success {
                        outcome.fail(index, status);
                    }
                    if !self.schedule.is_instant() {
                        outcome.at = outcome.at.max(self.time_of_read(&mut page, chunk, block, entry.programmed_at));
                    }
                }
                Err(Status::DeallocatedOrUnwritten) if !self.dulbe => {
                    let (payload, oob) = frames.both_mut(*frame);
                    match payload {
                        PayloadMut::Bytes(bytes) => bytes.fill(0),
                        PayloadMut::Stamp(stamp) => *stamp = openftl_core::Stamp::ZERO,
                    }
                    oob.fill(0xFF);
                }
                Err(status) => outcome.fail(index, status),
            }
        }
        self.backing.forget_fetched();
        if let Some(page) = page {
            outcome.at = outcome.at.max(self.sense(&page));
        }
        if matches!(blocks, Blocks::Scalar { .. }) {
            outcome.failed = u64::from(outcome.failed != 0);
        }
        outcome
    }

    /// Has the store fetch at once what is consecutive from block `index` of the command on; how many blocks that are.
    fn fetch_run(&mut self, blocks: Blocks<'_>, index: usize) -> usize {
        let first = blocks.get(index);
        let Ok((chunk, block, entry)) = self.chunks.readable(first) else { return 1 };
        let readable = (entry.readable - block) as usize;
        let follows = |ahead: &usize| blocks.get(index + ahead).0 == first.0 + *ahead as u64;
        let len = 1 + (1..(blocks.len() - index).min(readable)).take_while(follows).count();
        if len > 1 {
            self.backing.fetch(chunk, block, len as u32);
        }
        len
    }

    /// Brings one readable block from the store.
    #[inline]
    fn fetch(
        &mut self,
        frames: &mut Frames,
        frame: Frame,
        ppa: Ppa,
        chunk: ChunkId,
        block: u32,
        entry: &Chunk,
    ) -> Status {
        let condition = if entry.flags & MARKED != 0 || self.chance.reads_fail {
            self.condition(ppa, chunk, entry)
        } else {
            Status::Success
        };
        if condition == Status::UnrecoveredRead {
            return condition;
        }
        match self.backing.read(chunk, block, frames, frame) {
            Fetched::Good => condition,
            Fetched::Lost => {
                self.statistics.read_failures += 1;
                Status::UnrecoveredRead
            }
        }
    }

    /// What is the matter with a block that can be read, by its mark or by chance.
    #[cold]
    fn condition(&mut self, ppa: Ppa, chunk: ChunkId, entry: &Chunk) -> Status {
        let pu = self.format.pu_of(chunk);
        let mut mark = self.marks.get(&ppa).copied();
        if mark.is_none() && self.chance.reads_fail {
            if self.chance.draw(Draw::ReadFail, pu, entry.resets) {
                // A drive file that cannot note it finds the block readable again when it is opened: no harm done.
                let (state, write_pointer) = (entry.state, entry.write_pointer);
                let noted = self
                    .mark_lost(chunk, self.format.block_of(ppa))
                    .and_then(|()| self.settle(chunk, state, write_pointer));
                if let Err(error) = noted {
                    self.store_error = Some(error);
                }
                mark = Some(Mark::Lost);
            } else if self.chance.draw(Draw::HighEcc, pu, entry.resets) {
                mark = Some(Mark::Weak);
            }
        }
        match mark {
            None => Status::Success,
            Some(Mark::Weak) => {
                self.statistics.high_ecc += 1;
                self.log.push(ppa, NotifiedState::ErrorRateHigh, NotifiedScope::Blocks(1));
                Status::HighEcc
            }
            Some(Mark::Lost) => {
                self.statistics.read_failures += 1;
                self.log.push(ppa, NotifiedState::Unrecoverable, NotifiedScope::Blocks(1));
                Status::UnrecoveredRead
            }
        }
    }

    /// Adds one block to the page that is being gathered; gives the time at which the page before it has been read.
    #[inline]
    fn time_of_read(&mut self, gathered: &mut Option<Page>, chunk: ChunkId, block: u32, programmed_at: Time) -> Time {
        if programmed_at > self.now && self.schedule.is_cached(self.now, self.format.pu_of(chunk), chunk, block) {
            return self.schedule.cached(self.now, 1);
        }
        let page = self.schedule.page_of(block);
        match gathered {
            Some(same) if same.chunk == chunk && same.page == page => {
                same.blocks += 1;
                self.now
            }
            _ => match gathered.replace(Page { chunk, page, blocks: 1 }) {
                Some(before) => self.sense(&before),
                None => self.now,
            },
        }
    }

    #[inline]
    fn sense(&mut self, page: &Page) -> Time {
        self.statistics.senses += 1;
        self.schedule.sense(self.now, self.format.pu_of(page.chunk), page.page, page.blocks)
    }

    #[inline]
    fn write(&mut self, frames: &Frames, blocks: Blocks<'_>, list: &[Frame], fua: bool) -> Outcome {
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
                    self.write_run(&mut outcome, start, ppas[start], len, source, self.now, fua);
                    start += len;
                }
            }
            Blocks::Scalar { first, count } => {
                let source = Source::Frames(frames, list);
                self.write_run(&mut outcome, 0, first, count as usize, source, self.now, fua);
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
    fn write_run(
        &mut self,
        outcome: &mut Outcome,
        index: usize,
        ppa: Ppa,
        len: usize,
        source: Source<'_>,
        ready: Time,
        fua: bool,
    ) {
        let (chunk, first) = match self.chunks.writable(ppa, len as u32) {
            Ok(place) => place,
            Err(status) => return outcome.fail_all(index..index + len, status),
        };
        let flags = self.chunks.get(chunk).flags;
        if flags & ERASING != 0 {
            self.overtake_erase(chunk);
        }
        if flags & PROGRAM_FAILS != 0 || self.chance.programs_fail {
            return self.write_units(outcome, index, chunk, first, len, source, ready, fua);
        }
        let end = first + len as u32;
        let kept = self.keep(chunk, first, source).and_then(|()| self.settle(chunk, self.chunks.state_at(end), end));
        if let Err(error) = kept {
            self.store_error = Some(error);
            return outcome.fail_all(index..index + len, Status::WriteFault);
        }
        let unit = self.geometry.ws_min;
        let mut ready = ready;
        if self.schedule.is_instant() {
            self.count_programs(len as u32);
            return;
        }
        for block in (first..end).step_by(unit as usize) {
            ready = self.program(outcome, chunk, block, ready, fua, false);
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
        ready: Time,
        fua: bool,
    ) {
        let unit = self.geometry.ws_min as usize;
        let pu = self.format.pu_of(chunk);
        let mut ready = ready;
        for start in (0..len).step_by(unit) {
            let block = first + start as u32;
            let blocks = index + start..index + start + unit;
            let entry = *self.chunks.get(chunk);
            let injected = entry.flags & PROGRAM_FAILS != 0;
            *self.chunks.flags_mut(chunk) &= !(PROGRAM_FAILS | FAILURE_CLOSES);
            let fails = injected || self.chance.draw(Draw::ProgramFail, pu, entry.resets);
            let end = block + unit as u32;
            if !fails {
                let part = source.part(start, unit);
                let kept =
                    self.keep(chunk, block, part).and_then(|()| self.settle(chunk, self.chunks.state_at(end), end));
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

    /// Moves a chunk on, in the store and then here: a store that says no leaves everything as it was.
    #[inline]
    pub(super) fn settle(&mut self, chunk: ChunkId, state: ChunkState, write_pointer: u32) -> Result<(), StoreError> {
        let entry = self.chunks.get(chunk);
        self.backing.record(chunk, state, write_pointer, entry.resets, entry.flags & LOST_BLOCKS != 0)?;
        self.chunks.set(chunk, state, write_pointer);
        Ok(())
    }

    /// Gives the bits to the store.
    #[inline]
    fn keep(&mut self, chunk: ChunkId, first: u32, source: Source<'_>) -> Result<(), StoreError> {
        match source {
            Source::Frames(frames, list) => self.backing.write(chunk, first, frames, list),
            Source::Media(ppas) => {
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

    fn copy(&mut self, from: &[Ppa], to: &[Ppa], fua: bool) -> Outcome {
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
            // A program operation needs all its blocks: one that cannot be read keeps its whole run from being copied.
            match self.read_for_copy(sources) {
                Err((index, status)) => {
                    outcome.fail(start + index, status);
                    outcome.fail_all(start..start + len, status);
                }
                Ok(ready) => {
                    let copied = self.statistics.blocks_programmed;
                    self.write_run(&mut outcome, start, to[start], len, Source::Media(sources), ready, fua);
                    self.statistics.blocks_copied += self.statistics.blocks_programmed - copied;
                }
            }
            start += len;
        }
        outcome
    }

    /// Reads the sources of a copy into the controller: when they are all there.
    fn read_for_copy(&mut self, sources: &[Ppa]) -> Result<Time, (usize, Status)> {
        let mut ready = self.now;
        let mut page = None;
        for (index, ppa) in sources.iter().enumerate() {
            let (chunk, block, &entry) = self.chunks.readable(*ppa).map_err(|status| (index, status))?;
            self.statistics.blocks_read += 1;
            if (entry.flags & MARKED != 0 || self.chance.reads_fail)
                && self.condition(*ppa, chunk, &entry) == Status::UnrecoveredRead
            {
                return Err((index, Status::UnrecoveredRead));
            }
            if !self.schedule.is_instant() {
                ready = ready.max(self.time_of_read(&mut page, chunk, block, entry.programmed_at));
            }
        }
        Ok(page.map_or(ready, |page| ready.max(self.sense(&page))))
    }

    fn reset(&mut self, blocks: Blocks<'_>) -> Outcome {
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
        let mut index = 0;
        while index < self.erases.len() {
            if self.erases[index].done > self.now {
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
    fn overtake_erase(&mut self, chunk: ChunkId) {
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
        *self.chunks.flags_mut(chunk) &= !(MARKED | ERASING);
    }

    /// What is the matter with blocks of `chunk`.
    pub(super) fn marks_in(
        &self,
        chunk: ChunkId,
        blocks: std::ops::Range<u32>,
    ) -> impl Iterator<Item = (Ppa, Mark)> + '_ {
        let start = self.format.ppa(chunk, 0).0;
        let ppas = Ppa(start + u64::from(blocks.start))..Ppa(start + u64::from(blocks.end));
        self.marks.range(ppas).map(|(ppa, mark)| (*ppa, *mark))
    }

    /// Forgets what was the matter with blocks of `chunk` from `first` on.
    pub(super) fn unmark(&mut self, chunk: ChunkId, first: u32) {
        if self.chunks.get(chunk).flags & MARKED != 0 {
            let marked: Vec<Ppa> =
                self.marks_in(chunk, first..self.geometry.blocks_per_chunk).map(|(ppa, _)| ppa).collect();
            for ppa in marked {
                self.marks.remove(&ppa);
            }
        }
    }

    fn flush(&mut self) -> Outcome {
        if let Err(error) = self.backing.sync() {
            self.store_error = Some(error);
            return Outcome { status: Status::WriteFault, failed: 0, at: self.now };
        }
        Outcome::good(if self.schedule.is_instant() { self.now } else { self.now.max(self.schedule.settled_at()) })
    }

    /// Notes that a block is lost, in the store and then here.
    pub(super) fn mark_lost(&mut self, chunk: ChunkId, block: u32) -> Result<(), StoreError> {
        let is_first = self.chunks.get(chunk).flags & LOST_BLOCKS == 0;
        self.backing.mark_lost(chunk, block, is_first)?;
        self.mark(chunk, block, Mark::Lost);
        Ok(())
    }

    /// Notes what is the matter with a block.
    pub(super) fn mark(&mut self, chunk: ChunkId, block: u32, mark: Mark) {
        self.marks.insert(self.format.ppa(chunk, block), mark);
        *self.chunks.flags_mut(chunk) |= if mark == Mark::Lost { LOST_BLOCKS } else { WEAK_BLOCKS };
    }
}

impl<'a> Source<'a> {
    fn part(self, start: usize, len: usize) -> Source<'a> {
        match self {
            Source::Frames(frames, list) => Source::Frames(frames, &list[start..start + len]),
            Source::Media(ppas) => Source::Media(&ppas[start..start + len]),
        }
    }
}
