//! Folders: names in blocks that are found by hash.
//!
//! ```text
//!   level 0   [ block 0 ]                          a name is in the block that its hash chooses of one level,
//!   level 1   [ block 1 ][ block 2 ]               the first that had room
//!   level 2   [ 3 ][ 4 ][ 5 ][ 6 ]
//! ```
//!
//! The names of a small folder are in its node, as they will be in block 0. A name stays where it is until it is removed, and a block without names is a
//! hole.

use crate::block::{Bytes, HEADER_BYTES, zeroes};
use crate::inode::{IS_INLINE, inline, inline_mut};
use crate::names::{self, GRAIN};
use crate::operation::{Entry, FileKind, Inode, Refusal, Reply};
use crate::volume::{Step, Stop, Volume};
use openftl_core::BLOCK_BYTES;
use openftl_parts::target::SegmentTarget;

/// Levels of a folder, at most: a hundred million names.
pub const LEVELS_MAX: usize = 20;

/// Cookies of `.` and `..`; those of names follow.
const DOT: u64 = 1;
const DOT_DOT: u64 = 2;
const COOKIES: u64 = 3;

/// Cookies of a block.
const COOKIES_PER_BLOCK: u64 = (BLOCK_BYTES / GRAIN) as u64;

/// Blocks that a new name may need: that with the names of the node, its own, and nodes for it.
pub(crate) const BLOCKS_FOR_NAME: u64 = 5;

/// The names in a block of a folder.
#[must_use]
pub fn area(bytes: &Bytes) -> &[u8] {
    &bytes[HEADER_BYTES..]
}

fn area_mut(bytes: &mut Bytes) -> &mut [u8] {
    &mut bytes[HEADER_BYTES..]
}

/// The block of a level that has the names with a hash.
pub(crate) fn block_for(level: u8, hash: u32) -> u32 {
    let blocks = 1 << level;
    blocks - 1 + (hash & (blocks - 1))
}

/// A name that is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Found {
    /// The file.
    pub inode: Inode,
    /// What it is.
    pub kind: FileKind,
    /// The block of the folder; `None`: its node.
    pub block: Option<u32>,
    /// Where there.
    pub at: usize,
}

impl<T: SegmentTarget> Volume<T> {
    /// Whether a name can be one.
    pub(crate) fn expect_name(name: &[u8]) -> Step<()> {
        if name.len() > crate::operation::NAME_BYTES_MAX {
            return Err(Refusal::NameTooLong.into());
        }
        let is_name = !name.is_empty() && name != b"." && name != b".." && !name.contains(&0) && !name.contains(&b'/');
        if is_name { Ok(()) } else { Err(Refusal::Invalid.into()) }
    }

    /// Finds a name in a folder. Everything that has to do with it is in memory then.
    pub(crate) fn find_name(&mut self, folder: Inode, name: &[u8]) -> Step<Option<Found>> {
        let found = self.find_any(folder, name)?;
        // Neither has a name there, and what removes a name must not remove them.
        match found.is_some_and(|found| found.inode == Inode::ROOT || found.inode == folder) {
            true => Err(Stop::DAMAGED),
            false => Ok(found),
        }
    }

    fn find_any(&mut self, folder: Inode, name: &[u8]) -> Step<Option<Found>> {
        let fields = self.pin_directory(folder)?;
        let hash = names::hash(name);
        if fields.is_inline() {
            let found = names::find(inline(&self.cache.node(folder.0).bytes), name, hash);
            return Ok(found.map(|name| Found { inode: name.inode, kind: name.kind, block: None, at: name.at }));
        }
        for level in 0..fields.levels {
            let block = block_for(level, hash);
            if !self.pin_page(folder, block)? {
                continue;
            }
            let page = self.cache.page((folder.0, block)).expect("it was pinned");
            if let Some(name) = names::find(area(&page.bytes), name, hash) {
                let found = Found { inode: name.inode, kind: name.kind, block: Some(block), at: name.at };
                _ = self.address_of(folder.0, block.into())?;
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// The same of a name that has to be there.
    pub(crate) fn expect_found(&mut self, folder: Inode, name: &[u8]) -> Step<Found> {
        Ok(self.find_name(folder, name)?.ok_or(Refusal::NotFound)?)
    }

    /// Loads all that a new name in a folder may need. It is not there, as [`Volume::find_name`] has said.
    pub(crate) fn expect_room_for_name(&mut self, folder: Inode, name: &[u8]) -> Step<()> {
        self.expect_nodes()?;
        let fields = self.pin_directory(folder)?;
        let hash = names::hash(name);
        // Each level was looked at; the next one may be new, as may be that behind it where the names leave the node.
        for level in 0..(fields.levels + 2).min(LEVELS_MAX as u8) {
            let block = block_for(level, hash);
            _ = self.find(folder.0, block.into())?;
            if level < fields.levels {
                _ = self.pin_page(folder, block)?;
            }
        }
        let is_last = usize::from(fields.levels) == LEVELS_MAX;
        if is_last && self.level_with_room(folder, name).is_none() { Err(Refusal::NoRoom.into()) } else { Ok(()) }
    }

    /// The block of the first level that has room for a name, a new level being one that has.
    fn level_with_room(&self, folder: Inode, name: &[u8]) -> Option<(u8, u32)> {
        let (hash, levels) = (names::hash(name), self.fields(folder).levels);
        let has_room = |block: u32| match self.cache.page((folder.0, block)) {
            Some(page) => names::has_room(area(&page.bytes), name),
            None => true,
        };
        let mut blocks = (0..LEVELS_MAX as u8).map(|level| (level, block_for(level, hash)));
        blocks.find(|(level, block)| *level >= levels || has_room(*block))
    }

    /// A new block of a folder, without names.
    fn new_names(&mut self, folder: Inode, block: u32) {
        _ = self.make(folder.0, block.into());
        let mut bytes = zeroes();
        names::clear(area_mut(&mut bytes));
        self.cache.put_page((folder.0, block), bytes, true);
        _ = self.cache.page_mut((folder.0, block));
        self.promised += 1;
        self.count_blocks(folder.0, 1);
        let fields = self.fields_mut(folder);
        fields.size = fields.size.get().saturating_add(BLOCK_BYTES as u64).into();
    }

    /// Puts a name into a folder; all that it needs is in memory.
    pub(crate) fn put_name(&mut self, folder: Inode, name: &[u8], inode: Inode, kind: FileKind) {
        let fields = self.fields_mut(folder);
        fields.entries = fields.entries.get().saturating_add(1).into();
        if fields.is_inline() {
            let area = inline_mut(&mut self.cache.node_mut(folder.0).bytes);
            if names::has_room(area, name) {
                return names::put(area, name, inode, kind);
            }
            let before = area.to_vec();
            area.fill(0);
            let fields = self.fields_mut(folder);
            fields.flags &= !IS_INLINE;
            fields.levels = 1;
            self.new_names(folder, 0);
            let area = area_mut(&mut self.cache.page_mut((folder.0, 0)).bytes);
            area[..before.len()].copy_from_slice(&before);
            names::grow(area, before.len());
        }
        let (level, block) = self.level_with_room(folder, name).expect("there was room");
        if self.cache.page((folder.0, block)).is_none() {
            self.new_names(folder, block);
        }
        let fields = self.fields_mut(folder);
        fields.levels = fields.levels.max(level + 1);
        names::put(area_mut(&mut self.cache.page_mut((folder.0, block)).bytes), name, inode, kind);
    }

    /// A name is that of another file from now on.
    pub(crate) fn set_name(&mut self, folder: Inode, found: Found, inode: Inode, kind: FileKind) {
        let area = match found.block {
            None => inline_mut(&mut self.cache.node_mut(folder.0).bytes),
            Some(block) => area_mut(&mut self.cache.page_mut((folder.0, block)).bytes),
        };
        names::set(area, found.at, inode, kind);
    }

    /// Takes a name away.
    pub(crate) fn remove_name(&mut self, folder: Inode, found: Found) {
        let fields = self.fields_mut(folder);
        fields.entries = fields.entries.get().saturating_sub(1).into();
        let Some(block) = found.block else {
            return names::remove(inline_mut(&mut self.cache.node_mut(folder.0).bytes), found.at);
        };
        let area = area_mut(&mut self.cache.page_mut((folder.0, block)).bytes);
        names::remove(area, found.at);
        if names::names(area, 0).next().is_none() {
            self.clear(folder.0, block.into(), u64::from(block) + 1);
            let fields = self.fields_mut(folder);
            fields.size = fields.size.get().saturating_sub(BLOCK_BYTES as u64).into();
        }
    }

    /// A new folder has no names.
    pub(crate) fn clear_names(bytes: &mut Bytes) {
        names::clear(inline_mut(bytes));
    }

    pub(crate) fn read_directory(
        &mut self,
        folder: Inode,
        after: u64,
        entries: usize,
        with_attributes: bool,
    ) -> Step<Reply> {
        let mut found = self.names_after(folder, after, entries)?;
        if with_attributes {
            self.add_attributes(&mut found)?;
        }
        let fields = *self.fields(folder);
        self.access(folder, &fields);
        Ok(Reply::Entries(found))
    }

    /// Names of a folder behind that with cookie `after`, up to `entries` of them.
    pub(crate) fn names_after(&mut self, folder: Inode, after: u64, entries: usize) -> Step<Vec<Entry>> {
        let fields = self.pin_directory(folder)?;
        let mut found = Vec::new();
        let dots = [(DOT, &b"."[..], folder), (DOT_DOT, b"..", Inode(fields.parent.get()))];
        for (cookie, name, inode) in dots.into_iter().filter(|(cookie, ..)| *cookie > after) {
            let (kind, name) = (FileKind::Directory, name.to_vec());
            found.push(Entry { inode, kind, cookie, name, attributes: None });
        }
        let from = (after + 1).saturating_sub(COOKIES);
        let (mut block, mut at) = (from / COOKIES_PER_BLOCK, (from % COOKIES_PER_BLOCK) as usize * GRAIN);
        let blocks = if fields.is_inline() { 1 } else { (1_u64 << fields.levels) - 1 };
        let cookie = |block: u64, at: usize| COOKIES + block * COOKIES_PER_BLOCK + (at / GRAIN) as u64;
        while found.len() < entries && block < blocks {
            let area = match fields.is_inline() {
                true => inline(&self.cache.node(folder.0).bytes),
                false => {
                    let Some(next) = self.next_data(folder.0, block, blocks)? else { break };
                    at = if next == block { at } else { 0 };
                    block = next;
                    _ = self.pin_page(folder, block as u32)?;
                    area(&self.cache.page((folder.0, block as u32)).expect("it was pinned").bytes)
                }
            };
            let new = names::names(area, at).map(|name| Entry {
                inode: name.inode,
                kind: name.kind,
                cookie: cookie(block, name.at),
                name: name.name.to_vec(),
                attributes: None,
            });
            found.extend(new);
            (block, at) = (block + 1, 0);
        }
        found.truncate(entries);
        Ok(found)
    }

    /// Loads the files with these names, all at once, and adds their attributes.
    fn add_attributes(&mut self, found: &mut [Entry]) -> Step<()> {
        let mut waits = false;
        for entry in found.iter_mut().filter(|entry| entry.name != b"." && entry.name != b"..") {
            match self.pin_inode(entry.inode) {
                Ok(fields) => entry.attributes = Some(fields.attributes(entry.inode)),
                Err(Stop::Wait) => waits = true,
                // The name is there, and says what the file is; who asks for the file is told.
                Err(Stop::Refused(_)) => {}
            }
        }
        if waits { Err(Stop::Wait) } else { Ok(()) }
    }
}
