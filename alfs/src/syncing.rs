//! What is in memory becomes durable, as a whole: a record, and all that it needs.
//!
//! ```text
//!   idle ──▶ gathering ───────────────────▶ flushing ──▶ idle
//!            │ dirty blocks and patches      one flush
//!            │ go to logs,
//!            │ then the record to an anchor
//!            └ nothing may change meanwhile
//! ```
//!
//! An anchor is *left* before the other one is emptied: a block is written behind its records. So whoever has mounted the volume before, and goes on with his
//! records there, is refused by the drive, which takes blocks of a segment in their order only: he stops, and empties no anchor that has newer records.
//!
//! Who asks for durability waits for a record that begins after he asked; all that ask while one is under way share the next one.

use crate::block::{Kind, seal, seal_at};
use crate::cache::{Key, Slot};
use crate::inode::fields;
use crate::node_map::{block_of, nodes_of, set_address_in};
use crate::operation::{Reply, Ticket};
use crate::record::{HeadPlace, NewOwners, Record};
use crate::segments::{ANCHORS, IS_MAP, IS_NODE, Log, Owner, State};
use crate::volume::{Io, Step, Stop, Volume};
use crate::writing::slot_of;
use openftl_core::Time;
use openftl_parts::target::{AppendError, Durability, IoError, Request, SegmentTarget};
use openftl_parts::words::TRANSACTION_BLOCKS_MAX;
use std::collections::BTreeMap;

/// Changed nodes before blocks of the map are written.
const CHANGES_MAX: usize = 32_768;

/// Blocks of records in an anchor, at least, before the next whole one. Those of a mount are read one after the other.
const ANCHOR_BLOCKS: u32 = 2048;

/// Blocks of records in an anchor for each block of the whole one: so rare are whole ones.
const ANCHOR_RECORDS: u32 = 8;

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum Phase {
    #[default]
    Idle,
    Gathering,
    Flushing,
}

/// How far the anchor is left.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum Leaving {
    /// It has records, and more will follow.
    #[default]
    No,
    /// Its last block is on its way.
    UnderWay,
    /// It has its last block, or no room for one.
    Done,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Syncing {
    phase: Phase,
    /// The number of the next record, or of that which is being gathered.
    pub next: u64,
    /// The last one that is durable.
    pub durable: u64,
    /// Somebody wants everything to be durable.
    pub is_wanted: bool,
    /// When that is so, because something has changed.
    pub due: Option<Time>,
    /// The anchor with the records, and its blocks so far.
    pub anchor: u32,
    pub anchor_written: u32,
    leaving: Leaving,
    /// The record that is being gathered is whole.
    is_whole: bool,
    /// Blocks of its whole record; 0: the next one has to be whole.
    pub whole_blocks: u32,
    /// Blocks of the map of nodes that are written with the next record, though nothing of them has changed.
    pub map_moves: std::collections::BTreeSet<u32>,
    /// The next record is whole, and all blocks of the map of nodes that have changed are written with it.
    pub wants_map: bool,
    /// A block of a file was lost before it was written, and nobody has been told.
    has_lost: bool,
    /// How often a segment had failed when the last record was made.
    failures: u64,
    /// The last flush that was begun.
    flush: u64,
    is_flushing: bool,
    /// Segments that were trimmed before flush number so.
    trimmed: BTreeMap<u32, u64>,
}

impl Default for Syncing {
    fn default() -> Syncing {
        Syncing {
            phase: Phase::Idle,
            next: 1,
            durable: 0,
            is_wanted: false,
            due: None,
            anchor: 0,
            anchor_written: 0,
            leaving: Leaving::No,
            is_whole: false,
            whole_blocks: 0,
            map_moves: std::collections::BTreeSet::new(),
            wants_map: false,
            has_lost: false,
            failures: 0,
            flush: 0,
            is_flushing: false,
            trimmed: BTreeMap::new(),
        }
    }
}

impl Syncing {
    /// Whether nothing may change.
    pub fn is_gathering(&self) -> bool {
        self.phase == Phase::Gathering
    }

    /// Whether nothing is under way.
    pub fn is_idle(&self) -> bool {
        self.phase == Phase::Idle && !self.is_flushing
    }
}

impl<T: SegmentTarget> Volume<T> {
    pub(crate) fn sync(&mut self, ticket: Ticket) -> Step<Reply> {
        if self.failed.is_some() {
            self.syncs.remove(&ticket);
            return Err(Stop::DAMAGED);
        }
        if self.options.is_read_only {
            return Ok(Reply::Done);
        }
        let syncing = &mut self.syncing;
        let wanted = match self.syncs.get(&ticket) {
            Some(wanted) => *wanted,
            None => {
                // What is over is in memory, in a record that is being gathered, or in one that is durable.
                let has_changed = syncing.due.is_some();
                let wanted =
                    if has_changed || syncing.phase == Phase::Gathering { syncing.next } else { syncing.next - 1 };
                self.syncs.insert(ticket, wanted);
                wanted
            }
        };
        if syncing.durable >= wanted {
            let has_lost = std::mem::take(&mut syncing.has_lost);
            self.syncs.remove(&ticket);
            return if has_lost { Err(Stop::DAMAGED) } else { Ok(Reply::Done) };
        }
        syncing.is_wanted |= syncing.next == wanted && syncing.phase != Phase::Gathering;
        Err(Stop::Wait)
    }

    /// Goes on with what makes changes durable. Returns whether anything was done.
    pub(crate) fn go_on_syncing(&mut self) -> bool {
        if self.failed.is_some() || self.options.is_read_only {
            return false;
        }
        let is_due =
            self.syncing.is_wanted || self.syncing.wants_map || self.syncing.due.is_some_and(|due| due <= self.now);
        match self.syncing.phase {
            Phase::Idle if is_due && !self.syncing.is_flushing && !self.cleaning.evacuates() => {
                self.syncing.phase = Phase::Gathering;
                (self.syncing.is_wanted, self.syncing.due) = (false, None);
                self.cleaning.begin_record();
                self.choose_moving();
                self.gather();
                true
            }
            Phase::Idle => self.trim_useless(),
            Phase::Gathering => self.gather(),
            Phase::Flushing => false,
        }
    }

    /// Writes what is dirty, and then the record. Returns whether anything was done.
    fn gather(&mut self) -> bool {
        let left = |volume: &Self| (volume.cache.dirty(), volume.patches.pending());
        let before = left(self);
        match self.gather_all() {
            Ok(()) => true,
            Err(Stop::Wait) => {
                self.submit_runs();
                // A log may wait for a segment that is trimmed.
                let is_short = self.segments.free() == 0 && self.has_trimmed() && !self.syncing.is_flushing;
                if is_short {
                    self.begin_flush();
                }
                is_short || left(self) != before
            }
            Err(Stop::Refused(_)) => {
                self.fail("a node that is needed to write another one cannot be read");
                true
            }
        }
    }

    fn gather_all(&mut self) -> Step<()> {
        while let (_, Some(page)) = self.cache.first_dirty() {
            match self.write_page(page) {
                Err(Stop::Refused(_)) => self.lose_page(page),
                written => written?,
            }
        }
        while let (Some(node), _) = self.cache.first_dirty() {
            if !self.patch_node(node) {
                self.write_node(node)?;
            }
        }
        self.write_moving()?;
        self.write_patches()?;
        // Once the map is written, only a whole record says where.
        self.syncing.is_whole |= self.is_whole_due();
        let is_whole = self.syncing.is_whole;
        let is_too_long = self.whole_blocks_max() > self.record_blocks_max();
        let is_map_due = self.map.changes.len() > CHANGES_MAX || !self.syncing.map_moves.is_empty() || is_too_long;
        if is_whole && (self.syncing.whole_blocks > 0 && is_map_due || self.syncing.wants_map) {
            match self.write_map() {
                // It can be written with a later record, when something is free.
                Err(Stop::Wait) if self.has_no_room(Log::ColdNode) => {}
                written => written?,
            }
            self.syncing.wants_map = false;
        }
        if !self.syncing.map_moves.is_empty() {
            self.cleaning.forget_emptied();
        }
        if self.syncing.is_flushing {
            return Err(Stop::Wait);
        }
        self.submit_runs();
        self.rescue();
        if self.cleaning.evacuates() || self.cache.dirty() > 0 || self.patches.is_pending() {
            // A segment has failed: what is in it moves first.
            self.syncing.phase = Phase::Idle;
            self.syncing.is_wanted = true;
            return Ok(());
        }
        if self.writes > 0 {
            // Of a block that the drive refuses no record may say that it is there: another host may have written as far.
            return Err(Stop::Wait);
        }
        if !is_whole && self.is_whole_due() {
            // What was written anew has made the record longer than the rest of the anchor.
            return Ok(());
        }
        self.syncing.failures = self.segments.failures;
        self.write_record(is_whole)?;
        self.syncing.phase = Phase::Flushing;
        self.begin_flush();
        Ok(())
    }

    /// Whether a log cannot go on, and nothing that is under way changes that.
    fn has_no_room(&self, log: Log) -> bool {
        self.segments.room(log) == 0 && self.segments.free() == 0 && !self.has_trimmed()
    }

    fn write_page(&mut self, page: (u32, u32)) -> Step<()> {
        let (inode, index) = page;
        self.pin(inode, &[Kind::Inode])?;
        let is_directory = fields(&self.cache.node(inode).bytes).is_directory();
        let log = if is_directory { Log::HotData } else { Log::WarmData };
        let Ok(place) = self.find(inode, index.into())? else { return Err(Stop::DAMAGED) };
        self.expect_log(log, 1)?;
        let frame = self.frame()?;
        let found = self.cache.page_mut(page);
        if is_directory {
            seal(&mut found.bytes, Kind::Names, inode, self.syncing.next, self.id);
        }
        self.target.frames_mut().bytes_mut(frame).copy_from_slice(&found.bytes[..]);
        if std::mem::take(&mut found.is_new) {
            self.promised -= 1;
        }
        self.cache.clean_page(page);
        let owner = Owner { node: place.node, slot: slot_of(place, place.node == inode) };
        let address = self.append(log, owner, frame);
        let old = self.number(place);
        self.segments.release(old);
        self.set_number(place, address);
        match is_directory {
            true => self.statistics.names += 1,
            false => self.statistics.data += 1,
        }
        Ok(())
    }

    /// A block of a file cannot be written, because a node that has to name it cannot be read: it is lost, and whoever syncs next is told.
    fn lose_page(&mut self, page: (u32, u32)) {
        if self.cache.page(page).is_some_and(|page| page.is_new) {
            self.promised -= 1;
        }
        self.cache.forget(Key::Page(page.0, page.1));
        self.syncing.has_lost = true;
    }

    /// Writes a node whole, which is in memory.
    pub(crate) fn write_node(&mut self, node: u32) -> Step<()> {
        let found = self.cache.node(node);
        let (kind, old) = (found.kind, found.address);
        let log = match kind {
            Kind::Inode if fields(&found.bytes).is_directory() => Log::HotNode,
            Kind::Indirect => Log::ColdNode,
            _ => Log::WarmNode,
        };
        self.expect_log(log, 1)?;
        let frame = self.frame()?;
        let place = self.segments.next_address(log);
        let found = self.cache.node_to_write(node);
        seal_at(&mut found.bytes, kind, node, self.syncing.next, self.id, place);
        self.target.frames_mut().bytes_mut(frame).copy_from_slice(&found.bytes[..]);
        let address = self.append(log, Owner { node, slot: IS_NODE }, frame);
        match old {
            0 => self.promised -= 1,
            old => self.segments.release(old),
        }
        self.cache.clean_node(node, address);
        self.forget_patch(node);
        self.map.set(node, address);
        self.statistics.nodes += 1;
        Ok(())
    }

    /// Writes the blocks of the map of nodes that have changed.
    fn write_map(&mut self) -> Step<()> {
        while let Some(index) = self.next_map_block() {
            let is_written = self.pin_map(index)?;
            self.expect_log(Log::ColdNode, 1)?;
            let frame = self.frame()?;
            let bytes = self.target.frames_mut().bytes_mut(frame);
            match self.cache.map_slot(index) {
                Some(Slot::Here(old)) if is_written => bytes.copy_from_slice(&old[..]),
                _ => bytes.fill(0),
            }
            for (node, address) in self.map.changes.range(nodes_of(index)) {
                set_address_in(bytes, *node, *address);
            }
            let place = self.segments.next_address(Log::ColdNode);
            seal_at(bytes, Kind::NodeMap, index, self.syncing.next, self.id, place);
            let copy = Box::new(*bytes);
            let address = self.append(Log::ColdNode, Owner { node: index + 1, slot: IS_MAP }, frame);
            self.segments.release(self.map.blocks[index as usize].address);
            self.map.blocks[index as usize].address = address;
            self.cache.put_map(index, copy);
            self.map.changes.retain(|node, _| block_of(*node) != index);
            self.syncing.map_moves.remove(&index);
            self.statistics.map += 1;
        }
        Ok(())
    }

    fn next_map_block(&self) -> Option<u32> {
        let changed = self.map.changes.first_key_value().map(|(node, _)| block_of(*node));
        changed.or_else(|| self.syncing.map_moves.first().copied())
    }

    /// Whether the next record has to be a whole one.
    fn is_whole_due(&self) -> bool {
        let Syncing { whole_blocks, anchor_written, .. } = self.syncing;
        let most = (whole_blocks * ANCHOR_RECORDS).max(ANCHOR_BLOCKS).min(self.record_blocks_max());
        whole_blocks == 0
            || anchor_written + self.change_blocks_max() > most
            || self.map.changes.len() > 2 * CHANGES_MAX
            || !self.syncing.map_moves.is_empty()
            || self.syncing.wants_map
    }

    /// Blocks of records in an anchor, at most: the last block is for that which ends it. An anchor without room for it could not be left.
    fn record_blocks_max(&self) -> u32 {
        self.segments.shape.segment_blocks - 1
    }

    /// Blocks that a record of what has changed may have.
    fn change_blocks_max(&self) -> u32 {
        let owners: usize = self.segments.heads.iter().flatten().map(|head| head.owners.len() - head.recorded).sum();
        let bytes = 512
            + 8 * (self.map.unrecorded.len() + self.patches.unrecorded.len())
            + 16 * self.segments.changed()
            + 8 * owners
            + 4 * (self.doomed.len() + self.orphans.len());
        bytes.div_ceil(openftl_core::BLOCK_BYTES - crate::block::HEADER_BYTES) as u32
    }

    /// The record of what is so now.
    pub(crate) fn record(&mut self, is_whole: bool) -> Record {
        let shape = self.segments.shape;
        let changed = self.segments.take_changed();
        let segments = |segments: &mut dyn Iterator<Item = u32>| {
            let shown = segments.map(|index| {
                let mut segment = *self.segments.segment(index);
                // A trimmed one is as good as empty, once it is trimmed again.
                segment.state = if segment.state == State::Trimmed { State::Free } else { segment.state };
                (index, crate::segments::Segment { reading: 0, ..segment })
            });
            shown.collect()
        };
        let segments = match is_whole {
            true => segments(&mut (ANCHORS..shape.segments)),
            false => segments(&mut changed.into_iter()),
        };
        let mut owners = Vec::new();
        let mut heads = [None; crate::segments::LOGS];
        for (head, shown) in self.segments.heads.iter_mut().zip(&mut heads) {
            let Some(head) = head else { continue };
            *shown = Some(HeadPlace { segment: head.segment, written: head.owners.len() as u32 });
            let first = if is_whole { 0 } else { head.recorded };
            let new = head.owners[first..].to_vec();
            if !new.is_empty() {
                owners.push(NewOwners { segment: head.segment, first: first as u32, owners: new });
            }
            head.recorded = head.owners.len();
        }
        let unrecorded = std::mem::take(&mut self.map.unrecorded);
        let changes = &self.map.changes;
        let nodes = match is_whole {
            true => changes.iter().map(|(node, address)| (*node, *address)).collect(),
            false => unrecorded.iter().filter_map(|node| Some((*node, *changes.get(node)?))).collect(),
        };
        let unrecorded = std::mem::take(&mut self.patches.unrecorded);
        let place = |node: u32| (node, self.patches.address_of(node));
        let patches = match is_whole {
            true => self.patches.nodes().map(place).collect(),
            false => unrecorded.into_iter().map(place).collect(),
        };
        Record {
            is_whole,
            sequence: self.syncing.next,
            shape,
            next_generation: self.next_generation,
            files: self.files,
            map_blocks: self.map.blocks.len() as u32,
            heads,
            map: if is_whole { self.map.blocks.clone() } else { Vec::new() },
            nodes,
            patches,
            segments,
            owners,
            doomed: self.doomed.clone(),
            orphans: self.orphans.iter().copied().collect(),
        }
    }

    /// Writes the record. The frames for all of it have to be there: it is written at once.
    fn write_record(&mut self, is_whole: bool) -> Step<()> {
        let shape = self.segments.shape;
        let bound = match is_whole {
            true => self.whole_blocks_max(),
            false => self.change_blocks_max(),
        };
        if is_whole && bound > self.record_blocks_max() {
            self.fail("a record does not fit into a segment: the volume has more nodes or segments than it can have");
            return Err(Stop::Wait);
        }
        if !self.has_frames(bound as usize) {
            return Err(Stop::Wait);
        }
        self.submit_runs();
        if is_whole {
            self.leave_anchor()?;
            self.switch_anchor();
        }
        let record = self.record(is_whole);
        let blocks = record.blocks(self.id);
        assert!(blocks.len() <= bound as usize, "a record of {} blocks, of at most {bound}", blocks.len());
        let mut frames = Vec::with_capacity(blocks.len());
        for block in &blocks {
            let frame = self.frame().expect("frames were counted");
            self.target.frames_mut().bytes_mut(frame).copy_from_slice(&block[..]);
            frames.push(frame);
        }
        let written = self.syncing.anchor_written as usize + blocks.len();
        assert!(written <= self.record_blocks_max() as usize, "an anchor with {written} blocks cannot be left");
        let first = u64::from(shape.first_of(self.syncing.anchor) + self.syncing.anchor_written);
        for (frames, first) in frames.chunks(TRANSACTION_BLOCKS_MAX).zip((first..).step_by(TRANSACTION_BLOCKS_MAX)) {
            if let Err(error) = self.start_write(Io::Write, first, frames) {
                self.fail(match error {
                    IoError::ReadOnly => "the drive takes no more writes",
                    _ => "the drive does not take a record",
                });
                frames.iter().for_each(|frame| self.target.frames_mut().release(*frame));
                return Ok(());
            }
        }
        self.syncing.anchor_written += blocks.len() as u32;
        self.syncing.is_whole = false;
        if is_whole {
            self.syncing.whole_blocks = blocks.len() as u32;
        }
        self.statistics.records += blocks.len() as u64;
        self.segments.age = self.segments.age.saturating_add(1);
        self.syncing.next += 1;
        Ok(())
    }

    /// Blocks that a whole record may have.
    pub(crate) fn whole_blocks_max(&self) -> u32 {
        let owners: usize = self.segments.heads.iter().flatten().map(|head| head.owners.len()).sum();
        let bytes = 512
            + 8 * self.map.blocks.len()
            + 8 * (self.map.changes.len() + self.patches.len())
            + 16 * self.segments.shape.segments as usize
            + 8 * owners
            + 4 * (self.doomed.len() + self.orphans.len());
        bytes.div_ceil(openftl_core::BLOCK_BYTES - crate::block::HEADER_BYTES) as u32
    }

    /// Writes the block that ends the anchor, and waits for it.
    fn leave_anchor(&mut self) -> Step<()> {
        let Syncing { anchor, anchor_written, leaving, .. } = self.syncing;
        let shape = self.segments.shape;
        let has_room = (1..shape.segment_blocks).contains(&anchor_written);
        match leaving {
            Leaving::Done => return Ok(()),
            Leaving::UnderWay => return Err(Stop::Wait),
            Leaving::No if !has_room || !self.target.segment(anchor).is_writable => {
                self.syncing.leaving = Leaving::Done;
                return Ok(());
            }
            Leaving::No => {}
        }
        let frame = self.frame()?;
        let bytes = self.target.frames_mut().bytes_mut(frame);
        bytes.fill(0);
        seal(bytes, Kind::Left, anchor, self.syncing.next, self.id);
        let place = u64::from(shape.first_of(anchor) + anchor_written);
        match self.start_write(Io::Leave, place, &[frame]) {
            Ok(()) => {
                self.syncing.leaving = Leaving::UnderWay;
                self.syncing.anchor_written += 1;
                self.statistics.records += 1;
            }
            Err(error) => {
                self.target.frames_mut().release(frame);
                match error {
                    IoError::QueueFull => {}
                    IoError::ReadOnly => self.fail("the drive takes no more writes"),
                    _ => self.fail("the drive does not take the last block of an anchor"),
                }
            }
        }
        Err(Stop::Wait)
    }

    /// The block that ends the anchor is written, or was refused.
    pub(crate) fn anchor_left(&mut self, is_fine: bool) {
        self.syncing.leaving = Leaving::Done;
        if !is_fine {
            self.fail("a write behind the last record failed: the drive has failed, or another program has mounted the file system");
        }
    }

    /// The records go on in the other anchor, which is empty from now on.
    fn switch_anchor(&mut self) {
        self.syncing.anchor = 1 - self.syncing.anchor;
        (self.syncing.anchor_written, self.syncing.leaving) = (0, Leaving::No);
        let blocks = u64::from(self.segments.shape.segment_blocks);
        let first = u64::from(self.syncing.anchor) * blocks;
        let request = Request::Trim { first, blocks, durability: Durability::Volatile };
        if !self.start(Io::Trim, request) {
            self.fail("an anchor cannot be trimmed");
        }
    }

    fn begin_flush(&mut self) {
        self.syncing.flush += 1;
        self.syncing.is_flushing = true;
        let number = self.syncing.flush;
        if !self.start(Io::Flush { number }, Request::Flush) {
            self.fail("the drive does not take a flush");
        }
    }

    /// A flush has ended.
    pub(crate) fn flushed(&mut self, number: u64, result: Result<(), IoError>) {
        self.syncing.is_flushing = false;
        match result {
            Ok(()) => {}
            Err(IoError::Append(AppendError::SegmentReadOnly { .. })) => {
                // One may have failed since the record was made, which needs it.
                let has_lost = self.find_failed() || self.segments.failures != self.syncing.failures;
                if has_lost && self.syncing.phase == Phase::Flushing {
                    // The next record follows when what is of use has moved.
                    self.syncing.phase = Phase::Idle;
                    self.syncing.is_wanted = true;
                    return;
                }
            }
            Err(_) => return self.fail("the drive could not make durable what was written"),
        }
        if self.syncing.phase == Phase::Flushing {
            self.syncing.phase = Phase::Idle;
            self.syncing.durable = self.syncing.next - 1;
            self.statistics.syncs += 1;
            self.cleaning.look_again();
            self.forget_leaks();
        }
        let empty: Vec<u32> =
            self.syncing.trimmed.iter().filter(|(_, before)| **before <= number).map(|(index, _)| *index).collect();
        for index in empty {
            self.syncing.trimmed.remove(&index);
            self.segments.empty(index, self.target.segment(index).is_writable);
        }
    }

    /// Trims segments of which the last record says that nothing in them is of use: it is durable, and nothing has changed since that it does not say.
    fn trim_useless(&mut self) -> bool {
        let is_short = self.segments.free() < self.segments.shape.clean_below();
        // The flush of the last record was refused, and what it says is of no use may be needed, should it not count: unless nothing else is left to
        // make it durable with.
        let is_unsure = self.syncing.durable + 1 < self.syncing.next && self.segments.free() > 0;
        if self.syncing.is_flushing || is_unsure {
            return false;
        }
        let mut has_trimmed = false;
        for index in self.syncing_useless() {
            self.segments.trim(index);
            self.trim(index);
            has_trimmed = true;
        }
        if is_short && !self.syncing.trimmed.is_empty() {
            self.begin_flush();
            return true;
        }
        has_trimmed
    }

    /// Useless segments of which a durable record says so.
    fn syncing_useless(&self) -> Vec<u32> {
        let useless = self.segments.useless();
        useless.into_iter().filter(|index| !self.segments.has_changed(*index)).collect()
    }

    /// Trims a segment; it is empty when the next flush ends.
    pub(crate) fn trim(&mut self, index: u32) {
        self.cleaning.forget(index);
        let blocks = u64::from(self.segments.shape.segment_blocks);
        let request = Request::Trim { first: u64::from(index) * blocks, blocks, durability: Durability::Volatile };
        if !self.start(Io::Trim, request) {
            self.fail("a segment cannot be trimmed");
        }
        self.statistics.segments_trimmed += 1;
        self.syncing.trimmed.insert(index, self.syncing.flush + 1);
    }

    /// Whether trimmed segments wait for a flush.
    pub(crate) fn has_trimmed(&self) -> bool {
        !self.syncing.trimmed.is_empty()
    }
}
