//! The explorer finds what it is there to find: of an FTL with a known bug a bounded number of runs is enough to see one
//! fail, and the history that shows it is short.

use openftl_parts::Canary;
use openftl_sim::step::write_steps;
use openftl_sim::swarm::Setting;
use openftl_sim::{Run, explore, shrink};

/// Runs after which a bug counts as missed.
const RUNS_MAX: u64 = 2_500;

/// Steps that show a bug, at most.
const STEPS_MAX: usize = 40;

fn without_canary(setting: &Setting) -> Setting {
    let mut setting = setting.clone();
    setting.config.canary = None;
    setting
}

fn expect_caught(canary: Canary) {
    expect_caught_from(0, canary);
}

/// The same with other runs, where the first ones would take long.
fn expect_caught_from(first: u64, canary: Canary) {
    for seed in first..first + RUNS_MAX {
        let mut run = Run::draw(seed);
        run.setting.config.canary = Some(canary);
        let Some(failure) = explore(&run).failure else { continue };
        // What fails without the bug as well shows nothing of it.
        let without = Run { setting: without_canary(&run.setting), ..run.clone() };
        if explore(&without).failure.is_some() {
            continue;
        }
        // Short enough is all that is asked for: the last steps cost most of the time.
        let shrunk = shrink(&run, &failure, |shrunk| shrunk.run.steps.len() > STEPS_MAX);
        let steps = write_steps(&shrunk.run.steps);
        println!("{canary:?}: caught by run {} of {RUNS_MAX}: {steps}\n  {}", seed - first + 1, shrunk.failure);
        // A drive that has to be filled first needs many; another shows the same with fewer.
        if shrunk.run.steps.len() > STEPS_MAX {
            continue;
        }
        assert_eq!(explore(&shrunk.run).failure, Some(shrunk.failure), "{canary:?}: the same failure each time");
        let healthy = Run { steps: shrunk.run.steps, ..without };
        assert_eq!(explore(&healthy).failure, None, "{canary:?}: it is the bug that fails");
        return;
    }
    panic!("{canary:?} was not caught by {RUNS_MAX} runs, or not by a history of at most {STEPS_MAX} steps");
}

#[test]
fn a_commit_record_before_its_data_is_caught() {
    expect_caught(Canary::RecordBeforeData);
}

#[test]
fn a_flush_answered_before_the_log_is_durable_is_caught() {
    expect_caught(Canary::FlushBeforeLog);
}

#[test]
fn a_chunk_reset_before_the_log_is_durable_is_caught() {
    expect_caught(Canary::ResetBeforeLog);
}

#[test]
fn a_checkpoint_published_before_the_log_is_durable_is_caught() {
    expect_caught_from(890, Canary::CheckpointBeforeLog);
}

#[test]
fn a_transaction_in_parts_is_caught() {
    expect_caught(Canary::SplitTransaction);
}

#[test]
fn a_chunk_released_before_the_catalog_is_durable_is_caught() {
    expect_caught_from(115, Canary::ReleaseBeforeCatalog);
}

#[test]
fn an_older_version_that_passes_for_the_newest_is_caught() {
    expect_caught_from(70, Canary::UntiedBlocks);
}

#[test]
fn an_uncorrectable_block_that_is_readable_on_the_medium_is_caught() {
    expect_caught(Canary::ForgottenMark);
}

#[test]
fn a_gap_in_the_log_that_is_not_recorded_is_caught() {
    expect_caught(Canary::UnrecordedGap);
}

#[test]
fn a_number_of_the_log_that_is_used_again_is_caught() {
    expect_caught(Canary::ReusedNumber);
}

#[test]
fn a_copy_of_the_log_that_is_not_mended_is_caught() {
    expect_caught(Canary::UnmendedCopy);
}

#[test]
fn collection_that_overtakes_the_host_is_caught() {
    expect_caught(Canary::CollectionRace);
}

#[test]
fn room_that_a_crash_left_and_nobody_takes_back_is_caught() {
    expect_caught_from(1_170, Canary::ForgottenRoom);
}
