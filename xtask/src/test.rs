//! `cargo xtask test`: everything that can be tested here, and a list of what could not.
//!
//! Unit tests are built with debug assertions, the `openftl` that system tests start is built for release. A system
//! test that lacks a program, a device or root's rights returns at once and leaves a line in the file that
//! `OPENFTL_LEFT_OUT` names; those lines, and tests marked `#[ignore]`, are the list.

use crate::steps::{Outcome, Steps};
use crate::{fuzz, linux, rocksdb, setup, shell};
use std::io::{BufRead, BufReader};
use std::process::{ExitCode, Stdio};

/// The arguments of `test`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// Whether a test that cannot run here is a failure.
    require_all: bool,
}

impl Options {
    /// Understands the command line.
    pub fn parse(words: &[&str]) -> Result<Options, String> {
        let mut options = Options { require_all: false };
        for word in words {
            match *word {
                "--require-all" => options.require_all = true,
                _ => return Err(format!("`test` does not know `{word}`; it takes --require-all")),
            }
        }
        Ok(options)
    }
}

/// Sets up, builds, tests, and lists what was left out.
pub fn run(options: Options) -> ExitCode {
    let mut steps = Steps::new("test");
    let mut left_out = Vec::new();
    steps.run("set-up", setup::install);
    let has_rocksdb = steps.run("RocksDB", rocksdb::for_tests);
    let built = steps.run("build for release", || Outcome::of(shell::run(&mut shell::cargo(RELEASE))));
    steps.run("tests", || {
        if !built {
            return Outcome::Failed("system tests need the release build".to_owned());
        }
        match tests(has_rocksdb) {
            Ok(result) => {
                left_out = result.left_out;
                Outcome::of(result.passed)
            }
            Err(error) => Outcome::Failed(error),
        }
    });
    // These say how much they tried.
    steps.run("every crash point", || Outcome::of(shell::run(&mut shell::cargo(CRASH_POINTS))));
    steps.run("exploration", || explore(built));
    steps.run("known bugs are found", || Outcome::of(shell::run(&mut shell::cargo(CANARY))));
    steps.run("fuzzing", || match fuzz::short_run() {
        Outcome::LeftOut(reason) => {
            left_out.push(format!("fuzzing: {reason}"));
            Outcome::LeftOut(reason)
        }
        outcome => outcome,
    });
    steps.run("nothing left out", || judge(&left_out, options));
    steps.finish()
}

/// How the command line tool is built for system tests and benches.
pub const RELEASE: [&str; 6] = ["build", "--release", "--package", "openftl", "--features", TLS];

/// What the default build leaves out, because it takes a C compiler and minutes.
pub const TLS: &str = "openftl/tls";

/// Every crash point of small drives, with debug assertions: with the figures, and from the build of all tests.
const CRASH_POINTS: [&str; 8] =
    ["test", "--workspace", "--features", TLS, "--test", "crash_points", "--", "--nocapture"];

/// What the names of those tests begin with, and of no others.
const OF_CRASH_POINTS: &str = "every_crash_point";

/// Drives with known bugs.
const CANARY: [&str; 9] =
    ["test", "--package", "openftl-sim", "--features", "canary", "--test", "canary", "--", "--nocapture"];

/// Histories that are explored besides those of the tests.
const HISTORIES: &str = "6000";

fn explore(built: bool) -> Outcome {
    let target = match shell::target_directory() {
        Ok(target) if built => target,
        Ok(_) => return Outcome::Failed("it needs the release build".to_owned()),
        Err(error) => return Outcome::Failed(error),
    };
    let mut command = std::process::Command::new(target.join("release").join("openftl"));
    Outcome::of(shell::run(command.args(["explore", "--seed", "1000", "--runs", HISTORIES])))
}

struct Tested {
    passed: Result<(), String>,
    left_out: Vec<String>,
}

fn tests(has_rocksdb: bool) -> Result<Tested, String> {
    let target = shell::target_directory()?;
    let notes = target.join("left-out");
    match std::fs::remove_file(&notes) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(format!("cannot remove {}: {error}", notes.display()));
        }
        _ => {}
    }
    let arguments = ["test", "--workspace", "--features", TLS, "--no-fail-fast", "--", "--skip", OF_CRASH_POINTS];
    let mut command = shell::cargo(arguments);
    command.env("OPENFTL_LEFT_OUT", &notes).env("OPENFTL_BINARY", target.join("release").join("openftl"));
    if let Some(kernel) = linux::kernel() {
        command.env(linux::VARIABLE, kernel);
    }
    if has_rocksdb && std::env::var_os(rocksdb::VARIABLE).is_none() {
        command.env(rocksdb::VARIABLE, rocksdb::of_tests(&target));
    }
    println!("$ {}", shell::line(&command));
    let mut child = command.stdout(Stdio::piped()).spawn().map_err(|error| format!("cargo does not start: {error}"))?;
    let mut left_out = Vec::new();
    for line in BufReader::new(child.stdout.take().expect("stdout was asked for")).lines() {
        let line = line.map_err(|error| format!("cannot read what cargo prints: {error}"))?;
        println!("{line}");
        left_out.extend(ignored(&line));
    }
    let status = child.wait().map_err(|error| format!("cannot wait for cargo: {error}"))?;
    match std::fs::read_to_string(&notes) {
        Ok(text) => left_out.extend(text.lines().map(str::to_owned)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(format!("cannot read {}: {error}", notes.display())),
    }
    left_out.sort();
    let passed = if status.success() { Ok(()) } else { Err(format!("cargo test ended with {status}")) };
    Ok(Tested { passed, left_out })
}

/// The name of a test that libtest reports as ignored, with its reason if it has one.
fn ignored(line: &str) -> Option<String> {
    let (name, verdict) = line.strip_prefix("test ")?.rsplit_once(" ... ")?;
    let reason = verdict.strip_prefix("ignored")?.trim_start_matches(',').trim();
    Some(format!("{name}: {}", if reason.is_empty() { "marked #[ignore]" } else { reason }))
}

/// How a system test begins the reason why it is left out, if no package registry has what it needs: that can be asked of
/// nobody (`apps/openftl/tests/system/environment.rs`).
const OPTIONAL: &str = "optional: ";

/// Whether `line`, a name and a reason, says that.
fn is_optional(line: &str) -> bool {
    line.split_once(": ").is_some_and(|(_, reason)| reason.starts_with(OPTIONAL))
}

fn judge(left_out: &[String], options: Options) -> Outcome {
    for line in left_out {
        println!("  left out: {line}");
    }
    let optional = left_out.iter().filter(|line| is_optional(line)).count();
    match left_out.len() {
        0 => Outcome::Done,
        count if options.require_all && count > optional => {
            Outcome::Failed(format!("{} tests could not run here, see above", count - optional))
        }
        count => Outcome::LeftOut(format!("{count} tests could not run here, see above")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file that no program has as a module would never run.
    #[test]
    fn every_file_of_tests_that_are_one_program_is_a_module_of_it() {
        for folder in ["ftl/tests", "media/tests", "host/server/tests"].map(|folder| shell::root().join(folder)) {
            let manifest = std::fs::read_to_string(folder.join("../Cargo.toml")).unwrap();
            let all = std::fs::read_to_string(folder.join("all.rs")).unwrap();
            for file in std::fs::read_dir(folder).unwrap() {
                let name = file.unwrap().file_name().into_string().unwrap();
                let Some(stem) = name.strip_suffix(".rs") else { continue };
                let is_built =
                    all.contains(&format!("mod {stem};")) || manifest.contains(&format!("name = \"{stem}\""));
                assert!(is_built, "{name} is neither a module of all.rs nor a program of its own");
            }
        }
    }

    #[test]
    fn an_ignored_test_counts_as_left_out() {
        let check = |line: &str, found: Option<&str>| assert_eq!(ignored(line).as_deref(), found, "{line}");
        check("test a::b ... ignored, takes an hour", Some("a::b: takes an hour"));
        check("test a::b ... ignored", Some("a::b: marked #[ignore]"));
        check("test src/lib.rs - f (line 3) ... ignored", Some("src/lib.rs - f (line 3): marked #[ignore]"));
        check("test a::ignored ... ok", None);
        check("test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured", None);
    }

    #[test]
    fn a_test_left_out_fails_the_run_only_where_all_are_required() {
        let one = ["x: fio is not installed".to_owned()];
        assert!(matches!(judge(&one, Options { require_all: true }), Outcome::Failed(_)));
        assert!(matches!(judge(&one, Options { require_all: false }), Outcome::LeftOut(_)));
        assert_eq!(judge(&[], Options { require_all: true }), Outcome::Done);
        let optional = "x: optional: no registry has it".to_owned();
        assert!(matches!(judge(std::slice::from_ref(&optional), Options { require_all: true }), Outcome::LeftOut(_)));
        let other = ["x: fio: optional: is missing".to_owned()];
        assert!(
            matches!(judge(&other, Options { require_all: true }), Outcome::Failed(_)),
            "only a reason that begins so"
        );
        let both = [optional, "y: fio is not installed".to_owned()];
        assert!(matches!(judge(&both, Options { require_all: true }), Outcome::Failed(why) if why.starts_with("1 ")));
    }
}
