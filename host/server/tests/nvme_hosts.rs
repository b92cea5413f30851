//! The server and NVMe hosts over real sockets: decent, rude, slow or gone, on a drive that is late and out of order.
//!
//! Nothing here sleeps or looks at a clock: a host waits for the server's answer, and time-outs are tested with a clock
//! that the test sets.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::memory::{Memory, Temper};
use crate::nvme::{DISCOVERY, HOST, Host, Queue, SUBSYSTEM, Served, TestClock, Wishes, entry, status, write};
use openftl_core::{BLOCK_BYTES, Nanos};
use openftl_media::{EmulatedDevice, Profile, Store, Timing};
use openftl_nvme::{BlockFormat, HostsAllowed, Nqn};
use openftl_nvme_tcp::client::Payload;
use openftl_nvme_tcp::fabrics::{PropertyName, property_set};
use openftl_nvme_tcp::{ClientError, Initiator, InitiatorConfig};
use openftl_server::{ServerConfig, WallClock};
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

const BLOCKS: usize = 512;
const SHUFFLED: Temper = Temper::Shuffled { seed: 1, within: Nanos::from_micros(200) };

/// CC of a controller that is ready, and what to add for a shutdown.
const CC_READY: u64 = 4 << 20 | 6 << 16 | 1;
const CC_SHUTDOWN: u64 = 1 << 14;

fn pattern(seed: u64, bytes: usize) -> Vec<u8> {
    let mut chance = Xoshiro256PlusPlus::seed_from_u64(seed);
    (0..bytes).map(|_| chance.next_u32() as u8).collect()
}

/// Waits until the server has closed the connection; what it said before.
fn until_closed(stream: &mut TcpStream) -> Vec<u8> {
    let mut said = Vec::new();
    match stream.read_to_end(&mut said) {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {}
        Err(error) => panic!("{error}"),
    }
    said
}

/// Two ranges in a page of their own, as Linux sends them.
fn ranges(ranges: &[(u64, u32)]) -> Vec<u8> {
    let mut page = vec![0; 4096];
    for (room, (first, blocks)) in page.chunks_exact_mut(16).zip(ranges) {
        room[4..8].copy_from_slice(&blocks.to_le_bytes());
        room[8..].copy_from_slice(&first.to_le_bytes());
    }
    page
}

/// The source ranges of a copy: first block and blocks.
fn sources(sources: &[(u64, u16)]) -> Vec<u8> {
    let mut list = vec![0; sources.len() * 32];
    for (room, (first, blocks)) in list.chunks_exact_mut(32).zip(sources) {
        room[8..16].copy_from_slice(&first.to_le_bytes());
        room[16..18].copy_from_slice(&(blocks - 1).to_le_bytes());
    }
    list
}

fn copy(to: u32, count: usize) -> [u8; 64] {
    entry(0x19, 1, [to, 0, count as u32 - 1])
}

const DEALLOCATE: u32 = 1 << 2;
const FUA: u32 = 1 << 30;

#[test]
fn every_command_of_a_block_namespace_does_what_it_says() {
    for digests in [false, true] {
        let mut drive = Memory::new(BLOCKS, 1024, SHUFFLED);
        drive.lost_block = Some(500);
        let served = Served::new(drive);
        let host = served.host();
        let config = InitiatorConfig { header_digest: digests, data_digest: digests, ..InitiatorConfig::default() };
        let mut queue = host.queue_as(1, config);
        let volatile = || served.switches.volatile.load(Ordering::SeqCst);

        // In the capsule, on request, and the longest that there is; and it is flush that makes them durable.
        for blocks in [1, 2, 3, 40, 256] {
            let data = pattern(blocks, blocks as usize * BLOCK_BYTES);
            assert_eq!(queue.write(7, &data), 0, "{blocks} blocks");
            assert!(queue.read(7, blocks as u32) == data, "{blocks} blocks");
        }
        assert_eq!(volatile(), 256);
        let blocks = (1 + 2 + 3 + 40 + 256) * BLOCK_BYTES as u64;
        let counters = &served.counters;
        assert_eq!((counters.writes.get(), counters.bytes_written.get()), (5, blocks));
        assert_eq!((counters.reads.get(), counters.bytes_read.get(), counters.errors.get()), (5, blocks, 0));
        assert_eq!(queue.flush(), 0);
        assert_eq!(volatile(), 0);
        let data = pattern(9, BLOCK_BYTES);
        let durable = entry(0x01, 1, [9, 0, FUA]);
        assert_eq!(queue.run(&durable, Payload::ToController(data.clone())).0, 0);
        assert_eq!(volatile(), 0, "FUA is durable when it is answered");

        let compare = entry(0x05, 1, [9, 0, 0]);
        assert_eq!(queue.run(&compare, Payload::ToController(data.clone())).0, 0);
        let mut other = data.clone();
        other[4095] ^= 1;
        assert_eq!(queue.run(&compare, Payload::ToController(other)).0, status::COMPARE_FAILURE);

        assert_eq!(queue.run(&copy(400, 2), Payload::ToController(sources(&[(9, 1), (8, 2)]))).0, 0);
        assert!(queue.read(400, 1) == data && queue.read(401, 2) == queue.read(8, 2));
        assert_eq!(queue.status(&entry(0x08, 1, [8, 0, FUA])), 0);
        assert_eq!(queue.read(8, 1), vec![0; BLOCK_BYTES]);
        assert_eq!(volatile(), 3, "of the copy alone");
        assert_eq!(queue.status(&entry(0x00, u32::MAX, [0; 3])), 0);
        assert_eq!(volatile(), 0, "a flush of all namespaces");

        let deallocate = entry(0x09, 1, [1, DEALLOCATE, 0]);
        let page = ranges(&[(400, 1), (401, 2)]);
        assert_eq!(queue.run(&deallocate, Payload::ToController(page.clone())).0, 0);
        assert_eq!(queue.read(400, 3), vec![0; 3 * BLOCK_BYTES]);
        assert_eq!(queue.run(&deallocate, Payload::ToController(page[..32].to_vec())).0, 0);
        assert_eq!(queue.run(&entry(0x09, 1, [1, 0, 0]), Payload::ToController(page)).0, 0, "a hint");

        assert_eq!(queue.status(&entry(0x0c, 1, [0, 0, 499])), 0);
        assert_eq!(queue.status(&entry(0x0c, 1, [0, 0, 500])), status::UNRECOVERED_READ);
        let read = entry(0x02, 1, [499, 0, 1]);
        assert_eq!(queue.run(&read, Payload::ToHost(vec![0; 8192])).0, status::UNRECOVERED_READ);
        drop((queue, host));
        served.end();
    }
}

/// What the newest entry of the error log says: status code and block.
fn newest_error(host: &mut Host) -> (u16, u64) {
    // Get Log Page, Error Information, one entry of 64 bytes.
    let log_page = entry(0x02, u32::MAX, [15 << 16 | 1, 0, 0]);
    host.admin.submit(0, &log_page, Payload::ToHost(vec![0; 64]));
    let ended = host.admin.wait().unwrap();
    assert_eq!(ended.status(), 0);
    let word = |at: usize| u16::from_le_bytes([ended.data[at], ended.data[at + 1]]);
    (word(12) >> 1 & 0x7ff, u64::from_le_bytes(*ended.data[16..].first_chunk().unwrap()))
}

#[test]
fn uncorrectable_blocks_are_errors_to_every_command_that_reads_and_cured_by_those_that_write() {
    let served = Served::new(Memory::new(BLOCKS, 1024, SHUFFLED));
    let mut host = served.host();
    let mut queue = host.queue(1);
    let volatile = || served.switches.volatile.load(Ordering::SeqCst);
    let data = pattern(1, 256 * BLOCK_BYTES);
    assert_eq!((queue.write(0, &data), queue.write(256, &data), queue.flush()), (0, 0, 0));
    // Longer than a transfer, and so than the frames that one command may hold.
    let (first, blocks) = (100, 300);
    assert_eq!(queue.status(&entry(0x04, 1, [first, 0, blocks - 1])), 0);
    assert_eq!(volatile(), 300, "it is a write that a flush makes durable");
    assert_eq!(queue.flush(), 0);

    let read = |first: u32, blocks: u32| entry(0x02, 1, [first, 0, blocks - 1]);
    let room = |blocks: usize| Payload::ToHost(vec![0; blocks * BLOCK_BYTES]);
    let block = || Payload::ToController(vec![1; BLOCK_BYTES]);
    for (what, entry, payload, named) in [
        ("read", read(100, 1), room(1), 100),
        ("read of more", read(90, 20), room(20), 100),
        ("read of the last", read(399, 2), room(2), 399),
        ("compare", entry(0x05, 1, [250, 0, 0]), block(), 250),
        ("verify", entry(0x0c, 1, [0, 0, 511]), Payload::None, 100),
        ("copy from", copy(0, 2), Payload::ToController(sources(&[(20, 1), (300, 2)])), 300),
    ] {
        assert_eq!(queue.run(&entry, payload).0, status::UNRECOVERED_READ, "{what}");
        assert_eq!(newest_error(&mut host), (status::UNRECOVERED_READ, named), "{what}");
    }
    assert!(queue.read(98, 2) == data[98 * BLOCK_BYTES..][..2 * BLOCK_BYTES]);
    assert!(queue.read(400, 1) == data[144 * BLOCK_BYTES..][..BLOCK_BYTES]);
    assert!(queue.read(0, 1) == data[..BLOCK_BYTES], "nothing of a copy is there that could not be read whole");

    assert_eq!(queue.write(100, &data[..2 * BLOCK_BYTES]), 0);
    assert_eq!(queue.status(&entry(0x08, 1, [102, 0, 1])), 0);
    let trim = entry(0x09, 1, [0, DEALLOCATE, 0]);
    assert_eq!(queue.run(&trim, Payload::ToController(ranges(&[(104, 2)]))).0, 0);
    assert_eq!(queue.run(&copy(106, 1), Payload::ToController(sources(&[(0, 2)]))).0, 0);
    let cured = [&data[..2 * BLOCK_BYTES], &[0; 4 * BLOCK_BYTES], &data[..2 * BLOCK_BYTES]].concat();
    assert!(queue.read(100, 8) == cured);
    assert_eq!(queue.run(&read(100, 9), room(9)).0, status::UNRECOVERED_READ);
    assert_eq!(newest_error(&mut host), (status::UNRECOVERED_READ, 108));
    drop((queue, host));
    served.end();
}

#[test]
fn a_part_of_an_uncorrectable_block_is_not_written_and_comes_not_back() {
    let wishes = Wishes { format: BlockFormat::Bytes512, ..Wishes::default() };
    let served = Served::with(Memory::new(BLOCKS, 1024, SHUFFLED), wishes);
    let mut host = served.host();
    let mut queue = host.queue(1);
    let command = |opcode: u8, first: u32, blocks: u32| entry(opcode, 1, [first, 0, blocks - 1]);
    let data = |blocks: usize| Payload::ToController(pattern(3, blocks * 512));
    assert_eq!(queue.run(&command(0x01, 0, 32), data(32)).0, 0);
    for (first, blocks) in [(9, 8), (8, 7), (8, 1), (12, 8)] {
        assert_eq!(queue.status(&command(0x04, first, blocks)), status::INVALID_FIELD, "{first}+{blocks}");
    }
    assert_eq!(queue.status(&command(0x04, 8, 16)), 0);
    let unrecovered = |host: &mut Host, block| assert_eq!(newest_error(host), (status::UNRECOVERED_READ, block));
    let room = |blocks: usize| Payload::ToHost(vec![0; blocks * 512]);
    for (first, blocks, named) in [(8, 1, 8), (11, 2, 11), (0, 9, 8), (23, 4, 23)] {
        assert_eq!(queue.run(&command(0x02, first, blocks), room(blocks as usize)).0, status::UNRECOVERED_READ);
        unrecovered(&mut host, named);
    }
    // The rest of the block would have to come from somewhere.
    for (opcode, first, blocks, named) in [(0x01, 10, 1, 10), (0x01, 4, 5, 8), (0x08, 20, 2, 20)] {
        let payload = if opcode == 0x01 { data(blocks as usize) } else { Payload::None };
        assert_eq!(queue.run(&command(opcode, first, blocks), payload).0, status::UNRECOVERED_READ);
        unrecovered(&mut host, named);
        assert_eq!(queue.run(&command(0x02, 8, 1), room(1)).0, status::UNRECOVERED_READ);
    }
    assert_eq!(queue.run(&command(0x01, 7, 10), data(10)).0, status::UNRECOVERED_READ, "up to within the second");
    assert_eq!(queue.run(&command(0x01, 7, 9), data(9)).0, 0, "all of the first, and a part of a good one");
    let (read, there) = queue.run(&command(0x02, 7, 9), room(9));
    assert!(read == 0 && there == pattern(3, 9 * 512));
    drop((queue, host));
    served.end();
}

#[test]
fn data_are_not_copied_but_for_short_writes_once_and_the_ends_of_long_ones() {
    const WRITES: u64 = 8;
    // What comes with the header of a long write, and what is left at its end when no more is worth a system call.
    const ENDS_MAX: u64 = (16 + 32) << 10;
    let served = Served::new(Memory::new(BLOCKS, 1024, SHUFFLED));
    let host = served.host();
    let mut queue = host.queue(1);
    let before = served.counters.bytes_copied.get();
    let copied = || served.counters.bytes_copied.get() - before;
    for _ in 0..WRITES {
        assert_eq!(queue.write(5, &pattern(1, BLOCK_BYTES)), 0);
    }
    assert_eq!(copied(), WRITES * BLOCK_BYTES as u64);
    let long = pattern(2, 256 * BLOCK_BYTES);
    for _ in 0..WRITES {
        assert_eq!(queue.write(7, &long), 0);
    }
    let of_long = copied() - WRITES * BLOCK_BYTES as u64;
    assert!(of_long <= WRITES * ENDS_MAX, "{of_long} bytes of {} were copied", WRITES * long.len() as u64);
    assert!(queue.read(7, 256) == long && queue.read(5, 1) == pattern(1, BLOCK_BYTES));
    assert_eq!(copied() - WRITES * BLOCK_BYTES as u64, of_long, "reads leave from their frames");
    drop((queue, host));
    served.end();
}

#[test]
fn long_writes_under_way_together_all_arrive() {
    let served = Served::new(Memory::new(BLOCKS, 1024, SHUFFLED));
    let host = served.host();
    for digests in [false, true] {
        let config = InitiatorConfig { header_digest: digests, data_digest: digests, ..InitiatorConfig::default() };
        let mut queue = host.queue_as(1 + u16::from(digests), config);
        for round in 0..8 {
            // Behind each other: short ones, some that are just long enough to go straight to their frames, and long ones.
            let lengths = [8, 9, 64, 1, 32, 33, 100, 2, 16, 128];
            let firsts = lengths.iter().scan(0, |next, blocks| Some(std::mem::replace(next, *next + blocks)));
            let writes: Vec<_> = firsts
                .zip(lengths)
                .map(|(first, blocks)| (first, pattern(round + first, blocks as usize * BLOCK_BYTES)))
                .collect();
            for (first, data) in &writes {
                queue.client.submit(*first, &write(*first as u32, data), Payload::ToController(data.clone()));
            }
            for _ in &writes {
                assert_eq!(queue.client.wait().expect("the server answers").status(), 0);
            }
            for (first, data) in &writes {
                assert!(
                    queue.read(*first as u32, (data.len() / BLOCK_BYTES) as u32) == *data,
                    "{first} of round {round}"
                );
            }
        }
    }
    drop(host);
    served.end();
}

#[test]
fn what_cannot_be_done_is_answered_with_its_status_and_the_queue_goes_on() {
    let served = Served::new(Memory::new(BLOCKS, 1024, SHUFFLED));
    let host = served.host();
    let mut queue = host.queue(1);
    let last = BLOCKS as u32 - 1;
    let block = || Payload::ToController(vec![1; BLOCK_BYTES]);
    let room = |blocks: usize| Payload::ToHost(vec![0; blocks * BLOCK_BYTES]);
    let deallocate = entry(0x09, 1, [1, DEALLOCATE, 0]);
    for (entry, payload, wanted) in [
        (entry(0x02, 1, [last, 0, 1]), room(2), status::LBA_OUT_OF_RANGE),
        (entry(0x02, 1, [0, 1, 0]), room(1), status::LBA_OUT_OF_RANGE),
        (entry(0x01, 1, [last + 1, 0, 0]), block(), status::LBA_OUT_OF_RANGE),
        (entry(0x08, 1, [last, 0, 1]), Payload::None, status::LBA_OUT_OF_RANGE),
        (entry(0x04, 1, [last, 0, 1]), Payload::None, status::LBA_OUT_OF_RANGE),
        (deallocate, Payload::ToController(ranges(&[(0, 1), (last.into(), 2)])), status::LBA_OUT_OF_RANGE),
        (copy(last, 1), Payload::ToController(sources(&[(0, 2)])), status::LBA_OUT_OF_RANGE),
        (copy(0, 2), Payload::ToController(sources(&[(0, 256), (0, 1)])), status::SIZE_EXCEEDED),
        (entry(0x02, 1, [0, 0, 256]), room(257), status::INVALID_FIELD),
        (entry(0x02, 1, [0, 0, 1]), room(1), status::SGL_LENGTH_INVALID),
        (entry(0x01, 1, [0, 0, 2]), block(), status::SGL_LENGTH_INVALID),
        (entry(0x02, 2, [0; 3]), room(1), status::INVALID_FIELD),
        (entry(0x02, 0, [0; 3]), room(1), status::INVALID_NAMESPACE),
        (entry(0x7a, 1, [0; 3]), room(1), status::INVALID_OPCODE),
        (entry(0x91, 1, [0; 3]), block(), status::INVALID_OPCODE),
    ] {
        assert_eq!(queue.run(&entry, payload).0, wanted, "{entry:x?}");
    }
    assert_eq!(queue.write(last, &[5; BLOCK_BYTES]), 0);
    served.switches.read_only.store(true, Ordering::SeqCst);
    assert_eq!(queue.write(last, &[6; BLOCK_BYTES]) & 0xff, 0x82, "read only");
    assert_eq!(queue.status(&entry(0x04, 1, [last, 0, 0])) & 0xff, 0x82, "read only");
    assert_eq!(queue.read(last, 1), [5; BLOCK_BYTES]);
    assert_eq!(served.end().data()[..4096], [0; 4096], "nothing of what was refused is there");
}

#[test]
fn data_beyond_those_of_a_command_are_passed_over() {
    let served = Served::new(Memory::new(BLOCKS, 1024, SHUFFLED));
    let host = served.host();
    let mut queue = host.queue(1);
    // Two blocks in the capsule of a write of one, three on request, and a comparison.
    for (blocks, seed) in [(2, 1), (3, 2)] {
        let data = pattern(seed, blocks * BLOCK_BYTES);
        let write = entry(0x01, 1, [4, 0, 0]);
        assert_eq!(queue.run(&write, Payload::ToController(data.clone())).0, 0);
        assert!(queue.read(4, 2) == [&data[..BLOCK_BYTES], &[0; BLOCK_BYTES]].concat());
        assert_eq!(queue.run(&entry(0x05, 1, [4, 0, 0]), Payload::ToController(data)).0, 0);
    }
    served.end();
}

#[test]
fn a_flush_of_all_namespaces_reaches_drives_and_devices() {
    let device = EmulatedDevice::new(Profile::builtin("tiny").unwrap(), 1, Store::Ram, Timing::Instant, 1).unwrap();
    let served = Served::with(Memory::new(BLOCKS, 256, SHUFFLED), Wishes { device: Some(device), ..Wishes::default() });
    let host = served.host();
    let mut queue = host.queue(1);
    for round in 1..=3 {
        assert_eq!(queue.write(0, &[round; BLOCK_BYTES]), 0);
        assert_eq!(queue.status(&entry(0x00, u32::MAX, [0; 3])), 0);
        assert_eq!(served.switches.volatile.load(Ordering::SeqCst), 0);
        assert_eq!(served.switches.flushes.load(Ordering::SeqCst), round.into());
        assert_eq!(queue.status(&entry(0x00, 2, [0; 3])), 0, "the device alone");
    }
    served.end();
}

#[test]
fn data_in_the_capsule_of_a_command_that_has_none_are_passed_over() {
    let device = EmulatedDevice::new(Profile::builtin("tiny").unwrap(), 1, Store::Ram, Timing::Instant, 1).unwrap();
    let served = Served::with(Memory::new(BLOCKS, 256, SHUFFLED), Wishes { device: Some(device), ..Wishes::default() });
    let host = served.host();
    let mut queue = host.queue(1);
    // A vector copy of one block, which needs no list: its data could go either way.
    for bytes in [4, 512, 8192] {
        let (status, _) = queue.run(&entry(0x93, 2, [0; 3]), Payload::ToController(vec![1; bytes]));
        assert_ne!(status, 0, "there is nothing to copy");
        assert_eq!(queue.status(&entry(0x00, 2, [0; 3])), 0);
    }
    served.end();
}

#[test]
fn blocks_of_512_bytes_share_those_of_the_drive() {
    let wishes = Wishes { format: BlockFormat::Bytes512, ..Wishes::default() };
    let served = Served::with(Memory::new(BLOCKS, 1024, SHUFFLED), wishes);
    let host = served.host();
    let mut queue = host.queue(1);
    let mut model = vec![0; 20 * 512];
    for (round, (first, blocks)) in [(3, 1), (5, 9), (0, 2), (13, 7), (1, 18)].into_iter().enumerate() {
        let data = pattern(round as u64, blocks * 512);
        model[first * 512..][..data.len()].copy_from_slice(&data);
        let write = entry(0x01, 1, [first as u32, 0, blocks as u32 - 1]);
        assert_eq!(queue.run(&write, Payload::ToController(data)).0, 0);
        let (status, read) = queue.run(&entry(0x02, 1, [0, 0, 19]), Payload::ToHost(vec![0; model.len()]));
        assert!(status == 0 && read == model, "round {round}");
    }
    served.end();
}

#[test]
fn many_commands_under_way_agree_with_a_vector() {
    for seed in 0..3 {
        let temper = Temper::Shuffled { seed, within: Nanos::from_micros(300) };
        // A pool so small that most of the time somebody waits for frames.
        let served = Served::new(Memory::new(BLOCKS, 64, temper));
        let host = served.host();
        let parts: Vec<_> = (0..3_u64)
            .map(|number| {
                let digests = number == 1;
                let config = InitiatorConfig {
                    header_digest: digests,
                    data_digest: digests,
                    entries: 64,
                    ..InitiatorConfig::default()
                };
                let queue = host.queue_as(number as u16 + 1, config);
                // Each queue has every third block.
                std::thread::spawn(move || agree(queue, number, seed))
            })
            .collect();
        let models: Vec<_> = parts.into_iter().map(|thread| thread.join().unwrap()).collect();
        drop(host);
        let drive = served.end();
        for (block, bytes) in drive.data().chunks_exact(BLOCK_BYTES).enumerate() {
            assert!(bytes == models[block % 3][block / 3], "seed {seed}, block {block}");
        }
    }
}

/// Rounds of commands on every third block, all of a round under way together.
fn agree(mut queue: Queue, number: u64, seed: u64) -> Vec<Vec<u8>> {
    let mut chance = Xoshiro256PlusPlus::seed_from_u64(seed * 10 + number);
    let mut model = vec![vec![0; BLOCK_BYTES]; BLOCKS / 3 + 1];
    for round in 0..30 {
        let mut wanted = HashMap::new();
        while queue.client.has_room() {
            let index = chance.next_u64() % (BLOCKS as u64 / 3);
            if wanted.contains_key(&index) {
                continue;
            }
            let (block, old) = ((index * 3 + number) as u32, &mut model[index as usize]);
            let room = || Payload::ToHost(vec![0; BLOCK_BYTES]);
            let (entry, payload, status) = match chance.next_u64() % 6 {
                0 | 1 => {
                    *old = pattern(chance.next_u64(), BLOCK_BYTES);
                    (entry(0x01, 1, [block, 0, 0]), Payload::ToController(old.clone()), 0)
                }
                2 => {
                    old.fill(0);
                    (entry(0x08, 1, [block, 0, 0]), Payload::None, 0)
                }
                3 => (entry(0x05, 1, [block, 0, 0]), Payload::ToController(old.clone()), 0),
                4 => {
                    let other = vec![0x55; BLOCK_BYTES];
                    (entry(0x05, 1, [block, 0, 0]), Payload::ToController(other), status::COMPARE_FAILURE)
                }
                _ => (entry(0x02, 1, [block, 0, 0]), room(), 0),
            };
            let data = matches!(payload, Payload::ToHost(_)).then(|| old.clone());
            wanted.insert(index, (status, data));
            queue.client.submit(index, &entry, payload);
        }
        while !wanted.is_empty() {
            let ended = queue.client.wait().expect("the server answers");
            let (status, data) = wanted.remove(&ended.tag).expect("each command is answered once");
            assert_eq!(ended.status() & 0x7ff, status, "seed {seed}, queue {number}, round {round}");
            assert!(ended.intact && data.is_none_or(|data| data == ended.data), "seed {seed}, queue {number}");
        }
    }
    model
}

#[test]
fn queues_are_made_within_their_limits() {
    let served = Served::new(Memory::new(BLOCKS, 1024, SHUFFLED));
    let mut host = served.host();
    assert_eq!(host.admin.set_number_of_queues(1000).unwrap(), 64);
    let refused = |host: &Host, id, entries| match host.try_queue(id, InitiatorConfig { entries, ..Default::default() })
    {
        Err(ClientError::Refused { status, .. }) => status & 0x7ff,
        Err(error) => panic!("{error}"),
        Ok(_) => 0,
    };
    let first = host.queue(1);
    assert_eq!(refused(&host, 1, 32), status::SEQUENCE_ERROR, "it is there");
    assert_eq!(refused(&host, 65, 32), status::CONNECT_INVALID_PARAMETERS);
    assert_eq!(refused(&host, 2, 1025), status::CONNECT_INVALID_PARAMETERS);
    assert_eq!(refused(&host, 64, 1024), 0);
    drop(first);
    // A queue that is gone can be made again, as soon as the server has seen that it is gone.
    while served.counters.connections.get() > 1 {
        std::thread::yield_now();
    }
    let mut again = host.queue(1);
    assert_eq!(again.flush(), 0);
    // A controller that is not there, and a queue before its controller is ready.
    host.controller += 1;
    assert_eq!(refused(&host, 2, 32), status::CONNECT_INVALID_PARAMETERS);
    let (admin, controller) = served.admin_of(HOST, SUBSYSTEM, 0).unwrap();
    host.controller = controller;
    assert_eq!(refused(&host, 1, 32), status::SEQUENCE_ERROR);
    drop((admin, again));
    served.end();
}

#[test]
fn a_host_with_more_commands_under_way_than_its_queue_holds_is_ended() {
    let served = Served::new(Memory::new(BLOCKS, 1024, SHUFFLED));
    served.switches.held.store(true, Ordering::SeqCst);
    let host = served.host();
    let mut queue = host.queue_as(1, InitiatorConfig { entries: 4, ..InitiatorConfig::default() });
    // Flushes as a host says them that thinks its queue larger; they stay under way.
    let mut out = Vec::new();
    for id in 0..5 {
        out.extend_from_slice(&capsule(id, 0x00));
    }
    queue.raw.write_all(&out).unwrap();
    let said = until_closed(&mut queue.raw);
    assert_eq!((said[0], said.len() > 24), (0x03, true), "C2HTermReq");
    served.switches.held.store(false, Ordering::SeqCst);
    served.stop.wake();
    assert_eq!(host.queue(1).flush(), 0);
    served.end();
}

/// A command capsule without data.
fn capsule(id: u16, opcode: u8) -> [u8; 72] {
    let mut capsule = [0; 72];
    (capsule[0], capsule[2], capsule[4]) = (0x04, 72, 72);
    (capsule[8], capsule[9], capsule[12]) = (opcode, 0x40, 1);
    capsule[10..12].copy_from_slice(&id.to_le_bytes());
    capsule
}

#[test]
fn a_command_id_that_is_under_way_is_refused_and_its_owner_goes_on() {
    let served = Served::new(Memory::new(BLOCKS, 1024, SHUFFLED));
    served.switches.held.store(true, Ordering::SeqCst);
    let host = served.host();
    let mut queue = host.queue(1);
    queue.raw.write_all(&[capsule(9, 0x00), capsule(9, 0x00)].concat()).unwrap();
    let mut response = [0; 24];
    queue.raw.read_exact(&mut response).unwrap();
    assert_eq!(u16::from_le_bytes([response[22], response[23]]) >> 1 & 0x7ff, status::ID_CONFLICT);
    served.switches.held.store(false, Ordering::SeqCst);
    served.stop.wake();
    queue.raw.read_exact(&mut response).unwrap();
    assert_eq!(response[22..], [0; 2]);
    served.end();
}

/// SPDK's hosts name the property commands of their shutdown like event requests that are still held.
#[test]
fn a_host_shuts_down_with_the_names_of_its_event_requests() {
    const NAME: u16 = 500;
    let served = Served::new(Memory::new(BLOCKS, 1024, SHUFFLED));
    let mut host = served.host();
    let property = |kind: u8, offset: u8, value: u32| {
        let mut property = capsule(NAME, 0x7f);
        (property[12], property[52]) = (kind, offset);
        property[56..60].copy_from_slice(&value.to_le_bytes());
        property
    };
    let stream = host.admin.stream_mut();
    let response = |stream: &mut TcpStream| {
        let mut response = [0; 24];
        stream.read_exact(&mut response).unwrap();
        assert_eq!(response[20..22], NAME.to_le_bytes());
        let status = u16::from_le_bytes([response[22], response[23]]) >> 1 & 0x7ff;
        (status, u32::from_le_bytes(response[8..12].try_into().unwrap()))
    };
    let (get, set, csts, configuration) = (0x04, 0x00, 0x1c, 0x14);
    // The event request, and a command that is not of fabrics.
    stream.write_all(&[capsule(NAME, 0x0c), capsule(NAME, 0x18), property(get, csts, 0)].concat()).unwrap();
    assert_eq!(response(stream).0, status::ID_CONFLICT, "keep alive");
    assert_eq!(response(stream), (0, 1), "ready");
    let normal_shutdown = 1 << 14 | 6 << 16 | 4 << 20 | 1;
    stream.write_all(&property(set, configuration, normal_shutdown)).unwrap();
    assert_eq!(response(stream).0, 0);
    assert_eq!(response(stream).0, status::ABORT_REQUESTED, "the event request ends behind the command that ends it");
    for turn in 0.. {
        assert!(turn < 1_000_000, "the shutdown completes");
        stream.write_all(&property(get, csts, 0)).unwrap();
        if response(stream) == (0, 0b10 << 2 | 1) {
            break;
        }
    }
    served.end();
}

/// Half of a fused pair: `half` is FUSE.
fn half(of: [u8; 64], half: u8) -> [u8; 64] {
    let mut entry = of;
    entry[1] |= half;
    entry
}

/// The statuses of commands that are submitted together, in the order of their tags.
fn together(queue: &mut Queue, commands: &[([u8; 64], &[u8])]) -> Vec<u16> {
    for (tag, (entry, data)) in commands.iter().enumerate() {
        let payload = if data.is_empty() { Payload::None } else { Payload::ToController(data.to_vec()) };
        queue.client.submit(tag as u64, entry, payload);
    }
    let mut statuses = vec![0; commands.len()];
    for _ in commands {
        let ended = queue.client.wait().unwrap();
        statuses[ended.tag as usize] = ended.status() & 0x7ff;
    }
    statuses
}

/// Small pairs come in capsules, large ones are asked for.
#[test]
fn compare_and_write_is_one_command_in_two_halves() {
    let served = Served::new(Memory::new(BLOCKS, 1024, SHUFFLED));
    let host = served.host();
    let mut queue = host.queue(1);
    for blocks in [1, 2, 100] {
        let (old, new) = (pattern(blocks as u64, blocks * BLOCK_BYTES), pattern(99, blocks * BLOCK_BYTES));
        assert_eq!(queue.write(7, &old), 0);
        let compare = |with: u8| half(entry(0x05, 1, [7, 0, blocks as u32 - 1]), with);
        let written = half(write(7, &new), 2);
        let flush = || (entry(0x00, 1, [0; 3]), &[][..]);
        let mut run = |commands: &[([u8; 64], &[u8])]| together(&mut queue, commands);

        assert_eq!(run(&[(compare(1), &new), (written, &new)]), [status::COMPARE_FAILURE, status::FAILED_FUSED]);
        assert_eq!(run(&[(written, &new)]), [status::MISSING_FUSED], "no first half");
        assert_eq!(
            run(&[(compare(1), &old), flush(), (written, &new)]),
            [status::MISSING_FUSED, 0, status::MISSING_FUSED]
        );
        let elsewhere = half(entry(0x01, 1, [8, 0, blocks as u32 - 1]), 2);
        assert_eq!(run(&[(compare(1), &old), (elsewhere, &new)]), [status::INVALID_FIELD, status::FAILED_FUSED]);
        let beyond = half(entry(0x05, 1, [1 << 20, 0, blocks as u32 - 1]), 1);
        assert_eq!(run(&[(beyond, &old), (written, &new)]), [status::LBA_OUT_OF_RANGE, status::FAILED_FUSED]);
        let read = half(entry(0x02, 1, [7, 0, 0]), 2);
        assert_eq!(run(&[(compare(1), &old), (read, &[])]), [status::FAILED_FUSED, status::INVALID_FIELD]);
        assert!(queue.read(7, blocks as u32) == old, "nothing was written so far");

        let mut run = |commands: &[([u8; 64], &[u8])]| together(&mut queue, commands);
        assert_eq!(run(&[(compare(1), &old), (written, &new), (compare(0), &new)]).first_chunk::<2>(), Some(&[0, 0]));
        assert!(queue.read(7, blocks as u32) == new);
    }
    served.end();
}

/// Several hosts take a lock in turn: each sees the lock free or somebody's, and no two have it.
#[test]
fn a_lock_that_hosts_take_by_compare_and_write_has_one_owner() {
    let served = Served::new(Memory::new(BLOCKS, 1024, SHUFFLED));
    let host = served.host();
    let mut queues: Vec<Queue> = (1..9).map(|id| host.queue(id)).collect();
    let free = vec![0; BLOCK_BYTES];
    for round in 0..20 {
        assert_eq!(queues[0].write(3, &free), 0);
        for (name, queue) in (1..).zip(&mut queues) {
            let mine = vec![name; BLOCK_BYTES];
            queue.client.submit(0, &half(entry(0x05, 1, [3, 0, 0]), 1), Payload::ToController(free.clone()));
            queue.client.submit(1, &half(write(3, &mine), 2), Payload::ToController(mine));
        }
        let mut owners = Vec::new();
        for (name, queue) in (1_u8..).zip(&mut queues) {
            let statuses = [(); 2].map(|()| queue.client.wait().unwrap().status() & 0x7ff);
            match statuses {
                [0, 0] => owners.push(name),
                lost => assert_eq!(lost, [status::COMPARE_FAILURE, status::FAILED_FUSED]),
            }
        }
        assert_eq!(owners.len(), 1, "round {round}: {owners:?}");
        assert!(queues[0].read(3, 1) == vec![owners[0]; BLOCK_BYTES]);
    }
    served.end();
}

#[test]
fn discovery_tells_each_host_what_it_may_connect_to_and_others_are_refused() {
    let hosts = HostsAllowed::Listed(vec![Nqn::new(HOST).unwrap()]);
    let served = Served::with(Memory::new(BLOCKS, 1024, SHUFFLED), Wishes { hosts, ..Wishes::default() });
    let log = |host: &str| {
        let (mut admin, _) = served.admin_of(host, DISCOVERY, 0).unwrap();
        admin.start_controller(|| false).unwrap();
        let page = entry(0x02, 0, [(2048 / 4 - 1) << 16 | 0x70, 0, 0]);
        admin.call("Get Log Page", &page, Payload::ToHost(vec![0; 2048])).unwrap().data
    };
    let mine = log(HOST);
    assert_eq!(mine[8..16], 1_u64.to_le_bytes(), "one record");
    let record = &mine[1024..];
    assert!(record[256..].starts_with(SUBSYSTEM.as_bytes()), "its name");
    assert!(record[32..].starts_with(served.address.port().to_string().as_bytes()), "its port");
    assert!(record[512..].starts_with(b"127.0.0.1 "));
    let other = "nqn.2026-11.org.example:other";
    assert_eq!(log(other)[8..16], [0; 8], "nothing for others");
    match served.admin_of(other, SUBSYSTEM, 0) {
        Err(ClientError::Refused { status, .. }) => assert_eq!(status & 0x7ff, status::CONNECT_INVALID_HOST),
        _ => panic!("another host was let in"),
    }
    assert_eq!(served.host().queue(1).flush(), 0);
    served.end();
}

#[test]
fn a_host_that_falls_silent_loses_its_controller_and_its_queues() {
    let clock = TestClock::default();
    let served = Served::with(Memory::new(BLOCKS, 1024, Temper::Instant), Wishes::at(clock.clone()));
    let mut silent = served.host_that_keeps_alive(5_000);
    let mut queue = silent.queue(1);
    let mut talking = served.host();
    // Any command counts: the first interval is one with commands, the second one without.
    for _ in 0..2 {
        clock.0.fetch_add(Nanos::from_millis(5_000).0, Ordering::SeqCst);
        served.stop.wake();
        talking.admin.keep_alive().unwrap();
    }
    assert_eq!(until_closed(&mut queue.raw), b"");
    assert!(silent.admin.keep_alive().is_err());
    talking.admin.keep_alive().unwrap();
    served.end();
}

#[test]
fn a_reset_closes_the_queues_and_what_was_under_way_ends_without_them() {
    let served = Served::new(Memory::new(BLOCKS, 64, SHUFFLED));
    let mut host = served.host();
    let mut queue = host.queue(1);
    served.switches.held.store(true, Ordering::SeqCst);
    // Running, waiting for data, and waiting for frames.
    for tag in 0..20 {
        queue.client.submit(tag, &entry(0x02, 1, [tag as u32, 0, 3]), Payload::ToHost(vec![0; 4 * BLOCK_BYTES]));
    }
    let data = vec![1; 5 * BLOCK_BYTES];
    queue.client.submit(20, &write(0, &data), Payload::ToController(data));
    let set = |host: &mut Host, value| {
        let entry = property_set(PropertyName::Cc, value);
        host.admin.call("Property Set", &entry, Payload::None).unwrap();
    };
    let mut closed = std::thread::spawn(move || queue.client.wait().is_err());
    // Its first completion can only be that of the reset, for the drive is held.
    set(&mut host, CC_READY & !1);
    assert!(std::mem::replace(&mut closed, std::thread::spawn(|| false)).join().unwrap());
    served.switches.held.store(false, Ordering::SeqCst);
    served.stop.wake();
    set(&mut host, CC_READY);
    host.admin.set_number_of_queues(64).unwrap();
    let mut queue = host.queue(1);
    assert_eq!(queue.write(100, &[3; 4 * BLOCK_BYTES]), 0);
    served.end();
}

#[test]
fn event_requests_are_held_within_their_limit_until_they_are_aborted() {
    let served = Served::new(Memory::new(BLOCKS, 64, SHUFFLED));
    let mut host = served.host();
    // Four may be held, and a fifth is refused.
    for tag in 0..5 {
        host.admin.submit(tag, &entry(0x0c, 0, [0; 3]), Payload::None);
    }
    let refused = host.admin.wait().unwrap();
    assert_eq!((refused.tag, refused.status() & 0x7ff), (4, status::EVENT_LIMIT_EXCEEDED));
    let id = 0; // The first identifier that the client gives out is not known; all are tried.
    let mut aborted = 0;
    for command in id..32_u32 {
        host.admin.submit(100, &entry(0x08, 0, [command << 16, 0, 0]), Payload::None);
        loop {
            let ended = host.admin.wait().unwrap();
            if ended.tag == 100 {
                break;
            }
            assert_eq!(ended.status() & 0x7ff, 0x007, "Command Abort Requested");
            aborted += 1;
        }
    }
    while host.admin.commands_under_way() > 0 {
        host.admin.wait().unwrap();
        aborted += 1;
    }
    assert_eq!(aborted, 4);
    served.end();
}

/// What a host sends for a write: its capsule, the data of its capsule, or those of the R2T that it is answered with.
fn say_write(queue: &mut Queue, first: u32, data: &[u8], bytes: usize) {
    let mut capsule = [0; 72];
    let in_capsule = data.len() <= 8192;
    let length = 72 + if in_capsule { data.len() as u32 } else { 0 };
    (capsule[0], capsule[2], capsule[3]) = (0x04, 72, if in_capsule { 72 } else { 0 });
    capsule[4..8].copy_from_slice(&length.to_le_bytes());
    capsule[8..].copy_from_slice(&write(first, data));
    (capsule[9], capsule[10]) = (0x40, 77);
    capsule[40..44].copy_from_slice(&(data.len() as u32).to_le_bytes());
    capsule[47] = if in_capsule { 0x01 } else { 0x5a };
    if in_capsule {
        let said = [&capsule, data].concat();
        queue.raw.write_all(&said[..bytes.min(said.len())]).unwrap();
        return;
    }
    queue.raw.write_all(&capsule[..bytes.min(72)]).unwrap();
    if bytes < 72 {
        return;
    }
    let mut r2t = [0; 24];
    queue.raw.read_exact(&mut r2t).unwrap();
    assert_eq!(r2t[0], 0x09, "R2T");
    let mut header = [0; 24];
    (header[0], header[1], header[2], header[3]) = (0x06, 0x04, 24, 24);
    header[4..8].copy_from_slice(&(24 + data.len() as u32).to_le_bytes());
    header[8..12].copy_from_slice(&r2t[8..12]);
    header[16..20].copy_from_slice(&(data.len() as u32).to_le_bytes());
    let said = [&header, data].concat();
    queue.raw.write_all(&said[..(bytes - 72).min(said.len())]).unwrap();
}

#[test]
fn a_write_cut_off_at_any_byte_never_happened_and_gives_its_frames_back() {
    // The clock stands still, so nobody is expelled for being late: that the host is gone is seen from its socket.
    let served = Served::with(Memory::new(BLOCKS, 64, Temper::Instant), Wishes::at(TestClock::default()));
    let host = served.host();
    let mut other = host.queue(1);
    let (small, large) = (2 * BLOCK_BYTES, 30 * BLOCK_BYTES);
    let cuts =
        |whole: usize| [1, 8, 40, 71, 72, 73, 90, 96, 97, 5000, whole - 1].into_iter().filter(move |cut| *cut < whole);
    let cuts = cuts(72 + small).map(|cut| (small, cut)).chain(cuts(72 + 24 + large).map(|cut| (large, cut)));
    for (round, (bytes, cut)) in cuts.enumerate() {
        for how in [None, Some(Shutdown::Write)] {
            let mut rude = host.queue(2);
            say_write(&mut rude, 100, &vec![9; bytes], cut);
            match how {
                Some(how) => {
                    rude.raw.shutdown(how).unwrap();
                    until_closed(&mut rude.raw);
                }
                None => drop(rude),
            }
            while served.counters.connections.get() > 2 {
                std::thread::yield_now();
            }
            // Almost the whole pool, which the server must have back for it.
            let data = pattern(round as u64, 62 * BLOCK_BYTES);
            assert_eq!(other.write(0, &data), 0, "{bytes} bytes, cut at {cut}");
        }
    }
    assert_eq!(other.read(100, 30), vec![0; large]);
    served.end();
}

#[test]
fn a_long_write_whose_data_come_apart_from_their_header_is_not_the_last() {
    const LENGTH: usize = 16 * BLOCK_BYTES;
    let served = Served::new(Memory::new(BLOCKS, 64, Temper::Instant));
    let host = served.host();
    let (mut queue, mut other) = (host.queue(1), host.queue(2));
    for round in 0..3 {
        let data = pattern(round, LENGTH);
        say_write(&mut queue, 100, &data, 72 + 24);
        // Answered after the server has looked at the header, so all the data go straight to their frames.
        assert_eq!(other.flush(), 0);
        queue.raw.write_all(&data).unwrap();
        assert_eq!(response(&mut queue), (77, 0));
        assert!(other.read(100, 16) == data);
    }
    drop((queue, other, host));
    served.end();
}

#[test]
fn a_host_that_takes_no_answers_holds_no_more_than_its_share() {
    // A pool of which everybody's share is an eighth, and a clock that stands still: nobody is expelled.
    let served = Served::with(Memory::new(BLOCKS, 128, Temper::Instant), Wishes::at(TestClock::default()));
    let host = served.host();
    let mut flood = host.queue_as(1, InitiatorConfig { entries: 1024, ..InitiatorConfig::default() });
    let mut said = Vec::new();
    for id in 0..1000 {
        let mut capsule = capsule(id, 0x02);
        capsule[8 + 48..8 + 52].copy_from_slice(&15_u32.to_le_bytes());
        capsule[8 + 32..8 + 36].copy_from_slice(&(16 * BLOCK_BYTES as u32).to_le_bytes());
        capsule[8 + 39] = 0x5a;
        said.extend_from_slice(&capsule);
    }
    flood.raw.write_all(&said).unwrap();
    let mut other = host.queue(2);
    for round in 0..50 {
        let data = pattern(round, 100 * BLOCK_BYTES);
        assert_eq!(other.write(0, &data), 0);
        assert!(other.read(0, 100) == data);
    }
    drop(flood);
    served.end();
}

#[test]
fn a_host_that_never_takes_an_answer_is_not_listened_to_for_ever() {
    let served = Served::new(Memory::new(BLOCKS, 128, Temper::Instant));
    let host = served.host();
    let mut other = host.queue(2);
    let flood = host.queue_as(1, InitiatorConfig { entries: 1024, ..InitiatorConfig::default() });
    // Commands that are answered with a status each. Some have to stay unsent, or the server keeps all their answers.
    flood.raw.set_nonblocking(true).unwrap();
    let mut sent = 0;
    let unsupported = capsule(1, 0x03);
    loop {
        match (&flood.raw).write(&unsupported) {
            Ok(bytes) => sent += bytes,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                // As full as it gets: after a round trip of another the server has had its turn, and it is still full.
                assert_eq!(other.flush(), 0);
                if (&flood.raw).write(&unsupported).is_err() {
                    break;
                }
            }
            Err(error) => panic!("{error}"),
        }
        assert!(sent < 64 << 20, "{sent} bytes of commands were taken, and no answer was");
    }
    drop(flood);
    assert_eq!(other.flush(), 0);
    served.end();
}

#[test]
fn garbage_ends_its_own_connection_and_no_other() {
    let served = Served::new(Memory::new(BLOCKS, 128, SHUFFLED));
    let host = served.host();
    let mut decent = host.queue(1);
    let mut early = served.connect();
    early.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    until_closed(&mut early);
    let mut late = host.queue(2);
    late.raw.write_all(&[0xff; 100]).unwrap();
    assert_eq!(until_closed(&mut late.raw)[0], 0x03, "C2HTermReq");
    // A command before Connect.
    let mut bytes = Vec::new();
    let _ = Initiator::new(InitiatorConfig::default(), &mut bytes);
    let mut impatient = served.connect();
    impatient.write_all(&[&bytes[..], &capsule(1, 0x02)].concat()).unwrap();
    assert_eq!(until_closed(&mut impatient).len(), 128 + 24, "ICResp and a refusal");
    assert_eq!(decent.write(0, &[1; BLOCK_BYTES]), 0);
    assert_eq!(decent.read(0, 1), [1; BLOCK_BYTES]);
    served.end();
}

#[test]
fn half_open_handshakes_end_in_time_however_busy_they_look() {
    let clock = TestClock::default();
    let served = Served::with(Memory::new(BLOCKS, 128, Temper::Instant), Wishes::at(clock.clone()));
    let mut greeting = Vec::new();
    let _ = Initiator::new(InitiatorConfig::default(), &mut greeting);
    let host = served.host();
    let (mut silent, mut slow, mut without_connect) = (served.connect(), served.connect(), served.connect());
    without_connect.write_all(&greeting).unwrap();
    assert_eq!(host.queue(2).flush(), 0, "a later connection is served, so these are accepted");
    let mut other = host.queue(1);
    // A byte in each second, as long as a handshake may take.
    for byte in &greeting[..10] {
        slow.write_all(&[*byte]).unwrap();
        clock.0.fetch_add(Nanos::from_millis(1_000).0, Ordering::SeqCst);
        served.stop.wake();
        assert_eq!(other.flush(), 0);
    }
    for stream in [&mut silent, &mut slow] {
        assert_eq!(until_closed(stream), b"");
    }
    assert_eq!(until_closed(&mut without_connect).len(), 128, "ICResp");
    served.end();
}

#[test]
fn one_connection_too_many_is_turned_away() {
    let config = ServerConfig { connections_max: 2, ..ServerConfig::default() };
    let served = Served::with(Memory::new(BLOCKS, 128, SHUFFLED), Wishes { config, ..Wishes::default() });
    let host = served.host();
    let mut queue = host.queue(1);
    assert_eq!(until_closed(&mut served.connect()), b"");
    assert_eq!(queue.flush(), 0);
    served.end();
}

/// A write in its capsule with a data digest, which is wrong.
fn say_damaged_write(queue: &mut Queue, id: u8) {
    let mut capsule = [0; 72];
    (capsule[0], capsule[1], capsule[2], capsule[3]) = (0x04, 0x02, 72, 72);
    capsule[4..8].copy_from_slice(&(72 + 4096 + 4_u32).to_le_bytes());
    capsule[8..].copy_from_slice(&entry(0x01, 1, [50, 0, 0]));
    (capsule[9], capsule[10]) = (0x40, id);
    capsule[40..44].copy_from_slice(&4096_u32.to_le_bytes());
    capsule[47] = 0x01;
    queue.raw.write_all(&[&capsule[..], &[9; 4096], &[0; 4]].concat()).unwrap();
}

fn response(queue: &mut Queue) -> (u16, u16) {
    let mut response = [0; 24];
    queue.raw.read_exact(&mut response).unwrap();
    assert_eq!(response[0], 0x05, "CapsuleResp");
    let word = |at| u16::from_le_bytes([response[at], response[at + 1]]);
    (word(20), word(22) >> 1 & 0x7ff)
}

#[test]
fn damaged_data_are_a_transient_error_of_their_command() {
    let served = Served::new(Memory::new(BLOCKS, 128, SHUFFLED));
    let host = served.host();
    let mut queue = host.queue_as(1, InitiatorConfig { data_digest: true, ..InitiatorConfig::default() });
    say_damaged_write(&mut queue, 5);
    assert_eq!(response(&mut queue), (5, status::TRANSIENT_TRANSPORT_ERROR));
    assert_eq!(queue.write(51, &[1; BLOCK_BYTES]), 0);
    assert_eq!(queue.read(50, 1), [0; BLOCK_BYTES]);
    served.end();
}

#[test]
fn a_damaged_write_that_waits_for_frames_leaves_the_line() {
    let served = Served::new(Memory::new(BLOCKS, 16, SHUFFLED));
    let host = served.host();
    let config = InitiatorConfig { data_digest: true, ..InitiatorConfig::default() };
    let (mut queue, mut other) = (host.queue_as(1, config), host.queue(2));
    served.switches.held.store(true, Ordering::SeqCst);
    // All frames are taken by a read that the drive holds.
    other.client.submit(1, &entry(0x02, 1, [0, 0, 15]), Payload::ToHost(vec![0; 16 * BLOCK_BYTES]));
    let mut third = host.queue(3);
    let held = std::thread::spawn(move || other.client.wait().map(|ended| (ended.status(), other)).unwrap());
    while served.switches.submitted.load(Ordering::SeqCst) == 0 {
        std::thread::yield_now();
    }
    say_damaged_write(&mut queue, 5);
    assert_eq!(response(&mut queue), (5, status::TRANSIENT_TRANSPORT_ERROR));
    served.switches.held.store(false, Ordering::SeqCst);
    served.stop.wake();
    let (status, mut other) = held.join().unwrap();
    assert_eq!(status, 0);
    assert_eq!(third.write(0, &[1; BLOCK_BYTES]), 0);
    assert_eq!(other.read(0, 1), [1; BLOCK_BYTES]);
    served.end();
}

#[test]
fn copies_and_comparisons_keep_a_bounded_heap() {
    let mut drive = Memory::new(BLOCKS, 1024, SHUFFLED);
    drive.lost_block = Some(300);
    let served = Served::new(drive);
    let host = served.host();
    let mut queue = host.queue_as(1, InitiatorConfig { entries: 64, ..InitiatorConfig::default() });
    // A copy that fails when it has read a part, while a comparison's data are there: the books stay right.
    for round in 0..20 {
        let list = sources(&[(0, 100), (300, 1)]);
        queue.client.submit(1, &copy(0, 2), Payload::ToController(list));
        queue.client.submit(2, &entry(0x05, 1, [0, 0, 9]), Payload::ToController(vec![0; 10 * BLOCK_BYTES]));
        for _ in 0..2 {
            let ended = queue.client.wait().unwrap();
            let wanted = if ended.tag == 1 { status::UNRECOVERED_READ } else { 0 };
            assert_eq!(ended.status() & 0x7ff, wanted, "round {round}");
        }
    }
    // Of many copies of a MiB at once, those that find no room are to be sent again.
    served.switches.held.store(true, Ordering::SeqCst);
    for tag in 0..40 {
        queue.client.submit(tag, &copy(256, 1), Payload::ToController(sources(&[(0, 256)])));
    }
    for _ in 0..37 {
        assert_eq!(queue.client.wait().unwrap().status(), status::NAMESPACE_NOT_READY);
    }
    served.switches.held.store(false, Ordering::SeqCst);
    served.stop.wake();
    for _ in 0..3 {
        assert_eq!(queue.client.wait().unwrap().status(), 0);
    }
    served.end();
}

#[test]
fn what_all_connections_keep_in_the_heap_is_bounded_too() {
    let config = ServerConfig { heap_bytes_max: 5 << 20, ..ServerConfig::default() };
    let wishes = Wishes { config, ..Wishes::default() };
    let served = Served::with(Memory::new(BLOCKS, 4096, SHUFFLED), wishes);
    let host = served.host();
    let (mut greedy, mut other) = (host.queue(1), host.queue(2));
    let copies = |queue: &mut Queue| {
        for tag in 0..3 {
            queue.client.submit(tag, &copy(256, 1), Payload::ToController(sources(&[(0, 256)])));
        }
    };
    served.switches.held.store(true, Ordering::SeqCst);
    copies(&mut greedy);
    let mut third = host.queue(3);
    // The answer to a command behind them proves that they were heard.
    greedy.client.submit(9, &entry(0x03, 1, [0; 3]), Payload::None);
    assert_eq!(greedy.client.wait().unwrap().status() & 0x7ff, status::INVALID_OPCODE);
    copies(&mut other);
    for _ in 0..2 {
        assert_eq!(other.client.wait().unwrap().status(), status::NAMESPACE_NOT_READY);
    }
    // What a connection held comes back when it is gone.
    let before = served.counters.connections.get();
    drop(greedy);
    served.switches.held.store(false, Ordering::SeqCst);
    served.stop.wake();
    assert_eq!(other.client.wait().unwrap().status(), 0);
    while served.counters.connections.get() == before {
        std::thread::yield_now();
    }
    for queue in [&mut other, &mut third] {
        copies(queue);
        for _ in 0..3 {
            assert_eq!(queue.client.wait().unwrap().status(), 0);
        }
    }
    served.end();
}

#[test]
fn a_shutdown_is_complete_when_the_drive_is_flushed() {
    let served = Served::new(Memory::new(BLOCKS, 1024, SHUFFLED));
    let mut host = served.host();
    let mut queue = host.queue(1);
    assert_eq!(queue.write(0, &[1; 8 * BLOCK_BYTES]), 0);
    assert_eq!(served.switches.volatile.load(Ordering::SeqCst), 8);
    served.switches.held.store(true, Ordering::SeqCst);
    let shutdown = property_set(PropertyName::Cc, CC_READY | CC_SHUTDOWN);
    host.admin.call("Property Set", &shutdown, Payload::None).unwrap();
    for _ in 0..5 {
        assert_eq!(host.admin.property(PropertyName::Csts).unwrap() >> 2 & 0b11, 0b01, "under way");
    }
    served.switches.held.store(false, Ordering::SeqCst);
    served.stop.wake();
    while host.admin.property(PropertyName::Csts).unwrap() >> 2 & 0b11 != 0b10 {}
    assert_eq!(served.switches.volatile.load(Ordering::SeqCst), 0);
    served.end();
}

#[test]
fn a_stop_finishes_what_is_under_way_flushes_and_waits_for_no_one() {
    let served = Served::with(Memory::new(BLOCKS, 1024, SHUFFLED), Wishes::at(WallClock::new()));
    let host = served.host();
    let (mut queue, mut halfway, mut third) = (host.queue(1), host.queue(2), host.queue(3));
    served.switches.held.store(true, Ordering::SeqCst);
    let data = vec![3; 2 * BLOCK_BYTES];
    queue.raw.write_all(&[]).unwrap();
    say_write(&mut queue, 0, &data, usize::MAX);
    // A write of which half has come, and one that nobody has heard the data of.
    say_write(&mut halfway, 100, &vec![9; 20 * BLOCK_BYTES], 30_000);
    assert_eq!(third.status(&entry(0x03, 1, [0; 3])), status::INVALID_OPCODE, "so both have been heard");
    served.stop.request();
    served.switches.held.store(false, Ordering::SeqCst);
    served.stop.wake();
    assert_eq!(response(&mut queue), (77, 0));
    assert_eq!(until_closed(&mut queue.raw), b"");
    until_closed(&mut halfway.raw);
    let switches = Arc::clone(&served.switches);
    let drive = served.end();
    assert_eq!(drive.data()[..data.len()], data);
    assert!(drive.data()[100 * BLOCK_BYTES..].iter().all(|byte| *byte == 0));
    assert_eq!((switches.volatile.load(Ordering::SeqCst), switches.flushes.load(Ordering::SeqCst)), (0, 1));
}

#[test]
fn data_that_come_slowly_go_on_in_memory_while_others_use_their_frames() {
    let clock = TestClock::default();
    let served = Served::with(Memory::new(256, 512, Temper::Instant), Wishes::at(clock.clone()));
    let (slow_host, other_host) = (served.host(), served.host());
    let (mut slow, mut other) = (slow_host.queue(1), other_host.queue(1));
    let data: Vec<u8> = (0..1_u32 << 20).map(|at| (at % 251) as u8).collect();
    // A write of 256 blocks, whose data come on request: half of the pool.
    let mut capsule = vec![4, 0, 72, 0, 72, 0, 0, 0];
    capsule.extend_from_slice(&write(0, &data));
    capsule[8 + 1] = 0x40;
    capsule[8 + 32..8 + 36].copy_from_slice(&(1_u32 << 20).to_le_bytes());
    capsule[8 + 39] = 0x5a;
    slow.raw.write_all(&capsule).unwrap();
    let mut r2t = [0; 24];
    slow.raw.read_exact(&mut r2t).unwrap();
    assert_eq!(r2t[0], 9, "R2T");
    let mut head = vec![6, 4, 24, 24];
    head.extend_from_slice(&(24 + (1_u32 << 20)).to_le_bytes());
    head.extend_from_slice(&r2t[8..12]);
    head.extend_from_slice(&[0; 4]);
    head.extend_from_slice(&(1_u32 << 20).to_le_bytes());
    head.extend_from_slice(&[0; 4]);
    slow.raw.write_all(&[&head, &data[..300_001]].concat()).unwrap();
    other.client.submit(5, &write(0, &vec![7; data.len()]), Payload::ToController(vec![7; data.len()]));
    let mut third = other_host.queue(2);
    assert_eq!(third.read(0, 1), [0; BLOCK_BYTES], "a small request waits for neither");
    clock.0.fetch_add(60_000_000, Ordering::SeqCst);
    served.stop.wake();
    assert_eq!(other.client.wait().unwrap().status(), 0);
    let moved = served.counters.bytes_moved_aside.get();
    assert!(0 < moved && moved <= 300_001, "{moved} bytes were moved");
    slow.raw.write_all(&data[300_001..]).unwrap();
    let mut completion = [0; 24];
    slow.raw.read_exact(&mut completion).unwrap();
    assert_eq!((completion[0], &completion[22..24]), (5, &[0, 0][..]), "a capsule with success");
    assert!(third.read(0, 256) == data);
    assert!(served.counters.bytes_kept.get() < 100, "the header of a reply at most");
    drop((slow, other, third, slow_host, other_host));
    served.end();
}
