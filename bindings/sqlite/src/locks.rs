//! The locks of one connection on a database of a store that several processes use, against connections of this process and of others.
//!
//! Each database has a file on the host beside its store. A connection opens it for itself and locks bytes of it, as SQLite's own VFS for Unix does
//! with the database itself; the locks belong to the open file (OFD locks), so connections of one process exclude each other too, and a killed
//! process holds none.
//!
//! | bytes | lock | beside others |
//! |---|---|---|
//! | 40000002h, 510 of them | SHARED: for reading; EXCLUSIVE: for writing | SHARED beside SHARED |
//! | 40000001h | RESERVED: a transaction is going to write | beside SHARED |
//! | 40000000h | PENDING: it waits for readers to leave, and lets none in | beside SHARED |
//! | 120 to 127 | the eight locks of a write-ahead log | |
//! | 128 | shared memory is mapped ([`crate::shared_memory`]) | |

use crate::ffi::{LOCK_EXCLUSIVE, LOCK_NONE, LOCK_PENDING, LOCK_RESERVED, LOCK_SHARED};
use std::ffi::{c_int, c_short};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

const PENDING: i64 = 0x4000_0000;
const RESERVED: i64 = PENDING + 1;
const READERS: i64 = PENDING + 2;
const READERS_END: i64 = READERS + 510;
/// The first lock of a write-ahead log.
const LOG: i64 = 120;
/// Locks of a write-ahead log.
pub const LOG_LOCKS: c_int = 8;
/// Somebody has the shared memory mapped.
const MAPPED: i64 = LOG + LOG_LOCKS as i64;

/// How bytes are locked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hold {
    /// Beside others that do the same.
    Shared = libc::F_RDLCK as isize,
    /// Alone.
    Alone = libc::F_WRLCK as isize,
    /// No more.
    None = libc::F_UNLCK as isize,
}

/// See the module.
pub struct Locks {
    file: File,
    level: c_int,
}

/// The name of the file for a database: as it is called, with what a file name cannot have written as %XX, and a long one cut.
fn file_name(database: &str) -> String {
    const BYTES_MAX: usize = 180;
    let mut name = String::new();
    for letter in database.chars() {
        match letter {
            '/' | '%' | '\0'..='\x1f' => name += &format!("%{:02X}", u32::from(letter)),
            _ => name.push(letter),
        }
    }
    if name.len() > BYTES_MAX {
        let hash = database
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        let mut end = BYTES_MAX;
        while !name.is_char_boundary(end) {
            end -= 1;
        }
        name.truncate(end);
        name += &format!("%{hash:016X}");
    }
    name
}

/// The file in `folder` whose bytes the connections of a database lock.
pub fn lock_file(folder: &Path, database: &str) -> PathBuf {
    folder.join(format!("{}-lock", file_name(database)))
}

/// The file in `folder` that the connections of a database map.
pub fn memory_file(folder: &Path, database: &str) -> PathBuf {
    folder.join(format!("{}-shm", file_name(database)))
}

impl Locks {
    /// Opens the file for a new connection.
    pub fn open(folder: &Path, database: &str) -> io::Result<Locks> {
        std::fs::create_dir_all(folder)?;
        let path = lock_file(folder, database);
        let file = File::options().read(true).write(true).create(true).truncate(false).open(path)?;
        Ok(Locks { file, level: LOCK_NONE })
    }

    fn description(hold: Hold, bytes: &Range<i64>) -> libc::flock {
        libc::flock {
            l_type: hold as c_short,
            l_whence: libc::SEEK_SET as c_short,
            l_start: bytes.start,
            l_len: bytes.end - bytes.start,
            l_pid: 0,
        }
    }

    /// Locks bytes, or gives them up. Returns whether they could be locked.
    fn hold(&self, hold: Hold, bytes: Range<i64>) -> io::Result<bool> {
        let wanted = Locks::description(hold, &bytes);
        // SAFETY: the file is open, and the description is read only.
        if unsafe { libc::fcntl(self.file.as_raw_fd(), libc::F_OFD_SETLK, &raw const wanted) } == 0 {
            return Ok(true);
        }
        match io::Error::last_os_error() {
            error if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
            error => Err(error),
        }
    }

    /// The level of the connection.
    pub fn level(&self) -> c_int {
        self.level
    }

    /// Raises the level of the connection. Returns whether it could be.
    pub fn lock(&mut self, level: c_int) -> io::Result<bool> {
        if self.level >= level {
            return Ok(true);
        }
        if level == LOCK_SHARED {
            // Who is pending lets no reader in.
            if !self.hold(Hold::Shared, PENDING..RESERVED)? {
                return Ok(false);
            }
            let is_held = self.hold(Hold::Shared, READERS..READERS_END);
            self.hold(Hold::None, PENDING..RESERVED)?;
            if !is_held? {
                return Ok(false);
            }
        } else if level == LOCK_RESERVED {
            if !self.hold(Hold::Alone, RESERVED..READERS)? {
                return Ok(false);
            }
        } else {
            if self.level < LOCK_PENDING {
                if !self.hold(Hold::Alone, PENDING..RESERVED)? {
                    return Ok(false);
                }
                self.level = LOCK_PENDING;
            }
            if level == LOCK_EXCLUSIVE && !self.hold(Hold::Alone, READERS..READERS_END)? {
                return Ok(false);
            }
        }
        self.level = level;
        Ok(true)
    }

    /// Lowers the level of the connection to SHARED or to none.
    pub fn unlock(&mut self, level: c_int) -> io::Result<()> {
        if self.level <= level {
            return Ok(());
        }
        if level == LOCK_NONE {
            self.hold(Hold::None, PENDING..READERS_END)?;
        } else {
            // Readers come in when the writer is one of them.
            self.hold(Hold::Shared, READERS..READERS_END)?;
            self.hold(Hold::None, PENDING..READERS)?;
        }
        self.level = level;
        Ok(())
    }

    /// Whether any connection is about to write.
    pub fn is_reserved(&self) -> io::Result<bool> {
        if self.level >= LOCK_RESERVED {
            return Ok(true);
        }
        let mut wanted = Locks::description(Hold::Alone, &(RESERVED..READERS));
        // SAFETY: the file is open, and the description is ours.
        if unsafe { libc::fcntl(self.file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut wanted) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(i32::from(wanted.l_type) != libc::F_UNLCK)
    }

    /// Locks `count` locks of the write-ahead log from `first` on, or gives them up. Returns whether they could be locked.
    pub fn hold_log(&self, hold: Hold, first: c_int, count: c_int) -> io::Result<bool> {
        let first = LOG + i64::from(first);
        self.hold(hold, first..first + i64::from(count))
    }

    /// Says that this connection maps the shared memory. `Some(true)`: no other has it mapped, and none can before [`Locks::maps`]; `None`: somebody
    /// is about to say so.
    pub fn is_first_to_map(&self) -> io::Result<Option<bool>> {
        if self.hold(Hold::Alone, MAPPED..MAPPED + 1)? {
            return Ok(Some(true));
        }
        Ok(self.maps()?.then_some(false))
    }

    /// This connection maps the shared memory beside others.
    pub fn maps(&self) -> io::Result<bool> {
        self.hold(Hold::Shared, MAPPED..MAPPED + 1)
    }

    /// It maps it no more.
    pub fn unmaps(&self) -> io::Result<()> {
        self.hold(Hold::None, MAPPED..MAPPED + 1).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_writer_waits_for_readers_and_keeps_new_ones_out() {
        let folder = tempfile::tempdir().unwrap();
        let open = || Locks::open(folder.path(), "a/data.db").unwrap();
        let [mut one, mut two, mut three, mut four] = [open(), open(), open(), open()];
        let can = |locks: &mut Locks, level| locks.lock(level).unwrap();
        assert!(can(&mut one, LOCK_SHARED) && can(&mut two, LOCK_SHARED) && can(&mut one, LOCK_RESERVED));
        assert!(!can(&mut two, LOCK_RESERVED) && can(&mut three, LOCK_SHARED));
        assert!(two.is_reserved().unwrap() && one.is_reserved().unwrap());
        assert!(!can(&mut one, LOCK_EXCLUSIVE) && !can(&mut four, LOCK_SHARED));
        assert_eq!(one.level(), LOCK_PENDING);
        two.unlock(LOCK_NONE).unwrap();
        assert!(!can(&mut one, LOCK_EXCLUSIVE));
        three.unlock(LOCK_NONE).unwrap();
        assert!(can(&mut one, LOCK_EXCLUSIVE) && !can(&mut two, LOCK_SHARED));
        one.unlock(LOCK_SHARED).unwrap();
        assert!(can(&mut two, LOCK_SHARED) && !two.is_reserved().unwrap());
        drop(one);
        assert!(
            can(&mut two, LOCK_RESERVED) && can(&mut two, LOCK_EXCLUSIVE),
            "a connection that is gone holds nothing"
        );
    }

    #[test]
    fn locks_of_a_log_exclude_each_other() {
        let folder = tempfile::tempdir().unwrap();
        let [one, two] = [0, 1].map(|_| Locks::open(folder.path(), "data.db").unwrap());
        assert!(one.hold_log(Hold::Shared, 3, 1).unwrap() && two.hold_log(Hold::Shared, 3, 1).unwrap());
        assert!(!one.hold_log(Hold::Alone, 0, 8).unwrap() && one.hold_log(Hold::Alone, 0, 3).unwrap());
        assert!(!two.hold_log(Hold::Shared, 2, 1).unwrap());
        assert!(one.hold_log(Hold::None, 0, 8).unwrap() && two.hold_log(Hold::Alone, 0, 8).unwrap());
        assert_eq!(one.is_first_to_map().unwrap(), Some(true));
        assert_eq!(two.is_first_to_map().unwrap(), None);
        assert!(one.maps().unwrap());
        assert_eq!(two.is_first_to_map().unwrap(), Some(false));
        one.unmaps().unwrap();
        assert!(two.maps().unwrap());
        assert_eq!(two.is_first_to_map().unwrap(), Some(true), "its own lock is raised");
    }

    #[test]
    fn databases_have_files_of_their_own() {
        let folder = Path::new("f");
        assert_eq!(lock_file(folder, "a/b%.db"), Path::new("f/a%2Fb%25.db-lock"));
        let long = ["x".repeat(900), format!("{}y", "x".repeat(899))].map(|name| memory_file(folder, &name));
        assert!(long[0] != long[1] && long[0].file_name().unwrap().len() < 250);
    }
}
