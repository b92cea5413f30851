//! How a drive was opened, step by step.

use crate::journal::repair::RepairReport;
use openftl_core::Nanos;

/// The names of the steps, in their order.
pub const STEPS: [&str; 8] = [
    "read chunk report",
    "find superblock",
    "load checkpoint",
    "settle open chunks",
    "read log",
    "replay log",
    "rebuild chunk table",
    "write superblock",
];

/// One step of opening a drive.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct StepReport {
    /// Its name, of [`STEPS`].
    pub name: &'static str,
    /// How long it took on the drive's clock.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
    /// Blocks that it read.
    pub blocks_read: u64,
    /// What it found.
    pub found: String,
}

/// How a drive was opened.
#[derive(Clone, PartialEq, Eq, Default, Debug, serde::Serialize)]
pub struct RecoveryReport {
    /// The steps taken.
    pub steps: Vec<StepReport>,
    /// Whether the drive had been closed cleanly.
    pub clean: bool,
    /// Records replayed.
    pub replayed: u64,
    /// Records of transactions that were cut off, and dropped.
    pub dropped: u64,
    /// Log blocks found beyond the end of the log.
    pub beyond_end: u64,
    /// What was found in one copy only, in words; the copies are made anew.
    pub single_copies: Vec<String>,
    /// What the drive lacks of the room that every crash leaves, if anything: it is made before anything else.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing_room: Option<String>,
    /// What may be missing though the drive could be opened, if anything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub doubt: Option<String>,
    /// What had to be rebuilt, if anything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repair: Option<RepairReport>,
}
