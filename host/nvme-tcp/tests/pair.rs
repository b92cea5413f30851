//! Both halves against each other: whatever they agree on and however the bytes are cut, data arrive as they were sent
//! and every command ends once.

mod support;

use std::collections::BTreeMap;

use openftl_nvme_tcp::fabrics::{self, QueueParameters};
use openftl_nvme_tcp::initiator::Transfer;
use openftl_nvme_tcp::{InitiatorConfig, SUBMISSION_BYTES, TargetConfig};
use support::controller::{Controller, TRANSIENT_TRANSPORT_ERROR};
use support::host::{Ended, Host};
use support::{Chance, Pair, Stream};

const MEMORY: usize = 4 << 20;

/// What the two sides ask of each other.
#[derive(Clone, Copy, Debug)]
struct Terms {
    host: InitiatorConfig,
    controller: TargetConfig,
    flow_control: bool,
    piece_max: usize,
}

const PLAIN: Terms = Terms {
    host: InitiatorConfig {
        header_digest: false,
        data_digest: false,
        alignment: 0,
        r2ts_max: 1,
        entries: 32,
        in_capsule_bytes_max: 8192,
    },
    controller: TargetConfig { header_digest: true, data_digest: true, alignment: 0, h2c_data_bytes_max: 1 << 20 },
    flow_control: true,
    piece_max: 10_000,
};

fn entry(opcode: u8, place: usize) -> [u8; SUBMISSION_BYTES] {
    let mut entry = [0; SUBMISSION_BYTES];
    entry[0] = opcode;
    entry[40..44].copy_from_slice(&(place as u32).to_le_bytes());
    entry
}

const FLUSH: u8 = 0x00;
const WRITE: u8 = 0x01;
const READ: u8 = 0x02;

impl Pair {
    /// A connected queue.
    fn connected(seed: u64, terms: Terms) -> Pair {
        let mut to_controller = Stream::default();
        let mut pair = Pair {
            host: Host::new(terms.host, &mut to_controller),
            controller: Controller::new(terms.controller, terms.host.entries.into(), terms.flow_control, MEMORY),
            to_controller,
            to_host: Stream::default(),
            chance: Chance::new(seed),
            piece_max: terms.piece_max,
        };
        pair.settle();
        assert!(pair.host.initiator.is_open(), "seed {seed}, {terms:?}");
        let queue = QueueParameters {
            queue_id: 1,
            entries: terms.host.entries,
            flow_control: terms.flow_control,
            keep_alive_ms: 0,
        };
        pair.run(fabrics::connect(queue), Transfer::ToController(1024), vec![7; 1024]);
        pair
    }

    fn submit(&mut self, tag: u64, entry: [u8; SUBMISSION_BYTES], transfer: Transfer, data: Vec<u8>) -> bool {
        self.host.submit(tag, &entry, transfer, data, &mut self.to_controller)
    }

    /// One command alone.
    fn run(&mut self, entry: [u8; SUBMISSION_BYTES], transfer: Transfer, data: Vec<u8>) -> Ended {
        assert!(self.submit(0, entry, transfer, data));
        self.settle();
        assert_eq!(self.host.ended.len(), 1, "{:?} {:?}", self.host.termination, self.controller.termination);
        self.host.ended.remove(0)
    }

    fn write(&mut self, place: usize, data: Vec<u8>) -> Ended {
        self.run(entry(WRITE, place), Transfer::ToController(data.len() as u32), data)
    }

    fn read(&mut self, place: usize, bytes: usize) -> Ended {
        self.run(entry(READ, place), Transfer::ToHost(bytes as u32), vec![0; bytes])
    }
}

#[test]
fn every_size_arrives_both_ways_with_and_without_digests() {
    for digests in [false, true] {
        let host = InitiatorConfig { header_digest: digests, data_digest: digests, ..PLAIN.host };
        let mut pair = Pair::connected(1, Terms { host, ..PLAIN });
        for bytes in [1, 512, 4096, 8191, 8192, 8193, 65_536, 65_537, 1 << 20] {
            let data = pair.chance.bytes(bytes);
            let written = pair.write(bytes % 4096, data.clone());
            assert_eq!((written.completion.status.get(), written.received), (0, 0), "{bytes} bytes");
            assert!(pair.controller.memory[bytes % 4096..][..bytes] == data, "{bytes} bytes, digests {digests}");
            let read = pair.read(bytes % 4096, bytes);
            assert!(read.data == data && read.received == bytes && read.intact, "{bytes} bytes, digests {digests}");
        }
    }
}

#[test]
fn one_byte_at_a_time_is_enough() {
    for digests in [false, true] {
        let host = InitiatorConfig { header_digest: digests, data_digest: digests, ..PLAIN.host };
        let mut pair = Pair::connected(2, Terms { host, piece_max: 1, ..PLAIN });
        for bytes in [512, 8192, 20_000] {
            let data = pair.chance.bytes(bytes);
            pair.write(0, data.clone());
            assert!(pair.read(0, bytes).data == data, "{bytes} bytes");
        }
    }
}

/// Terms of chance.
fn terms(chance: &mut Chance) -> Terms {
    let in_capsule_bytes_max = chance.pick(&[0, 512, 4096, 8192]);
    Terms {
        host: InitiatorConfig {
            header_digest: chance.below(2) == 0,
            data_digest: chance.below(2) == 0,
            alignment: chance.pick(&[0, 0, 1, 15, 31]),
            r2ts_max: chance.pick(&[1, 1, 2, 3, 16, 1 << 31]),
            entries: chance.pick(&[2, 3, 32, 128]),
            in_capsule_bytes_max,
        },
        controller: TargetConfig {
            header_digest: chance.below(4) > 0,
            data_digest: chance.below(4) > 0,
            alignment: chance.pick(&[0, 0, 3, 31]),
            h2c_data_bytes_max: chance.pick(&[4096, 4100, 65_536, 1 << 20]),
        },
        flow_control: chance.below(2) == 0,
        piece_max: chance.pick(&[1, 30, 3000, 100_000]),
    }
}

/// Many commands under way on terms of chance; how many responses were saved by SUCCESS.
fn mix(seed: u64) -> usize {
    let mut chance = Chance::new(seed);
    let terms = terms(&mut chance);
    let mut pair = Pair::connected(seed, terms);
    let longest = if terms.piece_max == 1 { 3_000 } else { 150_000 };
    let mut model = vec![0_u8; MEMORY];
    // Places are disjoint, so what a command leaves does not depend on the others.
    let mut under_way: BTreeMap<u64, (u8, usize, Vec<u8>)> = BTreeMap::new();
    let (mut submitted, mut ended) = (0, 0);
    while ended < 40 {
        if submitted < 40 && chance.below(3) == 0 {
            let slice = MEMORY / 64;
            let place = chance.below(64) * slice;
            let bytes = chance.pick(&[512, 4096, 8192, 8193, 1 + longest % slice].map(|bytes| longest.min(bytes)));
            let bytes = if chance.below(4) == 0 { 1 + chance.below(longest.min(slice)) } else { bytes };
            let opcode = chance.pick(&[FLUSH, WRITE, WRITE, READ, READ]);
            if under_way.values().all(|(_, taken, _)| *taken != place) {
                let data = chance.bytes(bytes);
                let (transfer, buffer) = match opcode {
                    FLUSH => (Transfer::None, Vec::new()),
                    WRITE => (Transfer::ToController(bytes as u32), data.clone()),
                    _ => (Transfer::ToHost(bytes as u32), vec![0; bytes]),
                };
                let admitted = pair.submit(submitted, entry(opcode, place), transfer, buffer);
                assert_eq!(admitted, under_way.len() < usize::from(terms.host.entries) - 1, "seed {seed}");
                if admitted {
                    let wanted = match opcode {
                        FLUSH => Vec::new(),
                        WRITE => data,
                        _ => model[place..place + bytes].to_vec(),
                    };
                    under_way.insert(submitted, (opcode, place, wanted));
                    submitted += 1;
                }
            }
        }
        pair.step();
        assert_eq!((pair.host.termination, pair.controller.termination), (None, None), "seed {seed}, {terms:?}");
        for Ended { tag, completion, data, intact, received, .. } in std::mem::take(&mut pair.host.ended) {
            let (opcode, place, wanted) = under_way.remove(&tag).expect("a command ends once");
            assert!(completion.status.get() == 0 && intact, "seed {seed}");
            match opcode {
                WRITE => {
                    assert!(pair.controller.memory[place..][..wanted.len()] == wanted, "seed {seed}, {terms:?}");
                    model[place..place + wanted.len()].copy_from_slice(&wanted);
                }
                READ => assert!(received == wanted.len() && data == wanted, "seed {seed}, {terms:?}"),
                _ => {}
            }
            ended += 1;
        }
    }
    assert_eq!(pair.controller.target.commands_under_way(), 0, "seed {seed}");
    assert_eq!(pair.host.initiator.commands_under_way(), 0, "seed {seed}");
    assert!(!pair.controller.target.is_owed(), "seed {seed}");
    assert!(pair.controller.memory == model, "seed {seed}");
    pair.controller.successes
}

#[test]
fn any_mix_of_commands_on_any_terms_moves_the_right_bytes() {
    let successes: usize = (0..60).map(mix).sum();
    assert!(successes > 80, "only {successes} commands ended with their data");
}

#[test]
fn damaged_data_cost_their_command_and_nothing_else() {
    let host = InitiatorConfig { data_digest: true, ..PLAIN.host };
    // In the capsule, and on request in several H2CData.
    for (bytes, h2c_data_bytes_max) in [(4096, 4096), (30_000, 4096), (30_000, 1 << 20)] {
        for damaged in [0, 4095, bytes - 1] {
            let controller = TargetConfig { h2c_data_bytes_max, ..PLAIN.controller };
            let mut pair = Pair::connected(3, Terms { host, controller, ..PLAIN });
            pair.to_controller.damage_at = Some(pair.to_controller.data_bytes + damaged);
            let written = pair.write(0, vec![5; bytes]);
            assert_eq!(written.completion.status.get() >> 1, TRANSIENT_TRANSPORT_ERROR, "{bytes}, {damaged}");
            assert!(pair.controller.memory.iter().all(|byte| *byte == 0));
            pair.write(0, vec![5; bytes]);
            assert!(pair.controller.memory[..bytes] == vec![5; bytes]);

            pair.to_host.damage_at = Some(pair.to_host.data_bytes + damaged);
            let read = pair.read(0, bytes);
            assert!(!read.intact && read.received == bytes, "{bytes}, {damaged}");
            let read = pair.read(0, bytes);
            assert!(read.intact && read.data == vec![5; bytes]);
        }
    }
}

#[test]
fn without_digests_damage_goes_unseen_here() {
    let mut pair = Pair::connected(4, PLAIN);
    pair.to_host.damage_at = Some(7);
    let read = pair.read(0, 512);
    assert!(read.intact && read.data[7] == 0x10, "what would a digest be for otherwise?");
}

#[test]
fn a_full_queue_takes_no_more_and_goes_on_when_one_command_has_ended() {
    let host = InitiatorConfig { entries: 4, ..PLAIN.host };
    let mut pair = Pair::connected(5, Terms { host, ..PLAIN });
    for tag in 0..3 {
        assert!(pair.submit(tag, entry(FLUSH, 0), Transfer::None, Vec::new()));
    }
    assert!(!pair.submit(3, entry(FLUSH, 0), Transfer::None, Vec::new()));
    while pair.host.ended.is_empty() {
        assert!(pair.step());
    }
    assert!(pair.submit(3, entry(FLUSH, 0), Transfer::None, Vec::new()));
    pair.settle();
    assert_eq!(pair.host.ended.len(), 4);
}

#[test]
fn completions_carry_the_head_of_the_submission_queue() {
    let host = InitiatorConfig { entries: 4, ..PLAIN.host };
    let mut pair = Pair::connected(6, Terms { host, ..PLAIN });
    let heads: Vec<u16> = (0..5)
        .map(|_| pair.run(entry(FLUSH, 0), Transfer::None, Vec::new()).completion.submission_head.get())
        .collect();
    assert_eq!(heads, [2, 3, 0, 1, 2], "the Connect was the first");
}
