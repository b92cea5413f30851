//! One drive under one load, in virtual time: what `compare` and `sweep` are made of.
//!
//! ```text
//!   format ── fill ── warm-up ── flush ── statistics begin ── load ── flush ── statistics ── every block read back
//! ```
//!
//! All but the drive follows from load and seed, so each drive gets the same writes. The flushes make what is buffered count
//! where it belongs.

use crate::assembly::{self, Drive};
use crate::chunk_map::Cell;
use crate::cli::Store;
use crate::clock::BenchClock;
use crate::contender::Contender;
use crate::crew::Desk;
use crate::failure::Failure;
use crate::figures::Measured;
use crate::inspect::cells;
use crate::measure::{SWEEP_BLOCKS, unsound};
use openftl_core::units::{ByteSize, Share};
use openftl_core::{BLOCK_BYTES, Clock, FrameForm, Frames, Time};
use openftl_ftl::{BlockTarget, Done, IoError, Request};
use openftl_lab::driver::Progress;
use openftl_lab::load_spec::Model;
use openftl_lab::{Driver, Limit, Load, LoadSpec, Outcome, Pattern, Workload, WorkloadConfig};
use openftl_media::Timing;
use std::fs::File;
use std::io::BufReader;
use std::time::Instant;

/// Samples of a measured phase.
const SAMPLES: u64 = 64;

/// What is done to a drive.
#[derive(Clone, PartialEq, Debug)]
pub struct Task {
    /// What the host does.
    pub load: LoadSpec,
    /// Decides everything that is left to chance.
    pub seed: u64,
    /// Capacities written before anything is measured, after the drive was filled.
    pub warm_up: f64,
    /// Capacities written while it is measured.
    pub drive_writes: f64,
    /// Requests under way at a time.
    pub queue_depth: u32,
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

/// What was found.
pub struct Tried {
    /// What both sides measured.
    pub measured: Measured,
    /// How it went from beginning to end.
    pub samples: Vec<Sample>,
    /// Erases of each chunk that is not bad, in the measured phase.
    pub erases: Vec<u32>,
    /// What each chunk held at the end, in address order.
    pub cells: Vec<Cell>,
    /// Blocks that were read and compared, all phases.
    pub blocks_verified: u64,
}

impl Task {
    /// Understands a load; `fill` goes before what the load says of it.
    pub fn load(text: &str, fill: Option<Share>) -> Result<LoadSpec, Failure> {
        let parsed = |text: &str| text.parse::<LoadSpec>().map_err(Failure::bad_input_with_fix);
        let mut load = parsed(text)?;
        if let Some(fill) = fill {
            if matches!(load.model, Model::Tenants(_)) {
                return Err(Failure::bad_input(format_args!("fill {fill}: each tenant of a drive has its own"))
                    .fix("write it behind each of them, as tenants:lsm,fill=70%+uniform,fill=70%"));
            }
            load = parsed(&format!("{text},fill={fill}"))?;
        }
        match writes(&load) {
            true => Ok(load),
            false => Err(Failure::bad_input("nothing is ever written")
                .fix("write less than reads=100%: what is compared is measured by what is written")),
        }
    }

    /// Makes the load for a drive, which also says whether it can be made.
    fn build(&self, drive_blocks: u64) -> Result<Box<dyn Load>, Failure> {
        self.load
            .build(drive_blocks, self.seed, &mut |name| Ok(Box::new(BufReader::new(File::open(name)?)) as _))
            .map_err(Failure::bad_input_with_fix)
    }

    /// Refuses what cannot be before anything runs.
    pub fn check(&self, capacity: ByteSize) -> Result<(), Failure> {
        self.build(capacity.0 / BLOCK_BYTES as u64).map(drop)
    }

    /// Does it to a new drive. `None` if `desk` no longer wants to know.
    pub fn run(&self, contender: &Contender, desk: &Desk<'_>) -> Result<Option<Tried>, Failure> {
        match Bench::prepare(self, contender, desk).and_then(Bench::run) {
            Ok(tried) => Ok(Some(tried)),
            Err(End::Unwanted) => Ok(None),
            Err(End::Failed(failure)) => Err(failure.about(format_args!("drive {}", contender.name))),
        }
    }
}

/// Whether a load of this kind writes at all.
fn writes(load: &LoadSpec) -> bool {
    match &load.model {
        Model::Tenants(tenants) => tenants.iter().any(writes),
        _ => load.reads != Some(Share::percent(100)),
    }
}

/// Why a run came to no result.
enum End {
    Unwanted,
    Failed(Failure),
}

impl From<Failure> for End {
    fn from(failure: Failure) -> End {
        End::Failed(failure)
    }
}

/// A drive that is being tried.
struct Bench<'a> {
    task: &'a Task,
    desk: &'a Desk<'a>,
    drive: Sampled,
    clock: BenchClock,
    driver: Driver,
    load: Box<dyn Load>,
    verified: u64,
}

impl<'a> Bench<'a> {
    fn prepare(task: &'a Task, contender: &Contender, desk: &'a Desk<'a>) -> Result<Bench<'a>, End> {
        let mut config = contender.settings.drive.config(FrameForm::Stamp, task.seed);
        let load = task.build(config.capacity_blocks)?;
        let access_blocks = load.access_blocks_max().max(SWEEP_BLOCKS);
        // Room for all requests under way twice, so that the drive's buffer and not the pool is what fills up.
        config.host_frames = config.host_frames.max(2 * task.queue_depth * access_blocks);
        let mut clock = BenchClock::simulated();
        let settings = &contender.settings;
        let drive = assembly::new_in_memory(settings, config, Store::Stamps, Timing::Modelled, task.seed, &mut clock)?;
        let mut driver = Driver::new(drive.blocks(), task.queue_depth as usize, access_blocks as usize);
        driver.set_binding(contender.binding);
        Ok(Bench { task, desk, drive: Sampled::new(drive), clock, driver, load, verified: 0 })
    }

    fn run(mut self) -> Result<Tried, End> {
        let capacity = self.drive.blocks();
        let blocks = |drive_writes: f64| (drive_writes * capacity as f64).round() as u64;
        let (warm_up, measured) = (blocks(self.task.warm_up), blocks(self.task.drive_writes).max(1));
        self.fill()?;
        if warm_up > 0 {
            self.phase("warm-up", warm_up)?;
        }
        self.flush()?;
        let resets_before: Vec<u32> = self.drive.inner.chunk_resets().collect();
        let busy_before = assembly::pu_busy(&self.drive.inner);
        let started = Instant::now();
        self.drive.begin(self.clock.now(), measured);
        let outcome = self.phase("measure", measured)?;
        let samples = self.drive.end(self.clock.now());
        if outcome.writes.blocks == 0 {
            return Err(Failure::bad_input("the load came to its end before anything was measured")
                .fix("choose a smaller --warm-up, or a longer trace")
                .into());
        }
        self.flush()?;
        let drive = &self.drive.inner;
        let pu_busy = assembly::pu_busy(drive).iter().zip(busy_before).map(|(&after, before)| after - before).collect();
        let cells = cells(drive);
        let erases = drive.chunk_resets().zip(resets_before).zip(&cells);
        let erases = erases.filter(|(_, cell)| cell.mark != crate::chunk_map::Mark::Bad);
        let erases = erases.map(|((after, before), _)| after - before).collect();
        let measured = Measured {
            effective_over_provisioning: drive.effective_over_provisioning(),
            outcome,
            statistics: drive.statistics().clone(),
            pu_busy,
            geometry: *assembly::geometry(drive),
            wall_seconds: started.elapsed().as_secs_f64(),
        };
        self.read_back()?;
        Ok(Tried { measured, samples, erases, cells, blocks_verified: self.verified })
    }

    fn fill(&mut self) -> Result<(), End> {
        let Bench { driver, drive, clock, load, desk, .. } = self;
        let live = load.live_blocks_max().max(1) as f64;
        let filled = driver.fill(drive, clock, load, |progress: Progress<'_, Sampled>| {
            desk.say("fill", (progress.outcome.writes.blocks as f64 / live).min(1.0))
        });
        self.judged("while it was filled", filled).map(drop)
    }

    /// Lets the load write so many blocks.
    fn phase(&mut self, name: &'static str, blocks: u64) -> Result<Outcome, End> {
        let Bench { driver, drive, clock, load, desk, .. } = self;
        let outcome = driver.run(drive, clock, load, Limit::BlocksWritten(blocks), |progress| {
            desk.say(name, progress.outcome.writes.blocks as f64 / blocks as f64)
        });
        self.judged(if name == "measure" { "while it was measured" } else { "in the warm-up" }, outcome)
    }

    fn flush(&mut self) -> Result<(), End> {
        let Bench { driver, drive, clock, .. } = self;
        let flushed = driver.flush(drive, clock);
        self.judged("while it was flushed", flushed).map(drop)
    }

    fn read_back(&mut self) -> Result<(), End> {
        let drive_blocks = self.drive.blocks();
        let mut reads = Workload::new(&WorkloadConfig {
            pattern: Pattern::Sequential,
            read_share: Share::percent(100),
            access_blocks: SWEEP_BLOCKS,
            drive_blocks,
            seed: 0,
        });
        let limit = Limit::Requests(reads.slots());
        let Bench { driver, drive, clock, desk, .. } = self;
        let outcome = driver.run(drive, clock, &mut reads, limit, |progress| {
            desk.say("read back", progress.outcome.reads.blocks as f64 / drive_blocks as f64)
        });
        self.judged("while it was read back", outcome).map(drop)
    }

    fn judged(&mut self, when: &str, outcome: Result<Outcome, openftl_lab::RunError>) -> Result<Outcome, End> {
        let outcome = outcome.map_err(|error| unsound(&error))?;
        if outcome.stopped {
            return Err(End::Unwanted);
        }
        if outcome.turned_read_only {
            let reason = self.drive.inner.read_only_reason().map_or_else(String::new, |reason| format!(": {reason}"));
            return Err(Failure::failed(format_args!("it turned read-only {when}{reason}"))
                .fix("write less, or choose a profile that lasts longer or more over-provisioning")
                .into());
        }
        self.verified += outcome.reads.blocks;
        Ok(outcome)
    }
}

/// A drive of which samples are taken while it works, without a pause of the host.
struct Sampled {
    inner: Drive,
    began: Time,
    /// Blocks written from one sample to the next.
    step: u64,
    /// The next sample is taken when so many are written; never while nothing is measured.
    next: u64,
    samples: Vec<Sample>,
}

impl Sampled {
    fn new(inner: Drive) -> Sampled {
        Sampled { inner, began: Time::ZERO, step: 1, next: u64::MAX, samples: Vec::new() }
    }

    /// The statistics begin, for a phase in which so many blocks will be written.
    fn begin(&mut self, now: Time, blocks: u64) {
        self.inner.reset_statistics();
        (self.began, self.step, self.next) = (now, (blocks / SAMPLES).max(1), 0);
        self.sample(now);
    }

    fn end(&mut self, now: Time) -> Vec<Sample> {
        self.sample(now);
        self.next = u64::MAX;
        std::mem::take(&mut self.samples)
    }

    fn sample(&mut self, now: Time) {
        let statistics = self.inner.statistics();
        let written = statistics.host_blocks_written;
        self.samples.push(Sample {
            seconds: now.since(self.began).as_secs_f64(),
            moved: written + statistics.host_blocks_read,
            written,
            programmed: statistics.nand_blocks_written(),
        });
        self.next = written + self.step;
    }
}

impl BlockTarget for Sampled {
    fn blocks(&self) -> u64 {
        self.inner.blocks()
    }

    fn frames(&self) -> &Frames {
        self.inner.frames()
    }

    fn frames_mut(&mut self) -> &mut Frames {
        self.inner.frames_mut()
    }

    fn payload_form(&self) -> FrameForm {
        self.inner.payload_form()
    }

    fn submit(&mut self, now: Time, tag: u64, request: Request<'_>) -> Result<(), IoError> {
        self.inner.submit(now, tag, request)
    }

    fn poll(&mut self, now: Time, done: &mut Vec<Done>) {
        self.inner.poll(now, done);
        if self.inner.statistics().host_blocks_written >= self.next {
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
