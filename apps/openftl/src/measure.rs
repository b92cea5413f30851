//! The phases of a run: fill, warm up, measure. Each watches its own progress.

use crate::assembly::{self, Drive};
use crate::clock::BenchClock;
use crate::failure::Failure;
use crate::figures::Measured;
use crate::terminal::{Ink, Live};
use openftl_core::BLOCK_BYTES;
use openftl_core::units::Share;
use openftl_ftl::target::TRANSACTION_BLOCKS_MAX;
use openftl_ftl::{BlockTarget, Statistics};
use openftl_lab::driver::Progress;
use openftl_lab::picture::{bar, sparkline, thousands};
use openftl_lab::steady::{SteadyState, WINDOWS_PER_DRIVE_WRITE};
use openftl_lab::{Driver, Limit, Outcome, Pattern, RunError, Workload, WorkloadConfig};
use std::ops::ControlFlow;
use std::time::Instant;

/// Drive writes after which a warm-up gives up waiting for the steady state.
const WARM_UP_DRIVE_WRITES_MAX: u64 = 12;

/// A drive under test: the drive, its clock, and who asks and checks.
pub struct Bench {
    pub drive: Drive,
    pub clock: BenchClock,
    pub driver: Driver,
    pub live: Live,
}

/// How far a warm-up went.
#[derive(serde::Serialize, Clone, PartialEq, Debug)]
pub struct WarmedUp {
    /// Capacities written, the fill not counted.
    pub drive_writes: f64,
    /// Write amplification of each window.
    pub waf: Vec<f64>,
    /// Whether the last windows agreed; null if nobody asked.
    pub steady: Option<bool>,
}

impl Bench {
    /// Writes the whole drive once, in order.
    pub fn fill(&mut self) -> Result<Outcome, Failure> {
        self.sweep("fill", Share::percent(0))
    }

    /// Reads the whole drive once, in order, and compares every block.
    pub fn read_back(&mut self) -> Result<Outcome, Failure> {
        self.sweep("read back", Share::percent(100))
    }

    fn sweep(&mut self, name: &str, read_share: Share) -> Result<Outcome, Failure> {
        let mut workload = Workload::new(&WorkloadConfig {
            pattern: Pattern::Sequential,
            read_share,
            access_blocks: SWEEP_BLOCKS,
            drive_blocks: self.drive.blocks(),
            seed: 0,
        });
        let limit = Limit::Requests(workload.slots());
        let capacity = self.drive.blocks();
        self.phase(&mut workload, limit, |live, progress, started| {
            let blocks = progress.outcome.writes.blocks + progress.outcome.reads.blocks;
            show(live, name, blocks as f64 / capacity as f64, &rate(blocks, started));
        })
    }

    /// Runs `workload` in windows until the write amplification is steady, or for a given number of capacities.
    pub fn warm_up(&mut self, workload: &mut Workload, drive_writes: Option<f64>) -> Result<WarmedUp, Failure> {
        let capacity = self.drive.blocks();
        let mut warmed_up = WarmedUp { drive_writes: 0.0, waf: Vec::new(), steady: None };
        if let Some(drive_writes) = drive_writes {
            let blocks = (drive_writes * capacity as f64).round() as u64;
            if blocks > 0 {
                warmed_up.waf.push(self.window(workload, blocks, "warm-up")?);
                warmed_up.drive_writes = drive_writes;
            }
            return Ok(warmed_up);
        }
        let mut state = SteadyState::default();
        let window = capacity.div_ceil(WINDOWS_PER_DRIVE_WRITE);
        let mut steady = false;
        while !steady && (warmed_up.waf.len() as u64) < WARM_UP_DRIVE_WRITES_MAX * WINDOWS_PER_DRIVE_WRITE {
            let name = format!("warm-up {}", sparkline(&warmed_up.waf));
            let waf = self.window(workload, window, &name)?;
            warmed_up.waf.push(waf);
            steady = state.is_steady_with(waf);
            if self.drive.is_read_only() {
                break;
            }
        }
        warmed_up.steady = Some(steady);
        warmed_up.drive_writes = warmed_up.waf.len() as f64 / WINDOWS_PER_DRIVE_WRITE as f64;
        Ok(warmed_up)
    }

    /// The write amplification of `blocks` more blocks written.
    fn window(&mut self, workload: &mut Workload, blocks: u64, name: &str) -> Result<f64, Failure> {
        let before = (self.drive.statistics().host_blocks_written, self.drive.statistics().nand_blocks_written());
        self.phase(workload, Limit::BlocksWritten(blocks), |live, progress, started| {
            let written = progress.outcome.writes.blocks;
            show(live, name, written as f64 / blocks as f64, &rate(written, started));
        })?;
        let after = self.drive.statistics();
        let host = after.host_blocks_written - before.0;
        Ok(if host == 0 { 0.0 } else { (after.nand_blocks_written() - before.1) as f64 / host as f64 })
    }

    /// Measures `workload` until `limit`; `watch` shows the progress and may end it.
    pub fn measure(
        &mut self,
        workload: &mut Workload,
        limit: Limit,
        mut watch: impl FnMut(&mut Live, Progress<'_, Drive>, Instant) -> ControlFlow<()>,
    ) -> Result<Measured, Failure> {
        self.drive.reset_statistics();
        let busy_before = assembly::pu_busy(&self.drive);
        let started = Instant::now();
        let live = &mut self.live;
        let outcome = self
            .driver
            .run(&mut self.drive, &mut self.clock, workload, limit, |progress| watch(live, progress, started))
            .map_err(|error| unsound(&error))?;
        let wall_seconds = started.elapsed().as_secs_f64();
        self.live.clear();
        let statistics: Statistics = self.drive.statistics().clone();
        let pu_busy =
            assembly::pu_busy(&self.drive).iter().zip(busy_before).map(|(&after, before)| after - before).collect();
        Ok(Measured {
            effective_over_provisioning: self.drive.effective_over_provisioning(),
            outcome,
            statistics,
            pu_busy,
            geometry: *assembly::geometry(&self.drive),
            wall_seconds,
        })
    }

    fn phase(
        &mut self,
        workload: &mut Workload,
        limit: Limit,
        mut watch: impl FnMut(&mut Live, &Progress<'_, Drive>, Instant),
    ) -> Result<Outcome, Failure> {
        let started = Instant::now();
        let live = &mut self.live;
        let outcome = self
            .driver
            .run(&mut self.drive, &mut self.clock, workload, limit, |progress| {
                if live.is_due() {
                    watch(live, &progress, started);
                }
                ControlFlow::Continue(())
            })
            .map_err(|error| unsound(&error));
        self.live.clear();
        outcome
    }
}

/// Blocks of an access of a sweep.
pub const SWEEP_BLOCKS: u32 = 64;
const _: () = assert!(SWEEP_BLOCKS as usize <= TRANSACTION_BLOCKS_MAX);

/// One line of progress.
pub fn show(live: &mut Live, name: &str, share: f64, rest: &str) {
    let bar = live.palette().paint(Ink::Picture, &bar(share, 24));
    live.show(&[format!("{name:<10} {bar} {:>3.0}%  {rest}", (share * 100.0).min(100.0))]);
}

/// Blocks a second of your time.
pub fn rate(blocks: u64, started: Instant) -> String {
    let seconds = started.elapsed().as_secs_f64().max(1e-9);
    format!(
        "{} blocks/s, {:.0} MB/s",
        thousands((blocks as f64 / seconds) as u64),
        blocks as f64 * BLOCK_BYTES as f64 / seconds / 1e6
    )
}

/// A run ended because the drive is at fault.
pub fn unsound(error: &RunError) -> Failure {
    let fix = match error {
        RunError::WrongData { .. } | RunError::Stalled { .. } => {
            "this is a defect of the FTL or of its device, and the same command with the same seed shows it again"
        }
        RunError::Failed { .. } => {
            "the profile's [faults] may ask for more than the drive can mend; `openftl profiles` lists others"
        }
        RunError::Load(_) => return Failure::bad_input(error).fix("correct the trace, or choose another load"),
    };
    Failure::failed(error).fix(fix)
}
