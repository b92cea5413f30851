//! Blocks that the host wants to be errors (Write Uncorrectable): they are, wherever they lie and whatever happens to the
//! drive, until they are written or trimmed, and nobody takes them for damage.

use crate::damage::{Damage, blocks, checkpoint, superblock};
use openftl_blocks::CheckReport;
use openftl_core::{FrameForm, Frames, Nanos, Payload};
use openftl_media::{Media, Profile};
use openftl_parts::flash::oob::BlockKind;
use openftl_parts::{Access, Config, Durability, IoError, Purpose};
use openftl_sim::played::Played;
use openftl_sim::world::{World, config};

const CAPACITY: u64 = 700;

fn written(config: Config, seed: u64) -> World {
    let mut world = World::new(Profile::builtin("tiny").unwrap(), config, 40, seed);
    world.write_all(16);
    world.flush();
    world
}

fn mark(world: &mut World, first: u64, blocks: u64) {
    let tag = world.submit_write_uncorrectable(first, blocks, Durability::Volatile);
    world.wait(tag);
}

/// Some blocks all over the drive.
fn some() -> impl Iterator<Item = u64> {
    (5..CAPACITY).step_by(37)
}

/// A drive that is written, with some blocks uncorrectable.
fn marked(config: Config, seed: u64) -> World {
    let mut world = written(config, seed);
    some().for_each(|block| mark(&mut world, block, 1));
    world.flush();
    world
}

fn expect_marked(world: &mut World) {
    for block in some() {
        assert_eq!(world.try_read(block, 1), Err(IoError::Uncorrectable { block }));
    }
    world.verify_all();
}

fn checked(world: &mut World) -> CheckReport {
    let mut clock = world.clock;
    world.ftl().check(&mut clock, &mut |_, _| ()).unwrap()
}

#[test]
fn a_read_names_the_first_block_in_the_buffer_and_on_the_medium() {
    let mut world = written(config(CAPACITY, 1), 1);
    mark(&mut world, 40, 3);
    mark(&mut world, 300, 1);
    for is_on_media in [false, true] {
        if is_on_media {
            world.clean_restart();
        }
        assert_eq!(world.ftl().place_on_media(41).is_some(), is_on_media);
        assert_eq!(world.try_read(39, 256), Err(IoError::Uncorrectable { block: 40 }));
        assert_eq!(world.try_read(42, 256), Err(IoError::Uncorrectable { block: 42 }));
        assert_eq!(world.try_read(200, 200), Err(IoError::Uncorrectable { block: 300 }));
        world.verify(43, 256);
        world.verify(301, 256);
    }
    // Before one that cannot be read, and behind it.
    for block in [101, 299] {
        let place = world.place_of(block);
        world.device().inject_read_failure(place).unwrap();
    }
    assert_eq!(world.try_read(42, 200), Err(IoError::Uncorrectable { block: 42 }));
    assert_eq!(world.try_read(43, 200), Err(IoError::Unrecovered { block: 101 }));
    assert_eq!(world.try_read(298, 3), Err(IoError::Unrecovered { block: 299 }));
}

#[test]
fn a_write_or_a_trim_cures_it() {
    let mut world = written(config(CAPACITY, 2), 2);
    mark(&mut world, 100, 8);
    world.write(100, 2);
    world.flush();
    world.write(102, 2);
    world.trim(104, 2);
    assert!(world.try_read(100, 4).is_ok());
    assert_eq!(world.try_read(104, 2).unwrap(), [0; 2]);
    assert_eq!(world.try_read(100, 8), Err(IoError::Uncorrectable { block: 106 }));
    world.flush();
    world.power_cut(true);
    world.recover().unwrap();
    assert_eq!(world.try_read(100, 8), Err(IoError::Uncorrectable { block: 106 }));
    world.verify_all();
}

#[test]
fn it_survives_collection_scrub_and_power_cuts_and_counts_as_no_damage() {
    let config = Config { scrub_interval: Some(Nanos::from_millis(50)), ..config(CAPACITY, 3) };
    let mut world = marked(config, 3);
    world.clean_restart();
    let places: Vec<_> = some().map(|block| world.place_of(block)).collect();
    let mut damage = 0;
    for round in 0..1_500 {
        let (first, blocks) = world.range(8);
        if !some().any(|block| (first..first + blocks).contains(&block)) {
            world.write(first, blocks);
        }
        if round % 500 == 499 {
            expect_marked(&mut world);
            world.flush();
            let statistics = world.ftl().statistics();
            damage += statistics.scrub.weak + statistics.read_failures + statistics.lost_blocks;
            world.power_cut(round % 1_000 == 499);
            world.recover().unwrap();
        }
    }
    let moved = some().zip(places).filter(|(block, place)| world.place_of(*block) != *place).count();
    assert!(moved > 0, "none was moved");
    for _ in 0..200 {
        world.idle(Nanos::from_millis(1));
    }
    let statistics = world.ftl().statistics();
    assert!(statistics.scrub.passes > 0, "{statistics:?}");
    damage += statistics.scrub.weak + statistics.read_failures + statistics.lost_blocks;
    assert_eq!(damage, 0);
    expect_marked(&mut world);
    let report = checked(&mut world);
    assert!(report.is_sound(), "{:?}", report.findings);
    let marked = some().count() as u64;
    assert_eq!((report.blocks_lost, report.blocks_uncorrectable), (0, marked));
    assert_eq!(report.blocks_verified, CAPACITY - marked);
    world.clean_restart();
    expect_marked(&mut world);
}

#[test]
fn a_map_that_is_rebuilt_from_the_blocks_has_it_too() {
    let mut world = marked(Config { checkpoint_log_blocks: Some(2), ..config(CAPACITY, 4) }, 4);
    world.clean_restart();
    world.power_cut(false);
    let (superblock, _) = superblock(&mut world);
    for copy in 0..2 {
        let body = checkpoint(&mut world, &superblock, copy);
        Damage::Unreadable.strike_all(&mut world, body.into_iter().map(|(_, place)| place));
    }
    assert!(world.open(Access::ReadWrite).is_err());
    world.open(Access::Repair).unwrap();
    let report = world.ftl().recovery_report().repair.clone().expect("the map is lost");
    assert_eq!((report.blocks_rebuilt, report.blocks_lost), (CAPACITY, 0), "{report:?}");
    expect_marked(&mut world);
    world.check();
}

#[test]
fn it_is_a_write_in_the_accounting() {
    let mut world = written(config(CAPACITY, 5), 5);
    world.ftl().reset_statistics();
    world.write(0, 30);
    mark(&mut world, 100, 10);
    world.flush();
    let statistics = world.ftl().statistics();
    assert_eq!((statistics.host_blocks_written, statistics.host_blocks_marked), (40, 10));
    assert_eq!(statistics.programmed_for(Purpose::Data), 40);
}

/// The frames that came with it may hold what others wrote.
#[test]
fn what_its_frames_held_does_not_get_to_the_medium() {
    let config = Config { payload: FrameForm::Bytes, ..config(CAPACITY, 6) };
    let mut world = marked(config, 6);
    world.clean_restart();
    let of_kind: Vec<_> =
        blocks(&mut world).into_iter().filter(|(_, oob)| oob.kind == BlockKind::Uncorrectable).collect();
    assert_eq!(of_kind.len(), some().count());
    let mut frames = Frames::new(1, 0, world.wire.geometry().oob_bytes as usize);
    let frame = frames.acquire(FrameForm::Bytes).unwrap();
    for (place, _) in of_kind {
        assert!(world.device().look(place, &mut frames, frame));
        let Payload::Bytes(bytes) = frames.payload(frame) else { unreachable!("frames of bytes") };
        assert!(bytes.iter().all(|byte| *byte == 0), "what is at {place:?} is for nobody");
    }
}

/// A place that is to be an error can go bad like any other: that is a finding.
#[test]
fn one_that_is_damaged_is_lost() {
    let mut world = marked(config(CAPACITY, 7), 7);
    world.clean_restart();
    let block = some().next().unwrap();
    let place = world.place_of(block);
    world.device().corrupt(place).unwrap();
    assert_eq!(world.try_read(block, 1), Err(IoError::WrongBlock { block }));
    let report = checked(&mut world);
    assert_eq!((report.findings_total, report.blocks_lost), (1, 1), "{:?}", report.findings);
    assert_eq!(report.blocks_uncorrectable, some().count() as u64 - 1);
    world.write(block, 1);
    assert!(checked(&mut world).is_sound());
}
