//! The drive: its names, and what can be done with them.

mod shared_state;
mod statistics;

pub(crate) use shared_state::{Shared, TableOwned, TableOwner};
pub use statistics::{Counts, FileStatistics, NameCounts, NameStatistics, TableFigures};

use crate::log_area::LogArea;
use crate::names::{Contents, Names, Node};
use crate::note::{LogExtent, Note};
use crate::reader::FileReader;
use crate::writer::FileWriter;
use crate::{FileError, FileKind, path};
use openftl_core::{BLOCK_BYTES, Clock, Time};
use openftl_dispatch::{Bell, Dispatcher, Pace, PaceClock};
use openftl_media::Media;
use openftl_parts::{Access, Config};
use openftl_tables::{Ftl, TableFtl, TablePlacement};
use shared_state::Area;
use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

/// What a file or folder is like.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Attributes {
    /// What it is.
    pub kind: FileKind,
    /// Its size.
    pub bytes: u64,
    /// When it was last written, in seconds since 1970.
    pub modified: u64,
}

/// What is called with the drive after each poll.
pub type Watch<M> = openftl_dispatch::Watch<TableFtl<M>>;

/// The files of a drive.
pub struct Files<M: Media> {
    pub(crate) shared: Arc<Shared<M>>,
}

impl<M: Media> Clone for Files<M> {
    fn clone(&self) -> Files<M> {
        Files { shared: Arc::clone(&self.shared) }
    }
}

/// Seconds since 1970.
pub fn now_s() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// The note of a file of this name; of a log file as far as it was written.
pub(crate) fn note_of_written(node: &Node, path: &str, contents: &Contents, named: u64) -> Note {
    let mut note = note_of(node, path, &contents.extents, named);
    if node.kind == FileKind::Log {
        // What is gathered and in no block yet does not count, unless it was in one before.
        let has: u64 = contents.extents.iter().map(|extent| u64::from(extent.blocks)).sum();
        let gathered = if contents.has_changed { contents.tail.len() as u64 } else { 0 };
        note.bytes = (note.bytes - gathered).max(contents.noted_bytes).min(has * BLOCK_BYTES as u64);
    }
    note
}

/// The note of a file of this name, all of which was written.
pub(crate) fn note_of(node: &Node, path: &str, extents: &[LogExtent], named: u64) -> Note {
    Note {
        path: path.to_owned(),
        kind: node.kind,
        bytes: node.bytes(),
        modified: node.modified.load(Ordering::Relaxed),
        named,
        extents: extents.to_vec(),
    }
}

impl<M: Media> Files<M> {
    /// Makes a new drive. What was on the device is lost. The capacity of `config` is the log area.
    ///
    /// # Errors
    /// If it does not fit the device, or the device fails.
    pub fn format(media: M, config: Config, placement: TablePlacement, pace: Pace) -> Result<Files<M>, FileError> {
        let mut clock = PaceClock { pace, now: Time::ZERO };
        let mut drive = TableFtl::format(media, config, (), &mut clock)?;
        drive.place_tables(placement);
        let blocks = drive.log_blocks() as u32;
        Ok(Files::new(drive, clock, Names::new(), LogArea::new(blocks)))
    }

    /// Opens a drive that was made before, whatever happened to it since.
    ///
    /// # Errors
    /// If it is no table drive, or cannot be trusted.
    pub fn open(
        media: M,
        config: Config,
        placement: TablePlacement,
        access: Access,
        pace: Pace,
    ) -> Result<Files<M>, FileError> {
        let mut clock = PaceClock { pace, now: Time::ZERO };
        let mut drive = TableFtl::open_with(media, config, (), access, &mut clock)?;
        drive.place_tables(placement);
        let (mut names, mut area) = (Names::new(), LogArea::new(drive.log_blocks() as u32));
        let mut notes: Vec<(Note, Arc<Node>)> = Vec::new();
        for entry in drive.take_found() {
            let number = entry.number;
            let wrong = |reason: String| FileError::Corruption(format!("entry {number} of the catalog: {reason}"));
            let note = Note::decode(&entry.note).map_err(|error| wrong(error.to_string()))?;
            let blocks = match (note.kind, entry.table) {
                (FileKind::Table, Some((_, blocks))) => u64::from(blocks),
                (FileKind::Table, None) => return Err(wrong(format!("{} is a table without one", note.path))),
                (FileKind::Log, _) => note.extents.iter().map(|extent| u64::from(extent.blocks)).sum(),
                (FileKind::Folder, _) => 0,
            };
            if note.bytes.div_ceil(BLOCK_BYTES as u64) > blocks {
                return Err(wrong(format!("{} has {} bytes, and only {blocks} blocks", note.path, note.bytes)));
            }
            for extent in &note.extents {
                if !area.adopt(*extent) {
                    return Err(wrong(format!("{extent:?} of {} is of another file, or of none", note.path)));
                }
            }
            let node = Node::new(number, note.kind, note.modified);
            node.set_bytes(note.bytes);
            if let Some((table, _)) = entry.table {
                node.table.set(table).expect("a new node has no table");
            }
            {
                let mut contents = node.contents();
                contents.extents.clone_from(&note.extents);
                contents.path.clone_from(&note.path);
                contents.is_noted = true;
                contents.noted_bytes = note.bytes;
            }
            names.resume(note.named);
            notes.push((note, node));
        }
        // Of two files of one name the later one has replaced the other, whose entry was not gone yet.
        notes.sort_by_key(|(note, _)| note.named);
        let replaced: Vec<Arc<Node>> =
            notes.into_iter().filter_map(|(note, node)| names.insert(&note.path, node)).collect();
        let files = Files::new(drive, clock, names, area);
        if access != Access::Inspect {
            for node in replaced {
                files.shared.forget(&node)?;
            }
        }
        Ok(files)
    }

    fn new(drive: TableFtl<M>, clock: PaceClock, names: Names<Node>, free: LogArea) -> Files<M> {
        let table_bytes_max = drive.table_space().1 * BLOCK_BYTES as u64;
        let area = Area { free, leaving: VecDeque::new(), left: 0, taken: 0, freed: 0 };
        Files {
            shared: Arc::new(Shared {
                dispatcher: Dispatcher::new(drive, clock),
                names: Mutex::new(names),
                area: Mutex::new(area),
                counts: Counts::default(),
                table_bytes_max,
            }),
        }
    }

    /// Stops cleanly: everything is durable. `None` if somebody still uses the drive or a file of it.
    ///
    /// # Errors
    /// If the device fails.
    pub fn close(self) -> Result<Option<M>, FileError> {
        let Ok(shared) = Arc::try_unwrap(self.shared) else { return Ok(None) };
        let (drive, mut clock) = shared.dispatcher.into_drive();
        let _ = clock.now();
        Ok(Some(drive.close(&mut clock)?))
    }

    /// Gives the device back as it is: what a crash leaves behind. `None` if somebody still uses the drive.
    #[must_use]
    pub fn crash(self) -> Option<M> {
        let shared = Arc::try_unwrap(self.shared).ok()?;
        Some(shared.dispatcher.into_drive().0.crash())
    }

    /// Has the drive polled soon, for a device that does something before it is due.
    #[must_use]
    pub fn bell(&self) -> Bell {
        self.shared.dispatcher.bell().clone()
    }

    /// How time passes for it.
    #[must_use]
    pub fn pace(&self) -> Pace {
        self.shared.dispatcher.pace()
    }

    /// Stops the drive at once with `last`, as a power cut does: whoever uses a file gets errors from now on, also who waits.
    pub fn stop<T>(&self, last: impl FnOnce(&mut TableFtl<M>, Time) -> T) -> T {
        self.shared.dispatcher.stop(last)
    }

    /// Calls `with` on the drive below, for those who ask it what it did.
    pub fn with_drive<T>(&self, with: impl FnOnce(&mut TableFtl<M>) -> T) -> T {
        with(&mut self.shared.dispatcher.look().drive)
    }

    /// Has `watch` called with the drive after each poll: for those who test what a database bears.
    pub fn watch(&self, watch: Watch<M>) {
        self.shared.dispatcher.look().watch = Some(watch);
    }

    /// Bytes that tables can still take, and that they could if there were none.
    #[must_use]
    pub fn space(&self) -> (u64, u64) {
        let (left, all) = self.shared.dispatcher.look().drive.table_space();
        (left * BLOCK_BYTES as u64, all * BLOCK_BYTES as u64)
    }

    /// What the drive did since it was opened.
    #[must_use]
    pub fn statistics(&self) -> FileStatistics {
        let owner = self.shared.dispatcher.look();
        let (block, tables) = owner.drive.statistics();
        let figures = TableFigures { tables: *tables, waits: owner.drive.waits() };
        FileStatistics::of(&self.shared.counts, block, owner.drive.block().media().pu_busy(), figures)
    }

    /// Makes a file, in place of one of that name if there is one.
    ///
    /// # Errors
    /// If its folder is not there, or it is a folder.
    pub fn create(&self, path: &str, kind: FileKind) -> Result<FileWriter<M>, FileError> {
        let path = path::normal(path)?;
        let shared = &self.shared;
        let mut names = shared.names();
        names.expect_folder_of(&path)?;
        let older = match names.file(&path) {
            Ok(older) => Some(Arc::clone(older)),
            Err(FileError::NotFound(_)) => None,
            Err(error) => return Err(error),
        };
        // The number of a table is given when its place is.
        let number = if kind == FileKind::Log { shared.dispatcher.own()?.drive.new_number() } else { 0 };
        let node = Node::new(number, kind, now_s());
        node.contents().path.clone_from(&path);
        if kind == FileKind::Log {
            let named = names.next_change();
            shared.put(&node, &note_of(&node, &path, &[], named)).map_err(|error| error.of(&path))?;
            node.contents().is_noted = true;
        }
        names.insert(&path, Arc::clone(&node));
        if let Some(older) = older {
            shared.forget(&older)?;
        }
        drop(names);
        Ok(FileWriter::new(Arc::clone(shared), node, path))
    }

    /// Goes on at the end of a log file, or makes it.
    ///
    /// # Errors
    /// If it is a table or a folder.
    pub fn append_to(&self, path: &str) -> Result<FileWriter<M>, FileError> {
        let path = path::normal(path)?;
        let node = match self.shared.names().file(&path) {
            Ok(node) => Some(Arc::clone(node)),
            Err(FileError::NotFound(_)) => None,
            Err(error) => return Err(error),
        };
        match node {
            None => self.create(&path, FileKind::Log),
            Some(node) if node.kind == FileKind::Log => {
                self.load_tail(&node)?;
                Ok(FileWriter::new(Arc::clone(&self.shared), node, path))
            }
            Some(_) => Err(FileError::NotSupported(format!(
                "{path} is a table: it is written once, and cannot be appended to"
            ))),
        }
    }

    /// Opens a file for reading. It can be read until the reader is dropped, also when it has been deleted or replaced.
    ///
    /// # Errors
    /// If it is not there, or a folder.
    pub fn open_read(&self, path: &str) -> Result<FileReader<M>, FileError> {
        let path = path::normal(path)?;
        let names = self.shared.names();
        let node = Arc::clone(names.file(&path)?);
        FileReader::new(Arc::clone(&self.shared), node)
    }

    /// What a file or folder is like.
    ///
    /// # Errors
    /// If it is not there.
    pub fn attributes(&self, path: &str) -> Result<Attributes, FileError> {
        let path = path::normal(path)?;
        if path == "/" {
            return Ok(Attributes { kind: FileKind::Folder, bytes: 0, modified: 0 });
        }
        Ok(attributes(self.shared.names().get(&path)?))
    }

    /// What is in a folder, in the order of the names.
    ///
    /// # Errors
    /// If it is not there, or a file.
    pub fn list(&self, folder: &str) -> Result<Vec<(String, Attributes)>, FileError> {
        let folder = path::normal(folder)?;
        let names = self.shared.names();
        names.expect_folder(&folder)?;
        Ok(names.in_folder(&folder).map(|(name, node)| (name.to_owned(), attributes(node))).collect())
    }

    /// Deletes a file.
    ///
    /// # Errors
    /// If it is not there, or a folder.
    pub fn delete(&self, path: &str) -> Result<(), FileError> {
        let path = path::normal(path)?;
        let mut names = self.shared.names();
        let node = Arc::clone(names.file(&path)?);
        self.shared.forget(&node).map_err(|error| error.of(&path))?;
        names.remove(&path);
        Ok(())
    }

    /// Gives a file another name. One that has it is replaced, all at once.
    ///
    /// # Errors
    /// If it is not there, or either is a folder.
    pub fn rename(&self, from: &str, to: &str) -> Result<(), FileError> {
        let (from, to) = (path::normal(from)?, path::normal(to)?);
        let mut names = self.shared.names();
        let node = Arc::clone(names.file(&from)?);
        names.expect_folder_of(&to)?;
        match names.file(&to) {
            Err(FileError::NotFound(_)) => {}
            Err(error) => return Err(error),
            Ok(_) if from == to => return Ok(()),
            Ok(_) => {}
        }
        let named = names.next_change();
        {
            let mut contents = node.contents();
            if contents.is_noted {
                let note = note_of_written(&node, &to, &contents, named);
                self.shared.put(&node, &note).map_err(|error| error.of(&to))?;
                contents.noted_bytes = note.bytes;
            }
            contents.path.clone_from(&to);
        }
        names.remove(&from);
        match names.insert(&to, node) {
            Some(replaced) => self.shared.forget(&replaced),
            None => Ok(()),
        }
    }

    /// Makes a folder.
    ///
    /// # Errors
    /// If it is there, or the one above it is not.
    pub fn make_folder(&self, path: &str) -> Result<(), FileError> {
        let path = path::normal(path)?;
        let mut names = self.shared.names();
        if path == "/" || names.get(&path).is_ok() {
            return Err(FileError::Exists(path));
        }
        names.expect_folder_of(&path)?;
        let number = self.shared.dispatcher.own()?.drive.new_number();
        let node = Node::new(number, FileKind::Folder, now_s());
        let named = names.next_change();
        self.shared.put(&node, &note_of(&node, &path, &[], named)).map_err(|error| error.of(&path))?;
        node.contents().is_noted = true;
        names.insert(&path, node);
        Ok(())
    }

    /// Deletes a folder.
    ///
    /// # Errors
    /// If it is not there, is a file, or not empty.
    pub fn delete_folder(&self, path: &str) -> Result<(), FileError> {
        let path = path::normal(path)?;
        let mut names = self.shared.names();
        names.expect_folder(&path)?;
        if path == "/" {
            return Err(FileError::Invalid("/ cannot be deleted".to_owned()));
        }
        if names.in_folder(&path).next().is_some() {
            return Err(FileError::Busy(format!("{path} is not empty")));
        }
        let node = Arc::clone(names.get(&path)?);
        self.shared.forget(&node)?;
        names.remove(&path);
        Ok(())
    }

    /// Every change of names before this is durable.
    ///
    /// # Errors
    /// If the folder is not there, or the drive fails.
    pub fn sync_names(&self, folder: &str) -> Result<(), FileError> {
        let folder = path::normal(folder)?;
        self.shared.names().expect_folder(&folder)?;
        Counts::add(&self.shared.counts.syncs, 1);
        self.shared.flush()
    }

    /// What had been appended when any sync began is durable: the second half of [`FileWriter::begin_sync`].
    pub(crate) fn finish_sync(&self) -> Result<(), FileError> {
        self.shared.flush()
    }

    /// Locks a name, whether or not it is a file.
    ///
    /// # Errors
    /// If it is locked.
    pub fn lock(&self, path: &str) -> Result<(), FileError> {
        let path = path::normal(path)?;
        if self.shared.names().lock(&path) {
            return Ok(());
        }
        Err(FileError::Busy(format!("{path} is locked already")))
    }

    /// Unlocks a name.
    ///
    /// # Errors
    /// If it is not locked.
    pub fn unlock(&self, path: &str) -> Result<(), FileError> {
        let path = path::normal(path)?;
        if self.shared.names().unlock(&path) {
            return Ok(());
        }
        Err(FileError::Invalid(format!("{path} is not locked")))
    }

    /// Loads the last block of a log file that is not whole, so that it can be gone on with.
    fn load_tail(&self, node: &Arc<Node>) -> Result<(), FileError> {
        let within = (node.bytes() % BLOCK_BYTES as u64) as usize;
        let is_loaded = within == 0 || node.kind != FileKind::Log || !node.contents().tail.is_empty();
        if is_loaded {
            return Ok(());
        }
        let mut tail = vec![0; within];
        let reader = FileReader::new(Arc::clone(&self.shared), Arc::clone(node))?;
        reader.read(node.bytes() - within as u64, &mut tail)?;
        node.contents().tail = tail;
        Ok(())
    }
}

fn attributes(node: &Node) -> Attributes {
    Attributes { kind: node.kind, bytes: node.bytes(), modified: node.modified.load(Ordering::Relaxed) }
}
