//! What a block of a table under test says, and the note of its entry: which table it is of.

use crate::history::Change;
use openftl_core::BLOCK_BYTES;
use openftl_tables::catalog::NOTE_BYTES_MAX;

/// Marks the contents of tables.
const MARK: u64 = 1 << 55;

/// The least that a note says.
pub const NOTE_BYTES_MIN: usize = 12;

/// What block `block` of the table `serial` holds.
pub(crate) fn words(serial: u32, block: u32) -> impl Iterator<Item = u64> {
    let first = MARK | u64::from(serial) << 24 | u64::from(block);
    (0..BLOCK_BYTES as u64 / 8).map(move |index| first.wrapping_add(index << 56))
}

/// The serial of the table that a block is of which begins with `head`.
pub(crate) fn table_in(head: u64) -> u32 {
    (head >> 24) as u32 & 0x7FFF_FFFF
}

/// What is noted of an entry: which change it was, and the table.
pub(crate) fn note(change: Change, serial: u32, blocks: u32, bytes: usize) -> Vec<u8> {
    let mut note = Vec::with_capacity(bytes);
    for word in [change, serial, blocks] {
        note.extend(word.to_le_bytes());
    }
    let rest = bytes.clamp(NOTE_BYTES_MIN, NOTE_BYTES_MAX) - NOTE_BYTES_MIN;
    note.extend((0..rest).map(|index| (change as usize + index) as u8));
    note
}
