//! Hosts that shake hands as they should and then say anything: right commands with wrong fields, data nobody asked for,
//! half of a message. What they say is left to chance, or to a fuzzer.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};

use crate::nvme::{HOST, SUBSYSTEM, Served, identity};
use openftl_nvme_tcp::fabrics::{CONTROLLER_ID_ANY, QueueParameters};
use openftl_nvme_tcp::{Client, InitiatorConfig};

/// Decides what is left to it.
pub trait Chance {
    /// Any number; of which some only look at the lower bits.
    fn next(&mut self) -> u32;

    fn below(&mut self, bound: u32) -> u32 {
        self.next() % bound
    }

    fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u32) as usize]
    }

    /// A number such as stands in a field: mostly small, sometimes any.
    fn field(&mut self) -> u32 {
        let any = self.next();
        self.of(&[0, 1, 2, 7, 16, 255, 256, 511, 512, 1 << 16, any, u32::MAX])
    }

    /// A few bytes that may be anything, or many that differ.
    fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut byte = 0_u8;
        let next = |index| {
            byte = if index < 72 { self.next() as u8 } else { byte.wrapping_mul(5).wrapping_add(17) };
            byte
        };
        (0..count).map(next).collect()
    }
}

/// Opcodes of both kinds of queue, and of fabrics.
const OPCODES: [u8; 31] = [
    0x00, 0x01, 0x02, 0x04, 0x05, 0x06, 0x08, 0x09, 0x0a, 0x0c, 0x0d, 0x10, 0x15, 0x18, 0x19, 0x7f, 0x7f, 0x7f, 0x80,
    0x90, 0x91, 0x92, 0x93, 0xe2, 0x79, 0x7a, 0x7d, 0xa1, 0xa2, 0xa5, 0xa6,
];

/// A command capsule, more or less.
fn capsule(chance: &mut impl Chance) -> Vec<u8> {
    let any = chance.next() as u8;
    let mut capsule = vec![0; 72];
    let in_capsule = chance.of(&[0, 0, 16, 512, 1024, 4096, 8192]);
    (capsule[0], capsule[2], capsule[3]) = (0x04, 72, if in_capsule > 0 { 72 } else { 0 });
    capsule[4..8].copy_from_slice(&(72 + in_capsule as u32).to_le_bytes());
    let entry = &mut capsule[8..];
    (entry[0], entry[1]) = (chance.of(&[chance_opcode(any), any]), chance.of(&[0x40, 0x40, 0x40, any]));
    entry[2..4].copy_from_slice(&(chance.below(6) as u16).to_le_bytes());
    let namespace = chance.of(&[1, 1, 3, 2, 2, 2, 0, 3, 4, 5, 6, 8, u32::MAX]);
    entry[4..8].copy_from_slice(&namespace.to_le_bytes());
    let length = chance.of(&[in_capsule as u32, in_capsule as u32, 512, 4096, 65_536, 1 << 20, 0]);
    entry[32..36].copy_from_slice(&length.to_le_bytes());
    entry[39] = if in_capsule > 0 { chance.of(&[0x01, 0x01, 0x5a]) } else { chance.of(&[0x5a, 0x5a, 0x01, any]) };
    for dword in entry[40..].chunks_exact_mut(4) {
        dword.copy_from_slice(&chance.field().to_le_bytes());
    }
    let data = chance.bytes(in_capsule);
    [capsule, data].concat()
}

fn chance_opcode(any: u8) -> u8 {
    OPCODES[usize::from(any) % OPCODES.len()]
}

/// Data as if somebody had asked for them.
fn unasked_data(chance: &mut impl Chance) -> Vec<u8> {
    let bytes = chance.of(&[4_usize, 512, 4096]);
    let mut header = vec![0; 24];
    (header[0], header[1], header[2], header[3]) = (0x06, 0x04, 24, 24);
    header[4..8].copy_from_slice(&(24 + bytes as u32).to_le_bytes());
    header[8..10].copy_from_slice(&(chance.below(6) as u16).to_le_bytes());
    header[10..12].copy_from_slice(&(chance.below(24) as u16).to_le_bytes());
    header[12..16].copy_from_slice(&chance.of(&[0_u32, 512, 4096]).to_le_bytes());
    header[16..20].copy_from_slice(&(bytes as u32).to_le_bytes());
    let data = chance.bytes(bytes);
    [header, data].concat()
}

/// Says something, hears the server out and leaves.
fn rant(mut stream: TcpStream, chance: &mut impl Chance) {
    let mut ears = stream.try_clone().unwrap();
    // Answers are taken all the time, so that what is said can be heard.
    let listener = std::thread::spawn(move || drop(ears.read_to_end(&mut Vec::new())));
    for _ in 0..1 + chance.below(12) {
        let said = match chance.below(12) {
            0 => chance.bytes(72),
            1 | 2 => unasked_data(chance),
            _ => capsule(chance),
        };
        let cut = if chance.below(20) == 0 { chance.below(said.len() as u32) as usize } else { said.len() };
        // The server may have had enough.
        if stream.write_all(&said[..cut]).is_err() || cut < said.len() {
            break;
        }
    }
    _ = stream.shutdown(Shutdown::Write);
    listener.join().unwrap();
}

fn open(served: &Served, queue: QueueParameters, controller: u16) -> (TcpStream, u16, Client<TcpStream>) {
    let stream = served.connect();
    let raw = stream.try_clone().unwrap();
    let mut client = Client::open(stream, InitiatorConfig::default()).unwrap();
    let connected = client.connect(queue, &identity(HOST, SUBSYSTEM), controller).unwrap();
    (raw, connected.controller_id, client)
}

/// One visit: a controller, ready or not, a queue of it, and what is said on either.
pub fn visit(served: &Served, chance: &mut impl Chance) {
    let admin_queue = QueueParameters { queue_id: 0, entries: 8, flow_control: true, keep_alive_ms: 0 };
    let (raw, controller, mut admin) = open(served, admin_queue, CONTROLLER_ID_ANY);
    if chance.below(8) > 0 {
        admin.start_controller(|| false).unwrap();
        admin.set_number_of_queues(4).unwrap();
        let io_queue = QueueParameters { queue_id: 1, flow_control: chance.below(2) == 0, ..admin_queue };
        let (io, _, _client) = open(served, io_queue, controller);
        if chance.below(3) > 0 {
            rant(io, chance);
        }
    }
    if chance.below(2) == 0 {
        rant(raw, chance);
    }
}
