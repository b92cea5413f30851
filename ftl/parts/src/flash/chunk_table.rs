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
//! victim is found without a search and an invalidated block costs one relinking. They also stand in the order of their
//! resets, for wear levelling, and for policies that ask for it in the order in which they were closed.

use crate::cleaning::closing_order::ClosingOrder;
use crate::cleaning::victim::{self, Candidate, VictimPolicy};
use crate::words::{Care, Label};
use openftl_core::{AddressFormat, ChunkId, Geometry, Ppa};
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::cell::Cell;
use std::collections::BTreeSet;

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
    /// Of a tenant: in use, or partly written for something that is no more.
    Tenant,
}

const NONE: u32 = u32::MAX;

/// Groups whose victims differ by less than this part of a chunk are as good as each other: they take turns.
const VICTIM_SLACK: u32 = 32;

/// Victims as empty as each other of which the least worn is chosen, at most.
const ALIKE_LOOKED_AT_MAX: usize = 8;

/// Chunks that are looked at for one whose data rest, at most.
const RESTING_LOOKED_AT_MAX: usize = 64;

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
    /// Host blocks written when it was opened.
    opened_at: u64,
    usage: ChunkUse,
    /// What it was opened for.
    label: Label,
    listed: bool,
    /// A program failed here: retire it once its data has moved.
    suspect: bool,
    /// The device has taken it out of use, with all it held.
    offline: bool,
    is_counted_bad: bool,
    /// Its data should move, because of this.
    weak: Option<Care>,
}

/// The table.
pub struct ChunkTable {
    format: AddressFormat,
    blocks_per_chunk: u32,
    words_per_chunk: usize,
    group_shift: u32,
    chunks: Vec<Chunk>,
    valid: Vec<u64>,
    /// Valid blocks of all chunks.
    valid_total: u64,
    /// First chunk of each list: `lists[group][valid blocks]`.
    lists: Vec<Vec<u32>>,
    /// No list below this one has a chunk, by group.
    lowest: Vec<Cell<u32>>,
    /// Closed chunks by their resets, by group.
    closed: Vec<BTreeSet<(u32, ChunkId)>>,
    /// Resets of the most worn chunk, by group.
    most_resets: Vec<u32>,
    /// Chunks that are victims.
    victims: Vec<ChunkId>,
    /// Blocks that the host has written.
    written: u64,
    policy: VictimPolicy,
    /// Closed chunks in the order of their closing, by group; none where the policy does not ask for it.
    closing: Vec<ClosingOrder>,
    /// Chunks closed so far.
    closings: u64,
    /// Draws chunks for [`VictimPolicy::Choices`].
    chance: Xoshiro256PlusPlus,
}

impl ChunkTable {
    /// A table in which every chunk of the device is free and every hole of its address space retired. Victims are chosen
    /// greedily unless [`ChunkTable::choose_victims`] says otherwise.
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
            opened_at: 0,
            usage: ChunkUse::Retired,
            label: Label::Ordinary,
            listed: false,
            suspect: false,
            offline: false,
            is_counted_bad: false,
            weak: None,
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
            valid_total: 0,
            chunks,
            lists: vec![vec![NONE; geometry.blocks_per_chunk as usize + 1]; groups],
            lowest: vec![Cell::new(geometry.blocks_per_chunk); groups],
            closed: vec![BTreeSet::new(); groups],
            most_resets: vec![0; groups],
            victims: Vec::new(),
            written: 0,
            policy: VictimPolicy::Greedy,
            closing: Vec::new(),
            closings: 0,
            chance: Xoshiro256PlusPlus::seed_from_u64(0),
        }
    }

    /// From now on victims are chosen by `policy`; what it leaves to chance follows from `seed`. Chunks that are closed
    /// already count as the oldest, in the order of their addresses.
    pub fn choose_victims(&mut self, policy: VictimPolicy, seed: u64) {
        self.policy = policy;
        self.chance = Xoshiro256PlusPlus::seed_from_u64(seed);
        self.closing = match policy {
            VictimPolicy::Greedy | VictimPolicy::CostBenefit | VictimPolicy::MinimumDecliningCost => Vec::new(),
            VictimPolicy::Fifo | VictimPolicy::Windowed(_) | VictimPolicy::Choices(_) => {
                vec![ClosingOrder::default(); self.lists.len()]
            }
        };
        for chunk in (0..self.chunks.len() as u32).map(ChunkId) {
            let Chunk { usage, listed, valid, .. } = self.chunks[chunk.0 as usize];
            if usage == ChunkUse::Closed {
                self.note_closed(chunk);
            }
            if listed && let Some(order) = self.closing.get_mut((chunk.0 >> self.group_shift) as usize) {
                order.set_valid(chunk, valid);
            }
        }
    }

    fn note_closed(&mut self, chunk: ChunkId) {
        let group = self.group(chunk);
        if let Some(order) = self.closing.get_mut(group) {
            order.close(chunk, self.closings);
            self.closings += 1;
        }
    }

    /// What `chunk` is used for.
    #[must_use]
    pub fn usage(&self, chunk: ChunkId) -> ChunkUse {
        self.chunks[chunk.0 as usize].usage
    }

    /// What `chunk` was opened for, while it holds what was written then.
    #[inline]
    #[must_use]
    pub fn label(&self, chunk: ChunkId) -> Label {
        self.chunks[chunk.0 as usize].label
    }

    /// `chunk` is opened for this.
    pub fn set_label(&mut self, chunk: ChunkId, label: Label) {
        self.chunks[chunk.0 as usize].label = label;
    }

    /// Host blocks that had been written when `chunk` was opened.
    #[must_use]
    pub fn opened_at(&self, chunk: ChunkId) -> u64 {
        self.chunks[chunk.0 as usize].opened_at
    }

    /// Valid blocks of `chunk`.
    #[must_use]
    pub fn valid(&self, chunk: ChunkId) -> u32 {
        self.chunks[chunk.0 as usize].valid
    }

    /// Blocks placed in `chunk` that are neither committed nor given up.
    #[must_use]
    pub fn pending(&self, chunk: ChunkId) -> u32 {
        self.chunks[chunk.0 as usize].pending
    }

    /// Valid blocks of the drive.
    #[must_use]
    pub fn valid_total(&self) -> u64 {
        self.valid_total
    }

    /// Resets of `chunk` by this FTL.
    #[must_use]
    pub fn resets(&self, chunk: ChunkId) -> u32 {
        self.chunks[chunk.0 as usize].resets
    }

    /// Sets the number of resets, from a checkpoint.
    pub fn set_resets(&mut self, chunk: ChunkId, resets: u32) {
        self.chunks[chunk.0 as usize].resets = resets;
        let group = self.group(chunk);
        self.most_resets[group] = self.most_resets[group].max(resets);
    }

    /// Resets of the most worn chunk of `group`.
    #[must_use]
    pub fn most_resets(&self, group: u32) -> u32 {
        self.most_resets[group as usize]
    }

    /// The closed chunk of `group` with the fewest resets, and how many those are.
    #[must_use]
    pub fn least_worn_closed(&self, group: u32) -> Option<(u32, ChunkId)> {
        self.closed[group as usize].first().copied()
    }

    /// A closed chunk of `group`, all of which can be moved, with fewer than `resets_below` resets that was closed when at
    /// most `closed_by` host blocks had been written: of the least worn ones, the first.
    #[must_use]
    pub fn resting(&self, group: u32, resets_below: u32, closed_by: u64) -> Option<ChunkId> {
        let little_worn = self.closed[group as usize].iter().take_while(|(resets, _)| *resets < resets_below);
        little_worn.take(RESTING_LOOKED_AT_MAX).map(|(_, chunk)| *chunk).find(|chunk| {
            let chunk = &self.chunks[chunk.0 as usize];
            chunk.listed && chunk.closed_at <= closed_by
        })
    }

    /// Whether all of `chunk` can be moved: it is closed, and nothing in it waits to be committed.
    #[must_use]
    pub fn is_candidate(&self, chunk: ChunkId) -> bool {
        self.chunks[chunk.0 as usize].listed
    }

    fn group(&self, chunk: ChunkId) -> usize {
        (chunk.0 >> self.group_shift) as usize
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

    /// Counts `chunk` among the bad ones. Returns whether that is new.
    pub fn count_bad(&mut self, chunk: ChunkId) -> bool {
        !std::mem::replace(&mut self.chunks[chunk.0 as usize].is_counted_bad, true)
    }

    /// Whether the device has taken `chunk` out of use.
    #[must_use]
    pub fn is_offline(&self, chunk: ChunkId) -> bool {
        self.chunks[chunk.0 as usize].offline
    }

    /// Remembers that the device has taken `chunk` out of use.
    pub fn take_offline(&mut self, chunk: ChunkId) {
        let entry = &mut self.chunks[chunk.0 as usize];
        (entry.offline, entry.suspect) = (true, true);
    }

    /// Why the data of `chunk` should move, if they should.
    #[must_use]
    pub fn weakness(&self, chunk: ChunkId) -> Option<Care> {
        self.chunks[chunk.0 as usize].weak
    }

    /// Remembers that the data of `chunk` should move. Returns whether that is new.
    pub fn weaken(&mut self, chunk: ChunkId, care: Care) -> bool {
        let weak = &mut self.chunks[chunk.0 as usize].weak;
        let is_new = weak.is_none();
        weak.get_or_insert(care);
        is_new
    }

    /// What was weak in `chunk` is there no more.
    pub fn strengthen(&mut self, chunk: ChunkId) {
        self.chunks[chunk.0 as usize].weak = None;
    }

    /// The host has written so many blocks so far: the clock of ages.
    #[inline]
    pub fn set_written(&mut self, written: u64) {
        self.written = written;
    }

    /// Blocks of victims that hold no data any more.
    #[must_use]
    pub fn emptied(&self) -> u64 {
        self.victims.iter().map(|victim| u64::from(self.blocks_per_chunk - self.valid(*victim))).sum()
    }

    /// Changes what `chunk` is used for.
    pub fn set_usage(&mut self, chunk: ChunkId, usage: ChunkUse) {
        self.unlist(chunk);
        let group = self.group(chunk);
        let entry = &mut self.chunks[chunk.0 as usize];
        if entry.usage == ChunkUse::Closed {
            self.closed[group].remove(&(entry.resets, chunk));
            if let Some(order) = self.closing.get_mut(group) {
                order.remove(chunk);
            }
        }
        if entry.usage == ChunkUse::Victim {
            self.victims.retain(|victim| *victim != chunk);
        }
        entry.usage = usage;
        match usage {
            ChunkUse::Victim => self.victims.push(chunk),
            ChunkUse::Closed => {
                entry.closed_at = self.written;
                self.closed[group].insert((entry.resets, chunk));
                self.note_closed(chunk);
                self.list_if_candidate(chunk);
            }
            ChunkUse::Free => {
                assert!(entry.valid == 0 && entry.pending == 0, "a chunk with valid blocks is not free");
                (entry.suspect, entry.weak, entry.label) = (false, None, Label::Ordinary);
            }
            ChunkUse::Open => entry.opened_at = self.written,
            _ => {}
        }
    }

    /// Counts one more reset.
    pub fn count_reset(&mut self, chunk: ChunkId) {
        self.set_resets(chunk, self.resets(chunk).saturating_add(1));
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
        self.valid_total += 1;
        debug_assert!(!self.chunks[chunk.0 as usize].listed, "a candidate has no placed blocks");
    }

    /// Marks all `places` valid, of which those that are `None` are nowhere, in a table in which nothing is valid yet; `written` says how far
    /// each chunk is written. Returns how many they are, or at which of them it came to an end: one that is not written, or is there twice.
    ///
    /// # Errors
    /// The place of the first such one among all, before which all are marked.
    pub fn load_valid(&mut self, places: impl Iterator<Item = Option<Ppa>>, written: &[u32]) -> Result<u64, usize> {
        // A drive has millions of them: chunks are counted afterwards, and what does not change is not asked for each.
        let (format, words_per_chunk, valid) = (self.format, self.words_per_chunk, self.valid.as_mut_slice());
        let mut load = |(index, place): (usize, Option<Ppa>)| {
            let Some(ppa) = place else { return Ok(0) };
            let (chunk, block) = (format.chunk_of(ppa).0 as usize, format.block_of(ppa));
            if written.get(chunk).is_none_or(|end| block >= *end) {
                return Err(index);
            }
            let (word, bit) = (&mut valid[chunk * words_per_chunk + block as usize / 64], 1 << (block % 64));
            if *word & bit != 0 {
                return Err(index);
            }
            *word |= bit;
            Ok(1)
        };
        let loaded = places.enumerate().try_fold(0, |sum, place| Ok(sum + load(place)?));
        self.valid_total = 0;
        for (chunk, words) in self.chunks.iter_mut().zip(self.valid.chunks_exact(words_per_chunk)) {
            debug_assert!(!chunk.listed, "a candidate has no placed blocks");
            chunk.valid = words.iter().map(|word| word.count_ones()).sum();
            self.valid_total += u64::from(chunk.valid);
        }
        loaded
    }

    /// No block is valid: before another map is loaded.
    pub fn forget_valid(&mut self) {
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
        self.chunks[chunk.0 as usize].valid -= 1;
        self.valid_total -= 1;
        if listed {
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

    /// Valid blocks of the chunk of `group` that has the fewest, if collecting it gives anything back.
    #[inline]
    #[must_use]
    pub fn fewest_valid(&self, group: u32) -> Option<u32> {
        let lists = &self.lists[group as usize];
        let mut lowest = self.lowest[group as usize].get();
        while lowest < self.blocks_per_chunk && lists[lowest as usize] == NONE {
            lowest += 1;
        }
        self.lowest[group as usize].set(lowest);
        (lowest < self.blocks_per_chunk).then_some(lowest)
    }

    /// How much of an effort the next victim of `group` will be by the policy, as a number by which groups can be compared
    /// (the lower, the sooner it should be collected), and by how much groups may differ that are as good as each other.
    /// `None` where nothing would be gained.
    ///
    /// It has to be the policy's own measure: a group chosen because its emptiest chunk is the emptiest of all, whose
    /// oldest is collected then, would be chosen again and again.
    #[must_use]
    pub fn urgency(&self, group: u32) -> Option<(u64, u64)> {
        let alike = u64::from(self.blocks_per_chunk / VICTIM_SLACK);
        let fewest = self.fewest_valid(group)?;
        let order = || &self.closing[group as usize];
        Some(match self.policy {
            VictimPolicy::Greedy | VictimPolicy::CostBenefit | VictimPolicy::MinimumDecliningCost => {
                (u64::from(fewest), alike)
            }
            VictimPolicy::Fifo => {
                (order().number(victim::first_closed(order(), self.blocks_per_chunk)?), self.lists.len() as u64)
            }
            VictimPolicy::Windowed(window) => {
                (u64::from(self.valid(victim::emptiest_of_window(order(), self.blocks_per_chunk, window)?)), alike)
            }
            VictimPolicy::Choices(_) => (order().mean_valid()?, 256),
        })
    }

    /// The victim of `group` by the policy, or `None` where nothing would be gained.
    #[must_use]
    pub fn victim(&mut self, group: u32) -> Option<ChunkId> {
        let blocks = self.blocks_per_chunk;
        match self.policy {
            VictimPolicy::Greedy => self.emptiest(group),
            VictimPolicy::CostBenefit => self.greatest(group, Candidate::benefit_over_cost),
            VictimPolicy::MinimumDecliningCost => self.greatest(group, Candidate::steadiness),
            VictimPolicy::Fifo => victim::first_closed(&self.closing[group as usize], blocks),
            VictimPolicy::Windowed(window) => victim::emptiest_of_window(&self.closing[group as usize], blocks, window),
            VictimPolicy::Choices(choices) => {
                let draw = |below: u32| ((u128::from(self.chance.next_u64()) * u128::from(below)) >> 64) as u32;
                victim::emptiest_of_choices(&self.closing[group as usize], blocks, choices, draw)
            }
        }
    }

    /// The candidate of `group` that holds least, whatever the policy would choose, or `None` where nothing would be gained. Of
    /// those as empty as each other the least worn: it keeps wear level where no data rest.
    #[must_use]
    pub fn emptiest(&self, group: u32) -> Option<ChunkId> {
        let lowest = self.fewest_valid(group)?;
        let chunk = |chunk: u32| Some(chunk).filter(|chunk| *chunk != NONE);
        let first = self.lists[group as usize][lowest as usize];
        let alike = std::iter::successors(chunk(first), |before| chunk(self.chunks[*before as usize].after));
        let least_worn = alike.take(ALIKE_LOOKED_AT_MAX).min_by_key(|chunk| self.chunks[*chunk as usize].resets);
        least_worn.map(ChunkId)
    }

    fn greatest(&self, group: u32, worth: fn(Candidate) -> Option<u64>) -> Option<ChunkId> {
        let blocks = self.blocks_per_chunk;
        let lowest = self.fewest_valid(group)?;
        let mut best: Option<(u64, ChunkId)> = None;
        for first in &self.lists[group as usize][lowest as usize..blocks as usize] {
            let mut next = *first;
            while next != NONE {
                let chunk = &self.chunks[next as usize];
                let candidate = Candidate { valid: chunk.valid, blocks, age: self.written - chunk.closed_at };
                if let Some(worth) = worth(candidate)
                    && best.is_none_or(|(most, _)| worth > most)
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
        if let Some(order) = self.closing.get_mut(group as usize) {
            order.set_valid(chunk, valid);
        }
    }

    #[inline]
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
#[path = "chunk_table_tests.rs"]
mod tests;
