//! Log pages (Base, "Get Log Page command").

use super::{U16, U32, U64, U128};
use zerocopy::{FromBytes, Immutable, IntoBytes, Unaligned};

/// Log page identifiers, bits 7 to 0 of dword 10.
pub mod id {
    /// "Supported Log Pages".
    pub const SUPPORTED_LOG_PAGES: u8 = 0x00;
    /// "Error Information".
    pub const ERRORS: u8 = 0x01;
    /// "SMART / Health Information".
    pub const SMART: u8 = 0x02;
    /// "Firmware Slot Information".
    pub const FIRMWARE: u8 = 0x03;
    /// "Changed Attached Namespace List".
    pub const CHANGED_NAMESPACES: u8 = 0x04;
    /// "Commands Supported and Effects".
    pub const EFFECTS: u8 = 0x05;
    /// "Endurance Group Information".
    pub const ENDURANCE_GROUP: u8 = 0x09;
    /// "Flexible Data Placement (FDP) Configurations".
    pub const PLACEMENT_CONFIGURATIONS: u8 = 0x20;
    /// "Reclaim Unit Handle Usage".
    pub const PLACEMENT_USAGE: u8 = 0x21;
    /// "FDP Statistics".
    pub const PLACEMENT_STATISTICS: u8 = 0x22;
    /// "FDP Events".
    pub const PLACEMENT_EVENTS: u8 = 0x23;
    /// "Discovery".
    pub const DISCOVERY: u8 = 0x70;
    /// "Reservation Notification".
    pub const RESERVATION_NOTIFICATION: u8 = 0x80;
    /// ZNS, "Changed Zone List".
    pub const CHANGED_ZONES: u8 = 0xbf;
    /// OCP, "SMART / Health Information Extended".
    pub const OCP_SMART: u8 = 0xc0;
    /// Open-Channel 2.0, "Chunk Information".
    pub const CHUNKS: u8 = 0xca;
    /// Open-Channel 2.0, "Chunk Notification".
    pub const CHUNK_NOTIFICATIONS: u8 = 0xd0;
}

/// Entry of "Supported Log Pages", bit 0: LSUPP.
pub const LOG_PAGE_SUPPORTED: u32 = 1 << 0;

/// Entry of "Commands Supported and Effects", bit 0: CSUPP.
pub const COMMAND_SUPPORTED: u32 = 1 << 0;
/// Entry of "Commands Supported and Effects", bit 1: LBCC, logical blocks may change.
pub const COMMAND_CHANGES_BLOCKS: u32 = 1 << 1;

/// One entry of "Error Information".
#[derive(FromBytes, IntoBytes, Unaligned, Immutable, Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct ErrorEntry {
    /// 0: counts from 1; an entry of zeroes is none.
    pub count: U64,
    /// 8.
    pub submission_queue: U16,
    /// 10.
    pub command_id: U16,
    /// 12: as in the completion.
    pub status: U16,
    /// 14: byte of the command in bits 7 to 0, bit in bits 10 to 8; FFFFh: none.
    pub parameter_location: U16,
    /// 16: the first block that failed.
    pub block: U64,
    /// 24.
    pub namespace: U32,
    /// 28.
    pub vendor: u8,
    /// 29: TRTYPE, of an error of the transport; 0 of any other.
    pub transport: u8,
    /// 30: CSI.
    pub command_set: u8,
    /// 31: OPC.
    pub opcode: u8,
    /// 32.
    pub command_specific: U64,
    /// 40.
    pub transport_specific: U16,
    /// 42.
    pub reserved: [u8; 21],
    /// 63: version of this layout, 1: [`ErrorEntry::command_set`] and [`ErrorEntry::opcode`] count.
    pub version: u8,
}

impl ErrorEntry {
    /// No place in the command is at fault.
    pub const NO_LOCATION: u16 = 0xffff;
}

/// "SMART / Health Information".
#[derive(FromBytes, IntoBytes, Unaligned, Immutable, Clone, Copy)]
#[repr(C)]
pub struct SmartLog {
    /// 0: [`warning`].
    pub critical_warning: u8,
    /// 1: kelvins.
    pub temperature: U16,
    /// 3: percent.
    pub available_spare: u8,
    /// 4: percent.
    pub available_spare_threshold: u8,
    /// 5: percent, may pass 100.
    pub percentage_used: u8,
    /// 6.
    pub endurance_group_warnings: u8,
    /// 7.
    pub reserved: [u8; 25],
    /// 32: thousands of 512 bytes, rounded up.
    pub data_units_read: U128,
    /// 48: the same of what was written.
    pub data_units_written: U128,
    /// 64.
    pub host_read_commands: U128,
    /// 80.
    pub host_write_commands: U128,
    /// 96: minutes.
    pub busy_minutes: U128,
    /// 112.
    pub power_cycles: U128,
    /// 128.
    pub power_on_hours: U128,
    /// 144.
    pub unsafe_shutdowns: U128,
    /// 160.
    pub media_errors: U128,
    /// 176.
    pub error_entries: U128,
    /// 192.
    pub reserved_2: [u8; 320],
}

/// Critical warnings of the SMART log.
pub mod warning {
    /// Bit 0: spare below its threshold.
    pub const SPARE: u8 = 1 << 0;
    /// Bit 1: temperature beyond a threshold.
    pub const TEMPERATURE: u8 = 1 << 1;
    /// Bit 2: reliability degraded.
    pub const RELIABILITY: u8 = 1 << 2;
    /// Bit 3: read-only.
    pub const READ_ONLY: u8 = 1 << 3;
}

/// "Firmware Slot Information".
#[derive(FromBytes, IntoBytes, Unaligned, Immutable, Clone, Copy)]
#[repr(C)]
pub struct FirmwareLog {
    /// 0: AFI, the active slot in bits 2 to 0.
    pub active: u8,
    /// 1.
    pub reserved: [u8; 7],
    /// 8: FRS1 to FRS7.
    pub revisions: [[u8; 8]; 7],
    /// 64.
    pub reserved_2: [u8; 448],
}

/// OCP, "SMART / Health Information Extended".
#[derive(FromBytes, IntoBytes, Unaligned, Immutable, Clone, Copy)]
#[repr(C)]
pub struct OcpSmartLog {
    /// 0: bytes.
    pub media_bytes_written: U128,
    /// 16: bytes.
    pub media_bytes_read: U128,
    /// 32: bad user NAND blocks.
    pub bad_user_blocks: [u8; 6],
    /// 38: percent of those that may still go bad.
    pub bad_user_blocks_normalized: U16,
    /// 40: bad system NAND blocks.
    pub bad_system_blocks: [u8; 6],
    /// 46.
    pub bad_system_blocks_normalized: U16,
    /// 48.
    pub xor_recoveries: U64,
    /// 56.
    pub uncorrectable_reads: U64,
    /// 64.
    pub soft_ecc_errors: U64,
    /// 72: detected, corrected.
    pub end_to_end_errors: [U32; 2],
    /// 80: percent.
    pub system_data_used: u8,
    /// 81.
    pub refreshes: [u8; 7],
    /// 88.
    pub erases_max: U32,
    /// 92.
    pub erases_min: U32,
    /// 96: events, current status.
    pub thermal_throttling: [u8; 2],
    /// 98: errata.
    pub specification_errata: u8,
    /// 99: point.
    pub specification_point: U16,
    /// 101: minor.
    pub specification_minor: U16,
    /// 103: major.
    pub specification_major: u8,
    /// 104.
    pub pcie_correctable_errors: U64,
    /// 112.
    pub incomplete_shutdowns: U32,
    /// 116.
    pub reserved: [u8; 4],
    /// 120.
    pub free_blocks_percent: u8,
    /// 121.
    pub reserved_2: [u8; 7],
    /// 128: percent; FFFFh: no capacitors.
    pub capacitor_health: U16,
    /// 130.
    pub errata_versions: [u8; 6],
    /// 136.
    pub unaligned_io: U64,
    /// 144.
    pub security_version: U64,
    /// 152: blocks.
    pub total_utilization: U64,
    /// 160.
    pub plp_starts: U128,
    /// 176: bytes.
    pub endurance_estimate: U128,
    /// 192.
    pub pcie_retrainings: U64,
    /// 200.
    pub power_state_changes: U64,
    /// 208.
    pub reserved_3: [u8; 286],
    /// 494: 3.
    pub version: U16,
    /// 496.
    pub guid: [u8; 16],
}

impl OcpSmartLog {
    /// AFD514C97C6F4F9CA4F2BFEA2810AFC5h.
    pub const GUID: [u8; 16] = 0xafd5_14c9_7c6f_4f9c_a4f2_bfea_2810_afc5_u128.to_le_bytes();
    /// The version of this layout.
    pub const VERSION: u16 = 3;
}

/// Answer to an Asynchronous Event Request, DW0 (Base, "Asynchronous Event Request command").
pub mod event {
    /// Type 1h, SMART / health status.
    pub const SMART: u32 = 1;
    /// Type 2h, notice.
    pub const NOTICE: u32 = 2;
    /// Type 6h, I/O command specific status.
    pub const IO_COMMAND: u32 = 6;
    /// Type 7h, vendor's own.
    pub const VENDOR: u32 = 7;
    /// SMART, 00h: reliability.
    pub const RELIABILITY: u32 = 0x00;
    /// SMART, 01h: temperature.
    pub const TEMPERATURE: u32 = 0x01;
    /// SMART, 02h: spare.
    pub const SPARE: u32 = 0x02;
    /// I/O command specific status, 00h: there is a notification about a reservation.
    pub const RESERVATION_LOG: u32 = 0x00;
    /// Notice, 00h: attached namespaces.
    pub const NAMESPACE_ATTRIBUTE: u32 = 0x00;
    /// Notice, EFh: zones have changed (ZNS).
    pub const ZONE_CHANGED: u32 = 0xef;
    /// Notice, F0h: the discovery log.
    pub const DISCOVERY_LOG: u32 = 0xf0;
}

const _: () = {
    assert!(size_of::<ErrorEntry>() == 64);
    assert!(size_of::<SmartLog>() == 512);
    assert!(size_of::<FirmwareLog>() == 512);
    assert!(size_of::<OcpSmartLog>() == 512);
};

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    #[test]
    fn an_error_lies_on_the_wire_as_the_specification_draws_it() {
        let entry = ErrorEntry {
            count: 1.into(),
            submission_queue: 2.into(),
            command_id: 3.into(),
            status: 0x8004.into(),
            parameter_location: 40.into(),
            block: 5.into(),
            namespace: 6.into(),
            transport: 3,
            opcode: 2,
            version: 1,
            ..ErrorEntry::default()
        };
        let mut golden = [0; 64];
        golden[..32].copy_from_slice(&[
            1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 3, 0, 4, 0x80, 40, 0, 5, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 3, 0, 2,
        ]);
        golden[63] = 1;
        assert_eq!(entry.as_bytes(), golden);
    }

    #[test]
    fn the_fields_of_both_health_logs_lie_where_their_comments_say() {
        assert_eq!(offset_of!(SmartLog, percentage_used), 5);
        assert_eq!(offset_of!(SmartLog, data_units_read), 32);
        assert_eq!(offset_of!(SmartLog, unsafe_shutdowns), 144);
        assert_eq!(offset_of!(SmartLog, error_entries), 176);
        assert_eq!(offset_of!(OcpSmartLog, bad_user_blocks_normalized), 38);
        assert_eq!(offset_of!(OcpSmartLog, uncorrectable_reads), 56);
        assert_eq!(offset_of!(OcpSmartLog, system_data_used), 80);
        assert_eq!(offset_of!(OcpSmartLog, erases_max), 88);
        assert_eq!(offset_of!(OcpSmartLog, specification_major), 103);
        assert_eq!(offset_of!(OcpSmartLog, incomplete_shutdowns), 112);
        assert_eq!(offset_of!(OcpSmartLog, free_blocks_percent), 120);
        assert_eq!(offset_of!(OcpSmartLog, capacitor_health), 128);
        assert_eq!(offset_of!(OcpSmartLog, total_utilization), 152);
        assert_eq!(offset_of!(OcpSmartLog, endurance_estimate), 176);
        assert_eq!(offset_of!(OcpSmartLog, version), 494);
        assert_eq!(OcpSmartLog::GUID[..4], [0xc5, 0xaf, 0x10, 0x28]);
    }
}
