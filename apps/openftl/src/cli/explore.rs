//! The words of `openftl explore` choose histories by their seeds, or one by its steps.

use super::number::{positive, whole};
use clap::Args;
use clap::builder::PossibleValuesParser;

const EXPLORE_EXAMPLES: &str = "\
Examples:
  openftl explore                                    a minute of histories, those of seeds from 0 on
  openftl explore --seed 5000 --minutes 30 --json > report.json
  openftl explore --seed 17 --runs 1                 the history of one seed
  openftl explore --seed 17 --steps 'w0+1 f x4'      a history as a failure prints it, on the drive of seed 17
  openftl explore --drives map-on-media --minutes 5  drives that have no room for their map in memory, and no others

The same seeds give the same histories and the same trace hash on any machine. The first history that fails is made
short, and printed with the command that replays it. Ctrl-C ends with a report of what was seen so far.

Exit codes: 0 no history fails; 1 one does; 2 the command line is wrong.";

/// Kinds of drives that histories are drawn of, as the simulator knows them.
pub const DRIVES: [&str; 5] = ["all", "map-in-memory", "map-on-media", "zones", "pages"];

#[derive(Args, Debug)]
#[command(after_help = EXPLORE_EXAMPLES)]
pub struct Explore {
    /// The first seed, or the one whose drive the steps are for.
    #[arg(long, value_name = "N", value_parser = whole::<u64>(0, u64::MAX), default_value_t = 0)]
    pub seed: u64,
    /// Which drives the histories are of: all (but zones and pages), map-in-memory, map-on-media, zones or pages.
    #[arg(long, value_name = "KIND", default_value = DRIVES[0], value_parser = PossibleValuesParser::new(DRIVES), hide_possible_values = true)]
    pub drives: String,
    /// End after so many histories.
    #[arg(long, value_name = "N", value_parser = whole::<u64>(1, u64::MAX), conflicts_with = "minutes")]
    pub runs: Option<u64>,
    /// End after so long [default: 1, unless --runs is given].
    #[arg(long, value_name = "M", value_parser = positive)]
    pub minutes: Option<f64>,
    /// Threads [default: one for each processor].
    #[arg(long, value_name = "J", value_parser = whole::<u32>(1, 1024))]
    pub jobs: Option<u32>,
    /// Take these steps and no others (docs/SIMULATION.md says what they mean).
    #[arg(long, value_name = "STEPS", conflicts_with_all = ["runs", "minutes", "jobs"])]
    pub steps: Option<String>,
    /// Print the report as one JSON object, without progress.
    #[arg(long)]
    pub json: bool,
}
