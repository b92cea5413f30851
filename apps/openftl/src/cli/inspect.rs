//! The words of `openftl inspect` name the drive to show.

use clap::Args;
use std::path::PathBuf;

const INSPECT_EXAMPLES: &str = "\
Examples:
  openftl inspect disk.oftl
  openftl inspect disk.oftl --json | less
  openftl inspect tenants.oftl --namespace database
  openftl inspect unix:/tmp/openftl.ctl              a drive that is served with --control

A drive that is being served is shown by its server, as it is at this moment; nothing on it changes.";

#[derive(Args, Debug)]
#[command(after_help = INSPECT_EXAMPLES)]
pub struct Inspect {
    /// A drive made by `openftl create`, or the control socket of one that is being served.
    #[arg(value_name = "DISK")]
    pub disk: PathBuf,
    /// Which of several namespaces, by its name [default: all].
    #[arg(long, value_name = "NAME")]
    pub namespace: Option<openftl_media::PartName>,
    /// Print it as one JSON object.
    #[arg(long)]
    pub json: bool,
}
