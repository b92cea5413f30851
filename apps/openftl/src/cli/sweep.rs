//! The words of `openftl sweep` name the file that lists the runs, and the CSV that gets their figures.

use super::number::whole;
use clap::Args;
use std::path::PathBuf;

const SWEEP_EXAMPLES: &str = "\
Examples:
  openftl sweep docs/sweep.toml --out sweep.csv
  openftl sweep docs/sweep.toml --out sweep.csv      again after an interruption: goes on with what is missing
  openftl sweep mine.toml --jobs 1 --json > mine.json

The file:
  workload = \"writers:8\"                            what holds for all runs
  capacity = \"64MiB\"
  [grid]                                            every combination of these
  placement = [\"none\", \"streams\"]
  seed = [1, 2, 3]
  [[run]]                                           each with the whole grid; may be left out
  over_provisioning = \"7%\"

Keys: drive, placement, binding, victim, collection, relocate_by, collect_when_idle, over_provisioning, map_memory,
map_cache, handles, objects_max, capacity, workload, fill, queue_depth, warm_up, drive_writes, seed; each means what `openftl compare` calls so.";

#[derive(Args, Debug)]
#[command(after_help = SWEEP_EXAMPLES)]
pub struct Sweep {
    /// A TOML file that says what to run.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Runs at a time [default: one for each processor].
    #[arg(long, value_name = "N", value_parser = whole::<u32>(1, 1024))]
    pub jobs: Option<u32>,
    /// The CSV [default: FILE with the ending .csv].
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Print the result as one JSON object.
    #[arg(long)]
    pub json: bool,
}
