//! What a host asks of tables, request by request, and what the model is told of each.

use crate::block_contents::put;
use crate::history::{Change, Kind};
use crate::played::Played;
use crate::table_contents::{note, words};
use crate::table_world::{State, Table, TableWorld};
use openftl_core::{ChunkId, Clock, Frame};
use openftl_media::{ChunkDescriptor, ChunkState};
use openftl_parts::Target;
use openftl_parts::flash::chunk_table::ChunkUse;
use openftl_tables::{TableError, TableId, Wish};

/// A request for a table under way.
pub(crate) enum Errand {
    Commit { serial: u32, change: Change },
    Change { change: Change },
    Read { serial: u32, first: u32, frames: Vec<Frame> },
}

impl TableWorld {
    /// Begins a table; gives its serial, or `None` if the drive has too many or is worn out.
    pub fn begin(&mut self, wish: Wish) -> Option<u32> {
        let result = self.ftl().begin(wish);
        let id = match result {
            Ok(id) => id,
            Err(TableError::TooManyWriters) => return None,
            Err(error) => {
                self.expect_worn_out(error);
                return None;
            }
        };
        self.serials += 1;
        let serial = self.serials;
        self.tables.push(Table { id, serial, blocks: 0, pins: 0, state: State::Writing });
        Some(serial)
    }

    /// Appends blocks to a table, waiting for room as it has to. Returns false if there was no room, or the drive is worn out.
    pub fn append(&mut self, serial: u32, blocks: u32) -> bool {
        let mut left = blocks;
        while left > 0 {
            let (id, now) = (self.id(serial), self.world.clock.now());
            let room = match self.room(id) {
                Ok(room) => room.min(left),
                Err(TableError::NoSpace) => return false,
                Err(error) => {
                    self.expect_worn_out(error);
                    return false;
                }
            };
            let mut frames = Vec::new();
            let form = self.world.config.payload;
            if room == 0 || !self.ftl().frames_mut().acquire_many(form, room as usize, &mut frames) {
                self.pump();
                continue;
            }
            let first = self.table(serial).blocks;
            let pool = self.ftl().frames_mut();
            for (block, frame) in (first..).zip(&frames) {
                put(pool.bytes_mut(*frame), words(serial, block));
            }
            self.ftl().append(now, id, &frames);
            self.world.collect_crash_points();
            self.table(serial).blocks += room;
            left -= room;
        }
        true
    }

    /// How many blocks can be appended to a table now: 0 after it was asked twice, so that there is something to wait for.
    fn room(&mut self, id: TableId) -> Result<u32, TableError> {
        let now = self.world.clock.now();
        match self.ftl().room(now, id) {
            Ok(0) => {
                self.world.poll();
                self.book();
                self.ftl().room(now, id)
            }
            room => room,
        }
    }

    /// Ends a table, to be put into the catalog with a note of so many bytes.
    pub fn commit(&mut self, serial: u32, note_bytes: usize) {
        let Table { id, blocks, .. } = *self.table(serial);
        let entry = self.entry(id.number());
        let change = self.world.begin(Kind::Put, entry, 1);
        let (now, tag) = (self.world.clock.now(), self.tag());
        let note = note(change, serial, blocks, note_bytes);
        match self.ftl().commit(now, tag, id, &note) {
            Ok(()) => {
                self.table(serial).state = State::Ended;
                self.under_way.push((tag, Errand::Commit { serial, change }));
            }
            Err(error) => {
                self.expect_worn_out(error);
                self.world.model().refuse(change);
            }
        }
        self.world.collect_crash_points();
    }

    /// Blocks of tables, and those that no table can have for now. Not counted is what was written of chunks that are not full: they
    /// are kept for the tables to come.
    pub fn used_up(&mut self) -> u64 {
        let (left, all) = self.ftl().table_space();
        let uses = self.ftl().block().chunk_uses().filter(|(_, usage, _)| *usage == ChunkUse::Tenant);
        let in_use: Vec<ChunkId> = uses.map(|(chunk, ..)| chunk).collect();
        let is_partly = |chunk: &&ChunkDescriptor| chunk.state == ChunkState::Open && in_use.contains(&chunk.chunk);
        let partly: u64 =
            self.world.chunk_report().iter().filter(is_partly).map(|chunk| u64::from(chunk.write_pointer)).sum();
        all - left - partly
    }

    /// A table of so many blocks, in the catalog.
    ///
    /// # Panics
    /// If there is no room for it.
    pub fn write_table(&mut self, blocks: u32) -> u32 {
        let table = self.begin(Wish::default()).expect("another table may be written");
        let has_room = self.append(table, blocks);
        assert!(has_room, "there is room: {:?}", self.ftl().table_space());
        self.commit(table, 30);
        self.settle();
        table
    }

    /// Fills the drive with tables of so many blocks; gives those in the catalog, and the one that found no room.
    ///
    /// # Panics
    /// If the drive takes no tables.
    pub fn fill(&mut self, blocks: u32) -> (Vec<u32>, u32) {
        let mut tables = Vec::new();
        loop {
            let table = self.begin(Wish::default()).expect("another table may be written");
            if !self.append(table, blocks) {
                return (tables, table);
            }
            self.commit(table, 20);
            self.settle();
            tables.push(table);
        }
    }

    /// Gives a table up.
    pub fn abandon(&mut self, serial: u32) {
        let (id, now) = (self.id(serial), self.world.clock.now());
        self.ftl().abandon(now, id);
        self.tables.retain(|table| table.serial != serial);
        self.world.collect_crash_points();
    }

    /// Notes something else of a table that is in the catalog.
    pub fn put(&mut self, serial: u32, note_bytes: usize) {
        let Table { id, blocks, .. } = *self.table(serial);
        self.put_entry(id.number(), Some(id), serial, blocks, note_bytes);
    }

    /// Puts an entry without a table, a new one or another note for one that is there. Returns false if the catalog is full.
    pub fn put_file(&mut self, number: Option<u64>, note_bytes: usize) -> bool {
        let new = number.is_none();
        let number = number.unwrap_or_else(|| self.ftl().new_number());
        let is_put = self.put_entry(number, None, 0, 0, note_bytes);
        if is_put && new {
            self.files.push(number);
        }
        is_put
    }

    fn put_entry(&mut self, number: u64, table: Option<TableId>, serial: u32, blocks: u32, bytes: usize) -> bool {
        let entry = self.entry(number);
        let change = self.world.begin(Kind::Put, entry, 1);
        let (now, tag) = (self.world.clock.now(), self.tag());
        let note = note(change, serial, blocks, bytes);
        self.under_way.push((tag, Errand::Change { change }));
        let result = self.ftl().put(now, tag, number, table, &note);
        if let Err(error) = result {
            if error != TableError::CatalogFull {
                self.expect_worn_out(error);
            }
            self.under_way.pop();
            self.world.model().refuse(change);
        }
        self.world.collect_crash_points();
        result.is_ok()
    }

    /// Deletes a table that is in the catalog.
    pub fn delete(&mut self, serial: u32) {
        let id = self.id(serial);
        if self.delete_entry(id.number(), Some(id)) {
            self.table(serial).state = State::Deleted;
            self.forget_deleted();
        }
    }

    /// Deletes an entry without a table.
    pub fn delete_file(&mut self, number: u64) {
        if self.delete_entry(number, None) {
            self.files.retain(|other| *other != number);
        }
    }

    fn delete_entry(&mut self, number: u64, table: Option<TableId>) -> bool {
        let entry = self.entry(number);
        let change = self.world.begin(Kind::Delete, entry, 1);
        let (now, tag) = (self.world.clock.now(), self.tag());
        self.under_way.push((tag, Errand::Change { change }));
        let result = self.ftl().delete(now, tag, number, table);
        if let Err(error) = result {
            self.expect_worn_out(error);
            self.under_way.pop();
            self.world.model().refuse(change);
        }
        self.world.collect_crash_points();
        result.is_ok()
    }

    /// A table stays readable when it is deleted.
    pub fn pin(&mut self, serial: u32) {
        let id = self.id(serial);
        self.ftl().pin(id);
        self.table(serial).pins += 1;
    }

    /// Once less than before.
    pub fn unpin(&mut self, serial: u32) {
        let id = self.id(serial);
        self.ftl().unpin(id);
        self.table(serial).pins -= 1;
        self.forget_deleted();
    }

    fn forget_deleted(&mut self) {
        self.tables.retain(|table| table.state != State::Deleted || table.pins > 0);
    }

    /// Submits a read of blocks that a table has.
    pub fn read(&mut self, serial: u32, first: u32, blocks: u32) {
        let frames = self.frames(u64::from(blocks));
        // Its commit may have been refused meanwhile.
        if self.tables.iter().all(|table| table.serial != serial) {
            frames.into_iter().for_each(|frame| self.ftl().frames_mut().release(frame));
            return;
        }
        let (id, now, tag) = (self.id(serial), self.world.clock.now(), self.tag());
        self.ftl().read(now, tag, id, first, &frames).expect("the table has these blocks");
        self.under_way.push((tag, Errand::Read { serial, first, frames }));
    }

    /// Reads block `block` of a table, however it ends.
    ///
    /// # Errors
    /// What the drive says.
    ///
    /// # Panics
    /// If the table has no such block, or the drive stops.
    pub fn try_read_table(&mut self, serial: u32, block: u32) -> Result<(), TableError> {
        self.settle();
        let (frames, id, now) = (self.frames(1), self.id(serial), self.world.clock.now());
        self.ftl().read(now, 1, id, block, &frames).expect("the table has this block");
        let mut done = Vec::new();
        loop {
            let now = self.world.clock.now();
            self.ftl().poll(now, &mut done);
            if let Some(ended) = done.pop() {
                self.ftl().frames_mut().release(frames[0]);
                return ended.result;
            }
            let due = self.ftl().next_due().expect("the read is under way");
            self.world.clock.wait_until(due);
        }
    }
}
