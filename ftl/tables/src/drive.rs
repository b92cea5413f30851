//! The drive: tables, the log area, and the catalog that holds them together.
//!
//! Sans-IO like every FTL: requests are begun with a tag below [`TAGS`], [`TableFtl::poll`] gives back what has ended, and
//! [`TableFtl::next_due`] says when to poll again. Names mean nothing here: an entry of the catalog has a number and a note, and
//! what the note says is the host's.
//!
//! All changes of the catalog and all writes to the log area are transactions of one block FTL, so what survives a power cut is
//! a prefix of them, in the order in which they were acknowledged. A flush makes all before it durable.

use super::Tables;
use super::catalog::{Catalog, NOTE_BYTES_MAX, Parts};
use super::columns::{TablePlacement, Wish};
use super::moving::Moved;
use super::releases::{Releases, Unnamed};
use super::request::{FoundEntry, TableDone, TableError, TableId};
use super::waits::TableWaits;
use super::writing::Room;
use openftl_blocks::block_ftl::{BlockFtl, ROUNDS_MAX};
use openftl_blocks::reading::BlockPlace;
use openftl_core::{Clock, Frame, FrameForm, Frames, Geometry, Ppa, Time};
use openftl_media::Media;
use openftl_parts::accounts::statistics::Statistics;
use openftl_parts::flash::Flash;
use openftl_parts::open_error::OpenError;
use openftl_parts::target::{BlockTarget, Done, Durability, IoError, Request, Target};
use openftl_parts::words::{AREA_COPIES, Handle};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};

/// Marks the tags of what the drive asks of itself. Those of the host are below [`TAGS`].
const OWN: u64 = 1 << 63;

/// Marks the tags of reads of tables: what they could not read is a block of the table, and not of the log area.
const OF_TABLE: u64 = 1 << 62;

/// Tags of the host are below this.
pub const TAGS: u64 = OF_TABLE;

/// A table that waits to be whole.
struct Commit {
    tag: u64,
    table: TableId,
    note: Vec<u8>,
}

/// A change of the catalog on its way.
struct Change {
    /// Writes that have not been acknowledged.
    left: u32,
    /// Whom to tell.
    tag: Option<u64>,
}

/// What was done with tables since the drive was opened.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, serde::Serialize)]
pub struct TableStatistics {
    /// Tables begun.
    pub begun: u64,
    /// Tables committed.
    pub committed: u64,
    /// Tables deleted.
    pub deleted: u64,
    /// Blocks of the catalog written.
    pub catalog_blocks: u64,
    /// Times that a writer had to wait for chunks.
    pub waits_for_chunks: u64,
}

/// A table drive. See the module.
pub struct TableFtl<M: ?Sized = dyn Media> {
    catalog: Catalog,
    /// How tables are placed that are begun from now on.
    placement: TablePlacement,
    commits: Vec<Commit>,
    releases: Releases,
    changes: FxHashMap<u64, Change>,
    next_change: u64,
    /// Parts that wait for frames, in order, with their changes, and the copies that they are written to already.
    waiting: VecDeque<(u64, Parts, u32)>,
    /// Flushes under way, and what had been acknowledged when they began.
    flushes: FxHashMap<u64, u64>,
    own_flush: bool,
    done: Vec<TableDone>,
    ended: Vec<Done>,
    pub(crate) statistics: TableStatistics,
    /// What was in the catalog when the drive was opened, until it is taken.
    pub(crate) found: Vec<FoundEntry>,
    pub(crate) tables: Tables,
    pub(crate) ftl: BlockFtl<M>,
}

impl<M: Media> Deref for TableFtl<M> {
    type Target = TableFtl;

    fn deref(&self) -> &TableFtl {
        self
    }
}

impl<M: Media> DerefMut for TableFtl<M> {
    fn deref_mut(&mut self) -> &mut TableFtl {
        self
    }
}

impl<M: Media> TableFtl<M> {
    pub(crate) fn new(ftl: BlockFtl<M>, tables: Tables, catalog: Catalog) -> TableFtl<M> {
        TableFtl {
            catalog,
            placement: TablePlacement::default(),
            commits: Vec::new(),
            releases: Releases::default(),
            changes: FxHashMap::default(),
            next_change: 0,
            waiting: VecDeque::new(),
            flushes: FxHashMap::default(),
            own_flush: false,
            done: Vec::new(),
            ended: Vec::new(),
            statistics: TableStatistics::default(),
            found: Vec::new(),
            tables,
            ftl,
        }
    }

    /// The device, for those who test what the FTL bears.
    pub fn media_mut(&mut self) -> &mut M {
        self.ftl.media_mut()
    }
}

impl<M: Media + ?Sized> TableFtl<M> {
    /// The block FTL below: its log area, accounting and recovery.
    #[must_use]
    pub fn block(&self) -> &BlockFtl<M> {
        &self.ftl
    }
}

impl TableFtl {
    /// What was in the catalog when the drive was opened, until it is taken.
    #[must_use]
    pub fn found(&self) -> &[FoundEntry] {
        &self.found
    }

    /// The same, once.
    pub fn take_found(&mut self) -> Vec<FoundEntry> {
        std::mem::take(&mut self.found)
    }

    /// How tables are placed that are begun from now on.
    pub fn place_tables(&mut self, placement: TablePlacement) {
        self.placement = placement;
    }

    /// What happened since the drive was opened.
    #[must_use]
    pub fn statistics(&self) -> (&Statistics, &TableStatistics) {
        (self.ftl.statistics(), &self.statistics)
    }

    /// Tables in the catalog, in the order of their numbers: their slots, numbers and blocks.
    pub(crate) fn tables(&self) -> impl Iterator<Item = (u32, u64, u32)> {
        let slots = (0..).zip(&self.tables.slots);
        let tables = slots.filter_map(|(slot, table)| table.as_ref().map(|table| (slot, table.number, table.blocks)));
        let mut tables: Vec<_> = tables.filter(|(_, number, _)| self.catalog.has(*number)).collect();
        tables.sort_unstable_by_key(|(_, number, _)| *number);
        tables.into_iter()
    }

    /// How many tables are in the catalog, and how many blocks they have in all.
    #[must_use]
    pub fn committed(&self) -> (u64, u64) {
        self.tables().fold((0, 0), |(tables, all), (_, _, blocks)| (tables + 1, all + u64::from(blocks)))
    }

    /// How long units of tables waited.
    #[must_use]
    pub fn waits(&self) -> TableWaits {
        self.tables.waits.total
    }

    /// The state of the parts in one line, for messages about what should never happen.
    #[must_use]
    pub fn describe(&self) -> String {
        format!(
            "{} tables to be committed, {} to be released, {} changes of the catalog under way, {} of its parts waiting, {} frames, {}",
            self.commits.len(),
            self.releases.waiting(),
            self.changes.len(),
            self.waiting.len(),
            self.ftl.flash.frames.available(FrameForm::Bytes),
            self.ftl.describe(),
        )
    }

    /// Blocks of the log area.
    #[must_use]
    pub fn log_blocks(&self) -> u64 {
        self.ftl.blocks() - u64::from(self.ftl.config().catalog_blocks)
    }

    /// Blocks that tables may still take now or when chunks on their way have been reset, and blocks that they could take if
    /// there were none.
    #[must_use]
    pub fn table_space(&self) -> (u64, u64) {
        self.tables.space(&self.ftl.flash)
    }

    /// Blocks of a write unit of a table.
    #[must_use]
    pub fn unit_blocks(&self) -> u32 {
        self.tables.unit_blocks
    }

    fn expect_writable(&self) -> Result<(), TableError> {
        self.ftl.read_only_reason().map_or(Ok(()), |reason| Err(TableError::ReadOnly(reason)))
    }

    /// A number for a new entry without a table.
    pub fn new_number(&mut self) -> u64 {
        self.catalog.new_number()
    }

    /// Begins a table.
    ///
    /// # Errors
    /// If the drive is read-only or too many tables are being written.
    pub fn begin(&mut self, wish: Wish) -> Result<TableId, TableError> {
        self.expect_writable()?;
        let number = self.catalog.new_number();
        let slot =
            self.tables.begin(&mut self.ftl.flash, number, self.placement, wish).ok_or(TableError::TooManyWriters)?;
        self.statistics.begun += 1;
        Ok(TableId { slot, number })
    }

    /// How many blocks can be appended to a table now; 0: not before the drive has been polled again.
    ///
    /// # Errors
    /// If there is no room, or the drive is read-only.
    pub fn room(&mut self, now: Time, table: TableId) -> Result<u32, TableError> {
        self.expect_writable()?;
        self.ftl.flash.now = self.ftl.flash.now.max(now);
        let room = self.tables.room(&mut self.ftl.flash, &mut self.ftl.journal, table.slot);
        self.ftl.hand_over();
        match room {
            Room::Blocks(blocks) => Ok(blocks),
            room => {
                self.statistics.waits_for_chunks += 1;
                if self.releases.has_unread() {
                    self.flush_for_room();
                    return Ok(0);
                }
                if room == Room::Wait { Ok(0) } else { Err(TableError::NoSpace) }
            }
        }
    }

    /// Appends blocks to a table, as many as there is room for at most. Their frames are the drive's from now on.
    pub fn append(&mut self, now: Time, table: TableId, frames: &[Frame]) {
        self.ftl.flash.now = self.ftl.flash.now.max(now);
        self.tables.append(&mut self.ftl.flash, table.slot, frames);
        self.ftl.hand_over();
    }

    /// Blocks of a table, appended or found.
    #[must_use]
    pub fn blocks_of(&self, table: TableId) -> u32 {
        self.tables.table(table.slot).blocks
    }

    /// Where block `block` of a table is on the medium; `None` if it is not there yet.
    #[must_use]
    pub fn place_on_media(&self, table: TableId, block: u32) -> Option<Ppa> {
        match self.tables.block(&self.ftl.flash, table.slot, block) {
            BlockPlace::Media(ppa) => Some(ppa),
            BlockPlace::Frame(_) => None,
        }
    }

    /// Ends a table and puts it into the catalog, with `note`, once all of it is on media. It can be read meanwhile.
    ///
    /// # Errors
    /// If it cannot be begun; the table is as it was.
    pub fn commit(&mut self, now: Time, tag: u64, table: TableId, note: &[u8]) -> Result<(), TableError> {
        self.expect_writable()?;
        expect_short(note)?;
        self.ftl.flash.now = self.ftl.flash.now.max(now);
        self.tables.end(&mut self.ftl.flash, table.slot);
        self.ftl.hand_over();
        self.commits.push(Commit { tag, table, note: note.to_vec() });
        Ok(())
    }

    /// Gives a table up that was not committed.
    pub fn abandon(&mut self, now: Time, table: TableId) {
        self.ftl.flash.now = self.ftl.flash.now.max(now);
        self.tables.abandon(&mut self.ftl.flash, table.slot);
        self.ftl.hand_over();
        self.releases.give_up(table.slot);
    }

    /// Reads blocks of a table into frames, one each.
    ///
    /// # Errors
    /// If the table has no such blocks.
    pub fn read(
        &mut self,
        now: Time,
        tag: u64,
        table: TableId,
        first: u32,
        frames: &[Frame],
    ) -> Result<(), TableError> {
        let (blocks, count) = (self.blocks_of(table), frames.len() as u32);
        if first.checked_add(count).is_none_or(|end| end > blocks) {
            return Err(TableError::OutOfRange { first, count, blocks });
        }
        self.ftl.flash.now = self.ftl.flash.now.max(now);
        let place = |flash: &Flash, block: u32| self.tables.block(flash, table.slot, block);
        self.ftl.read_elsewhere(tag | OF_TABLE, table.number, first, frames, place);
        Ok(())
    }

    /// Writes an entry: a new one, or another note for one that is there. `table` is its table, if it has one, which has to be
    /// committed.
    ///
    /// # Errors
    /// If the catalog has no room for it.
    pub fn put(
        &mut self,
        now: Time,
        tag: u64,
        number: u64,
        table: Option<TableId>,
        note: &[u8],
    ) -> Result<(), TableError> {
        self.expect_writable()?;
        expect_short(note)?;
        self.ftl.flash.now = self.ftl.flash.now.max(now);
        let runs =
            table.map(|table| self.tables.runs(&self.ftl.flash, table.slot).expect("a committed table is on media"));
        let parts = self.catalog.put(number, note, runs.as_ref()).ok_or(TableError::CatalogFull)?;
        self.change(parts, Some(tag));
        Ok(())
    }

    /// Deletes an entry and its table, which can be read for as long as it is [pinned](TableFtl::pin).
    ///
    /// # Errors
    /// If the drive is read-only.
    pub fn delete(&mut self, now: Time, tag: u64, number: u64, table: Option<TableId>) -> Result<(), TableError> {
        self.expect_writable()?;
        self.ftl.flash.now = self.ftl.flash.now.max(now);
        let Some(parts) = self.catalog.remove(number) else {
            self.done.push(TableDone { tag, result: Ok(()), at: self.ftl.flash.now });
            return Ok(());
        };
        let change = self.change(vec![parts], Some(tag));
        if let Some(table) = table {
            self.statistics.deleted += 1;
            self.tables.delete(&mut self.ftl.flash, table.slot);
            self.releases.add(Unnamed::Table(table), change);
        }
        Ok(())
    }

    /// A table that is deleted stays readable until it is unpinned as often as it was pinned.
    pub fn pin(&mut self, table: TableId) {
        self.releases.pin(table);
    }

    /// See [`TableFtl::pin`].
    pub fn unpin(&mut self, table: TableId) {
        self.ftl.flash.stirred |= self.releases.unpin(table);
    }

    /// Reads, writes or trims blocks of the log area, or makes everything before durable.
    ///
    /// # Errors
    /// If it cannot be started; frames stay the caller's.
    pub fn submit(&mut self, now: Time, tag: u64, request: Request<'_>) -> Result<(), TableError> {
        let offset = u64::from(self.ftl.config().catalog_blocks);
        let capacity = self.log_blocks();
        let expect = |first: u64, blocks: u64| match first.checked_add(blocks) {
            Some(end) if end <= capacity => Ok(()),
            _ => Err(IoError::OutOfRange { first, blocks, capacity }),
        };
        let request = match request {
            Request::Read { first, frames } => {
                expect(first, frames.len() as u64)?;
                Request::Read { first: first + offset, frames }
            }
            Request::Write { first, frames, durability, .. } => {
                expect(first, frames.len() as u64)?;
                Request::Write { first: first + offset, frames, durability, handle: Handle::NONE }
            }
            Request::Trim { first, blocks, durability } => {
                expect(first, blocks)?;
                Request::Trim { first: first + offset, blocks, durability }
            }
            Request::Flush => {
                self.ftl.submit(now, tag, request)?;
                // A drive that lies tells the host at once, and itself nothing.
                if !self.ftl.config().lies_about_flush {
                    self.flushes.insert(tag, self.releases.acknowledged());
                }
                return Ok(());
            }
            Request::WriteUncorrectable { .. } | Request::FlashAlloc { .. } => {
                return Err(IoError::OutOfRange { first: 0, blocks: 0, capacity }.into());
            }
        };
        Ok(self.ftl.submit(now, tag, request)?)
    }

    pub(crate) fn commit_what_waits(&mut self, clock: &mut dyn Clock) -> Result<(), OpenError> {
        let mut done = Vec::new();
        let is_at_work = |drive: &TableFtl| !drive.waiting.is_empty() || !drive.commits.is_empty();
        self.poll(clock.now(), &mut done);
        while is_at_work(self) && self.ftl.flash.may_program() {
            let Some(due) = self.next_due() else { return Err(OpenError::Stopped) };
            clock.wait_until(due);
            self.poll(clock.now(), &mut done);
        }
        Ok(())
    }

    /// A request has ended: of the host, or of the drive itself.
    fn take(&mut self, Done { tag, result, at }: Done) {
        if let Some(acknowledged) = self.flushes.remove(&tag)
            && result.is_ok()
        {
            self.releases.are_durable(acknowledged);
        }
        if tag & OWN == 0 {
            let catalog = u64::from(self.ftl.config().catalog_blocks);
            let result = result.map_err(|error| match tag & OF_TABLE {
                0 => error.renamed(|block| block - catalog),
                _ => error,
            });
            self.done.push(TableDone { tag: tag & !OF_TABLE, result: result.map_err(TableError::Io), at });
            return;
        }
        if tag == OWN {
            self.own_flush = false;
            return;
        }
        let id = tag & !OWN;
        let change = self.changes.get_mut(&id).expect("a change ends once");
        change.left -= 1;
        if let Err(error) = result {
            let tag = change.tag.take();
            self.done.extend(tag.map(|tag| TableDone { tag, result: Err(self.failure(error)), at }));
            return;
        }
        if change.left == 0 {
            let change = self.changes.remove(&id).expect("it was there");
            self.releases.acknowledge(id);
            self.done.extend(change.tag.map(|tag| TableDone { tag, result: Ok(()), at }));
        }
    }

    fn failure(&self, error: IoError) -> TableError {
        match self.ftl.read_only_reason() {
            Some(reason) => TableError::ReadOnly(reason),
            None => error.into(),
        }
    }

    /// Has parts written, and says so under `tag` when they are acknowledged.
    pub(crate) fn change(&mut self, parts: Vec<Parts>, tag: Option<u64>) -> u64 {
        self.next_change += 1;
        let id = self.next_change;
        self.changes.insert(id, Change { left: AREA_COPIES * parts.len() as u32, tag });
        self.waiting.extend(parts.into_iter().map(|parts| (id, parts, 0)));
        self.write_waiting();
        id
    }

    /// Writes parts of the catalog as far as there are frames, each in the first copy and then in the second. Returns whether any was
    /// written.
    fn write_waiting(&mut self) -> bool {
        let mut has_written = false;
        let copy_blocks = copy_blocks(self.ftl.config().catalog_blocks);
        while let Some((id, parts, copy)) = self.waiting.front() {
            let mut frames: Vec<Frame> = Vec::new();
            if !self.ftl.flash.frames.acquire_many(FrameForm::Bytes, parts.blocks.len(), &mut frames) {
                break;
            }
            for (frame, bytes) in frames.iter().zip(&parts.blocks) {
                self.ftl.flash.frames.bytes_mut(*frame).copy_from_slice(&bytes[..]);
            }
            let (id, copy) = (*id, *copy);
            let first = u64::from(parts.first + copy * copy_blocks);
            // Each copy goes to groups of its own.
            let handle = Handle::of_copy(copy);
            let request = Request::Write { first, frames: &frames, durability: Durability::Volatile, handle };
            let (now, tag) = (self.ftl.flash.now, OWN | id);
            let written = self.ftl.submit(now, tag, request);
            if let Err(error) = written {
                for frame in frames {
                    self.ftl.flash.frames.release(frame);
                }
                if error == IoError::QueueFull {
                    break;
                }
                self.take(Done { tag, result: Err(error), at: now });
            } else {
                self.statistics.catalog_blocks += frames.len() as u64;
            }
            match self.waiting.front_mut() {
                Some((.., copy)) if *copy + 1 < AREA_COPIES => *copy += 1,
                _ => _ = self.waiting.pop_front(),
            }
            has_written = true;
        }
        has_written
    }

    /// Puts tables that are whole into the catalog. Returns whether there was any.
    fn commit_whole(&mut self) -> bool {
        let mut has_acted = false;
        for at in (0..self.commits.len()).rev() {
            let TableId { slot, number } = self.commits[at].table;
            let failed = match self.ftl.read_only_reason() {
                Some(reason) if !self.ftl.flash.may_program() => Some(TableError::ReadOnly(reason)),
                _ if self.tables.has_failed(slot) && self.releases.has_unread() => {
                    self.flush_for_room();
                    None
                }
                _ => self.tables.has_failed(slot).then_some(TableError::NoSpace),
            };
            if failed.is_none() && !self.tables.is_at_rest(slot) {
                continue;
            }
            has_acted = true;
            let Commit { tag, table, note } = self.commits.swap_remove(at);
            let put = match failed {
                Some(error) => Err(error),
                None => {
                    self.tables.written(&mut self.ftl.flash, slot);
                    let runs = self.tables.runs(&self.ftl.flash, slot).expect("all of it is on media");
                    self.catalog.put(number, &note, Some(&runs)).ok_or(TableError::CatalogFull)
                }
            };
            match put {
                Ok(parts) => {
                    self.statistics.committed += 1;
                    self.tables.try_moving_again(&mut self.ftl.flash);
                    self.change(parts, Some(tag));
                }
                Err(error) => {
                    self.done.push(TableDone { tag, result: Err(error), at: self.ftl.flash.now });
                    if self.tables.is_at_rest(slot) {
                        self.tables.release(&mut self.ftl.flash, slot);
                    } else {
                        self.abandon(self.ftl.flash.now, table);
                    }
                }
            }
        }
        has_acted
    }

    /// Enters into the catalog where a table is now of which a part has moved. Returns whether there was any.
    fn enter_moved(&mut self) -> bool {
        let Some(Moved { number, runs }) = self.tables.moved(&self.ftl.flash) else { return false };
        let Some(parts) = self.catalog.put_elsewhere(number, &runs) else {
            self.tables.leave_moving_table(&mut self.ftl.flash);
            return true;
        };
        let change = self.change(parts, None);
        if let Some(chunk) = self.tables.end_move(&mut self.ftl.flash) {
            self.releases.add(Unnamed::Chunk(chunk), change);
        }
        true
    }

    /// What was deleted has to be durable before there is room. No flush makes a deletion durable that is not acknowledged yet.
    fn flush_for_room(&mut self) {
        if self.releases.wants_flush() && !self.own_flush && self.ftl.flush(OWN).is_ok() {
            self.own_flush = true;
            self.flushes.insert(OWN, self.releases.acknowledged());
        }
    }
}

impl Target for TableFtl {
    type Done = TableDone;

    fn frames(&self) -> &Frames {
        self.ftl.frames()
    }

    fn frames_mut(&mut self) -> &mut Frames {
        self.ftl.frames_mut()
    }

    fn poll(&mut self, now: Time, done: &mut Vec<TableDone>) {
        for round in 0.. {
            assert!(round < ROUNDS_MAX, "{}: it works for ever, and no time passes", self.describe());
            self.ftl.poll_beside(now, &mut self.ended, &mut self.tables);
            let is_news = !self.ended.is_empty();
            for index in 0..self.ended.len() {
                let ended = self.ended[index];
                self.take(ended);
            }
            self.ended.clear();
            let has_acted = self.write_waiting()
                | self.commit_whole()
                | self.enter_moved()
                | self.releases.release(&mut self.tables, &mut self.ftl.flash);
            self.ftl.hand_over();
            if !is_news && !has_acted {
                break;
            }
        }
        done.append(&mut self.done);
    }

    fn next_due(&self) -> Option<Time> {
        if self.done.is_empty() { self.ftl.next_due() } else { Some(Time::ZERO) }
    }

    fn is_read_only(&self) -> bool {
        self.ftl.is_read_only()
    }
}

/// Blocks of both copies of a catalog that has room for an entry for each chunk of a device of this shape, and some more.
#[must_use]
pub fn catalog_blocks(geometry: &Geometry) -> u32 {
    AREA_COPIES * (geometry.chunks().min(1 << 16) as u32 + 64)
}

/// Blocks of one copy of a catalog that has so many.
pub(crate) fn copy_blocks(catalog_blocks: u32) -> u32 {
    catalog_blocks / AREA_COPIES
}

fn expect_short(note: &[u8]) -> Result<(), TableError> {
    let bytes = note.len();
    if bytes > NOTE_BYTES_MAX { Err(TableError::NoteTooLong { bytes }) } else { Ok(()) }
}
