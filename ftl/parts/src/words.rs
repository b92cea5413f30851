//! Words that the parts share.

/// Copies of log and checkpoint: in different groups, or on different parallel units of the one group.
pub const METADATA_COPIES: usize = 2;

/// Copies of what a tenant keeps in its area, as far as nothing else says it.
pub const AREA_COPIES: u32 = 2;

/// The most blocks of one write: 1 MiB, the largest transaction of OX-Block.
pub const TRANSACTION_BLOCKS_MAX: usize = 256;

/// Why a block was programmed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, serde::Serialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum Purpose {
    /// A block that the host wrote.
    Data = 0,
    /// A block that garbage collection moved.
    Relocation = 1,
    /// The write-ahead log.
    Log = 2,
    /// A checkpoint.
    Checkpoint = 3,
    /// A superblock.
    Superblock = 4,
    /// Nothing: fills a write unit that could not wait, or a chunk that had to be closed.
    Padding = 5,
    /// A block of a tenant.
    #[serde(rename = "table")]
    Tenant = 6,
    /// A page of a map that is kept on media.
    Map = 7,
    /// Headers of pages, in a store of pages: so many whole blocks as they add up to.
    Header = 8,
    /// Bytes beside pages that hold nothing, in a store of pages: what a page leaves of its last grain, what is left of a block that
    /// a page is not to cross, and of one that is written before it is full. So many whole blocks as they add up to.
    Slack = 9,
}

impl Purpose {
    /// Every purpose, in the order of [`crate::accounts::statistics::Statistics::programmed`].
    pub const ALL: [Purpose; 10] = [
        Purpose::Data,
        Purpose::Relocation,
        Purpose::Log,
        Purpose::Checkpoint,
        Purpose::Superblock,
        Purpose::Padding,
        Purpose::Tenant,
        Purpose::Map,
        Purpose::Header,
        Purpose::Slack,
    ];

    /// Those of a drive with a tenant.
    pub const BESIDE_A_TENANT: [Purpose; 7] = [
        Purpose::Data,
        Purpose::Relocation,
        Purpose::Log,
        Purpose::Checkpoint,
        Purpose::Superblock,
        Purpose::Padding,
        Purpose::Tenant,
    ];

    /// Those of a block drive.
    pub const OF_BLOCKS: [Purpose; 7] = [
        Purpose::Data,
        Purpose::Relocation,
        Purpose::Log,
        Purpose::Checkpoint,
        Purpose::Superblock,
        Purpose::Padding,
        Purpose::Map,
    ];

    /// The word that reports use.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Purpose::Data => "data",
            Purpose::Relocation => "relocation",
            Purpose::Log => "log",
            Purpose::Checkpoint => "checkpoint",
            Purpose::Superblock => "superblock",
            Purpose::Padding => "padding",
            Purpose::Tenant => "tables",
            Purpose::Map => "map",
            Purpose::Header => "headers",
            Purpose::Slack => "slack",
        }
    }
}

/// Why a chunk was emptied though nobody needed its room.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, serde::Serialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum Care {
    /// A read of the host found it weak.
    HostRead = 0,
    /// The scrub found it weak.
    Scrub = 1,
    /// The device said that it is weak, or has gone offline.
    Notification = 2,
    /// Its data rest while others wear: wear levelling.
    Wear = 3,
}

impl Care {
    /// Every reason, in the order of [`crate::accounts::statistics::Statistics::cared`].
    pub const ALL: [Care; 4] = [Care::HostRead, Care::Scrub, Care::Notification, Care::Wear];

    /// The words that reports use.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Care::HostRead => "found weak by a read",
            Care::Scrub => "found weak by the scrub",
            Care::Notification => "notified by the device",
            Care::Wear => "moved to level wear",
        }
    }
}

/// Whether a drive may be written when it is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Recovery ends with a superblock, and the drive takes requests.
    ReadWrite,
    /// Nothing is written; the drive takes reads.
    Inspect,
    /// As to use it; but what cannot be trusted is rebuilt instead of refused, and then a new checkpoint is written.
    Repair,
}

/// What a drive may begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// Whatever it needs to.
    Working,
    /// Nothing that is logged: what recovery found beyond the end of the log is not yet left behind by a checkpoint.
    Recovering,
    /// Nothing new.
    Closing,
    /// Nothing but the last checkpoint: everything else is durable, and can be read.
    Ending,
}

/// Why a drive takes no more writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum ReadOnlyReason {
    /// So many chunks have gone bad that the capacity is only just covered.
    #[error("worn out: too few good chunks are left")]
    WornOut,
    /// The store behind the device failed a write.
    #[error("the store behind the device failed a write (full, or an I/O error)")]
    StoreFault,
    /// No superblock can be written any more.
    #[error("the chunks for superblocks have gone bad")]
    NoSuperblock,
    /// No room can be made.
    #[error("no chunk can be freed")]
    NoRoom,
    /// A worn-out drive has lost more chunks since than it holds back to save what it had taken.
    #[error("worn out, and too many chunks have gone bad since to save all that was written last")]
    Spent,
    /// Requests were under way that would not have ended: a defect of the drive, or a device that lost a command.
    #[error("the drive came to a standstill with requests under way")]
    Stalled,
    /// Neither copy of a map page can be read.
    #[error("a page of the map is lost")]
    MapLost,
    /// Opened to be looked at.
    #[error("opened for inspection")]
    Inspection,
}

/// What is written together. Of no meaning beyond the life of the open drive.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Class(pub u16);

impl Class {
    /// Writes of which nothing is known.
    pub const ORDINARY: Class = Class(0);

    /// Its place in tables.
    #[inline]
    #[must_use]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// What a chunk was opened for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Label {
    /// Anything.
    #[default]
    Ordinary,
    /// Writes under one handle.
    Handle(u8),
    /// Blocks of objects.
    Objects,
    /// Blocks that were expected to be overwritten soon.
    Brief,
}

/// What the host says of the lifetime of what it writes: blocks written under one handle are expected to end together.
///
/// A hint, and never a promise: a drive whose placement does not heed handles takes no notice of it, and one that does takes
/// any handle that it does not have for none, or for the default one of its placement. NVMe calls it a stream identifier, or a
/// placement handle.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Handle(pub u8);

impl Handle {
    /// Nothing is said.
    pub const NONE: Handle = Handle(0);

    /// Where copy `copy` of what a tenant keeps in its area is written, below [`AREA_COPIES`]: see
    /// [`Config::copies_apart`](crate::config::Config::copies_apart).
    #[must_use]
    pub const fn of_copy(copy: u32) -> Handle {
        Handle(copy as u8 + 1)
    }
}

/// What a drive was formatted for, beside its blocks: in its superblock, and of no meaning to the parts.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, serde::Serialize)]
pub struct TenantNote {
    /// Which tenant, of those with a catalog; 0 is that of table drives. Its bits from [`TenantNote::FAMILY_BITS`] on are the tenant's own.
    pub kind: u8,
    /// What it says of itself.
    pub words: [u16; 3],
    /// What else it says.
    #[serde(skip_serializing_if = "is_zero")]
    pub more: u8,
}

fn is_zero(more: &u8) -> bool {
    *more == 0
}

impl TenantNote {
    /// Bits of the kind that tell tenants apart. What does not know the others does not open the drive.
    pub const FAMILY_BITS: u32 = 2;

    /// The kind of a store of pages. Its family is that of tables; what knows tables alone sees that it is none.
    pub const PAGES: u8 = 2 << TenantNote::FAMILY_BITS;

    /// The kind of a store of pages that holds keys and values.
    pub const VALUES: u8 = 3 << TenantNote::FAMILY_BITS;

    /// In [`TenantNote::more`] of a store of pages: its index is being rebuilt. What the area says of it does not count until that has ended.
    pub const REBUILDING: u8 = 1;

    /// The same: a page that fits into one block is not to lie in two ([`Config::cross_blocks`](crate::config::Config::cross_blocks)).
    pub const WHOLE_BLOCKS: u8 = 2;

    /// The same of a store of pages that holds keys and values: its directory of keys is being rebuilt, and its index is not.
    pub const REBUILDING_KEYS: u8 = 4;

    /// The same of a store of pages: its index may take so much of the memory only ([`Config::map_memory`](crate::config::Config::map_memory)).
    pub const INDEX_ON_MEDIA: u8 = 8;

    /// The same: its log has two lanes.
    pub const TWO_LANES: u8 = 16;

    /// Which tenant it is, whatever else its kind says.
    #[must_use]
    pub fn family(self) -> u8 {
        self.kind & ((1 << TenantNote::FAMILY_BITS) - 1)
    }

    /// Whether the tenant goes on exactly where its chunks were left: after a clean stop nothing is padded, because all that the
    /// drive needs can be read without.
    #[must_use]
    pub fn goes_on_in_order(self) -> bool {
        ![0, TenantNote::PAGES, TenantNote::VALUES].contains(&self.kind)
    }
}
