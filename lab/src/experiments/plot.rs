//! A plot: lines through points, as an SVG that reads on a light and on a dark page.
//!
//! ```text
//!   title
//!   ● one   ■ another                 the series
//!   12 ┤
//!    8 ┤        ●──●                  marked points, joined
//!    4 ┤  ●──●
//!    0 ┼──┬──┬──┬──┬
//!      0    x [unit]
//!   caption
//! ```

use serde::Serialize;
use std::fmt::Write;

/// An axis, from zero on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Axis {
    /// What is measured along it.
    pub name: &'static str,
    /// In which unit.
    pub unit: &'static str,
}

/// Points that belong together, in the order of `x`.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Series {
    /// What it is called in the legend.
    pub name: String,
    /// `x` and `y` of each point.
    pub points: Vec<(f64, f64)>,
}

/// A plot.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Plot {
    /// What it is called; part of a file's name where an experiment has several.
    pub name: &'static str,
    /// What is to be seen.
    pub title: String,
    /// To the right.
    pub x: Axis,
    /// Upwards.
    pub y: Axis,
    /// What is drawn.
    pub series: Vec<Series>,
    /// Sentences below, such as what the paper found.
    pub caption: Vec<String>,
}

const WIDTH: f64 = 760.0;
/// The area of the points: its sides within the picture.
const LEFT: f64 = 64.0;
const RIGHT: f64 = WIDTH - 24.0;
const TOP: f64 = 78.0;
const BOTTOM: f64 = 392.0;
/// Characters of the caption that fit in a line.
const CAPTION_CHARACTERS: usize = 108;
const CAPTION_LINE: f64 = 17.0;
const CAPTION_TOP: f64 = BOTTOM + 68.0;
/// Ticks that an axis has, about.
const TICKS: f64 = 6.0;

/// Colours that the colour-blind tell apart, for a light and for a dark page. Series beyond them begin again.
const COLOURS: [(&str, &str); 6] = [
    ("#0072b2", "#56b4e9"),
    ("#d55e00", "#ff9a4d"),
    ("#007a5a", "#3ecf9e"),
    ("#a5478b", "#e7a6cd"),
    ("#8a6d00", "#e6c84a"),
    ("#555555", "#bbbbbb"),
];

impl Plot {
    /// The picture.
    #[must_use]
    pub fn svg(&self) -> String {
        let wrap = |sentence: &String| wrapped(sentence, CAPTION_CHARACTERS);
        let caption: Vec<String> = self.caption.iter().flat_map(wrap).collect();
        let mut drawing = Drawing { svg: head(CAPTION_TOP + CAPTION_LINE * caption.len() as f64 + 4.0, &self.title) };
        drawing.text("title", (LEFT, 28.0), &self.title);
        for (index, line) in caption.iter().enumerate() {
            drawing.text("caption", (LEFT, CAPTION_TOP + CAPTION_LINE * index as f64), line);
        }
        let area = Area { x: Scale::to(self.reach(|point| point.0)), y: Scale::to(self.reach(|point| point.1)) };
        self.draw_axes(&mut drawing, &area);
        let mut legend_x = RIGHT - self.series.iter().map(|series| legend_width(&series.name)).sum::<f64>();
        for (index, series) in self.series.iter().enumerate() {
            drawing.series(index % COLOURS.len(), &area, &series.points);
            drawing.mark(index % COLOURS.len(), (legend_x + 8.0, TOP - 16.0));
            drawing.text("start", (legend_x + 18.0, TOP - 12.0), &series.name);
            legend_x += legend_width(&series.name);
        }
        drawing.svg.push_str("</svg>\n");
        drawing.svg
    }

    /// The greatest value along an axis.
    fn reach(&self, of: fn(&(f64, f64)) -> f64) -> f64 {
        self.series.iter().flat_map(|series| &series.points).map(of).fold(0.0, f64::max)
    }

    fn draw_axes(&self, drawing: &mut Drawing, area: &Area) {
        drawing.text("middle", (f64::midpoint(LEFT, RIGHT), BOTTOM + 40.0), &axis_title(self.x));
        drawing.text("start", (LEFT - 48.0, TOP - 12.0), &axis_title(self.y));
        for tick in area.x.ticks() {
            drawing.text("middle", (area.at(tick, 0.0).0, BOTTOM + 19.0), &area.x.label(tick));
        }
        for tick in area.y.ticks() {
            let y = area.at(0.0, tick).1;
            drawing.text("end", (LEFT - 8.0, y + 4.0), &area.y.label(tick));
            drawing.path("grid", &format!("M{LEFT:.1} {y:.1}H{RIGHT:.1}"));
        }
        drawing.path("axis", &format!("M{LEFT:.1} {TOP:.1}V{BOTTOM:.1}H{RIGHT:.1}"));
    }
}

/// Where values lie in the picture.
struct Area {
    x: Scale,
    y: Scale,
}

impl Area {
    fn at(&self, x: f64, y: f64) -> (f64, f64) {
        (LEFT + x / self.x.end * (RIGHT - LEFT), BOTTOM - y / self.y.end * (BOTTOM - TOP))
    }
}

/// A picture being drawn. Classes are those of [`head`].
struct Drawing {
    svg: String,
}

impl Drawing {
    fn text(&mut self, class: &str, (x, y): (f64, f64), text: &str) {
        _ = writeln!(self.svg, r#"<text class="{class}" x="{x:.1}" y="{y:.1}">{}</text>"#, escaped(text));
    }

    fn path(&mut self, class: &str, path: &str) {
        _ = writeln!(self.svg, r#"<path class="{class}" d="{path}"/>"#);
    }

    fn series(&mut self, class: usize, area: &Area, points: &[(f64, f64)]) {
        let places: Vec<(f64, f64)> = points.iter().map(|(x, y)| area.at(*x, *y)).collect();
        if places.len() > 1 {
            let line: Vec<String> = places.iter().map(|(x, y)| format!("{x:.1} {y:.1}")).collect();
            self.path(&format!("line s{class}"), &format!("M{}", line.join("L")));
        }
        for place in places {
            self.mark(class, place);
        }
    }

    /// A shape of its own for each series, so that colour is not all that tells them apart.
    fn mark(&mut self, class: usize, (x, y): (f64, f64)) {
        let path = match class % 4 {
            0 => format!("M{:.1} {y:.1}a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0-9 0z", x - 4.5),
            1 => format!("M{:.1} {:.1}h8v8h-8z", x - 4.0, y - 4.0),
            2 => format!("M{x:.1} {:.1}l5.2 9h-10.4z", y - 5.5),
            _ => format!("M{x:.1} {:.1}l5.5 5.5l-5.5 5.5l-5.5-5.5z", y - 5.5),
        };
        self.path(&format!("m{class}"), &path);
    }
}

/// Everything before the first thing that is drawn.
fn head(height: f64, title: &str) -> String {
    let colours = |colour: fn(&(&'static str, &'static str)) -> &'static str| {
        let rules = COLOURS.iter().enumerate().map(|(index, pair)| {
            let colour = colour(pair);
            format!(".s{index}{{stroke:{colour}}}.m{index}{{fill:{colour}}}")
        });
        rules.collect::<String>()
    };
    let (light, dark) = (colours(|pair| pair.0), colours(|pair| pair.1));
    format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:.0} {height:.0}" width="{WIDTH:.0}" height="{height:.0}" role="img" aria-label="{title}">
<style>
text{{font:13px system-ui,"Segoe UI","DejaVu Sans",sans-serif;fill:#333}}
.title{{font-size:17px;font-weight:600;fill:#111}}.caption{{font-size:12px;fill:#555}}
.middle{{text-anchor:middle}}.end{{text-anchor:end}}
.page{{fill:#fff}}.grid{{stroke:#e3e3e3;fill:none}}.axis{{stroke:#777;fill:none}}
.line{{fill:none;stroke-width:2;stroke-linejoin:round}}
{light}
@media(prefers-color-scheme:dark){{
text{{fill:#ccc}}.title{{fill:#f2f2f2}}.caption{{fill:#aaa}}
.page{{fill:#14171c}}.grid{{stroke:#2c313a}}.axis{{stroke:#8a8f98}}
{dark}
}}
</style>
<rect class="page" width="100%" height="100%"/>
"##,
        title = escaped(title)
    )
}

fn axis_title(axis: Axis) -> String {
    if axis.unit.is_empty() { axis.name.to_owned() } else { format!("{} [{}]", axis.name, axis.unit) }
}

/// Room for a name and its mark. Letters are about seven wide.
fn legend_width(name: &str) -> f64 {
    34.0 + 7.0 * name.chars().count() as f64
}

/// An axis with round steps.
struct Scale {
    step: f64,
    end: f64,
}

impl Scale {
    /// From zero to `reach` or a little beyond.
    fn to(reach: f64) -> Scale {
        let reach = if reach > 0.0 { reach } else { 1.0 };
        let rough = reach / TICKS;
        let power = 10f64.powf(rough.log10().floor());
        let step = power * [1.0, 2.0, 5.0, 10.0].into_iter().find(|step| step * power >= rough).unwrap_or(10.0);
        Scale { step, end: (reach / step).ceil() * step }
    }

    fn ticks(&self) -> impl Iterator<Item = f64> + '_ {
        (0..=(self.end / self.step).round() as u32).map(|tick| f64::from(tick) * self.step)
    }

    fn label(&self, value: f64) -> String {
        let decimals = (-self.step.log10().floor()).max(0.0) as usize;
        format!("{value:.decimals$}")
    }
}

/// `text` in lines of at most `characters`, broken at blanks.
fn wrapped(text: &str, characters: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("there is always a line");
        if line.is_empty() {
            line.push_str(word);
        } else if line.chars().count() + 1 + word.chars().count() <= characters {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(series: Vec<Series>) -> Plot {
        let axis = |name, unit| Axis { name, unit };
        let caption = vec!["What <the> paper found & why.".to_owned()];
        Plot { name: "p", title: "A \"plot\"".into(), x: axis("time", "s"), y: axis("count", ""), series, caption }
    }

    fn series(name: &str, points: &[(f64, f64)]) -> Series {
        Series { name: name.to_owned(), points: points.to_vec() }
    }

    /// Tags are balanced, attributes quoted, nothing is left unescaped: enough of XML for what is written here.
    #[track_caller]
    fn check_well_formed(svg: &str) {
        let mut open = Vec::new();
        for piece in svg.split('<').skip(1) {
            let (tag, text) = piece.split_once('>').unwrap_or_else(|| panic!("`<{piece}` has no end"));
            assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
            assert!(!text.contains('>'), "{text}");
            for entity in text.split('&').skip(1).chain(tag.split('&').skip(1)) {
                assert!(["amp;", "lt;", "gt;", "quot;"].iter().any(|name| entity.starts_with(name)), "&{entity}");
            }
            let name = tag.split([' ', '/']).next().unwrap_or_default();
            if let Some(name) = tag.strip_prefix('/') {
                assert_eq!(open.pop(), Some(name), "{tag}");
            } else if !tag.ends_with('/') {
                open.push(name);
            }
        }
        assert!(open.is_empty(), "{open:?}");
    }

    #[test]
    fn a_plot_is_well_formed_and_keeps_its_points_inside() {
        let svg =
            plot(vec![series("a<b", &[(0.0, 0.0), (7.0, 13.0)]), series("one", &[(3.0, 2.0)]), series("none", &[])])
                .svg();
        check_well_formed(&svg);
        assert!(svg.contains("a&lt;b") && svg.contains("&lt;the&gt; paper found &amp; why."), "{svg}");
        assert!(svg.contains(&format!("M{LEFT:.1} {BOTTOM:.1}L")), "a line begins at the origin: {svg}");
        assert_eq!(svg.matches("class=\"line").count(), 1, "one point makes no line");
        assert_eq!(svg.matches("class=\"m0\"").count(), 2 + 1, "points and legend");
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }

    #[test]
    fn a_plot_of_nothing_or_of_zeroes_is_still_a_plot() {
        check_well_formed(&plot(vec![]).svg());
        let svg = plot(vec![series("zero", &[(0.0, 0.0)])]).svg();
        check_well_formed(&svg);
        assert!(!svg.contains("NaN"), "{svg}");
    }

    #[test]
    fn steps_are_round_and_labels_tell_them_apart() {
        let labels = |reach| {
            let scale = Scale::to(reach);
            scale.ticks().map(|tick| scale.label(tick)).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(labels(114.0), "0 20 40 60 80 100 120");
        assert_eq!(labels(13.7), "0 5 10 15");
        assert_eq!(labels(0.31), "0.0 0.1 0.2 0.3 0.4");
        assert_eq!(labels(0.0), "0.0 0.2 0.4 0.6 0.8 1.0");
    }

    #[test]
    fn a_caption_is_broken_at_blanks() {
        assert_eq!(wrapped("one two three", 7), ["one two", "three"]);
        assert_eq!(wrapped("", 7), [""]);
    }
}
