//! `openftl inspect`: what a stored drive holds, without changing it.
//!
//! A drive that is being served belongs to its server. That one is asked over the control socket, and answers between two turns
//! of its loop with what it has in memory: no command goes to the device.
//!
//! ```text
//!   somebody listens at DISK.ctl? ── yes ─▶ the server: all but chunks, the page, [`CHUNKS_PER_ANSWER`] chunks ─▶ more chunks …
//!               │                              └ the power is off ─┐
//!               └───────────── no ─────────────────────────────────┴─▶ the file itself, opened to be looked at
//! ```

mod map;
mod tenant;

use crate::assembly::{self, Drive, ZonedDrive};
use crate::chunk_map::{self, Cell, Mark, cells};
use crate::cli;
use crate::ctl;
use crate::failure::Failure;
use crate::namespaces::{Stored, ordered};
use crate::profiles::GeometryFacts;
use crate::serve::write_recovery;
use crate::terminal::{Ink, Palette, say};
use map::MapFacts;
use openftl_blocks::Ftl;
use openftl_blocks::block_ftl::BlockFtl;
use openftl_control::{Answer, AskError, Client, Command, Refusal, RefusalKind, Request};
use openftl_core::units::ByteSize;
use openftl_core::{BLOCK_BYTES, ChunkId, Time, VirtualClock};
use openftl_lab::picture::{bar, thousands};
use openftl_media::partition::span;
use openftl_media::{EmulatedDevice, Media, MediaError, PartKind, PartLabel, Timing};
use openftl_parts::{Access, Plan, RecoveryReport};
use openftl_serving::flash::Flash;
use serde::Serialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::ops::Range;
use std::path::Path;
pub use tenant::TenantFacts;

/// Chunks in one answer of a server: it makes them in one turn, and keeps them until the client has read them.
pub const CHUNKS_PER_ANSWER: usize = 1024;

#[derive(Serialize)]
struct Facts {
    profile: String,
    geometry: GeometryFacts,
    capacity_bytes: u64,
    over_provisioning: f64,
    mapped_blocks: u64,
    /// Of a drive of tables or zones.
    #[serde(flatten)]
    tenant: Option<TenantFacts>,
    /// Of a drive whose map is on media.
    #[serde(skip_serializing_if = "Option::is_none")]
    map: Option<MapFacts>,
    plan: Plan,
    superblock: SuperblockFacts,
    checkpoint: CheckpointFacts,
    log: LogFacts,
    wear: Wear,
    /// How it was opened to be looked at; if it was not closed cleanly, it was recovered in memory alone.
    recovery: RecoveryReport,
    chunks_by_use: BTreeMap<String, u64>,
    /// Of a drive that is served they come by themselves.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    chunks: Vec<ChunkFacts>,
}

/// What the device below a drive knows of itself.
pub struct Below {
    profile: String,
    /// Of each chunk, in the order of the geometry's.
    resets: Vec<u32>,
    endurance: u32,
}

impl Below {
    /// Of some flash, if it is emulated in this process.
    pub fn of(flash: &Flash) -> Option<Below> {
        let endurance = flash.look(EmulatedDevice::endurance)?;
        Some(Below { profile: flash.name(), resets: flash.wear(), endurance })
    }

    /// Of a whole device.
    pub fn of_device(device: &EmulatedDevice) -> Below {
        let resets = device.wear().map(|(_, resets)| resets).collect();
        Below { profile: device.profile().name.clone(), resets, endurance: device.endurance() }
    }

    fn wear(&self) -> Wear {
        let resets = &self.resets;
        Wear {
            min: resets.iter().copied().min().unwrap_or(0),
            mean: resets.iter().map(|&resets| f64::from(resets)).sum::<f64>() / resets.len().max(1) as f64,
            max: resets.iter().copied().max().unwrap_or(0),
            endurance: self.endurance,
        }
    }
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
pub struct PartFacts {
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

impl Facts {
    /// The same of a drive with a tenant: hosts of zones or pages see those, and not what is kept beside them.
    fn with(self, tenant: Option<TenantFacts>) -> Facts {
        let capacity_bytes = tenant.as_ref().and_then(TenantFacts::capacity_bytes).unwrap_or(self.capacity_bytes);
        Facts { tenant, capacity_bytes, ..self }
    }
}

/// The drive of a namespace, in short.
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
    let socket = ctl::socket_of(disk);
    // Where nobody listens, or the socket is another user's, the file itself says more.
    if let Ok(client) = Client::connect(&socket)
        && inspect_served(client, arguments, &socket)?
    {
        return Ok(());
    }
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
    let zones = || drive.zones().map(|zones| TenantFacts::of_zones(zones));
    let pages = || drive.pages().map(|pages| TenantFacts::of_pages(pages));
    let values = || drive.values().map(|values| TenantFacts::of_values(values));
    let tenant = drive.tables().map(TenantFacts::of_tables).or_else(zones).or_else(pages).or_else(values);
    let below = Below::of(drive.block().media()).expect("stored flash is emulated");
    let facts = facts(drive.block(), &cells, &below, 0..cells.len()).with(tenant);
    if arguments.json {
        return say(&crate::json(&facts)?);
    }
    let palette = Palette::of_stdout();
    let mut text = header(&stored.to_string(), &facts, palette);
    write_recovery(&mut text, &facts.recovery, palette);
    if !facts.recovery.clean {
        _ = writeln!(text, "  What follows is the recovered state; the file itself is as it was.");
    }
    write_body(&mut text, &facts, &cells, drive.block(), palette);
    say(&text)
}

/// Asks the server of a drive. False if it has no power, so that the file is nobody's.
fn inspect_served(mut client: Client, arguments: &cli::Inspect, socket: &Path) -> Result<bool, Failure> {
    let disk = &arguments.disk;
    let palette = Palette::of_stdout();
    let namespace = arguments.namespace.as_ref().map(ToString::to_string);
    let mut ask = |first_chunk: usize| {
        let command = Command::Inspect { first_chunk: first_chunk as u64, colour: palette.has_colour() };
        client.ask(Request { command, namespace: namespace.clone() })
    };
    let Answer { message, mut facts } = match ask(0) {
        Ok(answer) => answer,
        Err(AskError::Refused(Refusal { kind: RefusalKind::NotNow, .. })) if disk.is_file() => return Ok(false),
        Err(error) => return Err(ctl::failure(&error)),
    };
    if !arguments.json {
        let name = palette.paint(
            Ink::Bold,
            &namespace
                .map_or_else(|| disk.display().to_string(), |name| format!("{}, namespace {name}", disk.display())),
        );
        say(&format!("{name}  {message}"))?;
        return Ok(true);
    }
    let malformed = || {
        Failure::failed("the answer of the server is not understood")
            .fix("use an openftl of the same version on both sides")
    };
    let Some(Value::Object(mut report)) = facts.remove("report") else { return Err(malformed()) };
    if let Some(total) = facts.get("chunks_total") {
        let total = total.as_u64().ok_or_else(malformed)? as usize;
        let page = |facts: &mut Map<String, Value>| match facts.remove("chunks") {
            Some(Value::Array(page)) if !page.is_empty() => Ok(page),
            _ => Err(malformed()),
        };
        let mut chunks = page(&mut facts)?;
        while chunks.len() < total {
            let mut more = ask(chunks.len()).map_err(|error| ctl::failure(&error))?;
            chunks.append(&mut page(&mut more.facts)?);
        }
        report.insert("chunks".to_owned(), chunks.into());
    }
    let process = facts.remove("process").unwrap_or_default();
    report
        .insert("served".to_owned(), serde_json::json!({ "process": process, "socket": socket.display().to_string() }));
    say(&crate::json(&report)?)?;
    Ok(true)
}

/// What the server of a drive answers: with the first chunk all there is to say and a page for people, with later ones those.
pub fn answer<M: Media>(
    drive: &BlockFtl<M>,
    below: &Below,
    tenant: Option<TenantFacts>,
    first_chunk: u64,
    palette: Palette,
) -> Answer {
    let cells = cells(drive);
    let first = usize::try_from(first_chunk).unwrap_or(usize::MAX).min(cells.len());
    let range = first..cells.len().min(first + CHUNKS_PER_ANSWER);
    let mut facts = facts(drive, &cells, below, range).with(tenant);
    let chunks = std::mem::take(&mut facts.chunks);
    if first > 0 {
        return Answer::new("").with("chunks", chunks);
    }
    let mut text = header("", &facts, palette);
    write_served(&mut text);
    if !facts.recovery.steps.is_empty() {
        write_recovery(&mut text, &facts.recovery, palette);
    }
    write_body(&mut text, &facts, &cells, drive, palette);
    let process = std::process::id();
    Answer::new(text)
        .with("report", facts)
        .with("process", process)
        .with("chunks_total", cells.len())
        .with("chunks", chunks)
}

/// The same of a namespace that is no drive of ours, or of all that a device is divided into.
pub fn answer_of_parts(
    device: Option<(String, GeometryFacts, u32)>,
    mut parts: Vec<PartFacts>,
    palette: Palette,
) -> Answer {
    let process = std::process::id();
    let mut text = String::new();
    let Some((profile, geometry, parallel_units_unused)) = device else {
        let part = parts.pop().expect("one namespace is asked for");
        write_served(&mut text);
        write_part(&mut text, &part, palette);
        return Answer::new(text).with("report", part).with("process", process);
    };
    let facts = DeviceFacts { profile, geometry, namespaces: parts, parallel_units_unused };
    _ = writeln!(text, "{} namespaces on {}", facts.namespaces.len(), facts.profile);
    write_served(&mut text);
    write_device(&mut text, &facts, palette);
    Answer::new(text).with("report", facts).with("process", process)
}

fn write_served(text: &mut String) {
    _ = writeln!(text, "  served by process {}; this is its state at one moment", std::process::id());
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

fn part_facts(stored: &Stored<'_>, label: &PartLabel, id: usize) -> Result<PartFacts, Failure> {
    let mut flash = assembly::open_flash(stored, Access::Inspect)?;
    let facts = part_of(&mut flash, label, id).map_err(Failure::failed)?;
    drop(flash);
    let (drive, error) = match label.kind {
        PartKind::OpenChannel => (None, None),
        PartKind::Block | PartKind::Zoned => match assembly::open_to_look_at(stored, &mut VirtualClock::default()) {
            Ok(drive) => (Some(drive.zones().map_or_else(|| drive_facts(drive.block()), zones_facts)), None),
            Err(failure) => (None, Some(failure.what().to_owned())),
        },
    };
    Ok(PartFacts { drive, error, ..facts })
}

/// The flash of a namespace, and nothing of a drive on it.
pub fn part_of(flash: &mut Flash, label: &PartLabel, id: usize) -> Result<PartFacts, MediaError> {
    // Time does not go on for whoever looks.
    let report = flash.whole_chunk_report(Time::ZERO)?;
    let mut chunks_by_state = BTreeMap::new();
    for chunk in report {
        *chunks_by_state.entry(format!("{:?}", chunk.state).to_lowercase()).or_default() += 1;
    }
    let flash_bytes = flash.geometry().blocks() * BLOCK_BYTES as u64;
    let wear = Below::of(flash).expect("what is divided is emulated").wear();
    Ok(PartFacts {
        id,
        name: label.name.to_string(),
        kind: label.kind,
        groups: span(&label.partition.groups),
        parallel_units: span(&label.partition.pus),
        flash_bytes,
        chunks_by_state,
        wear,
        drive: None,
        error: None,
    })
}

/// A namespace of a drive that is open, for its server.
pub fn served_part(drive: &mut Drive, label: &PartLabel, id: usize) -> Result<PartFacts, MediaError> {
    let facts = Some(drive_facts(drive));
    Ok(PartFacts { drive: facts, ..part_of(drive.media_mut(), label, id)? })
}

/// The same of a zoned namespace.
pub fn served_zones(drive: &mut ZonedDrive, label: &PartLabel, id: usize) -> Result<PartFacts, MediaError> {
    let facts = Some(zones_facts(drive));
    Ok(PartFacts { drive: facts, ..part_of(drive.media_mut(), label, id)? })
}

fn zones_facts(drive: &ZonedDrive) -> DriveFacts {
    let layout = drive.layout();
    let capacity_bytes = u64::from(layout.zones) * u64::from(layout.capacity) * BLOCK_BYTES as u64;
    DriveFacts { capacity_bytes, ..drive_facts(drive.block()) }
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

fn device_page(disk: &Path, facts: &DeviceFacts, palette: Palette) -> String {
    let mut text = String::new();
    let name = palette.paint(Ink::Bold, &disk.display().to_string());
    _ = writeln!(text, "{name}  {} namespaces on {}", facts.namespaces.len(), facts.profile);
    write_device(&mut text, facts, palette);
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

fn write_device(text: &mut String, facts: &DeviceFacts, palette: Palette) {
    let GeometryFacts { groups, pus_per_group, chunks_per_pu, blocks_per_chunk, .. } = facts.geometry;
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
        write_part(text, namespace, palette);
    }
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

/// All of a drive, and of its chunks those in `range`.
fn facts<M: Media>(drive: &BlockFtl<M>, cells: &[Cell], below: &Below, range: Range<usize>) -> Facts {
    let geometry = drive.media().geometry();
    let format = geometry.format();
    let name = |chunk: ChunkId| format.name(chunk).to_string();
    let superblock = drive.superblock();
    let mut chunks_by_use = BTreeMap::new();
    for cell in cells {
        *chunks_by_use.entry(mark_name(cell.mark)).or_default() += 1;
    }
    let uses: Vec<_> = drive.chunk_uses().collect();
    Facts {
        profile: below.profile.clone(),
        geometry: GeometryFacts::of(geometry),
        capacity_bytes: superblock.capacity_blocks * BLOCK_BYTES as u64,
        over_provisioning: superblock.over_provisioning.as_f64(),
        mapped_blocks: uses.iter().map(|(_, _, valid)| u64::from(*valid)).sum(),
        tenant: None,
        map: MapFacts::of(drive),
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
        wear: below.wear(),
        recovery: drive.recovery_report().clone(),
        chunks: cells[range.clone()]
            .iter()
            .zip(&uses[range.clone()])
            .zip(&below.resets[range])
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

/// What drive it is; without a name, whoever asks knows it.
fn header(name: &str, facts: &Facts, palette: Palette) -> String {
    let name = if name.is_empty() { String::new() } else { format!("{}  ", palette.paint(Ink::Bold, name)) };
    if let Some(noun) = facts.tenant.as_ref().and_then(TenantFacts::noun) {
        let capacity = ByteSize(facts.capacity_bytes);
        return format!("{name}{capacity} in {noun} on {}, drive {}\n", facts.profile, facts.superblock.drive);
    }
    format!(
        "{name}{} on {}, {:.1}% over-provisioning, drive {}\n",
        ByteSize(facts.capacity_bytes),
        facts.profile,
        facts.over_provisioning * 100.0,
        facts.superblock.drive
    )
}

fn write_body<M: Media>(text: &mut String, facts: &Facts, cells: &[Cell], drive: &BlockFtl<M>, palette: Palette) {
    let geometry = &facts.geometry;
    let title = |text: &mut String, title: &str| _ = writeln!(text, "\n{}", palette.paint(Ink::Bold, title));
    title(text, "Geometry");
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

    title(text, "Chunks");
    text.push_str(&chunk_map::draw(cells, drive.media().geometry(), palette));
    let uses: Vec<String> =
        facts.chunks_by_use.iter().map(|(name, count)| format!("{} {name}", thousands(*count))).collect();
    _ = writeln!(text, "  {}", uses.join(", "));

    title(text, &facts.tenant.as_ref().map_or("Data".to_owned(), TenantFacts::title_of_blocks));
    let share = facts.mapped_blocks as f64 / drive.superblock().capacity_blocks.max(1) as f64;
    _ = writeln!(
        text,
        "  {} {:.1}% of the capacity is written: {} blocks",
        palette.paint(Ink::Picture, &format!("[{}]", bar(share, 24))),
        share * 100.0,
        thousands(facts.mapped_blocks)
    );

    if let Some(tenant) = &facts.tenant {
        title(text, tenant.title());
        tenant.write(text, palette);
    }

    if let Some(map) = &facts.map {
        title(text, "Map");
        map.write(text);
    }

    title(text, "Metadata");
    let row = |text: &mut String, name: &str, value: String| _ = writeln!(text, "  {name:<12} {value}");
    let state = if facts.superblock.clean { "closed cleanly" } else { "in use when last written" };
    row(text, "superblock", format!("number {}, {state}", facts.superblock.sequence));
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
    row(text, "checkpoint", place);
    row(text, "log", format!("from LSN {} on, in {}", facts.log.first_lsn, shortened(&facts.log.chunks)));

    title(text, "Wear");
    let Wear { min, mean, max, endurance } = facts.wear;
    let share = mean / f64::from(endurance.max(1));
    _ = writeln!(
        text,
        "  {} chunks were reset {mean:.1} times on average ({min} to {max}); they stand {endurance}",
        palette.paint(Ink::Picture, &format!("[{}]", bar(share, 24))),
    );
}

/// The first few of a long list.
fn shortened(list: &[String]) -> String {
    match list.len() {
        0 => "no chunk".to_owned(),
        1..=6 => list.join(" "),
        all => format!("{} … ({all} in all)", list[..5].join(" ")),
    }
}
