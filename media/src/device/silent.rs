//! Silent faults: what a medium does wrong and reports as done. Tests and the simulator ask for them, one chunk at a time.
//!
//! | fault | the device says | the medium holds |
//! |---|---|---|
//! | lost erase | the chunk is free | what it held before, until that is programmed over |
//! | lost program | the unit is written | an erased page; after a lost erase, the page of the chunk's life before |
//! | misdirected program | the unit is written | that there, and the unit in another place, over what was there |
//!
//! A fault waits for the next such operation on its chunk. A reset of the chunk or a power cut ends the wait for a program.
//! Of programs that a power cut undid nothing is ever seen again: where they went over pages that were not erased, those are erased
//! from then on.

use super::EmulatedDevice;
use super::chunks::SILENT;
use super::write::Source;
use crate::store::{Fetched, StoreError};
use openftl_core::{ChunkId, FrameForm, Frames, OOB_BYTES_MIN, Payload, Ppa};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// What goes wrong without a word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SilentFault {
    /// The next erase of the chunk does nothing.
    LostErase,
    /// The next program operation on the chunk does nothing.
    LostProgram,
    /// The next program operation on the chunk is carried out on the blocks from here on, as far as they are written.
    Misdirected(Ppa),
}

/// A block that is not in its place because of a silent fault: it was lost there, or another is over it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Missing {
    /// Where it should be.
    pub place: Ppa,
    /// The first of its out-of-band bytes.
    pub oob: [u8; OOB_BYTES_MIN],
    /// The first eight bytes of its payload, or the stamp.
    pub head: u64,
}

/// What waits, and what has come of it.
#[derive(Clone, Default)]
pub(super) struct Silent {
    lost_erases: BTreeSet<ChunkId>,
    lost_programs: BTreeSet<ChunkId>,
    misdirected: BTreeMap<ChunkId, Ppa>,
    /// Chunks that were not erased, and how many of their blocks were written before.
    not_erased: BTreeMap<ChunkId, u32>,
    missing: Vec<Missing>,
}

impl Silent {
    /// The contents of `chunk` are gone.
    pub fn forget(&mut self, chunk: ChunkId) {
        self.not_erased.remove(&chunk);
    }

    /// No program is waited for any more, on `chunk` or to it; `None`: on none.
    pub fn end_waiting(&mut self, chunk: Option<ChunkId>, chunk_of: impl Fn(Ppa) -> ChunkId) {
        let is_meant = |other: ChunkId| chunk.is_none_or(|chunk| chunk == other);
        self.lost_programs.retain(|other| !is_meant(*other));
        self.misdirected.retain(|other, to| !is_meant(*other) && !is_meant(chunk_of(*to)));
    }
}

impl EmulatedDevice {
    /// The next program or erase of `chunk` goes wrong, and is reported as done.
    ///
    /// # Panics
    /// If there is no such chunk.
    pub fn inject_silent_fault(&mut self, chunk: ChunkId, fault: SilentFault) {
        assert!(self.chunks.exists(chunk), "{chunk:?} is on the device");
        *self.chunks.flags_mut(chunk) |= SILENT;
        match fault {
            SilentFault::LostErase => _ = self.silent.lost_erases.insert(chunk),
            SilentFault::LostProgram => _ = self.silent.lost_programs.insert(chunk),
            SilentFault::Misdirected(to) => _ = self.silent.misdirected.insert(chunk, to),
        }
    }

    /// Blocks that silent faults have cost since the last call.
    pub fn take_missing(&mut self) -> Vec<Missing> {
        std::mem::take(&mut self.silent.missing)
    }

    /// Whether the erase of `chunk`, of which `written` blocks are written, is lost.
    pub(super) fn loses_erase(&mut self, chunk: ChunkId, written: u32) -> bool {
        let is_lost = self.silent.lost_erases.remove(&chunk);
        if is_lost {
            let before = self.silent.not_erased.get(&chunk).copied().unwrap_or_default();
            self.silent.not_erased.insert(chunk, before.max(written));
            self.unmark(chunk, 0);
        }
        is_lost
    }

    /// Carries out a program operation on a chunk that a silent fault waits for, perhaps.
    #[cold]
    pub(super) fn keep_or_lose(&mut self, chunk: ChunkId, first: u32, source: Source<'_>) -> Result<(), StoreError> {
        let is_lost = self.silent.lost_programs.remove(&chunk);
        let to = self.silent.misdirected.remove(&chunk);
        if !is_lost && to.is_none() {
            return self.keep(chunk, first, source);
        }
        self.note_missing(chunk, first, source);
        if let Some(to) = to {
            let (other, begin) = (self.format.chunk_of(to), self.format.block_of(to));
            let written = self.chunks.get(other).write_pointer.saturating_sub(begin).min(source.len() as u32);
            let there: Vec<Ppa> = (0..u64::from(written)).map(|index| Ppa(to.0 + index)).collect();
            self.note_missing(other, begin, Source::Media(&there, &[]));
            if written > 0 {
                self.keep(other, begin, source.part(0, written as usize))?;
            }
        }
        self.leave(chunk, first, source.len() as u32)
    }

    /// The pages of `blocks` blocks stay as they were.
    fn leave(&mut self, chunk: ChunkId, first: u32, blocks: u32) -> Result<(), StoreError> {
        let kept = self.silent.not_erased.get(&chunk).copied().unwrap_or_default();
        self.blank(chunk, first.max(kept)..first + blocks)
    }

    /// The programs of `blocks` never were.
    pub(super) fn undo(&mut self, chunk: ChunkId, blocks: Range<u32>) -> Result<(), StoreError> {
        // Elsewhere a lost program leaves an erased page, whatever the store holds there.
        if self.silent.not_erased.contains_key(&chunk) { self.blank(chunk, blocks) } else { Ok(()) }
    }

    /// The pages of `blocks` are erased.
    fn blank(&mut self, chunk: ChunkId, blocks: Range<u32>) -> Result<(), StoreError> {
        let mut erased = Frames::new(0, 1, self.geometry.oob_bytes as usize);
        let frame = erased.acquire(FrameForm::Stamp).expect("a new pool is full");
        erased.zero(frame);
        erased.oob_mut(frame).fill(0xFF);
        for block in blocks {
            self.backing.write(chunk, block, &erased, &[frame])?;
        }
        Ok(())
    }

    /// What should be in `chunk` from block `first` on is not.
    fn note_missing(&mut self, chunk: ChunkId, first: u32, source: Source<'_>) {
        let mut frames = Frames::new(1, 0, self.geometry.oob_bytes as usize);
        let frame = frames.acquire(FrameForm::Bytes).expect("a new pool is full");
        for index in 0..source.len() {
            let (pool, at) = match source {
                Source::Frames(pool, list) => (pool, list[index]),
                Source::Media(places, _) => {
                    let (chunk, block) = (self.format.chunk_of(places[index]), self.format.block_of(places[index]));
                    if self.backing.read(chunk, block, &mut frames, frame) == Fetched::Lost {
                        continue;
                    }
                    (&frames, frame)
                }
            };
            let head = match pool.payload(at) {
                Payload::Bytes(bytes) => u64::from_le_bytes(*bytes.first_chunk().expect("a block is longer")),
                Payload::Stamp(stamp) => stamp.0,
            };
            let oob = *pool.oob(at).first_chunk().expect("no device has fewer");
            self.silent.missing.push(Missing { place: self.format.ppa(chunk, first + index as u32), oob, head });
        }
    }
}
