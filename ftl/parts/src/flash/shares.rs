//! What of a device a tenant has, and which of its chunks were found in use.

use crate::flash::Flash;
use crate::flash::chunk_table::ChunkUse;
use crate::flash::chunks::Chunks;
use crate::flash::plan::Plan;
use openftl_core::ChunkId;
use openftl_media::{ChunkDescriptor, ChunkState};

/// Of so many good chunks one is a spare.
const CHUNKS_PER_SPARE: u64 = 64;

/// Spares of a drive with so many good chunks.
#[must_use]
pub fn spares(good: u64) -> u64 {
    good.div_ceil(CHUNKS_PER_SPARE)
}

/// Chunks of each group that are for the tenant, of so many good ones there: all that neither the plan nor spares need.
#[must_use]
pub fn shares(good: &[u32], plan: &Plan) -> Vec<u32> {
    let others = plan.chunks() + spares(good.iter().map(|good| u64::from(*good)).sum());
    let others = others.div_ceil(good.len() as u64) as u32;
    good.iter().map(|good| good.saturating_sub(others)).collect()
}

/// Gives the tenant its share of each group.
pub fn share_out(flash: &mut Flash, chunks: &Chunks) {
    let mut good = vec![0_u32; flash.geometry.groups as usize];
    for descriptor in chunks.all().filter(|descriptor| descriptor.state != ChunkState::Offline) {
        if flash.chunks.usage(descriptor.chunk) != ChunkUse::Retired {
            good[flash.group_of(descriptor.chunk) as usize] += 1;
        }
    }
    flash.provisioning.share_with_tenant(shares(&good, &flash.plan));
}

/// A chunk that was found when the drive was opened, and may be the tenant's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FoundChunk {
    /// Blocks that were written to it.
    pub write_pointer: u32,
    /// Whether more can be written to it.
    pub is_open: bool,
}

impl FoundChunk {
    /// Counts a chunk in which the map has nothing as the tenant's, if anything was written to it.
    pub fn find(flash: &mut Flash, descriptor: &ChunkDescriptor) -> Option<(ChunkId, FoundChunk)> {
        let ChunkDescriptor { chunk, write_pointer, state, .. } = *descriptor;
        if matches!(state, ChunkState::Free | ChunkState::Offline) {
            return None;
        }
        flash.chunks.set_usage(chunk, ChunkUse::Tenant);
        flash.provisioning.begin_tenant_chunk(flash.group_of(chunk));
        Some((chunk, FoundChunk { write_pointer, is_open: state == ChunkState::Open }))
    }
}
