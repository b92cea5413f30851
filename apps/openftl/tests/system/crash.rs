//! `kill -9` and power cuts at any moment, against a model: what was flushed is there, and no write is there by half.
//!
//! Each block that the test writes carries its own number and the number of the write. After the crash every block must
//! hold the last flushed write to it or a later one; and if one block of a write is there, then each of its blocks holds
//! that write or a later one. Hosts are of NBD and of NVMe, whose blocks may be parts of those of the drive.

use crate::client::{Client, FLAG_FUA};
use crate::drive::{CAPACITY_BYTES, Drive};
use crate::nvme_host::NvmeHost;
use crate::pattern::{next, random_bytes};
use crate::server::Server;
use std::collections::VecDeque;

/// What the test writes to; little, so that writes overlap.
const AREA_BYTES: u64 = 16 << 20;
/// Bytes that are read at a time.
const READ_BYTES: usize = 1 << 20;
/// Writes under way at a time.
const DEPTH: usize = 16;

/// How a host cuts the drive in blocks, and how many of them a write may have to be there whole or not at all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Shape {
    block_bytes: usize,
    write_blocks_max: u64,
}

/// Blocks of the drive, and its largest transaction.
const FOUR_KIB: Shape = Shape { block_bytes: 4096, write_blocks_max: 256 };
/// Where a write may begin and end inside a block of the drive: not more than a transaction wherever it begins.
const BYTES_512: Shape = Shape { block_bytes: 512, write_blocks_max: 2041 };

/// Who writes, and has several writes under way.
trait Host {
    /// Sends a write without waiting for its end.
    fn send_write(&mut self, number: u64, offset: u64, bytes: Vec<u8>, is_durable: bool);

    /// Waits until a write has ended, which succeeds: its number.
    fn receive(&mut self) -> u64;

    /// Flushes, with nothing else under way.
    fn flush(&mut self);

    /// Reads, with nothing else under way.
    fn read(&mut self, offset: u64, bytes: usize) -> Vec<u8>;

    /// Asserts that the server closes the connection.
    fn ends_disconnected(self: Box<Self>);
}

struct NbdHost {
    client: Client,
    /// Cookies and numbers of the writes under way.
    under_way: Vec<(u64, u64)>,
}

impl Host for NbdHost {
    fn send_write(&mut self, number: u64, offset: u64, bytes: Vec<u8>, is_durable: bool) {
        let flags = if is_durable { FLAG_FUA } else { 0 };
        let cookie = self.client.send_write(offset, &bytes, flags).expect("the server reads");
        self.under_way.push((cookie, number));
    }

    fn receive(&mut self) -> u64 {
        let (cookie, result) = self.client.receive().expect("the server replies");
        result.expect("a write succeeds");
        let index =
            self.under_way.iter().position(|(other, _)| *other == cookie).expect("a reply to a write under way");
        self.under_way.swap_remove(index).1
    }

    fn flush(&mut self) {
        self.client.flush().expect("a flush succeeds");
    }

    fn read(&mut self, offset: u64, bytes: usize) -> Vec<u8> {
        self.client.read(offset, bytes).expect("every block can be read")
    }

    fn ends_disconnected(self: Box<Self>) {
        self.client.ends_disconnected();
    }
}

impl Host for NvmeHost {
    fn send_write(&mut self, number: u64, offset: u64, bytes: Vec<u8>, is_durable: bool) {
        NvmeHost::send_write(self, number, offset, bytes, is_durable);
    }

    fn receive(&mut self) -> u64 {
        let (number, status) = NvmeHost::receive(self).expect("the server answers");
        assert_eq!(status, 0, "write {number} succeeds");
        number
    }

    fn flush(&mut self) {
        NvmeHost::flush(self);
    }

    fn read(&mut self, offset: u64, bytes: usize) -> Vec<u8> {
        NvmeHost::read(self, offset, bytes)
    }

    fn ends_disconnected(self: Box<Self>) {
        NvmeHost::ends_disconnected(*self);
    }
}

/// How a host reaches the server.
type Connect = fn(&Server) -> Box<dyn Host>;

fn nbd(server: &Server) -> Box<dyn Host> {
    let client = server.client();
    assert_eq!(client.size, CAPACITY_BYTES);
    Box::new(NbdHost { client, under_way: Vec::new() })
}

fn nvme(server: &Server) -> Box<dyn Host> {
    nvme_of(server, FOUR_KIB)
}

fn nvme_512(server: &Server) -> Box<dyn Host> {
    nvme_of(server, BYTES_512)
}

fn nvme_of(server: &Server, expected: Shape) -> Box<dyn Host> {
    let host = NvmeHost::connect(&server.nvme_address());
    // What is said of the namespace is what is held against it.
    let said = Shape { block_bytes: host.block_bytes, write_blocks_max: host.atomic_blocks };
    assert_eq!(said, expected);
    Box::new(host)
}

/// One write of the test, in blocks. Its number is its index plus one; 0 stands for never written.
#[derive(Clone, Copy, Debug)]
struct Write {
    first: u64,
    blocks: u64,
}

/// Every write sent so far, and what is promised of them.
struct Model {
    shape: Shape,
    seed: u64,
    random: u64,
    writes: Vec<Write>,
    /// For each block the least write number that it may hold.
    promised: Vec<u64>,
}

impl Model {
    fn new(shape: Shape, seed: u64) -> Model {
        let blocks = AREA_BYTES as usize / shape.block_bytes;
        Model { shape, seed, random: seed, writes: Vec::new(), promised: vec![0; blocks] }
    }

    fn next_write(&mut self) -> (u64, Write) {
        let choice = next(&mut self.random);
        let blocks = match choice % 8 {
            0 => self.shape.write_blocks_max,
            1 => 1 + (choice >> 8) % self.shape.write_blocks_max,
            _ => 1 + (choice >> 8) % 16,
        };
        let write = Write { first: (choice >> 32) % (self.promised.len() as u64 - blocks), blocks };
        self.writes.push(write);
        (self.writes.len() as u64, write)
    }

    fn offset(&self, write: Write) -> u64 {
        write.first * self.shape.block_bytes as u64
    }

    fn bytes(&self, number: u64, write: Write) -> Vec<u8> {
        let blocks: Vec<Vec<u8>> =
            (write.first..write.first + write.blocks).map(|block| self.block(number, block)).collect();
        blocks.concat()
    }

    /// What block `block` holds after write `number`.
    fn block(&self, number: u64, block: u64) -> Vec<u8> {
        let mut bytes = random_bytes(self.seed ^ (number << 32) ^ block, self.shape.block_bytes);
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
    fn verify(&mut self, mut host: Box<dyn Host>) {
        let mut found = Vec::with_capacity(self.promised.len());
        for offset in (0..AREA_BYTES).step_by(READ_BYTES) {
            let bytes = host.read(offset, READ_BYTES);
            for bytes in bytes.chunks(self.shape.block_bytes) {
                let block = found.len() as u64;
                let number = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"));
                let is_written = number > 0;
                let written = if is_written { self.block(number, block) } else { vec![0; self.shape.block_bytes] };
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
fn load(model: &mut Model, host: &mut dyn Host, writes: usize) {
    let mut under_way = VecDeque::new();
    let mut acknowledged = Vec::new();
    for _ in 0..writes {
        while under_way.len() >= DEPTH {
            receive(host, &mut under_way, &mut acknowledged);
        }
        let (number, write) = model.next_write();
        // Overlapping writes under way at a time have no order; the model wants one.
        let apart = |other: &u64| {
            let other = model.writes[*other as usize - 1];
            other.first + other.blocks <= write.first || write.first + write.blocks <= other.first
        };
        while !under_way.iter().all(|(other, _)| apart(other)) {
            receive(host, &mut under_way, &mut acknowledged);
        }
        let durable = next(&mut model.random).is_multiple_of(16);
        host.send_write(number, model.offset(write), model.bytes(number, write), durable);
        under_way.push_back((number, durable));
        if next(&mut model.random).is_multiple_of(32) {
            while !under_way.is_empty() {
                receive(host, &mut under_way, &mut acknowledged);
            }
            host.flush();
            model.promise(acknowledged.drain(..).map(|(number, _)| number));
        }
    }
    model.promise(acknowledged.into_iter().filter(|(_, durable)| *durable).map(|(number, _)| number));
}

/// Takes one reply and moves its write from those under way to those acknowledged.
fn receive(host: &mut dyn Host, under_way: &mut VecDeque<(u64, bool)>, acknowledged: &mut Vec<(u64, bool)>) {
    let number = host.receive();
    let index = under_way.iter().position(|(other, _)| *other == number).expect("a reply to a write under way");
    acknowledged.extend(under_way.remove(index));
}

fn crash_again_and_again(shape: Shape, connect: Connect, seed: u64, flags: &[&str]) {
    let drive = Drive::create();
    let mut model = Model::new(shape, seed);
    let mut server: Server = drive.serve_with(flags);
    for life in 0..6 {
        let mut host = connect(&server);
        load(&mut model, &mut *host, 150 + 40 * life);
        server.kill();
        server = drive.serve_with(flags);
        model.verify(connect(&server));
    }
    server.stop();
    drive.check();
    let server = drive.serve_with(flags);
    model.verify(connect(&server));
    server.kill();
    drive.check();
}

/// The server lives on; the drive loses its power at moments that follow from the seed.
fn cut_again_and_again(shape: Shape, connect: Connect, seed: u64, drive: &Drive, flags: &[&str]) {
    let mut model = Model::new(shape, seed);
    let server = drive.serve_with(flags);
    for life in 0..8 {
        let mut host = connect(&server);
        load(&mut model, &mut *host, 100 + 40 * life);
        drive.ctl(&["power-cut", "--seed", &(1000 * seed + life as u64).to_string()]).succeeded();
        host.ends_disconnected();
        drive.ctl(&["power-on"]).succeeded();
        model.verify(connect(&server));
    }
    server.stop();
    drive.check();
    let server = drive.serve_with(flags);
    model.verify(connect(&server));
    server.stop();
}

#[test]
fn no_power_cut_loses_a_flushed_write_or_leaves_a_half_one() {
    cut_again_and_again(FOUR_KIB, nbd, 31, &Drive::create(), &["--timing", "instant"]);
}

#[test]
fn no_power_cut_of_a_volatile_cache_loses_a_flushed_write_or_leaves_a_half_one() {
    cut_again_and_again(FOUR_KIB, nbd, 41, &Drive::create_volatile(), &["--timing", "wall-clock"]);
}

/// As many blocks as the namespace calls atomic (AWUPF), from any block on.
#[test]
fn no_power_cut_leaves_half_of_a_write_of_an_nvme_host() {
    let nvme_tcp = ["--timing", "wall-clock", "--nvme-tcp", "127.0.0.1:0"];
    cut_again_and_again(FOUR_KIB, nvme, 51, &Drive::create_volatile(), &nvme_tcp);
    let small_blocks = [&nvme_tcp[..], &["--nvme-format", "512"]].concat();
    cut_again_and_again(BYTES_512, nvme_512, 52, &Drive::create_volatile(), &small_blocks);
}

#[test]
fn no_crash_leaves_half_of_a_write_of_an_nvme_host() {
    let nvme_tcp = ["--timing", "instant", "--nvme-tcp", "127.0.0.1:0"];
    crash_again_and_again(FOUR_KIB, nvme, 61, &nvme_tcp);
    let small_blocks = [&nvme_tcp[..], &["--nvme-format", "512"]].concat();
    crash_again_and_again(BYTES_512, nvme_512, 62, &small_blocks);
}

#[test]
fn no_crash_loses_a_flushed_write_or_leaves_a_half_one() {
    for seed in 1..3 {
        crash_again_and_again(FOUR_KIB, nbd, seed, &["--timing", "instant"]);
    }
}

#[test]
fn no_crash_in_wall_clock_time_loses_a_flushed_write_or_leaves_a_half_one() {
    crash_again_and_again(FOUR_KIB, nbd, 11, &["--timing", "wall-clock"]);
}

#[test]
fn with_write_through_every_acknowledged_write_survives_a_crash() {
    let drive = Drive::create();
    let flags = ["--timing", "instant", "--write-through"];
    let mut model = Model::new(FOUR_KIB, 21);
    for _ in 0..3 {
        let server = drive.serve_with(&flags);
        let mut client = server.client();
        for _ in 0..100 {
            let (number, write) = model.next_write();
            client.write(model.offset(write), &model.bytes(number, write)).expect("a write succeeds");
            model.promise(std::iter::once(number));
        }
        server.kill();
    }
    let server = drive.serve();
    model.verify(nbd(&server));
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
