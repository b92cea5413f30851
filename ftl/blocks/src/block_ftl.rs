//! OX-Block: a block device of 4 KiB blocks with transactions of up to 1 MiB, assembled from the parts.
//!
//! ```text
//!            write                        read
//!              │                            │
//!   throttle ──▼                            ▼
//!   write buffer ◀───────────────────── mapping ◀──────────────┐
//!              │ full write units           │                  │ commit, in order
//!   provisioning ──▶ units ──▶ device ◀─────┘                  │
//!                      │ programmed                            │
//!                      └──▶ transactions ──▶ log ──▶ device    │
//!                                   └──────────────────────────┘
//!   garbage collection: victim ──▶ read ──▶ unit ──▶ device ──▶ mapping, log ──▶ reset
//!   checkpoint: mapping, chunk table ──▶ device ──▶ superblock
//! ```
//!
//! This file holds the drive's state and hands out what the device reports. What is done with it stands in the files of
//! the parts: `settling.rs` (units), [`crate::transactions`] (write, trim, flush), [`crate::reading`], [`crate::garbage_collection`],
//! [`crate::refresh`], [`crate::scrub`], [`openftl_parts::journal::checkpoint`], `recovery.rs`.

use crate::frontiers::HostFrontiers;
use crate::garbage_collection::Collection;
use crate::map_pages::MapPages;
use crate::placement::Placement;
use crate::reading::Reading;
use crate::refresh::Refresh;
use crate::relief::Relief;
use crate::scrub::Scrub;
use crate::transactions::Transactions;
use crate::wear_levelling::WearLevelling;
use crate::write_buffer::{CommittedMap, WriteBuffer};
use openftl_core::{ChunkId, Frame, FrameForm, Frames, Nanos, Ppa, Time};
use openftl_media::{Completion, Media, Status};
use openftl_parts::accounts::life::Life;
use openftl_parts::accounts::statistics::{GroupStatistics, Statistics};
use openftl_parts::config::Config;
use openftl_parts::flash::chunk_table::ChunkUse;
use openftl_parts::flash::oob::BlockKind;
use openftl_parts::flash::plan::Plan;
use openftl_parts::flash::reads::Reader;
use openftl_parts::flash::{Errand, Flash, Reset};
use openftl_parts::journal::Journal;
use openftl_parts::journal::recovery_report::RecoveryReport;
use openftl_parts::journal::repair::RepairReport;
use openftl_parts::map::owners::Owners;
use openftl_parts::map::{Entry, Map, Place};
use openftl_parts::target::{
    BlockTarget, Done, ExpectedUse, Extent, HandleEvent, HandleWatch, IoError, PlacementFacts, Request, Target, Vitals,
};
use openftl_parts::tenant::{Nobody, Tenant};
use openftl_parts::words::{Care, Handle, ReadOnlyReason};
use std::ops::{Deref, DerefMut};

/// Parts act on what other parts did; they come to rest long before this many rounds.
pub const ROUNDS_MAX: u32 = 1_000_000;

/// Longer than any command of a device takes by itself, an erase with its interruptions among them.
const COMMAND_TIME_MAX: Nanos = Nanos::from_millis(50);

/// A drive that is not still is given this time at least without anything ending, and `COMMAND_TIME_MAX` for each of the
/// commands that its device has: a store may be slow for reasons of its own.
pub const STANDSTILL_MIN: Nanos = Nanos::from_millis(30_000);

/// A block FTL on a device. See the module.
///
/// `BlockFtl<M>` owns a device of type `M`: it is made, opened, closed and crashed as such. All else is a method of
/// `BlockFtl`, which is `BlockFtl<dyn Media>` and what the former dereferences to: so the FTL is compiled once, and not
/// for each kind of device again. A command to the device costs a virtual call.
pub struct BlockFtl<M: ?Sized = dyn Media> {
    pub(crate) config: Config,
    pub(crate) map: Map,
    /// The pages of a map on media, on their way.
    pub(crate) map_pages: Option<MapPages>,
    /// Kept where the device copies what is relocated.
    pub(crate) owners: Option<Owners>,
    pub(crate) buffer: WriteBuffer,
    pub(crate) host: HostFrontiers,
    pub(crate) placement: Placement,
    /// Blocks of a write unit: WS_OPT, as far as one vector command reaches.
    pub(crate) unit_blocks: u32,
    /// Log, checkpoint and superblock.
    pub journal: Journal,
    pub(crate) collection: Collection,
    pub(crate) refresh: Refresh,
    pub(crate) wear_levelling: WearLevelling,
    pub(crate) scrub: Scrub,
    pub(crate) relief: Relief,
    pub(crate) transactions: Transactions,
    pub(crate) reading: Reading,
    pub(crate) recovery: RecoveryReport,
    /// Where blocks of the area were before what is in doubt of the log.
    pub(crate) left_in_area: Vec<(u32, Ppa)>,
    pub(crate) done: Vec<Done>,
    pub(crate) completions: Vec<Completion>,
    /// Requests that have ended.
    pub(crate) progress: u64,
    /// The state in which it came to a standstill.
    pub(crate) standstill: Option<String>,
    /// The medium, as all parts share it.
    pub flash: Flash,
    /// Last, so that its type may be forgotten.
    pub(crate) media: M,
}

impl<M: Media> Deref for BlockFtl<M> {
    type Target = BlockFtl;

    fn deref(&self) -> &BlockFtl {
        self
    }
}

impl<M: Media> DerefMut for BlockFtl<M> {
    fn deref_mut(&mut self) -> &mut BlockFtl {
        self
    }
}

impl<M: Media> BlockFtl<M> {
    /// Gives the device back as it is: what a crash of the FTL leaves behind.
    #[must_use]
    pub fn crash(self) -> M {
        self.media
    }
}

impl<M: Media + ?Sized> BlockFtl<M> {
    /// The device.
    #[must_use]
    pub fn media(&self) -> &M {
        &self.media
    }

    /// The device, for those who test what the FTL bears.
    pub fn media_mut(&mut self) -> &mut M {
        &mut self.media
    }
}

impl BlockFtl {
    /// The time of the last call.
    #[must_use]
    pub fn now(&self) -> Time {
        self.flash.now
    }

    /// What this drive was configured with.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Whether the drive lies about flushes from now on; see [`Config::lies_about_flush`].
    pub fn lie_about_flush(&mut self, lies: bool) {
        self.config.lies_about_flush = lies;
    }

    /// What the chunks of this drive are for.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.flash.plan
    }

    /// What happened since the drive was opened, or since [`BlockFtl::reset_statistics`].
    #[must_use]
    pub fn statistics(&self) -> &Statistics {
        &self.flash.statistics
    }

    /// What happened since the drive was formatted. A crash takes along what no superblock said yet.
    #[must_use]
    pub fn life(&self) -> Life {
        self.flash.life()
    }

    /// Begins the statistics anew.
    pub fn reset_statistics(&mut self) {
        self.flash.life = self.life();
        self.flash.statistics = Statistics {
            groups: vec![GroupStatistics::default(); self.flash.geometry.groups as usize],
            since: self.flash.now,
            ..Statistics::default()
        };
    }

    /// How the drive was opened.
    #[must_use]
    pub fn recovery_report(&self) -> &RecoveryReport {
        &self.recovery
    }

    /// What had to be rebuilt when the drive was opened, for a tenant that rebuilds something of its own.
    pub fn repair_report_mut(&mut self) -> &mut Option<RepairReport> {
        &mut self.recovery.repair
    }

    /// What may be missing of what a tenant keeps in chunks of its own, which it has found when the drive was opened.
    pub fn doubt_mut(&mut self) -> &mut Option<String> {
        &mut self.recovery.doubt
    }

    /// What each chunk is used for and how many of its blocks are valid, in address order.
    pub fn chunk_uses(&self) -> impl Iterator<Item = (ChunkId, ChunkUse, u32)> + '_ {
        let chunks = &self.flash.chunks;
        self.flash.geometry.chunk_ids().map(|chunk| (chunk, chunks.usage(chunk), chunks.valid(chunk)))
    }

    /// Where logical block `block` of this drive is. `None`: its map page is not in memory.
    #[must_use]
    pub fn place(&self, block: u64) -> Option<Place> {
        let entry = match &self.map {
            Map::Whole(map) => map.get(block),
            Map::Paged(map) => map.buffered(block).map(Entry::buffer).or_else(|| map.peek(block))?,
        };
        Some(entry.place())
    }

    /// Where `block` is on the medium, or `None` while it is buffered or nowhere, or nobody knows without reading its map page.
    #[must_use]
    pub fn place_on_media(&self, block: u64) -> Option<Ppa> {
        match self.place(block)? {
            Place::Media(ppa) => Some(ppa),
            Place::Unmapped | Place::Lost | Place::Buffer(_) => None,
        }
    }

    /// Resets of each chunk by this FTL, in address order.
    pub fn chunk_resets(&self) -> impl Iterator<Item = u32> + '_ {
        self.flash.geometry.chunk_ids().map(|chunk| self.flash.chunks.resets(chunk))
    }

    /// Why the drive takes no writes, if it does not.
    #[must_use]
    pub fn read_only_reason(&self) -> Option<ReadOnlyReason> {
        self.flash.read_only
    }

    /// The state in which the drive came to a standstill, if it did.
    #[must_use]
    pub fn standstill(&self) -> Option<&str> {
        self.standstill.as_deref()
    }

    /// The superblock last written or read.
    #[must_use]
    pub fn superblock(&self) -> &openftl_parts::journal::superblock::Superblock {
        self.journal.superblock.current()
    }

    /// Over-provisioning that garbage collection really had since the statistics began: flash for data beyond the
    /// capacity, without log, checkpoints and superblocks, and without the mean of what could hold no data because it was
    /// free, on its way to be reset, or not yet written. This is the figure to compare with theory.
    #[must_use]
    pub fn effective_over_provisioning(&self) -> f64 {
        let blocks_per_chunk = f64::from(self.flash.geometry.blocks_per_chunk);
        let data = self
            .flash
            .geometry
            .chunk_ids()
            .filter(|chunk| !matches!(self.flash.chunks.usage(*chunk), ChunkUse::Retired | ChunkUse::Metadata))
            .count() as f64
            * blocks_per_chunk
            // Log and checkpoint come and go: their mean is taken out with that of the spare blocks.
            + f64::from(self.flash.provisioning.metadata_in_use()) * blocks_per_chunk;
        let spare = match self.flash.statistics.spare_samples {
            0 => self.flash.spare_blocks() as f64,
            samples => self.flash.statistics.spare_block_samples as f64 / samples as f64,
        };
        let capacity = self.flash.plan.capacity_blocks as f64;
        (data - spare - capacity) / capacity
    }

    /// The state of the parts in one line, for messages about what should never happen.
    #[must_use]
    pub fn describe(&self) -> String {
        let groups: Vec<String> = (0..self.flash.geometry.groups)
            .map(|group| {
                let free = self.flash.provisioning.free_in_group(group);
                format!("{free} free, {}", self.collection.describe(group))
            })
            .collect();
        let map = match (&self.map, &self.map_pages) {
            (Map::Paged(map), Some(pages)) => format!("{}, {} changes, ", pages.describe(), map.changes().len()),
            _ => String::new(),
        };
        format!(
            "{map}{} frames free, buffer {}/{}/{}, {} held, log {}/{}, {} log chunks, checkpoint {}, {} units under way, {} chunks to be reset, {}, groups {groups:?}, {:?}",
            self.flash.frames.available(self.config.payload),
            self.buffer.committed(),
            self.buffer.placed(),
            self.buffer.head(),
            self.buffer.held(),
            self.journal.log.durable(),
            self.journal.log.position(),
            self.journal.log.chunks().count(),
            self.journal.checkpoint.describe(),
            self.flash.units.under_way(),
            self.flash.provisioning.coming(),
            self.flash.provisioning.describe(),
            self.flash.read_only,
        )
    }

    /// Whether writes were found when the drive was opened that nobody had flushed, and that may be gone the next time: the
    /// drive is too worn out to write them again. It flushes nothing then.
    #[must_use]
    pub fn is_in_doubt(&self) -> bool {
        self.journal.log.is_in_doubt()
    }

    /// Resets what can be reset.
    fn advance_resets(&mut self, tenant: &mut dyn Tenant) {
        let mut retired = Vec::new();
        self.flash.advance_resets(&self.journal, &mut retired);
        for chunk in retired {
            tenant.leave(&mut self.flash, chunk);
        }
    }

    fn reset_ended(&mut self, tenant: &mut dyn Tenant, chunk: ChunkId, status: Status) {
        let reset = self.flash.reset_ended(&mut self.journal.superblock, chunk, status);
        if reset != Reset::OfSuperblocks {
            tenant.leave(&mut self.flash, chunk);
        }
        if reset == Reset::Free {
            self.watch_wear(chunk);
        }
    }

    /// The device has taken `chunk` out of use.
    pub(crate) fn chunk_went_offline(&mut self, chunk: ChunkId) {
        let is_news = self.flash.went_offline(&self.journal.superblock, chunk);
        if is_news {
            self.weak_chunk(chunk, Care::Notification);
        }
    }

    /// Whether more chunks have gone bad than there were spares: the drive has less room than its plan, and may wear out.
    #[must_use]
    pub fn is_aged(&self) -> bool {
        self.flash.is_aged()
    }

    /// Goes on with log, checkpoint and superblock.
    fn advance_journal(&mut self) {
        let body = CommittedMap { map: &self.map, buffer: &self.buffer };
        let has_been_taken = self.has_taken();
        self.journal.advance(&mut self.flash, &body, has_been_taken);
    }

    /// Announces an object.
    fn flash_alloc(&mut self, tag: u64, extents: &[Extent]) -> Result<(), IoError> {
        for extent in extents {
            self.check_range(extent.first, extent.blocks, u64::MAX)?;
        }
        if self.flash.read_only.is_some() {
            return Err(IoError::ReadOnly);
        }
        let announced = self.placement.announce(extents, self.flash.geometry.blocks_per_chunk);
        self.count_ended_objects();
        match announced {
            Ok(()) => self.flash.statistics.placement.objects += 1,
            Err(error) => {
                self.flash.statistics.placement.objects_refused += 1;
                return Err(IoError::Object(error));
            }
        }
        self.done.push(Done { tag, result: Ok(()), at: self.flash.now });
        Ok(())
    }

    /// Notes how objects ended.
    pub(crate) fn count_ended_objects(&mut self) {
        let ended = self.placement.objects.take_ended();
        let placement = &mut self.flash.statistics.placement;
        placement.objects_written += ended.written;
        placement.objects_trimmed += ended.trimmed;
        placement.objects_replaced += ended.replaced;
    }

    /// Lets the drive and whoever has chunks beside the blocks work, and appends what has ended by `now`.
    pub fn poll_beside(&mut self, now: Time, done: &mut Vec<Done>, tenant: &mut dyn Tenant) {
        self.advance(now, tenant);
        self.progress += self.done.len() as u64;
        done.append(&mut self.done);
    }

    /// Hands to the device what parts want of it.
    #[inline]
    pub fn hand_over(&mut self) {
        self.flash.hand_over(&mut self.media);
    }

    /// Takes what the device has completed, and lets every part act on it.
    pub(crate) fn advance(&mut self, now: Time, tenant: &mut dyn Tenant) {
        let mut completions = std::mem::take(&mut self.completions);
        self.flash.poll(&mut self.media, now, &mut completions);
        for completion in completions.drain(..) {
            let errand = self.flash.came_back(&completion);
            // Nobody waits for the end of a host read but the host, and who waits until nothing is under way.
            self.flash.stirred |= !self.is_host_read(errand) || self.waits_for_rest();
            match errand {
                Errand::Unit(unit) => self.unit_ended(unit, completion.status),
                Errand::Read(read) => match self.flash.reads.get(read).reader {
                    Reader::Host => self.host_read_ended(read, completion),
                    Reader::Collection => self.collection_read_ended(read, completion),
                    Reader::Scrub => self.scrub_read_ended(read, completion),
                    Reader::Map => self.map_read_ended(read, completion),
                    Reader::Tenant => tenant.read_ended(&mut self.flash, read, completion),
                },
                Errand::Reset(chunk) => self.reset_ended(tenant, chunk, completion.status),
                Errand::Flush => self.media_flush_ended(completion.status),
            }
            self.hand_over();
        }
        self.completions = completions;
        // Also what the device had no room for until now.
        self.hand_over();
        self.give_trims_a_turn();
        self.flash.stirred |= self.journal.checkpoint.next_due() <= self.flash.now;
        if self.ahead_due().is_some_and(|due| due <= self.flash.now) {
            self.begin_ahead();
        }
        if self.scrub_due().is_some_and(|due| due <= self.flash.now) {
            self.advance_scrub(tenant);
        }
        self.hand_over();
        let mut rounds = 0;
        while std::mem::take(&mut self.flash.stirred) {
            rounds += 1;
            assert!(rounds < ROUNDS_MAX, "the parts of the drive stir each other without end: {}", self.describe());
            self.settle_events(tenant);
            self.advance_transactions();
            self.advance_map_pages();
            self.hand_over();
            self.advance_refresh();
            self.advance_collection();
            self.hand_over();
            if !self.flash.weak_of_tenant.is_empty() {
                for chunk in std::mem::take(&mut self.flash.weak_of_tenant) {
                    tenant.queue_weak(&mut self.flash, chunk);
                }
            }
            tenant.advance(&mut self.flash, &mut self.journal);
            self.advance_resets(tenant);
            self.advance_journal();
            self.hand_over();
            self.relieve(tenant);
            self.hand_over();
        }
    }

    /// Takes the salt off what was read from `ppa`, for those who read the device beside the drive. Putting it on is the same.
    pub fn unseal(&self, frames: &mut Frames, frame: Frame, ppa: Ppa) {
        self.flash.seals.apply(frames, frame, ppa);
    }

    fn is_host_read(&self, errand: Errand) -> bool {
        matches!(errand, Errand::Read(read) if self.flash.reads.get(read).reader == Reader::Host)
    }

    /// Whether a part may be waiting for reads to end.
    fn waits_for_rest(&self) -> bool {
        self.flash.resets.is_waiting()
            || self.flash.meetings.marked() > 0
            || !self.transactions.is_idle()
            || self.transactions.stalled
    }
}

impl Target for BlockFtl {
    type Done = Done;

    fn frames(&self) -> &Frames {
        &self.flash.frames
    }

    fn frames_mut(&mut self) -> &mut Frames {
        &mut self.flash.frames
    }

    fn poll(&mut self, now: Time, done: &mut Vec<Done>) {
        self.poll_beside(now, done, &mut Nobody);
    }

    fn next_due(&self) -> Option<Time> {
        let is_owed_turn = self.flash.stirred || self.flash.may_hand_over() || self.transactions.trims.wants_turn();
        if !self.done.is_empty() || is_owed_turn {
            return Some(Time::ZERO);
        }
        if self.flash.is_deaf {
            return None;
        }
        // Every turn asks.
        let due = self.media.next_due().unwrap_or(Time::NEVER).min(self.journal.checkpoint.next_due());
        let due = due.min(self.scrub_due().unwrap_or(Time::NEVER)).min(self.ahead_due().unwrap_or(Time::NEVER));
        (due != Time::NEVER).then_some(due)
    }

    fn is_read_only(&self) -> bool {
        self.flash.read_only.is_some()
    }

    fn vitals(&self) -> Option<Vitals> {
        Some(Vitals {
            progress: self.progress + self.flash.ended + self.flash.statistics.trim_entries,
            is_still: self.flash.under_way == 0 && self.next_due().is_none(),
            patience: Nanos(COMMAND_TIME_MAX.0 * u64::from(self.flash.under_way)).max(STANDSTILL_MIN),
        })
    }

    fn give_up(&mut self, now: Time) -> String {
        self.give_up_beside(now, &mut Nobody)
    }
}

impl BlockTarget for BlockFtl {
    fn blocks(&self) -> u64 {
        self.flash.plan.capacity_blocks
    }

    fn payload_form(&self) -> FrameForm {
        self.config.payload
    }

    fn submit(&mut self, now: Time, tag: u64, request: Request<'_>) -> Result<(), IoError> {
        self.flash.now = self.flash.now.max(now);
        self.flash.room_changed |= self.collection.host_asks(self.flash.now);
        self.flash.statistics.host_requests += 1;
        let result = match request {
            Request::Read { first, frames } => self.read(tag, first, frames),
            Request::Write { first, frames, durability, handle } => {
                self.write(tag, first, frames, BlockKind::Data, durability, handle)
            }
            Request::FlashAlloc { extents } => self.flash_alloc(tag, extents),
            Request::WriteUncorrectable { first, frames, durability } => {
                self.write(tag, first, frames, BlockKind::Uncorrectable, durability, Handle::NONE)
            }
            Request::Trim { first, blocks, durability } => self.trim(tag, first, blocks, durability),
            Request::Flush if self.config.lies_about_flush => {
                self.pretend_flush(tag);
                Ok(())
            }
            Request::Flush => self.flush(tag),
        };
        if result.is_err() {
            self.flash.statistics.host_errors += 1;
        }
        self.hand_over();
        result
    }

    fn placement(&self) -> PlacementFacts {
        let blocks = u64::from(self.flash.geometry.blocks_per_chunk);
        self.placement.facts(blocks)
    }

    fn handle_room(&self, handle: Handle) -> u64 {
        let open = self.placement.open_for_handle(handle).iter().map(|open| u64::from(self.flash.units.room(*open)));
        let waiting = self.placement.class_of_handle(handle).map_or(0, |class| self.buffer.waiting(class) as u64);
        open.sum::<u64>().saturating_sub(waiting)
    }

    fn renew_handle(&mut self, now: Time, handle: Handle) -> bool {
        self.flash.now = self.flash.now.max(now);
        let Some(class) = self.placement.class_of_handle(handle) else { return false };
        if self.flash.read_only.is_none() {
            self.place_class(class, u64::MAX);
            for open in self.placement.let_go_of_all(class) {
                self.flash.pad_by(open, self.flash.units.room(open));
            }
            self.hand_over();
            self.flash.stirred = true;
        }
        true
    }

    fn watch_handles(&mut self, watch: HandleWatch) {
        self.placement.events.watch(watch);
    }

    fn expect_use(&mut self, extent: Extent, expected: ExpectedUse) {
        self.expect_use_of(extent, expected);
    }

    fn handle_events(&self, events: &mut Vec<HandleEvent>) {
        events.extend(self.placement.events.iter());
    }
}
