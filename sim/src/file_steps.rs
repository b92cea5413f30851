//! What a host may ask of a file system, drawn from a seed: few names in few folders, so that requests get in each other's way.
//!
//! A step names files as the model does. It is drawn with a look at the model, so that most of it can be done; once in a while any file is
//! taken for any purpose, and then it is refused.

use crate::file_model::{File, FileModel};
use crate::portrait::shown;
use crate::swarm::Dice;
use openftl_alfs::operation::{LINK_BYTES_MAX, NAME_BYTES_MAX, Operation};
use openftl_alfs::{AllocateHow, Changes, FileKind, FileTime, Inode, NewFile, RenameHow, SeekFor, XattrHow};
use openftl_core::{BLOCK_BYTES, Nanos};
use std::fmt;
use strum::{Display, EnumCount, EnumString, FromRepr};

/// An operation that owns its names and its payload, with the inode numbers of the model.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Asked {
    /// The operation, its names and its payload empty.
    pub shape: Operation<'static>,
    /// Its name, or the old one.
    pub name: Vec<u8>,
    /// Its payload, its target, its value, or the new name.
    pub payload: Vec<u8>,
}

impl Asked {
    fn of(shape: Operation<'static>) -> Asked {
        Asked { shape, name: Vec::new(), payload: Vec::new() }
    }

    fn named(shape: Operation<'static>, name: Vec<u8>) -> Asked {
        Asked { name, ..Asked::of(shape) }
    }

    /// The operation, with the inode numbers that `of` gives for those of the model.
    pub fn operation(&self, of: impl Fn(Inode) -> Inode) -> Operation<'_> {
        let (name, payload) = (self.name.as_slice(), self.payload.as_slice());
        match self.shape {
            Operation::Lookup { parent, .. } => Operation::Lookup { parent: of(parent), name },
            Operation::Attributes { inode } => Operation::Attributes { inode: of(inode) },
            Operation::SetAttributes { inode, changes } => Operation::SetAttributes { inode: of(inode), changes },
            Operation::ReadLink { inode } => Operation::ReadLink { inode: of(inode) },
            Operation::Make { parent, file, .. } => Operation::Make { parent: of(parent), name, file },
            Operation::Symlink { parent, uid, gid, .. } => {
                Operation::Symlink { parent: of(parent), name, target: payload, uid, gid }
            }
            Operation::Link { inode, parent, .. } => Operation::Link { inode: of(inode), parent: of(parent), name },
            Operation::Unlink { parent, .. } => Operation::Unlink { parent: of(parent), name },
            Operation::RemoveDirectory { parent, .. } => Operation::RemoveDirectory { parent: of(parent), name },
            Operation::Rename { from, to, how, .. } => {
                Operation::Rename { from: of(from), from_name: name, to: of(to), to_name: payload, how }
            }
            Operation::Read { inode, offset, bytes } => Operation::Read { inode: of(inode), offset, bytes },
            Operation::Write { inode, offset, .. } => Operation::Write { inode: of(inode), offset, data: payload },
            Operation::Allocate { inode, offset, bytes, how } => {
                Operation::Allocate { inode: of(inode), offset, bytes, how }
            }
            Operation::Seek { inode, offset, target } => Operation::Seek { inode: of(inode), offset, target },
            Operation::ReadDirectory { inode, after, entries, with_attributes } => {
                Operation::ReadDirectory { inode: of(inode), after, entries, with_attributes }
            }
            Operation::GetXattr { inode, .. } => Operation::GetXattr { inode: of(inode), name },
            Operation::SetXattr { inode, how, .. } => {
                Operation::SetXattr { inode: of(inode), name, value: payload, how }
            }
            Operation::ListXattr { inode } => Operation::ListXattr { inode: of(inode) },
            Operation::RemoveXattr { inode, .. } => Operation::RemoveXattr { inode: of(inode), name },
            Operation::Sync => Operation::Sync,
            Operation::Room => Operation::Room,
        }
    }

    /// The files that it names, as the model calls them.
    #[must_use]
    pub fn inodes(&self) -> Vec<Inode> {
        let inodes = std::cell::RefCell::new(Vec::new());
        self.operation(|inode| {
            inodes.borrow_mut().push(inode);
            inode
        });
        inodes.into_inner()
    }
}

impl fmt::Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // What the shape says of names and payload is that there are none.
        let shape = format!("{:?}", self.shape);
        let empty = [", name: []", ", from_name: []", ", to_name: []", ", target: []", ", data: []", ", value: []"];
        f.write_str(&empty.iter().fold(shape, |shape, part| shape.replace(part, "")))?;
        if !self.name.is_empty() {
            write!(f, " {}", shown(&self.name))?;
        }
        match self.shape {
            Operation::Rename { .. } | Operation::Symlink { .. } => write!(f, " → {}", shown(&self.payload)),
            Operation::Write { .. } | Operation::SetXattr { .. } => write!(f, " {} bytes", self.payload.len()),
            _ => Ok(()),
        }
    }
}

/// What happens next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FileStep {
    /// An operation. [`Operation::ReadDirectory`] begins at the beginning and goes on to the end.
    Ask(Asked),
    /// Begins a [`Operation::Sync`], or is nothing where one is under way. Other operations go on meanwhile.
    BeginSync,
    /// The next names of a folder, so many at a time; what is asked between two of these steps may change the folder.
    ListSome(Inode, usize),
    /// A file is held once more.
    Hold(Inode),
    /// And once less.
    Release(Inode),
    /// Nothing is asked for so long.
    Idle(Nanos),
}

impl fmt::Display for FileStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FileStep::Ask(asked) => asked.fmt(f),
            FileStep::BeginSync => f.write_str("begin a sync"),
            FileStep::ListSome(inode, entries) => write!(f, "list up to {entries} names of {inode}"),
            FileStep::Hold(inode) => write!(f, "hold {inode}"),
            FileStep::Release(inode) => write!(f, "release {inode}"),
            FileStep::Idle(span) => write!(f, "idle for {span}"),
        }
    }
}

/// Kinds of steps.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Display, EnumCount, EnumString, FromRepr)]
#[strum(serialize_all = "kebab-case")]
#[repr(usize)]
pub enum FileAct {
    /// A regular file.
    Make,
    /// A folder.
    MakeFolder,
    /// A device, pipe or socket.
    MakeSpecial,
    /// A symbolic link.
    Symlink,
    /// One more name.
    Link,
    /// One less.
    Unlink,
    /// An unlink of a file that is held.
    UnlinkHeld,
    /// A folder goes.
    RemoveFolder,
    /// A rename that may replace.
    Rename,
    /// One that may not.
    RenameNoReplace,
    /// Two names exchanged.
    Exchange,
    /// A write within a file or right behind it.
    Write,
    /// A write far behind the end.
    WriteFar,
    /// A read.
    Read,
    /// A size is set.
    Truncate,
    /// Mode, owner, times.
    SetAttributes,
    /// Room for a range.
    Allocate,
    /// A range is punched.
    Punch,
    /// A range is zeroed.
    Zero,
    /// Data or a hole is looked for.
    Seek,
    /// An attribute is set.
    SetXattr,
    /// Or removed.
    RemoveXattr,
    /// Or read, or all are listed.
    ReadXattr,
    /// A name is looked up.
    Lookup,
    /// A whole folder is listed.
    List,
    /// Some of a folder is listed.
    ListSome,
    /// Attributes, the target of a link, room.
    Ask,
    /// A file is held.
    Hold,
    /// A held file is released.
    Release,
    /// A sync that is waited for.
    Sync,
    /// A sync that is not.
    BeginSync,
    /// Nothing for a while.
    Idle,
}

/// How often each kind of step is drawn, relative to the others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileWeights([u32; FileAct::COUNT]);

impl FileWeights {
    /// Some of everything.
    #[must_use]
    pub fn usual() -> FileWeights {
        use FileAct::{Make, MakeFolder, Read, Rename, Sync, Truncate, Unlink, Write};
        let often =
            [(Make, 8), (MakeFolder, 5), (Write, 20), (Read, 6), (Rename, 8), (Unlink, 4), (Truncate, 4), (Sync, 2)];
        often.iter().fold(FileWeights([2; FileAct::COUNT]), |weights, (act, weight)| weights.with(*act, *weight))
    }

    /// Nothing at all, for weights to be given to.
    #[must_use]
    pub fn none() -> FileWeights {
        FileWeights([0; FileAct::COUNT])
    }

    /// The same, but for one kind of step.
    #[must_use]
    pub fn with(mut self, act: FileAct, weight: u32) -> FileWeights {
        self.0[act as usize] = weight;
        self
    }

    /// A kind of step.
    pub(crate) fn draw(&self, dice: &mut Dice) -> FileAct {
        let mut drawn = dice.between(1, self.0.iter().map(|weight| u64::from(*weight)).sum());
        for (number, weight) in self.0.iter().enumerate() {
            match drawn.checked_sub(u64::from(*weight)) {
                Some(rest) if rest > 0 => drawn = rest,
                _ => return FileAct::from_repr(number).expect("a number of an act"),
            }
        }
        unreachable!("what was drawn is at most the sum of the weights")
    }
}

/// Draws steps. See the module.
pub struct FileSteps {
    dice: Dice,
    /// How often each kind is drawn.
    pub weights: FileWeights,
    /// With so many files, files are removed in place of being made.
    pub files_max: usize,
    /// With so many bytes, files are cut off in place of being written.
    pub bytes_max: u64,
    /// Bytes of a write, at most.
    pub write_bytes_max: u64,
    /// Once in so many draws of a file it is any file; 0: never.
    pub mistake_in: u64,
}

/// Names of files and folders alike.
const NAMES: u64 = 10;

/// Names of small files.
const SMALL_NAMES: u64 = 40;

/// Offsets far behind the end are below this.
const FAR_BYTES: u64 = 1 << 32;

impl FileSteps {
    /// Steps that belong to `seed`, for a drive of some MiB.
    #[must_use]
    pub fn new(seed: u64, weights: FileWeights) -> FileSteps {
        let (files_max, bytes_max, write_bytes_max) = (48, 2 << 20, 200 << 10);
        FileSteps { dice: Dice::new(seed), weights, files_max, bytes_max, write_bytes_max, mistake_in: 16 }
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.dice.between(0, bound - 1)
    }

    fn is_mistake(&mut self) -> bool {
        self.mistake_in > 0 && self.dice.once_in(self.mistake_in)
    }

    /// One of the files that `wanted` accepts, or for once any, or one that is gone. The root, if there is none.
    fn file(&mut self, model: &FileModel, wanted: impl Fn(&File) -> bool) -> Inode {
        let mistake = self.is_mistake();
        if mistake && self.dice.once_in(3) {
            return Inode(self.dice.between(1, model.next_inode().0.into()) as u32);
        }
        let files = model.files().filter(|file| mistake || wanted(file));
        let inodes: Vec<Inode> = files.map(|file| file.attributes().inode).collect();
        if inodes.is_empty() { Inode::ROOT } else { self.dice.one_of(&inodes) }
    }

    fn regular(&mut self, model: &FileModel) -> Inode {
        self.file(model, |file| file.bytes().is_some())
    }

    fn folder(&mut self, model: &FileModel) -> Inode {
        let found = self.file(model, |file| file.folder().is_some() && file.attributes().links > 0);
        // What is listed of a folder that is removed is nobody's business.
        let is_removed = model.file(found).is_some_and(|file| file.folder().is_some() && file.attributes().links == 0);
        if is_removed { Inode::ROOT } else { found }
    }

    fn name(&mut self) -> Vec<u8> {
        if self.is_mistake() {
            return vec![b'x'; self.dice.one_of(&[NAME_BYTES_MAX, NAME_BYTES_MAX + 1])];
        }
        match self.dice.once_in(3) {
            true => format!("small-{}", self.below(SMALL_NAMES)).into_bytes(),
            false => vec![b'a' + self.below(NAMES) as u8],
        }
    }

    /// A folder and a name in it that is there, of a file that `wanted` accepts; any name, if there is none.
    fn place(&mut self, model: &FileModel, wanted: impl Fn(&File) -> bool) -> (Inode, Vec<u8>) {
        if !self.is_mistake() {
            let folders = model.files().filter_map(|file| Some((file.attributes().inode, file.folder()?)));
            let names = folders.flat_map(|(parent, folder)| folder.names.iter().map(move |name| (parent, name)));
            let of = |inode| model.file(inode).expect("a name is of a file");
            let names: Vec<_> = names.filter(|(_, (_, name))| wanted(of(name.inode))).collect();
            if !names.is_empty() {
                let (parent, (name, _)) = self.dice.one_of(&names);
                return (parent, name.clone());
            }
        }
        (self.folder(model), self.name())
    }

    fn clock(&mut self) -> FileTime {
        let seconds = self.dice.one_of(&[-5, 0, 1_000_000_000, 1_700_000_000, 1 << 33]);
        FileTime { seconds, nanoseconds: self.below(1_000_000_000) as u32 }
    }

    fn bytes(&mut self, count: u64) -> Vec<u8> {
        // Zeroes are bytes that were written, too.
        if self.dice.once_in(12) {
            return vec![0; count as usize];
        }
        let words = std::iter::repeat_with(|| self.dice.between(0, u64::MAX - 1).to_le_bytes());
        let mut bytes: Vec<u8> = words.take(count.div_ceil(8) as usize).flatten().collect();
        bytes.truncate(count as usize);
        bytes
    }

    fn new_file(&mut self, kind: FileKind) -> NewFile {
        let mode = self.dice.one_of(&[0o644, 0o755, 0o2775, 0o7777, 0]);
        let is_device = matches!(kind, FileKind::CharacterDevice | FileKind::BlockDevice);
        let device = if is_device { self.below(1 << 20) as u32 } else { 0 };
        NewFile { kind, mode, uid: self.below(3) as u32, gid: self.below(3) as u32, device }
    }

    /// How many bytes a request is for: mostly few, and often whole blocks.
    fn size(&mut self, most: u64) -> u64 {
        let size = match self.below(6) {
            0 => 1 + self.below(20),
            1 => self.dice.one_of(&[1, 2, 3, 8]) * BLOCK_BYTES as u64,
            2 | 3 => 1 + self.below(5_000),
            4 => 1 + self.below(40_000),
            _ => 1 + self.below(most),
        };
        size.min(most)
    }

    /// A range in a file or right behind it.
    fn range(&mut self, model: &FileModel, inode: Inode, most: u64) -> (u64, u64) {
        let size = model.file(inode).map_or(0, |file| file.attributes().size);
        // A sparse file is written where it has something: at its beginning or at its end.
        let near = if self.dice.once_in(2) { size.min(self.bytes_max / 8) } else { size };
        let low = if near == size { size.saturating_sub(100_000) } else { 0 };
        let mut offset = match self.below(4) {
            0 => 0,
            1 => near,
            _ => low + self.below(near - low + 1),
        };
        if self.dice.once_in(2) {
            offset -= offset % BLOCK_BYTES as u64;
        }
        (offset, self.size(most))
    }

    fn write(&mut self, model: &FileModel, is_far: bool) -> Asked {
        let inode = self.regular(model);
        let (mut offset, bytes) = self.range(model, inode, self.write_bytes_max);
        if is_far {
            let bits = self.dice.between(13, u64::from(FAR_BYTES.ilog2()));
            offset = self.below(1 << bits);
        }
        if self.is_mistake() {
            offset = u64::MAX - self.below(1 << 20);
        }
        let payload = self.bytes(bytes);
        Asked { payload, ..Asked::of(Operation::Write { inode, offset, data: b"" }) }
    }

    fn truncate(&mut self, model: &FileModel) -> Asked {
        let inode = self.regular(model);
        let (offset, bytes) = self.range(model, inode, self.write_bytes_max);
        let size = match self.below(5) {
            0 => 0,
            1 => offset + bytes,
            2 if self.is_mistake() => u64::MAX,
            _ => offset,
        };
        let changes = Changes { size: Some(size), ..Changes::default() };
        Asked::of(Operation::SetAttributes { inode, changes })
    }

    fn set_attributes(&mut self, model: &FileModel) -> Asked {
        let inode = self.file(model, |_| true);
        let mut changes = Changes { mode: Some(self.below(0o10000) as u16), ..Changes::default() };
        match self.below(4) {
            0 => changes = Changes { uid: Some(self.below(5) as u32), gid: Some(self.below(5) as u32), ..changes },
            1 => {
                let (accessed, modified) = (Some(self.clock()), Some(self.clock()));
                changes = Changes { mode: None, accessed, modified, ..changes };
            }
            2 => changes.changed = Some(self.clock()),
            _ => {}
        }
        Asked::of(Operation::SetAttributes { inode, changes })
    }

    fn xattr_name(&mut self) -> Vec<u8> {
        match self.is_mistake() {
            true => vec![b'y'; self.dice.one_of(&[NAME_BYTES_MAX, NAME_BYTES_MAX + 1])],
            false => format!("user.{}", self.below(4)).into_bytes(),
        }
    }

    fn rename(&mut self, model: &FileModel, how: RenameHow) -> Asked {
        let (from, name) = self.place(model, |_| true);
        let is_onto = how == RenameHow::Exchange || self.dice.once_in(2);
        let (to, payload) = match is_onto {
            // Mostly of the same kind, or it would be refused.
            true => {
                let moved = model.named(from, &name).and_then(|inode| model.file(inode));
                let is_folder = moved.is_some_and(|file| file.folder().is_some());
                let any = how == RenameHow::Exchange || self.dice.once_in(4);
                self.place(model, |file| {
                    let is_empty = file.folder().is_none_or(|folder| folder.names.is_empty());
                    any || file.folder().is_some() == is_folder && is_empty
                })
            }
            false => (self.folder(model), self.name()),
        };
        let shape = Operation::Rename { from, from_name: b"", to, to_name: b"", how };
        Asked { shape, name, payload }
    }

    fn allocate(&mut self, model: &FileModel, how: AllocateHow) -> Asked {
        let inode = self.regular(model);
        let (offset, bytes) = self.range(model, inode, self.write_bytes_max);
        let bytes = if self.is_mistake() { self.dice.one_of(&[0, u64::MAX]) } else { bytes };
        Asked::of(Operation::Allocate { inode, offset, bytes, how })
    }

    /// A kind of step that there is room for, if not this one.
    fn fitting(&mut self, act: FileAct, model: &FileModel) -> FileAct {
        let (files, bytes) = (model.files().count(), model.data_bytes());
        match act {
            FileAct::Make | FileAct::MakeFolder | FileAct::MakeSpecial | FileAct::Symlink
                if files >= self.files_max =>
            {
                self.dice.one_of(&[FileAct::Unlink, FileAct::Unlink, FileAct::RemoveFolder, FileAct::Release])
            }
            FileAct::Write | FileAct::WriteFar if bytes >= self.bytes_max => {
                self.dice.one_of(&[FileAct::Truncate, FileAct::Unlink, FileAct::Punch])
            }
            act => act,
        }
    }

    /// The next step.
    pub fn next(&mut self, model: &FileModel) -> FileStep {
        let keep_size = self.dice.once_in(2);
        let act = self.weights.draw(&mut self.dice);
        self.step(act, keep_size, model)
    }

    /// A step of this kind, or of another one if there is no room for it.
    pub fn of(&mut self, act: FileAct, model: &FileModel) -> FileStep {
        let keep_size = self.dice.once_in(2);
        self.step(act, keep_size, model)
    }

    fn step(&mut self, act: FileAct, keep_size: bool, model: &FileModel) -> FileStep {
        FileStep::Ask(match self.fitting(act, model) {
            FileAct::Make => self.make(model, FileKind::Regular),
            FileAct::MakeFolder => self.make(model, FileKind::Directory),
            FileAct::MakeSpecial => {
                let kinds = [FileKind::Fifo, FileKind::Socket, FileKind::CharacterDevice, FileKind::BlockDevice];
                let kind = self.dice.one_of(&kinds);
                self.make(model, kind)
            }
            FileAct::Symlink => {
                let shape = Operation::Symlink { parent: self.folder(model), name: b"", target: b"", uid: 1, gid: 1 };
                let bytes = if self.dice.once_in(4) { LINK_BYTES_MAX } else { 1 + self.below(100) as usize };
                let bytes = if self.is_mistake() { self.dice.one_of(&[0, LINK_BYTES_MAX + 1]) } else { bytes };
                let letter = b'a' + self.below(26) as u8;
                Asked { shape, name: self.name(), payload: vec![letter; bytes] }
            }
            FileAct::Link => {
                let inode = self.file(model, |file| file.folder().is_none());
                Asked::named(Operation::Link { inode, parent: self.folder(model), name: b"" }, self.name())
            }
            FileAct::Unlink | FileAct::UnlinkHeld if self.is_mistake() => {
                let (parent, name) = self.place(model, |_| true);
                Asked::named(Operation::Unlink { parent, name: b"" }, name)
            }
            FileAct::Unlink => {
                let (parent, name) = self.place(model, |file| file.folder().is_none());
                Asked::named(Operation::Unlink { parent, name: b"" }, name)
            }
            FileAct::UnlinkHeld => {
                let is_held = |file: &File| model.holds(file.attributes().inode) > 0;
                let (parent, name) = self.place(model, |file| file.folder().is_none() && is_held(file));
                Asked::named(Operation::Unlink { parent, name: b"" }, name)
            }
            FileAct::RemoveFolder => {
                let any = self.dice.once_in(4);
                let (parent, name) =
                    self.place(model, |file| file.folder().is_some_and(|folder| any || folder.names.is_empty()));
                Asked::named(Operation::RemoveDirectory { parent, name: b"" }, name)
            }
            FileAct::Rename => self.rename(model, RenameHow::Replace),
            FileAct::RenameNoReplace => self.rename(model, RenameHow::NoReplace),
            FileAct::Exchange => self.rename(model, RenameHow::Exchange),
            FileAct::Write => self.write(model, false),
            FileAct::WriteFar => self.write(model, true),
            FileAct::Read => {
                let inode = self.regular(model);
                let (offset, bytes) = self.range(model, inode, self.write_bytes_max);
                Asked::of(Operation::Read { inode, offset, bytes: bytes as u32 })
            }
            FileAct::Truncate => self.truncate(model),
            FileAct::SetAttributes => self.set_attributes(model),
            FileAct::Allocate => self.allocate(model, AllocateHow::Allocate { keep_size }),
            FileAct::Punch => self.allocate(model, AllocateHow::PunchHole),
            FileAct::Zero => self.allocate(model, AllocateHow::ZeroRange { keep_size }),
            FileAct::Seek => {
                let inode = self.regular(model);
                let (offset, _) = self.range(model, inode, 1);
                let target = if keep_size { SeekFor::Data } else { SeekFor::Hole };
                Asked::of(Operation::Seek { inode, offset, target })
            }
            FileAct::SetXattr => {
                let (inode, how) = (self.file(model, |_| true), [XattrHow::Create, XattrHow::Replace, XattrHow::Set]);
                let shape = Operation::SetXattr { inode, name: b"", value: b"", how: self.dice.one_of(&how) };
                let most = if self.is_mistake() { 2 * BLOCK_BYTES as u64 } else { 600 };
                let bytes = self.below(most);
                Asked { shape, name: self.xattr_name(), payload: self.bytes(bytes) }
            }
            FileAct::RemoveXattr => {
                let inode = self.file(model, |file| !file.xattrs.is_empty());
                Asked::named(Operation::RemoveXattr { inode, name: b"" }, self.xattr_name())
            }
            FileAct::ReadXattr => {
                let inode = self.file(model, |file| !file.xattrs.is_empty());
                match self.dice.once_in(2) {
                    true => Asked::of(Operation::ListXattr { inode }),
                    false => Asked::named(Operation::GetXattr { inode, name: b"" }, self.xattr_name()),
                }
            }
            FileAct::Lookup => {
                let (parent, name) = self.place(model, |_| true);
                let name =
                    if self.dice.once_in(4) { self.dice.one_of(&[b".".as_slice(), b".."]).to_vec() } else { name };
                Asked::named(Operation::Lookup { parent, name: b"" }, name)
            }
            FileAct::List => {
                let (inode, entries) = (self.folder(model), 1 + self.below(20) as usize);
                let with_attributes = self.dice.once_in(2);
                Asked::of(Operation::ReadDirectory { inode, after: 0, entries, with_attributes })
            }
            FileAct::ListSome => return FileStep::ListSome(self.folder(model), 1 + self.below(5) as usize),
            FileAct::Ask => match self.below(3) {
                0 => Asked::of(Operation::Room),
                1 => Asked::of(Operation::Attributes { inode: self.file(model, |_| true) }),
                _ => {
                    let inode = self.file(model, |file| file.attributes().kind == FileKind::Symlink);
                    Asked::of(Operation::ReadLink { inode })
                }
            },
            FileAct::Hold => {
                let inode = self.file(model, |file| file.folder().is_none());
                return FileStep::Hold(if model.file(inode).is_some() { inode } else { Inode::ROOT });
            }
            FileAct::Release => {
                return FileStep::Release(self.file(model, |file| model.holds(file.attributes().inode) > 0));
            }
            FileAct::Sync => Asked::of(Operation::Sync),
            FileAct::BeginSync => return FileStep::BeginSync,
            FileAct::Idle => return FileStep::Idle(Nanos::from_micros(1 << self.below(22))),
        })
    }

    fn make(&mut self, model: &FileModel, kind: FileKind) -> Asked {
        let file = self.new_file(kind);
        Asked::named(Operation::Make { parent: self.folder(model), name: b"", file }, self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use openftl_alfs::FileSystem;
    use openftl_core::Time;
    use rustc_hash::FxHashMap;
    use std::mem::discriminant;

    /// Runs steps on the model. Gives how many operations of a kind were carried out, and how many refused.
    fn play(seed: u64, steps: u32) -> (FileModel, Vec<FileStep>, [usize; 2]) {
        let mut model = FileModel::new(0o755, FileTime::default());
        let mut drawn = FileSteps::new(seed, FileWeights::usual());
        let (mut played, mut kinds) = (Vec::new(), [FxHashMap::default(), FxHashMap::default()]);
        for number in 0..steps {
            let step = drawn.next(&model);
            match &step {
                FileStep::Ask(asked) => {
                    let ticket = model.ticket();
                    let clock = FileTime { seconds: number.into(), nanoseconds: 0 };
                    let reply = model.attempt(Time::ZERO, clock, ticket, &asked.operation(|inode| inode));
                    let is_refused = reply.expect("the model never waits").is_err();
                    *kinds[usize::from(is_refused)].entry(discriminant(&asked.shape)).or_insert(0) += 1;
                }
                FileStep::Hold(inode) => model.hold(*inode, 1),
                FileStep::Release(inode) => _ = model.release(*inode, 1),
                FileStep::BeginSync | FileStep::ListSome(..) | FileStep::Idle(_) => {}
            }
            played.push(step);
        }
        (model, played, kinds.map(|kinds| kinds.len()))
    }

    #[test]
    fn every_operation_is_drawn_so_that_it_can_be_done_and_so_that_it_cannot() {
        let (model, _, [done, refused]) = play(1, 20_000);
        assert_eq!(done, 21, "kinds of operations that were carried out");
        assert!(refused >= 18, "{refused} kinds of operations were refused");
        assert!(model.files().count() > 20);
        let deepest = model.files().map(|file| depth(&model, file)).max();
        assert!(deepest >= Some(4), "{deepest:?}");
    }

    fn depth(model: &FileModel, file: &File) -> u32 {
        match file.folder() {
            Some(folder) if folder.parent != file.attributes().inode => {
                1 + model.file(folder.parent).map_or(0, |parent| depth(model, parent))
            }
            _ => 0,
        }
    }

    #[test]
    fn a_seed_is_a_sequence() {
        assert_eq!(play(7, 500).1, play(7, 500).1);
        assert_ne!(play(7, 500).1, play(8, 500).1);
    }
}
