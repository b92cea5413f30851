//! Map pages in memory: a [cache](super::cache) of what they say. A page that was written in order is kept as stripes (`stripes.rs`), and not
//! as its entries.

use super::Entry;
use super::cache::{Cache, CachePolicy, Cached};
use super::directory::PageSize;
use super::pins::PinnedPages;
use super::stripes::Contents;
use openftl_core::BLOCK_BYTES;

impl Cached for Contents {
    fn bytes(&self) -> usize {
        Contents::bytes(self)
    }
}

/// The cache.
pub struct PageCache {
    size: PageSize,
    pages: Cache<Contents>,
}

impl PageCache {
    /// Nothing is in memory yet of a map of so many pages.
    #[must_use]
    pub fn new(policy: CachePolicy, pages: u32, size: PageSize, bytes_max: usize) -> PageCache {
        PageCache { size, pages: Cache::new(policy, pages, bytes_max) }
    }

    /// Bytes of memory that every page of the map takes, in the cache or not.
    #[must_use]
    pub fn bytes_per_page(policy: CachePolicy) -> usize {
        Cache::<Contents>::bytes_per_item(policy)
    }

    /// Bytes of the pages that are in memory, and of what it takes to find them.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.pages.bytes()
    }

    /// Pages in memory.
    #[must_use]
    pub fn pages(&self) -> u32 {
        self.pages.len()
    }

    /// From now on it takes so many bytes at most.
    #[inline]
    pub fn set_bytes_max(&mut self, bytes: usize) {
        self.pages.set_bytes_max(bytes);
    }

    /// What `page` says of the block at `index`, if it is in memory. Counts as a use.
    #[inline]
    pub fn get(&mut self, page: u32, index: usize) -> Option<Entry> {
        let width = self.size.width();
        self.pages.get(page).map(|contents| contents.get(index, width))
    }

    /// The same. No use of it.
    #[must_use]
    pub fn peek(&self, page: u32, index: usize) -> Option<Entry> {
        self.pages.peek(page).map(|contents| contents.get(index, self.size.width()))
    }

    /// Whether `page` is in memory. No use of it.
    #[must_use]
    pub fn has(&self, page: u32) -> bool {
        self.pages.has(page)
    }

    /// `page` is now as it was read, or written. A page that was in memory stays there. Another one comes if it `is_wanted`, and
    /// others leave for it.
    pub fn put(&mut self, page: u32, bytes: &[u8; BLOCK_BYTES], is_wanted: bool) {
        if is_wanted || self.has(page) {
            self.pages.put(page, Contents::new(bytes, self.size));
        } else {
            self.pages.pass_by(page);
        }
    }

    /// `page` is no more as it is in memory.
    pub fn remove(&mut self, page: u32) {
        self.pages.remove(page);
    }

    /// The pages that are pinned.
    #[must_use]
    pub fn pins(&self) -> &PinnedPages {
        self.pages.pins()
    }

    /// These pages are pinned from now on, and no others. Nothing is loaded for that.
    pub fn set_pins(&mut self, pins: PinnedPages) {
        self.pages.set_pins(pins);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use openftl_core::Ppa;

    /// Bytes of a page in memory beside its entries.
    const ONE_BESIDE: usize = Cache::<Contents>::BYTES_BESIDE;

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
            let one = 4096 + ONE_BESIDE;
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
        let one = 4096 + ONE_BESIDE;
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
        let one = 4096 + ONE_BESIDE;
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
            let one = 4096 + ONE_BESIDE;
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
