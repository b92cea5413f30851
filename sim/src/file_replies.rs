//! The replies of a file system beside those of the model.

use crate::file_model::FileModel;
use crate::portrait::shown;
use openftl_alfs::operation::{Operation, Reply};
use openftl_alfs::{Attributes, Changes, Entry, FileKind, FileTime, Inode, Refusal, Room};
use openftl_core::BLOCK_BYTES;
use rustc_hash::{FxHashMap, FxHashSet};

/// Bytes of extended attributes of a file that every file system has room for.
pub const XATTR_BYTES_SURE: usize = 3_000;

/// In what a file system may differ from the model.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Leniency {
    /// It may be full, and then refuse what needs room.
    pub may_be_full: bool,
    /// When a regular file was last read may be known roughly, or not at all. It is compared otherwise.
    pub accessed_is_rough: bool,
}

/// Which file of the one is which of the other. Numbers of files that are gone stay known until a new file has them.
#[derive(Default)]
pub(crate) struct Inodes {
    subjects: FxHashMap<Inode, Inode>,
    models: FxHashMap<Inode, Inode>,
    /// Numbers that were given, with their generations.
    given: FxHashSet<(Inode, u32)>,
}

impl Inodes {
    /// The number that the file system has for a file of the model; `None`: it has none, or has given it to another file since.
    pub fn subject(&self, inode: Inode) -> Option<Inode> {
        self.subjects.get(&inode).copied().filter(|subject| self.models.get(subject) == Some(&inode))
    }

    /// The two are one file.
    pub fn pair(&mut self, model: &FileModel, inode: Inode, found: &Attributes) -> Result<(), String> {
        let subject = found.inode;
        if let Some(other) = self.models.get(&subject).filter(|other| **other != inode && model.file(**other).is_some())
        {
            return Err(format!(
                "inode number {subject} is given to a new file, and is that of file {other} of the model"
            ));
        }
        if !self.given.insert((subject, found.generation)) {
            return Err(format!("inode number {subject} is given twice with generation {}", found.generation));
        }
        self.subjects.insert(inode, subject);
        self.models.insert(subject, inode);
        Ok(())
    }

    pub fn attributes(&self, leniency: Leniency, found: &Attributes, expected: &Attributes) -> Result<(), String> {
        let is_folder = expected.kind == FileKind::Directory;
        let compares_accessed = !leniency.accessed_is_rough && expected.kind == FileKind::Regular;
        let expected = Attributes {
            inode: self.subject(expected.inode).unwrap_or(Inode(0)),
            generation: found.generation,
            size: if is_folder { found.size } else { expected.size },
            blocks: found.blocks,
            accessed: if compares_accessed { expected.accessed } else { found.accessed },
            ..*expected
        };
        match *found == expected {
            true => Ok(()),
            false => Err(format!("expected {expected:?}\n   found {found:?}")),
        }
    }

    pub fn entry(&self, model: &FileModel, leniency: Leniency, folder: Inode, found: &Entry) -> Result<(), String> {
        let name = shown(&found.name);
        let Some(inode) = model.named(folder, &found.name) else {
            return Err(format!("{name} is listed and not there"));
        };
        let file = model.file(inode).expect("a name is of a file").attributes();
        if self.subject(inode) != Some(found.inode) || file.kind != found.kind {
            return Err(format!("{name} is {:?}, and is listed as {found:?}", (self.subject(inode), file.kind)));
        }
        match &found.attributes {
            Some(attributes) => self.attributes(leniency, attributes, &file),
            None => Ok(()),
        }
    }

    /// Whether two replies are the same.
    pub fn reply(
        &mut self,
        model: &FileModel,
        leniency: Leniency,
        operation: &Operation<'_>,
        found: &Reply,
        expected: &Reply,
    ) -> Result<(), String> {
        match (found, expected) {
            (Reply::Attributes(found), Reply::Attributes(expected)) => {
                if matches!(operation, Operation::Make { .. } | Operation::Symlink { .. }) {
                    self.pair(model, expected.inode, found)?;
                }
                self.attributes(leniency, found, expected)
            }
            (Reply::Bytes(found), Reply::Bytes(expected)) if matches!(operation, Operation::ListXattr { .. }) => {
                let sorted = |names: &[u8]| {
                    let mut names: Vec<Vec<u8>> =
                        names.split_inclusive(|byte| *byte == 0).map(<[u8]>::to_vec).collect();
                    names.sort_unstable();
                    names
                };
                match sorted(found) == sorted(expected) {
                    true => Ok(()),
                    false => Err(format!("expected {}, found {}", expected.escape_ascii(), found.escape_ascii())),
                }
            }
            (Reply::Bytes(found), Reply::Bytes(expected)) => same_bytes(found, expected),
            (Reply::Room(Room { blocks, free, files, files_free }), Reply::Room(_)) => {
                match free <= blocks && files_free <= files {
                    true => Ok(()),
                    false => Err(format!("{found:?} is free")),
                }
            }
            (found, expected) if found == expected => Ok(()),
            (found, expected) => Err(format!("expected {expected:?}, found {found:?}")),
        }
    }
}

fn same_bytes(found: &[u8], expected: &[u8]) -> Result<(), String> {
    if found.len() != expected.len() {
        return Err(format!("expected {} bytes, found {}", expected.len(), found.len()));
    }
    let Some(first) = found.iter().zip(expected).position(|(found, expected)| found != expected) else { return Ok(()) };
    let end = found.len().min(first + 16);
    let count = found.iter().zip(expected).filter(|(found, expected)| found != expected).count();
    let block = first / BLOCK_BYTES;
    Err(format!(
        "{count} of {} bytes differ, the first is byte {first} in block {block} of the reply: expected {:02x?}, found {:02x?}",
        found.len(),
        &expected[first..end],
        &found[first..end]
    ))
}

/// Whether an operation may find a file system full. What removes something, and what changes nothing but attributes, never may.
pub(crate) fn may_need_room(operation: &Operation<'_>) -> bool {
    match operation {
        Operation::Make { .. }
        | Operation::Symlink { .. }
        | Operation::Link { .. }
        | Operation::Rename { .. }
        | Operation::Write { .. }
        | Operation::Allocate { .. }
        | Operation::SetXattr { .. } => true,
        Operation::SetAttributes { changes: Changes { size, .. }, .. } => size.is_some(),
        _ => false,
    }
}

/// Whether `refusal` is right for an extended attribute that this file system may or may not have room for.
pub(crate) fn is_xattr_without_room(model: &FileModel, operation: &Operation<'_>, refusal: Refusal) -> bool {
    let Operation::SetXattr { inode, name, value, .. } = *operation else { return false };
    let Some(file) = model.file(inode) else { return false };
    let bytes = crate::file_refusals::xattr_bytes_beside(file, name) + name.len() + value.len();
    matches!(refusal, Refusal::NoRoom | Refusal::XattrTooBig) && bytes > XATTR_BYTES_SURE
}

/// Whether an operation that was carried out may have changed what a portrait shows.
pub(crate) fn is_change(operation: &Operation<'_>) -> bool {
    !matches!(
        operation,
        Operation::Lookup { .. }
            | Operation::Attributes { .. }
            | Operation::ReadLink { .. }
            | Operation::Read { .. }
            | Operation::Seek { .. }
            | Operation::ReadDirectory { .. }
            | Operation::GetXattr { .. }
            | Operation::ListXattr { .. }
            | Operation::Sync
            | Operation::Room
    )
}

/// A time of day for the `number`th operation; each `day` is one more that has passed.
pub(crate) fn time_of_day(number: u64, day: u64) -> FileTime {
    const BEGIN: u64 = 1_700_000_000;
    let (seconds, nanoseconds) = (BEGIN + number + day * 86_400, (number * 1_000_003 % 1_000_000_000) as u32);
    FileTime { seconds: seconds as i64, nanoseconds }
}
