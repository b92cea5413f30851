//! Room for zones: chunks of those that were reset, as soon as no record names them.

use crate::drive::ZoneFtl;
use crate::flushing::ROOM_FLUSH;
use openftl_parts::target::{BlockTarget, Request};
use openftl_parts::words::{ReadOnlyReason, TRANSACTION_BLOCKS_MAX};

/// How far the records are that are saved to make room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Room {
    Saved(u64),
    Flushing(u64),
}

impl ZoneFtl {
    /// Releases chunks that no record names any more, for good. Returns whether there was any.
    pub(crate) fn release(&mut self) -> bool {
        if self.area_lost.is_some() {
            return false;
        }
        let has_acted = self.zones.doomed_due <= self.durable && self.release_doomed();
        self.zones.coming_and_going.doom(&mut self.ftl.flash, self.zones.doomed.len());
        has_acted
    }

    fn release_doomed(&mut self) -> bool {
        let durable = self.durable;
        let may = |doomed: &crate::zones::Doomed| doomed.write.is_some_and(|write| write <= durable);
        let mut has_acted = false;
        for at in (0..self.zones.doomed.len()).rev() {
            if may(&self.zones.doomed[at]) {
                let doomed = self.zones.doomed.swap_remove(at);
                self.zones.release_chunk(&mut self.ftl.flash, doomed.chunk, doomed.open);
                has_acted = true;
            }
        }
        self.zones.doomed_due = self.zones.doomed.iter().filter_map(|doomed| doomed.write).min().unwrap_or(u64::MAX);
        has_acted
    }

    /// Where a zone wants a chunk and there is none: what was reset has to be durable first. Where nothing is left to come, the
    /// zone has no medium to be written to. Returns whether anything was done.
    pub(crate) fn make_room(&mut self) -> bool {
        match self.room {
            Some(Room::Saved(write)) if self.acknowledged >= write => {
                let is_begun = self.ftl.submit(self.ftl.flash.now, ROOM_FLUSH, Request::Flush).is_ok();
                if is_begun {
                    self.room = Some(Room::Flushing(self.acknowledged));
                }
                return is_begun;
            }
            Some(_) => return false,
            None => {}
        }
        let lacks_room = self.zones.lacks_room || self.zones.refresh.lacks_room;
        if !lacks_room || self.ftl.flash.read_only.is_some() || self.area_lost.is_some() {
            return false;
        }
        if !self.zones.doomed.is_empty() {
            self.save_records();
            self.zones.statistics.own_flushes += 1;
            self.room = Some(Room::Saved(self.next_write));
            return true;
        }
        let flash = &self.ftl.flash;
        let is_coming = self.zones.coming_and_going.leaving() > 0
            || self.zones.coming_and_going.has_found()
            || self.zones.is_refreshing()
            || flash.provisioning.coming() > 0
            || flash.units.under_way() > 0;
        if is_coming {
            return false;
        }
        if self.zones.refresh.lacks_room {
            self.zones.recommend_waiting();
        }
        if !self.zones.lacks_room {
            return false;
        }
        let wanting = self.zones.without_chunk();
        for zone in &wanting {
            self.zones.fail(&mut self.ftl.flash, *zone);
        }
        // What they were told is in memory for as long as the drive is open. It must leave hosts enough for a request.
        let (held, free) = (self.zones.frames_of_failed(), self.ftl.flash.frames.available(self.zones.payload));
        let is_starved = free < TRANSACTION_BLOCKS_MAX && free + held >= TRANSACTION_BLOCKS_MAX;
        if is_starved {
            self.ftl.flash.turn_read_only(ReadOnlyReason::WornOut);
        }
        !wanting.is_empty() || is_starved
    }
}
