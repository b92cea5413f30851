//! `cargo xtask interop`: the system tests with NVMe hosts that are not ours, with as many rounds as one has time for.
//!
//! They are those that `test` runs, where what repeats (a server that dies, a host that comes back) does so twice.

use crate::steps::{Outcome, Steps};
use crate::{linux, setup, shell, test};
use std::process::ExitCode;

/// The arguments of `interop`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// How often a test does what it repeats.
    rounds: u32,
}

/// Some ten minutes.
const ROUNDS_DEFAULT: u32 = 30;

impl Options {
    /// Understands the command line.
    pub fn parse(words: &[&str]) -> Result<Options, String> {
        match words {
            [] => Ok(Options { rounds: ROUNDS_DEFAULT }),
            ["--rounds", number] => match number.parse() {
                Ok(rounds @ 1..) => Ok(Options { rounds }),
                _ => Err(format!("`--rounds {number}` should be a number from 1 up")),
            },
            ["--rounds"] => Err("`--rounds` wants a number, such as --rounds 100".to_owned()),
            [word, ..] => Err(format!("`interop` does not know `{word}`; it takes --rounds N")),
        }
    }
}

/// Sets up, builds, and runs the tests one after the other.
pub fn run(options: Options) -> ExitCode {
    let mut steps = Steps::new("interop");
    steps.run("set-up", setup::install);
    let built = steps.run("build for release", || Outcome::of(shell::run(&mut shell::cargo(test::RELEASE))));
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
        Outcome::of(shell::run(&mut command))
    });
    steps.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_are_counted_from_one() {
        assert_eq!(Options::parse(&[]), Ok(Options { rounds: ROUNDS_DEFAULT }));
        assert_eq!(Options::parse(&["--rounds", "7"]), Ok(Options { rounds: 7 }));
        let check =
            |words: &[&str], part: &str| assert!(Options::parse(words).unwrap_err().contains(part), "{words:?}");
        check(&["--rounds", "0"], "--rounds 0");
        check(&["--rounds"], "wants a number");
        check(&["fast"], "fast");
    }
}
