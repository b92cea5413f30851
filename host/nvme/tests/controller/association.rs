//! Connect, enable, shut down, leave: right and wrong.

use crate::harness::*;
use openftl_core::Time;
use openftl_nvme::command::IoCommand;
use openftl_nvme::wire::fabrics::{ANY_CONTROLLER, ConnectData, DISCOVERY_NQN};
use openftl_nvme::wire::opcode::{admin, fabrics as types, io};
use openftl_nvme::wire::{feature, zero_ended};
use openftl_nvme::{CommandId, Connection, Effect, HostsAllowed, Nqn, Outcome, Status, SubsystemConfig};

#[test]
fn a_host_connects_enables_does_io_shuts_down_and_leaves() {
    let mut world = World::new();
    let (mut queue, completion) = world.connect_with(connect(0, 31), connect_data(SUBSYSTEM, ANY_CONTROLLER));
    assert_eq!((completion.result.get(), completion.submission_head.get()), (1, 1), "controller 1");
    assert_eq!(world.ok(&mut queue, property_get(0x08, 4)), 0x0002_0000);
    world.enable(&mut queue);
    assert_eq!(world.ok(&mut queue, set_feature(feature::id::NUMBER_OF_QUEUES, 0, 1 | 1 << 16)), 1 | 1 << 16);
    let mut io = world.connect_io(&queue, 1);
    assert!(world.io(&mut io, ranged(io::READ, 1, 0, 1)).is_ok());

    world.ok(&mut queue, property_set(0x14, 6 << 16 | 4 << 20 | 1 | 1 << 14));
    assert_eq!(world.effect, Some(Effect::Shutdown));
    assert_eq!(world.ok(&mut queue, property_get(0x1c, 4)), 0b0101, "the drive has not flushed yet");
    assert_eq!(world.io(&mut io, ranged(io::READ, 1, 0, 1)), Err(Status::COMMAND_SEQUENCE_ERROR));
    world.target.shutdown_completed(queue.controller());
    assert_eq!(world.ok(&mut queue, property_get(0x1c, 4)), 0b1001);

    world.target.disconnected(queue);
    assert!(!world.target.is_alive(&io), "the other connections go with the admin queue's");
    assert_eq!(world.target.subsystems()[0].controllers().count(), 0);
    assert_eq!(world.io(&mut io, ranged(io::READ, 1, 0, 1)), Err(Status::ABORTED_QUEUE_DELETED));
    world.target.disconnected(io);
}

#[test]
fn a_reset_forgets_queues_features_and_held_commands() {
    let mut world = World::new();
    let mut queue = world.ready();
    let io = world.connect_io(&queue, 1);
    world.ok(&mut queue, set_feature(feature::id::VOLATILE_WRITE_CACHE, 0, 0));
    assert_eq!(world.run(&mut queue, event_request(), &[]), None);
    world.ok(&mut queue, property_set(0x14, 0));
    assert_eq!(world.effect, Some(Effect::CloseIoQueues));
    assert!(!world.target.is_alive(&io) && world.target.is_alive(&queue));
    assert_eq!(world.events(&mut queue), [(Status::ABORT_REQUESTED, 0)]);
    world.enable(&mut queue);
    assert_eq!(world.ok(&mut queue, get_feature(feature::id::VOLATILE_WRITE_CACHE, 0)), 1);
    let again = world.connect_io(&queue, 1);
    world.target.disconnected(io);
    assert!(world.target.is_alive(&again), "the old connection of the same queue does not take the new one along");
}

#[test]
fn a_disconnected_queue_can_be_made_again() {
    let mut world = World::new();
    let mut queue = world.ready();
    let mut io = world.connect_io(&queue, 1);
    assert_eq!(world.refused(&mut queue, fabrics(types::DISCONNECT, [0; 6])), Status::DISCONNECT_INVALID_QUEUE);
    assert_eq!(
        world.refused(&mut io, fabrics(types::DISCONNECT, [1, 0, 0, 0, 0, 0])),
        Status::CONNECT_INCOMPATIBLE_FORMAT
    );
    world.ok(&mut io, fabrics(types::DISCONNECT, [0; 6]));
    assert_eq!(world.effect, Some(Effect::CloseQueue));
    let again = world.connect_io(&queue, 1);
    assert!(world.target.is_alive(&again) && !world.target.is_alive(&io));
}

#[test]
fn without_flow_control_the_host_is_told_so() {
    let mut world = World::new();
    let mut entry = connect(0, 31);
    entry.dwords_10_15[1] = (31 | 1 << 18).into();
    let (_, completion) = world.connect_with(entry, connect_data(SUBSYSTEM, ANY_CONTROLLER));
    assert_eq!(completion.submission_head.get(), 0xffff);
}

#[test]
fn nothing_comes_before_connect_and_nothing_but_properties_before_enable() {
    let mut world = World::new();
    for entry in [identify(1, 0), property_get(0, 8), ranged(io::READ, 1, 0, 1)] {
        let data = connect_data(SUBSYSTEM, ANY_CONTROLLER);
        assert_eq!(world.refused_connect(entry, data), (Status::COMMAND_SEQUENCE_ERROR, 0));
    }
    let mut queue = world.connect();
    for entry in [identify(1, 0), event_request(), command(admin::KEEP_ALIVE, 0, [0; 6])] {
        assert_eq!(world.refused(&mut queue, entry), Status::COMMAND_SEQUENCE_ERROR);
    }
    let early = world.refused_connect(connect(1, 31), connect_data(SUBSYSTEM, 1));
    assert_eq!(early, (Status::COMMAND_SEQUENCE_ERROR, 0));
    assert_eq!(world.refused(&mut queue, connect(0, 31)), Status::COMMAND_SEQUENCE_ERROR);
}

#[test]
fn connect_asks_for_its_data_when_they_are_not_in_the_capsule() {
    let mut world = World::new();
    let asked = world.target.connect(Time::ZERO, &connect(0, 31), None);
    assert!(matches!(asked, Connection::Needs(1024)), "{asked:?}");
    assert_eq!(world.target.subsystems()[0].controllers().count(), 0);
}

const DATA: u64 = 1 << 16;

#[test]
fn every_wrong_connect_says_which_of_its_bytes_is_wrong() {
    let mut world = World::new();
    let admin = world.ready();
    let _taken = world.connect_io(&admin, 1);
    let good = || connect_data(SUBSYSTEM, ANY_CONTROLLER);
    let of = |controller| connect_data(SUBSYSTEM, controller);
    let parameters = Status::CONNECT_INVALID_PARAMETERS;
    let mut format = connect(0, 31);
    format.dwords_10_15[0] = 1.into();
    let mut short = connect(0, 31);
    short.data.length = 1023.into();
    let with = |change: &dyn Fn(&mut ConnectData)| {
        let mut data = of(1);
        change(&mut data);
        data
    };
    let cases = [
        ("record format", format, good(), (Status::CONNECT_INCOMPATIBLE_FORMAT, 0)),
        ("data too short", short, good(), (Status::DATA_SGL_LENGTH_INVALID, 0)),
        ("admin queue of one entry", connect(0, 0), good(), (parameters, 44)),
        ("queue of one entry", connect(2, 0), of(1), (parameters, 44)),
        ("queue too large", connect(2, 1024), of(1), (parameters, 44)),
        ("admin queue of a given controller", connect(0, 31), of(1), (parameters, DATA | 16)),
        ("I/O queue of any controller", connect(2, 31), good(), (parameters, DATA | 16)),
        ("I/O queue of controller 0", connect(2, 31), of(0), (parameters, DATA | 16)),
        ("I/O queue of no controller", connect(2, 31), of(7), (parameters, DATA | 16)),
        ("more queues than there are", connect(65, 31), of(1), (parameters, 42)),
        ("a queue that there is", connect(1, 31), of(1), (Status::COMMAND_SEQUENCE_ERROR, 0)),
        ("unknown subsystem", connect(0, 31), connect_data("nqn.x", ANY_CONTROLLER), (parameters, DATA | 256)),
        ("endless name", connect(2, 31), with(&|data| data.subsystem_nqn = [b'a'; 256]), (parameters, DATA | 256)),
        (
            "a queue of another host, without a name",
            connect(2, 31),
            with(&|data| data.host_nqn = [0; 256]),
            (parameters, DATA | 512),
        ),
        ("endless host name", connect(2, 31), with(&|data| data.host_nqn = [b'n'; 256]), (parameters, DATA | 512)),
        ("another host", connect(2, 31), with(&|data| data.host_nqn = zero_ended("nqn.b")), (parameters, DATA | 512)),
        ("another host id", connect(2, 31), with(&|data| data.host_id = [9; 16]), (parameters, DATA)),
        ("I/O of discovery", connect(1, 31), connect_data(DISCOVERY_NQN, 1), (parameters, DATA | 16)),
    ];
    for (what, entry, data, expected) in cases {
        assert_eq!(world.refused_connect(entry, data), expected, "{what}");
    }
    assert_eq!(world.target.subsystems()[0].controllers().count(), 1, "no refused Connect leaves anything behind");
}

#[test]
fn an_io_queue_without_a_host_id_belongs_to_the_host_of_its_name() {
    let mut world = World::new();
    let admin = world.ready();
    let mut data = connect_data(SUBSYSTEM, admin.controller().id);
    data.host_id = [0; 16];
    let (io, _) = world.connect_with(connect(1, 31), data);
    assert!(world.target.is_alive(&io));
}

/// SPDK's `perf` says no name unless it is told one, and its own target takes that.
#[test]
fn a_host_without_a_name_may_connect_where_any_host_may() {
    let mut world = World::new();
    let nameless = |controller| ConnectData { host_nqn: [0; 256], ..connect_data(SUBSYSTEM, controller) };
    let (mut admin, _) = world.connect_with(connect(0, 31), nameless(ANY_CONTROLLER));
    world.enable(&mut admin);
    let (io, _) = world.connect_with(connect(1, 31), nameless(admin.controller().id));
    assert!(world.target.is_alive(&io));
    let hosts = HostsAllowed::Listed(vec![Nqn::new("nqn.2024-01.org.example:friend").unwrap()]);
    let mut world = World::with(SubsystemConfig { hosts, ..config(SUBSYSTEM) });
    let refused = world.refused_connect(connect(0, 31), nameless(ANY_CONTROLLER));
    assert_eq!(refused, (Status::CONNECT_INVALID_PARAMETERS, DATA | 512));
}

#[test]
fn only_listed_hosts_may_connect() {
    let hosts = HostsAllowed::Listed(vec![Nqn::new("nqn.2024-01.org.example:friend").unwrap()]);
    let mut world = World::with(SubsystemConfig { hosts, ..config(SUBSYSTEM) });
    let data = connect_data(SUBSYSTEM, ANY_CONTROLLER);
    assert_eq!(world.refused_connect(connect(0, 31), data), (Status::CONNECT_INVALID_HOST, 0));
    let friend = ConnectData { host_nqn: zero_ended("nqn.2024-01.org.example:friend"), ..data };
    let _ = world.connect_with(connect(0, 31), friend);
}

#[test]
fn who_has_not_proved_who_he_is_may_do_nothing_but_that() {
    let mut world = World::with(SubsystemConfig { requires_authentication: true, ..config(SUBSYSTEM) });
    let (mut queue, completion) = world.connect_with(connect(0, 31), connect_data(SUBSYSTEM, ANY_CONTROLLER));
    assert_eq!(completion.result.get(), 1 | 1 << 17);
    for entry in [property_get(0, 8), property_set(0x14, 1), identify(1, 0)] {
        assert_eq!(world.refused(&mut queue, entry), Status::AUTHENTICATION_REQUIRED);
    }
    let message = [0xe9_01_01_00, 64, 0, 0, 0, 0];
    world.ok(&mut queue, fabrics(types::AUTHENTICATION_SEND, message));
    world.ok(&mut queue, fabrics(types::AUTHENTICATION_RECEIVE, message));
    queue.set_authenticated(true);
    world.enable(&mut queue);
    let mut io = world.connect_io(&queue, 1);
    assert_eq!(world.io(&mut io, ranged(io::READ, 1, 0, 1)), Err(Status::AUTHENTICATION_REQUIRED));
    io.set_authenticated(true);
    assert!(world.io(&mut io, ranged(io::READ, 1, 0, 1)).is_ok());
}

#[test]
fn an_authentication_message_that_we_do_not_speak_is_refused() {
    let mut world = World::new();
    let mut queue = world.connect();
    for dwords in [[0, 64], [0xe9_01_00_00, 64], [0xe9_00_01_00, 64], [0xe9_01_01_00, 0], [0xe9_01_01_00, 1 << 20]] {
        for kind in [types::AUTHENTICATION_SEND, types::AUTHENTICATION_RECEIVE] {
            let entry = fabrics(kind, [dwords[0], dwords[1], 0, 0, 0, 0]);
            assert_eq!(world.refused(&mut queue, entry), Status::INVALID_FIELD, "{dwords:x?}");
        }
    }
    assert_eq!(world.refused(&mut queue, fabrics(0x42, [0; 6])), Status::INVALID_FIELD);
}

#[test]
fn a_silent_host_is_dropped_and_one_that_talks_is_not() {
    let mut world = World::new();
    let with_timer = |ms: u32| {
        let mut entry = connect(0, 31);
        entry.dwords_10_15[2] = ms.into();
        entry
    };
    let data = connect_data(SUBSYSTEM, ANY_CONTROLLER);
    let (silent, _) = world.connect_with(with_timer(5000), data);
    let (mut talking, _) = world.connect_with(with_timer(5000), data);
    let (patient, _) = world.connect_with(with_timer(0), data);
    let at = |ms: u64| Time(ms * 1_000_000);
    let mut expired = Vec::new();
    assert_eq!(world.target.next_due(), Some(at(5000)));
    world.now = at(4000);
    world.enable(&mut talking);
    world.target.expire(at(5000), &mut expired);
    assert_eq!(expired, [silent.controller()]);
    assert!(!world.target.is_alive(&silent) && world.target.is_alive(&talking));
    world.now = at(9000);
    world.ok(&mut talking, command(admin::KEEP_ALIVE, 0, [0; 6]));
    world.target.expire(at(10_000), &mut expired);
    world.target.expire(at(13_999), &mut expired);
    assert!(world.target.is_alive(&talking) && expired.len() == 1);
    world.target.expire(at(14_000), &mut expired);
    assert_eq!(expired[1..], [talking.controller()]);
    assert_eq!(world.target.next_due(), None);
    assert!(world.target.is_alive(&patient));
}

#[test]
fn io_keeps_the_association_alive() {
    let mut world = World::new();
    let mut queue = world.ready();
    let mut io = world.connect_io(&queue, 1);
    world.ok(&mut queue, set_feature(feature::id::KEEP_ALIVE, 0, 1000));
    assert_eq!(world.ok(&mut queue, get_feature(feature::id::KEEP_ALIVE, 0)), 1000);
    let mut expired = Vec::new();
    for second in 1..5 {
        assert!(world.io(&mut io, ranged(io::READ, 1, 0, 1)).is_ok());
        world.target.expire(Time(second * 1_000_000_000), &mut expired);
    }
    assert_eq!(expired, []);
    world.target.expire(Time(5_000_000_000), &mut expired);
    assert_eq!(expired, [queue.controller()]);
}

#[test]
fn controller_ids_are_not_used_again_at_once() {
    let mut world = World::new();
    let first = world.connect();
    let (first_id, stale) = (first.controller().id, first.controller());
    world.target.disconnected(first);
    let second = world.connect();
    assert_ne!(second.controller().id, first_id);
    assert_eq!(world.target.take_event(stale), None);
    let mut ids: Vec<u16> = (0..100).map(|_| world.connect().controller().id).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 100);
}

#[test]
fn a_full_subsystem_is_busy() {
    let mut world = World::new();
    let queues: Vec<_> = (0..1024).map(|_| world.connect()).collect();
    let data = connect_data(SUBSYSTEM, ANY_CONTROLLER);
    assert_eq!(world.refused_connect(connect(0, 31), data), (Status::CONNECT_CONTROLLER_BUSY, 0));
    let gone = queues[0].controller();
    queues.into_iter().take(1).for_each(|queue| world.target.disconnected(queue));
    let mut heir = world.ready();
    assert_eq!(heir.controller().id, gone.id, "the only id that is free");
    world.ok(&mut heir, set_feature(feature::id::ASYNCHRONOUS_EVENTS, 0, 0x1ff));
    assert_eq!(world.run(&mut heir, event_request(), &[]), None);
    world.target.detach(0, 1).unwrap();
    assert_eq!(world.target.take_event(gone), None, "an old name does not name the heir");
    assert_eq!(world.events(&mut heir).len(), 1);
}

#[test]
fn a_failed_command_says_that_the_error_log_has_more() {
    let mut world = World::new();
    let queue = world.ready();
    let mut io = world.connect_io(&queue, 1);
    let entry = world.name(ranged(io::READ, 1, 7, 1));
    io.begin(CommandId(entry.command_id.get())).unwrap();
    let read = world.target.io(world.now, &io, &entry).unwrap();
    assert!(matches!(read.command, IoCommand::Read(_)));
    let answer = world.target.failed(&io, &entry, Status::UNRECOVERED_READ.into());
    assert_eq!(answer.status.field(), 0x6281);
    assert_eq!(io.complete(CommandId(entry.command_id.get()), answer).status.get(), 0x6281 << 1);
}

#[test]
fn a_command_that_needs_data_has_done_nothing_before_it_has_them() {
    let mut world = World::new();
    let queue = world.ready();
    let entry = set_feature(feature::id::TIMESTAMP, 0, 0);
    let mut out = vec![1];
    let outcome = world.target.command(world.now, &queue, &entry, None, &mut world.drives, &mut out);
    assert_eq!((outcome, out.len()), (Outcome::Needs(8), 0));
    let outcome = world.target.command(world.now, &queue, &entry, Some(&[0; 7]), &mut world.drives, &mut out);
    assert!(matches!(outcome, Outcome::Done(answer) if answer.status.code() == 0x00f), "{outcome:?}");
}
