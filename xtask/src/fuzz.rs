//! `cargo xtask fuzz`: libFuzzer on every parser. Needs a nightly toolchain and cargo-fuzz; says so where they are not.

use crate::shell;
use crate::steps::{Outcome, Steps};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

/// The arguments of `fuzz`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// The only target to run, or all.
    target: Option<String>,
    /// How long to run each.
    seconds: u32,
}

impl Options {
    /// Understands the command line.
    pub fn parse(words: &[&str]) -> Result<Options, String> {
        let mut options = Options { target: None, seconds: 60 };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match *word {
                "--seconds" => {
                    let value = words.next().ok_or("--seconds needs a number, as in --seconds 60")?;
                    let number = value.parse().ok().filter(|seconds| *seconds > 0);
                    options.seconds = number.ok_or(format!("--seconds {value}: give a whole number from 1 on"))?;
                }
                flag if flag.starts_with('-') => {
                    return Err(format!("`fuzz` does not know `{flag}`; it takes --seconds N"));
                }
                target if options.target.is_none() => options.target = Some(target.to_owned()),
                extra => return Err(format!("`fuzz` takes one target at most, but got `{extra}` too")),
            }
        }
        Ok(options)
    }
}

/// Runs the targets in turn.
pub fn run(options: &Options) -> ExitCode {
    let mut steps = Steps::new("fuzz");
    let root = shell::root();
    let targets = targets(&root);
    let chosen: Vec<&Target> =
        targets.iter().filter(|target| options.target.as_ref().is_none_or(|name| *name == target.name)).collect();
    if chosen.is_empty() {
        let names: Vec<&str> = targets.iter().map(|target| target.name.as_str()).collect();
        let wanted = options.target.as_deref().unwrap_or("any");
        steps.run(wanted, || Outcome::Failed(format!("no such target; there are: {}", names.join(", "))));
    }
    for target in chosen {
        steps.run(&target.name, || fuzz(target, options.seconds));
    }
    steps.finish()
}

/// One file in a `fuzz_targets` folder.
struct Target {
    name: String,
    /// The folder that holds `fuzz/`.
    package: PathBuf,
}

/// Every `*/fuzz/fuzz_targets/*.rs` of the repository, at one or two folders' depth.
fn targets(root: &Path) -> Vec<Target> {
    let packages = folders(root).into_iter().flat_map(|folder| {
        let mut packages = folders(&folder);
        packages.push(folder);
        packages
    });
    let mut targets: Vec<Target> = packages
        .flat_map(|package| {
            let files = entries(&package.join("fuzz").join("fuzz_targets")).into_iter();
            let sources = files.filter(|file| file.extension().is_some_and(|extension| extension == "rs"));
            let names = sources.filter_map(|file| Some(file.file_stem()?.to_str()?.to_owned()));
            names.map(move |name| Target { name, package: package.clone() }).collect::<Vec<_>>()
        })
        .collect();
    targets.sort_by(|a, b| a.name.cmp(&b.name));
    targets
}

fn folders(folder: &Path) -> Vec<PathBuf> {
    entries(folder).into_iter().filter(|entry| entry.is_dir() && !entry.ends_with("target")).collect()
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(folder).map(|entries| entries.flatten().map(|entry| entry.path()).collect()).unwrap_or_default()
}

fn fuzz(target: &Target, seconds: u32) -> Outcome {
    if !shell::succeeds(Command::new("rustup").args(["run", "nightly", "rustc", "--version"])) {
        return Outcome::LeftOut("no nightly toolchain (`rustup toolchain install nightly`)".to_owned());
    }
    if shell::find("cargo-fuzz").is_none() {
        return Outcome::LeftOut("cargo-fuzz is not installed (`cargo install --locked cargo-fuzz`)".to_owned());
    }
    // Our own toolchain's variables would lead the nightly cargo back to the stable compiler.
    let mut command = Command::new("rustup");
    command.args(["run", "nightly", "cargo", "fuzz", "run", &target.name, "--", &format!("-max_total_time={seconds}")]);
    command.current_dir(&target.package).stdin(Stdio::null());
    for variable in ["CARGO", "RUSTC", "RUSTDOC", "RUSTUP_TOOLCHAIN", "CARGO_TARGET_DIR"] {
        command.env_remove(variable);
    }
    Outcome::of(shell::run(&mut command))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_come_in_any_order() {
        let expected = Options { target: Some("protocol".to_owned()), seconds: 5 };
        assert_eq!(Options::parse(&["protocol", "--seconds", "5"]), Ok(expected.clone()));
        assert_eq!(Options::parse(&["--seconds", "5", "protocol"]), Ok(expected));
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
        check(&["one", "two"], "two");
    }
}
