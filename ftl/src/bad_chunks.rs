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

use crate::block::BlockFtl;
use crate::chunk_table::ChunkUse;
use crate::flash::Errand;
use crate::plan::RELOCATION_RESERVE_CHUNKS;
use crate::words::{Care, Phase, ReadOnlyReason};
use openftl_core::ChunkId;
use openftl_media::Status;

impl BlockFtl {
    /// Whether more chunks have gone bad than there were spares: the drive has less room than its plan, and may wear out.
    #[must_use]
    pub fn is_aged(&self) -> bool {
        self.flash.is_aged()
    }

    /// Whether more chunks have gone bad since the drive was worn out than its reserves for relocation make up for: all that it
    /// has taken may not find room any more.
    pub(crate) fn is_beyond_saving(&self) -> bool {
        let good = self.flash.resets.good().saturating_sub(self.tables.chunks_in_use(&self.flash));
        good + u64::from(self.flash.geometry.groups * RELOCATION_RESERVE_CHUNKS) < self.flash.resets.good_min()
    }

    /// Resets what can be reset.
    pub(crate) fn advance_resets(&mut self) {
        // What recovery found may be durable in one copy only until the log is mended; but its checkpoint may need the room.
        let is_early = self.flash.phase == Phase::Recovering && !self.journal.is_stalled(&self.flash);
        if !self.flash.resets.is_waiting() || is_early || !self.journal.superblock.is_confirmed() {
            return;
        }
        let (durable, is_in_doubt) = (self.journal.log.durable(), self.journal.log.is_in_doubt());
        for _ in 0..self.flash.resets.waiting() {
            let Some(chunk) = self.flash.resets.next(durable, is_in_doubt, &mut self.flash.reads) else { continue };
            if self.flash.chunks.is_suspect(chunk) {
                self.leave_resetting(chunk);
                self.retire(chunk);
                continue;
            }
            self.flash.provisioning.begin_reset(self.flash.group_of(chunk));
            self.flash.submit(Errand::Reset(chunk));
        }
    }

    fn leave_resetting(&mut self, chunk: ChunkId) {
        self.flash.provisioning.arrived(self.flash.group_of(chunk));
        self.tables.leave(&mut self.flash, chunk);
        self.flash.room_changed = true;
    }

    pub(crate) fn reset_ended(&mut self, chunk: ChunkId, status: Status) {
        if status != Status::Success {
            self.flash.is_unusual = true;
        }
        if self.journal.superblock.reset_ended(chunk, status == Status::Success) {
            self.flash.chunks.strengthen(chunk);
            if status != Status::Success {
                self.flash.statistics.reset_failures += 1;
                self.flash.chunks.take_offline(chunk);
                self.turn_read_only_if_worn_out();
            }
            return;
        }
        self.flash.provisioning.end_reset(self.flash.group_of(chunk));
        self.leave_resetting(chunk);
        if status == Status::Success {
            self.flash.statistics.resets += 1;
            self.flash.chunks.count_reset(chunk);
            self.flash.chunks.set_usage(chunk, ChunkUse::Free);
            self.watch_wear(chunk);
            self.flash.provisioning.give(chunk, self.flash.chunks.resets(chunk));
        } else {
            self.flash.statistics.reset_failures += 1;
            self.flash.lend_metadata_where_resets_fail();
            self.retire(chunk);
        }
    }

    /// A program failed in `chunk`: it will be retired when what it holds has moved, and counts as bad from now on. Counted
    /// only then, a drive could fill up with such chunks before it knows that it is worn out.
    pub(crate) fn program_failed(&mut self, chunk: ChunkId) {
        let was_known = self.is_to_be_retired(chunk);
        self.suspect(chunk);
        if !was_known && self.is_to_be_retired(chunk) {
            self.flash.resets.owe(chunk);
        }
    }

    /// A program failed in `chunk`, now or before the drive was opened.
    pub(crate) fn suspect(&mut self, chunk: ChunkId) {
        self.flash.chunks.suspect(chunk);
        // What tables have is not counted among the good ones while they have it.
        if self.flash.chunks.usage(chunk) != ChunkUse::Table && self.is_to_be_retired(chunk) {
            self.count_bad(chunk);
        }
    }

    /// Whether a program failed in `chunk`, which the device can still use. Superblocks go on where they are.
    pub(crate) fn is_to_be_retired(&self, chunk: ChunkId) -> bool {
        self.flash.chunks.is_suspect(chunk)
            && !self.flash.chunks.is_offline(chunk)
            && self.journal.superblock.chunks().all(|other| other != chunk)
    }

    /// `chunk` is used no more.
    pub(crate) fn retire(&mut self, chunk: ChunkId) {
        self.flash.chunks.set_usage(chunk, ChunkUse::Retired);
        self.flash.statistics.retired_chunks += 1;
        if !self.flash.chunks.is_offline(chunk) {
            self.count_bad(chunk);
        }
    }

    /// The device has taken `chunk` out of use, with all it holds: what is valid there is lost. It is retired when that
    /// is noted block by block.
    pub(crate) fn chunk_went_offline(&mut self, chunk: ChunkId) {
        // What is being reset holds nothing: the reset will fail, and its end is all there is to it.
        let is_empty = matches!(self.flash.chunks.usage(chunk), ChunkUse::Retired | ChunkUse::Resetting)
            || self.journal.superblock.is_resetting(chunk);
        if is_empty || self.flash.chunks.is_offline(chunk) {
            return;
        }
        self.flash.chunks.take_offline(chunk);
        self.flash.statistics.offline_chunks += 1;
        self.count_bad(chunk);
        self.weak_chunk(chunk, Care::Notification);
    }

    /// One chunk less to write with, unless `chunk` has been counted.
    fn count_bad(&mut self, chunk: ChunkId) {
        if !self.flash.chunks.count_bad(chunk) {
            return;
        }
        self.flash.resets.lose_one();
        self.flash.provisioning.use_spare(self.flash.group_of(chunk));
        self.turn_read_only_if_worn_out();
    }

    /// Early enough to save what was acknowledged: there are chunks left, and room for a superblock.
    pub(crate) fn turn_read_only_if_worn_out(&mut self) {
        // What tables have is not there for the log area.
        let good = self.flash.resets.good().saturating_sub(self.tables.chunks_in_use(&self.flash));
        if good < self.flash.resets.good_min() || !self.journal.superblock.can_go_on() {
            self.turn_read_only(ReadOnlyReason::WornOut);
        }
    }
}
