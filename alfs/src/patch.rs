//! A patch: how a node differs from its block on media, as ranges of bytes.
//!
//! Patches of several nodes share a block:
//!
//! ```text
//!   0        32                                                             4096
//!   [ header ][ entry ][ entry ] … [ 0 ]
//!   entry     [ node, 4 ][ address of its block, 4 ][ bytes of the ranges, 4 ][ range ] …
//!   range     [ first byte, 2 ][ bytes, 2 ][ new bytes … ]
//! ```
//!
//! Ranges are whole words of four bytes, in ascending order, and never of the header. A patch has every change since the block of the node was
//! written, so of all patches of one block only the newest counts: the one with the greatest sequence, and within that the greatest identity.

use crate::block::{Bytes, HEADER_BYTES, number_at, put_number};
use openftl_core::BLOCK_BYTES;

/// Bytes of the ranges of a patch, at most. A node that differs more is written whole.
pub const PATCH_BYTES_MAX: usize = 512;

/// Bytes of an entry before its ranges.
pub const ENTRY_BYTES: usize = 12;

/// Bytes of a range before its new bytes.
const RANGE_BYTES: usize = 4;

const WORD: usize = 4;
const WORDS: usize = BLOCK_BYTES / WORD;

fn half(bytes: &[u8], at: usize) -> usize {
    usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]))
}

fn put_half(bytes: &mut Vec<u8>, number: usize) {
    let number = u16::try_from(number).expect("offsets within a block have 16 bits");
    bytes.extend_from_slice(&number.to_le_bytes());
}

/// Words of a node that differ from its block on media.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Words([u64; WORDS / 64]);

impl Words {
    /// Words in which two versions of a node differ.
    #[must_use]
    pub fn between(before: &Bytes, after: &Bytes) -> Words {
        let mut words = Words([0; WORDS / 64]);
        let pairs = before.as_chunks::<WORD>().0.iter().zip(after.as_chunks::<WORD>().0).enumerate();
        for (word, _) in pairs.skip(HEADER_BYTES / WORD).filter(|(_, (before, after))| before != after) {
            words.0[word / 64] |= 1 << (word % 64);
        }
        words
    }

    /// Adds those of a patch.
    #[must_use]
    pub fn with(mut self, ranges: &[u8]) -> Words {
        for (first, bytes) in pieces(ranges) {
            for word in first / WORD..(first + bytes.len()) / WORD {
                self.0[word / 64] |= 1 << (word % 64);
            }
        }
        self
    }

    fn has(&self, word: usize) -> bool {
        word < WORDS && self.0[word / 64] >> (word % 64) & 1 != 0
    }

    /// The ranges of a patch that has these words of `bytes`. A word between two of them costs no more than another range.
    #[must_use]
    pub fn ranges(&self, bytes: &Bytes) -> Vec<u8> {
        let mut ranges = Vec::new();
        let mut at = HEADER_BYTES / WORD;
        while at < WORDS {
            if !self.has(at) {
                at += 1;
                continue;
            }
            let mut end = at + 1;
            while self.has(end) || end + 1 < WORDS && self.has(end + 1) {
                end += 1;
            }
            put_half(&mut ranges, at * WORD);
            put_half(&mut ranges, (end - at) * WORD);
            ranges.extend_from_slice(&bytes[at * WORD..end * WORD]);
            at = end;
        }
        ranges
    }
}

/// The first byte of each range, and its bytes. The ranges are sound.
fn pieces(ranges: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let mut rest = ranges;
    std::iter::from_fn(move || {
        let (head, behind) = rest.split_at_checked(RANGE_BYTES)?;
        let (bytes, behind) = behind.split_at(half(head, 2));
        rest = behind;
        Some((half(head, 0), bytes))
    })
}

/// Whether ranges follow each other within a node.
fn are_sound(ranges: &[u8]) -> bool {
    let (mut rest, mut least) = (ranges, HEADER_BYTES);
    while !rest.is_empty() {
        let Some((head, behind)) = rest.split_at_checked(RANGE_BYTES) else { return false };
        let (first, count) = (half(head, 0), half(head, 2));
        let is_whole = first.is_multiple_of(WORD) && count.is_multiple_of(WORD) && count > 0;
        if !is_whole || first < least || first + count > BLOCK_BYTES || behind.len() < count {
            return false;
        }
        (rest, least) = (&behind[count..], first + count);
    }
    true
}

/// Changes a node as its patch says.
pub fn apply(ranges: &[u8], bytes: &mut Bytes) {
    for (first, piece) in pieces(ranges) {
        bytes[first..first + piece.len()].copy_from_slice(piece);
    }
}

/// The patch of a node, in a block of patches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry<'a> {
    /// The node.
    pub node: u32,
    /// The address of the block that it changes.
    pub base: u32,
    /// The ranges.
    pub ranges: &'a [u8],
}

/// Writes an entry at byte `at` of a block of patches. Returns where the next one begins; `None`: there is no room for it.
pub fn put_entry(block: &mut Bytes, at: usize, entry: &Entry<'_>) -> Option<usize> {
    let end = at + ENTRY_BYTES + entry.ranges.len();
    if end > BLOCK_BYTES {
        return None;
    }
    put_number(block, at, entry.node);
    put_number(block, at + 4, entry.base);
    put_number(block, at + 8, u32::try_from(entry.ranges.len()).expect("a patch is shorter than a block"));
    block[at + ENTRY_BYTES..end].copy_from_slice(entry.ranges);
    Some(end)
}

/// The entries of a block of patches; `None`: it contradicts itself.
#[must_use]
pub fn entries(block: &Bytes) -> Option<Vec<Entry<'_>>> {
    let mut entries = Vec::new();
    let mut at = HEADER_BYTES;
    while at + ENTRY_BYTES <= BLOCK_BYTES && number_at(block, at) != 0 {
        let (node, base) = (number_at(block, at), number_at(block, at + 4));
        let end = at + ENTRY_BYTES + number_at(block, at + 8) as usize;
        let ranges = block.get(at + ENTRY_BYTES..end)?;
        if base == 0 || ranges.len() > PATCH_BYTES_MAX || !are_sound(ranges) {
            return None;
        }
        entries.push(Entry { node, base, ranges });
        at = end;
    }
    Some(entries)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::zeroes;

    fn changed(before: &Bytes, words: &[usize]) -> Box<Bytes> {
        let mut after = Box::new(*before);
        words.iter().for_each(|word| after[word * WORD + 1] ^= 0x5A);
        after
    }

    #[test]
    fn a_patch_makes_the_newest_version_of_the_block_on_media() {
        let mut base = zeroes();
        base.iter_mut().enumerate().for_each(|(at, byte)| *byte = at as u8);
        let first = changed(&base, &[0, 8, 9, 11, 500, 1023]);
        let ranges = Words::between(&base, &first).ranges(&first);
        // Word 0 is of the header, and word 10 costs no more than another range.
        assert_eq!(ranges.len(), 3 * RANGE_BYTES + (4 + 1 + 1) * WORD);
        let second = changed(&first, &[9, 700]);
        let ranges = Words::between(&first, &second).with(&ranges).ranges(&second);
        let mut found = Box::new(*base);
        apply(&ranges, &mut found);
        assert!(found[HEADER_BYTES..] == second[HEADER_BYTES..] && found[..HEADER_BYTES] == base[..HEADER_BYTES]);
    }

    #[test]
    fn entries_are_read_as_they_were_written_and_a_block_has_as_many_as_it_has_room_for() {
        let base = zeroes();
        let after = changed(&base, &[20, 30, 40]);
        let ranges = Words::between(&base, &after).ranges(&after);
        let entry = |node| Entry { node, base: 70 + node, ranges: &ranges };
        let (mut block, mut at, mut count) = (zeroes(), HEADER_BYTES, 0);
        while let Some(next) = put_entry(&mut block, at, &entry(count + 1)) {
            (at, count) = (next, count + 1);
        }
        assert_eq!(count as usize, (BLOCK_BYTES - HEADER_BYTES) / (ENTRY_BYTES + ranges.len()));
        assert_eq!(entries(&block).unwrap(), (1..=count).map(entry).collect::<Vec<_>>());
        assert_eq!(entries(&zeroes()), Some(Vec::new()));
    }

    #[test]
    fn ranges_that_leave_the_node_or_reach_its_header_are_refused() {
        let range = |first: u16, bytes: u16| [first.to_le_bytes(), bytes.to_le_bytes()].concat();
        let with = |first, bytes| [range(first, bytes), vec![0; usize::from(bytes)]].concat();
        assert!(are_sound(&with(32, 8)) && are_sound(&with(4092, 4)) && are_sound(&[]));
        for wrong in [with(28, 8), with(4092, 8), with(34, 4), with(36, 6), with(36, 0), range(36, 4)] {
            assert!(!are_sound(&wrong), "{wrong:?}");
        }
        assert!(!are_sound(&[with(40, 8), with(44, 4)].concat()), "they overlap");
        let mut block = zeroes();
        let ranges = with(28, 8);
        _ = put_entry(&mut block, HEADER_BYTES, &Entry { node: 5, base: 80, ranges: &ranges });
        assert_eq!(entries(&block), None);
    }
}
