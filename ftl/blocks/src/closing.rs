//! A drive is brought to rest: everything durable, nothing under way, and a checkpoint with no log after it.

use crate::block_ftl::BlockFtl;
use openftl_core::Clock;
use openftl_media::Media;
use openftl_parts::flash::units::OpenId;
use openftl_parts::open_error::OpenError;
use openftl_parts::tenant::{Nobody, Tenant};
use openftl_parts::words::{Phase, ReadOnlyReason};

/// Checkpoints that are written for a clean stop, at most. A drive whose last one is followed by a log is opened by replaying
/// that.
const CHECKPOINTS_MAX: u32 = 4;

impl<M: Media> BlockFtl<M> {
    /// Stops cleanly: everything is durable, and the drive opens again without a log to replay.
    ///
    /// # Errors
    /// If the device stops completing commands, or the drive is read-only because of a failure.
    pub fn close(self, clock: &mut dyn Clock) -> Result<M, OpenError> {
        self.close_beside(clock, &mut Nobody)
    }

    /// [`close`](BlockFtl::close), with a tenant that comes to rest first.
    ///
    /// # Errors
    /// As of [`close`](BlockFtl::close).
    pub fn close_beside(mut self, clock: &mut dyn Clock, tenant: &mut dyn Tenant) -> Result<M, OpenError> {
        self.come_to_rest(clock, tenant)?;
        Ok(self.media)
    }
}

impl BlockFtl {
    fn come_to_rest(&mut self, clock: &mut dyn Clock, tenant: &mut dyn Tenant) -> Result<(), OpenError> {
        let is_worn_out = self.flash.read_only == Some(ReadOnlyReason::WornOut);
        let has_taken = self.has_taken();
        let mut is_saved = !has_taken;
        if self.flash.may_program() && (has_taken || !is_worn_out) {
            let ended = |ftl: &BlockFtl| !ftl.flash.may_program();
            let tag = u64::MAX;
            if self.flush(tag).is_err() {
                self.run(clock, tenant, |ftl| ftl.transactions.is_idle() || ended(ftl))?;
            }
            self.run(clock, tenant, |ftl| ftl.transactions.is_idle() || ended(ftl))?;
            is_saved |= !ended(self) && self.transactions.is_idle();
            self.flash.phase = Phase::Closing;
            // Batches of map pages are pushed out now.
            self.flash.stirred |= self.map_pages.is_some();
            self.run(clock, tenant, |ftl| ftl.is_quiet() || ended(ftl))?;
            // Whoever only looks at the drive later can read all of it, and need not write padding first.
            self.pad_data_frontiers();
            self.run(clock, tenant, |ftl| ftl.is_quiet() || ended(ftl))?;
            // A superblock that says that the drive was stopped says so of chunks as they are from here on.
            self.flash.phase = Phase::Ending;
            for _ in 0..CHECKPOINTS_MAX {
                // The checkpoint begins with an empty log block, so that there is nothing to replay on it.
                self.journal.force_log(&mut self.flash);
                self.run(clock, tenant, |ftl| ftl.is_quiet() || ended(ftl))?;
                self.journal.begin_checkpoint(&mut self.flash, self.buffer.committed());
                self.run(clock, tenant, |ftl| ftl.is_quiet() || ended(ftl))?;
                // Where it had to wait for room, what was moved to make it is in the log.
                if self.journal.superblock.current().clean || ended(self) {
                    break;
                }
            }
            self.flush_media();
            self.run(clock, tenant, |ftl| ftl.is_quiet() || ended(ftl))?;
        }
        self.flash.phase = Phase::Ending;
        // Whoever opens the device next is not told how commands of this drive ended. Those that a device has lost never do.
        if self.flash.read_only != Some(ReadOnlyReason::Stalled) {
            self.run(clock, tenant, |ftl| ftl.flash.under_way == 0)?;
        }
        let is_aged = self.flash.is_aged();
        match self.flash.read_only {
            // Everything is durable. There is no checkpoint, and the next start replays the log.
            Some(ReadOnlyReason::NoRoom | ReadOnlyReason::Spent) if is_saved && is_aged => Ok(()),
            Some(ReadOnlyReason::NoSuperblock) if is_saved => Ok(()),
            None | Some(ReadOnlyReason::Inspection | ReadOnlyReason::WornOut) => Ok(()),
            Some(reason) => Err(OpenError::Unwritable(reason)),
        }
    }

    /// Whether the drive has taken anything since it was opened. A worn-out one that has not has nothing to save.
    pub(crate) fn has_taken(&self) -> bool {
        !self.transactions.is_idle() || self.buffer.held() > 0 || self.journal.log.position() > 0
    }

    fn pad_data_frontiers(&mut self) {
        let host = self.host.open.iter().flatten();
        let open: Vec<OpenId> =
            host.copied().chain(self.placement.open_chunks()).chain(self.collection.open_chunks()).collect();
        for open in open {
            if self.flash.geometry.mw_cunits > 0 && self.flash.units.wants_padding(open) {
                self.flash.pad(open);
            }
        }
    }

    fn is_quiet(&self) -> bool {
        let is_merging = self.map_pages.as_ref().is_some_and(|pages| !pages.is_idle());
        self.journal.is_idle()
            && !is_merging
            && self.flash.under_way == 0
            && self.flash.is_handed_over()
            && !self.flash.stirred
    }

    /// Works until `until` holds, waiting for the device as it needs.
    pub fn run(
        &mut self,
        clock: &mut dyn Clock,
        tenant: &mut dyn Tenant,
        until: impl Fn(&BlockFtl) -> bool,
    ) -> Result<(), OpenError> {
        loop {
            let now = clock.now();
            self.advance(now, tenant);
            if until(self) {
                return Ok(());
            }
            match self.media.next_due() {
                _ if self.transactions.trims.wants_turn() => {}
                Some(due) => {
                    clock.wait_until(due);
                }
                None if self.flash.stirred => {}
                None => return Err(OpenError::Stopped),
            }
        }
    }
}
