//! The part of SQLite's C interface that a VFS needs: structures and constants of `sqlite3.h` and `sqlite3ext.h`, which never change.
//!
//! A library that SQLite loads does not link to SQLite. It calls back through a table of functions, of which new versions add to the end.
//! The positions here are those of the header of SQLite 3.8.11; all later ones have them.

use std::ffi::{c_char, c_double, c_int, c_void};

pub const OK: c_int = 0;
pub const BUSY: c_int = 5;
pub const IOERR: c_int = 10;
pub const NOTFOUND: c_int = 12;
pub const FULL: c_int = 13;
pub const CANTOPEN: c_int = 14;
pub const ERROR: c_int = 1;
pub const OK_LOAD_PERMANENTLY: c_int = 256;
pub const IOERR_READ: c_int = IOERR | 1 << 8;
pub const IOERR_SHORT_READ: c_int = IOERR | 2 << 8;
pub const IOERR_WRITE: c_int = IOERR | 3 << 8;
pub const IOERR_DELETE: c_int = IOERR | 10 << 8;
pub const IOERR_DELETE_NOENT: c_int = IOERR | 23 << 8;
pub const IOERR_LOCK: c_int = IOERR | 15 << 8;
pub const IOERR_SHMOPEN: c_int = IOERR | 18 << 8;
pub const IOERR_SHMLOCK: c_int = IOERR | 20 << 8;
pub const IOERR_SHMMAP: c_int = IOERR | 21 << 8;
pub const IOERR_BEGIN_ATOMIC: c_int = IOERR | 29 << 8;

pub const OPEN_CREATE: c_int = 0x4;
pub const OPEN_DELETEONCLOSE: c_int = 0x8;
pub const OPEN_EXCLUSIVE: c_int = 0x10;
pub const OPEN_MAIN_DB: c_int = 0x100;
pub const OPEN_MAIN_JOURNAL: c_int = 0x800;
pub const OPEN_SUPER_JOURNAL: c_int = 0x4000;
pub const OPEN_WAL: c_int = 0x80000;

pub const ACCESS_EXISTS: c_int = 0;

pub const IOCAP_SAFE_APPEND: c_int = 0x200;
pub const IOCAP_SEQUENTIAL: c_int = 0x400;
pub const IOCAP_POWERSAFE_OVERWRITE: c_int = 0x1000;
pub const IOCAP_BATCH_ATOMIC: c_int = 0x4000;

pub const FCNTL_LOCKSTATE: c_int = 1;
pub const FCNTL_SIZE_HINT: c_int = 5;
pub const FCNTL_VFSNAME: c_int = 12;
pub const FCNTL_POWERSAFE_OVERWRITE: c_int = 13;
pub const FCNTL_PRAGMA: c_int = 14;
pub const FCNTL_HAS_MOVED: c_int = 20;
pub const FCNTL_SYNC: c_int = 21;
pub const FCNTL_COMMIT_PHASETWO: c_int = 22;
pub const FCNTL_CKPT_DONE: c_int = 37;
pub const FCNTL_CKPT_START: c_int = 39;
pub const FCNTL_BEGIN_ATOMIC_WRITE: c_int = 31;
pub const FCNTL_COMMIT_ATOMIC_WRITE: c_int = 32;
pub const FCNTL_ROLLBACK_ATOMIC_WRITE: c_int = 33;

pub const LOCK_NONE: c_int = 0;
pub const LOCK_SHARED: c_int = 1;
pub const LOCK_RESERVED: c_int = 2;
pub const LOCK_PENDING: c_int = 3;
pub const LOCK_EXCLUSIVE: c_int = 4;

pub const SHM_UNLOCK: c_int = 1;
pub const SHM_SHARED: c_int = 4;
pub const SHM_EXCLUSIVE: c_int = 8;

/// `sqlite3_file`, of which a VFS knows the rest.
#[repr(C)]
pub struct File {
    pub methods: *const IoMethods,
}

/// `sqlite3_io_methods`, version 2: without pages that are mapped.
#[repr(C)]
pub struct IoMethods {
    pub version: c_int,
    pub close: unsafe extern "C" fn(*mut File) -> c_int,
    pub read: unsafe extern "C" fn(*mut File, *mut c_void, c_int, i64) -> c_int,
    pub write: unsafe extern "C" fn(*mut File, *const c_void, c_int, i64) -> c_int,
    pub truncate: unsafe extern "C" fn(*mut File, i64) -> c_int,
    pub sync: unsafe extern "C" fn(*mut File, c_int) -> c_int,
    pub file_size: unsafe extern "C" fn(*mut File, *mut i64) -> c_int,
    pub lock: unsafe extern "C" fn(*mut File, c_int) -> c_int,
    pub unlock: unsafe extern "C" fn(*mut File, c_int) -> c_int,
    pub check_reserved_lock: unsafe extern "C" fn(*mut File, *mut c_int) -> c_int,
    pub file_control: unsafe extern "C" fn(*mut File, c_int, *mut c_void) -> c_int,
    pub sector_size: unsafe extern "C" fn(*mut File) -> c_int,
    pub device_characteristics: unsafe extern "C" fn(*mut File) -> c_int,
    pub shm_map: unsafe extern "C" fn(*mut File, c_int, c_int, c_int, *mut *mut c_void) -> c_int,
    pub shm_lock: unsafe extern "C" fn(*mut File, c_int, c_int, c_int) -> c_int,
    pub shm_barrier: unsafe extern "C" fn(*mut File),
    pub shm_unmap: unsafe extern "C" fn(*mut File, c_int) -> c_int,
}

/// A symbol of a library that is loaded.
pub type Symbol = Option<unsafe extern "C" fn()>;

/// `sqlite3_vfs`, version 2: without system calls to be replaced.
#[repr(C)]
pub struct Vfs {
    pub version: c_int,
    pub file_bytes: c_int,
    pub path_bytes_max: c_int,
    pub next: *mut Vfs,
    pub name: *const c_char,
    pub data: *mut c_void,
    pub open: unsafe extern "C" fn(*mut Vfs, *const c_char, *mut File, c_int, *mut c_int) -> c_int,
    pub delete: unsafe extern "C" fn(*mut Vfs, *const c_char, c_int) -> c_int,
    pub access: unsafe extern "C" fn(*mut Vfs, *const c_char, c_int, *mut c_int) -> c_int,
    pub full_pathname: unsafe extern "C" fn(*mut Vfs, *const c_char, c_int, *mut c_char) -> c_int,
    pub dl_open: unsafe extern "C" fn(*mut Vfs, *const c_char) -> *mut c_void,
    pub dl_error: unsafe extern "C" fn(*mut Vfs, c_int, *mut c_char),
    pub dl_sym: unsafe extern "C" fn(*mut Vfs, *mut c_void, *const c_char) -> Symbol,
    pub dl_close: unsafe extern "C" fn(*mut Vfs, *mut c_void),
    pub randomness: unsafe extern "C" fn(*mut Vfs, c_int, *mut c_char) -> c_int,
    pub sleep: unsafe extern "C" fn(*mut Vfs, c_int) -> c_int,
    pub current_time: unsafe extern "C" fn(*mut Vfs, *mut c_double) -> c_int,
    pub last_error: unsafe extern "C" fn(*mut Vfs, c_int, *mut c_char) -> c_int,
    pub current_time_ms: Option<unsafe extern "C" fn(*mut Vfs, *mut i64) -> c_int>,
}

type Unused = *const c_void;

/// Positions in the table of functions.
const MPRINTF: usize = 69;
const VFS_FIND: usize = 141;
const LOG: usize = 167;
const URI_BOOLEAN: usize = 187;

/// `sqlite3_api_routines`, as far as it is called.
#[repr(C)]
pub struct Routines {
    before_mprintf: [Unused; MPRINTF],
    pub mprintf: unsafe extern "C" fn(*const c_char, ...) -> *mut c_char,
    before_vfs_find: [Unused; VFS_FIND - MPRINTF - 1],
    pub vfs_find: unsafe extern "C" fn(*const c_char) -> *mut Vfs,
    pub vfs_register: unsafe extern "C" fn(*mut Vfs, c_int) -> c_int,
    before_log: [Unused; LOG - VFS_FIND - 2],
    pub log: unsafe extern "C" fn(c_int, *const c_char, ...),
    before_uri_boolean: [Unused; URI_BOOLEAN - LOG - 1],
    pub uri_boolean: unsafe extern "C" fn(*const c_char, *const c_char, c_int) -> c_int,
    uri_int64: Unused,
    pub uri_parameter: unsafe extern "C" fn(*const c_char, *const c_char) -> *const c_char,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    #[test]
    fn functions_are_where_the_header_of_sqlite_has_them() {
        let word = size_of::<usize>();
        assert_eq!(offset_of!(Routines, mprintf), 69 * word);
        assert_eq!((offset_of!(Routines, vfs_find), offset_of!(Routines, vfs_register)), (141 * word, 142 * word));
        assert_eq!(offset_of!(Routines, log), 167 * word);
        assert_eq!((offset_of!(Routines, uri_boolean), offset_of!(Routines, uri_parameter)), (187 * word, 189 * word));
    }

    #[cfg(target_pointer_width = "64")]
    #[test]
    fn structures_are_as_long_as_those_of_c() {
        assert_eq!((size_of::<IoMethods>(), size_of::<Vfs>()), (17 * 8, 5 * 8 + 13 * 8));
    }
}
