//! The command line: `openftl demo`, `create`, `serve`, `nvme`, `ctl`, `bench`, `compare`, `sweep`, `inspect`, `check`,
//! `files`, `pages`, `kv`, `alfs`, `profiles`, `reproduce`, `explore`, `explain`, `completions`, `man`.
//!
//! `alfs`, `explore`, `files` and `reproduce` are programs of their own (`apps/`), which `openftl` becomes: what only they need is not built for the others.
//!
//! Exit codes: 0 it worked; 1 it failed, or the drive is unsound; 2 something in the command or its files is wrong.

mod assembly;
mod bench;
mod beside;
mod check;
mod chunk_map;
#[expect(missing_docs, reason = "a comment there is a text of --help")]
pub mod cli;
pub mod companion;
mod compare;
mod completions;
mod contender;
mod control;
mod create;
pub mod crew;
mod ctl;
mod demo;
mod drive_events;
mod explain;
mod figures;
mod host_access;
mod inspect;
mod kv;
mod log;
mod manual;
mod measure;
pub mod memory;
mod metrics;
mod namespaces;
mod notify;
mod nvme;
mod object_settings;
mod pages;
mod passed;
mod power;
mod profiles;
pub mod provenance;
mod ready;
mod report;
pub mod result_file;
mod serve;
mod serve_tables;
mod settings;
mod sweep;
pub mod terminal;
mod totals;
mod trial;
mod waiting;
mod zone_settings;
mod zones_made;

use cli::{Cli, Command};
use failure::Failure;
pub use openftl_drive::failure;
use openftl_drive::small_file;
use provenance::Provenance;
use std::io::Write;
use std::process::ExitCode;

/// The command that the process was called with, to its end.
pub fn run() -> ExitCode {
    ended(|| match Cli::understood().command {
        Command::Demo(arguments) => demo::run(&arguments),
        Command::Create(arguments) => create::run(&arguments),
        Command::Serve(arguments) => serve::run(&arguments),
        Command::Nvme(arguments) => nvme::run(&arguments),
        Command::Ctl(arguments) => ctl::run(&arguments),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Compare(arguments) => compare::run(&arguments),
        Command::Sweep(arguments) => sweep::run(&arguments),
        Command::Inspect(arguments) => inspect::run(&arguments),
        Command::Check(arguments) => check::run(&arguments),
        Command::Pages(arguments) => pages::run(&arguments),
        Command::Kv(arguments) => kv::run(&arguments),
        Command::Profiles(arguments) => profiles::run(&arguments),
        Command::Explain(arguments) => explain::run(&arguments),
        Command::Completions(arguments) => completions::run(&arguments),
        Command::Man(arguments) => manual::run(&arguments),
        Command::Alfs(_) => beside::go_on_as("alfs"),
        Command::Files(_) => beside::go_on_as("files"),
        Command::Reproduce(_) => beside::go_on_as("reproduce"),
        Command::Explore(_) => beside::go_on_as("explore"),
    })
}

/// The one command of a program beside `openftl`, to its end: `own` runs it, and has nothing for others.
pub fn run_one(name: &str, own: impl FnOnce(&Command) -> Option<Result<(), Failure>>) -> ExitCode {
    ended(|| {
        beside::check_version(name)?;
        own(&Cli::understood().command).unwrap_or_else(|| Err(beside::is_another(name)))
    })
}

fn ended(run: impl FnOnce() -> Result<(), Failure>) -> ExitCode {
    let _last_words = log::LastWords;
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !log::take_failure(&failure) {
                _ = writeln!(std::io::stderr(), "{failure}");
            }
            failure.exit_code()
        }
    }
}

/// `value` as JSON on several lines; an object also says what made it.
///
/// # Errors
/// If it cannot be written as JSON.
pub fn json(value: &dyn erased_serde::Serialize) -> Result<String, Failure> {
    // Not generic: this and all that it takes is compiled once, not for every report.
    #[derive(serde::Serialize)]
    struct Made<'a> {
        #[serde(flatten)]
        value: &'a dyn erased_serde::Serialize,
        made_by: Provenance,
    }
    let result = Made { value, made_by: Provenance::of_this_run() };
    // A list has no room for it.
    serde_json::to_string_pretty(&result).or_else(|_| serde_json::to_string_pretty(value)).map_err(Failure::failed)
}
