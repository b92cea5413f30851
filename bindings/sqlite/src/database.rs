//! A database in a store: what is committed of it, and over that the changes of the transaction under way.
//!
//! ```text
//!   SQLite reads  ──▶  staged pages (scratch)  ──▶  committed pages, up to `kept`  ──▶  zeroes
//!   SQLite writes ──▶  staged pages            ··▶  a batch of the store, when SQLite syncs
//! ```
//!
//! Changes stay in the process until they are committed, and not in the store: SQLite reads back pages that it has written, writes some of them
//! again and again, and writes the old pages when it rolls back. Of all that only the last state of a page reaches the store, and nothing where it
//! is the state before. A process that is killed leaves nothing behind.

use crate::ffi;
use crate::format::{Compression, Extent, decode, encode, is_page_size, lpid, write_head};
use crate::locks::Locks;
use crate::scratch::Scratch;
use crate::store::{DELETES_MAX, Store};
use crate::trouble::Trouble;
use openftl_pages::Change;
use std::collections::BTreeMap;

/// How a database begins.
const MAGIC: &[u8; 16] = b"SQLite format 3\0";
/// Bytes of a page where nothing says how many.
const PAGE_BYTES_DEFAULT: u32 = 4096;

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
    /// Page 1 as it is committed.
    first: Option<Vec<u8>>,
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
    /// Who has which lock.
    pub locks: Locks,
    /// Connections that have it open.
    pub connections: u32,
}

impl Database {
    /// The database with a number, of this length.
    pub fn stored(number: u32, extent: Extent) -> Database {
        Database {
            number: Some(number),
            committed: extent,
            current: extent,
            kept: extent.pages(),
            ..Database::default()
        }
    }

    /// Bytes, as the transaction under way has them.
    pub fn length(&self) -> u64 {
        self.current.length
    }

    /// Whether anything is to be committed.
    pub fn is_changed(&self) -> bool {
        !self.staged.is_empty() || self.current != self.committed || self.kept < self.committed.pages()
    }

    fn committed_page(&mut self, store: &mut Store, page: u32) -> Result<Vec<u8>, Trouble> {
        if page == 1
            && let Some(first) = &self.first
        {
            return Ok(first.clone());
        }
        let bytes = self.committed.page_bytes;
        let file = self.number.expect("a database with committed pages has a number");
        let read = match store.read(lpid(file, page))? {
            None => vec![0; bytes as usize],
            Some(stored) => decode(&stored, bytes).ok_or_else(|| {
                Trouble::damaged(format!("page {page} of file {file} in the store is none of {bytes} bytes"))
            })?,
        };
        if page == 1 {
            self.first = Some(read.clone());
        }
        Ok(read)
    }

    /// A page as the transaction under way has it.
    fn page(&mut self, store: &mut Store, page: u32) -> Result<Vec<u8>, Trouble> {
        let mut bytes = vec![0; self.current.page_bytes as usize];
        if let Some(slot) = self.staged.get(&page) {
            self.scratch.read(&mut bytes, *slot)?;
        } else if page <= self.kept {
            bytes = self.committed_page(store, page)?;
        }
        Ok(bytes)
    }

    fn stage(&mut self, page: u32, bytes: &[u8]) -> Result<(), Trouble> {
        let next = self.staged.len() as u64 * bytes.len() as u64;
        let slot = *self.staged.get(&page).unwrap_or(&next);
        self.scratch.write(bytes, slot)?;
        self.staged.insert(page, slot);
        Ok(())
    }

    /// The page at an offset, and the byte in it.
    fn locate(&self, offset: u64) -> Result<(u32, usize), Trouble> {
        let bytes = u64::from(self.current.page_bytes);
        let page = u32::try_from(offset / bytes + 1).ok().filter(|page| *page < u32::MAX);
        let page = page.ok_or_else(|| Trouble::new(ffi::FULL, "a database has 4294967294 pages at most"))?;
        Ok((page, (offset % bytes) as usize))
    }

    /// Fills `bytes` from `offset` on, with zeroes behind the end. Returns how many there were.
    pub fn read(&mut self, store: &mut Store, bytes: &mut [u8], offset: u64) -> Result<usize, Trouble> {
        let count = self.current.length.saturating_sub(offset).min(bytes.len() as u64) as usize;
        let (here, behind) = bytes.split_at_mut(count);
        behind.fill(0);
        let mut done = 0;
        while done < count {
            let (page, within) = self.locate(offset + done as u64)?;
            let part = (count - done).min(self.current.page_bytes as usize - within);
            let from = self.page(store, page)?;
            here[done..done + part].copy_from_slice(&from[within..within + part]);
            done += part;
        }
        Ok(count)
    }

    /// Writes `bytes` at `offset`, as part of the transaction under way.
    pub fn write(&mut self, store: &mut Store, bytes: &[u8], offset: u64) -> Result<(), Trouble> {
        self.is_complete = false;
        if self.current.page_bytes == 0 {
            let length = bytes.len() as u64;
            let is_page = is_page_size(length) && offset.is_multiple_of(length);
            self.current.page_bytes = if is_page { length as u32 } else { PAGE_BYTES_DEFAULT };
        }
        let size = self.current.page_bytes as usize;
        let mut done = 0;
        while done < bytes.len() {
            let (page, within) = self.locate(offset + done as u64)?;
            let part = (bytes.len() - done).min(size - within);
            let from = &bytes[done..done + part];
            if part == size && page == 1 {
                self.stage(page, &without_wal(from.to_vec()))?;
            } else if part == size {
                self.stage(page, from)?;
            } else {
                let mut whole = self.page(store, page)?;
                whole[within..within + part].copy_from_slice(from);
                self.stage(page, &if page == 1 { without_wal(whole) } else { whole })?;
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
            (self.current, self.kept) = (Extent::default(), 0);
            return Ok(());
        }
        if self.current.page_bytes == 0 {
            self.current.page_bytes = PAGE_BYTES_DEFAULT;
        }
        let (last, within) = self.locate(length - 1)?;
        if length < self.current.length {
            if within + 1 < self.current.page_bytes as usize {
                let mut page = self.page(store, last)?;
                page[within + 1..].fill(0);
                self.stage(last, &page)?;
            }
            // Slots are handed out by the number of staged pages, so they stay; a page behind the end is zeroes again.
            let zeroes = vec![0; self.current.page_bytes as usize];
            let behind: Vec<u32> = self.staged.range(last + 1..).map(|(page, _)| *page).collect();
            for page in behind {
                self.stage(page, &zeroes)?;
            }
            self.kept = self.kept.min(last);
        }
        self.current.length = length;
        Ok(())
    }

    /// Stages all pages anew if the database says that its pages have another size than those of the file: after VACUUM with another page size.
    fn change_page_size(&mut self, store: &mut Store) -> Result<(), Trouble> {
        if self.current.length < 100 || !self.staged.contains_key(&1) {
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
        (self.staged, self.scratch, self.kept) = (staged, scratch, 0);
        self.current.page_bytes = size;
        Ok(())
    }

    /// Stages the transaction in the store, as file `number`. Returns whether there was anything to stage, and where what it lets fall behind the
    /// batch begins.
    pub fn stage_all(&mut self, store: &mut Store, number: u32) -> Result<Staging, Trouble> {
        self.change_page_size(store)?;
        let mut staging = Staging::default();
        let (pages, old) = (self.current.pages(), self.committed.pages());
        let mut bytes = vec![0; self.current.page_bytes as usize];
        let changed: Vec<(u32, u64)> = self.staged.iter().map(|(page, slot)| (*page, *slot)).collect();
        for (page, slot) in changed {
            if page > pages {
                continue;
            }
            self.scratch.read(&mut bytes, slot)?;
            let is_kept = self.is_rolled_back && page <= self.kept && self.committed_page(store, page)? == bytes;
            if !is_kept {
                // A page that was freed and overwritten with zeroes takes no room.
                let stored =
                    if bytes.iter().any(|byte| *byte != 0) { encode(&bytes, self.compression) } else { vec![] };
                let change = if stored.is_empty() { Change::Delete } else { Change::Put(&[&stored]) };
                store.stage(lpid(number, page), change)?;
                staging.is_any = true;
            }
        }
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

    /// What was staged is committed, as file `number`.
    pub fn committed(&mut self, number: u32) {
        if let Some(slot) = self.staged.get(&1) {
            let mut first = vec![0; self.current.page_bytes as usize];
            // It can be read from the store as well.
            self.first = self.scratch.read(&mut first, *slot).ok().map(|_| first);
        } else if self.kept == 0 {
            self.first = None;
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
        self.current = self.committed;
        self.kept = self.committed.pages();
        (self.is_rolled_back, self.is_complete, self.is_to_be_durable) = (false, false, false);
        self.super_journal = None;
    }
}

/// Page 1 of a database without a write-ahead log. A database that is restored from one with a log says that it has one, and SQLite refuses to open
/// it here.
fn without_wal(mut page: Vec<u8>) -> Vec<u8> {
    if page[..16] == *MAGIC && page[18..20] == [2, 2] {
        page[18..20].fill(1);
    }
    page
}

/// What was staged of a transaction.
#[derive(Clone, Copy, Default)]
pub struct Staging {
    /// Anything at all.
    pub is_any: bool,
    /// Pages from this one on are to be deleted after the commit.
    pub sweep_from: Option<u32>,
}
