//! A front over a small drive in memory, in virtual time.

use openftl_core::{Clock, Time, VirtualClock};
use openftl_media::{EmulatedDevice, Profile, Store, Timing};
use openftl_parts::Config;
use openftl_parts::target::Target;
use openftl_redis::{Front, PeerId};
use openftl_values::{Ftl, ValueConfig, ValueFtl};

/// Where the tags of the front begin.
const TAGS: u64 = 1 << 40;

pub struct World {
    pub front: Front,
    pub drive: ValueFtl<EmulatedDevice>,
    pub clock: VirtualClock,
}

impl World {
    pub fn new() -> World {
        let profile = Profile::builtin("cosmos").expect("a builtin profile");
        let device = EmulatedDevice::new(profile, 24, Store::Ram, Timing::Modelled, 1).expect("memory for it");
        let mut clock = VirtualClock::default();
        let config = Config { host_frames: 512, ..Config::default() };
        // Keys that share numbers, too.
        let shape = ValueConfig {
            keys_max: Some(20_000),
            changes_max: Some(64),
            number_bits: Some(10),
            ..ValueConfig::default()
        };
        let drive = ValueFtl::format(device, config, shape, &mut clock).expect("a drive");
        World { front: Front::new(TAGS), drive, clock }
    }

    /// Lets the drive work, and the front, until neither has more to do now.
    pub fn poll(&mut self, now: Time) {
        loop {
            let mut done = Vec::new();
            self.drive.poll(now, &mut done);
            if !self.front.advance(now, &mut self.drive, done) {
                return;
            }
        }
    }

    /// Lets all work until nothing is due.
    pub fn settle(&mut self) {
        loop {
            let now = self.clock.now();
            self.poll(now);
            let Some(due) = self.drive.next_due() else { return };
            self.clock.wait_until(due);
        }
    }

    /// Takes what a client is to get.
    pub fn taken(&mut self, peer: PeerId) -> Vec<u8> {
        let bytes = self.front.output(peer).to_vec();
        self.front.sent(peer, bytes.len());
        bytes
    }

    /// Sends bytes, and gives all that comes back.
    pub fn say(&mut self, peer: PeerId, bytes: &[u8]) -> Vec<u8> {
        self.front.receive(peer, bytes);
        let mut answer = Vec::new();
        loop {
            self.settle();
            let more = self.taken(peer);
            if more.is_empty() {
                return answer;
            }
            answer.extend(more);
        }
    }

    /// Sends a line, and gives what comes back as text.
    pub fn line(&mut self, peer: PeerId, line: &str) -> String {
        let bytes = [line.as_bytes(), b"\r\n"].concat();
        String::from_utf8(self.say(peer, &bytes)).expect("it is text")
    }
}

/// A command with its parts.
pub fn command(parts: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", parts.len()).into_bytes();
    for part in parts {
        bytes.extend(format!("${}\r\n", part.len()).bytes());
        bytes.extend(*part);
        bytes.extend(b"\r\n");
    }
    bytes
}
