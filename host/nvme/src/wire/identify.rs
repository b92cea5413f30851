//! What a controller and its namespaces say of themselves, 4096 bytes at a time (Base and NVM, "Identify command").

use super::{U16, U32, U64, U128};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of every Identify data structure.
pub const IDENTIFY_BYTES: usize = 4096;

/// CNS: which data structure (bits 7 to 0 of dword 10).
pub mod cns {
    /// Identify Namespace of the NVM command set, an attached one.
    pub const NAMESPACE: u8 = 0x00;
    /// Identify Controller.
    pub const CONTROLLER: u8 = 0x01;
    /// Active Namespace ID list.
    pub const ACTIVE_NAMESPACES: u8 = 0x02;
    /// Namespace Identification Descriptor list.
    pub const NAMESPACE_DESCRIPTORS: u8 = 0x03;
    /// Identify Namespace of an I/O command set.
    pub const COMMAND_SET_NAMESPACE: u8 = 0x05;
    /// Identify Controller of an I/O command set.
    pub const COMMAND_SET_CONTROLLER: u8 = 0x06;
    /// Active Namespace ID list of an I/O command set.
    pub const COMMAND_SET_ACTIVE_NAMESPACES: u8 = 0x07;
    /// I/O Command Set Independent Identify Namespace.
    pub const INDEPENDENT_NAMESPACE: u8 = 0x08;
    /// Identify Namespace of an I/O command set, for a format index.
    pub const COMMAND_SET_FORMAT: u8 = 0x0a;
    /// Allocated Namespace ID list.
    pub const ALLOCATED_NAMESPACES: u8 = 0x10;
    /// Identify Namespace of an allocated one.
    pub const ALLOCATED_NAMESPACE: u8 = 0x11;
    /// Controllers that a namespace is attached to.
    pub const ATTACHED_CONTROLLERS: u8 = 0x12;
    /// Controllers of the subsystem.
    pub const CONTROLLERS: u8 = 0x13;
    /// UUID list.
    pub const UUIDS: u8 = 0x17;
    /// Endurance Group list.
    pub const ENDURANCE_GROUPS: u8 = 0x19;
    /// Allocated Namespace ID list of an I/O command set.
    pub const COMMAND_SET_ALLOCATED_NAMESPACES: u8 = 0x1a;
    /// Identify Namespace of an I/O command set, of an allocated one.
    pub const COMMAND_SET_ALLOCATED_NAMESPACE: u8 = 0x1b;
    /// I/O Command Set data structure: the combinations that can be enabled.
    pub const COMMAND_SETS: u8 = 0x1c;
}

/// CSI: which I/O command set (Base, "I/O Command Set Identifiers").
pub mod csi {
    /// The NVM command set.
    pub const NVM: u8 = 0x00;
    /// The Key Value command set.
    pub const VALUES: u8 = 0x01;
    /// The Zoned Namespace command set.
    pub const ZONED: u8 = 0x02;
    /// Open-Channel 2.0, older than these identifiers: the first of those for vendors. Hosts that do not know it leave the
    /// namespace alone, as they should: it cannot be written out of order.
    pub const OPEN_CHANNEL: u8 = 0x30;
    /// Pages of any size, our own ([`crate::wire::pages`]).
    pub const PAGES: u8 = 0x31;
}

/// Identify Controller, CNS 01h (Base). Fields that are zero here are left in the reserved ranges between.
#[derive(FromBytes, IntoBytes, Unaligned, Immutable, Clone, Copy)]
#[repr(C)]
pub struct IdentifyController {
    /// 0: VID and SSVID.
    pub vendor_ids: [U16; 2],
    /// 4: SN.
    pub serial: [u8; 20],
    /// 24: MN.
    pub model: [u8; 40],
    /// 64: FR.
    pub firmware: [u8; 8],
    /// 72: RAB.
    pub arbitration_burst: u8,
    /// 73: IEEE.
    pub ieee: [u8; 3],
    /// 76: CMIC.
    pub sharing: u8,
    /// 77: MDTS, a power of two times the smallest memory page.
    pub transfer_pages_max_log2: u8,
    /// 78: CNTLID.
    pub controller_id: U16,
    /// 80: VER.
    pub version: U32,
    /// 84: RTD3R and RTD3E.
    pub runtime_d3_us: [U32; 2],
    /// 92: OAES.
    pub optional_events: U32,
    /// 96: CTRATT.
    pub attributes: U32,
    /// 100.
    pub reserved_100: [u8; 11],
    /// 111: CNTRLTYPE.
    pub controller_type: u8,
    /// 112.
    pub reserved_112: [u8; 144],
    /// 256: OACS.
    pub optional_admin_commands: U16,
    /// 258: ACL, 0-based.
    pub aborts_max: u8,
    /// 259: AERL, 0-based.
    pub event_requests_max: u8,
    /// 260: FRMW.
    pub firmware_updates: u8,
    /// 261: LPA.
    pub log_page_attributes: u8,
    /// 262: ELPE, 0-based.
    pub error_entries_max: u8,
    /// 263: NPSS, 0-based.
    pub power_states: u8,
    /// 264: AVSCC.
    pub vendor_admin_format: u8,
    /// 265: APSTA.
    pub autonomous_power: u8,
    /// 266: WCTEMP, kelvins.
    pub warning_temperature: U16,
    /// 268: CCTEMP, kelvins.
    pub critical_temperature: U16,
    /// 270.
    pub reserved_270: [u8; 10],
    /// 280: TNVMCAP, bytes.
    pub total_capacity: U128,
    /// 296: UNVMCAP, bytes.
    pub unallocated_capacity: U128,
    /// 312.
    pub reserved_312: [u8; 8],
    /// 320: KAS, in units of 100 ms.
    pub keep_alive_granularity: U16,
    /// 322: HCTMA.
    pub host_thermal_management: U16,
    /// 324: MNTMT, kelvins.
    pub thermal_management_min: U16,
    /// 326: MXTMT, kelvins.
    pub thermal_management_max: U16,
    /// 328.
    pub reserved_328: [u8; 12],
    /// 340: ENDGIDMAX.
    pub endurance_group_max: U16,
    /// 342.
    pub reserved_342: [u8; 170],
    /// 512: SQES; least in bits 3 to 0, greatest in bits 7 to 4.
    pub submission_entry_log2: u8,
    /// 513: CQES.
    pub completion_entry_log2: u8,
    /// 514: MAXCMD.
    pub commands_max: U16,
    /// 516: NN.
    pub namespace_id_max: U32,
    /// 520: ONCS.
    pub optional_io_commands: U16,
    /// 522: FUSES.
    pub fused_operations: U16,
    /// 524: FNA.
    pub format_attributes: u8,
    /// 525: VWC.
    pub volatile_write_cache: u8,
    /// 526: AWUN, 0-based.
    pub atomic_write_normal: U16,
    /// 528: AWUPF, 0-based.
    pub atomic_write_power_fail: U16,
    /// 530: ICSVSCC.
    pub vendor_io_format: u8,
    /// 531: NWPC.
    pub write_protection: u8,
    /// 532: ACWU.
    pub atomic_compare_and_write: U16,
    /// 534: OCFS.
    pub copy_formats: U16,
    /// 536: SGLS.
    pub sgl_support: U32,
    /// 540: MNAN.
    pub namespaces_allowed_max: U32,
    /// 544.
    pub reserved_544: [u8; 224],
    /// 768: SUBNQN.
    pub subsystem_nqn: [u8; 256],
    /// 1024.
    pub reserved_1024: [u8; 768],
    /// 1792: IOCCSZ, in units of 16 bytes.
    pub command_capsule_units: U32,
    /// 1796: IORCSZ, in units of 16 bytes.
    pub response_capsule_units: U32,
    /// 1800: ICDOFF, in units of 16 bytes.
    pub capsule_data_offset_units: U16,
    /// 1802: FCATT.
    pub fabrics_attributes: u8,
    /// 1803: MSDBD.
    pub sgl_descriptors_max: u8,
    /// 1804: OFCS.
    pub optional_fabrics_commands: U16,
    /// 1806: DCTYPE.
    pub discovery_controller_type: u8,
    /// 1807.
    pub reserved_1807: [u8; 241],
    /// 2048: PSD0 to PSD31.
    pub power_state_descriptors: [[u8; 32]; 32],
    /// 3072.
    pub vendor: [u8; 1024],
}

/// Bits of Identify Controller.
pub mod controller {
    /// CMIC bit 1: the subsystem may have several controllers.
    pub const SEVERAL_CONTROLLERS: u8 = 1 << 1;
    /// OAES bit 8: Namespace Attribute Notices.
    pub const NAMESPACE_NOTICES: u32 = 1 << 8;
    /// OAES bit 27: Zone Descriptor Changed Notices (ZNS).
    pub const ZONE_NOTICES: u32 = 1 << 27;
    /// OAES bit 31: Discovery Log Page Change Notices.
    pub const DISCOVERY_NOTICES: u32 = 1 << 31;
    /// CTRATT bit 0: host identifiers of 128 bits.
    pub const LONG_HOST_ID: u32 = 1 << 0;
    /// CTRATT bit 4: endurance groups.
    pub const ENDURANCE_GROUPS: u32 = 1 << 4;
    /// CTRATT bit 6: any command keeps the controller alive.
    pub const TRAFFIC_KEEPS_ALIVE: u32 = 1 << 6;
    /// CTRATT bit 9: there is a UUID list.
    pub const UUID_LIST: u32 = 1 << 9;
    /// CTRATT bit 16: MDTS does not count metadata.
    pub const METADATA_NOT_COUNTED: u32 = 1 << 16;
    /// CTRATT bit 19: Flexible Data Placement.
    pub const DATA_PLACEMENT: u32 = 1 << 19;
    /// OACS bit 5: directives.
    pub const DIRECTIVES: u16 = 1 << 5;
    /// CNTRLTYPE of an I/O controller.
    pub const TYPE_IO: u8 = 1;
    /// CNTRLTYPE of a discovery controller.
    pub const TYPE_DISCOVERY: u8 = 2;
    /// FRMW: one slot (bits 3 to 1), which is read-only (bit 0).
    pub const ONE_FIRMWARE_SLOT: u8 = 1 << 1 | 1;
    /// LPA bit 1: Commands Supported and Effects.
    pub const EFFECTS_LOG: u8 = 1 << 1;
    /// LPA bit 2: offsets and long lengths in Get Log Page.
    pub const LONG_LOG_PAGES: u8 = 1 << 2;
    /// FUSES bit 0: Compare and Write as a fused pair.
    pub const COMPARE_AND_WRITE: u16 = 1 << 0;
    /// ONCS bit 0: Compare.
    pub const COMPARE: u16 = 1 << 0;
    /// ONCS bit 1: Write Uncorrectable.
    pub const WRITE_UNCORRECTABLE: u16 = 1 << 1;
    /// ONCS bit 2: Dataset Management.
    pub const DATASET_MANAGEMENT: u16 = 1 << 2;
    /// ONCS bit 3: Write Zeroes.
    pub const WRITE_ZEROES: u16 = 1 << 3;
    /// ONCS bit 4: Select in Get Features, Save in Set Features.
    pub const SELECT_FEATURES: u16 = 1 << 4;
    /// ONCS bit 5: reservations.
    pub const RESERVATIONS: u16 = 1 << 5;
    /// ONCS bit 6: Timestamp.
    pub const TIMESTAMP: u16 = 1 << 6;
    /// ONCS bit 7: Verify.
    pub const VERIFY: u16 = 1 << 7;
    /// ONCS bit 8: Copy.
    pub const COPY: u16 = 1 << 8;
    /// VWC bit 0: there is a volatile write cache; bits 2 and 1, 11b: Flush may name all namespaces.
    pub const WRITE_CACHE_AND_FLUSH_OF_ALL: u8 = 0b111;
    /// SGLS bits 1 and 0, 01b: SGLs of any alignment.
    pub const SGL: u32 = 0b01;
    /// SGLS bit 18: an SGL may be longer than the data.
    pub const SGL_LONGER: u32 = 1 << 18;
    /// SGLS bit 20: the address of an SGL may be an offset in the capsule.
    pub const SGL_OFFSET: u32 = 1 << 20;
    /// SGLS bit 21: Transport SGL Data Block descriptors.
    pub const SGL_TRANSPORT: u32 = 1 << 21;
    /// OCFS bit 0: copy source ranges of format 0h.
    pub const COPY_FORMAT_0: u16 = 1 << 0;
    /// OFCS bit 0: the Disconnect command.
    pub const DISCONNECT: u16 = 1 << 0;
    /// DCTYPE of a direct discovery controller.
    pub const DIRECT_DISCOVERY: u8 = 1;
}

/// One way to cut a namespace in blocks (NVM, "LBA Format Data Structure").
#[derive(FromBytes, IntoBytes, Unaligned, Immutable, Clone, Copy, Default)]
#[repr(C)]
pub struct LbaFormat {
    /// 0: MS, bytes.
    pub metadata_bytes: U16,
    /// 2: LBADS.
    pub block_bytes_log2: u8,
    /// 3: RP, 0 the best, 3 degraded.
    pub relative_performance: u8,
}

/// Identify Namespace, CNS 00h, also as CNS 05h has it for the NVM command set (NVM).
#[derive(FromBytes, IntoBytes, Unaligned, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
pub struct IdentifyNamespace {
    /// 0: NSZE, blocks.
    pub size: U64,
    /// 8: NCAP, blocks.
    pub capacity: U64,
    /// 16: NUSE, blocks.
    pub utilization: U64,
    /// 24: NSFEAT.
    pub features: u8,
    /// 25: NLBAF, 0-based.
    pub formats: u8,
    /// 26: FLBAS.
    pub format: u8,
    /// 27: MC.
    pub metadata_capabilities: u8,
    /// 28: DPC.
    pub protection_capabilities: u8,
    /// 29: DPS.
    pub protection: u8,
    /// 30: NMIC.
    pub sharing: u8,
    /// 31: RESCAP.
    pub reservations: u8,
    /// 32: FPI.
    pub format_progress: u8,
    /// 33: DLFEAT.
    pub deallocation: u8,
    /// 34: NAWUN, 0-based.
    pub atomic_write_normal: U16,
    /// 36: NAWUPF, 0-based.
    pub atomic_write_power_fail: U16,
    /// 38: NACWU, 0-based.
    pub atomic_compare_and_write: U16,
    /// 40: NABSN; 0: no boundary.
    pub atomic_boundary_normal: U16,
    /// 42: NABO.
    pub atomic_boundary_offset: U16,
    /// 44: NABSPF; 0: no boundary.
    pub atomic_boundary_power_fail: U16,
    /// 46: NOIOB.
    pub optimal_boundary: U16,
    /// 48: NVMCAP, bytes.
    pub capacity_bytes: U128,
    /// 64: NPWG, 0-based.
    pub preferred_write_granularity: U16,
    /// 66: NPWA, 0-based.
    pub preferred_write_alignment: U16,
    /// 68: NPDG, 0-based.
    pub preferred_deallocate_granularity: U16,
    /// 70: NPDA, 0-based.
    pub preferred_deallocate_alignment: U16,
    /// 72: NOWS, 0-based.
    pub optimal_write_size: U16,
    /// 74: MSSRL, blocks.
    pub copy_source_blocks_max: U16,
    /// 76: MCL, blocks.
    pub copy_blocks_max: U32,
    /// 80: MSRC, 0-based.
    pub copy_sources_max: u8,
    /// 81.
    pub reserved_81: [u8; 11],
    /// 92: ANAGRPID.
    pub ana_group: U32,
    /// 96.
    pub reserved_96: [u8; 3],
    /// 99: NSATTR.
    pub attributes: u8,
    /// 100: NVMSETID and ENDGID.
    pub set_and_endurance_group: [U16; 2],
    /// 104: NGUID; zero: none.
    pub nguid: [u8; 16],
    /// 120: EUI64; zero: none.
    pub eui64: [u8; 8],
    /// 128: LBAF0 to LBAF63.
    pub lba_formats: [LbaFormat; 64],
    /// 384.
    pub vendor: [u8; 3712],
}

/// Bits of Identify Namespace.
pub mod namespace {
    /// NSFEAT bit 1: the atomic write fields of the namespace count, not those of the controller.
    pub const ATOMIC_FIELDS: u8 = 1 << 1;
    /// NSFEAT bit 2: deallocated blocks can be errors (DULBE).
    pub const DEALLOCATED_ERROR: u8 = 1 << 2;
    /// NSFEAT bit 4: NPWG, NPWA, NPDG, NPDA and NOWS count.
    pub const PREFERRED_FIELDS: u8 = 1 << 4;
    /// FLBAS bit 4 and MC bit 0: metadata travel behind each block.
    pub const EXTENDED_BLOCK: u8 = 1 << 4;
    /// MC bit 0.
    pub const METADATA_EXTENDED: u8 = 1 << 0;
    /// NMIC bit 0: several controllers may have the namespace, at least those of several hosts.
    pub const SHARED: u8 = 1 << 0;
    /// RESCAP bits 1 to 6: every type of reservation; bit 7: IEKEY as in version 1.3 of NVM Express and later. Bit 0 would be PTPL.
    pub const RESERVATIONS: u8 = 0b1111_1110;
    /// DLFEAT bits 2 to 0, 001b: deallocated blocks read as zeroes.
    pub const READS_ZEROES: u8 = 0b001;
    /// DLFEAT bit 3: Write Zeroes can deallocate.
    pub const ZEROES_DEALLOCATE: u8 = 1 << 3;
    /// NSATTR bit 0: currently write protected.
    pub const WRITE_PROTECTED: u8 = 1 << 0;
}

/// I/O Command Set Independent Identify Namespace, CNS 08h (Base).
#[derive(FromBytes, IntoBytes, Unaligned, Immutable, Clone, Copy)]
#[repr(C)]
pub struct IndependentNamespace {
    /// 0: NSFEAT.
    pub features: u8,
    /// 1: NMIC.
    pub sharing: u8,
    /// 2: RESCAP.
    pub reservations: u8,
    /// 3: FPI.
    pub format_progress: u8,
    /// 4: ANAGRPID.
    pub ana_group: U32,
    /// 8: NSATTR.
    pub attributes: u8,
    /// 9.
    pub reserved_9: u8,
    /// 10: NVMSETID and ENDGID.
    pub set_and_endurance_group: [U16; 2],
    /// 14: NSTAT, bit 0: ready.
    pub status: u8,
    /// 15.
    pub reserved_15: [u8; 4081],
}

/// NSTAT bit 0.
pub const NAMESPACE_READY: u8 = 1 << 0;

/// Head of a namespace identification descriptor, CNS 03h (Base).
#[derive(FromBytes, IntoBytes, Unaligned, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
pub struct NamespaceDescriptorHead {
    /// 0: NIDT, [`NamespaceDescriptorHead::UUID`] or [`NamespaceDescriptorHead::COMMAND_SET`].
    pub kind: u8,
    /// 1: NIDL, bytes that follow.
    pub length: u8,
    /// 2.
    pub reserved: U16,
}

impl NamespaceDescriptorHead {
    /// NIDT of a UUID, 16 bytes.
    pub const UUID: u8 = 3;
    /// NIDT of a command set identifier, 1 byte.
    pub const COMMAND_SET: u8 = 4;
}

/// One entry of the UUID list, CNS 17h (Base). Entry 0 is reserved, so that an index of 0 can mean none.
#[derive(FromBytes, IntoBytes, Unaligned, Immutable, Clone, Copy)]
#[repr(C)]
pub struct UuidEntry {
    /// 0: bits 1 and 0, 00b: the association is not reported.
    pub association: u8,
    /// 1.
    pub reserved: [u8; 15],
    /// 16.
    pub uuid: [u8; 16],
}

/// The UUID by which OCP's log pages are told from others with the same number (OCP, "UUID for DSSD Log Identifiers").
pub const OCP_UUID: [u8; 16] =
    [0xc1, 0x94, 0xd5, 0x5b, 0xe0, 0x94, 0x47, 0x94, 0xa2, 0x1d, 0x29, 0x99, 0x8f, 0x56, 0xbe, 0x6f];

const _: () = {
    assert!(size_of::<IdentifyController>() == IDENTIFY_BYTES);
    assert!(size_of::<IdentifyNamespace>() == IDENTIFY_BYTES);
    assert!(size_of::<IndependentNamespace>() == IDENTIFY_BYTES);
    assert!(size_of::<NamespaceDescriptorHead>() == 4);
    assert!(size_of::<UuidEntry>() == 32);
};

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    macro_rules! offsets {
        ($kind:ty: $($field:ident $offset:literal),*) => {
            $(assert_eq!(offset_of!($kind, $field), $offset, stringify!($field));)*
        };
    }

    #[test]
    fn the_fields_lie_where_their_comments_say() {
        offsets!(IdentifyController:
            serial 4, model 24, firmware 64, sharing 76, transfer_pages_max_log2 77, controller_id 78, version 80,
            optional_events 92, attributes 96, controller_type 111, optional_admin_commands 256, aborts_max 258,
            event_requests_max 259, log_page_attributes 261, error_entries_max 262, warning_temperature 266,
            total_capacity 280, unallocated_capacity 296, keep_alive_granularity 320, thermal_management_min 324, endurance_group_max 340,
            submission_entry_log2 512, commands_max 514, namespace_id_max 516, optional_io_commands 520,
            volatile_write_cache 525, atomic_write_normal 526, atomic_write_power_fail 528, copy_formats 534,
            sgl_support 536, namespaces_allowed_max 540, subsystem_nqn 768, command_capsule_units 1792,
            response_capsule_units 1796, capsule_data_offset_units 1800, fabrics_attributes 1802,
            sgl_descriptors_max 1803, optional_fabrics_commands 1804, discovery_controller_type 1806,
            power_state_descriptors 2048, vendor 3072);
        offsets!(IdentifyNamespace:
            features 24, formats 25, format 26, metadata_capabilities 27, sharing 30, deallocation 33,
            atomic_write_normal 34, atomic_boundary_power_fail 44, capacity_bytes 48, preferred_write_granularity 64,
            optimal_write_size 72, copy_source_blocks_max 74, copy_blocks_max 76, copy_sources_max 80, ana_group 92,
            attributes 99, nguid 104, eui64 120, lba_formats 128, vendor 384);
        offsets!(IndependentNamespace: ana_group 4, attributes 8, status 14);
    }

    #[test]
    fn a_format_lies_on_the_wire_as_the_specification_draws_it() {
        let format = LbaFormat { metadata_bytes: 16.into(), block_bytes_log2: 12, relative_performance: 2 };
        assert_eq!(format.as_bytes(), [16, 0, 12, 2]);
    }
}
