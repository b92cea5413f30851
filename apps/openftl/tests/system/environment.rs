//! What a system test needs of the machine.
//!
//! A test that cannot run returns at once, and leaves a line in the file that `OPENFTL_LEFT_OUT` names, so that
//! `cargo xtask test` can list it.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// One thing that a test needs.
#[derive(Clone, Copy, Debug)]
pub enum Need {
    /// A program, by name.
    Program(&'static str),
    /// To be root, and allowed to mount.
    Mount,
    /// File systems in user space.
    Fuse,
    /// Loop devices.
    Loop,
    /// A Linux kernel that runs as a process, and a network for it.
    Linux,
    /// fio's own tests of zoned drives.
    Zbd,
    /// An NVMe/TCP initiator in user space that is not ours.
    Pynvmeof,
    /// RocksDB's programs, and the plugin for them.
    RocksDb,
    /// SQLite's shell, and the library that it loads.
    Sqlite,
    /// An `openftl` with TLS.
    Tls,
    /// The program of a command that is one of its own.
    Command(&'static str),
}

/// The commands that are programs of their own.
pub const COMMANDS: [&str; 4] = ["alfs", "explore", "files", "reproduce"];

/// The program of such a command.
pub fn beside(openftl: &str, command: &str) -> PathBuf {
    Path::new(openftl).with_file_name(format!("openftl-{command}"))
}

/// The kernel that guests boot, where there is one.
pub fn kernel() -> Option<PathBuf> {
    std::env::var_os("OPENFTL_LINUX_UML").map(PathBuf::from)
}

/// The folder that holds fio's script `test-zbd-support`, where there is one.
pub fn zbd() -> Option<PathBuf> {
    std::env::var_os("OPENFTL_ZBD").map(PathBuf::from)
}

/// The folder that holds the package `nvmeof_client` of truenas_pynvmeof_client, where there is one.
pub fn pynvmeof() -> Option<PathBuf> {
    std::env::var_os("OPENFTL_PYNVMEOF").map(PathBuf::from)
}

/// The folder that holds the plugin for RocksDB, and those of its programs that are not installed.
pub fn rocksdb() -> Option<PathBuf> {
    std::env::var_os("OPENFTL_ROCKSDB").map(PathBuf::from)
}

/// The library with the VFS for SQLite, which cargo builds beside the tests if it is told to build all of the project.
pub fn sqlite_library() -> Option<PathBuf> {
    let tests = std::env::current_exe().ok()?;
    let folders = tests.ancestors().skip(1).take(2).map(|folder| folder.join("libopenftl_sqlite.so"));
    folders.into_iter().find(|file| file.is_file())
}

/// Whether everything that the calling test needs is there; if not, notes down that it is left out, and why.
#[must_use]
pub fn runs_here(needs: &[Need]) -> bool {
    let reasons: Vec<String> = needs.iter().filter_map(|need| need.lacking()).collect();
    if reasons.is_empty() {
        return true;
    }
    let thread = std::thread::current();
    let line = format!("{}: {}\n", thread.name().unwrap_or("a test"), reasons.join("; "));
    eprint!("left out: {line}");
    if let Some(file) = std::env::var_os("OPENFTL_LEFT_OUT") {
        let opened = std::fs::File::options().append(true).create(true).open(&file);
        opened.and_then(|mut file| file.write_all(line.as_bytes())).expect("OPENFTL_LEFT_OUT names a file to write to");
    }
    false
}

impl Need {
    /// Why this need is not met, if it is not.
    fn lacking(self) -> Option<String> {
        match self {
            Need::Program(name) => {
                find(name).is_none().then(|| format!("{name} is not installed (`cargo xtask setup`)"))
            }
            Need::Mount => mounting_fails(),
            Need::Fuse => cannot_open("/dev/fuse"),
            Need::Loop => {
                let found = quiet(Command::new("losetup").arg("--find"));
                (!found).then(|| "no free loop device (`losetup --find` fails)".to_owned())
            }
            Need::Linux => no_guests(),
            Need::Zbd => no_zbd(),
            Need::Pynvmeof => no_pynvmeof(),
            Need::RocksDb => no_rocksdb(),
            Need::Sqlite => match (find("sqlite3"), sqlite_library()) {
                (None, _) => Some("sqlite3 is not installed (`cargo xtask setup`)".to_owned()),
                (_, None) => Some("libopenftl_sqlite.so is not built (`cargo build -p openftl-sqlite`)".to_owned()),
                _ => None,
            },
            Need::Command(name) => {
                let program = beside(&crate::drive::openftl(), name);
                (!program.is_file())
                    .then(|| format!("{} is not built (`cargo build -p openftl-{name}-command`)", program.display()))
            }
            Need::Tls => {
                (!cfg!(feature = "tls")).then(|| "built without TLS (`--features openftl/tls` builds it in)".to_owned())
            }
        }
    }
}

/// Where the program `name` is, looking also where only root's PATH leads.
fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    folders.map(|folder| folder.join(name)).find(|file| file.is_file())
}

fn cannot_open(device: &str) -> Option<String> {
    let error = std::fs::File::options().read(true).write(true).open(device).err()?;
    Some(format!("{device} cannot be opened: {error}"))
}

fn no_guests() -> Option<String> {
    let Some(kernel) = kernel() else {
        return Some("OPENFTL_LINUX_UML names no user-mode Linux (`cargo xtask linux` builds one)".to_owned());
    };
    if !kernel.is_file() {
        return Some(format!("OPENFTL_LINUX_UML: there is no file {}", kernel.display()));
    }
    if !quiet(Command::new("unshare").args(["--net", "--pid", "--fork", "true"])) {
        return Some("not allowed to make namespaces (root's right)".to_owned());
    }
    cannot_open("/dev/net/tun")
}

fn no_zbd() -> Option<String> {
    let Some(folder) = zbd() else {
        return Some("optional: OPENFTL_ZBD names no folder t/zbd of fio's sources (`cargo xtask test` fetches one where it can)".to_owned());
    };
    let script = folder.join("test-zbd-support");
    (!script.is_file()).then(|| format!("OPENFTL_ZBD: there is no file {}", script.display()))
}

fn no_pynvmeof() -> Option<String> {
    let Some(folder) = pynvmeof() else {
        // No registry has it, so even a run that requires all tests goes on without.
        let reason = "optional: OPENFTL_PYNVMEOF names no folder `src` of truenas_pynvmeof_client (docs/INTEROP.md)";
        return Some(reason.to_owned());
    };
    let package = folder.join("nvmeof_client");
    (!package.is_dir()).then(|| format!("OPENFTL_PYNVMEOF: there is no folder {}", package.display()))
}

fn no_rocksdb() -> Option<String> {
    let Some(folder) = rocksdb() else {
        return Some("OPENFTL_ROCKSDB names no folder (`cargo xtask rocksdb --debian` makes one)".to_owned());
    };
    let plugin = folder.join("libopenftl_rocksdb.so");
    (!plugin.is_file()).then(|| format!("OPENFTL_ROCKSDB: there is no file {}", plugin.display()))
}

/// Whether `command` succeeds; prints nothing.
fn quiet(command: &mut Command) -> bool {
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

/// Root without the right to mount is common in containers, so it is tried.
fn mounting_fails() -> Option<String> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    if !quiet(Command::new("mount").args(["-t", "tmpfs", "-o", "size=64k", "none"]).arg(folder.path())) {
        return Some("not allowed to mount (root's right)".to_owned());
    }
    assert!(quiet(Command::new("umount").arg(folder.path())), "what was mounted for a trial is unmounted again");
    None
}
