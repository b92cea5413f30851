//! Segments whose medium fails while they are written: what they were to have is written anew, and what they have moves.
//!
//! ```text
//!   the drive refuses a write          blocks in memory ──▶ the same log, another segment
//!   the drive refuses a flush          blocks that it has ──▶ the cleaner: before the next record, whatever is free
//!                                      nothing of use any more ──▶ trimmed: it is offline, and never used again
//!   no segment takes any block         blocks in memory ──▶ kept there, to be read: the volume takes no more changes
//! ```
//!
//! No record is written while such a segment has something of use that can be read: a power cut may take what the drive has of it. A drive refuses a flush as
//! long as it has something of such a segment in memory alone; everything else is durable then.
//!
//! An anchor is not replaced: where its medium fails the volume takes no more changes.

use crate::block::{Kind, look, seal_at};
use crate::segments::{ANCHORS, IS_MAP, IS_NODE, IS_PATCHES, Log, Owner, State};
use crate::volume::Volume;
use crate::writing::place_of;
use openftl_core::Frame;
use openftl_parts::target::SegmentTarget;

impl<T: SegmentTarget> Volume<T> {
    /// The segment of a log takes no more blocks.
    pub(crate) fn strand(&mut self, log: Log) {
        let head = self.segments.strand(log);
        self.stranded.push((log, head));
        self.changed();
    }

    /// Writes anew what segments were to have whose medium has failed. It happens at once: everything that it needs is still in memory.
    pub(crate) fn rescue(&mut self) {
        loop {
            for log in Log::ALL {
                if self.segments.heads[log as usize].as_ref().is_some_and(|head| head.has_failed) {
                    self.strand(log);
                }
            }
            let Some((log, head)) = self.stranded.pop() else { return };
            let (submitted, blocks) = (head.submitted.min(self.segments.shape.data_blocks()), head.run);
            for (frame, at) in blocks.into_iter().zip(head.submitted..) {
                // Behind its owners is the summary, which nobody needs any more.
                match head.owners.get(at as usize) {
                    Some(owner) => self.write_anew(log, *owner, self.segments.shape.first_of(head.segment) + at, frame),
                    None => self.target.frames_mut().release(frame),
                }
            }
            let mut owners = head.owners;
            owners.truncate(submitted as usize);
            if !owners.is_empty() && self.segments.segment(head.segment).valid > 0 {
                self.cleaning.evacuate(head.segment, owners);
            }
            self.submit_runs();
        }
    }

    /// A block goes to another segment, if it is of use.
    fn write_anew(&mut self, log: Log, owner: Owner, address: u32, frame: Frame) {
        if owner.slot == IS_PATCHES {
            if self.patches.lose_block(address) {
                self.segments.release(address);
                self.changed();
            }
            return self.target.frames_mut().release(frame);
        }
        if self.failed.is_none() && !self.is_of_use(owner, address) {
            return self.target.frames_mut().release(frame);
        }
        if self.failed.is_none() && self.expect_log(log, 1).is_err() {
            self.fail("the medium of a segment has failed, and there is no room to write anew what it was to have");
        }
        if self.failed.is_some() {
            return self.keep(address, &[frame]);
        }
        let place = self.segments.next_address(log);
        if matches!(owner.slot, IS_NODE | IS_MAP) {
            let bytes = self.target.frames_mut().bytes_mut(frame);
            let seen = look(bytes).expect("it was just sealed");
            seal_at(bytes, seen.kind, seen.identity, seen.sequence, seen.volume, place);
        }
        let to = self.append(log, owner, frame);
        assert_eq!(to, place, "a block goes where its log goes on");
        self.segments.release(address);
        match owner.slot {
            IS_NODE => {
                self.map.set(owner.node, to);
                self.cache.move_node(owner.node, to);
                self.patches.move_base(owner.node, to);
            }
            IS_MAP => self.map.blocks[owner.node as usize - 1].address = to,
            _ => {
                let is_inode = self.cache.node(owner.node).kind == Kind::Inode;
                self.set_number(place_of(owner, is_inode).expect("it is of use"), to);
            }
        }
        self.changed();
    }

    /// Blocks that no segment takes any more, of a volume that has failed: what was over can be read as long as it is mounted.
    pub(crate) fn keep(&mut self, first: u32, frames: &[Frame]) {
        for (address, frame) in (first..).zip(frames) {
            self.kept.insert(address, Box::new(*self.target.frames().bytes(*frame)));
            self.target.frames_mut().release(*frame);
        }
    }

    /// Whether a block that was just appended is still where its owner says. The owner is in memory.
    fn is_of_use(&self, owner: Owner, address: u32) -> bool {
        match owner.slot {
            IS_NODE => self.map.changes.get(&owner.node) == Some(&address),
            IS_MAP => self.map.blocks[owner.node as usize - 1].address == address,
            _ => {
                let Some(node) = self.cache.node_here(owner.node).filter(|node| node.has_addresses()) else {
                    return false;
                };
                place_of(owner, node.kind == Kind::Inode).is_some_and(|place| self.number(place) == address)
            }
        }
    }

    /// The drive has refused a flush because of segments whose medium has failed. Returns whether any of them has something of use; if not, everything
    /// else is durable.
    pub(crate) fn find_failed(&mut self) -> bool {
        let is_writable = |volume: &Self, segment: u32| volume.target.segment(segment).is_writable;
        if (0..ANCHORS).any(|anchor| !is_writable(self, anchor)) {
            self.fail("the medium of a segment with records has failed");
            return true;
        }
        let mut has_lost = false;
        for log in Log::ALL {
            let segment = self.segments.heads[log as usize].as_ref().map(|head| head.segment);
            if segment.is_some_and(|segment| !is_writable(self, segment)) {
                self.strand(log);
                has_lost = true;
            }
        }
        for segment in ANCHORS..self.segments.shape.segments {
            let is_full = self.segments.segment(segment).state == State::Full;
            if is_full && !is_writable(self, segment) {
                let is_of_use = self.segments.segment(segment).valid > 0;
                self.segments.give_up(segment);
                if is_of_use {
                    self.cleaning.evacuate(segment, Vec::new());
                    has_lost = true;
                }
                self.changed();
            }
        }
        self.rescue();
        has_lost
    }
}
