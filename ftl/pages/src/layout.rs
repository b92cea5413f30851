//! The area: blocks of the block FTL below that no host sees.
//!
//! ```text
//!   0         1 ···         9 ···                      ···
//!   [ anchor ][ sessions   ][ ring: what was committed ][ leaves of the map ]
//! ```
//!
//! | block | bytes | field |
//! |---|---|---|
//! | 0, the anchor | 0-3 | `OXPA` |
//! | | 4-5 | version 1 |
//! | | 8-15 | block of the ring, counted from its beginning and never back, that the oldest group begins in |
//! | | 16-23 | number of that group |
//! | | 24-31 | a version that no page has, nor will one have a smaller one |
//! | | 32-39 | grains that pages may take |

use openftl_core::BLOCK_BYTES;

/// Blocks that have what is known of sessions.
pub const SESSION_BLOCKS: u32 = 8;

/// The first block of the ring.
pub const RING_FIRST: u32 = 1 + SESSION_BLOCKS;

/// Blocks of the ring are so many times this.
pub const RING_STEP: u32 = 16;

const MAGIC: [u8; 4] = *b"OXPA";
const VERSION: u16 = 1;

/// Where everything is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    /// Blocks of the ring.
    pub ring_blocks: u32,
    /// Leaves that there is room for.
    pub slots: u32,
    /// Chunks that are written side by side with what hosts put, and with what moves.
    pub host_chunks: u32,
    /// See above.
    pub move_chunks: u32,
}

impl Layout {
    /// The block of a slot.
    #[must_use]
    pub fn slot_block(&self, slot: u32) -> u64 {
        u64::from(RING_FIRST + self.ring_blocks + slot)
    }

    /// Chunks that no page counts on: open ones, those that moving pages may need, and those that leave.
    #[must_use]
    pub fn kept_chunks(&self) -> u32 {
        self.host_chunks + 2 * self.move_chunks + 3
    }

    /// Blocks of the area.
    #[must_use]
    pub fn area_blocks(&self) -> u32 {
        RING_FIRST + self.ring_blocks + self.slots
    }
}

/// What the anchor says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Anchor {
    /// Where the oldest group begins that is needed.
    pub tail: u64,
    /// Its number.
    pub group: u64,
    /// No page has this version, nor will one have a smaller one.
    pub version: u64,
    /// Grains that pages may take.
    pub capacity_grains: u64,
}

impl Anchor {
    /// As it is on media.
    pub fn write(self, block: &mut [u8; BLOCK_BYTES]) {
        block.fill(0);
        block[..4].copy_from_slice(&MAGIC);
        block[4..6].copy_from_slice(&VERSION.to_le_bytes());
        let words = [self.tail, self.group, self.version, self.capacity_grains];
        for (bytes, word) in block[8..].chunks_exact_mut(8).zip(words) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
    }

    /// From media. `None`: it is none.
    #[must_use]
    pub fn read(block: &[u8; BLOCK_BYTES]) -> Option<Anchor> {
        if block[..4] != MAGIC || block[4..6] != VERSION.to_le_bytes() {
            return None;
        }
        let mut words =
            block[8..].chunks_exact(8).map(|word| u64::from_le_bytes(*word.first_chunk().expect("8 bytes")));
        let mut next = || words.next().expect("a block has 511 words");
        Some(Anchor { tail: next(), group: next(), version: next(), capacity_grains: next() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_anchor_is_read_as_it_was_written() {
        let anchor = Anchor { tail: 1 << 40, group: 7, version: 9, capacity_grains: 11 };
        let mut block = [1; BLOCK_BYTES];
        anchor.write(&mut block);
        assert_eq!(Anchor::read(&block), Some(anchor));
        block[4] = 2;
        assert_eq!(Anchor::read(&block), None);
    }
}
