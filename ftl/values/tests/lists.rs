//! Lists of keys, and the directory behind them.

use crate::crash_points::narrow;
use crate::requests::world;
use crate::world::{ValueWorld, key, read_list};
use openftl_core::{BLOCK_BYTES, Clock};
use openftl_parts::target::{Durability, Target};
use openftl_sim::played::Played;
use openftl_values::{Condition, Key, Value, ValueConfig, ValueError, ValueRequest, ValueTarget};

/// Keys that follow each other by number.
fn numbered(number: u32) -> Key {
    Key::new(&number.to_be_bytes()).unwrap()
}

fn store(world: &mut ValueWorld, key: Key, value: &[u8]) {
    let request = ValueRequest::Store {
        key,
        value: Value::Pieces(&[value]),
        condition: Condition::Always,
        durability: Durability::Volatile,
    };
    world.ask(request).unwrap();
}

/// A directory of so many keys, with merges among them.
fn filled(keys: u32) -> ValueWorld {
    let shape = ValueConfig { keys_max: Some(8000), changes_max: Some(64), ..ValueConfig::default() };
    let mut world = world(shape, 40);
    // In no order.
    (0..keys).for_each(|number| store(&mut world, numbered(number * 7919 % keys), b"value"));
    world
}

#[test]
fn a_list_goes_through_all_keys_page_by_page_while_nothing_changes() {
    let mut world = filled(2003);
    for number in (0..2003).step_by(3) {
        world.ask(ValueRequest::Delete { key: numbered(number), durability: Durability::Volatile }).unwrap();
    }
    let expected: Vec<Key> = (0..2003).filter(|number| number % 3 > 0).map(numbered).collect();
    assert_eq!(world.keys(), expected);
    let statistics = *world.ftl().statistics();
    let runs = world.ftl().runs();
    println!("{statistics:?}, runs {runs:?}");
    assert!(statistics.merges > 20 && runs.len() < 10, "{runs:?}");
    world.close().unwrap();
    world.open(openftl_parts::Access::ReadWrite).unwrap();
    assert_eq!(world.keys(), expected);
    world.check();
    let runs_again = world.ftl().runs();
    assert_eq!(runs_again, runs);
}

#[test]
fn a_list_begins_at_the_key_or_at_the_next_one_and_has_whole_keys_only() {
    let mut world = world(narrow(), 40);
    for number in 0..60 {
        world.store(key(number), 10, Condition::Always, false);
    }
    world.settle();
    let all: Vec<Key> = world.model.live.keys().copied().collect();
    for from in [None, Some(all[0]), Some(all[30]), Some(all[59]), Some(Key::new(&[255; 16]).unwrap())] {
        for bytes in [4, 5, 8, 24, 25, 100, 4096, 8192] {
            // Compared with the model when it ends.
            world.list(from, bytes);
        }
    }
    // A key that is not there, between two that are.
    let mut between = all[20].bytes().to_vec();
    between.push(0);
    if let Ok(between) = Key::new(&between) {
        world.list(Some(between), 1000);
    }
}

#[test]
fn a_list_needs_room_for_the_number_of_its_keys() {
    let mut world = world(narrow(), 40);
    let frames = world.frames(1);
    for bytes in [0, 3] {
        let error = world.ask(ValueRequest::List { from: None, bytes, frames: &frames });
        assert_eq!(error, Err(ValueError::ListSize { bytes, frames: 1, most: 4096 }));
    }
    let error = world.ask(ValueRequest::List { from: None, bytes: 4097, frames: &frames });
    assert_eq!(error, Err(ValueError::ListSize { bytes: 4097, frames: 1, most: 4096 }));
    let facts = world.ask(ValueRequest::List { from: None, bytes: 4, frames: &frames }).unwrap();
    assert_eq!((facts.bytes, facts.keys), (4, 0));
}

#[test]
fn a_list_is_on_the_wire_as_nvme_has_it() {
    let mut world = world(narrow(), 40);
    store(&mut world, Key::new(b"hello").unwrap(), b"world");
    store(&mut world, Key::new(b"hi").unwrap(), b"");
    let frames = world.frames(1);
    let facts = world.ask(ValueRequest::List { from: None, bytes: 4096, frames: &frames }).unwrap();
    let bytes = world.ftl().frames().bytes(frames[0])[..facts.bytes as usize].to_vec();
    assert_eq!(bytes, *b"\x02\0\0\0\x05\0hello\0\x02\0hi");
    assert_eq!(read_list(&bytes).len(), 2);
}

/// Lists are under way while the runs that they go through are merged and leave.
#[test]
fn lists_go_on_through_merges() {
    let mut world = filled(1500);
    for round in 0..40_u32 {
        let frames = world.frames(8);
        let tags: Vec<u64> = (0..12).map(|_| world.next_tag()).collect();
        for (number, tag) in (0..).zip(&tags) {
            let now = world.clock.now();
            let from = Some(numbered(number * 100));
            let list = ValueRequest::List { from, bytes: (8 * BLOCK_BYTES) as u32, frames: &frames };
            // Only the last one of them is looked at.
            world.ftl().submit(now, *tag, list).unwrap();
        }
        // Keys behind all others, so that those before them do not change.
        for number in 0..32 {
            store(&mut world, numbered(1_000_000 + round * 32 + number), b"more");
        }
        let list = ValueRequest::List { from: None, bytes: (8 * BLOCK_BYTES) as u32, frames: &frames };
        let facts = world.ask(list).unwrap();
        let found: Vec<u8> = frames.iter().flat_map(|frame| *world.ftl().frames().bytes(*frame)).collect();
        let keys = read_list(&found[..facts.bytes as usize]);
        assert!(keys.into_iter().take(1500).eq((0..1500).map(numbered)));
        frames.into_iter().for_each(|frame| world.ftl().frames_mut().release(frame));
    }
    let merges = world.ftl().statistics().merges;
    assert!(merges > 60, "{merges}");
}

#[test]
fn overwriting_writes_no_directory() {
    let mut world = filled(300);
    world.ftl().reset_statistics();
    (0..300).for_each(|number| store(&mut world, numbered(number), b"another value"));
    let statistics = *world.ftl().statistics();
    assert_eq!((statistics.change_bytes, statistics.run_bytes, statistics.merges), (0, 0, 0));
    assert_eq!(statistics.stores, 300);
}
