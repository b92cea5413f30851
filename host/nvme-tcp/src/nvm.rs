//! The submission queue entries of the few commands that a host's own tools need behind those of [`fabrics`].
//!
//! [`fabrics`]: crate::fabrics

use crate::SUBMISSION_BYTES;

/// Opcodes of the Admin Queue (Base, "Admin Command Set").
mod admin {
    pub const GET_LOG_PAGE: u8 = 0x02;
    pub const IDENTIFY: u8 = 0x06;
    pub const SET_FEATURES: u8 = 0x09;
    pub const KEEP_ALIVE: u8 = 0x18;
    pub const DIRECTIVE_SEND: u8 = 0x19;
    /// Open-Channel 2.0, "Geometry".
    pub const GEOMETRY: u8 = 0xe2;
}

/// Opcodes of the NVM Command Set, "Opcodes for NVM Commands".
mod io {
    pub const FLUSH: u8 = 0x00;
    pub const WRITE: u8 = 0x01;
    pub const READ: u8 = 0x02;
    pub const MANAGEMENT_RECEIVE: u8 = 0x12;
    /// ZNS, "Zone Management Send command".
    pub const ZONE_SEND: u8 = 0x79;
    /// ZNS, "Zone Management Receive command".
    pub const ZONE_RECEIVE: u8 = 0x7a;
    /// ZNS, "Zone Append command".
    pub const ZONE_APPEND: u8 = 0x7d;
}

/// FID of Number of Queues (Base, "Set Features Command").
const NUMBER_OF_QUEUES: u32 = 0x07;

/// Bytes of every Identify data structure (Base, "Identify Command").
pub const IDENTIFY_BYTES: usize = 4096;

/// The most blocks of one Read or Write: NLB has 16 bits, 0-based.
pub const BLOCKS_MAX: u32 = 1 << 16;

/// Consecutive logical blocks of a namespace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Blocks {
    /// NSID.
    pub namespace: u32,
    /// SLBA: the first.
    pub first: u64,
    /// How many, 1 to [`BLOCKS_MAX`].
    pub count: u32,
}

/// Where in which log page (Base, "Get Log Page command").
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogPart {
    /// LID.
    pub page: u8,
    /// NSID: of a namespace, or [`ALL_NAMESPACES`].
    pub namespace: u32,
    /// LPO: the first byte, a multiple of 4.
    pub offset: u64,
}

/// NSID that stands for the controller, or for all of its namespaces.
pub const ALL_NAMESPACES: u32 = 0xffff_ffff;

/// FUA: bit 30 of CDW12 (NVM, "Write command"; ZNS, "Zone Append command").
const FORCE_UNIT_ACCESS: u32 = 1 << 30;

fn entry(opcode: u8, namespace: u32, dwords: [u32; 3]) -> [u8; SUBMISSION_BYTES] {
    let mut entry = [0; SUBMISSION_BYTES];
    entry[0] = opcode;
    entry[4..8].copy_from_slice(&namespace.to_le_bytes());
    // CDW10 on (Base, "Common Command Format").
    for (field, dword) in entry[40..].chunks_exact_mut(4).zip(dwords) {
        field.copy_from_slice(&dword.to_le_bytes());
    }
    entry
}

fn blocks_entry(opcode: u8, blocks: Blocks) -> [u8; SUBMISSION_BYTES] {
    assert!((1..=BLOCKS_MAX).contains(&blocks.count), "a command has 1 to {BLOCKS_MAX} blocks");
    let dwords = [blocks.first as u32, (blocks.first >> 32) as u32, blocks.count - 1];
    entry(opcode, blocks.namespace, dwords)
}

/// Identify, of the structure that CNS `structure` stands for.
#[must_use]
pub fn identify(structure: u8, namespace: u32) -> [u8; SUBMISSION_BYTES] {
    entry(admin::IDENTIFY, namespace, [structure.into(), 0, 0])
}

/// The same, of the command set that CSI `command_set` stands for (bits 31 to 24 of CDW11).
#[must_use]
pub fn identify_of_set(structure: u8, namespace: u32, command_set: u8) -> [u8; SUBMISSION_BYTES] {
    entry(admin::IDENTIFY, namespace, [structure.into(), u32::from(command_set) << 24, 0])
}

/// Get Log Page, `bytes` of it, a multiple of 4.
#[must_use]
pub fn get_log_page(part: LogPart, bytes: u32) -> [u8; SUBMISSION_BYTES] {
    assert!(bytes > 0 && bytes.is_multiple_of(4), "a log page is read in dwords");
    let dwords = bytes / 4 - 1;
    let parameters = [u32::from(part.page) | dwords << 16, dwords >> 16, part.offset as u32];
    let mut entry = entry(admin::GET_LOG_PAGE, part.namespace, parameters);
    entry[52..56].copy_from_slice(&((part.offset >> 32) as u32).to_le_bytes());
    entry
}

/// Geometry, of an Open-Channel namespace.
#[must_use]
pub fn geometry(namespace: u32) -> [u8; SUBMISSION_BYTES] {
    entry(admin::GEOMETRY, namespace, [0; 3])
}

/// Set Features, Number of Queues: as many for submission as for completion, at least 1. The completion says how many
/// there will be: see [`queues_granted`].
#[must_use]
pub fn set_number_of_queues(queues: u16) -> [u8; SUBMISSION_BYTES] {
    let queues = u32::from(queues.checked_sub(1).expect("there is at least one queue"));
    entry(admin::SET_FEATURES, 0, [NUMBER_OF_QUEUES, queues << 16 | queues, 0])
}

/// How many queues of both kinds a controller grants.
#[must_use]
pub fn queues_granted(specific: u64) -> u32 {
    let (submission, completion) = (specific as u16, (specific >> 16) as u16);
    u32::from(submission.min(completion)) + 1
}

/// Keep Alive; [`KeepAlive`](crate::keep_alive::KeepAlive) says when.
#[must_use]
pub fn keep_alive() -> [u8; SUBMISSION_BYTES] {
    entry(admin::KEEP_ALIVE, 0, [0; 3])
}

/// Read.
#[must_use]
pub fn read(blocks: Blocks) -> [u8; SUBMISSION_BYTES] {
    blocks_entry(io::READ, blocks)
}

/// Write.
#[must_use]
pub fn write(blocks: Blocks) -> [u8; SUBMISSION_BYTES] {
    blocks_entry(io::WRITE, blocks)
}

/// Write, complete only when it is durable (FUA).
#[must_use]
pub fn durable_write(blocks: Blocks) -> [u8; SUBMISSION_BYTES] {
    durable(blocks_entry(io::WRITE, blocks))
}

fn durable(mut entry: [u8; SUBMISSION_BYTES]) -> [u8; SUBMISSION_BYTES] {
    entry[51] |= (FORCE_UNIT_ACCESS >> 24) as u8;
    entry
}

/// Zone Append: `blocks` begin with the first block of the zone, wherever its data end. The first block that they
/// got is the command specific part of the completion (ALBA).
#[must_use]
pub fn zone_append(blocks: Blocks) -> [u8; SUBMISSION_BYTES] {
    blocks_entry(io::ZONE_APPEND, blocks)
}

/// Zone Append, complete only when it is durable (FUA).
#[must_use]
pub fn durable_zone_append(blocks: Blocks) -> [u8; SUBMISSION_BYTES] {
    durable(zone_append(blocks))
}

/// A zone, or the zones from it on, to the commands that manage zones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ZonePlace {
    /// NSID.
    pub namespace: u32,
    /// SLBA: the first block of the zone.
    pub first: u64,
}

/// Zone Management Send. `action` is CDW13: the action, and whether it is for all zones.
#[must_use]
pub fn zone_send(place: ZonePlace, action: u32) -> [u8; SUBMISSION_BYTES] {
    zone_entry(io::ZONE_SEND, place, 0, action)
}

/// Zone Management Receive, `bytes` of it, a multiple of 4. `action` is CDW13: the report, and of which zones.
#[must_use]
pub fn zone_receive(place: ZonePlace, action: u32, bytes: u32) -> [u8; SUBMISSION_BYTES] {
    assert!(bytes > 0 && bytes.is_multiple_of(4), "a report is read in dwords");
    zone_entry(io::ZONE_RECEIVE, place, bytes / 4 - 1, action)
}

fn zone_entry(opcode: u8, place: ZonePlace, dword_12: u32, dword_13: u32) -> [u8; SUBMISSION_BYTES] {
    let ZonePlace { namespace, first } = place;
    let mut entry = entry(opcode, namespace, [first as u32, (first >> 32) as u32, dword_12]);
    entry[52..56].copy_from_slice(&dword_13.to_le_bytes());
    entry
}

/// What a write says of how long its data live: which others end together with them (Base, "Directives").
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lifetime {
    /// Those of this stream, from 1 on: the Streams directive.
    Stream(u16),
    /// Those of this placement identifier: the Data Placement directive.
    Placement(u16),
}

impl Lifetime {
    /// DTYPE and DSPEC.
    fn directive(self) -> (u32, u16) {
        match self {
            Lifetime::Stream(stream) => (1, stream),
            Lifetime::Placement(identifier) => (2, identifier),
        }
    }
}

/// Directive Send, Enable Directive: the namespace heeds what writes say in this way. Refused if it cannot.
#[must_use]
pub fn enable_directive(namespace: u32, lifetime: Lifetime) -> [u8; SUBMISSION_BYTES] {
    const ENABLE_DIRECTIVE: u32 = 1;
    entry(admin::DIRECTIVE_SEND, namespace, [0, ENABLE_DIRECTIVE, lifetime.directive().0 << 8 | 1])
}

/// The same write, with what it says of its data.
#[must_use]
pub fn directed(mut write: [u8; SUBMISSION_BYTES], lifetime: Lifetime) -> [u8; SUBMISSION_BYTES] {
    let (kind, specific) = lifetime.directive();
    // DTYPE, bits 23 to 20 of CDW12; DSPEC, bits 31 to 16 of CDW13.
    write[50] |= (kind << 4) as u8;
    write[54..56].copy_from_slice(&specific.to_le_bytes());
    write
}

/// Bytes of the head of Reclaim Unit Handle Status.
pub const HANDLE_STATUS_BYTES: usize = 16;

/// I/O Management Receive: the head of Reclaim Unit Handle Status, which says how many placement identifiers there are. See
/// [`placement_identifiers`].
#[must_use]
pub fn handle_status(namespace: u32) -> [u8; SUBMISSION_BYTES] {
    const RECLAIM_UNIT_HANDLE_STATUS: u32 = 1;
    let dwords = HANDLE_STATUS_BYTES as u32 / 4 - 1;
    entry(io::MANAGEMENT_RECEIVE, namespace, [RECLAIM_UNIT_HANDLE_STATUS, dwords, 0])
}

/// NRUHSD of that head.
#[must_use]
pub fn placement_identifiers(head: &[u8]) -> u16 {
    u16::from_le_bytes([head[14], head[15]])
}

/// Flush.
#[must_use]
pub fn flush(namespace: u32) -> [u8; SUBMISSION_BYTES] {
    entry(io::FLUSH, namespace, [0; 3])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_say_namespace_first_block_and_blocks() {
        let blocks = Blocks { namespace: 3, first: 0x0102_0304_0506_0708, count: 256 };
        let mut golden = [0; 64];
        (golden[0], golden[4]) = (0x02, 3);
        golden[40..52].copy_from_slice(&[8, 7, 6, 5, 4, 3, 2, 1, 255, 0, 0, 0]);
        assert_eq!(read(blocks), golden);
        golden[0] = 0x01;
        assert_eq!(write(blocks), golden);
        golden[51] = 0x40;
        assert_eq!(durable_write(blocks), golden);
        assert_eq!((flush(3)[0], flush(3)[4]), (0x00, 3));
        let identify = identify(1, 0);
        assert_eq!((identify[0], identify[40]), (0x06, 1));
        assert_eq!(keep_alive()[0], 0x18);
    }

    #[test]
    fn an_identify_of_a_command_set_says_which() {
        let mut golden = [0; 64];
        (golden[0], golden[4], golden[40], golden[47]) = (0x06, 3, 0x05, 0x02);
        assert_eq!(identify_of_set(0x05, 3, 0x02), golden);
    }

    #[test]
    fn an_append_names_the_zone_and_how_many_blocks() {
        let blocks = Blocks { namespace: 3, first: 0x0102_0304_0506_0708, count: 256 };
        let mut golden = [0; 64];
        (golden[0], golden[4]) = (0x7d, 3);
        golden[40..52].copy_from_slice(&[8, 7, 6, 5, 4, 3, 2, 1, 255, 0, 0, 0]);
        assert_eq!(zone_append(blocks), golden);
        golden[51] = 0x40;
        assert_eq!(durable_zone_append(blocks), golden);
    }

    #[test]
    fn zones_are_managed_by_their_first_block_and_dword_13() {
        let place = ZonePlace { namespace: 3, first: 0x0102_0304_0506_0708 };
        let mut golden = [0; 64];
        (golden[0], golden[4]) = (0x79, 3);
        golden[40..48].copy_from_slice(&[8, 7, 6, 5, 4, 3, 2, 1]);
        golden[52..56].copy_from_slice(&[0x04, 0x01, 0, 0]);
        assert_eq!(zone_send(place, 0x0104), golden);
        golden[0] = 0x7a;
        golden[48..56].copy_from_slice(&[0x0f, 0x04, 0, 0, 0x00, 0x03, 0x01, 0]);
        assert_eq!(zone_receive(place, 0x0001_0300, (0x40f + 1) * 4), golden);
    }

    #[test]
    fn a_write_says_how_long_its_data_live() {
        let blocks = Blocks { namespace: 3, first: 7, count: 256 };
        let mut golden = durable_write(blocks);
        golden[50] = 0x10;
        golden[54..56].copy_from_slice(&[0x34, 0x12]);
        assert_eq!(directed(durable_write(blocks), Lifetime::Stream(0x1234)), golden);
        golden[50] = 0x20;
        assert_eq!(directed(durable_write(blocks), Lifetime::Placement(0x1234)), golden);
        let mut golden = [0; 64];
        (golden[0], golden[4]) = (0x19, 3);
        golden[40..52].copy_from_slice(&[0, 0, 0, 0, 1, 0, 0, 0, 1, 2, 0, 0]);
        assert_eq!(enable_directive(3, Lifetime::Placement(9)), golden);
        let status = handle_status(3);
        assert_eq!((status[0], &status[40..48]), (0x12, &[1, 0, 0, 0, 3, 0, 0, 0][..]));
        assert_eq!(placement_identifiers(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 1]), 0x108);
    }

    #[test]
    fn a_log_page_is_asked_for_in_dwords_from_an_offset() {
        let part = LogPart { page: 0x70, namespace: ALL_NAMESPACES, offset: 0x0102_0304_0506_0708 };
        let entry = get_log_page(part, (0x1_0003 + 1) * 4);
        let mut golden = [0; 64];
        golden[0] = 0x02;
        golden[4..8].fill(0xff);
        golden[40..56].copy_from_slice(&[0x70, 0, 3, 0, 1, 0, 0, 0, 8, 7, 6, 5, 4, 3, 2, 1]);
        assert_eq!(entry, golden);
        assert_eq!((geometry(2)[0], geometry(2)[4]), (0xe2, 2));
    }

    #[test]
    fn the_number_of_queues_is_0_based_both_ways() {
        let set = set_number_of_queues(8);
        assert_eq!((set[0], &set[40..48]), (0x09, &[7, 0, 0, 0, 7, 0, 7, 0][..]));
        assert_eq!(queues_granted(0x0003_0007), 4);
        assert_eq!(queues_granted(0xffff_ffff), 65_536);
    }
}
