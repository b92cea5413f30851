//! Map pages on their way: read for those who wait for them, merged with their changes, and written again.
//!
//! ```text
//!   reads of the host ─▶ waiting, by page ─▶ map read ─▶ cache ─▶ they go on
//!
//!   merge:  GATHERING ─────────▶ WRITING ─────────▶ LOGGING ──▶ done
//!           old pages are read   both copies of     directory, log;
//!                                the new ones       old places invalid
//! ```
//!
//! A batch of merges is one write unit in each copy. A batch begins when changes take up all but a sixteenth of
//! their room, when a page was trimmed as a whole, and when chunks of map pages are to be emptied: then the pages are those
//! that have a copy in the emptiest chunk, and merging them moves them. So map chunks need no other collection.
//!
//! Where a unit can be read only when more is written behind it (MW_CUNITS), several batches are under way, in order: the later ones push
//! the earlier ones. Padding is written only where somebody waits for a batch and there is no other.
//!
//! Chunks of map pages count as metadata: their room is in the plan, and nobody else gets it. A chunk of which no copy counts any
//! more is reset.

mod checking;
mod chunks;
mod hints;
mod reading;
mod search;

use crate::block_ftl::BlockFtl;
use checking::Checked;
use openftl_core::{ChunkId, Frame, Geometry, Ppa, VECTOR_BLOCKS_MAX};
use openftl_parts::flash::oob::{BlockKind, Oob};
use openftl_parts::flash::reads::Reader;
use openftl_parts::flash::units::{OpenId, UnitId};
use openftl_parts::journal::log_block::Record;
use openftl_parts::map::circles::Circles;
use openftl_parts::map::demand::{DemandMap, Merge};
use openftl_parts::map::directory::{Copies, SEQUENCE_BITS};
use openftl_parts::map::memory::MapPlan;
use openftl_parts::map::memory::whole_bytes;
use openftl_parts::map::{Entry, Map};
use openftl_parts::words::{METADATA_COPIES, Phase, Purpose, ReadOnlyReason, TRANSACTION_BLOCKS_MAX};
pub(crate) use search::LostBlock;
use search::Search;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Map pages that are read at a time for those who wait, at most.
pub(crate) const MAP_READS_MAX: usize = 64;

/// Batches whose old pages are read at a time. A read waits for what its die is doing, so that one batch at a time keeps few dies busy.
const GATHERING_MAX: u32 = 4;

/// In so many steps the room for changes is given to pages in memory, one for each page that a read waits for.
const CHANGE_STEPS: u32 = 1 << 16;

/// So many reads have to wait for a page before they weigh as much as a write: a merge programs two pages.
const READS_A_WRITE: u32 = 16;

/// Pages that are read ahead of a host that reads one after the other.
const PAGES_AHEAD: u32 = 2;

/// Times that a page is read again, its copies in turns, before it is given up.
const READS_OF_LOST: u32 = 7;

/// Chunks of each copy that are kept for going on while others are emptied.
const CHUNKS_KEPT: u32 = 2;

/// Blocks of a read of the host that wait for one page.
pub(crate) struct Waiting {
    /// The request that they are of.
    pub request: u32,
    /// The first block.
    pub first: u64,
    /// Where they are to be read to.
    pub frames: Vec<Frame>,
}

/// For what a map page is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum For {
    /// Reads of the host.
    Host,
    /// Its merge.
    Merge,
    /// The search for owners of lost blocks.
    Search,
    /// A check of the drive.
    Check,
}

/// What a map read is for, and which copy it reads.
#[derive(Clone, Copy)]
struct Owner {
    page: u32,
    copy: usize,
    what: For,
    /// How often it has been read before.
    tries: u32,
}

impl Owner {
    fn encode(self) -> u64 {
        u64::from(self.page) | (self.copy as u64) << 32 | (self.what as u64) << 33 | u64::from(self.tries) << 40
    }

    fn decode(owner: u64) -> Owner {
        let what = [For::Host, For::Merge, For::Search, For::Check][(owner >> 33 & 3) as usize];
        Owner { page: owner as u32, copy: (owner >> 32 & 1) as usize, what, tries: (owner >> 40) as u32 }
    }
}

/// Where a batch is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Old pages are being read.
    Gathering,
    /// New pages are being written; which copies can be read.
    Writing([Copy; METADATA_COPIES]),
}

/// A copy of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Copy {
    /// It has no place yet.
    Waiting,
    /// It is being written from here on.
    Written { first: Ppa },
    /// It can be read there.
    Readable { first: Ppa },
}

struct Batch {
    number: u64,
    /// As many as a write unit has blocks.
    frames: Vec<Frame>,
    merges: Vec<Merge>,
    /// Old pages that are being read.
    reading: u32,
    state: State,
    /// The pages that are not nowhere, by their place in the unit.
    written: Vec<usize>,
}

/// See the module.
pub(crate) struct MapPages {
    plan: MapPlan,
    /// Who waits, by page; nobody for one that is read ahead.
    waiting: BTreeMap<u32, Vec<Waiting>>,
    /// The last page that was waited for, or read ahead of that.
    last_read: u32,
    /// Pages that wait for a frame to be read to.
    queue: VecDeque<u32>,
    /// Frames for map reads.
    frames: Vec<Frame>,
    /// In the order in which they began, and in which they are written.
    batches: VecDeque<Batch>,
    /// Frames for batches, a write unit each.
    batch_frames: Vec<Vec<Frame>>,
    next_batch: u64,
    open: [Option<OpenId>; METADATA_COPIES],
    /// Chunks that were found partly written.
    partial: [Vec<(ChunkId, u32)>; METADATA_COPIES],
    /// Copies that count, by chunk.
    live: BTreeMap<ChunkId, u32>,
    /// The chunk that is being emptied.
    emptying: Option<ChunkId>,
    /// Chunks in which a page was read with much correction only, or not at all.
    weak: BTreeSet<ChunkId>,
    /// What the host had got done when a chunk was last emptied because it is weak.
    cared_at: Option<u64>,
    /// The number of the next batch.
    sequence: u64,
    /// Changes beyond which pages are merged. Reads that find no page in memory lower it, so that there is room for more pages;
    /// writes raise it, so that each merge takes more in.
    changes_wanted: u32,
    /// Chunks that each copy has begun: they go to one group after the other.
    turns: [u32; METADATA_COPIES],
    /// The last time that a chunk was wanted there was none to be had.
    stalled: bool,
    invalid: Vec<Ppa>,
    search: Search,
    /// Pages that are loaded at a time.
    block_pages: u32,
    /// What learns from writes which pages to pin.
    circles: Option<Circles>,
    checked: Checked,
}

impl MapPages {
    /// Frames that map pages need: for reads, and for as many batches as it takes until the first of them can be read.
    #[must_use]
    pub(crate) fn frames_needed(geometry: &Geometry) -> usize {
        let batches = geometry.mw_cunits.div_ceil(geometry.ws_min) + 1 + GATHERING_MAX;
        MAP_READS_MAX + (batches * geometry.ws_min) as usize
    }

    /// Nothing is on its way. Merges go on from `sequence`.
    pub(crate) fn new(plan: MapPlan, mut frames: Vec<Frame>, sequence: u64, geometry: &Geometry) -> MapPages {
        let batch_frames = frames.split_off(MAP_READS_MAX);
        let batch_frames = batch_frames.chunks_exact(geometry.ws_min as usize).map(<[Frame]>::to_vec).collect();
        MapPages {
            plan,
            waiting: BTreeMap::new(),
            last_read: u32::MAX,
            queue: VecDeque::new(),
            frames,
            batches: VecDeque::new(),
            batch_frames,
            next_batch: 0,
            open: [None; METADATA_COPIES],
            partial: Default::default(),
            live: BTreeMap::new(),
            emptying: None,
            weak: BTreeSet::new(),
            cared_at: None,
            sequence,
            changes_wanted: plan.changes_max as u32,
            turns: [0; METADATA_COPIES],
            stalled: false,
            invalid: Vec::new(),
            search: Search::default(),
            block_pages: 1,
            circles: None,
            checked: Checked::None,
        }
    }

    /// A chunk was found that has so many copies that count, when the drive was opened.
    pub(crate) fn adopt(&mut self, copy: usize, chunk: ChunkId, live: u32, write_pointer: Option<u32>) {
        self.live.insert(chunk, live);
        if let Some(next) = write_pointer {
            self.partial[copy].push((chunk, next));
        }
    }

    fn set_copy(&mut self, owner: u64, copy: Copy) {
        let (number, index) = (owner / METADATA_COPIES as u64, (owner % METADATA_COPIES as u64) as usize);
        let batch = self.batches.iter_mut().find(|batch| batch.number == number).expect("its unit has just ended");
        if let State::Writing(copies) = &mut batch.state {
            copies[index] = copy;
        }
    }

    /// Whether nothing is on its way.
    pub(crate) fn is_idle(&self) -> bool {
        self.batches.is_empty() && self.waiting.is_empty() && !self.search.is_reading && !self.checked.is_reading()
    }

    /// Nobody waits any more. Returns the requests that did, and a block of each.
    pub(crate) fn give_up(&mut self) -> Vec<(u32, u64)> {
        self.queue.clear();
        std::mem::take(&mut self.waiting)
            .into_values()
            .flatten()
            .map(|waiting| (waiting.request, waiting.first))
            .collect()
    }

    /// Whether old pages are being read.
    pub(crate) fn is_reading(&self) -> bool {
        self.search.is_reading || self.checked.is_reading() || self.batches.iter().any(|batch| batch.reading > 0)
    }

    /// Whether a merge waits for a chunk.
    pub(crate) fn is_stalled(&self) -> bool {
        self.stalled
    }

    /// Its state in a few words.
    pub(crate) fn describe(&self) -> String {
        let batches: Vec<_> =
            self.batches.iter().map(|batch| (batch.merges.len(), batch.reading, batch.state)).collect();
        format!("map: {} pages waited for, {} chunks, merging {batches:?}", self.waiting.len(), self.live.len())
    }
}

fn paged(map: &mut Map) -> &mut DemandMap {
    match map {
        Map::Paged(map) => map,
        Map::Whole(_) => unreachable!("only a map on media has pages on their way"),
    }
}

impl BlockFtl {
    /// Bytes of memory that the map takes now: of one on media what its budget counts.
    #[must_use]
    pub fn map_memory_bytes(&self) -> u64 {
        match (&self.map, &self.map_pages) {
            (Map::Paged(map), Some(pages)) => pages.plan.fixed_bytes + map.pool_bytes(),
            (map, _) => whole_bytes(map.blocks(), map.width()),
        }
    }

    /// A map on media: how it is divided, changes that are not in its pages yet, and pages in memory.
    #[must_use]
    pub fn map_on_media(&self) -> Option<(MapPlan, usize, u32)> {
        match (&self.map, &self.map_pages) {
            (Map::Paged(map), Some(pages)) => Some((pages.plan, map.changes().len(), map.pages_in_memory())),
            _ => None,
        }
    }

    /// Whether `chunk` is one for map pages.
    #[must_use]
    pub fn has_map_pages_in(&self, chunk: ChunkId) -> bool {
        self.map_pages.as_ref().is_some_and(|pages| pages.live.contains_key(&chunk))
    }

    /// Whether so many more changes have room. A drive that takes nothing new always has: it saves what it took.
    #[inline]
    pub(crate) fn has_room_for_changes(&self, changes: usize) -> bool {
        match (&self.map, &self.map_pages) {
            (Map::Paged(map), Some(pages)) if self.flash.read_only.is_none() => {
                map.changes().len() + changes <= pages.plan.changes_max as usize
            }
            _ => true,
        }
    }

    /// Whether a transaction of the host may add its changes: what collection moves while it waits has room, too.
    #[inline]
    pub(crate) fn has_room_for_transaction(&self) -> bool {
        matches!(self.map, Map::Whole(_)) || self.has_room_for_changes(2 * TRANSACTION_BLOCKS_MAX)
    }

    /// Whether what the host has written waits for room for its changes. Merges make it, with chunks of their own.
    #[inline]
    pub(crate) fn host_waits_for_changes(&self) -> bool {
        !self.has_room_for_transaction() && self.buffer.has_complete()
    }

    /// Goes on with merges, and with chunks of map pages.
    #[inline]
    pub(crate) fn advance_map_pages(&mut self) {
        if self.map_pages.is_some() && self.flash.may_program() {
            self.advance_pages_on_media();
        }
    }

    fn advance_pages_on_media(&mut self) {
        self.advance_search();
        self.begin_batch();
        self.write_batch();
        self.write_copies();
        self.end_batches();
        self.push_batches();
        self.reset_map_chunks();
    }

    /// Whether changes are to be merged: they take up all but a sixteenth of their room.
    fn wants_merge(&self) -> bool {
        let (Map::Paged(map), Some(pages)) = (&self.map, &self.map_pages) else { return false };
        let most = pages.plan.changes_max as usize;
        let changes = map.changes().len();
        changes + (most / 16).max(2 * TRANSACTION_BLOCKS_MAX) > most
            || changes > pages.changes_wanted as usize
            || map.has_trimmed()
    }

    fn begin_batch(&mut self) {
        if self.flash.phase != Phase::Working || self.flash.read_only.is_some() {
            return;
        }
        self.choose_map_chunk_to_empty();
        let wants_merge = self.wants_merge();
        let pages = self.map_pages.as_ref().expect("the map is on media");
        let gathering = pages.batches.iter().filter(|batch| batch.state == State::Gathering).count();
        let may_gather = gathering < GATHERING_MAX as usize;
        let Some(unit) = pages.batch_frames.last().map(Vec::len).filter(|_| may_gather) else { return };
        if !(wants_merge || self.map_pages.as_ref().is_some_and(|pages| pages.emptying.is_some()))
            || !self.journal.may_grow(&self.flash)
            || !self.journal.log.append_chunks(&mut self.flash)
            || !self.journal.log.has_room_for(unit)
        {
            return;
        }
        let mut merges = Vec::new();
        while merges.len() < unit {
            let next = self.next_page_to_merge();
            let Some(page) = next else { break };
            merges.push(paged(&mut self.map).begin_merge(page));
            self.journal.log.append(&mut self.flash.frames, Record::MergeBegan { page });
        }
        if merges.is_empty() {
            return;
        }
        // What is left of the unit would be padding: pages of the emptiest chunks fill it, so that these become empty.
        for page in self.pages_of_emptiest(unit - merges.len()) {
            merges.push(paged(&mut self.map).begin_merge(page));
            self.journal.log.append(&mut self.flash.frames, Record::MergeBegan { page });
        }
        let mut reading = 0;
        let pages = self.map_pages.as_mut().expect("the map is on media");
        let frames = pages.batch_frames.pop().expect("there is one");
        for (index, merge) in merges.iter().enumerate() {
            let Some(copies) = merge.from else { continue };
            let copy = self.flash.backlog.least(self.flash.format, copies);
            let owner = Owner { page: merge.page, copy, what: For::Merge, tries: 0 };
            let id = self.flash.reads.begin(Reader::Map, owner.encode());
            self.flash.reads.get_mut(id).add(copies[copy], frames[index]);
            self.flash.statistics.map_pages_read += 1;
            self.flash.submit_read(id);
            reading += 1;
        }
        let number = pages.next_batch;
        pages.next_batch += 1;
        pages.batches.push_back(Batch {
            number,
            frames,
            merges,
            reading,
            state: State::Gathering,
            written: Vec::new(),
        });
        self.flash.stirred = true;
    }

    /// The next page of a batch: one that has to leave its chunk, else the one that is worth most.
    fn next_page_to_merge(&mut self) -> Option<u32> {
        let format = self.flash.format;
        let pages = self.map_pages.as_ref().expect("the map is on media");
        let Map::Paged(map) = &self.map else { return None };
        if let Some(chunk) = pages.emptying {
            let is_there = |ppa: Ppa| format.chunk_of(ppa) == chunk;
            if let Some(page) = map.directory().with_copy_in(is_there).find(|page| !map.is_merging(*page)) {
                return Some(page);
            }
        }
        map.next_to_merge()
    }

    /// The old version of a page of the batch is in its frame, or cannot be read.
    fn old_page_came(&mut self, page: u32, is_good: bool) {
        let pages = self.map_pages.as_mut().expect("the map is on media");
        let has_page = |batch: &&mut Batch| batch.merges.iter().any(|merge| merge.page == page);
        let batch = pages.batches.iter_mut().find(has_page).expect("it reads");
        batch.reading -= 1;
        if !is_good {
            // Its changes stay, and so does what is left of it for a repair.
            batch.merges.retain(|merge| merge.page != page);
            paged(&mut self.map).give_up_merge(page);
            self.flash.turn_read_only(ReadOnlyReason::MapLost);
        }
    }

    /// All old pages of the batch are there: makes the new ones.
    fn write_batch(&mut self) {
        let Some(pages) = &mut self.map_pages else { return };
        let is_ready = |batch: &&mut Batch| batch.state == State::Gathering && batch.reading == 0;
        let Some(batch) = pages.batches.iter_mut().find(is_ready) else { return };
        let map = paged(&mut self.map);
        // Above all that were given away before the drive was opened: a batch logs words, and a block of the log has fewer.
        pages.sequence = pages.sequence.max(self.journal.log.next_lsn() << SEQUENCE_BITS) + 1;
        for (index, merge) in batch.merges.iter_mut().enumerate() {
            let frame = batch.frames[index];
            map.merge_into(merge, self.flash.frames.bytes_mut(frame));
            if !map.is_all_nowhere(self.flash.frames.bytes(frame)) {
                let oob = Oob { kind: BlockKind::Map, address: u64::from(merge.page), sequence: pages.sequence };
                oob.seal(&mut self.flash.frames, frame);
                batch.written.push(index);
            }
        }
        let first = if batch.written.is_empty() { Copy::Readable { first: Ppa(0) } } else { Copy::Waiting };
        batch.state = State::Writing([first; METADATA_COPIES]);
        self.flash.stirred = true;
    }

    /// Writes copies of batches that have no place yet.
    fn write_copies(&mut self) {
        let mut next = 0;
        while let Some(pages) = &mut self.map_pages
            && let Some(batch) = pages.batches.get(next)
        {
            let State::Writing(copies) = batch.state else { return };
            let Some(copy) = copies.iter().position(|copy| *copy == Copy::Waiting) else {
                next += 1;
                continue;
            };
            let frames: Vec<Frame> = batch.written.iter().map(|index| batch.frames[*index]).collect();
            let owner = batch.number * METADATA_COPIES as u64 + copy as u64;
            let Some(open) = self.map_frontier(copy) else {
                let pages = self.map_pages.as_mut().expect("the map is on media");
                self.flash.stirred |= !std::mem::replace(&mut pages.stalled, true);
                return;
            };
            let used = frames.len();
            let count = used.next_multiple_of(self.flash.geometry.ws_min as usize);
            let mut unit = [self.flash.padding; VECTOR_BLOCKS_MAX];
            unit[..used].copy_from_slice(&frames);
            let (chunk, first) = (self.flash.units.chunk(open).chunk, self.flash.units.chunk(open).next);
            let first = self.flash.format.ppa(chunk, first);
            self.flash.write_unit(open, Purpose::Map, owner, &unit[..count], used as u32);
            let pages = self.map_pages.as_mut().expect("the map is on media");
            *pages.live.entry(chunk).or_default() += used as u32;
            pages.set_copy(owner, Copy::Written { first });
            pages.stalled = false;
            self.flash.stirred = true;
        }
    }

    /// A copy of a batch can be read.
    pub(crate) fn map_unit_readable(&mut self, id: UnitId) {
        let unit = self.flash.units.unit(id);
        let (owner, first) = (unit.owner, self.flash.format.ppa(unit.chunk, unit.first));
        self.map_pages.as_mut().expect("the map is on media").set_copy(owner, Copy::Readable { first });
    }

    /// A copy of a batch could not be programmed: it goes elsewhere.
    pub(crate) fn map_unit_failed(&mut self, id: UnitId) {
        let unit = self.flash.units.unit(id);
        let (owner, chunk, used) = (unit.owner, unit.chunk, unit.used);
        let pages = self.map_pages.as_mut().expect("the map is on media");
        *pages.live.get_mut(&chunk).expect("it was counted") -= used;
        pages.set_copy(owner, Copy::Waiting);
    }

    /// Writes padding behind a batch that somebody waits for, where no other will push it.
    fn push_batches(&mut self) {
        let Some(pages) = &self.map_pages else { return };
        let is_written =
            |batch: &Batch| matches!(batch.state, State::Writing(copies) if !copies.contains(&Copy::Waiting));
        let is_waited_for = matches!(self.flash.phase, Phase::Closing | Phase::Ending)
            || pages.emptying.is_some()
            || !self.has_room_for_transaction();
        let is_tail = !pages.batches.is_empty() && pages.batches.iter().all(is_written);
        if self.flash.geometry.mw_cunits == 0 || !is_tail || !is_waited_for {
            return;
        }
        let open = pages.open;
        for open in open.into_iter().flatten() {
            if self.flash.units.chunk_if_open(open).is_some() && self.flash.units.wants_padding(open) {
                self.flash.pad(open);
            }
        }
    }

    /// Batches of which both copies can be read: the directory names them.
    fn end_batches(&mut self) {
        while let Some(pages) = &self.map_pages
            && let Some(batch) = pages.batches.front()
            && let State::Writing([Copy::Readable { first: one }, Copy::Readable { first: other }]) = batch.state
        {
            let words = batch.merges.len() * Record::words_of_page(self.map.width());
            if !self.journal.may_grow(&self.flash)
                || !self.journal.log.append_chunks(&mut self.flash)
                || !self.journal.log.has_room_for(words)
            {
                return;
            }
            self.end_batch([one, other]);
        }
    }

    fn end_batch(&mut self, firsts: Copies) {
        let pages = self.map_pages.as_mut().expect("the map is on media");
        let Batch { merges, frames, written, .. } = pages.batches.pop_front().expect("it ends");
        let map = paged(&mut self.map);
        for (index, merge) in merges.iter().enumerate() {
            let at = written.iter().position(|other| *other == index);
            let copies: Option<Copies> = at.map(|at| firsts.map(|first| Ppa(first.0 + at as u64)));
            let bytes = self.flash.frames.bytes(frames[index]);
            let gone = match map.end_merge(merge, copies, bytes, &mut pages.invalid) {
                Some(before) => {
                    let places = map.directory().places(merge.page);
                    self.journal.log.append(&mut self.flash.frames, Record::Page { page: merge.page, places });
                    self.flash.statistics.map_pages_written += u64::from(copies.is_some());
                    self.flash.statistics.map_changes_merged += merge.changes() as u64;
                    before
                }
                None => copies,
            };
            for ppa in gone.into_iter().flatten() {
                let live = pages.live.get_mut(&self.flash.format.chunk_of(ppa));
                *live.expect("a page is in a chunk of map pages") -= 1;
            }
        }
        pages.batch_frames.push(frames);
        for ppa in pages.invalid.drain(..) {
            self.flash.chunks.invalidate(ppa);
        }
        self.flash.room_changed = true;
        self.flash.stirred = true;
    }

    /// What is committed changes the map: `block` is where `to` says. Returns the place that is invalid by that, if it is known.
    #[inline]
    pub(crate) fn put_change(&mut self, block: u64, to: Entry) -> Option<Ppa> {
        let pages = self.map_pages.as_mut().expect("the map is on media");
        let most = pages.plan.changes_max as u32;
        pages.changes_wanted = (pages.changes_wanted + READS_A_WRITE * (most / CHANGE_STEPS + 1)).min(most);
        let circle = pages.circles.as_mut().filter(|_| to.is_on_media()).and_then(|circles| circles.written(block));
        if let Some(blocks) = circle {
            paged(&mut self.map).pin(blocks);
        }
        paged(&mut self.map).put(block, to)
    }
}
