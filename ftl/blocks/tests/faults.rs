//! What the block FTL bears from its medium: programs, erases and reads that fail, blocks that come back damaged, chunks
//! that wear out.

use openftl_core::units::Share;
use openftl_core::{ChunkId, FrameForm, Nanos};
use openftl_media::{ChunkState, Profile, ProgramFailure};
use openftl_parts::flash::chunk_table::ChunkUse;
use openftl_parts::open_error::OpenError;
use openftl_parts::{Access, Config, Durability, IoError, Purpose, ReadOnlyReason, RelocateBy, Target};
use openftl_sim::played::Played;
use openftl_sim::world::{World, config, profile};

const FAILURES: [ProgramFailure; 2] = [ProgramFailure::NextUnit, ProgramFailure::ChunkClosed];

fn tiny(seed: u64) -> World {
    World::tiny(700, seed)
}

/// The next program operation on each of `chunks` fails.
fn inject(world: &World, chunks: impl IntoIterator<Item = ChunkId>, failure: ProgramFailure) {
    for chunk in chunks {
        world.device().inject_program_failure(chunk, failure);
    }
}

fn chunks_used_for(world: &mut World, usage: ChunkUse) -> Vec<ChunkId> {
    world.ftl().chunk_uses().filter(|(_, other, _)| *other == usage).map(|(chunk, ..)| chunk).collect()
}

fn open_among(world: &mut World, chunks: Vec<ChunkId>) -> Vec<ChunkId> {
    let report = world.chunk_report();
    let is_open = |chunk: &ChunkId| report.iter().any(|other| other.chunk == *chunk && other.state == ChunkState::Open);
    chunks.into_iter().filter(is_open).collect()
}

/// Lets the drive work until nothing is due.
fn idle(world: &mut World) {
    world.settle();
    while world.ftl().next_due().is_some() {
        world.idle_step();
    }
}

/// Everything is as the model says, on the live drive, after a power cut, and after a clean stop.
fn expect_all_there(world: &mut World) {
    world.settle();
    world.verify_all();
    world.flush();
    world.power_cut(true);
    world.recover().unwrap();
    world.check();
    world.clean_restart();
    world.verify_all();
    world.check();
}

fn overwrite(world: &mut World, blocks: u64) {
    let mut written = 0;
    while written < blocks {
        let (first, blocks) = world.range(8);
        world.write(first, blocks);
        written += blocks;
    }
}

fn failures(world: &mut World) -> u64 {
    world.ftl().statistics().program_failures
}

#[test]
fn a_failed_program_of_data_is_repeated_elsewhere() {
    for failure in FAILURES {
        let mut world = tiny(1);
        overwrite(&mut world, 40);
        world.flush();
        let open = chunks_used_for(&mut world, ChunkUse::Open);
        assert!(!open.is_empty());
        inject(&world, open, failure);
        overwrite(&mut world, 100);
        world.flush();
        assert!(failures(&mut world) > 0, "{failure:?}");
        expect_all_there(&mut world);
    }
}

#[test]
fn a_failed_program_of_a_relocated_block_is_repeated_elsewhere() {
    let both = FAILURES.map(|failure| [RelocateBy::ReadAndWrite, RelocateBy::DeviceCopy].map(|by| (failure, by)));
    for (failure, relocate_by) in both.into_iter().flatten() {
        let collect_when_idle = Some(Nanos::from_millis(1));
        let config = Config { relocate_by, collect_when_idle, over_provisioning: Share::percent(60), ..config(700, 2) };
        let mut world = World::new(Profile::builtin("tiny").unwrap(), config, 100, 2);
        world.write_all(16);
        let mut met = 0;
        for round in 0..400 {
            overwrite(&mut world, 30);
            world.flush();
            let (data, failed) = (world.ftl().statistics().programmed_for(Purpose::Data), failures(&mut world));
            // Each failure costs a chunk, those of the host too: seldom, and not before there is something to relocate.
            if met < 3 && round % 16 == 0 && world.ftl().statistics().programmed_for(Purpose::Relocation) > 0 {
                let open = chunks_used_for(&mut world, ChunkUse::Open);
                inject(&world, open, failure);
            }
            // The host is silent: what is programmed now is garbage collection's.
            idle(&mut world);
            assert_eq!(world.ftl().statistics().programmed_for(Purpose::Data), data);
            met += u64::from(failures(&mut world) > failed);
        }
        assert!(met > 0, "relocations have met failures");
        assert!(world.ftl().statistics().programmed_for(Purpose::Relocation) > 0);
        assert!(!world.ftl().is_read_only(), "{:?}", world.ftl().read_only_reason());
        expect_all_there(&mut world);
    }
}

#[test]
fn a_failed_program_of_the_log_is_repeated_elsewhere() {
    for failure in FAILURES {
        let mut world = tiny(3);
        for _ in 0..10 {
            let log: Vec<ChunkId> =
                world.ftl().superblock().log_chunks.iter().flatten().copied().map(ChunkId).collect();
            let log = open_among(&mut world, log);
            inject(&world, log, failure);
            overwrite(&mut world, 10);
            world.flush();
        }
        assert!(failures(&mut world) >= 5, "{failure:?}");
        assert!(!world.ftl().is_read_only(), "{:?}", world.ftl().read_only_reason());
        expect_all_there(&mut world);
    }
}

#[test]
fn a_failed_program_of_a_checkpoint_is_repeated_elsewhere() {
    for failure in FAILURES {
        // Each failure that closes a chunk costs one.
        let mut world = World::new(Profile::builtin("tiny").unwrap(), config(700, 4), 60, 4);
        let mut met = 0;
        for round in 0..20 {
            // One copy and the other in turns: with both each time the drive would soon be worn out.
            let extents = &world.ftl().superblock().checkpoint.copies[round % 2];
            let lanes = extents.iter().map(|extent| ChunkId(extent.chunk)).collect();
            let lanes = open_among(&mut world, lanes);
            inject(&world, lanes, failure);
            let (before, checkpoints) = (failures(&mut world), world.ftl().statistics().checkpoints);
            while world.ftl().statistics().checkpoints == checkpoints {
                overwrite(&mut world, 10);
                world.flush();
            }
            met += u64::from(failures(&mut world) > before);
        }
        assert!(met >= 5, "{failure:?}: {met}");
        assert!(!world.ftl().is_read_only(), "{:?}", world.ftl().read_only_reason());
        expect_all_there(&mut world);
    }
}

fn superblock_chunks(world: &mut World) -> Vec<ChunkId> {
    world.ftl().superblock().places.iter().copied().map(ChunkId).collect()
}

#[test]
fn a_failed_program_of_a_superblock_is_repeated_elsewhere() {
    for failure in FAILURES {
        let mut world = tiny(5);
        for _ in 0..12 {
            let places = superblock_chunks(&mut world);
            let places = open_among(&mut world, places);
            inject(&world, places, failure);
            let checkpoints = world.ftl().statistics().checkpoints;
            while world.ftl().statistics().checkpoints == checkpoints {
                overwrite(&mut world, 10);
                world.flush();
            }
        }
        assert!(failures(&mut world) >= 10, "{failure:?}: {}", failures(&mut world));
        assert!(!world.ftl().is_read_only(), "{:?}", world.ftl().read_only_reason());
        expect_all_there(&mut world);
    }
}

#[test]
fn the_newest_superblock_is_found_also_behind_a_failed_first_unit() {
    let mut world = tiny(6);
    for round in 0..40 {
        // Wherever a pair of chunks takes turns, the first record of the next chunk meets a failure.
        let report = world.chunk_report();
        let places = superblock_chunks(&mut world);
        let free = report.iter().filter(|chunk| places.contains(&chunk.chunk) && chunk.state == ChunkState::Free);
        inject(&world, free.map(|chunk| chunk.chunk).collect::<Vec<_>>(), ProgramFailure::NextUnit);
        let checkpoints = world.ftl().statistics().checkpoints;
        while world.ftl().statistics().checkpoints == checkpoints {
            overwrite(&mut world, 10);
            world.flush();
        }
        world.power_cut(round % 2 == 0);
        // The recovery is cut too, before it has written a superblock of its own.
        let wire = world.wire.clone();
        for events in [10, 30, 50] {
            if wire.cut_after(events + round, || world.open(Access::ReadWrite).unwrap()) {
                world.power_cut(true);
            }
        }
        world.power_cut(false);
        world.recover().unwrap();
        world.check();
        // Recovering twice in a row leaves nothing else than recovering once.
        world.power_cut(false);
        world.recover().unwrap();
    }
}

#[test]
fn a_superblock_place_outlives_a_failure_of_both_its_chunks() {
    let mut world = tiny(7);
    overwrite(&mut world, 100);
    world.flush();
    for _ in 0..10 {
        let places = superblock_chunks(&mut world);
        inject(&world, places, ProgramFailure::ChunkClosed);
        let checkpoints = world.ftl().statistics().checkpoints;
        while world.ftl().statistics().checkpoints == checkpoints && !world.ftl().is_read_only() {
            overwrite(&mut world, 10);
            world.flush();
        }
        assert!(!world.ftl().is_read_only(), "{:?}", world.ftl().read_only_reason());
    }
    expect_all_there(&mut world);
}

#[test]
fn a_failed_erase_retires_the_chunk() {
    let mut world = tiny(8);
    world.write_all(16);
    world.flush();
    let endurance = world.device().endurance();
    let worn: Vec<ChunkId> = chunks_used_for(&mut world, ChunkUse::Closed).into_iter().take(3).collect();
    for chunk in &worn {
        world.device().set_wear(*chunk, endurance).unwrap();
    }
    overwrite(&mut world, 4_000);
    let statistics = world.ftl().statistics();
    assert_eq!((statistics.reset_failures, statistics.retired_chunks), (3, 3));
    let retired = chunks_used_for(&mut world, ChunkUse::Retired);
    assert!(worn.iter().all(|chunk| retired.contains(chunk)));
    expect_all_there(&mut world);
    let retired = chunks_used_for(&mut world, ChunkUse::Retired);
    assert!(worn.iter().all(|chunk| retired.contains(chunk)), "also after the drive was opened again");
}

/// Found by the explorer: a drive that was opened again took chunks with a failed word line for good ones, and itself for one with
/// all the room of its plan.
#[test]
fn a_chunk_in_which_a_program_failed_is_retired_also_after_the_drive_was_opened_again() {
    for (failure, is_cut) in FAILURES.into_iter().flat_map(|failure| [(failure, false), (failure, true)]) {
        let mut world = World::new(Profile::builtin("tiny").unwrap(), config(700, 5), 40, 5);
        world.write_all(16);
        world.flush();
        let open = chunks_used_for(&mut world, ChunkUse::Open)[0];
        inject(&world, [open], failure);
        while failures(&mut world) == 0 {
            overwrite(&mut world, 8);
        }
        // Data, and the record of the failure before them.
        overwrite(&mut world, 8);
        world.flush();
        if is_cut {
            world.power_cut(true);
            world.recover().unwrap();
        } else {
            world.clean_restart();
        }
        overwrite(&mut world, 8_000);
        let retired = chunks_used_for(&mut world, ChunkUse::Retired);
        assert!(retired.contains(&open), "{failure:?}, cut {is_cut}");
        expect_all_there(&mut world);
    }
}

/// Writes until the drive takes no more. What was acknowledged can be read then, and what was flushed also later.
fn wear_out(seed: u64) -> World {
    let short_lived = profile("tiny", &[("endurance = 3000", "endurance = 12")]);
    // Superblocks stay where they are: with few of them, the chunks for data wear out first.
    let config = Config { checkpoint_log_blocks: None, ..config(700, seed) };
    let mut world = World::new(short_lived, config, 10, seed);
    world.write_all(16);
    world.flush();
    for _ in 0..100_000 {
        let (first, blocks) = world.range(8);
        if let Err(error) = world.try_write(first, blocks, Durability::Volatile) {
            assert_eq!(error, IoError::ReadOnly);
            return world;
        }
    }
    panic!("a drive of so short a life wears out");
}

#[test]
fn a_worn_out_drive_is_read_only_with_its_data_readable_and_says_why() {
    for seed in 0..12 {
        let mut world = wear_out(seed);
        assert!(world.ftl().is_read_only());
        assert_eq!(world.ftl().read_only_reason(), Some(ReadOnlyReason::WornOut), "seed {seed}");
        world.verify_all();
        assert_eq!(world.try_write(0, 1, Durability::Durable), Err(IoError::ReadOnly));
        for torn in [false, true] {
            world.power_cut(torn);
            world.recover().unwrap();
            assert_eq!(
                world.ftl().read_only_reason(),
                Some(ReadOnlyReason::WornOut),
                "seed {seed}, also when opened again"
            );
            assert_eq!(world.try_write(0, 1, Durability::Volatile), Err(IoError::ReadOnly));
            world.verify_all();
            world.check();
        }
    }
}

#[test]
fn a_worn_out_drive_still_saves_what_it_acknowledged() {
    for seed in 0..12 {
        let mut world = wear_out(seed);
        let tag = world.submit_flush();
        world.wait(tag);
        world.power_cut(false);
        world.recover().unwrap();
    }
}

/// A drive whose blocks are all on the medium.
fn settled(payload: FrameForm) -> World {
    let mut world = World::new(Profile::builtin("tiny").unwrap(), Config { payload, ..config(700, 9) }, 20, 9);
    world.write_all(16);
    world.clean_restart();
    world
}

#[test]
fn a_corrupted_block_is_an_error_and_never_wrong_data() {
    for payload in [FrameForm::Bytes, FrameForm::Stamp] {
        let mut world = settled(payload);
        let place = world.place_of(77);
        world.device().corrupt(place).unwrap();
        assert_eq!(world.try_read(77, 1), Err(IoError::WrongBlock { block: 77 }));
        assert_eq!(world.try_read(70, 16), Err(IoError::WrongBlock { block: 77 }), "the error names the block");
        world.verify(70, 7);
        world.verify(78, 256);
        let mut clock = world.clock;
        let report = world.ftl().check(&mut clock, &mut |_, _| ()).unwrap();
        assert_eq!(report.findings_total, 1, "{:?}", report.findings);
        world.write(77, 1);
        world.verify(70, 16);
        expect_all_there(&mut world);
    }
}

#[test]
fn a_read_failure_costs_that_block_only() {
    let mut world = settled(FrameForm::Stamp);
    let place = world.place_of(300);
    world.device().inject_read_failure(place).unwrap();
    assert_eq!(world.try_read(300, 1), Err(IoError::Unrecovered { block: 300 }));
    assert_eq!(world.try_read(290, 20), Err(IoError::Unrecovered { block: 300 }));
    world.verify(0, 256);
    world.verify(301, 256);
    world.trim(300, 1);
    world.verify(290, 20);
    expect_all_there(&mut world);
}

#[test]
fn a_block_with_high_ecc_is_a_good_block() {
    let mut world = settled(FrameForm::Stamp);
    for block in (0..700).step_by(3) {
        let place = world.place_of(block);
        world.device().inject_high_ecc(place);
    }
    world.verify_all();
    assert!(world.device().statistics().high_ecc > 200);
    assert_eq!(world.ftl().statistics().read_failures, 0);
    overwrite(&mut world, 3_000);
    expect_all_there(&mut world);
}

#[test]
fn garbage_collection_leaves_a_lost_block_visible_and_goes_on() {
    let mut world = settled(FrameForm::Stamp);
    let (corrupt, unreadable) = (world.place_of(10), world.place_of(500));
    world.device().corrupt(corrupt).unwrap();
    world.device().inject_read_failure(unreadable).unwrap();
    let lost = [(10, IoError::Unrecovered { block: 10 }), (500, IoError::Unrecovered { block: 500 })];
    // Everything else is overwritten many times over: collection must take the chunks of the lost blocks.
    let overwrite_others = |world: &mut World, rounds: u64| {
        for _ in 0..rounds {
            let (first, blocks) = world.range(8);
            if !lost.iter().any(|(block, _)| (first..first + blocks).contains(block)) {
                world.write(first, blocks);
            }
        }
    };
    overwrite_others(&mut world, 1_500);
    for (block, place) in [(10, corrupt), (500, unreadable)] {
        assert_ne!(world.place_of(block), place, "its chunk was collected, and is used again like any other");
    }
    assert_eq!(world.ftl().statistics().lost_blocks, 2);
    world.flush();
    for _ in 0..2 {
        for (block, error) in lost {
            assert_eq!(world.try_read(block, 1), Err(error));
        }
        world.power_cut(false);
        world.open(Access::ReadWrite).unwrap();
    }
    // What replaces the lost blocks heals the drive.
    for (block, _) in lost {
        world.write(block, 1);
    }
    world.flush();
    overwrite(&mut world, 3_000);
    expect_all_there(&mut world);
}

#[test]
fn a_drive_whose_programs_and_erases_fail_at_random_loses_nothing() {
    let mut worn_out = 0;
    for seed in 100..140 {
        let protected = format!("power_loss_protection = {}", seed % 2 == 0);
        let mut faulty = profile("tiny", &[("power_loss_protection = true", &protected)]);
        faulty.faults.program_fail = 0.004;
        faulty.faults.erase_fail = 0.002;
        faulty.faults.high_ecc = 0.05;
        faulty.faults.factory_bad = Share::percent(3);
        let mut world = World::new(faulty, config(600, seed), 60, seed);
        // One of some two hundred loses both places of its superblocks.
        world.may_wear_out = true;
        for number in 0..1_500 {
            world.operation(6);
            if number % 150 == 149 {
                world.power_cut(number % 300 == 149);
                if let Err(contradiction) = world.recover() {
                    panic!("seed {seed}, after operation {number}: {contradiction}");
                }
                world.check();
            }
        }
        worn_out += u32::from(world.ftl().is_read_only());
        expect_all_there(&mut world);
        let device = *world.device().statistics();
        assert!(device.program_failures > 5 && device.high_ecc > 0, "{device:?}");
    }
    assert!(worn_out <= 2, "{worn_out} of 40 drives wore out");
}

#[test]
fn a_drive_that_loses_blocks_at_random_returns_errors_and_no_wrong_data() {
    let mut lossy = Profile::builtin("tiny").unwrap();
    lossy.faults.read_fail = 0.01;
    let mut world = World::new(lossy, config(600, 11), 40, 11);
    world.write_all(16);
    let mut errors = 0;
    while errors < 3 {
        if world.below(2) == 0 {
            let (first, blocks) = world.range(8);
            world.write(first, blocks);
        } else {
            let block = world.range(1).0;
            let expected = world.history.readable(block, 1)[0].clone();
            match world.try_read(block, 1) {
                Ok(found) => assert_eq!(found, [world.history.value(expected[0])]),
                Err(IoError::Unrecovered { block: named }) => {
                    assert_eq!(named, block);
                    errors += 1;
                }
                Err(other) => panic!("{other}"),
            }
        }
    }
    assert!(!world.ftl().is_read_only());
}

#[test]
fn chunks_that_go_offline_with_a_checkpoint_in_them_are_noticed() {
    let mut world = settled(FrameForm::Stamp);
    let extents: Vec<_> = world.ftl().superblock().checkpoint.extents().copied().collect();
    world.power_cut(false);
    for extent in &extents {
        world.device().take_offline(ChunkId(extent.chunk)).unwrap();
    }
    let error = world.open(Access::ReadWrite).unwrap_err();
    assert!(matches!(error, OpenError::CheckpointLost { .. }), "{error}");
}
