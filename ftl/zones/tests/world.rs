//! A drive does what its model says, whatever its shape.

use crate::crash_points::{ONE_SHOT, UNPROTECTED};
use openftl_blocks::{BlockFtl, Ftl};
use openftl_core::{Clock, FrameForm, Nanos, Time, VirtualClock};
use openftl_media::{EmulatedDevice, Media, Store, Timing};
use openftl_parts::Durability;
use openftl_parts::{Access, Config, Target};
use openftl_sim::ZoneWorld;
use openftl_sim::fate::Fates;
use openftl_sim::played::Played;
use openftl_sim::step::Moment;
use openftl_sim::world::profile;
use openftl_zones::{Action, AskedLimits, Face, Limits, ZoneConfig, ZoneError, ZoneFtl, ZoneRequest, ZoneState};

/// A small drive: what of its profile is other than `tiny` has, how wide its zones are, and how many may be open and active.
pub fn world(changes: &[(&str, &str)], width: u32, max_open: u32, max_active: u32, seed: u64) -> ZoneWorld {
    world_with(changes, width, Limits { max_open, max_active }, 0, seed)
}

/// The same with so many bytes of zone descriptor extension.
pub fn world_with(changes: &[(&str, &str)], width: u32, limits: Limits, extension_bytes: u32, seed: u64) -> ZoneWorld {
    world_of(changes, zoned_with(width, limits, extension_bytes), seed)
}

/// Five zones.
pub fn zoned_with(width: u32, limits: Limits, extension_bytes: u32) -> ZoneConfig {
    ZoneConfig { face: Face::Zones, width, limits, zones: Some(5), extension_bytes, window_blocks: 0 }
}

/// A small drive with such zones.
pub fn world_of(changes: &[(&str, &str)], zoned: ZoneConfig, seed: u64) -> ZoneWorld {
    let config = Config { host_frames: 256, checkpoint_log_blocks: Some(24), ..Config::default() };
    for chunks in (8..400).step_by(4) {
        if let Ok(world) = ZoneWorld::try_new(profile("tiny", changes), config.clone(), zoned, chunks, seed) {
            return world;
        }
    }
    let error = ZoneWorld::try_new(profile("tiny", changes), config, zoned, 400, seed).err();
    panic!("no device is large enough: {error:?}");
}

#[test]
fn what_is_written_is_read_before_and_after_it_is_on_media() {
    let mut world = world(&[], 2, 3, 4, 1);
    for blocks in [1, 2, 3, 5, 8, 13] {
        world.write(0, blocks, Durability::Volatile, false).unwrap();
        world.write(1, blocks, Durability::Volatile, true).unwrap();
    }
    world.verify_all();
    world.flush();
    world.verify_all();
    world.clean_restart();
    world.verify_all();
    assert_eq!([0, 1, 2].map(|zone| world.state(zone)), [ZoneState::Closed, ZoneState::Closed, ZoneState::Empty]);
    world.act(0, Action::Reset).unwrap();
    world.act(1, Action::Finish).unwrap();
    world.verify_all();
    world.clean_restart();
    assert_eq!([0, 1].map(|zone| world.state(zone)), [ZoneState::Empty, ZoneState::Full]);
    world.verify_all();
}

#[test]
fn a_zone_takes_its_capacity_and_no_more() {
    let mut world = world(&[], 2, 3, 4, 1);
    let capacity = world.layout().capacity;
    let refused = world.write(0, 1 + capacity.min(200), Durability::Volatile, true);
    assert!(refused.is_ok() || matches!(refused, Err(ZoneError::Boundary { .. })));
    while world.written(0) < capacity {
        let left = (capacity - world.written(0)).min(50);
        world.write(0, left, Durability::Volatile, false).unwrap();
        world.settle();
    }
    assert_eq!(world.write(0, 1, Durability::Volatile, false), Err(ZoneError::Full { zone: 0 }));
    world.verify_all();
    assert_eq!(world.ftl().board().resources(), (0, 0));
}

#[test]
fn drives_of_many_shapes_agree_with_the_model() {
    for seed in 0..24 {
        let mut world = world(&[], 1 + seed as u32 % 4, 2, 3, seed);
        for step in 0..1_500 {
            world.operation(1 + seed as usize % 6);
            if step % 500 == 499 {
                world.clean_restart();
            }
        }
        world.verify_all();
        world.prove(50);
    }
}

/// Program failures on top, of which a zone's host notices nothing as long as there are chunks.
const FAILING: &[(&str, &str)] = &[("endurance = 3000", "endurance = 3000\n\n[faults]\nprogram_fail = 0.012")];

#[test]
fn columns_move_away_from_chunks_that_fail_and_the_host_notices_nothing() {
    let mut moved = 0;
    for seed in 0..24 {
        let mut world = world(FAILING, 1 + seed as u32 % 3, 2, 3, seed);
        for _ in 0..250 {
            world.operation(3);
        }
        world.verify_all();
        moved += world.ftl().statistics().1.columns_moved;
        world.clean_restart();
        world.verify_all();
    }
    assert!(moved > 20, "{moved} columns moved: the test is to show that they do");
}

/// So many failures that the drive wears out.
const WEARING: &[(&str, &str)] = &[("endurance = 3000", "endurance = 3000\n\n[faults]\nprogram_fail = 0.05")];

#[test]
fn a_worn_out_drive_takes_nothing_and_can_be_read() {
    for seed in 0..8 {
        let mut world = world(WEARING, 1 + seed as u32 % 2, 2, 3, seed);
        let mut refused = None;
        for _ in 0..3_000 {
            let zone = world.below(2);
            let result = match world.state(zone) {
                ZoneState::Full => world.act(zone, Action::Reset),
                _ => world.write(zone, 8, Durability::Volatile, true),
            };
            world.idle(Nanos::from_millis(4));
            if let Err(error @ (ZoneError::DriveReadOnly(_) | ZoneError::ReadOnly { .. })) = result {
                refused = Some(error);
                break;
            }
        }
        assert!(refused.is_some(), "seed {seed}: the drive is to wear out");
        world.verify_all();
        world.idle(Nanos::from_millis(200));
        world.verify_all();
        // What was said of a zone that lost its medium may have been in memory alone: the drive opens all the same.
        world.ftl = None;
        world.wire.power_cut(Moment::NOW);
        world.recover().unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        world.verify_all();
    }
}

#[test]
fn drives_that_cannot_be_are_refused_with_the_reason() {
    let refused = |width, max_open, max_active, zones, chunks| {
        let zoned = ZoneConfig {
            face: Face::Zones,
            width,
            limits: Limits { max_open, max_active },
            zones,
            extension_bytes: 0,
            window_blocks: 0,
        };
        let world = ZoneWorld::try_new(profile("tiny", &[]), Config::default(), zoned, chunks, 1);
        world.err().expect("there can be no such drive").to_string()
    };
    for (found, field, fix) in [
        (refused(0, 1, 1, None, 200), "zone_width = 0", "1 to 4 parallel units"),
        (refused(5, 1, 1, None, 200), "zone_width = 5", "1 to 4 parallel units"),
        (refused(1, 0, 1, None, 200), "max_open_zones = 0", "at least one zone can be open"),
        (refused(1, 3, 2, None, 200), "max_active_zones = 2", "no more than are active"),
        (refused(1, 1, 5_000, None, 200), "max_active_zones = 5000", "1024 is the most"),
        (refused(1, 2, 3, Some(5_000), 200), "5000 zones of 1 chunks do not fit", "there is room for"),
        (refused(1, 2, 3, None, 8), "no room for zones", "take a larger device"),
    ] {
        assert!(found.contains(field) && found.contains(fix), "{found}");
    }
}

#[test]
fn a_drive_is_opened_as_what_it_is_and_with_no_more_active_zones_than_it_was_made_for() {
    let mut world = world(&[], 2, 2, 3, 1);
    world.write(0, 9, Durability::Volatile, false).unwrap();
    world.clean_restart();
    world.ftl = None;
    let config = Config::default();
    let open_as = |limits: AskedLimits| {
        let mut clock = world.clock;
        ZoneFtl::open_with(world.wire.clone(), config.clone(), limits, Access::ReadWrite, &mut clock)
    };
    let open_zones = |max_active| open_as(Limits { max_open: 1, max_active }.into());
    let limits = |asked| open_as(asked).unwrap().board().limits();
    assert_eq!(limits(AskedLimits::default()), Limits { max_open: 2, max_active: 3 }, "what nobody asks for is kept");
    let asked = AskedLimits { max_active: Some(1), ..AskedLimits::default() };
    assert_eq!(limits(asked), Limits { max_open: 1, max_active: 1 });
    let asked = AskedLimits { max_open: Some(4), ..AskedLimits::default() };
    let refused = open_as(asked).err().expect("more can be open than are active").to_string();
    assert!(refused.contains("max_open_zones = 4, max_active_zones = 3"), "{refused}");
    let refused = open_zones(4).err().expect("it was made for three").to_string();
    assert!(refused.contains("max_active_zones = 4") && refused.contains("for 3 at most"), "{refused}");
    let mut clock = world.clock;
    let as_blocks = BlockFtl::open(world.wire.clone(), config.clone(), &mut clock).err().expect("it has zones");
    assert_eq!(as_blocks.to_string(), "this is a zoned drive, and it is to be opened as a block drive");
    assert!(open_zones(1).is_ok(), "with fewer it is opened");
}

#[test]
fn what_no_host_may_ask_is_refused_and_nothing_changes() {
    let mut world = world(&[], 2, 2, 3, 1);
    let (size, capacity) = (world.layout().size, world.layout().capacity);
    let blocks = world.layout().blocks();
    let mut frames = Vec::new();
    assert!(world.ftl().frames_mut().acquire_many(FrameForm::Bytes, 300, &mut frames));
    let durability = Durability::Volatile;
    let before = world.ftl().board().clone();
    let now = world.clock.0;
    for (request, expected) in [
        (ZoneRequest::Write { first: 0, frames: &frames[..257], durability }, ZoneError::Length { blocks: 257 }),
        (ZoneRequest::Append { zone: 0, frames: &[], durability }, ZoneError::Length { blocks: 0 }),
        (ZoneRequest::Append { zone: 1, frames: &frames[..1], durability }, ZoneError::NotAZone { address: 1, size }),
        (ZoneRequest::Act { zone: size + 1, action: Action::Reset }, ZoneError::NotAZone { address: size + 1, size }),
        (
            ZoneRequest::Read { first: blocks, frames: &frames[..1] },
            ZoneError::OutOfRange { first: blocks, count: 1, blocks },
        ),
        (
            ZoneRequest::Read { first: u64::MAX, frames: &frames[..2] },
            ZoneError::OutOfRange { first: u64::MAX, count: 2, blocks },
        ),
        (
            ZoneRequest::Read { first: size - 1, frames: &frames[..2] },
            ZoneError::Boundary { zone: 0, end: size + 1, capacity },
        ),
        (
            ZoneRequest::Write { first: 5, frames: &frames[..1], durability },
            ZoneError::InvalidWrite { zone: 0, at: 5, expected: 0 },
        ),
    ] {
        assert_eq!(world.ftl().submit(now, 1, request), Err(expected), "{request:?}");
    }
    assert_eq!(world.ftl().board(), &before);
}

#[test]
fn histories_of_power_cuts_lose_nothing_that_was_flushed() {
    let kinds: [&[(&str, &str)]; 3] = [&[], UNPROTECTED, ONE_SHOT];
    // In 20784 three active zones were moving, and one that had been finished wanted a chunk more.
    for seed in (0..36).chain([20_784]) {
        let width = 1 + seed as u32 % 4;
        let mut world = world(kinds[seed as usize % 3], width, 2, 3, seed);
        for round in 0..25 {
            let events = 1 + u64::from(world.below(300));
            let fates = (world.below(3) == 0).then(|| Fates(world.below(1 << 20)));
            let moment = Moment { events, later: world.below(4), torn: world.below(2) == 0, fates };
            world.cut_at(moment).unwrap_or_else(|error| panic!("seed {seed}, width {width}, round {round}: {error}"));
        }
        world.prove(20);
    }
}

#[test]
fn a_check_reads_every_block_below_a_write_pointer_and_names_what_is_lost() {
    let mut clock = VirtualClock::default();
    let device = EmulatedDevice::new(profile("tiny", &[]), 48, Store::Ram, Timing::Instant, 1).unwrap();
    let config = Config { host_frames: 256, checkpoint_log_blocks: Some(24), ..Config::default() };
    let zoned = ZoneConfig {
        face: Face::Zones,
        width: 2,
        limits: Limits { max_open: 2, max_active: 3 },
        zones: None,
        extension_bytes: 0,
        window_blocks: 0,
    };
    let mut ftl = ZoneFtl::format(device, config.clone(), zoned, &mut clock).unwrap();
    let (size, capacity) = (ftl.layout().size, ftl.layout().capacity);
    for (zone, blocks) in [(0, capacity), (2, 5)] {
        let mut frames = Vec::new();
        assert!(ftl.frames_mut().acquire_many(FrameForm::Bytes, blocks as usize, &mut frames));
        let write = ZoneRequest::Write { first: zone * size, frames: &frames, durability: Durability::Volatile };
        ftl.submit(clock.now(), zone, write).unwrap();
    }
    let mut progress = Vec::new();
    let report = ftl.check(&mut clock, &mut |done, all| progress.push((done, all))).unwrap();
    assert!(report.is_sound(), "{:?}", report.findings);
    assert_eq!((report.zones, report.zone_blocks_verified), (2, u64::from(capacity) + 5), "those in memory, too");
    assert_eq!(progress.last().map(|(done, all)| done == all), Some(true), "{progress:?}");
    let mut device = ftl.close(&mut clock).unwrap();
    let report = device.whole_chunk_report(Time::ZERO).unwrap();
    let geometry = *device.geometry();
    let full: Vec<_> = report.iter().filter(|chunk| chunk.write_pointer == geometry.blocks_per_chunk).collect();
    let mut lost = 0;
    for chunk in full {
        device.corrupt(geometry.format().ppa(chunk.chunk, 3)).unwrap();
        let open = ZoneFtl::open_with(device, config.clone(), AskedLimits::default(), Access::Inspect, &mut clock);
        let mut ftl = open.unwrap();
        let report = ftl.check(&mut clock, &mut |_, _| {}).unwrap();
        lost = report.zone_blocks_lost;
        assert_eq!(report.zone_blocks_verified + lost, u64::from(capacity) + 5);
        if lost > 0 {
            assert_eq!(report.findings_total, lost);
            assert!(report.findings[0].starts_with("zone 0: logical block "), "{:?}", report.findings);
        }
        device = ftl.crash();
        if lost == 2 {
            break;
        }
    }
    assert_eq!(lost, 2, "one in each chunk of zone 0");
}

/// A small drive, its clock, and a way to have it do something at once.
struct Small {
    ftl: ZoneFtl<EmulatedDevice>,
    clock: VirtualClock,
}

impl Small {
    fn config() -> Config {
        Config { host_frames: 256, checkpoint_log_blocks: Some(24), ..Config::default() }
    }

    fn new() -> Small {
        let mut clock = VirtualClock::default();
        let profile = profile("tiny", UNPROTECTED);
        let device = EmulatedDevice::new(profile, 48, Store::Ram, Timing::Modelled, 1).unwrap();
        let zoned = ZoneConfig {
            face: Face::Zones,
            width: 2,
            limits: Limits { max_open: 2, max_active: 3 },
            zones: None,
            extension_bytes: 0,
            window_blocks: 0,
        };
        let ftl = ZoneFtl::format(device, Small::config(), zoned, &mut clock).unwrap();
        Small { ftl, clock }
    }

    fn wait(&mut self) -> Result<(), ZoneError> {
        let mut done = Vec::new();
        loop {
            self.ftl.poll(self.clock.now(), &mut done);
            if let Some(ended) = done.pop() {
                return ended.result;
            }
            self.clock.wait_until(self.ftl.next_due().expect("a request ends"));
        }
    }

    fn write(&mut self, first: u64, blocks: usize, durability: Durability) -> Result<(), ZoneError> {
        let mut frames = Vec::new();
        assert!(self.ftl.frames_mut().acquire_many(FrameForm::Bytes, blocks, &mut frames));
        let write = ZoneRequest::Write { first, frames: &frames, durability };
        let begun = self.ftl.submit(self.clock.now(), 1, write);
        if begun.is_err() {
            frames.iter().for_each(|frame| self.ftl.frames_mut().release(*frame));
        }
        begun.and_then(|()| self.wait())
    }

    fn flush(&mut self) -> Result<(), ZoneError> {
        self.ftl.submit(self.clock.now(), 2, ZoneRequest::Flush)?;
        self.wait()
    }

    /// Blocks of zone 0 that a power cut leaves.
    fn left_by_a_power_cut(mut self) -> u32 {
        let mut device = self.ftl.crash();
        device.power_cut(self.clock.now(), false).unwrap();
        let limits = AskedLimits::default();
        let ftl = ZoneFtl::open_with(device, Small::config(), limits, Access::ReadWrite, &mut self.clock);
        ftl.unwrap().board().zone(0).written
    }
}

#[test]
fn a_drive_that_lies_loses_what_it_promised_and_is_sound_all_the_same() {
    for (lies, left) in [(false, 7), (true, 0)] {
        let mut small = Small::new();
        small.ftl.lie_about_flush(lies);
        small.write(0, 3, Durability::Volatile).unwrap();
        small.write(3, 4, Durability::Durable).unwrap();
        let before = small.clock.0;
        small.flush().unwrap();
        assert!(!lies || small.clock.0 == before, "a lie takes no time");
        assert_eq!(small.left_by_a_power_cut(), left);
    }
}

#[test]
fn a_drive_that_takes_no_more_writes_flushes_if_there_is_nothing_to_save() {
    let mut small = Small::new();
    small.write(0, 7, Durability::Volatile).unwrap();
    small.flush().unwrap();
    small.ftl.give_up(small.clock.0);
    assert!(matches!(small.write(7, 1, Durability::Volatile), Err(ZoneError::DriveReadOnly(_))));
    assert_eq!(small.flush(), Ok(()));
    assert_eq!(small.left_by_a_power_cut(), 7);

    let mut small = Small::new();
    small.write(0, 7, Durability::Volatile).unwrap();
    small.flush().unwrap();
    small.write(7, 1, Durability::Volatile).unwrap();
    small.ftl.give_up(small.clock.0);
    assert!(matches!(small.flush(), Err(ZoneError::DriveReadOnly(_))), "the last block is nowhere");
}

#[test]
fn a_tail_is_given_back_by_the_flush_that_finds_all_of_it_on_media() {
    for (changes, width) in [(ONE_SHOT, 1), (ONE_SHOT, 2), (&[][..], 3)] {
        let mut world = world(changes, width, 2, 3, 11);
        let unit = world.layout().unit_blocks;
        let free = |world: &mut ZoneWorld, tails: u32| {
            let (described, expected) = (world.ftl().describe(), format!(" {tails} of 6 tails free"));
            assert!(described.contains(&expected), "width {width}: {described}");
        };
        free(&mut world, 6);
        world.write(0, 1, Durability::Durable, false).unwrap();
        world.settle();
        free(&mut world, 5);
        world.write(0, 3 * width * unit - 1, Durability::Volatile, false).unwrap();
        world.flush();
        world.settle();
        free(&mut world, 6);
        world.clean_restart();
        assert_eq!(world.written(0), 3 * width * unit, "width {width}");
        world.verify_all();
    }
}
