//! The stamp store: eight bytes that stand for a block, so that a terabyte drive is simulated in a few GiB.
//!
//! Workload data is stamps. What a Flash Translation Layer writes for itself (log, checkpoints) is not: such a block is
//! kept whole on the side, its item holds the place, and its flag says so.

use super::arena::{Arena, Slot};
use super::{Fetched, StoreError};
use openftl_core::{BLOCK_BYTES, ChunkId, Frame, Frames, Geometry, Payload, PayloadMut, Stamp, TraceHash};
use std::sync::Arc;

type Block = [u8; BLOCK_BYTES];

/// Keeps a stamp and the out-of-band bytes of each block.
pub struct StampStore {
    arena: Arena,
    /// Shared with forks, until one of them writes.
    whole: Vec<Arc<Block>>,
    free: Vec<u32>,
    /// Blocks kept whole in each chunk: where it is zero no flag need be looked at.
    whole_in_chunk: Vec<u32>,
    blocks_per_chunk: u32,
}

impl StampStore {
    /// An empty store. Memory is taken chunk by chunk, as they are written.
    #[must_use]
    pub fn new(geometry: &Geometry) -> StampStore {
        StampStore {
            arena: Arena::new(geometry, size_of::<Stamp>()),
            whole: Vec::new(),
            free: Vec::new(),
            whole_in_chunk: vec![0; geometry.format().chunk_ids()],
            blocks_per_chunk: geometry.blocks_per_chunk,
        }
    }

    /// The same store in memory of its own.
    pub(super) fn fork(&self) -> Result<StampStore, StoreError> {
        Ok(StampStore {
            arena: self.arena.fork().map_err(StoreError::Memory)?,
            whole: self.whole.clone(),
            free: self.free.clone(),
            whole_in_chunk: self.whole_in_chunk.clone(),
            blocks_per_chunk: self.blocks_per_chunk,
        })
    }

    #[inline]
    pub(super) fn write(
        &mut self,
        chunk: ChunkId,
        first: u32,
        pool: &Frames,
        frames: &[Frame],
    ) -> Result<(), StoreError> {
        let slot = self.arena.slot_or_take(chunk).map_err(StoreError::Memory)?;
        for (block, frame) in (first..).zip(frames) {
            match pool.payload(*frame) {
                Payload::Stamp(stamp) => self.put(chunk, slot, block, stamp),
                Payload::Bytes(bytes) => self.put_bytes(chunk, slot, block, bytes),
            }
            super::copy_oob(pool.oob(*frame), self.arena.oob_mut(slot, block));
        }
        Ok(())
    }

    #[inline]
    pub(super) fn read(&mut self, chunk: ChunkId, block: u32, pool: &mut Frames, frame: Frame) -> Fetched {
        let slot = self.arena.slot(chunk);
        let (payload, oob) = pool.both_mut(frame);
        super::copy_oob(self.arena.oob(slot, block), oob);
        let place = self.place(chunk, slot, block);
        let item = self.item(slot, block);
        match (place, payload) {
            (None, PayloadMut::Stamp(stamp)) => *stamp = Stamp(item),
            (None, PayloadMut::Bytes(bytes)) => Stamp(item).expand(bytes),
            (Some(place), PayloadMut::Bytes(bytes)) => *bytes = *self.whole[place],
            // Bytes that a stamp stands for are never kept whole.
            (Some(_), PayloadMut::Stamp(_)) => return Fetched::Lost,
        }
        Fetched::Good
    }

    pub(super) fn add_to(&self, hash: &mut TraceHash, chunk: ChunkId, block: u32) {
        let Some(slot) = self.arena.slot_if_any(chunk) else { return };
        super::add_words(hash, self.arena.oob(slot, block));
        // The item of a block that is kept whole says where, and not what.
        if self.whole_in_chunk[chunk.0 as usize] == 0 || !self.arena.flag(slot, block) {
            hash.add(self.item(slot, block));
        }
    }

    pub(super) fn copy(&mut self, from: (ChunkId, u32), to: (ChunkId, u32)) -> Result<(), StoreError> {
        let target = self.arena.slot_or_take(to.0).map_err(StoreError::Memory)?;
        let source = self.arena.slot(from.0);
        match self.place(from.0, source, from.1) {
            None => {
                let stamp = Stamp(self.item(source, from.1));
                self.put(to.0, target, to.1, stamp);
            }
            Some(place) => {
                let block = *self.whole[place];
                self.put_bytes(to.0, target, to.1, &block);
            }
        }
        let oob = self.arena.oob(source, from.1).to_vec();
        self.arena.oob_mut(target, to.1).copy_from_slice(&oob);
        Ok(())
    }

    pub(super) fn corrupt(&mut self, chunk: ChunkId, block: u32) {
        let slot = self.arena.slot(chunk);
        match self.place(chunk, slot, block) {
            None => self.arena.item_mut(slot, block)[0] ^= 1,
            Some(place) => Arc::make_mut(&mut self.whole[place])[0] ^= 1,
        }
    }

    pub(super) fn exchange(&mut self, one: (ChunkId, u32), other: (ChunkId, u32)) {
        let slots = (self.arena.slot(one.0), self.arena.slot(other.0));
        // Where a block is kept whole its item says where, and its flag goes with it.
        let is_whole = [self.place(one.0, slots.0, one.1).is_some(), self.place(other.0, slots.1, other.1).is_some()];
        self.arena.exchange((slots.0, one.1), (slots.1, other.1));
        for ((chunk, block), slot, was, is) in
            [(one, slots.0, is_whole[0], is_whole[1]), (other, slots.1, is_whole[1], is_whole[0])]
        {
            if was != is {
                let (byte, bit) = self.arena.flag_mut(slot, block);
                *byte ^= bit;
                let whole = &mut self.whole_in_chunk[chunk.0 as usize];
                *whole = if is { *whole + 1 } else { *whole - 1 };
            }
        }
    }

    pub(super) fn discard(&mut self, chunk: ChunkId) {
        if self.whole_in_chunk[chunk.0 as usize] > 0 {
            let slot = self.arena.slot(chunk);
            for block in 0..self.blocks_per_chunk {
                self.drop_whole(chunk, slot, block);
            }
        }
        self.arena.release(chunk);
    }

    #[inline]
    fn item(&self, slot: Slot, block: u32) -> u64 {
        u64::from_le_bytes(*self.arena.item(slot, block).first_chunk().expect("an item is eight bytes"))
    }

    /// Where `block` is kept whole, if it is.
    #[inline]
    fn place(&mut self, chunk: ChunkId, slot: Slot, block: u32) -> Option<usize> {
        if self.whole_in_chunk[chunk.0 as usize] == 0 {
            return None;
        }
        let (byte, bit) = self.arena.flag_mut(slot, block);
        (*byte & bit != 0).then(|| self.item(slot, block) as usize)
    }

    #[inline]
    fn put(&mut self, chunk: ChunkId, slot: Slot, block: u32, stamp: Stamp) {
        if self.whole_in_chunk[chunk.0 as usize] > 0 {
            self.drop_whole(chunk, slot, block);
        }
        self.arena.item_mut(slot, block).copy_from_slice(&stamp.0.to_le_bytes());
    }

    fn put_bytes(&mut self, chunk: ChunkId, slot: Slot, block: u32, bytes: &Block) {
        if let Some(stamp) = Stamp::recognise(bytes) {
            return self.put(chunk, slot, block, stamp);
        }
        self.drop_whole(chunk, slot, block);
        let place = match self.free.pop() {
            Some(place) => {
                match Arc::get_mut(&mut self.whole[place as usize]) {
                    Some(own) => *own = *bytes,
                    None => self.whole[place as usize] = Arc::new(*bytes),
                }
                place
            }
            None => {
                self.whole.push(Arc::new(*bytes));
                self.whole.len() as u32 - 1
            }
        };
        self.arena.item_mut(slot, block).copy_from_slice(&u64::from(place).to_le_bytes());
        let (byte, bit) = self.arena.flag_mut(slot, block);
        *byte |= bit;
        self.whole_in_chunk[chunk.0 as usize] += 1;
    }

    fn drop_whole(&mut self, chunk: ChunkId, slot: Slot, block: u32) {
        if let Some(place) = self.place(chunk, slot, block) {
            self.free.push(place as u32);
            let (byte, bit) = self.arena.flag_mut(slot, block);
            *byte &= !bit;
            self.whole_in_chunk[chunk.0 as usize] -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use openftl_core::FrameForm;

    #[test]
    fn blocks_kept_whole_come_back_and_their_places_are_used_again() {
        let geometry = Geometry::tiny();
        let mut store = StampStore::new(&geometry);
        let mut frames = Frames::new(2, 1, 16);
        let page = frames.acquire(FrameForm::Bytes).unwrap();
        let other = frames.acquire(FrameForm::Bytes).unwrap();
        let stamp = frames.acquire(FrameForm::Stamp).unwrap();
        for round in 0..3 {
            for block in 0..16 {
                frames.bytes_mut(page).fill(block as u8 + round + 1);
                store.write(ChunkId(5), block, &frames, &[page]).unwrap();
            }
            for block in 0..16 {
                assert_eq!(store.read(ChunkId(5), block, &mut frames, other), Fetched::Good);
                assert_eq!(frames.bytes(other), &[block as u8 + round + 1; BLOCK_BYTES]);
                assert_eq!(store.read(ChunkId(5), block, &mut frames, stamp), Fetched::Lost);
            }
            store.discard(ChunkId(5));
        }
        assert_eq!((store.whole.len(), store.free.len()), (16, 16));
    }

    #[test]
    fn a_block_kept_whole_changes_places_with_a_stamp_and_its_place_is_used_again() {
        let mut store = StampStore::new(&Geometry::tiny());
        let mut frames = Frames::new(2, 1, 16);
        let page = frames.acquire(FrameForm::Bytes).unwrap();
        let other = frames.acquire(FrameForm::Bytes).unwrap();
        let stamp = frames.acquire(FrameForm::Stamp).unwrap();
        frames.bytes_mut(page).fill(7);
        store.write(ChunkId(1), 3, &frames, &[page]).unwrap();
        store.write(ChunkId(2), 0, &frames, &[stamp]).unwrap();
        store.exchange((ChunkId(1), 3), (ChunkId(2), 0));
        assert_eq!(store.read(ChunkId(2), 0, &mut frames, other), Fetched::Good);
        assert_eq!(frames.bytes(other), frames.bytes(page));
        assert_eq!(store.read(ChunkId(1), 3, &mut frames, stamp), Fetched::Good);
        assert_eq!(frames.payload(stamp), Payload::Stamp(Stamp::ZERO));
        store.discard(ChunkId(1));
        assert!(store.free.is_empty(), "it lies in the other chunk now");
        store.discard(ChunkId(2));
        assert_eq!((store.whole.len(), store.free.len()), (1, 1));
    }

    #[test]
    fn bytes_that_a_stamp_stands_for_are_kept_as_the_stamp() {
        let mut store = StampStore::new(&Geometry::tiny());
        let mut frames = Frames::new(1, 1, 16);
        let page = frames.acquire(FrameForm::Bytes).unwrap();
        let stamp = frames.acquire(FrameForm::Stamp).unwrap();
        Stamp(99).expand(frames.bytes_mut(page));
        store.write(ChunkId(0), 0, &frames, &[page]).unwrap();
        assert_eq!(store.read(ChunkId(0), 0, &mut frames, stamp), Fetched::Good);
        assert_eq!(frames.payload(stamp), Payload::Stamp(Stamp(99)));
        assert!(store.whole.is_empty());
    }
}
