//! A map whose pages are on media, and in memory only as far as a budget allows.
//!
//! ```text
//!  write ─▶ buffer ─▶ committed ─▶ log record ─▶ changes (memory, by map page)
//!                                                   │ so many, or the page has to move
//!                                map page ─▶ read ─▶ merge ─▶ new map page, twice ─▶ directory
//!  read ─▶ in the buffer? ─▶ a change? ─▶ page in the cache? ─▶ read the map page ─▶ the data
//! ```
//!
//! A write reads no map page, and nothing is written when a page leaves the cache. The log has every change already, a checkpoint
//! has the directory and the changes; so a merge is for room in memory alone.
//!
//! # What counts as valid
//! The place that a map page has for a block stays valid in the chunk table until the next merge of the page, though the block has
//! been written elsewhere: nobody has read the page to learn which place that is. Whoever meets such a *stale* block
//! before (collection) drops it and *settles* its change. So at any time the valid places of a drive are
//!
//! - the place of each block as the map has it, and
//! - the place that the page has for a block with a change that is not settled.
//!
//! From this follows what collection asks ([`DemandMap::is_at`]) without reading a page: a valid place whose block has no
//! change is what the page has; with a change, it is what the change says or it is stale.
//!
//! # A merge
//! [`DemandMap::begin_merge`] takes what the page's changes say, [`DemandMap::merge_into`] enters that into the page as it was read
//! and notes the old places, and [`DemandMap::end_merge`] says, when the new page is on media, which of these are invalid now.
//! Changes go on in between: what was taken in and has changed again stays, settled.

use super::cache::CachePolicy;
use super::changes::{Before, Change, Changes};
use super::directory::{Copies, Directory, PageSize, Places};
use super::page_cache::PageCache;
use super::pins::PinnedPages;
use super::{Entry, Place, Width};
use crate::words::METADATA_COPIES;
use openftl_core::{BLOCK_BYTES, Frame, Ppa};
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// What the map says of a block, or which page has to be read to know it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Looked {
    /// This.
    Entry(Entry),
    /// What this page says, which is not in memory.
    Page(u32),
}

/// A merge of one page.
#[derive(Clone, Debug)]
pub struct Merge {
    /// The page.
    pub page: u32,
    /// Where it is; `None`: nowhere, so nothing has to be read.
    pub from: Option<Copies>,
    /// What its changes say, by index.
    taken: Vec<(usize, Entry)>,
    /// Whether the page was trimmed as a whole: its blocks are nowhere but for the changes.
    is_trimmed: bool,
    /// The places that the page had for blocks that changed, by index.
    old: Vec<(usize, Ppa)>,
}

impl Merge {
    /// The number of changes that it takes in.
    #[must_use]
    pub fn changes(&self) -> usize {
        self.taken.len()
    }
}

/// The map.
pub struct DemandMap {
    size: PageSize,
    blocks: u64,
    directory: Directory,
    changes: Changes,
    cache: PageCache,
    /// Bytes for changes and for pages in memory together.
    pool_bytes: usize,
    /// The newest frame of each block in the write buffer.
    buffered: FxHashMap<u64, Frame>,
    /// Pages that were trimmed as a whole, and are on media as they were before.
    trimmed: BTreeSet<u32>,
    /// Pages that are being merged, and whether they were trimmed as a whole since that began.
    merging: BTreeMap<u32, bool>,
}

impl DemandMap {
    /// A map of `blocks` logical blocks, none of them written, with pages of `size` and so many bytes for changes and for pages in
    /// memory together.
    #[must_use]
    pub fn new(blocks: u64, size: PageSize, policy: CachePolicy, pool_bytes: usize) -> DemandMap {
        let pages = size.pages(blocks);
        DemandMap {
            size,
            blocks,
            directory: Directory::new(pages, size.width()),
            changes: Changes::new(size, pages),
            cache: PageCache::new(policy, pages, size, pool_bytes),
            pool_bytes,
            buffered: FxHashMap::default(),
            trimmed: BTreeSet::new(),
            merging: BTreeMap::new(),
        }
    }

    /// Bytes of memory that each page takes whether it is in memory or not.
    #[must_use]
    pub fn bytes_per_page(policy: CachePolicy, width: Width) -> usize {
        Directory::bytes_per_page(width) + Changes::BYTES_PER_PAGE + PageCache::bytes_per_page(policy)
    }

    /// Logical blocks.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.blocks
    }

    /// Whether the map has no block.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.blocks == 0
    }

    /// How the map is divided.
    #[must_use]
    pub fn size(&self) -> PageSize {
        self.size
    }

    /// Where the pages are.
    #[must_use]
    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    /// Whether all blocks of a new page are nowhere: then the page need not be written, and is nowhere itself.
    #[must_use]
    pub fn is_all_nowhere(&self, page: &[u8; BLOCK_BYTES]) -> bool {
        (0..self.size.entries() as usize).all(|index| self.size.entry(page, index) == Entry::UNMAPPED)
    }

    /// What is not merged yet.
    #[must_use]
    pub fn changes(&self) -> &Changes {
        &self.changes
    }

    /// Pages leave the memory where changes have come, and may come where changes have left.
    #[inline]
    fn share_pool(&mut self) {
        self.cache.set_bytes_max(self.pool_bytes.saturating_sub(self.changes.bytes()));
    }

    /// Bytes that changes and pages in memory take.
    #[must_use]
    pub fn pool_bytes(&self) -> u64 {
        (self.changes.bytes() + self.cache.bytes()) as u64
    }

    /// Pages that are in memory.
    #[must_use]
    pub fn pages_in_memory(&self) -> u32 {
        self.cache.pages()
    }

    /// The pages that are pinned.
    #[must_use]
    pub fn pins(&self) -> &PinnedPages {
        self.cache.pins()
    }

    /// The pages of `blocks` leave memory last from now on. Returns false if there are too many pinned ranges already.
    pub fn pin(&mut self, blocks: Range<u64>) -> bool {
        let mut pins = self.cache.pins().clone();
        let has_room = pins.add(self.size.pages_of(blocks, self.blocks));
        self.cache.set_pins(pins);
        has_room
    }

    /// The pages of `blocks` leave memory as others do.
    pub fn unpin(&mut self, blocks: Range<u64>) {
        let mut pins = self.cache.pins().clone();
        pins.remove(self.size.pages_of(blocks, self.blocks));
        self.cache.set_pins(pins);
    }

    /// The pages in memory.
    pub fn cache_mut(&mut self) -> &mut PageCache {
        &mut self.cache
    }

    /// The newest frame of `block` in the write buffer.
    #[inline]
    #[must_use]
    pub fn buffered(&self, block: u64) -> Option<Frame> {
        self.buffered.get(&block).copied()
    }

    /// The blocks that the write buffer has, in no order.
    pub fn buffered_blocks(&self) -> impl Iterator<Item = u64> + '_ {
        self.buffered.keys().copied()
    }

    /// `frame` has the newest version of `block`. Returns the frame that had it before.
    #[inline]
    pub fn hold(&mut self, block: u64, frame: Frame) -> Option<Frame> {
        self.buffered.insert(block, frame)
    }

    /// The newest version of `block` has left the buffer.
    #[inline]
    pub fn let_go(&mut self, block: u64) {
        self.buffered.remove(&block);
    }

    /// What the map says of `block`, as far as it is committed.
    #[inline]
    #[must_use]
    pub fn look(&mut self, block: u64) -> Looked {
        if let Some(change) = self.changes.get(block) {
            return Looked::Entry(change.entry);
        }
        let (page, index) = self.size.split(block);
        if self.is_nowhere(page) {
            return Looked::Entry(Entry::UNMAPPED);
        }
        self.cache.get(page, index).map_or(Looked::Page(page), Looked::Entry)
    }

    /// What the map says of `block`, if that is in memory. No use of its page.
    #[must_use]
    pub fn peek(&self, block: u64) -> Option<Entry> {
        let (page, index) = self.size.split(block);
        match self.changes.get(block) {
            Some(change) => Some(change.entry),
            None if self.is_nowhere(page) => Some(Entry::UNMAPPED),
            None => self.cache.peek(page, index),
        }
    }

    /// What the map says of `block`, of whose page `bytes` are what is on media.
    #[must_use]
    pub fn look_in(&self, block: u64, bytes: &[u8; BLOCK_BYTES]) -> Entry {
        let (page, index) = self.size.split(block);
        match self.changes.get(block) {
            Some(change) => change.entry,
            None if self.is_nowhere(page) => Entry::UNMAPPED,
            None => self.size.entry(bytes, index),
        }
    }

    /// Whether the blocks of `page` without a change are nowhere.
    #[inline]
    fn is_nowhere(&self, page: u32) -> bool {
        self.directory.get(page).is_none() || self.trimmed.contains(&page)
    }

    /// Whether `page` would have to be read for a block without a change.
    #[must_use]
    pub fn needs_page(&self, page: u32) -> bool {
        !self.is_nowhere(page) && !self.cache.has(page)
    }

    /// Whether all blocks of `page` are nowhere, but for those in the write buffer.
    #[must_use]
    pub fn is_nothing_on(&self, page: u32) -> bool {
        self.is_nowhere(page) && self.changes.of_page(page) == 0
    }

    /// The page was read, or written: its copy on media is `bytes`.
    pub fn keep(&mut self, page: u32, bytes: &[u8; BLOCK_BYTES], is_wanted: bool) {
        self.cache.put(page, bytes, is_wanted);
    }

    /// Whether the map has `block` at `ppa`, a valid place that names it. If not it is stale, and counts as valid only until
    /// [`DemandMap::drop_stale`].
    #[must_use]
    pub fn is_at(&self, block: u64, ppa: Ppa) -> bool {
        match self.changes.get(block) {
            Some(change) => change.entry == Entry::media(ppa),
            None => !self.is_nowhere(self.size.split(block).0),
        }
    }

    /// The map says `entry` of `block` from now on. Returns the place that is invalid by that, if it is known.
    #[inline]
    pub fn put(&mut self, block: u64, entry: Entry) -> Option<Ppa> {
        match self.changes.put(block, entry, false) {
            Before::Change(before) => place_of(before),
            Before::Page => {
                self.share_pool();
                None
            }
        }
    }

    /// `block` has moved from `from`, a valid place that [is its own](DemandMap::is_at), to `to`. The caller invalidates `from`.
    pub fn moved(&mut self, block: u64, from: Ppa, to: Ppa) {
        let has_change = self.changes.get(block).is_some();
        debug_assert!(self.is_at(block, from), "it has not changed meanwhile");
        // Without a change it is the page that has `from`.
        self.changes.put(block, Entry::media(to), !has_change);
        self.share_pool();
    }

    /// A place of `block` is valid and [not its own](DemandMap::is_at): somebody drops it, and invalidates it.
    pub fn drop_stale(&mut self, block: u64) {
        match self.changes.get(block) {
            Some(_) => self.changes.settle(block),
            // Its page was trimmed.
            None => {
                self.changes.put(block, Entry::UNMAPPED, true);
                self.share_pool();
            }
        }
    }

    /// `blocks` are nowhere from now on. Places that are invalid by that go to `invalid`, as far as they are known. Returns whether
    /// there was anything to change.
    pub fn trim(&mut self, blocks: Range<u64>, invalid: &mut Vec<Ppa>) -> bool {
        let mut next = blocks.start;
        let mut has_changed = false;
        while next < blocks.end {
            let (page, _) = self.size.split(next);
            let end = self.end_of(page);
            let end_here = end.min(blocks.end);
            let is_whole = next == self.size.first_of(page) && end_here == end;
            let has_page = !self.is_nowhere(page);
            if is_whole {
                has_changed |= has_page || self.changes.of_page(page) > 0;
                self.trim_page(page, invalid);
            } else {
                for block in next..end_here {
                    let change = self.changes.get(block);
                    if has_page || change.is_some() {
                        has_changed |= change.is_none_or(|change| change.entry != Entry::UNMAPPED);
                        invalid.extend(self.put(block, Entry::UNMAPPED));
                    }
                }
            }
            next = end_here;
        }
        has_changed
    }

    fn trim_page(&mut self, page: u32, invalid: &mut Vec<Ppa>) {
        if let Some(is_spoiled) = self.merging.get_mut(&page) {
            *is_spoiled = true;
        }
        let changes: Vec<Change> = self.changes.of(page).collect();
        invalid.extend(changes.iter().filter_map(|change| place_of(change.entry)));
        if self.directory.get(page).is_none() {
            self.changes.clear(page);
            return;
        }
        self.trimmed.insert(page);
        self.cache.remove(page);
        // What is settled stays so: the page still has a place for it that counts no more.
        self.changes.clear(page);
        for change in changes.iter().filter(|change| change.is_settled) {
            self.changes.put(self.size.first_of(page) + change.index as u64, Entry::UNMAPPED, true);
        }
        self.share_pool();
    }

    /// Where a checkpoint says that `page` is: one that was trimmed as a whole is nowhere.
    #[must_use]
    pub fn places(&self, page: u32) -> Places {
        if self.trimmed.contains(&page) { [Entry::UNMAPPED; METADATA_COPIES] } else { self.directory.places(page) }
    }

    /// The block behind the last one of `page`.
    #[must_use]
    pub fn end_of(&self, page: u32) -> u64 {
        (self.size.first_of(page) + u64::from(self.size.entries())).min(self.blocks)
    }

    /// Whether `block` may be anywhere, as far as can be said without its page.
    #[must_use]
    pub fn has_any(&self, block: u64) -> bool {
        match self.changes.get(block) {
            Some(change) => change.entry != Entry::UNMAPPED,
            None => !self.is_nowhere(self.size.split(block).0),
        }
    }

    /// When a drive is opened: all blocks of `page` are nowhere.
    pub fn forget_page(&mut self, page: u32) {
        self.directory.set(page, None);
        self.changes.clear(page);
    }

    /// When a drive is repaired: `page` is there, or nowhere. Its changes stay.
    pub fn move_page(&mut self, page: u32, copies: Option<Copies>) {
        self.directory.set(page, copies);
    }

    /// When a drive is opened: no place that a page has for a block with a change counts.
    pub fn settle_all(&mut self) {
        self.changes.settle_all();
    }

    /// When a drive is opened: `page` is at these places, and has these changes. Returns false if it cannot be there.
    pub fn load_page(&mut self, page: u32, places: Places, taken: &[(usize, Entry)]) -> bool {
        self.changes.merged(page, taken);
        self.directory.load(page, places)
    }

    /// Whether a page was trimmed as a whole that nobody merges.
    #[must_use]
    pub fn has_trimmed(&self) -> bool {
        self.trimmed.iter().any(|page| !self.merging.contains_key(page))
    }

    /// The page to merge next: one that was trimmed as a whole, else the one with the most changes. `None`: none has any that is
    /// not being merged.
    #[must_use]
    pub fn next_to_merge(&self) -> Option<u32> {
        let is_merging = |page: u32| self.merging.contains_key(&page);
        let trimmed = self.trimmed.iter().copied().find(|page| !is_merging(*page));
        trimmed.or_else(|| self.changes.fullest(is_merging))
    }

    /// Whether `page` is being merged.
    #[must_use]
    pub fn is_merging(&self, page: u32) -> bool {
        self.merging.contains_key(&page)
    }

    /// Begins to merge `page`.
    ///
    /// # Panics
    /// If it is being merged.
    #[must_use]
    pub fn begin_merge(&mut self, page: u32) -> Merge {
        assert!(self.merging.insert(page, false).is_none(), "page {page} is being merged");
        Merge {
            page,
            from: self.directory.get(page),
            taken: self.changes.of(page).map(|change| (change.index, change.entry)).collect(),
            is_trimmed: self.trimmed.contains(&page),
            old: Vec::new(),
        }
    }

    /// The merge of `page` does not come to an end: all is as before it.
    pub fn give_up_merge(&mut self, page: u32) {
        self.merging.remove(&page);
    }

    /// Makes of a page as it was read the one that is to be written; of one that is nowhere, of whatever `bytes` hold.
    pub fn merge_into(&self, merge: &mut Merge, bytes: &mut [u8; BLOCK_BYTES]) {
        if merge.from.is_none() {
            bytes.fill(0xFF);
        }
        if merge.is_trimmed {
            let entries = 0..self.size.entries() as usize;
            merge.old.extend(entries.filter_map(|index| Some((index, place_of(self.size.entry(bytes, index))?))));
            bytes.fill(0xFF);
        } else {
            let old = |(index, _): &(usize, Entry)| Some((*index, place_of(self.size.entry(bytes, *index))?));
            merge.old.extend(merge.taken.iter().filter_map(old));
        }
        for (index, entry) in &merge.taken {
            self.size.set_entry(bytes, *index, *entry);
        }
    }

    /// The new page is on media at `copies`, or nowhere. Places that are invalid by that go to `invalid`. Returns where the page
    /// was. Returns `None` if the page was trimmed as a whole meanwhile: then all is as before the merge, and what was written is
    /// to be dropped.
    ///
    /// # Panics
    /// If the page is not being merged.
    pub fn end_merge(
        &mut self,
        merge: &Merge,
        copies: Option<Copies>,
        bytes: &[u8; BLOCK_BYTES],
        invalid: &mut Vec<Ppa>,
    ) -> Option<Option<Copies>> {
        let page = merge.page;
        let is_spoiled = self.merging.remove(&page).expect("it is being merged");
        if is_spoiled {
            return None;
        }
        let first = self.size.first_of(page);
        let is_settled = |index: usize| self.changes.get(first + index as u64).is_some_and(|change| change.is_settled);
        invalid.extend(merge.old.iter().filter(|(index, _)| !is_settled(*index)).map(|(_, ppa)| *ppa));
        if merge.is_trimmed {
            self.trimmed.remove(&page);
        }
        self.changes.merged(page, &merge.taken);
        self.share_pool();
        let before = self.directory.set(page, copies);
        match copies {
            Some(_) => self.cache.put(page, bytes, false),
            None => self.cache.remove(page),
        }
        Some(before)
    }
}

/// The place that an entry names.
#[inline]
fn place_of(entry: Entry) -> Option<Ppa> {
    match entry.place() {
        Place::Media(ppa) => Some(ppa),
        Place::Unmapped | Place::Lost | Place::Buffer(_) => None,
    }
}

#[cfg(test)]
#[path = "demand_tests.rs"]
mod tests;
