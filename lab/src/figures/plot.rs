//! A plot: lines through points, as an SVG that reads on a light and on a dark page.
//!
//! ```text
//!   title
//!   ● one   ■ another   ┄ theory      the series, in as many lines as they need
//!   12 ┤
//!    8 ┤        ●──●                  marked points, joined; with several seeds the median,
//!    4 ┤  ●──●                        and a bar from the least to the most
//!    0 ┼──┬──┬──┬──┬
//!      0    x [unit]
//!   caption
//! ```

use serde::Serialize;
use std::fmt::Write;

/// How values lie along an axis.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Spread {
    /// Evenly, from zero on.
    #[default]
    Even,
    /// Each power of ten takes as much room as the next.
    Decades,
    /// Shares of a whole, 0 to below 1: from 0% to 90% as much room as from 90% to 99%, and so on.
    Nines,
    /// Names, each of which takes as much room: a value is the place of its name among them, from 0 on.
    Names(&'static [&'static str]),
}

/// An axis.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Axis {
    /// What is measured along it.
    pub name: &'static str,
    /// In which unit.
    pub unit: &'static str,
    /// How values lie along it.
    pub spread: Spread,
}

impl Axis {
    /// From zero on.
    #[must_use]
    pub const fn even(name: &'static str, unit: &'static str) -> Axis {
        Axis { name, unit, spread: Spread::Even }
    }

    /// Each power of ten as long as the next.
    #[must_use]
    pub const fn decades(name: &'static str, unit: &'static str) -> Axis {
        Axis { name, unit, spread: Spread::Decades }
    }

    /// Shares of a whole, each nine as long as the next.
    #[must_use]
    pub const fn nines(name: &'static str) -> Axis {
        Axis { name, unit: "", spread: Spread::Nines }
    }

    /// Names, in their order.
    #[must_use]
    pub const fn names(name: &'static str, names: &'static [&'static str]) -> Axis {
        Axis { name, unit: "", spread: Spread::Names(names) }
    }
}

/// Points that belong together, in the order in which they are joined.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Series {
    /// What it is called in the legend.
    pub name: String,
    /// `x` and `y` of each point.
    pub points: Vec<(f64, f64)>,
    /// The least and the most of `x` and of `y` of each point over several seeds; nothing if there was one.
    pub ranges: Vec<[(f64, f64); 2]>,
    /// The series that this one is the theory of: it has its colour, and a broken line without marks.
    pub theory_of: Option<usize>,
}

impl Series {
    /// What was measured once.
    #[must_use]
    pub fn new(name: impl Into<String>, points: Vec<(f64, f64)>) -> Series {
        Series { name: name.into(), points, ranges: Vec::new(), theory_of: None }
    }
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

/// The size of a picture, and the sides of the area of its points.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Layout {
    width: f64,
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
}

/// Of a picture by itself, with title, a line of legend and caption.
const ALONE: Layout = Layout { width: 760.0, left: 64.0, right: 736.0, top: 94.0, bottom: 408.0 };

/// Of a picture in a page, which says all of that around it: narrow, so that its letters can be read on a phone.
const INLINE: Layout = Layout { width: 480.0, left: 60.0, right: 466.0, top: 30.0, bottom: 238.0 };

const LEGEND_TOP: f64 = 54.0;
const LEGEND_LINE: f64 = 20.0;
/// Characters of the caption that fit in a line.
const CAPTION_CHARACTERS: usize = 108;
const CAPTION_LINE: f64 = 17.0;
/// From the bottom of the area.
const CAPTION_DOWN: f64 = 68.0;
/// Ticks that an axis has, about.
const TICKS: f64 = 6.0;
/// A series with more points is a curve, whose points are not marked.
const MARKED_MAX: usize = 24;

/// Colours that the colour-blind tell apart, for a light and for a dark page. Series beyond them begin again.
pub(super) const COLOURS: [(&str, &str); 6] = [
    ("#0072b2", "#56b4e9"),
    ("#d55e00", "#ff9a4d"),
    ("#007a5a", "#3ecf9e"),
    ("#a5478b", "#e7a6cd"),
    ("#8a6d00", "#e6c84a"),
    ("#555555", "#bbbbbb"),
];

impl Plot {
    /// The picture by itself.
    #[must_use]
    pub fn svg(&self) -> String {
        let wrap = |sentence: &String| wrapped(sentence, CAPTION_CHARACTERS);
        let caption: Vec<String> = self.caption.iter().flat_map(wrap).collect();
        let legend = self.legend();
        let lower = LEGEND_LINE * legend.last().map_or(0.0, |entry| entry.line as f64);
        let layout = Layout { top: ALONE.top + lower, bottom: ALONE.bottom + lower, ..ALONE };
        let caption_top = layout.bottom + CAPTION_DOWN;
        let height = caption_top + CAPTION_LINE * caption.len() as f64 + 4.0;
        let mut drawing = Drawing { svg: head(layout.width, height, &self.title) };
        drawing.text("title", (layout.left, 28.0), &self.title);
        for Entry { series, name, x, line } in &legend {
            let y = LEGEND_TOP + LEGEND_LINE * *line as f64;
            match series {
                Some(series) => drawing.mark(*series, (x + 8.0, y - 4.0)),
                None => drawing.path("axis theory", &format!("M{x:.1} {:.1}h16", y - 4.0)),
            }
            drawing.text("start", (x + 18.0, y), name);
        }
        for (index, line) in caption.iter().enumerate() {
            drawing.text("caption", (layout.left, caption_top + CAPTION_LINE * index as f64), line);
        }
        self.draw(&mut drawing, layout);
        drawing.svg.push_str("</svg>\n");
        drawing.svg
    }

    /// The picture as part of a page ([`super::Page`]), which has title, legend, caption and colours around it.
    #[must_use]
    pub fn inline_svg(&self) -> String {
        let mut drawing = Drawing { svg: inline_head(INLINE.width, INLINE.bottom + 46.0, &self.title) };
        self.draw(&mut drawing, INLINE);
        drawing.svg.push_str("</svg>\n");
        drawing.svg
    }

    /// The same with one series in front, and the others behind it without colours: one of several pictures side by side.
    #[must_use]
    pub fn inline_svg_of(&self, front: usize) -> String {
        let title = format!("{}: {}", self.title, self.series[front].name);
        let mut drawing = Drawing { svg: inline_head(INLINE.width, INLINE.bottom + 46.0, &title) };
        let area = self.area(INLINE);
        self.draw_axes(&mut drawing, &area);
        for (_, series) in self.series.iter().enumerate().filter(|(index, _)| *index != front) {
            drawing.line("line behind", &area, &series.points);
        }
        drawing.series(front, &area, &self.series[front]);
        drawing.svg.push_str("</svg>\n");
        drawing.svg
    }

    /// What the colours of a page mean here: class and name of each series.
    #[must_use]
    pub fn key(&self) -> Vec<(String, String)> {
        let measured = self.series.iter().enumerate().filter(|(_, series)| series.theory_of.is_none());
        measured.map(|(index, series)| (format!("m{}", index % COLOURS.len()), series.name.clone())).collect()
    }

    /// Places of the names, in lines that are no wider than the picture.
    fn legend(&self) -> Vec<Entry<'_>> {
        let series = self.series.iter().enumerate().filter(|(_, series)| series.theory_of.is_none());
        let mut names: Vec<(Option<usize>, &str)> =
            series.map(|(index, series)| (Some(index), series.name.as_str())).collect();
        if self.series.iter().any(|series| series.theory_of.is_some()) {
            names.push((None, "theory"));
        }
        let (mut x, mut line) = (ALONE.left, 0);
        let mut entries = Vec::with_capacity(names.len());
        for (series, name) in names {
            if x > ALONE.left && x + legend_width(name) > ALONE.width {
                (x, line) = (ALONE.left, line + 1);
            }
            entries.push(Entry { series, name, x, line });
            x += legend_width(name);
        }
        entries
    }

    fn area(&self, layout: Layout) -> Area {
        let (x, y): (Vec<f64>, Vec<f64>) = self.series.iter().flat_map(Series::extent).unzip();
        Area { layout, x: Scale::of(self.x.spread, &x), y: Scale::of(self.y.spread, &y) }
    }

    fn draw(&self, drawing: &mut Drawing, layout: Layout) {
        let area = self.area(layout);
        self.draw_axes(drawing, &area);
        for (index, series) in self.series.iter().enumerate() {
            drawing.series(index, &area, series);
        }
    }

    fn draw_axes(&self, drawing: &mut Drawing, area: &Area) {
        let Layout { left, right, top, bottom, .. } = area.layout;
        drawing.text("middle", (f64::midpoint(left, right), bottom + 40.0), &axis_title(self.x));
        drawing.text("start", (left - 48.0, top - 12.0), &axis_title(self.y));
        for tick in area.x.ticks() {
            let (x, label) = (area.x_at(tick), area.x.label(tick));
            // The last may be wider than the room that is left beside it.
            let half = 4.4 * label.chars().count() as f64;
            drawing.text("middle", (x.min(area.layout.width - half), bottom + 19.0), &label);
        }
        for tick in area.y.ticks() {
            let y = area.y_at(tick);
            drawing.text("end", (left - 8.0, y + 4.0), &area.y.label(tick));
            drawing.path("grid", &format!("M{left:.1} {y:.1}H{right:.1}"));
        }
        drawing.path("axis", &format!("M{left:.1} {top:.1}V{bottom:.1}H{right:.1}"));
    }
}

impl Series {
    /// Points, and ends of bars.
    fn extent(&self) -> impl Iterator<Item = (f64, f64)> + '_ {
        let ends = self.ranges.iter().flat_map(|[x, y]| [(x.0, y.0), (x.1, y.1)]);
        self.points.iter().copied().chain(ends)
    }
}

/// A name of the legend: that of a series, or of what broken lines are.
struct Entry<'a> {
    series: Option<usize>,
    name: &'a str,
    x: f64,
    line: usize,
}

/// How the line of a series is told from others: six colours, and when they are used up broken lines.
pub(super) fn line_class(index: usize) -> String {
    let dash = ["", " dash1", " dash2"][index / COLOURS.len() % 3];
    format!("s{}{dash}", index % COLOURS.len())
}

/// Where values lie in the picture.
struct Area {
    layout: Layout,
    x: Scale,
    y: Scale,
}

impl Area {
    fn x_at(&self, value: f64) -> f64 {
        self.layout.left + self.x.share(value) * (self.layout.right - self.layout.left)
    }

    fn y_at(&self, value: f64) -> f64 {
        self.layout.bottom - self.y.share(value) * (self.layout.bottom - self.layout.top)
    }

    fn at(&self, x: f64, y: f64) -> (f64, f64) {
        (self.x_at(x), self.y_at(y))
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

    fn series(&mut self, index: usize, area: &Area, series: &Series) {
        let theory = series.theory_of.is_some();
        let class = line_class(series.theory_of.unwrap_or(index));
        self.line(&format!("line {class}{}", if theory { " theory" } else { "" }), area, &series.points);
        for [(left, right), (low, high)] in &series.ranges {
            let (from, to) = (area.at(*left, *low), area.at(*right, *high));
            let middle = (f64::midpoint(from.0, to.0), f64::midpoint(from.1, to.1));
            let mut path = String::new();
            // What is no wider than the line is no news.
            if from.1 - to.1 > 2.0 {
                _ = write!(path, "M{:.1} {:.1}h6m-3 0V{:.1}m-3 0h6", middle.0 - 3.0, from.1, to.1);
            }
            if to.0 - from.0 > 2.0 {
                _ = write!(path, "M{:.1} {:.1}v6m0-3H{:.1}m0-3v6", from.0, middle.1 - 3.0, to.0);
            }
            if !path.is_empty() {
                self.path(&format!("bar s{}", index % COLOURS.len()), &path);
            }
        }
        if !theory && series.points.len() <= MARKED_MAX {
            for (x, y) in &series.points {
                self.mark(index, area.at(*x, *y));
            }
        }
    }

    fn line(&mut self, class: &str, area: &Area, points: &[(f64, f64)]) {
        if points.len() > 1 {
            let places = points.iter().map(|(x, y)| area.at(*x, *y));
            let line: Vec<String> = places.map(|(x, y)| format!("{x:.1} {y:.1}")).collect();
            self.path(class, &format!("M{}", line.join("L")));
        }
    }

    /// A shape of its own for each series, so that colour is not all that tells them apart.
    fn mark(&mut self, index: usize, (x, y): (f64, f64)) {
        let path = match index % 4 {
            0 => format!("M{:.1} {y:.1}a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0-9 0z", x - 4.5),
            1 => format!("M{:.1} {:.1}h8v8h-8z", x - 4.0, y - 4.0),
            2 => format!("M{x:.1} {:.1}l5.2 9h-10.4z", y - 5.5),
            _ => format!("M{x:.1} {:.1}l5.5 5.5l-5.5 5.5l-5.5-5.5z", y - 5.5),
        };
        self.path(&format!("m{}", index % COLOURS.len()), &path);
    }
}

/// Everything before the first thing that is drawn in a picture by itself.
fn head(width: f64, height: f64, title: &str) -> String {
    format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0} {height:.0}" width="{width:.0}" height="{height:.0}" role="img" aria-label="{title}">
<style>
{}</style>
<rect class="page" width="100%" height="100%"/>
"##,
        rules(),
        title = escaped(title)
    )
}

/// The same of a picture in a page, which has the [`rules`].
pub(super) fn inline_head(width: f64, height: f64, title: &str) -> String {
    let title = escaped(title);
    format!(
        "<svg viewBox=\"0 0 {width:.0} {height:.0}\" role=\"img\" aria-label=\"{title}\">\n<title>{title}</title>\n"
    )
}

/// How classes look, on a light page and on a dark one.
pub(super) fn rules() -> String {
    let colours = |colour: fn(&(&'static str, &'static str)) -> &'static str| {
        let rules = COLOURS.iter().enumerate().map(|(index, pair)| {
            let colour = colour(pair);
            format!(".s{index}{{stroke:{colour}}}.m{index}{{fill:{colour}}}")
        });
        rules.collect::<String>()
    };
    let (light, dark) = (colours(|pair| pair.0), colours(|pair| pair.1));
    format!(
        r##"text{{font:13px system-ui,"Segoe UI","DejaVu Sans",sans-serif;fill:#333}}
.title{{font-size:17px;font-weight:600;fill:#111}}.caption{{font-size:12px;fill:#555}}
.middle{{text-anchor:middle}}.end{{text-anchor:end}}
.page{{fill:#fff}}.grid{{stroke:#e3e3e3;fill:none}}.axis{{stroke:#777;fill:none}}
.line{{fill:none;stroke-width:2;stroke-linejoin:round}}.bar{{fill:none;stroke-width:1.2}}
.dash1{{stroke-dasharray:7 4}}.dash2{{stroke-dasharray:2 3}}.theory{{stroke-dasharray:5 4;stroke-width:1.5}}.behind{{stroke:#c4c8ce;stroke-width:1.2}}
{light}
@media(prefers-color-scheme:dark){{
text{{fill:#ccc}}.title{{fill:#f2f2f2}}.caption{{fill:#aaa}}
.page{{fill:#14171c}}.behind{{stroke:#4a515c}}.grid{{stroke:#2c313a}}.axis{{stroke:#8a8f98}}
{dark}
}}
"##
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
    spread: Spread,
    /// Where it begins and ends: values, or powers of ten, or nines.
    start: f64,
    end: f64,
    step: f64,
}

/// Nines that are told apart: up to 99.99%.
const NINES_MAX: f64 = 4.0;

impl Scale {
    /// Over all of `values`.
    fn of(spread: Spread, values: &[f64]) -> Scale {
        match spread {
            Spread::Even => Scale::to(values.iter().copied().fold(0.0, f64::max)),
            Spread::Nines => Scale { spread, start: 0.0, end: NINES_MAX, step: 1.0 },
            Spread::Names(names) => Scale { spread, start: -0.5, end: names.len().max(1) as f64 - 0.5, step: 1.0 },
            Spread::Decades => {
                let powers = values.iter().filter(|value| **value > 0.0).map(|value| value.log10());
                let (least, most) = powers.fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), power| {
                    (least.min(power), most.max(power))
                });
                let start = if least.is_finite() { least.floor() } else { 0.0 };
                Scale { spread, start, end: most.ceil().max(start + 1.0), step: 1.0 }
            }
        }
    }

    /// From zero to `reach` or a little beyond.
    fn to(reach: f64) -> Scale {
        let reach = if reach > 0.0 { reach } else { 1.0 };
        let rough = reach / TICKS;
        let power = 10f64.powf(rough.log10().floor());
        let step = power * [1.0, 2.0, 5.0, 10.0].into_iter().find(|step| step * power >= rough).unwrap_or(10.0);
        Scale { spread: Spread::Even, start: 0.0, end: (reach / step).ceil() * step, step }
    }

    /// Where along the axis `value` lies, from 0 to 1.
    fn share(&self, value: f64) -> f64 {
        let place = match self.spread {
            Spread::Even | Spread::Names(_) => value,
            Spread::Decades => value.max(f64::MIN_POSITIVE).log10(),
            Spread::Nines => -(1.0 - value).max(f64::MIN_POSITIVE).log10(),
        };
        ((place - self.start) / (self.end - self.start)).clamp(0.0, 1.0)
    }

    /// Values that are marked.
    fn ticks(&self) -> impl Iterator<Item = f64> + '_ {
        // Names are in the middle of their room.
        let first = if matches!(self.spread, Spread::Names(_)) { 0.0 } else { self.start };
        (0..=((self.end - first) / self.step + 1e-9).floor() as u32).map(move |tick| {
            let place = first + f64::from(tick) * self.step;
            match self.spread {
                Spread::Even | Spread::Names(_) => place,
                Spread::Decades => 10f64.powf(place),
                Spread::Nines => 1.0 - 10f64.powf(-place),
            }
        })
    }

    fn label(&self, value: f64) -> String {
        let decimals = |step: f64| (-step.log10().floor()).max(0.0) as usize;
        match self.spread {
            Spread::Even => format!("{value:.*}", decimals(self.step)),
            Spread::Names(names) => names.get(value as usize).copied().unwrap_or_default().to_owned(),
            // There is room for six digits.
            Spread::Decades if value >= 1e6 => format!("{} M", crate::picture::thousands((value / 1e6).round() as u64)),
            Spread::Decades if value >= 1.0 => crate::picture::thousands(value.round() as u64),
            Spread::Decades => format!("{value:.*}", decimals(value)),
            Spread::Nines => {
                let percent = format!("{:.2}", value * 100.0);
                format!("{}%", percent.trim_end_matches('0').trim_end_matches('.'))
            }
        }
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

pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    fn plot(series: Vec<Series>) -> Plot {
        let caption = vec!["What <the> paper found & why.".to_owned()];
        let (x, y) = (Axis::even("time", "s"), Axis::even("count", ""));
        Plot { name: "p", title: "A \"plot\"".into(), x, y, series, caption }
    }

    fn series(name: &str, points: &[(f64, f64)]) -> Series {
        Series::new(name, points.to_vec())
    }

    /// Tags are balanced, attributes quoted, nothing is left unescaped: enough of XML for what is written here.
    #[track_caller]
    pub(in super::super) fn check_well_formed(svg: &str) {
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
        assert!(
            svg.contains(&format!("M{:.1} {:.1}L", ALONE.left, ALONE.bottom)),
            "a line begins at the origin: {svg}"
        );
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
    fn decades_and_nines_take_the_same_room_each() {
        let decades = Scale::of(Spread::Decades, &[3.0, 40_000.0]);
        let labels: Vec<String> = decades.ticks().map(|tick| decades.label(tick)).collect();
        assert_eq!(labels.join(" ").replace('\u{202F}', ""), "1 10 100 1000 10000 100000");
        assert!((decades.share(1000.0) - 0.6).abs() < 1e-9 && decades.share(0.0) == 0.0);
        let nines = Scale::of(Spread::Nines, &[]);
        let millions = Scale::of(Spread::Decades, &[2e5, 3e7]);
        let labels: Vec<String> = millions.ticks().map(|tick| millions.label(tick)).collect();
        assert_eq!(labels.join(", ").replace('\u{202F}', " "), "100 000, 1 M, 10 M, 100 M");
        let names = Scale::of(Spread::Names(&["load", "a", "b"]), &[]);
        assert_eq!(names.ticks().map(|tick| names.label(tick)).collect::<Vec<_>>(), ["load", "a", "b"]);
        assert_eq!([0.0, 1.0, 2.0].map(|place| names.share(place)), [1.0 / 6.0, 0.5, 5.0 / 6.0]);
        let labels: Vec<String> = nines.ticks().map(|tick| nines.label(tick)).collect();
        assert_eq!(labels.join(" "), "0% 90% 99% 99.9% 99.99%");
        assert!((nines.share(0.99) - 0.5).abs() < 1e-9 && nines.share(1.0) == 1.0);
        let none = Scale::of(Spread::Decades, &[]);
        assert_eq!((none.start, none.end), (0.0, 1.0));
    }

    #[test]
    fn a_picture_in_a_page_has_a_title_for_those_who_do_not_see_it_and_many_kinds_of_lines() {
        let points = [(1.0, 0.0), (100.0, 0.9999)];
        let many = (0..13).map(|index| series(&format!("drive {index}"), &points)).collect();
        let (x, y) = (Axis::decades("latency", "us"), Axis::nines("share"));
        let svg = Plot { x, y, ..plot(many) }.inline_svg();
        check_well_formed(&svg);
        assert!(svg.contains("<title>A &quot;plot&quot;</title>") && !svg.contains("drive 0"), "{svg}");
        let classes: std::collections::BTreeSet<String> = (0..13).map(line_class).collect();
        assert_eq!(classes.len(), 13);
        assert!(classes.iter().all(|class| svg.contains(&format!("\"line {class}\""))), "{svg}");
    }

    /// Where the letters of a legend end, about.
    fn legend_ends(plot: &Plot) -> Vec<(f64, usize)> {
        plot.legend().iter().map(|entry| (entry.x + legend_width(entry.name), entry.line)).collect()
    }

    #[test]
    fn a_legend_stays_on_its_page_and_above_the_points() {
        let names = (0..6).map(|index| series(&format!("{index}: groups, as needed by all"), &[(1.0, 1.0)]));
        let plot = plot(names.collect());
        let ends = legend_ends(&plot);
        assert!(ends.iter().all(|(end, _)| *end <= ALONE.width), "{ends:?}");
        let lines = ends.last().unwrap().1;
        assert!(lines >= 1, "{ends:?}");
        let svg = plot.svg();
        check_well_formed(&svg);
        assert!(svg.contains(&format!("V{:.1}H", ALONE.bottom + LEGEND_LINE * lines as f64)), "{svg}");
    }

    #[test]
    fn one_series_is_in_front_and_the_others_have_no_colour() {
        let points = [(1.0, 1.0), (2.0, 4.0)];
        let svg = plot(vec![series("one", &points), series("two", &points), series("three", &points)]).inline_svg_of(1);
        check_well_formed(&svg);
        assert_eq!(svg.matches("class=\"line behind\"").count(), 2, "{svg}");
        assert_eq!(svg.matches("class=\"line s1\"").count(), 1, "{svg}");
        assert!(svg.contains("plot&quot;: two</title>"), "{svg}");
    }

    #[test]
    fn theory_has_the_colour_of_what_is_measured_and_no_marks() {
        let points = [(1.0, 1.0), (2.0, 4.0)];
        let theory = Series { theory_of: Some(1), ..series("two, theory", &points) };
        let svg = plot(vec![series("one", &points), series("two", &points), theory]).svg();
        check_well_formed(&svg);
        assert_eq!(svg.matches("class=\"line s1\"").count(), 1, "{svg}");
        assert_eq!(svg.matches("class=\"line s1 theory\"").count(), 1, "{svg}");
        assert!(!svg.contains("class=\"m2\"") && svg.contains(">theory</text>"), "{svg}");
    }

    #[test]
    fn what_differs_from_seed_to_seed_has_a_bar_and_what_does_not_has_none() {
        let flat = |at: f64| (at, at);
        let ranges = vec![[flat(1.0), (1.0, 3.0)], [flat(2.0), flat(4.0)], [(2.0, 4.0), flat(5.0)]];
        let series = Series { ranges, ..series("one", &[(1.0, 2.0), (2.0, 4.0), (3.0, 5.0)]) };
        let svg = plot(vec![series]).svg();
        check_well_formed(&svg);
        assert_eq!(svg.matches("class=\"bar s0\"").count(), 2, "{svg}");
    }

    #[test]
    fn a_caption_is_broken_at_blanks() {
        assert_eq!(wrapped("one two three", 7), ["one two", "three"]);
        assert_eq!(wrapped("", 7), [""]);
    }
}
