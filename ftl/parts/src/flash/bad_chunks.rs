//! Chunks that go bad, and the resets by which chunks become free or are found to be bad.
//!
//! A chunk is reset only when nothing in it can be needed any more: the log that says where its blocks went is durable,
//! and no read of it is under way. What recovery found empty on the word of log that may not be found the next time waits
//! until that log is written again, or a checkpoint has taken its place.
//!
//! A chunk in which a program failed, or whose reset fails, is retired; a spare takes its place. The log says in which chunks
//! programs failed, before it says what was opened in their place, and so do checkpoints. So a drive that is opened again counts
//! them as before. A chunk that the device takes offline with all it holds costs the blocks that were
//! valid in it, which are noted as lost before it is retired. When there are no spares left the over-provisioning shrinks,
//! and when most of it is gone the drive turns read-only, while all its data can still be read.

use super::{Errand, Flash};
use crate::flash::chunk_table::ChunkUse;
use crate::flash::plan::RELOCATION_RESERVE_CHUNKS;
use crate::journal::Journal;
use crate::journal::superblock_writer::SuperblockWriter;
use crate::words::{Phase, ReadOnlyReason};
use openftl_core::ChunkId;
use openftl_media::Status;

/// What the end of a reset means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reset {
    /// Superblocks go on in the chunk, or not.
    OfSuperblocks,
    /// The chunk is free.
    Free,
    /// It is used no more.
    Retired,
}

impl Flash {
    /// Whether more chunks have gone bad than there were spares: the drive has less room than its plan, and may wear out.
    pub fn is_aged(&self) -> bool {
        self.resets.good() < self.plan.chunks()
    }

    /// Good chunks but for those that the tenant has: they are not there for anything else.
    fn good_for_others(&self) -> u64 {
        self.resets.good().saturating_sub(u64::from(self.provisioning.held_by_tenant()))
    }

    /// Whether more chunks have gone bad since the drive was worn out than its reserves for relocation make up for: all that it
    /// has taken may not find room any more.
    pub fn is_beyond_saving(&self) -> bool {
        let reserves = u64::from(self.geometry.groups * RELOCATION_RESERVE_CHUNKS);
        self.good_for_others() + reserves < self.resets.good_min()
    }

    /// Resets what can be reset, and adds to `retired` the chunks that are not worth it.
    pub fn advance_resets(&mut self, journal: &Journal, retired: &mut Vec<ChunkId>) {
        // What recovery found may be durable in one copy only until the log is mended; but its checkpoint may need the room.
        let is_early = self.phase == Phase::Recovering && !journal.is_stalled(self);
        if !self.resets.is_waiting() || is_early || !journal.superblock.is_confirmed() {
            return;
        }
        let (durable, is_in_doubt) = (journal.log.durable(), journal.log.is_in_doubt());
        if !self.resets.is_any_ready(durable, is_in_doubt, &mut self.reads) {
            return;
        }
        for _ in 0..self.resets.waiting() {
            let Some(chunk) = self.resets.next(durable, &mut self.reads) else { continue };
            if self.chunks.is_suspect(chunk) {
                self.arrived(chunk);
                self.retire(&journal.superblock, chunk);
                retired.push(chunk);
                continue;
            }
            self.provisioning.begin_reset(self.group_of(chunk));
            self.submit(Errand::Reset(chunk));
        }
    }

    /// `chunk` is on its way no more.
    fn arrived(&mut self, chunk: ChunkId) {
        self.provisioning.arrived(self.group_of(chunk));
        self.room_changed = true;
    }

    /// The device has reset `chunk`, or could not.
    pub fn reset_ended(&mut self, superblock: &mut SuperblockWriter, chunk: ChunkId, status: Status) -> Reset {
        let is_reset = status == Status::Success;
        self.is_unusual |= !is_reset;
        if superblock.reset_ended(chunk, is_reset) {
            self.chunks.strengthen(chunk);
            if !is_reset {
                self.statistics.reset_failures += 1;
                self.chunks.take_offline(chunk);
                self.turn_read_only_if_worn_out(superblock);
            }
            return Reset::OfSuperblocks;
        }
        self.provisioning.end_reset(self.group_of(chunk));
        self.arrived(chunk);
        if is_reset {
            self.statistics.resets += 1;
            self.chunks.count_reset(chunk);
            self.chunks.set_usage(chunk, ChunkUse::Free);
            self.provisioning.give(chunk, self.chunks.resets(chunk));
            Reset::Free
        } else {
            self.statistics.reset_failures += 1;
            self.lend_metadata_where_resets_fail();
            self.retire(superblock, chunk);
            Reset::Retired
        }
    }

    /// Where erases fail collection may cost as many chunks as it makes free: at the end of a drive's life what it has to save
    /// goes rather to the chunks that are kept for metadata.
    pub fn lend_metadata_where_resets_fail(&mut self) {
        // An empty chunk costs nothing but itself.
        let has_empty = (0..self.geometry.groups).any(|group| self.chunks.fewest_valid(group) == Some(0));
        if self.statistics.reset_failures > 0 && !has_empty {
            self.provisioning.lend_metadata();
        }
    }

    /// A program failed in `chunk`: it will be retired when what it holds has moved, and counts as bad from now on. Counted
    /// only then, a drive could fill up with such chunks before it knows that it is worn out.
    pub fn program_failed(&mut self, superblock: &SuperblockWriter, chunk: ChunkId) {
        let was_known = self.is_to_be_retired(superblock, chunk);
        self.suspect(superblock, chunk);
        if !was_known && self.is_to_be_retired(superblock, chunk) {
            self.resets.owe(chunk);
        }
    }

    /// A program failed in `chunk`, now or before the drive was opened.
    pub fn suspect(&mut self, superblock: &SuperblockWriter, chunk: ChunkId) {
        self.chunks.suspect(chunk);
        // What the tenant has is not counted among the good ones while it has it.
        if self.chunks.usage(chunk) != ChunkUse::Tenant && self.is_to_be_retired(superblock, chunk) {
            self.count_bad(superblock, chunk);
        }
    }

    /// Whether a program failed in `chunk`, which the device can still use. Superblocks go on where they are.
    fn is_to_be_retired(&self, superblock: &SuperblockWriter, chunk: ChunkId) -> bool {
        self.chunks.is_suspect(chunk)
            && !self.chunks.is_offline(chunk)
            && superblock.chunks().all(|other| other != chunk)
    }

    /// `chunk` is used no more.
    pub fn retire(&mut self, superblock: &SuperblockWriter, chunk: ChunkId) {
        self.chunks.set_usage(chunk, ChunkUse::Retired);
        self.statistics.retired_chunks += 1;
        if !self.chunks.is_offline(chunk) {
            self.count_bad(superblock, chunk);
        }
    }

    /// The device has taken `chunk` out of use, with all it holds: what is valid there is lost. It is retired when that
    /// is noted block by block. Returns false if that was known, or it holds nothing.
    pub fn went_offline(&mut self, superblock: &SuperblockWriter, chunk: ChunkId) -> bool {
        // What is being reset holds nothing: the reset will fail, and its end is all there is to it.
        let is_empty = matches!(self.chunks.usage(chunk), ChunkUse::Retired | ChunkUse::Resetting)
            || superblock.is_resetting(chunk);
        if is_empty || self.chunks.is_offline(chunk) {
            return false;
        }
        self.chunks.take_offline(chunk);
        self.statistics.offline_chunks += 1;
        self.count_bad(superblock, chunk);
        true
    }

    /// One chunk less to write with, unless `chunk` has been counted.
    fn count_bad(&mut self, superblock: &SuperblockWriter, chunk: ChunkId) {
        if !self.chunks.count_bad(chunk) {
            return;
        }
        self.resets.lose_one();
        self.provisioning.use_spare(self.group_of(chunk));
        self.turn_read_only_if_worn_out(superblock);
    }

    /// Early enough to save what was acknowledged: there are chunks left, and room for a superblock.
    pub fn turn_read_only_if_worn_out(&mut self, superblock: &SuperblockWriter) {
        if self.good_for_others() < self.resets.good_min() || !superblock.can_go_on() {
            self.turn_read_only(ReadOnlyReason::WornOut);
        }
    }
}
