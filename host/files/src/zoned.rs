//! Files on zones, for a database that is an LSM-tree: the functions of [`Files`](crate::Files), over zones instead of tables.
//!
//! ```text
//!   /db/000123.sst ──▶ extents in zones, of whole blocks; files of like lifetimes share zones
//!   /db/000124.log ──▶ the same; a last block that is not whole is in the catalog
//!                            │
//!   zones 0 and 1  [ catalog: what there is, then each change of it ]      one of them counts, the other is its successor
//!   zones 2 …      [ extents ][ extents ▒ dead ▒ ][ empty ] …
//! ```
//!
//! Here is what an FTL for tables does below the host, done above zones: the drive moves nothing, and its zones are written once for each
//! block of a file. A table and a log file differ in what their users may do with them, and in how they end: a table ends in a block of
//! its own, a log file in its [record], so that a sync of a few bytes writes nothing but that: one block or two, and more if the file is long
//! and lies in many extents, because a record names all of them.
//!
//! # Where files go
//! A zone that is being written belongs to a lifetime, that which RocksDB says of a file ([`TableLifetime`]); one file that is being written has
//! it for itself where zones are left that may be active ([`allocation`]). A zone of which nothing is used any more is reset. When no zone
//! is empty, the used blocks of the zone that has fewest of them move to others ([`cleaning`]), so that the room of a deleted file
//! comes back whatever shares its zones.
//!
//! # What is durable when
//! The catalog is written in [batches](record): what changed since the last one, in the order of the changes. A *sync*
//! 1. flushes the drive, if files were written. *Power cut: the catalog is as it was, and the blocks that it does not name are dead.*
//! 2. appends a batch. *All of it or nothing of it: a batch that is cut off is not read.*
//! 3. flushes the drive. *All of it.*
//! 4. forgets what the batch has deleted, and resets zones of which nothing is used. *They are reset when the drive is opened.*
//!
//! So what is found after a power cut is a prefix of all changes, no earlier than the last sync. Syncs of several threads share a batch.
//! A batch that finds no room goes to the other zone of the catalog, behind all that there is. *Power cut: the zone with the
//! higher generation counts if its first batch is whole, and otherwise the older one, which is reset only after a flush.*
//!
//! Where the zone that counts is read-only or offline, because its medium has failed, the catalog begins anew in the other one. If the
//! other one is so, syncs go on until the zone that counts is full, and then say that the drive is read-only for them: what was synced until
//! then stays, and can be read.
//!
//! A catalog that would outgrow a zone refuses the sync. Its changes wait, and are written by a sync after files were deleted.
//!
//! Changes that nobody syncs stay in memory, of each file the last one, until they are of [`QUEUE_CHANGES_MAX`] files; they are lost with the
//! process.
//!
//! | file | noun |
//! |---|---|
//! | [`record`] | what is on media beside the blocks of files |
//! | [`catalog`] | what is in the catalog, and where it goes on |
//! | [`allocation`] | which zone takes what comes next |
//! | `node` | a file or folder |
//! | `shared` | the drive, and what its users share |
//! | `cleaning` | used blocks on their way out of a zone |
//! | `found` | what is found when a drive is opened |
//! | `writer`, `reader` | files being written, and read |

pub mod allocation;
pub mod catalog;
pub mod cleaning;
mod found;
mod node;
mod reader;
pub mod record;
mod shared;
mod writer;

pub use reader::ZoneReader;
pub use shared::{QUEUE_CHANGES_MAX, ZoneFileStatistics};
pub use writer::{ZoneSync, ZoneWriter};

use crate::files::{Counts, now_s};
use crate::names::Names;
use crate::{Attributes, FileError, FileKind, path};
use node::Node;
use openftl_core::{BLOCK_BYTES, Clock, Time};
use openftl_dispatch::{Bell, Pace, PaceClock, Watch};
use openftl_media::Media;
use openftl_parts::{Access, Config};
use openftl_zones::{AskedLimits, Ftl, ZoneConfig, ZoneFtl};
use shared::Shared;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};

#[cfg(doc)]
use openftl_tables::TableLifetime;

/// The files of a zoned drive.
pub struct ZoneFiles<M: Media> {
    shared: Arc<Shared<M>>,
}

impl<M: Media> Clone for ZoneFiles<M> {
    fn clone(&self) -> ZoneFiles<M> {
        ZoneFiles { shared: Arc::clone(&self.shared) }
    }
}

impl<M: Media> ZoneFiles<M> {
    /// Makes a new drive. What was on the device is lost.
    ///
    /// # Errors
    /// If it does not fit the device, has too few zones for files, or the device fails.
    pub fn format(media: M, config: Config, zones: ZoneConfig, pace: Pace) -> Result<ZoneFiles<M>, FileError> {
        let mut clock = PaceClock { pace, now: Time::ZERO };
        let drive = ZoneFtl::format(media, config, zones, &mut clock)?;
        found::adopt(drive, clock, Access::ReadWrite)
    }

    /// Opens a drive whose zones hold files, or nothing yet.
    ///
    /// # Errors
    /// If it has no zones, they hold something else, or it cannot be trusted.
    pub fn open(media: M, config: Config, access: Access, pace: Pace) -> Result<ZoneFiles<M>, FileError> {
        let mut clock = PaceClock { pace, now: Time::ZERO };
        let drive = ZoneFtl::open_with(media, config, AskedLimits::default(), access, &mut clock)?;
        found::adopt(drive, clock, access)
    }

    /// Takes over a drive whose zones hold files, or nothing yet.
    ///
    /// # Errors
    /// If they hold something else, or cannot be trusted.
    pub fn adopt(drive: ZoneFtl<M>, clock: PaceClock, access: Access) -> Result<ZoneFiles<M>, FileError> {
        found::adopt(drive, clock, access)
    }

    /// Stops cleanly: everything is durable. `None` if somebody still uses the drive or a file of it.
    ///
    /// # Errors
    /// If the device fails.
    pub fn close(self) -> Result<Option<M>, FileError> {
        let Ok(shared) = Arc::try_unwrap(self.shared) else { return Ok(None) };
        // The drive is closed whatever became of this. Who looks only has changed nothing.
        let synced = shared.sync();
        let (drive, mut clock) = shared.dispatcher.into_drive();
        let _ = clock.now();
        let media = drive.close(&mut clock)?;
        synced.map(|()| Some(media))
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
    pub fn stop<T>(&self, last: impl FnOnce(&mut ZoneFtl<M>, Time) -> T) -> T {
        self.shared.dispatcher.stop(last)
    }

    /// Calls `with` on the drive below, for those who ask it what it did.
    pub fn with_drive<T>(&self, with: impl FnOnce(&mut ZoneFtl<M>) -> T) -> T {
        with(&mut self.shared.dispatcher.look().drive)
    }

    /// Has `watch` called with the drive after each poll: for those who test what a database bears.
    pub fn watch(&self, watch: Watch<ZoneFtl<M>>) {
        self.shared.dispatcher.look().watch = Some(watch);
    }

    /// Bytes that files can still take, and that they could if there were none.
    #[must_use]
    pub fn space(&self) -> (u64, u64) {
        let (left, all) = self.shared.space_blocks();
        (left * BLOCK_BYTES as u64, all * BLOCK_BYTES as u64)
    }

    /// What the drive did since it was opened.
    #[must_use]
    pub fn statistics(&self) -> ZoneFileStatistics {
        self.shared.statistics()
    }

    /// Makes a file, in place of one of that name if there is one.
    ///
    /// # Errors
    /// If its folder is not there, it is a folder, or the catalog is full.
    pub fn create(&self, path: &str, kind: FileKind) -> Result<ZoneWriter<M>, FileError> {
        let path = path::normal(path)?;
        self.create_in(self.shared.names(), path, kind)
    }

    fn create_in(
        &self,
        mut names: MutexGuard<'_, Names<Node>>,
        path: String,
        kind: FileKind,
    ) -> Result<ZoneWriter<M>, FileError> {
        let shared = &self.shared;
        names.expect_folder_of(&path)?;
        let older = match names.file(&path) {
            Ok(older) => Some(Arc::clone(older)),
            Err(FileError::NotFound(_)) => None,
            Err(error) => return Err(error),
        };
        shared.expect_writable()?;
        shared.expect_room_in_catalog().map_err(|error| error.of(&path))?;
        let node = Node::new(shared.new_number(), kind, now_s(), path.clone());
        // A table is there when it is whole. Of a log file the name is, in the place of the other, all at once.
        let named = (kind == FileKind::Log).then(|| node.note(&mut node.write()));
        shared.change(named.into_iter().collect(), older.as_ref());
        names.insert(&path, Arc::clone(&node));
        drop(names);
        shared.write_if_long()?;
        Ok(ZoneWriter::new(Arc::clone(shared), node, path))
    }

    /// Goes on at the end of a log file, or makes it.
    ///
    /// # Errors
    /// If it is a table or a folder, or the drive takes no writes.
    pub fn append_to(&self, path: &str) -> Result<ZoneWriter<M>, FileError> {
        let path = path::normal(path)?;
        // Nobody deletes it before it has its writer.
        let names = self.shared.names();
        let node = match names.file(&path) {
            Ok(node) => Arc::clone(node),
            Err(FileError::NotFound(_)) => return self.create_in(names, path, FileKind::Log),
            Err(error) => return Err(error),
        };
        match node.kind {
            FileKind::Log => {
                self.shared.expect_writable()?;
                Ok(ZoneWriter::new(Arc::clone(&self.shared), node, path))
            }
            FileKind::Table | FileKind::Folder => Err(FileError::NotSupported(format!(
                "{path} is a table: it is written once, and cannot be appended to"
            ))),
        }
    }

    /// Opens a file for reading. It can be read until the reader is dropped, also when it has been deleted or replaced.
    ///
    /// # Errors
    /// If it is not there, or a folder.
    pub fn open_read(&self, path: &str) -> Result<ZoneReader<M>, FileError> {
        let path = path::normal(path)?;
        let names = self.shared.names();
        let node = Arc::clone(names.file(&path)?);
        Ok(ZoneReader::new(Arc::clone(&self.shared), node))
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
        self.shared.expect_writable()?;
        self.shared.change(Vec::new(), Some(&node));
        names.remove(&path);
        drop(names);
        self.shared.write_if_long()
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
        self.shared.expect_writable()?;
        names.remove(&from);
        let replaced = names.insert(&to, Arc::clone(&node));
        // Cleaning, which records a file as well, is kept out until this change is in its place.
        let mut contents = node.write();
        contents.path.clone_from(&to);
        let renamed = contents.is_noted.then(|| node.note_again(&contents));
        self.shared.change(renamed.into_iter().collect(), replaced.as_ref());
        drop((contents, names));
        self.shared.write_if_long()
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
        self.shared.expect_writable()?;
        self.shared.expect_room_in_catalog().map_err(|error| error.of(&path))?;
        let node = Node::new(self.shared.new_number(), FileKind::Folder, now_s(), path.clone());
        let named = node.note(&mut node.write());
        self.shared.change(vec![named], None);
        names.insert(&path, node);
        drop(names);
        self.shared.write_if_long()
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
        self.shared.expect_writable()?;
        let node = Arc::clone(names.get(&path)?);
        self.shared.change(Vec::new(), Some(&node));
        names.remove(&path);
        drop(names);
        self.shared.write_if_long()
    }

    /// Every change of names before this is durable.
    ///
    /// # Errors
    /// If the folder is not there, or the drive fails.
    pub fn sync_names(&self, folder: &str) -> Result<(), FileError> {
        let folder = path::normal(folder)?;
        self.shared.names().expect_folder(&folder)?;
        Counts::add(&self.shared.counts.syncs, 1);
        self.shared.sync()
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
}

fn attributes(node: &Node) -> Attributes {
    Attributes { kind: node.kind, bytes: node.bytes(), modified: node.modified.load(Ordering::Relaxed) }
}
