//! The store of pages that this process has open, and its one session.
//!
//! The session has a fixed identifier: the store is locked, so no other process can have it, and it is found again after a process was killed.
//! Then sessions do not pile up, and pages that were staged and not committed are free room again when the store is opened.

use crate::ffi;
use crate::format::lpid;
use crate::trouble::Trouble;
use openftl_core::BLOCK_BYTES;
use openftl_drive::page_store::PageStore;
use openftl_media::EmulatedDevice;
use openftl_pages::{Change, Session, SessionId, StoreError, StoreTarget};
use openftl_parts::Durability;
use openftl_parts::words::Purpose;
use std::fmt::Write;

const SESSION: SessionId = SessionId(*b"openftl-sqlite\0\0");
/// Pages that are deleted in one batch when they are of no file any more.
pub const DELETES_MAX: usize = 512;

/// See the module.
pub struct Store {
    pages: PageStore<EmulatedDevice>,
    session: Session,
    /// The batch that is staged next.
    next: u64,
    /// Something was committed that may be lost with the power.
    is_volatile: bool,
    /// A commit has failed, and nobody knows how much of it is on media: everything fails until the store is opened anew.
    is_lost: bool,
}

impl Store {
    pub fn new(mut pages: PageStore<EmulatedDevice>) -> Result<Store, Trouble> {
        let (session, last) =
            pages.open_session(SESSION).map_err(|error| Trouble::new(ffi::CANTOPEN, error.to_string()))?;
        Ok(Store { pages, session, next: last + 1, is_volatile: false, is_lost: false })
    }

    fn expect_sound(&self) -> Result<(), Trouble> {
        if self.is_lost {
            let text = "a commit has failed before; close all databases of the store, and open them again";
            return Err(Trouble::new(ffi::IOERR, text));
        }
        Ok(())
    }

    /// The bytes of a page, if it is there.
    pub fn read(&mut self, lpid: u64) -> Result<Option<Vec<u8>>, Trouble> {
        self.expect_sound()?;
        match self.pages.read(lpid) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(StoreError::NoPage { .. }) => Ok(None),
            Err(error) => Err(Trouble::reading(error)),
        }
    }

    /// Adds a change to the batch that is staged.
    pub fn stage(&mut self, lpid: u64, change: Change<'_>) -> Result<(), Trouble> {
        self.expect_sound()?;
        Ok(self.pages.stage(self.session, self.next, lpid, change)?)
    }

    /// Gives up what is staged.
    pub fn abort(&mut self) {
        let now = self.pages.now();
        // It fails only if the session is not open, and then nothing is staged.
        _ = self.pages.drive_mut().abort(now, self.session, self.next);
    }

    /// Commits what is staged.
    pub fn commit(&mut self, durability: Durability) -> Result<(), Trouble> {
        self.expect_sound()?;
        if let Err(error) = self.pages.commit(self.session, self.next, durability) {
            self.is_lost = true;
            return Err(error.into());
        }
        self.next += 1;
        self.is_volatile = durability == Durability::Volatile;
        Ok(())
    }

    /// Waits until all that was committed survives a power cut.
    pub fn sync(&mut self) -> Result<(), Trouble> {
        self.expect_sound()?;
        if self.is_volatile {
            self.pages.sync()?;
            self.is_volatile = false;
        }
        Ok(())
    }

    /// Deletes pages `first` and on of a file, in batches of their own.
    pub fn sweep(&mut self, file: u32, first: u32) -> Result<(), Trouble> {
        let (mut from, end) = (lpid(file, first), (u64::from(file) + 1) << 32);
        loop {
            let found = self.pages.drive().list(from, DELETES_MAX);
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
    pub fn files(&self) -> Vec<u32> {
        let (mut files, mut from) = (Vec::new(), lpid(1, 0));
        while let Some((lpid, _)) = self.pages.drive().list(from, 1).first() {
            let file = (lpid >> 32) as u32;
            files.push(file);
            let Some(next) = file.checked_add(1) else { break };
            from = u64::from(next) << 32;
        }
        files
    }

    /// What has reached the store and its NAND since it was opened: one line of JSON.
    pub fn statistics(&self) -> String {
        let drive = self.pages.drive();
        let (blocks, pages) = drive.statistics();
        let nand = |purpose: Purpose| blocks.programmed[purpose as usize] * BLOCK_BYTES as u64;
        let figures = [
            ("pages_put", pages.pages_put),
            ("pages_deleted", pages.pages_deleted),
            ("bytes_put", pages.bytes_put),
            ("header_bytes", pages.header_bytes),
            ("grain_bytes", pages.grain_bytes),
            ("padded_bytes", pages.padded_bytes),
            ("log_bytes", pages.log_bytes),
            ("carried_bytes", pages.carried_bytes),
            ("batches_committed", pages.batches_committed),
            ("batches_aborted", pages.batches_aborted),
            ("nand_bytes", blocks.programmed.iter().sum::<u64>() * BLOCK_BYTES as u64),
            ("nand_page_bytes", nand(Purpose::Tenant)),
            ("nand_area_bytes", nand(Purpose::Data)),
            ("nand_relocation_bytes", nand(Purpose::Relocation)),
            ("nand_log_bytes", nand(Purpose::Log) + nand(Purpose::Checkpoint)),
            ("nand_padding_bytes", nand(Purpose::Padding)),
            ("used_bytes", drive.used_bytes()),
            ("capacity_bytes", drive.capacity_bytes()),
        ];
        let mut text = String::from("{");
        for (name, value) in figures {
            let comma = if text.len() > 1 { "," } else { "" };
            write!(text, "{comma}\"{name}\":{value}").expect("a string takes all");
        }
        text + "}"
    }

    /// Stops the drive.
    pub fn close(self) -> Result<(), Trouble> {
        self.pages.close().map(|_| ()).map_err(|failure| Trouble::opening(&failure))
    }
}
