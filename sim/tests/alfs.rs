//! ALFS in lock step with the model, and every power cut of it.

use openftl_core::{FrameForm, Nanos};
use openftl_media::Profile;
use openftl_parts::Config;
use openftl_sim::alfs::Alfs;
use openftl_sim::world::profile;
use openftl_sim::{FileCrashPoints, FileStage, FileSteps, FileWeights};
use openftl_zones::{Face, Limits, ZoneConfig};

fn device(is_protected: bool) -> Profile {
    let protection = [("power_loss_protection = true", "power_loss_protection = false")];
    let changes = [("blocks_per_chunk = 32", "blocks_per_chunk = 16")];
    profile("tiny", &[&changes[..], if is_protected { &[] } else { &protection }].concat())
}

fn stage(is_protected: bool, segments: u32, seed: u64) -> FileStage<Alfs> {
    let config = Config {
        payload: FrameForm::Bytes,
        host_frames: 640,
        checkpoint_log_blocks: Some(24),
        drive_id: 0xA1F5 + seed,
        ..Config::default()
    };
    let shape = ZoneConfig {
        face: Face::Segments,
        width: 1,
        limits: Limits { max_open: 8, max_active: 8 },
        zones: Some(segments),
        extension_bytes: 0,
        window_blocks: 0,
    };
    let chunks = segments / 4 + 40;
    FileStage::new(Alfs::syncing_after(Nanos::from_millis(40)), device(is_protected), config, shape, chunks, seed).expect("there can be such a drive")
}

fn steps(seed: u64, weights: FileWeights) -> FileSteps {
    let mut steps = FileSteps::new(seed, weights);
    (steps.files_max, steps.bytes_max, steps.write_bytes_max) = (40, 512 << 10, 60 << 10);
    steps
}

#[test]
fn alfs_does_what_the_model_says() {
    let seeds = std::env::var("ALFS_SEEDS").map_or(6, |text| text.parse().unwrap());
    let first = std::env::var("ALFS_SEED").map_or(0, |text| text.parse().unwrap());
    for seed in first..first + seeds {
        let mut stage = stage(seed % 2 == 0, 200, seed);
        stage.world().leniency.may_be_full = true;
        stage.world().leniency.accessed_is_rough = true;
        let mut steps = steps(seed, FileWeights::usual());
        for number in 0..3000 {
            let step = steps.next(&stage.world().model);
            if let Err(error) = stage.step(&step) {
                panic!("seed {seed}, step {number}: {error}; {}", stage.world().subject.describe());
            }
            if number % 1000 == 500 {
                stage.remount().unwrap_or_else(|error| panic!("seed {seed}, remount at {number}: {error}"));
            }
        }
        stage.world().verify().unwrap();
    }
}

#[test]
fn alfs_bears_every_power_cut() {
    let first = std::env::var("ALFS_SEED").map_or(0, |text| text.parse().unwrap());
    for (is_protected, operations, seed) in [(true, 150, first + 1), (false, 100, first + 2)] {
        let mut stage = stage(is_protected, 64, seed);
        stage.world().leniency.may_be_full = true;
        stage.world().leniency.accessed_is_rough = true;
        let (mut steps, mut points) = (steps(seed, FileWeights::usual()), FileCrashPoints::default());
        stage.wire().watch();
        for number in 0..operations {
            let step = steps.next(&stage.world().model);
            if let Err(error) = stage.step(&step) {
                panic!("seed {seed}, step {number}: {error}; {}", stage.world().subject.describe());
            }
            points.judge(&mut stage).unwrap_or_else(|error| panic!("seed {seed}, step {number}: {error}"));
        }
        println!("protected: {is_protected}: {points}");
    }
}
