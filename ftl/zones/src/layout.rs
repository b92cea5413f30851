//! Where everything is: blocks of zones in chunks, zones in the address space, and what the drive keeps of them in its area.
//!
//! ```text
//!   zone     [ unit 0 | unit 1 | … | unit k−1 | unit k | … ]     a unit: a write unit of a chunk
//!   columns     0        1            k−1        0               chunks on k parallel units, filled side by side
//!
//!   addresses  [ zone 0: capacity │ nothing ][ zone 1: capacity │ nothing ] …      each begins at a multiple of its size,
//!                                                                                  the next power of two
//!   area       [ records of zones | tail 0 | tail 1 | … ][ the same again ]       logical blocks of the block FTL beside the zones
//! ```

use crate::places::place_bytes;
use openftl_core::{BLOCK_BYTES, Geometry};
use openftl_parts::flash::units::Units;
use openftl_parts::words::AREA_COPIES;

/// Tails for each zone that may be active: that of a zone that is full is given back later.
const TAILS_PER_ACTIVE: u32 = 2;

/// Bytes of the record of a zone with so many columns, whose tails have so many units and blocks of a window, before its extension.
fn record_bytes(width: u32, tail_units: u32, window_blocks: u32) -> usize {
    let bits = tail_units.div_ceil(8) + window_blocks.div_ceil(8);
    RECORD_HEAD_BYTES + width as usize * RECORD_COLUMN_BYTES + bits as usize
}

/// Zone descriptor extensions are a multiple of this: the unit of ZDES in NVMe.
pub const EXTENSION_UNIT_BYTES: u32 = 64;

/// Blocks of a window, at most: with blocks of 512 bytes for hosts, ZRWASZ still holds them.
pub const WINDOW_BLOCKS_MAX: u32 = 4096;

/// Bytes of a record before its columns, and of each column.
pub const RECORD_HEAD_BYTES: usize = 24;
/// See [`RECORD_HEAD_BYTES`].
pub const RECORD_COLUMN_BYTES: usize = 8;

/// Bytes of memory for the number of a zone.
const NUMBER_BYTES: u64 = size_of::<u64>() as u64;

/// The shape of a zoned drive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    /// Parallel units of a zone.
    pub width: u32,
    /// How many zones there are.
    pub zones: u32,
    /// Blocks of a write unit: a chunk is a whole number of them.
    pub unit_blocks: u32,
    /// Blocks of a zone that can be written.
    pub capacity: u32,
    /// Logical blocks from one zone to the next: a power of two.
    pub size: u64,
    /// Blocks of the area with the records of zones.
    pub record_blocks: u32,
    /// Records in a block; 0: a zone is so wide that its record fits into none.
    pub records_per_block: u32,
    /// Tails that can be kept at a time.
    pub tails: u32,
    /// Blocks of a tail, at most.
    pub tail_blocks: u32,
    /// Bytes of a zone descriptor extension; 0: zones have none. A multiple of [`EXTENSION_UNIT_BYTES`].
    pub extension_bytes: u32,
    /// Blocks of the window of a zone (ZRWASZ); 0: zones have none.
    pub window_blocks: u32,
    /// Bytes of memory that say where a column is.
    pub place_bytes: u32,
}

impl Layout {
    /// Zones of `width` chunks each without extensions, of which `max_active` are written at a time.
    #[must_use]
    pub fn new(geometry: &Geometry, width: u32, zones: u32, max_active: u32) -> Layout {
        let unit_blocks = Units::whole_unit(geometry);
        let capacity = width * geometry.blocks_per_chunk;
        // In each column what others hold back, a unit, and one that a power cut has left in doubt; and the unit that is being filled.
        let units_of_column = geometry.mw_cunits.div_ceil(unit_blocks) + 2;
        let tail_units = width * units_of_column + 1;
        let records_per_block = (BLOCK_BYTES / record_bytes(width, tail_units, 0)) as u32;
        Layout {
            width,
            zones,
            unit_blocks,
            capacity,
            size: u64::from(capacity).next_power_of_two(),
            record_blocks: zones.div_ceil(records_per_block.max(1)),
            records_per_block,
            tails: TAILS_PER_ACTIVE * max_active,
            tail_blocks: unit_blocks * tail_units,
            extension_bytes: 0,
            window_blocks: 0,
            place_bytes: place_bytes(geometry),
        }
    }

    /// The same with windows of `blocks` blocks, which tails have room for.
    #[must_use]
    pub fn with_windows(self, blocks: u32) -> Layout {
        let tail_blocks = self.tail_blocks + blocks.next_multiple_of(self.unit_blocks);
        Layout { window_blocks: blocks, tail_blocks, ..self }.with_extension(self.extension_bytes)
    }

    /// The same with `bytes` of zone descriptor extension in each record.
    #[must_use]
    pub fn with_extension(self, bytes: u32) -> Layout {
        let layout = Layout { extension_bytes: bytes, ..self };
        let records_per_block = (BLOCK_BYTES / layout.record_bytes()) as u32;
        Layout { records_per_block, record_blocks: layout.zones.div_ceil(records_per_block.max(1)), ..layout }
    }

    /// The longest extension with which a record still fits into a block.
    #[must_use]
    pub fn extension_bytes_max(&self) -> u32 {
        let plain = Layout { extension_bytes: 0, ..*self }.record_bytes();
        let rest = BLOCK_BYTES.saturating_sub(plain) as u32;
        rest / EXTENSION_UNIT_BYTES * EXTENSION_UNIT_BYTES
    }

    /// Bytes of a record.
    #[must_use]
    pub fn record_bytes(&self) -> usize {
        let tail_units = self.tail_blocks / self.unit_blocks;
        record_bytes(self.width, tail_units, self.window_blocks) + self.extension_bytes as usize
    }

    /// Bytes of memory for zone descriptor extensions.
    #[must_use]
    pub fn extensions_bytes(&self) -> u64 {
        u64::from(self.zones) * u64::from(self.extension_bytes)
    }

    /// Blocks of the area: of both copies.
    #[must_use]
    pub fn area_blocks(&self) -> u32 {
        AREA_COPIES * self.copy_blocks()
    }

    /// Blocks of one copy of the area.
    #[must_use]
    pub fn copy_blocks(&self) -> u32 {
        self.record_blocks + self.tails * self.tail_blocks
    }

    /// Where the second copy of a block of the area is.
    #[must_use]
    pub fn second_copy(&self, block: u64) -> u64 {
        block + u64::from(self.copy_blocks())
    }

    /// Which block of its copy a block of the area is.
    #[must_use]
    pub fn in_copy(&self, block: u32) -> u32 {
        block % self.copy_blocks()
    }

    /// Bytes of memory for where zones are: the place of each column, and the number that blocks of each zone say.
    #[must_use]
    pub fn map_bytes(&self) -> u64 {
        u64::from(self.zones) * (u64::from(self.width) * u64::from(self.place_bytes) + NUMBER_BYTES)
    }

    /// Logical blocks of the whole address space.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        u64::from(self.zones) * self.size
    }

    /// The column that unit `unit` of a zone is in, and its first block there.
    #[inline]
    #[must_use]
    pub fn place_of_unit(&self, unit: u32) -> (u32, u32) {
        (unit % self.width, unit / self.width * self.unit_blocks)
    }

    /// The column that block `block` of a zone is in, and where there.
    #[inline]
    #[must_use]
    pub fn place(&self, block: u32) -> (u32, u32) {
        let (column, first) = self.place_of_unit(block / self.unit_blocks);
        (column, first + block % self.unit_blocks)
    }

    /// Of the first `blocks` blocks of a zone, those in `column`.
    #[must_use]
    pub fn blocks_in_column(&self, column: u32, blocks: u32) -> u32 {
        let (units, rest) = (blocks / self.unit_blocks, blocks % self.unit_blocks);
        let whole = units / self.width + u32::from(column < units % self.width);
        whole * self.unit_blocks + if column == units % self.width { rest } else { 0 }
    }

    /// The block of a zone that is in `column` at `at`.
    #[must_use]
    pub fn block_at(&self, column: u32, at: u32) -> u32 {
        (at / self.unit_blocks * self.width + column) * self.unit_blocks + at % self.unit_blocks
    }

    /// The block of the area where block `block` of a zone is kept in tail `tail`.
    #[must_use]
    pub fn tail_place(&self, tail: u32, block: u32) -> u64 {
        u64::from(self.record_blocks + tail * self.tail_blocks + block % self.tail_blocks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_block_of_a_zone_has_one_place_and_columns_fill_side_by_side() {
        for width in [1, 2, 3, 4] {
            let layout = Layout::new(&Geometry::tiny(), width, 5, 2);
            let mut seen = vec![0; width as usize];
            for block in 0..layout.capacity {
                for column in 0..width {
                    let counted = layout.blocks_in_column(column, block);
                    assert_eq!(counted, seen[column as usize], "{block} blocks in column {column} of {width}");
                }
                let (column, at) = layout.place(block);
                assert_eq!(at, seen[column as usize], "block {block}");
                assert_eq!(layout.block_at(column, at), block);
                seen[column as usize] += 1;
            }
            assert_eq!(seen, vec![Geometry::tiny().blocks_per_chunk; width as usize]);
        }
    }

    #[test]
    fn the_size_of_a_zone_is_a_power_of_two_and_no_two_tails_share_a_block() {
        let layout = Layout::new(&Geometry::tiny(), 3, 100, 4);
        assert!(layout.size.is_power_of_two() && layout.size >= u64::from(layout.capacity));
        let places = (0..layout.tails).flat_map(|tail| (0..layout.tail_blocks).map(move |block| (tail, block)));
        let mut places: Vec<u64> = places.map(|(tail, block)| layout.tail_place(tail, block)).collect();
        places.extend(places.clone().iter().map(|place| layout.second_copy(*place)));
        places.extend((0..layout.record_blocks).map(|block| layout.second_copy(block.into())));
        places.sort_unstable();
        let all: Vec<u64> = (layout.record_blocks.into()..layout.area_blocks().into()).collect();
        assert_eq!(places, all);
    }
}
