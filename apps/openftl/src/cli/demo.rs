//! The words of `openftl demo` say how long the demo goes on.

use super::number::positive;
use clap::Args;

const DEMO_EXAMPLES: &str = "\
Examples:
  openftl demo
  openftl demo --drive-writes 30
  openftl demo --seconds 60
  openftl demo --json > report.json

The figures are the same on any machine.";

#[derive(Args, Debug)]
#[command(after_help = DEMO_EXAMPLES)]
pub struct Demo {
    /// How often the capacity is overwritten: the same figures on every machine.
    #[arg(long, value_name = "N", default_value_t = 8.0, value_parser = positive)]
    pub drive_writes: f64,
    /// Overwrite for as long as the whole demo takes about so many seconds of your time, however much that is.
    #[arg(long, value_name = "N", value_parser = positive, conflicts_with = "drive_writes")]
    pub seconds: Option<f64>,
    /// Print the report as one JSON object, without progress.
    #[arg(long)]
    pub json: bool,
}
