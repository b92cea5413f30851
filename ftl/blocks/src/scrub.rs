//! Scrub: whatever the drive holds is read once in a while, so that it is found to be weak before it is lost.
//!
//! ```text
//!   chunk after chunk, die after die      every block gets the same part of the interval
//!        │
//!        ├─ data: its valid blocks ───┐
//!        ├─ tables: theirs ───────────┤
//!        ├─ log, checkpoint, …: all ──┼──▶ one vector read at a time, verified ──▶ weak? lost? ──▶ refresh
//!        └─ free, being emptied ──▶ nothing
//! ```
//!
//! A pass begins somewhere else each time the drive is opened, so that one that is never on for a whole interval gets all
//! of its data read too. It waits while the host waits.

use crate::block_ftl::BlockFtl;
use crate::garbage_collection::FoundBlock;
use openftl_core::{ChunkId, Frame, Geometry, Nanos, Ppa, Time, VECTOR_BLOCKS_MAX};
use openftl_media::{ChunkDescriptor, ChunkState, Completion, Status};
use openftl_parts::config::Config;
use openftl_parts::flash::chunk_table::ChunkUse;
use openftl_parts::flash::oob::{BlockKind, Oob};
use openftl_parts::flash::reads::{ReadId, Reader};
use openftl_parts::tenant::Tenant;
use openftl_parts::words::{Care, Phase};
use std::ops::Range;

/// What a chunk holds.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Held {
    Data,
    Metadata,
    /// Blocks of a tenant, with this sequence if all of them have the same.
    Tenant(Option<u64>),
}

/// The scrub of a drive.
pub struct Scrub {
    interval: Option<Nanos>,
    /// Chunks of the drive.
    chunks: u64,
    /// When to go on, and when the present pass began.
    due: Option<Time>,
    began: Time,
    /// The chunk to look at, counted from the first of every parallel unit to the last of every parallel unit.
    number: u64,
    /// Chunks that were looked at in this pass.
    seen: u64,
    chunk: Option<Looking>,
    /// If it is of a table, the blocks of it that are.
    of_tenant: Vec<Range<u32>>,
    /// What the chunk holds of which blocks are being read.
    reading: Option<Held>,
    /// For data and for metadata.
    frames: [Vec<Frame>; 2],
}

/// The chunk that is being read.
#[derive(Clone, Copy)]
struct Looking {
    chunk: ChunkId,
    /// The next block to look at, and the first that cannot be read.
    next: u32,
    end: u32,
    held: Held,
    /// Tells whether it has been emptied since.
    resets: u32,
}

impl Scrub {
    /// Frames of each form that the scrub needs.
    #[must_use]
    pub fn frames_needed(config: &Config) -> usize {
        if config.scrub_interval.is_some() { VECTOR_BLOCKS_MAX } else { 0 }
    }

    /// A scrub that has read nothing. Where it begins follows from `start`. `frames` are of the payload's form, and of
    /// bytes.
    #[must_use]
    pub fn new(config: &Config, geometry: &Geometry, start: u64, frames: [Vec<Frame>; 2]) -> Scrub {
        let chunks = geometry.chunks();
        let interval = config.scrub_interval;
        Scrub {
            interval,
            chunks,
            due: None,
            began: Time::ZERO,
            // Consecutive starts lie far from each other: by the golden section.
            number: start.wrapping_mul(0x9E37_79B9_7F4A_7C15) % chunks,
            seen: 0,
            chunk: None,
            of_tenant: Vec::new(),
            reading: None,
            frames,
        }
    }

    /// The share of the present pass that is done.
    #[must_use]
    pub fn progress(&self) -> f64 {
        self.seen as f64 / self.chunks as f64
    }

    fn frames_for(&self, held: Held) -> &[Frame] {
        &self.frames[usize::from(held == Held::Metadata)]
    }
}

impl BlockFtl {
    /// The scrub.
    #[must_use]
    pub fn scrub(&self) -> &Scrub {
        &self.scrub
    }

    /// When the scrub wants to go on, if nothing keeps it.
    #[inline]
    pub(crate) fn scrub_due(&self) -> Option<Time> {
        self.scrub.interval?;
        let is_kept = self.scrub.reading.is_some()
            || self.flash.phase != Phase::Working
            || self.flash.read_only.is_some()
            || self.transactions.is_held_back();
        if is_kept { None } else { Some(self.scrub.due.unwrap_or(Time::ZERO)) }
    }

    /// Whether the device has, or is to get, any command but a read of the scrub. Such a read is always under way where the interval of
    /// the scrub is shorter than a pass.
    #[must_use]
    pub fn is_at_work(&self) -> bool {
        !self.flash.is_handed_over() || self.flash.under_way > u32::from(self.scrub.reading.is_some())
    }

    /// Whether reads are under way, but for those of collection and of the scrub.
    #[must_use]
    pub fn has_reads(&self) -> bool {
        self.flash.reads.under_way() > u32::from(self.scrub.reading.is_some())
    }

    /// Reads the next blocks that are due.
    pub(crate) fn advance_scrub(&mut self, tenant: &dyn Tenant) {
        let now = self.flash.now;
        while let Some(due) = self.scrub_due().filter(|due| *due <= now) {
            if self.scrub.due.is_none() {
                (self.scrub.began, self.scrub.due) = (now, Some(now + self.scrub_time(VECTOR_BLOCKS_MAX)));
                return;
            }
            // What was not done while the drive was busy is caught up with, but no more than one pass of it.
            let earliest = Time(now.0.saturating_sub(self.scrub.interval.unwrap_or_default().0));
            self.scrub.due = Some(due.max(earliest));
            match self.scrub.chunk {
                None => self.look_at_next_chunk(tenant),
                Some(looking) => self.scrub_chunk(looking),
            }
        }
    }

    /// The part of the interval that `blocks` get.
    fn scrub_time(&self, blocks: usize) -> Nanos {
        let whole = u64::from(self.flash.provisioning.metadata_in_use() + self.flash.provisioning.held_by_tenant());
        let all = self.flash.chunks.valid_total() + whole * u64::from(self.flash.geometry.blocks_per_chunk);
        let interval = u128::from(self.scrub.interval.unwrap_or_default().0);
        Nanos((interval * blocks as u128 / u128::from(all.max(blocks as u64))) as u64)
    }

    fn look_at_next_chunk(&mut self, tenant: &dyn Tenant) {
        let pus = u64::from(self.flash.geometry.pus());
        let pu = self.host.order[(self.scrub.number % pus) as usize];
        let chunk = self.flash.format.chunk_id(pu, (self.scrub.number / pus) as u32);
        let held = match self.flash.chunks.usage(chunk) {
            ChunkUse::Open | ChunkUse::Closed => Some(Held::Data),
            ChunkUse::Metadata => Some(Held::Metadata),
            ChunkUse::Tenant => tenant.blocks_in(&self.flash, chunk).map(|(number, blocks)| {
                self.scrub.of_tenant = blocks;
                Held::Tenant(number)
            }),
            ChunkUse::Retired | ChunkUse::Free | ChunkUse::Victim | ChunkUse::Resetting => None,
        };
        let readable = held.map(|held| (held, self.readable(chunk))).filter(|(_, end)| *end > 0);
        match readable {
            None => self.end_chunk(),
            Some((held, end)) => {
                let resets = self.flash.chunks.resets(chunk);
                self.scrub.chunk = Some(Looking { chunk, next: 0, end, held, resets });
            }
        }
    }

    fn end_chunk(&mut self) {
        let scrub = &mut self.scrub;
        scrub.chunk = None;
        scrub.number = (scrub.number + 1) % scrub.chunks;
        scrub.seen += 1;
        if scrub.seen == scrub.chunks {
            scrub.seen = 0;
            self.flash.statistics.scrub.passes += 1;
            // The next pass begins no sooner than this one should have ended.
            let ends = scrub.began + scrub.interval.unwrap_or_default();
            scrub.due = scrub.due.map(|due| due.max(ends));
            scrub.began = scrub.due.unwrap_or_default();
        }
        // Whatever the device has noticed by itself.
        self.heed_notifications();
    }

    /// Blocks of `chunk` that the device lets be read now.
    fn readable(&mut self, chunk: ChunkId) -> u32 {
        let unknown = ChunkDescriptor { chunk, state: ChunkState::Offline, wear_index: 0, blocks: 0, write_pointer: 0 };
        let mut report = [unknown];
        self.hand_over();
        if self.media.chunk_report(self.flash.now, chunk, &mut report).is_err() {
            return 0;
        }
        match report[0].state {
            ChunkState::Closed => report[0].write_pointer,
            ChunkState::Open => report[0].write_pointer.saturating_sub(self.flash.geometry.mw_cunits),
            ChunkState::Free => 0,
            ChunkState::Offline => {
                self.chunk_went_offline(chunk);
                0
            }
        }
    }

    fn scrub_chunk(&mut self, looking: Looking) {
        let Looking { chunk, mut next, end, held, resets, .. } = looking;
        let is_in_use = match self.flash.chunks.usage(chunk) {
            ChunkUse::Metadata => held == Held::Metadata,
            ChunkUse::Open | ChunkUse::Closed => held == Held::Data,
            ChunkUse::Tenant => matches!(held, Held::Tenant(_)),
            _ => false,
        };
        let is_same = is_in_use && self.flash.chunks.resets(chunk) == resets;
        let (mut places, mut blocks) = ([Ppa(0); VECTOR_BLOCKS_MAX], 0);
        while is_same && blocks < VECTOR_BLOCKS_MAX {
            let block = match held {
                Held::Data => self.flash.chunks.next_valid(chunk, next),
                Held::Metadata => Some(next),
                Held::Tenant(_) => {
                    let of_tenant = self.scrub.of_tenant.iter().find(|blocks| next < blocks.end);
                    of_tenant.map(|blocks| blocks.start.max(next))
                }
            };
            let Some(block) = block.filter(|block| *block < end) else { break };
            places[blocks] = self.flash.format.ppa(chunk, block);
            blocks += 1;
            next = block + 1;
        }
        if blocks == 0 {
            self.end_chunk();
            return;
        }
        self.scrub.chunk = Some(Looking { next, ..looking });
        self.scrub.due = self.scrub.due.map(|due| due + self.scrub_time(blocks));
        self.scrub.reading = Some(held);
        let id = self.flash.reads.begin(Reader::Scrub, 0);
        let read = self.flash.reads.get_mut(id);
        for (place, frame) in places[..blocks].iter().zip(self.scrub.frames_for(held)) {
            read.add(*place, *frame);
        }
        self.flash.statistics.scrub.blocks += blocks as u64;
        self.flash.allowance.earn(blocks);
        self.flash.submit_read(id);
    }

    pub(crate) fn scrub_read_ended(&mut self, id: ReadId, completion: Completion) {
        let held = self.scrub.reading.expect("it was under way");
        let (is_again, blocks) = (self.flash.reads.get(id).is_again, self.flash.reads.get(id).places().len());
        let mut failed = 0u64;
        for at in 0..blocks {
            let read = self.flash.reads.get(id);
            let (ppa, frame) = (read.places()[at], read.frames()[at]);
            let is_in_use = held != Held::Data || self.flash.chunks.is_valid(ppa);
            let is_marked = completion.failed >> at & 1 != 0;
            let is_good = (!is_marked || completion.status.data_is_good()) && self.is_as_expected(held, ppa, frame);
            if is_in_use && (is_marked || !is_good) {
                self.weak_block(ppa, Care::Scrub);
                self.flash.statistics.scrub.weak += u64::from(!is_again);
            }
            failed |= u64::from(is_in_use && !is_good) << at;
        }
        if completion.status != Status::Success {
            self.flash.is_unusual = true;
        }
        if failed != 0 && !is_again {
            self.flash.read_again(id, failed);
            return;
        }
        // Who knows no block by its sequence says what is lost when it looks for what it holds there.
        if held != Held::Tenant(None) {
            self.flash.statistics.scrub.lost += u64::from(failed.count_ones());
        }
        self.flash.reads.end(id);
        self.scrub.reading = None;
        self.flash.stirred = true;
    }

    /// Whether what was read from `ppa` is what should be there: the data that the map has, a block of the tenant, or anything that
    /// was sealed.
    fn is_as_expected(&self, held: Held, ppa: Ppa, frame: Frame) -> bool {
        match held {
            // A stale block is no loss.
            Held::Data => self.found_at(frame, ppa) != FoundBlock::Other,
            Held::Metadata => {
                // What a failed program left empty is not missed, nor is padding.
                let is_empty = self.flash.frames.oob(frame).iter().all(|byte| *byte == 0xFF);
                let is_padding =
                    || Oob::peek(&self.flash.frames, frame).is_ok_and(|oob| oob.kind == BlockKind::Padding);
                is_empty || is_padding() || Oob::verify(&self.flash.frames, frame).is_ok()
            }
            Held::Tenant(Some(number)) => Oob::verify(&self.flash.frames, frame)
                .is_ok_and(|oob| matches!(oob.kind, BlockKind::Tenant | BlockKind::Lost) && oob.sequence == number),
            Held::Tenant(None) => Oob::verify(&self.flash.frames, frame).is_ok(),
        }
    }
}
