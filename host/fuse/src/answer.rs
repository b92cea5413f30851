//! Answers: the bytes of a reply, and the references that the kernel gets with them.

use crate::wire;
use openftl_alfs::{Attributes, Data, Entry, FileKind, FileSystem, Inode, NewFile, Room};
use rustix::io::Errno;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Seconds that the kernel may remember names, attributes and that there is no file of a name: all changes go through the same kernel, so it
/// knows of each.
pub const VALID_SECONDS: u64 = 365 * 24 * 3600;

/// Bytes before the body of each reply.
const HEAD_BYTES: usize = size_of::<wire::OutHeader>();

/// A reply as it is written to the device, in one piece. Its memory is used again for the next one.
#[derive(Default, Debug)]
pub struct Answer {
    bytes: Vec<u8>,
    /// Files that the kernel knows once more, with this reply.
    pub(crate) looked_up: Vec<Inode>,
    /// The file that the kernel has open once more, with this reply.
    pub(crate) opened: Option<Inode>,
    /// The file whose attributes the kernel has to ask for again.
    pub(crate) changed: Option<Inode>,
}

impl Answer {
    /// The reply. Empty: the request has none.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// A notification that is written to the device before the reply: attributes that the kernel remembers are not those of the file any more.
    #[must_use]
    pub fn notice(&self) -> Option<[u8; wire::NOTICE_BYTES]> {
        let inode = self.changed?;
        let head = wire::OutHeader {
            len: (wire::NOTICE_BYTES as u32).into(),
            error: wire::NOTIFY_INVAL_INODE.into(),
            unique: 0.into(),
        };
        let body = wire::NotifyInvalInodeOut { ino: u64::from(inode.0).into(), off: (-1).into(), len: 0.into() };
        let mut bytes = [0; wire::NOTICE_BYTES];
        let (first, rest) = bytes.split_at_mut(HEAD_BYTES);
        first.copy_from_slice(head.as_bytes());
        rest.copy_from_slice(body.as_bytes());
        Some(bytes)
    }

    /// The error of the reply; `None` if it has none, or there is no reply.
    #[must_use]
    pub fn errno(&self) -> Option<Errno> {
        let (head, _) = wire::OutHeader::read_from_prefix(&self.bytes).ok()?;
        (head.error.get() != 0).then(|| Errno::from_raw_os_error(-head.error.get()))
    }

    /// What follows the header of the reply.
    #[must_use]
    pub fn body(&self) -> &[u8] {
        self.bytes.get(HEAD_BYTES..).unwrap_or_default()
    }

    /// No reply.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.looked_up.clear();
        self.opened = None;
        self.changed = None;
    }

    /// A reply without a body; `push` and its like append to it.
    pub(crate) fn start(&mut self, unique: u64) {
        self.clear();
        self.push(&wire::OutHeader { len: (HEAD_BYTES as u32).into(), error: 0.into(), unique: unique.into() });
    }

    pub(crate) fn refuse(&mut self, unique: u64, errno: Errno) {
        self.start(unique);
        self.head().error = (-errno.raw_os_error()).into();
    }

    /// An error to the same request instead.
    pub(crate) fn fail(&mut self, errno: Errno) {
        let unique = self.head().unique.get();
        self.refuse(unique, errno);
    }

    /// Has the header agree with what follows it.
    pub(crate) fn finish(&mut self) {
        let bytes = self.bytes.len() as u32;
        self.head().len = bytes.into();
    }

    fn head(&mut self) -> &mut wire::OutHeader {
        wire::OutHeader::mut_from_prefix(&mut self.bytes).expect("each reply starts with its header").0
    }

    pub(crate) fn push<T: IntoBytes + Immutable>(&mut self, layout: &T) {
        self.bytes.extend_from_slice(layout.as_bytes());
    }

    pub(crate) fn push_bytes(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Gathers the bytes of a read: the only copy of them in this process.
    pub(crate) fn push_data<F: FileSystem + ?Sized>(&mut self, fs: &F, data: &Data) {
        let end = self.bytes.len() + data.bytes as usize;
        self.bytes.reserve(data.bytes as usize);
        fs.data(data, &mut |piece| self.bytes.extend_from_slice(piece));
        assert_eq!(self.bytes.len(), end, "the pieces of a read are as long as the read");
    }

    /// A listing, as far as the entries fit into `room` bytes. Those with attributes count as looked up.
    pub(crate) fn push_entries(&mut self, entries: &[Entry], with_attributes: bool, room: usize) {
        let end = self.bytes.len() + room;
        for entry in entries {
            let start = self.bytes.len();
            let lead = if with_attributes { size_of::<wire::EntryOut>() } else { 0 };
            let bytes = (lead + size_of::<wire::Dirent>() + entry.name.len()).next_multiple_of(8);
            if start + bytes > end {
                break;
            }
            if with_attributes {
                // Without attributes the kernel takes the name alone.
                self.push(&entry.attributes.as_ref().map_or_else(no_entry, entry_out));
                self.looked_up.extend(entry.attributes.as_ref().map(|attributes| attributes.inode));
            }
            self.push(&wire::Dirent {
                ino: u64::from(entry.inode.0).into(),
                off: entry.cookie.into(),
                namelen: (entry.name.len() as u32).into(),
                kind: (type_bits(entry.kind) >> 12).into(),
            });
            self.push_bytes(&entry.name);
            self.bytes.resize(start + bytes, 0);
        }
    }
}

/// There is no file of this name, and the kernel may remember that.
pub(crate) fn no_entry() -> wire::EntryOut {
    let mut entry: wire::EntryOut = zerocopy::FromZeros::new_zeroed();
    entry.entry_valid = VALID_SECONDS.into();
    entry
}

pub(crate) fn entry_out(attributes: &Attributes) -> wire::EntryOut {
    wire::EntryOut {
        nodeid: u64::from(attributes.inode.0).into(),
        generation: u64::from(attributes.generation).into(),
        entry_valid: VALID_SECONDS.into(),
        attr_valid: VALID_SECONDS.into(),
        entry_valid_nsec: 0.into(),
        attr_valid_nsec: 0.into(),
        attr: attr(attributes),
    }
}

pub(crate) fn attr_out(attributes: &Attributes) -> wire::AttrOut {
    wire::AttrOut {
        attr_valid: VALID_SECONDS.into(),
        attr_valid_nsec: 0.into(),
        dummy: 0.into(),
        attr: attr(attributes),
    }
}

fn attr(attributes: &Attributes) -> wire::Attr {
    // Times before 1970 are below zero: the kernel reads these fields with a sign.
    let seconds = |seconds: i64| seconds.cast_unsigned().into();
    wire::Attr {
        ino: u64::from(attributes.inode.0).into(),
        size: attributes.size.into(),
        blocks: (attributes.blocks * 8).into(),
        atime: seconds(attributes.accessed.seconds),
        mtime: seconds(attributes.modified.seconds),
        ctime: seconds(attributes.changed.seconds),
        atimensec: attributes.accessed.nanoseconds.into(),
        mtimensec: attributes.modified.nanoseconds.into(),
        ctimensec: attributes.changed.nanoseconds.into(),
        mode: (type_bits(attributes.kind) | u32::from(attributes.mode)).into(),
        nlink: attributes.links.into(),
        uid: attributes.uid.into(),
        gid: attributes.gid.into(),
        rdev: attributes.device.into(),
        blksize: 4096.into(),
        flags: 0.into(),
    }
}

pub(crate) fn statfs_out(room: &Room) -> wire::StatfsOut {
    wire::StatfsOut {
        blocks: room.blocks.into(),
        bfree: room.free.into(),
        bavail: room.free.into(),
        files: room.files.into(),
        ffree: room.files_free.into(),
        bsize: 4096.into(),
        namelen: (openftl_alfs::operation::NAME_BYTES_MAX as u32).into(),
        frsize: 4096.into(),
        padding: 0.into(),
        spare: Default::default(),
    }
}

/// The kind of a file as the upper bits of its mode.
fn type_bits(kind: FileKind) -> u32 {
    match kind {
        FileKind::Regular => wire::file_type::REGULAR,
        FileKind::Directory => wire::file_type::DIRECTORY,
        FileKind::Symlink => wire::file_type::SYMLINK,
        FileKind::Fifo => wire::file_type::FIFO,
        FileKind::Socket => wire::file_type::SOCKET,
        FileKind::CharacterDevice => wire::file_type::CHARACTER_DEVICE,
        FileKind::BlockDevice => wire::file_type::BLOCK_DEVICE,
    }
}

/// The file that a `MKNOD` or `CREATE` makes.
pub(crate) fn new_file(mode: u32, device: u32, uid: u32, gid: u32) -> Result<NewFile, Errno> {
    let kind = match mode & wire::file_type::MASK {
        0 | wire::file_type::REGULAR => FileKind::Regular,
        wire::file_type::FIFO => FileKind::Fifo,
        wire::file_type::SOCKET => FileKind::Socket,
        wire::file_type::CHARACTER_DEVICE => FileKind::CharacterDevice,
        wire::file_type::BLOCK_DEVICE => FileKind::BlockDevice,
        _ => return Err(Errno::INVAL),
    };
    let device = if matches!(kind, FileKind::CharacterDevice | FileKind::BlockDevice) { device } else { 0 };
    Ok(NewFile { kind, mode: permissions(mode), uid, gid, device })
}

/// The lower 12 bits of a mode.
pub(crate) fn permissions(mode: u32) -> u16 {
    (mode & 0o7777) as u16
}
