//! Where the columns of all zones are: the chunk of each, in as few bytes as name a chunk of the device.
//!
//! ```text
//!   zone 0                        zone 1
//!   ├── column 0 ─┬─ column 1 ────┼── column 0 ─┬─ column 1 ────┤ …
//!      chunk         chunk           chunk         all ones: none
//! ```

use openftl_core::{ChunkId, Geometry};

/// Bytes of the longest place.
const WORD_BYTES: usize = size_of::<u32>();

/// See the module.
pub(crate) struct Places {
    /// The places one behind the other, and what makes a whole word of the last one.
    bytes: Vec<u8>,
    place_bytes: usize,
    /// The bits of a place in a word; as a place it is none.
    mask: u32,
}

/// Bytes of a place on a device of this shape: with all bits set it names no chunk.
pub(crate) fn place_bytes(geometry: &Geometry) -> u32 {
    let last = geometry.pu_ids().last().expect("a device has a parallel unit");
    let highest = geometry.format().chunk_id(last, geometry.chunks_per_pu - 1);
    (u32::BITS - (highest.0 + 1).leading_zeros()).div_ceil(u8::BITS)
}

impl Places {
    /// `count` places, of which none is known.
    pub(crate) fn new(count: usize, place_bytes: u32) -> Places {
        let place_bytes = place_bytes as usize;
        assert!((1..=WORD_BYTES).contains(&place_bytes), "a chunk is named by a word at most");
        let mask = u32::MAX >> (u8::BITS as usize * (WORD_BYTES - place_bytes));
        Places { bytes: vec![u8::MAX; count * place_bytes + WORD_BYTES - place_bytes], place_bytes, mask }
    }

    /// Bytes of memory, but for what makes a whole word of the last place.
    pub(crate) fn bytes(&self) -> u64 {
        (self.bytes.len() + self.place_bytes - WORD_BYTES) as u64
    }

    #[inline]
    pub(crate) fn get(&self, index: usize) -> Option<ChunkId> {
        let at = index * self.place_bytes;
        let word: [u8; WORD_BYTES] = self.bytes[at..at + WORD_BYTES].try_into().expect("it is a word");
        let place = u32::from_le_bytes(word) & self.mask;
        (place != self.mask).then_some(ChunkId(place))
    }

    pub(crate) fn set(&mut self, index: usize, chunk: Option<ChunkId>) {
        let place = chunk.map_or(self.mask, |chunk| chunk.0);
        debug_assert!(chunk.is_none() || place < self.mask, "chunk {place} has no place of {} bytes", self.place_bytes);
        let at = index * self.place_bytes;
        self.bytes[at..at + self.place_bytes].copy_from_slice(&place.to_le_bytes()[..self.place_bytes]);
    }

    /// Which place names `chunk`.
    pub(crate) fn position(&self, chunk: ChunkId) -> Option<usize> {
        let count = self.bytes() as usize / self.place_bytes;
        (0..count).find(|index| self.get(*index) == Some(chunk))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_of_every_length_keep_their_neighbours() {
        for place_bytes in 1..=4 {
            let mut places = Places::new(5, place_bytes);
            let highest = ChunkId(u32::MAX.checked_shr(32 - 8 * place_bytes).expect("it is shorter than a word") - 1);
            assert_eq!(places.bytes(), u64::from(5 * place_bytes));
            assert!((0..5).all(|index| places.get(index).is_none()));
            let all = [ChunkId(0), highest, ChunkId(1), ChunkId(highest.0 / 2), highest];
            for (index, chunk) in all.into_iter().enumerate() {
                places.set(index, Some(chunk));
            }
            assert_eq!([0, 1, 2, 3, 4].map(|index| places.get(index).expect("it was set")), all);
            assert_eq!(places.position(ChunkId(1)), Some(2));
            places.set(1, None);
            assert_eq!((places.get(0), places.get(1), places.get(2)), (Some(all[0]), None, Some(all[2])));
            assert_eq!(places.position(highest), Some(4));
            places.set(4, None);
            assert_eq!(places.position(highest), None);
        }
    }

    /// The last chunk of a device is not what stands for none.
    #[test]
    fn every_chunk_of_a_device_has_a_place() {
        for chunks_per_pu in [1, 2, 127, 128, 255, 256, 32768, 65535, 65536, 1 << 20] {
            let geometry = Geometry { groups: 1, pus_per_group: 1, chunks_per_pu, ..Geometry::tiny() };
            let mut places = Places::new(1, place_bytes(&geometry));
            let last = ChunkId(chunks_per_pu - 1);
            places.set(0, Some(last));
            assert_eq!(places.get(0), Some(last), "{chunks_per_pu} chunks");
        }
    }
}
