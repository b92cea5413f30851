//! What is trimmed of segments that are not empty yet: a bit for each block, and only for such segments.

use std::collections::BTreeMap;

/// Trimmed blocks of one segment.
#[derive(Debug)]
struct Trimmed {
    bits: Box<[u64]>,
    count: u32,
}

/// Trimmed blocks of segments that still hold others.
#[derive(Debug)]
pub struct Trims {
    /// Blocks of a segment.
    capacity: u32,
    partly: BTreeMap<u32, Trimmed>,
}

impl Trims {
    /// Nothing is trimmed of segments of `capacity` blocks.
    #[must_use]
    pub fn new(capacity: u32) -> Trims {
        Trims { capacity, partly: BTreeMap::new() }
    }

    /// Blocks from `first` to before `end` of `segment` are trimmed, of which `written` blocks are written. Returns whether nothing of it
    /// is of use any more: every written block is trimmed, and the trims have come to its end, or it is full.
    pub fn trim(&mut self, segment: u32, first: u32, end: u32, written: u32) -> bool {
        let reaches_end = end == self.capacity || written == self.capacity;
        let end = end.min(written);
        if first == 0 && end == written && reaches_end {
            return true;
        }
        if first >= end {
            let is_all = self.partly.get(&segment).is_some_and(|trimmed| trimmed.count == written);
            return reaches_end && is_all;
        }
        let words = self.capacity.div_ceil(u64::BITS) as usize;
        let trimmed = self.partly.entry(segment).or_insert_with(|| Trimmed { bits: vec![0; words].into(), count: 0 });
        for block in first..end {
            let (word, bit) = ((block / u64::BITS) as usize, 1 << (block % u64::BITS));
            trimmed.count += u32::from(trimmed.bits[word] & bit == 0);
            trimmed.bits[word] |= bit;
        }
        reaches_end && trimmed.count == written
    }

    /// `segment` is empty.
    pub fn forget(&mut self, segment: u32) {
        self.partly.remove(&segment);
    }

    /// Segments of which something is trimmed, and the rest is not.
    #[must_use]
    pub fn partly(&self) -> usize {
        self.partly.len()
    }

    /// Bytes of memory for them, at most the capacity of the drive divided by 32,768.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.partly.values().map(|trimmed| size_of_val(&trimmed.bits[..]) + size_of::<Trimmed>()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_segment_is_done_with_when_each_of_its_blocks_is_trimmed_in_whatever_order() {
        let mut trims = Trims::new(100);
        assert!(!trims.trim(3, 40, 100, 100));
        assert!(!trims.trim(3, 1, 41, 100));
        assert!(!trims.trim(3, 40, 60, 100), "blocks that were trimmed before count once");
        assert_eq!(trims.partly(), 1);
        assert!(trims.trim(3, 0, 1, 100));
        trims.forget(3);
        assert_eq!((trims.partly(), trims.bytes()), (0, 0));
    }

    #[test]
    fn one_that_is_being_written_stays_until_a_trim_comes_to_its_end() {
        let mut trims = Trims::new(100);
        assert!(!trims.trim(0, 0, 30, 30), "the host may go on at block 30");
        assert!(!trims.trim(0, 5, 30, 30));
        assert!(trims.trim(0, 0, 100, 30));
        assert!(!trims.trim(1, 0, 20, 30));
        assert!(!trims.trim(1, 50, 100, 30), "blocks 20 to 29 are of use");
        assert!(trims.trim(1, 20, 100, 30));
        assert!(!trims.trim(2, 0, 10, 30));
        assert!(!trims.trim(2, 10, 30, 30));
        assert!(trims.trim(2, 30, 100, 30), "all that is written was trimmed before");
        assert!(!trims.trim(4, 0, 30, 30));
        assert!(trims.trim(4, 30, 100, 30), "by one request");
    }
}
