//! OpenFTL's stores of pages for an unmodified SQLite: a library that SQLite loads, with a VFS `openftl` in it.
//!
//! ```text
//!   SQLite  ──▶  VFS (vfs, file)  ──▶  volume: databases and journals of a store  ──▶  store of pages
//!                                          │
//!                                          └── registry: each store once in a process
//! ```
//!
//! | file | noun |
//! |---|---|
//! | `ffi` | SQLite's C interface |
//! | `vfs` | the VFS, and how SQLite loads it |
//! | `file` | open files, as SQLite calls them |
//! | `registry` | the stores that this process has open, and what paths lead to |
//! | `volume` | all files of a store |
//! | `database` | a database or a log, with the transaction under way |
//! | `held` | the locks of connections of this process |
//! | `locks` | the same of a connection, on the host, against other processes |
//! | `shared_memory` | what connections in WAL mode share |
//! | `store` | the session on the store of pages |
//! | [`opened`] | the store itself, of this process or of another |
//! | `format` | what databases are in a store |
//! | `scratch` | files that end with the process |
//! | `trouble` | why a call fails |
//!
//! A panic never reaches SQLite: it is an `SQLITE_IOERR`, with its message in the log of SQLite.

#![deny(clippy::print_stdout, clippy::print_stderr)]

mod database;
mod ffi;
mod file;
mod format;
mod held;
mod locks;
pub mod opened;
mod registry;
mod scratch;
mod shared_memory;
mod store;
mod trouble;
mod vfs;
mod volume;

pub use registry::{Provider, Registry};
pub use trouble::Trouble;
pub use vfs::{register, sqlite3_extension_init};
