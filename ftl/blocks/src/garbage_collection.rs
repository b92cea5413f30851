//! Garbage collection, as OX-Block does it: a group is marked, its victims are relocated inside the group, and the other
//! groups are left in peace. On a drive of 8 groups seven eighths of the host's requests never meet it.
//!
//! ```text
//!   victim ── read or copy valid blocks ──▶ queue ── full unit ──▶ relocation chunk ── readable ──▶ map, log
//!     │                                                                                              │
//!     └── all its blocks have moved ──▶ waits until the log says so durably ──▶ reset ──▶ free ◀─────┘
//! ```
//!
//! With [`CollectionScope::DeviceWide`] every group that is short of free chunks is marked at once, as conventional drives
//! do it. [`openftl_parts::accounts::encounters`] counts how often the host meets collection.
//!
//! A die carries out what it is given in order, and so a frontier of collection has one write or copy under way, and its group reads no more while a full
//! unit waits: behind it the host, the log, and whoever waits for a flush have their turn, and the frames that hold what was read are left to
//! the other groups.
//!
//! Relocated blocks have open chunks of their own (the cold frontier, one a group), so that what is overwritten often and
//! what is not do not share chunks. What is moved to level wear has a second one, opened when it is needed; what a
//! [placement](crate::placement) keeps apart has more. Those are taken from what the host could have, never from the reserve, and
//! a block is meant for one only while that has room for it: whatever else happens, it finds room where all others do.
//!
//! It can always finish: each group keeps one free chunk that only relocation may open, which with the open relocation
//! chunk has room for any victim, and a victim is chosen only if it gives back more than it takes. A victim that needs the
//! reserve moves as a whole: a crash must not leave half of it in each of two chunks with no third one to go on in. It begins
//! when its group is at rest. Only where the drive is stuck another one joins it, and fills the unit that padding would waste.
//!
//! While the host is silent, collection may work ahead ([`Config::collect_when_idle`](openftl_parts::Config)): the next burst of
//! writes finds free chunks. It begins no victim that is nearly full, because the host might still empty it.
//!
//! Chunks are emptied in the same way because they are weak ([`crate::refresh`]) or to level wear
//! ([`crate::wear_levelling`]): one in each group at a time, marked or not, with room beyond the reserve.
//!
//! A block that cannot be read, or is not what the map says, is lost. In its place moves a block that says so
//! ([`BlockKind::Lost`](openftl_parts::flash::oob::BlockKind)): reads of it fail until the host writes or trims it, and its chunk is used
//! again like any other.
//!
//! This file says which groups are collected, when, and which victims; `garbage_collection/relocation.rs` how
//! their blocks move, and `garbage_collection/frontiers.rs` to which chunks.

mod frontiers;
mod group;
mod lost;
mod relocation;

use crate::block_ftl::BlockFtl;
use group::{DESTINATIONS, Group, MOVING, RESTING, RelocationFrontier, Victim};
use openftl_core::{ChunkId, Frame, Nanos, Time, VECTOR_BLOCKS_MAX};
use openftl_parts::config::CollectionScope;
use openftl_parts::flash::chunk_table::ChunkUse;
use openftl_parts::flash::plan::RELOCATION_RESERVE_CHUNKS;
use openftl_parts::flash::units::{OpenId, UnitId};
use openftl_parts::words::{Care, Label, Phase};
pub(crate) use relocation::FoundBlock;
use relocation::{COPYING_PER_GROUP_MAX, READS_PER_GROUP_MAX};
use std::collections::VecDeque;

/// Free chunks that a group may have beyond another whose victims are as good.
const CHUNKS_AHEAD_MAX: u32 = 2;

/// A victim whose room is not needed yet gives back at least this part of its chunk.
const AHEAD_FREED_PART: u32 = 8;

/// Silence of the host that counts, at least.
pub const IDLE_MIN: Nanos = Nanos::from_millis(1);

/// Whether a group should be collected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Need {
    Nothing,
    /// The host is silent, and may want the room when it comes back.
    Later,
    Now,
}

/// Garbage collection of a drive.
pub struct Collection {
    groups: Vec<Group>,
    turns: u64,
    /// Victims that are emptied for another reason than their room.
    cared_for: u32,
    /// Victims that move as a whole.
    whole: u32,
    /// Frontiers that wanted a chunk, and got none.
    stalled: u32,
    frames: Vec<Frame>,
    /// Units whose blocks are on media and not yet in the map.
    written: VecDeque<UnitId>,
    /// When the host last asked for something.
    asked_at: Time,
    /// The host is silent, and room is made that is not needed yet.
    ahead: bool,
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
        Collection {
            groups: (0..groups).map(|_| Group::new(DESTINATIONS + destinations)).collect(),
            turns: 0,
            cared_for: 0,
            whole: 0,
            stalled: 0,
            frames,
            written: VecDeque::new(),
            asked_at: Time::ZERO,
            ahead: false,
            partial: vec![Vec::new(); groups as usize],
        }
    }

    /// The host asks for something: no more room is made than is needed. Returns whether any was.
    #[inline]
    pub(crate) fn host_asks(&mut self, now: Time) -> bool {
        self.asked_at = now;
        let was_ahead = std::mem::take(&mut self.ahead);
        if was_ahead {
            self.groups.iter_mut().for_each(|group| group.is_rested = false);
        }
        was_ahead
    }

    /// Whether room is made that is not needed yet.
    pub(crate) fn is_ahead(&self) -> bool {
        self.ahead
    }

    /// Whether relocation waits for a chunk.
    #[inline]
    #[must_use]
    pub fn is_stalled(&self) -> bool {
        self.stalled > 0
    }

    /// `frontier` of `group` wanted a chunk: it got none, or may get one the next time.
    #[inline]
    fn set_stalled(&mut self, group: u32, frontier: usize, stalled: bool) {
        let was_stalled = self.groups[group as usize].set_stalled(frontier, stalled);
        self.stalled = self.stalled + u32::from(stalled) - u32::from(was_stalled);
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
        let Group { victims, reading, frontiers, .. } = &self.groups[group as usize];
        let victims: Vec<_> = victims.iter().map(|victim| (victim.scanned, victim.outstanding)).collect();
        let frontiers: Vec<_> =
            frontiers.iter().map(|frontier| (frontier.queue.len(), frontier.is_stalled(), frontier.push)).collect();
        format!("victims {victims:?}, {reading} reads, (queued, stalled, push) {frontiers:?}")
    }

    /// A unit of relocated blocks can be read at its new place.
    pub(crate) fn written(&mut self, unit: UnitId) {
        self.written.push_back(unit);
    }
}

impl BlockFtl {
    pub(crate) fn advance_collection(&mut self) {
        self.map_relocated();
        if !self.may_collect() {
            return;
        }
        if std::mem::take(&mut self.flash.room_changed) {
            self.mark_groups(self.marked_groups());
        }
        if self.cares() {
            (0..self.flash.geometry.groups).for_each(|group| self.collect(group));
            return;
        }
        let mut next = 0;
        while let Some(group) = self.flash.meetings.next_marked(next) {
            self.collect(group);
            next = group + 1;
        }
    }

    /// Whether collection may move anything now.
    #[inline]
    pub(crate) fn may_collect(&self) -> bool {
        // Nearly always so.
        (self.flash.phase == Phase::Working && self.flash.read_only.is_none()) || self.may_collect_for_others()
    }

    /// The same on a drive that is being opened or closed, or is read-only.
    fn may_collect_for_others(&self) -> bool {
        let metadata_is_stalled = self.journal.is_stalled(&self.flash);
        // On a worn-out drive every erase may cost a chunk: only for what is still to be saved.
        let is_stalled = self.transactions.stalled || metadata_is_stalled;
        let wanted = self.flash.read_only.is_none() || (self.flash.may_program() && is_stalled);
        let may_move = match self.flash.phase {
            Phase::Working => true,
            // The last checkpoint has to find room, too.
            Phase::Closing | Phase::Ending => metadata_is_stalled,
            Phase::Recovering => false,
        };
        may_move && wanted
    }

    /// Whether chunks are emptied, or should be, for another reason than their room.
    #[inline]
    fn cares(&self) -> bool {
        let is_wanted = self.refresh.waiting() > 0 || self.wear_levelling.due() > 0;
        self.flash.read_only.is_none() && (is_wanted || self.collection.cared_for > 0)
    }

    /// Whether `group` should be collected.
    ///
    /// Free chunks serve the whole drive, so what counts is how many there are in all. If there are too few, the group is
    /// collected whose victim gives back the most: then no group fills up with valid data while another has room to
    /// spare. Only a group that is about to run out is collected whatever its victim is.
    fn need_of(&self, group: u32) -> Need {
        if self.free_and_coming(group) < self.flash.provisioning.fewest_in_group(group) {
            return Need::Now;
        }
        if self.config.collection == CollectionScope::DeviceWide && self.is_below_share(group) {
            return Need::Now;
        }
        let groups = 0..self.flash.geometry.groups;
        let free = groups.clone().map(|group| self.free_and_coming(group)).sum::<u32>();
        let works_ahead = self.collection.ahead && !self.collection.groups[group as usize].is_rested;
        let need = match self.flash.provisioning.target() {
            target if free < target => Need::Now,
            target if works_ahead && free < target + self.flash.plan.ahead_chunks() => Need::Later,
            _ => return Need::Nothing,
        };
        let urgencies = groups.filter_map(|group| Some((group, self.flash.chunks.urgency(group)?)));
        let Some(best) = urgencies.clone().map(|(_, (urgency, _))| urgency).min() else { return Need::Nothing };
        let is_alike = |(urgency, slack)| urgency <= best + slack;
        if !self.flash.chunks.urgency(group).is_some_and(is_alike) {
            return Need::Nothing;
        }
        let mut alike = urgencies.filter(|(_, urgency)| is_alike(*urgency)).map(|(group, _)| group);
        // Writes go round the groups: free chunks of one alone would be written one after the other.
        let ahead = self.free_and_coming(group).saturating_sub(CHUNKS_AHEAD_MAX);
        if alike.all(|other| self.free_and_coming(other) >= ahead) { need } else { Need::Nothing }
    }

    /// When collection begins to work ahead, unless the host asks for something until then.
    #[inline]
    pub(crate) fn ahead_due(&self) -> Option<Time> {
        let span = self.config.collect_when_idle?.max(IDLE_MIN);
        let may = !self.collection.ahead && self.flash.phase == Phase::Working && self.flash.read_only.is_none();
        may.then(|| self.collection.asked_at + span)
    }

    /// The host has been silent for so long that collection works ahead, if nothing of the host is under way.
    pub(crate) fn begin_ahead(&mut self) {
        if self.transactions.is_idle() && self.reading.is_idle() {
            (self.collection.ahead, self.flash.room_changed) = (true, true);
        } else {
            self.collection.asked_at = self.flash.now;
        }
        self.flash.stirred = true;
    }

    /// Whether `group` has less than its share of the free chunks that the drive should have.
    fn is_below_share(&self, group: u32) -> bool {
        self.free_and_coming(group) < self.flash.provisioning.target().div_ceil(self.flash.geometry.groups)
    }

    #[inline]
    fn free_and_coming(&self, group: u32) -> u32 {
        self.flash.provisioning.free_in_group(group)
            + self.flash.provisioning.coming_in_group(group)
            + self.victims_of(group)
    }

    /// How many groups may be marked now. While there is room the others are left in peace; when room runs short, more
    /// groups collect side by side, because a drive that waits for one group serves nobody.
    fn marked_groups(&self) -> u32 {
        match (self.config.collection, self.config.marked_groups_max) {
            (CollectionScope::DeviceWide, _) => self.flash.geometry.groups,
            (CollectionScope::Marked, Some(most)) => most.clamp(1, self.flash.geometry.groups),
            (CollectionScope::Marked, None) => self.room().marked_groups(self.flash.geometry.groups),
        }
    }

    fn mark_groups(&mut self, most: u32) {
        while self.flash.meetings.marked() < most {
            let neediest = (0..self.flash.geometry.groups)
                .filter(|group| !self.flash.meetings.is_marked(*group) && self.need_of(*group) != Need::Nothing)
                .filter(|group| self.flash.chunks.fewest_valid(*group).is_some())
                .min_by_key(|group| self.collection.groups[*group as usize].turn);
            let Some(group) = neediest else { return };
            self.mark(group);
        }
    }

    fn mark(&mut self, group: u32) {
        let marked = &mut self.collection.groups[group as usize];
        self.collection.turns += 1;
        (marked.marked_at, marked.turn) = (self.flash.now, self.collection.turns);
        self.flash.meetings.mark(group);
        self.flash.is_unusual = true;
        self.flash.statistics.groups[group as usize].marked += 1;
        self.flash.stirred = true;
    }

    fn unmark(&mut self, group: u32) {
        for frontier in 0..self.collection.groups[group as usize].frontiers.len() {
            self.collection.set_stalled(group, frontier, false);
        }
        let marked = &self.collection.groups[group as usize];
        self.flash.meetings.unmark(group);
        self.flash.statistics.groups[group as usize].marked_time += self.flash.now.since(marked.marked_at);
        self.flash.room_changed = true;
    }

    /// Marks every group that wants it, whatever the limit. Returns whether there was one.
    pub(crate) fn mark_all(&mut self) -> bool {
        let before = self.flash.meetings.marked();
        self.mark_groups(u32::MAX);
        self.flash.meetings.marked() > before
    }

    /// One group that is marked or cared for: chooses victims and moves what they hold.
    #[inline]
    fn collect(&mut self, group: u32) {
        // Every turn asks: mostly reads are under way, and no unit is full.
        let collecting = &self.collection.groups[group as usize];
        if collecting.may_place() || self.may_begin_to_move(collecting) {
            self.collect_on(group);
        }
    }

    fn collect_on(&mut self, group: u32) {
        loop {
            self.place_relocations(group);
            let collecting = &self.collection.groups[group as usize];
            if !self.may_begin_to_move(collecting) {
                break;
            }
            let reading = collecting.reading;
            if let Some(victim) = collecting.victims.iter().position(|victim| !victim.scanned) {
                self.move_victim(group, victim);
                continue;
            }
            let has_whole = collecting.has_whole();
            if let Some((chunk, care)) = self.care_victim(group) {
                self.begin_victim(group, chunk, Some(care), has_whole);
                continue;
            }
            self.push_care(group);
            if !self.flash.meetings.is_marked(group) {
                break;
            }
            let need = self.need_of(group);
            if need == Need::Nothing {
                if reading == 0 {
                    self.unmark(group);
                }
                break;
            }
            let Some(chunk) = self.flash.chunks.victim(group) else {
                if reading == 0 {
                    self.unmark(group);
                }
                break;
            };
            let Some(whole) = self.way_of(group, chunk) else { break };
            let freed = self.flash.geometry.blocks_per_chunk - self.flash.chunks.valid(chunk);
            if need == Need::Later && freed < self.flash.geometry.blocks_per_chunk.div_ceil(AHEAD_FREED_PART) {
                self.collection.groups[group as usize].is_rested = true;
                continue;
            }
            self.begin_victim(group, chunk, None, whole);
        }
    }

    /// Whether more blocks of `group` may begin to move.
    #[inline]
    fn may_begin_to_move(&self, group: &Group) -> bool {
        // What was read goes before more is: it waits for its turn on the die, in frames that other groups need.
        let is_busy = group.reading >= READS_PER_GROUP_MAX
            || group.copying >= COPYING_PER_GROUP_MAX
            || group.has_full_unit(self.unit_blocks);
        !is_busy && !group.is_stalled() && self.collection.frames.len() >= VECTOR_BLOCKS_MAX
    }

    /// Begins another victim in a group whose moved blocks wait for a full unit, or for more behind them, so that they go
    /// together: padded, they might take as much room as their victims give back, over and over. Returns whether there was one
    /// to be had.
    pub(crate) fn join_victims(&mut self) -> bool {
        (0..self.flash.geometry.groups).any(|group| self.join_victim(group))
    }

    fn join_victim(&mut self, group: u32) -> bool {
        let collecting = &self.collection.groups[group as usize];
        let moving = &collecting.frontiers[MOVING];
        let RelocationFrontier { queue, open, .. } = moving;
        let is_waiting = !queue.is_empty() || open.is_some_and(|open| self.flash.units.wants_padding(open));
        if !self.flash.meetings.is_marked(group)
            || !is_waiting
            || moving.is_stalled()
            || self.collection.frames.len() < VECTOR_BLOCKS_MAX
        {
            return false;
        }
        // With the first blocks of another the unit is full, its victims end, and what is left finds room in their chunks.
        let fills_unit = open.is_some_and(|open| self.flash.units.room(open) >= self.flash.geometry.ws_min);
        let Some(chunk) = self.flash.chunks.victim(group) else { return false };
        let valid = self.flash.chunks.valid(chunk);
        let is_whole = collecting.has_whole() || !self.has_room_for(group, MOVING, valid, RELOCATION_RESERVE_CHUNKS);
        if is_whole && !(self.fits_log(valid) && (fills_unit || self.has_room_for(group, MOVING, valid, 0))) {
            return false;
        }
        self.begin_victim(group, chunk, None, is_whole);
        true
    }

    /// How the next victim of `group` would move: as a whole or not. `None` if it has no room, or has to wait for those before it.
    fn way_of(&self, group: u32, chunk: ChunkId) -> Option<bool> {
        let collecting = &self.collection.groups[group as usize];
        let has_whole = collecting.has_whole();
        let valid = self.flash.chunks.valid(chunk);
        // What is empty takes no room, even where others wait for some.
        if valid > 0 && !self.has_room_for(group, MOVING, valid, 0) {
            return None;
        }
        let needs_reserve = valid > 0 && !self.has_room_for(group, MOVING, valid, RELOCATION_RESERVE_CHUNKS);
        let whole = (has_whole || needs_reserve) && self.fits_log(valid);
        let must_wait = (has_whole && !whole) || (needs_reserve && whole && !collecting.is_at_rest());
        (!must_wait).then_some(whole)
    }

    /// Collects the emptiest chunk of a group, whatever the policy would choose, if it holds `most` blocks at most. Returns whether
    /// there was one that finds room.
    pub(crate) fn collect_emptiest(&mut self, most: u32) -> bool {
        (0..self.flash.geometry.groups).any(|group| self.collect_emptiest_of(group, most))
    }

    fn collect_emptiest_of(&mut self, group: u32, most: u32) -> bool {
        let Some(chunk) = self.flash.chunks.emptiest(group).filter(|chunk| self.flash.chunks.valid(*chunk) <= most)
        else {
            return false;
        };
        let collecting = &self.collection.groups[group as usize];
        if self.flash.chunks.valid(chunk) > 0 {
            let is_busy = collecting.is_stalled() || self.collection.frames.len() < VECTOR_BLOCKS_MAX;
            if is_busy || !self.may_collect() {
                return false;
            }
        }
        let Some(whole) = self.way_of(group, chunk) else { return false };
        if !self.flash.meetings.is_marked(group) {
            self.mark(group);
        }
        self.begin_victim(group, chunk, None, whole);
        // At once, because the group may wait for the room that an empty one makes.
        let index = self.collection.groups[group as usize].victims.len() - 1;
        self.move_victim(group, index);
        true
    }

    /// Whether `group` could move `blocks` blocks now.
    pub(crate) fn has_room_to_move(&self, group: u32, blocks: u32) -> bool {
        self.has_room_for(group, MOVING, blocks, 0)
    }

    fn begin_victim(&mut self, group: u32, chunk: ChunkId, care: Option<Care>, whole: bool) {
        self.flash.chunks.set_usage(chunk, ChunkUse::Victim);
        let relocations = self.flash.chunks.valid(chunk);
        let freed = self.flash.geometry.blocks_per_chunk - relocations;
        if let (Some(lifetimes), Label::Brief, None) =
            (&mut self.placement.lifetimes, self.flash.chunks.label(chunk), care)
        {
            lifetimes.collected(self.buffer.head() - self.flash.chunks.opened_at(chunk));
        }
        match care {
            None => self.flash.statistics.groups[group as usize].victims += 1,
            Some(care) => {
                let moved = &mut self.flash.statistics.cared[care as usize];
                moved.chunks += 1;
                moved.blocks += u64::from(relocations);
            }
        }
        if relocations == 0 {
            self.transactions.earn(self.earned_by(freed, 0));
        }
        self.collection.cared_for += u32::from(care.is_some());
        self.collection.whole += u32::from(whole);
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
            whole,
            moved: Vec::new(),
        };
        self.collection.groups[group as usize].victims.push(victim);
        self.flash.stirred = true;
    }

    /// The chunk of `group` to be emptied next for another reason than its room: none while there is one, or without a
    /// free chunk beyond the reserve.
    fn care_victim(&mut self, group: u32) -> Option<(ChunkId, Care)> {
        let victims = &self.collection.groups[group as usize].victims;
        if self.flash.read_only.is_some() || victims.iter().any(|victim| victim.care.is_some()) {
            return None;
        }
        let (chunk, care) = match self.weakest(group) {
            Some(weakest) => weakest,
            None => (self.resting(group)?, Care::Wear),
        };
        let frontier = if care == Care::Wear { RESTING } else { MOVING };
        let valid = self.flash.chunks.valid(chunk);
        let must_be_whole = self.collection.groups[group as usize].has_whole();
        if !self.has_room_for(group, frontier, valid, RELOCATION_RESERVE_CHUNKS)
            || (must_be_whole && !self.fits_log(valid))
        {
            return None;
        }
        match care {
            Care::Wear => self.wear_levelling.begin(group),
            _ => self.flash.allowance.spend(valid),
        }
        Some((chunk, care))
    }

    /// Writes the last blocks of a chunk that is cared for, which no other victim's will fill up to a unit.
    fn push_care(&mut self, group: u32) {
        let collecting = &mut self.collection.groups[group as usize];
        let Some(victim) = collecting.victims.iter().find(|victim| victim.care.is_some()) else { return };
        let frontier = if victim.care == Some(Care::Wear) { RESTING } else { MOVING };
        // Where the group is collected besides, its other victims fill the unit.
        if !victim.scanned || victim.reading > 0 || (frontier == MOVING && self.flash.meetings.is_marked(group)) {
            return;
        }
        let RelocationFrontier { queue, open, push, .. } = &mut collecting.frontiers[frontier];
        if !queue.is_empty() {
            *push = true;
            self.place_on(group, frontier);
        } else if let Some(open) = *open
            && self.flash.geometry.mw_cunits > 0
            && self.flash.units.wants_padding(open)
        {
            self.flash.pad(open);
            self.flash.stirred = true;
        }
    }

    /// Whether `group` has room for `blocks` more relocations besides those that its victims still need: in the relocation
    /// chunk of `frontier` and in its free ones but for `kept`. Without this, two victims could each take half of the room
    /// that one needs.
    fn has_room_for(&self, group: u32, frontier: usize, blocks: u32, kept: u32) -> bool {
        let free = self.flash.provisioning.relocation_chunks(group).saturating_sub(kept)
            * self.flash.geometry.blocks_per_chunk;
        self.owed_by_victims(group) + blocks <= self.open_room(group, frontier) + free
    }

    /// Blocks that victims of `group` still have to move.
    fn owed_by_victims(&self, group: u32) -> u32 {
        let victims = self.collection.groups[group as usize].victims.iter();
        victims.map(|victim| victim.outstanding + self.flash.chunks.valid_from(victim.chunk, victim.next)).sum()
    }

    /// Room for relocations of `group` in chunks that are open.
    fn open_room(&self, group: u32, frontier: usize) -> u32 {
        let room = self.collection.groups[group as usize].frontiers[frontier]
            .open
            .map_or(0, |open| self.flash.units.room(open));
        let partial = self.collection.partial[group as usize].iter();
        let partial: u32 = partial.map(|(_, next)| self.flash.geometry.blocks_per_chunk - next).sum();
        room + if frontier == MOVING { partial } else { 0 }
    }

    /// Room for blocks of more victims of `group` that takes no free chunk.
    pub(crate) fn open_room_to_move(&self, group: u32) -> u32 {
        self.open_room(group, MOVING).saturating_sub(self.owed_by_victims(group))
    }

    /// Victims of `group` that move now.
    pub(crate) fn victims_of(&self, group: u32) -> u32 {
        self.collection.groups[group as usize].victims.len() as u32
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
        self.collection.whole -= u32::from(victim.whole);
        assert!(self.flash.chunks.valid(chunk) == 0, "all that was valid in a victim has moved");
        self.placement.events.emptied(chunk, self.flash.now);
        self.flash.reset_when_durable(chunk, self.journal.log.position());
        self.flash.room_changed = true;
        self.flash.stirred = true;
    }
}
