//! What a drive is made of, gathered from defaults, a drive description and flags, in that order.

use crate::cli::{DriveFlags, Timing};
use crate::failure::Failure;
use crate::object_settings::expect_no_tables;
use crate::zone_settings::ZoneSettings;
use crate::zones_made::ZonesMade;
use openftl_blocks::garbage_collection::IDLE_MIN;
use openftl_core::units::{ByteSize, Interval, Share};
use openftl_core::{BLOCK_BYTES, FrameForm, Geometry, Nanos};
use openftl_drive::description::{
    DriveDescription, FtlKind, FtlSection, HostSection, NamespaceSection, Numbers, StoreName, find_profile,
    profile_failure,
};
use openftl_drive::page_drive::PageDrive;
use openftl_drive::value_drive::ValueDrive;
use openftl_media::{Durability, PartKind, PartLabel, PartName, Partition, PartitionError, Profile};
use openftl_parts::config::Left;
use openftl_parts::map::cache::CachePolicy;
use openftl_parts::map::directory::PageSize;
use openftl_parts::map::memory::{MapBudget, MapMemory};
use openftl_parts::map::pins::{MapBlock, MapPin};
use openftl_parts::placement_name::{HANDLES_DEFAULT, HANDLES_MAX, OBJECTS_DEFAULT, OBJECTS_MAX};
use openftl_parts::{CollectionScope, Config, PlacementName, Plan, PlanError, RelocateBy, VictimPolicy};
use std::path::PathBuf;

/// What a device is made of, and what is on it.
#[derive(Clone, PartialEq, Debug)]
pub struct Settings {
    pub profile: Profile,
    /// The drive on it, if it is not divided.
    pub drive: BlockSettings,
    /// The zones on it, if it is not divided and has some.
    pub zones: Option<ZoneSettings>,
    /// The store of pages on it, if it is one.
    pub pages: Option<PageDrive>,
    /// The key-value drive on it, if it is one.
    pub values: Option<ValueDrive>,
    /// What it is divided into, if it is: in the order in which hosts see it.
    pub namespaces: Vec<NamespaceSettings>,
    pub store: Option<StoreName>,
    pub path: Option<PathBuf>,
    /// What was asked for; where nothing was, a drive in a file has the default.
    pub durability: Option<Durability>,
    pub timing: Option<Timing>,
    pub host: HostSection,
}

/// A block FTL.
#[derive(Clone, PartialEq, Debug)]
pub struct BlockSettings {
    pub capacity: ByteSize,
    pub over_provisioning: Share,
    pub victim: VictimPolicy,
    pub collection: CollectionScope,
    pub relocate_by: RelocateBy,
    pub collect_when_idle: Option<Nanos>,
    pub placement: PlacementName,
    pub handles: u8,
    pub objects_max: u16,
    /// Which of these three nobody asked for: a drive that exists keeps its own.
    pub left: Left,
    /// The budget of a map that is kept on media; `None`: all of it is in memory, or as the drive was created.
    pub map_memory: Option<MapBudget>,
    pub map_cache: Option<CachePolicy>,
    pub map_pins: Vec<MapPin>,
    pub map_block: Option<MapBlock>,
    pub write_through: bool,
    pub checkpoint_log_blocks: Option<u64>,
    pub checkpoint_interval: Option<Nanos>,
    pub marked_groups_max: Option<u32>,
    pub scrub_interval: Option<Interval>,
    pub wear_spread_max: Option<u32>,
}

/// Some parallel units of a device, and what is on them.
#[derive(Clone, PartialEq, Debug)]
pub struct NamespaceSettings {
    pub name: PartName,
    pub partition: Partition,
    pub on_it: OnIt,
}

/// What is on the parallel units of a namespace.
#[derive(Clone, PartialEq, Debug)]
pub enum OnIt {
    Block(BlockSettings),
    Zoned(ZoneSettings),
    /// Nothing of ours; at least so much flash.
    OpenChannel(Option<ByteSize>),
}

/// What holds where neither flags nor drive description say anything.
pub const PROFILE_DEFAULT: &str = "cosmos";
pub const OVER_PROVISIONING_DEFAULT: Share = Share::percent(10);

/// What the zones of a namespace hold where nothing is said.
const ZONED_NAMESPACE_DEFAULT: ByteSize = ByteSize(1 << 30);

/// More than so many times what was asked for is told.
const OVER_PROVISIONING_TOLERANCE: f64 = 1.3;

const OVER_PROVISIONING_MIN: Share = Share::percent(1);
const OVER_PROVISIONING_MAX: Share = Share::percent(400);

/// A drive that reads all it holds more often than this does little else.
const SCRUB_INTERVAL_MIN: Nanos = Nanos(60_000_000_000);

/// What the host may see at most: with over-provisioning, the blocks that 31 bits can name.
const CAPACITY_MAX: ByteSize = ByteSize(7 << 40);

/// The same where the map is on media: those that 36 bits can name.
const CAPACITY_MAX_ON_MEDIA: ByteSize = ByteSize(200 << 40);

/// The largest capacity that a profile allows is named in this step.
const CAPACITY_STEP: u64 = 1 << 30;

/// Checkpoints more often than this keep the flash busy.
const CHECKPOINT_INTERVAL_MIN: Nanos = Nanos::from_millis(100);

/// The pins of a drive: those of its flags, else of its description, else those of all.
fn pins(flags: &DriveFlags, own: Option<&Vec<MapPin>>, all: &[MapPin]) -> Vec<MapPin> {
    match own {
        _ if !flags.map_pin.is_empty() => flags.map_pin.clone(),
        Some(own) => own.clone(),
        None => all.to_vec(),
    }
}

impl Settings {
    /// Flags over drive description over defaults, of a block drive.
    pub fn gather(flags: &DriveFlags, capacity_default: ByteSize) -> Result<Settings, Failure> {
        let settings = Settings::gather_any(flags, capacity_default)?.expect_no_objects()?;
        match settings.zones {
            None => Ok(settings),
            Some(zones) => {
                let noun = zones.face.noun();
                Err(Failure::bad_input(format_args!("ftl.kind = \"{noun}\": this command is for block drives"))
                    .fix(format_args!("`openftl create` makes {noun}, and `openftl serve` serves them to NVMe hosts")))
            }
        }
    }

    /// The same, of a drive of blocks or of zones.
    pub fn gather_any(flags: &DriveFlags, capacity_default: ByteSize) -> Result<Settings, Failure> {
        let file = flags.drive.as_deref().map(DriveDescription::read).transpose()?.unwrap_or_default();
        expect_no_tables(file.ftl.kind)?;
        let pages = (file.ftl.kind == Some(FtlKind::Pages)).then(|| PageDrive::of(&file)).transpose()?;
        let values = (file.ftl.kind == Some(FtlKind::Values)).then(|| ValueDrive::of(&file)).transpose()?;
        let profile = flags.profile.as_deref().or(file.media.profile.as_deref()).unwrap_or(PROFILE_DEFAULT);
        let profile = find_profile(profile)?;
        let drive = BlockSettings {
            capacity: whole_blocks(flags.capacity.or(file.media.capacity).unwrap_or(capacity_default)),
            over_provisioning: flags
                .over_provisioning
                .or(file.media.over_provisioning)
                .unwrap_or(OVER_PROVISIONING_DEFAULT),
            victim: flags.victim.or(file.ftl.victim).unwrap_or_default(),
            collection: flags.collection.map(CollectionScope::from).or(file.ftl.collection).unwrap_or_default(),
            relocate_by: flags.relocate_by.or(file.ftl.relocate_by).unwrap_or_default(),
            collect_when_idle: flags.collect_when_idle.or(file.ftl.collect_when_idle),
            placement: flags.placement.or(file.ftl.placement).unwrap_or_default(),
            handles: file.ftl.handles.unwrap_or(HANDLES_DEFAULT),
            objects_max: file.ftl.objects_max.unwrap_or(OBJECTS_DEFAULT),
            left: Left {
                placement: flags.placement.or(file.ftl.placement).is_none(),
                handles: file.ftl.handles.is_none(),
                objects_max: file.ftl.objects_max.is_none(),
            },
            map_memory: flags.map_memory.or(file.ftl.map_memory),
            map_cache: flags.map_cache.or(file.ftl.map_cache),
            map_pins: pins(flags, file.ftl.map_pin.as_ref(), &[]),
            map_block: flags.map_block.or(file.ftl.map_block),
            write_through: flags.write_through || file.ftl.write_through.unwrap_or(false),
            checkpoint_log_blocks: file.ftl.checkpoint_log_blocks,
            checkpoint_interval: flags.checkpoint_interval.or(file.ftl.checkpoint_interval),
            marked_groups_max: file.ftl.marked_groups_max,
            scrub_interval: flags.scrub_interval.or(file.ftl.scrub_interval),
            wear_spread_max: file.ftl.wear_spread_max,
        };
        drive.validate()?;
        let zones = match file.ftl.kind {
            Some(FtlKind::Zones) => Some(ZoneSettings::of(&file.ftl, &file.ftl, drive.capacity, &drive)),
            Some(FtlKind::Segments) => Some(ZoneSettings::of_segments(&file.ftl, drive.capacity, &drive)),
            Some(FtlKind::Block | FtlKind::Tables | FtlKind::Pages | FtlKind::Values) | None => None,
        };
        if let (Some(flag), Some(zones)) = (flags.for_blocks_only(), &zones) {
            let noun = zones.face.noun();
            return Err(Failure::bad_input(format_args!(
                "{flag}: it is of no use to {noun}, and ftl.kind = \"{noun}\""
            ))
            .fix("leave it away"));
        }
        if !file.namespaces.is_empty() {
            refuse_sizes(flags, "the drive description divides the device")?;
        }
        let mut namespaces: Vec<NamespaceSettings> = file
            .namespaces
            .iter()
            .map(|section| namespace(section, flags, (&drive, &file.ftl), &profile))
            .collect::<Result<_, _>>()?;
        namespaces.sort_by_key(|namespace| PartKind::ALL.iter().position(|kind| *kind == namespace.kind()));
        let settings = Settings {
            profile,
            drive,
            zones,
            pages,
            values,
            namespaces,
            store: file.media.store,
            path: file.media.path,
            durability: flags.durability.or(file.media.durability),
            timing: file.media.timing,
            host: file.host,
        };
        settings.check_partitions()?;
        Ok(settings)
    }

    /// Whether the namespaces lie beside each other on the device.
    fn check_partitions(&self) -> Result<(), Failure> {
        if self.namespaces.is_empty() {
            return Ok(());
        }
        let partitions: Vec<Partition> = self.namespaces.iter().map(|namespace| namespace.partition.clone()).collect();
        let geometry = self.geometry(self.profile.chunks_per_pu)?;
        openftl_media::partition::check(&geometry, &partitions).map_err(|error| match error {
            PartitionError::Outside { ref partition, .. } => {
                let at = partitions.iter().position(|other| other == partition).expect("it is one of them");
                Failure::bad_input(format_args!("namespace {}: {error}", self.namespaces[at].name))
                    .fix("correct groups or parallel_units; left out, all of them are meant")
            }
            PartitionError::Shared { one, other, group, pu } => Failure::bad_input(format_args!(
                "namespaces {} and {} both have group {group}, parallel unit {pu}",
                self.namespaces[one].name, self.namespaces[other].name
            ))
            .fix("give it to one of them: correct groups or parallel_units"),
            PartitionError::OpenChunks { .. } => {
                Failure::bad_input(format_args!("profile {}: {error}", self.profile.name))
            }
        })
    }

    /// Refuses what only a drive in a file of this machine has.
    pub fn expect_no_durability(&self, kept: &str) -> Result<(), Failure> {
        match self.durability {
            None => Ok(()),
            Some(durability) => Err(Failure::bad_input(format_args!(
                "durability = {}: {kept}, and only a file of this machine can be synced",
                durability.word()
            ))
            .fix("leave it away")),
        }
    }

    /// Refuses a divided device where one drive is wanted.
    pub fn expect_one_drive(self, command: &str) -> Result<Settings, Failure> {
        match self.namespaces.first() {
            None if self.has_objects() => self.expect_no_objects(),
            None => Ok(self),
            Some(NamespaceSettings { name, .. }) => Err(Failure::bad_input(format_args!(
                "{command}: the drive description divides the device (namespace {name}), and one drive is wanted"
            ))
            .fix("name another drive description with --drive, or none")),
        }
    }

    /// What the device is divided into, with ids that `another` gives.
    pub fn parts(&self, mut another: impl FnMut() -> u64) -> Vec<PartLabel> {
        let label = |namespace: &NamespaceSettings| PartLabel {
            name: namespace.name.clone(),
            kind: namespace.kind(),
            partition: namespace.partition.clone(),
            id: another(),
        };
        self.namespaces.iter().map(label).collect()
    }

    /// The settings of a block namespace: those that the drive description has for this name, or those of all.
    pub fn of_namespace(&self, name: &PartName) -> &BlockSettings {
        let named = self.namespaces.iter().find(|namespace| namespace.name == *name);
        match named.map(|namespace| &namespace.on_it) {
            Some(OnIt::Block(settings)) => settings,
            _ => &self.drive,
        }
    }

    /// The settings of the zones of a namespace, if the drive description has some for this name.
    pub fn zones_of_namespace(&self, name: &PartName) -> Option<&ZoneSettings> {
        let named = self.namespaces.iter().find(|namespace| namespace.name == *name)?;
        if let OnIt::Zoned(settings) = &named.on_it { Some(settings) } else { None }
    }

    /// The settings of every FTL.
    pub fn drives_mut(&mut self) -> impl Iterator<Item = &mut BlockSettings> {
        let of_namespaces = self.namespaces.iter_mut().filter_map(|namespace| match &mut namespace.on_it {
            OnIt::Block(settings) => Some(settings),
            OnIt::Zoned(settings) => Some(&mut settings.area),
            OnIt::OpenChannel(_) => None,
        });
        let zones = self.zones.as_mut().map(|settings| &mut settings.area);
        std::iter::once(&mut self.drive).chain(zones).chain(of_namespaces)
    }

    /// What zones or segments one drive has, if it has some.
    pub fn zones_made(&self) -> Result<Option<ZonesMade>, Failure> {
        let geometry = self.geometry(self.profile.chunks_per_pu)?;
        Ok(self.zones.as_ref().map(|zones| ZonesMade::of(zones, &geometry)))
    }

    /// What the hosts of one drive see: how many blocks, and how many of them a segment or zone has.
    pub fn host_space(&self) -> Result<(u64, Option<u64>), Failure> {
        let Some(zones) = &self.zones else { return Ok((self.drive.capacity.0 / BLOCK_BYTES as u64, None)) };
        let geometry = self.geometry(self.profile.chunks_per_pu)?;
        let segment_blocks = u64::from(zones.zoned(&geometry).width) * u64::from(geometry.blocks_per_chunk);
        Ok((zones.capacity_on(&geometry) / BLOCK_BYTES as u64, Some(segment_blocks)))
    }

    fn geometry(&self, chunks_per_pu: u32) -> Result<Geometry, Failure> {
        self.profile.geometry(chunks_per_pu).map_err(|error| profile_failure(&self.profile.name, &error))
    }

    /// Chunks per parallel unit that the device needs for its zones.
    pub fn chunks_per_pu_of_zones(&self, settings: &ZoneSettings) -> Result<u32, Failure> {
        settings.chunks_per_pu(&self.geometry(self.profile.chunks_per_pu)?, &self.profile)
    }

    /// Chunks per parallel unit that the device needs for one drive of `config`.
    pub fn chunks_per_pu(&self, config: &Config) -> Result<u32, Failure> {
        let geometry = self.geometry(self.profile.chunks_per_pu)?;
        self.needed_by(config, &geometry)
    }

    fn needed_by(&self, config: &Config, geometry: &Geometry) -> Result<u32, Failure> {
        let needed = |config: &Config| openftl_parts::chunks_per_pu(geometry, config, self.profile.spare());
        needed(config).map_err(|error| {
            let fits = |capacity: u64| {
                let capacity_blocks = capacity * CAPACITY_STEP / BLOCK_BYTES as u64;
                needed(&Config { capacity_blocks, ..config.clone() }).is_ok()
            };
            let is_for_size = matches!(error, PlanError::TooLarge { .. } | PlanError::LogTooLong { .. });
            match largest(config.capacity_blocks * BLOCK_BYTES as u64 / CAPACITY_STEP, fits) {
                Some(most) if is_for_size && config.checkpoint_log_blocks.is_none() => Failure::bad_input(
                    format_args!(
                        "capacity = {}: the largest drive on profile {} with {} over-provisioning has {}",
                        ByteSize(config.capacity_blocks * BLOCK_BYTES as u64),
                        self.profile.name,
                        config.over_provisioning,
                        ByteSize(most * CAPACITY_STEP)
                    ),
                )
                .fix(match (&error, &config.map_memory) {
                    (PlanError::TooLarge { .. }, None) => {
                        "choose less, keep the map on media (map_memory = 10%), or choose a profile with larger chunks \
                             (`openftl profiles`)"
                    }
                    _ => "choose less, or a profile with larger chunks (`openftl profiles`)",
                }),
                _ if error.is_about_map_memory() => Failure::bad_input_with_fix(error),
                _ => Failure::bad_input(error),
            }
        })
    }

    /// Chunks per parallel unit that the device needs for all of its namespaces: every parallel unit has as many.
    pub fn chunks_per_pu_divided(&self) -> Result<u32, Failure> {
        let whole = self.geometry(self.profile.chunks_per_pu)?;
        let mut needed = None;
        for namespace in &self.namespaces {
            let geometry = namespace.partition.shape(&whole);
            let chunks = match &namespace.on_it {
                OnIt::Block(settings) => {
                    let config = settings.config(FrameForm::Bytes, 0);
                    let chunks = self.needed_by(&config, &geometry);
                    Some(chunks.map_err(|failure| failure.about(format_args!("namespace {}", namespace.name)))?)
                }
                OnIt::Zoned(settings) => {
                    let chunks = settings.chunks_per_pu(&geometry, &self.profile);
                    Some(chunks.map_err(|failure| failure.about(format_args!("namespace {}", namespace.name)))?)
                }
                OnIt::OpenChannel(capacity) => capacity.map(|capacity| {
                    let row = u64::from(geometry.pus()) * u64::from(geometry.blocks_per_chunk) * BLOCK_BYTES as u64;
                    u32::try_from(capacity.0.div_ceil(row)).unwrap_or(u32::MAX)
                }),
            };
            needed = needed.max(chunks);
        }
        Ok(needed.unwrap_or(self.profile.chunks_per_pu))
    }
}

impl NamespaceSettings {
    /// What hosts see.
    pub fn kind(&self) -> PartKind {
        match self.on_it {
            OnIt::Block(_) => PartKind::Block,
            OnIt::Zoned(_) => PartKind::Zoned,
            OnIt::OpenChannel(_) => PartKind::OpenChannel,
        }
    }
}

/// What to say where a drive has far more over-provisioning, `effective`, than was asked for.
pub fn note_on(asked: f64, effective: f64) -> Option<String> {
    (effective > asked * OVER_PROVISIONING_TOLERANCE).then(|| {
        format!(
            "{:.0}% over-provisioning in effect, {:.0}% asked for: open chunks hold data, too, and on a small drive that is much. A \
             larger capacity, or a profile with smaller chunks or fewer dies, comes closer.",
            effective * 100.0,
            asked * 100.0
        )
    })
}

/// A host sees whole blocks: 1 GB has one that is not quite full.
fn whole_blocks(capacity: ByteSize) -> ByteSize {
    ByteSize(capacity.0.checked_next_multiple_of(BLOCK_BYTES as u64).unwrap_or(u64::MAX))
}

/// The largest number from 1 on, below `too_large`, for which `fits` still holds.
fn largest(too_large: u64, fits: impl Fn(u64) -> bool) -> Option<u64> {
    let (mut low, mut high) = (0, too_large);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if fits(middle) { low = middle } else { high = middle }
    }
    (low > 0).then_some(low)
}

/// Refuses flags that say how large one drive is, where there are several.
pub fn refuse_sizes(flags: &DriveFlags, why: &str) -> Result<(), Failure> {
    let capacity = flags.capacity.map(|capacity| format!("--capacity {capacity}"));
    let over_provisioning = flags.over_provisioning.map(|share| format!("--over-provisioning {share}"));
    match capacity.or(over_provisioning) {
        Some(flag) => Err(Failure::bad_input(format_args!("{flag}: {why}, and each namespace has its own"))
            .fix("leave the flag away; [[namespace]] tables say it")),
        None => Ok(()),
    }
}

/// A namespace as the drive description has it, and as flags and the FTL of all say where it says nothing.
fn namespace(
    section: &NamespaceSection,
    flags: &DriveFlags,
    (all, all_ftl): (&BlockSettings, &FtlSection),
    profile: &Profile,
) -> Result<NamespaceSettings, Failure> {
    let name = section.name.clone();
    let numbers = |numbers: &Option<Numbers>, count| numbers.as_ref().map_or(0..count, |Numbers(range)| range.clone());
    let partition = Partition {
        groups: numbers(&section.groups, profile.groups),
        pus: numbers(&section.parallel_units, profile.pus_per_group),
    };
    let on_it = match section.kind {
        PartKind::OpenChannel => OnIt::OpenChannel(section.capacity),
        PartKind::Zoned => {
            let capacity = whole_blocks(section.capacity.unwrap_or(ZONED_NAMESPACE_DEFAULT));
            OnIt::Zoned(ZoneSettings::of(&section.ftl.clone().unwrap_or_default(), all_ftl, capacity, all))
        }
        PartKind::Block => {
            let own = section.ftl.clone().unwrap_or_default();
            let settings = BlockSettings {
                capacity: whole_blocks(section.capacity.expect("a block namespace says it")),
                over_provisioning: section.over_provisioning.unwrap_or(all.over_provisioning),
                victim: flags.victim.or(own.victim).unwrap_or(all.victim),
                collection: flags.collection.map(CollectionScope::from).or(own.collection).unwrap_or(all.collection),
                relocate_by: flags.relocate_by.or(own.relocate_by).unwrap_or(all.relocate_by),
                collect_when_idle: flags.collect_when_idle.or(own.collect_when_idle).or(all.collect_when_idle),
                placement: flags.placement.or(own.placement).unwrap_or(all.placement),
                handles: own.handles.unwrap_or(all.handles),
                objects_max: own.objects_max.unwrap_or(all.objects_max),
                left: Left {
                    placement: all.left.placement && own.placement.is_none(),
                    handles: all.left.handles && own.handles.is_none(),
                    objects_max: all.left.objects_max && own.objects_max.is_none(),
                },
                map_memory: flags.map_memory.or(own.map_memory).or(all.map_memory),
                map_cache: flags.map_cache.or(own.map_cache).or(all.map_cache),
                map_pins: pins(flags, own.map_pin.as_ref(), &all.map_pins),
                map_block: flags.map_block.or(own.map_block).or(all.map_block),
                write_through: flags.write_through || own.write_through.unwrap_or(all.write_through),
                checkpoint_log_blocks: own.checkpoint_log_blocks.or(all.checkpoint_log_blocks),
                checkpoint_interval: flags.checkpoint_interval.or(own.checkpoint_interval).or(all.checkpoint_interval),
                marked_groups_max: own.marked_groups_max.or(all.marked_groups_max),
                scrub_interval: flags.scrub_interval.or(own.scrub_interval).or(all.scrub_interval),
                wear_spread_max: own.wear_spread_max.or(all.wear_spread_max),
            };
            settings.validate().map_err(|failure| failure.about(format_args!("namespace {name}")))?;
            OnIt::Block(settings)
        }
    };
    Ok(NamespaceSettings { name, partition, on_it })
}

impl BlockSettings {
    fn validate(&self) -> Result<(), Failure> {
        if self.capacity.0 == 0 {
            return Err(Failure::bad_input("capacity = 0: a drive has at least one block of 4 KiB")
                .fix("choose a size like 512MiB or 8GiB"));
        }
        let (most, whose, fix) = match self.map_memory {
            None => (
                CAPACITY_MAX,
                "of a map in memory",
                "choose less, or keep the map of a block drive on media: map_memory = 10%",
            ),
            Some(_) => (CAPACITY_MAX_ON_MEDIA, "of a map on media", "choose less"),
        };
        if self.capacity.0 > most.0 {
            return Err(Failure::bad_input(format_args!(
                "capacity = {} is more than {most}, which is what the entries {whose} can name",
                self.capacity
            ))
            .fix(fix));
        }
        // Below this the reserve of garbage collection leaves nothing to choose from.
        if !(OVER_PROVISIONING_MIN..=OVER_PROVISIONING_MAX).contains(&self.over_provisioning) {
            return Err(Failure::bad_input(format_args!(
                "over_provisioning = {} is not between {OVER_PROVISIONING_MIN} and {OVER_PROVISIONING_MAX}",
                self.over_provisioning
            ))
            .fix("drives have 7% to 28%"));
        }
        let bounded =
            [("handles", u16::from(self.handles), HANDLES_MAX.into()), ("objects_max", self.objects_max, OBJECTS_MAX)];
        for (field, value, most) in bounded {
            if !(1..=most).contains(&value) {
                return Err(Failure::bad_input(format_args!("{field} = {value} is not between 1 and {most}"))
                    .fix("leave it away, or choose a number in between"));
            }
        }
        if let (None, Some(policy)) = (self.map_memory, self.map_cache) {
            return Err(Failure::bad_input(format_args!(
                "map_cache = {policy}: without map_memory the whole map is in memory"
            ))
            .fix("say how much of it may be: map_memory = 10%, or leave map_cache away"));
        }
        if let Some(interval) = self.checkpoint_interval.filter(|interval| *interval < CHECKPOINT_INTERVAL_MIN) {
            return Err(Failure::bad_input(format_args!(
                "checkpoint_interval = {interval} is less than {CHECKPOINT_INTERVAL_MIN}: the drive would do little else"
            ))
            .fix("choose 1s, 10s or the like, or leave it away"));
        }
        if let Some(silence) = self.collect_when_idle.filter(|silence| *silence < IDLE_MIN) {
            return Err(Failure::bad_input(format_args!("collect_when_idle = {silence} is less than {IDLE_MIN}"))
                .fix("choose 100ms or the like, or leave it away"));
        }
        if let Some(interval @ Interval::Every(span)) = self.scrub_interval
            && span < SCRUB_INTERVAL_MIN
        {
            return Err(Failure::bad_input(format_args!(
                "scrub_interval = {interval} is less than {}",
                Interval::Every(SCRUB_INTERVAL_MIN)
            ))
            .fix("drives read all they hold once in a few days: 7d; or write never"));
        }
        Ok(())
    }

    /// About the over-provisioning of a full drive on a device of this shape.
    pub fn likely_over_provisioning(&self, geometry: &Geometry) -> Option<f64> {
        let plan = Plan::new(geometry, &self.config(FrameForm::Bytes, 0)).ok()?;
        Some(plan.likely_over_provisioning(geometry))
    }

    /// What to say where a drive has far more over-provisioning than was asked for.
    pub fn note_on(&self, effective: f64) -> Option<String> {
        note_on(self.over_provisioning.as_f64(), effective)
    }

    /// The FTL's part of it, for a new drive.
    pub fn config(&self, payload: FrameForm, drive_id: u64) -> Config {
        Config {
            capacity_blocks: self.capacity.0 / BLOCK_BYTES as u64,
            over_provisioning: self.over_provisioning,
            drive_id,
            payload,
            write_through: self.write_through,
            checkpoint_log_blocks: self.checkpoint_log_blocks,
            checkpoint_interval: self.checkpoint_interval,
            victim: self.victim,
            collection: self.collection,
            relocate_by: self.relocate_by,
            collect_when_idle: self.collect_when_idle,
            placement: self.placement,
            handles: self.handles,
            objects_max: self.objects_max,
            left: self.left,
            map_memory: self.map_memory.map(|budget| MapMemory {
                budget,
                policy: self.map_cache.unwrap_or_default(),
                page: PageSize::WHOLE,
            }),
            map_pins: self.map_pins.clone(),
            map_block: self.map_block.unwrap_or_default(),
            marked_groups_max: self.marked_groups_max,
            scrub_interval: self.scrub_interval.and_then(Interval::span),
            wear_spread_max: match self.wear_spread_max {
                None => Config::default().wear_spread_max,
                Some(spread) => (spread > 0).then_some(spread),
            },
            ..Config::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    const CAPACITY: ByteSize = ByteSize(1 << 30);

    #[track_caller]
    fn check(flags: DriveFlags, expected: Expect) {
        expected.assert_eq(&Settings::gather(&flags, CAPACITY).unwrap_err().to_string());
    }

    #[test]
    fn flags_win_over_the_drive_description_and_that_over_defaults() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("drive.toml");
        std::fs::write(&path, "[media]\nprofile = \"znand\"\ncapacity = \"2GiB\"\n[ftl]\nvictim = \"cost-benefit\"\ncollection = \"device-wide\"\nscrub_interval = \"3d\"\nwear_spread_max = 0\n")
            .unwrap();
        let flags = DriveFlags { drive: Some(path), capacity: Some(ByteSize(3 << 30)), ..DriveFlags::default() };
        let settings = Settings::gather(&flags, CAPACITY).unwrap();
        assert_eq!(settings.profile.name, "znand");
        assert_eq!(settings.drive.capacity, ByteSize(3 << 30));
        assert_eq!(settings.drive.victim, VictimPolicy::CostBenefit);
        assert_eq!(settings.drive.collection, CollectionScope::DeviceWide);
        let config = settings.drive.config(FrameForm::Bytes, 0);
        assert_eq!((config.scrub_interval, config.wear_spread_max), (Interval::days(3).span(), None));
        assert_eq!(settings.drive.over_provisioning, Share::percent(10));
        assert_eq!(Settings::gather(&DriveFlags::default(), CAPACITY).unwrap().drive.capacity, CAPACITY);
    }

    #[test]
    fn what_cannot_be_is_refused_with_field_value_and_fix() {
        check(
            DriveFlags { profile: Some("cosmo".into()), ..DriveFlags::default() },
            expect![[r#"
            error: profile cosmo: there is no profile `cosmo`; the builtin ones are bluedbm, cosmos, granby, qlc, tiny, westlake, znand
              fix: choose one of them, or name a TOML file like ./mine.toml"#]],
        );
        check(
            DriveFlags { profile: Some("./none.toml".into()), ..DriveFlags::default() },
            expect![[r#"
            error: profile ./none.toml: No such file or directory (os error 2)
              fix: name a TOML file, or one of those that `openftl profiles` lists"#]],
        );
        check(
            DriveFlags { capacity: Some(ByteSize(0)), ..DriveFlags::default() },
            expect![[r#"
            error: capacity = 0: a drive has at least one block of 4 KiB
              fix: choose a size like 512MiB or 8GiB"#]],
        );
        check(
            DriveFlags { capacity: Some(ByteSize(9 << 40)), ..DriveFlags::default() },
            expect![[r#"
            error: capacity = 9 TiB is more than 7 TiB, which is what the entries of a map in memory can name
              fix: choose less, or keep the map of a block drive on media: map_memory = 10%"#]],
        );
        check(
            DriveFlags { over_provisioning: Some(Share::percent(0)), ..DriveFlags::default() },
            expect![[r#"
            error: over_provisioning = 0% is not between 1% and 400%
              fix: drives have 7% to 28%"#]],
        );
        check(
            DriveFlags { checkpoint_interval: Some(Nanos::from_millis(5)), ..DriveFlags::default() },
            expect![[r#"
                error: checkpoint_interval = 5000.0 µs is less than 100.0 ms: the drive would do little else
                  fix: choose 1s, 10s or the like, or leave it away"#]],
        );
        check(
            DriveFlags { scrub_interval: Some("1s".parse().unwrap()), ..DriveFlags::default() },
            expect![[r#"
            error: scrub_interval = 1s is less than 1min
              fix: drives read all they hold once in a few days: 7d; or write never"#]],
        );
        check(
            DriveFlags { drive: Some("none.toml".into()), ..DriveFlags::default() },
            expect![[r#"
                error: --drive none.toml: No such file or directory (os error 2)
                  fix: name a drive description (TOML), such as those in the `drives` folder"#]],
        );
    }
}
