//! What is weak of a zone moves before it is lost, whatever else happens to the zone meanwhile; or the host is advised to give the zone up.

use crate::crash_points::{ONE_SHOT, UNPROTECTED};
use crate::world::world;
use openftl_core::{ChunkId, Nanos, Ppa};
use openftl_media::{Media, ProgramFailure};
use openftl_parts::flash::chunk_table::ChunkUse;
use openftl_parts::{Access, Care, Config, Durability, IoError, Moved, Target};
use openftl_sim::played::Played;
use openftl_sim::step::Moment;
use openftl_sim::world::profile;
use openftl_sim::{ZoneCrashPoints, ZoneWorld};
use openftl_zones::{Action, Face, Limits, Zone, ZoneConfig, ZoneError, ZoneState};

const LONG: Nanos = Nanos::from_millis(200);

fn place(world: &mut ZoneWorld, zone: u32, block: u32) -> Ppa {
    world.ftl().place_on_media(zone, block).expect("the block is on media")
}

fn chunk_of(world: &mut ZoneWorld, zone: u32, block: u32) -> ChunkId {
    let place = place(world, zone, block);
    world.wire.geometry().format().chunk_of(place)
}

fn usage(world: &mut ZoneWorld, chunk: ChunkId) -> ChunkUse {
    let mut uses = world.ftl().block().chunk_uses();
    uses.find(|(other, ..)| *other == chunk).expect("a chunk of the device").1
}

fn cared(world: &mut ZoneWorld, care: Care) -> Moved {
    world.ftl().statistics().0.cared_for(care)
}

fn zone_of(world: &mut ZoneWorld, zone: u32) -> Zone {
    world.ftl().board().zone(zone)
}

/// Blocks are written until a zone has `blocks`, and all of it is on media that can be.
fn fill(world: &mut ZoneWorld, zone: u32, blocks: u32) {
    while world.written(zone) < blocks {
        let left = (blocks - world.written(zone)).min(50);
        world.write(zone, left, Durability::Volatile, false).unwrap();
        world.settle();
    }
    flush(world);
}

/// Everything is durable, and the drive has nothing more to do for a while.
fn flush(world: &mut ZoneWorld) {
    world.flush();
    world.settle();
    world.idle(LONG);
}

/// A block becomes weak, and the host reads it; the drive goes on for a while.
fn weaken(world: &mut ZoneWorld, zone: u32, block: u32) {
    assert!(world.weaken(zone, block), "block {block} of zone {zone} is on media");
    world.read(zone, block, 1);
    world.settle();
    world.idle(LONG);
}

#[test]
fn a_weak_chunk_of_a_full_zone_moves_and_the_host_notices_nothing() {
    for (width, written) in [(1, u32::MAX), (3, u32::MAX), (2, 33), (3, 1)] {
        let mut world = world(&[], width, 2, 3, 1);
        let written = written.min(world.layout().capacity);
        fill(&mut world, 0, written);
        if written < world.layout().capacity {
            world.act(0, Action::Finish).unwrap();
            world.settle();
            flush(&mut world);
        }
        let block = written / 2;
        let (old, elsewhere) = (chunk_of(&mut world, 0, block), chunk_of(&mut world, 0, written - 1));
        let (column, _) = world.layout().place(block);
        let blocks = world.layout().blocks_in_column(column, written).into();
        weaken(&mut world, 0, block);
        let new = chunk_of(&mut world, 0, block);
        assert_ne!(new, old, "width {width}, {written} blocks");
        if elsewhere != old {
            assert_eq!(chunk_of(&mut world, 0, written - 1), elsewhere, "no other column moves");
        }
        assert_eq!(cared(&mut world, Care::HostRead), Moved { chunks: 1, blocks });
        assert_eq!(zone_of(&mut world, 0), Zone { state: ZoneState::Full, written, ..Zone::default() });
        assert_eq!(usage(&mut world, old), ChunkUse::Tenant, "its record names it until the next is durable");
        flush(&mut world);
        assert_eq!(usage(&mut world, old), ChunkUse::Free);
        let before = world.wire.device().statistics().high_ecc;
        world.verify_all();
        assert_eq!(world.wire.device().statistics().high_ecc, before, "nothing is weak any more");
        world.clean_restart();
        world.verify_all();
        assert_eq!((chunk_of(&mut world, 0, block), world.state(0)), (new, ZoneState::Full));
        assert_eq!(world.ftl().take_changed(), []);
    }
}

#[test]
fn a_full_zone_that_moves_is_full_after_every_power_cut() {
    for (changes, written) in [(&[][..], 64), (&[][..], 37), (UNPROTECTED, 37), (ONE_SHOT, 64)] {
        let mut world = world(changes, 2, 2, 3, 1);
        fill(&mut world, 0, written);
        world.act(0, Action::Finish).unwrap_or_default();
        world.flush();
        world.settle();
        let old = chunk_of(&mut world, 0, 20);
        world.wire.watch();
        weaken(&mut world, 0, 20);
        flush(&mut world);
        assert_ne!(chunk_of(&mut world, 0, 20), old);
        let points = world.take_crash_points();
        assert!(points.len() > 20, "{} states are not all there are", points.len());
        for (point, model) in points {
            let name = format!("{written} blocks, cut after event {}", point.event);
            let mut found = world.after_cut(point, model);
            found.recover().unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(found.state(0), ZoneState::Full, "{name}");
            found.verify_all();
        }
    }
}

#[test]
fn a_weak_column_of_a_zone_that_is_written_moves_and_goes_on() {
    for (changes, width) in [(&[][..], 1), (&[][..], 3), (UNPROTECTED, 2), (ONE_SHOT, 2)] {
        let mut world = world(changes, width, 2, 3, 2);
        let capacity = world.layout().capacity;
        fill(&mut world, 0, capacity * 2 / 3 + 1);
        let (old, block) = (chunk_of(&mut world, 0, 2), 2);
        let (column, _) = world.layout().place(block);
        weaken(&mut world, 0, block);
        assert_eq!(cared(&mut world, Care::HostRead).chunks, 1, "width {width}");
        assert!(world.state(0).is_open(), "the host notices nothing");
        world.verify_all();
        fill(&mut world, 0, capacity);
        assert_ne!(chunk_of(&mut world, 0, block), old, "width {width}, column {column}");
        let moved = cared(&mut world, Care::HostRead);
        assert_eq!((moved.chunks, world.state(0)), (1, ZoneState::Full), "width {width}");
        flush(&mut world);
        assert_eq!(usage(&mut world, old), ChunkUse::Free);
        world.verify_all();
        world.clean_restart();
        world.verify_all();
    }
}

#[test]
fn a_column_that_moves_bears_every_power_cut_while_the_host_writes_on() {
    for (changes, width, seed) in [(&[][..], 1, 1), (UNPROTECTED, 2, 2), (ONE_SHOT, 3, 3)] {
        let mut world = world(changes, width, 2, 3, seed);
        let mut points = ZoneCrashPoints::default();
        let half = world.layout().capacity / 2;
        fill(&mut world, 0, half);
        world.wire.watch();
        assert!(world.weaken(0, 1));
        world.read(0, 1, 1);
        for blocks in [3, 9, 5] {
            let blocks = blocks.min(world.layout().capacity - world.written(0));
            world.write(0, blocks, Durability::Volatile, false).unwrap();
            world.flush();
            world.settle();
        }
        world.idle(LONG);
        assert_eq!(cared(&mut world, Care::HostRead).chunks, 1);
        points.judge(&mut world).unwrap_or_else(|error| panic!("width {width}: {error}"));
        assert!(points.cuts > 15, "{points}");
    }
}

#[test]
fn a_zone_may_be_reset_or_finished_or_the_power_cut_while_it_moves() {
    for step in 0..60 {
        for action in [Some(Action::Reset), Some(Action::Finish), None] {
            let mut world = world(&[], 2, 2, 3, 5);
            let (capacity, half) = (world.layout().capacity, world.layout().capacity / 2);
            fill(&mut world, 0, capacity);
            fill(&mut world, 1, half);
            for zone in 0..2 {
                assert!(world.weaken(zone, 3));
                world.read(zone, 3, 1);
            }
            world.settle();
            for _ in 0..step {
                let due = world.ftl().next_due();
                if due.is_none_or(|due| due > world.clock.0 + LONG) {
                    break;
                }
                world.idle(Nanos(due.map_or(0, |due| due.0.saturating_sub(world.clock.0.0)) + 1));
            }
            match action {
                Some(action) => {
                    world.act(0, action).unwrap();
                    world.act(1, action).unwrap();
                    world.settle();
                }
                None => {
                    world.ftl = None;
                    world.wire.power_cut(Moment::NOW);
                    world.recover().unwrap_or_else(|error| panic!("step {step}: {error}"));
                    assert_eq!(world.state(0), ZoneState::Full, "step {step}");
                }
            }
            world.verify_all();
            world.idle(LONG);
            world.prove(10);
        }
    }
}

/// A chunk goes bad that zone 0 is being written to, and another takes its place.
fn wear_out_a_chunk(world: &mut ZoneWorld) {
    world.act(0, Action::Reset).unwrap();
    fill(world, 0, world.layout().capacity / 2);
    let bad = chunk_of(world, 0, 1);
    world.wire.device().inject_program_failure(bad, ProgramFailure::ChunkClosed);
    fill(world, 0, world.layout().capacity);
    flush(world);
    assert_ne!(chunk_of(world, 0, 1), bad);
    assert_eq!(usage(world, bad), ChunkUse::Retired);
}

#[test]
fn a_block_that_is_lost_keeps_its_chunk_where_it_is_and_the_zone_is_better_reset() {
    let mut world = world(&[], 2, 2, 3, 1);
    let (capacity, half) = (world.layout().capacity, world.layout().capacity / 2);
    fill(&mut world, 0, capacity);
    fill(&mut world, 1, half);
    for (zone, state) in [(0, ZoneState::Full), (1, ZoneState::ImplicitlyOpen)] {
        let (lost, old) = (place(&mut world, zone, 1), chunk_of(&mut world, zone, 2));
        world.wire.device().inject_read_failure(lost).unwrap();
        weaken(&mut world, zone, 2);
        assert_eq!(chunk_of(&mut world, zone, 2), old);
        let shown = zone_of(&mut world, zone);
        assert_eq!((shown.state, shown.is_weak), (state, true));
        assert_eq!(world.ftl().take_changed(), [zone]);
        // It is told once.
        weaken(&mut world, zone, 3);
        assert_eq!(world.ftl().take_changed(), []);
    }
    assert_eq!(world.ftl().statistics().1.recommended, 2);
    let shown = [0, 1].map(|zone| zone_of(&mut world, zone));
    assert_eq!(shown.map(|zone| zone.is_reset_recommended()), [true, false]);
    assert_eq!(shown.map(|zone| zone.is_finish_recommended()), [false, true]);
    world.act(1, Action::Finish).unwrap();
    assert!(zone_of(&mut world, 1).is_reset_recommended(), "it is full now, and weak still");
    for zone in 0..2 {
        world.act(zone, Action::Reset).unwrap();
        assert_eq!(zone_of(&mut world, zone), Zone::default());
    }
    world.verify_all();
}

#[test]
fn where_no_spare_chunk_is_the_zone_stays_and_the_host_is_advised_until_there_is_one() {
    let mut world = world(&[], 1, 2, 3, 1);
    let (capacity, half) = (world.layout().capacity, world.layout().capacity / 2);
    for zone in 0..4 {
        fill(&mut world, zone, capacity);
    }
    fill(&mut world, 4, half);
    // The drive has fewer and fewer chunks beyond those that its zones need.
    let mut moved = 0;
    while world.ftl().statistics().1.recommended == 0 {
        wear_out_a_chunk(&mut world);
        world.act(4, Action::Reset).unwrap();
        fill(&mut world, 4, half);
        // What is moved is a share of what is read.
        (0..4).for_each(|_| world.verify_all());
        weaken(&mut world, 4, 1);
        moved += 1;
        assert!(moved < 50, "the drive runs out of chunks: {}", world.ftl().describe());
    }
    assert!(cared(&mut world, Care::HostRead).chunks > 0, "it moved while it could");
    assert_eq!(world.ftl().take_changed(), [4]);
    let shown = zone_of(&mut world, 4);
    assert!(shown.is_finish_recommended() && shown.state.is_open(), "{shown:?}");
    // Now there is none left, not even for a while.
    wear_out_a_chunk(&mut world);
    (0..4).for_each(|_| world.verify_all());
    let old = chunk_of(&mut world, 1, 1);
    weaken(&mut world, 1, 1);
    assert_eq!((chunk_of(&mut world, 1, 1), world.ftl().take_changed()), (old, vec![1]));
    assert!(zone_of(&mut world, 1).is_reset_recommended());
    let moved = cared(&mut world, Care::HostRead).chunks;
    world.act(2, Action::Reset).unwrap();
    world.settle();
    world.idle(LONG);
    assert_ne!(chunk_of(&mut world, 1, 1), old, "it has the chunk of zone 2");
    assert_eq!(zone_of(&mut world, 1), Zone { state: ZoneState::Full, written: capacity, ..Zone::default() });
    assert_eq!(cared(&mut world, Care::HostRead).chunks, moved + 1);
    assert_eq!(world.ftl().take_changed(), [], "what needs no care any more is no news");
    world.verify_all();
}

#[test]
fn the_scrub_finds_what_nobody_reads_of_zones_that_are_full_and_of_those_that_are_written() {
    let second = Nanos::from_millis(1000);
    let zoned = ZoneConfig {
        face: Face::Zones,
        width: 2,
        limits: Limits { max_open: 2, max_active: 3 },
        zones: Some(5),
        extension_bytes: 0,
        window_blocks: 0,
    };
    let config =
        Config { host_frames: 256, checkpoint_log_blocks: Some(24), scrub_interval: Some(second), ..Config::default() };
    let mut world = ZoneWorld::try_new(profile("tiny", &[]), config, zoned, 100, 1).unwrap();
    let (capacity, half) = (world.layout().capacity, world.layout().capacity / 2);
    fill(&mut world, 0, capacity);
    fill(&mut world, 1, half);
    let old = [0, 1].map(|zone| chunk_of(&mut world, zone, 5));
    for zone in 0..2 {
        assert!(world.weaken(zone, 5));
    }
    world.idle(Nanos(3 * second.0));
    assert_eq!(cared(&mut world, Care::Scrub).chunks, 2);
    assert_eq!(world.ftl().statistics().0.scrub.lost, 0);
    assert_ne!(chunk_of(&mut world, 0, 5), old[0]);
    fill(&mut world, 1, capacity);
    assert_ne!(chunk_of(&mut world, 1, 5), old[1]);
    world.verify_all();
}

#[test]
fn zones_of_which_anything_may_become_weak_agree_with_the_model() {
    let mut refreshed = 0;
    for seed in 0..24 {
        let mut world = world([&[], UNPROTECTED, ONE_SHOT][seed as usize % 3], 1 + seed as u32 % 4, 2, 3, seed);
        world.weakens = true;
        for step in 0..900 {
            world.operation(1 + seed as usize % 6);
            if step % 300 == 299 {
                refreshed += cared(&mut world, Care::HostRead).chunks;
                world.clean_restart();
            }
        }
        world.verify_all();
        world.prove(50);
    }
    assert!(refreshed > 100, "{refreshed} columns were refreshed: the test is to show that they are");
}

#[test]
fn histories_of_power_cuts_lose_nothing_while_weak_columns_move() {
    for seed in 0..36 {
        let mut world = world([&[], UNPROTECTED, ONE_SHOT][seed as usize % 3], 1 + seed as u32 % 4, 2, 3, seed);
        world.weakens = true;
        for round in 0..20 {
            let events = 1 + u64::from(world.below(300));
            let moment = Moment { events, later: world.below(4), torn: world.below(2) == 0, fates: None };
            world.cut_at(moment).unwrap_or_else(|error| panic!("seed {seed}, round {round}: {error}"));
        }
        world.prove(20);
    }
}

#[test]
fn zones_bear_every_power_cut_while_weak_columns_move() {
    for (changes, width, operations, seed) in [(&[][..], 2, 20, 1), (UNPROTECTED, 1, 16, 2), (ONE_SHOT, 3, 24, 3)] {
        let mut world = world(changes, width, 2, 3, seed);
        world.weakens = true;
        let mut points = ZoneCrashPoints::default();
        world.wire.watch();
        for _ in 0..operations {
            world.operation(3);
            points.judge(&mut world).unwrap_or_else(|error| panic!("width {width}, seed {seed}: {error}"));
        }
        println!("{points}");
    }
}

#[test]
fn a_device_that_limits_open_chunks_is_not_asked_for_one_too_many() {
    let (mut refreshed, mut tried) = (0, 0);
    for limit in 10..30 {
        let limited = format!("vector_copy = true\nopen_chunks_max = {limit}");
        let limits = Limits { max_open: 2, max_active: 3 };
        let zoned =
            ZoneConfig { face: Face::Zones, width: 2, limits, zones: Some(5), extension_bytes: 0, window_blocks: 0 };
        let config = Config { host_frames: 256, checkpoint_log_blocks: Some(24), ..Config::default() };
        let profile = profile("tiny", &[("vector_copy = true", &limited)]);
        let Ok(mut world) = ZoneWorld::try_new(profile, config, zoned, 200, limit) else { continue };
        tried += 1;
        let (capacity, half) = (world.layout().capacity, world.layout().capacity / 2);
        fill(&mut world, 0, capacity);
        (1..4).for_each(|zone| fill(&mut world, zone, half));
        for round in 0..6 {
            weaken(&mut world, round % 4, 1 + round);
            world.flush();
            world.verify_all();
        }
        refreshed += cared(&mut world, Care::HostRead).chunks;
        (1..4).for_each(|zone| fill(&mut world, zone, capacity));
        world.verify_all();
        world.clean_restart();
        world.verify_all();
    }
    assert!(tried > 2 && refreshed > 10, "{refreshed} columns were refreshed on {tried} devices");
}

#[test]
fn a_block_that_is_lost_takes_none_behind_it_with_it_at_a_power_cut() {
    for (changes, width) in [(&[][..], 1), (UNPROTECTED, 2), (ONE_SHOT, 3)] {
        let mut world = world(changes, width, 2, 3, 7);
        let written = world.layout().capacity / 4 * 3 + 1;
        for _ in 0..written.div_ceil(16) {
            let blocks = (written - world.written(0)).min(16);
            world.write(0, blocks, Durability::Volatile, false).unwrap();
        }
        world.flush();
        world.settle();
        let lost = written / 3;
        let place = world.ftl().place_on_media(0, lost).expect("it is on media for long");
        world.wire.device().inject_read_failure(place).unwrap();
        world.ftl = None;
        world.wire.power_cut(Moment::NOW);
        world.open(Access::ReadWrite).unwrap();
        assert_eq!(world.ftl().board().zone(0).written, written, "width {width}");
        // All others are there.
        world.read(0, 0, lost);
        for first in (lost + 1..written).step_by(16) {
            world.read(0, first, (written - first).min(16));
        }
        world.settle();
    }
}

#[test]
fn a_block_that_is_lost_is_an_error_wherever_its_column_moves_and_all_others_go_on() {
    for (changes, width) in [(&[][..], 1), (UNPROTECTED, 2), (ONE_SHOT, 3)] {
        let mut world = world(changes, width, 2, 3, 7);
        let capacity = world.layout().capacity;
        fill(&mut world, 0, capacity / 2);
        flush(&mut world);
        let lost = 1;
        let place = world.ftl().place_on_media(0, lost).expect("it is on media for long");
        let chunk = chunk_of(&mut world, 0, lost);
        world.wire.device().inject_read_failure(place).unwrap();
        world.wire.device().inject_program_failure(chunk, ProgramFailure::ChunkClosed);
        let expect = |world: &mut ZoneWorld, state: ZoneState, written: u32| {
            let shown = zone_of(world, 0);
            assert_eq!((shown.state, shown.written), (state, written), "width {width}");
            assert_ne!(chunk_of(world, 0, lost), chunk, "its column has moved");
            world.read(0, 0, lost);
            for first in (lost + 1..written).step_by(16) {
                world.read(0, first, (written - first).min(16));
            }
            world.settle();
            let found = world.read_alone(0, lost);
            assert!(matches!(found, Err(ZoneError::Io(IoError::Unrecovered { .. }))), "{found:?}");
        };
        fill(&mut world, 0, capacity - 3);
        flush(&mut world);
        expect(&mut world, ZoneState::ImplicitlyOpen, capacity - 3);
        world.ftl = None;
        world.wire.power_cut(Moment::NOW);
        world.open(Access::ReadWrite).unwrap();
        expect(&mut world, ZoneState::Closed, capacity - 3);
        fill(&mut world, 0, capacity);
        flush(&mut world);
        expect(&mut world, ZoneState::Full, capacity);
    }
}
