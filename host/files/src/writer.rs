//! A file being written, by one thread at a time.

use crate::files::{Counts, NameCounts, Shared, now_s};
use crate::names::Node;
use crate::table_file::TableFile;
use crate::{FileError, FileKind};
use openftl_core::BLOCK_BYTES;
use openftl_media::Media;
use openftl_tables::{TableLifetime, Wish};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// How far before its end a file can be written again.
pub const REWRITE_BYTES_MAX: u64 = BLOCK_BYTES as u64;

/// A file that is written from front to back.
pub struct FileWriter<M: Media> {
    pub(crate) shared: Arc<Shared<M>>,
    pub(crate) node: Arc<Node>,
    /// As it was made or last opened; whoever renames a file does not write to it.
    pub(crate) path: String,
    pub(crate) wish: Wish,
    pub(crate) table: TableFile,
    counts: Arc<NameCounts>,
    is_closed: bool,
}

impl<M: Media> FileWriter<M> {
    pub(crate) fn new(shared: Arc<Shared<M>>, node: Arc<Node>, path: String) -> FileWriter<M> {
        node.contents().users += 1;
        let counts = shared.counts.of_name(&path);
        FileWriter { shared, node, path, wish: Wish::default(), table: TableFile::default(), counts, is_closed: false }
    }

    /// So many bytes will come at most. A hint, before the first byte; 0: unknown.
    pub fn hint_size(&mut self, bytes: u64) {
        self.wish.blocks = (bytes > 0).then(|| bytes.div_ceil(BLOCK_BYTES as u64));
    }

    /// It will live so long. A hint, before the first byte.
    pub fn hint_lifetime(&mut self, lifetime: TableLifetime) {
        self.wish.lifetime = lifetime;
    }

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

    /// A number that differs from that of every other file on the drive, once it has a byte.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.node.entry()
    }

    /// Appends `data`.
    ///
    /// # Errors
    /// If there is no room, or the drive fails.
    pub fn append(&mut self, data: &[u8]) -> Result<(), FileError> {
        Counts::add(&self.counts.bytes, data.len() as u64);
        let appended = match self.node.kind {
            FileKind::Table => {
                Counts::add(&self.shared.counts.table_bytes, data.len() as u64);
                self.append_to_table(data)
            }
            FileKind::Log | FileKind::Folder => {
                Counts::add(&self.shared.counts.log_bytes, data.len() as u64);
                self.append_to_log(data)
            }
        };
        self.node.modified.store(now_s(), Ordering::Relaxed);
        appended.map_err(|error| self.explain(error))
    }

    /// Writes at `offset`: the end of the file, or up to [`REWRITE_BYTES_MAX`] before it. The file ends behind it.
    ///
    /// # Errors
    /// If it is elsewhere, there is no room, or the drive fails.
    pub fn write_at(&mut self, offset: u64, data: &[u8]) -> Result<(), FileError> {
        let bytes = self.bytes();
        expect_end(&self.path, bytes, offset, data.len())?;
        if offset < bytes {
            self.truncate(offset)?;
        }
        self.append(data)
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
        let cut = match self.node.kind {
            _ if bytes == found => Ok(()),
            FileKind::Table => self.truncate_table(bytes),
            FileKind::Log | FileKind::Folder => self.truncate_log(bytes),
        };
        cut.map_err(|error| self.explain(error))
    }

    /// What was appended can be read by others, and does not depend on this writer any more.
    ///
    /// # Errors
    /// If the drive fails.
    pub fn flush(&mut self) -> Result<(), FileError> {
        Ok(())
    }

    /// What was appended is durable as soon as anything is synced after this, and so is the file's name; a table is whole. It costs no
    /// sync of its own.
    ///
    /// # Errors
    /// If there is no room, or the drive fails.
    pub fn commit(&mut self) -> Result<(), FileError> {
        self.hand_over().map_err(|error| self.explain(error))
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
    pub fn begin_sync(&mut self) -> Result<PendingSync<M>, FileError> {
        Counts::add(&self.shared.counts.syncs, 1);
        Counts::add(&self.counts.syncs, 1);
        self.commit()?;
        Ok(PendingSync { shared: Arc::clone(&self.shared), path: self.path.clone() })
    }

    /// Ends the file: a table is there as a whole from now on.
    ///
    /// # Errors
    /// If there is no room, or the drive fails.
    pub fn close(mut self) -> Result<(), FileError> {
        self.is_closed = true;
        self.commit()
    }

    /// A part is missing: a table cannot come to be any more.
    pub(crate) fn fail(&mut self) {
        self.table.has_failed = true;
    }

    /// Ends the writer and leaves the file as it is: what a crash does. Of a table that was not synced nothing is left, and no name.
    pub fn forget(mut self) {
        self.is_closed = true;
        if self.node.kind == FileKind::Table {
            self.forget_table();
        }
    }

    /// All that was appended is the drive's, and the catalog knows of it.
    fn hand_over(&mut self) -> Result<(), FileError> {
        match self.node.kind {
            FileKind::Table => self.commit_table(),
            FileKind::Log | FileKind::Folder => self.note_log(),
        }
    }

    /// The error as the caller understands it: what is more than the drive could ever hold is too large.
    fn explain(&self, error: FileError) -> FileError {
        let most = self.shared.table_bytes_max;
        match error.of(&self.path) {
            FileError::NoSpace(_)
                if self.node.kind == FileKind::Table && self.shared.names().has_no_table_but(&self.node) =>
            {
                let path = &self.path;
                FileError::TooLarge(format!(
                    "{path} has more than the {most} bytes that tables could have on this drive"
                ))
            }
            error => error,
        }
    }
}

/// Whether `count` bytes may be written at `offset` of a file of `bytes`.
///
/// # Errors
/// If they do not begin at its end, or a little before it and cover what is behind.
pub fn expect_end(path: &str, bytes: u64, offset: u64, count: usize) -> Result<(), FileError> {
    let end = offset.saturating_add(count as u64);
    if offset > bytes || offset + REWRITE_BYTES_MAX < bytes || end < bytes {
        return Err(FileError::NotSupported(format!(
            "{path}: bytes {offset} to {end} of a file of {bytes} cannot be written: only its end, and the last {REWRITE_BYTES_MAX} bytes \
             before it as a whole"
        )));
    }
    Ok(())
}

/// A sync that waits for the drive.
pub struct PendingSync<M: Media> {
    shared: Arc<Shared<M>>,
    path: String,
}

impl<M: Media> PendingSync<M> {
    /// What had been appended when the sync began is durable.
    ///
    /// # Errors
    /// If the drive fails.
    pub fn finish(self) -> Result<(), FileError> {
        self.shared.flush().map_err(|error| error.of(&self.path))
    }
}

impl<M: Media> Drop for FileWriter<M> {
    fn drop(&mut self) {
        if !self.is_closed {
            // Whoever drops a writer does not want to know.
            let _ = self.hand_over();
        }
        if self.node.kind == FileKind::Table {
            self.abandon_table();
        }
        self.shared.leave(&self.node);
    }
}
