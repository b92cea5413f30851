//! What a drive's owner chooses about the block FTL.

use crate::canary::Bugs;
use crate::cleaning::victim::VictimPolicy;
use crate::journal::superblock::Sizing;
use crate::map::memory::MapMemory;
use crate::map::pins::{MapBlock, MapPin};
use crate::placement_name::{HANDLES_DEFAULT, OBJECTS_DEFAULT, PlacementName};
use crate::words::{AREA_COPIES, TenantNote};
use openftl_core::units::Share;
use openftl_core::{FrameForm, Nanos, UnknownWord};
use strum::{Display, EnumString, IntoStaticStr, VariantNames};

/// Entries of the map that one step looks at.
pub const TRIM_STEP_ENTRIES: u32 = 1024;

/// How far the resets of two chunks of a group may differ before resting data move, unless the drive's owner says
/// otherwise: one percent of what TLC stands.
pub const WEAR_SPREAD_MAX: u32 = 32;

/// Where garbage collection works at a time.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CollectionScope {
    /// In groups that are marked, few of them while there is room; the host meets it only there.
    #[default]
    Marked,
    /// In every group that is short of free chunks, all at once.
    DeviceWide,
}

/// How garbage collection moves blocks.
#[derive(
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    Default,
    Debug,
    serde::Serialize,
    serde::Deserialize,
    Display,
    EnumString,
    IntoStaticStr,
    VariantNames,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case", parse_err_ty = UnknownWord, parse_err_fn = unknown)]
pub enum RelocateBy {
    /// They are read, verified and written: what is wrong is found out before it is written anew.
    #[default]
    ReadAndWrite,
    /// The device copies them (vector copy), and their payload does not cross to the host. Takes four bytes of memory for
    /// each block of flash.
    DeviceCopy,
}

impl RelocateBy {
    /// The word for it.
    #[must_use]
    pub fn word(self) -> &'static str {
        self.into()
    }
}

fn unknown(text: &str) -> UnknownWord {
    UnknownWord::new(text, "way to move blocks", RelocateBy::VARIANTS)
}

/// Of the choices that size a drive, those that are left to it when it is opened: they are as it was formatted.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Left {
    /// [`Config::placement`].
    pub placement: bool,
    /// [`Config::handles`].
    pub handles: bool,
    /// [`Config::objects_max`].
    pub objects_max: bool,
}

impl Left {
    /// All of them: for whoever looks at a drive, or checks it.
    pub const ALL: Left = Left { placement: true, handles: true, objects_max: true };
}

/// The choices. Capacity, over-provisioning and drive identity are fixed when the drive is formatted and read back from
/// its superblock afterwards. `checkpoint_log_blocks`, placement, handles and objects size a drive, too: at another opening they
/// may be others that the drive has room for, or be left as they were. The rest may differ each time the drive is opened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// Logical blocks of 4 KiB that the host sees.
    pub capacity_blocks: u64,
    /// Flash for data beyond the capacity.
    pub over_provisioning: Share,
    /// Logical blocks, the first of the capacity, in which a table drive keeps its catalog. Chunks beyond
    /// those that the capacity needs are for tables then. 0: a block drive.
    pub catalog_blocks: u32,
    /// Which tenant has a catalog, and what it says of itself.
    pub tenant: TenantNote,
    /// Tells this drive from others, so that a chunk of another life of the flash is recognised. Chosen by the caller.
    pub drive_id: u64,
    /// What payload the host brings: bytes for a real drive, stamps for a simulated one.
    pub payload: FrameForm,
    /// Frames for host requests under way and for the write buffer, beyond those that the device's geometry asks for.
    pub host_frames: u32,
    /// Acknowledge every write only when it is durable.
    pub write_through: bool,
    /// Acknowledge flushes and durable writes at once and make nothing durable for them: a drive that breaks its promise, to
    /// test those who rely on it.
    pub lies_about_flush: bool,
    /// Log blocks after which a checkpoint is taken. `None`: as many as the map has blocks, so that log and checkpoint
    /// cost about the same and a restart reads at most twice the map; at another opening, as the drive was formatted.
    pub checkpoint_log_blocks: Option<u64>,
    /// How long a change may be in the log alone before a checkpoint is taken, if the log is not long enough for one by
    /// then. `None`: only the length of the log counts. A drive that nobody writes to takes none.
    pub checkpoint_interval: Option<Nanos>,
    /// Entries of the map that one step of a trim looks at: a drive does
    /// a few such steps before it serves other requests. Smaller than
    /// the default only in tests, where drives are small.
    pub trim_step_entries: u32,
    /// What shares chunks because it is expected to end together.
    pub placement: PlacementName,
    /// Handles that writes may carry, 1 to [`HANDLES_MAX`](crate::placement_name::HANDLES_MAX), where the placement heeds them.
    pub handles: u8,
    /// The first [`AREA_COPIES`] handles are those of copies ([`Handle::of_copy`](crate::words::Handle::of_copy)): each goes to every other
    /// group, or parallel unit if there is one group, as long as there is room.
    pub copies_apart: bool,
    /// Objects that may be written at a time, 1 to [`OBJECTS_MAX`](crate::placement_name::OBJECTS_MAX), where the placement knows them.
    pub objects_max: u16,
    /// Which of these three are as the drive was formatted, whatever is said here.
    pub left: Left,
    /// How garbage collection chooses its victims.
    pub victim: VictimPolicy,
    /// Where garbage collection works at a time.
    pub collection: CollectionScope,
    /// How garbage collection moves blocks. A drive that was formatted for reading and writing keeps to that.
    pub relocate_by: RelocateBy,
    /// Whether the checkpoint has [seals](crate::flash::seals) of copied blocks, as it has if the drive is formatted for device copy.
    /// Read from the superblock when the drive is opened.
    pub has_copies: bool,
    /// The map is on media, and in memory as far as this allows. `None`: all of it is in memory, and in each checkpoint. A drive
    /// stays as it was formatted.
    pub map_memory: Option<MapMemory>,
    /// Of a map on media: blocks whose map pages leave memory last.
    pub map_pins: Vec<MapPin>,
    /// Of a map on media: pages that are loaded at a time.
    pub map_block: MapBlock,
    /// How long the host must have asked for nothing, a millisecond at least, before collection makes room that is not
    /// needed yet, up to a [part](crate::flash::plan::AHEAD_PART) of the over-provisioning. `None`: it never does.
    pub collect_when_idle: Option<Nanos>,
    /// Groups that may be marked for collection at a time; `None`: one of eight while there is room, more as it runs short.
    /// Only of [`CollectionScope::Marked`].
    pub marked_groups_max: Option<u32>,
    /// Every block that holds something is read once in this time, and refreshed if it is weak. `None`: never.
    pub scrub_interval: Option<Nanos>,
    /// How much more often than the least worn chunk of a group the most worn may have been reset, before data that rest
    /// are moved so that it may rest. `None`: wear is not levelled. A limit is kept to within
    /// a small slack.
    pub wear_spread_max: Option<u32>,
    /// Of a store of pages: whether a page that fits into one block may lie in two. If not, what is left of a block before it is slack. A drive
    /// stays as it was formatted.
    pub cross_blocks: bool,
    /// Verify the CRC32C of every block that is read. Off only to measure what it costs.
    pub verify_reads: bool,
    /// A bug to be found.
    #[cfg(feature = "canary")]
    pub canary: Option<crate::canary::Canary>,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            capacity_blocks: 0,
            over_provisioning: Share::percent(10),
            catalog_blocks: 0,
            tenant: TenantNote::default(),
            drive_id: 0,
            payload: FrameForm::Bytes,
            host_frames: 4096,
            write_through: false,
            lies_about_flush: false,
            checkpoint_log_blocks: None,
            checkpoint_interval: None,
            trim_step_entries: TRIM_STEP_ENTRIES,
            placement: PlacementName::default(),
            handles: HANDLES_DEFAULT,
            copies_apart: false,
            objects_max: OBJECTS_DEFAULT,
            left: Left::default(),
            victim: VictimPolicy::Greedy,
            collection: CollectionScope::Marked,
            relocate_by: RelocateBy::ReadAndWrite,
            has_copies: false,
            map_memory: None,
            map_pins: Vec::new(),
            map_block: MapBlock::PAGE,
            collect_when_idle: None,
            marked_groups_max: None,
            scrub_interval: None,
            wear_spread_max: Some(WEAR_SPREAD_MAX),
            cross_blocks: true,
            verify_reads: true,
            #[cfg(feature = "canary")]
            canary: None,
        }
    }
}

impl Config {
    /// What of it sizes a drive, besides capacity and over-provisioning.
    #[must_use]
    pub fn sizing(&self) -> Sizing {
        let Config { checkpoint_log_blocks, placement, handles, objects_max, .. } = *self;
        Sizing { checkpoint_log_blocks, placement, handles, objects_max }
    }

    /// The same choices for the area of a tenant, of so many blocks, on a drive that says this of itself.
    #[must_use]
    pub fn beside(self, tenant: TenantNote, area_blocks: u32) -> Config {
        let (catalog_blocks, capacity_blocks) = (area_blocks, area_blocks.into());
        Config { catalog_blocks, capacity_blocks, tenant, payload: FrameForm::Bytes, ..self }
    }

    /// The same choices for the area of a tenant that writes it [twice](AREA_COPIES).
    #[must_use]
    pub fn with_two_copies(self) -> Config {
        Config { placement: PlacementName::StreamsKept, handles: AREA_COPIES as u8, copies_apart: true, ..self }
    }

    /// The same choices for a drive of this size.
    #[must_use]
    pub fn sized(&self, sizing: Sizing) -> Config {
        let Sizing { checkpoint_log_blocks, placement, handles, objects_max } = sizing;
        Config { checkpoint_log_blocks, placement, handles, objects_max, ..self.clone() }
    }

    /// Takes over what is left to a drive that was formatted for `sizing`.
    pub fn take_over(&mut self, sizing: Sizing) {
        if self.left.placement {
            self.placement = sizing.placement;
        }
        if self.left.handles {
            self.handles = sizing.handles;
        }
        if self.left.objects_max {
            self.objects_max = sizing.objects_max;
        }
        self.checkpoint_log_blocks = self.checkpoint_log_blocks.or(sizing.checkpoint_log_blocks);
    }
}

impl Config {
    /// The bug that this drive is to have, if any.
    pub fn bugs(&self) -> Bugs {
        #[cfg(feature = "canary")]
        return Bugs::new(self.canary);
        #[cfg(not(feature = "canary"))]
        Bugs::default()
    }
}
