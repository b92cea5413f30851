//! What a host does with blocks: a mix of everything.

use crate::drive::Drive;
use crate::played::Played;
use crate::world::World;
use openftl_parts::{Durability, Extent, Handle, PlacementName};

impl<D: Drive> World<D> {
    /// A range of up to `most` blocks, drawn from the seed.
    pub fn range(&mut self, most: u64) -> (u64, u64) {
        let blocks = 1 + self.below(most.min(self.blocks()));
        let first = self.below(self.blocks() - blocks + 1);
        (first, blocks)
    }

    /// One more request of a mix of all kinds; on a drive that heeds them with handles and objects.
    pub fn submit_any(&mut self) {
        if self.config.placement.heeds_handles() {
            self.handle = Handle(self.below(u64::from(self.config.handles) + 2) as u8);
        } else if self.config.placement == PlacementName::FlashAlloc && self.below(8) == 0 {
            let (first, blocks) = self.range(60);
            self.submit_flash_alloc(&[Extent { first, blocks }]);
        }
        match self.below(100) {
            0..60 => {
                let (first, blocks) = self.range(12);
                self.submit_write(first, blocks, Durability::Volatile);
            }
            60..64 => {
                let (first, blocks) = self.range(256);
                self.submit_write(first, blocks, Durability::Volatile);
            }
            64..67 => {
                let (first, blocks) = self.range(4);
                self.submit_write(first, blocks, Durability::Durable);
            }
            67..71 => {
                let (first, blocks) = self.range(40);
                self.submit_trim(first, blocks, Durability::Volatile);
            }
            71 => {
                let (first, blocks) = self.range(40);
                self.submit_trim(first, blocks, Durability::Durable);
            }
            72..75 => {
                self.submit_flush();
            }
            75..78 => {
                let (first, blocks) = self.range(16);
                self.submit_write_uncorrectable(first, blocks, Durability::Volatile);
            }
            78 => {
                let (first, blocks) = self.range(16);
                self.submit_write_uncorrectable(first, blocks, Durability::Durable);
            }
            _ => {
                let (first, blocks) = self.range(16);
                self.submit_read(first, blocks);
            }
        }
    }

    /// One more request, with up to `depth` under way.
    pub fn operation(&mut self, depth: usize) {
        self.submit_any();
        while self.requests_under_way() >= depth {
            self.pump();
        }
    }
}
