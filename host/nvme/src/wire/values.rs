//! The Key Value command set, CSI 01h (KV): a namespace of keys and values, as a key-value drive has it.
//!
//! # Commands
//! The key is in dwords 2, 3, 14 and 15, its first byte lowest; dword 11 has its length in bits 7 to 0 and options in bits 15 to 8. Sizes are in
//! bytes, of which a command has any number. Reserved fields are not looked at, reserved options are refused.
//!
//! | opcode | command | data | dword 10 | options | DW0 of the completion |
//! |---|---|---|---|---|---|
//! | 00h | Flush | | | | |
//! | 01h | Store | to the drive | bytes of the value, 0 too | bit 8: only if the key exists; 9: only if it does not; 10: not compressed, as here nothing is | |
//! | 02h | Retrieve | from the drive, as many bytes as the value has and fit | bytes of the host's buffer, 0 too | bit 8: as it was stored, as here all is | bytes of *all* of the value |
//! | 06h | List | from the drive | bytes of the host's buffer, 4 at least | | |
//! | 10h | Delete | | | | |
//! | 14h | Exist | | | | |
//!
//! A list has the number of its keys (4 bytes), and of each its length (2 bytes) and its bytes, with zeroes behind so that it takes a multiple of
//! 4. It begins with the given key, or where that would be; a length of 0 means the first one. Keys are in the order of their bytes.
//!
//! # Statuses
//! Checks are made in the order of this table, and the first that fails says the status. All are generic ones.
//!
//! | status | when |
//! |---|---|
//! | 02h Invalid Field in Command | NSID FFFFFFFFh; a reserved option, or both conditions of a Store; a key length above 16; a Retrieve or List buffer above MDTS; a List buffer below 4 bytes |
//! | 86h Invalid Key Size | length 0, but of a List; or above KVKML |
//! | 85h Invalid Value Size | a Store of more than KVVML |
//! | 0Fh Data SGL Length Invalid | the host's data are fewer bytes than dword 10 says |
//! | 87h KV Key Does Not Exist | Retrieve, Exist, a Store that needs the key, and a Delete where feature 20h says so |
//! | 89h Key Exists | a Store that needs a new key |
//! | 81h Capacity Exceeded | no room for the value, or as many keys as there may be |
//! | 88h Unrecovered Error | the medium has lost the value |
//!
//! The specification leaves these to be read in more than one way; other implementations differ: the status of lengths above 16 (here as FEMU's),
//! DW0 of a Store (FEMU: the bytes of the value), the order of a List, and which key it begins with.

use super::{U16, U32, U64};
use crate::namespace::ValueShape;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, Unaligned};

/// VER of the command set: 1.3.
pub const VERSION: u32 = 0x0001_0300;

/// Options: bits 15 to 8 of dword 11.
pub mod option {
    /// Store: only if the key exists (SIKE).
    pub const IF_EXISTS: u32 = 1 << 8;
    /// Store: only if the key does not exist (SINKE).
    pub const IF_MISSING: u32 = 1 << 9;
    /// Store: not compressed.
    pub const NOT_COMPRESSED: u32 = 1 << 10;
    /// Retrieve: as it was stored.
    pub const RAW: u32 = 1 << 8;
    /// All of them.
    pub const ALL: u32 = 0xff << 8;
}

/// Bytes of a List, at least: the number of its keys.
pub const LIST_BYTES_MIN: u32 = 4;

/// A format of keys and values (KV, "KV Format Data Structure").
#[derive(FromBytes, IntoBytes, Unaligned, Immutable, Clone, Copy)]
#[repr(C)]
pub struct ValueFormat {
    /// 0: KVKML, bytes of a key, at most.
    pub key_max: U16,
    /// 2.
    pub reserved_2: u8,
    /// 3: AFO, bits 1 and 0: relative performance.
    pub performance: u8,
    /// 4: KVVML, bytes of a value, at most.
    pub value_max: U32,
    /// 8: MNKS, keys; 0: not said.
    pub keys_max: U32,
    /// 12.
    pub reserved_12: U32,
}

/// Identify Namespace of the Key Value command set (CNS 05h, 0Ah and 1Bh).
#[derive(FromBytes, IntoBytes, Unaligned, Immutable, Clone, Copy)]
#[repr(C)]
pub struct ValuesNamespace {
    /// 0: NSZE, bytes.
    pub size: U64,
    /// 8.
    pub reserved_8: U64,
    /// 16: NUSE, bytes: keys and values with what stands beside each, so that it is NSZE when nothing more fits.
    pub utilization: U64,
    /// 24: NSFEAT.
    pub features: u8,
    /// 25: NKVF, 0-based.
    pub formats: u8,
    /// 26: NMIC.
    pub sharing: u8,
    /// 27: RESCAP.
    pub reservations: u8,
    /// 28: FPI.
    pub format_progress: u8,
    /// 29: KVFC, bits 3 to 0: the format.
    pub format: u8,
    /// 30.
    pub reserved_30: U16,
    /// 32: NOVG, bytes; 0: not said.
    pub optimal_granularity: U32,
    /// 36: ANAGRPID.
    pub ana_group: U32,
    /// 40.
    pub reserved_40: [u8; 3],
    /// 43: NSATTR.
    pub attributes: u8,
    /// 44: NVMSETID and ENDGID.
    pub set_and_endurance_group: [U16; 2],
    /// 48: NGUID; zero: none.
    pub nguid: [u8; 16],
    /// 64: EUI64; zero: none.
    pub eui64: [u8; 8],
    /// 72: KVF0 to KVF15.
    pub value_formats: [ValueFormat; 16],
    /// 328.
    pub reserved_328: [u8; 3512],
    /// 3840.
    pub vendor: [u8; 256],
}

impl ValuesNamespace {
    /// That of a drive of which so many bytes are in use.
    #[must_use]
    pub fn of(shape: &ValueShape, bytes_in_use: u64) -> ValuesNamespace {
        ValuesNamespace {
            size: shape.capacity_bytes.into(),
            utilization: bytes_in_use.into(),
            ..ValuesNamespace::format_of(shape)
        }
    }

    /// Its format alone.
    #[must_use]
    pub fn format_of(shape: &ValueShape) -> ValuesNamespace {
        let mut data = ValuesNamespace::new_zeroed();
        data.value_formats[0] = ValueFormat {
            key_max: u16::from(shape.key_max).into(),
            value_max: shape.value_max().into(),
            keys_max: u32::try_from(shape.keys_max).unwrap_or(0).into(),
            ..ValueFormat::new_zeroed()
        };
        data
    }

    /// The format in use, if the namespace is one of keys and values.
    #[must_use]
    pub fn current_format(&self) -> Option<&ValueFormat> {
        let format = &self.value_formats[usize::from(self.format & 0xf)];
        (format.key_max.get() > 0 && format.value_max.get() > 0).then_some(format)
    }
}

/// Identify Controller of the Key Value command set (CNS 06h).
#[derive(FromBytes, IntoBytes, Unaligned, Immutable, Clone, Copy)]
#[repr(C)]
pub struct ValuesController {
    /// 0: VER.
    pub version: U32,
    /// 4.
    pub reserved: [u8; 4092],
}

impl ValuesController {
    /// That of every controller here.
    #[must_use]
    pub fn new() -> ValuesController {
        ValuesController { version: VERSION.into(), ..ValuesController::new_zeroed() }
    }
}

impl Default for ValuesController {
    fn default() -> ValuesController {
        ValuesController::new()
    }
}

const _: () = {
    assert!(size_of::<ValueFormat>() == 16);
    assert!(size_of::<ValuesNamespace>() == 4096);
    assert!(size_of::<ValuesController>() == 4096);
};

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    #[test]
    fn the_fields_lie_where_their_comments_say() {
        assert_eq!(offset_of!(ValuesNamespace, utilization), 16);
        assert_eq!(offset_of!(ValuesNamespace, format), 29);
        assert_eq!(offset_of!(ValuesNamespace, optimal_granularity), 32);
        assert_eq!(offset_of!(ValuesNamespace, attributes), 43);
        assert_eq!(offset_of!(ValuesNamespace, nguid), 48);
        assert_eq!(offset_of!(ValuesNamespace, value_formats), 72);
        assert_eq!(offset_of!(ValuesNamespace, vendor), 3840);
    }

    #[test]
    fn a_namespace_lies_on_the_wire_as_its_table_says() {
        let shape = ValueShape { capacity_bytes: 1 << 30, keys_max: 1000, key_max: 16, drive_value_max: 4 << 20 };
        let data = ValuesNamespace::of(&shape, 0x0102);
        let bytes = data.as_bytes();
        assert_eq!(bytes[..8], (1_u64 << 30).to_le_bytes());
        assert_eq!(bytes[16..24], [2, 1, 0, 0, 0, 0, 0, 0]);
        // KVKML, AFO, KVVML of the longest transfer, MNKS.
        assert_eq!(bytes[72..88], [16, 0, 0, 0, 0, 0, 0x10, 0, 0xe8, 3, 0, 0, 0, 0, 0, 0]);
        assert!(ValuesNamespace::new_zeroed().current_format().is_none() && data.current_format().is_some());
    }
}
