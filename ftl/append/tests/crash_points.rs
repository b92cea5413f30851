//! Every state in which a power cut can leave a small log.

use crate::world::LogWorld;
use openftl_media::Profile;
use openftl_media::profile::{Cell, Programming};
use openftl_parts::Config;
use openftl_sim::played::Played;

/// A device with pages that damage each other and hold blocks back, and one with neither.
fn devices() -> [Profile; 2] {
    let plain = Profile::builtin("tiny").expect("a builtin profile");
    let mut paired = plain.clone();
    (paired.chip.cell, paired.chip.programming) = (Cell::Mlc, Programming::Shared);
    (paired.chip.pair_distance, paired.chip.read_us) = (Some(1), vec![40, 60]);
    (paired.chip.program_us, paired.cache.power_loss_protection) = (vec![400, 800], false);
    [plain, paired]
}

#[test]
fn every_power_cut_leaves_what_was_flushed() {
    for profile in devices() {
        let config = Config { checkpoint_log_blocks: Some(8), ..Config::default() };
        let mut world = LogWorld::new(profile, config, 24, 1);
        world.wire.watch();
        let mut cuts = 0;
        for step in 0..24 {
            world.append(1 + step * 7 % 23);
            if step % 3 == 0 {
                world.flush();
            }
            let model = world.model.clone();
            world.settle();
            // What was told meanwhile may be less than the model knows by now: each is judged by what was known before.
            for crash_point in world.wire.crash_points() {
                cuts += 1;
                let mut left = world.after_cut(crash_point, model.clone());
                left.prove();
            }
        }
        println!("{cuts} states after a power cut");
        assert!(cuts > 100, "{cuts}");
    }
}
