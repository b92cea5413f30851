//! Reading: what may be read, whether it is good, and which pages have to be sensed for it.

use super::chance::Draw;
use super::chunks::{Chunk, MARKED};
use super::commands::Outcome;
use super::{EmulatedDevice, Mark};
use crate::contract::{Blocks, NotifiedScope, NotifiedState, Status};
use crate::store::Fetched;
use openftl_core::{ChunkId, Frame, Frames, Ppa, Time};

/// Consecutive blocks on one page, sensed together.
pub(super) struct Page {
    pub chunk: ChunkId,
    pub page: u32,
    pub blocks: u32,
}

impl EmulatedDevice {
    #[inline]
    pub(super) fn read(&mut self, frames: &mut Frames, blocks: Blocks<'_>, list: &[Frame]) -> Outcome {
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
                    frames.zero(*frame);
                    frames.oob_mut(*frame).fill(0xFF);
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
    pub(super) fn condition(&mut self, ppa: Ppa, chunk: ChunkId, entry: &Chunk) -> Status {
        let pu = self.format.pu_of(chunk);
        let mut mark = self.marks.get(&ppa).copied();
        if mark.is_none() && self.chance.reads_fail {
            if self.chance.draw(Draw::ReadFail, pu, entry.resets) {
                self.lose(ppa, chunk, entry);
                mark = Some(Mark::Lost);
            } else if self.chance.draw(Draw::ReadRetry, pu, entry.resets) {
                self.mark(chunk, self.format.block_of(ppa), Mark::Failing { times: 1 });
                mark = Some(Mark::Failing { times: 1 });
            } else if self.chance.draw(Draw::HighEcc, pu, entry.resets) {
                mark = Some(Mark::Weak);
            }
        }
        if mark == Some(Mark::Fading { reads: 0 }) {
            self.lose(ppa, chunk, entry);
            mark = Some(Mark::Lost);
        }
        match mark {
            None => Status::Success,
            Some(Mark::Fading { reads }) => {
                self.marks.insert(ppa, Mark::Fading { reads: reads.saturating_sub(1) });
                Status::Success
            }
            Some(Mark::Failing { times: 0 }) => Status::Success,
            Some(Mark::Failing { times }) => {
                self.marks.insert(ppa, Mark::Failing { times: times - 1 });
                self.statistics.read_failures += 1;
                self.log.push(ppa, NotifiedState::ErrorRateHigh, NotifiedScope::Blocks(1));
                Status::UnrecoveredRead
            }
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

    /// A block turns out to be lost.
    fn lose(&mut self, ppa: Ppa, chunk: ChunkId, entry: &Chunk) {
        // A drive file that cannot note it finds the block readable again when it is opened: no harm done.
        let noted = self
            .mark_lost(chunk, self.format.block_of(ppa))
            .and_then(|()| self.settle(chunk, entry.state, entry.write_pointer));
        if let Err(error) = noted {
            self.store_error = Some(error);
        }
    }

    /// Adds one block to the page that is being gathered; gives the time at which the page before it has been read.
    #[inline]
    pub(super) fn time_of_read(
        &mut self,
        gathered: &mut Option<Page>,
        chunk: ChunkId,
        block: u32,
        programmed_at: Time,
    ) -> Time {
        if programmed_at > self.now && self.is_cached(chunk, block) {
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

    /// Whether a block is still in the cache.
    #[inline]
    pub(super) fn is_cached(&self, chunk: ChunkId, block: u32) -> bool {
        self.schedule.is_cached(self.now, self.format.pu_of(chunk), chunk, block)
    }

    #[inline]
    pub(super) fn sense(&mut self, page: &Page) -> Time {
        self.statistics.senses += 1;
        self.schedule.sense(self.now, self.format.pu_of(page.chunk), page.page, page.blocks)
    }
}
