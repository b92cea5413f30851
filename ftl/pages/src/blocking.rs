//! A store of pages as its users call it: each call waits for its end, and any thread may call.
//!
//! A store in this process and one that a server has open are the same to whoever uses this.

use crate::error::StoreError;
use crate::request::{Change, PageFacts, Session, SessionId};
use openftl_parts::target::Durability;

/// Why a call failed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum StoreFailure {
    /// The store refuses it.
    #[error(transparent)]
    Refused(#[from] StoreError),
    /// The drive that has the store says something that no store says.
    #[error("{0}")]
    Drive(String),
    /// The store answers no more: its power is off, or the way to it is lost. Nobody knows whether the call was carried out; sessions and their
    /// batches end with the store. After opening the session anew its last durable batch is known, and a batch that is sent again is committed once.
    #[error("{0}")]
    Gone(String),
}

impl StoreFailure {
    /// Whether there is no such page.
    #[must_use]
    pub fn is_no_page(&self) -> bool {
        matches!(self, StoreFailure::Refused(StoreError::NoPage { .. }))
    }
}

/// How full a store is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StoreFacts {
    /// How many pages there are.
    pub pages: u64,
    /// Bytes that they take, with headers, those of batches that grow included.
    pub used_bytes: u64,
    /// Bytes that they may take.
    pub capacity_bytes: u64,
    /// Bytes of a page, at most.
    pub page_bytes_max: u32,
}

/// See the module. After an error of [`BlockingStore::stage`] or [`BlockingStore::commit`] the batch is aborted and sent again, or left.
pub trait BlockingStore {
    /// Opens a session. Returns it and the number of its last *durable* batch: 0 for a new one.
    ///
    /// # Errors
    /// As of [`StoreTarget::open_session`](crate::StoreTarget::open_session).
    fn open_session(&self, id: SessionId) -> Result<(Session, u64), StoreFailure>;

    /// Closes a session, and gives up its batches that are not committed. With `forget` the store does not know its identifier any more.
    ///
    /// # Errors
    /// If it is not open.
    fn close_session(&self, session: Session, forget: bool) -> Result<(), StoreFailure>;

    /// Adds a change to batch `wsn` of a session, on condition that the page has this version when the batch is committed; waits until there is
    /// room for it. A store elsewhere gathers changes, and may refuse one later: at the latest when the batch is committed.
    ///
    /// # Errors
    /// As of [`StoreTarget::stage`](crate::StoreTarget::stage).
    fn stage(
        &self,
        session: Session,
        wsn: u64,
        lpid: u64,
        change: Change<'_>,
        if_version: Option<u64>,
    ) -> Result<(), StoreFailure>;

    /// Commits a batch.
    ///
    /// # Errors
    /// As of [`StoreRequest::Commit`](crate::StoreRequest::Commit).
    fn commit(&self, session: Session, wsn: u64, durability: Durability) -> Result<(), StoreFailure>;

    /// Gives a batch up that is not committed.
    ///
    /// # Errors
    /// If there is no such session.
    fn abort(&self, session: Session, wsn: u64) -> Result<(), StoreFailure>;

    /// Reads bytes of page `lpid` from `offset` on, as many as there are and fit into `buffer`. Returns length and version of the whole page.
    ///
    /// # Errors
    /// As of [`StoreRequest::Read`](crate::StoreRequest::Read).
    fn read(&self, lpid: u64, offset: u32, buffer: &mut [u8]) -> Result<PageFacts, StoreFailure>;

    /// Length and version of a page.
    ///
    /// # Errors
    /// As of [`StoreRequest::Stat`](crate::StoreRequest::Stat).
    fn stat(&self, lpid: u64) -> Result<PageFacts, StoreFailure>;

    /// Numbers and lengths of pages that are committed, from `from` on, in their order: `most` at most.
    ///
    /// # Errors
    /// If the store answers no more.
    fn list(&self, from: u64, most: usize) -> Result<Vec<(u64, u32)>, StoreFailure>;

    /// Waits until all that was committed before is durable.
    ///
    /// # Errors
    /// If the store takes no more writes.
    fn sync(&self) -> Result<(), StoreFailure>;

    /// How full the store is.
    ///
    /// # Errors
    /// If the store answers no more.
    fn facts(&self) -> Result<StoreFacts, StoreFailure>;

    /// All bytes of a page.
    ///
    /// # Errors
    /// As of [`BlockingStore::read`].
    fn read_whole(&self, lpid: u64) -> Result<Vec<u8>, StoreFailure> {
        loop {
            let mut bytes = vec![0; self.stat(lpid)?.bytes as usize];
            let length = self.read(lpid, 0, &mut bytes)?.bytes as usize;
            // Another thread may have put a longer one meanwhile.
            if length <= bytes.len() {
                bytes.truncate(length);
                return Ok(bytes);
            }
        }
    }
}
