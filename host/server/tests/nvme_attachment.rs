//! Namespaces that are detached from hosts and attached again while these are at work.

use std::io::{Read, Write};

use crate::memory::{Memory, Temper};
use crate::nvme::{Host, Queue, Served, Wishes, entry, status, write};
use openftl_core::{BLOCK_BYTES, Nanos};
use openftl_media::{EmulatedDevice, Profile, Store, Timing};
use openftl_nvme_tcp::client::Payload;
use openftl_server::AttachError;

const SHUFFLED: Temper = Temper::Shuffled { seed: 1, within: Nanos::from_micros(200) };

/// Asynchronous Event Request, and what ends it: a notice, Namespace Attribute Changed, in log page 04h.
const EVENT_REQUEST: u8 = 0x0c;
const NAMESPACES_CHANGED: u32 = 0x0004_0002;

fn served() -> Served {
    let device = EmulatedDevice::new(Profile::builtin("tiny").unwrap(), 8, Store::Ram, Timing::Instant, 1).unwrap();
    Served::with(Memory::new(512, 256, SHUFFLED), Wishes { device: Some(device), ..Wishes::default() })
}

/// A host that wants to hear of namespaces.
fn listening(served: &Served) -> Host {
    let mut host = served.host();
    host.admin.submit(0, &entry(0x09, 0, [0x0b, 0x100, 0]), Payload::None);
    assert_eq!(host.admin.wait().unwrap().status(), 0);
    host.admin.submit(1, &entry(EVENT_REQUEST, 0, [0; 3]), Payload::None);
    host
}

/// The log page of changed namespaces.
fn changed(host: &mut Host) -> Vec<u8> {
    host.admin.submit(2, &entry(0x02, 0xffff_ffff, [0x03ff_0004, 0, 0]), Payload::ToHost(vec![0; 4096]));
    let ended = host.admin.wait().unwrap();
    assert_eq!((ended.tag, ended.status()), (2, 0));
    ended.data.chunks(4).map(|id| id[0]).take_while(|id| *id != 0).collect()
}

#[test]
fn every_host_hears_of_a_namespace_that_goes_or_comes() {
    let served = served();
    let mut hosts = [listening(&served), listening(&served)];
    let mut queues: Vec<Queue> = hosts.iter().map(|host| host.queue(1)).collect();
    assert_eq!(queues[0].write(3, &[5; BLOCK_BYTES]), 0);
    for is_attached in [false, true] {
        assert_eq!(served.set_attached(1, is_attached), Ok(()));
        assert_eq!(served.set_attached(1, is_attached), Err(AttachError::Already));
        for host in &mut hosts {
            let event = host.admin.wait().unwrap();
            assert_eq!((event.tag, event.status(), event.completion.specific.get() as u32), (1, 0, NAMESPACES_CHANGED));
            assert_eq!(changed(host), [1]);
            host.admin.submit(1, &entry(EVENT_REQUEST, 0, [0; 3]), Payload::None);
        }
        for queue in &mut queues {
            let (answer, data) = queue.run(&entry(0x02, 1, [3, 0, 0]), Payload::ToHost(vec![0; BLOCK_BYTES]));
            let expected = if is_attached { 0 } else { status::INVALID_FIELD };
            assert_eq!(answer, expected);
            assert!(!is_attached || data == [5; BLOCK_BYTES], "its data have stayed");
        }
    }
    for nowhere in [3, 64] {
        assert_eq!(served.set_attached(nowhere, false), Err(AttachError::NotReached));
    }
    // A device goes the same way, and whoever comes later does not find it.
    assert_eq!(served.set_attached(2, false), Ok(()));
    let mut late = served.host();
    let list = entry(0x06, 0, [0x02, 0, 0]);
    late.admin.submit(0, &list, Payload::ToHost(vec![0; 4096]));
    assert_eq!(late.admin.wait().unwrap().data[..8], [1, 0, 0, 0, 0, 0, 0, 0]);
    served.end();
}

/// The capsule of a command whose data have to be asked for, and the R2T that asks.
fn say_and_be_asked(queue: &mut Queue, entry: [u8; 64], bytes: usize) -> [u8; 24] {
    let mut capsule = [0; 72];
    (capsule[0], capsule[2]) = (0x04, 72);
    capsule[4..8].copy_from_slice(&72_u32.to_le_bytes());
    capsule[8..].copy_from_slice(&entry);
    (capsule[9], capsule[10]) = (0x40, 77);
    capsule[40..44].copy_from_slice(&(bytes as u32).to_le_bytes());
    capsule[47] = 0x5a;
    queue.raw.write_all(&capsule).unwrap();
    let mut r2t = [0; 24];
    queue.raw.read_exact(&mut r2t).unwrap();
    assert_eq!(r2t[0], 0x09, "R2T");
    r2t
}

/// Sends what was asked for; the status of the command.
fn send(queue: &mut Queue, r2t: [u8; 24], data: &[u8]) -> u16 {
    let mut header = [0; 24];
    (header[0], header[1], header[2], header[3]) = (0x06, 0x04, 24, 24);
    header[4..8].copy_from_slice(&(24 + data.len() as u32).to_le_bytes());
    header[8..12].copy_from_slice(&r2t[8..12]);
    header[16..20].copy_from_slice(&(data.len() as u32).to_le_bytes());
    queue.raw.write_all(&[&header, data].concat()).unwrap();
    let mut response = [0; 24];
    queue.raw.read_exact(&mut response).unwrap();
    assert_eq!((response[0], response[20]), (0x05, 77));
    u16::from_le_bytes([response[22], response[23]]) >> 1 & 0x7ff
}

#[test]
fn commands_under_way_on_a_namespace_that_is_detached_end_as_always() {
    let served = served();
    let host = served.host();
    let mut queue = host.queue(1);
    assert_eq!(queue.write(0, &[9; 4 * BLOCK_BYTES]), 0);
    let mut ranges = vec![0; 16];
    (ranges[4], ranges[8]) = (1, 3);
    let mut sources = vec![0; 32];
    (sources[8], sources[16]) = (1, 1);
    let large = vec![7; 16 * BLOCK_BYTES];
    for (entry, data) in [
        (write(100, &large), &large),
        // Deallocate block 3; copy blocks 1 and 2 to 50; compare with what was written first.
        (entry(0x09, 1, [0, 1 << 2, 0]), &ranges),
        (entry(0x19, 1, [50, 0, 0]), &sources),
        (entry(0x05, 1, [100, 0, 15]), &large),
    ] {
        let r2t = say_and_be_asked(&mut queue, entry, data.len());
        assert_eq!(served.set_attached(1, false), Ok(()));
        assert_eq!(send(&mut queue, r2t, data), 0, "opcode {:02x}h", entry[0]);
        assert_eq!(served.set_attached(1, true), Ok(()));
    }
    drop(queue);
    let mut queue = host.queue(2);
    assert_eq!(queue.read(0, 4), [[9; 3 * BLOCK_BYTES].as_slice(), &[0; BLOCK_BYTES]].concat());
    assert_eq!(queue.read(50, 2), [9; 2 * BLOCK_BYTES]);
    assert_eq!(queue.read(100, 16), large);
    served.end();
}
