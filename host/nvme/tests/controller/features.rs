//! Features: set, got, refused.

use crate::harness::*;
use openftl_core::Time;
use openftl_nvme::command::IoCommand;
use openftl_nvme::wire::feature::{id, select};
use openftl_nvme::wire::opcode::{admin, io};
use openftl_nvme::{Queue, Status};
use openftl_parts::target::Durability;

fn ready() -> (World, Queue) {
    let mut world = World::new();
    let queue = world.ready();
    (world, queue)
}

fn of_namespace(feature: u8, namespace: u32) -> openftl_nvme::SubmissionEntry {
    command(admin::GET_FEATURES, namespace, [u32::from(feature), 0, 0, 0, 0, 0])
}

#[test]
fn what_is_set_is_got_and_the_default_stays_known() {
    let (mut world, mut queue) = ready();
    for (feature, default, value) in [
        (id::ARBITRATION, 0, 0x0102_0303),
        (id::TEMPERATURE_THRESHOLD, 343, 300),
        (id::VOLATILE_WRITE_CACHE, 1, 0),
        (id::WRITE_ATOMICITY, 0, 1),
        (id::ASYNCHRONOUS_EVENTS, 0, 0x0000_011f),
        (id::MEDIA_FEEDBACK, 0, 0b11),
    ] {
        assert_eq!(world.ok(&mut queue, get_feature(feature, 0)), default, "{feature:#x}");
        world.ok(&mut queue, set_feature(feature, 0, value));
        assert_eq!(world.ok(&mut queue, get_feature(feature, 0)), u64::from(value), "{feature:#x}");
        for select in [select::DEFAULT, select::SAVED] {
            assert_eq!(world.ok(&mut queue, get_feature(feature, u32::from(select))), default, "{feature:#x}");
        }
        let can = world.ok(&mut queue, get_feature(feature, u32::from(select::CAPABILITIES)));
        assert_eq!(can, 0b100, "{feature:#x} can be changed, and not saved");
    }
    assert_eq!(world.refused(&mut queue, get_feature(id::ARBITRATION, 0b100)), Status::INVALID_FIELD);
}

#[test]
fn what_cannot_be_is_refused() {
    let (mut world, mut queue) = ready();
    let mut saved = set_feature(id::ARBITRATION, 0, 0);
    saved.dwords_10_15[0] = (u32::from(id::ARBITRATION) | 1 << 31).into();
    for (what, entry, status) in [
        ("save", saved, Status::FEATURE_NOT_SAVEABLE),
        ("of a namespace", set_feature(id::ARBITRATION, 1, 0), Status::FEATURE_NOT_NAMESPACE_SPECIFIC),
        ("power state 1", set_feature(id::POWER_MANAGEMENT, 0, 1), Status::INVALID_FIELD),
        ("sensor 1", set_feature(id::TEMPERATURE_THRESHOLD, 0, 1 << 16), Status::INVALID_FIELD),
        ("threshold of no kind", set_feature(id::TEMPERATURE_THRESHOLD, 0, 2 << 20), Status::INVALID_FIELD),
        ("65536 queues", set_feature(id::NUMBER_OF_QUEUES, 0, 0xffff), Status::INVALID_FIELD),
        ("another combination", set_feature(id::COMMAND_SET_PROFILE, 0, 1), Status::COMMAND_SET_REJECTED),
        ("host id", set_feature(id::HOST_ID, 0, 1), Status::COMMAND_SEQUENCE_ERROR),
        ("short host id", get_feature(id::HOST_ID, 0), Status::INVALID_FIELD),
        ("DULBE of a block namespace", set_feature(id::ERROR_RECOVERY, 1, 1 << 16), Status::INVALID_FIELD),
        ("DULBE of all", set_feature(id::ERROR_RECOVERY, u32::MAX, 1 << 16), Status::INVALID_FIELD),
        ("error recovery of none", set_feature(id::ERROR_RECOVERY, 0, 0), Status::INVALID_NAMESPACE),
        ("interrupts held back", set_feature(id::INTERRUPT_COALESCING, 0, 0x0101), Status::FEATURE_NOT_CHANGEABLE),
        ("vector 1", set_feature(id::INTERRUPT_VECTOR, 0, 1), Status::FEATURE_NOT_CHANGEABLE),
        ("error recovery of an absent one", of_namespace(id::ERROR_RECOVERY, 3), Status::INVALID_FIELD),
    ] {
        assert_eq!(world.refused(&mut queue, entry), status, "{what}");
    }
    for feature in [0x00, 0x03, 0x0c, 0x0d, 0x10, 0x84, 0xc0, 0xff] {
        assert_eq!(world.refused(&mut queue, get_feature(feature, 0)), Status::INVALID_FIELD, "{feature:#x}");
        assert_eq!(world.refused(&mut queue, set_feature(feature, 0, 0)), Status::INVALID_FIELD, "{feature:#x}");
    }
}

#[test]
fn what_interrupts_would_be_like_can_be_asked_without_any() {
    let (mut world, mut queue) = ready();
    assert_eq!(world.ok(&mut queue, get_feature(id::INTERRUPT_COALESCING, 0)), 0);
    let mut vector = get_feature(id::INTERRUPT_VECTOR, 0);
    vector.dwords_10_15[1] = 3.into();
    assert_eq!(world.ok(&mut queue, vector), 3 | 1 << 16, "no coalescing for vector 3");
    assert_eq!(world.ok(&mut queue, get_feature(id::INTERRUPT_VECTOR, 0b011)), 0, "nothing can be done with it");
}

#[test]
fn queues_are_granted_before_there_are_any() {
    let (mut world, mut queue) = ready();
    assert_eq!(world.ok(&mut queue, get_feature(id::NUMBER_OF_QUEUES, 0)), 63 | 63 << 16);
    assert_eq!(world.ok(&mut queue, set_feature(id::NUMBER_OF_QUEUES, 0, 999 | 999 << 16)), 63 | 63 << 16);
    assert_eq!(world.ok(&mut queue, set_feature(id::NUMBER_OF_QUEUES, 0, 1 | 3 << 16)), 3 | 3 << 16);
    let data = connect_data(SUBSYSTEM, queue.controller().id);
    assert_eq!(world.refused_connect(connect(5, 31), data), (Status::CONNECT_INVALID_PARAMETERS, 42));
    let _io = world.connect_io(&queue, 4);
    let late = set_feature(id::NUMBER_OF_QUEUES, 0, 7 | 7 << 16);
    assert_eq!(world.refused(&mut queue, late), Status::COMMAND_SEQUENCE_ERROR);
}

#[test]
fn with_the_write_cache_off_every_write_is_durable() {
    let (mut world, mut queue) = ready();
    let mut io = world.connect_io(&queue, 1);
    let durability = |world: &mut World, io: &mut Queue| match world.io(io, ranged(io::WRITE, 1, 0, 1)).unwrap().command
    {
        IoCommand::Write { durability, .. } => durability,
        other => panic!("{other:?}"),
    };
    assert_eq!(durability(&mut world, &mut io), Durability::Volatile);
    world.ok(&mut queue, set_feature(id::VOLATILE_WRITE_CACHE, 0, 0));
    assert_eq!(durability(&mut world, &mut io), Durability::Durable);
}

#[test]
fn the_time_goes_on_from_what_the_host_said() {
    let (mut world, mut queue) = ready();
    let milliseconds = 1_700_000_000_123_u64;
    world.now = Time(5_000_000_000);
    let set = world.run(&mut queue, set_feature(id::TIMESTAMP, 0, 0), &milliseconds.to_le_bytes()).unwrap();
    assert!(set.status().is_success());
    world.now = Time(6_500_000_000);
    world.ok(&mut queue, get_feature(id::TIMESTAMP, 0));
    let mut expected = (milliseconds + 1500).to_le_bytes();
    expected[6] = 0b010;
    assert_eq!(world.data, expected);
}

#[test]
fn deallocated_blocks_of_an_open_channel_namespace_become_errors_if_the_host_wants() {
    let (mut world, mut queue) = ready();
    world.ok(&mut queue, set_feature(id::ERROR_RECOVERY, 5, 1 << 16 | 7));
    assert_eq!(world.drives.dulbe, [(5, true)]);
    assert_eq!(world.ok(&mut queue, of_namespace(id::ERROR_RECOVERY, 5)), 1 << 16 | 7);
    assert_eq!(world.ok(&mut queue, of_namespace(id::ERROR_RECOVERY, 1)), 0, "each namespace has its own");
    assert_eq!(world.ok(&mut queue, of_namespace(id::ERROR_RECOVERY, 0)), 0, "what holds of all");
    world.ok(&mut queue, set_feature(id::ERROR_RECOVERY, u32::MAX, 9));
    assert_eq!(world.ok(&mut queue, of_namespace(id::ERROR_RECOVERY, 0)), 9);
}

#[test]
fn what_the_host_said_of_itself_can_be_read_back() {
    let (mut world, mut queue) = ready();
    let mut long = get_feature(id::HOST_ID, 0);
    long.dwords_10_15[1] = 1.into();
    world.ok(&mut queue, long);
    assert_eq!(world.data, HOST_ID);
    let mut short = get_feature(id::HOST_ID, 0);
    short.data.length = 8.into();
    assert_eq!(world.refused(&mut queue, short), Status::INVALID_FIELD, "not the length of the data: EXHID");
    let behavior: Vec<u8> = (0..512).map(|index| (index % 251) as u8).collect();
    world.run(&mut queue, set_feature(id::HOST_BEHAVIOR, 0, 0), &behavior).unwrap();
    world.ok(&mut queue, get_feature(id::HOST_BEHAVIOR, 0));
    assert_eq!(world.data, behavior);
}
