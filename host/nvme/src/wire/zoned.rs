//! The bits of zoned namespaces (ZNS: NVM Express Zoned Namespace Command Set Specification 1.1).

use super::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// ZSA, bits 7 to 0 of dword 13 of Zone Management Send.
pub mod action {
    /// "Close Zone".
    pub const CLOSE: u8 = 0x01;
    /// "Finish Zone".
    pub const FINISH: u8 = 0x02;
    /// "Open Zone".
    pub const OPEN: u8 = 0x03;
    /// "Reset Zone".
    pub const RESET: u8 = 0x04;
    /// "Offline Zone".
    pub const OFFLINE: u8 = 0x05;
    /// "Flush Explicit ZRWA Range": SLBA is the last block that is committed.
    pub const FLUSH_ZRWA: u8 = 0x11;
    /// "Set Zone Descriptor Extension": the command brings ZDES × 64 bytes.
    pub const SET_EXTENSION: u8 = 0x10;
}

/// Dword 13 of Zone Management Send, bit 8: all zones, wherever SLBA is.
pub const SELECT_ALL: u32 = 1 << 8;
/// Dword 13 of Zone Management Send, bit 9: ZRWAA.
pub const ALLOCATE_ZRWA: u32 = 1 << 9;

/// ZRA, bits 7 to 0 of dword 13 of Zone Management Receive, 00h: "Report Zones".
pub const REPORT_ZONES: u8 = 0x00;
/// ZRA 01h: "Extended Report Zones", in which the extension of each zone is behind its descriptor.
pub const EXTENDED_REPORT: u8 = 0x01;
/// Dword 13 of Zone Management Receive, bit 16: the number of zones is that of the descriptors that fit.
pub const PARTIAL_REPORT: u32 = 1 << 16;

/// ZRASF, bits 15 to 8 of dword 13 of Zone Management Receive, 00h: zones in any state. The others are those of [`state`], counted from
/// 01h.
pub const FILTER_ALL: u8 = 0x00;

/// Dword 13 of Zone Management Receive for zones in any state, as many as fit.
pub const REPORT_OF_ALL: u32 = REPORT_ZONES as u32 | (FILTER_ALL as u32) << 8 | PARTIAL_REPORT;

/// ZS, bits 7 to 4 of byte 1 of a zone descriptor.
pub mod state {
    /// Empty.
    pub const EMPTY: u8 = 0x1;
    /// Implicitly opened.
    pub const IMPLICITLY_OPEN: u8 = 0x2;
    /// Explicitly opened.
    pub const EXPLICITLY_OPEN: u8 = 0x3;
    /// Closed.
    pub const CLOSED: u8 = 0x4;
    /// Read only.
    pub const READ_ONLY: u8 = 0xd;
    /// Full.
    pub const FULL: u8 = 0xe;
    /// Offline.
    pub const OFFLINE: u8 = 0xf;
}

/// ZA, byte 2 of a zone descriptor.
pub mod attribute {
    /// Bit 0, ZFC: "Zone Finished by Controller". No zone of ours says so: only hosts finish zones.
    pub const FINISHED_BY_CONTROLLER: u8 = 1 << 0;
    /// Bit 1, FZR: "Finish Zone Recommended", of a zone that is open or closed.
    pub const FINISH_RECOMMENDED: u8 = 1 << 1;
    /// Bit 2, RZR: "Reset Zone Recommended", of a full zone.
    pub const RESET_RECOMMENDED: u8 = 1 << 2;
    /// Bit 3, ZRWAV: "ZRWA Valid": the zone has a random write area.
    pub const ZRWA_VALID: u8 = 1 << 3;
    /// Bit 7, ZDEV: "Zone Descriptor Extension Valid": the host has set one since the zone was last empty.
    pub const EXTENSION_VALID: u8 = 1 << 7;
}

/// ZT, bits 3 to 0 of byte 0 of a zone descriptor: sequential write required, the only one that there is.
pub const SEQUENTIAL_WRITE_REQUIRED: u8 = 0x2;

/// Identify Namespace of the Zoned Namespace command set, CNS 05h.
#[derive(FromBytes, IntoBytes, Unaligned, Immutable, Clone, Copy)]
#[repr(C)]
pub struct ZonedNamespace {
    /// 0: ZOC.
    pub operation: U16,
    /// 2: OZCS.
    pub optional: U16,
    /// 4: MAR, 0-based.
    pub active_max: U32,
    /// 8: MOR, 0-based.
    pub open_max: U32,
    /// 12: RRL and FRL, in seconds; 0: never.
    pub recommended_limits: [U32; 2],
    /// 20: RRL1 to RRL3, FRL1 to FRL3.
    pub more_limits: [U32; 6],
    /// 44: NUMZRWA, 0-based.
    pub zrwa_max: U32,
    /// 48: ZRWAFG and ZRWASZ, blocks.
    pub zrwa_blocks: [U16; 2],
    /// 52: ZRWACAP.
    pub zrwa_capabilities: u8,
    /// 53.
    pub reserved_53: [u8; 2763],
    /// 2816: LBAFE0 to LBAFE63, one for each LBA format.
    pub formats: [ZoneFormat; 64],
    /// 3840.
    pub vendor: [u8; 256],
}

/// What a format of blocks means for zones ("LBA Format Extension").
#[derive(FromBytes, IntoBytes, Unaligned, Immutable, Clone, Copy, Default)]
#[repr(C)]
pub struct ZoneFormat {
    /// 0: ZSZE, blocks from one zone to the next.
    pub size: U64,
    /// 8: ZDES, in units of 64 bytes.
    pub extension_units: u8,
    /// 9.
    pub reserved: [u8; 7],
}

/// Identify Controller of the Zoned Namespace command set, CNS 06h.
#[derive(FromBytes, IntoBytes, Unaligned, Immutable, Clone, Copy)]
#[repr(C)]
pub struct ZonedController {
    /// 0: ZASL, as MDTS; 0: an append may be as long as any transfer.
    pub append_pages_max_log2: u8,
    /// 1.
    pub reserved: [u8; 4095],
}

/// Head of a report of zones.
#[derive(FromBytes, IntoBytes, Unaligned, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
pub struct ReportHead {
    /// 0: zones that match, or descriptors that follow.
    pub zones: U64,
    /// 8.
    pub reserved: [u8; 56],
}

/// One zone in a report ("Zone Descriptor").
#[derive(FromBytes, IntoBytes, Unaligned, Immutable, KnownLayout, Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct ZoneDescriptor {
    /// 0: ZT in bits 3 to 0.
    pub kind: u8,
    /// 1: ZS in bits 7 to 4.
    pub state: u8,
    /// 2: ZA, bits of [`attribute`].
    pub attributes: u8,
    /// 3: ZAI: which of several limits of a recommendation; 0: there is one.
    pub attributes_information: u8,
    /// 4.
    pub reserved: [u8; 4],
    /// 8: ZCAP, blocks.
    pub capacity: U64,
    /// 16: ZSLBA.
    pub first: U64,
    /// 24: WP; all ones where it means nothing.
    pub write_pointer: U64,
    /// 32.
    pub reserved_32: [u8; 32],
}

impl ZonedNamespace {
    /// OZCS, bit 1: zones can have a random write area.
    pub const ZRWA_SUPPORTED: u16 = 1 << 1;
    /// ZRWACAP, bit 0: hosts can commit blocks of it.
    pub const EXPLICIT_FLUSH: u8 = 1 << 0;
}

impl ZoneDescriptor {
    /// WP of a zone that cannot be written.
    pub const NO_WRITE_POINTER: u64 = u64::MAX;
}

/// The most zones of a changed zone list.
pub const CHANGED_ZONES_MAX: usize = 511;

/// "Changed Zone List", log page BFh.
#[derive(FromBytes, IntoBytes, Unaligned, Immutable, Clone, Copy)]
#[repr(C)]
pub struct ChangedZones {
    /// 0: how many; [`ChangedZones::OVERFLOW`]: more than there is room for, and none is named.
    pub count: U16,
    /// 2.
    pub reserved: [u8; 6],
    /// 8: ZSLBA of each.
    pub zones: [U64; CHANGED_ZONES_MAX],
}

impl ChangedZones {
    /// More zones have changed than the list has room for.
    pub const OVERFLOW: u16 = 0xffff;
}

const _: () = {
    assert!(size_of::<ZonedNamespace>() == 4096);
    assert!(size_of::<ZonedController>() == 4096);
    assert!(size_of::<ReportHead>() == 64);
    assert!(size_of::<ZoneDescriptor>() == 64);
    assert!(size_of::<ChangedZones>() == 4096);
};

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    #[test]
    fn the_fields_lie_where_their_comments_say() {
        assert_eq!(offset_of!(ZonedNamespace, open_max), 8);
        assert_eq!(offset_of!(ZonedNamespace, recommended_limits), 12);
        assert_eq!(offset_of!(ZonedNamespace, zrwa_max), 44);
        assert_eq!(offset_of!(ZonedNamespace, zrwa_capabilities), 52);
        assert_eq!(offset_of!(ZonedNamespace, formats), 2816);
        assert_eq!(offset_of!(ZonedNamespace, vendor), 3840);
        assert_eq!(offset_of!(ZoneDescriptor, capacity), 8);
        assert_eq!(offset_of!(ZoneDescriptor, write_pointer), 24);
        assert_eq!(offset_of!(ChangedZones, zones), 8);
    }

    #[test]
    fn a_zone_lies_on_the_wire_as_the_specification_draws_it() {
        let zone = ZoneDescriptor {
            kind: SEQUENTIAL_WRITE_REQUIRED,
            state: state::CLOSED << 4,
            attributes: 0,
            attributes_information: 0,
            reserved: [0; 4],
            capacity: 3.into(),
            first: 4.into(),
            write_pointer: 5.into(),
            reserved_32: [0; 32],
        };
        let mut golden = [0; 64];
        golden[..2].copy_from_slice(&[0x02, 0x40]);
        (golden[8], golden[16], golden[24]) = (3, 4, 5);
        assert_eq!(zone.as_bytes(), golden);
    }
}
