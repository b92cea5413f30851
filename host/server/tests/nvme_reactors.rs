//! Reactors move the bytes of many hosts, and those of one that asks for little are moved by the server's own thread.

use std::sync::atomic::Ordering;

use crate::memory::Memory;
use crate::nvme::{Served, Wishes};
use crate::nvme_commands::{BLOCKS, SHUFFLED, pattern};
use openftl_core::BLOCK_BYTES;
use openftl_nvme_tcp::InitiatorConfig;
use openftl_server::ServerConfig;

const HOSTS: usize = 4;

#[test]
fn what_many_hosts_write_and_read_goes_through_reactors() {
    let config = ServerConfig { reactors: 3, reactors_above: 0, ..ServerConfig::default() };
    let served = Served::with(Memory::new(BLOCKS, 512, SHUFFLED), Wishes { config, ..Wishes::default() });
    let host = served.host();
    let blocks = BLOCKS / HOSTS;
    let moved: usize = std::thread::scope(|scope| {
        let hosts: Vec<_> = (0..HOSTS)
            .map(|number| {
                let host = &host;
                scope.spawn(move || {
                    let digests = InitiatorConfig { data_digest: number % 2 == 0, ..InitiatorConfig::default() };
                    let mut queue = host.queue_as(number as u16 + 1, digests);
                    let first = number * blocks;
                    let mut moved = 0;
                    for round in 0..20 {
                        let (from, length) = (first + round % 3, 1 + (round * 7) % (blocks - 3));
                        let data = pattern(round as u64, length * BLOCK_BYTES);
                        assert_eq!(queue.write(from as u32, &data), 0);
                        assert!(queue.read(from as u32, length as u32) == data, "host {number}, round {round}");
                        moved += 2 * data.len();
                    }
                    moved
                })
            })
            .collect();
        hosts.into_iter().map(|host| host.join().expect("it is served")).sum()
    });
    let by_reactors = served.counters.bytes_by_reactors.get();
    drop(host);
    served.end();
    // A host may have its last answer before the server's thread hears that it was sent.
    assert!(by_reactors >= moved as u64 * 3 / 4, "{by_reactors} of {moved} bytes");
}

#[test]
fn one_host_that_asks_for_one_block_at_a_time_waits_for_no_reactor() {
    let config = ServerConfig { reactors: 3, ..ServerConfig::default() };
    let served = Served::with(Memory::new(BLOCKS, 512, SHUFFLED), Wishes { config, ..Wishes::default() });
    let host = served.host();
    let mut queue = host.queue(1);
    for block in 0..20 {
        let data = pattern(block, BLOCK_BYTES);
        assert_eq!(queue.write(block as u32, &data), 0);
        assert!(queue.read(block as u32, 1) == data);
    }
    assert_eq!(served.counters.bytes_by_reactors.get(), 0);
    assert!(served.switches.submitted.load(Ordering::SeqCst) >= 40);
    drop((queue, host));
    served.end();
}
