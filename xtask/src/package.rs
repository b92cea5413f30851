//! `cargo xtask package`: what people install OpenFTL with, made and tried.
//!
//! ```text
//!   cargo build --profile dist ──▶ openftl ── man, completions ──▶ target/dist/package ──▶ cargo deb ──▶ target/debian/*.deb
//! ```
//!
//! | word | makes |
//! |---|---|
//! | `files` | the program as packages have it, the manual, the completions |
//! | `deb` | a Debian package of them, by the metadata in apps/openftl/Cargo.toml |
//! | `install` | tries `cargo install` into a folder of its own, and runs what is there from an empty folder |

use crate::shell;
use crate::steps::{Outcome, Steps};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// How packages have the program built: with what the default build leaves out. The Containerfile does the same.
pub const BUILD: [&str; 6] = ["build", "--locked", "--profile", "dist", "--features", crate::test::TLS];

/// How `cargo install` builds a program, from a checkout.
const INSTALL: [&str; 3] = ["install", "--locked", "--path"];

/// The folders of the programs: `openftl`, and the commands that are programs of their own.
const PROGRAMS: [&str; 5] = ["apps/openftl", "apps/alfs", "apps/explore", "apps/files", "apps/reproduce"];

/// Completions: the shell, and the name that the file has where the shell looks for it.
const COMPLETIONS: [(&str, &str); 3] = [("bash", "openftl.bash"), ("zsh", "_openftl"), ("fish", "openftl.fish")];

/// What is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Options {
    /// The files of packages.
    Files,
    /// A Debian package.
    Deb {
        /// Whether cargo-deb is installed if it is missing.
        install_cargo_deb: bool,
    },
    /// A trial of `cargo install`.
    Install,
}

impl Options {
    /// Understands the command line.
    pub fn parse(words: &[&str]) -> Result<Options, String> {
        match words {
            ["files"] => Ok(Options::Files),
            ["deb"] => Ok(Options::Deb { install_cargo_deb: false }),
            ["deb", "--install-cargo-deb"] => Ok(Options::Deb { install_cargo_deb: true }),
            ["install"] => Ok(Options::Install),
            [] => Err("`package` makes files, deb or install; say which".to_owned()),
            words => Err(format!(
                "`package` does not know `{}`; it makes files, deb [--install-cargo-deb] or install",
                words.join(" ")
            )),
        }
    }
}

/// Makes it.
pub fn run(options: Options) -> ExitCode {
    let mut steps = Steps::new("package");
    let target = match shell::target_directory() {
        Ok(target) => target,
        Err(error) => {
            eprintln!("cargo xtask package: {error}");
            return ExitCode::FAILURE;
        }
    };
    match options {
        Options::Files => _ = make_files(&mut steps, &target),
        Options::Deb { install_cargo_deb } => {
            let ready = steps.run("cargo-deb", || cargo_deb(install_cargo_deb));
            if ready && make_files(&mut steps, &target) {
                steps.run("Debian package", || Outcome::of(shell::run(&mut shell::cargo(DEB))));
            }
        }
        Options::Install => {
            let root = target.join("package-install");
            let install = || {
                let install = |folder: &&str| {
                    let mut command = shell::cargo(INSTALL);
                    command.arg(folder).arg("--force").arg("--root").arg(&root);
                    shell::run(&mut command)
                };
                Outcome::of(PROGRAMS.iter().try_for_each(install))
            };
            if steps.run("cargo install", install) {
                steps.run("what it installs works in an empty folder", || Outcome::of(use_installed(&root)));
            }
        }
    }
    steps.finish()
}

/// The package of what was built before. The program is small already: `dist` strips it.
const DEB: [&str; 6] = ["deb", "--package", "openftl", "--profile", "dist", "--no-build"];

fn cargo_deb(install: bool) -> Outcome {
    if shell::succeeds(&mut shell::cargo(["deb", "--version"])) {
        return Outcome::Done;
    }
    let command = ["install", "--locked", "cargo-deb"];
    match install {
        true => Outcome::of(shell::run(&mut shell::cargo(command))),
        false => Outcome::Failed(
            "cargo-deb is not installed: `cargo install --locked cargo-deb` does it, and so does --install-cargo-deb here"
                .to_owned(),
        ),
    }
}

/// Builds the program and what is made by it, and returns whether all of it is there.
fn make_files(steps: &mut Steps, target: &Path) -> bool {
    steps.run("build with TLS, optimised as a whole", || Outcome::of(shell::run(&mut shell::cargo(BUILD))))
        && steps.run("manual and completions", || Outcome::of(write_files(&target.join("dist"))))
}

/// Has the program in `built` write its manual and its completions into a folder beside it.
fn write_files(built: &Path) -> Result<(), String> {
    let (program, folder) = (built.join("openftl"), built.join("package"));
    // What an older program has written may have other names.
    match std::fs::remove_dir_all(&folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(format!("cannot remove {}: {error}", folder.display()));
        }
        _ => {}
    }
    std::fs::create_dir_all(&folder).map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
    let manual = folder.join("man");
    shell::run(Command::new(&program).arg("man").arg(&manual))?;
    // As Debian has them: as small as can be, without a time.
    let pages = std::fs::read_dir(&manual).map_err(|error| format!("cannot read {}: {error}", manual.display()))?;
    shell::run(Command::new("gzip").arg("-9n").args(pages.flatten().map(|page| page.path())))?;
    for (name, file) in COMPLETIONS {
        let script = shell::output(Command::new(&program).args(["completions", name]))?;
        let file = folder.join(file);
        std::fs::write(&file, script).map_err(|error| format!("cannot write {}: {error}", file.display()))?;
        println!("{}", file.display());
    }
    Ok(())
}

/// Runs the program that `cargo install` has put below `root`, where there is no file of the project.
fn use_installed(root: &Path) -> Result<(), String> {
    let program: PathBuf = root.join("bin").join("openftl");
    let empty = root.join("empty");
    let failed = |error: std::io::Error| format!("{}: {error}", empty.display());
    _ = std::fs::remove_dir_all(&empty);
    std::fs::create_dir_all(&empty).map_err(failed)?;
    let openftl = |words: &[&str]| {
        let mut command = Command::new(&program);
        command.args(words).current_dir(&empty);
        command
    };
    shell::run(&mut openftl(&["demo", "--drive-writes", "1"]))?;
    let profiles = shell::output(&mut openftl(&["profiles"]))?;
    if !profiles.contains("cosmos") {
        return Err(format!("`openftl profiles` names no cosmos: {profiles}"));
    }
    shell::run(&mut openftl(&["explore", "--runs", "1"]))?;
    shell::run(&mut openftl(&["reproduce", "--list"]))?;
    // A drive description in hand, as one from drives/ is.
    let description = shell::root().join("drives").join("cosmos-block.toml");
    std::fs::copy(description, empty.join("disk.toml")).map_err(failed)?;
    shell::run(&mut openftl(&["create", "disk.oftl", "--drive", "disk.toml"]))?;
    shell::run(&mut openftl(&["check", "disk.oftl"]))?;
    let description = shell::root().join("drives").join("amf.toml");
    std::fs::copy(description, empty.join("amf.toml")).map_err(failed)?;
    shell::run(&mut openftl(&["create", "amf.oftl", "--drive", "amf.toml"]))?;
    shell::run(&mut openftl(&["alfs", "mkfs", "amf.oftl"]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(path: &str) -> String {
        std::fs::read_to_string(shell::root().join(path)).unwrap()
    }

    #[test]
    fn what_is_no_package_is_named() {
        assert_eq!(Options::parse(&["deb"]), Ok(Options::Deb { install_cargo_deb: false }));
        assert_eq!(Options::parse(&["deb", "--install-cargo-deb"]), Ok(Options::Deb { install_cargo_deb: true }));
        assert!(Options::parse(&["rpm"]).unwrap_err().contains("`rpm`"));
        assert!(Options::parse(&["files", "now"]).unwrap_err().contains("`files now`"));
    }

    /// The files of the project that cargo-deb is told to take: of the package's folder, without those that are built.
    #[test]
    fn everything_that_the_debian_package_takes_from_the_project_is_there() {
        let manifest = read("apps/openftl/Cargo.toml");
        let assets = manifest.split_once("assets = [").and_then(|(_, rest)| rest.split_once("\n]")).unwrap().0;
        let sources =
            assets.lines().filter_map(|line| line.trim().strip_prefix("[\"")?.split_once('"')).map(|(path, _)| path);
        let mut files = 0;
        for source in sources.filter(|source| !source.starts_with("target/")) {
            let path = shell::root().join("apps/openftl").join(source);
            let is_there = match path.file_name().and_then(|name| name.to_str()?.strip_prefix('*')) {
                None => path.is_file(),
                Some(ending) => path
                    .parent()
                    .unwrap()
                    .read_dir()
                    .unwrap()
                    .any(|entry| entry.unwrap().file_name().to_str().unwrap().ends_with(ending)),
            };
            assert!(is_there, "{source}");
            files += 1;
        }
        assert!(files > 5, "{files} files in {assets}");
        for (_, file) in COMPLETIONS {
            assert!(assets.contains(&format!("target/release/package/{file}")), "{file}");
        }
    }

    #[test]
    fn the_containerfile_builds_as_packages_do_with_the_toolchain_of_the_project() {
        let text = read("Containerfile").replace("\\\n", " ");
        let cargo = format!("cargo {}", BUILD.join(" "));
        let lines: Vec<String> =
            text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        let builds: Vec<&String> =
            lines.iter().filter(|line| line.starts_with("RUN ") && line.contains("cargo ")).collect();
        assert_eq!(builds, [&format!("RUN {cargo}")]);
        let toolchain = read("rust-toolchain.toml");
        let version = toolchain.split_once("channel = \"").unwrap().1.split_once('"').unwrap().0;
        assert!(
            lines.iter().any(|line| line.starts_with(&format!("FROM docker.io/library/rust:{version}-"))),
            "{text}"
        );
    }

    #[test]
    fn everything_that_the_containerfile_copies_is_there() {
        let text = read("Containerfile");
        let mut copied = Vec::new();
        for line in text.lines().filter_map(|line| line.strip_prefix("COPY ")) {
            let words: Vec<&str> = line.split_whitespace().filter(|word| !word.starts_with("--chmod")).collect();
            let (_, sources) = words.split_last().unwrap();
            match sources {
                ["--from=build", built @ ..] => {
                    let names = PROGRAMS.map(|folder| match folder.strip_prefix("apps/") {
                        Some("openftl") | None => "/src/target/dist/openftl".to_owned(),
                        Some(command) => format!("/src/target/dist/openftl-{command}"),
                    });
                    assert_eq!(built, names, "{line}");
                }
                sources => copied.extend(sources.iter().map(|source| (*source).to_owned())),
            }
        }
        for source in &copied {
            assert!(shell::root().join(source).exists(), "COPY {source}");
        }
        // Cargo wants every member of the workspace, also those that it does not build.
        let manifest = read("Cargo.toml");
        let members = manifest.split_once("members = [").unwrap().1.split_once(']').unwrap().0;
        for member in members.split(',').filter_map(|member| member.trim().strip_prefix('"')?.strip_suffix('"')) {
            let folder = member.split('/').next().unwrap();
            assert!(copied.iter().any(|source| source == folder), "member {member} is not copied");
        }
    }
}
