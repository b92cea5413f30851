//! Trims of any length cost what is mapped, in steps, and others are served between the steps. What is counted is the
//! entries of the map that trims look at, never time.

use openftl_blocks::trims::TRIM_STEPS_PER_TURN;
use openftl_core::{Clock, Nanos};
use openftl_media::Profile;
use openftl_parts::config::TRIM_STEP_ENTRIES;
use openftl_parts::{BlockTarget, Config, Done, Durability, Handle, Request, Target};
use openftl_sim::played::Played;
use openftl_sim::stage::Stage;
use openftl_sim::world::{World, config};

/// A drive of `capacity` blocks whose trims look at `step` entries in a step.
fn drive(capacity: u64, step: u32, seed: u64) -> World {
    let config = Config { trim_step_entries: step, ..config(capacity, seed) };
    World::new(Profile::builtin("tiny").unwrap(), config, 20, seed)
}

/// Trims of all blocks, submitted at once, until they have ended: turns, and the most entries that one of them looked at.
fn trim_all(world: &mut World, trims: u64, capacity: u64) -> (u64, u64) {
    let now = world.clock.now();
    let mut done: Vec<Done> = Vec::new();
    for tag in 0..trims {
        let request = Request::Trim { first: 0, blocks: capacity, durability: Durability::Volatile };
        world.ftl().submit(now, tag, request).unwrap();
    }
    let (mut turns, mut most) = (0, 0);
    while done.len() < trims as usize {
        let before = world.ftl().statistics().trim_entries;
        let now = world.clock.now();
        world.ftl().poll(now, &mut done);
        most = most.max(world.ftl().statistics().trim_entries - before);
        turns += 1;
        assert!(turns < 1_000_000, "{}", world.ftl().describe());
        if let Some(due) = world.ftl().next_due() {
            world.clock.wait_until(due);
        }
    }
    assert!(done.iter().all(|done| done.result.is_ok()));
    (turns, most)
}

/// 4 Dataset Management commands of 256 ranges are as many trims.
const HOSTILE_TRIMS: u64 = 4 * 256;

#[test]
fn trims_of_an_empty_drive_cost_a_look_at_its_counts() {
    let mut world = drive(3_000, TRIM_STEP_ENTRIES, 1);
    let programmed = world.ftl().statistics().programmed;
    trim_all(&mut world, HOSTILE_TRIMS, 3_000);
    let looked = world.ftl().statistics().trim_entries;
    assert!(looked <= HOSTILE_TRIMS, "{looked} entries for {HOSTILE_TRIMS} trims of nothing");
    assert_eq!(world.ftl().statistics().programmed, programmed, "nothing has changed, and nothing is logged");
}

#[test]
fn trims_of_a_full_drive_cost_its_blocks_once() {
    let mut world = drive(3_000, TRIM_STEP_ENTRIES, 1);
    world.write_all(16);
    world.flush();
    trim_all(&mut world, HOSTILE_TRIMS, 3_000);
    let looked = world.ftl().statistics().trim_entries;
    assert!((3_000..3_000 + 4 * HOSTILE_TRIMS).contains(&looked), "{looked} entries");
    assert_eq!(world.ftl().chunk_uses().map(|(_, _, valid)| valid).sum::<u32>(), 0, "no block is valid");
}

#[test]
fn a_turn_looks_at_a_bounded_number_of_entries() {
    for step in [1, 16, 100] {
        let mut world = drive(3_000, step, 2);
        world.write_all(16);
        world.flush();
        let (turns, most) = trim_all(&mut world, 5, 3_000);
        let bound = u64::from(step * (TRIM_STEPS_PER_TURN + 1));
        assert!(most < bound && turns >= 3_000 / bound, "steps of {step}: {most} entries in one of {turns} turns");
    }
}

/// A read from the medium and a write that come during a trim, which takes a turn a microsecond.
#[test]
fn others_are_served_between_the_steps_of_a_trim() {
    let mut world = drive(3_000, 4, 3);
    world.write_all(16);
    world.flush();
    let (read, written) = (world.frames(4), world.frames(4));
    let mut now = world.clock.now();
    let durability = Durability::Volatile;
    let ftl = world.ftl();
    ftl.submit(now, 1, Request::Trim { first: 0, blocks: 2_900, durability }).unwrap();
    ftl.submit(now, 2, Request::Read { first: 2_990, frames: &read }).unwrap();
    ftl.submit(now, 3, Request::Write { first: 2_950, frames: &written, durability, handle: Handle::NONE }).unwrap();
    let mut done: Vec<Done> = Vec::new();
    while done.len() < 3 {
        ftl.poll(now, &mut done);
        now += Nanos::from_micros(1);
    }
    assert_eq!(done[2].tag, 1, "the trim ends last: {done:?}");
}

/// What is written while a trim of the same blocks goes on is newer, and stays.
#[test]
fn a_trim_does_not_take_away_what_was_written_after_it() {
    let mut world = drive(3_000, 4, 4);
    world.write_all(16);
    let trim = world.submit_trim(0, 3_000, Durability::Volatile);
    for first in [0, 1_000, 2_992] {
        world.submit_write(first, 8, Durability::Volatile);
    }
    let second = world.submit_trim(1_000, 4, Durability::Volatile);
    let durable = world.submit_write(2_000, 8, Durability::Durable);
    world.wait(durable);
    world.wait(second);
    world.wait(trim);
    for first in [0, 2_000, 2_992] {
        assert!(world.try_read(first, 8).unwrap().iter().all(|found| *found != 0), "{first}");
    }
    assert_eq!(world.try_read(1_000, 4).unwrap(), [0; 4]);
    assert!(world.try_read(1_004, 4).unwrap().iter().all(|found| *found != 0));
    world.check();
    world.power_cut(true);
    world.recover().unwrap();
}

/// Cut anywhere within a trim of many steps: zeroes from its first block on, then what was there.
#[test]
fn a_crash_leaves_the_first_blocks_of_a_trim_as_zeroes() {
    let (mut cuts, mut partial) = (0, 0);
    for events in 1.. {
        // A log unit holds some records of steps, and a flush in between makes more than one of them durable.
        let mut world = drive(3_000, 2, 6);
        world.write_all(16);
        world.flush();
        let wire = world.wire.clone();
        let cut = wire.cut_after(events, || {
            let trim = world.submit_trim(100, 2_800, Durability::Durable);
            world.wait(trim);
        });
        if !cut {
            break;
        }
        world.power_cut(events % 2 == 0);
        world.recover().unwrap_or_else(|contradiction| panic!("after event {events}: {contradiction}"));
        let zeroes: Vec<bool> = world.read_all().iter().map(|found| *found == Some(0)).collect();
        let trimmed = zeroes.iter().filter(|zero| **zero).count();
        assert!(zeroes[100..100 + trimmed].iter().all(|zero| *zero), "after event {events}: {trimmed} in all");
        partial += u32::from(trimmed > 0 && trimmed < 2_800);
        let found = world.read_all();
        world.work_on(&found);
        cuts += 1;
    }
    assert!(cuts > 3 && partial > 0, "{cuts} cuts, {partial} within the trim");
}

#[test]
fn a_trim_as_long_as_a_write_is_there_whole_or_not_at_all() {
    for events in 1.. {
        let mut world = drive(700, TRIM_STEP_ENTRIES, 5);
        world.write_all(16);
        world.flush();
        let wire = world.wire.clone();
        let cut = wire.cut_after(events, || {
            // They share a turn, and a budget.
            let trims = [0, 256, 400].map(|first| world.submit_trim(first, 256, Durability::Durable));
            trims.into_iter().for_each(|trim| world.wait(trim));
        });
        if !cut {
            break;
        }
        world.power_cut(events % 2 == 0);
        world.recover().unwrap_or_else(|contradiction| panic!("after event {events}: {contradiction}"));
        let zeroes = world.read_all().iter().filter(|found| **found == Some(0)).count();
        assert!([0, 256, 512, 656].contains(&zeroes), "after event {events}: {zeroes}");
    }
}

#[test]
fn a_drive_is_closed_in_the_middle_of_a_trim() {
    let mut world = drive(3_000, 2, 8);
    world.write_all(16);
    let now = world.clock.now();
    world.ftl().submit(now, 1, Request::Trim { first: 0, blocks: 3_000, durability: Durability::Volatile }).unwrap();
    world.ftl().poll(now, &mut Vec::new());
    assert!(world.ftl().next_due().is_some());
    let ftl = world.ftl.take().unwrap();
    ftl.close(&mut world.clock).unwrap();
    world.open(openftl_parts::Access::ReadWrite).unwrap();
    assert_eq!(world.read_all().iter().filter(|found| **found != Some(0)).count(), 0);
}
