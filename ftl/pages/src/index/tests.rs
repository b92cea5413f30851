//! Both kinds of an index, against a model.

use super::*;
use openftl_core::Geometry;

fn place(number: u64) -> Place {
    let format = Geometry::tiny().format();
    Place::new(format, format.chunk_id(format.pu_id(0, 0), 0), (number % 1024) as u32, 1 + (number % 500) as u32)
}

type Medium = BTreeMap<u32, [u8; BLOCK_BYTES]>;

fn chance(x: &mut u64) -> u64 {
    *x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *x >> 20
}

/// The memory that is there for an index, beyond the least, and pages of its leaves.
#[derive(Clone, Copy)]
struct Case {
    beyond: Option<u64>,
    leaf_pages: usize,
    policy: CachePolicy,
}

const WHOLE: Case = Case { beyond: None, leaf_pages: usize::MAX, policy: CachePolicy::Clock };

fn cases() -> impl Iterator<Item = Case> {
    let on_demand = CachePolicy::ALL.iter().flat_map(|policy| {
        [(0, 8), (3_000, 20), (40_000, usize::MAX)].map(|(beyond, leaf_pages)| Case {
            beyond: Some(beyond),
            leaf_pages,
            policy: *policy,
        })
    });
    [WHOLE, Case { leaf_pages: 20, ..WHOLE }].into_iter().chain(on_demand)
}

impl Case {
    fn memory(self, slots: u32) -> Option<IndexMemory> {
        let least = Index::least_memory(slots, self.policy, self.leaf_pages);
        self.beyond.map(|beyond| IndexMemory { bytes: least + beyond, policy: self.policy })
    }

    fn make(self, slots: u32) -> Index {
        Index::new(slots, self.leaf_pages, self.memory(slots))
    }

    fn open(self, slots: u32, medium: &Medium) -> Index {
        let mut index = self.make(slots);
        let mut ends = Vec::new();
        for (slot, block) in medium {
            let leaf = Leaf::read(block, self.leaf_pages).unwrap();
            ends.extend(leaf.pages_from(0).last().map(|(last, _)| (leaf.first(), last)));
            assert!(index.found(*slot, leaf));
        }
        index.all_found();
        for (first, last) in ends {
            if index.end_of(first).is_some_and(|end| last >= end) {
                hold(&mut index, medium, &[first]);
                index.cut(first);
                index.release();
            }
        }
        index
    }
}

/// Reads what is missing.
fn load(index: &mut Index, medium: &Medium) {
    while let Some(slot) = index.next_to_read() {
        assert!(index.read(slot, Some(&medium[&slot])));
    }
}

fn hold(index: &mut Index, medium: &Medium, lpids: &[u64]) {
    while !lpids.iter().all(|lpid| index.hold(*lpid)) {
        load(index, medium);
    }
}

fn set(index: &mut Index, medium: &Medium, lpid: u64, place: Option<Place>) -> Option<Place> {
    hold(index, medium, &[lpid]);
    let old = index.set(lpid, place);
    index.release();
    old
}

fn get(index: &mut Index, medium: &Medium, lpid: u64) -> Option<Place> {
    loop {
        match index.look(lpid) {
            Looked::At(place) => return place,
            looked => assert!(matches!(looked, Looked::Missing(_))),
        }
        load(index, medium);
    }
}

fn pages(index: &mut Index, medium: &Medium, from: u64) -> Vec<(u64, Place)> {
    let (mut found, mut next) = (Vec::new(), from);
    while let Err((missing, looked)) = index.list(next..=u64::MAX, &mut |lpid, place| {
        found.push((lpid, place));
        true
    }) {
        assert!(matches!(looked, Looked::Missing(_)) && missing >= next);
        next = missing;
        load(index, medium);
    }
    found
}

/// Writes leaves that are dirty to a medium, as they were before some changes, but so many of them. Returns whether all are.
fn write(index: &mut Index, medium: &mut Medium, before: &BTreeMap<u64, Option<Place>>, mut writes: usize) -> bool {
    let mut leaves = index.dirty_leaves();
    let mut number = 0;
    while let Some(first) = leaves.first().copied() {
        match index.next_to_write(first, before) {
            NextToWrite::None => _ = leaves.remove(&first),
            NextToWrite::Missing => load(index, medium),
            NextToWrite::Leaf(_) if writes == 0 => return false,
            NextToWrite::Leaf(leaf) => {
                number += 1;
                let mut block = [0; BLOCK_BYTES];
                leaf.leaf.write(&mut block);
                index.written(&leaf, number);
                match leaf.is_gone {
                    true => _ = medium.remove(&leaf.slot),
                    false => _ = medium.insert(leaf.slot, block),
                }
                leaves.remove(&leaf.first);
                writes -= 1;
            }
        }
        index.writes_ended(number.saturating_sub(2));
    }
    index.writes_ended(number);
    true
}

fn write_all(index: &mut Index, medium: &mut Medium) {
    assert!(write(index, medium, &BTreeMap::new(), usize::MAX));
}

#[test]
fn what_is_written_is_found_again() {
    for case in cases() {
        let slots = if case.leaf_pages < 100 { 2000 } else { 200 };
        let (mut index, mut model, mut medium) = (case.make(slots), BTreeMap::new(), Medium::new());
        let mut x = 9_u64;
        for round in 0..20 {
            for _ in 0..500 {
                let drawn = chance(&mut x);
                let lpid = drawn % 3000 * if drawn >> 20 & 1 == 0 { 1 } else { 1 << 40 };
                let to = (!drawn.is_multiple_of(3) || round > 17).then(|| place(drawn)).filter(|_| round < 18);
                let known = match to {
                    Some(place) => model.insert(lpid, place),
                    None => model.remove(&lpid),
                };
                assert_eq!(set(&mut index, &medium, lpid, to), known);
                let other = chance(&mut x) % 3000;
                assert_eq!(get(&mut index, &medium, other), model.get(&other).copied());
                if index.is_full_of_changes() {
                    write_all(&mut index, &mut medium);
                }
            }
            if let Some(memory) = case.memory(slots) {
                // What is read always has room.
                assert!(index.bytes() < memory.bytes + 40_000, "{} of {}", index.bytes(), memory.bytes);
            }
            assert!(
                pages(&mut index, &medium, 777).into_iter().eq(model.range(777..).map(|(lpid, place)| (*lpid, *place)))
            );
            write_all(&mut index, &mut medium);
            let mut again = case.open(slots, &medium);
            assert_eq!(pages(&mut again, &medium, 0).into_iter().collect::<BTreeMap<_, _>>(), model);
            assert_eq!((again.sums(), again.pages()), (index.sums(), model.len() as u64));
            assert_eq!(again.dirty(), 0);
            index = again;
        }
    }
}

/// What changes while leaves are written is not in them, and counts from the next time on.
#[test]
fn leaves_are_written_as_they_were_when_it_began() {
    for case in cases() {
        let (mut index, mut medium, mut x) = (case.make(2000), Medium::new(), 5);
        let mut model: BTreeMap<u64, Place> = BTreeMap::new();
        for round in 0..30 {
            for _ in 0..40 {
                let lpid = chance(&mut x) % 400 * 3;
                let to = (!chance(&mut x).is_multiple_of(4)).then(|| place(round));
                _ = if let Some(place) = to { model.insert(lpid, place) } else { model.remove(&lpid) };
                set(&mut index, &medium, lpid, to);
            }
            let mut before = BTreeMap::new();
            for part in 0..2 {
                for _ in 0..15 {
                    let (lpid, to) = (chance(&mut x) % 400 * 3 + part, place(round + 7));
                    let to = (!chance(&mut x).is_multiple_of(3)).then_some(to);
                    let old = set(&mut index, &medium, lpid, to);
                    before.entry(lpid).or_insert(old);
                }
                let is_all = write(&mut index, &mut medium, &before, if part == 0 { 2 } else { usize::MAX });
                assert!(is_all || part == 0);
            }
            let mut then = case.open(2000, &medium);
            assert_eq!(pages(&mut then, &medium, 0).into_iter().collect::<BTreeMap<_, _>>(), model, "{round}");
            for lpid in before.keys() {
                match get(&mut index, &medium, *lpid) {
                    Some(place) => _ = model.insert(*lpid, place),
                    None => _ = model.remove(lpid),
                }
            }
            assert_eq!(pages(&mut index, &medium, 0).into_iter().collect::<BTreeMap<_, _>>(), model, "{round}");
        }
    }
}

#[test]
fn an_index_beside_another_one_takes_its_slots_last() {
    let mut index = Index::new_beside(8, 4, &BTreeSet::from([0, 1, 5]));
    (0..20).for_each(|lpid| _ = index.set(lpid * 1000, Some(place(1))));
    let mut medium = Medium::new();
    write_all(&mut index, &mut medium);
    assert_eq!(medium.into_keys().collect::<Vec<_>>(), [2, 3, 4, 6, 7]);
}

/// What was split off is deleted, and its block is given back: what it was split from, which was not written since, is not to have it again.
#[test]
fn pages_of_a_split_that_was_written_in_part_do_not_come_back_when_they_are_deleted() {
    for case in cases().filter(|case| case.leaf_pages <= 20) {
        let (mut index, mut medium) = (case.make(100), Medium::new());
        (0..case.leaf_pages as u64).for_each(|lpid| _ = set(&mut index, &Medium::new(), lpid * 3, Some(place(lpid))));
        write_all(&mut index, &mut medium);
        let end = (case.leaf_pages as u64 - 1) * 3;
        set(&mut index, &medium, end - 1, Some(place(1)));
        assert!(!write(&mut index, &mut medium, &BTreeMap::new(), 1) && medium.len() == 2);
        // Power goes, and all that was split off is deleted.
        let mut index = case.open(100, &medium);
        let child = index.end_of(0).unwrap();
        for (lpid, _) in pages(&mut index, &medium, child) {
            set(&mut index, &medium, lpid, None);
        }
        let left = pages(&mut index, &medium, 0);
        assert!(left.len() >= case.leaf_pages / 2);
        write_all(&mut index, &mut medium);
        assert_eq!(medium.len(), 1);
        assert_eq!(pages(&mut case.open(100, &medium), &medium, 0), left);
    }
}

/// A page that has not changed is there, whichever leaves were written last.
#[test]
fn a_split_that_was_written_in_part_loses_no_page() {
    for case in cases() {
        let mut before = case.make(1000);
        (0..1000).for_each(|lpid| _ = set(&mut before, &Medium::new(), lpid * 3, Some(place(lpid))));
        let mut medium = Medium::new();
        write_all(&mut before, &mut medium);
        for writes in (0..).step_by(1 + 300 / medium.len()) {
            let mut medium = medium.clone();
            let mut index = case.open(1000, &medium);
            (0..1000).for_each(|lpid| _ = set(&mut index, &medium, lpid * 3 + 1, Some(place(lpid))));
            let is_all = write(&mut index, &mut medium, &BTreeMap::new(), writes);
            let mut found = case.open(1000, &medium);
            (0..1000)
                .for_each(|lpid| assert_eq!(get(&mut found, &medium, lpid * 3), Some(place(lpid)), "{lpid}, {writes}"));
            // Nor is any there twice, whatever has left memory meanwhile.
            assert!(pages(&mut found, &medium, 0).is_sorted_by(|one, other| one.0 < other.0), "{writes}");
            assert_eq!(pages(&mut found, &medium, 0).len() as u64, found.pages(), "{writes}");
            if is_all {
                break;
            }
        }
    }
}

#[test]
fn a_leaf_that_cannot_be_read_is_lost_and_the_others_are_not() {
    let case = Case { beyond: Some(0), leaf_pages: 8, policy: CachePolicy::Lru };
    let (mut index, mut medium) = (case.make(100), Medium::new());
    (0..700).for_each(|lpid| _ = set(&mut index, &Medium::new(), lpid, Some(place(lpid))));
    write_all(&mut index, &mut medium);
    let mut index = case.open(100, &medium);
    let missing = (0..700).find_map(|lpid| match index.look(lpid) {
        Looked::Missing(slot) => Some((lpid, slot)),
        _ => None,
    });
    let (lpid, slot) = missing.unwrap();
    assert_eq!(index.next_to_read(), Some(slot));
    // Another leaf is there.
    let other = medium.iter().find(|(other, _)| **other != slot).unwrap().1;
    assert!(!index.read(slot, Some(other)) && !index.is_reading());
    assert_eq!((index.look(lpid), index.hold(lpid)), (Looked::Lost, false));
    let end = index.end_of(lpid).unwrap_or(0);
    (end..700).take(8).for_each(|lpid| assert_eq!(get(&mut index, &medium, lpid), Some(place(lpid))));
}

/// A batch may name pages of all leaves before anybody reads one: those who wait come first.
#[test]
fn a_glance_has_no_more_leaves_read_than_may_be_at_a_time() {
    let case = Case { beyond: Some(0), leaf_pages: 8, policy: CachePolicy::Lru };
    let (mut index, mut medium) = (case.make(100), Medium::new());
    (0..700).for_each(|lpid| _ = set(&mut index, &Medium::new(), lpid, Some(place(lpid))));
    write_all(&mut index, &mut medium);
    let mut index = case.open(100, &medium);
    let missing = (0..700).filter(|lpid| matches!(index.glance(*lpid), Looked::Missing(_))).count();
    let asked = std::iter::from_fn(|| index.next_to_read()).count();
    assert!(missing > 500 && asked == index.reads_max(), "{missing} pages missing, {asked} leaves asked for");
    let last = (0..700).rfind(|lpid| matches!(index.glance(*lpid), Looked::Missing(_))).unwrap();
    assert!(matches!(index.look(last), Looked::Missing(_)) && index.next_to_read().is_some());
}
