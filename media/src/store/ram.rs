//! The RAM store: every byte, and no copy of any.
//!
//! ```text
//!   frame ──program──▶ page ◀── (chunk, block)        relocation: the page of a block, held by its new place, too,
//!     ▲                  │                            until the chunk of the old one is discarded
//!     └──────read────────┘
//! ```
//!
//! The store holds the pages that were programmed ([`openftl_core::page`]), and what it reads it shares with the frame. What a frame
//! holds after that is for the pages to keep apart: whoever changes it gets a page of its own. Out-of-band bytes are copied, for
//! the host changes those of its frames at will.

use super::arena::Arena;
use super::{Fetched, StoreError};
use openftl_core::page::{FreshPages, Page, PagePool};
use openftl_core::{ChunkId, Frame, FrameForm, Frames, Geometry, Payload, PayloadMut, Stamp, TraceHash};

/// The pages of a chunk; `None`: zeroes.
type Pages = Box<[Option<Page>]>;

/// What is known of the page so many blocks ahead of one that is read is fetched with it: blocks of a chunk are read one after the
/// other, and their pages lie anywhere.
const ANNOUNCED_AHEAD: usize = 4;

/// Keeps every byte in memory.
pub struct RamStore {
    /// By chunk; empty where nothing was written.
    chunks: Vec<Pages>,
    /// Tables of chunks that hold nothing.
    spare: Vec<Pages>,
    oob: Arena,
    fresh: FreshPages,
    blocks_per_chunk: usize,
}

impl RamStore {
    /// An empty store. Memory is taken as blocks are written.
    #[must_use]
    pub fn new(geometry: &Geometry) -> RamStore {
        RamStore {
            chunks: std::iter::repeat_with(Pages::default).take(geometry.format().chunk_ids()).collect(),
            spare: Vec::new(),
            oob: Arena::new(geometry, 0),
            fresh: FreshPages::default(),
            blocks_per_chunk: geometry.blocks_per_chunk as usize,
        }
    }

    /// Where its pages come from.
    pub(super) fn pool(&self) -> &PagePool {
        self.fresh.pool()
    }

    /// The same store once more. The two share pages, of which neither changes one that the other has.
    pub(super) fn fork(&self) -> Result<RamStore, StoreError> {
        Ok(RamStore {
            chunks: self.chunks.clone(),
            spare: Vec::new(),
            oob: self.oob.fork().map_err(StoreError::Memory)?,
            fresh: FreshPages::of(self.pool().clone()),
            blocks_per_chunk: self.blocks_per_chunk,
        })
    }

    /// The pages of `chunk`, which is written to.
    #[inline]
    fn pages_mut(&mut self, chunk: ChunkId) -> &mut Pages {
        let pages = &mut self.chunks[chunk.0 as usize];
        if pages.is_empty() {
            let fresh = || std::iter::repeat_with(|| None).take(self.blocks_per_chunk).collect();
            *pages = self.spare.pop().unwrap_or_else(fresh);
        }
        pages
    }

    /// What a block holds.
    #[inline]
    fn page(&self, (chunk, block): (ChunkId, u32)) -> &Option<Page> {
        &self.chunks[chunk.0 as usize][block as usize]
    }

    #[inline]
    pub(super) fn write(
        &mut self,
        chunk: ChunkId,
        first: u32,
        pool: &Frames,
        frames: &[Frame],
    ) -> Result<(), StoreError> {
        let slot = self.oob.slot_or_take(chunk).map_err(StoreError::Memory)?;
        for (block, frame) in (first..).zip(frames) {
            let page = match pool.payload(*frame) {
                Payload::Bytes(_) => pool.page(*frame),
                Payload::Stamp(Stamp::ZERO) => None,
                Payload::Stamp(stamp) => {
                    let mut page = self.fresh.take();
                    stamp.expand(page.bytes_mut().expect("a fresh page is nobody else's"));
                    Some(page)
                }
            };
            self.pages_mut(chunk)[block as usize] = page;
            self.oob.oob_mut(slot, block).copy_from_slice(pool.oob(*frame));
        }
        Ok(())
    }

    #[inline]
    pub(super) fn read(&self, chunk: ChunkId, block: u32, pool: &mut Frames, frame: Frame) -> Fetched {
        let page = self.page((chunk, block));
        pool.oob_mut(frame).copy_from_slice(self.oob.oob(self.oob.slot(chunk), block));
        if pool.form(frame) == FrameForm::Bytes {
            if let Some(page) = page {
                page.prefetch();
            }
            pool.put(frame, page.clone());
            if let Some(Some(ahead)) = self.chunks[chunk.0 as usize].get(block as usize + ANNOUNCED_AHEAD) {
                ahead.announce();
            }
            return Fetched::Good;
        }
        let found = page.as_ref().map_or(Some(Stamp::ZERO), |page| Stamp::recognise(page.bytes()));
        match (found, pool.payload_mut(frame)) {
            (Some(found), PayloadMut::Stamp(stamp)) => {
                *stamp = found;
                Fetched::Good
            }
            _ => Fetched::Lost,
        }
    }

    pub(super) fn add_to(&self, hash: &mut TraceHash, chunk: ChunkId, block: u32) {
        if let Some(slot) = self.oob.slot_if_any(chunk) {
            super::add_words(hash, self.oob.oob(slot, block));
        }
    }

    pub(super) fn copy(&mut self, from: (ChunkId, u32), to: (ChunkId, u32)) -> Result<(), StoreError> {
        let target = self.oob.slot_or_take(to.0).map_err(StoreError::Memory)?;
        let page = self.page(from).clone();
        self.pages_mut(to.0)[to.1 as usize] = page;
        self.oob.copy((self.oob.slot(from.0), from.1), (target, to.1));
        Ok(())
    }

    pub(super) fn corrupt(&mut self, chunk: ChunkId, block: u32) {
        let page = &mut self.chunks[chunk.0 as usize][block as usize];
        self.fresh.make_own(page);
        let bytes = page.as_mut().and_then(Page::bytes_mut).expect("a page of its own");
        bytes[0] ^= 1;
    }

    pub(super) fn exchange(&mut self, one: (ChunkId, u32), other: (ChunkId, u32)) {
        let slots = (self.oob.slot(one.0), self.oob.slot(other.0));
        self.oob.exchange((slots.0, one.1), (slots.1, other.1));
        let page = self.page(one).clone();
        let page = std::mem::replace(&mut self.chunks[other.0.0 as usize][other.1 as usize], page);
        self.chunks[one.0.0 as usize][one.1 as usize] = page;
    }

    pub(super) fn discard(&mut self, chunk: ChunkId) {
        let mut pages = std::mem::take(&mut self.chunks[chunk.0 as usize]);
        if !pages.is_empty() {
            self.fresh.pool().give_back(pages.iter_mut().filter_map(Option::take));
            self.spare.push(pages);
        }
        self.oob.release(chunk);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use openftl_core::BLOCK_BYTES;

    const HERE: (ChunkId, u32) = (ChunkId(1), 3);
    const THERE: (ChunkId, u32) = (ChunkId(2), 0);

    struct Bench {
        store: RamStore,
        frames: Frames,
        one: Frame,
        other: Frame,
    }

    /// A store that holds a block of sevens [`HERE`], and two frames.
    fn bench() -> Bench {
        let mut store = RamStore::new(&Geometry::tiny());
        let mut frames = Frames::on(store.pool().clone(), 2, 1, 16);
        let (one, other) = (Frame(0), Frame(1));
        frames.bytes_mut(one).fill(7);
        frames.oob_mut(one).fill(8);
        store.write(HERE.0, HERE.1, &frames, &[one]).unwrap();
        Bench { store, frames, one, other }
    }

    impl Bench {
        /// The first byte of a block and of its out-of-band bytes, as the other frame gets them.
        fn read(&mut self, (chunk, block): (ChunkId, u32)) -> (u8, u8) {
            assert_eq!(self.store.read(chunk, block, &mut self.frames, self.other), Fetched::Good);
            (self.frames.bytes(self.other)[0], self.frames.oob(self.other)[0])
        }

        fn place_in_memory(&self, frame: Frame) -> *const u8 {
            self.frames.bytes(frame).as_ptr()
        }
    }

    #[test]
    fn a_block_is_programmed_relocated_and_read_without_a_copy() {
        let mut bench = bench();
        let place = bench.place_in_memory(bench.one);
        assert_eq!(bench.read(HERE), (7, 8));
        assert_eq!(bench.place_in_memory(bench.other), place);
        bench.store.write(THERE.0, THERE.1, &bench.frames, &[bench.other]).unwrap();
        bench.store.copy(THERE, (THERE.0, 1)).unwrap();
        bench.store.discard(HERE.0);
        for block in [THERE, (THERE.0, 1)] {
            assert_eq!(bench.read(block), (7, 8));
            assert_eq!(bench.place_in_memory(bench.other), place);
        }
        assert_eq!(bench.frames.bytes_copied(), 0);
    }

    #[test]
    fn nothing_that_happens_to_a_frame_or_to_another_block_reaches_a_block() {
        let mut bench = bench();
        bench.frames.bytes_mut(bench.one).fill(1);
        bench.frames.oob_mut(bench.one).fill(1);
        assert_eq!(bench.read(HERE), (7, 8));
        bench.frames.bytes_mut(bench.other)[0] = 2;
        assert_eq!(bench.read(HERE), (7, 8));
        bench.store.copy(HERE, THERE).unwrap();
        bench.store.corrupt(THERE.0, THERE.1);
        assert_eq!((bench.read(HERE), bench.read(THERE)), ((7, 8), (6, 8)));
    }

    #[test]
    fn a_fork_and_its_original_do_not_see_each_other_s_changes() {
        let mut bench = bench();
        let fork = bench.store.fork().unwrap();
        let original = std::mem::replace(&mut bench.store, fork);
        bench.store.corrupt(HERE.0, HERE.1);
        bench.store.write(HERE.0, 4, &bench.frames, &[bench.one]).unwrap();
        assert_eq!(bench.read(HERE), (6, 8));
        bench.store.discard(HERE.0);
        bench.store = original;
        assert_eq!(bench.read(HERE), (7, 8));
    }

    #[test]
    fn a_store_that_is_written_again_and_again_needs_no_more_memory_also_by_other_pools_of_frames() {
        let geometry = Geometry::tiny();
        let mut store = RamStore::new(&geometry);
        for round in 0..200_u32 {
            let mut frames = Frames::on(store.pool().clone(), 4, 0, 16);
            for block in 0..geometry.blocks_per_chunk {
                let frame = frames.acquire(FrameForm::Bytes).unwrap();
                frames.bytes_mut(frame).fill(round as u8);
                store.write(ChunkId(round % 3), block, &frames, &[frame]).unwrap();
                frames.release(frame);
            }
            store.discard(ChunkId((round + 1) % 3));
        }
        assert!(store.pool().pages() <= 256, "{:?}", store.pool());
    }

    #[test]
    fn zeroes_and_stamps_are_read_as_either() {
        let mut bench = bench();
        let stamp = Frame(2);
        for value in [0, 99] {
            *payload_of(&mut bench.frames, stamp) = Stamp(value);
            bench.store.write(THERE.0, 0, &bench.frames, &[stamp]).unwrap();
            let mut expanded = [1; BLOCK_BYTES];
            Stamp(value).expand(&mut expanded);
            bench.read(THERE);
            assert_eq!(bench.frames.bytes(bench.other), &expanded);
            *payload_of(&mut bench.frames, stamp) = Stamp(1);
            assert_eq!(bench.store.read(THERE.0, 0, &mut bench.frames, stamp), Fetched::Good);
            assert_eq!(bench.frames.payload(stamp), Payload::Stamp(Stamp(value)));
        }
        assert_eq!(bench.store.read(HERE.0, HERE.1, &mut bench.frames, stamp), Fetched::Lost);
    }

    fn payload_of(frames: &mut Frames, frame: Frame) -> &mut Stamp {
        match frames.payload_mut(frame) {
            PayloadMut::Stamp(stamp) => stamp,
            PayloadMut::Bytes(_) => panic!("a stamp frame"),
        }
    }
}
