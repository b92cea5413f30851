//! SQLite inside the tests, with the VFS on stores that the tests have open: unmodified, from the crate that everybody takes it from.

use libsqlite3_sys as sqlite;
use openftl_core::{FrameForm, Time};
use openftl_dispatch::{Pace, PaceClock};
use openftl_drive::page_store::PageStore;
use openftl_media::{EmulatedDevice, Media, Profile, Store, Timing};
use openftl_pages::{BlockingStore, Change, Ftl, PageFacts, PageFtl, Session, SessionId, StoreFacts, StoreFailure};
use openftl_parts::{Access, Config, Durability};
use openftl_sqlite::Registry;
use openftl_sqlite::opened::Opened;
use std::ffi::{CStr, CString, c_int};
use std::ops::Deref;
use std::path::Path;
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

static NEXT: AtomicU64 = AtomicU64::new(0);

/// A VFS of the library, with stores of its own: what another process would have.
pub struct Vfs {
    name: &'static CStr,
    registry: &'static Registry,
}

impl Vfs {
    pub fn new() -> Vfs {
        static LOADED: Once = Once::new();
        LOADED.call_once(|| {
            // SAFETY: SQLite calls the entry with the arguments of every extension; it says that it stays loaded, which is no error.
            unsafe {
                type Entry = unsafe extern "C" fn(
                    *mut sqlite::sqlite3,
                    *mut *mut std::ffi::c_char,
                    *const sqlite::sqlite3_api_routines,
                ) -> c_int;
                let entry = openftl_sqlite::sqlite3_extension_init as *const ();
                let entry = std::mem::transmute::<*const (), Entry>(entry);
                assert_eq!(sqlite::sqlite3_auto_extension(Some(entry)), sqlite::SQLITE_OK);
                let mut database = std::ptr::null_mut();
                sqlite::sqlite3_open(c":memory:".as_ptr(), &raw mut database);
                sqlite::sqlite3_close(database);
                sqlite::sqlite3_reset_auto_extension();
            }
        });
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name: &'static CStr = Box::leak(CString::new(format!("openftl-{number}")).unwrap().into_boxed_c_str());
        Vfs { name, registry: openftl_sqlite::register(name) }
    }

    /// Gives it a store. Returns the name that URIs have for it.
    pub fn provide(&self, open: impl Fn() -> Opened + Send + 'static) -> String {
        let name = format!("store-{}", NEXT.fetch_add(1, Ordering::Relaxed));
        self.registry.provide(&name, Box::new(open)).unwrap();
        name
    }

    pub fn uri(&self, store: &str, database: &str) -> String {
        format!("file:{database}?store={store}&vfs={}", self.name.to_str().unwrap())
    }

    pub fn open(&self, store: &str, database: &str) -> Connection {
        Connection::open(&self.uri(store, database)).expect("it opens")
    }
}

/// A result code that is an error, and its message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failed {
    pub code: c_int,
    pub text: String,
}

impl Failed {
    /// The code without what is particular about it.
    pub fn primary(&self) -> c_int {
        self.code & 0xff
    }
}

/// A connection to a database.
pub struct Connection(*mut sqlite::sqlite3);

// SAFETY: SQLite is built for threads, and serializes calls.
unsafe impl Send for Connection {}

impl Connection {
    pub fn open(uri: &str) -> Result<Connection, Failed> {
        let (uri, mut database) = (CString::new(uri).unwrap(), std::ptr::null_mut());
        let flags = sqlite::SQLITE_OPEN_READWRITE | sqlite::SQLITE_OPEN_CREATE | sqlite::SQLITE_OPEN_URI;
        // SAFETY: a string, and a place for the connection.
        let code = unsafe { sqlite::sqlite3_open_v2(uri.as_ptr(), &raw mut database, flags, std::ptr::null()) };
        let connection = Connection(database);
        if code == sqlite::SQLITE_OK { Ok(connection) } else { Err(connection.failed()) }
    }

    fn failed(&self) -> Failed {
        // SAFETY: the connection is there, or null, and SQLite has a message for both.
        unsafe {
            let code = sqlite::sqlite3_extended_errcode(self.0);
            let text = CStr::from_ptr(sqlite::sqlite3_errmsg(self.0)).to_string_lossy().into_owned();
            Failed { code, text }
        }
    }

    pub fn wait_for_locks(&self, milliseconds: c_int) {
        // SAFETY: the connection is open.
        unsafe { sqlite::sqlite3_busy_timeout(self.0, milliseconds) };
    }

    /// Runs statements. Returns the columns of each row, with `|` between them.
    pub fn run(&self, text: &str) -> Result<Vec<String>, Failed> {
        let text = CString::new(text).unwrap();
        let (mut rest, mut rows) = (text.as_ptr(), Vec::new());
        // SAFETY: the connection is open; the text ends with 0, and SQLite says where the next statement begins in it.
        unsafe {
            while *rest != 0 {
                let mut statement = std::ptr::null_mut();
                let code = sqlite::sqlite3_prepare_v2(self.0, rest, -1, &raw mut statement, &raw mut rest);
                if code != sqlite::SQLITE_OK {
                    return Err(self.failed());
                }
                if statement.is_null() {
                    continue;
                }
                let ended = loop {
                    match sqlite::sqlite3_step(statement) {
                        sqlite::SQLITE_ROW => {
                            let columns = (0..sqlite::sqlite3_column_count(statement)).map(|column| {
                                let text = sqlite::sqlite3_column_text(statement, column);
                                match text.is_null() {
                                    true => String::new(),
                                    false => CStr::from_ptr(text.cast()).to_string_lossy().into_owned(),
                                }
                            });
                            rows.push(columns.collect::<Vec<_>>().join("|"));
                        }
                        code => break code,
                    }
                };
                let failed = (ended != sqlite::SQLITE_DONE).then(|| self.failed());
                sqlite::sqlite3_finalize(statement);
                if let Some(failed) = failed {
                    return Err(failed);
                }
            }
        }
        Ok(rows)
    }

    /// The same; all of them succeed.
    pub fn sql(&self, text: &str) -> String {
        self.run(text).unwrap_or_else(|failed| panic!("{text}: {failed:?}")).join("\n")
    }

    /// Ends the connection.
    pub fn close(mut self) -> Result<(), Failed> {
        // SAFETY: the connection is open, and nobody uses it any more.
        let code = unsafe { sqlite::sqlite3_close(std::mem::replace(&mut self.0, std::ptr::null_mut())) };
        if code == sqlite::SQLITE_OK { Ok(()) } else { Err(Failed { code, text: "close".to_owned() }) }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // SAFETY: the connection is open, or null.
        unsafe { sqlite::sqlite3_close(self.0) };
    }
}

fn config() -> Config {
    let checkpoint_log_blocks = Some(8);
    Config { drive_id: 5, payload: FrameForm::Bytes, host_frames: 512, checkpoint_log_blocks, ..Config::default() }
}

/// A device in memory.
pub fn device(profile: Profile, chunks: u32) -> EmulatedDevice {
    EmulatedDevice::new(profile, chunks, Store::Ram, Timing::Modelled, 3).unwrap()
}

/// A new store on a device, in virtual time.
pub fn format<M: Media>(media: M) -> PageStore<M> {
    let mut clock = PaceClock { pace: Pace::Virtual, now: Time::ZERO };
    PageStore::new(PageFtl::format(media, config(), (), &mut clock).unwrap(), clock)
}

/// The store that is on a device.
pub fn reopen<M: Media>(media: M, now: Time) -> PageStore<M> {
    let mut clock = PaceClock { pace: Pace::Virtual, now };
    PageStore::new(PageFtl::open_with(media, config(), (), Access::ReadWrite, &mut clock).unwrap(), clock)
}

/// A new store in memory, of some 12 MiB.
pub fn small_store() -> PageStore<EmulatedDevice> {
    format(device(Profile::builtin("tiny").unwrap(), 64))
}

/// A store that stays with the test, as its VFS opens it.
pub fn as_opened<S: BlockingStore + Send + Sync + Clone + 'static>(
    pages: S,
    is_shared: bool,
    locks: &Path,
) -> impl Fn() -> Opened + Send + 'static {
    let locks = locks.to_owned();
    move || Opened { pages: Box::new(pages.clone()), local: None, is_shared, locks: locks.clone() }
}

/// What comes before a call reaches the store.
pub trait Before {
    fn call(&self, call: Call) -> Result<(), StoreFailure>;
}

/// What is called.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Call {
    Read,
    Stage,
    Commit,
    Other,
}

/// A store behind something that may fail.
#[derive(Clone)]
pub struct Behind<S, B>(pub S, pub B);

impl<S: Deref<Target: BlockingStore>, B: Before> BlockingStore for Behind<S, B> {
    fn open_session(&self, id: SessionId) -> Result<(Session, u64), StoreFailure> {
        self.1.call(Call::Other)?;
        self.0.open_session(id)
    }

    fn close_session(&self, session: Session, forget: bool) -> Result<(), StoreFailure> {
        self.0.close_session(session, forget)
    }

    fn stage(
        &self,
        session: Session,
        wsn: u64,
        lpid: u64,
        change: Change<'_>,
        if_version: Option<u64>,
    ) -> Result<(), StoreFailure> {
        self.1.call(Call::Stage)?;
        self.0.stage(session, wsn, lpid, change, if_version)
    }

    fn commit(&self, session: Session, wsn: u64, durability: Durability) -> Result<(), StoreFailure> {
        self.1.call(Call::Commit)?;
        self.0.commit(session, wsn, durability)
    }

    fn abort(&self, session: Session, wsn: u64) -> Result<(), StoreFailure> {
        self.0.abort(session, wsn)
    }

    fn read(&self, lpid: u64, offset: u32, buffer: &mut [u8]) -> Result<PageFacts, StoreFailure> {
        self.1.call(Call::Read)?;
        self.0.read(lpid, offset, buffer)
    }

    fn stat(&self, lpid: u64) -> Result<PageFacts, StoreFailure> {
        self.1.call(Call::Read)?;
        self.0.stat(lpid)
    }

    fn list(&self, from: u64, most: usize) -> Result<Vec<(u64, u32)>, StoreFailure> {
        self.1.call(Call::Other)?;
        self.0.list(from, most)
    }

    fn sync(&self) -> Result<(), StoreFailure> {
        self.1.call(Call::Commit)?;
        self.0.sync()
    }

    fn facts(&self) -> Result<StoreFacts, StoreFailure> {
        self.1.call(Call::Other)?;
        self.0.facts()
    }
}
