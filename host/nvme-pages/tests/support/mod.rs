//! A server of one store of pages in a thread of its own.

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;

use openftl_blocks::{BlockFtl, Ftl};
use openftl_media::{EmulatedDevice, Profile, Store, Timing};
use openftl_nvme::command::pages::PageCommand;
use openftl_nvme::{Namespace, NamespaceKind, Nqn, PageShape, Port, Status, SubsystemConfig, Target};
use openftl_nvme_media::association::Association;
use openftl_nvme_media::uri::DriveUri;
use openftl_nvme_pages::RemoteStore;
use openftl_nvme_tcp::Client;
use openftl_nvme_tcp::client::Payload;
use openftl_nvme_tcp::fabrics::Identity;
use openftl_pages::{PageFtl, SessionId};
use openftl_parts::Config;
use openftl_server::{Counters, Endpoint, Export, NoOperator, Other, Protocol, Server, ServerConfig, Stop, WallClock};
use zerocopy::IntoBytes;

/// The subsystem that a URI names without saying so.
pub const SUBSYSTEM: &str = "nqn.2026-11.org.openftl:drive";

pub type Drive = PageFtl<EmulatedDevice>;

/// A small store in memory, on flash that takes its time.
pub fn drive() -> Drive {
    drive_on("cosmos", 28, Timing::Modelled)
}

/// The same on flash of a profile with so many chunks on each parallel unit.
pub fn drive_on(profile: &str, chunks: u32, timing: Timing) -> Drive {
    let device = EmulatedDevice::new(Profile::builtin(profile).unwrap(), chunks, Store::Ram, timing, 1).unwrap();
    let config = Config { host_frames: 4096, ..Config::default() };
    PageFtl::format(device, config, (), &mut WallClock::new()).unwrap()
}

/// See the module.
pub struct Served {
    pub address: SocketAddr,
    pub counters: Arc<Counters>,
    stop: Stop,
    thread: Option<JoinHandle<Drive>>,
}

impl Served {
    pub fn new(drive: Drive) -> Served {
        Served::with(drive, ServerConfig::default())
    }

    pub fn with(drive: Drive, config: ServerConfig) -> Served {
        let mut server = Server::new(config).unwrap();
        let Endpoint::Tcp(address) = server.listen("127.0.0.1:0".parse().unwrap(), Protocol::NvmeTcp).unwrap() else {
            unreachable!("listened on TCP")
        };
        let mut target = Target::new("1", "OpenFTL", "1");
        let subsystem = target.add_subsystem(SubsystemConfig::new(Nqn::new(SUBSYSTEM).unwrap(), "1")).unwrap();
        let (capacity_bytes, page_bytes_max) = (drive.capacity_bytes(), drive.page_bytes_max());
        let kind = NamespaceKind::Pages(PageShape { capacity_bytes, page_bytes_max });
        target.attach(subsystem, Namespace { id: 1, uuid: [1; 16], kind }).unwrap();
        target.add_port(Port { id: 1, address });
        server.set_target(target);
        let (stop, counters) = (Stop::new().unwrap(), server.counters());
        let its_stop = stop.clone();
        let thread = std::thread::spawn(move || {
            let exports: &mut [Export<BlockFtl<EmulatedDevice>>] = &mut [];
            let mut others = [Other::Pages(Box::new(drive))];
            let served =
                server.run_with_others(&mut NoOperator, exports, &mut others, &mut WallClock::new(), &its_stop);
            served.unwrap();
            let [Other::Pages(drive)] = others else { unreachable!("it was a store of pages") };
            *drive
        });
        Served { address, counters, stop, thread: Some(thread) }
    }

    pub fn uri(&self) -> DriveUri {
        format!("nvme-tcp://{}", self.address).parse().unwrap()
    }

    pub fn connect(&self) -> RemoteStore {
        RemoteStore::connect(&self.uri()).unwrap()
    }

    /// A host that says what it is told.
    pub fn host(&self) -> Host {
        let identity = Identity {
            host_id: [9; 16],
            host_nqn: "nqn.2024-01.org.example:host".to_owned(),
            subsystem_nqn: SUBSYSTEM.to_owned(),
        };
        let association = Association::make(self.address, &identity, openftl_nvme_media::ANSWER_MAX).unwrap();
        let io = association.io_queue(64).unwrap();
        Host { io, admin: association }
    }

    /// Stops the server. The drive as it leaves it.
    pub fn end(mut self) -> Drive {
        self.stop.request();
        self.thread.take().expect("ended once").join().expect("the server stops")
    }
}

/// A host with an I/O queue.
pub struct Host {
    pub io: Client<TcpStream>,
    pub admin: Association,
}

impl Host {
    /// Runs a command: its status without the advice, its result, and its data.
    pub fn run(&mut self, command: PageCommand, payload: Payload) -> (Status, u64, Vec<u8>) {
        let entry = command.entry(1);
        self.io.submit(0, entry.as_bytes().try_into().unwrap(), payload);
        let ended = self.io.wait().expect("the server answers");
        let status = Status::from_field(ended.status() & !(1 << 13));
        let mut data = ended.data;
        data.truncate(ended.received);
        (status, ended.completion.specific.get(), data)
    }

    /// Opens a session that is not open.
    pub fn open(&mut self, id: u8) -> u32 {
        let (status, result, _) = self.run(PageCommand::Open, Payload::ToController(session(id).0.to_vec()));
        assert_eq!(status, Status::SUCCESS);
        result as u32
    }
}

pub fn session(id: u8) -> SessionId {
    SessionId([id; 16])
}

/// Bytes of a page that say which they are.
pub fn bytes_of(lpid: u64, turn: u64, length: usize) -> Vec<u8> {
    let seed = lpid.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ turn.wrapping_mul(0xd1b5_4a32_d192_ed03);
    (0..length as u64).map(|at| (seed.rotate_left((at % 61) as u32) >> 32) as u8 ^ at as u8).collect()
}
