//! The drive: what a host may ask, and what it is composed of.
//!
//! Sans-IO like every FTL: requests are begun with a tag below [`TAGS`], [`Target::poll`] gives back those that have ended, and
//! [`Target::next_due`] says when to poll again.

use crate::asked::{Asked, Deed, Held, Listing, Phase};
use crate::change::Count;
use crate::directory::Directory;
use crate::error::ValueError;
use crate::manifest::Shape;
use crate::merging::{Merge, OF_MERGE};
use crate::request::{Facts, TAGS, Value, ValueDone, ValueInfo, ValueRequest, ValueTarget};
use crate::turns::Turns;
use crate::writing::Writing;
use openftl_blocks::block_ftl::ROUNDS_MAX;
use openftl_core::{BLOCK_BYTES, Frame, FrameForm, Frames, OOB_BYTES_MIN, Time};
use openftl_media::Media;
use openftl_pages::{GRAIN_BYTES, PageFtl, Session, StoreDone, StoreRequest, StoreTarget};
use openftl_parts::target::{Durability, Target, Vitals};
use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};

/// Requests under way, at most.
pub const REQUESTS_MAX: usize = 4096;

/// Bytes of values that wait to be written, at most; one more may come when there are fewer.
pub const WAITING_BYTES_MAX: usize = 32 << 20;

/// Lists that are written at a time.
pub const LISTS_MAX: usize = 8;

/// Frames that the drive reads to for itself: records of keys, lists, pages of the directory.
pub(crate) const OWN_FRAMES: usize = 64;

/// Frames of a page of the directory.
pub(crate) const RUN_FRAMES: usize = crate::run::RUN_PAGE_BYTES / BLOCK_BYTES;

/// What happened since the drive was opened, beside what [`PageFtl::statistics`] has.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ValueStatistics {
    /// Requests that have ended well.
    pub stores: u64,
    /// See above.
    pub retrieves: u64,
    /// See above.
    pub exists: u64,
    /// See above.
    pub deletes: u64,
    /// See above.
    pub lists: u64,
    /// Bytes of values that were stored, and retrieved.
    pub bytes_stored: u64,
    /// See above.
    pub bytes_retrieved: u64,
    /// Reads of pages for requests of values: those of Retrieves, and those by which others learn whether a key is there.
    pub retrieve_reads: u64,
    /// See above.
    pub lookup_reads: u64,
    /// Stores that found another key with their number.
    pub shared: u64,
    /// Bytes on media of changes of the directory, of its runs, and of its manifest.
    pub change_bytes: u64,
    /// See above.
    pub run_bytes: u64,
    /// See above.
    pub manifest_bytes: u64,
    /// Merges of the directory.
    pub merges: u64,
}

/// A key-value drive. See the module.
pub struct ValueFtl<M: ?Sized = dyn Media> {
    pub(crate) shape: Shape,
    pub(crate) directory: Directory,
    pub(crate) merge: Option<Merge>,
    /// Why the last merge could not be done; it is tried again when something else was written.
    pub(crate) merge_error: Option<ValueError>,
    /// Pages that a merge may still write or read before others are served.
    pub(crate) merge_budget: u32,
    pub(crate) asked: Vec<Option<Asked>>,
    pub(crate) free: Vec<usize>,
    /// Where hosts that say so put values that they send.
    pub(crate) staging: Frames,
    /// Bytes of copies of values that wait.
    pub(crate) waiting_bytes: usize,
    pub(crate) turns: Turns,
    /// Requests whose turn has come, that wait for frames to read to, and that are to be written.
    pub(crate) ready: VecDeque<usize>,
    pub(crate) starved: VecDeque<usize>,
    /// Requests that wait for parts of the map of pages.
    pub(crate) unknown: Vec<usize>,
    pub(crate) to_write: VecDeque<usize>,
    pub(crate) writing: Option<Writing>,
    /// Lists under way, and those that wait.
    pub(crate) lists: usize,
    pub(crate) lists_waiting: VecDeque<usize>,
    pub(crate) own: Vec<Frame>,
    pub(crate) merge_own: Vec<Frame>,
    /// Keys when all batches are committed that are staged, and those of committed batches.
    pub(crate) staged: Count,
    pub(crate) count: Count,
    pub(crate) value_bytes: u64,
    /// Grains of pages of values, those of batches that are not committed included.
    pub(crate) value_grains: u64,
    /// Batches that are not committed, and changes of the directory in them.
    pub(crate) uncommitted: usize,
    pub(crate) uncommitted_changes: usize,
    /// The session of values, and that of merges, each with the number of its next batch.
    pub(crate) session: (Session, u64),
    pub(crate) merges: (Session, u64),
    pub(crate) statistics: ValueStatistics,
    pub(crate) done: Vec<ValueDone>,
    pub(crate) answers: Vec<StoreDone>,
    pub(crate) now: Time,
    pub(crate) store: PageFtl<M>,
}

impl<M: Media> Deref for ValueFtl<M> {
    type Target = ValueFtl;

    fn deref(&self) -> &ValueFtl {
        self
    }
}

impl<M: Media> DerefMut for ValueFtl<M> {
    fn deref_mut(&mut self) -> &mut ValueFtl {
        self
    }
}

impl<M: Media> ValueFtl<M> {
    pub(crate) fn new(store: PageFtl<M>, shape: Shape) -> ValueFtl<M> {
        ValueFtl {
            shape,
            directory: Directory::default(),
            merge: None,
            merge_error: None,
            merge_budget: 0,
            asked: Vec::new(),
            free: Vec::new(),
            staging: Frames::new(0, 0, OOB_BYTES_MIN),
            waiting_bytes: 0,
            turns: Turns::default(),
            ready: VecDeque::new(),
            starved: VecDeque::new(),
            unknown: Vec::new(),
            to_write: VecDeque::new(),
            writing: None,
            lists: 0,
            lists_waiting: VecDeque::new(),
            own: Vec::new(),
            merge_own: Vec::new(),
            staged: Count::default(),
            count: Count::default(),
            value_bytes: 0,
            value_grains: 0,
            uncommitted: 0,
            uncommitted_changes: 0,
            session: (Session(0), 0),
            merges: (Session(0), 0),
            statistics: ValueStatistics::default(),
            done: Vec::new(),
            answers: Vec::new(),
            now: Time::ZERO,
            store,
        }
    }

    /// The device, for those who test what the FTL bears.
    pub fn media_mut(&mut self) -> &mut M {
        self.store.media_mut()
    }
}

impl ValueFtl {
    /// The store of pages below, for its accounts.
    #[must_use]
    pub fn store(&self) -> &PageFtl {
        &self.store
    }

    /// What happened since the drive was opened.
    #[must_use]
    pub fn statistics(&self) -> &ValueStatistics {
        &self.statistics
    }

    /// Counts from nothing from now on.
    pub fn reset_statistics(&mut self) {
        self.store.reset_statistics();
        self.statistics = ValueStatistics::default();
    }

    /// Bytes of memory that depend on the number of keys: where values are, and the directory.
    #[must_use]
    pub fn index_bytes(&self) -> u64 {
        self.store.map_bytes() + self.directory.bytes()
    }

    /// Runs of the directory, and how many keys each has; the oldest one first.
    #[must_use]
    pub fn runs(&self) -> Vec<u64> {
        self.directory.runs.iter().map(|run| run.keys).collect()
    }

    /// Changes of the directory that no run has.
    #[must_use]
    pub fn changes(&self) -> usize {
        self.directory.pending()
    }

    /// The state of the parts in one line, for messages about what should never happen.
    #[must_use]
    pub fn describe(&self) -> String {
        let under_way = self.asked.iter().flatten().count();
        format!(
            "{under_way} requests, ready {:?}, starved {:?}, unknown {:?}, to write {:?}, writing {}, {} lists, {} own frames, {} batches not committed, \
             {} changes, merge {:?}, {:?}; {}",
            self.ready,
            self.starved,
            self.unknown,
            self.to_write,
            self.writing.is_some(),
            self.lists,
            self.own.len(),
            self.uncommitted,
            self.directory.pending(),
            self.merge.as_ref().map(|merge| &merge.phase),
            self.merge_error,
            self.store.describe()
        )
    }

    /// Grains that pages of values may take.
    pub(crate) fn value_grains_max(&self) -> u64 {
        self.store.capacity_bytes().saturating_sub(self.shape.directory_bytes()) / GRAIN_BYTES as u64
    }

    pub(crate) fn asked(&mut self, at: usize) -> &mut Asked {
        self.asked[at].as_mut().expect("a request under way")
    }

    fn add(&mut self, asked: Asked) -> usize {
        let at = self.free.pop().unwrap_or(self.asked.len());
        if at == self.asked.len() {
            self.asked.push(None);
        }
        self.asked[at] = Some(asked);
        at
    }

    /// A request has ended.
    pub(crate) fn end(&mut self, at: usize, result: Result<Facts, ValueError>) {
        let asked = self.asked[at].take().expect("a request under way");
        self.free.push(at);
        self.own.extend(&asked.own);
        if asked.has_turn {
            self.turns.leave(asked.number(), asked.is_change(), &mut self.ready);
        }
        let statistics = &mut self.statistics;
        let is_good = u64::from(result.is_ok());
        let bytes = result.map_or(0, |facts| u64::from(facts.bytes));
        match asked.deed {
            Deed::Store { value, .. } => {
                value.release(&mut self.staging, &mut self.waiting_bytes);
                (statistics.stores, statistics.bytes_stored) =
                    (statistics.stores + is_good, statistics.bytes_stored + bytes);
            }
            Deed::Retrieve { .. } => {
                statistics.retrieves += is_good;
                statistics.bytes_retrieved += bytes;
            }
            Deed::Exist => statistics.exists += is_good,
            Deed::Delete => statistics.deletes += is_good,
            Deed::List(_) => {
                statistics.lists += is_good;
                self.lists -= 1;
                if let Some(next) = self.lists_waiting.pop_front() {
                    self.lists += 1;
                    self.ready.push_back(next);
                }
            }
            Deed::Flush => {}
        }
        self.done.push(ValueDone { tag: asked.tag, result, at: self.now });
    }

    /// Takes the bytes of a value over.
    fn take_value(&mut self, value: Value<'_>) -> Result<Held, ValueError> {
        let length = value.bytes();
        self.shape.expect_value(length)?;
        match value {
            Value::Pieces(_) if self.waiting_bytes > 0 && self.waiting_bytes + length as usize > WAITING_BYTES_MAX => {
                Err(ValueError::Busy)
            }
            Value::Pieces(pieces) => {
                let bytes = pieces.concat();
                self.waiting_bytes += bytes.len();
                Ok(Held::Bytes(bytes))
            }
            Value::Frames { frames, bytes } if frames.len() < (bytes as usize).div_ceil(BLOCK_BYTES) => {
                Err(ValueError::Frames { bytes: length, frames: frames.len() })
            }
            Value::Frames { frames, bytes } => Ok(Held::Frames { frames: frames.to_vec(), bytes }),
        }
    }

    /// Makes a pool of so many frames for values that hosts send: [`Value::Frames`]. All of the one before have to be free.
    ///
    /// # Panics
    /// If values are in it.
    pub fn set_staging(&mut self, blocks: usize) {
        assert_eq!(self.staging.available(FrameForm::Bytes), self.staging.len(), "values are in the staging");
        self.staging = Frames::new(blocks, 0, OOB_BYTES_MIN);
    }

    /// Where hosts put values that they send. It is apart from the frames of the drive, of which it always needs some to go on.
    #[must_use]
    pub fn staging(&self) -> &Frames {
        &self.staging
    }

    /// The same, to take frames of it and to fill them.
    pub fn staging_mut(&mut self) -> &mut Frames {
        &mut self.staging
    }

    /// Whether any request has not ended.
    #[must_use]
    pub fn is_asked(&self) -> bool {
        self.asked.len() > self.free.len()
    }

    /// Begins what a request asks for, when its turn has come.
    fn begin(&mut self, at: usize) {
        let asked = self.asked(at);
        if asked.key.is_some() {
            asked.has_turn = true;
            return self.look_up(at);
        }
        match asked.deed {
            Deed::List(_) => self.go_on_listing(at),
            _ => {
                if let Err(error) = self.store.submit(self.now, at as u64, StoreRequest::Sync) {
                    self.end(at, Err(error.into()));
                }
            }
        }
    }

    /// Goes on with all that can. Returns whether anything was done.
    fn go_on(&mut self) -> bool {
        let mut has_acted = false;
        loop {
            let mut acts = false;
            while let Some(at) = self.ready.pop_front() {
                self.begin(at);
                acts = true;
            }
            acts |= self.look_up_again();
            while let Some(at) = self.starved.front().copied() {
                if !self.try_read(at) {
                    break;
                }
                self.starved.pop_front();
                acts = true;
            }
            acts |= self.go_on_writing();
            acts |= self.go_on_merging();
            if !acts {
                return has_acted;
            }
            has_acted = true;
        }
    }

    fn take_answers(&mut self) -> bool {
        let mut answers = std::mem::take(&mut self.answers);
        let is_news = !answers.is_empty();
        for StoreDone { tag, result, .. } in answers.drain(..) {
            if tag == OF_MERGE {
                self.merge_answered(result);
            } else {
                self.answered(tag as usize, result);
            }
        }
        self.answers = answers;
        is_news
    }
}

impl ValueTarget for ValueFtl {
    fn submit(&mut self, now: Time, tag: u64, request: ValueRequest<'_>) -> Result<(), ValueError> {
        assert!(tag < TAGS, "tags of hosts are below {TAGS}");
        self.now = self.now.max(now);
        if self.asked.len() - self.free.len() == REQUESTS_MAX {
            return Err(ValueError::Busy);
        }
        let (key, deed, durability) = match request {
            ValueRequest::Store { key, value, condition, durability } => {
                self.shape.expect_key(key.length())?;
                (Some(key), Deed::Store { value: self.take_value(value)?, condition }, durability)
            }
            ValueRequest::Retrieve { key, frames } => {
                (Some(key), Deed::Retrieve { frames: frames.to_vec() }, Durability::Volatile)
            }
            ValueRequest::Exist { key } => (Some(key), Deed::Exist, Durability::Volatile),
            ValueRequest::Delete { key, durability } => (Some(key), Deed::Delete, durability),
            ValueRequest::List { from, bytes, frames } => {
                let most = (frames.len() * BLOCK_BYTES) as u64;
                if bytes < 4 || u64::from(bytes) > most {
                    return Err(ValueError::ListSize { bytes, frames: frames.len(), most });
                }
                let listing = Listing {
                    position: from,
                    is_behind: false,
                    bytes_max: bytes as usize,
                    written: 4,
                    keys: 0,
                    frames: frames.to_vec(),
                    generation: None,
                    cursors: Vec::new(),
                };
                (None, Deed::List(Box::new(listing)), Durability::Volatile)
            }
            ValueRequest::Flush => (None, Deed::Flush, Durability::Durable),
        };
        if let Some(key) = key {
            self.shape.expect_key(key.length())?;
        }
        let key = key.map(|key| (key, key.number(self.shape.seed, self.shape.number_bits)));
        let is_durable = durability == Durability::Durable || self.shape.durable_stores;
        let (is_list, phase) = (matches!(deed, Deed::List(_)), Phase::Waiting);
        let asked = Asked { tag, deed, key, has_turn: false, is_durable, phase, own: Vec::new() };
        let is_change = asked.is_change();
        let at = self.add(asked);
        let begins = match key {
            Some((_, number)) => self.turns.come(number, at, is_change),
            None if is_list && self.lists == LISTS_MAX => {
                self.lists_waiting.push_back(at);
                false
            }
            None => {
                self.lists += usize::from(is_list);
                true
            }
        };
        if begins {
            self.ready.push_back(at);
        }
        self.go_on();
        Ok(())
    }

    fn info(&self) -> ValueInfo {
        let Shape { key_max, value_max, durable_stores, keys_max, .. } = self.shape;
        ValueInfo {
            keys: self.count.keys,
            key_bytes: self.count.key_bytes,
            value_bytes: self.value_bytes,
            keys_max,
            key_max,
            value_max,
            capacity_bytes: self.value_grains_max() * GRAIN_BYTES as u64,
            used_bytes: self.value_grains * GRAIN_BYTES as u64,
            durable_stores,
        }
    }
}

impl Target for ValueFtl {
    type Done = ValueDone;

    fn frames(&self) -> &Frames {
        self.store.frames()
    }

    fn frames_mut(&mut self) -> &mut Frames {
        self.store.frames_mut()
    }

    fn poll(&mut self, now: Time, done: &mut Vec<ValueDone>) {
        self.now = self.now.max(now);
        self.merge_budget = crate::merging::PAGES_PER_TURN;
        for round in 0.. {
            assert!(round < ROUNDS_MAX, "{}: it works for ever, and no time passes", self.describe());
            self.store.poll(now, &mut self.answers);
            let is_news = self.take_answers();
            if !self.go_on() && !is_news {
                break;
            }
        }
        done.append(&mut self.done);
    }

    fn next_due(&self) -> Option<Time> {
        let has_more = !self.done.is_empty() || self.merge_waits_for_its_turn();
        if has_more { Some(Time::ZERO) } else { self.store.next_due() }
    }

    fn is_read_only(&self) -> bool {
        self.store.is_read_only()
    }

    fn vitals(&self) -> Option<Vitals> {
        self.store.vitals()
    }

    fn give_up(&mut self, now: Time) -> String {
        let state = self.describe();
        self.store.give_up(now);
        state
    }
}
