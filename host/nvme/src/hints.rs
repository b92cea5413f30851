//! What writes to a namespace may say of the lifetime of their data, as the drive behind it places what it writes.
//!
//! | placement of the drive | a host speaks of | with |
//! |---|---|---|
//! | `streams`, `streams-kept` | streams | the Streams directive |
//! | `fdp`, `fdp-persistent` | placement identifiers | Flexible Data Placement |
//! | `flash-alloc` | objects | a command of ours, FlashAlloc |
//! | any other | nothing | |

use crate::data_placement::PlacementEvents;
use crate::streams::Streams;
use openftl_parts::placement_name::PlacementName;
use openftl_parts::target::PlacementFacts;

/// What a namespace takes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum Hints {
    /// Nothing.
    #[default]
    None,
    /// Stream identifiers.
    Streams {
        /// Streams that may be open at a time; at least one.
        streams: u8,
        /// Blocks of the drive that a stream is given at a time.
        unit_blocks: u64,
    },
    /// Placement identifiers, of one reclaim group.
    DataPlacement {
        /// Reclaim unit handles; at least one.
        handles: u8,
        /// What collection moves stays apart as well: persistently isolated. Otherwise the handles are initially isolated.
        is_persistent: bool,
        /// Blocks of the drive in a reclaim unit.
        unit_blocks: u64,
    },
    /// Extents of objects that are about to be written.
    Objects,
}

impl Hints {
    /// Whether the namespace has I/O command directives.
    #[must_use]
    pub fn has_directives(self) -> bool {
        matches!(self, Hints::Streams { .. } | Hints::DataPlacement { .. })
    }

    /// Whether Flexible Data Placement is enabled.
    #[must_use]
    pub fn is_data_placement(self) -> bool {
        matches!(self, Hints::DataPlacement { .. })
    }
}

impl From<PlacementFacts> for Hints {
    fn from(facts: PlacementFacts) -> Hints {
        let PlacementFacts { name, handles, objects_max, unit_blocks } = facts;
        match name {
            PlacementName::Streams | PlacementName::StreamsKept if handles > 0 => {
                Hints::Streams { streams: handles, unit_blocks }
            }
            PlacementName::Fdp | PlacementName::FdpPersistent if handles > 0 => {
                let is_persistent = name == PlacementName::FdpPersistent;
                Hints::DataPlacement { handles, is_persistent, unit_blocks }
            }
            PlacementName::FlashAlloc if objects_max > 0 => Hints::Objects,
            _ => Hints::None,
        }
    }
}

/// What is remembered of the hints of a namespace, for all its hosts.
#[derive(Default, Debug)]
pub(crate) struct HintState {
    pub streams: Streams,
    pub events: PlacementEvents,
}

impl HintState {
    pub fn new(hints: Hints) -> HintState {
        let streams = if let Hints::Streams { streams, .. } = hints { streams } else { 0 };
        HintState { streams: Streams::new(streams), events: PlacementEvents::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drive_takes_the_hints_of_its_placement() {
        let check = |name, hints| {
            let facts = PlacementFacts { name, handles: 8, objects_max: 64, unit_blocks: 1024 };
            assert_eq!(Hints::from(facts), hints, "{name}");
        };
        let streams = Hints::Streams { streams: 8, unit_blocks: 1024 };
        let placement = |is_persistent| Hints::DataPlacement { handles: 8, is_persistent, unit_blocks: 1024 };
        check(PlacementName::None, Hints::None);
        check(PlacementName::HotCold, Hints::None);
        check(PlacementName::Learned, Hints::None);
        check(PlacementName::Streams, streams);
        check(PlacementName::StreamsKept, streams);
        check(PlacementName::Fdp, placement(false));
        check(PlacementName::FdpPersistent, placement(true));
        check(PlacementName::FlashAlloc, Hints::Objects);
    }

    #[test]
    fn a_drive_without_handles_takes_none() {
        for &name in PlacementName::ALL {
            let facts = PlacementFacts { name, handles: 0, objects_max: 0, unit_blocks: 0 };
            assert_eq!(Hints::from(facts), Hints::None, "{name}");
        }
    }
}
