//! A drive that is full, under random overwrites until it has settled, and what it does then.
//!
//! ```text
//!   format ── each block once ── overwrites, not counted ── statistics begin ── overwrites ── statistics
//! ```

use super::ExperimentError;
use crate::{Driver, Limit, Outcome, Pattern, Workload, WorkloadConfig};
use openftl_core::units::Share;
use openftl_core::{FrameForm, Nanos, VirtualClock};
use openftl_ftl::{BlockFtl, Config, Statistics, chunks_per_pu};
use openftl_media::{EmulatedDevice, Profile, Store, Timing};
use std::ops::ControlFlow;

/// Blocks of the writes that fill the drive.
const FILL_BLOCKS: u32 = 16;

/// What is done to a drive.
#[derive(Clone, Debug)]
pub struct FullDrive {
    /// The NAND.
    pub profile: Profile,
    /// How long it takes.
    pub timing: Timing,
    /// What its owner chose; payload and identity are set here.
    pub config: Config,
    /// Requests of 4 KiB under way at a time.
    pub queue_depth: usize,
    /// The least time from one request to the next.
    pub pace: Nanos,
    /// Share of the requests that read.
    pub read_share: Share,
    /// Capacities that are overwritten before anything is measured, without a pace.
    pub warm_up: f64,
    /// Capacities that are overwritten while it is measured.
    pub drive_writes: f64,
    /// Decides everything that is left to chance.
    pub seed: u64,
}

/// What it did.
#[derive(Clone, Debug)]
pub struct Settled {
    /// Requests and their latency.
    pub outcome: Outcome,
    /// What the FTL did.
    pub statistics: Statistics,
    /// See [`BlockFtl::effective_over_provisioning`].
    pub effective_over_provisioning: f64,
    /// Blocks of a chunk.
    pub pages: u32,
}

impl FullDrive {
    /// Fills the drive, lets it settle, and measures.
    ///
    /// # Errors
    /// If the drive cannot be made, or returns anything else than was written.
    pub fn run(&self) -> Result<Settled, ExperimentError> {
        let config = Config { payload: FrameForm::Stamp, drive_id: self.seed, ..self.config.clone() };
        let shape = self.profile.geometry(self.profile.chunks_per_pu)?;
        let chunks = chunks_per_pu(&shape, &config, Share::percent(0))?;
        let device = EmulatedDevice::new(self.profile.clone(), chunks, Store::Stamps, self.timing, self.seed)?;
        let mut clock = VirtualClock::default();
        let mut drive = BlockFtl::format(device, config.clone(), &mut clock)?;
        let mut driver = Driver::new(config.capacity_blocks, self.queue_depth, FILL_BLOCKS as usize);
        let load = |pattern, access_blocks, read_share| {
            let drive_blocks = config.capacity_blocks;
            Workload::new(&WorkloadConfig { pattern, read_share, access_blocks, drive_blocks, seed: self.seed })
        };
        let capacities = |share: f64| Limit::BlocksWritten((config.capacity_blocks as f64 * share) as u64);

        let mut fill = load(Pattern::Sequential, FILL_BLOCKS, Share::percent(0));
        driver.run(&mut drive, &mut clock, &mut fill, capacities(1.0), |_| ControlFlow::Continue(()))?;
        let mut overwrites = load(Pattern::Uniform, 1, self.read_share);
        driver.run(&mut drive, &mut clock, &mut overwrites, capacities(self.warm_up), |_| ControlFlow::Continue(()))?;
        driver.set_pace(self.pace);
        drive.reset_statistics();
        let outcome = driver.run(&mut drive, &mut clock, &mut overwrites, capacities(self.drive_writes), |_| {
            ControlFlow::Continue(())
        })?;
        Ok(Settled {
            outcome,
            statistics: drive.statistics().clone(),
            effective_over_provisioning: drive.effective_over_provisioning(),
            pages: shape.blocks_per_chunk,
        })
    }
}
