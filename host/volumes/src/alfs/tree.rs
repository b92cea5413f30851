//! The tree of files: paths and what they stand for, in the file system and beside it.
//!
//! A table that is being written has its name here alone. In the file system it lies in a folder of such tables ([`UNFINISHED`]), and is
//! renamed when it is whole, so a power cut leaves all of it or nothing; the opening after it deletes what is there.

use super::escapes::{self, meant};
use super::node::{FOLDER_MODE, Node, Place, attributes_of, kind_of};
use super::shared::Shared;
use openftl_alfs::{Attributes, Entry, FileSystem, Inode, NewFile, Operation, RenameHow, Reply};
use openftl_files::names::Names;
use openftl_files::{FileError, FileKind, path};
use openftl_media::Media;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The folder of tables that are being written.
pub const UNFINISHED: &str = "/.unfinished";

/// Names of a folder that are read at a time.
const ENTRIES: usize = 1024;

/// What is known of names beside the file system. See [`Shared::tree`].
pub(super) struct Tree {
    /// Tables that are being written, or were given up; and the names that are locked.
    pub(super) unfinished: Names<Node>,
    /// Files that somebody reads or writes.
    used: HashMap<Inode, Arc<Node>>,
    /// The folder of tables that are being written, if it is there.
    folder: Option<Inode>,
    /// The next name in it.
    next: u64,
}

impl Tree {
    pub(super) fn new() -> Tree {
        Tree { unfinished: Names::new(), used: HashMap::new(), folder: None, next: 0 }
    }
}

/// A name in its folder.
#[derive(Clone, Copy)]
pub(super) struct Name<'a> {
    pub(super) folder: Inode,
    pub(super) name: &'a str,
}

/// What is found at a path.
pub(super) enum Found<'a> {
    /// A table that is being written.
    Unfinished(Arc<Node>),
    /// A file of the file system.
    There(Name<'a>, Attributes),
}

/// A path in its one form.
pub(super) fn normal(path: &str) -> Result<String, FileError> {
    let path = path::normal(path)?;
    // Bytes that are written one by one may be UTF-8.
    Ok(if path.contains('\\') { escapes::shown(&meant(&path)) } else { path })
}

/// A path that files may have: not that of the folder of unfinished tables, and nothing in it.
pub(super) fn usable(path: &str) -> Result<String, FileError> {
    let path = normal(path)?;
    match path.strip_prefix(UNFINISHED) {
        Some(rest) if rest.is_empty() || rest.starts_with('/') => Err(FileError::Invalid(format!(
            "{path}: {UNFINISHED} has the tables that are being written; choose another name"
        ))),
        _ => Ok(path),
    }
}

/// Who has new files.
pub(super) fn owner() -> (u32, u32) {
    (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw())
}

impl<M: Media> Shared<M> {
    /// The folder at a path.
    pub(super) fn folder(&self, path: &str) -> Result<Inode, FileError> {
        let (mut folder, mut end) = (Inode::ROOT, 0);
        for name in path.split('/').filter(|name| !name.is_empty()) {
            end += 1 + name.len();
            let so_far = &path[..end];
            let found = self.lookup(so_far, Name { folder, name })?;
            if kind_of(&found) != FileKind::Folder {
                return Err(FileError::Invalid(format!("{so_far} is a file, and no folder")));
            }
            folder = found.inode;
        }
        Ok(folder)
    }

    /// The folder that a path is in, and the name there.
    pub(super) fn name<'a>(&self, path: &'a str) -> Result<Name<'a>, FileError> {
        let Some(folder) = path::folder(path) else {
            return Err(FileError::Invalid("/ is a folder, and no file".to_owned()));
        };
        let name = path.rsplit('/').next().expect("there is a part behind the last slash");
        Ok(Name { folder: self.folder(folder)?, name })
    }

    /// The file or folder of this name.
    pub(super) fn lookup(&self, path: &str, name: Name<'_>) -> Result<Attributes, FileError> {
        let operation = Operation::Lookup { parent: name.folder, name: &meant(name.name) };
        self.run(path, &operation).map(attributes)
    }

    /// The file at a path.
    pub(super) fn file<'a>(&self, tree: &Tree, path: &'a str) -> Result<Found<'a>, FileError> {
        if let Ok(node) = tree.unfinished.file(path) {
            return Ok(Found::Unfinished(Arc::clone(node)));
        }
        let name = self.name(path)?;
        let found = self.lookup(path, name)?;
        if kind_of(&found) == FileKind::Folder {
            return Err(FileError::Invalid(format!("{path} is a folder")));
        }
        Ok(Found::There(name, found))
    }

    /// The same, where it may be missing; the folder that it would be in may not.
    pub(super) fn file_or_none<'a>(&self, tree: &Tree, path: &'a str) -> Result<Option<Found<'a>>, FileError> {
        match self.file(tree, path) {
            Ok(found) => Ok(Some(found)),
            Err(FileError::NotFound(missing)) if missing == path => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Somebody uses the file: it stays until he [leaves](Shared::leave) it, whatever becomes of its name.
    pub(super) fn enter(&self, tree: &mut Tree, found: Found<'_>) -> Result<Arc<Node>, FileError> {
        let node = match found {
            Found::Unfinished(node) => node,
            Found::There(name, found) if found.kind != openftl_alfs::FileKind::Regular => {
                let name = name.name;
                return Err(FileError::NotSupported(format!(
                    "{name} is neither a file with bytes nor a folder: `openftl alfs mount` shows it"
                )));
            }
            Found::There(_, found) => match tree.used.get(&found.inode) {
                Some(node) => Arc::clone(node),
                None => Arc::new(Node::new(&found, Place::Tree)),
            },
        };
        if node.users.fetch_add(1, Ordering::Relaxed) == 0 {
            tree.used.insert(node.inode, Arc::clone(&node));
            self.with_fs(|fs| fs.hold(node.inode, 1));
        }
        Ok(node)
    }

    /// He does no longer.
    pub(super) fn leave(&self, node: &Arc<Node>) {
        let mut tree = self.tree();
        if node.users.fetch_sub(1, Ordering::Relaxed) == 1 {
            tree.used.remove(&node.inode);
            let were_held = self.with_fs(|fs| fs.release(node.inode, 1));
            assert!(were_held, "a file that is used is held");
        }
    }

    /// Makes a file.
    pub(super) fn make(
        &self,
        path: &str,
        Name { folder: parent, name }: Name<'_>,
        kind: openftl_alfs::FileKind,
        mode: u16,
    ) -> Result<Attributes, FileError> {
        let (uid, gid) = owner();
        let file = NewFile { kind, mode, uid, gid, device: 0 };
        self.run(path, &Operation::Make { parent, name: &meant(name), file }).map(attributes)
    }

    /// Makes a file that has its name later. With the folder of those, and its number there.
    pub(super) fn make_unfinished(
        &self,
        tree: &mut Tree,
        path: &str,
        mode: u16,
    ) -> Result<(u64, Attributes), FileError> {
        let folder = match tree.folder {
            Some(folder) => folder,
            None => {
                let name = Name { folder: Inode::ROOT, name: &UNFINISHED[1..] };
                self.make(UNFINISHED, name, openftl_alfs::FileKind::Directory, FOLDER_MODE)?.inode
            }
        };
        tree.folder = Some(folder);
        let number = tree.next;
        tree.next += 1;
        let made =
            self.make(path, Name { folder, name: &number.to_string() }, openftl_alfs::FileKind::Regular, mode)?;
        Ok((number, made))
    }

    /// Gives such a file its name, and takes the name from another that has it, all at once.
    pub(super) fn finish(&self, tree: &Tree, number: u64, path: &str) -> Result<(), FileError> {
        let Name { folder: to, name } = self.name(path)?;
        let from = tree.folder.expect("a file is in it");
        let (from_name, how) = (number.to_string(), RenameHow::Replace);
        let operation = Operation::Rename { from, from_name: from_name.as_bytes(), to, to_name: &meant(name), how };
        self.run(path, &operation).map(drop)
    }

    /// Deletes such a file.
    pub(super) fn discard(&self, tree: &Tree, number: u64, path: &str) -> Result<(), FileError> {
        let folder = tree.folder.expect("a file is in it");
        self.unlink(path, Name { folder, name: &number.to_string() })
    }

    /// Takes a table that is being written from its name. Nobody finds it any more.
    pub(super) fn forget_unfinished(&self, tree: &mut Tree, path: &str) -> Result<(), FileError> {
        let Ok(node) = tree.unfinished.file(path).map(Arc::clone) else { return Ok(()) };
        let mut place = node.place();
        if let Place::Unfinished { number, .. } = *place {
            self.discard(tree, number, path)?;
        }
        *place = Place::Gone;
        tree.unfinished.remove(path);
        Ok(())
    }

    /// Takes a name from a file.
    pub(super) fn unlink(&self, path: &str, Name { folder: parent, name }: Name<'_>) -> Result<(), FileError> {
        self.run(path, &Operation::Unlink { parent, name: &meant(name) }).map(drop)
    }

    /// Names in a folder, with what they stand for, but for `.` and `..`. A file whose node cannot be read has no attributes.
    fn entries(&self, path: &str, folder: Inode) -> Result<Vec<Entry>, FileError> {
        let (mut all, mut after) = (Vec::new(), 0);
        loop {
            let operation = Operation::ReadDirectory { inode: folder, after, entries: ENTRIES, with_attributes: true };
            let entries = match self.run(path, &operation)? {
                Reply::Entries(entries) => entries,
                reply => unreachable!("names were asked for, and {reply:?} came"),
            };
            let Some(last) = entries.last() else { return Ok(all) };
            after = last.cookie;
            all.extend(entries.into_iter().filter(|entry| !matches!(&entry.name[..], b"." | b"..")));
        }
    }

    /// What is in a folder through the eyes of users, in the order of the names.
    pub(super) fn list(&self, path: &str) -> Result<Vec<(String, openftl_files::Attributes)>, FileError> {
        let tree = self.tree();
        let folder = self.folder(path)?;
        let mut all: Vec<(String, openftl_files::Attributes)> = self
            .entries(path, folder)?
            .into_iter()
            .filter(|entry| path != "/" || entry.name != UNFINISHED.as_bytes()[1..])
            .map(|entry| (escapes::shown(&entry.name), shown(&entry)))
            .chain(tree.unfinished.in_folder(path).map(|(name, node)| (name.to_owned(), node.attributes())))
            .collect();
        all.sort_by(|(one, _), (other, _)| one.cmp(other));
        Ok(all)
    }

    /// Deletes tables that were being written when the drive was used last.
    pub(super) fn sweep(&self) -> Result<(), FileError> {
        let mut tree = self.tree();
        let name = Name { folder: Inode::ROOT, name: &UNFINISHED[1..] };
        let folder = match self.lookup(UNFINISHED, name) {
            Err(FileError::NotFound(_)) => return Ok(()),
            found => found?,
        };
        if folder.kind != openftl_alfs::FileKind::Directory {
            return Err(FileError::Invalid(format!(
                "{UNFINISHED} is a file, and tables that are being written need a folder of this name; rename it where \
                 `openftl alfs mount` shows it"
            )));
        }
        for Entry { name, kind, .. } in self.entries(UNFINISHED, folder.inode)? {
            // Anything else is somebody's.
            if kind == openftl_alfs::FileKind::Regular {
                // One that cannot be deleted stays, and keeps nobody from the others.
                let _ = self.run(UNFINISHED, &Operation::Unlink { parent: folder.inode, name: &name });
            }
        }
        tree.folder = Some(folder.inode);
        Ok(())
    }
}

/// A file through the eyes of users. Of one whose node cannot be read there is the name, so that nobody takes it for deleted.
fn shown(entry: &Entry) -> openftl_files::Attributes {
    let unknown = || {
        let is_folder = entry.kind == openftl_alfs::FileKind::Directory;
        let kind = if is_folder { FileKind::Folder } else { FileKind::Log };
        openftl_files::Attributes { kind, bytes: 0, modified: 0 }
    };
    entry.attributes.as_ref().map_or_else(unknown, attributes_of)
}

fn attributes(reply: Reply) -> Attributes {
    match reply {
        Reply::Attributes(attributes) => attributes,
        reply => unreachable!("a file was asked for, and {reply:?} came"),
    }
}
