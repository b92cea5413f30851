//! Every crash point of a small drive: a short workload is repeated from the beginning, and the power is cut after each
//! event in turn (a command accepted, a moment at which something ended), what is being programmed torn or not. Each time
//! the drive is recovered and compared with the model. For some of those cuts the recovery is cut as well, after each of
//! its own events.

mod world;

use openftl_core::FrameForm;
use openftl_core::units::Share;
use openftl_ftl::{Access, Config, Durability, Purpose};
use openftl_media::Profile;
use world::{World, config, profile};

/// The workload: the drive is filled and overwritten until garbage collection works, and then come the requests between
/// which the power is cut.
struct Scene {
    profile: Profile,
    config: Config,
    seed: u64,
    /// Blocks written beforehand.
    before: u64,
    requests: u64,
}

const DEPTH: usize = 5;

impl Scene {
    /// A drive at the beginning of the interesting part.
    fn set(&self) -> World {
        let mut world = World::new(self.profile.clone(), self.config.clone(), 0, self.seed);
        let mut written = 0;
        while written < self.before {
            let (first, blocks) = world.range(40);
            world.submit_write(first, blocks, Durability::Volatile);
            written += blocks;
        }
        world.settle();
        world
    }

    fn play(&self, world: &mut World) {
        for _ in 0..self.requests {
            match world.below(20) {
                0..11 => {
                    let (first, blocks) = world.range(9);
                    world.submit_write(first, blocks, Durability::Volatile);
                }
                11 => {
                    let (first, blocks) = world.range(60);
                    world.submit_write(first, blocks, Durability::Volatile);
                }
                12..14 => {
                    let (first, blocks) = world.range(3);
                    world.submit_write(first, blocks, Durability::Durable);
                }
                14..16 => {
                    let (first, blocks) = world.range(20);
                    world.submit_trim(first, blocks, Durability::Volatile);
                }
                16 => {
                    let (first, blocks) = world.range(20);
                    world.submit_trim(first, blocks, Durability::Durable);
                }
                17 => {
                    world.submit_flush();
                }
                _ => {
                    let (first, blocks) = world.range(10);
                    world.submit_read(first, blocks);
                }
            }
            while world.requests_under_way() >= DEPTH {
                world.pump();
            }
        }
        world.settle();
    }

    /// The drive after a power cut `events` events into the play; `None` if the play has fewer.
    fn cut(&self, events: u64, torn: bool) -> Option<World> {
        let mut world = self.set();
        let wire = world.wire.clone();
        let cut = wire.cut_after(events, || self.play(&mut world));
        if !cut {
            return None;
        }
        world.power_cut(torn);
        Some(world)
    }

    fn name(&self, events: u64, torn: bool) -> String {
        format!("{}, seed {}, cut after event {events}, torn {torn}", self.profile.name, self.seed)
    }

    fn expect_sound(&self, world: &mut World, name: &str) {
        if let Err(contradiction) = world.recover() {
            panic!("{name}: {contradiction}");
        }
        world.check();
    }

    /// Cuts after every event of the play, and, `within` events apart, after every event of the recovery as well. Gives
    /// the numbers of both kinds of cuts.
    fn enumerate(&self, within: u64) -> (u64, u64) {
        self.expect_coverage();
        let (mut cuts, mut recovery_cuts) = (0, 0);
        for torn in [false, true] {
            let mut events = 1;
            while let Some(mut world) = self.cut(events, torn) {
                self.expect_sound(&mut world, &self.name(events, torn));
                cuts += 1;
                if events % within == within / 2 {
                    recovery_cuts += self.cut_recovery(events, torn);
                }
                // Every tenth drive goes on working, to show that it can.
                if events % 10 == 0 {
                    for _ in 0..60 {
                        world.operation(DEPTH);
                    }
                    world.settle();
                    world.verify_all();
                    world.check();
                }
                events += 1;
            }
        }
        (cuts, recovery_cuts)
    }

    fn cut_recovery(&self, events: u64, torn: bool) -> u64 {
        let mut recovery_events = 1;
        loop {
            let mut world = self.cut(events, torn).expect("it was cut there before");
            let wire = world.wire.clone();
            let cut = wire.cut_after(recovery_events, || {
                if let Err(error) = world.open(Access::ReadWrite) {
                    panic!("{}: {error}", self.name(events, torn));
                }
            });
            if !cut {
                return recovery_events - 1;
            }
            let torn_again = recovery_events % 2 == 0;
            world.power_cut(torn_again);
            let name = format!("{}, recovery cut after event {recovery_events}", self.name(events, torn));
            self.expect_sound(&mut world, &name);
            recovery_events += 1;
        }
    }

    /// The play is worth nothing if garbage collection and checkpoints do not happen in it.
    fn expect_coverage(&self) {
        let mut world = self.set();
        world.ftl().reset_statistics();
        self.play(&mut world);
        let statistics = world.ftl().statistics();
        assert!(statistics.checkpoints >= 1, "a checkpoint is taken while the power may be cut");
        assert!(statistics.programmed_for(Purpose::Relocation) > 0, "garbage collection moves blocks");
        assert!(statistics.resets > 0, "chunks are reset");
        assert!(statistics.host_flushes > 0 && statistics.host_blocks_trimmed > 0, "flushes and trims are in the mix");
    }
}

fn small(seed: u64) -> Config {
    Config { checkpoint_log_blocks: Some(8), host_frames: 400, ..config(600, seed) }
}

/// The profile `tiny` with chunks of half the size, so that they come and go often, and other changes.
fn crumb(changes: &[(&str, &str)]) -> Profile {
    profile("tiny", &[&[("blocks_per_chunk = 32", "blocks_per_chunk = 16")], changes].concat())
}

fn expect_many(name: &str, scene: &Scene, within: u64) {
    let (cuts, recovery_cuts) = scene.enumerate(within);
    println!("{name}: {cuts} cuts of the workload, {recovery_cuts} cuts of a recovery");
    assert!(
        cuts > 300 && recovery_cuts > 100,
        "{cuts} cuts and {recovery_cuts} of recoveries are too few to show anything"
    );
}

/// Paired pages, a cache that outlives the power.
#[test]
fn every_crash_point_with_power_loss_protection() {
    let scene = Scene { profile: crumb(&[]), config: small(1), seed: 1, before: 2_000, requests: 70 };
    expect_many("protected", &scene, 60);
}

/// Paired pages, a cache that does not: programs are torn and take the pages that share their word lines with them.
#[test]
fn every_crash_point_without_power_loss_protection() {
    let scene = Scene {
        profile: crumb(&[("power_loss_protection = true", "power_loss_protection = false")]),
        config: small(3),
        seed: 3,
        before: 2_000,
        requests: 70,
    };
    expect_many("unprotected", &scene, 60);
}

/// One-shot programming: nothing is held back by MW_CUNITS, and units of twelve blocks; real bytes.
#[test]
fn every_crash_point_with_one_shot_programming() {
    let changes = [
        ("programming = \"shared\"\npair_distance = 2", "programming = \"one-shot\""),
        ("program_us = [400, 1200]", "program_us = [1600]"),
        ("power_loss_protection = true", "power_loss_protection = false"),
    ];
    let scene = Scene {
        profile: crumb(&changes),
        config: Config { payload: FrameForm::Bytes, ..small(5) },
        seed: 5,
        before: 2_000,
        requests: 70,
    };
    expect_many("one-shot", &scene, 60);
}

/// No cache at all, but paired pages: a write is acknowledged when it is programmed, and a torn program takes it away again.
#[test]
fn every_crash_point_without_a_cache() {
    let changes =
        [("blocks_per_pu = 8", "blocks_per_pu = 0"), ("power_loss_protection = true", "power_loss_protection = false")];
    let scene = Scene {
        profile: crumb(&changes),
        config: Config { over_provisioning: Share::percent(20), ..small(6) },
        seed: 6,
        before: 2_000,
        requests: 40,
    };
    expect_many("no cache", &scene, 60);
}
