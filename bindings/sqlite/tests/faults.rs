//! Stores that fail: each call of a script in turn finds the store full, or unreadable, or gone.

use crate::embedded::{Before, Behind, Call, Connection, Failed, Vfs, as_opened, small_store};
use libsqlite3_sys as sqlite;
use openftl_pages::{StoreError, StoreFailure};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Fails at one call of its kind, and at those behind it while `lasts`.
struct Fault {
    call: Call,
    /// Calls until then.
    after: AtomicU64,
    lasts: bool,
    failure: StoreFailure,
    happened: AtomicU64,
}

impl Before for Arc<Fault> {
    fn call(&self, call: Call) -> Result<(), StoreFailure> {
        if call != self.call {
            return Ok(());
        }
        let left = self.after.load(Ordering::Relaxed);
        if left > 1 {
            self.after.store(left - 1, Ordering::Relaxed);
            return Ok(());
        }
        if left == 1 || self.lasts && left == 0 {
            self.after.store(0, Ordering::Relaxed);
            self.happened.fetch_add(1, Ordering::Relaxed);
            return Err(self.failure.clone());
        }
        Ok(())
    }
}

/// A fault that does not happen before it is set.
const NEVER: u64 = u64::MAX;

const SCHEMA: &str = "PRAGMA page_size=1024; CREATE TABLE t(k INTEGER PRIMARY KEY, bytes); CREATE INDEX i ON t(bytes);
    WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<24) INSERT INTO t SELECT i, zeroblob(300)||i FROM n;";
const CHANGE: &str = "BEGIN; UPDATE t SET bytes=bytes||'x' WHERE k%2; DELETE FROM t WHERE k%5=0;
    INSERT INTO t SELECT k+100, bytes FROM t WHERE k<5; COMMIT;";
const DIGEST: &str = "PRAGMA integrity_check; SELECT count(*), sum(k), sum(length(bytes)) FROM t;";

/// Runs the change with a fault at call number 1, 2, ... of a kind, until there is no such call. Returns how many there were.
fn at_each_call(
    journal: &str,
    synchronous: &str,
    call: Call,
    failure: &StoreFailure,
    judge: impl Fn(&Failed, &str),
) -> u64 {
    for at in 1.. {
        let (vfs, folder) = (Vfs::new(), tempfile::tempdir().unwrap());
        let (after, happened) = (AtomicU64::new(NEVER), AtomicU64::new(0));
        let fault = Arc::new(Fault { call, after, lasts: false, failure: failure.clone(), happened });
        let pages = small_store();
        let store = vfs.provide(as_opened(Behind(Box::new(pages.clone()), Arc::clone(&fault)), false, folder.path()));
        let before = vfs.open(&store, "data.db").sql(&format!("{SCHEMA} {DIGEST}"));
        // A connection that has no page in its cache. How many it keeps depends on all connections of the process.
        let connection = vfs.open(&store, "data.db");
        connection
            .sql(&format!("PRAGMA cache_size=3; PRAGMA journal_mode={journal}; PRAGMA synchronous={synchronous};"));
        connection.sql("PRAGMA wal_autocheckpoint=4;");
        fault.after.store(at, Ordering::Relaxed);
        let ran = connection.run(CHANGE);
        fault.after.store(NEVER, Ordering::Relaxed);
        let name = format!("{journal}, {synchronous}, {call:?} {at}");
        if fault.happened.load(Ordering::Relaxed) == 0 {
            assert_eq!(ran, Ok(vec![]), "{name}");
            assert!(at > 1, "{name}: the script has no such call");
            return at - 1;
        }
        if let Err(failed) = &ran {
            judge(failed, &name);
            _ = connection.run("ROLLBACK;");
        }
        drop(connection);
        // The next program finds the state before or after, and goes on.
        let again = vfs.provide(as_opened(pages, false, folder.path()));
        let connection = vfs.open(&again, "data.db");
        let found = connection.sql(DIGEST);
        assert!(found.starts_with("ok\n"), "{name}: {found}");
        if found == before {
            // A checkpoint that fails is no fault of the transaction, and the log has that.
            assert!(ran.is_err(), "{name}: a transaction that was reported is not there");
            connection.sql(CHANGE);
            assert!(connection.sql(DIGEST).starts_with("ok\n"), "{name}");
        } else {
            connection.sql("DELETE FROM t WHERE k>=100; PRAGMA integrity_check;");
        }
    }
    unreachable!("a script has an end")
}

#[test]
fn a_store_that_is_full_at_any_call_loses_the_transaction_and_nothing_else() {
    let full = StoreFailure::Refused(StoreError::NoSpace { lpid: 1, needed: 2, free: 1 });
    for (journal, synchronous) in [("delete", "FULL"), ("memory", "OFF"), ("persist", "NORMAL"), ("wal", "FULL")] {
        let calls = at_each_call(journal, synchronous, Call::Stage, &full, |failed, name| {
            assert_eq!(failed.primary(), sqlite::SQLITE_FULL, "{name}: {failed:?}");
        });
        assert!(calls > 5, "{journal}: {calls} calls");
    }
}

#[test]
fn a_read_that_fails_is_an_error_and_changes_nothing() {
    let lost = StoreFailure::Refused(StoreError::Unrecovered { lpid: 1 });
    for (journal, synchronous) in [("delete", "FULL"), ("truncate", "OFF"), ("wal", "NORMAL")] {
        let calls = at_each_call(journal, synchronous, Call::Read, &lost, |failed, name| {
            assert_eq!(failed.primary(), sqlite::SQLITE_IOERR, "{name}: {failed:?}");
        });
        assert!(calls > 5, "{journal}: {calls} calls");
    }
}

#[test]
fn a_store_that_is_gone_at_a_commit_leaves_the_state_before_or_after() {
    let gone = StoreFailure::Gone("the power of the drive is off".to_owned());
    for (journal, synchronous) in [("delete", "FULL"), ("delete", "OFF"), ("wal", "FULL")] {
        at_each_call(journal, synchronous, Call::Commit, &gone, |failed, name| {
            assert_eq!(failed.primary(), sqlite::SQLITE_IOERR, "{name}: {failed:?}");
        });
    }
}

#[test]
fn a_store_that_stays_gone_is_an_error_in_every_call() {
    let (vfs, folder) = (Vfs::new(), tempfile::tempdir().unwrap());
    let pages = small_store();
    let store = vfs.provide(as_opened(pages.clone(), false, folder.path()));
    let connection = vfs.open(&store, "data.db");
    connection.sql(SCHEMA);
    let expected = connection.sql(DIGEST);
    connection.sql("PRAGMA cache_size=1; PRAGMA shrink_memory;");
    pages.stop(|_, _| ());
    for text in ["SELECT sum(length(bytes)) FROM t;", CHANGE, "VACUUM;", "PRAGMA integrity_check;"] {
        let ran = connection.run(text);
        let is_error = ran.as_ref().is_err_and(|failed| failed.primary() == sqlite::SQLITE_IOERR);
        assert!(is_error || text.starts_with("PRAGMA") && ran.is_ok_and(|rows| rows != ["ok"]), "{text}");
        _ = connection.run("ROLLBACK;");
    }
    let text = Connection::open(&vfs.uri(&store, "other.db")).and_then(|other| other.run("CREATE TABLE t(n);"));
    assert!(text.is_err(), "{text:?}");
    drop(connection);
    assert!(expected.starts_with("ok\n24|"), "{expected}");
}
