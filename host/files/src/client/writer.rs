//! A writer of a served file gathers what is appended and sends it over a link of its own.

use super::session::{REQUESTS_MAX, Shared, Writing, ended, lock};
use crate::table_file::is_whole;
use crate::wire::{Answer, DATA_BYTES_MAX, Request};
use crate::writer::expect_end;
use crate::{FileError, FileKind};
use openftl_tables::TableLifetime;
use std::sync::{Arc, Mutex};

/// Bytes that are gathered before they are sent.
pub const GATHER_BYTES: usize = DATA_BYTES_MAX;
/// Bytes that are on their way to a file without being waited for, at most.
pub const UNCONFIRMED_BYTES_MAX: usize = 64 * 1024;

/// A file that is written from front to back; see [`FileWriter`](crate::FileWriter).
pub struct ClientWriter {
    pub(super) shared: Arc<Shared>,
    pub(super) path: String,
    pub(super) kind: FileKind,
    pub(super) hint: (u64, TableLifetime),
    pub(super) writing: Arc<Mutex<Writing>>,
}

impl ClientWriter {
    fn hint(&mut self) {
        let (bytes, lifetime) = self.hint;
        // A hint that does not arrive changes nothing.
        let _ = lock(&self.writing).tell(&self.shared, &Request::Hint { bytes, lifetime });
    }

    /// So many bytes will come at most. A hint, before the first byte; 0: unknown.
    pub fn hint_size(&mut self, bytes: u64) {
        self.hint.0 = bytes;
        self.hint();
    }

    /// It will live so long. A hint, before the first byte.
    pub fn hint_lifetime(&mut self, lifetime: TableLifetime) {
        self.hint.1 = lifetime;
        self.hint();
    }

    /// What it is.
    #[must_use]
    pub fn kind(&self) -> FileKind {
        self.kind
    }

    /// Bytes of the file.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        lock(&self.writing).bytes
    }

    /// A number that differs from that of every other file that the drive has had, once it has a byte; 0 if the connection is broken.
    #[must_use]
    pub fn id(&self) -> u64 {
        let mut writing = lock(&self.writing);
        if writing.send(&self.shared, true).is_err() {
            return 0;
        }
        match writing.link.as_mut().map(|link| link.ask(&Request::WriterState)) {
            Some(Ok(Answer::State { id, .. })) => id,
            _ => 0,
        }
    }

    /// Appends `data`.
    ///
    /// # Errors
    /// If there is no room, the drive fails, or the connection breaks: of this data, or of some before it.
    pub fn append(&mut self, data: &[u8]) -> Result<(), FileError> {
        self.shared.expect_whole()?;
        let mut writing = lock(&self.writing);
        if writing.is_committed && !data.is_empty() {
            return Err(is_whole().of(&self.path));
        }
        writing.bytes += data.len() as u64;
        if writing.gathered.len() + data.len() >= GATHER_BYTES {
            writing.gathered.extend_from_slice(data);
            return writing.send(&self.shared, false);
        }
        writing.gathered.extend_from_slice(data);
        self.keep_in_mind(&mut writing);
        Ok(())
    }

    /// Not all of it has arrived.
    fn keep_in_mind(&self, writing: &mut Writing) {
        if !writing.is_unsettled {
            writing.is_unsettled = true;
            lock(&self.shared.unsettled).push(Arc::downgrade(&self.writing));
        }
    }

    /// Writes at `offset`; see [`FileWriter::write_at`](crate::FileWriter::write_at).
    ///
    /// # Errors
    /// As there, or if the connection breaks.
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
    /// If it is not so long, the drive fails, or the connection breaks.
    pub fn truncate(&mut self, bytes: u64) -> Result<(), FileError> {
        let mut writing = lock(&self.writing);
        let kept = writing.bytes - writing.gathered.len() as u64;
        if (kept..=writing.bytes).contains(&bytes) {
            writing.gathered.truncate((bytes - kept) as usize);
            writing.bytes = bytes;
            return Ok(());
        }
        writing.confirm(&self.shared, &Request::Truncate { bytes })
    }

    /// What was appended is on its way to the server, and arrives though this process is killed.
    ///
    /// # Errors
    /// If there is no room, the drive fails, or the connection breaks: of this data, or of some before it.
    pub fn flush(&mut self) -> Result<(), FileError> {
        self.shared.expect_whole()?;
        let mut writing = lock(&self.writing);
        let is_quiet = writing.unconfirmed + writing.gathered.len() <= UNCONFIRMED_BYTES_MAX;
        writing.send(&self.shared, is_quiet)?;
        self.keep_in_mind(&mut writing);
        Ok(())
    }

    /// What was appended is durable as soon as anything is synced after this; see [`FileWriter::commit`](crate::FileWriter::commit).
    ///
    /// # Errors
    /// If there is no room, the drive fails, or the connection breaks.
    pub fn commit(&mut self) -> Result<(), FileError> {
        self.end_with(&Request::Commit)
    }

    /// All that was appended is the server's; `request` says what it does with it, and a table is whole then.
    fn end_with(&self, request: &Request<'_>) -> Result<(), FileError> {
        let mut writing = lock(&self.writing);
        writing.confirm(&self.shared, request)?;
        writing.is_committed = self.kind == FileKind::Table;
        Ok(())
    }

    /// What was appended is durable, and so is the file's name.
    ///
    /// # Errors
    /// If there is no room, the drive fails, or the connection breaks.
    pub fn sync(&mut self) -> Result<(), FileError> {
        self.begin_sync()?.finish()
    }

    /// The first half of a sync; see [`FileWriter::begin_sync`](crate::FileWriter::begin_sync).
    ///
    /// # Errors
    /// If there is no room, the drive fails, or the connection breaks.
    pub fn begin_sync(&mut self) -> Result<ClientSync, FileError> {
        self.end_with(&Request::BeginSync)?;
        Ok(ClientSync { shared: Arc::clone(&self.shared), path: self.path.clone() })
    }

    /// Ends the file: a table is there as a whole from now on.
    ///
    /// # Errors
    /// If there is no room, the drive fails, or the connection breaks.
    pub fn close(self) -> Result<(), FileError> {
        self.end(&Request::Close)
    }

    /// Ends the writer and leaves the file as it is at the server. Of a table that was not synced nothing is left.
    pub fn forget(self) {
        lock(&self.writing).gathered.clear();
        // Whoever forgets a file does not want to know.
        let _ = self.end(&Request::Forget);
    }

    fn end(&self, request: &Request<'_>) -> Result<(), FileError> {
        let mut writing = lock(&self.writing);
        if writing.link.is_none() {
            return Ok(());
        }
        let ended = self.shared.expect_whole().and_then(|()| {
            writing.send(&self.shared, true)?;
            let Some(link) = &mut writing.link else { return Err(ended()) };
            match link.ask(request) {
                Ok(Answer::Done) => Ok(()),
                Ok(Answer::Error(error)) => Err(error),
                Ok(_) => Err(self.shared.unexpected()),
                Err(error) => Err(self.shared.breaks(&error)),
            }
        });
        let link = writing.link.take();
        let mut links = lock(&self.shared.links);
        links.writers -= 1;
        // Its connection does for requests.
        if let Some(link) = link.filter(|_| links.open < REQUESTS_MAX && lock(&self.shared.broken).is_none()) {
            links.open += 1;
            links.idle.push(link);
            self.shared.freed.notify_one();
        }
        ended
    }
}

impl Drop for ClientWriter {
    fn drop(&mut self) {
        // Whoever drops a writer does not want to know.
        let _ = self.end(&Request::Close);
    }
}

/// A sync that waits for the drive.
pub struct ClientSync {
    shared: Arc<Shared>,
    path: String,
}

impl ClientSync {
    /// What had been appended when the sync began is durable.
    ///
    /// # Errors
    /// If the drive fails, or the connection breaks.
    pub fn finish(self) -> Result<(), FileError> {
        self.shared.done(&Request::FinishSync).map_err(|error| error.of(&self.path))
    }
}
