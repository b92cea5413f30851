//! The words of `openftl compare` list drives and the load that all of them get.

use super::number::{not_negative, positive, whole};
use clap::Args;
use openftl_core::units::{ByteSize, Share};
use std::path::PathBuf;

const COMPARE_EXAMPLES: &str = "\
Examples:
  openftl compare --drive cosmos:hot-cold --drive cosmos:streams --drive cosmos:flash-alloc --workload writers:8
  openftl compare --drive cosmos:none --drive cosmos:learned --workload zipf:0.99 --capacity 256MiB --csv zipf.csv
  openftl compare --drive mine.toml --drive mine.toml:fdp,binding=by-object:4 --workload lsm --html lsm.html
  openftl compare --drive cosmos,victim=greedy,name=greedy --drive cosmos,victim=cost-benefit,name=cb --workload hot-cold

A drive is a profile or a file, then perhaps a placement behind a colon, then options behind commas: name=, binding=,
victim=, collection=, relocate-by=, collect-when-idle=, over-provisioning=, handles= and objects-max=. What the host tells
it of lifetimes follows from the placement (streams: by-object, fdp: by-kind, flash-alloc: allocate, others: none), unless binding= says it.

All drives get the same writes. The same seed gives the same figures to the last digit.";

#[derive(Args, Debug)]
#[command(after_help = COMPARE_EXAMPLES)]
pub struct Compare {
    /// A drive, like cosmos:streams or mine.toml:fdp,binding=by-object:4; may be repeated.
    #[arg(long = "drive", value_name = "DRIVE", required = true)]
    pub drives: Vec<String>,
    /// What the host does: uniform, sequential, zipf:0.99, hot-cold:90/10, writers:8, lsm, log-structured-fs, segments:4,
    /// double-write, tenants:lsm*2+uniform or trace:FILE, with options behind commas, like access=16KiB,reads=30%.
    #[arg(long, value_name = "LOAD")]
    pub workload: String,
    /// Decides everything that is left to chance.
    #[arg(long, value_name = "N", value_parser = whole::<u64>(0, u64::MAX), default_value_t = 1)]
    pub seed: u64,
    /// What the host sees of every drive [default: what the drive descriptions say, or 1GiB].
    #[arg(long, value_name = "SIZE")]
    pub capacity: Option<ByteSize>,
    /// How full the load keeps the drive [default: that of the load].
    #[arg(long, value_name = "SHARE")]
    pub fill: Option<Share>,
    /// Capacities written before measuring, after the drive was filled.
    #[arg(long, value_name = "N", default_value_t = 2.0, value_parser = not_negative)]
    pub warm_up: f64,
    /// Capacities written while it is measured.
    #[arg(long, value_name = "N", default_value_t = 2.0, value_parser = positive)]
    pub drive_writes: f64,
    /// Requests under way at a time.
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = whole::<u32>(1, 1024))]
    pub queue_depth: u32,
    /// Drives at a time [default: one for each processor].
    #[arg(long, value_name = "J", value_parser = whole::<u32>(1, 1024))]
    pub jobs: Option<u32>,
    /// Write a page with charts to this file.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Write every figure to this file, a row for each drive.
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Print the result as one JSON object.
    #[arg(long)]
    pub json: bool,
}
