//! What an experiment found: by one seed a [`Run`], by several a [`Report`].
//!
//! ```text
//!   seed 1 ── Run ┐                 ┌ tables    the median of each figure; in CSV every seed
//!   seed 2 ── Run ┼── Report::of ───┼ plots     medians, with bars from the least to the most
//!   seed 3 ── Run ┘                 ├ checks    what this project says of itself
//!                                   └ findings  what the paper claims, with a verdict
//! ```

use super::claim::{Check, Checked, Claim, Finding};
use super::{Experiment, Paper};
use openftl_lab::figures::table::{Cell, Column, Table, middle};
use openftl_lab::figures::{Plot, Series};
use serde::Serialize;
use std::fmt;

/// What one seed gave.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Run {
    /// What was set, so that another can do the same elsewhere.
    pub parameters: Vec<Parameter>,
    /// The numbers.
    pub tables: Vec<Table>,
    /// The pictures.
    pub plots: Vec<Plot>,
    /// What it says of the paper's claims.
    pub claims: Vec<Claim>,
    /// What it says of this project's own.
    pub checks: Vec<Check>,
    /// What one has to know to read the numbers.
    pub notes: Vec<&'static str>,
    /// What was counted besides.
    pub totals: Vec<Total>,
}

/// One thing that was set.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Parameter {
    /// What.
    pub name: &'static str,
    /// To what.
    pub value: String,
}

/// Something that is counted over all seeds.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Total {
    /// What, as it follows its number: `s of CPU time`.
    pub what: &'static str,
    /// How much.
    pub amount: f64,
    /// To how many decimals.
    pub decimals: usize,
}

impl Run {
    /// Adds a parameter.
    pub fn parameter(&mut self, name: &'static str, value: impl fmt::Display) {
        self.parameters.push(Parameter { name, value: value.to_string() });
    }

    /// Adds something that is counted.
    pub fn total(&mut self, what: &'static str, amount: f64, decimals: usize) {
        self.totals.push(Total { what, amount, decimals });
    }
}

/// The answer to the question of an experiment.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    /// The name of the experiment.
    pub experiment: &'static str,
    /// What was asked.
    pub question: &'static str,
    /// What the paper found.
    pub paper: Option<Paper>,
    /// Whether it ran on a smaller scale.
    pub quick: bool,
    /// Whether the seed alone decides what comes out.
    pub in_virtual_time: bool,
    /// What all of it follows from.
    pub seeds: Vec<u64>,
    /// What was set.
    pub parameters: Vec<Parameter>,
    /// The numbers: medians.
    pub tables: Vec<Table>,
    /// The pictures.
    pub plots: Vec<Plot>,
    /// What one has to know to read them.
    pub notes: Vec<&'static str>,
    /// What was counted besides, over all seeds.
    pub totals: Vec<Total>,
    /// What this project says of itself.
    pub checks: Vec<Checked>,
    /// What the paper claims.
    pub findings: Vec<Finding>,
    /// What each seed gave.
    #[serde(skip)]
    pub runs: Vec<Run>,
}

impl Report {
    /// What several seeds gave together.
    ///
    /// # Panics
    /// If there are none, or not one for each run.
    #[must_use]
    pub fn of(experiment: &Experiment, quick: bool, seeds: Vec<u64>, runs: Vec<Run>) -> Report {
        assert_eq!(seeds.len(), runs.len(), "a seed for each run");
        let first = &runs[0];
        let each = |index: usize| runs.iter().filter_map(move |run| run.tables.get(index)).collect::<Vec<_>>();
        let claims = |index: usize| runs.iter().map(|run| &run.claims[index]).collect::<Vec<_>>();
        let checks = |index: usize| runs.iter().map(|run| &run.checks[index]).collect::<Vec<_>>();
        let total = |index: usize| Total {
            amount: runs.iter().filter_map(|run| run.totals.get(index)).map(|total| total.amount).sum(),
            ..first.totals[index].clone()
        };
        Report {
            experiment: experiment.name,
            question: experiment.question,
            paper: experiment.paper,
            quick,
            in_virtual_time: experiment.in_virtual_time,
            seeds,
            parameters: first.parameters.clone(),
            tables: (0..first.tables.len()).map(|index| Table::median(&each(index))).collect(),
            plots: (0..first.plots.len()).map(|index| plot(&runs, index)).collect(),
            notes: first.notes.clone(),
            totals: (0..first.totals.len()).map(total).collect(),
            checks: (0..first.checks.len()).map(|index| Checked::of(&checks(index))).collect(),
            findings: (0..first.claims.len()).map(|index| Finding::of(&claims(index))).collect(),
            runs,
        }
    }

    /// Whether all that this project says of itself holds.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.checks.iter().all(|check| check.holds)
    }

    /// A table with the rows of every seed.
    #[must_use]
    pub fn table_of_all_seeds(&self, index: usize) -> Option<Table> {
        let seed = Column { name: "seed", unit: "" };
        let tables = self
            .seeds
            .iter()
            .zip(&self.runs)
            .filter_map(|(seed, run)| Some((Cell::Count(*seed), run.tables.get(index)?)));
        Table::stacked(seed, tables)
    }
}

/// The plot of that index with the medians of all runs.
fn plot(runs: &[Run], index: usize) -> Plot {
    let first = &runs[0].plots[index];
    let series = |place: usize| {
        let all: Vec<&Series> =
            runs.iter().filter_map(|run| run.plots.get(index)).filter_map(|plot| plot.series.get(place)).collect();
        median(&all)
    };
    Plot { series: (0..first.series.len()).map(series).collect(), ..first.clone() }
}

/// The series in the middle. Where one has more points than another, such as over time, that of the first.
fn median(all: &[&Series]) -> Series {
    let first = all[0];
    let alike = all.iter().all(|one| one.points.len() == first.points.len() && one.name == first.name);
    if all.len() == 1 || !alike {
        return first.clone();
    }
    let values =
        |point: usize, of: fn(&(f64, f64)) -> f64| all.iter().map(|one| of(&one.points[point])).collect::<Vec<_>>();
    let range = |values: Vec<f64>| {
        values.into_iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), one| (low.min(one), high.max(one)))
    };
    let points = 0..first.points.len();
    Series {
        points: points
            .clone()
            .map(|point| (middle(values(point, |it| it.0)), middle(values(point, |it| it.1))))
            .collect(),
        ranges: points.map(|point| [range(values(point, |it| it.0)), range(values(point, |it| it.1))]).collect(),
        ..first.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ALL, Figure};
    use openftl_lab::figures::Axis;

    fn run(value: f64, points: &[(f64, f64)]) -> Run {
        let mut table = Table::new("t", &[("value", "")]);
        table.row(vec![Cell::Number(value, 1)]);
        let mut run = Run {
            tables: vec![table],
            plots: vec![Plot {
                name: "p",
                title: String::new(),
                x: Axis::even("x", ""),
                y: Axis::even("y", ""),
                series: vec![Series::new("one", points.to_vec())],
                caption: Vec::new(),
            }],
            claims: vec![Claim::new(&[], "claim", vec![Figure::effect("gain", "", 1, 2.0, 0.0, value)], "")],
            checks: vec![Check { claim: "check", check: "", holds: value > 1.0, measured: value.to_string(), why: "" }],
            ..Run::default()
        };
        run.total("blocks compared", value, 0);
        run
    }

    #[test]
    fn a_report_has_medians_ranges_and_every_seed() {
        let runs = vec![run(2.0, &[(1.0, 4.0)]), run(1.0, &[(1.0, 6.0)]), run(3.0, &[(1.0, 5.0)])];
        let report = Report::of(&ALL[0], true, vec![7, 8, 9], runs);
        assert_eq!(report.tables[0].rows, [[Cell::Number(2.0, 1)]]);
        assert_eq!(report.plots[0].series[0].points, [(1.0, 5.0)]);
        assert_eq!(report.plots[0].series[0].ranges, [[(1.0, 1.0), (4.0, 6.0)]]);
        assert_eq!(report.totals[0].amount, 6.0);
        assert!(!report.holds());
        assert_eq!(report.checks[0].measured, "1", "the seed with which it does not hold");
        let table = report.table_of_all_seeds(0).unwrap();
        assert_eq!(table.csv(), "seed,value\n7,2.0\n8,1.0\n9,3.0\n");
    }

    #[test]
    fn series_of_different_lengths_have_no_median() {
        let runs = vec![run(2.0, &[(1.0, 4.0)]), run(2.0, &[(1.0, 6.0), (2.0, 6.0)])];
        let report = Report::of(&ALL[0], true, vec![1, 2], runs);
        assert_eq!((report.plots[0].series[0].points.len(), report.plots[0].series[0].ranges.len()), (1, 0));
    }
}
