//! Where nodes are: node → address, in blocks that are read when they are needed.
//!
//! A changed node changes one number here. The number is kept apart from the blocks of the map ([`NodeMap::changes`]) and is in the next record; the
//! blocks are written when there are many such numbers. Free numbers of nodes are known of the blocks that were read since the volume was mounted.

use crate::block::{Bytes, HEADER_BYTES, number_at, put_number};
use crate::record::MapBlock;
use openftl_core::BLOCK_BYTES;
use std::collections::{BTreeMap, BTreeSet};

/// Nodes of a block of the map.
pub const NODES_PER_BLOCK: u32 = ((BLOCK_BYTES - HEADER_BYTES) / 4) as u32;

/// See the module.
#[derive(Default, Debug)]
pub struct NodeMap {
    /// The blocks.
    pub blocks: Vec<MapBlock>,
    /// Addresses that the blocks do not have yet; 0: the node is free.
    pub changes: BTreeMap<u32, u32>,
    /// Those of them that are not in a record.
    pub unrecorded: BTreeSet<u32>,
    /// Blocks whose free nodes are in the next field.
    known: BTreeSet<u32>,
    free: BTreeSet<u32>,
}

/// Which block a node is in.
#[must_use]
pub fn block_of(node: u32) -> u32 {
    node / NODES_PER_BLOCK
}

/// The address of a node in its block.
#[must_use]
pub fn address_in(bytes: &Bytes, node: u32) -> u32 {
    number_at(bytes, HEADER_BYTES + 4 * (node % NODES_PER_BLOCK) as usize)
}

/// Sets it.
pub fn set_address_in(bytes: &mut Bytes, node: u32, address: u32) {
    put_number(bytes, HEADER_BYTES + 4 * (node % NODES_PER_BLOCK) as usize, address);
}

/// Nodes of block `index`.
#[must_use]
pub fn nodes_of(index: u32) -> std::ops::Range<u32> {
    index * NODES_PER_BLOCK..(index + 1) * NODES_PER_BLOCK
}

impl NodeMap {
    /// Free nodes that are known.
    #[must_use]
    pub fn known_free(&self) -> usize {
        self.free.len()
    }

    /// A block that is likely to have free nodes, and is not known.
    #[must_use]
    pub fn promising(&self) -> Option<u32> {
        let has_some = |(index, block): &(u32, &MapBlock)| block.free > 0 && !self.known.contains(index);
        (0..).zip(&self.blocks).find(has_some).map(|(index, _)| index)
    }

    /// One block more, without any node in use. Node 0 is none.
    pub fn grow(&mut self) {
        let index = self.blocks.len() as u32;
        self.blocks.push(MapBlock { address: 0, free: NODES_PER_BLOCK as u16 });
        self.learn(index, |_| 0);
    }

    /// Which nodes of a block are free follows from their addresses, and from who is in memory alone.
    pub fn learn(&mut self, index: u32, address: impl Fn(u32) -> u32) {
        let address = |node| self.changes.get(&node).copied().unwrap_or_else(|| address(node));
        let free: Vec<u32> = nodes_of(index).filter(|node| *node != 0 && address(*node) == 0).collect();
        self.blocks[index as usize].free = free.len() as u16;
        self.free.extend(free);
        self.known.insert(index);
    }

    /// Whether block `index` is known.
    #[must_use]
    pub fn is_known(&self, index: u32) -> bool {
        self.known.contains(&index)
    }

    /// A free node, which is in use from now on.
    pub fn take(&mut self) -> Option<u32> {
        let node = self.free.pop_first()?;
        let free = &mut self.blocks[block_of(node) as usize].free;
        *free = free.saturating_sub(1);
        Some(node)
    }

    /// `node` is where it is said.
    pub fn set(&mut self, node: u32, address: u32) {
        self.changes.insert(node, address);
        self.unrecorded.insert(node);
    }

    /// `node` is free.
    pub fn free(&mut self, node: u32) {
        self.set(node, 0);
        let index = block_of(node);
        let free = &mut self.blocks[index as usize].free;
        *free = (*free + 1).min(NODES_PER_BLOCK as u16);
        if self.known.contains(&index) {
            self.free.insert(node);
        }
    }
}
