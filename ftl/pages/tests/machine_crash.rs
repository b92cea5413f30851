//! A store in a file whose machine crashes, behind a simulated page cache: whatever of the page cache reached the disk, the store opens, has every
//! batch that was durable and none in part, and goes on.

use openftl_blocks::Ftl;
use openftl_core::{Frame, FrameForm, Nanos, VirtualClock};
use openftl_media::{Durability as Kept, EmulatedDevice, FileStore, PageCache, Profile, Store, Timing};
use openftl_pages::{Change, PageFtl, Session, SessionId, StoreDone, StoreRequest, StoreTarget};
use openftl_parts::target::{Durability, Target};
use openftl_parts::{Access, Config};
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::SplitMix64;

const SESSION: SessionId = SessionId(*b"a machine crash ");

/// Pages, all of which every batch puts.
const PAGES: u64 = 12;

/// Blocks that the longest of them takes.
const BLOCKS_MAX: usize = 3;

struct World {
    ftl: PageFtl<EmulatedDevice>,
    clock: VirtualClock,
    session: Session,
    frames: Vec<Frame>,
    /// The last batch that was committed, and the last one that was said to be durable.
    committed: u64,
    durable: u64,
}

fn bytes_of(lpid: u64, wsn: u64) -> Vec<u8> {
    let mut bytes = vec![(lpid * 7 + wsn) as u8; 100 + (lpid * 1310 + wsn * 17) as usize % 9000];
    bytes[..8].copy_from_slice(&wsn.to_le_bytes());
    bytes
}

fn profile(power_loss_protection: bool) -> Profile {
    let mut profile = Profile::builtin("tiny").unwrap();
    profile.cache.power_loss_protection = power_loss_protection;
    profile
}

fn device(store: FileStore) -> EmulatedDevice {
    let (profile, chunks) = (store.profile().clone(), store.geometry().chunks_per_pu);
    let mut device = EmulatedDevice::new(profile, chunks, Store::File(Box::new(store)), Timing::Modelled, 1).unwrap();
    device.set_durability(Kept::Machine).unwrap();
    device
}

fn config() -> Config {
    Config { checkpoint_log_blocks: Some(8), ..Config::default() }
}

impl World {
    fn create(cache: &PageCache, profile: &Profile) -> World {
        let store = FileStore::create_simulated(cache, profile, 80, &[], 1).unwrap();
        let mut clock = VirtualClock::default();
        World::new(PageFtl::format(device(store), config(), (), &mut clock).unwrap(), clock)
    }

    fn open(cache: &PageCache) -> World {
        let mut clock = VirtualClock::default();
        let device = device(FileStore::open_simulated(cache).unwrap());
        World::new(PageFtl::open_with(device, config(), (), Access::ReadWrite, &mut clock).unwrap(), clock)
    }

    fn new(mut ftl: PageFtl<EmulatedDevice>, clock: VirtualClock) -> World {
        let (session, last) = ftl.open_session(SESSION).unwrap();
        let mut frames = Vec::new();
        assert!(ftl.frames_mut().acquire_many(FrameForm::Bytes, BLOCKS_MAX, &mut frames));
        World { ftl, clock, session, frames, committed: last, durable: last }
    }

    /// Lets the store go on to the next moment at which it is due.
    fn poll(&mut self) -> Vec<StoreDone> {
        let mut done = Vec::new();
        let due = self.ftl.next_due().unwrap_or_else(|| panic!("nothing is due: {}", Ftl::describe(&self.ftl)));
        self.clock.0 = self.clock.0.max(due);
        self.ftl.poll(self.clock.0, &mut done);
        done
    }

    fn submit(&mut self, request: StoreRequest<'_>) -> StoreDone {
        self.ftl.submit(self.clock.0, 1, request).unwrap();
        loop {
            if let Some(done) = self.poll().pop() {
                return done;
            }
        }
    }

    fn commit(&mut self, durability: Durability) -> StoreDone {
        let wsn = self.committed + 1;
        for lpid in 0..PAGES {
            let bytes = bytes_of(lpid, wsn);
            while self.ftl.stage(self.clock.0, self.session, wsn, lpid, Change::Put(&[&bytes]), None).is_err() {
                self.poll();
            }
        }
        self.committed = wsn;
        self.submit(StoreRequest::Commit { session: self.session, wsn, durability })
    }

    /// Every page is as the last batch that was committed has it.
    fn verify(&mut self) {
        for lpid in 0..PAGES {
            let frames = self.frames.clone();
            let done = self.submit(StoreRequest::Read { lpid, offset: 0, frames: &frames });
            if self.committed == 0 {
                assert!(done.result.is_err(), "page {lpid} was never put");
                continue;
            }
            let expected = bytes_of(lpid, self.committed);
            assert_eq!(done.result.unwrap().unwrap().bytes as usize, expected.len(), "page {lpid}");
            for (frame, expected) in frames.iter().zip(expected.chunks(4096)) {
                assert!(self.ftl.frames().bytes(*frame)[..expected.len()] == *expected, "page {lpid}");
            }
        }
    }
}

/// Batches until the machine crashes. Returns those that may be there: from the last durable one to the last one.
fn work_until_crash(world: &mut World, cache: &PageCache, chance: &mut SplitMix64) -> std::ops::RangeInclusive<u64> {
    loop {
        let durability = if chance.next_u64().is_multiple_of(3) { Durability::Durable } else { Durability::Volatile };
        let done = world.commit(durability);
        // What ended in the moment of the crash was promised to nobody.
        if cache.has_crashed() {
            return world.durable..=world.committed;
        }
        done.result.unwrap();
        if durability == Durability::Durable {
            world.durable = world.committed;
        }
        world.clock.0 += Nanos(chance.next_u64() % 2_000_000);
    }
}

fn crash_again_and_again(power_loss_protection: bool) {
    let mut chance = SplitMix64::seed_from_u64(u64::from(power_loss_protection));
    let mut cache = PageCache::new();
    let mut world = World::create(&cache, &profile(power_loss_protection));
    let mut crashes_while_opening = 0;
    for round in 0..40 {
        cache.crash_at(cache.operations() + chance.next_u64() % 3000);
        let allowed = work_until_crash(&mut world, &cache, &mut chance);
        let left = cache.crash(chance.next_u64());
        // It crashes once more while it is opened, or soon after.
        left.crash_at(chance.next_u64() % 400);
        let found = World::open(&left).committed;
        crashes_while_opening += u64::from(left.has_crashed());
        cache = left.crash(chance.next_u64());
        world = World::open(&cache);
        assert_eq!(world.committed, found, "round {round}: opened once more it has another batch");
        assert!(
            allowed.contains(&world.committed),
            "round {round}: batch {} is the last, of {allowed:?}",
            world.committed
        );
        world.verify();
    }
    assert!(world.committed > 500 && crashes_while_opening > 5, "{} batches, {crashes_while_opening}", world.committed);
}

#[test]
fn a_crash_of_the_machine_leaves_every_durable_batch_and_none_in_part() {
    crash_again_and_again(true);
    crash_again_and_again(false);
}

/// Found by killing a server: the second batch was durable without a flush of the device, for the log is not where the block FTL has its own.
#[test]
fn every_durable_batch_waits_for_a_flush_of_the_device() {
    for power_loss_protection in [false, true] {
        let cache = PageCache::new();
        let mut world = World::create(&cache, &profile(power_loss_protection));
        for _ in 0..4 {
            world.commit(Durability::Durable).result.unwrap();
            let mut found = World::open(&cache.of_next_process());
            assert_eq!(found.committed, world.committed);
            found.verify();
        }
    }
}
