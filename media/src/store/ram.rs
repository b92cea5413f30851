//! The RAM store: every byte, one copy away.

use super::arena::Arena;
use super::{Fetched, StoreError};
use openftl_core::{BLOCK_BYTES, ChunkId, Frame, Frames, Geometry, Payload, PayloadMut, Stamp, TraceHash};

/// Keeps every byte in memory.
pub struct RamStore {
    arena: Arena,
}

impl RamStore {
    /// An empty store. Memory is taken chunk by chunk, as they are written.
    #[must_use]
    pub fn new(geometry: &Geometry) -> RamStore {
        RamStore { arena: Arena::new(geometry, BLOCK_BYTES) }
    }

    /// The same store in memory of its own.
    pub(super) fn fork(&self) -> Result<RamStore, StoreError> {
        Ok(RamStore { arena: self.arena.fork().map_err(StoreError::Memory)? })
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
            let item = self.arena.item_mut(slot, block);
            match pool.payload(*frame) {
                Payload::Bytes(bytes) => item.copy_from_slice(bytes),
                Payload::Stamp(stamp) => stamp.expand(whole(item)),
            }
            self.arena.oob_mut(slot, block).copy_from_slice(pool.oob(*frame));
        }
        Ok(())
    }

    #[inline]
    pub(super) fn read(&self, chunk: ChunkId, block: u32, pool: &mut Frames, frame: Frame) -> Fetched {
        let slot = self.arena.slot(chunk);
        let item = self.arena.item(slot, block);
        let (payload, oob) = pool.both_mut(frame);
        oob.copy_from_slice(self.arena.oob(slot, block));
        match payload {
            PayloadMut::Bytes(bytes) => bytes.copy_from_slice(item),
            PayloadMut::Stamp(stamp) => match item.first_chunk().and_then(Stamp::recognise) {
                Some(found) => *stamp = found,
                None => return Fetched::Lost,
            },
        }
        Fetched::Good
    }

    pub(super) fn add_to(&self, hash: &mut TraceHash, chunk: ChunkId, block: u32) {
        if let Some(slot) = self.arena.slot_if_any(chunk) {
            super::add_words(hash, self.arena.oob(slot, block));
        }
    }

    pub(super) fn copy(&mut self, from: (ChunkId, u32), to: (ChunkId, u32)) -> Result<(), StoreError> {
        let target = self.arena.slot_or_take(to.0).map_err(StoreError::Memory)?;
        let source = self.arena.slot(from.0);
        // Through the stack, so that no two slices of the arena are alive at once; copies are rare.
        let mut block = [0; BLOCK_BYTES];
        block.copy_from_slice(self.arena.item(source, from.1));
        self.arena.item_mut(target, to.1).copy_from_slice(&block);
        let oob_bytes = self.arena.oob(source, from.1).len();
        block[..oob_bytes].copy_from_slice(self.arena.oob(source, from.1));
        self.arena.oob_mut(target, to.1).copy_from_slice(&block[..oob_bytes]);
        Ok(())
    }

    pub(super) fn corrupt(&mut self, chunk: ChunkId, block: u32) {
        let slot = self.arena.slot(chunk);
        self.arena.item_mut(slot, block)[0] ^= 1;
    }

    pub(super) fn exchange(&mut self, one: (ChunkId, u32), other: (ChunkId, u32)) {
        let slots = (self.arena.slot(one.0), self.arena.slot(other.0));
        self.arena.exchange((slots.0, one.1), (slots.1, other.1));
    }

    pub(super) fn discard(&mut self, chunk: ChunkId) {
        self.arena.release(chunk);
    }
}

fn whole(item: &mut [u8]) -> &mut [u8; BLOCK_BYTES] {
    item.first_chunk_mut().expect("an item of this store is a block")
}
