//! What the VFS commits for the small transactions of the table of orders: the recordings that `openftl reproduce ox-eleos` replays.
//!
//! Nothing of it is drawn, so a recording is the same to the last byte whenever it is made. `OPENFTL_RECORD=1 cargo test -p openftl-sqlite --test all
//! recordings` writes them anew. That of a SQLite that has atomic batches by itself needs another SQLite: it is compared, or written, where that is
//! built with `LIBSQLITE3_FLAGS=-DSQLITE_ENABLE_BATCH_ATOMIC_WRITE`.

use crate::embedded::{Connection, Vfs, as_opened, device, format};
use openftl_drive::page_store::PageStore;
use openftl_experiments::order_table;
use openftl_experiments::page_trace::{PageChange, PageRecorder, PageStep, PageTrace};
use openftl_experiments::recorded::{FOLDER, OF_VFS, TRANSACTIONS, VfsRecording};
use openftl_media::{EmulatedDevice, Profile};
use openftl_pages::{BlockingStore, Change, PageFacts, Session, SessionId, StoreFacts, StoreFailure};
use openftl_parts::Durability;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};

/// What was committed so far, and the batch that grows.
struct Seen {
    recorder: PageRecorder,
    batch: Vec<PageChange>,
}

/// A store that records what is committed to it.
#[derive(Clone)]
struct Recorded {
    store: PageStore<EmulatedDevice>,
    seen: Arc<Mutex<Seen>>,
}

impl Recorded {
    fn new(about: &str) -> Recorded {
        let store = format(device(Profile::builtin("cosmos").unwrap(), 64));
        let seen = Seen { recorder: PageRecorder::new(about), batch: Vec::new() };
        Recorded { store, seen: Arc::new(Mutex::new(seen)) }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap()
    }

    fn ends_phase(&self, bytes: u64) {
        self.seen().recorder.add(&PageStep::Phase { bytes });
    }
}

impl BlockingStore for Recorded {
    fn open_session(&self, id: SessionId) -> Result<(Session, u64), StoreFailure> {
        self.store.open_session(id)
    }

    fn close_session(&self, session: Session, forget: bool) -> Result<(), StoreFailure> {
        self.seen().batch.clear();
        self.store.close_session(session, forget)
    }

    fn stage(
        &self,
        session: Session,
        wsn: u64,
        lpid: u64,
        change: Change<'_>,
        if_version: Option<u64>,
    ) -> Result<(), StoreFailure> {
        self.store.stage(session, wsn, lpid, change, if_version)?;
        let bytes = if let Change::Put(pieces) = change { pieces.iter().map(|piece| piece.len()).sum() } else { 0 };
        let bytes = u32::try_from(bytes).expect("a page has 1 MiB at most");
        self.seen().batch.push(PageChange { lpid, bytes });
        Ok(())
    }

    fn commit(&self, session: Session, wsn: u64, durability: Durability) -> Result<(), StoreFailure> {
        self.store.commit(session, wsn, durability)?;
        let mut seen = self.seen();
        let changes = std::mem::take(&mut seen.batch);
        seen.recorder.add(&PageStep::Batch { changes, durability });
        Ok(())
    }

    fn abort(&self, session: Session, wsn: u64) -> Result<(), StoreFailure> {
        self.seen().batch.clear();
        self.store.abort(session, wsn)
    }

    fn read(&self, lpid: u64, offset: u32, buffer: &mut [u8]) -> Result<PageFacts, StoreFailure> {
        self.store.read(lpid, offset, buffer)
    }

    fn stat(&self, lpid: u64) -> Result<PageFacts, StoreFailure> {
        self.store.stat(lpid)
    }

    fn list(&self, from: u64, most: usize) -> Result<Vec<(u64, u32)>, StoreFailure> {
        self.store.list(from, most)
    }

    fn sync(&self) -> Result<(), StoreFailure> {
        self.store.sync()?;
        self.seen().recorder.add(&PageStep::Sync);
        Ok(())
    }

    fn facts(&self) -> Result<StoreFacts, StoreFailure> {
        self.store.facts()
    }
}

/// Makes the table, and then has one transaction after the other.
fn record(recording: VfsRecording) -> Vec<u8> {
    let build = if recording.batch_atomic { ", batch-atomic build" } else { "" };
    let about = format!("sqlite, {} compression{build}, {TRANSACTIONS} transactions", recording.compress);
    let (vfs, folder, recorded) = (Vfs::new(), tempfile::tempdir().unwrap(), Recorded::new(&about));
    let store = vfs.provide(as_opened(recorded.clone(), false, folder.path()));
    let connect = || {
        let uri = vfs.uri(&store, "data.db");
        let connection = Connection::open(&format!("{uri}&compress={}", recording.compress)).unwrap();
        connection.sql("PRAGMA synchronous=FULL;");
        connection
    };
    // As on ext4, where another process makes the table.
    connect().sql(&order_table::rows());
    recorded.ends_phase(0);
    let connection = connect();
    for at in 0..TRANSACTIONS {
        connection.sql(&order_table::transaction(at));
        recorded.ends_phase(order_table::changed_bytes(at));
    }
    assert_eq!(connection.sql("PRAGMA integrity_check;"), "ok");
    drop(connection);
    recorded.ends_phase(0);
    let recorder = recorded.seen().recorder.clone();
    recorder.finish()
}

/// Whether SQLite uses atomic batches by itself.
fn is_batch_atomic() -> bool {
    let vfs = Vfs::new();
    let folder = tempfile::tempdir().unwrap();
    let store = vfs.provide(as_opened(crate::embedded::small_store(), false, folder.path()));
    vfs.open(&store, "options.db").sql("SELECT sqlite_compileoption_used('ENABLE_BATCH_ATOMIC_WRITE');") == "1"
}

#[test]
fn recordings_are_what_the_vfs_commits() {
    let is_batch_atomic = is_batch_atomic();
    for (name, recording) in OF_VFS.into_iter().filter(|(_, recording)| recording.batch_atomic == is_batch_atomic) {
        let (path, recorded) = (Path::new(FOLDER).join(format!("{name}.trace")), record(recording));
        if std::env::var_os("OPENFTL_RECORD").is_some() {
            std::fs::write(&path, &recorded).unwrap();
        }
        let kept = std::fs::read(&path).unwrap_or_default();
        assert!(
            kept == recorded,
            "{}: the VFS commits something else by now ({} bytes of recording, not {}); the head of this file says how to record it anew",
            path.display(),
            recorded.len(),
            kept.len()
        );
    }
}

#[test]
fn a_small_transaction_is_one_durable_batch_in_every_recording() {
    for (name, _) in OF_VFS {
        let bytes = std::fs::read(Path::new(FOLDER).join(format!("{name}.trace"))).unwrap();
        let mut trace = PageTrace::new(&bytes).unwrap();
        let (mut phases, mut durable) = (Vec::new(), 0);
        while let Some(step) = trace.read_next().unwrap() {
            match step {
                PageStep::Batch { durability, .. } => durable += u64::from(durability == Durability::Durable),
                PageStep::Sync => {}
                PageStep::Phase { .. } => phases.push(std::mem::take(&mut durable)),
            }
        }
        let transactions = &phases[1..=usize::try_from(TRANSACTIONS).unwrap()];
        assert!(phases.len() as u64 == TRANSACTIONS + 2 && transactions.iter().all(|durable| *durable == 1), "{name}");
    }
}
