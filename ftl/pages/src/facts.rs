//! What is known of pages without reading any: for an FTL that is composed of a store of pages.

use crate::drive::PageFtl;
use crate::index::Sums;
use crate::leaf::LEAF_PAGES_MAX;
use crate::looked::Looked;
use crate::place::{GRAIN_BYTES, HEADER_BYTES, Place, grains_of};
use std::ops::RangeInclusive;

/// Bytes of a page that stands at `place`; 0: the medium has lost it.
fn bytes_at(place: Place) -> u32 {
    if place == Place::LOST { 0 } else { place.bytes() }
}

/// What the pages of a store add up to.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct PageContents {
    /// How many there are, without those that the medium has lost.
    pub pages: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Bytes of their headers.
    pub header_bytes: u64,
    /// Bytes that they leave of their last grains.
    pub grain_bytes: u64,
}

impl PageFtl {
    /// What the pages add up to.
    #[must_use]
    pub fn contents(&self) -> PageContents {
        let Sums { pages, lost, mut bytes, mut grains } = self.pages.index.sums();
        let carried = self.pages.carried.values().map(|carried| carried.bytes.len() as u32);
        for length in carried {
            bytes += u64::from(length);
            grains += u64::from(grains_of(length));
        }
        let pages = pages - lost + self.pages.carried.len() as u64;
        let header_bytes = pages * HEADER_BYTES as u64;
        PageContents { pages, bytes, header_bytes, grain_bytes: grains * GRAIN_BYTES as u64 - header_bytes - bytes }
    }

    /// Whether [`PageFtl::bytes_of`] says of all these pages how long they are. What is missing of the map is read from now on: ask again when
    /// something has ended.
    pub fn knows(&mut self, lpids: impl IntoIterator<Item = u64>) -> bool {
        let mut is_missing = false;
        for lpid in lpids {
            is_missing |= matches!(self.pages.index.look(lpid), Looked::Missing(_));
        }
        self.has_read(is_missing)
    }

    /// Whether [`PageFtl::pages_in`] says of all these pages whether they are there, as [`PageFtl::knows`].
    pub fn knows_all(&mut self, lpids: RangeInclusive<u64>) -> bool {
        let listed = self.pages.index.list(lpids, &mut |_, _| true);
        self.has_read(matches!(listed, Err((_, Looked::Missing(_)))))
    }

    fn has_read(&mut self, is_missing: bool) -> bool {
        if is_missing {
            self.read_leaves();
            self.ftl.hand_over();
        }
        !is_missing
    }

    /// Bytes of a page that is committed, if there is one; 0: the medium has lost it.
    ///
    /// # Panics
    /// If it is not [known](PageFtl::knows).
    #[must_use]
    pub fn bytes_of(&self, lpid: u64) -> Option<u32> {
        let carried = self.pages.carried.get(&lpid).map(|carried| carried.bytes.len() as u32);
        carried.or_else(|| self.pages.index.get_looked(lpid).map(bytes_at))
    }

    /// Numbers of those of these pages that are committed, in no order. Those of parts of the map that are lost or not
    /// [known](PageFtl::knows_all) are left out.
    pub fn pages_in(&mut self, lpids: RangeInclusive<u64>) -> Vec<u64> {
        let mut found: Vec<u64> = self.pages.carried.range(lpids.clone()).map(|(lpid, _)| *lpid).collect();
        _ = self.pages.index.list(lpids, &mut |lpid, _| {
            found.push(lpid);
            true
        });
        found
    }

    /// Whether the map has room for so many pages more, whatever their numbers are.
    #[must_use]
    pub fn has_room_for(&self, pages: usize) -> bool {
        self.pages.index.has_room(self.pages.staged + pages)
    }

    /// Pages that the map has room for if their numbers are near each other.
    #[must_use]
    pub fn pages_max(&self) -> u64 {
        // Leaves that split are three quarters full on average, and numbers near each other take ten to twelve bytes.
        u64::from(self.pages.layout.slots) * LEAF_PAGES_MAX / 2
    }
}
