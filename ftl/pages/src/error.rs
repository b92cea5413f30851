//! Why a store of pages refuses a request, or could not do it.

use crate::place::OWN_BYTES_MAX;
use openftl_parts::target::IoError;
use openftl_parts::words::ReadOnlyReason;

/// Sequence numbers that a batch may be ahead of the last committed one.
pub const WINDOW: u64 = 16;

/// See the module. Where nothing else is said, nothing has happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum StoreError {
    /// No memory, or no clean flash, for it right now; poll, then ask again.
    #[error("the store has no room for this request right now: poll it, then ask again")]
    Busy,
    /// A page of no bytes, or of more than the drive takes.
    #[error("page {lpid} has {bytes} bytes: a page has 1 to {most} bytes on this drive")]
    Length {
        /// Which page.
        lpid: u64,
        /// Its bytes.
        bytes: u64,
        /// The most that a page can have.
        most: u32,
    },
    /// The store is full.
    #[error(
        "the store is full: {free} bytes are free, and page {lpid} needs {needed}; delete pages, or put smaller ones"
    )]
    NoSpace {
        /// Which page.
        lpid: u64,
        /// Bytes that it takes, with its header.
        needed: u64,
        /// Bytes that are free.
        free: u64,
    },
    /// The map has no room for more pages with numbers like these.
    #[error(
        "the map of the store has room for {slots} pieces, and they are in use: number pages without gaps, or delete some"
    )]
    MapFull {
        /// Pieces of the map.
        slots: u32,
    },
    /// The batch is longer than the log can take.
    #[error("the batch has {most} pages, the most that a batch of this drive can have: commit it in parts")]
    BatchTooLong {
        /// Pages of a batch, at most.
        most: usize,
    },
    /// There is no such session.
    #[error("session {session} is not open")]
    NoSession {
        /// What was named.
        session: u32,
    },
    /// The session is open already.
    #[error("a session with this identifier is open: close it first")]
    SessionOpen,
    /// There are as many sessions as there can be.
    #[error("the store knows {most} sessions, and no more: delete one that is needed no more")]
    TooManySessions {
        /// How many there can be.
        most: usize,
    },
    /// The batch is too far ahead.
    #[error("write sequence number {wsn} is more than {WINDOW} ahead of {last}, the last one committed")]
    Early {
        /// What was named.
        wsn: u64,
        /// The last one committed.
        last: u64,
    },
    /// Another batch was committed under this number.
    #[error("write sequence number {wsn} was committed with other pages")]
    Repeated {
        /// What was named.
        wsn: u64,
    },
    /// The batch was committed so long ago that the store cannot tell whether it was this one.
    #[error("write sequence number {wsn} is older than the last {WINDOW}, of which {last} is the last")]
    Late {
        /// What was named.
        wsn: u64,
        /// The last one committed.
        last: u64,
    },
    /// The batch is committed, or waits for others before it: nothing can be added to it.
    #[error("write sequence number {wsn} waits to be committed, and takes no more pages")]
    Committing {
        /// What was named.
        wsn: u64,
    },
    /// The batch or its session was given up.
    #[error("the batch was given up before it was committed")]
    Aborted,
    /// A condition of the batch does not hold.
    #[error("page {lpid} is not at the version that the batch expects; nothing of the batch is committed")]
    Condition {
        /// The page.
        lpid: u64,
    },
    /// There is no such page.
    #[error("there is no page {lpid}")]
    NoPage {
        /// What was named.
        lpid: u64,
    },
    /// A read begins behind the end of the page.
    #[error("page {lpid} has {bytes} bytes, and none at {offset}")]
    Offset {
        /// The page.
        lpid: u64,
        /// Its bytes.
        bytes: u32,
        /// What was asked for.
        offset: u32,
    },
    /// The medium has lost the page, or returned something else.
    #[error("page {lpid} cannot be read from the medium")]
    Unrecovered {
        /// The page.
        lpid: u64,
    },
    /// The drive takes no more writes.
    #[error("the store is read-only: {0}")]
    ReadOnly(ReadOnlyReason),
    /// The area with the log of the store has failed.
    #[error("the log of the store: {0}")]
    Log(IoError),
}

/// Whether a page can have so many bytes on a drive whose pages have `most` at most.
pub(crate) fn expect_length(lpid: u64, bytes: usize, most: u32) -> Result<u32, StoreError> {
    let length = u32::try_from(bytes).ok().filter(|bytes| (1..=most.min(OWN_BYTES_MAX)).contains(bytes));
    length.ok_or(StoreError::Length { lpid, bytes: bytes as u64, most })
}
