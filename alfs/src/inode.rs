//! The node of a file: its attributes, and its contents or where they are.
//!
//! ```text
//!   0        32           160                                   4076      4096
//!   [ header ][ attributes ][ addresses of 979 blocks            ][ 5 nodes ]
//!                           [ or 3916 bytes of contents, or names ]
//!                                                                   direct, direct, indirect, indirect, double indirect
//! ```

use crate::block::{Bytes, HEADER_BYTES, number_at, put_number};
use crate::operation::{Attributes, FileKind, FileTime, Inode};
use zerocopy::byteorder::little_endian::{I64, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// A time on media.
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable, Unaligned, Debug)]
#[repr(C)]
pub struct TimeField {
    seconds: I64,
    nanoseconds: U32,
}

impl From<FileTime> for TimeField {
    fn from(time: FileTime) -> TimeField {
        TimeField { seconds: time.seconds.into(), nanoseconds: time.nanoseconds.into() }
    }
}

impl From<TimeField> for FileTime {
    fn from(field: TimeField) -> FileTime {
        FileTime { seconds: field.seconds.get(), nanoseconds: field.nanoseconds.get() }
    }
}

/// The contents of the file are in its node.
pub const IS_INLINE: u8 = 1;

/// Attributes on media.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, Unaligned, KnownLayout, Debug)]
#[repr(C)]
pub struct Fields {
    /// What the file is.
    pub kind: u8,
    /// [`IS_INLINE`].
    pub flags: u8,
    /// The 12 bits.
    pub mode: U16,
    /// Owner.
    pub uid: U32,
    /// Group.
    pub gid: U32,
    /// Names.
    pub links: U32,
    /// Different in each use of this number.
    pub generation: U32,
    /// Device number.
    pub device: U32,
    /// The folder that the file is in; of a file with several names one of them.
    pub parent: U32,
    /// The node with the extended attributes, or 0.
    pub xattrs: U32,
    /// Bytes.
    pub size: U64,
    /// Blocks with contents, and nodes.
    pub blocks: U64,
    /// When it was last read.
    pub accessed: TimeField,
    /// When its contents last changed.
    pub modified: TimeField,
    /// When its attributes last changed.
    pub changed: TimeField,
    /// When it was made.
    pub born: TimeField,
    /// Of a folder: names in it, without `.` and `..`.
    pub entries: U32,
    /// Of a folder: levels of its blocks.
    pub levels: u8,
    zero: [u8; 27],
}

/// Where the area of contents begins.
pub const AREA: usize = HEADER_BYTES + size_of::<Fields>();

/// Addresses in a node of a file.
pub const ADDRESSES: usize = 979;

/// Bytes of contents in a node of a file.
pub const INLINE_BYTES: usize = ADDRESSES * 4;

/// Where the numbers of further nodes are.
pub const NODES: usize = AREA + INLINE_BYTES;

/// How many: direct, direct, indirect, indirect, double indirect.
pub const NODE_COUNT: usize = 5;

const _: () = assert!(AREA == 160 && NODES + NODE_COUNT * 4 == size_of::<Bytes>());

/// The attributes of a node of a file.
#[must_use]
pub fn fields(bytes: &Bytes) -> &Fields {
    Fields::ref_from_prefix(&bytes[HEADER_BYTES..]).expect("a block has room for them").0
}

/// The same, to be changed.
pub fn fields_mut(bytes: &mut Bytes) -> &mut Fields {
    Fields::mut_from_prefix(&mut bytes[HEADER_BYTES..]).expect("a block has room for them").0
}

/// The contents of a file that has them in its node.
#[must_use]
pub fn inline(bytes: &Bytes) -> &[u8] {
    &bytes[AREA..NODES]
}

/// The same, to be changed.
pub fn inline_mut(bytes: &mut Bytes) -> &mut [u8] {
    &mut bytes[AREA..NODES]
}

/// The number of node `which` of a file, or 0.
#[must_use]
pub fn node(bytes: &Bytes, which: usize) -> u32 {
    number_at(bytes, NODES + 4 * which)
}

/// Sets it.
pub fn set_node(bytes: &mut Bytes, which: usize, node: u32) {
    put_number(bytes, NODES + 4 * which, node);
}

impl Fields {
    /// What the file is, if that is known.
    #[must_use]
    pub fn kind(&self) -> Option<FileKind> {
        FileKind::from_number(self.kind)
    }

    /// Whether the contents are in the node.
    #[must_use]
    pub fn is_inline(&self) -> bool {
        self.flags & IS_INLINE != 0
    }

    /// Whether it is a folder.
    #[must_use]
    pub fn is_directory(&self) -> bool {
        self.kind == FileKind::Directory as u8
    }

    /// Attributes as hosts see them.
    #[must_use]
    pub fn attributes(&self, inode: Inode) -> Attributes {
        Attributes {
            inode,
            generation: self.generation.get(),
            kind: self.kind().unwrap_or(FileKind::Regular),
            mode: self.mode.get(),
            uid: self.uid.get(),
            gid: self.gid.get(),
            links: self.links.get(),
            size: self.size.get(),
            blocks: self.blocks.get(),
            device: self.device.get(),
            accessed: self.accessed.into(),
            modified: self.modified.into(),
            changed: self.changed.into(),
            born: self.born.into(),
        }
    }
}
