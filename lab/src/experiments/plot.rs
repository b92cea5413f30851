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

/// The size of a picture, and the sides of the area of its points.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Layout {
    width: f64,
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
}

/// Of a picture by itself, with title, legend and caption.
const ALONE: Layout = Layout { width: 760.0, left: 64.0, right: 736.0, top: 78.0, bottom: 392.0 };

/// Of a picture in a page, which says all of that around it: narrow, so that its letters can be read on a phone.
const INLINE: Layout = Layout { width: 480.0, left: 60.0, right: 466.0, top: 30.0, bottom: 238.0 };

/// Characters of the caption that fit in a line.
const CAPTION_CHARACTERS: usize = 108;
const CAPTION_LINE: f64 = 17.0;
const CAPTION_TOP: f64 = ALONE.bottom + 68.0;
/// Ticks that an axis has, about.
const TICKS: f64 = 6.0;

/// Colours that the colour-blind tell apart, for a light and for a dark page. Series beyond them begin again.
pub(super) const COLOURS: [(&str, &str); 6] = [
    ("#0072b2", "#56b4e9"),
    ("#d55e00", "#ff9a4d"),
    ("#007a5a", "#3ecf9e"),
    ("#a5478b", "#e7a6cd"),
    ("#8a6d00", "#e6c84a"),
    ("#555555", "#bbbbbb"),
];

/// How values lie along an axis.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Spread {
    /// Evenly, from zero on.
    #[default]
    Even,
    /// Each power of ten takes as much room as the next.
    Decades,
    /// Shares of a whole, 0 to below 1: from 0% to 90% as much room as from 90% to 99%, and so on.
    Nines,
}

impl Plot {
    /// The picture by itself.
    #[must_use]
    pub fn svg(&self) -> String {
        let wrap = |sentence: &String| wrapped(sentence, CAPTION_CHARACTERS);
        let caption: Vec<String> = self.caption.iter().flat_map(wrap).collect();
        let height = CAPTION_TOP + CAPTION_LINE * caption.len() as f64 + 4.0;
        let mut drawing = Drawing { svg: head(ALONE.width, height, &self.title) };
        drawing.text("title", (ALONE.left, 28.0), &self.title);
        for (index, line) in caption.iter().enumerate() {
            drawing.text("caption", (ALONE.left, CAPTION_TOP + CAPTION_LINE * index as f64), line);
        }
        let area = self.area(ALONE, [Spread::Even; 2]);
        self.draw_axes(&mut drawing, &area);
        let mut legend_x = ALONE.right - self.series.iter().map(|series| legend_width(&series.name)).sum::<f64>();
        for (index, series) in self.series.iter().enumerate() {
            drawing.series(index % COLOURS.len(), &area, &series.points);
            drawing.mark(index % COLOURS.len(), (legend_x + 8.0, ALONE.top - 16.0));
            drawing.text("start", (legend_x + 18.0, ALONE.top - 12.0), &series.name);
            legend_x += legend_width(&series.name);
        }
        drawing.svg.push_str("</svg>\n");
        drawing.svg
    }

    /// The picture as part of a page ([`super::Page`]), which has title, legend, caption and colours around it: lines without
    /// marks.
    #[must_use]
    pub fn inline_svg(&self, spread: [Spread; 2]) -> String {
        let mut drawing = Drawing { svg: inline_head(INLINE.width, INLINE.bottom + 46.0, &self.title) };
        let area = self.area(INLINE, spread);
        self.draw_axes(&mut drawing, &area);
        for (index, series) in self.series.iter().enumerate() {
            drawing.line(&format!("line {}", line_class(index)), &area, &series.points);
        }
        drawing.svg.push_str("</svg>\n");
        drawing.svg
    }

    fn area(&self, layout: Layout, [x, y]: [Spread; 2]) -> Area {
        let values = |of: fn(&(f64, f64)) -> f64| self.series.iter().flat_map(|series| &series.points).map(of);
        Area { layout, x: Scale::of(x, values(|point| point.0)), y: Scale::of(y, values(|point| point.1)) }
    }

    fn draw_axes(&self, drawing: &mut Drawing, area: &Area) {
        let Layout { left, right, top, bottom, .. } = area.layout;
        drawing.text("middle", (f64::midpoint(left, right), bottom + 40.0), &axis_title(self.x));
        drawing.text("start", (left - 48.0, top - 12.0), &axis_title(self.y));
        for tick in area.x.ticks() {
            let (x, label) = (area.x_at(tick), area.x.label(tick));
            // The last may be wider than the room that is left beside it.
            let half = 3.6 * label.chars().count() as f64;
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

/// How the line of a series is told from others in a page: six colours, and when they are used up broken lines.
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

    fn series(&mut self, class: usize, area: &Area, points: &[(f64, f64)]) {
        self.line(&format!("line s{class}"), area, points);
        for (x, y) in points {
            self.mark(class, area.at(*x, *y));
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
.line{{fill:none;stroke-width:2;stroke-linejoin:round}}
{light}
@media(prefers-color-scheme:dark){{
text{{fill:#ccc}}.title{{fill:#f2f2f2}}.caption{{fill:#aaa}}
.page{{fill:#14171c}}.grid{{stroke:#2c313a}}.axis{{stroke:#8a8f98}}
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
    fn of(spread: Spread, values: impl Iterator<Item = f64>) -> Scale {
        match spread {
            Spread::Even => Scale::to(values.fold(0.0, f64::max)),
            Spread::Nines => Scale { spread, start: 0.0, end: NINES_MAX, step: 1.0 },
            Spread::Decades => {
                let powers = values.filter(|value| *value > 0.0).map(f64::log10);
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
            Spread::Even => value,
            Spread::Decades => value.max(f64::MIN_POSITIVE).log10(),
            Spread::Nines => -(1.0 - value).max(f64::MIN_POSITIVE).log10(),
        };
        ((place - self.start) / (self.end - self.start)).clamp(0.0, 1.0)
    }

    /// Values that are marked.
    fn ticks(&self) -> impl Iterator<Item = f64> + '_ {
        (0..=((self.end - self.start) / self.step).round() as u32).map(|tick| {
            let place = self.start + f64::from(tick) * self.step;
            match self.spread {
                Spread::Even => place,
                Spread::Decades => 10f64.powf(place),
                Spread::Nines => 1.0 - 10f64.powf(-place),
            }
        })
    }

    fn label(&self, value: f64) -> String {
        let decimals = |step: f64| (-step.log10().floor()).max(0.0) as usize;
        match self.spread {
            Spread::Even => format!("{value:.*}", decimals(self.step)),
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
        let axis = |name, unit| Axis { name, unit };
        let caption = vec!["What <the> paper found & why.".to_owned()];
        Plot { name: "p", title: "A \"plot\"".into(), x: axis("time", "s"), y: axis("count", ""), series, caption }
    }

    fn series(name: &str, points: &[(f64, f64)]) -> Series {
        Series { name: name.to_owned(), points: points.to_vec() }
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
        let decades = Scale::of(Spread::Decades, [3.0, 40_000.0].into_iter());
        let labels: Vec<String> = decades.ticks().map(|tick| decades.label(tick)).collect();
        assert_eq!(labels.join(" ").replace('\u{202F}', ""), "1 10 100 1000 10000 100000");
        assert!((decades.share(1000.0) - 0.6).abs() < 1e-9 && decades.share(0.0) == 0.0);
        let nines = Scale::of(Spread::Nines, std::iter::empty());
        let labels: Vec<String> = nines.ticks().map(|tick| nines.label(tick)).collect();
        assert_eq!(labels.join(" "), "0% 90% 99% 99.9% 99.99%");
        assert!((nines.share(0.99) - 0.5).abs() < 1e-9 && nines.share(1.0) == 1.0);
        let none = Scale::of(Spread::Decades, std::iter::empty());
        assert_eq!((none.start, none.end), (0.0, 1.0));
    }

    #[test]
    fn a_picture_in_a_page_has_a_title_for_those_who_do_not_see_it_and_many_kinds_of_lines() {
        let points = [(1.0, 0.0), (100.0, 0.9999)];
        let many = (0..13).map(|index| series(&format!("drive {index}"), &points)).collect();
        let svg = plot(many).inline_svg([Spread::Decades, Spread::Nines]);
        check_well_formed(&svg);
        assert!(svg.contains("<title>A &quot;plot&quot;</title>") && !svg.contains("drive 0"), "{svg}");
        let classes: std::collections::BTreeSet<String> = (0..13).map(line_class).collect();
        assert_eq!(classes.len(), 13);
        assert!(classes.iter().all(|class| svg.contains(&format!("\"line {class}\""))), "{svg}");
    }

    #[test]
    fn a_caption_is_broken_at_blanks() {
        assert_eq!(wrapped("one two three", 7), ["one two", "three"]);
        assert_eq!(wrapped("", 7), [""]);
    }
}
