//! `cargo xtask check`: what a reviewer should never have to say.

use crate::architecture;
use crate::shell;
use crate::steps::{Outcome, Steps};
use crate::test::TLS;
use std::process::ExitCode;

/// Formatting, lints, rules of the house, licences.
pub fn run() -> ExitCode {
    let mut steps = Steps::new("check");
    steps.run("formatting", || {
        component("fmt", "rustfmt")
            .unwrap_or_else(|| Outcome::of(shell::run(&mut shell::cargo(["fmt", "--all", "--check"]))))
    });
    steps.run("lints", || {
        component("clippy", "clippy").unwrap_or_else(|| {
            let features = ["--features", TLS];
            let arguments = [&["clippy", "--workspace", "--all-targets"], &features[..], &["--", "--deny", "warnings"]];
            Outcome::of(shell::run(&mut shell::cargo(arguments.concat())))
        })
    });
    steps.run("documentation links", || {
        let arguments = ["doc", "--workspace", "--features", TLS, "--no-deps", "--document-private-items", "--quiet"];
        let flags = "--deny warnings";
        Outcome::of(shell::run(shell::cargo(arguments).env("RUSTDOCFLAGS", flags)))
    });
    steps.run("the default build, without TLS", || Outcome::of(shell::run(&mut shell::cargo(["check", "--quiet"]))));
    steps.run("no crate in two versions", no_crate_twice);
    steps.run("architecture", architecture::check);
    let has_deny = shell::succeeds(&mut shell::cargo(["deny", "--version"]));
    let no_deny = || Outcome::LeftOut("cargo-deny is not installed (`cargo install --locked cargo-deny`)".to_owned());
    steps.run("licences and sources", || {
        if !has_deny {
            return no_deny();
        }
        Outcome::of(shell::run(&mut shell::cargo(["deny", "check", "licenses", "bans", "sources"])))
    });
    steps.run("security advisories", || {
        if !has_deny {
            return no_deny();
        }
        // The list is on the network, and changes while our code does not.
        if !shell::succeeds(&mut shell::cargo(["deny", "fetch", "db"])) {
            return Outcome::LeftOut("the advisory database cannot be fetched from github.com/RustSec".to_owned());
        }
        Outcome::of(shell::run(&mut shell::cargo(["deny", "--offline", "check", "advisories"])))
    });
    steps.finish()
}

/// A second version of a crate costs every user time to build it.
fn no_crate_twice() -> Outcome {
    let arguments = ["tree", "--edges", "normal,build", "--duplicates", "--depth", "0", "--prefix", "none"];
    let tree = match shell::output(&mut shell::cargo(arguments)) {
        Ok(tree) => tree,
        Err(error) => return Outcome::Failed(error),
    };
    match &unwelcome(&tree)[..] {
        [] => Outcome::Done,
        names => Outcome::Failed(format!(
            "{}: in two versions; `cargo tree --duplicates` says for whom, `cargo update NAME --precise VERSION` chooses one",
            names.join(", ")
        )),
    }
}

/// The crates that `cargo tree` calls duplicates.
fn unwelcome(tree: &str) -> Vec<&str> {
    let mut names: Vec<&str> = tree.lines().filter_map(|line| line.split_once(" v").map(|(name, _)| name)).collect();
    names.dedup();
    names
}

/// `LeftOut` where the toolchain lacks a component.
fn component(subcommand: &str, name: &str) -> Option<Outcome> {
    if shell::succeeds(&mut shell::cargo([subcommand, "--version"])) {
        return None;
    }
    Some(Outcome::LeftOut(format!("the toolchain has no {name} (`rustup component add {name}`)")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crate_in_two_versions_is_named_once() {
        let tree = "digest v0.10.7\n\ndigest v0.11.3\n\nsyn v2.0.119\n\nsyn v3.0.9\n";
        assert_eq!(unwelcome(tree), ["digest", "syn"]);
    }
}
