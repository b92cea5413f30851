//! What a drive does by itself to what was written under handles, for hosts that want to know ([`HandleWatch`]).
//!
//! | event | when |
//! |---|---|
//! | [`Deed::Moved`] | a chunk that was opened for the handle has been emptied, for whatever reason, and some of it was still valid |
//! | [`Deed::Left`] | writes under the handle went on elsewhere, though their chunk was not full and no host had asked for another |
//!
//! A drive leaves a chunk that is closed early because a program failed, and it leaves the handle's own chunks where there is
//! none to be had: within the budget of [`crate::placement`], or at all.
//!
//! Of what nobody watches nothing is noted. Like classes, events are forgotten when the drive is closed or loses power.

use openftl_core::{ChunkId, Time};
use openftl_parts::target::{Deed, HandleEvent, HandleSet, HandleWatch};
use openftl_parts::words::{Handle, Label};
use std::collections::VecDeque;

/// The most events that are kept; older ones are forgotten.
pub const HANDLE_EVENTS_MAX: usize = 63;

/// What was moved so far out of a chunk that is being emptied.
#[derive(Debug)]
struct Emptying {
    chunk: ChunkId,
    handle: Handle,
    blocks: u64,
    /// The lowest of them.
    first: u64,
}

/// The events of a drive, and which of them somebody wants to be kept.
#[derive(Default, Debug)]
pub struct HandleEvents {
    watch: HandleWatch,
    /// Oldest first.
    events: VecDeque<HandleEvent>,
    /// One for each victim at most.
    emptying: Vec<Emptying>,
    /// Handles whose last unit did not go to a chunk of their own.
    elsewhere: HandleSet,
}

impl HandleEvents {
    /// Has other events kept from now on. Those that were kept stay.
    pub fn watch(&mut self, watch: HandleWatch) {
        self.watch = watch;
    }

    /// Oldest first.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &HandleEvent> {
        self.events.iter()
    }

    fn keep(&mut self, event: HandleEvent) {
        if self.events.len() == HANDLE_EVENTS_MAX {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    /// Logical block `block` has moved out of `chunk`, which was opened for what `label` says.
    #[inline]
    pub(crate) fn moved(&mut self, chunk: ChunkId, label: Label, block: u64) {
        if !self.watch.moved.is_empty()
            && let Label::Handle(handle) = label
            && self.watch.moved.contains(Handle(handle))
        {
            self.add(chunk, Handle(handle), block);
        }
    }

    fn add(&mut self, chunk: ChunkId, handle: Handle, block: u64) {
        match self.emptying.iter_mut().find(|emptying| emptying.chunk == chunk) {
            Some(emptying) => {
                emptying.blocks += 1;
                emptying.first = emptying.first.min(block);
            }
            None => self.emptying.push(Emptying { chunk, handle, blocks: 1, first: block }),
        }
    }

    /// All that was valid in `chunk` has moved.
    #[inline]
    pub(crate) fn emptied(&mut self, chunk: ChunkId, at: Time) {
        if let Some(index) = self.emptying.iter().position(|emptying| emptying.chunk == chunk) {
            let Emptying { handle, blocks, first, .. } = self.emptying.swap_remove(index);
            if self.watch.moved.contains(handle) {
                self.keep(HandleEvent { handle, at, deed: Deed::Moved { blocks, first } });
            }
        }
    }

    /// A chunk that was open for `handle`, and had room, takes no more.
    pub(crate) fn left(&mut self, handle: Handle, at: Time) {
        if self.watch.left.contains(handle) {
            self.keep(HandleEvent { handle, at, deed: Deed::Left });
        }
    }

    /// A unit of `handle` was placed: in a chunk of its own, or elsewhere. Where it goes on elsewhere is one event.
    #[inline]
    pub(crate) fn placed(&mut self, handle: Handle, is_own: bool, at: Time) {
        if is_own == self.elsewhere.contains(handle) {
            self.elsewhere.set(handle, !is_own);
            if !is_own {
                self.left(handle, at);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> HandleEvents {
        let mut events = HandleEvents::default();
        let mut handles = HandleSet::default();
        (1..=3).for_each(|handle| handles.set(Handle(handle), true));
        events.watch(HandleWatch { moved: handles, left: handles });
        events
    }

    fn kept(events: &HandleEvents) -> Vec<(u8, u64, Deed)> {
        events.iter().map(|event| (event.handle.0, event.at.0, event.deed)).collect()
    }

    #[test]
    fn what_was_moved_out_of_a_chunk_is_one_event_when_all_has_moved() {
        let mut events = all();
        for (chunk, label, block) in
            [(5, Label::Handle(2), 70), (6, Label::Handle(1), 3), (5, Label::Handle(2), 40), (7, Label::Ordinary, 9)]
        {
            events.moved(ChunkId(chunk), label, block);
        }
        assert_eq!(kept(&events), []);
        events.emptied(ChunkId(5), Time(1));
        events.emptied(ChunkId(7), Time(2));
        assert_eq!(kept(&events), [(2, 1, Deed::Moved { blocks: 2, first: 40 })]);
        events.emptied(ChunkId(6), Time(3));
        assert_eq!(kept(&events)[1..], [(1, 3, Deed::Moved { blocks: 1, first: 3 })]);
    }

    #[test]
    fn a_handle_that_goes_on_elsewhere_is_one_event_until_it_is_back() {
        let mut events = all();
        for (at, is_own) in [true, false, false, true, true, false].into_iter().enumerate() {
            events.placed(Handle(1), is_own, Time(at as u64));
        }
        assert_eq!(kept(&events), [(1, 1, Deed::Left), (1, 5, Deed::Left)]);
    }

    #[test]
    fn only_what_is_watched_is_kept_and_the_oldest_goes_first() {
        let mut events = HandleEvents::default();
        events.left(Handle(1), Time(0));
        events.moved(ChunkId(1), Label::Handle(1), 0);
        events.emptied(ChunkId(1), Time(0));
        assert_eq!(kept(&events), []);
        let mut one = HandleSet::default();
        one.set(Handle(128), true);
        events.watch(HandleWatch { left: one, ..HandleWatch::default() });
        for at in 0..HANDLE_EVENTS_MAX as u64 + 2 {
            events.left(Handle(127), Time(at));
            events.left(Handle(128), Time(at));
        }
        let times: Vec<u64> = kept(&events).iter().map(|event| event.1).collect();
        assert_eq!(times, (2..HANDLE_EVENTS_MAX as u64 + 2).collect::<Vec<_>>());
    }
}
