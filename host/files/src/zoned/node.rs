//! A file or folder on zones, with or without a name.

use super::catalog::Change;
use super::record::{FileRecord, ZoneExtent};
use crate::FileKind;
use crate::names::Named;
use openftl_core::BLOCK_BYTES;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// See the module.
pub(super) struct Node {
    pub(super) number: u64,
    pub(super) kind: FileKind,
    bytes: AtomicU64,
    pub(super) modified: AtomicU64,
    /// Of one writer at a time. Nobody takes it who has another lock of this drive.
    writing: Mutex<()>,
    contents: RwLock<Contents>,
}

/// How far a file is gone.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) enum Presence {
    /// It is there, or to come.
    #[default]
    There,
    /// It has no name any more.
    Deleted,
    /// That is durable.
    Gone,
}

/// What changes while a file is written.
#[derive(Default)]
pub(super) struct Contents {
    /// Where it lies, in its order. Only the last block may not be whole, and only if there is no tail.
    pub(super) extents: Vec<ZoneExtent>,
    /// Its end, from a whole block on, that was not written yet.
    pub(super) tail: Vec<u8>,
    /// The name that it has, or had last.
    pub(super) path: String,
    /// The catalog has it, or will.
    pub(super) is_noted: bool,
    /// It has been written since.
    pub(super) has_changed: bool,
    /// Blocks that were written since.
    pub(super) blocks_since: u64,
    pub(super) presence: Presence,
    /// Readers and writers of it.
    pub(super) users: u32,
}

impl Node {
    pub(super) fn new(number: u64, kind: FileKind, modified: u64, path: String) -> Arc<Node> {
        Arc::new(Node {
            number,
            kind,
            bytes: AtomicU64::new(0),
            modified: AtomicU64::new(modified),
            writing: Mutex::default(),
            contents: RwLock::new(Contents { path, ..Contents::default() }),
        })
    }

    /// One that was found.
    pub(super) fn found(number: u64, record: FileRecord) -> Arc<Node> {
        let node = Node::new(number, record.kind, record.modified, record.path);
        node.set_bytes(record.bytes);
        {
            let mut contents = node.write();
            (contents.extents, contents.tail) = (record.extents, record.tail);
            contents.is_noted = true;
        }
        node
    }

    pub(super) fn writing(&self) -> MutexGuard<'_, ()> {
        self.writing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is read stays where it is. Whoever has this may wait for the drive, and for nothing else.
    pub(super) fn read(&self) -> RwLockReadGuard<'_, Contents> {
        self.contents.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whoever has this waits for nothing but the queue of changes.
    pub(super) fn write(&self) -> RwLockWriteGuard<'_, Contents> {
        self.contents.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Acquire)
    }

    pub(super) fn set_bytes(&self, bytes: u64) {
        self.bytes.store(bytes, Ordering::Release);
    }

    /// The change that records the file under the name that it has, as far as it was written: of a tail only what is less than a block.
    pub(super) fn note(&self, contents: &mut Contents) -> Change {
        contents.is_noted = true;
        self.note_again(contents)
    }

    /// The same of one that was recorded before.
    pub(super) fn note_again(&self, contents: &Contents) -> Change {
        // What is gathered is on no medium yet, and some of it may have been synced already, in the record before this one.
        let tail = contents.tail[..contents.tail.len().min(BLOCK_BYTES - 1)].to_vec();
        let bytes = self.bytes() - (contents.tail.len() - tail.len()) as u64;
        let record = FileRecord {
            path: contents.path.clone(),
            kind: self.kind,
            bytes,
            modified: self.modified.load(Ordering::Relaxed),
            extents: contents.extents.clone(),
            tail,
        };
        (self.number, Some(record.encode(self.number)))
    }
}

impl Named for Node {
    fn kind(&self) -> FileKind {
        self.kind
    }
}

/// Adds an extent to those of a file, to the last one if it goes on there.
pub(super) fn push(extents: &mut Vec<ZoneExtent>, more: ZoneExtent) {
    match extents.last_mut() {
        Some(last) if last.zone == more.zone && last.first + last.blocks == more.first => last.blocks += more.blocks,
        _ => extents.push(more),
    }
}

/// Where block `block` of a file is, and how many of the `wanted` blocks from there on follow it.
pub(super) fn locate(extents: &[ZoneExtent], mut block: u64, wanted: usize) -> (ZoneExtent, usize) {
    for extent in extents {
        if block < u64::from(extent.blocks) {
            let blocks = u64::from(extent.blocks).saturating_sub(block).min(wanted as u64) as u32;
            return (ZoneExtent { first: extent.first + block as u32, blocks, ..*extent }, blocks as usize);
        }
        block -= u64::from(extent.blocks);
    }
    unreachable!("a block of a file is in one of its extents")
}

/// Cuts the extents behind the first `blocks` blocks, and returns what was cut.
pub(super) fn cut(extents: &mut Vec<ZoneExtent>, mut blocks: u64) -> Vec<ZoneExtent> {
    let mut rest = Vec::new();
    extents.retain_mut(|extent| {
        let kept = blocks.min(extent.blocks.into()) as u32;
        blocks -= u64::from(kept);
        if kept < extent.blocks {
            rest.push(ZoneExtent { first: extent.first + kept, blocks: extent.blocks - kept, ..*extent });
        }
        extent.blocks = kept;
        kept > 0
    });
    rest
}

/// Puts `new` in the place of `old`, if that still lies in one of the extents as a whole.
pub(super) fn replace(extents: &mut Vec<ZoneExtent>, old: ZoneExtent, new: &[ZoneExtent]) -> bool {
    let has = |extent: &ZoneExtent| {
        extent.zone == old.zone && extent.first <= old.first && old.first + old.blocks <= extent.first + extent.blocks
    };
    let Some(at) = extents.iter().position(has) else { return false };
    let whole = extents[at];
    let before = ZoneExtent { blocks: old.first - whole.first, ..whole };
    let first = old.first + old.blocks;
    let after = ZoneExtent { first, blocks: whole.first + whole.blocks - first, ..whole };
    let mut changed: Vec<ZoneExtent> = Vec::with_capacity(extents.len() + new.len() + 1);
    changed.extend_from_slice(&extents[..at]);
    for piece in [before].iter().chain(new).chain([&after]).filter(|piece| piece.blocks > 0) {
        push(&mut changed, *piece);
    }
    for piece in &extents[at + 1..] {
        push(&mut changed, *piece);
    }
    *extents = changed;
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(zone: u32, first: u32, blocks: u32) -> ZoneExtent {
        ZoneExtent { zone, first, blocks }
    }

    #[test]
    fn extents_grow_are_found_and_are_cut() {
        let mut extents = Vec::new();
        for more in [extent(2, 0, 4), extent(2, 4, 2), extent(3, 9, 1)] {
            push(&mut extents, more);
        }
        assert_eq!(extents, [extent(2, 0, 6), extent(3, 9, 1)]);
        assert_eq!(locate(&extents, 4, 9), (extent(2, 4, 2), 2));
        assert_eq!(locate(&extents, 6, 9), (extent(3, 9, 1), 1));
        assert_eq!(cut(&mut extents, 5), [extent(2, 5, 1), extent(3, 9, 1)]);
        assert_eq!(extents, [extent(2, 0, 5)]);
    }

    #[test]
    fn a_part_of_an_extent_is_replaced_and_only_if_it_is_there() {
        let mut extents = vec![extent(2, 0, 6), extent(3, 9, 1)];
        assert!(replace(&mut extents, extent(2, 2, 2), &[extent(5, 0, 1), extent(6, 0, 1)]));
        let replaced = [extent(2, 0, 2), extent(5, 0, 1), extent(6, 0, 1), extent(2, 4, 2), extent(3, 9, 1)];
        assert_eq!(extents, replaced);
        assert!(!replace(&mut extents, extent(2, 1, 2), &[extent(7, 0, 2)]));
        assert_eq!(extents, replaced);
    }
}
