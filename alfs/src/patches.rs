//! Nodes that changed little: a sync writes how they differ from their blocks, many of them in one block.
//!
//! ```text
//!   node 7  ──▶ block at 900      its block on media, written long ago
//!      └──────▶ patch in 1200     every change since (patch.rs); 1200 also has the patches of nodes 3, 8 and 21
//! ```
//!
//! # What is on media
//! A block of patches goes to the log of nodes of folders, because it is soon of no use: it is of use as long as it has the newest patch of a node. A record
//! says where the newest patch of each node is: all of them in a whole record, those that were written since in another one. A node that is written
//! whole, or freed, has no patch from that record on. The address of a node in the map of nodes stays that of its block.
//!
//! # When a node is written whole
//! When it has no block yet, when it differs in more than [`PATCH_BYTES_MAX`], when its segment is cleaned, when there is no room for more patches
//! ([`Shape::patch_blocks_max`](crate::segments::Shape::patch_blocks_max)), and before an unmount: a volume that was unmounted has patches of nodes that
//! cannot be read, and, if it had too few free segments, of others. When three quarters of that room are taken, the nodes whose patches were written
//! longest ago are written whole.
//!
//! # What is bounded
//! All patches are in memory. After a crash a mount reads each block of patches that is of use once, of which there are
//! [`Shape::patch_blocks_max`](crate::segments::Shape::patch_blocks_max) or fewer. It needs none of their nodes: a node is changed when it is loaded.
//!
//! # What fails
//! A node whose block cannot be read is lost, as it is without a patch. If a block of patches cannot be read, the nodes that have their newest patch there
//! count as unreadable: an older version of them would contradict others. A rebuild, which does without records, takes of each node the block that counts
//! (`scanning`), and of the patches of that block the newest that can be read.

use crate::block::{Bytes, HEADER_BYTES, Kind, look, seal_at};
use crate::mounting::MountError;
use crate::patch::{ENTRY_BYTES, Entry, PATCH_BYTES_MAX, Words, entries, put_entry};
use crate::requests::read_scattered;
use crate::segments::{IS_PATCHES, Log, Owner, Shape};
use crate::volume::{Step, Stop, Volume};
use openftl_core::{BLOCK_BYTES, Clock};
use openftl_parts::target::SegmentTarget;
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};

/// Nodes that are read together to be written whole.
const MOVING_TOGETHER: usize = 32;

/// The owner of a block of patches in summaries.
pub(crate) const OWNER: Owner = Owner { node: 1, slot: IS_PATCHES };

/// The newest patch of a node.
#[derive(Debug)]
pub(crate) struct Patch {
    /// The address of the block that it changes.
    pub base: u32,
    /// The ranges; `None`: they cannot be read.
    pub ranges: Option<Vec<u8>>,
    /// The block of patches that it was last written to, by number; 0: none.
    block: u64,
    /// The node cannot be read, so it cannot be written whole.
    is_stuck: bool,
}

#[derive(Debug)]
struct PatchBlock {
    address: u32,
    /// Nodes that have their newest patch there.
    nodes: BTreeSet<u32>,
}

/// See the module.
#[derive(Default, Debug)]
pub(crate) struct Patches {
    all: BTreeMap<u32, Patch>,
    /// Blocks that are of use, in the order in which they were written.
    blocks: BTreeMap<u64, PatchBlock>,
    /// Their numbers, by address.
    numbers: FxHashMap<u32, u64>,
    last_block: u64,
    /// Nodes whose patches are to be written.
    pending: BTreeSet<u32>,
    /// Nodes whose patches are not where the last record says.
    pub unrecorded: BTreeSet<u32>,
    /// Nodes that the next sync writes whole.
    pub moving: BTreeSet<u32>,
    /// Nodes that a sync which a power cut has ended has patched: they are written whole, as many at a time as may be dirty.
    pub abandoned: BTreeSet<u32>,
    /// Bytes that all patches take in blocks.
    bytes: usize,
    /// The sequence that blocks were last written for, and how many.
    written_for: (u64, u32),
}

impl Patch {
    fn is_movable(&self) -> bool {
        self.ranges.is_some() && !self.is_stuck
    }
}

fn bytes_of(ranges: Option<&Vec<u8>>) -> usize {
    ENTRY_BYTES + ranges.map_or(0, Vec::len)
}

/// Bytes of patches, at most: with half of the room they can always be written together.
fn bytes_max(shape: Shape) -> usize {
    shape.patch_blocks_max() as usize * (BLOCK_BYTES - HEADER_BYTES) / 2
}

impl Patches {
    /// The patch of a node.
    pub fn get(&self, node: u32) -> Option<&Patch> {
        self.all.get(&node)
    }

    /// Nodes with a patch.
    pub fn nodes(&self) -> impl Iterator<Item = u32> + '_ {
        self.all.keys().copied()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Addresses of blocks of patches that are of use.
    pub fn addresses(&self) -> impl Iterator<Item = u32> + '_ {
        self.blocks.values().map(|block| block.address)
    }

    /// How many there are.
    pub fn blocks(&self) -> usize {
        self.blocks.len()
    }

    /// Whether patches are to be written.
    pub fn is_pending(&self) -> bool {
        !self.pending.is_empty() || !self.moving.is_empty()
    }

    /// Patches that are to be written, and nodes.
    pub fn pending(&self) -> usize {
        self.pending.len() + self.moving.len()
    }

    /// Where the patch of a node is; 0: it has none on media.
    pub fn address_of(&self, node: u32) -> u32 {
        self.all.get(&node).and_then(|patch| self.blocks.get(&patch.block)).map_or(0, |block| block.address)
    }

    /// Whether a node may have a patch with so many bytes of ranges.
    fn has_room(&self, node: u32, bytes: usize, shape: Shape) -> bool {
        let old = self.all.get(&node);
        let taken = self.bytes - old.map_or(0, |patch| bytes_of(patch.ranges.as_ref()));
        let is_known = old.is_some() || self.all.len() < shape.patches_max() as usize;
        bytes <= PATCH_BYTES_MAX && is_known && taken + ENTRY_BYTES + bytes <= bytes_max(shape)
    }

    /// A node has this patch from now on, which is to be written.
    fn stage(&mut self, node: u32, base: u32, ranges: Vec<u8>) {
        let patch = self.all.entry(node).or_insert(Patch { base, ranges: None, block: 0, is_stuck: false });
        let taken = if patch.ranges.is_some() || patch.block != 0 { bytes_of(patch.ranges.as_ref()) } else { 0 };
        self.bytes = self.bytes - taken + ENTRY_BYTES + ranges.len();
        (patch.base, patch.ranges) = (base, Some(ranges));
        self.pending.insert(node);
    }

    /// What a record, or a rebuild, has found: a node has this patch, in the block at `address`.
    pub fn restore(&mut self, node: u32, base: u32, ranges: Option<Vec<u8>>, address: u32) {
        let number = match self.numbers.get(&address) {
            Some(number) => *number,
            None => self.add_block(address, BTreeSet::new()),
        };
        self.blocks.get_mut(&number).expect("it is there").nodes.insert(node);
        self.bytes += bytes_of(ranges.as_ref());
        self.all.insert(node, Patch { base, ranges, block: number, is_stuck: false });
    }

    /// A node has no patch any more: it was written whole, or is free. Returns the address of a block of patches that is of no use now.
    pub fn forget(&mut self, node: u32) -> Option<u32> {
        self.pending.remove(&node);
        self.unrecorded.remove(&node);
        self.moving.remove(&node);
        let patch = self.all.remove(&node)?;
        self.bytes -= bytes_of(patch.ranges.as_ref());
        self.leave_block(node, patch.block)
    }

    /// A block that has the newest patches of these nodes. Returns its number.
    fn add_block(&mut self, address: u32, nodes: BTreeSet<u32>) -> u64 {
        self.last_block += 1;
        self.blocks.insert(self.last_block, PatchBlock { address, nodes });
        self.numbers.insert(address, self.last_block);
        self.last_block
    }

    fn remove_block(&mut self, number: u64) -> Option<PatchBlock> {
        let block = self.blocks.remove(&number)?;
        self.numbers.remove(&block.address);
        Some(block)
    }

    fn leave_block(&mut self, node: u32, number: u64) -> Option<u32> {
        let block = self.blocks.get_mut(&number)?;
        block.nodes.remove(&node);
        if !block.nodes.is_empty() {
            return None;
        }
        self.remove_block(number).map(|block| block.address)
    }

    /// The patches in the block at `address` are to be written again. `None`: some of them cannot be read. `Some(false)`: it is of no use.
    pub fn write_again(&mut self, address: u32) -> Option<bool> {
        let Some(number) = self.numbers.get(&address) else { return Some(false) };
        let block = &self.blocks[number];
        if block.nodes.iter().any(|node| self.all[node].ranges.is_none()) {
            return None;
        }
        self.pending.extend(block.nodes.iter().copied());
        Some(true)
    }

    /// The block at `address` was never written: its patches are to be written elsewhere. Returns whether it was of use.
    pub fn lose_block(&mut self, address: u32) -> bool {
        let Some(block) = self.numbers.get(&address).copied().and_then(|number| self.remove_block(number)) else {
            return false;
        };
        for node in block.nodes {
            self.all.get_mut(&node).expect("its block names it").block = 0;
            self.pending.insert(node);
        }
        true
    }

    /// The block of a node is elsewhere, with the same contents.
    pub fn move_base(&mut self, node: u32, base: u32) {
        if let Some(patch) = self.all.get_mut(&node) {
            patch.base = base;
            self.pending.insert(node);
        }
    }

    /// Nodes in the block of patches that was written longest ago, if patches take more than three quarters of their room.
    fn oldest_if_crowded(&self, shape: Shape) -> Vec<u32> {
        let is_crowded = self.bytes > bytes_max(shape) / 4 * 3 || self.all.len() > shape.patches_max() as usize / 4 * 3;
        let is_movable = |node: &u32| self.all[node].is_movable();
        let of_block = |block: &PatchBlock| block.nodes.iter().copied().filter(is_movable).collect::<Vec<u32>>();
        let mut nodes = self.blocks.values().filter(|_| is_crowded).map(of_block);
        nodes.find(|nodes| !nodes.is_empty()).unwrap_or_default()
    }

    /// Nodes with a patch that can be written whole.
    pub fn movable(&self) -> impl Iterator<Item = u32> + '_ {
        self.all.iter().filter(|(_, patch)| patch.is_movable()).map(|(node, _)| *node)
    }

    /// Patches of the oldest blocks are written again, so that there are no more blocks than there may be.
    fn gather_old(&mut self, shape: Shape) {
        let most = shape.patch_blocks_max() as usize;
        let mut bytes: usize = self.pending.iter().map(|node| bytes_of(self.all[node].ranges.as_ref())).sum();
        // An entry does not reach over two blocks.
        let needed = |bytes: usize| bytes.div_ceil(BLOCK_BYTES - HEADER_BYTES - ENTRY_BYTES - PATCH_BYTES_MAX);
        let mut left = self.blocks.len();
        for block in self.blocks.values() {
            if left + needed(bytes) <= most {
                return;
            }
            left -= 1;
            for node in block.nodes.iter().filter(|node| self.all[node].ranges.is_some()) {
                if self.pending.insert(*node) {
                    bytes += bytes_of(self.all[node].ranges.as_ref());
                }
            }
        }
    }

    /// Fills a block with patches that are to be written. Returns their nodes.
    fn fill(&self, block: &mut Bytes) -> Vec<u32> {
        block.fill(0);
        let (mut nodes, mut at) = (Vec::new(), HEADER_BYTES);
        for node in &self.pending {
            let patch = &self.all[node];
            let ranges = patch.ranges.as_deref().expect("it was read, or made");
            match put_entry(block, at, &Entry { node: *node, base: patch.base, ranges }) {
                Some(next) => at = next,
                None => break,
            }
            nodes.push(*node);
        }
        nodes
    }

    /// Blocks that were written for a sequence before this one.
    fn number_in(&mut self, sequence: u64) -> u32 {
        let (of, count) = self.written_for;
        let number = if of == sequence { count } else { 0 };
        self.written_for = (sequence, number + 1);
        number
    }

    /// The patches of these nodes are at `address`. Returns addresses of blocks of patches that are of no use now.
    fn written(&mut self, nodes: &[u32], address: u32) -> Vec<u32> {
        let number = self.add_block(address, nodes.iter().copied().collect());
        let mut useless = Vec::new();
        for node in nodes {
            let old = std::mem::replace(&mut self.all.get_mut(node).expect("it was just written").block, number);
            useless.extend(self.leave_block(*node, old));
            self.pending.remove(node);
            self.unrecorded.insert(*node);
        }
        useless
    }
}

impl<T: SegmentTarget> Volume<T> {
    /// A node has no patch any more.
    pub(crate) fn forget_patch(&mut self, node: u32) {
        if let Some(address) = self.patches.forget(node) {
            self.segments.release(address);
        }
    }

    /// Blocks that count against the room of a volume: those of patches have room of their own.
    pub(crate) fn used(&self) -> u64 {
        (self.segments.valid() + self.promised).saturating_sub(self.patches.blocks() as u64)
    }

    /// Whether a dirty node is as its block and a patch say. If so, it has this patch from now on.
    pub(crate) fn patch_node(&mut self, node: u32) -> bool {
        if self.patches.moving.contains(&node) {
            return false;
        }
        let found = self.cache.node(node);
        let Some(before) = found.before.as_deref().filter(|_| found.address != 0) else { return false };
        let old = self.patches.get(node).and_then(|patch| patch.ranges.as_deref());
        let ranges = Words::between(before, &found.bytes).with(old.unwrap_or_default()).ranges(&found.bytes);
        if !self.patches.has_room(node, ranges.len(), self.segments.shape) {
            return false;
        }
        let base = found.address;
        if old.unwrap_or_default() != ranges {
            self.patches.stage(node, base, ranges);
        }
        self.cache.patch_node(node);
        true
    }

    /// Writes nodes whole that are to be, whether they are in memory or not.
    pub(crate) fn write_moving(&mut self) -> Step<()> {
        while !self.patches.moving.is_empty() {
            let nodes: Vec<u32> = self.patches.moving.iter().copied().take(MOVING_TOGETHER).collect();
            let mut is_reading = false;
            for node in nodes {
                match self.pin(node, &Kind::NODES) {
                    Ok(()) => self.write_node(node)?,
                    // Others are read meanwhile.
                    Err(Stop::Wait) => is_reading = true,
                    // It is free, or cannot be read.
                    Err(Stop::Refused(_)) => {
                        self.patches.moving.remove(&node);
                        if let Some(patch) = self.patches.all.get_mut(&node) {
                            patch.is_stuck = true;
                        }
                    }
                }
            }
            if is_reading {
                return Err(Stop::Wait);
            }
        }
        Ok(())
    }

    /// Nodes that have not changed for long are written whole, where others need room for patches; all of them before an unmount, as many at a time as
    /// may be dirty.
    pub(crate) fn choose_moving(&mut self) {
        let most = self.dirty_max().saturating_sub(self.cache.dirty());
        let is_short = self.segments.free() < self.segments.shape.wait_below();
        let mut nodes: Vec<u32> = Vec::new();
        if !is_short {
            nodes.extend(self.patches.abandoned.iter().take(most));
            nodes.iter().for_each(|node| _ = self.patches.abandoned.remove(node));
            if !self.patches.abandoned.is_empty() {
                // The others follow with the next record.
                self.changed();
            }
        }
        if is_short {
            // They stay patched.
        } else if self.syncing.wants_map {
            nodes.extend(self.patches.movable());
        } else if self.syncing.whole_blocks > 0 {
            // Before the first whole record after a mount is durable nothing but it is written: what a record that does not count has named
            // behind the write pointers would be there.
            nodes.extend(self.patches.oldest_if_crowded(self.segments.shape));
        }
        self.patches.moving.extend(nodes.into_iter().take(most));
    }

    /// Writes patches.
    pub(crate) fn write_patches(&mut self) -> Step<()> {
        self.patches.gather_old(self.segments.shape);
        while !self.patches.pending.is_empty() {
            self.expect_log(Log::HotNode, 1)?;
            let frame = self.frame()?;
            let place = self.segments.next_address(Log::HotNode);
            let (sequence, id) = (self.syncing.next, self.id);
            let bytes = self.target.frames_mut().bytes_mut(frame);
            let nodes = self.patches.fill(bytes);
            seal_at(bytes, Kind::Patches, self.patches.number_in(sequence), sequence, id, place);
            let address = self.append(Log::HotNode, OWNER, frame);
            for useless in self.patches.written(&nodes, address) {
                self.segments.release(useless);
            }
            self.statistics.patches += 1;
        }
        Ok(())
    }

    /// Reads the patches of a volume that is mounted: of each node where its newest one is.
    pub(crate) fn read_patches(
        &mut self,
        places: &BTreeMap<u32, u32>,
        clock: &mut dyn Clock,
    ) -> Result<(), MountError> {
        let mut blocks: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for (node, address) in places {
            blocks.entry(*address).or_default().push(*node);
        }
        let addresses: Vec<u32> = blocks.keys().copied().collect();
        let read = read_scattered(&mut self.target, clock, &addresses)?;
        let mut found = Vec::new();
        for ((address, nodes), block) in blocks.into_iter().zip(read) {
            let seen = block.as_ref().and_then(|block| look(block).ok());
            let seen = seen.filter(|seen| seen.kind == Kind::Patches && seen.volume == self.id);
            let order = seen.map_or((0, 0), |seen| (seen.sequence, seen.identity));
            let entries = block.as_ref().filter(|_| seen.is_some()).and_then(|block| entries(block));
            let of_node = |node: u32| {
                let entry = entries.iter().flatten().find(|entry| entry.node == node);
                (node, entry.map_or((0, None), |entry| (entry.base, Some(entry.ranges.to_vec()))))
            };
            let nodes: Vec<_> = nodes.into_iter().map(of_node).collect();
            found.push((order, address, nodes));
        }
        found.sort_by_key(|(order, address, _)| (*order, *address));
        for (_, address, nodes) in found {
            for (node, (base, ranges)) in nodes {
                self.patches.restore(node, base, ranges, address);
            }
        }
        Ok(())
    }
}
