//! The log: groups of records, one behind the other in chunks of its own, and how much of it is needed.
//!
//! ```text
//!   chunk   [ ▓5 ▓6 ▓7 ]  [ ▓8 ▓9 ▓10 ▓11 ]  [ ▓12 ▓13 ── ]
//!                 ▲ the anchor: all before is in the leaves         ▲ where the next group goes
//! ```
//!
//! A group is written as a page is: it has a header of that kind, with its number, lies in one chunk, and is put elsewhere if a program fails.
//! A chunk follows when all of the one before it is on media, so that what a power cut leaves are all groups up to some number. The anchor names chunks
//! before the log goes on in them, so that they are found again.
//!
//! What is found after a power cut in the last chunk is not durable by that: it may have been readable that one time. So it is written *again*, to
//! another chunk, before anybody is let in. If power goes meanwhile, the newest copy of a group counts. The oldest one is kept, too, for newer ones may
//! have been readable that one time; those between are given back, so recoveries that are cut off take no more and more chunks.
//!
//! # What is promised if the medium loses a part of it
//! It has one copy. A group that is missing is noticed if it can be told from one that a power cut has torn (`seen_log`): then the drive is
//! refused until a repair. The last groups of all cannot be told from those, as long as what is lost is not longer than power cuts tear: their
//! batches are missing without a word, each as a whole. What is longer, and behind a needed group
//! that can be read, is in the report of that recovery, and a finding of a check before it. Then the log is written again, and tells no more of it.

use crate::place::Place;
use openftl_core::{AddressFormat, BLOCK_BYTES, ChunkId};
use std::collections::VecDeque;

/// Blocks of a group, at most.
const GROUP_BLOCKS_MAX: usize = 64;

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
    /// Blocks of chunks before the one that the last group is in, and the block behind that group, both counted from the beginning and never back.
    base: u64,
    /// See above.
    pub head: u64,
    /// Where the oldest group begins that is needed.
    pub tail: u64,
    /// The chunk that the last group is in.
    chunk: Option<ChunkId>,
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
    /// The chunk that is written, which may have no group yet.
    pub written: Option<ChunkId>,
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
            base: 0,
            head: 0,
            tail: 0,
            chunk: None,
            next_group: 1,
            gathered: Vec::new(),
            gathered_last: 0,
            ready: VecDeque::new(),
            placed: VecDeque::new(),
            again: VecDeque::new(),
            left: Vec::new(),
            older: Vec::new(),
            written: None,
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
        let left = u64::from(chunk_blocks) - (self.head - self.base).min(u64::from(chunk_blocks));
        let skipped = if left < u64::from(blocks) { left } else { 0 };
        self.head + skipped + u64::from(blocks) <= self.tail + u64::from(self.blocks)
    }

    /// Its state in a few words.
    #[must_use]
    pub fn describe(&self) -> String {
        format!(
            "log of {} blocks from {} to {}, {} groups in {:?} and {:?}, {} again, {} left, spares {:?}, not named {:?}",
            self.blocks,
            self.tail,
            self.head,
            self.placed.len(),
            self.chunk,
            self.written,
            self.again.len(),
            self.left.len(),
            self.spares,
            self.unnamed
        )
    }

    /// Ends the group that is being gathered, if there is anything in it.
    pub fn close(&mut self) -> bool {
        if self.gathered.is_empty() {
            return false;
        }
        self.ready.push_back(Group { records: std::mem::take(&mut self.gathered), last: self.gathered_last });
        true
    }

    /// The next group is at `place`, in a chunk of so many blocks.
    pub fn place(&mut self, format: AddressFormat, chunk_blocks: u32, last: u64, place: Place) {
        self.go_to(place.chunk(format), chunk_blocks);
        self.head = self.base + u64::from(place.blocks(format).end);
        let number = self.next_group;
        self.next_group += 1;
        self.placed.push_back(Placed { number, last, place, is_programmed: false });
    }

    /// The last group is in this chunk, of so many blocks.
    fn go_to(&mut self, chunk: ChunkId, chunk_blocks: u32) {
        if self.chunk.is_some_and(|before| before != chunk) {
            self.base += u64::from(chunk_blocks);
        }
        self.chunk = Some(chunk);
    }

    /// A group is at `place` instead, in a chunk of so many blocks. Returns where it was.
    pub fn move_to(&mut self, format: AddressFormat, chunk_blocks: u32, number: u64, place: Place) -> Place {
        self.go_to(place.chunk(format), chunk_blocks);
        self.head = self.base + u64::from(place.blocks(format).end);
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

    /// Whether all groups are on media for good.
    #[must_use]
    pub fn is_secure(&self) -> bool {
        !self.is_written_again() && self.placed.iter().all(|placed| placed.is_programmed)
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

    /// Chunks that it may be in when all groups before `group` are not needed any more.
    #[must_use]
    pub fn chunks(&self, format: AddressFormat, group: u64) -> Vec<ChunkId> {
        let needed =
            self.placed.iter().filter(|placed| placed.number >= group).map(|placed| placed.place.chunk(format));
        let left = self.left.iter().map(|place| place.chunk(format)).chain(self.older.iter().copied());
        let ahead = self.spares.iter().chain(&self.unnamed).copied();
        let mut chunks: Vec<ChunkId> = needed.chain(left).chain(self.chunk).chain(self.written).chain(ahead).collect();
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

    /// The chunks that were found, in the order of their groups, with the first and the last block that counts. Each has so many blocks.
    pub fn found_in(&mut self, chunks: &[(ChunkId, u32, u32)], chunk_blocks: u32) {
        let (Some((_, first, _)), Some((chunk, _, end))) = (chunks.first(), chunks.last()) else { return };
        self.base = (chunks.len() as u64 - 1) * u64::from(chunk_blocks);
        self.tail = u64::from(*first);
        self.head = self.base + u64::from(*end);
        self.chunk = Some(*chunk);
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
        log.place(format, 16, 3, place(1, 0, 5));
        log.place(format, 16, 4, place(1, 5, 5));
        assert_eq!((log.head, log.is_long(), log.has_room(5, 16)), (10, false, true));
        assert_eq!(log.durable_before(9), 1);
        assert_eq!((log.programmed(2), log.programmed(1)), (None, Some(4)));
        assert_eq!((log.durable_before(9), log.durable_before(3), log.durable_before(2)), (3, 2, 1));
        assert_eq!(log.last_in_flight(), None);
        // Six blocks are left in the chunk.
        log.place(format, 16, 5, place(3, 0, 7));
        assert_eq!((log.head, log.is_long()), (23, true));
        assert!(log.has_room(9, 16) && log.has_room(8, 16));
        assert!(!log.has_room(10, 16), "nine are left in the chunk, so it goes to the next one");
        assert_eq!(log.forget_before(16, 3), [place(1, 0, 5), place(1, 5, 5)]);
        assert_eq!((log.is_long(), log.has_room(10, 16)), (false, true));
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
        log.found_in(&[(chunk(2), 14, 16), (chunk(5), 0, 4)], 16);
        assert_eq!((log.tail, log.head, log.next_group, log.durable_before(0)), (14, 20, 9, 9));
        log.again.push_back((8, 1, Vec::new()));
        assert_eq!(log.durable_before(0), 0);
        let next = Place::new(format, chunk(5), 4 * 64, 100);
        log.place(format, 16, 1, next);
        assert_eq!((log.head, log.last_in_flight()), (21, Some(next)));
    }
}
