//! What the block FTL asks of pages, and tells them.

use crate::demand_index::READS_MAX;
use crate::layout::{LOG_STEP, Layout, SESSION_BLOCKS};
use crate::log::{LANES_MAX, Log};
use crate::pages::{Frontiers, Pages};
use crate::place::GRAINS_PER_BLOCK;
use crate::reading::{OF_LOG, OF_VICTIM};
use openftl_core::{ChunkId, Geometry};
use openftl_media::Completion;
use openftl_parts::config::Config;
use openftl_parts::flash::Flash;
use openftl_parts::flash::reads::ReadId;
use openftl_parts::flash::shares::TenantChunks;
use openftl_parts::flash::units::UnitId;
use openftl_parts::journal::Journal;
use openftl_parts::open_error::OpenError;
use openftl_parts::tenant::Tenant;
use openftl_parts::words::TenantNote;
use std::ops::Range;

/// What a superblock says of a drive of pages with this layout.
pub(crate) fn note(layout: &Layout) -> TenantNote {
    let words = [layout.log_blocks / LOG_STEP, layout.host_chunks, layout.move_chunks];
    let words = words.map(|word| u16::try_from(word).expect("a layout has small numbers"));
    let more = if layout.log_lanes > 1 { TenantNote::TWO_LANES } else { 0 };
    TenantNote { kind: TenantNote::PAGES, words, more }
}

/// The layout that a superblock describes, of a drive with an area of so many blocks.
fn described(note: TenantNote, area_blocks: u32) -> Option<Layout> {
    let [log, host_chunks, move_chunks] = note.words.map(u32::from);
    let log_blocks = log * LOG_STEP;
    let slots = area_blocks.checked_sub(1 + SESSION_BLOCKS)?;
    let is_possible = log > 0 && slots > 0 && host_chunks > 0 && move_chunks > 0;
    let log_lanes = if note.more & TenantNote::TWO_LANES == 0 { 1 } else { LANES_MAX as u32 };
    is_possible.then_some(Layout { log_blocks, log_lanes, slots, host_chunks, move_chunks })
}

impl Tenant for Pages {
    fn find_drive(&mut self, _geometry: &Geometry, config: &Config) -> Result<(), OpenError> {
        let Some(layout) = described(config.tenant, config.catalog_blocks) else {
            let text = format!("the area of a store of pages has {} blocks, too few", config.catalog_blocks);
            return Err(OpenError::Tenant { text, is_lost: false });
        };
        let frontiers = |count| Frontiers::new(count, self.victim, self.chunk_grains);
        (self.host, self.moves) = (frontiers(layout.host_chunks), frontiers(layout.move_chunks));
        self.logs = Frontiers::in_turn(layout.log_lanes);
        self.log = Log::new(layout.log_blocks, self.page_bytes_max);
        self.cross_blocks = config.tenant.more & TenantNote::WHOLE_BLOCKS == 0;
        self.layout = layout;
        self.leaf_reads.has_frames |= config.tenant.more & TenantNote::INDEX_ON_MEDIA != 0;
        Ok(())
    }

    fn note_of_repair(&self) -> u8 {
        TenantNote::REBUILDING
    }

    fn frames_needed(&self, geometry: &Geometry) -> usize {
        let chunks = self.layout.written_chunks() as usize;
        // On each of them a unit that fills, one behind it, and what cannot be read yet.
        let stuck = chunks * (2 * self.unit_blocks + geometry.mw_cunits) as usize;
        let leaves = if self.leaf_reads.has_frames { READS_MAX } else { 0 };
        stuck
            + leaves
            + 2 * self.frames_to_keep()
            + self.log.group_bytes_max().div_ceil(openftl_core::BLOCK_BYTES) * 2
            + 64
    }

    fn chunks(&self) -> Option<&TenantChunks> {
        Some(&self.coming_and_going)
    }

    fn chunks_mut(&mut self) -> Option<&mut TenantChunks> {
        Some(&mut self.coming_and_going)
    }

    fn advance(&mut self, _flash: &mut Flash, _journal: &mut Journal) {}

    fn unit_programmed(&mut self, flash: &mut Flash, unit: UnitId) {
        self.programmed(flash, unit);
    }

    fn unit_readable(&mut self, flash: &mut Flash, unit: UnitId) {
        self.readable(flash, unit);
    }

    fn unit_failed(&mut self, flash: &mut Flash, unit: UnitId) {
        Pages::unit_failed(self, flash, unit);
    }

    fn read_ended(&mut self, flash: &mut Flash, read: ReadId, completion: Completion) {
        match flash.reads.get(read).owner {
            OF_VICTIM => self.window_read_ended(flash, read, completion),
            OF_LOG => self.log_read_ended(flash, read, completion),
            _ => self.page_read_ended(flash, read, completion),
        }
    }

    fn chunk_closed(&mut self, flash: &mut Flash, chunk: ChunkId) {
        self.coming_and_going.closed(flash, chunk);
        flash.stirred = true;
    }

    fn queue_weak(&mut self, flash: &mut Flash, chunk: ChunkId) {
        self.weaken(chunk);
        flash.stirred = true;
    }

    /// Of chunks that are full and are not to be emptied anyway.
    fn blocks_in(&self, _flash: &Flash, chunk: ChunkId) -> Option<(Option<u64>, Vec<Range<u32>>)> {
        let is_written = self.slot_of.contains_key(&chunk);
        let is_wanted = self.chunks.get(&chunk).is_some_and(|known| known.live > 0 && !known.is_weak);
        let all = 0..self.chunk_grains / GRAINS_PER_BLOCK;
        (is_wanted && !is_written).then(|| (None, vec![all]))
    }
}
