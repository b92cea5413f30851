//! What has changed and is not in the log: committed batches, pages that have moved, in the order in which they changed the map.

use crate::place::Place;
use crate::record::{CHANGE_BYTES, CHANGES_HEAD_BYTES, OTHER_BYTES, Record};
use crate::request::SessionId;
use std::collections::VecDeque;

/// A change of a committed batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Queued {
    /// The page.
    pub lpid: u64,
    /// Where it is; `None`: it is deleted.
    pub place: Option<Place>,
    /// The medium does not have it for good.
    pub is_in_flight: bool,
}

/// What has changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Mutation {
    /// A batch was committed.
    Batch {
        /// Its session.
        session: SessionId,
        /// Its number.
        wsn: u64,
        /// What tells it from others with that number.
        digest: u32,
        /// Its changes.
        changes: Vec<Queued>,
        /// How many of them the medium does not have.
        in_flight: usize,
    },
    /// Something else, of which a record says all.
    Other(Record),
}

impl Mutation {
    /// Bytes that it takes in the log if the medium has all its pages.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match self {
            Mutation::Batch { changes, .. } => CHANGES_HEAD_BYTES + changes.len() * CHANGE_BYTES,
            Mutation::Other(_) => OTHER_BYTES,
        }
    }
}

/// See the module. Mutations are numbered from 1 on.
#[derive(Default)]
pub struct Queue {
    waiting: VecDeque<Mutation>,
    /// The number of the last one that is not here any more.
    pub logged: u64,
    bytes: usize,
}

impl Queue {
    /// Adds one. Returns its number.
    pub fn push(&mut self, mutation: Mutation) -> u64 {
        self.bytes += mutation.bytes();
        self.waiting.push_back(mutation);
        self.last()
    }

    /// The number of the last one.
    #[must_use]
    pub fn last(&self) -> u64 {
        self.logged + self.waiting.len() as u64
    }

    /// The first one.
    #[must_use]
    pub fn front(&self) -> Option<&Mutation> {
        self.waiting.front()
    }

    /// The first one, which is in the log from now on.
    pub fn pop(&mut self) -> Option<Mutation> {
        let first = self.waiting.pop_front()?;
        self.bytes -= first.bytes();
        self.logged += 1;
        Some(first)
    }

    /// Mutation `number`, if it is here.
    pub fn get_mut(&mut self, number: u64) -> Option<&mut Mutation> {
        let index = number.checked_sub(self.logged + 1)?;
        self.waiting.get_mut(usize::try_from(index).ok()?)
    }

    /// Bytes that all take in the log.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether all are in the log.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}
