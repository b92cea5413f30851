//! Hosts that do not keep to the rules, beside an honest one.

use std::io::Write;
use std::net::TcpStream;

use openftl_nvme::Status;
use openftl_nvme::command::pages::{PageCommand, PagePart};
use openftl_nvme::wire::pages::{BATCHES_MAX, ChangeEntry, DirectoryHead};
use openftl_nvme_tcp::client::Payload;
use openftl_pages::{BlockingStore, Change};
use openftl_parts::Durability;
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use zerocopy::IntoBytes;

use crate::support::*;

/// The data of a part: changes, and the bytes of pages.
fn data_of(changes: &[(u64, u32, u32)], payload: &[u8]) -> Vec<u8> {
    let mut data = DirectoryHead { changes: (changes.len() as u32).into(), reserved: 0.into() }.as_bytes().to_vec();
    for (lpid, bytes, flags) in changes {
        let entry =
            ChangeEntry { lpid: (*lpid).into(), bytes: (*bytes).into(), flags: (*flags).into(), if_version: 0.into() };
        data.extend_from_slice(entry.as_bytes());
    }
    data.extend_from_slice(payload);
    data
}

fn part(session: u32, wsn: u64, part: u16, bytes: usize, commit: Option<Durability>) -> PageCommand {
    PageCommand::Write(PagePart { session, wsn, part, bytes: bytes as u32, commit })
}

#[test]
fn lies_about_a_part_have_their_status_and_nothing_happens() {
    let served = Served::new(drive());
    let mut host = served.host();
    let session = host.open(1);
    let good = data_of(&[(1, 5, 0)], b"hello");
    let mut check = |what: &str, command: PageCommand, data: &[u8], expected: Status, result: u64| {
        let payload = if data.is_empty() { Payload::None } else { Payload::ToController(data.to_vec()) };
        let (status, found, _) = host.run(command, payload);
        assert_eq!((status, found), (expected, result), "{what}");
    };
    let durable = Some(Durability::Durable);
    let directory = Status::INVALID_DIRECTORY;
    let whole = |data: &[u8]| part(session, 1, 0, data.len(), durable);
    let longer = data_of(&[(1, 6, 0)], b"hello");
    check("a page that is longer than its bytes", whole(&longer), &longer, directory, 16);
    let shorter = data_of(&[(1, 4, 0)], b"hello");
    check("bytes of no page", whole(&shorter), &shorter, directory, 36);
    let mut counted = good.clone();
    counted[..4].fill(0xff);
    check("more changes than there can be", whole(&counted), &counted, directory, 0);
    let flagged = data_of(&[(1, 5, 8)], b"hello");
    check("a reserved flag", whole(&flagged), &flagged, directory, 20);
    let wide = data_of(&[(1, u32::MAX, 0)], b"hello");
    check("a page of 4 GiB", whole(&wide), &wide, directory, 16);
    check("a session that is not open", part(99, 1, 0, good.len(), durable), &good, Status::SESSION_NOT_OPEN, 0);
    check("part 1 first", part(session, 1, 1, good.len(), durable), &good, Status::COMMAND_SEQUENCE_ERROR, 0);
    check("batch 0", part(session, 0, 0, good.len(), durable), &good, Status::BATCH_TOO_LATE, 0);
    check("far ahead", part(session, 18, 0, good.len(), durable), &good, Status::BATCH_TOO_EARLY, 0);
    check("the first part", part(session, 1, 0, good.len(), None), &good, Status::SUCCESS, 0);
    check("the same part again", part(session, 1, 0, good.len(), None), &good, Status::COMMAND_SEQUENCE_ERROR, 1);
    let (status, ..) = host.run(PageCommand::Stat { lpid: 1 }, Payload::ToHost(vec![0; 16]));
    assert_eq!(status, Status::PAGE_NOT_FOUND, "nothing was committed");
    // A change that the store refuses takes its batch with it.
    let empty = data_of(&[(2, 3, 0), (3, 0, 0)], b"abc");
    let (status, result, _) = host.run(part(session, 1, 1, empty.len(), durable), Payload::ToController(empty));
    assert_eq!((status, result as u32), (Status::INVALID_PAGE_LENGTH, 1));
    let late = host.run(part(session, 1, 2, good.len(), durable), Payload::ToController(good.clone()));
    assert_eq!((late.0, late.1), (Status::COMMAND_SEQUENCE_ERROR, 0), "what follows is not taken for the batch");
    let (status, ..) = host.run(part(session, 1, 0, good.len(), durable), Payload::ToController(good));
    assert_eq!(status, Status::SUCCESS);
    let command = PageCommand::Read { lpid: 1, offset: 0, bytes: 4096 };
    let (status, result, data) = host.run(command, Payload::ToHost(vec![0; 4096]));
    assert_eq!((status, result as u32, data.as_slice()), (Status::SUCCESS, 5, &b"hello"[..]));
    let command = PageCommand::Read { lpid: 1, offset: 3, bytes: 1 };
    assert_eq!(host.run(command, Payload::ToHost(vec![0; 1])).2, b"l");
    let command = PageCommand::Read { lpid: 1, offset: 5, bytes: 1 };
    let (status, result, _) = host.run(command, Payload::ToHost(vec![0; 1]));
    assert_eq!((status, result), (Status::PAGE_OFFSET_OUT_OF_RANGE, 5));
}

#[test]
fn a_session_has_so_many_batches_that_grow_and_no_more() {
    let served = Served::new(drive());
    let mut host = served.host();
    let session = host.open(1);
    let change = data_of(&[(1, 0, 1)], b"");
    // Deletions that are never committed, under numbers that are taken as they are or again.
    for round in 1..=100_u64 {
        let commit = part(session, round, 0, 0, Some(Durability::Volatile));
        let (status, ..) = host.run(commit, Payload::None);
        if round > BATCHES_MAX as u64 {
            assert_eq!(status, Status::BATCH_TOO_EARLY);
            break;
        }
        assert_eq!(status, Status::SUCCESS, "round {round}");
        let again = part(session, round, 0, change.len(), None);
        assert_eq!(host.run(again, Payload::ToController(change.clone())).0, Status::SUCCESS, "round {round}");
    }
    // Room for one.
    assert_eq!(host.run(PageCommand::Abort { session, wsn: 32 }, Payload::None).0, Status::SUCCESS);
    let commit = part(session, 33, 0, 0, Some(Durability::Volatile));
    assert_eq!(host.run(commit, Payload::None).0, Status::SUCCESS);
    // Closed, they are gone.
    assert_eq!(host.run(PageCommand::Close { session, forget: false }, Payload::None).0, Status::SUCCESS);
    host.open(1);
}

#[test]
fn parts_under_way_together_keep_their_order() {
    let served = Served::new(drive());
    let mut host = served.host();
    let session = host.open(1);
    for (tag, count) in [(0_u16, 300_usize), (1, 1), (2, 200), (3, 7)] {
        // Of two changes of one page the later one counts, and the last part commits.
        let page = vec![tag as u8 + 1; 4000];
        let changes: Vec<(u64, u32, u32)> = (0..count as u64 / 2 + 1).map(|lpid| (lpid, 4000, 0)).collect();
        let payload: Vec<u8> = changes.iter().flat_map(|_| page.clone()).collect();
        let data = data_of(&changes, &payload);
        let entry = part(session, 1, tag, data.len(), (tag == 3).then_some(Durability::Durable)).entry(1);
        host.io.submit(tag.into(), entry.as_bytes().try_into().unwrap(), Payload::ToController(data));
    }
    for _ in 0..4 {
        assert_eq!(host.io.wait().unwrap().status(), 0);
    }
    let store = served.connect();
    for (lpid, byte) in [(0, 4), (3, 4), (4, 3), (100, 3), (101, 1), (150, 1)] {
        assert!(store.read_whole(lpid).unwrap() == vec![byte; 4000], "page {lpid}");
    }
}

#[test]
fn garbage_and_half_of_a_part_disturb_nobody() {
    let served = Served::new(drive());
    let store = served.connect();
    let (of_honest, _) = store.open_session(session(1)).unwrap();
    let mut chance = Xoshiro256PlusPlus::seed_from_u64(7);
    let mut half_open = Vec::new();
    for round in 1..=40_u64 {
        // Somebody who says anything.
        let mut garbage = vec![0; 1 + chance.next_u32() as usize % 5000];
        garbage.iter_mut().for_each(|byte| *byte = chance.next_u32() as u8);
        let mut stream = TcpStream::connect(served.address).unwrap();
        _ = stream.write_all(&garbage);
        // Somebody who opens a session, announces a long part and sends no byte of it; some leave, and some stay.
        let mut host = served.host();
        let session = host.open(100 + (round % 50) as u8);
        let mut entry = part(session, 1, 0, 1 << 20, None).entry(1);
        entry.command_id = 77.into();
        let mut capsule = [0; 72];
        (capsule[0], capsule[2], capsule[4]) = (0x04, 72, 72);
        capsule[8..].copy_from_slice(entry.as_bytes());
        host.io.stream_mut().write_all(&capsule).unwrap();
        if round % 4 == 0 {
            half_open.push((host, stream));
        }
        // The honest one goes on.
        for lpid in 0..20 {
            store.stage(of_honest, round, lpid, Change::Put(&[&bytes_of(lpid, round, 9000)]), None).unwrap();
        }
        store.commit(of_honest, round, Durability::Durable).unwrap();
        assert!(store.read_whole(round % 20).unwrap() == bytes_of(round % 20, round, 9000), "round {round}");
    }
    assert_eq!(store.list(0, 100).unwrap().len(), 20);
    drop((half_open, store));
    assert_eq!(served.end().pages(), 20);
}

#[test]
fn a_host_that_resets_its_controller_or_leaves_has_no_session_any_more() {
    let served = Served::new(drive());
    let mut host = served.host();
    host.open(1);
    let disable = openftl_nvme_tcp::fabrics::property_set(openftl_nvme_tcp::fabrics::PropertyName::Cc, 0);
    host.admin.admin.call("Property Set", &disable, Payload::None).unwrap();
    let store = served.connect();
    assert_eq!(store.open_session(session(1)).unwrap().1, 0);
}
