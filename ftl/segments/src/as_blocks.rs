//! What hosts see as blocks: a drive of blocks, or the segments of a zoned one.

use crate::drive::SegmentFtl;
use openftl_blocks::{BlockFtl, CheckReport, Ftl, kind_on};
use openftl_core::{Clock, FrameForm, Frames, Time};
use openftl_media::Media;
use openftl_parts::config::Config;
use openftl_parts::open_error::OpenError;
use openftl_parts::target::{
    BlockTarget, Done, ExpectedUse, Extent, HandleEvent, HandleWatch, IoError, PlacementFacts, Request, Target, Vitals,
};
use openftl_parts::words::{Access, Handle};
use openftl_zones::{AskedLimits, ZoneConfig, ZoneFtl};

/// See the module.
pub enum AsBlocks<B, S> {
    /// A drive of blocks.
    Blocks(B),
    /// Segments.
    Segments(S),
}

/// A drive that is seen as blocks, of either kind.
pub type BlockDrive<M> = AsBlocks<Box<BlockFtl<M>>, SegmentFtl<Box<ZoneFtl<M>>>>;

impl<M: Media> From<BlockFtl<M>> for BlockDrive<M> {
    fn from(drive: BlockFtl<M>) -> BlockDrive<M> {
        AsBlocks::Blocks(Box::new(drive))
    }
}

impl<M: Media> From<ZoneFtl<M>> for BlockDrive<M> {
    fn from(drive: ZoneFtl<M>) -> BlockDrive<M> {
        AsBlocks::Segments(SegmentFtl::of(Box::new(drive)))
    }
}

macro_rules! of_either {
    ($drive:expr, $target:ident => $result:expr) => {
        match $drive {
            AsBlocks::Blocks($target) => $result,
            AsBlocks::Segments($target) => $result,
        }
    };
}

impl<B: Target<Done = Done>, S: Target<Done = Done>> Target for AsBlocks<B, S> {
    type Done = Done;

    #[inline]
    fn frames(&self) -> &Frames {
        of_either!(self, target => target.frames())
    }

    #[inline]
    fn frames_mut(&mut self) -> &mut Frames {
        of_either!(self, target => target.frames_mut())
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

    fn vitals(&self) -> Option<Vitals> {
        of_either!(self, target => target.vitals())
    }

    fn give_up(&mut self, now: Time) -> String {
        of_either!(self, target => target.give_up(now))
    }
}

impl<B: BlockTarget, S: BlockTarget> BlockTarget for AsBlocks<B, S> {
    fn blocks(&self) -> u64 {
        of_either!(self, target => target.blocks())
    }

    fn payload_form(&self) -> FrameForm {
        of_either!(self, target => target.payload_form())
    }

    #[inline]
    fn submit(&mut self, now: Time, tag: u64, request: Request<'_>) -> Result<(), IoError> {
        of_either!(self, target => target.submit(now, tag, request))
    }

    #[inline]
    fn segment_blocks(&self) -> Option<u64> {
        of_either!(self, target => target.segment_blocks())
    }

    fn placement(&self) -> PlacementFacts {
        of_either!(self, target => target.placement())
    }

    fn handle_room(&self, handle: Handle) -> u64 {
        of_either!(self, target => target.handle_room(handle))
    }

    fn renew_handle(&mut self, now: Time, handle: Handle) -> bool {
        of_either!(self, target => target.renew_handle(now, handle))
    }

    fn watch_handles(&mut self, watch: HandleWatch) {
        of_either!(self, target => target.watch_handles(watch));
    }

    fn expect_use(&mut self, extent: Extent, expected: ExpectedUse) {
        of_either!(self, target => target.expect_use(extent, expected));
    }

    fn handle_events(&self, events: &mut Vec<HandleEvent>) {
        of_either!(self, target => target.handle_events(events));
    }
}

/// A new one has segments if it is said what they are like. What is there says itself what it is.
impl<M: Media> Ftl for BlockDrive<M> {
    type Media = M;
    type Shape = Option<ZoneConfig>;
    type Asked = AskedLimits;

    fn format(
        media: M,
        config: Config,
        segments: Option<ZoneConfig>,
        clock: &mut dyn Clock,
    ) -> Result<Self, OpenError> {
        match segments {
            Some(segments) => SegmentFtl::format(media, config, segments, clock).map(AsBlocks::Segments),
            None => BlockFtl::format(media, config, clock).map(BlockDrive::from),
        }
    }

    fn open_with(
        mut media: M,
        config: Config,
        limits: AskedLimits,
        access: Access,
        clock: &mut dyn Clock,
    ) -> Result<Self, OpenError> {
        // Who opens it says what is wrong with it.
        match kind_on(&mut media, clock).is_ok_and(|kind| kind.has_zones()) {
            true => SegmentFtl::open_with(media, config, limits, access, clock).map(AsBlocks::Segments),
            false => BlockFtl::open_with(media, config, access, clock).map(BlockDrive::from),
        }
    }

    fn block(&self) -> &BlockFtl<M> {
        match self {
            AsBlocks::Blocks(drive) => drive,
            AsBlocks::Segments(drive) => drive.block(),
        }
    }

    fn reset_statistics(&mut self) {
        match self {
            AsBlocks::Blocks(drive) => drive.reset_statistics(),
            AsBlocks::Segments(drive) => drive.reset_statistics(),
        }
    }

    fn map_memory_bytes(&self) -> u64 {
        of_either!(self, drive => drive.map_memory_bytes())
    }

    fn over_provisioning(&self) -> f64 {
        match self {
            AsBlocks::Blocks(drive) => drive.effective_over_provisioning(),
            AsBlocks::Segments(drive) => drive.over_provisioning(),
        }
    }

    fn describe(&self) -> String {
        of_either!(self, drive => drive.describe())
    }

    fn check(&mut self, clock: &mut dyn Clock, progress: &mut dyn FnMut(u64, u64)) -> Result<CheckReport, OpenError> {
        of_either!(self, drive => drive.check(clock, progress))
    }

    fn close(self, clock: &mut dyn Clock) -> Result<M, OpenError> {
        match self {
            AsBlocks::Blocks(drive) => drive.close(clock),
            AsBlocks::Segments(drive) => drive.close(clock),
        }
    }

    fn crash(self) -> M {
        match self {
            AsBlocks::Blocks(drive) => drive.crash(),
            AsBlocks::Segments(drive) => drive.crash(),
        }
    }
}
