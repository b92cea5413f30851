//! A drive under test, a host that keeps several requests under way, and the model that says what the host may find.

#![expect(dead_code, reason = "each test binary uses its own part of the world")]

pub mod history;
pub mod wire;

use history::{Change, History, Kind};
use openftl_core::units::Share;
use openftl_core::{BLOCK_BYTES, Clock, Frame, FrameForm, Payload, PayloadMut, Ppa, Stamp, VirtualClock};
use openftl_ftl::block::BlockFtl;
use openftl_ftl::recovery::OpenError;
use openftl_ftl::{Access, BlockTarget, Config, Done, Durability, IoError, Request, VictimPolicy, chunks_per_pu};
use openftl_media::{ChunkDescriptor, EmulatedDevice, Media, Profile, Store, Timing};
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::cell::RefMut;
use wire::Wire;

pub type Ftl = BlockFtl<Wire>;

/// A request under way.
enum Errand {
    Change { change: Change, durable: bool },
    Flush { tick: u64 },
    Read { first: u64, frames: Vec<Frame>, allowed: Vec<Vec<Change>> },
}

pub struct World {
    pub ftl: Option<Ftl>,
    pub wire: Wire,
    pub clock: VirtualClock,
    pub config: Config,
    pub history: History,
    chance: Xoshiro256PlusPlus,
    under_way: Vec<(u64, Errand)>,
    tag: u64,
}

/// A drive of `capacity_blocks` whose every choice follows from `seed`.
pub fn config(capacity_blocks: u64, seed: u64) -> Config {
    Config {
        capacity_blocks,
        over_provisioning: Share::percent(10),
        drive_id: 0xD21E_0000 + seed,
        payload: FrameForm::Stamp,
        host_frames: 512,
        checkpoint_log_blocks: Some(24),
        victim: if seed.is_multiple_of(2) { VictimPolicy::Greedy } else { VictimPolicy::CostBenefit },
        ..Config::default()
    }
}

/// A builtin profile with some lines of its TOML replaced.
pub fn profile(name: &str, changes: &[(&str, &str)]) -> Profile {
    let mut text = Profile::builtin_text(name).unwrap().to_owned();
    for (from, to) in changes {
        assert!(text.contains(from), "{name} has the line {from}");
        text = text.replace(from, to);
    }
    Profile::parse(&text).unwrap()
}

/// What a whole block of write `change` holds.
fn words(change: Change, block: u64) -> impl Iterator<Item = u64> {
    let stamp = stamp(change, block).0;
    (0..BLOCK_BYTES as u64 / 8).map(move |index| if stamp == 0 { 0 } else { stamp.wrapping_add(index << 56) })
}

fn stamp(change: Change, block: u64) -> Stamp {
    if change == 0 { Stamp::ZERO } else { Stamp(u64::from(change) << 24 | block) }
}

impl World {
    /// A new drive. `spare` percent of its chunks are held back for others that go bad.
    pub fn new(profile: Profile, config: Config, spare: u32, seed: u64) -> World {
        let shape = profile.geometry(profile.chunks_per_pu).unwrap();
        let chunks = chunks_per_pu(&shape, &config, Share::percent(spare)).unwrap();
        let store = if config.payload == FrameForm::Bytes { Store::Ram } else { Store::Stamps };
        let wire = Wire::new(EmulatedDevice::new(profile, chunks, store, Timing::Modelled, seed).unwrap());
        let mut clock = VirtualClock::default();
        let ftl = Ftl::format(wire.clone(), config.clone(), &mut clock).unwrap();
        World {
            ftl: Some(ftl),
            wire,
            clock,
            history: History::new(config.capacity_blocks),
            config,
            chance: Xoshiro256PlusPlus::seed_from_u64(seed),
            under_way: Vec::new(),
            tag: 0,
        }
    }

    /// A small drive on the profile `tiny`.
    pub fn tiny(capacity_blocks: u64, seed: u64) -> World {
        World::new(Profile::builtin("tiny").unwrap(), config(capacity_blocks, seed), 20, seed)
    }

    pub fn ftl(&mut self) -> &mut Ftl {
        self.ftl.as_mut().expect("the drive is open")
    }

    pub fn device(&self) -> RefMut<'_, EmulatedDevice> {
        self.wire.device()
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.chance.next_u64() % bound
    }

    pub fn requests_under_way(&self) -> usize {
        self.under_way.len()
    }

    pub fn blocks(&self) -> u64 {
        self.history.blocks()
    }

    pub fn frames(&mut self, count: u64) -> Vec<Frame> {
        let mut frames = Vec::new();
        let form = self.config.payload;
        while !self.ftl().frames().acquire_many(form, count as usize, &mut frames) {
            let done = self.step();
            self.take(done);
        }
        frames
    }

    /// Lets the drive work until something has ended.
    fn step(&mut self) -> Vec<Done> {
        let mut done = Vec::new();
        let now = self.clock.now();
        self.ftl().poll(now, &mut done);
        if done.is_empty() {
            let Some(due) = self.ftl().next_due() else {
                let waiting = self.under_way.len();
                panic!("nothing is due, and {waiting} requests or frames are waited for: {}", self.ftl().describe());
            };
            let now = self.clock.wait_until(due);
            self.ftl().poll(now, &mut done);
        }
        done
    }

    /// Lets the drive work once more, and books what has ended.
    pub fn pump(&mut self) {
        let done = self.step();
        self.take(done);
    }

    /// Lets the drive work though no request is under way.
    pub fn idle_step(&mut self) {
        let due = self.ftl().next_due().expect("the drive has work to do");
        let now = self.clock.wait_until(due);
        let mut done = Vec::new();
        self.ftl().poll(now, &mut done);
        self.take(done);
    }

    fn take(&mut self, done: Vec<Done>) {
        for done in done {
            let index = self.under_way.iter().position(|(tag, _)| *tag == done.tag).expect("a request under way");
            let (_, errand) = self.under_way.swap_remove(index);
            if let Err(error) = done.result {
                let reason = self.ftl().read_only_reason();
                panic!("{error}: {reason:?}, {:?}", self.ftl().statistics());
            }
            match errand {
                Errand::Change { change, durable } => self.history.complete(change, durable),
                Errand::Flush { tick } => self.history.flushed(tick),
                Errand::Read { first, frames, allowed } => {
                    for (index, (found, allowed)) in self.release(first, frames).into_iter().zip(allowed).enumerate() {
                        let block = first + index as u64;
                        let allowed: Vec<Change> = allowed.iter().map(|change| self.history.value(*change)).collect();
                        assert!(
                            allowed.contains(&found),
                            "block {block}: write {found} read, one of {allowed:?} expected"
                        );
                    }
                }
            }
        }
    }

    /// What the frames hold, by write; they are given back.
    fn release(&mut self, first: u64, frames: Vec<Frame>) -> Vec<Change> {
        let pool = self.ftl.as_mut().expect("the drive is open").frames();
        let mut found = Vec::new();
        for (block, frame) in (first..).zip(frames) {
            let head = match pool.payload(frame) {
                Payload::Stamp(stamp) => stamp.0,
                Payload::Bytes(bytes) => u64::from_le_bytes(*bytes.first_chunk().expect("eight of many bytes")),
            };
            let change = (head >> 24) as Change;
            let whole = match pool.payload(frame) {
                Payload::Stamp(found) => found == stamp(change, block),
                Payload::Bytes(bytes) => bytes
                    .as_chunks::<8>()
                    .0
                    .iter()
                    .zip(words(change, block))
                    .all(|(found, word)| u64::from_le_bytes(*found) == word),
            };
            assert!(whole, "block {block} holds what was never written to it: {head:#018x}");
            pool.release(frame);
            found.push(change);
        }
        found
    }

    fn submit(&mut self, request: Request<'_>, errand: Errand) -> u64 {
        self.tag += 1;
        let (now, tag) = (self.clock.now(), self.tag);
        self.under_way.push((tag, errand));
        self.ftl().submit(now, tag, request).unwrap();
        tag
    }

    fn fill(&mut self, change: Change, first: u64, frames: &[Frame]) {
        let pool = self.ftl().frames();
        for (block, frame) in (first..).zip(frames) {
            match pool.payload_mut(*frame) {
                PayloadMut::Stamp(payload) => *payload = stamp(change, block),
                PayloadMut::Bytes(bytes) => {
                    for (at, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(words(change, block)) {
                        *at = word.to_le_bytes();
                    }
                }
            }
        }
    }

    fn begin(&mut self, kind: Kind, first: u64, blocks: u64) -> Change {
        let change = self.history.begin(kind, first, blocks);
        for (_, errand) in &mut self.under_way {
            if let Errand::Read { first: from, allowed, .. } = errand {
                for (block, allowed) in (*from..).zip(allowed) {
                    if (first..first + blocks).contains(&block) {
                        allowed.push(change);
                    }
                }
            }
        }
        change
    }

    pub fn submit_write(&mut self, first: u64, blocks: u64, durability: Durability) -> u64 {
        let frames = self.frames(blocks);
        let change = self.begin(Kind::Write, first, blocks);
        self.fill(change, first, &frames);
        let durable = durability == Durability::Durable || self.config.write_through;
        self.submit(Request::Write { first, frames: &frames, durability }, Errand::Change { change, durable })
    }

    pub fn submit_trim(&mut self, first: u64, blocks: u64, durability: Durability) -> u64 {
        let change = self.begin(Kind::Trim, first, blocks);
        let durable = durability == Durability::Durable || self.config.write_through;
        self.submit(Request::Trim { first, blocks, durability }, Errand::Change { change, durable })
    }

    pub fn submit_flush(&mut self) -> u64 {
        let tick = self.history.begin_flush();
        self.submit(Request::Flush, Errand::Flush { tick })
    }

    pub fn submit_read(&mut self, first: u64, blocks: u64) -> u64 {
        let frames = self.frames(blocks);
        let allowed = self.history.readable(first, blocks);
        let request = Request::Read { first, frames: &frames };
        self.submit(request, Errand::Read { first, frames: frames.clone(), allowed })
    }

    pub fn wait(&mut self, tag: u64) {
        while self.under_way.iter().any(|(other, _)| *other == tag) {
            self.pump();
        }
    }

    /// Waits until no request is under way.
    pub fn settle(&mut self) {
        while !self.under_way.is_empty() {
            self.pump();
        }
    }

    pub fn write(&mut self, first: u64, blocks: u64) {
        let tag = self.submit_write(first, blocks, Durability::Volatile);
        self.wait(tag);
    }

    pub fn trim(&mut self, first: u64, blocks: u64) {
        let tag = self.submit_trim(first, blocks, Durability::Volatile);
        self.wait(tag);
    }

    pub fn flush(&mut self) {
        let tag = self.submit_flush();
        self.wait(tag);
    }

    /// Fills the drive from its first block to its last.
    pub fn write_all(&mut self, step: u64) {
        for first in (0..self.blocks()).step_by(step as usize) {
            let blocks = step.min(self.blocks() - first);
            self.write(first, blocks);
        }
    }

    /// Reads and compares with the model.
    pub fn verify(&mut self, first: u64, blocks: u64) {
        let tag = self.submit_read(first, blocks);
        self.wait(tag);
    }

    pub fn verify_all(&mut self) {
        for first in (0..self.blocks()).step_by(64) {
            let blocks = (self.blocks() - first).min(64);
            self.verify(first, blocks);
        }
    }

    /// Submits a request that may be refused or fail, with nothing else under way, and waits for its end.
    pub fn attempt(&mut self, request: Request<'_>) -> Result<(), IoError> {
        self.settle();
        self.tag += 1;
        let (now, tag) = (self.clock.now(), self.tag);
        self.ftl().submit(now, tag, request)?;
        loop {
            if let Some(done) = self.step().into_iter().find(|done| done.tag == tag) {
                return done.result;
            }
        }
    }

    /// Reads blocks that may be lost: what they hold, by write.
    pub fn try_read(&mut self, first: u64, blocks: u64) -> Result<Vec<Change>, IoError> {
        let frames = self.frames(blocks);
        let result = self.attempt(Request::Read { first, frames: &frames });
        if result.is_err() {
            for frame in frames {
                self.ftl().frames().release(frame);
            }
            return result.map(|()| Vec::new());
        }
        Ok(self.release(first, frames))
    }

    /// Writes where it may be refused.
    pub fn try_write(&mut self, first: u64, blocks: u64, durability: Durability) -> Result<(), IoError> {
        let frames = self.frames(blocks);
        self.settle();
        let change = self.begin(Kind::Write, first, blocks);
        self.fill(change, first, &frames);
        self.tag += 1;
        let (now, tag) = (self.clock.now(), self.tag);
        let result = match self.ftl().submit(now, tag, Request::Write { first, frames: &frames, durability }) {
            Err(error) => {
                for frame in frames {
                    self.ftl().frames().release(frame);
                }
                Err(error)
            }
            Ok(()) => loop {
                if let Some(done) = self.step().into_iter().find(|done| done.tag == tag) {
                    break done.result;
                }
            },
        };
        match result {
            Ok(()) => self.history.complete(change, durability == Durability::Durable),
            Err(_) => self.history.fail(change),
        }
        result
    }

    pub fn range(&mut self, most: u64) -> (u64, u64) {
        let blocks = 1 + self.below(most.min(self.blocks()));
        let first = self.below(self.blocks() - blocks + 1);
        (first, blocks)
    }

    /// One more request of a mix of all kinds.
    pub fn submit_any(&mut self) {
        match self.below(100) {
            0..60 => {
                let (first, blocks) = self.range(12);
                self.submit_write(first, blocks, Durability::Volatile);
            }
            60..64 => {
                let (first, blocks) = self.range(256);
                self.submit_write(first, blocks, Durability::Volatile);
            }
            64..67 => {
                let (first, blocks) = self.range(4);
                self.submit_write(first, blocks, Durability::Durable);
            }
            67..71 => {
                let (first, blocks) = self.range(40);
                self.submit_trim(first, blocks, Durability::Volatile);
            }
            71 => {
                let (first, blocks) = self.range(40);
                self.submit_trim(first, blocks, Durability::Durable);
            }
            72..75 => {
                self.submit_flush();
            }
            _ => {
                let (first, blocks) = self.range(16);
                self.submit_read(first, blocks);
            }
        }
    }

    /// One more request, with up to `depth` under way.
    pub fn operation(&mut self, depth: usize) {
        self.submit_any();
        while self.under_way.len() >= depth {
            self.pump();
        }
    }

    /// What the whole drive holds, by write.
    pub fn read_all(&mut self) -> Vec<Change> {
        let mut found = Vec::new();
        for first in (0..self.blocks()).step_by(64) {
            let blocks = (self.blocks() - first).min(64);
            found.extend(self.try_read(first, blocks).unwrap());
        }
        found
    }

    pub fn clean_restart(&mut self) {
        self.settle();
        let ftl = self.ftl.take().expect("the drive is open");
        ftl.close(&mut self.clock).unwrap();
        let ftl = Ftl::open(self.wire.clone(), self.config.clone(), &mut self.clock).unwrap();
        assert!(ftl.recovery_report().clean, "closed cleanly: {:?}", ftl.recovery_report());
        assert_eq!(ftl.recovery_report().replayed, 0);
        self.ftl = Some(ftl);
    }

    /// Cuts the power, whatever is under way.
    pub fn power_cut(&mut self, torn: bool) {
        self.ftl = None;
        self.under_way.clear();
        self.wire.power_cut(torn);
    }

    /// Opens the drive.
    pub fn open(&mut self, access: Access) -> Result<(), OpenError> {
        let wire = self.wire.clone();
        self.ftl = Some(Ftl::open_with(wire, self.config.clone(), access, &mut self.clock)?);
        Ok(())
    }

    /// Opens the drive after a power cut and compares all of it with the model.
    pub fn recover(&mut self) -> Result<(), String> {
        self.open(Access::ReadWrite).map_err(|error| error.to_string())?;
        let found = self.read_all();
        self.history.verdict(&found)?;
        self.history.reopened(&found);
        Ok(())
    }

    pub fn check(&mut self) {
        let ftl = self.ftl.as_mut().expect("the drive is open");
        let report = ftl.check(&mut self.clock, &mut |_, _| ()).unwrap();
        assert!(report.is_sound(), "{:#?}", report.findings);
    }

    /// Where `block` is on the medium. It must have been flushed.
    pub fn place_of(&mut self, block: u64) -> Ppa {
        self.ftl().place_on_media(block).expect("the block is on the medium")
    }

    pub fn chunk_report(&mut self) -> Vec<ChunkDescriptor> {
        let now = self.clock.now();
        self.device().whole_chunk_report(now).unwrap()
    }
}
