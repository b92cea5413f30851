//! The disk under a drive file: a file of the system, or a simulated one.
//!
//! Everything that the file store reads, writes, punches and syncs goes through here, so that a simulated page cache sees
//! exactly what the disk would.

use super::overlay::Overlay;
use super::page_cache::PageCache;
use rustix::fs::{FallocateFlags, FlockOperation};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::unix::fs::FileExt;

/// Where the bytes of a drive file are.
#[derive(Debug)]
pub(super) enum Disk {
    File(File),
    Simulated(PageCache),
    /// A file that is looked at, and not written.
    LookedAt(Overlay),
}

impl Drop for Disk {
    /// Gives the lock back. A process that another thread is starting has the file, too, until it runs its program: if the lock were left to the last
    /// one that closes the file, the drive would be in use for a while after it was closed.
    fn drop(&mut self) {
        let file = match self {
            Disk::File(file) => &*file,
            Disk::LookedAt(overlay) => overlay.file(),
            Disk::Simulated(_) => return,
        };
        // Who has a lock can give it back.
        let _ = rustix::fs::flock(file, FlockOperation::Unlock);
    }
}

impl Disk {
    /// Bytes of the file.
    pub fn len(&self) -> io::Result<u64> {
        match self {
            Disk::File(file) => Ok(file.metadata()?.len()),
            Disk::Simulated(cache) => Ok(cache.len()),
            Disk::LookedAt(overlay) => overlay.len(),
        }
    }

    pub fn set_len(&self, bytes: u64) -> io::Result<()> {
        match self {
            Disk::File(file) => file.set_len(bytes),
            Disk::Simulated(cache) => {
                cache.set_len(bytes);
                Ok(())
            }
            Disk::LookedAt(_) => Err(io::ErrorKind::PermissionDenied.into()),
        }
    }

    pub fn read_exact_at(&self, bytes: &mut [u8], at: u64) -> io::Result<()> {
        match self {
            Disk::File(file) => file.read_exact_at(bytes, at),
            Disk::Simulated(cache) => cache.read(bytes, at),
            Disk::LookedAt(overlay) => overlay.read(bytes, at),
        }
    }

    pub fn write_all_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        match self {
            Disk::File(file) => file.write_all_at(bytes, at),
            Disk::Simulated(cache) => cache.write(bytes, at),
            Disk::LookedAt(overlay) => overlay.write(bytes, at),
        }
    }

    /// Fills all of `slices`, one behind the other.
    pub fn read_vectored(&self, mut slices: &mut [IoSliceMut<'_>], mut at: u64) -> io::Result<()> {
        let file = match self {
            Disk::File(file) => file,
            Disk::Simulated(_) | Disk::LookedAt(_) => {
                for slice in slices {
                    self.read_exact_at(slice, at)?;
                    at += slice.len() as u64;
                }
                return Ok(());
            }
        };
        while !slices.is_empty() {
            match rustix::io::preadv(file, slices, at) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => {
                    at += read as u64;
                    IoSliceMut::advance_slices(&mut slices, read);
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Writes all of `slices`, one behind the other.
    pub fn write_vectored(&self, mut slices: &mut [IoSlice<'_>], mut at: u64) -> io::Result<()> {
        let file = match self {
            Disk::File(file) => file,
            Disk::Simulated(_) | Disk::LookedAt(_) => {
                let whole: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
                return self.write_all_at(&whole, at);
            }
        };
        while !slices.is_empty() {
            match rustix::io::pwritev(file, slices, at) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    at += written as u64;
                    IoSlice::advance_slices(&mut slices, written);
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Gives back the space of a range, which reads as zeroes from then on. A file system that cannot do that keeps it.
    pub fn punch(&self, at: u64, bytes: u64) {
        match self {
            Disk::File(file) => {
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                let _ = rustix::fs::fallocate(file, flags, at, bytes);
            }
            Disk::Simulated(cache) => cache.punch(at, bytes),
            // Nobody who only looks frees space.
            Disk::LookedAt(_) => {}
        }
    }

    /// Takes everything written so far to where it survives the machine.
    pub fn sync(&self) -> io::Result<()> {
        match self {
            Disk::File(file) => file.sync_data(),
            Disk::Simulated(cache) => cache.sync(),
            Disk::LookedAt(_) => Ok(()),
        }
    }

    /// The same, with what the file system knows of the file.
    pub fn sync_all(&self) -> io::Result<()> {
        match self {
            Disk::File(file) => file.sync_all(),
            Disk::Simulated(cache) => cache.sync(),
            Disk::LookedAt(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FileStore, Profile, StoreError};

    #[test]
    fn a_drive_that_is_closed_is_free_although_a_process_that_is_being_started_has_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("drive.oftl");
        drop(FileStore::create(&path, &Profile::builtin("tiny").unwrap(), 8, &[], 1).unwrap());
        let file = File::options().read(true).write(true).open(&path).unwrap();
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).unwrap();
        let of_another_process = file.try_clone().unwrap();
        let disk = Disk::File(file);
        assert!(matches!(FileStore::open(&path), Err(StoreError::Locked { .. })));
        drop(disk);
        assert!(FileStore::open(&path).is_ok());
        drop(of_another_process);
    }
}
