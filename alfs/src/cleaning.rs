//! Segments with little of use are emptied: what is of use moves to other logs.
//!
//! With few free segments the one with the least of use is cleaned, whatever hosts do. When they are silent, the one that gains most for its cost: it has
//! little of use, or has been left alone for long.
//!
//! Nodes do not move at once: they are made dirty, and go to their log with the next record, as patches do that are still the newest of their nodes. A segment of which nothing is of use any more is trimmed when
//! a durable record says so. Blocks that are moved change the same nodes again and again, so several segments are cleaned before there is a record, as
//! long as there are free ones.

use crate::block::{Kind, verify};
use crate::inode::fields;
use crate::segments::{IS_MAP, IS_NODE, IS_PATCHES, Log, Owner, RECORD_BELOW, owners};
use crate::tree::{Place, about};
use crate::volume::{Io, Step, Stop, Volume};
use crate::writing::place_of;
use openftl_core::{Frame, Nanos, Time};
use openftl_parts::target::{Request, SegmentTarget};
use std::collections::{BTreeMap, BTreeSet};

/// Blocks that are read at a time.
const BATCH: usize = 32;

/// So long hosts have been silent before the file system cleans without need.
const SILENCE: Nanos = Nanos::from_millis(1_000);

/// The share of a segment that has to be of no use, to be cleaned without need: one of so many.
const WORTH: u32 = 8;

/// Segments that are cleaned before there is a record for them, at most.
const EMPTIED_MAX: usize = 8;

/// A block that may move.
#[derive(Debug)]
struct Candidate {
    address: u32,
    place: Place,
    is_names: bool,
    frame: Frame,
    is_here: bool,
    has_failed: bool,
}

#[derive(Debug)]
struct Victim {
    segment: u32,
    /// The summary, as far as it was read: blocks in frames.
    summary: Vec<(Frame, bool)>,
    /// Owners of the blocks; empty: the summary is being read.
    owners: Vec<Owner>,
    /// The next one to look at.
    at: usize,
    batch: Vec<Candidate>,
    /// Its medium has failed: what can be read moves, whatever happens to the rest.
    has_failed: bool,
    /// Something of it that is of use cannot be read, or it was trimmed meanwhile: its count is not corrected.
    has_skipped: bool,
}

/// See the module.
#[derive(Default, Debug)]
pub(crate) struct Cleaning {
    victim: Option<Victim>,
    /// Segments that cannot be cleaned: something in them, or of what owns it, cannot be read.
    avoid: BTreeSet<u32>,
    /// Nothing was worth cleaning without need, and no record has followed.
    is_content: bool,
    /// Segments whose medium has failed, with the owners of their blocks; none: there is a summary.
    failed: BTreeMap<u32, Vec<Owner>>,
    /// Segments of which all that is of use has moved, or will with the next record.
    cleaned: Vec<u32>,
    /// Those that were so when the record was begun that is being made durable.
    emptied: Vec<u32>,
}

impl Cleaning {
    /// There is a new record: what is of use has changed.
    pub fn look_again(&mut self) {
        self.is_content = false;
    }

    /// Segments that were cleaned, and no durable record says so: their nodes are still to be written elsewhere.
    fn awaiting_record(&self) -> impl Iterator<Item = u32> + '_ {
        self.cleaned.iter().chain(&self.emptied).copied()
    }

    /// A segment has failed, and what is in it moves first.
    pub fn evacuate(&mut self, segment: u32, owners: Vec<Owner>) {
        self.failed.insert(segment, owners);
    }

    /// Whether there are segments that have failed, and have not been emptied as far as they can be.
    pub fn evacuates(&self) -> bool {
        !self.failed.is_empty() || self.victim.as_ref().is_some_and(|victim| victim.has_failed)
    }

    /// A segment is trimmed: what it is used for later was never cleaned.
    pub fn forget(&mut self, segment: u32) {
        self.cleaned.retain(|other| *other != segment);
        self.emptied.retain(|other| *other != segment);
        if let Some(victim) = self.victim.as_mut().filter(|victim| victim.segment == segment) {
            victim.has_skipped = true;
        }
    }

    /// What was cleaned may have blocks of the map of nodes that are still of use.
    pub fn forget_emptied(&mut self) {
        self.emptied.clear();
    }

    /// A record is begun.
    pub fn begin_record(&mut self) {
        self.emptied.append(&mut self.cleaned);
    }
}

impl<T: SegmentTarget> Volume<T> {
    /// Whether the file system cleans, whatever hosts do.
    fn has_to_clean(&self) -> bool {
        self.segments.free() < self.segments.shape.clean_below()
    }

    /// Whether there may be more free segments without anything being deleted.
    pub(crate) fn can_gain_segments(&self) -> bool {
        self.cleaning.victim.is_some()
            || self.cleaning.awaiting_record().next().is_some()
            || self.segments.greedy_victim(&self.cleaning.avoid).is_some()
            || self.segments.has_useless()
            || self.has_trimmed()
            || !self.syncing.is_idle()
    }

    /// Segments that were cleaned before the last record have nothing of use. What their counts still say was below nodes that cannot be read.
    pub(crate) fn forget_leaks(&mut self) {
        for segment in std::mem::take(&mut self.cleaning.emptied) {
            let rest = self.segments.forget_rest(segment);
            if rest > 0 {
                self.statistics.blocks_forgotten += u64::from(rest);
                self.changed();
            }
        }
    }

    /// When it looks for something to clean without need.
    pub(crate) fn cleaning_due(&self) -> Option<Time> {
        let wanted = self.segments.shape.reserve() as usize;
        let is_wanted = self.segments.free() < wanted && self.cleaning.victim.is_none() && !self.has_to_clean();
        let may_begin = !self.cleaning.is_content && self.syncing.is_idle() && self.has_frames_to_clean();
        (is_wanted && may_begin && self.failed.is_none() && !self.options.is_read_only)
            .then_some(self.last_operation + SILENCE)
    }

    fn has_frames_to_clean(&self) -> bool {
        self.frames() >= self.segments.shape.summary_blocks() as usize + BATCH
    }

    fn worthy_victim(&self) -> Option<u32> {
        let victim = self.segments.cost_benefit_victim(&self.cleaning.avoid)?;
        let blocks = self.segments.shape.data_blocks();
        (blocks - self.segments.segment(victim).valid >= blocks / WORTH).then_some(victim)
    }

    /// Goes on cleaning. Returns whether anything was done.
    pub(crate) fn clean(&mut self) -> bool {
        if self.options.is_read_only || self.failed.is_some() || self.syncing.is_gathering() {
            return false;
        }
        if self.cleaning.victim.is_none() {
            return self.choose_victim();
        }
        match self.clean_victim() {
            Ok(is_progress) => is_progress,
            Err(Stop::Wait) => false,
            Err(Stop::Refused(_)) => self.give_up_victim(),
        }
    }

    /// Something of a segment that has failed cannot be read, and stays.
    fn skip(&mut self) {
        self.cleaning.victim.as_mut().expect("there is one").has_skipped = true;
    }

    /// Whether nothing will be free before segments that have failed are empty.
    fn is_stuck(&self) -> bool {
        self.cleaning.evacuates() && self.segments.free() == 0 && !self.has_trimmed()
    }

    /// Begins to empty a segment that has failed. Returns whether there is one.
    fn begin_evacuation(&mut self) -> bool {
        let Some((segment, owners)) = self.cleaning.failed.first_key_value() else { return false };
        if owners.is_empty() {
            let segment = *segment;
            return self.begin_victim(segment, true);
        }
        let (segment, owners) = self.cleaning.failed.pop_first().expect("it was just looked at");
        self.cleaning.victim = Some(Victim {
            segment,
            summary: Vec::new(),
            owners,
            at: 0,
            batch: Vec::new(),
            has_failed: true,
            has_skipped: false,
        });
        true
    }

    /// The segment with the least of use, unless there has to be a record for those that were cleaned.
    fn needed_victim(&self) -> Option<u32> {
        let awaiting: BTreeSet<u32> = self.cleaning.awaiting_record().collect();
        let waiting = awaiting.len().max(self.segments.useless().len());
        let is_record_due = waiting >= EMPTIED_MAX || waiting > 0 && self.segments.free() < RECORD_BELOW;
        (!is_record_due).then(|| self.segments.greedy_victim(&(&self.cleaning.avoid | &awaiting))).flatten()
    }

    fn choose_victim(&mut self) -> bool {
        if !self.cleaning.failed.is_empty() {
            return self.begin_evacuation();
        }
        let victim = match self.has_to_clean() {
            // What is of no use already comes first.
            true if self.has_trimmed() || !self.syncing.is_idle() => return false,
            true => {
                let victim = self.needed_victim();
                if victim.is_none() && (self.cleaning.awaiting_record().next().is_some() || self.segments.has_useless())
                {
                    let was_wanted = std::mem::replace(&mut self.syncing.is_wanted, true);
                    return !was_wanted;
                }
                victim
            }
            false if self.cleaning_due().is_some_and(|due| due <= self.now) => {
                let victim = self.worthy_victim();
                self.cleaning.is_content = victim.is_none();
                victim
            }
            false => None,
        };
        victim.is_some_and(|segment| self.begin_victim(segment, false))
    }

    /// Begins to clean a segment: its summary is read.
    fn begin_victim(&mut self, segment: u32, has_failed: bool) -> bool {
        let shape = self.segments.shape;
        let blocks = shape.summary_blocks();
        if !self.has_frames_to_clean() {
            return false;
        }
        let mut summary = Vec::new();
        let first = shape.first_of(segment) + shape.data_blocks();
        let frames: Vec<Frame> = (0..blocks).map(|_| self.frame().expect("frames were counted")).collect();
        frames.iter().for_each(|frame| summary.push((*frame, false)));
        self.cleaning.failed.remove(&segment);
        let owners = Vec::new();
        self.cleaning.victim =
            Some(Victim { segment, summary, owners, at: 0, batch: Vec::new(), has_failed, has_skipped: false });
        for (frame, address) in frames.iter().zip(first..) {
            self.read_to_clean(*frame, address);
        }
        true
    }

    fn read_to_clean(&mut self, frame: Frame, address: u32) {
        self.segments.count_read(address, true);
        let request = Request::Read { first: address.into(), frames: &[frame] };
        if !self.start(Io::Clean { address }, request) {
            self.segments.count_read(address, false);
            self.clean_read_ended(address, false);
        }
    }

    /// A block that is looked at is here, or lost.
    pub(crate) fn clean_read_ended(&mut self, address: u32, is_fine: bool) {
        let shape = self.segments.shape;
        let Some(victim) = self.cleaning.victim.as_mut() else { return };
        let within = address - shape.first_of(victim.segment);
        if let Some(index) = within.checked_sub(shape.data_blocks()) {
            victim.summary[index as usize].1 = true;
            if !is_fine {
                self.cleaning.avoid.insert(victim.segment);
            }
            return;
        }
        let candidate = victim.batch.iter_mut().find(|candidate| candidate.address == address);
        let candidate = candidate.expect("what is read to be moved is a candidate");
        (candidate.is_here, candidate.has_failed) = (true, !is_fine);
    }

    /// The victim stays as it is, and is none any more when reads of it have ended. Returns whether it is.
    fn give_up_victim(&mut self) -> bool {
        let victim = self.cleaning.victim.as_ref().expect("there is one");
        let is_reading = victim.batch.iter().any(|candidate| !candidate.is_here);
        if is_reading {
            return false;
        }
        let victim = self.cleaning.victim.take().expect("there is one");
        self.cleaning.avoid.insert(victim.segment);
        let frames =
            victim.batch.iter().map(|candidate| candidate.frame).chain(victim.summary.iter().map(|(frame, _)| *frame));
        frames.for_each(|frame| self.target.frames_mut().release(frame));
        true
    }

    fn clean_victim(&mut self) -> Step<bool> {
        let victim = self.cleaning.victim.as_ref().expect("there is one");
        if victim.owners.is_empty() {
            return self.take_summary();
        }
        if victim.batch.is_empty() {
            return self.choose_batch();
        }
        self.move_batch()
    }

    fn take_summary(&mut self) -> Step<bool> {
        let blocks = self.segments.shape.data_blocks() as usize;
        let victim = self.cleaning.victim.as_mut().expect("there is one");
        if victim.summary.iter().any(|(_, is_here)| !is_here) {
            return Err(Stop::Wait);
        }
        if self.cleaning.avoid.contains(&victim.segment) {
            return Err(Stop::DAMAGED);
        }
        let mut found = Vec::with_capacity(blocks);
        for (frame, _) in &victim.summary {
            let bytes = self.target.frames().bytes(*frame);
            verify(bytes, Kind::Summary, victim.segment, self.id).map_err(|_| Stop::DAMAGED)?;
            found.extend(owners(bytes).take(blocks - found.len()));
        }
        victim.owners = found;
        victim.summary.drain(..).for_each(|(frame, _)| self.target.frames_mut().release(frame));
        Ok(true)
    }

    /// Looks at blocks until there are enough to be moved, or no more.
    fn choose_batch(&mut self) -> Step<bool> {
        let shape = self.segments.shape;
        loop {
            let victim = self.cleaning.victim.as_ref().expect("there is one");
            let (at, segment, has_failed) = (victim.at, victim.segment, victim.has_failed);
            if at == victim.owners.len() || victim.batch.len() == BATCH {
                break;
            }
            // A record waits for segments that have failed, so they do not wait for one.
            if self.cache.dirty() >= self.dirty_max() && !self.cleaning.evacuates() {
                self.syncing.is_wanted = true;
                if victim.batch.is_empty() {
                    return Err(Stop::Wait);
                }
                break;
            }
            let (owner, address) = (victim.owners[at], shape.first_of(segment) + at as u32);
            match self.look_at(owner, address) {
                Ok(None) => {}
                Ok(Some((place, is_names))) => match self.frame() {
                    Ok(frame) => {
                        let candidate =
                            Candidate { address, place, is_names, frame, is_here: false, has_failed: false };
                        self.cleaning.victim.as_mut().expect("there is one").batch.push(candidate);
                        self.read_to_clean(frame, address);
                    }
                    Err(stop) => return self.stop_choosing(stop),
                },
                // Its owner cannot be read, so nobody can.
                Err(Stop::Refused(_)) if has_failed => self.skip(),
                Err(stop) => return self.stop_choosing(stop),
            }
            self.cleaning.victim.as_mut().expect("there is one").at += 1;
        }
        let victim = self.cleaning.victim.as_ref().expect("there is one");
        if victim.batch.is_empty() && victim.at == victim.owners.len() {
            let victim = self.cleaning.victim.take().expect("there is one");
            if !victim.has_skipped {
                self.cleaning.cleaned.push(victim.segment);
            }
            self.syncing.is_wanted |= victim.has_failed || victim.has_skipped || !self.has_to_clean();
            self.statistics.segments_cleaned += 1;
        }
        Ok(true)
    }

    /// What is chosen is moved before anything is waited for.
    fn stop_choosing(&mut self, stop: Stop) -> Step<bool> {
        match self.cleaning.victim.as_ref().expect("there is one").batch.is_empty() {
            true => Err(stop),
            false if stop == Stop::Wait => Ok(true),
            false => Err(stop),
        }
    }

    /// Whether a block is where its owner says. Nodes are made dirty, patches and blocks of the map of nodes are to be written, and of contents it is said where
    /// their address is.
    fn look_at(&mut self, owner: Owner, address: u32) -> Step<Option<(Place, bool)>> {
        if owner.node == 0 {
            return Ok(None);
        }
        match owner.slot {
            IS_NODE => {
                if self.address_of_node(owner.node)? == address {
                    self.pin(owner.node, &Kind::NODES)?;
                    _ = self.cache.node_mut(owner.node);
                    self.patches.moving.insert(owner.node);
                    self.changed();
                }
                return Ok(None);
            }
            IS_PATCHES => {
                if self.patches.write_again(address).ok_or(Stop::DAMAGED)? {
                    self.changed();
                }
                return Ok(None);
            }
            IS_MAP => {
                let index = owner.node - 1;
                if self.map.blocks.get(index as usize).is_some_and(|block| block.address == address) {
                    self.syncing.map_moves.insert(index);
                    self.changed();
                }
                return Ok(None);
            }
            _ => {}
        }
        match self.pin(owner.node, &Kind::NODES) {
            Ok(()) => {}
            Err(Stop::Refused(crate::operation::Refusal::Stale)) => return Ok(None),
            Err(stop) => return Err(stop),
        }
        let node = self.cache.node(owner.node);
        let (is_inode, bytes) = (node.kind == Kind::Inode, &node.bytes);
        let Some(place) = place_of(owner, is_inode).filter(|_| node.has_addresses()) else { return Ok(None) };
        if self.number(place) != address {
            return Ok(None);
        }
        let (inode, index) = match is_inode {
            true => (owner.node, owner.slot),
            false => {
                let about = about(bytes);
                (about.inode, about.first.wrapping_add(owner.slot))
            }
        };
        if self.cache.is_dirty_page((inode, index)) {
            return Ok(None);
        }
        let is_names = match self.pin(inode, &[Kind::Inode]) {
            Ok(()) => fields(&self.cache.node(inode).bytes).is_directory(),
            Err(Stop::Wait) => return Err(Stop::Wait),
            // The file is gone, and this waits to be freed.
            Err(Stop::Refused(_)) => false,
        };
        Ok(Some((place, is_names)))
    }

    /// Moves what was chosen, as far as it is still of use.
    fn move_batch(&mut self) -> Step<bool> {
        let victim = self.cleaning.victim.as_ref().expect("there is one");
        if victim.batch.iter().any(|candidate| !candidate.is_here) {
            return Err(Stop::Wait);
        }
        let mut is_progress = false;
        while let Some(Candidate { address, place, is_names, has_failed, .. }) =
            self.cleaning.victim.as_ref().expect("there is one").batch.last()
        {
            let (address, place, has_failed) = (*address, *place, *has_failed);
            let log = if *is_names { Log::HotData } else { Log::ColdData };
            let is_there = self.is_still(place, address)?;
            let is_given_up = self.cleaning.victim.as_ref().expect("there is one").has_failed;
            if is_there && has_failed && !is_given_up {
                return Err(Stop::DAMAGED);
            }
            if is_there && has_failed {
                self.skip();
            }
            let is_there = is_there && !has_failed;
            if is_there && self.expect_log(log, 1).is_err() && self.is_stuck() {
                self.fail("the medium of a segment has failed, and there is no room for what is in it");
            }
            if is_there {
                self.expect_log(log, 1)?;
            }
            let victim = self.cleaning.victim.as_mut().expect("there is one");
            let frame = victim.batch.pop().expect("it was just looked at").frame;
            is_progress = true;
            if !is_there {
                self.target.frames_mut().release(frame);
                continue;
            }
            let slot = crate::writing::slot_of(place, self.cache.node(place.node).kind == Kind::Inode);
            let to = self.append(log, Owner { node: place.node, slot }, frame);
            self.segments.release(address);
            self.set_number(place, to);
            self.statistics.moved += 1;
            self.changed();
        }
        Ok(is_progress)
    }

    /// Whether an address is still where it was: the node may be another one by now, or gone.
    fn is_still(&mut self, place: Place, address: u32) -> Step<bool> {
        match self.pin(place.node, &Kind::NODES) {
            Ok(()) => {}
            Err(Stop::Wait) => return Err(Stop::Wait),
            Err(Stop::Refused(_)) => return Ok(false),
        }
        Ok(self.cache.node(place.node).has_addresses() && self.number(place) == address)
    }
}
