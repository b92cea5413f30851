//! Care: what is weak moves before it is lost, all that the drive holds is read now and then, and what is lost costs no
//! more than itself.

use openftl_core::{ChunkId, FrameForm, Nanos, Time};
use openftl_media::{ChunkState, Media, Profile, ProgramFailure};
use openftl_parts::flash::chunk_table::ChunkUse;
use openftl_parts::{Access, Care, Config, IoError, Moved, RelocateBy, Target};
use openftl_sim::played::Played;
use openftl_sim::world::{World, config, profile};
use std::collections::BTreeSet;

/// A drive whose blocks are all on the medium, with all of its chunks closed or free.
fn settled(config: Config, spare: u32, seed: u64) -> World {
    let mut world = World::new(Profile::builtin("tiny").unwrap(), config, spare, seed);
    world.write_all(16);
    world.clean_restart();
    pass(&mut world, Nanos::ZERO);
    world
}

/// Lets the drive work for a while, with or without something to do.
fn pass(world: &mut World, span: Nanos) {
    world.settle();
    let end = world.clock.0 + span;
    while world.ftl().next_due().is_some_and(|due| due <= end) {
        world.idle_step();
    }
    world.clock.0 = world.clock.0.max(end);
}

fn idle(world: &mut World) {
    pass(world, Nanos(u64::MAX));
    world.clock.0 = Time(world.clock.0.0.min(1 << 60));
}

fn chunk_of(world: &mut World, block: u64) -> ChunkId {
    let place = world.place_of(block);
    world.wire.geometry().format().chunk_of(place)
}

fn chunks(world: &mut World, usage: ChunkUse) -> Vec<ChunkId> {
    world.ftl().chunk_uses().filter(|(_, other, _)| *other == usage).map(|(chunk, ..)| chunk).collect()
}

/// A block in a chunk that is closed.
fn block_in_closed(world: &mut World) -> u64 {
    let closed = chunks(world, ChunkUse::Closed);
    (0..world.blocks()).find(|block| closed.contains(&chunk_of(world, *block))).expect("a chunk is full")
}

#[test]
fn a_weak_block_and_its_neighbours_move_when_the_host_has_read_it() {
    let mut world = settled(config(700, 1), 40, 1);
    let block = block_in_closed(&mut world);
    let (place, weak) = (world.place_of(block), chunk_of(&mut world, block));
    let neighbours = (0..700).filter(|other| chunk_of(&mut world, *other) == weak).count() as u64;
    world.device().inject_high_ecc(place);
    world.verify(block, 1);
    idle(&mut world);
    let statistics = world.ftl().statistics();
    assert_eq!(statistics.cared_for(Care::HostRead), Moved { chunks: 1, blocks: neighbours });
    assert_eq!((statistics.read_failures, statistics.lost_blocks), (0, 0));
    assert!((0..700).all(|other| chunk_of(&mut world, other) != weak), "nothing is left in the chunk");
    let before = world.device().statistics().high_ecc;
    world.verify_all();
    assert_eq!(world.device().statistics().high_ecc, before, "and nothing is weak any more");
    assert_eq!(world.ftl().statistics().cared_for(Care::HostRead).chunks, 1, "it moves once");
    world.check();
    world.power_cut(true);
    world.recover().unwrap();
    world.check();
}

#[test]
fn a_read_that_fails_once_is_repeated_and_its_block_moves() {
    let mut world = settled(config(700, 2), 40, 2);
    let block = block_in_closed(&mut world);
    let (place, weak) = (world.place_of(block), chunk_of(&mut world, block));
    world.device().inject_transient_read_failure(place, 1);
    world.verify(block, 1);
    idle(&mut world);
    let statistics = world.ftl().statistics();
    assert_eq!((statistics.read_failures, statistics.cared_for(Care::HostRead).chunks), (0, 1));
    assert_ne!(chunk_of(&mut world, block), weak);
    world.verify_all();
    world.check();
}

#[test]
fn a_drive_whose_reads_fail_once_at_random_never_shows_it() {
    for seed in 30..34 {
        let mut flaky = Profile::builtin("tiny").unwrap();
        flaky.faults.read_retry = 0.02;
        let relocate_by = if seed < 32 { RelocateBy::ReadAndWrite } else { RelocateBy::DeviceCopy };
        let mut world = World::new(flaky, Config { relocate_by, ..config(600, seed) }, 40, seed);
        for _ in 0..1_000 {
            world.operation(6);
        }
        world.settle();
        world.verify_all();
        world.check();
        // Errors that the host gets are those of the blocks that it marked: the model sees to it.
        let statistics = world.ftl().statistics();
        assert_eq!((statistics.read_failures, statistics.lost_blocks), (0, 0));
        let moved = (statistics.relocation_reads > 0, statistics.relocation_copies > 0);
        assert_eq!(moved, (true, seed >= 32), "what cannot be copied is read");
        assert!(world.device().statistics().read_failures > 5, "reads have failed");
    }
}

#[test]
fn a_chunk_that_is_weak_while_it_is_open_moves_when_it_is_closed() {
    let mut world = settled(config(700, 3), 40, 3);
    // One that host writes go to.
    world.write(0, 64);
    world.flush();
    pass(&mut world, Nanos::ZERO);
    let open = chunks(&mut world, ChunkUse::Open);
    let on_medium: Vec<u64> = (0..64).filter(|block| world.ftl().place_on_media(*block).is_some()).collect();
    let mut on_medium = on_medium.into_iter();
    let block =
        on_medium.find(|block| open.contains(&chunk_of(&mut world, *block))).expect("a chunk is partly written");
    let (place, weak) = (world.place_of(block), chunk_of(&mut world, block));
    world.device().inject_high_ecc(place);
    world.verify(block, 1);
    idle(&mut world);
    assert_eq!(world.ftl().statistics().cared_for(Care::HostRead).chunks, 0);
    let other = if block < 350 { 350 } else { 0 };
    while chunks(&mut world, ChunkUse::Open).contains(&weak) {
        world.write(other, 8);
        world.flush();
    }
    idle(&mut world);
    assert_eq!(world.ftl().statistics().cared_for(Care::HostRead).chunks, 1);
    assert_ne!(chunk_of(&mut world, block), weak);
    world.verify_all();
}

#[test]
fn refreshing_keeps_to_a_share_of_what_is_read_where_everything_is_weak() {
    let mut weak = Profile::builtin("tiny").unwrap();
    weak.faults.high_ecc = 1.0;
    let mut world = World::new(weak, config(700, 4), 40, 4);
    world.write_all(16);
    for _ in 0..40 {
        world.verify_all();
    }
    let moved: u64 = world.ftl().statistics().cared.iter().map(|moved| moved.blocks).sum();
    assert!((40 * 700 / 32..=40 * 700 / 16 + 5 * 32).contains(&moved), "{moved} of {} blocks read", 40 * 700);
    world.check();
}

#[test]
fn a_block_that_the_device_notifies_moves_though_nobody_has_read_it_through_the_drive() {
    let mut world = settled(config(700, 5), 40, 5);
    let block = block_in_closed(&mut world);
    let (place, weak) = (world.place_of(block), chunk_of(&mut world, block));
    idle(&mut world);
    world.device().inject_high_ecc(place);
    // Read behind the drive's back: by the device's own patrol, say.
    read_behind_the_drive(&mut world, place);
    // Any collection looks at the notifications.
    while world.ftl().statistics().cared_for(Care::Notification).chunks == 0 {
        let first = world.range(8).0;
        world.write(first.min(692), 8);
    }
    idle(&mut world);
    assert_ne!(chunk_of(&mut world, block), weak);
    world.verify_all();
    world.check();
}

fn read_behind_the_drive(world: &mut World, place: openftl_core::Ppa) {
    let mut frames = openftl_core::Frames::new(0, 1, 16);
    let frame = frames.acquire(FrameForm::Stamp).unwrap();
    let now = world.clock.0;
    let command = openftl_media::Command::Read { blocks: openftl_media::Blocks::Vector(&[place]), frames: &[frame] };
    let mut device = world.device();
    device.submit(now, &mut frames, 0, command).unwrap();
    let due = device.next_due().unwrap();
    device.poll(due, &mut frames, &mut Vec::new());
    drop(device);
    world.clock.0 = due;
}

#[test]
fn a_lost_block_costs_itself_and_its_chunk_is_used_again() {
    for relocate_by in [RelocateBy::ReadAndWrite, RelocateBy::DeviceCopy] {
        lose_blocks(settled(Config { relocate_by, ..config(700, 6) }, 40, 6));
    }
}

fn lose_blocks(mut world: World) {
    let lost: Vec<u64> = (0..700).step_by(41).collect();
    for block in &lost {
        let place = world.place_of(*block);
        world.device().inject_read_failure(place).unwrap();
    }
    for _ in 0..30 {
        for first in (0..700).step_by(64) {
            let _ = world.try_read(first, 64.min(700 - first));
        }
        idle(&mut world);
    }
    // Each of their chunks was emptied: none holds a place that cannot be read.
    let given_up = world.ftl().statistics().lost_blocks;
    assert!(given_up as usize > lost.len() / 2, "{given_up} of {}", lost.len());
    for block in 0..700 {
        let expected = if lost.contains(&block) { Err(IoError::Unrecovered { block }) } else { Ok(()) };
        assert_eq!(world.try_read(block, 1).map(|_| ()), expected);
    }
    for torn in [false, true] {
        world.flush();
        world.power_cut(torn);
        world.open(Access::ReadWrite).unwrap();
        for block in &lost {
            assert_eq!(
                world.try_read(*block, 1),
                Err(IoError::Unrecovered { block: *block }),
                "also when opened again"
            );
        }
    }
    for block in lost {
        world.write(block, 1);
    }
    world.verify_all();
    world.clean_restart();
    world.check();
}

/// A write that went astray is found at another's place, and its own place holds what the other wrote.
#[test]
fn blocks_at_each_others_places_are_errors_and_never_wrong_data() {
    for relocate_by in [RelocateBy::ReadAndWrite, RelocateBy::DeviceCopy] {
        let mut world = settled(Config { relocate_by, ..config(700, 7) }, 40, 7);
        let places = [world.place_of(100), world.place_of(400)];
        world.device().misdirect(places[0], places[1]).unwrap();
        for block in [100, 400] {
            assert_eq!(world.try_read(block, 1), Err(IoError::WrongBlock { block }));
        }
        for _ in 0..1_500 {
            let (first, blocks) = world.range(8);
            if ![100, 400].iter().any(|block| (first..first + blocks).contains(block)) {
                world.write(first, blocks);
            }
        }
        for block in [100, 400] {
            assert_ne!(world.place_of(block), places[usize::from(block == 400)], "collection has moved it");
            let expected = match relocate_by {
                // Collection believes neither.
                RelocateBy::ReadAndWrite => IoError::Unrecovered { block },
                // The device copies what it finds.
                RelocateBy::DeviceCopy => IoError::WrongBlock { block },
            };
            assert_eq!(world.try_read(block, 1), Err(expected));
            world.write(block, 1);
        }
        world.verify_all();
        world.clean_restart();
        world.check();
    }
}

#[test]
fn a_chunk_that_goes_offline_costs_what_it_held_and_a_spare() {
    let mut world = settled(config(700, 8), 40, 8);
    let block = block_in_closed(&mut world);
    let offline = chunk_of(&mut world, block);
    let lost: Vec<u64> = (0..700).filter(|block| chunk_of(&mut world, *block) == offline).collect();
    world.device().take_offline(offline).unwrap();
    // One of them is read; the device says what has become of the chunk.
    assert!(world.try_read(block, 1).is_err());
    let other = chunk_of(&mut world, (block + 350) % 700);
    assert_ne!(other, offline);
    while world.ftl().statistics().offline_chunks == 0 {
        let first = world.below(692);
        if !lost.iter().any(|lost| (first..first + 8).contains(lost)) {
            world.write(first, 8);
        }
    }
    idle(&mut world);
    world.flush();
    let statistics = world.ftl().statistics();
    assert_eq!((statistics.offline_chunks, statistics.lost_blocks), (1, lost.len() as u64));
    assert_eq!(chunks(&mut world, ChunkUse::Retired), [offline]);
    for block in 0..700 {
        let expected = if lost.contains(&block) { Err(IoError::Unrecovered { block }) } else { Ok(()) };
        assert_eq!(world.try_read(block, 1).map(|_| ()), expected);
    }
    world.flush();
    world.power_cut(false);
    world.open(Access::ReadWrite).unwrap();
    for block in &lost {
        assert_eq!(world.try_read(*block, 1), Err(IoError::Unrecovered { block: *block }));
        world.write(*block, 1);
    }
    world.verify_all();
    world.clean_restart();
    world.check();
}

#[test]
fn a_chunk_that_goes_offline_while_the_drive_is_off_costs_what_it_held() {
    let mut world = settled(config(700, 9), 40, 9);
    let block = block_in_closed(&mut world);
    let offline = chunk_of(&mut world, block);
    let lost: Vec<u64> = (0..700).filter(|block| chunk_of(&mut world, *block) == offline).collect();
    world.power_cut(false);
    world.device().take_offline(offline).unwrap();
    for _ in 0..2 {
        world.open(Access::ReadWrite).unwrap();
        for block in 0..700 {
            assert_eq!(world.try_read(block, 1).is_err(), lost.contains(&block), "block {block}");
        }
        idle(&mut world);
        world.flush();
        world.power_cut(false);
    }
    world.open(Access::ReadWrite).unwrap();
    assert_eq!(chunks(&mut world, ChunkUse::Retired), [offline]);
    for block in lost {
        world.write(block, 1);
    }
    world.verify_all();
    world.clean_restart();
    world.check();
}

#[test]
fn an_open_chunk_that_goes_offline_is_left_behind() {
    for seed in 20..24 {
        let mut world = settled(config(700, seed), 40, seed);
        world.write(0, 40);
        world.flush();
        for chunk in chunks(&mut world, ChunkUse::Open).into_iter().take(2) {
            world.device().take_offline(chunk).unwrap();
        }
        for _ in 0..1_200 {
            let (first, blocks) = world.range(8);
            world.write(first, blocks);
        }
        idle(&mut world);
        assert!(!world.ftl().is_read_only(), "{:?}", world.ftl().read_only_reason());
        assert_eq!(world.ftl().statistics().offline_chunks, 2);
        world.write_all(16);
        world.verify_all();
        world.clean_restart();
        world.check();
    }
}

#[test]
fn weak_metadata_is_left_behind_by_a_new_checkpoint() {
    let mut world = settled(config(700, 10), 40, 10);
    let (checkpoints, old) = (world.ftl().statistics().checkpoints, world.ftl().superblock().checkpoint.clone());
    let place = world.wire.geometry().format().ppa(ChunkId(old.copies[0][0].chunk), old.copies[0][0].first);
    world.device().inject_high_ecc(place);
    read_behind_the_drive(&mut world, place);
    while world.ftl().statistics().cared_for(Care::Notification).chunks == 0
        && world.ftl().statistics().checkpoints == checkpoints
        && world.ftl().superblock().checkpoint.sequence == old.sequence
    {
        // A read that needs much correction makes the drive ask.
        let block = block_in_closed(&mut world);
        let weak = world.place_of(block);
        world.device().inject_high_ecc(weak);
        world.verify(block, 1);
        idle(&mut world);
    }
    assert!(world.ftl().superblock().checkpoint.sequence > old.sequence);
    world.verify_all();
    world.check();
}

const HOUR: Nanos = Nanos(3_600_000_000_000);

fn scrubbed(capacity: u64, seed: u64) -> Config {
    Config { scrub_interval: Some(HOUR), ..config(capacity, seed) }
}

#[test]
fn the_scrub_reads_everything_once_in_its_interval_evenly() {
    let mut world = settled(scrubbed(700, 11), 20, 11);
    let metadata: u64 = 200;
    let mut read = vec![0];
    for _ in 0..8 {
        pass(&mut world, Nanos(HOUR.0 / 8));
        read.push(world.ftl().statistics().scrub.blocks);
    }
    let scrub = world.ftl().statistics().scrub;
    assert!((600..700 + metadata).contains(&scrub.blocks), "{scrub:?}");
    assert!(scrub.passes == 1 || world.ftl().scrub().progress() > 0.8, "{scrub:?}");
    for step in read.windows(2) {
        assert!((20..180).contains(&(step[1] - step[0])), "{read:?}");
    }
    assert_eq!((scrub.weak, scrub.lost), (0, 0));
    pass(&mut world, Nanos(2 * HOUR.0));
    let scrub = world.ftl().statistics().scrub;
    assert!((2..=3).contains(&scrub.passes) && (2_000..2_700).contains(&scrub.blocks), "{scrub:?}");
    world.verify_all();
}

#[test]
fn a_drive_without_a_scrub_sleeps_when_it_has_nothing_to_do() {
    let mut world = settled(config(700, 12), 20, 12);
    idle(&mut world);
    assert_eq!(world.ftl().next_due(), None);
}

#[test]
fn the_scrub_refreshes_what_is_weak_and_counts_what_is_lost() {
    let mut world = settled(scrubbed(700, 13), 40, 13);
    let closed = chunks(&mut world, ChunkUse::Closed);
    let blocks: Vec<u64> =
        (0..700).filter(|block| closed.contains(&chunk_of(&mut world, *block))).step_by(97).collect();
    let (weak, lost) = (&blocks[..2], &blocks[2..5]);
    for block in weak {
        let place = world.place_of(*block);
        world.device().inject_high_ecc(place);
    }
    let places: Vec<_> = lost.iter().map(|block| world.place_of(*block)).collect();
    world.device().inject_read_failure(places[0]).unwrap();
    world.device().corrupt(places[1]).unwrap();
    world.device().inject_transient_read_failure(places[2], 1);
    let touched: BTreeSet<ChunkId> = blocks[..5].iter().map(|block| chunk_of(&mut world, *block)).collect();
    pass(&mut world, Nanos(HOUR.0 * 11 / 10));
    let statistics = world.ftl().statistics().clone();
    assert_eq!(statistics.scrub.lost, 2, "{:?}", statistics.scrub);
    assert!(statistics.scrub.weak >= 3, "{:?}", statistics.scrub);
    assert_eq!((statistics.lost_blocks, statistics.cared_for(Care::Scrub).chunks), (2, touched.len() as u64));
    for block in 0..700 {
        let is_lost = [lost[0], lost[1]].contains(&block);
        assert_eq!(world.try_read(block, 1).is_err(), is_lost, "block {block}");
    }
    pass(&mut world, HOUR);
    assert_eq!(world.ftl().statistics().scrub.lost, 2, "what was given up is not lost once more");
}

#[test]
fn the_scrub_finds_a_checkpoint_that_goes_bad_while_the_map_is_still_in_memory() {
    let mut world = settled(scrubbed(700, 14), 20, 14);
    let old = world.ftl().superblock().checkpoint.clone();
    let place = world.wire.geometry().format().ppa(ChunkId(old.copies[0][0].chunk), old.copies[0][0].first);
    world.device().inject_read_failure(place).unwrap();
    pass(&mut world, Nanos(HOUR.0 * 11 / 10));
    assert!(world.ftl().superblock().checkpoint.sequence > old.sequence, "a new one leaves it behind");
    world.flush();
    world.power_cut(false);
    world.recover().unwrap();
    world.check();
}

#[test]
fn the_scrub_goes_on_elsewhere_each_time_the_drive_is_opened() {
    let mut world = settled(scrubbed(700, 15), 20, 15);
    let chunks = world.wire.geometry().chunks();
    // On for a tenth of the interval at a time.
    let mut places = BTreeSet::new();
    for _ in 0..60 {
        let device_reads = |world: &mut World| world.device().statistics().blocks_read;
        let before = device_reads(&mut world);
        pass(&mut world, Nanos(HOUR.0 / 10));
        places.insert(device_reads(&mut world) - before);
        world.write(0, 8);
        world.clean_restart();
    }
    assert!(places.len() > 3, "what it reads differs: {places:?} on {chunks} chunks");
    world.verify_all();
}

/// Everything at once, under load and power cuts: nothing is lost that the medium did not lose.
#[test]
fn scrub_refresh_and_wear_levelling_bear_load_and_power_cuts() {
    let mut moved = [0; 4];
    for seed in 200..212 {
        let protected = format!("power_loss_protection = {}", seed % 2 == 0);
        let mut weak = profile("tiny", &[("power_loss_protection = true", &protected)]);
        weak.faults.high_ecc = 0.003;
        weak.faults.read_retry = 0.005;
        weak.faults.program_fail = 0.002;
        // A pass takes about as long as some tens of requests.
        let scrub_interval = Some(Nanos::from_millis(100));
        let config = Config { scrub_interval, wear_spread_max: Some(1), ..config(600, seed) };
        let mut world = World::new(weak, config, 60, seed);
        for number in 0..1_000 {
            world.operation(6);
            if number % 100 == 99 {
                for (sum, moved) in moved.iter_mut().zip(world.ftl().statistics().cared) {
                    *sum += moved.chunks;
                }
                world.power_cut(number % 200 == 99);
                if let Err(contradiction) = world.recover() {
                    panic!("seed {seed}, after operation {number}: {contradiction}");
                }
                world.check();
            }
        }
        world.settle();
        world.verify_all();
        let statistics = world.ftl().statistics();
        assert!(statistics.scrub.blocks > 100, "{:?}", statistics.scrub);
        assert_eq!(statistics.lost_blocks, 0);
        world.clean_restart();
        world.check();
        let failing: Vec<ChunkId> = chunks(&mut world, ChunkUse::Open);
        for chunk in failing {
            world.device().inject_program_failure(chunk, ProgramFailure::NextUnit);
        }
        world.write_all(16);
        world.flush();
        world.verify_all();
        let offline = world.chunk_report().iter().filter(|chunk| chunk.state == ChunkState::Offline).count();
        assert_eq!(offline, 0);
    }
    assert!(moved.iter().all(|chunks| *chunks > 0), "chunks have moved for every reason: {moved:?}");
}
