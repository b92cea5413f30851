//! Where the blocks of a file are: from its node over nodes of addresses.
//!
//! ```text
//!   inode ─┬─ 979 addresses
//!          ├─ direct, direct          1,012 addresses each
//!          ├─ indirect, indirect      1,012 direct nodes each
//!          └─ double indirect         1,012 indirect nodes
//! ```
//!
//! | bytes | of a direct, indirect node |
//! |---|---|
//! | 32 | the file, 4 bytes |
//! | 36 | the generation of the file, 4 bytes |
//! | 40 | the first block that it is about, 4 bytes |
//! | 44 | levels of nodes below it, 4 bytes |
//! | 48 | addresses, or numbers of nodes |

use crate::block::{Bytes, HEADER_BYTES, Kind, number_at, put_number, zeroes};
use crate::cache::Key;
use crate::inode::{ADDRESSES, AREA, NODES, fields, fields_mut};
use crate::volume::{Step, Stop, Volume};
use openftl_parts::target::SegmentTarget;

/// Where the addresses of a node of addresses begin.
pub const SLOTS: usize = HEADER_BYTES + 16;

/// How many there are.
pub const FANOUT: u64 = ((size_of::<Bytes>() - SLOTS) / 4) as u64;

/// Blocks of a file, at most.
pub const BLOCKS_MAX: u64 = ADDRESSES as u64 + 2 * FANOUT + 2 * FANOUT * FANOUT + FANOUT * FANOUT * FANOUT;

const _: () = assert!(BLOCKS_MAX < 1 << 32, "blocks of a file are counted in 32 bits");

/// Levels below each of the five nodes of a file: 1 has addresses.
pub(crate) const LEVELS: [u32; 5] = [1, 1, 2, 2, 3];

/// A number in a node: an address, or a node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Place {
    /// The node that has it.
    pub node: u32,
    /// At which byte of it.
    pub at: usize,
}

/// What a node of addresses says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct About {
    /// The file.
    pub inode: u32,
    /// Its generation.
    pub generation: u32,
    /// The first block that it is about.
    pub first: u32,
    /// Levels: 1 has addresses, more have nodes.
    pub levels: u32,
}

/// What a node of addresses says of itself.
#[must_use]
pub fn about(bytes: &Bytes) -> About {
    let at = |field: usize| number_at(bytes, HEADER_BYTES + 4 * field);
    About { inode: at(0), generation: at(1), first: at(2), levels: at(3) }
}

fn set_about(bytes: &mut Bytes, about: About) {
    for (field, number) in [about.inode, about.generation, about.first, about.levels].into_iter().enumerate() {
        put_number(bytes, HEADER_BYTES + 4 * field, number);
    }
}

/// Blocks that are below a node with so many levels.
pub(crate) fn span(levels: u32) -> u64 {
    FANOUT.pow(levels)
}

/// Which node of a file block `index` is below, and the first block of that. `None`: its address is in the file's node.
fn root_of(index: u64) -> Option<(usize, u64)> {
    let mut first = ADDRESSES as u64;
    if index < first {
        return None;
    }
    for (which, levels) in LEVELS.into_iter().enumerate() {
        if index < first + span(levels) {
            return Some((which, first));
        }
        first += span(levels);
    }
    unreachable!("block {index} is beyond the largest file")
}

impl<T: SegmentTarget> Volume<T> {
    /// The number there; its node is in memory.
    pub(crate) fn number(&self, place: Place) -> u32 {
        number_at(&self.cache.node(place.node).bytes, place.at)
    }

    /// Sets it.
    pub(crate) fn set_number(&mut self, place: Place, number: u32) {
        put_number(&mut self.cache.node_mut(place.node).bytes, place.at, number);
    }

    /// The kind of a node below a node of a file.
    pub(crate) fn kind_of(levels: u32) -> Kind {
        if levels == 1 { Kind::Direct } else { Kind::Indirect }
    }

    /// Loads a node that is below another one and about this.
    fn pin_below(&mut self, node: u32, inode: u32, levels: u32, first: u64) -> Step<()> {
        self.pin(node, &[Self::kind_of(levels)])?;
        let is = about(&self.cache.node(node).bytes);
        if is.inode == inode && is.levels == levels && u64::from(is.first) == first {
            Ok(())
        } else {
            Err(Stop::DAMAGED)
        }
    }

    /// Where the address of block `index` of a file is, whose node is in memory. Loads what is on the way. `Err(n)`: so many nodes are missing for
    /// it, so it has none.
    pub(crate) fn find(&mut self, inode: u32, index: u64) -> Step<Result<Place, u32>> {
        let Some((which, mut first)) = root_of(index) else {
            return Ok(Ok(Place { node: inode, at: AREA + 4 * index as usize }));
        };
        let mut levels = LEVELS[which];
        let mut place = Place { node: inode, at: NODES + 4 * which };
        while levels > 0 {
            let node = self.number(place);
            if node == 0 {
                return Ok(Err(levels));
            }
            self.pin_below(node, inode, levels, first)?;
            let below = span(levels - 1);
            let slot = (index - first) / below;
            place = Place { node, at: SLOTS + 4 * slot as usize };
            first += slot * below;
            levels -= 1;
        }
        Ok(Ok(place))
    }

    /// The address of block `index` of a file; 0: a hole.
    pub(crate) fn address_of(&mut self, inode: u32, index: u64) -> Step<u32> {
        Ok(self.find(inode, index)?.map_or(0, |place| self.number(place)))
    }

    /// The same place, with the nodes that it needs. Everything on the way is in memory, and there are free nodes.
    pub(crate) fn make(&mut self, inode: u32, index: u64) -> Place {
        let Some((which, mut first)) = root_of(index) else {
            return Place { node: inode, at: AREA + 4 * index as usize };
        };
        let generation = fields(&self.cache.node(inode).bytes).generation.get();
        let mut levels = LEVELS[which];
        let mut place = Place { node: inode, at: NODES + 4 * which };
        while levels > 0 {
            let mut node = self.number(place);
            if node == 0 {
                node = self.new_node(Self::kind_of(levels), zeroes());
                let about = About { inode, generation, first: first as u32, levels };
                set_about(&mut self.cache.node_mut(node).bytes, about);
                self.set_number(place, node);
                self.count_blocks(inode, 1);
            }
            let below = span(levels - 1);
            let slot = (index - first) / below;
            place = Place { node, at: SLOTS + 4 * slot as usize };
            first += slot * below;
            levels -= 1;
        }
        place
    }

    /// The file has so many blocks more.
    pub(crate) fn count_blocks(&mut self, inode: u32, blocks: i64) {
        let fields = fields_mut(&mut self.cache.node_mut(inode).bytes);
        fields.blocks = fields.blocks.get().saturating_add_signed(blocks).into();
    }

    /// The next block of a file at or behind `index` that has an address or is in memory; `None`: there is none before `end`.
    pub(crate) fn next_data(&mut self, inode: u32, index: u64, end: u64) -> Step<Option<u64>> {
        let in_memory = self.cache.pages_of(inode, index as u32, end.min(u32::MAX.into()) as u32);
        let in_memory =
            in_memory.into_iter().find(|page| self.cache.page((inode, *page)).is_some_and(|page| page.is_new));
        let end_on_media = in_memory.map_or(end, u64::from);
        let mut index = index;
        while index < end_on_media {
            match self.find(inode, index)? {
                Ok(place) if self.number(place) != 0 => return Ok(Some(index)),
                Ok(_) => index += 1,
                Err(levels) => {
                    let (_, first) = root_of(index).expect("a node is missing");
                    index = index + span(levels) - (index - first) % span(levels);
                }
            }
        }
        Ok(in_memory.map(u64::from))
    }

    /// Loads the nodes that are in part about blocks from `first` to before `end` of a file.
    pub(crate) fn pin_edges(&mut self, inode: u32, first: u64, end: u64) -> Step<()> {
        for edge in [first, end] {
            if edge < BLOCKS_MAX {
                _ = self.find(inode, edge)?;
            }
        }
        Ok(())
    }

    /// Blocks from `first` to before `end` of a file are holes from now on. The nodes at the edges are in memory ([`Volume::pin_edges`]); nodes that are
    /// only about such blocks are doomed.
    pub(crate) fn clear(&mut self, inode: u32, first: u64, end: u64) {
        if first >= end {
            return;
        }
        for page in self.cache.pages_of(inode, first as u32, end.min(u32::MAX.into()) as u32) {
            self.forget_page(inode, page);
        }
        for index in first..end.min(ADDRESSES as u64) {
            self.clear_address(inode, Place { node: inode, at: AREA + 4 * index as usize });
        }
        let mut begins = ADDRESSES as u64;
        for (which, levels) in LEVELS.into_iter().enumerate() {
            self.clear_below(inode, Place { node: inode, at: NODES + 4 * which }, levels, begins, first, end);
            begins += span(levels);
        }
    }

    fn clear_address(&mut self, inode: u32, place: Place) {
        let address = self.number(place);
        if address != 0 {
            self.set_number(place, 0);
            self.segments.release(address);
            self.count_blocks(inode, -1);
        }
    }

    fn clear_below(&mut self, inode: u32, place: Place, levels: u32, begins: u64, first: u64, end: u64) {
        let ends = begins + span(levels);
        let node = self.number(place);
        if node == 0 || end <= begins || first >= ends {
            return;
        }
        if first <= begins && end >= ends {
            self.set_number(place, 0);
            self.doom(node);
            return;
        }
        let below = span(levels - 1);
        for slot in 0..FANOUT {
            let begins = begins + slot * below;
            if end <= begins || first >= begins + below {
                continue;
            }
            let place = Place { node, at: SLOTS + 4 * slot as usize };
            match levels {
                1 => self.clear_address(inode, place),
                _ => self.clear_below(inode, place, levels - 1, begins, first, end),
            }
        }
    }

    /// A block of a file in memory is of no use any more.
    pub(crate) fn forget_page(&mut self, inode: u32, index: u32) {
        if self.cache.page((inode, index)).is_some_and(|page| page.is_new) {
            self.promised -= 1;
            self.count_blocks(inode, -1);
        }
        self.cache.forget(Key::Page(inode, index));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_block_is_below_one_node() {
        assert_eq!(root_of(978), None);
        assert_eq!(root_of(979), Some((0, 979)));
        assert_eq!(root_of(979 + 1012), Some((1, 979 + 1012)));
        assert_eq!(root_of(979 + 2 * 1012), Some((2, 979 + 2 * 1012)));
        assert_eq!(root_of(BLOCKS_MAX - 1).unwrap().0, 4);
    }
}
