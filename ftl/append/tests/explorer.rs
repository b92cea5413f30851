//! Drawn histories: of the device, of what a host does, of faults and of power cuts, as the explorer has them for zoned drives.

use crate::world::LogWorld;
use openftl_sim::step::write_steps;
use openftl_sim::swarm::Kind;
use openftl_sim::{Drives, Run, Tally, explore_in};

const SEEDS: u64 = 200;

#[test]
fn histories_of_logs_are_sound() {
    let mut tally = Tally::default();
    let first = std::env::var("OPENFTL_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(0);
    for seed in first..first + SEEDS {
        let run = Run::draw_of(seed, Drives::Zones);
        let Kind::Zones { chunks, .. } = run.setting.kind else { unreachable!("zoned drives are drawn") };
        let (profile, config) = (run.setting.profile.clone(), run.setting.config.clone());
        let explored = explore_in(&run, || LogWorld::new(profile, config, chunks, seed));
        if let Some(failure) = explored.failure {
            panic!("seed {seed}: {failure}\n{}\n{}", run.setting, write_steps(&run.steps));
        }
        tally += &explored.tally;
    }
    let Tally { cuts, recovery_cuts, restarts, .. } = tally;
    println!("{SEEDS} histories: {cuts} power cuts, {recovery_cuts} of recoveries, {} faults", tally.faults());
    assert!(
        cuts > 1_000 && recovery_cuts > 100 && restarts > 100 && tally.faults() > 100,
        "all of it happens: {tally:?}"
    );
}
