//! `cargo xtask test`: everything that can be tested here, and a list of what could not.
//!
//! All of it but the fuzz targets comes from one build, with debug assertions: unit tests, model tests, and the `openftl` and
//! the plugin that system tests start. A system test that lacks a program, a device or root's rights returns at once and
//! leaves a line in the file that `OPENFTL_LEFT_OUT` names; those lines, and tests marked `#[ignore]`, are the list.
//! `--quick` leaves out whatever needs a program that is not ours, and what tries many states.

mod programs;

use crate::steps::{Outcome, Steps};
use crate::{fuzz, linux, rocksdb, setup, shell, zbd};
pub use programs::Job;
use programs::{Program, Selection, Tally};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// The arguments of `test`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// Whether a test that cannot run here is a failure.
    require_all: bool,
    /// Only what is soon done.
    quick: bool,
}

impl Options {
    /// Understands the command line.
    pub fn parse(words: &[&str]) -> Result<Options, String> {
        let mut options = Options { require_all: false, quick: false };
        for word in words {
            match *word {
                "--require-all" => options.require_all = true,
                "--quick" => options.quick = true,
                _ => return Err(format!("`test` does not know `{word}`; it takes --quick or --require-all")),
            }
        }
        match options {
            Options { require_all: true, quick: true } => {
                Err("--quick leaves tests out, and --require-all forbids that: leave one of them away".to_owned())
            }
            options => Ok(options),
        }
    }
}

/// A part of the run, with how many minutes it takes on two idle cores, from a fresh clone.
struct Part {
    name: &'static str,
    minutes: f64,
    /// The same with `--quick`, if that has it.
    quick: Option<f64>,
    what: &'static str,
}

const SET_UP: Part = Part { name: "set-up", minutes: 0.2, quick: None, what: "Debian packages with clients" };
const BUILD: Part = Part { name: "build", minutes: 4.3, quick: Some(2.2), what: "all test programs, openftl" };
const ROCKSDB: Part = Part { name: "RocksDB", minutes: 0.5, quick: None, what: "the plugin, db_stress" };
const ZBD: Part = Part { name: "fio's tests", minutes: 0.1, quick: None, what: "its scripts for zoned drives" };
const TESTS: Part =
    Part { name: "tests", minutes: 10.8, quick: Some(0.7), what: "unit, model and system tests, and beside them:" };
/// What runs beside the tests, in the order of its length.
const BESIDE: [(&str, &str); 4] = [
    ("every crash point", "small drives, all states"),
    ("fuzzing", "half a minute over all parsers"),
    ("exploration", "histories of faults and power cuts"),
    ("known bugs are found", "drives with bugs built in"),
];
const PLAN: [&Part; 5] = [&SET_UP, &BUILD, &ROCKSDB, &ZBD, &TESTS];

/// Prints what is about to happen.
fn tell_plan(options: Options) {
    println!(
        "What is run here, with minutes on two idle cores from a fresh clone (slow ones take up to three times as long):"
    );
    let mut total = 0.0;
    for part in PLAN {
        let minutes = if options.quick { part.quick } else { Some(part.minutes) };
        total += minutes.unwrap_or(0.0);
        let (time, note) = minutes.map_or(("-".to_owned(), "; not with --quick"), |time| (format!("{time:.1}"), ""));
        println!("  {:22} {time:>5}   {}{note}", part.name, part.what);
    }
    for (name, what) in BESIDE {
        println!("    {name:20} {:5}   {what}{}", "", if options.quick { "; not with --quick" } else { "" });
    }
    println!("  {:22} {total:>5.1}", "in all");
    if options.quick {
        println!("  Tests that start openftl, connect hosts by the hundred or run experiments are left out as well.");
    }
}

/// Sets up, builds, tests, and lists what was left out.
pub fn run(options: Options) -> ExitCode {
    tell_plan(options);
    let target = match shell::target_directory() {
        Ok(target) => target,
        Err(error) => {
            eprintln!("cargo xtask test: {error}");
            return ExitCode::FAILURE;
        }
    };
    let run = Run { steps: Steps::new("test"), target, tally: Tally::default(), left_out: Vec::new() };
    if options.quick { run.quick() } else { run.all(options) }
}

/// A run as it goes.
struct Run {
    steps: Steps,
    target: PathBuf,
    tally: Tally,
    left_out: Vec<String>,
}

/// What the default build leaves out, because it takes a C compiler and minutes.
pub const TLS: &str = "openftl/tls";

/// All that tests are built with: TLS, and bugs that a simulation may choose. One build has both.
pub const FEATURES: &str = "openftl/tls,openftl-sim/canary";

/// How the command line tool and the commands beside it are built for measurements.
pub const RELEASE: [&str; 4] = ["build", "--release", "--features", TLS];

/// Packages whose tests need no minutes and no programs.
const QUICK: [&str; 15] = [
    "openftl-crc32c",
    "openftl-alfs",
    "openftl-core",
    "openftl-media",
    "openftl-parts",
    "openftl-blocks",
    "openftl-tables",
    "openftl-sim",
    "openftl-lab",
    "openftl-bytes",
    "openftl-nbd",
    "openftl-nvme",
    "openftl-nvme-tcp",
    "openftl-control",
    "xtask",
];

/// Their integration tests that try many states.
const MANY_STATES: [&str; 4] = ["alfs", "canary", "crash_points", "file_systems"];

/// Programs that say how much they tried.
const CRASH_POINTS: &str = "openftl-sim crash_points";
const CANARIES: &str = "openftl-sim canary";

/// Histories that are explored besides those of the tests.
const HISTORIES: &str = "2000";

impl Run {
    fn quick(mut self) -> ExitCode {
        let selection = Selection::of_packages(&QUICK, &MANY_STATES);
        if let Some(built) = self.build(selection) {
            let jobs = jobs(&built, |_| {});
            self.steps.run(TESTS.name, || programs::run_all(jobs, &mut self.tally));
        }
        self.finish()
    }

    fn all(mut self, options: Options) -> ExitCode {
        self.steps.run(SET_UP.name, setup::install);
        let Some(built) = self.build(Ok(Selection::all(FEATURES))) else {
            return self.finish();
        };
        let has_rocksdb = self.steps.run(ROCKSDB.name, rocksdb::for_tests);
        self.steps.run(ZBD.name, zbd::for_tests);
        let (built, apart) = set_apart(built);
        let notes = self.target.join("left-out");
        let environment =
            Environment { openftl: self.openftl(), notes: notes.clone(), has_rocksdb, target: &self.target };
        for name in [CRASH_POINTS, CANARIES] {
            if !apart.iter().any(|program| program.name() == name) {
                self.tally.failed.push(format!("cargo did not build {name}"));
            }
        }
        let tally = &mut self.tally;
        self.steps.run(TESTS.name, || {
            let mut jobs = jobs(&built, |command| environment.apply(command));
            jobs.extend(beside_tests(&apart, &environment.openftl));
            jobs.push(programs::documentation(FEATURES));
            jobs.sort_by_key(turn);
            forget(&notes).map_or_else(Outcome::Failed, |()| programs::run_all(jobs, tally))
        });
        match std::fs::read_to_string(&notes) {
            Ok(text) => self.left_out.extend(text.lines().map(str::to_owned)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => self.tally.failed.push(format!("cannot read {}: {error}", notes.display())),
        }
        self.left_out.extend(fuzz::lacking().map(|reason| format!("fuzzing: {reason}")));
        self.left_out.append(&mut self.tally.ignored);
        self.left_out.sort();
        self.steps.run("nothing left out", || judge(&self.left_out, options));
        self.finish()
    }

    fn build(&mut self, selection: Result<Selection, String>) -> Option<Vec<Program>> {
        let mut built = None;
        self.steps.run(BUILD.name, || match selection.and_then(|selection| programs::build(&selection)) {
            Ok(programs) => {
                built = Some(programs);
                Outcome::Done
            }
            Err(error) => Outcome::Failed(error),
        });
        built
    }

    /// The tool that was built with the tests.
    fn openftl(&self) -> PathBuf {
        self.target.join("debug").join("openftl")
    }

    /// Says what failed, and how to run that alone.
    fn finish(self) -> ExitCode {
        let Tally { passed, failed, .. } = &self.tally;
        if !failed.is_empty() {
            println!("\nWhat failed, one by one:");
            failed.iter().for_each(|line| println!("  {line}"));
        }
        // Also what belongs to no step fails the run.
        let of_steps = self.steps.finish();
        let code = if failed.is_empty() { of_steps } else { ExitCode::FAILURE };
        // Alone on the last line, for whoever counts.
        println!("{passed} passed, {} failed, {} skipped", failed.len(), self.left_out.len());
        code
    }
}

/// Parts the programs that say how much they tried from the others.
fn set_apart(built: Vec<Program>) -> (Vec<Program>, Vec<Program>) {
    built.into_iter().partition(|program| ![CRASH_POINTS, CANARIES].contains(&&*program.name()))
}

/// What tries many states, and says how many: crash points, histories, known bugs, inputs of all parsers.
fn beside_tests<'a>(apart: &'a [Program], openftl: &Path) -> Vec<Job<'a>> {
    let mut beside: Vec<Job> = apart.iter().map(Program::telling).collect();
    let mut explorer = Command::new(openftl);
    explorer.args(["explore", "--seed", "1000", "--runs", HISTORIES]);
    let line = format!("openftl explore --seed 1000 --runs {HISTORIES}");
    beside.push(Job::telling("exploration", explorer, line));
    if fuzz::lacking().is_none() {
        beside.push(fuzz::short_job());
    }
    beside
}

/// The longest program: it begins first, and the others run beside it.
const LONGEST: &str = "openftl system";

/// Its tests mostly wait, for servers, disks and guests: more of them at a time than there are cores.
const THREADS_OF_LONGEST: &str = "4";

/// Its tests that wait for each other, and would be its last: they run beside it.
const BESIDE_LONGEST: &str = "witness::";

/// Programs that run once more with servers whose sockets have [`REACTORS`] threads: what they find out of those holds then, too.
const WITH_REACTORS: [&str; 3] = ["openftl-server all", "openftl-server nvme_storm", "openftl-server nvme_tls_memory"];
pub const REACTORS: (&str, &str) = ("OPENFTL_TEST_REACTORS", "3");

/// A program that has less than half as much CPU time as it takes: its servers work meanwhile.
const WAITS: &str = "openftl-server witness";

/// The runs of these programs.
fn jobs(built: &[Program], prepare: impl Fn(&mut Command)) -> Vec<Job<'_>> {
    let mut jobs = Vec::new();
    for program in built {
        let mut job = program.job();
        prepare(&mut job.command);
        if job.name == LONGEST {
            job.command.env("RUST_TEST_THREADS", THREADS_OF_LONGEST).args(["--skip", BESIDE_LONGEST]);
            let mut beside = program.job();
            prepare(&mut beside.command);
            beside.command.arg(BESIDE_LONGEST);
            beside.name = format!("{LONGEST} {}", BESIDE_LONGEST.trim_end_matches(':'));
            jobs.push(beside);
        }
        if WITH_REACTORS.contains(&&*job.name) {
            let mut again = program.job().with_variable(REACTORS);
            prepare(&mut again.command);
            again.name = format!("{} with reactors", job.name);
            jobs.push(again);
        }
        jobs.push(job);
    }
    jobs
}

/// In which order they begin: what is long or waits first, then what wants all cores, which those leave idle.
fn turn(job: &Job<'_>) -> u32 {
    match job.name.as_str() {
        LONGEST => 0,
        name if name == WAITS || name.starts_with(LONGEST) => 1,
        _ if job.tells() => 2,
        _ => 3,
    }
}

/// What system tests are told.
struct Environment<'a> {
    openftl: PathBuf,
    notes: PathBuf,
    has_rocksdb: bool,
    target: &'a Path,
}

impl Environment<'_> {
    fn apply(&self, command: &mut Command) {
        command.env("OPENFTL_LEFT_OUT", &self.notes).env("OPENFTL_BINARY", &self.openftl);
        if let Some(kernel) = linux::kernel() {
            command.env(linux::VARIABLE, kernel);
        }
        if let Some(scripts) = zbd::scripts() {
            command.env(zbd::VARIABLE, scripts);
        }
        if self.has_rocksdb && std::env::var_os(rocksdb::VARIABLE).is_none() {
            command.env(rocksdb::VARIABLE, rocksdb::of_tests(self.target));
        }
    }
}

fn forget(notes: &Path) -> Result<(), String> {
    match std::fs::remove_file(notes) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(format!("cannot remove {}: {error}", notes.display()))
        }
        _ => Ok(()),
    }
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
        let ftl_and_media =
            ["ftl/append", "ftl/blocks", "ftl/pages", "ftl/segments", "ftl/tables", "ftl/zones", "media"];
        let hosts = [
            "host/server",
            "host/dispatch",
            "host/volumes",
            "host/nvme-media",
            "host/nvme-pages",
            "host/nvme-values",
            "host/nvme-segments",
            "bindings/c",
            "bindings/sqlite",
        ];
        for folder in ftl_and_media.into_iter().chain(hosts).map(|folder| shell::root().join(folder).join("tests")) {
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

    /// Nobody would run them.
    #[test]
    fn what_is_built_without_tests_has_none() {
        let root = shell::root();
        let workspace = std::fs::read_to_string(root.join("Cargo.toml")).unwrap();
        let members = workspace.split_once("members = [").unwrap().1.split_once(']').unwrap().0;
        let mut looked_at = 0;
        for folder in
            members.split(',').map(|member| member.trim().trim_matches('"')).filter(|member| !member.is_empty())
        {
            let manifest = std::fs::read_to_string(root.join(folder).join("Cargo.toml")).unwrap();
            let library = manifest.split("\n[").find(|section| section.starts_with("lib]"));
            let sources = match library {
                Some(section) if section.contains("test = false") => root.join(folder).join("src"),
                _ if manifest.contains("test = false") => root.join(folder).join("src/main.rs"),
                _ => continue,
            };
            looked_at += 1;
            let mut files = Vec::new();
            match sources.is_dir() {
                true => crate::architecture::source_files(&sources, &mut files).unwrap(),
                false => files.push(sources),
            }
            for file in files {
                let text = std::fs::read_to_string(&file).unwrap();
                assert!(!text.contains("#[test]"), "{}: its crate is built without tests", file.display());
            }
        }
        assert!(looked_at > 0);
    }

    #[test]
    fn a_test_left_out_fails_the_run_only_where_all_are_required() {
        let all = Options { require_all: true, quick: false };
        let some = Options { require_all: false, quick: false };
        let one = ["x: fio is not installed".to_owned()];
        assert!(matches!(judge(&one, all), Outcome::Failed(_)));
        assert!(matches!(judge(&one, some), Outcome::LeftOut(_)));
        assert_eq!(judge(&[], all), Outcome::Done);
        let optional = "x: optional: no registry has it".to_owned();
        assert!(matches!(judge(std::slice::from_ref(&optional), all), Outcome::LeftOut(_)));
        let other = ["x: fio: optional: is missing".to_owned()];
        assert!(matches!(judge(&other, all), Outcome::Failed(_)), "only a reason that begins so");
        let both = [optional, "y: fio is not installed".to_owned()];
        assert!(matches!(judge(&both, all), Outcome::Failed(why) if why.starts_with("1 ")));
    }

    #[test]
    fn quick_and_all_exclude_each_other() {
        assert!(Options::parse(&["--quick", "--require-all"]).unwrap_err().contains("leave one of them away"));
        assert!(Options::parse(&["--fast"]).unwrap_err().contains("--quick"));
    }

    #[test]
    fn packages_of_a_quick_run_exist() {
        let manifests = [
            "crc32c",
            "alfs",
            "core",
            "media",
            "ftl/parts",
            "ftl/blocks",
            "ftl/tables",
            "sim",
            "lab",
            "host/bytes",
            "host/nbd",
        ];
        let manifests = manifests.into_iter().chain(["host/nvme", "host/nvme-tcp", "host/control", "xtask"]);
        assert_eq!(manifests.clone().count(), QUICK.len());
        for (folder, package) in manifests.zip(QUICK) {
            let manifest = std::fs::read_to_string(shell::root().join(folder).join("Cargo.toml")).unwrap();
            assert!(manifest.contains(&format!("name = \"{package}\"")), "{folder} is not {package}");
        }
        for name in MANY_STATES {
            let tests = shell::root().join("sim/tests").join(name);
            assert!(tests.is_dir() || tests.with_extension("rs").is_file(), "sim has no tests of the name {name}");
        }
    }
}
