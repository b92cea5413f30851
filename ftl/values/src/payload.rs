//! Payload in frames, as bytes in one piece.

use openftl_core::{BLOCK_BYTES, Frame, Frames};

/// The first `count` bytes of frames, or all of them if they have fewer.
#[must_use]
pub fn gathered(pool: &Frames, frames: &[Frame], count: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(count.min(frames.len() * BLOCK_BYTES));
    for frame in frames {
        let part = BLOCK_BYTES.min(count - bytes.len());
        bytes.extend_from_slice(&pool.bytes(*frame)[..part]);
    }
    bytes
}
