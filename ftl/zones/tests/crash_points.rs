//! Every state in which a power cut can leave a zoned drive is recovered and judged, and so is each in which one can leave that recovery.

use crate::world::world;
use openftl_parts::Durability;
use openftl_sim::ZoneCrashPoints;
use openftl_sim::played::Played;
use std::sync::Mutex;

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

/// Changes of the profile, the width of a zone in parallel units, how much is done, and the seed.
type Scene = (&'static [(&'static str, &'static str)], u32, u32, u64);

const SCENES: [Scene; 13] = [
    (UNPROTECTED, 2, 24, 5),
    (UNPROTECTED, 3, 24, 6),
    (UNPROTECTED, 3, 16, 1),
    (UNPROTECTED, 2, 16, 2),
    (UNPROTECTED, 1, 16, 4),
    (UNPROTECTED, 4, 16, 3),
    (UNPROTECTED, 1, 16, 0),
    (&[], 1, 40, 0),
    (&[], 1, 40, 1),
    (&[], 4, 25, 0),
    (&[], 4, 25, 1),
    (ONE_SHOT, 2, 40, 0),
    (ONE_SHOT, 3, 40, 1),
];

/// Enough of them to meet what is rare.
const STATES_MIN: u64 = 100_000;

#[test]
fn zones_bear_every_power_cut() {
    let waiting = Mutex::new(SCENES.iter());
    let work = || {
        let mut states = 0;
        loop {
            let Some(&(changes, width, operations, seed)) = waiting.lock().unwrap().next() else { return states };
            let points = play(changes, width, operations, seed);
            println!("{changes:?}, width {width}, seed {seed}: {points}");
            states += points.cuts + points.recovery_cuts;
        }
    };
    let states: u64 = std::thread::scope(|scope| {
        let threads = [scope.spawn(work), scope.spawn(work)];
        threads.map(|thread| thread.join().unwrap()).iter().sum()
    });
    assert!(states >= STATES_MIN, "{states} states are fewer than {STATES_MIN}");
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
