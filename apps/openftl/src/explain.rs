//! `openftl explain`: what a word means that an output or a document has. The glossary of the documents is the source.

use crate::cli;
use crate::failure::Failure;
use crate::terminal::{Ink, Palette, say};
use openftl_lab::likeness::nearest;
use std::fmt::Write;

const GLOSSARY: &str = include_str!("../../../docs/GLOSSARY.md");

/// A row of the glossary.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Entry {
    /// The word, and others for the same.
    names: Vec<String>,
    meaning: String,
}

pub fn run(arguments: &cli::Explain) -> Result<(), Failure> {
    let palette = Palette::of_stdout();
    if arguments.term.is_empty() {
        return say(&list(palette));
    }
    let term = arguments.term.join(" ");
    let found: Vec<Entry> = entries().into_iter().filter(|entry| entry.is(&term)).collect();
    if found.is_empty() {
        let failure = Failure::bad_input(format_args!("`{term}` is no word of the glossary"));
        let all = entries();
        let names = all.iter().flat_map(|entry| &entry.names).map(String::as_str);
        return Err(match nearest(&term, names) {
            Some(name) => failure.fix(format_args!("did you mean `{name}`? `openftl explain` lists all")),
            None => failure.fix("`openftl explain` lists all"),
        });
    }
    let mut text = String::new();
    for Entry { names, meaning } in found {
        _ = writeln!(text, "{}: {meaning}", palette.paint(Ink::Bold, &names.join(", ")));
    }
    say(&text)
}

fn list(palette: Palette) -> String {
    let mut text = String::new();
    let mut entries = entries();
    entries.sort_by_key(|entry| entry.names[0].to_lowercase());
    for Entry { names, meaning } in entries {
        _ = writeln!(text, "{}: {meaning}", palette.paint(Ink::Bold, &names.join(", ")));
    }
    text
}

impl Entry {
    fn is(&self, term: &str) -> bool {
        self.names.iter().any(|name| name.eq_ignore_ascii_case(term))
    }
}

/// Rows of the glossary's tables: `| **word**, other (SHORT) | meaning |`.
fn entries() -> Vec<Entry> {
    GLOSSARY.lines().filter_map(entry).collect()
}

fn entry(line: &str) -> Option<Entry> {
    let (words, meaning) = line.strip_prefix("| **")?.strip_suffix(" |")?.split_once(" | ")?;
    let words = words.replace('*', "");
    let names = words.split([',', '(', ')']).map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned);
    // What is set apart in a document is plain in a terminal.
    let meaning = meaning.replace("**", "").replace(['*', '`'], "");
    Some(Entry { names: names.collect(), meaning: without_links(&meaning) })
}

/// `[text](address)` as `text`.
fn without_links(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, link)) = rest.split_once('[') {
        plain.push_str(before);
        match link.split_once("](").and_then(|(name, after)| Some((name, after.split_once(')')?.1))) {
            Some((name, after)) => {
                plain.push_str(name);
                rest = after;
            }
            None => {
                plain.push('[');
                rest = link;
            }
        }
    }
    plain + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_found_by_each_of_its_names_and_a_near_one_is_suggested() {
        for term in ["WAF", "waf", "L2P", "mapping", "PU", "parallel unit"] {
            assert!(entries().iter().any(|entry| entry.is(term)), "{term}");
        }
        let explain = |term: &str| run(&cli::Explain { term: vec![term.to_owned()] }).unwrap_err().to_string();
        assert!(explain("paralel unit").contains("did you mean `parallel unit`?"));
        assert!(!explain("xyzzy").contains("did you mean"));
    }

    #[test]
    fn a_row_is_plain_text_in_a_terminal() {
        let row = "| **chunk**, *old* (CH) | What `reset` frees: see [the map](map.md) and **more**. |";
        let Entry { names, meaning } = entry(row).unwrap();
        assert_eq!(names, ["chunk", "old", "CH"]);
        assert_eq!(meaning, "What reset frees: see the map and more.");
        assert_eq!(entry("| word | meaning |"), None);
    }

    #[test]
    fn no_word_is_defined_twice() {
        let names = entries().into_iter().flat_map(|entry| entry.names);
        let mut names: Vec<String> = names.map(|name| name.to_ascii_lowercase()).collect();
        names.sort();
        let twice: Vec<&[String]> = names.windows(2).filter(|pair| pair[0] == pair[1]).collect();
        assert!(twice.is_empty(), "{twice:?}");
    }

    /// Every figure that a table, a CSV or a page names.
    #[test]
    fn every_word_of_a_report_is_explained() {
        let all = entries();
        let columns = crate::metrics::columns(&crate::metrics::GROUPS).map(|(name, _)| match name.split_once(' ') {
            Some(("read" | "write", _)) => "latency",
            Some(("erases", _)) => "erases",
            _ => name,
        });
        let unexplained: Vec<&str> = columns.filter(|name| !all.iter().any(|entry| entry.is(name))).collect();
        assert_eq!(unexplained, Vec::<&str>::new());
    }
}
