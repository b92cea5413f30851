//! A key-value drive under a mix of YCSB: so many requests under way at a time, until all of them have ended.

use crate::loads::KeyRequest;
use hdrhistogram::Histogram;
use openftl_core::{BLOCK_BYTES, Clock, Frame, FrameForm, Time};
use openftl_media::Media;
use openftl_parts::{Durability, Target};
use openftl_values::{Condition, Key, Value, ValueDone, ValueError, ValueFtl, ValueRequest, ValueTarget};
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::BTreeMap;

/// Frames of a list: 100 keys of 8 bytes, and more.
const LIST_FRAMES: usize = 1;

/// Why a trial came to its end early.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ValueTrialError {
    /// The drive refuses what was asked, or cannot do it.
    #[error(transparent)]
    Drive(#[from] ValueError),
    /// Something was asked, and the drive says that it has nothing to do.
    #[error("the key-value drive hangs: {0}")]
    Hangs(String),
    /// A value is not as long as those that were stored.
    #[error("the value of key {number} has {bytes} bytes, and {expected} were stored")]
    WrongData {
        /// The number of the key.
        number: u64,
        /// Its bytes.
        bytes: u32,
        /// Those of all values.
        expected: usize,
    },
}

/// How long requests took, in nanoseconds.
#[derive(Clone, Debug)]
pub struct Latencies {
    /// Reads and scans.
    pub reads: Histogram<u64>,
    /// Whatever writes.
    pub writes: Histogram<u64>,
}

impl Default for Latencies {
    fn default() -> Latencies {
        let histogram = || Histogram::new_with_bounds(1, 1 << 40, 3).expect("constant bounds are in order");
        Latencies { reads: histogram(), writes: histogram() }
    }
}

impl Latencies {
    /// Counts a request that has ended.
    pub fn count(&mut self, what: KeyRequest, began: Time, ended: Time) {
        let histogram = match what {
            KeyRequest::Read(_) | KeyRequest::Scan(..) => &mut self.reads,
            KeyRequest::Update(_) | KeyRequest::Insert(_) | KeyRequest::ReadModifyWrite(_) => &mut self.writes,
        };
        histogram.saturating_record(ended.since(began).0);
    }
}

/// A request under way.
struct Job {
    began: Time,
    what: KeyRequest,
    /// A read that is followed by a write has been read.
    is_written: bool,
    frames: Vec<Frame>,
}

/// See the module.
pub struct ValueTrial<M: Media, C> {
    /// The drive.
    pub drive: ValueFtl<M>,
    /// Its clock.
    pub clock: C,
    /// When Stores are acknowledged.
    pub durability: Durability,
    /// Of the requests since it was emptied.
    pub latencies: Latencies,
    value: Vec<u8>,
    jobs: BTreeMap<u64, Job>,
    next_tag: u64,
    chance: Xoshiro256PlusPlus,
    done: Vec<ValueDone>,
}

/// Keys as YCSB has them are longer; eight bytes in an order that is not that of their numbers.
#[must_use]
pub fn key(number: u64) -> Key {
    let bits = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    Key::new(&bits.to_be_bytes()).expect("eight bytes are a key")
}

impl<M: Media, C: Clock> ValueTrial<M, C> {
    /// A host of a new drive, whose values all have so many bytes.
    #[must_use]
    pub fn new(drive: ValueFtl<M>, clock: C, value_bytes: u32, seed: u64) -> ValueTrial<M, C> {
        let mut chance = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut value = vec![0; value_bytes as usize];
        chance.fill_bytes(&mut value);
        ValueTrial {
            drive,
            clock,
            durability: Durability::Volatile,
            latencies: Latencies::default(),
            value,
            jobs: BTreeMap::new(),
            next_tag: 0,
            chance,
            done: Vec::new(),
        }
    }

    /// Bytes that were programmed, for whatever purpose, since statistics began.
    #[must_use]
    pub fn nand_bytes(&self) -> u64 {
        self.drive.store().statistics().0.nand_blocks_written() * BLOCK_BYTES as u64
    }

    fn begin(&mut self, what: KeyRequest) -> Result<(), ValueTrialError> {
        let began = self.clock.now();
        let frames = match what {
            KeyRequest::Read(_) | KeyRequest::ReadModifyWrite(_) => self.value.len().div_ceil(BLOCK_BYTES),
            KeyRequest::Scan(..) => LIST_FRAMES,
            KeyRequest::Update(_) | KeyRequest::Insert(_) => 0,
        };
        let mut given = Vec::new();
        while !self.drive.frames_mut().acquire_many(FrameForm::Bytes, frames, &mut given) {
            self.work()?;
        }
        self.ask(Job { began, what, is_written: false, frames: given })
    }

    /// Asks the drive what a job is at.
    fn ask(&mut self, job: Job) -> Result<(), ValueTrialError> {
        self.next_tag += 1;
        let tag = self.next_tag;
        loop {
            let now = self.clock.now();
            // Each value differs from the one before it.
            let from = (self.chance.next_u64() % (BLOCK_BYTES as u64)) as usize;
            let pieces = [&self.value[from % (self.value.len() + 1)..], &self.value[..from % (self.value.len() + 1)]];
            let store = |number: u64| ValueRequest::Store {
                key: key(number),
                value: Value::Pieces(&pieces),
                condition: Condition::Always,
                durability: self.durability,
            };
            let request = match job.what {
                KeyRequest::ReadModifyWrite(number) if job.is_written => store(number),
                KeyRequest::Read(number) | KeyRequest::ReadModifyWrite(number) => {
                    ValueRequest::Retrieve { key: key(number), frames: &job.frames }
                }
                KeyRequest::Update(number) | KeyRequest::Insert(number) => store(number),
                KeyRequest::Scan(number, count) => {
                    let bytes = (4 + count * 12).min((LIST_FRAMES * BLOCK_BYTES) as u32);
                    ValueRequest::List { from: Some(key(number)), bytes, frames: &job.frames }
                }
            };
            match self.drive.submit(now, tag, request) {
                Ok(()) => break,
                Err(ValueError::Busy) => self.work()?,
                Err(error) => return Err(error.into()),
            }
        }
        self.jobs.insert(tag, job);
        Ok(())
    }

    /// Lets the drive work until something has ended.
    fn work(&mut self) -> Result<(), ValueTrialError> {
        self.drive.poll(self.clock.now(), &mut self.done);
        while self.done.is_empty() {
            let due = self.drive.next_due().ok_or_else(|| ValueTrialError::Hangs(self.drive.describe()))?;
            self.clock.wait_until(due);
            self.drive.poll(self.clock.now(), &mut self.done);
        }
        for ValueDone { tag, result, at } in std::mem::take(&mut self.done) {
            let Some(mut job) = self.jobs.remove(&tag) else {
                // A flush.
                result?;
                continue;
            };
            match (result, job.what) {
                (Ok(facts), KeyRequest::Read(number)) if facts.bytes as usize != self.value.len() => {
                    return Err(ValueTrialError::WrongData { number, bytes: facts.bytes, expected: self.value.len() });
                }
                (Ok(_), _) => {}
                // What was inserted last may not be there yet.
                (Err(ValueError::NoKey), KeyRequest::Read(_)) => {}
                (Err(error), _) => return Err(error.into()),
            }
            if matches!(job.what, KeyRequest::ReadModifyWrite(_)) && !job.is_written {
                job.is_written = true;
                self.ask(job)?;
                continue;
            }
            self.latencies.count(job.what, job.began, at);
            job.frames.iter().for_each(|frame| self.drive.frames_mut().release(*frame));
        }
        Ok(())
    }

    /// Keeps so many requests under way until all have ended. `tell` is told how many were begun.
    ///
    /// # Errors
    /// If the drive is at fault.
    pub fn run(
        &mut self,
        requests: impl Iterator<Item = KeyRequest>,
        depth: u64,
        mut tell: impl FnMut(u64),
    ) -> Result<(), ValueTrialError> {
        for (done, request) in (0..).zip(requests) {
            while self.jobs.len() as u64 >= depth {
                self.work()?;
            }
            self.begin(request)?;
            if done % 1024 == 0 {
                tell(done);
            }
        }
        while !self.jobs.is_empty() {
            self.work()?;
        }
        Ok(())
    }

    /// Waits until all that was stored is durable.
    ///
    /// # Errors
    /// If the drive takes no more writes.
    pub fn flush(&mut self) -> Result<(), ValueTrialError> {
        self.next_tag += 1;
        let (now, tag) = (self.clock.now(), self.next_tag);
        self.drive.submit(now, tag, ValueRequest::Flush)?;
        self.work()
    }
}
