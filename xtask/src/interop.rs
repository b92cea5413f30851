//! `cargo xtask interop`: the system tests with NVMe hosts that are not ours, with as many rounds as one has time for, SQLite's own suites on a
//! store of pages, suites of file systems on a mounted ALFS, and a storm of hosts of our own that come and go, for as many minutes.
//!
//! Rude hosts and crowds meet a server with reactors. All of them are those that `test` runs, where the server has none, where what repeats
//! (a server that dies, a host that comes back) does so twice, and the storm lasts a second. Of fio's own tests of zoned drives, `test` runs a dozen and `interop` all. Crash points that take minutes
//! are tried here alone, and each recovery from a crash point is cut, where `test` cuts one of three.

use crate::steps::{Outcome, Steps};
use crate::{file_systems, linux, setup, shell, sqlite, test, zbd};
use std::process::ExitCode;

/// The arguments of `interop`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// How often a test does what it repeats.
    rounds: u32,
    /// How long hosts come and go.
    storm_minutes: u32,
}

/// Some ten minutes.
const ROUNDS_DEFAULT: u32 = 30;
const STORM_MINUTES_DEFAULT: u32 = 10;

impl Options {
    /// Understands the command line.
    pub fn parse(words: &[&str]) -> Result<Options, String> {
        let mut options = Options { rounds: ROUNDS_DEFAULT, storm_minutes: STORM_MINUTES_DEFAULT };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let number = match *word {
                "--rounds" => &mut options.rounds,
                "--storm-minutes" => &mut options.storm_minutes,
                _ => {
                    return Err(format!("`interop` does not know `{word}`; it takes --rounds N and --storm-minutes N"));
                }
            };
            let text = words.next().ok_or(format!("`{word}` wants a number, such as {word} 100"))?;
            *number = match text.parse() {
                Ok(given @ 1..) => given,
                _ => return Err(format!("`{word} {text}` should be a number from 1 up")),
            };
        }
        Ok(options)
    }
}

/// Sets up, builds, and runs the tests one after the other.
pub fn run(options: Options) -> ExitCode {
    let mut steps = Steps::new("interop");
    steps.run("set-up", setup::install);
    let built = steps.run("build for release", || Outcome::of(shell::run(&mut shell::cargo(test::RELEASE))));
    steps.run("fio's tests", zbd::for_tests);
    steps.run("NVMe hosts that are not ours", || {
        if !built {
            return Outcome::Failed("it needs the release build".to_owned());
        }
        let Some(kernel) = linux::kernel() else {
            return Outcome::Failed(format!("{} names no kernel; `cargo xtask linux` builds one", linux::VARIABLE));
        };
        let target = match shell::target_directory() {
            Ok(target) => target,
            Err(error) => return Outcome::Failed(error),
        };
        let arguments = ["test", "--package", "openftl", "--test", "system", "--", "linux", "pynvmeof", "--nocapture"];
        let mut command = shell::cargo(arguments);
        command.env("OPENFTL_BINARY", target.join("release").join("openftl"));
        command.env(linux::VARIABLE, kernel).env("OPENFTL_ROUNDS", options.rounds.to_string());
        if let Some(scripts) = zbd::scripts() {
            command.env(zbd::VARIABLE, scripts).env("OPENFTL_ZBD_TESTS", "all");
        }
        Outcome::of(shell::run(&mut command))
    });
    steps.run("crash points that take minutes", || {
        let words = ["test", "--release", "--package", "openftl-sim", "--test", "crash_points", "--", "every_"];
        let mut command = shell::cargo(words);
        command.args(["--include-ignored", "--nocapture"]).env("OPENFTL_CRASH_POINTS", "all");
        Outcome::of(shell::run(&mut command))
    });
    match shell::target_directory() {
        Ok(target) => {
            sqlite::run(&mut steps, &target);
            file_systems::run(&mut steps, &target, options.rounds);
        }
        Err(error) => _ = steps.run("SQLite's suites and those of file systems", || Outcome::Failed(error)),
    }
    steps.run("rude hosts and crowds, with reactors", || {
        let words =
            ["test", "--package", "openftl-server", "--features", "tls", "--test", "witness", "--test", "nvme_crowds"];
        let (variable, reactors) = test::REACTORS;
        Outcome::of(shell::run(shell::cargo(words).env(variable, reactors)))
    });
    steps.run("hosts that come and go", || {
        let test = "hosts_that_come_and_go_lose_no_completion_and_no_write_that_was_acknowledged";
        let arguments =
            ["test", "--release", "--package", "openftl-server", "--test", "nvme_crowds", "--", test, "--nocapture"];
        let mut command = shell::cargo(arguments);
        command.env("OPENFTL_STORM_MINUTES", options.storm_minutes.to_string());
        Outcome::of(shell::run(&mut command))
    });
    steps.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_are_counted_from_one() {
        let default = Options { rounds: ROUNDS_DEFAULT, storm_minutes: STORM_MINUTES_DEFAULT };
        assert_eq!(Options::parse(&[]), Ok(default));
        assert_eq!(Options::parse(&["--rounds", "7"]), Ok(Options { rounds: 7, ..default }));
        let words = ["--storm-minutes", "60", "--rounds", "1"];
        assert_eq!(Options::parse(&words), Ok(Options { rounds: 1, storm_minutes: 60 }));
        let check =
            |words: &[&str], part: &str| assert!(Options::parse(words).unwrap_err().contains(part), "{words:?}");
        check(&["--rounds", "0"], "--rounds 0");
        check(&["--rounds"], "wants a number");
        check(&["--storm-minutes", "long"], "--storm-minutes long");
        check(&["fast"], "fast");
    }
}
