//! The flags of a drive override its description. `openftl create`, `serve` and `bench` share them.

use clap::{Args, ValueEnum};
use openftl_core::Nanos;
use openftl_core::units::{ByteSize, Interval, Share};
use openftl_media::Durability;
use openftl_parts::map::cache::CachePolicy;
use openftl_parts::map::memory::MapBudget;
use openftl_parts::map::pins::{MapBlock, MapPin};
use openftl_parts::{PlacementName, RelocateBy, VictimPolicy};
use std::path::PathBuf;

/// What a new drive is made of; flags override the drive description.
#[derive(Args, Clone, Debug, Default)]
pub struct DriveFlags {
    /// A drive description: media, FTL and host interface in one TOML (see the `drives` folder).
    #[arg(long, value_name = "FILE", help_heading = "Drive")]
    pub drive: Option<PathBuf>,
    /// The NAND device: a name from `openftl profiles`, or a TOML file [default: cosmos].
    #[arg(long, value_name = "NAME|FILE", help_heading = "Drive")]
    pub profile: Option<String>,
    /// What the host sees, like 8GiB; the flash behind it follows from this and the over-provisioning.
    #[arg(long, value_name = "SIZE", help_heading = "Drive")]
    pub capacity: Option<ByteSize>,
    /// Flash for data beyond the capacity, as a share of it [default: 10%].
    #[arg(long, value_name = "SHARE", help_heading = "Drive")]
    pub over_provisioning: Option<Share>,
    /// How garbage collection chooses its victims: greedy, cost-benefit, minimum-declining-cost, fifo, windowed:25% (the emptiest of the quarter
    /// that was closed first) or d-choices:10 (the emptiest of ten drawn at random) [default: greedy].
    #[arg(long, value_name = "POLICY", help_heading = "Drive")]
    pub victim: Option<VictimPolicy>,
    /// Where garbage collection works at a time [default: marked].
    #[arg(long, value_enum, value_name = "SCOPE", help_heading = "Drive")]
    pub collection: Option<Collection>,
    /// How garbage collection moves blocks: read-and-write, or device-copy where the device has vector copy [default:
    /// read-and-write].
    #[arg(long, value_name = "WAY", help_heading = "Drive")]
    pub relocate_by: Option<RelocateBy>,
    /// Make room ahead of need when the host has been silent for so long, like 100ms [default: never].
    #[arg(long, value_name = "TIME", help_heading = "Drive")]
    pub collect_when_idle: Option<Nanos>,
    /// What shares chunks because it is expected to end together: none, hot-cold, learned, streams, streams-kept, fdp,
    /// fdp-persistent or flash-alloc [default: hot-cold].
    #[arg(long, value_name = "NAME", help_heading = "Drive")]
    pub placement: Option<PlacementName>,
    /// Keep the map on media, and so much of it in memory, like 10% or 64MiB [default: the whole map is in memory].
    #[arg(long, value_name = "SIZE|PERCENT", help_heading = "Drive")]
    pub map_memory: Option<MapBudget>,
    /// Which pages of such a map stay in memory: clock, lru, 2q or seed-hotness [default: clock].
    #[arg(long, value_name = "POLICY", help_heading = "Drive")]
    pub map_cache: Option<CachePolicy>,
    /// Bytes of the drive whose map pages leave memory last, like 0..128MiB; learned: those that the host overwrites in order
    /// again and again. May be given several times.
    #[arg(long, value_name = "RANGE", help_heading = "Drive")]
    pub map_pin: Vec<MapPin>,
    /// How much of such a map is loaded at a time, 4KiB to 64KiB [default: 4KiB].
    #[arg(long, value_name = "SIZE", help_heading = "Drive")]
    pub map_block: Option<MapBlock>,
    /// Acknowledge every write only when it is durable.
    #[arg(long, help_heading = "Drive")]
    pub write_through: bool,
    /// What flushes of a drive in a file survive: machine (a crash of it, too: the file is synced) or process (its death alone)
    /// [default: machine].
    #[arg(long, value_name = "machine|process", help_heading = "Drive")]
    pub durability: Option<Durability>,
    /// Take a checkpoint this often while the drive is written to, like 10s, if the log is not long enough for one
    /// sooner [default: only the length of the log counts].
    #[arg(long, value_name = "TIME", help_heading = "Drive")]
    pub checkpoint_interval: Option<Nanos>,
    /// Read all that the drive holds once in this time, like 7d or 12h, and refresh what is weak; or never [default: 7d
    /// when the drive is served, else never].
    #[arg(long, value_name = "INTERVAL", help_heading = "Drive")]
    pub scrub_interval: Option<Interval>,
}

impl DriveFlags {
    /// A flag that is of use to block drives only.
    pub fn for_blocks_only(&self) -> Option<&'static str> {
        let flags = [
            ("--over-provisioning", self.over_provisioning.is_some()),
            ("--victim", self.victim.is_some()),
            ("--collection", self.collection.is_some()),
            ("--relocate-by", self.relocate_by.is_some()),
            ("--collect-when-idle", self.collect_when_idle.is_some()),
            ("--placement", self.placement.is_some()),
            ("--map-memory", self.map_memory.is_some()),
            ("--map-cache", self.map_cache.is_some()),
            ("--map-pin", !self.map_pin.is_empty()),
            ("--map-block", self.map_block.is_some()),
            ("--write-through", self.write_through),
        ];
        flags.into_iter().find_map(|(flag, is_given)| is_given.then_some(flag))
    }
}

/// Where garbage collection works at a time.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Collection {
    /// In groups that are marked, few of them while there is room.
    Marked,
    /// In every group that is short of free chunks.
    DeviceWide,
}

impl From<Collection> for openftl_parts::CollectionScope {
    fn from(collection: Collection) -> Self {
        match collection {
            Collection::Marked => Self::Marked,
            Collection::DeviceWide => Self::DeviceWide,
        }
    }
}
