//! How many bytes of pages there is room for on a device.

use crate::layout::{LOG_CHUNKS_MAX, LOG_STEP, Layout};
use crate::log::LANES_MAX;
use crate::place::{GRAIN_BYTES, GRAINS_PER_BLOCK, HEADER_BYTES, PAGE_BYTES_MAX, grains_of};
use crate::tenancy::note;
use openftl_core::units::{ByteSize, Share};
use openftl_core::{BLOCK_BYTES, Geometry};
use openftl_parts::config::Config;
use openftl_parts::flash::plan::Plan;
use openftl_parts::flash::shares::shares;
use openftl_parts::flash::units::Units;
use openftl_parts::open_error::OpenError;

/// Flash for each leaf of the map that there is room for, in bytes: half a leaf of pages of 2 KiB whose numbers have gaps.
const BYTES_PER_SLOT: u64 = 256 << 10;

/// Bits of the address of a block, at most.
const ADDRESS_BITS: u32 = 31;

/// The fewest leaves.
const SLOTS_MIN: u64 = 64;

/// Of so many chunks one is written by hosts at a time, and one by what moves.
const CHUNKS_PER_HOST_CHUNK: u32 = 8;
const CHUNKS_PER_MOVE_CHUNK: u32 = 24;
/// The same for each lane of the log.
const CHUNKS_PER_LANE: u32 = 32;

/// The log has at least as many blocks as so many chunks.
const LOG_CHUNKS_MIN: u32 = 2;

/// The smallest that there can be.
pub(crate) const LEAST: Layout =
    Layout { log_blocks: LOG_STEP, log_lanes: 1, slots: 1, host_chunks: 1, move_chunks: 1 };

/// The longest page of a drive: a quarter of a chunk, so that little of a chunk is left behind the last one.
pub(crate) fn page_bytes_max(geometry: &Geometry) -> u32 {
    let quarter = geometry.blocks_per_chunk / 4 * BLOCK_BYTES as u32;
    PAGE_BYTES_MAX.min(quarter.max(BLOCK_BYTES as u32) - HEADER_BYTES as u32)
}

/// Layout, grains for pages, and the block FTL beside them, of a device with so many good chunks in each group.
///
/// # Errors
/// If there is no room for a store of pages.
pub(crate) fn pages_for(
    geometry: &Geometry,
    good: &[u32],
    config: &Config,
) -> Result<(Layout, u64, Config), OpenError> {
    // The map of the drive below is small, and in memory.
    let config = &Config { map_memory: None, ..config.clone() };
    let chunk_grains = u64::from(geometry.blocks_per_chunk * GRAINS_PER_BLOCK);
    let chunk_bytes = chunk_grains * GRAIN_BYTES as u64;
    // What hosts write side by side, and what comes of it: more leaves, a longer log. It takes chunks, so it is found from above.
    let mut share = good.iter().sum::<u32>();
    let open_max = match Plan::new(geometry, &config.clone().beside(note(&LEAST), LEAST.area_blocks())) {
        Ok(plan) => plan.open_tenant_chunks,
        Err(error) => return Err(error.into()),
    };
    loop {
        let host_chunks = (share / CHUNKS_PER_HOST_CHUNK).clamp(1, geometry.pus()).min(open_max / 2).max(1);
        let move_chunks = (share / CHUNKS_PER_MOVE_CHUNK).clamp(1, geometry.groups.max(geometry.pus() / 4));
        let move_chunks = move_chunks.min(open_max / 4).max(1);
        let unit = Units::whole_unit(geometry) + geometry.mw_cunits;
        let log = (8 * (host_chunks + move_chunks) * unit).max(LOG_CHUNKS_MIN * geometry.blocks_per_chunk);
        let log = log
            .clamp(64, (1 << 18).min(LOG_CHUNKS_MAX as u32 / 2 * geometry.blocks_per_chunk))
            .next_multiple_of(LOG_STEP);
        let slots = (u64::from(share) * chunk_bytes / BYTES_PER_SLOT).max(SLOTS_MIN) as u32;
        let lanes_max =
            (LANES_MAX as u32).min(geometry.pus()).min(open_max.saturating_sub(host_chunks + move_chunks)).max(1);
        let log_lanes = (share / CHUNKS_PER_LANE).clamp(1, lanes_max);
        let layout = Layout { log_blocks: log, log_lanes, slots, host_chunks, move_chunks };
        let config = config.clone().beside(note(&layout), layout.area_blocks());
        let plan = Plan::new(geometry, &config);
        let left = plan.as_ref().map_or(0, |plan| shares(good, plan).iter().sum::<u32>());
        let kept = layout.kept_chunks(geometry.blocks_per_chunk);
        if left >= share && left > kept {
            let plan = plan?;
            if plan.open_tenant_chunks < layout.written_chunks() {
                let text = format!(
                    "a store of pages writes {} chunks side by side, and the device lets it have {} open",
                    layout.written_chunks(),
                    plan.open_tenant_chunks
                );
                return Err(OpenError::Tenant { text, is_lost: false });
            }
            let capacity = capacity_grains(geometry, &layout, left, config.over_provisioning);
            return Ok((layout, capacity, config));
        }
        if share <= kept {
            let own = plan.map_or(0, |plan| plan.chunks());
            let text = format!(
                "there is no room for a store of pages: the device has {} good chunks, {own} are for the drive itself, and {kept} for \
                 what is written; take a larger device",
                good.iter().sum::<u32>()
            );
            return Err(OpenError::Tenant { text, is_lost: false });
        }
        share = left.min(share - 1);
    }
}

/// Grains for pages on a device that has so many chunks for them.
pub(crate) fn capacity_grains(geometry: &Geometry, layout: &Layout, chunks: u32, over_provisioning: Share) -> u64 {
    let chunk_grains = u64::from(geometry.blocks_per_chunk * GRAINS_PER_BLOCK);
    let shared = u64::from(chunks.saturating_sub(layout.kept_chunks(geometry.blocks_per_chunk)));
    let spared = ((shared * chunk_grains) as f64 / (1.0 + over_provisioning.as_f64())) as u64;
    // A page does not cross chunks: if all are as long as they may be, so much of each is used.
    let used = chunk_grains - u64::from(grains_of(page_bytes_max(geometry))) + 1;
    spared.min(shared * used)
}

/// Chunks per parallel unit that a device of this shape needs for so many bytes of pages, with headers and what they leave of grains.
///
/// # Errors
/// If no number of chunks would do.
pub fn chunks_per_pu(geometry: &Geometry, config: &Config, bytes: u64) -> Result<u32, OpenError> {
    let fits = |chunks: u32| -> Result<bool, OpenError> {
        let scaled = Geometry { chunks_per_pu: chunks, ..*geometry };
        let good = vec![chunks * geometry.pus_per_group; geometry.groups as usize];
        pages_for(&scaled, &good, config).map(|(_, grains, _)| grains * GRAIN_BYTES as u64 >= bytes)
    };
    let one = Geometry { chunks_per_pu: 1, ..*geometry }.format().bits();
    let most = 1_u32 << ADDRESS_BITS.saturating_sub(one).min(30);
    let (mut too_few, mut enough) = (0, 1);
    while !matches!(fits(enough), Ok(true)) {
        if enough == most {
            let text = format!("{} of pages: no device of this kind has so many chunks", ByteSize(bytes));
            return Err(fits(enough).err().unwrap_or(OpenError::Tenant { text, is_lost: false }));
        }
        (too_few, enough) = (enough, enough.saturating_mul(2).min(most));
    }
    while enough - too_few > 1 {
        let middle = too_few + (enough - too_few) / 2;
        if matches!(fits(middle), Ok(true)) { enough = middle } else { too_few = middle }
    }
    Ok(enough)
}
