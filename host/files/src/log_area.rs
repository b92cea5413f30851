//! Which blocks of the log area are free.
//!
//! A file grows by extents, each twice as long as the one before up to [`EXTENT_BLOCKS_MAX`], so that a small one takes little and
//! a long one has few. The search goes on where the last one ended: what is written one after the other lies so, and what was
//! freed rests longest.

use crate::note::LogExtent;

/// The first extent of a file in blocks.
pub const EXTENT_BLOCKS_MIN: u32 = 4;
/// The longest.
pub const EXTENT_BLOCKS_MAX: u32 = 1024;

/// The blocks of the log area.
pub struct LogArea {
    taken: Vec<bool>,
    free: u32,
    next: u32,
}

impl LogArea {
    /// All `blocks` are free.
    #[must_use]
    pub fn new(blocks: u32) -> LogArea {
        LogArea { taken: vec![false; blocks as usize], free: blocks, next: 0 }
    }

    /// Blocks that are free.
    #[must_use]
    pub fn free(&self) -> u32 {
        self.free
    }

    /// Blocks of the area.
    #[must_use]
    pub fn blocks(&self) -> u32 {
        self.taken.len() as u32
    }

    /// Marks an extent as taken that was found when the drive was opened. Returns false if it cannot be: it is beyond the end, or
    /// taken.
    #[must_use]
    pub fn adopt(&mut self, extent: LogExtent) -> bool {
        let Some(end) = extent.first.checked_add(extent.blocks) else { return false };
        let Some(blocks) = self.taken.get_mut(extent.first as usize..end as usize) else { return false };
        if blocks.iter().any(|taken| *taken) {
            return false;
        }
        blocks.fill(true);
        self.free -= extent.blocks;
        true
    }

    /// Takes up to `wanted` blocks that follow each other: the first free ones after those taken last, however few they are.
    /// `None` if nothing is free.
    pub fn take(&mut self, wanted: u32) -> Option<LogExtent> {
        if self.free == 0 {
            return None;
        }
        let count = self.blocks();
        let is_free = |block: &u32| !self.taken[*block as usize];
        let first = (self.next..count).chain(0..self.next).find(is_free)?;
        let end = (first..count.min(first.saturating_add(wanted))).take_while(is_free).last()? + 1;
        self.taken[first as usize..end as usize].fill(true);
        self.free -= end - first;
        self.next = end % count;
        Some(LogExtent { first, blocks: end - first })
    }

    /// Gives an extent back.
    pub fn give(&mut self, extent: LogExtent) {
        let blocks = &mut self.taken[extent.first as usize..][..extent.blocks as usize];
        debug_assert!(blocks.iter().all(|taken| *taken), "{extent:?} was given back twice");
        blocks.fill(false);
        self.free += extent.blocks;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_follows_what_was_taken_and_comes_round() {
        let mut area = LogArea::new(10);
        let extent = |first, blocks| Some(LogExtent { first, blocks });
        assert_eq!(area.take(4), extent(0, 4));
        assert_eq!(area.take(4), extent(4, 4));
        area.give(LogExtent { first: 0, blocks: 4 });
        assert_eq!(area.take(4), extent(8, 2), "as many as follow each other");
        assert_eq!(area.take(9), extent(0, 4));
        assert_eq!(area.take(1), None);
        area.give(LogExtent { first: 5, blocks: 2 });
        assert_eq!((area.take(9), area.free()), (extent(5, 2), 0));
    }

    #[test]
    fn an_extent_is_adopted_once_and_only_inside() {
        let mut area = LogArea::new(10);
        assert!(area.adopt(LogExtent { first: 2, blocks: 3 }));
        assert!(!area.adopt(LogExtent { first: 4, blocks: 1 }));
        assert!(!area.adopt(LogExtent { first: 8, blocks: 3 }));
        assert!(!area.adopt(LogExtent { first: 8, blocks: u32::MAX }));
        assert_eq!(area.free(), 7);
    }
}
