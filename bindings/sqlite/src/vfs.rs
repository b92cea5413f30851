//! The VFS, and how SQLite loads it.
//!
//! SQLite calls one of two entries when it loads the library: `sqlite3_extension_init`, or the one that it makes of the name of the file. The
//! library stays loaded, since connections to come use the VFS.

use crate::ffi::{self, Routines, Vfs};
use crate::file::{self, Handle, OpenFile};
use crate::format::Compression;
use crate::registry::Registry;
use crate::scratch::Scratch;
use crate::trouble::Trouble;
use crate::volume::Volume;
use std::ffi::{CStr, CString, c_char, c_double, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

/// The name of the VFS.
pub const NAME: &CStr = c"openftl";
/// Bytes of a full path with its end.
const PATH_BYTES_MAX: c_int = 1024;
/// The environment variable that makes it the default VFS.
const DEFAULT_VARIABLE: &str = "OPENFTL_SQLITE_DEFAULT";

/// What SQLite has given when it loaded the library.
struct Sqlite {
    routines: *const Routines,
    /// The VFS that was the default, for what has nothing to do with files.
    base: *mut Vfs,
    own: *mut Vfs,
}

// SAFETY: SQLite's functions may be called from any thread; the pointers stay as they are while the process lives.
unsafe impl Send for Sqlite {}
// SAFETY: as above.
unsafe impl Sync for Sqlite {}

static SQLITE: OnceLock<Sqlite> = OnceLock::new();

fn sqlite() -> &'static Sqlite {
    SQLITE.get().expect("SQLite calls the VFS after it has loaded the library")
}

/// Writes a line to the log of SQLite.
pub fn log(code: c_int, message: &str) {
    let (Some(sqlite), Ok(text)) = (SQLITE.get(), CString::new(message.replace('\0', " "))) else { return };
    // SAFETY: the table is SQLite's; the format takes one string, and gets one.
    unsafe { ((*sqlite.routines).log)(code, c"openftl: %s".as_ptr(), text.as_ptr()) };
}

/// A string that SQLite frees.
pub fn string(text: &str) -> *mut c_char {
    let Ok(text) = CString::new(text) else { return std::ptr::null_mut() };
    // SAFETY: the table is SQLite's; the format takes one string, and gets one.
    unsafe { ((*sqlite().routines).mprintf)(c"%s".as_ptr(), text.as_ptr()) }
}

/// Does what SQLite has called for; a trouble goes to the log, and its code to SQLite.
pub fn run(call: impl FnOnce() -> Result<(), Trouble>) -> c_int {
    let trouble = match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(())) => return ffi::OK,
        Ok(Err(trouble)) => trouble,
        Err(panic) => {
            let words = panic.downcast_ref::<String>().map(String::as_str);
            let words = words.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
            Trouble::new(ffi::IOERR, format!("a bug in OpenFTL: {words}"))
        }
    };
    if !trouble.message.is_empty() {
        log(trouble.code, &trouble.message);
    }
    trouble.code
}

/// A string of SQLite.
///
/// # Safety
/// `text` is null or ends with 0, and stays as it is for `'a`.
unsafe fn text<'a>(text: *const c_char) -> Result<Option<&'a str>, Trouble> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: as the caller of this function promises.
    let text = unsafe { CStr::from_ptr(text) };
    let fault = || Trouble::new(ffi::CANTOPEN, format!("{:?} is not UTF-8", text.to_string_lossy()));
    text.to_str().map(Some).map_err(|_| fault())
}

/// A parameter of the URI of a file name that SQLite gave to a VFS.
///
/// # Safety
/// `name` came from SQLite, as the name of a database or a journal to be opened.
unsafe fn parameter<'a>(name: *const c_char, parameter: &CStr) -> Result<Option<&'a str>, Trouble> {
    // SAFETY: as the caller of this function promises; the value lives as long as the name.
    unsafe { text(((*sqlite().routines).uri_parameter)(name, parameter.as_ptr())) }
}

/// How the pages of a database are to be stored.
///
/// # Safety
/// As of [`parameter`].
unsafe fn compression(name: *const c_char) -> Result<Compression, Trouble> {
    // SAFETY: as the caller of this function promises.
    match unsafe { parameter(name, c"compress") }? {
        None | Some("none") => Ok(Compression::None),
        Some("lz4") => Ok(Compression::Lz4),
        Some("zstd") => Ok(Compression::Zstd),
        Some(other) => {
            Err(Trouble::new(ffi::CANTOPEN, format!("compress={other} is no compression; choose lz4, zstd or none")))
        }
    }
}

/// Files that are in a store, or belong to one that is.
const STORED: c_int = ffi::OPEN_MAIN_DB | ffi::OPEN_WAL | ffi::OPEN_MAIN_JOURNAL | ffi::OPEN_SUPER_JOURNAL;

/// The stores of a VFS.
///
/// # Safety
/// `vfs` was registered by [`load`].
unsafe fn registry(vfs: *mut Vfs) -> &'static Registry {
    // SAFETY: as the caller of this function promises; the registry lives as long as the process.
    unsafe { &*(*vfs).data.cast::<Registry>() }
}

unsafe extern "C" fn open(
    vfs: *mut Vfs,
    name: *const c_char,
    file: *mut ffi::File,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    let place = file.cast::<OpenFile>();
    // SAFETY: SQLite gives room for an open file. Without methods SQLite does not close it.
    unsafe { (*place).methods = std::ptr::null() };
    run(|| {
        // SAFETY: SQLite's string.
        let path = unsafe { text(name) }?;
        let handle = match path {
            None => Handle::Temporary(Scratch::default()),
            Some(path) if flags & STORED != 0 => {
                let compression = match flags & (ffi::OPEN_MAIN_DB | ffi::OPEN_WAL) {
                    0 => Compression::None,
                    // SAFETY: SQLite's name of a database or a log to be opened.
                    _ => unsafe { compression(name) }?,
                };
                // SAFETY: SQLite calls with the VFS that was registered.
                file::open(unsafe { registry(vfs) }, path, flags, compression)?
            }
            Some(_) => Handle::Temporary(Scratch::default()),
        };
        // SAFETY: SQLite gives room for an open file, and a place for flags or null.
        unsafe {
            (*place).handle = Box::into_raw(Box::new(handle));
            (*place).methods = &raw const file::METHODS;
            if let Some(out) = out_flags.as_mut() {
                *out = flags;
            }
        }
        Ok(())
    })
}

unsafe extern "C" fn delete(vfs: *mut Vfs, name: *const c_char, _sync_folder: c_int) -> c_int {
    run(|| {
        // SAFETY: SQLite's string.
        let path = unsafe { text(name) }?.unwrap_or_default();
        // SAFETY: SQLite calls with the VFS that was registered.
        match unsafe { registry(vfs) }.with_volume(path, Volume::delete)? {
            Some(()) => Ok(()),
            None => Err(Trouble::ordinary(ffi::IOERR_DELETE_NOENT)),
        }
    })
}

unsafe extern "C" fn access(vfs: *mut Vfs, name: *const c_char, flags: c_int, out: *mut c_int) -> c_int {
    run(|| {
        // SAFETY: SQLite's string.
        let path = unsafe { text(name) }?.unwrap_or_default();
        // SAFETY: SQLite calls with the VFS that was registered.
        let is_there = unsafe { registry(vfs) }.with_volume(path, Volume::exists)?.unwrap_or(false);
        // SAFETY: SQLite's place for the answer. Whatever is asked for but existence is allowed.
        unsafe { *out = c_int::from(is_there || flags != ffi::ACCESS_EXISTS) };
        Ok(())
    })
}

unsafe extern "C" fn full_pathname(vfs: *mut Vfs, name: *const c_char, bytes: c_int, out: *mut c_char) -> c_int {
    run(|| {
        // SAFETY: SQLite's string, which has the parameters of its URI behind it.
        let (path, store) = unsafe { (text(name)?.unwrap_or_default(), parameter(name, c"store")?) };
        // SAFETY: as above.
        if unsafe { ((*sqlite().routines).uri_boolean)(name, c"default".as_ptr(), 0) } != 0 {
            // SAFETY: the VFS lives as long as the process.
            unsafe { ((*sqlite().routines).vfs_register)(vfs, 1) };
        }
        // SAFETY: SQLite calls with the VFS that was registered.
        let full = unsafe { registry(vfs) }.full_path(path, store)?;
        if full.len() >= bytes as usize {
            return Err(Trouble::new(ffi::CANTOPEN, format!("a path is longer than {} bytes: {full}", bytes - 1)));
        }
        // SAFETY: there is room for so many bytes, and the text with its end is not longer.
        unsafe {
            out.copy_from_nonoverlapping(full.as_ptr().cast(), full.len());
            out.add(full.len()).write(0);
        }
        Ok(())
    })
}

// What has nothing to do with files of a store is done by the VFS that was the default.

unsafe extern "C" fn dl_open(_vfs: *mut Vfs, name: *const c_char) -> *mut c_void {
    let base = sqlite().base;
    // SAFETY: SQLite's call, passed on.
    unsafe { ((*base).dl_open)(base, name) }
}

unsafe extern "C" fn dl_error(_vfs: *mut Vfs, bytes: c_int, out: *mut c_char) {
    let base = sqlite().base;
    // SAFETY: SQLite's call, passed on.
    unsafe { ((*base).dl_error)(base, bytes, out) }
}

unsafe extern "C" fn dl_sym(_vfs: *mut Vfs, library: *mut c_void, name: *const c_char) -> ffi::Symbol {
    let base = sqlite().base;
    // SAFETY: SQLite's call, passed on.
    unsafe { ((*base).dl_sym)(base, library, name) }
}

unsafe extern "C" fn dl_close(_vfs: *mut Vfs, library: *mut c_void) {
    let base = sqlite().base;
    // SAFETY: SQLite's call, passed on.
    unsafe { ((*base).dl_close)(base, library) }
}

unsafe extern "C" fn randomness(_vfs: *mut Vfs, bytes: c_int, out: *mut c_char) -> c_int {
    let base = sqlite().base;
    // SAFETY: SQLite's call, passed on.
    unsafe { ((*base).randomness)(base, bytes, out) }
}

unsafe extern "C" fn sleep(_vfs: *mut Vfs, microseconds: c_int) -> c_int {
    let base = sqlite().base;
    // SAFETY: SQLite's call, passed on.
    unsafe { ((*base).sleep)(base, microseconds) }
}

unsafe extern "C" fn current_time(_vfs: *mut Vfs, out: *mut c_double) -> c_int {
    let base = sqlite().base;
    // SAFETY: SQLite's call, passed on.
    unsafe { ((*base).current_time)(base, out) }
}

unsafe extern "C" fn current_time_ms(_vfs: *mut Vfs, out: *mut i64) -> c_int {
    let base = sqlite().base;
    // SAFETY: SQLite's call, passed on; the base has the function if it says that it has version 2.
    match unsafe { (*base).current_time_ms.filter(|_| (*base).version >= 2) } {
        // SAFETY: as above.
        Some(function) => unsafe { function(base, out) },
        None => {
            let mut days = 0.0;
            // SAFETY: SQLite's call in its older form.
            let code = unsafe { ((*base).current_time)(base, &raw mut days) };
            // SAFETY: SQLite's place for the answer.
            unsafe { *out = (days * 86_400_000.0) as i64 };
            code
        }
    }
}

unsafe extern "C" fn last_error(_vfs: *mut Vfs, _bytes: c_int, _out: *mut c_char) -> c_int {
    0
}

/// A VFS with stores of its own, which lives as long as the process.
fn vfs_with(name: &'static CStr, registry: &'static Registry) -> *mut Vfs {
    Box::into_raw(Box::new(Vfs {
        version: 2,
        file_bytes: size_of::<OpenFile>() as c_int,
        path_bytes_max: PATH_BYTES_MAX,
        next: std::ptr::null_mut(),
        name: name.as_ptr(),
        data: std::ptr::from_ref(registry).cast_mut().cast(),
        open,
        delete,
        access,
        full_pathname,
        dl_open,
        dl_error,
        dl_sym,
        dl_close,
        randomness,
        sleep,
        current_time,
        last_error,
        current_time_ms: Some(current_time_ms),
    }))
}

/// Registers the VFS.
///
/// # Safety
/// `routines` is SQLite's table of functions.
unsafe fn load(routines: *const Routines) -> c_int {
    let is_default = std::env::var(DEFAULT_VARIABLE).is_ok_and(|value| !value.is_empty() && value != "0");
    let sqlite = SQLITE.get_or_init(|| {
        // SAFETY: as the caller of this function promises.
        let base = unsafe { ((*routines).vfs_find)(std::ptr::null()) };
        Sqlite { routines, base, own: vfs_with(NAME, Box::leak(Box::default())) }
    });
    if sqlite.base.is_null() {
        return ffi::ERROR;
    }
    // SAFETY: SQLite's function; the VFS lives as long as the process.
    match unsafe { ((*routines).vfs_register)(sqlite.own, c_int::from(is_default)) } {
        ffi::OK => ffi::OK_LOAD_PERMANENTLY,
        code => code,
    }
}

/// Registers another VFS, with stores of its own, as soon as SQLite has loaded the library: for a program that has stores open. In its URIs
/// `store=NAME` leads to the store that was [provided](Registry::provide) under this name.
///
/// # Panics
/// If SQLite has not loaded the library.
#[must_use]
pub fn register(name: &'static CStr) -> &'static Registry {
    let registry: &'static Registry = Box::leak(Box::default());
    // SAFETY: SQLite's function; the VFS lives as long as the process.
    let code = unsafe { ((*sqlite().routines).vfs_register)(vfs_with(name, registry), 0) };
    assert_eq!(code, ffi::OK, "SQLite registers a VFS whenever it has memory");
    registry
}

/// The entry that SQLite looks for first.
///
/// # Safety
/// SQLite calls it when it loads the library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sqlite3_extension_init(
    _database: *mut c_void,
    _error: *mut *mut c_char,
    routines: *const c_void,
) -> c_int {
    // SAFETY: SQLite's table of functions. Nothing in there panics with it.
    catch_unwind(|| unsafe { load(routines.cast()) }).unwrap_or(ffi::ERROR)
}

/// The entry that SQLite makes of the name of the file.
///
/// # Safety
/// SQLite calls it when it loads the library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sqlite3_openftlsqlite_init(
    database: *mut c_void,
    error: *mut *mut c_char,
    routines: *const c_void,
) -> c_int {
    // SAFETY: the same promises.
    unsafe { sqlite3_extension_init(database, error, routines) }
}
