//! What the FTL knows of each chunk: its state, which of its blocks are valid, how often it was reset.
//!
//! ```text
//!            provision            full                 chosen            all moved, log durable
//!   FREE ─────────────▶ OPEN ─────────────▶ CLOSED ─────────────▶ VICTIM ─────────────▶ RESETTING
//!     ▲                  │ log, checkpoint,                                                 │
//!     │                  ▼ superblock                                                       │
//!     │               METADATA ──── no longer needed ──────────────────────────────────────▶│
//!     └─────────────────────────────────── reset ───────────────────────────────────────────┤
//!                                                                            RETIRED ◀── reset failed
//! ```
//!
//! Closed chunks hang in lists by the number of their valid blocks, one array of lists a group, so that the greedy
//! victim is found without a search and an invalidated block costs one relinking.

use crate::victim::{Candidate, VictimPolicy};
use openftl_core::{AddressFormat, ChunkId, Geometry, Ppa};
use std::cell::Cell;

/// The state of a chunk.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ChunkUse {
    /// Not of this device (a hole of the sparse address space), offline, or retired.
    Retired,
    /// Reset, ready to be opened.
    Free,
    /// Being written with data.
    Open,
    /// Full of data; a candidate for collection once all its blocks are committed.
    Closed,
    /// Being collected.
    Victim,
    /// Nothing in it is needed; waits for its reset, or is being reset.
    Resetting,
    /// Log, checkpoint or superblock.
    Metadata,
    /// Holds valid data that cannot be read: kept as it is, so that the loss stays visible.
    Stuck,
}

const NONE: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct Chunk {
    valid: u32,
    /// Blocks placed here whose transaction is not committed yet.
    pending: u32,
    /// Neighbours in the list of chunks with as many valid blocks.
    before: u32,
    after: u32,
    resets: u32,
    /// Host blocks written when the chunk was closed.
    closed_at: u64,
    usage: ChunkUse,
    listed: bool,
    /// A program failed here: retire it once its data has moved.
    suspect: bool,
}

/// The table.
pub struct ChunkTable {
    format: AddressFormat,
    blocks_per_chunk: u32,
    words_per_chunk: usize,
    group_shift: u32,
    chunks: Vec<Chunk>,
    valid: Vec<u64>,
    /// First chunk of each list: `lists[group][valid blocks]`.
    lists: Vec<Vec<u32>>,
    /// No list below this one has a chunk, by group.
    lowest: Vec<Cell<u32>>,
}

impl ChunkTable {
    /// A table in which every chunk of the device is free and every hole of its address space retired.
    #[must_use]
    pub fn new(geometry: &Geometry) -> ChunkTable {
        let format = geometry.format();
        let words_per_chunk = (geometry.blocks_per_chunk as usize).div_ceil(64);
        let empty = Chunk {
            valid: 0,
            pending: 0,
            before: NONE,
            after: NONE,
            resets: 0,
            closed_at: 0,
            usage: ChunkUse::Retired,
            listed: false,
            suspect: false,
        };
        let mut chunks = vec![empty; format.chunk_ids()];
        for chunk in geometry.chunk_ids() {
            chunks[chunk.0 as usize].usage = ChunkUse::Free;
        }
        let groups = geometry.groups as usize;
        ChunkTable {
            format,
            blocks_per_chunk: geometry.blocks_per_chunk,
            words_per_chunk,
            group_shift: u32::from(format.chunk_bits + format.pu_bits),
            valid: vec![0; chunks.len() * words_per_chunk],
            chunks,
            lists: vec![vec![NONE; geometry.blocks_per_chunk as usize + 1]; groups],
            lowest: vec![Cell::new(geometry.blocks_per_chunk); groups],
        }
    }

    /// What `chunk` is used for.
    #[must_use]
    pub fn usage(&self, chunk: ChunkId) -> ChunkUse {
        self.chunks[chunk.0 as usize].usage
    }

    /// Valid blocks of `chunk`.
    #[must_use]
    pub fn valid(&self, chunk: ChunkId) -> u32 {
        self.chunks[chunk.0 as usize].valid
    }

    /// Resets of `chunk` by this FTL.
    #[must_use]
    pub fn resets(&self, chunk: ChunkId) -> u32 {
        self.chunks[chunk.0 as usize].resets
    }

    /// Sets the number of resets, from a checkpoint.
    pub fn set_resets(&mut self, chunk: ChunkId, resets: u32) {
        self.chunks[chunk.0 as usize].resets = resets;
    }

    /// Whether a program failed in `chunk`.
    #[must_use]
    pub fn is_suspect(&self, chunk: ChunkId) -> bool {
        self.chunks[chunk.0 as usize].suspect
    }

    /// Remembers that a program failed in `chunk`.
    pub fn suspect(&mut self, chunk: ChunkId) {
        self.chunks[chunk.0 as usize].suspect = true;
    }

    /// Changes what `chunk` is used for. `written` is the number of host blocks written so far, the clock of ages.
    pub fn set_usage(&mut self, chunk: ChunkId, usage: ChunkUse, written: u64) {
        self.unlist(chunk);
        let entry = &mut self.chunks[chunk.0 as usize];
        entry.usage = usage;
        match usage {
            ChunkUse::Closed => {
                entry.closed_at = written;
                self.list_if_candidate(chunk);
            }
            ChunkUse::Free => {
                assert!(entry.valid == 0 && entry.pending == 0, "a chunk with valid blocks is not free");
                entry.suspect = false;
            }
            _ => {}
        }
    }

    /// Counts one more reset.
    pub fn count_reset(&mut self, chunk: ChunkId) {
        let resets = &mut self.chunks[chunk.0 as usize].resets;
        *resets = resets.saturating_add(1);
    }

    /// `blocks` of `chunk` are placed: they count as neither valid nor invalid until they are committed.
    #[inline]
    pub fn place(&mut self, chunk: ChunkId, blocks: u32) {
        self.chunks[chunk.0 as usize].pending += blocks;
    }

    /// A placed block is committed and valid from now on.
    #[inline]
    pub fn commit(&mut self, ppa: Ppa) {
        self.set_valid(ppa);
        self.drop_pending(self.format.chunk_of(ppa));
    }

    /// A placed block will not be committed: its program failed, or it was overtaken while it moved.
    #[inline]
    pub fn abandon(&mut self, ppa: Ppa) {
        self.drop_pending(self.format.chunk_of(ppa));
    }

    #[inline]
    fn drop_pending(&mut self, chunk: ChunkId) {
        let entry = &mut self.chunks[chunk.0 as usize];
        debug_assert!(entry.pending > 0, "a committed block was placed");
        entry.pending -= 1;
        if entry.pending == 0 && entry.usage == ChunkUse::Closed && !entry.listed {
            self.list(chunk);
        }
    }

    /// Marks a block valid without it having been placed: while a map is loaded.
    #[inline]
    pub fn set_valid(&mut self, ppa: Ppa) {
        let chunk = self.format.chunk_of(ppa);
        let block = self.format.block_of(ppa) as usize;
        let word = &mut self.valid[chunk.0 as usize * self.words_per_chunk + block / 64];
        debug_assert!(*word & (1 << (block % 64)) == 0, "block {block} of {chunk:?} is already valid");
        *word |= 1 << (block % 64);
        self.chunks[chunk.0 as usize].valid += 1;
        debug_assert!(!self.chunks[chunk.0 as usize].listed, "a candidate has no placed blocks");
    }

    /// No block is valid: before another map is loaded.
    pub(crate) fn forget_valid(&mut self) {
        self.valid.fill(0);
        for chunk in &mut self.chunks {
            chunk.valid = 0;
        }
    }

    /// A valid block is valid no more.
    #[inline]
    pub fn invalidate(&mut self, ppa: Ppa) {
        let chunk = self.format.chunk_of(ppa);
        let block = self.format.block_of(ppa) as usize;
        let word = &mut self.valid[chunk.0 as usize * self.words_per_chunk + block / 64];
        debug_assert!(*word & (1 << (block % 64)) != 0, "block {block} of {chunk:?} is not valid");
        *word &= !(1 << (block % 64));
        let listed = self.chunks[chunk.0 as usize].listed;
        if listed {
            self.unlist(chunk);
        }
        let entry = &mut self.chunks[chunk.0 as usize];
        entry.valid -= 1;
        let healed = entry.usage == ChunkUse::Stuck && entry.valid == 0;
        if healed {
            // What was lost in it has been replaced: it can be collected like any other.
            entry.usage = ChunkUse::Closed;
        }
        if listed || healed {
            self.list(chunk);
        }
    }

    /// Whether `ppa` is valid.
    #[must_use]
    pub fn is_valid(&self, ppa: Ppa) -> bool {
        let (chunk, block) = (self.format.chunk_of(ppa), self.format.block_of(ppa) as usize);
        self.valid[chunk.0 as usize * self.words_per_chunk + block / 64] & (1 << (block % 64)) != 0
    }

    /// The next valid block of `chunk` from `block` on.
    #[inline]
    #[must_use]
    pub fn next_valid(&self, chunk: ChunkId, block: u32) -> Option<u32> {
        if block >= self.blocks_per_chunk {
            return None;
        }
        let words = &self.valid[chunk.0 as usize * self.words_per_chunk..][..self.words_per_chunk];
        let mut index = block as usize / 64;
        let mut word = words[index] & (u64::MAX << (block % 64));
        loop {
            if word != 0 {
                return Some(index as u32 * 64 + word.trailing_zeros());
            }
            index += 1;
            word = *words.get(index)?;
        }
    }

    /// Valid blocks of `chunk` from `block` on.
    #[must_use]
    pub fn valid_from(&self, chunk: ChunkId, block: u32) -> u32 {
        let words = &self.valid[chunk.0 as usize * self.words_per_chunk..][..self.words_per_chunk];
        let Some(first) = words.get(block as usize / 64) else { return 0 };
        let rest: u32 = words[block as usize / 64 + 1..].iter().map(|word| word.count_ones()).sum();
        (first & (u64::MAX << (block % 64))).count_ones() + rest
    }

    /// The victim of `group` by `policy`, with its number of valid blocks, or `None` where nothing would be gained.
    #[must_use]
    pub fn victim(&self, group: u32, policy: VictimPolicy, written: u64) -> Option<ChunkId> {
        let blocks = self.blocks_per_chunk;
        let lists = &self.lists[group as usize];
        let mut lowest = self.lowest[group as usize].get();
        while lowest < blocks && lists[lowest as usize] == NONE {
            lowest += 1;
        }
        self.lowest[group as usize].set(lowest);
        if policy == VictimPolicy::Greedy {
            return (lowest < blocks).then(|| ChunkId(lists[lowest as usize]));
        }
        let mut best: Option<(u64, ChunkId)> = None;
        for first in &lists[lowest as usize..blocks as usize] {
            let mut next = *first;
            while next != NONE {
                let chunk = &self.chunks[next as usize];
                let candidate = Candidate { valid: chunk.valid, blocks, age: written - chunk.closed_at };
                if let Some(worth) = policy.worth(candidate)
                    && best.is_none_or(|(other, _)| worth > other)
                {
                    best = Some((worth, ChunkId(next)));
                }
                next = chunk.after;
            }
        }
        best.map(|(_, chunk)| chunk)
    }

    fn list_if_candidate(&mut self, chunk: ChunkId) {
        let entry = &self.chunks[chunk.0 as usize];
        if entry.usage == ChunkUse::Closed && entry.pending == 0 && !entry.listed {
            self.list(chunk);
        }
    }

    fn list(&mut self, chunk: ChunkId) {
        let group = chunk.0 >> self.group_shift;
        let valid = self.chunks[chunk.0 as usize].valid;
        let first = &mut self.lists[group as usize][valid as usize];
        let after = std::mem::replace(first, chunk.0);
        if after != NONE {
            self.chunks[after as usize].before = chunk.0;
        }
        let entry = &mut self.chunks[chunk.0 as usize];
        (entry.before, entry.after, entry.listed) = (NONE, after, true);
        let lowest = &self.lowest[group as usize];
        lowest.set(lowest.get().min(valid));
    }

    fn unlist(&mut self, chunk: ChunkId) {
        let entry = &mut self.chunks[chunk.0 as usize];
        if !entry.listed {
            return;
        }
        entry.listed = false;
        let (before, after, valid) = (entry.before, entry.after, entry.valid);
        if before == NONE {
            self.lists[(chunk.0 >> self.group_shift) as usize][valid as usize] = after;
        } else {
            self.chunks[before as usize].after = after;
        }
        if after != NONE {
            self.chunks[after as usize].before = before;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn closed_with(table: &mut ChunkTable, chunk: ChunkId, valid: &[u32]) {
        let format = Geometry::tiny().format();
        for block in valid {
            table.set_valid(format.ppa(chunk, *block));
        }
        table.set_usage(chunk, ChunkUse::Closed, 0);
    }

    #[test]
    fn the_greedy_victim_is_the_emptiest_also_after_invalidations() {
        let geometry = Geometry::tiny();
        let format = geometry.format();
        let mut table = ChunkTable::new(&geometry);
        let chunks: Vec<ChunkId> = geometry.chunk_ids().take(3).collect();
        closed_with(&mut table, chunks[0], &[0, 1, 2]);
        closed_with(&mut table, chunks[1], &[0, 1, 2, 3]);
        closed_with(&mut table, chunks[2], &(0..16).collect::<Vec<_>>());
        assert_eq!(table.victim(0, VictimPolicy::Greedy, 0), Some(chunks[0]));
        table.invalidate(format.ppa(chunks[1], 1));
        table.invalidate(format.ppa(chunks[1], 3));
        assert_eq!(table.victim(0, VictimPolicy::Greedy, 0), Some(chunks[1]));
        table.set_usage(chunks[1], ChunkUse::Victim, 0);
        assert_eq!(table.victim(0, VictimPolicy::Greedy, 0), Some(chunks[0]));
        table.set_usage(chunks[0], ChunkUse::Victim, 0);
        assert_eq!(table.victim(0, VictimPolicy::Greedy, 0), None, "a full chunk is no victim");
        assert_eq!(table.victim(1, VictimPolicy::Greedy, 0), None, "nothing is closed in the other group");
    }

    #[test]
    fn a_chunk_with_uncommitted_blocks_is_no_candidate() {
        let geometry = Geometry::tiny();
        let mut table = ChunkTable::new(&geometry);
        let chunk = geometry.chunk_ids().next().unwrap();
        table.place(chunk, 1);
        table.set_usage(chunk, ChunkUse::Closed, 0);
        assert_eq!(table.victim(0, VictimPolicy::Greedy, 0), None);
        table.commit(geometry.format().ppa(chunk, 0));
        assert_eq!(table.victim(0, VictimPolicy::Greedy, 0), Some(chunk));
    }

    #[test]
    fn valid_blocks_are_found_in_order() {
        let geometry = Geometry { blocks_per_chunk: 200, ..Geometry::tiny() };
        let mut table = ChunkTable::new(&geometry);
        let chunk = geometry.chunk_ids().nth(5).unwrap();
        for block in [0, 63, 64, 199] {
            table.set_valid(geometry.format().ppa(chunk, block));
        }
        let mut found = Vec::new();
        let mut next = 0;
        while let Some(block) = table.next_valid(chunk, next) {
            found.push(block);
            next = block + 1;
        }
        assert_eq!(found, [0, 63, 64, 199]);
    }
}
