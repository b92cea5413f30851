//! Power cuts under SQLite: every state in which one can leave the device is opened again, and judged.
//!
//! SQLite goes on meanwhile, so one run finds the states of all its moments.

use crate::embedded::{Before, Behind, Call, Connection, Vfs, as_opened, device, format, reopen};
use openftl_drive::page_store::PageStore;
use openftl_media::Profile;
use openftl_pages::StoreFailure;
use openftl_sim::wire::{CrashPoint, Wire};
use std::ops::Deref;

/// Transactions of each run.
const TRANSACTIONS: u64 = 4;

#[derive(Clone)]
struct Nothing;

impl Before for Nothing {
    fn call(&self, _call: Call) -> Result<(), StoreFailure> {
        Ok(())
    }
}

/// A store behind a wire.
#[derive(Clone)]
struct OneThread(PageStore<Wire>);

// SAFETY: a wire belongs to one thread, and each of these tests has one.
unsafe impl Send for OneThread {}
// SAFETY: as above.
unsafe impl Sync for OneThread {}

impl Deref for OneThread {
    type Target = PageStore<Wire>;

    fn deref(&self) -> &PageStore<Wire> {
        &self.0
    }
}

/// How SQLite writes.
#[derive(Clone, Copy, Debug)]
struct Mode {
    journal: &'static str,
    synchronous: &'static str,
    compress: &'static str,
    /// Each transaction changes two databases.
    has_two: bool,
}

impl Mode {
    /// Whether what SQLite reports as committed survives.
    fn is_durable(self) -> bool {
        self.synchronous == "FULL" || self.synchronous == "NORMAL" && self.journal != "wal"
    }
}

const STATE: &str = "SELECT n, (SELECT count(*) FROM t), (SELECT sum(length(bytes)) FROM t) FROM s;
    PRAGMA integrity_check; SELECT count(*) FROM t WHERE length(bytes) <> 700 + k * 31;";

/// What the databases say after so many transactions.
fn expected(transactions: u64) -> String {
    let rows: Vec<u64> = (0..=transactions).filter(|row| row % 4 != 2 || *row + 1 > transactions).collect();
    let bytes: u64 = rows.iter().map(|row| 700 + row * 31).sum();
    format!("{transactions}|{}|{bytes}\nok\n0", rows.len())
}

fn transaction(number: u64, has_two: bool) -> String {
    let of = |schema: &str| {
        format!(
            "INSERT INTO {schema}.t VALUES({number}, zeroblob(700 + {number} * 31)); UPDATE {schema}.s SET n = {number};
             DELETE FROM {schema}.t WHERE k = {number} - 1 AND k % 4 = 2;"
        )
    };
    format!("BEGIN; {} {} COMMIT;", of("main"), if has_two { of("two") } else { String::new() })
}

/// Opens what a power cut has left. Returns which transactions its databases have.
fn judge(vfs: &Vfs, crash_point: CrashPoint, has_two: bool, name: &str) -> u64 {
    let folder = tempfile::tempdir().unwrap();
    let pages = reopen(crash_point.device, crash_point.at);
    let store = vfs.provide(as_opened(pages, false, folder.path()));
    let connection = vfs.open(&store, "data.db");
    let found = connection.run(STATE).unwrap_or_else(|failed| panic!("{name}: {failed:?}")).join("\n");
    let transactions = found.split('|').next().and_then(|number| number.parse().ok());
    let transactions: u64 = transactions.unwrap_or_else(|| panic!("{name}: {found}"));
    assert_eq!(found, expected(transactions), "{name}");
    if has_two {
        let other = vfs.open(&store, "two.db");
        assert_eq!(other.sql(STATE), found, "{name}: databases of one transaction agree");
    }
    // The database goes on.
    connection.sql(&transaction(transactions + 1, false));
    assert_eq!(connection.sql(STATE), expected(transactions + 1), "{name}");
    connection.close().unwrap();
    transactions
}

/// Runs transactions, and judges every state that a power cut could have left. Returns how many there were.
fn play(mode: Mode, profile: &Profile) -> u64 {
    let (vfs, folder) = (Vfs::new(), tempfile::tempdir().unwrap());
    let wire = Wire::new(device(profile.clone(), 32));
    let pages = Behind(OneThread(format(wire.clone())), Nothing);
    let store = vfs.provide(as_opened(pages, false, folder.path()));
    let uri = format!("{}&compress={}", vfs.uri(&store, "data.db"), mode.compress);
    let connection = Connection::open(&uri).unwrap();
    let schema = "CREATE TABLE t(k INTEGER PRIMARY KEY, bytes); CREATE INDEX i ON t(length(bytes));
        CREATE TABLE s(n); INSERT INTO s VALUES(0); INSERT INTO t VALUES(0, zeroblob(700));";
    connection.sql(&format!("PRAGMA page_size=1024; PRAGMA cache_size=4; {schema}"));
    if mode.has_two {
        connection.sql(&format!("ATTACH '{}' AS two; PRAGMA two.page_size=512;", vfs.uri(&store, "two.db")));
        connection
            .sql(&schema.replace("TABLE ", "TABLE two.").replace("INDEX ", "INDEX two.").replace("INTO ", "INTO two."));
    }
    for name in if mode.has_two { &["main", "two"][..] } else { &["main"] } {
        let Mode { journal, synchronous, .. } = mode;
        let said = connection.sql(&format!("PRAGMA {name}.journal_mode={journal};"));
        assert_eq!(said, journal);
        connection.sql(&format!("PRAGMA {name}.synchronous={synchronous}; PRAGMA wal_autocheckpoint=12;"));
    }
    let mut cuts = 0;
    wire.watch();
    for number in 1..=TRANSACTIONS {
        // The last one is taken back before it is made again.
        if number == TRANSACTIONS {
            connection.sql(&transaction(number, mode.has_two).replace("COMMIT", "ROLLBACK"));
        }
        connection.sql(&transaction(number, mode.has_two));
        wire.look();
        let least = if mode.is_durable() { number - 1 } else { 0 };
        for crash_point in wire.crash_points() {
            cuts += 1;
            let name = format!("{mode:?}, transaction {number}, cut at {:?}", crash_point.at);
            let found = judge(&vfs, crash_point, mode.has_two, &name);
            assert!((least..=number).contains(&found), "{name}: {found} transactions are there, and {least} should");
        }
    }
    // What was reported is there at the end.
    wire.look();
    for crash_point in wire.crash_points() {
        let name = format!("{mode:?}, at the end");
        let found = judge(&vfs, crash_point, mode.has_two, &name);
        assert!(found == TRANSACTIONS || !mode.is_durable(), "{name}: {found} transactions are there");
        cuts += 1;
    }
    assert_eq!(connection.sql(STATE), expected(TRANSACTIONS));
    cuts
}

#[test]
fn every_power_cut_leaves_whole_transactions_and_all_that_are_durable() {
    let profile = Profile::builtin("tiny").unwrap();
    let mut cuts = 0;
    for journal in ["delete", "truncate", "persist", "memory", "wal"] {
        for (synchronous, compress) in [("OFF", "none"), ("NORMAL", "lz4"), ("FULL", "zstd")] {
            cuts += play(Mode { journal, synchronous, compress, has_two: false }, &profile);
        }
    }
    println!("{cuts} states after a power cut");
    assert!(cuts > 250, "{cuts}");
}

#[test]
fn every_power_cut_leaves_databases_of_one_transaction_agreeing() {
    let profile = Profile::builtin("tiny").unwrap();
    let mut cuts = 0;
    let modes = [("delete", "FULL"), ("truncate", "OFF"), ("persist", "NORMAL"), ("delete", "NORMAL")];
    for (journal, synchronous) in modes {
        cuts += play(Mode { journal, synchronous, compress: "none", has_two: true }, &profile);
    }
    println!("{cuts} states after a power cut");
    assert!(cuts > 100, "{cuts}");
}
