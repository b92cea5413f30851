//! One block of the log: what a change looks like on media.
//!
//! # On media
//! A log unit is WS_MIN blocks. Each block has a header and up to [`WORDS_PER_BLOCK`] words of eight bytes:
//!
//! | bytes of the block | field |
//! |---|---|
//! | 0-3 | magic `OFLG` |
//! | 4-5 | version |
//! | 6-7 | words in use |
//! | 8-15 | drive |
//! | 16-23 | log sequence number (LSN) of this block, counting from 1 since the drive was formatted |
//! | 24-31 | the LSN below which all blocks were durable when this one was made |
//! | 32-4095 | words |
//!
//! | word, bits 63-32 | bits 31-0 | meaning |
//! |---|---|---|
//! | 1 in bit 63: last of its transaction; address in bits 62-32 | logical block, below 2³¹ | the block is at that address |
//! | 0 | FFFF_FFFFh | nothing: fills a block |
//! | 1 | FFFF_FFFFh | the next word is a trim: first block in bits 31-0, number of blocks in bits 63-32 |
//! | 2 | FFFF_FFFFh | the next word is an opened chunk: its address in bits 31-0, its seal in bits 63-32 |
//! | 3 | FFFF_FFFFh | the next word is a copied block: its address in bits 31-0, what its salt differs by in bits 63-32 |
//! | 4 | FFFF_FFFFh | the next word is a chunk in which a program failed: its address |
//! | 5, number of a map page in bits 63-40 | FFFF_FFFFh | a merge of the page begins: it takes in what was mapped before |
//! | 6, number of a map page in bits 63-40 | FFFF_FFFFh | the merge has ended; the next word is where the page is: copy 0 in bits 31-0, copy 1 in bits 63-32, FFFF_FFFFh both: nowhere |
//!
//! Where a number has more bits than there is room for, another mark precedes the record. No record with its marks spans two blocks.
//!
//! | word, bits 63-56 | bits 55-48 | bits 47-40 | bits 39-32 | bits 31-0 | the next record is |
//! |---|---|---|---|---|---|
//! | 0 | address, bits 38-31 | block, bits 38-31 | 7 | FFFF_FFFFh | a mapped block |
//! | 0 | number of blocks, bits 39-32 | first block, bits 39-32 | 7 | FFFF_FFFFh | a trim |
//! | 0 | 0 | page, bits 31-24 | 7 | FFFF_FFFFh | a merge that begins |
//! | copy 1, bits 38-31 | copy 0, bits 38-31 | page, bits 31-24 | 7 | FFFF_FFFFh | a merge that has ended |
//!
//! The out-of-band bytes (kind log, sequence = LSN) carry the CRC32C.

use crate::map::directory::Places;
use crate::map::entry::{ADDRESS_BITS_MAX, NARROW_BITS};
use crate::map::{Entry, Width};
use openftl_core::{BLOCK_BYTES, ChunkId, Ppa};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// `OFLG`, little-endian.
pub const LOG_MAGIC: u32 = u32::from_le_bytes(*b"OFLG");
/// The version of this layout.
pub const LOG_VERSION: u16 = 4;
/// Words of a block.
pub const WORDS_PER_BLOCK: usize = (BLOCK_BYTES - size_of::<Header>()) / 8;
const MARKER: u32 = u32::MAX;
/// Fills a block.
pub const MARK_NOTHING: u32 = 0;
const MARK_TRIM: u32 = 1;
const MARK_OPENED: u32 = 2;
const MARK_COPIED: u32 = 3;
const MARK_SUSPECT: u32 = 4;
const MARK_MERGE: u32 = 5;
const MARK_PAGE: u32 = 6;
const MARK_UPPER: u32 = 7;

/// What a mark has above the bits that say what it is: a map page, or uppermost bits.
const ABOVE_MARK: u32 = 8;

/// Bits of a map page that a mark has room for.
const PAGE_BITS: u32 = u32::BITS - ABOVE_MARK;

/// What a log block begins with.
#[derive(FromBytes, IntoBytes, Immutable, Unaligned, KnownLayout, Clone, Copy)]
#[repr(C)]
pub struct Header {
    magic: U32,
    version: U16,
    words: U16,
    drive: U64,
    lsn: U64,
    durable_below: U64,
}

const _: () = assert!(size_of::<Header>() == 32);

/// One change of the map, or of what it takes to verify what the map names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Record {
    /// `block` is at `ppa`. `last` ends a transaction; a relocated block is a transaction of its own.
    Mapped {
        /// The logical block.
        block: u64,
        /// Where it is.
        ppa: Ppa,
        /// Whether a transaction ends here.
        last: bool,
    },
    /// Blocks are nowhere any more. A transaction of its own.
    Trimmed {
        /// The first.
        first: u64,
        /// How many.
        blocks: u64,
    },
    /// A chunk was opened. It precedes the records of the blocks in it, and is part of no transaction.
    Opened {
        /// The chunk.
        chunk: ChunkId,
        /// Its seal; see [`crate::flash::seals`].
        seal: u32,
    },
    /// The device copied a block to `ppa`. It precedes the record that maps the block there, and is part of no transaction.
    Copied {
        /// Where the copy is.
        ppa: Ppa,
        /// What its salt differs by from that of a block that was written there.
        borrowed: u32,
    },
    /// A merge of a map page begins. It takes in what the map says of its blocks now. Part of no transaction.
    MergeBegan {
        /// The page.
        page: u32,
    },
    /// The merge has ended: the page is there. Part of no transaction.
    Page {
        /// The page.
        page: u32,
        /// Where it is.
        places: Places,
    },
    /// A program failed in a chunk, which is to be retired. It precedes the records of chunks that were opened later, and is part
    /// of no transaction.
    Suspect {
        /// The chunk.
        chunk: ChunkId,
    },
}

/// A record on media.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Words {
    /// Uppermost bits, where there are any.
    pub upper: Option<u64>,
    /// It, or its mark.
    pub word: u64,
    /// What the mark announces.
    pub announced: Option<u64>,
}

impl Record {
    /// Words that the records of so many mapped blocks take at most.
    #[must_use]
    pub fn words_of_mapped(blocks: usize, width: Width) -> usize {
        match width {
            Width::Narrow => blocks,
            // The two words are in one block.
            Width::Wide => 2 * blocks + blocks / (WORDS_PER_BLOCK / 2 - 1) + 1,
        }
    }

    /// Words that the record of a merge that has ended takes at most.
    #[must_use]
    pub fn words_of_page(width: Width) -> usize {
        match width {
            Width::Narrow => 2,
            Width::Wide => 3,
        }
    }

    /// It on media, if it is a mapped block that one word has room for.
    #[inline]
    #[must_use]
    pub fn short_word(self) -> Option<u64> {
        let Record::Mapped { block, ppa, last } = self else { return None };
        ((block | ppa.0) >> NARROW_BITS == 0).then_some(block | ppa.0 << 32 | u64::from(last) << 63)
    }

    /// It on media.
    #[must_use]
    pub fn words(self) -> Words {
        let one = |word: u64| Words { upper: None, word, announced: None };
        let pair = |mark: u32, low: u32, high: u32| Words {
            announced: Some(u64::from(low) | u64::from(high) << 32),
            ..one(marked(mark))
        };
        let page_mark = |mark: u32, page: u32| one(marked(mark | page << ABOVE_MARK));
        match self {
            Record::Mapped { block, ppa, last } => {
                let (block_upper, ppa_upper) = (block >> NARROW_BITS, ppa.0 >> NARROW_BITS);
                let word = block & NARROW | (ppa.0 & NARROW) << 32 | u64::from(last) << 63;
                Words { upper: upper(block_upper, ppa_upper, 0), ..one(word) }
            }
            Record::Trimmed { first, blocks } => {
                Words { upper: upper(first >> 32, blocks >> 32, 0), ..pair(MARK_TRIM, first as u32, blocks as u32) }
            }
            Record::Opened { chunk, seal } => pair(MARK_OPENED, chunk.0, seal),
            Record::Copied { ppa, borrowed } => {
                debug_assert!(ppa.0 >> 32 == 0, "what has wide entries is not copied");
                pair(MARK_COPIED, ppa.0 as u32, borrowed)
            }
            Record::Suspect { chunk } => pair(MARK_SUSPECT, chunk.0, 0),
            Record::MergeBegan { page } => {
                Words { upper: upper(u64::from(page >> PAGE_BITS), 0, 0), ..page_mark(MARK_MERGE, page) }
            }
            Record::Page { page, places } => {
                let [(low, low_upper), (high, high_upper)] = places.map(Entry::split);
                let upper = upper(u64::from(page >> PAGE_BITS), low_upper.into(), high_upper.into());
                let announced = Some(u64::from(low) | u64::from(high) << 32);
                Words { upper, announced, ..page_mark(MARK_PAGE, page) }
            }
        }
    }
}

/// The bits of a number that there is room for in half a word beside another bit.
const NARROW: u64 = (1 << NARROW_BITS) - 1;

/// The mark for the uppermost bits of three numbers, if any is set.
#[inline]
fn upper(first: u64, second: u64, third: u64) -> Option<u64> {
    let bits = first | second << 8 | third << 16;
    debug_assert!(first < 256 && second < 256 && third < 256, "the plan admits only shorter numbers");
    (bits != 0).then(|| marked(MARK_UPPER) | bits << (32 + ABOVE_MARK))
}

/// A word that announces another, or fills the block.
pub const fn marked(mark: u32) -> u64 {
    MARKER as u64 | (mark as u64) << 32
}

/// A block of the log that cannot be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LogBlockError {
    /// No log block at all.
    #[error("log block with magic {0:#010x}")]
    Magic(u32),
    /// Written by a newer version.
    #[error("log block of version {0}; this program knows {LOG_VERSION}")]
    Version(u16),
    /// Of another drive, or an earlier life of this flash.
    #[error("log block of drive {0:#018x}")]
    Drive(u64),
    /// Impossible contents.
    #[error("log block with {0} words")]
    Words(u16),
}

/// One block of the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogBlock<'a> {
    /// Its log sequence number.
    pub lsn: u64,
    /// The LSN below which everything was durable when it was made.
    pub durable_below: u64,
    /// What is in it; see [`records`].
    pub words: &'a [[u8; 8]],
}

/// Reads one block of the log whose CRC has been verified.
///
/// # Errors
/// If it is no log block of this drive.
pub fn parse_block(bytes: &[u8; BLOCK_BYTES], drive: u64) -> Result<LogBlock<'_>, LogBlockError> {
    let (header, words) = Header::ref_from_prefix(bytes).expect("a block is longer than its header");
    if header.magic.get() != LOG_MAGIC {
        return Err(LogBlockError::Magic(header.magic.get()));
    }
    if header.version.get() != LOG_VERSION {
        return Err(LogBlockError::Version(header.version.get()));
    }
    if header.drive.get() != drive {
        return Err(LogBlockError::Drive(header.drive.get()));
    }
    let count = header.words.get();
    let words = words.as_chunks().0.get(..usize::from(count)).ok_or(LogBlockError::Words(count))?;
    Ok(LogBlock { lsn: header.lsn.get(), durable_below: header.durable_below.get(), words })
}

/// The bytes of a block with these words: those that it was written with.
pub fn image(drive: u64, lsn: u64, durable_below: u64, words: &[[u8; 8]]) -> Box<[u8; BLOCK_BYTES]> {
    let mut bytes = Box::new([0; BLOCK_BYTES]);
    bytes[..size_of::<Header>()].copy_from_slice(header(drive, lsn, durable_below, words.len()).as_bytes());
    let places = bytes[size_of::<Header>()..].as_chunks_mut().0;
    places[..words.len()].copy_from_slice(words);
    bytes
}

/// The header of a log block.
pub fn header(drive: u64, lsn: u64, durable_below: u64, words: usize) -> Header {
    Header {
        magic: U32::new(LOG_MAGIC),
        version: U16::new(LOG_VERSION),
        words: U16::new(words as u16),
        drive: U64::new(drive),
        lsn: U64::new(lsn),
        durable_below: U64::new(durable_below),
    }
}

/// The records in the words of one block. None spans two blocks. `None` marks a word that means nothing.
#[must_use]
pub fn records(words: &[[u8; 8]]) -> Records<'_> {
    Records { words: words.iter() }
}

/// Whether any word is a mark, or announced by one: nearly all blocks say only where blocks are.
pub fn has_marks(words: &[[u8; 8]]) -> bool {
    // Without an exit from the loop the compiler makes it wide.
    words.iter().fold(false, |any, word| any | (u64::from_le_bytes(*word) as u32 == MARKER))
}

/// See [`records`].
pub struct Records<'a> {
    words: std::slice::Iter<'a, [u8; 8]>,
}

impl Iterator for Records<'_> {
    type Item = Option<Record>;

    #[inline]
    fn next(&mut self) -> Option<Option<Record>> {
        let word = u64::from_le_bytes(*self.words.next()?);
        let (low, high) = (word as u32, (word >> 32) as u32);
        if low == MARKER {
            return self.marked(high);
        }
        let ppa = Ppa(u64::from(high) & NARROW);
        Some(Some(Record::Mapped { block: low.into(), ppa, last: high >> 31 != 0 }))
    }
}

impl Records<'_> {
    fn word(&mut self) -> Option<u64> {
        self.words.next().map(|word| u64::from_le_bytes(*word))
    }

    /// The next record, which begins with a mark whose upper half this is.
    #[inline(never)]
    fn marked(&mut self, mut high: u32) -> Option<Option<Record>> {
        // Uppermost bits of the record, which has room for as many numbers as it says.
        let mut upper: Option<[u64; 3]> = None;
        loop {
            let [first, second, third] = upper.unwrap_or_default();
            let are_of_addresses =
                |bits: [u64; 2]| bits.iter().all(|bits| *bits < 1 << (ADDRESS_BITS_MAX - NARROW_BITS));
            let (mark, above) = match high & ((1 << ABOVE_MARK) - 1) {
                mark @ (MARK_MERGE | MARK_PAGE | MARK_UPPER) => (mark, high >> ABOVE_MARK),
                _ => (high, 0),
            };
            let page = above | (first as u32) << PAGE_BITS;
            match mark {
                MARK_NOTHING if upper.is_none() => {}
                MARK_UPPER if upper.is_none() => {
                    upper = Some([0, 8, 16].map(|shift| u64::from(above >> shift & 0xFF)));
                }
                MARK_MERGE => {
                    return Some((second == 0 && third == 0).then_some(Record::MergeBegan { page }));
                }
                MARK_PAGE if are_of_addresses([second, third]) => {
                    return Some(self.word().map(|word| {
                        let places = [(word as u32, second), ((word >> 32) as u32, third)];
                        Record::Page { page, places: places.map(|(low, upper)| Entry::join(low, upper as u16)) }
                    }));
                }
                MARK_TRIM if third == 0 => {
                    return Some(self.word().map(|word| Record::Trimmed {
                        first: word & u64::from(u32::MAX) | first << 32,
                        blocks: word >> 32 | second << 32,
                    }));
                }
                MARK_OPENED | MARK_COPIED | MARK_SUSPECT if upper.is_none() => {
                    return Some(self.word().and_then(|word| {
                        let (low, high) = (word as u32, (word >> 32) as u32);
                        match mark {
                            MARK_OPENED => Some(Record::Opened { chunk: ChunkId(low), seal: high }),
                            MARK_COPIED => Some(Record::Copied { ppa: Ppa(low.into()), borrowed: high }),
                            _ => (high == 0).then_some(Record::Suspect { chunk: ChunkId(low) }),
                        }
                    }));
                }
                _ => return Some(None),
            }
            let Some(word) = self.word() else {
                return upper.map(|_| None);
            };
            let low = word as u32;
            high = (word >> 32) as u32;
            if low != MARKER {
                let [first, second, third] = upper.unwrap_or_default();
                let block = u64::from(low) | first << NARROW_BITS;
                let ppa = Ppa(u64::from(high) & NARROW | second << NARROW_BITS);
                let is_possible =
                    are_of_addresses([second, 0]) && third == 0 && (first == 0 || low >> NARROW_BITS == 0);
                return Some(is_possible.then_some(Record::Mapped { block, ppa, last: high >> 31 != 0 }));
            }
        }
    }
}

/// The logical blocks that the records of one block map, as far as a word of their own says it: a few others among them do no
/// harm where their entries are only [fetched](crate::map::Mapping::fetch).
pub fn mapped(words: &[[u8; 8]]) -> impl Iterator<Item = u64> {
    words.iter().map(|word| u64::from(u64::from_le_bytes(*word) as u32)).filter(|low| *low != u64::from(MARKER))
}

/// The rows of the table in `docs/FORMAT.md`.
#[must_use]
pub fn format_table() -> &'static [(usize, usize, &'static str)] {
    &[
        (std::mem::offset_of!(Header, magic), 4, "magic, `OFLG`"),
        (std::mem::offset_of!(Header, version), 2, "version, 4"),
        (std::mem::offset_of!(Header, words), 2, "words in use"),
        (std::mem::offset_of!(Header, drive), 8, "drive"),
        (std::mem::offset_of!(Header, lsn), 8, "log sequence number (LSN)"),
        (std::mem::offset_of!(Header, durable_below), 8, "LSN below which all blocks were durable when it was made"),
        (size_of::<Header>(), BLOCK_BYTES - size_of::<Header>(), "words of 8 bytes"),
    ]
}

/// What a word may say: the bits, what is in them, the meaning. For `docs/FORMAT.md`.
#[must_use]
pub fn word_table() -> Vec<(String, String, &'static str)> {
    let marked = |mark: u32| format!("{:#018x}", marked(mark));
    let block: u64 = 0x0012_3456;
    let mapped = block | 0x0765_4321 << 32 | 1 << 63;
    let record = records(&[mapped.to_le_bytes()]).next();
    assert_eq!(record, Some(Some(Record::Mapped { block, ppa: Ppa(0x0765_4321), last: true })), "as the table says");
    let (above, ppa) = (block | 5 << 31, Ppa(0x0765_4321 | 9 << 31));
    let bits_above = self::marked(MARK_UPPER) | 5 << 40 | 9 << 48;
    let record = records(&[bits_above, mapped].map(u64::to_le_bytes)).next();
    assert_eq!(record, Some(Some(Record::Mapped { block: above, ppa, last: true })), "as the table says");
    vec![
        (
            "bits 31-0 below FFFF_FFFFh".into(),
            format!("{mapped:#018x}"),
            "logical block (bits 30-0) is at the address in bits 62-32; bit 63: the last of its transaction",
        ),
        ("FFFF_FFFFh in bits 31-0, 0 above".into(), marked(MARK_NOTHING), "nothing: fills the block"),
        (
            "FFFF_FFFFh in bits 31-0, 1 above".into(),
            marked(MARK_TRIM),
            "the next word is a trim: first block in bits 31-0, number of blocks in bits 63-32; a transaction of its own",
        ),
        (
            "FFFF_FFFFh in bits 31-0, 2 above".into(),
            marked(MARK_OPENED),
            "the next word is an opened chunk: chunk address in bits 31-0, seal in bits 63-32; precedes what is mapped to it",
        ),
        (
            "FFFF_FFFFh in bits 31-0, 3 above".into(),
            marked(MARK_COPIED),
            "the next word is a copied block: address in bits 31-0, what its salt differs by in bits 63-32; precedes its mapping",
        ),
        (
            "FFFF_FFFFh in bits 31-0, 4 above".into(),
            marked(MARK_SUSPECT),
            "the next word is a chunk in which a program failed: chunk address in bits 31-0, 0 above; precedes chunks that were opened later",
        ),
        (
            "FFFF_FFFFh in bits 31-0, 5 in bits 39-32".into(),
            marked(MARK_MERGE),
            "a merge of the map page in bits 63-40 begins: it takes in what was mapped before",
        ),
        (
            "FFFF_FFFFh in bits 31-0, 6 in bits 39-32".into(),
            marked(MARK_PAGE),
            "the merge of the map page in bits 63-40 has ended; the next word is where the page is: copy 0 in bits 31-0, copy 1 in bits 63-32; all ones = nowhere",
        ),
        (
            "FFFF_FFFFh in bits 31-0, 7 in bits 39-32".into(),
            format!("{bits_above:#018x}"),
            "bits of the next record that it has no room for: of a mapped block its bits 38-31 in bits 47-40 and bits 38-31 of the address in bits 55-48; of a trim bits 39-32 of the first block and of the number; of a merge bits 31-24 of the page, and if it has ended, bits 38-31 of the copies' addresses in bits 55-48 and 63-56",
        ),
    ]
}
