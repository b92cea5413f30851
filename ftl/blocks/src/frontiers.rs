//! The open chunks that host writes go to, and when another is opened.
//!
//! Ordinary writes go round the parallel units, one write unit each. Classes that a [placement](crate::placement) keeps apart have
//! open chunks of their own, as many as its budget allows.

use crate::block_ftl::BlockFtl;
use crate::placement::WRITES;
use openftl_core::PuId;
use openftl_parts::flash::provisioning::Claim;
use openftl_parts::flash::units::OpenId;
use openftl_parts::placement_name::Relocation;
use openftl_parts::words::{AREA_COPIES, Class, Label};
use std::cmp::Reverse;

/// The chunks that ordinary host writes go to: at most one for each parallel unit. Those of other classes are in
/// [`crate::placement::Placement`].
pub(crate) struct HostFrontiers {
    /// Parallel units in the order in which writes go round them.
    pub order: Vec<PuId>,
    /// The open chunk of each, in that order.
    pub open: Vec<Option<OpenId>>,
    /// How many there are.
    pub opened: u32,
    pub next: usize,
}

impl BlockFtl {
    /// The open chunk that the next unit of `class` goes to.
    pub(crate) fn host_frontier(&mut self, class: Class) -> Option<OpenId> {
        if class == Class::ORDINARY {
            return self.ordinary_frontier(class);
        }
        let rest = self.placement.rest();
        if class == rest {
            return self.class_frontier(rest, class, true);
        }
        let may_open = self.placement.may_open(WRITES);
        let own = self.class_frontier(class, class, may_open);
        // Within its budget a class waits for a chunk; beyond it, it is placed with the rest.
        match rest {
            _ if own.is_some() || may_open => own,
            Class::ORDINARY => self.ordinary_frontier(class),
            _ => self.class_frontier(rest, class, true),
        }
    }

    /// The open chunk of `class` that the next unit `of` a class goes to.
    fn class_frontier(&mut self, class: Class, of: Class, may_open: bool) -> Option<OpenId> {
        self.placement.let_go_of_full(class, &self.flash.units);
        if self.placement.wants_chunk(class) {
            let open =
                if may_open { self.open_for(class, of) } else { self.placement.inherit(class, &self.flash.units) };
            if open.is_some() {
                return open;
            }
        }
        self.placement.next_open(class)
    }

    /// Opens another chunk for `class`, on the next parallel unit that has one and where `class` has none with room, for a
    /// unit `of` a class.
    fn open_for(&mut self, class: Class, of: Class) -> Option<OpenId> {
        if !self.may_take_chunk(of) {
            return None;
        }
        let at_home = if self.copy_of(class).is_some() { self.open_on(class, true) } else { None };
        at_home.or_else(|| self.open_on(class, false))
    }

    fn open_on(&mut self, class: Class, at_home: bool) -> Option<OpenId> {
        let (pus, label) = (self.host.order.len(), self.placement.label(class));
        for step in 0..pus {
            let index = (self.placement.next_pu + step) % pus;
            let pu = self.host.order[index];
            if at_home && !self.is_at_home(class, pu) {
                continue;
            }
            let mut open = self.placement.open_of(class).iter();
            if open.any(|open| self.flash.format.pu_of(self.flash.units.chunk(*open).chunk) == pu) {
                continue;
            }
            if let Some(open) = self.flash.open_chunk(Claim::Host(pu), label) {
                self.placement.next_pu = index + 1;
                self.placement.add(class, open);
                return Some(open);
            }
        }
        None
    }

    /// Whether blocks of `class` may take a free chunk now. Nothing becomes invalid before the oldest block is
    /// committed, so as long as older blocks of other classes wait, the chunks that they will need are theirs.
    fn may_take_chunk(&self, class: Class) -> bool {
        self.placement.is_plain()
            || self.buffer.oldest() == Some(class)
            || self.flash.provisioning.host_chunks()
                > self.buffer.unplaced() as u32 / self.flash.geometry.blocks_per_chunk + 1
    }

    /// The open chunk that the next ordinary unit goes to, or one of a `class` that has no chunk of its own.
    fn ordinary_frontier(&mut self, class: Class) -> Option<OpenId> {
        let has_home = self.copy_of(class).is_some();
        let at_home = if has_home { self.next_frontier(class, true) } else { None };
        at_home.or_else(|| self.next_frontier(class, false))
    }

    fn next_frontier(&mut self, class: Class, at_home: bool) -> Option<OpenId> {
        // Host blocks that wait for a chunk ask again in each turn.
        let may_move_to_host = self.placement.relocation() == Relocation::WithHost;
        if self.host.opened == 0 && self.flash.provisioning.host_chunks() == 0 && !may_move_to_host {
            return None;
        }
        let mut may_open = None;
        for _ in 0..self.host.order.len() {
            let index = self.host.next;
            self.host.next = if index + 1 == self.host.order.len() { 0 } else { index + 1 };
            if at_home && !self.is_at_home(class, self.host.order[index]) {
                continue;
            }
            if let Some(open) = self.host.open[index] {
                if self.flash.units.room(open) > 0 {
                    return Some(open);
                }
                self.host.open[index] = None;
                self.host.opened -= 1;
            }
            if self.host.opened == self.flash.plan.host_frontiers
                || !*may_open.get_or_insert_with(|| self.may_take_chunk(class))
            {
                continue;
            }
            if let Some(open) = self.moving_chunk_on(self.host.order[index]) {
                self.host.open[index] = Some(open);
                self.host.opened += 1;
                return Some(open);
            }
            if self.flash.provisioning.host_chunks() == 0 {
                continue;
            }
            // With fewer frontiers than parallel units the fullest would be filled to the last before another is begun.
            let roomiest =
                if self.host.order.len() > self.flash.plan.host_frontiers as usize { self.roomiest() } else { index };
            for index in [roomiest, index] {
                if at_home && !self.is_at_home(class, self.host.order[index]) {
                    continue;
                }
                if let Some(open) = self.flash.open_chunk(Claim::Host(self.host.order[index]), Label::Ordinary) {
                    self.host.open[index] = Some(open);
                    self.host.opened += 1;
                    return Some(open);
                }
            }
        }
        None
    }

    /// Which copy of an area blocks of `class` are, if they are any.
    #[inline]
    fn copy_of(&self, class: Class) -> Option<u32> {
        let copy = u32::from(class.0).checked_sub(1).filter(|_| self.config.copies_apart)?;
        (copy < AREA_COPIES).then_some(copy)
    }

    /// Whether blocks of `class` should be on `pu`: of copies each has every other group, or parallel unit if there is one group.
    fn is_at_home(&self, class: Class, pu: PuId) -> bool {
        let format = self.flash.format;
        let place = if self.flash.geometry.groups > 1 { format.group_of(pu) } else { pu.0 };
        self.copy_of(class).is_none_or(|copy| place % AREA_COPIES == copy)
    }

    /// Any open chunk of the host that has room.
    pub(crate) fn any_frontier(&self) -> Option<OpenId> {
        let mut open = self.host.open.iter().flatten().copied().chain(self.placement.open_chunks());
        open.find(|open| self.flash.units.room(*open) > 0)
    }

    /// An open chunk of ordinary writes in `group` that has room: the one with the most.
    pub(crate) fn ordinary_frontier_in(&self, group: u32) -> Option<OpenId> {
        let open = self.host.open.iter().zip(&self.host.order).filter_map(|(open, pu)| Some((((*open)?), *pu)));
        let here = open.filter(|(_, pu)| self.flash.format.group_of(*pu) == group).map(|(open, _)| open);
        here.filter(|open| self.flash.units.room(*open) > 0).max_by_key(|open| self.flash.units.room(*open))
    }

    /// Opens the next chunk of ordinary writes in `group`, as the next host unit there would.
    pub(crate) fn open_ordinary_in(&mut self, group: u32) -> Option<OpenId> {
        let index = (0..self.host.order.len()).find(|index| {
            let is_full = self.host.open[*index].is_none_or(|open| self.flash.units.room(open) == 0);
            is_full && self.flash.format.group_of(self.host.order[*index]) == group
        })?;
        self.host.opened -= u32::from(self.host.open[index].take().is_some());
        if self.host.opened == self.flash.plan.host_frontiers {
            return None;
        }
        let open = self.flash.open_chunk(Claim::Host(self.host.order[index]), Label::Ordinary)?;
        self.host.open[index] = Some(open);
        self.host.opened += 1;
        Some(open)
    }

    /// Of the parallel units without a host frontier, by their place in the order, the one with the most free chunks.
    fn roomiest(&self) -> usize {
        let closed = (0..self.host.order.len()).filter(|index| self.host.open[*index].is_none());
        let free = |index: &usize| self.flash.provisioning.free_on_pu(self.host.order[*index]);
        closed.max_by_key(|index| (free(index), Reverse(*index))).expect("not all have one")
    }
}
