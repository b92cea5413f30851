//! The space of a file system: whole files in as few extents as can be had, found as ext4 finds them.
//!
//! ```text
//!   ▐aaaa│    │bb│cccccc│  │dd▌     the next search begins where the last one ended (next fit), goes round once, and takes
//!            ▲                     the first free extent with room for all of the file. If there is none, the longest
//!            └ cursor              free extent holds the first part of it, and so on: the file is in fragments.
//! ```

use crate::load::{Access, Hint, Operation};
use openftl_parts::target::Extent;
use std::collections::BTreeMap;

/// Which blocks no file has.
#[derive(Clone, Debug)]
pub(super) struct Space {
    /// Free extents by their first block; no two touch.
    free: BTreeMap<u64, u64>,
    cursor: u64,
    used: u64,
}

impl Space {
    pub fn new(blocks: u64) -> Space {
        Space { free: BTreeMap::from([(0, blocks)]), cursor: 0, used: 0 }
    }

    /// Blocks that files have.
    pub fn used(&self) -> u64 {
        self.used
    }

    /// Extents for a file of so many blocks, in the order in which they are written.
    ///
    /// # Panics
    /// If fewer are free.
    pub fn allocate(&mut self, blocks: u64) -> Vec<Extent> {
        let mut extents = Vec::with_capacity(1);
        let mut left = blocks;
        while left > 0 {
            let extent = self.fit(left).or_else(|| self.longest()).expect("a file was promised more than is free");
            let extent = Extent { blocks: extent.blocks.min(left), ..extent };
            self.take(extent);
            left -= extent.blocks;
            extents.push(extent);
        }
        self.used += blocks;
        extents
    }

    /// The first free extent with room for so many blocks, from the cursor on and once round.
    fn fit(&self, blocks: u64) -> Option<Extent> {
        let around = self.free.range(..self.cursor).next_back();
        let around = around.map(|(&first, &length)| (self.cursor, (first + length).saturating_sub(self.cursor)));
        let extents = |range: (&u64, &u64)| (*range.0, *range.1);
        let ahead = self.free.range(self.cursor..).map(extents);
        let behind = self.free.range(..self.cursor).map(extents);
        let mut round = around.into_iter().chain(ahead).chain(behind);
        round.find(|(_, length)| *length >= blocks).map(|(first, blocks)| Extent { first, blocks })
    }

    fn longest(&self) -> Option<Extent> {
        let longest = self.free.iter().max_by_key(|(_, length)| **length);
        longest.map(|(&first, &blocks)| Extent { first, blocks })
    }

    fn take(&mut self, taken: Extent) {
        let (&first, &length) = self.free.range(..=taken.first).next_back().expect("it was free");
        self.free.remove(&first);
        if first < taken.first {
            self.free.insert(first, taken.first - first);
        }
        if taken.end() < first + length {
            self.free.insert(taken.end(), first + length - taken.end());
        }
        self.cursor = taken.end();
    }

    /// An extent that a file no longer has.
    pub fn release(&mut self, released: Extent) {
        let Extent { mut first, mut blocks } = released;
        if let Some((&before, &length)) = self.free.range(..first).next_back()
            && before + length == first
        {
            self.free.remove(&before);
            (first, blocks) = (before, blocks + length);
        }
        if let Some(length) = self.free.remove(&released.end()) {
            blocks += length;
        }
        self.free.insert(first, blocks);
        self.used -= released.blocks;
    }
}

/// A file, while it is written from its first block to its last.
#[derive(Clone, Debug)]
pub(super) struct File {
    pub extents: Vec<Extent>,
    pub blocks: u32,
    pub hint: Hint,
    /// The extent that is written, and how much of it was.
    at: usize,
    offset: u64,
}

impl File {
    pub fn new(extents: Vec<Extent>, hint: Hint) -> File {
        let blocks = extents.iter().map(|extent| extent.blocks).sum::<u64>() as u32;
        File { extents, blocks, hint, at: 0, offset: 0 }
    }

    pub fn is_written(&self) -> bool {
        self.at == self.extents.len()
    }

    /// Says that it is about to be written; where it is, [`crate::Load::extents`] tells.
    pub fn allocate(&self) -> Access {
        let first = self.extents[0].first;
        Access { operation: Operation::Allocate, first, blocks: self.blocks, hint: self.hint }
    }

    /// The next of its blocks, in one extent.
    pub fn write(&mut self, blocks_max: u32) -> Access {
        let extent = self.extents[self.at];
        let first = extent.first + self.offset;
        let blocks = (extent.end() - first).min(u64::from(blocks_max));
        self.offset += blocks;
        if self.offset == extent.blocks {
            (self.at, self.offset) = (self.at + 1, 0);
        }
        Access { operation: Operation::Write, first, blocks: blocks as u32, hint: self.hint }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extents(of: &[(u64, u64)]) -> Vec<Extent> {
        of.iter().map(|&(first, blocks)| Extent { first, blocks }).collect()
    }

    #[test]
    fn the_next_file_begins_where_the_last_one_ended_and_the_search_goes_round() {
        let mut space = Space::new(100);
        assert_eq!(space.allocate(40), extents(&[(0, 40)]));
        assert_eq!(space.allocate(40), extents(&[(40, 40)]));
        space.release(Extent { first: 0, blocks: 40 });
        assert_eq!(space.allocate(10), extents(&[(80, 10)]), "not in the room of the first one");
        assert_eq!(space.allocate(15), extents(&[(0, 15)]), "what is left behind is too short");
        assert_eq!(space.used(), 65);
        space.release(Extent { first: 80, blocks: 10 });
        space.release(Extent { first: 0, blocks: 15 });
        space.release(Extent { first: 40, blocks: 40 });
        assert_eq!(space.allocate(85), extents(&[(15, 85)]), "released extents that touch are one");
    }

    #[test]
    fn a_file_that_fits_nowhere_is_in_fragments_the_longest_first() {
        let mut space = Space::new(60);
        let files: Vec<Vec<Extent>> = (0..6).map(|_| space.allocate(10)).collect();
        for index in [0, 2, 3, 5] {
            space.release(files[index][0]);
        }
        let mut file = File::new(space.allocate(35), Hint::default());
        assert_eq!(file.extents, extents(&[(20, 20), (50, 10), (0, 5)]));
        let mut written = Vec::new();
        while !file.is_written() {
            let access = file.write(16);
            written.push((access.first, access.blocks));
        }
        assert_eq!(written, [(20, 16), (36, 4), (50, 10), (0, 5)], "no write goes across the end of an extent");
        assert_eq!(space.used(), 55);
    }
}
