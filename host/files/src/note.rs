//! The note of a file: what the catalog of the drive keeps of it for us.
//!
//! | bytes | field |
//! |---|---|
//! | 0-3 | magic `OFNT` |
//! | 4 | version |
//! | 5 | kind: 0 table, 1 log, 2 folder |
//! | 6-7 | length of the path |
//! | 8-15 | bytes of the file |
//! | 16-23 | when it was last written, seconds since 1970 |
//! | 24-31 | when it got this name: counts changes of names, so that of two files of one name the later one is known |
//! | 32-35 | extents of the log area |
//! | 36-39 | 0 |
//! | 40- | the path |
//! | behind it, 8 bytes an extent | first block, blocks |

use crate::FileKind;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// `OFNT`, little-endian.
pub const NOTE_MAGIC: u32 = u32::from_le_bytes(*b"OFNT");
/// The version of this layout.
pub const NOTE_VERSION: u8 = 1;

#[derive(FromBytes, IntoBytes, Immutable, Unaligned, KnownLayout, Clone, Copy)]
#[repr(C)]
struct Header {
    magic: U32,
    version: u8,
    kind: u8,
    path: U16,
    bytes: U64,
    modified: U64,
    named: U64,
    extents: U32,
    reserved: U32,
}

const _: () = assert!(size_of::<Header>() == 40);

/// Blocks of the log area that follow each other.
#[derive(FromBytes, IntoBytes, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
struct ExtentBytes {
    first: U32,
    blocks: U32,
}

/// Blocks of the log area that follow each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogExtent {
    /// The first.
    pub first: u32,
    /// How many.
    pub blocks: u32,
}

/// What is kept of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Note {
    /// Where it is found.
    pub path: String,
    /// What it is.
    pub kind: FileKind,
    /// Its size.
    pub bytes: u64,
    /// When it was last written, in seconds since 1970.
    pub modified: u64,
    /// Counts changes of names.
    pub named: u64,
    /// Where it lies in the log area, in its order.
    pub extents: Vec<LogExtent>,
}

/// A note that cannot be read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NoteError {
    /// Of somebody else.
    #[error("a note with magic {0:#010x}, which is of no file")]
    Magic(u32),
    /// Of another version.
    #[error("a note of format version {0}; this program knows {NOTE_VERSION}")]
    Version(u8),
    /// Cut short, or impossible.
    #[error("a note of {0} bytes that makes no sense")]
    Length(usize),
}

impl Note {
    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let header = Header {
            magic: U32::new(NOTE_MAGIC),
            version: NOTE_VERSION,
            kind: self.kind as u8,
            path: U16::new(self.path.len() as u16),
            bytes: U64::new(self.bytes),
            modified: U64::new(self.modified),
            named: U64::new(self.named),
            extents: U32::new(self.extents.len() as u32),
            reserved: U32::ZERO,
        };
        let mut bytes = header.as_bytes().to_vec();
        bytes.extend_from_slice(self.path.as_bytes());
        for LogExtent { first, blocks } in &self.extents {
            bytes.extend_from_slice(ExtentBytes { first: U32::new(*first), blocks: U32::new(*blocks) }.as_bytes());
        }
        bytes
    }

    /// Reads a note.
    ///
    /// # Errors
    /// If it is none.
    pub fn decode(bytes: &[u8]) -> Result<Note, NoteError> {
        let wrong = || NoteError::Length(bytes.len());
        let (header, rest) = Header::ref_from_prefix(bytes).map_err(|_| wrong())?;
        if header.magic.get() != NOTE_MAGIC {
            return Err(NoteError::Magic(header.magic.get()));
        }
        if header.version != NOTE_VERSION {
            return Err(NoteError::Version(header.version));
        }
        let kind = FileKind::from_byte(header.kind).ok_or_else(wrong)?;
        let (path, extents) = rest.split_at_checked(header.path.get().into()).ok_or_else(wrong)?;
        let path = std::str::from_utf8(path).map_err(|_| wrong())?.to_owned();
        if crate::path::normal(&path).as_deref() != Ok(path.as_str()) {
            return Err(wrong());
        }
        let extents = <[ExtentBytes]>::ref_from_bytes_with_elems(extents, header.extents.get() as usize);
        let extent = |extent: &ExtentBytes| LogExtent { first: extent.first.get(), blocks: extent.blocks.get() };
        Ok(Note {
            path,
            kind,
            bytes: header.bytes.get(),
            modified: header.modified.get(),
            named: header.named.get(),
            extents: extents.map_err(|_| wrong())?.iter().map(extent).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note() -> Note {
        Note {
            path: "/db/000012.log".to_owned(),
            kind: FileKind::Log,
            bytes: 123_456,
            modified: 1_790_000_000,
            named: 7,
            extents: vec![LogExtent { first: 3, blocks: 16 }, LogExtent { first: 40, blocks: 32 }],
        }
    }

    #[test]
    fn a_note_survives_its_bytes() {
        assert_eq!(Note::decode(&note().encode()), Ok(note()));
    }

    #[test]
    fn whatever_is_cut_short_or_of_another_is_refused() {
        let bytes = note().encode();
        for length in 0..bytes.len() {
            assert!(Note::decode(&bytes[..length]).is_err(), "{length} bytes");
        }
        let changed = |at: usize, value: u8| {
            let mut bytes = bytes.clone();
            bytes[at] = value;
            Note::decode(&bytes)
        };
        assert_eq!(changed(4, 2), Err(NoteError::Version(2)));
        assert!(matches!(changed(0, 0), Err(NoteError::Magic(_))));
        assert!(changed(5, 9).is_err(), "no such kind");
        assert!(changed(40, b'x').is_err(), "a path that is not absolute");
    }
}
