//! Blocks come to memory before an operation happens, and are checked once, as far as each goes by itself.
//!
//! A step *pins* what it needs: either the block is there, or its read has begun and the step waits. Nothing leaves memory within an attempt.

use crate::block::{Bytes, Kind, look, number_at, verify};
use crate::cache::{Key, Slot};
use crate::inode::{ADDRESSES, AREA, Fields, fields, fields_mut};
use crate::names;
use crate::node_map::{address_in, block_of, nodes_of};
use crate::operation::{FileKind, Inode, Refusal};
use crate::patch;
use crate::patches::Patch;
use crate::segments::ANCHORS;
use crate::tree::{FANOUT, SLOTS};
use crate::volume::{Io, Step, Stop, Volume};
use openftl_core::Frame;
use openftl_parts::target::{Request, SegmentTarget};

impl<T: SegmentTarget> Volume<T> {
    /// Reads a block of metadata.
    fn load(&mut self, key: Key, address: u32) -> Stop {
        let frame = match self.frame() {
            Ok(frame) => frame,
            Err(wait) => return wait,
        };
        self.cache.begin(key, address);
        if let Some(kept) = self.kept.get(&address) {
            self.target.frames_mut().bytes_mut(frame).copy_from_slice(&kept[..]);
            self.loaded(key, frame, address, true);
            self.target.frames_mut().release(frame);
            self.is_stirred = true;
            return Stop::Wait;
        }
        self.segments.count_read(address, true);
        let request = Request::Read { first: address.into(), frames: &[frame] };
        if !self.start(Io::Load { key, frame, address }, request) {
            self.segments.count_read(address, false);
            self.cache.forget(key);
            self.target.frames_mut().release(frame);
        }
        Stop::Wait
    }

    /// Loads a block of the map of nodes. `false`: nothing was ever written of it.
    pub(crate) fn pin_map(&mut self, index: u32) -> Step<bool> {
        let block = self.map.blocks.get(index as usize).copied().unwrap_or_default();
        if block.address == 0 {
            return Ok(false);
        }
        match self.cache.map_slot(index) {
            Some(Slot::Here(_)) => Ok(true),
            Some(Slot::Loading(_)) => Err(Stop::Wait),
            Some(Slot::Failed) => {
                self.cache.forget(Key::Map(index));
                Err(Stop::DAMAGED)
            }
            None => Err(self.load(Key::Map(index), block.address)),
        }
    }

    /// A number of a block of the map, which is in memory if anything was ever written of it.
    pub(crate) fn address_in_map(&self, node: u32) -> u32 {
        match self.cache.map_slot(block_of(node)) {
            Some(Slot::Here(bytes)) => address_in(bytes, node),
            _ => 0,
        }
    }

    /// Where a node is; 0: nowhere.
    pub(crate) fn address_of_node(&mut self, node: u32) -> Step<u32> {
        if let Some(address) = self.map.changes.get(&node) {
            return Ok(*address);
        }
        let is_written = self.pin_map(block_of(node))?;
        Ok(if is_written { self.address_in_map(node) } else { 0 })
    }

    /// Loads a node, which is to be of one of these kinds.
    pub(crate) fn pin(&mut self, node: u32, kinds: &[Kind]) -> Step<()> {
        match self.cache.slot(node) {
            Some(Slot::Here(found)) if kinds.contains(&found.kind) => Ok(()),
            Some(Slot::Here(_)) => Err(Stop::DAMAGED),
            Some(Slot::Loading(_)) => Err(Stop::Wait),
            Some(Slot::Failed) => {
                self.cache.forget(Key::Node(node));
                Err(Stop::DAMAGED)
            }
            None => match self.address_of_node(node)? {
                0 => Err(Refusal::Stale.into()),
                address => Err(self.load(Key::Node(node), address)),
            },
        }
    }

    /// Loads the node of a file, and returns its attributes.
    pub(crate) fn pin_inode(&mut self, inode: Inode) -> Step<Fields> {
        if inode.0 == 0 {
            return Err(Refusal::Stale.into());
        }
        match self.pin(inode.0, &[Kind::Inode]) {
            Ok(()) => match *self.fields(inode) {
                // It waits to be freed.
                fields if fields.links.get() == 0 && !self.held.contains_key(&inode.0) => Err(Refusal::Stale.into()),
                fields => Ok(fields),
            },
            // A host may say any number.
            Err(Stop::Refused(Refusal::Device)) if matches!(self.cache.slot(inode.0), Some(Slot::Here(_))) => {
                Err(Refusal::Stale.into())
            }
            Err(stop) => Err(stop),
        }
    }

    /// The same of a folder.
    pub(crate) fn pin_directory(&mut self, inode: Inode) -> Step<Fields> {
        let fields = self.pin_inode(inode)?;
        if fields.is_directory() { Ok(fields) } else { Err(Refusal::NotADirectory.into()) }
    }

    /// The same of a file with contents.
    pub(crate) fn pin_regular(&mut self, inode: Inode) -> Step<Fields> {
        let fields = self.pin_inode(inode)?;
        match fields.kind() {
            Some(FileKind::Regular) => Ok(fields),
            Some(FileKind::Directory) => Err(Refusal::IsADirectory.into()),
            _ => Err(Refusal::Invalid.into()),
        }
    }

    /// Attributes of a file whose node is in memory.
    pub(crate) fn fields(&self, inode: Inode) -> &Fields {
        fields(&self.cache.node(inode.0).bytes)
    }

    /// The same, to be changed.
    pub(crate) fn fields_mut(&mut self, inode: Inode) -> &mut Fields {
        fields_mut(&mut self.cache.node_mut(inode.0).bytes)
    }

    /// Loads a block of a file whose node is in memory. `false`: it is a hole.
    pub(crate) fn pin_page(&mut self, inode: Inode, index: u32) -> Step<bool> {
        match self.cache.page_slot((inode.0, index)) {
            Some(Slot::Here(_)) => Ok(true),
            Some(Slot::Loading(_)) => Err(Stop::Wait),
            Some(Slot::Failed) => {
                self.cache.forget(Key::Page(inode.0, index));
                Err(Stop::DAMAGED)
            }
            None => match self.address_of(inode.0, index.into())? {
                0 => Ok(false),
                address => Err(self.load(Key::Page(inode.0, index), address)),
            },
        }
    }

    pub(crate) fn loaded(&mut self, key: Key, frame: Frame, address: u32, is_fine: bool) {
        if !self.cache.is_loading(key, address) {
            return;
        }
        if let Key::Page(inode, _) = key
            && !matches!(self.cache.slot(inode), Some(Slot::Here(_)))
        {
            // What the file is decides what its blocks have to be: it is read again with its file.
            return self.cache.forget(key);
        }
        let bytes = self.target.frames().bytes(frame);
        let is_it = is_fine
            && match key {
                Key::Node(node) => {
                    look(bytes).is_ok_and(|seen| seen.kind.is_node() && seen.identity == node && seen.volume == self.id)
                }
                Key::Map(index) => verify(bytes, Kind::NodeMap, index, self.id).is_ok(),
                Key::Page(inode, _) if fields(&self.cache.node(inode).bytes).is_directory() => {
                    verify(bytes, Kind::Names, inode, self.id).is_ok() && names::is_sound(crate::directory::area(bytes))
                }
                Key::Page(..) => true,
            };
        if !is_it {
            self.cache.fail(key);
            return;
        }
        let mut copy: Box<Bytes> = Box::new(*bytes);
        match key {
            Key::Node(node) => {
                let kind = look(bytes).expect("it was just looked at").kind;
                let is_newest = match self.patches.get(node) {
                    Some(Patch { base, ranges: Some(ranges), .. }) if *base == address => {
                        patch::apply(ranges, &mut copy);
                        true
                    }
                    Some(_) => false,
                    None => true,
                };
                match is_newest && self.is_sound_node(&copy, kind) {
                    true => self.cache.put_node(node, copy, kind, address),
                    false => self.cache.fail(key),
                }
            }
            Key::Map(index) => {
                let addresses = nodes_of(index).map(|node| address_in(&copy, node));
                match self.are_addresses(addresses) {
                    true => self.cache.put_map(index, copy),
                    false => self.cache.fail(key),
                }
            }
            Key::Page(inode, index) => self.cache.put_page((inode, index), copy, false),
        }
    }

    /// Whether blocks can be at these addresses.
    fn are_addresses(&self, mut addresses: impl Iterator<Item = u32>) -> bool {
        let shape = self.segments.shape;
        addresses.all(|address| address == 0 || (ANCHORS..shape.segments).contains(&shape.segment_of(address)))
    }

    /// Whether a node is possible, as far as itself goes: nobody who uses it looks again.
    fn is_sound_node(&self, bytes: &Bytes, kind: Kind) -> bool {
        let numbers = |at: usize, count: usize| (0..count).map(move |slot| number_at(bytes, at + 4 * slot));
        match kind {
            Kind::Inode if fields(bytes).is_inline() => is_sound_inode(bytes),
            Kind::Inode => is_sound_inode(bytes) && self.are_addresses(numbers(AREA, ADDRESSES)),
            Kind::Direct => self.are_addresses(numbers(SLOTS, FANOUT as usize)),
            _ => true,
        }
    }
}

/// Whether the node of a file is possible, as far as itself goes.
fn is_sound_inode(bytes: &Bytes) -> bool {
    let fields = fields(bytes);
    let Some(kind) = fields.kind() else { return false };
    let size = fields.size.get();
    match kind {
        FileKind::Directory if usize::from(fields.levels) > crate::directory::LEVELS_MAX => false,
        FileKind::Directory => !fields.is_inline() || names::is_sound(crate::inode::inline(bytes)),
        _ if fields.is_inline() => size <= crate::inode::INLINE_BYTES as u64,
        FileKind::Symlink => size <= crate::operation::LINK_BYTES_MAX as u64,
        _ => size <= crate::tree::BLOCKS_MAX * 4096,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::zeroes;
    use crate::inode::IS_INLINE;

    #[test]
    fn a_folder_with_more_levels_than_there_can_be_is_none() {
        let mut bytes = zeroes();
        names::clear(crate::inode::inline_mut(&mut bytes));
        let fields = fields_mut(&mut bytes);
        (fields.kind, fields.flags) = (FileKind::Directory as u8, IS_INLINE);
        assert!(is_sound_inode(&bytes));
        fields_mut(&mut bytes).levels = 255;
        assert!(!is_sound_inode(&bytes));
    }
}
