//! What hosts see as blocks: a drive of blocks, or a zoned drive whose zones are segments.

use openftl_core::{FrameForm, Frames, Time};
use openftl_parts::target::{BlockTarget, Done, HandleEvent, HandleWatch, IoError, PlacementFacts, Request, Vitals};
use openftl_parts::words::Handle;
use openftl_segments::SegmentFtl;
use openftl_zones::ZoneFtl;

use crate::ServedDrive;

/// What hosts see as blocks.
pub(crate) enum Blocks<'a, T: ServedDrive> {
    Drive(&'a mut T),
    /// In a box, since it is far larger than the other.
    Segments(Box<SegmentFtl<&'a mut ZoneFtl<T::Device>>>),
}

macro_rules! of_either {
    ($blocks:expr, $target:ident => $result:expr) => {
        match $blocks {
            Blocks::Drive($target) => $result,
            Blocks::Segments($target) => $result,
        }
    };
}

impl<T: ServedDrive> BlockTarget for Blocks<'_, T> {
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

    #[inline]
    fn segment_blocks(&self) -> Option<u64> {
        of_either!(self, target => target.segment_blocks())
    }

    fn vitals(&self) -> Option<Vitals> {
        of_either!(self, target => target.vitals())
    }

    fn give_up(&mut self, now: Time) -> String {
        of_either!(self, target => target.give_up(now))
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

    fn handle_events(&self, events: &mut Vec<HandleEvent>) {
        of_either!(self, target => target.handle_events(events));
    }
}
