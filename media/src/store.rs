//! A store: where the bits of an emulated device are kept.
//!
//! | store | keeps | for |
//! |---|---|---|
//! | RAM | the pages of frames, and out-of-band bytes | speed, tests |
//! | stamps | eight bytes and the out-of-band bytes a block | a terabyte drive in a few GiB |
//! | file | everything, in a sparse file | a drive that outlives the process |
//!
//! A store knows chunks and blocks and nothing else: what may be written or read, and when, is the device's business.
//! It is only ever asked for blocks that were written since their chunk was last discarded.

mod arena;
pub mod commit;
mod disk;
pub mod file;
pub mod format;
mod overlay;
pub mod page_cache;
pub mod ram;
pub mod stamps;

use crate::contract::ChunkState;
use crate::parts::PartsError;
use crate::profile::ProfileError;
use file::FileStore;
use openftl_core::page::PagePool;
use openftl_core::{ChunkId, Frame, Frames, TraceHash};
use ram::RamStore;
use stamps::StampStore;
use std::io;
use std::path::PathBuf;

/// Which store a new device is to have.
#[derive(Debug)]
pub enum Store {
    /// In memory, every byte.
    Ram,
    /// In memory, eight bytes a block.
    Stamps,
    /// In a file, which is made or opened beforehand.
    File(Box<FileStore>),
}

/// The store cannot be had, or did not do what it was asked to.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// No memory for another chunk.
    #[error("no memory for another chunk: {0}")]
    Memory(rustix::io::Errno),
    /// The system says no.
    #[error("cannot {doing} {}: {source}", path.display())]
    Io {
        /// What was being done.
        doing: &'static str,
        /// To which file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Not one of our files.
    #[error(
        "{} is no drive: it does not begin with OFTLNAND (its creation may have been interrupted; then delete it and create it again)",
        path.display()
    )]
    NotADrive {
        /// The file.
        path: PathBuf,
    },
    /// Made by a newer version of this program.
    #[error("{} has format version {found}, this program knows versions up to {newest}: use a newer one", path.display())]
    NewerVersion {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
        /// The newest one understood.
        newest: u32,
    },
    /// Made by an older version of this program.
    #[error(
        "{} has format version {found}, this program knows none before {oldest}: create the drive anew and copy what is on it \
         with the version that made it",
        path.display()
    )]
    OlderVersion {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
        /// The oldest one understood.
        oldest: u32,
    },
    /// Shorter than it has to be.
    #[error(
        "{} is truncated: {found} bytes of {expected} are left; restore it from a copy (one that keeps its full length)",
        path.display()
    )]
    Truncated {
        /// The file.
        path: PathBuf,
        /// Its length in bytes.
        found: u64,
        /// The length it should have.
        expected: u64,
    },
    /// Bytes that do not verify.
    #[error("{} is damaged: {what}; restore it from a copy", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// In use.
    #[error("{} is locked by another process: stop the one that serves it first", path.display())]
    Locked {
        /// The file.
        path: PathBuf,
    },
    /// Not the drive that was asked for.
    #[error("{} holds another profile: found {found}, asked for {asked}; open it without naming a profile", path.display())]
    OtherProfile {
        /// The file.
        path: PathBuf,
        /// What it holds.
        found: String,
        /// What was asked for.
        asked: String,
    },
    /// The header has no room for it.
    #[error("the profile's text is {found} bytes long; at most {max} fit into a drive")]
    ProfileTooLong {
        /// Its length in bytes.
        found: usize,
        /// The most there may be.
        max: usize,
    },
    /// The profile, asked for or found, is impossible.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// The device cannot be divided as asked.
    #[error(transparent)]
    Parts(#[from] PartsError),
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
    File(Box<FileStore>),
}

impl Backing {
    /// The same store once more, in memory of its own; `None` for a file.
    pub fn fork(&self) -> Result<Option<Backing>, StoreError> {
        Ok(match self {
            Backing::Ram(store) => Some(Backing::Ram(store.fork()?)),
            Backing::Stamps(store) => Some(Backing::Stamps(store.fork()?)),
            Backing::File(_) => None,
        })
    }

    /// Where frames best have their pages from.
    pub fn page_pool(&self) -> PagePool {
        match self {
            Backing::Ram(store) => store.pool().clone(),
            Backing::Stamps(_) | Backing::File(_) => PagePool::default(),
        }
    }

    /// Keeps the contents of `frames` in consecutive blocks of `chunk`.
    #[inline]
    pub fn write(&mut self, chunk: ChunkId, first: u32, pool: &Frames, frames: &[Frame]) -> Result<(), StoreError> {
        match self {
            Backing::Ram(store) => store.write(chunk, first, pool, frames),
            Backing::Stamps(store) => store.write(chunk, first, pool, frames),
            Backing::File(store) => store.write(chunk, first, pool, frames),
        }
    }

    /// Brings one block into a frame.
    #[inline]
    pub fn read(&mut self, chunk: ChunkId, block: u32, pool: &mut Frames, frame: Frame) -> Fetched {
        match self {
            Backing::Ram(store) => store.read(chunk, block, pool, frame),
            Backing::Stamps(store) => store.read(chunk, block, pool, frame),
            Backing::File(store) => store.read(chunk, block, pool, frame),
        }
    }

    /// Whether a run of blocks is read faster when it is fetched first.
    #[inline]
    pub fn fetches_runs(&self) -> bool {
        matches!(self, Backing::File(_))
    }

    /// Fetches consecutive blocks for the reads that follow.
    pub fn fetch(&mut self, chunk: ChunkId, first: u32, blocks: u32) {
        if let Backing::File(store) = self {
            store.fetch(chunk, first, blocks);
        }
    }

    /// The reads are done.
    #[inline]
    pub fn forget_fetched(&mut self) {
        if let Backing::File(store) = self {
            store.forget_fetched();
        }
    }

    /// Adds what a written block holds to `hash`: its out-of-band bytes and its stamp, if it has one. Nothing of a file, which cannot be
    /// forked.
    pub fn add_to(&self, hash: &mut TraceHash, chunk: ChunkId, block: u32) {
        match self {
            Backing::Ram(store) => store.add_to(hash, chunk, block),
            Backing::Stamps(store) => store.add_to(hash, chunk, block),
            Backing::File(_) => {}
        }
    }

    /// Copies one block to another.
    pub fn copy(&mut self, from: (ChunkId, u32), to: (ChunkId, u32)) -> Result<(), StoreError> {
        match self {
            Backing::Ram(store) => store.copy(from, to),
            Backing::Stamps(store) => store.copy(from, to),
            Backing::File(store) => store.copy(from, to),
        }
    }

    /// Damages one block without anybody noticing: one bit of its payload is turned.
    pub fn corrupt(&mut self, chunk: ChunkId, block: u32) -> Result<(), StoreError> {
        match self {
            Backing::Ram(store) => store.corrupt(chunk, block),
            Backing::Stamps(store) => store.corrupt(chunk, block),
            Backing::File(store) => return store.corrupt(chunk, block),
        }
        Ok(())
    }

    /// Exchanges what two blocks hold, without anybody noticing.
    pub fn exchange(&mut self, one: (ChunkId, u32), other: (ChunkId, u32)) -> Result<(), StoreError> {
        match self {
            Backing::Ram(store) => store.exchange(one, other),
            Backing::Stamps(store) => store.exchange(one, other),
            Backing::File(store) => return store.exchange(one, other),
        }
        Ok(())
    }

    /// Forgets what `chunk` holds.
    pub fn discard(&mut self, chunk: ChunkId) {
        match self {
            Backing::Ram(store) => store.discard(chunk),
            Backing::Stamps(store) => store.discard(chunk),
            Backing::File(store) => store.discard(chunk),
        }
    }

    /// Keeps what is known of a chunk, after the blocks that it speaks of. Only a file has to.
    #[inline]
    pub fn record(
        &mut self,
        chunk: ChunkId,
        state: ChunkState,
        write_pointer: u32,
        resets: u32,
        lost_blocks: bool,
    ) -> Result<(), StoreError> {
        match self {
            Backing::Ram(_) | Backing::Stamps(_) => Ok(()),
            Backing::File(store) => store.record(chunk, state, write_pointer, resets, lost_blocks),
        }
    }

    /// Notes that a block is lost; `is_first` if it is the first one since the chunk was discarded.
    pub fn mark_lost(&mut self, chunk: ChunkId, block: u32, is_first: bool) -> Result<(), StoreError> {
        match self {
            Backing::Ram(_) | Backing::Stamps(_) => Ok(()),
            Backing::File(store) => store.mark_lost(chunk, block, is_first),
        }
    }

    /// Whether what is written survives a crash of the machine only when it is committed.
    #[inline]
    pub fn needs_commits(&self) -> bool {
        matches!(self, Backing::File(store) if store.commits().is_some())
    }

    /// Wants a commit of everything so far. Returns its number: it has ended when [`Backing::commits_ended`] returns as much.
    pub fn want_commit(&mut self) -> Result<u64, StoreError> {
        match self {
            Backing::Ram(_) | Backing::Stamps(_) => Ok(0),
            Backing::File(store) => store.want_commit(),
        }
    }

    /// Returns how many commits have ended.
    pub fn commits_ended(&mut self) -> Result<u64, StoreError> {
        match self {
            Backing::Ram(_) | Backing::Stamps(_) => Ok(0),
            Backing::File(store) => store.commits_ended(),
        }
    }
}

/// Copies out-of-band bytes. Nearly all devices have sixteen, which are moved without a call.
#[inline]
fn copy_oob(from: &[u8], to: &mut [u8]) {
    const USUAL: usize = openftl_core::OOB_BYTES_MIN;
    match (<&[u8; USUAL]>::try_from(from), <&mut [u8; USUAL]>::try_from(&mut *to)) {
        (Ok(from), Ok(to)) => *to = *from,
        _ => to.copy_from_slice(from),
    }
}

fn add_words(hash: &mut TraceHash, bytes: &[u8]) {
    let (words, rest) = bytes.as_chunks::<8>();
    words.iter().for_each(|word| hash.add(u64::from_le_bytes(*word)));
    rest.iter().for_each(|byte| hash.add(u64::from(*byte)));
}
