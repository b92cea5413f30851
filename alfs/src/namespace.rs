//! Names come, go and move.

use crate::block::{Kind, zeroes};
use crate::directory::BLOCKS_FOR_NAME;
use crate::inode::{Fields, INLINE_BYTES, IS_INLINE, fields_mut, inline_mut};
use crate::operation::{FileKind, Inode, LINK_BYTES_MAX, LINKS_MAX, NewFile, Refusal, RenameHow, Reply};
use crate::volume::{Step, Volume};
use openftl_parts::target::SegmentTarget;

/// The set-group-ID bit.
const SET_GROUP_ID: u16 = 0o2000;

impl<T: SegmentTarget> Volume<T> {
    pub(crate) fn lookup(&mut self, parent: Inode, name: &[u8]) -> Step<Reply> {
        let folder = self.pin_directory(parent)?;
        let inode = match name {
            b"." => parent,
            b".." => Inode(folder.parent.get()),
            _ => {
                Self::expect_name(name)?;
                self.expect_found(parent, name)?.inode
            }
        };
        let fields = self.pin_inode(inode)?;
        Ok(Reply::Attributes(fields.attributes(inode)))
    }

    /// Whether a new name can come into a folder. Loads what it needs.
    fn expect_new_name(&mut self, parent: Inode, name: &[u8], blocks: u64) -> Step<Fields> {
        Self::expect_name(name)?;
        let folder = self.pin_directory(parent)?;
        if self.find_name(parent, name)?.is_some() {
            return Err(Refusal::Exists.into());
        }
        if folder.links.get() == 0 {
            return Err(Refusal::NotFound.into());
        }
        self.expect_room_for_name(parent, name)?;
        self.expect_change(BLOCKS_FOR_NAME + blocks)?;
        Ok(folder)
    }

    /// The contents of a folder have changed.
    pub(crate) fn touch(&mut self, folder: Inode) {
        let now = self.time_of_day;
        let fields = self.fields_mut(folder);
        (fields.modified, fields.changed) = (now.into(), now.into());
    }

    /// The attributes of a file have changed.
    fn touch_attributes(&mut self, inode: Inode) {
        let now = self.time_of_day;
        self.fields_mut(inode).changed = now.into();
    }

    pub(crate) fn new_inode(&mut self, parent: Inode, folder: &Fields, file: &NewFile) -> Inode {
        let mut bytes = zeroes();
        let (now, is_directory) = (self.time_of_day, file.kind == FileKind::Directory);
        let inherits = folder.mode.get() & SET_GROUP_ID != 0;
        let mode = file.mode & 0o7777 | if inherits && is_directory { SET_GROUP_ID } else { 0 };
        let is_inline = matches!(file.kind, FileKind::Directory | FileKind::Regular | FileKind::Symlink);
        let fields = fields_mut(&mut bytes);
        fields.kind = file.kind as u8;
        fields.flags = if is_inline { IS_INLINE } else { 0 };
        fields.mode = mode.into();
        fields.uid = file.uid.into();
        fields.gid = if inherits { folder.gid } else { file.gid.into() };
        fields.links = (1 + u32::from(is_directory)).into();
        fields.generation = self.next_generation.into();
        fields.device = file.device.into();
        fields.parent = parent.0.into();
        fields.blocks = 1.into();
        (fields.accessed, fields.modified, fields.changed) = (now.into(), now.into(), now.into());
        fields.born = now.into();
        if is_directory {
            Self::clear_names(&mut bytes);
        }
        self.next_generation = self.next_generation.wrapping_add(1);
        self.files = self.files.saturating_add(1);
        Inode(self.new_node(Kind::Inode, bytes))
    }

    pub(crate) fn make_file(&mut self, parent: Inode, name: &[u8], file: &NewFile) -> Step<Reply> {
        if file.kind == FileKind::Symlink {
            return Err(Refusal::Invalid.into());
        }
        let folder = self.expect_new_name(parent, name, 1)?;
        let is_directory = file.kind == FileKind::Directory;
        if is_directory && folder.links.get() >= LINKS_MAX {
            return Err(Refusal::TooManyLinks.into());
        }
        let inode = self.new_inode(parent, &folder, file);
        self.put_name(parent, name, inode, file.kind);
        self.count_links(parent, i32::from(is_directory));
        self.touch(parent);
        self.changed();
        Ok(Reply::Attributes(self.fields(inode).attributes(inode)))
    }

    pub(crate) fn make_link(&mut self, parent: Inode, name: &[u8], target: &[u8], uid: u32, gid: u32) -> Step<Reply> {
        if target.len() > LINK_BYTES_MAX {
            return Err(Refusal::NameTooLong.into());
        }
        if target.is_empty() || target.contains(&0) {
            return Err(Refusal::Invalid.into());
        }
        let folder = self.expect_new_name(parent, name, 2)?;
        let file = NewFile { kind: FileKind::Symlink, mode: 0o777, uid, gid, device: 0 };
        let inode = self.new_inode(parent, &folder, &file);
        self.fields_mut(inode).size = (target.len() as u64).into();
        if target.len() <= INLINE_BYTES {
            inline_mut(&mut self.cache.node_mut(inode.0).bytes)[..target.len()].copy_from_slice(target);
        } else {
            self.fields_mut(inode).flags &= !IS_INLINE;
            self.new_page(inode, 0)[..target.len()].copy_from_slice(target);
        }
        self.put_name(parent, name, inode, FileKind::Symlink);
        self.touch(parent);
        self.changed();
        Ok(Reply::Attributes(self.fields(inode).attributes(inode)))
    }

    pub(crate) fn read_link(&mut self, inode: Inode) -> Step<Reply> {
        let fields = self.pin_inode(inode)?;
        if fields.kind() != Some(FileKind::Symlink) {
            return Err(Refusal::Invalid.into());
        }
        let bytes = fields.size.get() as usize;
        let target = match fields.is_inline() {
            true => crate::inode::inline(&self.cache.node(inode.0).bytes)[..bytes].to_vec(),
            false => {
                if !self.pin_page(inode, 0)? {
                    return Err(Refusal::Device.into());
                }
                self.cache.page((inode.0, 0)).expect("it was pinned").bytes[..bytes].to_vec()
            }
        };
        self.access(inode, &fields);
        Ok(Reply::Bytes(target))
    }

    pub(crate) fn link(&mut self, inode: Inode, parent: Inode, name: &[u8]) -> Step<Reply> {
        let fields = self.pin_inode(inode)?;
        if fields.is_directory() {
            return Err(Refusal::NotPermitted.into());
        }
        _ = self.expect_new_name(parent, name, 0)?;
        if fields.links.get() >= LINKS_MAX {
            return Err(Refusal::TooManyLinks.into());
        }
        if fields.links.get() == 0 {
            return Err(Refusal::NotFound.into());
        }
        self.put_name(parent, name, inode, fields.kind().expect("it was looked at"));
        self.count_links(inode, 1);
        self.touch_attributes(inode);
        self.touch(parent);
        self.changed();
        Ok(Reply::Attributes(self.fields(inode).attributes(inode)))
    }

    pub(crate) fn count_links(&mut self, inode: Inode, links: i32) {
        if links != 0 {
            let fields = self.fields_mut(inode);
            fields.links = fields.links.get().saturating_add_signed(links).into();
        }
    }

    /// A file has one name less: with none it is gone, now or when nobody holds it.
    fn lose_name(&mut self, inode: Inode) {
        self.touch_attributes(inode);
        let fields = self.fields_mut(inode);
        if fields.is_directory() {
            fields.links = 0.into();
        } else {
            self.count_links(inode, -1);
        }
        if self.fields(inode).links.get() == 0 {
            self.files = self.files.saturating_sub(1);
            match self.held.contains_key(&inode.0) {
                true => _ = self.orphans.insert(inode.0),
                false => self.doom(inode.0),
            }
        }
    }

    pub(crate) fn unlink(&mut self, parent: Inode, name: &[u8]) -> Step<Reply> {
        Self::expect_name(name)?;
        let found = self.expect_found(parent, name)?;
        let fields = self.pin_inode(found.inode)?;
        if fields.is_directory() {
            return Err(Refusal::IsADirectory.into());
        }
        self.expect_change(0)?;
        self.remove_name(parent, found);
        self.touch(parent);
        self.lose_name(found.inode);
        self.changed();
        Ok(Reply::Done)
    }

    pub(crate) fn remove_directory(&mut self, parent: Inode, name: &[u8]) -> Step<Reply> {
        match name {
            b"." => return Err(Refusal::Invalid.into()),
            b".." => return Err(Refusal::NotEmpty.into()),
            _ => Self::expect_name(name)?,
        }
        let found = self.expect_found(parent, name)?;
        let fields = self.pin_directory(found.inode)?;
        if fields.entries.get() > 0 {
            return Err(Refusal::NotEmpty.into());
        }
        self.expect_change(0)?;
        self.remove_name(parent, found);
        self.count_links(parent, -1);
        self.touch(parent);
        self.lose_name(found.inode);
        self.changed();
        Ok(Reply::Done)
    }

    /// Whether `folder` is below `inode`, or is it. Loads the folders on the way.
    fn is_below(&mut self, folder: Inode, inode: Inode) -> Step<bool> {
        let mut at = folder;
        // A circle cannot be made; one on damaged media is not followed for ever.
        for _ in 0..1 << 16 {
            if at == inode {
                return Ok(true);
            }
            if at == Inode::ROOT {
                return Ok(false);
            }
            at = Inode(self.pin_directory(at)?.parent.get());
        }
        Err(Refusal::Device.into())
    }

    pub(crate) fn rename(
        &mut self,
        from: Inode,
        from_name: &[u8],
        to: Inode,
        to_name: &[u8],
        how: RenameHow,
    ) -> Step<Reply> {
        Self::expect_name(from_name)?;
        Self::expect_name(to_name)?;
        let source = self.expect_found(from, from_name)?;
        let target = self.find_name(to, to_name)?;
        let moved = self.pin_inode(source.inode)?;
        let to_folder = self.pin_directory(to)?;
        if to_folder.links.get() == 0 {
            return Err(Refusal::NotFound.into());
        }
        let is_directory = moved.is_directory();
        if is_directory && from != to && self.is_below(to, source.inode)? {
            return Err(Refusal::Invalid.into());
        }
        let replaced = match target {
            None if how == RenameHow::Exchange => return Err(Refusal::NotFound.into()),
            None => None,
            Some(_) if how == RenameHow::NoReplace => return Err(Refusal::Exists.into()),
            Some(target) => Some((target, self.pin_inode(target.inode)?)),
        };
        // Where a folder is that the names lead through now may change meanwhile: everything is looked at in this attempt.
        if how == RenameHow::Exchange {
            let (target, other) = replaced.expect("it was looked for");
            if other.is_directory() && from != to && self.is_below(from, target.inode)? {
                return Err(Refusal::Invalid.into());
            }
            self.expect_change(0)?;
            if source.inode != target.inode {
                self.exchange(from, source, to, target);
            }
            return Ok(Reply::Done);
        }
        if let Some((target, other)) = replaced {
            if target.inode == source.inode {
                return Ok(Reply::Done);
            }
            match (is_directory, other.is_directory()) {
                (true, false) => return Err(Refusal::NotADirectory.into()),
                (false, true) => return Err(Refusal::IsADirectory.into()),
                (true, true) if other.entries.get() > 0 => return Err(Refusal::NotEmpty.into()),
                _ => {}
            }
        }
        let is_new_link = is_directory && from != to && replaced.is_none();
        if is_new_link && to_folder.links.get() >= LINKS_MAX {
            return Err(Refusal::TooManyLinks.into());
        }
        if replaced.is_none() {
            self.expect_room_for_name(to, to_name)?;
        }
        self.expect_change(if replaced.is_none() { BLOCKS_FOR_NAME } else { 0 })?;
        let kind = source.kind;
        match replaced {
            Some((target, _)) => {
                self.set_name(to, target, source.inode, kind);
                self.remove_name(from, source);
                if is_directory {
                    // The folder that is replaced was one of those in this folder.
                    self.count_links(from, -1);
                }
                self.lose_name(target.inode);
            }
            None => {
                self.remove_name(from, source);
                self.put_name(to, to_name, source.inode, kind);
                if is_new_link {
                    self.count_links(from, -1);
                    self.count_links(to, 1);
                }
            }
        }
        self.fields_mut(source.inode).parent = to.0.into();
        self.touch_attributes(source.inode);
        self.touch(from);
        self.touch(to);
        self.changed();
        Ok(Reply::Done)
    }

    fn exchange(&mut self, from: Inode, source: crate::directory::Found, to: Inode, target: crate::directory::Found) {
        self.set_name(from, source, target.inode, target.kind);
        self.set_name(to, target, source.inode, source.kind);
        for (found, folder) in [(source, to), (target, from)] {
            self.fields_mut(found.inode).parent = folder.0.into();
            self.touch_attributes(found.inode);
        }
        let is = |found: crate::directory::Found| i32::from(found.kind == FileKind::Directory);
        if from != to {
            self.count_links(from, is(target) - is(source));
            self.count_links(to, is(source) - is(target));
        }
        self.touch(from);
        self.touch(to);
        self.changed();
    }
}
