//! What a command is and how it ends; each kind has a file of its own.

use super::chunks::{LOST_BLOCKS, MARKED, WEAK_BLOCKS};
use super::{EmulatedDevice, Mark};
use crate::contract::{Blocks, ChunkState, Command, SCALAR_BLOCKS_MAX, Status};
use crate::store::StoreError;
use openftl_core::{ChunkId, Frame, Frames, Ppa, Time, VECTOR_BLOCKS_MAX};

/// How a command ends, in the making.
pub(super) struct Outcome {
    pub status: Status,
    pub failed: u64,
    pub at: Time,
}

impl Outcome {
    pub fn good(at: Time) -> Outcome {
        Outcome { status: Status::Success, failed: 0, at }
    }

    pub fn invalid(at: Time) -> Outcome {
        Outcome { status: Status::InvalidField, failed: 0, at }
    }

    /// Block number `index` ended with `status`. A failure outweighs a block that is good with high ECC.
    pub fn fail(&mut self, index: usize, status: Status) {
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

    pub fn fail_all(&mut self, blocks: std::ops::Range<usize>, status: Status) {
        for index in blocks {
            self.fail(index, status);
        }
    }
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
    pub(super) fn is_well_formed(&self, frames: &Frames, blocks: Blocks<'_>, list: &[Frame]) -> bool {
        let max = match blocks {
            Blocks::Vector(_) => VECTOR_BLOCKS_MAX,
            Blocks::Scalar { .. } => SCALAR_BLOCKS_MAX as usize,
        };
        let len = blocks.len();
        (1..=max).contains(&len) && list.len() == len && frames.oob(list[0]).len() == self.geometry.oob_bytes as usize
    }

    /// Moves a chunk on, in the store and then here: a store that says no leaves everything as it was.
    #[inline]
    pub(super) fn settle(&mut self, chunk: ChunkId, state: ChunkState, write_pointer: u32) -> Result<(), StoreError> {
        let entry = self.chunks.get(chunk);
        self.backing.record(chunk, state, write_pointer, entry.resets, entry.flags & LOST_BLOCKS != 0)?;
        self.chunks.set(chunk, state, write_pointer);
        Ok(())
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

    /// What the file behind the device promises comes on top: see [`super::commits`].
    fn flush(&mut self) -> Outcome {
        Outcome::good(if self.schedule.is_instant() { self.now } else { self.now.max(self.schedule.settled_at()) })
    }

    /// Notes that a block is lost, in the store and then here.
    pub(super) fn mark_lost(&mut self, chunk: ChunkId, block: u32) -> Result<(), StoreError> {
        let is_first = self.chunks.get(chunk).flags & LOST_BLOCKS == 0;
        self.backing.mark_lost(chunk, block, is_first)?;
        self.mark(chunk, block, Mark::Lost);
        Ok(())
    }

    /// Notes what is the matter with a block. What is lost stays lost.
    pub(super) fn mark(&mut self, chunk: ChunkId, block: u32, mark: Mark) {
        let noted = self.marks.entry(self.format.ppa(chunk, block)).or_insert(mark);
        if *noted != Mark::Lost {
            *noted = mark;
        }
        *self.chunks.flags_mut(chunk) |= if mark == Mark::Lost { LOST_BLOCKS } else { WEAK_BLOCKS };
    }
}
