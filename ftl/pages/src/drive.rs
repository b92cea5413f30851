//! The drive: what a host may ask of a store of pages.
//!
//! Sans-IO like every FTL: requests are begun with a tag below [`TAGS`], [`PageFtl::poll`](openftl_parts::Target::poll) gives back what has ended,
//! and [`PageFtl::next_due`](openftl_parts::Target::next_due) says when to poll again.

use crate::checkpointing::{Checkpoint, Naming};
use crate::error::{StoreError, expect_length};
use crate::looked::Looked;
use crate::open_chunk::{Owner, Stream};
use crate::pages::{PageStatistics, Pages};
use crate::place::{GRAIN_BYTES, HEADER_BYTES, Header, Kind, Place, grains_of};
use crate::placing::LOG_RESERVE;
use crate::queue::Mutation;
use crate::reads::{ReadFor, Wanted};
use crate::record::{CHANGE_BYTES, Record};
use crate::request::{Change, ListBreak, Session, SessionId, StoreDone, StoreRequest, StoreTarget};
use crate::session::{Batch, Staged};
use openftl_blocks::block_ftl::{BlockFtl, ROUNDS_MAX};
use openftl_core::checksum::Crc32c;
use openftl_core::{BLOCK_BYTES, Frames, Time};
use openftl_media::Media;
use openftl_parts::accounts::statistics::Statistics;
use openftl_parts::target::{Done, Durability, IoError, Target, Vitals};
use openftl_parts::words::ReadOnlyReason;
use std::collections::VecDeque;
use std::ops::{Bound, Deref, DerefMut, RangeInclusive};

/// Tags of the host are below this.
pub const TAGS: u64 = 1 << 61;

/// Marks the tags of what the drive asks of the block FTL.
pub(crate) const OWN: u64 = 1 << 63;
/// Of those, a flush.
pub(crate) const OWN_FLUSH: u64 = OWN | 1 << 62;
/// Of those, a read of the leaf in a slot.
pub(crate) const OWN_LEAF: u64 = OWN | TAGS;

/// Part of the log that mutations may take that are not in it yet.
pub(crate) const QUEUE_SHARE: usize = 8;

/// Who waits until mutations are durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Waiter {
    pub mutation: u64,
    pub tag: u64,
}

/// A store of pages. See the module.
pub struct PageFtl<M: ?Sized = dyn Media> {
    pub(crate) pages: Pages,
    /// Who waits, by mutation.
    pub(crate) waiters: VecDeque<Waiter>,
    /// Batches in the log that are not known to be durable: mutation, session, number.
    pub(crate) logged: VecDeque<(u64, SessionId, u64)>,
    /// All mutations up to this one are to be durable soon, and are.
    pub(crate) wanted: u64,
    /// Writes of the area: the last one begun, the last one before which all are acknowledged, and those behind that are.
    pub(crate) next_write: u64,
    pub(crate) acknowledged: u64,
    acknowledged_early: Vec<u64>,
    /// A flush is under way, begun when so many writes were acknowledged, and mutations up to that one logged.
    pub(crate) flushing: Option<(u64, u64)>,
    /// Writes of the area that are durable.
    pub(crate) durable_write: u64,
    pub(crate) checkpoint: Checkpoint,
    /// Nothing is cleaned, and no checkpoint begins but the one that is waited for.
    pub(crate) is_quiet: bool,
    /// The anchor is being written, and says more than it did.
    pub(crate) naming: Option<Naming>,
    /// A write of the area has failed: what is durable of the map is known no more.
    pub(crate) area_lost: Option<IoError>,
    /// The batch whose leaves are held, or are to be: session, number, and how many of its changes have theirs.
    pub(crate) holding: Option<(u32, u64, usize)>,
    /// The session whose batch was committed last: the others come first.
    pub(crate) turn: u32,
    pub(crate) done: Vec<StoreDone>,
    ended: Vec<Done>,
    pub(crate) ftl: BlockFtl<M>,
}

impl<M: Media> Deref for PageFtl<M> {
    type Target = PageFtl;

    fn deref(&self) -> &PageFtl {
        self
    }
}

impl<M: Media> DerefMut for PageFtl<M> {
    fn deref_mut(&mut self) -> &mut PageFtl {
        self
    }
}

impl<M: Media> PageFtl<M> {
    pub(crate) fn new(mut ftl: BlockFtl<M>, mut pages: Pages) -> PageFtl<M> {
        let reads_max = pages.index.reads_max();
        pages.leaf_reads.keep_frames(&mut ftl.flash, reads_max);
        PageFtl {
            pages,
            waiters: VecDeque::new(),
            logged: VecDeque::new(),
            wanted: 0,
            next_write: 0,
            acknowledged: 0,
            acknowledged_early: Vec::new(),
            flushing: None,
            durable_write: 0,
            checkpoint: Checkpoint::Idle,
            is_quiet: false,
            naming: None,
            area_lost: None,
            holding: None,
            turn: 0,
            done: Vec::new(),
            ended: Vec::new(),
            ftl,
        }
    }

    /// The device, for those who test what the FTL bears.
    pub fn media_mut(&mut self) -> &mut M {
        self.ftl.media_mut()
    }
}

impl PageFtl {
    /// Bytes of a page, at most.
    #[must_use]
    pub fn page_bytes_max(&self) -> u32 {
        self.pages.page_bytes_max
    }

    /// Bytes that pages may take, with headers and what they leave of their last grains.
    #[must_use]
    pub fn capacity_bytes(&self) -> u64 {
        self.pages.capacity_grains * GRAIN_BYTES as u64
    }

    /// Bytes of the chunks that pages share: what is beyond their own bytes is spare. Chunks that are open, or kept for what moves, are not
    /// among them.
    #[must_use]
    pub fn flash_bytes(&self) -> u64 {
        let geometry = &self.ftl.flash.geometry;
        let chunks: u32 = (0..geometry.groups).map(|group| self.ftl.flash.provisioning.tenant_share(group)).sum();
        let shared = chunks.saturating_sub(self.pages.layout.kept_chunks(geometry.blocks_per_chunk));
        u64::from(shared) * u64::from(geometry.blocks_per_chunk) * BLOCK_BYTES as u64
    }

    /// Bytes that pages take, those of batches that are not committed included.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.pages.live_grains * GRAIN_BYTES as u64
    }

    /// How many pages there are.
    #[must_use]
    pub fn pages(&self) -> u64 {
        self.pages.index.pages() + self.pages.carried.len() as u64
    }

    /// The last batch of a session that is committed.
    ///
    /// # Errors
    /// If the session is not open.
    pub fn last_batch(&self, session: Session) -> Result<u64, StoreError> {
        self.pages.sessions.look(session).map(|state| state.last)
    }

    /// Whether its device has nothing to do: what has no room then gets none by waiting.
    #[must_use]
    pub fn is_at_rest(&self) -> bool {
        self.ftl.flash.under_way == 0
    }

    /// Frames that are to be free for pages that are put: those of units that fill, and of the longest page.
    #[must_use]
    pub fn frames_to_put(&self) -> usize {
        let chunks = (self.pages.layout.host_chunks + self.pages.layout.move_chunks) as usize;
        chunks * self.pages.unit_blocks as usize + self.pages.page_blocks_max()
    }

    /// What happened since the drive was opened.
    #[must_use]
    pub fn statistics(&self) -> (&Statistics, &PageStatistics) {
        (self.ftl.statistics(), &self.pages.statistics)
    }

    /// Counts from nothing from now on.
    pub fn reset_statistics(&mut self) {
        self.ftl.reset_statistics();
        self.pages.statistics = PageStatistics::default();
    }

    /// Bytes of memory for where pages are.
    #[must_use]
    pub fn map_bytes(&self) -> u64 {
        self.pages.index.bytes()
    }

    /// What these may be, where that is limited ([`Config::map_memory`](openftl_parts::Config::map_memory)).
    #[must_use]
    pub fn map_bytes_max(&self) -> Option<u64> {
        self.pages.index.bytes_max()
    }

    /// The state of the parts in one line, for messages about what should never happen.
    #[must_use]
    pub fn describe(&self) -> String {
        let pages = &self.pages;
        let open = pages.open.iter().flatten().map(|open| {
            let states: Vec<_> = open.units.iter().map(|unit| unit.state).collect();
            format!("{:?} at grain {}: {states:?}, {} in flight", open.chunk, open.next_grain, open.pages.len())
        });
        format!(
            "{} pages, {} carried, {} of {} grains, {} free chunks, {} mutations wait, {} bytes gathered, {} groups ready, {}, wanted {}, durable {}, \
             writes {}/{}/{}, {:?}, version {} of {}, naming {:?}, {} doomed, victim {:?}, {} reads wait, open {:?}; {}",
            pages.index.pages(),
            pages.carried.len(),
            pages.live_grains,
            pages.capacity_grains,
            Pages::free_chunks(&self.ftl.flash),
            pages.queue.last() - pages.queue.logged,
            pages.log.gathered.len(),
            pages.log.ready.len(),
            pages.log.describe(),
            self.wanted,
            pages.durable,
            self.durable_write,
            self.acknowledged,
            self.next_write,
            self.checkpoint,
            pages.next_version,
            pages.versions_end,
            self.naming,
            pages.doomed.len(),
            pages.cleaning.victim(),
            pages.reads.waiting.len(),
            open.collect::<Vec<_>>(),
            self.ftl.describe()
        )
    }

    pub(crate) fn expect_writable(&self) -> Result<(), StoreError> {
        match (self.ftl.read_only_reason(), self.area_lost) {
            (Some(reason), _) => Err(StoreError::ReadOnly(reason)),
            (None, Some(error)) => Err(StoreError::Log(error)),
            (None, None) => Ok(()),
        }
    }

    /// Changes of a batch, at most.
    #[must_use]
    pub fn batch_max(&self) -> usize {
        self.pages.log.bytes() / QUEUE_SHARE / CHANGE_BYTES
    }

    /// Whether a checkpoint may find more room in the map than can be promised now, and is under way: of pages that are new it is not known before in how few
    /// leaves they are.
    pub fn makes_map_room(&mut self) -> bool {
        let may = self.pages.index.has_new() && self.expect_writable().is_ok();
        if may {
            self.begin_checkpoint();
        }
        may
    }

    /// Where a page is that is staged. Its leaf is to be in memory when the batch is committed.
    fn glance(&mut self, lpid: u64) -> Looked {
        let looked = self.pages.index.glance(lpid);
        if matches!(looked, Looked::Missing(_)) {
            self.read_leaves();
            self.ftl.hand_over();
        }
        looked
    }

    /// Whether a page of so many grains can be put in place of `old`.
    fn expect_room(&self, lpid: u64, grains: u32, old: Option<Place>) -> Result<(), StoreError> {
        let pages = &self.pages;
        let (used, needed, capacity) = (pages.live_grains, u64::from(grains), pages.capacity_grains);
        // A page that is not longer than before, and what is deleted, has room on a full drive.
        let shorter = old.is_some_and(|old| old != Place::LOST && old.grains() >= grains);
        let most = if shorter { capacity + u64::from(grains_of(pages.page_bytes_max)) } else { capacity };
        if used + needed > most {
            let (needed, free) = (needed * GRAIN_BYTES as u64, capacity.saturating_sub(used) * GRAIN_BYTES as u64);
            return Err(StoreError::NoSpace { lpid, needed, free });
        }
        Ok(())
    }

    /// A request of the block FTL has ended.
    fn take(&mut self, Done { tag, result, .. }: Done) {
        if tag == OWN_FLUSH {
            let (write, mutation) = self.flushing.take().expect("a flush is under way");
            match result {
                Ok(()) => {
                    self.durable_write = self.durable_write.max(write);
                    self.pages.durable = self.pages.durable.max(mutation);
                }
                Err(error) => self.area_lost = Some(error),
            }
            return;
        }
        if tag & OWN_LEAF == OWN_LEAF {
            return self.leaf_read_ended((tag & !OWN_LEAF) as u32, result);
        }
        if let Err(error) = result {
            self.area_lost = Some(error);
        }
        self.acknowledged_early.push(tag & !OWN);
        while let Some(next) = self.acknowledged_early.iter().position(|write| *write == self.acknowledged + 1) {
            self.acknowledged_early.swap_remove(next);
            self.acknowledged += 1;
        }
        self.pages.index.writes_ended(self.acknowledged);
    }

    /// Nobody waits for what cannot be durable any more.
    fn fail_waiters(&mut self) -> bool {
        let Err(error) = self.expect_writable() else { return false };
        let at = self.ftl.flash.now;
        let has_any = !self.waiters.is_empty();
        for Waiter { tag, .. } in self.waiters.drain(..) {
            self.done.push(StoreDone { tag, result: Err(error), at });
        }
        let waiting: Vec<(u32, u64)> = self
            .pages
            .sessions
            .all_mut()
            .flat_map(|(number, state)| {
                let waits = |(wsn, batch): (&u64, &Batch)| batch.commit.is_some().then_some((number, *wsn));
                state.batches.iter().filter_map(waits).collect::<Vec<_>>()
            })
            .collect();
        for (session, wsn) in &waiting {
            let batch = self.pages.sessions.get_mut(*session).and_then(|state| state.batches.remove(wsn));
            batch.into_iter().for_each(|batch| self.give_up_batch(batch, error));
        }
        has_any || !waiting.is_empty()
    }

    /// Goes on with everything. Returns whether anything was done.
    fn go_on(&mut self) -> bool {
        let (pages, flash) = (&mut self.pages, &mut self.ftl.flash);
        let mut has_acted = pages.begin_waiting(flash);
        pages.keep_frames(flash);
        has_acted |= self.read_leaves();
        if self.ftl.read_only_reason().is_some() || self.area_lost.is_some() {
            return has_acted | self.fail_waiters();
        }
        let (pages, flash) = (&mut self.pages, &mut self.ftl.flash);
        has_acted |= pages.settle(flash);
        has_acted |= pages.place_carried(flash);
        has_acted |= self.commit_waiting();
        has_acted |= self.make_room();
        has_acted |= self.log();
        has_acted |= self.tell_durable();
        has_acted |= self.advance_checkpoint();
        has_acted |= self.name_ahead();
        has_acted |= self.begin_flush();
        has_acted |= self.read_leaves();
        has_acted | self.pages.release_doomed(&mut self.ftl.flash)
    }

    /// Whether somebody waits, nothing is under way, and pages or groups of the log that would have to be put elsewhere lack a chunk: so many have
    /// gone bad that only the checkpoint which waits for these pages would free one, or so many were found that only the end of the recovery would.
    fn is_stuck(&self) -> bool {
        // Who puts a page may wait for a chunk that leaves when a mutation is durable.
        let is_wanted = !self.waiters.is_empty() || self.wanted > self.pages.durable;
        let is_waited_for = self.checkpoint.is_quiescing() || is_wanted || self.pages.log.is_written_again();
        let is_reading = self.pages.cleaning.at.as_ref().and_then(|victim| victim.window.as_ref());
        let is_at_rest = self.ftl.flash.units.under_way() == 0
            && !self.pages.index.is_reading()
            && self.flushing.is_none()
            && self.acknowledged == self.next_write
            && is_reading.is_none_or(|window| window.commands == 0);
        is_waited_for && is_at_rest && self.ftl.read_only_reason().is_none() && self.pages.lack_chunks(&self.ftl.flash)
    }

    /// Cleans while that is needed, and has what waits for it become durable.
    fn make_room(&mut self) -> bool {
        let may_clean = self.may_change() && !self.is_quiet;
        let (pages, flash) = (&mut self.pages, &mut self.ftl.flash);
        let mut has_acted = may_clean && pages.clean(flash);
        if !pages.is_short(flash) {
            return has_acted;
        }
        // Nothing else makes room but what waits: pages that have moved are to be on media, and the log is to say so.
        let is_pressed = pages.cleaning.at.is_none() || Pages::free_chunks(flash) <= LOG_RESERVE;
        if is_pressed && !pages.moves_are_under_way(flash) {
            for slot in 0..pages.open.len() {
                let is_moving = |open: &crate::open_chunk::OpenChunk| {
                    open.pages.iter().any(|page| matches!(page.owner, Owner::Moves(_)))
                };
                if pages.open[slot].as_ref().is_some_and(is_moving) {
                    let before = flash.outbox.len();
                    pages.push_out(flash, slot);
                    has_acted |= flash.outbox.len() > before;
                }
            }
        }
        let barrier = pages.doomed.iter().map(|doomed| doomed.barrier).max().unwrap_or(0);
        if barrier > self.wanted {
            self.wanted = barrier;
            has_acted = true;
        }
        has_acted
    }

    /// A host's bytes, in the units of the common accounting.
    fn account(&mut self, bytes: u32) {
        let statistics = &mut self.pages.statistics;
        let before = statistics.bytes_put / BLOCK_BYTES as u64;
        statistics.bytes_put += u64::from(bytes);
        statistics.header_bytes += HEADER_BYTES as u64;
        let grains = u64::from(grains_of(bytes)) * GRAIN_BYTES as u64;
        statistics.grain_bytes += grains - HEADER_BYTES as u64 - u64::from(bytes);
        self.ftl.flash.statistics.host_blocks_written += statistics.bytes_put / BLOCK_BYTES as u64 - before;
    }
}

impl StoreTarget for PageFtl {
    fn open_session(&mut self, id: SessionId) -> Result<(Session, u64), StoreError> {
        let number = self.pages.sessions.find(id)?;
        let state = self.pages.sessions.get_mut(number).expect("it was just found");
        if state.is_open {
            return Err(StoreError::SessionOpen);
        }
        state.is_open = true;
        Ok((Session(number), state.durable))
    }

    fn close_session(&mut self, now: Time, session: Session, forget: bool) -> Result<(), StoreError> {
        self.ftl.flash.now = self.ftl.flash.now.max(now);
        let state = self.pages.sessions.open(session)?;
        state.is_open = false;
        let (id, batches) = (state.id, std::mem::take(&mut state.batches));
        for (_, batch) in batches {
            self.give_up_batch(batch, StoreError::Aborted);
        }
        if forget {
            self.pages.sessions.forget(id);
            // One that comes with the same identifier is another.
            self.logged.retain(|(_, session, _)| *session != id);
            self.pages.queue.push(Mutation::Other(Record::Forgotten(id)));
        }
        self.ftl.flash.stirred = true;
        Ok(())
    }

    fn stage(
        &mut self,
        now: Time,
        session: Session,
        wsn: u64,
        lpid: u64,
        change: Change<'_>,
        if_version: Option<u64>,
    ) -> Result<(), StoreError> {
        self.ftl.flash.now = self.ftl.flash.now.max(now);
        self.expect_writable()?;
        let state = self.pages.sessions.open(session)?;
        state.turn(wsn)?;
        let changes = state.batches.get(&wsn).map_or(0, |batch| batch.changes.len());
        if state.batches.get(&wsn).is_some_and(|batch| batch.commit.is_some()) {
            return Err(StoreError::Committing { wsn });
        }
        if changes >= self.batch_max() {
            return Err(StoreError::BatchTooLong { most: self.batch_max() });
        }
        let (mut put, mut length, mut crc) = (None, 0, 0);
        if let Change::Delete = change {
            self.glance(lpid);
        }
        if let Change::Put(pieces) = change {
            length = expect_length(lpid, pieces.iter().map(|piece| piece.len()).sum(), self.pages.page_bytes_max)?;
            let looked = self.glance(lpid);
            let old = if let Looked::At(old) = looked { old } else { None };
            let has_room = match self.expect_room(lpid, grains_of(length), old) {
                Ok(()) if old.is_some() || self.pages.index.has_room(self.pages.staged + 1) => Ok(()),
                Ok(()) => Err(StoreError::MapFull { slots: self.pages.layout.slots }),
                Err(error) => Err(error),
            };
            match (has_room, looked) {
                (Err(_), Looked::Missing(_)) => {
                    self.knows([lpid]);
                    return Err(StoreError::Busy);
                }
                (Err(StoreError::MapFull { .. }), _) if self.makes_map_room() => return Err(StoreError::Busy),
                (has_room, _) => has_room?,
            }
            let version = self.pages.next_version;
            if self.pages.is_out_of_versions() {
                // Who asks again and again waits for the anchor.
                self.ftl.flash.stirred |= self.naming.is_none();
                return Err(StoreError::Busy);
            }
            let mut sum = Crc32c::new();
            pieces.iter().for_each(|piece| sum.update(piece));
            crc = sum.value();
            let header = Header { kind: Kind::Page, lpid, version, bytes: length, crc };
            let owner = Owner::Staged(session.0, wsn, changes as u32);
            let put_before = self.pages.put_before(&self.ftl.flash, old);
            let place = self.pages.put(&mut self.ftl.flash, header, pieces, owner, Stream::Host, put_before);
            // Chunks that have gone bad are missed by then; a checkpoint may give back some of the log.
            let is_out = place.is_none() && self.pages.is_out_of_chunks(&self.ftl.flash);
            let is_full = is_out && matches!(self.checkpoint, Checkpoint::Idle) && self.pages.log.placed.is_empty();
            if is_out && !is_full {
                self.begin_checkpoint();
            }
            let needed = u64::from(grains_of(length)) * GRAIN_BYTES as u64;
            let refused = if is_full { StoreError::NoSpace { lpid, needed, free: 0 } } else { StoreError::Busy };
            let place = place.ok_or(refused);
            self.ftl.hand_over();
            let place = place?;
            self.pages.next_version += 1;
            self.account(length);
            let chunk = place.chunk(self.ftl.flash.format);
            self.pages.chunks.get_mut(&chunk).expect("a chunk with a page is known").held += place.grains();
            put = Some((place, version));
        }
        let state = self.pages.sessions.open(session)?;
        let staged = Staged { lpid, put, if_version, is_in_flight: put.is_some() };
        state.batches.entry(wsn).or_default().add(staged, length, crc);
        self.pages.staged += 1;
        Ok(())
    }

    fn abort(&mut self, now: Time, session: Session, wsn: u64) -> Result<(), StoreError> {
        self.ftl.flash.now = self.ftl.flash.now.max(now);
        let state = self.pages.sessions.open(session)?;
        if let Some(batch) = state.batches.remove(&wsn) {
            self.give_up_batch(batch, StoreError::Aborted);
            self.ftl.flash.stirred = true;
        }
        Ok(())
    }

    fn submit(&mut self, now: Time, tag: u64, request: StoreRequest<'_>) -> Result<(), StoreError> {
        assert!(tag < TAGS, "tags of hosts are below {TAGS}");
        self.ftl.flash.now = self.ftl.flash.now.max(now);
        let result = match request {
            StoreRequest::Commit { session, wsn, durability } => self.commit(tag, session, wsn, durability),
            StoreRequest::Read { lpid, offset, frames } => {
                let what = ReadFor::Host { offset, frames: frames.to_vec() };
                self.ftl.flash.statistics.host_blocks_read += frames.len() as u64;
                self.pages.begin_read(&mut self.ftl.flash, Wanted { tag, lpid, what });
                Ok(())
            }
            StoreRequest::Stat { lpid } => {
                self.pages.begin_read(&mut self.ftl.flash, Wanted { tag, lpid, what: ReadFor::Stat });
                Ok(())
            }
            StoreRequest::Sync => match self.expect_writable() {
                Err(error) if self.pages.queue.last() > self.pages.durable => Err(error),
                _ => {
                    self.committed(tag, Durability::Durable, self.pages.queue.last());
                    Ok(())
                }
            },
        };
        self.ftl.flash.statistics.host_errors += u64::from(result.is_err());
        self.ftl.hand_over();
        result
    }

    fn list(&mut self, lpids: RangeInclusive<u64>, most: usize, found: &mut Vec<(u64, u32)>) -> Result<(), ListBreak> {
        let bytes = |place: Place| if place == Place::LOST { 0 } else { place.bytes() };
        if lpids.is_empty() {
            return Ok(());
        }
        let (before, room) = (found.len(), most.saturating_sub(found.len()));
        let mut left = room;
        let listed = self.pages.index.list(lpids.clone(), &mut |lpid, place| {
            let has_room = left > 0;
            if has_room {
                found.push((lpid, bytes(place)));
                left -= 1;
            }
            has_room
        });
        let end = listed.err().map_or(Bound::Included(*lpids.end()), |(next, _)| Bound::Excluded(next));
        let carried = self.pages.carried.range((Bound::Included(*lpids.start()), end)).take(room);
        found.extend(carried.map(|(lpid, carried)| (*lpid, carried.bytes.len() as u32)));
        found[before..].sort_unstable();
        found.truncate(before + room);
        let broken = listed.err().filter(|_| found.len() < before + room);
        self.read_leaves();
        self.ftl.hand_over();
        match broken {
            None => Ok(()),
            Some((next, Looked::Lost)) => Err(ListBreak::Lost { from: next }),
            Some((next, _)) => Err(ListBreak::Waits { from: next }),
        }
    }
}

impl Target for PageFtl {
    type Done = StoreDone;

    fn frames(&self) -> &Frames {
        &self.ftl.flash.frames
    }

    fn frames_mut(&mut self) -> &mut Frames {
        &mut self.ftl.flash.frames
    }

    fn poll(&mut self, now: Time, done: &mut Vec<StoreDone>) {
        for round in 0.. {
            assert!(round < ROUNDS_MAX, "{}: it works for ever, and no time passes", self.describe());
            self.ftl.poll_beside(now, &mut self.ended, &mut self.pages);
            let is_news = !self.ended.is_empty();
            for index in 0..self.ended.len() {
                let ended = self.ended[index];
                self.take(ended);
            }
            self.ended.clear();
            let has_acted = self.go_on();
            self.ftl.hand_over();
            if is_news || has_acted || self.ftl.flash.stirred {
                continue;
            }
            if !self.is_stuck() {
                break;
            }
            self.ftl.flash.turn_read_only(ReadOnlyReason::WornOut);
        }
        self.done.append(&mut self.pages.reads.done);
        done.append(&mut self.done);
    }

    fn next_due(&self) -> Option<Time> {
        let is_done = !self.done.is_empty() || !self.pages.reads.done.is_empty();
        if is_done { Some(Time::ZERO) } else { self.ftl.next_due() }
    }

    fn is_read_only(&self) -> bool {
        self.ftl.is_read_only()
    }

    fn vitals(&self) -> Option<Vitals> {
        self.ftl.vitals()
    }

    fn give_up(&mut self, now: Time) -> String {
        let state = self.describe();
        self.ftl.give_up_beside(now, &mut self.pages);
        state
    }
}
