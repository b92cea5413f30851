//! The FTL of a drive description: which one, and its settings.

use openftl_core::Nanos;
use openftl_core::units::{ByteSize, Interval};
use openftl_parts::map::memory::MapBudget;
use openftl_parts::map::page_cache::CachePolicy;
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
    /// Of zones: whether they have a random write area.
    pub zrwa: Option<bool>,
}

impl FtlSection {
    /// A field that is of no use to zones.
    fn not_for_zones(&self) -> Option<&'static str> {
        let fields = [
            ("victim", self.victim.is_some()),
            ("collection", self.collection.is_some()),
            ("relocate_by", self.relocate_by.is_some()),
            ("collect_when_idle", self.collect_when_idle.is_some()),
            ("placement", self.placement.is_some()),
            ("handles", self.handles.is_some()),
            ("objects_max", self.objects_max.is_some()),
            ("map_memory", self.map_memory.is_some()),
            ("map_cache", self.map_cache.is_some()),
            ("write_through", self.write_through.is_some()),
            ("marked_groups_max", self.marked_groups_max.is_some()),
            ("wear_spread_max", self.wear_spread_max.is_some()),
            ("log_area", self.log_area.is_some()),
            ("table_placement", self.table_placement.is_some()),
        ];
        fields.into_iter().find_map(|(field, is_given)| is_given.then_some(field))
    }

    /// A field that is of use to zones only.
    fn for_zones_only(&self) -> Option<&'static str> {
        let fields = [
            ("zone_width", self.zone_width.is_some()),
            ("max_open_zones", self.max_open_zones.is_some()),
            ("max_active_zones", self.max_active_zones.is_some()),
            ("zrwa", self.zrwa.is_some()),
        ];
        fields.into_iter().find_map(|(field, is_given)| is_given.then_some(field))
    }

    /// Whether it says nothing but what an FTL for zones heeds, or one that has none.
    pub(crate) fn expect_of_kind(&self, is_zoned: bool) -> Result<(), String> {
        if is_zoned && self.zrwa == Some(true) {
            return Err("zrwa = true: zones have no random write area yet; leave it away".to_owned());
        }
        let field = if is_zoned { self.not_for_zones() } else { self.for_zones_only() };
        match (field, is_zoned) {
            (None, _) => Ok(()),
            (Some(field), true) => Err(format!("{field} is of no use to zones; leave it away")),
            (Some(field), false) => {
                Err(format!("{field} is of use to zones only; leave it away, or write kind = \"zones\" in [ftl]"))
            }
        }
    }
}
