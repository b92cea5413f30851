//! All pages of a drive: the map, the chunks that hold them, and what is on its way between them.

use crate::heat::{Heat, PutBefore};
use crate::index::Index;
use crate::layout::{Anchor, LOG_SPARES, Layout};
use crate::log::Log;
use crate::looked::IndexMemory;
use crate::open_chunk::{Beside, OpenChunk};
use crate::place::{COUNT_MAX, GRAINS_PER_BLOCK, Place, grains_of};
use crate::queue::Queue;
use crate::reads::{Carried, LeafReads, PageReads};
use crate::session::Sessions;
use crate::victim::{Cleaning, Window};
use openftl_core::{BLOCK_BYTES, ChunkId, Frame, FrameForm, Geometry, PuId};
use openftl_parts::cleaning::victim::VictimPolicy;
use openftl_parts::config::Config;
use openftl_parts::flash::Flash;
use openftl_parts::flash::chunk_table::ChunkUse;
use openftl_parts::flash::provisioning::Claim;
use openftl_parts::flash::shares::{FoundChunk, TenantChunks};
use openftl_parts::flash::units::Units;
use openftl_parts::map::memory::MapMemory;
use openftl_parts::open_error::OpenError;
use std::collections::BTreeMap;

/// Versions that the anchor says will be given before it says so again.
pub(crate) const VERSIONS_RESERVED: u64 = 1 << 16;

/// What happened since the drive was opened, beside [`Statistics`](openftl_parts::accounts::statistics::Statistics). Bytes on media have headers
/// and what is left of grains.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct PageStatistics {
    /// Pages that hosts have put, and deleted.
    pub pages_put: u64,
    /// See above.
    pub pages_deleted: u64,
    /// Their bytes.
    pub bytes_put: u64,
    /// Bytes of headers, and of what pages left of their last grains.
    pub header_bytes: u64,
    /// See above.
    pub grain_bytes: u64,
    /// Bytes on media of pages that were moved.
    pub moved_bytes: u64,
    /// Bytes of units that were written before they were full.
    pub padded_bytes: u64,
    /// Bytes that were left of blocks so that pages do not cross them.
    pub skipped_bytes: u64,
    /// Bytes of the log, and of these bytes of pages.
    pub log_bytes: u64,
    /// See above.
    pub carried_bytes: u64,
    /// Leaves of the map that were written.
    pub leaves_written: u64,
    /// Batches committed, and given up.
    pub batches_committed: u64,
    /// See above.
    pub batches_aborted: u64,
    /// Chunks that were cleaned.
    pub chunks_cleaned: u64,
}

/// What is known of a chunk with pages.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct PageChunk {
    /// Grains of pages that the map has there, or a batch that is not committed.
    pub live: u32,
    /// Of these, grains of batches that are not committed.
    pub held: u32,
    /// It is the log's, and `live` are grains of groups.
    pub is_log: bool,
    /// Pages that have moved away from it, which the log does not say yet.
    pub moving: u32,
    /// It should be emptied before others.
    pub is_weak: bool,
    /// When its pages were put before their last put.
    pub put_before: PutBefore,
    /// When a page was put there last.
    pub filled_at: u64,
}

/// A chunk that holds nothing, and leaves when it is durable that it does not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Doomed {
    pub chunk: ChunkId,
    /// The last mutation that it waits for.
    pub barrier: u64,
}

/// See the module.
pub(crate) struct Pages {
    pub layout: Layout,
    pub unit_blocks: u32,
    pub chunk_grains: u32,
    /// Bytes of a page, at most.
    pub page_bytes_max: u32,
    /// Pages of a leaf of the map, at most, and what was asked for that the map may take of the memory.
    pub leaf_pages: usize,
    pub memory_asked: Option<MapMemory>,
    pub capacity_grains: u64,
    pub coming_and_going: TenantChunks,
    /// Chunks that were found to hold nothing, on the word of the end of the log: without it they do, or the log does.
    pub in_doubt: BTreeMap<ChunkId, FoundChunk>,
    pub index: Index,
    pub leaf_reads: LeafReads,
    /// Pages that the log had with their bytes when the drive was opened, until they have a place.
    pub carried: BTreeMap<u64, Carried>,
    pub chunks: BTreeMap<ChunkId, PageChunk>,
    /// Chunks that are written, and where each is among them.
    pub open: Vec<Option<OpenChunk>>,
    pub slot_of: BTreeMap<ChunkId, usize>,
    /// Those that are written side by side: what hosts put, and what moves; and those for the log, in turn.
    pub host: Frontiers,
    pub moves: Frontiers,
    pub logs: Frontiers,
    pub queue: Queue,
    /// Chunks that were opened, which the log does not say.
    pub opened: Vec<ChunkId>,
    /// All mutations up to this one are in groups that are programmed, and all up to that one survive a power cut: the device was flushed since.
    pub logged: u64,
    /// See above.
    pub durable: u64,
    pub sessions: Sessions,
    /// Changes of batches that are not committed.
    pub staged: usize,
    pub log: Log,
    /// What the anchor says.
    pub anchor: Anchor,
    /// Chunks that it has, with those that it is to go on in.
    pub log_chunks: u32,
    /// Blocks of it that are read while the drive is opened.
    pub log_window: Option<Window>,
    /// While a checkpoint writes leaves: where pages were that have changed since it began to.
    pub before: Option<BTreeMap<u64, Option<Place>>>,
    pub doomed: Vec<Doomed>,
    /// The version of the next page. It stays below `versions_end`, which the anchor says: what power cuts leave of batches that were not
    /// committed has no version that is given again.
    pub next_version: u64,
    pub versions_end: u64,
    /// Grains that the map and batches hold.
    pub live_grains: u64,
    pub cleaning: Cleaning,
    pub victim: VictimPolicy,
    /// Chunks that are weak.
    pub weak: u32,
    pub reads: PageReads,
    /// Frames for what the drive does by itself.
    pub kept_frames: Vec<Frame>,
    /// What a failed program left is put elsewhere.
    pub puts_again: bool,
    /// A host had to wait for a clean chunk.
    pub lacks_room: bool,
    /// The index was rebuilt when the drive was opened, and chunks of the log before that, until the new index is on media.
    pub is_rebuilt: bool,
    /// See above.
    pub old_log: Vec<ChunkId>,
    pub statistics: PageStatistics,
    /// Bytes beside pages, of what hosts put and of what moved, that are not whole blocks yet.
    pub uncounted: [Beside; 2],
    /// Whether a page that fits into a block may lie in two.
    pub cross_blocks: bool,
    /// Used again and again.
    pub scratch: Vec<u8>,
}

/// Pages of a leaf, at most.
fn leaf_pages(config: &Config) -> usize {
    config.map_memory.map_or(usize::MAX, |memory| memory.page.entries() as usize)
}

/// Chunks that are written side by side.
pub(crate) struct Frontiers {
    pub slots: Vec<Option<usize>>,
    pub turn: usize,
    /// How often pages are put that come here: each chunk has a class of its own. `None`: they take turns.
    pub heat: Option<Heat>,
}

impl Frontiers {
    /// Those that take turns.
    pub(crate) fn in_turn(count: u32) -> Frontiers {
        Frontiers { slots: vec![None; count as usize], turn: 0, heat: None }
    }

    pub(crate) fn new(count: u32, victim: VictimPolicy, chunk_grains: u32) -> Frontiers {
        let has_heat = victim == VictimPolicy::MinimumDecliningCost && count > 1;
        let heat = has_heat.then(|| Heat::new(count as usize, chunk_grains));
        Frontiers { heat, ..Frontiers::in_turn(count) }
    }
}

impl Pages {
    pub(crate) fn new(
        geometry: &Geometry,
        layout: Layout,
        page_bytes_max: u32,
        capacity_grains: u64,
        config: &Config,
    ) -> Pages {
        let victim = config.victim;
        let chunk_grains = geometry.blocks_per_chunk * GRAINS_PER_BLOCK;
        Pages {
            layout,
            unit_blocks: Units::whole_unit(geometry),
            chunk_grains,
            page_bytes_max,
            leaf_pages: leaf_pages(config),
            memory_asked: config.map_memory,
            capacity_grains,
            coming_and_going: TenantChunks::default(),
            in_doubt: BTreeMap::new(),
            index: Index::new(layout.slots, leaf_pages(config), None),
            leaf_reads: LeafReads::new(config.map_memory.is_some()),
            carried: BTreeMap::new(),
            chunks: BTreeMap::new(),
            open: Vec::new(),
            slot_of: BTreeMap::new(),
            host: Frontiers::new(layout.host_chunks, victim, chunk_grains),
            moves: Frontiers::new(layout.move_chunks, victim, chunk_grains),
            logs: Frontiers::in_turn(layout.log_lanes),
            queue: Queue::default(),
            opened: Vec::new(),
            logged: 0,
            durable: 0,
            sessions: Sessions::new(crate::layout::SESSION_BLOCKS),
            staged: 0,
            log: Log::new(layout.log_blocks, page_bytes_max),
            anchor: Anchor { capacity_grains, ..Anchor::default() },
            log_chunks: 0,
            log_window: None,
            before: None,
            doomed: Vec::new(),
            next_version: 1,
            versions_end: 0,
            live_grains: 0,
            cleaning: Cleaning::default(),
            victim,
            weak: 0,
            reads: PageReads::default(),
            kept_frames: Vec::new(),
            puts_again: false,
            lacks_room: false,
            is_rebuilt: false,
            old_log: Vec::new(),
            statistics: PageStatistics::default(),
            uncounted: [Beside::default(); 2],
            cross_blocks: config.cross_blocks,
            scratch: Vec::new(),
        }
    }

    /// What the map may take of the memory: as is asked for now, or as the store was made with.
    ///
    /// # Errors
    /// If that is too little.
    pub(crate) fn index_memory(&self, made_with: Option<IndexMemory>) -> Result<Option<IndexMemory>, OpenError> {
        let Some(MapMemory { budget, policy, .. }) = self.memory_asked else { return Ok(made_with) };
        let whole = u64::from(self.layout.slots) * BLOCK_BYTES as u64;
        let least = Index::least_memory(self.layout.slots, policy, self.leaf_pages);
        let bytes = budget.bytes(whole, least);
        if bytes < least {
            let text = format!(
                "map_memory = {bytes} bytes: the map of this store takes at least {least} bytes of memory ({:.1}% of the whole map); give it as \
                 much, or leave map_memory away",
                least as f64 * 100.0 / whole as f64
            );
            return Err(OpenError::Tenant { text, is_lost: false });
        }
        Ok(Some(IndexMemory { bytes, policy }))
    }

    /// Blocks that the longest page touches.
    pub(crate) fn page_blocks_max(&self) -> usize {
        (grains_of(self.page_bytes_max) as usize).div_ceil(GRAINS_PER_BLOCK as usize) + 1
    }

    /// Frames for moving pages: those of a window that is read, and of a page that is written.
    pub(crate) fn frames_to_keep(&self) -> usize {
        3 * self.page_blocks_max() + 2 * self.unit_blocks as usize
    }

    /// Takes back frames that are kept, before a host can.
    pub(crate) fn keep_frames(&mut self, flash: &mut Flash) {
        let lacking = self.frames_to_keep().saturating_sub(self.kept_frames.len());
        for _ in 0..lacking {
            let Some(frame) = flash.frames.acquire(FrameForm::Bytes) else { break };
            self.kept_frames.push(frame);
        }
    }

    /// As many frames, or none; with `may_use_kept` also of those that are kept.
    pub(crate) fn take_frames(&mut self, flash: &mut Flash, count: usize, may_use_kept: bool) -> Option<Vec<Frame>> {
        let kept = if may_use_kept { self.kept_frames.len() } else { 0 };
        if flash.frames.available(FrameForm::Bytes) + kept < count {
            return None;
        }
        let mut frames = Vec::with_capacity(count);
        while frames.len() < count {
            let frame = flash.frames.acquire(FrameForm::Bytes).or_else(|| self.kept_frames.pop());
            frames.push(frame.expect("they were counted"));
        }
        Some(frames)
    }

    /// Free chunks that pages may be written to.
    pub(crate) fn free_chunks(flash: &Flash) -> u32 {
        flash.geometry.pu_ids().map(|pu| flash.provisioning.tenant_chunks_on_pu(pu)).sum()
    }

    fn is_own(flash: &Flash, chunk: ChunkId) -> bool {
        flash.chunks.usage(chunk) == ChunkUse::Tenant
    }

    /// Whether the device lets one more chunk be open.
    pub(crate) fn may_open(flash: &Flash) -> bool {
        flash.units.count_open(|open| Pages::is_own(flash, open.chunk)) < flash.plan.open_tenant_chunks
    }

    /// Whether it does on a parallel unit.
    pub(crate) fn may_open_on(flash: &Flash, pu: PuId) -> bool {
        let is_there = |chunk: ChunkId| Pages::is_own(flash, chunk) && flash.format.pu_of(chunk) == pu;
        let most = flash.plan.open_tenant_chunks_on_pu;
        most == u32::MAX || flash.units.count_open(|open| is_there(open.chunk)) < most
    }

    /// The parallel unit to open a chunk on: the one with most free chunks, best where nothing is being written.
    pub(crate) fn choose_pu(&self, flash: &Flash) -> Option<PuId> {
        if !Pages::may_open(flash) {
            return None;
        }
        let is_busy = |pu: PuId| self.slot_of.keys().any(|chunk| flash.format.pu_of(*chunk) == pu);
        let free = |pu: PuId| flash.provisioning.tenant_chunks_on_pu(pu);
        flash
            .geometry
            .pu_ids()
            .filter(|pu| free(*pu) > 0 && Pages::may_open_on(flash, *pu))
            .max_by_key(|pu| (!is_busy(*pu), free(*pu)))
    }

    /// The map says that a page is at `place` from now on, or nowhere. Returns where it was.
    pub(crate) fn set(&mut self, lpid: u64, place: Option<Place>) -> Option<Place> {
        if let Some(carried) = self.carried.remove(&lpid) {
            self.live_grains -= u64::from(grains_of(carried.bytes.len() as u32));
        }
        let old = self.index.set(lpid, place);
        if let Some(before) = &mut self.before {
            before.entry(lpid).or_insert(old);
        }
        old
    }

    /// When a page that is put now was put last, as far as is known, if it was at `old`: see [`crate::heat`].
    pub(crate) fn put_before(&self, flash: &Flash, old: Option<Place>) -> u64 {
        let known = old.filter(|old| *old != Place::LOST).and_then(|old| self.chunks.get(&old.chunk(flash.format)));
        known.map_or(0, |known| known.put_before.at.midpoint(self.next_version))
    }

    /// A chunk should be emptied before others. One of the log leaves soon anyway.
    pub(crate) fn weaken(&mut self, chunk: ChunkId) {
        if let Some(known) = self.chunks.get_mut(&chunk).filter(|known| !known.is_log) {
            self.weak += u32::from(!known.is_weak);
            known.is_weak = true;
        }
    }

    /// Groups of the log are not needed any more, for good.
    pub(crate) fn forget_groups(&mut self, flash: &mut Flash, places: Vec<Place>) {
        for place in places {
            let chunk = place.chunk(flash.format);
            let known = self.chunks.get_mut(&chunk).expect("a chunk with a group is known");
            known.live -= place.grains();
            self.doom_if_empty(flash, chunk);
        }
        flash.stirred = true;
    }

    /// Whether the log can never go on: it has no chunk, and nothing will give it one, for that would have to be logged.
    pub(crate) fn is_log_at_its_end(&self, flash: &Flash) -> bool {
        let has_chunk =
            self.logs.slots.iter().any(Option::is_some) || !self.log.spares.is_empty() || !self.log.unnamed.is_empty();
        // Chunks that leave when a group says so that is not written do not come.
        let written = self.log.placed.back().map_or(0, |placed| placed.last).max(self.logged);
        let is_coming =
            self.coming_and_going.leaving() > 0 || self.doomed.iter().any(|doomed| doomed.barrier <= written);
        !has_chunk && !is_coming && Pages::free_chunks(flash) == 0
    }

    /// Whether the anchor is soon to say that more versions are taken.
    pub(crate) fn is_short_of_versions(&self) -> bool {
        self.next_version + VERSIONS_RESERVED / 2 > self.versions_end && self.versions_end < COUNT_MAX
    }

    /// Whether the next page waits for that.
    pub(crate) fn is_out_of_versions(&self) -> bool {
        self.next_version >= self.versions_end && self.versions_end < COUNT_MAX
    }

    /// Takes chunks that the log is to go on in, if it lacks any and there are some. Returns whether some are not named by the anchor.
    pub(crate) fn take_spares(&mut self, flash: &mut Flash) -> bool {
        while self.log.spares.len() + self.log.unnamed.len() < LOG_SPARES {
            // On other parallel units than those that it writes to, so that its lanes are on different ones.
            let is_its = |pu: PuId| self.log.ahead().any(|chunk| flash.format.pu_of(chunk) == pu);
            let free = |pu: PuId| flash.provisioning.tenant_chunks_on_pu(pu);
            let best = |pu: &PuId| (free(*pu) > 0, !is_its(*pu), free(*pu));
            let Some(pu) = flash.geometry.pu_ids().max_by_key(best) else { break };
            let Some(chunk) = flash.provisioning.take(Claim::Tenant(pu)) else { break };
            flash.chunks.set_usage(chunk, ChunkUse::Tenant);
            self.log_chunks += 1;
            self.log.unnamed.push(chunk);
        }
        !self.log.unnamed.is_empty()
    }

    /// Whether the log finds no chunk to go on in behind those that it has, and has some that a checkpoint would give back.
    pub(crate) fn is_log_short(&self, flash: &Flash) -> bool {
        let ahead = self.log.spares.len() + self.log.unnamed.len();
        let written = self.logs.slots.iter().flatten().count();
        ahead < LOG_SPARES && Pages::free_chunks(flash) == 0 && self.log_chunks as usize > ahead + written.max(1)
    }

    /// Nothing is at `place` any more that anybody needs.
    pub(crate) fn kill(&mut self, flash: &mut Flash, place: Place) {
        if place == Place::LOST {
            return;
        }
        self.reads.versions.remove(&place);
        let chunk = place.chunk(flash.format);
        let known = self.chunks.get_mut(&chunk).expect("a chunk with a page is known");
        known.live -= place.grains();
        self.live_grains -= u64::from(place.grains());
        if known.live == 0 {
            self.doom_if_empty(flash, chunk);
        }
    }

    /// A chunk that is closed and holds nothing leaves when that is durable.
    pub(crate) fn doom_if_empty(&mut self, flash: &mut Flash, chunk: ChunkId) {
        let is_empty = self.chunks.get(&chunk).is_some_and(|known| known.live == 0 && known.moving == 0);
        if is_empty && !self.slot_of.contains_key(&chunk) && self.cleaning.victim() != Some(chunk) {
            let known = self.chunks.remove(&chunk).expect("it was just looked at");
            self.weak -= u32::from(known.is_weak);
            self.log_chunks -= u32::from(known.is_log);
            // The anchor says of groups that they are not needed, and is durable.
            let barrier = if known.is_log { 0 } else { self.queue.last() };
            self.doomed.push(Doomed { chunk, barrier });
            self.note_doomed(flash);
            flash.stirred = true;
        }
    }

    /// Chunks that leave when that is durable are not those that a worn-out drive lacks.
    pub(crate) fn note_doomed(&mut self, flash: &mut Flash) {
        self.coming_and_going.doom(flash, self.doomed.len() + self.in_doubt.len());
    }

    /// Gives back a chunk that was found.
    pub(crate) fn release_found_chunk(&mut self, flash: &mut Flash, chunk: ChunkId, found: FoundChunk) {
        let open = found.open(flash, chunk);
        self.coming_and_going.release(flash, chunk, open);
    }

    /// Gives back chunks that are in doubt no more: the end of the log is there for good.
    pub(crate) fn release_in_doubt(&mut self, flash: &mut Flash) {
        self.log.older.clear();
        for (chunk, found) in std::mem::take(&mut self.in_doubt) {
            self.release_found_chunk(flash, chunk, found);
        }
        self.note_doomed(flash);
    }

    /// Gives back chunks that hold nothing for good: all mutations that they wait for are durable.
    pub(crate) fn release_doomed(&mut self, flash: &mut Flash) -> bool {
        let before = self.doomed.len();
        let mut at = 0;
        while at < self.doomed.len() {
            if self.doomed[at].barrier > self.durable {
                at += 1;
                continue;
            }
            let Doomed { chunk, .. } = self.doomed.swap_remove(at);
            self.coming_and_going.release(flash, chunk, None);
        }
        self.note_doomed(flash);
        self.doomed.len() < before
    }
}
