//! Checkpoints: what the log says goes to the leaves of the map, so that its chunks can go.
//!
//! ```text
//!   idle ──▶ quiescing ──▶ writing ──▶ ending ──▶ idle
//!            nothing new   leaves and  the anchor says
//!            is committed; sessions    where the log
//!            all is on     as they     begins now
//!            media         were then
//! ```
//!
//! For an instant all that was committed is on media and in the log. A leaf says what was true then, whatever has changed since: that is in the
//! part of the log which the anchor will begin with.

use crate::drive::PageFtl;
use crate::layout::{Anchor, SESSION_BLOCKS};
use crate::looked::NextToWrite;
use crate::pages::VERSIONS_RESERVED;
use crate::place::COUNT_MAX;
use openftl_core::{BLOCK_BYTES, FrameForm};
use openftl_parts::target::{Durability, Request};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Writes of leaves that are under way, at most.
const WRITES_MAX: u64 = 64;

/// What an anchor that is being written says for later.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Naming {
    /// Which write it is.
    pub write: u64,
    /// So many more chunks for the log.
    pub chunks: usize,
    /// Pages will have smaller versions than this one.
    pub versions_end: u64,
}

/// How far a checkpoint is.
#[derive(Debug)]
pub(crate) enum Checkpoint {
    /// There is none.
    Idle,
    /// All is to be on media.
    Quiescing,
    /// Leaves are written.
    Writing(Box<Snapshot>),
    /// The anchor is written, or to be.
    Ending { anchor: Anchor, tail: u64, write: Option<u64> },
}

/// What was true when all was on media.
#[derive(Debug)]
pub(crate) struct Snapshot {
    anchor: Anchor,
    /// Where the log ended.
    tail: u64,
    /// Leaves that are to be written.
    leaves: BTreeSet<u64>,
    /// Blocks of sessions that are to be written.
    sessions: VecDeque<(u32, Box<[u8; BLOCK_BYTES]>)>,
}

impl Checkpoint {
    /// Nothing new may be committed or moved.
    pub(crate) fn is_quiescing(&self) -> bool {
        matches!(self, Checkpoint::Quiescing)
    }

    /// Whether it waits for a flush, with so many writes acknowledged and durable.
    pub(crate) fn wants_flush(&self, acknowledged: u64, durable: u64) -> bool {
        matches!(self, Checkpoint::Ending { write: Some(write), .. } if *write <= acknowledged && *write > durable)
    }
}

impl PageFtl {
    /// Begins a checkpoint, unless there is one.
    pub(crate) fn begin_checkpoint(&mut self) {
        if matches!(self.checkpoint, Checkpoint::Idle) {
            self.checkpoint = Checkpoint::Quiescing;
            self.ftl.flash.stirred = true;
        }
    }

    /// Goes on with the checkpoint. Returns whether anything was done.
    pub(crate) fn advance_checkpoint(&mut self) -> bool {
        match &mut self.checkpoint {
            Checkpoint::Idle
                if !self.is_quiet
                    && (self.pages.log.is_long()
                        || self.pages.is_log_short(&self.ftl.flash)
                        || self.pages.index.wants_checkpoint()) =>
            {
                self.begin_checkpoint();
                true
            }
            Checkpoint::Idle => false,
            Checkpoint::Quiescing => self.quiesce(),
            Checkpoint::Writing(_) => self.write_leaves(),
            Checkpoint::Ending { write: None, .. } => self.write_anchor(),
            Checkpoint::Ending { anchor, tail, write: Some(write) } if *write <= self.durable_write => {
                let places = self.pages.log.forget_before(*tail, anchor.group);
                self.pages.forget_groups(&mut self.ftl.flash, places);
                self.checkpoint = Checkpoint::Idle;
                true
            }
            Checkpoint::Ending { .. } => false,
        }
    }

    fn quiesce(&mut self) -> bool {
        let last = self.pages.queue.last();
        let has_acted = last > self.wanted;
        self.wanted = self.wanted.max(last);
        if self.pages.has_in_flight() {
            return has_acted | self.pages.push_out_all(&mut self.ftl.flash);
        }
        if self.pages.durable < last || !self.pages.log.is_secure() {
            return has_acted;
        }
        let tail = self.pages.log.head;
        let anchor = Anchor {
            durable: if self.pages.is_rebuilt { self.pages.anchor.durable } else { self.pages.log.next_group },
            group: self.pages.log.next_group,
            version: self.pages.next_version,
            capacity_grains: self.pages.capacity_grains,
            versions_end: self.pages.versions_end,
            memory: self.pages.anchor.memory,
        };
        let leaves = self.pages.index.dirty_leaves();
        let session_block = |at: u32| {
            let mut block = Box::new([0; BLOCK_BYTES]);
            self.pages.sessions.write(at, &mut block);
            (at, block)
        };
        let sessions = (0..SESSION_BLOCKS).map(session_block).collect();
        self.pages.before = Some(BTreeMap::new());
        self.checkpoint = Checkpoint::Writing(Box::new(Snapshot { anchor, tail, leaves, sessions }));
        true
    }

    fn write_leaves(&mut self) -> bool {
        let mut has_acted = false;
        loop {
            if self.next_write - self.acknowledged >= WRITES_MAX {
                return has_acted;
            }
            let Checkpoint::Writing(snapshot) = &mut self.checkpoint else { return has_acted };
            if let Some((at, block)) = snapshot.sessions.front() {
                let at = *at;
                let Some(frame) = self.ftl.flash.frames.acquire(FrameForm::Bytes) else { return has_acted };
                *self.ftl.flash.frames.bytes_mut(frame) = **block;
                if self.write_area(u64::from(1 + at), &[frame]).is_none() {
                    return has_acted;
                }
                if let Checkpoint::Writing(snapshot) = &mut self.checkpoint {
                    snapshot.sessions.pop_front();
                }
                has_acted = true;
                continue;
            }
            let Some(first) = snapshot.leaves.first().copied() else {
                let Snapshot { anchor, tail, .. } = **snapshot;
                self.checkpoint = Checkpoint::Ending { anchor, tail, write: None };
                self.pages.before = None;
                return true;
            };
            let before = self.pages.before.as_ref().expect("it is kept while leaves are written");
            let next = match self.pages.index.next_to_write(first, before) {
                NextToWrite::Leaf(next) => next,
                NextToWrite::None => {
                    snapshot.leaves.remove(&first);
                    continue;
                }
                NextToWrite::Missing => {
                    let ahead: Vec<u64> = snapshot.leaves.iter().copied().take(self.pages.index.reads_max()).collect();
                    self.pages.index.prefetch(&ahead);
                    return has_acted;
                }
            };
            let slot = self.pages.layout.slot_block(next.slot);
            let write = if next.is_gone {
                let trim = Request::Trim { first: slot, blocks: 1, durability: Durability::Volatile };
                self.submit_area(trim)
            } else {
                let Some(frame) = self.ftl.flash.frames.acquire(FrameForm::Bytes) else { return has_acted };
                next.leaf.write(self.ftl.flash.frames.bytes_mut(frame));
                self.write_area(slot, &[frame])
            };
            let Some(write) = write else { return has_acted };
            self.pages.index.written(&next, write);
            if let Checkpoint::Writing(snapshot) = &mut self.checkpoint {
                snapshot.leaves.remove(&next.first);
            }
            self.pages.statistics.leaves_written += 1;
            has_acted = true;
        }
    }

    fn write_anchor(&mut self) -> bool {
        let Checkpoint::Ending { anchor, .. } = self.checkpoint else { return false };
        let Some(number) = self.write_as_anchor(anchor) else { return false };
        if let Checkpoint::Ending { write, .. } = &mut self.checkpoint {
            *write = Some(number);
        }
        true
    }

    /// Writes the anchor, with the chunks of the log. Returns the number of the write.
    fn write_as_anchor(&mut self, anchor: Anchor) -> Option<u64> {
        let frame = self.ftl.flash.frames.acquire(FrameForm::Bytes)?;
        self.pages.take_spares(&mut self.ftl.flash);
        // While an index that was rebuilt is not on media, what it says of the log is what another repair is to find there.
        let known = if self.pages.is_rebuilt { 0 } else { self.pages.log.durable_before(self.pages.durable) };
        let durable = known.max(anchor.durable);
        let versions_end = (self.pages.next_version + VERSIONS_RESERVED).min(COUNT_MAX);
        let anchor = Anchor { durable, versions_end, ..anchor };
        let chunks = self.pages.log.chunks(self.ftl.flash.format, anchor.group);
        anchor.write(&chunks, self.ftl.flash.frames.bytes_mut(frame));
        let write = self.write_area(0, &[frame])?;
        self.pages.anchor = anchor;
        if self.naming.is_none() && (!self.pages.log.unnamed.is_empty() || self.pages.is_short_of_versions()) {
            self.naming = Some(Naming { write, chunks: self.pages.log.unnamed.len(), versions_end });
        }
        Some(write)
    }

    /// Has the anchor name chunks that the log is to go on in, and versions that pages are to have. Returns whether anything was done.
    pub(crate) fn name_ahead(&mut self) -> bool {
        match self.naming {
            Some(Naming { write, chunks, versions_end }) if write <= self.durable_write => {
                self.pages.log.spares.extend(self.pages.log.unnamed.drain(..chunks));
                self.pages.versions_end = versions_end;
                self.naming = None;
                true
            }
            Some(_) => false,
            None if self.pages.take_spares(&mut self.ftl.flash) || self.pages.is_short_of_versions() => {
                let anchor = self.pages.anchor;
                self.write_as_anchor(anchor).is_some()
            }
            None => false,
        }
    }
}
