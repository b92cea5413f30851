//! A store of pages whose requests are waited for, wherever it is: in this process, or behind a connection.
//!
//! Programs that have their own pages (a database) are written to this trait, and take either.

use crate::error::StoreError;
use crate::request::{Change, PageFacts, Session, SessionId};
use openftl_parts::target::Durability;

/// Why a store did not do what it was asked.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum StoreFailure {
    /// The store refuses, or could not do it.
    #[error("{0}")]
    Store(#[from] StoreError),
    /// The drive that has the store says something that no store says.
    #[error("{0}")]
    Drive(String),
    /// The store is not reached any more. Nobody knows whether a commit under way was carried out: after opening the session anew its last durable
    /// batch is known, and a batch that is sent again is committed once.
    #[error("{0}")]
    Link(String),
}

impl StoreFailure {
    /// Whether there is no such page.
    #[must_use]
    pub fn is_no_page(&self) -> bool {
        matches!(self, StoreFailure::Store(StoreError::NoPage { .. }))
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
    /// If it is open, or there are too many.
    fn open_session(&mut self, id: SessionId) -> Result<(Session, u64), StoreFailure>;

    /// Closes a session. Batches that are not committed are given up. With `forget` the store does not know its identifier any more.
    ///
    /// # Errors
    /// If it is not open.
    fn close_session(&mut self, session: Session, forget: bool) -> Result<(), StoreFailure>;

    /// Adds a change to batch `wsn`, and waits until there is room for it. `if_version` is the version that the page has to have when the batch is
    /// committed; 0: it must not be there. A store elsewhere gathers changes, and may refuse one later: at the latest when the batch is committed.
    ///
    /// # Errors
    /// If this change, or one before, cannot be.
    fn stage(
        &mut self,
        session: Session,
        wsn: u64,
        lpid: u64,
        change: Change<'_>,
        if_version: Option<u64>,
    ) -> Result<(), StoreFailure>;

    /// Commits a batch, and waits for that.
    ///
    /// # Errors
    /// If nothing of it is committed; or, if the store is not reached, perhaps all of it.
    fn commit(&mut self, session: Session, wsn: u64, durability: Durability) -> Result<(), StoreFailure>;

    /// Gives a batch up that is not committed.
    ///
    /// # Errors
    /// If there is no such session.
    fn abort(&mut self, session: Session, wsn: u64) -> Result<(), StoreFailure>;

    /// All bytes of a page.
    ///
    /// # Errors
    /// If there is no such page, or it cannot be read.
    fn read(&mut self, lpid: u64) -> Result<Vec<u8>, StoreFailure>;

    /// Length and version of a page.
    ///
    /// # Errors
    /// As of [`BlockingStore::read`].
    fn stat(&mut self, lpid: u64) -> Result<PageFacts, StoreFailure>;

    /// Numbers and lengths of pages that are committed, from `from` on, in their order: `most` at most.
    ///
    /// # Errors
    /// If the store is not reached.
    fn list(&mut self, from: u64, most: usize) -> Result<Vec<(u64, u32)>, StoreFailure>;

    /// Waits until all that was committed is durable.
    ///
    /// # Errors
    /// If the store takes no more writes.
    fn sync(&mut self) -> Result<(), StoreFailure>;

    /// How full the store is.
    ///
    /// # Errors
    /// If the store is not reached.
    fn facts(&mut self) -> Result<StoreFacts, StoreFailure>;
}
