//! What people do with databases every day.

use crate::world::{Drive, PYTHON, SQLITE, library, python, runs_here};

/// Rows of some length.
const ROWS: &str =
    "CREATE TABLE rows(id INTEGER PRIMARY KEY, name TEXT, number INTEGER); CREATE INDEX by_number ON rows(number);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<2000)
INSERT INTO rows SELECT i, 'name of row ' || i || hex(zeroblob(40)), i*7919%1000 FROM n;";
const CHECK: &str = "PRAGMA integrity_check; SELECT count(*), sum(number), sum(length(name)) FROM rows;";

#[test]
fn rows_are_there_when_the_store_is_opened_again() {
    if !runs_here(SQLITE) {
        return;
    }
    let drive = Drive::new("64MiB");
    let made = drive.sql("data.db", &format!("{ROWS}{CHECK}"));
    assert_eq!(drive.sql("data.db", CHECK), made);
    assert!(made.starts_with("ok\n2000|"), "{made}");
    let changes = "BEGIN; UPDATE rows SET number=number+1; DELETE FROM rows WHERE id%3=0; ROLLBACK;
        BEGIN; SAVEPOINT a; DELETE FROM rows; ROLLBACK TO a; RELEASE a; COMMIT;";
    assert_eq!(drive.sql("data.db", &format!("{changes}{CHECK}")), made);
    assert_eq!(drive.sql("data.db", CHECK), made);
    // Pages that SQLite has written and takes back.
    let spilled = format!("PRAGMA cache_size=5; {changes} {CHECK}");
    assert_eq!(drive.sql("data.db", &spilled), made);
    assert_eq!(drive.sql("data.db", CHECK), made);
    assert_eq!(drive.sql_with("data.db", "&compress=lz4", &format!("UPDATE rows SET number=number; {CHECK}")), made);
    assert_eq!(drive.sql("data.db", CHECK), made);
}

#[test]
fn each_journal_mode_commits_and_rolls_back() {
    if !runs_here(SQLITE) {
        return;
    }
    for mode in ["delete", "truncate", "persist", "memory", "off", "wal"] {
        for synchronous in ["OFF", "FULL"] {
            let drive = Drive::new("64MiB");
            let pragmas = format!("PRAGMA journal_mode={mode}; PRAGMA synchronous={synchronous}; PRAGMA cache_size=5;");
            let commits = "UPDATE rows SET number=number+1 WHERE id%2; DELETE FROM rows WHERE id%7=0;";
            let rollback = if mode == "off" { "" } else { "BEGIN; DELETE FROM rows WHERE id%2; ROLLBACK;" };
            let made = drive.sql("data.db", &format!("{pragmas}{ROWS}{commits}{rollback}{CHECK}"));
            assert_eq!(made.lines().next(), Some(mode));
            assert_eq!(made.lines().nth(1), Some("ok"), "{mode} {synchronous}: {made}");
            let again = drive.sql("data.db", CHECK);
            assert!(made.ends_with(&again) && again.starts_with("ok\n1715|"), "{mode} {synchronous}: {made} {again}");
        }
    }
}

#[test]
fn vacuum_changes_page_sizes_and_truncates() {
    if !runs_here(SQLITE) {
        return;
    }
    let drive = Drive::new("64MiB");
    let made = drive.sql("data.db", &format!("PRAGMA page_size=1024; {ROWS}{CHECK}"));
    for page_bytes in [512, 65536, 4096, 1024] {
        let text = format!("PRAGMA page_size={page_bytes}; VACUUM; {CHECK} PRAGMA page_size;");
        assert_eq!(drive.sql("data.db", &text), format!("{made}\n{page_bytes}"));
        assert_eq!(drive.sql("data.db", &format!("{CHECK} PRAGMA page_size;")), format!("{made}\n{page_bytes}"));
    }
    let less = drive.sql("data.db", &format!("DELETE FROM rows WHERE id>100; VACUUM; {CHECK} PRAGMA page_count;"));
    assert_eq!(drive.sql("data.db", &format!("{CHECK} PRAGMA page_count;")), less);
    let automatic = "PRAGMA auto_vacuum=FULL; VACUUM;
        WITH RECURSIVE n(i) AS (SELECT 1000 UNION ALL SELECT i+1 FROM n WHERE i<3000)
        INSERT INTO rows SELECT i, hex(randomblob(50)), i FROM n; DELETE FROM rows WHERE id%3;";
    let full = drive.sql("data.db", &format!("{automatic} {CHECK} PRAGMA page_count;"));
    assert!(full.starts_with("ok\n"), "{full}");
    assert_eq!(drive.sql("data.db", &format!("{CHECK} PRAGMA page_count;")), full);
}

#[test]
fn backups_and_attached_databases_agree() {
    if !runs_here(SQLITE) {
        return;
    }
    let drive = Drive::new("64MiB");
    let made = drive.sql("data.db", &format!("{ROWS}{CHECK}"));
    drive.sql("data.db", ".backup copy.db");
    let other = std::process::Command::new(SQLITE).current_dir(drive.folder()).args(["copy.db", CHECK]).output();
    assert_eq!(String::from_utf8_lossy(&other.expect("sqlite3 runs").stdout).trim_end(), made);
    let uri = drive.uri("second.db");
    drive.sql("data.db", &format!(".backup '{uri}'"));
    assert_eq!(drive.sql("second.db", CHECK), made);
    drive.sql("third.db", ".restore copy.db");
    assert_eq!(drive.sql("third.db", CHECK), made);
    // A name without a URI is in the store that is open.
    let both = "ATTACH 'second.db' AS two; BEGIN; DELETE FROM main.rows WHERE id%2; DELETE FROM two.rows WHERE id%2;";
    let count = "SELECT (SELECT count(*) FROM main.rows), (SELECT count(*) FROM two.rows); PRAGMA integrity_check;";
    let rolled_back = drive.sql("data.db", &format!("{both} ROLLBACK; {count}"));
    assert_eq!(rolled_back, "2000|2000\nok");
    let batches = "PRAGMA openftl_statistics;";
    let text = drive.sql("data.db", &format!("{batches} {both} COMMIT; {batches} {count}"));
    let lines: Vec<&str> = text.lines().collect();
    let committed = |line: &str| crate::world::figure(line, "batches_committed");
    assert_eq!(committed(lines[1]) - committed(lines[0]), 1, "two databases are one batch: {text}");
    assert_eq!(lines[2..], ["1000|1000", "ok"]);
    assert_eq!(drive.sql("second.db", "SELECT count(*) FROM rows; PRAGMA integrity_check;"), "1000\nok");
}

#[test]
fn stores_with_databases_of_one_name_are_used_side_by_side() {
    if !runs_here(SQLITE) {
        return;
    }
    let (one, two) = (Drive::new("64MiB"), Drive::new("64MiB"));
    let made = one.sql("data.db", &format!("{ROWS}{CHECK}"));
    let attach = format!("ATTACH '{}' AS two;", two.uri("data.db"));
    let copy = "CREATE TABLE two.rows AS SELECT * FROM main.rows;
        BEGIN; DELETE FROM main.rows WHERE id<=10; DELETE FROM two.rows WHERE id<=20; COMMIT;
        BEGIN; DELETE FROM main.rows; DELETE FROM two.rows; ROLLBACK;";
    let count = "SELECT (SELECT count(*) FROM main.rows), (SELECT count(*) FROM two.rows); PRAGMA integrity_check;";
    assert_eq!(one.sql("data.db", &format!("{attach}{copy}{count}")), "1990|1980\nok");
    assert_eq!(one.sql("data.db", &format!("{attach}{count}")), "1990|1980\nok");
    let found = two.sql("data.db", CHECK);
    assert!(found.starts_with("ok\n1980|") && found != made, "{found}");
    // A database that SQLite makes by itself, in the only store that is open.
    two.sql("data.db", "VACUUM INTO 'packed.db';");
    assert_eq!(two.sql("packed.db", CHECK), found);
    let long = "n".repeat(2000);
    let output = two.output(&long, "", "SELECT 1;");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("is longer than") && errors.contains("unable to open"), "{errors}");
}

#[test]
fn names_lead_to_stores_in_several_ways() {
    if !runs_here(SQLITE) {
        return;
    }
    let drive = Drive::new("64MiB");
    let made = drive.sql("a/data.db", &format!("{ROWS}{CHECK}"));
    let load = format!(".load {}\n", library().display());
    let run = |commands: String, variables: &[(&str, &str)]| {
        let mut command = std::process::Command::new(SQLITE);
        command.arg("-batch").current_dir(drive.folder()).envs(variables.iter().copied());
        let commands = format!("{load}{commands}\n{CHECK}");
        let file = drive.folder().join("commands");
        std::fs::write(&file, commands).expect("a file can be written");
        let output = command.stdin(std::fs::File::open(&file).expect("it is there")).output().expect("sqlite3 runs");
        String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
    };
    let (disk, description) = (drive.disk(), drive.description());
    let (disk, description) = (disk.to_str().expect("UTF-8"), description.to_str().expect("UTF-8"));
    let uri = |store: &str| format!(".open 'file:a/data.db?vfs=openftl&store={store}'");
    assert_eq!(run(uri(disk), &[]), made);
    assert_eq!(run(uri(description), &[]), made);
    assert_eq!(run(".open 'file:a/data.db?vfs=openftl'".to_owned(), &[("OPENFTL_STORE", disk)]), made);
    assert_eq!(run(format!(".open 'file:{disk}/a/data.db?vfs=openftl'"), &[]), made);
    let default = [("OPENFTL_STORE", disk), ("OPENFTL_SQLITE_DEFAULT", "1")];
    assert_eq!(run(".open a/data.db".to_owned(), &default), made);
    let attached = format!("{}&default=1'\n.open a/data.db", uri(disk).trim_end_matches('\''));
    assert_eq!(run(attached, &[("OPENFTL_STORE", disk)]), made);
}

#[test]
fn a_database_with_a_log_keeps_it_when_it_is_restored_and_alone() {
    if !runs_here(SQLITE) {
        return;
    }
    let drive = Drive::new("64MiB");
    let text = drive.sql("data.db", &format!("PRAGMA journal_mode=WAL; {ROWS}{CHECK}"));
    assert!(text.starts_with("wal\nok\n2000|"), "{text}");
    // Alone SQLite needs no shared memory for one.
    let alone =
        "PRAGMA locking_mode=EXCLUSIVE; PRAGMA journal_mode; UPDATE rows SET number=number; SELECT count(*) FROM rows;";
    assert_eq!(drive.sql("data.db", alone), "exclusive\nwal\n2000");
    assert!(text.ends_with(&drive.sql("data.db", CHECK)));
    // A database that has one elsewhere.
    let copy = drive.folder().join("copy.db");
    let made = std::process::Command::new(SQLITE).arg(&copy).arg(format!("PRAGMA journal_mode=WAL; {ROWS}")).output();
    assert_eq!(String::from_utf8_lossy(&made.expect("sqlite3 runs").stdout).trim_end(), "wal");
    drive.sql("third.db", ".restore copy.db");
    assert_eq!(drive.sql("third.db", &format!("PRAGMA journal_mode; {CHECK}")), text);
}

#[test]
fn exclusive_locking_commits_and_rolls_back() {
    if !runs_here(SQLITE) {
        return;
    }
    let drive = Drive::new("64MiB");
    let text = "BEGIN; DELETE FROM rows WHERE id%2; ROLLBACK; DELETE FROM rows WHERE id>1500;";
    let made =
        drive.sql("data.db", &format!("PRAGMA locking_mode=EXCLUSIVE; PRAGMA cache_size=5; {ROWS}{text}{CHECK}"));
    assert!(made.starts_with("exclusive\nok\n1500|"), "{made}");
    assert!(made.ends_with(&drive.sql("data.db", CHECK)));
}

#[test]
fn python_uses_a_store_from_several_connections_and_threads() {
    if !runs_here(PYTHON) {
        return;
    }
    let drive = Drive::new("64MiB");
    let script = "
import sqlite3, threading
loader = sqlite3.connect(':memory:')
loader.enable_load_extension(True)
loader.load_extension(LIBRARY)
def connect():
    return sqlite3.connect(URI, uri=True, timeout=60, isolation_level=None)
one, two = connect(), connect()
one.execute('create table t(id integer primary key, writer, n)')
one.execute('begin immediate')
one.execute('insert into t values(1, 0, 0)')
assert two.execute('select count(*) from t').fetchone() == (0,)
two.execute('pragma busy_timeout=0')
try:
    two.execute('begin immediate')
    raise SystemExit('two writers')
except sqlite3.OperationalError as error:
    assert 'locked' in str(error), error
one.execute('commit')
assert two.execute('select count(*) from t').fetchone() == (1,)
def write(writer):
    connection = connect()
    for n in range(50):
        connection.execute('begin immediate')
        connection.execute('insert into t(writer, n) values(?, ?)', (writer, n))
        connection.execute('rollback' if n % 5 == 4 else 'commit')
    connection.close()
threads = [threading.Thread(target=write, args=(i,)) for i in range(1, 5)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(two.execute('select count(*) from t').fetchone(), two.execute('pragma integrity_check').fetchone())
";
    assert_eq!(python(&drive, script), "(161,) ('ok',)");
    if runs_here(SQLITE) {
        assert_eq!(drive.sql("data.db", "SELECT count(*) FROM t; PRAGMA integrity_check;"), "161\nok");
    }
}
