//! The FTL of a drive description: which one, and its settings.

use openftl_core::Nanos;
use openftl_core::units::{ByteSize, Interval};
use openftl_parts::map::cache::CachePolicy;
use openftl_parts::map::memory::MapBudget;
use openftl_parts::map::pins::{MapBlock, MapPin};
use openftl_parts::{CollectionScope, PlacementName, RelocateBy, VictimPolicy};
use openftl_tables::TablePlacement;
use serde::{Deserialize, Deserializer};

/// A span as people write it. In reports spans are numbers, so this is not how they are read everywhere.
pub(crate) fn span<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Nanos>, D::Error> {
    let text = String::deserialize(deserializer)?;
    text.parse().map(Some).map_err(serde::de::Error::custom)
}

/// Which FTL.
#[derive(Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "kebab-case")]
pub enum FtlKind {
    /// 4 KiB blocks, transactions up to 1 MiB.
    Block,
    /// Tables of an LSM-tree, and a log area: see [`crate::table_drive`].
    Tables,
    /// Zones that are written in order.
    Zones,
    /// Blocks in segments that are written in order.
    Segments,
    /// Pages of any size, in batches: see [`crate::page_drive`].
    Pages,
    /// Keys and values: see [`crate::value_drive`].
    Values,
}

/// How hosts see segments.
#[derive(Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "kebab-case")]
pub enum Interface {
    /// As blocks, of which one that is written is not written again.
    Blocks,
    /// As zones, for hosts that know those.
    Zones,
}

/// What is laid over the flash; as in [`openftl_parts::Config`].
#[derive(Deserialize, Clone, PartialEq, Debug, Default)]
#[serde(deny_unknown_fields)]
pub struct FtlSection {
    /// Which FTL.
    pub kind: Option<FtlKind>,
    /// How garbage collection chooses its victims.
    pub victim: Option<VictimPolicy>,
    /// Where garbage collection works at a time.
    pub collection: Option<CollectionScope>,
    /// How garbage collection moves blocks.
    pub relocate_by: Option<RelocateBy>,
    /// Silence of the host after which room is made ahead.
    #[serde(default, deserialize_with = "span")]
    pub collect_when_idle: Option<Nanos>,
    /// What shares chunks.
    pub placement: Option<PlacementName>,
    /// Handles that writes may carry.
    pub handles: Option<u8>,
    /// Objects that may be written at a time.
    pub objects_max: Option<u16>,
    /// Keeps the map on media, and so much of it in memory.
    pub map_memory: Option<MapBudget>,
    /// Which map pages stay in memory.
    pub map_cache: Option<CachePolicy>,
    /// Blocks whose map pages leave memory last.
    pub map_pin: Option<Vec<MapPin>>,
    /// Bytes of the map that are loaded at a time.
    pub map_block: Option<MapBlock>,
    /// Acknowledge every write only when it is durable.
    pub write_through: Option<bool>,
    /// Log blocks after which a checkpoint is taken.
    pub checkpoint_log_blocks: Option<u64>,
    /// Time after which a checkpoint is taken.
    #[serde(default, deserialize_with = "span")]
    pub checkpoint_interval: Option<Nanos>,
    /// Groups that may be marked for collection at a time.
    pub marked_groups_max: Option<u32>,
    /// Time in which everything is read once.
    pub scrub_interval: Option<Interval>,
    /// Resets that chunks of a group may differ by before data move; 0 means that wear is not levelled.
    pub wear_spread_max: Option<u32>,
    /// Of a table drive: bytes of its log area.
    pub log_area: Option<ByteSize>,
    /// Of a table drive: where tables go.
    pub table_placement: Option<TablePlacement>,
    /// Of zones: parallel units of each.
    pub zone_width: Option<u32>,
    /// Of zones: how many can be open at a time.
    pub max_open_zones: Option<u32>,
    /// Of zones: how many can be open or closed at a time.
    pub max_active_zones: Option<u32>,
    /// Of zones: bytes of the descriptor extension of each.
    pub zone_descriptor_extension: Option<u32>,
    /// Of zones: whether a host can open them with a random write area, and how long that is.
    pub zrwa: Option<RandomWriteArea>,
    /// Of segments: parallel units of each.
    pub segment_width: Option<u32>,
    /// Of segments: how many can be neither empty nor full.
    pub max_open_segments: Option<u32>,
    /// Of segments: how hosts see them.
    pub interface: Option<Interface>,
    /// Of pages and values: whether a page that fits into one block may lie in two.
    pub cross_blocks: Option<bool>,
    /// Of values: how many keys there may be.
    pub keys_max: Option<u64>,
    /// Of values: bytes of a key, at most.
    pub key_max: Option<u8>,
    /// Of values: bytes of a value, at most.
    pub value_max: Option<ByteSize>,
    /// Of values: whether Stores and Deletes are acknowledged only when they are durable.
    pub durable_stores: Option<bool>,
}

/// The random write area of zones, in a drive description: `true`, `false`, or how long it is.
#[derive(serde::Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(untagged, expecting = "true, false, or a size like \"64KiB\"")]
pub enum RandomWriteArea {
    /// As long as is usual, or none.
    Has(bool),
    /// So long.
    Bytes(ByteSize),
}

/// Fields, and whether they are given.
type Given<const FIELDS: usize> = [(&'static str, bool); FIELDS];

impl FtlSection {
    /// Fields, and whether they are given: those that only drives of blocks heed, those of zones, those of segments, and those of values.
    fn given(&self) -> (Given<16>, Given<5>, Given<3>, Given<4>) {
        let blocks = [
            ("victim", self.victim.is_some()),
            ("collection", self.collection.is_some()),
            ("relocate_by", self.relocate_by.is_some()),
            ("collect_when_idle", self.collect_when_idle.is_some()),
            ("placement", self.placement.is_some()),
            ("handles", self.handles.is_some()),
            ("objects_max", self.objects_max.is_some()),
            ("map_memory", self.map_memory.is_some()),
            ("map_cache", self.map_cache.is_some()),
            ("map_pin", self.map_pin.is_some()),
            ("map_block", self.map_block.is_some()),
            ("write_through", self.write_through.is_some()),
            ("marked_groups_max", self.marked_groups_max.is_some()),
            ("wear_spread_max", self.wear_spread_max.is_some()),
            ("log_area", self.log_area.is_some()),
            ("table_placement", self.table_placement.is_some()),
        ];
        let zones = [
            ("zone_width", self.zone_width.is_some()),
            ("max_open_zones", self.max_open_zones.is_some()),
            ("max_active_zones", self.max_active_zones.is_some()),
            ("zone_descriptor_extension", self.zone_descriptor_extension.is_some()),
            ("zrwa", self.zrwa.is_some()),
        ];
        let segments = [
            ("segment_width", self.segment_width.is_some()),
            ("max_open_segments", self.max_open_segments.is_some()),
            ("interface", self.interface.is_some()),
        ];
        let values = [
            ("keys_max", self.keys_max.is_some()),
            ("key_max", self.key_max.is_some()),
            ("value_max", self.value_max.is_some()),
            ("durable_stores", self.durable_stores.is_some()),
        ];
        (blocks, zones, segments, values)
    }

    /// Whether it says nothing but what an FTL of `kind` heeds, where that is of zones or segments, or one that has neither.
    pub(crate) fn expect_of_kind(&self, kind: FtlKind) -> Result<(), String> {
        let (blocks, zones, segments, values) = self.given();
        let first = |fields: &[(&'static str, bool)]| fields.iter().find_map(|(field, given)| given.then_some(*field));
        let only = |noun: &str, field: Option<&str>| match field {
            None => Ok(()),
            Some(field) => {
                Err(format!("{field} is of use to {noun} only; leave it away, or write kind = \"{noun}\" in [ftl]"))
            }
        };
        if kind != FtlKind::Values {
            only("values", first(&values))?;
        }
        if !matches!(kind, FtlKind::Pages | FtlKind::Values) {
            only("pages", self.cross_blocks.map(|_| "cross_blocks"))?;
        }
        match kind {
            FtlKind::Zones | FtlKind::Segments => {
                let noun = if kind == FtlKind::Zones { "zones" } else { "segments" };
                if let Some(field) = first(&blocks) {
                    return Err(format!("{field} is of no use to {noun}; leave it away"));
                }
                if kind == FtlKind::Zones { only("segments", first(&segments)) } else { only("zones", first(&zones)) }
            }
            FtlKind::Pages | FtlKind::Values => {
                // Pages are cleaned, too, and have a map.
                let noun = if kind == FtlKind::Pages { "pages" } else { "values" };
                let heeded = ["victim", "map_memory", "map_cache"];
                let all = [&blocks[..], &zones[..], &segments[..]].concat();
                let not_heeded = all.into_iter().find(|(field, given)| *given && !heeded.contains(field));
                let no_use = |(field, _): (&str, bool)| Err(format!("{field} is of no use to {noun}; leave it away"));
                not_heeded.map_or(Ok(()), no_use)
            }
            FtlKind::Block | FtlKind::Tables => {
                only("zones", first(&zones)).and_then(|()| only("segments", first(&segments)))
            }
        }
    }
}
