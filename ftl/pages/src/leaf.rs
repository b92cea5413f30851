//! A piece of the map: pages whose numbers follow each other, and where they are. It fits into a block.
//!
//! Pages that are numbered without gaps take eight bytes each. Others have *offsets* from the first number, as short as the last one allows: 2, 3,
//! 4 or 8 bytes beside the eight.
//!
//! | bytes | field |
//! |---|---|
//! | 0-3 | `OXPM` |
//! | 4-5 | version 1 |
//! | 6 | 1: places of all pages from the first on, all ones where there is none; 2: numbers (8 bytes each), then places; 3, 4 or 5: offsets of 2, 3 or 4 bytes, then places |
//! | 7 | 0 |
//! | 8-15 | number of the first page; nothing before it is in this leaf |
//! | 16-19 | how many |
//! | 20-31 | 0 |
//! | 32 | places, or numbers or offsets and then places, 8 bytes each |

use crate::place::Place;
use openftl_core::BLOCK_BYTES;
use zerocopy::FromBytes;
use zerocopy::little_endian::U64;

const MAGIC: [u8; 4] = *b"OXPM";
const VERSION: u16 = 1;
const HEAD_BYTES: usize = 32;
const WORD: usize = size_of::<u64>();

/// Pages of a leaf without gaps, at most.
const DENSE_MAX: usize = (BLOCK_BYTES - HEAD_BYTES) / WORD;

/// Pages that memory is taken for at a time.
const GROWTH: usize = 8;

/// Pages of a leaf without gaps, at most.
pub const LEAF_PAGES_MAX: u64 = DENSE_MAX as u64;

/// How the pages of a leaf are named.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Form {
    /// They follow each other from the first on, with few gaps.
    Dense,
    /// Each has an offset from the first of so many bytes.
    Offsets(u8),
}

/// The forms, from the one that takes most pages to the one that takes any.
const FORMS: [Form; 5] = [Form::Dense, Form::Offsets(2), Form::Offsets(3), Form::Offsets(4), Form::Offsets(8)];

impl Form {
    /// Bytes of an offset.
    fn width(self) -> usize {
        if let Form::Offsets(width) = self { width.into() } else { 0 }
    }

    /// Pages of a leaf, at most.
    fn most(self) -> usize {
        (BLOCK_BYTES - HEAD_BYTES) / (WORD + self.width())
    }

    /// Whether a page with this offset can be among them.
    fn has(self, offset: u64) -> bool {
        match self {
            Form::Dense => offset < LEAF_PAGES_MAX,
            Form::Offsets(8) => true,
            Form::Offsets(width) => offset >> (8 * width) == 0,
        }
    }

    /// The one with the shortest offsets for a last one like this.
    fn for_offset(offset: u64) -> Form {
        FORMS.into_iter().skip(1).find(|form| form.has(offset)).expect("the last form has any offset")
    }

    fn kind(self) -> u8 {
        match self {
            Form::Dense => 1,
            Form::Offsets(8) => 2,
            Form::Offsets(width) => width + 1,
        }
    }
}

/// See the module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Leaf {
    /// No page of it has a smaller number.
    first: u64,
    form: Form,
    /// Offsets of its pages from the first number, the lowest byte first; empty where they follow each other.
    offsets: Vec<u8>,
    places: Vec<u64>,
    /// Places that are one.
    pages: usize,
    /// Places, at most, if not even so many have room.
    most: usize,
}

impl Leaf {
    /// Bytes of memory that it may take ahead of its pages.
    pub const BYTES_AHEAD: usize = 2 * GROWTH * WORD;

    /// The fewest pages that one half of a leaf that is split has, if a leaf has so many at most.
    #[must_use]
    pub fn half_pages_min(most: usize) -> usize {
        Form::Offsets(8).most().min(most) / 2
    }

    /// One without pages, whose pages have numbers from `first` on. There are so many at most, or fewer.
    #[must_use]
    pub fn new(first: u64, most: usize) -> Leaf {
        Leaf { first, form: Form::Dense, offsets: Vec::new(), places: Vec::new(), pages: 0, most }
    }

    /// Places that it has room for in a form.
    fn room(&self, form: Form) -> usize {
        form.most().min(self.most)
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
        self.offsets.capacity() + self.places.capacity() * WORD
    }

    fn is_dense(&self) -> bool {
        self.form == Form::Dense
    }

    /// The offset of the page that stands at `at`.
    fn offset(&self, at: usize) -> u64 {
        let width = self.form.width();
        if width == 0 {
            return at as u64;
        }
        let mut bytes = [0; WORD];
        bytes[..width].copy_from_slice(&self.offsets[at * width..][..width]);
        u64::from_le_bytes(bytes)
    }

    /// Where page `lpid` stands, or would stand, in `places`.
    fn index(&self, lpid: u64) -> Result<usize, usize> {
        let offset = lpid - self.first;
        if self.is_dense() {
            let at = usize::try_from(offset).unwrap_or(usize::MAX);
            return if at < self.places.len() { Ok(at) } else { Err(at) };
        }
        let (mut from, mut to) = (0, self.places.len());
        while from < to {
            let middle = usize::midpoint(from, to);
            match self.offset(middle).cmp(&offset) {
                std::cmp::Ordering::Less => from = middle + 1,
                std::cmp::Ordering::Equal => return Ok(middle),
                std::cmp::Ordering::Greater => to = middle,
            }
        }
        Err(from)
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
        let offset = lpid - self.first;
        if self.is_dense() {
            // Gaps are allowed where they take less than numbers would.
            if at < self.room(Form::Dense) && at < 2 * (self.pages + 1) {
                let lacking = at + 1 - self.places.len();
                grow(&mut self.places, lacking);
                self.places.resize(at, Place::NONE_BITS);
                self.places.push(bits);
                self.pages += 1;
                return Ok(None);
            }
            let form = Form::for_offset(offset);
            if self.pages >= self.room(form) {
                return Err(Leaf::new(lpid, self.most));
            }
            self.take_form(form);
            return self.set(lpid, place);
        }
        let last = self.last_offset().map_or(offset, |last| last.max(offset));
        if self.places.len() >= self.room(self.form) || !self.form.has(offset) {
            // Of the forms that have room, the one for the fewest bytes.
            let roomy = FORMS.into_iter().find(|form| form.has(last) && self.places.len() < self.room(*form));
            return match roomy {
                Some(form) if form != self.form => {
                    self.take_form(form);
                    self.set(lpid, place)
                }
                _ => Err(self.split(at, lpid)),
            };
        }
        let width = self.form.width();
        grow(&mut self.offsets, width);
        grow(&mut self.places, 1);
        self.offsets.splice(at * width..at * width, offset.to_le_bytes().into_iter().take(width));
        self.places.insert(at, bits);
        self.pages += 1;
        Ok(None)
    }

    /// The offset of its last page.
    fn last_offset(&self) -> Option<u64> {
        self.places.len().checked_sub(1).map(|last| self.offset(last))
    }

    /// A place was taken away.
    fn shrink(&mut self, at: usize) {
        if self.is_dense() {
            while self.places.pop_if(|bits| *bits == Place::NONE_BITS).is_some() {}
        } else {
            let width = self.form.width();
            self.offsets.drain(at * width..(at + 1) * width);
            self.places.remove(at);
        }
        if self.bytes() > 2 * self.places.len() * (WORD + self.form.width()) + 2 * GROWTH * WORD {
            self.offsets.shrink_to_fit();
            self.places.shrink_to_fit();
        }
    }

    /// Its pages are named in another form from now on, which has all of them.
    fn take_form(&mut self, form: Form) {
        let pages = (0..self.places.len()).filter(|at| self.places[*at] != Place::NONE_BITS);
        let pages: Vec<(u64, u64)> = pages.map(|at| (self.offset(at), self.places[at])).collect();
        *self = Leaf::of(self.first, form, &pages, self.most);
    }

    /// One with these pages, given by offset and place in their order.
    fn of(first: u64, form: Form, pages: &[(u64, u64)], most: usize) -> Leaf {
        let (mut offsets, mut places) = (Vec::with_capacity(pages.len() * form.width()), Vec::new());
        if form == Form::Dense {
            let end = pages.last().map_or(0, |(last, _)| *last as usize + 1);
            places = vec![Place::NONE_BITS; end];
            pages.iter().for_each(|(offset, bits)| places[*offset as usize] = *bits);
        } else {
            places.reserve_exact(pages.len());
            for (offset, bits) in pages {
                offsets.extend_from_slice(&offset.to_le_bytes()[..form.width()]);
                places.push(*bits);
            }
        }
        Leaf { first, form, offsets, places, pages: pages.len(), most }
    }

    /// Gives away its second half, or nothing, where it is to be written to at its end: what is numbered in order fills leaves.
    fn split(&mut self, at: usize, lpid: u64) -> Leaf {
        if at == self.places.len() {
            return Leaf::new(lpid, self.most);
        }
        let keep = self.places.len() / 2;
        let pages = |range: std::ops::Range<usize>, from: u64| -> Vec<(u64, u64)> {
            range.map(|at| (self.offset(at) - from, self.places[at])).collect()
        };
        let first = self.offset(keep);
        let (kept, given) = (pages(0..keep, 0), pages(keep..self.places.len(), first));
        let form = |pages: &[(u64, u64)]| Form::for_offset(pages.last().expect("each half has pages").0);
        let behind = Leaf::of(self.first + first, form(&given), &given, self.most);
        *self = Leaf::of(self.first, form(&kept), &kept, self.most);
        behind
    }

    /// Pages and their places, in the order of their numbers, from `lpid` on.
    pub fn pages_from(&self, lpid: u64) -> impl Iterator<Item = (u64, Place)> + '_ {
        let from = self.index(lpid.max(self.first)).unwrap_or_else(|at| at).min(self.places.len());
        (from..self.places.len())
            .filter_map(move |at| Some((self.first + self.offset(at), Place::from_bits(self.places[at])?)))
    }

    /// Drops pages from `end` on: another leaf has them.
    pub fn end_before(&mut self, end: u64) {
        let at = self.index(end.max(self.first)).unwrap_or_else(|at| at).min(self.places.len());
        self.places.truncate(at);
        self.offsets.truncate(at * self.form.width());
        self.pages = self.places.iter().filter(|bits| **bits != Place::NONE_BITS).count();
    }

    /// Writes it to a block.
    pub fn write(&self, block: &mut [u8; BLOCK_BYTES]) {
        block.fill(0);
        block[..4].copy_from_slice(&MAGIC);
        block[4..6].copy_from_slice(&VERSION.to_le_bytes());
        block[6] = self.form.kind();
        block[8..16].copy_from_slice(&self.first.to_le_bytes());
        block[16..20].copy_from_slice(&(self.places.len() as u32).to_le_bytes());
        let (offsets, places) = block[HEAD_BYTES..].split_at_mut(self.places.len() * self.form.width());
        if self.form == Form::Offsets(8) {
            // The numbers themselves, as there were before the other forms.
            let numbers = (0..self.places.len()).map(|at| self.first + self.offset(at));
            offsets
                .chunks_exact_mut(WORD)
                .zip(numbers)
                .for_each(|(to, number)| to.copy_from_slice(&number.to_le_bytes()));
        } else {
            offsets.copy_from_slice(&self.offsets);
        }
        for (to, bits) in places.chunks_exact_mut(WORD).zip(&self.places) {
            to.copy_from_slice(&bits.to_le_bytes());
        }
    }

    /// From a block, to have so many pages at most from now on. `None`: there is none.
    #[must_use]
    pub fn read(block: &[u8; BLOCK_BYTES], most: usize) -> Option<Leaf> {
        let (kind, count) = (block[6], u32::from_le_bytes(*block[16..].first_chunk()?) as usize);
        let first = u64::from_le_bytes(*block[8..].first_chunk()?);
        let is_leaf = block[..4] == MAGIC && block[4..6] == VERSION.to_le_bytes();
        let form = FORMS.into_iter().find(|form| form.kind() == kind)?;
        if !is_leaf || count > form.most() {
            return None;
        }
        let (offsets, places) = block[HEAD_BYTES..].split_at(count * form.width());
        let words = |bytes: &[u8]| -> Option<Vec<u64>> {
            Some(<[U64]>::ref_from_bytes(&bytes[..count * WORD]).ok()?.iter().map(|word| word.get()).collect())
        };
        let mut offsets = offsets.to_vec();
        if form == Form::Offsets(8) {
            for number in offsets.chunks_exact_mut(WORD) {
                let offset = u64::from_le_bytes(*number.first_chunk()?).checked_sub(first)?;
                number.copy_from_slice(&offset.to_le_bytes());
            }
        }
        let mut leaf = Leaf { first, form, offsets, places: words(places)?, pages: 0, most };
        let is_sorted = (1..count).all(|at| leaf.offset(at - 1) < leaf.offset(at));
        let has_end = leaf.last_offset().is_none_or(|last| first.checked_add(last).is_some());
        if !is_sorted || !has_end || (!leaf.is_dense() && leaf.places.contains(&Place::NONE_BITS)) {
            return None;
        }
        leaf.pages = leaf.places.iter().filter(|bits| **bits != Place::NONE_BITS).count();
        Some(leaf)
    }
}

/// Takes memory for so many more, and for few beyond them.
fn grow<T>(all: &mut Vec<T>, count: usize) {
    if all.capacity() - all.len() < count {
        all.reserve_exact(count.next_multiple_of(GROWTH * count.min(WORD)));
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
        let (mut leaves, mut model) = (vec![Leaf::new(0, usize::MAX)], BTreeMap::new());
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
            let again = Leaf::read(&block, usize::MAX).unwrap();
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
        let mut leaf = Leaf::new(7, usize::MAX);
        leaf.set(9, Some(place(9))).unwrap();
        leaf.set(1 << 50, Some(place(2))).unwrap();
        let mut block = [0; BLOCK_BYTES];
        leaf.write(&mut block);
        assert_eq!((block[6], Leaf::read(&block, usize::MAX)), (2, Some(leaf)));
        for (at, byte) in [(0, 0), (4, 9), (6, 0), (6, 6), (17, 9), (8, 255), (39, 255)] {
            let mut other = block;
            other[at] = byte;
            assert_eq!(Leaf::read(&other, usize::MAX), None, "byte {at}");
        }
        assert_eq!(Leaf::read(&[0; BLOCK_BYTES], usize::MAX), None);
    }

    #[test]
    fn numbers_near_each_other_have_short_offsets() {
        let mut x = 3_u64;
        let mut next = |span: u64| {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (x >> 20) % span
        };
        for (gap, bytes_most) in [(100, 10.2), (400, 11.2), (40_000, 11.2), (1 << 20, 12.2), (1 << 40, 16.4)] {
            let numbers: Vec<(u64, bool)> = (0..40_000).map(|_| (next(40_000 * gap), true)).collect();
            let leaves = check(numbers.into_iter());
            let (pages, bytes) =
                leaves.iter().fold((0, 0), |(pages, bytes), leaf| (pages + leaf.pages(), bytes + leaf.bytes()));
            assert!((bytes as f64) < bytes_most * pages as f64, "{gap}: {bytes} bytes of {pages} pages");
        }
    }

    #[test]
    fn a_leaf_that_is_full_takes_what_it_had_before_it_grew_wide() {
        // As a checkpoint puts a leaf back to what it was.
        for (step, most) in [(1, DENSE_MAX), (150, Form::Offsets(2).most()), (40_000, Form::Offsets(3).most())] {
            let before: Vec<u64> = (0..most as u64).map(|number| number * step).collect();
            let mut leaf = Leaf::new(0, usize::MAX);
            before.iter().for_each(|lpid| assert_eq!(leaf.set(*lpid, Some(place(*lpid))), Ok(None)));
            before.iter().skip(100).for_each(|lpid| _ = leaf.set(*lpid, None).unwrap());
            assert_eq!(leaf.set(1 << 50, Some(place(1))), Ok(None));
            leaf.set(1 << 50, None).unwrap();
            before.iter().rev().for_each(|lpid| _ = leaf.set(*lpid, Some(place(*lpid))).expect("it had room"));
            assert!(leaf.pages_from(0).map(|(lpid, _)| lpid).eq(before));
        }
    }
}
