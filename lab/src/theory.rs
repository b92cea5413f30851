//! Write amplification of a page-mapped FTL under uniform random writes, as the literature computes it.
//!
//! Over-provisioning is `(physical − exported) / exported`; `pages` is the size of what garbage collection erases, in
//! pages. Write amplification is `(host + relocated) / host`.
//!
//! - Greedy and d-choices: the mean-field model of B. Van Houdt, "A mean field model for a class of garbage collection
//!   algorithms in flash-based solid state drives", SIGMETRICS 2013.
//! - Windowed greedy (the emptiest of the share of blocks that is oldest is the victim): the same model with a queue before
//!   it, see below.
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
//!
//! # The window
//! Blocks younger than the window `w` are a queue: each is in it for `τ = (1 − w) / C`, with `C` the blocks written in the
//! time in which a valid page is overwritten once on average, and no victim comes from there. So a block enters the window
//! with a binomial number of valid pages, each valid with probability `e^−τ`; let `B(k)` be the probability that there are at
//! least `k`. Within the window the balance is that of greedy, with what enters in place of full blocks:
//!
//! ```text
//!   S(k) = min(w, S(k+1) + C · B(k) / k)              valid pages: C · pages · (1 − e^−τ) + Σ S(k) = ρ · pages
//! ```
//!
//! A window of all blocks is greedy; one of hardly any is FIFO with as many pages as one likes.

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

/// Write amplification when the emptiest of the blocks that are oldest, a share `window` of all, is collected.
///
/// # Panics
/// If `over_provisioning` or `window` is not positive, `window` is above 1, or `pages` is zero.
#[must_use]
pub fn windowed(over_provisioning: f64, pages: u32, window: f64) -> f64 {
    assert!(over_provisioning > 0.0, "over-provisioning = {over_provisioning} must be above zero");
    assert!(window > 0.0 && window <= 1.0, "window = {window} must be above zero and at most one");
    assert!(pages > 0, "a block has at least one page");
    let exported = 1.0 / (1.0 + over_provisioning);
    let valid = |flow: f64| {
        let still_valid = (-(1.0 - window) / flow).exp();
        let entering = at_least(pages, still_valid);
        let mut share = 0.0f64;
        let in_window: f64 = (1..=pages)
            .rev()
            .map(|k| {
                share = (share + flow * entering[k as usize] / f64::from(k)).min(window);
                share
            })
            .sum();
        flow * f64::from(pages) * (1.0 - still_valid) + in_window
    };
    let (mut low, mut high) = (1e-6, 1.0);
    while valid(high) < exported * f64::from(pages) {
        high *= 2.0;
    }
    bisect(&mut low, &mut high, |flow| valid(flow) < exported * f64::from(pages)) / exported
}

/// The probabilities of at least 0, 1, … successes in `trials`, each of which succeeds with `probability`.
fn at_least(trials: u32, probability: f64) -> Vec<f64> {
    let count = trials as usize;
    let mut exactly = vec![0.0; count + 1];
    if probability >= 1.0 {
        exactly[count] = 1.0;
    } else {
        // In logarithms, because the first of them may be too small for a number.
        let (yes, no) = (probability.ln(), (1.0 - probability).ln());
        let mut ways = 0.0;
        for (successes, exactly) in exactly.iter_mut().enumerate() {
            let successes = successes as f64;
            *exactly = (ways + successes * yes + (f64::from(trials) - successes) * no).exp();
            ways += (f64::from(trials) - successes).ln() - (successes + 1.0).ln();
        }
    }
    let mut sum = 0.0;
    for value in exactly.iter_mut().rev() {
        sum += *value;
        *value = sum;
    }
    exactly
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
    fn a_window_of_all_is_greedy_and_one_of_hardly_any_is_fifo() {
        for op in [0.07, 0.10, 0.28, 0.40] {
            for pages in [64, 256] {
                check(windowed(op, pages, 1.0), greedy(op, pages), 1e-6);
                check(windowed(op, pages, 1e-6), fifo(op), 1e-3);
                let quarter = windowed(op, pages, 0.25);
                assert!(greedy(op, pages) < quarter && quarter < fifo(op), "{op}, {pages}: {quarter}");
            }
        }
    }

    #[test]
    fn at_least_sums_up_a_binomial_distribution() {
        let four = at_least(4, 0.5);
        for (sum, sixteenths) in four.iter().zip([16.0, 15.0, 11.0, 5.0, 1.0]) {
            check(*sum, sixteenths / 16.0, 1e-12);
        }
        check(at_least(1_000, 0.9)[0], 1.0, 1e-9);
        assert_eq!(at_least(3, 1.0), [1.0; 4]);
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
