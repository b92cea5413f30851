//! Records and tails are there twice: what one copy has lost is in the other.

use crate::crash_points::{ONE_SHOT, UNPROTECTED};
use crate::world::{world, world_of, zoned_with};
use openftl_core::Ppa;
use openftl_media::Media;
use openftl_parts::Durability;
use openftl_sim::ZoneWorld;
use openftl_sim::played::Played;
use openftl_sim::step::Moment;
use openftl_zones::{Limits, ZoneConfig};

const LIMITS: Limits = Limits { max_open: 2, max_active: 3 };

/// Drives of which something is in the area: tails, and blocks of windows.
fn used(seed: u64) -> Vec<(String, ZoneWorld)> {
    let mut worlds = Vec::new();
    for (name, changes, width) in [("shared pages", UNPROTECTED, 2), ("one shot", ONE_SHOT, 3), ("protected", &[], 1)] {
        for window_blocks in [0, 16] {
            let zoned = ZoneConfig { window_blocks, ..zoned_with(width, LIMITS, 0) };
            let mut world = world_of(changes, zoned, seed);
            for _ in 0..60 {
                world.operation(3);
            }
            world.flush();
            world.settle();
            worlds.push((format!("{name}, windows of {window_blocks}, seed {seed}"), world));
        }
    }
    worlds
}

fn cut(world: &mut ZoneWorld) -> Result<(), String> {
    world.ftl = None;
    world.wire.power_cut(Moment::NOW);
    world.recover()
}

/// Blocks of one copy of the area, with their places.
fn of_copy(world: &mut ZoneWorld, copy: u32) -> Vec<(u32, Ppa)> {
    let blocks = world.layout().copy_blocks();
    let mut found = world.area_on_media();
    found.retain(|(block, _)| block / blocks == copy);
    found
}

#[test]
fn every_block_of_the_area_can_be_lost_in_one_copy() {
    let mut lost = 0;
    for (name, mut world) in used(1).into_iter().chain(used(2)) {
        let blocks = world.area_on_media();
        lost += blocks.len();
        for (at, (block, ppa)) in blocks.into_iter().enumerate() {
            let mut struck = world.fork();
            struck.strike(ppa, at % 2 == 0);
            cut(&mut struck).unwrap_or_else(|error| panic!("{name}, block {block} of the area: {error}"));
            struck.verify_all();
            struck.clean_restart();
            struck.verify_all();
        }
    }
    assert!(lost > 40, "{lost} blocks are not many");
}

#[test]
fn a_whole_copy_of_the_area_can_be_lost_and_is_written_anew() {
    for (name, mut world) in used(3) {
        for copy in [0, 1] {
            let of_copy_now = of_copy(&mut world, copy);
            let mut struck = world.fork();
            for (_, ppa) in of_copy_now {
                struck.strike(ppa, true);
            }
            cut(&mut struck).unwrap_or_else(|error| panic!("{name}, copy {copy}: {error}"));
            struck.verify_all();
            if copy == 1 {
                continue;
            }
            // What was found in the second copy is in both by now.
            struck.clean_restart();
            for (block, ppa) in of_copy(&mut struck, 1) {
                if block - struck.layout().copy_blocks() < struck.layout().record_blocks {
                    struck.strike(ppa, false);
                }
            }
            cut(&mut struck).unwrap_or_else(|error| panic!("{name}, first copy, then the second: {error}"));
            struck.verify_all();
        }
    }
}

#[test]
fn copies_are_in_different_groups() {
    for (name, mut world) in used(4) {
        let (copy, format) = (world.layout().copy_blocks(), world.wire.geometry().format());
        let group = |ppa: Ppa| format.group_of(format.pu_of(format.chunk_of(ppa)));
        for _ in 0..40 {
            world.operation(3);
            world.flush();
            world.settle();
            let places = world.area_on_media();
            for (block, ppa) in places.iter().filter(|(block, _)| *block < copy) {
                let Some((_, other)) = places.iter().find(|(other, _)| *other == block + copy) else { continue };
                assert_ne!(group(*ppa), group(*other), "{name}: block {block} and its copy");
            }
        }
    }
}

#[test]
fn a_record_that_is_lost_in_both_copies_is_named_and_the_drive_is_refused() {
    let mut world = world(UNPROTECTED, 2, 2, 3, 1);
    world.write(0, 7, Durability::Volatile, false).unwrap();
    world.flush();
    world.settle();
    let records = world.layout().record_blocks;
    for (block, ppa) in world.area_on_media() {
        if world.layout().in_copy(block) < records {
            world.strike(ppa, true);
        }
    }
    let error = cut(&mut world).unwrap_err();
    assert!(error.contains("the area with the records of zones cannot be read"), "{error}");
}

#[test]
fn after_every_power_cut_and_the_recovery_behind_it_the_first_copy_can_be_lost() {
    let mut judged = 0;
    for (changes, width, seed) in [(UNPROTECTED, 1, 5), (UNPROTECTED, 2, 6), (ONE_SHOT, 1, 7)] {
        let mut world = world(changes, width, 2, 3, seed);
        world.wire.watch();
        for _ in 0..30 {
            world.operation(3);
            world.flush();
        }
        world.settle();
        for (point, model) in world.take_crash_points() {
            let name = format!("width {width}, seed {seed}, cut after event {}", point.event);
            let mut found = world.after_cut(point, model);
            found.recover().unwrap_or_else(|error| panic!("{name}: {error}"));
            let lost = of_copy(&mut found, 0);
            lost.iter().for_each(|(_, ppa)| found.strike(*ppa, true));
            cut(&mut found).unwrap_or_else(|error| panic!("{name}, without the first copy: {error}"));
            judged += 1;
        }
    }
    assert!(judged > 500, "{judged} states are not all there are");
}

#[test]
fn a_copy_can_be_lost_after_a_stop_and_a_power_cut() {
    for (changes, width) in [(UNPROTECTED, 1), (&[][..], 1), (ONE_SHOT, 1), (UNPROTECTED, 3)] {
        for seed in 0..6 {
            let mut world = world(changes, width, 1, 2, seed);
            for _ in 0..seed * 4 {
                world.operation(3);
            }
            let zone = seed as u32 % 5;
            while world.written(zone) < world.layout().capacity {
                let left = (world.layout().capacity - world.written(zone)).min(16);
                if world.write(zone, left, Durability::Volatile, false).is_err() {
                    break;
                }
                world.settle();
            }
            world.clean_restart();
            cut(&mut world).unwrap();
            for (block, ppa) in world.area_on_media() {
                let mut struck = world.fork();
                struck.strike(ppa, true);
                cut(&mut struck).unwrap_or_else(|error| panic!("width {width}, seed {seed}, block {block}: {error}"));
                struck.verify_all();
            }
        }
    }
}
