//! Whoever else has chunks of a drive, beside its blocks.
//!
//! The block FTL asks it when a drive is opened, tells it what becomes of its units, reads and chunks, and gives it a turn in each
//! round. It knows nothing else of it, and most drives have none ([`Nobody`]).

use crate::config::Config;
use crate::flash::Flash;
use crate::flash::chunks::Chunks;
use crate::flash::reads::ReadId;
use crate::flash::shares::{TenantChunks, share_out, spares};
use crate::flash::units::UnitId;
use crate::journal::Journal;
use crate::open_error::OpenError;
use openftl_core::{ChunkId, FrameForm, Geometry};
use openftl_media::{ChunkDescriptor, Completion};
use std::ops::Range;

/// See the module.
pub trait Tenant {
    /// A drive was found that was formatted for this. Called before all others.
    ///
    /// # Errors
    /// If it is not this tenant's, or cannot be.
    fn find_drive(&mut self, _geometry: &Geometry, _config: &Config) -> Result<(), OpenError> {
        Ok(())
    }

    /// Frames for what its own hosts write, and what is in them, if it has hosts. Theirs are of the same form.
    fn payload_frames(&self, _geometry: &Geometry) -> Option<(FrameForm, usize)> {
        None
    }

    /// Other frames that it needs, for whole blocks.
    fn frames_needed(&self, _geometry: &Geometry) -> usize {
        0
    }

    /// Its chunks that come and go. A tenant that has chunks has this, and what follows from it below.
    fn chunks(&self) -> Option<&TenantChunks> {
        None
    }

    /// The same, to change.
    fn chunks_mut(&mut self) -> Option<&mut TenantChunks> {
        None
    }

    /// Of `good` chunks, of which the plan leaves `beyond`, so many are spares; the rest is its own.
    fn spares(&self, good: u64, beyond: u64) -> u64 {
        if self.chunks().is_some() { beyond.min(spares(good)) } else { beyond }
    }

    /// Takes its share of the chunks.
    fn share_out(&mut self, flash: &mut Flash, chunks: &Chunks) {
        if self.chunks().is_some() {
            share_out(flash, chunks);
        }
    }

    /// A chunk was found in which the map has nothing. Whether it may be its own.
    fn find_chunk(&mut self, flash: &mut Flash, descriptor: &ChunkDescriptor) -> bool {
        self.chunks_mut().is_some_and(|chunks| chunks.find(flash, descriptor))
    }

    /// Whether it has yet to say whose the chunks are that were found.
    fn has_found(&self) -> bool {
        self.chunks().is_some_and(TenantChunks::has_found)
    }

    /// Chunks of `group` that it has given back and that are on their way to be free, and how many of them are still being closed.
    fn leaving(&self, flash: &Flash, group: u32) -> (u32, u32) {
        self.chunks().map_or((0, 0), |chunks| chunks.leaving_in(flash, group))
    }

    /// What the superblock is to say of it ([`TenantNote::more`](crate::words::TenantNote::more)) when the area was rebuilt, until the tenant has
    /// rebuilt what follows from it.
    fn note_of_repair(&self) -> u8 {
        0
    }

    /// Gives back what was found and is not its own.
    fn release_found(&mut self, flash: &mut Flash) {
        if let Some(chunks) = self.chunks_mut() {
            chunks.release_rest(flash);
        }
    }

    /// Goes on with whatever it does. While the drive is still being recovered it writes nothing.
    fn advance(&mut self, _flash: &mut Flash, _journal: &mut Journal) {}

    /// A unit of its own survives a power cut.
    fn unit_programmed(&mut self, _flash: &mut Flash, _unit: UnitId) {
        unreachable!("nobody has written a unit");
    }

    /// It can be read.
    fn unit_readable(&mut self, _flash: &mut Flash, _unit: UnitId) {
        unreachable!("nobody has written a unit");
    }

    /// It could not be programmed.
    fn unit_failed(&mut self, _flash: &mut Flash, _unit: UnitId) {
        unreachable!("nobody has written a unit");
    }

    /// A read of its own has ended.
    fn read_ended(&mut self, _flash: &mut Flash, _read: ReadId, _completion: Completion) {
        unreachable!("nobody reads");
    }

    /// Nothing more can be written to a chunk: anybody's.
    fn chunk_closed(&mut self, flash: &mut Flash, chunk: ChunkId) {
        if let Some(chunks) = self.chunks_mut() {
            chunks.closed(flash, chunk);
        }
    }

    /// A chunk is on its way to be free no more: it has been reset, or has gone bad. Anybody's.
    fn leave(&mut self, flash: &mut Flash, chunk: ChunkId) {
        flash.stirred |= self.chunks_mut().is_some_and(|chunks| chunks.left(flash, chunk));
    }

    /// What a chunk of its own holds should move.
    fn queue_weak(&mut self, _flash: &mut Flash, _chunk: ChunkId) {}

    /// Blocks of `chunk` that hold anything, in their order, and the sequence that all of them have, if they have the same. Where they have not, some may
    /// be padding, or left torn by a power cut.
    fn blocks_in(&self, _flash: &Flash, _chunk: ChunkId) -> Option<(Option<u64>, Vec<Range<u32>>)> {
        None
    }
}

/// Nobody but the blocks has chunks.
pub struct Nobody;

impl Tenant for Nobody {}

/// Whether a drive of blocks alone is asked for. One with a tenant is opened by the FTL of that tenant.
pub fn expect_blocks_alone(config: &Config) -> Result<(), OpenError> {
    if config.catalog_blocks > 0 {
        return Err(OpenError::OtherKind { found: "block", wanted: "table" });
    }
    Ok(())
}
