//! The log on its way to the medium: its units to the open chunk of each copy, and the chunks after these, which a superblock
//! names before they are written.

use super::{LOG_UNITS_MAX, Log, LogChunk, LogCopy, LogUnit, Successor};
use crate::flash::Flash;
use crate::flash::chunk_table::ChunkUse;
use crate::flash::provisioning::Claim;
use crate::journal::log_block::Record;
use crate::journal::superblock_writer::SuperblockWriter;
use crate::words::{METADATA_COPIES, Phase, Purpose};
use openftl_core::VECTOR_BLOCKS_MAX;

impl Log {
    /// Lets its last words be written though their unit is not full.
    pub fn write_what_there_is(&mut self, flash: &mut Flash) {
        flash.stirred |= self.force(&mut flash.frames);
    }

    /// Writes what is ready.
    #[inline]
    pub fn advance(&mut self, flash: &mut Flash, superblock: &mut SuperblockWriter) {
        for copy in 0..METADATA_COPIES {
            self.advance_copy(flash, superblock, copy);
        }
    }

    #[inline]
    fn advance_copy(&mut self, flash: &mut Flash, superblock: &mut SuperblockWriter, copy: usize) {
        // Every turn asks, and mostly no unit waits or is under way, and the next chunk is named or not needed yet.
        let LogCopy { open, successors, .. } = &self.copies[copy];
        let has_room = || open.map_or(0, |open| flash.units.room(open)) > flash.geometry.blocks_per_chunk / 2;
        if !self.is_idle() || (successors.is_empty() && !has_room()) {
            self.write_copy(flash, superblock, copy);
        }
    }

    fn write_copy(&mut self, flash: &mut Flash, superblock: &mut SuperblockWriter, copy: usize) {
        loop {
            let LogCopy { open, successors, .. } = &self.copies[copy];
            let open = *open;
            let room = open.map_or(0, |open| flash.units.room(open));
            // Successors are named in a superblock before they are needed.
            let is_due = match flash.read_only {
                None => room <= flash.geometry.blocks_per_chunk / 2,
                // Superblocks may be what is scarce on a worn-out drive.
                Some(_) => room == 0 && self.has_unwritten(copy),
            };
            // A recovery that could not name its gap writes no superblock before its checkpoint.
            let may_name = flash.phase != Phase::Recovering || self.has_unwritten(copy);
            if is_due && successors.is_empty() && flash.may_program() && may_name {
                self.name_successors(flash, superblock, copy);
            }
            if !self.has_unwritten(copy) {
                break;
            }
            if room == 0 {
                let durable = superblock.durable();
                let successors = &mut self.copies[copy].successors;
                let Some(successor) = successors.pop_front_if(|successor| successor.superblock <= durable) else {
                    break;
                };
                self.copies[copy].open = Some(flash.units.open(successor.chunk, 0));
                continue;
            }
            let open = open.expect("it has room");
            let chunk = flash.units.chunk(open).chunk;
            let LogUnit { owner, frames, used, last_lsn } = self.next_unit(copy).expect("a unit waits");
            let mut unit = [flash.padding; VECTOR_BLOCKS_MAX];
            unit[..frames.len()].copy_from_slice(frames);
            let count = frames.len();
            let entry = self.copies[copy].chunks.iter_mut().find(|entry| entry.chunk == chunk);
            let entry = entry.expect("the open chunk belongs to the log");
            entry.last_lsn = entry.last_lsn.max(last_lsn);
            // What was left empty in it counts as padding.
            flash.write_unit(open, Purpose::Log, owner, &unit[..count], used);
            flash.stirred = true;
        }
        if flash.geometry.mw_cunits > 0
            && flash.geometry.volatile_cache
            && let Some(open) = self.copies[copy].open
            && self.is_waiting(copy)
            && flash.units.wants_padding(open)
        {
            flash.pad(open);
        }
    }

    /// Takes chunks to follow the open one of a copy of the log, and has a superblock name them.
    fn name_successors(&mut self, flash: &mut Flash, superblock: &mut SuperblockWriter, copy: usize) {
        let first = self.copies[copy].chunks.len();
        // On a worn-out drive chunks are scarce.
        let most = if flash.read_only.is_none() { flash.plan.log_successors as usize } else { 1 };
        for _ in 0..most {
            // A recovery reads all of them at once: the next is not in the group of the last.
            let last =
                self.copies[copy].chunks.back().map(|last| flash.format.group_of(flash.format.pu_of(last.chunk)));
            let turn = last.map_or(0, |group| group / METADATA_COPIES as u32 + 1);
            let Some(chunk) = flash.provisioning.take(Claim::Log { copy, turn }) else {
                break;
            };
            flash.chunks.set_usage(chunk, ChunkUse::Metadata);
            self.copies[copy].chunks.push_back(LogChunk { chunk, last_lsn: 0 });
        }
        if self.copies[copy].chunks.len() == first {
            return;
        }
        flash.sample_spare();
        flash.room_changed = true;
        let superblock = self.request_superblock(flash, superblock);
        let LogCopy { chunks, successors, .. } = &mut self.copies[copy];
        successors.extend(chunks.range(first..).map(|taken| Successor { chunk: taken.chunk, superblock }));
    }

    /// Asks for a superblock with the log's present chunks.
    pub fn request_superblock(&self, flash: &mut Flash, superblock: &mut SuperblockWriter) -> u64 {
        let chunks = self.copies.each_ref().map(|copy| copy.chunks.iter().map(|chunk| chunk.chunk.0).collect());
        superblock.current_mut().log_chunks = chunks;
        flash.stirred = true;
        superblock.request()
    }

    /// Logs in which chunks programs failed and how chunks were opened, ahead of the records that name blocks in these. Returns
    /// whether there was room for that.
    #[inline]
    pub fn append_chunks(&mut self, flash: &mut Flash) -> bool {
        while self.has_room() {
            let record = match flash.resets.next_owed() {
                Some(chunk) => Record::Suspect { chunk },
                None => match flash.seals.next_owed() {
                    Some((chunk, seal)) => Record::Opened { chunk, seal },
                    None => return true,
                },
            };
            self.append(&mut flash.frames, record);
        }
        false
    }

    /// Blocks that a copy of the log may still take in further chunks before it has outgrown its plan, and those that it must be able to take
    /// whatever happens: what is appended and not written yet, and what is padded behind it.
    #[inline]
    fn chunks_of_plan(&self, flash: &Flash, copy: usize) -> (u64, u64) {
        let blocks = u64::from(flash.geometry.blocks_per_chunk);
        let planned = flash.plan.log_chunks / METADATA_COPIES as u64;
        let lane = &self.copies[copy];
        let chunks = planned.saturating_sub(lane.chunks.len() as u64) + lane.successors.len() as u64;
        let margin = LOG_UNITS_MAX as u64 * u64::from(flash.geometry.ws_min) + 2 * u64::from(flash.geometry.mw_cunits);
        (chunks * blocks, margin.min(planned * blocks / 2))
    }

    /// Whether it has come so near to the end of its plan that a checkpoint is due.
    #[inline]
    pub fn is_long(&self, flash: &Flash) -> bool {
        (0..METADATA_COPIES).any(|copy| {
            let (chunks, margin) = self.chunks_of_plan(flash, copy);
            chunks < margin
                && chunks + self.copies[copy].open.map_or(0, |open| u64::from(flash.units.room(open))) < margin
        })
    }

    /// Whether it wants a chunk and gets none.
    #[inline]
    pub fn is_stalled(&self, flash: &Flash) -> bool {
        // Nothing waits where nothing is ended and not durable.
        !self.is_idle()
            && (0..METADATA_COPIES).any(|copy| {
                let lane = &self.copies[copy];
                let room = lane.open.map_or(0, |open| flash.units.room(open));
                room == 0 && lane.successors.is_empty() && self.has_unwritten(copy)
            })
    }
}
