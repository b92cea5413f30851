//! The words of `openftl check` name the drive to verify and say whether it is repaired.

use clap::Args;
use std::path::PathBuf;

const CHECK_EXAMPLES: &str = "\
Examples:
  openftl check disk.oftl && echo sound
  openftl check disk.oftl --repair
  openftl check tenants.oftl --namespace database --repair
  openftl check disk.oftl --repair --json > repair.json

A drive that cannot be checked as it is (not closed cleanly, or with blocks that paired pages keep from being read) is
opened as for use first, and the report says so. Otherwise nothing is written.

With --repair, what is left in one copy is written twice again, and a map that cannot be trusted is rebuilt from what is
left of it and from what every block on the media says of itself. Then blocks that were trimmed may be back, and writes
that were never flushed may be there in part; what is lost stays an error until it is overwritten or trimmed. Copy the
file first if you can.

Exit codes: 0 the drive is sound (with --repair: now, and nothing is lost); 1 it is not, or cannot be opened; 2 the file is
no drive.";

#[derive(Args, Debug)]
#[command(after_help = CHECK_EXAMPLES)]
pub struct Check {
    /// A drive made by `openftl create`.
    #[arg(value_name = "DISK")]
    pub disk: PathBuf,
    /// Which of several namespaces, by its name [default: all].
    #[arg(long, value_name = "NAME")]
    pub namespace: Option<openftl_media::PartName>,
    /// Repair what can be repaired, and say what was lost.
    #[arg(long)]
    pub repair: bool,
    /// Print the findings as one JSON object.
    #[arg(long)]
    pub json: bool,
}
