//! Blocks of a victim that are lost, and those that do not count any more.
//!
//! What cannot be read costs one block: another that says so ([`BlockKind::Lost`]) moves in its stead. The map alone knows which logical
//! block that is: it is gone through, once for a chunk; of a map on media the pages are read
//! ([`crate::map_pages`]).

use super::relocation::NOBODY;
use crate::block_ftl::BlockFtl;
use crate::map_pages::LostBlock;
use openftl_core::{Frame, Ppa};
use openftl_parts::flash::oob::{BlockKind, Oob};
use openftl_parts::map::{Entry, Map, Place};

impl BlockFtl {
    /// Logical block `block` has changed, and its place `ppa` counted until now: it counts no more.
    pub(super) fn drop_stale(&mut self, block: u64, ppa: Ppa) {
        let Map::Paged(map) = &mut self.map else { unreachable!("a map in memory has no stale blocks") };
        map.drop_stale(block);
        self.flash.chunks.invalidate(ppa);
        // Collection counted it as one to be moved, and it is room instead.
        self.transactions.earn(self.earned_by(1, 1));
    }

    /// The valid block at `ppa`, logical block `block`, cannot be read, or is not what the map has there: `frame` says so in its
    /// stead.
    pub(super) fn give_up(&mut self, block: u64, ppa: Ppa, frame: Frame) {
        self.flash.statistics.read_failures += 1;
        self.flash.statistics.lost_blocks += 1;
        if let Map::Whole(_) = self.map {
            let is_here = self.buffer.base(&self.map, block) == Entry::media(ppa);
            assert!(is_here, "a valid block is what the map has of one logical block");
        }
        self.flash.frames.zero(frame);
        // Newer than the version that is lost, and older than any that is still to be committed.
        let sequence = self.buffer.committed().saturating_sub(1);
        Oob { kind: BlockKind::Lost, address: block, sequence }.seal(&mut self.flash.frames, frame);
    }

    /// The block of a victim at `from` is lost: what says so moves in its stead.
    pub(crate) fn move_lost(&mut self, group: u32, block: u64, from: Ppa, frame: Frame) {
        self.give_up(block, from, frame);
        self.move_block(group, block, from, frame);
    }

    /// The block of a victim in `frame` is not needed.
    pub(crate) fn drop_lost(&mut self, LostBlock { group, from, frame }: LostBlock) {
        self.collection.frames.push(frame);
        self.block_settled(group, self.flash.format.chunk_of(from), 1);
    }

    /// The logical block at `ppa`, if that can be said without reading map pages.
    pub(super) fn owner_of(&mut self, group: u32, ppa: Ppa) -> Option<u64> {
        match (&self.owners, &self.map) {
            (Some(owners), _) => Some(owners.get(ppa)),
            (None, Map::Whole(_)) => Some(self.search_owner(group, ppa)),
            (None, Map::Paged(map)) => map.changes().at(Entry::media(ppa)),
        }
    }

    /// The logical block at `ppa`, which cannot say it. Only the map knows, and it has to be gone through, once for a chunk.
    pub(super) fn search_owner(&mut self, group: u32, ppa: Ppa) -> u64 {
        let chunk = self.flash.format.chunk_of(ppa);
        let (format, mapping, buffer) = (self.flash.format, &self.map, &self.buffer);
        let victims = &mut self.collection.groups[group as usize].victims;
        let victim = victims.iter_mut().find(|victim| victim.chunk == chunk).expect("it is being read");
        let owners = victim.owners.get_or_insert_with(|| {
            let mut owners = vec![NOBODY; self.flash.geometry.blocks_per_chunk as usize];
            for block in 0..mapping.blocks() {
                if let Place::Media(ppa) = buffer.base(mapping, block).place()
                    && format.chunk_of(ppa) == chunk
                {
                    owners[format.block_of(ppa) as usize] = block;
                }
            }
            owners
        });
        owners[format.block_of(ppa) as usize]
    }
}
