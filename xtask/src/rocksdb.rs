//! `cargo xtask rocksdb`: a real RocksDB with the plugin that puts its files on table drives, for figures and for tests.
//!
//! ```text
//!   crate librocksdb-sys ──▶ sources of RocksDB ──▶ target/rocksdb: db_bench, tools, db_stress, librocksdb.so ◀┐ loads
//!   this project ──▶ libopenftl.a ──▶ bindings/rocksdb ──▶ target/rocksdb/libopenftl_rocksdb.so ───────────────┘
//! ```
//!
//! What is there is kept; only the plugin follows the project. With `--debian` no RocksDB is built: the packages of Debian
//! have its programs, and [`debian`] adds the one that they lack. They are slower, because their assertions are on: for tests,
//! not for figures.
//!
//! Both end with a trial, so that a plugin that does not fit fails here, and with the command lines that put RocksDB on a drive.

mod debian;

use crate::shell;
use crate::steps::{Outcome, Steps};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// db_bench asks for Snappy by itself, and ends where RocksDB was built on a machine that has none.
const NO_COMPRESSION: &str = "--compression_type=none";

/// Names the folder with RocksDB's programs and the plugin.
pub const VARIABLE: &str = "OPENFTL_ROCKSDB";

/// The plugin that programs of RocksDB load.
const PLUGIN: &str = "libopenftl_rocksdb.so";

/// The crate that carries the whole tree of RocksDB, the checksum that the registry has for it, and the version of both.
const CRATE: &str = "librocksdb-sys";
const CRATE_VERSION: &str = "0.19.0";
const CRATE_CHECKSUM: &str = "4f45e86edad8e88efe97dbf384b4e48e1ff0f111eabf154c7b09d7a1e5fb573c";
const ROCKSDB_VERSION: &str = "11.8.1";

/// Programs that the build needs, and the Debian packages that hold them.
const PROGRAMS: [(&str, &str); 3] = [("c++", "g++"), ("cmake", "cmake"), ("ninja", "ninja-build")];

/// Headers that it needs, and the same of them.
const HEADERS: [(&str, &str); 2] =
    [("/usr/include/gflags/gflags.h", "libgflags-dev"), ("/usr/include/liburing.h", "liburing-dev")];

/// How RocksDB is built: optimised, with what its programs and the plugin need.
const OPTIONS: [&str; 15] = [
    "-DCMAKE_BUILD_TYPE=Release",
    "-DCMAKE_UNITY_BUILD=ON",
    "-DCMAKE_UNITY_BUILD_BATCH_SIZE=16",
    "-DCMAKE_BUILD_WITH_INSTALL_RPATH=ON",
    "-DCMAKE_INSTALL_RPATH=$ORIGIN:$ORIGIN/..",
    "-DROCKSDB_BUILD_SHARED=ON",
    "-DWITH_BENCHMARK_TOOLS=ON",
    "-DWITH_CORE_TOOLS=ON",
    "-DWITH_TOOLS=ON",
    "-DWITH_GFLAGS=ON",
    "-DWITH_LIBURING=ON",
    "-DWITH_TESTS=OFF",
    "-DUSE_RTTI=1",
    "-DFAIL_ON_WARNINGS=OFF",
    "-DPORTABLE=1",
];

/// What is kept of the build, where it is there and in the folder.
const KEPT: [&str; 5] = ["db_bench", "tools/ldb", "tools/sst_dump", "db_stress_tool/db_stress", "librocksdb.so.11"];

/// The arguments of `rocksdb`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// Whether Debian's packages are used.
    debian: bool,
}

impl Options {
    /// Understands the command line.
    pub fn parse(words: &[&str]) -> Result<Options, String> {
        match words {
            [] => Ok(Options { debian: false }),
            ["--debian"] => Ok(Options { debian: true }),
            [word, ..] => Err(format!("`rocksdb` does not know `{word}`; it takes --debian")),
        }
    }
}

/// Builds what is not there yet.
pub fn run(options: Options) -> ExitCode {
    let mut steps = Steps::new("rocksdb");
    let advice = match shell::target_directory() {
        Ok(target) if options.debian => debian::build(&mut steps, &target),
        Ok(target) => build(&mut steps, &target),
        Err(error) => {
            eprintln!("cargo xtask rocksdb: {error}");
            return ExitCode::FAILURE;
        }
    };
    let code = steps.finish();
    if let Some(advice) = advice {
        println!("\n{advice}");
    }
    code
}

/// Makes what system tests need: Debian's RocksDB, with the plugin for it.
pub fn for_tests() -> Outcome {
    match shell::target_directory() {
        Ok(target) => debian::prepare(&target),
        Err(error) => Outcome::Failed(error),
    }
}

/// The folder of that.
pub fn of_tests(target: &Path) -> PathBuf {
    debian::folder(target)
}

/// Builds RocksDB and the plugin, and returns what can be done with them.
fn build(steps: &mut Steps, target: &Path) -> Option<String> {
    let folder = target.join("rocksdb");
    if !is_built(&folder) && !build_rocksdb(steps, &folder) {
        return None;
    }
    let headers = folder.join("include");
    let built = steps.run("plugin", || Outcome::of(plugin(target, &RELEASED, &folder, &headers, "librocksdb.so.11")));
    let db_bench = folder.join("db_bench").display().to_string();
    if !built || !steps.run("trial", || Outcome::of(trial(&folder, &db_bench))) {
        return None;
    }
    Some(format!(
        "`openftl reproduce` (ox-lightlsm, ycsb-rocksdb) and `cargo xtask bench rocksdb` find this RocksDB by themselves.\n{}",
        how_to_use(&folder, &db_bench)
    ))
}

/// Has a step fail that a later one cannot do without.
fn required(outcome: Outcome) -> Outcome {
    match outcome {
        Outcome::LeftOut(reason) => Outcome::Failed(reason),
        other => other,
    }
}

/// What a trial needs no file for.
const TRIAL_DRIVE: &str = "\
description = \"A small table drive in memory, gone with the program\"

[media]
capacity = \"64MiB\"
store = \"ram\"
timing = \"instant\"

[ftl]
kind = \"tables\"
log_area = \"16MiB\"
";

/// Runs `db_bench` with the plugin of `folder` for a moment.
fn trial(folder: &Path, db_bench: &str) -> Result<(), String> {
    let drive = folder.join("trial.toml");
    std::fs::write(&drive, TRIAL_DRIVE).map_err(|error| format!("cannot write {}: {error}", drive.display()))?;
    let mut command = Command::new("env");
    command.arg(preload(folder)).arg(db_bench).arg(format!("--fs_uri=openftl://{}", drive.display()));
    shell::run(command.args(["--db=/db", "--benchmarks=fillseq,readrandom", "--num=1000", NO_COMPRESSION]))
}

/// The variable that has a program load the plugin of `folder`.
fn preload(folder: &Path) -> String {
    format!("LD_PRELOAD={}", folder.join(PLUGIN).display())
}

/// What to type to have RocksDB on a drive in a file.
fn how_to_use(folder: &Path, db_bench: &str) -> String {
    let drives = shell::root().join("drives");
    let (drive, disk) = (drives.join("lightlsm.toml"), drives.join("lightlsm.oftl"));
    let make = if disk.exists() {
        String::new()
    } else {
        let (drive, disk) = (drive.display(), disk.display());
        format!("cargo run --release -- create {disk} --drive {drive}\n")
    };
    format!(
        "\nRocksDB on a table drive:\n{make}env {} {db_bench} --fs_uri=openftl://{} --db=/db \
         --benchmarks=fillseq,readrandom --reads=10000 {NO_COMPRESSION}",
        preload(folder),
        drive.display()
    )
}

/// What the folder was built from, as it is noted there.
fn recipe() -> String {
    format!("RocksDB {ROCKSDB_VERSION} of {CRATE} {CRATE_VERSION}, {CRATE_CHECKSUM}\n{}\n", OPTIONS.join("\n"))
}

fn is_built(folder: &Path) -> bool {
    std::fs::read_to_string(folder.join("recipe")).is_ok_and(|kept| kept == recipe())
}

fn build_rocksdb(steps: &mut Steps, folder: &Path) -> bool {
    let work = folder.join("work");
    let mut source = PathBuf::new();
    steps.run("programs", || required(install(&PROGRAMS, &HEADERS)))
        && steps.run("sources", || match sources(&work) {
            Ok(found) => {
                source = found;
                Outcome::Done
            }
            Err(error) => Outcome::Failed(error),
        })
        && steps.run("RocksDB, about 14 minutes of one core", || Outcome::of(compile(&source, &work)))
        && steps.run("keep it", || Outcome::of(keep(&source, &work, folder)))
}

/// Installs the packages of programs and headers that are not there.
fn install(programs: &[(&str, &'static str)], files: &[(&str, &'static str)]) -> Outcome {
    let programs = programs.iter().filter(|(program, _)| shell::find(program).is_none());
    let files = files.iter().filter(|(file, _)| !Path::new(file).exists());
    let packages: Vec<&str> = programs.chain(files).map(|(_, package)| *package).collect();
    crate::setup::install_packages(&packages)
}

/// Has cargo fetch the crate, from the registry that it is configured for, and returns the folder of RocksDB in it.
fn sources(work: &Path) -> Result<PathBuf, String> {
    let failed = |error: std::io::Error| format!("cannot write to {}: {error}", work.display());
    let package = work.join("fetch");
    std::fs::create_dir_all(package.join("src")).map_err(failed)?;
    let manifest = format!(
        "[package]\nname = \"fetch\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[workspace]\n\n[dependencies]\n\
         {CRATE} = {{ version = \"={CRATE_VERSION}\", default-features = false }}\n"
    );
    std::fs::write(package.join("Cargo.toml"), manifest).map_err(failed)?;
    std::fs::write(package.join("src").join("lib.rs"), "").map_err(failed)?;
    let cargo = || {
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command.current_dir(&package).stdin(std::process::Stdio::null());
        command
    };
    shell::run(cargo().args(["generate-lockfile", "--quiet"]))?;
    let lock = std::fs::read_to_string(package.join("Cargo.lock")).map_err(|error| format!("Cargo.lock: {error}"))?;
    let checksum = checksum_of(&lock, CRATE).ok_or_else(|| format!("Cargo.lock has no checksum of {CRATE}"))?;
    if checksum != CRATE_CHECKSUM {
        return Err(format!("the registry has {CRATE} {CRATE_VERSION} with checksum {checksum}, not {CRATE_CHECKSUM}"));
    }
    shell::run(cargo().args(["vendor", "--quiet", "--locked", "vendor"]).stdout(std::process::Stdio::null()))?;
    Ok(package.join("vendor").join(CRATE).join("rocksdb"))
}

/// The checksum of a package in a lock file.
fn checksum_of<'a>(lock: &'a str, package: &str) -> Option<&'a str> {
    let entry = lock.split("[[package]]").find(|entry| entry.contains(&format!("name = \"{package}\"\n")))?;
    let line = entry.lines().find_map(|line| line.strip_prefix("checksum = "))?;
    Some(line.trim_matches('"'))
}

fn compile(source: &Path, work: &Path) -> Result<(), String> {
    let built = work.join("built");
    let mut configure = Command::new("cmake");
    configure.arg("-S").arg(source).arg("-B").arg(&built).args(["-G", "Ninja"]).args(OPTIONS);
    shell::run(&mut configure)?;
    let targets = ["rocksdb-shared", "db_bench", "db_stress", "ldb", "sst_dump"];
    shell::run(Command::new("cmake").arg("--build").arg(&built).arg("--target").args(targets))
}

fn keep(source: &Path, work: &Path, folder: &Path) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("cannot keep RocksDB in {}: {error}", folder.display());
    for name in KEPT {
        let kept = folder.join(name);
        std::fs::create_dir_all(kept.parent().expect("it is in the folder")).map_err(failed)?;
        std::fs::copy(work.join("built").join(name), kept).map_err(failed)?;
    }
    shell::run(Command::new("cp").arg("-R").arg(source.join("include")).arg(folder))?;
    std::fs::remove_dir_all(work).map_err(failed)?;
    std::fs::write(folder.join("recipe"), recipe()).map_err(failed)
}

/// The table drive that is linked into a plugin: how cargo builds it, and where it puts it.
struct Library {
    build: &'static [&'static str],
    folder: &'static str,
}

/// For use.
const RELEASED: Library = Library { build: &["build", "--release", "--package", "openftl-c"], folder: "release" };

/// For tests: from the build of all of them, so that nothing is compiled twice.
const TESTED: Library =
    Library { build: &["build", "--workspace", "--features", crate::test::FEATURES], folder: "debug" };

/// Builds the plugin for the RocksDB with these headers, its tests, and the program that replays requests, into `folder`.
fn plugin(target: &Path, drive: &Library, folder: &Path, headers: &Path, library: &str) -> Result<(), String> {
    shell::run(&mut shell::cargo(drive.build.iter().copied()))?;
    let built = folder.join("plugin");
    let mut configure = Command::new("cmake");
    configure.arg("-S").arg(shell::root().join("bindings").join("rocksdb")).arg("-B").arg(&built);
    configure.arg(setting("ROCKSDB_INCLUDE_DIR", headers));
    configure.arg(setting("OPENFTL_LIBRARY", &target.join(drive.folder).join("libopenftl.a")));
    let library = folder.join(library);
    if library.exists() {
        configure.arg(setting("ROCKSDB_LIBRARY", &library));
    }
    configure.args(["-G", "Ninja", "-DOPENFTL_ROCKSDB_TESTS=ON", "-DCMAKE_BUILD_WITH_INSTALL_RPATH=ON"]);
    shell::run(configure.arg("-DCMAKE_INSTALL_RPATH=$ORIGIN"))?;
    shell::run(Command::new("cmake").arg("--build").arg(&built))?;
    for name in [PLUGIN, "operations", "full_drive", "replay"] {
        std::fs::copy(built.join(name), folder.join(name))
            .map_err(|error| format!("cannot keep {name} in {}: {error}", folder.display()))?;
    }
    Ok(())
}

fn setting(name: &str, path: &Path) -> String {
    format!("-D{name}={}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_that_of_the_package() {
        let lock = "version = 4\n\n[[package]]\nname = \"librocksdb-sys\"\nversion = \"1\"\nchecksum = \"ab\"\n\n\
                    [[package]]\nname = \"libc\"\nchecksum = \"cd\"\n";
        assert_eq!(checksum_of(lock, "libc"), Some("cd"));
        assert_eq!(checksum_of(lock, "librocksdb-sys"), Some("ab"));
        assert_eq!(checksum_of(lock, "rocksdb"), None);
    }

    #[test]
    fn a_word_that_is_not_known_is_named() {
        assert_eq!(Options::parse(&["--debian"]), Ok(Options { debian: true }));
        assert!(Options::parse(&["--fedora"]).unwrap_err().contains("`--fedora`"));
    }

    #[test]
    fn what_to_type_names_a_plugin_and_a_drive_by_paths_that_hold_anywhere() {
        let text = how_to_use(Path::new("/target/rocksdb"), "/target/rocksdb/db_bench");
        let line = text.lines().last().unwrap();
        let root = shell::root();
        assert!(
            line.starts_with("env LD_PRELOAD=/target/rocksdb/libopenftl_rocksdb.so /target/rocksdb/db_bench "),
            "{line}"
        );
        assert!(line.contains(&format!("--fs_uri=openftl://{}/drives/lightlsm.toml ", root.display())), "{line}");
        assert!(root.join("drives/lightlsm.toml").is_file());
    }

    #[test]
    fn what_is_not_installed_fails_the_build_of_a_plugin() {
        assert_eq!(required(Outcome::LeftOut("no g++".into())), Outcome::Failed("no g++".into()));
        assert_eq!(required(Outcome::Done), Outcome::Done);
    }

    #[test]
    fn the_recipe_says_what_was_built() {
        assert!(recipe().starts_with("RocksDB 11.8.1 of librocksdb-sys 0.19.0"));
        assert!(!is_built(Path::new("nowhere")));
    }
}
