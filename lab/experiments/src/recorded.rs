//! Recordings that experiments replay: files beside the program, since they are half as large as it.
//!
//! | recordings | of | made by |
//! |---|---|---|
//! | `ext4-*`, `f2fs-*`, `btrfs-*` | blocks that file systems of Linux write, below loads of files and below SQLite | `cargo xtask file-traces` |
//! | `vfs-*` | batches that the VFS of `bindings/sqlite` commits | a test of `bindings/sqlite`, `recordings.rs` |

use super::{ExperimentError, amf, zns};
use crate::file_trace::{ACCESS_BLOCKS_MAX, BadRecording, Head, Recorded, Recording};
use crate::order_table;
use openftl_blocks::Ftl;
use openftl_core::units::Share;
use openftl_core::{BLOCK_BYTES, Clock, Nanos, VirtualClock};
use openftl_lab::load::{Access, Load, Operation};
use openftl_lab::{BlockDrive, Driver, Limit, Pattern, Workload, WorkloadConfig};
use openftl_media::EmulatedDevice;
use openftl_parts::{BlockTarget, Statistics};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

/// The variable that names the folder they are in, if they are elsewhere.
const VARIABLE: &str = "OPENFTL_RECORDINGS";

/// Where they are in the sources.
pub const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../recordings");

/// Where they are looked for: in the sources, and where packages put them.
const FOLDERS: [&str; 2] = [FOLDER, "/usr/share/openftl/recordings"];

/// Transactions of the [table of orders](crate::order_table) in each recording of SQLite.
pub const TRANSACTIONS: u64 = 500;

/// Bytes of the disk that ext4 has in the recordings of SQLite: its journal has 16 MiB then.
pub const SQLITE_DISK_BYTES: u64 = 128 << 20;

/// How SQLite keeps transactions whole on ext4.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JournalMode {
    /// A rollback journal, which is deleted at the end of each transaction.
    Delete,
    /// A write-ahead log.
    Wal,
}

impl JournalMode {
    /// Both.
    pub const ALL: [JournalMode; 2] = [JournalMode::Delete, JournalMode::Wal];

    /// What SQLite calls it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            JournalMode::Delete => "delete",
            JournalMode::Wal => "wal",
        }
    }

    /// What the load is called whose recording it is.
    fn load(self) -> String {
        format!("sqlite-{}", self.word())
    }

    /// The mode of a load, if it is one of SQLite.
    #[must_use]
    pub fn of_load(load: &str) -> Option<JournalMode> {
        JournalMode::ALL.into_iter().find(|mode| mode.load() == load)
    }

    /// The recording of it.
    #[must_use]
    pub fn recording(self) -> &'static str {
        match self {
            JournalMode::Delete => "ext4-sqlite-delete",
            JournalMode::Wal => "ext4-sqlite-wal",
        }
    }
}

/// What of SQLite's transactions the VFS commits to a store of pages: the recordings, and how each came about.
pub const OF_VFS: [(&str, VfsRecording); 4] = [
    ("vfs-sqlite-none", VfsRecording { compress: "none", batch_atomic: false }),
    ("vfs-sqlite-lz4", VfsRecording { compress: "lz4", batch_atomic: false }),
    ("vfs-sqlite-zstd", VfsRecording { compress: "zstd", batch_atomic: false }),
    ("vfs-sqlite-batch-atomic", VfsRecording { compress: "none", batch_atomic: true }),
];

/// How a recording of the VFS came about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VfsRecording {
    /// The parameter `compress` of its URI.
    pub compress: &'static str,
    /// SQLite was built with `SQLITE_ENABLE_BATCH_ATOMIC_WRITE`.
    pub batch_atomic: bool,
}

/// The recordings of file systems: what each is called, and what it is of.
pub fn of_file_systems() -> impl Iterator<Item = (&'static str, Head)> {
    let of_sqlite = JournalMode::ALL.into_iter().map(|mode| {
        let head = Head {
            file_system: "ext4".to_owned(),
            load: mode.load(),
            data_bytes: (0..TRANSACTIONS).map(order_table::changed_bytes).sum(),
            disk_bytes: SQLITE_DISK_BYTES,
            // Nothing of it is drawn.
            seed: 0,
        };
        (mode.recording(), head)
    });
    amf::recordings().chain(zns::recordings()).chain(of_sqlite)
}

/// The bytes of a recording.
///
/// # Errors
/// If it is missing.
pub fn read(name: &str) -> Result<Vec<u8>, ExperimentError> {
    let named = std::env::var_os(VARIABLE).map(PathBuf::from);
    read_from(&named.map_or_else(|| FOLDERS.map(PathBuf::from).to_vec(), |folder| vec![folder]), name)
}

fn read_from(folders: &[PathBuf], name: &str) -> Result<Vec<u8>, ExperimentError> {
    let mut looked = Vec::new();
    for path in folders.iter().map(|folder| folder.join(format!("{name}.trace"))) {
        match std::fs::read(&path) {
            Ok(bytes) => return Ok(bytes),
            Err(error) => looked.push(telling(&path, &error)),
        }
    }
    Err(ExperimentError::Host(format!(
        "a recording of what a file system of Linux or SQLite wrote is missing ({}): set {VARIABLE} to the folder `lab/recordings` of the \
         sources",
        looked.join("; ")
    )))
}

fn telling(path: &Path, error: &std::io::Error) -> String {
    format!("{}: {error}", path.display())
}

/// The accesses of a recording up to the next flush or the end of a phase.
struct UntilFlush<'r, 'a> {
    recording: &'r mut Recording<'a>,
    /// Blocks of a segment, at whose end accesses are cut, and what is left of the last one.
    segment_blocks: Option<u64>,
    rest: Option<Access>,
    ended: Option<Recorded>,
    failure: Option<BadRecording>,
}

impl UntilFlush<'_, '_> {
    /// An access up to the end of the segment that it begins in.
    fn within_segment(&mut self, access: Access) -> Access {
        let here = self.segment_blocks.map_or(u64::MAX, |blocks| blocks - access.first % blocks);
        if access.operation == Operation::Trim || u64::from(access.blocks) <= here {
            return access;
        }
        let here = here as u32;
        self.rest = Some(Access { first: access.first + u64::from(here), blocks: access.blocks - here, ..access });
        Access { blocks: here, ..access }
    }
}

impl Load for UntilFlush<'_, '_> {
    fn step(&mut self) -> Option<Access> {
        if let Some(rest) = self.rest.take() {
            return Some(self.within_segment(rest));
        }
        match self.recording.read_next() {
            Ok(Some(Recorded::Access(access))) => return Some(self.within_segment(access)),
            Ok(ended) => self.ended = ended,
            Err(error) => self.failure = Some(error),
        }
        None
    }

    fn fill_step(&mut self) -> Option<Access> {
        None
    }

    fn kinds(&self) -> Vec<String> {
        vec!["all".to_owned()]
    }

    fn live_blocks_max(&self) -> u64 {
        self.recording.head().disk_bytes / BLOCK_BYTES as u64
    }

    fn access_blocks_max(&self) -> u32 {
        ACCESS_BLOCKS_MAX
    }
}

/// Requests under way at a time.
const QUEUE_DEPTH: usize = 64;

/// What a drive did while the last phase of a recording of files was replayed.
#[derive(Clone, Debug)]
pub struct LastPhase {
    /// Bytes that programs wrote in it.
    pub bytes: u64,
    /// How long it took.
    pub span: Nanos,
    /// What the drive has counted.
    pub drive: Statistics,
}

/// A drive on which the recording of a file system is replayed.
pub struct Replay<'a> {
    /// The drive.
    pub drive: BlockDrive<EmulatedDevice>,
    /// Its clock.
    pub clock: VirtualClock,
    /// The host.
    pub driver: Driver,
    /// What is left to replay.
    pub recording: Recording<'a>,
}

impl<'a> Replay<'a> {
    /// A new drive, on which what `bytes` hold is to be replayed.
    ///
    /// # Errors
    /// If that is no recording.
    pub fn new(
        bytes: &'a [u8],
        drive: BlockDrive<EmulatedDevice>,
        clock: VirtualClock,
    ) -> Result<Replay<'a>, ExperimentError> {
        let recording = Recording::new(bytes)?;
        let blocks = recording.head().disk_bytes / BLOCK_BYTES as u64;
        let driver = Driver::new(blocks, QUEUE_DEPTH, ACCESS_BLOCKS_MAX as usize);
        Ok(Replay { drive, clock, driver, recording })
    }

    /// Replays files that are made, age, and are measured: says what the drive did in the last of these phases.
    ///
    /// # Errors
    /// If the drive is at fault, or the recording has fewer phases.
    pub fn run(&mut self) -> Result<LastPhase, ExperimentError> {
        for _ in 0..2 {
            self.phase()?;
            self.flush()?;
        }
        self.drive.reset_statistics();
        let began = self.clock.now();
        let bytes = self.phase()?;
        self.flush()?;
        let span = self.clock.now().since(began);
        Ok(LastPhase { bytes, span, drive: self.drive.block().statistics().clone() })
    }

    /// Replays a phase, in which each flush waits for all before it. Gives the bytes that programs wrote in it.
    ///
    /// # Errors
    /// If the drive is at fault, or the recording ends within a phase.
    pub fn phase(&mut self) -> Result<u64, ExperimentError> {
        let Replay { drive, clock, driver, recording } = self;
        loop {
            let segment_blocks = drive.segment_blocks();
            let mut part = UntilFlush { recording, segment_blocks, rest: None, ended: None, failure: None };
            driver.run(drive, clock, &mut part, Limit::Requests(u64::MAX), |_| ControlFlow::Continue(()))?;
            let UntilFlush { ended, failure, .. } = part;
            if let Some(error) = failure {
                return Err(error.into());
            }
            match ended {
                Some(Recorded::Phase { bytes }) => return Ok(bytes),
                Some(_) => _ = driver.flush(drive, clock)?,
                None => return Err(ExperimentError::Host("a recording ends within a phase".to_owned())),
            }
        }
    }

    /// Has the drive make all durable that was written so far.
    ///
    /// # Errors
    /// If the drive is at fault.
    pub fn flush(&mut self) -> Result<(), ExperimentError> {
        self.driver.flush(&mut self.drive, &mut self.clock)?;
        Ok(())
    }

    /// Reads all of the drive once, and compares.
    ///
    /// # Errors
    /// If it does not hold what was written.
    pub fn read_back(&mut self) -> Result<(), ExperimentError> {
        let Replay { drive, clock, driver, recording } = self;
        let drive_blocks = recording.head().disk_bytes / BLOCK_BYTES as u64;
        let (pattern, read_share) = (Pattern::Sequential, Share::percent(100));
        let config = WorkloadConfig { pattern, read_share, access_blocks: ACCESS_BLOCKS_MAX, drive_blocks, seed: 0 };
        let mut reads = Workload::new(&config);
        let limit = Limit::Requests(reads.slots());
        driver.run(drive, clock, &mut reads, limit, |_| ControlFlow::Continue(()))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_recording_is_in_the_sources_and_there_are_no_others() {
        let folder = PathBuf::from(FOLDER);
        let names = of_file_systems().map(|(name, _)| name).chain(OF_VFS.map(|(name, _)| name));
        let mut count = 0;
        for name in names {
            assert!(!read_from(std::slice::from_ref(&folder), name).unwrap().is_empty(), "{name}");
            count += 1;
        }
        assert_eq!(std::fs::read_dir(folder).unwrap().count(), count);
    }

    #[test]
    fn recordings_of_file_systems_are_of_what_their_names_say() {
        for (name, head) in of_file_systems() {
            assert_eq!(Recording::new(&read(name).unwrap()).unwrap().head(), &head, "{name}");
        }
    }

    #[test]
    fn phases_of_recordings_are_those_of_their_loads() {
        for (name, head) in of_file_systems().filter(|(_, head)| JournalMode::of_load(&head.load).is_none()) {
            let bytes = read(name).unwrap();
            let mut recording = Recording::new(&bytes).unwrap();
            let mut phases = Vec::new();
            while let Some(recorded) = recording.read_next().unwrap() {
                phases.extend(if let Recorded::Phase { bytes } = recorded { Some(bytes) } else { None });
            }
            let load = head.load.parse().unwrap();
            assert_eq!(phases, crate::file_load::phase_bytes(load, head.data_bytes, head.seed), "{name}");
        }
    }

    #[test]
    fn a_missing_recording_is_an_error_with_its_fix() {
        let error = read_from(&[PathBuf::from("/nowhere")], "ext4-oltp-85").unwrap_err().to_string();
        assert!(error.contains("/nowhere/ext4-oltp-85.trace") && error.contains(VARIABLE), "{error}");
    }
}
