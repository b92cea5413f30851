//! SQLite's small transactions, as they reach a block FTL through ext4, and ELEOS through the VFS.

use super::{Flash, Nand};
use crate::ExperimentError;
use crate::file_trace::{ACCESS_BLOCKS_MAX, Recording};
use crate::page_trace::{PageStep, PageTrace};
use crate::recorded::{JournalMode, OF_VFS, Replay, SQLITE_DISK_BYTES, TRANSACTIONS, read};
use hdrhistogram::Histogram;
use openftl_blocks::{BlockFtl, Ftl};
use openftl_core::units::{ByteSize, Share};
use openftl_core::{BLOCK_BYTES, Clock, FrameForm, Nanos, VirtualClock};
use openftl_lab::load::{Access, Load, Operation};
use openftl_lab::page_trial::{PageTrial, PageTrialError};
use openftl_lab::{Driver, Limit, Pattern, Workload, WorkloadConfig};
use openftl_media::Store;
use openftl_pages::PageFtl;
use openftl_parts::words::Purpose;
use openftl_parts::{Durability, Statistics, VictimPolicy};
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::ops::ControlFlow;

/// Requests of other data under way at a time, and of a transaction up to a flush.
const QUEUE_DEPTH: usize = 64;

/// Pages of other data in a batch.
const BALLAST_BATCH: usize = 128;

/// Where their numbers begin.
const BALLAST_LPID: u64 = 1 << 60;

/// How the transactions come to the drive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// ext4 on a block drive.
    Ext4(JournalMode),
    /// The VFS on a store of pages: an index into [`OF_VFS`].
    Vfs(usize),
}

impl Way {
    /// All of them.
    pub fn all() -> Vec<Way> {
        JournalMode::ALL.map(Way::Ext4).into_iter().chain((0..OF_VFS.len()).map(Way::Vfs)).collect()
    }

    pub fn name(self) -> String {
        match self {
            Way::Ext4(mode) => format!("ext4, {}", mode.word().to_uppercase()),
            Way::Vfs(at) => match OF_VFS[at].1 {
                recording if recording.batch_atomic => "VFS, batch-atomic build".to_owned(),
                recording if recording.compress == "none" => "VFS".to_owned(),
                recording => format!("VFS, {}", recording.compress),
            },
        }
    }

    /// The VFS with this compression.
    pub fn compressed_by(compress: &str) -> Way {
        let is = |at: &usize| OF_VFS[*at].1.compress == compress && !OF_VFS[*at].1.batch_atomic;
        Way::Vfs((0..OF_VFS.len()).find(is).expect("there is a recording of it"))
    }
}

/// What was measured.
pub struct Transactions {
    pub nand: Nand,
    pub way: Way,
    /// Bytes of rows that programs changed.
    pub changed_bytes: u64,
    /// Bytes that came to the drive.
    pub host_bytes: u64,
    pub drive: Statistics,
    /// How long each transaction took, in nanoseconds.
    pub spans: Histogram<u64>,
    /// All of them.
    pub span: Nanos,
    /// Until the drive was open behind a power cut.
    pub recovery: Nanos,
}

impl Transactions {
    pub fn nand_bytes(&self) -> u64 {
        self.drive.nand_blocks_written() * BLOCK_BYTES as u64
    }

    /// Bytes programmed for purposes, for each byte of rows that changed.
    pub fn of_purposes(&self, purposes: &[Purpose]) -> f64 {
        let blocks: u64 = purposes.iter().map(|purpose| self.drive.programmed[*purpose as usize]).sum();
        (blocks * BLOCK_BYTES as u64) as f64 / self.changed_bytes as f64
    }

    pub fn commits_per_second(&self) -> f64 {
        TRANSACTIONS as f64 / self.span.as_secs_f64()
    }

    /// Milliseconds that this share of the transactions took at the most.
    pub fn milliseconds(&self, share: f64) -> f64 {
        self.spans.value_at_quantile(share) as f64 / 1e6
    }
}

/// How long transactions take.
struct Spans {
    each: Histogram<u64>,
    all: Nanos,
    changed_bytes: u64,
}

impl Spans {
    fn new() -> Spans {
        let each = Histogram::new_with_bounds(1, 1 << 40, 3).expect("constant bounds are in order");
        Spans { each, all: Nanos::ZERO, changed_bytes: 0 }
    }

    fn count(&mut self, span: Nanos, changed_bytes: u64) {
        self.each.saturating_record(span.0.max(1));
        self.all += span;
        self.changed_bytes += changed_bytes;
    }
}

/// Other data of a drive: written once in order, and as much again at random.
struct Ballast {
    first: u64,
    blocks: u64,
    written: u64,
    chance: Xoshiro256PlusPlus,
}

impl Load for Ballast {
    fn step(&mut self) -> Option<Access> {
        let at = self.written;
        let (first, blocks) = if at < self.blocks {
            (at, u64::from(ACCESS_BLOCKS_MAX).min(self.blocks - at))
        } else if at < 2 * self.blocks {
            (self.chance.next_u64() % self.blocks, 1)
        } else {
            return None;
        };
        self.written += blocks;
        Some(Access::plain(Operation::Write, self.first + first, blocks as u32))
    }

    fn fill_step(&mut self) -> Option<Access> {
        None
    }

    fn kinds(&self) -> Vec<String> {
        vec!["all".to_owned()]
    }

    fn live_blocks_max(&self) -> u64 {
        self.blocks
    }

    fn access_blocks_max(&self) -> u32 {
        ACCESS_BLOCKS_MAX
    }
}

/// Ages a drive with other data, and then has the transactions.
pub fn measured(way: Way, flash: Flash, ballast: ByteSize) -> Result<Transactions, ExperimentError> {
    match way {
        Way::Ext4(mode) => on_blocks(mode, flash, ballast),
        Way::Vfs(at) => on_pages(at, flash, ballast),
    }
}

fn on_blocks(mode: JournalMode, flash: Flash, ballast: ByteSize) -> Result<Transactions, ExperimentError> {
    let bytes = read(mode.recording())?;
    let (recording, config) = (Recording::new(&bytes)?, flash.blocks(FrameForm::Stamp));
    let mut clock = VirtualClock::default();
    let drive = BlockFtl::format(flash.device(Store::Stamps)?, config.clone(), &mut clock)?.into();
    let driver = Driver::new(config.capacity_blocks, QUEUE_DEPTH, ACCESS_BLOCKS_MAX as usize);
    let mut replay = Replay { drive, clock, driver, recording };
    let blocks = ballast.0 / BLOCK_BYTES as u64;
    let chance = Xoshiro256PlusPlus::seed_from_u64(flash.seed);
    let mut other = Ballast { first: SQLITE_DISK_BYTES / BLOCK_BYTES as u64, blocks, written: 0, chance };
    let go_on = |_: openftl_lab::driver::Progress<'_, _>| ControlFlow::Continue(());
    replay.driver.run(&mut replay.drive, &mut replay.clock, &mut other, Limit::Requests(u64::MAX), go_on)?;
    // The file system and the table.
    replay.phase()?;
    replay.flush()?;
    replay.drive.reset_statistics();
    let mut spans = Spans::new();
    for _ in 0..TRANSACTIONS {
        let began = replay.clock.now();
        let changed_bytes = replay.phase()?;
        spans.count(replay.clock.now().since(began), changed_bytes);
    }
    // What the file system had in memory until then.
    replay.phase()?;
    replay.flush()?;
    let Replay { drive, mut clock, mut driver, .. } = replay;
    let statistics = drive.block().statistics().clone();
    let mut device = drive.crash();
    device.power_cut(clock.now(), true)?;
    let began = clock.now();
    let mut drive = BlockFtl::open(device, config.clone(), &mut clock)?;
    let recovery = clock.now().since(began);
    let (pattern, read_share) = (Pattern::Sequential, Share::percent(100));
    let (access_blocks, drive_blocks) = (ACCESS_BLOCKS_MAX, config.capacity_blocks);
    let mut reads = Workload::new(&WorkloadConfig { pattern, read_share, access_blocks, drive_blocks, seed: 0 });
    let limit = Limit::Requests(reads.slots());
    driver.run(&mut drive, &mut clock, &mut reads, limit, |_| ControlFlow::Continue(()))?;
    let host_bytes = statistics.host_blocks_written * BLOCK_BYTES as u64;
    Ok(told(flash.nand, Way::Ext4(mode), host_bytes, statistics, spans, recovery))
}

fn told(nand: Nand, way: Way, host_bytes: u64, drive: Statistics, spans: Spans, recovery: Nanos) -> Transactions {
    let Spans { each, all, changed_bytes } = spans;
    Transactions { nand, way, changed_bytes, host_bytes, drive, spans: each, span: all, recovery }
}

type Trial = PageTrial<openftl_media::EmulatedDevice, VirtualClock>;

/// Replays a phase. Gives the bytes of rows that were changed in it.
fn phase(trial: &mut Trial, trace: &mut PageTrace<'_>) -> Result<u64, ExperimentError> {
    loop {
        match trace.read_next()? {
            Some(PageStep::Batch { changes, durability }) => {
                for change in changes {
                    match change.bytes {
                        0 => trial.delete(change.lpid)?,
                        bytes => trial.put(change.lpid, bytes)?,
                    }
                }
                trial.commit(durability)?;
            }
            Some(PageStep::Sync) => trial.sync()?,
            Some(PageStep::Phase { bytes }) => return Ok(bytes),
            None => return Err(ExperimentError::Host("a recording of batches ends within a phase".to_owned())),
        }
    }
}

fn age(trial: &mut Trial, pages: u64) -> Result<(), PageTrialError> {
    for at in 0..2 * pages {
        let page = if at < pages { at } else { trial.chance.next_u64() % pages };
        trial.put(BALLAST_LPID + page, BLOCK_BYTES as u32)?;
        if trial.staged() == BALLAST_BATCH {
            trial.commit(Durability::Volatile)?;
        }
    }
    trial.commit(Durability::Durable)
}

fn on_pages(at: usize, flash: Flash, ballast: ByteSize) -> Result<Transactions, ExperimentError> {
    let bytes = read(OF_VFS[at].0)?;
    let (mut trace, config) = (PageTrace::new(&bytes)?, flash.pages(VictimPolicy::Greedy));
    let mut clock = VirtualClock::default();
    let drive = PageFtl::format(flash.device(Store::Ram)?, config.clone(), (), &mut clock)?;
    let mut trial = PageTrial::new(drive, clock, flash.seed)?;
    age(&mut trial, ballast.0 / BLOCK_BYTES as u64)?;
    // The table.
    phase(&mut trial, &mut trace)?;
    trial.sync()?;
    trial.drive.reset_statistics();
    let mut spans = Spans::new();
    for _ in 0..TRANSACTIONS {
        let began = trial.clock.now();
        let changed_bytes = phase(&mut trial, &mut trace)?;
        spans.count(trial.clock.now().since(began), changed_bytes);
    }
    phase(&mut trial, &mut trace)?;
    trial.sync()?;
    let (statistics, pages) = trial.drive.statistics();
    let (statistics, host_bytes) = (statistics.clone(), pages.bytes_put);
    let (mut trial, recovery) = trial.recover(&config)?;
    trial.read_back()?;
    Ok(told(flash.nand, Way::Vfs(at), host_bytes, statistics, spans, recovery))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ox_eleos::{COSMOS, FULL};

    /// All groups of the log were programmed by one die (615 commits a second), and what was read of a victim was moved at once (p99 9 to 12 ms).
    #[test]
    fn a_commit_waits_neither_for_the_one_before_it_nor_for_all_that_cleaning_moves() {
        for seed in [1, 2] {
            let flash = Flash { nand: COSMOS, capacity: FULL.capacity, seed };
            let measured = measured(Way::compressed_by("lz4"), flash, FULL.ballast).expect("it comes to its end");
            let (rate, p99) = (measured.commits_per_second(), measured.milliseconds(0.99));
            assert!(rate > 750.0, "seed {seed}: {rate:.0} commits a second");
            assert!(p99 < 7.0, "seed {seed}: p99 {p99:.2} ms");
        }
    }
}
