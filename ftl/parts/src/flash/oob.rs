//! The sixteen out-of-band bytes of every block that the FTL programs.
//!
//! They say what the block is, so that a wrong or damaged block is found out when it is read:
//!
//! | bytes | field |
//! |---|---|
//! | 0 | kind ([`BlockKind`]) |
//! | 1 | bits 3-0: format version ([`OOB_VERSION`]); bits 7-4: address, bits 35-32 |
//! | 2-3 | sequence, bits 47-32 |
//! | 4-7 | address, bits 31-0: logical block, index in the checkpoint, the superblock or the table; 0 in the log |
//! | 8-11 | sequence, bits 31-0: the number of the write, the log block, the checkpoint, the superblock or the table |
//! | 12-15 | CRC32C of bytes 0-11 and then of the CRC32C of the payload (of the stamp itself, for a stamp), XORed with the salt |
//!
//! Here the CRC is plain: [`crate::flash::seals`] puts the salt on when a block goes to the medium and takes it off when it returns.
//!
//! A sequence of 48 bits is never used up, so of two versions of a logical block the newer is known without the map.

use crate::map::entry::BLOCK_BITS_MAX;
use openftl_core::checksum::crc32c;
use openftl_core::{Frame, Frames, Payload, Stamp};
use std::mem::offset_of;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, Unaligned};

/// The version of this layout.
pub const OOB_VERSION: u8 = 3;
/// Bits of a sequence.
const SEQUENCE_BITS: u32 = 48;
/// Bits of an address.
const ADDRESS_BITS: u32 = 36;
/// The bits of the second byte that are the version.
const VERSION_MASK: u8 = 0xF;

const _: () = assert!(ADDRESS_BITS == BLOCK_BITS_MAX);

/// What a block is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum BlockKind {
    /// A logical block of the host.
    Data = 1,
    /// Fills a write unit.
    Padding = 2,
    /// A block of the write-ahead log.
    Log = 3,
    /// A block of a checkpoint.
    Checkpoint = 4,
    /// A block of a superblock.
    Superblock = 5,
    /// A logical block of the host whose data could not be read when they were to be moved. It keeps the loss in sight
    /// until the host writes or trims the block.
    Lost = 6,
    /// A logical block that the host wants to be an error until it writes or trims it (Write Uncorrectable). It holds
    /// zeroes.
    Uncorrectable = 7,
    /// A block of a tenant, in a table drive of a table: its address is its place in the table, its sequence the number of the
    /// table.
    Tenant = 8,
    /// A map page: its address is the number of the page, its sequence that of the merge that wrote it.
    Map = 9,
    /// A block of a log of a tenant's own: what tells it from older blocks is in it.
    TenantLog = 10,
}

impl BlockKind {
    #[inline]
    pub(crate) fn from_byte(byte: u8) -> Option<BlockKind> {
        use BlockKind::{Checkpoint, Data, Log, Lost, Map, Padding, Superblock, Tenant, TenantLog, Uncorrectable};
        Some(match byte {
            1 => Data,
            2 => Padding,
            3 => Log,
            4 => Checkpoint,
            5 => Superblock,
            6 => Lost,
            7 => Uncorrectable,
            8 => Tenant,
            9 => Map,
            10 => TenantLog,
            _ => return None,
        })
    }

    /// Whether the block stands for a logical block of the host, which its address names.
    #[inline]
    #[must_use]
    pub fn is_of_host(self) -> bool {
        matches!(self, BlockKind::Data | BlockKind::Lost | BlockKind::Uncorrectable)
    }
}

#[derive(FromBytes, IntoBytes, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
struct OobBytes {
    kind: u8,
    version: u8,
    sequence_high: U16,
    address: U32,
    sequence_low: U32,
    crc: U32,
}

const _: () = assert!(size_of::<OobBytes>() == openftl_core::OOB_BYTES_MIN);

/// What the out-of-band bytes of a block say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Oob {
    /// What the block is.
    pub kind: BlockKind,
    /// Which of its kind, below 2³⁶.
    pub address: u64,
    /// When it was written, below 2⁴⁸.
    pub sequence: u64,
}

/// Why a block cannot be trusted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OobError {
    /// Nothing that this FTL wrote.
    #[error("unknown block kind {0:#04x}")]
    Kind(u8),
    /// Written by a newer version.
    #[error("block format version {found}; this program knows {OOB_VERSION}")]
    Version {
        /// In the block.
        found: u8,
    },
    /// Damaged.
    #[error("CRC32C {found:#010x} where {expected:#010x} was expected")]
    Crc {
        /// In the block.
        found: u32,
        /// Of its contents.
        expected: u32,
    },
}

#[inline]
fn checksum(header: &[u8; 12], payload: Payload<'_>) -> u32 {
    let mut bytes = [0; 20];
    bytes[..12].copy_from_slice(header);
    match payload {
        Payload::Bytes(payload) => {
            bytes[12..16].copy_from_slice(&crc32c(payload).to_le_bytes());
            crc32c(&bytes[..16])
        }
        Payload::Stamp(stamp) => {
            bytes[12..].copy_from_slice(&stamp.0.to_le_bytes());
            crc32c(&bytes)
        }
    }
}

impl Oob {
    /// Writes the out-of-band bytes of `frame` for the payload that it holds.
    ///
    /// # Panics
    /// If the address or the sequence has more bits than there is room for.
    #[inline]
    pub fn seal(self, frames: &mut Frames, frame: Frame) {
        assert!(self.sequence >> SEQUENCE_BITS == 0, "a drive never writes 2^48 blocks");
        assert!(self.address >> ADDRESS_BITS == 0, "an address has 36 bits");
        let mut bytes = OobBytes {
            kind: self.kind as u8,
            version: OOB_VERSION | (self.address >> 32 << 4) as u8,
            sequence_high: U16::new((self.sequence >> 32) as u16),
            address: U32::new(self.address as u32),
            sequence_low: U32::new(self.sequence as u32),
            crc: U32::ZERO,
        };
        let header = bytes.as_bytes().first_chunk().expect("twelve of sixteen bytes");
        bytes.crc = U32::new(checksum(header, frames.payload(frame)));
        frames.oob_mut(frame)[..size_of::<OobBytes>()].copy_from_slice(bytes.as_bytes());
    }

    /// Whether the out-of-band bytes of `frame` may be those of a superblock of another version.
    #[must_use]
    pub fn is_of_another_version(frames: &Frames, frame: Frame) -> bool {
        let oob = frames.oob(frame);
        oob[0] == BlockKind::Superblock as u8 && oob[offset_of!(OobBytes, version)] & VERSION_MASK != OOB_VERSION
    }

    /// XORs the CRC in the out-of-band bytes of `frame` with `salt`.
    #[inline]
    pub fn add_salt(frames: &mut Frames, frame: Frame, salt: u32) {
        Oob::add_salt_of(frames, frame, |_, _| salt);
    }

    /// XORs the CRC in the out-of-band bytes of `frame` with the salt that is asked for with their kind and their version. Returns
    /// it.
    #[inline]
    pub fn add_salt_of(frames: &mut Frames, frame: Frame, salt_of: impl FnOnce(u8, u8) -> u32) -> u32 {
        let bytes: &mut [u8; size_of::<OobBytes>()] = frames.oob_mut(frame).first_chunk_mut().expect("sixteen bytes");
        let salt = salt_of(bytes[offset_of!(OobBytes, kind)], bytes[offset_of!(OobBytes, version)] & VERSION_MASK);
        let crc: &mut [u8; 4] = bytes[offset_of!(OobBytes, crc)..].first_chunk_mut().expect("four bytes");
        *crc = (u32::from_le_bytes(*crc) ^ salt).to_le_bytes();
        salt
    }

    /// Reads the out-of-band bytes of `frame` without looking at the payload.
    ///
    /// # Errors
    /// If the kind or the version is unknown.
    #[inline]
    pub fn peek(frames: &Frames, frame: Frame) -> Result<Oob, OobError> {
        let bytes = OobBytes::read_from_prefix(frames.oob(frame)).expect("at least sixteen bytes").0;
        let kind = BlockKind::from_byte(bytes.kind).ok_or(OobError::Kind(bytes.kind))?;
        let version = bytes.version & VERSION_MASK;
        if version != OOB_VERSION {
            return Err(OobError::Version { found: version });
        }
        let address = u64::from(bytes.version >> 4) << 32 | u64::from(bytes.address.get());
        let sequence = u64::from(bytes.sequence_high.get()) << 32 | u64::from(bytes.sequence_low.get());
        Ok(Oob { kind, address, sequence })
    }

    /// Reads the out-of-band bytes of `frame` and verifies that the payload belongs to them.
    ///
    /// # Errors
    /// If the kind or version is unknown, or the CRC32C does not agree.
    #[inline]
    pub fn verify(frames: &Frames, frame: Frame) -> Result<Oob, OobError> {
        Oob::verify_payload(frames, frame, frames.payload(frame))
    }

    /// As [`Oob::verify`], for who does not know whether the block was written from bytes or from a stamp.
    ///
    /// # Errors
    /// If the kind or version is unknown, or the CRC32C agrees with neither.
    pub fn verify_either(frames: &Frames, frame: Frame) -> Result<Oob, OobError> {
        Oob::verify(frames, frame).or_else(|error| match frames.payload(frame) {
            Payload::Bytes(bytes) if matches!(error, OobError::Crc { .. }) => {
                let stamp = Stamp::recognise(bytes).ok_or(error)?;
                Oob::verify_payload(frames, frame, Payload::Stamp(stamp))
            }
            _ => Err(error),
        })
    }

    /// The salts that would make the CRC of `frame` agree with its contents: as bytes or a stamp that it holds, and as the
    /// stamp that its bytes were written from.
    #[must_use]
    pub fn salts_left(frames: &Frames, frame: Frame) -> [Option<u32>; 2] {
        let stamp = match frames.payload(frame) {
            Payload::Bytes(bytes) => Stamp::recognise(bytes).map(Payload::Stamp),
            Payload::Stamp(_) => None,
        };
        [Some(frames.payload(frame)), stamp].map(|payload| {
            let bytes = frames.oob(frame);
            let found = u32::from_le_bytes(*bytes[12..].first_chunk().expect("the last four of sixteen"));
            Some(found ^ checksum(bytes.first_chunk().expect("twelve of sixteen bytes"), payload?))
        })
    }

    #[inline]
    fn verify_payload(frames: &Frames, frame: Frame, payload: Payload<'_>) -> Result<Oob, OobError> {
        let oob = Oob::peek(frames, frame)?;
        let bytes = frames.oob(frame);
        let expected = checksum(bytes.first_chunk().expect("twelve of sixteen bytes"), payload);
        let found = u32::from_le_bytes(*bytes[12..].first_chunk().expect("the last four of sixteen"));
        if expected != found {
            return Err(OobError::Crc { found, expected });
        }
        Ok(oob)
    }
}

/// The rows of the table in `docs/FORMAT.md`.
#[must_use]
pub fn format_table() -> &'static [(usize, usize, &'static str)] {
    &[
        (
            offset_of!(OobBytes, kind),
            1,
            "kind: 1 data, 2 padding, 3 log, 4 checkpoint, 5 superblock, 6 lost, 7 uncorrectable, 8 table, 9 map page, 10 log of a tenant",
        ),
        (offset_of!(OobBytes, version), 1, "bits 3-0: format version, 3; bits 7-4: address, bits 35-32"),
        (offset_of!(OobBytes, sequence_high), 2, "sequence, bits 47-32"),
        (offset_of!(OobBytes, address), 4, "address, bits 31-0"),
        (offset_of!(OobBytes, sequence_low), 4, "sequence, bits 31-0"),
        (offset_of!(OobBytes, crc), 4, "CRC32C of bytes 0-11 and of the payload's CRC32C, XORed with the salt"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use openftl_core::FrameForm;

    fn sealed() -> (Frames, Frame) {
        let mut frames = Frames::new(1, 1, 16);
        let frame = frames.acquire(FrameForm::Bytes).unwrap();
        frames.bytes_mut(frame).fill(0x5A);
        Oob { kind: BlockKind::Data, address: 0x5678_9ABC, sequence: 0x1234_0000_0007 }.seal(&mut frames, frame);
        (frames, frame)
    }

    #[test]
    fn the_bytes_on_media_are_these() {
        let (frames, frame) = sealed();
        let text = frames.oob(frame).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        expect_test::expect!["01033412bc9a785607000000d3b88ed6"].assert_eq(&text);
    }

    #[test]
    fn an_address_has_36_bits() {
        let mut frames = Frames::new(1, 1, 16);
        let frame = frames.acquire(FrameForm::Bytes).unwrap();
        for address in [0, u64::from(u32::MAX), 1 << 32, (1 << ADDRESS_BITS) - 1] {
            let oob = Oob { kind: BlockKind::Data, address, sequence: 7 };
            oob.seal(&mut frames, frame);
            assert_eq!(Oob::verify(&frames, frame), Ok(oob));
        }
    }

    #[test]
    fn any_flipped_bit_is_found_out() {
        let (mut frames, frame) = sealed();
        let oob = Oob::verify(&frames, frame).unwrap();
        assert_eq!((oob.kind, oob.address, oob.sequence), (BlockKind::Data, 0x5678_9ABC, 0x1234_0000_0007));
        for bit in 0..16 * 8 {
            frames.oob_mut(frame)[bit / 8] ^= 1 << (bit % 8);
            assert!(Oob::verify(&frames, frame).is_err(), "bit {bit}");
            frames.oob_mut(frame)[bit / 8] ^= 1 << (bit % 8);
        }
        frames.bytes_mut(frame)[4095] ^= 0x80;
        assert!(matches!(Oob::verify(&frames, frame), Err(OobError::Crc { .. })));
    }

    #[test]
    fn a_stamp_is_sealed_too() {
        let mut frames = Frames::new(0, 1, 16);
        let frame = frames.acquire(FrameForm::Stamp).unwrap();
        Oob { kind: BlockKind::Data, address: 1, sequence: 1 }.seal(&mut frames, frame);
        assert!(Oob::verify(&frames, frame).is_ok());
        if let openftl_core::PayloadMut::Stamp(stamp) = frames.payload_mut(frame) {
            stamp.0 ^= 1;
        }
        assert!(Oob::verify(&frames, frame).is_err());
    }

    #[test]
    fn a_stamp_read_as_bytes_is_recognised() {
        let mut frames = Frames::new(1, 1, 16);
        let (stamp, bytes) = (frames.acquire(FrameForm::Stamp).unwrap(), frames.acquire(FrameForm::Bytes).unwrap());
        if let openftl_core::PayloadMut::Stamp(payload) = frames.payload_mut(stamp) {
            payload.0 = 0xABCD;
        }
        Oob { kind: BlockKind::Data, address: 1, sequence: 1 }.seal(&mut frames, stamp);
        frames.copy(stamp, bytes);
        let oob = frames.oob(stamp).to_vec();
        frames.oob_mut(bytes).copy_from_slice(&oob);
        assert!(matches!(Oob::verify(&frames, bytes), Err(OobError::Crc { .. })));
        assert_eq!(Oob::verify_either(&frames, bytes), Oob::verify(&frames, stamp));
        frames.bytes_mut(bytes)[4000] ^= 1;
        assert!(Oob::verify_either(&frames, bytes).is_err());
    }
}
