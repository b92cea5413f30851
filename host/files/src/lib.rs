//! Files on a table drive, for a database that is an LSM-tree: what RocksDB calls a file system. [`zoned`] has the same files on zones;
//! those of a file system on segments are in `host/volumes`, and with them the drive that has files, whichever.
//!
//! ```text
//!   /db/000123.sst ──▶ a table of the drive: written once, there as a whole or not at all
//!   /db/000124.log ──▶ extents of its log area: appended to, synced, read back
//!   /db            ──▶ a folder
//! ```
//!
//! Every file and folder is an entry of the drive's catalog, and what is written there of it is its [`note`]. All names are in memory while
//! the drive is open. Any number of threads use a drive at a time ([`openftl_dispatch`]).
//!
//! # What is durable when
//! - [`FileWriter::sync`]: the file, and its name.
//! - [`Files::sync_names`]: every change of names before it, and with them tables that have been closed.
//! - Everything else survives a power cut, or the death of the process that has the drive, as a prefix of what was done: names, tables and
//!   what was written to log files are in one order, that of the transactions of the drive.
//! - A table that was not closed leaves nothing. A log file ends where it ended when it was last synced, or some time later.
//!
//! | file | noun |
//! |---|---|
//! | [`path`] | paths |
//! | [`note`] | what is on media of a file |
//! | [`log_area`] | which blocks of the log area are free |
//! | [`names`] | which files there are |
//! | `writer`, `table_file`, `log_file` | files being written |
//! | `reader` | files being read |
//! | `pieces` | parts of a read, between a buffer and frames |
//! | [`zoned`] | files on zones: the same functions over another FTL |
//! | [`files`], with `shared_state` and `statistics` | the drive, what its users share, and what is counted |
//! | [`error`] | what can go wrong |
//! | [`wire`] | what a process says to the one that has the drive open |
//! | [`stream`] | the socket between them |
//! | [`server`] | many clients, one drive |
//! | [`client`], with `link`, `session`, `writer` and `reader` | the other end |

#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod client;
pub mod error;
pub mod files;
pub mod log_area;
mod log_file;
pub mod names;
pub mod note;
pub mod path;
mod pieces;
mod reader;
pub mod server;
pub mod stream;
mod table_file;
pub mod wire;
mod writer;
pub mod zoned;

pub use client::Client;
pub use error::FileError;
pub use files::{Attributes, Counts, FileStatistics, Files, NameCounts, NameStatistics, TableFigures, Watch, now_s};
pub use openftl_dispatch::{Bell, Pace, PaceClock};
pub use reader::{FileReader, ReadRequest};
pub use server::FileServer;
pub use stream::Stream;
pub use table_file::is_whole;
pub use writer::{FileWriter, PendingSync, REWRITE_BYTES_MAX, expect_end};
pub use zoned::{ZoneFileStatistics, ZoneFiles, ZoneReader, ZoneSync, ZoneWriter};

/// What a file is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, serde::Serialize, serde::Deserialize)]
#[repr(u8)]
pub enum FileKind {
    /// A table of the drive.
    Table = 0,
    /// In the log area.
    Log = 1,
    /// No file, but a place for files.
    Folder = 2,
}

impl FileKind {
    /// The kind that has this number.
    #[must_use]
    pub fn from_byte(byte: u8) -> Option<FileKind> {
        [FileKind::Table, FileKind::Log, FileKind::Folder].into_iter().find(|kind| *kind as u8 == byte)
    }
}
