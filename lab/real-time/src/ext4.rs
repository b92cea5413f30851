//! ext4 on a block drive that is served by another process, for a database that knows nothing of flash.
//!
//! ```text
//!   scratch/files         ext4              db_bench, with direct I/O
//!   /dev/loopN            loop device, with direct I/O
//!   scratch/export/nbd    nbdfuse, four connections
//!   scratch/nbd.sock      NBD
//!   scratch/flash.oftl    openftl serve ──▶ scratch/flash.oftl.ctl: statistics
//! ```
//!
//! Each layer is a guard that takes itself down when dropped, upper ones first. The programs are in process groups of their own,
//! so that a Ctrl-C is for this one alone, which then takes them down in that order.

use crate::rocksdb::{self, Bench, RocksDb, of_host};
use crate::stack::{Room, STEP, Scratch};
use openftl_control::{Client, Command as Operation, socket_beside};
use openftl_core::BLOCK_BYTES;
use openftl_core::units::Share;
use openftl_experiments::ExperimentError;
use openftl_media::Profile;
use openftl_parts::{Config, Purpose, chunks_per_pu};
use serde_json::{Value, json};
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const PROGRAMS: [&str; 6] = ["nbdfuse", "fusermount3", "losetup", "mkfs.ext4", "mount", "umount"];

/// Connections of nbdfuse, so that as many requests are under way.
const CONNECTIONS: &str = "--connections=4";

/// Nothing here takes nearly as long, even on a busy machine.
const BOUND: Duration = Duration::from_secs(60);

/// What is not there that ext4 would need, in words; nothing if it can be used.
pub fn lacking() -> Vec<String> {
    let mut lacking: Vec<String> = PROGRAMS
        .into_iter()
        .filter(|name| !is_installed(name))
        .map(|name| format!("{name} is not installed"))
        .collect();
    if let Err(error) = File::options().read(true).write(true).open("/dev/fuse") {
        lacking.push(format!("/dev/fuse cannot be opened: {error}"));
    }
    if lacking.is_empty() {
        lacking.extend(ask("losetup", &["--find"]).err().map(|_| "no loop device is free".to_owned()));
        lacking.extend(mounting_fails());
    }
    lacking
}

fn is_installed(name: &str) -> bool {
    std::env::split_paths(&path()).any(|folder| folder.join(name).is_file())
}

/// Root without the right to mount is common in containers, so it is tried.
fn mounting_fails() -> Option<String> {
    let folder = std::env::temp_dir().join(format!("openftl-mount-{}", std::process::id()));
    let place = folder.display().to_string();
    let tried = std::fs::create_dir_all(&folder).map_err(of_host).and_then(|()| {
        ask("mount", &["-t", "tmpfs", "-o", "size=64k", "none", &place])?;
        ask("umount", &[&place])
    });
    // Not if the file system is still there.
    let _ = std::fs::remove_dir(&folder);
    tried.err().map(|_| "not allowed to mount (root's right)".to_owned())
}

/// PATH, and where only root's leads.
fn path() -> String {
    format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default())
}

/// The program `openftl`, which this one is beside.
pub(crate) fn openftl() -> Result<PathBuf, ExperimentError> {
    Ok(std::env::current_exe().map_err(of_host)?.with_file_name("openftl"))
}

/// A program as all of them are run.
pub(crate) fn program(name: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(name);
    command.env("PATH", path()).env("LC_ALL", "C").stdin(Stdio::null()).process_group(0);
    command
}

/// Runs a program to its end, for what it prints.
fn ask(name: &str, arguments: &[&str]) -> Result<String, ExperimentError> {
    let output = program(name).args(arguments).output().map_err(|error| of_host(format!("{name}: {error}")))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
    }
    let error = String::from_utf8_lossy(&output.stderr);
    Err(ExperimentError::Host(format!("{name} {}: {}: {}", arguments.join(" "), output.status, error.trim())))
}

/// Looks until there is something, for a while.
fn wait_for<T>(what: &str, mut look: impl FnMut() -> Result<Option<T>, ExperimentError>) -> Result<T, ExperimentError> {
    let began = Instant::now();
    loop {
        match look()? {
            Some(found) => return Ok(found),
            None if began.elapsed() > BOUND => {
                return Err(ExperimentError::Host(format!("waited {BOUND:?} in vain for {what}")));
            }
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

/// The file system, mounted. Fields are dropped in their order.
pub struct Ext4 {
    mounted: Mounted,
    _device: LoopDevice,
    export: Export,
    server: Server,
    pub(crate) scratch: Scratch,
}

impl Ext4 {
    /// A new one, on a device like that of the table drive with this room.
    pub fn new(scratch: Scratch, room: Room) -> Result<Ext4, ExperimentError> {
        make_drive(&scratch, room)?;
        let server = Server::start(&scratch)?;
        let export = Export::start(&scratch)?;
        let device = LoopDevice::attach(&export.file())?;
        let mounted = Mounted::make(&device, scratch.file("files"))?;
        Ok(Ext4 { mounted, _device: device, export, server, scratch })
    }

    /// Runs a program of RocksDB's on the file system, waits for its end and until all that it wrote is on the drive.
    pub fn bench(&self, rocksdb: &RocksDb, mut command: Command) -> Result<Bench, ExperimentError> {
        command.arg(format!("--db={}", self.mounted.0.join("db").display()));
        command.args(["--use_direct_reads", "--use_direct_io_for_flush_and_compaction"]);
        let servers = [&self.server.0, &self.export.child];
        let cpu_seconds = || servers.map(|child| cpu_seconds(child.id())).into_iter().sum::<Result<f64, _>>();
        let (counts, cpu) = (self.server.counts(&self.scratch)?, cpu_seconds()?);
        let bench = rocksdb.run(command)?;
        let folder = File::open(&self.mounted.0).map_err(of_host)?;
        rustix::fs::syncfs(&folder).map_err(of_host)?;
        let drive = self.server.counts(&self.scratch)?.since(&counts).statistics();
        Ok(Bench { drive, cpu_seconds: bench.cpu_seconds + cpu_seconds()? - cpu, ..bench })
    }
}

/// Makes the largest block drive that a device with as many chunks as the table drive's can hold.
fn make_drive(scratch: &Scratch, room: Room) -> Result<(), ExperimentError> {
    let geometry = scratch.table_drive()?.geometry().map_err(of_host)?;
    let nand = scratch.nand().display().to_string();
    let spare = Profile::parse(&std::fs::read_to_string(&nand).map_err(of_host)?).map_err(of_host)?.spare();
    let over_provisioning = Share::percent(10);
    let mut capacity = room.tables + room.log_area;
    loop {
        let config = Config { capacity_blocks: capacity / BLOCK_BYTES as u64, over_provisioning, ..Config::default() };
        let needed = chunks_per_pu(&geometry, &config, spare).map_err(of_host)?;
        if needed <= geometry.chunks_per_pu || capacity <= STEP {
            break;
        }
        capacity -= STEP;
    }
    let (capacity, over_provisioning) = (capacity.to_string(), over_provisioning.to_string());
    let mut command = program(openftl()?);
    command.arg("create").arg(scratch.disk()).args(["--profile", &nand]);
    command.args(["--capacity", &capacity, "--over-provisioning", &over_provisioning]);
    let output = command.output().map_err(of_host)?;
    if output.status.success() {
        return Ok(());
    }
    Err(of_host(format!("openftl create: {}", String::from_utf8_lossy(&output.stderr).trim())))
}

/// `openftl serve`.
struct Server(Child);

impl Server {
    fn start(scratch: &Scratch) -> Result<Server, ExperimentError> {
        let socket = scratch.file("nbd.sock");
        let mut command = program(openftl()?);
        command.arg("serve").arg(scratch.disk()).arg(format!("--nbd=unix:{}", socket.display()));
        let mut server = Server(start(command, scratch, "serve.log")?);
        wait_for("the server", || {
            still_runs(&mut server.0, scratch, "serve.log")?;
            Ok(socket.exists().then_some(()))
        })?;
        Ok(server)
    }

    fn counts(&self, scratch: &Scratch) -> Result<Counts, ExperimentError> {
        let mut client = Client::connect(&socket_beside(&scratch.disk())).map_err(of_host)?;
        let answer = client.ask(Operation::Stats {}).map_err(of_host)?;
        Counts::of(&Value::Object(answer.facts))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        end(&mut self.0);
    }
}

/// nbdfuse: the drive as a file.
struct Export {
    child: Child,
    folder: PathBuf,
}

impl Export {
    fn start(scratch: &Scratch) -> Result<Export, ExperimentError> {
        let folder = scratch.file("export");
        std::fs::create_dir_all(&folder).map_err(of_host)?;
        let mut command = program("nbdfuse");
        command.arg(CONNECTIONS).arg(&folder);
        command.arg(format!("nbd+unix:///?socket={}", scratch.file("nbd.sock").display()));
        let mut export = Export { child: start(command, scratch, "nbdfuse.log")?, folder };
        let file = export.file();
        wait_for("nbdfuse to show the drive", || {
            still_runs(&mut export.child, scratch, "nbdfuse.log")?;
            Ok(file.exists().then_some(()))
        })?;
        Ok(export)
    }

    fn file(&self) -> PathBuf {
        self.folder.join("nbd")
    }
}

impl Drop for Export {
    fn drop(&mut self) {
        let folder = self.folder.display().to_string();
        if ask("fusermount3", &["-u", &folder]).is_err() {
            let _ = ask("umount", &["--lazy", &folder]);
        }
        end(&mut self.child);
    }
}

/// The file as a block device.
struct LoopDevice(String);

impl LoopDevice {
    fn attach(file: &Path) -> Result<LoopDevice, ExperimentError> {
        let file = file.display().to_string();
        let device = ask("losetup", &["--find", "--show", "--direct-io=on", &file])?;
        Ok(LoopDevice(device))
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = ask("losetup", &["--detach", &self.0]);
        // The kernel may let go of the file a little later.
        let backing = Path::new("/sys/block").join(self.0.trim_start_matches("/dev/")).join("loop/backing_file");
        let _ = wait_for("the loop device to be free", || Ok((!backing.exists()).then_some(())));
    }
}

/// The file system, in a folder.
struct Mounted(PathBuf);

impl Mounted {
    fn make(device: &LoopDevice, folder: PathBuf) -> Result<Mounted, ExperimentError> {
        std::fs::create_dir_all(&folder).map_err(of_host)?;
        ask("mkfs.ext4", &["-q", "-F", &device.0])?;
        ask("mount", &["-t", "ext4", "-o", "discard", &device.0, &folder.display().to_string()])?;
        Ok(Mounted(folder))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let folder = self.0.display().to_string();
        if ask("umount", &[&folder]).is_err() {
            let _ = ask("umount", &["--lazy", &folder]);
        }
    }
}

/// Starts what is to go on; what it prints goes to a file.
fn start(mut command: Command, scratch: &Scratch, log: &str) -> Result<Child, ExperimentError> {
    let log = File::create(scratch.file(log)).map_err(of_host)?;
    command.stdout(log.try_clone().map_err(of_host)?).stderr(log);
    let name = command.get_program().to_string_lossy().into_owned();
    command.spawn().map_err(|error| of_host(format!("{name}: {error}")))
}

fn still_runs(child: &mut Child, scratch: &Scratch, log: &str) -> Result<(), ExperimentError> {
    let Some(status) = child.try_wait().map_err(of_host)? else { return Ok(()) };
    let printed = std::fs::read_to_string(scratch.file(log)).unwrap_or_default();
    Err(ExperimentError::Host(format!("ended with {status}: {}", printed.trim())))
}

fn end(child: &mut Child) {
    // Both fail only if it has ended by itself.
    let _ = child.kill();
    let _ = child.wait();
}

/// CPU time of a process so far.
fn cpu_seconds(process: u32) -> Result<f64, ExperimentError> {
    rocksdb::cpu_seconds(&format!("/proc/{process}/stat"), [14, 15])
}

/// What a block drive has done.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Counts {
    host_blocks: u64,
    nand_blocks_written: u64,
    blocks_read: u64,
    programmed: Vec<u64>,
}

impl Counts {
    fn of(facts: &Value) -> Result<Counts, ExperimentError> {
        let missing = |name: &str| ExperimentError::Host(format!("the drive's statistics have no {name}"));
        let count = |name: &str| facts.pointer(name).and_then(Value::as_u64).ok_or_else(|| missing(name));
        let programmed = facts.pointer("/statistics/programmed").and_then(Value::as_array);
        let programmed = programmed.ok_or_else(|| missing("/statistics/programmed"))?;
        Ok(Counts {
            host_blocks: count("/statistics/host_blocks_written")?,
            nand_blocks_written: count("/nand_blocks_written")?,
            blocks_read: count("/nand/blocks_read")?,
            programmed: programmed.iter().map(|count| count.as_u64().unwrap_or(0)).collect(),
        })
    }

    fn since(&self, before: &Counts) -> Counts {
        let programmed = self.programmed.iter().zip(&before.programmed).map(|(now, before)| now - before).collect();
        Counts {
            host_blocks: self.host_blocks - before.host_blocks,
            nand_blocks_written: self.nand_blocks_written - before.nand_blocks_written,
            blocks_read: self.blocks_read - before.blocks_read,
            programmed,
        }
    }

    /// In the words in which a table drive gives its own.
    fn statistics(&self) -> Value {
        let purposes = Purpose::BESIDE_A_TENANT.iter().map(|purpose| purpose.name());
        let programmed: Vec<(&str, &u64)> = purposes.zip(&self.programmed).collect();
        json!({
            "blocks_read": self.blocks_read,
            "nand_blocks_written": self.nand_blocks_written,
            "write_amplification": self.nand_blocks_written as f64 / self.host_blocks as f64,
            "programmed": programmed,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_drive_did_in_between_is_told_as_by_a_table_drive() {
        let facts = |more: u64| {
            json!({
                "nand_blocks_written": 100 + 6 * more,
                "nand": {"blocks_read": 10 + more},
                "statistics": {"host_blocks_written": 50 + 4 * more, "programmed": [50 + 4 * more, more, 0, 0, 0, 50 + more, 0]},
            })
        };
        let [before, after] = [0, 100].map(|more| Counts::of(&facts(more)).unwrap());
        let told = after.since(&before).statistics();
        assert_eq!((&told["blocks_read"], &told["nand_blocks_written"]), (&json!(100), &json!(600)));
        assert_eq!(told["write_amplification"], 1.5);
        assert_eq!(told["programmed"][1], json!(["relocation", 100]));
        let error = Counts::of(&json!({"nand": {}})).unwrap_err().to_string();
        assert!(error.contains("/statistics/programmed"), "{error}");
    }
}
