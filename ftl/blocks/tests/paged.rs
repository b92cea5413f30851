//! Drives whose map is on media, with little memory for it: against the model, with clean stops and power cuts.

use openftl_media::Profile;
use openftl_parts::Config;
use openftl_parts::map::directory::PageSize;
use openftl_parts::map::memory::{MapBudget, MapMemory};
use openftl_parts::map::page_cache::CachePolicy;
use openftl_sim::world::{World, config};

fn run(name: &str, capacity_blocks: u64, entries: u32, seed: u64, operations: u64, depth: usize) -> World {
    let profile = Profile::builtin(name).unwrap();
    let policy = CachePolicy::ALL[seed as usize % CachePolicy::ALL.len()];
    let page = PageSize::of(entries).unwrap();
    let memory = MapMemory { budget: MapBudget::BeyondLeast(500), policy, page };
    let config = Config { map_memory: Some(memory), ..config(capacity_blocks, seed) };
    let mut world = World::new(profile, config, 0, seed);
    for number in 0..operations {
        world.operation(depth);
        if number % 97 == 96 {
            let torn = world.below(2) == 0;
            world.power_cut(torn);
            if let Err(contradiction) = world.recover() {
                panic!("seed {seed}, after operation {number}: {contradiction}");
            }
        } else if number % 311 == 310 {
            world.clean_restart();
        }
        if number % 500 == 499 {
            world.verify_all();
        }
    }
    world.settle();
    world.verify_all();
    world.check();
    world
}

#[test]
fn a_map_of_small_pages_agrees_with_the_model() {
    let mut merged = 0;
    for seed in 0..8 {
        let mut world = run("tiny", 700, 8, seed, 2_000, 1 + seed as usize);
        merged += world.ftl().statistics().map_pages_written;
    }
    assert!(merged > 0, "nothing was merged");
}

#[test]
fn a_map_of_any_page_size_on_any_flash_agrees_with_the_model() {
    for seed in 100..104 {
        run("tiny", 700, [8, 32, 1024, 64][seed as usize % 4], seed, 1_500, 1 + seed as usize % 16);
        run("westlake", 6_000, [16, 1024][seed as usize % 2], seed, 600, 1 + seed as usize % 16);
    }
    for seed in 104..106 {
        run("qlc", 6_000, [16, 1024][seed as usize % 2], seed, 600, 8);
        run("granby", 6_000, [128, 1024][seed as usize % 2], seed, 400, 8);
    }
}
