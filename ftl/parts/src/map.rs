//! Where each logical block is: the logical-to-physical map (L2P), one 32-bit word a block.
//!
//! ```text
//!   FFFF_FFFFh            never written, or trimmed: reads as zeroes
//!   FFFF_FFFEh            lost: reads as an error
//!   1 frame (31 bits)     in the write buffer
//!   0 address (31 bits)   on media, packed and sparse
//! ```
//!
//! Two levels of counts say where nothing is mapped, so that a trim of a whole drive costs what is mapped and no more:
//!
//! ```text
//!   entries     0 ……… 1023 │ 1024 ……… 2047 │ …
//!   regions     mapped     │ mapped        │ …          of each 1024 entries, how many are not "nowhere"
//!   spans       occupied regions                …       of each 1024 regions, how many have any
//! ```

pub mod changes;
pub mod circles;
pub mod demand;
pub mod directory;
pub mod memory;
pub mod owners;
pub mod page_cache;
pub mod pins;
pub mod replay;
mod stripes;

use openftl_core::{BLOCK_BYTES, Frame, Ppa};
use std::ops::Range;

/// Map entries in one block of a checkpoint.
pub const ENTRIES_PER_BLOCK: usize = BLOCK_BYTES / size_of::<Entry>();

/// Where a logical block is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// Nowhere: it reads as zeroes.
    Unmapped,
    /// It was written, and a repair found no version of it: it reads as an error until it is written or trimmed.
    Lost,
    /// On media.
    Media(Ppa),
    /// In the write buffer.
    Buffer(Frame),
}

/// A [`Place`] in 32 bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry(pub u32);

const BUFFER: u32 = 1 << 31;

impl Entry {
    /// Nowhere.
    pub const UNMAPPED: Entry = Entry(u32::MAX);

    /// Lost.
    pub const LOST: Entry = Entry(u32::MAX - 1);

    /// On media; the address has at most 31 bits.
    #[inline]
    #[must_use]
    pub fn media(ppa: Ppa) -> Entry {
        debug_assert!(ppa.0 < u64::from(BUFFER), "the plan admits only devices with 31-bit addresses");
        Entry(ppa.0 as u32)
    }

    /// In the write buffer.
    #[inline]
    #[must_use]
    pub fn buffer(frame: Frame) -> Entry {
        Entry(BUFFER | frame.0)
    }

    /// Whether it is on media.
    #[inline]
    #[must_use]
    pub fn is_on_media(self) -> bool {
        self.0 & BUFFER == 0
    }

    /// Spelled out.
    #[inline]
    #[must_use]
    pub fn place(self) -> Place {
        if self.0 & BUFFER == 0 {
            Place::Media(Ppa(u64::from(self.0)))
        } else if self == Entry::UNMAPPED {
            Place::Unmapped
        } else if self == Entry::LOST {
            Place::Lost
        } else {
            Place::Buffer(Frame(self.0 & !BUFFER))
        }
    }
}

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

/// The map.
pub struct Mapping {
    entries: Vec<Entry>,
    /// Entries that are not [`Entry::UNMAPPED`], by region.
    regions: Vec<u16>,
    /// Regions with such entries, by span.
    spans: Vec<u16>,
}

impl Mapping {
    /// A map of `blocks` logical blocks, none of them written.
    #[must_use]
    pub fn new(blocks: u64) -> Mapping {
        let regions = (blocks as usize).div_ceil(REGION_ENTRIES);
        Mapping {
            entries: vec![Entry::UNMAPPED; blocks as usize],
            regions: vec![0; regions],
            spans: vec![0; regions.div_ceil(SPAN_REGIONS)],
        }
    }

    /// Logical blocks in the map.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.entries.len() as u64
    }

    /// Whether the map has no block.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Where `block` is.
    #[inline]
    #[must_use]
    pub fn get(&self, block: u32) -> Entry {
        self.entries[block as usize]
    }

    /// Fetches the entries of `blocks` at once. They lie anywhere in the map, and waiting for memory one after the other
    /// is most of what relocation costs; independent loads overlap.
    #[inline]
    pub fn fetch(&self, blocks: impl Iterator<Item = u32>) {
        std::hint::black_box(
            blocks.fold(0, |sum, block| sum ^ self.entries.get(block as usize).map_or(0, |entry| entry.0)),
        );
    }

    /// Says where `block` is from now on.
    #[inline]
    pub fn set(&mut self, block: u32, entry: Entry) {
        self.replace(block, entry);
    }

    /// Says where `block` is from now on. Returns what was said before.
    #[inline]
    pub fn replace(&mut self, block: u32, entry: Entry) -> Entry {
        let old = std::mem::replace(&mut self.entries[block as usize], entry);
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
        let entries = &mut self.entries[first..];
        let len = entries.len().min(REGION_ENTRIES);
        let (mut mapped, mut is_bad) = (0, false);
        for (entry, word) in entries[..len].iter_mut().zip(words) {
            let loaded = Entry(u32::from_le_bytes(*word));
            mapped += i32::from(loaded != Entry::UNMAPPED) - i32::from(*entry != Entry::UNMAPPED);
            is_bad |= !loaded.is_on_media() & (loaded != Entry::UNMAPPED) & (loaded != Entry::LOST);
            *entry = loaded;
        }
        let (in_region, occupied) =
            (&mut self.regions[first / REGION_ENTRIES], &mut self.spans[first / REGION_ENTRIES / SPAN_REGIONS]);
        let was_empty = *in_region == 0;
        *in_region = (i32::from(*in_region) + mapped) as u16;
        *occupied = *occupied + u16::from(was_empty) - u16::from(*in_region == 0);
        let is_buffered = |entry: &Entry| matches!(entry.place(), Place::Buffer(_));
        if is_bad { entries[..len].iter().position(is_buffered).map(|at| first + at) } else { None }
    }

    /// Makes `blocks` nowhere.
    pub fn unmap(&mut self, blocks: Range<u32>) {
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
    pub fn skip_unmapped(&self, blocks: Range<u32>, looks: &mut u64) -> u32 {
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
            let is_mapped = |entry: &Entry| *entry != Entry::UNMAPPED;
            let rest = &self.entries[next..last];
            // Whole words at a time: a loop without an exit is one that the compiler makes wide.
            let skipped = rest
                .chunks(COMPARED)
                .take_while(|chunk| !chunk.iter().fold(false, |any, entry| any | is_mapped(entry)))
                .map(<[Entry]>::len)
                .sum::<usize>();
            let found = rest[skipped..].iter().position(is_mapped);
            let looked = found.map_or(rest.len(), |at| skipped + at);
            *looks -= looked as u64;
            next += looked;
            if found.is_some() {
                return next as u32;
            }
        }
        next.min(end) as u32
    }

    /// The entries, in the order of logical blocks.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_says_what_it_was_made_of() {
        assert_eq!(Entry::UNMAPPED.place(), Place::Unmapped);
        for ppa in [0, 1, (1 << 31) - 1] {
            assert_eq!(Entry::media(Ppa(ppa)).place(), Place::Media(Ppa(ppa)));
        }
        assert_eq!(Entry::LOST.place(), Place::Lost);
        for frame in [0, 1, (1 << 31) - 3] {
            assert_eq!(Entry::buffer(Frame(frame)).place(), Place::Buffer(Frame(frame)));
        }
    }

    /// What [`Mapping::skip_unmapped`] has to find, entry by entry.
    fn first_mapped(mapping: &Mapping, blocks: Range<u32>) -> u32 {
        let end = blocks.end;
        blocks.into_iter().find(|block| mapping.get(*block) != Entry::UNMAPPED).unwrap_or(end)
    }

    #[test]
    fn what_is_mapped_is_found_as_by_looking_at_every_entry() {
        let blocks = 5_000;
        let mut mapping = Mapping::new(blocks.into());
        let mut chance = 1_u64;
        let mut below = |most: u32| {
            chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (chance >> 33) as u32 % most
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
                let words: Vec<[u8; 4]> = (0..REGION_ENTRIES).map(|at| entry(first + at).0.to_le_bytes()).collect();
                assert_eq!(one.load(first, &words), None);
                (first..blocks.min(first + REGION_ENTRIES)).for_each(|block| other.set(block as u32, entry(block)));
            }
            assert!(
                one.entries == other.entries && one.regions == other.regions && one.spans == other.spans,
                "{round}"
            );
        }
        let mut words = [Entry::UNMAPPED.0.to_le_bytes(); REGION_ENTRIES];
        words[7] = Entry::buffer(Frame(1)).0.to_le_bytes();
        assert_eq!(one.load(REGION_ENTRIES, &words), Some(REGION_ENTRIES + 7));
    }

    #[test]
    fn an_empty_map_of_any_size_takes_a_look_for_each_million_blocks() {
        let blocks = 1 << 26;
        let mut mapping = Mapping::new(blocks.into());
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

    #[test]
    fn a_mapped_block_costs_four_bytes() {
        assert_eq!(size_of::<Entry>(), 4);
    }
}
