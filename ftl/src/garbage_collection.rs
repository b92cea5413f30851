//! Garbage collection, as OX-Block does it: a group is marked, its victims are relocated inside the group, and the other
//! groups are left in peace. On a drive of 8 groups seven eighths of the host's requests never meet it.
//!
//! ```text
//!   victim ── read valid blocks, verify ──▶ queue ── full unit ──▶ relocation chunk ── readable ──▶ map, log
//!     │                                                                                              │
//!     └── all its blocks have moved ──▶ waits until the log says so durably ──▶ reset ──▶ free ◀─────┘
//! ```
//!
//! With [`CollectionScope::DeviceWide`] every group that is short of free chunks is marked at once, as conventional drives
//! do it. [`crate::encounters`] counts how often the host meets collection.
//!
//! Relocated blocks have open chunks of their own (the cold frontier, one a group), so that what is overwritten often and
//! what is not do not share chunks. What is moved to level wear has a second one, opened when it is needed; what a
//! [placement](crate::placement) keeps apart has more. Those are taken from what the host could have, never from the reserve, and
//! a block is meant for one only while that has room for it: whatever else happens, it finds room where all others do.
//!
//! It can always finish: each group keeps one free chunk that only relocation may open, which with the open relocation
//! chunk has room for any victim, and a victim is chosen only if it gives back more than it takes.
//!
//! Chunks are emptied in the same way because they are weak ([`crate::refresh`]) or to level wear
//! ([`crate::wear_levelling`]): one in each group at a time, marked or not, with room beyond the reserve.
//!
//! A block that cannot be read, or is not what the map says, is lost. In its place moves a block that says so
//! ([`BlockKind::Lost`]): reads of it fail until the host writes or trims it, and its chunk is used again like any other.

use crate::block::{BlockFtl, Errand, Phase};
use crate::chunk_table::{ChunkTable, ChunkUse};
use crate::config::CollectionScope;
use crate::log::Record;
use crate::mapping::{Entry, Place};
use crate::oob::{BlockKind, Oob};
use crate::placement::{KEPT_APART, Label, Relocation};
use crate::plan::RELOCATION_RESERVE_CHUNKS;
use crate::provisioning::Claim;
use crate::statistics::{Care, Purpose};
use crate::units::{OpenId, UnitId};
use openftl_core::{ChunkId, Frame, Ppa, PuId, Time, VECTOR_BLOCKS_MAX};
use openftl_media::{Completion, Media, Status};
use std::collections::VecDeque;

/// Reads under way in one group, at most.
const READS_PER_GROUP_MAX: u32 = 2;

/// Times that a block is read before it is given up: what is given up here is gone for good.
const READS_OF_LOST_MIN: u32 = 4;

/// Free chunks that a group may have beyond another whose victims are as good.
const CHUNKS_AHEAD_MAX: u32 = 2;

/// No logical block.
const NOBODY: u32 = u32::MAX;

struct Victim {
    chunk: ChunkId,
    /// The next block to look at.
    next: u32,
    scanned: bool,
    /// Blocks that were read and are not in the map at their new place yet.
    outstanding: u32,
    /// Reads of it under way.
    reading: u32,
    /// What it gives back, and the relocations that takes.
    freed: u32,
    relocations: u32,
    /// Why it is emptied, if not for its room.
    care: Option<Care>,
    /// The logical block at each place, once one of them cannot say it itself.
    owners: Option<Vec<u32>>,
}

#[derive(Default)]
struct Group {
    marked: bool,
    marked_at: Time,
    /// When it was last marked, so that groups alike take turns.
    turn: u64,
    victims: Vec<Victim>,
    reading: u32,
    /// What is moved for its room or because it is weak, what is moved because it rests, and what placement keeps apart.
    frontiers: Vec<Frontier>,
    /// Commands at the device that read, program or reset for collection.
    commands: u32,
}

/// [`Group::frontiers`]: what is moved for its room or because it is weak.
const MOVING: usize = 0;
/// [`Group::frontiers`]: what is moved because it rests. It goes to the most worn chunks, and nothing else does.
const RESTING: usize = 1;
/// The first of [`Group::frontiers`] for what placement keeps apart.
const DESTINATIONS: usize = 2;

/// Where relocated blocks of a group go.
#[derive(Default)]
struct Frontier {
    /// Blocks that wait for a full unit; their slots say what they are and where they come from.
    queue: VecDeque<Frame>,
    open: Option<OpenId>,
    /// Wanted a chunk, and got none.
    stalled: bool,
    /// Write what is queued without waiting for a full unit.
    push: bool,
}

impl Group {
    fn is_stalled(&self) -> bool {
        self.frontiers.iter().any(|frontier| frontier.stalled)
    }
}

/// A unit of relocated blocks belongs to a frontier of a group.
fn owner(group: u32, frontier: usize) -> u64 {
    u64::from(group) << 16 | frontier as u64
}

struct CollectionRead {
    group: u32,
    chunk: ChunkId,
    blocks: u32,
    /// How often it was submitted.
    tries: u32,
    places: [Ppa; VECTOR_BLOCKS_MAX],
    frames: [Frame; VECTOR_BLOCKS_MAX],
}

/// Garbage collection of a drive.
pub struct Collection {
    groups: Vec<Group>,
    turns: u64,
    marked: u32,
    /// Victims that are emptied for another reason than their room.
    cared_for: u32,
    frames: Vec<Frame>,
    reads: Vec<CollectionRead>,
    free_reads: Vec<u32>,
    /// Units whose blocks are on media and not yet in the map.
    written: VecDeque<UnitId>,
    stirred: bool,
    /// Chunks left partly written by an earlier relocation, by group.
    pub(crate) partial: Vec<Vec<(ChunkId, u32)>>,
}

impl Collection {
    /// Frames that collection needs: what can be stuck in each group, and one read at least on top.
    #[must_use]
    pub fn frames_needed(groups: u32, destinations: usize, unit_blocks: u32, mw_cunits: u32) -> usize {
        (DESTINATIONS + destinations) * groups as usize * (2 * unit_blocks + mw_cunits) as usize + 4 * VECTOR_BLOCKS_MAX
    }

    /// Nothing is collected yet.
    #[must_use]
    pub fn new(groups: u32, destinations: usize, frames: Vec<Frame>) -> Collection {
        let frontiers = || std::iter::repeat_with(Frontier::default).take(DESTINATIONS + destinations).collect();
        Collection {
            groups: (0..groups).map(|_| Group { frontiers: frontiers(), ..Group::default() }).collect(),
            turns: 0,
            marked: 0,
            cared_for: 0,
            frames,
            reads: Vec::new(),
            free_reads: Vec::new(),
            written: VecDeque::new(),
            stirred: true,
            partial: vec![Vec::new(); groups as usize],
        }
    }

    /// Free chunks have changed: look again whether a group needs collection.
    pub(crate) fn stir(&mut self) {
        self.stirred = true;
    }

    /// Whether any group is marked.
    #[inline]
    #[must_use]
    pub fn is_working(&self) -> bool {
        self.marked > 0
    }

    /// Whether relocation waits for a chunk.
    #[must_use]
    pub fn is_stalled(&self) -> bool {
        self.groups.iter().any(Group::is_stalled)
    }

    /// Whether victims are being read.
    #[must_use]
    pub fn is_reading(&self) -> bool {
        self.groups.iter().any(|group| group.reading > 0)
    }

    /// The open relocation chunks.
    pub(crate) fn open_chunks(&self) -> impl Iterator<Item = OpenId> + '_ {
        self.groups.iter().flat_map(|group| group.frontiers.iter().filter_map(|frontier| frontier.open))
    }

    /// The state of one group in a few words.
    pub(crate) fn describe(&self, group: u32) -> String {
        let Group { marked, victims, reading, frontiers, .. } = &self.groups[group as usize];
        let victims: Vec<_> = victims.iter().map(|victim| (victim.scanned, victim.outstanding)).collect();
        let frontiers: Vec<_> =
            frontiers.iter().map(|Frontier { queue, stalled, push, .. }| (queue.len(), *stalled, *push)).collect();
        format!("marked {marked}, victims {victims:?}, {reading} reads, (queued, stalled, push) {frontiers:?}")
    }

    /// Blocks of victims that hold no data any more.
    #[must_use]
    pub fn emptied_blocks(&self, chunks: &ChunkTable, blocks_per_chunk: u32) -> u64 {
        let victims = self.groups.iter().flat_map(|group| &group.victims);
        victims.map(|victim| u64::from(blocks_per_chunk - chunks.valid(victim.chunk))).sum()
    }

    pub(crate) fn command(&self, index: u32) -> (&[Ppa], &[Frame]) {
        let read = &self.reads[index as usize];
        (&read.places[..read.blocks as usize], &read.frames[..read.blocks as usize])
    }

    /// A unit of relocated blocks can be read at its new place.
    pub(crate) fn written(&mut self, unit: UnitId) {
        self.written.push_back(unit);
    }

    /// The program of a relocated block failed.
    pub(crate) fn move_again(&mut self, owner: u64, frame: Frame) {
        self.groups[(owner >> 16) as usize].frontiers[(owner & 0xFFFF) as usize].queue.push_front(frame);
    }

    pub(crate) fn is_marked(&self, group: u32) -> bool {
        self.groups[group as usize].marked
    }

    /// Whether the device reads, programs or resets for collection in `group`.
    pub(crate) fn is_at_work(&self, group: u32) -> bool {
        self.groups[group as usize].commands > 0
    }

    pub(crate) fn command_began(&mut self, group: u32) {
        self.groups[group as usize].commands += 1;
    }

    pub(crate) fn command_ended(&mut self, group: u32) {
        self.groups[group as usize].commands -= 1;
    }

    fn begin_read(&mut self, group: u32, chunk: ChunkId) -> u32 {
        self.groups[group as usize].reading += 1;
        let index = self.free_reads.pop().unwrap_or_else(|| {
            self.reads.push(CollectionRead {
                group,
                chunk,
                blocks: 0,
                tries: 1,
                places: [Ppa(0); VECTOR_BLOCKS_MAX],
                frames: [Frame(0); VECTOR_BLOCKS_MAX],
            });
            self.reads.len() as u32 - 1
        });
        let read = &mut self.reads[index as usize];
        (read.group, read.chunk, read.blocks, read.tries) = (group, chunk, 0, 1);
        index
    }
}

impl<M: Media> BlockFtl<M> {
    pub(crate) fn advance_collection(&mut self) {
        self.map_relocated();
        // On a worn-out drive every erase may cost a chunk: only for what is still to be saved.
        let wanted = self.read_only.is_none() || (self.may_program() && self.transactions.stalled);
        if self.phase != Phase::Working || !wanted {
            return;
        }
        if std::mem::take(&mut self.collection.stirred) {
            self.mark_groups(self.marked_groups());
        }
        let cares = self.cares();
        if self.collection.marked > 0 || cares {
            for group in 0..self.geometry.groups {
                if cares || self.collection.groups[group as usize].marked {
                    self.collect(group);
                }
            }
        }
    }

    /// Whether chunks are emptied, or should be, for another reason than their room.
    #[inline]
    fn cares(&self) -> bool {
        let is_wanted = self.refresh.waiting() > 0 || self.wear_levelling.due() > 0;
        self.read_only.is_none() && (is_wanted || self.collection.cared_for > 0)
    }

    /// Whether `group` should be collected now.
    ///
    /// Free chunks serve the whole drive, so what counts is how many there are in all. If there are too few, the group is
    /// collected whose victim gives back the most: then no group fills up with valid data while another has room to
    /// spare. Only a group that is about to run out is collected whatever its victim is.
    fn wants_collection(&self, group: u32) -> bool {
        if self.free_and_coming(group) < self.provisioning.fewest_in_group(group) {
            return true;
        }
        if self.config.collection == CollectionScope::DeviceWide && self.is_below_share(group) {
            return true;
        }
        let groups = 0..self.geometry.groups;
        if groups.clone().map(|group| self.free_and_coming(group)).sum::<u32>() >= self.provisioning.target() {
            return false;
        }
        let urgencies = groups.filter_map(|group| Some((group, self.chunks.urgency(group)?)));
        let Some(best) = urgencies.clone().map(|(_, (urgency, _))| urgency).min() else { return false };
        let mut alike = urgencies.filter(|(_, (urgency, slack))| *urgency <= best + slack).map(|(group, _)| group);
        if alike.clone().all(|other| other != group) {
            return false;
        }
        // Writes go round the groups: free chunks of one alone would be written one after the other.
        let ahead = self.free_and_coming(group).saturating_sub(CHUNKS_AHEAD_MAX);
        alike.all(|other| self.free_and_coming(other) >= ahead)
    }

    /// Whether `group` has less than its share of the free chunks that the drive should have.
    fn is_below_share(&self, group: u32) -> bool {
        self.free_and_coming(group) < self.provisioning.target().div_ceil(self.geometry.groups)
    }

    fn free_and_coming(&self, group: u32) -> u32 {
        let victims = self.collection.groups[group as usize].victims.len() as u32;
        self.provisioning.free_in_group(group) + self.provisioning.coming_in_group(group) + victims
    }

    /// How many groups may be marked now. While there is room the others are left in peace; when room runs short, more
    /// groups collect side by side, because a drive that waits for one group serves nobody.
    fn marked_groups(&self) -> u32 {
        match (self.config.collection, self.config.marked_groups_max) {
            (CollectionScope::DeviceWide, _) => self.geometry.groups,
            (CollectionScope::Marked, Some(most)) => most.clamp(1, self.geometry.groups),
            (CollectionScope::Marked, None) => self.room().marked_groups(self.geometry.groups),
        }
    }

    fn mark_groups(&mut self, most: u32) {
        while self.collection.marked < most {
            let neediest = (0..self.geometry.groups)
                .filter(|group| !self.collection.groups[*group as usize].marked && self.wants_collection(*group))
                .filter(|group| self.chunks.fewest_valid(*group).is_some())
                .min_by_key(|group| self.collection.groups[*group as usize].turn);
            let Some(group) = neediest else { return };
            let marked = &mut self.collection.groups[group as usize];
            self.collection.turns += 1;
            (marked.marked, marked.marked_at, marked.turn) = (true, self.now, self.collection.turns);
            self.collection.marked += 1;
            self.refresh.ask();
            self.statistics.groups[group as usize].marked += 1;
            self.stirred = true;
        }
    }

    fn unmark(&mut self, group: u32) {
        let marked = &mut self.collection.groups[group as usize];
        marked.marked = false;
        for frontier in &mut marked.frontiers {
            frontier.stalled = false;
        }
        self.collection.marked -= 1;
        self.statistics.groups[group as usize].marked_time += self.now.since(marked.marked_at);
        self.collection.stirred = true;
    }

    /// Marks every group that wants it, whatever the limit. Returns whether there was one.
    pub(crate) fn mark_all(&mut self) -> bool {
        let before = self.collection.marked;
        self.mark_groups(u32::MAX);
        self.collection.marked > before
    }

    /// Pushes out relocated blocks that wait for a full unit, or for more behind them. Returns whether there were any.
    pub(crate) fn push_relocations(&mut self) -> bool {
        let mut pushed = false;
        for group in 0..self.geometry.groups {
            for frontier in 0..self.collection.groups[group as usize].frontiers.len() {
                let Frontier { queue, open, stalled, push } =
                    &mut self.collection.groups[group as usize].frontiers[frontier];
                if !queue.is_empty() && !*stalled {
                    *push = true;
                    pushed |= self.place_on(group, frontier);
                } else if let Some(open) = *open
                    && self.units.wants_padding(open)
                {
                    self.pad(open);
                    pushed = true;
                }
            }
        }
        if self.placement.relocation() == Relocation::WithHost && !pushed {
            let before = self.statistics.programmed_for(Purpose::Padding);
            self.pad_host_frontiers();
            pushed = self.statistics.programmed_for(Purpose::Padding) > before;
        }
        self.stirred |= pushed;
        pushed
    }

    /// One group that is marked or cared for: reads victims, writes full units.
    fn collect(&mut self, group: u32) {
        loop {
            self.place_relocations(group);
            let collecting = &self.collection.groups[group as usize];
            let reading = collecting.reading;
            let is_stalled = collecting.is_stalled();
            if reading >= READS_PER_GROUP_MAX || is_stalled || self.collection.frames.len() < VECTOR_BLOCKS_MAX {
                break;
            }
            if let Some(victim) = collecting.victims.iter().position(|victim| !victim.scanned) {
                self.read_victim(group, victim);
                continue;
            }
            if let Some((chunk, care)) = self.care_victim(group) {
                self.begin_victim(group, chunk, Some(care));
                continue;
            }
            self.push_care(group);
            if !self.collection.groups[group as usize].marked {
                break;
            }
            if !self.wants_collection(group) {
                if reading == 0 {
                    self.unmark(group);
                }
                break;
            }
            let Some(chunk) = self.chunks.victim(group, self.buffer.head()) else {
                if reading == 0 {
                    self.unmark(group);
                }
                break;
            };
            if !self.has_room_for(group, MOVING, self.chunks.valid(chunk), 0) {
                break;
            }
            self.begin_victim(group, chunk, None);
        }
    }

    fn begin_victim(&mut self, group: u32, chunk: ChunkId, care: Option<Care>) {
        self.chunks.set_usage(chunk, ChunkUse::Victim, self.buffer.head());
        let relocations = self.chunks.valid(chunk);
        let freed = self.geometry.blocks_per_chunk - relocations;
        if let (Some(lifetimes), Label::Brief, None) = (&mut self.placement.lifetimes, self.chunks.label(chunk), care) {
            lifetimes.collected(self.buffer.head() - self.chunks.opened_at(chunk));
        }
        match care {
            None => self.statistics.groups[group as usize].victims += 1,
            Some(care) => {
                let moved = &mut self.statistics.cared[care as usize];
                moved.chunks += 1;
                moved.blocks += u64::from(relocations);
            }
        }
        if relocations == 0 {
            self.transactions.earn(self.earned_by(freed, 0));
        }
        self.collection.cared_for += u32::from(care.is_some());
        let victim = Victim {
            chunk,
            next: 0,
            scanned: false,
            outstanding: 0,
            reading: 0,
            freed,
            relocations,
            care,
            owners: None,
        };
        self.collection.groups[group as usize].victims.push(victim);
        self.stirred = true;
    }

    /// The chunk of `group` to be emptied next for another reason than its room: none while there is one, or without a
    /// free chunk beyond the reserve.
    fn care_victim(&mut self, group: u32) -> Option<(ChunkId, Care)> {
        let victims = &self.collection.groups[group as usize].victims;
        if self.read_only.is_some() || victims.iter().any(|victim| victim.care.is_some()) {
            return None;
        }
        let (chunk, care) = match self.weakest(group) {
            Some(weakest) => weakest,
            None => (self.resting(group)?, Care::Wear),
        };
        let frontier = if care == Care::Wear { RESTING } else { MOVING };
        if !self.has_room_for(group, frontier, self.chunks.valid(chunk), RELOCATION_RESERVE_CHUNKS) {
            return None;
        }
        match care {
            Care::Wear => self.wear_levelling.begin(group),
            _ => self.refresh.spend(self.chunks.valid(chunk)),
        }
        Some((chunk, care))
    }

    /// Writes the last blocks of a chunk that is cared for, which no other victim's will fill up to a unit.
    fn push_care(&mut self, group: u32) {
        let collecting = &mut self.collection.groups[group as usize];
        let Some(victim) = collecting.victims.iter().find(|victim| victim.care.is_some()) else { return };
        let frontier = if victim.care == Some(Care::Wear) { RESTING } else { MOVING };
        // Where the group is collected besides, its other victims fill the unit.
        if !victim.scanned || victim.reading > 0 || (frontier == MOVING && collecting.marked) {
            return;
        }
        let Frontier { queue, open, push, .. } = &mut collecting.frontiers[frontier];
        if !queue.is_empty() {
            *push = true;
            self.place_on(group, frontier);
        } else if let Some(open) = *open
            && self.geometry.mw_cunits > 0
            && self.units.wants_padding(open)
        {
            self.pad(open);
            self.stirred = true;
        }
    }

    /// Whether `group` has room for `blocks` more relocations besides those that its victims still need: in the relocation
    /// chunk of `frontier` and in its free ones but for `kept`. Without this, two victims could each take half of the room
    /// that one needs.
    fn has_room_for(&self, group: u32, frontier: usize, blocks: u32, kept: u32) -> bool {
        let collecting = &self.collection.groups[group as usize];
        let owed: u32 = collecting
            .victims
            .iter()
            .map(|victim| victim.outstanding + self.chunks.valid_from(victim.chunk, victim.next))
            .sum();
        let room = collecting.frontiers[frontier].open.map_or(0, |open| self.units.room(open));
        let free = self.provisioning.relocation_chunks(group).saturating_sub(kept) * self.geometry.blocks_per_chunk;
        let partial: u32 =
            self.collection.partial[group as usize].iter().map(|(_, next)| self.geometry.blocks_per_chunk - next).sum();
        owed + blocks <= room + free + if frontier == MOVING { partial } else { 0 }
    }

    /// Reads the next valid blocks of a victim.
    fn read_victim(&mut self, group: u32, index: usize) {
        let victim = &mut self.collection.groups[group as usize].victims[index];
        let (chunk, mut next) = (victim.chunk, victim.next);
        let mut places = [Ppa(0); VECTOR_BLOCKS_MAX];
        let mut blocks = 0;
        while blocks < VECTOR_BLOCKS_MAX
            && let Some(block) = self.chunks.next_valid(chunk, next)
        {
            places[blocks] = self.format.ppa(chunk, block);
            blocks += 1;
            next = block + 1;
        }
        victim.next = next;
        victim.outstanding += blocks as u32;
        victim.scanned = blocks < VECTOR_BLOCKS_MAX;
        victim.reading += u32::from(blocks > 0);
        if blocks == 0 {
            self.end_victim_if_done(group, chunk);
            return;
        }
        let read = self.collection.begin_read(group, chunk);
        let from = self.collection.frames.len() - blocks;
        let command = &mut self.collection.reads[read as usize];
        for (frame, taken) in command.frames.iter_mut().zip(self.collection.frames.drain(from..)) {
            *frame = taken;
        }
        command.places = places;
        command.blocks = blocks as u32;
        self.statistics.relocation_reads += blocks as u64;
        self.submit_errand(Errand::CollectionRead(read));
        self.stirred = true;
    }

    pub(crate) fn collection_read_ended(&mut self, index: u32, completion: Completion) {
        let CollectionRead { group, chunk, blocks, tries, places, frames } = self.collection.reads[index as usize];
        if completion.status != Status::Success {
            self.refresh.ask();
        }
        let addresses = frames[..blocks as usize].iter().map(|frame| Oob::peek(&self.frames, *frame));
        self.mapping.fetch(addresses.map(|oob| oob.map_or(0, |oob| oob.address as u32)));
        let victims = &mut self.collection.groups[group as usize].victims;
        let victim = victims.iter_mut().find(|victim| victim.chunk == chunk).expect("it is being read");
        victim.reading -= 1;
        let frontier = if victim.care == Some(Care::Wear) { RESTING } else { MOVING };
        let (mut lost, mut dropped) = (0, 0);
        for at in 0..blocks as usize {
            let (from, frame) = (places[at], frames[at]);
            let failed = !completion.status.data_is_good() && completion.failed >> at & 1 != 0;
            let block = if failed { None } else { self.data_at(frame, from) };
            if block.is_none() && !self.chunks.is_valid(from) {
                // Overwritten or trimmed meanwhile.
                self.collection.frames.push(frame);
                dropped += 1;
                continue;
            }
            if block.is_none() && tries < READS_OF_LOST_MIN {
                let read = &mut self.collection.reads[index as usize];
                (read.places[lost], read.frames[lost]) = (from, frame);
                lost += 1;
                continue;
            }
            let block = block.unwrap_or_else(|| self.give_up(group, from, frame));
            let slot = self.buffer.slot_mut(frame);
            (slot.block, slot.older) = (block, Entry::media(from));
            let frontier = if frontier == MOVING { self.moving_to(group, chunk, frame) } else { frontier };
            self.collection.groups[group as usize].frontiers[frontier].queue.push_back(frame);
        }
        if lost > 0 {
            let read = &mut self.collection.reads[index as usize];
            (read.blocks, read.tries) = (lost as u32, tries + 1);
            let victims = &mut self.collection.groups[group as usize].victims;
            victims.iter_mut().filter(|victim| victim.chunk == chunk).for_each(|victim| victim.reading += 1);
            self.submit_errand(Errand::CollectionRead(index));
        } else {
            self.collection.groups[group as usize].reading -= 1;
            self.collection.free_reads.push(index);
        }
        self.block_settled(group, chunk, dropped);
    }

    /// The frontier of `group` that a block of a victim goes to: one of its own where placement wants that and it has room
    /// for it.
    #[inline]
    fn moving_to(&mut self, group: u32, victim: ChunkId, frame: Frame) -> usize {
        if matches!(self.placement.relocation(), Relocation::WithHost | Relocation::Together) {
            return MOVING;
        }
        let written = Oob::peek(&self.frames, frame).map_or(0, |oob| oob.sequence);
        let age = self.buffer.head().saturating_sub(written);
        match self.placement.destination(self.chunks.label(victim), age) {
            None => MOVING,
            Some(destination) if self.has_place(group, destination) => DESTINATIONS + destination,
            Some(_) => {
                self.statistics.placement.merged += 1;
                MOVING
            }
        }
    }

    /// Whether one more block can be kept apart at this destination of `group`; opens a chunk for it where it may.
    fn has_place(&mut self, group: u32, destination: usize) -> bool {
        let at = DESTINATIONS + destination;
        let Frontier { queue, open, push, .. } = &mut self.collection.groups[group as usize].frontiers[at];
        let room = open.map_or(0, |open| self.units.room(open) as usize);
        if room > queue.len() {
            return true;
        }
        if !queue.is_empty() {
            // They fill the chunk to its end.
            *push = true;
            self.place_on(group, at);
        }
        self.open_destination(group, at).is_some()
    }

    /// Opens the next chunk of a destination, whose last one is full.
    fn open_destination(&mut self, group: u32, at: usize) -> Option<OpenId> {
        let frontier = &mut self.collection.groups[group as usize].frontiers[at];
        self.placement.opened[KEPT_APART] -= u32::from(frontier.open.take().is_some());
        self.provisioning.keep_apart(self.placement.kept_apart());
        // What was promised to victims when they were begun stays theirs.
        if !self.placement.may_open(KEPT_APART) || !self.has_room_for(group, MOVING, 0, 1) {
            return None;
        }
        let label = self.placement.destination_label(at - DESTINATIONS);
        let open = self.open_chunk(Claim::Destination(group), label)?;
        self.placement.opened[KEPT_APART] += 1;
        self.provisioning.keep_apart(self.placement.kept_apart());
        self.collection.groups[group as usize].frontiers[at].open = Some(open);
        Some(open)
    }

    /// The logical block that `frame` holds as it was read from `ppa`, if it is what the map has there.
    pub(crate) fn data_at(&self, frame: Frame, ppa: Ppa) -> Option<u32> {
        let oob = Oob::verify(&self.frames, frame).ok()?;
        let is_in_map = oob.kind.is_of_host() && oob.address < self.mapping.len();
        let block = oob.address as u32;
        (is_in_map && self.buffer.base(&self.mapping, block) == Entry::media(ppa)).then_some(block)
    }

    /// The valid block at `ppa` cannot be read, or is not what the map has there: `frame` says so in its stead. Returns
    /// which logical block that is.
    fn give_up(&mut self, group: u32, ppa: Ppa, frame: Frame) -> u32 {
        self.statistics.read_failures += 1;
        self.statistics.lost_blocks += 1;
        let chunk = self.format.chunk_of(ppa);
        let (format, mapping, buffer) = (self.format, &self.mapping, &self.buffer);
        let victims = &mut self.collection.groups[group as usize].victims;
        let victim = victims.iter_mut().find(|victim| victim.chunk == chunk).expect("it is being read");
        // Only the map knows, and it has to be gone through, once for a chunk.
        let owners = victim.owners.get_or_insert_with(|| {
            let mut owners = vec![NOBODY; self.geometry.blocks_per_chunk as usize];
            for block in 0..mapping.len() as u32 {
                if let Place::Media(ppa) = buffer.base(mapping, block).place()
                    && format.chunk_of(ppa) == chunk
                {
                    owners[format.block_of(ppa) as usize] = block;
                }
            }
            owners
        });
        let block = owners[format.block_of(ppa) as usize];
        assert!(
            buffer.base(mapping, block) == Entry::media(ppa),
            "a valid block is what the map has of one logical block"
        );
        self.frames.zero(frame);
        // Newer than the version that is lost, and older than any that is still to be committed.
        let sequence = self.buffer.committed().saturating_sub(1);
        Oob { kind: BlockKind::Lost, address: u64::from(block), sequence }.seal(&mut self.frames, frame);
        block
    }

    /// Writes queued blocks of the group: full units, and the rest if pushed.
    fn place_relocations(&mut self, group: u32) {
        for frontier in 0..self.collection.groups[group as usize].frontiers.len() {
            self.place_on(group, frontier);
        }
    }

    /// Writes queued blocks to one of the group's relocation chunks: full units, and the rest if pushed. Returns whether
    /// any.
    fn place_on(&mut self, group: u32, frontier: usize) -> bool {
        let mut placed = false;
        loop {
            let Frontier { queue, open, push, .. } = &mut self.collection.groups[group as usize].frontiers[frontier];
            let queued = queue.len();
            if queued == 0 || (queued < self.unit_blocks as usize && !*push) {
                *push = false;
                return placed;
            }
            let own = open.filter(|open| self.units.room(*open) > 0);
            let open = match own {
                Some(open) => Some(open),
                None if frontier == RESTING => self.open_chunk(Claim::WornRelocation(group), Label::Ordinary),
                None if frontier == MOVING => self.open_moving(group),
                None => self.open_destination(group, frontier),
            };
            let Some(open) = open else {
                if frontier == MOVING || frontier == RESTING {
                    self.collection.groups[group as usize].frontiers[frontier].stalled = true;
                } else {
                    // Programs failed, and what was meant for the last chunk finds none: it goes with the others.
                    let frontiers = &mut self.collection.groups[group as usize].frontiers;
                    let queue = std::mem::take(&mut frontiers[frontier].queue);
                    frontiers[frontier].push = false;
                    self.statistics.placement.merged += queue.len() as u64;
                    frontiers[MOVING].queue.extend(queue);
                    self.stirred = true;
                }
                return placed;
            };
            let is_shared = own.is_none() && frontier == MOVING && self.host.open.contains(&Some(open));
            let collecting = &mut self.collection.groups[group as usize].frontiers[frontier];
            if !is_shared {
                collecting.open = Some(open);
            }
            collecting.stalled = false;
            let room = self.units.room(open) as usize;
            let used = queued.min(self.unit_blocks as usize).min(room);
            let count = used.next_multiple_of(self.geometry.ws_min as usize);
            let (chunk, next) = (self.units.chunk(open).chunk, self.units.chunk(open).next);
            let first = self.format.ppa(chunk, next);
            let mut unit = [self.padding; VECTOR_BLOCKS_MAX];
            for (index, place) in unit[..used].iter_mut().enumerate() {
                let frame = collecting.queue.pop_front().expect("counted");
                self.buffer.slot_mut(frame).ppa = Ppa(first.0 + index as u64);
                // The out-of-band bytes travel along as they were read: same block, same write, same CRC.
                *place = frame;
            }
            self.chunks.place(chunk, used as u32);
            self.write_unit(open, Purpose::Relocation, owner(group, frontier), &unit[..count], used as u32);
            if frontier >= DESTINATIONS && self.units.room(open) == 0 {
                self.collection.groups[group as usize].frontiers[frontier].open = None;
                self.placement.opened[KEPT_APART] -= 1;
                self.provisioning.keep_apart(self.placement.kept_apart());
            }
            self.stirred = true;
            placed = true;
        }
    }

    /// Gives the host the chunk on `pu` that moved blocks go to, where they share chunks and there is room without it for
    /// all that is on its way.
    pub(crate) fn moving_chunk_on(&mut self, pu: PuId) -> Option<OpenId> {
        if self.placement.relocation() != Relocation::WithHost {
            return None;
        }
        let group = self.format.group_of(pu);
        let open = self.collection.groups[group as usize].frontiers[MOVING].open?;
        let room = self.units.room(open);
        let is_here = room > 0 && self.format.pu_of(self.units.chunk(open).chunk) == pu;
        if !is_here || !self.has_room_for(group, MOVING, room, 0) {
            return None;
        }
        self.collection.groups[group as usize].frontiers[MOVING].open = None;
        Some(open)
    }

    /// Where what is moved for its room goes on when its last chunk is full.
    fn open_moving(&mut self, group: u32) -> Option<OpenId> {
        if let Some((chunk, next)) = self.collection.partial[group as usize].pop() {
            return Some(self.units.open(chunk, next));
        }
        let shared = match self.placement.relocation() {
            Relocation::WithHost => self.ordinary_frontier_in(group).or_else(|| self.open_ordinary_in(group)),
            _ => None,
        };
        shared.or_else(|| self.open_chunk(Claim::Relocation(group), Label::Ordinary))
    }

    /// Enters relocated blocks that can be read at their new place into the map and the log.
    fn map_relocated(&mut self) {
        while !self.collection.written.is_empty() && self.log.has_room() {
            let id = self.collection.written.pop_front().expect("there is a first");
            let unit = self.units.unit(id);
            let (group, used) = ((unit.owner >> 16) as u32, unit.used as usize);
            let mut frames = [Frame(0); VECTOR_BLOCKS_MAX];
            frames[..used].copy_from_slice(&unit.frames()[..used]);
            for frame in &frames[..used] {
                let slot = *self.buffer.slot(*frame);
                let from = Ppa(u64::from(slot.older.0));
                // The host may have overwritten or trimmed the block meanwhile.
                if self.buffer.rebase(&mut self.mapping, slot.block, slot.older, Entry::media(slot.ppa)) {
                    self.chunks.invalidate(from);
                    self.chunks.commit(slot.ppa);
                    let record = Record::Mapped { block: slot.block, ppa: slot.ppa, last: true };
                    self.log.append(&mut self.frames, record);
                    self.statistics.groups[group as usize].relocated += 1;
                    let chunk = self.format.chunk_of(from);
                    self.placement.events.moved(chunk, self.chunks.label(chunk), slot.block);
                } else {
                    self.chunks.abandon(slot.ppa);
                }
                self.collection.frames.push(*frame);
                self.block_settled(group, self.format.chunk_of(from), 1);
            }
            self.units.finish(id);
            self.stirred = true;
        }
    }

    /// `count` outstanding blocks of a victim have moved, or need not.
    fn block_settled(&mut self, group: u32, chunk: ChunkId, count: u32) {
        let victims = &mut self.collection.groups[group as usize].victims;
        let victim = victims.iter_mut().find(|victim| victim.chunk == chunk).expect("it has outstanding blocks");
        victim.outstanding -= count;
        let (freed, relocations, outstanding) = (victim.freed, victim.relocations, victim.outstanding);
        if relocations > 0 {
            let earned = self.earned_by(freed, relocations) * i64::from(count);
            self.transactions.earn(earned);
        }
        if outstanding == 0 {
            self.end_victim_if_done(group, chunk);
        }
    }

    fn end_victim_if_done(&mut self, group: u32, chunk: ChunkId) {
        let victims = &mut self.collection.groups[group as usize].victims;
        let index = victims.iter().position(|victim| victim.chunk == chunk).expect("a victim");
        if !victims[index].scanned || victims[index].outstanding > 0 {
            return;
        }
        let victim = victims.swap_remove(index);
        self.collection.cared_for -= u32::from(victim.care.is_some());
        assert!(self.chunks.valid(chunk) == 0, "all that was valid in a victim has moved");
        self.placement.events.emptied(chunk, self.now);
        self.reset_when_durable(chunk, self.log.position());
        self.collection.stirred = true;
        self.stirred = true;
    }
}
