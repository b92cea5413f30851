//! Commands that are programs of their own, beside this one.
//!
//! ```text
//!   openftl alfs mount disk.oftl /mnt ── becomes ──▶ openftl-alfs, with the same words
//! ```
//!
//! What only they need takes half of the time of a build, so a new user gets to see a drive without it. Under `cargo run` the program is
//! built when it is first asked for.

use crate::failure::Failure;
use crate::provenance::VERSION;
use std::convert::Infallible;
use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Names the version of the program that becomes another one.
const VARIABLE: &str = "OPENFTL_VERSION";

/// Goes on as the program of the command `name`, with the words of this one. Returns only if that is not possible.
pub fn go_on_as(name: &str) -> Result<(), Failure> {
    match become_program(name) {
        Ok(never) => match never {},
        Err(failure) => Err(failure),
    }
}

fn become_program(name: &str) -> Result<Infallible, Failure> {
    let itself = std::env::current_exe().map_err(Failure::failed)?;
    let program = itself.with_file_name(format!("openftl-{name}"));
    if let Some(cargo) = cargo_that_runs(std::env::var_os("CARGO_PKG_NAME").as_deref()) {
        build(&cargo, name, &program)?;
    }
    let words = std::env::args_os();
    let error = Command::new(&program).arg0("openftl").args(words.skip(1)).env(VARIABLE, VERSION).exec();
    Err(match error.kind() {
        std::io::ErrorKind::NotFound => Failure::bad_input(format_args!(
            "`openftl {name}` is a program of its own, and not there: {}",
            program.display()
        ))
        .fix(format_args!(
            "cargo build --release --package openftl-{name}-command, or cargo install --path apps/{name}"
        )),
        _ => Failure::failed(error).about(program.display()),
    })
}

/// What `cargo run` says of itself to the program of the package `openftl`.
fn cargo_that_runs(package: Option<&OsStr>) -> Option<PathBuf> {
    let is_ours = package == Some(OsStr::new(env!("CARGO_PKG_NAME")));
    std::env::var_os("CARGO").filter(|_| is_ours).map(PathBuf::from)
}

/// Has cargo build `program` as it has built this one. Nothing happens if it is up to date.
fn build(cargo: &Path, name: &str, program: &Path) -> Result<(), Failure> {
    let folder = program.parent().and_then(|folder| Some((folder.file_name()?.to_str()?, folder.parent()?)));
    let Some((profile, target)) = folder else { return Ok(()) };
    let profile = if profile == "debug" { "dev" } else { profile };
    let package = format!("openftl-{name}-command");
    let mut build = Command::new(cargo);
    build.args(["build", "--profile", profile, "--package", &package, "--target-dir"]).arg(target);
    if let Some(folder) = std::env::var_os("CARGO_MANIFEST_DIR") {
        build.arg("--manifest-path").arg(PathBuf::from(folder).join("Cargo.toml"));
    }
    let status = build.status().map_err(|error| Failure::failed(error).about(cargo.display()))?;
    match status.success() {
        true => Ok(()),
        false => Err(Failure::failed(format_args!("cargo did not build {package}"))),
    }
}

/// Refuses to go on for an `openftl` that was built of something else.
pub fn check_version(name: &str) -> Result<(), Failure> {
    match std::env::var(VARIABLE) {
        Ok(version) if version != VERSION => Err(Failure::bad_input(format_args!(
            "openftl has version {version}, and openftl-{name} beside it {VERSION}"
        ))
        .fix("build or install both of them anew")),
        _ => Ok(()),
    }
}

/// What the program of the command `name` says to the words of another one.
pub fn is_another(name: &str) -> Failure {
    Failure::bad_input(format_args!("openftl-{name} has the command `{name}` and no other")).fix("call openftl")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cargo_builds_for_nobody_else_that_it_runs() {
        assert_eq!(cargo_that_runs(Some(OsStr::new("xtask"))), None);
        assert_eq!(cargo_that_runs(None), None);
    }
}
