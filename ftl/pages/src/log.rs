//! The log: groups of records, one behind the other in chunks of its own, and how much of it is needed.
//!
//! ```text
//!   chunk   [ ▓5 ▓7 ▓8 ]  [ ▓10 ▓12 ▓13 ── ]
//!   chunk   [ ▓6 ▓9 ]     [ ▓11 ▓14 ── ]
//!                ▲ the anchor: all before 9 is in the leaves
//! ```
//!
//! A group is written as a page is: it has a header of that kind, with its number, lies in one chunk, and is put elsewhere if a program fails.
//! A group goes to another chunk than the one before it when all before it is on media, so that what a power cut leaves are all groups up to some number.
//! A log of two *lanes* has a chunk in each, on different parallel units, and goes to the other lane whenever it may: a durable batch does not wait
//! for the unit of the one before it, though that may be in a cache that survives power cuts, and still be programmed. A group that begins when all
//! before it is on media says so. The anchor names chunks before the log goes on in them, so that they are found again.
//!
//! What is found after a power cut from the last group on that says so is not durable by that: it may have been readable that one time. So it is
//! written *again*, to another chunk, before anybody is let in. If power goes meanwhile, the newest copy of a group counts. The oldest one is kept,
//! too, for newer ones may have been readable that one time; those between are given back, so recoveries that are cut off take no more and more
//! chunks.
//!
//! # What is promised if the medium loses a part of it
//! It has one copy. A group that is missing is noticed if it can be told from one that a power cut has torn (`seen_log`): then the drive is
//! refused until a repair. The last groups of all cannot be told from those, as long as what is lost is not longer than power cuts tear: their
//! batches are missing without a word, each as a whole. What is longer, and behind a needed group
//! that can be read, is in the report of that recovery, and a finding of a check before it. Then the log is written again, and tells no more of it.

use crate::place::Place;
use crate::record::{begin_group, begins_secure};
use openftl_core::{AddressFormat, BLOCK_BYTES, ChunkId};
use std::collections::VecDeque;

/// Blocks of a group, at most.
const GROUP_BLOCKS_MAX: usize = 64;

/// Lanes of a log, at most.
pub const LANES_MAX: usize = 2;

/// A chunk that is written, in turn with that of the other lane.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Lane {
    chunk: Option<ChunkId>,
    /// The block behind its last group.
    end: u32,
}

/// Records that are written as one.
pub struct Group {
    /// The records.
    pub records: Vec<u8>,
    /// The last mutation of which all is in them, or in groups before.
    pub last: u64,
}

/// A group that is in a chunk, or on its way there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Placed {
    /// Its number.
    pub number: u64,
    /// As of [`Group`].
    pub last: u64,
    /// Where it is.
    pub place: Place,
    /// It survives a power cut.
    pub is_programmed: bool,
}

/// See the module.
pub struct Log {
    /// Blocks that may be needed at a time.
    blocks: u32,
    /// Records of a group, at most.
    group_bytes_max: usize,
    /// Blocks that groups have taken, and those left over in chunks that are written no more.
    pub head: u64,
    /// What `head` was when the oldest group began that is needed.
    pub tail: u64,
    lanes: [Lane; LANES_MAX],
    /// The number of the next group.
    pub next_group: u64,
    /// Records that are being gathered.
    pub gathered: Vec<u8>,
    /// The last mutation of which all is in them, or before.
    pub gathered_last: u64,
    /// Groups that are to be written.
    pub ready: VecDeque<Group>,
    /// Groups that are needed, in their order.
    pub placed: VecDeque<Placed>,
    /// Groups that were found after a power cut, and are to be written again: number, version, records.
    pub again: VecDeque<(u64, u64, Vec<u8>)>,
    /// Where they were.
    pub left: Vec<Place>,
    /// Chunks with older copies of them, of which the one that is the oldest is there for good.
    pub older: Vec<ChunkId>,
    /// Chunks that it can go on in, for the anchor names them.
    pub spares: VecDeque<ChunkId>,
    /// Chunks that it can go on in when the anchor names them.
    pub unnamed: Vec<ChunkId>,
}

impl Log {
    /// An empty one, of which so many blocks may be needed at a time, with groups no longer than the longest page.
    #[must_use]
    pub fn new(blocks: u32, page_bytes_max: u32) -> Log {
        let group_blocks = (blocks as usize / 8).min(GROUP_BLOCKS_MAX);
        Log {
            blocks,
            group_bytes_max: (group_blocks * BLOCK_BYTES).min(page_bytes_max as usize),
            head: 0,
            tail: 0,
            lanes: [Lane::default(); LANES_MAX],
            next_group: 1,
            gathered: Vec::new(),
            gathered_last: 0,
            ready: VecDeque::new(),
            placed: VecDeque::new(),
            again: VecDeque::new(),
            left: Vec::new(),
            older: Vec::new(),
            spares: VecDeque::new(),
            unnamed: Vec::new(),
        }
    }

    /// Bytes of the records of a group, at most.
    #[must_use]
    pub fn group_bytes_max(&self) -> usize {
        self.group_bytes_max
    }

    /// All its bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.blocks as usize * BLOCK_BYTES
    }

    /// Whether so much of it is needed that a checkpoint is due.
    #[must_use]
    pub fn is_long(&self) -> bool {
        (self.head - self.tail) * 2 > u64::from(self.blocks)
    }

    /// Whether there is room for a group of so many blocks, which may have to go to the next chunk, of so many.
    #[must_use]
    pub fn has_room(&self, blocks: u32, chunk_blocks: u32) -> bool {
        let left = self.lanes.iter().filter(|lane| lane.chunk.is_some()).map(|lane| chunk_blocks - lane.end);
        let skipped: u32 = left.filter(|left| *left < blocks).sum();
        self.head + u64::from(skipped + blocks) <= self.tail + u64::from(self.blocks)
    }

    /// Its state in a few words.
    #[must_use]
    pub fn describe(&self) -> String {
        format!(
            "log of {} blocks from {} to {}, {} groups, lanes {:?}, {} again, {} left, spares {:?}, not named {:?}",
            self.blocks,
            self.tail,
            self.head,
            self.placed.len(),
            self.lanes,
            self.again.len(),
            self.left.len(),
            self.spares,
            self.unnamed
        )
    }

    /// Where records are gathered that are to be written as one.
    pub fn gather(&mut self) -> &mut Vec<u8> {
        if self.gathered.is_empty() {
            begin_group(&mut self.gathered);
        }
        &mut self.gathered
    }

    /// Ends the group that is being gathered, if there is anything in it.
    pub fn close(&mut self) -> bool {
        if self.gathered.is_empty() {
            return false;
        }
        // The next one that is written is this one then.
        if self.ready.is_empty() && self.is_secure() {
            begins_secure(&mut self.gathered);
        }
        self.ready.push_back(Group { records: std::mem::take(&mut self.gathered), last: self.gathered_last });
        true
    }

    /// A lane goes on in a chunk of `chunk_blocks` blocks, at block `next`.
    pub fn go_on_in(&mut self, lane: usize, chunk: ChunkId, next: u32, chunk_blocks: u32) {
        let before = std::mem::replace(&mut self.lanes[lane], Lane { chunk: Some(chunk), end: next });
        self.head += before.chunk.map_or(0, |_| u64::from(chunk_blocks - before.end));
    }

    /// The next group is at `place`.
    pub fn place(&mut self, format: AddressFormat, last: u64, place: Place) {
        self.take_up(format, place);
        let number = self.next_group;
        self.next_group += 1;
        self.placed.push_back(Placed { number, last, place, is_programmed: false });
    }

    /// A group takes blocks up to its end, in the chunk of a lane.
    fn take_up(&mut self, format: AddressFormat, place: Place) {
        let (chunk, end) = (place.chunk(format), place.blocks(format).end);
        let lane = self.lanes.iter_mut().find(|lane| lane.chunk == Some(chunk)).expect("a lane has the chunk");
        self.head += u64::from(end - lane.end);
        lane.end = end;
    }

    /// A group is at `place` instead. Returns where it was.
    pub fn move_to(&mut self, format: AddressFormat, number: u64, place: Place) -> Place {
        self.take_up(format, place);
        let placed = self.get_mut(number).expect("a group in flight is needed");
        placed.is_programmed = false;
        std::mem::replace(&mut placed.place, place)
    }

    fn get_mut(&mut self, number: u64) -> Option<&mut Placed> {
        let first = self.placed.front()?.number;
        self.placed.get_mut(usize::try_from(number.checked_sub(first)?).ok()?)
    }

    /// Whether groups are written again that were found after a power cut.
    #[must_use]
    pub fn is_written_again(&self) -> bool {
        !self.again.is_empty() || !self.left.is_empty()
    }

    /// Whether all groups are on media for good: they get there in their order.
    #[must_use]
    pub fn is_secure(&self) -> bool {
        !self.is_written_again() && self.last_in_flight().is_none()
    }

    /// The number of the first group that may not be on media for good, with all mutations up to `durable` flushed; 0: nothing is known of any.
    #[must_use]
    pub fn durable_before(&self, durable: u64) -> u64 {
        if self.is_written_again() {
            // What was found after a power cut may have been readable that one time.
            return 0;
        }
        let is_missing = |placed: &&Placed| !placed.is_programmed || placed.last > durable;
        self.placed.iter().find(is_missing).map_or(self.next_group, |placed| placed.number)
    }

    /// A group survives a power cut. Returns the last mutation of which all does.
    pub fn programmed(&mut self, number: u64) -> Option<u64> {
        self.get_mut(number).expect("a group in flight is needed").is_programmed = true;
        let is_missing = |placed: &Placed| !placed.is_programmed;
        let count = self.placed.iter().position(is_missing).unwrap_or(self.placed.len());
        count.checked_sub(1).map(|at| self.placed[at].last)
    }

    /// Chunks that it goes on in: those of its lanes, and those behind them.
    pub fn ahead(&self) -> impl Iterator<Item = ChunkId> + '_ {
        let written = self.lanes.iter().filter_map(|lane| lane.chunk);
        written.chain(self.spares.iter().chain(&self.unnamed).copied())
    }

    /// Chunks that it may be in when all groups before `group` are not needed any more.
    #[must_use]
    pub fn chunks(&self, format: AddressFormat, group: u64) -> Vec<ChunkId> {
        let needed =
            self.placed.iter().filter(|placed| placed.number >= group).map(|placed| placed.place.chunk(format));
        let left = self.left.iter().map(|place| place.chunk(format)).chain(self.older.iter().copied());
        let mut chunks: Vec<ChunkId> = needed.chain(left).chain(self.ahead()).collect();
        chunks.sort_unstable();
        chunks.dedup();
        chunks
    }

    /// The last group, if it does not survive a power cut.
    #[must_use]
    pub fn last_in_flight(&self) -> Option<Place> {
        self.placed.back().filter(|placed| !placed.is_programmed).map(|placed| placed.place)
    }

    /// What was found when the drive was opened: groups, from the first that is needed to the last, all of them on media, and the number of the next
    /// one.
    pub fn found(&mut self, placed: VecDeque<Placed>, next_group: u64) {
        (self.placed, self.next_group) = (placed, next_group);
    }

    /// Groups that are needed were found to take so many blocks.
    pub fn found_to_take(&mut self, blocks: u64) {
        (self.tail, self.head) = (0, blocks);
    }

    /// Groups before `number` are not needed any more. Gives where they are.
    pub fn forget_before(&mut self, tail: u64, number: u64) -> Vec<Place> {
        self.tail = tail;
        let count = self.placed.partition_point(|placed| placed.number < number);
        self.placed.drain(..count).map(|placed| placed.place).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use openftl_core::Geometry;

    #[test]
    fn what_is_needed_is_counted_over_chunks_and_ends_with_a_checkpoint() {
        let format = Geometry::tiny().format();
        let chunk = |index| format.chunk_id(format.pu_id(0, 0), index);
        let mut log = Log::new(40, 1 << 20);
        assert_eq!(log.group_bytes_max(), 5 * BLOCK_BYTES);
        let place = |at, block: u32, blocks: u32| Place::new(format, chunk(at), block * 64, blocks * 4096 - 32);
        log.go_on_in(0, chunk(1), 0, 16);
        log.place(format, 3, place(1, 0, 5));
        log.place(format, 4, place(1, 5, 5));
        assert_eq!((log.head, log.is_long(), log.has_room(5, 16)), (10, false, true));
        assert_eq!(log.durable_before(9), 1);
        assert_eq!((log.programmed(2), log.programmed(1)), (None, Some(4)));
        assert_eq!((log.durable_before(9), log.durable_before(3), log.durable_before(2)), (3, 2, 1));
        assert_eq!(log.last_in_flight(), None);
        // Six blocks are left in the chunk.
        log.go_on_in(0, chunk(3), 0, 16);
        log.place(format, 5, place(3, 0, 7));
        assert_eq!((log.head, log.is_long()), (23, true));
        assert!(log.has_room(9, 16) && log.has_room(8, 16));
        assert!(!log.has_room(10, 16), "nine are left in the chunk, so it goes to the next one");
        assert_eq!(log.forget_before(16, 3), [place(1, 0, 5), place(1, 5, 5)]);
        assert_eq!((log.is_long(), log.has_room(10, 16)), (false, true));
    }

    #[test]
    fn lanes_count_together_and_what_is_left_of_a_chunk_counts_when_it_is_left() {
        let format = Geometry::tiny().format();
        let chunk = |index| format.chunk_id(format.pu_id(0, 0), index);
        let mut log = Log::new(40, 1 << 20);
        let place = |at, block: u32, blocks: u32| Place::new(format, chunk(at), block * 64, blocks * 4096 - 32);
        log.go_on_in(0, chunk(1), 0, 16);
        log.go_on_in(1, chunk(2), 0, 16);
        for (number, at) in [(1, place(1, 0, 4)), (2, place(2, 0, 3)), (3, place(1, 4, 8)), (4, place(2, 4, 8))] {
            log.place(format, number, at);
            assert_eq!((log.is_secure(), log.close()), (false, false));
            assert_eq!(log.programmed(number), Some(number));
        }
        assert_eq!((log.head, log.chunks(format, 5)), (24, vec![chunk(1), chunk(2)]));
        assert!(log.has_room(4, 16) && log.has_room(8, 16), "four blocks are left in each chunk");
        assert!(!log.has_room(9, 16), "what is left of both may be left over");
        log.go_on_in(1, chunk(3), 0, 16);
        assert_eq!((log.head, log.chunks(format, 5)), (28, vec![chunk(1), chunk(3)]));
    }

    #[test]
    fn a_group_says_whether_all_before_it_was_on_media_when_it_was_closed() {
        let format = Geometry::tiny().format();
        let chunk = format.chunk_id(format.pu_id(0, 0), 1);
        let mut log = Log::new(40, 1 << 20);
        log.go_on_in(0, chunk, 0, 16);
        let says = |log: &mut Log| {
            log.gather().push(4);
            log.close();
            log.ready.pop_front().map(|group| group.records)
        };
        assert_eq!(says(&mut log), Some(vec![6, 1, 4]), "there is none before it");
        log.place(format, 1, Place::new(format, chunk, 0, 100));
        assert_eq!(says(&mut log), Some(vec![6, 0, 4]));
        log.gather();
        log.programmed(1);
        assert_eq!(says(&mut log), Some(vec![6, 1, 4]));
        log.ready.push_back(Group { records: Vec::new(), last: 2 });
        log.gather();
        log.close();
        assert_eq!(log.ready.pop_back().map(|group| group.records), Some(vec![6, 0]), "one is to be written before it");
        log.ready.clear();
        log.again.push_back((1, 1, Vec::new()));
        assert_eq!(says(&mut log), Some(vec![6, 0, 4]));
    }

    #[test]
    fn what_was_found_goes_on_where_it_was() {
        let format = Geometry::tiny().format();
        let chunk = |index| format.chunk_id(format.pu_id(0, 0), index);
        let placed = |number, at, block: u32| {
            let place = Place::new(format, chunk(at), block * 64, 5000);
            Placed { number, last: 0, place, is_programmed: true }
        };
        let mut log = Log::new(64, 1 << 20);
        log.found(VecDeque::from([placed(7, 2, 14), placed(8, 5, 0)]), 9);
        log.found_to_take(6);
        assert_eq!((log.tail, log.head, log.next_group, log.durable_before(0)), (0, 6, 9, 9));
        log.again.push_back((8, 1, Vec::new()));
        assert_eq!(log.durable_before(0), 0);
        log.go_on_in(0, chunk(5), 4, 16);
        let next = Place::new(format, chunk(5), 4 * 64, 100);
        log.place(format, 1, next);
        assert_eq!((log.head, log.last_in_flight()), (7, Some(next)));
    }
}
