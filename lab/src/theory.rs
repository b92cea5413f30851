//! Write amplification of a page-mapped FTL under uniform random writes, as the literature computes it.
//!
//! Over-provisioning is `(physical − exported) / exported`; `pages` is the size of what garbage collection erases, in
//! pages. Write amplification is `(host + relocated) / host`.
//!
//! - Greedy and d-choices: the mean-field model of B. Van Houdt, "A mean field model for a class of garbage collection
//!   algorithms in flash-based solid state drives", SIGMETRICS 2013.
//! - FIFO (the oldest block is the victim): P. Desnoyers, "Analytic modeling of SSD write performance", SYSTOR 2012, in
//!   the limit of many pages a block.
//!
//! # The model
//! Let `S(k)` be the share of blocks that hold at least `k` valid pages. A victim has at least `k` with probability
//! `V(S(k))`: `S^d` when it is the emptiest of `d` blocks chosen at random; 1 for `S = 1` and otherwise 0 when it is
//! the emptiest of all. In the steady state as many blocks fall below `k` valid pages as are collected there:
//!
//! ```text
//!   k · (S(k) − S(k+1)) = C · (1 − V(S(k)))          S(pages + 1) = 0
//! ```
//!
//! and the pages that are valid are the pages exported: `Σ S(k) = ρ · pages`, with `ρ = 1 / (1 + OP)`. That fixes `C`, and
//! the write amplification is `C / ρ`.

/// Which block is collected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Victim {
    Emptiest,
    EmptiestOf(u32),
}

/// Write amplification when the block with the fewest valid pages is collected.
///
/// # Panics
/// If `over_provisioning` is not positive or `pages` is zero.
#[must_use]
pub fn greedy(over_provisioning: f64, pages: u32) -> f64 {
    mean_field(over_provisioning, pages, Victim::Emptiest)
}

/// Write amplification when the emptiest of `choices` blocks chosen at random is collected.
///
/// # Panics
/// If `over_provisioning` is not positive, or `pages` or `choices` is zero.
#[must_use]
pub fn choices(over_provisioning: f64, pages: u32, choices: u32) -> f64 {
    assert!(choices > 0, "a victim is chosen from at least one block");
    mean_field(over_provisioning, pages, Victim::EmptiestOf(choices))
}

/// Write amplification when the oldest block is collected, for many pages a block.
///
/// # Panics
/// If `over_provisioning` is not positive.
#[must_use]
pub fn fifo(over_provisioning: f64) -> f64 {
    assert!(over_provisioning > 0.0, "over-provisioning = {over_provisioning} must be above zero");
    let alpha = 1.0 + over_provisioning;
    alpha / (alpha + lambert_w(-alpha * (-alpha).exp()))
}

fn mean_field(over_provisioning: f64, pages: u32, victim: Victim) -> f64 {
    assert!(over_provisioning > 0.0, "over-provisioning = {over_provisioning} must be above zero");
    assert!(pages > 0, "a block has at least one page");
    let exported = 1.0 / (1.0 + over_provisioning);
    let valid = |flow| {
        let mut at_least = 0.0;
        (1..=pages)
            .rev()
            .map(|k| {
                at_least = share_with_at_least(at_least, flow / f64::from(k), victim);
                at_least
            })
            .sum::<f64>()
    };
    // More flow through the blocks means more of them with many valid pages.
    let (mut low, mut high) = (0.0, 1.0);
    while valid(high) < exported * f64::from(pages) {
        high *= 2.0;
    }
    let flow = bisect(&mut low, &mut high, |flow| valid(flow) < exported * f64::from(pages));
    flow / exported
}

/// Solves `S − next = flow · (1 − V(S))` for S.
fn share_with_at_least(next: f64, flow: f64, victim: Victim) -> f64 {
    match victim {
        Victim::Emptiest => (next + flow).min(1.0),
        Victim::EmptiestOf(choices) => {
            let choices = i32::try_from(choices).unwrap_or(i32::MAX);
            bisect(&mut next.clone(), &mut 1.0, |share| share - next < flow * (1.0 - share.powi(choices)))
        }
    }
}

/// Where `below` turns from true to false between `low` and `high`.
fn bisect(low: &mut f64, high: &mut f64, below: impl Fn(f64) -> bool) -> f64 {
    for _ in 0..64 {
        let middle = f64::midpoint(*low, *high);
        if below(middle) {
            *low = middle;
        } else {
            *high = middle;
        }
    }
    f64::midpoint(*low, *high)
}

/// The principal branch of Lambert's function for `-1/e < x < 0`: the `w` between −1 and 0 with `w · e^w = x`.
fn lambert_w(x: f64) -> f64 {
    bisect(&mut -1.0, &mut 0.0, |w| w * w.exp() < x)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(computed: f64, known: f64, tolerance: f64) {
        assert!((computed / known - 1.0).abs() <= tolerance, "{computed:.3} computed, {known} known");
    }

    #[test]
    fn choices_agree_with_the_published_mean_field() {
        for (op, pages, known) in [
            (0.10, 64, [7.506, 5.450, 5.290]),
            (0.10, 256, [7.670, 5.722, 5.587]),
            (0.28, 64, [3.245, 2.471, 2.415]),
            (0.28, 256, [3.274, 2.520, 2.469]),
        ] {
            for (d, known) in [2, 10, 30].into_iter().zip(known) {
                check(choices(op, pages, d), known, 0.005);
            }
        }
    }

    #[test]
    fn greedy_agrees_with_simulation() {
        for (op, pages, known) in [
            (0.10, 64, 5.249),
            (0.10, 256, 5.569),
            (0.10, 1024, 5.683),
            (0.28, 64, 2.403),
            (0.28, 256, 2.462),
            (0.28, 1024, 2.481),
        ] {
            check(greedy(op, pages), known, 0.01);
        }
    }

    #[test]
    fn greedy_is_the_limit_of_many_choices() {
        check(choices(0.10, 256, 100_000), greedy(0.10, 256), 0.001);
    }

    #[test]
    fn fifo_agrees_with_simulation() {
        check(fifo(0.10), 5.687, 0.01);
        check(fifo(0.28), 2.482, 0.01);
    }

    #[test]
    fn more_space_means_less_amplification_down_to_one() {
        let mut last = f64::INFINITY;
        for percent in [1, 5, 7, 10, 20, 50, 100, 1000] {
            let waf = greedy(f64::from(percent) / 100.0, 256);
            assert!(waf < last && waf > 1.0 - 1e-9, "{percent}%: {waf}");
            last = waf;
        }
        check(last, 1.0, 0.001);
    }
}
