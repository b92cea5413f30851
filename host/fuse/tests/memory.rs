//! A file system in memory: simple enough to be right, and it may take its time for reads and syncs.

use openftl_alfs::{
    AllocateHow, Attributes, Changes, Data, Entry, FileKind, FileSystem, FileTime, Inode, NewFile, Operation, Refusal,
    RenameHow, Reply, Room, SeekFor, Ticket, XattrHow,
};
use openftl_core::{Nanos, Time};
use std::collections::{BTreeMap, HashMap};

const BLOCK: usize = 4096;

#[derive(Clone)]
struct Name {
    inode: Inode,
    cookie: u64,
}

struct Node {
    attributes: Attributes,
    parent: Inode,
    bytes: Vec<u8>,
    names: BTreeMap<Vec<u8>, Name>,
    cookies: BTreeMap<u64, Vec<u8>>,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    holds: u64,
}

/// The file system.
pub struct Memory {
    nodes: BTreeMap<Inode, Node>,
    next_inode: u32,
    next_cookie: u64,
    next_ticket: u64,
    /// Of reads that have not been given back.
    data: HashMap<Ticket, Vec<u8>>,
    /// Reads and syncs take so long.
    latency: Nanos,
    waiting: BTreeMap<Ticket, Time>,
    ready: Vec<Ticket>,
    /// Syncs that have ended.
    pub syncs: u64,
    /// Operations that have been attempted, each attempt.
    pub attempts: u64,
    pub polls: u64,
}

impl Memory {
    pub fn new(latency: Nanos) -> Memory {
        let mut fs = Memory {
            nodes: BTreeMap::new(),
            next_inode: 1,
            next_cookie: 3,
            next_ticket: 0,
            data: HashMap::new(),
            latency,
            waiting: BTreeMap::new(),
            ready: Vec::new(),
            syncs: 0,
            attempts: 0,
            polls: 0,
        };
        let uid = rustix::process::geteuid().as_raw();
        let root = NewFile { kind: FileKind::Directory, mode: 0o755, uid, gid: 0, device: 0 };
        fs.node(FileTime::default(), root, Inode::ROOT);
        fs
    }

    /// Files, the root folder among them.
    pub fn files(&self) -> usize {
        self.nodes.len()
    }

    /// How often all files are held.
    pub fn holds(&self) -> u64 {
        self.nodes.values().map(|node| node.holds).sum()
    }

    /// Reads whose memory has not been given back, and operations that wait.
    pub fn open_reads(&self) -> usize {
        self.data.len() + self.waiting.len() + self.ready.len()
    }

    fn node(&mut self, clock: FileTime, file: NewFile, parent: Inode) -> Inode {
        let inode = Inode(self.next_inode);
        self.next_inode += 1;
        let attributes = Attributes {
            inode,
            generation: 7,
            kind: file.kind,
            mode: file.mode,
            uid: file.uid,
            gid: file.gid,
            links: 1 + u32::from(file.kind == FileKind::Directory),
            size: 0,
            blocks: 1,
            device: file.device,
            accessed: clock,
            modified: clock,
            changed: clock,
            born: clock,
        };
        let (names, cookies, xattrs) = Default::default();
        let node = Node { attributes, parent, bytes: Vec::new(), names, cookies, xattrs, holds: 0 };
        self.nodes.insert(inode, node);
        inode
    }

    fn get(&mut self, inode: Inode) -> Result<&mut Node, Refusal> {
        self.nodes.get_mut(&inode).ok_or(Refusal::Stale)
    }

    fn folder(&mut self, inode: Inode) -> Result<&mut Node, Refusal> {
        let node = self.get(inode)?;
        if node.attributes.kind == FileKind::Directory { Ok(node) } else { Err(Refusal::NotADirectory) }
    }

    fn regular(&mut self, inode: Inode) -> Result<&mut Node, Refusal> {
        let node = self.get(inode)?;
        match node.attributes.kind {
            FileKind::Regular => Ok(node),
            FileKind::Directory => Err(Refusal::IsADirectory),
            _ => Err(Refusal::Invalid),
        }
    }

    fn child(&mut self, parent: Inode, name: &[u8]) -> Result<Inode, Refusal> {
        Ok(self.folder(parent)?.names.get(name).ok_or(Refusal::NotFound)?.inode)
    }

    fn free_name(&mut self, parent: Inode, name: &[u8]) -> Result<(), Refusal> {
        if name.len() > 255 {
            return Err(Refusal::NameTooLong);
        }
        let folder = self.folder(parent)?;
        if folder.names.contains_key(name) {
            return Err(Refusal::Exists);
        }
        if folder.attributes.links == 0 { Err(Refusal::NotFound) } else { Ok(()) }
    }

    fn add(&mut self, clock: FileTime, parent: Inode, name: &[u8], inode: Inode) {
        let cookie = self.next_cookie;
        self.next_cookie += 1;
        let is_folder = self.nodes[&inode].attributes.kind == FileKind::Directory;
        let folder = self.folder(parent).expect("a folder");
        folder.names.insert(name.to_vec(), Name { inode, cookie });
        folder.cookies.insert(cookie, name.to_vec());
        folder.attributes.links += u32::from(is_folder);
        folder.attributes.modified = clock;
        folder.attributes.changed = clock;
        if is_folder {
            self.nodes.get_mut(&inode).expect("a node").parent = parent;
        }
    }

    fn take(&mut self, clock: FileTime, parent: Inode, name: &[u8]) -> Inode {
        let folder = self.folder(parent).expect("a folder");
        let Name { inode, cookie } = folder.names.remove(name).expect("a name");
        folder.cookies.remove(&cookie);
        folder.attributes.modified = clock;
        folder.attributes.changed = clock;
        if self.nodes[&inode].attributes.kind == FileKind::Directory {
            self.folder(parent).expect("a folder").attributes.links -= 1;
        }
        inode
    }

    fn drop_link(&mut self, clock: FileTime, inode: Inode) {
        let node = self.nodes.get_mut(&inode).expect("a node");
        let is_folder = node.attributes.kind == FileKind::Directory;
        node.attributes.links = if is_folder { 0 } else { node.attributes.links - 1 };
        node.attributes.changed = clock;
        self.collect(inode);
    }

    fn collect(&mut self, inode: Inode) {
        if self.nodes.get(&inode).is_some_and(|node| node.attributes.links == 0 && node.holds == 0) {
            self.nodes.remove(&inode);
        }
    }

    fn rename(
        &mut self,
        clock: FileTime,
        (from, from_name): (Inode, &[u8]),
        (to, to_name): (Inode, &[u8]),
        how: RenameHow,
    ) -> Result<Reply, Refusal> {
        let moved = self.child(from, from_name)?;
        let mut above = to;
        while above != Inode::ROOT {
            if above == moved {
                return Err(Refusal::Invalid);
            }
            above = self.folder(above)?.parent;
        }
        match (self.child(to, to_name), how) {
            (Ok(_), RenameHow::NoReplace) => return Err(Refusal::Exists),
            (Err(error), RenameHow::Exchange) => return Err(error),
            (Ok(_), RenameHow::Exchange) => {
                let (one, other) = (self.take(clock, from, from_name), self.take(clock, to, to_name));
                self.add(clock, to, to_name, one);
                self.add(clock, from, from_name, other);
                return Ok(Reply::Done);
            }
            (Ok(replaced), RenameHow::Replace) if replaced == moved => return Ok(Reply::Done),
            (Ok(replaced), RenameHow::Replace) => {
                let moved_kind = self.get(moved)?.attributes.kind;
                let node = self.get(replaced)?;
                match (moved_kind, node.attributes.kind) {
                    (FileKind::Directory, FileKind::Directory) if !node.names.is_empty() => {
                        return Err(Refusal::NotEmpty);
                    }
                    (FileKind::Directory, FileKind::Directory) => {}
                    (FileKind::Directory, _) => return Err(Refusal::NotADirectory),
                    (_, FileKind::Directory) => return Err(Refusal::IsADirectory),
                    _ => {}
                }
                self.take(clock, to, to_name);
                self.drop_link(clock, replaced);
            }
            (Err(Refusal::NotFound), _) => self.free_name(to, to_name)?,
            (Err(error), _) => return Err(error),
        }
        self.take(clock, from, from_name);
        self.add(clock, to, to_name, moved);
        self.get(moved)?.attributes.changed = clock;
        Ok(Reply::Done)
    }

    fn change(&mut self, clock: FileTime, inode: Inode, changes: &Changes) -> Result<Reply, Refusal> {
        if let Some(size) = changes.size {
            let size = usize::try_from(size).ok().filter(|size| *size < 1 << 32).ok_or(Refusal::TooBig)?;
            let node = self.regular(inode)?;
            node.bytes.resize(size, 0);
            node.attributes.modified = clock;
        }
        let attributes = &mut self.get(inode)?.attributes;
        attributes.mode = changes.mode.unwrap_or(attributes.mode);
        attributes.uid = changes.uid.unwrap_or(attributes.uid);
        attributes.gid = changes.gid.unwrap_or(attributes.gid);
        attributes.accessed = changes.accessed.unwrap_or(attributes.accessed);
        attributes.modified = changes.modified.unwrap_or(attributes.modified);
        attributes.changed = changes.changed.unwrap_or(clock);
        self.attributes(inode)
    }

    fn attributes(&mut self, inode: Inode) -> Result<Reply, Refusal> {
        let node = self.get(inode)?;
        if matches!(node.attributes.kind, FileKind::Regular | FileKind::Symlink) {
            node.attributes.size = node.bytes.len() as u64;
            node.attributes.blocks = 1 + node.bytes.len().div_ceil(BLOCK) as u64;
        }
        Ok(Reply::Attributes(node.attributes))
    }

    fn list(&mut self, inode: Inode, after: u64, entries: usize, with_attributes: bool) -> Result<Reply, Refusal> {
        let folder = self.folder(inode)?;
        let mut list = Vec::new();
        for (cookie, name, inode) in [(1, b".".to_vec(), inode), (2, b"..".to_vec(), folder.parent)] {
            if cookie > after {
                list.push(Entry { inode, kind: FileKind::Directory, cookie, name, attributes: None });
            }
        }
        let left = entries.saturating_sub(list.len());
        let found: Vec<_> = folder.cookies.range(after + 1..).take(left).map(|(_, name)| name.clone()).collect();
        for name in found {
            let Name { inode, cookie } = self.folder(inode)?.names[&name].clone();
            let Reply::Attributes(attributes) = self.attributes(inode)? else { unreachable!("attributes") };
            let kind = attributes.kind;
            list.push(Entry { inode, kind, cookie, name, attributes: with_attributes.then_some(attributes) });
        }
        list.truncate(entries);
        Ok(Reply::Entries(list))
    }

    fn do_it(&mut self, clock: FileTime, ticket: Ticket, operation: &Operation<'_>) -> Result<Reply, Refusal> {
        match *operation {
            Operation::Lookup { parent, name: b"." } => {
                self.folder(parent)?;
                self.attributes(parent)
            }
            Operation::Lookup { parent, name: b".." } => {
                let above = self.folder(parent)?.parent;
                self.attributes(above)
            }
            Operation::Lookup { name: b"panic", .. } => panic!("as a test wants it"),
            Operation::Lookup { name, .. } if name.len() > 255 => Err(Refusal::NameTooLong),
            Operation::Lookup { parent, name } => {
                let inode = self.child(parent, name)?;
                self.attributes(inode)
            }
            Operation::Attributes { inode } => self.attributes(inode),
            Operation::SetAttributes { inode, changes } => self.change(clock, inode, &changes),
            Operation::ReadLink { inode } => match self.get(inode)? {
                node if node.attributes.kind == FileKind::Symlink => Ok(Reply::Bytes(node.bytes.clone())),
                _ => Err(Refusal::Invalid),
            },
            Operation::Make { parent, name, file } => {
                self.free_name(parent, name)?;
                let inode = self.node(clock, file, parent);
                self.add(clock, parent, name, inode);
                self.attributes(inode)
            }
            Operation::Symlink { parent, name, target, uid, gid } => {
                self.free_name(parent, name)?;
                if target.len() > 4095 {
                    return Err(Refusal::NameTooLong);
                }
                let file = NewFile { kind: FileKind::Symlink, mode: 0o777, uid, gid, device: 0 };
                let inode = self.node(clock, file, parent);
                self.get(inode)?.bytes = target.to_vec();
                self.add(clock, parent, name, inode);
                self.attributes(inode)
            }
            Operation::Link { inode, parent, name } => {
                self.free_name(parent, name)?;
                let node = self.get(inode)?;
                if node.attributes.kind == FileKind::Directory {
                    return Err(Refusal::NotPermitted);
                }
                node.attributes.links += 1;
                node.attributes.changed = clock;
                self.add(clock, parent, name, inode);
                self.attributes(inode)
            }
            Operation::Unlink { parent, name } => {
                let inode = self.child(parent, name)?;
                if self.get(inode)?.attributes.kind == FileKind::Directory {
                    return Err(Refusal::IsADirectory);
                }
                self.take(clock, parent, name);
                self.drop_link(clock, inode);
                Ok(Reply::Done)
            }
            Operation::RemoveDirectory { parent, name } => {
                let inode = self.child(parent, name)?;
                if !self.folder(inode)?.names.is_empty() {
                    return Err(Refusal::NotEmpty);
                }
                self.take(clock, parent, name);
                self.drop_link(clock, inode);
                Ok(Reply::Done)
            }
            Operation::Rename { from, from_name, to, to_name, how } => {
                self.rename(clock, (from, from_name), (to, to_name), how)
            }
            Operation::Read { inode, offset, bytes } => {
                let all = &self.regular(inode)?.bytes;
                let start = usize::try_from(offset).unwrap_or(usize::MAX).min(all.len());
                let found = all[start..all.len().min(start.saturating_add(bytes as usize))].to_vec();
                let bytes = found.len() as u32;
                self.data.insert(ticket, found);
                Ok(Reply::Data(Data { ticket, bytes }))
            }
            Operation::Write { inode, offset, data } => {
                let node = self.regular(inode)?;
                let start = usize::try_from(offset).ok().filter(|start| *start < 1 << 32).ok_or(Refusal::TooBig)?;
                let end = start + data.len();
                node.bytes.resize(node.bytes.len().max(if data.is_empty() { 0 } else { end }), 0);
                if !data.is_empty() {
                    node.bytes[start..end].copy_from_slice(data);
                }
                node.attributes.modified = clock;
                node.attributes.changed = clock;
                Ok(Reply::Done)
            }
            Operation::Allocate { inode, offset, bytes, how } => {
                let node = self.regular(inode)?;
                let range =
                    |number: u64| usize::try_from(number).ok().filter(|at| *at < 1 << 32).ok_or(Refusal::TooBig);
                let (start, end) = (range(offset)?, range(offset + bytes)?);
                if matches!(
                    how,
                    AllocateHow::Allocate { keep_size: false } | AllocateHow::ZeroRange { keep_size: false }
                ) {
                    node.bytes.resize(node.bytes.len().max(end), 0);
                }
                let size = node.bytes.len();
                if !matches!(how, AllocateHow::Allocate { .. }) {
                    node.bytes[start.min(size)..end.min(size)].fill(0);
                }
                Ok(Reply::Done)
            }
            Operation::Seek { inode, offset, target } => {
                let size = self.regular(inode)?.bytes.len() as u64;
                match target {
                    _ if offset >= size => Err(Refusal::NoSuchOffset),
                    SeekFor::Data => Ok(Reply::Offset(offset)),
                    SeekFor::Hole => Ok(Reply::Offset(size)),
                }
            }
            Operation::ReadDirectory { inode, after, entries, with_attributes } => {
                self.list(inode, after, entries, with_attributes)
            }
            Operation::GetXattr { inode, name } => {
                self.get(inode)?.xattrs.get(name).cloned().map(Reply::Bytes).ok_or(Refusal::NoXattr)
            }
            Operation::SetXattr { inode, name, value, how } => {
                let xattrs = &mut self.get(inode)?.xattrs;
                match (how, xattrs.contains_key(name)) {
                    (XattrHow::Create, true) => return Err(Refusal::Exists),
                    (XattrHow::Replace, false) => return Err(Refusal::NoXattr),
                    _ => xattrs.insert(name.to_vec(), value.to_vec()),
                };
                Ok(Reply::Done)
            }
            Operation::ListXattr { inode } => {
                let names = self.get(inode)?.xattrs.keys();
                Ok(Reply::Bytes(names.flat_map(|name| [&name[..], &[0]].concat()).collect()))
            }
            Operation::RemoveXattr { inode, name } => {
                self.get(inode)?.xattrs.remove(name).map(|_| Reply::Done).ok_or(Refusal::NoXattr)
            }
            Operation::Sync => {
                self.syncs += 1;
                Ok(Reply::Done)
            }
            Operation::Room => Ok(Reply::Room(Room { blocks: 1000, free: 900, files: 800, files_free: 700 })),
        }
    }
}

impl FileSystem for Memory {
    fn ticket(&mut self) -> Ticket {
        self.next_ticket += 1;
        Ticket(self.next_ticket)
    }

    fn attempt(
        &mut self,
        now: Time,
        clock: FileTime,
        ticket: Ticket,
        operation: &Operation<'_>,
    ) -> Option<Result<Reply, Refusal>> {
        self.attempts += 1;
        if matches!(operation, Operation::Read { .. } | Operation::Sync) && self.latency != Nanos::ZERO {
            if self.waiting.contains_key(&ticket) {
                return None;
            }
            match self.ready.iter().position(|ready| *ready == ticket) {
                Some(index) => self.ready.swap_remove(index),
                None => {
                    self.waiting.insert(ticket, now + self.latency);
                    return None;
                }
            };
        }
        Some(self.do_it(clock, ticket, operation))
    }

    fn abandon(&mut self, ticket: Ticket) {
        self.waiting.remove(&ticket);
        self.ready.retain(|ready| *ready != ticket);
    }

    fn poll(&mut self, now: Time) -> bool {
        self.polls += 1;
        let due: Vec<_> = self.waiting.iter().filter(|(_, due)| **due <= now).map(|(ticket, _)| *ticket).collect();
        self.waiting.retain(|_, at| *at > now);
        self.ready.extend(&due);
        !due.is_empty()
    }

    fn next_due(&self) -> Option<Time> {
        self.waiting.values().min().copied()
    }

    fn data(&self, data: &Data, piece: &mut dyn FnMut(&[u8])) {
        self.data[&data.ticket].chunks(BLOCK).for_each(piece);
    }

    fn give_back(&mut self, data: Data) {
        self.data.remove(&data.ticket).expect("data are given back once");
    }

    fn hold(&mut self, inode: Inode, times: u64) {
        self.nodes.get_mut(&inode).expect("a file that is held is there").holds += times;
    }

    fn release(&mut self, inode: Inode, times: u64) -> bool {
        let Some(node) = self.nodes.get_mut(&inode) else { return false };
        let were_there = node.holds >= times;
        node.holds = node.holds.saturating_sub(times);
        self.collect(inode);
        were_there
    }
}
