//! `cargo xtask`: everything a contributor does, by one name each.
//!
//! | command | does | file |
//! |---|---|---|
//! | `check` | formatting, lints, licences | [`check`] |
//! | `test` | set-up, unit tests, system tests | [`mod@test`] |
//! | `bench` | measures the figures the project promises | [`mod@bench`] |
//! | `book` | the pages of `docs` as a book | [`book`] |
//! | `setup` | installs what the system tests need | [`setup`] |
//! | `fuzz` | libFuzzer on every parser | [`fuzz`] |
//! | `linux` | builds the Linux kernel that system tests use as an NVMe host | [`linux`] |
//! | `file-traces` | records what ext4, F2FS and btrfs of that kernel write, for experiments | [`file_traces`] |
//! | `rocksdb` | a real RocksDB with the plugin for it | [`rocksdb`] |
//! | `sqlite` | SQLite's own suites on a store of pages | [`mod@sqlite`] |
//! | `file-systems` | suites and programs of others on a mounted ALFS | [`file_systems`] |
//! | `package` | what people install OpenFTL with | [`package`] |
//! | `interop` | the tests with that kernel over many rounds, SQLite's own suites, and a storm of hosts | [`interop`] |
//!
//! Each is a list of named [`steps`], and ends with what happened to each of them.

mod architecture;
mod bench;
mod book;
mod check;
mod file_systems;
mod file_traces;
mod fuzz;
mod interop;
mod linux;
mod package;
mod rocksdb;
mod setup;
mod shell;
mod sqlite;
mod steps;
mod table;
mod test;
mod zbd;

use std::process::ExitCode;

const HELP: &str = "\
cargo xtask: what a contributor does

  cargo xtask check                    formatting, clippy without warnings, licences (where cargo-deny is installed)
  cargo xtask test [--require-all]     everything: sets up where it may, then unit tests and system tests.
                                       Tests that cannot run here are listed with the reason;
                                       with --require-all that is a failure, but where no registry has what is missing
  cargo xtask test --quick             what needs no client and few minutes
  cargo xtask bench [FIGURE…] [--json] the figures the project promises, measured here (FIGURE: one of
                                       software-cost, simulation, waf, open-time, recovery,
                                       wall-clock, nbd, nvme, rocksdb;
                                       all of them if none is named)
  cargo xtask book                     makes a book of the pages of docs, in the folder book where cargo builds (where mdbook
                                       is installed)
  cargo xtask setup                    installs the programs that system tests use (root, Debian packages),
                                       or prints what to install
  cargo xtask fuzz [TARGET] [--seconds N]
                                       libFuzzer on TARGET, or on each target in turn, N seconds each (60); the
                                       targets are the folders of fuzz/corpus
  cargo xtask fuzz --short             a few seconds for each target, as `test` does
  cargo xtask fuzz TARGET --input FILE runs one input once, such as one that failed
  cargo xtask linux                    builds a Linux kernel that runs as a process, from Debian's linux-source; tests with
                                       Linux as the NVMe host boot it, or the one that OPENFTL_LINUX_UML names
  cargo xtask file-traces [NAME...]    records what ext4, F2FS and btrfs of that kernel write for loads of files and for SQLite: the
                                       recordings that `openftl reproduce` amf, zns and ox-eleos replay, or those that are named (root,
                                       about six minutes)
  cargo xtask rocksdb [--debian]       builds RocksDB in the folder rocksdb where cargo builds, and the plugin for table drives;
                                       with --debian the packages of Debian are used, and db_stress and the plugin are
                                       built for them: for tests, not for figures. Ends with the lines that put RocksDB
                                       on a drive
  cargo xtask sqlite                   SQLite's own programs and scripts, from Debian's source package, built with the VFS and run on
                                       stores of pages
  cargo xtask file-systems [--rounds N]
                                       pjdfstest, fsx, stress-ng and other programs on a mounted file system (ALFS), also under
                                       kill -9 and power cuts; fsx with N seeds, crashes N times (30)
  cargo xtask package files            the program as packages have it (profile dist, with TLS), manual and completions
  cargo xtask package deb [--install-cargo-deb]
                                       a Debian package of them, with cargo-deb
  cargo xtask package install          tries `cargo install` into a folder of its own
  cargo xtask interop [--rounds N] [--storm-minutes N]
                                       the tests in which Linux is the NVMe host, where they repeat something N times (30),
                                       and hosts that come and go for so long (10); also those with an initiator in user
                                       space that OPENFTL_PYNVMEOF names, all of fio's own tests of zoned drives, and what
                                       `sqlite` and `file-systems` run

Exit codes: 0 all is well, 1 a step failed, 2 the command line is wrong.";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    if words.iter().any(|word| matches!(*word, "-h" | "--help")) {
        println!("{HELP}");
        return ExitCode::SUCCESS;
    }
    let result = match words.split_first() {
        None | Some((&"help", _)) => {
            println!("{HELP}");
            Ok(ExitCode::SUCCESS)
        }
        Some((&"check", rest)) => no_arguments("check", rest).map(|()| check::run()),
        Some((&"linux", rest)) => no_arguments("linux", rest).map(|()| linux::run()),
        Some((&"file-traces", rest)) => Ok(file_traces::run(rest)),
        Some((&"package", rest)) => package::Options::parse(rest).map(package::run),
        Some((&"rocksdb", rest)) => rocksdb::Options::parse(rest).map(rocksdb::run),
        Some((&"sqlite", rest)) => no_arguments("sqlite", rest).map(|()| sqlite::command()),
        Some((&"file-systems", rest)) => file_systems::command(rest),
        Some((&"interop", rest)) => interop::Options::parse(rest).map(interop::run),
        Some((&"book", rest)) => book::Options::parse(rest).map(book::run),
        Some((&"setup", rest)) => no_arguments("setup", rest).map(|()| setup::run()),
        Some((&"test", rest)) => test::Options::parse(rest).map(test::run),
        Some((&"bench", rest)) => bench::Options::parse(rest).map(|options| bench::run(&options)),
        Some((&"fuzz", rest)) => fuzz::Options::parse(rest).map(|options| fuzz::run(&options)),
        Some((command, _)) => Err(format!(
            "there is no command `{command}`; there are check, test, bench, book, setup, fuzz, linux, file-traces, \
             rocksdb, sqlite, file-systems, package and interop"
        )),
    };
    result.unwrap_or_else(|error| {
        eprintln!("cargo xtask: {error}\n`cargo xtask help` shows how to use it.");
        ExitCode::from(2)
    })
}

fn no_arguments(command: &str, rest: &[&str]) -> Result<(), String> {
    match rest.first() {
        None => Ok(()),
        Some(word) => Err(format!("`{command}` takes no argument, but got `{word}`")),
    }
}
