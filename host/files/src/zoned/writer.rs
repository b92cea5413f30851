//! A file on zones being written, by one thread at a time.
//!
//! The last block of a table stays here until another follows it, because a file's end may be written again. What is appended to a log file
//! is gathered, so that a few bytes ask nothing of the drive.

use super::allocation::{Lease, PlaceLifetime};
use super::node::{Node, Presence, cut, push};
use super::shared::Shared;
use crate::files::{Counts, NameCounts, now_s};
use crate::log_file::GATHER_BYTES;
use crate::table_file::is_whole;
use crate::writer::expect_end;
use crate::{FileError, FileKind, ReadRequest};
use openftl_core::BLOCK_BYTES;
use openftl_media::Media;
use openftl_tables::TableLifetime;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// Blocks of a log file since it was last recorded, 4 MiB, after which the next append that writes some syncs it. Of what
/// nobody has synced a power cut takes no more than these, what was gathered, and what the last append brought.
pub const UNSYNCED_BLOCKS_MAX: u64 = 1024;

/// A file that is written from front to back.
pub struct ZoneWriter<M: Media> {
    shared: Arc<Shared<M>>,
    node: Arc<Node>,
    /// As it was made or last opened; whoever renames a file does not write to it.
    path: String,
    lifetime: TableLifetime,
    lease: Lease,
    /// A table is there as a whole.
    is_committed: bool,
    /// Why a table is given up: a part of it could not be written.
    failed: Option<FileError>,
    is_closed: bool,
    counts: Arc<NameCounts>,
}

impl<M: Media> ZoneWriter<M> {
    pub(super) fn new(shared: Arc<Shared<M>>, node: Arc<Node>, path: String) -> ZoneWriter<M> {
        node.write().users += 1;
        let counts = shared.counts.of_name(&path);
        ZoneWriter {
            shared,
            node,
            path,
            lifetime: TableLifetime::Unknown,
            lease: None,
            is_committed: false,
            failed: None,
            is_closed: false,
            counts,
        }
    }

    /// So many bytes will come at most: a hint that says nothing here, because a file may go on in another zone.
    pub fn hint_size(&mut self, _bytes: u64) {}

    /// It will live so long. A hint, before the first byte.
    pub fn hint_lifetime(&mut self, lifetime: TableLifetime) {
        self.lifetime = lifetime;
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

    /// A number that differs from that of every other file on the drive.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.node.number
    }

    fn is_table(&self) -> bool {
        self.node.kind == FileKind::Table
    }

    /// Appends `data`.
    ///
    /// # Errors
    /// If there is no room, or the drive fails.
    pub fn append(&mut self, data: &[u8]) -> Result<(), FileError> {
        let node = Arc::clone(&self.node);
        let _writing = node.writing();
        self.append_here(data).map_err(|error| self.explain(error))
    }

    fn append_here(&mut self, data: &[u8]) -> Result<(), FileError> {
        if data.is_empty() {
            return Ok(());
        }
        if self.is_committed {
            return Err(is_whole());
        }
        let (all, is_table) = (&self.shared.counts, self.is_table());
        Counts::add(&self.counts.bytes, data.len() as u64);
        Counts::add(if is_table { &all.table_bytes } else { &all.log_bytes }, data.len() as u64);
        let (gathered, blocks) = {
            let mut contents = self.node.write();
            contents.tail.extend_from_slice(data);
            contents.has_changed = true;
            self.node.set_bytes(self.node.bytes() + data.len() as u64);
            (contents.tail.len(), contents.blocks_since)
        };
        self.node.modified.store(now_s(), Ordering::Relaxed);
        if is_table {
            // All but the last block is followed by something.
            return self.write_out((gathered - 1) / BLOCK_BYTES * BLOCK_BYTES);
        }
        if gathered < GATHER_BYTES {
            return Ok(());
        }
        self.write_out(gathered / BLOCK_BYTES * BLOCK_BYTES)?;
        if blocks < UNSYNCED_BLOCKS_MAX {
            return Ok(());
        }
        self.note()?;
        self.shared.sync()
    }

    /// Writes the first `bytes` bytes of the tail.
    fn write_out(&mut self, bytes: usize) -> Result<(), FileError> {
        if bytes == 0 {
            return Ok(());
        }
        let data = self.node.read().tail[..bytes].to_vec();
        let lifetime = match self.lifetime {
            TableLifetime::Unknown if !self.is_table() => PlaceLifetime::OF_LOGS,
            lifetime => PlaceLifetime::of(lifetime),
        };
        let node = &self.node;
        let written = self.shared.write(lifetime, &mut self.lease, &data, false, |extent| {
            let mut contents = node.write();
            contents.blocks_since += u64::from(extent.blocks);
            let bytes = contents.tail.len().min(extent.blocks as usize * BLOCK_BYTES);
            contents.tail.drain(..bytes);
            push(&mut contents.extents, extent);
        });
        if !self.is_table() {
            // Log files share their zones: they are small, or gone soon.
            self.shared.zones().leave(&mut self.lease);
        }
        if let (Err(error), true) = (&written, self.is_table()) {
            self.failed.get_or_insert_with(|| error.clone());
        }
        written
    }

    /// Writes at `offset`: the end of the file, or up to [`REWRITE_BYTES_MAX`](crate::REWRITE_BYTES_MAX) before it. The file ends behind it.
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
        let node = Arc::clone(&self.node);
        let _writing = node.writing();
        let found = self.bytes();
        if bytes > found {
            let path = &self.path;
            return Err(FileError::Invalid(format!("{path}: a file of {found} bytes cannot be cut to {bytes}")));
        }
        if bytes == found {
            return Ok(());
        }
        let cut = self.truncate_here(found, bytes).and_then(|()| self.shared.write_if_long());
        cut.map_err(|error| self.explain(error))
    }

    fn truncate_here(&mut self, found: u64, bytes: u64) -> Result<(), FileError> {
        let gathered = self.node.read().tail.len() as u64;
        if bytes >= found - gathered {
            let mut contents = self.node.write();
            contents.tail.truncate((bytes + gathered - found) as usize);
            contents.has_changed = true;
            self.node.set_bytes(bytes);
            return Ok(());
        }
        if self.is_table() && !self.is_committed {
            return Err(FileError::NotSupported(format!(
                "a table that is being written can be cut by {gathered} bytes now, and not by {}",
                found - bytes
            )));
        }
        // Of a table the last block is cut where it is; that of a log file comes back here.
        let kept = if self.is_table() { bytes.div_ceil(BLOCK) } else { bytes / BLOCK };
        let mut tail = vec![0; bytes.saturating_sub(kept * BLOCK) as usize];
        let mut requests = [ReadRequest { offset: kept * BLOCK, buffer: &mut tail, result: Ok(0) }];
        self.shared.read_pieces(&mut requests, found - gathered, &self.node.read().extents);
        let [ReadRequest { result, .. }] = requests;
        result?;
        let mut contents = self.node.write();
        let left = cut(&mut contents.extents, kept);
        contents.tail = tail;
        contents.has_changed = true;
        self.node.set_bytes(bytes);
        let change = contents.is_noted.then(|| self.node.note_again(&contents));
        self.shared.change_blocks(change, left);
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
        self.hand_over().and_then(|()| self.shared.write_if_long()).map_err(|error| self.explain(error))
    }

    fn hand_over(&mut self) -> Result<(), FileError> {
        let node = Arc::clone(&self.node);
        let _writing = node.writing();
        if self.is_committed {
            return Ok(());
        }
        if let Some(error) = &self.failed {
            return Err(error.clone().of("a table that could not be written as a whole is given up"));
        }
        let (gathered, has_changed) = {
            let contents = node.read();
            (contents.tail.len(), contents.has_changed)
        };
        if self.is_table() {
            self.write_out(gathered)?;
            self.shared.zones().leave(&mut self.lease);
            self.note()?;
            self.is_committed = true;
        } else if has_changed {
            self.write_out(gathered / BLOCK_BYTES * BLOCK_BYTES)?;
            self.note()?;
        }
        Ok(())
    }

    /// Queues the change that records the file as it is, if it has a name.
    fn note(&self) -> Result<(), FileError> {
        self.shared.expect_writable()?;
        let mut contents = self.node.write();
        if contents.presence == Presence::There {
            contents.has_changed = false;
            contents.blocks_since = 0;
            let change = self.node.note(&mut contents);
            self.shared.change(vec![change], None);
        }
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
    pub fn begin_sync(&mut self) -> Result<ZoneSync<M>, FileError> {
        Counts::add(&self.shared.counts.syncs, 1);
        Counts::add(&self.counts.syncs, 1);
        self.commit()?;
        Ok(ZoneSync { shared: Arc::clone(&self.shared), path: self.path.clone() })
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
        let mut names = self.shared.names();
        let path = self.node.read().path.clone();
        let is_named = names.get(&path).is_ok_and(|node| Arc::ptr_eq(node, &self.node));
        if self.is_table() && !self.is_committed && is_named {
            names.remove(&path);
        }
    }

    /// The error as the caller understands it: what is more than the drive could ever hold is too large.
    fn explain(&self, error: FileError) -> FileError {
        let most = self.shared.space_blocks().1 * BLOCK;
        match error.of(&self.path) {
            FileError::NoSpace(_) if self.is_table() && self.bytes() > most => {
                let path = &self.path;
                FileError::TooLarge(format!(
                    "{path} has more than the {most} bytes that files could have on this drive"
                ))
            }
            error => error,
        }
    }
}

impl<M: Media> Drop for ZoneWriter<M> {
    fn drop(&mut self) {
        if !self.is_closed {
            // Whoever drops a writer does not want to know.
            let _ = self.hand_over();
        }
        self.shared.zones().leave(&mut self.lease);
        if self.is_table() && !self.is_committed {
            // Whoever has it open finds nothing in it, and no record names its blocks.
            let mut contents = self.node.write();
            self.node.set_bytes(0);
            contents.tail.clear();
            let blocks = std::mem::take(&mut contents.extents);
            drop(contents);
            self.shared.free(blocks);
        }
        self.shared.leave(&self.node);
    }
}

/// A sync that waits for the drive.
pub struct ZoneSync<M: Media> {
    shared: Arc<Shared<M>>,
    path: String,
}

impl<M: Media> ZoneSync<M> {
    /// What had been appended when the sync began is durable.
    ///
    /// # Errors
    /// If the drive fails.
    pub fn finish(self) -> Result<(), FileError> {
        self.shared.sync().map_err(|error| error.of(&self.path))
    }
}
