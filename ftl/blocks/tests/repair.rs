//! Repair: what can be rebuilt of a drive whose metadata is lost in both copies, and what is said of the rest.

use crate::damage::{Damage, blocks, checkpoint, cut_off, log, superblock};
use openftl_blocks::CheckReport;
use openftl_core::Ppa;
use openftl_parts::flash::oob::BlockKind;
use openftl_parts::open_error::OpenError;
use openftl_parts::{Access, IoError, RepairReport, Superblock};
use openftl_sim::World;
use openftl_sim::played::Played;
use openftl_sim::stage::Stage;
use std::ops::Range;

/// Opens it for repair and compares all of it with the model. There was something to rebuild.
pub fn repaired(world: &mut World, name: &str) -> RepairReport {
    opened_for_repair(world, name).unwrap_or_else(|| panic!("{name}: nothing was rebuilt"))
}

/// The same where the padding that is written first may make a newer superblock readable, and all is well then.
fn opened_for_repair(world: &mut World, name: &str) -> Option<RepairReport> {
    world.open(Access::Repair).unwrap_or_else(|error| panic!("{name}: {error}"));
    let report = world.ftl().recovery_report().repair.clone();
    let found = world.read_all();
    world.history.verdict(&found).unwrap_or_else(|error| panic!("{name}: {error}, {report:?}"));
    world.adopt(&found);
    world.check();
    report
}

/// It is a drive like any other again.
pub fn expect_in_use(world: &mut World) {
    world.write(3, 50);
    world.flush();
    world.power_cut(true);
    world.recover().unwrap();
    for _ in 0..200 {
        world.operation(5);
    }
    world.settle();
    world.verify_all();
    world.clean_restart();
    world.verify_all();
    world.check();
}

/// Both copies of these blocks of the checkpoint.
fn lose_checkpoint(world: &mut World, superblock: &Superblock, blocks: Range<u64>, damage: Damage) {
    for copy in 0..2 {
        let body = checkpoint(world, superblock, copy);
        let lost = body.into_iter().filter(|(index, _)| blocks.contains(index)).map(|(_, ppa)| ppa);
        damage.strike_all(world, lost);
    }
}

/// Both copies of the log blocks whose number from the beginning is in `blocks`.
fn lose_log(world: &mut World, superblock: &Superblock, blocks: Range<usize>) {
    for copy in 0..2 {
        let log = log(world, superblock, copy);
        let lost: Vec<Ppa> = log.into_iter().map(|(_, ppa)| ppa).skip(blocks.start).take(blocks.len()).collect();
        Damage::Unreadable.strike_all(world, lost);
    }
}

fn refusal(world: &mut World) -> OpenError {
    world.open(Access::ReadWrite).expect_err("it cannot be opened as it is")
}

fn checked(world: &mut World) -> CheckReport {
    let mut clock = world.clock;
    world.ftl().check(&mut clock, &mut |_, _| ()).unwrap()
}

#[test]
fn a_lost_block_of_the_checkpoint_is_rebuilt_from_the_blocks_of_data() {
    for (number, damage) in [Damage::Unreadable, Damage::Corrupted].into_iter().enumerate() {
        for blocks in [0..1, 2..3, 0..100] {
            let name = format!("{damage:?}, {blocks:?}");
            let mut world = cut_off(20 + number as u64);
            let (superblock, _) = superblock(&mut world);
            lose_checkpoint(&mut world, &superblock, blocks, damage);
            assert!(matches!(refusal(&mut world), OpenError::CheckpointLost { .. }));
            let report = repaired(&mut world, &name);
            assert!(report.blocks_rebuilt > 400, "{name}: {report:?}");
            assert_eq!((report.blocks_lost, report.blocks_returned), (0, 0), "{name}: {report:?}");
            assert_eq!(report.blocks_known + report.blocks_rebuilt, 3000, "{name}: {report:?}");
            expect_in_use(&mut world);
        }
    }
}

#[test]
fn a_checkpoint_whose_chunks_are_offline_is_rebuilt() {
    let mut world = cut_off(22);
    let (superblock, _) = superblock(&mut world);
    lose_checkpoint(&mut world, &superblock, 0..100, Damage::Offline);
    assert!(matches!(refusal(&mut world), OpenError::CheckpointLost { .. }));
    repaired(&mut world, "offline");
    expect_in_use(&mut world);
}

#[test]
fn a_lost_page_of_the_log_is_rebuilt_from_the_blocks_of_data() {
    for seed in 30..36 {
        let mut world = cut_off(seed);
        let pages = seed as usize % 4;
        let (superblock, _) = superblock(&mut world);
        lose_log(&mut world, &superblock, 5 * pages..5 * pages + 4);
        assert!(matches!(refusal(&mut world), OpenError::LogLost { .. }));
        let report = repaired(&mut world, &format!("seed {seed}"));
        assert_eq!(report.blocks_lost, 0, "{report:?}");
        assert!(report.blocks_known > 0, "what was logged later is known: {report:?}");
        expect_in_use(&mut world);
    }
}

#[test]
fn checkpoint_and_log_may_be_lost_together() {
    for seed in 40..44 {
        let mut world = cut_off(seed);
        let (superblock, _) = superblock(&mut world);
        lose_log(&mut world, &superblock, 0..8);
        lose_checkpoint(&mut world, &superblock, 0..100, Damage::Unreadable);
        refusal(&mut world);
        repaired(&mut world, &format!("seed {seed}"));
        expect_in_use(&mut world);
    }
}

#[test]
fn a_lost_superblock_is_rebuilt_around_the_one_before() {
    let mut repairs = 0;
    for seed in 0..100 {
        let mut world = World::tiny(700, seed);
        world.write_all(40);
        for _ in 0..60 + 3 * seed {
            let (first, blocks) = world.range(12);
            world.write(first, blocks);
            if seed % 3 == 0 {
                world.flush();
            }
        }
        world.flush();
        world.power_cut(false);
        let (_, places) = superblock(&mut world);
        Damage::Corrupted.strike_all(&mut world, places);
        if world.open(Access::ReadWrite).is_err_and(|error| error.is_repairable()) {
            world.power_cut(false);
            repairs += u32::from(opened_for_repair(&mut world, &format!("seed {seed}")).is_some());
            expect_in_use(&mut world);
        }
    }
    assert!(repairs > 3, "{repairs}");
}

/// Where the newest version of a logical block is: a block that was moved is there twice.
fn newest(world: &mut World, block: u64) -> Vec<Ppa> {
    let mut versions = blocks(world);
    versions.retain(|(_, oob)| (oob.kind, oob.address) == (BlockKind::Data, block));
    let newest = versions.iter().map(|(_, oob)| oob.sequence).max().expect("it was written");
    versions.into_iter().filter(|(_, oob)| oob.sequence == newest).map(|(ppa, _)| ppa).collect()
}

#[test]
fn lost_data_stay_errors_and_are_named_with_their_place() {
    for damage in [Damage::Unreadable, Damage::Corrupted] {
        let mut world = cut_off(50);
        world.recover().unwrap();
        let lost = [5, 900, 1024, 2999];
        world.power_cut(false);
        let places: Vec<Ppa> = lost.iter().flat_map(|block| newest(&mut world, *block)).collect();
        damage.strike_all(&mut world, places);
        // Block 2 of the map, with the last two of them, is lost with all that could say where they are.
        let (superblock, _) = superblock(&mut world);
        lose_checkpoint(&mut world, &superblock, 2..3, Damage::Unreadable);
        refusal(&mut world);
        world.open(Access::Repair).unwrap();
        let report = world.ftl().recovery_report().repair.clone().unwrap();
        for block in lost {
            let error = world.try_read(block, 1).unwrap_err();
            assert!([IoError::Unrecovered { block }, IoError::WrongBlock { block }].contains(&error), "{error}");
        }
        assert!(report.blocks_lost >= 4, "{report:?}");
        let report = checked(&mut world);
        let named: Vec<u64> = report.lost.iter().map(|lost| lost.block).collect();
        assert_eq!((named, report.blocks_lost), (lost.to_vec(), 4));
        // Of the last one the map was lost, too, and every place of its newest version: a repair may find no other.
        let with_map = &report.lost[..3];
        assert!(with_map.iter().all(|lost| lost.address.is_some()), "each where it is now: {report:?}");
        for block in 0..world.blocks() {
            if !lost.contains(&block) {
                world.verify(block, 1);
            }
        }
        // They stay lost until they are written or trimmed.
        let ftl = world.ftl.take().unwrap();
        ftl.close(&mut world.clock).unwrap();
        world.open(Access::ReadWrite).unwrap();
        assert_eq!(checked(&mut world).blocks_lost, 4);
        for block in lost {
            assert!(world.try_read(block, 1).is_err());
        }
        world.write(5, 1);
        world.write(1024, 1);
        world.trim(900, 1);
        world.trim(2999, 1);
        world.verify_all();
        world.check();
        expect_in_use(&mut world);
    }
}

#[test]
fn trims_that_are_forgotten_are_counted() {
    let mut world = World::tiny(700, 51);
    world.write_all(40);
    world.trim(100, 50);
    world.write(0, 30);
    world.flush();
    world.ftl.take().unwrap().close(&mut world.clock).unwrap();
    world.open(Access::ReadWrite).unwrap();
    // The trims of the first block are in the log that is lost, and its blocks are still on the media.
    for first in 0..30 {
        world.trim(10 * first, 5);
        world.write(400 + first, 1);
        world.flush();
    }
    world.power_cut(false);
    let (superblock, _) = superblock(&mut world);
    lose_log(&mut world, &superblock, 0..8);
    refusal(&mut world);
    world.open(Access::Repair).unwrap();
    let report = world.ftl().recovery_report().repair.clone().unwrap();
    assert!(report.blocks_rebuilt > 0 && report.blocks_returned > 0, "{report:?}");
    let found = world.read_all();
    assert!(found[105..110].iter().any(|change| *change != Some(0)), "trimmed blocks are back, as the report says");
    world.verify(400, 30);
    world.check();
}

/// Repairs drives that `damaged` makes, is cut off after more and more events, and repairs again.
pub fn expect_repair_may_be_cut(damaged: impl Fn() -> World) {
    let mut cuts = 0;
    for events in (1..).step_by(7) {
        let mut world = damaged();
        let wire = world.wire.clone();
        if !wire.cut_after(events, || world.open(Access::Repair).unwrap()) {
            break;
        }
        world.power_cut(events % 2 == 0);
        // It may have come so far that there is nothing left to repair.
        world.open(Access::Repair).unwrap_or_else(|error| panic!("cut after {events}: {error}"));
        let found = world.read_all();
        world.history.verdict(&found).unwrap_or_else(|error| panic!("cut after {events}: {error}"));
        world.adopt(&found);
        world.check();
        if events % 5 == 0 {
            expect_in_use(&mut world);
        }
        cuts += 1;
    }
    assert!(cuts > 10, "{cuts}");
}

#[test]
fn a_repair_may_be_cut_anywhere_and_begun_again() {
    expect_repair_may_be_cut(|| {
        let mut world = cut_off(60);
        let (superblock, _) = superblock(&mut world);
        lose_checkpoint(&mut world, &superblock, 0..2, Damage::Unreadable);
        lose_log(&mut world, &superblock, 4..8);
        world
    });
}

#[test]
fn a_sound_drive_has_nothing_to_repair() {
    for clean in [true, false] {
        let mut world = World::tiny(700, 70);
        world.write_all(40);
        world.trim(30, 30);
        world.flush();
        if clean {
            world.ftl.take().unwrap().close(&mut world.clock).unwrap();
        }
        world.power_cut(false);
        world.open(Access::Repair).unwrap();
        assert_eq!(world.ftl().recovery_report().repair, None);
        assert_eq!(world.ftl().recovery_report().single_copies, Vec::<String>::new());
        world.verify_all();
        world.check();
    }
}

#[test]
fn a_repair_writes_what_is_there_only_once() {
    let mut world = cut_off(71);
    let (before, places) = superblock(&mut world);
    let second = checkpoint(&mut world, &before, 1).into_iter().chain(log(&mut world, &before, 1));
    let second: Vec<Ppa> = second.map(|(_, ppa)| ppa).chain([places[1]]).collect();
    Damage::Corrupted.strike_all(&mut world, second);
    world.open(Access::Repair).unwrap();
    assert_eq!(world.ftl().recovery_report().repair, None, "there is nothing to rebuild");
    let single = world.ftl().recovery_report().single_copies.join("\n");
    assert!(single.contains("checkpoint") && single.contains("log: copy 1 lacks"), "{single}");
    world.verify_all();
    world.ftl.take().unwrap().close(&mut world.clock).unwrap();
    world.open(Access::Inspect).unwrap();
    assert_eq!(world.ftl().recovery_report().single_copies, Vec::<String>::new());
    world.verify_all();
}
