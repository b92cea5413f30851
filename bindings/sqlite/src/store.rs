//! The session of this process on a store of pages.
//!
//! Sessions have fixed identifiers, so they do not pile up, and what a killed process had staged is free room again when the next one takes its
//! session. A process that has the store for itself takes the first one; of those that share a store each takes one that no other has.

use crate::ffi;
use crate::format::{decode, lpid};
use crate::opened::Opened;
use crate::trouble::Trouble;
use openftl_pages::{Change, PageFacts, Session, SessionId, StoreError, StoreFailure};
use openftl_parts::Durability;

/// What identifiers of sessions begin with; the last byte counts them.
const SESSION: [u8; 16] = *b"openftl-sqlite\0\0";
/// Processes that share a store, at most.
const PROCESSES_MAX: u8 = 128;
/// Pages that are deleted in one batch when they are of no file any more.
pub const DELETES_MAX: usize = 512;
/// Bytes of a page as it is stored, at most, but for those of the directory and of heads.
const STORED_BYTES: usize = 66 << 10;

/// See the module.
pub struct Store {
    opened: Opened,
    session: Session,
    /// The batch that is staged next.
    next: u64,
    /// Something was committed that may be lost with the power.
    is_volatile: bool,
    /// A commit has failed, and nobody knows how much of it is on media: everything fails until the store is opened anew.
    is_lost: bool,
    /// A page as it is stored.
    stored: Vec<u8>,
}

impl Store {
    pub fn new(opened: Opened) -> Result<Store, Trouble> {
        let cannot = |failure: StoreFailure| Trouble::new(ffi::CANTOPEN, failure.to_string());
        let processes = if opened.is_shared { PROCESSES_MAX } else { 1 };
        for process in 0..processes {
            let mut id = SESSION;
            id[15] = process;
            match Store::take_session(&opened, SessionId(id)) {
                Err(StoreFailure::Refused(StoreError::SessionOpen)) if process + 1 < processes => {}
                taken => {
                    let (session, last) = taken.map_err(cannot)?;
                    let (next, stored) = (last + 1, vec![0; STORED_BYTES]);
                    return Ok(Store { opened, session, next, is_volatile: false, is_lost: false, stored });
                }
            }
        }
        unreachable!("the last identifier is taken or refused")
    }

    /// Opens a session that nobody has. Returns it and the number of its last batch. Another process may be faster, between any two calls.
    fn take_session(opened: &Opened, id: SessionId) -> Result<(Session, u64), StoreFailure> {
        let (session, _) = opened.pages.open_session(id)?;
        // Who had the session before may have committed more than was durable then.
        opened.pages.sync()?;
        opened.pages.close_session(session, false)?;
        opened.pages.open_session(id)
    }

    /// Whether other processes use the store too.
    pub fn is_shared(&self) -> bool {
        self.opened.is_shared
    }

    /// The store as it was opened.
    pub fn opened(&self) -> &Opened {
        &self.opened
    }

    fn expect_sound(&self) -> Result<(), Trouble> {
        if self.is_lost {
            let text = "a commit has failed before; close all databases of the store, and open them again";
            return Err(Trouble::new(ffi::IOERR, text));
        }
        Ok(())
    }

    fn read_stored(&mut self, lpid: u64) -> Result<Option<PageFacts>, Trouble> {
        self.expect_sound()?;
        loop {
            match self.opened.pages.read(lpid, 0, &mut self.stored) {
                Ok(facts) if facts.bytes as usize <= self.stored.len() => return Ok(Some(facts)),
                Ok(facts) => self.stored.resize(facts.bytes as usize, 0),
                Err(StoreFailure::Refused(StoreError::NoPage { .. })) => return Ok(None),
                Err(failure) => return Err(Trouble::reading(&failure)),
            }
        }
    }

    /// The bytes of a page, and its version, if it is there.
    pub fn read(&mut self, lpid: u64) -> Result<Option<(&[u8], u64)>, Trouble> {
        let facts = self.read_stored(lpid)?;
        Ok(facts.map(|facts| (&self.stored[..facts.bytes as usize], facts.version)))
    }

    /// Fills `page` with page `number` of a file; zeroes if it is not there.
    pub fn read_page(&mut self, file: u32, number: u32, page: &mut [u8]) -> Result<(), Trouble> {
        match self.read_stored(lpid(file, number))? {
            None => page.fill(0),
            Some(facts) if decode(&self.stored[..facts.bytes as usize], page) => {}
            Some(_) => {
                let bytes = page.len();
                let text = format!("page {number} of file {file} in the store is none of {bytes} bytes");
                return Err(Trouble::damaged(text));
            }
        }
        Ok(())
    }

    /// Adds a change to the batch that is staged.
    pub fn stage(&mut self, lpid: u64, change: Change<'_>) -> Result<(), Trouble> {
        self.stage_if(lpid, change, None)
    }

    /// The same, on condition that the page has this version when the batch is committed.
    pub fn stage_if(&mut self, lpid: u64, change: Change<'_>, if_version: Option<u64>) -> Result<(), Trouble> {
        self.expect_sound()?;
        Ok(self.opened.pages.stage(self.session, self.next, lpid, change, if_version)?)
    }

    /// Gives up what is staged.
    pub fn abort(&mut self) {
        // It fails only if the session is not open, and then nothing is staged.
        _ = self.opened.pages.abort(self.session, self.next);
    }

    /// Commits what is staged. Returns whether its conditions held; if not, nothing has happened.
    pub fn commit(&mut self, durability: Durability) -> Result<bool, Trouble> {
        self.expect_sound()?;
        match self.opened.pages.commit(self.session, self.next, durability) {
            Ok(()) => {}
            Err(StoreFailure::Refused(StoreError::Condition { .. })) => return Ok(false),
            Err(failure) => {
                self.is_lost = true;
                return Err(failure.into());
            }
        }
        self.next += 1;
        self.is_volatile = durability == Durability::Volatile;
        Ok(true)
    }

    /// Waits until all that was committed survives a power cut.
    pub fn sync(&mut self) -> Result<(), Trouble> {
        self.expect_sound()?;
        if self.is_volatile {
            self.opened.pages.sync()?;
            self.is_volatile = false;
        }
        Ok(())
    }

    /// Deletes pages `first` and on of a file, in batches of their own.
    pub fn sweep(&mut self, file: u32, first: u32) -> Result<(), Trouble> {
        let (mut from, end) = (lpid(file, first), (u64::from(file) + 1) << 32);
        loop {
            let found = self.opened.pages.list(from, DELETES_MAX)?;
            let found: Vec<u64> = found.into_iter().map(|(lpid, _)| lpid).take_while(|lpid| *lpid < end).collect();
            let Some(last) = found.last() else { return Ok(()) };
            for lpid in &found {
                self.stage(*lpid, Change::Delete)?;
            }
            self.commit(Durability::Volatile)?;
            from = last + 1;
        }
    }

    /// The files that have pages, in their order.
    pub fn files(&self) -> Result<Vec<u32>, Trouble> {
        let (mut files, mut from) = (Vec::new(), lpid(1, 0));
        while let Some((lpid, _)) = self.opened.pages.list(from, 1)?.first() {
            let file = (lpid >> 32) as u32;
            files.push(file);
            let Some(next) = file.checked_add(1) else { break };
            from = u64::from(next) << 32;
        }
        Ok(files)
    }

    /// Ends the session, and stops the drive if it is of this process.
    pub fn close(self) -> Result<(), Trouble> {
        // What is committed is not given up by that; a store that is gone has closed it.
        _ = self.opened.pages.close_session(self.session, false);
        self.opened.close()
    }
}
