//! The words of `openftl create` name the file of a new drive and describe the drive.

use super::drive_flags::DriveFlags;
use super::number::whole;
use clap::Args;
use std::path::PathBuf;

const CREATE_EXAMPLES: &str = "\
Examples:
  openftl create disk.oftl --profile cosmos --capacity 8GiB
  openftl create disk.oftl --profile qlc --capacity 64GiB --over-provisioning 7%
  openftl create disk.oftl --drive drives/cosmos-block.toml --force
  openftl create tenants.oftl --drive drives/tenants.toml        several namespaces on one device";

#[derive(Args, Debug)]
#[command(after_help = CREATE_EXAMPLES)]
pub struct Create {
    /// The file to make.
    #[arg(value_name = "DISK")]
    pub disk: PathBuf,
    #[command(flatten)]
    pub flags: DriveFlags,
    /// Replace the file if it exists.
    #[arg(long)]
    pub force: bool,
    /// Where bad chunks lie and when programs fail follows from this [default: another each time].
    #[arg(long, value_name = "N", value_parser = whole::<u64>(0, u64::MAX))]
    pub seed: Option<u64>,
    /// Print what was made as one JSON object.
    #[arg(long)]
    pub json: bool,
}
