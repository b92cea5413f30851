//! An arena: memory for the chunks that hold something.
//!
//! A chunk gets a slot when it is first written and gives it back when it is reset. Slots are cut from large anonymous
//! mappings and handed on, never returned to the system: after a drive has been filled once, writing it again causes no
//! page fault. A small device has small ones, taken from the heap, so that copying it costs as much as was written to it.
//!
//! ```text
//! slot   [item 0][oob 0] [item 1][oob 1] … [item n−1][oob n−1] [one bit a block] [to a full page, or cache line]
//! ```
//!
//! Item and out-of-band bytes lie side by side, so that a random read misses the processor's caches once and not twice.

use openftl_core::memory::Mapping;
use openftl_core::{ChunkId, Geometry};
use rustix::io::Errno;
use std::ptr::NonNull;

/// Slots are cut from mappings of about this many bytes.
const MAPPING_BYTES: usize = 64 << 20;
/// The same of a device that needs no more than one of those: such devices are copied again and again in simulations.
const SMALL_MAPPING_BYTES: usize = 256 << 10;
const PAGE_BYTES: usize = 4096;
const CACHE_LINE_BYTES: usize = 64;
const NO_SLOT: u32 = u32::MAX;

/// Memory for chunks, `item_bytes` and the out-of-band bytes for each block.
pub struct Arena {
    mappings: Vec<Mapping>,
    slot_of: Vec<u32>,
    free: Vec<u32>,
    item_bytes: usize,
    oob_bytes: usize,
    stride: usize,
    flags_start: usize,
    slot_bytes: usize,
    /// A power of two, this one: every access asks where a slot is.
    slots_per_mapping_log2: u32,
}

/// Where the memory of one chunk begins.
#[derive(Clone, Copy)]
pub struct Slot(NonNull<u8>);

impl Arena {
    /// An arena without memory so far.
    #[must_use]
    pub fn new(geometry: &Geometry, item_bytes: usize) -> Arena {
        let blocks = geometry.blocks_per_chunk as usize;
        let oob_bytes = geometry.oob_bytes as usize;
        let stride = (item_bytes + oob_bytes).next_multiple_of(8);
        let flags_start = blocks * stride;
        let used = flags_start + blocks.div_ceil(64) * 8;
        let slot_bytes = used.next_multiple_of(if used < PAGE_BYTES { CACHE_LINE_BYTES } else { PAGE_BYTES });
        let is_small = geometry.chunks().saturating_mul(slot_bytes as u64) <= MAPPING_BYTES as u64;
        let mapping_bytes = if is_small { SMALL_MAPPING_BYTES } else { MAPPING_BYTES };
        let slots = geometry.chunks().min((mapping_bytes / slot_bytes) as u64).max(1);
        Arena {
            mappings: Vec::new(),
            slot_of: vec![NO_SLOT; geometry.format().chunk_ids()],
            free: Vec::new(),
            item_bytes,
            oob_bytes,
            stride,
            flags_start,
            slot_bytes,
            slots_per_mapping_log2: slots.ilog2(),
        }
    }

    #[inline]
    fn slots_per_mapping(&self) -> u32 {
        1 << self.slots_per_mapping_log2
    }

    /// The slot of `chunk`, which has one because something was written to it.
    #[inline]
    pub fn slot(&self, chunk: ChunkId) -> Slot {
        self.base(self.slot_of[chunk.0 as usize])
    }

    /// The slot of `chunk`, if it has one.
    pub fn slot_if_any(&self, chunk: ChunkId) -> Option<Slot> {
        let slot = self.slot_of[chunk.0 as usize];
        (slot != NO_SLOT).then(|| self.base(slot))
    }

    /// The slot of `chunk`, taken now if it has none.
    #[inline]
    pub fn slot_or_take(&mut self, chunk: ChunkId) -> Result<Slot, Errno> {
        let slot = self.slot_of[chunk.0 as usize];
        if slot == NO_SLOT { self.take(chunk) } else { Ok(self.base(slot)) }
    }

    #[inline]
    fn base(&self, slot: u32) -> Slot {
        let mapping = &self.mappings[(slot >> self.slots_per_mapping_log2) as usize];
        let offset = (slot & (self.slots_per_mapping() - 1)) as usize * self.slot_bytes;
        debug_assert!(offset + self.slot_bytes <= mapping.bytes(), "a slot lies inside its mapping");
        // SAFETY: slot numbers are only made by `take`, inside a mapping of `slots_per_mapping` × slot_bytes.
        Slot(unsafe { mapping.base().add(offset) })
    }

    #[cold]
    fn take(&mut self, chunk: ChunkId) -> Result<Slot, Errno> {
        if self.free.is_empty() {
            let first = self.mappings.len() as u32 * self.slots_per_mapping();
            self.mappings.push(Mapping::new(self.slots_per_mapping() as usize * self.slot_bytes)?);
            self.free.extend((first..first + self.slots_per_mapping()).rev());
        }
        let slot = self.free.pop().ok_or(Errno::NOMEM)?;
        self.slot_of[chunk.0 as usize] = slot;
        Ok(self.base(slot))
    }

    /// The same arena in memory of its own.
    pub fn fork(&self) -> Result<Arena, Errno> {
        let mut fork = Arena {
            mappings: self.mappings.iter().map(|mapping| Mapping::new(mapping.bytes())).collect::<Result<_, _>>()?,
            slot_of: self.slot_of.clone(),
            free: self.free.clone(),
            ..*self
        };
        for slot in self.slot_of.iter().copied().filter(|slot| *slot != NO_SLOT) {
            let bytes = self.bytes(self.base(slot), 0, self.slot_bytes);
            fork.bytes_mut(fork.base(slot), 0, self.slot_bytes).copy_from_slice(bytes);
        }
        Ok(fork)
    }

    /// Gives the slot of `chunk` back, if it has one.
    pub fn release(&mut self, chunk: ChunkId) {
        let slot = std::mem::replace(&mut self.slot_of[chunk.0 as usize], NO_SLOT);
        if slot != NO_SLOT {
            self.free.push(slot);
        }
    }

    #[cfg(test)]
    fn holds(&self, chunk: ChunkId) -> bool {
        self.slot_of[chunk.0 as usize] != NO_SLOT
    }

    /// The item of `block`.
    #[inline]
    pub fn item(&self, slot: Slot, block: u32) -> &[u8] {
        self.bytes(slot, block as usize * self.stride, self.item_bytes)
    }

    /// The item of `block`, to be filled.
    #[inline]
    pub fn item_mut(&mut self, slot: Slot, block: u32) -> &mut [u8] {
        self.bytes_mut(slot, block as usize * self.stride, self.item_bytes)
    }

    /// The out-of-band bytes of `block`.
    #[inline]
    pub fn oob(&self, slot: Slot, block: u32) -> &[u8] {
        self.bytes(slot, block as usize * self.stride + self.item_bytes, self.oob_bytes)
    }

    /// The out-of-band bytes of `block`, to be filled.
    #[inline]
    pub fn oob_mut(&mut self, slot: Slot, block: u32) -> &mut [u8] {
        self.bytes_mut(slot, block as usize * self.stride + self.item_bytes, self.oob_bytes)
    }

    /// Copies item and out-of-band bytes of a block to another; flags stay.
    pub fn copy(&mut self, (slot, block): (Slot, u32), (to, to_block): (Slot, u32)) {
        let len = self.item_bytes + self.oob_bytes;
        let (start, to_start) = (block as usize * self.stride, to_block as usize * self.stride);
        assert!(start.max(to_start) + len <= self.slot_bytes, "a block lies inside its chunk");
        // SAFETY: both lie inside their slots (asserted), as in `bytes` and `bytes_mut`, and `copy` bears that they are the same.
        unsafe { std::ptr::copy(slot.0.as_ptr().add(start), to.0.as_ptr().add(to_start), len) };
    }

    /// Exchanges item and out-of-band bytes of two blocks; their flags stay.
    pub fn exchange(&mut self, (slot, block): (Slot, u32), (other, other_block): (Slot, u32)) {
        let len = self.item_bytes + self.oob_bytes;
        let (start, other_start) = (block as usize * self.stride, other_block as usize * self.stride);
        let ours = self.bytes(slot, start, len).to_vec();
        let theirs = self.bytes(other, other_start, len).to_vec();
        self.bytes_mut(slot, start, len).copy_from_slice(&theirs);
        self.bytes_mut(other, other_start, len).copy_from_slice(&ours);
    }

    /// The flag of `block`: the byte that holds it, and its bit in there.
    #[inline]
    pub fn flag_mut(&mut self, slot: Slot, block: u32) -> (&mut u8, u8) {
        (&mut self.bytes_mut(slot, self.flags_start + block as usize / 8, 1)[0], 1 << (block % 8))
    }

    /// Whether the flag of `block` is set.
    pub fn flag(&self, slot: Slot, block: u32) -> bool {
        self.bytes(slot, self.flags_start + block as usize / 8, 1)[0] >> (block % 8) & 1 == 1
    }

    #[inline]
    fn bytes(&self, slot: Slot, start: usize, bytes: usize) -> &[u8] {
        assert!(start + bytes <= self.slot_bytes, "a block lies inside its chunk");
        // SAFETY: inside the slot (asserted), which lies inside a live mapping that is readable and zeroed at birth; the
        // borrow of the arena keeps it from being written or unmapped.
        unsafe { std::slice::from_raw_parts(slot.0.as_ptr().add(start), bytes) }
    }

    #[inline]
    fn bytes_mut(&mut self, slot: Slot, start: usize, bytes: usize) -> &mut [u8] {
        assert!(start + bytes <= self.slot_bytes, "a block lies inside its chunk");
        // SAFETY: as in `bytes`; the borrow is unique because the arena's is.
        unsafe { std::slice::from_raw_parts_mut(slot.0.as_ptr().add(start), bytes) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_released_slot_is_handed_on_and_no_new_memory_is_mapped() {
        let geometry = Geometry::tiny();
        let mut arena = Arena::new(&geometry, 4096);
        let first = arena.slot_or_take(ChunkId(3)).unwrap();
        arena.item_mut(first, 15).fill(7);
        arena.release(ChunkId(3));
        assert!(!arena.holds(ChunkId(3)));
        let second = arena.slot_or_take(ChunkId(9)).unwrap();
        assert_eq!(arena.item(second, 15)[0], 7, "the same memory");
        assert_eq!(arena.mappings.len(), 1);
    }

    #[test]
    fn items_and_out_of_band_bytes_do_not_overlap() {
        let geometry = Geometry { oob_bytes: 20, ..Geometry::tiny() };
        let mut arena = Arena::new(&geometry, 8);
        let slots: Vec<Slot> = geometry.chunk_ids().map(|chunk| arena.slot_or_take(chunk).unwrap()).collect();
        for (number, slot) in slots.iter().enumerate() {
            for block in 0..16 {
                arena.item_mut(*slot, block).fill(number as u8 ^ block as u8);
                arena.oob_mut(*slot, block).fill(!(number as u8 ^ block as u8));
                let (byte, bit) = arena.flag_mut(*slot, block);
                *byte |= bit;
            }
        }
        for (number, slot) in slots.iter().enumerate() {
            for block in 0..16 {
                assert_eq!(arena.item(*slot, block), [number as u8 ^ block as u8; 8]);
                assert_eq!(arena.oob(*slot, block), [!(number as u8 ^ block as u8); 20]);
            }
        }
    }
}
