//! A drive that can be tried: one of blocks, or one of segments, which zones are, too. One accounting serves both.

use openftl_blocks::BlockFtl;
use openftl_core::{FrameForm, Frames, Time};
use openftl_media::Media;
use openftl_parts::{BlockTarget, Done, IoError, ReadOnlyReason, Request};
use openftl_segments::SegmentFtl;
use openftl_zones::ZoneFtl;

/// A drive that can be tried.
pub enum TriedDrive<M: Media> {
    /// Blocks.
    Blocks(Box<BlockFtl<M>>),
    /// Segments.
    Segments(SegmentFtl<Box<ZoneFtl<M>>>),
}

impl<M: Media> From<BlockFtl<M>> for TriedDrive<M> {
    fn from(drive: BlockFtl<M>) -> TriedDrive<M> {
        TriedDrive::Blocks(Box::new(drive))
    }
}

impl<M: Media> From<ZoneFtl<M>> for TriedDrive<M> {
    fn from(drive: ZoneFtl<M>) -> TriedDrive<M> {
        TriedDrive::Segments(SegmentFtl::of(Box::new(drive)))
    }
}

impl<M: Media> TriedDrive<M> {
    /// The block FTL: all of a drive of blocks; records, tails and accounts of one of segments.
    #[must_use]
    pub fn ftl(&self) -> &BlockFtl<M> {
        match self {
            TriedDrive::Blocks(drive) => drive,
            TriedDrive::Segments(drive) => drive.zones().block(),
        }
    }

    /// The drive of blocks, if it is one.
    #[must_use]
    pub fn into_blocks(self) -> Option<BlockFtl<M>> {
        match self {
            TriedDrive::Blocks(drive) => Some(*drive),
            TriedDrive::Segments(_) => None,
        }
    }

    /// Counts from nothing.
    pub fn reset_statistics(&mut self) {
        match self {
            TriedDrive::Blocks(drive) => drive.reset_statistics(),
            TriedDrive::Segments(drive) => drive.zones_mut().reset_statistics(),
        }
    }

    /// Bytes of memory for where blocks are.
    #[must_use]
    pub fn map_memory_bytes(&self) -> u64 {
        match self {
            TriedDrive::Blocks(drive) => drive.map_memory_bytes(),
            TriedDrive::Segments(drive) => drive.zones().map_bytes(),
        }
    }

    /// Flash beyond the capacity: of blocks what [`BlockFtl::effective_over_provisioning`] says; of segments all of it, since nothing
    /// is ever collected.
    #[must_use]
    pub fn over_provisioning(&self) -> f64 {
        match self {
            TriedDrive::Blocks(drive) => drive.effective_over_provisioning(),
            TriedDrive::Segments(drive) => {
                let flash = drive.zones().block().media().geometry().blocks();
                flash as f64 / BlockTarget::blocks(drive) as f64 - 1.0
            }
        }
    }

    /// Why it takes no writes, if it does not.
    #[must_use]
    pub fn read_only_reason(&self) -> Option<ReadOnlyReason> {
        self.ftl().read_only_reason()
    }
}

macro_rules! of_either {
    ($drive:expr, $target:ident => $result:expr) => {
        match $drive {
            TriedDrive::Blocks($target) => $result,
            TriedDrive::Segments($target) => $result,
        }
    };
}

impl<M: Media> BlockTarget for TriedDrive<M> {
    fn blocks(&self) -> u64 {
        of_either!(self, target => target.blocks())
    }

    #[inline]
    fn frames(&self) -> &Frames {
        of_either!(self, target => target.frames())
    }

    #[inline]
    fn frames_mut(&mut self) -> &mut Frames {
        of_either!(self, target => target.frames_mut())
    }

    fn payload_form(&self) -> FrameForm {
        of_either!(self, target => target.payload_form())
    }

    #[inline]
    fn submit(&mut self, now: Time, tag: u64, request: Request<'_>) -> Result<(), IoError> {
        of_either!(self, target => target.submit(now, tag, request))
    }

    #[inline]
    fn poll(&mut self, now: Time, done: &mut Vec<Done>) {
        of_either!(self, target => target.poll(now, done));
    }

    #[inline]
    fn next_due(&self) -> Option<Time> {
        of_either!(self, target => target.next_due())
    }

    fn is_read_only(&self) -> bool {
        of_either!(self, target => target.is_read_only())
    }

    fn segment_blocks(&self) -> Option<u64> {
        of_either!(self, target => target.segment_blocks())
    }
}
