//! A file without a name that ends with the process: in memory, and beyond [`MEMORY_BYTES`] in a temporary file of the system.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Bytes that stay in memory.
pub const MEMORY_BYTES: u64 = 8 << 20;

/// See the module.
#[derive(Default)]
pub struct Scratch {
    memory: Vec<u8>,
    file: Option<File>,
    length: u64,
}

impl Scratch {
    /// Its bytes.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Fills `bytes` from `offset` on, with zeroes behind the end. Returns how many there were.
    pub fn read(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        let count = self.length.saturating_sub(offset).min(bytes.len() as u64) as usize;
        let (here, behind) = bytes.split_at_mut(count);
        behind.fill(0);
        match &self.file {
            Some(file) => file.read_exact_at(here, offset)?,
            None if count == 0 => {}
            None => here.copy_from_slice(&self.memory[offset as usize..][..count]),
        }
        Ok(count)
    }

    /// Writes `bytes` at `offset`; between the end and there are zeroes.
    pub fn write(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let end = offset + bytes.len() as u64;
        if self.file.is_none() && end > MEMORY_BYTES {
            let file = tempfile::tempfile()?;
            file.write_all_at(&self.memory, 0)?;
            self.memory = Vec::new();
            self.file = Some(file);
        }
        match &self.file {
            Some(file) => file.write_all_at(bytes, offset)?,
            None => {
                if self.memory.len() < end as usize {
                    self.memory.resize(end as usize, 0);
                }
                self.memory[offset as usize..end as usize].copy_from_slice(bytes);
            }
        }
        self.length = self.length.max(end);
        Ok(())
    }

    /// Has `length` bytes at most from now on.
    pub fn truncate(&mut self, length: u64) -> io::Result<()> {
        if length >= self.length {
            return Ok(());
        }
        if length == 0 {
            self.memory.clear();
            self.file = None;
        }
        match &self.file {
            Some(file) => file.set_len(length)?,
            None => self.memory.truncate(length as usize),
        }
        self.length = length;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_the_same_in_memory_and_behind_it() {
        let mut scratch = Scratch::default();
        scratch.write(b"first", 3).unwrap();
        scratch.write(b"last", MEMORY_BYTES + 5).unwrap();
        let mut bytes = [1; 10];
        assert_eq!(scratch.read(&mut bytes, 0).unwrap(), 10);
        assert_eq!(&bytes, b"\0\0\0first\0\0");
        assert_eq!(scratch.read(&mut bytes, MEMORY_BYTES + 5).unwrap(), 4);
        assert_eq!(&bytes, b"last\0\0\0\0\0\0");
        scratch.truncate(6).unwrap();
        assert_eq!((scratch.read(&mut bytes, 0).unwrap(), scratch.length()), (6, 6));
        scratch.truncate(0).unwrap();
        scratch.write(b"x", 1).unwrap();
        assert_eq!((scratch.read(&mut bytes, 0).unwrap(), &bytes[..3]), (2, &b"\0x\0"[..]));
    }
}
