//! The file store: a sparse file in which everything acknowledged survives the death of the process.
//!
//! Every write ends with one small record that says how far its chunk is written. Both go to the page cache in that
//! order, so `kill -9` finds a record only with its data; [`crate::Command::Flush`] takes them to the disk. The file is
//! described in [`super::format`].

use super::format::{self, Header, Layout, PartEntry, Record, Start, StartError};
use super::{Fetched, StoreError};
use crate::contract::ChunkState;
use crate::parts::{PartLabel, check_parts};
use crate::profile::Profile;
use openftl_core::{
    AddressFormat, BLOCK_BYTES, ChunkId, Frame, FrameForm, Frames, Geometry, Payload, PayloadMut, Stamp,
};
use rustix::fs::{FallocateFlags, FlockOperation};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use zerocopy::{FromZeros, IntoBytes};

/// Blocks that go into one vectored write: two slices each, well below what the system takes (1024).
const VECTORED_BLOCKS: usize = 64;

/// Keeps everything in a file.
#[derive(Debug)]
pub struct FileStore {
    file: File,
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
        let failed = |doing| move |source| StoreError::Io { doing, path: path.to_owned(), source };
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
        let file = File::options().read(true).write(true).create_new(true).open(path).map_err(failed("create"))?;
        lock(&file, path)?;
        let make = || -> io::Result<()> {
            file.set_len(layout.file_bytes)?;
            // Real zeroes, not holes: a full disk must never keep a chunk record from being written.
            let zeroes = vec![0; 1 << 20];
            let mut at = u64::from(format::HEADER_BYTES);
            while at < layout.chunks_start {
                let bytes = (layout.chunks_start - at).min(zeroes.len() as u64);
                file.write_all_at(&zeroes[..bytes as usize], at)?;
                at += bytes;
            }
            // The header comes last: a file whose making was interrupted is no drive.
            file.sync_data()?;
            let header = Header::new(&geometry, seed, &text, &entries);
            file.write_all_at(&[header.as_bytes(), text.as_bytes(), entries.as_bytes()].concat(), 0)?;
            file.sync_all()
        };
        if let Err(error) = make() {
            // Nobody can use half a drive file, and its name would be in the way of the next try.
            let _ = std::fs::remove_file(path);
            return Err(failed("create")(error));
        }
        let start = Start { profile: profile.clone(), geometry, seed, parts: parts.to_vec() };
        Ok(FileStore::new(file, path, start, layout))
    }

    /// Opens a drive file and takes it for this process alone.
    ///
    /// # Errors
    /// If it cannot be read, is no drive file, is of a newer version, is damaged or cut off, or is in use.
    pub fn open(path: &Path) -> Result<FileStore, StoreError> {
        let failed = |source| StoreError::Io { doing: "open", path: path.to_owned(), source };
        let path_owned = || path.to_owned();
        let file = File::options().read(true).write(true).open(path).map_err(failed)?;
        lock(&file, path)?;
        let found = file.metadata().map_err(failed)?.len();
        let mut start = vec![0; (found as usize).min(format::HEADER_BYTES as usize)];
        file.read_exact_at(&mut start, 0).map_err(failed)?;
        let truncated = |expected| StoreError::Truncated { path: path_owned(), found, expected };
        let start = Start::parse(&start).map_err(|error| match error {
            StartError::Magic => StoreError::NotADrive { path: path_owned() },
            StartError::Version(found) => {
                StoreError::NewerVersion { path: path_owned(), found, newest: format::VERSION }
            }
            StartError::Truncated { expected } => truncated(expected),
            StartError::Damaged(what) => StoreError::Damaged { path: path_owned(), what: what.to_owned() },
            StartError::Profile(error) => StoreError::Profile(error),
        })?;
        let layout = Layout::of(&start.geometry);
        if found < layout.file_bytes {
            return Err(truncated(layout.file_bytes));
        }
        Ok(FileStore::new(file, path, start, layout))
    }

    fn new(file: File, path: &Path, start: Start, layout: Layout) -> FileStore {
        let Start { profile, geometry, seed, parts } = start;
        FileStore {
            file,
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
        let mut table = vec![Record::new_zeroed(); chunks.len()];
        self.file.read_exact_at(table.as_mut_bytes(), u64::from(format::HEADER_BYTES)).map_err(failed)?;
        let mut records = Vec::with_capacity(chunks.len());
        for ((number, chunk), record) in (0..).zip(chunks).zip(table) {
            let state = record.state(number, self.geometry.blocks_per_chunk).ok_or_else(|| StoreError::Damaged {
                path: self.path.clone(),
                what: format!("the record of chunk {number} is damaged"),
            })?;
            let mut lost = Vec::new();
            if record.flags & format::LOST_BLOCKS != 0 {
                let mut bitmap = vec![0; (self.geometry.blocks_per_chunk as usize).div_ceil(8)];
                self.file
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
        let mut slices = &mut slices[..2 * frames.len()];
        let mut at = at;
        while !slices.is_empty() {
            match rustix::io::pwritev(&self.file, slices, at) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    at += written as u64;
                    IoSlice::advance_slices(&mut slices, written);
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
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
        self.file.write_all_at(&self.scratch, at)
    }

    /// Fetches a run of blocks with one call, for the reads that follow. They may find that it did not work.
    pub(crate) fn fetch(&mut self, chunk: ChunkId, first: u32, blocks: u32) {
        self.scratch.resize(blocks as usize * self.layout.block_stride as usize, 0);
        let at = self.block_start(chunk, first);
        self.fetched = self.file.read_exact_at(&mut self.scratch, at).is_ok().then_some((chunk, first, blocks));
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
                if let Err(error) = self.read_vectored(self.block_start(chunk, block), bytes, oob) {
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

    fn read_vectored(&self, at: u64, bytes: &mut [u8], oob: &mut [u8]) -> io::Result<()> {
        let mut slices = [IoSliceMut::new(bytes), IoSliceMut::new(oob)];
        let mut slices = &mut slices[..];
        let mut at = at;
        while !slices.is_empty() {
            match rustix::io::preadv(&self.file, slices, at) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => {
                    at += read as u64;
                    IoSliceMut::advance_slices(&mut slices, read);
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    pub(super) fn copy(&mut self, from: (ChunkId, u32), to: (ChunkId, u32)) -> Result<(), StoreError> {
        self.fetched = None;
        self.scratch.resize(self.layout.block_stride as usize, 0);
        let (source, target) = (self.block_start(from.0, from.1), self.block_start(to.0, to.1));
        self.file.read_exact_at(&mut self.scratch, source).map_err(self.failed("read"))?;
        self.file.write_all_at(&self.scratch, target).map_err(self.failed("write to"))
    }

    pub(super) fn corrupt(&mut self, chunk: ChunkId, block: u32) -> Result<(), StoreError> {
        let at = self.block_start(chunk, block);
        let mut byte = [0];
        self.file.read_exact_at(&mut byte, at).map_err(self.failed("read"))?;
        byte[0] ^= 1;
        self.file.write_all_at(&byte, at).map_err(self.failed("write to"))
    }

    pub(super) fn exchange(&mut self, one: (ChunkId, u32), other: (ChunkId, u32)) -> Result<(), StoreError> {
        self.fetched = None;
        let places = [self.block_start(one.0, one.1), self.block_start(other.0, other.1)];
        let mut blocks = [(); 2].map(|()| vec![0; self.layout.block_stride as usize]);
        for (block, at) in blocks.iter_mut().zip(places) {
            self.file.read_exact_at(block, at).map_err(self.failed("read"))?;
        }
        for (block, at) in blocks.iter().rev().zip(places) {
            self.file.write_all_at(block, at).map_err(self.failed("write to"))?;
        }
        Ok(())
    }

    /// Punches a hole where `chunk` was. A file system that cannot do that keeps the space.
    pub(super) fn discard(&mut self, chunk: ChunkId) {
        self.fetched = None;
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let _ = rustix::fs::fallocate(&self.file, flags, self.chunk_start(chunk), self.layout.chunk_bytes);
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
        let at = u64::from(format::HEADER_BYTES) + u64::from(number) * size_of::<Record>() as u64;
        self.file.write_all_at(record.as_bytes(), at).map_err(self.failed("write a chunk record of"))
    }

    /// Notes that a block is lost. The first one of a chunk writes the bitmap afresh, whatever an earlier life of the
    /// chunk left there.
    pub(super) fn mark_lost(&mut self, chunk: ChunkId, block: u32, is_first: bool) -> Result<(), StoreError> {
        let start = self.chunk_start(chunk) + self.layout.bitmap_start;
        let mut bitmap = vec![0_u8; (self.geometry.blocks_per_chunk as usize).div_ceil(8)];
        if !is_first {
            self.file.read_exact_at(&mut bitmap, start).map_err(self.failed("read"))?;
        }
        bitmap[block as usize / 8] |= 1 << (block % 8);
        self.file.write_all_at(&bitmap, start).map_err(self.failed("write to"))
    }

    /// Takes everything to the disk.
    pub(super) fn sync(&mut self) -> Result<(), StoreError> {
        self.file.sync_data().map_err(self.failed("sync"))
    }
}

fn lock(file: &File, path: &Path) -> Result<(), StoreError> {
    match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(()),
        Err(Errno::WOULDBLOCK) => Err(StoreError::Locked { path: path.to_owned() }),
        Err(error) => Err(StoreError::Io { doing: "lock", path: path.to_owned(), source: error.into() }),
    }
}
