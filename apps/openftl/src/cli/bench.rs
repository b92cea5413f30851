//! The words of `openftl bench` describe a drive in memory, the workload on it, and how much is measured.

use super::drive_flags::DriveFlags;
use super::number::{not_negative, positive, whole};
use clap::{Args, ValueEnum};
use openftl_drive::description::Timing;
use openftl_lab::WarmUp;

const BENCH_EXAMPLES: &str = "\
Examples:
  openftl bench --profile cosmos --timing virtual --workload uniform --over-provisioning 10% --drive-writes 4 --seed 1 --json
  openftl bench --drive drives/zns.toml --workload segments:8,reads=30%
  openftl bench --workload zipf:0.99 --victim cost-benefit
  openftl bench --workload uniform,reads=70%,access=16KiB --queue-depth 128
  openftl bench --profile znand --timing instant --store ram --capacity 1GiB --seconds 5

In virtual time the same seed gives the same figures to the last digit, and the same trace hash.";

#[derive(Args, Debug)]
#[command(after_help = BENCH_EXAMPLES)]
pub struct Bench {
    #[command(flatten)]
    pub flags: DriveFlags,
    /// Virtual time runs as fast as the CPU goes and is repeatable; the wall clock waits as the NAND would; instant
    /// media cost nothing, so that the software shows [default: virtual].
    #[arg(long, value_enum, value_name = "TIMING")]
    pub timing: Option<Timing>,
    /// What keeps the payload: all of it, or eight bytes a block [default: stamps].
    #[arg(long, value_enum, value_name = "STORE")]
    pub store: Option<Store>,
    /// What the host does: uniform, sequential, zipf:0.99, hot-cold:90/10, writers:8, lsm, log-structured-fs, segments:4,
    /// double-write, tenants:lsm*2+uniform or trace:FILE, with options behind commas, like access=16KiB,reads=30%
    /// [default: uniform; on zones and segments: segments].
    #[arg(long, value_name = "LOAD", help_heading = "Workload")]
    pub workload: Option<String>,
    /// Requests under way at a time.
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = whole::<u32>(1, 4096), help_heading = "Workload")]
    pub queue_depth: u32,
    /// Decides everything that is left to chance.
    #[arg(long, value_name = "N", value_parser = whole::<u64>(0, u64::MAX), default_value_t = 1, help_heading = "Workload")]
    pub seed: u64,
    /// How much to measure, in capacities written (moved, if the workload only reads) [default: 4].
    #[arg(long, value_name = "N", value_parser = positive, conflicts_with = "seconds", help_heading = "Workload")]
    pub drive_writes: Option<f64>,
    /// How much to measure, in seconds on the drive's clock.
    #[arg(long, value_name = "N", value_parser = positive, help_heading = "Workload")]
    pub seconds: Option<f64>,
    /// Capacities written with the workload before measuring, after the drive was filled once; `auto` goes on until the
    /// write amplification is steady.
    #[arg(long, value_name = "N|auto", default_value = "auto", value_parser = warm_up, help_heading = "Workload")]
    pub warm_up: WarmUp,
    /// Print the result as one JSON object.
    #[arg(long)]
    pub json: bool,
    /// In the object also say how long it took here. It is the only figure of a simulated run that differs from run to run.
    #[arg(long, requires = "json")]
    pub wall: bool,
}

/// What keeps the payload of a drive in memory.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Store {
    /// All of it, in RAM.
    Ram,
    /// Eight bytes that stand for each block.
    Stamps,
}

fn warm_up(text: &str) -> Result<WarmUp, String> {
    match text {
        "auto" => Ok(WarmUp::Steady),
        number => not_negative(number).map(WarmUp::DriveWrites).map_err(|error| format!("{error}, or `auto`")),
    }
}
