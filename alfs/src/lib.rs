//! ALFS: a log-structured file system that manages its own flash (Application-Managed Flash).
//!
//! The drive below has append-only segments and collects nothing ([`openftl_parts::target::SegmentTarget`]); the file system writes logs, knows what of
//! them is of use, and cleans. So each byte is moved by one of the two only.
//!
//! ```text
//!   segment 0, 1   [ records                                   ]  anchors: what the volume is, one record after the other
//!   segment 2 …    [ nodes of folders ][ nodes of files ][ map of nodes ][ names ][ contents ][ moved contents ]   six logs
//!
//!   name ──▶ node number ──▶ map of nodes ──▶ node: attributes, addresses ──▶ contents
//! ```
//!
//! A block that changes is written at the end of a log; its node names the new address, and the map of nodes the node's. Nothing else changes, because
//! everything else knows a node by its number. Of a node that has changed little a sync writes the changed bytes alone, together with those of other
//! nodes ([`patch`], `patches`).
//!
//! # What a power cut leaves
//! **The volume as it was at one moment**, which is not before the last sync that ended. All names, contents and attributes are of that moment: no file
//! is there in part, no rename half done, and nothing depends on the order in which the drive wrote. A sync writes what is dirty and a record of what has
//! changed, and then flushes once ([`record`] says when a record counts). A sync of one file is one of the whole volume; all that ask for one while
//! another is under way share the next.
//!
//! # How an operation happens
//! It loads what it needs, waiting as often as necessary, and then changes everything at once in memory, and appends whole blocks to logs. It is never
//! seen half done, by another operation or by a record. See [`volume`].
//!
//! | file | noun |
//! |---|---|
//! | [`operation`] | what a host may ask |
//! | [`volume`] | a mounted volume |
//! | `polling` | its turns |
//! | [`mounting`] | a volume is made, and found again |
//! | `chain` | the records of an anchor, and which of them counts |
//! | [`rebuilding`] | a volume whose records are lost is made anew |
//! | `requests` | requests to a drive that no volume has |
//! | `scanning` | the newest block of each node in the logs |
//! | `survivors` | the files of such a volume that stay |
//! | [`block`] | a block of metadata |
//! | [`inode`] | the node of a file |
//! | [`tree`] | where the blocks of a file are |
//! | [`names`] | names in a block |
//! | [`directory`] | a folder |
//! | `namespace` | names come, go and move |
//! | `loading` | blocks come to memory |
//! | `appending` | blocks go to logs |
//! | `reading`, `writing` | contents of files |
//! | `xattrs` | extended attributes |
//! | [`node_map`] | where nodes are |
//! | [`segments`] | segments, logs and summaries |
//! | [`cache`] | what is in memory |
//! | [`record`] | a record |
//! | [`patch`] | how a node differs from its block |
//! | `patches` | all such nodes |
//! | `syncing` | everything becomes durable |
//! | `cleaning` | segments are emptied |
//! | `checking` | a volume is verified |
//! | `reaping` | what was deleted is freed |
//! | `rescuing` | segments fail while they are written |

#![deny(clippy::print_stdout, clippy::print_stderr)]
#![forbid(unsafe_code)]

mod appending;
pub mod block;
pub mod cache;
mod chain;
mod checking;
mod cleaning;
pub mod directory;
pub mod inode;
mod loading;
pub mod mounting;
pub mod names;
mod namespace;
pub mod node_map;
pub mod operation;
pub mod patch;
mod patches;
mod polling;
mod reading;
mod reaping;
pub mod rebuilding;
pub mod record;
mod requests;
mod rescuing;
mod scanning;
pub mod segments;
mod survivors;
mod syncing;
pub mod tree;
pub mod volume;
mod writing;
mod xattrs;

pub use checking::CheckReport;
pub use mounting::MountError;
pub use operation::{
    AllocateHow, Attributes, Changes, Data, Entry, FileKind, FileSystem, FileTime, Inode, NewFile, Operation, Refusal,
    RenameHow, Reply, Room, SeekFor, Ticket, XattrHow,
};
pub use rebuilding::RebuildReport;
pub use volume::{Options, Statistics, Volume};
