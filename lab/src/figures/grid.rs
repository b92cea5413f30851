//! Cells in rows, each of some class, as an SVG in a page: a map of a drive's chunks.

use super::plot::inline_head;
use std::collections::BTreeMap;
use std::fmt::Write;

/// A grid. All rows begin at the left; a row may be shorter than others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Grid {
    /// What is to be seen.
    pub title: String,
    /// The class of each cell, row by row: a word of the page's [`super::page`] rules.
    pub rows: Vec<Vec<&'static str>>,
}

const WIDTH: f64 = 480.0;
/// The sides of a cell.
const CELL_MIN: f64 = 2.0;
const CELL_MAX: f64 = 12.0;

impl Grid {
    /// The picture, as part of a page ([`super::Page`]). Cells of a class are one path, so that many of them stay small.
    #[must_use]
    pub fn inline_svg(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0).max(1);
        let side = (WIDTH / columns as f64).clamp(CELL_MIN, CELL_MAX);
        let gap = if side >= 4.0 { 1.0 } else { 0.0 };
        let mut svg = inline_head(WIDTH, side * self.rows.len() as f64, &self.title);
        let mut paths: BTreeMap<&str, String> = BTreeMap::new();
        for (row, cells) in self.rows.iter().enumerate() {
            for (column, class) in cells.iter().enumerate() {
                let (x, y, drawn) = (side * column as f64, side * row as f64, side - gap);
                _ = write!(paths.entry(class).or_default(), "M{x:.1} {y:.1}h{drawn:.1}v{drawn:.1}h-{drawn:.1}z");
            }
        }
        for (class, path) in paths {
            _ = writeln!(svg, r#"<path class="{class}" d="{path}"/>"#);
        }
        svg.push_str("</svg>\n");
        svg
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::plot::tests::check_well_formed;

    #[test]
    fn each_class_is_one_path_with_all_of_its_cells() {
        let grid = Grid { title: "map".to_owned(), rows: vec![vec!["c-free", "c-v0", "c-free"], vec!["c-v0"]] };
        let svg = grid.inline_svg();
        check_well_formed(&svg);
        assert_eq!(svg.matches("<path").count(), 2);
        assert_eq!(svg.matches('M').count(), 4);
        check_well_formed(&Grid { title: "none".to_owned(), rows: vec![] }.inline_svg());
    }
}
