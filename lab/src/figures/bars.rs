//! Bars that are made of parts, one below the other, as an SVG in a page.
//!
//! ```text
//!   one drive                     1.50
//!   ████████████████▒▒▒▒▒▒▒░
//!   another                       1.12
//!   ████████████████▒▒
//! ```

use super::plot::{escaped, inline_head};
use std::fmt::Write;

/// A bar and the lengths of its parts.
#[derive(Clone, PartialEq, Debug)]
pub struct Bar {
    /// What it is about.
    pub name: String,
    /// What stands at its end, such as the sum.
    pub value: String,
    /// The parts, in the order of the legend: `p0`, `p1` … of the page.
    pub parts: Vec<f64>,
}

/// Bars on one scale.
#[derive(Clone, PartialEq, Debug)]
pub struct Bars {
    /// What is to be seen.
    pub title: String,
    /// From top to bottom.
    pub bars: Vec<Bar>,
}

const WIDTH: f64 = 480.0;
const ROW: f64 = 46.0;
const BAR: f64 = 20.0;
/// Letters of a name that fit beside the value.
const NAME_CHARACTERS: usize = 42;

impl Bars {
    /// The picture, as part of a page ([`super::Page`]).
    #[must_use]
    pub fn inline_svg(&self) -> String {
        let mut svg = inline_head(WIDTH, ROW * self.bars.len() as f64, &self.title);
        let longest = self.bars.iter().map(|bar| bar.parts.iter().sum::<f64>()).fold(0.0, f64::max);
        for (index, bar) in self.bars.iter().enumerate() {
            let top = ROW * index as f64;
            let name = shortened(&bar.name, NAME_CHARACTERS);
            _ = writeln!(svg, r#"<text class="start" x="0" y="{:.1}">{}</text>"#, top + 14.0, escaped(&name));
            _ = writeln!(svg, r#"<text class="end" x="{WIDTH}" y="{:.1}">{}</text>"#, top + 14.0, escaped(&bar.value));
            let mut x = 0.0;
            for (part, length) in bar.parts.iter().enumerate() {
                let width = if longest > 0.0 { length / longest * WIDTH } else { 0.0 };
                // What is too thin to be seen is in the table.
                if width >= 0.2 {
                    let gap = if width > 3.0 { 1.0 } else { 0.0 };
                    let place = format!(r#"x="{x:.1}" y="{:.1}" width="{:.1}""#, top + 20.0, width - gap);
                    _ = writeln!(svg, r#"<rect class="p{part}" {place} height="{BAR}"/>"#);
                }
                x += width;
            }
        }
        svg.push_str("</svg>\n");
        svg
    }
}

/// `text`, or its beginning and an ellipsis.
pub(super) fn shortened(text: &str, characters: usize) -> String {
    match text.chars().count() <= characters {
        true => text.to_owned(),
        false => text.chars().take(characters - 1).chain(['…']).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::plot::tests::check_well_formed;

    #[test]
    fn bars_are_to_one_scale_and_what_is_not_there_is_not_drawn() {
        let bar =
            |name: &str, parts: &[f64]| Bar { name: name.to_owned(), value: "<1>".to_owned(), parts: parts.to_vec() };
        let bars =
            Bars { title: "bars".to_owned(), bars: vec![bar("a & b", &[1.0, 0.0, 1.0]), bar("c", &[1.0, 0.5, 0.0])] };
        let svg = bars.inline_svg();
        check_well_formed(&svg);
        assert_eq!(svg.matches("width=\"239.0\"").count(), 3, "half of the longest: {svg}");
        assert_eq!(svg.matches("<rect").count(), 4, "{svg}");
        check_well_formed(&Bars { title: "none".to_owned(), bars: vec![bar("nothing", &[0.0])] }.inline_svg());
    }

    #[test]
    fn a_long_name_is_shortened() {
        assert_eq!((shortened("abcdef", 4), shortened("abcd", 4)), ("abc…".to_owned(), "abcd".to_owned()));
    }
}
