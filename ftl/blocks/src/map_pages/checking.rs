//! What map pages say of valid blocks, for a check of the drive: pages are read one after the other, past the cache.

use super::{For, Owner};
use crate::block_ftl::BlockFtl;
use openftl_core::{Clock, Frame, Ppa};
use openftl_parts::flash::reads::Reader;
use openftl_parts::map::{Map, Place};
use openftl_parts::open_error::OpenError;
use openftl_parts::tenant::Tenant;

/// A page that a check reads.
pub(super) enum Checked {
    /// None is asked for.
    None,
    /// It is being read.
    Reading,
    /// It is in this frame, or lost.
    Came { frame: Frame, is_good: bool },
}

impl Checked {
    pub(super) fn is_reading(&self) -> bool {
        matches!(self, Checked::Reading)
    }
}

impl BlockFtl {
    /// The places that the map of a drive on media has for its blocks, and those of overwritten blocks that still count as valid:
    /// `each` is told of all of them. Returns the pages that cannot be read.
    ///
    /// # Errors
    /// If the device stops answering.
    pub(crate) fn each_place_of_map(
        &mut self,
        clock: &mut dyn Clock,
        tenant: &mut dyn Tenant,
        each: &mut dyn FnMut(&BlockFtl, u64, Ppa),
    ) -> Result<Vec<u32>, OpenError> {
        let Map::Paged(map) = &self.map else { return Ok(Vec::new()) };
        let mut lost = Vec::new();
        for page in 0..map.directory().pages() {
            let frame = loop {
                let Some(pages) = &mut self.map_pages else { return Ok(lost) };
                let Map::Paged(map) = &self.map else { return Ok(lost) };
                let Some(copies) = map.directory().get(page) else { break None };
                let Some(frame) = pages.frames.pop() else {
                    // Reads of the host have all of them for a moment.
                    self.run(clock, tenant, |ftl| {
                        ftl.map_pages.as_ref().is_some_and(|pages| !pages.frames.is_empty())
                    })?;
                    continue;
                };
                pages.checked = Checked::Reading;
                let owner = Owner { page, copy: 0, what: For::Check, tries: 0 };
                let id = self.flash.reads.begin(Reader::Map, owner.encode());
                self.flash.reads.get_mut(id).add(copies[0], frame);
                self.flash.statistics.map_pages_read += 1;
                self.flash.submit_read(id);
                self.hand_over();
                self.run(clock, tenant, |ftl| ftl.map_pages.as_ref().is_none_or(|pages| !pages.checked.is_reading()))?;
                let Some(pages) = &mut self.map_pages else { return Ok(lost) };
                let Checked::Came { frame, is_good } = std::mem::replace(&mut pages.checked, Checked::None) else {
                    break None;
                };
                if !is_good {
                    let Map::Paged(map) = &self.map else { return Ok(lost) };
                    lost.extend(map.directory().get(page).map(|_| page));
                    pages.frames.push(frame);
                    break None;
                }
                break Some(frame);
            };
            self.each_place_of_page(page, frame, each);
            if let (Some(frame), Some(pages)) = (frame, &mut self.map_pages) {
                pages.frames.push(frame);
            }
        }
        Ok(lost)
    }

    fn each_place_of_page(&self, page: u32, frame: Option<Frame>, each: &mut dyn FnMut(&BlockFtl, u64, Ppa)) {
        let Map::Paged(map) = &self.map else { return };
        // Most pages of a large drive say nothing.
        if frame.is_none() && map.changes().of_page(page) == 0 {
            return;
        }
        for block in map.size().first_of(page)..map.end_of(page) {
            let change = map.changes().get(block);
            // Until a merge takes the change in, what the page has counts as valid, but for a settled one.
            if let Some(frame) = frame.filter(|_| change.is_none_or(|change| !change.is_settled)) {
                let entry = map.size().entry(self.flash.frames.bytes(frame), map.size().split(block).1);
                if let Place::Media(ppa) = entry.place() {
                    each(self, block, ppa);
                }
            }
            if let Some(Place::Media(ppa)) = change.map(|change| change.entry.place()) {
                each(self, block, ppa);
            }
        }
    }

    /// A page that a check reads has come, or is lost.
    pub(super) fn checked_page_came(&mut self, _page: u32, frame: Frame, is_good: bool) {
        self.map_pages.as_mut().expect("the map is on media").checked = Checked::Came { frame, is_good };
    }
}
