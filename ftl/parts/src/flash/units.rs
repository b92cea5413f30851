//! Write units on their way to the medium, and the open chunks that they go to.
//!
//! A unit is programmed as a whole at the write pointer of an open chunk. Two things happen to it later, and others wait
//! for them:
//!
//! - **programmed**: it survives a power cut. On a device with a protected cache that is its completion; on one without,
//!   its FUA completion and MW_CUNITS blocks written behind it, because the program of a paired page may still damage it.
//! - **readable**: the device lets it be read: MW_CUNITS blocks are written behind it, or its chunk is closed.
//!
//! ```text
//!   open chunk   [ readable ……… | completed, not readable: MW_CUNITS | under way | not written yet ]
//!                               ▲                                    ▲           ▲
//!                     completed − MW_CUNITS                      completed      next
//! ```
//!
//! A unit that the device copies may turn out to have nothing to copy: then it is read and written where it was to be, and the
//! units behind it, which the device refuses because the write pointer is not there yet, are submitted once more after it.

use crate::words::Purpose;
use openftl_core::{ChunkId, Frame, Geometry, Ppa, VECTOR_BLOCKS_MAX};
use std::collections::VecDeque;

/// Copies that the device has under way in one chunk, at most: one is read while those before it are programmed.
const COPIES_MAX: u32 = 3;

/// Names an open chunk, also after it was closed and its place in the table was given to another.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct OpenId {
    index: u32,
    generation: u32,
}

/// Names a unit under way.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct UnitId(pub u32);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    UnderWay,
    Completed,
    Failed,
}

/// A write unit.
pub struct Unit {
    /// Why it is written; padding within a unit counts with the unit.
    pub purpose: Purpose,
    /// The group, lane, copy or log unit that it belongs to.
    pub owner: u64,
    /// Where it goes.
    pub open: OpenId,
    /// The chunk of `open`.
    pub chunk: ChunkId,
    /// Its first block in the chunk.
    pub first: u32,
    /// Its blocks; those beyond `used` are padding.
    pub count: u32,
    /// Its blocks that are no padding.
    pub used: u32,
    state: State,
    /// A vector and no array: thousands of units are under way at a time, most units are short, and the processor's caches have to hold them.
    frames: Vec<Frame>,
    /// Where the device copies its blocks from; none if they are written.
    sources: Vec<Ppa>,
}

impl Unit {
    /// Whether the device copies its blocks.
    #[inline]
    #[must_use]
    pub fn is_copy(&self) -> bool {
        !self.sources.is_empty()
    }

    /// Where the device copies its blocks from, padding included.
    #[must_use]
    pub fn sources(&self) -> &[Ppa] {
        &self.sources
    }

    /// What is written, padding included.
    #[inline]
    #[must_use]
    pub fn frames(&self) -> &[Frame] {
        &self.frames
    }
}

/// A unit that cannot be read yet.
#[derive(Clone, Copy)]
struct Waiting {
    unit: UnitId,
    /// The block of the chunk behind it.
    end: u32,
}

/// A chunk that is being written.
pub struct OpenChunk {
    /// Which.
    pub chunk: ChunkId,
    /// The next block to submit.
    pub next: u32,
    /// Blocks that have completed, in order.
    completed: u32,
    /// No more can be written, though it may not be full: a program failed.
    closed: bool,
    /// Units that cannot be read yet, in order.
    waiting: VecDeque<Waiting>,
    /// How many of them have completed.
    waiting_completed: usize,
    /// Units that the device has, and how many of them it copies.
    submitted: u32,
    copies: u32,
    /// Units that could not be copied and are being read.
    reading: u32,
    /// The device has refused units behind one that it could not copy.
    disordered: bool,
    /// Units that wait to be submitted, in order.
    held: VecDeque<UnitId>,
    live: bool,
    generation: u32,
}

impl OpenChunk {
    /// Whether nothing more can be written to it: it closes when its last units have ended.
    #[must_use]
    pub fn is_closing(&self, blocks_per_chunk: u32) -> bool {
        self.closed || self.next == blocks_per_chunk
    }
}

/// What has happened to a unit or a chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// It survives a power cut.
    Programmed(UnitId),
    /// It can be read. The unit ends with this event.
    Readable(UnitId),
    /// Nothing was written. The unit ends with this event.
    Failed(UnitId),
    /// All units of the chunk have ended and nothing more can be written to it.
    Closed(ChunkId),
}

/// All units under way and all open chunks of one drive.
pub struct Units {
    units: Vec<Unit>,
    free_units: Vec<UnitId>,
    open: Vec<OpenChunk>,
    free_open: Vec<u32>,
    blocks_per_chunk: u32,
    mw_cunits: u32,
    volatile_cache: bool,
    /// What happened and has not been dealt with.
    pub events: VecDeque<Event>,
    under_way: u32,
}

impl Units {
    /// None yet.
    #[must_use]
    pub fn new(geometry: &Geometry) -> Units {
        Units {
            units: Vec::new(),
            free_units: Vec::new(),
            open: Vec::new(),
            free_open: Vec::new(),
            blocks_per_chunk: geometry.blocks_per_chunk,
            mw_cunits: geometry.mw_cunits,
            volatile_cache: geometry.volatile_cache,
            events: VecDeque::new(),
            under_way: 0,
        }
    }

    /// Blocks of a unit where a chunk is to be a whole number of them: WS_OPT as far as one command reaches, or less of whole
    /// WS_MIN.
    #[must_use]
    pub fn whole_unit(geometry: &Geometry) -> u32 {
        let most = geometry.ws_opt.min(VECTOR_BLOCKS_MAX as u32) / geometry.ws_min;
        let fits = |units: &u32| geometry.blocks_per_chunk.is_multiple_of(units * geometry.ws_min);
        (1..=most).rev().find(fits).unwrap_or(1) * geometry.ws_min
    }

    /// Begins to write `chunk` at block `next`: 0, or where it was left when the drive was last open.
    pub fn open(&mut self, chunk: ChunkId, next: u32) -> OpenId {
        let fresh = OpenChunk {
            chunk,
            next,
            completed: next,
            closed: false,
            waiting: VecDeque::new(),
            waiting_completed: 0,
            submitted: 0,
            copies: 0,
            reading: 0,
            disordered: false,
            held: VecDeque::new(),
            live: true,
            generation: 0,
        };
        let Some(index) = self.free_open.pop() else {
            self.open.push(fresh);
            return OpenId { index: self.open.len() as u32 - 1, generation: 0 };
        };
        let old = &mut self.open[index as usize];
        let (waiting, held) = (std::mem::take(&mut old.waiting), std::mem::take(&mut old.held));
        let generation = old.generation + 1;
        *old = OpenChunk { waiting, held, generation, ..fresh };
        OpenId { index, generation }
    }

    #[inline]
    fn get(&self, open: OpenId) -> Option<&OpenChunk> {
        self.open.get(open.index as usize).filter(|chunk| chunk.live && chunk.generation == open.generation)
    }

    /// Blocks that can still be written to `open`; 0 if it is full or closed.
    #[inline]
    #[must_use]
    pub fn room(&self, open: OpenId) -> u32 {
        match self.get(open) {
            Some(open) if !open.closed => self.blocks_per_chunk - open.next,
            _ => 0,
        }
    }

    /// Lets go of an open chunk that nothing was written to.
    pub fn forget(&mut self, open: OpenId) {
        let chunk = &mut self.open[open.index as usize];
        assert!(chunk.live && chunk.generation == open.generation && chunk.next == 0, "nothing was written to it");
        chunk.live = false;
        self.free_open.push(open.index);
    }

    /// Open chunks that `counts`, those included whose last units are under way.
    #[must_use]
    pub fn count_open(&self, counts: impl Fn(&OpenChunk) -> bool) -> u32 {
        self.open.iter().filter(|open| open.live && counts(open)).count() as u32
    }

    /// The open chunk.
    ///
    /// # Panics
    /// If it is closed and all its units have ended.
    #[inline]
    #[must_use]
    pub fn chunk(&self, open: OpenId) -> &OpenChunk {
        self.get(open).expect("an open chunk")
    }

    /// The chunk that `open` names, while it is open or units of it are under way.
    #[inline]
    #[must_use]
    pub fn chunk_if_open(&self, open: OpenId) -> Option<ChunkId> {
        self.get(open).map(|open| open.chunk)
    }

    /// Blocks that nothing has been written to yet, in the open chunks that `counts`.
    #[must_use]
    pub fn unwritten(&self, counts: impl Fn(ChunkId) -> bool) -> u64 {
        self.open
            .iter()
            .filter(|open| open.live && !open.closed && counts(open.chunk))
            .map(|open| u64::from(self.blocks_per_chunk - open.next))
            .sum()
    }

    /// Units submitted and not completed.
    #[must_use]
    pub fn under_way(&self) -> u32 {
        self.under_way
    }

    /// Units of `open` that are submitted, or wait to be, and have not completed.
    #[must_use]
    pub fn uncompleted(&self, open: OpenId) -> usize {
        self.get(open).map_or(0, |open| open.waiting.len() - open.waiting_completed)
    }

    /// Whether nothing is on its way to `open`.
    #[must_use]
    pub fn is_at_rest(&self, open: OpenId) -> bool {
        self.get(open).is_none_or(|open| open.waiting_completed == open.waiting.len())
    }

    /// Blocks of `open` that can be read and survive a power cut, also those that an earlier life of the drive has written; `None` if the
    /// chunk is closed, and all of them do.
    #[must_use]
    pub fn readable_up_to(&self, open: OpenId) -> Option<u32> {
        self.get(open).map(|open| open.completed.saturating_sub(self.mw_cunits))
    }

    /// Whether `open` has completed units that cannot be read, or are not programmed, until more is written behind them.
    #[must_use]
    pub fn wants_padding(&self, open: OpenId) -> bool {
        let Some(open) = self.get(open) else { return false };
        !open.closed
            && open.next < self.blocks_per_chunk
            && open.waiting_completed == open.waiting.len()
            && open.waiting.iter().any(|waiting| self.units[waiting.unit.0 as usize].purpose != Purpose::Padding)
    }

    /// Takes the next `frames.len()` blocks of `open`, of which `used` are no padding.
    pub fn begin(&mut self, open: OpenId, purpose: Purpose, owner: u64, frames: &[Frame], used: u32) -> UnitId {
        let chunk = &mut self.open[open.index as usize];
        let count = frames.len() as u32;
        assert!(chunk.live && chunk.generation == open.generation, "an open chunk");
        assert!(!chunk.closed && chunk.next + count <= self.blocks_per_chunk, "a unit lies inside one chunk");
        let first = chunk.next;
        chunk.next += count;
        let id = match self.free_units.pop() {
            Some(id) => id,
            None => {
                self.units.push(Unit {
                    purpose,
                    owner,
                    open,
                    chunk: chunk.chunk,
                    first,
                    count,
                    used,
                    state: State::UnderWay,
                    frames: Vec::new(),
                    sources: Vec::new(),
                });
                UnitId(self.units.len() as u32 - 1)
            }
        };
        let unit = &mut self.units[id.0 as usize];
        (unit.purpose, unit.owner, unit.open, unit.chunk) = (purpose, owner, open, chunk.chunk);
        (unit.first, unit.count, unit.used, unit.state) = (first, count, used, State::UnderWay);
        unit.frames.clear();
        unit.frames.extend_from_slice(frames);
        unit.sources.clear();
        chunk.waiting.push_back(Waiting { unit: id, end: chunk.next });
        self.under_way += 1;
        id
    }

    /// The blocks of `unit`, which was just begun, are copied from these places. What fills it up is the last of them once more:
    /// the map points at neither the second copy nor, soon, the place that both were copied from.
    pub fn copy_from(&mut self, unit: UnitId, sources: &[Ppa]) {
        let unit = &mut self.units[unit.0 as usize];
        unit.sources.extend_from_slice(sources);
        let last = *unit.sources.last().expect("a unit has a block");
        unit.sources.resize(unit.count as usize, last);
    }

    /// The open chunk of `unit`, and whether that is copied.
    fn open_of(&mut self, unit: UnitId) -> (&mut OpenChunk, bool) {
        let unit = &self.units[unit.0 as usize];
        (&mut self.open[unit.open.index as usize], unit.is_copy())
    }

    /// Whether `unit` may be submitted. If not, [`Units::next_held`] gives it back when it may.
    #[inline]
    pub fn may_go(&mut self, unit: UnitId) -> bool {
        let (open, is_copy) = self.open_of(unit);
        if open.disordered || !open.held.is_empty() || (is_copy && open.copies == COPIES_MAX) {
            open.held.push_back(unit);
            return false;
        }
        open.submitted += 1;
        open.copies += u32::from(is_copy);
        true
    }

    /// The device has done with `unit` for now, well or not.
    #[inline]
    pub fn came_back(&mut self, unit: UnitId) {
        let (open, is_copy) = self.open_of(unit);
        open.submitted -= 1;
        open.copies -= u32::from(is_copy);
    }

    /// `unit` could not be copied, and is read instead.
    pub fn read_instead(&mut self, unit: UnitId) {
        let (open, _) = self.open_of(unit);
        open.reading += 1;
        open.disordered = true;
    }

    /// It has been read, and may be submitted as a write by [`Units::next_held`], after those before it.
    pub fn has_been_read(&mut self, unit: UnitId) {
        self.open_of(unit).0.reading -= 1;
        self.units[unit.0 as usize].sources.clear();
        self.hold(unit);
    }

    fn hold(&mut self, unit: UnitId) {
        let units = &self.units;
        let open = &mut self.open[units[unit.0 as usize].open.index as usize];
        let first = |id: &UnitId| units[id.0 as usize].first;
        let at = open.held.partition_point(|id| first(id) < first(&unit));
        open.held.insert(at, unit);
    }

    /// Holds `unit` back, which the device has refused, if that may be for a unit before it that was to be copied. Returns
    /// false if it has failed for good.
    pub fn may_come_again(&mut self, unit: UnitId) -> bool {
        let units = &self.units;
        let open = &mut self.open[units[unit.0 as usize].open.index as usize];
        let is_open = |id: UnitId| units[id.0 as usize].state == State::UnderWay;
        let waits_for_copy = !open.closed
            && (open.copies > 0 || open.disordered)
            && open.waiting.iter().map(|waiting| waiting.unit).take_while(|id| *id != unit).any(is_open);
        if waits_for_copy {
            open.disordered = true;
            self.hold(unit);
        }
        waits_for_copy
    }

    /// The next unit of the chunk of `unit` that was held back and is to be submitted now.
    #[inline]
    pub fn next_held(&mut self, unit: UnitId) -> Option<UnitId> {
        let open = &mut self.open[self.units[unit.0 as usize].open.index as usize];
        if open.disordered {
            if open.submitted > 0 || open.reading > 0 {
                return None;
            }
            open.disordered = false;
        }
        let next = *open.held.front()?;
        let is_copy = self.units[next.0 as usize].is_copy();
        if is_copy && open.copies == COPIES_MAX {
            return None;
        }
        open.held.pop_front();
        open.submitted += 1;
        open.copies += u32::from(is_copy);
        Some(next)
    }

    /// The unit.
    #[inline]
    #[must_use]
    pub fn unit(&self, unit: UnitId) -> &Unit {
        &self.units[unit.0 as usize]
    }

    /// Whether the device has written `unit`. It may be neither programmed nor readable yet.
    #[must_use]
    pub fn has_completed(&self, unit: UnitId) -> bool {
        self.units[unit.0 as usize].state == State::Completed
    }

    /// The device has written the unit.
    #[inline]
    pub fn completed(&mut self, unit: UnitId) {
        self.end(unit, State::Completed);
    }

    /// The device could not write the unit. `closed` if it closed the chunk.
    pub fn failed(&mut self, unit: UnitId, closed: bool) {
        let open = self.units[unit.0 as usize].open;
        self.open[open.index as usize].closed |= closed;
        self.end(unit, State::Failed);
    }

    fn end(&mut self, unit: UnitId, state: State) {
        self.under_way -= 1;
        self.units[unit.0 as usize].state = state;
        let open = self.units[unit.0 as usize].open;
        self.settle(open);
    }

    /// A unit's frames are no longer needed, nor is its name.
    #[inline]
    pub fn finish(&mut self, unit: UnitId) {
        self.free_units.push(unit);
    }

    fn settle(&mut self, id: OpenId) {
        let open = &mut self.open[id.index as usize];
        while let Some(Waiting { unit, end }) = open.waiting.get(open.waiting_completed).copied() {
            match self.units[unit.0 as usize].state {
                State::UnderWay => break,
                State::Completed => {
                    if !self.volatile_cache {
                        self.events.push_back(Event::Programmed(unit));
                    }
                    open.waiting_completed += 1;
                    open.completed = end;
                }
                State::Failed => {
                    self.events.push_back(Event::Failed(unit));
                    open.waiting.remove(open.waiting_completed);
                    if !open.closed {
                        open.completed = end;
                    }
                }
            }
        }
        let ended = open.waiting_completed == open.waiting.len() && (open.closed || open.next == self.blocks_per_chunk);
        let readable = if ended { u32::MAX } else { open.completed.saturating_sub(self.mw_cunits) };
        while open.waiting_completed > 0 {
            let Waiting { unit, end } = open.waiting[0];
            if end > readable {
                break;
            }
            if self.volatile_cache {
                self.events.push_back(Event::Programmed(unit));
            }
            self.events.push_back(Event::Readable(unit));
            open.waiting.pop_front();
            open.waiting_completed -= 1;
        }
        if ended && open.live {
            open.live = false;
            self.events.push_back(Event::Closed(open.chunk));
            self.free_open.push(id.index);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn units(mw_cunits: u32, volatile_cache: bool) -> (Units, OpenId) {
        let mut units = Units::new(&Geometry { mw_cunits, volatile_cache, ..Geometry::tiny() });
        let open = units.open(ChunkId(3), 0);
        (units, open)
    }

    fn begin(units: &mut Units, open: OpenId) -> UnitId {
        units.begin(open, Purpose::Data, 0, &[Frame(0); 4], 4)
    }

    fn begin_as(units: &mut Units, open: OpenId, is_copy: bool) -> UnitId {
        let unit = begin(units, open);
        if is_copy {
            units.copy_from(unit, &[Ppa(1)]);
        }
        unit
    }

    fn events(units: &mut Units) -> Vec<Event> {
        units.events.drain(..).collect()
    }

    #[test]
    fn a_unit_is_readable_only_when_enough_is_written_behind_it() {
        let (mut units, open) = units(4, false);
        let (a, b) = (begin(&mut units, open), begin(&mut units, open));
        units.completed(a);
        assert_eq!(events(&mut units), [Event::Programmed(a)]);
        units.completed(b);
        assert_eq!(events(&mut units), [Event::Programmed(b), Event::Readable(a)]);
        assert!(units.wants_padding(open));
    }

    #[test]
    fn without_power_loss_protection_it_is_programmed_only_then_too() {
        let (mut units, open) = units(4, true);
        let (a, b) = (begin(&mut units, open), begin(&mut units, open));
        units.completed(a);
        assert_eq!(events(&mut units), []);
        units.completed(b);
        assert_eq!(events(&mut units), [Event::Programmed(a), Event::Readable(a)]);
    }

    #[test]
    fn completions_out_of_order_wait_for_the_units_before_them() {
        let (mut units, open) = units(0, false);
        let (a, b) = (begin(&mut units, open), begin(&mut units, open));
        units.completed(b);
        assert_eq!(events(&mut units), []);
        units.completed(a);
        assert_eq!(events(&mut units).len(), 4);
    }

    #[test]
    fn what_is_refused_behind_a_failed_copy_is_submitted_after_it_again_in_order() {
        let (mut units, open) = units(0, false);
        let [failed, write, copy, last] = [true, false, true, false].map(|is_copy| begin_as(&mut units, open, is_copy));
        assert!([failed, write, copy].map(|id| units.may_go(id)).into_iter().all(|went| went));
        // The device tells of what it refused before it tells why.
        units.came_back(copy);
        assert!(units.may_come_again(copy));
        units.came_back(failed);
        units.read_instead(failed);
        assert!(!units.may_go(last));
        assert_eq!(units.next_held(failed), None, "one is still to come back");
        units.came_back(write);
        assert!(units.may_come_again(write));
        assert_eq!(units.next_held(write), None, "the first is still being read");
        units.has_been_read(failed);
        let again: Vec<_> = std::iter::from_fn(|| units.next_held(failed)).collect();
        assert_eq!(again, [failed, write, copy, last]);
    }

    #[test]
    fn of_two_failed_copies_the_first_is_written_first_whichever_is_read_sooner() {
        let (mut units, open) = units(0, false);
        let [first, second] = [(); 2].map(|()| begin_as(&mut units, open, true));
        for id in [first, second] {
            assert!(units.may_go(id));
        }
        for id in [first, second] {
            units.came_back(id);
            units.read_instead(id);
        }
        units.has_been_read(second);
        assert_eq!(units.next_held(second), None, "the first is still being read");
        units.has_been_read(first);
        let order: Vec<_> = std::iter::from_fn(|| units.next_held(first)).collect();
        assert_eq!(order, [first, second]);
    }

    #[test]
    fn what_is_refused_without_a_copy_before_it_has_failed() {
        let (mut units, open) = units(0, false);
        let (first, second) = (begin_as(&mut units, open, true), begin_as(&mut units, open, true));
        assert!(units.may_go(first) && units.may_go(second));
        units.came_back(first);
        assert!(!units.may_come_again(first), "nothing is before it");
        units.failed(first, true);
        units.came_back(second);
        assert!(!units.may_come_again(second), "the chunk is closed");
    }

    #[test]
    fn a_chunk_has_only_so_many_copies_under_way() {
        let (mut units, open) = units(0, false);
        let ids: Vec<_> = (0..4).map(|_| begin_as(&mut units, open, true)).collect();
        let went: Vec<_> = ids.iter().map(|id| units.may_go(*id)).collect();
        assert_eq!(went.iter().filter(|went| **went).count(), COPIES_MAX as usize);
        units.came_back(ids[0]);
        units.completed(ids[0]);
        assert_eq!(units.next_held(ids[0]), Some(ids[COPIES_MAX as usize]));
        assert_eq!(units.next_held(ids[0]), None);
    }

    #[test]
    fn a_full_chunk_is_readable_to_its_end_and_closes() {
        let (mut units, open) = units(4, false);
        let all: Vec<_> = (0..4).map(|_| begin(&mut units, open)).collect();
        assert_eq!(units.room(open), 0);
        for unit in &all {
            units.completed(*unit);
        }
        let events = events(&mut units);
        assert!(all.iter().all(|unit| events.contains(&Event::Readable(*unit))));
        assert_eq!(events.last(), Some(&Event::Closed(ChunkId(3))));
    }

    #[test]
    fn a_chunk_closed_early_keeps_what_was_written_and_fails_the_rest() {
        let (mut units, open) = units(4, false);
        let (a, b, c) = (begin(&mut units, open), begin(&mut units, open), begin(&mut units, open));
        units.completed(a);
        units.failed(b, true);
        assert_eq!(units.room(open), 0);
        units.failed(c, true);
        let events = events(&mut units);
        assert_eq!(
            events,
            [Event::Programmed(a), Event::Failed(b), Event::Failed(c), Event::Readable(a), Event::Closed(ChunkId(3))]
        );
    }
}
