//! A volume as a [`FileSystem`]: attempts, and turns of what goes on beside them.

use crate::operation::{Data, FileSystem, FileTime, Inode, Operation, Refusal, Reply, Room, Ticket};
use crate::volume::{Stop, Volume};
use openftl_core::Time;
use openftl_parts::target::SegmentTarget;

/// Rounds of one turn, at most: then other work of the thread is due.
const ROUNDS_MAX: usize = 64;

impl<T: SegmentTarget> FileSystem for Volume<T> {
    fn ticket(&mut self) -> Ticket {
        self.ticket_for()
    }

    fn attempt(
        &mut self,
        now: Time,
        clock: FileTime,
        ticket: Ticket,
        operation: &Operation<'_>,
    ) -> Option<Result<Reply, Refusal>> {
        self.now = self.now.max(now);
        self.last_operation = self.now;
        self.time_of_day = clock;
        let was_wanted = self.syncing.is_wanted;
        let result = self.attempt_once(ticket, operation);
        self.submit_runs();
        self.rescue();
        // What waits as it did before is no reason to look again at once.
        self.is_stirred |= result != Err(Stop::Wait) || self.syncing.is_wanted != was_wanted;
        match result {
            Ok(reply) => {
                self.statistics.operations += 1;
                Some(Ok(reply))
            }
            Err(Stop::Refused(refusal)) => {
                self.statistics.operations += 1;
                Some(Err(refusal))
            }
            Err(Stop::Wait) => None,
        }
    }

    fn abandon(&mut self, ticket: Ticket) {
        self.syncs.remove(&ticket);
        self.forget_read(ticket);
    }

    fn poll(&mut self, now: Time) -> bool {
        self.now = self.now.max(now);
        self.is_stirred = false;
        let mut has_progress = false;
        for _ in 0..ROUNDS_MAX {
            let round = [self.take_completions(), self.go_on_syncing(), self.clean(), self.reap()];
            self.submit_runs();
            self.rescue();
            if !round.contains(&true) {
                break;
            }
            has_progress = true;
            self.is_stirred = true;
        }
        if !has_progress {
            self.is_stirred = false;
        }
        if self.segments.is_contradiction {
            self.fail("segments have less of use than was released: `openftl alfs fsck --rebuild` mends that");
        }
        has_progress |= self.is_worth_another_try();
        self.cache.evict();
        has_progress
    }

    fn next_due(&self) -> Option<Time> {
        if self.is_stirred {
            return Some(self.now);
        }
        let sync = self.syncing.due.filter(|_| self.syncing.is_idle() && self.failed.is_none());
        [self.target.next_due(), sync, self.cleaning_due()].into_iter().flatten().min()
    }

    fn data(&self, data: &Data, piece: &mut dyn FnMut(&[u8])) {
        self.visit(data, piece);
    }

    fn give_back(&mut self, data: Data) {
        self.forget_read(data.ticket);
    }

    fn hold(&mut self, inode: Inode, times: u64) {
        *self.held.entry(inode.0).or_default() += times;
    }

    fn release(&mut self, inode: Inode, times: u64) -> bool {
        let Some(held) = self.held.get_mut(&inode.0) else { return times == 0 };
        let were_enough = *held >= times;
        *held = held.saturating_sub(times);
        if *held == 0 {
            self.held.remove(&inode.0);
            if self.orphans.remove(&inode.0) {
                self.doom(inode.0);
                self.changed();
                self.is_stirred = true;
            }
        }
        were_enough
    }
}

impl<T: SegmentTarget> Volume<T> {
    /// Room, as hosts see it: blocks of patches and segments that are kept for cleaning, or have failed, are no part of it.
    #[must_use]
    pub fn room(&self) -> Room {
        let blocks = self.segments.blocks_max();
        let free = blocks.saturating_sub(self.used());
        // A file has a node at least, and a name in another block.
        Room { blocks, free, files: u64::from(self.files) + free, files_free: free }
    }
}
