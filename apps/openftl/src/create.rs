//! `openftl create`: a drive that lives in a file.

use crate::assembly;
use crate::cli;
use crate::failure::Failure;
use crate::settings::Settings;
use crate::terminal::{Ink, Palette, say};
use openftl_core::units::ByteSize;
use openftl_core::{BLOCK_BYTES, FrameForm, Geometry, VirtualClock};
use openftl_media::{DeviceError, EmulatedDevice, StoreError, Timing};
use serde::Serialize;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// What the host sees unless the command says otherwise.
const CAPACITY_DEFAULT: ByteSize = ByteSize(8 << 30);

#[derive(Serialize)]
struct Made<'a> {
    disk: &'a Path,
    profile: &'a str,
    capacity_bytes: u64,
    over_provisioning: f64,
    flash_bytes: u64,
    chunks_per_pu: u32,
    seed: u64,
}

pub fn run(arguments: &cli::Create) -> Result<(), Failure> {
    let settings = Settings::gather(&arguments.flags, CAPACITY_DEFAULT)?;
    let disk = &arguments.disk;
    if disk.exists() && !arguments.force {
        return Err(Failure::bad_input(format_args!("{} exists already", disk.display()))
            .fix("choose another name, or add --force to replace it"));
    }
    if disk.is_dir() {
        return Err(Failure::bad_input(format_args!("{} is a folder", disk.display())).fix("name a file in it"));
    }
    let seed = arguments.seed.unwrap_or_else(another_seed);
    let geometry = if disk.exists() { replace(&settings, disk, seed)? } else { make(&settings, disk, seed)? };
    let flash_bytes = geometry.chunks() * u64::from(geometry.blocks_per_chunk) * BLOCK_BYTES as u64;
    let made = Made {
        disk,
        profile: &settings.profile.name,
        capacity_bytes: settings.capacity.0,
        over_provisioning: settings.over_provisioning.as_f64(),
        flash_bytes,
        chunks_per_pu: geometry.chunks_per_pu,
        seed,
    };
    if arguments.json {
        return say(&crate::json(&made)?);
    }
    let palette = Palette::of_stdout();
    say(&format!(
        "{} {}: {} for the host, on {} of {} flash ({} dies in {} groups, {} chunks on each)\n\nNext\n  openftl serve {} --nbd unix:/tmp/openftl.sock\n",
        palette.paint(Ink::Good, "✓"),
        disk.display(),
        settings.capacity,
        ByteSize(flash_bytes),
        made.profile,
        geometry.pus(),
        geometry.groups,
        geometry.chunks_per_pu,
        disk.display(),
    ))
}

/// Makes a drive at `path`, which must not exist. What is left of a failure is removed.
pub fn make(settings: &Settings, path: &Path, seed: u64) -> Result<Geometry, Failure> {
    let config = settings.config(FrameForm::Bytes, another_seed());
    let mut clock = VirtualClock::default();
    let existed = path.exists();
    let made = assembly::create_file(settings, config, path, seed, &mut clock).and_then(|drive| {
        let geometry = *assembly::geometry(&drive);
        assembly::close(drive, &mut clock).map(|_| geometry)
    });
    if made.is_err() && !existed {
        // It may not have come to a file at all.
        let _ = std::fs::remove_file(path);
    }
    made
}

/// Makes a drive beside the one at `disk` and puts it in its place once it is whole.
fn replace(settings: &Settings, disk: &Path, seed: u64) -> Result<Geometry, Failure> {
    if let Err(DeviceError::Store(error @ StoreError::Locked { .. })) = EmulatedDevice::open(disk, Timing::Instant) {
        return Err(Failure::failed(error));
    }
    let name = disk.file_name().unwrap_or_default().to_string_lossy();
    let beside = disk.with_file_name(format!(".{name}.{}", std::process::id()));
    let geometry = make(settings, &beside, seed)?;
    std::fs::rename(&beside, disk).map_err(|error| {
        let _ = std::fs::remove_file(&beside);
        Failure::failed(format_args!("cannot replace {}: {error}", disk.display()))
    })?;
    Ok(geometry)
}

/// Another one each time.
pub fn another_seed() -> u64 {
    let nanos = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
    // Two drives made in the same nanosecond are made by two processes.
    nanos ^ u64::from(std::process::id()).rotate_left(48)
}
