//! What of a device a tenant has: its share of each group, and chunks of its own that come and go.

use crate::flash::Flash;
use crate::flash::chunk_table::ChunkUse;
use crate::flash::chunks::Chunks;
use crate::flash::plan::Plan;
use crate::flash::units::OpenId;
use openftl_core::ChunkId;
use openftl_media::{ChunkDescriptor, ChunkState};
use std::collections::{BTreeMap, BTreeSet};

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
    /// Goes on with `chunk` where it was left, if more can be written to it. What it holds does not count.
    pub fn open(self, flash: &mut Flash, chunk: ChunkId) -> Option<OpenId> {
        self.is_open.then(|| {
            // Its opening may not be in the log.
            flash.seals.open(chunk);
            flash.units.open(chunk, self.write_pointer)
        })
    }
}

/// Chunks of a tenant that come and go: found when the drive was opened and not known to be any's yet, or on their way to be free.
#[derive(Default)]
pub struct TenantChunks {
    found: BTreeMap<ChunkId, FoundChunk>,
    leaving: BTreeSet<ChunkId>,
    /// How many leave as soon as it is durable that nothing names them.
    doomed: usize,
}

impl TenantChunks {
    /// Provisioning knows how many they are.
    fn note(&self, flash: &mut Flash) {
        flash.provisioning.leave_by_tenant(self.leaving.len() + self.found.len() + self.doomed);
    }

    /// Counts a chunk in which the map has nothing as the tenant's, if anything was written to it. Returns whether it was.
    pub fn find(&mut self, flash: &mut Flash, descriptor: &ChunkDescriptor) -> bool {
        let ChunkDescriptor { chunk, write_pointer, state, .. } = *descriptor;
        if matches!(state, ChunkState::Free | ChunkState::Offline) {
            return false;
        }
        flash.chunks.set_usage(chunk, ChunkUse::Tenant);
        flash.provisioning.begin_tenant_chunk(flash.group_of(chunk));
        self.found.insert(chunk, FoundChunk { write_pointer, is_open: state == ChunkState::Open });
        self.note(flash);
        true
    }

    /// Whether chunks were found of which the tenant has not said whose they are.
    #[must_use]
    pub fn has_found(&self) -> bool {
        !self.found.is_empty()
    }

    /// Chunks that were found of which the tenant has not said whose they are.
    pub fn found(&self) -> impl Iterator<Item = (ChunkId, FoundChunk)> + '_ {
        self.found.iter().map(|(chunk, found)| (*chunk, *found))
    }

    /// Whether `chunk` was found, and the tenant has not said whose it is.
    #[must_use]
    pub fn is_found(&self, chunk: ChunkId) -> bool {
        self.found.contains_key(&chunk)
    }

    /// A chunk that was found is of something that the tenant has.
    pub fn take(&mut self, flash: &mut Flash, chunk: ChunkId) -> Option<FoundChunk> {
        let found = self.found.remove(&chunk);
        self.note(flash);
        found
    }

    /// All others that were found, in their order: they are of nothing.
    pub fn take_rest(&mut self, flash: &mut Flash) -> BTreeMap<ChunkId, FoundChunk> {
        let found = std::mem::take(&mut self.found);
        self.note(flash);
        found
    }

    /// Gives back all others that were found: they are of nothing.
    pub fn release_rest(&mut self, flash: &mut Flash) {
        for (chunk, found) in self.take_rest(flash) {
            let open = found.open(flash, chunk);
            self.release(flash, chunk, open);
        }
    }

    /// Nothing needs `chunk` any more. Returns whether it is free at once.
    pub fn release(&mut self, flash: &mut Flash, chunk: ChunkId, open: Option<OpenId>) -> bool {
        let open = open.filter(|open| flash.units.chunk_if_open(*open) == Some(chunk));
        match open {
            Some(open) if flash.units.room(open) == flash.geometry.blocks_per_chunk => {
                self.give_back(flash, chunk, open);
                flash.stirred = true;
                return true;
            }
            Some(open) => self.leave_open(flash, chunk, open),
            None if flash.chunks.usage(chunk) == ChunkUse::Tenant => self.leave_closed(flash, chunk),
            None => {}
        }
        false
    }

    /// So many are to leave as soon as it is durable that nothing names them: the drive is not worn out for lack of them.
    pub fn doom(&mut self, flash: &mut Flash, doomed: usize) {
        if self.doomed != doomed {
            self.doomed = doomed;
            self.note(flash);
        }
    }

    /// How many are on their way to be free.
    #[must_use]
    pub fn leaving(&self) -> usize {
        self.leaving.len()
    }

    /// Those of a group, and how many of them are still being closed.
    #[must_use]
    pub fn leaving_in(&self, flash: &Flash, group: u32) -> (u32, u32) {
        let here = || self.leaving.iter().filter(|chunk| flash.group_of(**chunk) == group);
        let closing = here().filter(|chunk| flash.chunks.usage(**chunk) == ChunkUse::Tenant).count();
        (here().count() as u32, closing as u32)
    }

    /// An open chunk that nothing was written to is free again.
    pub fn give_back(&mut self, flash: &mut Flash, chunk: ChunkId, open: OpenId) {
        flash.units.forget(open);
        flash.chunks.set_usage(chunk, ChunkUse::Free);
        flash.provisioning.end_tenant_chunk(flash.group_of(chunk));
        flash.provisioning.give(chunk, flash.chunks.resets(chunk));
    }

    /// Nothing needs an open chunk any more. Only a full one can be reset: it is filled, and goes when it is [closed](Self::closed).
    pub fn leave_open(&mut self, flash: &mut Flash, chunk: ChunkId, open: OpenId) {
        flash.pad_by(open, flash.units.room(open));
        self.leaving.insert(chunk);
        self.note(flash);
    }

    /// Nothing needs a chunk any more that nothing can be written to.
    pub fn leave_closed(&mut self, flash: &mut Flash, chunk: ChunkId) {
        self.leaving.insert(chunk);
        self.note(flash);
        flash.reset_when_durable(chunk, 0);
    }

    /// Nothing more can be written to a chunk: anybody's.
    pub fn closed(&mut self, flash: &mut Flash, chunk: ChunkId) {
        if self.leaving.contains(&chunk) && flash.chunks.usage(chunk) == ChunkUse::Tenant {
            flash.reset_when_durable(chunk, 0);
        }
    }

    /// A chunk is on its way no more. Returns whether it was one of these.
    pub fn left(&mut self, flash: &mut Flash, chunk: ChunkId) -> bool {
        let was_leaving = self.leaving.remove(&chunk);
        if was_leaving {
            self.note(flash);
            flash.provisioning.end_tenant_chunk(flash.group_of(chunk));
        }
        was_leaving
    }
}
