//! ALFS: a log-structured file system that manages its own flash.
//!
//! | file | noun |
//! |---|---|
//! | [`operation`] | what a host may ask |

#![deny(clippy::print_stdout, clippy::print_stderr)]
#![forbid(unsafe_code)]

pub mod operation;

pub use operation::{
    AllocateHow, Attributes, Changes, Data, Entry, FileKind, FileSystem, FileTime, Inode, NewFile, Operation, Refusal,
    RenameHow, Reply, Room, SeekFor, Ticket, XattrHow,
};
