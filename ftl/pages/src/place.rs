//! Where a page is, and what stands before its bytes there.
//!
//! Flash is divided into *grains* of 64 bytes, 64 of them to a block. A page begins on a grain, with a header of 32 bytes, and lies in
//! one chunk, across as many blocks and write units as it takes:
//!
//! ```text
//!   block  │ ▓hhhh page 7 ··· │ ··· page 7 ▒hhhh page 9 │ ···        ▓ ▒ grains; h header
//! ```
//!
//! | bytes of a header | field |
//! |---|---|
//! | 0-7 | page number (LPID), or number of the group |
//! | 8-15 | version: greater for what was put later, whatever the page |
//! | 16-19 | length in bytes, without the header |
//! | 20 | kind: 1, a page; 2, a group of the log |
//! | 21-23 | 0 |
//! | 24-27 | CRC32C of bytes 0-23 and then of the CRC32C of the page |
//! | 28-31 | CRC32C of the page |

use openftl_core::checksum::Crc32c;
use openftl_core::{AddressFormat, BLOCK_BYTES, ChunkId, Ppa};
use std::mem::offset_of;
use std::ops::Range;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, Unaligned};

/// Bytes of a grain.
pub const GRAIN_BYTES: usize = 64;

/// Grains of a block.
pub const GRAINS_PER_BLOCK: u32 = (BLOCK_BYTES / GRAIN_BYTES) as u32;

/// Bytes before each page.
pub const HEADER_BYTES: usize = 32;

/// The longest page that hosts may put.
pub const PAGE_BYTES_MAX: u32 = 1 << 20;

/// No drive comes to a version or to a group with a greater number: what says so was made up.
pub const COUNT_MAX: u64 = 1 << 62;

/// A count as a drive may have written it; another one says nothing.
#[must_use]
pub fn possible(count: u64) -> u64 {
    if count > COUNT_MAX { 0 } else { count }
}

/// The longest page of any drive: an FTL that is composed of pages may add something of its own to what its hosts have.
pub(crate) const OWN_BYTES_MAX: u32 = PAGE_BYTES_MAX + 32;

const GRAIN_BITS: u32 = GRAINS_PER_BLOCK.ilog2();
/// Bits of the bytes of the last grain that a page leaves, and of its grains less one.
const SLACK_BITS: u32 = GRAIN_BYTES.ilog2();
const LENGTH_BITS: u32 = 15;
const POSITION_SHIFT: u32 = SLACK_BITS + LENGTH_BITS;

const _: () = assert!(grains_of(OWN_BYTES_MAX) <= 1 << LENGTH_BITS, "the longest page has a length");

/// Grains that a page of so many bytes takes, with its header.
#[must_use]
pub const fn grains_of(bytes: u32) -> u32 {
    (bytes + HEADER_BYTES as u32).div_ceil(GRAIN_BYTES as u32)
}

/// Where a page is on media, and how long it is. Eight bytes: all that is kept in memory of a page.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Place(u64);

impl Place {
    /// What stands where there is no page.
    pub(crate) const NONE_BITS: u64 = u64::MAX;

    /// The page was lost by the medium, and is an error until it is put or deleted.
    pub const LOST: Place = Place(u64::MAX - 1);

    /// A page of `bytes` bytes whose header begins in grain `grain` of `chunk`.
    ///
    /// # Panics
    /// If the position has more bits than there is room for, which no device has.
    #[must_use]
    pub fn new(format: AddressFormat, chunk: ChunkId, grain: u32, bytes: u32) -> Place {
        let ppa = format.ppa(chunk, grain / GRAINS_PER_BLOCK);
        let position = ppa.0 << GRAIN_BITS | u64::from(grain % GRAINS_PER_BLOCK);
        assert!(position < 1 << (63 - POSITION_SHIFT), "an address has fewer bits");
        let grains = grains_of(bytes);
        let slack = grains * GRAIN_BYTES as u32 - HEADER_BYTES as u32 - bytes;
        Place(position << POSITION_SHIFT | u64::from(grains - 1) << SLACK_BITS | u64::from(slack))
    }

    /// From the bits on media. `None`: no page.
    #[must_use]
    pub fn from_bits(bits: u64) -> Option<Place> {
        (bits != Place::NONE_BITS).then_some(Place(bits))
    }

    /// The bits on media.
    #[must_use]
    pub fn bits(self) -> u64 {
        self.0
    }

    /// The block in which its header begins.
    #[must_use]
    pub fn ppa(self) -> Ppa {
        Ppa(self.0 >> (POSITION_SHIFT + GRAIN_BITS))
    }

    /// Its chunk.
    #[must_use]
    pub fn chunk(self, format: AddressFormat) -> ChunkId {
        format.chunk_of(self.ppa())
    }

    /// The grain of its chunk in which its header begins.
    #[must_use]
    pub fn grain(self, format: AddressFormat) -> u32 {
        let within = (self.0 >> POSITION_SHIFT) as u32 & (GRAINS_PER_BLOCK - 1);
        format.block_of(self.ppa()) * GRAINS_PER_BLOCK + within
    }

    /// Grains that it takes.
    #[must_use]
    pub fn grains(self) -> u32 {
        ((self.0 >> SLACK_BITS) as u32 & ((1 << LENGTH_BITS) - 1)) + 1
    }

    /// The grain behind its last one.
    #[must_use]
    pub fn end_grain(self, format: AddressFormat) -> u32 {
        self.grain(format) + self.grains()
    }

    /// Bytes of the page, without its header.
    #[must_use]
    pub fn bytes(self) -> u32 {
        let slack = self.0 as u32 & ((1 << SLACK_BITS) - 1);
        self.grains() * GRAIN_BYTES as u32 - HEADER_BYTES as u32 - slack
    }

    /// Whether a page can have as many bytes as it says.
    #[must_use]
    pub(crate) fn has_length(self) -> bool {
        let slack = self.0 as u32 & ((1 << SLACK_BITS) - 1);
        self.grains() * GRAIN_BYTES as u32 > HEADER_BYTES as u32 + slack
    }

    /// The blocks of its chunk that it touches.
    #[must_use]
    pub fn blocks(self, format: AddressFormat) -> Range<u32> {
        format.block_of(self.ppa())..self.end_grain(format).div_ceil(GRAINS_PER_BLOCK)
    }
}

/// What a header stands before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A page.
    Page = 1,
    /// Records of the log.
    Group = 2,
}

/// What stands before a page. See the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// A page or a group.
    pub kind: Kind,
    /// Which one it is.
    pub lpid: u64,
    /// Which version of it.
    pub version: u64,
    /// Bytes of it.
    pub bytes: u32,
    /// CRC32C of these.
    pub crc: u32,
}

#[derive(FromBytes, IntoBytes, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
struct HeaderBytes {
    lpid: U64,
    version: U64,
    bytes: U32,
    kind: u8,
    zero: [u8; 3],
    sealed: U32,
    crc: U32,
}

const _: () = assert!(size_of::<HeaderBytes>() == HEADER_BYTES);

impl Header {
    /// As it is on media.
    #[must_use]
    pub fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let Header { kind, lpid, version, bytes, crc } = self;
        let mut raw = HeaderBytes {
            lpid: lpid.into(),
            version: version.into(),
            bytes: bytes.into(),
            kind: kind as u8,
            zero: [0; 3],
            sealed: U32::ZERO,
            crc: crc.into(),
        };
        raw.sealed = U32::new(raw.seal());
        zerocopy::transmute!(raw)
    }

    /// From what is on media. `None`: no header begins there.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Header> {
        let (raw, _) = HeaderBytes::read_from_prefix(bytes).ok()?;
        let kind = [Kind::Page, Kind::Group].into_iter().find(|kind| *kind as u8 == raw.kind)?;
        let (lpid, version, bytes, crc) = (raw.lpid.get(), raw.version.get(), raw.bytes.get(), raw.crc.get());
        let found = Header { kind, lpid, version, bytes, crc };
        let is_number = kind == Kind::Page || (1..=COUNT_MAX).contains(&lpid);
        let is_possible = (1..=OWN_BYTES_MAX).contains(&bytes) && version <= COUNT_MAX && is_number;
        (is_possible && raw.seal() == raw.sealed.get()).then_some(found)
    }
}

impl HeaderBytes {
    fn seal(&self) -> u32 {
        let mut crc = Crc32c::new();
        crc.update(&self.as_bytes()[..offset_of!(HeaderBytes, sealed)]);
        crc.update(self.crc.as_bytes());
        crc.value()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use openftl_core::Geometry;

    #[test]
    fn a_place_says_where_a_page_is_and_how_long() {
        let format = Geometry::tiny().format();
        let chunk = format.chunk_id(format.pu_id(1, 1), 7);
        for bytes in [1, 31, 32, 33, 64, 96, 97, 4096, PAGE_BYTES_MAX - 1, PAGE_BYTES_MAX] {
            for grain in [0, 1, 63, 64, 15 * 64 + 63] {
                let place = Place::from_bits(Place::new(format, chunk, grain, bytes).bits()).unwrap();
                assert_eq!((place.chunk(format), place.grain(format), place.bytes()), (chunk, grain, bytes));
                assert_eq!(place.grains(), (bytes as usize + HEADER_BYTES).div_ceil(GRAIN_BYTES) as u32);
                assert!(place != Place::LOST);
            }
        }
        let place = Place::new(format, chunk, 62, 100);
        assert_eq!((place.blocks(format), place.end_grain(format)), (0..2, 65));
        assert_eq!(Place::new(format, chunk, 64, 4064).blocks(format), 1..2);
    }

    #[test]
    fn a_header_is_read_as_it_was_written_and_nothing_else_is_one() {
        let header = Header { kind: Kind::Page, lpid: u64::MAX, version: 7, bytes: 4096, crc: 0x1234_5678 };
        let bytes = header.to_bytes();
        assert_eq!(Header::read(&bytes), Some(header));
        for at in 0..HEADER_BYTES {
            let mut other = bytes;
            other[at] ^= 1;
            assert_eq!(Header::read(&other), None, "byte {at}");
        }
        assert_eq!(Header::read(&bytes[..31]), None);
        assert_eq!(Header::read(&[0; HEADER_BYTES]), None);
        assert_eq!(Header::read(&Header { bytes: 0, ..header }.to_bytes()), None);
    }
}
