//! Every state in which a power cut can leave a zoned drive is recovered and judged, and so is each in which one can leave that recovery.

use crate::world::world;
use openftl_parts::Durability;
use openftl_sim::ZoneCrashPoints;
use openftl_sim::played::Played;

fn play(changes: &[(&str, &str)], width: u32, operations: u32, seed: u64) -> ZoneCrashPoints {
    let mut world = world(changes, width, 2, 3, seed);
    let mut points = ZoneCrashPoints::default();
    world.wire.watch();
    for _ in 0..operations {
        world.operation(3);
        points.judge(&mut world).unwrap_or_else(|error| panic!("width {width}, seed {seed}: {error}"));
    }
    points
}

/// Without power-loss protection the pages of a word line that is cut are lost, both of them.
pub const UNPROTECTED: &[(&str, &str)] = &[("power_loss_protection = true", "power_loss_protection = false")];

/// A chunk is programmed unit by unit, and can be read at once.
pub const ONE_SHOT: &[(&str, &str)] = &[
    ("programming = \"shared\"\npair_distance = 2", "programming = \"one-shot\""),
    ("program_us = [400, 1200]", "program_us = [1200]"),
];

#[test]
fn zones_without_power_loss_protection_bear_every_power_cut() {
    for (seed, width, operations) in [(0, 1, 16), (1, 3, 16)] {
        println!("{}", play(UNPROTECTED, width, operations, seed));
    }
}

#[test]
fn zones_that_can_be_read_at_once_bear_every_power_cut() {
    println!("{}", play(ONE_SHOT, 2, 40, 0));
}

#[test]
fn narrow_zones_bear_every_power_cut() {
    for seed in 0..2 {
        println!("{}", play(&[], 1, 40, seed));
    }
}

#[test]
fn wide_zones_bear_every_power_cut() {
    for seed in 0..2 {
        println!("{}", play(&[], 4, 25, seed));
    }
}

#[test]
fn a_tail_that_a_record_on_media_names_is_not_overwritten() {
    // Nothing of the first write survives a power cut but in the tail, and that is longer than a unit of the area.
    let mut world = world(UNPROTECTED, 1, 2, 3, 1);
    let mut points = ZoneCrashPoints::default();
    world.write(0, 11, Durability::Volatile, false).unwrap();
    world.flush();
    world.settle();
    world.wire.watch();
    // So many that their tail would begin where the first one does.
    let blocks = world.layout().tail_blocks;
    world.write(0, blocks, Durability::Volatile, false).unwrap();
    world.flush();
    world.settle();
    points.judge(&mut world).unwrap();
    assert!(points.cuts > 10, "{points}");
}
