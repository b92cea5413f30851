//! Where the pages of a map are that is kept on media.
//!
//! A *map page* is a block with the entries of so many logical blocks that follow each other, at the place of its number. It is on
//! media twice, in different groups. A page without an entry is nowhere: its blocks read as zeroes, and nothing is read for that.
//!
//! | bytes of a map page | field |
//! |---|---|
//! | 0-4095 | 1024 entries of 4 bytes, in the order of logical blocks: address, FFFF_FFFFh (nowhere), FFFF_FFFEh (lost) |
//! | 0-4079 | where they are [wide](Width::Wide), 816 of 5 bytes: address, FF_FFFF_FFFFh, FF_FFFF_FFFEh; the rest is FFh |
//!
//! The out-of-band bytes have kind *map page*, the number of the page, and the number of the merge that wrote it.

use super::{Entry, Width, Word};
use crate::words::METADATA_COPIES;
use openftl_core::{BLOCK_BYTES, Ppa};

/// How many entries a map page has, and how long they are: as many as there is room for, or fewer in tests, where drives are small.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageSize {
    entries: u32,
    /// Which power of two that is, if it is one: a block is split without a division then.
    bits: Option<u8>,
    width: Width,
}

impl serde::Serialize for PageSize {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u32(self.entries())
    }
}

impl PageSize {
    /// As many narrow entries as a block has room for.
    pub const WHOLE: PageSize = PageSize::full(Width::Narrow);

    /// As many entries as a block has room for.
    #[must_use]
    pub const fn full(width: Width) -> PageSize {
        match width {
            Width::Narrow => PageSize { entries: 1024, bits: Some(10), width },
            Width::Wide => PageSize { entries: 816, bits: None, width },
        }
    }

    /// Pages of so many entries, if there can be such.
    #[must_use]
    pub fn of(entries: u32, width: Width) -> Option<PageSize> {
        let is_possible = (1..=PageSize::full(width).entries).contains(&entries);
        let bits = entries.is_power_of_two().then(|| entries.ilog2() as u8);
        is_possible.then_some(PageSize { entries, bits, width })
    }

    /// The same, as a superblock says it.
    ///
    /// # Errors
    /// If there can be no such pages: why.
    pub fn described(entries: u32, width: Width) -> Result<PageSize, String> {
        let most = PageSize::full(width).entries;
        PageSize::of(entries, width)
            .ok_or_else(|| format!("a map page has {entries} entries, and at most {most} are possible"))
    }

    /// Entries of a page.
    #[inline]
    #[must_use]
    pub fn entries(self) -> u32 {
        self.entries
    }

    /// How long they are.
    #[inline]
    #[must_use]
    pub fn width(self) -> Width {
        self.width
    }

    /// The page of `block`, and the index of the block in it.
    #[inline]
    #[must_use]
    pub fn split(self, block: u64) -> (u32, usize) {
        match self.bits {
            Some(bits) => ((block >> bits) as u32, (block & u64::from(self.entries - 1)) as usize),
            None => ((block / u64::from(self.entries)) as u32, (block % u64::from(self.entries)) as usize),
        }
    }

    /// The first block of `page`.
    #[inline]
    #[must_use]
    pub fn first_of(self, page: u32) -> u64 {
        u64::from(page) * u64::from(self.entries)
    }

    /// Pages of a map of so many blocks.
    #[must_use]
    pub fn pages(self, blocks: u64) -> u32 {
        blocks.div_ceil(u64::from(self.entries)) as u32
    }

    /// The entry at `index` of a map page.
    #[inline]
    #[must_use]
    pub fn entry(self, page: &[u8; BLOCK_BYTES], index: usize) -> Entry {
        self.width.get(page, index)
    }

    /// Sets the entry at `index` of a map page.
    #[inline]
    pub fn set_entry(self, page: &mut [u8; BLOCK_BYTES], index: usize, entry: Entry) {
        self.width.set(page, index, entry);
    }
}

/// The number of a merge is above that of the next block of the log, by so many bits: a drive that was opened again gives away none
/// that was there before.
pub const SEQUENCE_BITS: u32 = 10;

/// The copies of a map page.
pub type Copies = [Ppa; METADATA_COPIES];

/// Where a map page is, as it is on media: all copies, or nowhere all of them.
pub type Places = [Entry; METADATA_COPIES];

const NOWHERE: Places = [Entry::UNMAPPED; METADATA_COPIES];

/// The places of all pages, as few bytes as their entries take on media.
enum Words {
    Narrow(Vec<[u32; METADATA_COPIES]>),
    Wide(Vec<[[u8; 5]; METADATA_COPIES]>),
}

/// The places of all map pages: 8 bytes each, or 10 where entries are wide.
pub struct Directory {
    words: Words,
    pages: u32,
    /// Pages that are somewhere.
    mapped: u32,
}

impl Directory {
    /// A directory of so many pages, all of them nowhere.
    #[must_use]
    pub fn new(pages: u32, width: Width) -> Directory {
        let words = match width {
            Width::Narrow => Words::Narrow(vec![NOWHERE.map(Word::of); pages as usize]),
            Width::Wide => Words::Wide(vec![NOWHERE.map(Word::of); pages as usize]),
        };
        Directory { words, pages, mapped: 0 }
    }

    /// Bytes of memory that a page takes.
    #[must_use]
    pub fn bytes_per_page(width: Width) -> usize {
        METADATA_COPIES * width.bytes()
    }

    fn width(&self) -> Width {
        match self.words {
            Words::Narrow(_) => Width::Narrow,
            Words::Wide(_) => Width::Wide,
        }
    }

    /// Pages of the map.
    #[must_use]
    pub fn pages(&self) -> u32 {
        self.pages
    }

    /// Pages that are on media.
    #[must_use]
    pub fn mapped(&self) -> u32 {
        self.mapped
    }

    /// Where `page` is, as it is on media.
    #[inline]
    #[must_use]
    pub fn places(&self, page: u32) -> Places {
        match &self.words {
            Words::Narrow(words) => words[page as usize].map(Word::entry),
            Words::Wide(words) => words[page as usize].map(Word::entry),
        }
    }

    /// Where `page` is; `None`: nowhere.
    #[inline]
    #[must_use]
    pub fn get(&self, page: u32) -> Option<Copies> {
        copies_at(self.places(page))
    }

    /// `page` is there from now on. Returns where it was.
    pub fn set(&mut self, page: u32, copies: Option<Copies>) -> Option<Copies> {
        let before = self.get(page);
        let places = copies.map_or(NOWHERE, |copies| copies.map(Entry::media));
        match &mut self.words {
            Words::Narrow(words) => words[page as usize] = places.map(Word::of),
            Words::Wide(words) => words[page as usize] = places.map(Word::of),
        }
        self.mapped = self.mapped + u32::from(copies.is_some()) - u32::from(before.is_some());
        before
    }

    /// The pages of which a copy is at a place that `is_there` says, in order.
    pub fn with_copy_in(&self, is_there: impl Fn(Ppa) -> bool) -> impl Iterator<Item = u32> {
        (0..self.pages).filter(move |page| self.get(*page).is_some_and(|copies| copies.into_iter().any(&is_there)))
    }

    /// Takes from media where `page` is. Returns false if it cannot be true: one copy is nowhere and the other is not, or no place.
    pub fn load(&mut self, page: u32, places: Places) -> bool {
        let copies = copies_at(places);
        let is_possible = match copies {
            Some(copies) => copies.into_iter().all(|ppa| self.width().has_room_for(ppa)),
            None => places == NOWHERE,
        };
        if is_possible {
            self.set(page, copies);
        }
        is_possible
    }
}

/// The copies of a page that is on media.
fn copies_at(places: Places) -> Option<Copies> {
    let on_media = places.iter().all(|place| place.is_on_media());
    on_media.then(|| places.map(Entry::address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_nowhere_until_it_is_somewhere_and_what_is_on_media_says_which() {
        for (width, last) in [(Width::Narrow, 0x7FFF_FFFF), (Width::Wide, 0xF_FFFF_FFFF)] {
            let mut directory = Directory::new(3, width);
            assert_eq!((directory.get(1), directory.places(1), directory.mapped()), (None, NOWHERE, 0));
            let copies = [Ppa(7), Ppa(last)];
            assert_eq!(directory.set(1, Some(copies)), None);
            assert_eq!((directory.get(1), directory.mapped()), (Some(copies), 1));
            let mut other = Directory::new(3, width);
            assert!((0..3).all(|page| other.load(page, directory.places(page))));
            assert_eq!((other.get(1), other.mapped()), (Some(copies), 1));
            assert_eq!(other.with_copy_in(|ppa| ppa == Ppa(7)).collect::<Vec<_>>(), [1]);
            assert_eq!(other.with_copy_in(|ppa| ppa == Ppa(8)).count(), 0);
            assert_eq!(other.set(1, None), Some(copies));
            assert_eq!(other.mapped(), 0);
        }
    }

    #[test]
    fn a_page_with_one_copy_or_at_no_place_is_refused() {
        let mut directory = Directory::new(1, Width::Narrow);
        let there = Entry::media(Ppa(7));
        for other in [Entry::UNMAPPED, Entry::LOST, Entry::buffer(openftl_core::Frame(1))] {
            assert!(!directory.load(0, [there, other]), "{other:?}");
            assert!(!directory.load(0, [other, there]), "{other:?}");
        }
        assert!(!directory.load(0, [Entry::LOST; METADATA_COPIES]));
        assert!(!directory.load(0, [there, Entry::media(Ppa(1 << 31))]));
        assert_eq!(directory.get(0), None);
    }

    #[test]
    fn a_page_has_as_many_entries_as_fit_or_fewer() {
        assert_eq!((PageSize::WHOLE.entries(), PageSize::full(Width::Wide).entries()), (1024, 816));
        let size = PageSize::of(8, Width::Narrow).unwrap();
        assert_eq!((size.entries(), size.split(27), size.first_of(3), size.pages(27)), (8, (3, 3), 24, 4));
        let size = PageSize::full(Width::Wide);
        let last = (1 << super::super::entry::BLOCK_BITS_MAX) - 1;
        let (page, index) = size.split(last);
        assert_eq!((size.first_of(page) + index as u64, size.pages(last + 1)), (last, page + 1));
        assert_eq!([0, 1025].map(|entries| PageSize::of(entries, Width::Narrow)), [None; 2]);
        assert_eq!([0, 817].map(|entries| PageSize::of(entries, Width::Wide)), [None; 2]);
    }
}
