//! Namespaces of blocks in segments as hosts meet them: what they say of themselves, and which commands they do not have.

use crate::harness::*;
use openftl_core::BLOCK_BYTES;
use openftl_nvme::wire::U32;
use openftl_nvme::wire::identify::{cns, csi};
use openftl_nvme::wire::log::id;
use openftl_nvme::wire::opcode::{admin, io};
use openftl_nvme::{
    CommandId, IoCommand, Namespace, NamespaceKind, Queue, SegmentShape, Span, Status, SubmissionEntry,
};
use openftl_parts::target::{AppendError, Durability, IoError};
use openftl_parts::words::Handle;

const SEGMENTED: u32 = 7;
const SHAPE: SegmentShape = SegmentShape { segments: 100, blocks: 48 };

/// What the drives of the harness have in use, in blocks.
const IN_USE: u64 = (8 << 20) / BLOCK_BYTES as u64;

fn number(data: &[u8], at: usize, bytes: usize) -> u64 {
    data[at..at + bytes].iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

fn segmented(shape: SegmentShape) -> Namespace {
    Namespace { id: SEGMENTED, uuid: [7; 16], kind: NamespaceKind::Segments(shape) }
}

fn world_of(shape: SegmentShape) -> (World, Queue, Queue) {
    let mut world = World::new();
    world.target.attach(0, segmented(shape)).unwrap();
    let admin = world.ready();
    let io = world.connect_io(&admin, 1);
    (world, admin, io)
}

fn world() -> (World, Queue, Queue) {
    world_of(SHAPE)
}

fn of_set(structure: u8, namespace: u32, command_set: u8) -> SubmissionEntry {
    command(admin::IDENTIFY, namespace, [u32::from(structure), u32::from(command_set) << 24, 0, 0, 0, 0])
}

fn with(mut entry: SubmissionEntry, dword: usize, bits: u32) -> SubmissionEntry {
    let field = &mut entry.dwords_10_15[dword - 10];
    *field = U32::new(field.get() | bits);
    entry
}

#[test]
fn the_size_of_a_segment_is_a_boundary_that_hosts_heed() {
    let (mut world, mut admin, _) = world();
    world.ok(&mut admin, identify(cns::NAMESPACE, SEGMENTED));
    let data = &world.data;
    let check = |what, at, bytes, expected| assert_eq!(number(data, at, bytes), expected, "{what}");
    check("NSZE: no addresses without blocks", 0, 8, 4800);
    check("NCAP", 8, 8, 4800);
    check("NUSE", 16, 8, IN_USE);
    check("NSFEAT: atomic and preferred fields", 24, 1, 0b1_0010);
    check("NLBAF, FLBAS", 25, 2, 0);
    check("DLFEAT: what is deallocated may read as before", 33, 1, 0);
    check("NAWUN: the longest write", 34, 2, 255);
    check("NAWUPF: as AWUPF", 36, 2, 0);
    check("NACWU", 38, 2, 0);
    check("NABSN, NABO, NABSPF", 40, 6, 0);
    check("NOIOB: a segment", 46, 2, 48);
    check("NVMCAP", 48, 16, 4800 * BLOCK_BYTES as u64);
    check("NPWG, NPWA: blocks", 64, 4, 0);
    check("NPDG, NPDA: segments", 68, 4, 0x002f_002f);
    check("NOWS", 72, 2, 255);
    check("MSSRL, MCL, MSRC: no Copy", 74, 7, 0);
    check("NSATTR", 99, 1, 0);
    check("LBAF0: 4 KiB", 128, 4, 12 << 16);
}

#[test]
fn a_segment_that_is_too_long_for_a_field_is_not_told_by_it() {
    let check = |blocks, boundary, granularity| {
        let (mut world, mut admin, _) = world_of(SegmentShape { segments: 3, blocks });
        world.ok(&mut admin, identify(cns::NAMESPACE, SEGMENTED));
        let found = [number(&world.data, 0, 8), number(&world.data, 46, 2), number(&world.data, 68, 2)];
        assert_eq!(found, [3 * u64::from(blocks), boundary, granularity], "{blocks} blocks");
    };
    check(0xffff, 0xffff, 0xfffe);
    check(0x1_0000, 0, 0xffff);
    check(0x1_0001, 0, 0);
}

/// NAWUPF 0 says that AWUPF is meant, so that must not be more.
#[test]
fn beside_segments_the_controller_promises_one_block_when_the_power_fails() {
    let power_fail = |segments: bool| {
        let mut world = World::new();
        if segments {
            world.target.attach(0, segmented(SHAPE)).unwrap();
        }
        let mut admin = world.ready();
        world.ok(&mut admin, identify(cns::CONTROLLER, 0));
        assert_eq!(number(&world.data, 92, 4), 1 << 8, "OAES: there are no zones");
        [number(&world.data, 526, 2), number(&world.data, 528, 2)]
    };
    assert_eq!((power_fail(false), power_fail(true)), ([255, 255], [255, 0]));
}

#[test]
fn segments_have_the_command_set_of_blocks_and_no_zones() {
    let (mut world, mut admin, _) = world();
    world.ok(&mut admin, identify(cns::NAMESPACE_DESCRIPTORS, SEGMENTED));
    assert_eq!(number(&world.data, 20, 8), 0x00_0000_0104, "a UUID, and the command set");
    world.ok(&mut admin, of_set(cns::COMMAND_SET_ACTIVE_NAMESPACES, 0, csi::NVM));
    assert_eq!([0, 4, 8, 12].map(|at| number(&world.data, at, 4)), [1, 2, 7, 0]);
    world.ok(&mut admin, of_set(cns::COMMAND_SET_ACTIVE_NAMESPACES, 0, csi::ZONED));
    assert_eq!(number(&world.data, 0, 4), 0);
    world.ok(&mut admin, of_set(cns::COMMAND_SET_NAMESPACE, SEGMENTED, csi::NVM));
    assert_eq!(world.data, vec![0; 4096]);
    let zoned = of_set(cns::COMMAND_SET_NAMESPACE, SEGMENTED, csi::ZONED);
    assert_eq!(world.refused(&mut admin, zoned), Status::INVALID_FIELD);
    let changed = log_page(id::CHANGED_ZONES, SEGMENTED, 4096, 0);
    assert_eq!(world.refused(&mut admin, changed), Status::INVALID_LOG_PAGE);
    assert_eq!(world.refused(&mut admin, command(admin::GEOMETRY, SEGMENTED, [0; 6])), Status::INVALID_FIELD);
}

#[test]
fn segments_that_take_no_more_writes_are_a_write_protected_namespace() {
    let (mut world, mut admin, _) = world();
    world.drives.health.is_read_only = true;
    world.ok(&mut admin, identify(cns::NAMESPACE, SEGMENTED));
    assert_eq!(world.data[99], 1);
}

#[test]
fn commands_of_blocks_become_what_the_drive_is_to_do() {
    let (mut world, _, mut queue) = world();
    let mut check = |entry, expected| assert_eq!(world.io(&mut queue, entry).map(|io| io.command), Ok(expected));
    let bytes = |blocks: u64| blocks * BLOCK_BYTES as u64;
    let (volatile, durable) = (Durability::Volatile, Durability::Durable);
    // Over the end of a segment: the drive knows where that is.
    let span = Span { offset: bytes(46), length: bytes(4) };
    let write = |durability| IoCommand::Write { span, durability, handle: Handle::NONE };
    check(ranged(io::WRITE, SEGMENTED, 46, 4), write(volatile));
    check(with(ranged(io::WRITE, SEGMENTED, 46, 4), 12, 1 << 30), write(durable));
    check(ranged(io::READ, SEGMENTED, 46, 4), IoCommand::Read(span));
    check(ranged(io::COMPARE, SEGMENTED, 46, 4), IoCommand::Compare(span));
    check(ranged(io::VERIFY, SEGMENTED, 46, 4), IoCommand::Verify(span));
    check(command(io::FLUSH, SEGMENTED, [0; 6]), IoCommand::Flush);
    let deallocate = command(io::DATASET_MANAGEMENT, SEGMENTED, [1, 4, 0, 0, 0, 0]);
    check(deallocate, IoCommand::DatasetManagement { ranges: 2, deallocate: true });
}

#[test]
fn commands_that_segments_do_not_have_are_refused() {
    let (mut world, _, mut queue) = world();
    let half = |mut entry: SubmissionEntry, half: u8| {
        entry.flags |= half;
        entry
    };
    let unknown = Status::INVALID_OPCODE;
    for (what, entry, status) in [
        ("Write Zeroes", ranged(io::WRITE_ZEROES, SEGMENTED, 0, 1), unknown),
        ("one that deallocates", with(ranged(io::WRITE_ZEROES, SEGMENTED, 0, 48), 12, 1 << 25), unknown),
        ("Write Uncorrectable", ranged(io::WRITE_UNCORRECTABLE, SEGMENTED, 0, 1), unknown),
        ("Copy", command(io::COPY, SEGMENTED, [0; 6]), unknown),
        ("Zone Append", ranged(io::ZONE_APPEND, SEGMENTED, 0, 1), unknown),
        ("Zone Management Send", command(io::ZONE_SEND, SEGMENTED, [0, 0, 0, 4, 0, 0]), unknown),
        ("Zone Management Receive", command(io::ZONE_RECEIVE, SEGMENTED, [0, 0, 1023, 0, 0, 0]), unknown),
        ("a vector command", command(io::VECTOR_READ, SEGMENTED, [0; 6]), unknown),
        ("FlashAlloc", command(io::FLASH_ALLOC, SEGMENTED, [0; 6]), unknown),
        ("I/O Management Send", command(io::MANAGEMENT_SEND, SEGMENTED, [1, 0, 0, 0, 0, 0]), unknown),
        ("Compare of a pair", half(ranged(io::COMPARE, SEGMENTED, 0, 1), 1), Status::INVALID_FIELD),
        ("Write of a pair", half(ranged(io::WRITE, SEGMENTED, 0, 1), 2), Status::INVALID_FIELD),
        ("a write beyond the namespace", ranged(io::WRITE, SEGMENTED, 4799, 2), Status::LBA_OUT_OF_RANGE),
        ("a write longer than MDTS", ranged(io::WRITE, SEGMENTED, 0, 257), Status::INVALID_FIELD),
    ] {
        assert_eq!(world.io(&mut queue, entry).map(|io| io.command), Err(status), "{what}");
    }
    // The block namespace beside them has those of blocks.
    assert!(world.io(&mut queue, ranged(io::WRITE_ZEROES, 1, 0, 1)).is_ok());
}

#[test]
fn a_write_out_of_order_ends_with_the_write_pointer_in_its_completion_and_in_the_error_log() {
    let (mut world, mut admin, mut queue) = world();
    let mut check = |error: AppendError, code: u16, result: u64, logged: u64| {
        let entry = world.name(ranged(io::WRITE, SEGMENTED, 50, 4));
        let name = CommandId(entry.command_id.get());
        queue.begin(name).unwrap();
        world.target.io(world.now, &queue, &entry).expect("the drive is to say what it thinks of it");
        let refusal = segmented(SHAPE).failure(IoError::from(error), 50 * BLOCK_BYTES as u64);
        let answer = world.target.failed(&queue, &entry, refusal);
        let completion = queue.complete(name, answer);
        // Not to be sent again, and the log has more.
        assert_eq!((completion.status().field(), completion.result.get()), (code | 3 << 13, result), "{error}");
        world.ok(&mut admin, log_page(id::ERRORS, u32::MAX, 64, 0));
        let log = &world.data;
        let found = [number(log, 8, 2), number(log, 10, 2), number(log, 12, 2) >> 1 & 0x7ff, number(log, 16, 8)];
        assert_eq!(found, [1, u64::from(entry.command_id.get()), u64::from(code), logged], "{error}");
        assert_eq!((number(log, 24, 4), number(log, 31, 1)), (u64::from(SEGMENTED), u64::from(io::WRITE)));
    };
    check(AppendError::Overwrite { first: 50, expected: 61 }, 0x7c0, 61, 61);
    // Of a full segment it is the block behind it, which for the last one does not exist.
    check(AppendError::Overwrite { first: 50, expected: 4800 }, 0x7c0, 4800, 4800);
    check(AppendError::Gap { first: 50, expected: 48 }, 0x7c1, 48, 48);
    check(AppendError::Gap { first: 50, expected: 0 }, 0x7c1, 0, 0);
    // These name the block that the command begins with.
    check(AppendError::Crossing { first: 50, end: 54, boundary: 52 }, 0x7c2, 0, 50);
    check(AppendError::TooManyOpen { limit: 8 }, 0x7c3, 0, 50);
    check(AppendError::SegmentReadOnly { boundary: 96 }, 0x7c4, 0, 50);
}
