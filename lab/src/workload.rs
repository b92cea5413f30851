//! Which blocks a host asks for, in which order: seeded, so that the same seed asks the same questions.
//!
//! The drive is cut in slots of the access size; a pattern chooses a slot. Popular slots are strewn over the whole
//! drive, as hot records are in a database, by a fixed permutation.

pub use crate::load::{Access, Operation};
use crate::load::{Hint, Load, Sweep};
use crate::zipf::Zipf;
use openftl_core::units::Share;
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// Blocks of an access while the drive is filled, unless those of the load are longer.
const SWEEP_BLOCKS: u32 = 64;

/// How the next slot is chosen.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Pattern {
    /// Each slot as likely as any other.
    Uniform,
    /// One slot after the other, from the start again after the last.
    Sequential,
    /// Slot number `k` of popularity has a share proportional to `k^-theta`.
    Zipf {
        /// The exponent.
        theta: f64,
    },
    /// A share of the accesses goes to a share of the space.
    HotCold {
        /// The hot part of the accesses.
        accesses: Share,
        /// The hot part of the space.
        space: Share,
    },
}

/// What a workload is made from.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct WorkloadConfig {
    /// How slots are chosen.
    pub pattern: Pattern,
    /// Share of the accesses that read.
    pub read_share: Share,
    /// Blocks of an access; the last slot of the drive may be shorter.
    pub access_blocks: u32,
    /// Blocks of the drive.
    pub drive_blocks: u64,
    /// Chooses the whole sequence.
    pub seed: u64,
}

enum Chooser {
    Uniform,
    Sequential { next: u64 },
    Zipf(Zipf),
    HotCold { accesses: u64, hot_slots: u64 },
}

/// An endless sequence of accesses.
pub struct Workload {
    rng: Xoshiro256PlusPlus,
    chooser: Chooser,
    scatter: Scatter,
    slots: u64,
    /// Below which a draw of 64 bits means a read.
    read_below: u64,
    access_blocks: u32,
    any_length: bool,
    is_clustered: bool,
    drive_blocks: u64,
    sweep: Sweep,
}

impl Workload {
    /// The sequence that `config` describes.
    ///
    /// # Panics
    /// If the drive or the access has no blocks.
    #[must_use]
    pub fn new(config: &WorkloadConfig) -> Workload {
        assert!(config.drive_blocks > 0 && config.access_blocks > 0, "a workload needs blocks: {config:?}");
        let slots = config.drive_blocks.div_ceil(u64::from(config.access_blocks));
        let chooser = match config.pattern {
            Pattern::Uniform => Chooser::Uniform,
            Pattern::Sequential => Chooser::Sequential { next: 0 },
            Pattern::Zipf { theta } => Chooser::Zipf(Zipf::new(slots, theta)),
            Pattern::HotCold { accesses, space } => {
                Chooser::HotCold { accesses: threshold(accesses), hot_slots: space.of(slots).clamp(1, slots) }
            }
        };
        Workload {
            rng: Xoshiro256PlusPlus::seed_from_u64(config.seed),
            chooser,
            scatter: Scatter::new(slots),
            slots,
            read_below: threshold(config.read_share),
            access_blocks: config.access_blocks,
            any_length: false,
            is_clustered: false,
            drive_blocks: config.drive_blocks,
            sweep: Sweep::new(config.drive_blocks, config.access_blocks.max(SWEEP_BLOCKS)),
        }
    }

    /// The same, with popular slots beside each other at the beginning of the drive, and not scattered over it.
    #[must_use]
    pub fn clustered(self) -> Workload {
        Workload { is_clustered: true, ..self }
    }

    /// The same, with accesses of any length up to that of a slot, each as likely, that begin anywhere in their slot.
    #[must_use]
    pub fn of_any_length(self) -> Workload {
        Workload { any_length: true, ..self }
    }

    /// Accesses that touch each slot once.
    #[must_use]
    pub fn slots(&self) -> u64 {
        self.slots
    }

    /// The next access.
    #[inline]
    pub fn next_access(&mut self) -> Access {
        let mut kind = 0;
        let place = |rank| if self.is_clustered { rank } else { self.scatter.of(rank) };
        let slot = match &mut self.chooser {
            Chooser::Uniform => below(self.rng.next_u64(), self.slots),
            Chooser::Sequential { next } => {
                let slot = *next;
                *next = if slot + 1 == self.slots { 0 } else { slot + 1 };
                slot
            }
            Chooser::Zipf(zipf) => place(zipf.draw(&mut self.rng)),
            Chooser::HotCold { accesses, hot_slots } => {
                let hot = self.rng.next_u64() < *accesses || *hot_slots == self.slots;
                let draw = self.rng.next_u64();
                kind = u8::from(!hot);
                let index =
                    if hot { below(draw, *hot_slots) } else { *hot_slots + below(draw, self.slots - *hot_slots) };
                place(index)
            }
        };
        let reads = self.read_below != 0 && self.rng.next_u64() < self.read_below;
        let (mut first, mut blocks) = (slot * u64::from(self.access_blocks), u64::from(self.access_blocks));
        if self.any_length {
            blocks = 1 + below(self.rng.next_u64(), blocks);
            first = (first + below(self.rng.next_u64(), u64::from(self.access_blocks))).min(self.drive_blocks - 1);
        }
        let blocks = blocks.min(self.drive_blocks - first) as u32;
        let operation = if reads { Operation::Read } else { Operation::Write };
        Access { operation, first, blocks, hint: Hint { kind, object: 0 } }
    }
}

impl Load for Workload {
    #[inline]
    fn step(&mut self) -> Option<Access> {
        Some(self.next_access())
    }

    fn fill_step(&mut self) -> Option<Access> {
        self.sweep.step()
    }

    fn kinds(&self) -> Vec<String> {
        match self.chooser {
            Chooser::HotCold { .. } => vec!["hot".to_owned(), "cold".to_owned()],
            _ => vec!["data".to_owned()],
        }
    }

    fn live_blocks_max(&self) -> u64 {
        self.drive_blocks
    }

    fn access_blocks_max(&self) -> u32 {
        self.access_blocks.max(SWEEP_BLOCKS)
    }
}

/// The 64-bit draw below which something of this share happens.
#[must_use]
pub fn threshold(share: Share) -> u64 {
    ((u128::from(share.millionths.min(1_000_000)) << 64) / 1_000_000).min(u128::from(u64::MAX)) as u64
}

/// A 64-bit draw as a number below `count`. The bias is below `count / 2^64`.
#[inline]
#[must_use]
pub fn below(draw: u64, count: u64) -> u64 {
    ((u128::from(draw) * u128::from(count)) >> 64) as u64
}

/// A fixed permutation of the numbers below a count, without a table: two rounds of multiply and fold permute the next
/// power of two, and what falls outside walks on until it is inside.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scatter {
    count: u64,
    mask: u64,
    shift: u32,
}

impl Scatter {
    pub(crate) fn new(count: u64) -> Scatter {
        let bits = u64::BITS - (count - 1).leading_zeros();
        Scatter {
            count,
            mask: if bits == 0 { 0 } else { u64::MAX >> (u64::BITS - bits) },
            shift: bits.div_ceil(2).max(1),
        }
    }

    #[inline]
    pub(crate) fn of(self, index: u64) -> u64 {
        let mut value = index;
        loop {
            value = value.wrapping_mul(0x9E37_79B9_7F4A_7C15) & self.mask;
            value ^= value >> self.shift;
            value = value.wrapping_mul(0xD6E8_FEB8_6659_FD93) & self.mask;
            value ^= value >> self.shift;
            if value < self.count {
                return value;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRIVE: u64 = 1000;

    fn config(pattern: Pattern) -> WorkloadConfig {
        WorkloadConfig { pattern, read_share: Share::percent(0), access_blocks: 1, drive_blocks: DRIVE, seed: 1 }
    }

    const PATTERNS: [Pattern; 4] = [
        Pattern::Uniform,
        Pattern::Sequential,
        Pattern::Zipf { theta: 0.99 },
        Pattern::HotCold { accesses: Share::percent(90), space: Share::percent(10) },
    ];

    fn histogram(config: &WorkloadConfig, accesses: u64) -> Vec<u64> {
        let mut workload = Workload::new(config);
        let mut histogram = vec![0; config.drive_blocks as usize];
        for _ in 0..accesses {
            histogram[workload.next_access().first as usize] += 1;
        }
        histogram
    }

    #[test]
    fn the_same_seed_asks_the_same_and_another_seed_something_else() {
        for pattern in PATTERNS {
            let sequence = |seed| {
                let mut workload =
                    Workload::new(&WorkloadConfig { seed, read_share: Share::percent(30), ..config(pattern) });
                (0..100).map(|_| workload.next_access()).collect::<Vec<_>>()
            };
            assert_eq!(sequence(1), sequence(1));
            assert_ne!(sequence(1), sequence(2));
        }
    }

    #[test]
    fn accesses_stay_on_the_drive_and_the_last_slot_is_short() {
        for pattern in PATTERNS {
            let mut workload = Workload::new(&WorkloadConfig { access_blocks: 64, ..config(pattern) });
            assert_eq!(workload.slots(), 16);
            let mut seen_short = false;
            for _ in 0..10_000 {
                let access = workload.next_access();
                assert!(access.first.is_multiple_of(64) && access.first + u64::from(access.blocks) <= DRIVE);
                assert_eq!(access.blocks, if access.first == 960 { 40 } else { 64 });
                seen_short |= access.blocks == 40;
            }
            assert!(seen_short, "{pattern:?} never reached the last slot");
        }
    }

    #[test]
    fn accesses_of_any_length_begin_anywhere_and_reach_every_block() {
        for pattern in PATTERNS {
            let config = WorkloadConfig { access_blocks: 64, ..config(pattern) };
            let mut workload = Workload::new(&config).of_any_length();
            let (mut begun, mut covered, mut lengths) = ([false; DRIVE as usize], [false; DRIVE as usize], [false; 65]);
            for _ in 0..400_000 {
                let Access { first, blocks, .. } = workload.next_access();
                assert!((1..=64).contains(&blocks) && first + u64::from(blocks) <= DRIVE);
                begun[first as usize] = true;
                lengths[blocks as usize] = true;
                covered[first as usize..][..blocks as usize].fill(true);
            }
            assert!(begun.iter().all(|begun| *begun) && covered.iter().all(|covered| *covered), "{pattern:?}");
            assert!(lengths[1..].iter().all(|seen| *seen), "{pattern:?}");
        }
    }

    #[test]
    fn reads_have_their_share() {
        let mut workload =
            Workload::new(&WorkloadConfig { read_share: Share::percent(30), ..config(Pattern::Uniform) });
        let reads = (0..100_000).filter(|_| workload.next_access().operation == Operation::Read).count();
        assert!((29_000..31_000).contains(&reads), "{reads} of 100000 were reads");
        let mut workload =
            Workload::new(&WorkloadConfig { read_share: Share::percent(100), ..config(Pattern::Uniform) });
        assert!((0..1000).all(|_| workload.next_access().operation == Operation::Read));
    }

    #[test]
    fn sequential_covers_the_drive_in_order_and_starts_again() {
        let mut workload = Workload::new(&config(Pattern::Sequential));
        for round in 0..2 {
            for block in 0..DRIVE {
                assert_eq!(workload.next_access().first, block, "round {round}");
            }
        }
    }

    #[test]
    fn uniform_leaves_no_block_out_and_prefers_none() {
        let histogram = histogram(&config(Pattern::Uniform), DRIVE * 1000);
        assert!(histogram.iter().all(|count| (800..1200).contains(count)), "{histogram:?}");
    }

    #[test]
    fn the_hot_tenth_gets_its_nine_tenths() {
        let mut histogram = histogram(&config(PATTERNS[3]), DRIVE * 1000);
        histogram.sort_unstable_by(|a, b| b.cmp(a));
        let hot: u64 = histogram[..100].iter().sum();
        assert!((895_000..905_000).contains(&hot), "{hot} of 1000000 went to the hot part");
        assert!(histogram[999] > 0, "the cold part is written too");
    }

    #[test]
    fn popular_blocks_are_strewn_over_the_drive() {
        let histogram = histogram(&config(PATTERNS[2]), DRIVE * 1000);
        let mut popular: Vec<usize> = (0..DRIVE as usize).collect();
        popular.sort_unstable_by_key(|&block| std::cmp::Reverse(histogram[block]));
        let halves = popular[..40].iter().filter(|&&block| block < 500).count();
        assert!((8..=32).contains(&halves), "{halves} of the 40 most popular blocks are in the first half");
    }

    #[test]
    fn scatter_is_a_permutation_of_every_count() {
        for count in [1, 2, 3, 5, 64, 100, 1000, 4097] {
            let scatter = Scatter::new(count);
            let mut seen = vec![false; count as usize];
            for index in 0..count {
                assert!(!std::mem::replace(&mut seen[scatter.of(index) as usize], true), "{index} of {count}");
            }
        }
    }
}
