//! One drive under one load, in virtual time: what `compare` and `sweep` are made of.

use crate::chunk_map::cells;
use crate::chunk_map::{Cell, Mark};
use crate::cli::Store;
use crate::contender::Contender;
use crate::crew::Desk;
use crate::failure::Failure;
use crate::figures::Figures;
use crate::measure::{self, Trying, ended_early, expect_something};
use crate::settings::Settings;
use openftl_blocks::Ftl;
use openftl_core::Nanos;
use openftl_core::units::Share;
use openftl_lab::load_spec::Model;
use openftl_lab::trial::{Phase, View};
use openftl_lab::{Limit, LoadSpec, Measured, Trial, TrialError, WarmUp};
use openftl_media::Timing;
use openftl_parts::BlockTarget;
use openftl_serving::clock::BenchClock;
use openftl_serving::flash::Flash;

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

/// What was found.
pub struct Tried {
    /// What both sides measured.
    pub measured: Measured,
    /// Erases of each chunk that is not bad, in the measured phase.
    pub erases: Vec<u32>,
    /// What each chunk held at the end, in address order.
    pub cells: Vec<Cell>,
    /// Blocks that were read and compared, all phases.
    pub blocks_verified: u64,
}

impl Tried {
    /// For scripts.
    pub fn figures(&self) -> Figures {
        Figures::of(&self.measured)
    }
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
        match load.writes() {
            true => Ok(load),
            false => Err(Failure::bad_input("nothing is ever written")
                .fix("write less than reads=100%: what is compared is measured by what is written")),
        }
    }

    /// Refuses what cannot be before anything runs.
    pub fn check(&self, settings: &Settings) -> Result<(), Failure> {
        measure::check(&self.load, settings, self.seed)
    }

    /// Does it to a new drive. `None` if `desk` no longer wants to know.
    pub fn run(&self, contender: &Contender, desk: &Desk<'_>) -> Result<Option<Tried>, Failure> {
        let trying = Trying {
            load: self.load.clone(),
            binding: contender.binding,
            seed: self.seed,
            queue_depth: self.queue_depth,
            store: Store::Stamps,
            timing: Timing::Modelled,
        };
        let about = |failure: Failure| failure.about(format_args!("drive {}", contender.name));
        let mut trial = trying.begin(&contender.settings).map_err(about)?;
        match self.tried(&mut trial, desk) {
            Ok(tried) => Ok(Some(tried)),
            Err(End::Trial(TrialError::Stopped { .. })) => Ok(None),
            Err(End::Trial(error)) => {
                Err(about(ended_early(&error, trial.drive.read_only_reason().map(|reason| reason.to_string()))))
            }
            Err(End::Failed(failure)) => Err(about(failure)),
        }
    }

    fn tried(&self, trial: &mut Trial<Flash, BenchClock>, desk: &Desk<'_>) -> Result<Tried, End> {
        let watch = &mut |view: View<'_, Flash>| desk.say(view.phase.name(), view.share);
        trial.prepare(WarmUp::DriveWrites(self.warm_up), watch)?;
        let blocks = (self.drive_writes * trial.drive.blocks() as f64).round().max(1.0);
        let measured = trial.measure(Limit::BlocksWritten(blocks as u64), Nanos::ZERO, watch)?;
        let phase = Phase::Measure;
        if measured.outcome.stopped {
            return Err(TrialError::Stopped { phase }.into());
        }
        if measured.outcome.turned_read_only {
            return Err(TrialError::ReadOnly { phase }.into());
        }
        expect_something(measured.outcome.writes.blocks)?;
        let cells = cells(trial.drive.block());
        let good = measured.resets.iter().zip(&cells).filter(|(_, cell)| cell.mark != Mark::Bad);
        let erases = good.map(|(resets, _)| *resets).collect();
        trial.read_back(watch)?;
        Ok(Tried { measured, erases, cells, blocks_verified: trial.blocks_verified() })
    }
}

/// Why a run came to no result.
enum End {
    Trial(TrialError),
    Failed(Failure),
}

impl From<TrialError> for End {
    fn from(error: TrialError) -> End {
        End::Trial(error)
    }
}

impl From<Failure> for End {
    fn from(failure: Failure) -> End {
        End::Failed(failure)
    }
}
