//! The test programs that cargo builds, run [`LANES`] at a time: a line for each when it has ended, what a failing one
//! printed, and the command that runs each failed test alone.

use crate::shell;
use crate::steps::{self, Outcome};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::Instant;

/// Programs that run at a time. With three, the run takes as long, and each test longer: programs that have little CPU time for
/// their length start servers, which keep both cores busy all the same.
const LANES: usize = 2;

/// What is built, as arguments of `cargo test`.
#[derive(Clone, Debug)]
pub struct Selection(pub Vec<String>);

impl Selection {
    /// All test programs of the workspace, with `features`.
    pub fn all(features: &str) -> Selection {
        // Without the examples, which measure: `cargo xtask check` compiles them.
        Selection(["--workspace", "--tests", "--features", features].map(str::to_owned).to_vec())
    }

    /// The test programs of `packages`, but for integration tests `without`, which are not even built.
    pub fn of_packages(packages: &[&str], without: &[&str]) -> Result<Selection, String> {
        let mut words = vec!["--lib".to_owned(), "--bins".to_owned()];
        words.extend(packages.iter().flat_map(|package| ["--package".to_owned(), (*package).to_owned()]));
        let metadata = shell::metadata()?;
        let mut names = BTreeSet::new();
        for package in metadata["packages"].as_array().into_iter().flatten() {
            if !packages.iter().any(|name| package["name"] == **name) {
                continue;
            }
            let targets = package["targets"].as_array().into_iter().flatten();
            let tests = targets.filter(|target| target["kind"][0] == "test");
            names.extend(tests.filter_map(|test| test["name"].as_str()).filter(|name| !without.contains(name)));
        }
        words.extend(names.into_iter().flat_map(|name| ["--test".to_owned(), name.to_owned()]));
        Ok(Selection(words))
    }
}

/// A test program, or the tests in the documentation of all packages.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Program {
    /// The package that it belongs to.
    pub package: String,
    /// Which of its programs: the words that cargo knows it by.
    pub target: Vec<String>,
    /// The file to run.
    executable: PathBuf,
    /// The folder of the package, in which tests run.
    folder: PathBuf,
}

/// What came of a program.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Tally {
    pub passed: u64,
    /// Commands that run the failed tests alone, or that run the program, where it ended without naming one.
    pub failed: Vec<String>,
    /// Tests marked `#[ignore]`, each with its reason.
    pub ignored: Vec<String>,
}

impl Tally {
    /// Adds what came of another program.
    pub fn add(&mut self, other: Tally) {
        self.passed += other.passed;
        self.failed.extend(other.failed);
        self.ignored.extend(other.ignored);
    }
}

/// Builds the programs of `selection`, in the order in which cargo would run them.
pub fn build(selection: &Selection) -> Result<Vec<Program>, String> {
    let mut command = shell::cargo(["test", "--no-run"]);
    command.args(&selection.0);
    println!("$ {}", shell::line(&command));
    command.arg("--message-format=json-render-diagnostics");
    let (text, status) = shell::output_and_status(&mut command)?;
    if !status.success() {
        return Err(format!("cargo test --no-run ended with {status}"));
    }
    let mut programs: Vec<Program> = text.lines().filter_map(of_message).collect();
    programs.sort_by(|a, b| (&a.package, &a.target).cmp(&(&b.package, &b.target)));
    Ok(programs)
}

/// The test program that a message of cargo is about, if it is about one.
fn of_message(line: &str) -> Option<Program> {
    let message: serde_json::Value = serde_json::from_str(line).ok()?;
    let executable = PathBuf::from(message["executable"].as_str()?);
    if message["reason"] != "compiler-artifact" || message["profile"]["test"] != true {
        return None;
    }
    let name = message["target"]["name"].as_str()?.to_owned();
    let kind = message["target"]["kind"][0].as_str()?;
    let target = match kind {
        "test" | "bin" | "example" | "bench" => vec![format!("--{kind}"), name],
        _ => vec!["--lib".to_owned()],
    };
    let manifest = Path::new(message["manifest_path"].as_str()?);
    let folder = manifest.parent()?.to_owned();
    Some(Program { package: package_of(message["package_id"].as_str()?), target, executable, folder })
}

/// The name in an identifier such as `path+file:///project/core#openftl-core@0.1.0`, which leaves it away where the folder
/// has it.
fn package_of(id: &str) -> String {
    let (place, rest) = id.rsplit_once('#').unwrap_or((id, ""));
    match rest.split_once('@') {
        Some((name, _)) => name.to_owned(),
        None => place.rsplit('/').next().unwrap_or(place).to_owned(),
    }
}

impl Program {
    /// What people call it.
    pub fn name(&self) -> String {
        let which = if self.target.len() == 1 { "unit tests" } else { self.target[1].as_str() };
        format!("{} {which}", self.package)
    }

    /// A command that runs it as cargo would.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.executable);
        command.current_dir(&self.folder).env("CARGO_MANIFEST_DIR", &self.folder).stdin(Stdio::null());
        command
    }

    /// A run of all its tests.
    pub fn job(&self) -> Job<'_> {
        Job { name: self.name(), command: self.command(), tells: false, alone: Box::new(|test| self.line(test)) }
    }

    /// The same, where it is shown what the tests print: they say how much they tried.
    pub fn telling(&self) -> Job<'_> {
        let mut job = Job { tells: true, ..self.job() };
        job.command.arg("--nocapture");
        job
    }

    /// The line that runs one of its tests, or all.
    pub fn line(&self, test: Option<&str>) -> String {
        let feature = FEATURES_OF.iter().find(|(package, _)| *package == self.package).map(|(_, feature)| *feature);
        let features = feature.map(|feature| format!(" --features {feature}")).unwrap_or_default();
        let target = self.target.join(" ");
        let test = test.map(|test| format!(" -- --exact {test}")).unwrap_or_default();
        format!("cargo test --package {}{features} {target}{test}", self.package)
    }
}

/// Packages whose tests differ with a feature.
const FEATURES_OF: [(&str, &str); 3] = [("openftl", "tls"), ("openftl-server", "tls"), ("openftl-sim", "canary")];

/// Gives the line that runs one of a program's tests, or all.
type Alone<'a> = Box<dyn Fn(Option<&str>) -> String + Send + 'a>;

/// One program to run.
pub struct Job<'a> {
    /// What people call it.
    pub name: String,
    pub command: Command,
    /// What it prints is shown, and not read as what tests print.
    tells: bool,
    alone: Alone<'a>,
}

impl Job<'static> {
    /// A program that is no test, and tells what it did. `line` runs it alone.
    pub fn telling(name: &str, command: Command, line: String) -> Job<'static> {
        Job { name: name.to_owned(), command, tells: true, alone: Box::new(move |_| line.clone()) }
    }
}

/// The examples in the documentation of all packages, which cargo builds as it runs them.
pub fn documentation(features: &'static str) -> Job<'static> {
    let mut command = shell::cargo(["test", "--workspace", "--features", features, "--doc", "--no-fail-fast"]);
    command.env("CARGO_TERM_COLOR", "never");
    let alone = move |test: Option<&str>| {
        let test = test.map(|test| format!(" -- --exact '{test}'")).unwrap_or_default();
        format!("cargo test --workspace --features {features} --doc{test}")
    };
    Job { name: "examples in the documentation".to_owned(), command, tells: false, alone: Box::new(alone) }
}

/// Runs these, [`LANES`] at a time and begun in this order, and adds what came of them to `tally`.
pub fn run_all(jobs: Vec<Job>, tally: &mut Tally) -> Outcome {
    let waiting = Mutex::new(jobs.into_iter().enumerate());
    let tallies = Mutex::new(BTreeMap::new());
    std::thread::scope(|scope| {
        for _ in 0..LANES {
            scope.spawn(|| {
                loop {
                    let next = waiting.lock().expect("no other lane panicked").next();
                    let Some((number, mut job)) = next else { return };
                    let one = job.run().unwrap_or_else(|error| {
                        let line = format!("{}   ({error})", (job.alone)(None));
                        Tally { failed: vec![line], ..Tally::default() }
                    });
                    tallies.lock().expect("no other lane panicked").insert(number, one);
                }
            });
        }
    });
    let mut failed = 0;
    for one in tallies.into_inner().expect("no lane panicked").into_values() {
        failed += one.failed.len();
        tally.add(one);
    }
    match failed {
        0 => Outcome::Done,
        failed => Outcome::Failed(format!("{failed} tests; their commands are repeated at the end")),
    }
}

impl<'a> Job<'a> {
    /// The same with a variable of the environment.
    pub fn with_variable(mut self, (name, value): (&'static str, &'static str)) -> Job<'a> {
        self.command.env(name, value);
        let alone = self.alone;
        self.alone = Box::new(move |test| format!("{name}={value} {}", alone(test)));
        self
    }

    /// Whether what it prints is shown.
    pub fn tells(&self) -> bool {
        self.tells
    }

    /// Runs it to its end, and prints its line.
    fn run(&mut self) -> Result<Tally, String> {
        let name = &self.name;
        let began = Instant::now();
        let mut child = self
            .command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("{name} does not start: {error}"))?;
        let errors = child.stderr.take().expect("it was asked for");
        let errors = std::thread::spawn(move || {
            let mut text = Vec::new();
            for line in BufReader::new(errors).split(b'\n').map_while(Result::ok) {
                text.push(String::from_utf8_lossy(&line).into_owned());
            }
            text
        });
        let mut reader = Reader::default();
        let is_watched = std::io::stdout().is_terminal();
        for line in BufReader::new(child.stdout.take().expect("it was asked for")).split(b'\n').map_while(Result::ok) {
            reader.take(&String::from_utf8_lossy(&line));
            if is_watched && !self.tells {
                print!("\r\x1b[K  {name}: {} tests done", reader.done());
                _ = std::io::stdout().flush();
            }
        }
        let errors = errors.join().expect("it only reads");
        // It has ended or is about to, and its number is its own until it is waited for.
        let cpu = steps::cpu_time(child.id()).as_secs_f64();
        let status = child.wait().map_err(|error| format!("cannot wait for {name}: {error}"))?;
        let mut tally = reader.tally(status.success(), &self.alone);
        if self.tells {
            let failed = if status.success() { Vec::new() } else { vec![(self.alone)(None)] };
            tally = Tally { failed, ..Tally::default() };
        }
        // The lines of one program stay together.
        let _printing = std::io::stdout().lock();
        if is_watched {
            print!("\r\x1b[K");
        }
        if self.tells || !tally.failed.is_empty() {
            reader.lines.iter().for_each(|line| println!("{line}"));
        }
        if !tally.failed.is_empty() {
            errors.iter().for_each(|line| println!("{line}"));
        }
        let verdict = match tally.failed.len() {
            0 if self.tells => "done".to_owned(),
            0 => format!("{} passed", tally.passed),
            _ if self.tells => "FAILED".to_owned(),
            failed => format!("{} passed, {failed} FAILED", tally.passed),
        };
        println!("  {name}: {verdict}, {:.1} s, {cpu:.1} s of CPU", began.elapsed().as_secs_f64());
        Ok(tally)
    }
}

/// Lines of what a failed test has said that are repeated, first and last ones, and how much of each, at most. The first
/// ones say what was expected; where a program ran, its errors come last.
const WORDS_FIRST_LINES_MAX: usize = 10;
const WORDS_LAST_LINES_MAX: usize = 30;
const WORDS_CHARS_MAX: usize = 400;

/// Reads what libtest prints.
#[derive(Default)]
struct Reader {
    lines: Vec<String>,
    passed: u64,
    failed: BTreeSet<String>,
    ignored: Vec<String>,
}

impl Reader {
    fn done(&self) -> u64 {
        self.passed + self.failed.len() as u64 + self.ignored.len() as u64
    }

    fn take(&mut self, line: &str) {
        self.lines.push(line.to_owned());
        let Some((name, verdict)) = line.strip_prefix("test ").and_then(|rest| rest.rsplit_once(" ... ")) else {
            return;
        };
        match verdict {
            "ok" => self.passed += 1,
            "FAILED" => _ = self.failed.insert(name.to_owned()),
            _ => {
                if let Some(reason) = verdict.strip_prefix("ignored") {
                    let reason = reason.trim_start_matches(',').trim();
                    let reason = if reason.is_empty() { "marked #[ignore]" } else { reason };
                    self.ignored.push(format!("{name}: {reason}"));
                }
            }
        }
    }

    /// What a test that failed has said, as far as its stack, each line behind a line break. Whoever sees the end of a long
    /// run alone sees that.
    fn words_of(&self, name: &str) -> String {
        let heading = format!("---- {name} stdout ----");
        let said = self.lines.iter().skip_while(|line| **line != heading).skip(1);
        let is_over =
            |line: &&String| line.starts_with("---- ") || *line == "failures:" || line.starts_with("stack backtrace");
        let said = said.take_while(|line| !is_over(line)).filter(|line| !line.trim().is_empty());
        let shortened = |line: &String| format!("\n      {}", line.chars().take(WORDS_CHARS_MAX).collect::<String>());
        let lines: Vec<String> = said.map(shortened).collect();
        match lines.len().saturating_sub(WORDS_FIRST_LINES_MAX + WORDS_LAST_LINES_MAX) {
            0 => lines.concat(),
            left_out => {
                let (first, rest) = lines.split_at(WORDS_FIRST_LINES_MAX);
                format!("{}\n      … ({left_out} lines) …{}", first.concat(), rest[left_out..].concat())
            }
        }
    }

    fn tally(&mut self, is_success: bool, alone: &dyn Fn(Option<&str>) -> String) -> Tally {
        let with_words = |name: &String| alone(Some(name)) + &self.words_of(name);
        let mut failed: Vec<String> = self.failed.iter().map(with_words).collect();
        if failed.is_empty() && !is_success {
            failed.push(alone(None));
        }
        Tally { passed: self.passed, failed, ignored: std::mem::take(&mut self.ignored) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(lines: &[&str], is_success: bool) -> Tally {
        let mut reader = Reader::default();
        lines.iter().for_each(|line| reader.take(line));
        reader.tally(is_success, &|test| format!("run {}", test.unwrap_or("all")))
    }

    #[test]
    fn an_ignored_test_counts_as_left_out() {
        let check = |line: &str, found: &[&str]| assert_eq!(read(&[line], true).ignored, found, "{line}");
        check("test a::b ... ignored, takes an hour", &["a::b: takes an hour"]);
        check("test a::b ... ignored", &["a::b: marked #[ignore]"]);
        check("test src/lib.rs - f (line 3) ... ignored", &["src/lib.rs - f (line 3): marked #[ignore]"]);
        check("test a::ignored ... ok", &[]);
        check("test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured", &[]);
    }

    #[test]
    fn a_failed_test_is_named_once_with_its_command() {
        let lines =
            ["test a ... ok", "test b ... FAILED", "failures:", "    b", "test result: FAILED. 1 passed; 1 failed"];
        assert_eq!(read(&lines, false), Tally { passed: 1, failed: vec!["run b".to_owned()], ignored: Vec::new() });
    }

    #[test]
    fn what_a_failed_test_has_said_is_repeated_with_its_command() {
        let lines = [
            "test a ... FAILED",
            "test b ... FAILED",
            "failures:",
            "---- a stdout ----",
            "",
            "thread 'a' panicked at x.rs:1:2:",
            "it is 1, not 2",
            "stack backtrace:",
            "   0: main",
            "---- b stdout ----",
            "other words",
            "failures:",
            "    a",
        ];
        let expected =
            ["run a\n      thread 'a' panicked at x.rs:1:2:\n      it is 1, not 2", "run b\n      other words"];
        assert_eq!(read(&lines, false).failed, expected);
    }

    #[test]
    fn of_many_words_the_first_and_the_last_are_repeated() {
        let said: Vec<String> = (0..50).map(|number| format!("word {number}")).collect();
        let lines = ["test a ... FAILED", "---- a stdout ----"].into_iter().chain(said.iter().map(String::as_str));
        let failed = read(&lines.collect::<Vec<_>>(), false).failed.concat();
        let words: Vec<&str> = failed.lines().skip(1).map(str::trim).collect();
        assert_eq!(words.len(), 41);
        assert_eq!(words[9..12], ["word 9", "… (10 lines) …", "word 20"]);
        assert_eq!(words[40], "word 49");
    }

    #[test]
    fn a_program_that_dies_has_failed_whatever_passed() {
        assert_eq!(read(&["test a ... ok"], false).failed, ["run all"]);
        assert_eq!(read(&["test a ... ok"], true).failed, [""; 0]);
    }

    #[test]
    fn messages_of_cargo_name_package_and_program() {
        let message = |id: &str, kind: &str, test: bool| {
            format!(
                r#"{{"reason":"compiler-artifact","package_id":"{id}","manifest_path":"/p/ftl/blocks/Cargo.toml",
                "target":{{"kind":["{kind}"],"name":"all"}},"profile":{{"test":{test}}},"executable":"/t/all-1"}}"#
            )
            .replace('\n', "")
        };
        let found = of_message(&message("path+file:///p/ftl/blocks#openftl-blocks@0.1.0", "test", true)).unwrap();
        assert_eq!(found.name(), "openftl-blocks all");
        assert_eq!(found.line(Some("a::b")), "cargo test --package openftl-blocks --test all -- --exact a::b");
        let found = of_message(&message("path+file:///p/xtask#0.1.0", "lib", true)).unwrap();
        assert_eq!(
            (found.name().as_str(), found.line(None).as_str()),
            ("xtask unit tests", "cargo test --package xtask --lib")
        );
        let found = of_message(&message("path+file:///p/apps/openftl#0.1.0", "test", true)).unwrap();
        assert_eq!(found.line(None), "cargo test --package openftl --features tls --test all");
        assert_eq!(of_message(&message("path+file:///p/xtask#0.1.0", "bin", false)), None);
        assert_eq!(of_message("   Compiling syn"), None);
    }
}
