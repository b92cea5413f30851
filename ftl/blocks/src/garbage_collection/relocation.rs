//! How the blocks of a victim move: from where they are to an open chunk of the group.
//!
//! ```text
//!                            ┌── read, verify ─────────▶ frames ──▶ write ──┐
//!   valid blocks of a victim ┤                            ▲ cannot be read  ├──▶ readable ──▶ map, log
//!                            └── owners say which ──▶ queue ──▶ device copy ┘
//! ```
//!
//! [`RelocateBy::ReadAndWrite`](openftl_parts::RelocateBy) sees every block: what it cannot verify is given up, and nothing wrong is
//! written anew. [`RelocateBy::DeviceCopy`](openftl_parts::RelocateBy) has the device move them (Open-Channel 2.0, vector copy), so
//! that no payload crosses to the host; [`openftl_parts::map::owners`] says which logical blocks they are. A frame stands for each block
//! all the same, because its slot says what is on its way. A device reads before it programs: where it cannot read a block it
//! programs nothing, and the blocks of that unit are read and written to the place where the copy was to be.

use super::Collection;
use super::group::{DESTINATIONS, Group, MOVING, RESTING, Relocated, RelocationFrontier, Victim};
use crate::block_ftl::BlockFtl;
use crate::map_pages::LostBlock;
use crate::placement::KEPT_APART;
use openftl_core::{ChunkId, Frame, Ppa, VECTOR_BLOCKS_MAX};
use openftl_media::{Completion, Status};
use openftl_parts::canary::Canary;
use openftl_parts::flash::oob::{BlockKind, Oob};
use openftl_parts::flash::provisioning::Claim;
use openftl_parts::flash::reads::{ReadId, Reader};
use openftl_parts::flash::units::UnitId;
use openftl_parts::journal::log::Log;
use openftl_parts::journal::log_block::Record;
use openftl_parts::map::{Entry, Map, Place};
use openftl_parts::placement_name::Relocation;
use openftl_parts::words::{Care, Label, Purpose};

/// Reads under way in one group, at most.
pub(crate) const READS_PER_GROUP_MAX: u32 = 2;

/// Writes or copies of relocated blocks that a frontier has under way, at most. A die carries out what it is given in order: given all
/// that was read of a victim, it would keep the host, the log, and a flush that waits for either, waiting for tens of milliseconds. With
/// one it has work still, because a device takes a unit into its cache before it is programmed.
const UNITS_UNDER_WAY_MAX: usize = 1;

/// Units that one copy fills, at most.
const COPIED_UNITS_MAX: usize = 4;

/// Blocks that are being copied in one group, or wait for it, at most: the others need frames too.
pub(crate) const COPYING_PER_GROUP_MAX: u32 = READS_PER_GROUP_MAX * VECTOR_BLOCKS_MAX as u32;

/// Times that a block is read before it is given up: what is given up here is gone for good.
const READS_OF_LOST_MIN: u32 = 4;

/// No logical block.
pub(super) const NOBODY: u64 = u64::MAX;

/// A unit of relocated blocks belongs to a frontier of a group.
fn owner(group: u32, frontier: usize) -> u64 {
    u64::from(group) << 16 | frontier as u64
}

fn group_and_frontier(owner: u64) -> (u32, usize) {
    ((owner >> 16) as u32, (owner & 0xFFFF) as usize)
}

/// What a block is that was read from a place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FoundBlock {
    /// The map has this logical block there.
    Current(u64),
    /// This logical block has changed, and the place counts until its map page is merged.
    Stale(u64),
    /// It does not verify, or nobody wants it.
    Other,
}

/// For what collection reads.
#[derive(Clone, Copy)]
enum For {
    /// A victim, to write its blocks elsewhere.
    Victim(ChunkId),
    /// A unit that the device could not copy.
    Unit(UnitId),
}

/// A read of collection is known by what it is for, the group, and how often it was submitted.
impl For {
    fn owner(self, group: u32, tries: u32) -> u64 {
        let (kind, index) = match self {
            For::Victim(chunk) => (0, chunk.0),
            For::Unit(unit) => (1, unit.0),
        };
        kind << 63 | u64::from(tries) << 48 | u64::from(group) << 32 | u64::from(index)
    }

    fn of(owner: u64) -> (For, u32, u32) {
        let (index, group, tries) = (owner as u32, (owner >> 32) as u32 & 0xFFFF, (owner >> 48) as u32 & 0x7FFF);
        (if owner >> 63 == 0 { For::Victim(ChunkId(index)) } else { For::Unit(UnitId(index)) }, group, tries)
    }
}

impl Collection {
    /// The program of a relocated block failed.
    pub(crate) fn move_again(&mut self, owner: u64, frame: Frame) {
        let (group, frontier) = group_and_frontier(owner);
        self.groups[group as usize].queue_first(frontier, frame);
    }
}

impl BlockFtl {
    /// The victim that `chunk` is.
    fn victim_mut(&mut self, group: u32, chunk: ChunkId) -> &mut Victim {
        let victims = &mut self.collection.groups[group as usize].victims;
        victims.iter_mut().find(|victim| victim.chunk == chunk).expect("blocks of it are on their way")
    }

    /// Whether writing what waits on `frontier` makes room: the victims that end by it give back more than the padding takes.
    /// Where a unit is a large part of a chunk it may not, and the same victim could move to and fro for ever.
    fn push_makes_room(&self, group: u32, frontier: usize) -> bool {
        let Group { victims, frontiers, .. } = &self.collection.groups[group as usize];
        let queue = &frontiers[frontier].queue;
        let padding = queue.len().next_multiple_of(self.flash.geometry.ws_min as usize) - queue.len();
        let is_stale = |frame: &&Frame| {
            let from = self.buffer.slot(**frame).older.address();
            !self.flash.chunks.is_valid(from)
        };
        let stale = queue.iter().filter(is_stale).count();
        let freed = victims.iter().map(|victim| victim.freed as usize).sum::<usize>();
        // What is moved for another reason has its end in that.
        frontier != MOVING || victims.iter().any(|victim| victim.care.is_some()) || freed + stale > padding
    }

    /// Pushes out relocated blocks that wait for a full unit and make room by it, or wait for more behind them. Returns whether
    /// there were any.
    pub(crate) fn push_relocations(&mut self) -> bool {
        let mut pushed = false;
        for group in 0..self.flash.geometry.groups {
            for frontier in 0..self.collection.groups[group as usize].frontiers.len() {
                let waiting = &self.collection.groups[group as usize].frontiers[frontier];
                if !waiting.queue.is_empty() && !waiting.is_stalled() {
                    if !self.push_makes_room(group, frontier) {
                        continue;
                    }
                    self.collection.groups[group as usize].frontiers[frontier].push = true;
                    pushed |= self.place_on(group, frontier);
                } else if let Some(open) = waiting.open
                    && self.flash.units.wants_padding(open)
                {
                    self.flash.pad(open);
                    pushed = true;
                }
            }
        }
        if self.placement.relocation() == Relocation::WithHost && !pushed {
            let before = self.flash.statistics.programmed_for(Purpose::Padding);
            self.pad_host_frontiers();
            pushed = self.flash.statistics.programmed_for(Purpose::Padding) > before;
        }
        self.flash.stirred |= pushed;
        pushed
    }

    /// Begins to move the next valid blocks of a victim.
    pub(crate) fn move_victim(&mut self, group: u32, index: usize) {
        let victim = &mut self.collection.groups[group as usize].victims[index];
        let (chunk, mut next) = (victim.chunk, victim.next);
        let mut places = [Ppa(0); VECTOR_BLOCKS_MAX];
        let mut blocks = 0;
        while blocks < VECTOR_BLOCKS_MAX
            && let Some(block) = self.flash.chunks.next_valid(chunk, next)
        {
            places[blocks] = self.flash.format.ppa(chunk, block);
            blocks += 1;
            next = block + 1;
        }
        victim.next = next;
        victim.outstanding += blocks as u32;
        victim.scanned = blocks < VECTOR_BLOCKS_MAX;
        if blocks == 0 {
            self.end_victim_if_done(group, chunk);
            return;
        }
        let mut frames = [Frame(0); VECTOR_BLOCKS_MAX];
        let from = self.collection.frames.len() - blocks;
        for (frame, taken) in frames.iter_mut().zip(self.collection.frames.drain(from..)) {
            *frame = taken;
        }
        if self.owners.is_some() {
            self.queue_for_copy(group, chunk, &places[..blocks], &frames[..blocks]);
        } else {
            let victim = &mut self.collection.groups[group as usize].victims[index];
            victim.reading += 1;
            self.read_for_collection(group, For::Victim(chunk), &places[..blocks], &frames[..blocks]);
        }
        self.flash.stirred = true;
    }

    /// The device is to copy blocks of a victim: nothing is read.
    fn queue_for_copy(&mut self, group: u32, chunk: ChunkId, places: &[Ppa], frames: &[Frame]) {
        self.collection.groups[group as usize].copying += places.len() as u32;
        for (from, frame) in places.iter().zip(frames) {
            let block = self.owners.as_ref().expect("this drive knows them").get(*from);
            debug_assert!(
                self.buffer.base(&self.map, block) == Entry::media(*from),
                "a valid block is what the map has of its owner"
            );
            let slot = self.buffer.slot_mut(*frame);
            (slot.block, slot.older) = (block, Entry::media(*from));
            slot.set_copied(true);
            self.queue_to_move(group, chunk, *frame);
        }
    }

    fn read_for_collection(&mut self, group: u32, what: For, places: &[Ppa], frames: &[Frame]) {
        self.collection.groups[group as usize].reading += 1;
        let id = self.flash.reads.begin(Reader::Collection, what.owner(group, 1));
        let read = self.flash.reads.get_mut(id);
        for (place, frame) in places.iter().zip(frames) {
            read.add(*place, *frame);
        }
        self.flash.statistics.relocation_reads += places.len() as u64;
        self.flash.submit_read(id);
    }

    pub(crate) fn collection_read_ended(&mut self, id: ReadId, completion: Completion) {
        let read = self.flash.reads.get(id);
        let ((what, group, tries), blocks) = (For::of(read.owner), read.places().len());
        let (mut places, mut frames) = ([Ppa(0); VECTOR_BLOCKS_MAX], [Frame(0); VECTOR_BLOCKS_MAX]);
        places[..blocks].copy_from_slice(read.places());
        frames[..blocks].copy_from_slice(read.frames());
        if completion.status != Status::Success {
            self.flash.is_unusual = true;
        }
        let addresses = frames[..blocks].iter().map(|frame| Oob::peek(&self.flash.frames, *frame));
        if let Map::Whole(map) = &self.map {
            map.fetch(addresses.map(|oob| oob.map_or(0, |oob| oob.address)));
        }
        if let For::Victim(chunk) = what {
            self.victim_mut(group, chunk).reading -= 1;
        }
        let (mut lost, mut dropped) = (0u64, 0);
        for at in 0..blocks {
            let (from, frame) = (places[at], frames[at]);
            let failed = !completion.status.data_is_good() && completion.failed >> at & 1 != 0;
            let block = match if failed { FoundBlock::Other } else { self.found_at(frame, from) } {
                FoundBlock::Current(block) => Some(block),
                FoundBlock::Stale(block) => {
                    self.drop_stale(block, from);
                    None
                }
                FoundBlock::Other => None,
            };
            let is_needed = block.is_some() || self.flash.chunks.is_valid(from);
            if is_needed && block.is_none() && tries < READS_OF_LOST_MIN {
                lost |= 1 << at;
                continue;
            }
            match what {
                // Overwritten or trimmed meanwhile.
                For::Victim(_) if !is_needed => {
                    self.collection.frames.push(frame);
                    dropped += 1;
                }
                For::Victim(_) => match block {
                    Some(block) => self.move_block(group, block, from, frame),
                    None => match self.owner_of(group, from) {
                        Some(owner) => self.move_lost(group, owner, from, frame),
                        // It stays outstanding until its owner is found.
                        None => self.search_for_owner(LostBlock { group, from, frame }),
                    },
                },
                // It has its place in the unit.
                For::Unit(_) if !is_needed => {
                    self.flash.frames.zero(frame);
                    Oob { kind: BlockKind::Padding, address: 0, sequence: 0 }.seal(&mut self.flash.frames, frame);
                }
                For::Unit(_) => {
                    if block.is_none() {
                        let owner = self.owner_of(group, from).expect("drives with copies know all owners");
                        self.give_up(owner, from, frame);
                    }
                }
            }
        }
        if lost != 0 {
            if let For::Victim(chunk) = what {
                self.victim_mut(group, chunk).reading += 1;
            }
            self.flash.reads.get_mut(id).owner = what.owner(group, tries + 1);
            self.flash.read_again(id, lost);
        } else {
            self.collection.groups[group as usize].reading -= 1;
            self.flash.reads.end(id);
        }
        match what {
            For::Victim(chunk) => self.block_settled(group, chunk, dropped),
            For::Unit(unit) if lost == 0 => self.write_what_was_read(unit),
            For::Unit(_) => {}
        }
    }

    /// The device could not read what it was to copy, and has programmed nothing: the unit is read, and written where the
    /// copy was to be.
    pub(crate) fn read_instead_of_copy(&mut self, id: UnitId) {
        let unit = self.flash.units.unit(id);
        let ((group, _), used) = (group_and_frontier(unit.owner), unit.used as usize);
        let (mut places, mut frames) = ([Ppa(0); VECTOR_BLOCKS_MAX], [Frame(0); VECTOR_BLOCKS_MAX]);
        places[..used].copy_from_slice(&unit.sources()[..used]);
        frames[..used].copy_from_slice(&unit.frames()[..used]);
        self.flash.units.read_instead(id);
        self.read_for_collection(group, For::Unit(id), &places[..used], &frames[..used]);
    }

    fn write_what_was_read(&mut self, id: UnitId) {
        let unit = self.flash.units.unit(id);
        for frame in &unit.frames()[..unit.used as usize] {
            self.buffer.slot_mut(*frame).set_copied(false);
        }
        let (group, _) = group_and_frontier(unit.owner);
        self.collection.groups[group as usize].copying -= unit.used;
        self.flash.units.has_been_read(id);
        self.flash.submit_held(id);
    }

    /// The device has copied a unit.
    pub(crate) fn copy_ended(&mut self, id: UnitId) {
        let unit = self.flash.units.unit(id);
        let ((group, _), used) = (group_and_frontier(unit.owner), unit.used);
        let first = self.flash.format.ppa(unit.chunk, unit.first);
        for (index, from) in (0..).zip(&unit.sources()[..used as usize]) {
            self.flash.seals.copied(*from, Ppa(first.0 + index));
        }
        self.collection.groups[group as usize].copying -= used;
        self.flash.statistics.relocation_copies += u64::from(used);
        self.flash.units.completed(id);
    }

    /// A block of a victim waits for its unit, where it belongs.
    fn queue_to_move(&mut self, group: u32, victim: ChunkId, frame: Frame) {
        let frontier = match self.victim_mut(group, victim).care {
            Some(Care::Wear) => RESTING,
            _ => self.moving_to(group, victim, frame),
        };
        self.collection.groups[group as usize].queue(frontier, frame, self.unit_blocks);
    }

    /// What `frame` holds as it was read from `ppa`.
    pub(crate) fn found_at(&self, frame: Frame, ppa: Ppa) -> FoundBlock {
        let Ok(oob) = Oob::verify(&self.flash.frames, frame) else { return FoundBlock::Other };
        let is_in_map = oob.kind.is_of_host() && oob.address < self.map.blocks();
        let block = oob.address;
        match &self.map {
            _ if !is_in_map => FoundBlock::Other,
            Map::Whole(_) if self.buffer.base(&self.map, block) == Entry::media(ppa) => FoundBlock::Current(block),
            Map::Whole(_) => FoundBlock::Other,
            Map::Paged(_) if !self.flash.chunks.is_valid(ppa) => FoundBlock::Other,
            Map::Paged(map) if map.is_at(block, ppa) => FoundBlock::Current(block),
            Map::Paged(_) => FoundBlock::Stale(block),
        }
    }

    /// A block of a victim is in `frame`, as it was read from `from`, and waits for its unit.
    pub(super) fn move_block(&mut self, group: u32, block: u64, from: Ppa, frame: Frame) {
        let slot = self.buffer.slot_mut(frame);
        (slot.block, slot.older) = (block, Entry::media(from));
        slot.set_copied(false);
        self.queue_to_move(group, self.flash.format.chunk_of(from), frame);
    }

    /// Writes queued blocks of the group: full units, and the rest if pushed.
    pub(crate) fn place_relocations(&mut self, group: u32) {
        // Every turn of every group asks, and most have no full unit.
        if !self.collection.groups[group as usize].take_may_place() {
            return;
        }
        for frontier in 0..self.collection.groups[group as usize].frontiers.len() {
            let RelocationFrontier { queue, push, .. } = &self.collection.groups[group as usize].frontiers[frontier];
            if *push || queue.len() >= self.unit_blocks as usize {
                self.place_on(group, frontier);
            }
        }
    }

    /// Blocks of a unit that failed go elsewhere, whether or not their group is still collected.
    pub(crate) fn place_again(&mut self, failed: UnitId) {
        let (group, frontier) = group_and_frontier(self.flash.units.unit(failed).owner);
        self.place_on(group, frontier);
        // Without room they wait until it is.
        let is_stalled = self.collection.groups[group as usize].frontiers[frontier].is_stalled();
        self.collection.set_stalled(group, frontier, is_stalled && self.flash.meetings.is_marked(group));
    }

    /// Whether the chunk that `frontier` of `group` goes to has as many units under way as it may.
    fn is_full_of_units(&self, group: u32, frontier: usize) -> bool {
        let open = self.collection.groups[group as usize].frontiers[frontier].open;
        open.is_some_and(|open| self.flash.units.uncompleted(open) >= UNITS_UNDER_WAY_MAX)
    }

    /// A unit of relocated blocks has ended: another may go.
    pub(crate) fn relocation_ended(&mut self, unit: UnitId) {
        let (group, _) = group_and_frontier(self.flash.units.unit(unit).owner);
        self.collection.groups[group as usize].place_later();
    }

    /// Writes queued blocks to one of the group's relocation chunks: full units, and the rest if pushed. Returns whether
    /// any.
    pub(crate) fn place_on(&mut self, group: u32, frontier: usize) -> bool {
        let mut placed = false;
        loop {
            let is_full = self.is_full_of_units(group, frontier);
            let RelocationFrontier { queue, open, push, .. } =
                &mut self.collection.groups[group as usize].frontiers[frontier];
            let queued = queue.len();
            if queued == 0 || (queued < self.unit_blocks as usize && !*push) {
                *push = false;
                return placed;
            }
            if is_full && !*push {
                return placed;
            }
            let own = open.filter(|open| self.flash.units.room(*open) > 0);
            let open = match own {
                Some(open) => Some(open),
                None if frontier == RESTING => self.flash.open_chunk(Claim::WornRelocation(group), Label::Ordinary),
                None if frontier == MOVING => self.open_moving(group),
                None => self.open_destination(group, frontier),
            };
            let Some(open) = open else {
                self.collection.groups[group as usize].place_later();
                if frontier == MOVING || frontier == RESTING {
                    self.collection.set_stalled(group, frontier, true);
                } else {
                    // Programs failed, and what was meant for the last chunk finds none: it goes with the others.
                    let frontiers = &mut self.collection.groups[group as usize].frontiers;
                    let queue = std::mem::take(&mut frontiers[frontier].queue);
                    frontiers[frontier].push = false;
                    self.flash.statistics.placement.merged += queue.len() as u64;
                    frontiers[MOVING].queue.extend(queue);
                    self.flash.stirred = true;
                }
                return placed;
            };
            let is_shared = own.is_none() && frontier == MOVING && self.host.open.contains(&Some(open));
            self.collection.set_stalled(group, frontier, false);
            let collecting = &mut self.collection.groups[group as usize].frontiers[frontier];
            if !is_shared {
                collecting.open = Some(open);
            }
            let room = self.flash.units.room(open) as usize;
            // A unit is copied, or it is written. A few are copied at once, because blocks of one page are sensed together.
            let is_copied = |frame: &Frame| self.buffer.slot(*frame).is_copied();
            let (is_copy, unit_blocks) = (is_copied(&collecting.queue[0]), self.unit_blocks as usize);
            let copied_units = COPIED_UNITS_MAX.min(VECTOR_BLOCKS_MAX / unit_blocks);
            let largest = if is_copy { copied_units * unit_blocks } else { unit_blocks };
            let most = queued.min(largest).min(room);
            let most = if most > unit_blocks { most / unit_blocks * unit_blocks } else { most };
            let alike = collecting.queue.range(1..most).take_while(|frame| is_copied(frame) == is_copy);
            let used = 1 + alike.count();
            let count = used.next_multiple_of(self.flash.geometry.ws_min as usize);
            let (chunk, next) = (self.flash.units.chunk(open).chunk, self.flash.units.chunk(open).next);
            let first = self.flash.format.ppa(chunk, next);
            let mut unit = [self.flash.padding; VECTOR_BLOCKS_MAX];
            for (index, place) in unit[..used].iter_mut().enumerate() {
                let frame = collecting.queue.pop_front().expect("counted");
                let slot = self.buffer.slot_mut(frame);
                slot.ppa = Ppa(first.0 + index as u64);
                if let Some(owners) = &mut self.owners {
                    owners.set(slot.ppa, slot.block);
                }
                // The out-of-band bytes travel along as they were read: same block, same write, same CRC.
                *place = frame;
            }
            self.flash.chunks.place(chunk, used as u32);
            let owner = owner(group, frontier);
            if is_copy {
                let mut sources = [Ppa(0); VECTOR_BLOCKS_MAX];
                for (source, frame) in sources.iter_mut().zip(&unit[..used]) {
                    *source = self.buffer.slot(*frame).older.address();
                }
                self.flash.copy_unit(open, owner, &unit[..count], used as u32, &sources[..used]);
            } else {
                self.flash.write_unit(open, Purpose::Relocation, owner, &unit[..count], used as u32);
            }
            if frontier >= DESTINATIONS && self.flash.units.room(open) == 0 {
                self.collection.groups[group as usize].frontiers[frontier].open = None;
                self.placement.opened[KEPT_APART] -= 1;
                self.flash.provisioning.keep_apart(self.placement.kept_apart());
            }
            self.flash.stirred = true;
            placed = true;
        }
    }

    /// Whether the log can take so many relocated blocks at once.
    pub(crate) fn fits_log(&self, blocks: u32) -> bool {
        self.words_of(blocks as usize) <= Log::words_max(self.flash.geometry.ws_min)
    }

    /// Words of the log that so many relocated blocks take at most. What is said of a copy never spans two blocks of the log.
    fn words_of(&self, blocks: usize) -> usize {
        if self.flash.seals.has_copies() { 4 * blocks } else { Record::words_of_mapped(blocks, self.map.width()) }
    }

    /// Logs where a relocated block is.
    fn log_relocated(&mut self, Relocated { block, to, .. }: Relocated, last: bool) {
        let borrowed = self.flash.seals.borrowed(to);
        if borrowed != 0 {
            self.journal.log.append(&mut self.flash.frames, Record::Copied { ppa: to, borrowed });
        }
        self.journal.log.append(&mut self.flash.frames, Record::Mapped { block, ppa: to, last });
    }

    /// Enters what has moved of `whole` victims, once all of it has, as one transaction.
    fn map_whole(&mut self) {
        for group in 0..self.flash.geometry.groups {
            let victims = &mut self.collection.groups[group as usize].victims;
            let is_complete = |victim: &&mut Victim| {
                !victim.moved.is_empty() && victim.scanned && victim.moved.len() == victim.outstanding as usize
            };
            let Some(victim) = victims.iter_mut().find(is_complete) else { continue };
            let (chunk, moved) = (victim.chunk, std::mem::take(&mut victim.moved));
            if !self.journal.log.append_chunks(&mut self.flash)
                || !self.journal.log.has_room_for(self.words_of(moved.len()))
                || !self.has_room_for_changes(moved.len())
            {
                self.victim_mut(group, chunk).moved = moved;
                continue;
            }
            let mut last = None;
            for relocated in &moved {
                if self.enter_relocated(group, chunk, *relocated)
                    && let Some(before) = last.replace(*relocated)
                {
                    self.log_relocated(before, false);
                }
            }
            if let Some(last) = last {
                self.log_relocated(last, true);
            }
            self.block_settled(group, chunk, moved.len() as u32);
            self.flash.stirred = true;
        }
    }

    /// The map says where a block of `victim` is now, unless the host has overwritten or trimmed it meanwhile. Returns whether
    /// that is to be logged.
    fn enter_relocated(&mut self, group: u32, victim: ChunkId, Relocated { block, from, to }: Relocated) -> bool {
        let is_entered = match &mut self.map {
            Map::Whole(_) => self.buffer.rebase(&mut self.map, block, Entry::media(from), Entry::media(to)),
            Map::Paged(_) if !self.flash.chunks.is_valid(from) => false,
            Map::Paged(map) if map.is_at(block, from) => {
                map.moved(block, from, to);
                true
            }
            Map::Paged(map) => {
                map.drop_stale(block);
                self.flash.chunks.invalidate(from);
                false
            }
        };
        if self.flash.bugs.has(Canary::CollectionRace)
            && !is_entered
            && let Map::Whole(map) = &mut self.map
            && let Place::Media(newer) = map.get(block).place()
        {
            map.set(block, Entry::media(to));
            self.flash.chunks.invalidate(newer);
            self.flash.chunks.commit(to);
            return true;
        }
        if is_entered {
            self.flash.chunks.invalidate(from);
            self.flash.chunks.commit(to);
            self.flash.statistics.groups[group as usize].relocated += 1;
            self.placement.events.moved(victim, self.flash.chunks.label(victim), block);
        } else {
            self.flash.chunks.abandon(to);
        }
        is_entered
    }

    /// Enters relocated blocks that can be read at their new place into the map and the log.
    pub(crate) fn map_relocated(&mut self) {
        // Asked at every turn, where mostly nothing has been written.
        if self.collection.written.is_empty() && self.collection.whole == 0 {
            return;
        }
        // Collection gets by with less room for changes than the host does: it would take all that merges make.
        let may_grow = self.journal.may_grow(&self.flash) && !self.host_waits_for_changes();
        while !self.collection.written.is_empty()
            && may_grow
            && self.has_room_for_changes(VECTOR_BLOCKS_MAX)
            && self.journal.log.append_chunks(&mut self.flash)
            && self.journal.log.has_room()
        {
            let id = self.collection.written.pop_front().expect("there is a first");
            let unit = self.flash.units.unit(id);
            let ((group, _), used) = (group_and_frontier(unit.owner), unit.used as usize);
            // Blocks of one victim, which mostly follow each other, are settled together.
            let mut settled: Option<(ChunkId, u32)> = None;
            for at in 0..used {
                let frame = self.flash.units.unit(id).frames()[at];
                let slot = *self.buffer.slot(frame);
                let from = slot.older.address();
                let victim = self.flash.format.chunk_of(from);
                let relocated = Relocated { block: slot.block, from, to: slot.ppa };
                self.collection.frames.push(frame);
                if let Some((other, count)) = settled.take_if(|(chunk, _)| *chunk != victim) {
                    self.block_settled(group, other, count);
                }
                if self.collection.whole > 0 && self.victim_mut(group, victim).whole {
                    self.victim_mut(group, victim).moved.push(relocated);
                    continue;
                }
                if self.enter_relocated(group, victim, relocated) {
                    self.log_relocated(relocated, true);
                }
                settled = Some((victim, settled.map_or(0, |(_, count)| count) + 1));
            }
            if let Some((victim, count)) = settled {
                self.block_settled(group, victim, count);
            }
            self.flash.units.finish(id);
            self.flash.stirred = true;
        }
        if may_grow && self.collection.whole > 0 {
            self.map_whole();
        }
    }
}
