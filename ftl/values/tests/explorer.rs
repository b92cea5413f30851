//! Drawn histories: of the device, of what a host does, of faults and of power cuts, as the explorer has them for zoned drives.

use crate::crash_points::{index_on_media, narrow};
use crate::world::ValueWorld;
use openftl_parts::{Config, OpenError};
use openftl_sim::step::write_steps;
use openftl_sim::swarm::Kind;
use openftl_sim::{Drives, Run, Tally, explore_in};
use openftl_values::ValueConfig;

const SEEDS: u64 = 100;

/// Plays a history: on drives whose keys share numbers and have a small directory, and on others.
fn play(seed: u64) -> Tally {
    let run = Run::draw_of(seed, Drives::Zones);
    let Kind::Zones { chunks, .. } = run.setting.kind else { unreachable!("zoned drives are drawn") };
    let map_memory = (seed % 4 == 3).then(|| index_on_media(seed));
    let (profile, config) = (run.setting.profile.clone(), Config { map_memory, ..run.setting.config.clone() });
    let shape = match seed % 3 {
        0 => ValueConfig { keys_max: Some(400), changes_max: Some(16), ..ValueConfig::default() },
        1 => ValueConfig { durable_stores: true, ..narrow() },
        _ => narrow(),
    };
    // A device that lets fewer than three chunks be open has no store of pages for values.
    let made = ValueWorld::try_new(profile.clone(), config.clone(), shape, chunks + 70, seed);
    if let Err(OpenError::Tenant { is_lost: false, .. }) = made {
        return Tally::default();
    }
    let explored = explore_in(&run, || ValueWorld::new(profile, config, shape, chunks + 70, seed));
    if let Some(failure) = explored.failure {
        panic!("seed {seed}: {failure}\n{}\n{}", run.setting, write_steps(&run.steps));
    }
    explored.tally
}

#[test]
fn histories_of_values_are_sound() {
    let mut tally = Tally::default();
    let first = std::env::var("OPENFTL_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(0);
    let seeds = std::env::var("OPENFTL_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(SEEDS);
    for seed in first..first + seeds {
        tally += &play(seed);
    }
    let Tally { cuts, recovery_cuts, restarts, .. } = tally;
    println!("{seeds} histories: {cuts} power cuts, {recovery_cuts} of recoveries, {} faults", tally.faults());
    let happens = seeds < SEEDS || (cuts > 500 && recovery_cuts > 50 && restarts > 50 && tally.faults() > 50);
    assert!(happens, "all of it happens: {tally:?}");
}
