//! What a host may ask of a store of pages.

use crate::error::StoreError;
use openftl_core::{Frame, Time};
use openftl_parts::target::{Durability, Ended, Target};
use std::ops::RangeInclusive;

/// An open session, by the number that the store knows it by.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Session(pub u32);

/// The identifier of a session, chosen by the host. It finds its place in the order of batches again by this.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SessionId(pub [u8; 16]);

/// A change of one page, in a batch.
#[derive(Clone, Copy, Debug)]
pub enum Change<'a> {
    /// The page has these bytes from the commit on: 1 to [`PageFtl::page_bytes_max`](crate::PageFtl::page_bytes_max), in pieces.
    Put(&'a [&'a [u8]]),
    /// There is no such page from the commit on. There may be none before.
    Delete,
}

/// What takes a while.
#[derive(Clone, Copy, Debug)]
pub enum StoreRequest<'a> {
    /// Commits batch `wsn` of a session: all of its changes, or none. It waits for those with smaller numbers. Volatile: done when all can be
    /// read, and durable no later than the next durable one. Durable: done when it survives a power cut.
    Commit {
        /// The session.
        session: Session,
        /// Write sequence number: each is one more than the last one; the first is 1.
        wsn: u64,
        /// When it is done.
        durability: Durability,
    },
    /// Reads bytes of page `lpid` from `offset` on, as many as there are and fit into `frames`.
    Read {
        /// The page.
        lpid: u64,
        /// The first byte.
        offset: u32,
        /// Where to; the host's until the [`StoreDone`] and after.
        frames: &'a [Frame],
    },
    /// Asks for length and version of page `lpid`.
    Stat {
        /// The page.
        lpid: u64,
    },
    /// Done when all that was committed before is durable.
    Sync,
}

/// What is known of a page that was read or asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageFacts {
    /// Its bytes.
    pub bytes: u32,
    /// Its version: of two that are put, the later one has the greater.
    pub version: u64,
}

/// A request has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StoreDone {
    /// The host's tag.
    pub tag: u64,
    /// How. Facts for [`StoreRequest::Read`] and [`StoreRequest::Stat`].
    pub result: Result<Option<PageFacts>, StoreError>,
    /// When.
    pub at: Time,
}

impl Ended for StoreDone {
    type Outcome = Result<Option<PageFacts>, StoreError>;

    fn tag(&self) -> u64 {
        self.tag
    }

    fn outcome(self) -> Self::Outcome {
        self.result
    }
}

/// Why a list of pages breaks off.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ListBreak {
    /// A part of the map is being read: the list goes on from this number when something has ended.
    Waits {
        /// See above.
        from: u64,
    },
    /// The medium has lost the part of the map that has pages from this number on.
    Lost {
        /// See above.
        from: u64,
    },
}

/// A store of pages, seen from a host interface.
pub trait StoreTarget: Target<Done = StoreDone> {
    /// Opens a session. Returns it and the number of its last *durable* batch: 0 for a new one.
    ///
    /// # Errors
    /// If it is open, or there are too many.
    fn open_session(&mut self, id: SessionId) -> Result<(Session, u64), StoreError>;

    /// Closes a session. Batches that are not committed are given up. With `forget` the store does not know its identifier any more.
    ///
    /// # Errors
    /// If it is not open.
    fn close_session(&mut self, now: Time, session: Session, forget: bool) -> Result<(), StoreError>;

    /// Adds a change to batch `wsn` of a session, which begins with its first change. `if_version` is the version that the page has to have when
    /// the batch is committed; 0: it must not be there. Of two changes of one page the later one counts.
    ///
    /// # Errors
    /// If it cannot be. Nothing has happened then.
    fn stage(
        &mut self,
        now: Time,
        session: Session,
        wsn: u64,
        lpid: u64,
        change: Change<'_>,
        if_version: Option<u64>,
    ) -> Result<(), StoreError>;

    /// Gives a batch up that is not committed.
    ///
    /// # Errors
    /// If there is no such session.
    fn abort(&mut self, now: Time, session: Session, wsn: u64) -> Result<(), StoreError>;

    /// Begins a request with a tag below [`TAGS`](crate::TAGS).
    ///
    /// # Errors
    /// If it cannot be begun. Nothing has happened then.
    fn submit(&mut self, now: Time, tag: u64, request: StoreRequest<'_>) -> Result<(), StoreError>;

    /// Adds numbers and lengths of those of these pages that are committed, in their order, until `found` has `most`.
    ///
    /// # Errors
    /// The list breaks off before that, and goes on later or not at all. What was found until then was added.
    fn list(&mut self, lpids: RangeInclusive<u64>, most: usize, found: &mut Vec<(u64, u32)>) -> Result<(), ListBreak>;
}
