//! The ring of blocks that mutations are written to, and how much of it is needed.

use crate::record::{GROUP_HEAD_BYTES, group_blocks};
use openftl_core::BLOCK_BYTES;
use openftl_parts::words::TRANSACTION_BLOCKS_MAX;
use std::collections::VecDeque;

/// Records that are written as one transaction.
pub struct Group {
    /// The records.
    pub records: Vec<u8>,
    /// The last mutation of which all is in them, or in groups before.
    pub last: u64,
}

/// See the module. Blocks are counted from the beginning of the drive's life, and never back.
pub struct Ring {
    blocks: u32,
    /// Where the next group goes, and where the oldest one that is needed begins.
    pub head: u64,
    /// See above.
    pub tail: u64,
    /// The number of the next group.
    pub next_group: u64,
    /// Records that are being gathered.
    pub gathered: Vec<u8>,
    /// The last mutation of which all is in them, or before.
    pub gathered_last: u64,
    /// Groups that are to be written.
    pub ready: VecDeque<Group>,
}

impl Ring {
    /// An empty one of so many blocks.
    #[must_use]
    pub fn new(blocks: u32) -> Ring {
        Ring { blocks, head: 0, tail: 0, next_group: 1, gathered: Vec::new(), gathered_last: 0, ready: VecDeque::new() }
    }

    /// Bytes of the records of a group, at most.
    #[must_use]
    pub fn group_bytes_max(&self) -> usize {
        let blocks = (self.blocks as usize / 8).min(TRANSACTION_BLOCKS_MAX);
        blocks * BLOCK_BYTES - GROUP_HEAD_BYTES
    }

    /// All its bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.blocks as usize * BLOCK_BYTES
    }

    /// Whether so much of it is needed that a checkpoint is due.
    #[must_use]
    pub fn is_long(&self) -> bool {
        (self.head - self.tail) * 2 > u64::from(self.blocks)
    }

    /// Where a group of so many blocks goes that comes next after `head`.
    #[must_use]
    pub fn place(&self, head: u64, blocks: u32) -> u64 {
        let within = head % u64::from(self.blocks);
        if within + u64::from(blocks) > u64::from(self.blocks) { head - within + u64::from(self.blocks) } else { head }
    }

    /// The block of the ring that has a place.
    #[must_use]
    pub fn block(&self, place: u64) -> u64 {
        place % u64::from(self.blocks)
    }

    /// Where the next group that is ready goes, if there is room for it.
    #[must_use]
    pub fn room(&self) -> Option<(u64, u32)> {
        let blocks = group_blocks(self.ready.front()?.records.len());
        let place = self.place(self.head, blocks);
        (place + u64::from(blocks) <= self.tail + u64::from(self.blocks)).then_some((place, blocks))
    }

    /// Ends the group that is being gathered, if there is anything in it.
    pub fn close(&mut self) -> bool {
        if self.gathered.is_empty() {
            return false;
        }
        self.ready.push_back(Group { records: std::mem::take(&mut self.gathered), last: self.gathered_last });
        true
    }
}
