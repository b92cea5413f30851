//! The bytes of a file of the model: blocks that were written, and holes between them.

use openftl_core::BLOCK_BYTES;
use std::collections::BTreeMap;
use std::rc::Rc;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// See the module. Copies share the blocks that neither has written since.
#[derive(Clone, Default)]
pub struct FileBytes {
    size: u64,
    /// By block number, the bytes behind the end of the file being zeroes; a block that is not there is a hole.
    blocks: BTreeMap<u64, Rc<[u8; BLOCK_BYTES]>>,
}

impl FileBytes {
    /// How many bytes there are.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Blocks that are no holes.
    #[must_use]
    pub fn data_blocks(&self) -> u64 {
        self.blocks.len() as u64
    }

    /// Up to `bytes` bytes from `offset` on, fewer at the end.
    #[must_use]
    pub fn read(&self, offset: u64, bytes: u64) -> Vec<u8> {
        let end = self.size.min(offset.saturating_add(bytes));
        let mut read = vec![0; end.saturating_sub(offset) as usize];
        if read.is_empty() {
            return read;
        }
        for (number, block) in self.blocks.range(offset / BLOCK..=(end - 1) / BLOCK) {
            let (from, to) = within(*number, offset, end);
            let at = (number * BLOCK + from as u64 - offset) as usize;
            read[at..at + (to - from)].copy_from_slice(&block[from..to]);
        }
        read
    }

    /// Writes at `offset`; the file grows if need be.
    pub fn write(&mut self, offset: u64, data: &[u8]) {
        if data.is_empty() {
            return;
        }
        let end = offset + data.len() as u64;
        for number in offset / BLOCK..=(end - 1) / BLOCK {
            let (from, to) = within(number, offset, end);
            let at = (number * BLOCK + from as u64 - offset) as usize;
            let block = self.blocks.entry(number).or_insert_with(|| Rc::new([0; BLOCK_BYTES]));
            Rc::make_mut(block)[from..to].copy_from_slice(&data[at..at + (to - from)]);
        }
        self.size = self.size.max(end);
    }

    /// Cuts the file off at `size`, or lets it grow by a hole.
    pub fn resize(&mut self, size: u64) {
        if size < self.size {
            self.blocks.split_off(&size.div_ceil(BLOCK));
            if let Some(block) = self.blocks.get_mut(&(size / BLOCK)) {
                Rc::make_mut(block)[(size % BLOCK) as usize..].fill(0);
            }
        }
        self.size = size;
    }

    /// Bytes of the file from `offset` to before `end` read as zeroes. Whole blocks among them are holes; of a block that is in the range in
    /// part the rest stays, and it stays data.
    pub fn punch(&mut self, offset: u64, end: u64) {
        if offset >= end {
            return;
        }
        let numbers: Vec<u64> =
            self.blocks.range(offset / BLOCK..=(end - 1) / BLOCK).map(|(number, _)| *number).collect();
        for number in numbers {
            match within(number, offset, end) {
                (0, BLOCK_BYTES) => _ = self.blocks.remove(&number),
                (from, to) => {
                    let block = self.blocks.get_mut(&number).expect("it is there");
                    Rc::make_mut(block)[from..to].fill(0);
                }
            }
        }
    }

    /// The first byte of a written block, from `offset` on.
    #[must_use]
    pub fn next_data(&self, offset: u64) -> Option<u64> {
        let (number, _) = self.blocks.range(offset / BLOCK..).next()?;
        let found = offset.max(number * BLOCK);
        (found < self.size).then_some(found)
    }

    /// The first byte of a hole, from `offset` on, or the end.
    #[must_use]
    pub fn next_hole(&self, offset: u64) -> u64 {
        let first = offset / BLOCK;
        let blocks = self.blocks.range(first..).zip(first..).take_while(|((number, _), expected)| *number == expected);
        match blocks.count() as u64 {
            0 => offset.min(self.size),
            data => ((first + data) * BLOCK).min(self.size),
        }
    }
}

/// Which bytes of block `number` are from `offset` to before `end`.
fn within(number: u64, offset: u64, end: u64) -> (usize, usize) {
    let begins = number * BLOCK;
    (offset.saturating_sub(begins) as usize, (end - begins).min(BLOCK) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_was_cut_off_grows_with_zeroes() {
        let mut bytes = FileBytes::default();
        bytes.write(1, b"abcdef");
        bytes.resize(3);
        bytes.resize(6);
        assert_eq!(bytes.read(0, 100), b"\0ab\0\0\0");
    }

    #[test]
    fn whole_blocks_that_are_punched_are_holes_and_parts_of_blocks_are_zeroes() {
        let mut bytes = FileBytes::default();
        bytes.write(0, &[7; 4 * BLOCK_BYTES]);
        bytes.punch(BLOCK - 1, 2 * BLOCK + 1);
        assert_eq!((bytes.next_hole(0), bytes.next_data(BLOCK)), (BLOCK, Some(2 * BLOCK)));
        assert_eq!(bytes.read(BLOCK - 2, 2), [7, 0]);
        assert_eq!(bytes.read(2 * BLOCK, 2), [0, 7]);
        assert_eq!((bytes.next_hole(2 * BLOCK), bytes.next_data(4 * BLOCK)), (4 * BLOCK, None));
    }

    #[test]
    fn copies_are_apart() {
        let mut bytes = FileBytes::default();
        bytes.write(0, b"before");
        let copy = bytes.clone();
        bytes.write(0, b"after.");
        assert_eq!((copy.read(0, 6), bytes.read(0, 6)), (b"before".to_vec(), b"after.".to_vec()));
    }
}
