//! Repair: the index of pages is rebuilt from their headers, and the directory from the keys behind values.

use crate::crash_points::{config, index_on_media, narrow};
use crate::world::{ValueWorld, key};
use openftl_core::{ChunkId, Ppa};
use openftl_media::{Media, Profile};
use openftl_parts::map::Width;
use openftl_parts::map::directory::PageSize;
use openftl_parts::map::memory::MapMemory;
use openftl_parts::{Access, Config, RepairReport};
use openftl_sim::damage::{area_on_media, checkpoint_and_log, strike, written_blocks};
use openftl_sim::devices::plain_and_paired;
use openftl_sim::played::Played;
use openftl_sim::step::Moment;
use openftl_values::{Condition, Ftl};

/// A drive with values of all sizes, lists, deletions and merges, all of it durable.
fn in_use(profile: Profile, seed: u64, rounds: u64) -> ValueWorld {
    // What is rebuilt needs room for more leaves.
    let page = PageSize::of(24, Width::Narrow).expect("a leaf of some pages");
    let map_memory = seed.is_multiple_of(2).then(|| MapMemory { page, ..index_on_media(seed) });
    let config = Config { host_frames: 400, map_memory, ..config() };
    let mut world = ValueWorld::new(profile, config, narrow(), 32, seed);
    for round in 0..rounds {
        let bytes = [0, 10, 300, 2000, 5000][round as usize % 5];
        for more in 0..3 {
            world.store(key(round * (7 + seed) + more * 13), bytes + more as usize, Condition::Always, false);
        }
        world.delete(key(round * 11), false);
    }
    // A flush is of what has ended before it.
    world.settle();
    world.flush();
    world.settle();
    world
}

fn area_log_and_checkpoint(world: &mut ValueWorld) -> Vec<ChunkId> {
    let (checkpoint, log) = checkpoint_and_log(world.ftl().block());
    [checkpoint, log].concat()
}

fn anchor_of(world: &ValueWorld) -> Ppa {
    let mut twin = world.twin();
    twin.open(Access::Inspect).unwrap();
    area_on_media(twin.ftl().block())[0].expect("a store has an anchor")
}

/// It cannot be opened as it is, and is repaired. Gives the report, and how many keys that were deleted are back.
fn repaired(world: &mut ValueWorld) -> (RepairReport, usize) {
    let refusal = world.open(Access::ReadWrite).expect_err("it cannot be opened as it is");
    assert!(refusal.is_repairable(), "{refusal}");
    world.power_cut_at(Moment::NOW);
    world.open(Access::Repair).unwrap_or_else(|error| panic!("{error}"));
    let report = world.ftl().block().recovery_report().repair.clone().expect("something was rebuilt");
    let back = world.adopt_repaired().unwrap_or_else(|error| panic!("{error}: {report:?}"));
    world.check();
    (report, back)
}

fn expect_in_use(world: &mut ValueWorld) {
    for number in 0..40 {
        world.store(key(number * 3), number as usize * 100, Condition::Always, number % 9 == 0);
        world.delete(key(number * 5), false);
    }
    world.flush();
    world.settle();
    world.power_cut_at(Moment::NOW);
    world.recover().unwrap();
    world.clean_restart();
    world.verify_all();
}

#[test]
fn keys_and_their_directory_are_rebuilt_when_the_checkpoint_and_the_log_of_the_area_are_lost() {
    for (seed, profile) in (1..).zip(plain_and_paired()) {
        let mut world = in_use(profile, seed, 60);
        let chunks = area_log_and_checkpoint(&mut world);
        world.power_cut_at(Moment::NOW);
        strike(&world, &chunks);
        let (report, back) = repaired(&mut world);
        println!("{report:?}, {back} back");
        let index = report.index.expect("the index was rebuilt");
        assert!(index.pages_lost == 0 && report.keys.is_some_and(|keys| keys > 20), "{report:?}");
        expect_in_use(&mut world);
    }
}

#[test]
fn keys_and_their_directory_are_rebuilt_when_anchor_and_log_are_lost() {
    for (seed, profile) in (3..).zip(plain_and_paired()) {
        let mut world = in_use(profile, seed, 60);
        let log = world.ftl().store().log_chunks();
        world.close().unwrap();
        let anchor = anchor_of(&world);
        world.device().corrupt(anchor).unwrap();
        strike(&world, &log);
        let (report, back) = repaired(&mut world);
        println!("{report:?}, {back} back");
        assert!(report.index.is_some_and(|index| index.pages_rebuilt > 50), "{report:?}");
        expect_in_use(&mut world);
    }
}

#[test]
fn a_repair_of_keys_may_be_cut_anywhere_and_is_begun_again() {
    let mut cuts = 0;
    for (seed, profile) in (5..).zip(plain_and_paired()) {
        let mut world = in_use(profile, seed, 30);
        world.close().unwrap();
        let anchor = anchor_of(&world);
        world.device().corrupt(anchor).unwrap();
        for events in (1..).step_by(17) {
            let mut twin = world.twin();
            let wire = twin.wire.clone();
            if !wire.cut_after(events, || twin.open(Access::Repair).unwrap()) {
                break;
            }
            twin.power_cut_at(Moment { torn: events % 2 == 0, ..Moment::NOW });
            cuts += 1;
            if let Err(error) = twin.twin().open(Access::ReadWrite) {
                assert!(error.is_repairable(), "cut after {events}: {error}");
            }
            twin.open(Access::Repair).unwrap_or_else(|error| panic!("cut after {events}: {error}"));
            twin.adopt_repaired().unwrap_or_else(|error| panic!("cut after {events}: {error}"));
            twin.check();
            if events % 4 == 0 {
                expect_in_use(&mut twin);
            }
        }
    }
    println!("{cuts} cuts of repairs");
    assert!(cuts > 20, "{cuts}");
}

/// A drive that was stopped, of whose directory something is lost, and nothing of the index of pages.
fn without_directory(world: &ValueWorld) -> Option<ValueWorld> {
    let chunks: Vec<ChunkId> = world.device().geometry().chunk_ids().collect();
    written_blocks(world, &chunks).into_iter().find_map(|ppa| {
        let twin = world.twin();
        twin.device().corrupt(ppa).unwrap();
        let refusal = twin.twin().open(Access::Inspect).err()?.to_string();
        let is_of_directory = refusal.contains("of the directory") || refusal.contains("directory's pages");
        is_of_directory.then_some(twin)
    })
}

#[test]
fn a_repair_of_the_directory_alone_leaves_the_index_as_it_is_wherever_it_is_cut() {
    let [plain, _] = plain_and_paired();
    let mut world = in_use(plain, 7, 40);
    world.close().unwrap();
    let world = without_directory(&world).expect("a block has a page of the directory");
    // Values in the same block are lost.
    let mut repaired = world.twin();
    repaired.open(Access::Repair).unwrap();
    let keys = repaired.keys();
    assert!(keys.len() > 20, "{}", keys.len());
    let mut cuts = 0;
    for events in (1..).step_by(13) {
        let mut twin = world.twin();
        let wire = twin.wire.clone();
        let is_cut = wire.cut_after(events, || twin.open(Access::Repair).unwrap());
        if !is_cut {
            break;
        }
        twin.power_cut_at(Moment { torn: events % 2 == 0, ..Moment::NOW });
        if twin.twin().open(Access::ReadWrite).is_ok() {
            break;
        }
        cuts += 1;
        twin.open(Access::Repair).unwrap_or_else(|error| panic!("cut after {events}: {error}"));
        let report = twin.ftl().block().recovery_report().repair.clone().expect("something was rebuilt");
        assert!(report.index.is_none() && report.keys == Some(keys.len() as u64), "cut after {events}: {report:?}");
        assert_eq!(twin.keys(), keys, "cut after {events}");
    }
    println!("{cuts} cuts of repairs of the directory");
    assert!(cuts > 10, "{cuts}");
}
