//! Table drives: against the model on many kinds of flash, with restarts and power cuts; what fails on the medium; the ends of
//! their room.

use openftl_blocks::{BlockFtl, CheckReport, DamagedTable, Ftl};
use openftl_core::{ChunkId, Clock, FrameForm, Frames, Nanos, Ppa};
use openftl_media::{ChunkState, Media, Profile};
use openftl_parts::flash::chunk_table::ChunkUse;
use openftl_parts::flash::oob::{BlockKind, Oob};
use openftl_parts::{Access, Config, Durability, IoError, Purpose, Target};
use openftl_sim::fault::Fault;
use openftl_sim::played::Played;
use openftl_sim::stage::Stage;
use openftl_sim::world::{config, profile};
use openftl_sim::{FaultKind, TableWorld, World};
use openftl_tables::{TableError, TableFtl, WRITING_MAX, Wish};

/// Seeds of each kind of flash.
const SEEDS: u64 = 40;

const UNPROTECTED: (&str, &str) = ("power_loss_protection = true", "power_loss_protection = false");
const ONE_SHOT: [(&str, &str); 2] = [
    ("programming = \"shared\"\npair_distance = 2", "programming = \"one-shot\""),
    ("program_us = [400, 1200]", "program_us = [1600]"),
];

fn small(seed: u64) -> Config {
    config(200, seed)
}

/// Many requests under way, restarts and power cuts: what is found is always what the model allows.
fn live(profile: &Profile, config: impl Fn(u64) -> Config, seed: u64) -> TableWorld {
    let mut world = TableWorld::new(profile.clone(), config(seed), 8, seed);
    println!("seed {seed}");
    for _ in 0..12 {
        for _ in 0..world.below(60) {
            world.operation(1 + seed as usize % 7);
        }
        match world.below(4) {
            0 => world.clean_restart(),
            1 => world.verify_all(),
            torn => {
                world.power_cut(torn == 2);
                if let Err(contradiction) = world.recover() {
                    panic!("seed {seed}: {contradiction}");
                }
            }
        }
    }
    world.verify_all();
    world.check();
    world.clean_restart();
    world
}

fn live_on(changes: &[(&str, &str)]) {
    let profile = profile("tiny", changes);
    for seed in 0..SEEDS {
        live(&profile, small, seed);
    }
}

#[test]
fn a_table_drive_is_what_the_model_says_on_paired_pages() {
    live_on(&[]);
}

#[test]
fn a_table_drive_is_what_the_model_says_with_a_volatile_cache() {
    live_on(&[UNPROTECTED]);
}

#[test]
fn a_table_drive_is_what_the_model_says_without_a_cache() {
    live_on(&[UNPROTECTED, ("blocks_per_pu = 8", "blocks_per_pu = 0")]);
}

#[test]
fn a_table_drive_is_what_the_model_says_with_one_shot_programming() {
    live_on(&[ONE_SHOT[0], ONE_SHOT[1], UNPROTECTED]);
}

#[test]
fn a_table_drive_is_what_the_model_says_in_one_group() {
    live_on(&[("groups = 2", "groups = 1")]);
}

#[test]
fn a_table_drive_is_what_the_model_says_where_few_chunks_may_be_open() {
    live_on(&[("vector_copy = true", "vector_copy = true\nopen_chunks_max = 20")]);
    live_on(&[("vector_copy = true", "vector_copy = true\nopen_chunks_per_pu_max = 17")]);
}

/// A drive whose media and log area are small, and whose tables have most of the device.
fn roomy(seed: u64) -> TableWorld {
    TableWorld::new(Profile::builtin("tiny").unwrap(), small(seed), 8, seed)
}

/// Where each block of a table is on the medium.
fn places(world: &mut TableWorld, table: u32) -> Vec<Ppa> {
    let number = world.id(table).number();
    let mut found = vec![Ppa(u64::MAX); world.blocks_of(table) as usize];
    let mut frames = Frames::new(1, 0, world.wire.geometry().oob_bytes as usize);
    let frame = frames.acquire(FrameForm::Bytes).unwrap();
    for ppa in world.written_places() {
        if !world.device().look(ppa, &mut frames, frame) {
            continue;
        }
        world.ftl().block().unseal(&mut frames, frame, ppa);
        if let Ok(Oob { kind: BlockKind::Tenant, address, sequence }) = Oob::verify(&frames, frame)
            && sequence == number
        {
            found[address as usize] = ppa;
        }
    }
    found
}

fn offline_chunks(world: &mut TableWorld) -> usize {
    world.chunk_report().iter().filter(|chunk| chunk.state == ChunkState::Offline).count()
}

#[test]
fn what_fails_to_be_programmed_is_written_elsewhere_and_the_table_is_whole() {
    for kind in [FaultKind::Program, FaultKind::Close] {
        let mut world = roomy(1);
        for round in 0..6 {
            for pick in 0..10 {
                world.inject(Fault { kind, pick: pick * 7 + round });
            }
            world.write_table(100);
        }
        let (statistics, _) = world.ftl().statistics();
        assert!(statistics.program_failures > 3, "{kind:?}: {} programs failed", statistics.program_failures);
        world.verify_tables();
        world.clean_restart();
        assert_eq!(world.committed().len(), 6);
        world.power_cut(false);
        world.recover().unwrap();
        assert_eq!(world.committed().len(), 6);
        world.check();
    }
}

#[test]
fn what_fails_after_a_table_was_given_up_is_not_written_again() {
    for kind in [FaultKind::Program, FaultKind::Close] {
        let mut world = roomy(2);
        let all = world.ftl().table_space();
        for round in 0..4 {
            let table = world.begin(Wish::default()).unwrap();
            for pick in 0..60 {
                world.inject(Fault { kind, pick: pick * 5 + round });
            }
            world.append(table, 60);
            world.abandon(table);
            world.flush();
        }
        assert!(world.ftl().statistics().0.program_failures > 0);
        assert!(world.being_written().is_empty());
        let frames = world.ftl().frames().available(FrameForm::Bytes);
        assert_eq!(frames, roomy(2).ftl().frames().available(FrameForm::Bytes), "all frames are back");
        assert!(world.ftl().table_space().0 > all.0 / 2, "{:?} of {all:?}", world.ftl().table_space());
        world.write_table(100);
        world.verify_tables();
    }
}

#[test]
fn a_chunk_whose_reset_fails_is_retired_and_the_others_go_on() {
    let mut world = roomy(3);
    let table = world.write_table(4 * 32);
    let format = world.wire.geometry().format();
    let mut chunks: Vec<_> = places(&mut world, table).into_iter().map(|ppa| format.chunk_of(ppa)).collect();
    chunks.dedup();
    let endurance = world.device().endurance();
    let all = world.ftl().table_space().1;
    world.device().set_wear(chunks[0], endurance).unwrap();
    world.delete(table);
    world.flush();
    assert_eq!(world.ftl().statistics().0.reset_failures, 1);
    assert_eq!(offline_chunks(&mut world), 1);
    assert!(world.ftl().table_space().1 >= all - 32, "one chunk less at most");
    world.write_table(300);
    world.clean_restart();
    world.verify_all();
}

#[test]
fn of_a_table_on_a_chunk_that_goes_offline_the_other_blocks_are_good_and_it_can_be_deleted() {
    let mut world = roomy(4);
    let (lost, whole) = (world.write_table(120), world.write_table(60));
    world.flush();
    let places = places(&mut world, lost);
    let format = world.wire.geometry().format();
    let gone = format.chunk_of(places[0]);
    world.device().take_offline(gone).unwrap();
    for restarted in [false, true] {
        for (block, place) in (0..).zip(&places) {
            let result = world.try_read_table(lost, block);
            match format.chunk_of(*place) == gone {
                true => {
                    let names_it =
                        |error| matches!(error, TableError::Io(error) if error.block() == Some(block.into()));
                    assert!(result.is_err_and(names_it), "block {block}: {result:?}");
                }
                false => assert_eq!(result, Ok(()), "block {block}"),
            }
        }
        if !restarted {
            for block in
                (0..).zip(&places).filter(|(_, place)| format.chunk_of(**place) == gone).map(|(block, _)| block)
            {
                world.lose_of_table(lost, block);
            }
            world.clean_restart();
        }
    }
    world.delete(lost);
    world.flush();
    world.clean_restart();
    assert_eq!(world.committed(), [whole]);
    let is_retired = |(chunk, usage, _): (_, ChunkUse, _)| chunk == gone && usage == ChunkUse::Retired;
    assert!(world.ftl().block().chunk_uses().any(is_retired));
    world.verify_all();
}

#[test]
fn a_block_that_is_lost_is_an_error_that_names_it_and_no_other_is() {
    let mut world = roomy(5);
    let table = world.write_table(70);
    world.flush();
    let places = places(&mut world, table);
    world.device().inject_read_failure(places[33]).unwrap();
    world.device().corrupt(places[50]).unwrap();
    world.device().inject_transient_read_failure(places[7], 1);
    for block in 0..70 {
        let expected = match block {
            33 => Err(TableError::Io(IoError::Unrecovered { block: 33 })),
            50 => Err(TableError::Io(IoError::WrongBlock { block: 50 })),
            _ => Ok(()),
        };
        assert_eq!(world.try_read_table(table, block), expected, "block {block}");
    }
}

fn checked(world: &mut TableWorld) -> CheckReport {
    let mut clock = world.clock;
    world.ftl().check(&mut clock, &mut |_, _| ()).unwrap()
}

#[test]
fn a_check_reads_every_table_and_names_the_blocks_that_are_lost() {
    let mut world = roomy(5);
    let (damaged, whole, deleted) = (world.write_table(700), world.write_table(70), world.write_table(30));
    let lost_table = world.write_table(40);
    world.delete(deleted);
    world.flush();
    let report = checked(&mut world);
    assert!(report.is_sound(), "{report:?}");
    assert_eq!((report.tables, report.table_blocks_verified), (3, 810), "what is deleted is not read");
    let places = [places(&mut world, damaged), places(&mut world, lost_table)];
    let format = world.wire.geometry().format();
    world.device().inject_read_failure(places[0][33]).unwrap();
    world.device().corrupt(places[0][650]).unwrap();
    for place in &places[1] {
        world.device().inject_read_failure(*place).unwrap();
    }
    let number = |world: &mut TableWorld, serial| world.id(serial).number();
    let (first, second) = (number(&mut world, damaged), number(&mut world, lost_table));
    for restarted in [false, true] {
        let report = checked(&mut world);
        assert_eq!((report.findings_total, report.blocks_lost, report.table_blocks_lost), (42, 0, 42));
        assert_eq!(report.table_blocks_verified, 698 + 70);
        let expected = [
            DamagedTable { number: first, blocks: 700, blocks_lost: 2 },
            DamagedTable { number: second, blocks: 40, blocks_lost: 40 },
        ];
        assert_eq!(report.damaged_tables, expected);
        let at = |block: usize| format.unpack(places[0][block]);
        let named = [
            format!("block 33 of table {first} cannot be read from the medium (it is at {})", at(33)),
            format!("block 650 of table {first} came back damaged or as another block (it is at {})", at(650)),
        ];
        assert_eq!(report.findings[..2], named);
        if !restarted {
            [33, 650].into_iter().for_each(|block| world.lose_of_table(damaged, block));
            (0..40).for_each(|block| world.lose_of_table(lost_table, block));
            world.clean_restart();
        }
    }
    assert!(world.committed().contains(&whole));
}

#[test]
fn a_repair_finds_the_catalog_and_every_table_without_the_map() {
    for seed in 0..8 {
        let mut world = roomy(seed);
        for _ in 0..300 {
            world.operation(4);
        }
        world.flush();
        let (mut tables, files) = (world.committed(), world.files().len());
        tables.sort_unstable();
        assert!(!tables.is_empty());
        let superblock = world.ftl().block().superblock().clone();
        let format = world.wire.geometry().format();
        world.power_cut(false);
        for extent in superblock.checkpoint.extents() {
            for block in extent.first..extent.first + extent.blocks {
                world.device().corrupt(format.ppa(ChunkId(extent.chunk), block)).unwrap();
            }
        }
        let refusal = world.open(Access::ReadWrite).expect_err("the map is lost");
        assert!(refusal.is_repairable(), "{refusal}");
        world.open(Access::Repair).unwrap();
        assert!(world.ftl().block().recovery_report().repair.is_some());
        // What was trimmed in the log area may be back; entries are never trimmed, but overwritten.
        let found = world.read_all();
        world.adopt(&found);
        let mut again = world.committed();
        again.sort_unstable();
        assert_eq!((again, world.files().len()), (tables, files), "seed {seed}");
        assert!(checked(&mut world).is_sound());
        for _ in 0..100 {
            world.operation(4);
        }
        world.verify_all();
        world.clean_restart();
    }
}

#[test]
fn a_block_of_the_log_area_that_is_lost_is_called_what_the_host_calls_it() {
    let mut world = roomy(6);
    world.write_all(8);
    world.flush();
    let catalog = u64::from(world.ftl().block().config().catalog_blocks);
    let place = world.ftl().block().place_on_media(catalog + 43).unwrap();
    world.device().inject_read_failure(place).unwrap();
    assert_eq!(world.try_read(40, 8), Err(IoError::Unrecovered { block: 43 }));
}

#[test]
fn a_full_drive_says_so_and_goes_on_after_deletes_that_are_not_durable_yet() {
    let mut world = roomy(7);
    let space = world.ftl().table_space();
    let (tables, last) = world.fill(128);
    let written: u32 = tables.iter().map(|table| world.blocks_of(*table)).sum();
    assert!(u64::from(written) > space.0 * 3 / 4, "{written} of {space:?} blocks were there to be written");
    assert!(!world.append(last, 1), "it is still full");
    world.pin(tables[0]);
    world.delete(tables[0]);
    assert!(!world.append(last, 40), "what is pinned makes no room");
    world.unpin(tables[0]);
    assert!(world.append(last, 40), "nobody has flushed");
    world.delete(tables[1]);
    world.commit(last, 20);
    world.verify_all();
    world.clean_restart();
    assert_eq!(world.committed().len(), tables.len() - 1);
}

#[test]
fn a_unit_that_can_be_written_nowhere_fails_the_commit_though_a_deleted_table_is_pinned() {
    let mut world = roomy(8);
    let pinned = world.write_table(40);
    world.pin(pinned);
    world.delete(pinned);
    let last = world.begin(Wish::default()).unwrap();
    while world.append(last, 4) {}
    // The last units are on their way: they fail, and there is no room for them anywhere.
    let changes = world.requests_under_way();
    for pick in 0..64 {
        world.inject(Fault { kind: FaultKind::Close, pick });
    }
    world.commit(last, 10);
    assert!(world.requests_under_way() > changes);
    world.settle();
    world.unpin(pinned);
    world.flush();
    world.clean_restart();
}

#[test]
fn a_full_catalog_refuses_an_entry_and_takes_one_when_another_is_gone() {
    let mut world = roomy(9);
    world.flush();
    let space = world.ftl().table_space();
    while world.put_file(None, 30_000) {
        world.settle();
    }
    while world.put_file(None, 100) {
        world.settle();
    }
    let table = world.begin(Wish::default()).unwrap();
    world.append(table, 64);
    world.commit(table, 100);
    world.settle();
    assert!(world.committed().is_empty(), "the catalog was full");
    let file = world.files()[0];
    world.delete_file(file);
    world.write_table(64);
    world.clean_restart();
    assert_eq!(world.committed().len(), 1);
    let table = world.committed()[0];
    world.delete(table);
    world.flush();
    assert_eq!(world.used_up(), 0);
    assert_eq!(world.ftl().table_space().1, space.1);
}

#[test]
fn so_many_tables_are_written_at_a_time_and_no_more() {
    let mut world = roomy(10);
    let mut tables: Vec<u32> = (0..WRITING_MAX).map(|_| world.begin(Wish::default()).unwrap()).collect();
    assert_eq!(world.begin(Wish::default()), None);
    for table in &tables {
        world.append(*table, 3);
    }
    world.abandon(tables.pop().unwrap());
    world.flush();
    tables.push(world.begin(Wish::default()).unwrap());
    for table in tables {
        world.commit(table, 10);
    }
    world.settle();
    world.clean_restart();
    assert_eq!(world.committed().len(), WRITING_MAX);
}

#[test]
fn a_drive_of_the_other_kind_is_refused_both_ways() {
    let message =
        |found: &str, wanted: &str| format!("this is a {found} drive, and it is to be opened as a {wanted} drive");
    let mut world = roomy(11);
    let drive = world.ftl.take().unwrap();
    let wire = drive.crash();
    let error = BlockFtl::open(wire, world.config.clone(), &mut world.clock).err().unwrap();
    assert_eq!(error.to_string(), message("table", "block"));
    let mut world = World::tiny(300, 11);
    let wire = world.ftl.take().unwrap().crash();
    let error = TableFtl::open_with(wire, world.config.clone(), (), Access::ReadWrite, &mut world.clock).err().unwrap();
    assert_eq!(error.to_string(), message("block", "table"));
}

#[test]
fn the_space_is_what_it_was_when_all_tables_are_deleted() {
    for seed in 12..20 {
        let mut world = roomy(seed);
        let space = world.ftl().table_space();
        assert_eq!(space.0, space.1, "a new drive has all of it");
        for _ in 0..80 {
            world.operation(4);
        }
        world.settle();
        for table in world.being_written() {
            // Room that was asked for and not used is given back.
            let (id, now) = (world.id(table), world.clock.now());
            let _ = world.ftl().room(now, id);
            world.abandon(table);
        }
        for table in world.pinned() {
            while world.pinned().contains(&table) {
                world.unpin(table);
            }
        }
        for table in world.committed() {
            world.delete(table);
        }
        world.flush();
        assert_eq!(world.used_up(), 0, "seed {seed}");
        assert_eq!(world.ftl().table_space().1, space.1);
        world.clean_restart();
        world.flush();
        assert_eq!(world.used_up(), 0, "seed {seed}, opened again");
    }
}

#[test]
fn power_cuts_do_not_make_chunks_of_the_log_area_chunks_of_tables() {
    let mut world = roomy(20);
    let share = world.ftl().table_space().1 / 32;
    for round in 0..40 {
        let (first, blocks) = world.range(60);
        world.submit_write(first, blocks, Durability::Volatile);
        if round % 3 == 0 {
            world.flush();
        }
        world.idle(Nanos::from_micros(300));
        world.power_cut(round % 2 == 0);
        world.recover().unwrap();
        let of_tables = world.ftl().block().chunk_uses().filter(|(_, usage, _)| *usage == ChunkUse::Tenant).count();
        assert!(of_tables as u64 <= share + 8, "{of_tables} chunks after {round} cuts, and the share is {share}");
    }
    world.idle(Nanos::from_millis(100));
    for _ in 0..40 {
        let (first, blocks) = world.range(100);
        world.write(first, blocks);
    }
    world.write_table(200);
    world.verify_all();
}

#[test]
fn tables_alone_are_written_once_and_nothing_is_relocated() {
    let mut world = roomy(21);
    let mut tables = Vec::new();
    for round in 0..60_usize {
        tables.push(world.write_table(150));
        if tables.len() == 4 {
            world.delete(tables.remove(round % 4));
        }
    }
    world.flush();
    let (statistics, of_tables) = world.ftl().statistics();
    let programmed: u64 = statistics.programmed.iter().sum();
    let (host, for_tables) = (statistics.host_blocks_written, statistics.programmed_for(Purpose::Tenant));
    assert_eq!(host, 60 * 150, "what the catalog is written with is not the host's");
    assert_eq!((of_tables.committed, of_tables.deleted), (60, 57));
    assert_eq!(for_tables, host, "each block once");
    assert_eq!(statistics.programmed_for(Purpose::Relocation), 0);
    // Padding behind the last unit of each table, and the catalog with its log and checkpoints, in tables of 600 KiB.
    let amplification = programmed as f64 / host as f64;
    println!("{programmed} blocks programmed for {host} of the host: {amplification:.3}");
    assert!((1.0..1.6).contains(&amplification), "{amplification}");
    world.verify_all();
}
