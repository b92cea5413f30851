//! The segments of a volume: what each is of use for, how much of it is, and the six that are being written.
//!
//! ```text
//!            a log needs one             its last block is written          nothing in it is of use     trimmed, and that is durable
//!   free ─────────────────────▶ open ──────────────────────▶ full ─────────────────────▶ useless ──────▶ trimmed ──────▶ free
//!                                                                  since a durable record                flush
//! ```
//!
//! The last blocks of a segment are its *summary*: the owner of each of the others. A block is of use as long as its owner says that it is there.

use crate::block::{Bytes, number_at};
use crate::block::{HEADER_BYTES, put_number};
use openftl_core::BLOCK_BYTES;
use openftl_core::Frame;
use std::collections::BTreeSet;

/// Segments for records; they are no part of any log.
pub const ANCHORS: u32 = 2;

/// Bytes of an owner.
const OWNER_BYTES: usize = 8;

/// Owners in a block of a summary.
pub const OWNERS_PER_BLOCK: u32 = ((BLOCK_BYTES - HEADER_BYTES) / OWNER_BYTES) as u32;

/// Segments of a volume, at least.
pub const SEGMENTS_MIN: u32 = 64;

/// Blocks of a segment, at least.
pub const SEGMENT_BLOCKS_MIN: u32 = 16;

/// Logs.
pub const LOGS: usize = 6;

/// A log: the blocks of one are written to one segment after the other. Blocks that are likely to become useless together are in one log.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Log {
    /// Nodes of folders, and patches of nodes.
    HotNode = 0,
    /// Nodes of files.
    WarmNode = 1,
    /// Nodes of nodes, and the map of nodes.
    ColdNode = 2,
    /// Names, and contents that replace others.
    HotData = 3,
    /// Contents where there were none, and blocks of which a part was written.
    WarmData = 4,
    /// Contents that cleaning has moved.
    ColdData = 5,
}

impl Log {
    /// All of them.
    pub const ALL: [Log; LOGS] =
        [Log::HotNode, Log::WarmNode, Log::ColdNode, Log::HotData, Log::WarmData, Log::ColdData];
}

/// Who says where a block is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Owner {
    /// A node; 0: nobody, the block is of no use.
    pub node: u32,
    /// Which of its addresses, or one of the following.
    pub slot: u32,
}

/// The block is node [`Owner::node`] itself.
pub const IS_NODE: u32 = u32::MAX;

/// The block is block [`Owner::node`] − 1 of the map of nodes.
pub const IS_MAP: u32 = u32::MAX - 1;

/// The block has patches of nodes.
pub const IS_PATCHES: u32 = u32::MAX - 2;

/// What a segment is of use for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
#[repr(u8)]
pub enum State {
    /// Nothing, and it is empty.
    #[default]
    Free = 0,
    /// It is written.
    Open = 1,
    /// It is written to its end.
    Full = 2,
    /// It is being made empty. On media it is never said.
    Trimmed = 3,
    /// Its medium has failed: it is never written again. What it still has can be read, if it can.
    Failed = 4,
}

impl State {
    /// The state with this number.
    #[must_use]
    pub fn from_number(number: u8) -> Option<State> {
        Some(match number {
            0 => State::Free,
            1 => State::Open,
            2 => State::Full,
            3 => State::Trimmed,
            4 => State::Failed,
            _ => return None,
        })
    }
}

/// A segment.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Segment {
    /// Blocks that are of use.
    pub valid: u32,
    /// When something was last written to it: the record that followed.
    pub age: u32,
    /// Its state.
    pub state: State,
    /// Reads under way.
    pub reading: u32,
}

/// A segment that is being written.
#[derive(Clone, Debug)]
pub struct Head {
    /// Which one.
    pub segment: u32,
    /// The owners of its blocks so far.
    pub owners: Vec<Owner>,
    /// So many of those are in records.
    pub recorded: usize,
    /// Blocks that the drive has.
    pub submitted: u32,
    /// The following ones, which it is to have.
    pub run: Vec<Frame>,
    /// Its medium has failed: the drive takes no more of it.
    pub has_failed: bool,
}

/// How a volume is divided.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    /// Segments.
    pub segments: u32,
    /// Blocks of each.
    pub segment_blocks: u32,
}

impl Shape {
    /// Blocks of a summary.
    #[must_use]
    pub fn summary_blocks(self) -> u32 {
        self.segment_blocks.div_ceil(OWNERS_PER_BLOCK + 1)
    }

    /// Blocks of a segment before its summary.
    #[must_use]
    pub fn data_blocks(self) -> u32 {
        self.segment_blocks - self.summary_blocks()
    }

    /// Segments that no file can have: the logs', those that cleaning works with, and a twentieth so that it finds something worth its work.
    #[must_use]
    pub fn reserve(self) -> u32 {
        LOGS as u32 + CLEANING_RESERVE + self.twentieth()
    }

    fn twentieth(self) -> u32 {
        (self.segments - ANCHORS) / 20
    }

    /// With fewer free segments than this nothing is changed by hosts until there are more. On larger volumes there are more then, so that several
    /// segments can be cleaned before there is a record for them.
    #[must_use]
    pub fn wait_below(self) -> usize {
        RECORD_BELOW + (self.twentieth() as usize / 4).min(WAIT_EARLIER_MAX)
    }

    /// With fewer free segments than this the file system cleans.
    #[must_use]
    pub fn clean_below(self) -> usize {
        self.wait_below() + CLEAN_AHEAD
    }

    /// Blocks that files and their nodes can have.
    #[must_use]
    pub fn blocks_max(self) -> u64 {
        let blocks = u64::from(self.segments - ANCHORS - self.reserve()) * u64::from(self.data_blocks());
        blocks - u64::from(self.patch_blocks_max())
    }

    /// Blocks with patches of nodes, at most.
    #[must_use]
    pub fn patch_blocks_max(self) -> u32 {
        (self.reserve().saturating_mul(self.data_blocks()) / PATCH_BLOCKS).min(PATCH_BLOCKS_MAX)
    }

    /// Nodes with a patch, at most: a whole record has room for where they are.
    #[must_use]
    pub fn patches_max(self) -> u32 {
        self.segment_blocks.saturating_mul(PATCHES_PER_RECORD_BLOCK).min(PATCHES_MAX)
    }

    /// Blocks of the map of nodes, at most: each node has a block, and a block of the map is added only while few nodes are free.
    #[must_use]
    pub fn map_blocks_max(self) -> u32 {
        let blocks = u64::from(self.segments) * u64::from(self.segment_blocks);
        u32::try_from(blocks.div_ceil(crate::node_map::NODES_PER_BLOCK.into()) + 2).expect("addresses have 32 bits")
    }

    /// The segment of an address.
    #[must_use]
    pub fn segment_of(self, address: u32) -> u32 {
        address / self.segment_blocks
    }

    /// The first address of a segment.
    #[must_use]
    pub fn first_of(self, segment: u32) -> u32 {
        segment * self.segment_blocks
    }
}

/// Segments that cleaning works with.
const CLEANING_RESERVE: u32 = 5;

/// Blocks with patches, for so many blocks of the reserve one.
const PATCH_BLOCKS: u32 = 16;

/// Blocks with patches, at most, of any volume: a mount reads them one after the other.
const PATCH_BLOCKS_MAX: u32 = 1024;

/// Nodes with a patch for each block of a segment, at most: the places of patches take a small part of a whole record.
const PATCHES_PER_RECORD_BLOCK: u32 = 16;

/// Nodes with a patch, at most, of any volume.
const PATCHES_MAX: u32 = 8192;

/// With fewer free segments than this there is a record for each segment that is cleaned.
pub const RECORD_BELOW: usize = 4;

/// By how many segments, at most, hosts of larger volumes wait earlier than that.
const WAIT_EARLIER_MAX: usize = 8;

/// So many segments before hosts wait cleaning begins.
const CLEAN_AHEAD: usize = 4;

/// With so many hosts can delete, even if cleaning gains nothing.
pub const DELETE_ABOVE: usize = 2;

/// All segments.
#[derive(Debug)]
pub struct Segments {
    /// How the volume is divided.
    pub shape: Shape,
    all: Vec<Segment>,
    free: BTreeSet<u32>,
    /// Segments that are full, and nothing in them is of use.
    useless: BTreeSet<u32>,
    /// Those of which something is not in the last record.
    changed: BTreeSet<u32>,
    /// Where each log goes on.
    pub heads: [Option<Head>; LOGS],
    /// Blocks that are of use.
    valid: u64,
    failed: u32,
    /// How often one has failed.
    pub failures: u64,
    /// What [`Segment::age`] is now.
    pub age: u32,
    /// More was released than there was: two owners have one block, or what a record says of a segment is wrong.
    pub is_contradiction: bool,
}

impl Segments {
    /// A volume in which nothing is written.
    #[must_use]
    pub fn new(shape: Shape) -> Segments {
        Segments {
            shape,
            all: vec![Segment::default(); shape.segments as usize],
            free: (ANCHORS..shape.segments).collect(),
            useless: BTreeSet::new(),
            changed: BTreeSet::new(),
            heads: Default::default(),
            valid: 0,
            failed: 0,
            failures: 0,
            age: 0,
            is_contradiction: false,
        }
    }

    /// Puts back what a record says of segment `index`.
    pub fn restore(&mut self, index: u32, segment: Segment) {
        self.valid = self.valid + u64::from(segment.valid) - u64::from(self.all[index as usize].valid);
        let is = |segment: &Segment| u32::from(segment.state == State::Failed);
        self.failed = self.failed + is(&segment) - is(&self.all[index as usize]);
        self.all[index as usize] = segment;
        self.free.remove(&index);
        self.useless.remove(&index);
        match segment.state {
            State::Free => _ = self.free.insert(index),
            State::Full | State::Failed if segment.valid == 0 => _ = self.useless.insert(index),
            _ => {}
        }
    }

    /// Segment `index`.
    #[must_use]
    pub fn segment(&self, index: u32) -> &Segment {
        &self.all[index as usize]
    }

    /// All of them.
    #[must_use]
    pub fn all(&self) -> &[Segment] {
        &self.all
    }

    /// Blocks that are of use.
    #[must_use]
    pub fn valid(&self) -> u64 {
        self.valid
    }

    /// Segments that can be written at once.
    #[must_use]
    pub fn free(&self) -> usize {
        self.free.len()
    }

    /// Segments that are being made empty.
    #[must_use]
    pub fn trimmed(&self) -> usize {
        self.all.iter().filter(|segment| segment.state == State::Trimmed).count()
    }

    /// Whether a segment that is full has nothing of use any more.
    #[must_use]
    pub fn has_useless(&self) -> bool {
        !self.useless.is_empty()
    }

    /// Segments with nothing of use, which nobody reads: a durable record says so of those that were useless when it was made.
    #[must_use]
    pub fn useless(&self) -> Vec<u32> {
        self.useless.iter().copied().filter(|index| self.all[*index as usize].reading == 0).collect()
    }

    /// A useless segment is trimmed.
    pub fn trim(&mut self, index: u32) {
        assert!(self.useless.remove(&index) || self.free.remove(&index), "segment {index} has nothing of use");
        let segment = &mut self.all[index as usize];
        self.failed -= u32::from(segment.state == State::Failed);
        segment.state = State::Trimmed;
        self.changed.insert(index);
    }

    /// A trimmed segment is empty for good, and is not used again unless it can be written.
    pub fn empty(&mut self, index: u32, is_writable: bool) {
        assert_eq!(self.all[index as usize].state, State::Trimmed, "segment {index} was trimmed");
        if !is_writable {
            (self.all[index as usize].state, self.failed) = (State::Failed, self.failed + 1);
            self.changed.insert(index);
            return;
        }
        let reading = self.all[index as usize].reading;
        self.all[index as usize] = Segment { reading, ..Segment::default() };
        self.free.insert(index);
        self.changed.insert(index);
    }

    /// A read of `address` begins, or has ended.
    pub fn count_read(&mut self, address: u32, begins: bool) {
        let segment = &mut self.all[self.shape.segment_of(address) as usize];
        segment.reading = if begins { segment.reading + 1 } else { segment.reading - 1 };
    }

    /// The block at `address` is of no use any more. Blocks that never were on media have no address: nothing happens.
    pub fn release(&mut self, address: u32) {
        if address == 0 {
            return;
        }
        let index = self.shape.segment_of(address);
        let segment = &mut self.all[index as usize];
        if segment.valid == 0 {
            self.is_contradiction = true;
            return;
        }
        segment.valid -= 1;
        self.valid -= 1;
        if segment.valid == 0 && matches!(segment.state, State::Full | State::Failed) {
            self.useless.insert(index);
        }
        self.changed.insert(index);
    }

    /// A full segment has nothing of use, whatever its count says. Returns what that said.
    pub fn forget_rest(&mut self, index: u32) -> u32 {
        let segment = &mut self.all[index as usize];
        let rest = std::mem::take(&mut segment.valid);
        assert!(matches!(segment.state, State::Full | State::Failed), "segment {index} was cleaned");
        self.valid -= u64::from(rest);
        if rest > 0 {
            self.useless.insert(index);
            self.changed.insert(index);
        }
        rest
    }

    /// Blocks that can be written to `log` before it needs another segment.
    #[must_use]
    pub fn room(&self, log: Log) -> u32 {
        let written = self.heads[log as usize].as_ref().map(|head| head.owners.len() as u32);
        written.map_or(0, |written| self.shape.data_blocks() - written)
    }

    /// Segments that `blocks` more blocks of `log` need.
    #[must_use]
    pub fn segments_for(&self, log: Log, blocks: u32) -> usize {
        blocks.saturating_sub(self.room(log)).div_ceil(self.shape.data_blocks()) as usize
    }

    /// Opens a segment for `log`, if one is free.
    pub fn open(&mut self, log: Log) -> bool {
        assert!(self.heads[log as usize].is_none(), "the log has a segment");
        let Some(segment) = self.free.pop_first() else { return false };
        let age = self.age;
        // What contradicts itself may be read where nothing is.
        let reading = self.all[segment as usize].reading;
        self.all[segment as usize] = Segment { age, state: State::Open, reading, valid: 0 };
        self.changed.insert(segment);
        self.heads[log as usize] =
            Some(Head { segment, owners: Vec::new(), recorded: 0, submitted: 0, run: Vec::new(), has_failed: false });
        true
    }

    /// The address of the next block of `log`, if it has a segment or one is free.
    #[must_use]
    pub fn next_address(&self, log: Log) -> u32 {
        match &self.heads[log as usize] {
            Some(head) => self.shape.first_of(head.segment) + head.owners.len() as u32,
            None => self.free.first().map_or(0, |segment| self.shape.first_of(*segment)),
        }
    }

    /// The next block of `log`, which has a segment with room, is this one of `owner`. Returns its address.
    pub fn append(&mut self, log: Log, owner: Owner, frame: Frame) -> u32 {
        let head = self.heads[log as usize].as_mut().expect("the log has a segment");
        let address = self.shape.first_of(head.segment) + head.owners.len() as u32;
        assert!(head.owners.len() < self.shape.data_blocks() as usize, "segment {} has room", head.segment);
        head.owners.push(owner);
        head.run.push(frame);
        let segment = &mut self.all[head.segment as usize];
        (segment.valid, segment.age) = (segment.valid + 1, self.age);
        self.valid += 1;
        self.changed.insert(head.segment);
        address
    }

    /// The segment of `log` is written to its end, with its summary.
    pub fn fill(&mut self, log: Log) {
        let head = self.heads[log as usize].take().expect("the log has a segment");
        assert!(head.run.is_empty(), "all of segment {} is submitted", head.segment);
        let segment = &mut self.all[head.segment as usize];
        segment.state = State::Full;
        if segment.valid == 0 {
            self.useless.insert(head.segment);
        }
        self.changed.insert(head.segment);
    }

    /// The medium of a segment has failed.
    pub fn give_up(&mut self, index: u32) {
        let segment = &mut self.all[index as usize];
        self.failed += u32::from(segment.state != State::Failed);
        self.failures += 1;
        self.free.remove(&index);
        // What the record says of it that is trimmed already is of no interest.
        if segment.valid == 0 && matches!(segment.state, State::Open | State::Full) {
            self.useless.insert(index);
        }
        segment.state = State::Failed;
        self.changed.insert(index);
    }

    /// The log goes on in another segment. Gives what it had of the last one.
    pub fn strand(&mut self, log: Log) -> Head {
        let head = self.heads[log as usize].take().expect("the log has a segment");
        self.give_up(head.segment);
        head
    }

    /// Blocks that files and their nodes can have, without segments whose medium has failed.
    #[must_use]
    pub fn blocks_max(&self) -> u64 {
        self.shape.blocks_max().saturating_sub(u64::from(self.failed) * u64::from(self.shape.data_blocks()))
    }

    /// Segments whose medium has failed.
    #[must_use]
    pub fn failed(&self) -> u32 {
        self.failed
    }

    /// Whether something of a segment is not in the last record.
    #[must_use]
    pub fn has_changed(&self, index: u32) -> bool {
        self.changed.contains(&index)
    }

    /// Of how many something is not.
    #[must_use]
    pub fn changed(&self) -> usize {
        self.changed.len()
    }

    /// Those of which something is not in the last record, and no more from now on.
    pub fn take_changed(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.changed).into_iter().collect()
    }

    /// Which full segment has the least of use, of those of which nothing is in the way, if cleaning it gains something.
    #[must_use]
    pub fn greedy_victim(&self, avoid: &BTreeSet<u32>) -> Option<u32> {
        self.victims(avoid).min_by_key(|(index, segment)| (segment.valid, *index)).map(first)
    }

    /// Which one gains most for its cost, and has been left alone for long.
    #[must_use]
    pub fn cost_benefit_victim(&self, avoid: &BTreeSet<u32>) -> Option<u32> {
        let blocks = u64::from(self.shape.data_blocks());
        let value = |segment: &Segment| {
            let age = u64::from(self.age.saturating_sub(segment.age)) + 1;
            (blocks - u64::from(segment.valid)).saturating_mul(1024).saturating_mul(age)
                / (blocks + u64::from(segment.valid))
        };
        self.victims(avoid).max_by_key(|(index, segment)| (value(segment), u32::MAX - index)).map(first)
    }

    /// Full segments with something of use, and something else.
    fn victims(&self, avoid: &BTreeSet<u32>) -> impl Iterator<Item = (u32, &Segment)> {
        let valid = 1..self.shape.data_blocks();
        let may_be = move |segment: &Segment| segment.state == State::Full && valid.contains(&segment.valid);
        (0..).zip(&self.all).filter(move |(index, segment)| may_be(segment) && !avoid.contains(index))
    }
}

fn first<A, B>((first, _): (A, B)) -> A {
    first
}

/// Writes owners into a block of a summary, whose header follows.
pub fn put_owners(bytes: &mut Bytes, owners: &[Owner]) {
    bytes.fill(0);
    for (at, owner) in (HEADER_BYTES..).step_by(OWNER_BYTES).zip(owners) {
        put_number(bytes, at, owner.node);
        put_number(bytes, at + 4, owner.slot);
    }
}

/// The owners in a block of a summary.
pub fn owners(bytes: &Bytes) -> impl Iterator<Item = Owner> {
    let at = (HEADER_BYTES..).step_by(OWNER_BYTES).take(OWNERS_PER_BLOCK as usize);
    at.map(|at| Owner { node: number_at(bytes, at), slot: number_at(bytes, at + 4) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_has_room_for_an_owner_of_each_other_block() {
        for segment_blocks in SEGMENT_BLOCKS_MIN..20_000 {
            let shape = Shape { segments: SEGMENTS_MIN, segment_blocks };
            assert!(shape.summary_blocks() * OWNERS_PER_BLOCK >= shape.data_blocks(), "{segment_blocks}");
            assert!((shape.summary_blocks() - 1) * OWNERS_PER_BLOCK < shape.data_blocks() + 1, "{segment_blocks}");
        }
    }

    #[test]
    fn what_is_released_leaves_its_segment_useless_once_it_is_full() {
        let mut segments = Segments::new(Shape { segments: SEGMENTS_MIN, segment_blocks: SEGMENT_BLOCKS_MIN });
        assert!(segments.open(Log::WarmData));
        let owner = Owner { node: 1, slot: 0 };
        let addresses: Vec<u32> = (0..15).map(|at| segments.append(Log::WarmData, owner, Frame(at))).collect();
        assert_eq!(addresses[0], ANCHORS * SEGMENT_BLOCKS_MIN);
        addresses.iter().for_each(|address| segments.release(*address));
        assert_eq!((segments.room(Log::WarmData), segments.has_useless()), (0, false));
        segments.heads[Log::WarmData as usize].as_mut().unwrap().run.clear();
        segments.fill(Log::WarmData);
        assert_eq!(segments.useless(), [ANCHORS]);
        segments.trim(ANCHORS);
        assert_eq!((segments.free(), segments.trimmed()), (61, 1));
        segments.empty(ANCHORS, true);
        assert_eq!(segments.free(), 62);
    }
}
