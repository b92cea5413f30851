//! Puts a drive together: device, store and FTL. What each of them says when it cannot is made a report for people here.

use crate::cli::{DriveFlags, Store};
use crate::failure::Failure;
use crate::flash::Flash;
use crate::settings::{Settings, check_memory};
use openftl_core::units::{ByteSize, Share};
use openftl_core::{BLOCK_BYTES, Clock, FrameForm, Geometry, Nanos};
use openftl_ftl::{Access, BlockFtl, Config, OpenError, RecoveryReport};
use openftl_media::{DeviceError, EmulatedDevice, Media, Store as MediaStore, StoreError, Timing};
use openftl_nvme_media::{FabricDevice, Place, Waiting};
use std::path::Path;

/// The drive that every command deals with.
pub type Drive = BlockFtl<Flash>;

/// Makes a new drive in memory.
pub fn new_in_memory(
    settings: &Settings,
    config: Config,
    store: Store,
    timing: Timing,
    seed: u64,
    clock: &mut impl Clock,
) -> Result<Drive, Failure> {
    let chunks_per_pu = settings.chunks_per_pu(&config)?;
    let flash_blocks = config.capacity_blocks + config.over_provisioning.of(config.capacity_blocks);
    let (store, block_bytes, advice) = match store {
        Store::Ram => {
            (MediaStore::Ram, BLOCK_BYTES as u64 + 32, "choose a smaller --capacity, or (for bench) --store stamps")
        }
        Store::Stamps => (MediaStore::Stamps, 8 + 32, "choose a smaller --capacity"),
    };
    check_memory(flash_blocks * block_bytes, advice)?;
    let device = EmulatedDevice::new(settings.profile.clone(), chunks_per_pu, store, timing, seed)
        .map_err(|error| device_failure(&error))?;
    BlockFtl::format(device.into(), config, clock)
        .map_err(|error| Failure::failed(error).fix("ask for less capacity, or another profile"))
}

/// Makes a new drive in a file, which may not exist yet.
pub fn create_file(
    settings: &Settings,
    config: Config,
    path: &Path,
    seed: u64,
    clock: &mut impl Clock,
) -> Result<Drive, Failure> {
    let chunks_per_pu = settings.chunks_per_pu(&config)?;
    let device = EmulatedDevice::create(path, &settings.profile, chunks_per_pu, Timing::Instant, seed)
        .map_err(|error| device_failure(&error))?;
    BlockFtl::format(device.into(), config, clock)
        .map_err(|error| Failure::failed(error).fix("ask for less capacity, or another profile"))
}

/// What may differ each time a drive is opened, and what is expected of it.
#[derive(Clone, Debug)]
pub struct Reopen {
    config: Config,
    profile: Option<String>,
    capacity: Option<ByteSize>,
    over_provisioning: Option<Share>,
}

impl Reopen {
    /// As the settings say. What flags name must be what the drive has.
    pub fn of(settings: &Settings, flags: &DriveFlags, host_frames: u32) -> Reopen {
        let config = Config { host_frames, ..settings.config(FrameForm::Bytes, 0) };
        Reopen {
            config,
            profile: flags.profile.as_ref().map(|_| settings.profile.name.clone()),
            capacity: flags.capacity,
            over_provisioning: flags.over_provisioning,
        }
    }
}

/// Opens the device in a file.
pub fn open_device(path: &Path, timing: Timing) -> Result<EmulatedDevice, Failure> {
    if !path.exists() {
        return Err(Failure::bad_input(format_args!("{}: no such file", path.display()))
            .fix(format_args!("make it first: openftl create {} --capacity 8GiB", path.display())));
    }
    EmulatedDevice::open(path, timing).map_err(|error| device_failure(&error))
}

/// Opens a drive that is kept in a file.
pub fn open_file(path: &Path, timing: Timing, reopen: &Reopen, clock: &mut impl Clock) -> Result<Drive, Failure> {
    let device = open_device(path, timing)?;
    if let Some(asked) = &reopen.profile
        && *asked != device.profile().name
    {
        return Err(Failure::bad_input(format_args!(
            "{} holds another profile: found {}, asked for {asked}",
            path.display(),
            device.profile().name
        ))
        .fix("leave --profile away, or create another drive"));
    }
    let drive = open(device, reopen.config.clone(), path, clock)?;
    // Both were fixed when the drive was created.
    let capacity = ByteSize(drive.plan().capacity_blocks * BLOCK_BYTES as u64);
    let over_provisioning = drive.config().over_provisioning;
    for (field, found, asked) in [
        ("capacity", capacity.to_string(), reopen.capacity.map(|asked| asked.to_string())),
        ("over-provisioning", over_provisioning.to_string(), reopen.over_provisioning.map(|asked| asked.to_string())),
    ] {
        if let Some(asked) = asked.filter(|asked| *asked != found) {
            return Err(Failure::bad_input(format_args!("{} has {field} {found}, asked for {asked}", path.display()))
                .fix(format_args!("leave --{field} away, or create another drive")));
        }
    }
    Ok(drive)
}

/// Opens a drive on a device of another machine, or makes one there.
pub fn open_elsewhere(place: &Place, config: Config, is_new: bool, clock: &mut impl Clock) -> Result<Drive, Failure> {
    let where_it_is = format!("namespace {} at {}", place.namespace, place.address);
    let device = FabricDevice::reach(place, Waiting::Never).map_err(|error| {
        Failure::failed(format_args!("{where_it_is}: {error}"))
            .fix(format_args!("`openftl nvme identify {}` shows what is there", place.address))
    })?;
    let device = Flash::Remote(Box::new(device));
    if is_new {
        return BlockFtl::format(device, config, clock)
            .map_err(|error| Failure::failed(error).fix("ask for less --capacity, or a larger device"));
    }
    BlockFtl::open(device, config, clock).map_err(|error| match error {
        OpenError::NotFormatted => Failure::failed(format_args!("{where_it_is} holds no drive"))
            .fix("make one with --format-device, if there is nothing on it that you need"),
        error => Failure::failed(format_args!("{where_it_is}: {error}")),
    })
}

/// Opens a drive that is kept in a file without writing anything to it: if it was not closed cleanly, it is recovered in
/// memory alone. Times are those that the NAND would take.
pub fn open_to_look_at(path: &Path, clock: &mut impl Clock) -> Result<Drive, Failure> {
    let device = open_device(path, Timing::Modelled)?;
    BlockFtl::open_with(device.into(), Config::default(), Access::Inspect, clock)
        .map_err(|error| open_failure(path, &error))
}

/// Opens a drive that is kept in a file as it is opened for use: if it was not closed cleanly, it is recovered.
pub fn open_and_recover(path: &Path, clock: &mut impl Clock) -> Result<Drive, Failure> {
    open(open_device(path, Timing::Modelled)?, Config::default(), path, clock)
}

/// Opens a drive that is kept in a file for repair: what cannot be trusted of its map is rebuilt.
pub fn open_and_repair(path: &Path, clock: &mut impl Clock) -> Result<Drive, Failure> {
    let device = open_device(path, Timing::Modelled)?;
    BlockFtl::open_with(device.into(), Config::default(), Access::Repair, clock)
        .map_err(|error| open_failure(path, &error))
}

/// Switches a drive off, cleanly, and on again.
pub fn restart(drive: Drive, clock: &mut impl Clock) -> Result<Drive, Failure> {
    let config = drive.config().clone();
    let device = close(drive, clock)?;
    open(device, config, Path::new("the drive"), clock)
}

/// Opens the drive on a device. `name` is for messages.
pub fn open(device: impl Into<Flash>, config: Config, name: &Path, clock: &mut impl Clock) -> Result<Drive, Failure> {
    BlockFtl::open(device.into(), config, clock).map_err(|error| open_failure(name, &error))
}

/// How a drive was opened, for a title.
pub fn opened_how(report: &RecoveryReport) -> &'static str {
    if report.clean { "opened after a clean stop" } else { "recovered after a crash" }
}

/// How long it took to open a drive, on its own clock.
pub fn opened_in(report: &RecoveryReport) -> Nanos {
    Nanos(report.steps.iter().map(|step| step.time.0).sum())
}

/// A clean stop: everything on media, and a checkpoint.
pub fn close(drive: Drive, clock: &mut impl Clock) -> Result<Flash, Failure> {
    drive.close(clock).map_err(|error| {
        Failure::failed(error).fix("whatever was flushed before is on the drive; `openftl check` verifies it")
    })
}

pub fn geometry(drive: &Drive) -> &Geometry {
    drive.media().geometry()
}

/// How long each die was busy so far.
pub fn pu_busy(drive: &Drive) -> Vec<Nanos> {
    drive.media().pu_busy()
}

fn open_failure(path: &Path, error: &OpenError) -> Failure {
    let failure = format_args!("{}: {error}", path.display()).to_string();
    match error {
        OpenError::NotFormatted => {
            Failure::failed(failure).fix("create it anew with --force, if there is nothing on it that you need")
        }
        OpenError::OtherGeometry { .. } | OpenError::Geometry(_) => Failure::bad_input(failure),
        error if error.is_repairable() => Failure::failed(failure).fix(format_args!(
            "openftl check {} --repair rebuilds what can be rebuilt, and says what was lost",
            path.display()
        )),
        _ => Failure::failed(failure).fix("restore it from a copy: what is left cannot be trusted"),
    }
}

fn device_failure(error: &DeviceError) -> Failure {
    match error {
        DeviceError::Profile(error) | DeviceError::Store(StoreError::Profile(error)) => {
            Failure::bad_input(error).fix("correct the profile, or choose one that `openftl profiles` lists")
        }
        DeviceError::Store(error) => match error {
            StoreError::NotADrive { .. } => Failure::bad_input(error).fix("name a file made by `openftl create`"),
            StoreError::NewerVersion { .. } => {
                Failure::bad_input(error).fix("use the version of openftl that made it, or a later one")
            }
            StoreError::OtherProfile { .. } | StoreError::ProfileTooLong { .. } => Failure::bad_input(error),
            _ => Failure::failed(error),
        },
    }
}
