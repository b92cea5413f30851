//! What a controller says of itself, checked as a host reads it: at byte offsets.

use crate::harness::*;
use openftl_nvme::wire::identify::cns;
use openftl_nvme::wire::opcode::admin;
use openftl_nvme::{Queue, Status, SubmissionEntry, SubsystemConfig};

fn number(data: &[u8], at: usize, bytes: usize) -> u64 {
    data[at..at + bytes].iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

fn ids(data: &[u8]) -> Vec<u64> {
    (0..1024).map(|index| number(data, 4 * index, 4)).take_while(|id| *id != 0).collect()
}

fn of_set(structure: u8, namespace: u32, command_set: u32) -> SubmissionEntry {
    command(admin::IDENTIFY, namespace, [u32::from(structure), command_set << 24, 0, 0, 0, 0])
}

fn ready() -> (World, Queue) {
    let mut world = World::new();
    let queue = world.ready();
    (world, queue)
}

#[test]
fn the_controller_says_what_hosts_ask_for_first() {
    let (mut world, mut queue) = ready();
    world.ok(&mut queue, identify(cns::CONTROLLER, 0));
    let data = &world.data;
    assert_eq!(data.len(), 4096);
    assert_eq!(&data[4..24], b"SN1                 ");
    assert_eq!(&data[24..31], b"OpenFTL");
    assert_eq!(&data[64..72], b"0.1.0   ");
    let check = |what, at, bytes, expected| assert_eq!(number(data, at, bytes), expected, "{what}");
    check("CMIC", 76, 1, 0);
    check("MDTS: 1 MiB", 77, 1, 8);
    check("CNTLID", 78, 2, 1);
    check("VER", 80, 4, 0x0002_0000);
    check("OAES: namespace notices", 92, 4, 1 << 8);
    check("CTRATT: 128-bit host id, traffic based keep alive, UUID list, MDTS", 96, 4, 1 | 1 << 6 | 1 << 9 | 1 << 16);
    check("CNTRLTYPE", 111, 1, 1);
    check("OACS", 256, 2, 0);
    check("AERL", 259, 1, 3);
    check("LPA", 261, 1, 0b110);
    check("ELPE", 262, 1, 63);
    check("KAS", 320, 2, 1);
    check("SQES, CQES", 512, 2, 0x4466);
    check("MAXCMD", 514, 2, 1024);
    check("NN", 516, 4, 64);
    check(
        "ONCS: compare, uncorrectable, DSM, zeroes, select, reservations, timestamp, verify, copy",
        520,
        2,
        0b1_1111_1111,
    );
    check("FUSES: Compare and Write", 522, 2, 1);
    check("VWC", 525, 1, 7);
    check("AWUN, AWUPF", 526, 4, 255 | 255 << 16);
    check("SGLS", 536, 4, 1 | 1 << 18 | 1 << 20 | 1 << 21);
    assert_eq!(&data[768..768 + SUBSYSTEM.len()], SUBSYSTEM.as_bytes());
    check("IOCCSZ: 64 bytes and 8 KiB of data", 1792, 4, (64 + 8192) / 16);
    check("IORCSZ", 1796, 4, 1);
    check("ICDOFF", 1800, 2, 0);
    check("MSDBD", 1803, 1, 1);
}

#[test]
fn a_shared_subsystem_says_so_and_namespaces_are_shared_by_hosts_in_any_case() {
    let mut world = World::with(SubsystemConfig { is_shared: true, ..config(SUBSYSTEM) });
    let mut queue = world.ready();
    world.ok(&mut queue, identify(cns::CONTROLLER, 0));
    assert_eq!(world.data[76], 0b10, "CMIC");
    world.ok(&mut queue, identify(cns::NAMESPACE, 1));
    assert_eq!(world.data[30], 1, "NMIC");
    let (mut world, mut queue) = ready();
    world.ok(&mut queue, identify(cns::NAMESPACE, 1));
    assert_eq!(
        world.data[30..32],
        [1, 0xfe],
        "NMIC, and RESCAP: every type, none of which is kept over a loss of power"
    );
    world.ok(&mut queue, identify(cns::INDEPENDENT_NAMESPACE, 5));
    assert_eq!(world.data[1..3], [1, 0xfe], "NMIC, RESCAP");
}

#[test]
fn a_namespace_of_4_kib_blocks_says_its_size_and_what_is_atomic() {
    let (mut world, mut queue) = ready();
    world.ok(&mut queue, identify(cns::NAMESPACE, 1));
    let data = &world.data;
    let check = |what, at, bytes, expected| assert_eq!(number(data, at, bytes), expected, "{what}");
    check("NSZE", 0, 8, CAPACITY / 4096);
    check("NCAP", 8, 8, CAPACITY / 4096);
    check("NUSE", 16, 8, (8 << 20) / 4096);
    check("NSFEAT", 24, 1, 0b1_0010);
    check("NLBAF, FLBAS", 25, 2, 1);
    check("DLFEAT", 33, 1, 0b1001);
    check("NAWUN, NAWUPF", 34, 4, 255 | 255 << 16);
    check("NACWU: fused pairs too", 38, 2, 255);
    check("NABSN, NABO, NABSPF", 40, 6, 0);
    check("NVMCAP", 48, 16, CAPACITY);
    check("NPWG, NPWA, NPDG, NPDA", 64, 8, 0);
    check("NOWS", 72, 2, 255);
    check("MSSRL", 74, 2, 256);
    check("MCL", 76, 4, 256);
    check("MSRC", 80, 1, 127);
    check("LBAF0: 4 KiB", 128, 4, 12 << 16);
    check("LBAF1: 512 bytes", 132, 4, 9 << 16 | 2 << 24);
}

#[test]
fn a_namespace_of_512_byte_blocks_counts_in_those() {
    let (mut world, mut queue) = ready();
    world.ok(&mut queue, identify(cns::NAMESPACE, 2));
    let data = &world.data;
    let check = |what, at, bytes, expected| assert_eq!(number(data, at, bytes), expected, "{what}");
    check("NSZE", 0, 8, CAPACITY / 512);
    check("FLBAS", 26, 1, 1);
    check("NAWUN, NAWUPF", 34, 4, 2040 | 2040 << 16);
    check("NPWG, NPWA, NPDG, NPDA: 4 KiB", 64, 8, 0x0007_0007_0007_0007);
    check("MCL", 76, 4, 2048);
}

#[test]
fn an_open_channel_namespace_has_its_out_of_band_bytes_behind_each_block() {
    let (mut world, mut queue) = ready();
    world.ok(&mut queue, identify(cns::NAMESPACE, 5));
    let data = &world.data;
    let check = |what, at, bytes, expected| assert_eq!(number(data, at, bytes), expected, "{what}");
    check("NSZE", 0, 8, 512);
    check("NSFEAT: DULBE", 24, 1, 0b100);
    check("NLBAF", 25, 1, 0);
    check("FLBAS: extended", 26, 1, 1 << 4);
    check("MC: extended", 27, 1, 1);
    check("LBAF0", 128, 4, 16 | 12 << 16);
    world.ok(&mut queue, command(admin::GEOMETRY, 5, [0; 6]));
    assert_eq!((world.data.len(), &world.data[64..68]), (4096, &[2, 0, 2, 0][..]));
    assert_eq!(world.refused(&mut queue, command(admin::GEOMETRY, 1, [0; 6])), Status::INVALID_FIELD);
}

#[test]
fn lists_name_the_namespaces_above_an_id() {
    let (mut world, mut queue) = ready();
    for (structure, after, expected) in [
        (cns::ACTIVE_NAMESPACES, 0, vec![1, 2, 5]),
        (cns::ACTIVE_NAMESPACES, 2, vec![5]),
        (cns::ACTIVE_NAMESPACES, 5, vec![]),
        (cns::ALLOCATED_NAMESPACES, 0, vec![1, 2, 5]),
        (cns::COMMAND_SET_ACTIVE_NAMESPACES, 0, vec![1, 2]),
        (cns::COMMAND_SET_ALLOCATED_NAMESPACES, 1, vec![2]),
    ] {
        world.ok(&mut queue, identify(structure, after));
        assert_eq!(ids(&world.data), expected, "{structure:#x} after {after}");
    }
    world.ok(&mut queue, of_set(cns::COMMAND_SET_ACTIVE_NAMESPACES, 0, 0x30));
    assert_eq!(ids(&world.data), [5]);
    for after in [0xffff_fffe, 0xffff_ffff] {
        assert_eq!(world.refused(&mut queue, identify(cns::ACTIVE_NAMESPACES, after)), Status::INVALID_NAMESPACE);
    }
}

#[test]
fn descriptors_name_a_namespace_for_good_and_its_command_set() {
    let (mut world, mut queue) = ready();
    world.ok(&mut queue, identify(cns::NAMESPACE_DESCRIPTORS, 5));
    let golden = [3, 16, 0, 0, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 4, 1, 0, 0, 0x30, 0, 0, 0, 0];
    assert_eq!(world.data[..29], golden);
    for id in [3, 65, 0xffff_ffff] {
        let refused = world.refused(&mut queue, identify(cns::NAMESPACE_DESCRIPTORS, id));
        assert_eq!(refused, Status::INVALID_NAMESPACE);
    }
}

#[test]
fn controllers_are_listed_with_what_they_have_attached() {
    let (mut world, mut queue) = ready();
    let _other = world.connect();
    world.ok(&mut queue, identify(cns::CONTROLLERS, 0));
    assert_eq!(world.data[..6], [2, 0, 1, 0, 2, 0]);
    world.ok(&mut queue, identify(cns::ATTACHED_CONTROLLERS, 5));
    assert_eq!(world.data[..6], [2, 0, 1, 0, 2, 0]);
    let from_two = command(admin::IDENTIFY, 0, [u32::from(cns::CONTROLLERS) | 2 << 16, 0, 0, 0, 0, 0]);
    world.ok(&mut queue, from_two);
    assert_eq!(world.data[..6], [1, 0, 2, 0, 0, 0]);
}

#[test]
fn an_id_without_a_namespace_has_zeroes_and_what_is_no_id_is_refused() {
    let (mut world, mut queue) = ready();
    for structure in [cns::NAMESPACE, cns::ALLOCATED_NAMESPACE, cns::COMMAND_SET_NAMESPACE, cns::INDEPENDENT_NAMESPACE]
    {
        world.ok(&mut queue, identify(structure, 3));
        assert_eq!(world.data, [0; 4096], "{structure:#x}");
        for id in [0, 65, 0xffff_ffff] {
            let refused = world.refused(&mut queue, identify(structure, id));
            assert_eq!(refused, Status::INVALID_NAMESPACE, "{structure:#x} of {id}");
        }
    }
}

#[test]
fn the_other_structures_are_there_too() {
    let (mut world, mut queue) = ready();
    world.ok(&mut queue, identify(cns::INDEPENDENT_NAMESPACE, 1));
    assert_eq!(world.data[14], 1, "NSTAT: ready");
    world.ok(&mut queue, identify(cns::COMMAND_SET_CONTROLLER, 0));
    assert_eq!(world.data, [0; 4096], "no limits");
    world.ok(&mut queue, identify(cns::COMMAND_SETS, 0));
    assert_eq!(number(&world.data, 0, 8), 1 | 1 << 1 | 1 << 2 | 1 << 0x30 | 1 << 0x31);
    world.ok(&mut queue, identify(cns::UUIDS, 0));
    assert_eq!((world.data[32], &world.data[48..52]), (0, &[0xc1, 0x94, 0xd5, 0x5b][..]));
    assert_eq!(world.refused(&mut queue, of_set(cns::COMMAND_SET_NAMESPACE, 5, 0)), Status::INVALID_FIELD);
    assert_eq!(world.refused(&mut queue, of_set(cns::COMMAND_SET_CONTROLLER, 0, 3)), Status::INVALID_FIELD);
    for unknown in [0x04, 0x14, 0x15, 0x18, 0x1d, 0xff] {
        assert_eq!(world.refused(&mut queue, identify(unknown, 0)), Status::INVALID_FIELD, "{unknown:#x}");
    }
}

#[test]
fn a_drive_that_takes_no_more_writes_has_write_protected_namespaces() {
    let (mut world, mut queue) = ready();
    world.drives.health.is_read_only = true;
    world.ok(&mut queue, identify(cns::NAMESPACE, 1));
    assert_eq!(world.data[99], 1);
}
