//! `cargo xtask file-traces`: records what ext4 and F2FS of Linux write for loads of files and for SQLite, for the experiments `amf` and `ox-eleos`.
//!
//! ```text
//!   guest:  load of files ─▶ file system ─▶ dm-log-writes ─▶ disk, a file here
//!                                                │
//!                                                ▼
//!   here:                                       log ─▶ recording, a few bytes for each write
//! ```
//!
//! The loads, and the form of a recording, are those of `openftl-experiments` (`file_load.rs`, `file_trace.rs`). Two recordings are not the same to the
//! last byte: the guest's kernel writes back when its clock says so.

use crate::steps::{Outcome, Steps};
use crate::{linux, shell};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

/// Programs that the guest runs, and the Debian packages that hold them.
const PROGRAMS: [(&str, &str); 4] =
    [("mkfs.f2fs", "f2fs-tools"), ("mkfs.ext4", "e2fsprogs"), ("dmsetup", "dmsetup"), ("sqlite3", "sqlite3")];

/// Bytes that a log of writes may have. It is sparse.
const LOG_BYTES: u64 = 16 << 30;

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
        let all: Vec<(&str, &str)> =
            recordings.lines().map(|line| (line.split(' ').next().unwrap_or(line), line)).collect();
        for name in names.iter().filter(|name| all.iter().all(|(known, _)| known != *name)) {
            let known: Vec<&str> = all.iter().map(|(known, _)| *known).collect();
            let text = format!("there is no such recording; there are {}", known.join(", "));
            steps.run(name, || Outcome::Failed(text));
        }
        for (name, line) in all.iter().filter(|(name, _)| names.is_empty() || names.contains(name)) {
            steps.run(name, || Outcome::of(record(line, &kernel, &program)));
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

/// Makes one recording: what `file_load list` says of it is its name, the file system, the load, bytes of files, bytes of the disk, and the seed.
fn record(line: &str, kernel: &Path, program: &Path) -> Result<(), String> {
    let words: Vec<&str> = line.split(' ').collect();
    let [name, file_system, load, bytes, disk_bytes, seed] = words[..] else {
        return Err(format!("`{line}` names no recording"));
    };
    let work = shell::target_directory()?.join("file-traces");
    std::fs::create_dir_all(&work).map_err(|error| format!("{}: {error}", work.display()))?;
    let [disk, log] = [work.join(format!("{name}.disk")), work.join(format!("{name}.log"))];
    let of_disk = disk_bytes.parse().map_err(|_| format!("`{line}`: {disk_bytes} is no number of bytes"))?;
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
    let folder = shell::root().join("lab/recordings");
    let recording = folder.join(format!("{name}.trace"));
    let packed = shell::run(Command::new(program).arg("pack").args([&log, &recording]).args([
        file_system,
        load,
        bytes,
        disk_bytes,
        seed,
    ]));
    for file in [disk, log] {
        std::fs::remove_file(&file).map_err(|error| format!("{}: {error}", file.display()))?;
    }
    packed
}

fn sparse(path: &Path, bytes: u64) -> Result<(), String> {
    let made = std::fs::File::create(path).and_then(|file| file.set_len(bytes));
    made.map_err(|error| format!("{}: {error}", path.display()))
}
