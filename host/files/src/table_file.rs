//! A table file being written.
//!
//! Its last block, whole or not, stays here until another follows it, because a file's end may be written again. When the file
//! is synced or closed, the table is committed as it is. One that is appended to all the same is copied to a new table first: that is
//! right, and slow, and what no database does as a rule.

use crate::files::note_of;
use crate::pieces::take_frames;
use crate::writer::FileWriter;
use crate::{FileError, note::Note};
use openftl_core::{BLOCK_BYTES, Frame};
use openftl_dispatch::Until;
use openftl_media::Media;
use openftl_parts::Target;
use openftl_tables::{TableError, TableId};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// What there is of a table file only while it is written.
#[derive(Default)]
pub(crate) struct TableFile {
    /// The table, until it is committed.
    table: Option<TableId>,
    /// The last block.
    tail: Vec<u8>,
    is_committed: bool,
    pub(crate) has_failed: bool,
}

/// Why nothing more can be appended to a table.
pub fn is_whole() -> FileError {
    FileError::NotSupported(
        "a table that was synced or closed is there as a whole, and cannot be appended to".to_owned(),
    )
}

impl<M: Media> FileWriter<M> {
    pub(crate) fn append_to_table(&mut self, mut data: &[u8]) -> Result<(), FileError> {
        if data.is_empty() {
            return Ok(());
        }
        if self.table.is_committed {
            return Err(is_whole());
        }
        self.begin_table()?;
        let bytes = self.bytes() + data.len() as u64;
        let tail = &mut self.table.tail;
        let (head, rest) = data.split_at(data.len().min(BLOCK_BYTES - tail.len()));
        tail.extend_from_slice(head);
        data = rest;
        if !data.is_empty() {
            // The tail is whole, and something follows it. So does something follow all but the last block of the data.
            let whole = (data.len() - 1) / BLOCK_BYTES * BLOCK_BYTES;
            let (blocks, rest) = data.split_at(whole);
            let tail = std::mem::take(&mut self.table.tail);
            let pushed = self.push(tail.chunks(BLOCK_BYTES).chain(blocks.chunks(BLOCK_BYTES)));
            self.table.tail = tail;
            pushed?;
            self.table.tail.clear();
            self.table.tail.extend_from_slice(rest);
        }
        self.node.set_bytes(bytes);
        Ok(())
    }

    fn begin_table(&mut self) -> Result<TableId, FileError> {
        if let Some(table) = self.table.table {
            return Ok(table);
        }
        let owner = self.shared.dispatcher.own()?;
        let wish = self.wish;
        // With too many writers this one waits for another to end.
        let (mut owner, begun) = self.shared.dispatcher.wait_until(owner, 0, |owned| match owned.drive.begin(wish) {
            Err(TableError::TooManyWriters) => Until::Others,
            begun => Until::Found(begun),
        });
        let table = begun??;
        self.table.table = Some(table);
        self.table.tail.reserve(BLOCK_BYTES);
        self.node.table.set(table).expect("a file has one table");
        if self.node.is_awaited.load(Ordering::Relaxed) {
            owner.drive.pin(table);
            self.node.is_pinned.store(true, Ordering::Relaxed);
        }
        Ok(table)
    }

    /// Gives blocks to the drive; one that is not whole is the last.
    fn push<'d>(&mut self, blocks: impl Iterator<Item = &'d [u8]>) -> Result<(), FileError> {
        let table = self.table.table.expect("it was begun");
        let mut blocks = blocks.peekable();
        let mut owner = self.shared.dispatcher.own()?;
        let mut frames: Vec<Frame> = Vec::new();
        while blocks.peek().is_some() {
            let mut now = owner.now;
            let (after, room) = match owner.drive.room(now, table) {
                Ok(0) => self.shared.dispatcher.wait_until(owner, 0, |owned| {
                    let room = owned.drive.room(owned.now, table);
                    if room == Ok(0) { Until::Drive } else { Until::Found(room) }
                }),
                room => (owner, Ok(room)),
            };
            owner = after;
            let room = room?.inspect_err(|_| self.table.has_failed = true)?;
            let count =
                if owner.drive.frames().available(openftl_core::FrameForm::Bytes) > room as usize { room } else { 1 };
            let (after, taken) = take_frames(&self.shared.dispatcher, owner, count as usize, &mut frames);
            owner = after;
            taken?;
            let mut filled = 0;
            while filled < frames.len() {
                let Some(block) = blocks.next() else { break };
                let bytes = owner.drive.frames_mut().bytes_mut(frames[filled]);
                bytes[..block.len()].copy_from_slice(block);
                bytes[block.len()..].fill(0);
                filled += 1;
            }
            now = owner.now;
            owner.drive.append(now, table, &frames[..filled]);
            for frame in frames.drain(..).skip(filled) {
                owner.drive.frames_mut().release(frame);
            }
        }
        Ok(())
    }

    pub(crate) fn truncate_table(&mut self, bytes: u64) -> Result<(), FileError> {
        let cut = self.bytes() - bytes;
        if self.table.is_committed {
            self.node.set_bytes(bytes);
            return self.put_note();
        }
        if cut > self.table.tail.len() as u64 {
            return Err(FileError::NotSupported(format!(
                "a table that is being written can be cut by {} bytes now, and not by {cut}",
                self.table.tail.len()
            )));
        }
        self.table.tail.truncate(self.table.tail.len() - cut as usize);
        self.node.set_bytes(bytes);
        Ok(())
    }

    /// The note of the file under its present name; `None` if it has been deleted.
    fn note(&self) -> Option<Note> {
        let mut names = self.shared.names();
        let named = names.next_change();
        let contents = self.node.contents();
        (!contents.is_deleted).then(|| note_of(&self.node, &contents.path, &[], named))
    }

    fn put_note(&self) -> Result<(), FileError> {
        match self.note() {
            Some(note) => self.shared.put(&self.node, &note),
            None => Ok(()),
        }
    }

    pub(crate) fn commit_table(&mut self) -> Result<(), FileError> {
        if self.table.is_committed {
            return Ok(());
        }
        if self.table.has_failed {
            return Err(FileError::NoSpace("the table could not be written as a whole, and is given up".to_owned()));
        }
        let table = self.begin_table()?;
        let tail = std::mem::take(&mut self.table.tail);
        let pushed = self.push(tail.chunks(BLOCK_BYTES));
        self.table.tail = tail;
        pushed?;
        self.table.tail.clear();
        // Deleted before it was there: nobody wants it.
        let Some(note) = self.note() else { return Ok(()) };
        let mut owner = self.shared.dispatcher.own()?;
        let (now, tag) = (owner.now, owner.tag());
        owner.drive.commit(now, tag, table, &note.encode())?;
        // From here on the table is the drive's, whether it comes to be there or not.
        self.table.is_committed = true;
        let (owner, result) = self.shared.wait(owner, tag);
        drop(owner);
        self.shared.has_changed();
        result?;
        self.node.contents().is_noted = true;
        Ok(())
    }

    /// Takes the name of a table away that was not committed.
    pub(crate) fn forget_table(&mut self) {
        let mut names = self.shared.names();
        let path = self.node.contents().path.clone();
        if !self.table.is_committed && names.get(&path).is_ok_and(|node| Arc::ptr_eq(node, &self.node)) {
            names.remove(&path);
        }
    }

    /// Gives up a table that was not committed.
    pub(crate) fn abandon_table(&mut self) {
        if self.table.is_committed {
            return;
        }
        // Whoever has it open finds nothing in it.
        self.node.set_bytes(0);
        if let Some(table) = self.table.table.take()
            && let Ok(mut owner) = self.shared.dispatcher.own()
        {
            let now = owner.now;
            owner.drive.abandon(now, table);
            owner.wake_others();
        }
    }
}
