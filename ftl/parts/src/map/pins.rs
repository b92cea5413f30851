//! Map pages that are to stay in memory, and how many are loaded at a time: the owner's choices, and ranges of pages.
//!
//! A pin names blocks that a host uses again and again, such as the journal of a file system. The pages of these blocks leave
//! memory last: only when no other page is left there. Nothing is loaded for a pin, so one of blocks that nobody reads takes no memory.

use super::directory::PageSize;
use openftl_core::BLOCK_BYTES;
use openftl_core::units::{ByteSize, UnitError};
use std::fmt;
use std::ops::Range;
use std::str::FromStr;

/// Ranges that are pinned at a time, whoever asked for them.
pub const RANGES_MAX: usize = 64;

/// Blocks whose map pages stay in memory, as people write them: `0..128MiB`, or `learned`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MapPin {
    /// From a byte of the drive up to another.
    Range {
        /// The first.
        from: ByteSize,
        /// The one behind the last.
        to: ByteSize,
    },
    /// Ranges that are overwritten in order again and again ([`super::circles`]).
    Learned,
}

const LEARNED: &str = "learned";

impl MapPin {
    /// The logical blocks that it names; `None`: the drive learns them.
    #[must_use]
    pub fn blocks(self) -> Option<Range<u64>> {
        match self {
            MapPin::Range { from, to } => Some(from.0 / BLOCK_BYTES as u64..to.0.div_ceil(BLOCK_BYTES as u64)),
            MapPin::Learned => None,
        }
    }
}

impl FromStr for MapPin {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<MapPin, UnitError> {
        let not_understood = || UnitError::NotUnderstood {
            text: text.to_owned(),
            what: "range of a map_pin",
            example: "0..128MiB, or learned",
        };
        if text.trim() == LEARNED {
            return Ok(MapPin::Learned);
        }
        let (from, to) = text.split_once("..").ok_or_else(not_understood)?;
        let size = |text: &str| {
            text.parse::<ByteSize>().map_err(|error| match error {
                UnitError::HalfUnit { .. } => error,
                _ => not_understood(),
            })
        };
        let (from, to) = (size(from)?, size(to)?);
        if from.0 >= to.0 {
            return Err(not_understood());
        }
        Ok(MapPin::Range { from, to })
    }
}

impl fmt::Display for MapPin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // Without spaces, as it is read.
            MapPin::Range { from, to } => f.write_str(&format!("{from}..{to}").replace(' ', "")),
            MapPin::Learned => f.write_str(LEARNED),
        }
    }
}

/// The map pages that are loaded at a time: 1 to 16, as bytes of the map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MapBlock {
    pages: u8,
}

impl MapBlock {
    /// The most pages.
    pub const PAGES_MAX: u64 = 16;

    /// One page.
    pub const PAGE: MapBlock = MapBlock { pages: 1 };

    /// How many pages it has: a power of two.
    #[must_use]
    pub fn pages(self) -> u32 {
        self.pages.into()
    }
}

impl Default for MapBlock {
    fn default() -> MapBlock {
        MapBlock::PAGE
    }
}

impl FromStr for MapBlock {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<MapBlock, UnitError> {
        let not_understood = || UnitError::NotUnderstood {
            text: text.to_owned(),
            what: "size of a map block",
            example: "4KiB, 8KiB, 16KiB, 32KiB or 64KiB",
        };
        let bytes = text.parse::<ByteSize>().map_err(|error| match error {
            UnitError::HalfUnit { .. } => error,
            _ => not_understood(),
        })?;
        let pages = bytes.0 / BLOCK_BYTES as u64;
        let is_one = bytes.0.is_multiple_of(BLOCK_BYTES as u64) && pages.is_power_of_two();
        if !is_one || pages > MapBlock::PAGES_MAX {
            return Err(not_understood());
        }
        Ok(MapBlock { pages: pages as u8 })
    }
}

impl fmt::Display for MapBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        ByteSize(u64::from(self.pages) * BLOCK_BYTES as u64).fmt(f)
    }
}

/// Read from text, as in a drive description.
macro_rules! deserialized_from_text {
    ($type:ty) => {
        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<$type, D::Error> {
                let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

deserialized_from_text!(MapPin);
deserialized_from_text!(MapBlock);

/// Ranges of map pages, in order, none of which touches the next.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct PinnedPages {
    ranges: Vec<Range<u32>>,
}

impl PinnedPages {
    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The ranges.
    #[must_use]
    pub fn ranges(&self) -> &[Range<u32>] {
        &self.ranges
    }

    /// Whether `page` is in one of them.
    #[inline]
    #[must_use]
    pub fn has(&self, page: u32) -> bool {
        let at = self.ranges.partition_point(|range| range.end <= page);
        self.ranges.get(at).is_some_and(|range| range.start <= page)
    }

    /// Adds pages. Returns false, and changes nothing, if that would be more ranges than [`RANGES_MAX`].
    pub fn add(&mut self, pages: Range<u32>) -> bool {
        if pages.is_empty() {
            return true;
        }
        let first = self.ranges.partition_point(|range| range.end < pages.start);
        let behind = self.ranges.partition_point(|range| range.start <= pages.end);
        if first == behind && self.ranges.len() == RANGES_MAX {
            return false;
        }
        let touched = &self.ranges[first..behind];
        let start = touched.first().map_or(pages.start, |range| range.start.min(pages.start));
        let end = touched.last().map_or(pages.end, |range| range.end.max(pages.end));
        self.ranges.splice(first..behind, std::iter::once(start..end));
        true
    }

    /// Takes pages away. What would need more ranges than [`RANGES_MAX`] goes with them.
    pub fn remove(&mut self, pages: Range<u32>) {
        let parts = self.ranges.iter().flat_map(|range| {
            let before = range.start..range.end.min(pages.start);
            let behind = range.start.max(pages.end)..range.end;
            [before, behind]
        });
        let mut parts: Vec<Range<u32>> = parts.filter(|range| !range.is_empty()).collect();
        if pages.is_empty() {
            return;
        }
        parts.truncate(RANGES_MAX);
        self.ranges = parts;
    }
}

impl PageSize {
    /// The pages that say anything of `blocks`, of a map of `all` blocks.
    #[must_use]
    pub fn pages_of(self, blocks: Range<u64>, all: u64) -> Range<u32> {
        let (start, end) = (blocks.start.min(all), blocks.end.min(all));
        if start >= end {
            return 0..0;
        }
        self.split(start).0..self.split(end - 1).0 + 1
    }
}

#[cfg(test)]
mod tests {
    use super::super::Width;
    use super::*;

    #[test]
    fn a_pin_is_a_range_of_bytes_or_learned() {
        let pin: MapPin = "0..128MiB".parse().unwrap();
        assert_eq!((pin.blocks(), pin.to_string()), (Some(0..32_768), "0B..128MiB".to_owned()));
        assert_eq!("5000..5001".parse::<MapPin>().unwrap().blocks(), Some(1..2));
        assert_eq!("learned".parse(), Ok(MapPin::Learned));
        for wrong in ["", "128MiB", "8MiB..8MiB", "9MiB..8MiB", "..8MiB", "0..", "0..x", "-1..4"] {
            let error = wrong.parse::<MapPin>().unwrap_err();
            let said = format!("`{wrong}` is no range of a map_pin; write it like 0..128MiB, or learned");
            assert_eq!(error.to_string(), said);
        }
        assert!("0..8M".parse::<MapPin>().unwrap_err().to_string().contains("8MiB"));
    }

    #[test]
    fn a_map_block_is_a_power_of_two_of_pages() {
        for (text, pages) in [("4KiB", 1), ("8KiB", 2), ("16KiB", 4), ("32KiB", 8), ("64KiB", 16), ("65536", 16)] {
            let block: MapBlock = text.parse().unwrap();
            assert_eq!(block.pages(), pages);
        }
        for wrong in ["", "0", "2KiB", "5KiB", "12KiB", "128KiB", "large"] {
            let error = wrong.parse::<MapBlock>().unwrap_err();
            let said = "is no size of a map block; write it like 4KiB, 8KiB, 16KiB, 32KiB or 64KiB";
            assert_eq!(error.to_string(), format!("`{wrong}` {said}"));
        }
    }

    /// Beside a set of pages.
    #[test]
    fn ranges_say_of_each_page_what_was_last_said() {
        let (mut pins, mut model) = (PinnedPages::default(), std::collections::BTreeSet::new());
        let mut chance = 3_u32;
        for round in 0..2_000 {
            chance = chance.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let (start, len) = ((chance >> 16) % 100, (chance >> 8) % 7);
            let pages = start..start + len;
            if round % 3 > 0 {
                assert!(pins.add(pages.clone()), "there are fewer ranges than pages");
                model.extend(pages);
            } else {
                pins.remove(pages.clone());
                pages.for_each(|page| _ = model.remove(&page));
            }
            assert!((0..110).all(|page| pins.has(page) == model.contains(&page)), "{round}: {pins:?}");
            assert!(pins.ranges().windows(2).all(|pair| pair[0].end < pair[1].start), "{pins:?}");
        }
    }

    #[test]
    fn more_ranges_than_there_may_be_are_refused() {
        let mut pins = PinnedPages::default();
        assert!((0..RANGES_MAX as u32).all(|range| pins.add(3 * range..3 * range + 1)));
        assert!(!pins.add(1_000..1_001) && pins.add(1..2) && pins.add(0..900));
        assert_eq!((pins.ranges().len(), &pins.ranges()[0]), (1, &(0..900)));
    }

    #[test]
    fn pages_of_blocks_are_those_that_name_them() {
        let size = PageSize::of(8, Width::Narrow).unwrap();
        assert_eq!(size.pages_of(7..9, 20), 0..2);
        assert_eq!(size.pages_of(8..16, 20), 1..2);
        assert_eq!(size.pages_of(8..1 << 40, 20), 1..3);
        assert_eq!(size.pages_of(20..30, 20), 0..0);
    }
}
