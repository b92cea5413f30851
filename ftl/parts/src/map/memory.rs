//! What a map on media may take of the memory, and what for.
//!
//! ```text
//!   budget = valid blocks ( 1 bit for each block of flash )
//!          + pages        ( directory, lists of changes, places in the cache )
//!          + pool         ( changes, up to 7 bytes each │ pages in memory )
//! ```
//!
//! The pool belongs to changes and pages in memory together: pages leave where changes come, but an eighth is always theirs.

use super::Width;
use super::cache::CachePolicy;
use super::changes::Changes;
use super::demand::DemandMap;
use super::directory::PageSize;
use crate::words::TRANSACTION_BLOCKS_MAX;
use openftl_core::Geometry;
use openftl_core::units::{ByteSize, Share, UnitError};
use std::fmt;
use std::str::FromStr;

/// Memory for the map, where it is kept on media.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MapBudget {
    /// A part of what the whole map takes: 4 bytes a logical block, or 5 where entries are wide.
    Share(Share),
    /// So many bytes.
    Bytes(u64),
    /// The least that the map takes, and so many bytes more.
    BeyondLeast(u64),
}

/// A budget as people write it: a part of what the whole map takes, like `10%`, or bytes, like `64MiB`.
impl FromStr for MapBudget {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<MapBudget, UnitError> {
        if text.trim_end().ends_with('%') {
            return text.parse().map(MapBudget::Share);
        }
        let not_understood =
            || UnitError::NotUnderstood { text: text.to_owned(), what: "budget", example: "10% or 64MiB" };
        // A part of a byte is more likely a part of the map.
        if text.parse::<f64>().is_ok_and(|number| number.fract() != 0.0) {
            return Err(not_understood());
        }
        text.parse::<ByteSize>().map(|size| MapBudget::Bytes(size.0)).map_err(|error| match error {
            UnitError::HalfUnit { .. } => error,
            _ => not_understood(),
        })
    }
}

impl fmt::Display for MapBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MapBudget::Share(share) => write!(f, "{share}"),
            MapBudget::Bytes(bytes) => write!(f, "{}", ByteSize(*bytes)),
            MapBudget::BeyondLeast(bytes) => write!(f, "{} beyond the least", ByteSize(*bytes)),
        }
    }
}

impl<'de> serde::Deserialize<'de> for MapBudget {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<MapBudget, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl MapBudget {
    /// In bytes, of a drive whose whole map takes `whole` bytes, and at least `least` of memory.
    #[must_use]
    pub fn bytes(self, whole: u64, least: u64) -> u64 {
        match self {
            MapBudget::Share(share) => share.of(whole),
            MapBudget::Bytes(bytes) => bytes,
            MapBudget::BeyondLeast(bytes) => least.saturating_add(bytes),
        }
    }
}

/// A map that is kept on media ([`crate::map::demand`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MapMemory {
    /// What the map may take of the memory, all of it counted.
    pub budget: MapBudget,
    /// Which pages stay in memory.
    pub policy: CachePolicy,
    /// Entries of a page, with which the drive is formatted; wide ones at least where the drive [needs](MapMemory::on) them. Fewer than a
    /// block has room for in tests alone, where drives are small.
    pub page: PageSize,
}

impl MapMemory {
    /// The same for a drive of so many logical blocks on a device whose addresses have so many bits.
    #[must_use]
    pub fn on(self, capacity_blocks: u64, address_bits: u32) -> MapMemory {
        match (self.page.width(), Width::needed(capacity_blocks, address_bits)) {
            (Width::Narrow, Width::Wide) => self.wide(),
            _ => self,
        }
    }

    /// The same with wide entries.
    #[must_use]
    pub fn wide(self) -> MapMemory {
        let full = PageSize::full(Width::Wide);
        MapMemory { page: PageSize::of(self.page.entries(), Width::Wide).unwrap_or(full), ..self }
    }
}

/// Bytes of the whole map of a drive of so many logical blocks.
#[must_use]
pub fn whole_bytes(capacity_blocks: u64, width: Width) -> u64 {
    capacity_blocks * width.bytes() as u64
}

/// Bytes that so many changes take at most.
fn bytes_of(changes: u64) -> u64 {
    (changes * Changes::EIGHTHS_PER_CHANGE).div_ceil(8)
}

/// The part of the pool that changes leave to pages in memory.
const PAGES_PART: u64 = 8;

/// Changes that there is room for at least, beside those of one transaction: what collection moves while the host waits.
const CHANGES_KEPT: u64 = 512;

/// How a budget is divided.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
pub struct MapPlan {
    /// Pages of the map.
    pub pages: u32,
    /// Bytes that the whole map would take.
    pub whole_bytes: u64,
    /// Bytes that do not depend on what is read and written.
    pub fixed_bytes: u64,
    /// Bytes for changes and for pages in memory.
    pub pool_bytes: u64,
    /// Changes, at most.
    pub changes_max: u64,
}

/// A budget below what the map needs in any case.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "map_memory = {asked} bytes: the map of this drive takes at least {least} bytes of memory ({percent:.1}% of the whole map); give it \
     as much{or_else}",
    percent = *least as f64 * 100.0 / *whole as f64,
    or_else = match width {
        Width::Narrow => ", or leave map_memory away",
        Width::Wide => ", or choose a smaller capacity",
    }
)]
pub struct TooSmall {
    /// As asked for.
    pub asked: u64,
    /// The smallest budget.
    pub least: u64,
    /// The whole map in memory.
    pub whole: u64,
    /// How long its entries are: a map of wide ones is never kept in memory.
    pub width: Width,
}

/// Changes that the smallest budget has room for. What is merged at a time is a small part of all changes: the more there are of a
/// page, the fewer pages are written.
fn changes_min(capacity_blocks: u64) -> u64 {
    (whole_bytes(capacity_blocks, Width::Narrow) / 100 * 8 / Changes::EIGHTHS_PER_CHANGE)
        .max(TRANSACTION_BLOCKS_MAX as u64 + CHANGES_KEPT)
}

/// Changes that the largest budget has room for. A checkpoint is [planned](changes_planned) for so many: so a drive may be
/// opened with any budget.
#[must_use]
pub fn changes_cap(capacity_blocks: u64) -> u64 {
    (capacity_blocks / 8).max(changes_min(capacity_blocks))
}

/// Changes that may be there beyond those that have room: a trim is not cut short, and a drive that takes nothing new saves what it
/// took.
const CHANGES_BEYOND: u64 = 8_192;

/// Changes that a checkpoint is planned for.
#[must_use]
pub fn changes_planned(capacity_blocks: u64) -> u64 {
    changes_cap(capacity_blocks) + CHANGES_BEYOND
}

impl MapPlan {
    /// All of it.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.fixed_bytes + self.pool_bytes
    }

    /// Divides the budget of a drive of so many logical blocks on a device of this shape, whose entries are as long as they
    /// [have to be](MapMemory::on).
    ///
    /// # Errors
    /// If it is too small.
    pub fn new(memory: &MapMemory, capacity_blocks: u64, geometry: &Geometry) -> Result<MapPlan, TooSmall> {
        let pages = memory.page.pages(capacity_blocks);
        let valid_bytes = geometry.blocks().div_ceil(8);
        let width = memory.page.width();
        let fixed_bytes = valid_bytes + u64::from(pages) * DemandMap::bytes_per_page(memory.policy, width) as u64;
        let least = fixed_bytes + (bytes_of(changes_min(capacity_blocks)) * PAGES_PART).div_ceil(PAGES_PART - 1);
        let whole = whole_bytes(capacity_blocks, width);
        let asked = memory.budget.bytes(whole, least);
        if asked < least {
            return Err(TooSmall { asked, least, whole, width });
        }
        let pool_bytes = asked - fixed_bytes;
        let for_changes = pool_bytes - pool_bytes / PAGES_PART;
        let changes_max = for_changes * 8 / Changes::EIGHTHS_PER_CHANGE;
        let changes_max = changes_max.min(changes_cap(capacity_blocks)).min(u32::MAX.into());
        Ok(MapPlan { pages, whole_bytes: whole, fixed_bytes, pool_bytes, changes_max })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(budget: MapBudget) -> MapMemory {
        MapMemory { budget, policy: CachePolicy::Clock, page: PageSize::WHOLE }
    }

    #[test]
    fn a_budget_is_a_part_of_the_whole_map_or_bytes() {
        assert_eq!(MapBudget::Share(Share::percent(10)).bytes(1 << 30, 0), (1 << 30) / 10 + 1);
        assert_eq!(MapBudget::Bytes(7).bytes(1 << 30, 0), 7);
        assert_eq!(MapBudget::BeyondLeast(7).bytes(1 << 30, 10), 17);
    }

    #[test]
    fn a_budget_is_written_like_a_share_or_a_size() {
        assert_eq!("10%".parse(), Ok(MapBudget::Share(Share::percent(10))));
        assert_eq!("64MiB".parse(), Ok(MapBudget::Bytes(64 << 20)));
        assert_eq!(MapBudget::Bytes(64 << 20).to_string(), "64 MiB");
        for wrong in ["", "ten", "0.1", "10 %%"] {
            wrong.parse::<MapBudget>().unwrap_err();
        }
    }

    /// A drive of 1 TiB: the map takes 1 GiB, of which a tenth is the budget.
    #[test]
    fn a_tenth_of_the_map_has_room_for_millions_of_changes() {
        let geometry =
            Geometry { groups: 8, pus_per_group: 4, chunks_per_pu: 2_560, blocks_per_chunk: 4_096, ..Geometry::tiny() };
        let plan = MapPlan::new(&memory(MapBudget::Share(Share::percent(10))), 1 << 28, &geometry).unwrap();
        assert_eq!(plan.pages, 1 << 18);
        let mib = |bytes: u64| bytes >> 20;
        assert_eq!((mib(plan.fixed_bytes), mib(plan.pool_bytes)), (52, 49));
        assert!(plan.changes_max > 6_000_000, "{plan:?}");
    }

    #[test]
    fn a_budget_that_is_too_small_is_refused_with_the_smallest() {
        let (geometry, blocks) = (Geometry::tiny(), 4_000);
        let Err(TooSmall { asked: 0, least, whole: 16_000, width: Width::Narrow }) =
            MapPlan::new(&memory(MapBudget::Bytes(0)), blocks, &geometry)
        else {
            panic!("no map fits no memory")
        };
        let plan = |bytes| MapPlan::new(&memory(MapBudget::Bytes(bytes)), blocks, &geometry);
        assert_eq!(plan(least - 1), Err(TooSmall { asked: least - 1, least, whole: 16_000, width: Width::Narrow }));
        assert_eq!(plan(least).unwrap().changes_max, 768);
        assert_eq!(plan(1 << 40).unwrap().changes_max, changes_cap(blocks));
    }
}
