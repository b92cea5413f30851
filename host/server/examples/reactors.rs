//! What reactors take off the server's thread: four hosts over NVMe/TCP, plain and with TLS, and servers with one, two and three reactors,
//! in turns, so that other work on the machine hits all alike. The hosts need cores, too: where there are two of them, what counts is the
//! CPU time of the busiest thread, which bounds what a server does where there are enough.
//!
//! ```text
//!   cargo run --release -p openftl-server --features tls --example reactors -- 3       rounds
//! ```

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

use openftl_blocks::BlockFtl;
use openftl_core::BLOCK_BYTES;
use openftl_core::units::Share;
use openftl_media::{EmulatedDevice, Profile, Store, Timing};
use openftl_nvme::{BlockFormat, Hints, Namespace, NamespaceKind, Nqn, SubsystemConfig, Target};
use openftl_nvme_auth::{HashFunction, TlsKey, TlsKeys};
use openftl_nvme_tcp::client::Payload;
use openftl_nvme_tcp::fabrics::{CONTROLLER_ID_ANY, Identity, QueueParameters};
use openftl_nvme_tcp::{Client, InitiatorConfig};
use openftl_nvme_tls::TlsStream;
use openftl_parts::{BlockTarget, Config, chunks_per_pu};
use openftl_server::{Endpoint, Export, Protocol, Server, ServerConfig, Stop, TlsPolicy, WallClock};

const SUBSYSTEM: &str = "nqn.2026-11.org.openftl:reactors";
const HOST: &str = "nqn.2026-11.org.openftl:host";

const HOSTS: u16 = 4;
const DEPTH: usize = 16;
/// What the hosts write or read in a turn together.
const TURN_BYTES: u64 = 512 << 20;
const REACTORS: [usize; 3] = [1, 2, 3];

#[derive(Clone, Copy, PartialEq, Eq)]
struct Load {
    is_secure: bool,
    is_write: bool,
    blocks: u64,
}

trait Stream: Read + Write + Send {}
impl<S: Read + Write + Send> Stream for S {}

struct Host {
    queue: Client<Box<dyn Stream>>,
    // Its controller lives as long as its admin queue.
    _admin: Client<Box<dyn Stream>>,
}

fn key() -> TlsKey {
    TlsKey::from_bytes(Some(HashFunction::Sha256), &[7; 32]).expect("a key")
}

fn entry(is_write: bool, first: u64, blocks: u64) -> [u8; 64] {
    let mut entry = [0; 64];
    (entry[0], entry[4]) = (if is_write { 0x01 } else { 0x02 }, 1);
    entry[40..48].copy_from_slice(&first.to_le_bytes());
    entry[48..52].copy_from_slice(&(blocks as u32 - 1).to_le_bytes());
    entry
}

impl Host {
    fn connect(address: SocketAddr, is_secure: bool) -> Host {
        let identity = Identity { host_id: [7; 16], host_nqn: HOST.to_owned(), subsystem_nqn: SUBSYSTEM.to_owned() };
        let queue = |queue_id| QueueParameters { queue_id, entries: 32, flow_control: false, keep_alive_ms: 0 };
        let open = || {
            let stream = TcpStream::connect(address).expect("the server listens");
            stream.set_nodelay(true).expect("it is a socket");
            let stream: Box<dyn Stream> = match is_secure {
                true => Box::new(TlsStream::connect(stream, key().psks(HOST, SUBSYSTEM)).expect("it knows the key")),
                false => Box::new(stream),
            };
            Client::open(stream, InitiatorConfig::default()).expect("the server answers")
        };
        let mut admin = open();
        let controller = admin.connect(queue(0), &identity, CONTROLLER_ID_ANY).expect("it may").controller_id;
        admin.start_controller(|| true).expect("it starts");
        admin.set_number_of_queues(1).expect("there is one");
        let mut client = open();
        client.connect(queue(1), &identity, controller).expect("it is ready");
        Host { queue: client, _admin: admin }
    }

    /// Its part of the bytes of a turn, anywhere in its part of the drive.
    fn turn(&mut self, number: u64, load: Load) {
        let part = TURN_BYTES / u64::from(HOSTS) / BLOCK_BYTES as u64 / load.blocks;
        let mut spare: Vec<Vec<u8>> = vec![vec![number as u8 + 1; load.blocks as usize * BLOCK_BYTES]; DEPTH];
        let mut asked = 0;
        while asked < part || self.queue.commands_under_way() > 0 {
            while asked < part && self.queue.commands_under_way() < DEPTH {
                // A prime, so that all of them come.
                let first = (number * part + asked * 7_919 % part) * load.blocks;
                let data = spare.pop().expect("one for each command");
                let payload = if load.is_write { Payload::ToController(data) } else { Payload::ToHost(data) };
                self.queue.submit(0, &entry(load.is_write, first, load.blocks), payload);
                asked += 1;
            }
            let ended = self.queue.wait().expect("the server answers");
            assert_eq!(ended.status(), 0, "command {}", ended.tag);
            spare.push(ended.data);
        }
    }
}

/// CPU seconds of the threads of a server with these names, the first one's and the most that another has.
fn cpu_of(threads: &[String]) -> Vec<f64> {
    let mut seconds = vec![0.0; threads.len()];
    for task in std::fs::read_dir("/proc/self/task").expect("Linux has it").flatten() {
        let read = |file| std::fs::read_to_string(task.path().join(file)).unwrap_or_default();
        if let Some(at) = threads.iter().position(|thread| *thread == read("comm").trim()) {
            let spent = read("schedstat").split_whitespace().next().and_then(|spent| spent.parse().ok());
            seconds[at] = spent.unwrap_or(0.0) / 1e9;
        }
    }
    seconds
}

/// A server in a thread of its own.
struct Served {
    address: SocketAddr,
    threads: Vec<String>,
    stop: Stop,
    thread: std::thread::JoinHandle<()>,
}

fn serve(reactors: usize, is_secure: bool) -> Served {
    let profile = Profile::builtin("cosmos").expect("it is built in");
    let shape = profile.geometry(1).expect("it has a shape");
    let config = Config {
        capacity_blocks: TURN_BYTES / BLOCK_BYTES as u64,
        over_provisioning: Share::percent(28),
        host_frames: 16_384,
        ..Config::default()
    };
    let chunks = chunks_per_pu(&shape, &config, profile.spare()).expect("a device may be as large");
    let device = EmulatedDevice::new(profile, chunks, Store::Ram, Timing::Instant, 1).expect("there is memory for it");
    let mut clock = WallClock::new();
    let drive = BlockFtl::format(device, config, &mut clock).expect("there is room");

    let mut target = Target::new("1", "OpenFTL", "1");
    let subsystem = SubsystemConfig::new(Nqn::new(SUBSYSTEM).expect("a name"), "1");
    let subsystem = target.add_subsystem(subsystem).expect("the first one");
    let bytes = drive.blocks() * BLOCK_BYTES as u64;
    let kind = NamespaceKind::Block { format: BlockFormat::FourKib, bytes, hints: Hints::None };
    target.attach(subsystem, Namespace { id: 1, uuid: [1; 16], kind }).expect("a new one");
    // Threads of other servers have other names.
    let name = format!("server{reactors}{}", if is_secure { "s" } else { "" });
    let mut server = Server::new(ServerConfig { reactors, ..ServerConfig::default() }).expect("there are descriptors");
    let endpoint = server.listen("127.0.0.1:0".parse().expect("an address"), Protocol::NvmeTcp).expect("it is free");
    let Endpoint::Tcp(address) = endpoint else { unreachable!("it was a TCP endpoint") };
    server.set_target(target);
    if is_secure {
        let keys = TlsKeys::read(format!("{HOST} {}\n", key().to_text().as_str()).as_bytes()).expect("a list of keys");
        server.set_tls(&keys, TlsPolicy::Required).expect("built with --features tls");
    }
    let stop = Stop::new().expect("there are descriptors");
    let its_stop = stop.clone();
    let thread = std::thread::Builder::new().name(name.clone()).spawn(move || {
        let (name, description) = ("blocks".to_owned(), String::new());
        let mut exports = [Export { name, description, read_only: false, target: drive }];
        server.run(&mut exports, &mut clock, &its_stop).expect("the drive can be flushed");
    });
    let others = (2..=reactors).map(|number| format!("reactor {number}"));
    let threads = std::iter::once(name).chain(others).collect();
    Served { address, threads, stop, thread: thread.expect("there is a thread left") }
}

/// Seconds of a turn, and the CPU seconds of the server's threads.
fn turn(served: &Served, load: Load) -> (f64, Vec<f64>) {
    let mut hosts: Vec<Host> = (0..HOSTS).map(|_| Host::connect(served.address, load.is_secure)).collect();
    let (before, began) = (cpu_of(&served.threads), Instant::now());
    std::thread::scope(|scope| {
        for (number, host) in (0..).zip(&mut hosts) {
            scope.spawn(move || host.turn(number, load));
        }
    });
    let took = began.elapsed().as_secs_f64();
    let spent = cpu_of(&served.threads).iter().zip(before).map(|(after, before)| after - before).collect();
    (took, spent)
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

fn main() {
    let rounds: usize = std::env::args().nth(1).map_or(3, |word| word.parse().expect("a number"));
    println!("{HOSTS} hosts, {DEPTH} commands of each; median of {rounds} rounds; µs of CPU time for a command");
    for is_secure in [false, true] {
        for (is_write, blocks) in [(true, 32), (false, 32), (true, 1), (false, 1)] {
            let load = Load { is_secure, is_write, blocks };
            let commands = (TURN_BYTES / BLOCK_BYTES as u64 / blocks) as f64;
            let mut seen: Vec<Vec<(f64, Vec<f64>)>> = vec![Vec::new(); REACTORS.len()];
            for _ in 0..rounds {
                for (reactors, seen) in REACTORS.into_iter().zip(&mut seen) {
                    let served = serve(reactors, is_secure);
                    // It fills the drive's memory.
                    turn(&served, Load { is_write: true, blocks: 32, ..load });
                    seen.push(turn(&served, load));
                    served.stop.request();
                    served.thread.join().expect("it does not panic");
                }
            }
            let (way, what) = (if is_secure { "TLS" } else { "plain" }, if is_write { "writes" } else { "reads" });
            println!("{way}, {what} of {} KiB", blocks * 4);
            let mut first = 0.0;
            for (reactors, seen) in REACTORS.into_iter().zip(seen) {
                let rate = commands / median(seen.iter().map(|(took, _)| *took).collect());
                let of = |thread: usize| median(seen.iter().map(|(_, cpu)| cpu[thread] / commands * 1e6).collect());
                let spent: Vec<f64> = (0..reactors).map(of).collect();
                let busiest = spent.iter().copied().fold(0.0, f64::max);
                first = if reactors == 1 { busiest } else { first };
                let spent: Vec<String> = spent.iter().map(|spent| format!("{spent:.2}")).collect();
                let (spent, ratio) = (spent.join(" + "), first / busiest);
                println!("  {reactors} reactors {rate:8.0}/s  {spent:<24} the busiest thread: 1/{ratio:.2}");
            }
        }
    }
}
