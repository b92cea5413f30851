//! What a block of a drive under test says: which write it is of, and which block it is.

use crate::history::Change;
use openftl_core::{BLOCK_BYTES, Payload, PayloadMut, Stamp};

/// What a whole block of write `change` holds.
fn words(change: Change, block: u64) -> impl Iterator<Item = u64> {
    let stamp = stamp(change, block).0;
    (0..BLOCK_BYTES as u64 / 8).map(move |index| if stamp == 0 { 0 } else { stamp.wrapping_add(index << 56) })
}

/// The first eight bytes of a block, which say which write it is of.
pub(crate) fn head_of(payload: Payload<'_>) -> u64 {
    match payload {
        Payload::Stamp(stamp) => stamp.0,
        Payload::Bytes(bytes) => u64::from_le_bytes(*bytes.first_chunk().expect("eight of many bytes")),
    }
}

/// Which write a block is of that begins with this.
pub(crate) fn change_in(head: u64) -> Change {
    (head >> 24) as Change
}

fn stamp(change: Change, block: u64) -> Stamp {
    if change == 0 { Stamp::ZERO } else { Stamp(u64::from(change) << 24 | block) }
}

/// Whether a block is as write `change` left it, from its first byte to its last.
pub(crate) fn is_whole(payload: Payload<'_>, change: Change, block: u64) -> bool {
    match payload {
        Payload::Stamp(found) => found == stamp(change, block),
        Payload::Bytes(bytes) => holds(bytes, words(change, block)),
    }
}

/// Whether a block holds these words.
pub(crate) fn holds(bytes: &[u8; BLOCK_BYTES], expected: impl Iterator<Item = u64>) -> bool {
    bytes.as_chunks::<8>().0.iter().zip(expected).all(|(found, word)| u64::from_le_bytes(*found) == word)
}

/// Makes it so.
pub(crate) fn fill(payload: PayloadMut<'_>, change: Change, block: u64) {
    match payload {
        PayloadMut::Stamp(payload) => *payload = stamp(change, block),
        PayloadMut::Bytes(bytes) => put(bytes, words(change, block)),
    }
}

/// Puts words into a block.
pub(crate) fn put(bytes: &mut [u8; BLOCK_BYTES], words: impl Iterator<Item = u64>) {
    for (at, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(words) {
        *at = word.to_le_bytes();
    }
}
