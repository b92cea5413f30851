//! Eight bytes that stand for a whole block.
//!
//! A simulation of a terabyte drive cannot keep its payload. It writes stamps instead: word `i` of the block that a
//! stamp stands for is `stamp × (2i + 1)`, so that a stamp can be expanded to real bytes, real bytes can be recognised
//! as a stamp, and the zero stamp is the zero block.

use crate::BLOCK_BYTES;

/// Stands for one block of [`BLOCK_BYTES`] bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Stamp(pub u64);

impl Stamp {
    /// The block of zeroes.
    pub const ZERO: Stamp = Stamp(0);

    /// Writes out the block that this stamp stands for.
    pub fn expand(self, block: &mut [u8; BLOCK_BYTES]) {
        if self == Stamp::ZERO {
            return block.fill(0);
        }
        for (word, bytes) in block.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            *bytes = self.0.wrapping_mul(2 * word as u64 + 1).to_le_bytes();
        }
    }

    /// The stamp that stands for `block`, if there is one.
    #[must_use]
    pub fn recognise(block: &[u8; BLOCK_BYTES]) -> Option<Stamp> {
        let words = block.as_chunks::<8>().0;
        let stamp = u64::from_le_bytes(words[0]);
        words
            .iter()
            .enumerate()
            .all(|(word, bytes)| u64::from_le_bytes(*bytes) == stamp.wrapping_mul(2 * word as u64 + 1))
            .then_some(Stamp(stamp))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_survives_expansion_and_recognition() {
        for stamp in [0, 1, u64::MAX, 0x1234_5678_9abc_def0] {
            let mut block = [0xAA; BLOCK_BYTES];
            Stamp(stamp).expand(&mut block);
            assert_eq!(Stamp::recognise(&block), Some(Stamp(stamp)));
            block[4095] ^= 1;
            assert_eq!(Stamp::recognise(&block), None);
        }
    }

    #[test]
    fn the_zero_stamp_is_the_zero_block() {
        assert_eq!(Stamp::recognise(&[0; BLOCK_BYTES]), Some(Stamp::ZERO));
    }
}
