//! Long loops: a narrow drive is cut or stopped dozens to hundreds of times, with little work in between, so that what each recovery
//! leaves behind adds up. After every cut a copy of the drive has to work and close, and the drive itself has to go on.
//!
//! ```text
//! OPENFTL_LONG_LOOPS=1000..1200 cargo test -p openftl-sim --test long_loops -- --nocapture
//! ```

use openftl_core::FrameForm;
use openftl_core::units::Share;
use openftl_ftl::Config;
use openftl_media::Profile;
use openftl_media::profile::{Cell, Programming};
use openftl_sim::step::write_steps;
use openftl_sim::swarm::{Dice, Setting, is_narrow, long_loop};
use openftl_sim::{Failure, Run, Tally, explore, shrink};
use std::ops::Range;

/// Seeds that every run of the tests tries. Of two units of sixteen, 13 and 17 hang: all chunks wait for the log before their
/// reset, and the log waits for a chunk.
const SEEDS: Range<u64> = 0..4;

/// A long loop takes long to be made short.
const ATTEMPTS_MAX: u32 = 300;

fn seeds() -> Range<u64> {
    let Ok(text) = std::env::var("OPENFTL_LONG_LOOPS") else { return SEEDS };
    let (from, to) = text.split_once("..").expect("OPENFTL_LONG_LOOPS is like 100..200");
    from.parse().expect("a number")..to.parse().expect("a number")
}

/// Two groups of one parallel unit, units of 16 blocks, 2 % over-provisioning, and a checkpoint as often as can be.
fn two_units_of_sixteen(seed: u64) -> Setting {
    let mut profile = Profile::builtin("tiny").unwrap();
    let chip = &mut profile.chip;
    (chip.cell, chip.programming, chip.pair_distance) = (Cell::Qlc, Programming::OneShot, None);
    (chip.read_us, chip.program_us) = (vec![40, 60, 80, 100], vec![800]);
    (profile.groups, profile.pus_per_group, profile.cache.blocks_per_pu) = (2, 1, 0);
    let config = Config {
        capacity_blocks: 137,
        over_provisioning: Share::percent(2),
        drive_id: 0xD21E_0000 + seed,
        payload: FrameForm::Stamp,
        write_through: seed.is_multiple_of(2),
        checkpoint_log_blocks: Some(1),
        ..Config::default()
    };
    Setting { seed, profile, config, spare: 0, depth: 1, tables: None, jitter: 0 }
}

fn expect_alive(runs: impl Iterator<Item = Run>) {
    let mut tally = Tally::default();
    let mut failures: Vec<(Run, Failure)> = Vec::new();
    for run in runs {
        let explored = explore(&run);
        tally += &explored.tally;
        if let Some(failure) = explored.failure {
            println!("seed {}, after {} of {} steps: {failure}", run.seed, explored.tally.steps, run.steps.len());
            failures.push((run, failure));
        }
    }
    let Tally { runs, cuts, recovery_cuts, closed, .. } = tally;
    println!(
        "{runs} drives, {cuts} cuts, {recovery_cuts} of recoveries, {closed} recovered drives closed: {}",
        tally.states
    );
    if let Some((run, failure)) = failures.first() {
        let shrunk = shrink(run, failure, |shrunk| shrunk.attempts < ATTEMPTS_MAX);
        let (steps, seed) = (write_steps(&shrunk.run.steps), run.seed);
        let count = failures.len();
        panic!("{count} of {runs} fail; seed {seed}: {}\n  {}\n  {steps}", shrunk.failure, run.setting);
    }
}

#[test]
fn two_units_of_sixteen_blocks_are_alive_after_every_cut() {
    expect_alive(seeds().map(|seed| {
        let setting = two_units_of_sixteen(seed);
        let steps = long_loop(&setting, &mut Dice::new(seed));
        Run { seed, setting, steps }
    }));
}

#[test]
fn narrow_drives_are_alive_after_every_cut() {
    expect_alive(seeds().filter(|seed| is_narrow(*seed)).map(Run::draw));
}
