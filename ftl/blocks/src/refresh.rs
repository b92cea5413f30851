//! Refresh: what is weak moves before it is lost.
//!
//! ```text
//!   a read that failed at first, or was good with high ECC ─┐
//!   a scrub that found the same ────────────────────────────┼──▶ weak ──▶ queue ──▶ emptied like a victim ──▶ reset
//!   a notification of the device ───────────────────────────┘     │
//!                                                                 ├─ still open: waits until it is closed
//!                                                                 └─ log, checkpoint, superblock: a new one is written
//! ```
//!
//! What is weak of a tenant's moves in the tenant's way, at the same pace.
//!
//! Emptying a weak chunk gives back no more than it takes, so it never touches the room that garbage collection counts on:
//! it begins only with a free chunk beyond the reserve, one in each group at a time. And it wears the medium, so where very
//! much is weak it keeps to a share of what is read.

use crate::block_ftl::BlockFtl;
use openftl_core::{ChunkId, Geometry, Ppa};
use openftl_media::{ChunkDescriptor, ChunkState, Notification, NotifiedScope, NotifiedState};
use openftl_parts::flash::chunk_table::ChunkUse;
use openftl_parts::words::{Care, Phase};
use std::collections::VecDeque;

/// Chunks of a group that wait for their refresh, at most. One more is found weak again when it is read again.
pub const REFRESHES_MAX: usize = 1024;

/// What waits to be refreshed.
pub struct Refresh {
    queues: Vec<VecDeque<ChunkId>>,
    /// Chunks in all queues.
    waiting: usize,
    /// Log, checkpoint or superblock are to be written anew.
    metadata: bool,
    /// Notifications up to this count have been heeded.
    heeded: u64,
    notifications: Vec<Notification>,
}

impl Refresh {
    /// Nothing waits.
    #[must_use]
    pub fn new(geometry: &Geometry) -> Refresh {
        Refresh {
            queues: (0..geometry.groups).map(|_| VecDeque::new()).collect(),
            waiting: 0,
            metadata: false,
            heeded: 0,
            notifications: Vec::new(),
        }
    }

    /// Chunks that wait.
    #[inline]
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting
    }
}

impl BlockFtl {
    /// Heeds what the device has to say, and has weak metadata written anew.
    pub(crate) fn advance_refresh(&mut self) {
        if std::mem::take(&mut self.flash.is_unusual) {
            self.heed_notifications();
        }
        if self.refresh.metadata
            && self.flash.phase == Phase::Working
            && self.flash.read_only.is_none()
            && !self.journal.checkpoint.is_working()
        {
            self.refresh.metadata = false;
            self.journal.begin_checkpoint(&mut self.flash, self.buffer.committed());
        }
    }

    /// The data at `ppa` should move.
    pub(crate) fn weak_block(&mut self, ppa: Ppa, care: Care) {
        let chunk = self.flash.format.chunk_of(ppa);
        let usage = self.flash.chunks.usage(chunk);
        let stays = match usage {
            ChunkUse::Metadata => !self.has_map_pages_in(chunk) || !self.leaves_map_chunk(ppa),
            ChunkUse::Tenant => true,
            _ => self.flash.chunks.is_valid(ppa),
        };
        if stays {
            self.weak_chunk(chunk, care);
        }
    }

    /// The data in `chunk` should move.
    pub(crate) fn weak_chunk(&mut self, chunk: ChunkId, care: Care) {
        match self.flash.chunks.usage(chunk) {
            ChunkUse::Metadata if self.has_map_pages_in(chunk) => {
                self.flash.chunks.weaken(chunk, care);
                self.move_map_pages_of(chunk);
            }
            ChunkUse::Metadata => self.refresh.metadata |= self.flash.chunks.weaken(chunk, care),
            ChunkUse::Open => _ = self.flash.chunks.weaken(chunk, care),
            ChunkUse::Closed if self.flash.chunks.weaken(chunk, care) => self.queue_refresh(chunk),
            ChunkUse::Tenant if self.flash.chunks.weaken(chunk, care) => self.flash.weak_of_tenant.push(chunk),
            _ => {}
        }
        self.flash.stirred = true;
    }

    /// `chunk` was found weak while it was open, and is closed now.
    pub(crate) fn queue_refresh(&mut self, chunk: ChunkId) {
        let queue = &mut self.refresh.queues[self.flash.format.group_of(self.flash.format.pu_of(chunk)) as usize];
        if queue.len() < REFRESHES_MAX {
            queue.push_back(chunk);
            self.refresh.waiting += 1;
        } else {
            self.flash.chunks.strengthen(chunk);
        }
    }

    /// The next weak chunk of `group` that can be emptied, and why it should be.
    pub(crate) fn weakest(&mut self, group: u32) -> Option<(ChunkId, Care)> {
        if !self.flash.allowance.is_left() {
            return None;
        }
        while let Some(chunk) = self.refresh.queues[group as usize].front().copied() {
            let weak = self.flash.chunks.weakness(chunk).filter(|_| self.flash.chunks.usage(chunk) == ChunkUse::Closed);
            match weak {
                Some(care) => return self.flash.chunks.is_candidate(chunk).then_some((chunk, care)),
                // Collected meanwhile.
                None => {
                    self.refresh.queues[group as usize].pop_front();
                    self.refresh.waiting -= 1;
                }
            }
        }
        None
    }

    /// What the device noticed while the drive was opened is known to whoever opened it: what a power cut tore in the
    /// metadata, and counted for nothing.
    pub(crate) fn forget_notifications(&mut self) {
        let mut notifications = std::mem::take(&mut self.refresh.notifications);
        self.hand_over();
        let _ = self.media.notifications(self.flash.now, self.refresh.heeded, &mut notifications);
        self.refresh.heeded = notifications.last().map_or(self.refresh.heeded, |last| last.count);
        notifications.clear();
        self.refresh.notifications = notifications;
        self.refresh.metadata = false;
    }

    /// Acts on what the device has noticed.
    pub(crate) fn heed_notifications(&mut self) {
        let mut notifications = std::mem::take(&mut self.refresh.notifications);
        // A device that does not answer now is asked again when something else happens.
        self.hand_over();
        let _ = self.media.notifications(self.flash.now, self.refresh.heeded, &mut notifications);
        for notification in notifications.drain(..) {
            self.refresh.heeded = notification.count;
            self.heed(notification);
        }
        self.refresh.notifications = notifications;
    }

    fn heed(&mut self, notification: Notification) {
        let chunk = self.flash.format.chunk_of(notification.ppa);
        if !self.flash.geometry.has_chunk(chunk) {
            return;
        }
        match notification.state {
            NotifiedState::ErrorRateLow | NotifiedState::Refreshed => return,
            NotifiedState::WearIndexHigh => {
                self.flash.statistics.worn_chunks += 1;
                return;
            }
            NotifiedState::ErrorRateMedium | NotifiedState::ErrorRateHigh | NotifiedState::Unrecoverable => {}
        }
        match notification.scope {
            NotifiedScope::Blocks(blocks) => {
                let last =
                    (self.flash.format.block_of(notification.ppa) + blocks).min(self.flash.geometry.blocks_per_chunk);
                for block in self.flash.format.block_of(notification.ppa)..last {
                    self.weak_block(self.flash.format.ppa(chunk, block), Care::Notification);
                }
            }
            NotifiedScope::Chunk => self.heed_chunk(chunk, notification.state),
            NotifiedScope::ParallelUnit => {
                let pu = self.flash.format.pu_of(chunk);
                for number in 0..self.flash.geometry.chunks_per_pu {
                    self.heed_chunk(self.flash.format.chunk_id(pu, number), notification.state);
                }
            }
        }
    }

    fn heed_chunk(&mut self, chunk: ChunkId, state: NotifiedState) {
        if state == NotifiedState::Unrecoverable {
            let unknown =
                ChunkDescriptor { chunk, state: ChunkState::Offline, wear_index: 0, blocks: 0, write_pointer: 0 };
            let mut report = [unknown];
            self.hand_over();
            let answered = self.media.chunk_report(self.flash.now, chunk, &mut report).is_ok();
            if answered && report[0].state == ChunkState::Offline {
                return self.chunk_went_offline(chunk);
            }
        }
        let usage = self.flash.chunks.usage(chunk);
        if self.flash.chunks.valid(chunk) > 0 || matches!(usage, ChunkUse::Metadata | ChunkUse::Tenant) {
            self.weak_chunk(chunk, Care::Notification);
        }
    }
}
