//! A server of one key-value drive in a thread of its own.

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;

use openftl_blocks::{BlockFtl, Ftl};
use openftl_media::{EmulatedDevice, Profile, Store, Timing};
use openftl_nvme::command::ValueCommand;
use openftl_nvme::{Namespace, NamespaceKind, Nqn, Port, Status, SubmissionEntry, SubsystemConfig, Target, ValueShape};
use openftl_nvme_media::association::Association;
use openftl_nvme_media::uri::DriveUri;
use openftl_nvme_tcp::Client;
use openftl_nvme_tcp::client::Payload;
use openftl_nvme_tcp::fabrics::Identity;
use openftl_nvme_values::RemoteValues;
use openftl_parts::Config;
use openftl_server::{Counters, Endpoint, Export, NoOperator, Other, Protocol, Server, ServerConfig, Stop, WallClock};
use openftl_values::{Key, ValueConfig, ValueFtl, ValueInfo, ValueTarget};
use zerocopy::IntoBytes;

/// The subsystem that a URI names without saying so.
pub const SUBSYSTEM: &str = "nqn.2026-11.org.openftl:drive";

pub type Drive = ValueFtl<EmulatedDevice>;

/// A small drive in memory, on flash that takes its time.
pub fn drive() -> Drive {
    drive_like(ValueConfig::default())
}

pub fn drive_like(shape: ValueConfig) -> Drive {
    // Chunks of 4 MiB, so that a value has up to 1 MiB.
    let profile = Profile::builtin("granby").unwrap();
    let device = EmulatedDevice::new(profile, 8, Store::Ram, Timing::Modelled, 1).unwrap();
    let config = Config { host_frames: 4096, ..Config::default() };
    ValueFtl::format(device, config, shape, &mut WallClock::new()).unwrap()
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
        let mut server = Server::new(ServerConfig::default()).unwrap();
        let Endpoint::Tcp(address) = server.listen("127.0.0.1:0".parse().unwrap(), Protocol::NvmeTcp).unwrap() else {
            unreachable!("listened on TCP")
        };
        let mut target = Target::new("1", "OpenFTL", "1");
        let subsystem = target.add_subsystem(SubsystemConfig::new(Nqn::new(SUBSYSTEM).unwrap(), "1")).unwrap();
        let ValueInfo { capacity_bytes, keys_max, key_max, value_max, .. } = drive.info();
        let shape = ValueShape { capacity_bytes, keys_max, key_max, drive_value_max: value_max };
        let kind = NamespaceKind::Values(shape);
        target.attach(subsystem, Namespace { id: 1, uuid: [1; 16], kind }).unwrap();
        target.add_port(Port { id: 1, address });
        server.set_target(target);
        let (stop, counters) = (Stop::new().unwrap(), server.counters());
        let its_stop = stop.clone();
        let thread = std::thread::spawn(move || {
            let exports: &mut [Export<BlockFtl<EmulatedDevice>>] = &mut [];
            let mut others = [Other::Values(Box::new(drive))];
            let served =
                server.run_with_others(&mut NoOperator, exports, &mut others, &mut WallClock::new(), &its_stop);
            served.unwrap();
            let [Other::Values(drive)] = others else { unreachable!("it was a key-value drive") };
            *drive
        });
        Served { address, counters, stop, thread: Some(thread) }
    }

    pub fn uri(&self) -> DriveUri {
        format!("nvme-tcp://{}", self.address).parse().unwrap()
    }

    pub fn connect(&self) -> RemoteValues {
        RemoteValues::connect(&self.uri()).unwrap()
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
    /// Runs a command: its status without the remark that the log says more, its result, and its data.
    pub fn run(&mut self, command: ValueCommand, payload: Payload) -> (Status, u64, Vec<u8>) {
        self.run_entry(&command.entry(1), payload)
    }

    pub fn run_entry(&mut self, entry: &SubmissionEntry, payload: Payload) -> (Status, u64, Vec<u8>) {
        self.io.submit(0, entry.as_bytes().try_into().unwrap(), payload);
        let ended = self.io.wait().expect("the server answers");
        let status = Status::from_field(ended.status() & !(1 << 13));
        let mut data = ended.data;
        data.truncate(ended.received);
        (status, ended.completion.specific.get(), data)
    }
}

pub fn key(bytes: impl AsRef<[u8]>) -> Key {
    Key::new(bytes.as_ref()).unwrap()
}

/// Bytes that say of which key and turn they are.
pub fn bytes_of(key: u64, turn: u64, length: usize) -> Vec<u8> {
    let seed = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ turn.wrapping_mul(0xd1b5_4a32_d192_ed03);
    (0..length as u64).map(|at| (seed.rotate_left((at % 61) as u32) >> 32) as u8 ^ at as u8).collect()
}
