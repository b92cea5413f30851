//! Write-ahead logs among connections of one process.

use crate::embedded::{Vfs, as_opened, small_store};
use crate::world::{Drive, SQLITE, figure, runs_here};
use libsqlite3_sys as sqlite;

const SCHEMA: &str = "CREATE TABLE t(k INTEGER PRIMARY KEY, n INTEGER, bytes);
    WITH RECURSIVE i(k) AS (SELECT 1 UNION ALL SELECT k+1 FROM i WHERE k<100) INSERT INTO t SELECT k, 0, zeroblob(200) FROM i;";

#[test]
fn readers_see_one_moment_beside_a_writer() {
    for synchronous in ["OFF", "NORMAL", "FULL"] {
        let (vfs, folder) = (Vfs::new(), tempfile::tempdir().unwrap());
        let store = vfs.provide(as_opened(small_store(), false, folder.path()));
        let [writer, reader, third] = [0; 3].map(|_| vfs.open(&store, "data.db"));
        let pragmas = format!("PRAGMA journal_mode=wal; PRAGMA synchronous={synchronous};");
        assert_eq!(writer.sql(&format!("PRAGMA page_size=1024; {pragmas} {SCHEMA}")), "wal");
        reader.sql("BEGIN;");
        let sum = "SELECT sum(n) FROM t;";
        assert_eq!(reader.sql(sum), "0");
        writer.sql("BEGIN; UPDATE t SET n=1; ");
        assert_eq!((reader.sql(sum), third.sql(sum)), ("0".to_owned(), "0".to_owned()));
        assert_eq!(third.run("BEGIN IMMEDIATE;").unwrap_err().primary(), sqlite::SQLITE_BUSY);
        writer.sql("COMMIT;");
        assert_eq!((reader.sql(sum), third.sql(sum)), ("0".to_owned(), "100".to_owned()));
        // The log cannot be copied beyond what the reader sees.
        assert!(writer.sql("PRAGMA wal_checkpoint;").starts_with("0|"));
        writer.sql("UPDATE t SET n=2; DELETE FROM t WHERE k>50;");
        assert_eq!(reader.sql("SELECT sum(n), count(*) FROM t; COMMIT;"), "0|100");
        assert_eq!(reader.sql("SELECT sum(n), count(*) FROM t; PRAGMA integrity_check;"), "100|50\nok");
        assert!(third.sql("PRAGMA wal_checkpoint(TRUNCATE);").starts_with("0|0|0"), "all of the log is copied");
        writer.sql("UPDATE t SET n=3; VACUUM;");
        assert_eq!(third.sql("SELECT sum(n) FROM t; PRAGMA integrity_check;"), "150\nok");
        drop((reader, third));
        assert_eq!(
            writer.sql("PRAGMA journal_mode=delete; PRAGMA integrity_check; SELECT sum(n) FROM t;"),
            "delete\nok\n150"
        );
        writer.close().unwrap();
    }
}

#[test]
fn threads_count_in_every_mode_and_lose_nothing() {
    const THREADS: u64 = 4;
    const ADDED: u64 = 60;
    for (journal, synchronous) in [("wal", "NORMAL"), ("wal", "FULL"), ("delete", "FULL")] {
        let (vfs, folder) = (Vfs::new(), tempfile::tempdir().unwrap());
        let store = vfs.provide(as_opened(small_store(), false, folder.path()));
        let first = vfs.open(&store, "data.db");
        first.sql(&format!("PRAGMA page_size=1024; PRAGMA journal_mode={journal}; {SCHEMA}"));
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let connection = vfs.open(&store, "data.db");
                scope.spawn(move || {
                    connection.wait_for_locks(60_000);
                    connection.sql(&format!("PRAGMA synchronous={synchronous}; PRAGMA wal_autocheckpoint=20;"));
                    for at in 0..ADDED {
                        let row = (thread * 31 + at * 7) % 50 + 1;
                        connection.sql(&format!(
                            "BEGIN IMMEDIATE; UPDATE t SET n=n+1 WHERE k={row}; UPDATE t SET n=n-1 WHERE k={row}+50; COMMIT;"
                        ));
                        // Both halves of every transaction, or neither.
                        assert_eq!(connection.sql("SELECT sum(n) FROM t;"), "0");
                    }
                });
            }
        });
        let text = "PRAGMA integrity_check; SELECT sum(n) FROM t WHERE k<=50;";
        assert_eq!(first.sql(text), format!("ok\n{}", THREADS * ADDED), "{journal} {synchronous}");
    }
}

#[test]
fn debians_shell_uses_a_log_and_its_bytes_are_counted() {
    if !runs_here(SQLITE) {
        return;
    }
    let drive = Drive::new("64MiB");
    let made = drive.sql("data.db", &format!("PRAGMA journal_mode=WAL; {SCHEMA} SELECT count(*) FROM t;"));
    assert_eq!(made, "wal\n100");
    let text = drive.sql(
        "data.db",
        "PRAGMA journal_mode; PRAGMA openftl_statistics; UPDATE t SET n=n+1 WHERE k=5; PRAGMA openftl_statistics;
         PRAGMA integrity_check; SELECT sum(n) FROM t;",
    );
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!((lines[0], lines[3], lines[4]), ("wal", "ok", "1"), "{text}");
    // The head of the log, one frame and the head of the file; and the directory, which names the log.
    let put = figure(lines[2], "pages_put") - figure(lines[1], "pages_put");
    assert_eq!(put, 4, "{text}");
    let exclusive = "PRAGMA locking_mode=EXCLUSIVE; PRAGMA journal_mode; UPDATE t SET n=n+1; SELECT sum(n) FROM t;";
    assert_eq!(drive.sql("data.db", exclusive), "exclusive\nwal\n101");
    assert_eq!(drive.sql("data.db", "PRAGMA integrity_check; SELECT sum(n) FROM t;"), "ok\n101");
    let names =
        std::fs::read_dir(drive.folder()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let names: Vec<String> = names.filter(|name| name.contains("lock") || name.contains("shm")).collect();
    assert!(names.is_empty(), "who closes the store leaves no locks: {names:?}");
    let zstd = drive.sql_with("data.db", "&compress=zstd", "UPDATE t SET bytes=zeroblob(300); PRAGMA integrity_check;");
    assert_eq!(zstd, "ok");
    assert_eq!(
        drive.sql("data.db", "SELECT count(*) FROM t WHERE length(bytes)>200; PRAGMA integrity_check;"),
        "100\nok"
    );
    let back = "PRAGMA journal_mode=DELETE; UPDATE t SET n=0; PRAGMA integrity_check;";
    assert_eq!(drive.sql("data.db", back), "delete\nok");
}
