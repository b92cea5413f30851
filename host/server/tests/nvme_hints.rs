//! What NVMe hosts say of the lifetime of their data, the whole way: over a socket to a drive, which counts where it puts them.

use std::collections::HashSet;
use std::net::{SocketAddr, TcpStream};
use std::thread::JoinHandle;

use openftl_blocks::block_ftl::BlockFtl;
use openftl_core::units::Share;
use openftl_core::{BLOCK_BYTES, ChunkId, FrameForm};
use openftl_media::{EmulatedDevice, Media, Profile, Store, Timing};
use openftl_nvme::{BlockFormat, Namespace, NamespaceKind, Nqn, SubsystemConfig, Target};
use openftl_nvme_tcp::client::{Ended, Payload};
use openftl_nvme_tcp::fabrics::{CONTROLLER_ID_ANY, Identity, QueueParameters};
use openftl_nvme_tcp::{Client, InitiatorConfig};
use openftl_parts::flash::plan::chunks_per_pu;
use openftl_parts::target::BlockTarget;
use openftl_parts::{Config, PlacementName};
use openftl_server::{Endpoint, Export, Protocol, Server, ServerConfig, Stop, WallClock};

const BLOCKS: u64 = 1_600;
const SUBSYSTEM: &str = "nqn.2026-11.org.example:drive";

type Drive = BlockFtl<EmulatedDevice>;

const STREAMS: u32 = 1 << 20;
const DATA_PLACEMENT: u32 = 2 << 20;

fn drive(placement: PlacementName) -> Drive {
    let config = Config {
        capacity_blocks: BLOCKS,
        over_provisioning: Share::percent(60),
        drive_id: 7,
        payload: FrameForm::Bytes,
        host_frames: 600,
        placement,
        handles: 3,
        objects_max: 2,
        ..Config::default()
    };
    let profile = Profile::builtin("tiny").unwrap();
    let chunks = chunks_per_pu(&profile.geometry(64).unwrap(), &config, Share::percent(20)).unwrap();
    let device = EmulatedDevice::new(profile, chunks, Store::Ram, Timing::Instant, 3).unwrap();
    BlockFtl::format(device, config, &mut WallClock::new()).unwrap()
}

/// A drive that is served, and a host with an admin queue and an I/O queue.
struct Hosted {
    admin: Client<TcpStream>,
    io: Client<TcpStream>,
    stop: Stop,
    thread: JoinHandle<Drive>,
}

fn connect(address: SocketAddr, id: u16, controller: u16) -> (Client<TcpStream>, u16) {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    let mut client = Client::open(stream, InitiatorConfig::default()).unwrap();
    let queue = QueueParameters { queue_id: id, entries: 32, flow_control: true, keep_alive_ms: 0 };
    let host_nqn = "nqn.2026-11.org.example:host".to_owned();
    let identity = Identity { host_id: [7; 16], host_nqn, subsystem_nqn: SUBSYSTEM.to_owned() };
    let connected = client.connect(queue, &identity, controller).unwrap();
    (client, connected.controller_id)
}

fn entry(opcode: u8, namespace: u32, dwords: [u32; 4]) -> [u8; 64] {
    let mut entry = [0; 64];
    entry[0] = opcode;
    entry[4..8].copy_from_slice(&namespace.to_le_bytes());
    for (field, dword) in entry[40..].chunks_exact_mut(4).zip(dwords) {
        field.copy_from_slice(&dword.to_le_bytes());
    }
    entry
}

fn ended(client: &mut Client<TcpStream>, entry: &[u8; 64], payload: Payload) -> (u16, Ended) {
    client.submit(0, entry, payload);
    let ended = client.wait().expect("the server answers");
    assert!(ended.intact);
    (ended.status() & 0x7ff, ended)
}

impl Hosted {
    fn new(placement: PlacementName, format: BlockFormat) -> Hosted {
        let drive = drive(placement);
        let mut server = Server::new(crate::reactors::with_reactors(ServerConfig::default())).unwrap();
        let endpoint = server.listen("127.0.0.1:0".parse().unwrap(), Protocol::NvmeTcp).unwrap();
        let Endpoint::Tcp(address) = endpoint else { unreachable!("listened on TCP") };
        let mut target = Target::new("1", "OpenFTL", "1");
        let subsystem = SubsystemConfig::new(Nqn::new(SUBSYSTEM).unwrap(), "1");
        let subsystem = target.add_subsystem(subsystem).unwrap();
        let (bytes, hints) = (drive.blocks() * BLOCK_BYTES as u64, drive.placement().into());
        let kind = NamespaceKind::Block { format, bytes, hints };
        target.attach(subsystem, Namespace { id: 1, uuid: [1; 16], kind }).unwrap();
        server.set_target(target);
        let stop = Stop::new().unwrap();
        let its_stop = stop.clone();
        let thread = std::thread::spawn(move || {
            let name = "disk".to_owned();
            let mut exports = [Export { name, description: String::new(), read_only: false, target: drive }];
            server.run(&mut exports, &mut WallClock::new(), &its_stop).unwrap();
            let [export] = exports;
            export.target
        });
        let (mut admin, controller) = connect(address, 0, CONTROLLER_ID_ANY);
        admin.start_controller(|| false).unwrap();
        admin.set_number_of_queues(1).unwrap();
        let (io, _) = connect(address, 1, controller);
        Hosted { admin, io, stop, thread }
    }

    /// Writes blocks of the namespace with bits of dword 12 and a directive's word in dword 13.
    fn write(&mut self, first: u32, bytes: usize, blocks: u32, directive: u32, specific: u16) -> u16 {
        let entry = entry(0x01, 1, [first, 0, (blocks - 1) | directive, u32::from(specific) << 16]);
        ended(&mut self.io, &entry, Payload::ToController(vec![first as u8; bytes])).0
    }

    /// The same of blocks of 4 KiB, which succeeds.
    fn put(&mut self, first: u32, blocks: u32, directive: u32, specific: u16) {
        let bytes = blocks as usize * BLOCK_BYTES;
        assert_eq!(self.write(first, bytes, blocks, directive, specific), 0);
    }

    fn admin(&mut self, entry: &[u8; 64], payload: Payload) -> Ended {
        let (status, ended) = ended(&mut self.admin, entry, payload);
        assert_eq!(status, 0);
        ended
    }

    fn log(&mut self, page: u8, parameter: u32, bytes: usize) -> Vec<u8> {
        let dword = u32::from(page) | parameter << 8 | (bytes as u32 / 4 - 1) << 16;
        self.admin(&entry(0x02, 0, [dword, 1 << 16, 0, 0]), Payload::ToHost(vec![0; bytes])).data
    }

    /// "Reclaim Unit Handle Status": RUAMW of each.
    fn room(&mut self) -> Vec<u64> {
        let status = entry(0x12, 1, [1, 16 / 4 + 3 * 32 / 4 - 1, 0, 0]);
        let (code, ended) = ended(&mut self.io, &status, Payload::ToHost(vec![0; 16 + 3 * 32]));
        assert_eq!((code, ended.data[14]), (0, 3));
        let descriptors = ended.data[16..].chunks_exact(32).enumerate();
        let room = descriptors.map(|(index, one)| {
            assert_eq!((usize::from(one[0]), usize::from(one[2])), (index, index));
            u64::from_le_bytes(one[8..16].try_into().unwrap())
        });
        room.collect()
    }

    /// "Reclaim Unit Handle Update".
    fn update(&mut self, identifiers: &[u16]) -> u16 {
        let data = identifiers.iter().flat_map(|identifier| identifier.to_le_bytes()).collect();
        let entry = entry(0x1d, 1, [1 | (identifiers.len() as u32 - 1) << 16, 0, 0, 0]);
        ended(&mut self.io, &entry, Payload::ToController(data)).0
    }

    /// FlashAlloc of ranges: first block and blocks.
    fn flash_alloc(&mut self, ranges: &[(u64, u32)]) -> u16 {
        let mut data = Vec::new();
        for (first, blocks) in ranges {
            data.extend_from_slice(&[0; 4]);
            data.extend_from_slice(&blocks.to_le_bytes());
            data.extend_from_slice(&first.to_le_bytes());
        }
        ended(&mut self.io, &entry(0xc1, 1, [ranges.len() as u32 - 1, 0, 0, 0]), Payload::ToController(data)).0
    }

    /// FlashAlloc of one range, as its authors' firmware has it.
    fn flash_alloc_range(&mut self, first: u32, blocks: u32) -> u16 {
        let mut entry = entry(0x82, 1, [first, 0, 0, 0]);
        entry[56..60].copy_from_slice(&blocks.to_le_bytes());
        ended(&mut self.io, &entry, Payload::None).0
    }

    /// The drive, when the server has stopped.
    fn end(self) -> Drive {
        self.stop.request();
        self.thread.join().unwrap()
    }
}

#[test]
fn writes_to_a_stream_land_under_its_handle() {
    for placement in [PlacementName::Streams, PlacementName::StreamsKept] {
        let mut host = Hosted::new(placement, BlockFormat::FourKib);
        host.put(0, 5, STREAMS, 40_000);
        host.admin(&entry(0x19, 1, [0, 1, 1 << 8 | 1, 0]), Payload::None);
        host.put(5, 7, STREAMS, 40_000);
        host.put(12, 1, STREAMS, 3);
        host.put(13, 2, 0, 3);
        // From there a copy goes to stream 3 as well.
        let mut source = vec![0; 32];
        source[16] = 1;
        let copy = entry(0x19, 1, [100, 0, STREAMS, 3 << 16]);
        assert_eq!(ended(&mut host.io, &copy, Payload::ToController(source)).0, 0);
        assert_eq!(host.end().statistics().placement.blocks, [5 + 2, 7, 1 + 2], "{placement}");
    }
}

#[test]
fn a_write_of_parts_of_blocks_takes_them_under_its_handle() {
    let mut host = Hosted::new(PlacementName::Streams, BlockFormat::Bytes512);
    host.admin(&entry(0x19, 1, [0, 1, 1 << 8 | 1, 0]), Payload::None);
    // The last sector of block 0, block 1, the first sector of block 2.
    assert_eq!(host.write(7, 10 * 512, 10, STREAMS, 9), 0);
    assert_eq!(host.write(80, 512, 1, STREAMS, 8), 0);
    assert_eq!(host.end().statistics().placement.blocks, [0, 3, 1]);
}

#[test]
fn writes_with_a_placement_identifier_land_under_its_handle() {
    for placement in [PlacementName::Fdp, PlacementName::FdpPersistent] {
        let mut host = Hosted::new(placement, BlockFormat::FourKib);
        host.put(0, 4, DATA_PLACEMENT, 0);
        host.put(4, 5, DATA_PLACEMENT, 2);
        host.put(9, 6, 0, 2);
        host.put(15, 7, DATA_PLACEMENT, 3);
        let configurations = host.log(0x20, 0, 92);
        let isolation = if placement == PlacementName::Fdp { 1 } else { 2 };
        assert_eq!((configurations[4], configurations[24], configurations[80]), (92, 3, isolation));
        let statistics = host.log(0x22, 0, 64);
        assert_eq!(statistics[..16], (22 * BLOCK_BYTES as u128).to_le_bytes());
        let drive = host.end();
        let blocks = &drive.statistics().placement.blocks;
        assert_eq!(
            blocks,
            &[0, 4 + 6 + 7, 0, 5],
            "{placement}: what says no identifier that is there has identifier 0"
        );
    }
}

#[test]
fn a_stream_shares_no_chunk_with_the_one_whose_handle_it_takes() {
    let mut host = Hosted::new(PlacementName::Streams, BlockFormat::FourKib);
    host.admin(&entry(0x19, 1, [0, 1, 1 << 8 | 1, 0]), Payload::None);
    // Three streams, one more, and one in the place of another that is released.
    let release = entry(0x19, 1, [0, 1 | 1 << 8 | 2 << 16, 0, 0]);
    for (stream, first) in [(1, 0), (2, 200), (3, 400), (4, 600), (5, 800)] {
        if stream == 5 {
            host.admin(&release, Payload::None);
        }
        for block in (first..first + 100).step_by(4) {
            host.put(block, 4, STREAMS, stream);
        }
    }
    let drive = host.end();
    assert_eq!(drive.statistics().placement.blocks, [0, 200, 200, 100]);
    let format = drive.media().geometry().format();
    let chunks = |first: u64| -> HashSet<ChunkId> {
        (first..first + 100).filter_map(|block| drive.place_on_media(block)).map(|ppa| format.chunk_of(ppa)).collect()
    };
    for (stream, other) in [(600, 0), (800, 200)] {
        let (stream, other) = (chunks(stream), chunks(other));
        assert!(!stream.is_empty() && !other.is_empty() && stream.is_disjoint(&other), "{stream:?} {other:?}");
    }
}

#[test]
fn a_host_that_knows_nothing_of_identifiers_reads_what_the_drive_moved_and_hears_of_it_if_it_wants() {
    let mut host = Hosted::new(PlacementName::Fdp, BlockFormat::FourKib);
    // Events 80h and 81h of handle 0.
    host.admin(&entry(0x09, 1, [0x1e, 2 << 16, 1, 0]), Payload::ToController(vec![0x80, 0x81]));
    for first in (0..BLOCKS as u32).step_by(8) {
        host.put(first, 8, 0, 0);
    }
    let events = |host: &mut Hosted| {
        let page = host.log(0x23, 0, 64 * 64);
        page[64..64 * (1 + usize::from(page[0]))].chunks_exact(64).map(<[u8]>::to_vec).collect::<Vec<_>>()
    };
    // All over the drive, but for block 7, until chunks are collected in which something is valid.
    let mut state: u64 = 1;
    for round in 0.. {
        assert!(round < 20, "there is collection");
        for _ in 0..500 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let block = ((state >> 33) % BLOCKS) as u32;
            if block != 7 {
                host.put(block, 1, 0, 0);
            }
        }
        if !events(&mut host).is_empty() {
            break;
        }
    }
    for event in events(&mut host) {
        // Type, flags, identifier; namespace; reclaim group, handle.
        let about = (event[..4].to_vec(), event[12], event[32..36].to_vec());
        assert_eq!(about, (vec![0x80, 0b111, 0, 0], 1, vec![0; 4]));
        let moved = u16::from_le_bytes([event[18], event[19]]);
        let first = u64::from_le_bytes(event[20..28].try_into().unwrap());
        assert!(event[16] == 1 && (1..=32).contains(&moved) && first < BLOCKS, "{event:?}");
    }
    assert_eq!(host.log(0x23, 1, 64), [0; 64], "no host has caused any");
    let read = entry(0x02, 1, [7, 0, 0, 0]);
    let (status, ended) = ended(&mut host.io, &read, Payload::ToHost(vec![0xff; BLOCK_BYTES]));
    assert_eq!((status, ended.data), (0, vec![0; BLOCK_BYTES]));
    let statistics = host.log(0x22, 0, 64);
    let number = |at: usize| u128::from_le_bytes(statistics[at..at + 16].try_into().unwrap());
    let drive = host.end();
    let blocks = drive.statistics().host_blocks_written;
    assert_eq!(number(0), u128::from(blocks) * BLOCK_BYTES as u128);
    assert!(number(16) > 0, "the drive has written to its medium");
    assert_eq!(drive.statistics().placement.blocks, [0, blocks]);
}

#[test]
fn a_handle_says_how_much_room_it_has_and_is_given_a_new_unit() {
    let mut host = Hosted::new(PlacementName::Fdp, BlockFormat::FourKib);
    let unit = host.room();
    assert!(unit[0] > 0 && unit.iter().all(|room| *room == unit[0]), "{unit:?}");
    // Events 0h and 3h of handle 1.
    host.admin(&entry(0x09, 1, [0x1e, 2 << 16 | 1, 1, 0]), Payload::ToController(vec![0, 3]));
    let mut written = 0;
    while host.room()[1] == unit[1] {
        host.put(written, 1, DATA_PLACEMENT, 1);
        written += 1;
    }
    let part = host.room();
    assert!(part[1] < unit[1] && part[0] == unit[0] && part[2] == unit[2], "{part:?}");
    assert_eq!(host.update(&[1, 0]), 0);
    assert_eq!(host.room(), unit);
    host.put(200, 1, DATA_PLACEMENT, 77);
    let events = host.log(0x23, 1, 64 * 3);
    assert_eq!(events[0], 2);
    // Type, flags, identifier; namespace; reclaim group, handle.
    let told = |at: usize| (events[at..at + 4].to_vec(), events[at + 12], events[at + 32..at + 36].to_vec());
    assert_eq!(told(64), (vec![0, 0b111, 1, 0], 1, vec![0, 0, 1, 0]));
    assert_eq!(told(128), (vec![3, 0b011, 77, 0], 1, vec![0; 4]));
    assert_eq!(host.update(&[3]), 0x002, "there is no such identifier");
    assert_eq!(host.end().statistics().placement.blocks, [0, 1, u64::from(written)], "77 counts as 0");
}

#[test]
fn an_object_is_announced_and_kept_apart() {
    let mut host = Hosted::new(PlacementName::FlashAlloc, BlockFormat::FourKib);
    assert_eq!(host.flash_alloc(&[(100, 8), (200, 8)]), 0);
    host.put(200, 4, 0, 0);
    host.put(0, 3, 0, 0);
    for (what, ranges, status) in [
        ("beyond the end", &[(BLOCKS, 1)][..], 0x080),
        ("across the end", &[(BLOCKS - 1, 2)], 0x080),
        ("nothing", &[(5, 0)], 0x002),
        ("twice the same", &[(300, 8), (307, 1)], 0x002),
        ("the second object", &[(300, 8)], 0),
        ("one too many", &[(400, 8)], 0x1c0),
    ] {
        assert_eq!(host.flash_alloc(ranges), status, "{what}");
    }
    let drive = host.end();
    let placement = &drive.statistics().placement;
    assert_eq!((placement.objects, &placement.blocks[..]), (2, &[3, 4][..]));
}

#[test]
fn an_object_of_one_range_is_announced_without_data() {
    let mut host = Hosted::new(PlacementName::FlashAlloc, BlockFormat::FourKib);
    assert_eq!(host.flash_alloc_range(200, 8), 0);
    host.put(200, 4, 0, 0);
    host.put(0, 3, 0, 0);
    for (what, first, blocks, status) in [
        ("beyond the end", BLOCKS as u32, 1, 0x080),
        ("across the end", BLOCKS as u32 - 1, 2, 0x080),
        ("nothing", 5, 0, 0x002),
        ("the second object", 300, 8, 0),
        ("one too many", 400, 8, 0x1c0),
    ] {
        assert_eq!(host.flash_alloc_range(first, blocks), status, "{what}");
    }
    let drive = host.end();
    let placement = &drive.statistics().placement;
    assert_eq!((placement.objects, &placement.blocks[..]), (2, &[3, 4][..]));
}

#[test]
fn an_object_is_of_whole_blocks_of_the_drive() {
    let mut host = Hosted::new(PlacementName::FlashAlloc, BlockFormat::Bytes512);
    assert_eq!(host.flash_alloc(&[(4, 8)]), 0x002);
    assert_eq!(host.flash_alloc(&[(8, 12)]), 0x002);
    assert_eq!(host.flash_alloc(&[(8, 16)]), 0);
    assert_eq!(host.end().statistics().placement.objects, 1);
}

#[test]
fn a_drive_takes_no_hints_that_are_not_its_own() {
    let mut host = Hosted::new(PlacementName::HotCold, BlockFormat::FourKib);
    host.put(0, 4, STREAMS, 1);
    host.put(0, 4, DATA_PLACEMENT, 1);
    assert_eq!(host.flash_alloc(&[(0, 8)]), 0x001);
    assert_eq!(host.update(&[0]), 0x001);
    assert_eq!(ended(&mut host.admin, &entry(0x19, 1, [0, 1, 1 << 8 | 1, 0]), Payload::None).0, 0x001);
    let drive = host.end();
    let statistics = drive.statistics();
    assert_eq!((statistics.host_blocks_written, statistics.placement.blocks.as_slice()), (8, &[][..]));
}
