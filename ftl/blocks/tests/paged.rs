//! Drives whose map is on media, with little memory for it: against the model, with clean stops and power cuts.

use crate::damage::{Damage, blocks, checkpoint, idle, log, superblock};
use crate::repair::{expect_in_use, expect_repair_may_be_cut, repaired};
use openftl_core::{Nanos, Ppa};
use openftl_media::{Media, Profile};
use openftl_parts::flash::oob::BlockKind;
use openftl_parts::map::Width;
use openftl_parts::map::cache::CachePolicy;
use openftl_parts::map::directory::PageSize;
use openftl_parts::map::memory::{MapBudget, MapMemory};
use openftl_parts::open_error::OpenError;
use openftl_parts::target::{ExpectedUse, Extent};
use openftl_parts::{Access, BlockTarget, Config, Target};
use openftl_sim::played::Played;
use openftl_sim::world::{World, config};
use std::collections::BTreeMap;

fn run(name: &str, capacity_blocks: u64, entries: u32, seed: u64, operations: u64, depth: usize) -> World {
    let profile = Profile::builtin(name).unwrap();
    let policy = CachePolicy::ALL[seed as usize % CachePolicy::ALL.len()];
    let page = PageSize::of(entries, Width::Narrow).unwrap();
    let memory = MapMemory { budget: MapBudget::BeyondLeast(500), policy, page };
    // Half of them as drives of more than 8 TiB have it.
    let memory = if seed.is_multiple_of(2) { memory } else { memory.wide() };
    let config = Config { map_memory: Some(memory), ..config(capacity_blocks, seed) };
    run_with(profile, config, seed, operations, depth)
}

fn run_with(profile: Profile, config: Config, seed: u64, operations: u64, depth: usize) -> World {
    let mut world = World::new(profile, config, 0, seed);
    for number in 0..operations {
        world.operation(depth);
        if number % 97 == 96 {
            let torn = world.below(2) == 0;
            world.power_cut(torn);
            if let Err(contradiction) = world.recover() {
                panic!("seed {seed}, after operation {number}: {contradiction}");
            }
        } else if number % 311 == 310 {
            world.clean_restart();
        }
        if number % 500 == 499 {
            world.verify_all();
        }
    }
    world.settle();
    world.verify_all();
    world.check();
    world
}

#[test]
fn a_map_of_small_pages_agrees_with_the_model() {
    let mut merged = 0;
    for seed in 0..8 {
        let mut world = run("tiny", 700, 8, seed, 2_000, 1 + seed as usize);
        merged += world.ftl().statistics().map_pages_written;
    }
    assert!(merged > 0, "nothing was merged");
}

#[test]
fn a_map_of_any_page_size_on_any_flash_agrees_with_the_model() {
    for seed in 100..104 {
        run("tiny", 700, [8, 32, 1024, 64][seed as usize % 4], seed, 1_500, 1 + seed as usize % 16);
        run("westlake", 6_000, [16, 1024][seed as usize % 2], seed, 600, 1 + seed as usize % 16);
    }
    for seed in 104..106 {
        run("qlc", 6_000, [16, 1024][seed as usize % 2], seed, 600, 8);
        run("granby", 6_000, [128, 1024][seed as usize % 2], seed, 400, 8);
    }
}

/// Host hints, pins of the owner, learned ones and large map blocks change which pages are in memory, and no answer.
#[test]
fn pins_and_large_map_blocks_agree_with_the_model() {
    for seed in 300..308 {
        let policy = CachePolicy::ALL[seed as usize % CachePolicy::ALL.len()];
        let budget = MapBudget::BeyondLeast([500, 4_000][seed as usize / 4 % 2]);
        let memory = MapMemory { budget, policy, page: PageSize::of(8, Width::Narrow).unwrap() };
        let pins: &[&str] = [&["0..256KiB", "1MiB..1100KiB", "learned"][..], &["0..2800KiB"]][seed as usize % 2];
        let config = Config {
            map_memory: Some(memory),
            map_pins: pins.iter().map(|pin| pin.parse().unwrap()).collect(),
            map_block: ["64KiB", "8KiB", "16KiB"][seed as usize % 3].parse().unwrap(),
            ..config(700, seed)
        };
        run_with(Profile::builtin("tiny").unwrap(), config, seed, 1_000, 1 + seed as usize % 9);
    }
}

/// While both copies took turns by one count, either went to every other of its groups alone: two of these four groups had all map pages. Once pages
/// move because chunks run short, chance hides that.
#[test]
fn map_pages_are_in_every_group() {
    let mut profile = Profile::builtin("tiny").unwrap();
    (profile.groups, profile.pus_per_group) = (4, 2);
    let page = PageSize::of(8, Width::Narrow).unwrap();
    let memory = MapMemory { budget: MapBudget::BeyondLeast(500), policy: CachePolicy::Clock, page };
    let mut world = World::new(profile, Config { map_memory: Some(memory), ..config(3_000, 1) }, 20, 1);
    world.write_all(8);
    for number in 0..1_000 {
        world.write(number * 397 % 3_000, 1);
    }
    let format = world.wire.geometry().format();
    let mut in_group = [0; 4];
    for ppa in map_pages(&mut world).into_values().flatten() {
        in_group[format.group_of(format.pu_of(format.chunk_of(ppa))) as usize] += 1;
    }
    assert!(in_group.iter().all(|pages| *pages > 100), "{in_group:?}");
}

fn paged(pins: &[&str], block: &str) -> World {
    let memory = MapMemory {
        budget: MapBudget::BeyondLeast(2_000),
        policy: CachePolicy::Clock,
        page: PageSize::of(8, Width::Narrow).unwrap(),
    };
    let config = Config {
        map_memory: Some(memory),
        map_pins: pins.iter().map(|pin| pin.parse().unwrap()).collect(),
        map_block: block.parse().unwrap(),
        ..config(3_000, 1)
    };
    World::new(Profile::builtin("tiny").unwrap(), config, 0, 1)
}

/// Map pages that reads of `blocks` load, one after the other.
fn pages_read(world: &mut World, blocks: impl Iterator<Item = u64>) -> u64 {
    let before = world.ftl().statistics().map_pages_read;
    for block in blocks {
        let tag = world.submit_read(block, 1);
        world.wait(tag);
    }
    world.ftl().statistics().map_pages_read - before
}

#[test]
fn pages_of_pinned_blocks_are_read_once_whatever_is_read_meanwhile() {
    let told = |extent: Extent, expected| {
        let mut world = paged(&[], "4KiB");
        world.write_all(40);
        world.ftl().expect_use(extent, expected);
        world
    };
    let extent = Extent { first: 0, blocks: 64 };
    let owners = {
        let mut world = paged(&["0..256KiB"], "4KiB");
        world.write_all(40);
        world
    };
    let mut unpinned = told(extent, ExpectedUse::Frequent);
    unpinned.ftl().expect_use(extent, ExpectedUse::Ordinary);
    for (mut world, is_pinned) in [
        (owners, true),
        (told(extent, ExpectedUse::Frequent), true),
        (told(extent, ExpectedUse::Ordinary), false),
        (unpinned, false),
    ] {
        assert_eq!(world.ftl().pinned_blocks(), if is_pinned { vec![extent] } else { vec![] });
        idle(&mut world);
        pages_read(&mut world, (0..64).step_by(8));
        pages_read(&mut world, (64..3_000).step_by(8));
        let again = pages_read(&mut world, (0..64).step_by(8));
        assert_eq!(again == 0, is_pinned, "{again}");
    }
}

/// A journal: the drive learns it from the third lap on, and writes at random in between do not matter.
#[test]
fn a_range_that_is_overwritten_in_order_is_learned() {
    let mut world = paged(&["learned"], "4KiB");
    world.write_all(40);
    for lap in 0..3 {
        assert!(world.ftl().pinned_blocks().is_empty(), "lap {lap}");
        for block in 0..80 {
            world.write(1_000 + block, 1);
            if block % 20 == 0 {
                let (first, _) = world.range(1);
                world.write(if first < 1_080 { 2_000 } else { first }, 1);
            }
        }
    }
    world.write(1_000, 1);
    world.flush();
    assert_eq!(world.ftl().pinned_blocks(), [Extent { first: 1_000, blocks: 80 }]);
}

#[test]
fn a_large_map_block_is_loaded_as_a_whole() {
    let reads = |block| {
        let mut world = paged(&[], block);
        world.write_all(40);
        idle(&mut world);
        // One of each sixteen pages, backwards: nothing is read ahead.
        pages_read(&mut world, (0..3_000 / 128).rev().map(|at| at * 128))
    };
    let (one, sixteen) = (reads("4KiB"), reads("64KiB"));
    assert!(sixteen > 8 * one, "{one} and {sixteen}");
}

/// A drive that was cut off while it was written to, everything flushed: of what was trimmed, or written and never committed, blocks
/// alone do not tell.
fn cut_off(seed: u64) -> World {
    let page = PageSize::of(32, Width::Narrow).unwrap();
    let memory = MapMemory { budget: MapBudget::BeyondLeast(500), policy: CachePolicy::Clock, page };
    let config = Config { map_memory: Some(memory), checkpoint_log_blocks: Some(40), ..config(3_000, seed) };
    let mut world = World::new(Profile::builtin("tiny").unwrap(), config, 20, seed);
    world.write_all(40);
    while world.ftl().statistics().checkpoints < 1 || world.ftl().statistics().map_pages_written < 200 {
        let (first, blocks) = world.range(30);
        world.write(first, blocks);
    }
    for _ in 0..20 {
        let (first, blocks) = world.range(30);
        world.write(first, blocks);
        world.flush();
    }
    idle(&mut world);
    // Also what it has merged by itself.
    world.flush();
    world.power_cut(seed.is_multiple_of(2));
    world
}

/// Where the newest of each map page is.
fn map_pages(world: &mut World) -> BTreeMap<u64, Vec<Ppa>> {
    let mut newest: BTreeMap<u64, (u64, Vec<Ppa>)> = BTreeMap::new();
    for (ppa, oob) in blocks(world) {
        if oob.kind == BlockKind::Map {
            let (sequence, places) = newest.entry(oob.address).or_default();
            if oob.sequence > *sequence {
                (*sequence, *places) = (oob.sequence, Vec::new());
            }
            if oob.sequence == *sequence {
                places.push(ppa);
            }
        }
    }
    newest.into_iter().map(|(page, (_, places))| (page, places)).collect()
}

#[test]
fn map_pages_that_are_lost_are_rebuilt_from_the_blocks_of_data() {
    for seed in 200..212 {
        let damage = [Damage::Unreadable, Damage::Corrupted][seed as usize / 2 % 2];
        let mut world = cut_off(seed);
        let pages = map_pages(&mut world);
        let lost: Vec<Ppa> = pages.into_values().skip(seed as usize % 5).take(3).flatten().collect();
        assert!(!lost.is_empty());
        damage.strike_all(&mut world, lost);
        let refusal = world.open(Access::ReadWrite).unwrap_err();
        assert!(matches!(refusal, OpenError::MapPageLost { .. }), "{refusal}");
        let report = repaired(&mut world, &format!("seed {seed}"));
        assert_eq!(report.blocks_lost, 0, "seed {seed}: {report:?}");
        assert!(report.blocks_rebuilt > 0 && report.blocks_known > 2_500, "seed {seed}: {report:?}");
        expect_in_use(&mut world);
    }
}

#[test]
fn one_copy_of_each_map_page_is_enough() {
    for seed in 220..224 {
        let mut world = cut_off(seed);
        let one = map_pages(&mut world).into_iter().map(|(page, places)| places[page as usize % places.len()]);
        let one: Vec<Ppa> = one.collect();
        Damage::Unreadable.strike_all(&mut world, one);
        let single = |world: &mut World| {
            world.open(Access::Inspect).unwrap();
            let copies = world.ftl.take().unwrap().recovery_report().single_copies.join("\n");
            copies.split("map: ").nth(1).map_or(0, |text| text.split(' ').next().unwrap().parse::<u32>().unwrap())
        };
        let before = single(&mut world);
        assert!(before > 10, "{before}");
        // A recovery reads one copy of each page, and what it misses is merged by itself. No host reads anything.
        world.open(Access::ReadWrite).unwrap();
        idle(&mut world);
        world.ftl.take().unwrap().close(&mut world.clock).unwrap();
        let after = single(&mut world);
        assert!(after < before, "{after} of {before}");
        world.recover().unwrap();
        world.verify_all();
        idle(&mut world);
        world.ftl.take().unwrap().close(&mut world.clock).unwrap();
        assert!(single(&mut world) < after.max(1), "seed {seed}: {after}");
        world.recover().unwrap();
        expect_in_use(&mut world);
    }
}

#[test]
fn a_lost_directory_is_rebuilt_from_the_newest_map_pages() {
    let mut repairs = 0;
    for seed in 230..238 {
        let mut world = cut_off(seed);
        let (superblock, _) = superblock(&mut world);
        for copy in 0..2 {
            let of_checkpoint = checkpoint(&mut world, &superblock, copy).into_iter().map(|(_, ppa)| ppa);
            let of_log = log(&mut world, &superblock, copy).into_iter().map(|(_, ppa)| ppa);
            let lost: Vec<Ppa> = match seed % 3 {
                0 => of_checkpoint.collect(),
                1 => of_log.take(4).collect(),
                _ => of_checkpoint.chain(of_log.take(2)).collect(),
            };
            Damage::Unreadable.strike_all(&mut world, lost);
        }
        if world.open(Access::ReadWrite).is_ok() {
            // Nothing of the log was wanted.
            assert_eq!(seed % 3, 1);
            continue;
        }
        repairs += 1;
        let report = repaired(&mut world, &format!("seed {seed}"));
        assert_eq!(report.blocks_lost, 0, "seed {seed}: {report:?}");
        expect_in_use(&mut world);
    }
    assert!(repairs > 4, "{repairs}");
}

#[test]
fn the_repair_of_a_map_on_media_may_be_cut_anywhere_and_begun_again() {
    expect_repair_may_be_cut(|| {
        let mut world = cut_off(240);
        let (superblock, _) = superblock(&mut world);
        let lost: Vec<Ppa> = map_pages(&mut world).into_values().take(2).flatten().collect();
        Damage::Unreadable.strike_all(&mut world, lost);
        for copy in 0..2 {
            let body: Vec<Ppa> = checkpoint(&mut world, &superblock, copy).into_iter().map(|(_, ppa)| ppa).collect();
            Damage::Unreadable.strike_all(&mut world, body);
        }
        world
    });
}

#[test]
fn map_pages_are_read_ahead_of_a_host_that_reads_in_order() {
    let page = PageSize::of(8, Width::Narrow).unwrap();
    let memory = MapMemory { budget: MapBudget::BeyondLeast(1 << 20), policy: CachePolicy::Lru, page };
    let mut world =
        World::new(Profile::builtin("tiny").unwrap(), Config { map_memory: Some(memory), ..config(700, 1) }, 20, 1);
    for number in 0..2_000 {
        world.write(number * 397 % 700, 1);
    }
    // Reads that find no page make room for more of them: merges are over after one pass.
    (0..700).rev().for_each(|block| world.verify(block, 1));
    // Of each page, from the last on, a block that has no change, so that its page is read.
    world.clean_restart();
    let needs_page = |world: &mut World, block: &u64| pages_read(world, *block..block + 1) > 0;
    let of_page = |page: u64| (page * 8..page * 8 + 8).find(|block| needs_page(&mut world, block));
    let blocks: Vec<u64> = (0..700 / 8).rev().filter_map(of_page).collect();
    assert!(blocks.len() > 80, "{}", blocks.len());
    let mut time_of = |blocks: &mut dyn Iterator<Item = &u64>| {
        world.clean_restart();
        let began = world.clock.0;
        blocks.for_each(|block| world.verify(*block, 1));
        (world.clock.0.since(began), world.ftl().statistics().map_pages_read)
    };
    let (backwards, read_backwards) = time_of(&mut blocks.iter());
    let (in_order, read) = time_of(&mut blocks.iter().rev());
    assert!(in_order.0 * 10 < backwards.0 * 8, "{in_order} in order, {backwards} backwards");
    assert_eq!(read, read_backwards, "no page is read twice");
}

/// Blocks that were overwritten stay valid until their map page is merged: the scrub reads them, and misses nothing.
#[test]
fn a_scrub_takes_no_stale_block_for_a_lost_one() {
    let page = PageSize::of(32, Width::Narrow).unwrap();
    let memory = MapMemory { budget: MapBudget::BeyondLeast(1 << 20), policy: CachePolicy::Clock, page };
    let interval = Some(Nanos::from_millis(50));
    let config = Config { map_memory: Some(memory), scrub_interval: interval, ..config(700, 1) };
    let mut world = World::new(Profile::builtin("tiny").unwrap(), config, 20, 1);
    world.write_all(40);
    world.clean_restart();
    for number in 0..200 {
        world.write(number * 397 % 700, 1);
    }
    let ended = world.clock.0 + Nanos::from_millis(300);
    while world.clock.0 < ended && world.ftl().next_due().is_some() {
        world.pump();
    }
    let scrub = world.ftl().statistics().scrub;
    assert!(scrub.blocks > 700, "{scrub:?}");
    assert_eq!((scrub.weak, scrub.lost), (0, 0), "{scrub:?}");
}
