//! A file of an ALFS being written, by one thread at a time.
//!
//! What is appended goes to the file system at once, which collects it in memory until a block is full or a sync wants it.

use super::node::{Node, Place};
use super::shared::Shared;
use openftl_alfs::operation::PAYLOAD_BYTES_MAX;
use openftl_alfs::{Changes, Operation, Reply};
use openftl_core::BLOCK_BYTES;
use openftl_files::{Counts, FileError, FileKind, NameCounts, expect_end, is_whole, now_s};
use openftl_media::Media;
use openftl_tables::TableLifetime;
use std::sync::Arc;

/// Of the room of a drive, one part in so many may be metadata when a file has all the rest.
const METADATA_SHARE: u64 = 32;

/// A file that is written from front to back.
pub struct AlfsWriter<M: Media> {
    shared: Arc<Shared<M>>,
    node: Arc<Node>,
    /// As it was made or last opened; whoever renames a file does not write to it.
    path: String,
    /// A table is there as a whole.
    is_committed: bool,
    /// Why a table is given up: a part of it could not be written.
    failed: Option<FileError>,
    is_closed: bool,
    counts: Arc<NameCounts>,
}

impl<M: Media> AlfsWriter<M> {
    /// Of a file that was [entered](Shared::enter).
    pub(super) fn new(shared: Arc<Shared<M>>, node: Arc<Node>, path: String) -> AlfsWriter<M> {
        let counts = shared.counts.of_name(&path);
        AlfsWriter { shared, node, path, is_committed: false, failed: None, is_closed: false, counts }
    }

    /// So many bytes will come at most: a hint that says nothing here, because a log goes on in any segment.
    pub fn hint_size(&mut self, _bytes: u64) {}

    /// It will live so long: a hint that says nothing here, because all contents go to one log.
    pub fn hint_lifetime(&mut self, _lifetime: TableLifetime) {}

    /// What it is.
    #[must_use]
    pub fn kind(&self) -> FileKind {
        self.node.kind
    }

    /// Bytes of the file.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.node.bytes()
    }

    /// A number that differs from that of every other file on the drive.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.node.id()
    }

    fn is_table(&self) -> bool {
        self.node.kind == FileKind::Table
    }

    /// Appends `data`.
    ///
    /// # Errors
    /// If there is no room, or the drive fails.
    pub fn append(&mut self, data: &[u8]) -> Result<(), FileError> {
        self.write_here(self.bytes(), data)
    }

    /// Writes at `offset`: the end of the file, or up to [`REWRITE_BYTES_MAX`](openftl_files::REWRITE_BYTES_MAX) before it. The file ends behind it.
    ///
    /// # Errors
    /// If it is elsewhere, there is no room, or the drive fails.
    pub fn write_at(&mut self, offset: u64, data: &[u8]) -> Result<(), FileError> {
        expect_end(&self.path, self.bytes(), offset, data.len())?;
        self.write_here(offset, data)
    }

    fn write_here(&mut self, offset: u64, data: &[u8]) -> Result<(), FileError> {
        if data.is_empty() {
            return Ok(());
        }
        if self.is_committed {
            return Err(is_whole());
        }
        if let Some(error) = &self.failed {
            return Err(given_up(error));
        }
        let (all, is_table) = (&self.shared.counts, self.is_table());
        Counts::add(&self.counts.bytes, data.len() as u64);
        Counts::add(if is_table { &all.table_bytes } else { &all.log_bytes }, data.len() as u64);
        let mut at = offset;
        for data in data.chunks(PAYLOAD_BYTES_MAX) {
            let write = Operation::Write { inode: self.node.inode, offset: at, data };
            if let Err(error) = self.shared.run(&self.path, &write) {
                let error = self.explain(error);
                if is_table {
                    self.failed.get_or_insert_with(|| error.clone());
                }
                return Err(error);
            }
            at += data.len() as u64;
            self.node.written(self.bytes().max(at), now_s());
        }
        Ok(())
    }

    /// Cuts the file to `bytes`.
    ///
    /// # Errors
    /// If it is not so long, or the drive fails.
    pub fn truncate(&mut self, bytes: u64) -> Result<(), FileError> {
        let found = self.bytes();
        if bytes > found {
            let path = &self.path;
            return Err(FileError::Invalid(format!("{path}: a file of {found} bytes cannot be cut to {bytes}")));
        }
        if bytes == found { Ok(()) } else { self.cut(bytes) }
    }

    fn cut(&self, bytes: u64) -> Result<(), FileError> {
        let changes = Changes { size: Some(bytes), ..Changes::default() };
        self.shared.run(&self.path, &Operation::SetAttributes { inode: self.node.inode, changes }).map(drop)?;
        self.node.written(bytes, now_s());
        Ok(())
    }

    /// What was appended can be read by others, and does not depend on this writer any more.
    ///
    /// # Errors
    /// None today.
    pub fn flush(&mut self) -> Result<(), FileError> {
        Ok(())
    }

    /// What was appended is durable as soon as anything is synced after this, and so is the file's name; a table is whole. It costs no
    /// sync of its own.
    ///
    /// # Errors
    /// If there is no room, or the drive fails.
    pub fn commit(&mut self) -> Result<(), FileError> {
        if !self.is_table() || self.is_committed {
            return Ok(());
        }
        if let Some(error) = &self.failed {
            return Err(given_up(error));
        }
        let mut tree = self.shared.tree();
        let mut place = self.node.place();
        if let Place::Unfinished { number, path } = &*place {
            self.shared.finish(&tree, *number, path)?;
            tree.unfinished.remove(path);
            *place = Place::Tree;
        }
        drop((place, tree));
        self.is_committed = true;
        Ok(())
    }

    /// What was appended is durable, and so is the file's name.
    ///
    /// # Errors
    /// If there is no room, or the drive fails.
    pub fn sync(&mut self) -> Result<(), FileError> {
        self.begin_sync()?.finish()
    }

    /// The first half of a sync. What is left waits for the drive and needs the writer no more: meanwhile it can be appended to.
    ///
    /// # Errors
    /// If there is no room, or the drive fails.
    pub fn begin_sync(&mut self) -> Result<AlfsSync<M>, FileError> {
        Counts::add(&self.shared.counts.syncs, 1);
        Counts::add(&self.counts.syncs, 1);
        self.commit()?;
        Ok(AlfsSync { shared: Arc::clone(&self.shared), path: self.path.clone() })
    }

    /// Ends the file: a table is there as a whole from now on.
    ///
    /// # Errors
    /// If there is no room, or the drive fails.
    pub fn close(mut self) -> Result<(), FileError> {
        self.is_closed = true;
        self.commit()
    }

    /// Ends the writer and leaves the file as it is: what a crash does. Of a table that was not synced nothing is left, and no name.
    pub fn forget(mut self) {
        self.is_closed = true;
        if self.is_table() && !self.is_committed {
            let mut tree = self.shared.tree();
            let place = self.node.place().clone();
            if let Place::Unfinished { path, .. } = place {
                // Where the drive has failed it is gone with that.
                let _ = self.shared.forget_unfinished(&mut tree, &path);
            }
        }
    }

    /// The error as the caller understands it: what is more than the drive could ever hold is too large.
    fn explain(&self, error: FileError) -> FileError {
        if !matches!(error, FileError::NoSpace(_)) || !self.is_table() || !self.has_all() {
            return error;
        }
        let (path, bytes) = (&self.path, self.bytes());
        FileError::TooLarge(format!(
            "{path} has {bytes} bytes, and with that almost all that files could have on this drive"
        ))
    }

    /// Whether the file has all the room there is, but for metadata.
    fn has_all(&self) -> bool {
        let blocks = self.shared.run(&self.path, &Operation::Attributes { inode: self.node.inode });
        let (Ok(Reply::Attributes(found)), room) = (blocks, self.shared.with_fs(|fs| fs.room())) else { return false };
        let blocks = found.blocks.max(self.bytes() / BLOCK_BYTES as u64);
        room.blocks - blocks.min(room.blocks) <= room.blocks / METADATA_SHARE
    }
}

fn given_up(error: &FileError) -> FileError {
    error.clone().of("a table that could not be written as a whole is given up")
}

impl<M: Media> Drop for AlfsWriter<M> {
    fn drop(&mut self) {
        if !self.is_closed {
            // Whoever drops a writer does not want to know.
            let _ = self.commit();
        }
        if self.is_table() && !self.is_committed {
            // Whoever has it open finds nothing in it, and others have its room.
            let _ = self.cut(0);
        }
        self.shared.leave(&self.node);
    }
}

/// A sync that waits for the drive.
pub struct AlfsSync<M: Media> {
    shared: Arc<Shared<M>>,
    path: String,
}

impl<M: Media> AlfsSync<M> {
    /// What had been appended when the sync began is durable.
    ///
    /// # Errors
    /// If the drive fails.
    pub fn finish(self) -> Result<(), FileError> {
        self.shared.sync(&self.path)
    }
}
