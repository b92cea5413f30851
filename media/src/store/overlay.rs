//! A file that is looked at and not written: what would be written stays in memory, page by page.
//!
//! Opening a drive file takes the last commits from its journal to their places. Whoever only looks at the drive sees that
//! done, and the file stays as it is.

use super::format::PAGE_BYTES;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, PoisonError};

/// A file under pages that are in memory.
#[derive(Debug)]
pub(super) struct Overlay {
    file: File,
    pages: Mutex<BTreeMap<u64, Vec<u8>>>,
}

impl Overlay {
    pub fn over(file: File) -> Overlay {
        Overlay { file, pages: Mutex::default() }
    }

    pub fn file(&self) -> &File {
        &self.file
    }

    pub fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    pub fn read(&self, bytes: &mut [u8], at: u64) -> io::Result<()> {
        self.file.read_exact_at(bytes, at)?;
        let end = at + bytes.len() as u64;
        let pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        for (number, page) in pages.range(at / PAGE_BYTES..end.div_ceil(PAGE_BYTES)) {
            let start = number * PAGE_BYTES;
            let (from, to) = (start.max(at), (start + page.len() as u64).min(end));
            if from < to {
                bytes[(from - at) as usize..(to - at) as usize]
                    .copy_from_slice(&page[(from - start) as usize..(to - start) as usize]);
            }
        }
        Ok(())
    }

    pub fn write(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        let (len, mut written) = (self.len()?, 0);
        let mut pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        while written < bytes.len() {
            let place = at + written as u64;
            let (number, within) = (place / PAGE_BYTES, (place % PAGE_BYTES) as usize);
            let start = number * PAGE_BYTES;
            let page = match pages.entry(number) {
                std::collections::btree_map::Entry::Occupied(page) => page.into_mut(),
                std::collections::btree_map::Entry::Vacant(place) => {
                    let mut page = vec![0; PAGE_BYTES.min(len.saturating_sub(start)) as usize];
                    self.file.read_exact_at(&mut page, start)?;
                    place.insert(page)
                }
            };
            let room = page.len().saturating_sub(within);
            if room == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            let count = room.min(bytes.len() - written);
            page[within..within + count].copy_from_slice(&bytes[written..written + count]);
            written += count;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn what_is_written_is_read_and_the_file_stays_as_it_is() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let before: Vec<u8> = (0..3 * PAGE_BYTES + 100).map(|index| (index / 7) as u8).collect();
        file.write_all(&before).unwrap();
        let overlay = Overlay::over(file.reopen().unwrap());
        let mut expected = before.clone();
        for (at, len, byte) in
            [(10, 20, 1), (PAGE_BYTES - 5, 10, 2), (100, 2 * PAGE_BYTES, 3), (3 * PAGE_BYTES + 90, 10, 4)]
        {
            overlay.write(&vec![byte; len as usize], at).unwrap();
            expected[at as usize..(at + len) as usize].fill(byte);
            for (from, to) in [(0, expected.len()), (50, 5000), (at as usize, (at + len) as usize)] {
                let mut read = vec![0; to - from];
                overlay.read(&mut read, from as u64).unwrap();
                assert_eq!(read, expected[from..to], "{at} {len}, from {from} to {to}");
            }
        }
        assert!(overlay.write(&[9; 20], 3 * PAGE_BYTES + 90).is_err(), "a file that is looked at does not grow");
        assert_eq!(std::fs::read(file.path()).unwrap(), before);
    }
}
