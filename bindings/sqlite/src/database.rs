//! A database in a store, or a write-ahead log: what is committed of it, and over that the changes of the transaction under way.
//!
//! ```text
//!   SQLite reads  ──▶  staged pages (scratch)  ──▶  committed pages, up to `kept`  ──▶  zeroes
//!   SQLite writes ──▶  staged pages            ··▶  a batch of the store, when SQLite syncs
//! ```
//!
//! Changes stay in the process until they are committed, and not in the store: SQLite reads back pages that it has written, writes some of them
//! again and again, and writes the old pages when it rolls back. Of all that only the last state of a page reaches the store, and nothing where it
//! is the state before. A process that is killed leaves nothing behind. A log gathers its small appends in the same way: each frame is a page.

use crate::ffi;
use crate::format::{Compression, Extent, FileKind, Spot, encode, is_page_size, lpid, write_head};
use crate::held::Held;
use crate::scratch::Scratch;
use crate::shared_memory::SharedMemory;
use crate::store::{DELETES_MAX, Store};
use crate::trouble::Trouble;
use openftl_pages::Change;
use std::collections::BTreeMap;

/// How a database begins.
const MAGIC: &[u8; 16] = b"SQLite format 3\0";
/// Pages of a log that are committed in one batch: a log needs not to be whole.
const LOG_BATCH_PAGES: usize = 1024;

/// See the module.
#[derive(Default)]
pub struct Database {
    /// Its file number; none before the first commit.
    pub number: Option<u32>,
    committed: Extent,
    current: Extent,
    /// Of the committed pages, those up to this one have not been truncated.
    kept: u32,
    /// Changed pages, and where each is in `scratch`.
    staged: BTreeMap<u32, u64>,
    scratch: Scratch,
    /// The end of the last place in `scratch`.
    scratch_end: u64,
    /// Page 1 as it is committed, where no other process can commit another.
    first: Option<Vec<u8>>,
    /// A page that is changed in part, or compared, or stored.
    page: Vec<u8>,
    /// A page as it is to be stored.
    stored: Vec<u8>,
    /// How its pages are stored.
    pub compression: Compression,
    /// SQLite has read the journal: staged pages may be as they were.
    pub is_rolled_back: bool,
    /// SQLite has said that this transaction is complete, and has written nothing since.
    pub is_complete: bool,
    /// SQLite has asked for it to survive a power cut, when the super-journal is deleted.
    pub is_to_be_durable: bool,
    /// The super-journal of the transaction.
    pub super_journal: Option<String>,
    /// What its connections hold, where no other process has any.
    pub held: Held,
    /// The connection of this process that is about to write.
    pub writer: Option<u64>,
    /// What its connections share in WAL mode.
    pub memory: Option<SharedMemory>,
    /// Why other processes do not see the last transaction of its log.
    pub unpublished: Option<Trouble>,
    /// Connections of this process that have it open.
    pub connections: u32,
}

impl Database {
    /// A file that is not in the store yet.
    pub fn new(kind: FileKind) -> Database {
        Database { committed: Extent::empty(kind), current: Extent::empty(kind), ..Database::default() }
    }

    /// The file with a number, of this length.
    pub fn stored(number: u32, extent: Extent) -> Database {
        let mut database = Database::new(extent.kind);
        database.is_stored(number, extent);
        database
    }

    /// In the store it has this number and length, and nothing is staged.
    pub fn is_stored(&mut self, number: u32, extent: Extent) {
        self.number = Some(number);
        (self.committed, self.current, self.kept) = (extent, extent, extent.pages());
    }

    /// It is not in the store any more, and nothing is staged.
    pub fn is_gone(&mut self) {
        let empty = Extent::empty(self.committed.kind);
        self.number = None;
        (self.committed, self.current, self.kept) = (empty, empty, 0);
    }

    /// What it is.
    pub fn kind(&self) -> FileKind {
        self.committed.kind
    }

    /// Bytes, as the transaction under way has them.
    pub fn length(&self) -> u64 {
        self.current.length
    }

    /// Whether anything is to be committed.
    pub fn is_changed(&self) -> bool {
        !self.staged.is_empty() || self.current != self.committed || self.kept < self.committed.pages()
    }

    /// Fills `bytes` with a page as it is committed.
    fn read_committed(&mut self, store: &mut Store, page: u32, bytes: &mut [u8]) -> Result<(), Trouble> {
        match &self.first {
            Some(first) if page == 1 => bytes.copy_from_slice(first),
            _ => {
                let file = self.number.expect("a database with committed pages has a number");
                store.read_page(file, page, bytes)?;
                if page == 1 && !store.is_shared() && self.kind() == FileKind::Database {
                    self.first = Some(bytes.to_vec());
                }
            }
        }
        Ok(())
    }

    /// Fills `bytes` with a page as the transaction under way has it.
    fn read_whole(&mut self, store: &mut Store, page: u32, bytes: &mut [u8]) -> Result<(), Trouble> {
        if let Some(slot) = self.staged.get(&page) {
            self.scratch.read(bytes, *slot)?;
        } else if page <= self.kept {
            self.read_committed(store, page, bytes)?;
        } else {
            bytes.fill(0);
        }
        Ok(())
    }

    /// Calls `with` with a page as the transaction under way has it, in memory that is used again.
    fn with_page<T>(
        &mut self,
        store: &mut Store,
        page: u32,
        with: impl FnOnce(&mut Database, &mut Vec<u8>) -> Result<T, Trouble>,
    ) -> Result<T, Trouble> {
        let mut bytes = std::mem::take(&mut self.page);
        bytes.resize(self.current.bytes_of(page), 0);
        let done = self.read_whole(store, page, &mut bytes).and_then(|()| with(self, &mut bytes));
        self.page = bytes;
        done
    }

    fn stage(&mut self, page: u32, bytes: &[u8]) -> Result<(), Trouble> {
        let slot = *self.staged.get(&page).unwrap_or(&self.scratch_end);
        self.scratch.write(bytes, slot)?;
        if self.staged.insert(page, slot).is_none() {
            self.scratch_end = slot + bytes.len() as u64;
        }
        Ok(())
    }

    fn locate(&self, offset: u64) -> Result<Spot, Trouble> {
        let spot = self.current.locate(offset);
        spot.ok_or_else(|| Trouble::new(ffi::FULL, "a database has 4294967294 pages at most"))
    }

    /// Fills `bytes` from `offset` on, with zeroes behind the end. Returns how many there were.
    pub fn read(&mut self, store: &mut Store, bytes: &mut [u8], offset: u64) -> Result<usize, Trouble> {
        let count = self.current.length.saturating_sub(offset).min(bytes.len() as u64) as usize;
        let (here, behind) = bytes.split_at_mut(count);
        behind.fill(0);
        let mut done = 0;
        while done < count {
            let spot = self.locate(offset + done as u64)?;
            let part = (count - done).min(spot.bytes - spot.within);
            let to = &mut here[done..done + part];
            if part == spot.bytes {
                self.read_whole(store, spot.page, to)?;
            } else {
                self.with_page(store, spot.page, |_, page| {
                    to.copy_from_slice(&page[spot.within..spot.within + part]);
                    Ok(())
                })?;
            }
            done += part;
        }
        Ok(count)
    }

    /// Writes `bytes` at `offset`, as part of the transaction under way.
    pub fn write(&mut self, store: &mut Store, bytes: &[u8], offset: u64) -> Result<(), Trouble> {
        self.is_complete = false;
        if self.current.page_bytes == 0 {
            self.current.page_bytes = self.current.page_bytes_for(bytes, offset);
        } else if self.kind() == FileKind::Log && offset == 0 {
            // A log that begins anew: no frame that it has is of any use.
            let page_bytes = self.current.page_bytes_for(bytes, offset);
            if page_bytes != self.current.page_bytes {
                self.truncate(store, 0)?;
                self.current.page_bytes = page_bytes;
            }
        }
        let mut done = 0;
        while done < bytes.len() {
            let spot = self.locate(offset + done as u64)?;
            let part = (bytes.len() - done).min(spot.bytes - spot.within);
            let from = &bytes[done..done + part];
            if part == spot.bytes {
                self.stage(spot.page, from)?;
            } else {
                self.with_page(store, spot.page, |database, whole| {
                    whole[spot.within..spot.within + part].copy_from_slice(from);
                    database.stage(spot.page, whole)
                })?;
            }
            done += part;
        }
        self.current.length = self.current.length.max(offset + bytes.len() as u64);
        Ok(())
    }

    /// Has `length` bytes, as part of the transaction under way.
    pub fn truncate(&mut self, store: &mut Store, length: u64) -> Result<(), Trouble> {
        self.is_complete = false;
        if length == 0 {
            self.staged.clear();
            self.scratch.truncate(0)?;
            self.scratch_end = 0;
            (self.current, self.kept) = (Extent::empty(self.kind()), 0);
            return Ok(());
        }
        if self.current.page_bytes == 0 {
            self.current.page_bytes = self.current.page_bytes_for(&[], 0);
        }
        let last = self.locate(length - 1)?;
        if length < self.current.length {
            if last.within + 1 < last.bytes {
                self.with_page(store, last.page, |database, page| {
                    page[last.within + 1..].fill(0);
                    database.stage(last.page, page)
                })?;
            }
            // A page behind the end is zeroes, should the file become longer again.
            self.staged.retain(|page, _| *page <= last.page);
            self.kept = self.kept.min(last.page);
        }
        self.current.length = length;
        Ok(())
    }

    /// Stages all pages anew if the database says that its pages have another size than those of the file: after VACUUM with another page size.
    fn change_page_size(&mut self, store: &mut Store) -> Result<(), Trouble> {
        if self.kind() == FileKind::Log || self.current.length < 100 || !self.staged.contains_key(&1) {
            return Ok(());
        }
        let mut head = [0; 18];
        self.read(store, &mut head, 0)?;
        let size = match u32::from(head[16]) << 8 | u32::from(head[17]) {
            1 => 65536,
            size => size,
        };
        let length = self.current.length;
        let is_other = size != self.current.page_bytes && is_page_size(u64::from(size));
        if head[..16] != *MAGIC || !is_other || !length.is_multiple_of(u64::from(size)) {
            return Ok(());
        }
        let (mut staged, mut scratch) = (BTreeMap::new(), Scratch::default());
        let mut page = vec![0; size as usize];
        for number in 1..=(length / u64::from(size)) as u32 {
            let slot = u64::from(number - 1) * u64::from(size);
            self.read(store, &mut page, slot)?;
            scratch.write(&page, slot)?;
            staged.insert(number, slot);
        }
        (self.staged, self.scratch, self.scratch_end, self.kept) = (staged, scratch, length, 0);
        self.current.page_bytes = size;
        Ok(())
    }

    /// Stages one staged page in the store. Returns whether there was anything to stage.
    fn stage_page(&mut self, store: &mut Store, number: u32, page: u32, slot: u64) -> Result<bool, Trouble> {
        let mut bytes = std::mem::take(&mut self.page);
        bytes.resize(self.current.bytes_of(page), 0);
        let staged = (|| {
            if self.is_rolled_back && page <= self.kept {
                let mut before = vec![0; bytes.len()];
                self.read_committed(store, page, &mut before)?;
                self.scratch.read(&mut bytes, slot)?;
                if before == bytes {
                    return Ok(false);
                }
            }
            self.scratch.read(&mut bytes, slot)?;
            // A page that was freed and overwritten with zeroes takes no room.
            let is_empty = bytes.iter().all(|byte| *byte == 0);
            if !is_empty {
                encode(&bytes, self.compression, &mut self.stored);
            }
            let stored = &self.stored[..];
            let change = if is_empty { Change::Delete } else { Change::Put(&[stored]) };
            store.stage(lpid(number, page), change)?;
            Ok(true)
        })();
        self.page = bytes;
        staged
    }

    /// Stages the transaction in the store, as file `number`. Returns whether there was anything to stage, and what is left for later.
    pub fn stage_all(&mut self, store: &mut Store, number: u32) -> Result<Staging, Trouble> {
        self.change_page_size(store)?;
        let mut staging = Staging::default();
        let (pages, old) = (self.current.pages(), self.committed.pages());
        let most = if self.kind() == FileKind::Log { LOG_BATCH_PAGES } else { usize::MAX };
        let changed: Vec<(u32, u64)> = self.staged.iter().map(|(page, slot)| (*page, *slot)).take(most).collect();
        for (page, slot) in changed {
            if page <= pages {
                staging.is_any |= self.stage_page(store, number, page, slot)?;
            }
            staging.last = page;
        }
        staging.is_part = self.staged.len() > most;
        let mut deletes = 0;
        for page in self.kept + 1..=old {
            if page <= pages && self.staged.contains_key(&page) {
                continue;
            }
            // What is behind the end can go later. Holes cannot, and there are few.
            if page > pages && deletes == DELETES_MAX {
                staging.sweep_from = Some(page);
                break;
            }
            store.stage(lpid(number, page), Change::Delete)?;
            staging.is_any = true;
            deletes += 1;
        }
        if self.current != self.committed {
            store.stage(lpid(number, 0), Change::Put(&[&write_head(self.current)]))?;
            staging.is_any = true;
        }
        Ok(staging)
    }

    /// A part of what was staged of a log is committed, as file `number`.
    pub fn part_committed(&mut self, number: u32, staging: &Staging) {
        self.number = Some(number);
        self.committed = self.current;
        self.kept = self.kept.max(staging.last).min(self.current.pages());
        self.staged.retain(|page, _| *page > staging.last);
    }

    /// What was staged is committed, as file `number`.
    pub fn committed(&mut self, number: u32) {
        if self.kind() == FileKind::Database
            && let Some(first) = &mut self.first
        {
            // It can be read from the store as well.
            match self.staged.get(&1) {
                Some(slot) => {
                    first.resize(self.current.page_bytes as usize, 0);
                    if self.scratch.read(first, *slot).is_err() {
                        self.first = None;
                    }
                }
                None if self.kept == 0 => self.first = None,
                None => {}
            }
        }
        self.number = Some(number);
        self.committed = self.current;
        self.discard();
    }

    /// The transaction under way is given up.
    pub fn discard(&mut self) {
        self.staged.clear();
        // Nothing can fail where a file is only closed.
        _ = self.scratch.truncate(0);
        self.scratch_end = 0;
        self.current = self.committed;
        self.kept = self.committed.pages();
        (self.is_rolled_back, self.is_complete, self.is_to_be_durable) = (false, false, false);
        self.super_journal = None;
    }
}

/// What was staged of a transaction.
#[derive(Clone, Copy, Default)]
pub struct Staging {
    /// Anything at all.
    pub is_any: bool,
    /// The last page of it.
    pub last: u32,
    /// There are more, for another batch.
    pub is_part: bool,
    /// Pages from this one on are to be deleted after the commit.
    pub sweep_from: Option<u32>,
}
