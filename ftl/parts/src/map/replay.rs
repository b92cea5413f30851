//! Replaying the log on a map whose pages are on media.
//!
//! Directory and changes of a checkpoint may be of any moment since it began, and different parts of different ones. Replaying all
//! that was logged since brings them to the same one, because each record says what is there and not what has changed. One
//! thing does not: that a merge has taken in a change. A change leaves only if it was put before the record that the merge *began*,
//! and nothing was put since. Where that record is not replayed, no change leaves; a change that a page has, too, does no harm.

use super::Entry;
use super::demand::DemandMap;
use super::directory::Places;
use std::collections::BTreeMap;
use std::ops::Range;

/// Merges that have begun, by page: the changes that they take in, by index.
#[derive(Default)]
pub struct Replay {
    merging: BTreeMap<u32, Vec<(usize, Entry)>>,
}

impl Replay {
    /// `block` is where `entry` says.
    pub fn mapped(&mut self, map: &mut DemandMap, block: u64, entry: Entry) {
        self.touch(map, block);
        map.put(block, entry);
    }

    /// No merge that has begun takes in what the changes say of `block`, even if they say the same as before.
    fn touch(&mut self, map: &DemandMap, block: u64) {
        let (page, index) = map.size().split(block);
        if let Some(taken) = self.merging.get_mut(&page) {
            taken.retain(|(other, _)| *other != index);
        }
    }

    /// `blocks` are nowhere.
    pub fn trimmed(&mut self, map: &mut DemandMap, blocks: Range<u64>) {
        let size = map.size();
        let mut next = blocks.start;
        while next < blocks.end {
            let (page, _) = size.split(next);
            let end = map.end_of(page);
            if next == size.first_of(page) && end <= blocks.end {
                self.merging.remove(&page);
                map.forget_page(page);
            } else {
                for block in next..end.min(blocks.end) {
                    self.touch(map, block);
                    if map.has_any(block) {
                        self.mapped(map, block, Entry::UNMAPPED);
                    }
                }
            }
            next = end.min(blocks.end);
        }
    }

    /// A merge of `page` began.
    pub fn merge_began(&mut self, map: &DemandMap, page: u32) {
        self.merging.insert(page, map.changes().of(page).map(|change| (change.index, change.entry)).collect());
    }

    /// It has ended, and the page is at these places. Returns false if it cannot be there.
    pub fn page(&mut self, map: &mut DemandMap, page: u32, places: Places) -> bool {
        let taken = self.merging.remove(&page).unwrap_or_default();
        map.load_page(page, places, &taken)
    }
}

#[cfg(test)]
mod tests {
    use super::super::cache::CachePolicy;
    use super::super::directory::PageSize;
    use super::*;
    use crate::map::Width;
    use openftl_core::Ppa;

    fn at(place: u64) -> Entry {
        Entry::media(Ppa(place))
    }

    fn map() -> DemandMap {
        DemandMap::new(20, PageSize::of(8, Width::Narrow).unwrap(), CachePolicy::Clock, 0)
    }

    fn changes(map: &DemandMap) -> Vec<(u64, Entry)> {
        let mut all = [(0, Entry::UNMAPPED); 20];
        let count = map.changes().first_of(0..20, &mut all);
        all[..count].to_vec()
    }

    #[test]
    fn a_merge_takes_in_what_was_put_before_it_began_and_not_since() {
        let (mut map, mut replay) = (map(), Replay::default());
        replay.mapped(&mut map, 1, at(10));
        replay.mapped(&mut map, 2, at(20));
        replay.merge_began(&map, 0);
        replay.mapped(&mut map, 2, at(20));
        replay.mapped(&mut map, 3, at(30));
        assert!(replay.page(&mut map, 0, [at(7), at(8)]));
        assert_eq!(map.directory().get(0), Some([Ppa(7), Ppa(8)]));
        assert_eq!(changes(&map), [(2, at(20)), (3, at(30))]);
    }

    /// Found by the explorer: a checkpoint that had the trim began before the merge, which had taken in what was there before.
    #[test]
    fn a_trim_that_the_checkpoint_has_already_is_not_taken_in() {
        let (mut map, mut replay) = (map(), Replay::default());
        map.put(1, Entry::UNMAPPED);
        replay.merge_began(&map, 0);
        replay.trimmed(&mut map, 1..3);
        assert!(replay.page(&mut map, 0, [at(7), at(8)]));
        assert_eq!(changes(&map), [(1, Entry::UNMAPPED)]);
    }

    #[test]
    fn without_the_record_that_it_began_a_merge_takes_in_nothing() {
        let (mut map, mut replay) = (map(), Replay::default());
        replay.mapped(&mut map, 1, at(10));
        assert!(replay.page(&mut map, 0, [at(7), at(8)]));
        assert_eq!(changes(&map), [(1, at(10))]);
        assert!(!replay.page(&mut map, 0, [at(7), Entry::UNMAPPED]), "one copy is not enough");
    }

    #[test]
    fn a_page_that_is_trimmed_as_a_whole_is_nowhere_and_other_blocks_are_changes() {
        let (mut map, mut replay) = (map(), Replay::default());
        for page in 0..3 {
            assert!(replay.page(&mut map, page, [at(7), at(8)]));
        }
        replay.mapped(&mut map, 9, at(10));
        replay.merge_began(&map, 1);
        replay.trimmed(&mut map, 6..20);
        assert_eq!((0..3).map(|page| map.directory().get(page).is_some()).collect::<Vec<_>>(), [true, false, false]);
        assert_eq!(changes(&map), [(6, Entry::UNMAPPED), (7, Entry::UNMAPPED)]);
        replay.mapped(&mut map, 9, at(10));
        assert!(replay.page(&mut map, 1, [at(7), at(8)]));
        assert_eq!(changes(&map).last(), Some(&(9, at(10))), "a merge that the trim spoiled takes in nothing");
    }
}
