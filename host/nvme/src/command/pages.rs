//! The commands of a store of pages; [`crate::wire::pages`] has the tables of their fields and statuses.
//!
//! | checked here | left to the store |
//! |---|---|
//! | fields, lengths, the directory of a part | sessions, order, room, conditions: [`StoreError`] |

use super::io::IoCommand;
use super::{Refusal, Transfer};
use crate::namespace::TRANSFER_BYTES_MAX;
use crate::wire::entry::SubmissionEntry;
use crate::wire::opcode::io as opcodes;
use crate::wire::pages::{
    ChangeEntry, DURABLE, DirectoryHead, LAST_PART, LIST_BYTES_MAX, ListEntry, ListHead, PageStat, SessionReport,
    StoreReport, control, report,
};
use crate::wire::status::Status;
use openftl_pages::place::{GRAIN_BYTES, grains_of};
use openftl_pages::{SessionId, StoreError};
use openftl_parts::target::Durability;
use zerocopy::{FromZeros, IntoBytes};

/// A command that only stores of pages have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PageCommand {
    /// A part of a batch: [`expect_directory`] reads its data.
    Write(PagePart),
    /// Bytes of a page, from `offset` on.
    Read {
        /// The page.
        lpid: u64,
        /// The first byte.
        offset: u32,
        /// How many, at most.
        bytes: u32,
    },
    /// Opens the session whose identifier the host sends.
    Open,
    /// Closes a session.
    Close {
        /// The session.
        session: u32,
        /// Its identifier is not known any more.
        forget: bool,
    },
    /// Gives up a batch.
    Abort {
        /// The session.
        session: u32,
        /// The batch.
        wsn: u64,
    },
    /// Length and version of a page.
    Stat {
        /// The page.
        lpid: u64,
    },
    /// Numbers and lengths of pages.
    List {
        /// The first number.
        from: u64,
        /// Bytes of the list, at most.
        bytes: u32,
    },
    /// What is known of a session.
    Session {
        /// The session.
        session: u32,
    },
    /// What is known of the store.
    Store,
}

/// A part of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PagePart {
    /// The session.
    pub session: u32,
    /// The batch.
    pub wsn: u64,
    /// Its number in the batch, from 0 on.
    pub part: u16,
    /// Bytes of its data; 0: it only commits.
    pub bytes: u32,
    /// The batch ends with it, and is committed like this.
    pub commit: Option<Durability>,
}

impl PageCommand {
    /// Its data.
    pub(super) fn transfer(&self) -> Transfer {
        match self {
            PageCommand::Write(PagePart { bytes: 0, .. }) | PageCommand::Close { .. } | PageCommand::Abort { .. } => {
                Transfer::None
            }
            PageCommand::Write(part) => Transfer::ToController(part.bytes),
            PageCommand::Open => Transfer::ToController(size_of::<SessionId>() as u32),
            PageCommand::Read { bytes, .. } | PageCommand::List { bytes, .. } => Transfer::ToHost(*bytes),
            PageCommand::Stat { .. } => Transfer::ToHost(size_of::<PageStat>() as u32),
            PageCommand::Session { .. } => Transfer::ToHost(size_of::<SessionReport>() as u32),
            PageCommand::Store => Transfer::ToHost(size_of::<StoreReport>() as u32),
        }
    }

    /// What a host says for it, with room for as many bytes of data as it has.
    #[must_use]
    pub fn entry(&self, namespace: u32) -> SubmissionEntry {
        let halves = |number: u64| [number as u32, (number >> 32) as u32];
        let (opcode, dwords) = match *self {
            PageCommand::Write(PagePart { session, wsn, part, bytes, commit }) => {
                let flags = match commit {
                    None => 0,
                    Some(Durability::Volatile) => LAST_PART,
                    Some(Durability::Durable) => LAST_PART | DURABLE,
                };
                let [low, high] = halves(wsn);
                (opcodes::PAGE_WRITE, [session, 0, low, flags | u32::from(part) << 16, high, bytes])
            }
            PageCommand::Read { lpid, offset, bytes } => {
                let [low, high] = halves(lpid);
                (opcodes::PAGE_READ, [low, high, bytes, offset, 0, 0])
            }
            PageCommand::Open => (opcodes::PAGE_CONTROL, [0, 0, 0, control::OPEN, 0, size_of::<SessionId>() as u32]),
            PageCommand::Close { session, forget } => {
                let action = if forget { control::FORGET } else { control::CLOSE };
                (opcodes::PAGE_CONTROL, [session, 0, 0, action, 0, 0])
            }
            PageCommand::Abort { session, wsn } => {
                let [low, high] = halves(wsn);
                (opcodes::PAGE_CONTROL, [session, 0, low, control::ABORT, high, 0])
            }
            PageCommand::Stat { lpid } => {
                let [low, high] = halves(lpid);
                (opcodes::PAGE_REPORT, [low, high, size_of::<PageStat>() as u32, report::STAT, 0, 0])
            }
            PageCommand::List { from, bytes } => {
                let [low, high] = halves(from);
                (opcodes::PAGE_REPORT, [low, high, bytes, report::LIST, 0, 0])
            }
            PageCommand::Session { session } => {
                let bytes = size_of::<SessionReport>() as u32;
                (opcodes::PAGE_REPORT, [session, 0, bytes, report::SESSION, 0, 0])
            }
            PageCommand::Store => (opcodes::PAGE_REPORT, [0, 0, size_of::<StoreReport>() as u32, report::STORE, 0, 0]),
        };
        SubmissionEntry::with_data(opcode, namespace, self.transfer().bytes(), dwords)
    }
}

/// What the 64 bytes say to a store of pages.
pub(super) fn parse_pages(entry: &SubmissionEntry, is_write_through: bool) -> Result<IoCommand, Refusal> {
    Ok(match entry.opcode {
        opcodes::FLUSH => IoCommand::Flush,
        opcodes::PAGE_WRITE => IoCommand::Page(PageCommand::Write(parse_part(entry, is_write_through)?)),
        opcodes::PAGE_READ => {
            let bytes = entry.dword(12);
            if bytes == 0 || bytes > TRANSFER_BYTES_MAX {
                return Err(Status::INVALID_FIELD.at(48));
            }
            IoCommand::Page(PageCommand::Read { lpid: entry.dword_pair(10), offset: entry.dword(13), bytes })
        }
        opcodes::PAGE_CONTROL => IoCommand::Page(parse_control(entry)?),
        opcodes::PAGE_REPORT => IoCommand::Page(parse_report(entry)?),
        _ => return Err(Status::INVALID_OPCODE.at(0)),
    })
}

fn session_of(entry: &SubmissionEntry) -> Result<u32, Refusal> {
    if entry.dword(11) == 0 { Ok(entry.dword(10)) } else { Err(Status::INVALID_FIELD.at(44)) }
}

fn wsn_of(entry: &SubmissionEntry) -> u64 {
    u64::from(entry.dword(12)) | u64::from(entry.dword(14)) << 32
}

fn parse_part(entry: &SubmissionEntry, is_write_through: bool) -> Result<PagePart, Refusal> {
    let (session, wsn) = (session_of(entry)?, wsn_of(entry));
    let (flags, bytes) = (entry.dword(13), entry.dword(15));
    if flags & 0xffff & !(LAST_PART | DURABLE) != 0 {
        return Err(Status::INVALID_FIELD.at(52));
    }
    let commit = match (flags & LAST_PART != 0, flags & DURABLE != 0) {
        (false, false) => None,
        (false, true) => return Err(Status::INVALID_FIELD.at(52).bit(1)),
        (true, is_durable) if is_durable || is_write_through => Some(Durability::Durable),
        (true, _) => Some(Durability::Volatile),
    };
    // The last part may commit what was sent before; any other has a change.
    let least = (size_of::<DirectoryHead>() + size_of::<ChangeEntry>()) as u32;
    let is_commit_alone = bytes == 0 && commit.is_some();
    if !is_commit_alone && !(least..=TRANSFER_BYTES_MAX).contains(&bytes) {
        return Err(Status::INVALID_FIELD.at(60));
    }
    Ok(PagePart { session, wsn, part: (flags >> 16) as u16, bytes, commit })
}

fn parse_control(entry: &SubmissionEntry) -> Result<PageCommand, Refusal> {
    let command = match entry.dword(13) {
        control::OPEN => PageCommand::Open,
        control::CLOSE => PageCommand::Close { session: session_of(entry)?, forget: false },
        control::FORGET => PageCommand::Close { session: session_of(entry)?, forget: true },
        control::ABORT => PageCommand::Abort { session: session_of(entry)?, wsn: wsn_of(entry) },
        _ => return Err(Status::INVALID_FIELD.at(52)),
    };
    let bytes = if command == PageCommand::Open { size_of::<SessionId>() as u32 } else { 0 };
    if entry.dword(15) == bytes { Ok(command) } else { Err(Status::INVALID_FIELD.at(60)) }
}

fn parse_report(entry: &SubmissionEntry) -> Result<PageCommand, Refusal> {
    let bytes = entry.dword(12);
    let (command, least, most) = match entry.dword(13) {
        report::STAT => (PageCommand::Stat { lpid: entry.dword_pair(10) }, size_of::<PageStat>(), TRANSFER_BYTES_MAX),
        report::LIST => (
            PageCommand::List { from: entry.dword_pair(10), bytes },
            size_of::<ListHead>() + size_of::<ListEntry>(),
            LIST_BYTES_MAX,
        ),
        report::SESSION => {
            (PageCommand::Session { session: session_of(entry)? }, size_of::<SessionReport>(), TRANSFER_BYTES_MAX)
        }
        report::STORE => (PageCommand::Store, size_of::<StoreReport>(), TRANSFER_BYTES_MAX),
        _ => return Err(Status::INVALID_FIELD.at(52)),
    };
    if (least as u32..=most).contains(&bytes) { Ok(command) } else { Err(Status::INVALID_FIELD.at(48)) }
}

/// How many changes the data of a part have, if their directory and the `bytes` of the part agree. `read` copies the data from a byte on.
///
/// # Errors
/// The byte that is not as it should be.
pub fn expect_directory(bytes: u32, read: impl Fn(u32, &mut [u8])) -> Result<u32, Refusal> {
    let wrong = |at: u32| Refusal { block: Some(at.into()), ..Status::INVALID_DIRECTORY.into() };
    let mut head = DirectoryHead::new_zeroed();
    read(0, head.as_mut_bytes());
    let (head_bytes, entry_bytes) = (size_of::<DirectoryHead>() as u64, size_of::<ChangeEntry>() as u64);
    let changes = head.changes.get();
    let mut end = head_bytes + u64::from(changes) * entry_bytes;
    if changes == 0 || end > u64::from(bytes) {
        return Err(wrong(0));
    }
    if head.reserved.get() != 0 {
        return Err(wrong(4));
    }
    for change in 0..changes {
        let entry = change_entry(change, &read);
        let at = (head_bytes + u64::from(change) * entry_bytes) as u32;
        if let Some(field) = entry.wrong_field() {
            return Err(wrong(at + field));
        }
        end += u64::from(entry.bytes.get());
        if end > u64::from(bytes) {
            return Err(wrong(at + 8));
        }
    }
    // Bytes that no page has.
    if end < u64::from(bytes) { Err(wrong(end as u32)) } else { Ok(changes) }
}

/// A change of a part whose directory is as it should be.
pub fn change_entry(change: u32, read: impl Fn(u32, &mut [u8])) -> ChangeEntry {
    let mut entry = ChangeEntry::new_zeroed();
    read((size_of::<DirectoryHead>() + change as usize * size_of::<ChangeEntry>()) as u32, entry.as_mut_bytes());
    entry
}

/// The first byte of the pages of a part with so many changes.
#[must_use]
pub fn payload_start(changes: u32) -> u32 {
    (size_of::<DirectoryHead>() + changes as usize * size_of::<ChangeEntry>()) as u32
}

/// Two numbers of a completion: which change of the part it was, and what there is to say of it.
fn of_change(change: u32, value: u64) -> Option<u64> {
    Some(u64::from(change) | u64::from(u32::try_from(value).unwrap_or(u32::MAX)) << 32)
}

/// How a command ends that the store refused; of a part, because of this change.
#[must_use]
pub fn refusal_of(error: &StoreError, change: u32) -> Refusal {
    let (status, block) = match *error {
        StoreError::Busy => (Status::NAMESPACE_NOT_READY, of_change(change, 0)),
        StoreError::Length { most, .. } => (Status::INVALID_PAGE_LENGTH, of_change(change, most.into())),
        StoreError::NoSpace { free, .. } => (Status::CAPACITY_EXCEEDED, of_change(change, free / GRAIN_BYTES as u64)),
        StoreError::MapFull { slots } => (Status::PAGE_MAP_FULL, of_change(change, slots.into())),
        StoreError::BatchTooLong { most } => (Status::BATCH_TOO_LONG, of_change(change, most as u64)),
        StoreError::NoSession { .. } => (Status::SESSION_NOT_OPEN, None),
        StoreError::SessionOpen => (Status::SESSION_IN_USE, None),
        StoreError::TooManySessions { most } => (Status::TOO_MANY_SESSIONS, Some(most as u64)),
        StoreError::Early { last, .. } => (Status::BATCH_TOO_EARLY, Some(last)),
        StoreError::Repeated { .. } => (Status::BATCH_DIFFERS, None),
        StoreError::Late { last, .. } => (Status::BATCH_TOO_LATE, Some(last)),
        StoreError::Committing { .. } => (Status::BATCH_COMMITTING, None),
        StoreError::Aborted => (Status::BATCH_ABORTED, None),
        StoreError::Condition { lpid } => (Status::PAGE_VERSION_MISMATCH, Some(lpid)),
        StoreError::NoPage { .. } => (Status::PAGE_NOT_FOUND, None),
        StoreError::Offset { bytes, .. } => (Status::PAGE_OFFSET_OUT_OF_RANGE, Some(bytes.into())),
        StoreError::Unrecovered { .. } => (Status::UNRECOVERED_READ, None),
        StoreError::ReadOnly(_) => (Status::WRITE_TO_READ_ONLY, None),
        StoreError::Log(_) => (Status::WRITE_FAULT, None),
    };
    Refusal { block, ..status.into() }
}

/// Whether the completion of a command that ends so says more.
pub(super) fn has_result(status: Status) -> bool {
    let (first, last) = (Status::INVALID_DIRECTORY.code(), Status::PAGE_OFFSET_OUT_OF_RANGE.code());
    (first..=last).contains(&status.code()) || status == Status::COMMAND_SEQUENCE_ERROR
}

/// What a host asked for, as far as the error of a store names it.
#[derive(Clone, Copy, Default, Debug)]
pub struct Asked<'a> {
    /// The session.
    pub session: u32,
    /// The batch.
    pub wsn: u64,
    /// The page.
    pub lpid: u64,
    /// The first byte of a read.
    pub offset: u32,
    /// The pages of a part, and their bytes.
    pub changes: &'a [(u64, u32)],
}

impl Asked<'_> {
    /// What the store said, if a completion with this status and result says it. The opposite of [`refusal_of`].
    #[must_use]
    pub fn error_of(&self, status: Status, result: u64) -> Option<StoreError> {
        let Asked { session, wsn, lpid, offset, changes } = *self;
        let ((low, high), as_status) =
            ((result as u32, (result >> 32) as u32), |one: Status| one.code() == status.code());
        let (of_change, bytes) = changes.get(low as usize).copied().unwrap_or((lpid, 0));
        let errors = [
            (Status::NAMESPACE_NOT_READY, StoreError::Busy),
            (Status::INVALID_PAGE_LENGTH, StoreError::Length { lpid: of_change, bytes: bytes.into(), most: high }),
            (
                Status::CAPACITY_EXCEEDED,
                StoreError::NoSpace {
                    lpid: of_change,
                    needed: u64::from(grains_of(bytes)) * GRAIN_BYTES as u64,
                    free: u64::from(high) * GRAIN_BYTES as u64,
                },
            ),
            (Status::PAGE_MAP_FULL, StoreError::MapFull { slots: high }),
            (Status::BATCH_TOO_LONG, StoreError::BatchTooLong { most: high as usize }),
            (Status::SESSION_NOT_OPEN, StoreError::NoSession { session }),
            (Status::SESSION_IN_USE, StoreError::SessionOpen),
            (Status::TOO_MANY_SESSIONS, StoreError::TooManySessions { most: low as usize }),
            (Status::BATCH_TOO_EARLY, StoreError::Early { wsn, last: result }),
            (Status::BATCH_DIFFERS, StoreError::Repeated { wsn }),
            (Status::BATCH_TOO_LATE, StoreError::Late { wsn, last: result }),
            (Status::BATCH_COMMITTING, StoreError::Committing { wsn }),
            (Status::BATCH_ABORTED, StoreError::Aborted),
            (Status::PAGE_VERSION_MISMATCH, StoreError::Condition { lpid: result }),
            (Status::PAGE_NOT_FOUND, StoreError::NoPage { lpid }),
            (Status::PAGE_OFFSET_OUT_OF_RANGE, StoreError::Offset { lpid, bytes: low, offset }),
            (Status::UNRECOVERED_READ, StoreError::Unrecovered { lpid }),
        ];
        errors.into_iter().find(|(one, _)| as_status(*one)).map(|(_, error)| error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use openftl_parts::target::IoError;
    use openftl_parts::words::ReadOnlyReason;

    #[test]
    fn what_a_store_says_comes_back_as_it_was_said() {
        let changes = [(7, 100), (8, 2000)];
        let asked = Asked { session: 3, wsn: 5, lpid: 9, offset: 77, changes: &changes };
        for error in [
            StoreError::Busy,
            StoreError::Length { lpid: 8, bytes: 2000, most: 1000 },
            StoreError::NoSpace { lpid: 8, needed: 2048, free: 640 },
            StoreError::MapFull { slots: 6 },
            StoreError::BatchTooLong { most: 4096 },
            StoreError::NoSession { session: 3 },
            StoreError::SessionOpen,
            StoreError::TooManySessions { most: 42 },
            StoreError::Early { wsn: 5, last: 1 << 40 },
            StoreError::Repeated { wsn: 5 },
            StoreError::Late { wsn: 5, last: 1 << 40 },
            StoreError::Committing { wsn: 5 },
            StoreError::Aborted,
            StoreError::Condition { lpid: u64::MAX },
            StoreError::NoPage { lpid: 9 },
            StoreError::Offset { lpid: 9, bytes: 70, offset: 77 },
            StoreError::Unrecovered { lpid: 9 },
        ] {
            let refusal = refusal_of(&error, 1);
            assert!(!refusal.status.is_success(), "{error}");
            // Statuses that say nothing else need nothing else.
            let result = if refusal.status == Status::NAMESPACE_NOT_READY { 0 } else { refusal.result() };
            assert_eq!(asked.error_of(refusal.status, result), Some(error), "{error}");
        }
        // Why a drive is read-only, and what is wrong with its log, the completion does not say.
        for (error, status) in [
            (StoreError::ReadOnly(ReadOnlyReason::Stalled), Status::WRITE_TO_READ_ONLY),
            (StoreError::Log(IoError::ReadOnly), Status::WRITE_FAULT),
        ] {
            assert_eq!(refusal_of(&error, 0).status, status);
            assert_eq!(asked.error_of(status, 0), None);
        }
    }

    #[test]
    fn a_directory_agrees_with_its_part_or_names_the_byte_that_does_not() {
        let entry = |lpid: u64, bytes: u32, flags: u32, if_version: u64| ChangeEntry {
            lpid: lpid.into(),
            bytes: bytes.into(),
            flags: flags.into(),
            if_version: if_version.into(),
        };
        let check = |count: u32, reserved: u32, entries: &[ChangeEntry], payload: usize, expected: Result<u32, u64>| {
            let mut data = DirectoryHead { changes: count.into(), reserved: reserved.into() }.as_bytes().to_vec();
            data.extend_from_slice(entries.as_bytes());
            data.resize(data.len() + payload, 7);
            let read = |at: u32, out: &mut [u8]| {
                let there = data.get(at as usize..at as usize + out.len());
                out.copy_from_slice(there.expect("nothing behind the data is read"));
            };
            let found = expect_directory(data.len() as u32, read);
            assert!(found.is_ok_and(|_| true) || found.is_err_and(|one| one.status == Status::INVALID_DIRECTORY));
            assert_eq!(found.map_err(Refusal::result), expected, "{count} {entries:?} {payload}");
        };
        let (put, delete) = (entry(1, 10, 0, 0), entry(2, 0, 1, 0));
        check(1, 0, &[put], 10, Ok(1));
        check(2, 0, &[put, delete], 10, Ok(2));
        check(3, 0, &[delete, put, entry(3, 4, 2, 9)], 14, Ok(3));
        check(0, 0, &[put], 10, Err(0));
        check(u32::MAX, 0, &[put], 10, Err(0));
        check(2, 0, &[put], 10, Err(0));
        check(1, 1, &[put], 10, Err(4));
        check(1, 0, &[put], 9, Err(16));
        check(1, 0, &[put], 11, Err(42));
        check(2, 0, &[put, entry(1, u32::MAX, 0, 0)], 10, Err(40));
        check(1, 0, &[entry(1, 10, 4, 0)], 10, Err(20));
        check(1, 0, &[entry(1, 10, 1, 0)], 10, Err(16));
        check(1, 0, &[entry(1, 10, 0, 5)], 10, Err(24));
        // A page of no bytes is for the store to refuse.
        check(1, 0, &[entry(1, 0, 0, 0)], 0, Ok(1));
    }
}
