//! What the users of files on zones share: the drive, the names, the changes that were not written yet, the catalog and the zones.
//!
//! Locks are taken in this order, and the last ones are never held while anything is waited for:
//! the file's `writing` ─ cleaning ─ names ─ catalog ─ resets ─ contents of a file ─ queue; the drive ─ zones. Whoever has the names does not
//! write the catalog.

use super::allocation::{Allocation, Lease, PlaceLifetime};
use super::catalog::{Batch, CATALOG_ZONES, Catalog, Change, Changes};
use super::node::{Node, Presence};
use super::record::ZoneExtent;
use crate::files::{Counts, FileStatistics};
use crate::names::Names;
use crate::pieces::{PIECE_BLOCKS_MAX, Told, take_frames};
use crate::{FileError, ReadRequest, pieces};
use openftl_core::{BLOCK_BYTES, Frame};
use openftl_dispatch::{Dispatcher, Owned, Owner};
use openftl_media::Media;
use openftl_parts::{Durability, Target};
use openftl_zones::{Action, Ftl, Layout, ZoneError, ZoneFtl, ZoneRequest, ZoneState, ZoneStatistics};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Files whose changes may wait for a sync, and things that leave with them; with so many one is made.
pub const QUEUE_CHANGES_MAX: usize = 256;

/// The drive, while a thread has it.
pub(super) type ZoneOwner<'a, M> = Owner<'a, ZoneFtl<M>>;

/// What only drives with files on zones have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
pub struct ZoneFigures {
    /// What was done with zones.
    pub zones: ZoneStatistics,
    /// Blocks that were written to the catalog.
    pub catalog_blocks: u64,
    /// How often the catalog has begun anew in its other zone.
    pub catalog_beginnings: u64,
    /// Blocks that moved so that a zone came free.
    pub blocks_cleaned: u64,
    /// Zones that came free so.
    pub zones_cleaned: u64,
    /// Zones that are empty now.
    pub zones_empty: usize,
    /// Zones that files are written to now.
    pub zones_open: usize,
}

/// What a drive with files on zones did since it was opened.
pub type ZoneFileStatistics = FileStatistics<ZoneFigures>;

/// What is given back when a change is durable.
enum Leaving {
    /// A file that is deleted, when nobody uses it.
    File(Arc<Node>),
    /// Blocks that a file had.
    Blocks(ZoneExtent),
}

/// Changes that were made, and not written yet.
#[derive(Default)]
struct Queue {
    changes: Changes,
    /// Bytes of their records.
    bytes: usize,
    /// Changes so far.
    count: u64,
    /// What leaves with which of them.
    leaving: Vec<(u64, Leaving)>,
}

impl Queue {
    fn insert(&mut self, (file, record): Change) {
        self.bytes += record.as_ref().map_or(0, Vec::len);
        let older = self.changes.insert(file, record).flatten();
        self.bytes -= older.map_or(0, |older| older.len());
    }

    fn take(&mut self) -> Changes {
        self.bytes = 0;
        std::mem::take(&mut self.changes)
    }

    /// Changes that could not be written come before those that were made meanwhile.
    fn put_back(&mut self, changes: Changes) {
        let newer = std::mem::replace(&mut self.changes, changes);
        self.bytes = self.changes.values().flatten().map(Vec::len).sum();
        newer.into_iter().for_each(|change| self.insert(change));
    }
}

/// See the module.
pub(super) struct Shared<M: Media> {
    pub(super) dispatcher: Dispatcher<ZoneFtl<M>>,
    pub(super) layout: Layout,
    pub(super) counts: Counts,
    pub(super) cleaning: Mutex<()>,
    names: Mutex<Names<Node>>,
    catalog: Mutex<Catalog>,
    queue: Mutex<Queue>,
    /// Whoever resets zones.
    resets: Mutex<()>,
    zones: Mutex<Allocation>,
    next_number: AtomicU64,
    /// Bytes of records in the catalog.
    recorded_bytes: AtomicUsize,
    /// Files were written since the last flush.
    has_written: AtomicBool,
    /// The drive is looked at only.
    is_inspected: bool,
    catalog_blocks: AtomicU64,
    catalog_beginnings: AtomicU64,
    pub(super) blocks_cleaned: AtomicU64,
    pub(super) zones_cleaned: AtomicU64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<M: Media> Shared<M> {
    pub(super) fn new(
        dispatcher: Dispatcher<ZoneFtl<M>>,
        names: Names<Node>,
        catalog: Catalog,
        zones: Allocation,
        next_number: u64,
        is_inspected: bool,
    ) -> Shared<M> {
        let layout = *dispatcher.look().drive.layout();
        Shared {
            dispatcher,
            layout,
            counts: Counts::default(),
            cleaning: Mutex::default(),
            names: Mutex::new(names),
            recorded_bytes: AtomicUsize::new(catalog.bytes()),
            catalog: Mutex::new(catalog),
            queue: Mutex::default(),
            resets: Mutex::default(),
            zones: Mutex::new(zones),
            next_number: AtomicU64::new(next_number),
            has_written: AtomicBool::new(false),
            is_inspected,
            catalog_blocks: AtomicU64::new(0),
            catalog_beginnings: AtomicU64::new(0),
            blocks_cleaned: AtomicU64::new(0),
            zones_cleaned: AtomicU64::new(0),
        }
    }

    pub(super) fn names(&self) -> MutexGuard<'_, Names<Node>> {
        lock(&self.names)
    }

    pub(super) fn zones(&self) -> MutexGuard<'_, Allocation> {
        lock(&self.zones)
    }

    pub(super) fn new_number(&self) -> u64 {
        self.next_number.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn space_blocks(&self) -> (u64, u64) {
        self.zones().space()
    }

    pub(super) fn statistics(&self) -> ZoneFileStatistics {
        let owner = self.dispatcher.look();
        let (block, zones) = owner.drive.statistics();
        let (zones_empty, zones_open) = self.zones().counts();
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let figures = ZoneFigures {
            zones: *zones,
            catalog_blocks: load(&self.catalog_blocks),
            catalog_beginnings: load(&self.catalog_beginnings),
            blocks_cleaned: load(&self.blocks_cleaned),
            zones_cleaned: load(&self.zones_cleaned),
            zones_empty,
            zones_open,
        };
        FileStatistics::of(&self.counts, block, owner.drive.block().media().pu_busy(), figures)
    }

    pub(super) fn expect_writable(&self) -> Result<(), FileError> {
        match self.dispatcher.look().drive.read_only_reason() {
            Some(reason) => Err(FileError::ReadOnly(format!("the drive is read-only: {reason}"))),
            None if self.is_inspected => Err(FileError::ReadOnly("the drive was opened to look at it".to_owned())),
            None => Ok(()),
        }
    }

    /// Whether the catalog can take one more file.
    pub(super) fn expect_room_in_catalog(&self) -> Result<(), FileError> {
        let bytes = lock(&self.queue).bytes + self.recorded_bytes.load(Ordering::Relaxed) + BLOCK_BYTES;
        if Catalog::is_room(bytes, self.layout.capacity) {
            return Ok(());
        }
        Err(FileError::NoSpace(format!(
            "the catalog is full: its records have more than half of the {} blocks of a zone; delete files, or make a drive with wider zones",
            self.layout.capacity
        )))
    }

    /// Waits for the end of request `tag`.
    fn wait<'a>(&'a self, owner: ZoneOwner<'a, M>, tag: u64) -> (ZoneOwner<'a, M>, Result<(), FileError>) {
        let (owner, ended) = self.dispatcher.wait(owner, tag);
        (owner, ended.map_err(FileError::from).and_then(Told::told))
    }

    /// Queues changes that belong together, and the deletion of a file with them.
    pub(super) fn change(&self, mut changes: Vec<Change>, deleted: Option<&Arc<Node>>) {
        let mut contents = deleted.map(|node| node.write());
        if let (Some(contents), Some(node)) = (&mut contents, deleted) {
            contents.presence = Presence::Deleted;
            if std::mem::take(&mut contents.is_noted) {
                changes.push((node.number, None));
            }
        }
        self.queue(changes, deleted.map(|node| Leaving::File(Arc::clone(node))));
    }

    /// Queues a change of a file that has other blocks now.
    pub(super) fn change_blocks(&self, change: Option<Change>, left: impl IntoIterator<Item = ZoneExtent>) {
        self.queue(change.into_iter().collect(), left.into_iter().map(Leaving::Blocks));
    }

    fn queue(&self, changes: Vec<Change>, leaving: impl IntoIterator<Item = Leaving>) {
        let mut queue = lock(&self.queue);
        queue.count += 1;
        changes.into_iter().for_each(|change| queue.insert(change));
        let count = queue.count;
        queue.leaving.extend(leaving.into_iter().map(|leaving| (count, leaving)));
    }

    /// Syncs if many changes wait. Nobody who has the names calls this.
    pub(super) fn write_if_long(&self) -> Result<(), FileError> {
        let is_long = {
            let queue = lock(&self.queue);
            queue.changes.len().max(queue.leaving.len()) >= QUEUE_CHANGES_MAX
        };
        match if is_long { self.sync() } else { Ok(()) } {
            // Nobody has asked for this sync; whoever does hears of it. Meanwhile files can be deleted.
            Err(FileError::NoSpace(_)) => Ok(()),
            synced => synced,
        }
    }

    /// Everything before is durable.
    pub(super) fn sync(&self) -> Result<(), FileError> {
        let wanted = lock(&self.queue).count;
        let mut catalog = lock(&self.catalog);
        if catalog.durable >= wanted {
            Counts::add(&self.counts.syncs_for_nothing, 1);
            return Ok(());
        }
        if let Some(failed) = &catalog.failed {
            return Err(failed.clone());
        }
        let (changes, count) = {
            let mut queue = lock(&self.queue);
            (queue.take(), queue.count)
        };
        if let Err(error) = catalog.expect_room(&changes).and_then(|()| self.flush_files()) {
            // The catalog is as it was: this is an error of this sync alone.
            lock(&self.queue).put_back(changes);
            return Err(error);
        }
        if let Err(error) = self.write_catalog(&mut catalog, changes) {
            // What is on media is known no more, until it is read again.
            catalog.failed = Some(error.clone());
            return Err(error);
        }
        catalog.durable = count;
        self.recorded_bytes.store(catalog.bytes(), Ordering::Relaxed);
        self.give_back(count)?;
        self.reset_dead()
    }

    /// Writes a first batch, so that the drive is one with files from now on.
    pub(super) fn begin_catalog(&self) -> Result<(), FileError> {
        self.write_catalog(&mut lock(&self.catalog), Changes::new())
    }

    /// Flushes what was written of files: step 1 of a sync.
    fn flush_files(&self) -> Result<(), FileError> {
        if self.has_written.swap(false, Ordering::AcqRel) {
            self.flush().inspect_err(|_| self.has_written.store(true, Ordering::Release))?;
        }
        Ok(())
    }

    /// Appends a batch, and flushes: steps 2 and 3 of a sync.
    fn write_catalog(&self, catalog: &mut Catalog, changes: Changes) -> Result<(), FileError> {
        let mut batch = catalog.write(changes)?;
        if let Err(error) = self.write_batch(&batch) {
            if batch.begins || !self.has_closed(batch.zone) {
                return Err(error);
            }
            // The medium of its zone has failed. What is on it counts until the other zone has everything.
            batch = catalog.begin()?;
            self.write_batch(&batch)?;
        }
        if batch.begins {
            // It does not count any more, and is emptied at the latest before it begins anew.
            let _ = self.empty(1 - batch.zone);
        }
        Ok(())
    }

    /// Whether a zone takes nothing more, ever.
    fn has_closed(&self, zone: u32) -> bool {
        matches!(self.dispatcher.look().drive.board().zone(zone).state, ZoneState::ReadOnly | ZoneState::Offline)
    }

    fn write_batch(&self, batch: &Batch) -> Result<(), FileError> {
        let Batch { zone, first, ref bytes, begins } = *batch;
        if begins {
            self.empty(zone).map_err(|error| match self.has_closed(zone) {
                true => FileError::ReadOnly(format!(
                    "zone {zone}, which is for the catalog of files, takes nothing more, and the other one is full: what was synced stays, \
                     and can be read; copy it to another drive"
                )),
                false => error,
            })?;
            self.catalog_beginnings.fetch_add(1, Ordering::Relaxed);
        }
        let blocks: Vec<&[u8]> = bytes.chunks(BLOCK_BYTES).collect();
        self.catalog_blocks.fetch_add(blocks.len() as u64, Ordering::Relaxed);
        for (piece, at) in blocks.chunks(PIECE_BLOCKS_MAX).zip((first..).step_by(PIECE_BLOCKS_MAX)) {
            let owner = self.dispatcher.own()?;
            let mut frames = Vec::with_capacity(piece.len());
            let (mut owner, taken) = take_frames(&self.dispatcher, owner, piece.len(), &mut frames);
            taken?;
            for (frame, block) in frames.iter().zip(piece) {
                owner.drive.frames_mut().bytes_mut(*frame).copy_from_slice(block);
            }
            let tag = self.write_frames(&mut owner, zone, at, &frames)?;
            self.wait(owner, tag).1?;
        }
        self.flush()
    }

    /// Begins a write; frames are released if it cannot be begun.
    fn write_frames(
        &self,
        owner: &mut Owned<ZoneFtl<M>>,
        zone: u32,
        at: u32,
        frames: &[Frame],
    ) -> Result<u64, ZoneError> {
        let (now, tag) = (owner.now, owner.tag());
        let first = u64::from(zone) * self.layout.size + u64::from(at);
        let write = ZoneRequest::Write { first, frames, durability: Durability::Volatile };
        if let Err(error) = owner.drive.submit(now, tag, write) {
            frames.iter().for_each(|frame| owner.drive.frames_mut().release(*frame));
            return Err(error);
        }
        Ok(tag)
    }

    fn flush(&self) -> Result<(), FileError> {
        let mut owner = self.dispatcher.own()?;
        let (now, tag) = (owner.now, owner.tag());
        owner.drive.submit(now, tag, ZoneRequest::Flush)?;
        self.wait(owner, tag).1
    }

    /// Resets a zone if it is not empty.
    fn empty(&self, zone: u32) -> Result<(), FileError> {
        let mut owner = self.dispatcher.own()?;
        if owner.drive.board().zone(zone).state == ZoneState::Empty {
            return Ok(());
        }
        let (now, tag) = (owner.now, owner.tag());
        let reset = ZoneRequest::Act { zone: u64::from(zone) * self.layout.size, action: Action::Reset };
        owner.drive.submit(now, tag, reset)?;
        self.wait(owner, tag).1
    }

    /// Gives back what has left with the first `count` changes, which are durable.
    fn give_back(&self, count: u64) -> Result<(), FileError> {
        let leaving: Vec<Leaving> = {
            let mut queue = lock(&self.queue);
            let (left, stays) =
                std::mem::take(&mut queue.leaving).into_iter().partition(|(change, _)| *change <= count);
            queue.leaving = stays;
            let left: Vec<(u64, Leaving)> = left;
            left.into_iter().map(|(_, leaving)| leaving).collect()
        };
        for leaving in leaving {
            match leaving {
                Leaving::Blocks(extent) => self.zones().free(extent),
                Leaving::File(node) => {
                    let mut contents = node.write();
                    contents.presence = Presence::Gone;
                    if contents.users == 0 {
                        self.free(std::mem::take(&mut contents.extents));
                    }
                }
            }
        }
        Ok(())
    }

    /// No file, and no record on media, has these blocks any more.
    pub(super) fn free(&self, extents: Vec<ZoneExtent>) {
        let mut zones = self.zones();
        extents.into_iter().for_each(|extent| zones.free(extent));
    }

    /// A reader or writer of a file is no more.
    pub(super) fn leave(&self, node: &Node) {
        let mut contents = node.write();
        contents.users -= 1;
        if contents.users == 0 && contents.presence == Presence::Gone {
            self.free(std::mem::take(&mut contents.extents));
        }
    }

    /// Resets the zones of which nothing is used. None is being reset any more that was dead before.
    pub(super) fn reset_dead(&self) -> Result<(), FileError> {
        let _resetting = lock(&self.resets);
        loop {
            // Not in the condition of the loop, which would hold the lock in its body.
            let dead = self.zones().take_dead();
            let Some(zone) = dead else { return Ok(()) };
            let reset = self.empty(zone);
            self.zones().was_reset(zone, reset.is_ok());
            match reset {
                // A zone whose medium has failed takes nothing more; the drive goes on without it.
                Err(error) if self.dispatcher.look().drive.is_read_only() => return Err(error),
                _ => {}
            }
        }
    }

    /// Waits if a zone is being reset, which may be what is missing.
    fn has_waited_for_reset(&self) -> bool {
        let is_resetting = self.zones().is_resetting();
        if is_resetting {
            drop(lock(&self.resets));
        }
        is_resetting
    }

    /// Writes whole blocks somewhere; the last one may be shorter, and is padded. `wrote` hears of each extent at once: what no file has yet
    /// cannot be cleaned.
    pub(super) fn write(
        &self,
        lifetime: PlaceLifetime,
        lease: &mut Lease,
        data: &[u8],
        is_cleaning: bool,
        mut wrote: impl FnMut(ZoneExtent),
    ) -> Result<(), FileError> {
        let blocks: Vec<&[u8]> = data.chunks(BLOCK_BYTES).collect();
        let mut done = 0;
        while done < blocks.len() {
            match self.write_some(lifetime, lease, &blocks[done..], is_cleaning) {
                Ok(Some(extent)) => {
                    done += extent.blocks as usize;
                    wrote(extent);
                }
                Ok(None) if self.has_waited_for_reset() => {}
                Ok(None) if !is_cleaning && self.make_room()? => {}
                refused => {
                    let (empty, open) = self.zones().counts();
                    return Err(refused.err().unwrap_or_else(|| {
                        FileError::NoSpace(format!(
                            "no zone has room: {empty} of {} are empty, which cleaning needs, and {open} are open; delete files, or make a \
                             larger drive",
                            self.layout.zones
                        ))
                    }));
                }
            }
        }
        Ok(())
    }

    /// Writes the first of these blocks, as many as one request has. `None` if no zone has room.
    fn write_some(
        &self,
        lifetime: PlaceLifetime,
        lease: &mut Lease,
        blocks: &[&[u8]],
        is_cleaning: bool,
    ) -> Result<Option<ZoneExtent>, FileError> {
        loop {
            let owner = self.dispatcher.own()?;
            let mut frames = Vec::with_capacity(PIECE_BLOCKS_MAX);
            let (mut owner, taken) =
                take_frames(&self.dispatcher, owner, blocks.len().min(PIECE_BLOCKS_MAX), &mut frames);
            taken?;
            let placed = self.zones().place(lifetime, lease, is_cleaning);
            let (zone, room) = placed.unwrap_or((CATALOG_ZONES, 0));
            for frame in frames.drain(frames.len().min(room as usize)..) {
                owner.drive.frames_mut().release(frame);
            }
            if frames.is_empty() {
                return Ok(None);
            }
            for (frame, block) in frames.iter().zip(blocks) {
                let bytes = owner.drive.frames_mut().bytes_mut(*frame);
                bytes[..block.len()].copy_from_slice(block);
                bytes[block.len()..].fill(0);
            }
            let extent =
                ZoneExtent { zone, first: owner.drive.board().zone(zone).written, blocks: frames.len() as u32 };
            match self.write_frames(&mut owner, zone, extent.first, &frames) {
                Ok(tag) => {
                    self.zones().wrote(zone, extent.blocks);
                    self.has_written.store(true, Ordering::Release);
                    // No file has what could not be written.
                    self.wait(owner, tag).1.inspect_err(|_| self.free(vec![extent]))?;
                    return Ok(Some(extent));
                }
                Err(error) => {
                    let mut zones = self.zones();
                    match error {
                        // Its medium has failed; what it has stays there.
                        ZoneError::ReadOnly { .. } | ZoneError::Offline { .. } => zones.lose(zone),
                        ZoneError::Full { .. } => zones.close(zone),
                        error => return Err(error.into()),
                    }
                    zones.leave(lease);
                }
            }
        }
    }

    /// Reads blocks that lie in `extents`, one behind the other, from byte 0 on.
    pub(super) fn read_pieces(&self, requests: &mut [ReadRequest<'_>], bytes: u64, extents: &[ZoneExtent]) {
        let locate = |block: u64, wanted: usize| super::node::locate(extents, block, wanted);
        let submit = |owned: &mut Owned<ZoneFtl<M>>, tag: u64, place: ZoneExtent, frames: &[Frame]| {
            let first = u64::from(place.zone) * self.layout.size + u64::from(place.first);
            let now = owned.now;
            Ok(owned.drive.submit(now, tag, ZoneRequest::Read { first, frames })?)
        };
        pieces::read_pieces(&self.dispatcher, requests, bytes, locate, submit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_each_file_only_the_last_change_waits_also_of_those_that_could_not_be_written() {
        let record = |bytes: usize| Some(vec![7; bytes]);
        let mut queue = Queue::default();
        for change in [(1, record(10)), (2, record(5)), (1, record(7))] {
            queue.insert(change);
        }
        assert_eq!(queue.bytes, 12);
        let taken = queue.take();
        assert_eq!((queue.bytes, taken.len()), (0, 2));
        for change in [(1, None), (3, record(2))] {
            queue.insert(change);
        }
        queue.put_back(taken);
        assert_eq!(queue.changes, Changes::from([(1, None), (2, record(5)), (3, record(2))]));
        assert_eq!(queue.bytes, 7);
    }
}
