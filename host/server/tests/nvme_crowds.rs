//! Many NVMe hosts: a thousand that are held while some are busy, and some that come and go all the time.

#[path = "../../bytes/tests/support/memory.rs"]
mod memory;
#[path = "support/nvme.rs"]
#[expect(dead_code, reason = "other tests use more of it")]
mod nvme;
#[path = "support/reactors.rs"]
mod reactors;

use std::collections::HashMap;
use std::net::TcpStream;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use memory::{Memory, Temper};
use nvme::{Host, Queue, Served, entry, write};
use openftl_core::{BLOCK_BYTES, Nanos};
use openftl_nvme_tcp::InitiatorConfig;
use openftl_nvme_tcp::client::Payload;
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

const HELD: usize = 1000;
const QUEUES_PER_HOST: usize = 62;
const BUSY: usize = 64;
const BUSY_THREADS: usize = 8;

/// What the server may take for each connection that is held: its queue of 128 entries, its controller's part, and little
/// else. A receive buffer alone would be 256 KiB.
const HELD_BYTES_MAX: u64 = 48 << 10;

/// What is resident is that of the whole process, so the tests take turns.
static ALONE: Mutex<()> = Mutex::new(());

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("Linux says so");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
}

/// A block that nobody else writes, with what is to be in it.
fn block_of(number: u32, round: u64) -> Vec<u8> {
    let mut chance = Xoshiro256PlusPlus::seed_from_u64(u64::from(number) << 32 | round);
    (0..BLOCK_BYTES).map(|_| chance.next_u32() as u8).collect()
}

/// A burst of writes that all go out together.
fn burst(queue: &mut Queue, first: u32, blocks: u32, round: u64) {
    for block in first..first + blocks {
        let data = block_of(block, round);
        queue.client.submit(block.into(), &write(block, &data), Payload::ToController(data));
    }
    let mut left: Vec<u64> = (first.into()..u64::from(first + blocks)).collect();
    while !left.is_empty() {
        let ended = queue.client.wait().expect("the server answers");
        assert_eq!(ended.status(), 0);
        let place = left.iter().position(|tag| *tag == ended.tag).expect("each command is answered once");
        left.swap_remove(place);
    }
}

#[test]
fn a_thousand_connections_are_held_in_little_memory_while_64_are_busy() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
    let served = Served::new(Memory::new(1024, 2048, Temper::Instant));
    let config = InitiatorConfig { entries: 128, ..InitiatorConfig::default() };
    let mut hosts: Vec<Host> = Vec::new();
    let mut held: Vec<TcpStream> = Vec::new();
    let mut busy: Vec<Queue> = Vec::new();
    let mut before = 0;
    while held.len() + busy.len() + hosts.len() < HELD {
        let host = served.host();
        for id in 1..=QUEUES_PER_HOST as u16 {
            let mut queue = host.queue_as(id, config);
            burst(&mut queue, 0, 60, 0);
            match busy.len() {
                BUSY => held.push(queue.raw),
                _ => busy.push(queue),
            }
        }
        hosts.push(host);
        if before == 0 {
            before = resident_bytes();
        }
    }
    let connections = held.len() + busy.len() + hosts.len();
    let grown = resident_bytes().saturating_sub(before);
    println!("{connections} connections held: {} KiB each", (grown / connections as u64) >> 10);
    assert!(grown < HELD_BYTES_MAX * connections as u64, "{grown} bytes for {connections} connections");

    let mut shares: Vec<Vec<Queue>> = (0..BUSY_THREADS).map(|_| Vec::new()).collect();
    busy.into_iter().enumerate().for_each(|(number, queue)| shares[number % BUSY_THREADS].push(queue));
    let threads: Vec<_> = (0..)
        .zip(shares)
        .map(|(thread, mut share)| {
            std::thread::spawn(move || {
                for round in 1..=20 {
                    for (number, queue) in (0..).zip(&mut share) {
                        let first = (thread * BUSY_THREADS as u32 + number) * 16;
                        burst(queue, first, 16, round);
                        for block in first..first + 16 {
                            assert!(queue.read(block, 1) == block_of(block, round), "block {block}, round {round}");
                        }
                    }
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    println!("after the busy ones: {} KiB", resident_bytes() >> 10);
    for host in &mut hosts {
        host.admin.keep_alive().unwrap();
    }
    let awake = served.counters.connections_awake.get();
    assert!(awake <= BUSY as u64, "{awake} connections are looked at in each turn");
    assert_eq!(served.counters.connections_expelled.get(), 0);
    drop((hosts, held));
    served.end();
}

/// What a host knows of its blocks: what is there, or what may be there instead.
struct Known {
    there: Vec<u8>,
    perhaps: Option<Vec<u8>>,
}

#[test]
fn hosts_that_come_and_go_lose_no_completion_and_no_write_that_was_acknowledged() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    const HOSTS: u32 = 4;
    const ROUNDS: u64 = 60;
    // More than may be left in doubt by a queue of 64 in each round.
    const BLOCKS: u32 = 4096;
    // Two storms, or as many as there is time for.
    let minutes = std::env::var("OPENFTL_STORM_MINUTES").map_or(0, |text| text.parse().expect("a number of minutes"));
    let until = Instant::now() + Duration::from_secs(60 * minutes);
    let mut connections = 0;
    for seed in (0..).take_while(|seed| *seed < 2 || Instant::now() < until) {
        let temper = Temper::Shuffled { seed, within: Nanos::from_micros(300) };
        let served = Served::new(Memory::new((HOSTS * BLOCKS) as usize, 256, temper));
        let served = std::sync::Arc::new(served);
        let threads: Vec<_> = (0..HOSTS)
            .map(|number| {
                let served = std::sync::Arc::clone(&served);
                std::thread::spawn(move || {
                    let mut chance = Xoshiro256PlusPlus::seed_from_u64(seed * 100 + u64::from(number));
                    let mut blocks: HashMap<u32, Known> = HashMap::new();
                    for round in 0..ROUNDS {
                        come_and_go(&served, &mut chance, &mut blocks, number * BLOCKS..(number + 1) * BLOCKS, round);
                    }
                    blocks
                })
            })
            .collect();
        let known: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        let served = std::sync::Arc::into_inner(served).expect("all threads have ended");
        connections += served.counters.connections_accepted.get();
        println!("storm {seed}: {connections} connections so far");
        let drive = served.end();
        for (block, known) in known.iter().flatten() {
            let bytes = &drive.data()[*block as usize * BLOCK_BYTES..][..BLOCK_BYTES];
            let is_right = bytes == known.there || known.perhaps.as_ref().is_some_and(|perhaps| bytes == perhaps);
            assert!(is_right, "seed {seed}, block {block}");
        }
    }
}

/// One visit: some commands, all of them under way together; the host leaves in the middle of it, or takes its leave.
fn come_and_go(
    served: &Served,
    chance: &mut Xoshiro256PlusPlus,
    blocks: &mut HashMap<u32, Known>,
    range: std::ops::Range<u32>,
    round: u64,
) {
    let host = served.host();
    let mut queue = host.queue_as(1, InitiatorConfig { entries: 64, ..InitiatorConfig::default() });
    let mut under_way: HashMap<u64, Option<Vec<u8>>> = HashMap::new();
    while queue.client.has_room() {
        let block = range.start + chance.next_u32() % (range.end - range.start);
        // What may or may not have been written is left alone: a late write would meet a new one.
        let is_open = blocks.get(&block).is_some_and(|known| known.perhaps.is_some());
        if is_open || under_way.contains_key(&block.into()) {
            continue;
        }
        if !chance.next_u32().is_multiple_of(3) {
            let data = block_of(block, round);
            under_way.insert(block.into(), Some(data.clone()));
            queue.client.submit(block.into(), &write(block, &data), Payload::ToController(data));
        } else {
            under_way.insert(block.into(), None);
            let room = Payload::ToHost(vec![0xee; BLOCK_BYTES]);
            queue.client.submit(block.into(), &entry(0x02, 1, [block, 0, 0]), room);
        }
    }
    let answers = if chance.next_u32().is_multiple_of(2) {
        under_way.len()
    } else {
        chance.next_u32() as usize % under_way.len()
    };
    for _ in 0..answers {
        let ended = queue.client.wait().expect("the server answers");
        assert_eq!(ended.status(), 0);
        let written = under_way.remove(&ended.tag).expect("each command is answered once");
        let block = ended.tag as u32;
        match written {
            Some(there) => drop(blocks.insert(block, Known { there, perhaps: None })),
            None => {
                let there = blocks.get(&block).map_or(vec![0; BLOCK_BYTES], |known| known.there.clone());
                assert!(ended.data == there, "block {block}, round {round}");
            }
        }
    }
    for (tag, written) in under_way {
        let Some(perhaps) = written else { continue };
        let known = blocks.entry(tag as u32).or_insert_with(|| Known { there: vec![0; BLOCK_BYTES], perhaps: None });
        known.perhaps = Some(perhaps);
    }
    match chance.next_u32() % 3 {
        // The controller goes first, its queue first, or neither is closed in order.
        0 => drop((host, queue)),
        1 => drop((queue, host)),
        _ => {
            queue.raw.shutdown(std::net::Shutdown::Write).unwrap();
            drop((queue, host));
        }
    }
}
