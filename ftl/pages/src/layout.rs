//! The area: blocks of the block FTL below that no host sees.
//!
//! ```text
//!   0         1 ···         9 ···
//!   [ anchor ][ sessions   ][ leaves of the map ]
//! ```
//!
//! | block | bytes | field |
//! |---|---|---|
//! | 0, the anchor | 0-3 | `OXPA` |
//! | | 4-5 | version 2 |
//! | | 8-15 | number of the first group that was not on media for good when this was written, or 0 |
//! | | 16-23 | number of the oldest group of the log that is needed |
//! | | 24-31 | a version that no page has, nor will one have a smaller one |
//! | | 32-39 | grains that pages may take |
//! | | 40-43 | how many chunks follow |
//! | | 44 | how leaves of the map are chosen that leave memory, in the order of the policies |
//! | | 48-55 | a version that no page has had, nor a greater one; 0: nothing is said of that |
//! | | 56-63 | bytes of memory that the map may take; 0: all leaves are in memory |
//! | | 64 | chunks that the log is in, or may be in by now, 4 bytes each |

use crate::looked::IndexMemory;
use crate::place::COUNT_MAX;
use openftl_core::{BLOCK_BYTES, ChunkId};
use openftl_parts::map::cache::CachePolicy;

/// Blocks that have what is known of sessions.
pub const SESSION_BLOCKS: u32 = 8;

/// The first block that has a leaf.
const LEAF_FIRST: u32 = 1 + SESSION_BLOCKS;

/// Blocks of the log are so many times this.
pub const LOG_STEP: u32 = 16;

/// Chunks of the log beyond those that its blocks fill: one that failed, and those that it is to go on in.
const LOG_CHUNKS_MORE: u32 = 1 + LOG_SPARES as u32;

/// The same for each of its lanes: the one of which a part is needed, and one that was left by a power cut.
const LOG_CHUNKS_OF_LANE: u32 = 2;

/// The same for each lane but the first: one that its share of the blocks fills in part.
const LOG_CHUNKS_OF_SECOND_LANE: u32 = 1;

/// Chunks that the anchor names before the log goes on in them.
pub const LOG_SPARES: usize = 2;

/// Chunks that an anchor names, at most.
pub const LOG_CHUNKS_MAX: usize = (BLOCK_BYTES - HEAD_BYTES) / size_of::<u32>();

/// Bytes of the anchor before the chunks.
const HEAD_BYTES: usize = 64;

const MAGIC: [u8; 4] = *b"OXPA";
const VERSION: u16 = 2;

/// Where everything is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    /// Blocks of the log that may be needed at a time.
    pub log_blocks: u32,
    /// Chunks in which it is written in turn.
    pub log_lanes: u32,
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
        u64::from(LEAF_FIRST + slot)
    }

    /// Chunks of so many blocks that the log may have.
    #[must_use]
    pub fn log_chunks(&self, chunk_blocks: u32) -> u32 {
        let of_lanes = self.log_lanes * LOG_CHUNKS_OF_LANE + (self.log_lanes - 1) * LOG_CHUNKS_OF_SECOND_LANE;
        self.log_blocks.div_ceil(chunk_blocks) + LOG_CHUNKS_MORE + of_lanes
    }

    /// Chunks of so many blocks that no page counts on: open ones, those that moving pages and the log may need, and those that leave.
    #[must_use]
    pub fn kept_chunks(&self, chunk_blocks: u32) -> u32 {
        self.host_chunks + 2 * self.move_chunks + 3 + self.log_chunks(chunk_blocks)
    }

    /// Chunks that are written side by side.
    #[must_use]
    pub fn written_chunks(&self) -> u32 {
        self.host_chunks + self.move_chunks + self.log_lanes
    }

    /// Blocks of the area.
    #[must_use]
    pub fn area_blocks(&self) -> u32 {
        LEAF_FIRST + self.slots
    }
}

/// What the anchor says.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Anchor {
    /// All groups before this one were on media for good when it was written; 0: nothing is said of any.
    pub durable: u64,
    /// The number of the oldest group that is needed.
    pub group: u64,
    /// No page has this version, nor will one have a smaller one.
    pub version: u64,
    /// Grains that pages may take.
    pub capacity_grains: u64,
    /// No page has had this version or a greater one, committed or not; 0: nothing is said of that.
    pub versions_end: u64,
    /// What the map may take of the memory; `None`: what it needs.
    pub memory: Option<IndexMemory>,
}

impl Anchor {
    /// As it is on media, with the chunks that the log may be in.
    pub fn write(self, chunks: &[ChunkId], block: &mut [u8; BLOCK_BYTES]) {
        block.fill(0);
        block[..4].copy_from_slice(&MAGIC);
        block[4..6].copy_from_slice(&VERSION.to_le_bytes());
        let words = [self.durable, self.group, self.version, self.capacity_grains];
        for (bytes, word) in block[8..].chunks_exact_mut(8).zip(words) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        block[40..44].copy_from_slice(&(chunks.len() as u32).to_le_bytes());
        block[48..56].copy_from_slice(&self.versions_end.to_le_bytes());
        if let Some(IndexMemory { bytes, policy }) = self.memory {
            block[44] = policy.code();
            block[56..64].copy_from_slice(&bytes.to_le_bytes());
        }
        for (bytes, chunk) in block[HEAD_BYTES..].chunks_exact_mut(size_of::<u32>()).zip(chunks) {
            bytes.copy_from_slice(&chunk.0.to_le_bytes());
        }
    }

    /// From media. `None`: it is none.
    #[must_use]
    pub fn read(block: &[u8; BLOCK_BYTES]) -> Option<(Anchor, Vec<ChunkId>)> {
        if block[..4] != MAGIC || block[4..6] != VERSION.to_le_bytes() {
            return None;
        }
        let word = |at: usize| u64::from_le_bytes(*block[at..].first_chunk().expect("8 bytes"));
        let memory = match word(56) {
            0 => None,
            bytes => Some(IndexMemory { bytes, policy: CachePolicy::from_code(block[44])? }),
        };
        let anchor = Anchor {
            memory,
            durable: word(8),
            group: word(16),
            version: word(24),
            capacity_grains: word(32),
            versions_end: word(48),
        };
        let mut halves =
            block[40..].chunks_exact(4).map(|half| u32::from_le_bytes(*half.first_chunk().expect("4 bytes")));
        let count = halves.next().expect("a block has more") as usize;
        let chunks = halves.skip((HEAD_BYTES - 44) / 4).take(count).map(ChunkId).collect();
        let is_possible = anchor.durable.max(anchor.group).max(anchor.version).max(anchor.versions_end) <= COUNT_MAX;
        (count <= LOG_CHUNKS_MAX && is_possible).then_some((anchor, chunks))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_anchor_is_read_as_it_was_written() {
        let memory = Some(IndexMemory { bytes: 1 << 20, policy: CachePolicy::TwoQueues });
        let anchor = Anchor { durable: 8, group: 7, version: 9, capacity_grains: 11, versions_end: 12, memory };
        let mut block = [1; BLOCK_BYTES];
        let chunks: Vec<ChunkId> = (7..7 + LOG_CHUNKS_MAX as u32).map(ChunkId).collect();
        for chunks in [&chunks[..0], &chunks[..3], &chunks] {
            anchor.write(chunks, &mut block);
            assert_eq!(Anchor::read(&block), Some((anchor, chunks.to_vec())));
        }
        let whole = Anchor { memory: None, ..anchor };
        whole.write(&chunks, &mut block);
        assert_eq!(Anchor::read(&block), Some((whole, chunks.clone())));
        Anchor { group: COUNT_MAX + 1, ..anchor }.write(&[], &mut block);
        assert_eq!(Anchor::read(&block), None);
        anchor.write(&[], &mut block);
        block[4] = 1;
        assert_eq!(Anchor::read(&block), None);
    }
}
