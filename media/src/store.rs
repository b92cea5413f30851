//! A store: where the bits of an emulated device are kept.
//!
//! | store | keeps | for |
//! |---|---|---|
//! | RAM | payload and out-of-band bytes | speed, tests |
//! | stamps | eight bytes and the out-of-band bytes a block | a terabyte drive in a few GiB |
//! | file | everything, in a sparse file | a drive that outlives the process |
//!
//! A store knows chunks and blocks and nothing else: what may be written or read, and when, is the device's business.
//! It is only ever asked for blocks that were written since their chunk was last discarded.

pub mod arena;
pub mod ram;
pub mod stamps;

use openftl_core::{ChunkId, Frame, Frames};
use ram::RamStore;
use stamps::StampStore;

/// Which store a new device is to have.
#[derive(Debug)]
pub enum Store {
    /// In memory, every byte.
    Ram,
    /// In memory, eight bytes a block.
    Stamps,
}

/// The store did not do what it was asked to.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// No memory for another chunk.
    #[error("no memory for a chunk: {0}")]
    Memory(rustix::io::Errno),
}

/// What a read of one block brought.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fetched {
    /// The frame holds the block.
    Good,
    /// It cannot be had, or the frame cannot hold it.
    Lost,
}

/// A store at work.
pub(crate) enum Backing {
    Ram(RamStore),
    Stamps(StampStore),
}

impl Backing {
    /// Keeps the contents of `frames` in consecutive blocks of `chunk`.
    #[inline]
    pub fn write(&mut self, chunk: ChunkId, first: u32, pool: &Frames, frames: &[Frame]) -> Result<(), StoreError> {
        match self {
            Backing::Ram(store) => store.write(chunk, first, pool, frames),
            Backing::Stamps(store) => store.write(chunk, first, pool, frames),
        }
    }

    /// Brings one block into a frame.
    #[inline]
    pub fn read(&mut self, chunk: ChunkId, block: u32, pool: &mut Frames, frame: Frame) -> Fetched {
        match self {
            Backing::Ram(store) => store.read(chunk, block, pool, frame),
            Backing::Stamps(store) => store.read(chunk, block, pool, frame),
        }
    }

    /// Copies one block to another.
    pub fn copy(&mut self, from: (ChunkId, u32), to: (ChunkId, u32)) -> Result<(), StoreError> {
        match self {
            Backing::Ram(store) => store.copy(from, to),
            Backing::Stamps(store) => store.copy(from, to),
        }
    }

    /// Damages one block without anybody noticing: one bit of its payload is turned.
    pub fn corrupt(&mut self, chunk: ChunkId, block: u32) -> Result<(), StoreError> {
        match self {
            Backing::Ram(store) => store.corrupt(chunk, block),
            Backing::Stamps(store) => store.corrupt(chunk, block),
        }
        Ok(())
    }

    /// Forgets what `chunk` holds.
    pub fn discard(&mut self, chunk: ChunkId) {
        match self {
            Backing::Ram(store) => store.discard(chunk),
            Backing::Stamps(store) => store.discard(chunk),
        }
    }
}
