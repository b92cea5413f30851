//! Changes of a map that is kept on media: what was committed and is not in a map page yet.
//!
//! ```text
//!   put ──▶ changes of page 7   [ 12 ▶ A │ 13 ▶ B* │ 900 ▶ nowhere ]     sorted, 6 bytes each
//!           changes of page 9   [ 5 ▶ C ]
//!                │ most changes first
//!                ▼
//!   merge: old map page + changes ──▶ new map page ──▶ the changes leave
//! ```
//!
//! A change costs no read: what the map page says of the block stays as it is until the merge. So the old place of a block counts
//! as valid until then, unless somebody has met it already: then the change is *settled* (`*`), and the merge leaves the old
//! place alone. It may belong to another block by that time.
//!
//! Pages hang in lists by the number of their changes, so the fullest is found without a search.

use super::directory::PageSize;
use super::entry::{ADDRESS_BITS_MAX, NARROW_BITS};
use super::{ENTRIES_PER_BLOCK, Entry};
use std::ops::Range;

const NONE: u32 = u32::MAX;

/// A change in 48 bits:
///
/// | bits | what |
/// |---|---|
/// | 0-31 | the entry in 32 bits, without the uppermost bits of an address |
/// | 32-41 | the index in its page |
/// | 42-46 | those bits |
/// | 47 | whether it is settled |
#[derive(Clone, Copy)]
struct Packed {
    entry: [u8; 4],
    rest: [u8; 2],
}

const INDEX_BITS: u32 = 10;
const INDEX: u16 = (1 << INDEX_BITS) - 1;
const SETTLED: u16 = 1 << 15;

/// The bits of an address that a word of 32 bits has no room for.
const UPPER: u64 = (1 << (ADDRESS_BITS_MAX - NARROW_BITS)) - 1;

const _: () = assert!(ENTRIES_PER_BLOCK == 1 << INDEX_BITS && UPPER << INDEX_BITS < SETTLED as u64);

impl Packed {
    #[inline]
    fn new(index: usize, entry: Entry, is_settled: bool) -> Packed {
        let settled = if is_settled { SETTLED } else { 0 };
        let (low, upper) = entry.split();
        Packed { entry: low.to_le_bytes(), rest: (index as u16 | upper << INDEX_BITS | settled).to_le_bytes() }
    }

    #[inline]
    fn rest(self) -> u16 {
        u16::from_le_bytes(self.rest)
    }

    #[inline]
    fn index(self) -> usize {
        usize::from(self.rest() & INDEX)
    }

    #[inline]
    fn entry(self) -> Entry {
        Entry::join(u32::from_le_bytes(self.entry), (self.rest() & !SETTLED) >> INDEX_BITS)
    }

    #[inline]
    fn is_settled(self) -> bool {
        self.rest() & SETTLED != 0
    }

    #[inline]
    fn settle(&mut self) {
        self.rest = (self.rest() | SETTLED).to_le_bytes();
    }
}

/// A list of `len` changes that is full grows by so many. What is allocated ahead is an eighth, and one, at most.
fn growth(len: usize) -> usize {
    len / 8 + 1
}

/// One change of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Change {
    /// The block, counted in its page.
    pub index: usize,
    /// What the map says of it.
    pub entry: Entry,
    /// Whether the place that the map page has for the block counts no more.
    pub is_settled: bool,
}

/// What became of a change that was put.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Before {
    /// There was a change of the block. It said this.
    Change(Entry),
    /// The map page has the last word, and nobody has asked it.
    Page,
}

/// The changes, and which pages have most of them.
pub struct Changes {
    size: PageSize,
    pages: Vec<Vec<Packed>>,
    /// Neighbours in the list of pages with as many changes.
    links: Vec<[u32; 2]>,
    /// The first page of each list, by number of changes.
    lists: Vec<u32>,
    /// No list above this one has a page.
    most: usize,
    len: usize,
    /// Bytes of the changes, with what their lists have allocated ahead.
    bytes: usize,
}

impl Changes {
    /// None, for a map of so many pages.
    #[must_use]
    pub fn new(size: PageSize, pages: u32) -> Changes {
        let pages = pages as usize;
        Changes {
            size,
            pages: vec![Vec::new(); pages],
            links: vec![[NONE; 2]; pages],
            lists: vec![NONE; size.entries() as usize + 1],
            most: 0,
            len: 0,
            bytes: 0,
        }
    }

    /// Changes of all pages.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes of memory that every page takes, with changes or without.
    pub const BYTES_PER_PAGE: usize = size_of::<Vec<Packed>>() + size_of::<[u32; 2]>() + size_of::<Packed>();

    /// Eighths of a byte that each change takes beside that, at most.
    pub const EIGHTHS_PER_CHANGE: u64 = 9 * size_of::<Packed>() as u64;

    /// Bytes that the changes take, beside [`Changes::BYTES_PER_PAGE`].
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Changes of `page`.
    #[inline]
    #[must_use]
    pub fn of_page(&self, page: u32) -> usize {
        self.pages[page as usize].len()
    }

    /// What the changes say of `block`; `None`: nothing.
    #[inline]
    #[must_use]
    pub fn get(&self, block: u64) -> Option<Change> {
        let (page, index) = self.size.split(block);
        let changes = &self.pages[page as usize];
        let at = changes.binary_search_by_key(&index, |change| change.index()).ok()?;
        Some(changes[at].into())
    }

    /// The map says `entry` of `block` from now on. If there was no change of it before, its old place counts on, but for a
    /// `settled` one. Returns what the changes said before.
    pub fn put(&mut self, block: u64, entry: Entry, settled: bool) -> Before {
        let (page, index) = self.size.split(block);
        let changes = &mut self.pages[page as usize];
        // Blocks are mostly written in order.
        let at = match changes.last() {
            Some(last) if last.index() < index => Err(changes.len()),
            _ => changes.binary_search_by_key(&index, |change| change.index()),
        };
        match at {
            Ok(at) => {
                let before = changes[at];
                changes[at] = Packed::new(index, entry, before.is_settled() || settled);
                Before::Change(before.entry())
            }
            Err(at) => {
                let capacity = changes.capacity();
                if changes.len() == capacity {
                    changes.reserve_exact(growth(capacity));
                }
                changes.insert(at, Packed::new(index, entry, settled));
                self.bytes += (changes.capacity() - capacity) * size_of::<Packed>();
                self.len += 1;
                let count = changes.len();
                self.relink(page, count - 1, count);
                Before::Page
            }
        }
    }

    /// The old place of `block`, of which there is a change, counts no more.
    ///
    /// # Panics
    /// If there is no change of it.
    pub fn settle(&mut self, block: u64) {
        let (page, index) = self.size.split(block);
        let changes = &mut self.pages[page as usize];
        let at = changes.binary_search_by_key(&index, |change| change.index()).expect("there is a change of it");
        changes[at].settle();
    }

    /// No old place counts of any block with a change.
    pub fn settle_all(&mut self) {
        self.pages.iter_mut().flatten().for_each(Packed::settle);
    }

    /// The block of which a change says `entry`, if there is one. All changes are looked at.
    #[must_use]
    pub fn at(&self, entry: Entry) -> Option<u64> {
        self.all().find(|(_, other)| *other == entry).map(|(block, _)| block)
    }

    /// All changes, in the order of blocks: the block, and what the map says of it.
    pub fn all(&self) -> impl Iterator<Item = (u64, Entry)> + '_ {
        (0..).zip(&self.pages).flat_map(|(page, changes)| {
            let first = self.size.first_of(page);
            changes.iter().map(move |change| (first + change.index() as u64, change.entry()))
        })
    }

    /// The changes of `page`, in the order of its blocks.
    pub fn of(&self, page: u32) -> impl Iterator<Item = Change> + '_ {
        self.pages[page as usize].iter().map(|change| Change::from(*change))
    }

    /// `page` was merged: of the changes that it has taken in (`merged`, in order) those leave that still say the same. What
    /// has changed since is settled, because the place that the new page has for it counts no more.
    pub fn merged(&mut self, page: u32, merged: &[(usize, Entry)]) {
        let changes = &mut self.pages[page as usize];
        let before = changes.len();
        let mut taken = merged.iter().peekable();
        changes.retain_mut(|change| {
            while taken.next_if(|(index, _)| *index < change.index()).is_some() {}
            match taken.peek() {
                Some((index, entry)) if *index == change.index() => {
                    change.settle();
                    change.entry() != *entry
                }
                _ => true,
            }
        });
        let count = changes.len();
        self.len -= before - count;
        self.give_back(page);
        self.relink(page, before, count);
    }

    /// All changes of `page` leave.
    pub fn clear(&mut self, page: u32) {
        let before = self.pages[page as usize].len();
        self.pages[page as usize].clear();
        self.len -= before;
        self.give_back(page);
        self.relink(page, before, 0);
    }

    fn give_back(&mut self, page: u32) {
        let changes = &mut self.pages[page as usize];
        let capacity = changes.capacity();
        changes.shrink_to_fit();
        self.bytes -= (capacity - changes.capacity()) * size_of::<Packed>();
    }

    /// The page with the most changes, of those that are not `busy`.
    #[must_use]
    pub fn fullest(&self, is_busy: impl Fn(u32) -> bool) -> Option<u32> {
        for count in (1..=self.most).rev() {
            let mut page = self.lists[count];
            while page != NONE {
                if !is_busy(page) {
                    return Some(page);
                }
                page = self.links[page as usize][1];
            }
        }
        None
    }

    /// The first changes of `blocks`, in their order, as far as there is room for them in `changes`. Returns how many.
    pub fn first_of(&self, blocks: Range<u64>, changes: &mut [(u64, Entry)]) -> usize {
        let (first_page, first_index) = self.size.split(blocks.start);
        let mut filled = 0;
        let pages = first_page..self.size.pages(blocks.end);
        for page in pages {
            let list = &self.pages[page as usize];
            let from = if page == first_page { first_index } else { 0 };
            let from = list.partition_point(|change| change.index() < from);
            for change in &list[from..] {
                let block = self.size.first_of(page) + change.index() as u64;
                if filled == changes.len() || block >= blocks.end {
                    return filled;
                }
                changes[filled] = (block, change.entry());
                filled += 1;
            }
        }
        filled
    }

    fn relink(&mut self, page: u32, from: usize, to: usize) {
        if from == to {
            return;
        }
        let [before, after] = self.links[page as usize];
        if from > 0 {
            match before {
                NONE => self.lists[from] = after,
                before => self.links[before as usize][1] = after,
            }
            if after != NONE {
                self.links[after as usize][0] = before;
            }
        }
        if to > 0 {
            let next = std::mem::replace(&mut self.lists[to], page);
            self.links[page as usize] = [NONE, next];
            if next != NONE {
                self.links[next as usize][0] = page;
            }
        }
        self.most = self.most.max(to);
        while self.most > 0 && self.lists[self.most] == NONE {
            self.most -= 1;
        }
    }
}

impl From<Packed> for Change {
    fn from(change: Packed) -> Change {
        Change { index: change.index(), entry: change.entry(), is_settled: change.is_settled() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use openftl_core::Ppa;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const PAGES: u32 = 5;
    const SIZE: PageSize = PageSize::WHOLE;
    const BLOCKS: u64 = PAGES as u64 * 1024;

    fn at(place: u64) -> Entry {
        Entry::media(Ppa(place * 0x1_0000_0003))
    }

    #[derive(Clone, Debug)]
    enum Step {
        Put {
            block: u64,
            place: u64,
            settled: bool,
        },
        Settle {
            pick: usize,
        },
        /// Merges what the page has now, after these blocks were changed once more.
        Merge {
            page: u32,
            meanwhile: Vec<(u64, u64)>,
        },
        Clear {
            page: u32,
        },
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            8 => (0..BLOCKS, 0..9_u64, any::<bool>()).prop_map(|(block, place, settled)| Step::Put { block, place, settled }),
            2 => any::<usize>().prop_map(|pick| Step::Settle { pick }),
            1 => (0..PAGES, proptest::collection::vec((0..BLOCKS, 0..9_u64), 0..9))
                .prop_map(|(page, meanwhile)| Step::Merge { page, meanwhile }),
            1 => (0..PAGES).prop_map(|page| Step::Clear { page }),
        ]
    }

    type Model = BTreeMap<u64, (Entry, bool)>;

    fn put(changes: &mut Changes, model: &mut Model, block: u64, place: u64, settled: bool) {
        let before = changes.put(block, at(place), settled);
        match model.get(&block) {
            Some((entry, _)) => assert_eq!(before, Before::Change(*entry)),
            None => assert_eq!(before, Before::Page),
        }
        let was_settled = model.get(&block).is_some_and(|(_, settled)| *settled);
        model.insert(block, (at(place), was_settled || settled));
    }

    proptest! {
        #[test]
        fn changes_are_as_a_sorted_map_has_them(steps in proptest::collection::vec(step(), 0..300)) {
            let (mut changes, mut model) = (Changes::new(SIZE, PAGES), Model::new());
            for step in steps {
                match step {
                    Step::Put { block, place, settled } => put(&mut changes, &mut model, block, place, settled),
                    Step::Settle { pick } => {
                        if let Some(block) = model.keys().nth(pick % model.len().max(1)).copied() {
                            changes.settle(block);
                            model.get_mut(&block).unwrap().1 = true;
                        }
                    }
                    Step::Merge { page, meanwhile } => {
                        let taken: Vec<(usize, Entry)> =
                            changes.of(page).map(|change| (change.index, change.entry)).collect();
                        for (block, place) in meanwhile {
                            put(&mut changes, &mut model, block, place, false);
                        }
                        changes.merged(page, &taken);
                        for (index, entry) in taken {
                            let block = SIZE.first_of(page) + index as u64;
                            match model.get_mut(&block) {
                                Some((now, _)) if *now == entry => _ = model.remove(&block),
                                Some((_, settled)) => *settled = true,
                                None => panic!("nothing else takes changes away"),
                            }
                        }
                    }
                    Step::Clear { page } => {
                        changes.clear(page);
                        model.retain(|block, _| SIZE.split(*block).0 != page);
                    }
                }
                prop_assert_eq!(changes.len(), model.len());
                let bytes: usize = changes.pages.iter().map(|page| page.capacity() * size_of::<Packed>()).sum();
                prop_assert_eq!(changes.bytes(), bytes);
                let in_page = |page: u32| model.keys().filter(|block| SIZE.split(**block).0 == page).count();
                let most = (0..PAGES).map(in_page).max().unwrap();
                match changes.fullest(|_| false) {
                    Some(page) => prop_assert_eq!(in_page(page), most),
                    None => prop_assert_eq!(most, 0),
                }
            }
            for block in 0..BLOCKS {
                let found = changes.get(block).map(|change| (change.entry, change.is_settled));
                prop_assert_eq!(found, model.get(&block).copied());
            }
            let (mut all, mut next) = (Vec::<(u64, Entry)>::new(), 0);
            let mut part = [(0, Entry::UNMAPPED); 3];
            loop {
                let count = changes.first_of(next..BLOCKS, &mut part);
                all.extend(&part[..count]);
                if count < part.len() {
                    break;
                }
                next = part[count - 1].0 + 1;
            }
            let expected: Vec<_> = model.iter().map(|(block, (entry, _))| (*block, *entry)).collect();
            prop_assert_eq!(all, expected);
        }
    }

    #[test]
    fn a_busy_page_is_passed_over_for_the_next_fullest() {
        let mut changes = Changes::new(SIZE, 3);
        for block in [0, 1, 2, 1024, 1025, 2048] {
            changes.put(block, at(0), false);
        }
        assert_eq!(changes.fullest(|_| false), Some(0));
        assert_eq!(changes.fullest(|page| page == 0), Some(1));
        assert_eq!(changes.fullest(|page| page != 2), Some(2));
        assert_eq!(changes.fullest(|_| true), None);
    }

    #[test]
    fn a_change_costs_six_bytes_and_an_eighth_at_most() {
        let mut changes = Changes::new(SIZE, 1);
        for block in 0..1024 {
            changes.put(block, at(0), false);
            let most = changes.len() as u64 * Changes::EIGHTHS_PER_CHANGE / 8 + size_of::<Packed>() as u64;
            assert!(changes.bytes() as u64 <= most, "{} changes take {} bytes", changes.len(), changes.bytes());
        }
        changes.clear(0);
        assert_eq!((changes.bytes(), changes.len()), (0, 0));
    }
}
