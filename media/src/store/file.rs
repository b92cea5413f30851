//! The file store: a sparse file. What it survives is up to its [`Durability`].
//!
//! | durability | what survives the death of the process | what survives a crash of the machine |
//! |---|---|---|
//! | process | everything acknowledged | nothing for certain; damage is detected |
//! | machine | everything up to the last commit | the same |
//!
//! With `process` every write ends with one small record that says how far its chunk is written. Both go to the page cache in
//! that order, so `kill -9` finds a record only with its data. With `machine` records reach the file by commits, which
//! [`super::commit`] describes: [`crate::Command::Flush`], a write with FUA and a reset end when they are committed.
//!
//! A store begins with `process`; [`FileStore::set_durability`] changes that. The file is described in [`super::format`].

use super::commit::{self, Commits, Durability, Waker};
use super::disk::Disk;
use super::format::{self, Header, Layout, PartEntry, Record, Start, StartError};
use super::overlay::Overlay;
use super::page_cache::PageCache;
use super::{Fetched, StoreError};
use crate::contract::ChunkState;
use crate::parts::{PartLabel, check_parts};
use crate::profile::Profile;
use openftl_core::{
    AddressFormat, BLOCK_BYTES, ChunkId, Frame, FrameForm, Frames, Geometry, Payload, PayloadMut, Stamp,
};
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use zerocopy::{FromZeros, IntoBytes};

/// Blocks that go into one vectored write: two slices each, well below what the system takes (1024).
const VECTORED_BLOCKS: usize = 64;

/// What messages call a file behind a simulated page cache.
const SIMULATED: &str = "(simulated)";

/// Keeps everything in a file.
#[derive(Debug)]
pub struct FileStore {
    disk: Arc<Disk>,
    /// With [`Durability::Machine`].
    commits: Option<Box<Commits>>,
    /// Above the sequences of all entries that the journal had when the file was opened.
    sequence: u64,
    path: PathBuf,
    profile: Profile,
    geometry: Geometry,
    format: AddressFormat,
    layout: Layout,
    seed: u64,
    parts: Vec<PartLabel>,
    /// A run of blocks, as it lies in the file.
    scratch: Vec<u8>,
    /// Which blocks are in there: the number of the chunk, the first block, how many.
    fetched: Option<(ChunkId, u32, u32)>,
    /// Why a read last failed.
    read_error: Option<io::Error>,
}

/// What the file knows of a chunk.
pub(crate) struct KnownChunk {
    pub chunk: ChunkId,
    pub state: ChunkState,
    pub write_pointer: u32,
    pub resets: u32,
    /// Blocks that cannot be read.
    pub lost: Vec<u32>,
}

impl FileStore {
    /// Makes a new drive file. Everything in it is a hole but header and chunk records. What `parts` say is kept for whoever
    /// opens it.
    ///
    /// # Errors
    /// If the profile cannot be had in this size or with these parts, if the file exists, or cannot be made.
    pub fn create(
        path: &Path,
        profile: &Profile,
        chunks_per_pu: u32,
        parts: &[PartLabel],
        seed: u64,
    ) -> Result<FileStore, StoreError> {
        let make = || {
            let failed = |source| StoreError::Io { doing: "create", path: path.to_owned(), source };
            let file = File::options().read(true).write(true).create_new(true).open(path).map_err(failed)?;
            lock(&file, path)?;
            Ok(Disk::File(file))
        };
        let created = FileStore::create_on(make, path, profile, chunks_per_pu, parts, seed);
        if let Err(StoreError::Io { doing: "fill", .. }) = &created {
            // Nobody can use half a drive file, and its name would be in the way of the next try.
            let _ = std::fs::remove_file(path);
        }
        created
    }

    /// The same behind a simulated page cache, in an empty file.
    ///
    /// # Errors
    /// As [`FileStore::create`].
    pub fn create_simulated(
        cache: &PageCache,
        profile: &Profile,
        chunks_per_pu: u32,
        parts: &[PartLabel],
        seed: u64,
    ) -> Result<FileStore, StoreError> {
        let make = || Ok(Disk::Simulated(cache.clone()));
        FileStore::create_on(make, Path::new(SIMULATED), profile, chunks_per_pu, parts, seed)
    }

    fn create_on(
        make: impl FnOnce() -> Result<Disk, StoreError>,
        path: &Path,
        profile: &Profile,
        chunks_per_pu: u32,
        parts: &[PartLabel],
        seed: u64,
    ) -> Result<FileStore, StoreError> {
        profile.validate()?;
        let geometry = profile.geometry(chunks_per_pu)?;
        check_parts(&geometry, parts)?;
        let text = profile.to_toml();
        let entries: Vec<PartEntry> = parts.iter().map(PartEntry::new).collect();
        let max = format::PROFILE_BYTES_MAX - entries.as_bytes().len();
        if text.len() > max {
            return Err(StoreError::ProfileTooLong { found: text.len(), max });
        }
        let layout = Layout::of(&geometry);
        let disk = make()?;
        let fill = || -> io::Result<()> {
            disk.set_len(layout.file_bytes)?;
            // Real zeroes, not holes: a full disk must never keep a chunk record or the journal from being written.
            let zeroes = vec![0; 1 << 20];
            let mut at = u64::from(format::HEADER_BYTES);
            while at < layout.chunks_start {
                let bytes = (layout.chunks_start - at).min(zeroes.len() as u64);
                disk.write_all_at(&zeroes[..bytes as usize], at)?;
                at += bytes;
            }
            // The header comes last: a file whose making was interrupted is no drive.
            disk.sync()?;
            let header = Header::new(&geometry, seed, &text, &entries);
            disk.write_all_at(&[header.as_bytes(), text.as_bytes(), entries.as_bytes()].concat(), 0)?;
            disk.sync_all()
        };
        fill().map_err(|source| StoreError::Io { doing: "fill", path: path.to_owned(), source })?;
        let start = Start { profile: profile.clone(), geometry, seed, parts: parts.to_vec() };
        Ok(FileStore::new(disk, path, start, layout, 1))
    }

    /// Opens a drive file and takes it for this process alone.
    ///
    /// # Errors
    /// If it cannot be read, is no drive file, is of a newer version, is damaged or cut off, or is in use.
    pub fn open(path: &Path) -> Result<FileStore, StoreError> {
        let failed = |source| StoreError::Io { doing: "open", path: path.to_owned(), source };
        let file = File::options().read(true).write(true).open(path).map_err(failed)?;
        lock(&file, path)?;
        FileStore::open_on(Disk::File(file), path)
    }

    /// Opens a drive file to look at it: nothing is written to it. What its journal holds counts all the same.
    ///
    /// # Errors
    /// As [`FileStore::open`].
    pub fn open_to_look_at(path: &Path) -> Result<FileStore, StoreError> {
        let failed = |source| StoreError::Io { doing: "open", path: path.to_owned(), source };
        let file = File::open(path).map_err(failed)?;
        lock(&file, path)?;
        FileStore::open_on(Disk::LookedAt(Overlay::over(file)), path)
    }

    /// Whether it was opened to be looked at.
    pub(crate) fn forgets_writes(&self) -> bool {
        matches!(*self.disk, Disk::LookedAt(_))
    }

    /// Opens a drive file behind a simulated page cache.
    ///
    /// # Errors
    /// As [`FileStore::open`].
    pub fn open_simulated(cache: &PageCache) -> Result<FileStore, StoreError> {
        FileStore::open_on(Disk::Simulated(cache.clone()), Path::new(SIMULATED))
    }

    fn open_on(disk: Disk, path: &Path) -> Result<FileStore, StoreError> {
        let failed = |source| StoreError::Io { doing: "open", path: path.to_owned(), source };
        let path_owned = || path.to_owned();
        let found = disk.len().map_err(failed)?;
        let mut start = vec![0; (found as usize).min(format::HEADER_BYTES as usize)];
        disk.read_exact_at(&mut start, 0).map_err(failed)?;
        let truncated = |expected| StoreError::Truncated { path: path_owned(), found, expected };
        let start = Start::parse(&start).map_err(|error| match error {
            StartError::Magic => StoreError::NotADrive { path: path_owned() },
            StartError::Version(found) => {
                StoreError::NewerVersion { path: path_owned(), found, newest: format::VERSION }
            }
            StartError::OldVersion(found) => {
                StoreError::OlderVersion { path: path_owned(), found, oldest: format::VERSION }
            }
            StartError::Truncated { expected } => truncated(expected),
            StartError::Damaged(what) => StoreError::Damaged { path: path_owned(), what: what.to_owned() },
            StartError::Profile(error) => StoreError::Profile(error),
        })?;
        let layout = Layout::of(&start.geometry);
        if found < layout.file_bytes {
            return Err(truncated(layout.file_bytes));
        }
        let sequence = commit::replay(&disk, &layout).map_err(failed)?;
        Ok(FileStore::new(disk, path, start, layout, sequence))
    }

    fn new(disk: Disk, path: &Path, start: Start, layout: Layout, sequence: u64) -> FileStore {
        let Start { profile, geometry, seed, parts } = start;
        FileStore {
            disk: Arc::new(disk),
            commits: None,
            sequence,
            path: path.to_owned(),
            profile,
            geometry,
            format: geometry.format(),
            layout,
            seed,
            parts,
            scratch: Vec::new(),
            fetched: None,
            read_error: None,
        }
    }

    /// What the file is to survive from now on. Everything so far is synced.
    ///
    /// # Errors
    /// If it cannot be read or synced.
    pub fn set_durability(&mut self, durability: Durability) -> Result<(), StoreError> {
        if (durability == Durability::Machine) == self.commits.is_some() {
            return Ok(());
        }
        let failed = self.failed("sync");
        if let Some(mut commits) = self.commits.take() {
            commits.close().map_err(&failed)?;
            drop(commits);
            self.sequence = commit::replay(&self.disk, &self.layout).map_err(&failed)?;
            return Ok(());
        }
        self.disk.sync().map_err(&failed)?;
        let records = self.read_records().map_err(&failed)?;
        self.commits = Some(Box::new(Commits::new(Arc::clone(&self.disk), self.layout, records, self.sequence)));
        Ok(())
    }

    /// Has a thread of its own do the syncs from now on, so that nobody else waits for them. It calls `wake` after each.
    ///
    /// # Errors
    /// If the system has no thread left.
    pub fn sync_beside(&mut self, wake: Waker) -> Result<(), StoreError> {
        let failed = self.failed("begin to sync");
        match &mut self.commits {
            Some(commits) => commits.start_helper(wake).map_err(failed),
            None => Ok(()),
        }
    }

    /// How many commits have ended, where there are commits.
    #[inline]
    pub(crate) fn commits(&self) -> Option<u64> {
        self.commits.as_ref().map(|commits| commits.count())
    }

    /// Wants a commit of everything so far. Returns its number.
    pub(super) fn want_commit(&mut self) -> Result<u64, StoreError> {
        let failed = self.failed("sync");
        self.commits.as_mut().map_or(Ok(0), |commits| commits.want().map_err(failed))
    }

    /// Returns how many commits have ended.
    pub(super) fn commits_ended(&mut self) -> Result<u64, StoreError> {
        let failed = self.failed("sync");
        self.commits.as_mut().map_or(Ok(0), |commits| commits.advance().map_err(failed))
    }

    /// Called before blocks are written to `chunk`.
    #[inline]
    fn before_write(&mut self, chunk: ChunkId) -> Result<(), StoreError> {
        let Some(commits) = &mut self.commits else { return Ok(()) };
        commits.before_write(chunk).map_err(|source| StoreError::Io { doing: "sync", path: self.path.clone(), source })
    }

    fn read_records(&self) -> io::Result<Vec<Record>> {
        let chunks = self.geometry.chunks() as usize;
        let mut table = vec![Record::new_zeroed(); chunks];
        self.disk.read_exact_at(table.as_mut_bytes(), u64::from(format::HEADER_BYTES))?;
        Ok(table)
    }

    /// The profile that the drive was made with.
    #[must_use]
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// The geometry of the drive.
    #[must_use]
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// What chance follows from on this drive.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// What the device is divided into, if it is.
    #[must_use]
    pub fn parts(&self) -> &[PartLabel] {
        &self.parts
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Why a read of the file last failed, if one did.
    pub(crate) fn read_error(&self) -> Option<&io::Error> {
        self.read_error.as_ref()
    }

    /// Whether this is the drive that was asked for.
    pub(crate) fn expect(&self, profile: &Profile, geometry: &Geometry) -> Result<(), StoreError> {
        if self.profile == *profile && self.geometry == *geometry {
            return Ok(());
        }
        let describe = |profile: &Profile, geometry: &Geometry| {
            format!("{} with {} chunks per PU", profile.name, geometry.chunks_per_pu)
        };
        Err(StoreError::OtherProfile {
            path: self.path.clone(),
            found: describe(&self.profile, &self.geometry),
            asked: describe(profile, geometry),
        })
    }

    /// What the file knows of each chunk, in address order.
    pub(crate) fn records(&self) -> Result<Vec<KnownChunk>, StoreError> {
        let failed = |source| StoreError::Io { doing: "read the chunk records of", path: self.path.clone(), source };
        let chunks: Vec<ChunkId> = self.geometry.chunk_ids().collect();
        let table = self.read_records().map_err(failed)?;
        let mut records = Vec::with_capacity(chunks.len());
        for ((number, chunk), record) in (0..).zip(chunks).zip(table) {
            let state = record.state(number, self.geometry.blocks_per_chunk).ok_or_else(|| StoreError::Damaged {
                path: self.path.clone(),
                what: format!("the record of chunk {number} is damaged"),
            })?;
            let mut lost = Vec::new();
            if record.flags & format::LOST_BLOCKS != 0 {
                let mut bitmap = vec![0; (self.geometry.blocks_per_chunk as usize).div_ceil(8)];
                self.disk
                    .read_exact_at(&mut bitmap, self.chunk_start(chunk) + self.layout.bitmap_start)
                    .map_err(failed)?;
                lost.extend(
                    (0..self.geometry.blocks_per_chunk)
                        .filter(|block| bitmap[*block as usize / 8] >> (block % 8) & 1 == 1),
                );
            }
            let (write_pointer, resets) = (record.write_pointer.get(), record.resets.get());
            records.push(KnownChunk { chunk, state, write_pointer, resets, lost });
        }
        Ok(records)
    }

    /// The number of a chunk in address order.
    fn number(&self, chunk: ChunkId) -> u32 {
        let address = self.format.unpack_chunk(chunk);
        (address.group * self.geometry.pus_per_group + address.pu) * self.geometry.chunks_per_pu + address.chunk
    }

    fn chunk_start(&self, chunk: ChunkId) -> u64 {
        self.layout.chunks_start + u64::from(self.number(chunk)) * self.layout.chunk_bytes
    }

    fn block_start(&self, chunk: ChunkId, block: u32) -> u64 {
        self.chunk_start(chunk) + u64::from(block) * self.layout.block_stride
    }

    fn failed(&self, doing: &'static str) -> impl Fn(io::Error) -> StoreError + use<> {
        let path = self.path.clone();
        move |source| StoreError::Io { doing, path: path.clone(), source }
    }

    pub(super) fn write(
        &mut self,
        chunk: ChunkId,
        first: u32,
        pool: &Frames,
        frames: &[Frame],
    ) -> Result<(), StoreError> {
        self.before_write(chunk)?;
        let mut block = first;
        for frames in frames.chunks(VECTORED_BLOCKS) {
            let at = self.block_start(chunk, block);
            let all_bytes = frames.iter().all(|frame| pool.form(*frame) == FrameForm::Bytes);
            let result =
                if all_bytes { self.write_vectored(at, pool, frames) } else { self.write_stamps(at, pool, frames) };
            result.map_err(self.failed("write to"))?;
            block += frames.len() as u32;
        }
        Ok(())
    }

    fn write_vectored(&self, at: u64, pool: &Frames, frames: &[Frame]) -> io::Result<()> {
        let mut slices = [IoSlice::new(&[]); 2 * VECTORED_BLOCKS];
        for (pair, frame) in slices.as_chunks_mut::<2>().0.iter_mut().zip(frames) {
            *pair = [IoSlice::new(pool.bytes(*frame)), IoSlice::new(pool.oob(*frame))];
        }
        self.disk.write_vectored(&mut slices[..2 * frames.len()], at)
    }

    /// A file keeps real bytes, so stamps are written out.
    fn write_stamps(&mut self, at: u64, pool: &Frames, frames: &[Frame]) -> io::Result<()> {
        self.fetched = None;
        self.scratch.clear();
        for frame in frames {
            match pool.payload(*frame) {
                Payload::Bytes(bytes) => self.scratch.extend_from_slice(bytes),
                Payload::Stamp(stamp) => {
                    let mut block = [0; BLOCK_BYTES];
                    stamp.expand(&mut block);
                    self.scratch.extend_from_slice(&block);
                }
            }
            self.scratch.extend_from_slice(pool.oob(*frame));
        }
        self.disk.write_all_at(&self.scratch, at)
    }

    /// Fetches a run of blocks with one call, for the reads that follow. They may find that it did not work.
    pub(crate) fn fetch(&mut self, chunk: ChunkId, first: u32, blocks: u32) {
        self.scratch.resize(blocks as usize * self.layout.block_stride as usize, 0);
        let at = self.block_start(chunk, first);
        self.fetched = self.disk.read_exact_at(&mut self.scratch, at).is_ok().then_some((chunk, first, blocks));
    }

    /// What was fetched may change from here on.
    pub(crate) fn forget_fetched(&mut self) {
        self.fetched = None;
    }

    pub(super) fn read(&mut self, chunk: ChunkId, block: u32, pool: &mut Frames, frame: Frame) -> Fetched {
        let (payload, oob) = pool.both_mut(frame);
        let mut expanded = [0; BLOCK_BYTES];
        let (bytes, stamp) = match payload {
            PayloadMut::Bytes(bytes) => (bytes, None),
            PayloadMut::Stamp(stamp) => (&mut expanded, Some(stamp)),
        };
        match self.fetched {
            Some((fetched, first, blocks)) if fetched == chunk && (first..first + blocks).contains(&block) => {
                let stride = self.layout.block_stride as usize;
                let (payload, oob_read) =
                    self.scratch[(block - first) as usize * stride..][..stride].split_at(BLOCK_BYTES);
                bytes.copy_from_slice(payload);
                oob.copy_from_slice(oob_read);
            }
            _ => {
                if let Err(error) = self
                    .disk
                    .read_vectored(&mut [IoSliceMut::new(bytes), IoSliceMut::new(oob)], self.block_start(chunk, block))
                {
                    self.read_error = Some(error);
                    return Fetched::Lost;
                }
            }
        }
        match stamp.map(|stamp| Stamp::recognise(bytes).map(|found| *stamp = found)) {
            Some(None) => Fetched::Lost,
            _ => Fetched::Good,
        }
    }

    pub(super) fn copy(&mut self, from: (ChunkId, u32), to: (ChunkId, u32)) -> Result<(), StoreError> {
        self.before_write(to.0)?;
        self.fetched = None;
        self.scratch.resize(self.layout.block_stride as usize, 0);
        let (source, target) = (self.block_start(from.0, from.1), self.block_start(to.0, to.1));
        self.disk.read_exact_at(&mut self.scratch, source).map_err(self.failed("read"))?;
        self.disk.write_all_at(&self.scratch, target).map_err(self.failed("write to"))
    }

    pub(super) fn corrupt(&mut self, chunk: ChunkId, block: u32) -> Result<(), StoreError> {
        let at = self.block_start(chunk, block);
        let mut byte = [0];
        self.disk.read_exact_at(&mut byte, at).map_err(self.failed("read"))?;
        byte[0] ^= 1;
        self.disk.write_all_at(&byte, at).map_err(self.failed("write to"))
    }

    pub(super) fn exchange(&mut self, one: (ChunkId, u32), other: (ChunkId, u32)) -> Result<(), StoreError> {
        self.fetched = None;
        let places = [self.block_start(one.0, one.1), self.block_start(other.0, other.1)];
        let mut blocks = [(); 2].map(|()| vec![0; self.layout.block_stride as usize]);
        for (block, at) in blocks.iter_mut().zip(places) {
            self.disk.read_exact_at(block, at).map_err(self.failed("read"))?;
        }
        for (block, at) in blocks.iter().rev().zip(places) {
            self.disk.write_all_at(block, at).map_err(self.failed("write to"))?;
        }
        Ok(())
    }

    /// Punches a hole where `chunk` was, as soon as no crash needs what is there.
    pub(super) fn discard(&mut self, chunk: ChunkId) {
        self.fetched = None;
        let (at, bytes) = (self.chunk_start(chunk), self.layout.chunk_bytes);
        if self.commits.as_mut().is_none_or(|commits| commits.may_punch(chunk, at, bytes)) {
            self.disk.punch(at, bytes);
        }
    }

    /// Keeps what is known of a chunk.
    pub(super) fn record(
        &mut self,
        chunk: ChunkId,
        state: ChunkState,
        write_pointer: u32,
        resets: u32,
        lost_blocks: bool,
    ) -> Result<(), StoreError> {
        let number = self.number(chunk);
        let record = Record::new(number, state, write_pointer, resets, lost_blocks);
        match &mut self.commits {
            Some(commits) => {
                commits.record(chunk, number, record);
                commits.check()
            }
            None => self.disk.write_all_at(record.as_bytes(), commit::record_place(number)),
        }
        .map_err(self.failed("write a chunk record of"))
    }

    /// Notes that a block is lost. The first one of a chunk writes the bitmap afresh, whatever an earlier life of the
    /// chunk left there.
    pub(super) fn mark_lost(&mut self, chunk: ChunkId, block: u32, is_first: bool) -> Result<(), StoreError> {
        let number = self.number(chunk);
        let at = commit::bitmap_place(&self.layout, number);
        let mut bitmap = vec![0_u8; self.layout.bitmap_bytes as usize];
        let changed = self.commits.as_ref().and_then(|commits| commits.bitmap(number));
        match changed {
            _ if is_first => {}
            Some(changed) => bitmap.copy_from_slice(changed),
            None => self.disk.read_exact_at(&mut bitmap, at).map_err(self.failed("read"))?,
        }
        bitmap[block as usize / 8] |= 1 << (block % 8);
        match &mut self.commits {
            Some(commits) => {
                commits.set_bitmap(number, bitmap);
                commits.check()
            }
            None => self.disk.write_all_at(&bitmap, at),
        }
        .map_err(self.failed("write to"))
    }
}

fn lock(file: &File, path: &Path) -> Result<(), StoreError> {
    match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(()),
        Err(Errno::WOULDBLOCK) => Err(StoreError::Locked { path: path.to_owned() }),
        Err(error) => Err(StoreError::Io { doing: "lock", path: path.to_owned(), source: error.into() }),
    }
}
