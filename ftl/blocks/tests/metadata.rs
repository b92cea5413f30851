//! Metadata that is lost: one copy of log, checkpoint or superblock is made good without a word of the host's being lost;
//! both copies are a refusal that names the tool.

use crate::damage::{Damage, blocks, checkpoint, cut_off, idle, log, superblock};
use openftl_blocks::block_ftl::BlockFtl;
use openftl_core::{ChunkId, Frames, Geometry, Nanos, Ppa, Time};
use openftl_media::{
    ChunkDescriptor, Command, Completion, Media, MediaError, Notification, Profile, QueueFull, Status, Tag,
};
use openftl_parts::flash::oob::BlockKind;
use openftl_parts::journal::recovery_report::STEPS;
use openftl_parts::journal::superblock::LOG_GAPS_MAX;
use openftl_parts::open_error::OpenError;
use openftl_parts::{Access, Config, Durability, IoError};
use openftl_sim::played::Played;
use openftl_sim::stage::Stage;
use openftl_sim::wire::Wire;
use openftl_sim::world::{World, config, profile};
use rustc_hash::{FxHashMap, FxHashSet};

const DAMAGES: [Damage; 3] = [Damage::Unreadable, Damage::Corrupted, Damage::Offline];

/// It is opened and has everything, now, after a crash and after a clean stop.
fn expect_all_there(world: &mut World, name: &str) {
    if let Err(contradiction) = world.recover() {
        panic!("{name}: {contradiction}");
    }
    world.check();
    world.verify_all();
    world.write(7, 20);
    world.flush();
    world.power_cut(true);
    world.recover().unwrap_or_else(|contradiction| panic!("{name}, cut off again: {contradiction}"));
    world.clean_restart();
    world.verify_all();
    world.check();
}

#[test]
fn one_copy_of_the_log_is_enough() {
    for damage in DAMAGES {
        for copy in 0..2 {
            let mut world = cut_off(1);
            let (superblock, _) = superblock(&mut world);
            let log = log(&mut world, &superblock, copy);
            assert!(log.len() >= 8, "{log:?}");
            damage.strike_all(&mut world, log.iter().map(|(_, ppa)| *ppa));
            expect_all_there(&mut world, &format!("{damage:?} of copy {copy}"));
        }
    }
}

#[test]
fn one_copy_of_the_checkpoint_is_enough() {
    for damage in DAMAGES {
        for copy in 0..2 {
            let mut world = cut_off(2);
            let (superblock, _) = superblock(&mut world);
            let body = checkpoint(&mut world, &superblock, copy);
            assert_eq!(body.len() as u32, superblock.checkpoint.blocks);
            damage.strike_all(&mut world, body.iter().map(|(_, ppa)| *ppa));
            expect_all_there(&mut world, &format!("{damage:?} of copy {copy}"));
        }
    }
}

#[test]
fn each_block_may_come_from_another_copy() {
    let mut world = cut_off(3);
    let (superblock, _) = superblock(&mut world);
    for copy in 0..2 {
        let (log, body) = (log(&mut world, &superblock, copy), checkpoint(&mut world, &superblock, copy));
        let every_other = |(number, _): &&(u64, Ppa)| *number as usize % 2 == copy;
        let places: Vec<Ppa> = log.iter().chain(&body).filter(every_other).map(|(_, ppa)| *ppa).collect();
        Damage::Corrupted.strike_all(&mut world, places);
    }
    expect_all_there(&mut world, "every other block of each copy");
}

#[test]
fn one_place_of_the_superblock_is_enough() {
    for damage in DAMAGES {
        for place in 0..2 {
            let mut world = cut_off(4);
            let (_, places) = superblock(&mut world);
            assert_eq!(places.len(), 2);
            damage.strike(&world, places[place]);
            expect_all_there(&mut world, &format!("{damage:?} of place {place}"));
        }
    }
}

#[test]
fn what_was_there_once_is_soon_there_twice_again() {
    for copy in 0..2 {
        let mut world = cut_off(5);
        let (before, _) = superblock(&mut world);
        let places: Vec<Ppa> = log(&mut world, &before, copy)
            .into_iter()
            .chain(checkpoint(&mut world, &before, copy))
            .map(|(_, ppa)| ppa)
            .collect();
        Damage::Unreadable.strike_all(&mut world, places);
        world.recover().unwrap();
        let report = world.ftl().recovery_report().single_copies.join("\n");
        assert!(report.contains(&format!("checkpoint {}: copy {copy} lacks", before.checkpoint.sequence)), "{report}");
        assert!(report.contains(&format!("log: copy {copy} lacks")), "{report}");
        idle(&mut world);
        world.power_cut(false);
        // Now the other copy is the one that is lost.
        let (after, _) = superblock(&mut world);
        assert!(after.checkpoint.sequence > before.checkpoint.sequence);
        let other = 1 - copy;
        let places: Vec<Ppa> = log(&mut world, &after, other)
            .into_iter()
            .chain(checkpoint(&mut world, &after, other))
            .map(|(_, ppa)| ppa)
            .collect();
        Damage::Unreadable.strike_all(&mut world, places);
        expect_all_there(&mut world, "the other copy");
    }
}

/// Who opens a drive reads each block of its checkpoint once, and so half of each copy where the copies are alike.
#[test]
fn a_checkpoint_is_read_once_and_twice_by_who_only_looks() {
    let steps = STEPS.iter().position(|name| *name == "load checkpoint").unwrap();
    let mut world = cut_off(5);
    for (access, times) in [(Access::Inspect, 2), (Access::ReadWrite, 1)] {
        world.open(access).unwrap();
        let blocks = u64::from(world.ftl().superblock().checkpoint.blocks);
        assert!(blocks > 1, "{blocks}");
        assert_eq!(world.ftl().recovery_report().steps[steps].blocks_read, times * blocks, "{access:?}");
        if access == Access::Inspect {
            world.ftl = None;
        }
    }
}

/// A recovery reads all of the log at once, and a group has one channel.
#[test]
fn chunks_of_the_log_that_follow_each_other_are_in_different_groups() {
    let config = Config { checkpoint_log_blocks: Some(48), ..config(700, 13) };
    let mut world = World::new(profile("tiny", &[("groups = 2", "groups = 6")]), config, 20, 13);
    let format = world.wire.geometry().format();
    let mut followed = 0;
    for _ in 0..400 {
        world.operation(30);
        world.flush();
        for copy in &world.ftl().superblock().log_chunks.clone() {
            let groups: Vec<u32> = copy.iter().map(|chunk| format.group_of(format.pu_of(ChunkId(*chunk)))).collect();
            assert!(groups.windows(2).all(|pair| pair[0] != pair[1]), "{groups:?}");
            followed += groups.len() - 1;
        }
    }
    assert!(followed > 100 && world.ftl().statistics().checkpoints > 5, "{followed}");
}

#[test]
fn the_last_blocks_of_the_log_are_mended_by_the_recovery_itself() {
    // A crash leaves them in one copy only now and then; here a fault does it.
    let mut world = cut_off(6);
    let (before, _) = superblock(&mut world);
    let tail: Vec<(u64, Ppa)> = log(&mut world, &before, 0).into_iter().rev().take(6).collect();
    // Not a word from the device: it would have a checkpoint written.
    Damage::Corrupted.strike_all(&mut world, tail.iter().map(|(_, ppa)| *ppa));
    world.recover().unwrap();
    assert_eq!(world.ftl().superblock().checkpoint, before.checkpoint, "no checkpoint for that");
    world.power_cut(false);
    let (after, _) = superblock(&mut world);
    // Now the copy that it was mended from loses them.
    let mut other = log(&mut world, &after, 1);
    other.retain(|(lsn, _)| tail.iter().any(|(struck, _)| struck == lsn));
    assert_eq!(other.len(), tail.len());
    Damage::Unreadable.strike_all(&mut world, other.iter().map(|(_, ppa)| *ppa));
    expect_all_there(&mut world, "the other copy");
}

fn refused(world: &mut World) -> OpenError {
    let error = world.open(Access::ReadWrite).expect_err("it cannot be opened");
    assert!(error.is_repairable());
    assert!(error.to_string().contains("openftl check --repair"), "{error}");
    error
}

#[test]
fn a_page_of_the_log_lost_in_both_copies_is_a_refusal_and_not_its_end() {
    for damage in [Damage::Unreadable, Damage::Corrupted] {
        let mut world = cut_off(7);
        let (superblock, _) = superblock(&mut world);
        let copies = [0, 1].map(|copy| log(&mut world, &superblock, copy));
        let lost = copies[0][copies[0].len() / 2].0;
        for copy in &copies {
            let place = copy.iter().find(|(lsn, _)| *lsn == lost).unwrap().1;
            damage.strike(&world, place);
        }
        let error = refused(&mut world);
        assert!(matches!(error, OpenError::LogLost { lsn, .. } if lsn == lost), "{error}");
        // Who only looks is told as much.
        assert!(world.open(Access::Inspect).is_err());
    }
}

#[test]
fn a_log_lost_wholly_in_both_copies_is_a_refusal() {
    let mut world = cut_off(8);
    world.recover().unwrap();
    let (first, blocks) = (0, 300);
    world.write(first, 256.min(blocks));
    world.flush();
    // The superblock that names the next chunk of the log says how far it was durable.
    let sequence = world.ftl().superblock().sequence;
    while world.ftl().superblock().sequence == sequence {
        world.write(5, 1);
        world.flush();
    }
    world.power_cut(false);
    let (superblock, _) = superblock(&mut world);
    assert!(superblock.durable_below > superblock.first_lsn);
    for copy in 0..2 {
        let log = log(&mut world, &superblock, copy);
        Damage::Unreadable.strike_all(&mut world, log.iter().map(|(_, ppa)| *ppa));
    }
    assert!(matches!(refused(&mut world), OpenError::LogLost { .. }));
}

#[test]
fn a_block_of_the_checkpoint_lost_in_both_copies_is_a_refusal() {
    for damage in DAMAGES {
        let mut world = cut_off(9);
        let (superblock, _) = superblock(&mut world);
        for copy in 0..2 {
            let place = checkpoint(&mut world, &superblock, copy)[1].1;
            damage.strike(&world, place);
        }
        let error = refused(&mut world);
        assert!(matches!(error, OpenError::CheckpointLost { .. }), "{error}");
    }
}

/// The newest superblock is lost in both places, at many moments of a drive's life: then the one before it is taken only if
/// that loses nothing that was durable.
#[test]
fn an_older_superblock_is_taken_only_if_that_loses_nothing() {
    let (mut taken, mut refused) = (0, 0);
    for seed in 0..60 {
        let mut world = World::tiny(700, seed);
        world.write_all(40);
        for _ in 0..30 + 7 * seed {
            world.operation(4);
        }
        world.settle();
        world.flush();
        world.power_cut(seed % 2 == 0);
        let (_, places) = superblock(&mut world);
        Damage::Unreadable.strike_all(&mut world, places);
        match world.open(Access::ReadWrite) {
            Ok(()) => {
                let found = world.read_all();
                world.history.verdict(&found).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
                taken += 1;
            }
            Err(error) => {
                assert!(error.is_repairable() || error == OpenError::NotFormatted, "seed {seed}: {error}");
                refused += 1;
            }
        }
    }
    assert!(taken > 3 && refused > 3, "{taken} taken, {refused} refused: both have been seen");
}

#[test]
fn a_drive_whose_metadata_fails_at_random_one_copy_at_a_time_loses_nothing() {
    for seed in 200..230 {
        let copy = seed as usize % 2;
        let mut world = World::tiny(700, seed);
        world.write_all(40);
        for round in 0..12 {
            for number in 0..100 {
                world.operation(5);
                if number == 70 {
                    world.flush();
                }
            }
            world.power_cut(round % 2 == 0);
            let (superblock, places) = superblock(&mut world);
            let mut metadata: Vec<Ppa> = log(&mut world, &superblock, copy)
                .into_iter()
                .chain(checkpoint(&mut world, &superblock, copy))
                .map(|(_, ppa)| ppa)
                .collect();
            metadata.extend(places.get(copy));
            let damage = if world.below(2) == 0 { Damage::Unreadable } else { Damage::Corrupted };
            let hit: Vec<Ppa> = metadata.into_iter().filter(|_| world.below(3) == 0).collect();
            damage.strike_all(&mut world, hit);
            world.recover().unwrap_or_else(|error| panic!("seed {seed}, round {round}, copy {copy}: {error}"));
            world.check();
        }
    }
}

#[test]
fn a_recovery_writes_no_checkpoint_and_names_what_does_not_count() {
    let config = Config { checkpoint_log_blocks: Some(12_000), ..config(700, 10) };
    let mut world = World::new(Profile::builtin("tiny").unwrap(), config, 20, 10);
    world.write_all(40);
    for round in 0..2 * LOG_GAPS_MAX as u64 + 10 {
        let before = world.ftl().superblock().checkpoint.sequence;
        for _ in 0..4 {
            world.operation(3);
        }
        world.write(round, 3);
        world.flush();
        let gaps = world.ftl().superblock().log_gaps.len();
        world.power_cut(round % 2 == 0);
        world.recover().unwrap_or_else(|error| panic!("round {round}: {error}"));
        let superblock = world.ftl().superblock();
        let is_full = gaps == LOG_GAPS_MAX;
        assert_eq!(superblock.checkpoint.sequence > before, is_full, "round {round}");
        assert!(superblock.log_gaps.len() <= LOG_GAPS_MAX);
        assert_eq!(superblock.log_gaps.is_empty(), is_full, "round {round}");
    }
    world.check();
    world.clean_restart();
    assert_eq!(world.ftl().superblock().log_gaps, []);
    world.verify_all();
}

#[test]
fn a_recovery_cut_short_many_times_uses_up_one_gap() {
    let mut world = cut_off(11);
    let wire = world.wire.clone();
    for events in [3, 9, 30, 31, 32, 33, 34, 35, 36, 40, 50, 60, 70] {
        if wire.cut_after(events, || world.open(Access::ReadWrite).unwrap()) {
            world.power_cut(events % 2 == 0);
        } else {
            world.power_cut(false);
        }
    }
    world.recover().unwrap();
    assert_eq!(world.ftl().superblock().log_gaps.len(), 1, "{:?}", world.ftl().superblock().log_gaps);
    world.check();
}

#[test]
fn a_chunk_that_goes_offline_costs_its_blocks_and_nothing_else() {
    for clean in [true, false] {
        let mut world = cut_off(12);
        world.recover().unwrap();
        world.clean_restart();
        let chunk = world.wire.geometry().format().chunk_of(world.place_of(100));
        let format = world.wire.geometry().format();
        let on_chunk = |world: &mut World, block: u64| {
            world.ftl().place_on_media(block).is_some_and(|ppa| format.chunk_of(ppa) == chunk)
        };
        let lost: Vec<u64> = (0..world.blocks()).filter(|block| on_chunk(&mut world, *block)).collect();
        assert!(lost.contains(&100) && lost.len() > 4, "{lost:?}");
        if clean {
            world.ftl.take().unwrap().close(&mut world.clock).unwrap();
        }
        world.power_cut(false);
        world.device().take_offline(chunk).unwrap();
        for _ in 0..2 {
            world.open(Access::ReadWrite).unwrap();
            for block in 0..world.blocks() {
                if lost.contains(&block) {
                    let error = world.try_read(block, 1).unwrap_err();
                    assert!(
                        [IoError::Unrecovered { block }, IoError::WrongBlock { block }].contains(&error),
                        "{error}"
                    );
                } else {
                    world.verify(block, 1);
                }
            }
            world.power_cut(false);
        }
        world.open(Access::ReadWrite).unwrap();
        let good = world.ftl().chunk_uses().count();
        for block in lost {
            world.write(block, 1);
        }
        world.flush();
        for _ in 0..400 {
            let (first, blocks) = world.range(20);
            world.write(first, blocks);
        }
        world.verify_all();
        assert_eq!(world.ftl().read_only_reason(), None);
        let retired = openftl_parts::flash::chunk_table::ChunkUse::Retired;
        assert!(world.ftl().chunk_uses().any(|(other, usage, _)| other == chunk && usage == retired), "of {good}");
        world.check();
    }
}

#[test]
fn a_log_chunk_that_was_named_and_never_begun_does_not_leak() {
    let mut world = cut_off(13);
    for round in 0..80 {
        world.recover().unwrap();
        world.write(round * 7, 5);
        world.flush();
        world.power_cut(round % 2 == 0);
    }
    world.recover().unwrap();
    let superblock = world.ftl().superblock().clone();
    let report = world.chunk_report();
    for copy in &superblock.log_chunks {
        let free = copy.iter().filter(|chunk| {
            report.iter().any(|other| other.chunk.0 == **chunk && other.state == openftl_media::ChunkState::Free)
        });
        assert!(free.count() <= 1, "{copy:?}");
    }
    assert_eq!(world.ftl().statistics().retired_chunks, 0);
    world.check();
}

#[test]
fn the_sequence_of_data_is_never_used_twice() {
    let mut world = World::tiny(700, 14);
    world.write_all(40);
    for round in 0..15 {
        world.flush();
        for _ in 0..80 {
            world.operation(6);
        }
        world.power_cut(round % 2 == 0);
        world.recover().unwrap();
    }
    world.settle();
    idle(&mut world);
    let mut seen: FxHashMap<u64, u64> = FxHashMap::default();
    for (ppa, oob) in blocks(&mut world) {
        if oob.kind == BlockKind::Data {
            let before = seen.insert(oob.sequence, oob.address);
            assert!(before.is_none_or(|block| block == oob.address), "sequence {} at {ppa:?}", oob.sequence);
        }
    }
    assert!(seen.len() > 300, "{}", seen.len());
}

/// A device on which every block fails the first time it is read.
struct Hesitant {
    wire: Wire,
    read: FxHashSet<Ppa>,
    failing: FxHashMap<Tag, u64>,
}

impl Media for Hesitant {
    fn geometry(&self) -> &Geometry {
        self.wire.geometry()
    }

    fn submit(&mut self, now: Time, frames: &mut Frames, tag: Tag, command: Command<'_>) -> Result<(), QueueFull> {
        if let Command::Read { blocks, .. } = command {
            let new = (0..blocks.len()).filter(|index| self.read.insert(blocks.get(*index)));
            let failing = new.fold(0, |failing, index| failing | 1 << index);
            self.failing.insert(tag, failing);
        }
        self.wire.submit(now, frames, tag, command)
    }

    fn poll(&mut self, now: Time, frames: &mut Frames, completions: &mut Vec<Completion>) {
        let before = completions.len();
        self.wire.poll(now, frames, completions);
        for completion in &mut completions[before..] {
            if let Some(failing) = self.failing.remove(&completion.tag).filter(|failing| *failing != 0) {
                (completion.status, completion.failed) = (Status::UnrecoveredRead, completion.failed | failing);
            }
        }
    }

    fn next_due(&self) -> Option<Time> {
        self.wire.next_due()
    }

    fn chunk_report(&mut self, now: Time, first: ChunkId, into: &mut [ChunkDescriptor]) -> Result<(), MediaError> {
        self.wire.chunk_report(now, first, into)
    }

    fn notifications(&mut self, now: Time, after: u64, into: &mut Vec<Notification>) -> Result<(), MediaError> {
        self.wire.notifications(now, after, into)
    }

    fn set_dulbe(&mut self, dulbe: bool) {
        self.wire.set_dulbe(dulbe);
    }

    fn pu_busy(&self) -> Vec<Nanos> {
        self.wire.pu_busy()
    }
}

#[test]
fn a_read_that_succeeds_the_second_time_costs_nothing() {
    let mut world = cut_off(15);
    let media = Hesitant { wire: world.wire.clone(), read: FxHashSet::default(), failing: FxHashMap::default() };
    let ftl = BlockFtl::open(media, world.config.clone(), &mut world.clock).unwrap();
    assert_eq!(ftl.recovery_report().single_copies, Vec::<String>::new());
    assert!(ftl.recovery_report().replayed > 0);
    drop(ftl);
    world.power_cut(false);
    world.recover().unwrap();
    assert_eq!(world.try_write(0, 1, Durability::Durable), Ok(()));
}

/// Or the chunks that superblocks are written to would wear out first on large drives.
#[test]
fn a_log_of_many_chunks_wants_no_more_superblocks_than_one_of_few() {
    let superblocks = |log_chunks: u64| {
        let profile = Profile::builtin("tiny").unwrap();
        let log_blocks = log_chunks * u64::from(profile.chip.blocks_per_chunk);
        let config = Config { checkpoint_log_blocks: Some(log_blocks), ..config(700, 1) };
        let mut world = World::new(profile, config, 10, 1);
        while world.ftl().statistics().checkpoints < 3 {
            let (first, _) = world.range(1);
            world.write(first, 1);
            world.flush();
        }
        world.power_cut(false);
        world.recover().unwrap();
        world.check();
        world.ftl().superblock().sequence / 3
    };
    let (few, many) = (superblocks(8), superblocks(64));
    assert!(many <= 2 * few, "{few} a checkpoint where the log has 8 chunks, {many} where it has 64");
}

/// Found by the explorer: where a newer superblock might have been lost, a block of the log that was written elsewhere by
/// mistake was taken for that superblock's log, and the drive was refused.
#[test]
fn a_block_of_the_log_in_a_wrong_place_does_not_speak_of_a_lost_superblock() {
    let mut world = cut_off(8);
    let (superblock, places) = superblock(&mut world);
    let log = log(&mut world, &superblock, 0);
    world.open(Access::Inspect).unwrap();
    let format = world.wire.geometry().format();
    let stale = blocks(&mut world).into_iter().find(|(ppa, oob)| {
        let is_first_data = oob.kind == BlockKind::Data && format.block_of(*ppa) == 0;
        is_first_data && world.ftl().place_on_media(oob.address) != Some(*ppa)
    });
    world.ftl = None;
    let (stale, _) = stale.expect("something was overwritten");
    world.device().misdirect(log[3].1, stale).unwrap();
    Damage::Unreadable.strike(&world, places[0]);
    expect_all_there(&mut world, "one superblock lost, one block of the log misdirected");
}

#[test]
fn after_a_clean_stop_the_ends_of_the_log_are_read_and_after_a_crash_all_of_it() {
    let mut world = World::new(Profile::builtin("tiny").unwrap(), config(700, 10), 20, 3);
    world.write_all(40);
    world.clean_restart();
    let read = |world: &mut World| {
        let steps = &world.ftl().recovery_report().steps;
        let read = steps.iter().find(|step| step.name == "read log").expect("the log is read").blocks_read;
        let chunks = world.ftl().superblock().log_chunks.iter().flatten().count() as u64;
        (read, chunks * u64::from(world.wire.geometry().ws_min))
    };
    let (ends, at_most) = read(&mut world);
    assert!(0 < ends && ends <= at_most, "{ends} blocks, where the ends have {at_most}");

    world.write(5, 30);
    world.flush();
    world.power_cut(false);
    world.recover().unwrap();
    let (whole, _) = read(&mut world);
    assert!(whole > at_most, "{whole} blocks");
    assert!(world.ftl().recovery_report().replayed > 0);
    world.verify_all();
    world.check();
}
