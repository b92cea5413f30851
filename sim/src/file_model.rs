//! The reference model of a file system: all of it in memory, and every operation over at once.
//!
//! It does what [`openftl_alfs::operation`] says, and where that leaves a choice, what Linux does:
//!
//! | when | times that become `clock` |
//! |---|---|
//! | a file is made | all of its own; modified and changed of the folder |
//! | a link is made, a name is removed | changed of the file; modified and changed of the folder |
//! | a rename, an exchange | changed of each file that moves or loses its name; modified and changed of both folders |
//! | a write of at least a byte, an allocation, a punched hole, a zeroed range | modified and changed |
//! | attributes are set | changed, unless that is given; modified, if the size becomes another and modified is not given |
//! | an extended attribute is set or removed | changed |
//! | at least a byte is asked of a file, a link is read, a folder is listed | accessed, if that is not after modified, not after changed, or a day old |
//!
//! - A folder has two links and one for each folder in it.
//! - A name that is renamed onto another name of the same file stays, and no time changes.
//! - Nothing can be made in a folder that is removed but held: [`Refusal::NotFound`].
//! - A device number is kept of devices alone.
//! - What is allocated or zeroed as whole blocks is a hole.
//! - No inode number is used twice, so [`Attributes::generation`] is always 0. A folder has size 0.
//!
//! Copies share all that neither has changed since, so a copy of each state of a small tree costs little.

use crate::file_bytes::FileBytes;
use openftl_alfs::operation::{Operation, Reply};
use openftl_alfs::{
    AllocateHow, Attributes, Changes, Data, Entry, FileKind, FileSystem, FileTime, Inode, NewFile, Refusal, RenameHow,
    Room, SeekFor, Ticket,
};
use openftl_core::{BLOCK_BYTES, Time};
use std::collections::BTreeMap;
use std::rc::Rc;

/// Bits of a mode.
const MODE_BITS: u16 = 0o7777;

/// The set-group-ID bit.
const SET_GROUP_ID: u16 = 0o2000;

/// A read sets `accessed` at least so often.
const ACCESSED_SECONDS: i64 = 24 * 60 * 60;

/// Cookies of `.`, of `..` and of the first other name.
const COOKIES: [u64; 3] = [1, 2, 3];

/// How much there can be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileLimits {
    /// Links of a file.
    pub links: u32,
    /// Bytes of a file.
    pub file_bytes: u64,
    /// Bytes of the names and values of all extended attributes of a file. The model takes as many as any file system may; one that takes fewer
    /// refuses some that the model would not.
    pub xattr_bytes: usize,
}

impl Default for FileLimits {
    fn default() -> FileLimits {
        FileLimits { links: openftl_alfs::operation::LINKS_MAX, file_bytes: 1 << 44, xattr_bytes: BLOCK_BYTES }
    }
}

/// A name in a folder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Name {
    /// The file.
    pub inode: Inode,
    cookie: u64,
}

/// A folder.
#[derive(Clone)]
pub struct Folder {
    /// The folder that it is in; the root is in itself.
    pub parent: Inode,
    /// The names in it.
    pub names: BTreeMap<Vec<u8>, Name>,
    next_cookie: u64,
}

/// What a file has, by its kind.
#[derive(Clone)]
pub enum Body {
    /// Bytes.
    Regular(FileBytes),
    /// Names.
    Folder(Folder),
    /// A target.
    Symlink(Vec<u8>),
    /// Nothing.
    Special,
}

/// A file.
#[derive(Clone)]
pub struct File {
    /// Its attributes; sizes, blocks aside.
    attributes: Attributes,
    /// What it has.
    pub body: Body,
    /// Its extended attributes.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl File {
    fn new(inode: Inode, file: NewFile, body: Body, now: FileTime) -> File {
        let is_device = matches!(file.kind, FileKind::CharacterDevice | FileKind::BlockDevice);
        let attributes = Attributes {
            inode,
            generation: 0,
            kind: file.kind,
            mode: file.mode & MODE_BITS,
            uid: file.uid,
            gid: file.gid,
            links: if file.kind == FileKind::Directory { 2 } else { 1 },
            size: 0,
            blocks: 0,
            device: if is_device { file.device } else { 0 },
            accessed: now,
            modified: now,
            changed: now,
            born: now,
        };
        File { attributes, body, xattrs: BTreeMap::new() }
    }

    /// Its attributes.
    #[must_use]
    pub fn attributes(&self) -> Attributes {
        let (size, blocks) = match &self.body {
            Body::Regular(bytes) => (bytes.size(), bytes.data_blocks()),
            Body::Symlink(target) => (target.len() as u64, 1),
            Body::Folder(_) | Body::Special => (0, 0),
        };
        Attributes { size, blocks, ..self.attributes }
    }

    /// The folder that it is.
    #[must_use]
    pub fn folder(&self) -> Option<&Folder> {
        match &self.body {
            Body::Folder(folder) => Some(folder),
            _ => None,
        }
    }

    /// The bytes that it has.
    #[must_use]
    pub fn bytes(&self) -> Option<&FileBytes> {
        match &self.body {
            Body::Regular(bytes) => Some(bytes),
            _ => None,
        }
    }

    fn bytes_mut(&mut self) -> &mut FileBytes {
        match &mut self.body {
            Body::Regular(bytes) => bytes,
            _ => unreachable!("it was checked that it is a regular file"),
        }
    }

    fn folder_mut(&mut self) -> &mut Folder {
        match &mut self.body {
            Body::Folder(folder) => folder,
            _ => unreachable!("it was checked that it is a folder"),
        }
    }

    fn modified_now(&mut self, now: FileTime) {
        (self.attributes.modified, self.attributes.changed) = (now, now);
    }
}

/// See the module.
#[derive(Clone)]
pub struct FileModel {
    /// How much there can be.
    pub limits: FileLimits,
    files: BTreeMap<Inode, Rc<File>>,
    held: BTreeMap<Inode, u64>,
    next_inode: u32,
    next_ticket: u64,
    /// Bytes that were read and not given back.
    reads: BTreeMap<Ticket, Vec<u8>>,
}

impl FileModel {
    /// A file system with a root folder of this mode, owned by user and group 0.
    #[must_use]
    pub fn new(root_mode: u16, now: FileTime) -> FileModel {
        let root = NewFile { kind: FileKind::Directory, mode: root_mode, uid: 0, gid: 0, device: 0 };
        let body = Body::Folder(Folder { parent: Inode::ROOT, names: BTreeMap::new(), next_cookie: COOKIES[2] });
        FileModel {
            limits: FileLimits::default(),
            files: BTreeMap::from([(Inode::ROOT, Rc::new(File::new(Inode::ROOT, root, body, now)))]),
            held: BTreeMap::new(),
            next_inode: Inode::ROOT.0 + 1,
            next_ticket: 0,
            reads: BTreeMap::new(),
        }
    }

    /// The same with the times, the owner and the mode of the root that another file system has.
    #[must_use]
    pub fn with_root(mut self, root: &Attributes) -> FileModel {
        let own = &mut self.file_mut(Inode::ROOT).attributes;
        *own = Attributes { inode: Inode::ROOT, generation: 0, links: own.links, ..*root };
        self
    }

    /// A file.
    #[must_use]
    pub fn file(&self, inode: Inode) -> Option<&File> {
        self.files.get(&inode).map(|file| &**file)
    }

    /// All files, those without a name among them.
    pub fn files(&self) -> impl Iterator<Item = &File> {
        self.files.values().map(|file| &**file)
    }

    /// How often a file is held.
    #[must_use]
    pub fn holds(&self, inode: Inode) -> u64 {
        self.held.get(&inode).copied().unwrap_or(0)
    }

    /// The first inode number that no file has had yet.
    #[must_use]
    pub fn next_inode(&self) -> Inode {
        Inode(self.next_inode)
    }

    /// Bytes of all blocks that are no holes.
    #[must_use]
    pub fn data_bytes(&self) -> u64 {
        let blocks: u64 = self.files().filter_map(File::bytes).map(FileBytes::data_blocks).sum();
        blocks * BLOCK_BYTES as u64
    }

    /// Whether `inode` is `folder` or in it, at any depth.
    #[must_use]
    pub fn is_within(&self, inode: Inode, folder: Inode) -> bool {
        let mut at = inode;
        loop {
            match self.file(at).and_then(File::folder).map(|folder| folder.parent) {
                _ if at == folder => return true,
                Some(parent) if parent != at => at = parent,
                _ => return false,
            }
        }
    }

    /// The file system after a power cut: nobody holds anything, and files without a name are gone.
    #[must_use]
    pub fn after_power_cut(&self) -> FileModel {
        let mut model = self.clone();
        model.held.clear();
        model.reads.clear();
        model.files.retain(|_, file| file.attributes.links > 0);
        model
    }

    /// Another file system, which may be imprecise there, has this for the time of the last read.
    pub fn set_accessed(&mut self, inode: Inode, accessed: FileTime) {
        self.file_mut(inode).attributes.accessed = accessed;
    }

    fn file_mut(&mut self, inode: Inode) -> &mut File {
        Rc::make_mut(self.files.get_mut(&inode).expect("it was checked that the file is there"))
    }

    fn at(&self, inode: Inode) -> &File {
        self.file(inode).expect("it was checked that the file is there")
    }

    /// The file of a name; `None`: there is none.
    #[must_use]
    pub fn named(&self, parent: Inode, name: &[u8]) -> Option<Inode> {
        let folder = self.file(parent)?.folder()?;
        match name {
            b"." => Some(parent),
            b".." => Some(folder.parent).filter(|parent| self.files.contains_key(parent)),
            name => folder.names.get(name).map(|name| name.inode),
        }
    }

    fn is_folder(&self, inode: Inode) -> bool {
        self.at(inode).folder().is_some()
    }

    /// A file that lost a name or a holder is gone, if that was the last one.
    fn drop_if_unused(&mut self, inode: Inode) {
        let is_unused = self.file(inode).is_some_and(|file| file.attributes.links == 0);
        if is_unused && self.holds(inode) == 0 {
            self.files.remove(&inode);
        }
    }

    /// Gives `inode` a name, in place of another file's if that has it. The links of `inode` are not changed; a folder among them is.
    fn put_name(&mut self, parent: Inode, name: &[u8], inode: Inode) {
        let is_folder = self.is_folder(inode);
        if is_folder {
            self.file_mut(inode).folder_mut().parent = parent;
            self.file_mut(parent).attributes.links += 1;
        }
        let folder = self.file_mut(parent).folder_mut();
        let cookie = folder.next_cookie;
        folder.next_cookie += 1;
        let before = folder.names.insert(name.to_vec(), Name { inode, cookie });
        assert!(before.is_none(), "the name was free");
    }

    /// Takes a name away. The links of the file are not changed, those of the folder are.
    fn take_name(&mut self, parent: Inode, name: &[u8]) -> Inode {
        let taken = self.file_mut(parent).folder_mut().names.remove(name).expect("the name is there");
        if self.is_folder(taken.inode) {
            self.file_mut(parent).attributes.links -= 1;
        }
        taken.inode
    }

    /// A file loses a name for good.
    fn remove_name(&mut self, now: FileTime, parent: Inode, name: &[u8]) {
        let inode = self.take_name(parent, name);
        let is_folder = self.is_folder(inode);
        let attributes = &mut self.file_mut(inode).attributes;
        attributes.links = if is_folder { 0 } else { attributes.links - 1 };
        attributes.changed = now;
        self.file_mut(parent).modified_now(now);
        self.drop_if_unused(inode);
    }

    fn make(&mut self, now: FileTime, parent: Inode, name: &[u8], mut file: NewFile, body: Body) -> Reply {
        let folder = self.at(parent).attributes;
        if folder.mode & SET_GROUP_ID != 0 {
            file.gid = folder.gid;
            file.mode |= if file.kind == FileKind::Directory { SET_GROUP_ID } else { 0 };
        }
        let inode = Inode(self.next_inode);
        self.next_inode += 1;
        self.files.insert(inode, Rc::new(File::new(inode, file, body, now)));
        self.put_name(parent, name, inode);
        self.file_mut(parent).modified_now(now);
        self.reply_attributes(inode)
    }

    fn reply_attributes(&self, inode: Inode) -> Reply {
        Reply::Attributes(self.at(inode).attributes())
    }

    fn set_attributes(&mut self, now: FileTime, inode: Inode, changes: Changes) {
        let Changes { mode, uid, gid, size, accessed, modified, changed } = changes;
        let file = self.file_mut(inode);
        if let Some(size) = size.filter(|size| *size != file.bytes_mut().size()) {
            file.bytes_mut().resize(size);
            file.attributes.modified = now;
        }
        let own = &mut file.attributes;
        own.mode = mode.map_or(own.mode, |mode| mode & MODE_BITS);
        own.uid = uid.unwrap_or(own.uid);
        own.gid = gid.unwrap_or(own.gid);
        own.accessed = accessed.unwrap_or(own.accessed);
        own.modified = modified.unwrap_or(own.modified);
        own.changed = changed.unwrap_or(now);
    }

    fn rename(
        &mut self,
        now: FileTime,
        (from, from_name): (Inode, &[u8]),
        (to, to_name): (Inode, &[u8]),
        how: RenameHow,
    ) {
        let (moved, replaced) = (self.named(from, from_name).expect("it is there"), self.named(to, to_name));
        if replaced == Some(moved) {
            return;
        }
        if let Some(replaced) = replaced {
            match how {
                RenameHow::Exchange => {
                    self.take_name(from, from_name);
                    self.take_name(to, to_name);
                    self.put_name(from, from_name, replaced);
                    self.file_mut(replaced).attributes.changed = now;
                }
                RenameHow::Replace | RenameHow::NoReplace => {
                    self.remove_name(now, to, to_name);
                    self.take_name(from, from_name);
                }
            }
        } else {
            self.take_name(from, from_name);
        }
        self.put_name(to, to_name, moved);
        self.file_mut(moved).attributes.changed = now;
        self.file_mut(from).modified_now(now);
        self.file_mut(to).modified_now(now);
    }

    /// Somebody has read of it.
    fn read_now(&mut self, now: FileTime, inode: Inode) {
        let Attributes { accessed, modified, changed, .. } = self.at(inode).attributes;
        let is_old = now.seconds.saturating_sub(accessed.seconds) >= ACCESSED_SECONDS;
        if accessed <= modified || accessed <= changed || is_old {
            self.set_accessed(inode, now);
        }
    }

    fn allocate(&mut self, now: FileTime, inode: Inode, offset: u64, bytes: u64, how: AllocateHow) {
        let (file, end) = (self.file_mut(inode), offset + bytes);
        let content = file.bytes_mut();
        let keep_size = match how {
            AllocateHow::Allocate { keep_size } => keep_size,
            AllocateHow::PunchHole => {
                content.punch(offset, end);
                true
            }
            AllocateHow::ZeroRange { keep_size } => {
                content.punch(offset, end);
                keep_size
            }
        };
        if !keep_size && content.size() < end {
            content.resize(end);
        }
        file.modified_now(now);
    }

    fn entries(&self, inode: Inode, after: u64, entries: usize, with_attributes: bool) -> Vec<Entry> {
        let file = self.at(inode);
        let folder = file.folder().expect("it was checked that it is a folder");
        if file.attributes.links == 0 {
            return Vec::new();
        }
        let dots = [(b".".as_slice(), inode, COOKIES[0]), (b"..", folder.parent, COOKIES[1])];
        let names = folder.names.iter().map(|(name, at)| (name.as_slice(), at.inode, at.cookie));
        let mut found: Vec<_> = dots.into_iter().chain(names).filter(|(.., cookie)| *cookie > after).collect();
        found.sort_by_key(|(.., cookie)| *cookie);
        let entry = |(name, inode, cookie): (&[u8], Inode, u64)| {
            let attributes = self.at(inode).attributes();
            let wants = with_attributes && cookie >= COOKIES[2];
            Entry { inode, kind: attributes.kind, cookie, name: name.to_vec(), attributes: wants.then_some(attributes) }
        };
        found.into_iter().take(entries).map(entry).collect()
    }

    /// Does what is asked; that it can be done was checked.
    fn carry_out(&mut self, now: FileTime, ticket: Ticket, operation: &Operation<'_>) -> Reply {
        match *operation {
            Operation::Lookup { parent, name } => {
                return self.reply_attributes(self.named(parent, name).expect("it is there"));
            }
            Operation::Attributes { inode } => return self.reply_attributes(inode),
            Operation::SetAttributes { inode, changes } => {
                self.set_attributes(now, inode, changes);
                return self.reply_attributes(inode);
            }
            Operation::ReadLink { inode } => {
                self.read_now(now, inode);
                return match &self.at(inode).body {
                    Body::Symlink(target) => Reply::Bytes(target.clone()),
                    _ => unreachable!("it was checked that it is a link"),
                };
            }
            Operation::Make { parent, name, file } => {
                let body = match file.kind {
                    FileKind::Regular => Body::Regular(FileBytes::default()),
                    FileKind::Directory => {
                        Body::Folder(Folder { parent, names: BTreeMap::new(), next_cookie: COOKIES[2] })
                    }
                    _ => Body::Special,
                };
                return self.make(now, parent, name, file, body);
            }
            Operation::Symlink { parent, name, target, uid, gid } => {
                let file = NewFile { kind: FileKind::Symlink, mode: 0o777, uid, gid, device: 0 };
                return self.make(now, parent, name, file, Body::Symlink(target.to_vec()));
            }
            Operation::Link { inode, parent, name } => {
                self.put_name(parent, name, inode);
                let attributes = &mut self.file_mut(inode).attributes;
                (attributes.links, attributes.changed) = (attributes.links + 1, now);
                self.file_mut(parent).modified_now(now);
                return self.reply_attributes(inode);
            }
            Operation::Unlink { parent, name } | Operation::RemoveDirectory { parent, name } => {
                self.remove_name(now, parent, name);
            }
            Operation::Rename { from, from_name, to, to_name, how } => {
                self.rename(now, (from, from_name), (to, to_name), how);
            }
            Operation::Read { inode, offset, bytes } => {
                if bytes > 0 {
                    self.read_now(now, inode);
                }
                let read = self.at(inode).bytes().expect("it was checked").read(offset, bytes.into());
                let bytes = read.len() as u32;
                self.reads.insert(ticket, read);
                return Reply::Data(Data { ticket, bytes });
            }
            Operation::Write { inode, offset, data } => {
                if !data.is_empty() {
                    self.file_mut(inode).bytes_mut().write(offset, data);
                    self.file_mut(inode).modified_now(now);
                }
            }
            Operation::Allocate { inode, offset, bytes, how } => self.allocate(now, inode, offset, bytes, how),
            Operation::Seek { inode, offset, target } => {
                let bytes = self.at(inode).bytes().expect("it was checked");
                return Reply::Offset(match target {
                    SeekFor::Data => bytes.next_data(offset).expect("it was checked"),
                    SeekFor::Hole => bytes.next_hole(offset),
                });
            }
            Operation::ReadDirectory { inode, after, entries, with_attributes } => {
                self.read_now(now, inode);
                return Reply::Entries(self.entries(inode, after, entries, with_attributes));
            }
            Operation::GetXattr { inode, name } => return Reply::Bytes(self.at(inode).xattrs[name].clone()),
            Operation::SetXattr { inode, name, value, .. } => {
                let file = self.file_mut(inode);
                file.xattrs.insert(name.to_vec(), value.to_vec());
                file.attributes.changed = now;
            }
            Operation::ListXattr { inode } => {
                let names = self.at(inode).xattrs.keys();
                return Reply::Bytes(names.flat_map(|name| name.iter().chain(&[0])).copied().collect());
            }
            Operation::RemoveXattr { inode, name } => {
                let file = self.file_mut(inode);
                file.xattrs.remove(name);
                file.attributes.changed = now;
            }
            Operation::Sync => {}
            Operation::Room => {
                let files = u32::MAX - self.next_inode;
                let room = Room { blocks: 1 << 32, free: 1 << 31, files: u32::MAX.into(), files_free: files.into() };
                return Reply::Room(room);
            }
        }
        Reply::Done
    }
}

impl FileSystem for FileModel {
    fn ticket(&mut self) -> Ticket {
        self.next_ticket += 1;
        Ticket(self.next_ticket)
    }

    fn attempt(
        &mut self,
        _now: Time,
        clock: FileTime,
        ticket: Ticket,
        operation: &Operation<'_>,
    ) -> Option<Result<Reply, Refusal>> {
        Some(match self.refusals(operation).first() {
            Some(refusal) => Err(*refusal),
            None => Ok(self.carry_out(clock, ticket, operation)),
        })
    }

    fn abandon(&mut self, _ticket: Ticket) {}

    fn poll(&mut self, _now: Time) -> bool {
        false
    }

    fn next_due(&self) -> Option<Time> {
        None
    }

    fn data(&self, data: &Data, piece: &mut dyn FnMut(&[u8])) {
        self.reads[&data.ticket].chunks(BLOCK_BYTES).for_each(piece);
    }

    fn give_back(&mut self, data: Data) {
        self.reads.remove(&data.ticket).expect("the bytes were read and not given back");
    }

    fn hold(&mut self, inode: Inode, times: u64) {
        assert!(self.files.contains_key(&inode), "file {inode} is held, and is not there");
        *self.held.entry(inode).or_default() += times;
    }

    fn release(&mut self, inode: Inode, times: u64) -> bool {
        let holds = self.held.get_mut(&inode);
        let were = holds.as_ref().map_or(0, |holds| **holds);
        match holds {
            Some(holds) if were > times => *holds -= times,
            _ => {
                self.held.remove(&inode);
                self.drop_if_unused(inode);
            }
        }
        were >= times
    }
}

#[cfg(test)]
mod tests;
