//! All of a file system as its host sees it, as one number and as text: two file systems with the same portrait have the same names, kinds,
//! modes, owners, links, sizes, bytes, times, extended attributes and targets.
//!
//! A portrait is made of answers to operations alone, from the root on, so that of any [`FileSystem`] there is one. Inode numbers, cookies,
//! [`Attributes::accessed`], [`Attributes::blocks`], the size of folders, and where holes are, are not in it. Files without a name are not, either.
//!
//! On the way it is checked that a file system agrees with itself: names with their inode numbers, `.` and `..`, links with the names
//! that were found, holes with what is read there.

use openftl_alfs::operation::{NAME_BYTES_MAX, Operation, Reply};
use openftl_alfs::{Attributes, FileKind, FileSystem, FileTime, Inode, Refusal, SeekFor};
use openftl_core::BLOCK_BYTES;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Names that are asked for at a time.
const ENTRIES: usize = 32;

/// Bytes that are read at a time.
const READ_BYTES: u64 = 128 << 10;

/// Runs an operation to its end. [`Reply::Data`] are to be [`Reply::Bytes`]: see [`with_bytes`].
pub type Run<'r> = &'r mut dyn FnMut(&Operation<'_>) -> Result<Reply, Refusal>;

/// A reply whose data, if it has any, were copied and given back.
pub fn with_bytes<F: FileSystem + ?Sized>(volume: &mut F, reply: Reply) -> Reply {
    let Reply::Data(data) = reply else { return reply };
    let mut bytes = Vec::with_capacity(data.bytes as usize);
    volume.data(&data, &mut |piece| {
        assert!(piece.len() <= BLOCK_BYTES, "a piece has at most a block");
        bytes.extend_from_slice(piece);
    });
    assert_eq!(bytes.len(), data.bytes as usize, "there are as many bytes as the reply says");
    volume.give_back(data);
    Reply::Bytes(bytes)
}

/// A running hash of 128 bits. Not cryptographic.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WideHash(pub u128);

impl WideHash {
    /// Of nothing.
    pub const START: WideHash = WideHash(0x6F70_656E_6674_6C2D_616C_6673_2D31_3238);

    /// Adds a word.
    #[inline]
    pub fn add(&mut self, word: u64) {
        const ODD: u128 = 0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835;
        self.0 = (self.0.rotate_left(59) ^ u128::from(word)).wrapping_mul(ODD);
    }

    /// Adds bytes, and how many they are.
    pub fn add_bytes(&mut self, bytes: &[u8]) {
        self.add(bytes.len() as u64);
        let (words, rest) = bytes.as_chunks();
        words.iter().for_each(|word| self.add(u64::from_le_bytes(*word)));
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        self.add(u64::from_le_bytes(last));
    }
}

/// See the module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Portrait {
    /// Tells file systems apart.
    pub hash: u128,
    /// A line for each name, and for each extended attribute, sorted by path.
    pub listing: String,
}

/// A file that was found, with the paths and the attributes of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Found {
    /// Its attributes.
    pub attributes: Attributes,
    /// Names found so far.
    pub names: u32,
}

impl Portrait {
    /// Of the file system that `run` asks.
    ///
    /// # Errors
    /// What is refused, or contradicts itself.
    pub fn of(run: Run<'_>) -> Result<Portrait, String> {
        let mut painter = Painter { run, listing: String::new(), hash: WideHash::START, found: BTreeMap::new() };
        let root = painter.attributes(&Operation::Attributes { inode: Inode::ROOT }, "/")?;
        painter.folder("", &root, Inode::ROOT)?;
        for (path, Found { attributes, names }) in painter.found.values() {
            if attributes.kind != FileKind::Directory && attributes.links != *names {
                return Err(format!("{path} has {} links, and {names} names", attributes.links));
            }
        }
        painter.hash.add_bytes(painter.listing.as_bytes());
        Ok(Portrait { hash: painter.hash.0, listing: painter.listing })
    }

    /// The lines in which two portraits differ: `-` of this one, `+` of the other.
    #[must_use]
    pub fn difference(&self, other: &Portrait) -> String {
        let lines = |portrait: &Portrait| portrait.listing.lines().map(str::to_owned).collect::<Vec<_>>();
        let (own, others) = (lines(self), lines(other));
        let missing = own.iter().filter(|line| !others.contains(line)).map(|line| format!("- {line}\n"));
        missing.chain(others.iter().filter(|line| !own.contains(line)).map(|line| format!("+ {line}\n"))).collect()
    }
}

struct Painter<'r> {
    run: Run<'r>,
    listing: String,
    hash: WideHash,
    /// By inode number: the first path.
    found: BTreeMap<Inode, (String, Found)>,
}

/// A name as text.
#[must_use]
pub fn shown(name: &[u8]) -> String {
    let text = name.escape_ascii().to_string();
    if name.len() > 40 { format!("{}…{} bytes", &text[..20], name.len()) } else { text }
}

fn time(time: FileTime) -> String {
    format!("{}.{:09}", time.seconds, time.nanoseconds)
}

impl Painter<'_> {
    fn ask(&mut self, operation: &Operation<'_>, path: &str) -> Result<Reply, String> {
        (self.run)(operation).map_err(|refusal| format!("{path}: {operation:?}: {refusal}"))
    }

    fn attributes(&mut self, operation: &Operation<'_>, path: &str) -> Result<Attributes, String> {
        match self.ask(operation, path)? {
            Reply::Attributes(attributes) => Ok(attributes),
            other => Err(format!("{path}: {operation:?} is answered by {other:?}")),
        }
    }

    fn bytes(&mut self, operation: &Operation<'_>, path: &str) -> Result<Vec<u8>, String> {
        match self.ask(operation, path)? {
            Reply::Bytes(bytes) => Ok(bytes),
            other => Err(format!("{path}: {operation:?} is answered by {other:?}")),
        }
    }

    /// Where a seek ends; `None`: there is no such offset.
    fn seek(&mut self, inode: Inode, offset: u64, target: SeekFor, path: &str) -> Result<Option<u64>, String> {
        let operation = Operation::Seek { inode, offset, target };
        match (self.run)(&operation) {
            Ok(Reply::Offset(found)) if found >= offset => Ok(Some(found)),
            Err(Refusal::NoSuchOffset) => Ok(None),
            other => Err(format!("{path}: {operation:?} is answered by {other:?}")),
        }
    }

    /// Bytes `offset` to `end` of a file, which are there.
    fn read(&mut self, inode: Inode, offset: u64, end: u64, path: &str) -> Result<Vec<u8>, String> {
        let bytes = self.bytes(&Operation::Read { inode, offset, bytes: (end - offset) as u32 }, path)?;
        match bytes.len() as u64 == end - offset {
            true => Ok(bytes),
            false => Err(format!("{path}: of bytes {offset} to {end} there are {}", bytes.len())),
        }
    }

    /// A hash of the bytes of a file, zeroes aside.
    fn content(&mut self, inode: Inode, size: u64, path: &str) -> Result<u128, String> {
        const BLOCK: u64 = BLOCK_BYTES as u64;
        let (mut hash, mut at) = (WideHash::START, 0);
        while at < size {
            let data = self.seek(inode, at, SeekFor::Data, path)?.unwrap_or(size);
            if data > at {
                let begins = self.read(inode, at, data.min(at + BLOCK), path)?;
                if begins.iter().any(|byte| *byte != 0) {
                    return Err(format!("{path}: there is a hole at byte {at}, and it does not read as zeroes"));
                }
            }
            if data >= size {
                break;
            }
            let hole = self.seek(inode, data, SeekFor::Hole, path)?;
            at = hole.filter(|hole| *hole > data && *hole <= size).ok_or_else(|| {
                format!("{path}: at byte {data} of {size} there are data, and the hole behind it is {hole:?}")
            })?;
            let mut from = data;
            while from < at {
                // Pieces begin at multiples, so that they are the same whatever the file system takes for data.
                let to = at.min((from / READ_BYTES + 1) * READ_BYTES);
                let piece = self.read(inode, from, to, path)?;
                let mut rest = piece.as_slice();
                while !rest.is_empty() {
                    let (block, behind) = rest.split_at(rest.len().min((BLOCK - from % BLOCK) as usize));
                    // Of each byte that is not zero, with its offset: runs that begin and end anywhere are the same.
                    if let Some(first) = block.iter().position(|byte| *byte != 0) {
                        let last = block.iter().rposition(|byte| *byte != 0).expect("there is one");
                        hash.add(from + first as u64);
                        hash.add_bytes(&block[first..=last]);
                    }
                    (from, rest) = (from + block.len() as u64, behind);
                }
            }
        }
        Ok(hash.0)
    }

    fn xattrs(&mut self, inode: Inode, path: &str) -> Result<(), String> {
        let names = self.bytes(&Operation::ListXattr { inode }, path)?;
        let mut names: Vec<&[u8]> = names.split(|byte| *byte == 0).filter(|name| !name.is_empty()).collect();
        names.sort_unstable();
        for name in names {
            let value = self.bytes(&Operation::GetXattr { inode, name }, path)?;
            let mut hash = WideHash::START;
            hash.add_bytes(&value);
            self.hash.add_bytes(name);
            let (name, bytes) = (shown(name), value.len());
            writeln!(self.listing, "{path} @{name}: {bytes} bytes {:032x}", hash.0).expect("memory");
        }
        Ok(())
    }

    /// Adds a line with the attributes of a file, and what its kind has besides.
    fn line(&mut self, path: &str, attributes: &Attributes, special: &str) {
        let Attributes { kind, mode, uid, gid, links, size, device, modified, changed, born, .. } = *attributes;
        let size = if kind == FileKind::Directory { 0 } else { size };
        let times = [modified, changed, born].map(time).join(" ");
        writeln!(
            self.listing,
            "{path} {kind:?} {mode:04o} {uid}:{gid} links {links} size {size} device {device} times {times} {special}"
        )
        .expect("memory");
    }

    fn file(&mut self, path: &str, attributes: &Attributes) -> Result<(), String> {
        let inode = attributes.inode;
        if let Some((first, found)) = self.found.get_mut(&inode) {
            found.names += 1;
            // A read changes when it was accessed, and blocks that a truncation took away are released while the file system works on.
            let Attributes { accessed, blocks, .. } = found.attributes;
            if found.attributes != (Attributes { accessed, blocks, ..*attributes }) {
                return Err(format!("{path} and {first} are one file with different attributes"));
            }
            writeln!(self.listing, "{path} = {first}").expect("memory");
            return Ok(());
        }
        self.found.insert(inode, (path.to_owned(), Found { attributes: *attributes, names: 1 }));
        let special = match attributes.kind {
            FileKind::Regular => {
                let hash = self.content(inode, attributes.size, path)?;
                format!("{hash:032x}")
            }
            FileKind::Symlink => {
                let target = self.bytes(&Operation::ReadLink { inode }, path)?;
                if target.len() as u64 != attributes.size {
                    return Err(format!("{path} has a target of {} bytes, and size {}", target.len(), attributes.size));
                }
                self.hash.add_bytes(&target);
                format!("-> {}", shown(&target))
            }
            _ => String::new(),
        };
        self.line(path, attributes, &special);
        self.xattrs(inode, path)
    }

    /// A folder, and all that is in it.
    fn folder(&mut self, path: &str, attributes: &Attributes, parent: Inode) -> Result<(), String> {
        let (inode, shown_path) = (attributes.inode, if path.is_empty() { "/" } else { path });
        if self.found.insert(inode, (path.to_owned(), Found { attributes: *attributes, names: 1 })).is_some() {
            return Err(format!("{shown_path} is a folder that has another name, too"));
        }
        self.line(shown_path, attributes, "");
        self.xattrs(inode, shown_path)?;
        let names = self.names(inode, parent, shown_path)?;
        let mut folders = 0;
        for (name, (inode, kind)) in names {
            let path = format!("{path}/{}", shown(&name));
            if name.len() > 40 {
                self.hash.add_bytes(&name);
            }
            let file = self.attributes(&Operation::Lookup { parent: attributes.inode, name: &name }, &path)?;
            if (file.inode, file.kind) != (inode, kind) {
                return Err(format!("{path} is listed as {kind:?} {inode}, and is {:?} {}", file.kind, file.inode));
            }
            match kind {
                FileKind::Directory => {
                    folders += 1;
                    self.folder(&path, &file, attributes.inode)?;
                }
                _ => self.file(&path, &file)?,
            }
        }
        match attributes.links == 2 + folders {
            true => Ok(()),
            false => Err(format!("{shown_path} has {} links, and {folders} folders", attributes.links)),
        }
    }

    /// The names in a folder, sorted.
    fn names(
        &mut self,
        inode: Inode,
        parent: Inode,
        path: &str,
    ) -> Result<BTreeMap<Vec<u8>, (Inode, FileKind)>, String> {
        let (mut names, mut after) = (BTreeMap::new(), 0);
        loop {
            let operation = Operation::ReadDirectory { inode, after, entries: ENTRIES, with_attributes: false };
            let Reply::Entries(entries) = self.ask(&operation, path)? else {
                return Err(format!("{path}: {operation:?} is answered by something else"));
            };
            let Some(last) = entries.last() else { break };
            after = last.cookie;
            for entry in entries {
                if entry.name.len() > NAME_BYTES_MAX {
                    return Err(format!("{path} has a name of {} bytes", entry.name.len()));
                }
                if let Some(other) = names.insert(entry.name.clone(), (entry.inode, entry.kind)) {
                    return Err(format!("{path} has {} twice: {other:?} and {entry:?}", shown(&entry.name)));
                }
            }
        }
        let dots = [b".".as_slice(), b".."].map(|dot| names.remove(dot).map(|(inode, _)| inode));
        if dots != [Some(inode), Some(parent)] {
            return Err(format!("{path} is {inode} in {parent}, and `.` and `..` are {dots:?}"));
        }
        Ok(names)
    }
}
