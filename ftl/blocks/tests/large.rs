//! Drives whose addresses or logical blocks have more bits than a map in memory has room for.

use openftl_core::units::Share;
use openftl_media::Profile;
use openftl_parts::Config;
use openftl_parts::map::cache::CachePolicy;
use openftl_parts::map::memory::{MapBudget, MapMemory};
use openftl_parts::map::{Width, directory::PageSize};
use openftl_sim::played::Played;
use openftl_sim::world::{World, config, profile};

/// The profile `tiny` with chunks of so many blocks.
fn with_chunks_of(blocks: u64) -> Profile {
    profile("tiny", &[("blocks_per_chunk = 32", &format!("blocks_per_chunk = {blocks}"))])
}

fn on_media(budget: MapBudget, entries: u32, config: Config) -> Config {
    let page = PageSize::of(entries, Width::Narrow).unwrap();
    Config { map_memory: Some(MapMemory { budget, policy: CachePolicy::Clock, page }), ..config }
}

/// Operations with power cuts and clean stops in between. All is read and checked at the end.
fn play(world: &mut World, operations: u64) {
    for number in 0..operations {
        world.operation(8);
        if number % 97 == 96 {
            let torn = world.below(2) == 0;
            world.power_cut(torn);
            world.recover().unwrap_or_else(|contradiction| panic!("after operation {number}: {contradiction}"));
        } else if number % 311 == 310 {
            world.clean_restart();
        }
    }
    world.settle();
    world.verify_all();
}

/// A chunk has 256 GiB, so that addresses have 33 bits though there are few chunks.
#[test]
fn long_addresses_agree_with_the_model() {
    let mut merged = 0;
    for seed in 0..2 {
        let config = on_media(MapBudget::BeyondLeast(500), 8, config(700, seed));
        let mut world = World::new(with_chunks_of(1 << 26), config, 20, seed);
        play(&mut world, 500);
        let is_far =
            |world: &mut World, block: u64| world.ftl().place_on_media(block).is_some_and(|ppa| ppa.0 >> 32 > 0);
        assert!((0..700).any(|block| is_far(&mut world, block)), "no address is longer than 32 bits");
        world.check();
        merged += world.ftl().statistics().map_pages_written;
    }
    assert!(merged > 0, "nothing was merged");
}

/// 17 TiB, of which the host uses the last blocks.
#[test]
fn logical_blocks_beyond_32_bits_agree_with_the_model() {
    let capacity_blocks = (17 << 40) / 4096;
    let config =
        Config { checkpoint_log_blocks: None, over_provisioning: Share::percent(5), ..config(capacity_blocks, 1) };
    let config = on_media(MapBudget::BeyondLeast(20_000), 1024, config);
    let mut world = World::at_the_end(with_chunks_of(1 << 20), config, 3_000, 1);
    play(&mut world, 400);
    let (last, of_32_bits) = (capacity_blocks - 3_000..capacity_blocks, |block: u64| block & u64::from(u32::MAX));
    assert!(last.clone().any(|block| world.ftl().place_on_media(block).is_some()), "nothing is on media");
    for block in last.map(of_32_bits) {
        assert_eq!(world.ftl().place_on_media(block), None, "block {block} stands for a later one");
    }
    world.check();
}
