//! What connections with TLS take while they rest, in a process in which nothing else runs: what is resident is that of all.
#![cfg(feature = "tls")]

#[path = "../../bytes/tests/support/memory.rs"]
#[expect(dead_code, reason = "other tests use more of it")]
mod memory;
#[path = "support/nvme.rs"]
#[expect(dead_code, reason = "other tests use more of it")]
mod nvme;
#[path = "support/reactors.rs"]
mod reactors;

use std::sync::atomic::Ordering;

use memory::{Memory, Temper};
use nvme::{HOST, SUBSYSTEM, Served, TestClock, Wishes, entry, identity};
use openftl_core::{BLOCK_BYTES, Nanos};
use openftl_nvme_auth::TlsKeys;
use openftl_nvme_tcp::client::Payload;
use openftl_nvme_tcp::fabrics::{CONTROLLER_ID_ANY, QueueParameters};
use openftl_nvme_tcp::{Client, InitiatorConfig};
use openftl_nvme_tls::TlsStream;
use openftl_server::TlsPolicy;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Controllers, each of which has an admin queue and one that has read much at a time.
const CONTROLLERS: u64 = 150;
const CONNECTIONS: u64 = 2 * CONTROLLERS;

/// What the server may take for each: what the library knows of it, and a controller. Buffers alone would be 128 KiB.
const HELD_BYTES_MAX: u64 = 64 << 10;

/// Blocks of one read: more than what is encrypted at a time.
const BLOCKS_READ: usize = 32;

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("Linux says so");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
}

#[test]
fn connections_with_tls_that_rest_take_little_memory() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
    let line = format!("{HOST} NVMeTLSkey-1:01:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrZ:");
    let keys = TlsKeys::read(line.as_bytes()).unwrap();
    let clock = TestClock::default();
    let wishes = Wishes { tls: Some((keys.clone(), TlsPolicy::Required)), ..Wishes::at(clock.clone()) };
    let served = Served::with(Memory::new(64, 64, Temper::Instant), wishes);
    let (mut held, mut before) = (Vec::new(), 0);
    for number in 1..=CONTROLLERS {
        let mut connect = |queue_id, controller| {
            let socket = served.connect();
            // The host's end is not kept, but for its socket.
            held.push(socket.try_clone().unwrap());
            let stream = TlsStream::connect(socket, keys.of(HOST).unwrap().psks(HOST, SUBSYSTEM)).unwrap();
            let mut client = Client::open(stream, InitiatorConfig::default()).unwrap();
            let queue = QueueParameters { queue_id, entries: 32, flow_control: true, keep_alive_ms: 0 };
            let connected = client.connect(queue, &identity(HOST, SUBSYSTEM), controller).unwrap();
            (client, connected.controller_id)
        };
        let (mut admin, controller) = connect(0, CONTROLLER_ID_ANY);
        admin.start_controller(|| false).unwrap();
        admin.set_number_of_queues(1).unwrap();
        let (mut io, _) = connect(1, controller);
        let read = entry(0x02, 1, [0, 0, BLOCKS_READ as u32 - 1]);
        io.call("Read", &read, Payload::ToHost(vec![0; BLOCKS_READ * BLOCK_BYTES])).unwrap();
        // Now it rests.
        clock.0.fetch_add(Nanos::from_millis(1_000).0, Ordering::SeqCst);
        served.stop.wake();
        if number == CONTROLLERS / 10 {
            before = resident_bytes();
        }
    }
    let each = resident_bytes().saturating_sub(before) / (CONNECTIONS * 9 / 10);
    println!("{CONNECTIONS} connections with TLS held: {} KiB each", each >> 10);
    assert_eq!(served.counters.connections.get(), CONNECTIONS);
    assert!(each < HELD_BYTES_MAX, "{each} bytes for each connection");
    drop(held);
    served.end();
}
