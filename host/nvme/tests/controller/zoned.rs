//! Zoned namespaces as hosts meet them: what they say of themselves, and the status of every wrong field.

use crate::harness::*;
use openftl_core::BLOCK_BYTES;
use openftl_nvme::command::{ZoneCommand, ZoneReport};
use openftl_nvme::wire::identify::{cns, csi};
use openftl_nvme::wire::log::id;
use openftl_nvme::wire::opcode::{admin, io};
use openftl_nvme::wire::{U32, feature};
use openftl_nvme::{
    BlockFormat, IoCommand, Namespace, NamespaceKind, Queue, Span, Status, SubmissionEntry, ZonedShape,
};
use openftl_parts::target::Durability;
use openftl_parts::words::Handle;
use openftl_zones::{Action, ZoneState};

const ZONED: u32 = 7;
const SHAPE: ZonedShape =
    ZonedShape { zones: 10, size: 64, capacity: 48, max_open: 3, max_active: 5, extension_bytes: 0, window_blocks: 0 };

fn number(data: &[u8], at: usize, bytes: usize) -> u64 {
    data[at..at + bytes].iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

fn world() -> (World, Queue, Queue) {
    let mut world = World::new();
    let zoned = Namespace { id: ZONED, uuid: [7; 16], kind: NamespaceKind::Zoned(SHAPE) };
    world.target.attach(0, zoned).unwrap();
    let admin = world.ready();
    let io = world.connect_io(&admin, 1);
    (world, admin, io)
}

fn of_set(structure: u8, namespace: u32, command_set: u8) -> SubmissionEntry {
    command(admin::IDENTIFY, namespace, [u32::from(structure), u32::from(command_set) << 24, 0, 0, 0, 0])
}

fn effects(command_set: u8) -> SubmissionEntry {
    let mut entry = log_page(id::EFFECTS, 0, 4096, 0);
    entry.dwords_10_15[4] = U32::new(u32::from(command_set) << 24);
    entry
}

fn send(first: u64, dword_13: u32) -> SubmissionEntry {
    command(io::ZONE_SEND, ZONED, [first as u32, (first >> 32) as u32, 0, dword_13, 0, 0])
}

fn receive(first: u64, bytes: u32, dword_13: u32) -> SubmissionEntry {
    command(io::ZONE_RECEIVE, ZONED, [first as u32, (first >> 32) as u32, bytes / 4 - 1, dword_13, 0, 0])
}

#[test]
fn a_limit_that_all_zones_are_below_is_none() {
    let limits = |max_open, max_active| {
        let mut world = World::new();
        let kind = NamespaceKind::Zoned(ZonedShape { max_open, max_active, ..SHAPE });
        world.target.attach(0, Namespace { id: ZONED, uuid: [7; 16], kind }).unwrap();
        let mut admin = world.ready();
        world.ok(&mut admin, of_set(cns::COMMAND_SET_NAMESPACE, ZONED, csi::ZONED));
        [4, 8].map(|at| number(&world.data, at, 4) as u32)
    };
    assert_eq!(limits(8, 9), [8, 7], "counted from 0");
    assert_eq!(limits(9, SHAPE.zones), [u32::MAX, 8]);
    assert_eq!(limits(SHAPE.zones, SHAPE.zones + 1), [u32::MAX; 2]);
}

#[test]
fn a_zoned_namespace_says_what_linux_looks_for() {
    let (mut world, mut admin, _) = world();
    world.ok(&mut admin, identify(cns::NAMESPACE, ZONED));
    let check = |data: &[u8], what, at, bytes, expected| assert_eq!(number(data, at, bytes), expected, "{what}");
    check(&world.data, "NSZE: whole zones", 0, 8, 640);
    check(&world.data, "NCAP: what can be written", 8, 8, 480);
    check(&world.data, "DLFEAT: zeroes", 33, 1, 1);
    check(&world.data, "NAWUPF: one block", 36, 2, 0);
    check(&world.data, "LBAF0: 4 KiB", 128, 4, 12 << 16);
    world.ok(&mut admin, of_set(cns::COMMAND_SET_NAMESPACE, ZONED, csi::ZONED));
    check(&world.data, "ZOC, OZCS: the capacity is fixed, reads end with the zone", 0, 4, 0);
    check(&world.data, "MAR", 4, 4, 4);
    check(&world.data, "MOR", 8, 4, 2);
    check(&world.data, "LBAFE0: ZSZE", 2816, 8, 64);
    check(&world.data, "LBAFE0: ZDES", 2824, 1, 0);
    world.ok(&mut admin, of_set(cns::COMMAND_SET_NAMESPACE, ZONED, csi::NVM));
    assert_eq!(world.data, vec![0; 4096], "it has that command set, too");
    world.ok(&mut admin, of_set(cns::COMMAND_SET_CONTROLLER, 0, csi::ZONED));
    check(&world.data, "ZASL: as MDTS", 0, 1, 0);
    world.ok(&mut admin, identify(cns::NAMESPACE_DESCRIPTORS, ZONED));
    check(&world.data, "a UUID, and the command set", 20, 8, 0x02_0000_0104);
    world.ok(&mut admin, of_set(cns::COMMAND_SET_ACTIVE_NAMESPACES, 0, csi::ZONED));
    check(&world.data, "the list of zoned namespaces", 0, 8, u64::from(ZONED));
    world.ok(&mut admin, identify(cns::COMMAND_SETS, 0));
    check(&world.data, "combination 0 has bit 2", 0, 1, 0b111);
    world.ok(&mut admin, identify(cns::CONTROLLER, 0));
    check(&world.data, "OAES: namespaces, zones", 92, 4, 1 << 8 | 1 << 27);
    check(&world.data, "AWUPF: of no namespace more", 528, 2, 0);
    assert_eq!(world.refused(&mut admin, of_set(cns::COMMAND_SET_NAMESPACE, 1, csi::ZONED)), Status::INVALID_FIELD);
}

#[test]
fn the_effects_of_the_command_set_are_those_of_zones_alone() {
    let (mut world, mut admin, _) = world();
    world.ok(&mut admin, effects(csi::ZONED));
    let entry = |world: &World, opcode: u8| number(&world.data, 1024 + 4 * usize::from(opcode), 4);
    for (opcode, expected) in [
        (io::READ, 1),
        (io::ZONE_RECEIVE, 1),
        (io::WRITE, 3),
        (io::ZONE_APPEND, 3),
        (io::ZONE_SEND, 3),
        (io::DATASET_MANAGEMENT, 0),
        (io::WRITE_ZEROES, 0),
        (io::COPY, 0),
    ] {
        assert_eq!(entry(&world, opcode), expected, "opcode {opcode:#x}");
    }
    world.ok(&mut admin, effects(csi::NVM));
    assert_eq!((entry(&world, io::ZONE_APPEND), entry(&world, io::WRITE_ZEROES)), (0, 3));
    assert_eq!(world.refused(&mut admin, effects(3)), Status::INVALID_FIELD);
}

#[test]
fn commands_become_what_the_drive_is_to_do() {
    let (mut world, _, mut queue) = world();
    let bytes = |blocks: u64| blocks * BLOCK_BYTES as u64;
    let mut check = |entry, expected| assert_eq!(world.io(&mut queue, entry).map(|io| io.command), Ok(expected));
    let fua = |mut entry: SubmissionEntry| {
        entry.dwords_10_15[2] = U32::new(entry.dword(12) | 1 << 30);
        entry
    };
    let (volatile, durable) = (Durability::Volatile, Durability::Durable);
    let span = Span { offset: bytes(130), length: bytes(4) };
    check(ranged(io::WRITE, ZONED, 130, 4), IoCommand::Write { span, durability: volatile, handle: Handle::NONE });
    check(ranged(io::READ, ZONED, 130, 4), IoCommand::Read(span));
    check(ranged(io::VERIFY, ZONED, 130, 4), IoCommand::Verify(span));
    let span = Span { offset: bytes(128), length: bytes(256) };
    let append = |durability| IoCommand::Zone(ZoneCommand::Append { span, durability });
    check(ranged(io::ZONE_APPEND, ZONED, 128, 256), append(volatile));
    check(fua(ranged(io::ZONE_APPEND, ZONED, 128, 256)), append(durable));
    let actions = [Action::Close, Action::Finish, Action::Open, Action::Reset, Action::Offline];
    for (code, action) in (1..).zip(actions) {
        check(send(192, code), IoCommand::Zone(ZoneCommand::Act { first: 192, action }));
        // Where SLBA is does not matter.
        check(send(191, 1 << 8 | code), IoCommand::Zone(ZoneCommand::ActOnAll { action }));
    }
    let report = ZoneReport { first: 3, state: None, is_partial: false, is_extended: false, bytes: 4096 };
    let said = |report| IoCommand::Zone(ZoneCommand::Report(report));
    check(receive(200, 4096, 0), said(report));
    check(receive(200, 4096, 1 << 16 | 4 << 8), {
        said(ZoneReport { state: Some(ZoneState::Closed), is_partial: true, ..report })
    });
    check(receive(0, 64, 7 << 8), {
        said(ZoneReport { first: 0, state: Some(ZoneState::Offline), bytes: 64, ..report })
    });
}

#[test]
fn extensions_are_set_and_reported_where_a_namespace_has_them() {
    let mut world = World::new();
    let shape = ZonedShape { extension_bytes: 192, ..SHAPE };
    let zoned = Namespace { id: ZONED, uuid: [7; 16], kind: NamespaceKind::Zoned(shape) };
    world.target.attach(0, zoned).unwrap();
    let mut admin = world.ready();
    let mut queue = world.connect_io(&admin, 1);
    world.ok(&mut admin, of_set(cns::COMMAND_SET_NAMESPACE, ZONED, csi::ZONED));
    assert_eq!(number(&world.data, 2824, 1), 3, "LBAFE0: ZDES");
    let command = ZoneCommand::Extend { first: 192, bytes: 192 };
    assert_eq!(world.io(&mut queue, send(192, 0x10)).map(|io| io.command), Ok(IoCommand::Zone(command)));
    let report = ZoneReport { first: 3, state: None, is_partial: false, is_extended: true, bytes: 4096 };
    let command = ZoneCommand::Report(report);
    assert_eq!(world.io(&mut queue, receive(200, 4096, 1)).map(|io| io.command), Ok(IoCommand::Zone(command)));
    for (what, entry, status) in [
        ("all zones", send(192, 1 << 8 | 0x10), Status::INVALID_FIELD),
        ("a random write area with it", send(192, 1 << 9 | 0x10), Status::INVALID_FIELD),
        ("inside a zone", send(193, 0x10), Status::INVALID_FIELD),
        ("beyond the namespace", send(640, 0x10), Status::LBA_OUT_OF_RANGE),
        ("an unknown report", receive(200, 4096, 2), Status::INVALID_FIELD),
    ] {
        assert_eq!(world.io(&mut queue, entry).map(|io| io.command), Err(status), "{what}");
    }
}

#[test]
fn zones_are_opened_with_a_random_write_area_where_a_namespace_has_them() {
    let mut world = World::new();
    let shape = ZonedShape { window_blocks: 16, ..SHAPE };
    let zoned = Namespace { id: ZONED, uuid: [7; 16], kind: NamespaceKind::Zoned(shape) };
    world.target.attach(0, zoned).unwrap();
    let mut admin = world.ready();
    let mut queue = world.connect_io(&admin, 1);
    world.ok(&mut admin, of_set(cns::COMMAND_SET_NAMESPACE, ZONED, csi::ZONED));
    let said = |world: &World, at, bytes| number(&world.data, at, bytes);
    assert_eq!(said(&world, 2, 2), 2, "OZCS: there are random write areas");
    assert_eq!(said(&world, 44, 4), 2, "NUMZRWA, 0-based: as many as zones that are open");
    assert_eq!((said(&world, 48, 2), said(&world, 50, 2), said(&world, 52, 1)), (1, 16, 1), "ZRWAFG, ZRWASZ, ZRWACAP");
    let mut check = |entry, command| {
        assert_eq!(world.io(&mut queue, entry).map(|io| io.command), Ok(IoCommand::Zone(command)));
    };
    check(send(192, 1 << 9 | 3), ZoneCommand::OpenWithWindow { first: 192 });
    check(send(192, 3), ZoneCommand::Act { first: 192, action: Action::Open });
    check(send(199, 0x11), ZoneCommand::Commit { last: 199 });
    for (what, entry, status) in [
        ("all zones", send(192, 1 << 9 | 1 << 8 | 3), Status::INVALID_FIELD),
        ("a zone that is closed", send(192, 1 << 9 | 1), Status::INVALID_FIELD),
        ("inside a zone", send(193, 1 << 9 | 3), Status::INVALID_FIELD),
        ("beyond the namespace", send(640, 1 << 9 | 3), Status::LBA_OUT_OF_RANGE),
        ("blocks of all zones", send(192, 1 << 8 | 0x11), Status::INVALID_FIELD),
        ("blocks beyond the namespace", send(640, 0x11), Status::LBA_OUT_OF_RANGE),
    ] {
        assert_eq!(world.io(&mut queue, entry).map(|io| io.command), Err(status), "{what}");
    }
}

#[test]
fn every_wrong_field_has_its_status() {
    let (mut world, _, mut queue) = world();
    let with = |mut entry: SubmissionEntry, dword: usize, bits: u32| {
        let field = &mut entry.dwords_10_15[dword - 10];
        *field = U32::new(field.get() | bits);
        entry
    };
    let append = |first, blocks| ranged(io::ZONE_APPEND, ZONED, first, blocks);
    for (what, entry, status) in [
        ("an append inside a zone", append(129, 1), Status::INVALID_FIELD),
        ("an append beyond the namespace", append(640, 1), Status::LBA_OUT_OF_RANGE),
        ("a longer append than ZASL", append(128, 257), Status::INVALID_FIELD),
        ("PIREMAP", with(append(128, 1), 12, 1 << 25), Status::INVALID_FIELD),
        ("PRINFO", with(append(128, 1), 12, 1 << 26), Status::INVALID_FIELD),
        ("a send inside a zone", send(65, 4), Status::INVALID_FIELD),
        ("a send beyond the namespace", send(640, 4), Status::LBA_OUT_OF_RANGE),
        ("no action", send(64, 0), Status::INVALID_FIELD),
        ("an unknown action", send(64, 6), Status::INVALID_FIELD),
        ("a descriptor extension", send(64, 0x10), Status::INVALID_FIELD),
        ("a commit of a random write area", send(64, 0x11), Status::INVALID_FIELD),
        ("a random write area", send(64, 1 << 9 | 3), Status::INVALID_FIELD),
        ("a report beyond the namespace", receive(640, 4096, 0), Status::LBA_OUT_OF_RANGE),
        ("a report without room for its head", receive(0, 60, 0), Status::INVALID_FIELD),
        ("a report longer than MDTS", receive(0, (1 << 20) + 4, 0), Status::INVALID_FIELD),
        ("an extended report", receive(0, 4096, 1), Status::INVALID_FIELD),
        ("an unknown filter", receive(0, 4096, 8 << 8), Status::INVALID_FIELD),
        ("Write Zeroes", ranged(io::WRITE_ZEROES, ZONED, 0, 1), Status::INVALID_OPCODE),
        ("Write Uncorrectable", ranged(io::WRITE_UNCORRECTABLE, ZONED, 0, 1), Status::INVALID_OPCODE),
        ("Dataset Management", command(io::DATASET_MANAGEMENT, ZONED, [0, 4, 0, 0, 0, 0]), Status::INVALID_OPCODE),
        ("Copy", command(io::COPY, ZONED, [0; 6]), Status::INVALID_OPCODE),
        ("a vector command", command(io::VECTOR_READ, ZONED, [0; 6]), Status::INVALID_OPCODE),
        ("a write beyond the namespace", ranged(io::WRITE, ZONED, 639, 2), Status::LBA_OUT_OF_RANGE),
        ("an append to a block namespace", ranged(io::ZONE_APPEND, 1, 0, 1), Status::INVALID_OPCODE),
    ] {
        assert_eq!(world.io(&mut queue, entry).map(|io| io.command), Err(status), "{what}");
    }
}

#[test]
fn zones_that_changed_by_themselves_are_an_event_and_a_log_page() {
    let (mut world, mut admin, _) = world();
    let page = log_page(id::CHANGED_ZONES, ZONED, 4096, 0);
    let all = feature::event::SMART | feature::event::NAMESPACE_ATTRIBUTE | feature::event::ZONE_CHANGED;
    world.ok(&mut admin, set_feature(feature::id::ASYNCHRONOUS_EVENTS, 0, all));
    for _ in 0..2 {
        assert!(world.run(&mut admin, event_request(), &[]).is_none());
    }
    world.target.zone_changed(0, ZONED, 64);
    world.target.zone_changed(0, ZONED, 128);
    let event = u64::from(ZONED) << 32 | 0x00bf_ef02;
    assert_eq!(world.events(&mut admin), [(Status::SUCCESS, event)]);
    for _ in 0..2 {
        world.ok(&mut admin, retained(page));
        assert_eq!([number(&world.data, 0, 2), number(&world.data, 8, 8), number(&world.data, 16, 8)], [2, 64, 128]);
    }
    world.target.zone_changed(0, ZONED, 192);
    assert_eq!(world.events(&mut admin), [], "told, and not read");
    world.ok(&mut admin, page);
    world.ok(&mut admin, page);
    assert_eq!(number(&world.data, 0, 2), 0, "it was read");
    world.target.zone_changed(0, ZONED, 256);
    assert_eq!(world.events(&mut admin), [(Status::SUCCESS, event)]);
    let others = [
        (log_page(id::CHANGED_ZONES, 1, 4096, 0), Status::INVALID_FIELD),
        (log_page(id::CHANGED_ZONES, 0, 4096, 0), Status::INVALID_NAMESPACE),
    ];
    for (entry, status) in others {
        assert_eq!(world.refused(&mut admin, entry), status);
    }
}

#[test]
fn without_zones_there_is_no_page_of_them() {
    let mut world = World::new();
    let mut admin = world.ready();
    world.target.attach(0, block(9, BlockFormat::FourKib)).unwrap();
    assert_eq!(world.refused(&mut admin, log_page(id::CHANGED_ZONES, 1, 4096, 0)), Status::INVALID_LOG_PAGE);
}
