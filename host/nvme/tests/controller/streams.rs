//! The Streams directive: what it says of itself, which handle a write gets, and every refusal.

use crate::harness::*;
use openftl_nvme::command::IoCommand;
use openftl_nvme::namespace::ALL_NAMESPACES;
use openftl_nvme::wire::opcode::{admin, io};
use openftl_nvme::{Hints, Queue, Status, SubmissionEntry};
use openftl_parts::words::Handle;

const IDENTIFY: u8 = 0;
const STREAMS: u8 = 1;
const DATA_PLACEMENT: u8 = 2;

/// Namespace 1 has three streams, namespace 2 none.
fn world() -> (World, Queue, Queue) {
    let mut world = World::with_hints([Hints::Streams { streams: 3, unit_blocks: 1024 }, Hints::None]);
    let admin = world.ready();
    let io = world.connect_io(&admin, 1);
    (world, admin, io)
}

/// The same with streams enabled.
fn enabled() -> (World, Queue, Queue) {
    let (mut world, mut admin, io) = world();
    world.ok(&mut admin, enable(1, STREAMS, true));
    (world, admin, io)
}

fn send(namespace: u32, kind: u8, operation: u8, specific: u16, value: u32) -> SubmissionEntry {
    let dword = u32::from(operation) | u32::from(kind) << 8 | u32::from(specific) << 16;
    command(admin::DIRECTIVE_SEND, namespace, [0, dword, value, 0, 0, 0])
}

fn receive(namespace: u32, kind: u8, operation: u8, bytes: u32, value: u32) -> SubmissionEntry {
    let dword = u32::from(operation) | u32::from(kind) << 8;
    command(admin::DIRECTIVE_RECEIVE, namespace, [bytes / 4 - 1, dword, value, 0, 0, 0])
}

fn enable(namespace: u32, kind: u8, is_enabled: bool) -> SubmissionEntry {
    send(namespace, IDENTIFY, 1, 0, u32::from(kind) << 8 | u32::from(is_enabled))
}

fn allocate(streams: u16) -> SubmissionEntry {
    receive(1, STREAMS, 3, 4, streams.into())
}

fn directed(mut entry: SubmissionEntry, kind: u32, specific: u16) -> SubmissionEntry {
    entry.dwords_10_15[2] = (entry.dword(12) | kind << 20).into();
    entry.dwords_10_15[3] = (u32::from(specific) << 16).into();
    entry
}

fn write(kind: u32, specific: u16) -> SubmissionEntry {
    directed(ranged(io::WRITE, 1, 0, 1), kind, specific)
}

fn handle(world: &mut World, queue: &mut Queue, entry: SubmissionEntry) -> Handle {
    match world.io(queue, entry).unwrap().command {
        IoCommand::Write { handle, .. } | IoCommand::Copy { handle, .. } => handle,
        other => panic!("{other:?}"),
    }
}

fn open(world: &mut World, admin: &mut Queue) -> Vec<u8> {
    world.ok(admin, receive(1, STREAMS, 2, 8, 0));
    world.data.clone()
}

fn reset(world: &mut World, admin: &mut Queue) {
    world.ok(admin, property_set(0x14, 0));
}

#[test]
fn a_controller_says_that_it_has_directives_where_a_namespace_has_some() {
    let oacs = |hints| {
        let mut world = World::with_hints([Hints::None, hints]);
        let mut admin = world.ready();
        world.ok(&mut admin, identify(1, 0));
        let oacs = world.data[256];
        world.ok(&mut admin, log_page(5, 0, 4096, 0));
        let effects = [world.data[0x19 * 4], world.data[0x1a * 4]];
        (oacs, effects)
    };
    assert_eq!(oacs(Hints::Streams { streams: 3, unit_blocks: 1024 }), (1 << 5, [1, 1]));
    assert_eq!(oacs(Hints::None), (0, [0, 0]));
    assert_eq!(oacs(Hints::Objects), (0, [0, 0]));
}

#[test]
fn identify_says_which_directives_there_are_and_which_are_enabled() {
    let (mut world, mut admin, _io) = world();
    let mut vectors = |world: &mut World, namespace| {
        world.ok(&mut admin, receive(namespace, IDENTIFY, 1, 4096, 0));
        assert_eq!(world.data.len(), 4096);
        let set: Vec<usize> = (0..4096).filter(|at| world.data[*at] != 0).collect();
        assert_eq!(set, [0, 32]);
        [world.data[0], world.data[32]]
    };
    assert_eq!(vectors(&mut world, 1), [0b11, 0b01]);
    assert_eq!(vectors(&mut world, 2), [0b01, 0b01]);
    world.ok(&mut admin, enable(1, STREAMS, true));
    world.ok(&mut admin, receive(1, IDENTIFY, 1, 36, 0));
    assert_eq!((world.data.len(), world.data[32]), (36, 0b11), "as many bytes as the host wants");
    world.ok(&mut admin, enable(1, STREAMS, false));
    world.ok(&mut admin, receive(1, IDENTIFY, 1, 36, 0));
    assert_eq!(world.data[32], 0b01);
}

#[test]
fn the_parameters_of_streams_say_how_many_there_are_and_how_large() {
    let (mut world, mut admin, mut io) = enabled();
    handle(&mut world, &mut io, write(1, 77));
    world.ok(&mut admin, receive(1, STREAMS, 1, 32, 0));
    // MSL, NSSA, NSSO, NSSC; SWS: a megabyte; SGS: 1,024 blocks are four of them; NSA, NSO.
    let golden = [3, 0, 3, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 4, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(world.data, golden);
    assert_eq!(world.ok(&mut admin, allocate(2)), 2);
    world.ok(&mut admin, receive(1, STREAMS, 1, 32, 0));
    let golden = [3, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 4, 0, 2, 0, 1, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(world.data, golden, "two of three are the namespace's alone");
    world.ok(&mut admin, receive(ALL_NAMESPACES, STREAMS, 1, 32, 0));
    let golden = [3, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(world.data, golden, "nothing of a namespace");
}

#[test]
fn a_write_goes_under_the_handle_of_its_stream() {
    let (mut world, mut admin, mut io) = enabled();
    for (specific, expected) in [(9, 1), (0xffff, 2), (9, 1), (0, 0)] {
        assert_eq!(handle(&mut world, &mut io, write(1, specific)), Handle(expected), "stream {specific}");
    }
    assert_eq!(handle(&mut world, &mut io, write(0, 9)), Handle::NONE, "DTYPE 0 is no directive");
    let copy = directed(command(io::COPY, 1, [0; 6]), 1, 9);
    assert_eq!(handle(&mut world, &mut io, copy), Handle(1));
    assert_eq!(open(&mut world, &mut admin), [2, 0, 9, 0, 0xff, 0xff, 0, 0]);
    for opcode in [io::WRITE_ZEROES, io::WRITE_UNCORRECTABLE] {
        assert!(world.io(&mut io, directed(ranged(opcode, 1, 0, 1), 1, 9)).is_ok());
    }
    assert_eq!(handle(&mut world, &mut io, directed(ranged(io::WRITE, 2, 0, 1), 1, 9)), Handle::NONE);
}

#[test]
fn a_directive_is_ignored_where_none_is_enabled_and_refused_where_another_is() {
    let (mut world, mut admin, mut io) = world();
    for kind in 0..16 {
        assert_eq!(handle(&mut world, &mut io, write(kind, 9)), Handle::NONE, "{kind}");
    }
    world.ok(&mut admin, enable(1, STREAMS, true));
    for kind in 2..16 {
        for opcode in [io::WRITE, io::WRITE_ZEROES, io::WRITE_UNCORRECTABLE] {
            let refused = world.io(&mut io, directed(ranged(opcode, 1, 0, 1), kind, 9));
            assert_eq!(refused, Err(Status::INVALID_FIELD), "{kind}");
        }
    }
    assert!(world.io(&mut io, directed(ranged(io::READ, 1, 0, 1), 2, 9)).is_ok(), "a read has no directive");
}

#[test]
fn released_and_allocated_streams_are_as_the_specification_says() {
    let (mut world, mut admin, mut io) = enabled();
    for stream in [5, 3, 8] {
        handle(&mut world, &mut io, write(1, stream));
    }
    world.ok(&mut admin, receive(1, STREAMS, 2, 12, 0));
    assert_eq!(world.data, [3, 0, 3, 0, 5, 0, 8, 0, 0, 0, 0, 0]);
    world.ok(&mut admin, receive(ALL_NAMESPACES, STREAMS, 2, 4, 0));
    assert_eq!(world.data, [3, 0, 3, 0], "cut where the host's room ends");
    world.ok(&mut admin, send(1, STREAMS, 1, 3, 0));
    world.ok(&mut admin, send(1, STREAMS, 1, 1234, 0));
    assert_eq!(open(&mut world, &mut admin), [2, 0, 5, 0, 8, 0, 0, 0], "one that is not open is as good as released");
    assert_eq!(world.ok(&mut admin, allocate(9)), 3, "as many as there are");
    assert_eq!(world.refused(&mut admin, allocate(1)), Status::INVALID_FIELD, "there are some already");
    world.ok(&mut admin, send(1, STREAMS, 2, 0, 0));
    world.ok(&mut admin, send(1, STREAMS, 2, 0, 0));
    assert_eq!(open(&mut world, &mut admin), [0; 8]);
    assert_eq!(world.ok(&mut admin, allocate(1)), 1);
    assert_eq!([4, 6].map(|stream| handle(&mut world, &mut io, write(1, stream))), [Handle(1), Handle(1)]);
}

#[test]
fn every_wrong_directive_command_ends_with_its_status() {
    let (mut world, mut admin, _io) = world();
    let field = Status::INVALID_FIELD;
    for (what, entry, status) in [
        ("parameters of all namespaces", receive(ALL_NAMESPACES, IDENTIFY, 1, 4096, 0), field),
        ("parameters of no namespace", receive(0, IDENTIFY, 1, 4096, 0), Status::INVALID_NAMESPACE),
        ("parameters of a namespace that is not there", receive(3, IDENTIFY, 1, 4096, 0), field),
        ("receive operation 2 of Identify", receive(1, IDENTIFY, 2, 4096, 0), field),
        ("send operation 2 of Identify", send(1, IDENTIFY, 2, 0, 0), field),
        ("enabling Identify", enable(1, IDENTIFY, true), field),
        ("enabling a directive that is not there", enable(1, 3, true), field),
        ("enabling streams where there are none", enable(2, STREAMS, true), field),
        ("enabling data placement without FDP", enable(1, DATA_PLACEMENT, true), Status::FDP_DISABLED),
        ("enabling data placement everywhere", enable(ALL_NAMESPACES, DATA_PLACEMENT, true), Status::INVALID_NAMESPACE),
        ("streams that are not enabled: parameters", receive(1, STREAMS, 1, 32, 0), field),
        ("streams that are not enabled: status", receive(1, STREAMS, 2, 32, 0), field),
        ("streams that are not enabled: allocate", allocate(1), field),
        ("streams that are not enabled: release", send(1, STREAMS, 1, 1, 0), field),
        ("streams that are not enabled: release all", send(1, STREAMS, 2, 0, 0), field),
        ("an operation of data placement", receive(1, DATA_PLACEMENT, 1, 32, 0), field),
        ("more than a transfer", receive(1, IDENTIFY, 1, (1 << 20) + 4, 0), field),
    ] {
        assert_eq!(world.refused(&mut admin, entry), status, "{what}");
    }
    world.ok(&mut admin, enable(1, STREAMS, true));
    for (what, entry) in [
        ("receive operation 4 of Streams", receive(1, STREAMS, 4, 32, 0)),
        ("send operation 3 of Streams", send(1, STREAMS, 3, 0, 0)),
        ("releasing a stream everywhere", send(ALL_NAMESPACES, STREAMS, 1, 1, 0)),
        ("allocating everywhere", receive(ALL_NAMESPACES, STREAMS, 3, 4, 1)),
    ] {
        assert_eq!(world.refused(&mut admin, entry), field, "{what}");
    }
}

#[test]
fn a_drive_without_directives_does_not_know_the_commands() {
    let mut world = World::with_hints([Hints::None, Hints::Objects]);
    let mut admin = world.ready();
    assert_eq!(world.refused(&mut admin, receive(1, IDENTIFY, 1, 4096, 0)), Status::INVALID_OPCODE);
    assert_eq!(world.refused(&mut admin, enable(1, STREAMS, true)), Status::INVALID_OPCODE);
}

#[test]
fn what_a_host_enables_is_so_with_all_its_controllers_and_ends_with_the_last() {
    let (mut world, mut admin, mut io) = world();
    let mut second = world.ready();
    world.ok(&mut admin, enable(ALL_NAMESPACES, STREAMS, true));
    let mut third = world.ready();
    for queue in [&mut admin, &mut second, &mut third] {
        world.ok(queue, receive(1, STREAMS, 1, 32, 0));
    }
    handle(&mut world, &mut io, write(1, 7));
    reset(&mut world, &mut admin);
    assert_eq!(open(&mut world, &mut second), [1, 0, 7, 0, 0, 0, 0, 0], "the stream is the others' as well");
    world.enable(&mut admin);
    assert_eq!(open(&mut world, &mut admin), [1, 0, 7, 0, 0, 0, 0, 0], "an enabled controller is as the others");
    world.ok(&mut second, enable(1, STREAMS, false));
    assert_eq!(world.refused(&mut third, receive(1, STREAMS, 2, 8, 0)), Status::INVALID_FIELD);
    world.ok(&mut second, enable(1, STREAMS, true));
    assert_eq!(open(&mut world, &mut second), [0; 8], "when nobody has streams, none is open");
    for queue in [&mut admin, &mut second, &mut third] {
        reset(&mut world, queue);
    }
    world.enable(&mut admin);
    assert_eq!(world.refused(&mut admin, receive(1, STREAMS, 2, 8, 0)), Status::INVALID_FIELD, "no controller knew");
}
