//! Tables of figures: for a terminal, as comma-separated values, and in JSON.

use serde::{Serialize, Serializer};
use std::fmt;

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

impl Cell {
    /// The one in the middle of several figures, or the first cell if they are not all figures of a kind.
    fn median<'a>(cells: impl Iterator<Item = &'a Cell>) -> Cell {
        let cells: Vec<&Cell> = cells.collect();
        let counts: Option<Vec<f64>> = cells.iter().map(|cell| cell.count()).collect();
        let numbers: Option<Vec<f64>> = cells.iter().map(|cell| cell.number()).collect();
        match (cells[0], counts, numbers) {
            (Cell::Count(_), Some(counts), _) => Cell::Count(middle(counts).round() as u64),
            (Cell::Number(_, decimals), _, Some(numbers)) => Cell::Number(middle(numbers), *decimals),
            (first, ..) => first.clone(),
        }
    }

    fn count(&self) -> Option<f64> {
        if let Cell::Count(count) = self { Some(*count as f64) } else { None }
    }

    fn number(&self) -> Option<f64> {
        if let Cell::Number(number, _) = self { Some(*number) } else { None }
    }
}

/// The median.
///
/// # Panics
/// If there are no values.
#[must_use]
pub fn middle(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    f64::midpoint(values[(values.len() - 1) / 2], values[values.len() / 2])
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

    /// The rows of several tables with the same columns, each after a cell of its own.
    ///
    /// # Panics
    /// If their columns differ.
    #[must_use]
    pub fn stacked<'a>(column: Column, tables: impl IntoIterator<Item = (Cell, &'a Table)>) -> Option<Table> {
        let mut stacked: Option<Table> = None;
        for (cell, table) in tables {
            let columns: Vec<Column> = std::iter::once(column).chain(table.columns.iter().copied()).collect();
            let all =
                stacked.get_or_insert_with(|| Table { name: table.name, columns: columns.clone(), rows: Vec::new() });
            assert_eq!(all.columns, columns, "tables of a kind have the same columns");
            all.rows.extend(table.rows.iter().map(|row| std::iter::once(&cell).chain(row).cloned().collect()));
        }
        stacked
    }

    /// The median of each figure over several tables of the same shape; of others, and of words that differ, the first.
    ///
    /// # Panics
    /// If there are none.
    #[must_use]
    pub fn median(tables: &[&Table]) -> Table {
        let first = tables[0];
        let alike = tables.iter().all(|table| table.columns == first.columns && table.rows.len() == first.rows.len());
        if !alike {
            return first.clone();
        }
        let cell = |row: usize, column: usize| Cell::median(tables.iter().map(|table| &table.rows[row][column]));
        let row = |row| (0..first.columns.len()).map(|column| cell(row, column)).collect();
        Table { rows: (0..first.rows.len()).map(row).collect(), ..first.clone() }
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
    fn the_median_of_tables_is_that_of_each_figure() {
        let table = |count, number, words: &str| {
            let mut table = Table::new("t", &[("a", ""), ("b", "s"), ("c", "")]);
            table.row(vec![Cell::Count(count), Cell::Number(number, 1), Cell::Text(words.to_owned())]);
            table
        };
        let tables = [table(4, 1.0, "x"), table(9, 9.0, "y"), table(1, 5.0, "x")];
        let median = Table::median(&tables.iter().collect::<Vec<_>>());
        assert_eq!(median.rows, [[Cell::Count(4), Cell::Number(5.0, 1), Cell::Text("x".to_owned())]]);
        let mut longer = tables[1].clone();
        longer.rows.push(longer.rows[0].clone());
        assert_eq!(Table::median(&[&tables[0], &longer]), tables[0], "tables of different shapes have no median");
        assert_eq!(middle(vec![3.0, 1.0, 2.0, 10.0]), 2.5);
    }

    #[test]
    fn tables_are_stacked_under_one_header() {
        let seed = Column { name: "seed", unit: "" };
        let table = table();
        let stacked = Table::stacked(seed, [(Cell::Count(1), &table), (Cell::Count(2), &table)]).unwrap();
        let csv = stacked.csv();
        assert!(csv.starts_with("seed,checkpoints,") && csv.lines().count() == 5, "{csv}");
        assert!(csv.lines().nth(3).unwrap().starts_with("2,\"none, ever\""), "{csv}");
    }
}
