//! Windows (ZRWA): blocks from the write pointer of a zone on, written in any order.

use crate::crash_points::{ONE_SHOT, UNPROTECTED};
use crate::world::{world_of, zoned_with};
use openftl_parts::{Config, Durability};
use openftl_sim::played::Played;
use openftl_sim::step::Moment;
use openftl_sim::world::profile;
use openftl_sim::{ZoneCrashPoints, ZoneWorld};
use openftl_zones::{Action, Face, Limits, Zone, ZoneConfig, ZoneError, ZoneState};

const LIMITS: Limits = Limits { max_open: 2, max_active: 3 };

fn windowed(changes: &[(&str, &str)], width: u32, window_blocks: u32, seed: u64) -> ZoneWorld {
    world_of(changes, ZoneConfig { window_blocks, ..zoned_with(width, LIMITS, 0) }, seed)
}

fn shown(world: &mut ZoneWorld, zone: u32) -> (ZoneState, u32, bool) {
    let Zone { state, written, has_window, .. } = world.ftl().board().zone(zone);
    (state, written, has_window)
}

/// Cuts the power now, and opens the drive again.
fn cut(world: &mut ZoneWorld) {
    world.ftl = None;
    world.wire.power_cut(Moment::NOW);
    world.recover().unwrap();
}

#[test]
fn a_window_is_written_in_any_order_and_the_write_pointer_follows() {
    let mut world = windowed(&[], 2, 16, 1);
    world.open_with_window(0).unwrap();
    assert_eq!(shown(&mut world, 0), (ZoneState::ExplicitlyOpen, 0, true));
    let volatile = Durability::Volatile;
    for (behind, blocks) in [(7, 2), (0, 1), (15, 1), (7, 1)] {
        world.write_window(0, behind, blocks, volatile).unwrap();
        assert_eq!(shown(&mut world, 0).1, 0, "nothing is committed");
    }
    world.verify_all();
    // Blocks 16 to 19 are behind the window: its first four are committed, of which three are zeroes.
    world.write_window(0, 14, 6, volatile).unwrap();
    assert_eq!(shown(&mut world, 0).1, 4);
    world.commit(0, 6).unwrap();
    assert_eq!(shown(&mut world, 0).1, 10);
    world.verify_all();
    world.flush();
    world.verify_all();
    world.clean_restart();
    assert_eq!(shown(&mut world, 0), (ZoneState::Closed, 10, true));
    world.verify_all();
    // The zone ends with what was written, and nothing is written behind that.
    world.act(0, Action::Finish).unwrap();
    assert_eq!(shown(&mut world, 0), (ZoneState::Full, 20, false));
    world.verify_all();
    world.clean_restart();
    world.verify_all();
    world.act(0, Action::Reset).unwrap();
    assert_eq!(shown(&mut world, 0), (ZoneState::Empty, 0, false));
    world.verify_all();
}

#[test]
fn a_zone_with_a_window_is_full_when_all_of_it_is_committed() {
    let mut world = windowed(&[], 3, 32, 2);
    let capacity = world.layout().capacity;
    world.open_with_window(0).unwrap();
    while world.written(0) + 32 < capacity {
        let behind = (capacity - world.written(0)).min(64) - 1;
        world.write_window(0, behind, 1, Durability::Volatile).unwrap();
    }
    assert_eq!(
        world.write_window(0, 32, 1, Durability::Volatile),
        Err(ZoneError::Boundary { zone: 0, end: u64::from(capacity) + 1, capacity })
    );
    world.commit(0, 32).unwrap();
    assert_eq!(shown(&mut world, 0), (ZoneState::Full, capacity, false));
    assert_eq!(world.ftl().board().windows(), 0);
    world.verify_all();
    world.clean_restart();
    world.verify_all();
}

#[test]
fn what_a_window_cannot_do_is_refused() {
    let mut world = windowed(&[], 2, 16, 3);
    world.write(0, 3, Durability::Volatile, true).unwrap();
    let state = ZoneState::ImplicitlyOpen;
    assert_eq!(world.open_with_window(0), Err(ZoneError::WindowOfWritten { zone: 0, state }));
    assert_eq!(world.commit(0, 1), Err(ZoneError::NoWindow { zone: 0 }));
    world.open_with_window(1).unwrap();
    // As many windows as zones may be open, though one of them is closed.
    world.act(1, Action::Close).unwrap();
    world.open_with_window(2).unwrap();
    world.act(2, Action::Close).unwrap();
    world.act(0, Action::Reset).unwrap();
    assert_eq!(world.open_with_window(0), Err(ZoneError::TooManyWindows { limit: 2 }));
    world.open_with_window(1).unwrap();
    let refused = world.write(1, 2, Durability::Volatile, true);
    assert_eq!(refused, Err(ZoneError::AppendToWindow { zone: 1 }));
    let refused = world.write_window(1, 30, 3, Durability::Volatile);
    assert_eq!(refused, Err(ZoneError::InvalidWrite { zone: 1, at: 30, expected: 0 }));
    let outside = ZoneError::OutsideWindow { zone: 1, end: 17, first: 0, window_end: 16 };
    assert_eq!(world.commit(1, 17), Err(outside));
    world.commit(1, 5).unwrap();
    let refused = world.write_window(1, 0, 1, Durability::Volatile);
    assert_eq!(refused, Ok(()), "the first block behind the write pointer is in the window");
    let mut without = windowed(&[], 2, 0, 3);
    assert_eq!(without.open_with_window(0), Err(ZoneError::NoWindows));
}

#[test]
fn what_was_flushed_of_a_window_survives_a_power_cut_and_goes_on() {
    for has_flushed in [true, false] {
        let mut world = windowed(UNPROTECTED, 2, 16, 4);
        world.open_with_window(0).unwrap();
        world.write_window(0, 3, 2, Durability::Volatile).unwrap();
        world.write_window(0, 9, 1, Durability::Volatile).unwrap();
        if has_flushed {
            world.flush();
        }
        world.settle();
        cut(&mut world);
        let expected = if has_flushed { (ZoneState::Closed, 0, true) } else { (ZoneState::Empty, 0, false) };
        assert_eq!(shown(&mut world, 0), expected);
        if has_flushed {
            // Over what was found, and on.
            world.write_window(0, 3, 20, Durability::Durable).unwrap();
            world.settle();
            assert_eq!(shown(&mut world, 0).1, 7);
            cut(&mut world);
            assert!(shown(&mut world, 0).2, "it still has its window");
        }
        world.verify_all();
        world.prove(30);
    }
}

#[test]
fn a_block_that_is_written_again_after_a_flush_is_saved_again() {
    let mut world = windowed(UNPROTECTED, 1, 8, 5);
    world.open_with_window(0).unwrap();
    for round in 0..6 {
        world.write_window(0, 2, 3, Durability::Volatile).unwrap();
        // Some of it behind the write pointer by the next flush.
        if round == 3 {
            world.write_window(0, 10, 1, Durability::Volatile).unwrap();
        }
        world.flush();
        world.settle();
        cut(&mut world);
        world.verify_all();
    }
    world.prove(20);
}

#[test]
fn zones_with_windows_agree_with_the_model() {
    for seed in 0..16 {
        let changes = [&[][..], UNPROTECTED, ONE_SHOT][seed as usize % 3];
        let mut world = windowed(changes, 1 + seed as u32 % 4, 1 << (seed % 7), seed);
        for step in 0..900 {
            world.operation(1 + seed as usize % 6);
            if step % 300 == 299 {
                world.clean_restart();
            }
        }
        world.verify_all();
        world.prove(50);
    }
}

#[test]
fn histories_of_power_cuts_lose_nothing_of_a_window_that_was_flushed() {
    for seed in 0..48 {
        let changes = [&[][..], UNPROTECTED, ONE_SHOT][seed as usize % 3];
        let mut world = windowed(changes, 1 + seed as u32 % 4, 1 << (seed % 6), seed);
        world.weakens = seed % 2 == 0;
        for round in 0..20 {
            let events = 1 + u64::from(world.below(300));
            let moment = Moment { events, later: world.below(4), torn: world.below(2) == 0, fates: None };
            world.cut_at(moment).unwrap_or_else(|error| panic!("seed {seed}, round {round}: {error}"));
        }
        world.prove(20);
    }
}

#[test]
fn windows_bear_every_power_cut() {
    for (changes, width, window_blocks, operations, seed) in
        [(&[][..], 1, 8, 40, 1), (UNPROTECTED, 1, 4, 16, 2), (ONE_SHOT, 2, 16, 40, 3), (UNPROTECTED, 4, 16, 12, 4)]
    {
        let mut world = windowed(changes, width, window_blocks, seed);
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
fn a_window_is_a_power_of_two_of_blocks_and_no_longer_than_its_zone() {
    let made = |face, width, window_blocks| {
        let zoned = ZoneConfig { face, window_blocks, ..zoned_with(width, LIMITS, 0) };
        let config = Config { host_frames: 256, checkpoint_log_blocks: Some(24), ..Config::default() };
        ZoneWorld::try_new(profile("tiny", &[]), config, zoned, 200, 1).map(drop)
    };
    for blocks in [3, 4096, 8192] {
        let refused = made(Face::Zones, 1, blocks).expect_err("there can be no such drive").to_string();
        assert!(refused.contains("zrwa = ") && refused.contains("it is a power of two, and "), "{refused}");
    }
    let refused = made(Face::Segments, 1, 8).expect_err("segments have none").to_string();
    assert!(refused.contains("zrwa: segments are written in order"), "{refused}");
    made(Face::Zones, 4, 64).expect("a window fits");
}
