//! The emulated device passes the conformance suite: every store, both timings, every kind of chip.

use openftl_media::conformance::suite_with_faults;
use openftl_media::partition::{Part, Partition, PartitionError, split};
use openftl_media::profile::{Cell, Chip, Programming};
use openftl_media::{EmulatedDevice, Profile, Store, Timing};

const TIMINGS: [Timing; 2] = [Timing::Modelled, Timing::Instant];

/// Small devices of every kind, with every option of the geometry used by one of them at least.
fn profiles() -> Vec<Profile> {
    let tiny = Profile::builtin("tiny").unwrap();
    let chip = |cell: Cell, programming, blocks_per_chunk| {
        let bits = cell.bits() as usize;
        let programs = if programming == Programming::Shared { bits } else { 1 };
        Chip {
            cell,
            programming,
            blocks_per_chunk,
            pair_distance: (programming == Programming::Shared).then_some(2),
            read_us: (0..bits as u32).map(|bit| 40 + 10 * bit).collect(),
            program_us: (0..programs as u32).map(|bit| 400 + 800 * bit).collect(),
            ..tiny.chip.clone()
        }
    };
    let named = |name: &str, chip: Chip| Profile { name: name.to_owned(), chip, ..tiny.clone() };
    let one_block = Chip { planes: 1, page_blocks: 1, ..chip(Cell::Slc, Programming::OneShot, 7) };
    let mut volatile = named(
        "volatile TLC, planes, shared",
        Chip { planes: 2, page_blocks: 1, ..chip(Cell::Tlc, Programming::Shared, 48) },
    );
    volatile.cache.power_loss_protection = false;
    volatile.vector_copy = false;
    volatile.reset_of_free = true;
    volatile.open_chunks_per_pu_max = 3;
    volatile.oob_bytes = 64;
    let mut uncached =
        named("uncached TLC, one-shot", Chip { planes: 2, ..chip(Cell::Tlc, Programming::OneShot, 120) });
    uncached.cache.blocks_per_pu = 0;
    uncached.open_chunks_max = 4;
    uncached.wear_index_threshold = 200;
    uncached.groups = 3;
    let mut qlc = named("QLC, four planes", Chip { planes: 4, ..chip(Cell::Qlc, Programming::OneShot, 256) });
    qlc.cache.blocks_per_pu = 64;
    let mut bad = tiny.clone();
    bad.faults.factory_bad = "10%".parse().unwrap();
    bad.wear_index_threshold = 1;
    vec![tiny.clone(), named("SLC, one block a page", one_block), volatile, uncached, qlc, bad]
}

fn run(store: fn() -> Store) {
    for profile in profiles() {
        for timing in TIMINGS {
            println!("{} {timing:?}", profile.name);
            suite_with_faults(|| EmulatedDevice::new(profile.clone(), 6, store(), timing, 5).unwrap());
        }
    }
}

#[test]
fn the_device_in_ram_conforms() {
    run(|| Store::Ram);
}

#[test]
fn the_device_of_stamps_conforms() {
    run(|| Store::Stamps);
}

#[test]
fn the_device_in_a_file_conforms() {
    let directory = tempfile::tempdir().unwrap();
    let mut number = 0;
    for profile in profiles() {
        for timing in TIMINGS {
            println!("{} {timing:?}", profile.name);
            suite_with_faults(|| {
                number += 1;
                let path = directory.path().join(format!("{number}.oftl"));
                EmulatedDevice::create(&path, &profile, 6, timing, 5).unwrap()
            });
        }
    }
}

#[test]
fn every_builtin_profile_conforms() {
    for profile in Profile::builtins() {
        println!("{}", profile.name);
        suite_with_faults(|| EmulatedDevice::new(profile.clone(), 2, Store::Stamps, Timing::Modelled, 1).unwrap());
    }
}

/// The parts of a device, of which the second is not at its beginning.
fn parts(profile: &Profile, timing: Timing) -> Vec<Part> {
    let profile = Profile { groups: 3, pus_per_group: 4, ..profile.clone() };
    let device = EmulatedDevice::new(profile, 6, Store::Ram, timing, 5).unwrap();
    split(device, vec![Partition { groups: 0..3, pus: 0..1 }, Partition { groups: 1..3, pus: 1..3 }]).unwrap()
}

#[test]
fn each_part_of_a_device_conforms() {
    for profile in profiles().into_iter().filter(|profile| profile.open_chunks_max == 0) {
        for timing in TIMINGS {
            for part in 0..2 {
                println!("part {part} of {} {timing:?}", profile.name);
                suite_with_faults(|| parts(&profile, timing).swap_remove(part));
            }
        }
    }
}

#[test]
fn parts_that_overlap_or_reach_beyond_the_device_are_refused() {
    let refused = |one: Partition, other: Partition| {
        let device = EmulatedDevice::new(Profile::builtin("tiny").unwrap(), 6, Store::Ram, Timing::Instant, 5).unwrap();
        split(device, vec![one, other]).err().expect("a device of 2 groups of 2")
    };
    let part = |groups, pus| Partition { groups, pus };
    assert!(matches!(
        refused(part(0..2, 0..1), part(1..2, 0..2)),
        PartitionError::Shared { one: 0, other: 1, group: 1, pu: 0 }
    ));
    assert!(matches!(refused(part(0..2, 0..1), part(1..3, 1..2)), PartitionError::Outside { .. }));
    assert!(matches!(refused(part(0..0, 0..1), part(1..2, 1..2)), PartitionError::Outside { .. }));
}
