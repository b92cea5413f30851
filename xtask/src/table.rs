//! Text tables: columns as wide as their widest cell.

/// Rows of cells under a header.
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these column names.
    pub fn new(header: &[&str]) -> Table {
        Table { rows: vec![header.iter().map(|&cell| cell.to_owned()).collect()] }
    }

    /// Adds a row.
    ///
    /// # Panics
    /// If it has not as many cells as the header.
    pub fn row(&mut self, cells: Vec<String>) {
        assert_eq!(cells.len(), self.rows[0].len(), "a row has as many cells as the header");
        self.rows.push(cells);
    }
}

impl std::fmt::Display for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let columns = self.rows[0].len();
        let width = |column: usize| self.rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns).map(width).collect();
        for (index, row) in self.rows.iter().enumerate() {
            let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
            writeln!(f, "  {}", cells.collect::<Vec<_>>().join("  ").trim_end())?;
            if index == 0 {
                let rules = widths.iter().map(|width| "─".repeat(*width));
                writeln!(f, "  {}", rules.collect::<Vec<_>>().join("  "))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_whatever_the_cells_hold() {
        let mut table = Table::new(&["OP", "WAF"]);
        table.row(vec!["10 %".to_owned(), "5.6".to_owned()]);
        table.row(vec!["7 %".to_owned(), "µ".to_owned()]);
        assert_eq!(table.to_string(), "  OP    WAF\n  ────  ───\n  10 %  5.6\n  7 %   µ\n");
    }
}
