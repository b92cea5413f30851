//! Numbers of pages: what a page of the store below is for.
//!
//! | bits 63, 62 | the rest | page |
//! |---|---|---|
//! | 00 | hash of a key | the value of the key with that number, or the list of the keys with it |
//! | 01 | that number, and 12 bits of a place in the list | a value of a key that shares its number |
//! | 10 | counted | a change of the directory: one key added or removed |
//! | 11 | counted; all ones is the manifest | keys of the directory in their order |

use std::ops::RangeInclusive;

const EXTENT: u64 = 1 << 62;
const CHANGE: u64 = 1 << 63;
const RUN: u64 = 3 << 62;
const SLOT_BITS: u32 = 12;

/// Bits of the number of a key, at most.
pub(crate) const NUMBER_BITS_MAX: u32 = 48;

/// Keys that may share a number.
pub(crate) const SLOTS: usize = 1 << 10;

/// The manifest.
pub(crate) const MANIFEST: u64 = u64::MAX;

/// Pages of keys by their numbers.
pub(crate) const NUMBERS: RangeInclusive<u64> = 0..=EXTENT - 1;
/// Pages of keys that share a number with others.
pub(crate) const EXTENTS: RangeInclusive<u64> = EXTENT..=CHANGE - 1;
/// Changes of the directory.
pub(crate) const CHANGES: RangeInclusive<u64> = CHANGE..=RUN - 1;
/// The directory in its order.
pub(crate) const RUNS: RangeInclusive<u64> = RUN..=MANIFEST - 1;

/// The page of a value whose key has place `slot` among those with that number.
pub(crate) fn extent(number: u64, slot: u16) -> u64 {
    EXTENT | number << SLOT_BITS | u64::from(slot)
}

/// The number of the keys that an extent is of.
pub(crate) fn number_of_extent(lpid: u64) -> u64 {
    (lpid & !EXTENT) >> SLOT_BITS
}

/// The place of an extent's key in the list.
pub(crate) fn slot_of_extent(lpid: u64) -> u16 {
    (lpid & ((1 << SLOT_BITS) - 1)) as u16
}

/// The page of a change.
pub(crate) fn change(counted: u64) -> u64 {
    CHANGE | counted
}

/// What a change was counted as.
pub(crate) fn counted(lpid: u64) -> u64 {
    lpid & !CHANGE
}

/// A page of a run.
pub(crate) fn run(counted: u64) -> u64 {
    RUN | counted
}
