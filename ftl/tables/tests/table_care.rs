//! Care for tables: what is weak of one moves before it is lost, whatever else happens to the table meanwhile.

use openftl_core::{ChunkId, Nanos, Ppa};
use openftl_media::{Media, Profile};
use openftl_parts::flash::chunk_table::ChunkUse;
use openftl_parts::{Care, Config, Moved, Purpose};
use openftl_sim::fault::Fault;
use openftl_sim::played::Played;
use openftl_sim::world::{config, profile};
use openftl_sim::{FaultKind, TableWorld};
use openftl_tables::Wish;
use std::collections::BTreeSet;

/// Blocks of a chunk of the tiny device.
const CHUNK: u32 = 32;

const LONG: Nanos = Nanos::from_millis(200);

fn world(seed: u64) -> TableWorld {
    TableWorld::new(Profile::builtin("tiny").unwrap(), config(200, seed), 8, seed)
}

fn place(world: &mut TableWorld, table: u32, block: u32) -> Ppa {
    let id = world.id(table);
    world.ftl().place_on_media(id, block).expect("a committed table is on media")
}

fn chunk_of(world: &mut TableWorld, table: u32, block: u32) -> ChunkId {
    let place = place(world, table, block);
    world.wire.geometry().format().chunk_of(place)
}

/// Blocks of a table that are in `chunk`.
fn blocks_in(world: &mut TableWorld, table: u32, chunk: ChunkId) -> Vec<u32> {
    (0..world.blocks_of(table)).filter(|block| chunk_of(world, table, *block) == chunk).collect()
}

fn usage(world: &mut TableWorld, chunk: ChunkId) -> ChunkUse {
    let mut uses = world.ftl().block().chunk_uses();
    uses.find(|(other, ..)| *other == chunk).expect("a chunk of the device").1
}

fn cared(world: &mut TableWorld, care: Care) -> Moved {
    world.ftl().statistics().0.cared_for(care)
}

/// Reads a block, so that what is weak is found, and lets the drive work.
fn read(world: &mut TableWorld, table: u32, block: u32) {
    world.read(table, block, 1);
    world.settle();
    world.idle(LONG);
}

#[test]
fn a_weak_chunk_of_a_table_moves_when_the_host_has_read_of_it() {
    let mut world = world(1);
    let (table, other) = (world.write_table(300), world.write_table(100));
    let (weak, weak_place) = (chunk_of(&mut world, table, 70), place(&mut world, table, 70));
    let moving = blocks_in(&mut world, table, weak);
    let elsewhere: Vec<Ppa> = (0..100).map(|block| place(&mut world, other, block)).collect();
    world.device().inject_high_ecc(weak_place);
    read(&mut world, table, 70);
    assert_eq!(cared(&mut world, Care::HostRead), Moved { chunks: 1, blocks: moving.len() as u64 });
    assert!(blocks_in(&mut world, table, weak).is_empty(), "all of it has moved");
    assert_eq!((0..100).map(|block| place(&mut world, other, block)).collect::<Vec<_>>(), elsewhere);
    let format = world.wire.geometry().format();
    let (from, to) = (format.pu_of(weak), chunk_of(&mut world, table, 70));
    assert_eq!(format.pu_of(to), from, "it goes on where it was read from");
    assert_eq!(usage(&mut world, weak), ChunkUse::Tenant, "it is needed until the catalog is durable");
    world.flush();
    assert_eq!(usage(&mut world, weak), ChunkUse::Free);
    let before = world.device().statistics().high_ecc;
    world.verify_all();
    assert_eq!(world.device().statistics().high_ecc, before, "nothing is weak any more");
    assert_eq!(cared(&mut world, Care::HostRead).chunks, 1);
    world.check();
    world.power_cut(true);
    world.recover().unwrap();
    assert_eq!(chunk_of(&mut world, table, 70), to);
    world.clean_restart();
    world.check();
}

#[test]
fn what_has_moved_is_found_where_it_was_if_the_power_fails_before_the_catalog_is_durable() {
    let mut world = world(2);
    let table = world.write_table(200);
    world.flush();
    let (weak, weak_place) = (chunk_of(&mut world, table, 20), place(&mut world, table, 20));
    world.device().inject_high_ecc(weak_place);
    read(&mut world, table, 20);
    let copy = chunk_of(&mut world, table, 20);
    assert_ne!(copy, weak);
    world.power_cut(false);
    world.recover().unwrap();
    assert_eq!(chunk_of(&mut world, table, 20), weak);
    world.flush();
    assert_eq!(usage(&mut world, copy), ChunkUse::Free, "what nobody names is reset");
    world.verify_all();
}

#[test]
fn a_read_that_fails_once_is_repeated_and_what_it_read_moves() {
    let mut world = world(3);
    let table = world.write_table(200);
    let (weak, weak_place) = (chunk_of(&mut world, table, 33), place(&mut world, table, 33));
    // The host's, and that of the move.
    for _ in 0..2 {
        world.device().inject_transient_read_failure(weak_place, 1);
        read(&mut world, table, 33);
    }
    assert_ne!(chunk_of(&mut world, table, 33), weak);
    assert_eq!(world.ftl().statistics().0.read_failures, 0);
    world.verify_all();
}

#[test]
fn a_block_that_is_lost_stays_where_it_is_with_its_unit_and_the_others_move() {
    let mut world = world(4);
    let table = world.write_table(300);
    let unit = world.ftl().unit_blocks();
    let (chunk, lost) = (chunk_of(&mut world, table, 5), place(&mut world, table, 5));
    let before = blocks_in(&mut world, table, chunk);
    world.device().inject_read_failure(lost).unwrap();
    world.lose_of_table(table, 5);
    for restarted in [false, true] {
        assert!(world.try_read_table(table, 5).is_err());
        world.idle(LONG);
        world.flush();
        assert_eq!(blocks_in(&mut world, table, chunk), (5 / unit * unit..).take(unit as usize).collect::<Vec<u32>>());
        assert_eq!(usage(&mut world, chunk), ChunkUse::Tenant);
        world.verify_all();
        if !restarted {
            let moved = Moved { chunks: 1, blocks: before.len() as u64 - u64::from(unit) };
            assert_eq!(cared(&mut world, Care::HostRead), moved);
            world.clean_restart();
        }
    }
    world.delete(table);
    world.flush();
    assert_eq!(usage(&mut world, chunk), ChunkUse::Free);
}

#[test]
fn the_scrub_finds_what_nobody_reads() {
    let second = Nanos::from_millis(1_000);
    let config = Config { scrub_interval: Some(second), ..config(200, 5) };
    let mut world = TableWorld::new(Profile::builtin("tiny").unwrap(), config, 8, 5);
    let tables = [world.write_table(300), world.write_table(45)];
    world.flush();
    let read = world.ftl().statistics().0.scrub.blocks;
    world.idle(Nanos(2 * second.0));
    let read = world.ftl().statistics().0.scrub.blocks - read;
    assert!(read >= 2 * 345, "{read} blocks were read in two passes");
    let mut moving = 0;
    for (table, block) in [(tables[0], 299), (tables[1], 44)] {
        let (weak, weak_place) = (chunk_of(&mut world, table, block), place(&mut world, table, block));
        moving += blocks_in(&mut world, table, weak).len() as u64;
        world.device().inject_high_ecc(weak_place);
        world.idle(Nanos(3 * second.0));
        assert_ne!(chunk_of(&mut world, table, block), weak);
    }
    assert_eq!(cared(&mut world, Care::Scrub), Moved { chunks: 2, blocks: moving });
    assert_eq!(world.ftl().statistics().0.scrub.lost, 0);
    world.verify_all();
    world.check();
}

#[test]
fn a_table_that_is_being_written_moves_when_it_is_in_the_catalog() {
    let mut world = world(6);
    let table = world.begin(Wish::default()).unwrap();
    world.append(table, 200);
    world.idle(LONG);
    let (weak, weak_place) = (chunk_of(&mut world, table, 0), place(&mut world, table, 0));
    world.device().inject_high_ecc(weak_place);
    read(&mut world, table, 0);
    assert_eq!(chunk_of(&mut world, table, 0), weak);
    world.append(table, 100);
    world.commit(table, 10);
    world.settle();
    world.idle(LONG);
    assert_ne!(chunk_of(&mut world, table, 0), weak);
    assert_eq!(cared(&mut world, Care::HostRead).chunks, 1);
    world.verify_all();
}

#[test]
fn a_table_may_be_deleted_or_noted_anew_while_it_moves() {
    const WEAK: [u32; 3] = [3, 40, 90];
    for (seed, deletes) in (7..27).zip([false, true].into_iter().cycle()) {
        let mut world = world(seed);
        let space = world.ftl().table_space().1;
        let table = world.write_table(400);
        let weak: BTreeSet<ChunkId> = WEAK.iter().map(|block| chunk_of(&mut world, table, *block)).collect();
        for block in WEAK {
            let weak_place = place(&mut world, table, block);
            world.device().inject_high_ecc(weak_place);
            world.read(table, block, 1);
        }
        // Somewhere in the middle of it.
        world.idle(Nanos::from_micros(300 * (seed - 6)));
        if deletes {
            world.delete(table);
            world.flush();
            assert_eq!(world.used_up(), 0, "seed {seed}: nothing is kept of it");
            assert_eq!(world.ftl().table_space().1, space);
        } else {
            world.put(table, 50);
            world.settle();
            world.idle(LONG);
            let now: BTreeSet<ChunkId> = WEAK.iter().map(|block| chunk_of(&mut world, table, *block)).collect();
            assert!(now.is_disjoint(&weak), "seed {seed}: all of them have moved");
        }
        world.verify_all();
        world.clean_restart();
        world.check();
    }
}

#[test]
fn on_a_full_drive_what_is_weak_waits_for_room_and_the_host_does_not_see_it() {
    let mut world = world(27);
    let (tables, last) = world.fill(128);
    let weak: Vec<(u32, ChunkId)> =
        tables[1..4].iter().map(|table| (*table, chunk_of(&mut world, *table, 9))).collect();
    for (table, _) in &weak {
        let weak_place = place(&mut world, *table, 9);
        world.device().inject_high_ecc(weak_place);
        read(&mut world, *table, 9);
    }
    assert_eq!(cared(&mut world, Care::HostRead).chunks, 0, "there is no chunk to move to");
    world.delete(tables[0]);
    world.flush();
    assert_eq!(cared(&mut world, Care::HostRead).chunks, 3);
    for (table, chunk) in weak {
        assert_ne!(chunk_of(&mut world, table, 9), chunk);
    }
    // Their old chunks are not released yet, and the host gets the room that it made.
    assert!(world.append(last, 100));
    world.commit(last, 20);
    world.settle();
    world.verify_all();
    world.clean_restart();
}

#[test]
fn programs_that_fail_during_a_move_are_written_elsewhere_or_later() {
    for (seed, kind) in (30..50).zip([FaultKind::Program, FaultKind::Close].into_iter().cycle()) {
        let mut world = world(seed);
        let table = world.write_table(300);
        let (weak, weak_place) = (chunk_of(&mut world, table, 50), place(&mut world, table, 50));
        for pick in 0..40 {
            world.inject(Fault { kind, pick: pick * 3 + seed as u32 });
        }
        world.device().inject_high_ecc(weak_place);
        read(&mut world, table, 50);
        for _ in 0..3 {
            world.flush();
        }
        assert_ne!(chunk_of(&mut world, table, 50), weak, "seed {seed}");
        world.verify_all();
        world.clean_restart();
        world.check();
    }
}

#[test]
fn a_move_that_begins_in_a_chunk_with_little_room_goes_on_in_the_next() {
    let unprotected = [("power_loss_protection = true", "power_loss_protection = false")];
    let uncached = [unprotected[0], ("blocks_per_pu = 8", "blocks_per_pu = 0")];
    for changes in [&[][..], &unprotected, &uncached] {
        let mut world = TableWorld::new(profile("tiny", changes), config(200, 28), 8, 28);
        let small = world.write_table(64);
        let table = world.write_table(256);
        world.delete(small);
        world.flush();
        let weak = chunk_of(&mut world, table, 50);
        let blocks = blocks_in(&mut world, table, weak);
        let weak_place = place(&mut world, table, 50);
        world.device().inject_high_ecc(weak_place);
        read(&mut world, table, 50);
        let now: BTreeSet<ChunkId> = blocks.iter().map(|block| chunk_of(&mut world, table, *block)).collect();
        assert!(now.len() == 2 && !now.contains(&weak), "{changes:?}: {blocks:?} are in {now:?}");
        world.verify_all();
        world.clean_restart();
    }
}

#[test]
fn where_everything_is_weak_moving_keeps_to_a_share_of_what_is_read() {
    for open_chunks in ["vector_copy = true", "vector_copy = true\nopen_chunks_max = 20"] {
        let mut everything = profile("tiny", &[("vector_copy = true", open_chunks)]);
        everything.faults.high_ecc = 1.0;
        let mut world = TableWorld::new(everything, config(200, 50), 8, 50);
        let table = world.write_table(600);
        for _ in 0..30 {
            world.verify_tables();
            world.idle(LONG);
        }
        let moved: u64 = world.ftl().statistics().0.cared.iter().map(|moved| moved.blocks).sum();
        let read = 30 * 600;
        assert!((read / 32..=read / 16 + 5 * u64::from(CHUNK)).contains(&moved), "{moved} of {read} blocks read");
        world.delete(table);
        world.flush();
        world.check();
    }
}

#[test]
fn what_moves_is_of_tables_and_not_of_the_host() {
    let mut world = world(51);
    let table = world.write_table(300);
    world.flush();
    let written = |world: &mut TableWorld| {
        let (statistics, _) = world.ftl().statistics();
        (statistics.host_blocks_written, statistics.host_blocks_read, statistics.programmed_for(Purpose::Tenant))
    };
    let before = written(&mut world);
    let (weak, weak_place) = (chunk_of(&mut world, table, 0), place(&mut world, table, 0));
    let blocks = blocks_in(&mut world, table, weak).len() as u64;
    world.device().inject_high_ecc(weak_place);
    read(&mut world, table, 0);
    assert_eq!(written(&mut world), (before.0, before.1 + 1, before.2 + blocks));
    assert_eq!(world.ftl().statistics().0.relocation_reads, blocks);
}
