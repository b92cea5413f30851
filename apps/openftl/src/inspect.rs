//! `openftl inspect`: what a stored drive holds, without changing it.

use crate::assembly::{self, Drive, StoredDrive};
use crate::chunk_map::{self, Cell, Mark};
use crate::cli;
use crate::failure::Failure;
use crate::flash::Flash;
use crate::namespaces::{Stored, of_kind};
use crate::profiles::GeometryFacts;
use crate::serve::write_recovery;
use crate::terminal::{Ink, Palette, say};
use openftl_core::units::ByteSize;
use openftl_core::{BLOCK_BYTES, ChunkId, Time, VirtualClock};
use openftl_ftl::chunk_table::ChunkUse;
use openftl_ftl::{Access, Plan, RecoveryReport};
use openftl_lab::picture::{bar, thousands};
use openftl_media::partition::span;
use openftl_media::{EmulatedDevice, Media, PartKind, PartLabel, Timing};
use serde::Serialize;
use std::collections::{BTreeMap, HashSet};
use std::fmt::Write;
use std::path::Path;

#[derive(Serialize)]
struct Facts {
    profile: String,
    geometry: GeometryFacts,
    capacity_bytes: u64,
    over_provisioning: f64,
    mapped_blocks: u64,
    /// Of a table drive.
    #[serde(skip_serializing_if = "Option::is_none")]
    tables: Option<TableFacts>,
    plan: Plan,
    superblock: SuperblockFacts,
    checkpoint: CheckpointFacts,
    log: LogFacts,
    wear: Wear,
    /// How it was opened to be looked at; if it was not closed cleanly, it was recovered in memory alone.
    recovery: RecoveryReport,
    chunks_by_use: BTreeMap<String, u64>,
    chunks: Vec<ChunkFacts>,
}

/// What tables have of the device.
#[derive(Serialize, Clone, Copy)]
struct TableFacts {
    tables: u64,
    blocks: u64,
    /// Chunks that hold their blocks, or did and are not free yet.
    chunks: u64,
    /// What tables may still take, and what they could if there were none.
    free_bytes: u64,
    all_bytes: u64,
}

#[derive(Serialize)]
struct SuperblockFacts {
    sequence: u64,
    drive: String,
    clean: bool,
}

#[derive(Serialize)]
struct CheckpointFacts {
    sequence: u64,
    blocks: u32,
    extents: Vec<String>,
}

#[derive(Serialize)]
struct LogFacts {
    first_lsn: u64,
    chunks: Vec<String>,
}

/// How often chunks were reset.
#[derive(Serialize, Clone, Copy, PartialEq, Debug)]
struct Wear {
    min: u32,
    mean: f64,
    max: u32,
    endurance: u32,
}

#[derive(Serialize)]
struct ChunkFacts {
    chunk: String,
    #[serde(rename = "use")]
    mark: Mark,
    valid_blocks: u32,
    resets: u32,
}

/// A device that is divided.
#[derive(Serialize)]
struct DeviceFacts {
    profile: String,
    geometry: GeometryFacts,
    namespaces: Vec<PartFacts>,
    /// Parallel units that no namespace has.
    parallel_units_unused: u32,
}

/// One namespace of it.
#[derive(Serialize)]
struct PartFacts {
    id: usize,
    name: String,
    kind: PartKind,
    groups: String,
    parallel_units: String,
    flash_bytes: u64,
    chunks_by_state: BTreeMap<String, u64>,
    wear: Wear,
    #[serde(skip_serializing_if = "Option::is_none")]
    drive: Option<DriveFacts>,
    /// Why its drive cannot be opened.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// The drive of a block namespace, in short.
#[derive(Serialize)]
struct DriveFacts {
    capacity_bytes: u64,
    over_provisioning: f64,
    mapped_blocks: u64,
    drive: String,
    clean: bool,
}

pub fn run(arguments: &cli::Inspect) -> Result<(), Failure> {
    let disk = &arguments.disk;
    let parts = assembly::parts_of(disk)?;
    let named = parts.iter().find(|label| Some(&label.name) == arguments.namespace.as_ref());
    if arguments.namespace.is_none() && !parts.is_empty() {
        return inspect_device(arguments, &parts);
    }
    let stored = Stored { path: disk, namespace: arguments.namespace.as_ref() };
    if let Some(label @ PartLabel { kind: PartKind::OpenChannel, .. }) = named {
        return inspect_open_channel(arguments, &stored, label, &parts);
    }
    let mut clock = VirtualClock::default();
    let drive = assembly::open_to_look_at(&stored, &mut clock)?;
    let cells = cells(drive.block());
    let facts = Facts { tables: table_facts(&drive), ..facts(drive.block(), &cells) };
    if arguments.json {
        return say(&crate::json(&facts)?);
    }
    say(&page(&stored.to_string(), &facts, &cells, drive.block(), Palette::of_stdout()))
}

/// All that a device is divided into, in short.
fn inspect_device(arguments: &cli::Inspect, parts: &[PartLabel]) -> Result<(), Failure> {
    let disk = &arguments.disk;
    let device = assembly::open_device(disk, Timing::Modelled, Access::Inspect)?;
    let (profile, geometry) = (device.profile().name.clone(), *device.geometry());
    drop(device);
    let used: u32 = parts.iter().map(|label| label.partition.shape(&geometry).pus()).sum();
    let mut namespaces = Vec::new();
    for label in ordered(parts) {
        let stored = Stored { path: disk, namespace: Some(&label.name) };
        namespaces.push(part_facts(&stored, label, namespaces.len() + 1)?);
    }
    let facts = DeviceFacts {
        profile,
        geometry: GeometryFacts::of(&geometry),
        namespaces,
        parallel_units_unused: geometry.pus() - used,
    };
    if arguments.json {
        return say(&crate::json(&facts)?);
    }
    say(&device_page(disk, &facts, Palette::of_stdout()))
}

/// The flash of an Open-Channel namespace. What its chunks hold is known to its hosts alone.
fn inspect_open_channel(
    arguments: &cli::Inspect,
    stored: &Stored<'_>,
    label: &PartLabel,
    parts: &[PartLabel],
) -> Result<(), Failure> {
    let id = ordered(parts).position(|other| other == label).expect("it is one of them") + 1;
    let facts = part_facts(stored, label, id)?;
    if arguments.json {
        return say(&crate::json(&facts)?);
    }
    let mut text = String::new();
    write_part(&mut text, &facts, Palette::of_stdout());
    say(&text)
}

/// In the order of their ids.
fn ordered(parts: &[PartLabel]) -> impl Iterator<Item = &PartLabel> {
    of_kind(parts, PartKind::Block).chain(of_kind(parts, PartKind::OpenChannel))
}

fn part_facts(stored: &Stored<'_>, label: &PartLabel, id: usize) -> Result<PartFacts, Failure> {
    let mut flash = assembly::open_flash(stored, Access::Inspect)?;
    let report = flash.whole_chunk_report(Time::ZERO).map_err(Failure::failed)?;
    let mut chunks_by_state = BTreeMap::new();
    for chunk in report {
        *chunks_by_state.entry(format!("{:?}", chunk.state).to_lowercase()).or_default() += 1;
    }
    let (flash_bytes, wear) = (flash.geometry().blocks() * BLOCK_BYTES as u64, wear(&flash));
    drop(flash);
    let (drive, error) = match label.kind {
        PartKind::OpenChannel => (None, None),
        PartKind::Block => match assembly::open_to_look_at(stored, &mut VirtualClock::default()) {
            Ok(drive) => (Some(drive_facts(drive.block())), None),
            Err(failure) => (None, Some(failure.what().to_owned())),
        },
    };
    Ok(PartFacts {
        id,
        name: label.name.to_string(),
        kind: label.kind,
        groups: span(&label.partition.groups),
        parallel_units: span(&label.partition.pus),
        flash_bytes,
        chunks_by_state,
        wear,
        drive,
        error,
    })
}

fn drive_facts(drive: &Drive) -> DriveFacts {
    let superblock = drive.superblock();
    DriveFacts {
        capacity_bytes: superblock.capacity_blocks * BLOCK_BYTES as u64,
        over_provisioning: superblock.over_provisioning.as_f64(),
        mapped_blocks: drive.chunk_uses().map(|(_, _, valid)| u64::from(valid)).sum(),
        drive: format!("{:016x}", superblock.drive),
        clean: superblock.clean,
    }
}

fn table_facts(drive: &StoredDrive) -> Option<TableFacts> {
    let StoredDrive::Tables(drive, _) = drive else { return None };
    let (tables, blocks) = drive.committed();
    let (free, all) = drive.table_space();
    let chunks = drive.block().chunk_uses().filter(|(_, usage, _)| *usage == ChunkUse::Table).count() as u64;
    let bytes = |blocks: u64| blocks * BLOCK_BYTES as u64;
    Some(TableFacts { tables, blocks, chunks, free_bytes: bytes(free), all_bytes: bytes(all) })
}

fn wear(flash: &Flash) -> Wear {
    let wear = flash.wear();
    Wear {
        min: wear.iter().copied().min().unwrap_or(0),
        mean: wear.iter().map(|&resets| f64::from(resets)).sum::<f64>() / wear.len().max(1) as f64,
        max: wear.iter().copied().max().unwrap_or(0),
        endurance: flash.look(EmulatedDevice::endurance).expect("stored flash is emulated"),
    }
}

fn device_page(disk: &Path, facts: &DeviceFacts, palette: Palette) -> String {
    let mut text = String::new();
    let GeometryFacts { groups, pus_per_group, chunks_per_pu, blocks_per_chunk, .. } = facts.geometry;
    let name = palette.paint(Ink::Bold, &disk.display().to_string());
    _ = writeln!(text, "{name}  {} namespaces on {}", facts.namespaces.len(), facts.profile);
    _ = writeln!(
        text,
        "  {groups} groups × {pus_per_group} dies × {chunks_per_pu} chunks × {blocks_per_chunk} blocks of 4 KiB"
    );
    if facts.parallel_units_unused > 0 {
        let all = groups * pus_per_group;
        _ = writeln!(text, "  {} of {all} parallel units belong to no namespace", facts.parallel_units_unused);
    }
    for namespace in &facts.namespaces {
        text.push('\n');
        write_part(&mut text, namespace, palette);
    }
    if let Some(namespace) = facts.namespaces.first() {
        _ = writeln!(
            text,
            "\nOne of them in full\n  openftl inspect {} --namespace {}",
            disk.display(),
            namespace.name
        );
    }
    text
}

fn write_part(text: &mut String, facts: &PartFacts, palette: Palette) {
    let PartFacts { id, name, kind, groups, parallel_units, flash_bytes, chunks_by_state, wear, drive, error } = facts;
    _ = writeln!(text, "{id}  {}  {kind}", palette.paint(Ink::Bold, name));
    _ = writeln!(
        text,
        "   flash        {} on groups {groups}, parallel units {parallel_units}",
        ByteSize(*flash_bytes)
    );
    if let Some(drive) = drive {
        let state = if drive.clean { "closed cleanly" } else { "in use when last written" };
        _ = writeln!(
            text,
            "   drive        {} with {:.1}% over-provisioning, {} blocks written, {state}",
            ByteSize(drive.capacity_bytes),
            drive.over_provisioning * 100.0,
            thousands(drive.mapped_blocks)
        );
    }
    if let Some(error) = error {
        _ = writeln!(text, "   drive        {} {error}", palette.paint(Ink::Bad, "cannot be opened:"));
    }
    let states: Vec<String> =
        chunks_by_state.iter().map(|(name, count)| format!("{} {name}", thousands(*count))).collect();
    _ = writeln!(text, "   chunks       {}", states.join(", "));
    let Wear { min, mean, max, endurance } = wear;
    _ = writeln!(text, "   resets       {mean:.1} on average ({min} to {max}); they stand {endurance}");
}

/// What each chunk is used for, metadata told apart by what the superblock names.
pub fn cells(drive: &Drive) -> Vec<Cell> {
    let superblock = drive.superblock();
    let log: HashSet<u32> = superblock.log_chunks.iter().flatten().copied().collect();
    let checkpoint: HashSet<u32> = superblock.checkpoint.extents().map(|extent| extent.chunk).collect();
    let blocks = f64::from(assembly::geometry(drive).blocks_per_chunk);
    let mark = |chunk: ChunkId, usage| match usage {
        ChunkUse::Retired => Mark::Bad,
        ChunkUse::Free => Mark::Free,
        ChunkUse::Open => Mark::Open,
        ChunkUse::Closed => Mark::Data,
        ChunkUse::Table => Mark::Table,
        ChunkUse::Victim | ChunkUse::Resetting => Mark::Collected,
        ChunkUse::Metadata if log.contains(&chunk.0) => Mark::Log,
        ChunkUse::Metadata if checkpoint.contains(&chunk.0) => Mark::Checkpoint,
        ChunkUse::Metadata => Mark::Superblock,
    };
    drive
        .chunk_uses()
        .map(|(chunk, usage, valid)| Cell { chunk, mark: mark(chunk, usage), valid: f64::from(valid) / blocks })
        .collect()
}

fn facts(drive: &Drive, cells: &[Cell]) -> Facts {
    let geometry = assembly::geometry(drive);
    let format = geometry.format();
    let name = |chunk: ChunkId| format.name(chunk).to_string();
    let superblock = drive.superblock();
    let resets = drive.media().wear();
    let mut chunks_by_use = BTreeMap::new();
    for cell in cells {
        *chunks_by_use.entry(mark_name(cell.mark)).or_default() += 1;
    }
    let uses: Vec<_> = drive.chunk_uses().collect();
    Facts {
        profile: drive.media().name(),
        geometry: GeometryFacts::of(geometry),
        capacity_bytes: superblock.capacity_blocks * BLOCK_BYTES as u64,
        over_provisioning: superblock.over_provisioning.as_f64(),
        mapped_blocks: uses.iter().map(|(_, _, valid)| u64::from(*valid)).sum(),
        tables: None,
        plan: *drive.plan(),
        superblock: SuperblockFacts {
            sequence: superblock.sequence,
            drive: format!("{:016x}", superblock.drive),
            clean: superblock.clean,
        },
        checkpoint: CheckpointFacts {
            sequence: superblock.checkpoint.sequence,
            blocks: superblock.checkpoint.blocks,
            extents: superblock
                .checkpoint
                .extents()
                .map(|extent| format!("{}b{}+{}", name(ChunkId(extent.chunk)), extent.first, extent.blocks))
                .collect(),
        },
        log: LogFacts {
            first_lsn: superblock.first_lsn,
            chunks: superblock.log_chunks.iter().flatten().map(|&chunk| name(ChunkId(chunk))).collect(),
        },
        wear: wear(drive.media()),
        recovery: drive.recovery_report().clone(),
        chunks: cells
            .iter()
            .zip(&uses)
            .zip(&resets)
            .map(|((cell, (_, _, valid)), &resets)| ChunkFacts {
                chunk: name(cell.chunk),
                mark: cell.mark,
                valid_blocks: *valid,
                resets,
            })
            .collect(),
        chunks_by_use,
    }
}

fn mark_name(mark: Mark) -> String {
    format!("{mark:?}").to_lowercase()
}

fn page(name: &str, facts: &Facts, cells: &[Cell], drive: &Drive, palette: Palette) -> String {
    let mut text = String::new();
    let geometry = &facts.geometry;
    let title = |text: &mut String, title: &str| _ = writeln!(text, "\n{}", palette.paint(Ink::Bold, title));
    _ = writeln!(
        text,
        "{}  {} on {}, {:.1}% over-provisioning, drive {}",
        palette.paint(Ink::Bold, name),
        ByteSize(facts.capacity_bytes),
        facts.profile,
        facts.over_provisioning * 100.0,
        facts.superblock.drive
    );
    write_recovery(&mut text, &facts.recovery, palette);
    if !facts.recovery.clean {
        _ = writeln!(text, "  What follows is the recovered state; the file itself is as it was.");
    }

    title(&mut text, "Geometry");
    _ = writeln!(
        text,
        "  {} groups × {} dies × {} chunks × {} blocks of 4 KiB + {} B\n  WS_MIN {}, WS_OPT {}, MW_CUNITS {} blocks",
        geometry.groups,
        geometry.pus_per_group,
        geometry.chunks_per_pu,
        geometry.blocks_per_chunk,
        geometry.oob_bytes,
        geometry.ws_min,
        geometry.ws_opt,
        geometry.mw_cunits
    );

    title(&mut text, "Chunks");
    text.push_str(&chunk_map::draw(cells, assembly::geometry(drive), palette));
    let uses: Vec<String> =
        facts.chunks_by_use.iter().map(|(name, count)| format!("{} {name}", thousands(*count))).collect();
    _ = writeln!(text, "  {}", uses.join(", "));

    title(&mut text, "Data");
    let share = facts.mapped_blocks as f64 * BLOCK_BYTES as f64 / facts.capacity_bytes.max(1) as f64;
    _ = writeln!(
        text,
        "  {} {:.1}% of the capacity is written: {} blocks",
        palette.paint(Ink::Picture, &format!("[{}]", bar(share, 24))),
        share * 100.0,
        thousands(facts.mapped_blocks)
    );

    if let Some(TableFacts { tables, blocks, chunks, free_bytes, all_bytes }) = facts.tables {
        title(&mut text, "Tables");
        let share = blocks as f64 * BLOCK_BYTES as f64 / all_bytes.max(1) as f64;
        _ = writeln!(
            text,
            "  {} {:.1}% of what they may have: {} tables of {} blocks, in {} chunks; room for {} more, of {}",
            palette.paint(Ink::Picture, &format!("[{}]", bar(share, 24))),
            share * 100.0,
            thousands(tables),
            thousands(blocks),
            thousands(chunks),
            ByteSize(free_bytes),
            ByteSize(all_bytes)
        );
    }

    title(&mut text, "Metadata");
    let row = |text: &mut String, name: &str, value: String| _ = writeln!(text, "  {name:<12} {value}");
    let state = if facts.superblock.clean { "closed cleanly" } else { "in use when last written" };
    row(&mut text, "superblock", format!("number {}, {state}", facts.superblock.sequence));
    let checkpoint = &facts.checkpoint;
    let place = match checkpoint.blocks {
        0 => "none yet".to_owned(),
        blocks => format!(
            "number {}, {} blocks in {}",
            checkpoint.sequence,
            thousands(u64::from(blocks)),
            shortened(&checkpoint.extents)
        ),
    };
    row(&mut text, "checkpoint", place);
    row(&mut text, "log", format!("from LSN {} on, in {}", facts.log.first_lsn, shortened(&facts.log.chunks)));

    title(&mut text, "Wear");
    let Wear { min, mean, max, endurance } = facts.wear;
    let share = mean / f64::from(endurance.max(1));
    _ = writeln!(
        text,
        "  {} chunks were reset {mean:.1} times on average ({min} to {max}); they stand {endurance}",
        palette.paint(Ink::Picture, &format!("[{}]", bar(share, 24))),
    );
    text
}

/// The first few of a long list.
fn shortened(list: &[String]) -> String {
    match list.len() {
        0 => "no chunk".to_owned(),
        1..=6 => list.join(" "),
        all => format!("{} … ({all} in all)", list[..5].join(" ")),
    }
}
