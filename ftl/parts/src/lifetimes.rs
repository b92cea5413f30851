//! Lifetimes that nobody tells: how long blocks live is inferred from how long they have lived.
//!
//! The idea is that of SepBIT (Wang et al., FAST 2022). A block that is overwritten soon after it was written will probably
//! be overwritten soon again, so the new version is *brief* if the old one lived less than ℓ: the mean time that chunks of brief blocks took from
//! their first write to their collection. What collection moves from such chunks was expected to be gone and is not: it is kept apart. All other blocks that it moves are
//! kept apart by age, for the longer a block has lived, the longer it will.
//!
//! Time is counted in host blocks written. The time of the last write of each block takes four bytes; a relocated block
//! says in its out-of-band bytes when it was written, if it is read at all.

/// Places for relocated blocks besides the common one: from brief chunks, and two for the old.
pub const AGES: usize = 3;

/// Collected chunks that the mean is taken of.
const CHUNKS_OF_MEAN: u32 = 16;

/// Ages, in multiples of ℓ, from which a relocated block goes to the second place, and to the third.
const OLD: [u64; 2] = [4, 16];

/// Times are kept in steps of this many blocks, as a power of two, so that four bytes are enough.
const STEP_BITS: u32 = 4;

/// When each block was written, and how long brief ones live.
pub struct Lifetimes {
    /// In steps, by logical block; 0: not known.
    written: Vec<u32>,
    /// ℓ.
    brief: u64,
    /// Of the chunks since ℓ was last taken: how many, and how long they lived in sum.
    chunks: u32,
    lived: u64,
}

impl Lifetimes {
    /// Nothing is known.
    #[must_use]
    pub fn new(blocks: u64) -> Lifetimes {
        Lifetimes { written: vec![0; blocks as usize], brief: u64::MAX, chunks: 0, lived: 0 }
    }

    /// `block` is written at `position`. Returns whether this version is expected to be brief.
    #[inline]
    pub fn write(&mut self, block: u64, position: u64) -> bool {
        let step = (position >> STEP_BITS) as u32;
        let before = std::mem::replace(&mut self.written[block as usize], step.max(1));
        before != 0 && u64::from(step.wrapping_sub(before)) << STEP_BITS < self.brief
    }

    /// When `block` was written, as far as it is known at `head`; 0 if it was not since the drive was opened.
    #[inline]
    #[must_use]
    pub fn written(&self, block: u64, head: u64) -> u64 {
        let step = (head >> STEP_BITS) as u32;
        match self.written[block as usize] {
            0 => 0,
            written => head.saturating_sub(u64::from(step.wrapping_sub(written)) << STEP_BITS),
        }
    }

    /// A chunk of brief blocks is collected, so many host blocks after its first write.
    pub fn collected(&mut self, lived: u64) {
        (self.chunks, self.lived) = (self.chunks + 1, self.lived + lived);
        if self.chunks == CHUNKS_OF_MEAN {
            self.brief = self.lived / u64::from(self.chunks);
            (self.chunks, self.lived) = (0, 0);
        }
    }

    /// Where collection puts a block of this age, if not with most of the others.
    #[inline]
    #[must_use]
    pub fn destination(&self, from_brief: bool, age: u64) -> Option<usize> {
        let is_beyond = |multiple: &u64| age >= self.brief.saturating_mul(*multiple);
        if from_brief {
            return Some(0);
        }
        OLD.iter().rposition(is_beyond).map(|place| place + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_overwritten_sooner_than_brief_chunks_live_is_brief() {
        let mut lifetimes = Lifetimes::new(10);
        for _ in 0..CHUNKS_OF_MEAN {
            lifetimes.collected(1000);
        }
        assert!(!lifetimes.write(3, 5000), "nothing is known of its first version");
        assert!(lifetimes.write(3, 5500));
        assert!(!lifetimes.write(3, 7000));
        assert_eq!(
            [999, 3999, 4000, 16_000].map(|age| lifetimes.destination(false, age)),
            [None, None, Some(1), Some(2)]
        );
        assert_eq!(lifetimes.destination(true, 0), Some(0));
        let step = 1 << STEP_BITS;
        assert_eq!((lifetimes.written(3, 9000) / step, lifetimes.written(4, 9000)), (7000 / step, 0));
    }

    #[test]
    fn before_a_chunk_was_collected_whatever_was_overwritten_is_brief_and_nothing_is_old() {
        let mut lifetimes = Lifetimes::new(10);
        assert_eq!((lifetimes.write(3, 100), lifetimes.write(3, 1 << 30)), (false, true));
        assert_eq!(lifetimes.destination(false, 1 << 40), None);
    }
}
