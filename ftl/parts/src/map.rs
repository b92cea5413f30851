//! Where each logical block is: the logical-to-physical map (L2P). In memory it is one 32-bit word for each block ([`entry`]).
//!
//! Two levels of counts say where nothing is mapped, so that a trim of a whole drive costs what is mapped and no more:
//!
//! ```text
//!   entries     0 ……… 1023 │ 1024 ……… 2047 │ …
//!   regions     mapped     │ mapped        │ …          of each 1024 entries, how many are not "nowhere"
//!   spans       occupied regions                …       of each 1024 regions, how many have any
//! ```

pub mod cache;
pub mod changes;
pub mod circles;
pub mod demand;
pub mod directory;
pub mod entry;
pub mod memory;
pub mod owners;
pub mod page_cache;
pub mod pins;
pub mod replay;
mod stripes;

pub use entry::{Entry, Place, Width, Word};

use openftl_core::memory::Words;
use openftl_core::{BLOCK_BYTES, Ppa};
use std::ops::Range;

/// Map entries in one block of a checkpoint.
pub const ENTRIES_PER_BLOCK: usize = BLOCK_BYTES / size_of::<u32>();

/// The map of a drive: all of it in memory, or its pages on media.
pub enum Map {
    /// All of it is in memory, and in each checkpoint.
    Whole(Mapping),
    /// Pages are on media.
    Paged(Box<demand::DemandMap>),
}

impl Map {
    /// A map that is in memory.
    ///
    /// # Panics
    /// If it is not.
    #[inline]
    #[must_use]
    pub fn whole(&self) -> &Mapping {
        match self {
            Map::Whole(map) => map,
            Map::Paged(_) => panic!("the map is on media"),
        }
    }

    /// A map that is in memory, to change it.
    ///
    /// # Panics
    /// If it is not.
    #[inline]
    #[must_use]
    pub fn whole_mut(&mut self) -> &mut Mapping {
        match self {
            Map::Whole(map) => map,
            Map::Paged(_) => panic!("the map is on media"),
        }
    }

    /// How long its entries are on media.
    #[must_use]
    pub fn width(&self) -> Width {
        match self {
            Map::Whole(_) => Width::Narrow,
            Map::Paged(map) => map.size().width(),
        }
    }

    /// Whether an entry has room for the address `ppa`.
    #[inline]
    #[must_use]
    pub fn has_room_for(&self, ppa: Ppa) -> bool {
        self.width().has_room_for(ppa)
    }

    /// Logical blocks in the map.
    #[inline]
    #[must_use]
    pub fn blocks(&self) -> u64 {
        match self {
            Map::Whole(map) => map.len(),
            Map::Paged(map) => map.len(),
        }
    }
}

/// Entries of a region: those that one block of a checkpoint holds.
const REGION_ENTRIES: usize = ENTRIES_PER_BLOCK;

/// Regions of a span.
const SPAN_REGIONS: usize = 1024;

/// Entries that [`Mapping::skip_unmapped`] compares at a time.
const COMPARED: usize = 16;

/// The map, in words of 32 bits.
pub struct Mapping {
    words: Words,
    /// Entries that are not [`Entry::UNMAPPED`], by region.
    regions: Vec<u16>,
    /// Regions with such entries, by span.
    spans: Vec<u16>,
}

impl Mapping {
    /// A map of `blocks` logical blocks, none of them written.
    ///
    /// # Panics
    /// If the system has no memory for it.
    #[must_use]
    pub fn new(blocks: u64) -> Mapping {
        let regions = (blocks as usize).div_ceil(REGION_ENTRIES);
        let mut words = Words::zeroes(blocks as usize).expect("the system has memory for the map");
        words.fill(u32::of(Entry::UNMAPPED));
        Mapping { words, regions: vec![0; regions], spans: vec![0; regions.div_ceil(SPAN_REGIONS)] }
    }

    /// Logical blocks in the map.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.words.len() as u64
    }

    /// Whether the map has no block.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Where `block` is.
    #[inline]
    #[must_use]
    pub fn get(&self, block: u64) -> Entry {
        self.words[block as usize].entry()
    }

    /// Fetches the entries of `blocks` at once. They lie anywhere in the map, and waiting for memory one after the other
    /// is most of what relocation costs; independent loads overlap.
    #[inline]
    pub fn fetch(&self, blocks: impl Iterator<Item = u64>) {
        let is_nowhere = |word: &u32| *word == u32::of(Entry::UNMAPPED);
        std::hint::black_box(
            blocks.fold(false, |any, block| any ^ self.words.get(block as usize).is_some_and(is_nowhere)),
        );
    }

    /// Says where `block` is from now on.
    #[inline]
    pub fn set(&mut self, block: u64, entry: Entry) {
        self.replace(block, entry);
    }

    /// Says where `block` is from now on. Returns what was said before.
    #[inline]
    pub fn replace(&mut self, block: u64, entry: Entry) -> Entry {
        let old = std::mem::replace(&mut self.words[block as usize], u32::of(entry)).entry();
        if (old == Entry::UNMAPPED) != (entry == Entry::UNMAPPED) {
            self.count(block as usize / REGION_ENTRIES, entry != Entry::UNMAPPED);
        }
        old
    }

    /// An entry of `region` has become mapped, or nowhere.
    fn count(&mut self, region: usize, is_mapped: bool) {
        let (mapped, occupied) = (&mut self.regions[region], &mut self.spans[region / SPAN_REGIONS]);
        if is_mapped {
            *occupied += u16::from(*mapped == 0);
            *mapped += 1;
        } else {
            *mapped -= 1;
            *occupied -= u16::from(*mapped == 0);
        }
    }

    /// Takes over what a block of a checkpoint says of the blocks from `first` on, which begin a region, up to its end or that of the map.
    /// Returns the first of them that is in the write buffer, which no checkpoint should say.
    ///
    /// # Panics
    /// If there are more words than a region has entries, or no such blocks.
    pub fn load(&mut self, first: usize, words: &[[u8; 4]]) -> Option<usize> {
        assert!(
            first.is_multiple_of(REGION_ENTRIES) && words.len() <= REGION_ENTRIES,
            "a checkpoint has whole regions"
        );
        let own = &mut self.words[first..];
        let len = own.len().min(REGION_ENTRIES);
        let nowhere = u32::of(Entry::UNMAPPED);
        let (mut mapped, mut is_bad) = (0, false);
        for (own, word) in own[..len].iter_mut().zip(words) {
            let loaded = word.entry();
            mapped += i32::from(loaded != Entry::UNMAPPED) - i32::from(*own != nowhere);
            is_bad |= !loaded.is_on_media() & (loaded != Entry::UNMAPPED) & (loaded != Entry::LOST);
            *own = u32::of(loaded);
        }
        let (in_region, occupied) =
            (&mut self.regions[first / REGION_ENTRIES], &mut self.spans[first / REGION_ENTRIES / SPAN_REGIONS]);
        let was_empty = *in_region == 0;
        *in_region = (i32::from(*in_region) + mapped) as u16;
        *occupied = *occupied + u16::from(was_empty) - u16::from(*in_region == 0);
        let is_buffered = |word: &u32| matches!(word.entry().place(), Place::Buffer(_));
        if is_bad { own[..len].iter().position(is_buffered).map(|at| first + at) } else { None }
    }

    /// Makes `blocks` nowhere.
    pub fn unmap(&mut self, blocks: Range<u64>) {
        let (mut next, mut looks) = (blocks.start, u64::MAX);
        loop {
            next = self.skip_unmapped(next..blocks.end, &mut looks);
            if next == blocks.end {
                break;
            }
            self.set(next, Entry::UNMAPPED);
            next += 1;
        }
    }

    /// The first block of `blocks` that is mapped, or their end. Each entry and each count that has to be looked at takes
    /// one from `looks`; when none is left the answer is a block up to which nothing is mapped, which may be mapped or not.
    #[must_use]
    pub fn skip_unmapped(&self, blocks: Range<u64>, looks: &mut u64) -> u64 {
        let (mut next, end) = (blocks.start as usize, blocks.end as usize);
        while next < end && *looks > 0 {
            let region = next / REGION_ENTRIES;
            if next.is_multiple_of(REGION_ENTRIES) {
                *looks -= 1;
                if region.is_multiple_of(SPAN_REGIONS) && self.spans[region / SPAN_REGIONS] == 0 {
                    next += SPAN_REGIONS * REGION_ENTRIES;
                    continue;
                }
            }
            if self.regions[region] == 0 {
                next = (region + 1) * REGION_ENTRIES;
                continue;
            }
            let last = end.min((region + 1) * REGION_ENTRIES).min(next.saturating_add(*looks as usize));
            let nowhere = u32::of(Entry::UNMAPPED);
            let is_mapped = |word: &u32| *word != nowhere;
            let rest = &self.words[next..last];
            // Whole words at a time: a loop without an exit is one that the compiler makes wide.
            let skipped = rest
                .chunks(COMPARED)
                .take_while(|chunk| !chunk.iter().fold(false, |any, word| any | is_mapped(word)))
                .map(<[u32]>::len)
                .sum::<usize>();
            let found = rest[skipped..].iter().position(is_mapped);
            let looked = found.map_or(rest.len(), |at| skipped + at);
            *looks -= looked as u64;
            next += looked;
            if found.is_some() {
                return next as u64;
            }
        }
        next.min(end) as u64
    }

    /// The entries, in the order of logical blocks.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = Entry> + '_ {
        self.words.iter().map(|word| word.entry())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use openftl_core::Frame;

    /// What [`Mapping::skip_unmapped`] has to find, entry by entry.
    fn first_mapped(mapping: &Mapping, blocks: Range<u64>) -> u64 {
        let end = blocks.end;
        blocks.into_iter().find(|block| mapping.get(*block) != Entry::UNMAPPED).unwrap_or(end)
    }

    #[test]
    fn what_is_mapped_is_found_as_by_looking_at_every_entry() {
        let blocks = 5_000;
        let mut mapping = Mapping::new(blocks);
        let mut chance = 1_u64;
        let mut below = |most: u64| {
            chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (chance >> 33) % most
        };
        for round in 0..3_000 {
            let block = below(blocks);
            match round % 5 {
                0 => mapping.set(block, Entry::media(Ppa(1))),
                1 => mapping.set(block, Entry::LOST),
                2 => mapping.set(block, Entry::buffer(Frame(3))),
                3 => mapping.unmap(block..(block + below(3_000)).min(blocks)),
                _ => mapping.set(block, Entry::UNMAPPED),
            }
            let range = block..block + below(blocks - block + 1);
            let (mut next, mut looks) = (range.start, u64::MAX);
            assert_eq!(mapping.skip_unmapped(range.clone(), &mut looks), first_mapped(&mapping, range.clone()));
            // The same with few looks at a time.
            while next < range.end && mapping.get(next) == Entry::UNMAPPED {
                let mut looks = 3;
                let found = mapping.skip_unmapped(next..range.end, &mut looks);
                assert!(found > next && looks < 3 || found == range.end, "{next} {found}");
                assert!(found <= first_mapped(&mapping, next..range.end));
                next = found;
            }
            assert_eq!(next, first_mapped(&mapping, range));
        }
    }

    #[test]
    fn what_is_loaded_is_what_each_entry_would_have_been_set_to() {
        let blocks = 2 * REGION_ENTRIES + 100;
        let (mut one, mut other) = (Mapping::new(blocks as u64), Mapping::new(blocks as u64));
        for round in 0..4 {
            for first in (0..blocks).step_by(REGION_ENTRIES) {
                let entry = |block: usize| match (block + round) % 3 {
                    _ if round == 2 => Entry::UNMAPPED,
                    0 => Entry::UNMAPPED,
                    1 => Entry::LOST,
                    _ => Entry::media(Ppa(block as u64)),
                };
                let words: Vec<[u8; 4]> = (0..REGION_ENTRIES).map(|at| Word::of(entry(first + at))).collect();
                assert_eq!(one.load(first, &words), None);
                (first..blocks.min(first + REGION_ENTRIES)).for_each(|block| other.set(block as u64, entry(block)));
            }
            assert!(*one.words == *other.words && one.regions == other.regions && one.spans == other.spans, "{round}");
        }
        let mut words = [<[u8; 4]>::of(Entry::UNMAPPED); REGION_ENTRIES];
        words[7] = Word::of(Entry::buffer(Frame(1)));
        assert_eq!(one.load(REGION_ENTRIES, &words), Some(REGION_ENTRIES + 7));
    }

    #[test]
    fn an_empty_map_of_any_size_takes_a_look_for_each_million_blocks() {
        let blocks = 1 << 26;
        let mut mapping = Mapping::new(blocks);
        let look = |mapping: &Mapping| {
            let mut looks = u64::MAX;
            (mapping.skip_unmapped(0..blocks, &mut looks), u64::MAX - looks)
        };
        assert_eq!(look(&mapping), (blocks, 64));
        mapping.set(blocks - 1, Entry::media(Ppa(0)));
        let (found, looks) = look(&mapping);
        assert!(found == blocks - 1 && looks < 64 + 2 * 1024, "{looks}");
        mapping.set(blocks - 1, Entry::UNMAPPED);
        assert_eq!(look(&mapping), (blocks, 64));
    }
}
