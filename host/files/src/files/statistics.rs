//! The statistics say what a drive did since it was opened; the counts behind them belong to the threads that use it.

use crate::path;
use openftl_core::{BLOCK_BYTES, Nanos};
use openftl_parts::Purpose;
use openftl_parts::accounts::statistics::Statistics;
use openftl_tables::{TableStatistics, TableWaits};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// What was done with files whose names are alike.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, serde::Serialize)]
pub struct NameStatistics {
    /// Bytes written.
    pub bytes_written: u64,
    /// Syncs.
    pub syncs: u64,
}

/// What a drive did since it was opened, whatever FTL its files are on; `F` is what that has beside it. Blocks are of 4 KiB.
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
pub struct FileStatistics<F = TableFigures> {
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
    /// Nanoseconds that each die was busy; empty if the device cannot tell.
    pub pu_busy: Vec<Nanos>,
    /// What only this FTL has.
    #[serde(flatten)]
    pub ftl: F,
}

/// What only table drives have.
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
pub struct TableFigures {
    /// What was done with tables.
    pub tables: TableStatistics,
    /// What their units waited for, in nanoseconds.
    pub waits: TableWaits,
}

impl<F> FileStatistics<F> {
    /// Of what threads have counted, and of the drive's own account.
    pub fn of(counts: &Counts, block: &Statistics, pu_busy: Vec<Nanos>, ftl: F) -> FileStatistics<F> {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let by_name = counts.by_name.lock().unwrap_or_else(PoisonError::into_inner);
        let by_name = by_name.iter().map(|(name, counts)| {
            (name.clone(), NameStatistics { bytes_written: load(&counts.bytes), syncs: load(&counts.syncs) })
        });
        let by_name = by_name.collect();
        let written = load(&counts.table_bytes) + load(&counts.log_bytes);
        let nand = block.nand_blocks_written();
        FileStatistics {
            table_bytes_written: load(&counts.table_bytes),
            log_bytes_written: load(&counts.log_bytes),
            reads: load(&counts.reads),
            bytes_read: load(&counts.bytes_read),
            blocks_read: block.host_blocks_read,
            blocks_in_memory: block.buffer_hits,
            syncs: load(&counts.syncs),
            syncs_for_nothing: load(&counts.syncs_for_nothing),
            by_name,
            programmed: Purpose::BESIDE_A_TENANT
                .iter()
                .map(|purpose| (purpose.name(), block.programmed_for(*purpose)))
                .collect(),
            nand_blocks_written: nand,
            write_amplification: if written == 0 { 0.0 } else { (nand * BLOCK_BYTES as u64) as f64 / written as f64 },
            resets: block.resets,
            program_failures: block.program_failures,
            blocks_moved: block.cared.iter().map(|moved| moved.blocks).sum(),
            reset_failures: block.reset_failures,
            read_failures: block.read_failures,
            pu_busy,
            ftl,
        }
    }
}

/// Counts of what threads do with the files of a drive; [`FileStatistics`] say them.
#[derive(Default)]
pub struct Counts {
    /// Bytes written to tables.
    pub table_bytes: AtomicU64,
    /// Bytes written to log files.
    pub log_bytes: AtomicU64,
    /// Read requests.
    pub reads: AtomicU64,
    /// Bytes that they asked for.
    pub bytes_read: AtomicU64,
    /// Syncs of files and of names.
    pub syncs: AtomicU64,
    /// Of these, syncs that had nothing left to do.
    pub syncs_for_nothing: AtomicU64,
    /// Changes given to the drive.
    pub changes: AtomicU64,
    /// Of them those that are durable.
    pub durable: AtomicU64,
    by_name: Mutex<BTreeMap<String, Arc<NameCounts>>>,
}

/// Counts of files whose names are alike.
#[derive(Default)]
pub struct NameCounts {
    /// Bytes written.
    pub bytes: AtomicU64,
    /// Syncs.
    pub syncs: AtomicU64,
}

impl Counts {
    /// Counts so many more.
    pub fn add(count: &AtomicU64, more: u64) {
        count.fetch_add(more, Ordering::Relaxed);
    }

    /// What is counted of files that are called like `path`.
    pub fn of_name(&self, path: &str) -> Arc<NameCounts> {
        let mut by_name = self.by_name.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(by_name.entry(path::likeness(path)).or_default())
    }
}
