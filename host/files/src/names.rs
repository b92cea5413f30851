//! Which files there are, by their names; all in memory.

use crate::note::LogExtent;
use crate::{FileError, FileKind, path};
use openftl_tables::TableId;
use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// A file or folder, with or without a name.
pub(crate) struct Node {
    pub(crate) number: u64,
    pub(crate) kind: FileKind,
    /// Its table, once it has one.
    pub(crate) table: OnceLock<TableId>,
    /// Somebody opened the file for reading before it had one. Changes while the drive is owned, as the next does.
    pub(crate) is_awaited: AtomicBool,
    /// Its table is pinned for them.
    pub(crate) is_pinned: AtomicBool,
    pub(crate) bytes: AtomicU64,
    pub(crate) modified: AtomicU64,
    contents: Mutex<Contents>,
}

/// What changes while a file is written.
#[derive(Default)]
pub(crate) struct Contents {
    /// Of a log file: where it lies in the log area.
    pub(crate) extents: Vec<LogExtent>,
    /// Its end, from a whole block on, that is not on its way to the drive yet; a last block that is not whole stays here.
    pub(crate) tail: Vec<u8>,
    /// The name that it has, or had last.
    pub(crate) path: String,
    /// The catalog has it.
    pub(crate) is_noted: bool,
    /// Of a log file: so many of its bytes, as they are now, the catalog has.
    pub(crate) noted_bytes: u64,
    /// It has been written since.
    pub(crate) has_changed: bool,
    /// It has no name any more.
    pub(crate) is_deleted: bool,
    /// Readers and writers of it.
    pub(crate) users: u32,
}

impl Node {
    pub(crate) fn new(number: u64, kind: FileKind, modified: u64) -> Arc<Node> {
        Arc::new(Node {
            number,
            kind,
            table: OnceLock::new(),
            is_awaited: AtomicBool::new(false),
            is_pinned: AtomicBool::new(false),
            bytes: AtomicU64::new(0),
            modified: AtomicU64::new(modified),
            contents: Mutex::default(),
        })
    }

    /// Nobody holds this lock while they wait for that of the drive's names.
    pub(crate) fn contents(&self) -> MutexGuard<'_, Contents> {
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of its entry in the catalog.
    pub(crate) fn entry(&self) -> u64 {
        self.table.get().map_or(self.number, |table| table.number())
    }

    #[inline]
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Acquire)
    }

    pub(crate) fn set_bytes(&self, bytes: u64) {
        self.bytes.store(bytes, Ordering::Release);
    }
}

/// Something that a name stands for.
pub trait Named {
    /// What it is.
    fn kind(&self) -> FileKind;
}

impl Named for Node {
    fn kind(&self) -> FileKind {
        self.kind
    }
}

/// Every name of a drive, and the node that each stands for.
pub struct Names<N> {
    nodes: BTreeMap<String, Arc<N>>,
    locked: HashSet<String>,
    /// Changes of names so far.
    named: u64,
}

impl<N> Default for Names<N> {
    fn default() -> Names<N> {
        Names { nodes: BTreeMap::new(), locked: HashSet::new(), named: 0 }
    }
}

impl<N: Named> Names<N> {
    /// No names yet.
    #[must_use]
    pub fn new() -> Names<N> {
        Names::default()
    }

    /// Counts one more change of names.
    pub fn next_change(&mut self) -> u64 {
        self.named += 1;
        self.named
    }

    /// Names were changed so often before.
    pub fn resume(&mut self, named: u64) {
        self.named = self.named.max(named);
    }

    /// What has this name.
    ///
    /// # Errors
    /// If nothing has.
    pub fn get(&self, path: &str) -> Result<&Arc<N>, FileError> {
        self.nodes.get(path).ok_or_else(|| FileError::NotFound(path.to_owned()))
    }

    /// The same, if it is a file.
    ///
    /// # Errors
    /// If there is no such file.
    pub fn file(&self, path: &str) -> Result<&Arc<N>, FileError> {
        let node = self.get(path)?;
        match node.kind() {
            FileKind::Folder => Err(FileError::Invalid(format!("{path} is a folder"))),
            FileKind::Table | FileKind::Log => Ok(node),
        }
    }

    /// Whether there is such a folder.
    ///
    /// # Errors
    /// If there is none.
    pub fn expect_folder(&self, path: &str) -> Result<(), FileError> {
        match self.nodes.get(path) {
            _ if path == "/" => Ok(()),
            Some(node) if node.kind() == FileKind::Folder => Ok(()),
            Some(_) => Err(FileError::Invalid(format!("{path} is a file, and no folder"))),
            None => Err(FileError::NotFound(path.to_owned())),
        }
    }

    /// Whether the folder that `path` is to be in is there.
    ///
    /// # Errors
    /// If it is not.
    pub fn expect_folder_of(&self, path: &str) -> Result<(), FileError> {
        match path::folder(path) {
            Some(folder) => self.expect_folder(folder),
            None => Err(FileError::Invalid("/ is a folder, and no file".to_owned())),
        }
    }

    /// Gives a node this name; returns the one that had it.
    pub fn insert(&mut self, path: &str, node: Arc<N>) -> Option<Arc<N>> {
        self.nodes.insert(path.to_owned(), node)
    }

    /// Takes the name away; returns what had it.
    pub fn remove(&mut self, path: &str) -> Option<Arc<N>> {
        self.nodes.remove(path)
    }

    /// What is in a folder, by the names that it has there.
    pub fn in_folder<'a>(&'a self, folder: &str) -> impl Iterator<Item = (&'a str, &'a Arc<N>)> {
        let prefix = if folder == "/" { "/".to_owned() } else { format!("{folder}/") };
        let length = prefix.len();
        let from = self.nodes.range::<str, _>((std::ops::Bound::Excluded(prefix.as_str()), std::ops::Bound::Unbounded));
        from.take_while(move |(path, _)| path.starts_with(&prefix))
            .map(move |(path, node)| (&path[length..], node))
            .filter(|(name, _)| !name.contains('/'))
    }

    /// Everything that has a name.
    pub fn nodes(&self) -> impl Iterator<Item = &Arc<N>> {
        self.nodes.values()
    }

    /// Locks a path for somebody; false if it is locked.
    pub fn lock(&mut self, path: &str) -> bool {
        self.locked.insert(path.to_owned())
    }

    /// Unlocks it; false if it was not locked.
    pub fn unlock(&mut self, path: &str) -> bool {
        self.locked.remove(path)
    }
}

impl Names<Node> {
    /// Whether the drive has no other table.
    pub(crate) fn has_no_table_but(&self, node: &Arc<Node>) -> bool {
        self.nodes().all(|other| other.table.get().is_none() || Arc::ptr_eq(other, node))
    }
}
