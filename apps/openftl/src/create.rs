//! `openftl create`: a drive that lives in a file.

use crate::assembly;
use crate::cli;
use crate::failure::Failure;
use crate::settings::{OnIt, Settings};
use crate::terminal::{Ink, Palette, say};
use crate::waiting::Waiting;
use crate::zones_made::ZonesMade;
use openftl_core::units::ByteSize;
use openftl_core::{BLOCK_BYTES, Geometry, VirtualClock};
use openftl_drive::description::{DriveDescription, FtlKind, another_seed};
use openftl_drive::new_file::{self, Existing};
use openftl_drive::page_drive::PageDrive;
use openftl_drive::plugin;
use openftl_drive::table_drive::TableDrive;
use openftl_drive::value_drive::ValueDrive;
use openftl_media::partition::span;
use openftl_media::{DeviceError, EmulatedDevice, Media, PartKind, StoreError, Timing};
use openftl_parts::Access;
use openftl_values::ValueInfo;
use serde::Serialize;
use std::fmt::Write;
use std::path::Path;

/// What the host sees unless the command says otherwise.
const CAPACITY_DEFAULT: ByteSize = ByteSize(8 << 30);

#[derive(Serialize)]
struct Made<'a> {
    disk: &'a Path,
    profile: &'a str,
    /// What hosts see, of all namespaces together.
    capacity_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    over_provisioning: Option<f64>,
    /// About what garbage collection will find when the drive is full.
    #[serde(skip_serializing_if = "Option::is_none")]
    likely_over_provisioning: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    zones: Option<ZonesMade>,
    flash_bytes: u64,
    chunks_per_pu: u32,
    seed: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    namespaces: Vec<MadeNamespace>,
    /// Parallel units that no namespace has.
    #[serde(skip_serializing_if = "Option::is_none")]
    parallel_units_unused: Option<u32>,
}

#[derive(Serialize)]
struct MadeNamespace {
    name: String,
    kind: PartKind,
    groups: String,
    parallel_units: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    capacity_bytes: Option<u64>,
    flash_bytes: u64,
}

pub fn run(arguments: &cli::Create) -> Result<(), Failure> {
    let disk = &arguments.disk;
    if let Some(drive) = table_drive(&arguments.flags)? {
        return make_table_drive(&drive, arguments);
    }
    if let Some(drive) = page_drive(&arguments.flags)? {
        return make_page_drive(&drive, arguments);
    }
    if let Some(drive) = value_drive(&arguments.flags)? {
        return make_value_drive(&drive, arguments);
    }
    let settings = Settings::gather_any(&arguments.flags, CAPACITY_DEFAULT)?;
    if disk.exists() && !arguments.force {
        return Err(Failure::bad_input(format_args!("{} exists already", disk.display()))
            .fix("choose another name, or add --force to replace it"));
    }
    if disk.is_dir() {
        return Err(Failure::bad_input(format_args!("{} is a folder", disk.display())).fix("name a file in it"));
    }
    let seed = arguments.seed.unwrap_or_else(another_seed);
    let existing = if disk.exists() { Existing::Replace } else { Existing::Keep };
    if existing == Existing::Replace {
        expect_unused(disk)?;
    }
    let geometry = shown(disk, || make_file(&settings, disk, existing, seed))?;
    let made = made(&settings, disk, &geometry, seed);
    if arguments.json {
        return say(&crate::json(&made)?);
    }
    let palette = Palette::of_stdout();
    let mut text = format!(
        "{} {}: {} for the host, on {} of {} flash ({} dies in {} groups, {} chunks on each)\n",
        palette.paint(Ink::Good, "✓"),
        disk.display(),
        ByteSize(made.capacity_bytes),
        ByteSize(made.flash_bytes),
        made.profile,
        geometry.pus(),
        geometry.groups,
        geometry.chunks_per_pu,
    );
    if let Some(zones) = &made.zones {
        _ = writeln!(text, "  {}", zones.line());
    }
    for namespace in &made.namespaces {
        let MadeNamespace { name, kind, groups, parallel_units, flash_bytes, .. } = namespace;
        let capacity = namespace.capacity_bytes.map_or(String::new(), |bytes| format!("{} on ", ByteSize(bytes)));
        _ = writeln!(
            text,
            "  {name:<16} {kind:<12}  {capacity}{} of flash: groups {groups}, parallel units {parallel_units}",
            ByteSize(*flash_bytes)
        );
    }
    if let Some(unused @ 1..) = made.parallel_units_unused {
        _ = writeln!(text, "  {unused} of {} parallel units belong to no namespace and are left alone", geometry.pus());
    }
    if let Some(note) = made.likely_over_provisioning.and_then(|likely| settings.drive.note_on(likely)) {
        _ = writeln!(text, "  {} {note}", palette.paint(Ink::Bad, "!"));
    }
    let kinds: Vec<PartKind> = made.namespaces.iter().map(|namespace| namespace.kind).collect();
    let has_blocks = made.zones.is_none() && (kinds.is_empty() || kinds.contains(&PartKind::Block));
    let nbd = if has_blocks { " --nbd unix:/tmp/openftl.sock" } else { "" };
    let is_for_nvme = made.zones.is_some() || kinds.iter().any(|kind| *kind != PartKind::Block);
    let nvme = if is_for_nvme { " --nvme-tcp 127.0.0.1:4420" } else { "" };
    _ = writeln!(text, "\nNext\n  openftl serve {}{nbd}{nvme}", disk.display());
    if let Some(ZonesMade::Segments { .. }) = made.zones {
        _ = writeln!(text, "  openftl alfs mkfs {}", disk.display());
    }
    say(&text)
}

/// Makes something of this name, and says so while it takes long.
fn shown<T>(disk: &Path, make: impl FnOnce() -> T) -> T {
    let name = disk.to_owned();
    let so_far = move || format!("{} written", ByteSize(new_file::bytes_made(&name) >> 20 << 20));
    let _waiting = Waiting::new(format!("making {}", disk.display()), so_far);
    make()
}

/// The table drive that the drive description describes, if it does.
fn table_drive(flags: &cli::DriveFlags) -> Result<Option<TableDrive>, Failure> {
    let Some((path, file)) = description_of(FtlKind::Tables, flags)? else { return Ok(None) };
    let drive = TableDrive::of(&file).map_err(|error| Failure::bad_input(error.of(&path.display().to_string())))?;
    Ok(Some(drive))
}

/// The drive description, if it is of this kind of drive.
fn description_of(kind: FtlKind, flags: &cli::DriveFlags) -> Result<Option<(&Path, DriveDescription)>, Failure> {
    let Some(path) = &flags.drive else { return Ok(None) };
    let file = DriveDescription::read(path)?;
    Ok((file.ftl.kind == Some(kind)).then_some((path.as_path(), file)))
}

/// The store of pages that the drive description describes, if it does.
fn page_drive(flags: &cli::DriveFlags) -> Result<Option<PageDrive>, Failure> {
    let Some((path, file)) = description_of(FtlKind::Pages, flags)? else { return Ok(None) };
    PageDrive::of(&file).map(Some).map_err(|failure| failure.about(path.display()))
}

/// The key-value drive that the drive description describes, if it does.
fn value_drive(flags: &cli::DriveFlags) -> Result<Option<ValueDrive>, Failure> {
    let Some((path, file)) = description_of(FtlKind::Values, flags)? else { return Ok(None) };
    ValueDrive::of(&file).map(Some).map_err(|failure| failure.about(path.display()))
}

#[derive(Serialize)]
struct MadeValueDrive<'a> {
    disk: &'a Path,
    /// What values can take, with what stands before and behind each.
    capacity_bytes: u64,
    keys_max: u64,
    key_max: u8,
    value_max: u32,
    durable_stores: bool,
    flash_bytes: u64,
}

#[derive(Serialize)]
struct MadePageDrive<'a> {
    disk: &'a Path,
    /// What pages can hold, with their headers.
    capacity_bytes: u64,
    flash_bytes: u64,
}

/// Whether `disk` may be made: it is what the description names, and nothing is lost that is not to be.
fn expect_makeable(named: Option<&Path>, arguments: &cli::Create, noun: &str) -> Result<Existing, Failure> {
    let disk = &arguments.disk;
    if let Some(named) = named.filter(|named| named != disk) {
        let (named, disk) = (named.display(), disk.display());
        return Err(Failure::bad_input(format_args!(
            "the drive description keeps its flash in {named}, and not in {disk}"
        ))
        .fix(format_args!("openftl create {named} --drive …")));
    }
    let cli::DriveFlags { capacity, over_provisioning, profile, durability, .. } = &arguments.flags;
    if capacity.is_some() || over_provisioning.is_some() || profile.is_some() || durability.is_some() {
        return Err(Failure::bad_input(
            "--capacity, --over-provisioning, --profile and --durability are for block drives",
        )
        .fix(format_args!("leave them away; the drive description says what {noun} is")));
    }
    if !disk.exists() {
        return Ok(Existing::Keep);
    }
    if !arguments.force {
        return Err(Failure::bad_input(format_args!("{} exists already", disk.display()))
            .fix("choose another name, or add --force to replace it"));
    }
    expect_unused(disk)?;
    Ok(Existing::Replace)
}

fn make_page_drive(drive: &PageDrive, arguments: &cli::Create) -> Result<(), Failure> {
    let disk = &arguments.disk;
    let existing = expect_makeable(None, arguments, "a store of pages")?;
    let capacity = shown(disk, || drive.make(disk, existing, arguments.seed))?;
    let geometry = drive.geometry()?;
    let flash_bytes = geometry.bytes();
    if arguments.json {
        return say(&crate::json(&MadePageDrive { disk, capacity_bytes: capacity.0, flash_bytes })?);
    }
    let sign = Palette::of_stdout().paint(Ink::Good, "✓");
    say(&format!(
        "{sign} {}: {capacity} for pages and their headers, on {} of {} flash ({} dies in {} groups, {} chunks on each)\n\n\
         Next\n  echo hello | openftl pages put --drive {0} 7\n",
        disk.display(),
        ByteSize(flash_bytes),
        drive.profile(),
        geometry.pus(),
        geometry.groups,
        geometry.chunks_per_pu,
    ))
}

fn make_value_drive(drive: &ValueDrive, arguments: &cli::Create) -> Result<(), Failure> {
    let disk = &arguments.disk;
    let existing = expect_makeable(None, arguments, "a key-value drive")?;
    let made = shown(disk, || drive.make(disk, existing, arguments.seed))?;
    let geometry = drive.geometry()?;
    let flash_bytes = geometry.bytes();
    let ValueInfo { capacity_bytes, keys_max, key_max, value_max, durable_stores, .. } = made;
    if arguments.json {
        let made = MadeValueDrive { disk, capacity_bytes, keys_max, key_max, value_max, durable_stores, flash_bytes };
        return say(&crate::json(&made)?);
    }
    let sign = Palette::of_stdout().paint(Ink::Good, "✓");
    say(&format!(
        "{sign} {}: {} for values and what stands beside each, {keys_max} keys of up to {key_max} bytes, on {} of {} flash ({} dies in \
         {} groups, {} chunks on each)\n\nNext\n  echo world | openftl kv put --drive {0} hello\n",
        disk.display(),
        ByteSize(capacity_bytes),
        ByteSize(flash_bytes),
        drive.profile(),
        geometry.pus(),
        geometry.groups,
        geometry.chunks_per_pu,
    ))
}

#[derive(Serialize)]
struct MadeTableDrive<'a> {
    disk: &'a Path,
    /// What tables can hold.
    capacity_bytes: u64,
    log_area_bytes: u64,
    flash_bytes: u64,
}

fn make_table_drive(drive: &TableDrive, arguments: &cli::Create) -> Result<(), Failure> {
    let disk = &arguments.disk;
    let failed = Failure::from;
    let existing = expect_makeable(drive.disk(), arguments, "a table drive")?;
    shown(disk, || match existing {
        Existing::Replace => drive.replace(disk, arguments.seed).map_err(failed),
        Existing::Keep => drive.create(disk, arguments.seed).map_err(failed),
    })?;
    let geometry = drive.geometry().map_err(failed)?;
    let flash_bytes = geometry.bytes();
    let (capacity, log_area) = (drive.capacity(), drive.log_area());
    if arguments.json {
        let (capacity_bytes, log_area_bytes) = (capacity.0, log_area.0);
        return say(&crate::json(&MadeTableDrive { disk, capacity_bytes, log_area_bytes, flash_bytes })?);
    }
    let sign = Palette::of_stdout().paint(Ink::Good, "✓");
    let file = arguments.flags.drive.as_deref().unwrap_or(disk).display();
    let (load, note) = plugin::loading("db_bench");
    let note = note.map_or(String::new(), |note| format!("  # {note}\n"));
    say(&format!(
        "{sign} {}: {capacity} for tables and {log_area} for logs, on {} of flash ({} dies in {} groups, {} chunks on each)\n\n\
         Next\n{note}  {load} --fs_uri=openftl://{file} --db=/db\n",
        disk.display(),
        ByteSize(flash_bytes),
        geometry.pus(),
        geometry.groups,
        geometry.chunks_per_pu,
    ))
}

fn made<'a>(settings: &'a Settings, disk: &'a Path, geometry: &Geometry, seed: u64) -> Made<'a> {
    let flash_bytes = |geometry: &Geometry| geometry.blocks() * BLOCK_BYTES as u64;
    let namespaces: Vec<MadeNamespace> = settings
        .namespaces
        .iter()
        .map(|namespace| MadeNamespace {
            name: namespace.name.to_string(),
            kind: namespace.kind(),
            groups: span(&namespace.partition.groups),
            parallel_units: span(&namespace.partition.pus),
            capacity_bytes: match &namespace.on_it {
                OnIt::Block(settings) => Some(settings.capacity.0),
                OnIt::Zoned(zones) => Some(zones.capacity_on(&namespace.partition.shape(geometry))),
                OnIt::OpenChannel(_) => None,
            },
            flash_bytes: flash_bytes(&namespace.partition.shape(geometry)),
        })
        .collect();
    let is_divided = !namespaces.is_empty();
    let is_blocks = !is_divided && settings.zones.is_none();
    let used: u32 = settings.namespaces.iter().map(|namespace| namespace.partition.shape(geometry).pus()).sum();
    Made {
        disk,
        profile: &settings.profile.name,
        capacity_bytes: match is_divided {
            true => namespaces.iter().filter_map(|namespace| namespace.capacity_bytes).sum(),
            false => settings.zones.as_ref().map_or(settings.drive.capacity.0, |zones| zones.capacity_on(geometry)),
        },
        over_provisioning: is_blocks.then(|| settings.drive.over_provisioning.as_f64()),
        likely_over_provisioning: is_blocks.then(|| settings.drive.likely_over_provisioning(geometry)).flatten(),
        zones: settings.zones.as_ref().map(|zones| ZonesMade::of(zones, geometry)),
        flash_bytes: flash_bytes(geometry),
        chunks_per_pu: geometry.chunks_per_pu,
        seed,
        namespaces,
        parallel_units_unused: is_divided.then(|| geometry.pus() - used),
    }
}

/// Makes what the settings say at `path`, which must not exist. A failure leaves nothing behind.
pub fn make(settings: &Settings, path: &Path, seed: u64) -> Result<Geometry, Failure> {
    shown(path, || make_file(settings, path, Existing::Keep, seed))
}

fn make_file(settings: &Settings, path: &Path, existing: Existing, seed: u64) -> Result<Geometry, Failure> {
    new_file::make(path, existing, |temporary| {
        let mut clock = VirtualClock::default();
        let namespaces = assembly::create_file(settings, temporary, seed, &mut clock)?;
        namespaces.close(&mut clock).map_err(|failure| {
            Failure::failed(format_args!("cannot create {}: {}", path.display(), failure.what()))
                .fix("make room in its folder, or name another one; nothing is left there")
        })?;
        Ok(*assembly::open_device(temporary, Timing::Instant, Access::Inspect)?.geometry())
    })
}

/// Refuses to replace a drive that is in use.
fn expect_unused(disk: &Path) -> Result<(), Failure> {
    match EmulatedDevice::open_to_look_at(disk, Timing::Instant) {
        Err(DeviceError::Store(error @ StoreError::Locked { .. })) => Err(Failure::failed(error)),
        _ => Ok(()),
    }
}
