//! How much flash a drive needs, and what each chunk of it is for.
//!
//! A user asks for a capacity and an over-provisioning. The chunks that data live in are exactly that:
//! `capacity × (1 + over-provisioning)`. What the FTL needs to work comes on top, so that the over-provisioning asked
//! for is the one that the theory of garbage collection speaks of:
//!
//! ```text
//!   data            capacity × (1 + OP)
//!   frontiers       one open chunk per host frontier, two per group for relocation
//!   transaction     room for the largest one, which makes nothing invalid before it is complete
//!   collection      per group: the reserve that lets relocation finish, and chunks on their way from victim to free
//!   log             two copies of what is written between two checkpoints, twice (the old one, the new one)
//!   checkpoints     two copies of two complete ones, and an open chunk per lane
//!   superblocks     two pairs
//! ```
//!
//! Chunks beyond the plan (because chunks per parallel unit is a whole number) are spares for chunks that go bad.

use crate::config::{Config, RelocateBy};
use crate::journal::superblock::Superblock;
use crate::map::entry::{ADDRESS_BITS_MAX, BLOCK_BITS_MAX, NARROW_BITS};
use crate::map::memory::{MapMemory, MapPlan, TooSmall, changes_planned};
use crate::map::pins::{MapBlock, MapPin, RANGES_MAX};
use crate::map::{ENTRIES_PER_BLOCK, Width};
use crate::placement_name::PlacementName;
use crate::words::{METADATA_COPIES, TRANSACTION_BLOCKS_MAX};
use openftl_core::units::{ByteSize, Share};
use openftl_core::{BLOCK_BYTES, Geometry};

/// Free chunks that each group keeps for relocation alone: with its open relocation chunk, enough to move any victim.
pub const RELOCATION_RESERVE_CHUNKS: u32 = 1;

/// Chunks that each group may have open for relocation: for what moves, and for what rests.
pub const RELOCATION_FRONTIERS: u32 = 2;

/// Chunks of each group that may be on their way: being relocated, waiting for the log before their reset, being reset.
pub const COLLECTION_HEADROOM_CHUNKS: u32 = 5;

/// Chunks of each superblock parallel unit: written in turns.
pub const SUPERBLOCK_CHUNKS: u32 = 2;

/// Places that a superblock is written to, in different groups where there is more than one.
pub const SUPERBLOCK_COPIES: u32 = 2;

/// Parallel units that one copy of a checkpoint is spread over, at most.
pub const CHECKPOINT_LANES_MAX: u32 = 4;

/// Bytes of a chunk table entry in a checkpoint.
pub const CHUNK_ENTRY_BYTES: u64 = 8;

/// Chunks of a drive by use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Plan {
    /// What the host sees, in logical blocks.
    pub capacity_blocks: u64,
    /// Chunks for data: capacity and over-provisioning.
    pub data_chunks: u64,
    /// Of these, chunks beyond what the capacity needs.
    pub over_provisioned_chunks: u64,
    /// Host frontiers: chunks that host writes are spread over at a time.
    pub host_frontiers: u32,
    /// Chunks that may be open beyond those for data that are kept apart. They are taken from the
    /// over-provisioning, at most half of it.
    pub placement_chunks: u32,
    /// Chunks that the tenant may have open at a time; [`u32::MAX`] where nothing limits them, serialized as null.
    #[serde(rename = "open_table_chunks", serialize_with = "serialize_limit")]
    pub open_tenant_chunks: u32,
    /// The same on one parallel unit.
    #[serde(rename = "open_table_chunks_on_pu", serialize_with = "serialize_limit")]
    pub open_tenant_chunks_on_pu: u32,
    /// Lanes of one copy of a checkpoint.
    pub checkpoint_lanes: u32,
    /// Blocks of one copy of a checkpoint.
    pub checkpoint_blocks: u64,
    /// Chunks of both copies of two checkpoints and their open lanes.
    pub checkpoint_chunks: u64,
    /// Log blocks after which a checkpoint is due.
    pub log_blocks_max: u64,
    /// Chunks of both copies of the log.
    pub log_chunks: u64,
    /// Chunks of a copy of the log that one superblock names ahead of need.
    pub log_successors: u64,
    /// Chunks of both copies of map pages; none if the map is not on media.
    #[serde(skip_serializing_if = "is_none")]
    pub map_chunks: u64,
    /// Chunks of the superblocks.
    pub superblock_chunks: u64,
    /// Chunks of frontiers and of garbage collection.
    pub working_chunks: u64,
}

fn serialize_limit<S: serde::Serializer>(limit: &u32, serializer: S) -> Result<S::Ok, S::Error> {
    match *limit {
        u32::MAX => serializer.serialize_none(),
        limit => serializer.serialize_some(&limit),
    }
}

fn is_none(chunks: &u64) -> bool {
    *chunks == 0
}

/// A capacity that a device cannot give.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PlanError {
    /// The capacity is no whole number of blocks, or zero.
    #[error("capacity = {bytes} bytes: must be a multiple of {BLOCK_BYTES} bytes and at least {BLOCK_BYTES}")]
    Capacity {
        /// As asked for.
        bytes: u64,
    },
    /// More than a map entry can name.
    #[error(
        "capacity = {capacity_blocks} blocks: device addresses would need {bits} bits, and a map entry has room for {most}; \
         use a smaller capacity or a profile with larger chunks{}", map_on_media(*most)
    )]
    TooLarge {
        /// As asked for.
        capacity_blocks: u64,
        /// Bits of an address on that device, or of the number of a logical block.
        bits: u32,
        /// Bits that there is room for.
        most: u32,
    },
    /// The device has fewer chunks than the plan needs.
    #[error(
        "capacity = {capacity_blocks} blocks with {over_provisioning} over-provisioning needs {needed} good chunks, and the \
         device has {available}; use a smaller capacity, less over-provisioning or a larger device"
    )]
    TooFewChunks {
        /// As asked for.
        capacity_blocks: u64,
        /// As asked for.
        over_provisioning: Share,
        /// Chunks of the plan.
        needed: u64,
        /// Chunks of the device that are not offline.
        available: u64,
    },
    /// A superblock names every chunk of the log, and has only so much room.
    #[error(
        "a checkpoint every {log_blocks} log blocks: a superblock has room to name the chunks of at most {most} on this \
         device; choose a smaller checkpoint_log_blocks, or a profile with larger chunks"
    )]
    LogTooLong {
        /// Log blocks after which a checkpoint is due.
        log_blocks: u64,
        /// The most that can be named.
        most: u64,
    },
    /// The map has too little memory.
    #[error(transparent)]
    MapMemory(#[from] TooSmall),
    /// What needs memory for each block does not go with a map that has little.
    #[error(
        "{setting} keeps 4 bytes of memory for each block, and map_memory is to save them; leave one of the two away"
    )]
    NotWithMapMemory {
        /// What does not.
        setting: &'static str,
    },
    /// Map pages of blocks are to stay in memory that the drive does not have.
    #[error("map_pin = {pin}: the drive ends at {capacity}; end the range there")]
    MapPin {
        /// As asked for.
        pin: MapPin,
        /// The capacity.
        capacity: ByteSize,
    },
    /// More ranges than are kept.
    #[error("map_pin has {asked} ranges, and a drive keeps at most {most}; join some of them")]
    MapPins {
        /// As many as asked for.
        asked: usize,
        /// The most.
        most: usize,
    },
    /// What is asked of a map on media, of a drive that has none.
    #[error("{setting}: without map_memory the whole map is in memory; set map_memory = 10%, or leave {setting} away")]
    WithoutMapMemory {
        /// What is asked.
        setting: &'static str,
    },
    /// Blocks are to be copied by a device that does not copy.
    #[error("relocate_by = device-copy: the device has no vector copy; choose read-and-write")]
    NoVectorCopy,
    /// The device allows fewer open chunks than the FTL writes at a time.
    #[error("{field} = {limit}: this FTL keeps at least {needed} chunks open at a time, and all may be in one place")]
    TooFewOpenChunks {
        /// Which limit.
        field: &'static str,
        /// Of the geometry.
        limit: u32,
        /// Of the FTL.
        needed: u32,
    },
}

impl PlanError {
    /// Whether it is about what is in memory of a map on media. It says what to do, behind a semicolon.
    #[must_use]
    pub fn is_about_map_memory(&self) -> bool {
        use PlanError::{MapMemory, MapPin, MapPins, NotWithMapMemory, WithoutMapMemory};
        matches!(
            self,
            MapMemory(_) | NotWithMapMemory { .. } | MapPin { .. } | MapPins { .. } | WithoutMapMemory { .. }
        )
    }
}

impl Plan {
    /// The plan for `config` on a device of this shape.
    ///
    /// # Errors
    /// If the capacity is impossible, or the device allows too few open chunks.
    pub fn new(geometry: &Geometry, config: &Config) -> Result<Plan, PlanError> {
        let (capacity_blocks, bits) = (config.capacity_blocks, geometry.format().bits());
        let memory = config.map_memory.map(|memory| memory.on(capacity_blocks, bits));
        let plan = Plan::of_chunks(geometry, config, memory)?;
        let most = if memory.is_some() { ADDRESS_BITS_MAX } else { NARROW_BITS };
        if bits > most {
            return Err(PlanError::TooLarge { capacity_blocks, bits, most });
        }
        if let Some(memory) = &memory {
            MapPlan::new(memory, capacity_blocks, geometry)?;
        }
        expect_pins(config)?;
        Ok(plan)
    }

    /// The same, whether or not the map of such a drive finds the memory that it needs.
    fn of_chunks(geometry: &Geometry, config: &Config, memory: Option<MapMemory>) -> Result<Plan, PlanError> {
        let capacity_blocks = config.capacity_blocks;
        let most = if memory.is_some() { BLOCK_BITS_MAX } else { NARROW_BITS };
        if capacity_blocks >> most > 0 {
            let bits = u64::BITS - capacity_blocks.leading_zeros();
            return Err(PlanError::TooLarge { capacity_blocks, bits, most });
        }
        if capacity_blocks == 0 {
            return Err(PlanError::Capacity { bytes: capacity_blocks.saturating_mul(BLOCK_BYTES as u64) });
        }
        if config.relocate_by == RelocateBy::DeviceCopy && !geometry.vector_copy {
            return Err(PlanError::NoVectorCopy);
        }
        let map_pages = match &memory {
            None => 0,
            Some(memory) => plan_map(config, memory)?,
        };
        let is_paged = memory.is_some();
        let width = memory.map_or(Width::Narrow, |memory| memory.page.width());
        let blocks_per_chunk = u64::from(geometry.blocks_per_chunk);
        let groups = geometry.groups;
        let data_chunks = (capacity_blocks + config.over_provisioning.of(capacity_blocks)).div_ceil(blocks_per_chunk);

        let copies = METADATA_COPIES as u32;
        let checkpoint_lanes = (groups / copies).clamp(1, CHECKPOINT_LANES_MAX);
        // Besides the host frontiers: two relocation chunks a group, the log and a successor, checkpoint lanes, superblocks.
        let others =
            RELOCATION_FRONTIERS * groups + copies * (2 + checkpoint_lanes) + SUPERBLOCK_COPIES * SUPERBLOCK_CHUNKS;
        let others = others + if is_paged { copies } else { 0 };
        let classes = config.placement.classes(config.handles, config.objects_max);
        let is_plain = classes == 1 && config.placement.destinations(config.handles) == 0;
        let over_provisioned_chunks = data_chunks - capacity_blocks.div_ceil(blocks_per_chunk).min(data_chunks);
        let wanted = if is_plain { 0 } else { u32::try_from(over_provisioned_chunks / 2).unwrap_or(u32::MAX) };
        // Where the device limits its open chunks, half of what it leaves.
        let half_of = |limit: u32| if limit == 0 { u32::MAX } else { limit.saturating_sub(others + 1) / 2 };
        let has_tenant = config.catalog_blocks > 0;
        let needed = others + 1 + u32::from(has_tenant);
        let placement_chunks =
            wanted.min(half_of(geometry.open_chunks_max)).min(half_of(geometry.open_chunks_per_pu_max));
        let host_frontiers = match geometry.open_chunks_max {
            0 => geometry.pus(),
            max if max >= needed => {
                // The tenant has half of what is left.
                let left = max - others - placement_chunks;
                geometry.pus().min(if has_tenant { left / 2 } else { left })
            }
            limit => return Err(PlanError::TooFewOpenChunks { field: "open_chunks_max", limit, needed }),
        };
        let on_pu = geometry.open_chunks_per_pu_max;
        if on_pu > 0 && on_pu < needed {
            let field = "open_chunks_per_pu_max";
            return Err(PlanError::TooFewOpenChunks { field, limit: on_pu, needed });
        }
        let left_of = |limit: u32, others: u32| if limit == 0 { u32::MAX } else { limit - others };
        let open_tenant_chunks = left_of(geometry.open_chunks_max, others + placement_chunks + host_frontiers);
        let open_tenant_chunks_on_pu = left_of(on_pu, others + 1);

        let unit = u64::from(geometry.ws_min);
        // The chunk table has an entry for every chunk of the device. While a device is still being sized, for an upper bound.
        let chunks = geometry.chunks().max(data_chunks + data_chunks / 4 + 16 * u64::from(geometry.pus()) + 256);
        let pairs_per_block = width.pairs_per_block() as u64;
        let map_blocks = match is_paged {
            false => capacity_blocks.div_ceil(ENTRIES_PER_BLOCK as u64),
            true => map_pages.div_ceil(pairs_per_block) + changes_planned(capacity_blocks).div_ceil(pairs_per_block),
        };
        // Each copy: the pages, as much again so that the chunks of old pages are mostly empty, one that is open, one to go on, and on
        // small drives two, so that there is something to be emptied.
        let map_chunks = match is_paged {
            false => 0,
            true => u64::from(copies) * (2 * map_pages.div_ceil(blocks_per_chunk) + 4),
        };
        let table_blocks = chunks.div_ceil(BLOCK_BYTES as u64 / CHUNK_ENTRY_BYTES);
        // What copied blocks have borrowed is as long as the map.
        let has_copies = config.relocate_by == RelocateBy::DeviceCopy || config.has_copies;
        let borrowed_blocks = if has_copies { map_blocks } else { 0 };
        let checkpoint_blocks =
            (map_blocks + table_blocks + borrowed_blocks + 1).next_multiple_of(unit * u64::from(checkpoint_lanes));
        let lane_chunks = checkpoint_blocks.div_ceil(u64::from(checkpoint_lanes)).div_ceil(blocks_per_chunk) + 1;
        let checkpoint_chunks = 2 * lane_chunks * u64::from(copies * checkpoint_lanes);

        let log_blocks_max = config.checkpoint_log_blocks.unwrap_or(map_blocks.max(LOG_BLOCKS_MIN)).max(2 * unit);
        let log_interval_chunks = log_blocks_max.div_ceil(blocks_per_chunk);
        let written = log_interval_chunks.saturating_mul(2).saturating_add(2);
        let nameable = Superblock::log_chunks_max(geometry, checkpoint_chunks) / u64::from(copies);
        if written >= nameable {
            let most = nameable.saturating_sub(3) / 2 * blocks_per_chunk;
            return Err(PlanError::LogTooLong { log_blocks: log_blocks_max, most });
        }
        let log_successors = (log_interval_chunks / SUPERBLOCKS_PER_CHECKPOINT).clamp(1, nameable - written);
        let log_chunks = (written + log_successors) * u64::from(copies);
        // A transaction makes nothing invalid before all of it is programmed, so there must be room for the largest one.
        let transaction_chunks = (TRANSACTION_BLOCKS_MAX as u64).div_ceil(blocks_per_chunk);
        let working_chunks = u64::from(host_frontiers)
            + transaction_chunks
            + u64::from(groups)
                * u64::from(RELOCATION_FRONTIERS + RELOCATION_RESERVE_CHUNKS + COLLECTION_HEADROOM_CHUNKS);
        Ok(Plan {
            capacity_blocks,
            data_chunks,
            over_provisioned_chunks,
            host_frontiers,
            placement_chunks,
            open_tenant_chunks,
            open_tenant_chunks_on_pu,
            checkpoint_lanes,
            checkpoint_blocks,
            checkpoint_chunks,
            log_blocks_max,
            log_chunks,
            log_successors,
            map_chunks,
            superblock_chunks: u64::from(SUPERBLOCK_COPIES * SUPERBLOCK_CHUNKS),
            working_chunks,
        })
    }

    /// The same for a drive that was `formatted` for more: its log may be as long as that when it is found, and what the drive
    /// has beyond the plan may be spoken for.
    pub fn at_least(self, formatted: &Plan) -> Plan {
        let is_shorter = self.log_chunks < formatted.log_chunks;
        let longer = if is_shorter { formatted } else { &self };
        let plan = Plan { log_chunks: longer.log_chunks, log_successors: longer.log_successors, ..self };
        let missing = formatted.chunks().saturating_sub(plan.chunks());
        Plan { working_chunks: plan.working_chunks + missing, ..plan }
    }

    /// About the over-provisioning that garbage collection will find when the drive is full
    /// (`effective_over_provisioning` of a drive measures it): open chunks hold data, too,
    /// and of those that frontiers and collection work with half are filled on average. On small drives that is most of it.
    #[must_use]
    pub fn likely_over_provisioning(&self, geometry: &Geometry) -> f64 {
        let blocks = |chunks: f64| chunks * f64::from(geometry.blocks_per_chunk);
        let capacity = self.capacity_blocks as f64;
        (blocks(self.data_chunks as f64 + self.working_chunks as f64 / 2.0) - capacity) / capacity
    }

    /// Chunks of the whole drive.
    #[must_use]
    pub fn chunks(&self) -> u64 {
        self.data_chunks + self.working_chunks + self.metadata_chunks() + self.superblock_chunks
    }

    /// Free chunks, beyond those that collection always keeps, that it may make while the host is silent.
    #[must_use]
    pub fn ahead_chunks(&self) -> u32 {
        u32::try_from(self.over_provisioned_chunks / AHEAD_PART).unwrap_or(u32::MAX)
    }

    /// Chunks that log, checkpoints and map pages may take.
    #[must_use]
    pub fn metadata_chunks(&self) -> u64 {
        self.log_chunks + self.checkpoint_chunks + self.map_chunks
    }
}

/// What else helps where entries have room for few bits.
fn map_on_media(most: u32) -> &'static str {
    if most == NARROW_BITS { ", or keep the map of a block drive on media (map_memory = 10%)" } else { "" }
}

/// Whether what is said of map pages in memory can be done.
fn expect_pins(config: &Config) -> Result<(), PlanError> {
    if config.map_memory.is_none() {
        let settings = [(!config.map_pins.is_empty(), "map_pin"), (config.map_block != MapBlock::PAGE, "map_block")];
        return match settings.iter().find(|(is_asked, _)| *is_asked) {
            Some((_, setting)) => Err(PlanError::WithoutMapMemory { setting }),
            None => Ok(()),
        };
    }
    if config.map_pins.len() > RANGES_MAX {
        return Err(PlanError::MapPins { asked: config.map_pins.len(), most: RANGES_MAX });
    }
    let capacity = ByteSize(config.capacity_blocks * BLOCK_BYTES as u64);
    let ends_beyond = |pin: &MapPin| matches!(pin, MapPin::Range { to, .. } if to.0 > capacity.0);
    match config.map_pins.iter().copied().find(ends_beyond) {
        Some(pin) => Err(PlanError::MapPin { pin, capacity }),
        None => Ok(()),
    }
}

/// Pages of a map on media.
fn plan_map(config: &Config, memory: &MapMemory) -> Result<u64, PlanError> {
    let settings = [
        (config.relocate_by == RelocateBy::DeviceCopy || config.has_copies, "relocate_by = device-copy"),
        (config.placement == PlacementName::Learned, "placement = learned"),
        (config.catalog_blocks > 0, "a table drive"),
    ];
    if let Some((_, setting)) = settings.iter().find(|(is_asked, _)| *is_asked) {
        return Err(PlanError::NotWithMapMemory { setting });
    }
    Ok(u64::from(memory.page.pages(config.capacity_blocks)))
}

/// Superblocks that name chunks of the log, from one checkpoint to the next, where the log is that many chunks long: so
/// that it is as many on every drive, and the chunks they are written to do not wear faster on large ones.
const SUPERBLOCKS_PER_CHECKPOINT: u64 = 8;

/// Of the over-provisioning, the part that may be free chunks after the host was silent. The rest has to stay among the
/// data: the more of it is free, the fuller are the victims.
pub const AHEAD_PART: u64 = 4;

/// A log shorter than this is not worth a checkpoint.
const LOG_BLOCKS_MIN: u64 = 1024;

/// Chunks per parallel unit that a device of this shape needs for `config`, with `spare` of the whole added for chunks
/// that are bad or go bad.
///
/// # Errors
/// If no number of chunks would do.
pub fn chunks_per_pu(geometry: &Geometry, config: &Config, spare: Share) -> Result<u32, PlanError> {
    let shape_for = |memory: Option<MapMemory>| -> Result<Geometry, PlanError> {
        let plan = Plan::of_chunks(geometry, config, memory)?;
        let chunks = plan.chunks() + spare.of(plan.chunks());
        let needed = chunks.div_ceil(u64::from(geometry.pus())).max(u64::from(SUPERBLOCK_CHUNKS) * 2);
        Ok(Geometry { chunks_per_pu: u32::try_from(needed).unwrap_or(u32::MAX), ..*geometry })
    };
    let memory = config.map_memory.map(|memory| memory.on(config.capacity_blocks, 0));
    let mut scaled = shape_for(memory)?;
    // Longer addresses may make the entries wide, and the map larger.
    if let Some(memory) = memory.filter(|_| scaled.format().bits() > NARROW_BITS) {
        scaled = shape_for(Some(memory.wide()))?;
    }
    // The memory of a map depends on the flash that is there in the end.
    Plan::new(&scaled, config)?;
    Ok(scaled.chunks_per_pu)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_allows_fewer_open_chunks_than_are_needed_is_refused_with_the_limit_that_it_sets() {
        let plan = |device, pu| {
            let geometry = Geometry { open_chunks_max: device, open_chunks_per_pu_max: pu, ..Geometry::tiny() };
            Plan::new(&geometry, &Config { capacity_blocks: 1000, ..Config::default() })
        };
        let Err(PlanError::TooFewOpenChunks { field: "open_chunks_max", limit: 1, needed }) = plan(1, 0) else {
            panic!("{:?}", plan(1, 0))
        };
        let refused = |field, limit| Some(PlanError::TooFewOpenChunks { field, limit, needed });
        assert_eq!(plan(needed - 1, 0).err(), refused("open_chunks_max", needed - 1));
        assert_eq!(plan(0, needed - 1).err(), refused("open_chunks_per_pu_max", needed - 1));
        assert!(plan(needed, needed).is_ok());
    }

    #[test]
    fn a_log_that_no_superblock_can_name_is_refused_with_the_longest_that_one_can() {
        let geometry = Geometry::tiny();
        let plan = |log_blocks| {
            let config = Config { capacity_blocks: 1000, checkpoint_log_blocks: Some(log_blocks), ..Config::default() };
            Plan::new(&geometry, &config)
        };
        let Err(PlanError::LogTooLong { log_blocks: u64::MAX, most }) = plan(u64::MAX) else {
            panic!("{:?}", plan(u64::MAX))
        };
        assert_eq!(plan(most).map(|plan| plan.log_blocks_max), Ok(most));
        assert_eq!(plan(most + 1), Err(PlanError::LogTooLong { log_blocks: most + 1, most }));
    }
}
