//! The bits of NVMe/TCP: protocol data units, little-endian throughout.
//!
//! ```text
//!   0        8              HLEN      +4           PDO                      PLEN
//!   ┌────────┬───────────────┬─────────┬────────────┬───────────────┬────────┐
//!   │ common │ specific      │ header  │ padding    │ data          │ data   │
//!   │ header │ header        │ digest  │            │               │ digest │
//!   └────────┴───────────────┴─────────┴────────────┴───────────────┴────────┘
//!            └ both digests only where agreed; padding and data only in CapsuleCmd, H2CData and C2HData ┘
//! ```

mod layout;

pub use layout::{Framing, Layout, append, append_term_req, layout};

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{COMPLETION_BYTES, SUBMISSION_BYTES};

/// Bytes of either digest, a CRC32C (TCP, "PDU Digests").
pub const DIGEST_BYTES: usize = 4;

/// Bytes of ICReq and ICResp.
pub const INIT_BYTES: usize = 128;

/// The most bytes of a termination request with the header that it complains of (TCP, "H2CTermReq PDU").
pub const TERM_REQ_BYTES_MAX: usize = 152;

/// The most bytes in front of the data, or of a PDU without: PDO is eight bits.
pub const HEAD_BYTES_MAX: usize = u8::MAX as usize;

/// The most bytes of data in a command capsule. The transport wants room for 8192 on the Admin Queue and for Fabrics
/// commands (TCP, "Capsules and Data Transfer"); here every queue has that room, which is what IOCCSZ announces.
pub const IN_CAPSULE_BYTES_MAX: u32 = 8192;

/// IOCCSZ of Identify Controller that goes with [`IN_CAPSULE_BYTES_MAX`]: entry and data, in units of 16 bytes.
pub const COMMAND_CAPSULE_UNITS: u32 = (SUBMISSION_BYTES as u32 + IN_CAPSULE_BYTES_MAX) / 16;

/// IORCSZ of Identify Controller: a response capsule is a completion queue entry, in units of 16 bytes.
pub const RESPONSE_CAPSULE_UNITS: u32 = COMPLETION_BYTES as u32 / 16;

/// The least MAXH2CDATA that a controller may ask for, in bytes (TCP, "ICResp PDU").
pub const H2C_DATA_BYTES_MIN: u32 = 4096;

/// The largest HPDA and CPDA: data at multiples of 32 dwords (TCP, "ICReq PDU").
pub const ALIGNMENT_CODE_MAX: u8 = 31;

/// The only PDU format version there is (TCP, "ICReq PDU", PFV).
pub const FORMAT_VERSION: u16 = 0;

/// Which of the two sides of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Side {
    /// Asks.
    Host,
    /// Answers.
    Controller,
}

/// PDU types (TCP, "PDU Common Header", PDU-Type). Even ones travel to the controller, odd ones to the host.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Kind {
    /// Initialize Connection Request.
    IcReq = 0x00,
    /// Initialize Connection Response.
    IcResp = 0x01,
    /// Host to Controller Termination Request.
    H2cTermReq = 0x02,
    /// Controller to Host Termination Request.
    C2hTermReq = 0x03,
    /// Command Capsule.
    CapsuleCmd = 0x04,
    /// Response Capsule.
    CapsuleResp = 0x05,
    /// Host to Controller Data Transfer.
    H2cData = 0x06,
    /// Controller to Host Data Transfer.
    C2hData = 0x07,
    /// Ready to Transfer.
    R2t = 0x09,
}

impl Kind {
    /// All there are.
    pub const ALL: [Kind; 9] = [
        Kind::IcReq,
        Kind::IcResp,
        Kind::H2cTermReq,
        Kind::C2hTermReq,
        Kind::CapsuleCmd,
        Kind::CapsuleResp,
        Kind::H2cData,
        Kind::C2hData,
        Kind::R2t,
    ];

    /// The type that `code` stands for.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| *kind as u8 == code)
    }

    /// Who receives it.
    #[must_use]
    pub fn receiver(self) -> Side {
        if (self as u8).is_multiple_of(2) { Side::Controller } else { Side::Host }
    }

    /// HLEN, in bytes.
    #[must_use]
    pub fn header_bytes(self) -> usize {
        match self {
            Kind::IcReq | Kind::IcResp => INIT_BYTES,
            Kind::CapsuleCmd => size_of::<CapsuleCmd>(),
            Kind::CapsuleResp => size_of::<CapsuleResp>(),
            Kind::H2cTermReq | Kind::C2hTermReq => size_of::<TermReq>(),
            Kind::H2cData | Kind::C2hData | Kind::R2t => size_of::<R2t>(),
        }
    }

    /// Whether there may be data behind the header.
    #[must_use]
    pub fn may_carry_data(self) -> bool {
        matches!(self, Kind::CapsuleCmd | Kind::H2cData | Kind::C2hData)
    }

    /// Whether it comes while a connection is set up or torn down, so that digests are not agreed or not used.
    #[must_use]
    pub fn is_bare(self) -> bool {
        matches!(self, Kind::IcReq | Kind::IcResp | Kind::H2cTermReq | Kind::C2hTermReq)
    }

    /// Whether it is one of the two termination requests.
    #[must_use]
    pub fn is_term_req(self) -> bool {
        matches!(self, Kind::H2cTermReq | Kind::C2hTermReq)
    }
}

/// FLAGS of the common header; each PDU type defines which of them it has.
pub mod flag {
    /// HDGSTF: a header digest follows the header.
    pub const HEADER_DIGEST: u8 = 1 << 0;
    /// DDGSTF: a data digest follows the data.
    pub const DATA_DIGEST: u8 = 1 << 1;
    /// LAST_PDU: of an R2T's data, or of a command's.
    pub const LAST: u8 = 1 << 2;
    /// SUCCESS: the command has succeeded and no response capsule comes (C2HData with LAST_PDU only).
    pub const SUCCESS: u8 = 1 << 3;
}

/// DGST of ICReq and ICResp.
pub mod digest_bit {
    /// HDGST_ENABLE.
    pub const HEADER: u8 = 1 << 0;
    /// DDGST_ENABLE.
    pub const DATA: u8 = 1 << 1;
}

/// What every PDU begins with (TCP, "PDU Common Header").
#[derive(FromBytes, IntoBytes, Unaligned, Immutable, KnownLayout, Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct CommonHeader {
    /// PDU-Type: a [`Kind`].
    pub kind: u8,
    /// FLAGS: of [`flag`].
    pub flags: u8,
    /// HLEN: bytes of common and specific header.
    pub header_length: u8,
    /// PDO: where the data begin, in bytes from the PDU's first; zero without data.
    pub data_offset: u8,
    /// PLEN: bytes of everything.
    pub length: U32,
}

/// TCP, "ICReq PDU".
#[derive(FromBytes, IntoBytes, Unaligned, Immutable, KnownLayout, Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct IcReq {
    /// No flags.
    pub common: CommonHeader,
    /// PFV: [`FORMAT_VERSION`].
    pub format_version: U16,
    /// HPDA: alignment of data to the host, in dwords, 0-based.
    pub host_alignment: u8,
    /// DGST: what the host wants, of [`digest_bit`].
    pub digests: u8,
    /// MAXR2T: the most R2Ts that the host has under way for one command, 0-based.
    pub r2ts_max: U32,
    /// Reserved.
    pub reserved: [u8; 112],
}

/// TCP, "ICResp PDU".
#[derive(FromBytes, IntoBytes, Unaligned, Immutable, KnownLayout, Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct IcResp {
    /// No flags.
    pub common: CommonHeader,
    /// PFV: [`FORMAT_VERSION`].
    pub format_version: U16,
    /// CPDA: alignment of data to the controller, in dwords, 0-based.
    pub controller_alignment: u8,
    /// DGST: what is used from now on, of [`digest_bit`].
    pub digests: u8,
    /// MAXH2CDATA: the most bytes of data in one H2CData, a multiple of four.
    pub h2c_data_bytes_max: U32,
    /// Reserved.
    pub reserved: [u8; 112],
}

/// TCP, "H2CTermReq PDU" and "C2HTermReq PDU". Up to 128 bytes of the header that was wrong follow.
#[derive(FromBytes, IntoBytes, Unaligned, Immutable, KnownLayout, Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct TermReq {
    /// No flags.
    pub common: CommonHeader,
    /// FES: a [`FatalErrorStatus`](crate::FatalErrorStatus).
    pub status: U16,
    /// FEI: for a wrong field its offset, for a wrong header digest the digest received, else zero.
    pub information: U32,
    /// Reserved.
    pub reserved: [u8; 10],
}

/// TCP, "CapsuleCmd PDU". Data may follow.
#[derive(FromBytes, IntoBytes, Unaligned, Immutable, KnownLayout, Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct CapsuleCmd {
    /// HDGSTF, DDGSTF.
    pub common: CommonHeader,
    /// CCSQE: the submission queue entry.
    pub entry: [u8; SUBMISSION_BYTES],
}

/// TCP, "CapsuleResp PDU".
#[derive(FromBytes, IntoBytes, Unaligned, Immutable, KnownLayout, Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct CapsuleResp {
    /// HDGSTF.
    pub common: CommonHeader,
    /// RCCQE: the completion queue entry.
    pub entry: [u8; COMPLETION_BYTES],
}

/// TCP, "H2CData PDU". Data follow.
#[derive(FromBytes, IntoBytes, Unaligned, Immutable, KnownLayout, Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct H2cData {
    /// HDGSTF, DDGSTF, LAST_PDU.
    pub common: CommonHeader,
    /// CCCID: the command's identifier.
    pub command_id: U16,
    /// TTAG: of the R2T that this answers.
    pub transfer_tag: U16,
    /// DATAO: where in the command's data these lie, in bytes.
    pub offset: U32,
    /// DATAL: how many bytes.
    pub bytes: U32,
    /// Reserved.
    pub reserved: [u8; 4],
}

/// TCP, "C2HData PDU". Data follow.
#[derive(FromBytes, IntoBytes, Unaligned, Immutable, KnownLayout, Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct C2hData {
    /// HDGSTF, DDGSTF, LAST_PDU, SUCCESS.
    pub common: CommonHeader,
    /// CCCID: the command's identifier.
    pub command_id: U16,
    /// Reserved.
    pub reserved: [u8; 2],
    /// DATAO: where in the command's data these lie, in bytes.
    pub offset: U32,
    /// DATAL: how many bytes.
    pub bytes: U32,
    /// Reserved.
    pub reserved_end: [u8; 4],
}

/// TCP, "R2T PDU".
#[derive(FromBytes, IntoBytes, Unaligned, Immutable, KnownLayout, Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct R2t {
    /// HDGSTF.
    pub common: CommonHeader,
    /// CCCID: the command's identifier.
    pub command_id: U16,
    /// TTAG: to be repeated in each H2CData that answers.
    pub transfer_tag: U16,
    /// R2TO: where in the command's data the wanted ones lie, in bytes.
    pub offset: U32,
    /// R2TL: how many bytes.
    pub bytes: U32,
    /// Reserved.
    pub reserved: [u8; 4],
}

const _: () = {
    assert!(size_of::<CommonHeader>() == 8);
    assert!(size_of::<IcReq>() == 128);
    assert!(size_of::<IcResp>() == 128);
    assert!(size_of::<TermReq>() == 24);
    assert!(size_of::<CapsuleCmd>() == 72);
    assert!(size_of::<CapsuleResp>() == 24);
    assert!(size_of::<H2cData>() == 24);
    assert!(size_of::<C2hData>() == 24);
    assert!(size_of::<R2t>() == 24);
};

impl CommonHeader {
    /// The header of a PDU of this kind, before [`append`] works out the rest.
    #[must_use]
    pub fn new(kind: Kind, flags: u8) -> CommonHeader {
        CommonHeader {
            kind: kind as u8,
            flags,
            header_length: kind.header_bytes() as u8,
            data_offset: 0,
            length: (kind.header_bytes() as u32).into(),
        }
    }
}

/// A header of a type that was looked at before.
pub(crate) fn read<T: FromBytes + Immutable + KnownLayout + Unaligned>(header: &[u8]) -> &T {
    T::ref_from_bytes(header).expect("a header is as long as its type says")
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Framing = Framing { header_digest: false, data_digest: false, alignment: 4 };
    const DIGESTS: Framing = Framing { header_digest: true, data_digest: true, alignment: 4 };

    fn appended(header: &(impl IntoBytes + Immutable), data_bytes: u32, framing: Framing) -> Vec<u8> {
        let mut out = Vec::new();
        append(header, data_bytes, framing, &mut out);
        out
    }

    #[test]
    fn a_connection_is_initialised_with_128_bytes_each_way() {
        let request = IcReq {
            common: CommonHeader::new(Kind::IcReq, 0),
            format_version: FORMAT_VERSION.into(),
            host_alignment: 3,
            digests: digest_bit::HEADER | digest_bit::DATA,
            r2ts_max: 0x0102_0304.into(),
            reserved: [0; 112],
        };
        let mut golden = [0; 128];
        golden[..16].copy_from_slice(&[0, 0, 128, 0, 128, 0, 0, 0, 0, 0, 3, 3, 4, 3, 2, 1]);
        assert_eq!(appended(&request, 0, DIGESTS), golden);
        let response = IcResp {
            common: CommonHeader::new(Kind::IcResp, 0),
            format_version: FORMAT_VERSION.into(),
            controller_alignment: 1,
            digests: digest_bit::DATA,
            h2c_data_bytes_max: 0x0002_0000.into(),
            reserved: [0; 112],
        };
        golden[..16].copy_from_slice(&[1, 0, 128, 0, 128, 0, 0, 0, 0, 0, 1, 2, 0, 0, 2, 0]);
        assert_eq!(appended(&response, 0, DIGESTS), golden);
        assert_eq!(IcResp::read_from_bytes(&golden).unwrap().h2c_data_bytes_max.get(), 128 << 10);
    }

    #[test]
    fn capsules_carry_an_entry_and_perhaps_data() {
        let command = CapsuleCmd {
            common: CommonHeader::new(Kind::CapsuleCmd, 0),
            entry: std::array::from_fn(|index| index as u8),
        };
        let alone = appended(&command, 0, PLAIN);
        assert_eq!(alone[..10], [4, 0, 72, 0, 72, 0, 0, 0, 0, 1]);
        assert_eq!(alone.len(), 72);
        let with_data = appended(&command, 512, DIGESTS);
        // 72 of header, 4 of digest, data at 76, 4 of data digest.
        assert_eq!(with_data[..8], [4, 3, 72, 76, 0x50, 0x02, 0, 0]);
        assert_eq!(with_data.len(), 76);
        let aligned = appended(&command, 512, Framing { alignment: 64, ..PLAIN });
        assert_eq!(aligned[..8], [4, 0, 72, 128, 0x80, 0x02, 0, 0]);
        assert_eq!(aligned.len(), 128, "padding belongs to what is written before the data");
        let response = CapsuleResp {
            common: CommonHeader::new(Kind::CapsuleResp, 0),
            entry: std::array::from_fn(|index| 0xf0 | index as u8),
        };
        let golden = [5, 0, 24, 0, 24, 0, 0, 0, 0xf0, 0xf1, 0xf2, 0xf3, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(appended(&response, 0, PLAIN)[..16], golden);
        assert_eq!(appended(&response, 0, DIGESTS)[..8], [5, 1, 24, 0, 28, 0, 0, 0]);
    }

    #[test]
    fn data_and_the_call_for_data_say_command_tag_offset_and_length() {
        let common = CommonHeader::new(Kind::H2cData, flag::LAST);
        let (offset, bytes) = (0x1112_1314.into(), 0x1000.into());
        let (command_id, transfer_tag) = (0x0102.into(), 0x0304.into());
        let data = H2cData { common, command_id, transfer_tag, offset, bytes, reserved: [0; 4] };
        let golden = [
            6, 4, 24, 24, 0x18, 0x10, 0, 0, 2, 1, 4, 3, 0x14, 0x13, 0x12, 0x11, 0, 0x10, 0, 0, 0, 0, 0, 0, //
        ];
        assert_eq!(appended(&data, 0x1000, PLAIN), golden);
        let common = CommonHeader::new(Kind::C2hData, flag::LAST | flag::SUCCESS);
        let data = C2hData { common, command_id, reserved: [0; 2], offset, bytes, reserved_end: [0; 4] };
        let golden = [
            7, 12, 24, 24, 0x18, 0x10, 0, 0, 2, 1, 0, 0, 0x14, 0x13, 0x12, 0x11, 0, 0x10, 0, 0, 0, 0, 0, 0, //
        ];
        assert_eq!(appended(&data, 0x1000, PLAIN), golden);
        let common = CommonHeader::new(Kind::R2t, 0);
        let r2t = R2t { common, command_id, transfer_tag, offset, bytes, reserved: [0; 4] };
        let golden = [
            9, 1, 24, 0, 28, 0, 0, 0, 2, 1, 4, 3, 0x14, 0x13, 0x12, 0x11, 0, 0x10, 0, 0, 0, 0, 0, 0, //
        ];
        let r2t = appended(&r2t, 0, DIGESTS);
        assert_eq!(r2t[..24], golden);
        assert_eq!(r2t[24..], openftl_core::checksum::crc32c(&golden).to_le_bytes());
    }

    #[test]
    fn a_header_digest_is_the_crc32c_of_the_header_in_little_endian() {
        let common = CommonHeader::new(Kind::CapsuleResp, 0);
        let out = appended(&CapsuleResp { common, entry: [0; 16] }, 0, DIGESTS);
        // CRC32C of 05 01 18 00 1c 00 00 00 and sixteen zeroes, by bitwise division with 0x1EDC6F41.
        let mut crc = !0_u32;
        for byte in &out[..24] {
            crc ^= u32::from(*byte);
            for _ in 0..8 {
                crc = if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
            }
        }
        assert_eq!(out[24..], (!crc).to_le_bytes());
    }

    #[test]
    fn a_termination_request_carries_the_header_that_was_wrong() {
        use crate::error::{FatalError, FatalErrorStatus};
        let error = FatalError { status: FatalErrorStatus::InvalidHeaderField, information: 0x0a };
        let mut out = Vec::new();
        append_term_req(Kind::C2hTermReq, error, &[0xee; 8], &mut out);
        let golden = [3, 0, 24, 0, 32, 0, 0, 0, 1, 0, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(out[..24], golden);
        assert_eq!(out[24..], [0xee; 8]);
        out.clear();
        append_term_req(Kind::H2cTermReq, error, &[0xee; 300], &mut out);
        assert_eq!(out.len(), TERM_REQ_BYTES_MAX);
        assert_eq!(out[..8], [2, 0, 24, 0, 152, 0, 0, 0]);
    }

    #[test]
    fn only_the_known_types_have_a_kind() {
        let known: Vec<u8> = (0..=u8::MAX).filter(|code| Kind::from_code(*code).is_some()).collect();
        assert_eq!(known, [0, 1, 2, 3, 4, 5, 6, 7, 9]);
    }
}
