//! Sessions that are mostly right, and noise: neither half breaks, and what they do does not depend on how the bytes
//! arrive.

#[path = "support/exercise.rs"]
#[expect(dead_code, reason = "the fuzzer uses more of it")]
mod exercise;
#[expect(dead_code, reason = "the pair uses more of it")]
mod support;

use exercise::{Controller, Heard, Host, exercise, session};
use openftl_nvme_tcp::{InitiatorConfig, TargetConfig, Termination};
use support::Chance;

#[derive(Clone, Copy, Debug)]
struct Terms {
    host: InitiatorConfig,
    controller: TargetConfig,
    flow_control: bool,
}

fn terms(chance: &mut Chance) -> Terms {
    let digests = chance.below(4) == 0;
    Terms {
        host: InitiatorConfig {
            header_digest: digests,
            data_digest: chance.below(2) == 0,
            alignment: chance.pick(&[0, 0, 7, 31]),
            r2ts_max: chance.pick(&[1, 2, 9]),
            in_capsule_bytes_max: chance.pick(&[0, 4096, 8192]),
            ..InitiatorConfig::default()
        },
        controller: TargetConfig {
            alignment: chance.pick(&[0, 0, 3]),
            h2c_data_bytes_max: chance.pick(&[4096, 65_536]),
            ..TargetConfig::default()
        },
        flow_control: chance.below(2) == 0,
    }
}

/// Changes a stream a little, sooner or later in it.
fn spoil(stream: &mut Vec<u8>, chance: &mut Chance) {
    for _ in 0..1 + chance.below(3) {
        if stream.is_empty() {
            return;
        }
        let index = chance.below(stream.len());
        match chance.below(5) {
            0 => stream[index] = chance.below(256) as u8,
            1 => stream[index] ^= 1 << chance.below(8),
            2 => drop(stream.drain(index..stream.len().min(index + 1 + chance.below(40)))),
            3 => {
                let copy = stream[index..stream.len().min(index + 1 + chance.below(200))].to_vec();
                let at = chance.below(stream.len());
                stream.splice(at..at, copy);
            }
            _ => {
                let noise = 1 + chance.below(100);
                let noise = chance.bytes(noise);
                stream.splice(index..index, noise);
            }
        }
    }
}

/// Headers are few among so much data; changes there are what the storm is for.
fn spoil_header(stream: &mut [u8], first: u8, chance: &mut Chance) {
    let mut at = 0;
    let mut headers = Vec::new();
    while let Some(common) = stream.get(at..at + 8) {
        headers.push(at);
        let length = u32::from_le_bytes([common[4], common[5], common[6], common[7]]) as usize;
        at += length;
    }
    assert!(stream[0] == first && at == stream.len(), "a session is whole PDUs");
    let header = chance.pick(&headers);
    let at = header + chance.below(24);
    stream[at] = match chance.below(3) {
        0 => stream[at].wrapping_add(1),
        1 => stream[at] ^ 1 << chance.below(8),
        _ => chance.below(256) as u8,
    };
}

fn cut(chance: &mut Chance) -> impl FnMut() -> usize + use<> {
    let longest = chance.pick(&[1, 7, 64, 5_000]);
    let mut chance = Chance::new(chance.below(usize::MAX) as u64);
    move || 1 + chance.below(longest)
}

#[derive(Default, Debug)]
struct Tally {
    untouched: usize,
    told: usize,
    survived: usize,
}

impl Tally {
    fn add(&mut self, heard: &[Heard]) {
        match heard.last() {
            Some(Heard::Terminated(Termination::Sent(_))) => self.told += 1,
            _ => self.survived += 1,
        }
    }
}

#[test]
fn no_stream_of_bytes_breaks_either_half_however_it_is_cut() {
    let (mut controllers, mut hosts) = (Tally::default(), Tally::default());
    for seed in 0..400 {
        let mut chance = Chance::new(seed);
        let Terms { host, controller, flow_control } = terms(&mut chance);
        let (mut to_controller, mut to_host) = session(host, controller, flow_control);
        match seed % 8 {
            0 => {}
            1 | 2 => {
                spoil(&mut to_controller, &mut chance);
                spoil(&mut to_host, &mut chance);
            }
            3 => {
                let noise = chance.below(2_000);
                to_controller = chance.bytes(noise);
                to_host = chance.bytes(noise);
            }
            4 => {
                // Noise behind a handshake that is right.
                let keep = chance.below(3_000);
                to_controller.truncate(keep.max(128));
                to_host.truncate(keep.max(128));
                let noise = chance.bytes(2_000);
                to_controller.extend_from_slice(&noise);
                to_host.extend_from_slice(&noise);
            }
            _ => {
                spoil_header(&mut to_controller, 0, &mut chance);
                spoil_header(&mut to_host, 1, &mut chance);
            }
        }
        let heard = exercise(|| Controller::new(controller), &to_controller, cut(&mut chance));
        if seed % 8 == 0 {
            assert!(!matches!(heard.last(), Some(Heard::Terminated(_))), "seed {seed}: {heard:?}");
            controllers.untouched += 1;
        }
        controllers.add(&heard);
        let heard = exercise(|| Host::new(host, flow_control), &to_host, cut(&mut chance));
        if seed % 8 == 0 {
            assert!(!matches!(heard.last(), Some(Heard::Terminated(_))), "seed {seed}: {heard:?}");
            hosts.untouched += 1;
        }
        hosts.add(&heard);
    }
    for tally in [controllers, hosts] {
        assert!(tally.told > 100 && tally.survived > 60, "the storm is too weak or too strong: {tally:?}");
    }
}
