//! A zoned namespace beside a block one, over real sockets.

use crate::memory::Memory;
use crate::nvme::{HOST, Host, Queue, Served, Wishes, entry, status, zoned_drive, zoned_drive_with};
use crate::nvme_commands::{BLOCKS, SHUFFLED, pattern};
use openftl_core::BLOCK_BYTES;
use openftl_media::EmulatedDevice;
use openftl_nvme::wire::zoned::ZoneDescriptor;
use openftl_nvme_tcp::InitiatorConfig;
use openftl_nvme_tcp::client::Payload;
use openftl_server::Recorder;
use openftl_zones::{ZoneFtl, ZoneState};
use std::sync::Arc;

/// The namespace id of the zoned drive.
const ZONED: u32 = 2;

mod zone_status {
    pub const INVALID_OPERATION: u16 = 0x1b6;
    pub const ZRWA_UNAVAILABLE: u16 = 0x1b7;
    pub const BOUNDARY: u16 = 0x1b8;
    pub const FULL: u16 = 0x1b9;
    pub const INVALID_WRITE: u16 = 0x1bc;
    pub const TOO_MANY_ACTIVE: u16 = 0x1bd;
    pub const TOO_MANY_OPEN: u16 = 0x1be;
    pub const INVALID_TRANSITION: u16 = 0x1bf;
}

struct Bench {
    served: Served,
    host: Host,
    queue: Queue,
    size: u64,
    capacity: u64,
    zones: u64,
}

fn bench() -> Bench {
    bench_of(zoned_drive())
}

fn bench_of(zoned: ZoneFtl<EmulatedDevice>) -> Bench {
    let layout = *zoned.layout();
    let wishes = Wishes { zoned: Some(zoned), ..Wishes::default() };
    let served = Served::with(Memory::new(BLOCKS, 1024, SHUFFLED), wishes);
    let host = served.host();
    let queue = host.queue_as(1, InitiatorConfig::default());
    Bench { served, host, queue, size: layout.size, capacity: layout.capacity.into(), zones: layout.zones.into() }
}

fn at(opcode: u8, first: u64, count: u32) -> [u8; 64] {
    entry(opcode, ZONED, [first as u32, (first >> 32) as u32, count - 1])
}

fn send(first: u64, dword: u32) -> [u8; 64] {
    let mut entry = at(0x79, first, 1);
    entry[52..56].copy_from_slice(&dword.to_le_bytes());
    entry
}

impl Bench {
    fn write(&mut self, first: u64, data: &[u8]) -> u16 {
        let blocks = (data.len() / BLOCK_BYTES) as u32;
        self.queue.run(&at(0x01, first, blocks), Payload::ToController(data.to_vec())).0
    }

    fn append(&mut self, zone: u64, data: &[u8]) -> (u16, u64) {
        let blocks = (data.len() / BLOCK_BYTES) as u32;
        self.queue.client.submit(0, &at(0x7d, zone, blocks), Payload::ToController(data.to_vec()));
        let ended = self.queue.client.wait().unwrap();
        (ended.status() & 0x7ff, ended.completion.specific.get())
    }

    fn read(&mut self, first: u64, blocks: u32) -> (u16, Vec<u8>) {
        self.queue.run(&at(0x02, first, blocks), Payload::ToHost(vec![0xee; blocks as usize * BLOCK_BYTES]))
    }

    fn act(&mut self, first: u64, dword: u32) -> u16 {
        self.queue.status(&send(first, dword))
    }

    fn states(&mut self) -> Vec<(ZoneState, u64)> {
        let bytes = 64 * (self.zones as usize + 1);
        let mut report = at(0x7a, 0, 1);
        report[48..52].copy_from_slice(&(bytes as u32 / 4 - 1).to_le_bytes());
        let (status, data) = self.queue.run(&report, Payload::ToHost(vec![0; bytes]));
        assert_eq!((status, u64::from_le_bytes(data[..8].try_into().unwrap())), (0, self.zones));
        let told =
            ZoneDescriptor::listed(&data).iter().map(|zone| (zone.zone_state().unwrap(), zone.write_pointer.get()));
        told.collect()
    }

    /// What an extended report says of each zone: its attributes, and its extension.
    fn extensions(&mut self, bytes: usize) -> Vec<(u8, Vec<u8>)> {
        let length = 64 + (64 + bytes) * self.zones as usize;
        let mut report = at(0x7a, 0, 1);
        report[48..52].copy_from_slice(&(length as u32 / 4 - 1).to_le_bytes());
        report[52] = 1;
        let (status, data) = self.queue.run(&report, Payload::ToHost(vec![0; length]));
        assert_eq!((status, u64::from_le_bytes(data[..8].try_into().unwrap())), (0, self.zones));
        data[64..].chunks(64 + bytes).map(|zone| (zone[2], zone[64..].to_vec())).collect()
    }

    fn end(self) {
        let Bench { served, host, queue, .. } = self;
        drop((queue, host));
        served.end();
    }
}

#[test]
fn a_descriptor_extension_comes_with_its_command_and_is_in_extended_reports() {
    let mut bench = bench_of(zoned_drive_with(128, 0));
    let (size, extension) = (bench.size, pattern(3, 128));
    let set = |bench: &mut Bench, zone: u64, bytes: &[u8]| {
        bench.queue.run(&send(zone * size, 0x10), Payload::ToController(bytes.to_vec())).0
    };
    assert_eq!(set(&mut bench, 1, &extension), 0);
    assert_eq!(bench.states()[1], (ZoneState::Closed, size));
    assert_eq!(set(&mut bench, 1, &extension), zone_status::INVALID_TRANSITION);
    assert_ne!(set(&mut bench, 0, &extension[..64]), 0, "all of it, or nothing");
    let found = bench.extensions(128);
    assert_eq!((found[1].0, &found[1].1), (0x80, &extension));
    let nothing = (0, vec![0; 128]);
    assert!(found.iter().enumerate().all(|(zone, found)| zone == 1 || *found == nothing));
    let data = pattern(1, BLOCK_BYTES);
    assert_eq!(bench.append(size, &data), (0, size));
    assert_eq!(bench.queue.status(&entry(0x00, ZONED, [0; 3])), 0);
    assert_eq!((set(&mut bench, 2, &extension), set(&mut bench, 3, &extension)), (0, 0));
    assert_eq!(set(&mut bench, 4, &extension), zone_status::TOO_MANY_ACTIVE);
    assert_eq!(bench.act(size, 4), 0, "Reset");
    assert_eq!(bench.extensions(128)[1], nothing);
    assert_eq!(set(&mut bench, 4, &extension), 0);
    bench.end();
}

#[test]
fn a_random_write_area_is_written_in_any_order_and_committed() {
    const WITH_ZRWA: u32 = 1 << 9 | 3;
    let mut bench = bench_of(zoned_drive_with(0, 16));
    let (size, block) = (bench.size, BLOCK_BYTES);
    assert_eq!(bench.act(size, WITH_ZRWA), 0);
    let [one, two, three] = [1, 2, 3].map(|seed| pattern(seed, 2 * block));
    for (at, data) in [(7, &one), (0, &two), (7, &three)] {
        assert_eq!(bench.write(size + at, data), 0, "at {at}");
    }
    assert_eq!(bench.states()[1], (ZoneState::ExplicitlyOpen, size));
    let (status, read) = bench.read(size, 16);
    assert_eq!(status, 0);
    assert!(read[..2 * block] == two[..] && read[7 * block..9 * block] == three[..]);
    assert!(read[2 * block..7 * block].iter().chain(&read[9 * block..]).all(|byte| *byte == 0));
    // Block 17 is behind the area, which moves by two.
    assert_eq!(bench.write(size + 16, &one), 0);
    assert_eq!(bench.states()[1], (ZoneState::ExplicitlyOpen, size + 2));
    assert_eq!(bench.write(size, &one), zone_status::INVALID_WRITE, "it is committed");
    assert_eq!(bench.write(size + 33, &one), zone_status::INVALID_WRITE, "too far behind");
    assert_eq!(bench.append(size, &one).0, zone_status::INVALID_OPERATION);
    assert_eq!(bench.act(size + 8, 0x11), 0, "Flush Explicit ZRWA Range");
    assert_eq!(bench.states()[1], (ZoneState::ExplicitlyOpen, size + 9));
    assert_eq!(bench.act(size + 8, 0x11), status::INVALID_FIELD);
    assert_eq!((bench.act(size, 1), bench.act(2 * size, WITH_ZRWA)), (0, 0), "one is closed");
    assert_eq!(bench.act(3 * size, WITH_ZRWA), zone_status::ZRWA_UNAVAILABLE);
    assert_eq!(bench.append(3 * size, &one).0, 0);
    assert_eq!(bench.act(3 * size, WITH_ZRWA), zone_status::INVALID_OPERATION, "it is written");
    assert_eq!(bench.act(3 * size, 0x11), zone_status::INVALID_OPERATION, "it has none");
    assert_eq!(bench.act(size, 2), 0, "Finish");
    let (status, read) = bench.read(size + 7, 11);
    assert_eq!(status, 0);
    assert!(read[..2 * block] == three[..] && read[9 * block..] == one[..], "what was in the area is there");
    assert_eq!(bench.act(4 * size, WITH_ZRWA), 0, "a finished zone has given its area up");
    bench.end();
}

#[test]
fn zones_are_written_appended_to_read_and_reset() {
    let mut bench = bench();
    let Bench { size, capacity, .. } = bench;
    let data = pattern(1, 5 * BLOCK_BYTES);
    assert_eq!(bench.write(size, &data), 0);
    assert_eq!(bench.append(size, &data[..2 * BLOCK_BYTES]), (0, size + 5));
    assert_eq!(bench.states()[1], (ZoneState::ImplicitlyOpen, size + 7));
    assert_eq!(bench.queue.status(&entry(0x00, ZONED, [0; 3])), 0);
    assert_eq!(bench.queue.status(&entry(0x00, u32::MAX, [0; 3])), 0, "a flush of all namespaces");
    let (status, read) = bench.read(size, 8);
    assert_eq!(status, 0);
    assert!(read[..5 * BLOCK_BYTES] == data[..] && read[5 * BLOCK_BYTES..7 * BLOCK_BYTES] == data[..2 * BLOCK_BYTES]);
    assert_eq!(read[7 * BLOCK_BYTES..], [0; BLOCK_BYTES], "behind the write pointer");
    let compare = at(0x05, size, 5);
    assert_eq!(bench.queue.run(&compare, Payload::ToController(data.clone())).0, 0);
    let other = pattern(2, 5 * BLOCK_BYTES);
    assert_eq!(bench.queue.run(&compare, Payload::ToController(other)).0, status::COMPARE_FAILURE);
    assert_eq!(bench.queue.status(&at(0x0c, size, 7)), 0, "Verify");
    // Full: every block of it, in pieces of any length.
    let mut written = 7;
    while written < capacity {
        let blocks = (capacity - written).min(3);
        assert_eq!(bench.write(size + written, &data[..blocks as usize * BLOCK_BYTES]), 0);
        written += blocks;
    }
    assert_eq!(bench.states()[1], (ZoneState::Full, u64::MAX));
    assert_eq!(bench.write(size + written, &data[..BLOCK_BYTES]), zone_status::FULL);
    assert_eq!(bench.act(size, 4), 0);
    assert_eq!(bench.states()[1], (ZoneState::Empty, size));
    assert_eq!(bench.read(size, 1), (0, vec![0; BLOCK_BYTES]));
    assert_eq!(bench.append(size, &data), (0, size));
    bench.end();
}

#[test]
fn what_hosts_ask_of_zones_is_recorded_as_if_there_were_no_gaps_between_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("host.log");
    let names = ["disk", "zones"].map(str::to_owned);
    let recorder = Arc::new(Recorder::new(&names, Box::new(std::fs::File::create(&path).unwrap())).unwrap());
    let zoned = zoned_drive();
    let layout = *zoned.layout();
    let wishes = Wishes { zoned: Some(zoned), recorder: Some(Arc::clone(&recorder)), ..Wishes::default() };
    let served = Served::with(Memory::new(BLOCKS, 1024, SHUFFLED), wishes);
    let host = served.host();
    let queue = host.queue_as(1, InitiatorConfig::default());
    let (size, capacity) = (layout.size, u64::from(layout.capacity));
    let mut bench = Bench { served, host, queue, size, capacity, zones: layout.zones.into() };
    assert!(size > capacity, "there is a gap behind a zone");
    let data = pattern(1, 3 * BLOCK_BYTES);
    assert_eq!(bench.write(size, &data), 0);
    assert_eq!(bench.write(size, &data), zone_status::INVALID_WRITE, "what is refused is not recorded");
    assert_eq!(bench.append(size, &data[..BLOCK_BYTES]), (0, size + 3));
    assert_eq!(bench.read(size + 2, 2).0, 0);
    assert_eq!(bench.queue.status(&entry(0x00, ZONED, [0; 3])), 0);
    assert_eq!((bench.act(2 * size, 3), bench.act(size, 2), bench.act(size, 4)), (0, 0, 0), "opened, finished, reset");
    assert_eq!(bench.act(0, 4 | 1 << 8), 0, "all are reset");
    assert_eq!(bench.queue.write(7, &data), 0);
    bench.end();
    // One flush is that of the host, and none that of the server's end.
    let text = std::fs::read_to_string(&path).unwrap();
    assert_eq!(
        (recorder.finish().unwrap(), text.len()),
        (7, "fio version 3 iolog\n".len()),
        "it is in the buffer until the end"
    );
    let text = std::fs::read_to_string(&path).unwrap();
    let lines: Vec<String> = text.lines().skip(1).map(|line| line.split_once(' ').unwrap().1.to_owned()).collect();
    let block = BLOCK_BYTES as u64;
    let at = |word: &str, first: u64, blocks: u64| format!("zones {word} {} {}", first * block, blocks * block);
    let expected = [
        "zones add".to_owned(),
        "zones open".to_owned(),
        at("write", capacity, 3),
        at("write", capacity + 3, 1),
        at("read", capacity + 2, 2),
        at("datasync", 0, 0),
        at("trim", capacity, capacity),
        at("trim", 0, u64::from(layout.zones) * capacity),
        "disk add".to_owned(),
        "disk open".to_owned(),
        format!("disk write {} {}", 7 * block, 3 * block),
    ];
    assert_eq!(lines, expected);
}

#[test]
fn what_zones_refuse_has_its_status_and_the_error_log_the_write_pointer() {
    let mut bench = bench();
    let Bench { size, capacity, .. } = bench;
    let block = pattern(3, BLOCK_BYTES);
    assert_eq!(bench.write(2 * size, &block), 0);
    assert_eq!(bench.write(2 * size + 5, &block), zone_status::INVALID_WRITE);
    let log = entry(0x02, u32::MAX, [15 << 16 | 1, 0, 0]);
    bench.host.admin.submit(0, &log, Payload::ToHost(vec![0; 64]));
    let ended = bench.host.admin.wait().unwrap();
    let pointer = u64::from_le_bytes(ended.data[16..24].try_into().unwrap());
    assert_eq!(pointer, 2 * size + 1, "where the write should have begun");
    assert_eq!(bench.write(2 * size, &block), zone_status::INVALID_WRITE);
    let long = pattern(4, (capacity as usize).min(256) * BLOCK_BYTES);
    assert_eq!(bench.append(2 * size, &long).0, zone_status::BOUNDARY);
    assert_eq!(bench.read(3 * size - 1, 2).0, zone_status::BOUNDARY);
    // Three may be active, two of them open.
    assert_eq!((bench.act(0, 3), bench.act(size, 3)), (0, 0));
    assert_eq!(bench.states()[2].0, ZoneState::Closed, "it was open implicitly");
    assert_eq!(bench.write(2 * size + 1, &block), zone_status::TOO_MANY_OPEN);
    assert_eq!(bench.act(0, 1), 0);
    assert_eq!(bench.write(3 * size, &block), zone_status::TOO_MANY_ACTIVE);
    assert_eq!(bench.act(3 * size, 5), zone_status::INVALID_TRANSITION);
    // All at once: closed ones are opened only if all of them can be.
    assert_eq!(bench.act(0, 1 << 8 | 3), zone_status::TOO_MANY_OPEN);
    assert_eq!(bench.act(0, 1 << 8 | 2), 0);
    let states: Vec<ZoneState> = bench.states()[..4].iter().map(|(state, _)| *state).collect();
    assert_eq!(states, [ZoneState::Full, ZoneState::Full, ZoneState::Full, ZoneState::Empty]);
    assert_eq!(bench.act(7, 1 << 8 | 4), 0);
    assert!(bench.states().iter().all(|(state, _)| *state == ZoneState::Empty));
    // The block namespace beside it knows nothing of zones.
    assert_eq!(bench.queue.status(&entry(0x79, 1, [0; 3])), status::INVALID_OPCODE);
    assert_eq!(bench.queue.status(&at(0x08, 0, 1)), status::INVALID_OPCODE);
    bench.end();
}

/// Long writes are asked for, short ones come in their capsules: those of one queue are accepted in the order in which they came.
#[test]
fn queued_writes_of_a_zone_are_accepted_in_order() {
    let mut bench = bench();
    let (mut first, mut told) = (0, 0);
    let data = pattern(5, 4 * BLOCK_BYTES);
    let lengths = [4, 1, 3, 1, 1, 2, 4, 1];
    for (slot, blocks) in lengths.into_iter().enumerate() {
        let bytes = data[..blocks as usize * BLOCK_BYTES].to_vec();
        bench.queue.client.submit(slot as u64, &at(0x01, first, blocks), Payload::ToController(bytes));
        first += u64::from(blocks);
    }
    while told < lengths.len() {
        let ended = bench.queue.client.wait().unwrap();
        assert_eq!(ended.status() & 0x7ff, 0, "write {}", ended.tag);
        told += 1;
    }
    assert_eq!(bench.states()[0], (ZoneState::ImplicitlyOpen, first));
    let (_, read) = bench.read(0, first as u32);
    let mut begin = 0;
    for blocks in lengths {
        let end = begin + blocks as usize * BLOCK_BYTES;
        assert!(read[begin..end] == data[..end - begin]);
        begin = end;
    }
    bench.end();
}

/// Appends of several hosts to one zone end in as many places.
#[test]
fn hosts_append_to_one_zone_without_knowing_of_each_other() {
    let mut bench = bench();
    let mut others: Vec<Queue> = (2..6).map(|id| bench.host.queue_as(id, InitiatorConfig::default())).collect();
    assert_eq!(bench.host.controller, 1, "all of {HOST}");
    let mut places = Vec::new();
    for round in 0..3_u8 {
        for (index, queue) in others.iter_mut().enumerate() {
            let bytes = vec![16 * round + index as u8; BLOCK_BYTES];
            queue.client.submit(0, &at(0x7d, 0, 1), Payload::ToController(bytes));
        }
        for (index, queue) in others.iter_mut().enumerate() {
            let ended = queue.client.wait().unwrap();
            assert_eq!(ended.status() & 0x7ff, 0);
            places.push((ended.completion.specific.get(), 16 * round + index as u8));
        }
    }
    places.sort_unstable();
    let (_, read) = bench.read(0, places.len() as u32);
    for (at, (place, byte)) in places.into_iter().enumerate() {
        assert_eq!(place, at as u64);
        assert!(read[at * BLOCK_BYTES..][..BLOCK_BYTES].iter().all(|read| *read == byte));
    }
    drop(others);
    bench.end();
}
