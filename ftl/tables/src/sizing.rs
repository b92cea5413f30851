//! How much flash a table drive needs.

use super::drive::catalog_blocks;
use openftl_core::Geometry;
use openftl_parts::config::Config;
use openftl_parts::flash::plan::{Plan, PlanError, SUPERBLOCK_CHUNKS};
use openftl_parts::flash::shares::spares;
use openftl_parts::map::entry::NARROW_BITS;

/// Chunks per parallel unit that a device of this shape needs for tables of `table_blocks` in all, in whole chunks, and the log area of
/// `config`.
///
/// # Errors
/// If no number of chunks would do.
pub fn chunks_per_pu(geometry: &Geometry, config: &Config, table_blocks: u64) -> Result<u32, PlanError> {
    let groups = u64::from(geometry.groups);
    let tables = table_blocks.div_ceil(u64::from(geometry.blocks_per_chunk)).div_ceil(groups);
    let mut chunks_per_pu = SUPERBLOCK_CHUNKS * 2;
    loop {
        let shape = Geometry { chunks_per_pu, ..*geometry };
        let bits = shape.format().bits();
        if bits > NARROW_BITS {
            return Err(PlanError::TooLarge {
                capacity_blocks: config.capacity_blocks + table_blocks,
                bits,
                most: NARROW_BITS,
            });
        }
        let capacity_blocks = config.capacity_blocks + u64::from(catalog_blocks(&shape));
        let plan = Plan::new(&shape, &Config { capacity_blocks, ..config.clone() })?;
        // As a drive shares them out: group by group.
        let others = (plan.chunks() + spares(shape.chunks())).div_ceil(groups);
        let needed = (others + tables).div_ceil(u64::from(geometry.pus_per_group));
        match u32::try_from(needed) {
            Ok(needed) if needed <= chunks_per_pu => return Ok(chunks_per_pu),
            // The catalog grows with the device, slower than that: it comes to an end.
            Ok(needed) => chunks_per_pu = needed,
            Err(_) => {
                let capacity_blocks = config.capacity_blocks + table_blocks;
                return Err(PlanError::TooLarge { capacity_blocks, bits: u64::BITS, most: NARROW_BITS });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_of_that_size_has_room_for_the_tables_and_one_chunk_less_has_not() {
        for (pus, table_blocks) in [(1, 100), (2, 5_000), (4, 20_000)] {
            let geometry = Geometry { pus_per_group: pus, groups: 4, ..Geometry::tiny() };
            let config = Config { capacity_blocks: 300, ..Config::default() };
            let chunks_per_pu = chunks_per_pu(&geometry, &config, table_blocks).unwrap();
            let share = |chunks_per_pu| {
                let shape = Geometry { chunks_per_pu, ..geometry };
                let capacity_blocks = 300 + u64::from(catalog_blocks(&shape));
                let plan = Plan::new(&shape, &Config { capacity_blocks, ..config.clone() }).unwrap();
                let others = (plan.chunks() + spares(shape.chunks())).div_ceil(4);
                (shape.chunks() / 4).saturating_sub(others) * 4 * u64::from(geometry.blocks_per_chunk)
            };
            assert!(share(chunks_per_pu) >= table_blocks);
            assert!(share(chunks_per_pu - 1) < table_blocks, "{pus} parallel units, {table_blocks} blocks");
        }
    }
}
