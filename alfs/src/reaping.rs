//! Nodes that nobody needs are freed one after the other, and all that is below them.
//!
//! A file that is deleted, and what is cut off a file, is one number in a list, which is in each record. So neither takes long, and both are done as a
//! whole, however large the file is.

use crate::block::Kind;
use crate::cache::Key;
use crate::inode::{self, ADDRESSES, AREA, fields};
use crate::tree::{FANOUT, Place, SLOTS, about};
use crate::volume::{Step, Stop, Volume};
use openftl_parts::target::SegmentTarget;

/// Nodes that are freed in one turn.
const NODES_PER_TURN: usize = 16;

impl<T: SegmentTarget> Volume<T> {
    /// Frees some doomed nodes. Returns whether anything was done.
    pub(crate) fn reap(&mut self) -> bool {
        let mut reaped = 0;
        while reaped < NODES_PER_TURN
            && !self.syncing.is_gathering()
            && self.cache.dirty() < self.dirty_max()
            && let Some(node) = self.doomed.last().copied()
        {
            match self.reap_node(node) {
                Ok(()) => reaped += 1,
                Err(Stop::Wait) => break,
                Err(Stop::Refused(_)) => {
                    self.doomed.pop();
                    self.give_up_node(node);
                    reaped += 1;
                }
            }
        }
        if reaped > 0 {
            self.changed();
        }
        reaped > 0
    }

    /// A doomed node that cannot be read is free, and so is its block. Blocks that it named are found to be of no use when their segments are cleaned;
    /// nodes that it named stay, until a rebuild.
    fn give_up_node(&mut self, node: u32) {
        let address = match self.map.changes.get(&node) {
            Some(address) => *address,
            None => self.address_in_map(node),
        };
        if address != 0 && self.cache.slot(node).is_none() {
            self.segments.release(address);
            self.forget_patch(node);
            self.map.free(node);
        }
    }

    fn reap_node(&mut self, node: u32) -> Step<()> {
        self.pin(node, &Kind::NODES)?;
        let found = self.cache.node(node);
        if found.kind == Kind::Inode && fields(&found.bytes).links.get() > 0 {
            // A file that has a name was not deleted, whoever says so.
            self.doomed.pop();
            return Ok(());
        }
        let (kind, has_contents) = (found.kind, !fields(&found.bytes).is_inline());
        let mut children = Vec::new();
        let mut addresses = Vec::new();
        let numbers = |at: usize, count: usize| (0..count).map(move |slot| Place { node, at: at + 4 * slot });
        match kind {
            Kind::Inode => {
                children.push(fields(&found.bytes).xattrs.get());
                if has_contents {
                    children.extend((0..inode::NODE_COUNT).map(|which| inode::node(&found.bytes, which)));
                    addresses.extend(numbers(AREA, ADDRESSES).map(|place| self.number(place)));
                }
            }
            Kind::Direct => addresses.extend(numbers(SLOTS, FANOUT as usize).map(|place| self.number(place))),
            Kind::Indirect => children.extend(numbers(SLOTS, FANOUT as usize).map(|place| self.number(place))),
            _ => {}
        }
        addresses.retain(|address| *address != 0);
        children.retain(|child| *child != 0);
        // What is cut off a file that goes on was among its blocks.
        if matches!(kind, Kind::Direct | Kind::Indirect) {
            let about = about(&self.cache.node(node).bytes);
            match self.pin(about.inode, &[Kind::Inode]) {
                Ok(()) if fields(&self.cache.node(about.inode).bytes).generation.get() == about.generation => {
                    self.count_blocks(about.inode, -1 - addresses.len() as i64);
                }
                Err(Stop::Wait) => return Err(Stop::Wait),
                _ => {}
            }
        } else {
            for page in self.cache.pages_of(node, 0, u32::MAX) {
                if self.cache.page((node, page)).is_some_and(|page| page.is_new) {
                    self.promised -= 1;
                }
                self.cache.forget(Key::Page(node, page));
            }
        }
        self.doomed.pop();
        self.doomed.extend(children);
        addresses.into_iter().for_each(|address| self.segments.release(address));
        self.free_node(node);
        Ok(())
    }
}
