//! Puts a drive together: device, store and FTL. What each of them says when it cannot is made a report for people here.

use crate::cli::{DriveFlags, Store};
use crate::failure::Failure;
use crate::memory;
use crate::namespaces::{Namespaces, Stored, divide};
use crate::settings::{BlockSettings, NamespaceSettings, Settings, refuse_sizes};
use crate::zone_settings::ZoneSettings;
use openftl_blocks::{BlockFtl, DriveKind, Ftl, kind_on};
use openftl_core::units::ByteSize;
use openftl_core::{BLOCK_BYTES, Clock, FrameForm, Geometry, Nanos};
use openftl_drive::any_drive::AnyDrive;
use openftl_drive::description::another_seed;
use openftl_media::{Durability, EmulatedDevice, Media, PartKind, PartLabel, Store as MediaStore, Timing};
use openftl_nvme_media::{FabricDevice, Place, Waiting};
use openftl_pages::PageFtl;
use openftl_parts::config::Left;
use openftl_parts::{Access, Config, OpenError, RecoveryReport};
use openftl_server::Stop;
use openftl_serving::flash::Flash;
use openftl_values::{ValueConfig, ValueFtl};
use openftl_zones::{AskedLimits, Face, ZoneFtl};
use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use std::path::Path;

/// Frames that each of several drives has at least for requests under way: 8 MiB.
const HOST_FRAMES_MIN: u32 = 2048;

pub use openftl_serving::service::Drive;

/// A zoned drive.
pub type ZonedDrive = ZoneFtl<Flash>;

/// What a namespace is to have: the configuration of its FTL.
#[derive(Clone, Debug)]
pub enum Wanted {
    Block(Config),
    Zoned(Config, ZonesWanted),
    /// A store of pages.
    Pages(Config),
    /// A key-value drive; a new one is like this.
    Values(Config, ValueConfig),
}

/// What zones are to be like.
#[derive(Clone, Debug)]
pub enum ZonesWanted {
    /// New ones; what they are follows from the shape of their flash.
    New(Box<ZoneSettings>),
    /// Those that are there.
    Found(ZonesFound),
}

/// What zones that are there are to be like.
#[derive(Clone, Copy, Default, Debug)]
pub struct ZonesFound {
    /// As wide as this, if that was said.
    pub width: Option<u32>,
    /// From now on with these limits.
    pub limits: AskedLimits,
    /// Seen so by hosts; `None`: as they were made.
    pub face: Option<Face>,
    /// They lie about flushes.
    pub lies: bool,
}

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
    memory::check(flash_blocks * block_bytes, advice)?;
    let device = EmulatedDevice::new(settings.profile.clone(), chunks_per_pu, store, timing, seed)
        .map_err(|error| Failure::of_device(&error))?;
    BlockFtl::format(device.into(), config, clock)
        .map_err(|error| Failure::failed(error).fix("ask for less capacity, or another profile"))
}

/// Makes new zones or segments in memory, to be tried.
pub fn new_zones_in_memory(
    settings: &Settings,
    zones: &ZoneSettings,
    config: Config,
    store: Store,
    timing: Timing,
    clock: &mut impl Clock,
) -> Result<ZonedDrive, Failure> {
    let chunks_per_pu = settings.chunks_per_pu_of_zones(zones)?;
    let geometry = settings.profile.geometry(chunks_per_pu).map_err(|error| Failure::of_device(&error.into()))?;
    let (store, block_bytes) = match store {
        Store::Ram => (MediaStore::Ram, BLOCK_BYTES as u64 + 32),
        Store::Stamps => (MediaStore::Stamps, 8 + 32),
    };
    memory::check(geometry.blocks() * block_bytes, "choose a smaller --capacity")?;
    let (seed, zoned) = (config.drive_id, zones.zoned(&geometry));
    let device = EmulatedDevice::new(settings.profile.clone(), chunks_per_pu, store, timing, seed)
        .map_err(|error| Failure::of_device(&error))?;
    ZoneFtl::format(device.into(), config, zoned, clock)
        .map_err(|error| Failure::failed(error).fix("ask for less capacity, or another profile"))
}

/// Makes what the settings say in a file, which may not exist yet.
pub fn create_file(settings: &Settings, path: &Path, seed: u64, clock: &mut impl Clock) -> Result<Namespaces, Failure> {
    let (parts, wanted) = planned(settings, None);
    let chunks_per_pu = chunks_per_pu(settings, &wanted)?;
    let mut device =
        EmulatedDevice::create_divided(path, &settings.profile, chunks_per_pu, &parts, Timing::Instant, seed)
            .map_err(|error| Failure::of_device(&error))?;
    set_durability(&mut device, settings.durability.unwrap_or_default())?;
    Namespaces::format(device, parts, wanted, clock)
}

/// Makes what the settings say in memory, every byte of it, to be served.
pub fn create_in_memory(
    settings: &Settings,
    timing: Timing,
    host_frames: u32,
    clock: &mut impl Clock,
) -> Result<Namespaces, Failure> {
    let (parts, wanted) = planned(settings, Some(host_frames));
    if let ([], [Wanted::Block(config)]) = (&parts[..], &wanted[..]) {
        return new_in_memory(settings, config.clone(), Store::Ram, timing, another_seed(), clock).map(Namespaces::one);
    }
    let chunks_per_pu = chunks_per_pu(settings, &wanted)?;
    let geometry = settings.profile.geometry(chunks_per_pu).map_err(|error| Failure::of_device(&error.into()))?;
    let used: u64 = match parts.is_empty() {
        true => geometry.blocks(),
        false => parts.iter().map(|label| label.partition.shape(&geometry).blocks()).sum(),
    };
    memory::check(used * (BLOCK_BYTES as u64 + 32), "choose a smaller capacity for the namespaces")?;
    let device = EmulatedDevice::new(settings.profile.clone(), chunks_per_pu, MediaStore::Ram, timing, another_seed())
        .map_err(|error| Failure::of_device(&error))?;
    Namespaces::format(device, parts, wanted, clock)
}

fn chunks_per_pu(settings: &Settings, wanted: &[Wanted]) -> Result<u32, Failure> {
    match (settings.namespaces.is_empty(), wanted) {
        (true, [Wanted::Block(config)]) => settings.chunks_per_pu(config),
        (true, [Wanted::Zoned(_, ZonesWanted::New(zones))]) => settings.chunks_per_pu_of_zones(zones),
        (true, [Wanted::Pages(_)]) => settings.pages.as_ref().expect("they are wanted").chunks_per_pu(),
        (true, [Wanted::Values(..)]) => settings.values.as_ref().expect("they are wanted").chunks_per_pu(),
        _ => settings.chunks_per_pu_divided(),
    }
}

/// What a new device is divided into, and what each part of it is to have.
fn planned(settings: &Settings, host_frames: Option<u32>) -> (Vec<PartLabel>, Vec<Wanted>) {
    let mut chance = SplitMix64::seed_from_u64(another_seed());
    let parts = settings.parts(|| chance.next_u64());
    let host_frames = frames_of_each(&parts, host_frames);
    let block =
        |settings: &BlockSettings, id| Wanted::Block(Config { host_frames, ..settings.config(FrameForm::Bytes, id) });
    let zoned = |zones: &ZoneSettings, id| {
        Wanted::Zoned(Config { host_frames, ..zones.config(id) }, ZonesWanted::New(Box::new(zones.clone())))
    };
    if parts.is_empty() {
        let id = chance.next_u64();
        let wanted = match (&settings.pages, &settings.values, &settings.zones) {
            (Some(pages), ..) => Wanted::Pages(Config { host_frames, ..pages.config(id) }),
            (_, Some(values), _) => Wanted::Values(Config { host_frames, ..values.config(id) }, values.shape()),
            (None, None, Some(zones)) => zoned(zones, id),
            (None, None, None) => block(&settings.drive, id),
        };
        return (parts, vec![wanted]);
    }
    let with_ftl = parts.iter().filter(|label| label.kind != PartKind::OpenChannel);
    let wanted = with_ftl.map(|label| match settings.zones_of_namespace(&label.name) {
        Some(zones) => zoned(zones, label.id),
        None => block(settings.of_namespace(&label.name), label.id),
    });
    let wanted = wanted.collect();
    (parts, wanted)
}

/// Frames of each drive for requests under way: they are shared out.
fn frames_of_each(parts: &[PartLabel], host_frames: Option<u32>) -> u32 {
    let drives = parts.iter().filter(|label| label.kind != PartKind::OpenChannel).count().max(1) as u32;
    host_frames.map_or(Config::default().host_frames, |all| (all / drives).max(HOST_FRAMES_MIN))
}

/// With what the drives on a device that is divided so are opened; `kind` is that of the only one where it is not divided.
fn opened_with(settings: &Settings, parts: &[PartLabel], kind: DriveKind, host_frames: u32) -> Vec<Wanted> {
    let host_frames = frames_of_each(parts, Some(host_frames));
    let block =
        |settings: &BlockSettings, id| Wanted::Block(Config { host_frames, ..settings.config(FrameForm::Bytes, id) });
    let zoned = |zones: Option<&ZoneSettings>, id| {
        let area = zones.map_or(&settings.drive, |zones| &zones.area);
        let found = zones.map_or(ZonesFound::default(), |zones| ZonesFound {
            width: zones.width,
            limits: zones.limits,
            face: zones.interface,
            lies: false,
        });
        Wanted::Zoned(Config { host_frames, ..area.config(FrameForm::Bytes, id) }, ZonesWanted::Found(found))
    };
    if parts.is_empty() {
        return vec![match kind {
            DriveKind::Zones | DriveKind::Segments => zoned(settings.zones.as_ref(), 0),
            DriveKind::Pages => Wanted::Pages(Config { host_frames, ..settings.drive.config(FrameForm::Bytes, 0) }),
            DriveKind::Values => {
                let config = Config { host_frames, ..settings.drive.config(FrameForm::Bytes, 0) };
                Wanted::Values(config, ValueConfig::default())
            }
            _ => block(&settings.drive, 0),
        }];
    }
    let with_ftl = parts.iter().filter(|label| label.kind != PartKind::OpenChannel);
    with_ftl
        .map(|label| match label.kind {
            PartKind::Zoned => zoned(settings.zones_of_namespace(&label.name), label.id),
            _ => block(settings.of_namespace(&label.name), label.id),
        })
        .collect()
}

/// What may differ each time a drive is opened, and what is expected of it.
#[derive(Clone, Debug)]
pub struct Reopen<'a> {
    settings: &'a Settings,
    /// What flags name must be what the drive has.
    flags: &'a DriveFlags,
    host_frames: u32,
}

impl<'a> Reopen<'a> {
    /// As the settings say.
    pub fn of(settings: &'a Settings, flags: &'a DriveFlags, host_frames: u32) -> Reopen<'a> {
        Reopen { settings, flags, host_frames }
    }

    /// Whether a file divides its device as the drive description says, if that one does.
    fn expect_parts(&self, path: &Path, parts: &[PartLabel]) -> Result<(), Failure> {
        let path = path.display();
        let asked = &self.settings.namespaces;
        if !parts.is_empty() {
            refuse_sizes(self.flags, &format!("{path} is divided"))?;
        }
        let same = |label: &PartLabel, asked: &NamespaceSettings| {
            label.name == asked.name && label.kind == asked.kind() && label.partition == asked.partition
        };
        let missing = asked.iter().find(|asked| !parts.iter().any(|label| same(label, asked)));
        let unknown = parts.iter().find(|label| !asked.is_empty() && !asked.iter().any(|asked| same(label, asked)));
        let difference = match (missing, unknown) {
            (Some(NamespaceSettings { name, partition, .. }), _) => {
                format!("has no {} namespace {name} of {partition}", missing.expect("just matched").kind())
            }
            (None, Some(PartLabel { name, kind, partition, .. })) => {
                format!("has a namespace {name} ({kind}, {partition}) that the drive description does not know")
            }
            (None, None) => return Ok(()),
        };
        Err(Failure::bad_input(format_args!("{path} {difference}")).fix(format_args!(
            "`openftl inspect {path}` shows what it is divided into; how a device is divided cannot be changed, so create another one"
        )))
    }
}

/// What the file behind a device is to survive. Its syncs are waited for.
fn set_durability(device: &mut EmulatedDevice, durability: Durability) -> Result<(), Failure> {
    device.set_durability(durability).map_err(|error| Failure::of_device(&error.into()))
}

/// Opens the device in a file to be served: nobody waits for its syncs but those who asked for them, and each wakes the server.
pub fn open_served(
    path: &Path,
    timing: Timing,
    durability: Durability,
    server: &Stop,
) -> Result<EmulatedDevice, Failure> {
    let mut device = open_device(path, timing, Access::ReadWrite)?;
    set_durability(&mut device, durability)?;
    let server = server.clone();
    device.sync_beside(move || server.wake()).map_err(|error| Failure::of_device(&error.into()))?;
    Ok(device)
}

/// Opens the device in a file. Who only inspects it writes nothing to the file.
pub fn open_device(path: &Path, timing: Timing, access: Access) -> Result<EmulatedDevice, Failure> {
    if !path.exists() {
        return Err(Failure::bad_input(format_args!("{}: no such file", path.display()))
            .fix(format_args!("make it first: openftl create {} --capacity 8GiB", path.display())));
    }
    if path.is_dir() {
        return Err(Failure::bad_input(format_args!("{} is a folder", path.display()))
            .fix("name a file made by `openftl create`"));
    }
    let opened = match access {
        Access::Inspect => EmulatedDevice::open_to_look_at(path, timing),
        Access::ReadWrite | Access::Repair => EmulatedDevice::open(path, timing),
    };
    opened.map_err(|error| Failure::of_device(&error))
}

/// Opens all that is kept in a file.
pub fn open_file(
    path: &Path,
    timing: Timing,
    reopen: &Reopen<'_>,
    server: &Stop,
    clock: &mut impl Clock,
) -> Result<Namespaces, Failure> {
    let mut device = open_served(path, timing, reopen.settings.durability.unwrap_or_default(), server)?;
    if reopen.flags.profile.is_some() && reopen.settings.profile.name != device.profile().name {
        return Err(Failure::bad_input(format_args!(
            "{} holds another profile: found {}, asked for {}",
            path.display(),
            device.profile().name,
            reopen.settings.profile.name
        ))
        .fix("leave --profile away, or create another drive"));
    }
    let parts = device.parts().to_vec();
    reopen.expect_parts(path, &parts)?;
    // Who opens it says what is wrong with it.
    let kind = if parts.is_empty() { kind_on(&mut device, clock).ok() } else { None };
    let kind = kind.unwrap_or(DriveKind::Blocks);
    let asked = reopen.settings.zones.as_ref().filter(|_| parts.is_empty()).map(|zones| zones.face);
    let is_other = asked.is_some_and(|face| match face {
        Face::Zones => kind != DriveKind::Zones,
        Face::Segments => kind != DriveKind::Segments,
    });
    if let (Some(face), true) = (asked, is_other) {
        return Err(Failure::bad_input(format_args!(
            "{} is a {} drive, and ftl.kind = \"{}\"",
            path.display(),
            kind.word(),
            face.noun()
        ))
        .fix("leave --drive away, or create another drive"));
    }
    let (asks_for_pages, asks_for_values) = (reopen.settings.pages.is_some(), reopen.settings.values.is_some());
    let asks_for_blocks = reopen.settings.zones.is_none() && !reopen.settings.has_objects() && parts.is_empty();
    let is_of_others = asks_for_pages != (kind == DriveKind::Pages)
        || asks_for_values != (kind == DriveKind::Values)
        || asks_for_blocks && kind.has_zones();
    if reopen.flags.drive.is_some() && is_of_others {
        let described = match (asks_for_pages, asks_for_values) {
            (true, _) => "store of pages",
            (_, true) => "key-value drive",
            (false, false) => "block drive",
        };
        return Err(Failure::bad_input(format_args!(
            "{} is a {} drive, and the drive description is of a {described}",
            path.display(),
            kind.word()
        ))
        .fix("leave --drive away, or write its ftl.kind"));
    }
    if let (Some(flag), true) =
        (reopen.flags.for_blocks_only(), kind.has_zones() || matches!(kind, DriveKind::Pages | DriveKind::Values))
    {
        return Err(Failure::bad_input(format_args!(
            "{flag}: it is of no use to a {} drive, and {} is one",
            kind.word(),
            path.display()
        ))
        .fix("leave it away"));
    }
    let wanted = opened_with(reopen.settings, &parts, kind, reopen.host_frames);
    let namespaces = Namespaces::open(device, parts, wanted, path, clock)?;
    let ([], [drive]) = (&namespaces.parts[..], &namespaces.drives[..]) else { return Ok(namespaces) };
    // Both were fixed when the drive was created.
    let capacity = ByteSize(drive.plan().capacity_blocks * BLOCK_BYTES as u64);
    let over_provisioning = drive.config().over_provisioning;
    let DriveFlags { capacity: capacity_asked, over_provisioning: share_asked, .. } = reopen.flags;
    for (field, found, asked) in [
        ("capacity", capacity.to_string(), capacity_asked.map(|asked| asked.to_string())),
        ("over-provisioning", over_provisioning.to_string(), share_asked.map(|asked| asked.to_string())),
    ] {
        if let Some(asked) = asked.filter(|asked| *asked != found) {
            return Err(Failure::bad_input(format_args!("{} has {field} {found}, asked for {asked}", path.display()))
                .fix(format_args!("leave --{field} away, or create another drive")));
        }
    }
    Ok(namespaces)
}

/// What the device in a file is divided into; nothing if it is one drive.
pub fn parts_of(path: &Path) -> Result<Vec<PartLabel>, Failure> {
    Ok(open_device(path, Timing::Modelled, Access::Inspect)?.parts().to_vec())
}

/// Opens the flash of what is stored. Times are those that the NAND would take.
pub fn open_flash(stored: &Stored<'_>, access: Access) -> Result<Flash, Failure> {
    let Stored { path, namespace } = *stored;
    let mut device = open_device(path, Timing::Modelled, access)?;
    if access != Access::Inspect {
        set_durability(&mut device, Durability::Machine)?;
    }
    let parts = device.parts().to_vec();
    let Some(name) = namespace else {
        assert!(parts.is_empty(), "who opens a divided device names the namespace");
        return Ok(device.into());
    };
    let known = || parts.iter().map(|label| label.name.as_str()).collect::<Vec<_>>().join(", ");
    let at = parts.iter().position(|label| label.name == *name).ok_or_else(|| {
        let failure = Failure::bad_input(format_args!("{} has no namespace {name}", path.display()));
        match parts.is_empty() {
            true => failure.fix("leave --namespace away: it is one drive"),
            false => failure.fix(format_args!("choose one of {}", known())),
        }
    })?;
    Ok(divide(device, &parts)?.swap_remove(at))
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

/// A stored drive of any kind, open.
pub type StoredDrive = AnyDrive<Flash>;

/// Opens a stored drive without writing anything to it: if it was not closed cleanly, it is recovered in memory alone.
pub fn open_to_look_at(stored: &Stored<'_>, clock: &mut impl Clock) -> Result<StoredDrive, Failure> {
    open_as_it_is(stored, clock)?.ok_or_else(|| {
        Failure::failed(format_args!("{stored}: its catalog cannot be read as it is"))
            .fix(format_args!("`openftl check {}` opens it as for use, and says whether it is sound", stored.words()))
    })
}

/// The same. `None` where a block of the catalog cannot be read: after a clean stop it may be one behind which nothing is written yet (MW_CUNITS), and
/// good once the drive is open for use.
pub fn open_as_it_is(stored: &Stored<'_>, clock: &mut impl Clock) -> Result<Option<StoredDrive>, Failure> {
    match open_for(Access::Inspect, stored, clock)? {
        Err(error) if error.is_of_lost_blocks() => Ok(None),
        opened => opened.map(Some).map_err(|error| open_failure(stored, &error)),
    }
}

/// Opens a stored drive as it is opened for use: if it was not closed cleanly, it is recovered.
pub fn open_and_recover(stored: &Stored<'_>, clock: &mut impl Clock) -> Result<StoredDrive, Failure> {
    open_for(Access::ReadWrite, stored, clock)?.map_err(|error| open_failure(stored, &error))
}

/// Opens a stored drive for repair: what cannot be trusted of its map is rebuilt.
pub fn open_and_repair(stored: &Stored<'_>, clock: &mut impl Clock) -> Result<StoredDrive, Failure> {
    open_for(Access::Repair, stored, clock)?.map_err(|error| open_failure(stored, &error))
}

fn open_for(
    access: Access,
    stored: &Stored<'_>,
    clock: &mut impl Clock,
) -> Result<Result<StoredDrive, OpenError>, Failure> {
    let config = Config { left: Left::ALL, ..Config::default() };
    let flash = open_flash(stored, access)?;
    Ok(AnyDrive::open_with(flash, config, AskedLimits::default(), access, clock))
}

/// Switches a drive off, cleanly, and on again.
pub fn restart<F: Ftl<Media = Flash>>(drive: F, clock: &mut impl Clock) -> Result<F, Failure> {
    let config = drive.block().config().clone();
    let flash = close(drive, clock)?;
    let opened = F::open_with(flash, config, F::Asked::default(), Access::ReadWrite, clock);
    opened.map_err(|error| open_failure(&Stored::alone(Path::new("the drive")), &error))
}

/// Opens the drive on some flash. `stored` is for messages.
pub fn open(flash: Flash, config: Config, stored: &Stored<'_>, clock: &mut impl Clock) -> Result<Drive, Failure> {
    BlockFtl::open(flash, config, clock).map_err(|error| open_failure(stored, &error))
}

/// Opens the store of pages on some flash. `stored` is for messages.
pub fn open_pages(
    flash: Flash,
    config: Config,
    stored: &Stored<'_>,
    clock: &mut impl Clock,
) -> Result<PageFtl<Flash>, Failure> {
    let opened = PageFtl::open_with(flash, config, (), Access::ReadWrite, clock);
    opened.map_err(|error| open_failure(stored, &error))
}

/// Opens the key-value drive on some flash. `stored` is for messages.
pub fn open_values(
    flash: Flash,
    config: Config,
    stored: &Stored<'_>,
    clock: &mut impl Clock,
) -> Result<ValueFtl<Flash>, Failure> {
    let opened = ValueFtl::open_with(flash, config, (), Access::ReadWrite, clock);
    opened.map_err(|error| open_failure(stored, &error))
}

/// Opens the zones on some flash. `stored` is for messages.
pub fn open_zones(
    flash: Flash,
    config: Config,
    ZonesFound { width, limits, face, lies }: ZonesFound,
    stored: &Stored<'_>,
    clock: &mut impl Clock,
) -> Result<ZonedDrive, Failure> {
    let opened = ZoneFtl::open_with(flash, config, limits, Access::ReadWrite, clock);
    let mut drive = opened.map_err(|error| open_failure(stored, &error))?;
    let found = drive.layout().width;
    if let Some(asked) = width.filter(|asked| *asked != found) {
        let field = drive.face().width_field();
        return Err(Failure::bad_input(format_args!("{stored} has {field} = {found}, asked for {asked}"))
            .fix(format_args!("leave {field} away, or create another drive")));
    }
    drive.lie_about_flush(lies);
    if let Some(face) = face {
        drive.set_face(face);
    }
    Ok(drive)
}

/// How a drive was opened, for a title.
pub fn opened_how(report: &RecoveryReport) -> &'static str {
    if report.clean { "opened after a clean stop" } else { "recovered after a crash" }
}

/// How long it took to open a drive, on its own clock.
pub fn opened_in(report: &RecoveryReport) -> Nanos {
    Nanos(report.steps.iter().map(|step| step.time.0).sum())
}

/// A clean stop of a drive of any kind: everything on media, and a checkpoint.
pub fn close<F: Ftl<Media = Flash>>(drive: F, clock: &mut impl Clock) -> Result<Flash, Failure> {
    drive.close(clock).map_err(close_failure)
}

fn close_failure(error: OpenError) -> Failure {
    Failure::failed(error).fix("whatever was flushed before is on the drive; `openftl check` verifies it")
}

pub fn geometry(drive: &Drive) -> &Geometry {
    drive.media().geometry()
}

fn open_failure(stored: &Stored<'_>, error: &OpenError) -> Failure {
    let failure = format_args!("{stored}: {error}").to_string();
    match error {
        OpenError::NotFormatted => {
            Failure::failed(failure).fix("create it anew with --force, if there is nothing on it that you need")
        }
        OpenError::OtherGeometry { .. } | OpenError::OtherSize { .. } | OpenError::Geometry(_) => {
            Failure::bad_input(failure)
        }
        OpenError::WholeMap | OpenError::Plan(_) => Failure::bad_input_with_fix(failure),
        OpenError::Limits(_) => {
            Failure::bad_input(failure).fix("choose another limit, or leave it away: then it is that of the drive")
        }
        OpenError::OtherKind { found: "page", .. } => {
            Failure::bad_input(failure).fix("`openftl pages list --drive` shows the pages of a store")
        }
        OpenError::OtherKind { found: "key-value", .. } => {
            Failure::bad_input(failure).fix("`openftl kv list --drive` shows the keys of the drive")
        }
        OpenError::OtherKind { .. } => {
            Failure::bad_input(failure).fix("`openftl files` shows what is on a table drive")
        }
        error if error.is_repairable() => Failure::failed(failure).fix(format_args!(
            "openftl check {} --repair rebuilds what can be rebuilt, and says what was lost",
            stored.words()
        )),
        _ => Failure::failed(failure).fix("restore it from a copy: what is left cannot be trusted"),
    }
}
