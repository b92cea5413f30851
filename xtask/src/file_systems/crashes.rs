//! Programs under which the server of a mount is killed, or the power of its drive is cut: what they had synced is there at the next mount.

use super::Suites;
use super::volume::{Volume, at, wait_for};
use crate::shell;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Rows that one process of SQLite inserts, at most.
const ROWS: u64 = 100_000;

/// A row's payload as an expression.
const PAYLOAD: &str = "printf('%064d', id * 7919)";

/// What fio writes in one round: all blocks of a file, in pieces of many sizes.
const FIO: [&str; 9] = [
    "--name=file",
    // One process, which is gone when it is killed.
    "--thread",
    "--rw=randwrite",
    "--bsrange=4k-64k",
    "--size=64m",
    "--randseed=7",
    "--ioengine=psync",
    "--verify_fatal=1",
    "--verify_state_save=0",
];

/// Kinds of checksums, each of which a round writes: blocks of the round before are found out.
const KINDS: [&str; 3] = ["--verify=crc32c", "--verify=md5", "--verify=xxhash"];

/// A program that is killed when dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail if it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn fio(file: &Path, words: &[&str]) -> Command {
    let mut command = Command::new("fio");
    command.args(FIO).args(words).arg(format!("--filename={}", file.display())).stdin(Stdio::null());
    command
}

/// Writes that nobody has synced when everything ends.
fn begin_writes(volume: &Volume) -> Result<Running, String> {
    let other = volume.root.join("other");
    let mut command =
        fio(&other, &["--time_based", "--runtime=3600", "--fsync=16", "--verify=crc32c", "--do_verify=0"]);
    let log = volume.log("other.log")?;
    let running = Running(command.stdout(log).stderr(Stdio::null()).spawn().map_err(|error| error.to_string())?);
    wait_for("the first write", || Ok(other.exists().then_some(())))?;
    Ok(running)
}

impl Suites {
    /// fio, `kill -9` of the mount, and fio's verification at the next mount.
    pub fn fio_killed(&self, rounds: u32) -> Result<(), String> {
        let volume = self.volume("fio-killed")?;
        let file = volume.root.join("file");
        for round in 0..rounds {
            let kind = KINDS[round as usize % KINDS.len()];
            let mounted = volume.mount(&[])?;
            shell::output(&mut fio(&file, &[kind, "--do_verify=0", "--end_fsync=1"]))?;
            let writes = begin_writes(&volume)?;
            mounted.kill()?;
            drop(writes);
            volume.fsck()?;
            let mounted = volume.mount(&[])?;
            shell::output(&mut fio(&file, &[kind, "--verify_only=1"]))?;
            mounted.unmount()?;
        }
        println!("fio, killed: {rounds} rounds, every block verified");
        Ok(())
    }

    /// The same on a served drive whose power is cut.
    pub fn fio_without_power(&self, rounds: u32) -> Result<(), String> {
        let volume = self.volume("fio-without-power")?;
        let file = volume.root.join("file");
        let served = volume.serve()?;
        for round in 0..rounds {
            let kind = KINDS[round as usize % KINDS.len()];
            let mounted = volume.mount_of(&served.uri, &[])?;
            shell::output(&mut fio(&file, &[kind, "--do_verify=0", "--end_fsync=1"]))?;
            let writes = begin_writes(&volume)?;
            volume.power_cycle()?;
            drop(writes);
            mounted.unmount_without_drive()?;
            let mounted = volume.mount_of(&served.uri, &[])?;
            shell::output(&mut fio(&file, &[kind, "--verify_only=1"]))?;
            mounted.kill()?;
        }
        drop(served);
        println!("fio, power cut: {rounds} rounds, every block verified");
        volume.fsck()
    }

    /// SQLite, `kill -9` of the mount, and SQLite's own check of the database at the next one, with a rollback journal and with a log.
    pub fn sqlite_killed(&self, rounds: u32) -> Result<(), String> {
        let volume = self.volume("sqlite-killed")?;
        let database = volume.root.join("rows.db");
        let sqlite = |sql: &str| shell::output(Command::new("sqlite3").arg("-bail").arg(&database).arg(sql));
        let mut committed = 0;
        for round in 0..rounds {
            let journal = ["DELETE", "WAL"][round as usize % 2];
            let mounted = volume.mount(&[])?;
            sqlite("CREATE TABLE IF NOT EXISTS rows(id INTEGER PRIMARY KEY, payload TEXT)")?;
            let script = volume.folder.join("inserts.sql");
            // With FULL, a crash may bring back the journal whose deletion is the commit.
            let mut sql = format!("PRAGMA journal_mode = {journal}; PRAGMA synchronous = EXTRA;\n");
            for id in committed + 1..=committed + ROWS {
                sql +=
                    &format!("INSERT INTO rows SELECT id, {PAYLOAD} FROM (SELECT {id} AS id); SELECT 'row', {id};\n");
            }
            fs::write(&script, sql).map_err(|error| at(&script, &error))?;
            let log = volume.folder.join("rows.log");
            let mut command = Command::new("sqlite3");
            command.arg("-bail").arg(&database).arg(format!(".read {}", script.display()));
            command.stdin(Stdio::null()).stdout(volume.log("rows.log")?).stderr(Stdio::null());
            let mut inserter = Running(command.spawn().map_err(|error| error.to_string())?);
            let wanted = committed + 20 + u64::from(round) % 20;
            wait_for("rows to be committed", || match inserter.0.try_wait() {
                Ok(None) => Ok(last_row(&log)?.filter(|last| *last >= wanted)),
                ended => Err(format!("SQLite ended before its mount: {ended:?}")),
            })?;
            // A power cut would end both at once. SQLite by itself would go on: it deletes a journal, does not find the folder that it is to
            // sync then, since its file system is gone, and says that the row is committed.
            stop(&inserter.0)?;
            mounted.kill()?;
            drop(inserter);
            committed = last_row(&log)?.unwrap_or(committed);
            volume.fsck()?;
            let mounted = volume.mount(&[])?;
            let check = sqlite("PRAGMA integrity_check")?;
            let counts = sqlite(&format!("SELECT count(*), max(id), sum(payload IS NOT {PAYLOAD}) FROM rows"))?;
            let counts: Vec<u64> = counts.trim().split('|').filter_map(|count| count.parse().ok()).collect();
            // One more row may be there, whose commit was on its way.
            let is_right = matches!(counts[..], [rows, last, 0] if rows == last && last.wrapping_sub(committed) <= 1);
            if check.trim() != "ok" || !is_right {
                let found = check.trim();
                return Err(format!("round {round}, {journal}: {committed} rows were committed; {found}, {counts:?}"));
            }
            committed = counts[1];
            mounted.unmount()?;
        }
        println!("sqlite3, killed: {rounds} rounds, {committed} rows, none lost");
        Ok(())
    }
}

/// Has a process do nothing more.
fn stop(process: &Child) -> Result<(), String> {
    let number = process.id().to_string();
    shell::output(Command::new("kill").args(["-STOP", &number]))?;
    let stat = Path::new("/proc").join(&number).join("stat");
    wait_for("a process to stop", || {
        let text = fs::read_to_string(&stat).map_err(|error| at(&stat, &error))?;
        // The state stands behind the name, which may contain anything.
        let state = text.rsplit_once(") ").and_then(|(_, fields)| fields.chars().next());
        match state {
            Some('T') => Ok(Some(())),
            Some('Z') | None => Err("SQLite ended before its mount".to_owned()),
            Some(_) => Ok(None),
        }
    })
}

/// The last row that SQLite has said to be committed, in a line that is whole.
fn last_row(log: &Path) -> Result<Option<u64>, String> {
    let text = fs::read_to_string(log).map_err(|error| at(log, &error))?;
    let lines = text.rsplit_once('\n').map_or("", |(lines, _)| lines);
    Ok(lines.lines().rev().find_map(|line| line.strip_prefix("row|")?.parse().ok()))
}
