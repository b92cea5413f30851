//! What a controller asks of the drives behind it, on the admin path only. Whoever serves implements it.

use crate::health::Health;
use openftl_core::{ChunkId, Time};
use openftl_media::{ChunkDescriptor, MediaError, Notification};
use openftl_parts::{HandleEvent, HandleWatch};

/// One namespace of one subsystem.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct NamespaceName {
    /// Which subsystem of the target, in the order in which they were added.
    pub subsystem: usize,
    /// NSID.
    pub id: u32,
}

/// What the drive behind a namespace has written since it was opened, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct PlacementCounts {
    /// By hosts.
    pub host_bytes_written: u64,
    /// To its medium, for whatever purpose.
    pub media_bytes_written: u64,
    /// Erased on its medium.
    pub media_bytes_erased: u64,
}

/// The drives of a target.
pub trait Drives {
    /// How the drives of a subsystem are doing.
    fn health(&mut self, now: Time, subsystem: usize) -> Health;

    /// Bytes of a block namespace that hold data.
    fn bytes_in_use(&mut self, namespace: NamespaceName) -> u64;

    /// As [`openftl_media::Media::chunk_report`], of the device behind an Open-Channel namespace.
    ///
    /// # Errors
    /// If the device does not answer.
    fn chunk_report(
        &mut self,
        now: Time,
        namespace: NamespaceName,
        first: ChunkId,
        descriptors: &mut [ChunkDescriptor],
    ) -> Result<(), MediaError>;

    /// As [`openftl_media::Media::notifications`], of the device behind an Open-Channel namespace.
    ///
    /// # Errors
    /// If the device does not answer.
    fn notifications(
        &mut self,
        now: Time,
        namespace: NamespaceName,
        after: u64,
        notifications: &mut Vec<Notification>,
    ) -> Result<(), MediaError>;

    /// What the drive behind a block namespace has written. A drive that does not count says nothing.
    fn placement_counts(&mut self, _namespace: NamespaceName) -> PlacementCounts {
        PlacementCounts::default()
    }

    /// As [`openftl_parts::BlockTarget::watch_handles`], of the drive behind a block namespace. One that does nothing by itself
    /// takes no notice.
    fn watch_handles(&mut self, _namespace: NamespaceName, _watch: HandleWatch) {}

    /// As [`openftl_parts::BlockTarget::handle_events`], of the drive behind a block namespace.
    fn handle_events(&mut self, _namespace: NamespaceName, _events: &mut Vec<HandleEvent>) {}

    /// As [`openftl_media::Media::set_dulbe`], of the device behind an Open-Channel namespace.
    fn set_dulbe(&mut self, namespace: NamespaceName, dulbe: bool);
}
