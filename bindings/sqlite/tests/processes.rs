//! Several processes on one store, each played by a VFS of its own: with its own stores, its own session and its own open files, so all that they
//! share is the store of pages and the files of the locks. Programs on a store that a server has are tested with the server.

use crate::embedded::{Before, Behind, Call, Connection, Vfs, as_opened, small_store};
use libsqlite3_sys as sqlite;
use openftl_drive::page_store::PageStore;
use openftl_media::EmulatedDevice;
use openftl_pages::{BlockingStore, SessionId, StoreFailure};
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A process with a connection to a database.
struct Process {
    vfs: Vfs,
    store: String,
}

impl Process {
    fn new(pages: &PageStore<EmulatedDevice>, locks: &Path) -> Process {
        let vfs = Vfs::new();
        let store = vfs.provide(as_opened(pages.clone(), true, locks));
        Process { vfs, store }
    }

    fn open(&self, database: &str) -> Connection {
        self.vfs.open(&self.store, database)
    }
}

const SCHEMA: &str =
    "CREATE TABLE t(k INTEGER PRIMARY KEY, n INTEGER, bytes); INSERT INTO t VALUES(1, 0, zeroblob(5000));";

#[test]
fn a_process_sees_what_another_has_committed_and_waits_for_its_locks() {
    let (pages, folder) = (small_store(), tempfile::tempdir().unwrap());
    let [one, two] = [0, 1].map(|_| Process::new(&pages, folder.path()));
    let (here, there) = (one.open("data.db"), two.open("data.db"));
    here.sql(SCHEMA);
    let get = "SELECT n, length(bytes) FROM t;";
    assert_eq!((here.sql(get), there.sql(get)), ("0|5000".to_owned(), "0|5000".to_owned()));
    for round in 1..=20 {
        let (writer, reader) = if round % 2 == 0 { (&here, &there) } else { (&there, &here) };
        writer.sql(&format!("BEGIN IMMEDIATE; UPDATE t SET n={round}, bytes=zeroblob({});", 3000 * (round % 5)));
        // RESERVED: readers read what was, and nobody else writes.
        let before = reader.sql("SELECT n FROM t;");
        assert_eq!(before, (round - 1).to_string());
        assert_eq!(reader.run("BEGIN IMMEDIATE;").unwrap_err().primary(), sqlite::SQLITE_BUSY);
        // SHARED: the writer waits.
        reader.sql("BEGIN; SELECT n FROM t;");
        assert_eq!(writer.run("COMMIT;").unwrap_err().primary(), sqlite::SQLITE_BUSY);
        assert_eq!(one.open("data.db").run("SELECT n FROM t;").unwrap_err().primary(), sqlite::SQLITE_BUSY, "PENDING");
        reader.sql("COMMIT;");
        writer.sql("COMMIT;");
        assert_eq!(reader.sql("SELECT n FROM t; PRAGMA integrity_check;"), format!("{round}\nok"));
        if round % 5 == 0 {
            reader.sql("VACUUM;");
        }
    }
    // What one leaves unfinished is nobody's.
    here.sql("BEGIN; UPDATE t SET n=1000;");
    drop(here);
    assert_eq!(there.sql("SELECT n FROM t;"), "20");
}

#[test]
fn processes_make_and_delete_databases_side_by_side() {
    let (pages, folder) = (small_store(), tempfile::tempdir().unwrap());
    let processes = [0, 1, 2].map(|_| Process::new(&pages, folder.path()));
    std::thread::scope(|scope| {
        for (number, process) in processes.iter().enumerate() {
            scope.spawn(move || {
                for at in 0..15 {
                    let database = process.open(&format!("{number}-{at}.db"));
                    database.sql(&format!("PRAGMA journal_mode=wal; {SCHEMA} UPDATE t SET n={at};"));
                }
            });
        }
    });
    for at in 0..15 {
        for number in 0..3 {
            let database = processes[(number + 1) % 3].open(&format!("{number}-{at}.db"));
            assert_eq!(database.sql("SELECT n FROM t; PRAGMA integrity_check;"), format!("{at}\nok"));
        }
    }
}

#[test]
fn processes_share_a_write_ahead_log() {
    let (pages, folder) = (small_store(), tempfile::tempdir().unwrap());
    let [one, two] = [0, 1].map(|_| Process::new(&pages, folder.path()));
    for synchronous in ["OFF", "NORMAL", "FULL"] {
        let name = format!("{synchronous}.db");
        let (here, there) = (one.open(&name), two.open(&name));
        for connection in [&here, &there] {
            assert_eq!(connection.sql("PRAGMA journal_mode=wal;"), "wal");
            connection.sql(&format!("PRAGMA synchronous={synchronous}; PRAGMA wal_autocheckpoint=0;"));
        }
        here.sql(SCHEMA);
        there.sql("BEGIN; SELECT n FROM t;");
        here.sql("UPDATE t SET n=1;");
        assert_eq!(there.sql("SELECT n FROM t;"), "0", "{synchronous}: one moment");
        there.sql("COMMIT;");
        assert_eq!(there.sql("SELECT n FROM t;"), "1", "{synchronous}");
        there.sql("UPDATE t SET n=2, bytes=zeroblob(30000); PRAGMA wal_checkpoint;");
        assert_eq!(here.sql("SELECT n, length(bytes) FROM t; PRAGMA integrity_check;"), "2|30000\nok", "{synchronous}");
        here.sql("UPDATE t SET n=3; PRAGMA wal_checkpoint(TRUNCATE); DELETE FROM t WHERE k>1; VACUUM;");
        assert_eq!(there.sql("SELECT n FROM t; PRAGMA integrity_check;"), "3\nok", "{synchronous}");
        drop(here);
        assert_eq!(there.sql("UPDATE t SET n=4; SELECT n FROM t; PRAGMA integrity_check;"), "4\nok", "{synchronous}");
        drop(there);
        assert_eq!(one.open(&name).sql("SELECT n FROM t; PRAGMA integrity_check;"), "4\nok", "{synchronous}");
    }
}

#[test]
fn processes_at_random_never_see_half_a_transaction() {
    for seed in 0..6 {
        let (pages, folder) = (small_store(), tempfile::tempdir().unwrap());
        let processes = [0, 1, 2].map(|_| Process::new(&pages, folder.path()));
        let journal = if seed % 2 == 0 { "wal" } else { "delete" };
        let first = processes[0].open("data.db");
        first.sql(&format!("PRAGMA page_size=1024; PRAGMA journal_mode={journal};
            CREATE TABLE t(k INTEGER PRIMARY KEY, n INTEGER, bytes); CREATE TABLE sum(n INTEGER); INSERT INTO sum VALUES(0);"));
        let added: u64 = std::thread::scope(|scope| {
            let workers = processes.iter().zip(0_u64..).map(|(process, number)| {
                scope.spawn(move || {
                    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed * 10 + number);
                    let mut connection = process.open("data.db");
                    let mut added = 0;
                    for _ in 0..60 {
                        connection.wait_for_locks(60_000);
                        let (row, bytes) = (random.next_u32() % 40, random.next_u32() % 4000);
                        match random.next_u32() % 10 {
                            0 => connection = process.open("data.db"),
                            1 => _ = connection.run("PRAGMA wal_checkpoint(TRUNCATE);"),
                            2 | 3 => {
                                let text = "SELECT (SELECT coalesce(sum(n), 0) FROM t) = (SELECT n FROM sum);";
                                assert_eq!(connection.sql(text), "1", "seed {seed}");
                            }
                            4 => connection.sql(&format!(
                                "BEGIN IMMEDIATE; UPDATE sum SET n=n-coalesce((SELECT n FROM t WHERE k={row}), 0);
                                 DELETE FROM t WHERE k={row}; ROLLBACK;"
                            )).clear(),
                            _ => {
                                connection.sql(&format!(
                                    "BEGIN IMMEDIATE; UPDATE sum SET n=n+1;
                                     INSERT INTO t VALUES({row}, 1, zeroblob({bytes})) ON CONFLICT DO UPDATE SET n=n+1, bytes=excluded.bytes; COMMIT;"
                                ));
                                added += 1;
                            }
                        }
                    }
                    added
                })
            });
            workers.collect::<Vec<_>>().into_iter().map(|worker| worker.join().unwrap()).sum()
        });
        let text = "PRAGMA integrity_check; SELECT n FROM sum; SELECT sum(n) FROM t;";
        assert_eq!(first.sql(text), format!("ok\n{added}\n{added}"), "seed {seed}");
    }
}

/// Another process that opens at once: it takes the first session in the moment in which the one that comes through here has closed it to open it
/// again.
#[derive(Clone)]
struct Faster(PageStore<EmulatedDevice>, Arc<AtomicU64>);

impl Before for Faster {
    fn call(&self, call: Call) -> Result<(), StoreFailure> {
        if call == Call::Other && self.1.fetch_add(1, Ordering::Relaxed) == 1 {
            self.0.open_session(SessionId(*b"openftl-sqlite\0\0")).expect("nobody has it in this moment");
        }
        Ok(())
    }
}

#[test]
fn a_session_that_another_process_takes_first_is_no_reason_to_fail() {
    let (pages, folder, vfs) = (small_store(), tempfile::tempdir().unwrap(), Vfs::new());
    let calls = Arc::new(AtomicU64::new(0));
    let faster = Faster(pages.clone(), Arc::clone(&calls));
    let store = vfs.provide(as_opened(Behind(Box::new(pages), faster), true, folder.path()));
    assert_eq!(vfs.open(&store, "data.db").sql(&format!("{SCHEMA} SELECT count(*) FROM t;")), "1");
    assert!(calls.load(Ordering::Relaxed) > 2);
}
