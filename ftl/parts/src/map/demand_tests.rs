use super::*;
use proptest::prelude::*;

const ENTRIES: u32 = 8;
const BLOCKS: u64 = 45;
const PLACES: u64 = 400;

#[derive(Clone, Debug)]
enum Step {
    /// A write of a block is committed.
    Write {
        block: u64,
    },
    /// Collection meets a valid place.
    Collect {
        pick: usize,
    },
    Trim {
        first: u64,
        blocks: u64,
    },
    BeginMerge {
        pick: Option<u32>,
    },
    /// The page of a merge has been read, and the new one is being written.
    Write1 {
        pick: usize,
    },
    EndMerge {
        pick: usize,
    },
    GiveUp {
        pick: usize,
    },
    /// Somebody reads the page.
    Read {
        block: u64,
    },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (0..BLOCKS).prop_map(|block| Step::Write { block }),
        5 => any::<usize>().prop_map(|pick| Step::Collect { pick }),
        2 => (0..BLOCKS, 1..30_u64).prop_map(|(first, blocks)| Step::Trim { first, blocks: blocks.min(BLOCKS - first) }),
        3 => proptest::option::of(0..BLOCKS.div_ceil(ENTRIES.into()) as u32).prop_map(|pick| Step::BeginMerge { pick }),
        3 => any::<usize>().prop_map(|pick| Step::Write1 { pick }),
        3 => any::<usize>().prop_map(|pick| Step::EndMerge { pick }),
        1 => any::<usize>().prop_map(|pick| Step::GiveUp { pick }),
        2 => (0..BLOCKS).prop_map(|block| Step::Read { block }),
    ]
}

/// A merge under way, and the new page once it is made.
struct UnderWay {
    merge: Merge,
    new: Option<Box<[u8; BLOCK_BYTES]>>,
}

/// A map on media as a test sees it: what each block's place is, whose each place is, and which of them are valid.
struct World {
    map: DemandMap,
    /// The first place: where entries are wide, one that others have no room for.
    first: u64,
    flat: Vec<Entry>,
    /// The block that was written to each place, and whether the place is valid.
    places: Vec<Option<(u64, bool)>>,
    /// Pages on media, by the place of the first copy.
    media: BTreeMap<Ppa, Box<[u8; BLOCK_BYTES]>>,
    merges: Vec<UnderWay>,
    next_page: u64,
    next: usize,
}

impl World {
    fn new(cache_bytes: usize, width: Width) -> World {
        let size = PageSize::of(ENTRIES, width).unwrap();
        World {
            map: DemandMap::new(BLOCKS, size, CachePolicy::Clock, cache_bytes),
            first: if width == Width::Wide { 0xF << 32 } else { 0 },
            flat: vec![Entry::UNMAPPED; BLOCKS as usize],
            places: vec![None; PLACES as usize],
            media: BTreeMap::new(),
            merges: Vec::new(),
            next_page: 1 << 20,
            next: 0,
        }
    }

    /// A place that nothing valid is at: one that was used before, if it can be.
    fn place_for(&mut self, block: u64) -> Ppa {
        let free = |place: &usize| self.places[*place].is_none_or(|(_, is_valid)| !is_valid);
        self.next += 1;
        let from = self.next * 7 % PLACES as usize;
        let place = (from..PLACES as usize).chain(0..from).find(free).expect("there are more places than valid ones");
        self.places[place] = Some((block, true));
        self.at(place)
    }

    fn at(&self, place: usize) -> Ppa {
        Ppa(self.first + place as u64)
    }

    fn invalidate(&mut self, ppa: Ppa) {
        let (_, is_valid) = self.places[(ppa.0 - self.first) as usize].as_mut().expect("it was written");
        assert!(std::mem::take(is_valid), "{ppa:?} is invalidated twice");
    }

    fn invalidate_all(&mut self, invalid: Vec<Ppa>) {
        invalid.into_iter().for_each(|ppa| self.invalidate(ppa));
    }

    fn bytes(&self, page: u32) -> Box<[u8; BLOCK_BYTES]> {
        match self.map.directory().get(page) {
            Some(copies) => self.media[&copies[0]].clone(),
            None => Box::new([0x55; BLOCK_BYTES]),
        }
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Write { block } => {
                let to = self.place_for(block);
                self.flat[block as usize] = Entry::media(to);
                let invalid = self.map.put(block, Entry::media(to));
                self.invalidate_all(invalid.into_iter().collect());
            }
            Step::Collect { pick } => {
                let valid = |(place, held): (usize, &Option<(u64, bool)>)| match held {
                    Some((block, true)) => Some((self.at(place), *block)),
                    _ => None,
                };
                let valid: Vec<_> = self.places.iter().enumerate().filter_map(valid).collect();
                let Some((from, block)) = valid.get(pick % valid.len().max(1)).copied() else { return };
                if self.map.is_at(block, from) {
                    let to = self.place_for(block);
                    self.map.moved(block, from, to);
                    self.flat[block as usize] = Entry::media(to);
                } else {
                    self.map.drop_stale(block);
                }
                self.invalidate(from);
            }
            Step::Trim { first, blocks } => {
                let mut invalid = Vec::new();
                let has_changed = self.map.trim(first..first + blocks, &mut invalid);
                let trimmed = &mut self.flat[first as usize..(first + blocks) as usize];
                assert!(has_changed || trimmed.iter().all(|entry| *entry == Entry::UNMAPPED));
                trimmed.fill(Entry::UNMAPPED);
                self.invalidate_all(invalid);
            }
            Step::BeginMerge { pick } => {
                let page = pick.filter(|page| !self.map.is_merging(*page)).or_else(|| self.map.next_to_merge());
                if let Some(page) = page {
                    self.merges.push(UnderWay { merge: self.map.begin_merge(page), new: None });
                }
            }
            Step::Write1 { pick } => {
                let index = pick % self.merges.len().max(1);
                let Some(UnderWay { merge, new: None }) = self.merges.get(index) else { return };
                // As it was when the merge began: what the directory says changes only at the end of it.
                let mut bytes = self.bytes(merge.page);
                let under_way = &mut self.merges[index];
                self.map.merge_into(&mut under_way.merge, &mut bytes);
                under_way.new = Some(bytes);
            }
            Step::EndMerge { pick } => {
                let index = pick % self.merges.len().max(1);
                if self.merges.get(index).is_none_or(|merge| merge.new.is_none()) {
                    return;
                }
                let UnderWay { merge, new } = self.merges.swap_remove(index);
                let new = new.expect("it was made");
                let copies = (!self.map.is_all_nowhere(&new)).then(|| {
                    self.next_page += 2;
                    [0, 1].map(|copy| Ppa(self.first + self.next_page + copy))
                });
                let mut invalid = Vec::new();
                if let Some(before) = self.map.end_merge(&merge, copies, &new, &mut invalid) {
                    if let Some(before) = before {
                        self.media.remove(&before[0]);
                    }
                    if let Some(copies) = copies {
                        self.media.insert(copies[0], new);
                    }
                }
                self.invalidate_all(invalid);
            }
            Step::GiveUp { pick } => {
                if !self.merges.is_empty() {
                    let UnderWay { merge, .. } = self.merges.swap_remove(pick % self.merges.len());
                    self.map.give_up_merge(merge.page);
                }
            }
            Step::Read { block } => {
                if let Looked::Page(page) = self.map.look(block) {
                    let bytes = self.bytes(page);
                    assert_eq!(self.map.look_in(block, &bytes), self.flat[block as usize]);
                    self.map.keep(page, &bytes, true);
                }
            }
        }
    }

    fn check(&mut self) {
        for block in 0..BLOCKS {
            let expected = self.flat[block as usize];
            match self.map.look(block) {
                Looked::Entry(entry) => assert_eq!(entry, expected, "block {block}"),
                Looked::Page(page) => assert_eq!(self.map.look_in(block, &self.bytes(page)), expected, "block {block}"),
            }
            if let Some(ppa) = place_of(expected) {
                assert_eq!(
                    self.places[(ppa.0 - self.first) as usize],
                    Some((block, true)),
                    "what the map names is valid"
                );
            }
        }
        for (place, held) in self.places.iter().enumerate() {
            let Some((block, true)) = *held else { continue };
            let ppa = self.at(place);
            let is_own = self.flat[block as usize] == Entry::media(ppa);
            assert_eq!(self.map.is_at(block, ppa), is_own, "block {block} at {ppa:?}");
            let (page, index) = self.map.size().split(block);
            let is_in_page = || self.map.size().entry(&self.bytes(page), index) == Entry::media(ppa);
            assert!(is_own || (self.map.directory().get(page).is_some() && is_in_page()), "{ppa:?} is nobody's");
        }
    }

    /// Merges all there is.
    fn merge_all(&mut self) {
        while !self.merges.is_empty() {
            self.take(Step::GiveUp { pick: 0 });
        }
        for _ in 0..1_000 {
            if self.map.next_to_merge().is_none() {
                return;
            }
            for step in [Step::BeginMerge { pick: None }, Step::Write1 { pick: 0 }, Step::EndMerge { pick: 0 }] {
                self.take(step);
            }
        }
        panic!("merges come to no end");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn the_map_and_what_is_valid_are_as_a_flat_map_has_them(
        steps in proptest::collection::vec(step(), 0..250),
        cache_bytes in prop_oneof![Just(0_usize), Just(200), Just(100_000)],
        width in prop_oneof![Just(Width::Narrow), Just(Width::Wide)],
    ) {
        let mut world = World::new(cache_bytes, width);
        for step in steps {
            world.take(step);
            world.check();
        }
        world.merge_all();
        world.check();
        prop_assert!(world.map.changes().is_empty());
        let valid = world.places.iter().flatten().filter(|(_, is_valid)| *is_valid).count();
        let mapped = world.flat.iter().filter(|entry| place_of(**entry).is_some()).count();
        prop_assert_eq!(valid, mapped, "when all is merged, nothing stale is valid");
    }
}

/// The block is overwritten, collected, and trimmed with its page while the page is being written.
#[test]
fn what_changes_during_a_merge_is_not_lost_and_not_invalidated_twice() {
    let mut world = World::new(0, Width::Narrow);
    for block in 0..4 {
        world.take(Step::Write { block });
    }
    world.merge_all();
    world.take(Step::Write { block: 1 });
    world.take(Step::BeginMerge { pick: Some(0) });
    world.take(Step::Write1 { pick: 0 });
    world.take(Step::Write { block: 1 });
    for pick in 0..5 {
        world.take(Step::Collect { pick });
    }
    world.take(Step::EndMerge { pick: 0 });
    world.check();
    world.take(Step::BeginMerge { pick: Some(0) });
    world.take(Step::Write1 { pick: 0 });
    world.take(Step::Trim { first: 0, blocks: 8 });
    world.take(Step::Write { block: 2 });
    world.take(Step::EndMerge { pick: 0 });
    world.check();
    world.merge_all();
    world.check();
    assert_eq!(world.places.iter().flatten().filter(|(_, is_valid)| *is_valid).count(), 1);
}

#[test]
fn a_trim_of_the_whole_map_costs_no_change() {
    let mut world = World::new(0, Width::Narrow);
    for block in 0..BLOCKS {
        world.take(Step::Write { block });
    }
    world.merge_all();
    world.take(Step::Trim { first: 0, blocks: BLOCKS });
    assert!(world.map.changes().is_empty());
    world.check();
    world.merge_all();
    assert_eq!(world.map.directory().mapped(), 0);
    assert!(!world.map.trim(0..BLOCKS, &mut Vec::new()), "there is nothing left to trim");
}
