//! What a host may ask, and what it may not.

use crate::crash_points::{config, devices, narrow};
use crate::world::{ValueWorld, key};
use openftl_sim::played::Played;
use openftl_values::{Condition, ValueConfig, ValueTarget};

pub fn world(shape: ValueConfig, chunks: u32) -> ValueWorld {
    let [plain, _] = devices();
    ValueWorld::new(plain, config(), shape, chunks, 1)
}

#[test]
fn what_is_stored_is_retrieved_and_is_there_after_a_restart() {
    for shape in [narrow(), ValueConfig::default()] {
        let mut world = world(shape, 40);
        for round in 0..300 {
            let bytes = [0, 1, 100, 1000, 4076, 4077, 5000, 20_000][round as usize % 8];
            world.store(key(round * 7), bytes, Condition::Always, round % 40 == 0);
            world.retrieve(key(round * 5), if round % 4 == 0 { 4096 } else { usize::MAX });
            world.delete(key(round * 11), false);
            world.exist(key(round * 3));
        }
        world.settle();
        world.verify_all();
        world.list(None, 4000);
        world.clean_restart();
        world.verify_all();
        let drive = world.ftl();
        println!("{:?}\n{:?}", drive.statistics(), drive.info());
    }
}
