//! `cargo xtask check`: what a reviewer should never have to say.

use crate::shell;
use crate::steps::{Outcome, Steps};
use crate::test::TLS;
use std::process::ExitCode;

/// Formatting, lints, licences.
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
    steps.run("the default build, without TLS", || {
        Outcome::of(shell::run(&mut shell::cargo(["check", "--package", "openftl", "--quiet"])))
    });
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

/// `LeftOut` where the toolchain lacks a component.
fn component(subcommand: &str, name: &str) -> Option<Outcome> {
    if shell::succeeds(&mut shell::cargo([subcommand, "--version"])) {
        return None;
    }
    Some(Outcome::LeftOut(format!("the toolchain has no {name} (`rustup component add {name}`)")))
}
