//! Key-value namespaces as hosts meet them: what they say of themselves, every command and every wrong field of it.

use crate::harness::*;
use openftl_nvme::command::ValueCommand;
use openftl_nvme::command::values::refusal_of;
use openftl_nvme::wire::U32;
use openftl_nvme::wire::identify::{cns, csi};
use openftl_nvme::wire::log::id;
use openftl_nvme::wire::opcode::{admin, io};
use openftl_nvme::{CommandId, IoCommand, Namespace, NamespaceKind, Queue, Status, SubmissionEntry, ValueShape};
use openftl_parts::target::{Durability, IoError};
use openftl_parts::words::ReadOnlyReason;
use openftl_values::{Condition, Key, ValueError};

const DRIVE: u32 = 7;
const SHORT_KEYS: u32 = 8;
const SHAPE: ValueShape = ValueShape { capacity_bytes: 100 << 20, keys_max: 1000, key_max: 16, drive_value_max: 4096 };

fn number(data: &[u8], at: usize, bytes: usize) -> u64 {
    data[at..at + bytes].iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

fn world() -> (World, Queue, Queue) {
    let mut world = World::new();
    let namespace = |id: u32, shape| Namespace { id, uuid: [id as u8; 16], kind: NamespaceKind::Values(shape) };
    world.target.attach(0, namespace(DRIVE, SHAPE)).unwrap();
    world.target.attach(0, namespace(SHORT_KEYS, ValueShape { key_max: 8, ..SHAPE })).unwrap();
    let admin = world.ready();
    let io = world.connect_io(&admin, 1);
    (world, admin, io)
}

fn of_set(structure: u8, namespace: u32, specific: u32, command_set: u8) -> SubmissionEntry {
    let dwords = [u32::from(structure), specific | u32::from(command_set) << 24, 0, 0, 0, 0];
    command(admin::IDENTIFY, namespace, dwords)
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

fn key(bytes: &[u8]) -> Key {
    Key::new(bytes).unwrap()
}

fn store(bytes: u32, condition: Condition) -> ValueCommand {
    ValueCommand::Store { key: key(b"hello"), bytes, condition, durability: Durability::Volatile }
}

#[test]
fn a_key_value_namespace_says_what_it_holds_in_the_structures_of_its_command_set() {
    let (mut world, mut admin, _) = world();
    world.ok(&mut admin, of_set(cns::COMMAND_SET_NAMESPACE, DRIVE, 0, csi::VALUES));
    let check = |what, at, bytes, expected| assert_eq!(number(&world.data, at, bytes), expected, "{what}");
    check("NSZE, bytes", 0, 8, SHAPE.capacity_bytes);
    check("NUSE, bytes", 16, 8, 8 << 20);
    check("NKVF, KVFC", 25, 1, 0);
    check("KVFC", 29, 1, 0);
    check("KVKML", 72, 2, 16);
    check("KVVML", 76, 4, 4096);
    check("MNKS", 80, 4, 1000);
    check("the next format", 88, 8, 0);
    world.ok(&mut admin, of_set(cns::COMMAND_SET_CONTROLLER, 0, 0, csi::VALUES));
    assert_eq!((world.data.len(), number(&world.data, 0, 8)), (4096, 0x0001_0300), "VER");
    world.ok(&mut admin, of_set(cns::COMMAND_SET_FORMAT, 0, 0, csi::VALUES));
    assert_eq!([0, 72, 76].map(|at| number(&world.data, at, 2)), [0, 16, 4096]);
    // What Linux asks for before it makes a character device of a namespace.
    world.ok(&mut admin, identify(cns::INDEPENDENT_NAMESPACE, DRIVE));
    assert_eq!(world.data[14], 1, "it is ready");
    world.ok(&mut admin, identify(cns::NAMESPACE_DESCRIPTORS, DRIVE));
    assert_eq!(number(&world.data, 20, 8), 0x01_0000_0104, "a UUID, and the command set");
}

#[test]
fn no_value_is_longer_than_a_transfer_whatever_the_drive_takes() {
    let shape = ValueShape { drive_value_max: 8 << 20, ..SHAPE };
    assert_eq!(shape.value_max(), 1 << 20);
}

#[test]
fn a_key_value_namespace_is_listed_under_its_command_set_and_has_no_blocks() {
    let (mut world, mut admin, _) = world();
    world.ok(&mut admin, of_set(cns::COMMAND_SET_ACTIVE_NAMESPACES, 0, 0, csi::VALUES));
    assert_eq!([0, 4, 8].map(|at| number(&world.data, at, 4)), [DRIVE.into(), SHORT_KEYS.into(), 0]);
    world.ok(&mut admin, of_set(cns::COMMAND_SET_ACTIVE_NAMESPACES, 0, 0, csi::NVM));
    assert_eq!([0, 4, 8].map(|at| number(&world.data, at, 4)), [1, 2, 0]);
    for structure in [cns::NAMESPACE, cns::ALLOCATED_NAMESPACE] {
        assert_eq!(world.refused(&mut admin, identify(structure, DRIVE)), Status::INVALID_COMMAND_SET);
    }
    for set in [csi::NVM, csi::ZONED, csi::OPEN_CHANNEL, csi::PAGES] {
        let refused = world.refused(&mut admin, of_set(cns::COMMAND_SET_NAMESPACE, DRIVE, 0, set));
        assert_eq!(refused, Status::INVALID_FIELD, "{set:#x}");
    }
    for refused in [
        of_set(cns::COMMAND_SET_NAMESPACE, 1, 0, csi::VALUES),
        of_set(cns::COMMAND_SET_FORMAT, 0, 1, csi::VALUES),
        of_set(cns::COMMAND_SET_FORMAT, 0, 0, csi::ZONED),
        command(admin::GEOMETRY, DRIVE, [0; 6]),
        log_page(id::CHUNKS, DRIVE, 4096, 0),
    ] {
        assert_eq!(world.refused(&mut admin, refused), Status::INVALID_FIELD, "{refused:?}");
    }
}

#[test]
fn the_effects_log_has_the_commands_of_the_set_with_the_directions_that_linux_goes_by() {
    let (mut world, mut admin, _) = world();
    let mut page = log_page(id::EFFECTS, u32::MAX, 4096, 0);
    page.dwords_10_15[4] = U32::new(u32::from(csi::VALUES) << 24);
    world.ok(&mut admin, page);
    let entries = (0..256).map(|opcode| (opcode as u8, number(&world.data, 1024 + 4 * opcode, 4)));
    let supported: Vec<(u8, u64)> = entries.filter(|(_, entry)| *entry != 0).collect();
    let (store, delete) = (io::VALUE_STORE, io::VALUE_DELETE);
    let reading = [io::VALUE_RETRIEVE, io::VALUE_LIST, io::VALUE_EXIST].map(|opcode| (opcode, 1));
    let [register, report] = [io::RESERVATION_REGISTER, io::RESERVATION_REPORT].map(|opcode| (opcode, 1));
    let [acquire, release] = [io::RESERVATION_ACQUIRE, io::RESERVATION_RELEASE].map(|opcode| (opcode, 1));
    let expected = [
        &[(io::FLUSH, 1), (store, 0b11)][..],
        &reading[..2],
        &[register, report, (delete, 0b11), acquire],
        &reading[2..],
        &[release, (0x7f, 1)],
    ];
    assert_eq!(supported, expected.concat());
    let directions = [store, io::VALUE_RETRIEVE, io::VALUE_LIST, delete, io::VALUE_EXIST].map(|opcode| opcode & 3);
    assert_eq!(directions, [0b01, 0b10, 0b10, 0b00, 0b00]);
}

#[test]
fn four_commands_lie_on_the_wire_as_the_specification_numbers_their_fields() {
    let check = |command: ValueCommand, opcode, dwords: [u32; 8]| {
        let entry = command.entry(1);
        let [first, second] = entry.dwords_2_3.map(U32::get);
        let said = [10, 11, 12, 13, 14, 15].map(|dword| entry.dword(dword));
        assert_eq!((entry.opcode, [first, second]), (opcode, [dwords[0], dwords[1]]), "{command:?}");
        assert_eq!(said, dwords[2..], "{command:?}");
    };
    let (hello, long) = (key(b"hello"), key(b"0123456789abcdef"));
    check(store(5, Condition::IfMissing), 0x01, [0x6c6c_6568, 0x6f, 5, 0x205, 0, 0, 0, 0]);
    check(ValueCommand::Retrieve { key: hello, bytes: 4096 }, 0x02, [0x6c6c_6568, 0x6f, 4096, 5, 0, 0, 0, 0]);
    check(ValueCommand::Exist { key: hello }, 0x14, [0x6c6c_6568, 0x6f, 0, 5, 0, 0, 0, 0]);
    check(ValueCommand::List { from: None, bytes: 4096 }, 0x06, [0, 0, 4096, 0, 0, 0, 0, 0]);
    check(
        ValueCommand::Retrieve { key: long, bytes: 0 },
        0x02,
        [0x3332_3130, 0x3736_3534, 0, 16, 0, 0, 0x6261_3938, 0x6665_6463],
    );
}

#[test]
fn commands_are_what_they_were_written_as() {
    let (mut world, _, mut queue) = world();
    for command in [
        store(0, Condition::Always),
        store(4096, Condition::IfExists),
        store(1, Condition::IfMissing),
        ValueCommand::Retrieve { key: key(&[0; 16]), bytes: 1 << 20 },
        ValueCommand::Retrieve { key: key(&[0]), bytes: 0 },
        ValueCommand::List { from: None, bytes: 4 },
        ValueCommand::List { from: Some(key(b"a\0")), bytes: 1 << 20 },
        ValueCommand::Delete { key: key(b"a"), needs_key: false, durability: Durability::Volatile },
        ValueCommand::Exist { key: key(&[255; 16]) },
    ] {
        let parsed = world.io(&mut queue, command.entry(DRIVE)).map(|io| io.command);
        assert_eq!(parsed, Ok(IoCommand::Value(command)));
    }
    let flush = command(io::FLUSH, DRIVE, [0; 6]);
    assert_eq!(world.io(&mut queue, flush).map(|io| io.command), Ok(IoCommand::Flush));
    // What lies behind a key is none of it, and neither reserved fields nor a raw Retrieve change anything.
    let exist = with(with(ValueCommand::Exist { key: key(b"a") }.entry(DRIVE), 14, u32::MAX), 11, 0xffff << 16);
    let parsed = world.io(&mut queue, exist).map(|io| io.command);
    assert_eq!(parsed, Ok(IoCommand::Value(ValueCommand::Exist { key: key(b"a") })));
    let retrieve = ValueCommand::Retrieve { key: key(b"a"), bytes: 9 };
    let parsed = world.io(&mut queue, with(retrieve.entry(DRIVE), 11, 1 << 8)).map(|io| io.command);
    assert_eq!(parsed, Ok(IoCommand::Value(retrieve)));
    let parsed = world.io(&mut queue, with(store(1, Condition::Always).entry(DRIVE), 11, 1 << 10));
    assert_eq!(parsed.map(|io| io.command), Ok(IoCommand::Value(store(1, Condition::Always))));
}

#[test]
fn without_a_write_cache_stores_and_deletes_are_durable() {
    let (mut world, mut admin, mut queue) = world();
    world.ok(&mut admin, set_feature(6, 0, 0));
    let durability = Durability::Durable;
    let stored = ValueCommand::Store { key: key(b"hello"), bytes: 1, condition: Condition::Always, durability };
    let parsed = world.io(&mut queue, store(1, Condition::Always).entry(DRIVE)).map(|io| io.command);
    assert_eq!(parsed, Ok(IoCommand::Value(stored)));
    let delete = ValueCommand::Delete { key: key(b"hello"), needs_key: false, durability };
    let parsed = world.io(&mut queue, delete.entry(DRIVE)).map(|io| io.command);
    assert_eq!(parsed, Ok(IoCommand::Value(delete)));
}

#[test]
fn a_host_says_of_each_namespace_whether_a_delete_needs_its_key() {
    let (mut world, mut admin, mut queue) = world();
    let of = |namespace, mut entry: SubmissionEntry| {
        entry.namespace = U32::new(namespace);
        entry
    };
    let delete = |world: &mut World, queue: &mut Queue, namespace| {
        let durability = Durability::Volatile;
        let entry = ValueCommand::Delete { key: key(b"a"), needs_key: false, durability }.entry(namespace);
        match world.io(queue, entry).map(|io| io.command) {
            Ok(IoCommand::Value(ValueCommand::Delete { needs_key, .. })) => needs_key,
            other => panic!("{other:?}"),
        }
    };
    assert!(!delete(&mut world, &mut queue, DRIVE));
    world.ok(&mut admin, set_feature(0x20, DRIVE, 1));
    assert_eq!([DRIVE, SHORT_KEYS].map(|id| delete(&mut world, &mut queue, id)), [true, false]);
    let got = [DRIVE, SHORT_KEYS, u32::MAX].map(|id| world.ok(&mut admin, of(id, get_feature(0x20, 0))));
    assert_eq!(got, [1, 0, 0]);
    world.ok(&mut admin, set_feature(0x20, u32::MAX, 1));
    assert_eq!([DRIVE, SHORT_KEYS].map(|id| delete(&mut world, &mut queue, id)), [true; 2]);
    assert_eq!(world.ok(&mut admin, of(u32::MAX, get_feature(0x20, 0))), 1);
    assert_eq!(world.ok(&mut admin, of(DRIVE, get_feature(0x20, 1))), 0, "the default");
    assert_eq!(world.ok(&mut admin, of(DRIVE, get_feature(0x20, 3))), 0b110, "changeable, of each namespace");
    world.ok(&mut admin, set_feature(0x20, DRIVE, 0));
    assert_eq!([DRIVE, SHORT_KEYS].map(|id| delete(&mut world, &mut queue, id)), [false, true]);
    for namespace in [1, 9] {
        assert_eq!(world.refused(&mut admin, set_feature(0x20, namespace, 1)), Status::INVALID_FIELD, "{namespace}");
        assert_eq!(world.refused(&mut admin, of(namespace, get_feature(0x20, 0))), Status::INVALID_FIELD);
    }
}

#[test]
fn every_wrong_field_of_every_command_has_its_status() {
    let (mut world, _, mut queue) = world();
    let (field, length, sgl) = (Status::INVALID_FIELD, Status::DATA_SGL_LENGTH_INVALID, Status::SGL_TYPE_INVALID);
    let (key_size, value_size) = (Status::INVALID_KEY_SIZE, Status::INVALID_VALUE_SIZE);
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
    let write = store(100, Condition::Always).entry(DRIVE);
    let read = ValueCommand::Retrieve { key: key(b"hello"), bytes: 100 }.entry(DRIVE);
    let list = ValueCommand::List { from: Some(key(b"hello")), bytes: 100 }.entry(DRIVE);
    let exist = ValueCommand::Exist { key: key(b"hello") }.entry(DRIVE);
    let durability = Durability::Volatile;
    let delete = ValueCommand::Delete { key: key(b"hello"), needs_key: false, durability }.entry(DRIVE);
    let of = |namespace: u32, mut entry: SubmissionEntry| {
        entry.namespace = namespace.into();
        entry
    };
    for (what, entry, status) in [
        ("Store: both conditions", with(write, 11, 0b11 << 8), field),
        ("Store: reserved option", with(write, 11, 1 << 11), field),
        ("Store: reserved option, the last", with(write, 11, 1 << 15), field),
        ("Store: no key", set(write, 11, 0), key_size),
        ("Store: a key of 17 bytes", set(write, 11, 17), field),
        ("Store: a key of 255 bytes", set(write, 11, 255), field),
        ("Store: a key longer than the drive takes", of(SHORT_KEYS, set(write, 11, 9)), key_size),
        ("Store: a longer value than the drive takes", set(write, 10, 4097), value_size),
        ("Store: a longer value than 32 bits hold", set(write, 10, u32::MAX), value_size),
        ("Store: wrong key and wrong value: the key is first", set(set(write, 10, 4097), 11, 0), key_size),
        ("Store: wrong value and short SGL: the value is first", shorter(set(write, 10, 4097)), value_size),
        ("Store: fewer data than the value has", shorter(write), length),
        ("Store: an SGL of another kind", described(write, 0x40), sgl),
        ("Store: PRPs", flagged(write, 0), field),
        ("Store: metadata in an SGL", flagged(write, 0b1000_0000), field),
        ("Store: half of a pair", flagged(write, SubmissionEntry::PSDT_SGL | 1), field),
        ("Retrieve: reserved option", with(read, 11, 1 << 9), field),
        ("Retrieve: longer than MDTS", set(read, 10, (1 << 20) + 1), field),
        ("Retrieve: no key", set(read, 11, 0), key_size),
        ("Retrieve: a key of 17 bytes", set(read, 11, 17), field),
        ("Retrieve: a key longer than the drive takes", of(SHORT_KEYS, set(read, 11, 16)), key_size),
        ("Retrieve: an SGL that is shorter", shorter(read), length),
        ("Retrieve: into the capsule", described(read, 0x01), field),
        ("List: reserved option", with(list, 11, 1 << 8), field),
        ("List: no room for a number", set(list, 10, 3), field),
        ("List: no room at all", set(list, 10, 0), field),
        ("List: longer than MDTS", set(list, 10, (1 << 20) + 1), field),
        ("List: a key of 17 bytes", set(list, 11, 17), field),
        ("List: a key longer than the drive takes", of(SHORT_KEYS, set(list, 11, 9)), key_size),
        ("List: an SGL that is shorter", shorter(list), length),
        ("List: into the capsule", described(list, 0x01), field),
        ("Delete: an option", with(delete, 11, 1 << 8), field),
        ("Delete: no key", set(delete, 11, 0), key_size),
        ("Delete: a key of 17 bytes", set(delete, 11, 17), field),
        ("Exist: an option", with(exist, 11, 1 << 10), field),
        ("Exist: no key", set(exist, 11, 0), key_size),
        ("Exist: a key of 17 bytes", set(exist, 11, 17), field),
        ("Write Uncorrectable", command(io::WRITE_UNCORRECTABLE, DRIVE, [0; 6]), Status::INVALID_OPCODE),
        ("Dataset Management", command(io::DATASET_MANAGEMENT, DRIVE, [0, 4, 0, 0, 0, 0]), Status::INVALID_OPCODE),
        ("Zone Append", ranged(io::ZONE_APPEND, DRIVE, 0, 1), Status::INVALID_OPCODE),
        ("Write of pages", command(io::PAGE_WRITE, DRIVE, [0; 6]), Status::INVALID_OPCODE),
        ("a namespace that is not there", of(9, exist), field),
        ("no namespace", of(0, exist), Status::INVALID_NAMESPACE),
        ("all namespaces", of(u32::MAX, exist), field),
        ("all namespaces, deleted", of(u32::MAX, delete), field),
        ("Exist on a block namespace", of(1, exist), Status::INVALID_OPCODE),
        ("List of an Open-Channel namespace", of(5, list), Status::INVALID_OPCODE),
    ] {
        assert_eq!(world.io(&mut queue, entry).map(|io| io.command), Err(status), "{what}");
    }
}

#[test]
fn a_store_of_all_namespaces_is_a_wrong_field_where_all_are_key_value_ones() {
    let (mut world, _, mut queue) = world();
    let entry = |mut entry: SubmissionEntry| {
        entry.namespace = u32::MAX.into();
        entry
    };
    let write = entry(store(1, Condition::Always).entry(DRIVE));
    assert_eq!(world.io(&mut queue, write), Err(Status::INVALID_NAMESPACE), "block namespaces have that opcode, too");
    let others: Vec<u32> = (1..DRIVE).filter(|id| world.target.detach(0, *id).is_ok()).collect();
    assert!(!others.is_empty());
    assert_eq!(world.io(&mut queue, write), Err(Status::INVALID_FIELD));
}

#[test]
fn what_the_drive_refuses_is_in_the_completion_and_in_the_error_log() {
    let (mut world, mut admin, mut queue) = world();
    let mut check = |error: ValueError, code: u16| {
        let entry = world.name(store(5, Condition::Always).entry(DRIVE));
        let name = CommandId(entry.command_id.get());
        queue.begin(name).unwrap();
        world.target.io(world.now, &queue, &entry).expect("the drive is to say what it thinks of it");
        let answer = world.target.failed(&queue, &entry, refusal_of(error));
        let completion = queue.complete(name, answer);
        assert_eq!((completion.status().code(), completion.result.get()), (code, 0), "{error}");
        assert_eq!(error.status().map(u16::from).unwrap_or(code), code, "{error}");
        let is_transient = matches!(error, ValueError::Busy | ValueError::Log(_) | ValueError::Frames { .. });
        assert_eq!(completion.status().is_permanent(), !is_transient, "{error}");
        world.ok(&mut admin, log_page(id::ERRORS, u32::MAX, 64, 0));
        assert_eq!(number(&world.data, 12, 2) >> 1 & 0x7ff, u64::from(code), "{error}");
        assert_eq!(number(&world.data, 24, 4), DRIVE.into());
    };
    check(ValueError::Busy, 0x082);
    check(ValueError::CapacityExceeded { needed: 2, free: 1 }, 0x081);
    check(ValueError::KeysExceeded { most: 1 }, 0x081);
    check(ValueError::ValueSize { bytes: 2, most: 1 }, 0x085);
    check(ValueError::KeySize { bytes: 17, most: 16 }, 0x086);
    check(ValueError::NoKey, 0x087);
    check(ValueError::Unrecovered, 0x088);
    check(ValueError::KeyExists, 0x089);
    check(ValueError::ListSize { bytes: 3, frames: 1, most: 4096 }, 0x002);
    check(ValueError::ReadOnly(ReadOnlyReason::NoRoom), 0x182);
    check(ValueError::Log(IoError::QueueFull), 0x280);
    check(ValueError::Frames { bytes: 2, frames: 0 }, 0x006);
}
