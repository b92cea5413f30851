//! SQLite on ext4 on the drive, its power cut in the middle of inserts: every row whose commit was reported must be there.
//!
//! ```text
//!   sqlite3 ── insert, commit, print the row's number ──▶ what must be there
//!      │
//!    ext4 ─ loop device ─ nbdfuse ─ openftl serve ◀── openftl ctl power-cut --seed N, power-on
//! ```
//!
//! And because a test that cannot fail shows nothing, the same is done on a drive that lies about flush: it must be found
//! out.

use crate::drive::{Drive, openftl};
use crate::environment::{Need, runs_here};
use crate::mounted::{Disk, Mounted, text};
use crate::pattern::next;
use crate::program::{Running, run, wait_for};
use crate::server::Server;
use std::cell::Cell;
use std::fs;
use std::path::PathBuf;

const NEEDS: [Need; 7] = [
    Need::Mount,
    Need::Fuse,
    Need::Loop,
    Need::Program("nbdfuse"),
    Need::Program("fusermount3"),
    Need::Program("mkfs.ext4"),
    Need::Program("sqlite3"),
];

/// Ways in which SQLite promises that a committed row survives a power cut.
const WAL: [&str; 1] = ["PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;"];
const ROLLBACK: [&str; 3] = [
    "PRAGMA journal_mode=TRUNCATE; PRAGMA synchronous=FULL;",
    "PRAGMA journal_mode=DELETE; PRAGMA synchronous=EXTRA;",
    "PRAGMA journal_mode=PERSIST; PRAGMA synchronous=FULL;",
];

/// A way in which it does not: a commit in this mode is the removal of a file, and only `synchronous=EXTRA` syncs the
/// folder after it (<https://sqlite.org/pragma.html#pragma_synchronous>). So the last row may go.
const WITHOUT_FOLDER_SYNC: &str = "PRAGMA journal_mode=DELETE; PRAGMA synchronous=FULL;";

/// Rows that one life of the drive inserts at most; it ends long before.
const ROWS_MAX: u64 = 100_000;

/// What a row with number `id` holds, from a few bytes to several pages, as SQL says it.
const PAYLOAD: &str = "printf('%0*d', 20 + id * 7919 % 9000, id)";

/// A drive with a file system and a database on it.
struct Machine {
    drive: Drive,
    server: Server,
    /// Program operations that power cuts have hit so far.
    programs_hit: Cell<u64>,
}

/// The file system of a drive while it has power; taken down from the top.
struct Up {
    mounted: Mounted,
    disk: Disk,
}

impl Machine {
    fn new(drive: Drive, flags: &[&str]) -> Machine {
        let server = drive.serve_with(flags);
        let machine = Machine { drive, server, programs_hit: Cell::new(0) };
        let disk = Disk::attach(&machine.server);
        disk.make_ext4();
        let mounted = disk.mount();
        let table = "CREATE TABLE rows(id INTEGER PRIMARY KEY, payload TEXT)";
        run("sqlite3", ["-bail", &database(&mounted), table]).succeeded();
        mounted.unmount();
        machine
    }

    fn up(&self) -> Result<Up, String> {
        let disk = Disk::attach(&self.server);
        let mounted = disk.try_mount().map_err(|ended| ended.to_string())?;
        Ok(Up { mounted, disk })
    }

    /// Inserts rows from `first` on, cuts the power in the middle of it, turns it on again. Gives the number of the last
    /// row whose commit SQLite has reported.
    fn insert_until_the_power_goes(&self, up: Up, setup: &str, first: u64, seed: u64) -> u64 {
        let script = self.drive.beside("inserts.sql");
        let mut sql = format!("{setup}\n");
        for id in first..first + ROWS_MAX {
            sql += &format!("INSERT INTO rows SELECT id, {PAYLOAD} FROM (SELECT {id} AS id); SELECT 'row', {id};\n");
        }
        fs::write(&script, sql).unwrap();
        let read = format!(".read {}", text(&script));
        let mut inserter = Running::start("sqlite3", ["-bail", &database(&up.mounted), &read]);
        let wanted = 1 + next(&mut seed.clone()) % 20;
        wait_for("rows to be committed", || {
            if let Some(ended) = inserter.ended() {
                panic!("SQLite ended before the power cut: {ended}");
            }
            (last_reported(&inserter.stdout()).is_some_and(|last| last >= first - 1 + wanted)).then_some(())
        });
        let cut = self.drive.ask(&["power-cut", "--seed", &seed.to_string()]);
        let hit = |what: &str| cut["flash"][what].as_u64().expect("a count");
        self.programs_hit.set(self.programs_hit.get() + hit("programs_lost") + hit("programs_torn"));
        let ended = wait_for("SQLite to lose its drive", || inserter.ended());
        assert!(!ended.status.success(), "SQLite inserts rows without a drive: {ended}");
        let Up { mounted, disk } = up;
        drop(mounted);
        drop(disk);
        self.drive.ctl(&["power-on"]).succeeded();
        last_reported(&ended.stdout).expect("rows were committed")
    }

    /// Checks everything from the top; how many program operations power cuts have hit.
    fn end(self, up: Up) -> u64 {
        up.mounted.unmount();
        up.disk.has_sound_ext4();
        drop(up.disk);
        self.server.stop();
        self.drive.check();
        self.programs_hit.get()
    }
}

fn database(mounted: &Mounted) -> String {
    text(&mounted.path().join("rows.db")).to_owned()
}

/// The last row that SQLite has reported, in a line that is whole.
fn last_reported(stdout: &str) -> Option<u64> {
    let (lines, _) = stdout.rsplit_once('\n')?;
    lines.lines().rev().find_map(|line| line.strip_prefix("row|")?.parse().ok())
}

/// What is wrong with the database, if rows 1 to `committed` must be there. Gives the number of rows; one may be there
/// whose commit was on its way.
fn verdict(up: &Up, committed: u64) -> Result<u64, String> {
    let rows =
        format!("SELECT 'rows', count(*), ifnull(max(id), 0), ifnull(sum(payload IS NOT {PAYLOAD}), 0) FROM rows");
    let ended = run("sqlite3", ["-bail", &database(&up.mounted), "PRAGMA integrity_check", &rows]);
    if !ended.status.success() || ended.stdout.lines().next() != Some("ok") {
        return Err(format!("the database is damaged: {ended}"));
    }
    let line = ended.stdout.lines().last().and_then(|line| line.strip_prefix("rows|")).expect("a line of counts");
    let counts: Vec<u64> = line.split('|').map(|count| count.parse().expect("a count")).collect();
    let [count, last, wrong] = counts[..] else { panic!("three counts: {line}") };
    if count != last || wrong != 0 {
        return Err(format!("{count} rows up to number {last}, {wrong} of them with another payload"));
    }
    if !(committed..=committed + 1).contains(&last) {
        return Err(format!("row {committed} was committed, and the last one is {last}"));
    }
    Ok(last)
}

/// Gives how many program operations the power cuts have hit.
fn every_committed_row_survives(drive: Drive, flags: &[&str], setups: &[&str], seeds: std::ops::Range<u64>) -> u64 {
    let machine = Machine::new(drive, flags);
    let mut up = machine.up().unwrap();
    let mut rows = 0;
    for (seed, setup) in seeds.zip(setups.iter().cycle()) {
        let committed = machine.insert_until_the_power_goes(up, setup, rows + 1, seed);
        up = machine.up().unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        rows = verdict(&up, committed).unwrap_or_else(|error| panic!("seed {seed}, {setup}: {error}"));
    }
    machine.end(up)
}

#[test]
fn sqlite_in_wal_mode_loses_no_committed_row_in_a_dozen_power_cuts() {
    if !runs_here(&NEEDS) {
        return;
    }
    // In time as the NAND takes it, so that cuts fall into programs and leave them torn.
    let drive = Drive::create_volatile();
    let hit = every_committed_row_survives(drive, &["--timing", "wall-clock"], &WAL, 100..112);
    assert!(hit > 0, "every cut came while the flash was idle");
}

#[test]
fn sqlite_in_rollback_mode_loses_no_committed_row_in_a_dozen_power_cuts() {
    if runs_here(&NEEDS) {
        every_committed_row_survives(Drive::create(), &["--timing", "instant"], &ROLLBACK, 200..212);
    }
}

#[test]
fn a_drive_that_lies_about_flush_is_found_out_by_the_rows_that_it_lost() {
    if !runs_here(&NEEDS) {
        return;
    }
    for (setup, seed) in [(WAL[0], 300), (ROLLBACK[0], 301)] {
        let machine = Machine::new(Drive::create(), &["--timing", "instant"]);
        machine.drive.ctl(&["lie-about-flush", "on"]).succeeded();
        let committed = machine.insert_until_the_power_goes(machine.up().unwrap(), setup, 1, seed);
        let verdict = machine.up().and_then(|up| verdict(&up, committed));
        let error = verdict.expect_err("a lost flush goes unnoticed");
        assert!(error.contains(&format!("row {committed} was committed")), "rows are what is missing: {error}");
        machine.server.kill();
    }
}

#[test]
fn a_commit_whose_folder_is_not_synced_is_found_out_by_the_row_that_it_lost() {
    if !runs_here(&NEEDS) {
        return;
    }
    let machine = Machine::new(Drive::create(), &["--timing", "instant"]);
    let mut rows = 0;
    // A commit is lost if the cut comes before the next one has synced the file system.
    let lost = (400..424).find_map(|seed| {
        let up = machine.up().unwrap();
        let committed = machine.insert_until_the_power_goes(up, WITHOUT_FOLDER_SYNC, rows + 1, seed);
        let up = machine.up().unwrap();
        let verdict = verdict(&up, committed);
        up.mounted.unmount();
        rows = *verdict.as_ref().unwrap_or(&0);
        verdict.err()
    });
    let error = lost.expect("a commit that is not durable goes unnoticed in two dozen power cuts");
    assert!(error.contains("was committed, and the last one is"), "{error}");
    machine.server.stop();
}

/// The script of docs/POWER_CUTS.md.
fn script_of_the_guide() -> String {
    let guide = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/POWER_CUTS.md")).unwrap();
    let (_, script) = guide.split_once("```sh\n#!/bin/sh\n").expect("the guide has a script");
    script.split_once("```").expect("the script has an end").0.to_owned()
}

#[test]
fn the_script_of_the_guide_works_as_printed() {
    if !runs_here(&NEEDS) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("power-cuts.sh");
    fs::write(&script, script_of_the_guide()).unwrap();
    let openftl = PathBuf::from(openftl());
    let others = std::env::var("PATH").unwrap_or_default();
    let path = format!("PATH={}:{others}:/usr/sbin:/sbin", text(openftl.parent().unwrap()));
    let run_in = |place: &str, lie: &str, last: &str| {
        let work = folder.path().join(place);
        fs::create_dir_all(&work).unwrap();
        run("env", ["-C", text(&work), &path, lie, "sh", text(&script), WAL[0], "1", last])
    };
    let honest = run_in("honest", "lie=off", "3").succeeded();
    assert!(honest.stdout.contains("committed rows lost: no"), "{honest}");
    assert_eq!(honest.stdout.matches("integrity ok").count(), 3, "{honest}");
    run_in("honest", "lie=off", "1").succeeded().printing(&["committed rows lost: no"]);
    let lying = run_in("lying", "lie=on", "3").failed();
    assert!(lying.stdout.contains("committed rows lost: yes"), "{lying}");
}
