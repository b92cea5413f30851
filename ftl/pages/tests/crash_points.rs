//! Every state in which a power cut can leave a small store of pages.

use openftl_media::Profile;
use openftl_parts::Config;
use openftl_parts::map::Width;
use openftl_parts::map::cache::CachePolicy;
use openftl_parts::map::directory::PageSize;
use openftl_parts::map::memory::{MapBudget, MapMemory};
use openftl_sim::devices::smallest;
use openftl_sim::page_world::{PageWorld, SESSIONS};
use openftl_sim::played::Played;
use openftl_sim::played_crash_points::PlayedCrashPoints;

/// States that are tried at least: with those of key-value drives a hundred thousand.
const STATES_MIN: u64 = 89_000;

/// One step of a workload: batches of short and long pages, deletions, durable commits, and what is given up.
fn act(world: &mut PageWorld, step: u64) {
    let session = (step % SESSIONS as u64) as usize;
    world.stage(session, step * 7 % 40, 1 + step % 3, [3, 8, 1, 12, 2][step as usize % 5], step % 9 == 8);
    match step % 13 {
        11 => world.abort(session),
        _ => world.commit(session, step % 3 == 1),
    }
    if step % 10 == 9 {
        world.sync();
    }
}

/// Pages of one workload of so many are as long as they can be.
const LONG_PAGES: u64 = 4;

/// In the others they have no more bytes than this: long ones take most of the time, and differ in nothing but their blocks.
const SHORT_BYTES: u64 = 12 << 10;

/// The map of one workload of so many is on media, in leaves of a few pages, and hardly any of it in memory.
const MAPS_ON_MEDIA: u64 = 2;

fn map_memory(seed: u64) -> MapMemory {
    let page = PageSize::of(8 + seed as u32 % 9, Width::Narrow).expect("a leaf of a few pages");
    let policy = CachePolicy::ALL[seed as usize % CachePolicy::ALL.len()];
    MapMemory { budget: MapBudget::BeyondLeast(0), policy, page }
}

/// Steps that a drive has behind it before its power is cut, and steps between which it is cut.
fn play(crash_points: &mut PlayedCrashPoints, profile: Profile, seed: u64, before: u64, steps: u64) {
    let map_memory = seed.is_multiple_of(MAPS_ON_MEDIA).then(|| map_memory(seed));
    let config = Config { checkpoint_log_blocks: Some(8), host_frames: 64, map_memory, ..Config::default() };
    let name = format!("{}, seed {seed}", profile.name);
    let mut world = PageWorld::new(profile, config, 40, seed);
    if !seed.is_multiple_of(LONG_PAGES) {
        world.page_bytes_max = SHORT_BYTES;
    }
    crash_points.begin_workload();
    for step in 0..before {
        act(&mut world, seed * 31 + step);
        world.settle();
    }
    world.wire.watch_beyond();
    for step in before..before + steps {
        act(&mut world, seed * 31 + step);
        // What was told meanwhile may be less than the model knows by now: each is judged by what was known before.
        let model = world.model.clone();
        world.settle();
        crash_points.judge(&world, &model).unwrap_or_else(|error| panic!("{name}, step {step}, {error}"));
    }
}

/// Tries at least so many states, each different from the others of its drive.
fn try_states(states_min: u64) {
    let mut crash_points = PlayedCrashPoints::new(3, 200);
    for round in 0..200 {
        for (number, profile) in (0..).zip(smallest()) {
            play(&mut crash_points, profile, round * 3 + number, 20 * (round % 4), 12);
        }
        if crash_points.total() >= states_min {
            break;
        }
    }
    println!("stores of pages: {crash_points}");
    let PlayedCrashPoints { cuts, recovery_cuts, closed, .. } = crash_points;
    assert!(crash_points.total() >= states_min, "{} states are too few", crash_points.total());
    assert!(cuts > 100 && recovery_cuts > cuts && closed > 20, "{cuts}, {recovery_cuts}, {closed}");
}

#[test]
fn every_power_cut_leaves_whole_batches_and_all_that_are_durable() {
    try_states(STATES_MIN);
}
