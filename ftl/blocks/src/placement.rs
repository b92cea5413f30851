//! Placement: which blocks share chunks, because they are expected to end together.
//!
//! One mechanism serves every way of telling a drive about lifetimes. A write gets a [`Class`]; each class is buffered and
//! programmed by itself, to open chunks of its own; the chunk remembers what it was opened for (its [`Label`]); and when
//! garbage collection moves what is left of it, the [`Relocation`] says whether that stays apart.
//!
//! ```text
//!              handle, object, or what was learned             label of the chunk, age of the block
//!   write ──────────────▶ class ──▶ queue ──▶ open chunks ──▶ victim ──────────────▶ relocation chunks of its group
//! ```
//!
//! | name | classes of writes | what collection moves |
//! |---|---|---|
//! | `none` | one | goes on in the host's open chunks: written in the order of time, as a plain drive does |
//! | `hot-cold` | one | has chunks of its own, for it has lived longer than what the host writes now |
//! | `learned` | two, by how long the overwritten version had lived | apart by the age of each block |
//! | `streams` | one for each handle, and the rest | all together: no stream-aware collection |
//! | `streams-kept` | the same | each handle by itself |
//! | `fdp` | one for each handle; the rest has the first | all together: initially isolated |
//! | `fdp-persistent` | the same | each handle by itself: persistently isolated |
//! | `flash-alloc` | one for each object that is being written, and the rest | objects by themselves, never with others |
//!
//! A class is a wish. Chunks that are open for classes beyond the ordinary one, or what stands for it, take room that
//! over-provisioning gave to garbage collection, so all of them together have a budget
//! ([`openftl_parts::flash::plan::Plan::placement_chunks`]). Who gets no chunk within it is placed with the ordinary writes, and [`openftl_parts::PlacementStatistics`] counts that. A drive that runs out of room places what
//! it has anywhere ([`openftl_parts::PlacementStatistics::spilled`]): a promise about durability comes before a wish about lifetimes.
//!
//! Classes are forgotten when the drive is closed or loses power, and so are the labels of its chunks: they are
//! expectations, and nothing that a host was promised.

use crate::handle_events::HandleEvents;
use crate::objects::Objects;
use openftl_core::{Geometry, Time};
use openftl_parts::config::Config;
use openftl_parts::flash::plan::Plan;
use openftl_parts::flash::units::{OpenId, Units};
use openftl_parts::lifetimes::Lifetimes;
use openftl_parts::placement_name::{PlacementName, Relocation};
use openftl_parts::target::{Extent, ObjectError, PlacementFacts};
use openftl_parts::words::{Class, Handle, Label};

/// Of the budgets: chunks for classes of writes.
pub(crate) const WRITES: usize = 0;
/// Of the budgets: chunks for what collection keeps apart.
pub(crate) const KEPT_APART: usize = 1;

/// The open chunks of one class; of the ordinary one [`crate::frontiers::HostFrontiers`] has them.
#[derive(Default)]
pub(crate) struct Frontier {
    pub open: Vec<OpenId>,
    next: usize,
    /// How many may be open at a time: more are written side by side.
    pub stripe: usize,
    /// In the list of classes that have a unit to write.
    is_ready: bool,
}

/// Placement as it happens. See the module.
pub struct Placement {
    name: PlacementName,
    relocation: Relocation,
    handles: u8,
    /// What is written with no class of its own: the ordinary one, or that of the default handle, which has as many chunks.
    rest: Class,
    /// Chunks that may be open beyond those of [`Placement::rest`], on the whole drive: for writes, and for what collection
    /// keeps apart.
    budgets: [u32; 2],
    /// Chunks that are.
    pub(crate) opened: [u32; 2],
    /// By class; that of the ordinary one is not used.
    pub(crate) frontiers: Vec<Frontier>,
    /// Classes with a unit to write, in the order in which they got it, and the memory of the list before.
    ready: Vec<Class>,
    ready_before: Vec<Class>,
    /// The parallel unit that the next class begins with.
    pub(crate) next_pu: usize,
    pub(crate) lifetimes: Option<Lifetimes>,
    pub(crate) objects: Objects,
    /// What the drive does by itself to what was written under handles.
    pub(crate) events: HandleEvents,
}

impl Placement {
    /// Nothing is open.
    #[must_use]
    pub fn new(config: &Config, plan: &Plan, geometry: &Geometry) -> Placement {
        let name = config.placement;
        let classes = name.classes(config.handles, config.objects_max);
        let places = name.destinations(config.handles) as u32 * geometry.groups;
        let kept_apart = if classes == 1 { plan.placement_chunks } else { places.min(plan.placement_chunks / 2) };
        let budgets = [plan.placement_chunks - kept_apart, kept_apart];
        let budget = budgets[WRITES] as usize;
        let rest = if config.handles == 0 { Class::ORDINARY } else { Class(name.default_handle().0.into()) };
        let stripe = match name {
            PlacementName::Learned => budget,
            // Objects say how large they are.
            PlacementName::FlashAlloc => 1,
            _ => budget / (usize::from(config.handles) - usize::from(rest != Class::ORDINARY)).max(1),
        };
        // No more chunks are written side by side than there are parallel units.
        let stripe = stripe.clamp(1, geometry.pus() as usize);
        let frontier = || Frontier { stripe, ..Frontier::default() };
        let mut frontiers: Vec<Frontier> = std::iter::repeat_with(frontier).take(classes).collect();
        frontiers[rest.index()].stripe = plan.host_frontiers as usize;
        Placement {
            name,
            relocation: name.relocation(),
            handles: config.handles,
            rest,
            budgets,
            opened: [0; 2],
            frontiers,
            ready: Vec::new(),
            ready_before: Vec::new(),
            next_pu: 0,
            lifetimes: (name == PlacementName::Learned).then(|| Lifetimes::new(plan.capacity_blocks)),
            objects: Objects::new(if name == PlacementName::FlashAlloc { config.objects_max } else { 0 }),
            events: HandleEvents::default(),
        }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> PlacementName {
        self.name
    }

    /// Where collection puts what it moves.
    #[inline]
    #[must_use]
    pub fn relocation(&self) -> Relocation {
        self.relocation
    }

    /// Classes of writes.
    #[must_use]
    pub fn classes(&self) -> usize {
        self.frontiers.len()
    }

    /// The class of what has none of its own.
    #[inline]
    pub(crate) fn rest(&self) -> Class {
        self.rest
    }

    /// Whether there is but the ordinary class.
    #[inline]
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.frontiers.len() == 1
    }

    /// Whether another chunk may be opened for a class ([`WRITES`]), or for what collection keeps apart ([`KEPT_APART`]).
    #[inline]
    #[must_use]
    pub(crate) fn may_open(&self, what: usize) -> bool {
        self.opened[what] < self.budgets[what]
    }

    /// The class of a block that the host writes at `position`, the clock of ages.
    #[inline]
    pub(crate) fn class_of(&mut self, block: u64, handle: Handle, position: u64) -> Class {
        match self.name {
            PlacementName::None | PlacementName::HotCold => Class::ORDINARY,
            PlacementName::Learned => {
                let is_brief = self.lifetimes.as_mut().is_some_and(|lifetimes| lifetimes.write(block, position));
                Class(u16::from(is_brief))
            }
            PlacementName::FlashAlloc => self.objects.write(block),
            _ if (1..=self.handles).contains(&handle.0) => Class(u16::from(handle.0)),
            _ => self.rest,
        }
    }

    /// Announces an object on a drive with chunks of so many blocks.
    ///
    /// # Errors
    /// If it cannot be kept apart from others.
    pub(crate) fn announce(&mut self, extents: &[Extent], blocks_per_chunk: u32) -> Result<(), ObjectError> {
        let class = self.objects.announce(extents)?;
        let blocks: u64 = extents.iter().map(|extent| extent.blocks).sum();
        let fair = self.budgets[WRITES] as usize / self.objects.live();
        let chunks = blocks.div_ceil(u64::from(blocks_per_chunk)) as usize;
        self.frontiers[class.index()].stripe = chunks.min(fair).max(1);
        Ok(())
    }

    /// What blocks of `class` count as in [`openftl_parts::PlacementStatistics::blocks`].
    #[inline]
    pub(crate) fn counted_as(&self, class: Class) -> Class {
        if self.name.heeds_handles() { class } else { Class(class.0.min(1)) }
    }

    /// What the chunks of `class` are labelled with.
    #[must_use]
    pub fn label(&self, class: Class) -> Label {
        match (self.name, class) {
            (_, Class::ORDINARY) => Label::Ordinary,
            (PlacementName::Learned, _) => Label::Brief,
            (PlacementName::FlashAlloc, _) => Label::Objects,
            (_, Class(handle)) => Label::Handle(handle as u8),
        }
    }

    /// Which of the places for relocated blocks one goes to that was written so long ago and lies in a chunk of `label`;
    /// `None`: to those that are not kept apart.
    #[inline]
    #[must_use]
    pub fn destination(&self, label: Label, age: u64) -> Option<usize> {
        match (self.relocation, label) {
            (Relocation::WithHost | Relocation::Together, _) => None,
            (Relocation::ByHandle, Label::Handle(handle)) => Some(usize::from(handle) - 1),
            (Relocation::ByType, Label::Objects) => Some(0),
            (Relocation::ByAge, label) => self.lifetimes.as_ref()?.destination(label == Label::Brief, age),
            (Relocation::ByHandle | Relocation::ByType, _) => None,
        }
    }

    /// Chunks that may still be opened for what collection keeps apart.
    pub(crate) fn kept_apart(&self) -> u32 {
        self.budgets[KEPT_APART].saturating_sub(self.opened[KEPT_APART])
    }

    /// From now on collection keeps nothing apart that it has no chunk for: the host needs the room. Returns whether that
    /// makes a difference.
    pub(crate) fn keep_nothing_apart(&mut self) -> bool {
        let kept = self.kept_apart();
        self.budgets[KEPT_APART] = 0;
        kept > 0
    }

    /// What the chunk of such a place is labelled with.
    #[must_use]
    pub fn destination_label(&self, destination: usize) -> Label {
        match self.relocation {
            Relocation::ByHandle => Label::Handle(destination as u8 + 1),
            Relocation::ByType => Label::Objects,
            Relocation::WithHost | Relocation::Together | Relocation::ByAge => Label::Ordinary,
        }
    }

    /// `class` has a unit to write.
    #[inline]
    pub(crate) fn make_ready(&mut self, class: Class) {
        let frontier = &mut self.frontiers[class.index()];
        if !std::mem::replace(&mut frontier.is_ready, true) {
            self.ready.push(class);
        }
    }

    /// Whether any class has a unit to write.
    #[inline]
    pub(crate) fn is_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Takes the list of classes that have a unit to write; [`Placement::keep`] wants its memory back.
    pub(crate) fn take_ready(&mut self) -> Vec<Class> {
        for class in &self.ready {
            self.frontiers[class.index()].is_ready = false;
        }
        let empty = std::mem::take(&mut self.ready_before);
        std::mem::replace(&mut self.ready, empty)
    }

    /// See [`Placement::take_ready`].
    pub(crate) fn keep(&mut self, mut list: Vec<Class>) {
        list.clear();
        self.ready_before = list;
    }

    /// Lets go of chunks of `class` that are full.
    pub(crate) fn let_go_of_full(&mut self, class: Class, units: &Units) {
        let open = &mut self.frontiers[class.index()].open;
        let before = open.len();
        open.retain(|open| units.room(*open) > 0);
        let let_go = (before - open.len()) as u32;
        self.opened[WRITES] -= if class == self.rest { 0 } else { let_go };
    }

    /// Of the open chunks of `class`, which all have room, the one whose turn it is.
    pub(crate) fn next_open(&mut self, class: Class) -> Option<OpenId> {
        let Frontier { open, next, .. } = &mut self.frontiers[class.index()];
        let index = if *next < open.len() { *next } else { 0 };
        *next = index + 1;
        open.get(index).copied()
    }

    /// Whether `class` wants another chunk besides those that it has.
    #[inline]
    pub(crate) fn wants_chunk(&self, class: Class) -> bool {
        let frontier = &self.frontiers[class.index()];
        frontier.open.len() < frontier.stripe
    }

    /// `open` is a chunk of `class` from now on.
    pub(crate) fn add(&mut self, class: Class, open: OpenId) {
        self.frontiers[class.index()].open.push(open);
        self.opened[WRITES] += u32::from(class != self.rest);
    }

    /// Gives `class` a chunk with room that an object which is over has left, if there is one.
    pub(crate) fn inherit(&mut self, class: Class, units: &Units) -> Option<OpenId> {
        for index in 0..self.objects.idle().len() {
            let idle = self.objects.idle()[index];
            if idle == class {
                continue;
            }
            self.let_go_of_full(idle, units);
            if let Some(open) = self.frontiers[idle.index()].open.pop() {
                self.frontiers[class.index()].open.push(open);
                return Some(open);
            }
        }
        None
    }

    /// What hosts can know of it, on a drive with chunks of so many blocks.
    #[must_use]
    pub fn facts(&self, blocks_per_chunk: u64) -> PlacementFacts {
        let handles = if self.name.heeds_handles() { self.handles } else { 0 };
        // The default handle may write more chunks side by side.
        let stripe = self.frontiers.last().map_or(0, |frontier| frontier.stripe as u64);
        let objects_max = if self.name == PlacementName::FlashAlloc { self.frontiers.len() as u16 - 1 } else { 0 };
        let unit_blocks = if handles > 0 { stripe * blocks_per_chunk } else { 0 };
        PlacementFacts { name: self.name, handles, objects_max, unit_blocks }
    }

    /// The class of writes under `handle`, if the drive has it.
    #[must_use]
    pub fn class_of_handle(&self, handle: Handle) -> Option<Class> {
        let has_it = self.name.heeds_handles() && (1..=self.handles).contains(&handle.0);
        has_it.then_some(Class(u16::from(handle.0)))
    }

    /// The chunks that are open for `handle`.
    pub(crate) fn open_for_handle(&self, handle: Handle) -> &[OpenId] {
        self.class_of_handle(handle).map_or(&[], |class| self.open_of(class))
    }

    /// The chunks that are open for `class`.
    pub(crate) fn open_of(&self, class: Class) -> &[OpenId] {
        &self.frontiers[class.index()].open
    }

    /// `class` goes on in other chunks than these.
    pub(crate) fn let_go_of_all(&mut self, class: Class) -> Vec<OpenId> {
        let open = std::mem::take(&mut self.frontiers[class.index()].open);
        self.opened[WRITES] -= if class == self.rest { 0 } else { open.len() as u32 };
        open
    }

    /// A unit of `class` was placed in a chunk of `label`. Returns whether that is one of its own.
    #[inline]
    pub(crate) fn placed(&mut self, class: Class, label: Label, now: Time) -> bool {
        let own = self.label(class);
        if let Label::Handle(handle) = own {
            self.events.placed(Handle(handle), label == own, now);
        }
        label == own
    }

    /// `open`, a chunk of `label` that has room, is closed: a program failed.
    pub(crate) fn closed_early(&mut self, open: OpenId, label: Label, now: Time) {
        if let Label::Handle(handle) = label
            && self.open_for_handle(Handle(handle)).contains(&open)
        {
            self.events.left(Handle(handle), now);
        }
    }

    /// Every chunk that is open for a class.
    pub(crate) fn open_chunks(&self) -> impl Iterator<Item = OpenId> + '_ {
        self.frontiers.iter().flat_map(|frontier| frontier.open.iter().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_read_back_and_another_is_refused_with_all_of_them() {
        for &name in PlacementName::ALL {
            assert_eq!(name.to_string().parse(), Ok(name));
        }
        let error = "fdb".parse::<PlacementName>().unwrap_err().to_string();
        assert!(PlacementName::ALL.iter().all(|name| error.contains(name.word())), "{error}");
    }
}
