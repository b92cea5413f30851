//! What is found of the log when a drive is opened: the blocks of both copies, put in the order of their numbers.
//!
//! ```text
//!   first LSN                 gap                             end
//!   │ 7 8 9 10 ┊ 11 … 26 do not count ┊ 27 28 29 30 ┊ 31 …
//!   copy 0  ■ ■ ■ ■                      ■  ■  □  ■
//!   copy 1  ■ □ ■ ■                      ■  ■  ■  □     30 is mended: written to copy 1 as it is
//! ```
//!
//! Where does it end? At the first number that counts and is in neither copy, if nothing says that it was durable:
//!
//! | the next number | was durable, by a later block or the superblock | then |
//! |---|---|---|
//! | is in a copy | | replay its records; go on |
//! | is in neither | no | the log ends: nothing from here on was promised |
//! | is in neither | yes | a page is lost: the drive is not opened |
//!
//! Whatever was logged beyond the end keeps its numbers to itself: the next superblock names them as a gap.

use crate::flash::chunks::Chunks;
use crate::flash::oob::BlockKind;
use crate::flash::scan::{Scan, interleaved};
use crate::flash::seals::Seals;
use crate::journal::log::{LOG_UNITS_MAX, MendedUnit};
use crate::journal::log_block::{self, Record};
use crate::journal::superblock::{COUNTS_END, LogGap, Superblock};
use crate::map::demand::DemandMap;
use crate::map::directory::Copies;
use crate::map::entry::NARROW_BITS;
use crate::map::replay::Replay;
use crate::map::{Entry, Map, Mapping, Place};
use crate::open_error::OpenError;
use crate::words::METADATA_COPIES;
use openftl_core::{AddressFormat, ChunkId, Clock, Geometry, Ppa};
use openftl_media::Media;
use rustc_hash::FxHashSet;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// One block of the log, from whichever copy.
struct FoundBlock {
    words: Box<[[u8; 8]]>,
    /// The LSN below which everything was durable when it was made.
    durable_below: u64,
    /// Where it was found, in each copy.
    places: [Option<Ppa>; METADATA_COPIES],
}

/// What was found of the log.
#[derive(Default)]
pub struct FoundLog {
    /// The blocks from the superblock's first LSN on.
    blocks: BTreeMap<u64, FoundBlock>,
    /// The highest LSN of any block.
    highest: u64,
    /// The highest LSN in each chunk.
    last_lsns: BTreeMap<ChunkId, u64>,
    /// The LSN below which everything is said to have been durable.
    durable_below: u64,
    /// The end: the first LSN that counts and was not found.
    end: u64,
}

/// What replaying the log did.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Replayed {
    /// Records replayed.
    pub records: u64,
    /// Records of cut-off transactions, dropped.
    pub dropped: u64,
    /// Chunks that hold something again should the blocks of the log that are in doubt not be found the next time.
    pub left_in_doubt: FxHashSet<ChunkId>,
    /// Where blocks of the area were before those blocks of the log. What they say of chunks of a tenant counts again then.
    pub left_in_area: Vec<(u32, Ppa)>,
    /// The same of a map on media, whose pages say it.
    pub left_on_media: LeftOnMedia,
    /// Whether any block of the log is in doubt.
    pub is_in_doubt: bool,
}

/// What counts again of a map on media should the blocks of the log that are in doubt not be found the next time.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct LeftOnMedia {
    /// Pages where they were before: all that they say.
    pub pages: BTreeMap<u32, Copies>,
    /// Logical blocks: what their pages say.
    pub blocks: BTreeSet<u64>,
}

impl Replayed {
    /// From here on blocks of the log are in doubt. What the changes say now counts again without these.
    fn begin_doubt(&mut self, map: &Map, format: AddressFormat) {
        self.is_in_doubt = true;
        let Map::Paged(map) = map else { return };
        self.left_in_doubt.extend(map.changes().all().filter_map(|(_, entry)| match entry.place() {
            Place::Media(ppa) => Some(format.chunk_of(ppa)),
            _ => None,
        }));
    }

    /// These logical blocks are somewhere else, and what says so is in doubt.
    fn leave(&mut self, map: &Map, blocks: Range<u64>, area_blocks: u32, format: AddressFormat) {
        match map {
            Map::Whole(mapping) => {
                for block in blocks {
                    if let Place::Media(ppa) = mapping.get(block).place() {
                        self.left_in_doubt.insert(format.chunk_of(ppa));
                        self.left_in_area.extend(
                            u32::try_from(block).ok().filter(|block| *block < area_blocks).map(|block| (block, ppa)),
                        );
                    }
                }
            }
            Map::Paged(map) => {
                let mut next = blocks.start;
                while next < blocks.end {
                    let (page, _) = map.size().split(next);
                    let end = map.end_of(page).min(blocks.end);
                    if next == map.size().first_of(page) && end == map.end_of(page) {
                        self.leave_page(map, page);
                    } else {
                        // What a change has said before is known.
                        let on_page = (next..end).filter(|block| map.changes().get(*block).is_none());
                        self.left_on_media.blocks.extend(on_page);
                    }
                    next = end;
                }
            }
        }
    }

    /// A page may be somewhere else, and what says so is in doubt.
    fn leave_page(&mut self, map: &DemandMap, page: u32) {
        if let Some(copies) = map.directory().get(page) {
            self.left_on_media.pages.entry(page).or_insert(copies);
        }
    }
}

impl FoundLog {
    /// Reads both copies. `heed` says whether the superblock's word counts for what was durable: not while the last blocks of
    /// open chunks cannot be read. If `is_over`, the superblock says that nothing was logged since, and the ends of the chunks bear it out: only
    /// where they do not are chunks read whole.
    pub fn read(
        media: &mut dyn Media,
        clock: &mut dyn Clock,
        scan: &mut Scan,
        chunks: &Chunks,
        superblock: &Superblock,
        (heed, is_over): (bool, bool),
    ) -> FoundLog {
        let mut found = FoundLog { durable_below: superblock.first_lsn, ..FoundLog::default() };
        if heed {
            found.durable_below = found.durable_below.max(superblock.durable_below);
        }
        let mut copy_of = BTreeMap::new();
        for (copy, list) in superblock.log_chunks.iter().enumerate() {
            copy_of.extend(list.iter().map(|chunk| (ChunkId(*chunk), copy)));
        }
        let ends = |chunk: ChunkId| {
            let readable = chunks.readable(chunk);
            readable.saturating_sub(chunks.geometry.ws_min)..readable
        };
        let whole = |chunk: ChunkId| 0..chunks.readable(chunk);
        let format = chunks.geometry.format();
        let places = |of: &dyn Fn(ChunkId) -> Range<u32>| {
            interleaved(format, copy_of.keys().flat_map(|chunk| of(*chunk).map(move |block| format.ppa(*chunk, block))))
        };
        if is_over {
            found.take(media, clock, scan, superblock, (format, &copy_of), &places(&ends));
        }
        // The numbers of a chunk ascend. One whose end has no block of the log may have any before it.
        let is_told = |chunk: &ChunkId| found.last_lsns.get(chunk).is_some_and(|last| *last < superblock.first_lsn);
        if !copy_of.keys().all(|chunk| chunks.readable(*chunk) == 0 || is_told(chunk)) {
            found.take(media, clock, scan, superblock, (format, &copy_of), &places(&whole));
        }
        found.end = found.first_missing(superblock);
        found
    }

    /// Takes what is at these places.
    fn take(
        &mut self,
        media: &mut dyn Media,
        clock: &mut dyn Clock,
        scan: &mut Scan,
        superblock: &Superblock,
        (format, copy_of): (AddressFormat, &BTreeMap<ChunkId, usize>),
        places: &[Ppa],
    ) {
        scan.read(media, clock, places, |ppa, frames, frame, oob| {
            let Some(oob) = oob.filter(|oob| oob.kind == BlockKind::Log) else { return };
            let Ok(block) = log_block::parse_block(frames.bytes(frame), superblock.drive) else { return };
            let is_possible = block.lsn.max(block.durable_below) < COUNTS_END;
            if !is_possible || block.lsn != oob.sequence {
                return;
            }
            let chunk = format.chunk_of(ppa);
            self.highest = self.highest.max(block.lsn);
            let last = self.last_lsns.entry(chunk).or_default();
            *last = (*last).max(block.lsn);
            if block.lsn < superblock.first_lsn || superblock.is_in_gap(block.lsn) {
                return;
            }
            self.durable_below = self.durable_below.max(block.durable_below);
            let entry = self.blocks.entry(block.lsn).or_insert_with(|| FoundBlock {
                words: block.words.into(),
                durable_below: block.durable_below,
                places: [None; METADATA_COPIES],
            });
            entry.places[copy_of[&chunk]] = Some(ppa);
        });
    }

    fn first_missing(&self, superblock: &Superblock) -> u64 {
        let mut expected = superblock.first_lsn;
        loop {
            match superblock.log_gaps.iter().find(|gap| (gap.end..gap.next).contains(&expected)) {
                Some(gap) => expected = gap.next,
                None if self.has(expected) => expected += 1,
                None => return expected,
            }
        }
    }

    /// Whether nothing was logged since the checkpoint, as far as can be seen.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Whether a block that may count was found, in either copy.
    pub fn has(&self, lsn: u64) -> bool {
        self.blocks.contains_key(&lsn)
    }

    /// Blocks that count.
    pub fn blocks(&self) -> usize {
        self.blocks.range(..self.end).count()
    }

    /// Blocks found beyond the end.
    pub fn beyond_end(&self) -> usize {
        self.blocks.len() - self.blocks()
    }

    /// The LSN below which everything is said to have been durable.
    pub fn durable_below(&self) -> u64 {
        self.durable_below
    }

    /// Whether blocks count of which nothing says that they were durable.
    pub fn is_in_doubt(&self) -> bool {
        self.blocks.range(..self.end).next_back().is_some_and(|(lsn, _)| *lsn >= self.durable_below)
    }

    /// The highest LSN found in `chunk`.
    pub fn last_lsn(&self, chunk: ChunkId) -> Option<u64> {
        self.last_lsns.get(&chunk).copied()
    }

    /// Chunks in which programs failed since the checkpoint began, as blocks that count say.
    pub fn suspects(&self) -> impl Iterator<Item = ChunkId> {
        let blocks = self.blocks.range(..self.end).filter(|(_, block)| log_block::has_marks(&block.words));
        let records = blocks.flat_map(|(_, block)| log_block::records(&block.words).flatten());
        records.filter_map(|record| match record {
            Record::Suspect { chunk } => Some(chunk),
            _ => None,
        })
    }

    /// Whether the end is the end.
    ///
    /// # Errors
    /// If something beyond it was durable.
    pub fn expect_whole(&self) -> Result<(), OpenError> {
        if self.end < self.durable_below {
            return Err(OpenError::LogLost { lsn: self.end, durable_below: self.durable_below });
        }
        Ok(())
    }

    /// The numbers that must not count from now on: from the end to above all that may have been given away before the drive
    /// was last cut off.
    pub fn gap(&self, unit_blocks: u32) -> LogGap {
        let end = self.end.max(self.durable_below);
        let given_away = end + u64::from(unit_blocks) * LOG_UNITS_MAX as u64;
        LogGap { end: self.end, next: given_away.max(self.highest + 1) }
    }

    /// Blocks that count and that a copy lacks, by copy: LSN, and where the other copy has it.
    pub fn lacking(&self) -> [Vec<(u64, Ppa)>; METADATA_COPIES] {
        std::array::from_fn(|copy| {
            let lacks = self.blocks.range(..self.end).filter(|(_, block)| block.places[copy].is_none());
            lacks.filter_map(|(lsn, block)| Some((*lsn, block.places.iter().copied().flatten().next()?))).collect()
        })
    }

    /// Units of blocks that count and have to be written again. A copy gets those that it lacks. Both get those of which nothing
    /// says that they were durable: what was being programmed when the power went may be read now, and not the next time.
    pub fn to_write_again(&self, drive: u64, unit_blocks: u32) -> Vec<MendedUnit> {
        let mut units: Vec<MendedUnit> = Vec::new();
        for (lsn, block) in self.blocks.range(..self.end) {
            let copies = block.places.map(|place| place.is_none() || *lsn >= self.durable_below);
            if copies == [false; METADATA_COPIES] {
                continue;
            }
            let image = log_block::image(drive, *lsn, block.durable_below, &block.words);
            match units.last_mut() {
                Some(unit) if unit.copies == copies && unit.blocks.len() < unit_blocks as usize => {
                    unit.blocks.push((*lsn, image));
                }
                _ => units.push(MendedUnit { copies, blocks: vec![(*lsn, image)] }),
            }
        }
        units
    }

    /// Replays what counts. Transactions that were cut off at the end or at a gap are dropped.
    ///
    /// # Errors
    /// If a record is impossible.
    pub fn replay(
        &self,
        superblock: &Superblock,
        geometry: &Geometry,
        (map, seals): (&mut Map, &mut Seals),
    ) -> Result<Replayed, OpenError> {
        let format = geometry.format();
        let mut replayed = Replayed::default();
        let mut merges = Replay::default();
        let mut transaction: Vec<(u64, Ppa)> = Vec::new();
        let mut before = superblock.first_lsn;
        for (lsn, block) in self.blocks.range(..self.end) {
            if superblock.log_gaps.iter().any(|gap| before <= gap.end && gap.next <= *lsn) {
                replayed.dropped += transaction.drain(..).count() as u64;
            }
            before = lsn + 1;
            let is_in_doubt = *lsn >= self.durable_below;
            if is_in_doubt && !replayed.is_in_doubt {
                replayed.begin_doubt(map, format);
            }
            if let Map::Whole(mapping) = &*map {
                mapping.fetch(log_block::mapped(&block.words));
            }
            for record in log_block::records(&block.words) {
                match record {
                    Some(Record::Mapped { block, ppa, last }) if block < map.blocks() && map.has_room_for(ppa) => {
                        if let (Map::Whole(mapping), true, true, false) =
                            (&mut *map, last, transaction.is_empty(), is_in_doubt)
                        {
                            // Nearly all: a transaction of one block.
                            replayed.records += 1;
                            mapping.set(block, Entry::media(ppa));
                            continue;
                        }
                        transaction.push((block, ppa));
                        if last {
                            replayed.records += transaction.len() as u64;
                            for (block, ppa) in transaction.drain(..) {
                                if is_in_doubt {
                                    replayed.leave(map, block..block + 1, superblock.catalog_blocks, format);
                                }
                                match map {
                                    Map::Whole(mapping) => mapping.set(block, Entry::media(ppa)),
                                    Map::Paged(map) => merges.mapped(map, block, Entry::media(ppa)),
                                }
                            }
                        }
                    }
                    Some(Record::Trimmed { first, blocks })
                        if first + blocks <= map.blocks() && transaction.is_empty() =>
                    {
                        replayed.records += 1;
                        if is_in_doubt {
                            replayed.leave(map, first..first + blocks, superblock.catalog_blocks, format);
                        }
                        match map {
                            Map::Whole(mapping) => mapping.unmap(first..first + blocks),
                            Map::Paged(map) => merges.trimmed(map, first..first + blocks),
                        }
                    }
                    Some(Record::MergeBegan { page }) if has_page(map, page) => {
                        if let Map::Paged(map) = map {
                            merges.merge_began(map, page);
                        }
                    }
                    Some(Record::Page { page, places }) if has_page(map, page) => {
                        if let Map::Paged(map) = map {
                            if is_in_doubt {
                                replayed.leave_page(map, page);
                            }
                            if !merges.page(map, page, places) {
                                let found = format!("log block {lsn} has map page {page} at {places:?}");
                                return Err(OpenError::Inconsistent(found));
                            }
                        }
                    }
                    Some(record @ (Record::Opened { .. } | Record::Copied { .. })) if seals.replay(record) => {}
                    Some(Record::Suspect { chunk }) if geometry.has_chunk(chunk) => {}
                    record => {
                        let found = format!("log block {lsn} has the impossible record {record:?}");
                        return Err(OpenError::Inconsistent(found));
                    }
                }
            }
        }
        replayed.dropped += transaction.len() as u64;
        Ok(replayed)
    }
}

/// Whether the map has pages on media, and this one.
fn has_page(map: &Map, page: u32) -> bool {
    matches!(map, Map::Paged(map) if page < map.directory().pages())
}

/// What a log with lost pages still says.
impl FoundLog {
    /// Replays what is left. `known` says of which logical blocks the map has the last word: of none that had it before a lost
    /// page. A transaction whose end is in a lost page was durable.
    pub fn replay_remains(
        &self,
        superblock: &Superblock,
        (mapping, seals): (&mut Mapping, &mut Seals),
        known: &mut [bool],
    ) {
        let behind_gap = |lsn: u64| {
            let gap = superblock.log_gaps.iter().find(|gap| (gap.end..gap.next).contains(&lsn));
            gap.map_or(lsn, |gap| gap.next)
        };
        let set = |mapping: &mut Mapping, known: &mut [bool], block: u64, entry: Entry| {
            if block < mapping.len() {
                mapping.set(block, entry);
                known[block as usize] = true;
            }
        };
        let mut transaction: Vec<(u64, Ppa)> = Vec::new();
        let mut expected = superblock.first_lsn;
        for (lsn, block) in &self.blocks {
            let next = behind_gap(expected);
            if next != expected {
                transaction.clear();
            }
            if *lsn != next {
                if next >= self.durable_below {
                    break;
                }
                for (block, ppa) in transaction.drain(..) {
                    set(mapping, known, block, Entry::media(ppa));
                }
                known.fill(false);
            }
            expected = lsn + 1;
            for record in log_block::records(&block.words).flatten() {
                match record {
                    Record::Mapped { block, ppa, last } => {
                        if ppa.0 >> NARROW_BITS == 0 {
                            transaction.push((block, ppa));
                        }
                        if last {
                            for (block, ppa) in transaction.drain(..) {
                                set(mapping, known, block, Entry::media(ppa));
                            }
                        }
                    }
                    Record::Trimmed { first, blocks } => {
                        for block in first..first.saturating_add(blocks).min(mapping.len()) {
                            set(mapping, known, block, Entry::UNMAPPED);
                        }
                    }
                    Record::Opened { .. } | Record::Copied { .. } => _ = seals.replay(record),
                    // Only of maps that are on media, which are not repaired like this.
                    Record::Suspect { .. } | Record::MergeBegan { .. } | Record::Page { .. } => {}
                }
            }
        }
        if behind_gap(expected) < self.durable_below {
            known.fill(false);
        }
    }
}
