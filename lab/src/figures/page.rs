//! A page of pictures and tables in one HTML file, which asks nobody for anything: no script, no font, no image.
//!
//! ```text
//!   title                                  light or dark as the reader likes,
//!   lead                                   two columns where there is room, one on a phone
//!   key: what the colours mean
//!   ┌ section ──────┐ ┌ section ──────┐
//!   │ picture       │ │ picture       │
//!   │ caption       │ │ caption       │
//!   └───────────────┘ └───────────────┘
//!   tables with all figures
//! ```

use super::plot::{escaped, line_class, rules};
use super::{Cell, Table};
use std::fmt::Write;

/// A page.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Page {
    /// What it is about.
    pub title: String,
    /// What one has to know first.
    pub lead: Vec<String>,
    /// What was found.
    pub statements: Vec<Statement>,
    /// Names of the series of all plots, in their order; nothing where each picture has its own.
    pub series: Vec<String>,
    /// The pictures.
    pub sections: Vec<Section>,
    /// The numbers.
    pub tables: Vec<Table>,
    /// What stands at the end.
    pub foot: String,
}

/// A picture with words around it.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Section {
    /// What is to be seen.
    pub title: String,
    /// What the colours mean, where they are not those of the series: class and name.
    pub key: Vec<(String, String)>,
    /// Pictures, each perhaps with a title of its own: SVG.
    pub pictures: Vec<(String, String)>,
    /// How to read it.
    pub caption: String,
}

/// Something that was found.
#[derive(Clone, PartialEq, Debug)]
pub struct Statement {
    /// Whether that is as it was expected, or why not.
    pub tone: Tone,
    /// The verdict.
    pub verdict: String,
    /// What it is about.
    pub claim: String,
    /// What it rests on: a name and a sentence.
    pub grounds: Vec<(&'static str, String)>,
}

/// How a statement looks. Its words say the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tone {
    /// As expected.
    Good,
    /// In part.
    Fair,
    /// Not as expected.
    Bad,
}

impl Tone {
    fn class(self) -> &'static str {
        match self {
            Tone::Good => "good",
            Tone::Fair => "fair",
            Tone::Bad => "bad",
        }
    }
}

/// Classes of the parts of bars: how they look on a light page, and on a dark one. No line has these colours.
const PART_COLOURS: [(&str, &str, &str); 8] = [
    ("p0", "#4f6d7a", "#8fb3c2"),
    ("p1", "#c2185b", "#ff6f9f"),
    ("p2", "#6a4fb3", "#b39cf0"),
    ("p3", "#a9927d", "#cdb8a3"),
    ("p4", "#2e2e2e", "#f0f0f0"),
    ("p5", "#c9cdd3", "#474d57"),
    ("p6", "#5d8a3a", "#a9d486"),
    ("p7", "#b8860b", "#e3b94d"),
];

/// Classes of a map of chunks beside those of plots: how they look on a light page, and on a dark one. The more of a chunk is
/// valid, the stronger it stands out; what is no data has another colour and is rare.
const CHUNK_COLOURS: [(&str, &str, &str); 11] = [
    ("c-free", "#e9ebee", "#262b33"),
    ("c-v0", "#cfe3f2", "#1f3a4d"),
    ("c-v1", "#9cc8e6", "#2a5b7c"),
    ("c-v2", "#5ba3d3", "#3a81b0"),
    ("c-v3", "#1f78b4", "#66b1e0"),
    ("c-v4", "#0b4a78", "#b5dcf7"),
    ("c-open", "#007a5a", "#3ecf9e"),
    ("c-collected", "#d55e00", "#ff9a4d"),
    ("c-metadata", "#a5478b", "#e7a6cd"),
    ("c-superblock", "#8a6d00", "#e6c84a"),
    ("c-bad", "#111111", "#ffffff"),
];

impl Page {
    /// The file.
    #[must_use]
    pub fn html(&self) -> String {
        let title = escaped(&self.title);
        let mut html = format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta name=\"color-scheme\" content=\"light dark\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
             <title>{title}</title>\n<style>\n{}{}{}</style>\n</head>\n<body>\n<main>\n<h1>{title}</h1>\n",
            rules(),
            fill_rules(),
            STYLE
        );
        for sentence in &self.lead {
            _ = writeln!(html, "<p>{}</p>", escaped(sentence));
        }
        self.statements.iter().for_each(|statement| statement.write(&mut html));
        if !self.series.is_empty() {
            self.write_series(&mut html);
        }
        html.push_str("<div class=\"sections\">\n");
        self.sections.iter().for_each(|section| section.write(&mut html));
        html.push_str("</div>\n");
        self.tables.iter().for_each(|table| write_table(&mut html, table));
        _ = writeln!(html, "<footer>{}</footer>\n</main>\n</body>\n</html>", escaped(&self.foot));
        html
    }

    fn write_series(&self, html: &mut String) {
        html.push_str("<ul class=\"key\" aria-label=\"Colours of the drives\">\n");
        for (index, name) in self.series.iter().enumerate() {
            let class = line_class(index);
            let line = format!(
                r#"<svg class="swatch" viewBox="0 0 28 12" aria-hidden="true"><path class="line {class}" d="M0 6H28"/></svg>"#
            );
            _ = writeln!(html, "<li>{line}{}</li>", escaped(name));
        }
        html.push_str("</ul>\n");
    }
}

impl Statement {
    fn write(&self, html: &mut String) {
        let (class, verdict, claim) = (self.tone.class(), escaped(&self.verdict), escaped(&self.claim));
        _ = writeln!(html, "<article class=\"{class}\">\n<p><strong>{verdict}</strong>: {claim}</p>\n<dl>");
        for (name, sentence) in &self.grounds {
            _ = writeln!(html, "<dt>{}</dt><dd>{}</dd>", escaped(name), escaped(sentence));
        }
        html.push_str("</dl>\n</article>\n");
    }
}

impl Section {
    fn write(&self, html: &mut String) {
        let is_many = self.pictures.len() > 1;
        // Side by side over all of the page, so that their letters can be read.
        let class = if is_many { " class=\"wide\"" } else { "" };
        _ = writeln!(html, "<section{class}>\n<h2>{}</h2>", escaped(&self.title));
        if !self.key.is_empty() {
            html.push_str("<ul class=\"key\">\n");
            for (class, name) in &self.key {
                let square = format!(
                    r#"<svg class="swatch" viewBox="0 0 12 12" aria-hidden="true"><rect class="{class}" width="12" height="12"/></svg>"#
                );
                _ = writeln!(html, "<li>{square}{}</li>", escaped(name));
            }
            html.push_str("</ul>\n");
        }
        if is_many {
            html.push_str("<div class=\"multiples\">\n");
        }
        for (title, svg) in &self.pictures {
            html.push_str("<figure>\n");
            if !title.is_empty() {
                _ = writeln!(html, "<figcaption>{}</figcaption>", escaped(title));
            }
            html.push_str(svg);
            html.push_str("</figure>\n");
        }
        if is_many {
            html.push_str("</div>\n");
        }
        _ = writeln!(html, "<p class=\"small\">{}</p>\n</section>", escaped(&self.caption));
    }
}

/// A table that can be scrolled sideways by itself, also with keys.
fn write_table(html: &mut String, table: &Table) {
    let name = escaped(table.name);
    _ = writeln!(
        html,
        "<h2>{name}</h2>\n<div class=\"table\" role=\"region\" tabindex=\"0\" aria-label=\"{name}\">\n<table>"
    );
    html.push_str("<thead><tr>");
    for (index, column) in table.columns.iter().enumerate() {
        let is_word = table.rows.iter().any(|row| matches!(row[index], Cell::Text(_)));
        let class = if is_word { " class=\"word\"" } else { "" };
        let unit = match column.unit {
            "" => String::new(),
            unit => format!(" <span class=\"unit\">{}</span>", escaped(unit)),
        };
        _ = write!(html, "<th scope=\"col\"{class}>{}{unit}</th>", escaped(column.name));
    }
    html.push_str("</tr></thead>\n<tbody>\n");
    for row in &table.rows {
        html.push_str("<tr>");
        for (index, cell) in row.iter().enumerate() {
            let text = escaped(&readable(cell));
            _ = match (index, cell) {
                (0, _) => write!(html, "<th scope=\"row\">{text}</th>"),
                (_, Cell::Text(_)) => write!(html, "<td class=\"word\">{text}</td>"),
                _ => write!(html, "<td>{text}</td>"),
            };
        }
        html.push_str("</tr>\n");
    }
    html.push_str("</tbody>\n</table>\n</div>\n");
}

/// A cell, with thousands set apart.
fn readable(cell: &Cell) -> String {
    let text = cell.to_string();
    let (whole, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
    match (cell, whole.parse()) {
        (Cell::Count(_) | Cell::Number(..), Ok(whole)) => format!("{}{rest}", crate::picture::thousands(whole)),
        _ => text,
    }
}

fn fill_rules() -> String {
    let rules = |colour: fn(&(&'static str, &'static str, &'static str)) -> &'static str| {
        let entries = PART_COLOURS.iter().chain(&CHUNK_COLOURS);
        entries.map(|entry| format!(".{}{{fill:{}}}", entry.0, colour(entry))).collect::<String>()
    };
    let (light, dark) = (rules(|entry| entry.1), rules(|entry| entry.2));
    format!("{light}\n@media(prefers-color-scheme:dark){{{dark}}}\n")
}

const STYLE: &str = r#"*{box-sizing:border-box}
body{margin:0;background:#fff;color:#222;font:16px/1.5 system-ui,"Segoe UI","DejaVu Sans",sans-serif}
main{max-width:1160px;margin:0 auto;padding:1rem clamp(.75rem,3vw,2rem) 2rem}
h1{font-size:1.5rem;line-height:1.25;margin:.5rem 0;overflow-wrap:anywhere}
h2{font-size:1.1rem;margin:1.25rem 0 .25rem}
article{border-left:.25rem solid #777;padding:0 0 0 .75rem;margin:.75rem 0;max-width:52rem}
article.good{border-color:#007a5a}article.fair{border-color:#8a6d00}article.bad{border-color:#c0392b}
dl{display:grid;grid-template-columns:max-content 1fr;gap:0 .75rem;margin:.125rem 0;font-size:.875rem}
dt{color:#555}dd{margin:0;min-width:0;overflow-wrap:anywhere}
p{margin:.25rem 0;overflow-wrap:anywhere}
.small,footer,.unit{font-size:.875rem;color:#555}
.unit{font-weight:400}
footer{margin-top:2rem;overflow-wrap:anywhere}
.sections{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,420px),1fr));gap:0 2.5rem}
section{min-width:0}.wide{grid-column:1/-1}
.multiples{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,340px),1fr));gap:0 1rem}
figure{margin:.25rem 0 .5rem}
figcaption{font-size:.875rem;overflow-wrap:anywhere}
svg{display:block;width:100%;height:auto;overflow:visible}
.key{display:flex;flex-wrap:wrap;gap:.125rem 1rem;list-style:none;padding:0;margin:.5rem 0;font-size:.875rem}
.key li{display:flex;align-items:center;gap:.4rem;min-width:0;overflow-wrap:anywhere}
.swatch{flex:none;width:auto;height:.75rem}
.table{overflow-x:auto}
table{border-collapse:collapse;font-size:.875rem;font-variant-numeric:tabular-nums}
th,td{padding:.25rem .75rem .25rem 0;text-align:right;white-space:nowrap;border-bottom:1px solid #ddd}
th:first-child,.word{text-align:left}
thead th{vertical-align:bottom}
tbody th{white-space:normal;overflow-wrap:anywhere;min-width:9rem;max-width:18rem}
@media(max-width:30rem){text{font-size:15.5px}tbody th{min-width:7rem;max-width:9rem}}
@media(prefers-color-scheme:dark){
body{background:#14171c;color:#ddd}
.small,footer,.unit,dt{color:#aaa}
article.good{border-color:#3ecf9e}article.fair{border-color:#e6c84a}article.bad{border-color:#ff7b6b}
th,td{border-color:#343a44}
}
"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_the_page_is_elsewhere_and_what_is_shown_is_escaped() {
        let mut table = Table::new("figures", &[("drive", ""), ("WAF", "blocks"), ("told", ""), ("rate", "")]);
        let told = Cell::Text("none".into());
        table.row(vec![Cell::Text("<a>".into()), Cell::Count(12_345), told, Cell::Number(6_789.25, 1)]);
        let section = Section {
            title: "Throughput & more".to_owned(),
            key: vec![("c-v0".to_owned(), "a quarter".to_owned())],
            pictures: vec![("one".to_owned(), "<svg></svg>\n".to_owned())],
            caption: "How to <read> it.".to_owned(),
        };
        let page = Page {
            title: "A \"page\"".to_owned(),
            lead: vec!["First.".to_owned()],
            statements: vec![Statement {
                tone: Tone::Fair,
                verdict: "direction <only>".to_owned(),
                claim: "more & more".to_owned(),
                grounds: vec![("paper", "1 > 0".to_owned())],
            }],
            series: vec!["<a>".to_owned()],
            sections: vec![section],
            tables: vec![table],
            foot: "End.".to_owned(),
        };
        let html = page.html();
        for words in [
            "A &quot;page&quot;",
            "<article class=\"fair\">\n<p><strong>direction &lt;only&gt;</strong>: more &amp; more</p>",
            "<dt>paper</dt><dd>1 &gt; 0</dd>",
            "Throughput &amp; more",
            "&lt;a&gt;",
            "How to &lt;read&gt; it.",
            "12\u{202F}345",
            "6\u{202F}789.2",
        ] {
            assert!(html.contains(words), "{words}: {html}");
        }
        for words in ["http:", "https:", "src=", "href=", "url(", "@import", "<script", "<a>"] {
            assert!(!html.contains(words), "{words}: {html}");
        }
        for tag in
            ["section", "article", "dl", "dt", "dd", "table", "figure", "ul", "li", "main", "div", "svg", "style", "h2"]
        {
            let opened = html.matches(&format!("<{tag}>")).count() + html.matches(&format!("<{tag} ")).count();
            assert_eq!(opened, html.matches(&format!("</{tag}>")).count(), "{tag}: {html}");
        }
    }
}
