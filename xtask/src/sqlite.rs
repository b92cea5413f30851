//! `cargo xtask sqlite`: SQLite's own suites on a store of pages.
//!
//! ```text
//!   Debian's source package ──▶ sqlite3.c ─┬─▶ speedtest1, testfixture ─── databases ──▶ store of pages, new for each run
//!   this project ──▶ libopenftl_sqlite.so ─┴─▶ mptest, in several processes ──▶ server ──▶ the same
//! ```
//!
//! The programs have the VFS as their default. `bindings/sqlite/tests/suite/scripts.txt` says of each script of the suite whether it runs, and why
//! not. What is there of sources and programs is kept; only the library follows the project.

mod scripts;

use crate::setup;
use crate::shell;
use crate::steps::{Outcome, Steps};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

/// Programs that the builds need, and the Debian packages that hold them.
const PROGRAMS: [(&str, &str); 4] = [("cc", "gcc"), ("make", "make"), ("tclsh", "tcl"), ("dpkg-source", "dpkg-dev")];
/// A header that they need, and the same of it.
const HEADER: (&str, &str) = ("/usr/include/tcl/tcl.h", "tcl-dev");

/// The file of our own that has SQLite and the VFS in it.
const FIXTURE: &str = "fixture.c";

/// Where scripts of the suite make databases: it deletes those that are there, on the host. Behind this line it deletes those of the store too.
const BEFORE_DATABASES: &str = "# Create a test database\n";
const DELETE_IN_STORE: &str = "proc do_delete_file {force args} {
  foreach file $args {
    catch {file delete -force $file}
    vfs_delete $file
  }
}
";

/// A store for one run: a drive description.
const STORE: &str = "[media]
profile = \"cosmos\"
capacity = \"128MiB\"
over_provisioning = \"28%\"
store = \"file\"
path = \"store.oftl\"
timing = \"instant\"
[ftl]
kind = \"pages\"
";

/// Scripts of `mptest`, and with which journal each of them runs. `config01` is for SQLite's own VFS alone, and `config02` is these two again and again,
/// for each size of pages, which takes too long.
const MPTEST: [(&str, &str); 4] =
    [("multiwrite01", "delete"), ("multiwrite01", "wal"), ("crash01", "delete"), ("crash01", "wal")];

/// The suites, as all of a run.
pub fn command() -> ExitCode {
    let mut steps = Steps::new("sqlite");
    match shell::target_directory() {
        Ok(target) => run(&mut steps, &target),
        Err(error) => _ = steps.run("the folder where cargo builds", || Outcome::Failed(error)),
    }
    steps.finish()
}

/// The suites, step by step. `target` is the folder where cargo builds.
pub fn run(steps: &mut Steps, target: &Path) {
    let folder = target.join("sqlite");
    let mut source = None;
    steps.run("SQLite's sources", || match sources(&folder) {
        Ok(found) => {
            source = Some(found);
            Outcome::Done
        }
        Err(outcome) => outcome,
    });
    let Some(source) = source else { return };
    let suite = Suite { build: folder.join("build"), release: target.join("release"), source, folder };
    if !steps.run("SQLite's programs with the VFS", || Outcome::of(suite.build())) {
        return;
    }
    steps.run("speedtest1", || Outcome::of(suite.speedtest1()));
    steps.run("mptest", || Outcome::of(suite.mptest()));
    steps.run("SQLite's scripts", || Outcome::of(scripts::run(&suite)));
}

/// SQLite's tree, from Debian's source package.
fn sources(folder: &Path) -> Result<PathBuf, Outcome> {
    let failed = |error: std::io::Error| Outcome::Failed(format!("{}: {error}", folder.display()));
    if let Some(found) = tree(folder) {
        return Ok(found);
    }
    let missing: Vec<&str> = PROGRAMS
        .iter()
        .filter(|(program, _)| shell::find(program).is_none())
        .map(|(_, package)| *package)
        .chain((!Path::new(HEADER.0).is_file()).then_some(HEADER.1))
        .collect();
    if !missing.is_empty() {
        match setup::install_packages(&missing) {
            Outcome::Done => {}
            other => return Err(other),
        }
    }
    if shell::find("apt-get").is_none() {
        return Err(Outcome::LeftOut("no apt-get here: SQLite's suites come from Debian's source package".to_owned()));
    }
    // Package lists of our own, with sources beside those that the system has.
    let (lists, parts) = (folder.join("lists"), folder.join("parts"));
    std::fs::create_dir_all(lists.join("partial")).map_err(failed)?;
    std::fs::create_dir_all(&parts).map_err(failed)?;
    let mut entries = 0;
    for entry in std::fs::read_dir("/etc/apt/sources.list.d").into_iter().flatten().flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        if path.extension().is_some_and(|end| end == "sources")
            && let Ok(text) = std::fs::read_to_string(&path)
        {
            std::fs::write(parts.join(name), text.replace("Types: deb\n", "Types: deb-src\n")).map_err(failed)?;
            entries += 1;
        }
    }
    if let Ok(text) = std::fs::read_to_string("/etc/apt/sources.list") {
        let lines = text.lines().filter_map(|line| line.strip_prefix("deb ")).map(|rest| format!("deb-src {rest}\n"));
        std::fs::write(parts.join("system.list"), lines.collect::<String>()).map_err(failed)?;
        entries += 1;
    }
    let apt = |arguments: &[&str]| {
        let mut command = Command::new("apt-get");
        command.arg("-q").arg("-o").arg("Dir::Etc::sourcelist=/dev/null").arg("-o");
        command.arg(format!("Dir::Etc::sourceparts={}", parts.display())).arg("-o");
        command.arg(format!("Dir::State::lists={}", lists.display())).args(arguments).current_dir(folder);
        shell::run(command.stdin(Stdio::null()))
    };
    if entries == 0 {
        return Err(Outcome::LeftOut("apt-get has no sources here: SQLite's suites come from Debian".to_owned()));
    }
    if let Err(error) = apt(&["update"]).and_then(|()| apt(&["source", "sqlite3"])) {
        return Err(Outcome::LeftOut(format!("Debian's source package of sqlite3 cannot be had: {error}")));
    }
    let Some(found) = tree(folder) else {
        return Err(Outcome::Failed(format!("apt-get source has left no tree in {}", folder.display())));
    };
    Ok(found)
}

/// The tree that is in a folder, if one is.
fn tree(folder: &Path) -> Option<PathBuf> {
    let entries = std::fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path());
    entries.filter(|path| path.join("test/tester.tcl").is_file()).max()
}

/// A store for one run.
pub struct RunStore {
    /// The folder of the run.
    pub folder: PathBuf,
    /// The environment of a program that uses the store.
    pub environment: [(&'static str, String); 2],
}

/// SQLite's suites, built.
pub struct Suite {
    /// The folder of all of it.
    folder: PathBuf,
    /// SQLite's tree.
    source: PathBuf,
    /// Where programs are built.
    build: PathBuf,
    /// Where cargo puts what it builds for release.
    release: PathBuf,
}

impl Suite {
    fn build(&self) -> Result<(), String> {
        let failed = |error: std::io::Error| format!("{}: {error}", self.build.display());
        shell::run(&mut shell::cargo(["build", "--release", "--package", "openftl-sqlite", "--package", "openftl"]))?;
        let tester = self.source.join("test/tester.tcl");
        let text = std::fs::read_to_string(&tester).map_err(failed)?;
        if !text.contains(DELETE_IN_STORE) {
            if !text.contains(BEFORE_DATABASES) {
                return Err(format!("{}: there is no line {BEFORE_DATABASES:?}", tester.display()));
            }
            let text = text.replacen(BEFORE_DATABASES, &format!("{DELETE_IN_STORE}\n{BEFORE_DATABASES}"), 1);
            std::fs::write(&tester, text).map_err(failed)?;
        }
        std::fs::create_dir_all(&self.build).map_err(failed)?;
        if !self.build.join("sqlite3.c").is_file() {
            let mut configure = Command::new(self.source.join("configure"));
            shell::run(configure.args(["--disable-shared", "--quiet"]).current_dir(&self.build))?;
            shell::run(Command::new("make").args(["--silent", "sqlite3.c"]).current_dir(&self.build))?;
        }
        let ours = shell::root().join("bindings/sqlite/tests/suite").join(FIXTURE);
        let (text, kept) = (std::fs::read(&ours).map_err(failed)?, self.build.join(FIXTURE));
        let is_new = std::fs::read(&kept).ok().as_ref() != Some(&text);
        if is_new {
            std::fs::write(&kept, text).map_err(failed)?;
        }
        if is_new || !self.build.join("speedtest1").is_file() {
            let mut compiler = Command::new("cc");
            compiler.args(["-O2", "-DSQLITE_EXTRA_INIT=openftl_extra_init", "-I.", "-o", "speedtest1"]);
            compiler.arg(self.source.join("test/speedtest1.c")).arg(FIXTURE).args(self.libraries().split(' '));
            shell::run(compiler.current_dir(&self.build))?;
        }
        if is_new || !self.build.join("mptest").is_file() {
            let mut compiler = Command::new("cc");
            compiler.args(["-O2", "-DSQLITE_EXTRA_INIT=openftl_extra_init", "-I.", "-o", "mptest"]);
            compiler.arg(self.source.join("mptest/mptest.c")).arg(FIXTURE).args(self.libraries().split(' '));
            shell::run(compiler.current_dir(&self.build))?;
        }
        if is_new || !self.build.join("testfixture").is_file() {
            let flags = self.fixture_flags()?;
            let mut make = Command::new("make");
            make.args(["--silent", "--always-make", "testfixture", "USE_AMALGAMATION=1"]);
            make.arg(format!("TESTFIXTURE_SRC1={FIXTURE}")).arg(format!("TESTFIXTURE_FLAGS={flags}"));
            make.arg("OPTS=-O1 -DSQLITE_EXTRA_INIT=openftl_extra_init -DOPENFTL_TCL");
            make.arg(format!("TLIBS={}", self.libraries()));
            shell::run(make.current_dir(&self.build))?;
        }
        Ok(())
    }

    fn libraries(&self) -> String {
        let release = self.release.display();
        format!("-L{release} -lopenftl_sqlite -Wl,-rpath,{release} -lz -lm -lpthread -ldl")
    }

    /// The flags that SQLite's makefile has for its fixture, with an entry of ours.
    fn fixture_flags(&self) -> Result<String, String> {
        let file = self.build.join("Makefile");
        let text = std::fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
        let flags: Vec<&str> = text
            .lines()
            .filter_map(|line| line.strip_prefix("TESTFIXTURE_FLAGS"))
            .filter_map(|rest| rest.split_once('=').map(|(_, flags)| flags.trim()))
            .collect();
        let flags = flags.join(" ");
        let entry = "TCLSH_INIT_PROC=sqlite3TestInit";
        if !flags.contains(entry) {
            return Err(format!("{}: the fixture has no {entry}", file.display()));
        }
        Ok(flags.replace(entry, "TCLSH_INIT_PROC=openftl_test_init"))
    }

    /// Makes a new store in a folder of its own.
    fn store(&self, name: &str) -> Result<RunStore, String> {
        let folder = self.folder.join("runs").join(name);
        let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
        if folder.exists() {
            std::fs::remove_dir_all(&folder).map_err(failed)?;
        }
        std::fs::create_dir_all(&folder).map_err(failed)?;
        std::fs::write(folder.join("store.toml"), STORE).map_err(failed)?;
        let mut command = Command::new(self.release.join("openftl"));
        command.args(["create", "store.oftl", "--drive", "store.toml"]).current_dir(&folder);
        shell::output(&mut command)?;
        let store = folder.join("store.oftl").display().to_string();
        let environment = [("OPENFTL_STORE", store), ("OPENFTL_SQLITE_DEFAULT", "1".to_owned())];
        Ok(RunStore { folder, environment })
    }

    fn speedtest1(&self) -> Result<(), String> {
        for journal in ["delete", "wal"] {
            let RunStore { folder, environment } = self.store(&format!("speedtest1-{journal}"))?;
            let mut command = Command::new(self.build.join("speedtest1"));
            command.args(["--size", "10", "--verify", "--journal", journal, "speed.db"]);
            shell::run(command.envs(environment).current_dir(&folder))?;
            if folder.join("speed.db").exists() {
                return Err("the database is a file of the host, and not in the store".to_owned());
            }
            std::fs::remove_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        }
        Ok(())
    }

    /// SQLite's test of several processes on one database. They share a store that a server has; some of them die in the middle of a transaction.
    fn mptest(&self) -> Result<(), String> {
        for (script, journal) in MPTEST {
            let RunStore { folder, .. } = self.store(&format!("mptest-{script}-{journal}"))?;
            let broken = |error: std::io::Error| format!("{}: {error}", folder.display());
            let log = folder.join("out");
            // In a path of the build there may be anything.
            let clients = "OPENFTL_STORE=$OPENFTL_URI OPENFTL_SQLITE_DEFAULT=1 exec \"$MPTEST\" many.db \
                           --journalmode \"$JOURNAL\" --timeout 600000 \"$SCRIPT\" > out 2>&1";
            let mut command = Command::new(self.release.join("openftl"));
            command.args(["serve", "store.oftl", "--nvme-tcp", "127.0.0.1:0", "--run", clients]).current_dir(&folder);
            command.env("MPTEST", self.build.join("mptest")).env("JOURNAL", journal);
            command.env("SCRIPT", self.source.join("mptest").join(format!("{script}.test")));
            let status = command.stdin(Stdio::null()).stderr(Stdio::null()).status().map_err(broken)?;
            let text = String::from_utf8_lossy(&std::fs::read(&log).map_err(broken)?).into_owned();
            let summary = text.lines().rev().find(|line| line.contains("errors out of")).unwrap_or("no summary");
            println!("{script}, {journal}: {summary}");
            if !status.success() || !summary.contains(" 0 errors out of") {
                return Err(format!("{script} with {journal}: {status}, {summary}; {}", log.display()));
            }
            if folder.join("many.db").exists() {
                return Err("the database is a file of the host, and not in the store".to_owned());
            }
            std::fs::remove_dir_all(&folder).map_err(broken)?;
        }
        Ok(())
    }
}
