//! Data that tests write: the same for the same seed, and nothing that could pass for something else.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// An image of `bytes` with data, zeroes and holes in pieces of odd length.
pub fn write_image(path: &Path, bytes: u64, seed: u64) {
    let file = File::create(path).expect("a file beside the drive");
    file.set_len(bytes).expect("room for a sparse file");
    let mut state = seed;
    let mut at = 0;
    while at < bytes {
        let choice = next(&mut state);
        let length = (4096 + choice % (3 << 20)).min(bytes - at);
        // A quarter is data; of the rest most is holes, some is written zeroes.
        match choice >> 61 {
            0 | 1 => file.write_all_at(&random_bytes(choice, length as usize), at).expect("room for an image"),
            2 => file.write_all_at(&vec![0; length as usize], at).expect("room for an image"),
            _ => {}
        }
        at += length;
    }
}

/// A number that follows from the one before (SplitMix64).
pub fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Bytes that no compression and no repeated block can stand for.
pub fn random_bytes(seed: u64, count: usize) -> Vec<u8> {
    let mut state = seed;
    let mut bytes: Vec<u8> =
        std::iter::repeat_with(|| next(&mut state).to_le_bytes()).take(count.div_ceil(8)).flatten().collect();
    bytes.truncate(count);
    bytes
}
