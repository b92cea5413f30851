//! A file of an ALFS that somebody uses, or that is a table and not whole yet.

use openftl_alfs::{Attributes, Inode};
use openftl_files::FileKind;
use openftl_files::names::Named;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Permissions of a table: it is written once, so nobody may write to it. That makes it one, wherever it came from.
pub(super) const TABLE_MODE: u16 = 0o444;
/// Of a log file.
pub(super) const LOG_MODE: u16 = 0o644;
/// Of a folder.
pub(super) const FOLDER_MODE: u16 = 0o755;

/// Any of these permissions makes a file one that can be written to.
const WRITE_BITS: u16 = 0o222;

/// Where the file is found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Place {
    /// In the file system, or nowhere any more.
    Tree,
    /// It is a table that is being written, in the folder of those.
    Unfinished {
        /// What it is called there.
        number: u64,
        /// What it will be called.
        path: String,
    },
    /// It was such a table, and was deleted.
    Gone,
}

/// See the module.
pub(super) struct Node {
    pub(super) inode: Inode,
    pub(super) kind: FileKind,
    generation: u32,
    bytes: AtomicU64,
    modified: AtomicU64,
    /// Readers and writers. Changes while the tree is locked.
    pub(super) users: AtomicU32,
    place: Mutex<Place>,
}

impl Node {
    pub(super) fn new(found: &Attributes, place: Place) -> Node {
        Node {
            inode: found.inode,
            kind: kind_of(found),
            generation: found.generation,
            bytes: AtomicU64::new(found.size),
            modified: AtomicU64::new(seconds(found)),
            users: AtomicU32::new(0),
            place: Mutex::new(place),
        }
    }

    /// Differs from that of every other file of the drive, also of one that had its inode number before.
    pub(super) fn id(&self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.inode.0)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Acquire)
    }

    /// So long is it now, since a moment ago.
    pub(super) fn written(&self, bytes: u64, now_s: u64) {
        self.bytes.store(bytes, Ordering::Release);
        self.modified.store(now_s, Ordering::Relaxed);
    }

    pub(super) fn attributes(&self) -> openftl_files::Attributes {
        openftl_files::Attributes {
            kind: self.kind,
            bytes: self.bytes(),
            modified: self.modified.load(Ordering::Relaxed),
        }
    }

    pub(super) fn place(&self) -> MutexGuard<'_, Place> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Named for Node {
    fn kind(&self) -> FileKind {
        self.kind
    }
}

/// What a file is to those who use it through this crate.
pub(super) fn kind_of(found: &Attributes) -> FileKind {
    match found.kind {
        openftl_alfs::FileKind::Directory => FileKind::Folder,
        openftl_alfs::FileKind::Regular if found.mode & WRITE_BITS == 0 => FileKind::Table,
        _ => FileKind::Log,
    }
}

fn seconds(found: &Attributes) -> u64 {
    u64::try_from(found.modified.seconds).unwrap_or(0)
}

pub(super) fn attributes_of(found: &Attributes) -> openftl_files::Attributes {
    let kind = kind_of(found);
    // Of a folder the size is that of its blocks, which says nothing here.
    let bytes = if kind == FileKind::Folder { 0 } else { found.size };
    openftl_files::Attributes { kind, bytes, modified: seconds(found) }
}
