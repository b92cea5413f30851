//! A log file being written.
//!
//! What is appended is gathered here until there are [`GATHER_BYTES`], so that a write of a few bytes asks nothing of the drive. The last block
//! stays here until it is whole, also when it has been written: then it is written again in place.

use crate::FileError;
use crate::files::note_of_written;
use crate::log_area::{EXTENT_BLOCKS_MAX, EXTENT_BLOCKS_MIN};
use crate::names::Contents;
use crate::note::LogExtent;
use crate::pieces::take_frames;
use crate::reader::locate;
use crate::writer::FileWriter;
use openftl_core::BLOCK_BYTES;
use openftl_media::Media;
use openftl_parts::{Durability, Handle, Request, Target};
use std::sync::Arc;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// Bytes that are gathered before they are given to the drive.
pub const GATHER_BYTES: usize = 64 * 1024;

/// Blocks of one write, at most.
const WRITE_BLOCKS_MAX: usize = 64;

impl<M: Media> FileWriter<M> {
    pub(crate) fn append_to_log(&mut self, data: &[u8]) -> Result<(), FileError> {
        let mut contents = self.node.contents();
        contents.tail.extend_from_slice(data);
        contents.has_changed = true;
        self.node.set_bytes(self.node.bytes() + data.len() as u64);
        if contents.tail.len() < GATHER_BYTES {
            return Ok(());
        }
        let extents = contents.extents.len();
        self.write_out(&mut contents, false)?;
        let has_grown = contents.extents.len() > extents;
        drop(contents);
        // So that not all is lost with the power that was never synced.
        if has_grown { self.note_extents() } else { Ok(()) }
    }

    /// Writes what was gathered: whole blocks, and the last one too if it is asked for.
    fn write_out(&self, contents: &mut Contents, with_last: bool) -> Result<(), FileError> {
        let first = (self.node.bytes() - contents.tail.len() as u64) / BLOCK;
        let whole = contents.tail.len() / BLOCK_BYTES;
        let count = if with_last { contents.tail.len().div_ceil(BLOCK_BYTES) } else { whole };
        self.grow(contents, first + count as u64)?;
        let mut done = 0;
        while done < count {
            let (place, blocks) = locate(&contents.extents, first + done as u64, (count - done).min(WRITE_BLOCKS_MAX));
            let mut frames = Vec::with_capacity(blocks);
            let owner = self.shared.dispatcher.own()?;
            let (mut owner, taken) = take_frames(&self.shared.dispatcher, owner, blocks, &mut frames);
            taken?;
            for (frame, block) in frames.iter().zip(contents.tail[done * BLOCK_BYTES..].chunks(BLOCK_BYTES)) {
                let bytes = owner.drive.frames_mut().bytes_mut(*frame);
                bytes[..block.len()].copy_from_slice(block);
                bytes[block.len()..].fill(0);
            }
            let (now, tag) = (owner.now, owner.tag());
            let (durability, handle) = (Durability::Volatile, Handle::NONE);
            let write = Request::Write { first: place.into(), frames: &frames, durability, handle };
            if let Err(error) = owner.drive.submit(now, tag, write) {
                for frame in frames {
                    owner.drive.frames_mut().release(frame);
                }
                return Err(error.into());
            }
            let ended = self.shared.wait(owner, tag).1;
            self.shared.has_changed();
            ended?;
            done += blocks;
        }
        contents.tail.drain(..whole * BLOCK_BYTES);
        Ok(())
    }

    /// Takes blocks of the log area until the file has `blocks`.
    fn grow(&self, contents: &mut Contents, blocks: u64) -> Result<(), FileError> {
        let mut has: u64 = contents.extents.iter().map(|extent| u64::from(extent.blocks)).sum();
        while has < blocks {
            let wanted = (has as u32).clamp(EXTENT_BLOCKS_MIN, EXTENT_BLOCKS_MAX).max((blocks - has).min(1024) as u32);
            let taken = self.shared.take_extent(wanted)?;
            has += u64::from(taken.blocks);
            match contents.extents.last_mut() {
                Some(LogExtent { first, blocks }) if *first + *blocks == taken.first => *blocks += taken.blocks,
                _ => contents.extents.push(taken),
            }
        }
        Ok(())
    }

    pub(crate) fn truncate_log(&mut self, bytes: u64) -> Result<(), FileError> {
        let mut contents = self.node.contents();
        let on_drive = self.node.bytes() - contents.tail.len() as u64;
        contents.has_changed = true;
        if bytes >= on_drive {
            contents.tail.truncate((bytes - on_drive) as usize);
            contents.noted_bytes = contents.noted_bytes.min(bytes);
            self.node.set_bytes(bytes);
            return Ok(());
        }
        drop(contents);
        // The block that is the last one now comes back here.
        let first = bytes / BLOCK * BLOCK;
        let mut tail = vec![0; (bytes - first) as usize];
        crate::FileReader::new(Arc::clone(&self.shared), Arc::clone(&self.node))?.read(first, &mut tail)?;
        let mut contents = self.node.contents();
        contents.tail = tail;
        contents.noted_bytes = contents.noted_bytes.min(bytes);
        self.node.set_bytes(bytes);
        Ok(())
    }

    /// Everything is on its way to the drive, and the catalog knows how long the file is.
    pub(crate) fn note_log(&mut self) -> Result<(), FileError> {
        let mut contents = self.node.contents();
        if !contents.has_changed {
            return Ok(());
        }
        self.write_out(&mut contents, true)?;
        contents.has_changed = false;
        drop(contents);
        self.note_extents()
    }

    /// Tells the catalog where the file lies.
    fn note_extents(&self) -> Result<(), FileError> {
        let mut names = self.shared.names();
        let mut contents = self.node.contents();
        if contents.is_deleted {
            return Ok(());
        }
        let note = note_of_written(&self.node, &contents.path, &contents, names.next_change());
        contents.noted_bytes = note.bytes;
        self.shared.put(&self.node, &note)
    }
}
