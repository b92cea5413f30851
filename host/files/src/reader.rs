//! A file being read, by any number of threads.

use crate::files::{Counts, Shared, TableOwned, TableOwner};
use crate::names::Node;
use crate::note::LogExtent;
use crate::pieces::{available, read_pieces};
use crate::{FileError, FileKind};
use openftl_core::Frame;
use openftl_media::Media;
use openftl_parts::Request;
use openftl_tables::TableId;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

/// A file that can be read, whatever becomes of its name.
pub struct FileReader<M: Media> {
    shared: Arc<Shared<M>>,
    node: Arc<Node>,
    /// The table that is pinned for this reader.
    table: OnceLock<TableId>,
}

/// One of several reads.
pub struct ReadRequest<'a> {
    /// From this byte on.
    pub offset: u64,
    /// As much as fits.
    pub buffer: &'a mut [u8],
    /// How much that was, or why nothing was read.
    pub result: Result<usize, FileError>,
}

impl<M: Media> FileReader<M> {
    pub(crate) fn new(shared: Arc<Shared<M>>, node: Arc<Node>) -> Result<FileReader<M>, FileError> {
        node.contents().users += 1;
        let reader = FileReader { shared, node, table: OnceLock::new() };
        reader.table(&mut reader.shared.dispatcher.own()?);
        Ok(reader)
    }

    /// The file's table, once it has one.
    fn table(&self, owner: &mut TableOwner<'_, M>) -> Option<TableId> {
        let Some(table) = self.node.table.get().copied() else {
            self.node.is_awaited.store(true, Ordering::Relaxed);
            return None;
        };
        Some(*self.table.get_or_init(|| {
            owner.drive.pin(table);
            table
        }))
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
        self.node.entry()
    }

    /// Reads from `offset` on, as much as fits into `buffer`; less only at the end of the file.
    ///
    /// # Errors
    /// If the medium has lost it.
    pub fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, FileError> {
        let mut requests = [ReadRequest { offset, buffer, result: Ok(0) }];
        self.read_many(&mut requests);
        let [request] = requests;
        request.result
    }

    /// Reads all of them at a time.
    pub fn read_many(&self, requests: &mut [ReadRequest<'_>]) {
        Counts::add(&self.shared.counts.reads, requests.len() as u64);
        match self.node.kind {
            FileKind::Log => self.read_log(requests),
            FileKind::Table | FileKind::Folder => self.read_pieces(requests, None),
        }
        let read = requests.iter().filter_map(|request| request.result.as_ref().ok()).sum::<usize>();
        Counts::add(&self.shared.counts.bytes_read, read as u64);
    }

    /// Of a log file, the end may not be on the drive yet.
    fn read_log(&self, requests: &mut [ReadRequest<'_>]) {
        let contents = self.node.contents();
        let (bytes, extents) = (self.node.bytes(), contents.extents.clone());
        let on_drive = bytes - contents.tail.len() as u64;
        for request in requests.iter_mut() {
            let end = bytes.min(request.offset.saturating_add(request.buffer.len() as u64));
            let from = request.offset.max(on_drive);
            if from < end {
                let tail = &contents.tail[(from - on_drive) as usize..(end - on_drive) as usize];
                request.buffer[(from - request.offset) as usize..][..tail.len()].copy_from_slice(tail);
            }
        }
        drop(contents);
        let whole: Vec<usize> = requests.iter().map(|request| available(bytes, request)).collect();
        self.read_pieces(requests, Some((on_drive, &extents)));
        for (request, whole) in requests.iter_mut().zip(whole) {
            if request.result.is_ok() {
                request.result = Ok(whole);
            }
        }
    }

    fn read_pieces(&self, requests: &mut [ReadRequest<'_>], log: Option<(u64, &[LogExtent])>) {
        let bytes = log.map_or_else(|| self.node.bytes(), |(on_drive, _)| on_drive);
        let table = self.table.get().copied().or_else(|| self.table(&mut self.shared.dispatcher.own().ok()?));
        let locate = |block: u64, wanted: usize| match log {
            Some((_, extents)) => locate(extents, block, wanted),
            None => (block as u32, wanted),
        };
        let submit = |owned: &mut TableOwned<M>, tag: u64, place: u32, frames: &[Frame]| {
            let now = owned.now;
            match (log, table) {
                (None, Some(table)) => owned.drive.read(now, tag, table, place, frames).map_err(FileError::from),
                _ => Ok(owned.drive.submit(now, tag, Request::Read { first: place.into(), frames })?),
            }
        };
        read_pieces(&self.shared.dispatcher, requests, bytes, locate, submit);
    }
}

/// Where block `block` of a log file is in the log area, and how many of the `wanted` blocks from there on follow it.
pub(crate) fn locate(extents: &[LogExtent], mut block: u64, wanted: usize) -> (u32, usize) {
    for extent in extents {
        if block < u64::from(extent.blocks) {
            let left = (u64::from(extent.blocks) - block) as usize;
            return (extent.first + block as u32, left.min(wanted));
        }
        block -= u64::from(extent.blocks);
    }
    unreachable!("a block of a file is in one of its extents")
}

impl<M: Media> Drop for FileReader<M> {
    fn drop(&mut self) {
        if let Some(table) = self.table.get() {
            self.shared.dispatcher.look().drive.unpin(*table);
        }
        self.shared.leave(&self.node);
    }
}
