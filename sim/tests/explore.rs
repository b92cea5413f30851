//! A bounded number of histories: each run of these seeds is sound, and the same each time.

use openftl_sim::{Run, Tally, explore, shrink};

/// Seeds that are explored in every run of the tests.
const SEEDS: std::ops::Range<u64> = 0..300;

fn sound(seed: u64) -> Tally {
    let run = Run::draw(seed);
    let explored = explore(&run);
    if let Some(failure) = explored.failure {
        let shrunk = shrink(&run, &failure);
        panic!(
            "seed {seed}: {failure}\n{}\nshrunk to: {}\n{}\nopenftl explore --seed {seed} --steps '{}'",
            run.setting,
            shrunk.failure,
            shrunk.run.steps.len(),
            openftl_sim::step::write_steps(&shrunk.run.steps)
        );
    }
    explored.tally
}

#[test]
fn histories_of_many_kinds_are_sound() {
    let mut tally = Tally::default();
    for seed in SEEDS {
        tally += &sound(seed);
    }
    println!("{tally:?}");
}
