//! Open files, as SQLite calls them.

use crate::ffi::{self, IoMethods};
use crate::format::Compression;
use crate::locks::{Hold, LOG_LOCKS, Locks};
use crate::registry::{Registry, Shared};
use crate::scratch::Scratch;
use crate::trouble::Trouble;
use crate::vfs::{self, run};
use openftl_parts::Durability;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

/// `sqlite3_file`, and what of it is ours.
#[repr(C)]
pub struct OpenFile {
    pub methods: *const IoMethods,
    pub handle: *mut Handle,
}

/// A connection to a database.
pub struct Connection {
    shared: Shared,
    name: String,
    number: u64,
    compression: Compression,
    level: c_int,
    /// Its locks on the host, if other processes use the store.
    locks: Option<Locks>,
    /// It maps the memory that connections share in WAL mode.
    is_mapped: bool,
}

/// What a file is.
pub enum Handle {
    /// A database in a store.
    Database(Connection),
    /// Its write-ahead log.
    Log { shared: Shared, name: String, compression: Compression },
    /// A journal of such a database, in memory.
    Journal { shared: Shared, name: String, is_deleted_on_close: bool },
    /// A file that nobody else sees.
    Temporary(Scratch),
}

/// Opens a database, a log or a journal by its full path.
pub fn open(
    registry: &'static Registry,
    path: &str,
    flags: c_int,
    compression: Compression,
) -> Result<Handle, Trouble> {
    let (shared, name) = registry.open(path)?;
    let opened = open_in(&shared, name, flags, compression);
    if opened.is_err() {
        registry.close(shared)?;
    }
    opened
}

fn open_in(shared: &Shared, name: String, flags: c_int, compression: Compression) -> Result<Handle, Trouble> {
    let mut volume = shared.lock()?;
    let shared = Arc::clone(shared);
    if flags & ffi::OPEN_WAL != 0 {
        volume.open(&name, flags)?;
        drop(volume);
        return Ok(Handle::Log { shared, name, compression });
    }
    if flags & ffi::OPEN_MAIN_DB != 0 {
        let locks = volume.store().is_shared().then(|| Locks::open(&shared.locks, &name)).transpose();
        let locks = locks.map_err(|error| Trouble::locking(ffi::CANTOPEN, &shared.locks, &error))?;
        let (number, level) = (volume.open(&name, flags)?, ffi::LOCK_NONE);
        drop(volume);
        return Ok(Handle::Database(Connection { shared, name, number, compression, level, locks, is_mapped: false }));
    }
    if !volume.has_journal(&name) {
        if flags & ffi::OPEN_CREATE == 0 {
            return Err(Trouble::ordinary(ffi::CANTOPEN));
        }
        volume.journal(&name);
    }
    drop(volume);
    Ok(Handle::Journal { shared, name, is_deleted_on_close: flags & ffi::OPEN_DELETEONCLOSE != 0 })
}

impl Connection {
    fn failed(&self, code: c_int, error: &io::Error) -> Trouble {
        Trouble::locking(code, &self.shared.locks, error)
    }

    fn close(mut self) -> Result<(), Trouble> {
        let closed = (|| {
            let mut volume = self.shared.lock()?;
            // What is dropped here was not committed, and its error was told when it arose.
            _ = volume.unlocks(&self.name, self.number, ffi::LOCK_NONE);
            if self.is_mapped {
                volume.leave_memory(&self.name, false);
                self.is_mapped = false;
            }
            volume.database(&self.name).held.leave(self.number);
            volume.close(&self.name);
            Ok(())
        })();
        let Connection { shared, locks, .. } = self;
        // Its locks end with the file.
        drop(locks);
        shared.registry.close(shared).and(closed)
    }

    fn lock(&mut self, level: c_int) -> Result<(), Trouble> {
        let was = self.level;
        if was >= level {
            return Ok(());
        }
        let mut volume = self.shared.lock()?;
        match &mut self.locks {
            Some(locks) => {
                let locked = locks.lock(level);
                self.level = locks.level();
                locked.map_err(|error| self.failed(ffi::IOERR_LOCK, &error))?;
            }
            None => self.level = volume.database(&self.name).held.lock(self.number, was, level),
        }
        if self.level >= ffi::LOCK_RESERVED {
            volume.database(&self.name).writer = Some(self.number);
        }
        if self.level < level {
            return Err(Trouble::ordinary(ffi::BUSY));
        }
        if was == ffi::LOCK_NONE {
            // Others may have written meanwhile.
            let refreshed = volume.refresh(&self.name);
            drop(volume);
            return refreshed.inspect_err(|_| _ = self.unlock(ffi::LOCK_NONE));
        }
        Ok(())
    }

    fn unlock(&mut self, level: c_int) -> Result<(), Trouble> {
        if self.level <= level {
            return Ok(());
        }
        let mut volume = self.shared.lock()?;
        let result = volume.unlocks(&self.name, self.number, level);
        self.level = level;
        match &mut self.locks {
            Some(locks) => {
                let unlocked = locks.unlock(level);
                unlocked.map_err(|error| self.failed(ffi::IOERR_LOCK, &error))?;
            }
            None => volume.database(&self.name).held.unlock(self.number, level),
        }
        result
    }

    fn is_reserved(&self) -> Result<bool, Trouble> {
        match &self.locks {
            Some(locks) => locks.is_reserved().map_err(|error| self.failed(ffi::IOERR_LOCK, &error)),
            None => Ok(self.shared.lock()?.database(&self.name).held.is_reserved()),
        }
    }

    /// # Safety
    /// `argument` is what SQLite gives with this operation.
    unsafe fn control(&mut self, operation: c_int, argument: *mut c_void) -> Result<(), Trouble> {
        let not_found = Err(Trouble::ordinary(ffi::NOTFOUND));
        let (shared, name) = (&self.shared, &self.name);
        let mut volume = shared.lock()?;
        match operation {
            ffi::FCNTL_SIZE_HINT => Ok(()),
            ffi::FCNTL_LOCKSTATE => {
                // SAFETY: as the caller of this function promises: an int.
                unsafe { *argument.cast::<c_int>() = self.level };
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
                let text = volume.store().opened().statistics();
                let text =
                    text.unwrap_or_else(|| "{\"error\":\"another process has the store, and counts\"}".to_owned());
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
                let known = super_journal.map(|path| shared.registry.look_up(path)).transpose()?.flatten();
                let known = known.filter(|(other, _)| Arc::ptr_eq(other, shared));
                shared.lock()?.complete(name, known.as_ref().map(|(_, name)| name.as_str()));
                Ok(())
            }
            ffi::FCNTL_COMMIT_PHASETWO => match volume.database(name).unpublished.take() {
                Some(trouble) => Err(trouble),
                // A log is committed when it is synced.
                None if self.is_mapped => Ok(()),
                None => volume.end(name),
            },
            ffi::FCNTL_CKPT_START => volume.refresh_with_log(name),
            ffi::FCNTL_CKPT_DONE => volume.end_checkpoint(name),
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

    /// Region `index` of the shared memory; `None` if it is not there, and not to be made.
    fn map(&mut self, index: usize, bytes: usize, is_made: bool) -> Result<Option<*mut c_void>, Trouble> {
        let mut volume = self.shared.lock()?;
        if !self.is_mapped {
            let is_first = match &self.locks {
                Some(locks) => locks.is_first_to_map().map_err(|error| self.failed(ffi::IOERR_SHMLOCK, &error))?,
                None => Some(volume.database(&self.name).memory.is_none()),
            };
            let Some(is_first) = is_first else { return Err(Trouble::ordinary(ffi::BUSY)) };
            volume.memory(&self.name, is_first)?.connections += 1;
            self.is_mapped = true;
            if let Some(locks) = &self.locks {
                locks.maps().map_err(|error| self.failed(ffi::IOERR_SHMLOCK, &error))?;
            }
        }
        let region = volume.memory(&self.name, false)?.region(index, bytes, is_made);
        region.map_err(|error| self.failed(ffi::IOERR_SHMMAP, &error))
    }

    fn lock_log(&mut self, first: c_int, count: c_int, flags: c_int) -> Result<(), Trouble> {
        if first < 0 || count < 1 || first + count > LOG_LOCKS {
            let text = format!("a write-ahead log has locks 0 to 7, and none from {first} to {}", first + count - 1);
            return Err(Trouble::new(ffi::IOERR_SHMLOCK, text));
        }
        let hold = match flags {
            _ if flags & ffi::SHM_UNLOCK != 0 => Hold::None,
            _ if flags & ffi::SHM_SHARED != 0 => Hold::Shared,
            _ => Hold::Alone,
        };
        let mut volume = self.shared.lock()?;
        // A checkpoint without syncs may have cut the database.
        if hold == Hold::None && flags & ffi::SHM_EXCLUSIVE != 0 && volume.database(&self.name).is_changed() {
            volume.end_checkpoint(&self.name)?;
        }
        let is_held = match &self.locks {
            Some(locks) => {
                locks.hold_log(hold, first, count).map_err(|error| self.failed(ffi::IOERR_SHMLOCK, &error))?
            }
            None => volume.database(&self.name).held.hold_log(self.number, hold, first, count),
        };
        if !is_held {
            return Err(Trouble::ordinary(ffi::BUSY));
        }
        if let (Some(locks), true) = (&self.locks, hold != Hold::None) {
            let refreshed = volume.refresh_with_log(&self.name);
            return refreshed.inspect_err(|_| _ = locks.hold_log(Hold::None, first, count));
        }
        Ok(())
    }

    fn barrier(&self) -> Result<(), Trouble> {
        fence(Ordering::SeqCst);
        self.shared.lock()?.publish(&self.name);
        Ok(())
    }

    fn unmap(&mut self, is_deleted: bool) -> Result<(), Trouble> {
        if self.is_mapped {
            self.is_mapped = false;
            self.shared.lock()?.leave_memory(&self.name, is_deleted);
            if let Some(locks) = &self.locks {
                locks.unmaps().map_err(|error| self.failed(ffi::IOERR_SHMLOCK, &error))?;
            }
        }
        Ok(())
    }
}

impl Handle {
    fn close(self) -> Result<(), Trouble> {
        let (shared, closed) = match self {
            Handle::Database(connection) => return connection.close(),
            Handle::Log { shared, name, .. } => {
                let closed = shared.lock().map(|mut volume| volume.close(&name));
                (shared, closed)
            }
            Handle::Journal { shared, name, is_deleted_on_close } => {
                let closed = match is_deleted_on_close {
                    true => shared.lock().and_then(|mut volume| volume.delete(&name)),
                    false => Ok(()),
                };
                (shared, closed)
            }
            Handle::Temporary(_) => return Ok(()),
        };
        shared.registry.close(shared).and(closed)
    }

    /// Returns how many bytes there were.
    fn read(&mut self, bytes: &mut [u8], offset: u64) -> Result<usize, Trouble> {
        match self {
            Handle::Database(Connection { shared, name, .. }) | Handle::Log { shared, name, .. } => {
                shared.lock()?.read(name, bytes, offset)
            }
            Handle::Journal { shared, name, .. } => {
                let mut volume = shared.lock()?;
                volume.journal_is_read(name);
                Ok(volume.journal(name).read(bytes, offset)?)
            }
            Handle::Temporary(scratch) => Ok(scratch.read(bytes, offset)?),
        }
    }

    fn write(&mut self, bytes: &[u8], offset: u64) -> Result<(), Trouble> {
        match self {
            Handle::Database(Connection { shared, name, compression, .. })
            | Handle::Log { shared, name, compression } => {
                let mut volume = shared.lock()?;
                let (database, store) = volume.database_and_store(name);
                database.compression = *compression;
                database.write(store, bytes, offset)
            }
            Handle::Journal { shared, name, .. } => Ok(shared.lock()?.journal(name).write(bytes, offset)?),
            Handle::Temporary(scratch) => Ok(scratch.write(bytes, offset)?),
        }
    }

    fn truncate(&mut self, length: u64) -> Result<(), Trouble> {
        match self {
            Handle::Database(Connection { shared, name, .. }) | Handle::Log { shared, name, .. } => {
                let mut volume = shared.lock()?;
                let (database, store) = volume.database_and_store(name);
                database.truncate(store, length)?;
                volume.log_is_cut(name)
            }
            Handle::Journal { shared, name, .. } => Ok(shared.lock()?.journal(name).truncate(length)?),
            Handle::Temporary(scratch) => Ok(scratch.truncate(length)?),
        }
    }

    fn length(&mut self) -> Result<u64, Trouble> {
        match self {
            Handle::Database(Connection { shared, name, .. }) | Handle::Log { shared, name, .. } => {
                shared.lock()?.length(name)
            }
            Handle::Journal { shared, name, .. } => Ok(shared.lock()?.journal(name).length()),
            Handle::Temporary(scratch) => Ok(scratch.length()),
        }
    }

    fn sync(&mut self) -> Result<(), Trouble> {
        match self {
            Handle::Database(Connection { shared, name, .. }) | Handle::Log { shared, name, .. } => {
                shared.lock()?.sync(name)
            }
            Handle::Journal { .. } | Handle::Temporary(_) => Ok(()),
        }
    }

    /// Calls `with` on a connection to a database; of other files there are no locks.
    fn with_connection(&mut self, with: impl FnOnce(&mut Connection) -> Result<(), Trouble>) -> Result<(), Trouble> {
        match self {
            Handle::Database(connection) => with(connection),
            Handle::Log { .. } | Handle::Journal { .. } | Handle::Temporary(_) => Ok(()),
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
    run(|| unsafe { handle(file) }.with_connection(|connection| connection.lock(level)))
}

unsafe extern "C" fn unlock(file: *mut ffi::File, level: c_int) -> c_int {
    // SAFETY: SQLite's file.
    run(|| unsafe { handle(file) }.with_connection(|connection| connection.unlock(level)))
}

unsafe extern "C" fn check_reserved_lock(file: *mut ffi::File, out: *mut c_int) -> c_int {
    run(|| {
        // SAFETY: SQLite's file.
        unsafe { handle(file) }.with_connection(|connection| {
            let is_reserved = connection.is_reserved()?;
            // SAFETY: SQLite's place for the answer.
            unsafe { *out = c_int::from(is_reserved) };
            Ok(())
        })
    })
}

unsafe extern "C" fn file_control(file: *mut ffi::File, operation: c_int, argument: *mut c_void) -> c_int {
    // SAFETY: SQLite's file, and what it gives with the operation.
    run(|| match unsafe { handle(file) } {
        // SAFETY: as above.
        Handle::Database(connection) => unsafe { connection.control(operation, argument) },
        Handle::Log { .. } | Handle::Journal { .. } | Handle::Temporary(_) => Err(Trouble::ordinary(ffi::NOTFOUND)),
    })
}

unsafe extern "C" fn shm_map(
    file: *mut ffi::File,
    region: c_int,
    bytes: c_int,
    is_made: c_int,
    out: *mut *mut c_void,
) -> c_int {
    run(|| {
        // SAFETY: SQLite's place for the answer.
        unsafe { *out = std::ptr::null_mut() };
        // SAFETY: SQLite's file.
        unsafe { handle(file) }.with_connection(|connection| {
            let mapped = connection.map(region as usize, bytes as usize, is_made != 0)?;
            // SAFETY: SQLite's place for the answer.
            unsafe { *out = mapped.unwrap_or(std::ptr::null_mut()) };
            Ok(())
        })
    })
}

unsafe extern "C" fn shm_lock(file: *mut ffi::File, first: c_int, count: c_int, flags: c_int) -> c_int {
    // SAFETY: SQLite's file.
    run(|| unsafe { handle(file) }.with_connection(|connection| connection.lock_log(first, count, flags)))
}

unsafe extern "C" fn shm_barrier(file: *mut ffi::File) {
    // SAFETY: SQLite's file. There is nobody to tell a failure, and the log of SQLite has it.
    run(|| unsafe { handle(file) }.with_connection(|connection| connection.barrier()));
}

unsafe extern "C" fn shm_unmap(file: *mut ffi::File, is_deleted: c_int) -> c_int {
    // SAFETY: SQLite's file.
    run(|| unsafe { handle(file) }.with_connection(|connection| connection.unmap(is_deleted != 0)))
}

unsafe extern "C" fn sector_size(_file: *mut ffi::File) -> c_int {
    4096
}

unsafe extern "C" fn device_characteristics(_file: *mut ffi::File) -> c_int {
    ffi::IOCAP_BATCH_ATOMIC | ffi::IOCAP_POWERSAFE_OVERWRITE | ffi::IOCAP_SAFE_APPEND | ffi::IOCAP_SEQUENTIAL
}

/// What SQLite calls.
pub static METHODS: IoMethods = IoMethods {
    version: 2,
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
    shm_map,
    shm_lock,
    shm_barrier,
    shm_unmap,
};
