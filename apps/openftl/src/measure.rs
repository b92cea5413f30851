//! A drive put under a load, and how people see its progress.

use crate::assembly;
use crate::cli::Store;
use crate::failure::Failure;
use crate::settings::Settings;
use crate::terminal::{Live, span};
use openftl_core::{BLOCK_BYTES, FrameForm};
use openftl_lab::picture::{sparkline, thousands};
use openftl_lab::trial::{Phase, SWEEP_BLOCKS, View};
use openftl_lab::{Binding, BlockDrive, Load, LoadSpec, RunError, Trial, TrialError};
use openftl_media::Timing;
use openftl_parts::{Config, IoError};
use openftl_serving::clock::BenchClock;
use openftl_serving::flash::Flash;
use std::fs::File;
use std::io::BufReader;
use std::time::{Duration, Instant};

/// What a new drive is put to.
#[derive(Clone, PartialEq, Debug)]
pub struct Trying {
    /// What the host does.
    pub load: LoadSpec,
    /// What of its hints the drive is told.
    pub binding: Binding,
    /// Decides everything that is left to chance.
    pub seed: u64,
    /// Requests under way at a time.
    pub queue_depth: u32,
    /// What keeps the payload.
    pub store: Store,
    /// How long the NAND takes.
    pub timing: Timing,
}

impl Trying {
    /// Makes the drive, in memory and in simulated time.
    pub fn begin(&self, settings: &Settings) -> Result<Trial<Flash, BenchClock>, Failure> {
        let (blocks, segment_blocks) = settings.host_space()?;
        let load = build(&self.load, blocks, segment_blocks, self.seed)?;
        let access_blocks = load.access_blocks_max().max(SWEEP_BLOCKS);
        // Room for all requests under way twice, so that the drive's buffer and not the pool is what fills up.
        let host_frames = 2 * self.queue_depth * access_blocks;
        let with_room = |config: Config| Config { host_frames: config.host_frames.max(host_frames), ..config };
        let mut clock = BenchClock::simulated();
        let payload = match self.store {
            Store::Ram => FrameForm::Bytes,
            Store::Stamps => FrameForm::Stamp,
        };
        let drive: BlockDrive<Flash> = match &settings.zones {
            None => {
                let config = with_room(settings.drive.config(payload, self.seed));
                assembly::new_in_memory(settings, config, self.store, self.timing, self.seed, &mut clock)?.into()
            }
            Some(zones) => {
                let config = with_room(Config { payload, ..zones.config(self.seed) });
                assembly::new_zones_in_memory(settings, zones, config, self.store, self.timing, &mut clock)?.into()
            }
        };
        Ok(Trial::new(drive, clock, load, self.queue_depth as usize, self.binding))
    }
}

/// Makes a load, which also says whether it can be made.
fn build(load: &LoadSpec, blocks: u64, segment_blocks: Option<u64>, seed: u64) -> Result<Box<dyn Load>, Failure> {
    load.build(blocks, segment_blocks, seed, &mut |name| Ok(Box::new(BufReader::new(File::open(name)?)) as _))
        .map_err(Failure::bad_input_with_fix)
}

/// Refuses a load that cannot be before anything runs.
pub fn check(load: &LoadSpec, settings: &Settings, seed: u64) -> Result<(), Failure> {
    let (blocks, segment_blocks) = settings.host_space()?;
    build(load, blocks, segment_blocks, seed).map(drop)
}

/// Refuses a measured phase of a load that had already come to its end: one of no blocks.
pub fn expect_something(blocks: u64) -> Result<(), Failure> {
    if blocks > 0 {
        return Ok(());
    }
    Err(Failure::bad_input("the load came to its end before anything was measured")
        .fix("choose a smaller --warm-up, or a longer trace"))
}

/// Before so much of a phase is done, and it has lasted so long, nobody can tell how long it will take.
const SHARE_TOLD: f64 = 0.02;
const ELAPSED_TOLD: Duration = Duration::from_secs(1);

/// A trial as it is shown: one line that changes.
pub struct Watched {
    live: Live,
    phase: Phase,
    began: Instant,
}

impl Watched {
    pub fn new(live: Live) -> Watched {
        Watched { live, phase: Phase::Fill, began: Instant::now() }
    }

    /// Shows how far the trial is.
    pub fn see(&mut self, view: &View<'_, Flash>) {
        if self.phase != view.phase {
            (self.phase, self.began) = (view.phase, Instant::now());
        }
        if !self.live.is_due() {
            return;
        }
        let rate = rate(view.outcome.reads.blocks + view.outcome.writes.blocks, self.began);
        let rate = format!("{rate}{}", left(view.share, self.began.elapsed()));
        let name = view.phase.name();
        match view.phase {
            Phase::WarmUp => self.live.show_share(&format!("{name} {}", sparkline(view.windows)), view.share, &rate),
            Phase::Measure => {
                let waf = view.drive.statistics().waf();
                self.live.show_share(name, view.share, &format!("{rate}, WAF {waf:.3}"));
            }
            _ => self.live.show_share(name, view.share, &rate),
        }
    }

    /// For lines of another kind.
    pub fn live(&mut self) -> &mut Live {
        &mut self.live
    }

    /// Takes the line away.
    pub fn clear(&mut self) {
        self.live.clear();
    }
}

/// How long a phase will still take, once that can be told.
fn left(share: f64, elapsed: Duration) -> String {
    if share < SHARE_TOLD || elapsed < ELAPSED_TOLD {
        return String::new();
    }
    let left = elapsed.as_secs_f64() * (1.0 - share.min(1.0)) / share;
    format!(", {} left", span(Duration::from_secs_f64(left)))
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

/// A trial did not come to its end. `reason` is the drive's, if it turned read-only.
pub fn ended_early(error: &TrialError, reason: Option<String>) -> Failure {
    match error {
        TrialError::Run(error) => unsound(error),
        TrialError::ReadOnly { phase } => read_only(*phase, reason),
        TrialError::Stopped { phase } => {
            Failure::failed(format_args!("interrupted in the {} phase: nothing was measured yet", phase.name()))
        }
    }
}

/// A drive turned read-only where that leaves nothing to say.
pub fn read_only(phase: Phase, reason: Option<String>) -> Failure {
    let when = match phase {
        Phase::Fill => "while it was filled",
        Phase::WarmUp => "in the warm-up",
        Phase::Flush => "while it was flushed",
        Phase::Measure => "while it was measured",
        Phase::ReadBack => "while it was read back",
    };
    let reason = reason.map_or_else(String::new, |reason| format!(": {reason}"));
    Failure::failed(format_args!("it turned read-only {when}{reason}"))
        .fix("write less, or choose a profile that lasts longer or more over-provisioning")
}

/// A run ended because the drive is at fault.
fn unsound(error: &RunError) -> Failure {
    let fix = match error {
        RunError::WrongData { .. } | RunError::Stalled { .. } => {
            "this is a defect of the FTL or of its device, and the same command with the same seed shows it again"
        }
        RunError::Failed { error: IoError::Append(_), .. } => {
            "play what was recorded on zones as large as these, or choose a block drive"
        }
        RunError::Failed { .. } => {
            "the profile's [faults] may ask for more than the drive can mend; `openftl profiles` lists others"
        }
        RunError::Load(_) => return Failure::bad_input(error).fix("correct the trace, or choose another load"),
    };
    Failure::failed(error).fix(fix)
}
