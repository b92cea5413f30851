//! What a host gets of zones over NVMe/TCP, beside a block FTL of the same server: both on flash that takes no time, in turns, so that
//! other work on the machine hits both alike.
//!
//! ```text
//!   cargo run --release -p openftl-server --example served_zones -- 5 128      rounds, KiB a command
//! ```

use openftl_blocks::{BlockFtl, Ftl};
use openftl_core::BLOCK_BYTES;
use openftl_core::units::Share;
use openftl_media::{EmulatedDevice, Profile, Store, Timing};
use openftl_nvme::{BlockFormat, Hints, Namespace, NamespaceKind, Nqn, SubsystemConfig, Target, ZonedShape};
use openftl_nvme_tcp::client::Payload;
use openftl_nvme_tcp::fabrics::{CONTROLLER_ID_ANY, Identity, QueueParameters};
use openftl_nvme_tcp::{Client, InitiatorConfig};
use openftl_parts::{BlockTarget, Config, chunks_per_pu};
use openftl_server::{Endpoint, Export, NoOperator, Other, Protocol, Server, ServerConfig, Stop, WallClock};
use openftl_zones::sizing;
use openftl_zones::{Face, Limits, ZoneConfig, ZoneFtl};
use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

const SUBSYSTEM: &str = "nqn.2026-11.org.openftl:zones";
const HOST: &str = "nqn.2026-11.org.openftl:host";

/// What is written and read in a turn.
const TURN_BYTES: u64 = 512 << 20;
/// Commands under way.
const DEPTH: u64 = 16;
/// Zones that are written side by side.
const STREAMS: u64 = 4;

const BLOCK: u32 = 1;
const ZONED: u32 = 2;

/// What is done in a turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Deed {
    WriteBlocks,
    WriteZones,
    AppendZones,
    ReadBlocks,
    ReadZones,
}

const DEEDS: [Deed; 5] = [Deed::WriteBlocks, Deed::WriteZones, Deed::ReadBlocks, Deed::ReadZones, Deed::AppendZones];

/// Where zones are.
#[derive(Clone, Copy)]
struct Zones {
    size: u64,
    capacity: u64,
}

fn entry(opcode: u8, namespace: u32, first: u64, blocks: u64) -> [u8; 64] {
    let mut entry = [0; 64];
    entry[0] = opcode;
    entry[4..8].copy_from_slice(&namespace.to_le_bytes());
    entry[40..48].copy_from_slice(&first.to_le_bytes());
    entry[48..52].copy_from_slice(&(blocks as u32 - 1).to_le_bytes());
    entry
}

struct Host {
    // Its controller lives as long as its admin queue.
    _admin: Client<TcpStream>,
    queue: Client<TcpStream>,
    spare: Vec<Vec<u8>>,
    zones: Zones,
    command_blocks: u64,
}

impl Host {
    fn connect(address: SocketAddr, zones: Zones, command_blocks: u64) -> Host {
        let identity = Identity { host_id: [7; 16], host_nqn: HOST.to_owned(), subsystem_nqn: SUBSYSTEM.to_owned() };
        let queue = |queue_id| QueueParameters { queue_id, entries: 32, flow_control: false, keep_alive_ms: 0 };
        let open = || {
            let stream = TcpStream::connect(address).expect("the server listens");
            stream.set_nodelay(true).expect("it is a socket");
            Client::open(stream, InitiatorConfig::default()).expect("the server answers")
        };
        let mut admin = open();
        let controller = admin.connect(queue(0), &identity, CONTROLLER_ID_ANY).expect("any host may").controller_id;
        admin.start_controller(|| true).expect("it starts");
        admin.set_number_of_queues(1).expect("there is one");
        let mut client = open();
        client.connect(queue(1), &identity, controller).expect("it is ready");
        let spare = (0..DEPTH).map(|seed| vec![seed as u8 + 1; (command_blocks as usize) * BLOCK_BYTES]).collect();
        Host { _admin: admin, queue: client, spare, zones, command_blocks }
    }

    fn wait(&mut self) {
        let ended = self.queue.wait().expect("the server answers");
        assert_eq!(ended.status(), 0, "command {}", ended.tag);
        if ended.data.len() == self.command_blocks as usize * BLOCK_BYTES {
            self.spare.push(ended.data);
        }
    }

    fn submit(&mut self, entry: &[u8; 64], payload: fn(Vec<u8>) -> Payload) {
        while self.queue.commands_under_way() == DEPTH as usize {
            self.wait();
        }
        let data = self.spare.pop().expect("one for each command");
        self.queue.submit(0, entry, payload(data));
    }

    /// MiB a second.
    fn turn(&mut self, deed: Deed) -> f64 {
        let Zones { size, capacity } = self.zones;
        let blocks = self.command_blocks;
        if matches!(deed, Deed::WriteZones | Deed::AppendZones) {
            let mut reset = entry(0x79, ZONED, 0, 1);
            reset[52..56].copy_from_slice(&(1_u32 << 8 | 4).to_le_bytes());
            self.queue.submit(0, &reset, Payload::None);
            self.wait();
        }
        let (per_zone, commands) = (capacity / blocks, TURN_BYTES / BLOCK_BYTES as u64 / blocks);
        let started = Instant::now();
        for command in 0..commands {
            // Several zones side by side, one group of them behind the other.
            let (group, within) = (command / (per_zone * STREAMS), command % (per_zone * STREAMS));
            let zone = group * STREAMS + within % STREAMS;
            let first = zone * size + within / STREAMS * blocks;
            match deed {
                Deed::WriteBlocks => self.submit(&entry(0x01, BLOCK, command * blocks, blocks), Payload::ToController),
                Deed::ReadBlocks => self.submit(&entry(0x02, BLOCK, command * blocks, blocks), Payload::ToHost),
                Deed::WriteZones => self.submit(&entry(0x01, ZONED, first, blocks), Payload::ToController),
                Deed::AppendZones => self.submit(&entry(0x7d, ZONED, zone * size, blocks), Payload::ToController),
                Deed::ReadZones => self.submit(&entry(0x02, ZONED, first, blocks), Payload::ToHost),
            }
        }
        while self.queue.commands_under_way() > 0 {
            self.wait();
        }
        TURN_BYTES as f64 / f64::from(1 << 20) / started.elapsed().as_secs_f64()
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1).map(|word| word.parse::<u64>().expect("a number"));
    let (rounds, kib) = (arguments.next().unwrap_or(5), arguments.next().unwrap_or(128));
    let profile = Profile::builtin("cosmos").expect("it is built in");
    let shape = profile.geometry(1).expect("it has a shape");
    let host_frames = 16_384;
    let mut clock = WallClock::new();
    let device = |chunks| {
        EmulatedDevice::new(profile.clone(), chunks, Store::Ram, Timing::Instant, 1).expect("there is memory for it")
    };
    let config = Config {
        capacity_blocks: TURN_BYTES / BLOCK_BYTES as u64,
        over_provisioning: Share::percent(28),
        host_frames,
        ..Config::default()
    };
    let chunks = chunks_per_pu(&shape, &config, profile.spare()).expect("a device may be as large");
    let blocks = BlockFtl::format(device(chunks), config, &mut clock).expect("there is room");
    let width = 4;
    let limits = Limits { max_open: 8, max_active: 8 };
    let count = sizing::zones_holding(&shape, width, TURN_BYTES / BLOCK_BYTES as u64) + STREAMS as u32;
    let zoned =
        ZoneConfig { face: Face::Zones, width, limits, zones: Some(count), extension_bytes: 0, window_blocks: 0 };
    let config = Config { host_frames, ..Config::default() };
    // Twice as many chunks: what was reset is erased when that is durable.
    let chunks = 2 * sizing::chunks_per_pu(&shape, &config, &zoned, profile.spare()).expect("a device may be as large");
    let zones = ZoneFtl::format(device(chunks), config, zoned, &mut clock).expect("there is room");
    let layout = *zones.layout();

    let mut target = Target::new("1", "OpenFTL", "1");
    let subsystem = SubsystemConfig::new(Nqn::new(SUBSYSTEM).expect("a name"), "1");
    let subsystem = target.add_subsystem(subsystem).expect("the first one");
    let bytes = blocks.blocks() * BLOCK_BYTES as u64;
    let kinds = [
        NamespaceKind::Block { format: BlockFormat::FourKib, bytes, hints: Hints::None },
        NamespaceKind::Zoned(ZonedShape::of(&layout, limits)),
    ];
    for (id, kind) in (1..).zip(kinds) {
        target.attach(subsystem, Namespace { id, uuid: [id as u8; 16], kind }).expect("a new one");
    }
    let mut server = Server::new(ServerConfig::default()).expect("there are descriptors");
    let endpoint = server.listen("127.0.0.1:0".parse().expect("an address"), Protocol::NvmeTcp).expect("it is free");
    let Endpoint::Tcp(address) = endpoint else { unreachable!("it was a TCP endpoint") };
    server.set_target(target);
    let stop = Stop::new().expect("there are descriptors");
    let its_stop = stop.clone();
    let thread = std::thread::spawn(move || {
        let (name, description) = ("blocks".to_owned(), String::new());
        let mut exports = [Export { name, description, read_only: false, target: blocks }];
        let mut others = [Other::Zones(Box::new(zones))];
        server.run_with_others(&mut NoOperator, &mut exports, &mut others, &mut clock, &its_stop).map(drop)
    });

    let places = Zones { size: layout.size, capacity: layout.capacity.into() };
    let mut host = Host::connect(address, places, kib * 1024 / BLOCK_BYTES as u64);
    // The first round fills memory.
    let mut speeds: Vec<Vec<f64>> = vec![Vec::new(); DEEDS.len()];
    for round in 0..=rounds {
        for (deed, speeds) in DEEDS.into_iter().zip(&mut speeds) {
            let speed = host.turn(deed);
            if round > 0 {
                speeds.push(speed);
            }
        }
    }
    drop(host);
    stop.request();
    thread.join().expect("it does not panic").expect("the drives can be flushed");
    let median = |deed: Deed| {
        let mut all = speeds[DEEDS.iter().position(|other| *other == deed).expect("it is one")].clone();
        all.sort_by(f64::total_cmp);
        all[all.len() / 2]
    };
    println!("{kib} KiB a command, {DEPTH} at a time; median of {rounds} rounds of {} MiB", TURN_BYTES >> 20);
    for (what, zoned, blocks) in [
        ("writes", Deed::WriteZones, Deed::WriteBlocks),
        ("appends", Deed::AppendZones, Deed::WriteBlocks),
        ("reads", Deed::ReadZones, Deed::ReadBlocks),
    ] {
        let (zoned, blocks) = (median(zoned), median(blocks));
        println!("  {what:<8} zones {zoned:6.0} MiB/s, blocks {blocks:6.0} MiB/s: {:.2} times", zoned / blocks);
    }
}
