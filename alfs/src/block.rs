//! Blocks of metadata: each says what it is, and has a checksum.
//!
//! ```text
//!   0        4    5       6        8     12         16         24       32                    4096
//!   [ ALFS ][kind][version][ place ][ CRC ][ identity ][ sequence ][ volume ][ contents             ]
//! ```
//!
//! The place of a node, of a block of the map of nodes, and of a block of patches is the end of its address: so a copy of such a block among contents is none
//! ([`is_in_place`]). That of other blocks is 0.
//!
//! A block is only what its reader expects if kind, identity and volume agree. The sequence is that of the record that it was written for; of two
//! blocks of the same identity the later one has the greater.

use openftl_core::BLOCK_BYTES;
use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The bytes of a block.
pub type Bytes = [u8; BLOCK_BYTES];

/// Bytes of a header.
pub const HEADER_BYTES: usize = 32;

/// `ALFS`.
const MAGIC: [u8; 4] = *b"ALFS";

/// The version of the format.
pub const VERSION: u8 = 2;

/// What a block of metadata is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Kind {
    /// A file: attributes, and its contents or where they are.
    Inode = 1,
    /// Addresses of a file's blocks.
    Direct = 2,
    /// Numbers of nodes.
    Indirect = 3,
    /// Extended attributes.
    Xattrs = 4,
    /// Where nodes are.
    NodeMap = 5,
    /// Whose the blocks of a segment are.
    Summary = 6,
    /// A record of the volume.
    Record = 7,
    /// Names in a folder.
    Names = 8,
    /// How nodes differ from their blocks.
    Patches = 9,
    /// Nothing: records go on in the other anchor.
    Left = 10,
}

impl Kind {
    /// The kind with this number.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Kind> {
        Some(match number {
            1 => Kind::Inode,
            2 => Kind::Direct,
            3 => Kind::Indirect,
            4 => Kind::Xattrs,
            5 => Kind::NodeMap,
            6 => Kind::Summary,
            7 => Kind::Record,
            8 => Kind::Names,
            9 => Kind::Patches,
            10 => Kind::Left,
            _ => return None,
        })
    }

    /// Kinds of blocks that are found by their number in the map of nodes.
    pub const NODES: [Kind; 4] = [Kind::Inode, Kind::Direct, Kind::Indirect, Kind::Xattrs];

    /// Whether such blocks are found by their number in the map of nodes.
    #[must_use]
    pub fn is_node(self) -> bool {
        Kind::NODES.contains(&self)
    }
}

/// The first bytes of a block of metadata.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, Unaligned, KnownLayout, Debug)]
#[repr(C)]
pub struct Header {
    magic: [u8; 4],
    kind: u8,
    version: u8,
    place: U16,
    crc: U32,
    identity: U32,
    sequence: U64,
    volume: U64,
}

const _: () = assert!(size_of::<Header>() == HEADER_BYTES);

/// Why a block is not what it should be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NotIt {
    /// It is no block of metadata.
    #[error("it does not begin with ALFS")]
    NoMagic,
    /// It is of another version of the format.
    #[error("it is of version {0} of the format, and this program reads version {VERSION}")]
    Version(u8),
    /// Its checksum does not agree.
    #[error("its checksum does not agree")]
    Checksum,
    /// It is of another kind.
    #[error("it is of kind {0}")]
    Kind(u8),
    /// It is another one of its kind.
    #[error("it says that it is number {0}")]
    Identity(u32),
    /// It is of another volume.
    #[error("it is of another volume")]
    Volume,
}

/// What is certain about a block whose checksum agrees.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seen {
    /// What it is.
    pub kind: Kind,
    /// Which one.
    pub identity: u32,
    /// The record that it was written for.
    pub sequence: u64,
    /// Its volume.
    pub volume: u64,
}

fn checksum(bytes: &Bytes) -> u32 {
    let mut crc = openftl_crc32c::Crc32c::new();
    crc.update(&bytes[..8]);
    crc.update(&[0; 4]);
    crc.update(&bytes[12..]);
    crc.value()
}

/// Writes the header of a block whose contents are there.
pub fn seal(bytes: &mut Bytes, kind: Kind, identity: u32, sequence: u64, volume: u64) {
    let header = Header {
        magic: MAGIC,
        kind: kind as u8,
        version: VERSION,
        place: U16::ZERO,
        crc: U32::ZERO,
        identity: identity.into(),
        sequence: sequence.into(),
        volume: volume.into(),
    };
    header.write_to_prefix(bytes).expect("a block has room for a header");
    sign(bytes);
}

/// Writes the checksum of a block, whatever its header says.
pub fn sign(bytes: &mut Bytes) {
    let crc = checksum(bytes);
    bytes[8..12].copy_from_slice(&crc.to_le_bytes());
}

/// Writes the header of a block that says where it is.
pub fn seal_at(bytes: &mut Bytes, kind: Kind, identity: u32, sequence: u64, volume: u64, address: u32) {
    seal(bytes, kind, identity, sequence, volume);
    bytes[6..8].copy_from_slice(&place_of(address).to_le_bytes());
    sign(bytes);
}

/// The end of an address.
fn place_of(address: u32) -> u16 {
    (address & 0xFFFF) as u16
}

/// Whether a block was written for this address, as far as its end tells.
#[must_use]
pub fn is_in_place(bytes: &Bytes, address: u32) -> bool {
    let (header, _) = Header::ref_from_prefix(bytes).expect("a block has room for a header");
    header.place.get() == place_of(address)
}

/// What a block is.
///
/// # Errors
/// If it is no block of metadata, or damaged.
pub fn look(bytes: &Bytes) -> Result<Seen, NotIt> {
    let (header, _) = Header::ref_from_prefix(bytes).expect("a block has room for a header");
    if header.magic != MAGIC {
        return Err(NotIt::NoMagic);
    }
    if checksum(bytes) != header.crc.get() {
        return Err(NotIt::Checksum);
    }
    // All versions have the same checksum, so what is damaged is no other version.
    if header.version != VERSION {
        return Err(NotIt::Version(header.version));
    }
    let kind = Kind::from_number(header.kind).ok_or(NotIt::Kind(header.kind))?;
    let (identity, sequence, volume) = (header.identity.get(), header.sequence.get(), header.volume.get());
    Ok(Seen { kind, identity, sequence, volume })
}

/// What a block is, which is to be this one of this volume.
///
/// # Errors
/// If it is not.
pub fn verify(bytes: &Bytes, kind: Kind, identity: u32, volume: u64) -> Result<Seen, NotIt> {
    let seen = look(bytes)?;
    if seen.volume != volume {
        return Err(NotIt::Volume);
    }
    if seen.kind != kind {
        return Err(NotIt::Kind(seen.kind as u8));
    }
    if seen.identity != identity {
        return Err(NotIt::Identity(seen.identity));
    }
    Ok(seen)
}

/// The number at byte `at` of a block.
#[must_use]
pub fn number_at(bytes: &Bytes, at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

/// Puts a number at byte `at` of a block.
pub fn put_number(bytes: &mut Bytes, at: usize, number: u32) {
    bytes[at..at + 4].copy_from_slice(&number.to_le_bytes());
}

/// A block of zeroes.
#[must_use]
pub fn zeroes() -> Box<Bytes> {
    vec![0; BLOCK_BYTES].into_boxed_slice().try_into().expect("a block has so many bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sealed_block_is_itself_and_no_other_and_notices_each_changed_bit() {
        let mut bytes = zeroes();
        bytes[100] = 7;
        seal(&mut bytes, Kind::Direct, 5, 9, 77);
        let seen = verify(&bytes, Kind::Direct, 5, 77).unwrap();
        assert_eq!(seen, Seen { kind: Kind::Direct, identity: 5, sequence: 9, volume: 77 });
        assert_eq!(verify(&bytes, Kind::Inode, 5, 77), Err(NotIt::Kind(2)));
        assert_eq!(verify(&bytes, Kind::Direct, 6, 77), Err(NotIt::Identity(5)));
        assert_eq!(verify(&bytes, Kind::Direct, 5, 78), Err(NotIt::Volume));
        for bit in 0..BLOCK_BYTES * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(look(&bytes).is_err(), "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }
}
