//! A superblock, as it is and with the sums that a fuzzer would not find.

use openftl_core::{BLOCK_BYTES, Geometry};
use openftl_parts::journal::superblock::{SUPERBLOCK_BYTES_MAX, Superblock, seal};

pub fn run(data: &[u8]) {
    parse(data);
    let mut sealed = data.to_vec();
    seal(&mut sealed);
    parse(&sealed);
}

fn parse(bytes: &[u8]) {
    let length = Superblock::length(bytes);
    let Ok(superblock) = Superblock::decode(bytes) else { return };
    let length = length.expect("a superblock has a length");
    assert!(length <= SUPERBLOCK_BYTES_MAX.min(bytes.len()), "it lies inside what was read");
    let again = superblock.encode();
    assert!(again.len().is_multiple_of(BLOCK_BYTES));
    assert_eq!(Superblock::decode(&again).as_ref(), Ok(&superblock), "a superblock that is written is read back");
    assert_eq!(Superblock::length(&again), Ok(length));
    // Whatever it says, whether it can be true of a device is a question with an answer.
    _ = superblock.validate(&Geometry::tiny());
}
