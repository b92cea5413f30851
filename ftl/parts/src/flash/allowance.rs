//! How much may be moved because it is weak: a share of what is read.

use openftl_core::Geometry;

/// Blocks that are read for each that is moved because it is weak, at least.
const READS_PER_BLOCK_MIN: i64 = 16;

/// Chunks that may be moved before that counts.
const CHUNKS_AT_ONCE: i64 = 4;

/// What may be moved now, in parts of a block: each read of a block is worth one, moving it `READS_PER_BLOCK_MIN`.
pub struct Allowance {
    left: i64,
    most: i64,
}

impl Allowance {
    /// Some chunks may be moved at once.
    pub fn new(geometry: &Geometry) -> Allowance {
        let most = CHUNKS_AT_ONCE * i64::from(geometry.blocks_per_chunk) * READS_PER_BLOCK_MIN;
        Allowance { left: most, most }
    }

    /// So many blocks are read to whoever wanted them.
    #[inline]
    pub fn earn(&mut self, blocks: usize) {
        self.left = (self.left + blocks as i64).min(self.most);
    }

    /// So many blocks are moved.
    pub fn spend(&mut self, blocks: u32) {
        self.left -= READS_PER_BLOCK_MIN * i64::from(blocks);
    }

    /// Whether anything may be moved now.
    pub fn is_left(&self) -> bool {
        self.left > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_moved_for_every_sixteenth_that_is_read_and_nothing_is_saved_up() {
        let geometry = Geometry::tiny();
        let mut allowance = Allowance::new(&geometry);
        let at_once = CHUNKS_AT_ONCE as u32 * geometry.blocks_per_chunk;
        allowance.earn(1_000_000);
        allowance.spend(at_once - 1);
        assert!(allowance.is_left());
        allowance.spend(1);
        assert!(!allowance.is_left(), "what was read before counts for so much and no more");
        allowance.spend(1);
        allowance.earn(READS_PER_BLOCK_MIN as usize);
        assert!(!allowance.is_left());
        allowance.earn(1);
        assert!(allowance.is_left());
    }
}
