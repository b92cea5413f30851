//! What `openftl inspect` says of the tables, zones or values of a drive.

use crate::terminal::{Ink, Palette};
use openftl_core::BLOCK_BYTES;
use openftl_core::units::ByteSize;
use openftl_lab::picture::{bar, thousands};
use openftl_media::Media;
use openftl_pages::PageFtl;
use openftl_parts::flash::chunk_table::ChunkUse;
use openftl_tables::TableFtl;
use openftl_values::{ValueFtl, ValueTarget};
use openftl_zones::{Face, ZoneFtl, ZoneState};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;

/// What is on a device beside blocks.
#[derive(Serialize, Clone)]
#[serde(rename_all = "kebab-case")]
pub enum TenantFacts {
    /// Tables of an LSM-tree.
    Tables(TableFacts),
    /// Zones.
    Zones(ZoneFacts),
    /// Zones that hosts see as segments.
    Segments(ZoneFacts),
    /// Pages of any size.
    Pages(PageStoreFacts),
    /// Keys and values.
    Values(ValueFacts),
}

/// What pages have of the device.
#[derive(Serialize, Clone, Copy)]
pub struct PageStoreFacts {
    pages: u64,
    used_bytes: u64,
    capacity_bytes: u64,
    page_bytes_max: u32,
    /// Memory for where pages are, and how much that may be, where it is limited.
    map_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    map_bytes_max: Option<u64>,
    /// Of the bytes that are used, those of pages, of their headers, and what they leave of their last grains.
    page_bytes: u64,
    header_bytes: u64,
    slack_bytes: u64,
}

/// What keys and values there are.
#[derive(Serialize, Clone)]
pub struct ValueFacts {
    keys: u64,
    keys_max: u64,
    key_bytes: u64,
    value_bytes: u64,
    used_bytes: u64,
    capacity_bytes: u64,
    /// Keys of each run of the directory, the oldest one first.
    runs: Vec<u64>,
    /// Changes of the directory that no run has.
    changes: usize,
    /// Memory for where values are, and for the directory.
    index_bytes: u64,
}

/// What tables have of the device.
#[derive(Serialize, Clone, Copy)]
pub struct TableFacts {
    tables: u64,
    blocks: u64,
    /// Chunks that hold their blocks, or did and are not free yet.
    chunks: u64,
    /// What tables may still take, and what they could if there were none.
    free_bytes: u64,
    all_bytes: u64,
}

/// What zones there are.
#[derive(Serialize, Clone)]
pub struct ZoneFacts {
    zones: u32,
    zone_width: u32,
    zone_size_bytes: u64,
    zone_capacity_bytes: u64,
    max_open_zones: u32,
    max_active_zones: u32,
    active: u32,
    zones_by_state: BTreeMap<&'static str, u64>,
    blocks: u64,
    /// Memory for where zones are.
    map_bytes: u64,
}

impl ZoneFacts {
    /// What they hold if they are full.
    fn capacity_bytes(&self) -> u64 {
        u64::from(self.zones) * self.zone_capacity_bytes
    }
}

impl TenantFacts {
    /// Of a table drive.
    pub fn of_tables<M: Media>(drive: &TableFtl<M>) -> TenantFacts {
        let (tables, blocks) = drive.committed();
        let (free, all) = drive.table_space();
        let chunks = drive.block().chunk_uses().filter(|(_, usage, _)| *usage == ChunkUse::Tenant).count() as u64;
        let bytes = |blocks: u64| blocks * BLOCK_BYTES as u64;
        TenantFacts::Tables(TableFacts { tables, blocks, chunks, free_bytes: bytes(free), all_bytes: bytes(all) })
    }

    /// Of a zoned drive.
    pub fn of_zones(drive: &ZoneFtl) -> TenantFacts {
        let (layout, board) = (drive.layout(), drive.board());
        let mut zones_by_state = BTreeMap::new();
        for zone in board.zones() {
            *zones_by_state.entry(word(zone.state)).or_default() += 1;
        }
        let facts = ZoneFacts {
            zones: layout.zones,
            zone_width: layout.width,
            zone_size_bytes: layout.size * BLOCK_BYTES as u64,
            zone_capacity_bytes: u64::from(layout.capacity) * BLOCK_BYTES as u64,
            max_open_zones: board.limits().max_open,
            max_active_zones: board.limits().max_active,
            active: board.resources().1,
            zones_by_state,
            blocks: board.zones().iter().map(|zone| u64::from(zone.written)).sum(),
            map_bytes: drive.map_bytes(),
        };
        match drive.face() {
            Face::Zones => TenantFacts::Zones(facts),
            Face::Segments => TenantFacts::Segments(facts),
        }
    }

    /// Of a key-value drive.
    pub fn of_values(drive: &ValueFtl) -> TenantFacts {
        let info = drive.info();
        TenantFacts::Values(ValueFacts {
            keys: info.keys,
            keys_max: info.keys_max,
            key_bytes: info.key_bytes,
            value_bytes: info.value_bytes,
            used_bytes: info.used_bytes,
            capacity_bytes: info.capacity_bytes,
            runs: drive.runs(),
            changes: drive.changes(),
            index_bytes: drive.index_bytes(),
        })
    }

    /// Of a store of pages.
    pub fn of_pages(drive: &PageFtl) -> TenantFacts {
        let contents = drive.contents();
        TenantFacts::Pages(PageStoreFacts {
            page_bytes: contents.bytes,
            header_bytes: contents.header_bytes,
            slack_bytes: contents.grain_bytes,
            pages: drive.pages(),
            used_bytes: drive.used_bytes(),
            capacity_bytes: drive.capacity_bytes(),
            page_bytes_max: drive.page_bytes_max(),
            map_bytes: drive.map_bytes(),
            map_bytes_max: drive.map_bytes_max(),
        })
    }

    /// Bytes that it can hold, where hosts see it and not the blocks beside it.
    pub fn capacity_bytes(&self) -> Option<u64> {
        match self {
            TenantFacts::Tables(_) => None,
            TenantFacts::Zones(facts) | TenantFacts::Segments(facts) => Some(facts.capacity_bytes()),
            TenantFacts::Pages(facts) => Some(facts.capacity_bytes),
            TenantFacts::Values(facts) => Some(facts.capacity_bytes),
        }
    }

    /// What hosts call what is on it, if they do not see the blocks beside that.
    pub fn noun(&self) -> Option<&'static str> {
        match self {
            TenantFacts::Tables(_) => None,
            TenantFacts::Zones(_) => Some(Face::Zones.noun()),
            TenantFacts::Segments(_) => Some(Face::Segments.noun()),
            TenantFacts::Pages(_) => Some("pages"),
            TenantFacts::Values(_) => Some("values"),
        }
    }

    /// What is above the blocks beside it, for people.
    pub fn title_of_blocks(&self) -> String {
        match (self, self.noun()) {
            (TenantFacts::Pages(_) | TenantFacts::Values(_), _) => "Map of pages".to_owned(),
            (_, Some(noun)) => format!("Records and tails of {noun}"),
            (_, None) => "Data".to_owned(),
        }
    }

    /// What is above it for people.
    pub fn title(&self) -> &'static str {
        match self {
            TenantFacts::Tables(_) => "Tables",
            TenantFacts::Pages(_) => "Pages",
            TenantFacts::Zones(_) => "Zones",
            TenantFacts::Segments(_) => "Segments",
            TenantFacts::Values(_) => "Values",
        }
    }

    /// For people.
    pub fn write(&self, text: &mut String, palette: Palette) {
        let bar = |share: f64| palette.paint(Ink::Picture, &format!("[{}]", bar(share, 24)));
        match self {
            TenantFacts::Tables(TableFacts { tables, blocks, chunks, free_bytes, all_bytes }) => {
                let share = *blocks as f64 * BLOCK_BYTES as f64 / (*all_bytes).max(1) as f64;
                _ = writeln!(
                    text,
                    "  {} {:.1}% of what they may have: {} tables of {} blocks, in {} chunks; room for {} more, of {}",
                    bar(share),
                    share * 100.0,
                    thousands(*tables),
                    thousands(*blocks),
                    thousands(*chunks),
                    ByteSize(*free_bytes),
                    ByteSize(*all_bytes)
                );
            }
            TenantFacts::Pages(facts) => {
                let PageStoreFacts { pages, used_bytes, capacity_bytes, page_bytes_max, map_bytes, .. } = facts;
                let share = *used_bytes as f64 / (*capacity_bytes).max(1) as f64;
                _ = writeln!(
                    text,
                    "  {} {:.1}% is used, with headers: {} pages in {} of {}\n  a page has {} at most; where they are takes {}",
                    bar(share),
                    share * 100.0,
                    thousands(*pages),
                    ByteSize(*used_bytes),
                    ByteSize(*capacity_bytes),
                    ByteSize((*page_bytes_max).into()),
                    ByteSize(*map_bytes)
                );
                _ = writeln!(
                    text,
                    "  pages {}, their headers {}, slack {}",
                    ByteSize(facts.page_bytes),
                    ByteSize(facts.header_bytes),
                    ByteSize(facts.slack_bytes)
                );
            }
            TenantFacts::Values(facts) => {
                let share = facts.used_bytes as f64 / facts.capacity_bytes.max(1) as f64;
                _ = writeln!(
                    text,
                    "  {} {:.1}% is taken: {} keys of {}, values of {}; there may be {} keys",
                    bar(share),
                    share * 100.0,
                    thousands(facts.keys),
                    ByteSize(facts.key_bytes),
                    ByteSize(facts.value_bytes),
                    thousands(facts.keys_max)
                );
                let runs: Vec<String> = facts.runs.iter().map(|keys| thousands(*keys)).collect();
                let runs =
                    if runs.is_empty() { "no runs".to_owned() } else { format!("runs of {} keys", runs.join(", ")) };
                let memory = ByteSize(facts.index_bytes);
                _ = writeln!(text, "  directory: {runs}, and {} changes; the index takes {memory}", facts.changes);
            }
            TenantFacts::Zones(facts) | TenantFacts::Segments(facts) => {
                let is_zoned = matches!(self, TenantFacts::Zones(_));
                let all_bytes = facts.capacity_bytes();
                let share = facts.blocks as f64 * BLOCK_BYTES as f64 / all_bytes.max(1) as f64;
                _ = writeln!(
                    text,
                    "  {} {:.1}% is written: {} blocks of {}",
                    bar(share),
                    share * 100.0,
                    thousands(facts.blocks),
                    ByteSize(all_bytes)
                );
                _ = writeln!(
                    text,
                    "  {} {} of {}{}, each on {} parallel units; where they are takes {}",
                    thousands(facts.zones.into()),
                    if is_zoned { "zones" } else { "segments" },
                    ByteSize(facts.zone_capacity_bytes),
                    if is_zoned { format!(", {} apart", ByteSize(facts.zone_size_bytes)) } else { String::new() },
                    facts.zone_width,
                    ByteSize(facts.map_bytes)
                );
                let states: Vec<String> = facts
                    .zones_by_state
                    .iter()
                    .map(|(state, count)| format!("{} {state}", thousands(*count)))
                    .collect();
                let active = match is_zoned {
                    true => format!("active, and {} may be open", facts.max_open_zones),
                    false => "written in part".to_owned(),
                };
                let states = states.join(", ");
                _ = writeln!(text, "  {states}; {} of {} {active}", facts.active, facts.max_active_zones);
            }
        }
    }
}

fn word(state: ZoneState) -> &'static str {
    match state {
        ZoneState::Empty => "empty",
        ZoneState::ImplicitlyOpen | ZoneState::ExplicitlyOpen => "open",
        ZoneState::Closed => "closed",
        ZoneState::Full => "full",
        ZoneState::ReadOnly => "read only",
        ZoneState::Offline => "offline",
    }
}
