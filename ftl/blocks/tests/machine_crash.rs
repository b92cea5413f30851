//! A drive in a file whose machine crashes, behind a simulated page cache: whatever of the page cache reached the disk, the
//! drive opens, has all that was flushed and a prefix of what was written after it, and goes on. The model knows only what a
//! host sees.

use openftl_blocks::block_ftl::BlockFtl;
use openftl_core::units::Share;
use openftl_core::{FrameForm, Payload, Stamp, VirtualClock};
use openftl_media::{Durability, EmulatedDevice, FileStore, PageCache, Profile, Store, Timing};
use openftl_parts::{
    BlockTarget, Config, Done, Durability as Kept, Handle, ReadOnlyReason, Request, Target, chunks_per_pu,
};
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::SplitMix64;
use std::collections::VecDeque;

const CAPACITY: u64 = 600;
/// Requests under way at a time.
const DEPTH: usize = 12;

type Ftl = BlockFtl<EmulatedDevice>;

/// What the drive holds: the version of each block, 0 where nothing was written.
type Contents = Vec<u64>;

#[derive(Clone, Copy, Debug)]
struct Case {
    durability: Durability,
    power_loss_protection: bool,
    lies_about_flush: bool,
}

const MACHINE: Case = Case { durability: Durability::Machine, power_loss_protection: true, lies_about_flush: false };

fn config(case: Case) -> Config {
    Config {
        capacity_blocks: CAPACITY,
        over_provisioning: Share::percent(25),
        payload: FrameForm::Bytes,
        host_frames: 600,
        checkpoint_log_blocks: Some(60),
        lies_about_flush: case.lies_about_flush,
        ..Config::default()
    }
}

fn profile(case: Case) -> Profile {
    let mut profile = Profile::builtin("tiny").unwrap();
    profile.cache.power_loss_protection = case.power_loss_protection;
    profile
}

/// A write that was submitted.
struct Change {
    first: u64,
    blocks: u64,
    version: u64,
}

/// A request under way, with the changes up to which it is about.
#[derive(Clone, Copy)]
enum Errand {
    Read,
    /// Of all that was acknowledged before.
    Flush {
        promises: usize,
    },
    Write {
        changes: usize,
        durability: Kept,
    },
}

struct World {
    ftl: Ftl,
    clock: VirtualClock,
    /// What the drive held when it was opened, and the changes since.
    opened: Contents,
    changes: Vec<Change>,
    /// So many changes were acknowledged, and so many were promised to survive: those before the last one of them included.
    acknowledged: usize,
    promised: usize,
    under_way: VecDeque<(u64, Errand)>,
    version: u64,
    tag: u64,
}

impl World {
    fn create(cache: &PageCache, case: Case) -> World {
        let profile = profile(case);
        let shape = profile.geometry(profile.chunks_per_pu).unwrap();
        let chunks = chunks_per_pu(&shape, &config(case), Share::percent(0)).unwrap();
        let store = FileStore::create_simulated(cache, &profile, chunks, &[], 1).unwrap();
        let mut clock = VirtualClock::default();
        let ftl = BlockFtl::format(device(store, case), config(case), &mut clock).unwrap();
        World::new(ftl, clock, vec![0; CAPACITY as usize], 1)
    }

    fn new(ftl: Ftl, clock: VirtualClock, opened: Contents, version: u64) -> World {
        let (changes, under_way) = (Vec::new(), VecDeque::new());
        World { ftl, clock, opened, changes, acknowledged: 0, promised: 0, under_way, version, tag: 0 }
    }

    fn write(&mut self, first: u64, blocks: u64, durability: Kept) {
        let mut frames = Vec::new();
        while !self.ftl.frames_mut().acquire_many(FrameForm::Bytes, blocks as usize, &mut frames) {
            self.step();
        }
        for (block, frame) in (first..).zip(&frames) {
            Stamp(block << 32 | self.version).expand(self.ftl.frames_mut().bytes_mut(*frame));
        }
        self.changes.push(Change { first, blocks, version: self.version });
        let errand = Errand::Write { changes: self.changes.len(), durability };
        self.submit(Request::Write { first, frames: &frames, durability, handle: Handle::NONE }, errand);
        self.version += 1;
    }

    fn flush(&mut self) {
        self.submit(Request::Flush, Errand::Flush { promises: self.acknowledged });
    }

    fn submit(&mut self, request: Request<'_>, errand: Errand) {
        self.tag += 1;
        self.ftl.submit(self.clock.0, self.tag, request).unwrap();
        self.under_way.push_back((self.tag, errand));
    }

    /// Lets the drive go on to the next moment at which it is due. Returns what has ended.
    fn poll(&mut self) -> Vec<Done> {
        let mut done = Vec::new();
        let due = self.ftl.next_due().unwrap_or_else(|| panic!("nothing is due: {}", self.ftl.describe()));
        self.clock.0 = self.clock.0.max(due);
        self.ftl.poll(self.clock.0, &mut done);
        done
    }

    /// The same, and notes what was promised.
    fn step(&mut self) -> usize {
        let done = self.poll();
        for done in &done {
            let at = self.under_way.iter().position(|(tag, _)| *tag == done.tag).expect("a request ends once");
            let (_, errand) = self.under_way.remove(at).unwrap();
            done.result.unwrap();
            match errand {
                Errand::Read => {}
                Errand::Flush { promises } => self.promised = self.promised.max(promises),
                Errand::Write { changes, durability } => {
                    self.acknowledged = self.acknowledged.max(changes);
                    if durability == Kept::Durable {
                        self.promised = self.promised.max(changes);
                    }
                }
            }
        }
        done.len()
    }

    /// Works at random until the machine has crashed.
    fn work_until_crash(&mut self, cache: &PageCache, chance: &mut SplitMix64) {
        while !cache.has_crashed() {
            let promised = self.promised;
            match chance.next_u64() % 24 {
                0 => self.flush(),
                kind => {
                    let blocks = 1 + chance.next_u64() % 12;
                    let first = chance.next_u64() % (CAPACITY - blocks);
                    self.write(first, blocks, if kind == 1 { Kept::Durable } else { Kept::Volatile });
                }
            }
            // Now and then all of them end before there are more.
            let depth = if chance.next_u64().is_multiple_of(16) { 0 } else { DEPTH };
            while self.under_way.len() > depth && !cache.has_crashed() {
                let promised = self.promised;
                self.step();
                if cache.has_crashed() {
                    self.promised = promised;
                }
            }
            // What ended in the moment of the crash was promised to nobody.
            if cache.has_crashed() {
                self.promised = promised;
            }
        }
    }

    fn contents(&mut self) -> Contents {
        (0..CAPACITY)
            .map(|block| {
                let frame = self.ftl.frames_mut().acquire(FrameForm::Bytes).expect("a frame is free");
                self.submit(Request::Read { first: block, frames: &[frame] }, Errand::Read);
                while self.step() == 0 {}
                let Payload::Bytes(bytes) = self.ftl.frames().payload(frame) else { panic!("a byte frame") };
                let stamp = Stamp::recognise(bytes).unwrap_or_else(|| panic!("block {block} is what nobody wrote"));
                self.ftl.frames_mut().release(frame);
                assert!(stamp == Stamp::ZERO || stamp.0 >> 32 == block, "block {block} is another");
                stamp.0 & 0xFFFF_FFFF
            })
            .collect()
    }

    /// Whether `found` is what the drive was after so many changes as were promised, or after more of them.
    fn allows(&self, found: &Contents) -> Result<(), String> {
        let mut contents = self.opened.clone();
        for (index, change) in self.changes.iter().enumerate() {
            if index >= self.promised && contents == *found {
                return Ok(());
            }
            contents[change.first as usize..][..change.blocks as usize].fill(change.version);
        }
        match contents == *found {
            true => Ok(()),
            false => {
                Err(format!("not a prefix of {} changes, of which {} were promised", self.changes.len(), self.promised))
            }
        }
    }
}

fn device(store: FileStore, case: Case) -> EmulatedDevice {
    let (profile, chunks) = (store.profile().clone(), store.geometry().chunks_per_pu);
    let mut device = EmulatedDevice::new(profile, chunks, Store::File(Box::new(store)), Timing::Modelled, 1).unwrap();
    device.set_durability(case.durability).unwrap();
    device
}

fn open(cache: &PageCache, case: Case, opened: Contents, version: u64) -> World {
    let mut clock = VirtualClock::default();
    let device = device(FileStore::open_simulated(cache).unwrap(), case);
    let ftl = BlockFtl::open(device, config(case), &mut clock).unwrap();
    World::new(ftl, clock, opened, version)
}

/// What a run has come across.
#[derive(Default, Debug)]
struct Seen {
    resets: u64,
    checkpoints: u64,
    promised: u64,
    lost: u64,
    crashes_while_opening: u64,
}

/// A drive whose machine crashes several times, also while it recovers.
fn run(seed: u64, case: Case, seen: &mut Seen) -> Result<(), String> {
    let mut chance = SplitMix64::seed_from_u64(seed);
    let mut cache = PageCache::new();
    let mut world = World::create(&cache, case);
    world.flush();
    while world.step() == 0 {}
    for _ in 0..3 {
        cache.crash_at(cache.operations() + chance.next_u64() % 3000);
        world.work_until_crash(&cache, &mut chance);
        seen.resets += world.ftl.statistics().resets;
        seen.checkpoints += world.ftl.statistics().checkpoints;
        seen.promised += world.promised as u64;
        let left = cache.crash(chance.next_u64());
        // It crashes once more while it is opened, or soon after.
        left.crash_at(chance.next_u64() % 60);
        let mut again = open(&left, case, Vec::new(), world.version);
        let found = again.contents();
        world.allows(&found).map_err(|error| format!("seed {seed}: {error}"))?;
        seen.lost += u64::from(found != world.now());
        seen.crashes_while_opening += u64::from(left.has_crashed());
        cache = left.crash(chance.next_u64());
        world = open(&cache, case, found.clone(), world.version);
        if world.contents() != found {
            return Err(format!("seed {seed}: recovered once more it is another"));
        }
    }
    let device = world.ftl.close(&mut world.clock).map_err(|error| format!("seed {seed}: {error}"))?;
    drop(device);
    let found = open(&cache, case, Vec::new(), 0).contents();
    if found != world.opened { Err(format!("seed {seed}: closed and opened it is another")) } else { Ok(()) }
}

impl World {
    fn now(&self) -> Contents {
        let mut contents = self.opened.clone();
        for change in &self.changes {
            contents[change.first as usize..][..change.blocks as usize].fill(change.version);
        }
        contents
    }
}

fn all_hold(seeds: std::ops::Range<u64>, case: Case) {
    let mut seen = Seen::default();
    for seed in seeds.clone() {
        run(seed, case, &mut seen).unwrap();
    }
    let runs = seeds.count() as u64;
    assert!(seen.resets > runs && seen.checkpoints > runs && seen.promised > 20 * runs, "{seen:?}");
    assert!(seen.lost > runs && seen.crashes_while_opening > 0, "{seen:?}");
}

fn broken(seeds: std::ops::Range<u64>, case: Case) -> usize {
    std::panic::set_hook(Box::new(|_| {}));
    let is_broken = |seed: &u64| {
        let ended = std::panic::catch_unwind(|| run(*seed, case, &mut Seen::default()));
        !matches!(ended, Ok(Ok(())))
    };
    let broken = seeds.filter(is_broken).count();
    let _ = std::panic::take_hook();
    broken
}

#[test]
fn no_crash_of_the_machine_loses_what_was_flushed_or_leaves_half_of_a_write() {
    all_hold(0..60, MACHINE);
}

#[test]
fn nor_with_a_cache_that_is_volatile_in_the_device_as_well() {
    all_hold(100..120, Case { power_loss_protection: false, ..MACHINE });
}

#[test]
fn the_same_test_finds_a_drive_that_is_durable_only_as_long_as_the_machine_lives() {
    let found = broken(0..10, Case { durability: Durability::Process, ..MACHINE });
    assert!(found >= 8, "{found} of 10");
}

#[test]
fn the_same_test_finds_a_drive_that_leaves_the_flush_of_its_device_out() {
    let found = broken(0..10, Case { lies_about_flush: true, ..MACHINE });
    assert!(found >= 5, "{found} of 10");
}

#[test]
fn a_sync_that_fails_ends_the_flush_with_an_error_and_turns_the_drive_read_only() {
    let cache = PageCache::new();
    let mut world = World::create(&cache, MACHINE);
    world.write(7, 1, Kept::Durable);
    while world.step() == 0 {}
    world.write(7, 1, Kept::Volatile);
    world.flush();
    cache.fail_next_sync();
    let flush = world.tag;
    let failed = loop {
        if let Some(done) = world.poll().into_iter().find(|done| done.tag == flush) {
            break done;
        }
    };
    assert!(failed.result.is_err());
    assert_eq!(world.ftl.read_only_reason(), Some(ReadOnlyReason::StoreFault));
    let message = world.ftl.media().store_error().expect("why");
    assert!(message.contains("cannot sync") && message.contains("Input/output error"), "{message}");
    // A write behind the last commit is gone; what was promised is there.
    let mut again = open(&cache.crash(1), MACHINE, Vec::new(), 9);
    assert_eq!(again.contents()[7], 1);
}

#[test]
fn flushes_that_wait_at_the_same_time_share_one_of_the_device() {
    let cache = PageCache::new();
    let mut world = World::create(&cache, MACHINE);
    let before = (world.ftl.statistics().media_flushes, world.ftl.media().commits().unwrap());
    world.write(0, 12, Kept::Volatile);
    for _ in 0..32 {
        world.flush();
    }
    while !world.under_way.is_empty() {
        world.step();
    }
    let after = (world.ftl.statistics().media_flushes, world.ftl.media().commits().unwrap());
    assert_eq!((after.0 - before.0, after.1 - before.1), (1, 1), "flushes of the device, commits of its file");
    let mut unneeded = World::create(&PageCache::new(), Case { durability: Durability::Process, ..MACHINE });
    unneeded.write(0, 12, Kept::Durable);
    while unneeded.step() == 0 {}
    assert_eq!(unneeded.ftl.statistics().media_flushes, 0, "nothing is asked of a device that needs no flush");
}
