//! Contents of files change.
//!
//! Whole blocks go from the host to the end of a log at once. Parts of blocks wait in memory until the next record.

use crate::block::Bytes;
use crate::inode::{ADDRESSES, Fields, INLINE_BYTES, IS_INLINE, inline, inline_mut};
use crate::operation::{AllocateHow, Changes, FileKind, Inode, PAYLOAD_BYTES_MAX, Refusal, Reply};
use crate::segments::{Log, Owner};
use crate::tree::{BLOCKS_MAX, Place, SLOTS};
use crate::volume::{Step, Volume};
use openftl_core::BLOCK_BYTES;
use openftl_parts::target::SegmentTarget;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// Bytes of a file, at most.
const BYTES_MAX: u64 = BLOCKS_MAX * BLOCK;

/// Nodes that one operation may need for contents: those above two neighbouring blocks.
const NODES_FOR_CONTENTS: u64 = 6;

/// Which of the addresses of its node `place` is.
pub(crate) fn slot_of(place: Place, is_inode: bool) -> u32 {
    ((place.at - if is_inode { crate::inode::AREA } else { SLOTS }) / 4) as u32
}

/// Whether a file whose contents are in its node has to leave it, to be so long without being written: it becomes too long, or has nothing but a hole.
fn leaves_node_for(fields: &Fields, size: u64) -> bool {
    fields.is_inline() && (size > INLINE_BYTES as u64 || size > 0 && fields.size.get() == 0)
}

/// The address with this number.
pub(crate) fn place_of(owner: Owner, is_inode: bool) -> Option<Place> {
    let (begins, slots) = if is_inode { (crate::inode::AREA, ADDRESSES as u64) } else { (SLOTS, crate::tree::FANOUT) };
    (u64::from(owner.slot) < slots).then_some(Place { node: owner.node, at: begins + 4 * owner.slot as usize })
}

/// The log that a whole block of contents goes to. What is written for the first time may soon be gone, as files that are made and removed are; what
/// replaces other contents may soon be replaced again. The one does not keep the segments of the other in use.
fn log_of(is_hole: bool) -> Log {
    if is_hole { Log::WarmData } else { Log::HotData }
}

impl<T: SegmentTarget> Volume<T> {
    /// A block of a file that is new, or whose old contents are of no use: zeroes in memory.
    pub(crate) fn new_page(&mut self, inode: Inode, index: u32) -> &mut Bytes {
        let place = self.make(inode.0, index.into());
        let is_new = self.number(place) == 0;
        self.cache.put_page((inode.0, index), crate::block::zeroes(), is_new);
        if is_new {
            self.promised += 1;
            self.count_blocks(inode.0, 1);
        }
        &mut self.cache.page_mut((inode.0, index)).bytes
    }

    /// Puts a block of a file where a log says.
    pub(crate) fn put_address(&mut self, inode: u32, place: Place, address: u32) {
        let old = self.number(place);
        self.segments.release(old);
        self.set_number(place, address);
        if old == 0 {
            self.count_blocks(inode, 1);
        }
    }

    /// The contents of a file are in blocks from now on. The node is in memory.
    fn leave_node(&mut self, inode: Inode) {
        let size = self.fields(inode).size.get() as usize;
        let contents = inline(&self.cache.node(inode.0).bytes)[..size].to_vec();
        inline_mut(&mut self.cache.node_mut(inode.0).bytes).fill(0);
        self.fields_mut(inode).flags &= !IS_INLINE;
        if size > 0 {
            self.new_page(inode, 0)[..size].copy_from_slice(&contents);
        }
    }

    fn touch_contents(&mut self, inode: Inode) {
        let now = self.time_of_day;
        let fields = self.fields_mut(inode);
        (fields.modified, fields.changed) = (now.into(), now.into());
        self.changed();
    }

    pub(crate) fn write(&mut self, inode: Inode, offset: u64, data: &[u8]) -> Step<Reply> {
        let fields = self.pin_regular(inode)?;
        if data.len() > PAYLOAD_BYTES_MAX {
            return Err(Refusal::Invalid.into());
        }
        let end = offset.checked_add(data.len() as u64).filter(|end| *end <= BYTES_MAX).ok_or(Refusal::TooBig)?;
        if data.is_empty() {
            self.expect_change(0)?;
            return Ok(Reply::Done);
        }
        if fields.is_inline() && end <= INLINE_BYTES as u64 {
            self.expect_change(0)?;
            inline_mut(&mut self.cache.node_mut(inode.0).bytes)[offset as usize..end as usize].copy_from_slice(data);
        } else {
            self.write_blocks(inode, offset, data)?;
        }
        let fields = self.fields_mut(inode);
        fields.size = fields.size.get().max(end).into();
        self.statistics.bytes_written += data.len() as u64;
        self.touch_contents(inode);
        Ok(Reply::Done)
    }

    fn write_blocks(&mut self, inode: Inode, offset: u64, data: &[u8]) -> Step<()> {
        let end = offset + data.len() as u64;
        let (first, last) = (offset / BLOCK, (end - 1) / BLOCK);
        let fields = *self.fields(inode);
        let mut new = 0;
        let mut whole = [(log_of(true), 0), (log_of(false), 0)];
        for index in first..=last {
            let is_whole = index * BLOCK >= offset && (index + 1) * BLOCK <= end;
            let is_hole = fields.is_inline() || self.address_of(inode.0, index)? == 0;
            whole[usize::from(!is_hole)].1 += u32::from(is_whole);
            // What is in memory and new will need room already; where it is replaced by a whole block, it still does.
            let is_counted = self.cache.page((inode.0, index as u32)).is_some_and(|page| page.is_new);
            new += u64::from(is_hole && !is_counted);
            let is_needed = !(is_whole || is_hole);
            if is_needed {
                _ = self.pin_page(inode, index as u32)?;
            }
        }
        self.expect_nodes()?;
        self.expect_change(if new > 0 { new + NODES_FOR_CONTENTS } else { 0 } + u64::from(fields.is_inline()))?;
        self.expect_segments(whole.iter().any(|(_, blocks)| *blocks > 0))?;
        self.expect_logs(&whole)?;
        if fields.is_inline() {
            self.leave_node(inode);
        }
        let mut rest = data;
        for index in first..=last {
            let begins = offset.max(index * BLOCK) % BLOCK;
            let (piece, behind) = rest.split_at(rest.len().min((BLOCK - begins) as usize));
            rest = behind;
            if piece.len() == BLOCK_BYTES {
                self.forget_page(inode.0, index as u32);
                let place = self.make(inode.0, index);
                let frame = self.frame().expect("frames were counted");
                self.target.frames_mut().bytes_mut(frame).copy_from_slice(piece);
                let owner = Owner { node: place.node, slot: slot_of(place, place.node == inode.0) };
                let address = self.append(log_of(self.number(place) == 0), owner, frame);
                self.put_address(inode.0, place, address);
                self.statistics.data += 1;
                continue;
            }
            let begins = begins as usize;
            let page = match self.cache.page((inode.0, index as u32)) {
                Some(_) => &mut self.cache.page_mut((inode.0, index as u32)).bytes,
                None => self.new_page(inode, index as u32),
            };
            page[begins..begins + piece.len()].copy_from_slice(piece);
        }
        Ok(())
    }

    /// Zeroes bytes from `offset` to before `end` of a file, which are within one block. `false`: the block has to be in memory for it, and is, now.
    fn zero_within(&mut self, inode: Inode, offset: u64, end: u64) {
        let index = (offset / BLOCK) as u32;
        if offset < end && self.cache.page((inode.0, index)).is_some() {
            let begins = (offset % BLOCK) as usize;
            self.cache.page_mut((inode.0, index)).bytes[begins..begins + (end - offset) as usize].fill(0);
        }
    }

    /// Loads the block that `offset` is in the middle of.
    fn pin_edge_page(&mut self, inode: Inode, offset: u64) -> Step<()> {
        if !offset.is_multiple_of(BLOCK) && offset / BLOCK < BLOCKS_MAX {
            _ = self.pin_page(inode, (offset / BLOCK) as u32)?;
        }
        Ok(())
    }

    /// Loads what is needed to make bytes from `offset` to before `end` of a file read as zeroes.
    fn pin_range(&mut self, inode: Inode, offset: u64, end: u64) -> Step<()> {
        if self.fields(inode).is_inline() {
            return Ok(());
        }
        self.pin_edge_page(inode, offset)?;
        self.pin_edge_page(inode, end)?;
        self.pin_edges(inode.0, offset.div_ceil(BLOCK), end / BLOCK)
    }

    /// They do.
    fn zero_range(&mut self, inode: Inode, offset: u64, end: u64) {
        if self.fields(inode).is_inline() {
            if offset == 0 && end >= BLOCK {
                // A block without contents is a hole, and a node cannot have one.
                inline_mut(&mut self.cache.node_mut(inode.0).bytes).fill(0);
                self.fields_mut(inode).flags &= !IS_INLINE;
                return;
            }
            let end = (end as usize).min(INLINE_BYTES);
            if (offset as usize) < end {
                inline_mut(&mut self.cache.node_mut(inode.0).bytes)[offset as usize..end].fill(0);
            }
            return;
        }
        let (first, last) = (offset.div_ceil(BLOCK), end / BLOCK);
        if first > last {
            return self.zero_within(inode, offset, end);
        }
        self.zero_within(inode, offset, first * BLOCK);
        self.zero_within(inode, last * BLOCK, end);
        self.clear(inode.0, first, last);
    }

    pub(crate) fn set_attributes(&mut self, inode: Inode, changes: &Changes) -> Step<Reply> {
        let fields = self.pin_inode(inode)?;
        if changes.size.is_some() {
            match fields.kind() {
                Some(FileKind::Regular) => {}
                Some(FileKind::Directory) => return Err(Refusal::IsADirectory.into()),
                _ => return Err(Refusal::Invalid.into()),
            }
        }
        let size = fields.size.get();
        let mut leaves_node = false;
        if let Some(new) = changes.size {
            if new > BYTES_MAX {
                return Err(Refusal::TooBig.into());
            }
            leaves_node = leaves_node_for(&fields, new);
            if new < size {
                self.pin_range(inode, new, BYTES_MAX)?;
            }
            self.expect_nodes()?;
        }
        self.expect_change(u64::from(leaves_node && size > 0))?;
        if let Some(new) = changes.size {
            if leaves_node {
                self.leave_node(inode);
            }
            if new < size {
                self.zero_range(inode, new, BYTES_MAX);
            }
            if new != size {
                self.fields_mut(inode).size = new.into();
                self.touch_contents(inode);
            }
        }
        let now = self.time_of_day;
        let fields = self.fields_mut(inode);
        if let Some(mode) = changes.mode {
            fields.mode = (mode & 0o7777).into();
        }
        fields.uid = changes.uid.map_or(fields.uid, Into::into);
        fields.gid = changes.gid.map_or(fields.gid, Into::into);
        fields.accessed = changes.accessed.map_or(fields.accessed, Into::into);
        fields.modified = changes.modified.map_or(fields.modified, Into::into);
        fields.changed = changes.changed.unwrap_or(now).into();
        let attributes = fields.attributes(inode);
        self.changed();
        Ok(Reply::Attributes(attributes))
    }

    pub(crate) fn allocate(&mut self, inode: Inode, offset: u64, bytes: u64, how: AllocateHow) -> Step<Reply> {
        let fields = self.pin_regular(inode)?;
        if bytes == 0 {
            return Err(Refusal::Invalid.into());
        }
        let end = offset.checked_add(bytes).filter(|end| *end <= BYTES_MAX).ok_or(Refusal::TooBig)?;
        let size = fields.size.get();
        let keep_size = match how {
            AllocateHow::Allocate { keep_size } | AllocateHow::ZeroRange { keep_size } => keep_size,
            AllocateHow::PunchHole => true,
        };
        let new_size = if keep_size { size } else { size.max(end) };
        let leaves_node = leaves_node_for(&fields, new_size);
        let wanted = match how {
            AllocateHow::Allocate { .. } => bytes.div_ceil(BLOCK),
            _ => 0,
        };
        if how == (AllocateHow::Allocate { keep_size }) {
            self.expect_nodes()?;
            let room = self.room();
            if wanted > room.blocks {
                return Err(Refusal::NoRoom.into());
            }
            self.expect_change(wanted)?;
        } else {
            self.pin_range(inode, offset, end)?;
            self.expect_nodes()?;
            self.expect_change(u64::from(leaves_node))?;
        }
        if leaves_node {
            self.leave_node(inode);
        }
        if wanted == 0 {
            self.zero_range(inode, offset, end);
        }
        self.fields_mut(inode).size = new_size.into();
        self.touch_contents(inode);
        Ok(Reply::Done)
    }
}
