//! The statistics say what a drive did since it was opened; the counts behind them belong to the threads that use it.

use openftl_core::Nanos;
use openftl_tables::{TableStatistics, TableWaits};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// What was done with files whose names are alike.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, serde::Serialize)]
pub struct NameStatistics {
    /// Bytes written.
    pub bytes_written: u64,
    /// Syncs.
    pub syncs: u64,
}

/// What a drive did since it was opened. Blocks are of 4 KiB.
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
pub struct FileStatistics {
    /// Bytes that were written to tables.
    pub table_bytes_written: u64,
    /// Bytes that were written to log files.
    pub log_bytes_written: u64,
    /// Read requests.
    pub reads: u64,
    /// Bytes that they asked for.
    pub bytes_read: u64,
    /// Blocks that were read from the drive for them.
    pub blocks_read: u64,
    /// Of these, blocks that were in the drive's memory.
    pub blocks_in_memory: u64,
    /// Syncs of files and of names.
    pub syncs: u64,
    /// Of these, syncs that had nothing left to do.
    pub syncs_for_nothing: u64,
    /// By what names begin or end with: `*.sst`, `*.log`, `MANIFEST`.
    pub by_name: BTreeMap<String, NameStatistics>,
    /// Blocks programmed, by what for.
    pub programmed: Vec<(&'static str, u64)>,
    /// Blocks programmed in all.
    pub nand_blocks_written: u64,
    /// Bytes programmed for each byte written.
    pub write_amplification: f64,
    /// Chunks reset.
    pub resets: u64,
    /// Program operations that failed; what they should have written went elsewhere.
    pub program_failures: u64,
    /// Resets that failed, and took the chunk out of use.
    pub reset_failures: u64,
    /// Reads of blocks that were lost.
    pub read_failures: u64,
    /// Blocks that moved because they, or others of their chunk, were weak.
    pub blocks_moved: u64,
    /// What was done with tables.
    pub tables: TableStatistics,
    /// What their units waited for, in nanoseconds.
    pub waits: TableWaits,
    /// Nanoseconds that each die was busy; empty if the device cannot tell.
    pub pu_busy: Vec<Nanos>,
}

/// Counts of what threads do.
#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) table_bytes: AtomicU64,
    pub(crate) log_bytes: AtomicU64,
    pub(crate) reads: AtomicU64,
    pub(crate) bytes_read: AtomicU64,
    pub(crate) syncs: AtomicU64,
    pub(crate) syncs_for_nothing: AtomicU64,
    /// Changes given to the drive, and of them those that are durable.
    pub(crate) changes: AtomicU64,
    pub(crate) durable: AtomicU64,
}

/// Counts of files whose names are alike.
#[derive(Default)]
pub(crate) struct NameCounts {
    pub(crate) bytes: AtomicU64,
    pub(crate) syncs: AtomicU64,
}

impl Counts {
    pub(crate) fn add(count: &AtomicU64, more: u64) {
        count.fetch_add(more, Ordering::Relaxed);
    }
}
