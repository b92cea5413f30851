//! Every state in which a power cut can leave a small key-value drive.

use crate::world::{ValueWorld, key};
use openftl_media::Profile;
use openftl_parts::Config;
use openftl_parts::map::Width;
use openftl_parts::map::cache::CachePolicy;
use openftl_parts::map::directory::PageSize;
use openftl_parts::map::memory::{MapBudget, MapMemory};
use openftl_sim::devices::smallest;
use openftl_sim::played::Played;
use openftl_sim::played_crash_points::PlayedCrashPoints;
use openftl_values::{Condition, ValueConfig};

/// States that are tried at least: with those of stores of pages a hundred thousand.
const STATES_MIN: u64 = 11_000;

pub fn config() -> Config {
    Config { checkpoint_log_blocks: Some(8), ..Config::default() }
}

/// Hardly any memory for the index of pages, in leaves of a few.
pub fn index_on_media(seed: u64) -> MapMemory {
    let page = PageSize::of(7 + seed as u32 % 5, Width::Narrow).expect("a leaf of a few pages");
    let policy = CachePolicy::ALL[seed as usize % CachePolicy::ALL.len()];
    MapMemory { budget: MapBudget::BeyondLeast(0), policy, page }
}

/// Few numbers, so that keys share them, and a directory that is merged all the time.
pub fn narrow() -> ValueConfig {
    ValueConfig { keys_max: Some(400), changes_max: Some(12), number_bits: Some(5), ..ValueConfig::default() }
}

/// One step of a workload: values of all sizes, deletions, durable ones among them, and flushes.
fn act(world: &mut ValueWorld, step: u64) {
    let bytes = [0, 10, 300, 2000, 5000][step as usize % 5];
    world.store(key(step * 7), bytes, Condition::Always, step % 5 == 1);
    world.store(key(step * 7 + 13), bytes / 2 + 1, Condition::Always, false);
    world.delete(key(step * 11), step % 4 == 3);
    if step % 10 == 9 {
        world.flush();
    }
}

/// Steps that a drive has behind it before its power is cut, and steps between which it is cut. Gives merges of the directory meanwhile.
fn play(crash_points: &mut PlayedCrashPoints, profile: Profile, seed: u64, before: u64, steps: u64) -> u64 {
    let name = format!("{}, seed {seed}", profile.name);
    let map_memory = seed.is_multiple_of(2).then(|| index_on_media(seed));
    let config = Config { host_frames: 64, map_memory, ..config() };
    let mut world = ValueWorld::new(profile, config, narrow(), 44, seed);
    crash_points.begin_workload();
    for step in 0..before {
        act(&mut world, seed * 31 + step);
        world.settle();
    }
    let merges = world.ftl().statistics().merges;
    world.wire.watch_beyond();
    for step in before..before + steps {
        // What was told meanwhile may be less than the model knows by now: each is judged by what was known before.
        let mut model = world.model.clone();
        act(&mut world, seed * 31 + step);
        model.may_have(&world.model);
        world.settle();
        crash_points.judge(&world, &model).unwrap_or_else(|error| panic!("{name}, step {step}, {error}"));
    }
    world.ftl().statistics().merges - merges
}

/// Tries at least so many states, each different from the others of its drive.
fn try_states(states_min: u64) {
    let (mut crash_points, mut merges) = (PlayedCrashPoints::new(3, 200), 0);
    for round in 0..200 {
        for (number, profile) in (0..).zip(smallest()) {
            merges += play(&mut crash_points, profile, round * 3 + number, 20 * (round % 8), 8);
        }
        if crash_points.total() >= states_min {
            break;
        }
    }
    println!("key-value drives: {crash_points}; {merges} merges");
    let PlayedCrashPoints { cuts, recovery_cuts, closed, .. } = crash_points;
    assert!(crash_points.total() >= states_min, "{} states are too few", crash_points.total());
    assert!(
        cuts > 100 && recovery_cuts > cuts && closed > 20 && merges > 5,
        "{cuts}, {recovery_cuts}, {closed}, {merges}"
    );
}

#[test]
fn every_power_cut_leaves_whole_changes_all_that_are_durable_and_a_directory_that_agrees() {
    try_states(STATES_MIN);
}
