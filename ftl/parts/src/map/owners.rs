//! Which logical block each place on media holds: the map the other way round (P2L).
//!
//! Whoever moves a block has to know which one it is. One that is read says so itself; one that the device copies is never
//! seen, so a drive with [`RelocateBy::DeviceCopy`](crate::RelocateBy) keeps this table: four bytes for each block of flash.
//! It is not on media, because it follows from the map. What it says of a block that is not valid means nothing.

use crate::map::{Mapping, Place};
use openftl_core::{AddressFormat, Geometry, Ppa};

/// The table.
pub struct Owners {
    format: AddressFormat,
    blocks_per_chunk: usize,
    /// The logical block, by place. A map that is in memory has no more than 31 bits.
    owners: Vec<u32>,
}

impl Owners {
    /// Nothing is on media.
    #[must_use]
    pub fn new(geometry: &Geometry) -> Owners {
        let format = geometry.format();
        let blocks_per_chunk = geometry.blocks_per_chunk as usize;
        Owners { format, blocks_per_chunk, owners: vec![0; format.chunk_ids() * blocks_per_chunk] }
    }

    /// What follows from a map.
    pub fn load(&mut self, map: &Mapping) {
        for (block, entry) in (0..).zip(map.entries()) {
            if let Place::Media(ppa) = entry.place() {
                self.set(ppa, block);
            }
        }
    }

    #[inline]
    fn index(&self, ppa: Ppa) -> usize {
        self.format.chunk_of(ppa).0 as usize * self.blocks_per_chunk + self.format.block_of(ppa) as usize
    }

    /// Logical block `block` is being written to `ppa`.
    #[inline]
    pub fn set(&mut self, ppa: Ppa, block: u64) {
        let index = self.index(ppa);
        self.owners[index] = block as u32;
    }

    /// The logical block that was last written to `ppa`.
    #[inline]
    #[must_use]
    pub fn get(&self, ppa: Ppa) -> u64 {
        self.owners[self.index(ppa)].into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::map::Entry;

    #[test]
    fn a_loaded_map_is_turned_round() {
        let geometry = Geometry::tiny();
        let format = geometry.format();
        let chunks: Vec<_> = geometry.chunk_ids().collect();
        let (first, last) =
            (format.ppa(chunks[0], 3), format.ppa(chunks[chunks.len() - 1], geometry.blocks_per_chunk - 1));
        let mut owners = Owners::new(&geometry);
        let mut map = Mapping::new(4);
        let entries = [Entry::media(last), Entry::UNMAPPED, Entry::LOST, Entry::media(first)];
        (0..).zip(entries).for_each(|(block, entry)| map.set(block, entry));
        owners.load(&map);
        assert_eq!((owners.get(first), owners.get(last)), (3, 0));
        owners.set(first, 7);
        assert_eq!(owners.get(first), 7);
    }
}
