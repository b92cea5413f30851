//! Map traffic of schemes that load a map page before they change it: a model beside the map that drives here have.
//!
//! ```text
//!   load ─▶ page FTL, greedy ─▶ read │ write │ relocated ─▶ cache 1 ─▶ map blocks read and programmed
//!                                                        └▶ cache 2 ─▶ …
//! ```
//!
//! | scheme | an item | a miss reads | a changed item that leaves |
//! |---|---|---|---|
//! | [pages](MapCache::of_pages) | one map page of 4 KiB, or several | the item | programs the item |
//! | [entries](MapCache::of_entries), as in DFTL | one entry, at 8 bytes | its map page | reads and programs its map page |
//!
//! Items leave in the order of their last use. A relocated block changes its item in place if the item is in the cache; the others
//! of a victim are read and programmed once for each map page.
//!
//! The model favours these schemes: map pages have one copy, their chunks need no collection, lists and directory take no memory
//! beyond what the caller takes off, and a crash is no concern.

use openftl_lab::load::{Access, Load, Operation};
use openftl_parts::map::ENTRIES_PER_BLOCK;
use std::ops::Range;

/// Bytes of an entry that is cached by itself: the logical block and its place.
pub const ENTRY_BYTES: u64 = 8;

const PAGE_BITS: u32 = ENTRIES_PER_BLOCK.ilog2();

/// Blocks of the map that were read and programmed.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct MapTraffic {
    /// Read.
    pub reads: u64,
    /// Programmed.
    pub programs: u64,
}

/// Items in the order of their last use.
struct Recency {
    /// Neighbours of each item in a ring, the newer one first. The last element is the ring's end.
    links: Vec<[u32; 2]>,
    state: Vec<State>,
    len: usize,
    max: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Absent,
    Clean,
    Changed,
    /// It stays, changed or not, and is in no list.
    Pinned,
}

impl Recency {
    fn new(items: usize, max: usize) -> Recency {
        let end = items as u32;
        let mut links = vec![[u32::MAX; 2]; items + 1];
        links[items] = [end; 2];
        Recency { links, state: vec![State::Absent; items], len: 0, max: max.max(1) }
    }

    fn unlink(&mut self, item: u32) {
        let [newer, older] = self.links[item as usize];
        self.links[newer as usize][1] = older;
        self.links[older as usize][0] = newer;
    }

    fn link(&mut self, item: u32) {
        let end = self.state.len() as u32;
        let oldest_side = self.links[end as usize][1];
        self.links[item as usize] = [end, oldest_side];
        self.links[end as usize][1] = item;
        self.links[oldest_side as usize][0] = item;
    }

    /// Uses an item that is in the cache. Returns whether it is.
    fn touch(&mut self, item: u32, is_change: bool) -> bool {
        match self.state[item as usize] {
            State::Absent => return false,
            State::Pinned => return true,
            State::Clean | State::Changed => {}
        }
        self.unlink(item);
        self.link(item);
        if is_change {
            self.state[item as usize] = State::Changed;
        }
        true
    }

    /// Puts an item in that is not there. Returns the changed item that leaves for it.
    fn insert(&mut self, item: u32, is_change: bool) -> Option<u32> {
        let oldest = self.links[self.state.len()][0];
        let mut leaving = None;
        if self.len >= self.max && oldest as usize != self.state.len() {
            self.unlink(oldest);
            self.len -= 1;
            let state = std::mem::replace(&mut self.state[oldest as usize], State::Absent);
            leaving = (state == State::Changed).then_some(oldest);
        }
        self.link(item);
        self.len += 1;
        self.state[item as usize] = if is_change { State::Changed } else { State::Clean };
        leaving
    }
}

/// A cache of a map, and its traffic so far.
pub struct MapCache {
    items: Recency,
    /// Logical blocks of an item, as a power of two.
    item_bits: u32,
    /// Map pages of an item; of an entry 1.
    item_pages: u64,
    /// Whether a changed item is less than what has to be programmed for it.
    is_part_of_page: bool,
    traffic: MapTraffic,
    /// Map pages of a victim, for a moment.
    pages: Vec<u32>,
}

impl MapCache {
    /// A cache of items of `pages` map pages each (a power of two), for a map of so many logical blocks.
    #[must_use]
    pub fn of_pages(pages: u32, blocks: u64, pool_bytes: u64) -> MapCache {
        let item_bits = PAGE_BITS + pages.ilog2();
        let max = pool_bytes / (u64::from(pages) * (ENTRIES_PER_BLOCK as u64 * 4));
        MapCache::new(item_bits, pages.into(), false, blocks, max)
    }

    /// A cache of single entries.
    #[must_use]
    pub fn of_entries(blocks: u64, pool_bytes: u64) -> MapCache {
        MapCache::new(0, 1, true, blocks, pool_bytes / ENTRY_BYTES)
    }

    fn new(item_bits: u32, item_pages: u64, is_part_of_page: bool, blocks: u64, max: u64) -> MapCache {
        let items = blocks.div_ceil(1 << item_bits) as usize;
        let (traffic, pages) = (MapTraffic::default(), Vec::new());
        MapCache { items: Recency::new(items, max as usize), item_bits, item_pages, is_part_of_page, traffic, pages }
    }

    /// The items of these blocks are in the cache from now on, as far as half of it has room for them.
    #[must_use]
    pub fn pinned(mut self, blocks: Range<u64>) -> MapCache {
        let items = (blocks.start >> self.item_bits)..blocks.end.div_ceil(1 << self.item_bits);
        for item in items.take(self.items.max / 2) {
            self.items.state[item as usize] = State::Pinned;
            self.items.len += 1;
        }
        self
    }

    /// Its traffic so far.
    #[must_use]
    pub fn traffic(&self) -> MapTraffic {
        self.traffic
    }

    /// The host reads or writes a block.
    fn use_block(&mut self, block: u32, is_change: bool) {
        let item = block >> self.item_bits;
        if self.items.touch(item, is_change) {
            return;
        }
        self.traffic.reads += self.item_pages;
        if self.items.insert(item, is_change).is_some() {
            self.traffic.reads += u64::from(self.is_part_of_page);
            self.traffic.programs += self.item_pages;
        }
    }

    /// The blocks of a victim have moved.
    fn relocated(&mut self, blocks: &[u32]) {
        self.pages.clear();
        for &block in blocks {
            let item = block >> self.item_bits;
            match &mut self.items.state[item as usize] {
                State::Absent => self.pages.push(block >> PAGE_BITS),
                State::Pinned => {}
                state => *state = State::Changed,
            }
        }
        self.pages.sort_unstable();
        self.pages.dedup();
        self.traffic.reads += self.pages.len() as u64;
        self.traffic.programs += self.pages.len() as u64;
    }
}

/// The flash of the model.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flash {
    /// Logical blocks.
    pub capacity_blocks: u64,
    /// Chunks for data.
    pub chunks: u32,
    /// Blocks of a chunk.
    pub chunk_blocks: u32,
}

const NOWHERE: u32 = u32::MAX;

/// Chunks that collection keeps free.
const FREE_MIN: usize = 4;

/// A page FTL with one open chunk for the host and one for collection, which takes the chunk with the fewest valid blocks.
struct PageFtl {
    flash: Flash,
    place: Vec<u32>,
    owner: Vec<u32>,
    valid: Vec<u32>,
    is_closed: Vec<bool>,
    free: Vec<u32>,
    open: [Option<(u32, u32)>; 2],
    relocated: u64,
    moved: Vec<u32>,
}

impl PageFtl {
    fn new(flash: Flash) -> PageFtl {
        let chunks = flash.chunks as usize;
        PageFtl {
            flash,
            place: vec![NOWHERE; flash.capacity_blocks as usize],
            owner: vec![NOWHERE; chunks * flash.chunk_blocks as usize],
            valid: vec![0; chunks],
            is_closed: vec![false; chunks],
            free: (0..flash.chunks).rev().collect(),
            open: [None; 2],
            relocated: 0,
            moved: Vec::new(),
        }
    }

    fn program(&mut self, frontier: usize, block: u32) {
        let (chunk, next) = self.open[frontier].take().unwrap_or_else(|| {
            let chunk = self.free.pop().expect("the flash has chunks beyond the capacity");
            (chunk, 0)
        });
        let old = std::mem::replace(&mut self.place[block as usize], chunk * self.flash.chunk_blocks + next);
        if old != NOWHERE {
            self.owner[old as usize] = NOWHERE;
            self.valid[(old / self.flash.chunk_blocks) as usize] -= 1;
        }
        self.owner[(chunk * self.flash.chunk_blocks + next) as usize] = block;
        self.valid[chunk as usize] += 1;
        match next + 1 == self.flash.chunk_blocks {
            true => self.is_closed[chunk as usize] = true,
            false => self.open[frontier] = Some((chunk, next + 1)),
        }
    }

    fn write(&mut self, block: u32, caches: &mut [MapCache]) {
        while self.free.len() < FREE_MIN {
            self.collect(caches);
        }
        self.program(0, block);
    }

    fn collect(&mut self, caches: &mut [MapCache]) {
        let closed = (0..self.flash.chunks).filter(|chunk| self.is_closed[*chunk as usize]);
        let victim = closed.min_by_key(|chunk| self.valid[*chunk as usize]).expect("some chunk is full");
        let first = (victim * self.flash.chunk_blocks) as usize;
        let mut moved = std::mem::take(&mut self.moved);
        moved.clear();
        moved.extend(self.owner[first..first + self.flash.chunk_blocks as usize].iter().filter(|at| **at != NOWHERE));
        self.is_closed[victim as usize] = false;
        for &block in &moved {
            self.program(1, block);
        }
        self.free.push(victim);
        self.relocated += moved.len() as u64;
        caches.iter_mut().for_each(|cache| cache.relocated(&moved));
        self.moved = moved;
    }
}

/// How long a load runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lengths {
    /// Blocks that are written before anything counts.
    pub warm_up_writes: u64,
    /// Requests after that, which do not count either.
    pub warm_up_requests: u64,
    /// Requests that count.
    pub requests: u64,
}

/// What counted.
#[derive(Clone, PartialEq, Debug)]
pub struct Replayed {
    /// Requests.
    pub requests: u64,
    /// Blocks that the host read and wrote.
    pub moved: u64,
    /// Blocks that the host wrote.
    pub written: u64,
    /// Blocks that collection moved.
    pub relocated: u64,
    /// The traffic of each cache.
    pub traffic: Vec<MapTraffic>,
}

/// Runs a load over the model: fills it, warms it up, and counts.
pub fn replay(load: &mut dyn Load, flash: Flash, lengths: Lengths, mut caches: Vec<MapCache>) -> Replayed {
    let mut ftl = PageFtl::new(flash);
    let mut host = |access: Access, caches: &mut [MapCache]| {
        let blocks = access.first as u32..(access.first + u64::from(access.blocks)) as u32;
        let is_write = access.operation == Operation::Write;
        if !is_write && access.operation != Operation::Read {
            return (0, [0; 2], ftl.relocated);
        }
        for block in blocks.clone() {
            caches.iter_mut().for_each(|cache| cache.use_block(block, is_write));
            if is_write {
                ftl.write(block, caches);
            }
        }
        let count = blocks.len() as u64;
        (1, [count, if is_write { count } else { 0 }], ftl.relocated)
    };
    while let Some(access) = load.fill_step() {
        host(access, &mut caches);
    }
    let mut run = |writes_max: u64, requests_max: u64, caches: &mut [MapCache]| {
        let (mut requests, mut moved, mut written, mut relocated) = (0, 0, 0, 0);
        while written < writes_max
            && requests < requests_max
            && let Some(access) = load.step()
        {
            let (request, [all, writes], in_all) = host(access, caches);
            (requests, moved, written, relocated) = (requests + request, moved + all, written + writes, in_all);
        }
        (requests, moved, written, relocated)
    };
    let (_, _, _, relocated) = run(lengths.warm_up_writes, u64::MAX, &mut caches);
    let (_, _, _, again) = run(u64::MAX, lengths.warm_up_requests, &mut caches);
    let before: Vec<MapTraffic> = caches.iter().map(MapCache::traffic).collect();
    let (requests, moved, written, end) = run(u64::MAX, lengths.requests, &mut caches);
    let traffic = caches.iter().zip(&before).map(|(cache, before)| MapTraffic {
        reads: cache.traffic.reads - before.reads,
        programs: cache.traffic.programs - before.programs,
    });
    Replayed { requests, moved, written, relocated: end - relocated.max(again), traffic: traffic.collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use openftl_core::units::Share;
    use openftl_lab::theory;
    use openftl_lab::workload::{Pattern, Workload, WorkloadConfig};

    const BLOCKS: u64 = 1 << 16;

    fn load(reads: Share) -> Workload {
        let pattern = Pattern::Uniform;
        Workload::new(&WorkloadConfig { pattern, read_share: reads, access_blocks: 1, drive_blocks: BLOCKS, seed: 7 })
    }

    fn flash() -> Flash {
        Flash { capacity_blocks: BLOCKS, chunks: 1312, chunk_blocks: 64 }
    }

    fn replayed(reads: Share, caches: Vec<MapCache>) -> Replayed {
        let lengths = Lengths { warm_up_writes: 2 * BLOCKS, warm_up_requests: 0, requests: BLOCKS };
        let lengths = if reads == Share::percent(100) {
            Lengths { warm_up_writes: 0, warm_up_requests: BLOCKS, ..lengths }
        } else {
            lengths
        };
        replay(&mut load(reads), flash(), lengths, caches)
    }

    /// The share of misses, of a uniform load, is the share of the map that is not in the cache.
    #[test]
    fn uniform_reads_miss_what_the_cache_has_no_room_for() {
        let (pages, entries) = (4096 * 16, ENTRY_BYTES * BLOCKS / 4);
        let caches = vec![MapCache::of_pages(1, BLOCKS, pages), MapCache::of_entries(BLOCKS, entries)];
        let Replayed { requests, moved: _, written: 0, relocated: 0, traffic } = replayed(Share::percent(100), caches)
        else {
            panic!("nothing is written");
        };
        for traffic in traffic {
            let misses = traffic.reads as f64 / requests as f64;
            // The fill has left some that are changed.
            assert!((misses - 0.75).abs() < 0.01 && traffic.programs <= 16, "{traffic:?}");
        }
    }

    /// All relocated blocks, and nearly all written ones, find no entry: each costs the read and the program of its page.
    #[test]
    fn without_memory_each_write_and_each_relocated_block_costs_its_page() {
        let caches = vec![MapCache::of_entries(BLOCKS, ENTRY_BYTES), MapCache::of_pages(1, BLOCKS, u64::MAX)];
        let Replayed { requests, moved, written, relocated, traffic } = replayed(Share::percent(0), caches);
        assert_eq!([requests, moved], [written; 2]);
        let waf = 1.0 + relocated as f64 / written as f64;
        assert!((waf - theory::greedy(1312.0 * 64.0 / BLOCKS as f64 - 1.0, 64)).abs() < 0.15, "{waf}");
        assert!(traffic[0].programs >= written * 99 / 100 && traffic[0].reads >= 2 * written * 99 / 100, "{traffic:?}");
        assert_eq!(traffic[1], MapTraffic::default(), "all of the map is in memory");
    }

    #[test]
    fn the_oldest_item_leaves_and_a_pinned_one_stays() {
        let mut cache = MapCache::of_entries(100, 3 * ENTRY_BYTES).pinned(50..60);
        for (block, is_change) in [(1, false), (2, true), (1, false), (3, false), (50, true), (4, false)] {
            cache.use_block(block, is_change);
        }
        // One of three is pinned; 2 was changed and left for 3, and 1, used again, for 4.
        assert_eq!(cache.traffic(), MapTraffic { reads: 4 + 1, programs: 1 });
        cache.use_block(3, false);
        cache.use_block(50, true);
        assert_eq!(cache.traffic().reads, 5);
        cache.relocated(&[3, 90, 91]);
        assert_eq!(cache.traffic(), MapTraffic { reads: 6, programs: 2 });
    }

    #[test]
    fn an_item_of_sixteen_pages_is_read_and_programmed_as_a_whole() {
        let mut cache = MapCache::of_pages(16, 1 << 20, 16 * 4096);
        cache.use_block(5, true);
        cache.use_block(16_383, true);
        assert_eq!(cache.traffic(), MapTraffic { reads: 16, programs: 0 });
        cache.use_block(16_384, false);
        assert_eq!(cache.traffic(), MapTraffic { reads: 32, programs: 16 });
    }
}
