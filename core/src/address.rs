//! Where a logical block of the device lies.
//!
//! Open-Channel 2.0 packs an address into one integer, least significant bits first:
//!
//! ```text
//!   group │ parallel unit │ chunk │ logical block
//! ```
//!
//! Each field has a whole number of bits, so the address space is sparse where a count is no power of two. A [`Ppa`]
//! is that integer. All its fields but the block make a [`ChunkId`], all but block and chunk a [`PuId`]: both index
//! tables directly, and no address is ever divided.

use crate::geometry::Geometry;
use std::fmt;
use std::str::FromStr;

/// The packed address of one logical block on the device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Ppa(pub u64);

/// The packed address of one chunk: group, parallel unit, chunk.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct ChunkId(pub u32);

/// The packed address of one parallel unit: group, parallel unit.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct PuId(pub u32);

/// An address in its four fields.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Address {
    /// Group (channel): no interference across groups.
    pub group: u32,
    /// Parallel unit within the group.
    pub pu: u32,
    /// Chunk within the parallel unit.
    pub chunk: u32,
    /// Logical block within the chunk.
    pub block: u32,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "g{}p{}c{}b{}", self.group, self.pu, self.chunk, self.block)
    }
}

/// A chunk as people write it: `g0p1c5` is chunk 5 of parallel unit 1 of group 0. Not every name is one of a given device:
/// see [`Geometry::chunk_named`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ChunkName {
    /// Group.
    pub group: u32,
    /// Parallel unit within the group.
    pub pu: u32,
    /// Chunk within the parallel unit.
    pub chunk: u32,
}

/// A text that names no chunk.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("`{text}` names no chunk; write it like g0p1c5: group, parallel unit, chunk")]
pub struct ChunkNameError {
    text: String,
}

impl fmt::Display for ChunkName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "g{}p{}c{}", self.group, self.pu, self.chunk)
    }
}

impl FromStr for ChunkName {
    type Err = ChunkNameError;

    fn from_str(text: &str) -> Result<ChunkName, ChunkNameError> {
        let number = |digits: &str| {
            let is_plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
            is_plain.then(|| digits.parse().ok()).flatten()
        };
        let name = || {
            let (group, rest) = text.strip_prefix('g')?.split_once('p')?;
            let (pu, chunk) = rest.split_once('c')?;
            Some(ChunkName { group: number(group)?, pu: number(pu)?, chunk: number(chunk)? })
        };
        name().ok_or_else(|| ChunkNameError { text: text.to_owned() })
    }
}

crate::units::serde_as_text!(ChunkName);

/// The bit lengths of the four fields (Open-Channel 2.0, geometry bytes 8 to 11, LBAF).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct AddressFormat {
    /// Bits of the group field.
    pub group_bits: u8,
    /// Bits of the parallel unit field.
    pub pu_bits: u8,
    /// Bits of the chunk field.
    pub chunk_bits: u8,
    /// Bits of the logical block field.
    pub block_bits: u8,
}

impl AddressFormat {
    /// The shortest fields that hold the counts of `geometry`.
    #[must_use]
    pub fn of(geometry: &Geometry) -> AddressFormat {
        let bits = |count: u32| (u32::BITS - count.saturating_sub(1).leading_zeros()) as u8;
        AddressFormat {
            group_bits: bits(geometry.groups),
            pu_bits: bits(geometry.pus_per_group),
            chunk_bits: bits(geometry.chunks_per_pu),
            block_bits: bits(geometry.blocks_per_chunk),
        }
    }

    /// Bits of a whole address.
    #[must_use]
    pub fn bits(self) -> u32 {
        u32::from(self.group_bits) + u32::from(self.pu_bits) + u32::from(self.chunk_bits) + u32::from(self.block_bits)
    }

    /// One more than the largest [`ChunkId`]: the length of a table indexed by chunk.
    #[must_use]
    pub fn chunk_ids(self) -> usize {
        1 << (self.bits() - u32::from(self.block_bits))
    }

    /// One more than the largest [`PuId`]: the length of a table indexed by parallel unit.
    #[must_use]
    pub fn pu_ids(self) -> usize {
        1 << (self.group_bits + self.pu_bits)
    }

    /// Packs the four fields. They must be in range of the format.
    #[inline]
    #[must_use]
    pub fn pack(self, address: Address) -> Ppa {
        let pu = (u64::from(address.group) << self.pu_bits) | u64::from(address.pu);
        let chunk = (pu << self.chunk_bits) | u64::from(address.chunk);
        Ppa((chunk << self.block_bits) | u64::from(address.block))
    }

    /// Unpacks the four fields.
    #[inline]
    #[must_use]
    pub fn unpack(self, ppa: Ppa) -> Address {
        let chunk = self.chunk_of(ppa);
        Address { block: self.block_of(ppa), ..self.unpack_chunk(chunk) }
    }

    /// Unpacks the fields of a chunk; block is 0.
    #[inline]
    #[must_use]
    pub fn unpack_chunk(self, chunk: ChunkId) -> Address {
        let pu = chunk.0 >> self.chunk_bits;
        Address {
            group: pu >> self.pu_bits,
            pu: pu & ((1 << self.pu_bits) - 1),
            chunk: chunk.0 & ((1 << self.chunk_bits) - 1),
            block: 0,
        }
    }

    /// The name of `chunk`.
    #[must_use]
    pub fn name(self, chunk: ChunkId) -> ChunkName {
        let Address { group, pu, chunk, .. } = self.unpack_chunk(chunk);
        ChunkName { group, pu, chunk }
    }

    /// The chunk that holds `ppa`.
    #[inline]
    #[must_use]
    pub fn chunk_of(self, ppa: Ppa) -> ChunkId {
        ChunkId((ppa.0 >> self.block_bits) as u32)
    }

    /// The block of `ppa` within its chunk.
    #[inline]
    #[must_use]
    pub fn block_of(self, ppa: Ppa) -> u32 {
        (ppa.0 & ((1 << self.block_bits) - 1)) as u32
    }

    /// The parallel unit that holds `chunk`.
    #[inline]
    #[must_use]
    pub fn pu_of(self, chunk: ChunkId) -> PuId {
        PuId(chunk.0 >> self.chunk_bits)
    }

    /// The group that holds `pu`.
    #[inline]
    #[must_use]
    pub fn group_of(self, pu: PuId) -> u32 {
        pu.0 >> self.pu_bits
    }

    /// Block `block` of `chunk`.
    #[inline]
    #[must_use]
    pub fn ppa(self, chunk: ChunkId, block: u32) -> Ppa {
        Ppa((u64::from(chunk.0) << self.block_bits) | u64::from(block))
    }

    /// The parallel unit `pu` of `group`.
    #[inline]
    #[must_use]
    pub fn pu_id(self, group: u32, pu: u32) -> PuId {
        PuId((group << self.pu_bits) | pu)
    }

    /// Chunk `chunk` of `pu`.
    #[inline]
    #[must_use]
    pub fn chunk_id(self, pu: PuId, chunk: u32) -> ChunkId {
        ChunkId((pu.0 << self.chunk_bits) | chunk)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_address_of_an_odd_geometry_packs_and_unpacks() {
        let geometry =
            Geometry { groups: 3, pus_per_group: 2, chunks_per_pu: 5, blocks_per_chunk: 24, ..Geometry::tiny() };
        let format = geometry.format();
        assert_eq!(format, AddressFormat { group_bits: 2, pu_bits: 1, chunk_bits: 3, block_bits: 5 });
        let mut last = None;
        for group in 0..3 {
            for pu in 0..2 {
                for chunk in 0..5 {
                    for block in 0..24 {
                        let address = Address { group, pu, chunk, block };
                        let ppa = format.pack(address);
                        assert_eq!(format.unpack(ppa), address);
                        assert_eq!(format.ppa(format.chunk_of(ppa), block), ppa);
                        assert!(Some(ppa) > last, "packed addresses keep the order of their fields");
                        last = Some(ppa);
                    }
                }
            }
        }
    }

    #[test]
    fn a_chunk_has_one_name_and_a_name_at_most_one_chunk() {
        let geometry =
            Geometry { groups: 3, pus_per_group: 2, chunks_per_pu: 5, blocks_per_chunk: 24, ..Geometry::tiny() };
        let format = geometry.format();
        assert_eq!(format.name(format.chunk_id(format.pu_id(2, 1), 4)).to_string(), "g2p1c4");
        for chunk in geometry.chunk_ids() {
            let name: ChunkName = format.name(chunk).to_string().parse().unwrap();
            assert_eq!(geometry.chunk_named(name), Some(chunk));
        }
        for absent in ["g3p0c0", "g0p2c0", "g0p0c5", "g4294967295p4294967295c4294967295"] {
            assert_eq!(geometry.chunk_named(absent.parse().unwrap()), None, "{absent}");
        }
        for text in ["", "g", "g0p0c", "g0p0c+1", "0/0/0", "g0p0c0b0", "g4294967296p0c0", " g0p0c0", "g0c0p0"] {
            let error = text.parse::<ChunkName>().unwrap_err().to_string();
            assert!(error.contains(&format!("`{text}`")) && error.contains("g0p1c5"), "{error}");
        }
    }

    #[test]
    fn a_field_of_one_needs_no_bits() {
        let geometry = Geometry { groups: 1, pus_per_group: 1, ..Geometry::tiny() };
        assert_eq!((geometry.format().group_bits, geometry.format().pu_bits), (0, 0));
    }
}
