//! A server of NVMe hosts in a thread of its own, and hosts that know their manners.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use crate::memory::{Memory, Switches};
use crate::reactors::with_reactors;
use openftl_blocks::Ftl;
use openftl_core::{BLOCK_BYTES, Clock, Time};
use openftl_media::{EmulatedDevice, Profile, Store, Timing};
use openftl_nvme::{
    BlockFormat, Hints, HostsAllowed, Namespace, NamespaceKind, Nqn, PageShape, Port, SegmentShape, SubsystemConfig,
    Target, ZonedShape,
};
use openftl_nvme_auth::{Policy, Secrets, TlsKeys};
use openftl_nvme_tcp::client::Payload;
use openftl_nvme_tcp::fabrics::{CONTROLLER_ID_ANY, Identity, QueueParameters};
use openftl_nvme_tcp::{Client, ClientError, InitiatorConfig};
use openftl_pages::PageFtl;
use openftl_parts::Config;
use openftl_server::{
    AttachError, Counters, Device, Drives, Endpoint, Export, Operator, Other, Protocol, Recorder, ServeError,
    ServedDrive, Server, ServerConfig, Stop, TlsPolicy, WallClock,
};
use openftl_zones::{Face, Limits, ZoneConfig, ZoneFtl};

pub const SUBSYSTEM: &str = "nqn.2026-11.org.example:drive";
pub const DISCOVERY: &str = "nqn.2014-08.org.nvmexpress.discovery";
pub const HOST: &str = "nqn.2026-11.org.example:host";

/// Status codes without the advice, as the specification writes them.
pub mod status {
    pub const INVALID_OPCODE: u16 = 0x001;
    pub const INVALID_FIELD: u16 = 0x002;
    pub const ID_CONFLICT: u16 = 0x003;
    pub const ABORT_REQUESTED: u16 = 0x007;
    pub const FAILED_FUSED: u16 = 0x009;
    pub const MISSING_FUSED: u16 = 0x00a;
    pub const INVALID_NAMESPACE: u16 = 0x00b;
    pub const SEQUENCE_ERROR: u16 = 0x00c;
    pub const SGL_LENGTH_INVALID: u16 = 0x00f;
    pub const TRANSIENT_TRANSPORT_ERROR: u16 = 0x022;
    pub const LBA_OUT_OF_RANGE: u16 = 0x080;
    pub const NAMESPACE_NOT_READY: u16 = 0x082;
    pub const EVENT_LIMIT_EXCEEDED: u16 = 0x105;
    pub const CONNECT_INVALID_PARAMETERS: u16 = 0x182;
    pub const CONNECT_INVALID_HOST: u16 = 0x184;
    pub const AUTHENTICATION_REQUIRED: u16 = 0x191;
    pub const SIZE_EXCEEDED: u16 = 0x183;
    pub const UNRECOVERED_READ: u16 = 0x281;
    pub const COMPARE_FAILURE: u16 = 0x285;
}

impl ServedDrive for Memory {
    type Device = EmulatedDevice;
}

/// A clock that stands still until the test moves it, except for a drive that waits.
#[derive(Clone, Default)]
pub struct TestClock(pub Arc<AtomicU64>);

impl Clock for TestClock {
    fn now(&mut self) -> Time {
        Time(self.0.load(Ordering::SeqCst))
    }

    fn wait_until(&mut self, due: Time) -> Time {
        Time(self.0.fetch_max(due.0, Ordering::SeqCst).max(due.0))
    }
}

/// Attaches and detaches when it is called.
struct Attacher {
    bell: UnixStream,
    wanted: Receiver<(usize, bool)>,
    done: Sender<Result<(), AttachError>>,
}

impl Operator<Memory> for Attacher {
    fn event(&self) -> Option<BorrowedFd<'_>> {
        Some(self.bell.as_fd())
    }

    fn next_due(&self) -> Option<Time> {
        None
    }

    fn turn(&mut self, _now: Time, called: bool, drives: &mut Drives<'_, '_, Memory>) -> ControlFlow<()> {
        if called {
            self.bell.read_exact(&mut [0]).expect("the bell was rung");
            for (export, is_attached) in self.wanted.try_iter() {
                self.done.send(drives.set_attached(export, is_attached)).expect("the test waits");
            }
        }
        ControlFlow::Continue(())
    }
}

/// A server in a thread of its own.
pub struct Served {
    pub address: SocketAddr,
    pub stop: Stop,
    pub counters: Arc<Counters>,
    pub switches: Arc<Switches>,
    bell: UnixStream,
    wants: Sender<(usize, bool)>,
    done: Mutex<Receiver<Result<(), AttachError>>>,
    thread: Option<JoinHandle<(Result<(), ServeError>, Memory)>>,
}

/// A small zoned drive, of three parallel units a zone: two zones may be open, and three active.
pub fn zoned_drive() -> ZoneFtl<EmulatedDevice> {
    zoned_drive_with(0, 0)
}

/// The same with so many bytes of zone descriptor extension.
pub fn zoned_drive_with(extension_bytes: u32, window_blocks: u32) -> ZoneFtl<EmulatedDevice> {
    drive_of(Face::Zones, Limits { max_open: 2, max_active: 3 }, 2048, extension_bytes, window_blocks)
}

/// A drive of as many segments, three of which may be written in part, with room for so many blocks of requests.
pub fn segment_drive(host_frames: u32) -> ZoneFtl<EmulatedDevice> {
    drive_of(Face::Segments, Limits { max_open: 3, max_active: 3 }, host_frames, 0, 0)
}

fn drive_of(
    face: Face,
    limits: Limits,
    host_frames: u32,
    extension_bytes: u32,
    window_blocks: u32,
) -> ZoneFtl<EmulatedDevice> {
    let profile = Profile::builtin("tiny").unwrap();
    let device = EmulatedDevice::new(profile, 48, Store::Ram, Timing::Modelled, 1).unwrap();
    let config = Config { host_frames, checkpoint_log_blocks: Some(8), ..Config::default() };
    let zones = ZoneConfig { face, width: 3, limits, zones: None, extension_bytes, window_blocks };
    ZoneFtl::format(device, config, zones, &mut WallClock::new()).unwrap()
}

/// A small store of pages.
pub fn page_store() -> PageFtl<EmulatedDevice> {
    let profile = Profile::builtin("tiny").unwrap();
    let device = EmulatedDevice::new(profile, 64, Store::Ram, Timing::Modelled, 1).unwrap();
    let config = Config { host_frames: 2048, checkpoint_log_blocks: Some(8), ..Config::default() };
    PageFtl::format(device, config, (), &mut WallClock::new()).unwrap()
}

/// What hosts see a zoned drive as.
fn kind_of(drive: &ZoneFtl<EmulatedDevice>) -> NamespaceKind {
    let layout = drive.layout();
    match drive.face() {
        Face::Zones => NamespaceKind::Zoned(ZonedShape::of(layout, drive.board().limits())),
        Face::Segments => NamespaceKind::Segments(SegmentShape { segments: layout.zones, blocks: layout.capacity }),
    }
}

/// What a test wants otherwise.
pub struct Wishes<C> {
    pub config: ServerConfig,
    pub clock: C,
    pub hosts: HostsAllowed,
    pub format: BlockFormat,
    /// Namespace 2: zones, or blocks in segments.
    pub zoned: Option<ZoneFtl<EmulatedDevice>>,
    /// The namespace behind it: a store of pages.
    pub pages: Option<PageFtl<EmulatedDevice>>,
    /// The namespace behind that.
    pub device: Option<EmulatedDevice>,
    /// The keys of hosts that use TLS.
    pub tls: Option<(TlsKeys, TlsPolicy)>,
    pub recorder: Option<Arc<Recorder>>,
    /// Where NBD clients find namespace 1, too.
    pub nbd: Option<PathBuf>,
}

impl Default for Wishes<WallClock> {
    fn default() -> Wishes<WallClock> {
        Wishes::at(WallClock::new())
    }
}

impl<C> Wishes<C> {
    pub fn at(clock: C) -> Wishes<C> {
        let config = ServerConfig::default();
        let (hosts, format) = (HostsAllowed::Any, BlockFormat::FourKib);
        Wishes {
            config,
            clock,
            hosts,
            format,
            zoned: None,
            pages: None,
            device: None,
            tls: None,
            recorder: None,
            nbd: None,
        }
    }
}

impl Served {
    pub fn new(drive: Memory) -> Served {
        Served::with(drive, Wishes::default())
    }

    pub fn with<C: Clock + Send + 'static>(drive: Memory, wishes: Wishes<C>) -> Served {
        Served::start(drive, wishes, None)
    }

    /// A server whose hosts have to know their secrets.
    pub fn that_authenticates<C: Clock + Send + 'static>(drive: Memory, wishes: Wishes<C>, secrets: Secrets) -> Served {
        Served::start(drive, wishes, Some(secrets))
    }

    fn start<C: Clock + Send + 'static>(drive: Memory, wishes: Wishes<C>, secrets: Option<Secrets>) -> Served {
        let Wishes { config, mut clock, hosts, format, zoned, pages, device, tls, recorder, nbd } = wishes;
        let mut server = Server::new(with_reactors(config)).unwrap();
        recorder.into_iter().for_each(|recorder| server.set_recorder(recorder));
        let endpoint = server.listen("127.0.0.1:0".parse().unwrap(), Protocol::NvmeTcp).unwrap();
        let Endpoint::Tcp(address) = endpoint else { unreachable!("listened on TCP") };
        if let Some(path) = nbd {
            server.listen(Endpoint::Unix(path), Protocol::Nbd).unwrap();
        }
        let subsystem = SubsystemConfig {
            hosts,
            requires_authentication: secrets.is_some(),
            ..SubsystemConfig::new(Nqn::new(SUBSYSTEM).unwrap(), "1")
        };
        let mut target = Target::new("1", "OpenFTL", "1");
        let index = target.add_subsystem(subsystem).unwrap();
        let bytes = drive.data().len() as u64;
        let kind = NamespaceKind::Block { format, bytes, hints: Hints::None };
        target.attach(index, Namespace { id: 1, uuid: [1; 16], kind }).unwrap();
        let zoned = zoned.into_iter().map(|drive| Other::Zones(Box::new(drive)));
        let pages = pages.into_iter().map(|drive| Other::Pages(Box::new(drive)));
        let devices = device.into_iter().map(|device| Other::Device(Device::new(device, 64)));
        let mut others: Vec<Other<EmulatedDevice>> = zoned.chain(pages).chain(devices).collect();
        let kinds = others.iter().map(|other| match other {
            Other::Zones(drive) => kind_of(drive),
            Other::Pages(drive) => NamespaceKind::Pages(PageShape {
                capacity_bytes: drive.capacity_bytes(),
                page_bytes_max: drive.page_bytes_max(),
            }),
            Other::Values(_) => unreachable!("these have tests of their own"),
            Other::Device(device) => NamespaceKind::OpenChannel(device.geometry()),
        });
        for (id, kind) in (2..).zip(kinds) {
            target.attach(index, Namespace { id, uuid: [id as u8; 16], kind }).unwrap();
        }
        target.add_port(Port { id: 1, address });
        server.set_target(target);
        secrets.into_iter().for_each(|secrets| server.set_secrets(secrets, Policy::default()).unwrap());
        tls.into_iter().for_each(|(keys, policy)| server.set_tls(&keys, policy).expect("this build has TLS"));
        let (stop, counters, switches) = (Stop::new().unwrap(), server.counters(), Arc::clone(&drive.switches));
        let its_stop = stop.clone();
        let (bell, its_bell) = UnixStream::pair().unwrap();
        let ((wants, wanted), (doing, done)) = (channel(), channel());
        let mut operator = Attacher { bell: its_bell, wanted, done: doing };
        let thread = std::thread::spawn(move || {
            let name = "disk".to_owned();
            let mut exports = [Export { name, description: String::new(), read_only: false, target: drive }];
            let result =
                server.run_with_others(&mut operator, &mut exports, &mut others, &mut clock, &its_stop).map(drop);
            let [export] = exports;
            (result, export.target)
        });
        Served { address, stop, counters, switches, bell, wants, done: Mutex::new(done), thread: Some(thread) }
    }

    /// Has hosts see a namespace, or see it no longer; it is so when this returns.
    pub fn set_attached(&self, namespace: usize, is_attached: bool) -> Result<(), AttachError> {
        let done = self.done.lock().expect("no test has failed here");
        self.wants.send((namespace - 1, is_attached)).expect("the server runs");
        (&self.bell).write_all(&[1]).expect("the bell is rung");
        done.recv().expect("the server runs")
    }

    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).expect("the server listens");
        stream.set_nodelay(true).unwrap();
        stream
    }

    /// An admin queue of `host`, whose controller is not started.
    pub fn admin_of(&self, host: &str, subsystem: &str, keep_alive_ms: u32) -> Result<(Admin, u16), ClientError> {
        self.admin_as(&identity(host, subsystem), keep_alive_ms)
    }

    fn admin_as(&self, identity: &Identity, keep_alive_ms: u32) -> Result<(Admin, u16), ClientError> {
        let mut admin = Client::open(self.connect(), InitiatorConfig::default())?;
        let queue = QueueParameters { queue_id: 0, entries: 32, flow_control: true, keep_alive_ms };
        let connected = admin.connect(queue, identity, CONTROLLER_ID_ANY)?;
        Ok((admin, connected.controller_id))
    }

    /// A host with a controller that is ready.
    pub fn host(&self) -> Host {
        self.host_that_keeps_alive(0)
    }

    pub fn host_that_keeps_alive(&self, keep_alive_ms: u32) -> Host {
        self.host_as(identity(HOST, SUBSYSTEM), keep_alive_ms)
    }

    /// The same, of a host with this identifier.
    pub fn host_of(&self, host_id: [u8; 16]) -> Host {
        self.host_as(Identity { host_id, ..identity(HOST, SUBSYSTEM) }, 0)
    }

    fn host_as(&self, identity: Identity, keep_alive_ms: u32) -> Host {
        let (mut admin, controller) = self.admin_as(&identity, keep_alive_ms).unwrap();
        admin.start_controller(|| false).unwrap();
        assert_eq!(admin.set_number_of_queues(64).unwrap(), 64);
        Host { address: self.address, identity, admin, controller }
    }

    /// Stops the server; what the drive holds.
    pub fn end(mut self) -> Memory {
        self.stop.request();
        let (result, drive) = self.thread.take().expect("ended once").join().unwrap();
        result.unwrap();
        assert!(drive.is_at_rest(), "the server kept a frame or a request");
        drive
    }
}

pub type Admin = Client<TcpStream>;

pub fn identity(host: &str, subsystem: &str) -> Identity {
    Identity { host_id: [7; 16], host_nqn: host.to_owned(), subsystem_nqn: subsystem.to_owned() }
}

/// A host with its admin queue.
pub struct Host {
    address: SocketAddr,
    identity: Identity,
    pub admin: Admin,
    pub controller: u16,
}

impl Host {
    /// An I/O queue of it.
    pub fn queue(&self, id: u16) -> Queue {
        self.queue_as(id, InitiatorConfig::default())
    }

    pub fn queue_as(&self, id: u16, config: InitiatorConfig) -> Queue {
        self.try_queue(id, config).expect("a queue of a ready controller")
    }

    pub fn try_queue(&self, id: u16, config: InitiatorConfig) -> Result<Queue, ClientError> {
        let stream = TcpStream::connect(self.address).expect("the server listens");
        stream.set_nodelay(true).unwrap();
        let raw = stream.try_clone().unwrap();
        let mut client = Client::open(stream, config)?;
        let queue = QueueParameters {
            queue_id: id,
            entries: config.entries,
            flow_control: id.is_multiple_of(2),
            keep_alive_ms: 0,
        };
        client.connect(queue, &self.identity, self.controller)?;
        Ok(Queue { client, raw })
    }
}

/// An I/O queue, and its socket for what no client says.
pub struct Queue {
    pub client: Client<TcpStream>,
    pub raw: TcpStream,
}

/// A submission queue entry: opcode, namespace, and dwords from 10 on.
pub fn entry(opcode: u8, namespace: u32, dwords: [u32; 3]) -> [u8; 64] {
    let mut entry = [0; 64];
    entry[0] = opcode;
    entry[4..8].copy_from_slice(&namespace.to_le_bytes());
    for (field, dword) in entry[40..].chunks_exact_mut(4).zip(dwords) {
        field.copy_from_slice(&dword.to_le_bytes());
    }
    entry
}

impl Queue {
    /// Runs one command; its status without the advice, and its data.
    pub fn run(&mut self, entry: &[u8; 64], payload: Payload) -> (u16, Vec<u8>) {
        self.client.submit(0, entry, payload);
        let ended = self.client.wait().expect("the server answers");
        assert!(ended.intact);
        (ended.status() & 0x7ff, ended.data)
    }

    /// The same, of a command without data.
    pub fn status(&mut self, entry: &[u8; 64]) -> u16 {
        self.run(entry, Payload::None).0
    }

    pub fn write(&mut self, first: u32, data: &[u8]) -> u16 {
        self.run(&write(first, data), Payload::ToController(data.to_vec())).0
    }

    pub fn read(&mut self, first: u32, blocks: u32) -> Vec<u8> {
        let room = vec![0xee; blocks as usize * BLOCK_BYTES];
        let (status, data) = self.run(&entry(0x02, 1, [first, 0, blocks - 1]), Payload::ToHost(room));
        assert_eq!(status, 0);
        data
    }

    pub fn flush(&mut self) -> u16 {
        self.status(&entry(0x00, 1, [0; 3]))
    }
}

/// A write of whole blocks of 4 KiB.
pub fn write(first: u32, data: &[u8]) -> [u8; 64] {
    entry(0x01, 1, [first, 0, (data.len() / BLOCK_BYTES) as u32 - 1])
}
