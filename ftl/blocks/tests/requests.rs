//! What a host may ask of the block FTL, and what it gets: also where it asks for something impossible.

use openftl_core::{Clock, Frame, FrameForm, Nanos};
use openftl_media::{COMMANDS_MAX, Profile};
use openftl_parts::flash::chunk_table::ChunkUse;
use openftl_parts::words::TRANSACTION_BLOCKS_MAX;
use openftl_parts::{BlockTarget, Config, Durability, Handle, IoError, Request, Target};
use openftl_sim::played::Played;
use openftl_sim::stage::Stage;
use openftl_sim::world::{World, config};

const CAPACITY: u64 = 700;

fn tiny(seed: u64) -> World {
    World::tiny(CAPACITY, seed)
}

#[test]
fn requests_beyond_the_drive_empty_or_too_long_are_refused_and_change_nothing() {
    let mut world = tiny(1);
    world.write_all(16);
    let frames = world.frames(TRANSACTION_BLOCKS_MAX as u64 + 1);
    let durability = Durability::Volatile;
    let refuse = |world: &mut World, request: Request<'_>, first: u64, blocks: u64| {
        let available = world.ftl().frames_mut().available(FrameForm::Stamp);
        let error = world.attempt(request).unwrap_err();
        assert_eq!(error, IoError::OutOfRange { first, blocks, capacity: CAPACITY });
        assert!(error.to_string().contains("700"), "{error}");
        assert_eq!(world.ftl().frames_mut().available(FrameForm::Stamp), available, "the frames stay the host's");
    };
    for (first, blocks) in
        [(0, 0), (CAPACITY, 1), (CAPACITY - 1, 2), (u64::MAX, 1), (u64::MAX, 2), (1 << 32, 1), (0, 257)]
    {
        let frames: &[Frame] = &frames[..blocks as usize];
        refuse(&mut world, Request::Read { first, frames }, first, blocks);
        refuse(&mut world, Request::Write { first, frames, durability, handle: Handle::NONE }, first, blocks);
        refuse(&mut world, Request::WriteUncorrectable { first, frames, durability }, first, blocks);
    }
    for (first, blocks) in [(0, 0), (0, CAPACITY + 1), (1, CAPACITY), (CAPACITY, 1), (u64::MAX, u64::MAX), (0, 1 << 32)]
    {
        refuse(&mut world, Request::Trim { first, blocks, durability }, first, blocks);
    }
    for frame in frames {
        world.ftl().frames_mut().release(frame);
    }
    world.verify_all();
    world.check();
}

#[test]
fn blocks_never_written_or_trimmed_read_as_zeroes() {
    let mut world = tiny(2);
    assert_eq!(world.try_read(0, 256).unwrap(), [0; 256]);
    world.write(100, 20);
    world.trim(105, 5);
    assert_eq!(world.try_read(105, 5).unwrap(), [0; 5]);
    world.verify(90, 40);
    world.flush();
    world.power_cut(false);
    world.recover().unwrap();
    assert_eq!(world.try_read(0, 100).unwrap(), [0; 100]);
}

#[test]
fn a_drive_that_lies_about_flush_loses_what_it_promised_and_the_model_notices() {
    let config = Config { write_through: true, lies_about_flush: true, ..config(CAPACITY, 5) };
    let mut world = World::new(Profile::builtin("tiny").unwrap(), config, 0, 5);
    let programs = world.device().statistics().programs;
    world.write(0, 2);
    let durable = world.submit_write(2, 1, Durability::Durable);
    world.wait(durable);
    world.flush();
    assert_eq!(world.device().statistics().programs, programs, "nothing was written to flash for a flush");
    world.power_cut(false);
    let error = world.recover().unwrap_err();
    assert!(error.contains("block 0"), "{error}");
}

#[test]
fn a_drive_that_lies_about_flush_still_keeps_everything_across_a_clean_stop() {
    let config = Config { lies_about_flush: true, ..config(CAPACITY, 6) };
    let mut world = World::new(Profile::builtin("tiny").unwrap(), config, 0, 6);
    world.write(0, 3);
    world.flush();
    world.clean_restart();
    world.verify_all();
}

#[test]
fn what_was_just_written_is_read_from_the_buffer() {
    let mut world = tiny(3);
    world.write(10, 3);
    world.write(11, 1);
    let reads = world.device().statistics().blocks_read;
    world.verify(9, 5);
    assert_eq!(world.ftl().statistics().buffer_hits, 3);
    assert_eq!(world.device().statistics().blocks_read, reads, "no block came from the medium");
}

#[test]
fn a_write_through_drive_survives_a_cut_after_any_acknowledged_write() {
    let config = Config { write_through: true, ..config(CAPACITY, 4) };
    let mut world = World::new(Profile::builtin("tiny").unwrap(), config, 0, 4);
    for round in 0..20 {
        let (first, blocks) = world.range(30);
        world.write(first, blocks);
        world.trim(first, 1);
        world.power_cut(round % 2 == 0);
        // The model knows that everything was durable.
        world.recover().unwrap();
    }
}

#[test]
fn the_largest_transaction_is_there_whole_or_not_at_all() {
    let mut cuts = 0;
    for events in (1..).step_by(3) {
        let mut world = tiny(5);
        world.write_all(16);
        world.flush();
        let wire = world.wire.clone();
        let cut = wire.cut_after(events, || {
            let blocks = TRANSACTION_BLOCKS_MAX as u64;
            let one = world.submit_write(200, blocks, Durability::Durable);
            let other = world.submit_write(300, blocks, Durability::Durable);
            world.wait(one);
            world.wait(other);
        });
        if !cut {
            break;
        }
        world.power_cut(events % 2 == 0);
        world.recover().unwrap_or_else(|contradiction| panic!("after event {events}: {contradiction}"));
        cuts += 1;
    }
    assert!(cuts > 30, "{cuts}");
}

#[test]
fn a_trim_of_the_whole_drive_frees_it() {
    let mut world = tiny(6);
    world.write_all(16);
    world.trim(0, CAPACITY);
    world.flush();
    assert_eq!(world.ftl().chunk_uses().map(|(_, _, valid)| valid).sum::<u32>(), 0);
    world.power_cut(true);
    world.recover().unwrap();
    assert!(world.read_all().iter().all(|found| *found == Some(0)));
    let free = world.ftl().chunk_uses().filter(|(_, usage, _)| *usage == ChunkUse::Free).count();
    world.write_all(64);
    world.clean_restart();
    world.verify_all();
    assert!(free > 0);
    world.check();
}

#[test]
fn overlapping_requests_under_way_end_in_the_order_of_their_submission() {
    let mut world = tiny(7);
    for round in 0..200 {
        // All of them touch the same few blocks, and none is waited for.
        for _ in 0..12 {
            let (first, blocks) = (300 + world.below(6), 1 + world.below(6));
            match world.below(5) {
                0 => world.submit_trim(first, blocks, Durability::Volatile),
                1 => world.submit_write(first, blocks, Durability::Durable),
                2 => world.submit_read(first, blocks),
                _ => world.submit_write(first, blocks, Durability::Volatile),
            };
        }
        world.settle();
        world.verify(295, 20);
        if round % 20 == 19 {
            world.power_cut(round % 40 == 19);
            world.recover().unwrap();
        }
    }
    world.check();
}

#[test]
fn a_flush_of_an_idle_drive_ends_at_once_and_programs_nothing() {
    let mut world = tiny(8);
    world.write(0, 5);
    world.flush();
    let programmed = world.ftl().statistics().nand_blocks_written();
    for _ in 0..10 {
        world.flush();
    }
    assert_eq!(world.ftl().statistics().nand_blocks_written(), programmed);
}

/// Found by a comparison of drives: a trim overtook a write of the same blocks that the throttle held back, and what had been
/// trimmed came back.
#[test]
fn a_trim_does_not_overtake_a_write_that_is_held_back() {
    let mut world = World::tiny(700, 3);
    world.write_all(16);
    let mut trims = 0;
    for round in 0..40 {
        for _ in 0..60 {
            let (first, blocks) = world.range(8);
            let held_back = world.ftl().statistics().throttled;
            world.submit_write(first, blocks, Durability::Volatile);
            if world.ftl().statistics().throttled > held_back {
                world.submit_trim(first, blocks, Durability::Volatile);
                world.settle();
                assert_eq!(world.try_read(first, blocks), Ok(vec![0; blocks as usize]), "round {round}");
                trims += 1;
            }
        }
        world.settle();
    }
    assert!(trims > 5, "writes were held back only {trims} times");
    world.verify_all();
}

#[test]
fn what_the_device_had_no_room_for_is_under_way_as_soon_as_it_has_also_when_all_else_ends_at_once() {
    let reads = COMMANDS_MAX as u64 + 100;
    let config = Config { host_frames: 2 * COMMANDS_MAX as u32, ..config(700, 31) };
    let mut world = World::new(Profile::builtin("tiny").unwrap(), config, 20, 31);
    world.write_all(16);
    world.flush();
    world.settle();
    let frames = world.frames(reads);
    let now = world.clock.now();
    let ftl = world.ftl();
    for (tag, frame) in (0..).zip(frames.chunks(1)) {
        ftl.submit(now, tag, Request::Read { first: 0, frames: frame }).unwrap();
    }
    // Nobody looks before long after all that the device had has ended.
    let late = now + Nanos::from_millis(1_000);
    let mut done = Vec::new();
    ftl.poll(late, &mut done);
    assert_eq!(done.len(), COMMANDS_MAX);
    let due = ftl.next_due().expect("the rest is under way");
    ftl.poll(due.max(late) + Nanos::from_millis(1_000), &mut done);
    assert_eq!(done.len() as u64, reads);
    assert!(done.iter().all(|done| done.result.is_ok()));
    for frame in frames {
        ftl.frames_mut().release(frame);
    }
}
