//! Commits: how the state of a drive file survives a crash of the machine (`durability = "machine"`).
//!
//! A crash of the machine may keep or lose each page that was not synced, in any combination. A commit makes one moment of the
//! device durable as a whole: after a crash the device is as it was at the last commit that ended, or at one that had begun.
//! So flash in a file is like flash that loses its power at an earlier moment, and recovery needs no rule of its own for it.
//! The steps, and what a crash after each leaves:
//!
//! 1. **Sync** the blocks written so far, and what older commits left to be written to its place. *Crash: the last commit;
//!    blocks beyond its write pointers are as if they were never written.*
//! 2. **Write an entry** of the journal with the records and lost-block bitmaps that have changed. *Crash: the last commit, or
//!    this one: an entry that is not whole is none.*
//! 3. **Sync** the entry. *Crash: this commit, or a later one.*
//! 4. **Punch** the chunks whose reset is now durable. *Crash: this commit, or a later one.*
//!
//! That is enough because flash is never overwritten: blocks are written beyond the write pointer of the last commit, where a
//! crash forgets them. The one exception is a chunk whose write pointer went back, by a reset or a power cut of the emulated
//! device. What it held stays until a commit has made that durable: its hole is punched in step 4, and a write to it waits.
//!
//! Records reach their places in the file when the journal is full, in step 1 of the commit that begins it anew, and when the
//! file is closed. The journal has room for an entry about every chunk.
//!
//! # Group commit
//! One commit is under way at a time. Whoever wants one while it is shares the next: it begins when the one before has ended,
//! and covers everything that was written by then. A helper thread does the steps, if there is one, and the device goes on
//! meanwhile; it calls whoever owns the device when it is done. Without one (in virtual time, and while a drive is made or
//! checked) they are done at once.
//!
//! # When a sync fails
//! The system then counts pages as written that are not on the disk, and no later sync would write them. So nothing is tried
//! again: no commit succeeds from then on, and neither does a write. The last commit is what the file holds when it is opened.

use super::disk::Disk;
use super::format::{self, JournalEntry, JournalRecord, Layout, Record};
use openftl_core::{ChunkId, UnknownWord};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::JoinHandle;
use strum::{EnumString, IntoStaticStr, VariantNames};

/// What a drive file promises to survive when a flush has ended.
#[derive(
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    Debug,
    Default,
    serde::Serialize,
    serde::Deserialize,
    EnumString,
    IntoStaticStr,
    VariantNames,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case", parse_err_ty = UnknownWord, parse_err_fn = unknown)]
pub enum Durability {
    /// A crash of the machine, and the loss of its power.
    #[default]
    Machine,
    /// The death of the process; a crash of the machine may damage the drive, which its checksums detect.
    Process,
}

impl Durability {
    /// As people write it.
    #[must_use]
    pub fn word(self) -> &'static str {
        self.into()
    }
}

fn unknown(text: &str) -> UnknownWord {
    UnknownWord::new(text, "durability", Durability::VARIANTS)
}

/// The steps of one commit.
struct Job {
    /// Records and bitmaps of older commits, and their places.
    home: Vec<(u64, Vec<u8>)>,
    entry: Vec<u8>,
    entry_at: u64,
    /// Chunks to be punched: where they begin, and their bytes.
    punched: Vec<(u64, u64)>,
}

impl Job {
    fn run(&self, disk: &Disk) -> io::Result<()> {
        for (at, bytes) in &self.home {
            disk.write_all_at(bytes, *at)?;
        }
        disk.sync()?;
        disk.write_all_at(&self.entry, self.entry_at)?;
        disk.sync()?;
        for (at, bytes) in &self.punched {
            disk.punch(*at, *bytes);
        }
        Ok(())
    }
}

/// Called by another thread when a commit has ended, so that the device is polled soon. It must not wait for the device.
pub type Waker = Box<dyn Fn() + Send>;

/// A thread that does the steps of commits.
#[derive(Debug)]
struct Helper {
    /// Taken when the thread is to end.
    jobs: Option<Sender<Job>>,
    ended: Receiver<io::Result<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Helper {
    fn start(disk: Arc<Disk>, wake: Waker) -> io::Result<Helper> {
        let (jobs, to_do) = channel::<Job>();
        let (end, ended) = channel();
        let work = move || {
            while let Ok(job) = to_do.recv() {
                if end.send(job.run(&disk)).is_err() {
                    break;
                }
                wake();
            }
        };
        let thread = std::thread::Builder::new().name("openftl-sync".to_owned()).spawn(work)?;
        Ok(Helper { jobs: Some(jobs), ended, thread: Some(thread) })
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Numbers of chunks, each once.
#[derive(Debug)]
struct ChunkSet {
    list: Vec<u32>,
    has: Vec<bool>,
}

impl ChunkSet {
    fn new(chunks: usize) -> ChunkSet {
        ChunkSet { list: Vec::new(), has: vec![false; chunks] }
    }

    #[inline]
    fn add(&mut self, number: u32) {
        if !std::mem::replace(&mut self.has[number as usize], true) {
            self.list.push(number);
        }
    }

    fn take(&mut self) -> Vec<u32> {
        let list = std::mem::take(&mut self.list);
        list.iter().for_each(|number| self.has[*number as usize] = false);
        list
    }
}

/// What the device is told of a chunk whose contents it has let go of.
#[derive(Debug)]
struct Retreat {
    chunk: ChunkId,
    /// The commit that makes it durable.
    commit: u64,
    /// Where its hole is to be, once the device asked for one.
    hole: Option<(u64, u64)>,
}

/// The commits of one drive file.
#[derive(Debug)]
pub(super) struct Commits {
    disk: Arc<Disk>,
    layout: Layout,
    /// The records as they are now, by the number of the chunk.
    records: Vec<Record>,
    changed: ChunkSet,
    /// The bitmaps that have changed since the file was opened, and which of them have since the last commit began.
    bitmaps: BTreeMap<u32, Vec<u8>>,
    changed_bitmaps: ChunkSet,
    /// What is committed and not at its place: by its place in the file.
    homeless: BTreeMap<u64, Vec<u8>>,
    /// Of the commit under way.
    entry: Option<JournalEntry>,
    retreats: Vec<Retreat>,
    /// Commits that were begun, that have ended, and that somebody wants.
    begun: u64,
    ended: u64,
    wanted: u64,
    sequence: u64,
    next_entry: u64,
    helper: Option<Helper>,
    failure: Option<(io::ErrorKind, String)>,
}

impl std::fmt::Debug for Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a commit of {} bytes", self.entry.len())
    }
}

impl Commits {
    /// Commits of a file whose records are `records`, all of them on the disk, and whose journal counts for nothing.
    /// `sequence` is above those of all entries that the journal ever had.
    pub fn new(disk: Arc<Disk>, layout: Layout, records: Vec<Record>, sequence: u64) -> Commits {
        let chunks = records.len();
        Commits {
            disk,
            layout,
            records,
            changed: ChunkSet::new(chunks),
            bitmaps: BTreeMap::new(),
            changed_bitmaps: ChunkSet::new(chunks),
            homeless: BTreeMap::new(),
            entry: None,
            retreats: Vec::new(),
            begun: 0,
            ended: 0,
            wanted: 0,
            sequence,
            next_entry: layout.journal_start,
            helper: None,
            failure: None,
        }
    }

    /// From now on a thread does the steps, and calls `wake` after each commit.
    pub fn start_helper(&mut self, wake: Waker) -> io::Result<()> {
        if self.helper.is_none() {
            self.helper = Some(Helper::start(Arc::clone(&self.disk), wake)?);
        }
        Ok(())
    }

    /// Commits that have ended.
    pub fn count(&self) -> u64 {
        self.ended
    }

    /// Refuses everything once a sync has failed.
    #[inline]
    pub fn check(&self) -> io::Result<()> {
        match &self.failure {
            None => Ok(()),
            Some((kind, message)) => Err(io::Error::new(*kind, message.clone())),
        }
    }

    /// The next commit has this record.
    #[inline]
    pub fn record(&mut self, chunk: ChunkId, number: u32, record: Record) {
        let before = std::mem::replace(&mut self.records[number as usize], record);
        if record.resets != before.resets || record.write_pointer.get() < before.write_pointer.get() {
            let commit = self.begun + 1;
            match self.retreats.iter_mut().find(|retreat| retreat.chunk == chunk) {
                Some(retreat) => retreat.commit = commit,
                None => self.retreats.push(Retreat { chunk, commit, hole: None }),
            }
        }
        self.changed.add(number);
    }

    /// The next commit has this bitmap.
    pub fn set_bitmap(&mut self, number: u32, bitmap: Vec<u8>) {
        self.bitmaps.insert(number, bitmap);
        self.changed_bitmaps.add(number);
    }

    /// The bitmap of a chunk, if it has changed since the file was opened.
    pub fn bitmap(&self, number: u32) -> Option<&Vec<u8>> {
        self.bitmaps.get(&number)
    }

    /// A hole is to be where `chunk` was. Returns whether it may be punched now.
    pub fn may_punch(&mut self, chunk: ChunkId, at: u64, bytes: u64) -> bool {
        match self.retreats.iter_mut().find(|retreat| retreat.chunk == chunk) {
            None => self.failure.is_none(),
            Some(retreat) => {
                retreat.hole = Some((at, bytes));
                false
            }
        }
    }

    /// Called before blocks are written to `chunk`: what it held must not be needed by any crash.
    #[inline]
    pub fn before_write(&mut self, chunk: ChunkId) -> io::Result<()> {
        self.check()?;
        if self.retreats.iter().any(|retreat| retreat.chunk == chunk) {
            return self.commit_now();
        }
        Ok(())
    }

    /// Wants a commit of everything so far. Returns its number: it has ended when [`Commits::advance`] returns as much.
    pub fn want(&mut self) -> io::Result<u64> {
        self.check()?;
        let has_changed = !self.changed.list.is_empty() || !self.changed_bitmaps.list.is_empty();
        let number = if has_changed { self.begun + 1 } else { self.begun };
        self.wanted = self.wanted.max(number);
        self.advance()?;
        Ok(number)
    }

    /// Takes note of a commit that has ended, and begins the next if it is wanted. Returns how many have ended.
    pub fn advance(&mut self) -> io::Result<u64> {
        self.check()?;
        loop {
            if self.entry.is_some() {
                let helper = self.helper.as_ref().expect("without one a commit ends when it begins");
                match helper.ended.try_recv() {
                    Ok(result) => self.end(result)?,
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => self.end(Err(io::ErrorKind::BrokenPipe.into()))?,
                }
            }
            if self.wanted <= self.begun {
                break;
            }
            self.begin()?;
        }
        Ok(self.ended)
    }

    /// Commits everything so far, and waits for it.
    pub fn commit_now(&mut self) -> io::Result<()> {
        let number = self.want()?;
        while self.ended < number {
            if self.entry.is_some() {
                let helper = self.helper.as_ref().expect("without one a commit ends when it begins");
                let result = helper.ended.recv().unwrap_or(Err(io::ErrorKind::BrokenPipe.into()));
                self.end(result)?;
            }
            self.advance()?;
        }
        Ok(())
    }

    fn begin(&mut self) -> io::Result<()> {
        let records = self.changed.take().into_iter();
        let records =
            records.map(|number| JournalRecord { number: number.into(), record: self.records[number as usize] });
        let bitmaps = self.changed_bitmaps.take().into_iter();
        let bitmaps = bitmaps.map(|number| (number, self.bitmaps[&number].clone()));
        let entry = JournalEntry { sequence: self.sequence, records: records.collect(), bitmaps: bitmaps.collect() };
        self.sequence += 1;
        self.begun += 1;
        let bytes = entry.encode();
        let is_full = self.next_entry + bytes.len() as u64 > self.layout.chunks_start;
        let home = if is_full { std::mem::take(&mut self.homeless).into_iter().collect() } else { Vec::new() };
        if is_full {
            self.next_entry = self.layout.journal_start;
        }
        let entry_at = self.next_entry;
        self.next_entry += bytes.len() as u64;
        let durable = self.retreats.iter().filter(|retreat| retreat.commit <= self.begun);
        let punched: Vec<(u64, u64)> = durable.filter_map(|retreat| retreat.hole).collect();
        // What is asked for from now on is punched when the commit has ended.
        self.retreats.iter_mut().filter(|retreat| retreat.commit <= self.begun).for_each(|retreat| retreat.hole = None);
        let job = Job { home, entry: bytes, entry_at, punched };
        self.entry = Some(entry);
        match &self.helper {
            None => {
                let result = job.run(&self.disk);
                self.end(result)
            }
            Some(helper) => {
                let jobs = helper.jobs.as_ref().expect("the thread is at work");
                if jobs.send(job).is_err() {
                    return self.end(Err(io::ErrorKind::BrokenPipe.into()));
                }
                Ok(())
            }
        }
    }

    fn end(&mut self, result: io::Result<()>) -> io::Result<()> {
        let entry = self.entry.take().expect("a commit is under way");
        if let Err(error) = result {
            self.failure = Some((error.kind(), error.to_string()));
            return Err(error);
        }
        self.ended = self.begun;
        for JournalRecord { number, record } in entry.records {
            self.homeless.insert(record_place(number.get()), zerocopy::IntoBytes::as_bytes(&record).to_vec());
        }
        for (number, bitmap) in entry.bitmaps {
            self.homeless.insert(bitmap_place(&self.layout, number), bitmap);
        }
        let (disk, ended) = (&self.disk, self.ended);
        self.retreats.retain(|retreat| {
            let is_durable = retreat.commit <= ended;
            if let (true, Some((at, bytes))) = (is_durable, retreat.hole) {
                disk.punch(at, bytes);
            }
            !is_durable
        });
        Ok(())
    }

    /// Commits what there is and takes all of it to its place, so that the journal is not needed.
    pub fn close(&mut self) -> io::Result<()> {
        self.commit_now()?;
        for (at, bytes) in std::mem::take(&mut self.homeless) {
            self.disk.write_all_at(&bytes, at)?;
        }
        self.disk.sync()
    }
}

impl Drop for Commits {
    fn drop(&mut self) {
        // After a failure the file is as the last commit left it.
        let _ = self.close();
    }
}

/// Where the record of a chunk is in the file.
pub(super) fn record_place(number: u32) -> u64 {
    u64::from(format::HEADER_BYTES) + u64::from(number) * size_of::<Record>() as u64
}

/// Where the bitmap of a chunk is in the file.
pub(super) fn bitmap_place(layout: &Layout, number: u32) -> u64 {
    layout.chunks_start + u64::from(number) * layout.chunk_bytes + layout.bitmap_start
}

/// Takes what counts of the journal to its place, and makes the journal count for nothing. Returns a sequence above those of
/// all its entries.
pub(super) fn replay(disk: &Disk, layout: &Layout) -> io::Result<u64> {
    let mut journal = vec![0; (layout.chunks_start - layout.journal_start) as usize];
    disk.read_exact_at(&mut journal, layout.journal_start)?;
    let parse = |page: u64| {
        let bytes = journal.get((page * format::PAGE_BYTES) as usize..)?;
        JournalEntry::parse(bytes, layout.bitmap_bytes as usize)
    };
    let pages = journal.len() as u64 / format::PAGE_BYTES;
    let newest = (0..pages).filter_map(parse).map(|(entry, _)| entry.sequence).max();
    let (mut page, mut last) = (0, None);
    while let Some((entry, len)) = parse(page)
        && last.is_none_or(|last: u64| entry.sequence == last + 1)
    {
        for JournalRecord { number, record } in &entry.records {
            disk.write_all_at(zerocopy::IntoBytes::as_bytes(record), record_place(number.get()))?;
        }
        for (number, bitmap) in &entry.bitmaps {
            disk.write_all_at(bitmap, bitmap_place(layout, *number))?;
        }
        (page, last) = (page + len, Some(entry.sequence));
    }
    if last.is_some() {
        disk.sync()?;
        disk.write_all_at(&[0; format::PAGE_BYTES as usize], layout.journal_start)?;
        disk.sync()?;
    }
    Ok(newest.map_or(1, |newest| newest + 1))
}
