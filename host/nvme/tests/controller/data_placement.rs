//! Flexible Data Placement and FlashAlloc: what controllers say of them, byte for byte, and every refusal.

use crate::harness::*;
use openftl_core::Time;
use openftl_nvme::command::IoCommand;
use openftl_nvme::namespace::ALL_NAMESPACES;
use openftl_nvme::wire::identify::cns;
use openftl_nvme::wire::log::id;
use openftl_nvme::wire::opcode::{admin, io};
use openftl_nvme::{Health, Hints, Io, PlacementCounts, Queue, Status, SubmissionEntry};
use openftl_parts::target::{Deed, Extent, HandleEvent, HandleSet, HandleWatch};
use openftl_parts::words::Handle;

const PLACED: Hints = Hints::DataPlacement { handles: 3, is_persistent: false, unit_blocks: 1024 };
const KEPT: Hints = Hints::DataPlacement { handles: 2, is_persistent: true, unit_blocks: 512 };

/// Events of hosts, in the Log Specific Parameter.
const OF_HOSTS: u32 = 1;

fn world_of(hints: [Hints; 2]) -> (World, Queue, Queue) {
    let mut world = World::with_hints(hints);
    let admin = world.ready();
    let io = world.connect_io(&admin, 1);
    (world, admin, io)
}

/// Namespace 1 has three handles, namespace 2 none.
fn world() -> (World, Queue, Queue) {
    world_of([PLACED, Hints::None])
}

fn page_of(page: u8, group: u16, parameter: u32, bytes: u32) -> SubmissionEntry {
    let mut entry = log_page(page, 0, bytes, 0);
    entry.dwords_10_15[0] = (entry.dword(10) | parameter << 8).into();
    entry.dwords_10_15[1] = (entry.dword(11) | u32::from(group) << 16).into();
    entry
}

fn read(world: &mut World, admin: &mut Queue, page: u8, group: u16, bytes: u32) -> Vec<u8> {
    world.ok(admin, page_of(page, group, OF_HOSTS, bytes));
    world.data.clone()
}

fn write(identifier: u16) -> SubmissionEntry {
    command(io::WRITE, 1, [0, 0, 2 << 20, u32::from(identifier) << 16, 0, 0])
}

fn handle(world: &mut World, queue: &mut Queue, entry: SubmissionEntry) -> Handle {
    match world.io(queue, entry).unwrap().command {
        IoCommand::Write { handle, .. } => handle,
        other => panic!("{other:?}"),
    }
}

fn set_events(namespace: u32, handle: u16, types: u32, value: u32) -> SubmissionEntry {
    command(admin::SET_FEATURES, namespace, [0x1e, u32::from(handle) | types << 16, value, 0, 0, 0])
}

fn get_events(namespace: u32, handle: u16, types: u32) -> SubmissionEntry {
    command(admin::GET_FEATURES, namespace, [0x1e, u32::from(handle) | types << 16, 0, 0, 0, 0])
}

fn enable_events(world: &mut World, admin: &mut Queue, handle: u16, types: &[u8]) {
    let entry = set_events(1, handle, types.len() as u32, 1);
    assert!(world.run(admin, entry, types).unwrap().status().is_success());
}

#[test]
fn a_controller_says_that_it_has_data_placement_and_which_group_a_namespace_is_in() {
    let (mut world, mut admin, _io) = world_of([PLACED, KEPT]);
    world.ok(&mut admin, identify(cns::CONTROLLER, 0));
    let attributes = u32::from_le_bytes(world.data[96..100].try_into().unwrap());
    assert_eq!(attributes & (1 << 4 | 1 << 19), 1 << 4 | 1 << 19);
    assert_eq!((&world.data[256..258], &world.data[340..342]), (&[1 << 5, 0][..], &[2, 0][..]), "OACS, ENDGIDMAX");
    for id in [1, 2] {
        world.ok(&mut admin, identify(cns::NAMESPACE, id.into()));
        assert_eq!(world.data[100..104], [0, 0, id, 0]);
        world.ok(&mut admin, identify(cns::INDEPENDENT_NAMESPACE, id.into()));
        assert_eq!(world.data[10..14], [0, 0, id, 0]);
    }
    world.ok(&mut admin, identify(cns::ENDURANCE_GROUPS, 0));
    assert_eq!(world.data[..8], [2, 0, 1, 0, 2, 0, 0, 0]);
    world.ok(&mut admin, command(admin::IDENTIFY, 0, [0x19, 2, 0, 0, 0, 0]));
    assert_eq!(world.data[..6], [1, 0, 2, 0, 0, 0], "from group 2 on");
    world.ok(&mut admin, log_page(id::SUPPORTED_LOG_PAGES, 0, 1024, 0));
    let supported: Vec<usize> = (0..256).filter(|page| world.data[page * 4] != 0).collect();
    assert_eq!(supported, [0, 1, 2, 3, 4, 5, 9, 0x20, 0x21, 0x22, 0x23, 0x80, 0xc0, 0xca, 0xd0]);
    world.ok(&mut admin, log_page(id::EFFECTS, 0, 4096, 0));
    let effects = |opcode: usize| world.data[1024 + opcode * 4];
    assert_eq!([0x12, 0x1d, 0xc1, 0x82].map(effects), [1, 1, 0, 0]);
}

#[test]
fn a_controller_without_data_placement_says_nothing_of_it() {
    let (mut world, mut admin, _io) = world_of([Hints::Objects, Hints::None]);
    world.ok(&mut admin, identify(cns::CONTROLLER, 0));
    let attributes = u32::from_le_bytes(world.data[96..100].try_into().unwrap());
    assert_eq!((attributes & (1 << 4 | 1 << 19), &world.data[340..342]), (0, &[0, 0][..]));
    world.ok(&mut admin, identify(cns::NAMESPACE, 1));
    assert_eq!(world.data[100..104], [0; 4]);
    assert_eq!(world.refused(&mut admin, identify(cns::ENDURANCE_GROUPS, 0)), Status::INVALID_FIELD);
    for page in [0x09, 0x20, 0x21, 0x22, 0x23] {
        assert_eq!(world.refused(&mut admin, page_of(page, 1, 0, 64)), Status::INVALID_LOG_PAGE, "{page:#x}");
    }
    for feature in [0x1d, 0x1e] {
        assert_eq!(world.refused(&mut admin, get_feature(feature, 0)), Status::INVALID_FIELD);
        assert_eq!(world.refused(&mut admin, set_feature(feature, 1, 1)), Status::INVALID_FIELD);
    }
    world.ok(&mut admin, log_page(id::EFFECTS, 0, 4096, 0));
    let effects = |opcode: usize| world.data[1024 + opcode * 4];
    assert_eq!([0x12, 0x1d, 0xc1, 0x82].map(effects), [0, 0, 1, 1]);
}

#[test]
fn the_configurations_are_one_with_its_handles() {
    let (mut world, mut admin, _io) = world_of([PLACED, KEPT]);
    let mut golden = vec![0, 0, 0, 0, 16 + 64 + 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    // Size; valid, with a write cache; one reclaim group; three handles; three identifiers; one namespace.
    golden.extend_from_slice(&[76, 0, 0x90, 0, 1, 0, 0, 0, 3, 0, 2, 0, 1, 0, 0, 0]);
    // 4 MiB a unit, and no time limit.
    golden.extend_from_slice(&[0, 0, 0x40, 0, 0, 0, 0, 0]);
    golden.resize(80, 0);
    golden.extend_from_slice(&[1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0]);
    golden.extend_from_slice(&[0; 4]);
    assert_eq!(read(&mut world, &mut admin, 0x20, 1, 96), golden);
    let kept = read(&mut world, &mut admin, 0x20, 2, 88);
    assert_eq!((kept[4], kept[16], kept[24], kept[26]), (88, 72, 2, 1));
    assert_eq!(kept[80..], [2, 0, 0, 0, 2, 0, 0, 0], "persistently isolated");
}

#[test]
fn every_handle_is_used_by_the_namespace() {
    let (mut world, mut admin, _io) = world();
    let usage = read(&mut world, &mut admin, 0x21, 1, 32);
    let golden = [3, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(usage, golden);
}

#[test]
fn the_statistics_are_those_of_the_drive() {
    let (mut world, mut admin, _io) = world();
    world.drives.counts =
        PlacementCounts { host_bytes_written: 0x0102_0304, media_bytes_written: 1 << 40, media_bytes_erased: u64::MAX };
    let statistics = read(&mut world, &mut admin, 0x22, 1, 64);
    let number = |at: usize| u128::from_le_bytes(statistics[at..at + 16].try_into().unwrap());
    assert_eq!([0, 16, 32, 48].map(number), [0x0102_0304, 1 << 40, u64::MAX.into(), 0]);
    world.drives.health = Health { host_bytes_written: 1_000_000_001, spare_percent: 77, ..Health::default() };
    let group = read(&mut world, &mut admin, 0x09, 1, 512);
    assert_eq!((group[3], &group[64..66], &group[160..168]), (77, &[2, 0][..], &CAPACITY.to_le_bytes()[..]));
}

#[test]
fn a_write_goes_under_the_handle_of_its_identifier() {
    let (mut world, mut admin, mut io) = world();
    for (identifier, expected) in [(0, 1), (1, 2), (2, 3), (3, 0), (0xffff, 0)] {
        assert_eq!(handle(&mut world, &mut io, write(identifier)), Handle(expected), "{identifier}");
    }
    assert_eq!(handle(&mut world, &mut io, ranged(io::WRITE, 1, 0, 1)), Handle::NONE);
    let stream = command(io::WRITE, 1, [0, 0, 1 << 20, 1 << 16, 0, 0]);
    assert_eq!(world.io(&mut io, stream), Err(Status::INVALID_FIELD), "another directive than the one enabled");
    // Disabled, as Enable Directive may have it, its identifiers are ignored, also after a reset.
    let enable = |is: u32| command(admin::DIRECTIVE_SEND, 1, [0, 1, 2 << 8 | is, 0, 0, 0]);
    world.ok(&mut admin, enable(0));
    assert_eq!(handle(&mut world, &mut io, write(1)), Handle::NONE);
    world.ok(&mut admin, property_set(0x14, 0));
    world.enable(&mut admin);
    let mut io = world.connect_io(&admin, 1);
    assert_eq!(handle(&mut world, &mut io, write(1)), Handle::NONE);
    world.ok(&mut admin, enable(1));
    assert_eq!(handle(&mut world, &mut io, write(1)), Handle(2));
}

#[test]
fn identify_says_that_data_placement_is_enabled_and_stays_so() {
    let (mut world, mut admin, _io) = world();
    world.ok(&mut admin, command(admin::DIRECTIVE_RECEIVE, 1, [23, 1, 0, 0, 0, 0]));
    assert_eq!([0, 32, 64].map(|at| world.data[at]), [0b101, 0b101, 0b100]);
    let streams = command(admin::DIRECTIVE_SEND, 1, [0, 1, 1 << 8 | 1, 0, 0, 0]);
    assert_eq!(world.refused(&mut admin, streams), Status::INVALID_FIELD, "no streams beside data placement");
    let elsewhere = command(admin::DIRECTIVE_SEND, 2, [0, 1, 2 << 8 | 1, 0, 0, 0]);
    assert_eq!(world.refused(&mut admin, elsewhere), Status::FDP_DISABLED);
}

#[test]
fn events_are_kept_where_they_are_wanted() {
    let (mut world, mut admin, mut io) = world();
    handle(&mut world, &mut io, write(9));
    world.target.handle_left(world.now, &io, 1, Handle(2));
    assert_eq!(read(&mut world, &mut admin, 0x23, 1, 64), [0; 64], "nobody wanted any");

    enable_events(&mut world, &mut admin, 1, &[0, 3]);
    assert_eq!(world.ok(&mut admin, get_events(1, 1, 7)), 6, "as many kinds are known");
    assert_eq!(world.data, [0, 1, 1, 0, 2, 0, 3, 1, 0x80, 0, 0x81, 0, 0, 0]);
    assert_eq!(world.ok(&mut admin, get_events(1, 1, 1)), 6);
    assert_eq!(world.data, [0, 1]);
    assert_eq!(world.ok(&mut admin, get_events(1, 0, 2)), 6);
    assert_eq!(world.data, [0, 0, 1, 0], "of handle 0 none is wanted");
    enable_events(&mut world, &mut admin, 0, &[1, 2]);
    assert_eq!(world.ok(&mut admin, get_events(1, 0, 3)), 6);
    assert_eq!(world.data, [0, 0, 1, 1, 2, 1], "those that never happen can be wanted as well");

    world.now = Time(0x0102_0304_0506 * 1_000_000);
    handle(&mut world, &mut io, write(9));
    world.target.handle_left(world.now, &io, 1, Handle(2));
    world.target.handle_left(world.now, &io, 1, Handle(1));
    let events = read(&mut world, &mut admin, 0x23, 1, 192);
    assert_eq!(events[..64], {
        let mut head = [0; 64];
        head[0] = 2;
        head
    });
    let time = [6, 5, 4, 3, 2, 1, 0, 0];
    let mut invalid = vec![3, 0b011, 9, 0];
    invalid.extend_from_slice(&time);
    invalid.extend_from_slice(&[1, 0, 0, 0]);
    invalid.resize(64, 0);
    assert_eq!(events[64..128], invalid);
    let mut left = vec![0, 0b111, 1, 0];
    left.extend_from_slice(&time);
    left.extend_from_slice(&[1, 0, 0, 0]);
    left.resize(64, 0);
    left[34] = 1;
    assert_eq!(events[128..], left);
    world.ok(&mut admin, page_of(0x23, 1, 0, 64));
    assert_eq!(world.data, [0; 64], "the controller has none of its own");

    let disable = set_events(1, 1, 2, 0);
    assert!(world.run(&mut admin, disable, &[0, 3]).unwrap().status().is_success());
    handle(&mut world, &mut io, write(9));
    assert_eq!(read(&mut world, &mut admin, 0x23, 1, 64)[0], 2);
}

fn handles(handles: &[u8]) -> HandleSet {
    let mut set = HandleSet::default();
    handles.iter().for_each(|handle| set.set(Handle(*handle), true));
    set
}

#[test]
fn a_drive_is_told_which_of_its_own_events_are_wanted_and_told_again_when_a_host_comes() {
    let (mut world, mut admin, _io) = world_of([PLACED, KEPT]);
    let none = HandleWatch::default();
    assert_eq!(world.drives.watched, [(1, none), (2, none)]);
    enable_events(&mut world, &mut admin, 1, &[0, 0x80]);
    enable_events(&mut world, &mut admin, 2, &[0x81, 0x80]);
    let watch = HandleWatch { moved: handles(&[2, 3]), left: handles(&[3]) };
    assert!(world.drives.watched.contains(&(1, watch)), "{:?}", world.drives.watched);
    let disable = set_events(1, 1, 1, 0);
    assert!(world.run(&mut admin, disable, &[0x80]).unwrap().status().is_success());
    let watch = HandleWatch { moved: handles(&[3]), ..watch };
    assert!(world.drives.watched.contains(&(1, watch)), "{:?}", world.drives.watched);
    // Without power it forgets, and its hosts are gone.
    world.drives.watched.clear();
    let _admin = world.ready();
    assert_eq!(world.drives.watched, [(1, watch), (2, none)]);
}

#[test]
fn what_a_drive_does_by_itself_lies_on_the_wire_as_the_specification_draws_it() {
    let (mut world, mut admin, _io) = world_of([PLACED, KEPT]);
    let event = |at, handle, deed| HandleEvent { handle: Handle(handle), at: Time(at), deed };
    world.drives.handle_events = vec![
        event(0x0102_0304_0506 * 1_000_000, 2, Deed::Moved { blocks: 0x0203, first: 0x0a_0b0c }),
        event(0x0102_0304_0507 * 1_000_000, 1, Deed::Left),
        event(0, 1, Deed::Moved { blocks: 0x1_0000, first: 0 }),
    ];
    world.ok(&mut admin, page_of(0x23, 1, 0, 64 * 5));
    let mut golden = vec![3];
    golden.resize(64, 0);
    // Type, flags, identifier; time, its origin a reset; namespace.
    golden.extend_from_slice(&[0x80, 0b111, 1, 0, 6, 5, 4, 3, 2, 1, 0, 0, 1, 0, 0, 0]);
    // Which fields count; blocks moved; the first of them; reclaim group and handle.
    golden.extend_from_slice(&[1, 0, 3, 2, 0x0c, 0x0b, 0x0a, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0]);
    golden.resize(128, 0);
    golden.extend_from_slice(&[0x81, 0b111, 0, 0, 7, 5, 4, 3, 2, 1, 0, 0, 1, 0, 0, 0]);
    golden.resize(192, 0);
    golden.extend_from_slice(&[0x80, 0b111, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0]);
    golden.extend_from_slice(&[1, 0, 0xff, 0xff]);
    golden.resize(64 * 5, 0);
    assert_eq!(world.data, golden);
    world.ok(&mut admin, page_of(0x23, 2, 0, 192));
    assert_eq!(world.data[64 + 16..64 + 24], [1, 0, 0x18, 0x10, 0x60, 0x58, 0x50, 0], "in blocks of 512 bytes");
    world.ok(&mut admin, page_of(0x23, 1, OF_HOSTS, 64));
    assert_eq!(world.data, [0; 64], "hosts have caused none");
}

#[test]
fn data_placement_is_enabled_and_cannot_be_disabled() {
    let (mut world, mut admin, _io) = world();
    let get = |group: u32, select: u32| command(admin::GET_FEATURES, 0, [0x1d | select << 8, group, 0, 0, 0, 0]);
    assert_eq!(world.ok(&mut admin, get(1, 0)), 1, "configuration 0");
    assert_eq!(world.ok(&mut admin, get(1, 3)), 0, "nothing can be done with it");
    assert_eq!(world.ok(&mut admin, command(admin::GET_FEATURES, 1, [0x1e | 3 << 8, 0, 0, 0, 0, 0])), 0b110);
    let set = |group: u32| set_feature(0x1d, 0, group);
    for (what, entry, status) in [
        ("a group that is not there", get(2, 0), Status::INVALID_FIELD),
        ("a reserved selection", get(1, 7), Status::INVALID_FIELD),
        ("a group with a namespace", set(1), Status::COMMAND_SEQUENCE_ERROR),
        ("to set a group that is not there", set(2), Status::INVALID_FIELD),
        ("events of a handle that is not there", get_events(1, 3, 2), Status::INVALID_FIELD),
        ("events where there is no data placement", get_events(2, 0, 2), Status::FDP_DISABLED),
        ("events of all namespaces", get_events(ALL_NAMESPACES, 0, 2), Status::INVALID_NAMESPACE),
        ("to set events of a handle that is not there", set_events(1, 3, 1, 1), Status::INVALID_FIELD),
        ("to set events where there is no data placement", set_events(2, 0, 1, 1), Status::FDP_DISABLED),
    ] {
        assert_eq!(world.refused(&mut admin, entry), status, "{what}");
    }
    let mut saved = set_events(1, 0, 1, 1);
    saved.dwords_10_15[0] = (saved.dword(10) | 1 << 31).into();
    assert_eq!(world.refused(&mut admin, saved), Status::FEATURE_NOT_SAVEABLE);
    let unknown = world.run(&mut admin, set_events(1, 0, 2, 1), &[0x80, 0x82]).unwrap();
    assert_eq!(unknown.status().code(), Status::INVALID_FIELD.code(), "an event that is not known here");
    world.ok(&mut admin, get_events(1, 0, 6));
    assert_eq!(world.data, [0, 0, 1, 0, 2, 0, 3, 0, 0x80, 0, 0x81, 0], "and none was enabled with it");
}

#[test]
fn pages_of_a_group_that_is_not_there_are_refused() {
    let (mut world, mut admin, _io) = world();
    for page in [0x09, 0x20, 0x21, 0x22, 0x23] {
        for group in [0, 2, 5, 0xffff] {
            assert_eq!(world.refused(&mut admin, page_of(page, group, 0, 64)), Status::INVALID_FIELD, "{page:#x}");
        }
    }
}

#[test]
fn management_commands_ask_for_handles() {
    let (mut world, _admin, mut io) = world();
    let mut parsed = |entry| world.io(&mut io, entry).map(|Io { command, .. }| command);
    let receive = |operation: u32, dwords: u32| command(io::MANAGEMENT_RECEIVE, 1, [operation, dwords, 0, 0, 0, 0]);
    let send = |operation: u32, last: u32| command(io::MANAGEMENT_SEND, 1, [operation | last << 16, 0, 0, 0, 0, 0]);
    assert_eq!(parsed(receive(1, 27)), Ok(IoCommand::HandleStatus { bytes: 112 }));
    assert_eq!(parsed(send(1, 2)), Ok(IoCommand::HandleUpdate { identifiers: 3 }));
    assert_eq!((parsed(receive(0, 0)), parsed(send(0, 0))), (Ok(IoCommand::Nothing), Ok(IoCommand::Nothing)));
    for (what, entry, status) in [
        ("operation 2 of Receive", receive(2, 0), Status::INVALID_FIELD),
        ("operation 2 of Send", send(2, 0), Status::INVALID_FIELD),
        ("more than a transfer", receive(1, 1 << 18), Status::INVALID_FIELD),
        ("more than all numbers", receive(1, u32::MAX), Status::INVALID_FIELD),
        ("more identifiers than there are", send(1, 3), Status::INVALID_FIELD),
        ("no data placement", command(io::MANAGEMENT_RECEIVE, 2, [1, 0, 0, 0, 0, 0]), Status::FDP_DISABLED),
        ("chunks", command(io::MANAGEMENT_RECEIVE, 5, [1, 0, 0, 0, 0, 0]), Status::INVALID_OPCODE),
        ("no namespace", command(io::MANAGEMENT_SEND, 0, [1, 0, 0, 0, 0, 0]), Status::INVALID_NAMESPACE),
        ("all", command(io::MANAGEMENT_SEND, ALL_NAMESPACES, [1, 0, 0, 0, 0, 0]), Status::INVALID_NAMESPACE),
        ("FlashAlloc", command(io::FLASH_ALLOC, 1, [0; 6]), Status::INVALID_OPCODE),
        ("FlashAlloc of a range", command(io::FLASH_ALLOC_RANGE, 1, [0, 0, 0, 0, 8, 0]), Status::INVALID_OPCODE),
    ] {
        assert_eq!(parsed(entry), Err(status), "{what}");
    }
}

#[test]
fn the_status_of_handles_lies_on_the_wire_as_the_specification_draws_it() {
    let (world, _admin, _io) = world_of([KEPT, KEPT]);
    let room = |handle: Handle| if handle == Handle(2) { 0x0102 } else { 0 };
    let namespace = |id| world.target.subsystems()[0].namespace(id).unwrap();
    let mut golden = vec![0; 16];
    golden[14] = 2;
    golden.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0]);
    golden.extend_from_slice(&[0; 16]);
    golden.extend_from_slice(&[1, 0, 1, 0, 0, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0]);
    golden.extend_from_slice(&[0; 20]);
    assert_eq!(namespace(1).handle_status(84, room), golden, "what is not open is an empty unit");
    // Eight of the namespace's blocks are one of the drive's.
    let small = namespace(2).handle_status(80, room);
    assert_eq!((&small[24..27], &small[56..59]), (&[0, 16, 0][..], &[0x10, 8, 0][..]));
    assert_eq!(namespace(1).handle_status(16, room), golden[..16]);
}

#[test]
fn identifiers_of_an_update_are_all_there_or_none_is_updated() {
    let (world, _admin, _io) = world();
    let namespace = |id| world.target.subsystems()[0].namespace(id).unwrap();
    assert_eq!(namespace(1).updated_handles(2, &[2, 0, 0, 0]), Ok(vec![Handle(3), Handle(1)]));
    let status = |id, count, data| namespace(id).updated_handles(count, data).map_err(|refusal| refusal.status);
    assert_eq!(status(1, 2, &[0, 0, 3, 0]), Err(Status::INVALID_FIELD));
    assert_eq!(status(1, 2, &[0, 0, 0]), Err(Status::DATA_SGL_LENGTH_INVALID));
    assert_eq!(status(2, 1, &[0, 0]), Err(Status::FDP_DISABLED));
}

#[test]
fn flash_alloc_names_an_object() {
    let (mut world, _admin, mut io) = world_of([Hints::Objects, Hints::Objects]);
    let entry = command(io::FLASH_ALLOC, 1, [2, 0, 0, 0, 0, 0]);
    assert_eq!(world.io(&mut io, entry).unwrap().command, IoCommand::FlashAlloc { ranges: 3 });
    let mut short = entry;
    short.data.length = 47.into();
    assert_eq!(world.io(&mut io, short), Err(Status::DATA_SGL_LENGTH_INVALID));
    for namespace in [0, 5, ALL_NAMESPACES] {
        assert!(world.io(&mut io, command(io::FLASH_ALLOC, namespace, [0; 6])).is_err(), "{namespace}");
    }

    let one = command(io::FLASH_ALLOC_RANGE, 1, [6, 0, 0, 0, 3, 0]);
    let extent = Extent { first: 6, blocks: 3 };
    assert_eq!(world.io(&mut io, one).unwrap().command, IoCommand::FlashAllocRange { extent });

    let range = |first: u64, blocks: u32| {
        let mut range = vec![0; 4];
        range.extend_from_slice(&blocks.to_le_bytes());
        range.extend_from_slice(&first.to_le_bytes());
        range
    };
    let namespace = |id| world.target.subsystems()[0].namespace(id).unwrap();
    let object = |id, count, data: &[u8]| namespace(id).object(count, data).map_err(|refusal| refusal.status);
    let two = [range(5, 3), range(100, 1)].concat();
    assert_eq!(object(1, 2, &two), Ok(vec![Extent { first: 5, blocks: 3 }, Extent { first: 100, blocks: 1 }]));
    assert_eq!(object(2, 1, &range(8, 16)), Ok(vec![Extent { first: 1, blocks: 2 }]));
    for (what, id, data, status) in [
        ("an empty range", 1, range(5, 0), Status::INVALID_FIELD),
        ("beyond the end", 1, range(CAPACITY / 4096, 1), Status::LBA_OUT_OF_RANGE),
        ("beyond all numbers", 1, range(u64::MAX, 2), Status::LBA_OUT_OF_RANGE),
        ("from within a block", 2, range(4, 8), Status::INVALID_FIELD),
        ("up to within a block", 2, range(8, 4), Status::INVALID_FIELD),
        ("less than a range", 1, vec![0; 15], Status::DATA_SGL_LENGTH_INVALID),
    ] {
        assert_eq!(object(id, 1, &data), Err(status), "{what}");
    }
}
