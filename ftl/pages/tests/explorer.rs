//! Drawn histories: of the device, of what a host does, of faults and of power cuts, as the explorer has them for zoned drives.

use openftl_parts::{Config, OpenError, VictimPolicy};
use openftl_sim::page_world::PageWorld;
use openftl_sim::step::write_steps;
use openftl_sim::swarm::Kind;
use openftl_sim::{Drives, Run, Tally, explore, explore_in};

const SEEDS: u64 = 100;

/// Histories that were found, each mended since: a page that a power cut had cut off hid those behind it from cleaning; a host waited for a
/// chunk that the device did not let be opened; a stop waited for a checkpoint that had begun before the last commit; a store that wore
/// out while it was stopped waited for ever; a check waited for the end of a scrub that had none.
///
/// Of the log in chunks of its own: a seal was taken over from it that was another chunk's by then; a group behind one that was torn counted; a chunk
/// was said to be opened behind a page in it; leaves were newer than the log that was done again; what was read once after a power cut was not there
/// after the next.
const FOUND: [(u64, VictimPolicy); 10] = [
    (12, VictimPolicy::Greedy),
    (22_871, VictimPolicy::Greedy),
    (30_150, VictimPolicy::Greedy),
    (31_548, VictimPolicy::Greedy),
    (72_870, VictimPolicy::Greedy),
    (52, VictimPolicy::CostBenefit),
    (77, VictimPolicy::MinimumDecliningCost),
    (168, VictimPolicy::Greedy),
    (277, VictimPolicy::CostBenefit),
    (300_441, VictimPolicy::Greedy),
];

/// Plays a history as it was drawn when it was found: the one of a zoned drive, with a store of pages in its place.
fn play_found(seed: u64, victim: VictimPolicy) {
    let run = Run::draw_of(seed, Drives::Zones);
    let Kind::Zones { chunks, .. } = run.setting.kind else { unreachable!("zoned drives are drawn") };
    let (profile, config) = (run.setting.profile.clone(), Config { victim, ..run.setting.config.clone() });
    // A device that lets fewer than three chunks be open has no store of pages.
    let made = PageWorld::try_new(profile.clone(), config.clone(), chunks + 70, seed);
    if let Err(OpenError::Tenant { is_lost: false, .. }) = made {
        return;
    }
    let explored = explore_in(&run, || PageWorld::new(profile, config, chunks + 70, seed));
    if let Some(failure) = explored.failure {
        panic!("seed {seed}: {failure}\n{}\n{}", run.setting, write_steps(&run.steps));
    }
}

#[test]
fn histories_that_were_found_are_sound() {
    FOUND.into_iter().for_each(|(seed, victim)| play_found(seed, victim));
}

/// Found among histories of stores of pages: a host waited for chunks that had gone bad; a checkpoint waited for room in the log that it was to make; a batch
/// had changes of another one with its number, which a power cut had cut off; the log of a drive that had worn out waited for a chunk, and a checkpoint
/// of another one for a chunk that only itself would have freed.
#[test]
fn histories_of_stores_that_were_found_are_sound() {
    for seed in [34, 20_097, 20_362, 20_452] {
        let run = Run::draw_of(seed, Drives::Pages);
        assert_eq!(explore(&run).failure, None, "seed {seed}");
    }
}

#[test]
fn histories_of_pages_are_sound() {
    let mut tally = Tally::default();
    let first = std::env::var("OPENFTL_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(0);
    let seeds = std::env::var("OPENFTL_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(SEEDS);
    for seed in first..first + seeds {
        let run = Run::draw_of(seed, Drives::Pages);
        let explored = explore(&run);
        if let Some(failure) = explored.failure {
            panic!("seed {seed}: {failure}\n{}\n{}", run.setting, write_steps(&run.steps));
        }
        tally += &explored.tally;
    }
    let Tally { cuts, recovery_cuts, restarts, .. } = tally;
    println!("{seeds} histories: {cuts} power cuts, {recovery_cuts} of recoveries, {} faults", tally.faults());
    assert!(cuts > 500 && recovery_cuts > 50 && restarts > 50 && tally.faults() > 50, "all of it happens: {tally:?}");
}
