//! Files of an ALFS, without a mount: the functions of [`Files`](openftl_files::Files) over a log-structured file system on segments or zones.
//!
//! ```text
//!   /db/000123.sst ──▶ /.unfinished/7 while it is written, then a file that nobody may write to (mode 0444)
//!   /db/000124.log ──▶ a file (mode 0644)
//!   /db            ──▶ a folder
//!                            │ operations (openftl_alfs::Operation), one lock, many threads (openftl_turns::Turns)
//!                            ▼
//!                      the file system ──▶ segments: the drive moves nothing
//! ```
//!
//! The file system does everything that is durable; here are paths, and the names of tables that are being written (`tree`). `openftl alfs mount` shows
//! the same files to every program, at another time: one process has the drive.
//!
//! # What is durable when
//! A sync makes everything durable that was done before, whatever it was, with one record and one flush; syncs of several threads share them. A power
//! cut leaves the drive as it was at one moment, no earlier than the last sync ([`openftl_alfs`]). A table that was not whole then is in
//! [`UNFINISHED`], and is deleted when the drive is opened for use.
//!
//! A rename is one operation, and so is the replacement of a log file by a new one. A table that is made in the place of another file
//! takes the name from it at once.
//!
//! | file | noun |
//! |---|---|
//! | `shared` | the file system behind its lock, and what its users share |
//! | `escapes` | names as text: a byte that is not part of UTF-8 is `\xFF` |
//! | `tree` | paths, and names that are not in the file system |
//! | `node` | a file that somebody uses |
//! | `writer`, `reader` | files being written, and read |

mod escapes;
mod node;
mod reader;
mod shared;
mod tree;
mod writer;

pub use reader::AlfsReader;
pub use shared::{AlfsFigures, AlfsFileStatistics};
pub use tree::UNFINISHED;
pub use writer::{AlfsSync, AlfsWriter};

use escapes::meant;
use node::{FOLDER_MODE, LOG_MODE, Node, Place, TABLE_MODE, attributes_of, kind_of};
use openftl_alfs::mounting::is_unfinished;
use openftl_alfs::{FileKind as Kind, FileTime, MountError, Operation, Options, Volume};
use openftl_core::{BLOCK_BYTES, Time};
use openftl_dispatch::{Pace, PaceClock, Watch};
use openftl_files::{Attributes, Counts, FileError, FileKind, now_s};
use openftl_media::Media;
use openftl_parts::target::Target;
use openftl_parts::{Access, Config};
use openftl_segments::SegmentFtl;
use openftl_turns::Alarm;
use openftl_zones::{Face, Ftl, ZoneConfig, ZoneFtl};
use shared::{Drive, Fs, Shared, mount_error};
use std::sync::{Arc, MutexGuard};
use tree::{Found, Name, Tree, normal, owner, usable};

/// The files of a drive with an ALFS.
pub struct AlfsFiles<M: Media> {
    shared: Arc<Shared<M>>,
}

impl<M: Media> Clone for AlfsFiles<M> {
    fn clone(&self) -> AlfsFiles<M> {
        AlfsFiles { shared: Arc::clone(&self.shared) }
    }
}

/// Whether the segments of a drive are a file system's, or are to be: those of zones only if there is one, because they may be other files'.
///
/// # Errors
/// If the drive fails.
pub(crate) fn is_meant<M: Media>(drive: &mut Drive<M>, clock: &mut PaceClock) -> Result<bool, FileError> {
    Ok(drive.zones().face() == Face::Segments
        || openftl_alfs::mounting::has_records(drive, clock).map_err(mount_error)?)
}

impl<M: Media> AlfsFiles<M> {
    /// Makes a new drive of segments, with a file system whose number is `id`: one that no other has. What was on the device is lost.
    ///
    /// # Errors
    /// If it does not fit the device, the file system does not fit the drive, or the device fails.
    pub fn format(
        media: M,
        config: Config,
        segments: ZoneConfig,
        id: u64,
        pace: Pace,
    ) -> Result<AlfsFiles<M>, FileError> {
        let mut clock = PaceClock { pace, now: Time::ZERO };
        let drive = SegmentFtl::format(media, config, segments, &mut clock)?;
        AlfsFiles::adopt(drive, clock, Access::ReadWrite, id)
    }

    /// Takes over a drive whose segments are a file system's. If nothing is written to them, or no more than a power cut has left of one that was being made, one is made,
    /// whose number is `id`.
    pub(crate) fn adopt(
        drive: Drive<M>,
        mut clock: PaceClock,
        access: Access,
        id: u64,
    ) -> Result<AlfsFiles<M>, FileError> {
        let refusal = match access {
            Access::Inspect => Some("the drive was opened to look at it"),
            _ if drive.is_read_only() => Some("the drive takes no more writes: what is there can be read"),
            _ => None,
        };
        let options = Options { is_read_only: refusal.is_some(), ..Options::default() };
        let fs = match Volume::mount(drive, options, &mut clock) {
            Ok(fs) => fs,
            Err((mut drive, why)) => {
                match is_unfinished(&mut drive, &why, &mut clock).map_err(mount_error)? {
                    false => return Err(refused(why)),
                    true if refusal.is_some() => return Err(FileError::Invalid(
                        "there is no file system on the drive yet: the first program that opens it for use, or `openftl alfs mkfs`, makes it".to_owned(),
                    )),
                    true => {}
                }
                let made: Fs<M> = Volume::format(drive, id, owner(), time_of_day(), &mut clock).map_err(mount_error)?;
                let drive = made.unmount(&mut clock).map_err(|(_, error)| mount_error(error))?;
                Volume::mount(drive, options, &mut clock).map_err(|(_, error)| mount_error(error))?
            }
        };
        let files = AlfsFiles { shared: Arc::new(Shared::new(fs, &clock, refusal)) };
        if refusal.is_none() {
            files.shared.sweep()?;
        }
        Ok(files)
    }

    /// Has the file system polled soon, for a device that does something before it is due.
    #[must_use]
    pub fn alarm(&self) -> Alarm {
        self.shared.alarm()
    }

    /// Has a thread do from now on what nobody waits for: cleaning ahead, and syncs of what was written some seconds ago. Not for virtual time,
    /// in which nothing happens but what somebody waits for.
    ///
    /// # Errors
    /// If there is no thread to be had.
    pub fn help(&self) -> Result<(), FileError>
    where
        M: Send,
    {
        self.shared.help()
    }

    /// Stops cleanly: everything is durable. `None` if somebody still uses the drive or a file of it.
    ///
    /// # Errors
    /// If the device fails.
    pub fn close(self) -> Result<Option<M>, FileError> {
        let Ok(shared) = Arc::try_unwrap(self.shared) else { return Ok(None) };
        let pace = shared.pace;
        let (fs, now) = shared.into_fs();
        let mut clock = PaceClock { pace, now };
        // The drive is closed whatever became of this.
        let (drive, unmounted) = match fs.unmount(&mut clock) {
            Ok(drive) => (drive, Ok(())),
            Err((drive, error)) => (drive, Err(mount_error(error))),
        };
        let media = drive.close(&mut clock)?;
        unmounted?;
        Ok(Some(media))
    }

    /// Gives the device back as it is: what a crash leaves behind. `None` if somebody still uses the drive.
    #[must_use]
    pub fn crash(self) -> Option<M> {
        let shared = Arc::try_unwrap(self.shared).ok()?;
        Some(shared.into_fs().0.into_target().crash())
    }

    /// How time passes for it.
    #[must_use]
    pub fn pace(&self) -> Pace {
        self.shared.pace
    }

    /// Calls `with` on the drive below, for those who ask it what it did.
    pub fn with_drive<T>(&self, with: impl FnOnce(&mut ZoneFtl<M>) -> T) -> T {
        self.shared.with_fs(|fs| with(fs.target_mut().zones_mut()))
    }

    /// Has `watch` called with the drive after each poll: for those who test what a database bears.
    pub fn watch(&self, watch: Watch<ZoneFtl<M>>) {
        self.shared.watch(watch);
    }

    /// Bytes that files can still take, and that they could if there were none.
    #[must_use]
    pub fn space(&self) -> (u64, u64) {
        let room = self.shared.with_fs(|fs| fs.room());
        (room.free * BLOCK_BYTES as u64, room.blocks * BLOCK_BYTES as u64)
    }

    /// What the drive did since it was opened.
    #[must_use]
    pub fn statistics(&self) -> AlfsFileStatistics {
        self.shared.statistics()
    }

    /// Makes a file, in place of one of that name if there is one.
    ///
    /// # Errors
    /// If its folder is not there, it is a folder, or there is no room.
    pub fn create(&self, path: &str, kind: FileKind) -> Result<AlfsWriter<M>, FileError> {
        let path = usable(path)?;
        self.create_in(self.shared.tree(), path, kind)
    }

    fn create_in(
        &self,
        mut tree: MutexGuard<'_, Tree>,
        path: String,
        kind: FileKind,
    ) -> Result<AlfsWriter<M>, FileError> {
        let shared = &self.shared;
        shared.expect_writable()?;
        let older = shared.file_or_none(&tree, &path)?;
        let found = if kind == FileKind::Table {
            let (number, made) = shared.make_unfinished(&mut tree, &path, TABLE_MODE)?;
            let made = Arc::new(Node::new(&made, Place::Unfinished { number, path: path.clone() }));
            match older {
                Some(Found::Unfinished(_)) => shared.forget_unfinished(&mut tree, &path)?,
                Some(Found::There(name, _)) => shared.unlink(&path, name)?,
                None => {}
            }
            tree.unfinished.insert(&path, Arc::clone(&made));
            Found::Unfinished(made)
        } else if let Some(Found::There(name, _)) = older {
            // The new file is there and the other is not, or the other way round.
            let (number, made) = shared.make_unfinished(&mut tree, &path, LOG_MODE)?;
            if let Err(error) = shared.finish(&tree, number, &path) {
                shared.discard(&tree, number, &path)?;
                return Err(error);
            }
            Found::There(name, made)
        } else {
            shared.forget_unfinished(&mut tree, &path)?;
            let name = shared.name(&path)?;
            Found::There(name, shared.make(&path, name, Kind::Regular, LOG_MODE)?)
        };
        let node = shared.enter(&mut tree, found)?;
        drop(tree);
        Ok(AlfsWriter::new(Arc::clone(shared), node, path))
    }

    /// Goes on at the end of a log file, or makes it.
    ///
    /// # Errors
    /// If it is a table or a folder, or the drive takes no writes.
    pub fn append_to(&self, path: &str) -> Result<AlfsWriter<M>, FileError> {
        let path = usable(path)?;
        let shared = &self.shared;
        let mut tree = shared.tree();
        let found = match shared.file_or_none(&tree, &path)? {
            Some(found) => found,
            None => return self.create_in(tree, path, FileKind::Log),
        };
        let kind = match &found {
            Found::Unfinished(node) => node.kind,
            Found::There(_, found) => kind_of(found),
        };
        if kind == FileKind::Table {
            return Err(FileError::NotSupported(format!(
                "{path} is a table: it is written once, and cannot be appended to"
            )));
        }
        shared.expect_writable()?;
        let node = shared.enter(&mut tree, found)?;
        drop(tree);
        Ok(AlfsWriter::new(Arc::clone(shared), node, path))
    }

    /// Opens a file for reading. It can be read until the reader is dropped, also when it has been deleted or replaced.
    ///
    /// # Errors
    /// If it is not there, or a folder.
    pub fn open_read(&self, path: &str) -> Result<AlfsReader<M>, FileError> {
        let path = usable(path)?;
        let mut tree = self.shared.tree();
        let found = self.shared.file(&tree, &path)?;
        let node = self.shared.enter(&mut tree, found)?;
        drop(tree);
        Ok(AlfsReader::new(Arc::clone(&self.shared), node, path))
    }

    /// What a file or folder is like.
    ///
    /// # Errors
    /// If it is not there.
    pub fn attributes(&self, path: &str) -> Result<Attributes, FileError> {
        let path = normal(path)?;
        if path == "/" {
            return Ok(Attributes { kind: FileKind::Folder, bytes: 0, modified: 0 });
        }
        let path = usable(&path)?;
        let tree = self.shared.tree();
        if let Ok(node) = tree.unfinished.get(&path) {
            return Ok(node.attributes());
        }
        Ok(attributes_of(&self.shared.lookup(&path, self.shared.name(&path)?)?))
    }

    /// What is in a folder, in the order of the names.
    ///
    /// # Errors
    /// If it is not there, or a file.
    pub fn list(&self, folder: &str) -> Result<Vec<(String, Attributes)>, FileError> {
        self.shared.list(&usable(folder)?)
    }

    /// Deletes a file.
    ///
    /// # Errors
    /// If it is not there, or a folder.
    pub fn delete(&self, path: &str) -> Result<(), FileError> {
        let path = usable(path)?;
        let mut tree = self.shared.tree();
        match self.shared.file(&tree, &path)? {
            Found::Unfinished(_) => self.shared.forget_unfinished(&mut tree, &path),
            Found::There(name, _) => self.shared.unlink(&path, name),
        }
    }

    /// Gives a file another name. One that has it is replaced, all at once.
    ///
    /// # Errors
    /// If it is not there, or either is a folder.
    pub fn rename(&self, from: &str, to: &str) -> Result<(), FileError> {
        let (from, to) = (usable(from)?, usable(to)?);
        let shared = &self.shared;
        let mut tree = shared.tree();
        let found = shared.file(&tree, &from)?;
        let older = shared.file_or_none(&tree, &to)?;
        if from == to {
            return Ok(());
        }
        shared.expect_writable()?;
        let Name { folder, name } = shared.name(&to)?;
        match found {
            Found::Unfinished(node) => {
                match older {
                    Some(Found::Unfinished(_)) => shared.forget_unfinished(&mut tree, &to)?,
                    Some(Found::There(name, _)) => shared.unlink(&to, name)?,
                    None => {}
                }
                if let Place::Unfinished { path, .. } = &mut *node.place() {
                    path.clone_from(&to);
                }
                tree.unfinished.remove(&from);
                tree.unfinished.insert(&to, node);
            }
            Found::There(at, _) => {
                let how = openftl_alfs::RenameHow::Replace;
                let (from_name, to_name) = (meant(at.name), meant(name));
                let (from_name, to_name) = (&*from_name, &*to_name);
                let operation = Operation::Rename { from: at.folder, from_name, to: folder, to_name, how };
                shared.run(&to, &operation).map(drop)?;
                shared.forget_unfinished(&mut tree, &to)?;
            }
        }
        Ok(())
    }

    /// Makes a folder.
    ///
    /// # Errors
    /// If it is there, or the one above it is not.
    pub fn make_folder(&self, path: &str) -> Result<(), FileError> {
        let path = usable(path)?;
        let tree = self.shared.tree();
        if path == "/" || tree.unfinished.get(&path).is_ok() {
            return Err(FileError::Exists(path));
        }
        let name = self.shared.name(&path)?;
        self.shared.make(&path, name, Kind::Directory, FOLDER_MODE).map(drop)
    }

    /// Deletes a folder.
    ///
    /// # Errors
    /// If it is not there, is a file, or not empty.
    pub fn delete_folder(&self, path: &str) -> Result<(), FileError> {
        let path = usable(path)?;
        if path == "/" {
            return Err(FileError::Invalid("/ cannot be deleted".to_owned()));
        }
        let tree = self.shared.tree();
        self.shared.folder(&path)?;
        if tree.unfinished.in_folder(&path).next().is_some() {
            return Err(FileError::Busy(format!("{path} is not empty")));
        }
        let Name { folder: parent, name } = self.shared.name(&path)?;
        let operation = Operation::RemoveDirectory { parent, name: &meant(name) };
        self.shared.run(&path, &operation).map(drop)
    }

    /// Every change of names before this is durable.
    ///
    /// # Errors
    /// If the folder is not there, or the drive fails.
    pub fn sync_names(&self, folder: &str) -> Result<(), FileError> {
        let folder = usable(folder)?;
        self.shared.folder(&folder)?;
        Counts::add(&self.shared.counts.syncs, 1);
        self.shared.sync(&folder)
    }

    /// Locks a name, whether or not it is a file.
    ///
    /// # Errors
    /// If it is locked.
    pub fn lock(&self, path: &str) -> Result<(), FileError> {
        let path = normal(path)?;
        if self.shared.tree().unfinished.lock(&path) {
            return Ok(());
        }
        Err(FileError::Busy(format!("{path} is locked already")))
    }

    /// Unlocks a name.
    ///
    /// # Errors
    /// If it is not locked.
    pub fn unlock(&self, path: &str) -> Result<(), FileError> {
        let path = normal(path)?;
        if self.shared.tree().unfinished.unlock(&path) {
            return Ok(());
        }
        Err(FileError::Invalid(format!("{path} is not locked")))
    }
}

/// Why a drive on which something is written is not opened.
fn refused(why: MountError) -> FileError {
    match why {
        MountError::NoVolume => FileError::Invalid(
            "somebody else has written to these segments; make a new drive for files, or a file system in their place (`openftl alfs mkfs --force`)"
                .to_owned(),
        ),
        why => mount_error(why),
    }
}

fn time_of_day() -> FileTime {
    FileTime { seconds: now_s() as i64, nanoseconds: 0 }
}
