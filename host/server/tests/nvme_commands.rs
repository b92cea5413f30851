//! What commands of NVMe hosts do over real sockets, and what of theirs is refused, on a drive that is late and out of order.

use std::collections::HashMap;
use std::sync::atomic::Ordering;

use crate::memory::{Memory, Temper};
use crate::nvme::{Host, Queue, Served, Wishes, entry, status, write};
use openftl_core::{BLOCK_BYTES, Nanos};
use openftl_media::{EmulatedDevice, Profile, Store, Timing};
use openftl_nvme::BlockFormat;
use openftl_nvme_tcp::InitiatorConfig;
use openftl_nvme_tcp::client::Payload;
use openftl_server::ServerConfig;
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

pub(crate) const BLOCKS: usize = 512;

pub(crate) const SHUFFLED: Temper = Temper::Shuffled { seed: 1, within: Nanos::from_micros(200) };

pub(crate) fn pattern(seed: u64, bytes: usize) -> Vec<u8> {
    let mut chance = Xoshiro256PlusPlus::seed_from_u64(seed);
    (0..bytes).map(|_| chance.next_u32() as u8).collect()
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
        assert_eq!(queue.run(&entry(0x09, 1, [1, 0, 0]), Payload::ToController(page.clone())).0, 0, "a hint");
        let mut frequent = page;
        frequent[0] = 5;
        frequent[8..16].fill(0xFF);
        let hint = Payload::ToController(frequent);
        assert_eq!(queue.run(&entry(0x09, 1, [1, 0, 0]), hint).0, 0, "one of blocks that are not there");

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

/// A command capsule without data.
pub(crate) fn capsule(id: u16, opcode: u8) -> [u8; 72] {
    let mut capsule = [0; 72];
    (capsule[0], capsule[2], capsule[4]) = (0x04, 72, 72);
    (capsule[8], capsule[9], capsule[12]) = (opcode, 0x40, 1);
    capsule[10..12].copy_from_slice(&id.to_le_bytes());
    capsule
}

/// Half of a fused pair: `half` is FUSE.
pub(crate) fn half(of: [u8; 64], half: u8) -> [u8; 64] {
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
