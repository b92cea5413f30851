//! The shared state holds what the users of a drive have in common: the way to it, the names, the log area and the counts.

use super::statistics::Counts;
use crate::FileError;
use crate::log_area::LogArea;
use crate::names::{Names, Node};
use crate::note::{LogExtent, Note};
use openftl_dispatch::{Dispatcher, Owned, Owner};
use openftl_media::Media;
use openftl_parts::Request;
use openftl_tables::TableFtl;
use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The drive, while a thread has it.
pub(crate) type TableOwner<'a, M> = Owner<'a, TableFtl<M>>;
/// The same, without its lock.
pub(crate) type TableOwned<M> = Owned<TableFtl<M>>;

/// The free blocks of the log area, and those that were given back and are not free before that is durable.
pub(crate) struct Area {
    pub(crate) free: LogArea,
    pub(super) leaving: VecDeque<LogExtent>,
    /// Extents given back so far, those of them that are being trimmed or free again, and those that are free again.
    pub(super) left: u64,
    pub(super) taken: u64,
    pub(super) freed: u64,
}

/// What the users of a drive share.
pub(crate) struct Shared<M: Media> {
    pub(crate) dispatcher: Dispatcher<TableFtl<M>>,
    pub(crate) names: Mutex<Names<Node>>,
    pub(crate) area: Mutex<Area>,
    pub(crate) counts: Counts,
    /// Bytes that tables could take if there were none.
    pub(crate) table_bytes_max: u64,
}

impl<M: Media> Shared<M> {
    pub(crate) fn names(&self) -> MutexGuard<'_, Names<Node>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn area(&self) -> MutexGuard<'_, Area> {
        self.area.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the end of request `tag`.
    pub(crate) fn wait<'a>(&'a self, owner: TableOwner<'a, M>, tag: u64) -> (TableOwner<'a, M>, Result<(), FileError>) {
        let (owner, ended) = self.dispatcher.wait(owner, tag);
        (owner, ended.map_err(FileError::from).and_then(|result| result.map_err(FileError::from)))
    }

    /// Everything before is durable.
    pub(crate) fn flush(&self) -> Result<(), FileError> {
        let (left, freed) = {
            let area = self.area();
            (area.left, area.freed)
        };
        // A database syncs a table and then the folder that it is in: the second time there is nothing to do.
        let changes = self.counts.changes.load(Ordering::Acquire);
        if changes == self.counts.durable.load(Ordering::Acquire) && left == freed {
            Counts::add(&self.counts.syncs_for_nothing, 1);
            return Ok(());
        }
        let mut owner = self.dispatcher.own()?;
        let (now, tag) = (owner.now, owner.tag());
        owner.drive.submit(now, tag, Request::Flush)?;
        let (owner, result) = self.wait(owner, tag);
        result?;
        self.counts.durable.fetch_max(changes, Ordering::AcqRel);
        drop(owner);
        // What was given back before is of nobody, whatever happens to the power.
        while let Some(extent) = self.next_to_free(left) {
            let trimmed = self.trim(extent);
            let mut area = self.area();
            if let Err(error) = trimmed {
                area.leaving.push_front(extent);
                area.taken -= 1;
                return Err(error);
            }
            area.free.give(extent);
            area.freed += 1;
        }
        Ok(())
    }

    /// The next extent to free, of the first `left` that were given back.
    fn next_to_free(&self, left: u64) -> Option<LogExtent> {
        let mut area = self.area();
        let extent = if area.taken < left { area.leaving.pop_front() } else { None };
        area.taken += u64::from(extent.is_some());
        extent
    }

    /// Trims an extent. Nobody may hold the log area meanwhile: whoever owns the drive may want it.
    fn trim(&self, extent: LogExtent) -> Result<(), FileError> {
        let mut owner = self.dispatcher.own()?;
        let (now, tag) = (owner.now, owner.tag());
        let trim = Request::Trim {
            first: extent.first.into(),
            blocks: extent.blocks.into(),
            durability: openftl_parts::Durability::Volatile,
        };
        owner.drive.submit(now, tag, trim)?;
        self.wait(owner, tag).1
    }

    /// Extents that no file has any more.
    pub(crate) fn give_back(&self, extents: impl IntoIterator<Item = LogExtent>) {
        let mut area = self.area();
        for extent in extents {
            area.leaving.push_back(extent);
            area.left += 1;
        }
    }

    /// Takes up to `wanted` blocks of the log area.
    pub(crate) fn take_extent(&self, wanted: u32) -> Result<LogExtent, FileError> {
        loop {
            {
                let mut area = self.area();
                if let Some(extent) = area.free.take(wanted) {
                    return Ok(extent);
                }
                if area.left == area.freed {
                    let all = area.free.blocks();
                    return Err(FileError::NoSpace(format!(
                        "the log area of {all} blocks is full; delete log files, or make a drive with a larger one"
                    )));
                }
            }
            // What was given back is free after a flush, this one or another's that is under way.
            self.flush()?;
        }
    }

    /// Writes the catalog's entry of a file that has a name.
    pub(crate) fn put(&self, node: &Node, note: &Note) -> Result<(), FileError> {
        let mut owner = self.dispatcher.own()?;
        let (now, tag) = (owner.now, owner.tag());
        owner.drive.put(now, tag, node.entry(), node.table.get().copied(), &note.encode())?;
        let ended = self.wait(owner, tag).1;
        self.has_changed();
        ended
    }

    /// Something was written that is not durable yet.
    pub(crate) fn has_changed(&self) {
        self.counts.changes.fetch_add(1, Ordering::AcqRel);
    }

    /// Takes the catalog's entry of a file away, and gives back what it has, if nobody uses it.
    pub(crate) fn forget(&self, node: &Node) -> Result<(), FileError> {
        let mut contents = node.contents();
        contents.is_deleted = true;
        if contents.is_noted {
            let mut owner = self.dispatcher.own()?;
            let (now, tag) = (owner.now, owner.tag());
            owner.drive.delete(now, tag, node.entry(), node.table.get().copied())?;
            self.wait(owner, tag).1?;
            self.has_changed();
            contents.is_noted = false;
        }
        if contents.users == 0 {
            self.give_back(std::mem::take(&mut contents.extents));
        }
        Ok(())
    }

    /// A reader or writer of a file is no more.
    pub(crate) fn leave(&self, node: &Node) {
        let mut contents = node.contents();
        contents.users -= 1;
        if contents.users > 0 {
            return;
        }
        if let (Some(table), true) = (node.table.get(), node.is_pinned.swap(false, Ordering::Relaxed)) {
            self.dispatcher.look().drive.unpin(*table);
        }
        if contents.is_deleted {
            self.give_back(std::mem::take(&mut contents.extents));
        }
    }
}
