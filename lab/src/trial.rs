//! A drive that is tried under a load: filled, brought to where it settles, measured, and read back.
//!
//! ```text
//!   prepare:    fill ── warm-up ── flush          the warm-up writes so much, or until write amplification is steady
//!   measure:    statistics begin ── load ── flush ── statistics
//!   read back:  every block is compared with what was written
//! ```
//!
//! The flushes make what is buffered count where it belongs. All but the drive follows from load and seed, so each drive gets
//! the same writes.

use crate::driver::Progress;
use crate::steady::{SteadyState, WINDOWS_PER_DRIVE_WRITE};
use crate::{Binding, Driver, Limit, Load, Outcome, Pattern, RunError, Workload, WorkloadConfig};
use openftl_blocks::{BlockFtl, Ftl};
use openftl_core::units::Share;
use openftl_core::{Clock, FrameForm, Frames, Geometry, Nanos, Time};
use openftl_media::Media;
use openftl_parts::words::TRANSACTION_BLOCKS_MAX;
use openftl_parts::{BlockTarget, Done, IoError, Request, Statistics, Target};
use openftl_segments::BlockDrive;
use std::ops::ControlFlow;

/// Blocks of an access while a drive is read back.
pub const SWEEP_BLOCKS: u32 = 64;
const _: () = assert!(SWEEP_BLOCKS as usize <= TRANSACTION_BLOCKS_MAX);

/// Samples of a measured phase.
const SAMPLES: u64 = 64;

/// Drive writes after which a warm-up gives up waiting for the steady state.
const WARM_UP_DRIVE_WRITES_MAX: u64 = 12;

/// What is written before anything is measured, after the drive was filled.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum WarmUp {
    /// Until the write amplification is steady.
    Steady,
    /// This many capacities.
    DriveWrites(f64),
}

/// How far a warm-up went.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct WarmedUp {
    /// Capacities written, the fill not counted.
    pub drive_writes: f64,
    /// Write amplification of each window.
    pub waf: Vec<f64>,
    /// Whether the last windows agreed, if that was waited for.
    pub steady: Option<bool>,
}

/// What is being done to a drive.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Phase {
    /// It is filled for the first time.
    Fill,
    /// The load runs, and nothing counts.
    WarmUp,
    /// What is buffered is written.
    Flush,
    /// The load runs, and all counts.
    Measure,
    /// Every block is read and compared.
    ReadBack,
}

impl Phase {
    /// What it is called.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Phase::Fill => "fill",
            Phase::WarmUp => "warm-up",
            Phase::Flush => "flush",
            Phase::Measure => "measure",
            Phase::ReadBack => "read back",
        }
    }
}

/// What can be seen of a trial while it runs.
pub struct View<'a, M: Media> {
    /// What is done.
    pub phase: Phase,
    /// The part of it that is done, 0 to 1.
    pub share: f64,
    /// Measured so far, in this phase.
    pub outcome: &'a Outcome,
    /// The FTL of the drive, which has its accounts: see [`BlockDrive::block`].
    pub drive: &'a BlockFtl<M>,
    /// Write amplification of each window of the warm-up so far.
    pub windows: &'a [f64],
    /// On the drive's clock.
    pub now: Time,
}

/// Watches a trial, and may end it. Called every thousand requests or so.
pub type Watch<'a, M> = &'a mut dyn FnMut(View<'_, M>) -> ControlFlow<()>;

/// Nobody watches.
pub fn unwatched<M: Media>(_: View<'_, M>) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// Why a trial came to its end early.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TrialError {
    /// The drive is at fault, or the load cannot go on.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The drive turned read-only in a phase that has to be whole.
    #[error("the drive turned read-only in its {}", phase.name())]
    ReadOnly {
        /// Which phase.
        phase: Phase,
    },
    /// Whoever watches ended it.
    #[error("stopped in its {}", phase.name())]
    Stopped {
        /// Which phase it was in.
        phase: Phase,
    },
}

/// The state of a drive at one moment of the measured phase.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Sample {
    /// Since the phase began, in seconds.
    pub seconds: f64,
    /// Blocks that the host has read or written.
    pub moved: u64,
    /// Blocks that the host has written.
    pub written: u64,
    /// Blocks that were programmed, for whatever purpose.
    pub programmed: u64,
}

/// One measured phase on one drive.
#[derive(Clone, Debug)]
pub struct Measured {
    /// The host's view.
    pub outcome: Outcome,
    /// The FTL's view, of the same phase.
    pub statistics: Statistics,
    /// See [`Ftl::over_provisioning`].
    pub effective_over_provisioning: f64,
    /// Bytes of memory that the map took at its end.
    pub map_memory_bytes: u64,
    /// How long the die of each parallel unit was busy in it.
    pub pu_busy: Vec<Nanos>,
    /// How often each chunk was reset in it.
    pub resets: Vec<u32>,
    /// The shape of the device.
    pub geometry: Geometry,
    /// How it went from beginning to end.
    pub samples: Vec<Sample>,
}

impl Measured {
    /// Share of the phase that each die was busy, in the order of the parallel units.
    #[must_use]
    pub fn utilisation(&self) -> Vec<f64> {
        let seconds = self.outcome.seconds();
        self.pu_busy
            .iter()
            .map(|busy| if seconds > 0.0 { (busy.as_secs_f64() / seconds).min(1.0) } else { 0.0 })
            .collect()
    }
}

/// A drive under a load, with its clock.
pub struct Trial<M: Media, C> {
    /// The drive.
    pub drive: BlockDrive<M>,
    /// Its clock.
    pub clock: C,
    driver: Driver,
    load: Box<dyn Load>,
    blocks_verified: u64,
}

impl<M: Media, C: Clock> Trial<M, C> {
    /// Puts a new drive under a load, with at most `queue_depth` requests under way.
    ///
    /// # Panics
    /// If the queue depth is zero, or accesses of the load are longer than a transaction.
    #[must_use]
    pub fn new(
        drive: impl Into<BlockDrive<M>>,
        clock: C,
        load: Box<dyn Load>,
        queue_depth: usize,
        binding: Binding,
    ) -> Trial<M, C> {
        let drive = drive.into();
        let access_blocks = load.access_blocks_max().max(SWEEP_BLOCKS) as usize;
        let mut driver = Driver::new(drive.blocks(), queue_depth, access_blocks);
        driver.set_binding(binding);
        Trial { drive, clock, driver, load, blocks_verified: 0 }
    }

    /// Blocks that were read and compared so far.
    #[must_use]
    pub fn blocks_verified(&self) -> u64 {
        self.blocks_verified
    }

    /// Fills the drive and warms it up.
    ///
    /// # Errors
    /// If that did not come to its end.
    pub fn prepare(&mut self, warm_up: WarmUp, watch: Watch<'_, M>) -> Result<WarmedUp, TrialError> {
        self.fill(watch)?;
        let capacity = self.drive.blocks();
        let warmed_up = match warm_up {
            WarmUp::Steady => self.settle(watch)?,
            WarmUp::DriveWrites(drive_writes) => {
                let blocks = (drive_writes * capacity as f64).round() as u64;
                let waf = if blocks > 0 { vec![self.window(blocks, &[], watch)?.0] } else { Vec::new() };
                WarmedUp { drive_writes, waf, steady: None }
            }
        };
        self.flush()?;
        Ok(warmed_up)
    }

    /// Lets the load fill the drive for the first time.
    ///
    /// # Errors
    /// If that did not come to its end.
    pub fn fill(&mut self, watch: Watch<'_, M>) -> Result<Outcome, TrialError> {
        let Trial { drive, clock, driver, load, .. } = self;
        let live = load.live_blocks_max().max(1) as f64;
        let filled = driver.fill(drive, clock, load, |progress| {
            let share = progress.outcome.writes.blocks as f64 / live;
            watch(view(Phase::Fill, share, &[], progress.target, progress))
        });
        self.whole(Phase::Fill, filled)
    }

    /// Lets the load write in windows until the write amplification of the last ones agrees.
    fn settle(&mut self, watch: Watch<'_, M>) -> Result<WarmedUp, TrialError> {
        let mut state = SteadyState::default();
        let window = self.drive.blocks().div_ceil(WINDOWS_PER_DRIVE_WRITE);
        let mut waf = Vec::new();
        let mut steady = false;
        while !steady && (waf.len() as u64) < WARM_UP_DRIVE_WRITES_MAX * WINDOWS_PER_DRIVE_WRITE {
            let (next, more) = self.window(window, &waf, watch)?;
            waf.push(next);
            steady = state.is_steady_with(next);
            if !more {
                break;
            }
        }
        let drive_writes = waf.len() as f64 / WINDOWS_PER_DRIVE_WRITE as f64;
        Ok(WarmedUp { drive_writes, waf, steady: Some(steady) })
    }

    /// The write amplification of `blocks` more blocks written, and whether there were as many.
    fn window(&mut self, blocks: u64, windows: &[f64], watch: Watch<'_, M>) -> Result<(f64, bool), TrialError> {
        let written = |statistics: &Statistics| (statistics.host_blocks_written, statistics.nand_blocks_written());
        let before = written(self.drive.block().statistics());
        let Trial { drive, clock, driver, load, .. } = self;
        let outcome = driver.run(drive, clock, load, Limit::BlocksWritten(blocks), |progress| {
            let share = progress.outcome.writes.blocks as f64 / blocks as f64;
            watch(view(Phase::WarmUp, share, windows, progress.target, progress))
        });
        let outcome = self.whole(Phase::WarmUp, outcome)?;
        let after = written(self.drive.block().statistics());
        let host = after.0 - before.0;
        let waf = if host == 0 { 0.0 } else { (after.1 - before.1) as f64 / host as f64 };
        Ok((waf, outcome.writes.blocks >= blocks))
    }

    fn flush(&mut self) -> Result<(), TrialError> {
        let flushed = self.driver.flush(&mut self.drive, &mut self.clock);
        self.whole(Phase::Flush, flushed).map(drop)
    }

    /// Measures the load until `limit`, with requests at least `pace` apart. A drive that turns read-only, and whoever watches,
    /// may end the phase early: see [`Outcome`].
    ///
    /// # Errors
    /// If the drive is at fault, or the load cannot go on.
    pub fn measure(&mut self, limit: Limit, pace: Nanos, watch: Watch<'_, M>) -> Result<Measured, TrialError> {
        let resets: Vec<u32> = self.drive.block().chunk_resets().collect();
        let busy = self.drive.block().media().pu_busy();
        self.driver.set_pace(pace);
        self.drive.reset_statistics();
        let began = self.clock.now();
        let Trial { drive, clock, driver, load, .. } = self;
        let mut sampled = Sampled::new(drive, began, limit);
        let outcome = driver.run(&mut sampled, clock, load, limit, |progress| {
            let Outcome { started, reads, writes, .. } = progress.outcome;
            let share = match limit {
                Limit::Requests(requests) => progress.outcome.requests() as f64 / requests as f64,
                Limit::BlocksWritten(blocks) => writes.blocks as f64 / blocks as f64,
                Limit::BlocksMoved(blocks) => (reads.blocks + writes.blocks) as f64 / blocks as f64,
                Limit::Until(end) | Limit::Cut(end) => {
                    progress.now.since(*started).0 as f64 / end.since(*started).0.max(1) as f64
                }
            };
            watch(view(Phase::Measure, share, &[], progress.target.inner, progress))
        });
        let samples = sampled.end(self.clock.now());
        self.driver.set_pace(Nanos::ZERO);
        let outcome = outcome?;
        self.blocks_verified += outcome.reads.blocks;
        if !outcome.turned_read_only && !outcome.stopped {
            self.flush()?;
        }
        let drive = self.drive.block();
        Ok(Measured {
            outcome,
            statistics: drive.statistics().clone(),
            effective_over_provisioning: self.drive.over_provisioning(),
            map_memory_bytes: self.drive.map_memory_bytes(),
            pu_busy: drive.media().pu_busy().iter().zip(busy).map(|(&after, before)| after - before).collect(),
            resets: drive.chunk_resets().zip(resets).map(|(after, before)| after - before).collect(),
            geometry: *drive.media().geometry(),
            samples,
        })
    }

    /// Reads the whole drive once, in order, and compares every block.
    ///
    /// # Errors
    /// If that did not come to its end.
    pub fn read_back(&mut self, watch: Watch<'_, M>) -> Result<Outcome, TrialError> {
        let mut reads = Workload::new(&WorkloadConfig {
            pattern: Pattern::Sequential,
            read_share: Share::percent(100),
            access_blocks: SWEEP_BLOCKS,
            drive_blocks: self.drive.blocks(),
            seed: 0,
        });
        let limit = Limit::Requests(reads.slots());
        let Trial { drive, clock, driver, .. } = self;
        let blocks = drive.blocks() as f64;
        let outcome = driver.run(drive, clock, &mut reads, limit, |progress| {
            let share = progress.outcome.reads.blocks as f64 / blocks;
            watch(view(Phase::ReadBack, share, &[], progress.target, progress))
        });
        self.whole(Phase::ReadBack, outcome)
    }

    /// Refuses a phase that is not whole.
    fn whole(&mut self, phase: Phase, outcome: Result<Outcome, RunError>) -> Result<Outcome, TrialError> {
        let outcome = outcome?;
        self.blocks_verified += outcome.reads.blocks;
        if outcome.stopped {
            return Err(TrialError::Stopped { phase });
        }
        // Reads go on.
        if outcome.turned_read_only {
            return Err(TrialError::ReadOnly { phase });
        }
        Ok(outcome)
    }
}

fn view<'a, M: Media, T>(
    phase: Phase,
    share: f64,
    windows: &'a [f64],
    drive: &'a BlockDrive<M>,
    progress: Progress<'a, T>,
) -> View<'a, M> {
    let (Progress { outcome, now, .. }, drive) = (progress, drive.block());
    View { phase, share: share.min(1.0), outcome, drive, windows, now }
}

/// A drive of which samples are taken while it works, without a pause of the host.
struct Sampled<'a, M: Media> {
    inner: &'a mut BlockDrive<M>,
    began: Time,
    /// Blocks moved from one sample to the next.
    step: u64,
    /// The next sample is taken when so many are moved.
    next: u64,
    samples: Vec<Sample>,
}

impl<'a, M: Media> Sampled<'a, M> {
    fn new(inner: &'a mut BlockDrive<M>, now: Time, limit: Limit) -> Sampled<'a, M> {
        let step = match limit {
            Limit::BlocksWritten(blocks) | Limit::BlocksMoved(blocks) => (blocks / SAMPLES).max(1),
            // How much that will be, nobody knows.
            Limit::Requests(_) | Limit::Until(_) | Limit::Cut(_) => u64::MAX,
        };
        let mut sampled = Sampled { inner, began: now, step, next: 0, samples: Vec::new() };
        sampled.sample(now);
        sampled
    }

    fn end(mut self, now: Time) -> Vec<Sample> {
        self.sample(now);
        self.samples
    }

    fn sample(&mut self, now: Time) {
        let statistics = self.inner.block().statistics();
        let written = statistics.host_blocks_written;
        self.samples.push(Sample {
            seconds: now.since(self.began).as_secs_f64(),
            moved: written + statistics.host_blocks_read,
            written,
            programmed: statistics.nand_blocks_written(),
        });
        self.next = written.saturating_add(self.step);
    }
}

impl<M: Media> Target for Sampled<'_, M> {
    type Done = Done;

    fn frames(&self) -> &Frames {
        self.inner.frames()
    }

    fn frames_mut(&mut self) -> &mut Frames {
        self.inner.frames_mut()
    }

    fn poll(&mut self, now: Time, done: &mut Vec<Done>) {
        self.inner.poll(now, done);
        if self.inner.block().statistics().host_blocks_written >= self.next {
            self.sample(now);
        }
    }

    fn next_due(&self) -> Option<Time> {
        self.inner.next_due()
    }

    fn is_read_only(&self) -> bool {
        self.inner.is_read_only()
    }
}

impl<M: Media> BlockTarget for Sampled<'_, M> {
    fn blocks(&self) -> u64 {
        self.inner.blocks()
    }

    fn payload_form(&self) -> FrameForm {
        self.inner.payload_form()
    }

    fn submit(&mut self, now: Time, tag: u64, request: Request<'_>) -> Result<(), IoError> {
        self.inner.submit(now, tag, request)
    }
}
