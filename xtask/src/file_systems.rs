//! `cargo xtask file-systems`: suites and programs of others on a mounted ALFS.
//!
//! ```text
//!   crates.io: pjdfstest, fsx ──▶ target/file-systems/bin ─┐
//!   Debian: stress-ng, dbench, postmark, bonnie++, fio, …  ┴─▶ mount ── openftl alfs mount ── a drive of segments in a file
//! ```
//!
//! They need root: suites change users, and others than the one who mounts have to get in. Programs are built once, and kept.

mod crashes;
mod suites;
mod volume;
mod xfstests;

use crate::setup;
use crate::shell;
use crate::steps::{Outcome, Steps};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use volume::Volume;

/// Programs that suites need beside those of the system tests, and the Debian packages that hold them.
const PROGRAMS: [(&str, &str); 4] =
    [("postmark", "postmark"), ("bonnie++", "bonnie++"), ("git", "git"), ("kill", "procps")];

/// Suites that are crates, with the versions that these steps know. They are run, and nothing here is linked with them.
const CRATES: [(&str, &str); 2] = [("pjdfstest", "0.2.2"), ("fsx", "0.3.2")];

/// How often what repeats does so, unless one says otherwise.
const ROUNDS_DEFAULT: u32 = 30;

/// What the suites use.
pub struct Suites {
    /// Where cargo puts what it builds.
    target: PathBuf,
}

/// The suites, as all of a run.
pub fn command(words: &[&str]) -> Result<ExitCode, String> {
    let rounds = match words {
        [] => ROUNDS_DEFAULT,
        ["--rounds", number] => match number.parse() {
            Ok(rounds @ 1..) => rounds,
            _ => return Err(format!("`--rounds {number}` should be a number from 1 up")),
        },
        _ => return Err("`file-systems` takes --rounds N and nothing else".to_owned()),
    };
    let mut steps = Steps::new("file-systems");
    steps.run("set-up", setup::install);
    match shell::target_directory() {
        Ok(target) => run(&mut steps, &target, rounds),
        Err(error) => _ = steps.run("the folder where cargo builds", || Outcome::Failed(error)),
    }
    Ok(steps.finish())
}

/// The suites, step by step. `target` is the folder where cargo builds.
pub fn run(steps: &mut Steps, target: &Path, rounds: u32) {
    let suites = Suites { target: target.to_owned() };
    if !steps.run("file system suites", || suites.build()) {
        return;
    }
    steps.run("pjdfstest", || Outcome::of(suites.pjdfstest()));
    steps.run("fsx", || Outcome::of(suites.fsx(rounds)));
    steps.run("stress-ng", || Outcome::of(suites.stress_ng()));
    steps.run("dbench", || Outcome::of(suites.dbench()));
    steps.run("postmark", || Outcome::of(suites.postmark()));
    steps.run("bonnie++", || Outcome::of(suites.bonnie()));
    steps.run("git", || suites.git());
    steps.run("fio, killed", || Outcome::of(suites.fio_killed(rounds)));
    steps.run("fio, power cut", || Outcome::of(suites.fio_without_power(rounds)));
    steps.run("sqlite3, killed", || Outcome::of(suites.sqlite_killed(rounds)));
    steps.run("xfstests", || suites.xfstests());
}

impl Suites {
    fn build(&self) -> Outcome {
        if !shell::is_root() {
            return Outcome::LeftOut("not root: suites change users, and mount for all of them".to_owned());
        }
        if let Err(error) = std::fs::File::options().read(true).write(true).open("/dev/fuse") {
            return Outcome::LeftOut(format!("/dev/fuse cannot be opened: {error}"));
        }
        let missing = PROGRAMS.iter().filter(|(program, _)| shell::find(program).is_none());
        let missing: Vec<&str> = missing.map(|(_, package)| *package).collect();
        match setup::install_packages(&missing) {
            Outcome::Done => {}
            other => return other,
        }
        let words = ["build", "--release", "--package", "openftl", "--package", "openftl-alfs-command"];
        if let Err(error) = shell::run(&mut shell::cargo(words)) {
            return Outcome::Failed(error);
        }
        for (name, version) in CRATES {
            let is_there = |tool: &Path| {
                let mut command = Command::new(tool);
                let printed = command.arg("--version").stdin(Stdio::null()).stderr(Stdio::null()).output();
                printed.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).trim().ends_with(version))
            };
            if is_there(&self.tool(name)) {
                continue;
            }
            // Not in the workspace, whose settings are for its own crates.
            let mut command = shell::cargo(["install", "--locked", "--quiet", "--version", version, name]);
            command.arg("--root").arg(self.folder()).arg("--target-dir").arg(self.folder().join("build"));
            if let Err(error) = shell::run(command.current_dir(std::env::temp_dir())) {
                return Outcome::LeftOut(format!("{name} {version} cannot be had: {error}"));
            }
        }
        Outcome::Done
    }

    /// The folder of all suites.
    fn folder(&self) -> PathBuf {
        self.target.join("file-systems")
    }

    /// The program of a crate.
    fn tool(&self, name: &str) -> PathBuf {
        self.folder().join("bin").join(name)
    }

    fn openftl(&self) -> PathBuf {
        self.target.join("release").join("openftl")
    }

    /// An empty file system for a suite.
    fn volume(&self, name: &str) -> Result<Volume, String> {
        Volume::make(&self.openftl(), self.folder().join("runs").join(name))
    }
}
