//! Stale blocks: whole blocks that are older than what should be in their place, or of another place. A lost erase, a lost
//! program or a misdirected program leaves them, and the device reports nothing. Each is an error, never wrong data.

use openftl_core::{ChunkId, FrameForm, Frames, Nanos, Ppa, Time};
use openftl_media::{ChunkState, Media, Profile, SilentFault};
use openftl_parts::flash::chunk_table::ChunkUse;
use openftl_parts::flash::oob::{BlockKind, Oob};
use openftl_parts::open_error::OpenError;
use openftl_parts::{Access, Config, IoError, RelocateBy, Target};
use openftl_sim::TableWorld;
use openftl_sim::played::Played;
use openftl_sim::world::{World, config};
use openftl_tables::TableError;
use std::collections::{BTreeMap, BTreeSet};

const BOTH_WAYS: [RelocateBy; 2] = [RelocateBy::ReadAndWrite, RelocateBy::DeviceCopy];

fn drive(config: Config, seed: u64) -> World {
    let mut world = World::new(Profile::builtin("tiny").unwrap(), config, 40, seed);
    world.write_all(16);
    world.flush();
    world
}

/// Writes another block until `block` has left the write buffer. Gives where it is.
fn landed(world: &mut World, block: u64) -> Ppa {
    let other = world.blocks() - 1;
    for _ in 0..1_000 {
        if let Some(place) = world.ftl().place_on_media(block) {
            return place;
        }
        world.write(other, 1);
        world.flush();
    }
    panic!("block {block} stays in the buffer");
}

/// What the block at `ppa` says of itself, whether or not it verifies.
fn peek(world: &World, ppa: Ppa) -> Option<Oob> {
    let mut frames = Frames::new(1, 0, world.wire.geometry().oob_bytes as usize);
    let frame = frames.acquire(FrameForm::Bytes).unwrap();
    let is_there = world.device().look(ppa, &mut frames, frame);
    is_there.then(|| Oob::peek(&frames, frame).ok()).flatten()
}

/// Writes `block` twice and brings the older version to the place of the newer, which the map names.
fn make_stale(world: &mut World, block: u64) -> Ppa {
    world.write(block, 1);
    world.flush();
    let older = landed(world, block);
    world.write(block, 1);
    world.flush();
    let newer = landed(world, block);
    exchange(world, older, newer, block);
    newer
}

fn exchange(world: &mut World, older: Ppa, newer: Ppa, block: u64) {
    world.device().misdirect(older, newer).unwrap();
    let (found, newest) = (peek(world, newer).unwrap(), peek(world, older).unwrap());
    assert_eq!((found.kind, found.address), (BlockKind::Data, block), "the same logical block");
    assert!(found.sequence < newest.sequence, "an older version");
}

/// Lets the drive work until nothing is due.
fn idle(world: &mut World) {
    world.settle();
    while world.ftl().next_due().is_some() {
        world.idle_step();
    }
}

/// Overwrites other blocks than `kept` until collection has moved it from `place`.
fn move_from(world: &mut World, kept: u64, place: Ppa) {
    for _ in 0..20_000 {
        if world.ftl().place_on_media(kept).is_some_and(|there| there != place) {
            return;
        }
        let (first, blocks) = world.range(8);
        if !(first..first + blocks).contains(&kept) {
            world.write(first, blocks);
            world.flush();
        }
    }
    panic!("collection does not move block {kept}");
}

fn expect_only_error(world: &mut World, block: u64, expected: IoError) {
    assert_eq!(world.try_read(block, 1), Err(expected));
    let others: Vec<u64> = (0..world.blocks()).filter(|other| *other != block).collect();
    for other in others {
        world.verify(other, 1);
    }
}

#[test]
fn an_older_version_in_the_place_of_the_newest_is_an_error_when_it_is_read() {
    for relocate_by in BOTH_WAYS {
        let mut world = drive(Config { relocate_by, ..config(700, 1) }, 1);
        make_stale(&mut world, 100);
        expect_only_error(&mut world, 100, IoError::WrongBlock { block: 100 });
        world.write(100, 1);
        world.verify_all();
    }
}

#[test]
fn a_stale_block_is_not_moved_as_if_it_were_the_newest() {
    for relocate_by in BOTH_WAYS {
        let mut world = drive(Config { relocate_by, ..config(700, 2) }, 2);
        let place = make_stale(&mut world, 100);
        move_from(&mut world, 100, place);
        let expected = match relocate_by {
            // Collection has read it, and wrote in its place that it is lost.
            RelocateBy::ReadAndWrite => IoError::Unrecovered { block: 100 },
            // The device copies what it finds; what the block had borrowed is not what it has.
            RelocateBy::DeviceCopy => IoError::WrongBlock { block: 100 },
        };
        expect_only_error(&mut world, 100, expected);
        world.clean_restart();
        expect_only_error(&mut world, 100, expected);
    }
}

/// Every data block on the medium, by what it says of itself: logical block, then sequence and place.
fn versions(world: &mut World) -> BTreeMap<u64, Vec<(u64, Ppa)>> {
    let mut found: BTreeMap<u64, Vec<(u64, Ppa)>> = BTreeMap::new();
    for ppa in world.written_places() {
        if let Some(Oob { kind: BlockKind::Data, address, sequence }) = peek(world, ppa) {
            found.entry(address).or_default().push((sequence, ppa));
        }
    }
    found
}

/// Brings an older version of each logical block that has one on the medium to the place of the newest.
fn make_all_stale(world: &mut World) -> BTreeSet<u64> {
    let mut stale = BTreeSet::new();
    for (block, versions) in versions(world) {
        let newest = world.place_of(block);
        let sequence = peek(world, newest).unwrap().sequence;
        // A block that was moved is there twice with one sequence.
        if let Some((_, older)) = versions.into_iter().find(|(other, _)| *other < sequence) {
            exchange(world, older, newest, block);
            stale.insert(block);
        }
    }
    stale
}

/// When errors are looked for after the drive was stopped and opened again.
const STOPPED: &str = "after a clean stop";

fn expect_errors(world: &mut World, stale: &BTreeSet<u64>, when: &str) {
    for block in 0..world.blocks() {
        if stale.contains(&block) {
            let read = world.try_read(block, 1);
            // A clean stop may collect: what was to be moved then has been given up.
            let is_given_up = when == STOPPED && read == Err(IoError::Unrecovered { block });
            let is_error = is_given_up || read == Err(IoError::WrongBlock { block });
            assert!(is_error, "{when}: {read:?}");
        } else {
            world.verify(block, 1);
        }
    }
}

#[test]
fn whatever_is_written_or_copied_any_older_version_in_its_place_is_an_error_also_after_a_crash_and_a_clean_stop() {
    for relocate_by in BOTH_WAYS {
        for seed in 11..15 {
            let mut world = drive(Config { relocate_by, ..config(700, seed) }, seed);
            for _ in 0..2_000 {
                let (first, blocks) = world.range(8);
                world.write(first, blocks);
            }
            world.flush();
            let statistics = world.ftl().statistics();
            let (copies, reads) = (statistics.relocation_copies, statistics.relocation_reads);
            assert!(if relocate_by == RelocateBy::DeviceCopy { copies > 100 } else { reads > 100 });
            world.verify_all();
            world.power_cut(seed % 2 == 0);
            world.recover().unwrap();
            world.clean_restart();
            world.verify_all();
            for block in 0..700 {
                landed(&mut world, block);
            }
            let stale = make_all_stale(&mut world);
            assert!(stale.len() > 50, "{}", stale.len());
            expect_errors(&mut world, &stale, "at once");
            world.power_cut(false);
            world.open(Access::ReadWrite).unwrap();
            expect_errors(&mut world, &stale, "after a crash");
            world.clean_restart();
            expect_errors(&mut world, &stale, STOPPED);
        }
    }
}

#[test]
fn a_drive_without_a_checkpoint_knows_the_openings_from_its_log() {
    let mut world = drive(Config { checkpoint_log_blocks: Some(12_000), ..config(700, 4) }, 4);
    assert_eq!(world.ftl().superblock().checkpoint.blocks, 0, "there is no checkpoint");
    let place = make_stale(&mut world, 100);
    world.power_cut(false);
    world.open(Access::ReadWrite).unwrap();
    assert_eq!(world.place_of(100), place);
    expect_only_error(&mut world, 100, IoError::WrongBlock { block: 100 });
}

#[test]
fn the_scrub_finds_a_stale_block() {
    let interval = Nanos::from_millis(500);
    let mut world = drive(Config { scrub_interval: Some(interval), ..config(700, 5) }, 5);
    world.clean_restart();
    make_stale(&mut world, 100);
    assert_eq!(world.ftl().statistics().scrub.lost, 0);
    let end = world.clock.0 + Nanos(3 * interval.0);
    while world.ftl().next_due().is_some_and(|due| due <= end) {
        world.idle_step();
    }
    assert!(world.ftl().statistics().scrub.lost >= 1, "{:?}", world.ftl().statistics().scrub);
    assert!(world.try_read(100, 1).is_err());
}

#[test]
fn a_check_names_a_stale_block_with_its_place() {
    let mut world = drive(config(700, 6), 6);
    let place = make_stale(&mut world, 100);
    let address = world.wire.geometry().format().unpack(place).to_string();
    let mut ftl = world.ftl.take().unwrap();
    let report = ftl.check(&mut world.clock, &mut |_, _| ()).unwrap();
    assert_eq!(report.blocks_lost, 1);
    assert_eq!((report.lost[0].block, report.lost[0].address.as_deref()), (100, Some(&*address)));
}

/// A drive whose chunks were not erased since they held versions of block 5, and go on so.
fn not_erased(relocate_by: RelocateBy, seed: u64) -> World {
    let mut world = drive(Config { relocate_by, ..config(300, seed) }, seed);
    let chunks: Vec<ChunkId> = world.wire.geometry().chunk_ids().collect();
    let is_metadata = |world: &mut World| -> BTreeSet<ChunkId> {
        world.ftl().chunk_uses().filter(|(_, usage, _)| *usage == ChunkUse::Metadata).map(|(chunk, ..)| chunk).collect()
    };
    for round in 0..400 {
        for chunk in &chunks {
            if round > 0 && !is_metadata(&mut world).contains(chunk) {
                world.device().inject_silent_fault(*chunk, SilentFault::LostErase);
            }
        }
        for _ in 0..40 {
            world.write(5, 1);
        }
        world.flush();
        if world.device().statistics().chunk_resets as usize > 3 * chunks.len() {
            return world;
        }
    }
    panic!("no chunk is used again");
}

/// Writes block 5 so that its program is lost, and its place holds an older version of it.
fn lose_program_of_5(world: &mut World) {
    for _ in 0..2_000 {
        let open: Vec<ChunkId> = world
            .ftl()
            .chunk_uses()
            .filter(|(_, usage, _)| *usage == ChunkUse::Open)
            .map(|(chunk, ..)| chunk)
            .collect();
        for chunk in open {
            world.device().inject_silent_fault(chunk, SilentFault::LostProgram);
        }
        world.take_missing();
        world.write(5, 1);
        world.flush();
        let place = landed(world, 5);
        let was_lost = world.take_missing().iter().any(|missing| missing.place == place);
        if was_lost && peek(world, place).is_some_and(|oob| oob.kind == BlockKind::Data && oob.address == 5) {
            return;
        }
    }
    panic!("no lost program leaves an older version of the block");
}

#[test]
fn what_a_lost_erase_and_a_lost_program_leave_of_the_same_block_in_the_same_place_is_an_error() {
    for relocate_by in BOTH_WAYS {
        let mut world = not_erased(relocate_by, 7);
        lose_program_of_5(&mut world);
        assert_eq!(world.try_read(5, 1), Err(IoError::WrongBlock { block: 5 }));
        world.power_cut(false);
        world.open(Access::ReadWrite).unwrap();
        assert_eq!(world.try_read(5, 1), Err(IoError::WrongBlock { block: 5 }), "after a crash");
        world.clean_restart();
        assert_eq!(world.try_read(5, 1), Err(IoError::WrongBlock { block: 5 }), "after a clean stop");
    }
}

#[test]
fn lost_erases_alone_do_no_harm() {
    for relocate_by in BOTH_WAYS {
        let mut world = not_erased(relocate_by, 8);
        world.verify_all();
        for torn in [false, true] {
            world.power_cut(torn);
            world.recover().unwrap();
            for _ in 0..200 {
                world.operation(4);
            }
            world.settle();
            world.verify_all();
        }
        world.clean_restart();
        world.check();
    }
}

fn open_chunks(world: &mut World) -> Vec<ChunkId> {
    world.ftl().chunk_uses().filter(|(_, usage, _)| *usage == ChunkUse::Open).map(|(chunk, ..)| chunk).collect()
}

/// The logical blocks whose places silent faults have hit, which may be any of 0 to 699.
fn lost_blocks(world: &mut World) -> BTreeSet<u64> {
    let missing: Vec<Ppa> = world.take_missing().into_iter().map(|missing| missing.place).collect();
    (0..700)
        .filter(|block| {
            let place = landed(world, *block);
            missing.contains(&place)
        })
        .collect()
}

#[test]
fn a_lost_program_costs_the_blocks_of_its_unit() {
    let mut world = drive(config(700, 9), 9);
    for chunk in open_chunks(&mut world) {
        world.device().inject_silent_fault(chunk, SilentFault::LostProgram);
    }
    world.write(200, 8);
    world.flush();
    let lost = lost_blocks(&mut world);
    assert!(!lost.is_empty() && lost.iter().all(|block| (200..208).contains(block)), "{lost:?}");
    expect_errors(&mut world, &lost, "at once");
    world.power_cut(false);
    world.open(Access::ReadWrite).unwrap();
    expect_errors(&mut world, &lost, "after a crash");
}

#[test]
fn a_misdirected_program_costs_its_own_blocks_and_those_it_is_over() {
    let mut world = drive(config(700, 20), 20);
    let over = landed(&mut world, 600);
    let over = Ppa(over.0 - over.0 % u64::from(world.wire.geometry().ws_min));
    for chunk in open_chunks(&mut world) {
        world.device().inject_silent_fault(chunk, SilentFault::Misdirected(over));
    }
    // Block 600 is among those that are written: an older version of it is where the newest belongs, and the other way round.
    world.write(600, 1);
    world.flush();
    let lost = lost_blocks(&mut world);
    assert!(lost.contains(&600), "{lost:?}");
    expect_errors(&mut world, &lost, "at once");
}

#[test]
fn log_and_checkpoint_of_which_one_copy_is_lost_silently_cost_nothing() {
    for copy in 0..2 {
        let mut world = drive(config(700, 21 + copy as u64), 21);
        for round in 0..60 {
            // Chunks of this copy are not erased, and some of what is programmed to them is not.
            let superblock = world.ftl().superblock().clone();
            let of_log = superblock.log_chunks[copy].iter().copied();
            let of_checkpoint = superblock.checkpoint.copies[copy].iter().map(|extent| extent.chunk);
            for chunk in of_log.chain(of_checkpoint).map(ChunkId) {
                world.device().inject_silent_fault(chunk, SilentFault::LostErase);
                world.device().inject_silent_fault(chunk, SilentFault::LostProgram);
            }
            for _ in 0..40 {
                let (first, blocks) = world.range(8);
                world.write(first, blocks);
                if round % 2 == 0 {
                    world.flush();
                }
            }
            world.flush();
            world.power_cut(round % 2 == 0);
            world.recover().unwrap_or_else(|error| panic!("copy {copy}, round {round}: {error}"));
            world.verify_all();
        }
        assert!(world.take_missing().len() > 50, "programs were lost");
        world.check();
    }
}

#[test]
fn a_checkpoint_that_was_cut_off_never_has_the_sequence_of_a_later_one() {
    let mut cut_off = 0;
    for seed in 0..40 {
        let mut world = drive(Config { checkpoint_log_blocks: Some(8), ..config(700, seed) }, seed);
        let wire = world.wire.clone();
        wire.cut_after(200 + 37 * seed, || {
            loop {
                let (first, blocks) = world.range(8);
                world.write(first, blocks);
            }
        });
        world.power_cut(false);
        world.open(Access::ReadWrite).unwrap();
        let published = world.ftl().superblock().checkpoint.sequence;
        let on_media = |world: &mut World| -> BTreeSet<(u64, Ppa)> {
            let places = world.written_places().into_iter();
            let blocks: Vec<_> = places.filter_map(|ppa| Some((peek(world, ppa)?, ppa))).collect();
            blocks
                .into_iter()
                .filter(|(oob, _)| oob.kind == BlockKind::Checkpoint)
                .map(|(oob, ppa)| (oob.sequence, ppa))
                .collect()
        };
        let abandoned: BTreeSet<u64> = on_media(&mut world)
            .into_iter()
            .map(|(sequence, _)| sequence)
            .filter(|sequence| *sequence > published)
            .collect();
        cut_off += abandoned.len();
        while world.ftl().superblock().checkpoint.sequence == published {
            let (first, blocks) = world.range(8);
            world.write(first, blocks);
        }
        let next = world.ftl().superblock().checkpoint.sequence;
        assert!(!abandoned.contains(&next), "seed {seed}: checkpoint {next} was begun before");
    }
    assert!(cut_off > 3, "{cut_off} checkpoints were cut off");
}

fn table_world(seed: u64) -> TableWorld {
    TableWorld::new(Profile::builtin("tiny").unwrap(), config(400, seed), 8, seed)
}

#[test]
fn a_lost_program_of_a_table_costs_the_blocks_of_its_unit() {
    let mut world = table_world(30);
    for chunk in world.wire.geometry().chunk_ids().collect::<Vec<_>>() {
        let is_of_tenant =
            world.ftl().block().chunk_uses().any(|(other, usage, _)| other == chunk && usage == ChunkUse::Free);
        if is_of_tenant {
            world.device().inject_silent_fault(chunk, SilentFault::LostProgram);
        }
    }
    let table = world.write_table(60);
    let missing = world.take_missing();
    let mut lost = 0;
    for block in 0..60 {
        match world.try_read_table(table, block) {
            Ok(()) => {}
            Err(TableError::Io(IoError::WrongBlock { block: found })) => {
                assert_eq!(found, u64::from(block));
                lost += 1;
            }
            Err(error) => panic!("{error}"),
        }
    }
    let of_table = missing.iter().filter(|missing| missing.oob[0] == BlockKind::Tenant as u8).count();
    assert!(lost > 0 && lost == of_table, "{lost} of {of_table}");
}

#[test]
fn a_superblock_that_one_place_lost_silently_is_found_in_the_other() {
    let mut world = drive(config(700, 40), 40);
    for round in 0..40 {
        let superblock = world.ftl().superblock().clone();
        for chunk in &superblock.places[..2] {
            world.device().inject_silent_fault(ChunkId(*chunk), SilentFault::LostErase);
            world.device().inject_silent_fault(ChunkId(*chunk), SilentFault::LostProgram);
        }
        for _ in 0..60 {
            let (first, blocks) = world.range(8);
            world.write(first, blocks);
        }
        world.flush();
        world.power_cut(round % 2 == 0);
        world.recover().unwrap_or_else(|error| panic!("round {round}: {error}"));
    }
    world.verify_all();
}

#[test]
fn blocks_of_the_drive_that_was_there_before_are_errors() {
    // The same steps make the same drive, but for its id.
    let mut before = drive(config(700, 50), 50);
    let mut after = drive(Config { drive_id: 77, ..config(700, 50) }, 50);
    let mut frames = Frames::new(0, 1, before.wire.geometry().oob_bytes as usize);
    let frame = frames.acquire(FrameForm::Stamp).unwrap();
    for block in 0..700 {
        let (place, other) = (landed(&mut before, block), landed(&mut after, block));
        assert_eq!(place, other);
        assert!(before.device().look(place, &mut frames, frame));
        before.ftl().unseal(&mut frames, frame, place);
        let good = Oob::verify(&frames, frame);
        before.ftl().unseal(&mut frames, frame, place);
        after.ftl().unseal(&mut frames, frame, place);
        assert!(good.is_ok() && Oob::verify(&frames, frame).is_err(), "block {block}");
    }
}

#[test]
fn a_repair_that_has_lost_the_seals_finds_them_again_and_takes_no_stale_block() {
    let mut world = crate::damage::cut_off(60);
    world.recover().unwrap();
    let place = make_stale(&mut world, 100);
    world.power_cut(false);
    let (superblock, _) = crate::damage::superblock(&mut world);
    // The chunk table, which is the last block of the checkpoint, is lost in both copies.
    for copy in 0..2 {
        let body = crate::damage::checkpoint(&mut world, &superblock, copy);
        crate::damage::Damage::Unreadable.strike_all(&mut world, body.last().map(|(_, ppa)| *ppa));
    }
    assert!(matches!(world.open(Access::ReadWrite), Err(OpenError::CheckpointLost { .. })));
    world.open(Access::Repair).unwrap();
    assert_eq!(world.place_of(100), place);
    expect_only_error(&mut world, 100, IoError::WrongBlock { block: 100 });
    assert!(world.chunk_report().iter().all(|chunk| chunk.state != ChunkState::Offline));
    world.clock.0 = Time(world.clock.0.0 + 1);
    world.write(100, 1);
    idle(&mut world);
    world.verify_all();
}
