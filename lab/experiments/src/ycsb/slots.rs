//! A key-value store of a host, on blocks: values of one length in slots, and an index in memory.
//!
//! Requests for one block take turns, since each that writes has to read the block before. Each slot has its key and a version, so a wrong value
//! cannot pass.

use crate::ExperimentError;
use openftl_blocks::{BlockFtl, Ftl};
use openftl_core::{BLOCK_BYTES, Clock, Frame, FrameForm, Time, VirtualClock};
use openftl_lab::loads::KeyRequest;
use openftl_lab::value_trial::Latencies;
use openftl_media::EmulatedDevice;
use openftl_parts::words::Handle;
use openftl_parts::{BlockTarget, Done, Durability, IoError, Request, Statistics, Target};
use std::collections::{BTreeMap, VecDeque};

/// Bytes of an entry of a hash table in memory: key, slot, and a quarter of both free.
const INDEX_ENTRY_BYTES: u64 = (8 + 4) * 5 / 4;

/// The tag of a flush.
const FLUSH: u64 = u64::MAX >> 1;

/// A request under way.
struct Job {
    began: Time,
    what: KeyRequest,
    frame: Frame,
    /// The block is read, and is being written.
    is_writing: bool,
}

/// See the module.
pub struct Slots {
    drive: BlockFtl<EmulatedDevice>,
    pub clock: VirtualClock,
    pub latencies: Latencies,
    pub stored_bytes: u64,
    value_bytes: usize,
    /// Of each key the version that was written last.
    versions: Vec<u64>,
    /// Requests under way, by their block; others for it wait.
    jobs: BTreeMap<u64, Job>,
    waiting: BTreeMap<u64, VecDeque<(Time, KeyRequest)>>,
    under_way: u64,
}

fn of_drive(error: impl std::fmt::Display) -> ExperimentError {
    ExperimentError::Host(format!("the block drive below slots: {error}"))
}

impl Slots {
    pub fn new(drive: BlockFtl<EmulatedDevice>, clock: VirtualClock, value_bytes: usize) -> Slots {
        Slots {
            drive,
            clock,
            latencies: Latencies::default(),
            stored_bytes: 0,
            value_bytes,
            versions: Vec::new(),
            jobs: BTreeMap::new(),
            waiting: BTreeMap::new(),
            under_way: 0,
        }
    }

    pub fn statistics(&self) -> &Statistics {
        self.drive.statistics()
    }

    /// Memory that the host needs to find slots.
    pub fn index_bytes(&self) -> u64 {
        self.versions.len() as u64 * INDEX_ENTRY_BYTES
    }

    /// Makes all durable, and counts from nothing from then on.
    pub fn reset_statistics(&mut self) -> Result<(), ExperimentError> {
        self.flush()?;
        self.drive.reset_statistics();
        (self.latencies, self.stored_bytes) = (Latencies::default(), 0);
        Ok(())
    }

    /// Waits until all that was written is durable.
    pub fn flush(&mut self) -> Result<(), ExperimentError> {
        BlockTarget::submit(&mut self.drive, self.clock.now(), FLUSH, Request::Flush).map_err(of_drive)?;
        self.under_way += 1;
        while self.under_way > 0 {
            self.work()?;
        }
        Ok(())
    }

    /// Block and first byte of a key's slot.
    fn place(&self, key: u64) -> (u64, usize) {
        let of_block = (BLOCK_BYTES / self.value_bytes) as u64;
        (key / of_block, (key % of_block) as usize * self.value_bytes)
    }

    /// Keeps so many requests under way until all have ended.
    pub fn run(&mut self, requests: impl Iterator<Item = KeyRequest>, depth: u64) -> Result<(), ExperimentError> {
        for request in requests {
            while self.under_way >= depth {
                self.work()?;
            }
            let (block, _) = self.place(request.key());
            let since = self.clock.now();
            if let KeyRequest::Insert(key) = request {
                assert_eq!(self.versions.len() as u64, key, "keys are inserted in their order");
                self.versions.push(0);
            }
            self.under_way += 1;
            if self.jobs.contains_key(&block) {
                self.waiting.entry(block).or_default().push_back((since, request));
            } else {
                self.begin(block, since, request)?;
            }
        }
        while self.under_way > 0 {
            self.work()?;
        }
        Ok(())
    }

    fn begin(&mut self, block: u64, began: Time, what: KeyRequest) -> Result<(), ExperimentError> {
        let mut frames = Vec::new();
        while !self.drive.frames_mut().acquire_many(FrameForm::Bytes, 1, &mut frames) {
            self.work()?;
        }
        let job = Job { began, what, frame: frames[0], is_writing: false };
        self.read(block, job)
    }

    fn read(&mut self, block: u64, job: Job) -> Result<(), ExperimentError> {
        // The first of a block finds nothing there.
        if matches!(job.what, KeyRequest::Insert(_)) && self.place(job.what.key()).1 == 0 {
            self.drive.frames_mut().bytes_mut(job.frame).fill(0);
            return self.write(block, job);
        }
        self.submit(block, Request::Read { first: block, frames: &[job.frame] })?;
        self.jobs.insert(block, job);
        Ok(())
    }

    fn write(&mut self, block: u64, mut job: Job) -> Result<(), ExperimentError> {
        let key = job.what.key();
        let (at, length) = (self.place(key).1, self.value_bytes);
        let version = self.versions[key as usize] + 1;
        let slot = &mut self.drive.frames_mut().bytes_mut(job.frame)[at..at + length];
        slot[..8].copy_from_slice(&key.to_le_bytes());
        slot[8..16].copy_from_slice(&version.to_le_bytes());
        slot[16..].fill(version as u8);
        let (durability, handle) = (Durability::Volatile, Handle::NONE);
        self.submit(block, Request::Write { first: block, frames: &[job.frame], durability, handle })?;
        self.versions[key as usize] = version;
        self.stored_bytes += length as u64;
        job.is_writing = true;
        self.jobs.insert(block, job);
        Ok(())
    }

    fn submit(&mut self, block: u64, request: Request<'_>) -> Result<(), ExperimentError> {
        loop {
            match BlockTarget::submit(&mut self.drive, self.clock.now(), block, request) {
                Ok(()) => return Ok(()),
                Err(IoError::QueueFull) => self.wait()?,
                Err(error) => return Err(of_drive(error)),
            }
        }
    }

    fn wait(&mut self) -> Result<(), ExperimentError> {
        let due = self.drive.next_due().ok_or_else(|| of_drive("it hangs"))?;
        self.clock.wait_until(due);
        Ok(())
    }

    /// Lets the drive work until something has ended, or it is due.
    fn work(&mut self) -> Result<(), ExperimentError> {
        let mut done: Vec<Done> = Vec::new();
        self.drive.poll(self.clock.now(), &mut done);
        if done.is_empty() {
            return self.wait();
        }
        for Done { tag, result, at, .. } in done {
            result.map_err(of_drive)?;
            if tag == FLUSH {
                self.under_way -= 1;
                continue;
            }
            self.ended(tag, at)?;
        }
        Ok(())
    }

    fn ended(&mut self, block: u64, at: Time) -> Result<(), ExperimentError> {
        let job = self.jobs.remove(&block).expect("a request under way");
        if !job.is_writing {
            let is_new = matches!(job.what, KeyRequest::Insert(_));
            if !is_new {
                self.expect(job.what.key(), job.frame)?;
            }
            if !matches!(job.what, KeyRequest::Read(_)) {
                return self.write(block, job);
            }
            self.drive.frames_mut().release(job.frame);
        }
        self.latencies.count(job.what, job.began, at);
        self.under_way -= 1;
        let next = self.waiting.get_mut(&block).and_then(VecDeque::pop_front);
        if self.waiting.get(&block).is_some_and(VecDeque::is_empty) {
            self.waiting.remove(&block);
        }
        match next {
            Some((since, what)) => self.begin(block, since, what),
            None => Ok(()),
        }
    }

    /// Whether a block that was read has what was written for a key last.
    fn expect(&self, key: u64, frame: Frame) -> Result<(), ExperimentError> {
        let at = self.place(key).1;
        let slot = &self.drive.frames().bytes(frame)[at..at + self.value_bytes];
        let version = self.versions[key as usize];
        let is_it = slot[..8] == key.to_le_bytes()
            && slot[8..16] == version.to_le_bytes()
            && slot[16..].iter().all(|byte| *byte == version as u8);
        if is_it { Ok(()) } else { Err(of_drive(format_args!("the slot of key {key} is not what was written there"))) }
    }
}
