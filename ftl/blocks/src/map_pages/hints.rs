//! Which map pages leave memory last: as the owner of a drive says, as a host says, and as its writes show.
//!
//! A hint changes which pages stay in memory, and nothing else. A write loads no page, so only reads gain by it.

use super::paged;
use crate::block_ftl::BlockFtl;
use openftl_parts::map::Map;
use openftl_parts::map::circles::Circles;
use openftl_parts::map::pins::MapPin;
use openftl_parts::target::{ExpectedUse, Extent};

impl BlockFtl {
    /// Does what the owner of the drive says of map pages in memory.
    pub(crate) fn heed_map_choices(&mut self) {
        let config = &self.config;
        let Some(pages) = &mut self.map_pages else { return };
        pages.block_pages = config.map_block.pages();
        pages.circles = config.map_pins.contains(&MapPin::Learned).then(|| Circles::new(config.capacity_blocks));
        for blocks in config.map_pins.iter().filter_map(|pin| pin.blocks()) {
            let has_room = paged(&mut self.map).pin(blocks);
            assert!(has_room, "the plan admits as many ranges as are kept");
        }
    }

    /// A host says how it will use blocks.
    pub(crate) fn expect_use_of(&mut self, extent: Extent, expected: ExpectedUse) {
        let Map::Paged(map) = &mut self.map else { return };
        let blocks = extent.first..extent.end();
        match expected {
            // Where there are too many ranges already, the pages leave as others do.
            ExpectedUse::Frequent => _ = map.pin(blocks),
            ExpectedUse::Ordinary => map.unpin(blocks),
        }
    }

    /// Blocks whose map pages leave memory last, in ranges of whole pages.
    #[must_use]
    pub fn pinned_blocks(&self) -> Vec<Extent> {
        let Map::Paged(map) = &self.map else { return Vec::new() };
        let ranges = map.pins().ranges().iter().map(|pages| {
            let (first, end) = (map.size().first_of(pages.start), map.end_of(pages.end - 1));
            Extent { first, blocks: end - first }
        });
        ranges.collect()
    }
}
