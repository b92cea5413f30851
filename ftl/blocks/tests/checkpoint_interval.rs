//! Checkpoints by the time: as often as the drive's owner asked for while there is something to save, and else not at all.

use openftl_blocks::block_ftl::BlockFtl;
use openftl_core::units::Share;
use openftl_core::{FrameForm, Nanos, Time, VirtualClock};
use openftl_media::{EmulatedDevice, Profile, Store, Timing};
use openftl_parts::{BlockTarget, Config, Durability, Handle, Request, Target, chunks_per_pu};

const CAPACITY: u64 = 16_384;
const INTERVAL: Nanos = Nanos::from_millis(500);

pub struct World {
    pub ftl: BlockFtl<EmulatedDevice>,
    clock: VirtualClock,
}

impl World {
    pub fn new() -> World {
        let profile = Profile::builtin("cosmos").unwrap();
        let config = World::config();
        let shape = profile.geometry(profile.chunks_per_pu).unwrap();
        let chunks = chunks_per_pu(&shape, &config, Share::percent(0)).unwrap();
        let device = EmulatedDevice::new(profile, chunks, Store::Stamps, Timing::Modelled, 1).unwrap();
        let mut clock = VirtualClock::default();
        let ftl = BlockFtl::format(device, config, &mut clock).unwrap();
        World { ftl, clock }
    }

    fn config() -> Config {
        Config {
            capacity_blocks: CAPACITY,
            payload: FrameForm::Stamp,
            // Long enough that only the time counts.
            checkpoint_log_blocks: Some(10_000),
            checkpoint_interval: Some(INTERVAL),
            ..Config::default()
        }
    }

    /// Stops cleanly, and opens again.
    pub fn restart(mut self) -> World {
        let device = self.ftl.close(&mut self.clock).unwrap();
        let ftl = BlockFtl::open(device, World::config(), &mut self.clock).unwrap();
        World { ftl, clock: self.clock }
    }

    /// Opens what a crash leaves.
    pub fn crash(mut self) -> World {
        let mut device = self.ftl.crash();
        device.power_cut(self.clock.0, false).unwrap();
        let ftl = BlockFtl::open(device, World::config(), &mut self.clock).unwrap();
        World { ftl, clock: self.clock }
    }

    /// Lets the drive do what it wants to until nothing is due before `end`.
    fn rest_until(&mut self, end: Time) {
        let mut done = Vec::new();
        loop {
            self.ftl.poll(self.clock.0, &mut done);
            match self.ftl.next_due().filter(|due| *due <= end) {
                Some(due) => self.clock.0 = self.clock.0.max(due),
                None => return,
            }
        }
    }

    /// Writes one block, durably.
    pub fn write(&mut self, first: u64) {
        let frame = self.ftl.frames_mut().acquire(FrameForm::Stamp).expect("a frame is free");
        let request = Request::Write { first, frames: &[frame], durability: Durability::Durable, handle: Handle::NONE };
        self.ftl.submit(self.clock.0, 0, request).unwrap();
        let mut done = Vec::new();
        loop {
            self.ftl.poll(self.clock.0, &mut done);
            if let [write] = done[..] {
                return write.result.unwrap();
            }
            let due = self.ftl.next_due().expect("a write is under way");
            self.clock.0 = self.clock.0.max(due);
        }
    }

    fn checkpoints(&self) -> u64 {
        self.ftl.statistics().checkpoints
    }
}

#[test]
fn a_busy_drive_takes_one_each_interval() {
    let mut world = World::new();
    let began = world.clock.0;
    let mut block = 0;
    while world.clock.0 < began + INTERVAL * 10 {
        world.write(block % CAPACITY);
        block += 1;
    }
    assert!(block > 100, "the drive was busy");
    assert!((9..=10).contains(&world.checkpoints()), "{} in ten intervals", world.checkpoints());
}

#[test]
fn an_idle_drive_wakes_once_for_what_is_in_its_log_and_sleeps_then() {
    let mut world = World::new();
    world.rest_until(Time::NEVER);
    assert_eq!((world.checkpoints(), world.ftl.next_due()), (0, None), "nothing was written");
    for round in 1..4 {
        let began = world.clock.0;
        world.write(round);
        world.rest_until(began + Nanos(INTERVAL.0 - 1));
        assert_eq!(world.checkpoints(), round - 1, "the interval is not over");
        assert!(world.ftl.next_due().is_some_and(|due| due.since(world.clock.0) <= INTERVAL));
        world.rest_until(Time::NEVER);
        assert_eq!((world.checkpoints(), world.ftl.next_due()), (round, None));
    }
}

#[test]
fn a_drive_that_was_closed_cleanly_has_nothing_to_save() {
    let mut world = World::new();
    world.write(7);
    let config = world.ftl.config().clone();
    let device = world.ftl.close(&mut world.clock).unwrap();
    world.ftl = BlockFtl::open(device, config, &mut world.clock).unwrap();
    world.rest_until(Time::NEVER);
    assert_eq!((world.checkpoints(), world.ftl.next_due()), (0, None));
}
