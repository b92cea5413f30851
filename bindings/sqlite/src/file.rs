//! Open files, as SQLite calls them.

use crate::ffi::{self, IoMethods};
use crate::format::Compression;
use crate::registry::{self, Shared};
use crate::scratch::Scratch;
use crate::trouble::Trouble;
use crate::vfs::{self, run};
use openftl_parts::Durability;
use std::ffi::{CStr, c_char, c_int, c_void};

/// `sqlite3_file`, and what of it is ours.
#[repr(C)]
pub struct OpenFile {
    pub methods: *const IoMethods,
    pub handle: *mut Handle,
}

/// What a file is.
pub enum Handle {
    /// A database in a store.
    Database { shared: Shared, name: String, connection: u64, compression: Compression },
    /// A journal of such a database, in memory.
    Journal { shared: Shared, name: String, is_deleted_on_close: bool },
    /// A file that nobody else sees.
    Temporary(Scratch),
}

/// Opens a database or a journal by its full path.
pub fn open(path: &str, flags: c_int, compression: Compression) -> Result<Handle, Trouble> {
    let (shared, name) = registry::open(path)?;
    let opened = (|| {
        let mut volume = registry::lock(&shared)?;
        if flags & ffi::OPEN_MAIN_DB != 0 {
            return volume.open(&name, flags);
        }
        if !volume.has_journal(&name) {
            if flags & ffi::OPEN_CREATE == 0 {
                return Err(Trouble::ordinary(ffi::CANTOPEN));
            }
            volume.journal(&name);
        }
        Ok(0)
    })();
    match opened {
        Ok(0) => Ok(Handle::Journal { shared, name, is_deleted_on_close: flags & ffi::OPEN_DELETEONCLOSE != 0 }),
        Ok(connection) => Ok(Handle::Database { shared, name, connection, compression }),
        Err(trouble) => {
            registry::close(shared)?;
            Err(trouble)
        }
    }
}

impl Handle {
    fn close(self) -> Result<(), Trouble> {
        let (shared, closed) = match self {
            Handle::Database { shared, name, connection, .. } => {
                let closed = registry::lock(&shared).map(|mut volume| volume.close(&name, connection));
                (shared, closed)
            }
            Handle::Journal { shared, name, is_deleted_on_close } => {
                let closed = match is_deleted_on_close {
                    true => registry::lock(&shared).and_then(|mut volume| volume.delete(&name)),
                    false => Ok(()),
                };
                (shared, closed)
            }
            Handle::Temporary(_) => return Ok(()),
        };
        registry::close(shared).and(closed)
    }

    /// Returns how many bytes there were.
    fn read(&mut self, bytes: &mut [u8], offset: u64) -> Result<usize, Trouble> {
        match self {
            Handle::Database { shared, name, .. } => {
                let mut volume = registry::lock(shared)?;
                let (database, store) = volume.database_and_store(name);
                database.read(store, bytes, offset)
            }
            Handle::Journal { shared, name, .. } => {
                let mut volume = registry::lock(shared)?;
                volume.journal_is_read(name);
                Ok(volume.journal(name).read(bytes, offset)?)
            }
            Handle::Temporary(scratch) => Ok(scratch.read(bytes, offset)?),
        }
    }

    fn write(&mut self, bytes: &[u8], offset: u64) -> Result<(), Trouble> {
        match self {
            Handle::Database { shared, name, compression, .. } => {
                let mut volume = registry::lock(shared)?;
                let (database, store) = volume.database_and_store(name);
                database.compression = *compression;
                database.write(store, bytes, offset)
            }
            Handle::Journal { shared, name, .. } => Ok(registry::lock(shared)?.journal(name).write(bytes, offset)?),
            Handle::Temporary(scratch) => Ok(scratch.write(bytes, offset)?),
        }
    }

    fn truncate(&mut self, length: u64) -> Result<(), Trouble> {
        match self {
            Handle::Database { shared, name, .. } => {
                let mut volume = registry::lock(shared)?;
                let (database, store) = volume.database_and_store(name);
                database.truncate(store, length)
            }
            Handle::Journal { shared, name, .. } => Ok(registry::lock(shared)?.journal(name).truncate(length)?),
            Handle::Temporary(scratch) => Ok(scratch.truncate(length)?),
        }
    }

    fn length(&mut self) -> Result<u64, Trouble> {
        match self {
            Handle::Database { shared, name, .. } => Ok(registry::lock(shared)?.database(name).length()),
            Handle::Journal { shared, name, .. } => Ok(registry::lock(shared)?.journal(name).length()),
            Handle::Temporary(scratch) => Ok(scratch.length()),
        }
    }

    fn sync(&mut self) -> Result<(), Trouble> {
        match self {
            Handle::Database { shared, name, .. } => registry::lock(shared)?.sync(name),
            Handle::Journal { .. } | Handle::Temporary(_) => Ok(()),
        }
    }

    fn lock(&mut self, level: c_int) -> Result<(), Trouble> {
        let Handle::Database { shared, name, connection, .. } = self else { return Ok(()) };
        let is_locked = registry::lock(shared)?.database(name).locks.lock(*connection, level);
        if is_locked { Ok(()) } else { Err(Trouble::ordinary(ffi::BUSY)) }
    }

    fn unlock(&mut self, level: c_int) -> Result<(), Trouble> {
        let Handle::Database { shared, name, connection, .. } = self else { return Ok(()) };
        registry::lock(shared)?.unlock(name, *connection, level)
    }

    /// # Safety
    /// `argument` is what SQLite gives with this operation.
    unsafe fn control(&mut self, operation: c_int, argument: *mut c_void) -> Result<(), Trouble> {
        let not_found = Err(Trouble::ordinary(ffi::NOTFOUND));
        let Handle::Database { shared, name, connection, .. } = self else { return not_found };
        let mut volume = registry::lock(shared)?;
        match operation {
            ffi::FCNTL_SIZE_HINT => Ok(()),
            ffi::FCNTL_LOCKSTATE => {
                let level = volume.database(name).locks.level(*connection);
                // SAFETY: as the caller of this function promises: an int.
                unsafe { *argument.cast::<c_int>() = level };
                Ok(())
            }
            ffi::FCNTL_HAS_MOVED => {
                // SAFETY: as the caller of this function promises: an int.
                unsafe { *argument.cast::<c_int>() = 0 };
                Ok(())
            }
            ffi::FCNTL_POWERSAFE_OVERWRITE => {
                // SAFETY: as the caller of this function promises: an int.
                unsafe { *argument.cast::<c_int>() = 1 };
                Ok(())
            }
            ffi::FCNTL_VFSNAME => {
                // SAFETY: as the caller of this function promises: a place for a string.
                unsafe { *argument.cast::<*mut c_char>() = vfs::string("openftl") };
                Ok(())
            }
            ffi::FCNTL_PRAGMA => {
                // SAFETY: as the caller of this function promises: three strings, of which the second is the name of the pragma.
                let asked = unsafe { CStr::from_ptr(*argument.cast::<*const c_char>().add(1)) };
                if asked != c"openftl_statistics" {
                    return not_found;
                }
                let text = volume.store().statistics();
                // SAFETY: as above; the first is a place for the answer.
                unsafe { *argument.cast::<*mut c_char>() = vfs::string(&text) };
                Ok(())
            }
            ffi::FCNTL_SYNC => {
                let super_journal = match argument.is_null() {
                    true => None,
                    // SAFETY: as the caller of this function promises: the path of the super-journal.
                    false => unsafe { CStr::from_ptr(argument.cast()) }.to_str().ok(),
                };
                drop(volume);
                let known = super_journal.map(registry::look_up).transpose()?.flatten();
                let known = known.filter(|(other, _)| std::sync::Arc::ptr_eq(other, shared));
                registry::lock(shared)?.complete(name, known.as_ref().map(|(_, name)| name.as_str()));
                Ok(())
            }
            ffi::FCNTL_COMMIT_PHASETWO => volume.end(name),
            ffi::FCNTL_BEGIN_ATOMIC_WRITE => {
                let database = volume.database(name);
                // SQLite goes on with a journal then.
                if database.is_changed() {
                    return Err(Trouble::ordinary(ffi::IOERR_BEGIN_ATOMIC));
                }
                Ok(())
            }
            ffi::FCNTL_COMMIT_ATOMIC_WRITE => volume.commit(std::slice::from_ref(name), Durability::Durable),
            ffi::FCNTL_ROLLBACK_ATOMIC_WRITE => {
                let database = volume.database(name);
                database.discard();
                Ok(())
            }
            _ => not_found,
        }
    }
}

/// The handle of an open file.
///
/// # Safety
/// SQLite has opened the file, has not closed it, and calls from one thread at a time.
unsafe fn handle<'a>(file: *mut ffi::File) -> &'a mut Handle {
    // SAFETY: as the caller of this function promises.
    unsafe { &mut *(*file.cast::<OpenFile>()).handle }
}

unsafe extern "C" fn close(file: *mut ffi::File) -> c_int {
    run(|| {
        let file = file.cast::<OpenFile>();
        // SAFETY: SQLite has opened the file, and uses it no more.
        let handle = unsafe {
            (*file).methods = std::ptr::null();
            Box::from_raw((*file).handle)
        };
        handle.close()
    })
}

unsafe extern "C" fn read(file: *mut ffi::File, to: *mut c_void, count: c_int, offset: i64) -> c_int {
    run(|| {
        // SAFETY: SQLite's file, and its buffer of so many bytes.
        let (handle, bytes) =
            unsafe { (handle(file), std::slice::from_raw_parts_mut(to.cast::<u8>(), count as usize)) };
        if handle.read(bytes, offset as u64)? < bytes.len() {
            return Err(Trouble::ordinary(ffi::IOERR_SHORT_READ));
        }
        Ok(())
    })
}

unsafe extern "C" fn write(file: *mut ffi::File, from: *const c_void, count: c_int, offset: i64) -> c_int {
    run(|| {
        // SAFETY: SQLite's file, and its buffer of so many bytes.
        let (handle, bytes) = unsafe { (handle(file), std::slice::from_raw_parts(from.cast::<u8>(), count as usize)) };
        handle.write(bytes, offset as u64)
    })
}

unsafe extern "C" fn truncate(file: *mut ffi::File, length: i64) -> c_int {
    // SAFETY: SQLite's file.
    run(|| unsafe { handle(file) }.truncate(length as u64))
}

unsafe extern "C" fn sync(file: *mut ffi::File, _flags: c_int) -> c_int {
    // SAFETY: SQLite's file.
    run(|| unsafe { handle(file) }.sync())
}

unsafe extern "C" fn file_size(file: *mut ffi::File, out: *mut i64) -> c_int {
    run(|| {
        // SAFETY: SQLite's file, and its place for the answer.
        unsafe { *out = handle(file).length()? as i64 };
        Ok(())
    })
}

unsafe extern "C" fn lock(file: *mut ffi::File, level: c_int) -> c_int {
    // SAFETY: SQLite's file.
    run(|| unsafe { handle(file) }.lock(level))
}

unsafe extern "C" fn unlock(file: *mut ffi::File, level: c_int) -> c_int {
    // SAFETY: SQLite's file.
    run(|| unsafe { handle(file) }.unlock(level))
}

unsafe extern "C" fn check_reserved_lock(file: *mut ffi::File, out: *mut c_int) -> c_int {
    run(|| {
        // SAFETY: SQLite's file.
        let is_reserved = match unsafe { handle(file) } {
            Handle::Database { shared, name, .. } => registry::lock(shared)?.database(name).locks.is_reserved(),
            Handle::Journal { .. } | Handle::Temporary(_) => false,
        };
        // SAFETY: SQLite's place for the answer.
        unsafe { *out = c_int::from(is_reserved) };
        Ok(())
    })
}

unsafe extern "C" fn file_control(file: *mut ffi::File, operation: c_int, argument: *mut c_void) -> c_int {
    // SAFETY: SQLite's file, and what it gives with the operation.
    run(|| unsafe { handle(file).control(operation, argument) })
}

unsafe extern "C" fn sector_size(_file: *mut ffi::File) -> c_int {
    4096
}

unsafe extern "C" fn device_characteristics(_file: *mut ffi::File) -> c_int {
    ffi::IOCAP_BATCH_ATOMIC | ffi::IOCAP_POWERSAFE_OVERWRITE | ffi::IOCAP_SAFE_APPEND | ffi::IOCAP_SEQUENTIAL
}

/// What SQLite calls.
pub static METHODS: IoMethods = IoMethods {
    version: 1,
    close,
    read,
    write,
    truncate,
    sync,
    file_size,
    lock,
    unlock,
    check_reserved_lock,
    file_control,
    sector_size,
    device_characteristics,
};
