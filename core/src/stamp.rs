//! Eight bytes that stand for a whole block.
//!
//! A simulation of a terabyte drive cannot keep its payload. It writes stamps instead: word `i` of the block that a
//! stamp stands for is `stamp × (2i + 1)`, so that a stamp can be expanded to real bytes, real bytes can be recognised
//! as a stamp, and the zero stamp is the zero block.

use crate::BLOCK_BYTES;

/// Words that are written or compared at a time.
const WORDS_AT_ONCE: usize = 8;
const _: () = assert!((BLOCK_BYTES / 8).is_multiple_of(WORDS_AT_ONCE), "a block is so many words over and over");

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
        let (mut values, step) = self.first_words();
        for words in block.as_chunks_mut::<8>().0.as_chunks_mut::<WORDS_AT_ONCE>().0 {
            for (bytes, value) in words.iter_mut().zip(&mut values) {
                *bytes = value.to_le_bytes();
                *value = value.wrapping_add(step);
            }
        }
    }

    /// The stamp that stands for `block`, if there is one.
    #[must_use]
    pub fn recognise(block: &[u8; BLOCK_BYTES]) -> Option<Stamp> {
        let words = block.as_chunks::<8>().0;
        let stamp = Stamp(u64::from_le_bytes(words[0]));
        let (mut values, step) = stamp.first_words();
        let is_expanded = |words: &[[u8; 8]; WORDS_AT_ONCE]| {
            let mut differs = 0;
            for (bytes, value) in words.iter().zip(&mut values) {
                differs |= u64::from_le_bytes(*bytes) ^ *value;
                *value = value.wrapping_add(step);
            }
            differs == 0
        };
        words.as_chunks::<WORDS_AT_ONCE>().0.iter().all(is_expanded).then_some(stamp)
    }

    /// The first words of the block, and how much each is less than the word so many behind it: what is added is sooner done for
    /// several words than what is multiplied.
    #[inline]
    fn first_words(self) -> ([u64; WORDS_AT_ONCE], u64) {
        let words = std::array::from_fn(|word| self.0.wrapping_mul(2 * word as u64 + 1));
        (words, self.0.wrapping_mul(2 * WORDS_AT_ONCE as u64))
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
            for (word, bytes) in block.as_chunks::<8>().0.iter().enumerate() {
                assert_eq!(u64::from_le_bytes(*bytes), stamp.wrapping_mul(2 * word as u64 + 1), "word {word}");
            }
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
