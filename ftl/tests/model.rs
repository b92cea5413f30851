//! The block FTL against a model that knows nothing of it: random writes, trims, flushes and reads, clean stops and power
//! cuts, on devices with and without power-loss protection, with and without paired pages.
//!
//! What the model demands after a cut: everything flushed is there; of what was not flushed, each transaction is there
//! entirely or not at all, and none without all those before it; a trimmed block is zero or what it was.

use openftl_core::{Clock, Frame, FrameForm, Payload, PayloadMut, Stamp, Time, VirtualClock};
use openftl_ftl::block::BlockFtl;
use openftl_ftl::{BlockTarget, Config, Durability, Request, VictimPolicy, chunks_per_pu};
use openftl_core::units::Share;
use openftl_media::{EmulatedDevice, Profile, Store, Timing};
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::HashMap;

type Ftl = BlockFtl<EmulatedDevice>;

struct World {
    ftl: Option<Ftl>,
    clock: VirtualClock,
    config: Config,
    chance: Xoshiro256PlusPlus,
    /// Version of each block as reads must see it; 0 = zeroes.
    seen: Vec<u64>,
    /// As of the last flush that was acknowledged.
    durable: Vec<u64>,
    /// Writes since: version, first block, blocks.
    writes: Vec<(u64, u64, u64)>,
    /// Blocks trimmed since.
    trimmed: HashMap<u64, ()>,
    version: u64,
    tag: u64,
}

fn stamp(version: u64, block: u64) -> Stamp {
    if version == 0 { Stamp::ZERO } else { Stamp(version << 24 | block) }
}

impl World {
    fn new(profile: &str, seed: u64, capacity_blocks: u64, over_provisioning: u32) -> World {
        let profile = Profile::builtin(profile).unwrap();
        let config = Config {
            capacity_blocks,
            over_provisioning: Share::percent(over_provisioning),
            drive_id: seed,
            payload: FrameForm::Stamp,
            host_frames: 512,
            checkpoint_log_blocks: Some(24),
            victim: if seed % 2 == 0 { VictimPolicy::Greedy } else { VictimPolicy::CostBenefit },
            ..Config::default()
        };
        let shape = profile.geometry(profile.chunks_per_pu).unwrap();
        let chunks = chunks_per_pu(&shape, &config, Share::percent(0)).unwrap();
        let device = EmulatedDevice::new(profile, chunks, Store::Stamps, Timing::Modelled, seed).unwrap();
        let mut clock = VirtualClock::default();
        let ftl = Ftl::format(device, config.clone(), &mut clock).unwrap();
        World {
            ftl: Some(ftl),
            clock,
            config,
            chance: Xoshiro256PlusPlus::seed_from_u64(seed),
            seen: vec![0; capacity_blocks as usize],
            durable: vec![0; capacity_blocks as usize],
            writes: Vec::new(),
            trimmed: HashMap::new(),
            version: 0,
            tag: 0,
        }
    }

    fn ftl(&mut self) -> &mut Ftl {
        self.ftl.as_mut().unwrap()
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.chance.next_u64() % bound
    }

    fn frames(&mut self, count: u64) -> Vec<Frame> {
        let mut frames = Vec::new();
        while !self.ftl().frames().acquire_many(FrameForm::Stamp, count as usize, &mut frames) {
            self.step();
        }
        frames
    }

    fn step(&mut self) -> Vec<openftl_ftl::Done> {
        let mut done = Vec::new();
        let now = self.clock.now();
        self.ftl().poll(now, &mut done);
        if done.is_empty() {
            let due = self.ftl().next_due().expect("the drive still has work to do");
            let now = self.clock.wait_until(due);
            self.ftl().poll(now, &mut done);
        }
        done
    }

    /// Submits a request and waits for its end.
    fn run(&mut self, request: Request<'_>) {
        self.tag += 1;
        let (now, tag) = (self.clock.now(), self.tag);
        self.ftl().submit(now, tag, request).unwrap();
        loop {
            if let Some(done) = self.step().iter().find(|done| done.tag == tag) {
                done.result.unwrap();
                return;
            }
        }
    }

    fn range(&mut self, most: u64) -> (u64, u64) {
        let blocks = 1 + self.below(most);
        let first = self.below(self.seen.len() as u64 - blocks + 1);
        (first, blocks)
    }

    fn write(&mut self, first: u64, blocks: u64, durability: Durability) {
        self.version += 1;
        let version = self.version;
        let frames = self.frames(blocks);
        for (index, frame) in frames.iter().enumerate() {
            if let PayloadMut::Stamp(payload) = self.ftl().frames().payload_mut(*frame) {
                *payload = stamp(version, first + index as u64);
            }
        }
        self.writes.push((version, first, blocks));
        self.seen[first as usize..(first + blocks) as usize].fill(version);
        self.run(Request::Write { first, frames: &frames, durability });
        if durability == Durability::Durable {
            self.flushed();
        }
    }

    fn flushed(&mut self) {
        self.durable.clone_from(&self.seen);
        self.writes.clear();
        self.trimmed.clear();
    }

    fn read(&mut self, first: u64, blocks: u64) -> Vec<Stamp> {
        let frames = self.frames(blocks);
        self.run(Request::Read { first, frames: &frames });
        let stamps = frames
            .iter()
            .map(|frame| match self.ftl().frames().payload(*frame) {
                Payload::Stamp(stamp) => stamp,
                Payload::Bytes(_) => unreachable!("the drive was asked for stamps"),
            })
            .collect();
        for frame in frames {
            self.ftl().frames().release(frame);
        }
        stamps
    }

    fn verify(&mut self, first: u64, blocks: u64) {
        let expected: Vec<Stamp> = (first..first + blocks).map(|block| stamp(self.seen[block as usize], block)).collect();
        assert_eq!(self.read(first, blocks), expected, "blocks from {first}");
    }

    fn verify_all(&mut self) {
        for first in (0..self.seen.len() as u64).step_by(64) {
            let blocks = (self.seen.len() as u64 - first).min(64);
            self.verify(first, blocks);
        }
    }

    fn operation(&mut self) {
        match self.below(100) {
            0..60 => {
                let (first, blocks) = self.range(12);
                self.write(first, blocks, Durability::Volatile);
            }
            60..64 => {
                let (first, blocks) = self.range(256.min(self.seen.len() as u64));
                self.write(first, blocks, Durability::Volatile);
            }
            64..67 => {
                let (first, blocks) = self.range(4);
                self.write(first, blocks, Durability::Durable);
            }
            67..72 => {
                let (first, blocks) = self.range(40);
                for block in first..first + blocks {
                    self.trimmed.insert(block, ());
                }
                self.seen[first as usize..(first + blocks) as usize].fill(0);
                self.run(Request::Trim { first, blocks, durability: Durability::Volatile });
            }
            72..75 => {
                self.run(Request::Flush);
                self.flushed();
            }
            _ => {
                let (first, blocks) = self.range(16);
                self.verify(first, blocks);
            }
        }
    }

    fn clean_restart(&mut self) {
        let device = self.ftl.take().unwrap().close(&mut self.clock).unwrap();
        let ftl = Ftl::open(device, self.config.clone(), &mut self.clock).unwrap();
        assert!(ftl.recovery_report().clean, "closed cleanly: {:?}", ftl.recovery_report());
        assert_eq!(ftl.recovery_report().replayed, 0);
        self.ftl = Some(ftl);
        self.flushed();
    }

    fn power_cut(&mut self) {
        let mut device = self.ftl.take().unwrap().crash();
        let torn = self.below(2) == 0;
        let now = self.clock.now();
        device.power_cut(now, torn).unwrap();
        self.ftl = Some(Ftl::open(device, self.config.clone(), &mut self.clock).unwrap());
        // The newest transaction of which anything is seen; all before it must be there, and nothing of what follows it.
        let mut found = Vec::new();
        for first in (0..self.seen.len() as u64).step_by(64) {
            let blocks = (self.seen.len() as u64 - first).min(64);
            found.extend(self.read(first, blocks));
        }
        let version_of = |stamp: Stamp| stamp.0 >> 24;
        let newest = found.iter().map(|stamp| version_of(*stamp)).max().unwrap_or(0);
        let mut expected = self.durable.clone();
        for (version, first, blocks) in &self.writes {
            if *version <= newest {
                expected[*first as usize..(first + blocks) as usize].fill(*version);
            }
        }
        for (block, found) in found.iter().enumerate() {
            let wanted = stamp(expected[block], block as u64);
            let may_be_zero = self.trimmed.contains_key(&(block as u64));
            assert!(
                *found == wanted || (may_be_zero && (*found == Stamp::ZERO || version_of(*found) <= expected[block])),
                "block {block}: version {} found, {} expected, newest {newest}, flushed {}",
                version_of(*found),
                expected[block],
                self.durable[block]
            );
            self.seen[block] = version_of(*found);
        }
        self.flushed();
    }

    fn check(&mut self) {
        let mut clock = self.clock;
        let report = self.ftl().check(&mut clock, &mut |_, _| ()).unwrap();
        self.clock = clock;
        assert!(report.is_sound(), "{:#?}", report.findings);
    }
}

fn run(profile: &str, seed: u64, capacity: u64, over_provisioning: u32, operations: u64, cuts: bool) {
    let mut world = World::new(profile, seed, capacity, over_provisioning);
    for number in 0..operations {
        world.operation();
        if cuts && number % 97 == 96 {
            world.power_cut();
        } else if number % 311 == 310 {
            world.clean_restart();
        }
        if number % 500 == 499 {
            world.verify_all();
        }
    }
    world.verify_all();
    world.check();
    let statistics = world.ftl().statistics();
    assert_eq!(statistics.program_failures + statistics.read_failures, 0);
}

#[test]
fn a_drive_with_power_loss_protection_agrees_with_the_model() {
    for seed in 0..4 {
        run("tiny", seed, 700, 10, 3_000, false);
    }
}

#[test]
fn power_cuts_leave_a_prefix_with_power_loss_protection() {
    for seed in 10..16 {
        run("tiny", seed, 700, 10, 2_000, true);
    }
}

#[test]
fn power_cuts_leave_a_prefix_without_power_loss_protection() {
    for seed in 20..24 {
        run("westlake", seed, 6_000, 10, 1_000, true);
    }
}

#[test]
fn power_cuts_leave_a_prefix_on_large_write_units() {
    for seed in 30..33 {
        run("qlc", seed, 6_000, 10, 1_000, true);
        run("granby", seed, 6_000, 10, 600, true);
    }
}

/// Ten drive writes at random over a drive with 7 % over-provisioning.
#[test]
fn the_exported_capacity_can_always_be_overwritten() {
    for profile in ["tiny", "cosmos"] {
        let capacity = if profile == "tiny" { 2_000 } else { 20_000 };
        let mut world = World::new(profile, 7, capacity, 7);
        for first in (0..capacity).step_by(16) {
            world.write(first, 16.min(capacity - first), Durability::Volatile);
        }
        let mut written = 0;
        while written < 10 * capacity {
            let (first, blocks) = world.range(8);
            world.write(first, blocks, Durability::Volatile);
            written += blocks;
        }
        world.verify_all();
        world.check();
        assert!(world.ftl().statistics().waf() > 1.5, "at 7 % garbage collection has had to work");
        let now = world.clock.now();
        assert!(now > Time::ZERO, "and it took time");
    }
}
