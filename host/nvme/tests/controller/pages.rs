//! Stores of pages as hosts meet them: what they say of themselves, every command and every wrong field of it.

use crate::harness::*;
use openftl_core::BLOCK_BYTES;
use openftl_nvme::command::pages::{PageCommand, PagePart, refusal_of};
use openftl_nvme::wire::U32;
use openftl_nvme::wire::identify::{cns, csi};
use openftl_nvme::wire::log::id;
use openftl_nvme::wire::opcode::{admin, io};
use openftl_nvme::{CommandId, IoCommand, Namespace, NamespaceKind, PageShape, Queue, Status, SubmissionEntry};
use openftl_pages::StoreError;
use openftl_parts::target::Durability;

const STORE: u32 = 7;
const SHAPE: PageShape = PageShape { capacity_bytes: 100 << 20, page_bytes_max: 1 << 20 };

fn number(data: &[u8], at: usize, bytes: usize) -> u64 {
    data[at..at + bytes].iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

fn store() -> Namespace {
    Namespace { id: STORE, uuid: [7; 16], kind: NamespaceKind::Pages(SHAPE) }
}

fn world() -> (World, Queue, Queue) {
    let mut world = World::new();
    world.target.attach(0, store()).unwrap();
    let admin = world.ready();
    let io = world.connect_io(&admin, 1);
    (world, admin, io)
}

fn of_set(structure: u8, namespace: u32, command_set: u8) -> SubmissionEntry {
    command(admin::IDENTIFY, namespace, [u32::from(structure), u32::from(command_set) << 24, 0, 0, 0, 0])
}

/// With these bits of a dword set.
fn with(mut entry: SubmissionEntry, dword: usize, bits: u32) -> SubmissionEntry {
    let field = &mut entry.dwords_10_15[dword - 10];
    *field = U32::new(field.get() | bits);
    entry
}

/// With this value of a dword.
fn set(mut entry: SubmissionEntry, dword: usize, value: u32) -> SubmissionEntry {
    entry.dwords_10_15[dword - 10] = U32::new(value);
    entry
}

fn part(bytes: u32, commit: Option<Durability>) -> PageCommand {
    PageCommand::Write(PagePart { session: 3, wsn: 1 << 33 | 5, part: 9, bytes, commit })
}

const READ: PageCommand = PageCommand::Read { lpid: 0xfedc_ba98_7654_3210, offset: 77, bytes: 4096 };
const LIST: PageCommand = PageCommand::List { from: 1 << 40, bytes: 1024 };

#[test]
fn a_store_says_what_it_holds_and_that_it_has_no_blocks_of_others() {
    let (mut world, mut admin, _) = world();
    world.ok(&mut admin, identify(cns::NAMESPACE, STORE));
    let blocks = SHAPE.capacity_bytes / BLOCK_BYTES as u64;
    assert_eq!([0, 8].map(|at| number(&world.data, at, 8)), [blocks; 2], "NSZE, NCAP");
    assert_eq!(number(&world.data, 16, 8), (8 << 20) / BLOCK_BYTES as u64, "NUSE");
    assert_eq!(number(&world.data, 48, 16), u128::from(SHAPE.capacity_bytes) as u64, "NVMCAP");
    world.ok(&mut admin, of_set(cns::COMMAND_SET_NAMESPACE, STORE, csi::PAGES));
    let check = |what, at, bytes, expected| assert_eq!(number(&world.data, at, bytes), expected, "{what}");
    check("version", 0, 2, 1);
    check("window", 2, 2, 16);
    check("longest page, with its directory in a transfer", 4, 4, (1 << 20) - 32);
    check("capacity", 8, 8, SHAPE.capacity_bytes);
    check("longest transfer", 16, 4, 1 << 20);
    check("longest list", 20, 4, 64 << 10);
    world.ok(&mut admin, of_set(cns::COMMAND_SET_CONTROLLER, 0, csi::PAGES));
    assert_eq!(world.data, vec![0; 4096]);
    // What Linux asks for before it makes a character device of a namespace.
    world.ok(&mut admin, identify(cns::INDEPENDENT_NAMESPACE, STORE));
    assert_eq!(world.data[14], 1, "it is ready");
    world.ok(&mut admin, identify(cns::NAMESPACE_DESCRIPTORS, STORE));
    assert_eq!(number(&world.data, 20, 8), 0x31_0000_0104, "a UUID, and the command set");
}

#[test]
fn a_store_is_listed_under_its_own_command_set_and_refused_under_others() {
    let (mut world, mut admin, _) = world();
    world.ok(&mut admin, of_set(cns::COMMAND_SET_ACTIVE_NAMESPACES, 0, csi::PAGES));
    assert_eq!([0, 4].map(|at| number(&world.data, at, 4)), [STORE.into(), 0]);
    world.ok(&mut admin, of_set(cns::COMMAND_SET_ACTIVE_NAMESPACES, 0, csi::NVM));
    assert_eq!([0, 4, 8].map(|at| number(&world.data, at, 4)), [1, 2, 0]);
    world.ok(&mut admin, identify(cns::COMMAND_SETS, 0));
    assert_eq!(number(&world.data, 0, 8), 1 | 1 << 1 | 1 << 2 | 1 << 0x30 | 1 << 0x31);
    for set in [csi::NVM, csi::ZONED, csi::OPEN_CHANNEL] {
        let refused = world.refused(&mut admin, of_set(cns::COMMAND_SET_NAMESPACE, STORE, set));
        assert_eq!(refused, Status::INVALID_FIELD, "{set:#x}");
    }
    assert_eq!(world.refused(&mut admin, of_set(cns::COMMAND_SET_CONTROLLER, 0, 0x32)), Status::INVALID_FIELD);
    assert_eq!(world.refused(&mut admin, command(admin::GEOMETRY, STORE, [0; 6])), Status::INVALID_FIELD);
    assert_eq!(world.refused(&mut admin, log_page(id::CHUNKS, STORE, 4096, 0)), Status::INVALID_FIELD);
}

#[test]
fn the_effects_log_has_the_commands_of_pages_with_the_directions_that_linux_goes_by() {
    let (mut world, mut admin, _) = world();
    let mut page = log_page(id::EFFECTS, u32::MAX, 4096, 0);
    page.dwords_10_15[4] = U32::new(u32::from(csi::PAGES) << 24);
    world.ok(&mut admin, page);
    let entries = (0..256).map(|opcode| (opcode as u8, number(&world.data, 1024 + 4 * opcode, 4)));
    let supported: Vec<(u8, u64)> = entries.filter(|(_, entry)| *entry != 0).collect();
    let expected = [
        (io::FLUSH, 1),
        (io::RESERVATION_REGISTER, 1),
        (io::RESERVATION_REPORT, 1),
        (io::RESERVATION_ACQUIRE, 1),
        (io::RESERVATION_RELEASE, 1),
        (0x7f, 1),
        (io::PAGE_WRITE, 0b11),
        (io::PAGE_READ, 1),
        (io::PAGE_CONTROL, 1),
        (io::PAGE_REPORT, 1),
    ];
    assert_eq!(supported, expected);
    let directions = [io::PAGE_WRITE, io::PAGE_READ, io::PAGE_CONTROL, io::PAGE_REPORT].map(|opcode| opcode & 3);
    assert_eq!(directions, [0b01, 0b10, 0b01, 0b10]);
}

#[test]
fn commands_are_what_they_were_written_as() {
    let (mut world, _, mut queue) = world();
    let session = PageCommand::Session { session: u32::MAX };
    for command in [
        part(1 << 20, None),
        part(32, Some(Durability::Volatile)),
        part(32, Some(Durability::Durable)),
        part(0, Some(Durability::Durable)),
        READ,
        PageCommand::Read { lpid: 0, offset: u32::MAX, bytes: 1 },
        PageCommand::Open,
        PageCommand::Close { session: 1, forget: false },
        PageCommand::Close { session: 2, forget: true },
        PageCommand::Abort { session: 3, wsn: u64::MAX },
        PageCommand::Stat { lpid: u64::MAX },
        LIST,
        session,
        PageCommand::Store,
    ] {
        let parsed = world.io(&mut queue, command.entry(STORE)).map(|io| io.command);
        assert_eq!(parsed, Ok(IoCommand::Page(command)));
    }
    let flush = command(io::FLUSH, STORE, [0; 6]);
    assert_eq!(world.io(&mut queue, flush).map(|io| io.command), Ok(IoCommand::Flush));
}

#[test]
fn a_host_without_a_write_cache_commits_durably() {
    let (mut world, mut admin, mut queue) = world();
    world.ok(&mut admin, set_feature(6, 0, 0));
    let entry = part(32, Some(Durability::Volatile)).entry(STORE);
    let durable = part(32, Some(Durability::Durable));
    assert_eq!(world.io(&mut queue, entry).map(|io| io.command), Ok(IoCommand::Page(durable)));
}

#[test]
fn every_wrong_field_of_every_command_has_its_status() {
    let (mut world, _, mut queue) = world();
    let (field, length, sgl) = (Status::INVALID_FIELD, Status::DATA_SGL_LENGTH_INVALID, Status::SGL_TYPE_INVALID);
    let shorter = |mut entry: SubmissionEntry| {
        entry.data.length = (entry.data.length.get() - 1).into();
        entry
    };
    let described = |mut entry: SubmissionEntry, identifier: u8| {
        entry.data.identifier = identifier;
        entry
    };
    let flagged = |mut entry: SubmissionEntry, flags: u8| {
        entry.flags = flags;
        entry
    };
    let (write, commit) = (part(4096, None).entry(STORE), part(0, Some(Durability::Volatile)).entry(STORE));
    let read = READ.entry(STORE);
    let (open, close) = (PageCommand::Open.entry(STORE), PageCommand::Close { session: 1, forget: false }.entry(STORE));
    let abort = PageCommand::Abort { session: 1, wsn: 2 }.entry(STORE);
    let (stat, list) = (PageCommand::Stat { lpid: 1 }.entry(STORE), LIST.entry(STORE));
    let (session, all) = (PageCommand::Session { session: 1 }.entry(STORE), PageCommand::Store.entry(STORE));
    for (what, entry, status) in [
        ("Write: upper half of the session", set(write, 11, 1), field),
        ("Write: reserved flag 2", with(write, 13, 1 << 2), field),
        ("Write: reserved flag 15", with(write, 13, 1 << 15), field),
        ("Write: durable, and not the last part", with(write, 13, 2), field),
        ("Write: no data in a part that is not the last", set(write, 15, 0), field),
        ("Write: data too short for a change", set(write, 15, 31), field),
        ("a commit with data too short for a change", set(commit, 15, 8), field),
        ("Write: longer than MDTS", set(write, 15, (1 << 20) + 1), field),
        ("Write: an SGL that is shorter than the data", shorter(write), length),
        ("Write: an SGL of another kind", described(write, 0x40), sgl),
        ("Write: metadata in an SGL", flagged(write, 0b1000_0000), field),
        ("Write: half of a pair", flagged(write, SubmissionEntry::PSDT_SGL | 1), field),
        ("Read: no bytes", set(read, 12, 0), field),
        ("Read: longer than MDTS", set(read, 12, (1 << 20) + 1), field),
        ("Read: an SGL that is shorter", shorter(read), length),
        ("Read: data in the capsule", described(read, 0x01), field),
        ("Control: no such action", set(close, 13, 4), field),
        ("Control: action with upper bits", with(close, 13, 1 << 8), field),
        ("open: a longer identifier", set(open, 15, 17), field),
        ("open: no identifier", set(open, 15, 0), field),
        ("open: an SGL that is shorter", shorter(open), length),
        ("close: upper half of the session", set(close, 11, 1), field),
        ("close: data", set(close, 15, 16), field),
        ("abort: upper half of the session", set(abort, 11, 1), field),
        ("abort: data", set(abort, 15, 1), field),
        ("Report: nothing of this kind", set(stat, 13, 4), field),
        ("stat: fewer bytes than it has", set(stat, 12, 15), field),
        ("stat: longer than MDTS", set(stat, 12, (1 << 20) + 1), field),
        ("stat: an SGL that is shorter", shorter(stat), length),
        ("list: no room for a page", set(list, 12, 23), field),
        ("list: longer than it may be", set(list, 12, (64 << 10) + 1), field),
        ("list: an SGL that is shorter", shorter(list), length),
        ("session: upper half of its number", set(session, 11, 1), field),
        ("session: fewer bytes than it has", set(session, 12, 15), field),
        ("store: fewer bytes than it has", set(all, 12, 31), field),
        ("Write of blocks", ranged(io::WRITE, STORE, 0, 1), Status::INVALID_OPCODE),
        ("Read of blocks", ranged(io::READ, STORE, 0, 1), Status::INVALID_OPCODE),
        ("Dataset Management", command(io::DATASET_MANAGEMENT, STORE, [0, 4, 0, 0, 0, 0]), Status::INVALID_OPCODE),
        ("Zone Append", ranged(io::ZONE_APPEND, STORE, 0, 1), Status::INVALID_OPCODE),
        ("a vector command", command(io::VECTOR_READ, STORE, [0; 6]), Status::INVALID_OPCODE),
        ("FlashAlloc", command(io::FLASH_ALLOC, STORE, [0; 6]), Status::INVALID_OPCODE),
        ("A3h, which would go both ways", command(0xa3, STORE, [0; 6]), Status::INVALID_OPCODE),
        ("a namespace that is not there", READ.entry(8), field),
        ("no namespace", READ.entry(0), Status::INVALID_NAMESPACE),
        ("all namespaces", READ.entry(u32::MAX), Status::INVALID_NAMESPACE),
        ("Write of pages to a block namespace", part(4096, None).entry(1), Status::INVALID_OPCODE),
        ("Read of pages from an Open-Channel namespace", READ.entry(5), Status::INVALID_OPCODE),
    ] {
        assert_eq!(world.io(&mut queue, entry).map(|io| io.command), Err(status), "{what}");
    }
}

#[test]
fn what_the_store_refuses_is_in_the_completion_and_in_the_error_log() {
    let (mut world, mut admin, mut queue) = world();
    let mut check = |error: StoreError, change: u32, code: u16, result: u64| {
        let entry = world.name(part(4096, None).entry(STORE));
        let name = CommandId(entry.command_id.get());
        queue.begin(name).unwrap();
        world.target.io(world.now, &queue, &entry).expect("the store is to say what it thinks of it");
        let answer = world.target.failed(&queue, &entry, refusal_of(&error, change));
        let completion = queue.complete(name, answer);
        assert_eq!((completion.status().code(), completion.result.get()), (code, result), "{error}");
        assert_eq!(completion.status().is_permanent(), error != StoreError::Busy, "{error}");
        world.ok(&mut admin, log_page(id::ERRORS, u32::MAX, 64, 0));
        assert_eq!(number(&world.data, 12, 2) >> 1 & 0x7ff, u64::from(code), "{error}");
        assert_eq!((number(&world.data, 24, 4), world.data[31]), (STORE.into(), io::PAGE_WRITE));
    };
    let at = |change: u64, value: u64| change | value << 32;
    check(StoreError::Busy, 3, 0x082, 0);
    check(StoreError::Length { lpid: 1, bytes: 0, most: 4064 }, 3, 0x1d1, at(3, 4064));
    check(StoreError::NoSpace { lpid: 1, needed: 128, free: 64 << 40 }, 3, 0x081, at(3, u32::MAX.into()));
    check(StoreError::MapFull { slots: 64 }, 4, 0x1d2, at(4, 64));
    check(StoreError::BatchTooLong { most: 99 }, 5, 0x1d3, at(5, 99));
    check(StoreError::NoSession { session: 3 }, 0, 0x1d4, 0);
    check(StoreError::SessionOpen, 0, 0x1d5, 0);
    check(StoreError::TooManySessions { most: 42 }, 0, 0x1d6, 42);
    check(StoreError::Early { wsn: 30, last: 5 }, 0, 0x1d7, 5);
    check(StoreError::Repeated { wsn: 30 }, 0, 0x1d8, 0);
    check(StoreError::Late { wsn: 1, last: 1 << 33 }, 0, 0x1d9, 1 << 33);
    check(StoreError::Committing { wsn: 1 }, 0, 0x1da, 0);
    check(StoreError::Aborted, 0, 0x1db, 0);
    check(StoreError::Condition { lpid: u64::MAX }, 0, 0x1dc, u64::MAX);
    check(StoreError::NoPage { lpid: 1 }, 0, 0x1dd, 0);
    check(StoreError::Offset { lpid: 1, bytes: 10, offset: 10 }, 0, 0x1de, 10);
    check(StoreError::Unrecovered { lpid: 1 }, 0, 0x281, 0);
}
