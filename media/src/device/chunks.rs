//! The chunk table of an emulated device: small, dense, indexed by address.

use crate::contract::{ChunkState, Status};
use openftl_core::{AddressFormat, ChunkId, Geometry, Ppa, Time};

/// This address does not exist.
pub const ABSENT: u8 = 1 << 0;
/// Some blocks are lost: look at the marks before reading.
pub const LOST_BLOCKS: u8 = 1 << 1;
/// Some blocks are read with high ECC, or not at all for a while: look at the marks before reading.
pub const WEAK_BLOCKS: u8 = 1 << 2;
/// Either of them.
pub const MARKED: u8 = LOST_BLOCKS | WEAK_BLOCKS;
/// A test wants the next program operation to fail.
pub const PROGRAM_FAILS: u8 = 1 << 3;
/// And to close the chunk.
pub const FAILURE_CLOSES: u8 = 1 << 4;
/// Reset, but the die may not have erased it yet.
pub const ERASING: u8 = 1 << 5;
/// A silent fault waits for a program or an erase, or one was lost: look before doing either.
pub const SILENT: u8 = 1 << 6;

/// What the device knows of one chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Chunk {
    /// When all its program operations are done.
    pub programmed_at: Time,
    /// The block to be written next.
    pub write_pointer: u32,
    /// Blocks below this one can be read: the write pointer, less MW_CUNITS while the chunk is open.
    pub readable: u32,
    /// Erases so far.
    pub resets: u32,
    /// State.
    pub state: ChunkState,
    /// What is out of the ordinary.
    pub flags: u8,
}

/// All chunks of the device, and how many are open.
#[derive(Clone)]
pub struct Chunks {
    table: Vec<Chunk>,
    format: AddressFormat,
    geometry: Geometry,
    open: u32,
    open_on_pu: Vec<u32>,
}

impl Chunks {
    /// All chunks free and new.
    pub fn new(geometry: &Geometry) -> Chunks {
        let format = geometry.format();
        let absent = Chunk {
            programmed_at: Time::ZERO,
            write_pointer: 0,
            readable: 0,
            resets: 0,
            state: ChunkState::Offline,
            flags: ABSENT,
        };
        let mut table = vec![absent; format.chunk_ids()];
        for chunk in geometry.chunk_ids() {
            table[chunk.0 as usize] = Chunk { state: ChunkState::Free, flags: 0, ..absent };
        }
        Chunks { table, format, geometry: *geometry, open: 0, open_on_pu: vec![0; format.pu_ids()] }
    }

    /// What is known of an existing chunk.
    #[inline]
    pub fn get(&self, chunk: ChunkId) -> &Chunk {
        &self.table[chunk.0 as usize]
    }

    /// The flags of a chunk.
    #[inline]
    pub fn flags_mut(&mut self, chunk: ChunkId) -> &mut u8 {
        &mut self.table[chunk.0 as usize].flags
    }

    /// When the program operations of `chunk` are done, to be moved on.
    #[inline]
    pub fn programmed_at_mut(&mut self, chunk: ChunkId) -> &mut Time {
        &mut self.table[chunk.0 as usize].programmed_at
    }

    /// Puts a chunk back to what it was.
    pub fn restore(&mut self, chunk: ChunkId, before: Chunk) {
        self.set(chunk, before.state, before.write_pointer);
        self.table[chunk.0 as usize] = before;
    }

    /// Erases so far, to be changed.
    pub fn resets_mut(&mut self, chunk: ChunkId) -> &mut u32 {
        &mut self.table[chunk.0 as usize].resets
    }

    /// The chunk and block of an address whose block can be read; `Err` with the status of one that cannot.
    #[inline]
    pub fn readable(&self, ppa: Ppa) -> Result<(ChunkId, u32, &Chunk), Status> {
        let index = (ppa.0 >> self.format.block_bits) as usize;
        let block = self.format.block_of(ppa);
        match self.table.get(index) {
            Some(chunk) if block < chunk.readable => Ok((ChunkId(index as u32), block, chunk)),
            Some(chunk) if chunk.flags & ABSENT == 0 && block < self.geometry.blocks_per_chunk => {
                Err(Status::DeallocatedOrUnwritten)
            }
            _ => Err(Status::LbaOutOfRange),
        }
    }

    /// Whether `blocks` blocks may be written from `ppa` on.
    #[inline]
    pub fn writable(&self, ppa: Ppa, blocks: u32) -> Result<(ChunkId, u32), Status> {
        let index = (ppa.0 >> self.format.block_bits) as usize;
        let first = self.format.block_of(ppa);
        let chunk = self.table.get(index).ok_or(Status::LbaOutOfRange)?;
        if chunk.flags & ABSENT != 0 || first >= self.geometry.blocks_per_chunk {
            return Err(Status::LbaOutOfRange);
        }
        if first + blocks > self.geometry.blocks_per_chunk {
            // Beyond the chunk lies either nothing, or another chunk, which a write may not run into.
            let last = self.table.get(((ppa.0 + u64::from(blocks) - 1) >> self.format.block_bits) as usize);
            let gap = self.geometry.blocks_per_chunk < 1 << self.format.block_bits;
            let nothing = gap || last.is_none_or(|chunk| chunk.flags & ABSENT != 0);
            return Err(if nothing { Status::LbaOutOfRange } else { Status::OutOfOrderWrite });
        }
        let allowed = match chunk.state {
            ChunkState::Offline => return Err(Status::OfflineChunk),
            ChunkState::Closed => false,
            ChunkState::Open => true,
            ChunkState::Free => self.may_open(ChunkId(index as u32)),
        };
        if allowed && first == chunk.write_pointer && blocks.is_multiple_of(self.geometry.ws_min) {
            Ok((ChunkId(index as u32), first))
        } else {
            Err(Status::OutOfOrderWrite)
        }
    }

    /// Whether one more chunk may be open, on the device and on the parallel unit of `chunk`.
    fn may_open(&self, chunk: ChunkId) -> bool {
        let below = |open: u32, max: u32| max == 0 || open < max;
        let pu = self.format.pu_of(chunk);
        below(self.open, self.geometry.open_chunks_max)
            && below(self.open_on_pu[pu.0 as usize], self.geometry.open_chunks_per_pu_max)
    }

    /// Moves `chunk` to `state` with its write pointer at `write_pointer`.
    #[inline]
    pub fn set(&mut self, chunk: ChunkId, state: ChunkState, write_pointer: u32) {
        let entry = &mut self.table[chunk.0 as usize];
        let (was_open, is_open) = (entry.state == ChunkState::Open, state == ChunkState::Open);
        entry.state = state;
        entry.write_pointer = write_pointer;
        entry.readable = match state {
            ChunkState::Closed => write_pointer,
            ChunkState::Open => write_pointer.saturating_sub(self.geometry.mw_cunits),
            ChunkState::Free | ChunkState::Offline => 0,
        };
        if was_open != is_open {
            let on_pu = &mut self.open_on_pu[self.format.pu_of(chunk).0 as usize];
            if is_open {
                *on_pu += 1;
                self.open += 1;
            } else {
                *on_pu -= 1;
                self.open -= 1;
            }
        }
    }

    /// The state of a chunk whose write pointer is at `write_pointer` and that nothing has closed early.
    #[inline]
    pub fn state_at(&self, write_pointer: u32) -> ChunkState {
        match write_pointer {
            0 => ChunkState::Free,
            end if end == self.geometry.blocks_per_chunk => ChunkState::Closed,
            _ => ChunkState::Open,
        }
    }

    /// Whether `chunk` exists.
    pub fn exists(&self, chunk: ChunkId) -> bool {
        self.table.get(chunk.0 as usize).is_some_and(|chunk| chunk.flags & ABSENT == 0)
    }
}
