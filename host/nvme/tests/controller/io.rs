//! I/O commands: what they ask of the drive, and the exact status of what is wrong with them.

use crate::harness::*;
use openftl_nvme::command::IoCommand;
use openftl_nvme::namespace::ALL_NAMESPACES;
use openftl_nvme::wire::entry::SglDescriptor;
use openftl_nvme::wire::opcode::io;
use openftl_nvme::{Half, Io, Queue, QueueError, Span, Status, SubmissionEntry};
use openftl_parts::target::Durability;
use openftl_parts::words::Handle;

fn ready() -> (World, Queue, Queue) {
    let mut world = World::new();
    let admin = world.ready();
    let io = world.connect_io(&admin, 1);
    (world, admin, io)
}

fn with(mut entry: SubmissionEntry, change: impl Fn(&mut SubmissionEntry)) -> SubmissionEntry {
    change(&mut entry);
    entry
}

/// With bits of dword 12 set.
fn bits(entry: SubmissionEntry, bits: u32) -> SubmissionEntry {
    with(entry, |entry| entry.dwords_10_15[2] = (entry.dword(12) | bits).into())
}

#[test]
fn commands_ask_for_bytes_of_the_drive() {
    let (mut world, _admin, mut queue) = ready();
    let fua = 1 << 30;
    let (volatile, durable) = (Durability::Volatile, Durability::Durable);
    let span = Span { offset: 7 * 4096, length: 3 * 4096 };
    let small = Span { offset: 7 * 512, length: 3 * 512 };
    for (entry, namespace, command) in [
        (ranged(io::READ, 1, 7, 3), 1, IoCommand::Read(span)),
        (ranged(io::READ, 2, 7, 3), 2, IoCommand::Read(small)),
        (ranged(io::WRITE, 1, 7, 3), 1, IoCommand::Write { span, durability: volatile, handle: Handle::NONE }),
        (
            bits(ranged(io::WRITE, 1, 7, 3), fua),
            1,
            IoCommand::Write { span, durability: durable, handle: Handle::NONE },
        ),
        (ranged(io::WRITE_UNCORRECTABLE, 1, 7, 3), 1, IoCommand::WriteUncorrectable { span, durability: volatile }),
        (ranged(io::WRITE_UNCORRECTABLE, 2, 56, 24), 2, IoCommand::WriteUncorrectable { span, durability: volatile }),
        (ranged(io::COMPARE, 1, 7, 3), 1, IoCommand::Compare(span)),
        (ranged(io::VERIFY, 1, 7, 3), 1, IoCommand::Verify(span)),
        (
            bits(ranged(io::WRITE_ZEROES, 1, 7, 3), 1 << 25),
            1,
            IoCommand::Zero { span, durability: volatile, deallocate: true },
        ),
        (
            command(io::DATASET_MANAGEMENT, 1, [4, 1 << 2, 0, 0, 0, 0]),
            1,
            IoCommand::DatasetManagement { ranges: 5, deallocate: true },
        ),
        (
            command(io::COPY, 1, [9, 0, 2 | fua, 0, 0, 0]),
            1,
            IoCommand::Copy { first: 9, sources: 3, durability: durable, handle: Handle::NONE },
        ),
        (command(io::FLUSH, 1, [0; 6]), 1, IoCommand::Flush),
        (command(io::FLUSH, ALL_NAMESPACES, [0; 6]), ALL_NAMESPACES, IoCommand::Flush),
    ] {
        assert_eq!(world.io(&mut queue, entry), Ok(Io { namespace, command, renewed: Handle::NONE, half: Half::None }));
    }
}

#[test]
fn commands_without_data_may_be_longer_than_a_transfer() {
    let (mut world, _admin, mut queue) = ready();
    for opcode in [io::WRITE_ZEROES, io::VERIFY, io::WRITE_UNCORRECTABLE] {
        assert!(world.io(&mut queue, ranged(opcode, 1, 0, 16384)).is_ok());
    }
}

#[test]
fn every_wrong_command_ends_with_its_status() {
    let (mut world, _admin, mut queue) = ready();
    let blocks = CAPACITY / 4096;
    let read = || ranged(io::READ, 1, 0, 1);
    let in_capsule = |mut entry: SubmissionEntry| {
        entry.data.identifier = SglDescriptor::IN_CAPSULE;
        entry
    };
    let identifier = |identifier| with(read(), |entry| entry.data.identifier = identifier);
    let cases = [
        ("a read as half of a pair", with(read(), |entry| entry.flags |= 1), Status::INVALID_FIELD),
        ("FUSE 11b", with(read(), |entry| entry.flags |= 3), Status::INVALID_FIELD),
        ("PRP", with(read(), |entry| entry.flags = 0), Status::INVALID_FIELD),
        ("PSDT 11b", with(read(), |entry| entry.flags = 0xc0), Status::INVALID_FIELD),
        ("namespace 0", ranged(io::READ, 0, 0, 1), Status::INVALID_NAMESPACE),
        ("namespace 65", ranged(io::READ, 65, 0, 1), Status::INVALID_NAMESPACE),
        ("all namespaces", ranged(io::READ, ALL_NAMESPACES, 0, 1), Status::INVALID_NAMESPACE),
        ("no such namespace", ranged(io::READ, 3, 0, 1), Status::INVALID_FIELD),
        ("beyond the end", ranged(io::READ, 1, blocks, 1), Status::LBA_OUT_OF_RANGE),
        ("across the end", ranged(io::WRITE, 1, blocks - 1, 2), Status::LBA_OUT_OF_RANGE),
        ("beyond all numbers", ranged(io::WRITE, 1, u64::MAX, 2), Status::LBA_OUT_OF_RANGE),
        ("zeroes across the end", ranged(io::WRITE_ZEROES, 1, blocks - 1, 2), Status::LBA_OUT_OF_RANGE),
        ("longer than MDTS", ranged(io::READ, 1, 0, 257), Status::INVALID_FIELD),
        ("longer than MDTS in small blocks", ranged(io::WRITE, 2, 0, 2049), Status::INVALID_FIELD),
        ("PRACT", bits(read(), 1 << 29), Status::INVALID_FIELD),
        ("PRCHK", bits(read(), 1 << 26), Status::INVALID_FIELD),
        ("STC", bits(read(), 1 << 24), Status::INVALID_FIELD),
        ("copy format 1", command(io::COPY, 1, [0, 0, 1 << 8, 0, 0, 0]), Status::INVALID_FIELD),
        ("129 sources", command(io::COPY, 1, [0, 0, 128, 0, 0, 0]), Status::COMMAND_SIZE_EXCEEDED),
        ("SGL too short", with(read(), |entry| entry.data.length = 4095.into()), Status::DATA_SGL_LENGTH_INVALID),
        ("read into the capsule", in_capsule(read()), Status::INVALID_FIELD),
        ("absolute address", identifier(0x00), Status::SGL_TYPE_INVALID),
        ("segment", identifier(0x20), Status::SGL_TYPE_INVALID),
        ("last segment", identifier(0x31), Status::SGL_TYPE_INVALID),
        ("keyed", identifier(0x40), Status::SGL_TYPE_INVALID),
        ("uncorrectable across the end", ranged(io::WRITE_UNCORRECTABLE, 1, blocks - 1, 2), Status::LBA_OUT_OF_RANGE),
        ("uncorrectable from within a block", ranged(io::WRITE_UNCORRECTABLE, 2, 4, 4), Status::INVALID_FIELD),
        ("uncorrectable up to within a block", ranged(io::WRITE_UNCORRECTABLE, 2, 8, 12), Status::INVALID_FIELD),
        ("uncorrectable chunks", ranged(io::WRITE_UNCORRECTABLE, 5, 0, 1), Status::INVALID_OPCODE),
        ("vector read of a block namespace", ranged(io::VECTOR_READ, 1, 0, 1), Status::INVALID_OPCODE),
    ];
    for (what, entry, status) in cases {
        assert_eq!(world.io(&mut queue, entry), Err(status), "{what}");
    }
    assert!(world.io(&mut queue, in_capsule(ranged(io::WRITE, 1, 0, 1))).is_ok());
}

#[test]
fn every_opcode_that_is_not_there_is_invalid() {
    let (mut world, _admin, mut queue) = ready();
    let known = [0x00, 0x01, 0x02, 0x04, 0x05, 0x08, 0x09, 0x0c, 0x0d, 0x0e, 0x11, 0x15, 0x19, 0x7f];
    for opcode in (0..=255).filter(|opcode| !known.contains(opcode)) {
        assert_eq!(world.io(&mut queue, ranged(opcode, 1, 0, 1)), Err(Status::INVALID_OPCODE), "{opcode:#x}");
    }
    let (mut world, mut admin, _) = ready();
    let known = [0x02, 0x06, 0x08, 0x09, 0x0a, 0x0c, 0x18, 0x7f, 0xe2];
    for opcode in (0..=255).filter(|opcode| !known.contains(opcode)) {
        let refused = world.refused(&mut admin, command(opcode, 1, [0; 6]));
        assert_eq!(refused, Status::INVALID_OPCODE, "{opcode:#x}");
    }
}

#[test]
fn a_detached_namespace_takes_no_more_commands() {
    let (mut world, _admin, mut queue) = ready();
    world.target.detach(0, 1).unwrap();
    assert_eq!(world.io(&mut queue, ranged(io::READ, 1, 0, 1)), Err(Status::INVALID_FIELD));
    assert!(world.io(&mut queue, ranged(io::READ, 2, 0, 1)).is_ok());
}

#[test]
fn a_host_that_overruns_its_queue_is_found_out() {
    let (_world, _admin, mut queue) = ready();
    for id in 0..128 {
        queue.begin(openftl_nvme::CommandId(id)).unwrap();
    }
    assert_eq!(queue.begin(openftl_nvme::CommandId(128)), Err(QueueError::Overrun { entries: 128 }));
}

#[test]
fn properties_are_of_the_admin_queue() {
    let (mut world, _admin, mut queue) = ready();
    assert_eq!(world.refused(&mut queue, property_get(0, 8)), Status::INVALID_FIELD);
    assert_eq!(world.refused(&mut queue, property_set(0x14, 0)), Status::INVALID_FIELD);
}
