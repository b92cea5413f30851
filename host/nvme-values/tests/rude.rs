//! Hosts that do not keep to the rules, beside an honest one.

use std::io::Write;
use std::net::TcpStream;

use openftl_nvme::command::ValueCommand;
use openftl_nvme::{Status, SubmissionEntry};
use openftl_nvme_tcp::client::Payload;
use openftl_parts::Durability;
use openftl_values::{Condition, ValueTarget};
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use zerocopy::IntoBytes;

use crate::support::*;

/// The bytes of a capsule without data in it.
fn capsule(entry: &SubmissionEntry) -> [u8; 72] {
    let mut capsule = [0; 72];
    (capsule[0], capsule[2], capsule[4]) = (0x04, 72, 72);
    capsule[8..].copy_from_slice(entry.as_bytes());
    capsule
}

fn store(number: u64, bytes: u32) -> ValueCommand {
    let key = key(number.to_be_bytes());
    ValueCommand::Store { key, bytes, condition: Condition::Always, durability: Durability::Volatile }
}

#[test]
fn garbage_and_values_that_never_come_disturb_nobody() {
    let served = Served::new(drive());
    let mut honest = served.connect();
    let mut chance = Xoshiro256PlusPlus::seed_from_u64(7);
    let mut half_open = Vec::new();
    for round in 1..=40_u64 {
        // Somebody who says anything.
        let mut garbage = vec![0; 1 + chance.next_u32() as usize % 5000];
        garbage.iter_mut().for_each(|byte| *byte = chance.next_u32() as u8);
        let mut stream = TcpStream::connect(served.address).unwrap();
        _ = stream.write_all(&garbage);
        // Somebody who announces long values and sends no byte of them; some leave, and some stay.
        let mut host = served.host();
        for number in 0..20 {
            let mut entry = store(1 << 40 | number, 1 << 20).entry(1);
            entry.command_id = (100 + number as u16).into();
            host.io.stream_mut().write_all(&capsule(&entry)).unwrap();
        }
        if round % 4 == 0 {
            half_open.push((host, stream));
        }
        // The honest one goes on.
        for number in 0..10_u64 {
            let value = bytes_of(number, round, 9000 + 40_000 * usize::from(number == 3));
            honest.store(key(number.to_be_bytes()), value, Condition::Always).unwrap();
        }
        let number = round % 10;
        let length = 9000 + 40_000 * usize::from(number == 3);
        let found = honest.retrieve(key(number.to_be_bytes())).unwrap();
        assert!(found == bytes_of(number, round, length), "round {round}");
    }
    assert_eq!(honest.list(None).unwrap().len(), 10, "no value of those that never came");
    drop((half_open, honest));
    assert_eq!(served.end().info().keys, 10);
}

#[test]
fn random_fields_of_every_command_end_with_a_status_and_leave_the_queue_in_order() {
    let served = Served::new(drive());
    let mut host = served.host();
    let mut chance = Xoshiro256PlusPlus::seed_from_u64(5);
    let mut refused = 0;
    for round in 0..3000_u32 {
        let opcode = [0x00, 0x01, 0x02, 0x06, 0x10, 0x14, 0x0d, 0x0e, 0x11, 0x15][chance.next_u32() as usize % 10];
        let mut entry = ValueCommand::Exist { key: key("any") }.entry(1);
        entry.opcode = opcode;
        let bytes = chance.next_u32() % 5000;
        let drawn = |chance: &mut Xoshiro256PlusPlus, usual: u32| match chance.next_u32() % 4 {
            0 => chance.next_u32(),
            1 => chance.next_u32() % 40,
            _ => usual,
        };
        entry.dwords_10_15[0] = drawn(&mut chance, bytes).into();
        entry.dwords_10_15[1] = drawn(&mut chance, 1 + round % 16).into();
        if chance.next_u32().is_multiple_of(16) {
            entry.namespace = chance.next_u32().into();
        }
        let data = vec![round as u8; bytes as usize];
        let payload = match opcode & 3 {
            _ if bytes == 0 => Payload::None,
            1 => Payload::ToController(data),
            2 => Payload::ToHost(data),
            _ => Payload::None,
        };
        refused += u32::from(!host.run_entry(&entry, payload).0.is_success());
    }
    assert!((500..2900).contains(&refused), "{refused} of 3000");
    let (status, ..) = host.run(store(1, 5), Payload::ToController(b"hello".to_vec()));
    assert_eq!(status, Status::SUCCESS, "the queue goes on");
}
