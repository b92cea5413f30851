//! An NVMe host of our own: an admin queue and one I/O queue with many commands under way.

use crate::program::BOUND;
use openftl_nvme_tcp::client::{Client, Payload};
use openftl_nvme_tcp::fabrics::{CONTROLLER_ID_ANY, Identity, QueueParameters};
use openftl_nvme_tcp::nvm::{self, Blocks};
use openftl_nvme_tcp::{ClientError, InitiatorConfig};
use std::net::TcpStream;

/// The subsystem that `openftl serve` makes.
pub const SUBSYSTEM: &str = "nqn.2026-11.org.openftl:drive";

/// The one namespace.
const NAMESPACE: u32 = 1;

/// A host that is connected.
pub struct NvmeHost {
    /// Its controller lives as long as this.
    _admin: Client<TcpStream>,
    queue: Client<TcpStream>,
    /// Bytes of a block of the namespace.
    pub block_bytes: usize,
    /// The most blocks of which the namespace says that a write is there whole or not at all after a power failure.
    pub atomic_blocks: u64,
}

impl NvmeHost {
    /// Connects to the controller at `address`.
    pub fn connect(address: &str) -> NvmeHost {
        let open = || {
            let stream = TcpStream::connect(address).expect("the server listens");
            stream.set_nodelay(true).expect("a socket of TCP");
            stream.set_read_timeout(Some(BOUND)).expect("a bound");
            Client::open(stream, InitiatorConfig::default()).expect("the server speaks NVMe over TCP")
        };
        let queue = |queue_id, entries| QueueParameters { queue_id, entries, flow_control: false, keep_alive_ms: 0 };
        let host_nqn = "nqn.2026-11.org.example:host".to_owned();
        let identity = Identity { host_id: [7; 16], host_nqn, subsystem_nqn: SUBSYSTEM.to_owned() };
        let mut admin = open();
        let connected = admin.connect(queue(0, 32), &identity, CONTROLLER_ID_ANY).expect("an admin queue");
        admin.start_controller(|| true).expect("the controller starts");
        admin.set_number_of_queues(1).expect("there may be an I/O queue");
        // Identify Namespace: FLBAS, NAWUPF, LBADS of the format in use.
        let data = admin.identify(0x00, NAMESPACE).expect("the namespace is there");
        let block_bytes = 1 << data[128 + 4 * usize::from(data[26] & 0xf) + 2];
        let atomic_blocks = u64::from(u16::from_le_bytes([data[36], data[37]])) + 1;
        let mut io = open();
        let entries = InitiatorConfig::default().entries;
        io.connect(queue(1, entries), &identity, connected.controller_id).expect("an I/O queue");
        NvmeHost { _admin: admin, queue: io, block_bytes, atomic_blocks }
    }

    fn blocks(&self, offset: u64, bytes: usize) -> Blocks {
        let block_bytes = self.block_bytes as u64;
        assert!(offset.is_multiple_of(block_bytes) && bytes.is_multiple_of(self.block_bytes), "whole blocks");
        Blocks { namespace: NAMESPACE, first: offset / block_bytes, count: (bytes / self.block_bytes) as u32 }
    }

    /// Sends a write without waiting for its end.
    pub fn send_write(&mut self, tag: u64, offset: u64, bytes: Vec<u8>, is_durable: bool) {
        let blocks = self.blocks(offset, bytes.len());
        let entry = if is_durable { nvm::durable_write(blocks) } else { nvm::write(blocks) };
        self.queue.submit(tag, &entry, Payload::ToController(bytes));
    }

    /// Waits until a command has ended: its tag, and its status code.
    ///
    /// # Errors
    /// If the connection has ended first.
    pub fn receive(&mut self) -> Result<(u64, u16), ClientError> {
        let ended = self.queue.wait()?;
        Ok((ended.tag, ended.status() & 0x7ff))
    }

    /// Flushes, with nothing else under way.
    pub fn flush(&mut self) {
        self.queue.flush(NAMESPACE).expect("a flush succeeds");
    }

    /// Reads, with nothing else under way.
    pub fn read(&mut self, offset: u64, bytes: usize) -> Vec<u8> {
        self.queue.read(self.blocks(offset, bytes), vec![0; bytes]).expect("every block can be read")
    }

    /// Asserts that the server closes this connection.
    pub fn ends_disconnected(mut self) {
        // Never answered: what asks for it is gone before.
        self.queue.submit(u64::MAX, &nvm::flush(NAMESPACE), Payload::None);
        while let Ok((tag, _)) = self.receive() {
            assert_ne!(tag, u64::MAX, "a drive without power has flushed");
        }
    }
}
