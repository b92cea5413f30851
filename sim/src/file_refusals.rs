//! Everything that is wrong with what is asked of the model.
//!
//! A request may be wrong in several ways, and a file system is free to find any of them first; so these are all, in the order in which Linux
//! looks for them. The operation is carried out if there are none.

use crate::file_model::{Body, File, FileModel, Folder};
use openftl_alfs::operation::{LINK_BYTES_MAX, NAME_BYTES_MAX, Operation, PAYLOAD_BYTES_MAX};
use openftl_alfs::{Changes, FileKind, Inode, Refusal, RenameHow, SeekFor, XattrHow};

struct Refusals<'m> {
    model: &'m FileModel,
    found: Vec<Refusal>,
}

impl<'m> Refusals<'m> {
    fn when(&mut self, is_wrong: bool, refusal: Refusal) {
        if is_wrong && !self.found.contains(&refusal) {
            self.found.push(refusal);
        }
    }

    fn file(&mut self, inode: Inode) -> Option<&'m File> {
        let file = self.model.file(inode);
        self.when(file.is_none(), Refusal::Stale);
        file
    }

    fn folder(&mut self, inode: Inode) -> Option<&'m Folder> {
        let folder = self.file(inode)?.folder();
        self.when(folder.is_none(), Refusal::NotADirectory);
        folder
    }

    /// A regular file.
    fn regular(&mut self, inode: Inode) -> Option<&'m File> {
        let file = self.file(inode)?;
        if file.bytes().is_none() {
            self.when(file.folder().is_some(), Refusal::IsADirectory);
            self.when(true, Refusal::Invalid);
        }
        file.bytes().is_some().then_some(file)
    }

    fn name(&mut self, name: &[u8]) {
        self.when(name.len() > NAME_BYTES_MAX, Refusal::NameTooLong);
        let is_name = !name.is_empty() && !name.contains(&b'/') && !name.contains(&0) && name != b"." && name != b"..";
        self.when(!is_name, Refusal::Invalid);
    }

    /// The file of a name that has to be there.
    fn named(&mut self, parent: Inode, name: &[u8]) -> Option<&'m File> {
        self.name(name);
        let folder = self.folder(parent)?;
        let found = folder.names.get(name).and_then(|name| self.model.file(name.inode));
        self.when(found.is_none(), Refusal::NotFound);
        found
    }

    /// A name that has to be free. In a folder that is removed there is room for none.
    fn free(&mut self, parent: Inode, name: &[u8]) {
        let folder = self.folder(parent);
        self.name(name);
        let Some(folder) = folder else { return };
        self.when(folder.names.contains_key(name), Refusal::Exists);
        self.expect_alive(parent);
    }

    fn expect_alive(&mut self, folder: Inode) {
        let is_removed = self.model.file(folder).is_some_and(|file| file.attributes().links == 0);
        self.when(is_removed, Refusal::NotFound);
    }

    /// A file is to have one link more.
    fn one_link_more(&mut self, inode: Inode) {
        let links = self.model.file(inode).map_or(0, |file| file.attributes().links);
        self.when(links >= self.model.limits.links, Refusal::TooManyLinks);
    }

    fn end(&mut self, offset: u64, bytes: u64) {
        let is_too_big = offset.checked_add(bytes).is_none_or(|end| end > self.model.limits.file_bytes);
        self.when(is_too_big, Refusal::TooBig);
    }

    fn set_attributes(&mut self, inode: Inode, changes: Changes) {
        match changes.size {
            Some(size) => {
                self.end(size, 0);
                self.regular(inode);
            }
            None => _ = self.file(inode),
        }
    }

    fn rename(&mut self, (from, from_name): (Inode, &[u8]), (to, to_name): (Inode, &[u8]), how: RenameHow) {
        let moved = self.named(from, from_name);
        let to_folder = self.folder(to);
        self.name(to_name);
        let (Some(moved), Some(to_folder)) = (moved, to_folder) else { return };
        let replaced = to_folder.names.get(to_name).and_then(|name| self.model.file(name.inode));
        self.when(how == RenameHow::NoReplace && replaced.is_some(), Refusal::Exists);
        self.when(how == RenameHow::Exchange && replaced.is_none(), Refusal::NotFound);
        self.expect_alive(to);
        let inode = |file: &File| file.attributes().inode;
        let is_folder = moved.folder().is_some();
        self.when(is_folder && self.model.is_within(to, inode(moved)), Refusal::Invalid);
        let Some(replaced) = replaced else {
            if is_folder && from != to {
                self.one_link_more(to);
            }
            return;
        };
        if inode(replaced) == inode(moved) {
            return;
        }
        match how {
            RenameHow::Exchange => {
                let is_above = replaced.folder().is_some() && self.model.is_within(from, inode(replaced));
                self.when(is_above, Refusal::Invalid);
                if from != to && is_folder != replaced.folder().is_some() {
                    self.one_link_more(if is_folder { to } else { from });
                }
            }
            RenameHow::Replace | RenameHow::NoReplace => match (is_folder, replaced.folder()) {
                (true, None) => self.when(true, Refusal::NotADirectory),
                (_, Some(folder)) => {
                    self.when(!is_folder, Refusal::IsADirectory);
                    self.when(!folder.names.is_empty(), Refusal::NotEmpty);
                }
                (false, None) => {}
            },
        }
    }

    fn xattr(&mut self, inode: Inode, name: &[u8]) -> Option<(&'m File, bool)> {
        self.when(name.len() > NAME_BYTES_MAX, Refusal::NameTooLong);
        self.when(name.is_empty() || name.contains(&0), Refusal::Invalid);
        let file = self.file(inode)?;
        Some((file, file.xattrs.contains_key(name)))
    }

    fn set_xattr(&mut self, inode: Inode, name: &[u8], value: &[u8], how: XattrHow) {
        let Some((file, is_there)) = self.xattr(inode, name) else { return };
        self.when(how == XattrHow::Create && is_there, Refusal::Exists);
        self.when(how == XattrHow::Replace && !is_there, Refusal::NoXattr);
        let others = xattr_bytes_beside(file, name);
        let most = self.model.limits.xattr_bytes;
        self.when(name.len() + value.len() > most, Refusal::XattrTooBig);
        self.when(others + name.len() + value.len() > most, Refusal::NoRoom);
    }

    fn find(&mut self, operation: &Operation<'_>) {
        match *operation {
            Operation::Lookup { parent, name: name @ (b"." | b"..") } => {
                if self.folder(parent).is_some() {
                    self.when(self.model.named(parent, name).is_none(), Refusal::NotFound);
                }
            }
            Operation::Lookup { parent, name } => _ = self.named(parent, name),
            Operation::Attributes { inode } | Operation::ListXattr { inode } => _ = self.file(inode),
            Operation::SetAttributes { inode, changes } => self.set_attributes(inode, changes),
            Operation::ReadLink { inode } => {
                let file = self.file(inode);
                self.when(file.is_some_and(|file| !matches!(file.body, Body::Symlink(_))), Refusal::Invalid);
            }
            Operation::Make { parent, name, file } => {
                self.free(parent, name);
                self.when(file.kind == FileKind::Symlink, Refusal::Invalid);
                if file.kind == FileKind::Directory {
                    self.one_link_more(parent);
                }
            }
            Operation::Symlink { parent, name, target, .. } => {
                self.when(target.is_empty() || target.contains(&0), Refusal::Invalid);
                self.when(target.len() > LINK_BYTES_MAX, Refusal::NameTooLong);
                self.free(parent, name);
            }
            Operation::Link { inode, parent, name } => {
                let file = self.file(inode);
                self.free(parent, name);
                self.when(file.is_some_and(|file| file.folder().is_some()), Refusal::NotPermitted);
                self.when(file.is_some_and(|file| file.attributes().links == 0), Refusal::NotFound);
                self.one_link_more(inode);
            }
            Operation::Unlink { parent, name } => {
                let file = self.named(parent, name);
                self.when(file.is_some_and(|file| file.folder().is_some()), Refusal::IsADirectory);
            }
            Operation::RemoveDirectory { parent, name } => {
                let Some(file) = self.named(parent, name) else { return };
                self.when(file.folder().is_none(), Refusal::NotADirectory);
                self.when(file.folder().is_some_and(|folder| !folder.names.is_empty()), Refusal::NotEmpty);
            }
            Operation::Rename { from, from_name, to, to_name, how } => {
                self.rename((from, from_name), (to, to_name), how);
            }
            Operation::Read { inode, bytes, .. } => {
                self.when(bytes as usize > PAYLOAD_BYTES_MAX, Refusal::Invalid);
                self.regular(inode);
            }
            Operation::Write { inode, offset, data } => {
                self.when(data.len() > PAYLOAD_BYTES_MAX, Refusal::Invalid);
                if self.regular(inode).is_some() && !data.is_empty() {
                    self.end(offset, data.len() as u64);
                }
            }
            Operation::Allocate { inode, offset, bytes, .. } => {
                self.when(bytes == 0, Refusal::Invalid);
                self.regular(inode);
                self.end(offset, bytes);
            }
            Operation::Seek { inode, offset, target } => {
                let Some(bytes) = self.regular(inode).and_then(File::bytes) else { return };
                let is_behind = offset >= bytes.size();
                self.when(
                    is_behind || target == SeekFor::Data && bytes.next_data(offset).is_none(),
                    Refusal::NoSuchOffset,
                );
            }
            Operation::ReadDirectory { inode, .. } => _ = self.folder(inode),
            Operation::GetXattr { inode, name } | Operation::RemoveXattr { inode, name } => {
                let found = self.xattr(inode, name);
                self.when(found.is_some_and(|(_, is_there)| !is_there), Refusal::NoXattr);
            }
            Operation::SetXattr { inode, name, value, how } => self.set_xattr(inode, name, value, how),
            Operation::Sync | Operation::Room => {}
        }
    }
}

/// Bytes of all extended attributes of a file but one.
pub(crate) fn xattr_bytes_beside(file: &File, name: &[u8]) -> usize {
    let others = file.xattrs.iter().filter(|(other, _)| other.as_slice() != name);
    others.map(|(name, value)| name.len() + value.len()).sum()
}

impl FileModel {
    /// Why an operation is refused: the first one is what the model says, any of them is right. See the module.
    #[must_use]
    pub fn refusals(&self, operation: &Operation<'_>) -> Vec<Refusal> {
        let mut refusals = Refusals { model: self, found: Vec::new() };
        refusals.find(operation);
        refusals.found
    }
}
