//! What a host may ask of a file system, and what it is told.
//!
//! An operation is a value that its caller keeps. The caller *attempts* it: either it is over, with a reply, or something has to be read or written
//! first, and the caller attempts the same operation again after [`FileSystem::poll`]. Nothing of an operation has happened until it is over, but for
//! reads and syncs that are under way, which the file system knows by the operation's [`Ticket`]. So an operation needs no memory of the file system,
//! and its payload is borrowed, not copied, while it waits.

use openftl_core::Time;
use std::fmt;

/// The number of a file, as `stat` shows it. It may be reused when the file is gone; [`Attributes::generation`] tells the two apart.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Inode(pub u32);

impl Inode {
    /// The root folder.
    pub const ROOT: Inode = Inode(1);
}

impl fmt::Display for Inode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Bytes of a name, at most.
pub const NAME_BYTES_MAX: usize = 255;

/// Bytes of the target of a symbolic link, at most.
pub const LINK_BYTES_MAX: usize = 4095;

/// Links to a file, at most.
pub const LINKS_MAX: u32 = 65_000;

/// Bytes of an operation's payload, at most.
pub const PAYLOAD_BYTES_MAX: usize = 1 << 20;

/// What a file is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum FileKind {
    /// A file with bytes.
    Regular = 1,
    /// A folder.
    Directory = 2,
    /// A symbolic link.
    Symlink = 3,
    /// A named pipe.
    Fifo = 4,
    /// A socket.
    Socket = 5,
    /// A character device.
    CharacterDevice = 6,
    /// A block device.
    BlockDevice = 7,
}

impl FileKind {
    /// The kind with this number.
    #[must_use]
    pub fn from_number(number: u8) -> Option<FileKind> {
        Some(match number {
            1 => FileKind::Regular,
            2 => FileKind::Directory,
            3 => FileKind::Symlink,
            4 => FileKind::Fifo,
            5 => FileKind::Socket,
            6 => FileKind::CharacterDevice,
            7 => FileKind::BlockDevice,
            _ => return None,
        })
    }
}

/// A time of a file: seconds since 1970 and nanoseconds, 0 to 999,999,999.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct FileTime {
    /// Seconds; before 1970 below zero.
    pub seconds: i64,
    /// Nanoseconds after that.
    pub nanoseconds: u32,
}

/// What is known of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attributes {
    /// Its number.
    pub inode: Inode,
    /// How often the number had been used before.
    pub generation: u32,
    /// What it is.
    pub kind: FileKind,
    /// Permissions with set-user-ID, set-group-ID and sticky bits: 12 bits.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Names that it has; a folder has its own and one of each folder in it.
    pub links: u32,
    /// Bytes of a regular file or link; a folder's are those of its blocks.
    pub size: u64,
    /// 4 KiB blocks on media for it, those of its nodes included.
    pub blocks: u64,
    /// Device number of a device.
    pub device: u32,
    /// When it was last read, roughly.
    pub accessed: FileTime,
    /// When its bytes last changed.
    pub modified: FileTime,
    /// When these attributes last changed.
    pub changed: FileTime,
    /// When it was made.
    pub born: FileTime,
}

/// What is to change of a file's attributes; `None` stays.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Changes {
    /// The 12 bits.
    pub mode: Option<u16>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Bytes; what is new reads as zeroes.
    pub size: Option<u64>,
    /// When it was last read.
    pub accessed: Option<FileTime>,
    /// When its bytes last changed.
    pub modified: Option<FileTime>,
    /// When its attributes last changed; without it that is now.
    pub changed: Option<FileTime>,
}

/// Of a file that is to be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewFile {
    /// What it is to be: everything but [`FileKind::Symlink`], which is made by [`Operation::Symlink`].
    pub kind: FileKind,
    /// The 12 bits. In a folder with the set-group-ID bit a new folder has it, too.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group; in a folder with the set-group-ID bit it is the folder's.
    pub gid: u32,
    /// Device number of a device.
    pub device: u32,
}

/// What a rename does to a file that has the new name already.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RenameHow {
    /// It loses the name.
    Replace,
    /// The rename is refused.
    NoReplace,
    /// It gets the old name; there has to be one.
    Exchange,
}

/// What becomes of a range of a file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AllocateHow {
    /// There is room for it now. A log cannot keep room for a place in a file, so this does not promise that there is later.
    Allocate {
        /// The file does not grow.
        keep_size: bool,
    },
    /// It is a hole. The file does not grow.
    PunchHole,
    /// It reads as zeroes.
    ZeroRange {
        /// The file does not grow.
        keep_size: bool,
    },
}

/// What a seek looks for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SeekFor {
    /// Bytes that were written.
    Data,
    /// Bytes that were not, or the end.
    Hole,
}

/// Whether an extended attribute may be there before.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum XattrHow {
    /// It may.
    Set,
    /// It must not.
    Create,
    /// It has to be.
    Replace,
}

/// What a host may ask. Names are bytes without `/` and NUL, and neither `.` nor `..`, unless an operation says otherwise.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation<'a> {
    /// The file of this name: [`Reply::Attributes`]. `.` and `..` are the folder and its parent.
    Lookup {
        /// The folder.
        parent: Inode,
        /// The name.
        name: &'a [u8],
    },
    /// [`Reply::Attributes`].
    Attributes {
        /// The file.
        inode: Inode,
    },
    /// [`Reply::Attributes`] with the changes.
    SetAttributes {
        /// The file.
        inode: Inode,
        /// What is to change.
        changes: Changes,
    },
    /// [`Reply::Bytes`]: the target of a symbolic link.
    ReadLink {
        /// The link.
        inode: Inode,
    },
    /// [`Reply::Attributes`] of a new file.
    Make {
        /// The folder.
        parent: Inode,
        /// The name.
        name: &'a [u8],
        /// What is to be made.
        file: NewFile,
    },
    /// [`Reply::Attributes`] of a new symbolic link.
    Symlink {
        /// The folder.
        parent: Inode,
        /// The name.
        name: &'a [u8],
        /// 1 to [`LINK_BYTES_MAX`] bytes without NUL.
        target: &'a [u8],
        /// Owner.
        uid: u32,
        /// Group.
        gid: u32,
    },
    /// [`Reply::Attributes`] of a file that has one name more.
    Link {
        /// The file; no folder.
        inode: Inode,
        /// The folder.
        parent: Inode,
        /// The name.
        name: &'a [u8],
    },
    /// [`Reply::Done`]: a file that is no folder has one name less. One without a name is gone when nobody [holds](FileSystem::hold) it.
    Unlink {
        /// The folder.
        parent: Inode,
        /// The name.
        name: &'a [u8],
    },
    /// [`Reply::Done`]: an empty folder is gone, or as soon as nobody holds it.
    RemoveDirectory {
        /// The folder that it is in.
        parent: Inode,
        /// The name.
        name: &'a [u8],
    },
    /// [`Reply::Done`].
    Rename {
        /// The folder that the file is in.
        from: Inode,
        /// Its name there.
        from_name: &'a [u8],
        /// The folder that it is to be in.
        to: Inode,
        /// Its name there.
        to_name: &'a [u8],
        /// What becomes of a file of that name.
        how: RenameHow,
    },
    /// [`Reply::Data`]: bytes of a regular file, fewer at its end.
    Read {
        /// The file.
        inode: Inode,
        /// First byte.
        offset: u64,
        /// How many, up to [`PAYLOAD_BYTES_MAX`].
        bytes: u32,
    },
    /// [`Reply::Done`]: all of the bytes are written, or none.
    Write {
        /// A regular file.
        inode: Inode,
        /// First byte.
        offset: u64,
        /// Up to [`PAYLOAD_BYTES_MAX`].
        data: &'a [u8],
    },
    /// [`Reply::Done`].
    Allocate {
        /// A regular file.
        inode: Inode,
        /// First byte.
        offset: u64,
        /// How many; at least one.
        bytes: u64,
        /// What becomes of them.
        how: AllocateHow,
    },
    /// [`Reply::Offset`].
    Seek {
        /// A regular file.
        inode: Inode,
        /// From here on.
        offset: u64,
        /// What is looked for.
        target: SeekFor,
    },
    /// [`Reply::Entries`]: some names in a folder, `.` and `..` among them; none: there are no more.
    ReadDirectory {
        /// The folder.
        inode: Inode,
        /// Behind this one: the [`Entry::cookie`] of an entry; 0: from the beginning. An entry keeps its cookie as long as it is there, and no
        /// entry that is there all the time is missed or comes twice.
        after: u64,
        /// How many, at most.
        entries: usize,
        /// Whether each is to come with its attributes.
        with_attributes: bool,
    },
    /// [`Reply::Bytes`]: the value of an extended attribute.
    GetXattr {
        /// The file.
        inode: Inode,
        /// The name of the attribute, with its namespace.
        name: &'a [u8],
    },
    /// [`Reply::Done`].
    SetXattr {
        /// The file.
        inode: Inode,
        /// The name of the attribute.
        name: &'a [u8],
        /// The value. All attributes of a file have to fit into one block.
        value: &'a [u8],
        /// Whether it may be there.
        how: XattrHow,
    },
    /// [`Reply::Bytes`]: the names of all extended attributes, with a NUL behind each.
    ListXattr {
        /// The file.
        inode: Inode,
    },
    /// [`Reply::Done`].
    RemoveXattr {
        /// The file.
        inode: Inode,
        /// The name of the attribute.
        name: &'a [u8],
    },
    /// [`Reply::Done`] when everything that was over before the first attempt survives a power cut: `fsync`, `fdatasync` and `syncfs` alike.
    Sync,
    /// [`Reply::Room`].
    Room,
}

/// A name in a folder.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The file.
    pub inode: Inode,
    /// What it is.
    pub kind: FileKind,
    /// Where it is; goes into [`Operation::ReadDirectory`].
    pub cookie: u64,
    /// Its name.
    pub name: Vec<u8>,
    /// Its attributes, if they were asked for; never of `.` and `..`.
    pub attributes: Option<Attributes>,
}

/// Room of a file system, in 4 KiB blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Room {
    /// Blocks that files and their nodes can have: the reserve for cleaning is not among them.
    pub blocks: u64,
    /// Of those, blocks that nothing has.
    pub free: u64,
    /// Files that there can be.
    pub files: u64,
    /// Files that can still be made.
    pub files_free: u64,
}

/// Bytes of a read. The caller looks at them ([`FileSystem::data`]) and gives them back ([`FileSystem::give_back`]).
#[derive(PartialEq, Eq, Debug)]
#[must_use = "the memory of the bytes has to be given back"]
pub struct Data {
    /// Whose they are.
    pub ticket: Ticket,
    /// How many.
    pub bytes: u32,
}

/// How an operation ended.
#[derive(PartialEq, Eq, Debug)]
#[must_use]
pub enum Reply {
    /// There is nothing to be said.
    Done,
    /// A file.
    Attributes(Attributes),
    /// The target of a link, an extended attribute, names of those.
    Bytes(Vec<u8>),
    /// Bytes of a file.
    Data(Data),
    /// An offset in a file.
    Offset(u64),
    /// Names in a folder.
    Entries(Vec<Entry>),
    /// Room.
    Room(Room),
}

/// Why an operation is refused. Nothing of it has happened. The names are those of `errno`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum Refusal {
    /// `ENOENT`
    #[error("there is no file of this name")]
    NotFound,
    /// `ESTALE`
    #[error("there is no file with this inode number")]
    Stale,
    /// `EEXIST`
    #[error("there is a file of this name")]
    Exists,
    /// `ENOTDIR`
    #[error("the file is no folder")]
    NotADirectory,
    /// `EISDIR`
    #[error("the file is a folder")]
    IsADirectory,
    /// `ENOTEMPTY`
    #[error("the folder is not empty")]
    NotEmpty,
    /// `EINVAL`
    #[error("this cannot be asked of such a file")]
    Invalid,
    /// `EPERM`
    #[error("this is not permitted for such a file")]
    NotPermitted,
    /// `ENAMETOOLONG`
    #[error("a name has at most {NAME_BYTES_MAX} bytes, and the target of a link {LINK_BYTES_MAX}")]
    NameTooLong,
    /// `EMLINK`
    #[error("a file has at most {LINKS_MAX} links")]
    TooManyLinks,
    /// `EFBIG`
    #[error("the file would be larger than a file can be")]
    TooBig,
    /// `ENOSPC`
    #[error("the file system is full")]
    NoRoom,
    /// `EROFS`
    #[error("the file system is mounted read-only")]
    ReadOnly,
    /// `ENODATA`
    #[error("the file has no such extended attribute")]
    NoXattr,
    /// `E2BIG`
    #[error("the extended attribute is longer than one can be")]
    XattrTooBig,
    /// `ENXIO`
    #[error("there is no such offset")]
    NoSuchOffset,
    /// `EIO`: the medium lost it, or it is not what was written.
    #[error("the device does not return what was written")]
    Device,
}

/// Names an operation between its attempts. See [`FileSystem::ticket`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Ticket(pub u64);

/// A file system, seen from a host interface.
pub trait FileSystem {
    /// A ticket for one operation.
    fn ticket(&mut self) -> Ticket;

    /// Attempts an operation. `None`: it waits; attempt the same again after [`FileSystem::poll`].
    ///
    /// `clock` is the time of day, for the times of files.
    fn attempt(
        &mut self,
        now: Time,
        clock: FileTime,
        ticket: Ticket,
        operation: &Operation<'_>,
    ) -> Option<Result<Reply, Refusal>>;

    /// An operation that waits will not be attempted again: its host is gone.
    fn abandon(&mut self, ticket: Ticket);

    /// Lets the file system and its device work. Returns whether an operation that waits should be attempted again.
    fn poll(&mut self, now: Time) -> bool;

    /// When to poll again, if there is work under way. A time not after `now` means at once.
    fn next_due(&self) -> Option<Time>;

    /// The bytes of a read, as pieces of at most a block.
    fn data(&self, data: &Data, piece: &mut dyn FnMut(&[u8]));

    /// The caller has looked at the bytes.
    fn give_back(&mut self, data: Data);

    /// Somebody has `inode` open, or knows its number (so many times more): it stays when it has no name any more.
    fn hold(&mut self, inode: Inode, times: u64);

    /// So many of those do no longer. Returns `false`, and has released all, if there were not so many.
    fn release(&mut self, inode: Inode, times: u64) -> bool;
}
