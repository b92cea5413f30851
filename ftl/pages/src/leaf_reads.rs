//! Leaves of the map that are read because somebody asked for a page of them.

use crate::drive::{OWN_LEAF, PageFtl};
use crate::error::StoreError;
use crate::looked::Looked;
use openftl_parts::target::{BlockTarget, IoError, Request};

impl PageFtl {
    /// Begins to read leaves that are missing. Returns whether any is.
    pub(crate) fn read_leaves(&mut self) -> bool {
        let mut has_acted = false;
        let reads_max = self.pages.index.reads_max();
        self.pages.leaf_reads.keep_frames(&mut self.ftl.flash, reads_max);
        while let Some(frame) = self.pages.leaf_reads.frames.pop() {
            let Some(slot) = self.pages.index.next_to_read() else {
                self.pages.leaf_reads.frames.push(frame);
                break;
            };
            let read = Request::Read { first: self.pages.layout.slot_block(slot), frames: &[frame] };
            let begun = self.ftl.submit(self.ftl.flash.now, OWN_LEAF | u64::from(slot), read);
            self.pages.leaf_reads.under_way.insert(slot, frame);
            self.ftl.flash.statistics.map_pages_read += 1;
            if let Err(error) = begun {
                self.leaf_read_ended(slot, Err(error));
            }
            has_acted = true;
        }
        has_acted
    }

    /// A leaf was read. What waits for it goes on.
    pub(crate) fn leaf_read_ended(&mut self, slot: u32, result: Result<(), IoError>) {
        let (pages, flash) = (&mut self.pages, &mut self.ftl.flash);
        let frame = pages.leaf_reads.under_way.remove(&slot).expect("it was being read");
        let block = result.is_ok().then(|| flash.frames.bytes(frame));
        let is_there = pages.index.read(slot, block);
        pages.leaf_reads.frames.push(frame);
        flash.stirred = true;
        for wanted in pages.leaf_reads.waiting.remove(&slot).unwrap_or_default() {
            match pages.index.look(wanted.lpid) {
                Looked::Lost => _ = pages.end(flash, &wanted, Err(StoreError::Unrecovered { lpid: wanted.lpid })),
                _ => pages.begin_read_first(flash, wanted),
            }
        }
        if !is_there {
            // Where its pages are is not known, so nothing of it can change: the drive takes no more.
            let block = pages.layout.slot_block(slot);
            self.area_lost.get_or_insert(result.err().unwrap_or(IoError::Unrecovered { block }));
        }
    }

    /// Has the leaves of a batch in memory, and keeps them there until it is committed: of one batch at a time. Returns whether all are.
    pub(crate) fn holds_leaves(&mut self, session: u32, wsn: u64) -> bool {
        if self.pages.index.is_whole() {
            return true;
        }
        let at = match self.holding {
            None => 0,
            Some((of, number, at)) if (of, number) == (session, wsn) => at,
            Some(_) => return false,
        };
        let state = self.pages.sessions.get_mut(session).expect("it was just found");
        let changes = state.batches[&wsn].changes[at..].iter().map(|change| change.lpid);
        let (mut held, mut missing) = (at, 0);
        for lpid in changes {
            match self.pages.index.hold(lpid) {
                true if missing == 0 => held += 1,
                true => {}
                false => missing += 1,
            }
            if missing > self.pages.index.reads_max() {
                break;
            }
        }
        self.holding = Some((session, wsn, held));
        missing == 0
    }

    /// The batch whose leaves are held is committed, or is not to be any more.
    pub(crate) fn release_leaves(&mut self) {
        if self.holding.take().is_some() {
            self.pages.index.release();
        }
    }
}
