//! Map pages in memory: those that were read last, or often, as a policy has it. They are clean, so they leave at no cost.
//!
//! | policy | the page that leaves |
//! |---|---|
//! | `clock` | the first in a ring that was not used since the hand last came by |
//! | `lru` | the one that was not used for the longest time |
//! | `2q` | of those used once the oldest, while they have more than a quarter; else the least recently used of the others |
//! | `seed-hotness` | of eight drawn the one with the least hotness: uses, halved now and then, and a weight when loaded |
//!
//! Pages of [pinned](super::pins) ranges are in a list of their own, and leave when no other page is left; with `seed-hotness`
//! they weigh more, as in the paper.
//!
//! A page that was written in order is kept as stripes (`stripes.rs`), and not as its entries.

use super::Entry;
use super::directory::PageSize;
use super::pins::PinnedPages;
use super::stripes::Contents;
use openftl_core::{BLOCK_BYTES, UnknownWord};
use std::collections::VecDeque;
use strum::{Display, EnumString, IntoStaticStr, VariantArray, VariantNames};

/// How the page is chosen that leaves.
#[derive(
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    Default,
    Debug,
    serde::Serialize,
    serde::Deserialize,
    Display,
    EnumString,
    IntoStaticStr,
    VariantArray,
    VariantNames,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case", parse_err_ty = UnknownWord, parse_err_fn = unknown)]
pub enum CachePolicy {
    /// A ring and a mark.
    #[default]
    Clock,
    /// The least recently used.
    Lru,
    /// Two queues: one for pages that were used once.
    #[serde(rename = "2q")]
    #[strum(serialize = "2q")]
    TwoQueues,
    /// The hotness of the paper on selective loading.
    SeedHotness,
}

impl CachePolicy {
    /// All of them.
    pub const ALL: &[CachePolicy] = <CachePolicy as VariantArray>::VARIANTS;

    /// Its place among all.
    #[must_use]
    pub fn code(self) -> u8 {
        self as u8
    }

    /// The one with this place.
    #[must_use]
    pub fn from_code(code: u8) -> Option<CachePolicy> {
        CachePolicy::ALL.get(usize::from(code)).copied()
    }

    /// The word for it.
    #[must_use]
    pub fn word(self) -> &'static str {
        self.into()
    }
}

fn unknown(text: &str) -> UnknownWord {
    UnknownWord::new(text, "policy of the map cache", <CachePolicy as VariantNames>::VARIANTS)
}

const NONE: u32 = u32::MAX;

struct Slot {
    page: u32,
    contents: Contents,
    before: u32,
    after: u32,
    /// In which list it is.
    list: u8,
    /// Whether it was used since the hand came by, or how hot it is.
    heat: u32,
}

/// A list of slots, the newest first.
#[derive(Clone, Copy)]
struct List {
    first: u32,
    last: u32,
    len: u32,
}

/// Hotness of a page that was just loaded: so that it is not the next to leave.
const HEAT_OF_LOADED: u32 = 8;

/// Hotness that a page of a pinned range has beyond its uses.
const HEAT_OF_PINNED: u32 = 64;

/// Pages drawn, of which the coldest leaves.
const DRAWN: u32 = 8;

/// The list of pinned pages.
const PINNED: u8 = 2;

/// The cache.
pub struct PageCache {
    policy: CachePolicy,
    size: PageSize,
    /// The slot of each page.
    slot_of: Vec<u32>,
    slots: Vec<Option<Slot>>,
    free: Vec<u32>,
    lists: [List; 3],
    pins: PinnedPages,
    /// Pages that were used once and have left.
    left: VecDeque<u32>,
    has_left: Vec<bool>,
    bytes: usize,
    bytes_max: usize,
    /// What is drawn next.
    chance: u64,
}

impl PageCache {
    /// Nothing is in memory yet of a map of so many pages.
    #[must_use]
    pub fn new(policy: CachePolicy, pages: u32, size: PageSize, bytes_max: usize) -> PageCache {
        let is_two_queues = policy == CachePolicy::TwoQueues;
        PageCache {
            policy,
            size,
            slot_of: vec![NONE; pages as usize],
            slots: Vec::new(),
            free: Vec::new(),
            lists: [List { first: NONE, last: NONE, len: 0 }; 3],
            pins: PinnedPages::default(),
            left: VecDeque::new(),
            has_left: vec![false; if is_two_queues { pages as usize } else { 0 }],
            bytes: 0,
            bytes_max,
            chance: 0x9E37_79B9_7F4A_7C15,
        }
    }

    /// Bytes of memory that every page of the map takes, in the cache or not.
    #[must_use]
    pub fn bytes_per_page(policy: CachePolicy) -> usize {
        size_of::<u32>() + usize::from(policy == CachePolicy::TwoQueues)
    }

    /// Bytes of the pages that are in memory, and of what it takes to find them.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Pages in memory.
    #[must_use]
    pub fn pages(&self) -> u32 {
        self.lists.iter().map(|list| list.len).sum()
    }

    /// From now on it takes so many bytes at most.
    #[inline]
    pub fn set_bytes_max(&mut self, bytes: usize) {
        self.bytes_max = bytes;
        self.make_room(0);
    }

    /// What `page` says of the block at `index`, if it is in memory. Counts as a use.
    #[inline]
    pub fn get(&mut self, page: u32, index: usize) -> Option<Entry> {
        let at = self.slot_of[page as usize];
        if at == NONE {
            return None;
        }
        self.use_slot(at);
        Some(self.slot(at).contents.get(index, self.size.width()))
    }

    /// The same. No use of it.
    #[must_use]
    pub fn peek(&self, page: u32, index: usize) -> Option<Entry> {
        let at = self.slot_of[page as usize];
        (at != NONE).then(|| self.slot(at).contents.get(index, self.size.width()))
    }

    /// Whether `page` is in memory. No use of it.
    #[must_use]
    pub fn has(&self, page: u32) -> bool {
        self.slot_of[page as usize] != NONE
    }

    /// `page` is now as it was read, or written. A page that was in memory stays there. Another one comes if it `is_wanted`, and
    /// others leave for it.
    pub fn put(&mut self, page: u32, bytes: &[u8; BLOCK_BYTES], is_wanted: bool) {
        let (was_there, is_pinned) = (self.has(page), self.pins.has(page));
        let (list, heat) = match self.slot_of[page as usize] {
            NONE => (self.list_of_new(page), HEAT_OF_LOADED + if is_pinned { HEAT_OF_PINNED } else { 0 }),
            at => (self.slot(at).list, self.slot(at).heat),
        };
        self.remove(page);
        if !was_there && !is_wanted {
            return;
        }
        let contents = Contents::new(bytes, self.size);
        let size = cost(&contents);
        if size > self.bytes_max {
            return;
        }
        self.make_room(size);
        let heat = if self.policy == CachePolicy::SeedHotness { heat } else { 0 };
        let slot = Slot { page, contents, before: NONE, after: NONE, list, heat };
        let at = match self.free.pop() {
            Some(at) => {
                self.slots[at as usize] = Some(slot);
                at
            }
            None => {
                self.slots.push(Some(slot));
                self.slots.len() as u32 - 1
            }
        };
        self.slot_of[page as usize] = at;
        self.bytes += size;
        self.link(at, list);
    }

    /// `page` is no more as it is in memory.
    pub fn remove(&mut self, page: u32) {
        let at = std::mem::replace(&mut self.slot_of[page as usize], NONE);
        if at != NONE {
            self.unlink(at);
            let slot = self.slots[at as usize].take().expect("the page names it");
            self.bytes -= cost(&slot.contents);
            self.free.push(at);
        }
    }

    /// The pages that are pinned.
    #[must_use]
    pub fn pins(&self) -> &PinnedPages {
        &self.pins
    }

    /// These pages are pinned from now on, and no others. Nothing is loaded for that.
    pub fn set_pins(&mut self, pins: PinnedPages) {
        self.pins = pins;
        for at in 0..self.slots.len() as u32 {
            let Some(Slot { page, list, .. }) = self.slots[at as usize] else { continue };
            let is_pinned = self.pins.has(page);
            if self.policy == CachePolicy::SeedHotness {
                let heat = if is_pinned { HEAT_OF_PINNED } else { 0 };
                self.slot_mut(at).heat = self.slot(at).heat.max(heat);
            } else if is_pinned != (list == PINNED) {
                self.unlink(at);
                self.link(at, if is_pinned { PINNED } else { 0 });
            }
        }
    }

    fn list_of_new(&mut self, page: u32) -> u8 {
        if self.policy != CachePolicy::SeedHotness && self.pins.has(page) {
            return PINNED;
        }
        let was_here = self.policy == CachePolicy::TwoQueues && std::mem::take(&mut self.has_left[page as usize]);
        u8::from(was_here)
    }

    #[inline]
    fn slot(&self, at: u32) -> &Slot {
        self.slots[at as usize].as_ref().expect("a slot that is named has a page")
    }

    #[inline]
    fn slot_mut(&mut self, at: u32) -> &mut Slot {
        self.slots[at as usize].as_mut().expect("a slot that is named has a page")
    }

    #[inline]
    fn use_slot(&mut self, at: u32) {
        match self.policy {
            CachePolicy::Clock if self.slot(at).list != PINNED => self.slot_mut(at).heat = 1,
            CachePolicy::SeedHotness => self.slot_mut(at).heat = self.slot(at).heat.saturating_add(1),
            CachePolicy::TwoQueues if self.slot(at).list == 0 => {}
            CachePolicy::Clock | CachePolicy::Lru | CachePolicy::TwoQueues => self.move_up(at),
        }
    }

    fn move_up(&mut self, at: u32) {
        let list = self.slot(at).list;
        if self.lists[list as usize].first != at {
            self.unlink(at);
            self.link(at, list);
        }
    }

    fn make_room(&mut self, size: usize) {
        while self.bytes + size > self.bytes_max && self.pages() > 0 {
            let coldest = self.coldest();
            let Slot { page, list, .. } = *self.slot(coldest);
            if self.policy == CachePolicy::TwoQueues && list == 0 {
                self.remember(page);
            }
            self.remove(page);
        }
    }

    /// A page that was used once has left: should it come again, it is one of the others.
    fn remember(&mut self, page: u32) {
        self.left.push_back(page);
        self.has_left[page as usize] = true;
        while self.left.len() > (self.pages() / 2).max(1) as usize {
            let oldest = self.left.pop_front().expect("it is not empty");
            self.has_left[oldest as usize] = false;
        }
    }

    /// The slot of the page that leaves next. There is one.
    fn coldest(&mut self) -> u32 {
        if self.pages() == self.lists[PINNED as usize].len {
            return self.lists[PINNED as usize].last;
        }
        match self.policy {
            CachePolicy::Lru => self.lists[0].last,
            CachePolicy::Clock => loop {
                let at = self.lists[0].last;
                if std::mem::take(&mut self.slot_mut(at).heat) == 0 {
                    break at;
                }
                self.move_up(at);
                if self.lists[0].len == 1 {
                    break at;
                }
            },
            CachePolicy::TwoQueues => {
                let [once, often, _] = self.lists;
                let is_once = often.len == 0 || (once.len > 0 && once.len > (once.len + often.len) / 4);
                self.lists[usize::from(!is_once)].last
            }
            CachePolicy::SeedHotness => {
                let mut coldest = None;
                for _ in 0..DRAWN {
                    let at = self.draw();
                    let heat = self.slot(at).heat;
                    if coldest.is_none_or(|(least, _)| heat < least) {
                        coldest = Some((heat, at));
                    }
                    // What is met and not used cools down.
                    self.slot_mut(at).heat -= heat / 8;
                }
                coldest.expect("some were drawn").1
            }
        }
    }

    /// Any slot with a page. There is one.
    fn draw(&mut self) -> u32 {
        loop {
            self.chance ^= self.chance << 13;
            self.chance ^= self.chance >> 7;
            self.chance ^= self.chance << 17;
            let at = (self.chance % self.slots.len() as u64) as u32;
            if self.slots[at as usize].is_some() {
                return at;
            }
        }
    }

    fn link(&mut self, at: u32, list: u8) {
        let first = self.lists[list as usize].first;
        let slot = self.slot_mut(at);
        (slot.before, slot.after, slot.list) = (NONE, first, list);
        match first {
            NONE => self.lists[list as usize].last = at,
            first => self.slot_mut(first).before = at,
        }
        self.lists[list as usize].first = at;
        self.lists[list as usize].len += 1;
    }

    fn unlink(&mut self, at: u32) {
        let Slot { before, after, list, .. } = *self.slot(at);
        match before {
            NONE => self.lists[list as usize].first = after,
            before => self.slot_mut(before).after = after,
        }
        match after {
            NONE => self.lists[list as usize].last = before,
            after => self.slot_mut(after).before = before,
        }
        self.lists[list as usize].len -= 1;
    }
}

/// Bytes of memory that a page takes in the cache.
fn cost(contents: &Contents) -> usize {
    contents.bytes() + size_of::<Option<Slot>>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use openftl_core::Ppa;

    fn page(entries: impl IntoIterator<Item = Entry>) -> Box<[u8; BLOCK_BYTES]> {
        let mut page = Box::new([0xFF; BLOCK_BYTES]);
        entries.into_iter().enumerate().for_each(|(index, entry)| PageSize::WHOLE.set_entry(&mut page, index, entry));
        page
    }

    fn at(place: u64) -> Entry {
        Entry::media(Ppa(place))
    }

    /// Every entry another than the one before would be followed by: no run is longer than one.
    fn scattered(seed: u64) -> Box<[u8; BLOCK_BYTES]> {
        page((0..1024).map(|index| at((index * 7 + seed) % 9_973)))
    }

    /// Whatever the policy, memory is bounded, and a page is what was last put.
    #[test]
    fn every_policy_keeps_the_bound_and_forgets_no_change() {
        for &policy in CachePolicy::ALL {
            let one = 4096 + size_of::<Option<Slot>>();
            let mut cache = PageCache::new(policy, 40, PageSize::WHOLE, 10 * one);
            let mut versions = [0_u64; 40];
            let mut chance = 7_u32;
            for round in 0..4_000 {
                chance = chance.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let number = (chance >> 16) % 40;
                match round % 7 {
                    0 => cache.remove(number),
                    1 | 2 => {
                        versions[number as usize] = round;
                        cache.put(number, &scattered(round), round % 2 == 0);
                    }
                    _ => {
                        let found = cache.get(number, 5);
                        let version = versions[number as usize];
                        assert!(found.is_none_or(|found| found == at((35 + version) % 9_973)), "{policy}, {round}");
                        if found.is_none() {
                            cache.put(number, &scattered(version), true);
                            assert!(cache.has(number));
                        }
                    }
                }
                assert!(cache.bytes() <= 10 * one && cache.bytes() == cache.pages() as usize * one, "{policy}");
            }
            cache.set_bytes_max(one);
            assert_eq!(cache.pages(), 1, "{policy}");
            cache.set_bytes_max(0);
            cache.put(3, &scattered(3), true);
            assert_eq!((cache.pages(), cache.bytes()), (0, 0), "{policy}");
        }
    }

    fn pinning(pages: std::ops::Range<u32>) -> PinnedPages {
        let mut pins = PinnedPages::default();
        assert!(pins.add(pages));
        pins
    }

    /// A scan of the whole map, and pages that are not used meanwhile.
    #[test]
    fn pinned_pages_outlive_a_scan_and_leave_when_no_other_is_left() {
        let one = 4096 + size_of::<Option<Slot>>();
        for &policy in CachePolicy::ALL.iter().filter(|policy| **policy != CachePolicy::SeedHotness) {
            let mut cache = PageCache::new(policy, 400, PageSize::WHOLE, 10 * one);
            cache.put(3, &scattered(3), true);
            cache.set_pins(pinning(3..5));
            cache.put(4, &scattered(4), true);
            cache.put(5, &scattered(5), true);
            (10..400).for_each(|page| cache.put(page, &scattered(0), true));
            assert!(cache.has(3) && cache.has(4) && !cache.has(5) && cache.pages() == 10, "{policy}");
            cache.set_bytes_max(2 * one);
            assert!(cache.has(3) && cache.has(4), "{policy}");
            cache.put(7, &scattered(7), true);
            assert!(cache.has(7) && cache.has(4) && !cache.has(3), "{policy}: the one that was not used for longest");
            cache.set_pins(PinnedPages::default());
            cache.put(8, &scattered(8), true);
            cache.put(9, &scattered(9), true);
            assert!(!cache.has(4), "{policy}");
            cache.set_pins(pinning(0..400));
            (0..400).for_each(|page| cache.put(page, &scattered(0), true));
            assert_eq!(cache.pages(), 2, "{policy}: pins of everything are bounded, too");
            cache.set_bytes_max(0);
            assert_eq!(cache.pages(), 0, "{policy}");
        }
    }

    #[test]
    fn with_the_seeds_hotness_pinned_pages_weigh_more() {
        let one = 4096 + size_of::<Option<Slot>>();
        let survivors = |pins: PinnedPages| {
            let mut cache = PageCache::new(CachePolicy::SeedHotness, 400, PageSize::WHOLE, 40 * one);
            cache.set_pins(pins);
            (0..60).for_each(|page| cache.put(page, &scattered(0), true));
            (0..10).filter(|page| cache.has(*page)).count()
        };
        assert_eq!(survivors(pinning(0..10)), 10);
        assert!(survivors(PinnedPages::default()) < 10);
    }

    /// A scan of the whole map, and a page that is used all the time.
    #[test]
    fn a_page_that_is_used_often_outlives_a_scan_and_one_that_was_used_once_does_not() {
        for &policy in CachePolicy::ALL {
            let one = 4096 + size_of::<Option<Slot>>();
            let mut cache = PageCache::new(policy, 400, PageSize::WHOLE, 10 * one);
            cache.put(0, &scattered(0), true);
            cache.put(1, &scattered(1), true);
            let mut misses = 0;
            for number in 2..400 {
                cache.put(number, &scattered(0), true);
                if cache.get(0, 0).is_none() {
                    misses += 1;
                    cache.put(0, &scattered(0), true);
                }
            }
            assert!(!cache.has(1), "{policy}");
            // Two queues learn it from its second coming.
            assert!(misses <= usize::from(policy == CachePolicy::TwoQueues), "{policy}: {misses}");
        }
    }

    #[test]
    fn a_policy_is_a_word() {
        for &policy in CachePolicy::ALL {
            assert_eq!(policy.word().parse(), Ok(policy));
        }
        let error = "mru".parse::<CachePolicy>().unwrap_err();
        assert_eq!(error.to_string(), "\"mru\" is no policy of the map cache: choose clock, lru, 2q or seed-hotness");
    }
}
