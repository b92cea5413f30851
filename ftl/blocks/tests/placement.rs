//! What shares chunks: classes of writes, objects, and what collection keeps apart.

use openftl_core::units::Share;
use openftl_core::{ChunkId, Clock};
use openftl_media::{Media, Profile, ProgramFailure};
use openftl_parts::accounts::statistics::PlacementStatistics;
use openftl_parts::flash::chunk_table::ChunkUse;
use openftl_parts::{
    BlockTarget, Config, Deed, Durability, Extent, Handle, HandleEvent, HandleSet, HandleWatch, IoError, ObjectError,
    PlacementName, Request,
};
use openftl_sim::played::Played;
use openftl_sim::world::{World, config};
use rustc_hash::{FxHashMap, FxHashSet};

const CAPACITY: u64 = 1_600;

fn world(placement: PlacementName) -> World {
    world_with(placement, Share::percent(60))
}

fn world_with(placement: PlacementName, over_provisioning: Share) -> World {
    let config = Config { placement, handles: 3, objects_max: 6, over_provisioning, ..config(CAPACITY, 2) };
    World::new(Profile::builtin("tiny").unwrap(), config, 20, 2)
}

/// The chunks on media that hold these blocks.
fn chunks(world: &mut World, blocks: impl IntoIterator<Item = u64>) -> FxHashSet<ChunkId> {
    let format = world.ftl().media().geometry().format();
    blocks.into_iter().filter_map(|block| world.ftl().place_on_media(block)).map(|ppa| format.chunk_of(ppa)).collect()
}

fn placement(world: &mut World) -> PlacementStatistics {
    world.ftl().statistics().placement.clone()
}

fn relocated(world: &mut World) -> u64 {
    world.ftl().statistics().groups.iter().map(|group| group.relocated).sum()
}

/// Writes the same ranges by turns, a few blocks each, as concurrent writers do.
fn interleave(world: &mut World, ranges: &[(u64, u64)], handles: bool) {
    for step in 0.. {
        let mut wrote = false;
        for (index, (first, blocks)) in ranges.iter().enumerate() {
            if step * 3 < *blocks {
                world.handle = if handles { Handle(index as u8 + 1) } else { Handle::NONE };
                world.write(first + step * 3, (blocks - step * 3).min(3));
                wrote = true;
            }
        }
        if !wrote {
            break;
        }
    }
    world.handle = Handle::NONE;
}

#[test]
fn objects_written_by_turns_share_no_chunk_and_their_trim_moves_nothing() {
    let mut world = world(PlacementName::FlashAlloc);
    world.write_all(32);
    let ranges = [(0, 64), (100, 64), (200, 64)];
    for round in 0..8 {
        for (first, blocks) in ranges {
            world.trim(first, blocks);
            world.submit_flash_alloc(&[Extent { first, blocks }]);
        }
        interleave(&mut world, &ranges, false);
        world.flush();
        let held = ranges.map(|(first, blocks)| chunks(&mut world, first..first + blocks));
        for (one, other) in [(0, 1), (0, 2), (1, 2)] {
            assert!(held[one].is_disjoint(&held[other]), "round {round}: {held:?}");
        }
        let others = chunks(
            &mut world,
            (0..CAPACITY)
                .filter(|block| ranges.iter().all(|(first, blocks)| block < first || *block >= first + blocks)),
        );
        assert!(held.iter().all(|held| held.is_disjoint(&others)), "round {round}: objects and others share chunks");
    }
    assert_eq!((relocated(&mut world), placement(&mut world).objects_written), (0, 24));
    world.verify_all();
}

#[test]
fn an_object_may_lie_in_several_extents_and_be_written_in_any_order() {
    let mut world = world(PlacementName::FlashAlloc);
    world.write_all(32);
    world.submit_flash_alloc(&[Extent { first: 300, blocks: 16 }, Extent { first: 10, blocks: 16 }]);
    for block in (0..16).rev() {
        world.write(300 + block, 1);
        world.write(700 + block, 1);
        world.write(10 + block, 1);
    }
    world.flush();
    let object = chunks(&mut world, (300..316).chain(10..26));
    let others = chunks(&mut world, 700..716);
    assert!(object.is_disjoint(&others), "{object:?} {others:?}");
    assert_eq!(placement(&mut world).objects_written, 1);
}

#[test]
fn tiny_objects_share_chunks_with_each_other_and_with_nobody_else() {
    let mut world = world(PlacementName::FlashAlloc);
    world.write_all(32);
    for number in 0..40 {
        let first = number * 3;
        world.submit_flash_alloc(&[Extent { first, blocks: 3 }]);
        world.write(first, 2);
        world.write(800 + number, 1);
        world.write(first + 2, 1);
    }
    world.flush();
    let objects = chunks(&mut world, 0..120);
    let others = chunks(&mut world, 800..840);
    assert!(objects.is_disjoint(&others));
    assert!(objects.len() <= 120 / 16 + 4, "{} chunks for 120 blocks", objects.len());
}

#[test]
fn what_cannot_be_an_object_is_refused_and_the_drive_goes_on() {
    let mut world = world(PlacementName::FlashAlloc);
    let refused = |world: &mut World, extents: &[Extent]| world.attempt(Request::FlashAlloc { extents }).unwrap_err();
    let extent = |first, blocks| Extent { first, blocks };
    assert_eq!(refused(&mut world, &[]), IoError::Object(ObjectError::Extents { extents: 0 }));
    let beyond = IoError::OutOfRange { first: CAPACITY - 1, blocks: 2, capacity: CAPACITY };
    assert_eq!(refused(&mut world, &[extent(CAPACITY - 1, 2)]), beyond);
    let overlap = IoError::Object(ObjectError::Overlap { block: 5 });
    assert_eq!(refused(&mut world, &[extent(0, 8), extent(5, 1)]), overlap);
    for number in 0..6 {
        assert_eq!(world.attempt(Request::FlashAlloc { extents: &[extent(number * 10, 10)] }), Ok(()));
    }
    let too_many = IoError::Object(ObjectError::TooMany { most: 6 });
    assert_eq!(refused(&mut world, &[extent(900, 10)]), too_many);
    assert_eq!(world.attempt(Request::FlashAlloc { extents: &[extent(15, 30)] }), Ok(()), "it takes the place of four");
    assert_eq!(placement(&mut world).objects_replaced, 4);
    world.write_all(16);
    world.verify_all();
}

#[test]
fn a_drive_without_objects_says_so() {
    for placement in PlacementName::ALL.iter().copied().filter(|name| *name != PlacementName::FlashAlloc) {
        let mut world = world(placement);
        let announced = world.attempt(Request::FlashAlloc { extents: &[Extent { first: 0, blocks: 8 }] });
        assert_eq!(announced, Err(IoError::Object(ObjectError::NotKept)), "{placement}");
    }
}

#[test]
fn an_object_that_is_never_written_to_its_end_holds_nobody_up() {
    let mut world = world(PlacementName::FlashAlloc);
    world.write_all(32);
    for number in 0..6 {
        world.submit_flash_alloc(&[Extent { first: number * 64, blocks: 64 }]);
        world.write(number * 64, 5);
    }
    for _ in 0..4 {
        for first in (400..CAPACITY - 32).step_by(32) {
            world.write(first, 32);
        }
    }
    world.flush();
    world.verify_all();
    world.clean_restart();
    assert_eq!(placement(&mut world).objects, 0, "objects are forgotten when the drive is closed");
    world.verify_all();
}

/// What a drive has no class for goes on in the chunks that it finds open, whoever has them from then on: left alone they
/// would hold room for good, and be open beside those that are opened anew.
#[test]
fn after_a_power_cut_every_open_chunk_is_filled() {
    for name in [PlacementName::None, PlacementName::HotCold, PlacementName::Fdp, PlacementName::FdpPersistent] {
        let mut world = world(name);
        world.write_all(16);
        for number in 0..45 {
            world.write(number * 7, 3);
        }
        world.flush();
        world.power_cut(false);
        world.recover().unwrap();
        let open: Vec<ChunkId> = world
            .ftl()
            .chunk_uses()
            .filter(|(_, usage, _)| *usage == ChunkUse::Open)
            .map(|(chunk, ..)| chunk)
            .collect();
        assert!(!open.is_empty(), "{name}");
        for first in (0..CAPACITY).step_by(32) {
            world.write(first, 32.min(CAPACITY - first));
        }
        world.flush();
        let still: Vec<_> = world
            .ftl()
            .chunk_uses()
            .filter(|(chunk, usage, valid)| open.contains(chunk) && *usage == ChunkUse::Open && *valid == 0)
            .collect();
        // Collection keeps one in each of the two groups for itself.
        assert!(still.len() <= 2, "{name}: {still:?} are open, and nothing of what was written since is in them");
        world.verify_all();
    }
}

#[test]
fn handles_share_no_chunk() {
    for name in PlacementName::ALL.iter().copied().filter(|name| name.heeds_handles()) {
        let mut world = world(name);
        let ranges = [(0, 200), (300, 200), (600, 200)];
        interleave(&mut world, &ranges, true);
        world.flush();
        let held = ranges.map(|(first, blocks)| chunks(&mut world, first..first + blocks));
        assert!(
            held[0].is_disjoint(&held[1]) && held[1].is_disjoint(&held[2]) && held[0].is_disjoint(&held[2]),
            "{name}"
        );
        assert_eq!(placement(&mut world).blocks, [0, 200, 200, 200], "{name}");
    }
}

#[test]
fn a_renewed_handle_goes_on_in_other_chunks() {
    let mut world = world(PlacementName::Fdp);
    assert_eq!((world.ftl().placement().handles, world.ftl().handle_room(Handle(1))), (3, 0));
    world.handle = Handle(1);
    world.write(0, 10);
    world.flush();
    let room = world.ftl().handle_room(Handle(1));
    assert!(room > 0 && room < world.ftl().placement().unit_blocks, "{room}");
    let now = world.clock.now();
    assert!(world.ftl().renew_handle(now, Handle(1)));
    assert!(!world.ftl().renew_handle(now, Handle::NONE) && !world.ftl().renew_handle(now, Handle(4)));
    assert_eq!(world.ftl().handle_room(Handle(1)), 0);
    world.write(10, 10);
    world.flush();
    let held = [0, 10].map(|first| chunks(&mut world, first..first + 10));
    assert!(held[0].is_disjoint(&held[1]), "{held:?}");
    world.power_cut(false);
    world.recover().unwrap();
    world.verify_all();
}

/// Has the drive keep note of all that it does to these handles.
fn watch(world: &mut World, handles: &[u8]) {
    let mut set = HandleSet::default();
    handles.iter().for_each(|handle| set.set(Handle(*handle), true));
    world.ftl().watch_handles(HandleWatch { moved: set, left: set });
}

fn events(world: &mut World) -> Vec<HandleEvent> {
    let mut events = Vec::new();
    world.ftl().handle_events(&mut events);
    events
}

/// The handles that were left, in order.
fn left(world: &mut World) -> Vec<u8> {
    events(world).iter().filter(|event| event.deed == Deed::Left).map(|event| event.handle.0).collect()
}

#[test]
fn what_is_moved_out_of_the_chunks_of_a_handle_is_told_with_the_number_of_blocks() {
    for name in [PlacementName::Fdp, PlacementName::FdpPersistent] {
        let mut world = world_with(name, Share::percent(60));
        watch(&mut world, &[2]);
        // All of it under one handle, so that collection finds chunks of no other.
        world.handle = Handle(2);
        for first in (0..CAPACITY).step_by(16) {
            world.write(first, 16);
        }
        world.flush();
        while relocated(&mut world) < 60 {
            let first = world.below(CAPACITY);
            world.write(first, 1);
        }
        let told = events(&mut world);
        assert!(told.iter().all(|event| event.handle == Handle(2)), "{name}: {told:?}");
        let moved = told.iter().map(|event| match event.deed {
            Deed::Moved { blocks, first } => {
                assert!(blocks >= 1 && first + blocks <= CAPACITY, "{name}: {event:?}");
                blocks
            }
            Deed::Left => panic!("{name}: {event:?}"),
        });
        // Of victims that are not empty yet it is told later.
        let blocks_per_chunk = u64::from(world.ftl().media().geometry().blocks_per_chunk);
        let victims = world.ftl().chunk_uses().filter(|(_, usage, _)| *usage == ChunkUse::Victim).count() as u64;
        let (moved, all) = (moved.sum::<u64>(), relocated(&mut world));
        assert!(moved > 0 && moved <= all && all <= moved + victims * blocks_per_chunk, "{name}: {moved} of {all}");
        assert!(told.windows(2).all(|pair| pair[0].at <= pair[1].at), "{name}: {told:?}");
        world.verify_all();
    }
}

#[test]
fn a_handle_whose_chunk_is_closed_by_a_failed_program_goes_on_elsewhere_and_that_is_told_once() {
    for (failure, expected) in [(ProgramFailure::ChunkClosed, vec![2]), (ProgramFailure::NextUnit, vec![])] {
        let mut world = world(PlacementName::Fdp);
        watch(&mut world, &[1, 2, 3]);
        for handle in 1..=3 {
            world.handle = Handle(handle);
            world.write(u64::from(handle) * 100, 4);
        }
        world.flush();
        let room = world.ftl().handle_room(Handle(2));
        assert!(room > 0, "its chunk is not full");
        world.device().inject_next_program_failure(failure);
        for handle in [2, 1, 3, 2] {
            world.handle = Handle(handle);
            world.write(u64::from(handle) * 100 + 4, 32);
        }
        world.flush();
        assert!(world.ftl().statistics().program_failures > 0, "{failure:?}");
        assert_eq!(left(&mut world), expected, "{failure:?}");
        world.verify_all();
    }
}

#[test]
fn a_chunk_that_a_handle_left_because_the_host_wanted_it_or_because_it_was_full_is_no_event() {
    let mut world = world(PlacementName::Fdp);
    watch(&mut world, &[1]);
    world.handle = Handle(1);
    for first in (0..300).step_by(4) {
        world.write(first, 4);
    }
    world.flush();
    let now = world.clock.now();
    assert!(world.ftl().renew_handle(now, Handle(1)));
    world.write(300, 4);
    world.flush();
    assert_eq!(events(&mut world), []);
}

#[test]
fn a_handle_for_which_there_is_no_chunk_goes_on_with_the_others_and_that_is_told() {
    // Half of the over-provisioning is but a chunk or two.
    let mut world = world_with(PlacementName::Fdp, Share::percent(4));
    watch(&mut world, &[1, 2, 3]);
    interleave(&mut world, &[(0, 64), (100, 64), (200, 64)], true);
    world.flush();
    let unplaced = placement(&mut world).unplaced;
    let told = left(&mut world);
    assert!(unplaced > 0 && !told.is_empty(), "{unplaced} blocks have no place, told {told:?}");
    let held = [(0, 1), (100, 2), (200, 3)].map(|(first, handle)| (chunks(&mut world, first..first + 64), handle));
    for (one, (chunks, handle)) in held.iter().enumerate() {
        let shares = held.iter().enumerate().any(|(other, (others, _))| one != other && !chunks.is_disjoint(others));
        // The default handle stays where it is, and the others come there.
        assert!(!shares || *handle == 1 || told.contains(handle), "handle {handle} shares a chunk, told {told:?}");
    }
    assert!(!told.contains(&1), "{told:?}");
}

#[test]
fn what_has_no_handle_has_the_default_one_where_there_is_one() {
    for name in PlacementName::ALL.iter().copied().filter(|name| name.heeds_handles()) {
        let mut world = world(name);
        for (first, handle) in [(0, 0), (100, 1), (200, 9), (300, 2)] {
            world.handle = Handle(handle);
            world.write(first, 50);
        }
        world.flush();
        let has_default = name.default_handle() == Handle(1);
        let blocks = if has_default { vec![0, 150, 50] } else { vec![100, 50, 50] };
        assert_eq!(placement(&mut world).blocks, blocks, "{name}");
        let held = [0, 100, 200, 300].map(|first| chunks(&mut world, first..first + 50));
        assert_eq!(held[0].is_disjoint(&held[1]), !has_default, "{name}: {held:?}");
        assert!(held[..3].iter().all(|other| other.is_disjoint(&held[3])), "{name}: {held:?}");
    }
}

#[test]
fn a_host_that_knows_no_handles_writes_as_many_chunks_side_by_side_as_on_a_plain_drive() {
    // So little over-provisioning that each handle has but one chunk at a time.
    let side_by_side = [PlacementName::HotCold, PlacementName::Fdp, PlacementName::FdpPersistent].map(|name| {
        let mut world = world_with(name, Share::percent(12));
        world.write(0, 64);
        world.write(64, 64);
        world.flush();
        let unit = world.ftl().placement().unit_blocks / u64::from(world.ftl().media().geometry().blocks_per_chunk);
        assert!(name == PlacementName::HotCold || unit == 1, "{name}: {unit} chunks in a unit");
        chunks(&mut world, 0..64).len()
    });
    assert_eq!(side_by_side, [4; 3]);
}

/// Chunks that hold blocks of more than one of the thirds of the drive, after a long time of overwriting each at random
/// under a handle of its own.
fn mixed_chunks(name: PlacementName) -> usize {
    let mut world = world_with(name, Share::percent(25));
    let third = CAPACITY / 3;
    for step in 0..12_000 {
        let of = world.below(3);
        // The first third is hot, so that collection finds the others only partly empty.
        let first = if step % 4 > 0 { world.below(third) } else { of * third + world.below(third) };
        world.handle = Handle((first / third) as u8 + 1);
        world.write(first, 1);
    }
    world.flush();
    assert!(relocated(&mut world) > 500, "{name} collects");
    let format = world.ftl().media().geometry().format();
    let mut owners: FxHashMap<ChunkId, FxHashSet<u64>> = FxHashMap::default();
    for block in 0..3 * third {
        if let Some(ppa) = world.ftl().place_on_media(block) {
            owners.entry(format.chunk_of(ppa)).or_default().insert(block / third);
        }
    }
    world.verify_all();
    owners.values().filter(|owners| owners.len() > 1).count()
}

#[test]
fn collection_mixes_streams_and_keeps_apart_those_that_are_to_be_kept() {
    let mixed = [PlacementName::HotCold, PlacementName::Streams, PlacementName::StreamsKept].map(mixed_chunks);
    assert!(mixed[0] > mixed[1] && mixed[1] > 2 * mixed[2], "chunks with several streams: {mixed:?}");
}

/// Chunks that hold both what the host has just written and what collection has moved.
#[test]
fn without_placement_moved_blocks_go_where_the_host_writes() {
    let shared = [PlacementName::None, PlacementName::HotCold].map(|name| {
        let mut world = world_with(name, Share::percent(25));
        world.write_all(32);
        let mut last_written = vec![0_u64; CAPACITY as usize];
        for step in 1..6_000 {
            let first = world.below(CAPACITY);
            world.write(first, 1);
            last_written[first as usize] = step;
        }
        world.flush();
        assert!(relocated(&mut world) > 500, "{name} collects");
        let format = world.ftl().media().geometry().format();
        let mut ages: FxHashMap<ChunkId, Vec<u64>> = FxHashMap::default();
        for block in 0..CAPACITY {
            if let Some(ppa) = world.ftl().place_on_media(block) {
                ages.entry(format.chunk_of(ppa)).or_default().push(last_written[block as usize]);
            }
        }
        let is_recent = |step: &&u64| **step > 5_700;
        let is_old = |step: &&u64| **step < 5_300;
        ages.values()
            .filter(|ages| ages.iter().any(|age| is_recent(&age)) && ages.iter().any(|age| is_old(&age)))
            .count()
    });
    assert!(shared[0] > shared[1] + 3, "chunks with new and old blocks: {shared:?}");
}

/// A durable write of a class that has but one block does not wait for the others, nor they for it.
#[test]
fn a_block_that_waits_for_its_class_is_pushed_out_when_somebody_waits_for_it() {
    for name in [PlacementName::Streams, PlacementName::FlashAlloc] {
        let mut world = world(name);
        world.submit_flash_alloc(&[Extent { first: 0, blocks: 64 }]);
        world.handle = Handle(1);
        world.write(0, 1);
        world.handle = Handle(2);
        for first in (100..1_500).step_by(4) {
            world.write(first, 4);
        }
        let tag = world.submit_write(1_500, 1, Durability::Durable);
        world.wait(tag);
        world.power_cut(true);
        world.recover().unwrap();
        assert!(!chunks(&mut world, [0]).is_empty(), "{name}: it was written before what is durable");
        world.verify_all();
    }
}
