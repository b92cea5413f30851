//! What a paper claims, and what comes out here: judged by magnitude.
//!
//! | verdict | the figure here |
//! |---|---|
//! | reproduced | its effect is that of the paper, to within a tolerance (30 % of the effect, unless the claim says otherwise) |
//! | direction only | it points the same way, by a tenth of the paper's effect or more; or it does what the paper says without a figure |
//! | not reproduced | neither |
//!
//! The *effect* of a figure is how far it is from the value that it would have if there were none: from 1 for "twice as fast", from
//! 0 for "1.5 less". So a gain of 0.00 reproduces nothing, however near it comes to a small figure. A claim with several figures is
//! as good as the worst of them.
//!
//! With several seeds the verdict is the best one that more than half of them have by themselves, and the finding says how many
//! do; figures are medians, with the least and the most beside them.

use openftl_lab::figures::table::middle;
use serde::{Serialize, Serializer};
use std::fmt;

/// The share of the paper's effect by which ours may differ.
pub const TOLERANCE: f64 = 0.3;

/// The share of the paper's effect that shows a direction.
const DIRECTION: f64 = 0.1;

/// How much of a claim came out, the least first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Verdict {
    /// No effect, or the contrary.
    NotReproduced,
    /// The same way, but not as far; or the paper does not say how far.
    DirectionOnly,
    /// To within the tolerance.
    Reproduced,
}

impl Verdict {
    /// In words.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Verdict::NotReproduced => "not reproduced",
            Verdict::DirectionOnly => "direction only",
            Verdict::Reproduced => "reproduced",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.words())
    }
}

impl Serialize for Verdict {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.words())
    }
}

/// What the paper says of a figure.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Expected {
    /// A figure or a range of them, and what it would be without any effect.
    Effect {
        /// The paper's, or the least of them.
        least: f64,
        /// The paper's, or the greatest of them.
        most: f64,
        /// Where there is none.
        none: f64,
    },
    /// A value by itself, such as 1 for "makes no difference", and how far from it ours may be.
    Value {
        /// The paper's.
        value: f64,
        /// In the unit of the figure.
        within: f64,
    },
    /// A direction: above a bound.
    Above {
        /// The least that shows it.
        bound: f64,
        /// What the paper says.
        says: &'static str,
    },
    /// A direction: below a bound.
    Below {
        /// The most that shows it.
        bound: f64,
        /// What the paper says.
        says: &'static str,
    },
}

impl Expected {
    fn verdict(self, ours: f64) -> Verdict {
        let directed = |holds| if holds { Verdict::DirectionOnly } else { Verdict::NotReproduced };
        match self {
            Expected::Effect { least, most, none } => {
                let direction = (least - none).signum();
                let (near, far) =
                    ((least - none).abs().min((most - none).abs()), (least - none).abs().max((most - none).abs()));
                let effect = (ours - none) * direction;
                if ((1.0 - TOLERANCE) * near..=(1.0 + TOLERANCE) * far).contains(&effect) {
                    Verdict::Reproduced
                } else {
                    directed(effect >= DIRECTION * near)
                }
            }
            Expected::Value { value, within } if (ours - value).abs() <= within => Verdict::Reproduced,
            Expected::Value { .. } => Verdict::NotReproduced,
            Expected::Above { bound, .. } => directed(ours > bound),
            Expected::Below { bound, .. } => directed(ours < bound),
        }
    }
}

/// A figure of a claim: the paper's and ours.
#[derive(Clone, PartialEq, Debug)]
pub struct Figure {
    /// What is measured.
    pub name: String,
    /// What follows the number: ` s`, ` times`, ` %`.
    pub unit: &'static str,
    /// To how many decimals it is known.
    pub decimals: usize,
    /// What the paper says.
    pub paper: Expected,
    /// What came out.
    pub ours: f64,
}

impl Figure {
    /// A figure that the paper tells.
    #[must_use]
    pub fn effect(
        name: impl Into<String>,
        unit: &'static str,
        decimals: usize,
        paper: f64,
        none: f64,
        ours: f64,
    ) -> Figure {
        Figure::range(name, unit, decimals, [paper, paper], none, ours)
    }

    /// One of which the paper tells a range.
    #[must_use]
    pub fn range(
        name: impl Into<String>,
        unit: &'static str,
        decimals: usize,
        [least, most]: [f64; 2],
        none: f64,
        ours: f64,
    ) -> Figure {
        Figure { name: name.into(), unit, decimals, paper: Expected::Effect { least, most, none }, ours }
    }

    /// One that has a value by itself.
    #[must_use]
    pub fn value(
        name: impl Into<String>,
        unit: &'static str,
        decimals: usize,
        value: f64,
        within: f64,
        ours: f64,
    ) -> Figure {
        Figure { name: name.into(), unit, decimals, paper: Expected::Value { value, within }, ours }
    }

    /// One that the paper calls greater, and does not tell.
    #[must_use]
    pub fn above(
        name: impl Into<String>,
        unit: &'static str,
        decimals: usize,
        bound: f64,
        says: &'static str,
        ours: f64,
    ) -> Figure {
        Figure { name: name.into(), unit, decimals, paper: Expected::Above { bound, says }, ours }
    }

    /// One that the paper calls less, and does not tell.
    #[must_use]
    pub fn below(
        name: impl Into<String>,
        unit: &'static str,
        decimals: usize,
        bound: f64,
        says: &'static str,
        ours: f64,
    ) -> Figure {
        Figure { name: name.into(), unit, decimals, paper: Expected::Below { bound, says }, ours }
    }

    fn number(&self, value: f64) -> String {
        let number = format!("{value:.*}", self.decimals);
        // What is rounded to nothing has no sign.
        match number.strip_prefix('-') {
            Some(rest) if rest.chars().all(|character| matches!(character, '0' | '.')) => rest.to_owned(),
            _ => number,
        }
    }

    /// The paper's figure, in words.
    fn paper(&self) -> String {
        match self.paper {
            Expected::Effect { least, most, .. } if least == most => format!("{}{}", self.number(least), self.unit),
            Expected::Effect { least, most, .. } => {
                format!("{} to {}{}", self.number(least), self.number(most), self.unit)
            }
            Expected::Value { value, .. } => format!("{}{}", self.number(value), self.unit),
            Expected::Above { says, .. } | Expected::Below { says, .. } => says.to_owned(),
        }
    }

    /// What had to be so, in words.
    fn asked(&self) -> String {
        let unit = self.unit;
        match self.paper {
            Expected::Effect { least, most, none } => {
                let bounds = [(least, 1.0 - TOLERANCE), (most, 1.0 + TOLERANCE)]
                    .map(|(figure, share)| none + share * (figure - none));
                let (low, high) = (bounds[0].min(bounds[1]), bounds[0].max(bounds[1]));
                format!("{} to {}{unit}", self.number(low), self.number(high))
            }
            Expected::Value { value, within } => {
                format!("{} to {}{unit}", self.number(value - within), self.number(value + within))
            }
            Expected::Above { bound, .. } => format!("above {}{unit}", self.number(bound)),
            Expected::Below { bound, .. } => format!("below {}{unit}", self.number(bound)),
        }
    }
}

/// What a paper claims, with what one run has to say of it.
#[derive(Clone, PartialEq, Debug)]
pub struct Claim {
    /// Its numbers in the table of claims in `docs/EXPERIMENTS.md`.
    pub numbers: &'static [&'static str],
    /// What is claimed.
    pub text: &'static str,
    /// The figures that it is judged by.
    pub figures: Vec<Figure>,
    /// Why they are as they are.
    pub why: &'static str,
    /// Whether it follows from definitions alone, so that nothing else could come out.
    pub by_definition: bool,
}

impl Claim {
    /// A claim that an experiment may contradict.
    #[must_use]
    pub fn new(numbers: &'static [&'static str], text: &'static str, figures: Vec<Figure>, why: &'static str) -> Claim {
        Claim { numbers, text, figures, why, by_definition: false }
    }

    fn verdict(&self) -> Verdict {
        let verdicts = self.figures.iter().map(|figure| figure.paper.verdict(figure.ours));
        verdicts.min().unwrap_or(Verdict::NotReproduced)
    }
}

/// A claim, and what came of it over all seeds.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Finding {
    /// What the paper claims.
    pub claim: &'static str,
    /// Its numbers in the table of claims.
    pub numbers: &'static [&'static str],
    /// The paper's figures, in words.
    pub paper: String,
    /// Ours: medians, and with several seeds the least and the most.
    pub ours: String,
    /// The best that more than half of the seeds have.
    pub verdict: Verdict,
    /// Seeds that by themselves have this verdict or a better one.
    pub seeds_held: usize,
    /// Seeds.
    pub seeds: usize,
    /// Whether nothing else could come out.
    pub by_definition: bool,
    /// What "reproduced" asks for, in words.
    pub asked: String,
    /// The figures.
    pub figures: Vec<Judged>,
    /// Why they are as they are.
    pub why: &'static str,
}

/// A figure over all seeds.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Judged {
    /// What is measured.
    pub name: String,
    /// Its unit.
    pub unit: &'static str,
    /// The paper's, in words.
    pub paper: String,
    /// What "reproduced" asks for.
    pub asked: String,
    /// The median of all seeds.
    pub median: f64,
    /// The least.
    pub least: f64,
    /// The greatest.
    pub most: f64,
    /// Of the median.
    pub verdict: Verdict,
}

impl Finding {
    /// What several runs say of a claim.
    ///
    /// # Panics
    /// If there are none, or they are of different claims.
    #[must_use]
    pub fn of(claims: &[&Claim]) -> Finding {
        let first = claims[0];
        let figures: Vec<Judged> = (0..first.figures.len()).map(|index| judged(claims, index)).collect();
        let mut verdicts: Vec<Verdict> = claims.iter().map(|claim| claim.verdict()).collect();
        verdicts.sort_unstable();
        let verdict = verdicts[(verdicts.len() - 1) / 2];
        let listed = |of: &dyn Fn(&Figure, &Judged) -> String| {
            let words = first.figures.iter().zip(&figures).map(|(figure, judged)| match first.figures.len() {
                1 => of(figure, judged),
                _ => format!("{}: {}", figure.name, of(figure, judged)),
            });
            words.collect::<Vec<_>>().join("; ")
        };
        Finding {
            claim: first.text,
            numbers: first.numbers,
            paper: listed(&|figure, _| figure.paper()),
            ours: listed(&|figure, judged| {
                let [median, least, most] =
                    [judged.median, judged.least, judged.most].map(|value| figure.number(value));
                let range = if least == most { String::new() } else { format!(" ({least} to {most})") };
                format!("{median}{}{range}", figure.unit)
            }),
            asked: listed(&|figure, _| figure.asked()),
            verdict,
            seeds_held: verdicts.iter().filter(|one| **one >= verdict).count(),
            seeds: claims.len(),
            by_definition: first.by_definition,
            figures,
            why: first.why,
        }
    }

    /// The verdict, and for how many seeds it holds.
    #[must_use]
    pub fn headline(&self) -> String {
        let seeds = match (self.seeds_held, self.seeds) {
            (_, 1) => String::new(),
            (held, seeds) => format!(" ({held} of {seeds} seeds)"),
        };
        let nature = if self.by_definition { ", as it follows from the definition" } else { "" };
        format!("{}{nature}{seeds}", self.verdict)
    }
}

fn judged(claims: &[&Claim], index: usize) -> Judged {
    let figure = &claims[0].figures[index];
    let ours: Vec<f64> = claims
        .iter()
        .map(|claim| {
            assert_eq!(
                (claim.text, &claim.figures[index].name),
                (claims[0].text, &figure.name),
                "runs tell of the same"
            );
            claim.figures[index].ours
        })
        .collect();
    let (least, most) =
        ours.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), one| (low.min(*one), high.max(*one)));
    let median = middle(ours);
    let (paper, asked) = (figure.paper(), figure.asked());
    Judged {
        name: figure.name.clone(),
        unit: figure.unit,
        paper,
        asked,
        median,
        least,
        most,
        verdict: figure.paper.verdict(median),
    }
}

/// What this project says of itself, with what one run has to say of it.
#[derive(Clone, PartialEq, Debug)]
pub struct Check {
    /// What is said.
    pub claim: &'static str,
    /// What has to be so for it to hold.
    pub check: &'static str,
    /// Whether it is.
    pub holds: bool,
    /// The numbers.
    pub measured: String,
    /// Why they are as they are.
    pub why: &'static str,
}

/// A check over all seeds.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Checked {
    /// What is said.
    pub claim: &'static str,
    /// What has to be so for it to hold.
    pub check: &'static str,
    /// Whether it is, with every seed.
    pub holds: bool,
    /// The numbers of the first seed, or of the first with which it does not hold.
    pub measured: String,
    /// Seeds with which it holds.
    pub seeds_held: usize,
    /// Seeds.
    pub seeds: usize,
    /// Why the numbers are as they are.
    pub why: &'static str,
}

impl Checked {
    /// What several runs say.
    ///
    /// # Panics
    /// If there are none, or they are of different checks.
    #[must_use]
    pub fn of(checks: &[&Check]) -> Checked {
        let first = checks[0];
        assert!(checks.iter().all(|check| check.claim == first.claim), "runs tell of the same");
        let shown = checks.iter().find(|check| !check.holds).unwrap_or(&first);
        let seeds_held = checks.iter().filter(|check| check.holds).count();
        Checked {
            claim: first.claim,
            check: first.check,
            holds: seeds_held == checks.len(),
            measured: shown.measured.clone(),
            seeds_held,
            seeds: checks.len(),
            why: first.why,
        }
    }

    /// Whether it holds, and for how many seeds.
    #[must_use]
    pub fn headline(&self) -> String {
        match (self.holds, self.seeds) {
            (true, 1) => "holds".to_owned(),
            (false, 1) => "does not hold".to_owned(),
            (true, seeds) => format!("holds ({seeds} of {seeds} seeds)"),
            (false, seeds) => format!("does not hold ({} of {seeds} seeds)", self.seeds_held),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Verdict::{DirectionOnly, NotReproduced, Reproduced};

    fn claim(figures: Vec<Figure>) -> Claim {
        Claim::new(&["0-1"], "a claim", figures, "because")
    }

    fn gain(ours: f64) -> Figure {
        Figure::effect("gain", "", 2, 1.5, 0.0, ours)
    }

    #[test]
    fn a_gain_is_judged_by_its_size() {
        let cases =
            [(1.5, Reproduced), (1.05, Reproduced), (1.95, Reproduced), (1.04, DirectionOnly), (0.16, DirectionOnly)];
        for (ours, verdict) in cases.into_iter().chain([
            (3.0, DirectionOnly),
            (0.14, NotReproduced),
            (0.0, NotReproduced),
            (-1.5, NotReproduced),
            (f64::NAN, NotReproduced),
        ]) {
            assert_eq!(claim(vec![gain(ours)]).verdict(), verdict, "{ours}");
        }
    }

    #[test]
    fn what_makes_no_difference_does_not_reproduce_a_small_one() {
        let faster = |ours| Figure::effect("throughput", " times", 2, 1.2, 1.0, ours).paper.verdict(ours);
        assert_eq!(
            [1.2, 1.15, 1.02, 1.01, 0.8].map(faster),
            [Reproduced, Reproduced, DirectionOnly, NotReproduced, NotReproduced]
        );
        let lower = |ours| Figure::effect("latency", " times", 2, 0.6, 1.0, ours).paper.verdict(ours);
        assert_eq!(
            [0.6, 0.5, 0.2, 0.97, 1.4].map(lower),
            [Reproduced, Reproduced, DirectionOnly, NotReproduced, NotReproduced]
        );
        let range = |ours| Figure::range("throughput", " times", 1, [2.0, 2.7], 1.0, ours).paper.verdict(ours);
        assert_eq!(
            [1.7, 3.2, 3.3, 1.5, 1.05].map(range),
            [Reproduced, Reproduced, DirectionOnly, DirectionOnly, NotReproduced]
        );
    }

    #[test]
    fn a_direction_is_never_more_than_that_and_a_value_never_less() {
        let above = |ours| Figure::above("ratio", "", 2, 1.0, "more", ours).paper.verdict(ours);
        assert_eq!([5.0, 1.0, f64::NAN].map(above), [DirectionOnly, NotReproduced, NotReproduced]);
        let value = |ours| Figure::value("ratio", "", 2, 1.0, 0.25, ours).paper.verdict(ours);
        assert_eq!([1.2, 0.75, 1.3].map(value), [Reproduced, Reproduced, NotReproduced]);
    }

    #[test]
    fn the_worst_figure_decides_and_most_of_the_seeds() {
        let runs = [1.4, 0.1, 1.6, 0.5, 2.1]
            .map(|ours| claim(vec![gain(ours), Figure::value("level", "", 2, 1.0, 0.1, 1.05)]));
        let finding = Finding::of(&runs.iter().collect::<Vec<_>>());
        assert_eq!((finding.verdict, finding.seeds_held, finding.seeds), (DirectionOnly, 4, 5));
        assert_eq!(finding.headline(), "direction only (4 of 5 seeds)");
        assert_eq!(finding.paper, "gain: 1.50; level: 1.00");
        assert_eq!(finding.ours, "gain: 1.40 (0.10 to 2.10); level: 1.05");
        assert_eq!(finding.asked, "gain: 1.05 to 1.95; level: 0.90 to 1.10");
        let worse = [1.4, 1.6].map(|ours| claim(vec![gain(ours), Figure::value("level", "", 2, 1.0, 0.1, 1.3)]));
        let finding = Finding::of(&worse.iter().collect::<Vec<_>>());
        assert_eq!((finding.verdict, finding.seeds_held), (NotReproduced, 2));
    }

    #[test]
    fn a_range_is_told_where_it_can_be_seen() {
        let runs = [-0.001, 0.0, 0.002].map(|ours| claim(vec![gain(ours)]));
        assert_eq!(Finding::of(&runs.iter().collect::<Vec<_>>()).ours, "0.00");
    }

    #[test]
    fn the_form_that_scripts_read_is_fixed() {
        let json = serde_json::to_value(Finding::of(&[&claim(vec![gain(0.3)])])).unwrap();
        for (name, value) in [("claim", "a claim"), ("paper", "1.50"), ("ours", "0.30"), ("verdict", "direction only")]
        {
            assert_eq!(json[name], value, "{name}");
        }
        assert_eq!((&json["seeds_held"], &json["seeds"]), (&1.into(), &1.into()));
        let words = [NotReproduced, DirectionOnly, Reproduced].map(Verdict::words);
        assert_eq!(words, ["not reproduced", "direction only", "reproduced"]);
    }

    #[test]
    fn a_check_holds_with_every_seed_or_shows_one_with_which_it_does_not() {
        let check =
            |holds, measured: &str| Check { claim: "c", check: "", holds, measured: measured.to_owned(), why: "" };
        let checks = [check(true, "first"), check(false, "second"), check(true, "third")];
        let checked = Checked::of(&checks.iter().collect::<Vec<_>>());
        assert_eq!((checked.holds, checked.seeds_held, &*checked.measured), (false, 2, "second"));
        assert_eq!(checked.headline(), "does not hold (2 of 3 seeds)");
        assert_eq!(Checked::of(&[&checks[0]]).headline(), "holds");
    }
}
