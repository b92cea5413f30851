//! A drive that is filled, under a load until it has settled, and what it does then.
//!
//! ```text
//!   format ── fill ── load, not counted ── flush ── statistics begin ── load ── flush ── statistics
//! ```
//!
//! The flushes make what is buffered count where it belongs.

use super::ExperimentError;
use crate::{Binding, Driver, Limit, LoadSpec, Outcome};
use openftl_core::units::Share;
use openftl_core::{FrameForm, Nanos, VirtualClock};
use openftl_ftl::{BlockFtl, Config, Statistics, chunks_per_pu};
use openftl_media::{EmulatedDevice, Profile, Store, Timing};
use std::ops::ControlFlow;

/// What is done to a drive.
#[derive(Clone, Debug)]
pub struct FullDrive {
    /// The NAND.
    pub profile: Profile,
    /// How long it takes.
    pub timing: Timing,
    /// What its owner chose; payload and identity are set here.
    pub config: Config,
    /// What the host does.
    pub load: LoadSpec,
    /// What of its hints the drive is told.
    pub binding: Binding,
    /// Requests under way at a time.
    pub queue_depth: usize,
    /// The least time from one request to the next.
    pub pace: Nanos,
    /// Capacities that are written before anything is measured, without a pace.
    pub warm_up: f64,
    /// Capacities that are written while it is measured.
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
        let blocks = config.capacity_blocks;
        let mut load = self.load.build(blocks, self.seed, &mut |_| Err(std::io::ErrorKind::Unsupported.into()))?;
        let mut driver = Driver::new(blocks, self.queue_depth, load.access_blocks_max() as usize);
        driver.set_binding(self.binding);
        let capacities = |share: f64| Limit::BlocksWritten((blocks as f64 * share) as u64);

        driver.fill(&mut drive, &mut clock, load.as_mut(), |_| ControlFlow::Continue(()))?;
        driver.run(&mut drive, &mut clock, load.as_mut(), capacities(self.warm_up), |_| ControlFlow::Continue(()))?;
        driver.flush(&mut drive, &mut clock)?;
        driver.set_pace(self.pace);
        drive.reset_statistics();
        let outcome = driver
            .run(&mut drive, &mut clock, load.as_mut(), capacities(self.drive_writes), |_| ControlFlow::Continue(()))?;
        driver.set_pace(Nanos::ZERO);
        driver.flush(&mut drive, &mut clock)?;
        Ok(Settled {
            outcome,
            statistics: drive.statistics().clone(),
            effective_over_provisioning: drive.effective_over_provisioning(),
            pages: shape.blocks_per_chunk,
        })
    }
}
