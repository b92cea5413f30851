//! What the block FTL asks of tables, and tells them.

use super::Tables;
use crate::chunk_table::ChunkUse;
use crate::chunks::Chunks;
use crate::flash::Flash;
use crate::flash::reads::ReadId;
use crate::journal::Journal;
use crate::tenant::Tenant;
use crate::units::UnitId;
use openftl_core::{ChunkId, Geometry};
use openftl_media::{ChunkDescriptor, Completion};
use std::ops::Range;

impl Tenant for Tables {
    fn frames_needed(&self, geometry: &Geometry) -> usize {
        Tables::frames_needed(geometry)
    }

    fn spares(&self, good: u64, beyond: u64) -> u64 {
        beyond.min(Tables::spares(good))
    }

    fn share_out(&mut self, flash: &mut Flash, chunks: &Chunks) {
        Tables::share_out(flash, chunks);
    }

    fn find_chunk(&mut self, flash: &mut Flash, descriptor: &ChunkDescriptor) -> bool {
        self.find_chunk(flash, descriptor)
    }

    fn has_found(&self) -> bool {
        !self.found.is_empty()
    }

    fn leaving(&self, flash: &Flash, group: u32) -> (u32, u32) {
        let here = || self.leaving.iter().filter(|chunk| flash.group_of(**chunk) == group);
        let closing = here().filter(|chunk| flash.chunks.usage(**chunk) == ChunkUse::Table).count();
        (here().count() as u32, closing as u32)
    }

    fn advance(&mut self, flash: &mut Flash, journal: &mut Journal) {
        self.advance(flash, journal);
    }

    fn unit_programmed(&mut self, flash: &mut Flash, unit: UnitId) {
        self.unit_programmed(flash, unit);
    }

    fn unit_readable(&mut self, flash: &mut Flash, unit: UnitId) {
        self.unit_readable(flash, unit);
    }

    fn unit_failed(&mut self, flash: &mut Flash, unit: UnitId) {
        self.unit_failed(flash, unit);
    }

    fn read_ended(&mut self, flash: &mut Flash, read: ReadId, completion: Completion) {
        self.read_ended(flash, read, completion);
    }

    fn chunk_closed(&mut self, flash: &mut Flash, chunk: ChunkId) {
        self.chunk_closed(flash, chunk);
    }

    fn leave(&mut self, flash: &mut Flash, chunk: ChunkId) {
        self.leave(flash, chunk);
    }

    fn queue_weak(&mut self, flash: &mut Flash, chunk: ChunkId) {
        self.queue_weak(flash, chunk);
    }

    fn blocks_in(&self, flash: &Flash, chunk: ChunkId) -> Option<(u64, Vec<Range<u32>>)> {
        self.blocks_in(flash, chunk)
    }
}
