//! Every state in which a power cut can leave a small key-value drive.

use crate::world::{ValueWorld, key};
use openftl_media::Profile;
use openftl_media::profile::{Cell, Programming};
use openftl_parts::Config;
use openftl_sim::played::Played;
use openftl_values::{Condition, ValueConfig};

/// A device with pages that damage each other and hold blocks back, and one with neither.
pub fn devices() -> [Profile; 2] {
    let plain = Profile::builtin("tiny").expect("a builtin profile");
    let mut paired = plain.clone();
    (paired.chip.cell, paired.chip.programming) = (Cell::Mlc, Programming::Shared);
    (paired.chip.pair_distance, paired.chip.read_us) = (Some(1), vec![40, 60]);
    (paired.chip.program_us, paired.cache.power_loss_protection) = (vec![400, 800], false);
    [plain, paired]
}

pub fn config() -> Config {
    Config { checkpoint_log_blocks: Some(8), ..Config::default() }
}

/// Few numbers, so that keys share them, and a directory that is merged all the time.
pub fn narrow() -> ValueConfig {
    ValueConfig { keys_max: Some(400), changes_max: Some(12), number_bits: Some(5), ..ValueConfig::default() }
}

/// Plays steps on a small drive, and proves each state that a power cut may leave.
fn play(profile: Profile, steps: u64, seed: u64, mut act: impl FnMut(&mut ValueWorld, u64)) -> (u64, u64) {
    let mut world = ValueWorld::new(profile, config(), narrow(), 32, seed);
    world.wire.watch();
    let mut cuts = 0;
    for step in 0..steps {
        // What was told meanwhile may be less than the model knows by now: each is judged by what was known before.
        world.settle();
        let mut model = world.model.clone();
        act(&mut world, step);
        model.may_have(&world.model);
        world.settle();
        for crash_point in world.wire.crash_points() {
            cuts += 1;
            let name = format!("step {step}, cut at {:?}", crash_point.at);
            let mut left = world.after_cut(crash_point, model.clone());
            left.recover().unwrap_or_else(|contradiction| panic!("{name}: {contradiction}"));
            left.prove();
        }
    }
    (cuts, world.ftl().statistics().merges)
}

#[test]
fn every_power_cut_leaves_whole_changes_all_that_are_durable_and_a_directory_that_agrees() {
    let (mut cuts, mut merges) = (0, 0);
    for (seed, profile) in (1..).zip(devices()) {
        let played = play(profile, 40, seed, |world, step| {
            let bytes = [0, 10, 300, 2000, 5000][step as usize % 5];
            for more in 0..3 {
                world.store(key(step * 7 + more * 13), bytes + more as usize, Condition::Always, false);
            }
            world.delete(key(step * 11), step % 4 == 3);
            if step % 10 == 9 {
                world.flush();
            }
        });
        (cuts, merges) = (cuts + played.0, merges + played.1);
    }
    println!("{cuts} states after a power cut, {merges} merges");
    assert!(cuts > 100 && merges > 5, "{cuts} cuts, {merges} merges");
}
