//! Recoveries that power cuts cut off, one after the other.

use openftl_parts::{Access, Config};
use openftl_sim::devices::plain_and_paired;
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
