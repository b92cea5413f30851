//! What a device says of all its chunks when a drive is opened.

use crate::open_error::OpenError;
use crate::plan::PlanError;
use openftl_core::{ChunkId, Geometry, Time};
use openftl_media::{ChunkDescriptor, ChunkState, Media};

/// The descriptors of a device, by chunk address.
pub(crate) struct Chunks {
    pub(crate) geometry: Geometry,
    pub(crate) table: Vec<Option<ChunkDescriptor>>,
}

impl Chunks {
    pub(crate) fn report(media: &mut dyn Media, now: Time) -> Result<Chunks, OpenError> {
        let geometry = *media.geometry();
        geometry.validate()?;
        let bits = geometry.format().bits();
        if bits > 31 {
            return Err(PlanError::TooLarge { capacity_blocks: geometry.blocks(), bits }.into());
        }
        let mut table = vec![None; geometry.format().chunk_ids()];
        for descriptor in media.whole_chunk_report(now)? {
            table[descriptor.chunk.0 as usize] = Some(descriptor);
        }
        Ok(Chunks { geometry, table })
    }

    pub(crate) fn get(&self, chunk: ChunkId) -> Option<&ChunkDescriptor> {
        self.table.get(chunk.0 as usize)?.as_ref()
    }

    pub(crate) fn state(&self, chunk: ChunkId) -> ChunkState {
        self.get(chunk).map_or(ChunkState::Offline, |descriptor| descriptor.state)
    }

    /// Blocks of `chunk` that can be read.
    pub(crate) fn readable(&self, chunk: ChunkId) -> u32 {
        match self.get(chunk) {
            Some(chunk) if chunk.state == ChunkState::Closed => chunk.write_pointer,
            Some(chunk) if chunk.state == ChunkState::Open => {
                chunk.write_pointer.saturating_sub(self.geometry.mw_cunits)
            }
            _ => 0,
        }
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &ChunkDescriptor> {
        self.table.iter().flatten()
    }
}
