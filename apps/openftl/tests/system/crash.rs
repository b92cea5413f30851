//! `kill -9` and power cuts at any moment, against a model: what was flushed is there, and no write is there by half.
//!
//! Each block that the test writes carries its own number and the number of the write. After the crash every block must
//! hold the last flushed write to it or a later one; and if one block of a write is there, then each of its blocks holds
//! that write or a later one.

use crate::client::{Client, FLAG_FUA};
use crate::drive::{CAPACITY_BYTES, Drive};
use crate::pattern::{next, random_bytes};
use crate::server::Server;
use std::collections::VecDeque;

const BLOCK_BYTES: usize = 4096;
/// The blocks that the test writes to; few, so that writes overlap.
const BLOCKS: u64 = 4096;
/// Blocks of the largest write: 1 MiB, the largest transaction.
const WRITE_BLOCKS_MAX: u64 = 256;
/// Writes under way at a time.
const DEPTH: usize = 16;

/// One write of the test. Its number is its index plus one; 0 stands for never written.
#[derive(Clone, Copy, Debug)]
struct Write {
    first: u64,
    blocks: u64,
}

/// Every write sent so far, and what is promised of them.
struct Model {
    seed: u64,
    random: u64,
    writes: Vec<Write>,
    /// For each block the least write number that it may hold.
    promised: Vec<u64>,
}

impl Model {
    fn new(seed: u64) -> Model {
        Model { seed, random: seed, writes: Vec::new(), promised: vec![0; BLOCKS as usize] }
    }

    fn next_write(&mut self) -> (u64, Write) {
        let choice = next(&mut self.random);
        let blocks = match choice % 4 {
            0 => 1 + (choice >> 8) % WRITE_BLOCKS_MAX,
            _ => 1 + (choice >> 8) % 16,
        };
        let write = Write { first: (choice >> 32) % (BLOCKS - blocks), blocks };
        self.writes.push(write);
        (self.writes.len() as u64, write)
    }

    fn bytes(&self, number: u64, write: Write) -> Vec<u8> {
        let block = |block| self.block(number, block);
        (write.first..write.first + write.blocks).flat_map(block).collect()
    }

    /// What block `block` holds after write `number`.
    fn block(&self, number: u64, block: u64) -> Vec<u8> {
        let mut bytes = random_bytes(self.seed ^ (number << 32) ^ block, BLOCK_BYTES);
        bytes[..8].copy_from_slice(&number.to_le_bytes());
        bytes[8..16].copy_from_slice(&block.to_le_bytes());
        bytes
    }

    /// These writes were acknowledged and are durable.
    fn promise(&mut self, acknowledged: impl Iterator<Item = u64>) {
        for number in acknowledged {
            let write = self.writes[number as usize - 1];
            for block in write.first..write.first + write.blocks {
                let promised = &mut self.promised[block as usize];
                *promised = number.max(*promised);
            }
        }
    }

    /// Reads every block and holds it against what was promised.
    fn verify(&mut self, client: &mut Client) {
        let mut found = Vec::with_capacity(BLOCKS as usize);
        for first in (0..BLOCKS).step_by(256) {
            let bytes = client.read(first * BLOCK_BYTES as u64, 256 * BLOCK_BYTES).expect("every block can be read");
            for (bytes, block) in bytes.chunks(BLOCK_BYTES).zip(first..) {
                let number = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"));
                let written = if number == 0 { vec![0; BLOCK_BYTES] } else { self.block(number, block) };
                assert!(bytes == written, "seed {}: block {block} holds no write to it", self.seed);
                found.push(number);
            }
        }
        for (block, (found, promised)) in found.iter().zip(&self.promised).enumerate() {
            assert!(found >= promised, "seed {}: block {block} holds write {found}, flushed was {promised}", self.seed);
        }
        for (write, number) in self.writes.iter().zip(1_u64..) {
            let blocks = &found[write.first as usize..(write.first + write.blocks) as usize];
            let there = blocks.contains(&number);
            assert!(
                !there || blocks.iter().all(|found| *found >= number),
                "seed {}: half of write {number} ({write:?}) is there: {blocks:?}",
                self.seed
            );
        }
        // What was found once stays: no second recovery may go back behind the first.
        self.promised = found;
    }
}

/// Writes for a while and leaves writes under way when it returns.
fn load(model: &mut Model, client: &mut Client, writes: usize) {
    let mut under_way = VecDeque::new();
    let mut acknowledged = Vec::new();
    for _ in 0..writes {
        while under_way.len() >= DEPTH {
            receive(client, &mut under_way, &mut acknowledged);
        }
        let (number, write) = model.next_write();
        // Overlapping writes under way at a time have no order; the model wants one.
        let apart = |other: &u64| {
            let other = model.writes[*other as usize - 1];
            other.first + other.blocks <= write.first || write.first + write.blocks <= other.first
        };
        while !under_way.iter().all(|(_, other, _)| apart(other)) {
            receive(client, &mut under_way, &mut acknowledged);
        }
        let durable = next(&mut model.random).is_multiple_of(16);
        let flags = if durable { FLAG_FUA } else { 0 };
        let bytes = model.bytes(number, write);
        let cookie = client.send_write(write.first * BLOCK_BYTES as u64, &bytes, flags).expect("the server reads");
        under_way.push_back((cookie, number, durable));
        if next(&mut model.random).is_multiple_of(32) {
            while !under_way.is_empty() {
                receive(client, &mut under_way, &mut acknowledged);
            }
            client.flush().expect("a flush succeeds");
            model.promise(acknowledged.drain(..).map(|(number, _)| number));
        }
    }
    model.promise(acknowledged.into_iter().filter(|(_, durable)| *durable).map(|(number, _)| number));
}

/// Takes one reply and moves its write from those under way to those acknowledged.
fn receive(client: &mut Client, under_way: &mut VecDeque<(u64, u64, bool)>, acknowledged: &mut Vec<(u64, bool)>) {
    let (cookie, result) = client.receive().expect("the server replies");
    result.expect("a write succeeds");
    let index = under_way.iter().position(|(other, _, _)| *other == cookie).expect("a reply to a write under way");
    let (_, number, durable) = under_way.remove(index).expect("it was just found");
    acknowledged.push((number, durable));
}

fn crash_again_and_again(seed: u64, flags: &[&str]) {
    let drive = Drive::create();
    let mut model = Model::new(seed);
    let mut server: Server = drive.serve_with(flags);
    for life in 0..6 {
        let mut client = server.client();
        assert_eq!(client.size, CAPACITY_BYTES);
        load(&mut model, &mut client, 150 + 40 * life);
        server.kill();
        server = drive.serve_with(flags);
        model.verify(&mut server.client());
    }
    server.stop();
    drive.check();
    let server = drive.serve_with(flags);
    model.verify(&mut server.client());
    server.kill();
    drive.check();
}

/// The server lives on; the drive loses its power at moments that follow from the seed.
fn cut_again_and_again(seed: u64, drive: &Drive, flags: &[&str]) {
    let mut model = Model::new(seed);
    let server = drive.serve_with(flags);
    for life in 0..8 {
        let mut client = server.client();
        load(&mut model, &mut client, 100 + 40 * life);
        drive.ctl(&["power-cut", "--seed", &(1000 * seed + life as u64).to_string()]).succeeded();
        client.ends_disconnected();
        drive.ctl(&["power-on"]).succeeded();
        model.verify(&mut server.client());
    }
    server.stop();
    drive.check();
    let server = drive.serve_with(flags);
    model.verify(&mut server.client());
    server.stop();
}

#[test]
fn no_power_cut_loses_a_flushed_write_or_leaves_a_half_one() {
    for seed in 31..33 {
        cut_again_and_again(seed, &Drive::create(), &["--timing", "instant"]);
    }
}

#[test]
fn no_power_cut_of_a_volatile_cache_loses_a_flushed_write_or_leaves_a_half_one() {
    for seed in 41..43 {
        cut_again_and_again(seed, &Drive::create_volatile(), &["--timing", "wall-clock"]);
    }
}

#[test]
fn no_crash_loses_a_flushed_write_or_leaves_a_half_one() {
    for seed in 1..4 {
        crash_again_and_again(seed, &["--timing", "instant"]);
    }
}

#[test]
fn no_crash_in_wall_clock_time_loses_a_flushed_write_or_leaves_a_half_one() {
    crash_again_and_again(11, &["--timing", "wall-clock"]);
}

#[test]
fn with_write_through_every_acknowledged_write_survives_a_crash() {
    let drive = Drive::create();
    let flags = ["--timing", "instant", "--write-through"];
    let mut model = Model::new(21);
    for _ in 0..3 {
        let server = drive.serve_with(&flags);
        let mut client = server.client();
        for _ in 0..100 {
            let (number, write) = model.next_write();
            client.write(write.first * BLOCK_BYTES as u64, &model.bytes(number, write)).expect("a write succeeds");
            model.promise(std::iter::once(number));
        }
        server.kill();
    }
    let server = drive.serve();
    model.verify(&mut server.client());
    server.stop();
    drive.check();
}

#[test]
fn a_flush_on_one_connection_covers_what_was_acknowledged_on_another() {
    let drive = Drive::create();
    let server = drive.serve();
    let (mut writer, mut flusher) = (server.client(), server.client());
    let bytes = random_bytes(1, 64 << 10);
    writer.write(1 << 20, &bytes).unwrap();
    flusher.flush().unwrap();
    server.kill();
    let server = drive.serve();
    assert!(server.client().read(1 << 20, bytes.len()).unwrap() == bytes);
    server.stop();
}

#[test]
fn trimmed_blocks_stay_trimmed_across_a_crash() {
    let drive = Drive::create();
    let server = drive.serve();
    let mut client = server.client();
    client.write(0, &random_bytes(2, 1 << 20)).unwrap();
    client.flush().unwrap();
    client.trim(256 << 10, 512 << 10).unwrap();
    client.flush().unwrap();
    server.kill();
    let server = drive.serve();
    let found = server.client().read(0, 1 << 20).unwrap();
    assert!(found[..256 << 10] == random_bytes(2, 1 << 20)[..256 << 10]);
    assert!(found[256 << 10..768 << 10].iter().all(|byte| *byte == 0));
    assert!(found[768 << 10..] == random_bytes(2, 1 << 20)[768 << 10..]);
    server.stop();
    drive.check();
}
