//! Ranges that a host overwrites in order again and again, such as the journal of a file system: found from its writes.
//!
//! ```text
//!   writes    100 101 102 … 899 │ 7 │ 100 101 … 899 │ 100 …
//!             └──── a run ────┘   another └── lap 1 ┘ └ lap 2: blocks 100 to 899 are a circle
//! ```
//!
//! A run is a write behind the one before, again and again. It has come round when its first block is written again. Few runs are
//! followed at a time; the shortest is given up for a new one, so that writes at random do not push a long one out.

use std::ops::Range;

/// Runs that are followed at a time.
const RUNS: usize = 8;

/// Blocks of the shortest circle.
const BLOCKS_MIN: u64 = 64;

/// Laps after which a range is a circle.
const LAPS: u32 = 2;

/// A circle has at most this part of the drive.
const PART_MAX: u64 = 16;

/// A run that nobody went on with for so many writes is given up first.
const PATIENCE: u64 = 1 << 20;

#[derive(Clone, Copy)]
struct Run {
    first: u64,
    /// The block that goes on with it.
    next: u64,
    /// Where it ended the last time.
    end: u64,
    laps: u32,
    written_at: u64,
}

/// The runs, and what is known of them.
pub struct Circles {
    runs: Vec<Run>,
    blocks_max: u64,
    writes: u64,
}

impl Circles {
    /// Of a drive of so many blocks, of which nothing is written yet.
    #[must_use]
    pub fn new(blocks: u64) -> Circles {
        Circles { runs: Vec::with_capacity(RUNS), blocks_max: blocks / PART_MAX, writes: 0 }
    }

    /// `block` is written. Returns the blocks of a circle, when it has become one.
    #[inline]
    pub fn written(&mut self, block: u64) -> Option<Range<u64>> {
        self.writes += 1;
        for run in &mut self.runs {
            if run.next == block {
                run.next += 1;
                run.written_at = self.writes;
                return None;
            }
            if run.first == block && run.next - run.first >= BLOCKS_MIN {
                let is_same = run.laps == 0 || run.next == run.end;
                run.laps = if is_same { run.laps + 1 } else { 1 };
                (run.end, run.next, run.written_at) = (run.next, block + 1, self.writes);
                let is_circle = run.laps == LAPS && run.end - run.first <= self.blocks_max;
                return is_circle.then_some(run.first..run.end);
            }
        }
        let new = Run { first: block, next: block + 1, end: block, laps: 0, written_at: self.writes };
        if self.runs.len() < RUNS {
            self.runs.push(new);
            return None;
        }
        let worth = |run: &Run| match self.writes - run.written_at > PATIENCE {
            true => (0, run.written_at),
            false => (run.end.max(run.next) - run.first, run.written_at),
        };
        let least = (0..RUNS).min_by_key(|run| worth(&self.runs[*run])).expect("there are some");
        self.runs[least] = new;
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCKS: u64 = 100_000;

    /// The first and the last block of each circle.
    fn learned(writes: impl IntoIterator<Item = u64>) -> Vec<(u64, u64)> {
        let mut circles = Circles::new(BLOCKS);
        let found = writes.into_iter().filter_map(|block| circles.written(block));
        found.map(|blocks| (blocks.start, blocks.end - 1)).collect()
    }

    #[test]
    fn what_is_overwritten_in_order_twice_is_a_circle() {
        let laps = |count| (0..count).flat_map(|_| 500..1_500);
        assert!(learned(laps(2)).is_empty());
        assert_eq!(learned(laps(3)), [(500, 1_499)]);
        assert_eq!(learned(laps(9)), [(500, 1_499)], "it is told once");
    }

    #[test]
    fn writes_at_random_in_between_do_not_hide_it() {
        let mut chance = 1_u32;
        let mut random = move || {
            chance = chance.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            2_000 + u64::from(chance >> 8) % (BLOCKS - 2_000)
        };
        let mut writes = Vec::new();
        for _ in 0..4 {
            for block in 500..1_500 {
                writes.push(block);
                if block % 100 == 50 {
                    writes.extend((0..70).map(|_| random()));
                }
            }
        }
        assert_eq!(learned(writes), [(500, 1_499)]);
    }

    #[test]
    fn neither_short_runs_nor_the_whole_drive_nor_laps_that_differ_are_circles() {
        assert!(learned((0..9).flat_map(|_| 500..500 + BLOCKS_MIN - 1)).is_empty());
        assert!(learned((0..9).flat_map(|_| 0..BLOCKS)).is_empty());
        assert!(learned((0..9).flat_map(|lap| 500..1_500 + lap)).is_empty());
    }
}
