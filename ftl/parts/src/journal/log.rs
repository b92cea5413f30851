//! The write-ahead log: every change of the map, in order, on media.
//!
//! Because it only redoes ("block is at address"), replaying a record twice, or on a map that is already newer, does no
//! harm as long as everything after it is replayed too. That is what lets checkpoints be written while the drive works.
//!
//! It is written twice: each unit goes to the open chunk of both copies, and is durable when both are programmed. A copy
//! is a sequence of chunks of its own, in other groups than the other's where there are others:
//!
//! ```text
//!   copy 0   [ 1 2 3 4 5 6 7 ]──▶[ 8 9 10 …            ]──▶[ successors, named in a superblock ] …
//!   copy 1   [ 1 2 3 4 ]──▶[ 5 6 7 8 9 10 …  ]──▶[ successors ] …
//! ```
//!
//! Because durability is given in order, a block can say below which number everything was durable when it was made. So a
//! number that is missing in both copies is the end of the log if no block speaks of it, and a lost page if one does.

mod writing;

use crate::flash::oob::{BlockKind, Oob};
use crate::flash::units::OpenId;
use crate::journal::log_block::{Header, MARK_NOTHING, Record, WORDS_PER_BLOCK, Words, header, marked};
use crate::map::Width;
use crate::words::{METADATA_COPIES, TRANSACTION_BLOCKS_MAX};
use openftl_core::{BLOCK_BYTES, ChunkId, Frame, FrameForm, Frames};
use std::collections::VecDeque;
use zerocopy::IntoBytes;

/// Log units that may be under way at a time; commits wait beyond that.
pub const LOG_UNITS_MAX: usize = 8;
/// The most words that one transaction or one relocated unit appends. (A unit that was copied takes three for each block.)
fn append_words_max(width: Width) -> usize {
    Record::words_of_mapped(TRANSACTION_BLOCKS_MAX, width) + 2
}

/// Blocks of the log, at most a unit of them, that are written again as they were.
pub struct MendedUnit {
    /// Which copies they are written to.
    pub copies: [bool; METADATA_COPIES],
    /// LSN and bytes of each.
    pub blocks: Vec<(u64, Box<[u8; BLOCK_BYTES]>)>,
}

/// A chunk of the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogChunk {
    /// Which.
    pub chunk: ChunkId,
    /// The highest LSN written to it; 0 if none yet.
    pub last_lsn: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum CopyState {
    Waiting,
    UnderWay,
    Durable,
}

/// A full unit, waiting to be written or under way.
struct Full {
    number: u64,
    frames: Vec<Frame>,
    first_lsn: u64,
    last_lsn: u64,
    /// Blocks at its end that were left empty.
    empty: u32,
    /// Position after its last word.
    end: u64,
    copies: [CopyState; METADATA_COPIES],
}

/// A unit to be written to one copy.
pub struct LogUnit<'a> {
    /// Names unit and copy when it ends.
    pub owner: u64,
    /// Its blocks.
    pub frames: &'a [Frame],
    /// How many of them are not empty.
    pub used: u32,
    /// The highest LSN in it.
    pub last_lsn: u64,
}

/// One copy of the log.
#[derive(Default)]
pub struct LogCopy {
    /// The chunks that hold the log since the last checkpoint, oldest first; the last ones are for what comes.
    pub chunks: VecDeque<LogChunk>,
    /// The chunk being written.
    pub open: Option<OpenId>,
    /// The chunks after the open one, in the order in which they will be written.
    pub successors: VecDeque<Successor>,
}

/// The log of a drive.
pub struct Log {
    drive: u64,
    unit_blocks: usize,
    /// The most words that are appended at once.
    append_words_max: usize,
    /// Frames of the unit being filled.
    filling: Vec<Frame>,
    /// Words of the block being filled. They go to its frame when it ends: what its frame holds until then is durable, and the device may
    /// have its page.
    image: Box<[[u8; 8]; WORDS_PER_BLOCK]>,
    /// How many there are.
    words: usize,
    /// Full blocks of the unit being filled.
    blocks: usize,
    /// LSN of the first block of the unit being filled.
    unit_lsn: u64,
    /// Words appended since the drive was opened.
    position: u64,
    durable: u64,
    full: VecDeque<Full>,
    next_number: u64,
    /// Blocks from here on are not known to survive a power cut, though they were found.
    doubted_from: Option<u64>,
    spare_frames: Vec<Vec<Frame>>,
    /// Where it is written.
    pub copies: [LogCopy; METADATA_COPIES],
}

/// A chunk that follows the open one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Successor {
    /// Which.
    pub chunk: ChunkId,
    /// The superblock that must be durable before the chunk is written.
    pub superblock: u64,
}

impl Log {
    /// Frames that a log needs.
    #[must_use]
    pub fn frames_needed(unit_blocks: u32) -> usize {
        unit_blocks as usize * LOG_UNITS_MAX
    }

    /// An empty log whose next block is `lsn`, of a drive whose entries have this width.
    ///
    /// # Panics
    /// If the pool is too small.
    #[must_use]
    pub fn new(drive: u64, width: Width, unit_blocks: u32, lsn: u64, frames: &mut Frames) -> Log {
        let mut units: Vec<Vec<Frame>> = (0..LOG_UNITS_MAX)
            .map(|_| {
                let mut unit = Vec::new();
                assert!(
                    frames.acquire_many(FrameForm::Bytes, unit_blocks as usize, &mut unit),
                    "the pool was sized for the log"
                );
                unit
            })
            .collect();
        Log {
            drive,
            unit_blocks: unit_blocks as usize,
            append_words_max: append_words_max(width),
            filling: units.pop().expect("several units"),
            image: Box::new([[0; 8]; WORDS_PER_BLOCK]),
            words: 0,
            blocks: 0,
            unit_lsn: lsn,
            position: 0,
            durable: 0,
            full: VecDeque::new(),
            next_number: 0,
            doubted_from: None,
            spare_frames: units,
            copies: Default::default(),
        }
    }

    /// Words appended so far; what is appended now will be durable when [`Log::durable`] reaches the position after it.
    #[inline]
    #[must_use]
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Words that survive a power cut.
    #[inline]
    #[must_use]
    pub fn durable(&self) -> u64 {
        self.durable
    }

    /// The LSN of the block that the next record goes to.
    #[must_use]
    pub fn next_lsn(&self) -> u64 {
        self.unit_lsn + self.blocks as u64
    }

    /// The LSN below which every block survives a power cut.
    #[inline]
    #[must_use]
    pub fn durable_below(&self) -> u64 {
        let below = self.full.front().map_or(self.unit_lsn, |full| full.first_lsn);
        self.doubted_from.map_or(below, |from| from.min(below))
    }

    /// Blocks from `lsn` on were found, and may not be found the next time.
    pub fn doubt(&mut self, lsn: u64) {
        self.doubted_from = Some(lsn);
    }

    /// What was found is needed no more: a checkpoint has it.
    pub fn trust(&mut self) {
        self.doubted_from = None;
    }

    /// Whether blocks were found that nothing will write again, and that may not be found the next time.
    pub fn is_doubted(&self) -> bool {
        self.doubted_from.is_some()
    }

    /// Whether blocks were found that may not be found the next time, unless they are written again.
    pub fn is_in_doubt(&self) -> bool {
        self.is_doubted() || self.full.front().is_some_and(|full| full.end == 0)
    }

    /// The chunks of both copies.
    pub fn chunks(&self) -> impl Iterator<Item = &LogChunk> {
        self.copies.iter().flat_map(|copy| &copy.chunks)
    }

    /// Whether a whole transaction can be appended now.
    #[inline]
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.has_room_for(0)
    }

    /// Words that a log of units of `unit_blocks` can take at once when nothing of it is under way.
    #[must_use]
    pub fn words_max(unit_blocks: u32) -> usize {
        (LOG_UNITS_MAX - 1) * unit_blocks as usize * WORDS_PER_BLOCK
    }

    /// Whether so many words can be appended now, and room for a whole transaction be left.
    #[must_use]
    pub fn has_room_for(&self, words: usize) -> bool {
        let left = (self.unit_blocks - self.blocks) * WORDS_PER_BLOCK - self.words;
        left + self.spare_frames.len() * self.unit_blocks * WORDS_PER_BLOCK > words + self.append_words_max
    }

    /// Appends a record. There must be room.
    #[inline]
    pub fn append(&mut self, frames: &mut Frames, record: Record) {
        match record.short_word() {
            // Nearly all.
            Some(word) => self.word(frames, word),
            None => self.append_words(frames, record),
        }
    }

    #[inline(never)]
    fn append_words(&mut self, frames: &mut Frames, record: Record) {
        let Words { upper, word, announced } = record.words();
        // They are in one block.
        let more = usize::from(upper.is_some()) + usize::from(announced.is_some());
        while more > 0 && self.words > 0 && self.words + more >= WORDS_PER_BLOCK {
            self.word(frames, marked(MARK_NOTHING));
        }
        if let Some(upper) = upper {
            self.word(frames, upper);
        }
        self.word(frames, word);
        if let Some(announced) = announced {
            self.word(frames, announced);
        }
    }

    #[inline]
    fn word(&mut self, frames: &mut Frames, word: u64) {
        self.image[self.words] = word.to_le_bytes();
        self.words += 1;
        self.position += 1;
        if self.words == WORDS_PER_BLOCK {
            self.end_block(frames);
        }
    }

    fn end_block(&mut self, frames: &mut Frames) {
        let lsn = self.next_lsn();
        let header = header(self.drive, lsn, self.durable_below(), self.words);
        let frame = self.filling[self.blocks];
        let bytes = frames.bytes_anew(frame);
        let (words, unused) = bytes[size_of::<Header>()..].split_at_mut(self.words * 8);
        words.copy_from_slice(self.image[..self.words].as_flattened());
        unused.fill(0);
        bytes[..size_of::<Header>()].copy_from_slice(header.as_bytes());
        Oob { kind: BlockKind::Log, address: 0, sequence: lsn }.seal(frames, frame);
        self.words = 0;
        self.blocks += 1;
        if self.blocks == self.unit_blocks {
            self.end_unit();
        }
    }

    fn end_unit(&mut self) {
        let next = self.spare_frames.pop().expect("there was room");
        let frames = std::mem::replace(&mut self.filling, next);
        let lsns = self.unit_lsn..self.unit_lsn + self.unit_blocks as u64;
        self.push_unit(frames, (lsns.start, lsns.end - 1), self.position, [CopyState::Waiting; METADATA_COPIES]);
        self.unit_lsn = lsns.end;
        self.blocks = 0;
    }

    fn push_unit(
        &mut self,
        frames: Vec<Frame>,
        (first_lsn, last_lsn): (u64, u64),
        end: u64,
        copies: [CopyState; METADATA_COPIES],
    ) {
        self.full.push_back(Full { number: self.next_number, frames, first_lsn, last_lsn, empty: 0, end, copies });
        self.next_number += 1;
    }

    /// Ends the unit being filled, so that what is in it can be written. Returns whether there was anything to write and
    /// room to go on.
    pub fn force(&mut self, frames: &mut Frames) -> bool {
        if (self.words == 0 && self.blocks == 0) || self.spare_frames.is_empty() {
            return false;
        }
        let number = self.next_number;
        if self.words > 0 {
            self.end_block(frames);
        }
        let mut empty = 0;
        while self.next_number == number {
            self.end_block(frames);
            empty += 1;
        }
        self.full.back_mut().expect("it has just ended").empty = empty;
        true
    }

    /// Writes blocks again as they are: their LSNs and bytes. Nothing was appended yet.
    ///
    /// # Panics
    /// If they are more units than [`Log::mendable`].
    pub fn mend(&mut self, frames: &mut Frames, mended: &MendedUnit) {
        assert_eq!(self.position, 0, "a log is mended before anything is appended to it");
        let MendedUnit { copies, blocks } = mended;
        let unit = self.spare_frames.pop().expect("the caller knows how many can be mended");
        for (index, frame) in unit.iter().enumerate() {
            match blocks.get(index) {
                Some((lsn, bytes)) => {
                    frames.bytes_anew(*frame).copy_from_slice(&**bytes);
                    Oob { kind: BlockKind::Log, address: 0, sequence: *lsn }.seal(frames, *frame);
                }
                None => {
                    frames.zero(*frame);
                    Oob { kind: BlockKind::Padding, address: 0, sequence: 0 }.seal(frames, *frame);
                }
            }
        }
        let states = copies.map(|is_lacking| if is_lacking { CopyState::Waiting } else { CopyState::Durable });
        let lsns = (blocks[0].0, blocks[blocks.len() - 1].0);
        self.push_unit(unit, lsns, 0, states);
        self.full.back_mut().expect("it was just pushed").empty = (self.unit_blocks - blocks.len()) as u32;
    }

    /// Units that [`Log::mend`] can write at a time.
    #[must_use]
    pub fn mendable() -> usize {
        LOG_UNITS_MAX - 1
    }

    /// Whether everything up to `position` has been handed to the device.
    #[must_use]
    pub fn is_submitted(&self, position: u64) -> bool {
        self.position - self.in_filling() >= position
    }

    fn in_filling(&self) -> u64 {
        self.position - self.full.back().map_or(self.durable, |full| full.end)
    }

    /// Whether a unit waits to be written to `copy`.
    #[inline]
    #[must_use]
    pub fn has_unwritten(&self, copy: usize) -> bool {
        self.full.iter().any(|full| full.copies[copy] == CopyState::Waiting)
    }

    /// Whether `copy` has a unit that does not survive a power cut.
    #[must_use]
    pub fn is_waiting(&self, copy: usize) -> bool {
        self.full.iter().any(|full| full.copies[copy] != CopyState::Durable)
    }

    /// The next unit to write to `copy`.
    pub fn next_unit(&mut self, copy: usize) -> Option<LogUnit<'_>> {
        let full = self.full.iter_mut().find(|full| full.copies[copy] == CopyState::Waiting)?;
        full.copies[copy] = CopyState::UnderWay;
        let owner = full.number * METADATA_COPIES as u64 + copy as u64;
        let used = full.frames.len() as u32 - full.empty;
        Some(LogUnit { owner, frames: &full.frames, used, last_lsn: full.last_lsn })
    }

    fn copy_state(&mut self, owner: u64) -> &mut CopyState {
        let (number, copy) = (owner / METADATA_COPIES as u64, (owner % METADATA_COPIES as u64) as usize);
        let unit = self.full.iter_mut().find(|full| full.number == number).expect("a unit under way");
        &mut unit.copies[copy]
    }

    /// One copy of a unit survives a power cut.
    pub fn copy_durable(&mut self, owner: u64) {
        *self.copy_state(owner) = CopyState::Durable;
        while self.full.front().is_some_and(|full| full.copies == [CopyState::Durable; METADATA_COPIES]) {
            let full = self.full.pop_front().expect("there is a first");
            self.durable = full.end;
            self.spare_frames.push(full.frames);
        }
    }

    /// One copy of a unit could not be written: it is written again.
    pub fn copy_failed(&mut self, owner: u64) {
        *self.copy_state(owner) = CopyState::Waiting;
    }

    /// Whether nothing is under way or waits.
    #[inline]
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.full.is_empty()
    }

    /// Forgets the chunks in which nothing at or above `lsn` is written, and returns them.
    pub fn truncate(&mut self, lsn: u64, in_use: &[ChunkId]) -> Vec<ChunkId> {
        let mut ended = Vec::new();
        for copy in &mut self.copies {
            copy.chunks.retain(|chunk| {
                let keep = chunk.last_lsn >= lsn || chunk.last_lsn == 0 || in_use.contains(&chunk.chunk);
                if !keep {
                    ended.push(chunk.chunk);
                }
                keep
            });
        }
        ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::log_block::{LogBlockError, parse_block, records};
    use crate::map::Entry;
    use openftl_core::Ppa;

    fn at(place: u64) -> Entry {
        Entry::media(Ppa(place))
    }

    fn log() -> (Frames, Log) {
        let mut frames = Frames::new(Log::frames_needed(2), 0, 16);
        let log = Log::new(0xD21E, Width::Wide, 2, 10, &mut frames);
        (frames, log)
    }

    fn read_back(frames: &Frames, unit: &[Frame]) -> Vec<Record> {
        unit.iter()
            .flat_map(|frame| {
                Oob::verify(frames, *frame).unwrap();
                let block = parse_block(frames.bytes(*frame), 0xD21E).unwrap();
                records(block.words).map(Option::unwrap).collect::<Vec<_>>()
            })
            .collect()
    }

    #[test]
    fn what_is_appended_is_read_back_in_order() {
        let (mut frames, mut log) = log();
        let records: Vec<Record> = (0..480_u32)
            .map(|number| match number % 12 {
                3 => Record::Trimmed { first: number.into(), blocks: u64::from(number) + 1 },
                4 => Record::Opened { chunk: ChunkId(number), seal: !number },
                5 => Record::Copied { ppa: Ppa(number.into()), borrowed: u32::MAX - number },
                6 => Record::Suspect { chunk: ChunkId(number) },
                7 => Record::MergeBegan { page: number << 20 },
                8 => Record::Page { page: number, places: [at(u64::from(number) << 26), at(7)] },
                9 => Record::Page { page: u32::MAX, places: [Entry::UNMAPPED; METADATA_COPIES] },
                10 => Record::Trimmed { first: u64::from(number) << 27, blocks: u64::from(number) << 26 },
                11 => Record::Mapped { block: u64::from(number) << 26, ppa: Ppa(number.into()), last: true },
                0 => Record::Mapped { block: (1 << 36) - 1, ppa: Ppa((1 << 36) - 1), last: false },
                _ => Record::Mapped {
                    block: number.into(),
                    ppa: Ppa(u64::from(number) + (1 << 30)),
                    last: number % 2 == 0,
                },
            })
            .collect();
        for record in &records {
            log.append(&mut frames, *record);
        }
        assert!(log.force(&mut frames));
        let LogUnit { owner, frames: unit, used, last_lsn } = log.next_unit(0).unwrap();
        assert_eq!((owner, used, last_lsn), (0, 2, 11));
        assert_eq!(read_back(&frames, unit), records);
    }

    #[test]
    fn durability_goes_in_order_and_frees_the_frames() {
        let (mut frames, mut log) = log();
        let record = Record::Mapped { block: 1, ppa: Ppa(2), last: true };
        log.append(&mut frames, record);
        assert!(log.force(&mut frames));
        log.append(&mut frames, record);
        log.append(&mut frames, record);
        assert!(log.force(&mut frames));
        let owners: Vec<u64> =
            [0, 0, 1, 1].into_iter().map(|copy| log.next_unit(copy).map(|unit| unit.owner).unwrap()).collect();
        let [first, second, first_again, second_again] = owners[..] else { panic!("four units") };
        log.copy_durable(second);
        log.copy_durable(second_again);
        assert_eq!((log.durable(), log.durable_below()), (0, 10), "the second, but not the first");
        log.copy_failed(first);
        assert_eq!(log.next_unit(0).unwrap().owner, first);
        log.copy_durable(first);
        assert_eq!(log.durable(), 0, "in one copy");
        log.copy_durable(first_again);
        assert_eq!((log.durable(), log.position(), log.durable_below()), (3, 3, 14));
        assert!(log.is_idle());
    }

    #[test]
    fn a_block_says_what_was_durable_when_it_was_made() {
        let (mut frames, mut log) = log();
        let record = Record::Mapped { block: 1, ppa: Ppa(2), last: true };
        let mut said = Vec::new();
        for _ in 0..3 {
            log.append(&mut frames, record);
            log.force(&mut frames);
            let unit = log.next_unit(0).unwrap();
            said.push(parse_block(frames.bytes(unit.frames[1]), 0xD21E).map(|block| (block.lsn, block.durable_below)));
            let owner = unit.owner;
            log.copy_durable(owner);
            log.copy_durable(log.full[0].number * 2 + 1);
        }
        assert_eq!(said, [Ok((11, 10)), Ok((13, 12)), Ok((15, 14))]);
    }

    #[test]
    fn what_one_copy_lacks_is_written_to_it_as_it_was() {
        let (mut frames, mut log) = log();
        log.append(&mut frames, Record::Trimmed { first: 7, blocks: 1 });
        log.force(&mut frames);
        let whole: Vec<_> =
            log.next_unit(0).unwrap().frames.iter().map(|frame| Box::new(*frames.bytes(*frame))).collect();
        let mut frames = Frames::new(Log::frames_needed(2), 0, 16);
        let mut log = Log::new(0xD21E, Width::Wide, 2, 30, &mut frames);
        log.mend(&mut frames, &MendedUnit { copies: [false, true], blocks: vec![(10, whole[0].clone())] });
        assert!(!log.has_unwritten(0) && log.has_unwritten(1));
        let LogUnit { owner, frames: unit, used, last_lsn } = log.next_unit(1).unwrap();
        assert_eq!((used, last_lsn), (1, 10));
        assert_eq!(frames.bytes(unit[0]), &*whole[0]);
        assert_eq!(read_back(&frames, &unit[..1]), [Record::Trimmed { first: 7, blocks: 1 }]);
        log.copy_durable(owner);
        assert!(log.is_idle());
        assert_eq!((log.position(), log.durable(), log.next_lsn()), (0, 0, 30));
    }

    #[test]
    fn a_log_whose_units_are_all_under_way_has_no_room() {
        let (mut frames, mut log) = log();
        let mut appended = 0;
        while log.has_room() {
            log.append(&mut frames, Record::Mapped { block: 1, ppa: Ppa(2), last: true });
            appended += 1;
        }
        assert!(appended >= (LOG_UNITS_MAX - 1) * 2 * WORDS_PER_BLOCK);
        assert!(!log.force(&mut frames), "and cannot be forced until one is durable");
    }

    #[test]
    fn a_block_of_another_drive_or_version_is_refused() {
        let (mut frames, mut log) = log();
        log.append(&mut frames, Record::Trimmed { first: 0, blocks: 1 });
        log.force(&mut frames);
        let mut bytes = *frames.bytes(log.next_unit(0).unwrap().frames[0]);
        assert!(parse_block(&bytes, 0xD21E).is_ok());
        assert_eq!(parse_block(&bytes, 1), Err(LogBlockError::Drive(0xD21E)));
        bytes[4] = 9;
        assert_eq!(parse_block(&bytes, 0xD21E), Err(LogBlockError::Version(9)));
        bytes[0] = 0;
        assert!(matches!(parse_block(&bytes, 0xD21E), Err(LogBlockError::Magic(_))));
    }
}
