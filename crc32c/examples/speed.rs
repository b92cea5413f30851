//! Nanoseconds for a block of 4 KiB, by way and by where the block is: `cargo run --release -p openftl-crc32c --example speed`.
//!
//! The least of many rounds; a copy of a block stands beside it.

use openftl_crc32c::ways;
use std::hint::black_box;
use std::time::{Duration, Instant};

const BLOCK: usize = 4096;
/// Bytes that the blocks take which are visited in turn, and what holds so many.
const PLACES: [(&str, usize); 4] = [("hot", BLOCK), ("L2", 256 << 10), ("L3", 8 << 20), ("memory", 512 << 20)];
/// How long each figure is looked for.
const TIME: Duration = Duration::from_millis(400);

/// The least nanoseconds a block in rounds over 64 blocks, or more where there are more.
#[expect(clippy::disallowed_methods, reason = "a measurement has to read a clock")]
fn least(bytes: usize, mut step: impl FnMut(usize)) -> f64 {
    let blocks = bytes / BLOCK;
    let (mut at, mut least) = (0, f64::MAX);
    let began = Instant::now();
    while began.elapsed() < TIME {
        let round = Instant::now();
        for _ in 0..64 {
            step(at * BLOCK);
            // Not in order, or the processor fetches what comes next.
            at = (at + 7_919) % blocks;
        }
        least = least.min(round.elapsed().as_nanos() as f64 / 64.0);
    }
    least
}

fn main() {
    println!("{:10} {}", "", PLACES.map(|(name, _)| format!("{name:>8}")).join(" "));
    let memory: Vec<u8> = (0..PLACES[3].1).map(|at| (at * 31 + at / 4099) as u8).collect();
    let mut copy = vec![0; BLOCK];
    let line = |name: &str, step: &mut dyn FnMut(usize)| {
        let figures = PLACES.map(|(_, bytes)| format!("{:8.0}", least(bytes, &mut *step)));
        println!("{name:10} {}", figures.join(" "));
    };
    for way in ways() {
        line(&format!("{way:?}"), &mut |at| _ = black_box(way.update(!0, &memory[at..at + BLOCK])));
    }
    line("copy", &mut |at| copy.copy_from_slice(black_box(&memory[at..at + BLOCK])));
}
