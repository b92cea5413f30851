//! Log pages, whole and in parts.

use crate::harness::*;
use openftl_core::Ppa;
use openftl_media::{Notification, NotifiedScope, NotifiedState};
use openftl_nvme::wire::log::id;
use openftl_nvme::wire::opcode::{admin, io};
use openftl_nvme::{Health, Queue, Status};

fn number(data: &[u8], at: usize, bytes: usize) -> u64 {
    data[at..at + bytes].iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

fn ready() -> (World, Queue) {
    let mut world = World::new();
    let queue = world.ready();
    (world, queue)
}

#[test]
fn the_pages_that_are_there_are_listed() {
    let (mut world, mut queue) = ready();
    world.ok(&mut queue, log_page(id::SUPPORTED_LOG_PAGES, 0, 1024, 0));
    let supported: Vec<u8> = (0..=255).filter(|page| world.data[4 * usize::from(*page)] == 1).collect();
    assert_eq!(supported, [0, 1, 2, 3, 4, 5, 0x80, 0xc0, 0xca, 0xd0]);
    for page in 0..=255 {
        let entry = log_page(page, if page >= 0xca { 5 } else { 0 }, 4, 0);
        if supported.contains(&page) {
            world.ok(&mut queue, entry);
        } else {
            assert_eq!(world.refused(&mut queue, entry), Status::INVALID_LOG_PAGE, "{page:#x}");
        }
    }
}

#[test]
fn a_page_read_in_parts_is_the_page() {
    let (mut world, mut queue) = ready();
    world.ok(&mut queue, log_page(id::EFFECTS, 0, 4096, 0));
    let whole = world.data.clone();
    let parts: Vec<u8> = (0..8)
        .flat_map(|part| {
            world.ok(&mut queue, log_page(id::EFFECTS, 0, 512, part * 512));
            world.data.clone()
        })
        .collect();
    assert_eq!(parts, whole);
    world.ok(&mut queue, log_page(id::EFFECTS, 0, 64, 4096));
    assert_eq!(world.data, [0; 64], "nothing is beyond its end");
    assert_eq!(world.refused(&mut queue, log_page(id::EFFECTS, 0, 64, 4100)), Status::INVALID_FIELD);
    assert_eq!(world.refused(&mut queue, log_page(id::EFFECTS, 0, 64, u64::MAX - 3)), Status::INVALID_FIELD);
    assert_eq!(world.refused(&mut queue, log_page(id::EFFECTS, 0, 64, 2)), Status::INVALID_FIELD, "not of dwords");
    assert_eq!(world.refused(&mut queue, log_page(id::EFFECTS, 0, (1 << 20) + 4, 0)), Status::INVALID_FIELD, "MDTS");
}

#[test]
fn effects_say_which_commands_there_are_and_which_change_blocks() {
    let (mut world, mut queue) = ready();
    world.ok(&mut queue, log_page(id::EFFECTS, 0, 4096, 0));
    let effects = |command: usize| number(&world.data, 4 * command, 4);
    assert_eq!((effects(0x06), effects(0x0d), effects(0x7f)), (1, 0, 1), "admin: identify, no management, fabrics");
    assert_eq!((effects(256), effects(257), effects(258)), (1, 3, 1), "flush, write, read");
    assert_eq!((effects(256 + 4), effects(256 + 0x91)), (3, 3), "uncorrectable writes, vector writes");
    assert_eq!(effects(256 + 6), 0, "nothing has this opcode");
}

#[test]
fn refusals_are_in_the_error_log_the_newest_first() {
    let (mut world, mut queue) = ready();
    let mut io = world.connect_io(&queue, 1);
    assert_eq!(world.io(&mut io, ranged(io::READ, 1, 1 << 40, 1)), Err(Status::LBA_OUT_OF_RANGE));
    assert_eq!(world.refused(&mut queue, command(admin::IDENTIFY, 0, [0xff, 0, 0, 0, 0, 0])), Status::INVALID_FIELD);
    world.ok(&mut queue, log_page(id::ERRORS, 0, 64 * 64, 0));
    let data = &world.data;
    assert_eq!((number(data, 0, 8), number(data, 8, 2)), (2, 0));
    assert_eq!((number(data, 12, 2), number(data, 14, 2)), (0x4002 << 1, 40), "status, and which byte");
    assert_eq!((number(data, 64, 8), number(data, 64 + 8, 2)), (1, 1));
    assert_eq!((number(data, 64 + 12, 2), number(data, 64 + 16, 8)), (0x4080 << 1, 1 << 40), "status, and which block");
    assert_eq!((number(data, 64 + 24, 4), data[64 + 31]), (1, 2), "namespace and opcode");
    assert_eq!(data[128..], [0; 62 * 64]);
    world.ok(&mut queue, log_page(id::SMART, 0xffff_ffff, 512, 0));
    assert_eq!(number(&world.data, 176, 8), 2, "the SMART log counts them");
}

#[test]
fn the_drive_says_how_it_is() {
    let (mut world, mut queue) = ready();
    world.drives.health = Health {
        host_bytes_written: 1_024_000,
        media_bytes_written: 3_072_000,
        bad_chunks: 7,
        wear_percent: 12,
        erases_max: 9,
        ..Health::default()
    };
    world.ok(&mut queue, log_page(id::SMART, 0, 512, 0));
    assert_eq!((world.data[5], number(&world.data, 48, 16)), (12, 2));
    let mut entry = log_page(id::OCP_SMART, 0xffff_ffff, 512, 0);
    entry.dwords_10_15[4] = 1.into();
    world.ok(&mut queue, entry);
    assert_eq!((number(&world.data, 0, 16), number(&world.data, 32, 6)), (3_072_000, 7));
    assert_eq!((number(&world.data, 88, 4), number(&world.data, 494, 2)), (9, 3));
    assert_eq!(world.data[496..500], [0xc5, 0xaf, 0x10, 0x28]);
    assert_eq!(world.refused(&mut queue, log_page(id::SMART, 1, 512, 0)), Status::INVALID_FIELD);
    entry.dwords_10_15[4] = 2.into();
    assert_eq!(world.refused(&mut queue, entry), Status::INVALID_FIELD, "there is one UUID");
}

#[test]
fn the_firmware_has_one_slot() {
    let (mut world, mut queue) = ready();
    world.ok(&mut queue, log_page(id::FIRMWARE, 0, 512, 0));
    assert_eq!((world.data[0], &world.data[8..16]), (1, &b"0.1.0   "[..]));
}

#[test]
fn chunks_are_told_from_any_byte_on() {
    let (mut world, mut queue) = ready();
    world.ok(&mut queue, log_page(id::CHUNKS, 5, 32 * 32, 0));
    let whole = world.data.clone();
    assert_eq!(whole[..3], [4, 1, 3]);
    assert_eq!((number(&whole, 31 * 32 + 8, 8), number(&whole, 24, 8)), (31 * 16, 4), "SLBA of the last, WP");
    for (offset, bytes) in [(4, 64), (32, 32), (36, 20), (32 * 31, 32), (32 * 32 - 4, 4)] {
        world.ok(&mut queue, log_page(id::CHUNKS, 5, bytes, offset));
        assert_eq!(world.data, whole[offset as usize..][..bytes as usize], "{bytes} bytes from {offset}");
    }
    world.ok(&mut queue, log_page(id::CHUNKS, 5, 64, 32 * 31));
    assert_eq!((&world.data[..32], &world.data[32..]), (&whole[32 * 31..], &[0; 32][..]));
    assert_eq!(world.refused(&mut queue, log_page(id::CHUNKS, 5, 64, 32 * 33)), Status::INVALID_FIELD);
    assert_eq!(world.refused(&mut queue, log_page(id::CHUNKS, 1, 64, 0)), Status::INVALID_FIELD, "a block namespace");
}

#[test]
fn the_last_notifications_are_in_the_log_the_oldest_first() {
    let (mut world, mut queue) = ready();
    let notifications = |counts: std::ops::RangeInclusive<u64>| -> Vec<Notification> {
        let (state, scope) = (NotifiedState::ErrorRateHigh, NotifiedScope::Chunk);
        counts.map(|count| Notification { count, ppa: Ppa(count), state, scope }).collect()
    };
    let counts = |data: &[u8]| -> Vec<u64> { data.chunks(64).map(|entry| number(entry, 0, 8)).collect() };
    world.drives.notifications = notifications(1..=3);
    for _ in 0..2 {
        world.ok(&mut queue, log_page(id::CHUNK_NOTIFICATIONS, 5, 256, 0));
        assert_eq!(counts(&world.data), [1, 2, 3, 0]);
    }
    world.drives.notifications = notifications(1..=300);
    world.ok(&mut queue, log_page(id::CHUNK_NOTIFICATIONS, 5, 256 * 64, 0));
    assert_eq!(counts(&world.data), (45..=300).collect::<Vec<u64>>());
    world.ok(&mut queue, log_page(id::CHUNK_NOTIFICATIONS, 5, 128, 254 * 64));
    assert_eq!(counts(&world.data), [299, 300]);
    assert_eq!(world.refused(&mut queue, log_page(id::CHUNK_NOTIFICATIONS, 1, 64, 0)), Status::INVALID_FIELD);
    let all = log_page(id::CHUNK_NOTIFICATIONS, 0xffff_ffff, 64, 0);
    assert_eq!(world.refused(&mut queue, all), Status::INVALID_NAMESPACE);
}
