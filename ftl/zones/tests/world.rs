//! A drive does what its model says, whatever its shape.

use crate::crash_points::{ONE_SHOT, UNPROTECTED};
use openftl_core::Nanos;
use openftl_parts::Config;
use openftl_parts::Durability;
use openftl_sim::ZoneWorld;
use openftl_sim::fate::Fates;
use openftl_sim::step::Moment;
use openftl_sim::world::profile;
use openftl_zones::{Action, Limits, ZoneConfig, ZoneError, ZoneState};

/// A small drive: what of its profile is other than `tiny` has, how wide its zones are, and how many may be open and active.
pub fn world(changes: &[(&str, &str)], width: u32, max_open: u32, max_active: u32, seed: u64) -> ZoneWorld {
    let zoned = ZoneConfig { width, limits: Limits { max_open, max_active }, zones: Some(5) };
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
    }
}

#[test]
fn histories_of_power_cuts_lose_nothing_that_was_flushed() {
    let kinds: [&[(&str, &str)]; 3] = [&[], UNPROTECTED, ONE_SHOT];
    for seed in 0..36 {
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
