//! The emulated device: an Open-Channel SSD made of arithmetic.
//!
//! ```text
//!   submit ─▶ commands ─▶ chunks    may this be written, read, reset?
//!                     ├─▶ chance    does it fail?
//!                     ├─▶ store     the bits move now, whatever the time it takes
//!                     ├─▶ schedule  when dies, channels and cache are free: when is it done?
//!                     └─▶ queue     the completion waits for its time
//!   poll ◀───────────────┘
//! ```
//!
//! The same code serves virtual time, wall-clock time and instant media: time comes in with each call, and
//! [`Timing::Instant`] makes every duration zero.

mod chance;
mod chunks;
mod commands;
mod commits;
mod injection;
mod log;
mod power;
mod queue;
mod read;
mod reset;
mod schedule;
mod silent;
mod simulation;
mod write;

pub use injection::ProgramFailure;
pub use power::{BlockMask, DieFate, EraseFate, PowerLoss, ProgramFate, Remains};
pub use queue::COMMANDS_MAX;
pub use silent::{Missing, SilentFault};

use crate::contract::{
    ChunkDescriptor, ChunkState, Command, Completion, Media, MediaError, Notification, QueueFull, Tag,
};
use crate::parts::PartLabel;
use crate::profile::{Profile, ProfileError};
use crate::store::commit::Durability;
use crate::store::file::FileStore;
use crate::store::ram::RamStore;
use crate::store::stamps::StampStore;
use crate::store::{Backing, Store, StoreError};
use chance::Chance;
use chunks::Chunks;
use commits::Commits;
use log::NotificationLog;
use openftl_core::page::PagePool;
use openftl_core::{ChunkId, Frames, Geometry, Nanos, Ppa, Time};
use queue::CompletionQueue;
use schedule::Schedule;
use std::collections::BTreeMap;
use std::path::Path;

/// How long the media takes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Timing {
    /// As long as the profile says: for virtual time and for wall-clock time.
    Modelled,
    /// No time at all: what is left is the cost of software.
    Instant,
}

/// A device that cannot be built or opened.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// The profile.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What the NAND has done since the device was opened.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, serde::Serialize)]
pub struct NandStatistics {
    /// Commands submitted.
    pub commands: u64,
    /// Blocks read, by the host or for a copy.
    pub blocks_read: u64,
    /// Blocks programmed, by the host or by a copy; those of failed program operations count too.
    pub blocks_programmed: u64,
    /// Of those, blocks programmed by a copy.
    pub blocks_copied: u64,
    /// Pages sensed.
    pub senses: u64,
    /// Program operations.
    pub programs: u64,
    /// Chunks erased.
    pub chunk_resets: u64,
    /// Program operations that failed.
    pub program_failures: u64,
    /// Erases that failed, and took their chunk offline.
    pub erase_failures: u64,
    /// Blocks that could not be read.
    pub read_failures: u64,
    /// Blocks that were read with much correction.
    pub high_ecc: u64,
}

/// What is the matter with one block below the write pointer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mark {
    /// It cannot be read.
    Lost,
    /// It can, and should be refreshed.
    Weak,
    /// It cannot be read so many times more. After those it is good, and stays so.
    Failing { times: u32 },
    /// It can be read so many times more. After those it is lost: a power cut has left it half programmed.
    Fading { reads: u32 },
}

/// A chunk that was reset, and that its die may still be erasing.
#[derive(Clone)]
struct Erase {
    chunk: ChunkId,
    begins: Time,
    done: Time,
    /// What it was before.
    before: chunks::Chunk,
    /// Written again before the erase was done: what it held is gone in any case.
    overwritten: bool,
}

/// An Open-Channel SSD, emulated.
pub struct EmulatedDevice {
    profile: Profile,
    geometry: Geometry,
    format: openftl_core::AddressFormat,
    chunks: Chunks,
    marks: BTreeMap<Ppa, Mark>,
    erases: Vec<Erase>,
    chance: Chance,
    schedule: Schedule,
    backing: Backing,
    queue: CompletionQueue,
    commits: Commits,
    log: NotificationLog,
    statistics: NandStatistics,
    store_error: Option<StoreError>,
    /// A test wants the next program operation to fail, wherever it is.
    next_program_fails: Option<ProgramFailure>,
    silent: silent::Silent,
    dulbe: bool,
    now: Time,
}

impl EmulatedDevice {
    /// A new device of `chunks_per_pu` chunks on each parallel unit. All that is left to chance follows from `seed`; a
    /// drive file keeps the seed that it was made with.
    ///
    /// # Errors
    /// If no such device is possible, or its store cannot be made.
    pub fn new(
        profile: Profile,
        chunks_per_pu: u32,
        store: Store,
        timing: Timing,
        mut seed: u64,
    ) -> Result<EmulatedDevice, DeviceError> {
        profile.validate()?;
        let geometry = profile.geometry(chunks_per_pu)?;
        let backing = match store {
            Store::Ram => Backing::Ram(RamStore::new(&geometry)),
            Store::Stamps => Backing::Stamps(StampStore::new(&geometry)),
            Store::File(file) => {
                file.expect(&profile, &geometry)?;
                // Chance goes on as the drive was made: another seed would find other chunks bad.
                seed = file.seed();
                Backing::File(file)
            }
        };
        let mut device = EmulatedDevice {
            format: geometry.format(),
            chunks: Chunks::new(&geometry),
            marks: BTreeMap::new(),
            erases: Vec::new(),
            chance: Chance::new(&profile, &geometry, seed),
            schedule: Schedule::new(&profile, &geometry, timing == Timing::Instant),
            backing,
            queue: CompletionQueue::default(),
            commits: Commits::default(),
            log: NotificationLog::default(),
            statistics: NandStatistics::default(),
            store_error: None,
            next_program_fails: None,
            silent: silent::Silent::default(),
            dulbe: false,
            now: Time::ZERO,
            profile,
            geometry,
        };
        let known = match &device.backing {
            Backing::File(file) => file.records()?,
            Backing::Ram(_) | Backing::Stamps(_) => Vec::new(),
        };
        for known in known {
            *device.chunks.resets_mut(known.chunk) = known.resets;
            device.chunks.set(known.chunk, known.state, known.write_pointer);
            for block in known.lost {
                device.mark(known.chunk, block, Mark::Lost);
            }
        }
        // Offline chunks of a drive file stay so, and the seed names the same ones as when it was made.
        let chunks = geometry.blocks() / u64::from(geometry.blocks_per_chunk);
        let mut is_bad = chance::factory_bad(&device.profile, chunks, seed);
        for chunk in geometry.chunk_ids() {
            if is_bad() && device.chunks.get(chunk).state != ChunkState::Offline {
                device.settle(chunk, ChunkState::Offline, 0)?;
            }
        }
        Ok(device)
    }

    /// A new device kept in a file.
    ///
    /// # Errors
    /// If no such device is possible, or the file exists or cannot be made.
    pub fn create(
        path: &Path,
        profile: &Profile,
        chunks_per_pu: u32,
        timing: Timing,
        seed: u64,
    ) -> Result<EmulatedDevice, DeviceError> {
        EmulatedDevice::create_divided(path, profile, chunks_per_pu, &[], timing, seed)
    }

    /// The same, and what it is to be divided into is kept with it.
    ///
    /// # Errors
    /// As [`EmulatedDevice::create`], and if it cannot be divided so.
    pub fn create_divided(
        path: &Path,
        profile: &Profile,
        chunks_per_pu: u32,
        parts: &[PartLabel],
        timing: Timing,
        seed: u64,
    ) -> Result<EmulatedDevice, DeviceError> {
        let file = FileStore::create(path, profile, chunks_per_pu, parts, seed)?;
        EmulatedDevice::new(profile.clone(), chunks_per_pu, Store::File(Box::new(file)), timing, seed)
    }

    /// The device kept in a file.
    ///
    /// # Errors
    /// If the file cannot be read, is no drive file, is of a newer version, is damaged or cut off, or is in use.
    pub fn open(path: &Path, timing: Timing) -> Result<EmulatedDevice, DeviceError> {
        EmulatedDevice::in_file(FileStore::open(path)?, timing)
    }

    /// Opens the device in a file to look at it: what is written to it stays in memory.
    ///
    /// # Errors
    /// As [`EmulatedDevice::open`].
    pub fn open_to_look_at(path: &Path, timing: Timing) -> Result<EmulatedDevice, DeviceError> {
        EmulatedDevice::in_file(FileStore::open_to_look_at(path)?, timing)
    }

    fn in_file(file: FileStore, timing: Timing) -> Result<EmulatedDevice, DeviceError> {
        let (profile, chunks_per_pu, seed) = (file.profile().clone(), file.geometry().chunks_per_pu, file.seed());
        EmulatedDevice::new(profile, chunks_per_pu, Store::File(Box::new(file)), timing, seed)
    }

    /// What a device that is kept in a file is to survive from now on. At first it is [`Durability::Process`].
    ///
    /// # Errors
    /// If the file cannot be synced.
    pub fn set_durability(&mut self, durability: Durability) -> Result<(), StoreError> {
        match &mut self.backing {
            Backing::File(file) => file.set_durability(durability),
            Backing::Ram(_) | Backing::Stamps(_) => Ok(()),
        }
    }

    /// Has a thread of its own sync the file from now on, so that nobody else waits for that: for those who live in real time.
    /// The thread calls `wake` whenever it is worth while to poll the device.
    ///
    /// # Errors
    /// If the system has no thread left.
    pub fn sync_beside(&mut self, wake: impl Fn() + Send + 'static) -> Result<(), StoreError> {
        match &mut self.backing {
            Backing::File(file) => file.sync_beside(Box::new(wake)),
            Backing::Ram(_) | Backing::Stamps(_) => Ok(()),
        }
    }

    /// What a device that is kept in a file is to survive; `None` if it is kept in memory.
    #[must_use]
    pub fn durability(&self) -> Option<Durability> {
        match &self.backing {
            Backing::File(file) if file.commits().is_some() => Some(Durability::Machine),
            Backing::File(_) => Some(Durability::Process),
            Backing::Ram(_) | Backing::Stamps(_) => None,
        }
    }

    /// How often the file was committed since its durability was set, where a crash of the machine is to be survived.
    #[must_use]
    pub fn commits(&self) -> Option<u64> {
        match &self.backing {
            Backing::File(file) => file.commits(),
            Backing::Ram(_) | Backing::Stamps(_) => None,
        }
    }

    /// The profile of the device.
    #[must_use]
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// What it is divided into, if it is kept in a file that says so.
    #[must_use]
    pub fn parts(&self) -> &[PartLabel] {
        match &self.backing {
            Backing::File(file) => file.parts(),
            Backing::Ram(_) | Backing::Stamps(_) => &[],
        }
    }

    /// What the NAND has done since the device was opened.
    #[must_use]
    pub fn statistics(&self) -> &NandStatistics {
        &self.statistics
    }

    /// Erases that a chunk stands.
    #[must_use]
    pub fn endurance(&self) -> u32 {
        self.profile.chip.endurance
    }

    /// Erases of each chunk so far, in the order of [`Geometry::chunk_ids`].
    pub fn wear(&self) -> impl Iterator<Item = (ChunkId, u32)> + '_ {
        self.geometry.chunk_ids().map(|chunk| (chunk, self.chunks.get(chunk).resets))
    }

    /// What the store last said no to, if it did: why a command ended with [`crate::Status::WriteFault`], or why blocks
    /// of a drive file could not be read.
    #[must_use]
    pub fn store_error(&self) -> Option<String> {
        let read_error = || match &self.backing {
            Backing::File(file) => {
                file.read_error().map(|error| format!("cannot read {}: {error}", file.path().display()))
            }
            Backing::Ram(_) | Backing::Stamps(_) => None,
        };
        self.store_error.as_ref().map(StoreError::to_string).or_else(read_error)
    }

    fn descriptor(&self, chunk: ChunkId) -> ChunkDescriptor {
        let entry = self.chunks.get(chunk);
        ChunkDescriptor {
            chunk,
            state: entry.state,
            wear_index: self.wear_index(entry.resets),
            blocks: self.geometry.blocks_per_chunk,
            write_pointer: entry.write_pointer,
        }
    }

    fn wear_index(&self, resets: u32) -> u8 {
        (u64::from(resets) * 255 / u64::from(self.profile.chip.endurance)).min(255) as u8
    }
}

impl Drop for EmulatedDevice {
    /// What was reset is let go of, also where the die was not done: a drive file that is closed keeps no dead space.
    fn drop(&mut self) {
        for erase in std::mem::take(&mut self.erases) {
            if !erase.overwritten {
                self.backing.discard(erase.chunk);
            }
        }
    }
}

impl Media for EmulatedDevice {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn page_pool(&self) -> PagePool {
        self.backing.page_pool()
    }

    fn submit(&mut self, now: Time, frames: &mut Frames, tag: Tag, command: Command<'_>) -> Result<(), QueueFull> {
        if self.queue.len() + self.commits.len() >= COMMANDS_MAX {
            return Err(QueueFull);
        }
        self.now = self.now.max(now);
        self.statistics.commands += 1;
        let outcome = self.carry_out(frames, command);
        let completion = Completion { tag, status: outcome.status, failed: outcome.failed, at: outcome.at };
        if self.needs_flush() && EmulatedDevice::ends_committed(&command) {
            self.complete_when_committed(completion);
        } else {
            self.queue.push(completion);
        }
        Ok(())
    }

    fn poll(&mut self, now: Time, _frames: &mut Frames, completions: &mut Vec<Completion>) {
        self.now = self.now.max(now);
        self.advance_commits();
        self.queue.drain(now, completions);
    }

    #[inline]
    fn next_due(&self) -> Option<Time> {
        match self.commits.next_due() {
            None => self.queue.next_due(),
            Some(look) => Some(self.queue.next_due().map_or(look, |due| due.min(look))),
        }
    }

    #[inline]
    fn needs_flush(&self) -> bool {
        self.backing.needs_commits()
    }

    fn forgets_writes(&self) -> bool {
        matches!(&self.backing, Backing::File(file) if file.forgets_writes())
    }

    fn chunk_report(
        &mut self,
        now: Time,
        first: ChunkId,
        descriptors: &mut [ChunkDescriptor],
    ) -> Result<(), MediaError> {
        self.now = self.now.max(now);
        if !self.chunks.exists(first) {
            return Err(MediaError::NoSuchChunk(first));
        }
        let mut chunks = self.geometry.chunk_ids().skip_while(|chunk| *chunk < first);
        let mut last = first;
        for descriptor in descriptors {
            last = chunks.next().ok_or(MediaError::NoSuchChunk(ChunkId(last.0 + 1)))?;
            *descriptor = self.descriptor(last);
        }
        Ok(())
    }

    fn notifications(
        &mut self,
        _now: Time,
        after: u64,
        notifications: &mut Vec<Notification>,
    ) -> Result<(), MediaError> {
        self.log.read(after, notifications);
        Ok(())
    }

    fn set_dulbe(&mut self, dulbe: bool) {
        self.dulbe = dulbe;
    }

    fn pu_busy(&self) -> Vec<Nanos> {
        self.geometry.pu_ids().map(|pu| self.schedule.busy(pu)).collect()
    }
}
