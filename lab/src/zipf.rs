//! A Zipf distribution over ranks: rank `k` (from 1) has a share proportional to `k^-theta`.
//!
//! Ranks are grouped in steps. The popular ones have a step each; a later step spans ranks that differ by less than
//! 1/256, so a few thousand steps reach any drive size:
//!
//! ```text
//!  share │█
//!        │██
//!        │███▄
//!        │█████▄▄▂▂▁▁▁▁▁▁▁▁
//!         1234 └┬┘└─┬─┘└──┬──┘    a step's height is that of its first rank
//! ```
//!
//! A draw takes a step from an alias table, a rank within it, and keeps the rank with the odds `share(rank) / height`.
//! Those odds are above 99 % everywhere, and the power function is needed only when the cheap lower bound does not
//! decide. So a draw is exact, costs a few nanoseconds, and needs no sum over all ranks.

use rand_core::Rng;

/// A step's ranks differ by at most this fraction.
const STEP_RATIO: u64 = 256;

#[derive(Clone, Copy, Debug)]
struct Step {
    /// First rank, from 0.
    first: u64,
    /// Ranks in the step.
    ranks: u32,
    /// The step to take instead when the draw is above `keep`.
    alias: u32,
    /// Odds of keeping this step, as a fraction of 2^32.
    keep: u32,
    /// Odds of the step's last rank against its first, as a fraction of 2^32, rounded down.
    squeeze: u32,
}

/// Draws ranks from 0 (the most popular) to `ranks - 1`.
#[derive(Clone, Debug)]
pub struct Zipf {
    theta: f64,
    steps: Vec<Step>,
}

impl Zipf {
    /// A distribution over `ranks` ranks with exponent `theta`; 0 is uniform, 0.99 is YCSB's default.
    ///
    /// # Panics
    /// If there are no ranks, or `theta` is negative or not finite.
    #[must_use]
    pub fn new(ranks: u64, theta: f64) -> Zipf {
        assert!(ranks > 0, "a distribution needs at least one rank");
        assert!(theta.is_finite() && theta >= 0.0, "theta = {theta} must be zero or above");
        let mut steps = Vec::new();
        let mut mass = Vec::new();
        let mut first = 0;
        while first < ranks {
            let count = (first / STEP_RATIO).clamp(1, u64::from(u32::MAX)).min(ranks - first);
            let height = ((first + 1) as f64).powf(-theta);
            let last = ((first + count) as f64 / (first + 1) as f64).powf(-theta);
            let squeeze = (last * 4_294_967_295.0) as u32;
            steps.push(Step { first, ranks: count as u32, alias: 0, keep: u32::MAX, squeeze });
            mass.push(height * count as f64);
            first += count;
        }
        share_out(&mut steps, &mass);
        Zipf { theta, steps }
    }

    /// One rank.
    #[inline]
    pub fn draw(&self, rng: &mut impl Rng) -> u64 {
        loop {
            let (pick, odds) = (rng.next_u64(), rng.next_u64());
            let index = ((pick >> 32) * self.steps.len() as u64) >> 32;
            let own = self.steps[index as usize];
            let step = if pick as u32 <= own.keep { own } else { self.steps[own.alias as usize] };
            let rank = step.first + (((odds >> 32) * u64::from(step.ranks)) >> 32);
            // The comparison that decides almost always; the exact one needs the power function.
            if odds as u32 <= step.squeeze {
                return rank;
            }
            let exact = ((rank + 1) as f64 / (step.first + 1) as f64).powf(-self.theta);
            if f64::from(odds as u32) <= exact * 4_294_967_295.0 {
                return rank;
            }
        }
    }
}

/// Vose's alias method: every step gets the same share of the draws and passes what it has too much to an alias.
fn share_out(steps: &mut [Step], mass: &[f64]) {
    let scale = steps.len() as f64 / mass.iter().sum::<f64>();
    let mut mass: Vec<f64> = mass.iter().map(|mass| mass * scale).collect();
    let (mut small, mut large): (Vec<usize>, Vec<usize>) = (0..mass.len()).partition(|&index| mass[index] < 1.0);
    while let (Some(poor), Some(&rich)) = (small.pop(), large.last()) {
        steps[poor].keep = (mass[poor] * 4_294_967_295.0) as u32;
        steps[poor].alias = rich as u32;
        mass[rich] -= 1.0 - mass[poor];
        if mass[rich] < 1.0 {
            large.pop();
            small.push(rich);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_core::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;

    /// Draws a million ranks and compares how many fall below each of some ranks with the distribution's sum.
    #[track_caller]
    fn check(ranks: u64, theta: f64) {
        const DRAWS: u64 = 1_000_000;
        let zipf = Zipf::new(ranks, theta);
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(7);
        let mut counts = vec![0u64; ranks as usize];
        for _ in 0..DRAWS {
            counts[zipf.draw(&mut rng) as usize] += 1;
        }
        let total: f64 = (1..=ranks).map(|rank| (rank as f64).powf(-theta)).sum();
        let (mut expected, mut drawn) = (0.0, 0u64);
        for rank in 0..ranks {
            expected += ((rank + 1) as f64).powf(-theta) / total;
            drawn += counts[rank as usize];
            // Five standard deviations of a binomial at its widest.
            let tolerance = 5.0 * 0.5 / (DRAWS as f64).sqrt();
            let drawn = drawn as f64 / DRAWS as f64;
            assert!((drawn - expected).abs() < tolerance, "rank {rank}: {drawn} drawn, {expected} expected");
        }
        assert_eq!(drawn, DRAWS);
    }

    #[test]
    fn draws_follow_the_distribution() {
        check(1, 0.99);
        check(2, 1.0);
        check(1000, 0.0);
        check(100_000, 0.5);
        check(100_000, 0.99);
        check(100_000, 1.0);
        check(100_000, 2.0);
    }

    #[test]
    fn a_terabyte_of_blocks_needs_few_steps() {
        assert!(Zipf::new(1 << 28, 0.99).steps.len() < 5_000);
    }
}
