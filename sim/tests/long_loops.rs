//! Long loops: a narrow drive is cut or stopped dozens to hundreds of times, with little work in between, so that what each recovery
//! leaves behind adds up. After every cut a copy of the drive has to work and close, and the drive itself has to go on.
//!
//! ```text
//! OPENFTL_LONG_LOOPS=1000..1200 cargo test -p openftl-sim --test long_loops -- --nocapture
//! ```

use openftl_sim::step::write_steps;
use openftl_sim::swarm::is_narrow;
use openftl_sim::{Failure, Run, Tally, explore, shrink};
use std::ops::Range;

/// Seeds that every run of the tests tries. The first two drives found to hang were 13 and 17 on two units of sixteen: all chunks
/// waited for the log before their reset, and the log waited for a chunk.
const SEEDS: Range<u64> = 0..20;

/// A long loop takes long to be made short.
const ATTEMPTS_MAX: u32 = 300;

fn seeds() -> Range<u64> {
    let Ok(text) = std::env::var("OPENFTL_LONG_LOOPS") else { return SEEDS };
    let (from, to) = text.split_once("..").expect("OPENFTL_LONG_LOOPS is like 100..200");
    from.parse().expect("a number")..to.parse().expect("a number")
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
    expect_alive(seeds().map(Run::long_loop));
}

#[test]
fn narrow_drives_are_alive_after_every_cut() {
    expect_alive(seeds().filter(|seed| is_narrow(*seed)).map(Run::draw));
}
