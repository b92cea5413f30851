//! The write buffer: frames in the order in which the host wrote them, placed by class.
//!
//! ```text
//!    committed ──▶ complete ──▶ done ──▶ placed ──▶ head
//!    │ whole        │ programmed │ being    │ the oldest │ next
//!    │ transactions │ up to here │ programmed│ that waits │ write
//!    │ programmed   │            │          │ for a unit │ goes here
//! ```
//!
//! Transactions are committed in this order, so what survives a power cut is a prefix of what the host wrote. In between the
//! order is free: each [`Class`] has a queue of its own and is placed when *it* has a full write unit, and a block leaves the
//! buffer as soon as it is committed and can be read from media, whatever is still in front of it.
//!
//! Each frame has a [`Slot`]. The slots of one logical block form a chain from the newest, which the map points at, down
//! to what is on media:
//!
//! ```text
//!    map[block] ──▶ slot (newest) ── older ──▶ slot ── older ──▶ media address, or nothing
//!                        ◀── newer ──               
//! ```
//!
//! Reads take the newest; checkpoints and garbage collection take the newest that is committed ([`WriteBuffer::base`]).

use openftl_core::{Frame, Ppa};
use openftl_parts::flash::oob::BlockKind;
use openftl_parts::journal::checkpoint::Body;
use openftl_parts::map::directory::Places;
use openftl_parts::map::{Entry, Map, Place};
use openftl_parts::words::Class;
use std::collections::VecDeque;

/// No newer write of the block.
const NONE: u32 = u32::MAX;
/// There was a newer write of the block, and it has left the buffer: the map knows it, and this one is history.
const LEFT: u32 = u32::MAX - 1;

/// What the FTL knows of the frame with the same index.
#[derive(Clone, Copy)]
pub struct Slot {
    /// The logical block.
    pub block: u64,
    /// What the map said before this write. For a block on its way in garbage collection: where it comes from.
    pub older: Entry,
    /// The frame of the next newer write of the same block.
    newer: u32,
    /// What the host wants it to be: data, or uncorrectable.
    pub kind: BlockKind,
    flags: u8,
    /// What it is placed with.
    pub class: Class,
    /// Where it is being programmed.
    pub ppa: Ppa,
    /// Its place in the order of writes.
    position: u64,
}

const LAST: u8 = 1;
const PLACED: u8 = 2;
const PROGRAMMED: u8 = 4;
const COMMITTED: u8 = 8;
const READABLE: u8 = 16;
/// For a block on its way in garbage collection.
const COPIED: u8 = 32;

impl Slot {
    /// Whether the device copies the block, which is on its way in garbage collection: its frame does not hold it.
    #[inline]
    #[must_use]
    pub fn is_copied(&self) -> bool {
        self.flags & COPIED != 0
    }

    /// Says so.
    #[inline]
    pub fn set_copied(&mut self, is_copied: bool) {
        self.flags = if is_copied { COPIED } else { 0 };
    }
}

/// A slot that has become part of the map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Committed {
    /// The logical block.
    pub block: u64,
    /// Where it is now.
    pub ppa: Ppa,
    /// Where it was before, which is invalid now.
    pub old: Option<Ppa>,
    /// Whether its transaction ends with it.
    pub last: bool,
}

/// The ring and the slots.
pub struct WriteBuffer {
    slots: Vec<Slot>,
    ring: Vec<Frame>,
    mask: u64,
    /// Positions count host blocks since the drive was formatted, and skip some after a crash; the next write gets this.
    head: u64,
    placed: u64,
    done: u64,
    complete: u64,
    committed: u64,
    /// What waits for a write unit, by class: in order, but for blocks whose program failed, which come first.
    queues: Vec<VecDeque<Frame>>,
    unplaced: usize,
    /// Committed, and readable from media.
    leaving: Vec<Frame>,
    /// Blocks in the buffer.
    held: u64,
}

impl WriteBuffer {
    /// An empty buffer over a pool of `frames`, for so many classes. Positions go on from `position`.
    #[must_use]
    pub fn new(frames: usize, classes: usize, position: u64) -> WriteBuffer {
        let empty = Slot {
            block: 0,
            older: Entry::UNMAPPED,
            newer: NONE,
            kind: BlockKind::Padding,
            flags: 0,
            class: Class::ORDINARY,
            ppa: Ppa(0),
            position: 0,
        };
        let ring = frames.next_power_of_two();
        WriteBuffer {
            slots: vec![empty; frames],
            ring: vec![Frame(NONE); ring],
            mask: ring as u64 - 1,
            head: position,
            placed: position,
            done: position,
            complete: position,
            committed: position,
            queues: vec![VecDeque::new(); classes],
            unplaced: 0,
            leaving: Vec::new(),
            held: 0,
        }
    }

    /// The position that the next write gets.
    #[must_use]
    pub fn head(&self) -> u64 {
        self.head
    }

    /// Everything below this position is committed.
    #[must_use]
    pub fn committed(&self) -> u64 {
        self.committed
    }

    /// Blocks in the buffer: not committed, or not readable from media yet.
    #[must_use]
    pub fn held(&self) -> u64 {
        self.held
    }

    /// Everything below this position has been given to the device, and not failed since.
    #[must_use]
    pub fn placed(&self) -> u64 {
        self.placed
    }

    /// Blocks that wait for a write unit.
    #[inline]
    #[must_use]
    pub fn unplaced(&self) -> usize {
        self.unplaced
    }

    /// Blocks of `class` that wait for a write unit.
    #[inline]
    #[must_use]
    pub fn waiting(&self, class: Class) -> usize {
        self.queues[class.index()].len()
    }

    /// The position of the first of them.
    #[inline]
    #[must_use]
    pub fn first_waiting(&self, class: Class) -> Option<u64> {
        self.queues[class.index()].front().map(|frame| self.slot(*frame).position)
    }

    /// The class of the oldest block that waits for a write unit.
    #[inline]
    #[must_use]
    pub fn oldest(&self) -> Option<Class> {
        (self.placed < self.head).then(|| self.slot(self.at(self.placed)).class)
    }

    /// Where the oldest block that is not programmed is being programmed, if it has a place.
    #[must_use]
    pub fn oldest_under_way(&self) -> Option<Ppa> {
        (self.done < self.placed).then(|| self.slot(self.at(self.done)).ppa)
    }

    fn at(&self, position: u64) -> Frame {
        self.ring[(position & self.mask) as usize]
    }

    /// The slot of `frame`.
    #[inline]
    #[must_use]
    pub fn slot(&self, frame: Frame) -> &Slot {
        &self.slots[frame.0 as usize]
    }

    /// The slot of `frame`, for the part that holds it.
    #[inline]
    #[must_use]
    pub fn slot_mut(&mut self, frame: Frame) -> &mut Slot {
        &mut self.slots[frame.0 as usize]
    }

    /// Takes a written block: reads see it from now on. `last` ends the transaction.
    #[inline]
    pub fn push(&mut self, map: &mut Map, frame: Frame, kind: BlockKind, block: u64, class: Class, last: bool) {
        let older = match map {
            Map::Whole(map) => map.replace(block, Entry::buffer(frame)),
            // What is below the buffer is for the map to know.
            Map::Paged(map) => map.hold(block, frame).map_or(Entry::UNMAPPED, Entry::buffer),
        };
        if let Place::Buffer(older) = older.place() {
            self.slots[older.0 as usize].newer = frame.0;
        }
        let flags = if last { LAST } else { 0 };
        let position = self.head;
        self.slots[frame.0 as usize] = Slot { block, older, newer: NONE, kind, flags, class, ppa: Ppa(0), position };
        self.ring[(position & self.mask) as usize] = frame;
        self.head += 1;
        self.queues[class.index()].push_back(frame);
        self.unplaced += 1;
        self.held += 1;
        debug_assert!(self.head - self.committed <= self.ring.len() as u64, "the frame pool bounds the ring");
    }

    /// The next block of `class` to place, with its position.
    #[inline]
    #[must_use]
    pub fn next_to_place(&mut self, class: Class) -> Option<(Frame, u64)> {
        let frame = self.queues[class.index()].pop_front()?;
        self.unplaced -= 1;
        let slot = &mut self.slots[frame.0 as usize];
        slot.flags |= PLACED;
        let position = slot.position;
        while self.placed < self.head && self.slot(self.at(self.placed)).flags & PLACED != 0 {
            self.placed += 1;
        }
        Some((frame, position))
    }

    /// The program of `frame` failed: place it again, at the position that it had, before anything newer of its class.
    pub fn place_again(&mut self, frame: Frame) {
        let slot = &mut self.slots[frame.0 as usize];
        slot.flags &= !PLACED;
        self.placed = self.placed.min(slot.position);
        self.queues[slot.class.index()].push_front(frame);
        self.unplaced += 1;
    }

    /// `frame` is programmed (so that it survives whatever the commit record will survive).
    #[inline]
    pub fn programmed(&mut self, frame: Frame) {
        self.slots[frame.0 as usize].flags |= PROGRAMMED;
    }

    /// `frame` can be read from media.
    #[inline]
    pub fn readable(&mut self, frame: Frame) {
        let slot = &mut self.slots[frame.0 as usize];
        slot.flags |= READABLE;
        if slot.flags & COMMITTED != 0 {
            self.leaving.push(frame);
        }
    }

    /// Moves `done` and `complete` as far as programs have ended.
    #[inline]
    pub fn advance(&mut self) {
        while self.done < self.placed {
            let flags = self.slot(self.at(self.done)).flags;
            if flags & PROGRAMMED == 0 {
                break;
            }
            self.done += 1;
            if flags & LAST != 0 {
                self.complete = self.done;
            }
        }
    }

    /// Whether there is a transaction to commit.
    #[inline]
    #[must_use]
    pub fn has_complete(&self) -> bool {
        self.committed != self.complete
    }

    /// Commits the next block if its whole transaction is programmed.
    #[inline]
    pub fn commit(&mut self) -> Option<Committed> {
        if !self.has_complete() {
            return None;
        }
        let frame = self.at(self.committed);
        self.committed += 1;
        let slot = self.slots[frame.0 as usize];
        // Commits are in order, so whatever is older is committed already.
        let old = match slot.older.place() {
            Place::Unmapped | Place::Lost => None,
            Place::Media(ppa) => Some(ppa),
            Place::Buffer(older) => Some(self.slots[older.0 as usize].ppa),
        };
        self.slots[frame.0 as usize].flags |= COMMITTED;
        if slot.flags & READABLE != 0 {
            self.leaving.push(frame);
        }
        Some(Committed { block: slot.block, ppa: slot.ppa, old, last: slot.flags & LAST != 0 })
    }

    /// Lets go of a block that is committed and can be read from media: the map points there from now on.
    #[inline]
    pub fn release(&mut self, map: &mut Map) -> Option<Frame> {
        let frame = self.leaving.pop()?;
        let slot = self.slots[frame.0 as usize];
        match slot.newer {
            NONE => match map {
                Map::Whole(map) => map.set(slot.block, Entry::media(slot.ppa)),
                Map::Paged(map) => map.let_go(slot.block),
            },
            LEFT => {}
            newer => {
                let is_whole = matches!(map, Map::Whole(_));
                self.slots[newer as usize].older = if is_whole { Entry::media(slot.ppa) } else { Entry::UNMAPPED };
            }
        }
        if let Place::Buffer(older) = slot.older.place() {
            self.slots[older.0 as usize].newer = LEFT;
        }
        self.held -= 1;
        Some(frame)
    }

    /// Where the newest committed version of `block` is being programmed, while it is in the buffer; else what lies below
    /// those that are not committed.
    #[inline]
    fn newest_committed(&self, map: &Map, block: u64) -> Result<Ppa, Entry> {
        let mut entry = newest(map, block);
        while let Place::Buffer(frame) = entry.place() {
            let slot = &self.slots[frame.0 as usize];
            if slot.flags & COMMITTED != 0 {
                return Ok(slot.ppa);
            }
            entry = slot.older;
        }
        Err(entry)
    }

    /// What the log says of `block`: where its newest committed version is on media. Of a map that is in memory.
    #[inline]
    #[must_use]
    pub fn base(&self, map: &Map, block: u64) -> Entry {
        debug_assert!(matches!(map, Map::Whole(_)), "a map on media knows by itself what is committed");
        self.newest_committed(map, block).map_or_else(|below| below, Entry::media)
    }

    /// Where the newest committed version of `block` is being programmed while it cannot be read from there yet.
    #[must_use]
    pub fn unreadable(&self, map: &Map, block: u64) -> Option<Ppa> {
        self.newest_committed(map, block).ok()
    }

    /// The position of the newest buffered write of `block`.
    #[inline]
    #[must_use]
    pub fn newest(&self, map: &Map, block: u64) -> Option<u64> {
        match newest(map, block).place() {
            Place::Buffer(frame) => Some(self.slot(frame).position),
            _ => None,
        }
    }

    /// The position behind the transaction that the buffered write at `position` belongs to.
    #[must_use]
    pub fn end_of_transaction(&self, position: u64) -> u64 {
        let last = (position..self.head).find(|position| self.slot(self.at(*position)).flags & LAST != 0);
        last.map_or(self.head, |last| last + 1)
    }

    /// Changes what the log says of `block` from `from` to `to`: garbage collection has moved it, or it is trimmed.
    /// Returns whether it was still there. Of a map that is in memory.
    pub fn rebase(&mut self, map: &mut Map, block: u64, from: Entry, to: Entry) -> bool {
        let map = map.whole_mut();
        let mut entry = map.get(block);
        if entry == from {
            map.set(block, to);
            return true;
        }
        while let Place::Buffer(frame) = entry.place() {
            let slot = &mut self.slots[frame.0 as usize];
            if slot.flags & COMMITTED != 0 {
                // Committed, and readable like all of a chunk under collection, but about to leave the buffer.
                let there = Entry::media(slot.ppa) == from;
                if let (true, Place::Media(to)) = (there, to.place()) {
                    slot.ppa = to;
                }
                return there;
            }
            if slot.older == from {
                slot.older = to;
                return true;
            }
            entry = slot.older;
        }
        false
    }
}

/// The newest version of `block` in the buffer; if there is none, what a map in memory says of it.
#[inline]
fn newest(map: &Map, block: u64) -> Entry {
    match map {
        Map::Whole(map) => map.get(block),
        Map::Paged(map) => map.buffered(block).map_or(Entry::UNMAPPED, Entry::buffer),
    }
}

/// The map as far as it is committed.
pub(crate) struct CommittedMap<'a> {
    pub map: &'a Map,
    pub buffer: &'a WriteBuffer,
}

impl Body for CommittedMap<'_> {
    fn blocks(&self) -> u64 {
        self.map.blocks()
    }

    fn entry(&self, block: u64) -> Entry {
        self.buffer.base(self.map, block)
    }

    fn committed(&self) -> u64 {
        self.buffer.committed()
    }

    fn pages(&self) -> u32 {
        match self.map {
            Map::Whole(_) => 0,
            Map::Paged(map) => map.directory().pages(),
        }
    }

    fn page_places(&self, page: u32) -> Places {
        match self.map {
            Map::Whole(_) => unreachable!("a map in memory has no pages"),
            Map::Paged(map) => map.places(page),
        }
    }

    fn changes_from(&self, block: u64, changes: &mut [(u64, Entry)]) -> usize {
        match self.map {
            Map::Whole(_) => 0,
            Map::Paged(map) => map.changes().first_of(block..map.len(), changes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use openftl_parts::map::Mapping;

    fn written(buffer: &mut WriteBuffer, map: &mut Map, frame: u32, block: u64, last: bool) -> Frame {
        buffer.push(map, Frame(frame), BlockKind::Data, block, Class::ORDINARY, last);
        Frame(frame)
    }

    fn program(buffer: &mut WriteBuffer, ppa: u64) {
        let (frame, _) = buffer.next_to_place(Class::ORDINARY).unwrap();
        buffer.slot_mut(frame).ppa = Ppa(ppa);
        buffer.programmed(frame);
        buffer.advance();
    }

    #[test]
    fn a_transaction_commits_only_when_all_of_it_is_programmed() {
        let (mut buffer, mut map) = (WriteBuffer::new(4, 1, 0), Map::Whole(Mapping::new(8)));
        written(&mut buffer, &mut map, 0, 5, false);
        written(&mut buffer, &mut map, 1, 6, true);
        program(&mut buffer, 100);
        assert_eq!(buffer.commit(), None);
        program(&mut buffer, 101);
        assert_eq!(buffer.commit(), Some(Committed { block: 5, ppa: Ppa(100), old: None, last: false }));
        assert_eq!(buffer.commit(), Some(Committed { block: 6, ppa: Ppa(101), old: None, last: true }));
        assert_eq!(buffer.commit(), None);
    }

    #[test]
    fn the_base_is_the_newest_committed_version() {
        let (mut buffer, mut map) = (WriteBuffer::new(4, 1, 0), Map::Whole(Mapping::new(8)));
        map.whole_mut().set(3, Entry::media(Ppa(7)));
        written(&mut buffer, &mut map, 0, 3, true);
        written(&mut buffer, &mut map, 1, 3, true);
        assert_eq!(buffer.base(&map, 3), Entry::media(Ppa(7)));
        program(&mut buffer, 100);
        assert_eq!(buffer.commit().unwrap().old, Some(Ppa(7)));
        assert_eq!(buffer.base(&map, 3), Entry::media(Ppa(100)));
        program(&mut buffer, 101);
        assert_eq!(buffer.commit().unwrap().old, Some(Ppa(100)), "the older version is invalid though still buffered");
    }

    #[test]
    fn a_released_block_leaves_the_newer_one_in_place() {
        let (mut buffer, mut map) = (WriteBuffer::new(4, 1, 0), Map::Whole(Mapping::new(8)));
        let first = written(&mut buffer, &mut map, 0, 3, true);
        let second = written(&mut buffer, &mut map, 1, 3, true);
        program(&mut buffer, 100);
        buffer.commit();
        assert_eq!(buffer.release(&mut map), None, "committed, but not yet readable from media");
        buffer.readable(first);
        assert_eq!(buffer.release(&mut map), Some(first));
        assert_eq!(map.whole().get(3), Entry::buffer(second));
        assert_eq!(buffer.base(&map, 3), Entry::media(Ppa(100)));
        program(&mut buffer, 101);
        buffer.commit();
        buffer.readable(second);
        buffer.release(&mut map);
        assert_eq!(map.whole().get(3), Entry::media(Ppa(101)));
    }

    #[test]
    fn a_moved_block_is_rebased_under_what_the_host_wrote_meanwhile() {
        let (mut buffer, mut map) = (WriteBuffer::new(4, 1, 0), Map::Whole(Mapping::new(8)));
        map.whole_mut().set(3, Entry::media(Ppa(7)));
        written(&mut buffer, &mut map, 0, 3, true);
        assert!(buffer.rebase(&mut map, 3, Entry::media(Ppa(7)), Entry::media(Ppa(50))));
        assert!(!buffer.rebase(&mut map, 3, Entry::media(Ppa(7)), Entry::media(Ppa(51))), "it is no longer there");
        program(&mut buffer, 100);
        assert_eq!(buffer.commit().unwrap().old, Some(Ppa(50)));
    }

    #[test]
    fn a_failed_program_holds_the_commit_until_it_is_repeated() {
        let (mut buffer, mut map) = (WriteBuffer::new(4, 1, 0), Map::Whole(Mapping::new(8)));
        written(&mut buffer, &mut map, 0, 1, true);
        written(&mut buffer, &mut map, 1, 2, true);
        let (failed, _) = buffer.next_to_place(Class::ORDINARY).unwrap();
        program(&mut buffer, 101);
        buffer.place_again(failed);
        assert_eq!(buffer.commit(), None);
        program(&mut buffer, 102);
        assert_eq!(buffer.commit().unwrap().block, 1);
        assert_eq!(buffer.commit().unwrap().block, 2);
    }

    #[test]
    fn whoever_waits_for_a_failed_block_sees_that_it_is_not_placed_however_much_is_behind_it() {
        let (mut buffer, mut map) = (WriteBuffer::new(8, 1, 0), Map::Whole(Mapping::new(8)));
        for frame in 0..6 {
            written(&mut buffer, &mut map, frame, frame.into(), true);
        }
        let placed: Vec<(Frame, u64)> = (0..6).map(|_| buffer.next_to_place(Class::ORDINARY).unwrap()).collect();
        for (frame, _) in placed[1..3].iter().rev() {
            buffer.place_again(*frame);
        }
        assert_eq!((buffer.placed(), buffer.unplaced()), (1, 2));
        assert_eq!(buffer.next_to_place(Class::ORDINARY), Some(placed[1]));
        assert_eq!(buffer.placed(), 2);
        assert_eq!(buffer.next_to_place(Class::ORDINARY), Some(placed[2]));
        assert_eq!(buffer.placed(), 6);
    }
}
