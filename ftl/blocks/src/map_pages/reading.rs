//! Map pages that reads of the host wait for: read once for all of them, with what is wanted soon.

use super::CHANGE_STEPS;
use super::{For, Owner, PAGES_AHEAD, READS_OF_LOST, Waiting, paged};
use crate::block_ftl::BlockFtl;
use openftl_core::{BLOCK_BYTES, Frame};
use openftl_media::{Completion, Status};
use openftl_parts::flash::oob::{BlockKind, Oob};
use openftl_parts::flash::reads::{ReadId, Reader};
use openftl_parts::map::Map;
use std::collections::btree_map;

impl BlockFtl {
    /// Blocks of a read wait for their page.
    pub(crate) fn wait_for_page(&mut self, page: u32, waiting: Waiting) {
        let pages = self.map_pages.as_mut().expect("the map is on media");
        match pages.waiting.entry(page) {
            btree_map::Entry::Occupied(mut others) => others.get_mut().push(waiting),
            btree_map::Entry::Vacant(place) => {
                place.insert(vec![waiting]);
                pages.queue.push_back(page);
                self.read_block_of(page);
                self.read_ahead(page);
            }
        }
        self.read_pages();
    }

    /// The other pages of the map block that `page` is in are loaded with it.
    fn read_block_of(&mut self, page: u32) {
        let Map::Paged(map) = &self.map else { return };
        let pages = self.map_pages.as_mut().expect("the map is on media");
        let first = page / pages.block_pages * pages.block_pages;
        for other in first..(first + pages.block_pages).min(map.directory().pages()) {
            if other != page && map.needs_page(other) && !pages.waiting.contains_key(&other) {
                pages.waiting.insert(other, Vec::new());
                pages.queue.push_back(other);
            }
        }
    }

    /// Pages behind `page` are wanted soon, if it follows the one before.
    fn read_ahead(&mut self, page: u32) {
        let Map::Paged(map) = &mut self.map else { return };
        let pages = self.map_pages.as_mut().expect("the map is on media");
        let follows = page == pages.last_read.wrapping_add(1);
        pages.last_read = page;
        // A cache of few pages has no room for those of others.
        if !follows || pages.plan.pool_bytes / 8 < u64::from(8 * PAGES_AHEAD) * BLOCK_BYTES as u64 {
            return;
        }
        for ahead in page + 1..(page + 1 + PAGES_AHEAD).min(map.directory().pages()) {
            pages.last_read = ahead;
            if map.needs_page(ahead) && !pages.waiting.contains_key(&ahead) {
                pages.waiting.insert(ahead, Vec::new());
                pages.queue.push_back(ahead);
            }
        }
    }

    /// Reads pages that are waited for.
    pub(super) fn read_pages(&mut self) {
        let pages = self.map_pages.as_mut().expect("the map is on media");
        while !pages.queue.is_empty()
            && let Some(frame) = pages.frames.pop()
        {
            let page = pages.queue.pop_front().expect("it is not empty");
            let Some(copies) = paged(&mut self.map).directory().get(page) else {
                // It was trimmed meanwhile.
                pages.frames.push(frame);
                self.page_came(page, None);
                return self.read_pages();
            };
            let most = pages.plan.changes_max as u32;
            let step = most / CHANGE_STEPS + 1;
            pages.changes_wanted = pages.changes_wanted.saturating_sub(step).max(most / 4);
            let copy = self.flash.backlog.least(self.flash.format, copies);
            let owner = Owner { page, copy, what: For::Host, tries: 0 };
            let id = self.flash.reads.begin(Reader::Map, owner.encode());
            self.flash.reads.get_mut(id).add(copies[copy], frame);
            self.flash.statistics.map_pages_read += 1;
            self.flash.submit_read(id);
        }
    }

    /// `page` is in `frame`, or it is nowhere: who waits for it goes on.
    fn page_came(&mut self, page: u32, frame: Option<Frame>) {
        let pages = self.map_pages.as_mut().expect("the map is on media");
        let waiting = pages.waiting.remove(&page).unwrap_or_default();
        for Waiting { request, first, frames } in waiting {
            self.read_with_page(request, first, &frames, frame);
        }
    }

    /// A map read has ended.
    pub(crate) fn map_read_ended(&mut self, id: ReadId, completion: Completion) {
        let read = self.flash.reads.get(id);
        let (owner, place, frame) = (Owner::decode(read.owner), read.places()[0], read.frames()[0]);
        let Owner { page, copy, what, tries } = owner;
        if completion.status != Status::Success {
            self.flash.is_unusual = true;
            self.flash.stirred = true;
            // A page that is merged leaves the chunk, whatever it is like.
            if what != For::Merge || !completion.status.data_is_good() {
                let pages = self.map_pages.as_mut().expect("the map is on media");
                pages.weak.insert(self.flash.format.chunk_of(place));
            }
        }
        let oob = Oob::verify(&self.flash.frames, frame).ok().filter(|_| completion.status.data_is_good());
        let is_page = oob.is_some_and(|oob| oob.kind == BlockKind::Map && oob.address == u64::from(page));
        self.flash.reads.end(id);
        let copies = paged(&mut self.map).directory().get(page);
        // A page that has moved meanwhile has taken changes in, which are nowhere else.
        let is_there = copies.is_some_and(|copies| copies.contains(&place));
        if let Some(copies) = copies
            && (!is_there || (!is_page && tries < READS_OF_LOST))
        {
            // In turns: what fails once may be read the next time.
            let (copy, tries) = if is_there { (1 - copy, tries + 1) } else { (0, 0) };
            let id = self.flash.reads.begin(Reader::Map, Owner { page, copy, what, tries }.encode());
            self.flash.reads.get_mut(id).add(copies[copy], frame);
            self.flash.statistics.map_pages_read += 1;
            self.flash.submit_read(id);
            return;
        }
        match what {
            For::Merge => self.old_page_came(page, is_page),
            For::Search => self.search_page(page, frame, is_page && copies.is_some()),
            For::Check => self.checked_page_came(page, frame, is_page && copies.is_some()),
            For::Host => {
                if is_there && is_page {
                    let bytes = self.flash.frames.bytes(frame);
                    paged(&mut self.map).keep(page, bytes, true);
                }
                let is_lost = copies.is_some() && !is_page;
                if is_lost {
                    self.page_is_lost(page);
                } else {
                    self.page_came(page, copies.map(|_| frame));
                }
                self.map_pages.as_mut().expect("the map is on media").frames.push(frame);
                self.read_pages();
            }
        }
        self.flash.stirred = true;
    }

    /// Neither copy of `page` can be read: where its blocks are nobody knows.
    fn page_is_lost(&mut self, page: u32) {
        self.flash.statistics.read_failures += 1;
        let pages = self.map_pages.as_mut().expect("the map is on media");
        for Waiting { request, first, frames } in pages.waiting.remove(&page).unwrap_or_default() {
            self.read_without_page(request, first, &frames);
        }
    }
}
