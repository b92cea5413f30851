//! What a host may ask, and what it may not.

use crate::crash_points::devices;
use crate::world::PageWorld;
use openftl_parts::{Access, Config};
use openftl_sim::played::Played;

fn world(chunks: u32) -> PageWorld {
    let [plain, _] = devices();
    PageWorld::new(plain, Config { checkpoint_log_blocks: Some(8), ..Config::default() }, chunks, 1)
}

#[test]
fn what_is_committed_is_read_and_is_there_after_a_restart() {
    let mut world = world(32);
    for round in 0..40 {
        let session = round as usize % 3;
        world.stage(session, round * 5, 1 + round % 4, round * 3, false);
        world.commit(session, round % 5 == 0);
    }
    world.settle();
    world.verify_all();
    world.clean_restart();
    world.check();
}

#[test]
fn pages_are_overwritten_for_many_times_the_capacity() {
    let mut world = world(20);
    for round in 0..3000_u64 {
        let session = round as usize % 3;
        world.stage(session, round * 7919, 1 + round % 4, round * 7 / 3, round % 50 == 49);
        world.commit(session, round % 5 == 0);
        if round % 7 == 0 {
            world.settle();
        }
    }
    world.settle();
    world.verify_all();
    println!(
        "{} of {} bytes, {:?}",
        world.ftl().used_bytes(),
        world.ftl().capacity_bytes(),
        world.ftl().statistics().1
    );
    let cleaned = world.ftl().statistics().1.chunks_cleaned;
    assert!(cleaned > 20, "{cleaned}");
    world.clean_restart();
    world.check();
}

/// Found by hand: what the device held back when the drive was stopped could not be read by who only looked at it.
#[test]
fn a_store_that_was_stopped_can_be_looked_at() {
    for profile in devices() {
        let config = Config { checkpoint_log_blocks: Some(8), ..Config::default() };
        let mut world = PageWorld::new(profile, config, 32, 1);
        world.stage(0, 3, 4, 5, false);
        world.commit(0, false);
        world.settle();
        world.close().unwrap();
        world.open(Access::Inspect).unwrap();
        world.check();
        world.verify_all();
    }
}

#[test]
fn a_batch_that_is_staged_for_long_keeps_nobody_from_room() {
    let mut world = world(20);
    let capacity = world.ftl().capacity_bytes();
    let mut staged = 0;
    for round in 0..1500_u64 {
        // A page of the long batch beside each few that die.
        if world.ftl().used_bytes() < capacity / 2 && world.stage(0, staged, 1, 4 + staged, false) {
            staged += 1;
        }
        world.stage(1, round, 3, 4, false);
        world.commit(1, false);
        if round % 7 == 0 {
            world.settle();
        }
        if round % 100 == 99 {
            world.stage(1, round, 60, 0, true);
            world.commit(1, false);
        }
    }
    let cleaned = world.ftl().statistics().1.chunks_cleaned;
    assert!(cleaned > 20 && staged > 20, "{cleaned} cleaned, {staged} staged");
    world.commit(0, true);
    world.settle();
    world.verify_all();
    world.clean_restart();
    world.check();
}
