//! The chunks that relocated blocks go to, and when another is opened.

use super::group::{DESTINATIONS, MOVING, RelocationFrontier};
use crate::block_ftl::BlockFtl;
use crate::placement::KEPT_APART;
use openftl_core::{ChunkId, Frame, PuId};
use openftl_parts::flash::oob::Oob;
use openftl_parts::flash::provisioning::Claim;
use openftl_parts::flash::units::OpenId;
use openftl_parts::placement_name::Relocation;
use openftl_parts::words::Label;

impl BlockFtl {
    /// The frontier of `group` that a block of a victim goes to: one of its own where placement wants that and it has room
    /// for it.
    #[inline]
    pub(super) fn moving_to(&mut self, group: u32, victim: ChunkId, frame: Frame) -> usize {
        if matches!(self.placement.relocation(), Relocation::WithHost | Relocation::Together) {
            return MOVING;
        }
        let slot = self.buffer.slot(frame);
        let written = match &self.placement.lifetimes {
            Some(lifetimes) if slot.is_copied() => lifetimes.written(slot.block, self.buffer.head()),
            _ if slot.is_copied() => 0,
            _ => Oob::peek(&self.flash.frames, frame).map_or(0, |oob| oob.sequence),
        };
        let age = self.buffer.head().saturating_sub(written);
        match self.placement.destination(self.flash.chunks.label(victim), age) {
            None => MOVING,
            Some(destination) if self.has_place(group, destination) => DESTINATIONS + destination,
            Some(_) => {
                self.flash.statistics.placement.merged += 1;
                MOVING
            }
        }
    }

    /// Whether one more block can be kept apart at this destination of `group`; opens a chunk for it where it may.
    fn has_place(&mut self, group: u32, destination: usize) -> bool {
        let at = DESTINATIONS + destination;
        let RelocationFrontier { queue, open, push, .. } = &mut self.collection.groups[group as usize].frontiers[at];
        let room = open.map_or(0, |open| self.flash.units.room(open) as usize);
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
    pub(super) fn open_destination(&mut self, group: u32, at: usize) -> Option<OpenId> {
        let frontier = &mut self.collection.groups[group as usize].frontiers[at];
        self.placement.opened[KEPT_APART] -= u32::from(frontier.open.take().is_some());
        self.flash.provisioning.keep_apart(self.placement.kept_apart());
        // What was promised to victims when they were begun stays theirs.
        let may_keep_apart = self.flash.read_only.is_none() && self.placement.may_open(KEPT_APART);
        if !may_keep_apart || !self.has_room_for(group, MOVING, 0, 1) {
            return None;
        }
        let label = self.placement.destination_label(at - DESTINATIONS);
        let open = self.flash.open_chunk(Claim::Destination(group), label)?;
        self.placement.opened[KEPT_APART] += 1;
        self.flash.provisioning.keep_apart(self.placement.kept_apart());
        self.collection.groups[group as usize].frontiers[at].open = Some(open);
        Some(open)
    }

    /// Gives the host the chunk on `pu` that moved blocks go to, where they share chunks and there is room without it for
    /// all that is on its way.
    pub(crate) fn moving_chunk_on(&mut self, pu: PuId) -> Option<OpenId> {
        if self.placement.relocation() != Relocation::WithHost {
            return None;
        }
        let group = self.flash.format.group_of(pu);
        let moving = &self.collection.groups[group as usize];
        let open = moving.frontiers[MOVING].open.filter(|_| !moving.has_whole())?;
        let room = self.flash.units.room(open);
        let is_here = room > 0 && self.flash.format.pu_of(self.flash.units.chunk(open).chunk) == pu;
        if !is_here || !self.has_room_for(group, MOVING, room, 0) {
            return None;
        }
        self.collection.groups[group as usize].frontiers[MOVING].open = None;
        Some(open)
    }

    /// Where what is moved for its room goes on when its last chunk is full.
    pub(super) fn open_moving(&mut self, group: u32) -> Option<OpenId> {
        if let Some((chunk, next)) = self.collection.partial[group as usize].pop() {
            return Some(self.flash.units.open(chunk, next));
        }
        let shared = match self.placement.relocation() {
            Relocation::WithHost => self.ordinary_frontier_in(group).or_else(|| self.open_ordinary_in(group)),
            _ => None,
        };
        shared.or_else(|| self.flash.open_chunk(Claim::Relocation(group), Label::Ordinary))
    }
}
