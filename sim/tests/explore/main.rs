//! A bounded number of histories, with debug assertions: those of these seeds are sound, and the same each time. Beside them what the
//! explorer has found before.

mod found;
mod found_in_stores;
mod worn_out;

use openftl_sim::step::{parse_steps, write_steps};
use openftl_sim::{Drives, FaultKind, Run, Tally, explore, shrink};

/// Seeds that are explored in every run of the tests. `cargo xtask test` explores others besides.
const SEEDS: u64 = 600;

/// The same of zoned drives.
const ZONED_SEEDS: u64 = 300;

/// The same of file systems.
const FILE_SEEDS: u64 = 400;

fn explored(run: Run) -> Tally {
    let explored = explore(&run);
    if let Some(failure) = explored.failure {
        let shrunk = shrink(&run, &failure, |_| true);
        let steps = write_steps(&shrunk.run.steps);
        panic!("seed {0}: {failure}\n{1}\nopenftl explore --seed {0} --steps '{steps}'", run.seed, run.setting);
    }
    explored.tally
}

#[test]
fn histories_of_many_kinds_are_sound() {
    let mut tally = Tally::default();
    for seed in 0..SEEDS {
        tally += &explored(Run::draw(seed));
    }
    let Tally { cuts, recovery_cuts, restarts, worn_out, .. } = tally;
    println!("{SEEDS} histories: {cuts} power cuts, {recovery_cuts} of recoveries, {} faults", tally.faults());
    assert!(cuts > 1_000 && recovery_cuts > 100 && restarts > 200 && worn_out > 3, "all of it happens: {tally:?}");
    for (kind, _) in FaultKind::ALL {
        assert!(tally.faults[&kind] > 100, "all faults happen: {tally:?}");
    }
}

#[test]
fn histories_of_zoned_drives_are_sound() {
    let mut tally = Tally::default();
    for seed in 0..ZONED_SEEDS {
        tally += &explored(Run::draw_of(seed, Drives::Zones));
    }
    let Tally { cuts, recovery_cuts, restarts, worn_out, zoned_drives, .. } = tally;
    println!("{ZONED_SEEDS} histories: {cuts} power cuts, {recovery_cuts} of recoveries, {} faults", tally.faults());
    assert!(cuts > 1_000 && recovery_cuts > 100 && restarts > 200 && worn_out > 3, "all of it happens: {tally:?}");
    assert_eq!(zoned_drives, ZONED_SEEDS);
}

#[test]
fn histories_of_files_are_sound() {
    let first = std::env::var("OPENFTL_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(0);
    let seeds = std::env::var("OPENFTL_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(FILE_SEEDS);
    let mut tally = Tally::default();
    for seed in first..first + seeds {
        tally += &explored(Run::draw_of(seed, Drives::Files));
    }
    let Tally { cuts, recovery_cuts, restarts, file_systems, worn_out, .. } = tally;
    println!(
        "{seeds} histories: {cuts} power cuts, {recovery_cuts} of recoveries, {} faults, {worn_out} media that failed",
        tally.faults()
    );
    let is_usual = cuts > 100 && recovery_cuts > 30 && restarts > 60 && tally.faults() > 50;
    assert!(is_usual || seeds < FILE_SEEDS, "all of it happens: {tally:?}");
    assert_eq!(file_systems, seeds);
}

#[test]
fn a_history_of_files_that_is_written_down_is_the_same_one() {
    let run = Run::draw_of(5, Drives::Files);
    let again = Run::with_steps(5, Drives::Files, parse_steps(&write_steps(&run.steps)).unwrap()).unwrap();
    assert_eq!(explore(&run).trace, explore(&again).trace);
    for text in ["f", "w0+1", "A0+1", "h1", "o3"] {
        let error = Run::with_steps(5, Drives::Files, parse_steps(text).unwrap()).unwrap_err();
        assert!(error.to_string().contains(text), "{error}");
    }
    let error = Run::with_steps(5, Drives::All, parse_steps("jmake3").unwrap()).unwrap_err();
    assert!(error.to_string().contains("jmake3"), "{error}");
}

#[test]
fn the_same_seed_gives_the_same_history_and_another_one_another() {
    let traces = || (0..40).map(|seed| explore(&Run::draw(seed)).trace.0).collect::<Vec<_>>();
    let mut once = traces();
    assert_eq!(once, traces());
    once.sort_unstable();
    once.dedup();
    assert_eq!(once.len(), 40);
}

#[test]
fn the_steps_of_a_run_written_down_and_read_again_are_the_same_run() {
    let run = Run::draw(3);
    let again = Run::with_steps(3, Drives::All, parse_steps(&write_steps(&run.steps)).unwrap()).unwrap();
    assert_eq!(explore(&run).trace, explore(&again).trace);
}

#[test]
fn a_step_that_the_drive_cannot_take_is_named() {
    for text in ["w100000+1", "r0+0", "w0+257", "t0+1000000"] {
        let error = Run::with_steps(3, Drives::All, parse_steps(text).unwrap()).unwrap_err();
        assert!(error.to_string().contains(text), "{error}");
    }
}
