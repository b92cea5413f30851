//! `cargo xtask file-traces`: records what ext4, F2FS and btrfs of Linux write for loads of files and for SQLite, for the experiments `amf`,
//! `zns` and `ox-eleos`.
//!
//! ```text
//!   guest:  load of files ─▶ file system ─▶ dm-log-writes ─▶ disk, a file here
//!                                                │
//!                                                ▼
//!   here:                                       log ─▶ recording, a few bytes for each write
//! ```
//!
//! What they write to zones the served drive itself writes down: [`served`].
//!
//! The loads, and the form of a recording, are those of `openftl-experiments` (`file_load.rs`, `file_trace.rs`). Two recordings are not the same to the
//! last byte: the guest's kernel writes back when its clock says so.

mod served;

use crate::steps::{Outcome, Steps};
use crate::{linux, shell};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

/// Programs that the guest runs, and the Debian packages that hold them.
const PROGRAMS: [(&str, &str); 7] = [
    ("mkfs.f2fs", "f2fs-tools"),
    ("mkfs.ext4", "e2fsprogs"),
    ("mkfs.btrfs", "btrfs-progs"),
    ("dmsetup", "dmsetup"),
    ("sqlite3", "sqlite3"),
    ("nvme", "nvme-cli"),
    ("ip", "iproute2"),
];

/// Bytes that a log of writes may have. It is sparse.
const LOG_BYTES: u64 = 16 << 30;

/// What `file_load list` says of a recording that there is to be.
struct Recorded<'a> {
    name: &'a str,
    file_system: &'a str,
    load: &'a str,
    bytes: &'a str,
    disk_bytes: &'a str,
    seed: &'a str,
}

impl<'a> Recorded<'a> {
    fn parse(line: &'a str) -> Result<Recorded<'a>, String> {
        let words: Vec<&str> = line.split(' ').collect();
        let [name, file_system, load, bytes, disk_bytes, seed] = words[..] else {
            return Err(format!("`{line}` names no recording"));
        };
        Ok(Recorded { name, file_system, load, bytes, disk_bytes, seed })
    }
}

/// Records anew what is named, or everything.
pub fn run(names: &[&str]) -> ExitCode {
    let mut steps = Steps::new("file-traces");
    let mut kernel = PathBuf::new();
    let mut program = PathBuf::new();
    let mut recordings = String::new();
    let is_ready = steps.run("programs", programs)
        && steps.run("kernel", || match linux::kernel() {
            Some(found) => {
                kernel = found;
                Outcome::Done
            }
            None => Outcome::Failed(format!(
                "there is none: `cargo xtask linux` builds it, or {} names one",
                linux::VARIABLE
            )),
        })
        && steps.run("the program with the loads", || {
            Outcome::of(built().and_then(|found| {
                program = found;
                recordings = shell::output(Command::new(&program).arg("list"))?;
                Ok(())
            }))
        });
    if is_ready {
        let all: Vec<Recorded<'_>> = match recordings.lines().map(Recorded::parse).collect() {
            Ok(all) => all,
            Err(error) => {
                steps.run("the list of recordings", || Outcome::Failed(error));
                return steps.finish();
            }
        };
        let of_their_own = || all.iter().filter(|recorded| !served::is_beside(recorded));
        for name in names.iter().filter(|name| of_their_own().all(|known| known.name != **name)) {
            let known: Vec<&str> = of_their_own().map(|known| known.name).collect();
            let text = format!("there is no such recording of its own; there are {}", known.join(", "));
            steps.run(name, || Outcome::Failed(text));
        }
        for recorded in of_their_own().filter(|known| names.is_empty() || names.contains(&known.name)) {
            steps.run(recorded.name, || {
                Outcome::of(match served::is_served(recorded) {
                    true => served::record(recorded, &all, &kernel, &program),
                    false => record(recorded, &kernel, &program),
                })
            });
        }
    }
    steps.finish()
}

fn programs() -> Outcome {
    let absent = PROGRAMS.iter().filter(|(program, _)| shell::find(program).is_none());
    let packages: Vec<&str> = absent.map(|(_, package)| *package).collect();
    crate::setup::install_packages(&packages)
}

fn built() -> Result<PathBuf, String> {
    shell::run(&mut shell::cargo([
        "build",
        "--release",
        "--package",
        "openftl-experiments",
        "--example",
        "file_load",
    ]))?;
    Ok(shell::target_directory()?.join("release").join("examples").join("file_load"))
}

/// Has the program make a recording of a log that `pack` names.
fn pack(pack: &mut Command, recorded: &Recorded<'_>) -> Result<(), String> {
    let &Recorded { name, file_system, load, bytes, disk_bytes, seed } = recorded;
    let recording = shell::root().join("lab/recordings").join(format!("{name}.trace"));
    shell::run(pack.arg(recording).args([file_system, load, bytes, disk_bytes, seed]))
}

/// Makes one recording.
fn record(recorded: &Recorded<'_>, kernel: &Path, program: &Path) -> Result<(), String> {
    let &Recorded { name, file_system, load, bytes, disk_bytes, seed } = recorded;
    let work = shell::target_directory()?.join("file-traces");
    std::fs::create_dir_all(&work).map_err(|error| format!("{}: {error}", work.display()))?;
    let [disk, log] = [work.join(format!("{name}.disk")), work.join(format!("{name}.log"))];
    let of_disk = disk_bytes.parse().map_err(|_| format!("{name}: {disk_bytes} is no number of bytes"))?;
    sparse(&disk, of_disk)?;
    sparse(&log, LOG_BYTES)?;
    // F2FS and ext4 call it differently to make a file system where one may be.
    let force = if file_system == "f2fs" { "-f" } else { "-F" };
    let init = shell::root().join("xtask").join("linux").join("file-traces.sh");
    let mut guest = Command::new(kernel);
    guest
        .args(["mem=768M", "rootfstype=hostfs", "rootflags=/", "ro", "con=null", "con0=null,fd:1", "quiet"])
        .arg(format!("ubda={}", disk.display()))
        .arg(format!("ubdb={}", log.display()))
        .arg(format!("init={}", init.display()))
        .arg(format!("PROGRAM={}", program.display()))
        .args([format!("FILE_SYSTEM={file_system}"), format!("FORCE={force}"), format!("LOAD={load}")])
        .args([format!("BYTES={bytes}"), format!("SEED={seed}")])
        .stdin(Stdio::null());
    shell::run(&mut guest)?;
    let packed = pack(Command::new(program).arg("pack").arg(&log), recorded);
    for file in [disk, log] {
        std::fs::remove_file(&file).map_err(|error| format!("{}: {error}", file.display()))?;
    }
    packed
}

fn sparse(path: &Path, bytes: u64) -> Result<(), String> {
    let made = std::fs::File::create(path).and_then(|file| file.set_len(bytes));
    made.map_err(|error| format!("{}: {error}", path.display()))
}
