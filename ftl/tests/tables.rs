//! Table drives against the model: tables, the log area beside them, restarts and power cuts, on many kinds of flash.

use openftl_ftl::Config;
use openftl_media::Profile;
use openftl_sim::TableWorld;
use openftl_sim::world::{config, profile};

/// Seeds of each kind of flash.
const SEEDS: u64 = 40;

const UNPROTECTED: (&str, &str) = ("power_loss_protection = true", "power_loss_protection = false");
const ONE_SHOT: [(&str, &str); 2] = [
    ("programming = \"shared\"\npair_distance = 2", "programming = \"one-shot\""),
    ("program_us = [400, 1200]", "program_us = [1600]"),
];

fn small(seed: u64) -> Config {
    config(200, seed)
}

/// Many requests under way, restarts and power cuts: what is found is always what the model allows.
fn live(profile: &Profile, config: impl Fn(u64) -> Config, seed: u64) -> TableWorld {
    let mut world = TableWorld::new(profile.clone(), config(seed), 8, seed);
    println!("seed {seed}");
    for _ in 0..12 {
        for _ in 0..world.below(60) {
            world.operation(1 + seed as usize % 7);
        }
        match world.below(4) {
            0 => world.clean_restart(),
            1 => world.verify_all(),
            torn => {
                world.power_cut(torn == 2);
                if let Err(contradiction) = world.recover() {
                    panic!("seed {seed}: {contradiction}");
                }
            }
        }
    }
    world.verify_all();
    world.check();
    world.clean_restart();
    world
}

fn live_on(changes: &[(&str, &str)]) {
    let profile = profile("tiny", changes);
    for seed in 0..SEEDS {
        live(&profile, small, seed);
    }
}

#[test]
fn a_table_drive_is_what_the_model_says_on_paired_pages() {
    live_on(&[]);
}

#[test]
fn a_table_drive_is_what_the_model_says_with_a_volatile_cache() {
    live_on(&[UNPROTECTED]);
}

#[test]
fn a_table_drive_is_what_the_model_says_without_a_cache() {
    live_on(&[UNPROTECTED, ("blocks_per_pu = 8", "blocks_per_pu = 0")]);
}

#[test]
fn a_table_drive_is_what_the_model_says_with_one_shot_programming() {
    live_on(&[ONE_SHOT[0], ONE_SHOT[1], UNPROTECTED]);
}

#[test]
fn a_table_drive_is_what_the_model_says_in_one_group() {
    live_on(&[("groups = 2", "groups = 1")]);
}

#[test]
fn a_table_drive_is_what_the_model_says_where_few_chunks_may_be_open() {
    live_on(&[("vector_copy = true", "vector_copy = true\nopen_chunks_max = 20")]);
    live_on(&[("vector_copy = true", "vector_copy = true\nopen_chunks_per_pu_max = 17")]);
}
