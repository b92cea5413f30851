//! Where the pages of a map are that is kept on media.
//!
//! A *map page* is a block with the entries of 1024 logical blocks that follow each other, at the place of its number. It is on
//! media twice, in different groups. A page without an entry is nowhere: its blocks read as zeroes, and nothing is read for that.
//!
//! | bytes of a map page | field |
//! |---|---|
//! | 0-4095 | entries of 4 bytes, in the order of logical blocks: address, FFFF_FFFFh (nowhere), FFFF_FFFEh (lost) |
//!
//! The out-of-band bytes have kind *map page*, the number of the page, and the number of the merge that wrote it.

use super::{ENTRIES_PER_BLOCK, Entry, Place};
use crate::words::METADATA_COPIES;
use openftl_core::{BLOCK_BYTES, Ppa};

/// How many entries a map page has: 1024, or less in tests, where drives are small. A power of two.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageSize {
    bits: u32,
}

impl serde::Serialize for PageSize {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u32(self.entries())
    }
}

impl PageSize {
    /// As many entries as a block has room for.
    pub const WHOLE: PageSize = PageSize { bits: ENTRIES_PER_BLOCK.ilog2() };

    /// Pages of so many entries, if there can be such.
    #[must_use]
    pub fn of(entries: u32) -> Option<PageSize> {
        let is_possible = entries.is_power_of_two() && entries as usize <= ENTRIES_PER_BLOCK;
        is_possible.then(|| PageSize { bits: entries.ilog2() })
    }

    /// Entries of a page.
    #[inline]
    #[must_use]
    pub fn entries(self) -> u32 {
        1 << self.bits
    }

    /// The page of `block`, and the index of the block in it.
    #[inline]
    #[must_use]
    pub fn split(self, block: u32) -> (u32, usize) {
        (block >> self.bits, (block & (self.entries() - 1)) as usize)
    }

    /// The first block of `page`.
    #[inline]
    #[must_use]
    pub fn first_of(self, page: u32) -> u32 {
        page << self.bits
    }

    /// Pages of a map of so many blocks.
    #[must_use]
    pub fn pages(self, blocks: u64) -> u32 {
        blocks.div_ceil(u64::from(self.entries())) as u32
    }
}

/// The number of a merge is above that of the next block of the log, by so many bits: a drive that was opened again gives away none
/// that was there before.
pub const SEQUENCE_BITS: u32 = 10;

/// The copies of a map page.
pub type Copies = [Ppa; METADATA_COPIES];

const NOWHERE: u32 = u32::MAX;

/// The places of all map pages, 8 bytes each.
pub struct Directory {
    places: Vec<[u32; METADATA_COPIES]>,
    /// Pages that are somewhere.
    mapped: u32,
}

impl Directory {
    /// A directory of so many pages, all of them nowhere.
    #[must_use]
    pub fn new(pages: u32) -> Directory {
        Directory { places: vec![[NOWHERE; METADATA_COPIES]; pages as usize], mapped: 0 }
    }

    /// Bytes of memory that a page takes.
    pub const BYTES_PER_PAGE: usize = size_of::<[u32; METADATA_COPIES]>();

    /// Pages of the map.
    #[must_use]
    pub fn pages(&self) -> u32 {
        self.places.len() as u32
    }

    /// Pages that are on media.
    #[must_use]
    pub fn mapped(&self) -> u32 {
        self.mapped
    }

    /// Where `page` is; `None`: nowhere.
    #[inline]
    #[must_use]
    pub fn get(&self, page: u32) -> Option<Copies> {
        let places = self.places[page as usize];
        (places[0] != NOWHERE).then(|| places.map(|place| Ppa(u64::from(place))))
    }

    /// `page` is there from now on. Returns where it was.
    pub fn set(&mut self, page: u32, copies: Option<Copies>) -> Option<Copies> {
        let before = self.get(page);
        self.places[page as usize] = match copies {
            Some(copies) => copies.map(|ppa| Entry::media(ppa).0),
            None => [NOWHERE; METADATA_COPIES],
        };
        self.mapped = self.mapped + u32::from(copies.is_some()) - u32::from(before.is_some());
        before
    }

    /// The pages of which a copy is at a place that `is_there` says, in order.
    pub fn with_copy_in(&self, is_there: impl Fn(Ppa) -> bool) -> impl Iterator<Item = u32> {
        let has_copy = move |places: &[u32; METADATA_COPIES]| {
            places[0] != NOWHERE && places.iter().any(|place| is_there(Ppa(u64::from(*place))))
        };
        (0..).zip(&self.places).filter(move |(_, places)| has_copy(places)).map(|(page, _)| page)
    }

    /// Word `page` of the directory on media.
    #[must_use]
    pub fn word(&self, page: u32) -> u64 {
        let [first, second] = self.places[page as usize];
        u64::from(first) | u64::from(second) << 32
    }

    /// Takes word `page` from media. Returns false if it cannot be true: one copy is nowhere and the other is not, or an address
    /// has too many bits.
    pub fn load(&mut self, page: u32, word: u64) -> bool {
        let places = [word as u32, (word >> 32) as u32];
        if places == [NOWHERE; METADATA_COPIES] {
            self.set(page, None);
            return true;
        }
        let is_possible = places.iter().all(|place| matches!(Entry(*place).place(), Place::Media(_)));
        if is_possible {
            self.set(page, Some(places.map(|place| Ppa(u64::from(place)))));
        }
        is_possible
    }
}

/// The entry at `index` of a map page.
#[inline]
#[must_use]
pub fn entry_of(page: &[u8; BLOCK_BYTES], index: usize) -> Entry {
    Entry(u32::from_le_bytes(page.as_chunks::<4>().0[index]))
}

/// Sets the entry at `index` of a map page.
#[inline]
pub fn set_entry(page: &mut [u8; BLOCK_BYTES], index: usize, entry: Entry) {
    page.as_chunks_mut::<4>().0[index] = entry.0.to_le_bytes();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_nowhere_until_it_is_somewhere_and_its_word_says_which() {
        let mut directory = Directory::new(3);
        assert_eq!((directory.get(1), directory.word(1), directory.mapped()), (None, u64::MAX, 0));
        let copies = [Ppa(7), Ppa(0x7FFF_FFFF)];
        assert_eq!(directory.set(1, Some(copies)), None);
        assert_eq!((directory.get(1), directory.word(1), directory.mapped()), (Some(copies), 0x7FFF_FFFF_0000_0007, 1));
        let mut other = Directory::new(3);
        assert!((0..3).all(|page| other.load(page, directory.word(page))));
        assert_eq!((other.get(1), other.mapped()), (Some(copies), 1));
        assert_eq!(other.with_copy_in(|ppa| ppa == Ppa(7)).collect::<Vec<_>>(), [1]);
        assert_eq!(other.with_copy_in(|ppa| ppa == Ppa(8)).count(), 0);
        assert_eq!(other.set(1, None), Some(copies));
        assert_eq!(other.mapped(), 0);
    }

    #[test]
    fn a_word_with_one_copy_or_with_an_address_that_no_device_has_is_refused() {
        let mut directory = Directory::new(1);
        for word in [0xFFFF_FFFF_0000_0007, 0x0000_0007_FFFF_FFFF, 0x8000_0000_0000_0007, 0x0000_0007_FFFF_FFFE] {
            assert!(!directory.load(0, word), "{word:#x}");
        }
        assert_eq!(directory.get(0), None);
    }

    #[test]
    fn a_page_has_a_power_of_two_of_entries() {
        assert_eq!(PageSize::WHOLE.entries(), 1024);
        let size = PageSize::of(8).unwrap();
        assert_eq!((size.entries(), size.split(27), size.first_of(3), size.pages(27)), (8, (3, 3), 24, 4));
        assert_eq!([0, 3, 2048].map(PageSize::of), [None; 3]);
    }
}
