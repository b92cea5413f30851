//! What rude hosts and the witness say: NBD and NVMe over TCP to the byte, so that any half of a message can be said.

#[path = "../support/authentication.rs"]
pub mod authentication;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use openftl_nvme_auth::{Credentials, DhGroup, Policy, Secret};
use openftl_nvme_tcp::fabrics::{CONTROLLER_ID_ANY, Identity, QueueParameters};
use openftl_nvme_tcp::{Client, ClientError, InitiatorConfig};

/// The name of honest NVMe hosts.
pub const HONEST: &str = "nqn.2026-11.org.example:host";

/// The name of hosts that may come, and are rude.
pub const RUDE: &str = "nqn.2026-11.org.example:rude";

/// What both know, where hosts have to show who they are.
const SECRET: &str = "DHHC-1:00:2wKd3YDIcRMN/rCJa/k60E8xBQMw+2D9UnigSQ6YFkEHV3Yy:";

/// The names and secrets, as an operator writes them.
pub fn secrets() -> String {
    format!("{HONEST} {SECRET}\n{RUDE} {SECRET}\n")
}

/// Where the server is reached.
pub struct Place {
    pub nbd: PathBuf,
    pub nvme: SocketAddr,
    pub subsystem: String,
    /// Where it is controlled, if it is.
    pub control: Option<PathBuf>,
}

/// A wait that only a hang reaches.
pub const BOUND: Duration = Duration::from_secs(120);

pub const BLOCK: usize = 4096;

pub mod nbd {
    pub const READ: u16 = 0;
    pub const WRITE: u16 = 1;
    pub const FLUSH: u16 = 3;
    pub const TRIM: u16 = 4;
}

/// An NBD client with simple replies, one request at a time unless it is rude.
pub struct Nbd(pub UnixStream);

impl Nbd {
    pub fn open(path: &Path) -> Nbd {
        let mut stream = UnixStream::connect(path).expect("the server listens");
        stream.set_read_timeout(Some(BOUND)).unwrap();
        stream.set_write_timeout(Some(BOUND)).unwrap();
        let mut greeting = [0; 18];
        stream.read_exact(&mut greeting).expect("the server shakes hands");
        // The default export: flags, IHAVEOPT, NBD_OPT_EXPORT_NAME, no name.
        stream.write_all(b"\0\0\0\x03IHAVEOPT\0\0\0\x01\0\0\0\0").unwrap();
        stream.read_exact(&mut [0; 10]).expect("the default export");
        Nbd(stream)
    }

    /// The header of a request.
    pub fn head(kind: u16, offset: u64, length: usize) -> [u8; 28] {
        let mut head = [0; 28];
        head[..4].copy_from_slice(&0x2560_9513_u32.to_be_bytes());
        head[6..8].copy_from_slice(&kind.to_be_bytes());
        head[16..24].copy_from_slice(&offset.to_be_bytes());
        head[24..].copy_from_slice(&(length as u32).to_be_bytes());
        head
    }

    /// Makes a request and waits for its reply; what was read.
    pub fn ask(&mut self, kind: u16, offset: u64, length: usize, data: &[u8]) -> Vec<u8> {
        self.0.write_all(&[&Nbd::head(kind, offset, length), data].concat()).expect("the server hears");
        let mut reply = [0; 16];
        self.0.read_exact(&mut reply).expect("the server answers");
        assert_eq!(reply[4..8], [0; 4], "the request is served");
        let mut read = vec![0; if kind == nbd::READ { length } else { 0 }];
        self.0.read_exact(&mut read).expect("the server sends what it read");
        read
    }
}

pub type Queue = Client<TcpStream>;

/// A queue of a host of this name, its socket for what no client says, the controller, and whether the host has to show that
/// it is who it says.
///
/// # Errors
/// Whatever comes in between.
pub fn connect(
    at: SocketAddr,
    host: &str,
    subsystem: &str,
    (id, controller): (u16, u16),
) -> Result<(Queue, TcpStream, u16, bool), ClientError> {
    let stream = TcpStream::connect(at)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(BOUND))?;
    stream.set_write_timeout(Some(BOUND))?;
    let raw = stream.try_clone()?;
    let config = InitiatorConfig { entries: 64, ..InitiatorConfig::default() };
    let mut client = Client::open(stream, config)?;
    let entries = if id == 0 { 32 } else { config.entries };
    let parameters = QueueParameters { queue_id: id, entries, flow_control: false, keep_alive_ms: 0 };
    let identity = Identity { host_id: [7; 16], host_nqn: host.to_owned(), subsystem_nqn: subsystem.to_owned() };
    let connected = client.connect(parameters, &identity, controller)?;
    Ok((client, raw, connected.controller_id, connected.authentication_required))
}

/// The same of an honest host, which shows who it is.
pub fn queue(at: SocketAddr, subsystem: &str, id: u16, controller: u16) -> (Queue, TcpStream, u16) {
    let connected = connect(at, HONEST, subsystem, (id, controller));
    let (mut queue, raw, controller, must_show) = connected.expect("the host may connect");
    if must_show {
        let mut host = authenticator(HONEST, subsystem, DhGroup::Ffdhe2048);
        let shown = authentication::authenticate(&mut queue, &mut host, 1);
        assert!(shown.is_ok(), "the secret is the right one: {shown:?}");
    }
    (queue, raw, controller)
}

/// Shows that a host is `host`, with keys of `group`.
pub fn authenticator(host: &str, subsystem: &str, group: DhGroup) -> openftl_nvme_auth::Host {
    let secret: Secret = SECRET.parse().expect("a secret");
    openftl_nvme_auth::Host::new(Credentials::new(host, subsystem, &secret, None), Policy::with_groups(vec![group]))
}

/// An NVMe host that is ready: its admin queue, and an I/O queue.
pub struct Host {
    _admin: Queue,
    pub queue: Queue,
    pub raw: TcpStream,
}

impl Host {
    pub fn open(place: &Place) -> Host {
        let (at, subsystem) = (place.nvme, &place.subsystem);
        let (mut admin, _, controller) = queue(at, subsystem, 0, CONTROLLER_ID_ANY);
        admin.start_controller(|| true).expect("the controller starts");
        admin.set_number_of_queues(1).expect("there may be an I/O queue");
        let (queue, raw, _) = queue(at, subsystem, 1, controller);
        Host { _admin: admin, queue, raw }
    }
}

/// A submission queue entry of namespace 1, with dwords from 10 on.
pub fn entry(opcode: u8, id: u16, dwords: [u32; 3]) -> [u8; 64] {
    let mut entry = [0; 64];
    entry[0] = opcode;
    entry[2..4].copy_from_slice(&id.to_le_bytes());
    entry[4] = 1;
    for (field, dword) in entry[40..].chunks_exact_mut(4).zip(dwords) {
        field.copy_from_slice(&dword.to_le_bytes());
    }
    entry
}

/// A command capsule whose data, `bytes` of them, do not come with it.
pub fn capsule(entry: [u8; 64], bytes: u32) -> Vec<u8> {
    // CapsuleCmd, 72 bytes; the entry's SGL is a transport data block.
    let mut capsule = vec![4, 0, 72, 0, 72, 0, 0, 0];
    capsule.extend_from_slice(&entry);
    capsule[8 + 1] = 0x40;
    capsule[8 + 32..8 + 36].copy_from_slice(&bytes.to_le_bytes());
    capsule[8 + 39] = 0x5a;
    capsule
}

/// The header of an H2CData with all the data of the first R2T of the first command.
pub fn data_head(id: u16, bytes: u32) -> Vec<u8> {
    let mut head = vec![6, 4, 24, 24];
    head.extend_from_slice(&(24 + bytes).to_le_bytes());
    head.extend_from_slice(&id.to_le_bytes());
    head.extend_from_slice(&[0; 6]);
    head.extend_from_slice(&bytes.to_le_bytes());
    head.extend_from_slice(&[0; 4]);
    head
}
