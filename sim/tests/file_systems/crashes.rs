//! Crash points of file systems that keep their word, and of those that do not.

use crate::double::{Double, Lie};
use openftl_core::FrameForm;
use openftl_media::Profile;
use openftl_parts::Config;
use openftl_sim::world::profile;
use openftl_sim::{FileAct, FileCrashPoints, FileStage, FileSteps, FileWeights};
use openftl_zones::{Face, Limits, ZoneConfig};

fn device(is_protected: bool) -> Profile {
    let protection = [("power_loss_protection = true", "power_loss_protection = false")];
    let changes = [("blocks_per_chunk = 32", "blocks_per_chunk = 16")];
    profile("tiny", &[&changes[..], if is_protected { &[] } else { &protection }].concat())
}

fn stage(lie: Lie, is_protected: bool, seed: u64) -> FileStage<Double> {
    let config = Config {
        payload: FrameForm::Bytes,
        host_frames: 128,
        checkpoint_log_blocks: Some(24),
        drive_id: 0xA1F5 + seed,
        ..Config::default()
    };
    let segments = ZoneConfig {
        face: Face::Segments,
        width: 2,
        limits: Limits { max_open: 4, max_active: 4 },
        zones: Some(4),
        extension_bytes: 0,
        window_blocks: 0,
    };
    FileStage::new(Double::new(lie), device(is_protected), config, segments, 34, seed)
        .expect("there can be such a drive")
}

/// Many small changes: what is written is of no importance to this file system.
fn steps(seed: u64, weights: FileWeights) -> FileSteps {
    let mut steps = FileSteps::new(seed, weights);
    (steps.files_max, steps.bytes_max, steps.write_bytes_max) = (24, 256 << 10, 20 << 10);
    steps
}

/// Plays operations and judges every crash point.
fn play(
    lie: Lie,
    is_protected: bool,
    operations: u32,
    seed: u64,
    weights: &FileWeights,
) -> Result<FileCrashPoints, String> {
    let mut stage = stage(lie, is_protected, seed);
    let (mut steps, mut points) = (steps(seed, weights.clone()), FileCrashPoints::default());
    stage.wire().watch();
    for number in 0..operations {
        let step = steps.next(&stage.world().model);
        stage.step(&step)?;
        points.judge(&mut stage)?;
        if number == operations / 2 {
            stage.remount()?;
            points.judge(&mut stage)?;
        }
    }
    stage.world().settle()?;
    stage.world().verify()?;
    Ok(points)
}

#[test]
fn an_honest_file_system_bears_every_power_cut() {
    for (is_protected, operations, seed) in [(true, 120, 1), (false, 50, 2)] {
        let points = play(Lie::None, is_protected, operations, seed, &FileWeights::usual());
        let points = points.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        println!("protected: {is_protected}: {points}");
        assert!(
            points.cuts > 40 && points.recovery_cuts > 5 && points.judge.open > 20,
            "too few to show anything: {points}"
        );
    }
}

/// Each lie is caught by some seed, and by saying this.
fn expect_caught(lie: Lie, weights: &FileWeights, expected: &str) {
    let play = |seed| play(lie, false, 60, seed, weights).map(|points| points.to_string());
    let error = (0..4).find_map(|seed| play(seed).err()).unwrap_or_else(|| panic!("{lie:?} is not caught"));
    assert!(error.contains(expected), "{lie:?} is caught by another thing than expected: {error}");
    println!("{lie:?}: {error}\n");
}

/// Changes of names, with syncs.
fn names() -> FileWeights {
    FileWeights::none()
        .with(FileAct::Make, 6)
        .with(FileAct::MakeFolder, 1)
        .with(FileAct::Rename, 10)
        .with(FileAct::Unlink, 5)
        .with(FileAct::Sync, 2)
}

#[test]
fn a_sync_that_is_over_too_early_is_caught() {
    expect_caught(Lie::SyncsEarly, &FileWeights::usual().with(FileAct::Sync, 10), "like none of the states");
}

#[test]
fn a_name_that_is_there_again_is_caught() {
    let weights = names().with(FileAct::Sync, 10);
    expect_caught(Lie::Resurrects, &weights, "like none of the states");
}

#[test]
fn a_torn_rename_is_caught() {
    expect_caught(Lie::TearsRenames, &names(), "like none of the states");
}

#[test]
fn a_synced_write_that_is_lost_is_caught() {
    let weights = FileWeights::none().with(FileAct::Make, 2).with(FileAct::Write, 8).with(FileAct::Sync, 4);
    expect_caught(Lie::ForgetsWrites, &weights, "like none of the states");
}

#[test]
fn a_mount_that_is_not_one_step_is_caught_by_cuts_of_it() {
    expect_caught(Lie::MountsInTwoSteps, &FileWeights::usual(), "then recovery cut");
}

#[test]
fn a_recovered_file_system_that_hangs_is_caught() {
    expect_caught(Lie::Hangs, &FileWeights::usual(), "nothing is due");
}

#[test]
fn an_unmount_that_loses_something_is_caught() {
    expect_caught(Lie::UnmountsVolatile, &FileWeights::usual(), "like none of the states");
}
