//! Random commands of one host, with several of other hosts under way, beside a map in memory; and a drive that is stopped and opened again.

use std::collections::BTreeMap;

use openftl_blocks::Ftl;
use openftl_nvme_values::RemoteError;
use openftl_parts::{Access, Config};
use openftl_server::WallClock;
use openftl_values::{Condition, Key, ValueFtl};
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::support::*;

/// A key of 1 to 16 bytes, of few enough that they meet again; a key and the same with a zero behind it are two keys.
fn drawn_key(chance: &mut Xoshiro256PlusPlus) -> Key {
    let length = 1 + chance.next_u32() as usize % 16;
    let mut bytes = [0; 16];
    bytes[0] = (chance.next_u32() % 6) as u8;
    key(&bytes[..length])
}

#[test]
fn random_commands_leave_what_a_map_in_memory_has_also_after_a_stop() {
    let mut chance = Xoshiro256PlusPlus::seed_from_u64(11);
    let mut model: BTreeMap<Key, Vec<u8>> = BTreeMap::new();
    let mut drive = drive();
    for life in 0..2 {
        let served = Served::new(drive);
        let mut remote = served.connect();
        for turn in 0..400_u64 {
            let key = drawn_key(&mut chance);
            match chance.next_u32() % 8 {
                0..=3 => {
                    let length = match chance.next_u32() % 8 {
                        0 => 0,
                        1 => chance.next_u32() as usize % 300_000,
                        _ => chance.next_u32() as usize % 9000,
                    };
                    let value = bytes_of(turn, life, length);
                    let condition =
                        [Condition::Always, Condition::IfExists, Condition::IfMissing][chance.next_u32() as usize % 3];
                    let stored = remote.store(key, value.clone(), condition);
                    match (condition, model.contains_key(&key)) {
                        (Condition::IfExists, false) => assert!(matches!(stored, Err(RemoteError::NoKey))),
                        (Condition::IfMissing, true) => assert!(matches!(stored, Err(RemoteError::KeyExists))),
                        _ => {
                            stored.unwrap();
                            model.insert(key, value);
                        }
                    }
                }
                4 => {
                    remote.delete(key).unwrap();
                    model.remove(&key);
                }
                5 => assert_eq!(remote.exist(key).unwrap(), model.contains_key(&key)),
                6 => {
                    let listed = remote.list(Some(key)).unwrap();
                    assert!(listed.iter().eq(model.range(key..).map(|(key, _)| key)), "from {key}");
                }
                _ => match (remote.retrieve(key), model.get(&key)) {
                    (Ok(found), Some(value)) => assert!(found == *value, "key {key}"),
                    (Err(RemoteError::NoKey), None) => {}
                    (found, expected) => panic!("key {key}: {found:?}, {} expected", expected.is_some()),
                },
            }
        }
        assert!(remote.list(None).unwrap().iter().eq(model.keys()));
        drop(remote);
        let (mut clock, stopped) = (WallClock::new(), served.end());
        let media = stopped.close(&mut clock).unwrap();
        let config = Config { host_frames: 4096, ..Config::default() };
        drive = ValueFtl::open_with(media, config, (), Access::ReadWrite, &mut clock).unwrap();
    }
    let served = Served::new(drive);
    let mut remote = served.connect();
    for (key, value) in &model {
        assert!(remote.retrieve(*key).unwrap() == *value, "key {key}");
    }
}
