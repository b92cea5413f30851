//! Runs a load on the files of a mounted file system, and makes a recording of the log that Linux's `dm-log-writes` has kept meanwhile, or of
//! what `openftl serve --record` has written down. A load is one of files, or SQLite's small transactions in one of its journal modes, for
//! which `sqlite3` runs.
//!
//! `cargo xtask file-traces` asks it for the recordings that there are to be, `file_load list`; runs it in a guest, `file_load run FOLDER LOAD
//! BYTES SEED DEVICE`, where DEVICE is the name that `dmsetup` knows, or the disks of a served drive with commas between them; and then here,
//! `file_load pack LOG RECORDING FILE_SYSTEM LOAD BYTES DISK_BYTES SEED`, or `pack-served LOG NAMESPACE RECORDING` and so on.

use openftl_experiments::file_load::{FileLoad, FileStep, WRITE_BYTES_MAX, name_of, phase_bytes, phases};
use openftl_experiments::file_trace::{BadRecording, Head, MARK_READS, Recorded, Recording, of_log_writes, of_served};
use openftl_experiments::order_table;
use openftl_experiments::recorded::{self, JournalMode};
use std::collections::BTreeMap;
use std::error::Error;
use std::fs::{File, OpenOptions};
use std::io::{BufReader, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["list"] => {
            for (name, Head { file_system, load, data_bytes, disk_bytes, seed }) in recorded::of_file_systems() {
                println!("{name} {file_system} {load} {data_bytes} {disk_bytes} {seed}");
            }
            Ok(())
        }
        ["run", folder, load, bytes, seed, device] => {
            if let Some(mode) = JournalMode::of_load(load) {
                return run_sqlite(folder.as_ref(), mode, device);
            }
            let load = FileLoad::new(load.parse()?, bytes.parse()?, seed.parse()?);
            Host::new(folder.into(), device).run(load, bytes.parse()?)
        }
        ["pack", log, recording, file_system, load, data_bytes, disk_bytes, seed] => {
            let (file_system, load) = (file_system.to_owned(), load.to_owned());
            let (data_bytes, disk_bytes, seed) = (data_bytes.parse()?, disk_bytes.parse()?, seed.parse()?);
            let head = Head { file_system, load, data_bytes, disk_bytes, seed };
            // Files are made, age, and are measured; of SQLite each transaction is a phase, and those before and after them.
            let phases = JournalMode::of_load(&head.load).map_or(3, |_| recorded::TRANSACTIONS as usize + 2);
            let recorded = of_log_writes(&head, &mut File::open(log)?)?;
            if phases_in(&recorded)? != phases {
                return Err("the log ends before the load has".into());
            }
            Ok(std::fs::write(recording, recorded)?)
        }
        ["pack-served", log, namespace, recording, file_system, load, data_bytes, disk_bytes, seed] => {
            let (file_system, load) = (file_system.to_owned(), load.to_owned());
            let (data_bytes, disk_bytes, seed) = (data_bytes.parse()?, disk_bytes.parse()?, seed.parse()?);
            let head = Head { file_system, load, data_bytes, disk_bytes, seed };
            let phases = phase_bytes(head.load.parse()?, data_bytes, seed);
            Ok(std::fs::write(recording, of_served(&head, namespace, &phases, BufReader::new(File::open(log)?))?)?)
        }
        _ => {
            Err("write list, run FOLDER LOAD BYTES SEED DEVICE, pack LOG RECORDING FILE_SYSTEM LOAD BYTES DISK_BYTES SEED, or pack-served \
                 LOG NAMESPACE RECORDING FILE_SYSTEM LOAD BYTES DISK_BYTES SEED"
                .into())
        }
    }
}

/// Files that are open at a time.
const OPEN_MAX: usize = 256;

fn phases_in(recording: &[u8]) -> Result<usize, BadRecording> {
    let (mut recording, mut phases) = (Recording::new(recording)?, 0);
    while let Some(recorded) = recording.read_next()? {
        phases += usize::from(matches!(recorded, Recorded::Phase { .. }));
    }
    Ok(phases)
}

struct Host<'a> {
    folder: PathBuf,
    device: &'a str,
    /// Files that are open.
    files: BTreeMap<u32, File>,
    memory: Vec<u8>,
}

impl Host<'_> {
    fn new(folder: PathBuf, device: &str) -> Host<'_> {
        let memory = (0..WRITE_BYTES_MAX as usize).map(|at| ((at * 31) >> 5) as u8).collect();
        Host { folder, device, files: BTreeMap::new(), memory }
    }

    fn path(&self, file: u32) -> PathBuf {
        self.folder.join(name_of(file))
    }

    /// Makes the files, lets them age, and goes on.
    fn run(&mut self, mut load: FileLoad, bytes: u64) -> Result<(), Box<dyn Error>> {
        let mut written = 0;
        while let Some(step) = load.fill_step() {
            written += step.bytes();
            self.take(step)?;
        }
        self.end_phase(written)?;
        for bytes in phases(bytes) {
            written = 0;
            while written < bytes {
                let step = load.step();
                written += step.bytes();
                self.take(step)?;
            }
            self.end_phase(written)?;
        }
        Ok(())
    }

    /// A file, which is made if it is not there.
    fn open(&mut self, file: u32) -> Result<&File, Box<dyn Error>> {
        if !self.files.contains_key(&file) {
            if self.files.len() == OPEN_MAX {
                self.files.clear();
            }
            let opened = OpenOptions::new().write(true).create(true).truncate(false).open(self.path(file))?;
            self.files.insert(file, opened);
        }
        Ok(&self.files[&file])
    }

    fn take(&mut self, step: FileStep) -> Result<(), Box<dyn Error>> {
        match step {
            FileStep::Make { file } => _ = self.open(file)?,
            FileStep::Write { file, offset, bytes } => {
                self.open(file)?;
                self.files[&file].write_all_at(&self.memory[..bytes as usize], offset)?;
            }
            FileStep::Sync { file } => self.open(file)?.sync_data()?,
            FileStep::SyncAll => sync(&self.folder)?,
            FileStep::Remove { file } => {
                self.files.remove(&file);
                std::fs::remove_file(self.path(file))?;
            }
        }
        Ok(())
    }

    fn end_phase(&self, bytes: u64) -> Result<(), Box<dyn Error>> {
        end_phase(&self.folder, self.device, bytes)
    }
}

/// Makes all of a file system durable, and marks the end of a phase.
fn end_phase(folder: &Path, device: &str, bytes: u64) -> Result<(), Box<dyn Error>> {
    sync(folder)?;
    if device.starts_with("/dev/") {
        return device.split(',').try_for_each(mark_served);
    }
    let ended = Command::new("dmsetup").args(["message", device, "0", "mark", &bytes.to_string()]).status()?;
    if ended.success() { Ok(()) } else { Err("dmsetup sets no mark".into()) }
}

/// Marks the end of a phase on the disk of a served drive.
fn mark_served(disk: &str) -> Result<(), Box<dyn Error>> {
    const BLOCK: u64 = 4096;
    let bytes = File::open(disk)?.seek(SeekFrom::End(0))?;
    for _ in 0..MARK_READS {
        let words = [format!("if={disk}"), format!("skip={}", bytes / BLOCK - 1)];
        let rest = ["of=/dev/null", "bs=4096", "count=1", "iflag=direct", "status=none"];
        if !Command::new("dd").args(words).args(rest).status()?.success() {
            return Err(format!("{disk}: its last block cannot be read").into());
        }
    }
    Ok(())
}

/// Makes the table of orders, and then has one small transaction after the other, whose ends the shell of SQLite marks.
fn run_sqlite(folder: &Path, mode: JournalMode, device: &str) -> Result<(), Box<dyn Error>> {
    let database = folder.join("data.db");
    sqlite(&database, &format!("PRAGMA journal_mode={};\n{}", mode.word(), order_table::rows()))?;
    end_phase(folder, device, 0)?;
    let mut script = "PRAGMA synchronous=FULL;\n".to_owned();
    for at in 0..recorded::TRANSACTIONS {
        script += &order_table::transaction(at);
        script += &format!("\n.shell dmsetup message {device} 0 mark {}\n", order_table::changed_bytes(at));
    }
    sqlite(&database, &script)?;
    // What the file system still has in memory belongs to the transactions.
    end_phase(folder, device, 0)
}

/// Has `sqlite3` run a script.
fn sqlite(database: &Path, script: &str) -> Result<(), Box<dyn Error>> {
    let mut child = Command::new("sqlite3").args(["-batch", "-bail"]).arg(database).stdin(Stdio::piped()).spawn()?;
    child.stdin.take().ok_or("sqlite3 has an input")?.write_all(script.as_bytes())?;
    let ended = child.wait()?;
    if ended.success() { Ok(()) } else { Err(format!("sqlite3 ends with {ended}").into()) }
}

/// Makes all of a file system durable.
fn sync(folder: &Path) -> Result<(), Box<dyn Error>> {
    let ended = Command::new("sync").arg("--file-system").arg(folder).status()?;
    if ended.success() { Ok(()) } else { Err("sync fails".into()) }
}
