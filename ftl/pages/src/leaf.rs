//! A piece of the map: pages whose numbers follow each other, and where they are. It fits into a block.
//!
//! Pages that are numbered without gaps take eight bytes each, others sixteen:
//!
//! | bytes | field |
//! |---|---|
//! | 0-3 | `OXPM` |
//! | 4-5 | version 1 |
//! | 6 | 1: places of all pages from the first on, all ones where there is none; 2: numbers, then places |
//! | 7 | 0 |
//! | 8-15 | number of the first page; nothing before it is in this leaf |
//! | 16-19 | how many |
//! | 20-31 | 0 |
//! | 32 | places, or numbers and then places, 8 bytes each |

use crate::place::Place;
use openftl_core::BLOCK_BYTES;
use zerocopy::FromBytes;
use zerocopy::little_endian::U64;

const MAGIC: [u8; 4] = *b"OXPM";
const VERSION: u16 = 1;
const HEAD_BYTES: usize = 32;
const WORD: usize = size_of::<u64>();

/// Pages of a leaf without gaps, and of one with gaps, at most.
const DENSE_MAX: usize = (BLOCK_BYTES - HEAD_BYTES) / WORD;
const SPARSE_MAX: usize = DENSE_MAX / 2;

/// Pages of a leaf without gaps, at most.
pub const LEAF_PAGES_MAX: u64 = DENSE_MAX as u64;

/// See the module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Leaf {
    /// No page of it has a smaller number.
    first: u64,
    /// Numbers of its pages where they have gaps; empty where they follow each other from the first on.
    numbers: Vec<u64>,
    places: Vec<u64>,
    /// Places that are one.
    pages: usize,
}

impl Leaf {
    /// One without pages, whose pages have numbers from `first` on.
    #[must_use]
    pub fn new(first: u64) -> Leaf {
        Leaf { first, numbers: Vec::new(), places: Vec::new(), pages: 0 }
    }

    /// The number that its pages begin with.
    #[must_use]
    pub fn first(&self) -> u64 {
        self.first
    }

    /// How many pages it has.
    #[must_use]
    pub fn pages(&self) -> usize {
        self.pages
    }

    /// Bytes of memory that it takes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        (self.numbers.capacity() + self.places.capacity()) * WORD
    }

    fn is_dense(&self) -> bool {
        self.numbers.is_empty()
    }

    /// Where page `lpid` stands, or would stand, in `places`.
    fn index(&self, lpid: u64) -> Result<usize, usize> {
        if self.is_dense() {
            let at = usize::try_from(lpid - self.first).unwrap_or(usize::MAX);
            return if at < self.places.len() { Ok(at) } else { Err(at) };
        }
        self.numbers.binary_search(&lpid)
    }

    /// Where page `lpid` is, if it is anywhere.
    #[must_use]
    pub fn get(&self, lpid: u64) -> Option<Place> {
        self.index(lpid).ok().and_then(|at| Place::from_bits(self.places[at]))
    }

    /// Page `lpid` is at `place` from now on, or nowhere. Returns where it was.
    ///
    /// # Errors
    /// There is no room for it. The leaf that takes what lies behind: it is to be tried again, in one of the two.
    pub fn set(&mut self, lpid: u64, place: Option<Place>) -> Result<Option<Place>, Leaf> {
        let bits = place.map_or(Place::NONE_BITS, Place::bits);
        let at = match (self.index(lpid), place) {
            (Ok(at), _) => {
                let old = Place::from_bits(std::mem::replace(&mut self.places[at], bits));
                self.pages = self.pages + usize::from(place.is_some()) - usize::from(old.is_some());
                if place.is_none() {
                    self.shrink(at);
                }
                return Ok(old);
            }
            (Err(_), None) => return Ok(None),
            (Err(at), Some(_)) => at,
        };
        if self.is_dense() {
            // Gaps are allowed where they take less than numbers would.
            if at < DENSE_MAX && at < 2 * (self.pages + 1) {
                self.places.resize(at, Place::NONE_BITS);
                self.places.push(bits);
                self.pages += 1;
                return Ok(None);
            }
            if self.pages == 0 {
                (self.numbers, self.places, self.pages) = (vec![lpid], vec![bits], 1);
                return Ok(None);
            }
            if self.pages >= SPARSE_MAX {
                return Err(Leaf::new(lpid));
            }
            self.name();
            return self.set(lpid, place);
        }
        if self.places.len() == SPARSE_MAX {
            return if self.fill_gaps() { self.set(lpid, place) } else { Err(self.split(at)) };
        }
        self.numbers.insert(at, lpid);
        self.places.insert(at, bits);
        self.pages += 1;
        Ok(None)
    }

    /// A place was taken away.
    fn shrink(&mut self, at: usize) {
        if self.is_dense() {
            while self.places.pop_if(|bits| *bits == Place::NONE_BITS).is_some() {}
        } else {
            self.numbers.remove(at);
            self.places.remove(at);
        }
    }

    /// Its pages have numbers of their own from now on.
    fn name(&mut self) {
        let first = self.first;
        let pages = (first..).zip(std::mem::take(&mut self.places)).filter(|(_, bits)| *bits != Place::NONE_BITS);
        (self.numbers, self.places) = pages.unzip();
    }

    /// Its pages have no numbers of their own any more, if they may.
    fn fill_gaps(&mut self) -> bool {
        let last = *self.numbers.last().expect("it is full");
        if last - self.first >= LEAF_PAGES_MAX {
            return false;
        }
        let mut places = vec![Place::NONE_BITS; (last - self.first) as usize + 1];
        for (lpid, bits) in self.numbers.drain(..).zip(&self.places) {
            places[(lpid - self.first) as usize] = *bits;
        }
        self.places = places;
        true
    }

    /// Gives away its second half, or nothing, where it is to be written to at its end: what is numbered in order fills leaves.
    fn split(&mut self, at: usize) -> Leaf {
        let keep = if at == self.places.len() { at } else { self.places.len() / 2 };
        let numbers = self.numbers.split_off(keep);
        let places = self.places.split_off(keep);
        self.pages = self.places.len();
        let first = numbers.first().copied().unwrap_or_else(|| self.numbers[keep - 1] + 1);
        Leaf { first, pages: places.len(), numbers, places }
    }

    /// Pages and their places, in the order of their numbers, from `lpid` on.
    pub fn pages_from(&self, lpid: u64) -> impl Iterator<Item = (u64, Place)> + '_ {
        let (at, is_dense) = (self.index(lpid.max(self.first)).unwrap_or_else(|at| at), self.is_dense());
        let from = at.min(self.places.len());
        let number = move |at: usize| if is_dense { self.first + at as u64 } else { self.numbers[at] };
        (from..self.places.len()).filter_map(move |at| Some((number(at), Place::from_bits(self.places[at])?)))
    }

    /// Drops pages from `end` on: another leaf has them.
    pub fn end_before(&mut self, end: u64) {
        let at = self.index(end.max(self.first)).unwrap_or_else(|at| at).min(self.places.len());
        self.places.truncate(at);
        self.numbers.truncate(at);
        self.pages = self.places.iter().filter(|bits| **bits != Place::NONE_BITS).count();
    }

    /// Writes it to a block.
    pub fn write(&self, block: &mut [u8; BLOCK_BYTES]) {
        block.fill(0);
        block[..4].copy_from_slice(&MAGIC);
        block[4..6].copy_from_slice(&VERSION.to_le_bytes());
        block[6] = if self.is_dense() { 1 } else { 2 };
        block[8..16].copy_from_slice(&self.first.to_le_bytes());
        block[16..20].copy_from_slice(&(self.places.len() as u32).to_le_bytes());
        let mut words = block[HEAD_BYTES..].chunks_exact_mut(WORD);
        let mut put = |word: u64| words.next().expect("a leaf fits into a block").copy_from_slice(&word.to_le_bytes());
        self.numbers.iter().for_each(|number| put(*number));
        self.places.iter().for_each(|bits| put(*bits));
    }

    /// From a block. `None`: there is none.
    #[must_use]
    pub fn read(block: &[u8; BLOCK_BYTES]) -> Option<Leaf> {
        let (kind, count) = (block[6], u32::from_le_bytes(*block[16..].first_chunk()?) as usize);
        let first = u64::from_le_bytes(*block[8..].first_chunk()?);
        let is_leaf = block[..4] == MAGIC && block[4..6] == VERSION.to_le_bytes();
        let most = match kind {
            1 => DENSE_MAX,
            2 => SPARSE_MAX,
            _ => return None,
        };
        let last = first.checked_add(count.saturating_sub(1) as u64);
        if !is_leaf || count > most || last.is_none() {
            return None;
        }
        let words = <[U64]>::ref_from_bytes(&block[HEAD_BYTES..HEAD_BYTES + DENSE_MAX * WORD]).ok()?;
        let mut words = words.iter().map(|word| word.get());
        let numbers: Vec<u64> = if kind == 2 { words.by_ref().take(count).collect() } else { Vec::new() };
        let is_sorted = numbers.is_sorted_by(|a, b| a < b) && numbers.first().is_none_or(|number| *number >= first);
        if !is_sorted {
            return None;
        }
        let mut leaf = Leaf { first, numbers, places: words.take(count).collect(), pages: 0 };
        if !leaf.is_dense() && leaf.places.contains(&Place::NONE_BITS) {
            return None;
        }
        leaf.pages = leaf.places.iter().filter(|bits| **bits != Place::NONE_BITS).count();
        Some(leaf)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use openftl_core::Geometry;
    use std::collections::BTreeMap;

    fn place(number: u64) -> Place {
        let format = Geometry::tiny().format();
        let chunk = format.chunk_id(format.pu_id(0, 0), 0);
        Place::new(format, chunk, (number % 1024) as u32, 1 + (number % 500) as u32)
    }

    /// A leaf and what splits off, against a map.
    fn check(numbers: impl Iterator<Item = (u64, bool)>) -> Vec<Leaf> {
        let (mut leaves, mut model) = (vec![Leaf::new(0)], BTreeMap::new());
        for (lpid, is_put) in numbers {
            let to = is_put.then(|| place(lpid));
            loop {
                let at = leaves.partition_point(|leaf| leaf.first() <= lpid) - 1;
                match leaves[at].set(lpid, to) {
                    Ok(old) => {
                        let known = if is_put { model.insert(lpid, place(lpid)) } else { model.remove(&lpid) };
                        assert_eq!(old, known, "{lpid}");
                        break;
                    }
                    Err(behind) => leaves.insert(at + 1, behind),
                }
            }
        }
        let mut found = BTreeMap::new();
        for leaf in &leaves {
            let mut block = [0; BLOCK_BYTES];
            leaf.write(&mut block);
            let again = Leaf::read(&block).unwrap();
            assert!(again.pages_from(0).eq(leaf.pages_from(0)) && again.pages() == leaf.pages());
            assert_eq!(leaf.pages_from(0).count(), leaf.pages());
            found.extend(leaf.pages_from(0));
        }
        assert_eq!(found, model);
        leaves
    }

    #[test]
    fn numbers_in_order_take_eight_bytes_each() {
        let leaves = check((0..5000).map(|number| (number, true)));
        assert_eq!(leaves.len(), 5000_usize.div_ceil(DENSE_MAX));
    }

    #[test]
    fn any_numbers_are_kept_and_taken_away() {
        let mut x = 1_u64;
        let mut next = || {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            x >> 20
        };
        for span in [100, 1000, 5000, 1 << 40] {
            let numbers: Vec<(u64, bool)> = (0..6000).map(|_| (next() % span, next() % 3 > 0)).collect();
            check(numbers.into_iter());
        }
        let ends = [u64::MAX, 0, u64::MAX - 1, 1 << 63];
        check(ends.into_iter().map(|number| (number, true)));
    }

    #[test]
    fn what_is_no_leaf_is_refused() {
        let mut leaf = Leaf::new(7);
        leaf.set(9, Some(place(9))).unwrap();
        leaf.set(1 << 50, Some(place(2))).unwrap();
        let mut block = [0; BLOCK_BYTES];
        leaf.write(&mut block);
        assert_eq!(Leaf::read(&block), Some(leaf));
        for (at, byte) in [(0, 0), (4, 9), (6, 0), (6, 3), (17, 9), (8, 255), (39, 255)] {
            let mut other = block;
            other[at] = byte;
            assert_eq!(Leaf::read(&other), None, "byte {at}");
        }
        assert_eq!(Leaf::read(&[0; BLOCK_BYTES]), None);
    }
}
