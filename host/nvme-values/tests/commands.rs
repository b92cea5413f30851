//! Every command over a connection: what comes back, and how it ends where it cannot be done.

use openftl_nvme::Status;
use openftl_nvme::command::ValueCommand;
use openftl_nvme::wire::opcode;
use openftl_nvme::{SubmissionEntry, wire::U32};
use openftl_nvme_tcp::client::Payload;
use openftl_nvme_values::RemoteError;
use openftl_parts::Durability;
use openftl_values::{Condition, ValueConfig, keys_of_list};

use crate::support::*;

fn store(key: openftl_values::Key, bytes: usize, condition: Condition) -> ValueCommand {
    ValueCommand::Store { key, bytes: bytes as u32, condition, durability: Durability::Volatile }
}

fn sent(bytes: &[u8]) -> Payload {
    if bytes.is_empty() { Payload::None } else { Payload::ToController(bytes.to_vec()) }
}

fn room(bytes: usize) -> Payload {
    if bytes == 0 { Payload::None } else { Payload::ToHost(vec![0xee; bytes]) }
}

#[test]
fn each_command_ends_with_its_status_and_what_it_brings() {
    let served = Served::new(drive());
    let mut host = served.host();
    let hello = key("hello");
    let retrieve = |bytes: u32| ValueCommand::Retrieve { key: hello, bytes };
    let delete = ValueCommand::Delete { key: hello, needs_key: false, durability: Durability::Volatile };
    let exist = ValueCommand::Exist { key: hello };
    let (good, no_key) = (Status::SUCCESS, Status::KEY_NOT_FOUND);
    let mut check = |what: &str, command, payload, expected: (Status, u64, &[u8])| {
        let (status, result, data) = host.run(command, payload);
        assert_eq!((status, result, &data[..]), expected, "{what}");
    };
    check("no key yet", exist, Payload::None, (no_key, 0, b""));
    check("nothing to retrieve", retrieve(4096), room(4096), (no_key, 0, b""));
    check("a Delete of nothing is one", delete, Payload::None, (good, 0, b""));
    check("only if it exists", store(hello, 5, Condition::IfExists), sent(b"world"), (no_key, 0, b""));
    check("only if it does not", store(hello, 5, Condition::IfMissing), sent(b"world"), (good, 0, b""));
    check("again", store(hello, 5, Condition::IfMissing), sent(b"other"), (Status::KEY_EXISTS, 0, b""));
    check("there it is", exist, Payload::None, (good, 0, b""));
    check("a larger buffer", retrieve(4096), room(4096), (good, 5, b"world"));
    check("a buffer of the value", retrieve(5), room(5), (good, 5, b"world"));
    check("a smaller buffer", retrieve(2), room(2), (good, 5, b"wo"));
    check("no buffer", retrieve(0), Payload::None, (good, 5, b""));
    check("only if it exists, and it does", store(hello, 1, Condition::IfExists), sent(b"x"), (good, 0, b""));
    check("overwritten", retrieve(16), room(16), (good, 1, b"x"));
    check("a value of no bytes", store(hello, 0, Condition::Always), Payload::None, (good, 0, b""));
    check("that is one", exist, Payload::None, (good, 0, b""));
    check("and has no bytes", retrieve(16), room(16), (good, 0, b""));
    check("deleted", delete, Payload::None, (good, 0, b""));
    check("and gone", retrieve(16), room(16), (no_key, 0, b""));
    let longest = 1 << 20;
    let long = bytes_of(1, 1, longest);
    check("the longest value", store(hello, longest, Condition::Always), sent(&long), (good, 0, b""));
    check("all of it", retrieve(1 << 20), room(longest), (good, 1 << 20, &long));
    check("some of it", retrieve(5000), room(5000), (good, 1 << 20, &long[..5000]));
    let longer = store(hello, longest + 1, Condition::Always);
    check("a longer one", longer, sent(&vec![0; longest + 1]), (Status::INVALID_VALUE_SIZE, 0, b""));
}

#[test]
fn keys_that_are_none_and_data_that_disagree_with_their_length_are_refused_and_nothing_happens() {
    let served = Served::new(drive_like(ValueConfig { key_max: Some(8), ..ValueConfig::default() }));
    let mut host = served.host();
    let with = |mut entry: SubmissionEntry, dword: usize, value: u32| {
        entry.dwords_10_15[dword - 10] = U32::new(value);
        entry
    };
    let entry = store(key("k"), 100, Condition::Always).entry(1);
    let value = vec![7; 100];
    for (what, entry, payload, status) in [
        ("no key", with(entry, 11, 0), sent(&value), Status::INVALID_KEY_SIZE),
        ("9 bytes of 8", with(entry, 11, 9), sent(&value), Status::INVALID_KEY_SIZE),
        ("17 bytes", with(entry, 11, 17), sent(&value), Status::INVALID_FIELD),
        ("fewer data than it says", entry, sent(&value[..99]), Status::DATA_SGL_LENGTH_INVALID),
        ("no data", entry, Payload::None, Status::DATA_SGL_LENGTH_INVALID),
    ] {
        assert_eq!(host.run_entry(&entry, payload).0, status, "{what}");
    }
    let retrieve = ValueCommand::Retrieve { key: key("k"), bytes: 4096 };
    let short = host.run(retrieve, room(4095));
    assert_eq!(short.0, Status::DATA_SGL_LENGTH_INVALID);
    assert_eq!(host.run(ValueCommand::Exist { key: key("k") }, Payload::None).0, Status::KEY_NOT_FOUND);
    // More data than the value has are passed over.
    assert_eq!(host.run(store(key("k"), 3, Condition::Always), sent(b"abcdef")).0, Status::SUCCESS);
    let found = host.run(ValueCommand::Retrieve { key: key("k"), bytes: 6 }, room(6));
    assert_eq!((found.1, &found.2[..]), (3, &b"abc"[..]));
}

#[test]
fn a_delete_of_a_missing_key_is_an_error_where_the_host_has_said_so() {
    let served = Served::new(drive());
    let mut host = served.host();
    let delete = ValueCommand::Delete { key: key("x"), needs_key: false, durability: Durability::Volatile };
    assert_eq!(host.run(delete, Payload::None).0, Status::SUCCESS);
    let mut entry = SubmissionEntry { opcode: opcode::admin::SET_FEATURES, ..SubmissionEntry::default() };
    (entry.flags, entry.namespace) = (SubmissionEntry::PSDT_SGL, 1.into());
    entry.dwords_10_15[..2].copy_from_slice(&[U32::new(0x20), U32::new(1)]);
    let bytes = zerocopy::IntoBytes::as_bytes(&entry).try_into().unwrap();
    host.admin.admin.call("Set Features", bytes, Payload::None).unwrap();
    assert_eq!(host.run(delete, Payload::None).0, Status::KEY_NOT_FOUND);
    // It is a setting of this host.
    assert_eq!(served.host().run(delete, Payload::None).0, Status::SUCCESS);
}

#[test]
fn a_list_into_small_buffers_brings_whole_keys_in_their_order_and_goes_on_at_the_last() {
    let served = Served::new(drive());
    let mut host = served.host();
    let mut keys: Vec<_> = (0..200_u32).map(|number| key(&number.to_be_bytes()[..1 + number as usize % 4])).collect();
    keys.sort_unstable();
    keys.dedup();
    for key in &keys {
        assert_eq!(host.run(store(*key, 1, Condition::Always), sent(b"v")).0, Status::SUCCESS);
    }
    for bytes in [4, 7, 8, 11, 12, 20, 40, 1000, 4096, 1 << 20] {
        let (mut found, mut from) = (Vec::new(), None);
        loop {
            let (status, result, list) = host.run(ValueCommand::List { from, bytes }, room(bytes as usize));
            assert_eq!((status, result), (Status::SUCCESS, 0));
            assert!(list.len() <= bytes as usize && list.len().is_multiple_of(4), "{} of {bytes}", list.len());
            let mut more = keys_of_list(&list).expect("a list of whole keys");
            if from.is_some() && more.first() == from.as_ref() {
                more.remove(0);
            }
            let Some(last) = more.last().copied() else { break };
            (from, found) = (Some(last), [found, more].concat());
        }
        // Buffers without room for two of the longest keys may come no further than one of them.
        let expected = if bytes < 20 { found.len() } else { keys.len() };
        assert!(found == keys[..expected], "{bytes}");
    }
    // A key that is not there begins at the next one.
    let (_, _, list) = host.run(ValueCommand::List { from: Some(key([0, 0, 0, 0, 0])), bytes: 12 }, room(12));
    let next = *keys.iter().find(|one| **one > key([0, 0, 0, 0, 0])).unwrap();
    assert_eq!(keys_of_list(&list).unwrap()[0], next);
    let small = host.run(ValueCommand::List { from: None, bytes: 3 }, room(3));
    assert_eq!(small.0, Status::INVALID_FIELD);
}

#[test]
fn of_hosts_that_each_want_a_new_key_one_gets_it() {
    let served = Served::new(drive());
    let mut hosts: Vec<Host> = (0..3).map(|_| served.host()).collect();
    for round in 0..60_u32 {
        let key = key(round.to_be_bytes());
        for (number, host) in hosts.iter_mut().enumerate() {
            let entry = store(key, 5000, Condition::IfMissing).entry(1);
            let value = bytes_of(number as u64, 0, 5000);
            host.io.submit(1, zerocopy::IntoBytes::as_bytes(&entry).try_into().unwrap(), Payload::ToController(value));
        }
        let ended = hosts.iter_mut().map(|host| Status::from_field(host.io.wait().unwrap().status()).code());
        let ended: Vec<u16> = ended.collect();
        let winners: Vec<usize> = (0..3).filter(|number| ended[*number] == 0).collect();
        assert_eq!(winners.len(), 1, "{ended:x?}");
        assert!(ended.iter().all(|code| matches!(code, 0 | 0x089)), "{ended:x?}");
        let found = hosts[0].run(ValueCommand::Retrieve { key, bytes: 5000 }, room(5000)).2;
        assert!(found == bytes_of(winners[0] as u64, 0, 5000), "the value is that of the winner, and of nobody else");
    }
}

#[test]
fn a_value_goes_from_the_socket_to_where_the_drive_copies_it_from() {
    let served = Served::new(drive());
    let mut host = served.host();
    let value = bytes_of(1, 1, 1 << 20);
    for round in 0..16_u8 {
        assert_eq!(host.run(store(key([round]), 1 << 20, Condition::Always), sent(&value)).0, Status::SUCCESS);
    }
    // What came with a header was received with it; everything else went straight to its frames.
    let copied = served.counters.bytes_copied.get();
    assert!(copied < 4 << 20, "{copied} of 16 MiB were copied between buffers");
    assert_eq!(served.counters.bytes_written.get(), 16 << 20);
}

#[test]
fn a_full_drive_says_so_and_deletes_and_stores_what_is_not_longer() {
    let served = Served::new(drive_like(ValueConfig { keys_max: Some(30), ..ValueConfig::default() }));
    let mut host = served.host();
    for number in 0..30_u8 {
        assert_eq!(host.run(store(key([number]), 9, Condition::Always), sent(b"012345678")).0, Status::SUCCESS);
    }
    assert_eq!(host.run(store(key([30]), 1, Condition::Always), sent(b"x")).0, Status::CAPACITY_EXCEEDED);
    assert_eq!(host.run(store(key([29]), 9, Condition::Always), sent(b"abcdefghi")).0, Status::SUCCESS);
    let delete = ValueCommand::Delete { key: key([0]), needs_key: false, durability: Durability::Volatile };
    assert_eq!(host.run(delete, Payload::None).0, Status::SUCCESS);
    assert_eq!(host.run(store(key([30]), 1, Condition::Always), sent(b"x")).0, Status::SUCCESS);
}

#[test]
fn a_client_has_the_commands_as_calls() {
    let served = Served::new(drive());
    let mut drive = served.connect();
    let before = drive.info();
    assert_eq!((before.key_max, before.value_max, before.transfer_max), (16, 1 << 20, Some(1 << 20)));
    let value = bytes_of(2, 2, 300_000);
    drive.store(key("a"), value.clone(), Condition::IfMissing).unwrap();
    assert!(matches!(drive.store(key("a"), Vec::new(), Condition::IfMissing), Err(RemoteError::KeyExists)));
    assert!(drive.retrieve(key("a")).unwrap() == value);
    assert_eq!(drive.bytes_of(key("a")).unwrap(), 300_000);
    drive.store(key("b"), Vec::new(), Condition::Always).unwrap();
    assert_eq!(drive.retrieve(key("b")).unwrap(), b"");
    assert_eq!(drive.list(None).unwrap(), [key("a"), key("b")]);
    assert!(drive.exist(key("b")).unwrap() && !drive.exist(key("c")).unwrap());
    assert!(matches!(drive.retrieve(key("c")), Err(RemoteError::NoKey)));
    let refused = drive.store(key("c"), vec![0; (1 << 20) + 1], Condition::Always).unwrap_err();
    assert!(refused.is(Status::INVALID_VALUE_SIZE), "{refused}");
    drive.flush().unwrap();
    let between = drive.ask_info().unwrap();
    assert!(between.used_bytes >= before.used_bytes + 300_000);
    drive.delete(key("a")).unwrap();
    assert!(drive.ask_info().unwrap().used_bytes + 300_000 <= between.used_bytes, "a Delete gives its bytes back");
    // Whatever else is there has no keys.
    let other = format!("nvme-tcp://{}?namespace=2", served.address).parse().unwrap();
    let refused = openftl_nvme_values::RemoteValues::connect(&other).err().expect("there is no such namespace");
    assert!(refused.to_string().contains("namespace 2 has no keys and values"), "{refused}");
}
