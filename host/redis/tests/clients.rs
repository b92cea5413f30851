//! What clients get.

use crate::front::{World, command};
use openftl_redis::front::{CURSORS_MAX, INPUT_MAX, KEPT_BYTES_MAX, PART_MAX};
use openftl_values::ValueTarget;
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::{BTreeMap, BTreeSet};

#[test]
fn each_command_has_its_answer() {
    let mut world = World::new();
    let peer = world.front.connect();
    let dialogue = [
        ("PING", "+PONG\r\n"),
        ("PING hello", "$5\r\nhello\r\n"),
        ("ECHO x", "$1\r\nx\r\n"),
        ("GET k", "$-1\r\n"),
        ("SET k one", "+OK\r\n"),
        ("SET k two NX", "$-1\r\n"),
        ("SET k three XX", "+OK\r\n"),
        ("SET none x XX", "$-1\r\n"),
        ("GET k", "$5\r\nthree\r\n"),
        ("SET empty \"\"", "+OK\r\n"),
        ("GET empty", "$0\r\n\r\n"),
        ("EXISTS k k none empty", ":3\r\n"),
        ("DBSIZE", ":2\r\n"),
        ("DEL k none k", ":1\r\n"),
        ("DBSIZE", ":1\r\n"),
        ("SELECT 0", "+OK\r\n"),
        ("COMMAND DOCS", "*0\r\n"),
        ("CONFIG GET save", "*2\r\n$4\r\nsave\r\n$0\r\n\r\n"),
        ("CONFIG GET maxmemory", "*0\r\n"),
        ("CLIENT SETINFO LIB-NAME x", "+OK\r\n"),
        ("FLUSHALL", "-ERR unknown command 'FLUSHALL'\r\n"),
        ("SCAN 0", "*2\r\n$1\r\n0\r\n*1\r\n$5\r\nempty\r\n"),
        ("SCAN 77", "-ERR invalid cursor: begin again with 0\r\n"),
        ("", ""),
    ];
    for (said, expected) in dialogue {
        assert_eq!(world.line(peer, said), expected, "{said}");
    }
    assert!(world.line(peer, "INFO").contains("db0:keys=1,"));
    assert_eq!(world.line(peer, "QUIT"), "+OK\r\n");
    assert!(world.front.is_over(peer));
}

#[test]
fn answers_come_in_order_however_the_bytes_are_cut() {
    let mut said = Vec::new();
    let mut expected = Vec::new();
    let mut values = BTreeMap::new();
    let mut chance = Xoshiro256PlusPlus::seed_from_u64(1);
    for _ in 0..300 {
        let name = format!("key{}", chance.next_u64() % 40).repeat(1 + (chance.next_u64() % 4) as usize);
        match chance.next_u64() % 5 {
            0 | 1 => {
                let value = vec![b'a' + (chance.next_u64() % 26) as u8; (chance.next_u64() % 20_000) as usize];
                said.extend(command(&[b"SET", name.as_bytes(), &value]));
                expected.extend(b"+OK\r\n");
                values.insert(name, value);
            }
            2 | 3 => {
                said.extend(command(&[b"GET", name.as_bytes()]));
                match values.get(&name) {
                    Some(value) => {
                        expected.extend(format!("${}\r\n", value.len()).bytes());
                        expected.extend(value);
                        expected.extend(b"\r\n");
                    }
                    None => expected.extend(b"$-1\r\n"),
                }
            }
            _ => {
                said.extend(command(&[b"DEL", name.as_bytes()]));
                expected.extend(format!(":{}\r\n", u8::from(values.remove(&name).is_some())).bytes());
            }
        }
    }
    said.extend(b"DBSIZE\r\n");
    expected.extend(format!(":{}\r\n", values.len()).bytes());
    for pieces in [1, 7, 100, 5000, usize::MAX] {
        let mut world = World::new();
        let peer = world.front.connect();
        let mut answer = Vec::new();
        for piece in said.chunks(pieces.min(said.len())) {
            // Some pieces come while others are under way.
            world.front.receive(peer, piece);
            if chance.next_u64().is_multiple_of(3) {
                let now = openftl_core::Clock::now(&mut world.clock);
                world.poll(now);
                answer.extend(world.taken(peer));
            }
        }
        answer.extend(world.say(peer, b""));
        let same = answer.iter().zip(&expected).take_while(|(one, other)| one == other).count();
        let (got, wanted) =
            (&answer[same..answer.len().min(same + 60)], &expected[same..expected.len().min(same + 60)]);
        assert!(
            answer == expected,
            "in pieces of {pieces}: {same} bytes are the same, then {:?} instead of {:?}",
            String::from_utf8_lossy(got),
            String::from_utf8_lossy(wanted)
        );
    }
}

#[test]
fn long_keys_are_compared_whole_and_scanned_by_their_names() {
    let mut world = World::new();
    let peer = world.front.connect();
    let names: Vec<String> = (0..30).map(|number| format!("{number:0>3}").repeat(1 + number % 7)).collect();
    for name in &names {
        assert_eq!(world.say(peer, &command(&[b"SET", name.as_bytes(), name.as_bytes()])), b"+OK\r\n");
    }
    for name in &names {
        let answer = world.say(peer, &command(&[b"GET", name.as_bytes()]));
        assert_eq!(answer, format!("${}\r\n{name}\r\n", name.len()).as_bytes());
        assert_eq!(world.say(peer, &command(&[b"EXISTS", name.as_bytes(), b"000111222333444555"])), b":1\r\n");
    }
    let (mut cursor, mut found) = ("0".to_owned(), BTreeSet::new());
    loop {
        let answer = world.line(peer, &format!("SCAN {cursor} COUNT 7"));
        let words: Vec<&str> = answer.split("\r\n").filter(|word| !word.is_empty()).collect();
        cursor = words[2].to_owned();
        found.extend(words[4..].iter().skip(1).step_by(2).map(|name| (*name).to_owned()));
        if cursor == "0" {
            break;
        }
    }
    assert_eq!(found, names.iter().cloned().collect());
    assert_eq!(world.line(peer, "SCAN 0 COUNT 1000 MATCH 0010*").matches("001001").count(), 1);
    for name in &names {
        assert_eq!(world.say(peer, &command(&[b"DEL", name.as_bytes()])), b":1\r\n");
    }
    assert_eq!(world.line(peer, "DBSIZE"), ":0\r\n");
}

#[test]
fn garbage_ends_one_client_and_disturbs_no_other() {
    let mut world = World::new();
    let honest = world.front.connect();
    let mut chance = Xoshiro256PlusPlus::seed_from_u64(3);
    for round in 0..200_u32 {
        let rude = world.front.connect();
        let mut garbage = vec![0; (chance.next_u64() % 300) as usize];
        chance.fill_bytes(&mut garbage);
        let start: &[u8] = [&b"*"[..], b"*2\r\n$3\r\n", b"*1\r\n:", b"$", b"GET \"", b""][round as usize % 6];
        world.front.receive(rude, start);
        world.front.receive(rude, &garbage);
        assert_eq!(world.line(honest, &format!("SET k{round} v{round}")), "+OK\r\n");
        assert_eq!(
            world.line(honest, &format!("GET k{round}")),
            format!("${}\r\nv{round}\r\n", 1 + format!("{round}").len())
        );
        let answer = world.say(rude, b"");
        if world.front.is_over(rude) {
            assert!(answer.is_empty() || answer.windows(4).any(|bytes| bytes == b"-ERR"), "{answer:?}");
        }
        world.front.disconnect(rude);
    }
    assert_eq!(world.front.clients(), 1);
}

#[test]
fn a_client_that_goes_leaves_nothing_under_way() {
    let mut world = World::new();
    for round in 0..20 {
        let peer = world.front.connect();
        let value = vec![b'x'; 50_000];
        for number in 0..8 {
            world.front.receive(peer, &command(&[b"SET", format!("k{number}").as_bytes(), &value]));
            world.front.receive(peer, &command(&[b"GET", format!("k{number}").as_bytes()]));
        }
        let now = openftl_core::Clock::now(&mut world.clock);
        world.poll(now);
        if round % 2 == 0 {
            world.settle();
        }
        world.front.disconnect(peer);
    }
    world.settle();
    let peer = world.front.connect();
    assert_eq!(world.line(peer, "DBSIZE"), ":8\r\n");
    let answer = world.say(peer, &command(&[b"GET", b"k3"]));
    assert_eq!(answer.len(), "$50000\r\n".len() + 50_000 + 2);
}

#[test]
fn a_value_that_is_too_long_is_refused_and_the_client_goes_on() {
    let mut world = World::new();
    let peer = world.front.connect();
    let most = world.drive.info().value_max as usize;
    let long = vec![b'x'; most];
    assert_eq!(world.say(peer, &command(&[b"SET", b"k", &long])), b"+OK\r\n");
    let longer = vec![b'x'; most + 1];
    let answer = world.say(peer, &command(&[b"SET", b"k", &longer]));
    assert!(answer.starts_with(b"-ERR invalid value size"), "{}", String::from_utf8_lossy(&answer));
    assert_eq!(world.line(peer, "PING"), "+PONG\r\n");
    // What no drive takes is no command.
    let answer = world.say(peer, format!("*2\r\n$3\r\nGET\r\n${}\r\n", PART_MAX + 1).as_bytes());
    assert_eq!(answer, b"-ERR Protocol error: invalid bulk length\r\n");
    assert!(world.front.is_over(peer));
}

#[test]
fn a_client_that_sends_and_does_not_read_holds_little() {
    let mut world = World::new();
    let (slow, honest) = (world.front.connect(), world.front.connect());
    let value = vec![b'x'; 100_000];
    world.say(honest, &command(&[b"SET", b"k", &value]));
    let mut sent = 0;
    while world.front.wants_input(slow) && sent < 100_000 {
        world.front.receive(slow, &command(&[b"GET", b"k"]));
        world.settle();
        sent += 1;
    }
    assert!(sent < 100 && world.front.output(slow).len() < (2 << 20), "{sent} sent");
    assert_eq!(world.line(honest, "PING"), "+PONG\r\n");
    // It gets all of it in the end.
    let answer = world.say(slow, b"");
    assert_eq!(answer.len(), sent * ("$100000\r\n".len() + 100_000 + 2));
}

#[test]
fn the_client_that_keeps_the_most_is_known_when_all_keep_too_much() {
    let mut world = World::new();
    let mut clients = Vec::new();
    while world.front.heaviest().is_none() {
        assert!(clients.len() * (INPUT_MAX / 2) <= KEPT_BYTES_MAX);
        let peer = world.front.connect();
        // A command that does not end.
        world.front.receive(peer, format!("*2\r\n$3\r\nSET\r\n${PART_MAX}\r\n").as_bytes());
        world.front.receive(peer, &vec![0; INPUT_MAX / 2]);
        clients.push(peer);
    }
    assert!(clients.len() * INPUT_MAX > KEPT_BYTES_MAX / 2, "{} clients", clients.len());
    let heaviest = world.front.heaviest().expect("they keep too much");
    assert!(clients.contains(&heaviest));
    world.front.disconnect(heaviest);
    assert_eq!(world.front.heaviest(), None);
}

#[test]
fn scans_that_are_forgotten_are_told_so() {
    let mut world = World::new();
    let peer = world.front.connect();
    (0..10).for_each(|number| _ = world.line(peer, &format!("SET k{number} v")));
    for _ in 0..=CURSORS_MAX {
        assert!(world.line(peer, "SCAN 0 COUNT 2").starts_with("*2\r\n"));
    }
    assert!(world.line(peer, "SCAN 1").starts_with("-ERR invalid cursor"));
    let last = CURSORS_MAX + 1;
    assert!(world.line(peer, &format!("SCAN {last} COUNT 2")).contains("k2"));
}
