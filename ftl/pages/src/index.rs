//! The map: which page is where.
//!
//! ```text
//!   pages 0 ...            508 ...          7 × 2³² ...           leaves, by the first number that each may have
//!   [ ▓▓▓▓▓▓▓ ]            [ ▓▓▓ ]          [ ▓▓▓▓ ]
//!       │ slot 4               │ slot 0         │ no slot yet      blocks of the area that have them on media
//! ```
//!
//! A leaf takes eight bytes for each page where pages are numbered without gaps, ten to twelve where they are near each other. A leaf that took a part of
//! another one is written before that: so no page is ever in none of them. Where two of them have a page on media, the one that was split off is right.
//!
//! All leaves are in memory (`whole_index`), or as many as there is memory for (`demand_index`): who asks for a page then may learn that its leaf is
//! [missing](Looked::Missing), and asks again when that has been read.

use crate::demand_index::{DemandIndex, least_bytes};
use crate::leaf::Leaf;
use crate::looked::{IndexMemory, LeafToWrite, Looked, NextToWrite};
use crate::place::Place;
use crate::whole_index::WholeIndex;
use openftl_core::BLOCK_BYTES;
use openftl_parts::map::cache::CachePolicy;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

/// What pages add up to.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Sums {
    /// Pages that are somewhere, or lost.
    pub pages: u64,
    /// Of these, those that are lost.
    pub lost: u64,
    /// Bytes of those that are somewhere.
    pub bytes: u64,
    /// Grains that these take.
    pub grains: u64,
}

impl Sums {
    fn add(&mut self, place: Option<Place>) {
        let Some(place) = place else { return };
        self.pages += 1;
        if place == Place::LOST {
            self.lost += 1;
        } else {
            self.bytes += u64::from(place.bytes());
            self.grains += u64::from(place.grains());
        }
    }

    fn take(&mut self, place: Option<Place>) {
        let Some(place) = place else { return };
        self.pages -= 1;
        if place == Place::LOST {
            self.lost -= 1;
        } else {
            self.bytes -= u64::from(place.bytes());
            self.grains -= u64::from(place.grains());
        }
    }
}

enum Kind {
    Whole(WholeIndex),
    OnDemand(Box<DemandIndex>),
}

/// Calls a method of either.
macro_rules! of_either {
    ($self:ident, $index:ident => $call:expr) => {
        match &$self.kind {
            Kind::Whole($index) => $call,
            Kind::OnDemand($index) => $call,
        }
    };
    (mut $self:ident, $index:ident => $call:expr) => {
        match &mut $self.kind {
            Kind::Whole($index) => $call,
            Kind::OnDemand($index) => $call,
        }
    };
}

/// See the module.
pub struct Index {
    kind: Kind,
    sums: Sums,
}

impl Index {
    /// One without pages, with room for so many leaves on media, each with so many pages at most, and with so much memory, or all that it needs.
    #[must_use]
    pub fn new(slots: u32, leaf_pages: usize, memory: Option<IndexMemory>) -> Index {
        let kind = match memory {
            None => Kind::Whole(WholeIndex::new(slots, leaf_pages)),
            Some(memory) => Kind::OnDemand(Box::new(DemandIndex::new(slots, leaf_pages, memory))),
        };
        Index { kind, sums: Sums::default() }
    }

    /// One without pages, all in memory, whose leaves take these slots only when there are no others.
    #[must_use]
    pub fn new_beside(slots: u32, leaf_pages: usize, taken: &BTreeSet<u32>) -> Index {
        let mut index = WholeIndex::new(slots, leaf_pages);
        index.take_last(taken);
        Index { kind: Kind::Whole(index), sums: Sums::default() }
    }

    /// The least memory that an index with so many slots takes, whose leaves have so many pages at most.
    #[must_use]
    pub fn least_memory(slots: u32, policy: CachePolicy, leaf_pages: usize) -> u64 {
        least_bytes(slots, policy, leaf_pages)
    }

    /// Bytes of memory that it may take; `None`: all that it needs.
    #[must_use]
    pub fn bytes_max(&self) -> Option<u64> {
        if let Kind::OnDemand(index) = &self.kind { Some(index.bytes_max()) } else { None }
    }

    fn whole(&self) -> &WholeIndex {
        match &self.kind {
            Kind::Whole(index) => index,
            Kind::OnDemand(_) => panic!("the index is not all in memory"),
        }
    }

    /// Whether all leaves are in memory.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        matches!(self.kind, Kind::Whole(_))
    }

    /// Whether a leaf of an index that is whole has this slot.
    ///
    /// # Panics
    /// If it is not.
    #[must_use]
    pub fn has_slot(&self, slot: u32) -> bool {
        self.whole().has_slot(slot)
    }

    /// A leaf is found on media, in this slot. [`Index::all_found`] ends it. Returns false if another one begins with the same number.
    #[must_use]
    pub fn found(&mut self, slot: u32, leaf: Leaf) -> bool {
        let mut sums = self.sums;
        leaf.pages_from(leaf.first()).for_each(|(_, place)| sums.add(Some(place)));
        let is_new = of_either!(mut self, index => index.found(slot, leaf));
        if is_new {
            self.sums = sums;
        }
        is_new
    }

    /// All leaves that there are have been found.
    pub fn all_found(&mut self) {
        of_either!(mut self, index => index.all_found());
    }

    /// The medium has pages of leaf `first`, which is in memory, from where the next one begins: what was split off is newer. The leaf is dirty, so that
    /// they do not come back when the next one is no more. Gives their places.
    pub fn cut(&mut self, first: u64) -> Vec<Place> {
        let gone = of_either!(mut self, index => index.cut(first));
        gone.iter().for_each(|place| self.sums.take(Some(*place)));
        gone
    }

    /// Whether every leaf of an index that is whole has room on media.
    ///
    /// # Panics
    /// If it is not whole.
    #[must_use]
    pub fn fits(&self) -> bool {
        self.whole().fits()
    }

    /// Pages that are somewhere, or lost.
    #[must_use]
    pub fn pages(&self) -> u64 {
        self.sums.pages
    }

    /// What they add up to.
    #[must_use]
    pub fn sums(&self) -> Sums {
        self.sums
    }

    /// Bytes of memory that it takes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        of_either!(self, index => index.bytes())
    }

    /// Where page `lpid` is.
    #[inline]
    pub fn look(&mut self, lpid: u64) -> Looked {
        match &mut self.kind {
            Kind::Whole(index) => Looked::At(index.get(lpid)),
            Kind::OnDemand(index) => index.look(lpid),
        }
    }

    /// Where page `lpid` is, for somebody who can do without. Its leaf is read from then on only if few are being read: a batch that names pages
    /// all over the map is not to keep reads of others waiting.
    pub fn glance(&mut self, lpid: u64) -> Looked {
        match &mut self.kind {
            Kind::Whole(index) => Looked::At(index.get(lpid)),
            Kind::OnDemand(index) => index.glance(lpid),
        }
    }

    /// Where page `lpid` is, which has changed since a checkpoint began, or whose leaf is held.
    ///
    /// # Panics
    /// If its leaf is not in memory.
    #[must_use]
    pub fn get(&self, lpid: u64) -> Option<Place> {
        of_either!(self, index => index.get(lpid))
    }

    /// The same of a page that was just looked for: one whose leaf is lost is lost, too.
    ///
    /// # Panics
    /// If its leaf is missing.
    #[must_use]
    pub fn get_looked(&self, lpid: u64) -> Option<Place> {
        match &self.kind {
            Kind::OnDemand(index) if index.is_lost(lpid) => Some(Place::LOST),
            _ => self.get(lpid),
        }
    }

    /// The leaf of page `lpid` stays in memory until [`Index::release`]. Returns false if it is to be read before.
    pub fn hold(&mut self, lpid: u64) -> bool {
        match &mut self.kind {
            Kind::Whole(_) => true,
            Kind::OnDemand(index) => index.hold(lpid),
        }
    }

    /// Leaves that were held stay no more.
    pub fn release(&mut self) {
        if let Kind::OnDemand(index) = &mut self.kind {
            index.release();
        }
    }

    /// Reads of leaves that there may be at a time.
    #[must_use]
    pub fn reads_max(&self) -> usize {
        if let Kind::OnDemand(index) = &self.kind { index.reads_max() } else { 0 }
    }

    /// The slot of the next leaf to read.
    pub fn next_to_read(&mut self) -> Option<u32> {
        if let Kind::OnDemand(index) = &mut self.kind { index.next_to_read() } else { None }
    }

    /// Whether any leaf is to be read, or is being read.
    #[must_use]
    pub fn is_reading(&self) -> bool {
        if let Kind::OnDemand(index) = &self.kind { index.is_reading() } else { false }
    }

    /// The leaf of a slot was read; `None`: it cannot be. Returns whether it is there.
    pub fn read(&mut self, slot: u32, block: Option<&[u8; BLOCK_BYTES]>) -> bool {
        if let Kind::OnDemand(index) = &mut self.kind { index.read(slot, block) } else { false }
    }

    /// Has leaves read, by their first numbers, as far as they are not in memory.
    pub fn prefetch(&mut self, firsts: &[u64]) {
        if let Kind::OnDemand(index) = &mut self.kind {
            index.prefetch(firsts);
        }
    }

    /// Page `lpid` is at `place` from now on, or nowhere. Returns where it was.
    ///
    /// # Panics
    /// If its leaf is not in memory.
    pub fn set(&mut self, lpid: u64, place: Option<Place>) -> Option<Place> {
        let old = of_either!(mut self, index => index.set(lpid, place));
        self.sums.add(place);
        self.sums.take(old);
        old
    }

    /// Whether so many pages with new numbers have room on media, whatever their numbers are.
    #[must_use]
    pub fn has_room(&self, pages: usize) -> bool {
        of_either!(self, index => index.has_room(pages))
    }

    /// Whether there are pages of which it is not known yet whether their leaves have room for them.
    #[must_use]
    pub fn has_new(&self) -> bool {
        if let Kind::OnDemand(index) = &self.kind { index.has_new() } else { false }
    }

    /// Pages and their places from `lpid` on, in the order of their numbers, of an index that is whole.
    ///
    /// # Panics
    /// If it is not.
    pub fn pages_from(&self, lpid: u64) -> impl Iterator<Item = (u64, Place)> + '_ {
        self.whole().pages_from(lpid)
    }

    /// Shows `take` these pages with their places, in the order of their numbers, while it asks for more.
    ///
    /// # Errors
    /// A leaf is missing, or lost: the number from which on to ask, which was not shown.
    pub fn list(
        &mut self,
        lpids: RangeInclusive<u64>,
        take: &mut dyn FnMut(u64, Place) -> bool,
    ) -> Result<(), (u64, Looked)> {
        let end = *lpids.end();
        let mut take = |lpid: u64, place: Place| lpid <= end && take(lpid, place);
        match &mut self.kind {
            Kind::Whole(index) => _ = index.pages_from(*lpids.start()).all(|(lpid, place)| take(lpid, place)),
            Kind::OnDemand(index) => {
                let mut from = Some(*lpids.start());
                while let Some(next) = from.filter(|next| *next <= end) {
                    from = index.list_leaf(next, &mut take).map_err(|looked| (next, looked))?;
                }
            }
        }
        Ok(())
    }

    /// Leaves that are dirty.
    #[must_use]
    pub fn dirty(&self) -> usize {
        of_either!(self, index => index.dirty())
    }

    /// Leaves that are dirty now, by their first numbers.
    #[must_use]
    pub fn dirty_leaves(&self) -> BTreeSet<u64> {
        of_either!(self, index => index.dirty_leaves())
    }

    /// Whether so much has changed that a checkpoint is due.
    #[must_use]
    pub fn wants_checkpoint(&self) -> bool {
        if let Kind::OnDemand(index) = &self.kind { index.wants_checkpoint() } else { false }
    }

    /// Whether so much has that nothing more is to change before leaves were written.
    #[must_use]
    pub fn is_full_of_changes(&self) -> bool {
        if let Kind::OnDemand(index) = &self.kind { index.is_full_of_changes() } else { false }
    }

    /// What is to be written next so that leaf `first` is, as it was before these changes.
    ///
    /// # Panics
    /// If there are more leaves than slots: [`Index::has_room`].
    pub fn next_to_write(&mut self, first: u64, before: &BTreeMap<u64, Option<Place>>) -> NextToWrite {
        of_either!(mut self, index => index.next_to_write(first, before))
    }

    /// The leaf that was to be written next is on its way to the medium, by this write.
    pub fn written(&mut self, written: &LeafToWrite, write: u64) {
        match &mut self.kind {
            Kind::Whole(index) => index.written(written),
            Kind::OnDemand(index) => index.written(written, write),
        }
    }

    /// All writes up to this one have ended.
    pub fn writes_ended(&mut self, last: u64) {
        if let Kind::OnDemand(index) = &mut self.kind {
            index.writes_ended(last);
        }
    }

    /// The number behind the last one that the leaf of page `lpid` may have; `None`: there is no leaf behind it.
    #[must_use]
    pub fn end_of(&self, lpid: u64) -> Option<u64> {
        of_either!(self, index => index.end_of(index.first_of(lpid)))
    }
}

#[cfg(test)]
mod tests;
