//! A new drive is written to, loses its power at a given moment, and is opened again: how long did that take?
//!
//! ```text
//!   format ── durable random writes ──✂ power cut ── recovery ── reads of a sample
//!             └──── `after` ────────┘               └ timed ┘    └ each block compared ┘
//! ```

use super::{Assistant, ExperimentError};
use openftl_blocks::BlockFtl;
use openftl_core::units::Share;
use openftl_core::{FrameForm, Nanos, VirtualClock};
use openftl_lab::{Driver, Limit, Pattern, Workload, WorkloadConfig};
use openftl_media::{EmulatedDevice, Profile, Store, Timing};
use openftl_parts::words::TRANSACTION_BLOCKS_MAX;
use openftl_parts::{Config, Durability, RecoveryReport, chunks_per_pu};
use std::ops::ControlFlow;

/// Accesses that are read back and compared after recovery.
const SAMPLE_ACCESSES: u64 = 256;

/// What is done to a drive before its power is cut.
#[derive(Clone, Debug)]
pub struct Crash {
    /// The NAND.
    pub profile: &'static str,
    /// Its chunks, which an experiment on a small scale makes smaller.
    pub blocks_per_chunk: u32,
    /// What its owner chose; frames and payload are set here.
    pub config: Config,
    /// Transactions of the host under way at a time.
    pub queue_depth: usize,
    /// The least time from one transaction to the next.
    pub pace: Nanos,
    /// How long it is written to.
    pub after: Nanos,
    /// Decides everything that is left to chance.
    pub seed: u64,
}

/// What recovery took.
#[derive(Clone, Debug)]
pub struct Recovered {
    /// Host blocks that had been acknowledged.
    pub written_blocks: u64,
    /// Checkpoints taken before the crash.
    pub checkpoints: u64,
    /// The steps, on the drive's clock.
    pub report: RecoveryReport,
    /// CPU time of all of them.
    pub cpu: Nanos,
    /// Blocks that were read and compared afterwards.
    pub verified_blocks: u64,
}

/// A part of recovery: one or more of its steps.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Part {
    /// Time on the drive's clock.
    pub time: Nanos,
    /// Blocks read from the medium.
    pub blocks_read: u64,
}

impl Recovered {
    /// All steps.
    #[must_use]
    pub fn whole(&self) -> Part {
        self.part(|_| true)
    }

    /// Reading and replaying the log.
    #[must_use]
    pub fn log(&self) -> Part {
        self.part(|name| matches!(name, "read log" | "replay log"))
    }

    /// Loading the map and the chunk table from the checkpoint.
    #[must_use]
    pub fn checkpoint(&self) -> Part {
        self.part(|name| name == "load checkpoint")
    }

    /// What is neither log nor checkpoint.
    #[must_use]
    pub fn rest(&self) -> Part {
        let (whole, log, checkpoint) = (self.whole(), self.log(), self.checkpoint());
        Part {
            time: whole.time - log.time - checkpoint.time,
            blocks_read: whole.blocks_read - log.blocks_read - checkpoint.blocks_read,
        }
    }

    fn part(&self, of: impl Fn(&str) -> bool) -> Part {
        self.report.steps.iter().filter(|step| of(step.name)).fold(Part::default(), |sum, step| Part {
            time: sum.time + step.time,
            blocks_read: sum.blocks_read + step.blocks_read,
        })
    }
}

impl Crash {
    /// Writes, crashes, recovers and verifies. `progress` is told what share of the writing is done.
    ///
    /// # Errors
    /// If the drive cannot be made, does not open, or returns anything else than it acknowledged.
    pub fn run(
        &self,
        assistant: &mut dyn Assistant,
        mut progress: impl FnMut(&mut dyn Assistant, f64),
    ) -> Result<Recovered, ExperimentError> {
        let most = TRANSACTION_BLOCKS_MAX as u32;
        let mut profile = Profile::builtin(self.profile)?;
        profile.chip.blocks_per_chunk = self.blocks_per_chunk;
        let config = Config {
            payload: FrameForm::Stamp,
            // Room for all that is under way twice, so that the drive and not the pool sets the pace.
            host_frames: self.config.host_frames.max(2 * most * self.queue_depth as u32),
            drive_id: self.seed,
            ..self.config.clone()
        };
        let shape = profile.geometry(profile.chunks_per_pu)?;
        let chunks = chunks_per_pu(&shape, &config, Share::percent(1))?;
        let device = EmulatedDevice::new(profile, chunks, Store::Stamps, Timing::Modelled, self.seed)?;
        let mut clock = VirtualClock::default();
        let mut drive = BlockFtl::format(device, config.clone(), &mut clock)?;
        let mut driver = Driver::new(config.capacity_blocks, self.queue_depth, TRANSACTION_BLOCKS_MAX);
        driver.set_durability(Durability::Durable);
        driver.set_pace(self.pace);
        let load = |read_share, seed| {
            let drive_blocks = config.capacity_blocks;
            let pattern = Pattern::Uniform;
            Workload::new(&WorkloadConfig { pattern, read_share, access_blocks: most, drive_blocks, seed })
        };

        let mut writes = load(Share::percent(0), self.seed).of_any_length();
        let began = clock.0;
        let cut = began + self.after;
        let outcome = driver.run(&mut drive, &mut clock, &mut writes, Limit::Cut(cut), |seen| {
            progress(assistant, seen.now.since(began).as_secs_f64() / self.after.as_secs_f64());
            ControlFlow::Continue(())
        })?;
        let checkpoints = drive.statistics().checkpoints;

        let mut device = drive.crash();
        device.power_cut(clock.0, true)?;
        driver.after_cut();
        let cpu = assistant.cpu_time();
        let mut drive = BlockFtl::open(device, config.clone(), &mut clock)?;
        let cpu = assistant.cpu_time() - cpu;
        let report = drive.recovery_report().clone();

        driver.set_pace(Nanos::ZERO);
        let mut reads = load(Share::percent(100), self.seed + 1);
        let limit = Limit::Requests(SAMPLE_ACCESSES.min(reads.slots()));
        let sample = driver.run(&mut drive, &mut clock, &mut reads, limit, |_| ControlFlow::Continue(()))?;
        Ok(Recovered {
            written_blocks: outcome.writes.blocks,
            checkpoints,
            report,
            cpu,
            verified_blocks: sample.reads.blocks,
        })
    }
}
