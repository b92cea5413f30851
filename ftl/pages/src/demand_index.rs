//! The map on media, and in memory only as far as a budget allows.
//!
//! ```text
//!   set ──▶ changes of the leaf ──────────────┐ a checkpoint
//!                                             ▼
//!   media ── read ──▶ leaf in the cache ──▶ merged: one leaf, or several where it has no room ──▶ written ──▶ cache
//!     ▲                   │
//!     └── others are used ┘
//! ```
//!
//! Of every leaf it is known where it is. What has changed since a leaf was written is kept beside it, 16 bytes a page, whether the leaf is in memory or
//! not: so a checkpoint writes a leaf once for all that has changed of it. The log has the changes until then.
//!
//! Who changes a page has to know where it was, so its leaf is read before, unless it has changed already. Whoever needs several at a time *holds* them.
//!
//! When changes take most of their part of the memory, a checkpoint is due; when they take all of it, nothing more is committed or moved until some leaves
//! were written.

use crate::leaf::Leaf;
use crate::looked::{IndexMemory, LeafToWrite, Looked, NextToWrite};
use crate::place::Place;
use openftl_core::BLOCK_BYTES;
use openftl_parts::map::cache::{Cache, CachePolicy, Cached};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;

/// Reads of leaves at a time, at most.
pub(crate) const READS_MAX: usize = 32;

/// Of the memory beyond what every leaf takes, one part of so many is for changes.
const CHANGES_PART: usize = 2;

/// The fewest leaves that a budget has room for: half of them for changes, one that is read, and one that was read before.
const LEAVES_MIN: usize = 4;

/// Leaves that may be in memory in any case: who needs some together, and does not hold them, finds all of them.
const LEAVES_KEPT: usize = 4;

/// A third of the nodes of a tree is empty.
const fn in_tree<T>() -> usize {
    size_of::<T>() * 3 / 2
}

/// Bytes of memory for each leaf, in memory or not, and for each that is dirty.
const BYTES_PER_LEAF: usize = in_tree::<(u64, Known)>();
const BYTES_PER_DIRTY: usize = in_tree::<(u64, Changes)>();

/// Changes that memory is taken for at a time.
const GROWTH: usize = 4;

impl Cached for Leaf {
    fn bytes(&self) -> usize {
        Leaf::bytes(self)
    }
}

/// Bytes that a leaf in memory takes, at most.
fn leaf_bytes_max(leaf_pages: usize) -> usize {
    BLOCK_BYTES.min(leaf_pages.saturating_mul(2 * size_of::<u64>()))
        + Leaf::BYTES_AHEAD
        + size_of::<Held>().max(Cache::<Leaf>::BYTES_BESIDE)
}

fn fixed_bytes(slots: u32, policy: CachePolicy) -> usize {
    slots as usize * (Cache::<Leaf>::bytes_per_item(policy) + BYTES_PER_LEAF)
}

/// The least memory that an index with so many slots takes, whose leaves have so many pages at most.
pub(crate) fn least_bytes(slots: u32, policy: CachePolicy, leaf_pages: usize) -> u64 {
    (fixed_bytes(slots, policy) + (LEAVES_MIN + LEAVES_KEPT) * leaf_bytes_max(leaf_pages)) as u64
}

/// What is known of a leaf, in memory or not.
struct Known {
    /// Its block, among those for leaves.
    slot: Option<u32>,
    /// Somebody wants it to stay in memory.
    is_wanted: bool,
    held: Option<Box<Held>>,
}

/// A leaf that is not left to the cache.
struct Held {
    leaf: Leaf,
    /// The medium does not have it as it is, nor is that on its way.
    is_ahead: bool,
    /// The last write of it, if that has not ended.
    write: Option<u64>,
}

impl Held {
    fn bytes(&self) -> usize {
        self.leaf.bytes() + size_of::<Held>()
    }
}

/// Page, and where it is.
type Change = (u64, Option<Place>);

/// What has changed of a leaf since it was written, in the order of its pages.
#[derive(Default)]
struct Changes {
    all: Vec<Change>,
    /// How many of them may be of pages that the leaf has not.
    new: usize,
}

impl Changes {
    fn get(&self, lpid: u64) -> Option<Option<Place>> {
        self.find(lpid).ok().map(|at| self.all[at].1)
    }

    fn find(&self, lpid: u64) -> Result<usize, usize> {
        self.all.binary_search_by_key(&lpid, |(lpid, _)| *lpid)
    }

    fn from(&self, lpid: u64) -> &[Change] {
        &self.all[self.find(lpid).unwrap_or_else(|at| at)..]
    }

    fn bytes(&self) -> usize {
        self.all.capacity() * size_of::<Change>() + BYTES_PER_DIRTY
    }
}

/// See the module.
pub(crate) struct DemandIndex {
    leaves: BTreeMap<u64, Known>,
    /// Leaves that are to be written by the next checkpoint, by their first numbers.
    dirty: BTreeMap<u64, Changes>,
    /// Leaves that were merged and are to be written, the last one first: what was split off before what it was split from.
    merged: Vec<u64>,
    cache: Cache<Leaf>,
    free_slots: Vec<u32>,
    slots: u32,
    leaf_pages: usize,
    /// Bytes of all, of changes, and of leaves that are held.
    bytes_max: usize,
    changes_max: usize,
    changes_bytes: usize,
    held_bytes: usize,
    /// Changes that may be of pages that their leaves have not.
    new: usize,
    reads_max: usize,
    /// Leaves that are to be read, by slot, with their first numbers; those that nobody reads yet; and those that are lost.
    missing: BTreeMap<u32, u64>,
    to_read: VecDeque<u32>,
    lost: BTreeSet<u32>,
    /// Writes that have not ended, and their leaves.
    writes: VecDeque<(u64, u64)>,
    /// Leaves that somebody wants to stay.
    wanted: Vec<u64>,
}

impl DemandIndex {
    pub(crate) fn new(slots: u32, leaf_pages: usize, memory: IndexMemory) -> DemandIndex {
        let IndexMemory { bytes, policy } = memory;
        let pool = (bytes as usize).saturating_sub(fixed_bytes(slots, policy));
        let pool = pool.max(LEAVES_MIN * leaf_bytes_max(leaf_pages));
        let mut index = DemandIndex {
            leaves: BTreeMap::new(),
            dirty: BTreeMap::new(),
            merged: Vec::new(),
            cache: Cache::new(policy, slots, usize::MAX),
            free_slots: (0..slots).rev().collect(),
            slots,
            leaf_pages,
            bytes_max: bytes as usize,
            changes_max: pool / CHANGES_PART,
            changes_bytes: 0,
            held_bytes: 0,
            new: 0,
            reads_max: (pool / leaf_bytes_max(leaf_pages) / LEAVES_MIN).clamp(1, READS_MAX),
            missing: BTreeMap::new(),
            to_read: VecDeque::new(),
            lost: BTreeSet::new(),
            writes: VecDeque::new(),
            wanted: Vec::new(),
        };
        index.insert_held(0, None, Leaf::new(0, leaf_pages), false);
        index.share();
        index
    }

    fn insert_held(&mut self, first: u64, slot: Option<u32>, leaf: Leaf, is_ahead: bool) {
        let held = Box::new(Held { leaf, is_ahead, write: None });
        self.held_bytes += held.bytes();
        self.leaves.insert(first, Known { slot, is_wanted: false, held: Some(held) });
    }

    pub(crate) fn found(&mut self, slot: u32, leaf: Leaf) -> bool {
        let first = leaf.first();
        if self.leaves.get(&first).is_some_and(|known| known.slot.is_some()) {
            return false;
        }
        if let Some(root) = self.leaves.remove(&first).and_then(|known| known.held) {
            self.held_bytes -= root.bytes();
        }
        self.insert_held(first, Some(slot), leaf, false);
        self.let_go(first);
        true
    }

    pub(crate) fn all_found(&mut self) {
        let taken: BTreeSet<u32> = self.leaves.values().filter_map(|known| known.slot).collect();
        self.free_slots.retain(|slot| !taken.contains(slot));
    }

    pub(crate) fn cut(&mut self, first: u64) -> Vec<Place> {
        let Some(end) = self.end_of(first) else { return Vec::new() };
        self.take_hold(first);
        let held = self.leaves.get_mut(&first).and_then(|known| known.held.as_mut()).expect("it is held");
        let gone = held.leaf.pages_from(end).map(|(_, place)| place).collect();
        self.held_bytes -= held.bytes();
        held.leaf.end_before(end);
        held.is_ahead = true;
        self.held_bytes += held.bytes();
        self.touch(first);
        gone
    }

    /// The leaf is to be written, whether pages of it have changed or not.
    fn touch(&mut self, first: u64) {
        if let Entry::Vacant(entry) = self.dirty.entry(first) {
            self.changes_bytes += entry.insert(Changes::default()).bytes();
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        let cache = self.slots as usize * Cache::<Leaf>::bytes_per_item(self.cache.policy()) + self.cache.bytes();
        (cache + self.held_bytes + self.changes_bytes + self.leaves.len() * BYTES_PER_LEAF) as u64
    }

    pub(crate) fn bytes_max(&self) -> u64 {
        self.bytes_max as u64
    }

    pub(crate) fn reads_max(&self) -> usize {
        self.reads_max
    }

    fn known(&self, lpid: u64) -> (u64, &Known) {
        let (first, known) = self.leaves.range(..=lpid).next_back().expect("the first leaf begins with 0");
        (*first, known)
    }

    pub(crate) fn first_of(&self, lpid: u64) -> u64 {
        self.known(lpid).0
    }

    pub(crate) fn end_of(&self, first: u64) -> Option<u64> {
        self.leaves.range((Bound::Excluded(first), Bound::Unbounded)).next().map(|(end, _)| *end)
    }

    /// The same as [`DemandIndex::look`], but where many leaves are being read already this one is not: others wait for those.
    pub(crate) fn glance(&mut self, lpid: u64) -> Looked {
        let (_, known) = self.known(lpid);
        match known.slot.filter(|slot| known.held.is_none() && !self.cache.has(*slot)) {
            Some(slot) if self.missing.len() >= self.reads_max => Looked::Missing(slot),
            _ => self.look(lpid),
        }
    }

    pub(crate) fn look(&mut self, lpid: u64) -> Looked {
        let first = self.first_of(lpid);
        if let Some(place) = self.dirty.get(&first).and_then(|changes| changes.get(lpid)) {
            return Looked::At(place);
        }
        match self.base(first) {
            Ok(leaf) => Looked::At(leaf.get(lpid)),
            Err(looked) => looked,
        }
    }

    /// The leaf without what has changed of it. If it is not in memory, it will be read.
    fn base(&mut self, first: u64) -> Result<&Leaf, Looked> {
        let known = &self.leaves[&first];
        let Some(slot) = known.slot.filter(|_| known.held.is_none()) else {
            return Ok(&known.held.as_ref().expect("a leaf is held, or has a slot").leaf);
        };
        if self.lost.contains(&slot) {
            return Err(Looked::Lost);
        }
        if !self.cache.has(slot) {
            if self.missing.insert(slot, first).is_none() {
                self.to_read.push_back(slot);
            }
            return Err(Looked::Missing(slot));
        }
        Ok(self.cache.get(slot).expect("it was just looked at"))
    }

    /// Where a page is that has changed since a checkpoint began, or whose leaf is held.
    pub(crate) fn get(&self, lpid: u64) -> Option<Place> {
        let (first, known) = self.known(lpid);
        if let Some(place) = self.dirty.get(&first).and_then(|changes| changes.get(lpid)) {
            return place;
        }
        let cached = known.slot.and_then(|slot| self.cache.peek(slot));
        known.held.as_ref().map(|held| &held.leaf).or(cached).expect("the leaf is in memory").get(lpid)
    }

    /// Whether the medium has lost the leaf of page `lpid`.
    pub(crate) fn is_lost(&self, lpid: u64) -> bool {
        self.known(lpid).1.slot.is_some_and(|slot| self.lost.contains(&slot))
    }

    /// The leaf of page `lpid` stays in memory until [`DemandIndex::release`]. Returns false if it is to be read before.
    pub(crate) fn hold(&mut self, lpid: u64) -> bool {
        let first = self.first_of(lpid);
        if self.base(first).is_err() {
            return false;
        }
        self.take_hold(first);
        let known = self.leaves.get_mut(&first).expect("it was just looked at");
        if !std::mem::replace(&mut known.is_wanted, true) {
            self.wanted.push(first);
        }
        true
    }

    /// The leaf, which is in memory, is held from now on.
    fn take_hold(&mut self, first: u64) {
        let known = self.leaves.get_mut(&first).expect("there is such a leaf");
        if known.held.is_none() {
            let leaf = known.slot.and_then(|slot| self.cache.remove(slot)).expect("the leaf is in memory");
            let held = Box::new(Held { leaf, is_ahead: false, write: None });
            self.held_bytes += held.bytes();
            known.held = Some(held);
        }
    }

    pub(crate) fn release(&mut self) {
        for first in std::mem::take(&mut self.wanted) {
            if let Some(known) = self.leaves.get_mut(&first) {
                known.is_wanted = false;
                self.let_go(first);
            }
        }
        self.share();
    }

    /// The leaf is left to the cache if nothing keeps it.
    fn let_go(&mut self, first: u64) {
        let Some(known) = self.leaves.get_mut(&first) else { return };
        let is_kept = known.is_wanted || known.held.as_ref().is_none_or(|held| held.is_ahead || held.write.is_some());
        let Some(slot) = known.slot.filter(|_| !is_kept) else { return };
        let held = known.held.take().expect("it was just looked at");
        self.held_bytes -= held.bytes();
        self.share();
        self.cache.put(slot, held.leaf);
    }

    /// Leaves leave the cache where changes come or others are held. Those that are read at a time, and as many that were read before, always have room:
    /// who has waited for one finds it.
    fn share(&mut self) {
        // Also of leaves that are still to come.
        let fixed = fixed_bytes(self.slots, self.cache.policy());
        let others = self.held_bytes + self.changes_bytes + fixed;
        let least = (2 * self.reads_max).max(LEAVES_KEPT) * leaf_bytes_max(self.leaf_pages);
        self.cache.set_bytes_max(self.bytes_max.saturating_sub(others).max(least));
    }

    pub(crate) fn next_to_read(&mut self) -> Option<u32> {
        self.to_read.pop_front()
    }

    pub(crate) fn is_reading(&self) -> bool {
        !self.missing.is_empty()
    }

    pub(crate) fn read(&mut self, slot: u32, block: Option<&[u8; BLOCK_BYTES]>) -> bool {
        let Some(first) = self.missing.remove(&slot) else { return false };
        let leaf = block.and_then(|block| Leaf::read(block, self.leaf_pages)).filter(|leaf| leaf.first() == first);
        match leaf {
            Some(leaf) => self.cache.put(slot, leaf),
            None => _ = self.lost.insert(slot),
        }
        !self.lost.contains(&slot)
    }

    pub(crate) fn set(&mut self, lpid: u64, place: Option<Place>) -> Option<Place> {
        let old = self.get(lpid);
        if old == place {
            return old;
        }
        let first = self.first_of(lpid);
        self.touch(first);
        let changes = self.dirty.get_mut(&first).expect("it was just made");
        let before = changes.bytes();
        match changes.find(lpid) {
            Ok(at) => changes.all[at].1 = place,
            Err(at) => {
                if changes.all.len() == changes.all.capacity() {
                    changes.all.reserve_exact(GROWTH + changes.all.len() / GROWTH);
                }
                changes.all.insert(at, (lpid, place));
                changes.new += usize::from(old.is_none());
                self.new += usize::from(old.is_none());
            }
        }
        self.changes_bytes = self.changes_bytes + changes.bytes() - before;
        self.share();
        old
    }

    pub(crate) fn has_room(&self, pages: usize) -> bool {
        let (leaves, pages) = (self.leaves.len(), self.new + pages);
        leaves + pages.min(leaves) + pages / Leaf::half_pages_min(self.leaf_pages) < self.slots as usize
    }

    pub(crate) fn has_new(&self) -> bool {
        self.new > 0
    }

    /// Shows `take` pages of the leaf of page `lpid`, from that on. Returns the number that the next leaf begins with, if more is asked for.
    pub(crate) fn list_leaf(
        &mut self,
        lpid: u64,
        take: &mut dyn FnMut(u64, Place) -> bool,
    ) -> Result<Option<u64>, Looked> {
        let first = self.first_of(lpid);
        self.base(first)?;
        let known = &self.leaves[&first];
        let cached = known.slot.and_then(|slot| self.cache.peek(slot));
        let leaf = known.held.as_ref().map(|held| &held.leaf).or(cached).expect("it was just looked at");
        let mut changes = self.dirty.get(&first).map_or(&[][..], |changes| changes.from(lpid)).iter().peekable();
        let mut pages = leaf.pages_from(lpid).peekable();
        loop {
            let (page, place) = match (pages.peek().copied(), changes.peek().copied().copied()) {
                (None, None) => return Ok(self.end_of(first)),
                (Some((page, place)), change) if change.is_none_or(|(changed, _)| page < changed) => {
                    pages.next();
                    (page, Some(place))
                }
                (page, Some((changed, place))) => {
                    changes.next();
                    if page.is_some_and(|(page, _)| page == changed) {
                        pages.next();
                    }
                    (changed, place)
                }
                (Some(_), None) => unreachable!("it comes before what has changed"),
            };
            if place.is_some_and(|place| !take(page, place)) {
                return Ok(None);
            }
        }
    }

    pub(crate) fn dirty(&self) -> usize {
        self.dirty.len()
    }

    pub(crate) fn dirty_leaves(&self) -> BTreeSet<u64> {
        self.dirty.keys().copied().collect()
    }

    pub(crate) fn wants_checkpoint(&self) -> bool {
        self.changes_bytes * 4 >= self.changes_max * 3
    }

    pub(crate) fn is_full_of_changes(&self) -> bool {
        self.changes_bytes >= self.changes_max
    }

    /// Has these leaves read, as far as they are not in memory.
    pub(crate) fn prefetch(&mut self, firsts: &[u64]) {
        for first in firsts {
            if self.leaves.contains_key(first) {
                _ = self.base(*first);
            }
        }
    }

    /// The leaf that is to be written next so that leaf `first` is, as it was before these changes.
    pub(crate) fn next_to_write(&mut self, first: u64, before: &BTreeMap<u64, Option<Place>>) -> NextToWrite {
        if self.merged.is_empty() {
            if !self.dirty.contains_key(&first) {
                return NextToWrite::None;
            }
            if self.base(first).is_err() {
                return NextToWrite::Missing;
            }
            self.merge(first, before);
        }
        let first = *self.merged.last().expect("there is one");
        let stays_dirty = self.dirty.contains_key(&first);
        let known = self.leaves.get_mut(&first).expect("it was merged");
        let slot = *known.slot.get_or_insert_with(|| self.free_slots.pop().expect("there are enough slots"));
        let leaf = known.held.as_ref().expect("it was merged").leaf.clone();
        // Whoever wants it is not to find that the one before it is missing.
        let is_gone = leaf.pages() == 0 && first > 0 && !stays_dirty && !known.is_wanted;
        NextToWrite::Leaf(LeafToWrite { first, slot, leaf, is_gone, stays_dirty })
    }

    /// The leaf, which is in memory, takes in what has changed of it but for what has changed since. Where it has no room, there are others from
    /// now on.
    fn merge(&mut self, first: u64, before: &BTreeMap<u64, Option<Place>>) {
        self.take_hold(first);
        let Known { slot, is_wanted, held } = self.leaves.remove(&first).expect("it is held");
        let held = held.expect("it is held");
        self.held_bytes -= held.bytes();
        let changes = self.dirty.remove(&first).expect("it is dirty");
        self.changes_bytes -= changes.bytes();
        self.new -= changes.new;
        let mut parts = vec![held.leaf];
        let then = |(lpid, place): &Change| (*lpid, before.get(lpid).copied().unwrap_or(*place));
        // What is not there makes room for what is.
        let (gone, put): (Vec<Change>, Vec<Change>) =
            changes.all.iter().map(then).partition(|(_, place)| place.is_none());
        for (lpid, place) in gone.into_iter().chain(put) {
            loop {
                let at = parts.partition_point(|part| part.first() <= lpid) - 1;
                match parts[at].set(lpid, place) {
                    Ok(_) => break,
                    Err(behind) => parts.insert(at + 1, behind),
                }
            }
        }
        self.merged = parts.iter().map(Leaf::first).collect();
        for part in parts {
            let slot = slot.filter(|_| part.first() == first);
            self.insert_held(part.first(), slot, part, true);
        }
        for first in &self.merged {
            // Who wants pages of the leaf wants those of the others, too.
            self.leaves.get_mut(first).expect("it was just put there").is_wanted = is_wanted;
        }
        self.wanted.extend(self.merged.iter().skip(1).filter(|_| is_wanted));
        for (lpid, place) in changes.all.into_iter().filter(|(lpid, _)| before.contains_key(lpid)) {
            self.keep(lpid, place);
        }
        self.share();
    }

    /// The leaf of the page was merged without this change, which is newer.
    fn keep(&mut self, lpid: u64, place: Option<Place>) {
        let first = self.first_of(lpid);
        self.touch(first);
        let changes = self.dirty.get_mut(&first).expect("it was just made");
        let before = changes.bytes();
        changes.all.push((lpid, place));
        changes.new += 1;
        self.new += 1;
        self.changes_bytes = self.changes_bytes + changes.bytes() - before;
    }

    pub(crate) fn written(&mut self, written: &LeafToWrite, write: u64) {
        let first = self.merged.pop().expect("it was to be written");
        debug_assert_eq!(first, written.first, "leaves are written as they come");
        let known = self.leaves.get_mut(&first).expect("it was to be written");
        if written.is_gone {
            let gone = self.leaves.remove(&first).expect("it was just looked at");
            self.held_bytes -= gone.held.expect("it was merged").bytes();
            self.free_slots.extend(gone.slot);
            return;
        }
        let held = known.held.as_mut().expect("it was merged");
        (held.is_ahead, held.write) = (false, Some(write));
        self.writes.push_back((write, first));
    }

    /// All writes up to this one have ended.
    pub(crate) fn writes_ended(&mut self, last: u64) {
        while let Some((write, first)) = self.writes.pop_front_if(|(write, _)| *write <= last) {
            let held = self.leaves.get_mut(&first).and_then(|known| known.held.as_mut());
            let Some(held) = held.filter(|held| held.write == Some(write)) else { continue };
            held.write = None;
            self.let_go(first);
        }
    }
}
