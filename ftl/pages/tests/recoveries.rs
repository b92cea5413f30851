//! Recoveries that power cuts cut off, one after the other.

use openftl_parts::{Access, Config};
use openftl_sim::devices::plain_and_paired;
use openftl_sim::fate::Fates;
use openftl_sim::page_world::PageWorld;
use openftl_sim::played::Played;
use openftl_sim::step::Moment;

/// Recoveries that are cut off, each in what the one before has left.
const CUTS: u32 = 60;

/// Chunks of each parallel unit.
const CHUNKS: u32 = 32;

/// A store with some short pages, the last of which the log has with their bytes.
fn world(profile: openftl_media::Profile) -> PageWorld {
    let mut world = PageWorld::new(profile, Config { checkpoint_log_blocks: Some(8), ..Config::default() }, CHUNKS, 1);
    for round in 0..6 {
        world.stage(round % 3, 5 * round as u64, 3, 0, false);
        world.commit(round % 3, true);
        world.settle();
    }
    world
}

/// Opens a store after a power cut. Gives whether the power has gone again after so many events.
fn is_cut_off(world: &mut PageWorld, events: u64) -> bool {
    let wire = world.wire.clone();
    let is_cut_off = wire.cut_after(events, || world.open(Access::ReadWrite).unwrap_or_else(|error| panic!("{error}")));
    if is_cut_off {
        world.power_cut_at(Moment::NOW);
    }
    is_cut_off
}

/// A recovery takes chunks for the end of the log and for what that has with its bytes. One that is cut off leaves them to the next, which knows that
/// they hold nothing: an almost empty store ran out of chunks in the end, and took no more writes.
#[test]
fn recoveries_that_are_cut_off_do_not_use_up_the_chunks_of_a_store() {
    for profile in plain_and_paired() {
        let (mut events, mut cuts, mut most) = (1, 0, 0);
        loop {
            let mut world = world(profile.clone());
            world.power_cut_at(Moment::NOW);
            let count = (0..CUTS).take_while(|_| is_cut_off(&mut world, events)).count();
            world.recover().unwrap_or_else(|error| panic!("{}, {events} events: {error}", profile.name));
            assert!(
                !world.is_worn_out(),
                "{}, {count} times after {events} events: {}",
                profile.name,
                world.ftl().describe()
            );
            world.stage(0, 0, 3, 0, false);
            world.commit(0, true);
            world.settle();
            world.verify_all();
            if count == 0 {
                break;
            }
            (cuts, most, events) = (cuts + count, most.max(count), events + 1);
        }
        println!("{}: {cuts} recoveries cut off, {most} in a row, in the end after {events} events", profile.name);
        assert_eq!(most, CUTS as usize);
    }
}

/// Chunks of each parallel unit of a store whose log has two lanes.
const CHUNKS_OF_LANES: u32 = 64;

/// What a power cut leaves of the last groups of the log may be readable once. What a recovery has found of it, and shown, is there after the next cut,
/// too; and one that ended sees to that before anybody can ask.
#[test]
fn what_a_recovery_has_found_is_there_after_the_next_power_cut() {
    let (mut fading, mut cuts) = (0, 0);
    for profile in plain_and_paired() {
        for fate in 0..24 {
            for events in (1 + u64::from(fate) % 4..).step_by(4) {
                let mut world = PageWorld::new(profile.clone(), Config::default(), CHUNKS_OF_LANES, u64::from(fate));
                let wire = world.wire.clone();
                let is_cut = wire.cut_after(events, || {
                    for round in 0..8 {
                        // One after the other, and several that are under way at a time.
                        for session in 0..3 {
                            world.stage(session, 11 * round + 3 * session as u64, 4, round % 4, false);
                            world.commit(session, true);
                        }
                        if round % 2 == 0 {
                            world.settle();
                        }
                    }
                    world.settle();
                });
                if !is_cut {
                    break;
                }
                cuts += 1;
                let states = world.power_cut_at(Moment { fates: Some(Fates(fate)), ..Moment::NOW });
                fading += states.programs_fading;
                for what in ["once", "twice", "three times"] {
                    let recovered = world.recover();
                    recovered.unwrap_or_else(|error| panic!("{}, {events}, {fate}, {what}: {error}", profile.name));
                    world.verify_all();
                    world.power_cut_at(Moment::NOW);
                }
            }
        }
    }
    println!("{cuts} power cuts, {fading} of which left something readable once");
    assert!(fading > 100, "{fading} of {cuts}");
}
