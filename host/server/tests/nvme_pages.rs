//! A store of pages beside other namespaces: it does not disturb them, nor they it.

use std::io::Write;

use openftl_core::BLOCK_BYTES;
use openftl_nvme::command::pages::{PageCommand, PagePart};
use openftl_nvme::wire::pages::{ChangeEntry, DirectoryHead};
use openftl_nvme_tcp::client::Payload;
use openftl_parts::Durability;
use openftl_server::ServerConfig;
use zerocopy::IntoBytes;

use crate::memory::{Memory, Temper};
use crate::nvme::{Queue, Served, Wishes, entry, page_store, zoned_drive};

/// NSID of the store: behind the blocks and the zones.
const STORE: u32 = 3;

fn served(config: ServerConfig) -> Served {
    let wishes = Wishes { config, zoned: Some(zoned_drive()), pages: Some(page_store()), ..Wishes::default() };
    Served::with(Memory::new(512, 256, Temper::Instant), wishes)
}

fn run(queue: &mut Queue, command: PageCommand, payload: Payload) -> (u16, Vec<u8>) {
    queue.run(command.entry(STORE).as_bytes().try_into().unwrap(), payload)
}

/// The data of a part that puts one page.
fn one_page(lpid: u64, bytes: &[u8]) -> Vec<u8> {
    let head = DirectoryHead { changes: 1.into(), reserved: 0.into() };
    let change =
        ChangeEntry { lpid: lpid.into(), bytes: (bytes.len() as u32).into(), flags: 0.into(), if_version: 0.into() };
    [head.as_bytes(), change.as_bytes(), bytes].concat()
}

fn put(queue: &mut Queue, session: u32, wsn: u64, lpid: u64, bytes: &[u8]) -> u16 {
    let data = one_page(lpid, bytes);
    let commit = Some(Durability::Durable);
    let command = PageCommand::Write(PagePart { session, wsn, part: 0, bytes: data.len() as u32, commit });
    run(queue, command, Payload::ToController(data)).0
}

fn open(queue: &mut Queue, id: u8) -> u32 {
    let entry = PageCommand::Open.entry(STORE);
    queue.client.submit(0, entry.as_bytes().try_into().unwrap(), Payload::ToController(vec![id; 16]));
    let ended = queue.client.wait().unwrap();
    assert_eq!(ended.status(), 0);
    ended.completion.specific.get() as u32
}

fn page(queue: &mut Queue, lpid: u64) -> (u16, Vec<u8>) {
    let command = PageCommand::Read { lpid, offset: 0, bytes: 4096 };
    run(queue, command, Payload::ToHost(vec![0xee; 4096]))
}

#[test]
fn a_store_is_one_namespace_among_others_and_a_flush_of_all_is_one_of_it() {
    let served = served(ServerConfig::default());
    let host = served.host();
    let mut queue = host.queue(1);
    let session = open(&mut queue, 1);
    assert_eq!(put(&mut queue, session, 1, 7, b"a page"), 0);
    assert_eq!(queue.write(3, &[9; BLOCK_BYTES]), 0);
    assert_eq!(page(&mut queue, 7).1[..6], b"a page"[..]);
    assert_eq!(queue.read(3, 1), [9; BLOCK_BYTES]);
    assert_eq!(queue.status(&entry(0x00, u32::MAX, [0; 3])), 0);
    // Detached, it is there for nobody; its sessions stay.
    served.set_attached(STORE as usize, false).unwrap();
    assert_eq!(page(&mut queue, 7).0, crate::nvme::status::INVALID_FIELD);
    served.set_attached(STORE as usize, true).unwrap();
    assert_eq!(put(&mut queue, session, 2, 7, b"another"), 0);
    assert_eq!(page(&mut queue, 7).1[..7], b"another"[..]);
    drop((queue, host));
    served.end();
}

/// What waits for a store lies in frames of which each host has a share; whoever announces a part and sends nothing of it has to leave them to others.
#[test]
fn parts_that_never_come_do_not_keep_others_from_the_store_or_its_neighbours() {
    let served = served(ServerConfig { staging_bytes: 2 << 20, ..ServerConfig::default() });
    let mut silent = Vec::new();
    for id in 1..=6_u8 {
        let host = served.host();
        let mut queue = host.queue(1);
        let session = open(&mut queue, id);
        let mut part =
            PageCommand::Write(PagePart { session, wsn: 1, part: 0, bytes: 1 << 20, commit: None }).entry(STORE);
        part.command_id = 5.into();
        let mut capsule = [0; 72];
        (capsule[0], capsule[2], capsule[4]) = (0x04, 72, 72);
        capsule[8..].copy_from_slice(part.as_bytes());
        queue.raw.write_all(&capsule).unwrap();
        silent.push((host, queue));
    }
    let host = served.host();
    let mut queue = host.queue(1);
    let session = open(&mut queue, 100);
    for wsn in 1..=20 {
        assert_eq!(put(&mut queue, session, wsn, wsn, &[wsn as u8; 4000]), 0, "batch {wsn}");
        assert_eq!(page(&mut queue, wsn), (0, [vec![wsn as u8; 4000], vec![0xee; 96]].concat()));
        assert_eq!(queue.write(3, &[wsn as u8; BLOCK_BYTES]), 0);
    }
    drop((queue, host, silent));
    served.end();
}
