//! `cargo xtask book`: the pages of `docs` as a book, by mdBook, which `book.toml` sets up.
//!
//! Links of a page are those of the repository, so that they also work where the pages are read as files. mdBook hands every
//! chapter to `cargo xtask book links` ([`prepare`]): `docs/architecture.md` becomes the page that it includes, and a link
//! to a file outside of the book becomes the file's path.

mod links;

use crate::shell;
use crate::steps::{Outcome, Steps};
use links::links as links_of;
use serde_json::Value;
use std::io::{Read, Write};
use std::path::{Component, Path, PathBuf};
use std::process::{Command, ExitCode};

/// The folder of the pages.
const PAGES: &str = "docs";

/// What `book` is asked to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Options {
    /// Make the book.
    Build,
    /// Prepare chapters for mdBook, from standard input to standard output.
    Links,
    /// Answer mdBook, by the exit code, that every output format is supported.
    Supports,
}

impl Options {
    /// Understands the command line.
    pub fn parse(words: &[&str]) -> Result<Options, String> {
        match words {
            [] => Ok(Options::Build),
            ["links"] => Ok(Options::Links),
            ["links", "supports", _] => Ok(Options::Supports),
            _ => Err(format!(
                "`book` does not know `{}`; it takes nothing, or `links` where mdBook asks",
                words.join(" ")
            )),
        }
    }
}

/// Carries out `options`.
pub fn run(options: Options) -> ExitCode {
    match options {
        Options::Build => {
            let mut steps = Steps::new("book");
            steps.run("pages of the book", build);
            steps.finish()
        }
        Options::Links => match prepare_all() {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("cargo xtask book links: {error}");
                ExitCode::FAILURE
            }
        },
        Options::Supports => ExitCode::SUCCESS,
    }
}

fn build() -> Outcome {
    let Some(mdbook) = shell::find("mdbook") else {
        return Outcome::LeftOut("mdbook is not installed (`cargo install mdbook --locked`)".to_owned());
    };
    let target = match shell::target_directory() {
        Ok(target) => target.join("book"),
        Err(error) => return Outcome::Failed(error),
    };
    let mut command = Command::new(mdbook);
    command.arg("build").arg("--dest-dir").arg(&target).arg(shell::root());
    let result = shell::run(command.stdin(std::process::Stdio::null()));
    if result.is_ok() {
        println!("The book begins at {}", target.join("index.html").display());
    }
    Outcome::of(result)
}

/// The chapters that mdBook sends, as they are to be in the book: `[context, book]` comes, and `book` goes back.
fn prepare_all() -> Result<(), String> {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).map_err(|error| format!("cannot read the chapters: {error}"))?;
    let sent: Value = serde_json::from_str(&text).map_err(|error| format!("mdBook sent no JSON: {error}"))?;
    let Value::Array(mut parts) = sent else { return Err("mdBook sent no list".to_owned()) };
    let mut book = parts.pop().ok_or("mdBook sent no book")?;
    prepare_each(&mut book)?;
    let written = std::io::stdout().write_all(book.to_string().as_bytes());
    written.map_err(|error| format!("cannot send the chapters back: {error}"))
}

/// Every chapter below `value`. Chapters have a path and a content in all versions of mdBook.
fn prepare_each(value: &mut Value) -> Result<(), String> {
    match value {
        Value::Array(values) => values.iter_mut().try_for_each(prepare_each),
        Value::Object(fields) => {
            if let (Some(Value::String(path)), Some(Value::String(content))) =
                (fields.get("path"), fields.get("content"))
            {
                let prepared = prepare(Path::new(path), content)?;
                fields.insert("content".to_owned(), Value::String(prepared));
            }
            fields.values_mut().try_for_each(prepare_each)
        }
        _ => Ok(()),
    }
}

/// The chapter at `path` of the book.
fn prepare(path: &Path, content: &str) -> Result<String, String> {
    let chapter = Path::new(PAGES).join(path);
    let (source, page) = match included(content) {
        Some(file) => {
            let source = joined(&chapter, file);
            let read = std::fs::read_to_string(shell::root().join(&source));
            let page = read.map_err(|error| format!("{}: cannot include {file}: {error}", chapter.display()))?;
            (source, page)
        }
        None => (chapter.clone(), content.to_owned()),
    };
    let mut prepared = page.clone();
    // From the end, so that places in front stay as they are.
    for link in links_of(&page).into_iter().rev() {
        let Some((file, heading)) = link.file_and_heading().filter(|(file, _)| !file.is_empty()) else { continue };
        let file = joined(&source, file);
        let heading = heading.map_or(String::new(), |heading| format!("#{heading}"));
        let new = match in_the_book(&file) {
            Some(file) => format!("[{}]({}{heading})", link.text, relative(&chapter, &file)),
            None => {
                let path = format!("`{}`", file.display());
                if link.text == path { path } else { format!("{} ({path})", link.text) }
            }
        };
        prepared.replace_range(link.place, &new);
    }
    Ok(prepared)
}

/// The file of a page that consists of an include alone.
fn included(content: &str) -> Option<&str> {
    content.trim().strip_prefix("{{#include ")?.strip_suffix("}}").filter(|file| !file.contains('\n'))
}

/// Where `file` is in the book, if it is there.
fn in_the_book(file: &Path) -> Option<PathBuf> {
    if file == Path::new("ARCHITECTURE.md") {
        return Some(Path::new(PAGES).join("architecture.md"));
    }
    (file.starts_with(PAGES) && shell::root().join(file).is_file()).then(|| file.to_owned())
}

/// `file` as the page `page` names it, from the root.
fn joined(page: &Path, file: &str) -> PathBuf {
    let mut path = page.parent().unwrap_or(Path::new("")).to_owned();
    for component in Path::new(file).components() {
        match component {
            Component::ParentDir => _ = path.pop(),
            component => path.push(component),
        }
    }
    path
}

/// `file` as the page `page` names it.
fn relative(page: &Path, file: &Path) -> String {
    let folder = page.parent().unwrap_or(Path::new(""));
    let up = folder.ancestors().position(|ancestor| file.starts_with(ancestor)).expect("all paths have the root");
    let common = folder.ancestors().nth(up).expect("it was found");
    let rest = file.strip_prefix(common).expect("it begins with that");
    format!("{}{}", "../".repeat(up), rest.display())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Every page of the project, by its path from the root.
    fn pages() -> BTreeMap<PathBuf, String> {
        let mut folders = vec![shell::root()];
        let mut pages = BTreeMap::new();
        while let Some(folder) = folders.pop() {
            for entry in folder.read_dir().unwrap() {
                let path = entry.unwrap().path();
                let name = path.file_name().unwrap().to_str().unwrap();
                if path.is_dir() && !name.starts_with('.') && name != "target" {
                    folders.push(path);
                } else if name.ends_with(".md") {
                    let text = std::fs::read_to_string(&path).unwrap();
                    pages.insert(path.strip_prefix(shell::root()).unwrap().to_owned(), text);
                }
            }
        }
        pages
    }

    #[test]
    fn every_link_leads_somewhere() {
        let pages = pages();
        let mut wrong = Vec::new();
        for (page, text) in &pages {
            if let Some(file) = included(text) {
                assert!(pages.contains_key(&joined(page, file)), "{}: there is no {file}", page.display());
            }
            for link in links_of(text) {
                let Some((file, heading)) = link.file_and_heading() else { continue };
                let file = if file.is_empty() { page.clone() } else { joined(page, file) };
                let has_heading = |heading| {
                    pages.get(&file).is_some_and(|page| links::headings(page).iter().any(|name| name == heading))
                };
                if !shell::root().join(&file).exists() || !heading.is_none_or(has_heading) {
                    wrong.push(format!("{}: [{}]({})", page.display(), link.text, link.target));
                }
            }
        }
        assert_eq!(wrong, Vec::<String>::new(), "no such file, or no such heading in it");
    }

    #[test]
    fn the_table_of_contents_names_every_page_once() {
        let pages = pages();
        let summary = Path::new("docs/SUMMARY.md");
        let mut named: Vec<PathBuf> =
            links_of(&pages[summary]).iter().map(|link| joined(summary, link.target)).collect();
        named.sort();
        let all: Vec<PathBuf> = pages.into_keys().filter(|page| page.starts_with(PAGES) && page != summary).collect();
        assert_eq!(named, all);
    }

    #[test]
    fn links_of_a_chapter_stay_in_the_book_or_become_paths() {
        let check = |path: &str, content: &str, expected: &str| {
            assert_eq!(prepare(Path::new(path), content).unwrap(), expected, "{path}");
        };
        check(
            "GUIDE.md",
            "[a](guide/drive.md#b) [c](#d) [e](https://f)",
            "[a](guide/drive.md#b) [c](#d) [e](https://f)",
        );
        check("guide/drive.md", "[a](../STYLE.md) [b](serve.md)", "[a](../STYLE.md) [b](serve.md)");
        check("guide/drive.md", "[a](../../ARCHITECTURE.md#room)", "[a](../architecture.md#room)");
        check(
            "STYLE.md",
            "[a](../xtask) [`xtask/linux/config`](../xtask/linux/config)",
            "a (`xtask`) `xtask/linux/config`",
        );
    }

    #[test]
    fn the_architecture_is_a_chapter_with_links_into_the_book() {
        let chapter = prepare(Path::new("architecture.md"), "{{#include ../ARCHITECTURE.md}}\n").unwrap();
        assert!(chapter.contains("(GLOSSARY.md)") && !chapter.contains("(docs/"), "{chapter}");
        assert!(prepare(Path::new("architecture.md"), "{{#include ../NONE.md}}").is_err());
    }

    #[test]
    fn every_chapter_of_what_mdbook_sends_is_prepared() {
        let chapter = |path: &str, content: &str| serde_json::json!({"Chapter": {"path": path, "content": content}});
        let mut book = serde_json::json!({"items": [chapter("a.md", "[x](../xtask)"), {"PartTitle": "b"}]});
        prepare_each(&mut book).unwrap();
        assert_eq!(book, serde_json::json!({"items": [chapter("a.md", "x (`xtask`)"), {"PartTitle": "b"}]}));
    }
}
