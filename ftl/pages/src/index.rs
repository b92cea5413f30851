//! The map: which page is where.
//!
//! ```text
//!   pages 0 ...            508 ...          7 × 2³² ...           leaves, by the first number that each may have
//!   [ ▓▓▓▓▓▓▓ ]            [ ▓▓▓ ]          [ ▓▓▓▓ ]
//!       │ slot 4               │ slot 0         │ no slot yet      blocks of the area that have them on media
//! ```
//!
//! All of it is in memory: eight bytes for each page where pages are numbered without gaps, ten to twelve where they are near each other. A leaf that has changed is *dirty* until a
//! checkpoint writes it to its block. A leaf that took a part of another one is written before that: so no page is ever in none of them. Where
//! two of them have a page on media, the one that was split off is right.

use crate::leaf::Leaf;
use crate::place::Place;
use std::collections::{BTreeMap, BTreeSet};

/// The fewest pages that one half of a leaf that is split has.
const HALF_PAGES_MIN: usize = 127;

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
pub struct Index {
    leaves: BTreeMap<u64, Held>,
    dirty: BTreeSet<u64>,
    free_slots: Vec<u32>,
    slots: u32,
    pages: u64,
}

/// A leaf that is to be written, to which block.
pub struct LeafToWrite {
    /// Its first number.
    pub first: u64,
    /// Its block, among those for leaves.
    pub slot: u32,
    /// It has nothing, and the block is to be given back.
    pub is_gone: bool,
}

impl Index {
    /// One without pages, with room for so many leaves on media.
    #[must_use]
    pub fn new(slots: u32) -> Index {
        let root = Held { leaf: Leaf::new(0), slot: None, split_off: Vec::new(), is_new: false };
        Index {
            leaves: BTreeMap::from([(0, root)]),
            dirty: BTreeSet::new(),
            free_slots: (0..slots).rev().collect(),
            slots,
            pages: 0,
        }
    }

    /// One without pages, whose leaves take these slots only when there are no others.
    #[must_use]
    pub fn new_beside(slots: u32, taken: &BTreeSet<u32>) -> Index {
        let mut index = Index::new(slots);
        index.free_slots.sort_by_key(|slot| (!taken.contains(slot), u32::MAX - slot));
        index
    }

    /// Whether a leaf has this slot.
    #[must_use]
    pub fn has_slot(&self, slot: u32) -> bool {
        self.leaves.values().any(|held| held.slot == Some(slot))
    }

    /// From leaves that were found on media, each in its slot.
    #[must_use]
    pub fn from_media(slots: u32, found: Vec<(u32, Leaf)>) -> Index {
        let mut index = Index::new(slots);
        let taken: BTreeSet<u32> = found.iter().map(|(slot, _)| *slot).collect();
        index.free_slots.retain(|slot| !taken.contains(slot));
        for (slot, leaf) in found {
            index.leaves.insert(leaf.first(), Held { leaf, slot: Some(slot), split_off: Vec::new(), is_new: false });
        }
        // What was split off is newer than what it was split from.
        let ends: Vec<(u64, u64)> = index.leaves.keys().copied().zip(index.leaves.keys().copied().skip(1)).collect();
        for (first, end) in ends {
            index.leaves.get_mut(&first).expect("it was just listed").leaf.end_before(end);
        }
        index.pages = index.leaves.values().map(|held| held.leaf.pages() as u64).sum();
        index
    }

    /// Whether every leaf has room on media.
    #[must_use]
    pub fn fits(&self) -> bool {
        self.leaves.len() <= self.slots as usize
    }

    /// Pages that are somewhere.
    #[must_use]
    pub fn pages(&self) -> u64 {
        self.pages
    }

    /// Bytes of memory that it takes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.leaves.values().map(|held| (held.leaf.bytes() + size_of::<(u64, Held)>()) as u64).sum()
    }

    fn leaf_of(&self, lpid: u64) -> &Held {
        self.leaves.range(..=lpid).next_back().expect("the first leaf begins with 0").1
    }

    /// Where page `lpid` is.
    #[must_use]
    pub fn get(&self, lpid: u64) -> Option<Place> {
        self.leaf_of(lpid).leaf.get(lpid)
    }

    /// Page `lpid` is at `place` from now on, or nowhere. Returns where it was.
    pub fn set(&mut self, lpid: u64, place: Option<Place>) -> Option<Place> {
        loop {
            let (first, held) = self.leaves.range_mut(..=lpid).next_back().expect("the first leaf begins with 0");
            let first = *first;
            match held.leaf.set(lpid, place) {
                Ok(old) => {
                    if old != place {
                        self.dirty.insert(first);
                    }
                    self.pages = self.pages + u64::from(place.is_some()) - u64::from(old.is_some());
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
    #[must_use]
    pub fn has_room(&self, pages: usize) -> bool {
        let leaves = self.leaves.len();
        leaves + pages.min(leaves) + pages / HALF_PAGES_MIN < self.slots as usize
    }

    /// Pages and their places from `lpid` on, in the order of their numbers.
    pub fn pages_from(&self, lpid: u64) -> impl Iterator<Item = (u64, Place)> + '_ {
        let first = self.leaf_of(lpid).leaf.first();
        self.leaves.range(first..).flat_map(move |(_, held)| held.leaf.pages_from(lpid))
    }

    /// Leaves that are dirty.
    #[must_use]
    pub fn dirty(&self) -> usize {
        self.dirty.len()
    }

    /// Leaves that are dirty now.
    #[must_use]
    pub fn dirty_leaves(&self) -> BTreeSet<u64> {
        self.dirty.clone()
    }

    /// The leaf that has to be written first so that leaf `first` can be, or that one. `None`: it is not dirty.
    ///
    /// # Panics
    /// If there are more leaves than slots: [`Index::has_room`].
    pub fn next_to_write(&mut self, first: u64) -> Option<LeafToWrite> {
        let mut first = first;
        while let Some(child) = self.leaves.get(&first)?.split_off.last().copied() {
            if self.leaves.get(&child).is_some_and(|child| child.is_new) {
                first = child;
            } else {
                self.leaves.get_mut(&first).expect("it was just looked at").split_off.pop();
            }
        }
        if !self.dirty.contains(&first) {
            return None;
        }
        let held = self.leaves.get_mut(&first).expect("it was just looked at");
        let is_gone = held.leaf.pages() == 0 && first > 0;
        let slot = *held.slot.get_or_insert_with(|| self.free_slots.pop().expect("there are enough slots"));
        Some(LeafToWrite { first, slot, is_gone })
    }

    /// The leaf as it is.
    ///
    /// # Panics
    /// If there is none.
    #[must_use]
    pub fn leaf(&self, first: u64) -> &Leaf {
        &self.leaves[&first].leaf
    }

    /// The number behind the last one that leaf `first` may have; `None`: there is no leaf behind it.
    #[must_use]
    pub fn end_of(&self, first: u64) -> Option<u64> {
        self.leaves.range(first + 1..).next().map(|(end, _)| *end)
    }

    /// The leaf is on its way to the medium as it is; if `is_gone`, its block is given back. One that has changes that do not count yet stays
    /// dirty.
    pub fn written(&mut self, first: u64, is_gone: bool, stays_dirty: bool) {
        if !stays_dirty {
            self.dirty.remove(&first);
        }
        self.leaves.get_mut(&first).expect("it was written").is_new = false;
        if is_gone {
            let gone = self.leaves.remove(&first).expect("it was written");
            self.free_slots.extend(gone.slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use openftl_core::{BLOCK_BYTES, Geometry};

    fn place(number: u64) -> Place {
        let format = Geometry::tiny().format();
        Place::new(format, format.chunk_id(format.pu_id(0, 0), 0), (number % 1024) as u32, 1 + (number % 500) as u32)
    }

    /// Writes what is dirty, but so many leaves, to a medium.
    fn write(index: &mut Index, medium: &mut BTreeMap<u32, [u8; BLOCK_BYTES]>, leave: usize) {
        while index.dirty() > leave {
            let first = *index.dirty.iter().next().unwrap();
            let to = index.next_to_write(first).unwrap();
            let mut block = [0; BLOCK_BYTES];
            index.leaf(to.first).write(&mut block);
            index.written(to.first, to.is_gone, false);
            match to.is_gone {
                true => _ = medium.remove(&to.slot),
                false => _ = medium.insert(to.slot, block),
            }
        }
    }

    fn read(slots: u32, medium: &BTreeMap<u32, [u8; BLOCK_BYTES]>) -> Index {
        Index::from_media(slots, medium.iter().map(|(slot, block)| (*slot, Leaf::read(block).unwrap())).collect())
    }

    #[test]
    fn what_is_written_is_found_again() {
        let (mut index, mut model, mut medium) = (Index::new(200), BTreeMap::new(), BTreeMap::new());
        let mut x = 9_u64;
        for round in 0..20 {
            for _ in 0..500 {
                x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let lpid = (x >> 30) % 3000 * if x >> 29 & 1 == 0 { 1 } else { 1 << 40 };
                let to = (!(x >> 10).is_multiple_of(3) || round > 17).then(|| place(x >> 8));
                let known = match to {
                    Some(place) if round < 18 => model.insert(lpid, place),
                    _ => model.remove(&lpid),
                };
                assert_eq!(index.set(lpid, to.filter(|_| round < 18)), known);
            }
            write(&mut index, &mut medium, 0);
            assert!(index.leaves.len() < 200 && medium.len() <= index.leaves.len());
            let again = read(200, &medium);
            assert_eq!(again.pages_from(0).collect::<BTreeMap<_, _>>(), model);
            assert_eq!((again.pages(), index.pages()), (model.len() as u64, model.len() as u64));
            assert!(index.pages_from(777).eq(model.range(777..).map(|(lpid, place)| (*lpid, *place))));
            index = again;
        }
    }

    #[test]
    fn an_index_beside_another_one_takes_its_slots_last() {
        let taken = BTreeSet::from([0, 1, 5]);
        let mut index = Index::new_beside(8, &taken);
        let slots: Vec<u32> = std::iter::from_fn(|| index.free_slots.pop()).collect();
        assert_eq!(slots, [2, 3, 4, 6, 7, 0, 1, 5]);
    }

    /// A page that has not changed is there, whichever leaves were written last.
    #[test]
    fn a_split_that_was_written_in_part_loses_no_page() {
        let mut before = Index::new(100);
        (0..1000).for_each(|lpid| _ = before.set(lpid * 3, Some(place(lpid))));
        let mut medium = BTreeMap::new();
        write(&mut before, &mut medium, 0);
        for leave in 0.. {
            let (mut index, mut medium) = (read(100, &medium), medium.clone());
            (0..1000).for_each(|lpid| _ = index.set(lpid * 3 + 1, Some(place(lpid))));
            if leave > index.dirty() {
                break;
            }
            write(&mut index, &mut medium, leave);
            let found = read(100, &medium);
            (0..1000).for_each(|lpid| assert_eq!(found.get(lpid * 3), Some(place(lpid)), "{lpid}, {leave} left"));
        }
    }
}
