//! A run, drawn from a seed: a device, a drive, and what happens to it.
//!
//! Each run has only some of the features, so that each is also seen without the others: a bug that trims hide is found by
//! a run without trims.

mod steps;

use crate::file_play::FilePlay;
use crate::page_world::PageWorld;
use crate::played::Plays;
use crate::step::{Range, Step};
use crate::table_world::TableWorld;
use crate::world::VICTIM_POLICIES;
use crate::zone_world::ZoneWorld;
use openftl_core::units::Share;
use openftl_core::{BLOCK_BYTES, FrameForm, Nanos, UnknownWord};
use openftl_media::Profile;
use openftl_media::profile::{Cell, Programming};
use openftl_parts::config::{Left, TRIM_STEP_ENTRIES};
use openftl_parts::map::Width;
use openftl_parts::map::cache::CachePolicy;
use openftl_parts::map::directory::PageSize;
use openftl_parts::map::memory::{MapBudget, MapMemory};
use openftl_parts::open_error::OpenError;
use openftl_parts::{CollectionScope, Config, PlacementName, RelocateBy, VictimPolicy};
use openftl_zones::{Face, Limits, ZoneConfig};
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::fmt;
use steps::{beyond, file_steps, long_loop, steps, with_hints, with_silent_faults, with_tables, zone_steps};
use strum::{Display, EnumString, VariantNames};

/// What chance follows from.
pub struct Dice(Xoshiro256PlusPlus);

impl Dice {
    /// The sequence that belongs to `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Dice {
        Dice(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    /// From `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.0.next_u64() % (high - low + 1)
    }

    /// Once in `times`.
    pub fn once_in(&mut self, times: u64) -> bool {
        self.between(1, times) == 1
    }

    /// One of these.
    pub fn one_of<T: Copy>(&mut self, among: &[T]) -> T {
        among[self.between(0, among.len() as u64 - 1) as usize]
    }
}

/// Which drives are drawn: `all`, or those of some kinds.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Display, EnumString, VariantNames)]
#[strum(serialize_all = "kebab-case", parse_err_ty = UnknownWord, parse_err_fn = unknown)]
pub enum Drives {
    /// Block drives and table drives of every kind. Zoned drives are drawn by themselves.
    #[default]
    All,
    /// Block drives that have their map in memory, and table drives.
    MapInMemory,
    /// Block drives that have their map on media.
    MapOnMedia,
    /// Zoned drives.
    Zones,
    /// Stores of pages.
    Pages,
    /// File systems on drives of segments.
    Files,
}

fn unknown(text: &str) -> UnknownWord {
    UnknownWord::new(text, "kind of drive", Drives::VARIANTS)
}

/// What a drive is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Blocks.
    Blocks,
    /// Tables, and blocks beside them.
    Tables {
        /// Chunks of each parallel unit for tables.
        chunks: u32,
    },
    /// Zones.
    Zones {
        /// What they are like.
        zoned: ZoneConfig,
        /// Chunks of each parallel unit.
        chunks: u32,
    },
    /// Pages of any size.
    Pages {
        /// Chunks of each parallel unit.
        chunks: u32,
    },
    /// Files.
    Files {
        /// What its segments are like.
        segments: ZoneConfig,
        /// Chunks of each parallel unit.
        chunks: u32,
    },
}

/// A device and a drive on it.
#[derive(Clone, Debug)]
pub struct Setting {
    /// What chance inside the device follows from.
    pub seed: u64,
    /// The device.
    pub profile: Profile,
    /// The drive.
    pub config: Config,
    /// Chunks held back for others that go bad, in percent.
    pub spare: u32,
    /// Requests under way at a time.
    pub depth: usize,
    /// What the drive is for.
    pub kind: Kind,
    /// How much longer or shorter than usual each operation of a die may take, in percent.
    pub jitter: u32,
}

/// The world at the beginning of a run.
pub enum World {
    /// With a block drive.
    Block(Box<crate::World>),
    /// With a table drive.
    Tables(Box<TableWorld>),
    /// With a zoned drive.
    Zones(Box<ZoneWorld>),
    /// With a store of pages.
    Pages(Box<PageWorld>),
    /// With a file system.
    Files(Box<FilePlay>),
}

impl Setting {
    fn draw(seed: u64, drives: Drives, dice: &mut Dice) -> Setting {
        let tables = tables(&mut Dice::new((!seed).rotate_left(16))).filter(|_| drives != Drives::MapOnMedia);
        // What is drawn for zones does for pages and files.
        let has_zones = matches!(drives, Drives::Zones | Drives::Pages | Drives::Files);
        let tables = tables.filter(|_| !has_zones);
        let mut zones = Dice::new(seed.rotate_left(24));
        let mut apart = Dice::new(seed.rotate_left(48));
        let is_narrow = is_narrow(seed);
        let jitter = if apart.once_in(4) { apart.one_of(&[5, 30, 90]) } else { 0 };
        loop {
            let mut profile = profile(dice);
            let mut config = config(seed, &profile, dice);
            place(&mut config, &mut Dice::new(!seed));
            collect(&mut config, &mut Dice::new(seed.rotate_left(32)));
            if tables.is_none() && !has_zones {
                keep_map_on_media(&mut config, drives, &mut Dice::new((!seed).rotate_left(32)));
            }
            if tables.is_some() || has_zones {
                config.payload = FrameForm::Bytes;
                // There is nothing to be announced.
                config.placement = match config.placement {
                    PlacementName::FlashAlloc => PlacementName::default(),
                    placement => placement,
                };
            }
            let (mut spare, depth) = (dice.one_of(&[0, 20, 50]), dice.one_of(&[1, 2, 5, 16]));
            if is_narrow {
                narrow(&mut profile, &mut config, &mut apart);
                spare = apart.one_of(&[0, 0, 1, 3]);
            }
            let kind = match tables {
                _ if drives == Drives::Pages => {
                    config.victim = PAGE_VICTIMS[seed as usize % PAGE_VICTIMS.len()];
                    config.host_frames = zones.one_of(&[300, 600]);
                    config.map_memory = index_on_media(seed);
                    Kind::Pages { chunks: zones.between(50, 110) as u32 }
                }
                _ if drives == Drives::Files => segmented(&profile, &mut config, &mut zones),
                _ if has_zones => with_windows(seed, &profile, zoned(&profile, &mut config, &mut zones)),
                Some(chunks) => Kind::Tables { chunks },
                None => Kind::Blocks,
            };
            let setting = Setting { seed, config, profile, spare, depth, kind, jitter };
            // Not every device can hold every drive.
            if setting.profile.validate().is_ok() && setting.world().is_ok() {
                return setting;
            }
        }
    }

    /// The world at the beginning of the run.
    ///
    /// # Errors
    /// If there can be no such drive.
    pub fn world(&self) -> Result<World, OpenError> {
        let (profile, config) = (self.profile.clone(), self.config.clone());
        Ok(match self.kind {
            Kind::Blocks => {
                let mut world = crate::World::try_new(profile, config, self.spare, self.seed)?;
                world.device().set_jitter(self.jitter, self.seed);
                world.may_wear_out = true;
                World::Block(Box::new(world))
            }
            Kind::Tables { chunks } => {
                let mut world = TableWorld::try_new(profile, config, self.spare, chunks, self.seed)?;
                world.device().set_jitter(self.jitter, self.seed);
                world.may_wear_out = true;
                World::Tables(Box::new(world))
            }
            Kind::Zones { zoned, chunks } => {
                let mut world = ZoneWorld::try_new(profile, config, zoned, chunks, self.seed)?;
                world.wire.device().set_jitter(self.jitter, self.seed);
                world.may_wear_out = true;
                World::Zones(Box::new(world))
            }
            Kind::Pages { chunks } => {
                let world = PageWorld::try_new(profile, config, chunks, self.seed)?;
                world.wire.device().set_jitter(self.jitter, self.seed);
                World::Pages(Box::new(world))
            }
            Kind::Files { segments, chunks } => {
                let play = FilePlay::new(profile, config, segments, chunks, self.seed).map_err(OpenError::Limits)?;
                play.wire().device().set_jitter(self.jitter, self.seed);
                World::Files(Box::new(play))
            }
        })
    }
}

/// How chunks with pages are cleaned, in turn.
const PAGE_VICTIMS: [VictimPolicy; 3] =
    [VictimPolicy::Greedy, VictimPolicy::CostBenefit, VictimPolicy::MinimumDecliningCost];

/// One store of pages of three has hardly any of its index in memory, in leaves of a few pages.
fn index_on_media(seed: u64) -> Option<MapMemory> {
    let mut dice = Dice::new((!seed).rotate_left(32));
    let page = PageSize::of(dice.one_of(&[8, 12, 40, 1024]), Width::Narrow).expect("as many as a page may have");
    let budget = MapBudget::BeyondLeast(dice.one_of(&[0, 2_000, 8_000]));
    let policy = dice.one_of(CachePolicy::ALL);
    (seed % 3 == 2).then_some(MapMemory { budget, policy, page })
}

fn profile(dice: &mut Dice) -> Profile {
    let mut profile = Profile::builtin("tiny").expect("a builtin profile");
    profile.groups = dice.one_of(&[1, 2, 2, 3]);
    profile.pus_per_group = dice.one_of(&[1, 2, 2, 3]);
    let cell = dice.one_of(&[Cell::Slc, Cell::Mlc, Cell::Tlc, Cell::Qlc]);
    let bits = cell.bits();
    let shared = bits > 1 && dice.once_in(2);
    let chip = &mut profile.chip;
    (chip.cell, chip.planes, chip.page_blocks) = (cell, dice.one_of(&[1, 1, 2]), dice.one_of(&[1, 1, 2, 4]));
    chip.programming = if shared { Programming::Shared } else { Programming::OneShot };
    chip.pair_distance = shared.then(|| dice.one_of(&[1, 2, 3]));
    chip.read_us = (0..bits).map(|bit| 40 + 20 * bit).collect();
    chip.program_us = if shared { (0..bits).map(|bit| 400 << bit).collect() } else { vec![800] };
    chip.erase_us = dice.one_of(&[1_000, 3_000]);
    chip.endurance = if dice.once_in(6) { dice.between(15, 40) as u32 } else { 3_000 };
    let word_lines = chip.planes * chip.page_blocks * bits * chip.pair_distance.unwrap_or(1);
    let blocks_per_chunk = dice.one_of(&[16, 24, 32, 48]);
    chip.blocks_per_chunk = word_lines * (blocks_per_chunk / word_lines).max(2);
    let program_blocks = profile.program_blocks();
    profile.cache.blocks_per_pu = program_blocks * dice.one_of(&[0, 1, 2, 4]);
    profile.cache.power_loss_protection = dice.once_in(2);
    if dice.once_in(5) {
        profile.open_chunks_max = dice.between(10, 16) as u32;
    }
    if dice.once_in(4) {
        profile.faults.program_fail = 0.005;
        profile.faults.erase_fail = 0.002;
    }
    if dice.once_in(4) {
        profile.faults.high_ecc = 0.05;
    }
    if dice.once_in(4) {
        profile.faults.read_retry = 0.01;
    }
    if dice.once_in(4) {
        profile.faults.factory_bad = Share::percent(3);
    }
    profile
}

fn config(seed: u64, profile: &Profile, dice: &mut Dice) -> Config {
    // With small units a checkpoint has few frames. A map of several blocks is then taken bit by bit, while it changes.
    let is_taken_bit_by_bit = profile.program_blocks() * profile.groups <= 2;
    Config {
        capacity_blocks: if is_taken_bit_by_bit { dice.between(3_100, 4_000) } else { dice.between(100, 800) },
        over_provisioning: Share::percent(dice.one_of(&[10, 20, 40])),
        drive_id: 0xD21E_0000 + seed,
        payload: if dice.once_in(6) { FrameForm::Bytes } else { FrameForm::Stamp },
        host_frames: dice.one_of(&[300, 400, 600]),
        write_through: dice.once_in(10),
        checkpoint_log_blocks: dice.one_of(&[Some(8), Some(24), None]),
        // Not drawn, so that all else is what it was. Most trims take several steps then.
        trim_step_entries: if seed.is_multiple_of(2) { TRIM_STEP_ENTRIES } else { 5 },
        checkpoint_interval: dice.one_of(&[None, Some(Nanos::from_millis(1)), Some(Nanos::from_millis(20))]),
        victim: dice.one_of(&[VictimPolicy::Greedy, VictimPolicy::CostBenefit]),
        marked_groups_max: dice.one_of(&[None, None, Some(1), Some(2)]),
        scrub_interval: dice.one_of(&[None, Some(Nanos::from_millis(100)), Some(Nanos::from_millis(1_000))]),
        wear_spread_max: dice.one_of(&[Config::default().wear_spread_max, None, Some(2)]),
        ..Config::default()
    }
}

/// Every other drive places its data, and every other one collects its garbage, by more than the plainest choices. This is
/// drawn apart from all the rest, so that a quarter of the runs is what it would be without.
fn place(config: &mut Config, dice: &mut Dice) {
    if dice.once_in(2) {
        config.victim = dice.one_of(&VICTIM_POLICIES);
        config.collection = dice.one_of(&[CollectionScope::Marked, CollectionScope::DeviceWide]);
    }
    if dice.once_in(2) {
        config.placement = dice.one_of(PlacementName::ALL);
        config.handles = dice.between(1, 4) as u8;
        config.objects_max = dice.between(1, 4) as u16;
    }
}

/// One drive of four has the device copy what it moves, and one of four works ahead while its host is silent.
fn collect(config: &mut Config, dice: &mut Dice) {
    if dice.once_in(4) {
        config.relocate_by = RelocateBy::DeviceCopy;
    }
    if dice.once_in(4) {
        config.collect_when_idle = Some(Nanos::from_millis(dice.between(1, 10)));
    }
}

/// One block drive of six has its map on media, and as little memory for it as there can be, or some more. This is drawn apart, so
/// that the others are what they would be without.
fn keep_map_on_media(config: &mut Config, drives: Drives, dice: &mut Dice) {
    let is_drawn = dice.once_in(6);
    if drives == Drives::MapInMemory || (drives == Drives::All && !is_drawn) {
        return;
    }
    let page = PageSize::of(dice.one_of(&[8, 16, 64, 1024]), Width::Narrow).expect("as many as a page may have");
    let budget = MapBudget::BeyondLeast(dice.one_of(&[0, 200, 4_000, 1 << 20]));
    let memory = MapMemory { budget, policy: dice.one_of(CachePolicy::ALL), page };
    // As on a drive of more than 8 TiB.
    config.map_memory = Some(if dice.once_in(3) { memory.wide() } else { memory });
    config.relocate_by = RelocateBy::ReadAndWrite;
    if config.placement == PlacementName::Learned {
        config.placement = PlacementName::default();
    }
}

/// Whether the drive of `seed` has as little room, and as small settings, as there can be. One of four has.
#[must_use]
pub fn is_narrow(seed: u64) -> bool {
    Dice::new((!seed).rotate_left(48)).once_in(4)
}

/// As little room as there can be, the smallest settings, and an odd shape.
fn narrow(profile: &mut Profile, config: &mut Config, dice: &mut Dice) {
    (profile.groups, profile.pus_per_group) = (dice.one_of(&[1, 2, 2, 3]), dice.one_of(&[1, 1, 1, 2]));
    let chip = &mut profile.chip;
    (chip.planes, chip.page_blocks) = (dice.one_of(&[1, 2, 3]), dice.one_of(&[1, 2, 3, 4]));
    let bits = chip.cell.bits();
    let word_lines = chip.planes * chip.page_blocks * bits * chip.pair_distance.unwrap_or(1);
    // One word line more than none: of paired pages most of the chunk cannot be read while it is open.
    chip.blocks_per_chunk = word_lines * CHUNK_BLOCKS_MIN.div_ceil(word_lines).max(dice.between(1, 3) as u32);
    if dice.once_in(4) {
        (chip.endurance, profile.faults.program_fail) = (16, 0.03);
    }
    let program_blocks = profile.program_blocks();
    profile.cache.blocks_per_pu = program_blocks * dice.one_of(&[0, 0, 1, 3]);
    config.capacity_blocks = dice.between(60, 400);
    config.over_provisioning = Share::percent(dice.between(1, 7) as u32);
    config.host_frames = dice.one_of(&[260, 300]);
    config.checkpoint_log_blocks = dice.one_of(&[Some(1), Some(1), Some(2), Some(5)]);
    config.write_through = dice.once_in(3);
    config.marked_groups_max = dice.one_of(&[None, Some(1)]);
    config.wear_spread_max = dice.one_of(&[config.wear_spread_max, Some(1)]);
    (config.handles, config.objects_max) = (dice.between(1, 2) as u8, 1);
}

/// A chunk has so many blocks, at least.
const CHUNK_BLOCKS_MIN: u32 = 12;

/// What the drive of `setting` is opened with that `number` stands for; 0: what it was made with. Another placement may need more
/// chunks than it has, and is refused then.
#[must_use]
pub fn other_settings(setting: &Setting, number: u32) -> Config {
    let mut config = setting.config.clone();
    if number == 0 {
        return config;
    }
    let mut dice = Dice::new(u64::from(number));
    config.write_through = dice.once_in(3);
    config.checkpoint_interval = dice.one_of(&[None, Some(Nanos::from_millis(1)), Some(Nanos::from_millis(20))]);
    config.victim = dice.one_of(&VICTIM_POLICIES);
    config.collection = dice.one_of(&[CollectionScope::Marked, CollectionScope::DeviceWide]);
    config.marked_groups_max = dice.one_of(&[None, Some(1), Some(2)]);
    config.scrub_interval = dice.one_of(&[None, Some(Nanos::from_millis(100))]);
    config.wear_spread_max = dice.one_of(&[None, Some(1), Some(32)]);
    config.relocate_by = dice.one_of(&[RelocateBy::ReadAndWrite, RelocateBy::DeviceCopy]);
    config.collect_when_idle = dice.one_of(&[None, Some(Nanos::from_millis(1))]);
    config.host_frames = dice.one_of(&[300, 600]);
    // Of what sizes the drive, some is left to it, and a checkpoint may come sooner than it was made for.
    config.left = if dice.once_in(2) { Left::ALL } else { Left::default() };
    config.checkpoint_log_blocks = dice.one_of(&[None, config.checkpoint_log_blocks, Some(1)]);
    let placement = dice.one_of(PlacementName::ALL);
    if let Some(memory) = &mut config.map_memory {
        memory.budget = MapBudget::BeyondLeast(u64::from(number) % 3 * 2_000);
        config.relocate_by = RelocateBy::ReadAndWrite;
        if placement == PlacementName::Learned {
            return config;
        }
    }
    // With tables there is nothing to be announced.
    if dice.once_in(3) && (setting.kind == Kind::Blocks || placement != PlacementName::FlashAlloc) {
        config.placement = placement;
        (config.handles, config.objects_max) = (dice.between(1, 4) as u8, dice.between(1, 4) as u16);
    }
    config
}

/// Zones as a device can have them, most often few, so that they are written and reset again and again.
fn zoned(profile: &Profile, config: &mut Config, dice: &mut Dice) -> Kind {
    let pus = profile.groups * profile.pus_per_group;
    let width = dice.one_of(&[1, 1, 2, pus]).min(pus);
    let max_open = dice.between(1, 3) as u32;
    let limits = Limits { max_open, max_active: max_open + dice.between(0, 2) as u32 };
    let few = dice.between(2, 12) as u32;
    let zones = dice.one_of(&[None, Some(few)]);
    config.host_frames = dice.one_of(&[300, 600]);
    Kind::Zones {
        zoned: ZoneConfig { face: Face::Zones, width, limits, zones, extension_bytes: 0, window_blocks: 0 },
        chunks: dice.between(6, 40) as u32,
    }
}

/// A drive that is no larger than a file system needs, or a bit larger, seen as segments or as zones.
fn segmented(profile: &Profile, config: &mut Config, dice: &mut Dice) -> Kind {
    let pus = profile.groups * profile.pus_per_group;
    let width = dice.one_of(&[1, 1, 2]).min(pus);
    let zones = dice.one_of(&[64, 64, 70, 90]);
    let active = dice.between(8, 10) as u32;
    config.host_frames = dice.one_of(&[640, 900]);
    let face = dice.one_of(&[Face::Segments, Face::Zones]);
    let limits = Limits { max_open: active, max_active: active };
    let segments = ZoneConfig { face, width, limits, zones: Some(zones), extension_bytes: 0, window_blocks: 0 };
    Kind::Files { segments, chunks: (zones * width).div_ceil(pus) + dice.between(20, 60) as u32 }
}

/// Some drives have zones with windows; those have none whose histories were kept before there were windows (`sim/tests/explore/found.rs`).
fn with_windows(seed: u64, profile: &Profile, kind: Kind) -> Kind {
    let Kind::Zones { zoned, chunks } = kind else { return kind };
    if seed.wrapping_add(2) % 16 >= 5 {
        return kind;
    }
    let most = (zoned.width * profile.chip.blocks_per_chunk).ilog2();
    let window_blocks = 1 << Dice::new(seed.rotate_left(40)).between(0, most.min(6).into());
    Kind::Zones { zoned: ZoneConfig { window_blocks, ..zoned }, chunks }
}

/// One drive of five is a table drive. This is drawn apart, so that the others are what they would be without.
fn tables(dice: &mut Dice) -> Option<u32> {
    dice.once_in(5).then(|| dice.between(2, 10) as u32)
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Setting { profile, config, spare, depth, kind, jitter, .. } = self;
        let chip = &profile.chip;
        write!(
            f,
            "{} groups of {} PUs, chunks of {} blocks, {:?} {:?} in units of {}, cache of {} {}, {} KiB at {} \
             over-provisioning and {spare}% spare, {}{}{}{} {:?} {:?}{}, checkpoint after {:?}, {}jitter {jitter}%, depth {depth}",
            profile.groups,
            profile.pus_per_group,
            chip.blocks_per_chunk,
            chip.cell,
            chip.programming,
            profile.program_blocks(),
            profile.cache.blocks_per_pu,
            if profile.cache.power_loss_protection { "protected" } else { "not protected" },
            config.capacity_blocks * BLOCK_BYTES as u64 / 1024,
            config.over_provisioning,
            match kind {
                Kind::Blocks => String::new(),
                Kind::Tables { chunks } => format!("{chunks} chunks of each PU for tables, "),
                Kind::Zones { zoned: ZoneConfig { width, limits, zones, window_blocks, .. }, chunks } => format!(
                    "{} of {width} PUs on {chunks} chunks of each, {} open and {} active, {}",
                    zones.map_or("as many zones as can be".to_owned(), |zones| format!("{zones} zones")),
                    limits.max_open,
                    limits.max_active,
                    match window_blocks {
                        0 => String::new(),
                        blocks => format!("windows of {blocks} blocks, "),
                    }
                ),
                Kind::Pages { chunks } => format!("pages on {chunks} chunks of each PU, "),
                Kind::Files { segments: ZoneConfig { face, width, limits, zones, .. }, chunks } => format!(
                    "files on {} {} of {width} PUs on {chunks} chunks of each, {} active, ",
                    zones.unwrap_or(0),
                    face.noun(),
                    limits.max_active
                ),
            },
            config.map_memory.map_or(String::new(), |memory| {
                let (entries, width) = (memory.page.entries(), memory.page.width());
                let wide = if width == Width::Wide { "wide " } else { "" };
                format!("map pages of {entries} {wide}entries and {:?} ({}), ", memory.budget, memory.policy)
            }),
            match config.placement {
                placement if placement.heeds_handles() => format!("{placement} with {} handles, ", config.handles),
                PlacementName::FlashAlloc => format!("flash-alloc with {} objects, ", config.objects_max),
                placement => format!("{placement}, "),
            },
            config.victim,
            config.collection,
            config.relocate_by,
            if config.collect_when_idle.is_some() { " ahead" } else { "" },
            config.checkpoint_log_blocks,
            if config.write_through { "write-through, " } else { "" },
        )
    }
}

/// A run: where it happens, and what.
#[derive(Clone, Debug)]
pub struct Run {
    /// What its setting follows from, and its steps unless they were given.
    pub seed: u64,
    /// The device and the drive.
    pub setting: Setting,
    /// What happens.
    pub steps: Vec<Step>,
}

/// A step that the drive of this seed cannot take.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "step `{step}` names blocks beyond the {capacity} (or none, or more than 256) of the drive of seed {seed}, or something that it has not"
)]
pub struct Beyond {
    step: String,
    capacity: u64,
    seed: u64,
}

/// Two groups of one parallel unit, units of 16 blocks, 2 % of over-provisioning, and a checkpoint as often as can be.
fn two_units_of_sixteen(seed: u64) -> Setting {
    let mut profile = Profile::builtin("tiny").expect("a builtin profile");
    let chip = &mut profile.chip;
    (chip.cell, chip.programming, chip.pair_distance) = (Cell::Qlc, Programming::OneShot, None);
    (chip.read_us, chip.program_us) = (vec![40, 60, 80, 100], vec![800]);
    (profile.groups, profile.pus_per_group, profile.cache.blocks_per_pu) = (2, 1, 0);
    let config = Config {
        capacity_blocks: 137,
        over_provisioning: Share::percent(2),
        drive_id: 0xD21E_0000 + seed,
        payload: FrameForm::Stamp,
        write_through: seed.is_multiple_of(2),
        checkpoint_log_blocks: Some(1),
        ..Config::default()
    };
    Setting { seed, profile, config, spare: 0, depth: 1, kind: Kind::Blocks, jitter: 0 }
}

impl Run {
    /// A long loop on a drive of two units of sixteen blocks, which has less room than any other.
    #[must_use]
    pub fn long_loop(seed: u64) -> Run {
        let setting = two_units_of_sixteen(seed);
        let steps = long_loop(&setting, &mut Dice::new(seed));
        Run { seed, setting, steps }
    }

    /// The run of a seed.
    #[must_use]
    pub fn draw(seed: u64) -> Run {
        Run::draw_of(seed, Drives::All)
    }

    /// The run of a seed, on a drive of these.
    #[must_use]
    pub fn draw_of(seed: u64, drives: Drives) -> Run {
        let mut dice = Dice::new(seed);
        let setting = Setting::draw(seed, drives, &mut dice);
        let is_loop = is_narrow(seed) && setting.kind == Kind::Blocks && Dice::new(seed.rotate_left(8)).once_in(2);
        if let Kind::Files { .. } = setting.kind {
            let steps = file_steps(&setting, &mut dice);
            return Run { seed, setting, steps };
        }
        if let Kind::Zones { .. } | Kind::Pages { .. } = setting.kind {
            let steps = beyond(zone_steps(&setting, &mut dice), &mut Dice::new((!seed).rotate_left(8)));
            return Run { seed, setting, steps };
        }
        let steps = if is_loop { long_loop(&setting, &mut dice) } else { steps(&setting, &mut dice) };
        let steps = beyond(steps, &mut Dice::new((!seed).rotate_left(8)));
        let steps = with_hints(steps, &setting, &mut Dice::new(!seed));
        let steps = with_silent_faults(steps, &mut Dice::new(seed ^ 0x51_1E17));
        let steps = if setting.kind == Kind::Blocks { steps } else { with_tables(steps, &mut Dice::new(!seed)) };
        Run { seed, setting, steps }
    }

    /// Other steps in the setting of a seed.
    ///
    /// # Errors
    /// If a step names blocks that this drive does not have.
    pub fn with_steps(seed: u64, drives: Drives, steps: Vec<Step>) -> Result<Run, Beyond> {
        let setting = Setting::draw(seed, drives, &mut Dice::new(seed));
        let capacity = setting.config.capacity_blocks;
        for step in &steps {
            let fits = |range: Range| {
                range.blocks > 0 && range.first.checked_add(range.blocks).is_some_and(|end| end <= capacity)
            };
            let most = if matches!(step, Step::Trim(..) | Step::Announce(_)) { u64::MAX } else { 256 };
            let is_for_blocks = matches!(step, Step::WriteUncorrectable(..) | Step::Announce(_));
            let (is_for_tables, is_for_zones) = (matches!(step, Step::Table(_)), matches!(step, Step::Zone(_)));
            let is_for_files = matches!(step, Step::File(_));
            let is_of_another_kind = match setting.kind {
                Kind::Blocks => is_for_tables || is_for_zones || is_for_files,
                Kind::Tables { .. } => is_for_blocks || is_for_zones || is_for_files,
                Kind::Zones { .. } | Kind::Pages { .. } => {
                    step.range().is_some() || is_for_tables || is_for_files || matches!(step, Step::Handle(_))
                }
                Kind::Files { .. } => {
                    let is_request = step.range().is_some() || is_for_tables || is_for_zones;
                    is_request || matches!(step, Step::Handle(_) | Step::Flush | Step::Settings(_))
                }
            };
            if is_of_another_kind || step.range().is_some_and(|range| !fits(range) || range.blocks > most) {
                return Err(Beyond { step: step.to_string(), capacity, seed });
            }
        }
        Ok(Run { seed, setting, steps })
    }
}
