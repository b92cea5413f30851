//! Connect, properties and discovery: what a host says before it has a controller (Base, "Fabrics Command Set").

use super::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Data of a Connect command ("Connect Command", Connect Data).
#[derive(FromBytes, IntoBytes, Unaligned, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
pub struct ConnectData {
    /// 0: HOSTID.
    pub host_id: [u8; 16],
    /// 16: CNTLID; [`ANY_CONTROLLER`] on an admin queue.
    pub controller_id: U16,
    /// 18.
    pub reserved: [u8; 238],
    /// 256: SUBNQN.
    pub subsystem_nqn: [u8; 256],
    /// 512: HOSTNQN.
    pub host_nqn: [u8; 256],
    /// 768.
    pub reserved_2: [u8; 256],
}

/// CNTLID of a host that wants any controller, as it must with the dynamic model.
pub const ANY_CONTROLLER: u16 = 0xffff;

/// The name that every discovery subsystem answers to (Base, "NVMe Qualified Names").
pub const DISCOVERY_NQN: &str = "nqn.2014-08.org.nvmexpress.discovery";

/// Fields of a Connect command ("Connect Command", Submission Queue Entry), beyond those common to all commands.
pub mod connect {
    /// 40: RECFMT, the only one there is.
    pub const RECORD_FORMAT: u16 = 0;
    /// 46: CATTR, bit 2: the host wants no SQ flow control.
    pub const WITHOUT_FLOW_CONTROL: u8 = 1 << 2;
    /// Result, bit 17: ATR of AUTHREQ, authenticate before anything else.
    pub const AUTHENTICATION_REQUIRED: u32 = 1 << 17;
    /// Result of a refusal, bit 16: IATTR, the offset in bits 15 to 0 (IPO) is one in the data, not in the entry.
    pub const IN_DATA: u32 = 1 << 16;
    /// SQHD in the completion: no SQ flow control, as the host wanted.
    pub const SUBMISSION_HEAD_UNUSED: u16 = 0xffff;
}

/// Offsets of properties (Base, "Controller Properties").
pub mod property {
    /// CAP, 8 bytes.
    pub const CAPABILITIES: u32 = 0x00;
    /// VS, 4 bytes.
    pub const VERSION: u32 = 0x08;
    /// CC, 4 bytes.
    pub const CONFIGURATION: u32 = 0x14;
    /// CSTS, 4 bytes.
    pub const STATUS: u32 = 0x1c;
    /// CRTO, 4 bytes.
    pub const READY_TIMEOUTS: u32 = 0x68;
}

/// One record of the discovery log ("Discovery Log Page", Discovery Log Page Entry).
#[derive(FromBytes, IntoBytes, Unaligned, Immutable, Clone, Copy)]
#[repr(C)]
pub struct DiscoveryEntry {
    /// 0: TRTYPE, [`DiscoveryEntry::TCP`].
    pub transport: u8,
    /// 1: ADRFAM, [`DiscoveryEntry::IPV4`] or [`DiscoveryEntry::IPV6`].
    pub address_family: u8,
    /// 2: SUBTYPE, [`DiscoveryEntry::NVM_SUBSYSTEM`].
    pub subsystem_type: u8,
    /// 3: TREQ.
    pub transport_requirements: u8,
    /// 4: PORTID.
    pub port_id: U16,
    /// 6: CNTLID, [`super::fabrics::ANY_CONTROLLER`].
    pub controller_id: U16,
    /// 8: ASQSZ, entries of the largest admin queue.
    pub admin_queue_entries_max: U16,
    /// 10: EFLAGS.
    pub flags: U16,
    /// 12.
    pub reserved: [u8; 20],
    /// 32: TRSVCID, the port number as text, padded with spaces.
    pub service: [u8; 32],
    /// 64.
    pub reserved_2: [u8; 192],
    /// 256: SUBNQN.
    pub subsystem_nqn: [u8; 256],
    /// 512: TRADDR, the address as text, padded with spaces.
    pub address: [u8; 256],
    /// 768: TSAS; byte 0 is SECTYPE: 0 none, [`DiscoveryEntry::TLS_1_3`] (TCP Transport 1.1, "Transport Specific Address Subtype").
    pub transport_specific: [u8; 256],
}

impl DiscoveryEntry {
    /// TRTYPE of TCP.
    pub const TCP: u8 = 3;
    /// ADRFAM of IPv4.
    pub const IPV4: u8 = 1;
    /// ADRFAM of IPv6.
    pub const IPV6: u8 = 2;
    /// SUBTYPE of a subsystem that holds namespaces.
    pub const NVM_SUBSYSTEM: u8 = 2;
    /// TREQ bit 2: SQ flow control can be switched off.
    pub const WITHOUT_FLOW_CONTROL: u8 = 0b100;
    /// TREQ bits 1 and 0: a connection has to be secure, or may be. 00b says nothing of it.
    pub const SECURE_CHANNEL_REQUIRED: u8 = 0b01;
    /// The other.
    pub const SECURE_CHANNEL_NOT_REQUIRED: u8 = 0b10;
    /// SECTYPE: TLS 1.3.
    pub const TLS_1_3: u8 = 2;
}

/// Head of the discovery log, before its records ("Discovery Log Page").
#[derive(FromBytes, IntoBytes, Unaligned, Immutable, Clone, Copy)]
#[repr(C)]
pub struct DiscoveryHead {
    /// 0: GENCTR, counts the changes.
    pub generation: U64,
    /// 8: NUMREC.
    pub records: U64,
    /// 16: RECFMT, 0.
    pub record_format: U16,
    /// 18.
    pub reserved: [u8; 1006],
}

/// What an authentication command says in dwords 10 and 11 ("Authentication Send Command").
#[derive(FromBytes, IntoBytes, Unaligned, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
pub struct AuthenticationDwords {
    /// 40.
    pub reserved: u8,
    /// 41: SPSP0, 1.
    pub protocol_specific_0: u8,
    /// 42: SPSP1, 1.
    pub protocol_specific_1: u8,
    /// 43: SECP, E9h.
    pub protocol: u8,
    /// 44: TL or AL, bytes.
    pub length: U32,
}

/// SECP of NVMe in-band authentication.
pub const AUTHENTICATION_PROTOCOL: u8 = 0xe9;

const _: () = {
    assert!(size_of::<ConnectData>() == 1024);
    assert!(size_of::<DiscoveryEntry>() == 1024);
    assert!(size_of::<DiscoveryHead>() == 1024);
    assert!(size_of::<AuthenticationDwords>() == 8);
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::zero_ended;
    use std::mem::offset_of;

    #[test]
    fn connect_data_lie_where_the_specification_says() {
        let data = ConnectData {
            host_id: [7; 16],
            controller_id: 0x0102.into(),
            reserved: [0; 238],
            subsystem_nqn: zero_ended("nqn.a"),
            host_nqn: zero_ended("nqn.b"),
            reserved_2: [0; 256],
        };
        let bytes = data.as_bytes();
        assert_eq!(
            (&bytes[..18], &bytes[256..262], &bytes[512..518]),
            (&[7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 2, 1][..], &b"nqn.a\0"[..], &b"nqn.b\0"[..])
        );
    }

    #[test]
    fn a_discovery_record_lies_where_the_specification_says() {
        assert_eq!(offset_of!(DiscoveryEntry, port_id), 4);
        assert_eq!(offset_of!(DiscoveryEntry, admin_queue_entries_max), 8);
        assert_eq!(offset_of!(DiscoveryEntry, service), 32);
        assert_eq!(offset_of!(DiscoveryEntry, subsystem_nqn), 256);
        assert_eq!(offset_of!(DiscoveryEntry, address), 512);
        assert_eq!(offset_of!(DiscoveryEntry, transport_specific), 768);
    }
}
