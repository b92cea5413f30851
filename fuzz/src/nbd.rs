//! The protocol half of the NBD server. The first byte says how the rest is cut into pieces.

#[path = "../../host/nbd/tests/exercise/mod.rs"]
mod exercise;

pub fn run(data: &[u8]) {
    let Some((&cut, stream)) = data.split_first() else { return };
    let mut turn = 0_usize;
    exercise::exercise(stream, || {
        turn = turn.wrapping_mul(31).wrapping_add(usize::from(cut));
        1 + turn % (1 + usize::from(cut))
    });
}
