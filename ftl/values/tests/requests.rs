//! What a host may ask, and what it may not.

use crate::crash_points::{config, index_on_media, narrow};
use crate::world::{ValueWorld, key};
use openftl_core::{BLOCK_BYTES, Clock, FrameForm};
use openftl_media::{EmulatedDevice, Store, Timing};
use openftl_pages::{Ftl as _, PageFtl};
use openftl_parts::target::{Durability, Target};
use openftl_parts::{Access, Config, OpenError};
use openftl_sim::devices::plain_and_paired;
use openftl_sim::played::Played;
use openftl_sim::wire::Wire;
use openftl_values::{
    Condition, Facts, Key, Value, ValueConfig, ValueDone, ValueError, ValueFtl, ValueRequest, ValueTarget,
};

pub fn world(shape: ValueConfig, chunks: u32) -> ValueWorld {
    let [plain, _] = plain_and_paired();
    ValueWorld::new(plain, config(), shape, chunks, 1)
}

fn named(name: &str) -> Key {
    Key::new(name.as_bytes()).unwrap()
}

fn store_if(world: &mut ValueWorld, key: Key, value: &[u8], condition: Condition) -> Result<Facts, ValueError> {
    let value = Value::Pieces(&[value]);
    world.ask(ValueRequest::Store { key, value, condition, durability: Durability::Volatile })
}

fn store(world: &mut ValueWorld, key: Key, value: &[u8]) -> Result<Facts, ValueError> {
    store_if(world, key, value, Condition::Always)
}

fn delete(world: &mut ValueWorld, key: Key) -> Result<Facts, ValueError> {
    world.ask(ValueRequest::Delete { key, durability: Durability::Volatile })
}

fn retrieve(world: &mut ValueWorld, key: Key, frames: u64) -> Result<(u32, Vec<u8>), ValueError> {
    let frames = world.frames(frames);
    let facts = world.ask(ValueRequest::Retrieve { key, frames: &frames });
    let bytes: Vec<u8> = frames.iter().flat_map(|frame| *world.ftl().frames().bytes(*frame)).collect();
    frames.into_iter().for_each(|frame| world.ftl().frames_mut().release(frame));
    let bytes_all = facts?.bytes;
    let count = bytes.len().min(bytes_all as usize);
    Ok((bytes_all, bytes[..count].to_vec()))
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
    }
}

#[test]
fn a_key_and_the_same_with_a_zero_behind_it_are_two_keys() {
    let mut world = world(narrow(), 40);
    store(&mut world, named("a"), b"one").unwrap();
    store(&mut world, named("a\0"), b"other").unwrap();
    assert_eq!(retrieve(&mut world, named("a"), 1).unwrap().1, b"one");
    assert_eq!(retrieve(&mut world, named("a\0"), 1).unwrap().1, b"other");
    delete(&mut world, named("a")).unwrap();
    assert_eq!(retrieve(&mut world, named("a"), 1), Err(ValueError::NoKey));
    assert_eq!(world.keys(), [named("a\0")]);
}

#[test]
fn a_value_of_no_bytes_is_one_and_one_that_is_too_long_is_none() {
    let mut world = world(ValueConfig::default(), 40);
    let most = world.ftl().info().value_max;
    assert_eq!(store(&mut world, named("empty"), b""), Ok(Facts { bytes: 0, keys: 1 }));
    assert_eq!(world.ask(ValueRequest::Exist { key: named("empty") }), Ok(Facts { bytes: 0, keys: 0 }));
    assert_eq!(retrieve(&mut world, named("empty"), 0), Ok((0, Vec::new())));
    let long = vec![7; most as usize];
    assert_eq!(store(&mut world, named("long"), &long), Ok(Facts { bytes: most, keys: 1 }));
    assert_eq!(retrieve(&mut world, named("long"), 16).unwrap().1, long);
    let longer = vec![7; most as usize + 1];
    let refused = ValueError::ValueSize { bytes: u64::from(most) + 1, most };
    assert_eq!(store(&mut world, named("longer"), &longer), Err(refused));
    assert_eq!(refused.status(), Some(0x85));
    let (now, mut frames) = (world.clock.now(), Vec::new());
    world.ftl().set_staging(1);
    assert!(world.ftl().staging_mut().acquire_many(FrameForm::Bytes, 1, &mut frames));
    let value = Value::Frames { frames: &frames, bytes: 4097 };
    let request =
        ValueRequest::Store { key: named("x"), value, condition: Condition::Always, durability: Durability::Volatile };
    assert_eq!(world.ftl().submit(now, 1, request), Err(ValueError::Frames { bytes: 4097, frames: 1 }));
}

#[test]
fn the_limits_of_a_drive_are_those_that_it_was_made_with() {
    let shape = ValueConfig { key_max: Some(4), value_max: Some(100), keys_max: Some(20), ..ValueConfig::default() };
    let mut world = world(shape, 40);
    assert_eq!(store(&mut world, named("12345"), b"x"), Err(ValueError::KeySize { bytes: 5, most: 4 }));
    assert_eq!(world.ask(ValueRequest::Exist { key: named("12345") }), Err(ValueError::KeySize { bytes: 5, most: 4 }));
    assert_eq!(store(&mut world, named("k"), &[0; 101]), Err(ValueError::ValueSize { bytes: 101, most: 100 }));
    for number in 0..20 {
        store(&mut world, named(&format!("{number}")), b"x").unwrap();
    }
    assert_eq!(store(&mut world, named("more"), b"x"), Err(ValueError::KeysExceeded { most: 20 }));
    assert_eq!(store(&mut world, named("7"), b"y"), Ok(Facts { bytes: 1, keys: 0 }));
    delete(&mut world, named("3")).unwrap();
    assert_eq!(store(&mut world, named("more"), b"x"), Ok(Facts { bytes: 1, keys: 1 }));
    world.close().unwrap();
    world.open(Access::ReadWrite).unwrap();
    let info = world.ftl().info();
    assert_eq!((info.keys, info.keys_max, info.key_max, info.value_max), (20, 20, 4, 100));
}

#[test]
fn a_value_is_read_in_part_and_its_length_is_told_whole() {
    let mut world = world(narrow(), 40);
    let value: Vec<u8> = (0..10_000_u32).map(|at| (at * 7 % 251) as u8).collect();
    // Some share their number, some do not.
    let keys: Vec<Key> = (0..20).map(|number| named(&format!("part{number}"))).collect();
    keys.iter().for_each(|key| _ = store(&mut world, *key, &value).unwrap());
    world.close().unwrap();
    world.open(Access::ReadWrite).unwrap();
    for key in keys {
        for frames in 0..4 {
            let (bytes, read) = retrieve(&mut world, key, frames).unwrap();
            assert_eq!((bytes, &read[..]), (10_000, &value[..read.len()]));
            assert_eq!(read.len(), (frames as usize * BLOCK_BYTES).min(10_000));
        }
    }
}

#[test]
fn conditions_are_of_what_is_there() {
    let mut world = world(narrow(), 40);
    for name in ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"] {
        let key = named(name);
        assert_eq!(store_if(&mut world, key, b"1", Condition::IfExists), Err(ValueError::NoKey));
        assert_eq!(store_if(&mut world, key, b"2", Condition::IfMissing), Ok(Facts { bytes: 1, keys: 1 }));
        assert_eq!(store_if(&mut world, key, b"3", Condition::IfMissing), Err(ValueError::KeyExists));
        assert_eq!(store_if(&mut world, key, b"44", Condition::IfExists), Ok(Facts { bytes: 2, keys: 0 }));
        assert_eq!(retrieve(&mut world, key, 1).unwrap().1, b"44");
    }
    assert_eq!(delete(&mut world, named("none")), Err(ValueError::NoKey));
    assert_eq!((ValueError::NoKey.status(), ValueError::KeyExists.status()), (Some(0x87), Some(0x89)));
}

/// Begins requests at once, and gives the results in their order.
fn race(world: &mut ValueWorld, requests: &[ValueRequest<'_>]) -> Vec<Result<Facts, ValueError>> {
    let tags: Vec<u64> = requests.iter().map(|_| world.next_tag()).collect();
    let now = world.clock.now();
    for (tag, request) in tags.iter().zip(requests) {
        world.ftl().submit(now, *tag, *request).unwrap();
    }
    let mut done: Vec<ValueDone> = Vec::new();
    while done.len() < requests.len() {
        let now = world.clock.now();
        world.ftl().poll(now, &mut done);
        if done.len() < requests.len() {
            let due = world.ftl().next_due().expect("something is due");
            world.clock.wait_until(due);
        }
    }
    tags.iter().map(|tag| done.iter().find(|done| done.tag == *tag).unwrap().result).collect()
}

#[test]
fn of_stores_under_way_that_want_no_key_exactly_one_wins() {
    let mut world = world(narrow(), 40);
    for round in 0..40 {
        let key = key(round);
        let values: Vec<Vec<u8>> = (0..8_u8).map(|number| vec![number; 100 + number as usize]).collect();
        let pieces: Vec<[&[u8]; 1]> = values.iter().map(|value| [&value[..]]).collect();
        let durability = if round % 2 == 0 { Durability::Volatile } else { Durability::Durable };
        let requests: Vec<ValueRequest<'_>> = pieces
            .iter()
            .map(|pieces| {
                let value = Value::Pieces(pieces);
                ValueRequest::Store { key, value, condition: Condition::IfMissing, durability }
            })
            .collect();
        let results = race(&mut world, &requests);
        let winners: Vec<usize> = (0..8).filter(|at| results[*at].is_ok()).collect();
        assert_eq!(winners.len(), 1, "{results:?}");
        assert!(results.iter().all(|result| matches!(result, Ok(_) | Err(ValueError::KeyExists))));
        assert_eq!(retrieve(&mut world, key, 1).unwrap().1, values[winners[0]]);
    }
}

#[test]
fn requests_for_one_key_take_effect_in_their_order() {
    let mut world = world(narrow(), 40);
    let key = named("key");
    let store = |value| ValueRequest::Store {
        key,
        value: Value::Pieces(value),
        condition: Condition::Always,
        durability: Durability::Volatile,
    };
    let delete = ValueRequest::Delete { key, durability: Durability::Volatile };
    let exist = ValueRequest::Exist { key };
    let requests = [exist, store(&[b"1"]), exist, store(&[b"22"]), exist, delete, exist, delete, store(&[b""]), exist];
    let facts = |bytes, keys| Ok(Facts { bytes, keys });
    let none = Err(ValueError::NoKey);
    let expected =
        [none, facts(1, 1), facts(1, 0), facts(2, 0), facts(2, 0), facts(0, 1), none, none, facts(0, 1), facts(0, 0)];
    assert_eq!(race(&mut world, &requests), expected);
}

/// All keys have one number: their list, each change of it, and the values beside it.
#[test]
fn keys_that_share_a_number_are_told_apart() {
    let shape = ValueConfig { number_bits: Some(0), ..narrow() };
    let mut world = world(shape, 60);
    let most = world.ftl().info().value_max as usize;
    let keys: Vec<Key> = (0..40).map(|number| named(&format!("k{number}"))).collect();
    let value = |number: usize, round: usize| vec![(number * 3 + round) as u8; (number * 997 * (round + 1)) % most];
    for round in 0..3 {
        for (number, key) in keys.iter().enumerate() {
            store(&mut world, *key, &value(number, round)).unwrap();
        }
        for (number, key) in keys.iter().enumerate() {
            assert_eq!(retrieve(&mut world, *key, 16).unwrap().1, value(number, round), "{key}");
        }
    }
    let info = world.ftl().info();
    let bytes: usize = (0..40).map(|number| value(number, 2).len()).sum();
    assert_eq!((info.keys, info.value_bytes), (40, bytes as u64));
    assert_eq!(world.ask(ValueRequest::Exist { key: named("other") }), Err(ValueError::NoKey));
    world.close().unwrap();
    world.open(Access::ReadWrite).unwrap();
    world.check();
    let info = world.ftl().info();
    assert_eq!((info.keys, info.value_bytes), (40, bytes as u64));
    for key in &keys {
        delete(&mut world, *key).unwrap();
        assert_eq!(retrieve(&mut world, *key, 1), Err(ValueError::NoKey));
    }
    let info = world.ftl().info();
    assert_eq!((info.keys, info.key_bytes, info.value_bytes, info.used_bytes), (0, 0, 0, 0));
    assert!(world.keys().is_empty());
    world.check();
}

#[test]
fn a_full_drive_deletes_and_stores_what_is_not_longer_and_says_how_much_is_free() {
    for shape in [narrow(), ValueConfig::default()] {
        let shape = ValueConfig { keys_max: Some(3000), ..shape };
        let mut world = world(shape, 24);
        let mut stored = 0;
        let refused = loop {
            match store(&mut world, named(&format!("{stored}")), &[1; 4000]) {
                Ok(_) => stored += 1,
                Err(error) => break error,
            }
        };
        assert!(matches!(refused, ValueError::CapacityExceeded { needed, free } if free < needed), "{refused}");
        let info = world.ftl().info();
        assert_eq!((info.keys, info.value_bytes), (stored, stored * 4000));
        for round in 0..3 {
            for number in 0..stored {
                store(&mut world, named(&format!("{number}")), &[2 + round; 3990]).unwrap();
            }
        }
        // What is refused leaves what was there.
        assert!(store(&mut world, named("3"), &[9; 30_000]).is_err());
        assert_eq!(retrieve(&mut world, named("3"), 1).unwrap().1, [4; 3990]);
        for number in 0..stored {
            let before = world.ftl().info();
            delete(&mut world, named(&format!("{number}"))).unwrap();
            let after = world.ftl().info();
            let bytes = before.value_bytes + before.key_bytes - after.value_bytes - after.key_bytes;
            assert_eq!(bytes, 3990 + format!("{number}").len() as u64, "they are free at once");
        }
        for number in 0..stored {
            store(&mut world, named(&format!("again{number}")), &[5; 4000]).unwrap();
        }
        world.close().unwrap();
        world.open(Access::ReadWrite).unwrap();
        assert_eq!(world.ftl().info().keys, stored);
        world.check();
    }
}

#[test]
fn values_are_overwritten_for_many_times_the_capacity() {
    let mut world = world(narrow(), 24);
    overwrite(&mut world);
    let cleaned = world.ftl().store().statistics().1.chunks_cleaned;
    assert!(cleaned > 20, "{cleaned}");
    world.clean_restart();
    world.check();
}

/// Of the index of pages hardly anything is in memory, and keys share numbers.
#[test]
fn values_are_overwritten_with_hardly_any_memory_for_their_index() {
    for shape in [narrow(), ValueConfig { number_bits: None, ..narrow() }] {
        let [plain, _] = plain_and_paired();
        let config = Config { map_memory: Some(index_on_media(1)), ..config() };
        let mut world = ValueWorld::new(plain, config, shape, 24, 1);
        overwrite(&mut world);
        let statistics = world.ftl().store().statistics().0;
        assert!(statistics.map_pages_read > 50, "{}", statistics.map_pages_read);
        let whole = u64::from(world.ftl().block().config().catalog_blocks) * 4096;
        assert!(world.ftl().store().map_bytes() < whole / 8, "{} of {whole}", world.ftl().store().map_bytes());
        world.clean_restart();
        world.check();
    }
}

fn overwrite(world: &mut ValueWorld) {
    for round in 0..12_000_u64 {
        world.store(key(round * 17), (round * 7919 % 9000) as usize, Condition::Always, false);
        if round % 3 == 0 {
            world.delete(key(round * 5), false);
        }
    }
    world.settle();
    world.verify_all();
}

#[test]
fn a_drive_of_values_and_a_store_of_pages_are_not_each_other() {
    let [plain, _] = plain_and_paired();
    let mut world = world(narrow(), 40);
    world.close().unwrap();
    let device = world.device().fork().unwrap().unwrap();
    let mut clock = world.clock;
    let opened = PageFtl::open_with(Wire::new(device), world.config.clone(), (), Access::ReadWrite, &mut clock);
    let expected = OpenError::OtherKind { found: "key-value", wanted: "page" };
    assert_eq!(opened.err(), Some(expected));
    let device = EmulatedDevice::new(plain, 40, Store::Ram, Timing::Modelled, 1).unwrap();
    let pages = PageFtl::format(Wire::new(device), world.config.clone(), (), &mut clock).unwrap();
    let device = pages.close(&mut clock).unwrap();
    let opened = ValueFtl::open_with(device, world.config.clone(), (), Access::ReadWrite, &mut clock);
    assert_eq!(opened.err(), Some(OpenError::OtherKind { found: "page", wanted: "key-value" }));
}

#[test]
fn a_drive_that_cannot_be_is_refused_with_the_field() {
    let cases = [
        (ValueConfig { key_max: Some(17), ..ValueConfig::default() }, "key_max = 17"),
        (ValueConfig { key_max: Some(0), ..ValueConfig::default() }, "key_max = 0"),
        (ValueConfig { value_max: Some(1 << 20), ..ValueConfig::default() }, "value_max = 1048576"),
        (ValueConfig { keys_max: Some(0), ..ValueConfig::default() }, "keys_max = 0"),
        (ValueConfig { keys_max: Some(1 << 40), ..ValueConfig::default() }, "keys_max = 1099511627776"),
        (ValueConfig { number_bits: Some(49), ..ValueConfig::default() }, "number_bits = 49"),
        (ValueConfig { changes_max: Some(1 << 20), ..ValueConfig::default() }, "changes_max = 1048576"),
    ];
    for (shape, field) in cases {
        let [plain, _] = plain_and_paired();
        let device = EmulatedDevice::new(plain, 40, Store::Ram, Timing::Modelled, 1).unwrap();
        let mut clock = openftl_core::VirtualClock::default();
        let made = ValueFtl::format(device, config(), shape, &mut clock);
        let error = made.err().map(|error| error.to_string()).unwrap_or_default();
        assert!(error.contains(field), "{field}: {error}");
    }
}

#[test]
fn a_drive_that_was_stopped_can_be_looked_at() {
    for profile in plain_and_paired() {
        let mut world = ValueWorld::new(profile, config(), narrow(), 40, 1);
        for number in 0..40 {
            world.store(key(number), 300, Condition::Always, false);
        }
        world.settle();
        world.close().unwrap();
        world.open(Access::Inspect).unwrap();
        world.check();
        world.verify_all();
        world.list(None, 2000);
    }
}

#[test]
fn durable_stores_are_durable_whatever_they_say() {
    let shape = ValueConfig { durable_stores: true, ..narrow() };
    let mut world = world(shape, 40);
    for number in 0..20 {
        store(&mut world, key(number), &[number as u8; 100]).unwrap();
    }
    delete(&mut world, key(3)).unwrap();
    let device = world.device().fork().unwrap().unwrap();
    let mut left = world.after_cut_with(device);
    left.open(Access::ReadWrite).unwrap();
    for number in 0..20 {
        let expected = if number == 3 { Err(ValueError::NoKey) } else { Ok((100, vec![number as u8; 100])) };
        assert_eq!(retrieve(&mut left, key(number), 1), expected);
    }
    left.check();
}

/// Found among crash points: a check took the end of what a merge had asked for that of its own reads, and pages of the merge for nobody's.
#[test]
fn a_check_waits_for_the_end_of_a_merge() {
    let [plain, _] = plain_and_paired();
    let mut world = ValueWorld::new(plain, config(), narrow(), 32, 1);
    for number in 0..120 {
        world.store(key(number * 7), number as usize * 11, Condition::Always, false);
        world.settle();
        world.check();
    }
    assert!(world.ftl().statistics().merges > 3, "{}", world.ftl().describe());
    world.clean_restart();
    world.verify_all();
}
