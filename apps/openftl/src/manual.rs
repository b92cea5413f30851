//! `openftl man`: the manual, a page for each command. What a page says is what `--help` says.

use crate::cli::{self, Cli};
use crate::failure::Failure;
use crate::provenance;
use crate::result_file;
use crate::terminal::say;
use clap::{Command, CommandFactory};
use clap_mangen::Man;
use roff::{Roff, roman};
use std::fs::create_dir_all;

/// What a page begins with: an apostrophe is one, however it is printed.
const PREAMBLE: &str = ".ie \\n(.g .ds Aq \\(aq\n.el .ds Aq '\n";

/// The section of programs.
const SECTION: &str = "1";

pub fn run(arguments: &cli::Man) -> Result<(), Failure> {
    let folder = &arguments.folder;
    create_dir_all(folder).map_err(|error| {
        Failure::bad_input(format_args!("{}: {error}", folder.display())).fix("name a folder that can be written")
    })?;
    let pages = pages()?;
    for (name, text) in &pages {
        result_file::write(&folder.join(name), text)?;
    }
    say(&format!("{} pages in {}; read one with: man -l {}/openftl.1", pages.len(), folder.display(), folder.display()))
}

/// Each page: its file name and its text.
fn pages() -> Result<Vec<(String, String)>, Failure> {
    // Each command has --help, and the pages list all commands.
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    let mut pages = Vec::new();
    add(&command, None, &mut pages).map_err(Failure::failed)?;
    Ok(pages)
}

fn add(command: &Command, parent: Option<&str>, pages: &mut Vec<(String, String)>) -> std::io::Result<()> {
    let name = command.get_display_name().unwrap_or(command.get_name()).to_owned();
    let man = Man::new(command.clone())
        .title(name.to_uppercase())
        .section(SECTION)
        .date(env!("OPENFTL_DATE"))
        .source(format!("OpenFTL {}", provenance::VERSION))
        .manual("OpenFTL");
    let mut text = Vec::new();
    man.render_title(&mut text)?;
    man.render_name_section(&mut text)?;
    man.render_synopsis_section(&mut text)?;
    man.render_description_section(&mut text)?;
    man.render_options_section(&mut text)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut text)?;
    }
    if let Some(after) = command.get_after_long_help().or_else(|| command.get_after_help()) {
        examples(&after.to_string()).to_writer(&mut text)?;
    }
    if let Some(parent) = parent {
        let mut also = Roff::new();
        also.control("SH", ["SEE ALSO"]).text([roman(format!("{parent}({SECTION})"))]);
        also.to_writer(&mut text)?;
    }
    let text = String::from_utf8(text).expect("the pages are made of text");
    // Before the values of a flag stand an empty line and two breaks around it, of which some programs complain.
    let text = text.replace("\n.br\n\n.br\n", "\n.sp\n");
    // Each section was written as if it were a page.
    let text = format!("{PREAMBLE}{}", text.replace(PREAMBLE, ""));
    pages.push((format!("{name}.{SECTION}"), text));
    command
        .get_subcommands()
        .filter(|command| !command.is_hide_set())
        .try_for_each(|command| add(command, Some(&name), pages))
}

/// What stands below the options: lines that are indented are lines of their own, others are paragraphs.
fn examples(text: &str) -> Roff {
    let mut page = Roff::new();
    let mut is_literal = false;
    page.control("SH", ["EXAMPLES"]);
    // The heading says so.
    let text = text.strip_prefix("Examples:\n").unwrap_or(text);
    for line in text.lines() {
        let literal = line.strip_prefix("  ");
        match (is_literal, literal.is_some()) {
            (false, true) => _ = page.control("nf", []),
            (true, false) => _ = page.control("fi", []),
            _ => {}
        }
        is_literal = literal.is_some();
        match literal.unwrap_or(line) {
            "" => _ = page.control("PP", []),
            line => _ = page.text([roman(line)]),
        }
    }
    if is_literal {
        page.control("fi", []);
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_has_a_page_that_its_parent_names() {
        let pages = pages().unwrap();
        let names: Vec<&str> = pages.iter().map(|(name, _)| name.as_str()).collect();
        for name in ["openftl.1", "openftl-serve.1", "openftl-nvme.1", "openftl-nvme-gen-key.1", "openftl-ctl-wear.1"] {
            assert!(names.contains(&name), "{name}: {names:?}");
        }
        let (_, root) = &pages[0];
        assert!(root.contains(r"openftl\-serve(1)"), "{root}");
        assert_eq!(root.matches(PREAMBLE).count(), 1, "{root}");
        assert!(root.starts_with(&format!("{PREAMBLE}.TH OPENFTL 1 ")), "{root}");
    }

    #[test]
    fn examples_stand_line_by_line_and_remarks_as_paragraphs() {
        let text = examples("Examples:\n  openftl a\n  openftl b -c\n\nIt ends\nhere.").to_roff();
        assert_eq!(text, ".SH EXAMPLES\n.nf\nopenftl a\nopenftl b \\-c\n.fi\n.PP\nIt ends\nhere.\n");
    }
}
