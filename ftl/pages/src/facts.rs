//! What is known of pages without reading any: for an FTL that is composed of a store of pages.

use crate::drive::PageFtl;
use crate::index::Sums;
use crate::leaf::LEAF_PAGES_MAX;
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

    /// Bytes of a page that is committed, if there is one; 0: the medium has lost it.
    #[must_use]
    pub fn bytes_of(&self, lpid: u64) -> Option<u32> {
        let carried = self.pages.carried.get(&lpid).map(|carried| carried.bytes.len() as u32);
        carried.or_else(|| self.pages.index.get(lpid).map(bytes_at))
    }

    /// Numbers and bytes of committed pages, in no order.
    pub fn pages_in(&self, lpids: RangeInclusive<u64>) -> impl Iterator<Item = (u64, u32)> + '_ {
        let end = *lpids.end();
        let placed = self.pages.index.pages_from(*lpids.start()).take_while(move |(lpid, _)| *lpid <= end);
        let carried = self.pages.carried.range(lpids).map(|(lpid, carried)| (*lpid, carried.bytes.len() as u32));
        placed.map(|(lpid, place)| (lpid, bytes_at(place))).chain(carried)
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
