//! The CRC instructions of ARM.

use std::arch::aarch64::{__crc32cb, __crc32cd};

/// Eight bytes at a time.
#[target_feature(enable = "crc")]
pub(crate) fn words(mut state: u32, bytes: &[u8]) -> u32 {
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        state = __crc32cd(state, u64::from_le_bytes(*word));
    }
    rest.iter().fold(state, |state, byte| __crc32cb(state, *byte))
}
