//! Flexible Data Placement of a namespace: what its identifiers mean, and what has happened to them.
//!
//! ```text
//!   placement identifier (PID)   0   1   2  …  n − 1      one reclaim group: the identifier is the placement handle
//!   reclaim unit handle          0   1   2  …  n − 1      the namespace has all of them
//!   handle of the drive          1   2   3  …  n
//! ```
//!
//! A write that says no identifier, or one that means nothing, has identifier 0 (Base, "Flexible Data Placement"): it has no
//! handle, and the drive takes it as if it had the first ([`openftl_parts::PlacementName::default_handle`]).

use crate::command::Refusal;
use crate::hints::Hints;
use crate::namespace::Namespace;
use crate::wire::U16;
use crate::wire::data_placement::{HandleStatus, HandleStatusHead, PlacementEvent, Reallocated, event};
use crate::wire::status::Status;
use openftl_core::BLOCK_BYTES;
use openftl_parts::target::{Deed, HandleEvent, HandleSet, HandleWatch};
use openftl_parts::words::Handle;
use std::collections::VecDeque;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

/// The most events of a namespace that are kept of those that hosts caused; older ones are forgotten.
pub const EVENTS_MAX: usize = 63;

/// The drive's handle behind a placement identifier, if there is one.
#[inline]
pub(crate) fn handle_of(identifier: u16, handles: u8) -> Option<Handle> {
    (identifier < u16::from(handles)).then(|| Handle(identifier as u8 + 1))
}

/// The placement identifier of a handle of the drive.
fn identifier_of(handle: Handle) -> u16 {
    u16::from(handle.0) - 1
}

/// The events of a namespace that its hosts caused, oldest first, and which events hosts want to be kept. What the drive does
/// by itself it keeps note of.
#[derive(Default, Debug)]
pub(crate) struct PlacementEvents {
    events: VecDeque<PlacementEvent>,
    /// Of each kind in [`event::ALL`] the handles that it is wanted of.
    wanted: [HandleSet; event::ALL.len()],
}

impl PlacementEvents {
    /// Has events of a kind kept, or not, where they are about `handle`.
    ///
    /// # Errors
    /// If controllers here do not know the kind.
    pub fn want(&mut self, kind: u8, handle: Handle, is_wanted: bool) -> Result<(), Refusal> {
        let place = event::ALL.iter().position(|known| *known == kind).ok_or(Status::INVALID_FIELD)?;
        self.wanted[place].set(handle, is_wanted);
        Ok(())
    }

    /// The handles of which events of a kind are kept.
    pub fn wanted(&self, kind: u8) -> HandleSet {
        let place = event::ALL.iter().position(|known| *known == kind);
        place.map_or(HandleSet::default(), |place| self.wanted[place])
    }

    /// What the drive is to keep note of.
    pub fn watch(&self) -> HandleWatch {
        HandleWatch { moved: self.wanted(event::REALLOCATED), left: self.wanted(event::IMPLICITLY_MODIFIED) }
    }

    fn keep(&mut self, event: PlacementEvent) {
        if self.events.len() == EVENTS_MAX {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    /// A write came with an identifier that means nothing.
    pub fn invalid_identifier(&mut self, identifier: u16, namespace: u32, timestamp: [u8; 8]) {
        if !self.wanted(event::INVALID_IDENTIFIER).is_empty() {
            let mut data = PlacementEvent::new_zeroed();
            data.kind = event::INVALID_IDENTIFIER;
            data.flags = PlacementEvent::IDENTIFIER | PlacementEvent::NAMESPACE;
            (data.identifier, data.namespace, data.timestamp) = (identifier.into(), namespace.into(), timestamp);
            self.keep(data);
        }
    }

    /// A host left the reclaim unit of `handle` before it was full.
    pub fn not_fully_written(&mut self, handle: Handle, namespace: u32, timestamp: [u8; 8]) {
        if self.wanted(event::NOT_FULLY_WRITTEN).contains(handle) {
            self.keep(about(handle, event::NOT_FULLY_WRITTEN, namespace, timestamp));
        }
    }

    /// Oldest first.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &PlacementEvent> {
        self.events.iter()
    }
}

/// An event about a handle, and the reclaim unit that it had.
fn about(handle: Handle, kind: u8, namespace: u32, timestamp: [u8; 8]) -> PlacementEvent {
    let mut data = PlacementEvent::new_zeroed();
    data.kind = kind;
    data.flags = PlacementEvent::IDENTIFIER | PlacementEvent::NAMESPACE | PlacementEvent::LOCATION;
    (data.identifier, data.handle) = (identifier_of(handle).into(), identifier_of(handle).into());
    (data.namespace, data.timestamp) = (namespace.into(), timestamp);
    data
}

impl Namespace {
    /// What the drive has done by itself, as an event of the controller.
    pub(crate) fn placement_event(&self, event: &HandleEvent, timestamp: [u8; 8]) -> PlacementEvent {
        let blocks = |blocks: u64| (blocks * BLOCK_BYTES as u64) >> self.block_bytes_log2();
        match event.deed {
            Deed::Moved { blocks: moved, first } => {
                let mut specific = Reallocated::new_zeroed();
                specific.flags = Reallocated::FIRST;
                specific.blocks = u16::try_from(blocks(moved)).unwrap_or(u16::MAX).into();
                specific.first = blocks(first).into();
                let specific = zerocopy::transmute!(specific);
                PlacementEvent { specific, ..about(event.handle, event::REALLOCATED, self.id, timestamp) }
            }
            Deed::Left => about(event.handle, event::IMPLICITLY_MODIFIED, self.id, timestamp),
        }
    }

    /// The data of "Reclaim Unit Handle Status", as long as the host wants them. `room` says how many blocks of the drive can
    /// still be written under a handle to the chunks that are open for it; 0: none is open, and the unit is an empty one.
    #[must_use]
    pub fn handle_status(&self, bytes: u32, mut room: impl FnMut(Handle) -> u64) -> Vec<u8> {
        let Hints::DataPlacement { handles, unit_blocks, .. } = self.hints() else { return Vec::new() };
        let mut head = HandleStatusHead::new_zeroed();
        head.handles = u16::from(handles).into();
        let mut data = head.as_bytes().to_vec();
        let blocks = |blocks: u64| (blocks * BLOCK_BYTES as u64) >> self.block_bytes_log2();
        for identifier in 0..u16::from(handles) {
            let left = handle_of(identifier, handles).map_or(0, &mut room);
            let mut status = HandleStatus::new_zeroed();
            (status.identifier, status.handle) = (identifier.into(), identifier.into());
            // That of identifier 0 may have more chunks than a unit.
            status.blocks_left = blocks(if left == 0 { unit_blocks } else { left.min(unit_blocks) }).into();
            data.extend_from_slice(status.as_bytes());
        }
        data.resize(bytes as usize, 0);
        data
    }

    /// The handles of a "Reclaim Unit Handle Update" with `count` placement identifiers, all checked.
    ///
    /// # Errors
    /// If there are not as many, or one means nothing.
    pub fn updated_handles(&self, count: u16, data: &[u8]) -> Result<Vec<Handle>, Refusal> {
        let Hints::DataPlacement { handles, .. } = self.hints() else { return Err(Status::FDP_DISABLED.into()) };
        let Ok((list, _)) = <[U16]>::ref_from_prefix_with_elems(data, usize::from(count)) else {
            return Err(Status::DATA_SGL_LENGTH_INVALID.at(32));
        };
        let handles = list.iter().map(|identifier| handle_of(identifier.get(), handles));
        handles.collect::<Option<Vec<_>>>().ok_or(Status::INVALID_FIELD.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_wanted_is_kept_and_the_oldest_goes_first() {
        let mut events = PlacementEvents::default();
        events.invalid_identifier(9, 1, [0; 8]);
        events.not_fully_written(Handle(3), 1, [0; 8]);
        assert_eq!(events.iter().len(), 0);
        events.want(event::INVALID_IDENTIFIER, Handle(1), true).unwrap();
        events.want(event::NOT_FULLY_WRITTEN, Handle(128), true).unwrap();
        events.not_fully_written(Handle(3), 1, [0; 8]);
        events.not_fully_written(Handle(128), 1, [0; 8]);
        for identifier in 0..EVENTS_MAX as u16 {
            events.invalid_identifier(1000 + identifier, 1, [0; 8]);
        }
        let identifiers: Vec<u16> = events.iter().map(|event| event.identifier.get()).collect();
        assert_eq!(identifiers, (1000..1063).collect::<Vec<_>>());
        assert_eq!(events.want(4, Handle(1), true), Err(Status::INVALID_FIELD.into()), "of this kind nothing is known");
    }
}
