//! A key-value drive under a mix of YCSB: so many requests under way at a time, until all of them have ended.
//!
//! A scan lists its keys, and then reads the values of all of them at once.

use crate::loads::KeyRequest;
use hdrhistogram::Histogram;
use openftl_core::{BLOCK_BYTES, Clock, Frame, FrameForm, Time};
use openftl_media::Media;
use openftl_parts::{Durability, Target};
use openftl_values::{Condition, Key, Value, ValueDone, ValueError, ValueFtl, ValueRequest, ValueTarget, keys_of_list};
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::{BTreeMap, VecDeque};

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
    /// A list of keys cannot be read.
    #[error("the list of keys from key {first} on is none")]
    NoList {
        /// The number of the key that it begins with.
        first: u64,
    },
    /// A value is not as long as those that were stored, or not that of its key.
    #[error("under {key:?} there are {bytes} bytes of key {found}, and {expected} bytes of its own were stored")]
    WrongData {
        /// The key.
        key: Key,
        /// The bytes of its value.
        bytes: u32,
        /// The number of the key in it.
        found: u64,
        /// Bytes of all values.
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
    /// 50 %, 99 % and 99.9 % of those that were counted took no longer than so many microseconds. None: there were none.
    #[must_use]
    pub fn percentiles(histogram: &Histogram<u64>) -> Option<[f64; 3]> {
        let at = |share: f64| histogram.value_at_quantile(share) as f64 / 1e3;
        (!histogram.is_empty()).then(|| [0.5, 0.99, 0.999].map(at))
    }

    /// Counts a request that has ended.
    pub fn count(&mut self, what: KeyRequest, began: Time, ended: Time) {
        let histogram = match what {
            KeyRequest::Read(_) | KeyRequest::Scan(..) => &mut self.reads,
            KeyRequest::Update(_) | KeyRequest::Insert(_) | KeyRequest::ReadModifyWrite(_) => &mut self.writes,
        };
        histogram.saturating_record(ended.since(began).0);
    }
}

/// A request under way, or one of the reads that a scan is followed by.
struct Job {
    began: Time,
    what: KeyRequest,
    /// A read that is followed by a write has been read.
    is_written: bool,
    /// It reads this value for the scan with this number.
    of_scan: Option<(u64, Key)>,
    frames: Vec<Frame>,
}

/// A scan whose keys are known, and of whose values so many are still to be read.
struct Scan {
    began: Time,
    what: KeyRequest,
    left: usize,
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
    /// Reads that found no such key: it was being inserted.
    pub missing: u64,
    value: Vec<u8>,
    /// Requests that have not ended.
    under_way: u64,
    jobs: BTreeMap<u64, Job>,
    scans: BTreeMap<u64, Scan>,
    /// Values that scans are to read, by the number of the scan: room for them comes first.
    unread: VecDeque<(u64, Key)>,
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

/// The key that a job is at.
fn key_of(job: &Job) -> Key {
    job.of_scan.map_or_else(|| key(job.what.key()), |(_, key)| key)
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
            missing: 0,
            value,
            under_way: 0,
            jobs: BTreeMap::new(),
            scans: BTreeMap::new(),
            unread: VecDeque::new(),
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
            KeyRequest::Read(_) | KeyRequest::ReadModifyWrite(_) => self.value_frames(),
            KeyRequest::Scan(..) => LIST_FRAMES,
            KeyRequest::Update(_) | KeyRequest::Insert(_) => 0,
        };
        let mut given = Vec::new();
        while !self.drive.frames_mut().acquire_many(FrameForm::Bytes, frames, &mut given) {
            self.work()?;
        }
        self.under_way += 1;
        self.ask(Job { began, what, is_written: false, of_scan: None, frames: given })
    }

    /// Bytes of a value that have the number of its key.
    fn marked(&self) -> usize {
        self.value.len().min(size_of::<u64>())
    }

    fn value_frames(&self) -> usize {
        self.value.len().div_ceil(BLOCK_BYTES)
    }

    /// Asks the drive what a job is at, as soon as it can take it.
    fn ask(&mut self, mut job: Job) -> Result<(), ValueTrialError> {
        while let Some(refused) = self.try_to_ask(job)? {
            job = refused;
            self.work()?;
        }
        Ok(())
    }

    /// Reads the values that scans have found, as far as there is room.
    fn read_on(&mut self) -> Result<(), ValueTrialError> {
        while let Some((scan, key)) = self.unread.pop_front() {
            let mut frames = Vec::new();
            let count = self.value_frames();
            let has_frames = self.drive.frames_mut().acquire_many(FrameForm::Bytes, count, &mut frames);
            let Scan { began, what, .. } = self.scans[&scan];
            let job = Job { began, what, is_written: false, of_scan: Some((scan, key)), frames };
            let refused = if has_frames { self.try_to_ask(job)? } else { Some(job) };
            if let Some(Job { frames, .. }) = refused {
                frames.iter().for_each(|frame| self.drive.frames_mut().release(*frame));
                self.unread.push_front((scan, key));
                break;
            }
        }
        Ok(())
    }

    /// Asks the drive what a job is at. Returns it if the drive is busy.
    fn try_to_ask(&mut self, job: Job) -> Result<Option<Job>, ValueTrialError> {
        self.next_tag += 1;
        // Each value has the number of its key, and differs from the one before it.
        let number = job.what.key().to_le_bytes();
        let (number, body) = (&number[..self.marked()], &self.value[self.marked()..]);
        let from = (self.chance.next_u64() % (BLOCK_BYTES as u64)) as usize % (body.len() + 1);
        let pieces = [number, &body[from..], &body[..from]];
        let retrieve = |key: Key| ValueRequest::Retrieve { key, frames: &job.frames };
        let store = |number: u64| ValueRequest::Store {
            key: key(number),
            value: Value::Pieces(&pieces),
            condition: Condition::Always,
            durability: self.durability,
        };
        let request = match (job.what, job.of_scan) {
            (_, Some((_, key))) => retrieve(key),
            (KeyRequest::ReadModifyWrite(number), None) if job.is_written => store(number),
            (KeyRequest::Read(number) | KeyRequest::ReadModifyWrite(number), None) => retrieve(key(number)),
            (KeyRequest::Update(number) | KeyRequest::Insert(number), None) => store(number),
            (KeyRequest::Scan(number, count), None) => {
                let bytes = (4 + count * 12).min((LIST_FRAMES * BLOCK_BYTES) as u32);
                ValueRequest::List { from: Some(key(number)), bytes, frames: &job.frames }
            }
        };
        match self.drive.submit(self.clock.now(), self.next_tag, request) {
            Ok(()) => {
                self.jobs.insert(self.next_tag, job);
                Ok(None)
            }
            Err(ValueError::Busy) => Ok(Some(job)),
            Err(error) => Err(error.into()),
        }
    }

    /// Lets the drive work until something has ended.
    fn work(&mut self) -> Result<(), ValueTrialError> {
        self.read_on()?;
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
            let is_list = matches!(job.what, KeyRequest::Scan(..)) && job.of_scan.is_none();
            match (result, job.what) {
                (Ok(facts), _) if is_list => self.read_values(tag, &job, facts.bytes as usize)?,
                (Ok(facts), _) => self.expect(&job, facts.bytes)?,
                // What was inserted last may not be there yet.
                (Err(ValueError::NoKey), KeyRequest::Read(_)) => self.missing += 1,
                (Err(error), _) => return Err(error.into()),
            }
            if matches!(job.what, KeyRequest::ReadModifyWrite(_)) && !job.is_written {
                job.is_written = true;
                self.ask(job)?;
                continue;
            }
            job.frames.iter().for_each(|frame| self.drive.frames_mut().release(*frame));
            let scan = job.of_scan.map_or(tag, |(scan, _)| scan);
            if let Some(of_scan) = self.scans.get_mut(&scan) {
                of_scan.left -= usize::from(!is_list);
                if of_scan.left > 0 {
                    continue;
                }
                self.scans.remove(&scan);
            }
            self.latencies.count(job.what, job.began, at);
            self.under_way -= 1;
        }
        Ok(())
    }

    /// An error if a job has read a value, and not the whole one of its key.
    fn expect(&self, job: &Job, bytes: u32) -> Result<(), ValueTrialError> {
        let (wanted, expected) = (key_of(job), self.value.len());
        let is_read = !job.frames.is_empty() && !job.is_written;
        if !is_read {
            return Ok(());
        }
        let mut number = [0; size_of::<u64>()];
        number[..self.marked()].copy_from_slice(&self.drive.frames().bytes(job.frames[0])[..self.marked()]);
        let found = u64::from_le_bytes(number);
        // Very short values have only a part of it.
        let is_its_own = key(found) == wanted || self.marked() < size_of::<u64>();
        match bytes as usize == expected && is_its_own {
            true => Ok(()),
            false => Err(ValueTrialError::WrongData { key: wanted, bytes, found, expected }),
        }
    }

    /// The keys of a scan were listed, and their values come next.
    fn read_values(&mut self, scan: u64, job: &Job, bytes: usize) -> Result<(), ValueTrialError> {
        let KeyRequest::Scan(first, count) = job.what else { unreachable!("only a scan lists") };
        let frames = job.frames.iter().flat_map(|frame| self.drive.frames().bytes(*frame));
        let list: Vec<u8> = frames.copied().take(bytes).collect();
        let keys = keys_of_list(&list).ok_or(ValueTrialError::NoList { first })?;
        let keys = &keys[..keys.len().min(count as usize)];
        if !keys.is_empty() {
            self.scans.insert(scan, Scan { began: job.began, what: job.what, left: keys.len() });
            self.unread.extend(keys.iter().map(|key| (scan, *key)));
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
            while self.under_way >= depth {
                self.work()?;
            }
            self.begin(request)?;
            if done % 1024 == 0 {
                tell(done);
            }
        }
        while self.under_way > 0 {
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

#[cfg(test)]
mod tests {
    use super::*;
    use openftl_core::VirtualClock;
    use openftl_media::{EmulatedDevice, Profile, Store, Timing};
    use openftl_parts::Config;
    use openftl_values::{Ftl, ValueConfig};

    const VALUE_BYTES: u32 = 700;

    fn trial() -> ValueTrial<EmulatedDevice, VirtualClock> {
        let profile = Profile::builtin("tiny").unwrap();
        let config = Config { capacity_blocks: 1024, payload: FrameForm::Bytes, ..Config::default() };
        let shape = profile.geometry(profile.chunks_per_pu).unwrap();
        let chunks = openftl_pages::chunks_per_pu(&shape, &config, 4 << 20).unwrap();
        let device = EmulatedDevice::new(profile, chunks, Store::Ram, Timing::Modelled, 1).unwrap();
        let mut clock = VirtualClock::default();
        let drive = ValueFtl::format(device, config, ValueConfig::default(), &mut clock).unwrap();
        let mut trial = ValueTrial::new(drive, clock, VALUE_BYTES, 1);
        trial.run((0..300).map(KeyRequest::Insert), 8, |_| ()).unwrap();
        trial
    }

    #[test]
    fn a_scan_ends_when_the_values_of_its_keys_were_read() {
        let mut trial = trial();
        let before = *trial.drive.statistics();
        trial
            .run([KeyRequest::Scan(7, 50), KeyRequest::Scan(0, 3), KeyRequest::Scan(299, 1)].into_iter(), 2, |_| ())
            .unwrap();
        let statistics = trial.drive.statistics();
        // There are at least three keys from each of them on but the last few.
        let read = statistics.retrieves - before.retrieves;
        assert!((3..=54).contains(&read), "{read} values");
        assert_eq!((trial.latencies.reads.len(), trial.under_way, trial.missing), (3, 0, 0));
        assert!(trial.scans.is_empty() && trial.unread.is_empty() && trial.jobs.is_empty());
    }

    #[test]
    fn the_value_of_another_key_and_one_of_another_length_end_a_trial() {
        for (number, bytes) in [(4_u64, VALUE_BYTES), (3, VALUE_BYTES - 1)] {
            for read in [KeyRequest::Read(3), KeyRequest::ReadModifyWrite(3), KeyRequest::Scan(3, 1)] {
                let mut trial = trial();
                let rest = vec![0; bytes as usize - 8];
                let pieces = [&number.to_le_bytes()[..], &rest];
                let (value, durability) = (Value::Pieces(&pieces), Durability::Volatile);
                let store = ValueRequest::Store { key: key(3), value, condition: Condition::Always, durability };
                trial.drive.submit(trial.clock.now(), 0, store).unwrap();
                trial.work().unwrap();
                let error = trial.run([read].into_iter(), 1, |_| ()).unwrap_err();
                let expected = VALUE_BYTES as usize;
                assert_eq!(
                    error,
                    ValueTrialError::WrongData { key: key(3), bytes, found: number, expected },
                    "{read:?}"
                );
            }
        }
    }
}
