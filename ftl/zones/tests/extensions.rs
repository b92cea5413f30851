//! Zone descriptor extensions: set in an empty zone, and there until it is reset.

use crate::crash_points::{ONE_SHOT, UNPROTECTED};
use crate::world::{world, world_with};
use openftl_core::FrameForm;
use openftl_parts::{Config, Durability, Target};
use openftl_sim::played::Played;
use openftl_sim::step::Moment;
use openftl_sim::world::profile;
use openftl_sim::{ZoneCrashPoints, ZoneWorld};
use openftl_zones::{Action, Face, Limits, Zone, ZoneConfig, ZoneError, ZoneRequest, ZoneState};

const LIMITS: Limits = Limits { max_open: 2, max_active: 3 };

fn extended(seed: u64) -> ZoneWorld {
    world_with(&[], 2, LIMITS, 128, seed)
}

fn shown(world: &mut ZoneWorld, zone: u32) -> (ZoneState, bool) {
    let Zone { state, has_extension, .. } = world.ftl().board().zone(zone);
    (state, has_extension)
}

#[test]
fn an_extension_is_set_in_an_empty_zone_and_stays_until_it_is_reset() {
    let mut world = extended(1);
    world.extend(1).unwrap();
    assert_eq!(shown(&mut world, 1), (ZoneState::Closed, true));
    assert_eq!(world.ftl().board().resources(), (0, 1), "it is active");
    assert_eq!(world.extend(1), Err(ZoneError::NotEmpty { zone: 1, state: ZoneState::Closed }));
    world.write(1, 9, Durability::Volatile, false).unwrap();
    world.write(0, 3, Durability::Volatile, true).unwrap();
    assert_eq!(world.extend(0), Err(ZoneError::NotEmpty { zone: 0, state: ZoneState::ImplicitlyOpen }));
    world.clean_restart();
    assert_eq!(shown(&mut world, 1), (ZoneState::Closed, true));
    assert_eq!(shown(&mut world, 0), (ZoneState::Closed, false));
    world.act(1, Action::Finish).unwrap();
    world.clean_restart();
    assert_eq!(shown(&mut world, 1), (ZoneState::Full, true));
    assert!(world.ftl().extension(0).iter().all(|byte| *byte == 0));
    world.act(1, Action::Reset).unwrap();
    assert_eq!(shown(&mut world, 1), (ZoneState::Empty, false));
    assert_eq!(world.ftl().extension(1), [0; 128]);
    world.clean_restart();
    assert_eq!(shown(&mut world, 1), (ZoneState::Empty, false));
    world.verify_all();
}

#[test]
fn an_extension_takes_an_active_resource_also_after_a_restart() {
    let mut world = extended(2);
    (0..3).for_each(|zone| world.extend(zone).unwrap());
    for _ in 0..2 {
        assert_eq!(world.extend(3), Err(ZoneError::TooManyActive { limit: 3 }));
        assert_eq!(world.write(3, 1, Durability::Volatile, false), Err(ZoneError::TooManyActive { limit: 3 }));
        world.clean_restart();
        assert_eq!(world.ftl().board().resources(), (0, 3));
    }
    world.act(0, Action::Finish).unwrap();
    world.extend(3).unwrap();
    world.clean_restart();
    let states = [0, 1, 2, 3].map(|zone| shown(&mut world, zone));
    let (full, closed) = ((ZoneState::Full, true), (ZoneState::Closed, true));
    assert_eq!(states, [full, closed, closed, closed]);
}

#[test]
fn an_extension_that_was_flushed_survives_a_power_cut() {
    for has_flushed in [true, false] {
        let mut world = extended(3);
        world.extend(0).unwrap();
        if has_flushed {
            world.flush();
        }
        world.settle();
        world.ftl = None;
        world.wire.power_cut(Moment::NOW);
        world.recover().unwrap();
        let expected = if has_flushed { (ZoneState::Closed, true) } else { (ZoneState::Empty, false) };
        assert_eq!(shown(&mut world, 0), expected);
        world.prove(20);
    }
}

#[test]
fn zones_with_extensions_agree_with_the_model() {
    for seed in 0..12 {
        let changes = [&[][..], UNPROTECTED, ONE_SHOT][seed as usize % 3];
        let mut world = world_with(changes, 1 + seed as u32 % 4, LIMITS, 64 << (seed % 4), seed);
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
fn histories_of_power_cuts_lose_no_extension_that_was_flushed_and_mix_none() {
    for seed in 0..36 {
        let changes = [&[][..], UNPROTECTED, ONE_SHOT][seed as usize % 3];
        let mut world = world_with(changes, 1 + seed as u32 % 4, LIMITS, 192, seed);
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
fn extensions_bear_every_power_cut() {
    for (changes, width, operations, seed) in [(&[][..], 1, 30, 1), (UNPROTECTED, 1, 14, 2), (ONE_SHOT, 2, 30, 3)] {
        let mut world = world_with(changes, width, LIMITS, 64, seed);
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
fn an_extension_is_a_multiple_of_64_bytes_and_fits_into_the_block_of_a_record() {
    let made = |width, extension_bytes| {
        let zoned =
            ZoneConfig { face: Face::Zones, width, limits: LIMITS, zones: Some(5), extension_bytes, window_blocks: 0 };
        let config = Config { host_frames: 256, checkpoint_log_blocks: Some(24), ..Config::default() };
        ZoneWorld::try_new(profile("tiny", &[]), config, zoned, 200, 1)
    };
    for bytes in [1, 63, 100, 4096, 64 * 64] {
        let refused = made(1, bytes).err().expect("there can be no such drive").to_string();
        assert!(refused.contains(&format!("zone_descriptor_extension = {bytes}: it is a multiple of 64")), "{refused}");
        assert!(refused.ends_with("4032 is the most with zone_width = 1"), "{refused}");
    }
    let mut world = made(4, 4032).unwrap();
    assert_eq!(world.layout().records_per_block, 1);
    (0..3).for_each(|zone| world.extend(zone).unwrap());
    world.write(1, 20, Durability::Durable, true).unwrap();
    world.clean_restart();
    assert_eq!(shown(&mut world, 2), (ZoneState::Closed, true));
    world.prove(20);
}

#[test]
fn zones_without_extensions_take_none() {
    let mut world = world(&[], 2, 2, 3, 1);
    let mut frames = Vec::new();
    assert!(world.ftl().frames_mut().acquire_many(FrameForm::Bytes, 1, &mut frames));
    let now = world.clock.0;
    let request = ZoneRequest::Extend { zone: 0, frame: frames[0] };
    assert_eq!(world.ftl().submit(now, 1, request), Err(ZoneError::NoExtension));
    let mut world = extended(1);
    assert!(world.ftl().frames_mut().acquire_many(FrameForm::Bytes, 1, &mut frames));
    let (size, blocks) = (world.layout().size, world.layout().blocks());
    for (zone, expected) in [
        (size + 1, ZoneError::NotAZone { address: size + 1, size }),
        (blocks, ZoneError::OutOfRange { first: blocks, count: 1, blocks }),
    ] {
        let request = ZoneRequest::Extend { zone, frame: frames[0] };
        assert_eq!(world.ftl().submit(now, 1, request), Err(expected));
    }
}
