//! Where each logical block is: the logical-to-physical map (L2P), one 32-bit word a block.
//!
//! ```text
//!   FFFF_FFFFh            never written, or trimmed: reads as zeroes
//!   FFFF_FFFEh            lost: reads as an error
//!   1 frame (31 bits)     in the write buffer
//!   0 address (31 bits)   on media, packed and sparse
//! ```

use openftl_core::{Frame, Ppa};

/// Where a logical block is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// Nowhere: it reads as zeroes.
    Unmapped,
    /// It was written, and a repair found no version of it: it reads as an error until it is written or trimmed.
    Lost,
    /// On media.
    Media(Ppa),
    /// In the write buffer.
    Buffer(Frame),
}

/// A [`Place`] in 32 bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry(pub u32);

const BUFFER: u32 = 1 << 31;

impl Entry {
    /// Nowhere.
    pub const UNMAPPED: Entry = Entry(u32::MAX);

    /// Lost.
    pub const LOST: Entry = Entry(u32::MAX - 1);

    /// On media; the address has at most 31 bits.
    #[inline]
    #[must_use]
    pub fn media(ppa: Ppa) -> Entry {
        debug_assert!(ppa.0 < u64::from(BUFFER), "the plan admits only devices with 31-bit addresses");
        Entry(ppa.0 as u32)
    }

    /// In the write buffer.
    #[inline]
    #[must_use]
    pub fn buffer(frame: Frame) -> Entry {
        Entry(BUFFER | frame.0)
    }

    /// Spelled out.
    #[inline]
    #[must_use]
    pub fn place(self) -> Place {
        if self.0 & BUFFER == 0 {
            Place::Media(Ppa(u64::from(self.0)))
        } else if self == Entry::UNMAPPED {
            Place::Unmapped
        } else if self == Entry::LOST {
            Place::Lost
        } else {
            Place::Buffer(Frame(self.0 & !BUFFER))
        }
    }
}

/// The map.
pub struct Mapping {
    entries: Vec<Entry>,
}

impl Mapping {
    /// A map of `blocks` logical blocks, none of them written.
    #[must_use]
    pub fn new(blocks: u64) -> Mapping {
        Mapping { entries: vec![Entry::UNMAPPED; blocks as usize] }
    }

    /// Logical blocks in the map.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.entries.len() as u64
    }

    /// Whether the map has no block.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Where `block` is.
    #[inline]
    #[must_use]
    pub fn get(&self, block: u32) -> Entry {
        self.entries[block as usize]
    }

    /// Fetches the entries of `blocks` at once. They lie anywhere in the map, and waiting for memory one after the other
    /// is most of what relocation costs; independent loads overlap.
    #[inline]
    pub fn fetch(&self, blocks: impl Iterator<Item = u32>) {
        std::hint::black_box(
            blocks.fold(0, |sum, block| sum ^ self.entries.get(block as usize).map_or(0, |entry| entry.0)),
        );
    }

    /// Says where `block` is from now on.
    #[inline]
    pub fn set(&mut self, block: u32, entry: Entry) {
        self.entries[block as usize] = entry;
    }

    /// The entries, in the order of logical blocks.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The entries, to be loaded from a checkpoint.
    pub fn entries_mut(&mut self) -> &mut [Entry] {
        &mut self.entries
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_says_what_it_was_made_of() {
        assert_eq!(Entry::UNMAPPED.place(), Place::Unmapped);
        for ppa in [0, 1, (1 << 31) - 1] {
            assert_eq!(Entry::media(Ppa(ppa)).place(), Place::Media(Ppa(ppa)));
        }
        assert_eq!(Entry::LOST.place(), Place::Lost);
        for frame in [0, 1, (1 << 31) - 3] {
            assert_eq!(Entry::buffer(Frame(frame)).place(), Place::Buffer(Frame(frame)));
        }
    }

    #[test]
    fn a_mapped_block_costs_four_bytes() {
        assert_eq!(size_of::<Entry>(), 4);
    }
}
