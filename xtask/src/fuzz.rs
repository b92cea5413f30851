//! `cargo xtask fuzz`: libFuzzer on every parser of bytes that come from outside.
//!
//! The targets and their inputs are in `fuzz/`. They are built with the toolchain that builds everything else: what
//! libFuzzer needs of the compiler are flags, and libFuzzer itself comes along as a library, in C++. So a C++ compiler
//! is all that has to be there.
//!
//! | folder | holds | who writes |
//! |---|---|---|
//! | `fuzz/corpus/TARGET` | inputs to begin with, kept in the repository | people |
//! | `<target directory>/fuzz/corpus/TARGET` | inputs that reached something new | the fuzzer; a later run goes on from there |
//! | `<target directory>/fuzz/found` | inputs that failed | the fuzzer |

use crate::shell;
use crate::steps::{Outcome, Steps};
use crate::test::Job;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::time::SystemTime;

/// What libFuzzer has the compiler put into everything: counters at each edge and the operands of each comparison.
const COVERAGE: [&str; 6] = [
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    // Branches that differ are to be told apart, also where one instruction could decide both.
    "-Cllvm-args=-simplifycfg-branch-fold-threshold=0",
];
/// An input that takes longer, or more memory, has failed.
const INPUT_SECONDS_MAX: u32 = 10;
const MEMORY_MIB_MAX: u32 = 2048;
/// The longest input that the fuzzer makes: more than a block, so that all of one is in reach.
const INPUT_BYTES_MAX: u32 = 4608;
/// Processes at a time in a short run.
const JOBS: usize = 2;
/// How long a short run may take in all, without building.
const SHORT_RUN_SECONDS: u32 = 30;
/// How long it gives each target, if that is not too much in all.
const SHORT_RUN_TARGET_SECONDS: u32 = 5;

/// The arguments of `fuzz`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// The only target to run, or all.
    target: Option<String>,
    /// How long to run each.
    seconds: u32,
    /// A few seconds for each, several at a time.
    short: bool,
    /// An input to run once, instead of fuzzing.
    input: Option<PathBuf>,
}

impl Options {
    /// Understands the command line.
    pub fn parse(words: &[&str]) -> Result<Options, String> {
        let mut options = Options { target: None, seconds: 60, short: false, input: None };
        let words_given = words.len();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match *word {
                "--seconds" => {
                    let value = words.next().ok_or("--seconds needs a number, as in --seconds 60")?;
                    let number = value.parse().ok().filter(|seconds| *seconds > 0);
                    options.seconds = number.ok_or(format!("--seconds {value}: give a whole number from 1 on"))?;
                }
                "--short" => options.short = true,
                "--input" => {
                    let value = words.next().ok_or("--input needs a file, as in --input crash-0123")?;
                    options.input =
                        Some(std::path::absolute(value).map_err(|error| format!("--input {value}: {error}"))?);
                }
                flag if flag.starts_with('-') => {
                    return Err(format!(
                        "`fuzz` does not know `{flag}`; it takes --seconds N, --short and --input FILE"
                    ));
                }
                target if options.target.is_none() => options.target = Some(target.to_owned()),
                extra => return Err(format!("`fuzz` takes one target at most, but got `{extra}` too")),
            }
        }
        if options.short && words_given > 1 {
            return Err("--short runs every target for a few seconds: leave the rest away".to_owned());
        }
        if options.input.is_some() && options.target.is_none() {
            return Err("--input FILE: name the target too, as in `cargo xtask fuzz flash --input FILE`".to_owned());
        }
        let names = targets();
        match &options.target {
            Some(target) if !names.contains(target) => {
                Err(format!("there is no target `{target}`; there are {}", names.join(", ")))
            }
            _ => Ok(options),
        }
    }
}

/// Runs the targets in turn, or one input of one of them.
pub fn run(options: &Options) -> ExitCode {
    let mut steps = Steps::new("fuzz");
    if options.short {
        steps.run("all targets", short_run);
        return steps.finish();
    }
    let mut fuzzer = None;
    steps.run("build", || build(&mut fuzzer));
    let Some(fuzzer) = fuzzer else { return steps.finish() };
    for target in targets().iter().filter(|target| options.target.as_ref().is_none_or(|name| name == *target)) {
        steps.run(target, || match &options.input {
            Some(input) => Outcome::of(shell::run(&mut fuzzer.repeat(target, input))),
            None => Outcome::of(fuzzer.fuzz(target, options.seconds, Output::Shown)),
        });
    }
    steps.finish()
}

/// What a run lacks here, if it lacks something.
pub fn lacking() -> Option<String> {
    cpp_compiler().is_none().then(|| "no C++ compiler, which libFuzzer needs (Debian: g++)".to_owned())
}

/// A short run as a program beside others. For `cargo xtask test`.
pub fn short_job() -> Job<'static> {
    let command = shell::cargo(["xtask", "fuzz", "--short"]);
    let line = shell::line(&command);
    Job::telling("fuzzing", command, line)
}

/// A few seconds for each target, several at a time.
fn short_run() -> Outcome {
    let mut fuzzer = None;
    let built = build(&mut fuzzer);
    let Some(fuzzer) = fuzzer else { return built };
    let targets = targets();
    let rounds = targets.len().div_ceil(JOBS) as u32;
    let seconds = (SHORT_RUN_SECONDS / rounds).clamp(1, SHORT_RUN_TARGET_SECONDS);
    println!("{seconds} s for each of {}, {JOBS} at a time", targets.join(", "));
    let waiting = Mutex::new(targets.iter());
    let failures = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..JOBS {
            scope.spawn(|| {
                loop {
                    let next = waiting.lock().expect("no other job panicked").next();
                    let Some(target) = next else { return };
                    if let Err(error) = fuzzer.fuzz(target, seconds, Output::Kept) {
                        failures.lock().expect("no other job panicked").push(error);
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().expect("no job panicked");
    if failures.is_empty() { Outcome::Done } else { Outcome::Failed(failures.join("; ")) }
}

/// The names of all targets: each has a folder of inputs.
fn targets() -> Vec<String> {
    let folders = std::fs::read_dir(corpus()).into_iter().flatten().flatten();
    let mut names: Vec<String> = folders.filter_map(|folder| folder.file_name().into_string().ok()).collect();
    names.sort();
    names
}

fn corpus() -> PathBuf {
    shell::root().join("fuzz").join("corpus")
}

/// Where what a fuzzing process prints goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Output {
    Shown,
    /// Into a file, and shown if it failed.
    Kept,
}

/// The program that holds all targets, and its folder.
struct Fuzzer {
    program: PathBuf,
    folder: PathBuf,
}

/// Builds the targets with libFuzzer, in a folder of their own: with these flags everything is built anew but what runs during the build.
fn build(fuzzer: &mut Option<Fuzzer>) -> Outcome {
    if let Some(reason) = lacking() {
        return Outcome::LeftOut(reason);
    }
    let built = (|| {
        let triple = host_triple()?;
        let target = shell::target_directory()?;
        // With --target the flags are those of the targets alone, and not of what runs during the build: the tests have that already.
        let mut command = shell::cargo(["build", "--package", "openftl-fuzz", "--features", "libfuzzer"]);
        command.args(["--config", "fuzz/profile.toml", "--target", &triple]);
        command.env("CARGO_ENCODED_RUSTFLAGS", COVERAGE.join("\x1f"));
        shell::run(&mut command)?;
        let program = target.join(triple).join("debug").join("openftl-fuzz");
        Ok(Fuzzer { program, folder: target.join("fuzz") })
    })();
    match built {
        Ok(built) => {
            *fuzzer = Some(built);
            Outcome::Done
        }
        Err(error) => Outcome::Failed(error),
    }
}

/// The one that builds of C++ code look for.
fn cpp_compiler() -> Option<PathBuf> {
    let chosen = std::env::var("CXX").ok().and_then(|name| shell::find(&name));
    chosen.or_else(|| shell::find("c++"))
}

fn host_triple() -> Result<String, String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let text = shell::output(Command::new(rustc).arg("-vV").current_dir(shell::root()))?;
    let triple = text.lines().find_map(|line| line.strip_prefix("host: "));
    triple.map(str::to_owned).ok_or_else(|| "`rustc -vV` names no host".to_owned())
}

impl Fuzzer {
    fn command(&self, target: &str) -> Command {
        let mut command = Command::new(&self.program);
        command.env("OPENFTL_FUZZ_TARGET", target).stdin(Stdio::null()).current_dir(shell::root());
        // Frames are given back and taken again with each input: let the allocator keep them.
        command.env("MALLOC_MMAP_THRESHOLD_", "1073741824").env("MALLOC_TRIM_THRESHOLD_", "1073741824");
        command.arg(format!("-timeout={INPUT_SECONDS_MAX}")).arg(format!("-rss_limit_mb={MEMORY_MIB_MAX}"));
        command
    }

    /// Runs one input once.
    fn repeat(&self, target: &str, input: &Path) -> Command {
        let mut command = self.command(target);
        command.arg(input);
        command
    }

    /// Fuzzes for a while. The reason of a failure names the input and how to repeat it.
    fn fuzz(&self, target: &str, seconds: u32, output: Output) -> Result<(), String> {
        let (new, found) = (self.folder.join("corpus").join(target), self.folder.join("found"));
        for folder in [&new, &found] {
            std::fs::create_dir_all(folder).map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
        }
        let began = SystemTime::now();
        let mut command = self.command(target);
        command.arg(format!("-artifact_prefix={}/{target}-", found.display()));
        command.args([format!("-max_total_time={seconds}"), format!("-max_len={INPUT_BYTES_MAX}")]);
        command
            .args(["-print_final_stats=1", "-use_value_profile=1", "-len_control=0"])
            .arg(&new)
            .arg(corpus().join(target));
        let result = match output {
            Output::Shown => shell::run(&mut command),
            Output::Kept => {
                let kept = self.folder.join(format!("{target}.log"));
                let file = std::fs::File::create(&kept).map_err(|error| format!("{}: {error}", kept.display()))?;
                command.stdout(Stdio::null()).stderr(file);
                let result = shell::run(&mut command);
                println!("{}", summary(target, &std::fs::read_to_string(&kept).unwrap_or_default(), result.is_err()));
                result
            }
        };
        result.map_err(|error| match written_since(&found, target, began) {
            Some(input) => {
                let input = input.display();
                format!("{target} fails for {input}; repeat it: cargo xtask fuzz {target} --input {input}")
            }
            None => format!("{target}: {error}"),
        })
    }
}

/// The input that a run of `target` wrote: of the same name as before, where it failed in the same way.
fn written_since(folder: &Path, target: &str, began: SystemTime) -> Option<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut inputs = entries.filter(|entry| {
        let is_of_target = entry.file_name().to_string_lossy().starts_with(&format!("{target}-"));
        is_of_target && entry.metadata().and_then(|data| data.modified()).is_ok_and(|modified| modified >= began)
    });
    inputs.next().map(|entry| entry.path())
}

/// Of what libFuzzer printed: all of it where it failed, otherwise how far it came.
fn summary(target: &str, log: &str, failed: bool) -> String {
    if failed {
        return log.to_owned();
    }
    let counts =
        |line: &&str| line.strip_prefix('#').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    let last = log.lines().rfind(counts).unwrap_or_default();
    let word = |name: &str| {
        let mut words = last.split_whitespace().skip_while(move |word| *word != name).skip(1);
        words.next().unwrap_or("?").to_owned()
    };
    let runs = last.split_whitespace().next().unwrap_or_default().trim_start_matches('#');
    format!("  {target}: {runs} inputs, {} edges reached", word("cov:"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_come_in_any_order() {
        let expected = Options { target: Some("nbd".to_owned()), seconds: 5, short: false, input: None };
        assert_eq!(Options::parse(&["nbd", "--seconds", "5"]), Ok(expected.clone()));
        assert_eq!(Options::parse(&["--seconds", "5", "nbd"]), Ok(expected));
        let expected =
            Options { target: Some("flash".to_owned()), seconds: 60, short: false, input: Some("/found".into()) };
        assert_eq!(Options::parse(&["--input", "/found", "flash"]), Ok(expected));
    }

    #[test]
    fn wrong_arguments_are_named() {
        let check = |words: &[&str], part: &str| {
            let error = Options::parse(words).unwrap_err();
            assert!(error.contains(part), "{error}");
        };
        check(&["--seconds"], "--seconds");
        check(&["--seconds", "0"], "--seconds 0");
        check(&["--fast"], "--fast");
        check(&["nbd", "flash"], "flash");
        check(&["protocol"], "there are alfs, catalog, control, drive_description");
        check(&["--input", "found"], "name the target");
        check(&["--short", "nbd"], "leave the rest away");
    }

    #[test]
    fn a_run_is_summed_up_in_a_line() {
        let log = "#2 INITED cov: 10\n#4096\tpulse  cov: 12 ft: 30 corp: 3/9b\n#9000\tDONE   cov: 13 ft: 31\n###### End of recommended dictionary. ######\nDone 9000 runs\n";
        assert_eq!(summary("nbd", log, false), "  nbd: 9000 inputs, 13 edges reached");
        assert_eq!(summary("nbd", "panicked", true), "panicked");
    }
}
