//! The memory that connections of a database in WAL mode share, of this process and of others: a file that is mapped, beside that of the locks.
//!
//! It holds SQLite's index of the write-ahead log, which SQLite makes anew from the log when the first connection maps it.

use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// Bytes of the two copies of the head of SQLite's index, with which it begins.
const HEADS_BYTES: usize = 96;

/// See the module: mapped once in a process.
pub struct SharedMemory {
    file: File,
    path: PathBuf,
    regions: Vec<*mut c_void>,
    region_bytes: usize,
    /// Connections of this process that map it.
    pub connections: u32,
}

// SAFETY: the pointers are to mappings that belong to the process, not to a thread.
unsafe impl Send for SharedMemory {}

impl SharedMemory {
    /// Opens the file, which is empty for the first connection of all.
    pub fn open(path: &Path, is_first: bool) -> io::Result<SharedMemory> {
        let file = File::options().read(true).write(true).create(true).truncate(false).open(path)?;
        if is_first {
            file.set_len(0)?;
        }
        Ok(SharedMemory { file, path: path.to_owned(), regions: Vec::new(), region_bytes: 0, connections: 0 })
    }

    /// Region `index` of so many bytes; `None` if it is not there, and not to be made.
    pub fn region(&mut self, index: usize, bytes: usize, is_made: bool) -> io::Result<Option<*mut c_void>> {
        if self.regions.is_empty() {
            self.region_bytes = bytes;
        }
        if bytes != self.region_bytes || !bytes.is_multiple_of(rustix::param::page_size()) {
            let text = format!("regions of {bytes} bytes of shared memory are none of {} pages", self.region_bytes);
            return Err(io::Error::new(io::ErrorKind::Unsupported, text));
        }
        while self.regions.len() <= index {
            let (first, end) = ((self.regions.len() * bytes) as u64, ((index + 1) * bytes) as u64);
            if self.file.metadata()?.len() < end {
                if !is_made {
                    return Ok(None);
                }
                // Another process may make it longer at the same time, and never shorter: whoever makes regions has a lock of the log.
                self.file.set_len(end)?;
            }
            let (protection, flags) =
                (rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE, rustix::mm::MapFlags::SHARED);
            // SAFETY: a new mapping at a place that the system chooses.
            let region = unsafe { rustix::mm::mmap(std::ptr::null_mut(), bytes, protection, flags, &self.file, first) };
            self.regions.push(region?);
        }
        Ok(Some(self.regions[index]))
    }

    /// Has SQLite make its index anew from the log: what the index says of the log is not so.
    pub fn invalidate(&mut self) {
        if let Some(first) = self.regions.first() {
            // SAFETY: the region is mapped and longer; SQLite finds by checksums that both copies are no heads.
            unsafe { first.cast::<u8>().write_bytes(0, HEADS_BYTES) };
            std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        }
    }

    /// Deletes the file, when no connection will need it.
    pub fn delete(&self) {
        // One that stays is empty for the next connection.
        _ = std::fs::remove_file(&self.path);
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        for region in &self.regions {
            // SAFETY: mapped with so many bytes, and no connection of this process uses it. A mapping that stays costs room and nothing else.
            _ = unsafe { rustix::mm::munmap(*region, self.region_bytes) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_maps_another_sees() {
        const BYTES: usize = 32 << 10;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data.db-shm");
        let mut one = SharedMemory::open(&path, true).unwrap();
        let mut two = SharedMemory::open(&path, false).unwrap();
        assert_eq!(two.region(1, BYTES, false).unwrap(), None);
        let here = one.region(1, BYTES, true).unwrap().unwrap().cast::<u8>();
        let there = two.region(1, BYTES, false).unwrap().unwrap().cast::<u8>();
        // SAFETY: both regions are mapped and so long.
        unsafe {
            here.add(BYTES - 1).write_volatile(7);
            assert_eq!(there.add(BYTES - 1).read_volatile(), 7);
            let first = two.region(0, BYTES, false).unwrap().unwrap().cast::<u8>();
            first.write_volatile(9);
            one.invalidate();
            assert_eq!(first.read_volatile(), 0);
        }
        assert!(one.region(0, 100, true).is_err(), "regions have one size");
        drop((one, two));
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 2 * BYTES as u64);
        drop(SharedMemory::open(&path, true).unwrap());
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 0);
    }
}
