//! Every crash point of a small drive, on four kinds of flash: each state in which a power cut can leave the device during
//! a workload with garbage collection and checkpoints in it, and each in which one can leave it during the recovery.

use openftl_core::Nanos;
use openftl_core::units::Share;
use openftl_media::Profile;
use openftl_parts::map::Width;
use openftl_parts::map::cache::CachePolicy;
use openftl_parts::map::directory::PageSize;
use openftl_parts::map::memory::{MapBudget, MapMemory};
use openftl_parts::{Config, Durability, Extent, Handle, PlacementName, Purpose};
use openftl_sim::fate::States;
use openftl_sim::fault::Fault;
use openftl_sim::played::Played;
use openftl_sim::step::{Step, parse_steps};
use openftl_sim::world::{config, profile};
use openftl_sim::{BlockCrashPoints, FaultKind, TableWorld, World};
use std::num::NonZeroU64;
use std::sync::Mutex;

/// The workload: the drive is filled and overwritten until garbage collection works, and then come the requests between
/// which the power is cut.
struct Scene {
    profile: Profile,
    config: Config,
    seed: u64,
    /// Blocks written beforehand.
    before: u64,
}

const DEPTH: usize = 5;

/// The variable that has all recoveries cut, with the value `all`: `cargo xtask interop` does that.
const ALL: &str = "OPENFTL_CRASH_POINTS";

/// Of how many recoveries one is cut as well. Cuts of the workload are all tried, whatever this is.
fn recoveries_cut() -> NonZeroU64 {
    match std::env::var(ALL).as_deref() {
        Ok("all") => NonZeroU64::MIN,
        Ok(other) => panic!("{ALL}={other}: it is `all` or not set"),
        Err(_) => NonZeroU64::new(3).expect("three"),
    }
}

/// Requests between which the power is cut, at least.
const REQUESTS_MIN: u64 = 12;

/// Map pages that are merged meanwhile, at least, where the map is on media.
const MAP_PAGES_MIN: u64 = 4;

/// Crash states of all scenes so far, and drives recovered from them that were closed.
static TOTALS: Mutex<(States, u64)> = Mutex::new((States::NONE, 0));

/// Says how many states there were, by kind, and that each was closed.
fn told(name: &str, crash_points: BlockCrashPoints) -> BlockCrashPoints {
    let BlockCrashPoints { cuts, recovery_cuts, states, closed, .. } = crash_points;
    let mut totals = TOTALS.lock().unwrap();
    totals.0 += states;
    totals.1 += closed;
    println!(
        "{name}: {cuts} states after cuts of the workload, {recovery_cuts} after cuts of a recovery: {states}; {closed} closed"
    );
    println!("  all so far: {}; {} closed", totals.0, totals.1);
    assert_eq!(closed, cuts + recovery_cuts, "every recovered drive has worked and was closed");
    crash_points
}

impl Scene {
    /// A drive at the beginning of the interesting part.
    fn set(&self) -> World {
        let mut world = World::new(self.profile.clone(), self.config.clone(), 0, self.seed);
        let mut written = 0;
        while written < self.before {
            let (first, blocks) = world.range(40);
            self.hint(&mut world, Extent { first, blocks }, written);
            world.submit_write(first, blocks, Durability::Volatile);
            written += blocks;
        }
        world.flush();
        world
    }

    /// Request number `number` of a mix of all kinds.
    fn submit(&self, world: &mut World, number: u64) {
        let (first, blocks) = world.range([20, 8, 2, 12, 9, 4, 5][number as usize % 7]);
        self.hint(world, Extent { first, blocks: (3 * blocks).min(world.blocks() - first) }, number);
        match number % 7 {
            0 => world.submit_write(first, blocks, Durability::Volatile),
            1 => world.submit_trim(first, blocks, Durability::Durable),
            2 => world.submit_write(first, blocks, Durability::Durable),
            3 => world.submit_trim(first, blocks, Durability::Volatile),
            4 => world.submit_read(first, blocks),
            5 => world.submit_write_uncorrectable(first, blocks, Durability::Volatile),
            _ => world.submit_flush(),
        };
    }

    /// Tells the drive what it heeds of what is to come, and where.
    fn hint(&self, world: &mut World, at: Extent, number: u64) {
        match self.config.placement {
            PlacementName::FlashAlloc if number.is_multiple_of(2) => world.submit_flash_alloc(&[at]),
            placement if placement.heeds_handles() => world.handle = Handle((number % 3) as u8),
            _ => {}
        }
    }

    /// Cuts wherever it makes a difference, until everything has happened once; and each recovery likewise.
    fn enumerate(&self) -> BlockCrashPoints {
        let mut crash_points = BlockCrashPoints::new(recoveries_cut());
        let mut world = self.set();
        world.wire.watch_beyond();
        world.ftl().reset_statistics();
        let mut number = 0;
        while number < REQUESTS_MIN || !covers_everything(&mut world) {
            self.submit(&mut world, number);
            number += 1;
            while world.requests_under_way() >= DEPTH {
                world.pump();
                self.expect_sound(&mut crash_points, &mut world);
            }
        }
        crash_points
    }

    fn expect_sound(&self, crash_points: &mut BlockCrashPoints, world: &mut World) {
        if let Err(contradiction) = crash_points.judge(world) {
            panic!("{}, seed {}: {contradiction}", self.profile.name, self.seed);
        }
    }
}

/// A workload is worth nothing if garbage collection and checkpoints do not happen in it.
fn covers_everything(world: &mut World) -> bool {
    let statistics = world.ftl().statistics();
    let metadata = statistics.checkpoints > 0 && statistics.resets > 0;
    let host = statistics.host_flushes > 0 && statistics.host_blocks_trimmed > 0;
    let host = host && statistics.host_blocks_marked > 0;
    let (merged, relocated) = (statistics.map_pages_written, statistics.programmed_for(Purpose::Relocation));
    let map = world.ftl().map_on_media().is_none() || merged >= MAP_PAGES_MIN;
    metadata && host && map && relocated > 0
}

fn small(seed: u64) -> Config {
    Config { checkpoint_log_blocks: Some(8), host_frames: 400, ..config(600, seed) }
}

/// The profile `tiny` with chunks of half the size, so that they come and go often, and other changes.
fn crumb(changes: &[(&str, &str)]) -> Profile {
    profile("tiny", &[&[("blocks_per_chunk = 32", "blocks_per_chunk = 16")], changes].concat())
}

fn expect_many(name: &str, scene: &Scene) {
    let BlockCrashPoints { cuts, recovery_cuts, .. } = told(name, scene.enumerate());
    assert!(
        cuts > 100 && recovery_cuts > 2_000,
        "{cuts} cuts and {recovery_cuts} of recoveries are too few to show anything"
    );
}

/// Paired pages, a cache that outlives the power.
#[test]
fn every_crash_point_with_power_loss_protection() {
    let scene = Scene { profile: crumb(&[]), config: small(1), seed: 1, before: 2_000 };
    expect_many("protected", &scene);
}

/// Paired pages, a cache that does not: programs are torn and take the pages that share their word lines with them.
#[test]
fn every_crash_point_without_power_loss_protection() {
    let scene = Scene {
        profile: crumb(&[("power_loss_protection = true", "power_loss_protection = false")]),
        config: small(3),
        seed: 3,
        before: 2_000,
    };
    expect_many("unprotected", &scene);
}

/// One-shot programming: nothing is held back by MW_CUNITS, and units of twelve blocks.
#[test]
fn every_crash_point_with_one_shot_programming() {
    let changes = [
        ("programming = \"shared\"\npair_distance = 2", "programming = \"one-shot\""),
        ("program_us = [400, 1200]", "program_us = [1600]"),
        ("power_loss_protection = true", "power_loss_protection = false"),
    ];
    let scene = Scene { profile: crumb(&changes), config: small(5), seed: 5, before: 2_000 };
    expect_many("one-shot", &scene);
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
    };
    expect_many("no cache", &scene);
}

/// Blocks of objects and of others wait in queues of their own, are programmed out of order, and leave the buffer so.
#[test]
fn every_crash_point_with_objects() {
    let config = Config { placement: PlacementName::FlashAlloc, objects_max: 3, ..placed(small(7)) };
    expect_many("objects", &Scene { profile: crumb(&[]), config, seed: 7, before: 2_000 });
}

/// The same of handles that are kept apart in collection, where what is programmed may still be lost.
#[test]
fn every_crash_point_with_handles() {
    let config = Config { placement: PlacementName::StreamsKept, handles: 2, ..placed(small(9)) };
    let profile = crumb(&[("power_loss_protection = true", "power_loss_protection = false")]);
    expect_many("handles", &Scene { profile, config, seed: 9, before: 2_000 });
}

/// With room for chunks of classes.
fn placed(config: Config) -> Config {
    Config { over_provisioning: Share::percent(20), ..config }
}

/// A map on media, with pages so small that there are many, and memory for few of them.
fn paged(config: Config, entries: u32) -> Config {
    let page = PageSize::of(entries, Width::Narrow).expect("as many as a page may have");
    let memory = MapMemory { budget: MapBudget::BeyondLeast(200), policy: CachePolicy::Clock, page };
    Config { map_memory: Some(memory), ..config }
}

/// The same with entries of five bytes, as a drive of more than 8 TiB has them.
#[test]
fn every_crash_point_of_a_map_with_wide_entries() {
    let config = paged(small(19), 8);
    let config = Config { map_memory: config.map_memory.map(MapMemory::wide), ..config };
    expect_many("wide entries", &Scene { profile: crumb(&[]), config, seed: 19, before: 2_000 });
}

/// Changes, merges of pages, pages that are trimmed as a whole, chunks of map pages that are emptied and reset.
#[test]
fn every_crash_point_of_a_map_on_media_with_power_loss_protection() {
    let scene = Scene { profile: crumb(&[]), config: paged(small(16), 8), seed: 16, before: 2_000 };
    expect_many("map on media, protected", &scene);
}

/// Five times as many states as with power-loss protection: minutes, where the others take seconds.
#[test]
#[ignore = "minutes: cargo test --release -p openftl-sim --test crash_points -- --ignored"]
fn every_crash_point_of_a_map_on_media_without_power_loss_protection() {
    let profile = crumb(&[("power_loss_protection = true", "power_loss_protection = false")]);
    let scene = Scene { profile, config: paged(small(17), 8), seed: 17, before: 2_000 };
    expect_many("map on media, unprotected", &scene);
}

/// The same with one-shot programming, where map pages are half as large and there are twice as many.
#[test]
#[ignore = "a minute: cargo test --release -p openftl-sim --test crash_points -- --ignored"]
fn every_crash_point_of_a_map_on_media_with_one_shot_programming() {
    let changes = [
        ("programming = \"shared\"\npair_distance = 2", "programming = \"one-shot\""),
        ("program_us = [400, 1200]", "program_us = [1600]"),
        ("power_loss_protection = true", "power_loss_protection = false"),
    ];
    let scene = Scene { profile: crumb(&changes), config: paged(small(18), 4), seed: 18, before: 2_000 };
    expect_many("map on media, one-shot", &scene);
}

/// Tables of several chunks, written side by side and in pieces, with the log area in between: committed, noted anew with a
/// longer note (which moves the entry), deleted, pinned and given up. What was deleted is released, its chunks are reset and used again.
const TABLES: &str = "\
    b0+4 p0+18 w0+3 b0+0 p1+5 e0+20 q0+4 p0+9 e0+5000 s n0+30 f n1+12 d0+0 s k0+0 d0+0 W1+1 b0+0 p0+9 g0+0 l0+0 f s \
    b0+0 p0+20 e0+0 f s b0+0 p0+11 e0+9 w2+2 f s";

/// A table whose chunks are found weak and move: it is noted anew during the first move, and deleted during the second.
const MOVES: &str = "\
    b0+0 p0+14 e0+0 f s !ecc3 q0+14 i2000 n0+30 w0+2 i9000 f s !ecc1 q0+8 i1500 d0+0 w2+2 b0+0 p0+9 e0+9 f s t0+1 f s";

/// These steps, cut wherever it makes a difference, and each recovery likewise. Weak blocks are those of the first table.
fn expect_many_of_tables(name: &str, steps: &str, profile: Profile, seed: u64) -> TableWorld {
    let config = Config { checkpoint_log_blocks: Some(8), host_frames: 300, ..config(40, seed) };
    let mut world = TableWorld::new(Profile { pus_per_group: 1, ..profile }, config, 8, seed);
    world.wire.watch_beyond();
    let mut crash_points = BlockCrashPoints::new(recoveries_cut());
    let mut expect_sound = |world: &mut TableWorld| {
        if let Err(contradiction) = crash_points.judge(world) {
            panic!("{name}, seed {seed}: {contradiction}");
        }
    };
    for step in parse_steps(steps).unwrap() {
        match step {
            Step::Write(range, durability) => _ = world.submit_write(range.first, range.blocks, durability),
            Step::Trim(range, durability) => _ = world.submit_trim(range.first, range.blocks, durability),
            Step::Flush => _ = world.submit_flush(),
            Step::Settle => world.settle(),
            Step::Table(deed) => world.perform(deed),
            Step::Idle(micros) => world.idle(Nanos::from_micros(micros)),
            Step::Fault(Fault { kind: FaultKind::HighEcc, pick }) => {
                let table = world.committed()[0];
                let id = world.id(table);
                let place = world.ftl().place_on_media(id, pick).unwrap();
                world.device().inject_high_ecc(place);
            }
            other => panic!("{other} is not among them"),
        }
        while world.requests_under_way() >= DEPTH {
            world.pump();
        }
        expect_sound(&mut world);
    }
    let BlockCrashPoints { cuts, recovery_cuts, .. } = told(name, crash_points);
    assert!(cuts > 50 && recovery_cuts > 500, "{cuts} cuts and {recovery_cuts} of recoveries are too few");
    world
}

fn expect_many_of_writes(name: &str, profile: Profile, seed: u64) {
    let mut world = expect_many_of_tables(name, TABLES, profile, seed);
    let (statistics, tables) = world.ftl().statistics();
    assert!(tables.committed > 2 && tables.deleted > 1 && statistics.resets > 0, "all of it happens: {tables:?}");
}

fn expect_many_of_moves(name: &str, profile: Profile, seed: u64) {
    let mut world = expect_many_of_tables(name, MOVES, profile, seed);
    let (statistics, _) = world.ftl().statistics();
    let moved: u64 = statistics.cared.iter().map(|moved| moved.chunks).sum();
    assert!(moved > 0 && statistics.resets > 0, "all of it happens: {moved} chunks of tables moved");
}

#[test]
fn every_crash_point_of_tables_with_power_loss_protection() {
    expect_many_of_writes("tables, protected", crumb(&[]), 11);
}

#[test]
fn every_crash_point_of_tables_without_power_loss_protection() {
    let profile = crumb(&[("power_loss_protection = true", "power_loss_protection = false")]);
    expect_many_of_writes("tables, unprotected", profile, 12);
}

#[test]
fn every_crash_point_of_tables_with_one_shot_programming() {
    let changes = [
        ("programming = \"shared\"\npair_distance = 2", "programming = \"one-shot\""),
        ("program_us = [400, 1200]", "program_us = [1600]"),
        ("power_loss_protection = true", "power_loss_protection = false"),
    ];
    expect_many_of_writes("tables, one-shot", crumb(&changes), 13);
}

#[test]
fn every_crash_point_of_tables_that_move_with_power_loss_protection() {
    expect_many_of_moves("moves, protected", crumb(&[]), 14);
}

#[test]
fn every_crash_point_of_tables_that_move_without_power_loss_protection() {
    let profile = crumb(&[("power_loss_protection = true", "power_loss_protection = false")]);
    expect_many_of_moves("moves, unprotected", profile, 15);
}
