//! The map, all of it in memory.
//!
//! A leaf that has changed is *dirty* until a checkpoint writes it to its block. A leaf that took a part of another one is written before that.

use crate::leaf::Leaf;
use crate::looked::{LeafToWrite, NextToWrite};
use crate::place::Place;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

struct Held {
    leaf: Leaf,
    /// Its block, among those for leaves.
    slot: Option<u32>,
    /// Leaves that took a part of it.
    split_off: Vec<u64>,
    /// It took a part of another one, and was not written since.
    is_new: bool,
}

/// See the module.
pub(crate) struct WholeIndex {
    leaves: BTreeMap<u64, Held>,
    dirty: BTreeSet<u64>,
    free_slots: Vec<u32>,
    slots: u32,
    leaf_pages: usize,
}

impl WholeIndex {
    pub(crate) fn new(slots: u32, leaf_pages: usize) -> WholeIndex {
        let root = Held { leaf: Leaf::new(0, leaf_pages), slot: None, split_off: Vec::new(), is_new: false };
        let leaves = BTreeMap::from([(0, root)]);
        WholeIndex { leaves, dirty: BTreeSet::new(), free_slots: (0..slots).rev().collect(), slots, leaf_pages }
    }

    /// From now on leaves take these slots only when there are no others.
    pub(crate) fn take_last(&mut self, taken: &BTreeSet<u32>) {
        self.free_slots.sort_by_key(|slot| (!taken.contains(slot), u32::MAX - slot));
    }

    pub(crate) fn has_slot(&self, slot: u32) -> bool {
        self.leaves.values().any(|held| held.slot == Some(slot))
    }

    pub(crate) fn found(&mut self, slot: u32, leaf: Leaf) -> bool {
        let first = leaf.first();
        let is_new = self.leaves.get(&first).is_none_or(|held| held.slot.is_none());
        if is_new {
            self.leaves.insert(first, Held { leaf, slot: Some(slot), split_off: Vec::new(), is_new: false });
        }
        is_new
    }

    pub(crate) fn all_found(&mut self) {
        let taken: BTreeSet<u32> = self.leaves.values().filter_map(|held| held.slot).collect();
        self.free_slots.retain(|slot| !taken.contains(slot));
    }

    pub(crate) fn cut(&mut self, first: u64) -> Vec<Place> {
        let Some(end) = self.end_of(first) else { return Vec::new() };
        let leaf = &mut self.leaves.get_mut(&first).expect("it was found").leaf;
        let gone = leaf.pages_from(end).map(|(_, place)| place).collect();
        leaf.end_before(end);
        self.dirty.insert(first);
        gone
    }

    /// Whether every leaf has room on media.
    pub(crate) fn fits(&self) -> bool {
        self.leaves.len() <= self.slots as usize
    }

    /// Bytes of memory that it takes.
    pub(crate) fn bytes(&self) -> u64 {
        self.leaves.values().map(|held| (held.leaf.bytes() + size_of::<(u64, Held)>()) as u64).sum()
    }

    fn leaf_of(&self, lpid: u64) -> &Held {
        self.leaves.range(..=lpid).next_back().expect("the first leaf begins with 0").1
    }

    /// Where page `lpid` is.
    pub(crate) fn get(&self, lpid: u64) -> Option<Place> {
        self.leaf_of(lpid).leaf.get(lpid)
    }

    /// Page `lpid` is at `place` from now on, or nowhere. Returns where it was.
    pub(crate) fn set(&mut self, lpid: u64, place: Option<Place>) -> Option<Place> {
        loop {
            let (first, held) = self.leaves.range_mut(..=lpid).next_back().expect("the first leaf begins with 0");
            let first = *first;
            match held.leaf.set(lpid, place) {
                Ok(old) => {
                    if old != place {
                        self.dirty.insert(first);
                    }
                    return old;
                }
                Err(behind) => {
                    held.split_off.push(behind.first());
                    self.dirty.extend([first, behind.first()]);
                    let (first, split_off) = (behind.first(), Vec::new());
                    self.leaves.insert(first, Held { leaf: behind, slot: None, split_off, is_new: true });
                }
            }
        }
    }

    /// Whether so many pages with new numbers have room on media, whatever their numbers are.
    pub(crate) fn has_room(&self, pages: usize) -> bool {
        let leaves = self.leaves.len();
        leaves + pages.min(leaves) + pages / Leaf::half_pages_min(self.leaf_pages) < self.slots as usize
    }

    /// Pages and their places from `lpid` on, in the order of their numbers.
    pub(crate) fn pages_from(&self, lpid: u64) -> impl Iterator<Item = (u64, Place)> + '_ {
        let first = self.leaf_of(lpid).leaf.first();
        self.leaves.range(first..).flat_map(move |(_, held)| held.leaf.pages_from(lpid))
    }

    pub(crate) fn dirty(&self) -> usize {
        self.dirty.len()
    }

    pub(crate) fn dirty_leaves(&self) -> BTreeSet<u64> {
        self.dirty.clone()
    }

    /// The leaf that has to be written first so that leaf `first` can be, or that one, as it was before these changes.
    pub(crate) fn next_to_write(&mut self, first: u64, before: &BTreeMap<u64, Option<Place>>) -> NextToWrite {
        let mut first = first;
        while let Some(child) = self.leaves.get(&first).and_then(|held| held.split_off.last().copied()) {
            if self.leaves.get(&child).is_some_and(|child| child.is_new) {
                first = child;
            } else {
                self.leaves.get_mut(&first).expect("it was just looked at").split_off.pop();
            }
        }
        if !self.dirty.contains(&first) {
            return NextToWrite::None;
        }
        let end = self.end_of(first);
        let held = self.leaves.get_mut(&first).expect("it was just looked at");
        let slot = *held.slot.get_or_insert_with(|| self.free_slots.pop().expect("there are enough slots"));
        let mut leaf = held.leaf.clone();
        let changed = before.range(first..).take_while(|(lpid, _)| end.is_none_or(|end| **lpid < end));
        let changed: Vec<(u64, Option<Place>)> = changed.map(|(lpid, place)| (*lpid, *place)).collect();
        let stays_dirty = !changed.is_empty();
        // What is not there makes room for what was.
        let (gone, back): (Vec<_>, Vec<_>) = changed.into_iter().partition(|(_, place)| place.is_none());
        for (lpid, place) in gone.into_iter().chain(back) {
            leaf.set(lpid, place).expect("what was true a moment ago has room in a leaf");
        }
        let is_gone = leaf.pages() == 0 && held.leaf.pages() == 0 && first > 0 && !stays_dirty;
        NextToWrite::Leaf(LeafToWrite { first, slot, leaf, is_gone, stays_dirty })
    }

    pub(crate) fn end_of(&self, first: u64) -> Option<u64> {
        self.leaves.range((Bound::Excluded(first), Bound::Unbounded)).next().map(|(end, _)| *end)
    }

    pub(crate) fn first_of(&self, lpid: u64) -> u64 {
        self.leaf_of(lpid).leaf.first()
    }

    pub(crate) fn written(&mut self, written: &LeafToWrite) {
        let first = written.first;
        if !written.stays_dirty {
            self.dirty.remove(&first);
        }
        self.leaves.get_mut(&first).expect("it was written").is_new = false;
        if written.is_gone {
            let gone = self.leaves.remove(&first).expect("it was written");
            self.free_slots.extend(gone.slot);
        }
    }
}
