//! What a device says of all its chunks when a drive is opened.

use crate::flash::plan::PlanError;
use crate::map::entry::ADDRESS_BITS_MAX;
use crate::open_error::OpenError;
use openftl_core::{ChunkId, Geometry, Time};
use openftl_media::{ChunkDescriptor, ChunkState, Media};

/// The descriptors of a device, by chunk address.
pub struct Chunks {
    /// The shape of the device.
    pub geometry: Geometry,
    /// By chunk address; `None`: no such chunk.
    pub table: Vec<Option<ChunkDescriptor>>,
}

impl Chunks {
    /// Asks the device.
    ///
    /// # Errors
    /// If the device does not answer, or has a shape that no drive can have.
    pub fn report(media: &mut dyn Media, now: Time) -> Result<Chunks, OpenError> {
        let geometry = *media.geometry();
        geometry.validate()?;
        let bits = geometry.format().bits();
        let most = ADDRESS_BITS_MAX;
        if bits > most {
            return Err(PlanError::TooLarge { capacity_blocks: geometry.blocks(), bits, most }.into());
        }
        let mut table = vec![None; geometry.format().chunk_ids()];
        for descriptor in media.whole_chunk_report(now)? {
            table[descriptor.chunk.0 as usize] = Some(descriptor);
        }
        Ok(Chunks { geometry, table })
    }

    /// What the device says of `chunk`.
    pub fn get(&self, chunk: ChunkId) -> Option<&ChunkDescriptor> {
        self.table.get(chunk.0 as usize)?.as_ref()
    }

    /// The state of `chunk`; one that the device does not know is offline.
    pub fn state(&self, chunk: ChunkId) -> ChunkState {
        self.get(chunk).map_or(ChunkState::Offline, |descriptor| descriptor.state)
    }

    /// Blocks of `chunk` that can be read.
    pub fn readable(&self, chunk: ChunkId) -> u32 {
        match self.get(chunk) {
            Some(chunk) if chunk.state == ChunkState::Closed => chunk.write_pointer,
            Some(chunk) if chunk.state == ChunkState::Open => {
                chunk.write_pointer.saturating_sub(self.geometry.mw_cunits)
            }
            _ => 0,
        }
    }

    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = &ChunkDescriptor> {
        self.table.iter().flatten()
    }
}
