//! What moves in one group: the victims, and the frontiers that their blocks go to.

use openftl_core::{ChunkId, Frame, Ppa, Time};
use openftl_parts::flash::units::OpenId;
use openftl_parts::words::Care;
use std::collections::VecDeque;

/// Of the frontiers of a group: what is moved for its room or because it is weak.
pub(crate) const MOVING: usize = 0;
/// Of the frontiers of a group: what is moved because it rests. It goes to the most worn chunks, and nothing else does.
pub(crate) const RESTING: usize = 1;
/// Of the frontiers of a group: the first for what placement keeps apart.
pub(crate) const DESTINATIONS: usize = 2;

/// Where relocated blocks of a group go.
#[derive(Default)]
pub(crate) struct RelocationFrontier {
    /// Blocks that wait for a full unit; their slots say what they are and where they come from.
    pub queue: VecDeque<Frame>,
    pub open: Option<OpenId>,
    /// Wanted a chunk, and got none; see [`Group::set_stalled`].
    stalled: bool,
    /// Write what is queued without waiting for a full unit.
    pub push: bool,
}

impl RelocationFrontier {
    /// Whether it wanted a chunk, and got none.
    #[inline]
    pub fn is_stalled(&self) -> bool {
        self.stalled
    }
}

pub(super) struct Victim {
    pub chunk: ChunkId,
    /// The next block to look at.
    pub next: u32,
    pub scanned: bool,
    /// Blocks that are on their way, and not in the map at their new place yet.
    pub outstanding: u32,
    /// Reads of it under way.
    pub reading: u32,
    /// What it gives back, and the relocations that takes.
    pub freed: u32,
    pub relocations: u32,
    /// Why it is emptied, if not for its room.
    pub care: Option<Care>,
    /// The logical block at each place, once one of them cannot say it itself.
    pub owners: Option<Vec<u64>>,
    /// It has room only in the reserve of its group: all of it enters the map in one transaction, so that after a crash either
    /// the victim holds nothing or the chunk that it moved to does.
    pub whole: bool,
    /// Of a `whole` one: blocks that are at their new place and wait for the others.
    pub moved: Vec<Relocated>,
}

/// A block that can be read at its new place.
#[derive(Clone, Copy)]
pub(super) struct Relocated {
    pub block: u64,
    pub from: Ppa,
    pub to: Ppa,
}

#[derive(Default)]
pub(super) struct Group {
    /// Has no victim that is worth moving before its room is needed, until the host asks for something.
    pub is_rested: bool,
    pub marked_at: Time,
    /// When it was last marked, so that groups alike take turns.
    pub turn: u64,
    pub victims: Vec<Victim>,
    pub reading: u32,
    /// Blocks that the device copies, or is to copy.
    pub copying: u32,
    /// What is moved for its room or because it is weak, what is moved because it rests, and what placement keeps apart.
    pub frontiers: Vec<RelocationFrontier>,
    /// How many of them are stalled: every turn asks.
    stalled: u32,
    /// Whether one of them may have a full unit, or is pushed: most turns find that none is.
    may_place: bool,
}

impl Group {
    /// With so many frontiers, and nothing to move.
    pub fn new(frontiers: usize) -> Group {
        let frontiers = std::iter::repeat_with(RelocationFrontier::default).take(frontiers).collect();
        Group { frontiers, ..Group::default() }
    }

    /// Whether one of its frontiers wanted a chunk, and got none.
    #[inline]
    pub fn is_stalled(&self) -> bool {
        self.stalled > 0
    }

    /// `frontier` wanted a chunk: it got none, or may get one the next time. Returns what was so before. For
    /// [`super::Collection`], which counts those of all groups.
    #[inline]
    pub fn set_stalled(&mut self, frontier: usize, stalled: bool) -> bool {
        let was_stalled = std::mem::replace(&mut self.frontiers[frontier].stalled, stalled);
        self.stalled = self.stalled + u32::from(stalled) - u32::from(was_stalled);
        was_stalled
    }

    /// `frame` waits on `frontier` for a unit of `unit_blocks`.
    #[inline]
    pub fn queue(&mut self, frontier: usize, frame: Frame, unit_blocks: u32) {
        let queue = &mut self.frontiers[frontier].queue;
        queue.push_back(frame);
        self.may_place |= queue.len() >= unit_blocks as usize;
    }

    /// `frame` waits on `frontier` before all others.
    pub fn queue_first(&mut self, frontier: usize, frame: Frame) {
        self.frontiers[frontier].queue.push_front(frame);
        self.may_place = true;
    }

    /// What waits on `frontier` did not find a chunk, or has moved to another frontier: the next turn tries again.
    pub fn place_later(&mut self) {
        self.may_place = true;
    }

    /// Whether a frontier has to be looked at.
    #[inline]
    pub fn may_place(&self) -> bool {
        self.may_place
    }

    /// The same. Who asks looks at all of them, and says with [`Group::place_later`] where something is left.
    #[inline]
    pub fn take_may_place(&mut self) -> bool {
        std::mem::take(&mut self.may_place)
    }

    /// Whether a unit waits that is full.
    #[inline]
    pub fn has_full_unit(&self, unit_blocks: u32) -> bool {
        self.frontiers.iter().any(|frontier| frontier.queue.len() >= unit_blocks as usize)
    }

    /// Whether a victim moves as a whole. Nothing that could be durable before it goes to the chunk that it moves to, but another
    /// that moves as a whole: after a crash that chunk would hold something, and no other would hold nothing.
    pub fn has_whole(&self) -> bool {
        self.victims.iter().any(|victim| victim.whole)
    }

    /// Whether no victim is being moved and nothing waits for its unit.
    pub fn is_at_rest(&self) -> bool {
        self.victims.is_empty() && self.frontiers.iter().all(|frontier| frontier.queue.is_empty())
    }
}
