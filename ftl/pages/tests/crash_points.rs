//! Every state in which a power cut can leave a small store of pages.

use openftl_media::Profile;
use openftl_media::profile::{Cell, Programming};
use openftl_parts::Config;
use openftl_sim::page_world::{PageWorld, SESSIONS};
use openftl_sim::played::Played;

/// A device with pages that damage each other and hold blocks back, and one with neither.
pub fn devices() -> [Profile; 2] {
    let plain = Profile::builtin("tiny").expect("a builtin profile");
    let mut paired = plain.clone();
    (paired.chip.cell, paired.chip.programming) = (Cell::Mlc, Programming::Shared);
    (paired.chip.pair_distance, paired.chip.read_us) = (Some(1), vec![40, 60]);
    (paired.chip.program_us, paired.cache.power_loss_protection) = (vec![400, 800], false);
    [plain, paired]
}

/// Plays steps on a small drive, and proves each state that a power cut may leave.
fn play(profile: Profile, steps: u64, seed: u64, mut act: impl FnMut(&mut PageWorld, u64)) -> u64 {
    let config = Config { checkpoint_log_blocks: Some(8), ..Config::default() };
    let mut world = PageWorld::new(profile, config, 32, seed);
    world.wire.watch();
    let mut cuts = 0;
    for step in 0..steps {
        act(&mut world, step);
        let model = world.model.clone();
        world.settle();
        // What was told meanwhile may be less than the model knows by now: each is judged by what was known before.
        for crash_point in world.wire.crash_points() {
            cuts += 1;
            let name = format!("step {step}, cut at {:?}", crash_point.at);
            let mut left = world.after_cut(crash_point, model.clone());
            left.recover().unwrap_or_else(|contradiction| panic!("{name}: {contradiction}"));
            left.prove();
        }
    }
    cuts
}

#[test]
fn every_power_cut_leaves_whole_batches_and_all_that_are_durable() {
    let mut cuts = 0;
    for (seed, profile) in (1..).zip(devices()) {
        cuts += play(profile, 30, seed, |world, step| {
            let session = (step % SESSIONS as u64) as usize;
            world.stage(session, step * 7, 1 + step % 5, step * 11, step % 9 == 8);
            world.commit(session, step % 4 == 3);
            if step % 10 == 9 {
                world.sync();
            }
        });
    }
    println!("{cuts} states after a power cut");
    assert!(cuts > 100, "{cuts}");
}
