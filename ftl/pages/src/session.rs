//! Sessions: whose batches follow each other, and what is known of the last ones.
//!
//! A session's batches are committed in the order of their numbers, without gaps. A number that comes again is the same batch, if its changes are
//! the same: then it has been committed. What is told apart by is a digest, kept of the last [`WINDOW`] batches.
//!
//! | bytes of a session on media | field |
//! |---|---|
//! | 0-15 | identifier |
//! | 16-23 | last batch |
//! | 24-27 | 1 if there is a session |
//! | 32-95 | digests of the last batches, the last one first |

use crate::error::{StoreError, WINDOW};
use crate::place::Place;
use crate::request::{Session, SessionId};
use openftl_core::BLOCK_BYTES;
use openftl_core::checksum::Crc32c;
use openftl_parts::target::Durability;
use std::collections::{BTreeMap, VecDeque};

/// Bytes of a session on media.
const SESSION_BYTES: usize = 96;

/// Sessions of a block.
pub const SESSIONS_PER_BLOCK: usize = BLOCK_BYTES / SESSION_BYTES;

/// A change of a batch that is not committed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Staged {
    /// The page.
    pub lpid: u64,
    /// Where its bytes are, and their version; `None`: it is deleted.
    pub put: Option<(Place, u64)>,
    /// The version that it has to have; 0: it must not be there.
    pub if_version: Option<u64>,
    /// Its bytes have not reached the medium.
    pub is_in_flight: bool,
}

/// A batch that is not committed.
#[derive(Default)]
pub struct Batch {
    /// Its changes, in their order.
    pub changes: Vec<Staged>,
    /// It is to be committed when its turn comes: whom to tell.
    pub commit: Option<(u64, Durability)>,
    digest: Crc32c,
}

impl Batch {
    /// Adds a change; of a put, with the bytes and their CRC32C.
    pub fn add(&mut self, staged: Staged, bytes: u32, crc: u32) {
        self.digest.update(&staged.lpid.to_le_bytes());
        self.digest.update(&staged.if_version.map_or(u64::MAX, |version| version).to_le_bytes());
        self.digest.update(&bytes.to_le_bytes());
        self.digest.update(&crc.to_le_bytes());
        self.changes.push(staged);
    }

    /// What tells it from others with its number.
    #[must_use]
    pub fn digest(&self) -> u32 {
        self.digest.value()
    }
}

/// What is known of a batch number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Turn {
    /// It is the next one.
    Next,
    /// Others come before it.
    Ahead,
    /// It was committed, with this digest.
    Committed(u32),
}

/// A session.
pub struct SessionState {
    /// Its identifier.
    pub id: SessionId,
    /// Whether a host has it.
    pub is_open: bool,
    /// The last batch that was committed, and the last one that is durable.
    pub last: u64,
    /// See above.
    pub durable: u64,
    /// Of the last batches, the last one first.
    digests: VecDeque<u32>,
    /// Those that are not committed, by their numbers.
    pub batches: BTreeMap<u64, Batch>,
}

impl SessionState {
    fn new(id: SessionId) -> SessionState {
        SessionState { id, is_open: false, last: 0, durable: 0, digests: VecDeque::new(), batches: BTreeMap::new() }
    }

    /// Whose turn batch `wsn` is.
    ///
    /// # Errors
    /// If it is too far ahead, or was so long ago that nothing is known of it.
    pub fn turn(&self, wsn: u64) -> Result<Turn, StoreError> {
        let last = self.last;
        match wsn.checked_sub(last + 1) {
            Some(0) => Ok(Turn::Next),
            Some(ahead) if ahead < WINDOW => Ok(Turn::Ahead),
            Some(_) => Err(StoreError::Early { wsn, last }),
            None => match self.digests.get((last - wsn) as usize) {
                Some(digest) if wsn > 0 => Ok(Turn::Committed(*digest)),
                _ => Err(StoreError::Late { wsn, last }),
            },
        }
    }

    /// Batch `wsn` was committed, as is found of a log of which something may be missing: of batches between nothing is known.
    pub fn found(&mut self, wsn: u64, digest: u32) {
        if wsn <= self.last {
            return;
        }
        if wsn > self.last + 1 {
            self.digests.clear();
        }
        self.committed(wsn, digest);
        self.durable = wsn;
    }

    /// Batch `wsn` is committed.
    pub fn committed(&mut self, wsn: u64, digest: u32) {
        self.last = wsn;
        self.digests.push_front(digest);
        self.digests.truncate(WINDOW as usize);
    }
}

/// All sessions.
#[derive(Default)]
pub struct Sessions {
    all: Vec<Option<SessionState>>,
    by_id: BTreeMap<SessionId, u32>,
    most: usize,
}

impl Sessions {
    /// None yet, and room for as many as fit into so many blocks.
    #[must_use]
    pub fn new(blocks: u32) -> Sessions {
        Sessions { most: blocks as usize * SESSIONS_PER_BLOCK, ..Sessions::default() }
    }

    /// The session, which a host has open.
    ///
    /// # Errors
    /// If it has not.
    pub fn open(&mut self, session: Session) -> Result<&mut SessionState, StoreError> {
        let found = self.all.get_mut(session.0 as usize).and_then(Option::as_mut);
        found.filter(|state| state.is_open).ok_or(StoreError::NoSession { session: session.0 })
    }

    /// The same, to look at it.
    ///
    /// # Errors
    /// If it has not.
    pub fn look(&self, session: Session) -> Result<&SessionState, StoreError> {
        let found = self.all.get(session.0 as usize).and_then(Option::as_ref);
        found.filter(|state| state.is_open).ok_or(StoreError::NoSession { session: session.0 })
    }

    /// The session, open or not.
    pub fn get_mut(&mut self, session: u32) -> Option<&mut SessionState> {
        self.all.get_mut(session as usize).and_then(Option::as_mut)
    }

    /// The number of the session with an identifier, which there is from now on.
    ///
    /// # Errors
    /// If there is no room for it.
    pub fn find(&mut self, id: SessionId) -> Result<u32, StoreError> {
        if let Some(known) = self.by_id.get(&id) {
            return Ok(*known);
        }
        let free = self.all.iter().position(Option::is_none).unwrap_or(self.all.len());
        if free == self.most {
            return Err(StoreError::TooManySessions { most: self.most });
        }
        if free == self.all.len() {
            self.all.push(None);
        }
        self.all[free] = Some(SessionState::new(id));
        self.by_id.insert(id, free as u32);
        Ok(free as u32)
    }

    /// The session with an identifier, if there is one.
    pub fn with(&mut self, id: SessionId) -> Option<&mut SessionState> {
        let number = *self.by_id.get(&id)?;
        self.get_mut(number)
    }

    /// There is no such session any more.
    pub fn forget(&mut self, id: SessionId) {
        if let Some(session) = self.by_id.remove(&id) {
            self.all[session as usize] = None;
        }
    }

    /// Those that there are, with their numbers.
    pub fn all_mut(&mut self) -> impl Iterator<Item = (u32, &mut SessionState)> {
        (0..).zip(&mut self.all).filter_map(|(number, state)| Some((number, state.as_mut()?)))
    }

    /// Whether any batch is staged.
    #[must_use]
    pub fn has_batches(&self) -> bool {
        self.all.iter().flatten().any(|state| !state.batches.is_empty())
    }

    /// Writes block `at` of them, in which everything counts that was committed.
    pub fn write(&self, at: u32, block: &mut [u8; BLOCK_BYTES]) {
        block.fill(0);
        let here = self.all.iter().skip(at as usize * SESSIONS_PER_BLOCK);
        for (bytes, state) in block.chunks_exact_mut(SESSION_BYTES).zip(here) {
            let Some(state) = state else { continue };
            bytes[..16].copy_from_slice(&state.id.0);
            bytes[16..24].copy_from_slice(&state.last.to_le_bytes());
            bytes[24] = 1;
            bytes[25] = state.digests.len() as u8;
            for (bytes, digest) in bytes[32..].chunks_exact_mut(4).zip(&state.digests) {
                bytes.copy_from_slice(&digest.to_le_bytes());
            }
        }
    }

    /// Takes over block `at` of them from media.
    pub fn read(&mut self, at: u32, block: &[u8; BLOCK_BYTES]) {
        for (number, bytes) in (at as usize * SESSIONS_PER_BLOCK..).zip(block.chunks_exact(SESSION_BYTES)) {
            if bytes[24] != 1 {
                continue;
            }
            let mut state = SessionState::new(SessionId(*bytes.first_chunk().expect("it is longer")));
            state.last = u64::from_le_bytes(*bytes[16..].first_chunk().expect("it is longer"));
            state.durable = state.last;
            let digests = bytes[32..].chunks_exact(4).take((bytes[25] as usize).min(WINDOW as usize));
            let word = |bytes: &[u8]| u32::from_le_bytes(*bytes.first_chunk().expect("four bytes"));
            state.digests = digests.map(word).collect();
            self.by_id.insert(state.id, number as u32);
            let all = self.all.len().max(number + 1);
            self.all.resize_with(all, || None);
            self.all[number] = Some(state);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_their_turn_and_repeated_ones_are_known_for_a_while() {
        let mut sessions = Sessions::new(1);
        let number = sessions.find(SessionId([7; 16])).unwrap();
        let state = sessions.get_mut(number).unwrap();
        for wsn in 1..=40 {
            assert_eq!(state.turn(wsn), Ok(Turn::Next));
            assert_eq!(state.turn(wsn + WINDOW - 1), Ok(Turn::Ahead));
            assert_eq!(state.turn(wsn + WINDOW), Err(StoreError::Early { wsn: wsn + WINDOW, last: wsn - 1 }));
            state.committed(wsn, wsn as u32 * 3);
        }
        let mut block = [0; BLOCK_BYTES];
        sessions.write(0, &mut block);
        let mut again = Sessions::new(1);
        again.read(0, &block);
        let number = again.find(SessionId([7; 16])).unwrap();
        let state = again.get_mut(number).unwrap();
        for wsn in 0..=40 {
            let known =
                if wsn > 24 { Ok(Turn::Committed(wsn as u32 * 3)) } else { Err(StoreError::Late { wsn, last: 40 }) };
            assert_eq!(state.turn(wsn), known);
        }
    }

    #[test]
    fn there_are_so_many_sessions_and_a_forgotten_one_makes_room() {
        let mut sessions = Sessions::new(1);
        let id = |number: usize| SessionId([number as u8; 16]);
        (0..SESSIONS_PER_BLOCK).for_each(|number| assert_eq!(sessions.find(id(number)), Ok(number as u32)));
        assert_eq!(sessions.find(id(99)), Err(StoreError::TooManySessions { most: SESSIONS_PER_BLOCK }));
        sessions.forget(id(5));
        assert_eq!((sessions.find(id(99)), sessions.find(id(6))), (Ok(5), Ok(6)));
    }
}
