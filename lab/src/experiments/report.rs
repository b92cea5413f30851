//! What an experiment found: tables, plots, and verdicts with the numbers that they rest on.

use super::{Experiment, Options, Paper, Plot};
use serde::{Serialize, Serializer};
use std::fmt;

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
    /// What all of it follows from.
    pub seed: u64,
    /// What was set, so that another can do the same elsewhere.
    pub parameters: Vec<Parameter>,
    /// The numbers.
    pub tables: Vec<Table>,
    /// The pictures.
    pub plots: Vec<Plot>,
    /// What follows from the numbers.
    pub findings: Vec<Finding>,
    /// What one has to know to read them.
    pub notes: Vec<String>,
}

impl Report {
    /// Of an experiment in which nothing is measured yet.
    #[must_use]
    pub fn new(experiment: &Experiment, options: Options) -> Report {
        Report {
            experiment: experiment.name,
            question: experiment.question,
            paper: experiment.paper,
            quick: options.quick,
            seed: options.seed,
            parameters: Vec::new(),
            tables: Vec::new(),
            plots: Vec::new(),
            findings: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Adds a parameter.
    pub fn parameter(&mut self, name: &'static str, value: impl fmt::Display) {
        self.parameters.push(Parameter { name, value: value.to_string() });
    }

    /// Whether every finding holds.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.findings.iter().all(|finding| finding.holds)
    }
}

/// One thing that was set.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Parameter {
    /// What.
    pub name: &'static str,
    /// To what.
    pub value: String,
}

/// Whose claim a finding is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The paper's.
    Paper,
    /// This project's own.
    OpenFtl,
}

/// A claim, and whether it holds here.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Finding {
    /// Who claims it.
    pub source: Source,
    /// What.
    pub claim: &'static str,
    /// What had to be so for it to hold.
    pub check: &'static str,
    /// Whether it was.
    pub holds: bool,
    /// The numbers.
    pub measured: String,
    /// Why they are as they are.
    pub why: &'static str,
}

impl Finding {
    /// The verdict in a word or two.
    #[must_use]
    pub fn verdict(&self) -> &'static str {
        match (self.source, self.holds) {
            (Source::Paper, true) => "reproduced",
            (Source::Paper, false) => "not reproduced",
            (Source::OpenFtl, true) => "holds",
            (Source::OpenFtl, false) => "does not hold",
        }
    }
}

/// Rows of cells under named columns.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Table {
    /// What it is called; part of a file's name where an experiment has several.
    pub name: &'static str,
    /// Its columns.
    pub columns: Vec<Column>,
    /// Its rows, each with a cell for each column.
    pub rows: Vec<Vec<Cell>>,
}

/// A column of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Column {
    /// What is in it, in words.
    pub name: &'static str,
    /// The unit, empty for counts and words.
    pub unit: &'static str,
}

impl Column {
    /// What it is called in comma-separated values: `recovery_s`.
    #[must_use]
    pub fn header(&self) -> String {
        let words = [self.name, self.unit].into_iter().filter(|word| !word.is_empty());
        words.collect::<Vec<_>>().join("_").replace([' ', '-'], "_").to_lowercase()
    }
}

/// One cell.
#[derive(Clone, PartialEq, Debug)]
pub enum Cell {
    /// Words.
    Text(String),
    /// How many.
    Count(u64),
    /// How much, and to how many decimals that is known.
    Number(f64, usize),
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cell::Text(text) => f.write_str(text),
            Cell::Count(count) => write!(f, "{count}"),
            Cell::Number(number, decimals) => write!(f, "{number:.decimals$}"),
        }
    }
}

impl Serialize for Cell {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Cell::Text(text) => serializer.serialize_str(text),
            Cell::Count(count) => serializer.serialize_u64(*count),
            Cell::Number(number, _) => serializer.serialize_f64(*number),
        }
    }
}

impl Table {
    /// A table with these columns: name and unit of each.
    #[must_use]
    pub fn new(name: &'static str, columns: &[(&'static str, &'static str)]) -> Table {
        let columns = columns.iter().map(|(name, unit)| Column { name, unit }).collect();
        Table { name, columns, rows: Vec::new() }
    }

    /// Adds a row.
    ///
    /// # Panics
    /// If it has not a cell for each column.
    pub fn row(&mut self, cells: Vec<Cell>) {
        assert_eq!(cells.len(), self.columns.len(), "a row has a cell for each column");
        self.rows.push(cells);
    }

    /// As comma-separated values: a header (`recovery_s`), then a line for each row.
    #[must_use]
    pub fn csv(&self) -> String {
        let header = self.columns.iter().map(Column::header);
        let mut text = header.collect::<Vec<_>>().join(",");
        text.push('\n');
        for row in &self.rows {
            let cells = row.iter().map(|cell| quoted(&cell.to_string()));
            text.push_str(&cells.collect::<Vec<_>>().join(","));
            text.push('\n');
        }
        text
    }
}

/// As RFC 4180 has it.
fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}

/// For a terminal: words to the left, numbers to the right.
impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines: Vec<Vec<String>> = vec![
            self.columns.iter().map(|column| column.name.to_owned()).collect(),
            self.columns.iter().map(|column| column.unit.to_owned()).collect(),
        ];
        lines.extend(self.rows.iter().map(|row| row.iter().map(Cell::to_string).collect()));
        let is_text = |column: usize| self.rows.iter().any(|row| matches!(row[column], Cell::Text(_)));
        let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
        let shape: Vec<(bool, usize)> =
            (0..self.columns.len()).map(|column| (is_text(column), width(column))).collect();
        for (index, line) in lines.iter().enumerate() {
            let cells = line
                .iter()
                .zip(&shape)
                .map(|(cell, (text, width))| if *text { format!("{cell:<width$}") } else { format!("{cell:>width$}") });
            writeln!(f, "{}", cells.collect::<Vec<_>>().join("  ").trim_end())?;
            if index == 1 {
                let rules = shape.iter().map(|(_, width)| "─".repeat(*width));
                writeln!(f, "{}", rules.collect::<Vec<_>>().join("  "))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    fn table() -> Table {
        let mut table = Table::new("times", &[("checkpoints", ""), ("failure", "s"), ("blocks read", "")]);
        table.row(vec![Cell::Text("none, ever".into()), Cell::Number(1.5, 2), Cell::Count(12_345)]);
        table.row(vec![Cell::Text("\"all\"".into()), Cell::Number(12.25, 2), Cell::Count(1)]);
        table
    }

    #[test]
    fn columns_line_up_under_name_and_unit() {
        expect![[r#"
              checkpoints  failure  blocks read
                                 s
              ───────────  ───────  ───────────
              none, ever      1.50        12345
              "all"          12.25            1
        "#]]
        .assert_eq(&table().to_string());
    }

    #[test]
    fn values_with_commas_and_quotes_are_quoted() {
        expect![[r#"
            checkpoints,failure_s,blocks_read
            "none, ever",1.50,12345
            """all""",12.25,1
        "#]]
        .assert_eq(&table().csv());
    }

    #[test]
    fn only_a_papers_claim_is_reproduced() {
        let finding =
            |source, holds| Finding { source, claim: "", check: "", holds, measured: String::new(), why: "" }.verdict();
        assert_eq!(finding(Source::Paper, false), "not reproduced");
        assert_eq!(finding(Source::OpenFtl, true), "holds");
    }
}
