//! Checkpoints: the map and the chunk table on media, so that the log need not be kept and a restart need not replay it.
//!
//! A checkpoint is written while the drive works. It is taken block by block, each as the log says at that moment, so
//! different blocks are of different ages; replaying the log from where the checkpoint *began* brings them all to the
//! same one. The steps, and what a crash after each leaves:
//!
//! 1. **Begin**: note the log's next LSN. *Crash: the older checkpoint and the log since.*
//! 2. **Write** the body twice, each copy spread over lanes of open chunks in groups of its own. *Crash: the same.*
//! 3. **Log**: wait until the log is durable as far as the body may have seen it. *Crash: the same. Without this step the
//!    body could know of half a transaction whose other half is lost.*
//! 4. **Publish**: write a superblock that names the new body and the log from the noted LSN on. *Crash: the new one.*
//! 5. **Free** the chunks that only the older checkpoint and log needed.
//!
//! The copies of a block are taken one after the other, so they may differ in age as any two blocks do; where one copy of a
//! block is lost the other stands in for it.
//!
//! One is begun when the log has grown to what the plan has room for, or when the oldest change that is in the log alone
//! has been there for the interval that the drive's owner chose.
//!
//! Nothing is overwritten: a body is appended to the lanes' open chunks, and a chunk is reset when nothing names it.
//!
//! # The body
//! | blocks | contents |
//! |---|---|
//! | ⌈capacity / 1024⌉ | map entries, 4 bytes each, in the order of logical blocks: address, FFFF_FFFFh (nowhere), FFFF_FFFEh (lost) |
//! | ⌈chunks / 512⌉ | chunk table, 8 bytes each, in address order: resets (bit 31: retired), [seal](crate::flash::seals) |
//! | ⌈capacity / 1024⌉, or none | 4 bytes each, in the order of logical blocks: what the salt of a copied block differs by. Only on drives that were formatted for device copy |
//!
//! Where the map is on media ([`crate::map::demand`]) the body has this instead:
//!
//! | blocks | contents |
//! |---|---|
//! | ⌈map pages / 512⌉ | directory, 8 bytes each, in the order of pages: entries with the address of copy 0, of copy 1; nowhere both |
//! | ⌈chunks / 512⌉ | chunk table, as above |
//! | as many as it takes | changes, 8 bytes each, in the order of logical blocks: block, entry. What is left of the last block is FFh |
//!
//! Where entries have five bytes these are ten bytes each, 409 in a block; the rest is FFh.
//!
//! A merge that ends while the body is written is in the log behind the begin of the checkpoint, and so is every change since: it does
//! not matter whether directory and changes are from before it or from after it.
//!
//! Each block's out-of-band bytes carry kind checkpoint, its index and the checkpoint's sequence. That is at least the LSN at
//! which it began, so one that a crash cut off never has the sequence of one that came after it.

use crate::canary::Canary;
use crate::flash::Flash;
use crate::flash::chunk_table::ChunkUse;
use crate::flash::oob::{BlockKind, Oob};
use crate::flash::provisioning::Claim;
use crate::flash::units::OpenId;
use crate::journal::log::Log;
use crate::journal::superblock::{CheckpointPlace, Extent};
use crate::journal::superblock_writer::SuperblockWriter;
use crate::map::directory::{PageSize, Places};
use crate::map::memory::changes_planned;
use crate::map::{ENTRIES_PER_BLOCK, Entry, Place, Width, Word};
use crate::words::{Label, METADATA_COPIES, Purpose};
use openftl_core::{BLOCK_BYTES, ChunkId, Frame, FrameForm, Frames, Geometry, Nanos, Ppa, Time, VECTOR_BLOCKS_MAX};

/// Chunk table entries in one block.
pub const CHUNKS_PER_BLOCK: usize = BLOCK_BYTES / 8;

/// Pages of the directory, or changes, in one block, at most.
const PAIRS_PER_BLOCK_MAX: usize = Width::Narrow.pairs_per_block();

/// Flag in the resets of a chunk table entry: retired.
pub const CHUNK_RETIRED: u32 = 1 << 31;

/// Flag in the resets of a chunk table entry: a program failed in the chunk, which is to be retired when it is empty.
pub const CHUNK_SUSPECT: u32 = 1 << 30;

/// The bits of a chunk table entry that are the number of resets.
pub const CHUNK_RESETS: u32 = CHUNK_SUSPECT - 1;

/// Units of a lane under way at a time.
const UNITS_PER_LANE: u32 = 2;

/// How a body is divided.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BodyLayout {
    /// How long entries are.
    pub width: Width,
    /// Blocks of map entries, or of the directory.
    pub map_blocks: u32,
    /// Blocks of the chunk table, behind them.
    pub table_blocks: u32,
    /// Blocks of what copied blocks have borrowed, behind those.
    pub borrowed_blocks: u32,
    /// Blocks of changes behind all others, at most.
    pub change_blocks_max: u32,
}

impl BodyLayout {
    /// For a drive of `capacity_blocks` on a device of this shape, which `copies` blocks of it or does not, and whose map is on media
    /// in pages or in the checkpoint.
    #[must_use]
    pub fn new(capacity_blocks: u64, geometry: &Geometry, copies: bool, map_page: Option<PageSize>) -> BodyLayout {
        let entries = capacity_blocks.div_ceil(ENTRIES_PER_BLOCK as u64) as u32;
        let width = map_page.map_or(Width::Narrow, PageSize::width);
        BodyLayout {
            width,
            map_blocks: match map_page {
                None => entries,
                Some(size) => size.pages(capacity_blocks).div_ceil(width.pairs_per_block() as u32),
            },
            table_blocks: geometry.chunks().div_ceil(CHUNKS_PER_BLOCK as u64) as u32,
            borrowed_blocks: if copies { entries } else { 0 },
            change_blocks_max: match map_page {
                None => 0,
                Some(_) => changes_planned(capacity_blocks).div_ceil(width.pairs_per_block() as u64) as u32,
            },
        }
    }

    /// All blocks but those of changes.
    #[must_use]
    pub fn blocks(&self) -> u32 {
        self.map_blocks + self.table_blocks + self.borrowed_blocks
    }

    /// Whether a body may have so many blocks.
    #[must_use]
    pub fn may_have(&self, blocks: u32) -> bool {
        (self.blocks()..=self.blocks() + self.change_blocks_max).contains(&blocks)
    }
}

impl BodyLayout {
    /// Fills `frame` with block `index` of the body, as it is now.
    fn fill(self, flash: &mut Flash, body: &impl Body, frame: Frame, index: u32) {
        let layout = self;
        let bytes = flash.frames.bytes_anew(frame);
        if index < layout.map_blocks && body.pages() > 0 {
            let pairs = layout.width.pairs_per_block() as u32;
            let first = index * pairs;
            bytes.fill(0xFF);
            for (page, pair) in (first..body.pages()).zip(0..pairs as usize) {
                for (copy, place) in body.page_places(page).into_iter().enumerate() {
                    layout.width.set(bytes, pair * METADATA_COPIES + copy, place);
                }
            }
        } else if index < layout.map_blocks {
            let first = index as usize * ENTRIES_PER_BLOCK;
            let last = (first + ENTRIES_PER_BLOCK).min(body.blocks() as usize);
            bytes[(last - first) * 4..].fill(0xFF);
            for (block, word) in (first..last).zip(bytes.as_chunks_mut::<4>().0) {
                *word = Word::of(body.entry(block as u64));
            }
        } else if index >= layout.map_blocks + layout.table_blocks {
            let first = (index - layout.map_blocks - layout.table_blocks) as usize * ENTRIES_PER_BLOCK;
            let last = (first + ENTRIES_PER_BLOCK).min(body.blocks() as usize);
            bytes.fill(0);
            for (block, word) in (first..last).zip(bytes.as_chunks_mut::<4>().0) {
                if let Place::Media(ppa) = body.entry(block as u64).place() {
                    *word = flash.seals.borrowed(ppa).to_le_bytes();
                }
            }
        } else {
            let first = (index - layout.map_blocks) as usize * CHUNKS_PER_BLOCK;
            bytes.fill(0);
            for (chunk, entry) in flash.geometry.chunk_ids_from(first).zip(bytes.as_chunks_mut::<8>().0) {
                let flags = match flash.chunks.usage(chunk) {
                    ChunkUse::Retired => CHUNK_RETIRED,
                    _ if flash.chunks.is_suspect(chunk) && !flash.chunks.is_offline(chunk) => CHUNK_SUSPECT,
                    _ => 0,
                };
                let resets = flash.chunks.resets(chunk).min(CHUNK_RESETS) | flags;
                entry[..4].copy_from_slice(&resets.to_le_bytes());
                entry[4..].copy_from_slice(&flash.seals.get(chunk).to_le_bytes());
            }
        }
    }
}

/// What a body says of logical blocks: the map as far as it is committed.
pub trait Body {
    /// Logical blocks.
    fn blocks(&self) -> u64;
    /// Where one of them is.
    fn entry(&self, block: u64) -> Entry;
    /// The position up to which everything is committed.
    fn committed(&self) -> u64;
    /// Pages of a map that is on media; 0: it is not, and the body has each [entry](Body::entry).
    fn pages(&self) -> u32;
    /// Where one of them is.
    fn page_places(&self, page: u32) -> Places;
    /// The first changes from `block` on that no page has, as many as there is room for. Returns how many.
    fn changes_from(&self, block: u64, changes: &mut [(u64, Entry)]) -> usize;
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Idle,
    Writing,
    Logging { position: u64 },
    Publishing { superblock: u64 },
}

struct Lane {
    open: Option<OpenId>,
    /// Left partly written when the drive was last open.
    partial: Option<(ChunkId, u32)>,
    extents: Vec<Extent>,
}

/// The checkpoint being written, if any.
pub struct Checkpointer {
    layout: BodyLayout,
    /// Time that a change may be in the log alone.
    interval: Option<Nanos>,
    phase: Phase,
    /// The lanes of each copy, and which comes next.
    copies: [(Vec<Lane>, usize); METADATA_COPIES],
    frames: Vec<Frame>,
    frames_total: usize,
    /// Units whose program failed, or that found no chunk, with their copy.
    again: Vec<(usize, Vec<Frame>)>,
    /// The last time that a chunk was wanted there was none to be had.
    stalled: bool,
    /// The next block of the body, and the copy that it goes to next.
    next: u32,
    next_copy: usize,
    /// The first block whose changes the body does not have yet; `None`: it has all.
    next_change: Option<u64>,
    /// Blocks of changes of the unit that has gone to one copy, for the other.
    change_blocks: Vec<Box<[u8; BLOCK_BYTES]>>,
    /// Blocks of the body, as far as it is written.
    blocks: u32,
    first_lsn: u64,
    position: u64,
    /// Chunks that are no longer needed once the superblock is durable.
    ended: Vec<ChunkId>,
    /// The log's position when the last checkpoint began; `None` if none did since the drive was opened.
    began_at: Option<u64>,
    /// When the oldest change that no checkpoint has will have been in the log for the interval.
    due: Time,
}

impl Checkpointer {
    /// Frames that a checkpoint needs: for each lane what cannot be read yet, and some units on top.
    #[must_use]
    pub fn frames_needed(lanes: u32, geometry: &Geometry) -> usize {
        METADATA_COPIES * lanes as usize * (UNITS_PER_LANE * geometry.ws_min + geometry.mw_cunits) as usize
    }

    /// No checkpoint is being written. `lanes` are those of one copy.
    ///
    /// # Panics
    /// If the pool is too small.
    #[must_use]
    pub fn new(
        layout: BodyLayout,
        lanes: u32,
        interval: Option<Nanos>,
        geometry: &Geometry,
        frames: &mut Frames,
    ) -> Checkpointer {
        let total = Checkpointer::frames_needed(lanes, geometry);
        let mut own = Vec::new();
        assert!(frames.acquire_many(FrameForm::Bytes, total, &mut own), "the pool was sized for a checkpoint");
        Checkpointer {
            layout,
            interval,
            phase: Phase::Idle,
            copies: std::array::from_fn(|_| {
                ((0..lanes).map(|_| Lane { open: None, partial: None, extents: Vec::new() }).collect(), 0)
            }),
            frames: own,
            frames_total: total,
            again: Vec::new(),
            stalled: false,
            next: 0,
            next_copy: 0,
            next_change: None,
            change_blocks: Vec::new(),
            blocks: 0,
            first_lsn: 0,
            position: 0,
            ended: Vec::new(),
            began_at: None,
            due: Time::NEVER,
        }
    }

    /// Its state in a few words.
    pub fn describe(&self) -> String {
        format!(
            "{:?} at block {} of {}, {} chunks ended",
            self.phase,
            self.next,
            self.layout.blocks(),
            self.ended.len()
        )
    }

    /// Whether one is being written.
    #[must_use]
    pub fn is_working(&self) -> bool {
        self.phase != Phase::Idle
    }

    /// Whether it waits for a chunk.
    #[must_use]
    pub fn is_stalled(&self) -> bool {
        self.stalled
    }

    /// When the next one is due by the time; what wakes a drive that nothing else would.
    #[inline]
    #[must_use]
    pub fn next_due(&self) -> Time {
        if self.is_working() { Time::NEVER } else { self.due }
    }

    /// A lane of `copy` goes on in a chunk that an earlier checkpoint left partly written. Returns whether a lane wanted it.
    pub fn adopt(&mut self, copy: usize, chunk: ChunkId, next: u32) -> bool {
        let Some(lane) = self.copies[copy].0.iter_mut().find(|lane| lane.partial.is_none()) else { return false };
        lane.partial = Some((chunk, next));
        true
    }

    fn lanes(&self) -> impl Iterator<Item = &Lane> {
        self.copies.iter().flat_map(|(lanes, _)| lanes)
    }

    /// These frames are on media.
    pub fn written(&mut self, frames: &[Frame]) {
        self.frames.extend(frames);
    }

    /// These frames of a copy have to be written elsewhere.
    pub fn write_again(&mut self, copy: usize, frames: &[Frame]) {
        self.again.push((copy, frames.to_vec()));
    }
}

impl Checkpointer {
    /// Begins a checkpoint, unless one is being written.
    pub fn begin(&mut self, flash: &mut Flash, log: &Log, committed: u64) {
        if self.is_working() || !flash.may_program() {
            return;
        }
        self.phase = Phase::Writing;
        (self.next, self.next_copy, self.blocks) = (0, 0, 0);
        self.next_change = (self.layout.change_blocks_max > 0).then_some(0);
        self.first_lsn = log.next_lsn();
        self.position = committed;
        self.began_at = Some(log.position());
        self.due = Time::NEVER;
        for lane in self.copies.iter_mut().flat_map(|(lanes, _)| lanes) {
            lane.extents.clear();
        }
        flash.stirred = true;
    }

    /// Starts the interval with the first change that no checkpoint has, and forgets it where none may begin.
    fn watch_interval(&mut self, flash: &Flash, log: &Log, superblock: &SuperblockWriter) {
        let Some(interval) = self.interval else { return };
        if flash.phase != crate::words::Phase::Working || flash.read_only.is_some() {
            self.due = Time::NEVER;
        } else if self.due == Time::NEVER && self.has_unsaved_changes(log, superblock) {
            self.due = flash.now + interval;
        }
    }

    /// Whether anything was logged since the newest checkpoint began.
    fn has_unsaved_changes(&self, log: &Log, superblock: &SuperblockWriter) -> bool {
        match self.began_at {
            Some(position) => log.position() > position,
            None => log.position() > 0 || log.next_lsn() > superblock.current().first_lsn,
        }
    }

    /// Begins one that is due, if anything `has_been_taken` for it, or goes on with the one that is being written of `body`.
    pub fn advance(
        &mut self,
        flash: &mut Flash,
        log: &mut Log,
        superblock: &mut SuperblockWriter,
        body: &impl Body,
        has_been_taken: bool,
    ) {
        self.watch_interval(flash, log, superblock);
        match self.phase {
            Phase::Idle => {
                let current = superblock.current();
                let since = (log.next_lsn() - current.first_lsn).saturating_sub(current.log_skipped());
                // Padding of recoveries and failed programs take room too, and are not counted.
                let is_long = since > 0 && log.is_long(flash);
                if (since >= flash.plan.log_blocks_max || is_long || self.due <= flash.now)
                    && flash.phase == crate::words::Phase::Working
                    && (flash.read_only.is_none() || (has_been_taken && superblock.can_go_on()))
                {
                    self.begin(flash, log, body.committed());
                }
            }
            Phase::Writing => self.write_body(flash, log, superblock, body),
            Phase::Logging { position } => {
                if log.durable() >= position || flash.bugs.has(Canary::CheckpointBeforeLog) {
                    self.publish(flash, log, superblock);
                } else if !log.is_submitted(position) && log.is_idle() {
                    log.write_what_there_is(flash);
                }
            }
            Phase::Publishing { superblock: sequence } => {
                if superblock.durable() >= sequence {
                    for chunk in std::mem::take(&mut self.ended) {
                        flash.provisioning.end_metadata();
                        flash.reset_when_durable(chunk, 0);
                    }
                    flash.statistics.checkpoints += 1;
                    log.trust();
                    self.phase = Phase::Idle;
                    flash.stirred = true;
                }
            }
        }
    }

    fn write_body(&mut self, flash: &mut Flash, log: &Log, superblock: &SuperblockWriter, body: &impl Body) {
        let ws_min = flash.geometry.ws_min as usize;
        let blocks = self.layout.blocks();
        let has_more =
            |writer: &Checkpointer| writer.next < blocks || writer.next_change.is_some() || writer.next_copy > 0;
        self.stalled = false;
        while let Some((copy, frames)) = self.again.pop() {
            if !self.write_unit(flash, copy, &frames) {
                self.again.push((copy, frames));
                self.stalled = true;
                return;
            }
        }
        while has_more(self) && self.frames.len() >= ws_min {
            let from = self.frames.len() - ws_min;
            let frames = self.frames.split_off(from);
            let sequence = self.sequence(superblock);
            let copy = self.next_copy;
            for (index, frame) in (self.next..).zip(&frames) {
                let is_full = if index < blocks {
                    self.layout.fill(flash, body, *frame, index);
                    true
                } else {
                    self.fill_changes(flash, body, *frame, copy)
                };
                if is_full {
                    self.blocks = self.blocks.max(index + 1);
                    let oob = Oob { kind: BlockKind::Checkpoint, address: u64::from(index), sequence };
                    oob.seal(&mut flash.frames, *frame);
                } else {
                    flash.frames.zero(*frame);
                    Oob { kind: BlockKind::Padding, address: 0, sequence }.seal(&mut flash.frames, *frame);
                }
            }
            self.next_copy = (copy + 1) % METADATA_COPIES;
            if self.next_copy == 0 {
                self.next += ws_min as u32;
                self.change_blocks.clear();
            }
            if !self.write_unit(flash, copy, &frames) {
                self.again.push((copy, frames));
                self.stalled = true;
                return;
            }
        }
        if has_more(self) {
            return;
        }
        if self.frames.len() == self.frames_total {
            self.phase = Phase::Logging { position: log.position() };
            flash.stirred = true;
            return;
        }
        for copy in 0..METADATA_COPIES {
            for lane in 0..self.copies[copy].0.len() {
                if let Some(open) = self.copies[copy].0[lane].open
                    && flash.geometry.mw_cunits > 0
                    && flash.units.wants_padding(open)
                {
                    flash.pad(open);
                }
            }
        }
    }

    /// Fills `frame` with the next changes; of the second copy with those that the first one has there. Returns false if there is
    /// none.
    fn fill_changes(&mut self, flash: &mut Flash, body: &impl Body, frame: Frame, copy: usize) -> bool {
        if copy > 0 {
            let Some(block) = self.change_blocks.pop() else { return false };
            flash.frames.bytes_anew(frame).copy_from_slice(&*block);
            return true;
        }
        let Some(from) = self.next_change else { return false };
        let bytes = flash.frames.bytes_anew(frame);
        let width = self.layout.width;
        let mut changes = [(0, Entry::UNMAPPED); PAIRS_PER_BLOCK_MAX];
        let changes = &mut changes[..width.pairs_per_block()];
        let count = body.changes_from(from, changes);
        self.next_change = (count == changes.len()).then(|| changes[count - 1].0 + 1);
        bytes.fill(0xFF);
        for (at, (block, entry)) in changes[..count].iter().enumerate() {
            // The number of a block has no more bits than an address.
            width.set(bytes, 2 * at, Entry::media(Ppa(*block)));
            width.set(bytes, 2 * at + 1, *entry);
        }
        // Popped in the order in which they were filled.
        self.change_blocks.insert(0, Box::new(*bytes));
        true
    }

    /// Appends a unit to the next lane of `copy`. Returns false if no chunk is to be had now.
    fn write_unit(&mut self, flash: &mut Flash, copy: usize, frames: &[Frame]) -> bool {
        let (lanes, next_lane) = &mut self.copies[copy];
        let (index, count) = (*next_lane, lanes.len());
        let open = match lanes[index].open.filter(|open| flash.units.room(*open) > 0) {
            Some(open) => open,
            None => {
                let opened = match lanes[index].partial.take() {
                    Some((chunk, next)) => Some(flash.units.open(chunk, next)),
                    None => flash.open_chunk(Claim::Metadata { copy, turn: index as u32 }, Label::Ordinary),
                };
                self.copies[copy].0[index].open = opened;
                let Some(open) = opened else { return false };
                open
            }
        };
        let (chunk, first) = (flash.units.chunk(open).chunk.0, flash.units.chunk(open).next);
        let blocks = frames.len() as u32;
        let (lanes, next_lane) = &mut self.copies[copy];
        *next_lane = (index + 1) % count;
        let lane = &mut lanes[index];
        match lane.extents.last_mut() {
            Some(last) if last.chunk == chunk && last.first + last.blocks == first => last.blocks += blocks,
            _ => lane.extents.push(Extent { chunk, first, blocks }),
        }
        flash.write_unit(
            open,
            Purpose::Checkpoint,
            copy as u64,
            &frames[..frames.len().min(VECTOR_BLOCKS_MAX)],
            blocks,
        );
        flash.stirred = true;
        true
    }

    /// The sequence of the checkpoint that is being written.
    fn sequence(&self, superblock: &SuperblockWriter) -> u64 {
        (superblock.current().checkpoint.sequence + 1).max(self.first_lsn)
    }

    fn publish(&mut self, flash: &mut Flash, log: &mut Log, superblock: &mut SuperblockWriter) {
        let sequence = self.sequence(superblock);
        let copies = self
            .copies
            .each_ref()
            .map(|(lanes, _)| lanes.iter().flat_map(|lane| lane.extents.iter().copied()).collect());
        let current = superblock.current_mut();
        let newer = CheckpointPlace { sequence, blocks: self.blocks, copies };
        let older = std::mem::replace(&mut current.checkpoint, newer);
        current.first_lsn = self.first_lsn;
        current.position = self.position;
        current.log_gaps.retain(|gap| gap.next > self.first_lsn);
        let units = &flash.units;
        let in_lane = |chunk: u32| {
            let open = |lane: &Lane| lane.open.and_then(|open| units.chunk_if_open(open));
            self.lanes().any(|lane| open(lane) == Some(ChunkId(chunk)))
        };
        let named = |chunk: u32| current.checkpoint.extents().any(|extent| extent.chunk == chunk);
        let mut ended: Vec<ChunkId> = older
            .extents()
            .map(|extent| extent.chunk)
            .filter(|chunk| !named(*chunk) && !in_lane(*chunk))
            .map(ChunkId)
            .collect();
        ended.sort_unstable();
        ended.dedup();
        let writing: Vec<ChunkId> = log
            .copies
            .iter()
            .flat_map(|copy| {
                let open = copy.open.and_then(|open| flash.units.chunk_if_open(open));
                open.into_iter().chain(copy.successors.iter().map(|successor| successor.chunk))
            })
            .collect();
        ended.extend(log.truncate(self.first_lsn, &writing));
        self.ended = ended;
        // Closed cleanly if nothing was logged since this checkpoint began, and nothing will be.
        let clean = flash.phase == crate::words::Phase::Ending && log.next_lsn() == self.first_lsn;
        superblock.current_mut().clean = clean;
        let superblock = log.request_superblock(flash, superblock);
        self.phase = Phase::Publishing { superblock };
    }
}
