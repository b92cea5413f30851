//! Flexible Data Placement (Base, "Flexible Data Placement"): its log pages, features and commands.

use super::{U16, U32, U64, U128};
use zerocopy::{FromBytes, Immutable, IntoBytes, Unaligned};

/// Head of "FDP Configurations".
#[derive(FromBytes, IntoBytes, Unaligned, Immutable, Clone, Copy)]
#[repr(C)]
pub struct ConfigurationsHead {
    /// 0: how many follow, 0-based.
    pub configurations: U16,
    /// 2.
    pub version: u8,
    /// 3.
    pub reserved_3: u8,
    /// 4: bytes of the page.
    pub bytes: U32,
    /// 8.
    pub reserved_8: [u8; 8],
}

/// "FDP Configuration Descriptor"; its [`HandleDescriptor`]s come behind it.
#[derive(FromBytes, IntoBytes, Unaligned, Immutable, Clone, Copy)]
#[repr(C)]
pub struct Configuration {
    /// 0: bytes, with what comes behind it.
    pub bytes: U16,
    /// 2: FDPA.
    pub attributes: u8,
    /// 3: bytes of a vendor's own.
    pub vendor_bytes: u8,
    /// 4: NRG.
    pub reclaim_groups: U32,
    /// 8: NRUH.
    pub handles: U16,
    /// 10: MAXPIDS, 0-based.
    pub identifiers_max: U16,
    /// 12: NNS.
    pub namespaces: U32,
    /// 16: RUNS, bytes of a reclaim unit.
    pub unit_bytes: U64,
    /// 24: ERUTL, seconds; 0: a unit may stay open for ever.
    pub unit_seconds: U32,
    /// 28.
    pub reserved_28: [u8; 36],
}

impl Configuration {
    /// FDPA bit 4: there is a volatile write cache.
    pub const WRITE_CACHE: u8 = 1 << 4;
    /// FDPA bit 7: the configuration is available.
    pub const VALID: u8 = 1 << 7;
}

/// "Reclaim Unit Handle Descriptor".
#[derive(FromBytes, IntoBytes, Unaligned, Immutable, Clone, Copy)]
#[repr(C)]
pub struct HandleDescriptor {
    /// 0: RUHT.
    pub isolation: u8,
    /// 1.
    pub reserved: [u8; 3],
}

impl HandleDescriptor {
    /// Initially isolated: what the controller moves may come together.
    pub const INITIALLY: u8 = 1;
    /// Persistently isolated: it stays apart.
    pub const PERSISTENTLY: u8 = 2;
}

/// Head of "Reclaim Unit Handle Usage".
#[derive(FromBytes, IntoBytes, Unaligned, Immutable, Clone, Copy)]
#[repr(C)]
pub struct UsageHead {
    /// 0: NRUH.
    pub handles: U16,
    /// 2.
    pub reserved: [u8; 6],
}

/// "Reclaim Unit Handle Usage Descriptor".
#[derive(FromBytes, IntoBytes, Unaligned, Immutable, Clone, Copy)]
#[repr(C)]
pub struct UsageDescriptor {
    /// 0: RUHA.
    pub usage: u8,
    /// 1.
    pub reserved: [u8; 7],
}

impl UsageDescriptor {
    /// A namespace uses the handle, as whoever made it said.
    pub const HOST_SPECIFIED: u8 = 1;
}

/// "FDP Statistics".
#[derive(FromBytes, IntoBytes, Unaligned, Immutable, Clone, Copy)]
#[repr(C)]
pub struct PlacementStatistics {
    /// 0: HBMW.
    pub host_bytes_written: U128,
    /// 16: MBMW.
    pub media_bytes_written: U128,
    /// 32: MBE.
    pub media_bytes_erased: U128,
    /// 48.
    pub reserved: [u8; 16],
}

/// Head of "FDP Events".
#[derive(FromBytes, IntoBytes, Unaligned, Immutable, Clone, Copy)]
#[repr(C)]
pub struct EventsHead {
    /// 0: how many follow.
    pub events: U32,
    /// 4.
    pub reserved: [u8; 60],
}

/// Log Specific Parameter of "FDP Events", bit 0: events that hosts caused, not those of the controller.
pub const HOST_EVENTS: u8 = 1 << 0;

/// "FDP Event".
#[derive(FromBytes, IntoBytes, Unaligned, Immutable, Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct PlacementEvent {
    /// 0: [`event`].
    pub kind: u8,
    /// 1: which of the fields count.
    pub flags: u8,
    /// 2: PID.
    pub identifier: U16,
    /// 4: as the Timestamp feature says it.
    pub timestamp: [u8; 8],
    /// 12: NSID.
    pub namespace: U32,
    /// 16: of an event of type 80h [`Reallocated`], otherwise zeroes.
    pub specific: [u8; 16],
    /// 32.
    pub reclaim_group: U16,
    /// 34: RUHID.
    pub handle: U16,
    /// 36.
    pub reserved: [u8; 4],
    /// 40.
    pub vendor: [u8; 24],
}

impl PlacementEvent {
    /// The placement identifier counts.
    pub const IDENTIFIER: u8 = 1 << 0;
    /// The namespace counts.
    pub const NAMESPACE: u8 = 1 << 1;
    /// Reclaim group and handle count.
    pub const LOCATION: u8 = 1 << 2;
}

/// "Media Reallocated Event Type Specific" (NVM).
#[derive(FromBytes, IntoBytes, Unaligned, Immutable, Clone, Copy)]
#[repr(C)]
pub struct Reallocated {
    /// 0: bit 0, LBAV: `first` counts.
    pub flags: u8,
    /// 1.
    pub reserved_1: u8,
    /// 2: NLBAM, blocks of the namespace that were moved; as many as FFFFh says, or more.
    pub blocks: U16,
    /// 4: LBA.
    pub first: U64,
    /// 12.
    pub reserved_12: [u8; 4],
}

impl Reallocated {
    /// The first block counts.
    pub const FIRST: u8 = 1 << 0;
}

/// Types of events that controllers here know. Those from 80h on are of the controller, the others of hosts.
pub mod event {
    /// "Reclaim Unit Not Fully Written To Capacity": a host left it before.
    pub const NOT_FULLY_WRITTEN: u8 = 0x00;
    /// "Reclaim Unit Time Limit Exceeded": no reclaim unit has one here, so it never happens.
    pub const TIME_LIMIT_EXCEEDED: u8 = 0x01;
    /// "Controller Level Reset Modified Reclaim Unit Handles": no reset does here, so it never happens.
    pub const RESET_MODIFIED: u8 = 0x02;
    /// "Invalid Placement Identifier": of a write.
    pub const INVALID_IDENTIFIER: u8 = 0x03;

    /// "Media Reallocated": the drive moved what was valid in a part of a reclaim unit.
    pub const REALLOCATED: u8 = 0x80;
    /// "Implicitly Modified Reclaim Unit Handle": the drive left its reclaim unit before it was full.
    pub const IMPLICITLY_MODIFIED: u8 = 0x81;

    /// All of them.
    pub const ALL: [u8; 6] =
        [NOT_FULLY_WRITTEN, TIME_LIMIT_EXCEEDED, RESET_MODIFIED, INVALID_IDENTIFIER, REALLOCATED, IMPLICITLY_MODIFIED];
}

/// MO, bits 7 to 0 of dword 10 of I/O Management Receive and Send.
pub mod operation {
    /// "No action".
    pub const NONE: u8 = 0x00;
    /// "Reclaim Unit Handle Status" (Receive), "Reclaim Unit Handle Update" (Send).
    pub const RECLAIM_UNIT_HANDLES: u8 = 0x01;
}

/// Head of "Reclaim Unit Handle Status".
#[derive(FromBytes, IntoBytes, Unaligned, Immutable, Clone, Copy)]
#[repr(C)]
pub struct HandleStatusHead {
    /// 0.
    pub reserved: [u8; 14],
    /// 14: NRUHSD.
    pub handles: U16,
}

/// "Reclaim Unit Handle Status Descriptor" (NVM).
#[derive(FromBytes, IntoBytes, Unaligned, Immutable, Clone, Copy)]
#[repr(C)]
pub struct HandleStatus {
    /// 0: PID.
    pub identifier: U16,
    /// 2: RUHID.
    pub handle: U16,
    /// 4: EARUTR, seconds; 0: not said.
    pub seconds_left: U32,
    /// 8: RUAMW, blocks of the namespace that can still be written to the unit.
    pub blocks_left: U64,
    /// 16.
    pub reserved: [u8; 16],
}

/// "Endurance Group Information".
#[derive(FromBytes, IntoBytes, Unaligned, Immutable, Clone, Copy)]
#[repr(C)]
pub struct EnduranceGroupLog {
    /// 0.
    pub critical_warning: u8,
    /// 1.
    pub reserved_1: [u8; 2],
    /// 3: percent.
    pub available_spare: u8,
    /// 4: percent.
    pub available_spare_threshold: u8,
    /// 5: percent.
    pub percentage_used: u8,
    /// 6.
    pub reserved_6: [u8; 26],
    /// 32: thousands of millions of bytes, as all sizes that follow.
    pub endurance_estimate: U128,
    /// 48.
    pub data_units_read: U128,
    /// 64.
    pub data_units_written: U128,
    /// 80.
    pub media_units_written: U128,
    /// 96.
    pub host_read_commands: U128,
    /// 112.
    pub host_write_commands: U128,
    /// 128.
    pub media_errors: U128,
    /// 144.
    pub error_entries: U128,
    /// 160: TEGCAP, bytes.
    pub total_capacity: U128,
    /// 176: UEGCAP, bytes.
    pub unallocated_capacity: U128,
    /// 192.
    pub reserved_192: [u8; 320],
}

const _: () = {
    assert!(size_of::<ConfigurationsHead>() == 16);
    assert!(size_of::<Configuration>() == 64);
    assert!(size_of::<HandleDescriptor>() == 4);
    assert!(size_of::<UsageHead>() == 8);
    assert!(size_of::<UsageDescriptor>() == 8);
    assert!(size_of::<PlacementStatistics>() == 64);
    assert!(size_of::<EventsHead>() == 64);
    assert!(size_of::<PlacementEvent>() == 64);
    assert!(size_of::<Reallocated>() == 16);
    assert!(size_of::<HandleStatusHead>() == 16);
    assert!(size_of::<HandleStatus>() == 32);
    assert!(size_of::<EnduranceGroupLog>() == 512);
};

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    #[test]
    fn the_fields_lie_where_their_comments_say() {
        assert_eq!(offset_of!(Configuration, identifiers_max), 10);
        assert_eq!(offset_of!(Configuration, unit_bytes), 16);
        assert_eq!(offset_of!(PlacementEvent, namespace), 12);
        assert_eq!(offset_of!(PlacementEvent, handle), 34);
        assert_eq!(offset_of!(PlacementEvent, vendor), 40);
        assert_eq!((offset_of!(Reallocated, blocks), offset_of!(Reallocated, first)), (2, 4));
        assert_eq!(offset_of!(HandleStatus, blocks_left), 8);
        assert_eq!(offset_of!(EnduranceGroupLog, endurance_estimate), 32);
        assert_eq!(offset_of!(EnduranceGroupLog, media_units_written), 80);
        assert_eq!(offset_of!(EnduranceGroupLog, total_capacity), 160);
    }
}
