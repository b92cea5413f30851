//! Whose a block of a victim is that cannot be read: map pages are read one after the other until one names its place.
//!
//! A map in memory is gone through at once instead. A block that no page names is nobody's, and what has been overwritten meanwhile
//! need not be found.

use super::{For, Owner};
use crate::block_ftl::BlockFtl;
use openftl_core::{Frame, Ppa};
use openftl_parts::flash::reads::Reader;
use openftl_parts::map::{Entry, Map};

/// A valid block of a victim that cannot be read, and of which nobody knows whose it is: `frame` is to move in its stead.
#[derive(Clone, Copy)]
pub(crate) struct LostBlock {
    pub group: u32,
    pub from: Ppa,
    pub frame: Frame,
}

/// The search for owners of lost blocks: map pages are read one after the other.
#[derive(Default)]
pub(super) struct Search {
    /// With the number of pages that each has not been looked for in.
    pub lost: Vec<(LostBlock, u32)>,
    pub next: u32,
    pub is_reading: bool,
}

impl BlockFtl {
    /// Looks for the owner of a lost block.
    pub(crate) fn search_for_owner(&mut self, lost: LostBlock) {
        let Map::Paged(map) = &self.map else { unreachable!("a map in memory knows all owners") };
        let count = map.directory().pages();
        self.map_pages.as_mut().expect("the map is on media").search.lost.push((lost, count));
        self.flash.stirred = true;
    }

    /// Goes on with the search for owners.
    pub(super) fn advance_search(&mut self) {
        while let Some(pages) = &mut self.map_pages
            && !pages.search.lost.is_empty()
            && !pages.search.is_reading
        {
            // What has been overwritten meanwhile need not be found, and what is in no page is nobody's.
            let chunks = &self.flash.chunks;
            let ended = |(lost, left): &(LostBlock, u32)| !chunks.is_valid(lost.from) || *left == 0;
            if let Some(index) = pages.search.lost.iter().position(ended) {
                let (lost, _) = pages.search.lost.swap_remove(index);
                if self.flash.chunks.is_valid(lost.from) {
                    self.flash.chunks.invalidate(lost.from);
                }
                self.drop_lost(lost);
                continue;
            }
            let Map::Paged(map) = &self.map else { return };
            let page = pages.search.next % map.directory().pages();
            pages.search.next = page + 1;
            let Some(copies) = map.directory().get(page) else {
                pages.search.lost.iter_mut().for_each(|(_, left)| *left -= 1);
                continue;
            };
            let Some(frame) = pages.frames.pop() else {
                pages.search.next = page;
                return;
            };
            pages.search.is_reading = true;
            let id = self.flash.reads.begin(Reader::Map, Owner { page, copy: 0, what: For::Search, tries: 0 }.encode());
            self.flash.reads.get_mut(id).add(copies[0], frame);
            self.flash.statistics.map_pages_read += 1;
            self.flash.submit_read(id);
        }
    }

    /// A page came in which owners of lost blocks may be named, or it is lost.
    pub(super) fn search_page(&mut self, page: u32, frame: Frame, is_good: bool) {
        let Map::Paged(map) = &mut self.map else { return };
        let pages = self.map_pages.as_mut().expect("the map is on media");
        pages.search.is_reading = false;
        pages.frames.push(frame);
        let mut found = Vec::new();
        if is_good {
            let bytes = self.flash.frames.bytes(frame);
            for block in map.size().first_of(page)..map.end_of(page) {
                let entry = map.size().entry(bytes, map.size().split(block).1);
                // A place that is settled may be another block's by now.
                let counts = map.changes().get(block).is_none_or(|change| !change.is_settled);
                let named = pages.search.lost.iter().position(|(lost, _)| Entry::media(lost.from) == entry);
                if let Some(index) = named.filter(|_| counts) {
                    found.push((pages.search.lost.swap_remove(index).0, block));
                }
            }
        }
        pages.search.lost.iter_mut().for_each(|(_, left)| *left -= 1);
        for (lost, block) in found {
            let Map::Paged(map) = &mut self.map else { return };
            if self.flash.chunks.is_valid(lost.from) && map.is_at(block, lost.from) {
                self.move_lost(lost.group, block, lost.from, lost.frame);
                continue;
            }
            if self.flash.chunks.is_valid(lost.from) {
                map.drop_stale(block);
                self.flash.chunks.invalidate(lost.from);
            }
            self.drop_lost(lost);
        }
        self.read_pages();
    }
}
