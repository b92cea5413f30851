//! What a file system of Linux wrote to its disk while a [`FileLoad`](crate::file_load::FileLoad) ran on it: a recording, and how it is
//! made from the log of Linux's `dm-log-writes`, or from what `openftl serve --record` wrote down.
//!
//! ```text
//!   OpenFTL file trace 1: f2fs random, 351272960 bytes on 536870912, seed 1     a line of text
//!   token token token …                                                         bytes
//!
//!   token   7 6 5   3 2   0
//!          │0 0│ end │ n−1 │          write n blocks behind one of the 8 last writes; n−1 = 7: 8 blocks and so many more as a number says
//!          │0 1│ address  │ a a       write one block at this address of 22 bits
//!          │1 0│ address  │ a a n     write as many as a number says
//!          │1 1│ 0        │ a n       trim n blocks from a on, both numbers
//!          │1 1│ 1        │           flush: what follows was written when all before it was durable
//!          │1 1│ 2        │ n         a phase ends, in which programs wrote n bytes
//! ```
//!
//! Numbers have seven bits a byte, the lowest first. Three phases follow each other: files are made, they age, and all is measured.
//! `dm-log-writes` knows of no reads, so there are none. A zone that is reset is trimmed.

use openftl_core::BLOCK_BYTES;
use openftl_lab::load::{Access, Load, Operation};
use openftl_lab::trace::{Trace, TraceConfig, TraceFormat};
use std::io::BufRead;

/// The most blocks of one write; longer ones are cut into several.
pub const ACCESS_BLOCKS_MAX: u32 = 64;

/// Places behind which writes go on.
const ENDS: usize = 8;

/// Bits of an address.
const ADDRESS_BITS: u32 = 22;

const TRIM: u8 = 0b1100_0000;
const FLUSH: u8 = 0b1100_0001;
const PHASE: u8 = 0b1100_0010;

const SECTOR_BYTES: u64 = 512;
const SECTORS_PER_BLOCK: u64 = BLOCK_BYTES as u64 / SECTOR_BYTES;

/// Why there is no recording.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadRecording {
    /// Its first line says something else.
    #[error("the first line of a recording is `{}`, and not {line:?}", Head::SHOWN)]
    Head {
        /// The line.
        line: String,
    },
    /// A token is none.
    #[error("byte {at} of the recording: there is no such token, or it ends too early")]
    Token {
        /// Counted from its beginning.
        at: usize,
    },
    /// The log is not one of `dm-log-writes`.
    #[error("the log of writes: {0}")]
    Log(&'static str),
    /// What a server wrote down is not of this load.
    #[error("what the server wrote down: {0}")]
    Served(String),
}

/// What a recording is of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Head {
    /// The file system.
    pub file_system: String,
    /// What ran on it.
    pub load: String,
    /// Bytes that files had, at most.
    pub data_bytes: u64,
    /// Bytes of the disk.
    pub disk_bytes: u64,
    /// The seed of the load.
    pub seed: u64,
}

impl Head {
    const SHOWN: &'static str = "OpenFTL file trace 1: FILE SYSTEM LOAD, BYTES bytes on BYTES, seed SEED";

    fn line(&self) -> String {
        let Head { file_system, load, data_bytes, disk_bytes, seed } = self;
        format!("OpenFTL file trace 1: {file_system} {load}, {data_bytes} bytes on {disk_bytes}, seed {seed}\n")
    }

    fn parse(line: &str) -> Option<Head> {
        let words: Vec<&str> = line.strip_prefix("OpenFTL file trace 1: ")?.split([' ', ',']).collect();
        let [file_system, load, "", data_bytes, "bytes", "on", disk_bytes, "", "seed", seed] = words[..] else {
            return None;
        };
        Some(Head {
            file_system: file_system.to_owned(),
            load: load.to_owned(),
            data_bytes: data_bytes.parse().ok()?,
            disk_bytes: disk_bytes.parse().ok()?,
            seed: seed.parse().ok()?,
        })
    }
}

/// What was recorded next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Recorded {
    /// A write or a trim.
    Access(Access),
    /// What follows was written when all before it was durable.
    Flush,
    /// A phase ends, in which programs wrote so many bytes to files.
    Phase {
        /// So many.
        bytes: u64,
    },
}

/// Where writes have ended, the last one first.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Ends([u64; ENDS]);

impl Ends {
    /// A write that begins at end `index`, or behind none, ends here.
    fn move_to(&mut self, index: Option<usize>, end: u64) {
        let index = index.unwrap_or(ENDS - 1);
        self.0.copy_within(..index, 1);
        self.0[0] = end;
    }
}

/// A recording that is played.
#[derive(Clone, Debug)]
pub struct Recording<'a> {
    head: Head,
    bytes: &'a [u8],
    at: usize,
    ends: Ends,
}

impl<'a> Recording<'a> {
    /// A recording, from its beginning.
    ///
    /// # Errors
    /// If it is none.
    pub fn new(bytes: &'a [u8]) -> Result<Recording<'a>, BadRecording> {
        let length = bytes.iter().take(256).position(|byte| *byte == b'\n').unwrap_or(bytes.len().min(80));
        let line = String::from_utf8_lossy(&bytes[..length]).into_owned();
        let head = Head::parse(&line).ok_or(BadRecording::Head { line })?;
        Ok(Recording { head, bytes, at: length + 1, ends: Ends::default() })
    }

    /// What it is of.
    #[must_use]
    pub fn head(&self) -> &Head {
        &self.head
    }

    fn byte(&mut self) -> Option<u8> {
        let byte = self.bytes.get(self.at)?;
        self.at += 1;
        Some(*byte)
    }

    fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..63).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7F) << shift;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    fn count(&mut self) -> Option<u32> {
        self.number()?.try_into().ok()
    }

    /// What comes next; `None`: it is over.
    ///
    /// # Errors
    /// If it is not as the module says.
    pub fn read_next(&mut self) -> Result<Option<Recorded>, BadRecording> {
        let at = self.at;
        let Some(token) = self.byte() else { return Ok(None) };
        self.token(token).map(Some).ok_or(BadRecording::Token { at })
    }

    fn token(&mut self, token: u8) -> Option<Recorded> {
        let (end, first, blocks) = match token >> 6 {
            0 => {
                let (end, less) = (usize::from(token >> 3 & 7), u32::from(token & 7));
                let blocks = if less < 7 { less + 1 } else { 8 + self.count()? };
                (Some(end), self.ends.0[end], blocks)
            }
            3 => {
                return match token {
                    TRIM => {
                        let (first, blocks) = (self.number()?, self.count()?);
                        Some(Recorded::Access(Access::plain(Operation::Trim, first, blocks)))
                    }
                    FLUSH => Some(Recorded::Flush),
                    PHASE => Some(Recorded::Phase { bytes: self.number()? }),
                    _ => None,
                };
            }
            kind => {
                let first = u64::from(token & 0x3F) << 16 | u64::from(self.byte()?) << 8 | u64::from(self.byte()?);
                (None, first, if kind == 1 { 1 } else { self.count()? })
            }
        };
        if blocks == 0 || blocks > ACCESS_BLOCKS_MAX {
            return None;
        }
        self.ends.move_to(end, first + u64::from(blocks));
        Some(Recorded::Access(Access::plain(Operation::Write, first, blocks)))
    }
}

/// A recording that is made.
#[derive(Debug)]
pub struct Recorder {
    bytes: Vec<u8>,
    ends: Ends,
    /// The last write, which the next one may lengthen.
    write: Option<(u64, u32)>,
    is_flushed: bool,
}

impl Recorder {
    /// A recording of nothing so far.
    #[must_use]
    pub fn new(head: &Head) -> Recorder {
        Recorder { bytes: head.line().into_bytes(), ends: Ends::default(), write: None, is_flushed: true }
    }

    fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.bytes.push(number as u8 & 0x7F | 0x80);
            number >>= 7;
        }
        self.bytes.push(number as u8);
    }

    fn end_write(&mut self) {
        let Some((first, blocks)) = self.write.take() else { return };
        let end = self.ends.0.iter().position(|end| *end == first);
        match end {
            Some(end) => {
                self.bytes.push((end as u8) << 3 | (blocks.min(8) - 1) as u8);
                if blocks >= 8 {
                    self.number(u64::from(blocks) - 8);
                }
            }
            None => {
                assert!(first < 1 << ADDRESS_BITS, "a disk has fewer blocks than addresses: {first}");
                let kind = if blocks == 1 { 0x40 } else { 0x80 };
                self.bytes.extend([kind | (first >> 16) as u8, (first >> 8) as u8, first as u8]);
                if blocks > 1 {
                    self.number(blocks.into());
                }
            }
        }
        self.ends.move_to(end, first + u64::from(blocks));
    }

    /// Adds a write of blocks, however many.
    pub fn write(&mut self, mut first: u64, mut blocks: u32) {
        self.is_flushed = false;
        if let Some((begun, so_far)) = self.write.filter(|(begun, so_far)| begun + u64::from(*so_far) == first) {
            self.write = None;
            (first, blocks) = (begun, so_far + blocks);
        }
        self.end_write();
        while blocks > 0 {
            let now = blocks.min(ACCESS_BLOCKS_MAX);
            self.write = Some((first, now));
            (first, blocks) = (first + u64::from(now), blocks - now);
            if blocks > 0 || now == ACCESS_BLOCKS_MAX {
                self.end_write();
            }
        }
    }

    /// Adds a trim.
    pub fn trim(&mut self, first: u64, blocks: u32) {
        self.is_flushed = false;
        self.end_write();
        self.bytes.push(TRIM);
        self.number(first);
        self.number(blocks.into());
    }

    /// Adds a flush, unless nothing was written since the last one.
    pub fn flush(&mut self) {
        self.end_write();
        if !std::mem::replace(&mut self.is_flushed, true) {
            self.bytes.push(FLUSH);
        }
    }

    /// Ends a phase in which programs wrote so many bytes.
    pub fn phase(&mut self, bytes: u64) {
        self.end_write();
        self.bytes.push(PHASE);
        self.number(bytes);
    }

    /// The recording.
    #[must_use]
    pub fn finish(mut self) -> Vec<u8> {
        self.end_write();
        self.bytes
    }
}

/// Of an entry of `dm-log-writes`, and of its first block.
const LOG_MAGIC: u64 = 0x006A_7366_7773_6872;
const LOG_FLUSH: u64 = 1;
const LOG_FUA: u64 = 2;
const LOG_DISCARD: u64 = 4;
const LOG_MARK: u64 = 8;

/// The mark that `dm-log-writes` sets by itself.
const LOG_END: &str = "dm-log-writes-end";

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Makes a recording from the log that `dm-log-writes` has written. Its marks are the ends of phases: the bytes that programs wrote, in digits.
///
/// # Errors
/// If it is no such log, or cannot be read.
pub fn of_log_writes(head: &Head, log: &mut (impl std::io::Read + std::io::Seek)) -> Result<Vec<u8>, BadRecording> {
    let mut recorder = Recorder::new(head);
    let mut sector = [0; SECTOR_BYTES as usize];
    let mut place = 0;
    let mut read_at = |sector_index: u64, sector: &mut [u8]| {
        let at = std::io::SeekFrom::Start(sector_index * SECTOR_BYTES);
        log.seek(at).and_then(|_| log.read_exact(sector)).map_err(|_| BadRecording::Log("it ends too early"))
    };
    read_at(place, &mut sector)?;
    let of_head = |at, bytes: &[u8]| word(bytes, at).ok_or(BadRecording::Log("it ends too early"));
    // Magic number, version and entries, and a word with the bytes of a sector in 32 bits.
    if of_head(0, &sector)? != LOG_MAGIC || of_head(24, &sector)? & 0xFFFF_FFFF != SECTOR_BYTES {
        return Err(BadRecording::Log("it is not one of dm-log-writes with sectors of 512 bytes"));
    }
    let entries = of_head(16, &sector)?;
    for _ in 0..entries {
        place += 1;
        read_at(place, &mut sector)?;
        let [first, sectors, flags, length] = [0, 8, 16, 24].map(|at| word(&sector, at).expect("it is in a sector"));
        if flags & LOG_MARK != 0 {
            let text = sector.get(32..32 + length as usize).ok_or(BadRecording::Log("a mark is too long"))?;
            let text = std::str::from_utf8(text).ok().map(|text| text.trim_matches(['\0', ' ']));
            if text == Some(LOG_END) {
                break;
            }
            let bytes = text.and_then(|text| text.parse().ok());
            recorder.phase(bytes.ok_or(BadRecording::Log("a mark is no number"))?);
            continue;
        }
        if flags & LOG_FLUSH != 0 {
            recorder.flush();
        }
        let end = first + sectors;
        if flags & LOG_DISCARD != 0 {
            let (first, end) = (first.div_ceil(SECTORS_PER_BLOCK), end / SECTORS_PER_BLOCK);
            if first < end {
                recorder.trim(first, (end - first) as u32);
            }
            continue;
        }
        if sectors > 0 {
            let first = first / SECTORS_PER_BLOCK;
            recorder.write(first, (end.div_ceil(SECTORS_PER_BLOCK) - first) as u32);
            if flags & LOG_FUA != 0 {
                recorder.flush();
            }
        }
        place += sectors;
    }
    Ok(recorder.finish())
}

/// As many reads of a disk's last block, one after the other, mark the end of a phase in what a server wrote down.
pub const MARK_READS: u32 = 3;

/// Makes a recording from what `openftl serve --record` wrote down of a namespace. `phases` are the bytes that programs wrote in each
/// phase, whose ends are marked: see [`MARK_READS`].
///
/// # Errors
/// If it is no such log, or has fewer marks.
pub fn of_served(head: &Head, namespace: &str, phases: &[u64], log: impl BufRead) -> Result<Vec<u8>, BadRecording> {
    let drive_blocks = head.disk_bytes / BLOCK_BYTES as u64;
    let config = TraceConfig {
        file: namespace.to_owned(),
        format: Some(TraceFormat::Fio),
        device: Some(namespace.to_owned()),
        drive_blocks,
        ..TraceConfig::default()
    };
    let mut trace = Trace::new(config, log);
    let mut recorder = Recorder::new(head);
    let (mut reads, mut ended) = (0, 0);
    while ended < phases.len() {
        let Some(access) = trace.step() else {
            let why =
                trace.failure().map_or(format!("it has {ended} phases, not {}", phases.len()), ToString::to_string);
            return Err(BadRecording::Served(why));
        };
        let Access { operation, first, blocks, .. } = access;
        let is_last = access == Access::plain(Operation::Read, drive_blocks - 1, 1);
        reads = if is_last { reads + 1 } else { 0 };
        match operation {
            Operation::Read if reads == MARK_READS => {
                recorder.phase(phases[ended]);
                (reads, ended) = (0, ended + 1);
            }
            Operation::Write => recorder.write(first, blocks),
            Operation::Trim => recorder.trim(first, blocks),
            Operation::Flush => recorder.flush(),
            Operation::Read | Operation::Allocate => {}
        }
    }
    Ok(recorder.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head() -> Head {
        Head { file_system: "ext4".into(), load: "oltp".into(), data_bytes: 1 << 28, disk_bytes: 1 << 29, seed: 3 }
    }

    fn all(bytes: &[u8]) -> Vec<Recorded> {
        let mut recording = Recording::new(bytes).unwrap();
        std::iter::from_fn(|| recording.read_next().unwrap()).collect()
    }

    fn write(first: u64, blocks: u32) -> Recorded {
        Recorded::Access(Access::plain(Operation::Write, first, blocks))
    }

    #[test]
    fn a_recording_is_played_as_it_was_made() {
        let mut recorder = Recorder::new(&head());
        recorder.write(70_000, 1);
        recorder.write(3, 200);
        recorder.write(70_001, 7);
        recorder.flush();
        recorder.flush();
        recorder.write(203, 9);
        recorder.trim(1 << 20, 1 << 16);
        recorder.write(5, 2);
        recorder.phase(77_777_777);
        let bytes = recorder.finish();
        assert_eq!(Recording::new(&bytes).unwrap().head(), &head());
        let trim = Recorded::Access(Access::plain(Operation::Trim, 1 << 20, 1 << 16));
        assert_eq!(
            all(&bytes),
            [
                write(70_000, 1),
                write(3, 64),
                write(67, 64),
                write(131, 64),
                write(195, 8),
                write(70_001, 7),
                Recorded::Flush,
                write(203, 9),
                trim,
                write(5, 2),
                Recorded::Phase { bytes: 77_777_777 }
            ]
        );
    }

    #[test]
    fn writes_behind_one_another_are_one_write() {
        let mut recorder = Recorder::new(&head());
        (0..100).for_each(|at| recorder.write(1_000 + at, 1));
        let bytes = recorder.finish();
        assert_eq!(all(&bytes), [write(1_000, 64), write(1_064, 36)]);
    }

    #[test]
    fn what_is_no_recording_is_refused() {
        assert!(matches!(Recording::new(b"something else\n"), Err(BadRecording::Head { .. })));
        let mut bytes = Recorder::new(&head()).finish();
        let at = bytes.len();
        bytes.push(0b1100_0011);
        assert_eq!(Recording::new(&bytes).unwrap().read_next(), Err(BadRecording::Token { at }));
        bytes[at] = TRIM;
        assert_eq!(Recording::new(&bytes).unwrap().read_next(), Err(BadRecording::Token { at }));
    }

    #[test]
    fn what_a_server_wrote_down_becomes_a_recording() {
        let last = (1 << 29) - 4096;
        let read = format!("9 zones read {last} 4096\n");
        let log = format!(
            "fio version 3 iolog\n1 zones add\n1 zones open\n2 zones write 0 8192\n2 zones write 8192 4096\n3 other write 0 4096\n\
             4 zones datasync 0 0\n{read}5 zones trim 0 4194304\n{read}{read}{read}6 zones write 0 4096\n"
        );
        let recorded = of_served(&head(), "zones", &[77], log.as_bytes()).unwrap();
        let trim = Recorded::Access(Access::plain(Operation::Trim, 0, 1024));
        assert_eq!(all(&recorded), [write(0, 3), Recorded::Flush, trim, Recorded::Phase { bytes: 77 }]);
        let error = of_served(&head(), "zones", &[77, 78], log.as_bytes()).unwrap_err().to_string();
        assert_eq!(error, "what the server wrote down: it has 1 phases, not 2");
        let error = of_served(&head(), "zones", &[77], &b"fio version 9 iolog\n"[..]).unwrap_err().to_string();
        assert!(error.contains("version"), "{error}");
    }

    #[test]
    fn the_log_of_dm_log_writes_becomes_a_recording() {
        let mut log = vec![0; 512];
        log[..8].copy_from_slice(&LOG_MAGIC.to_le_bytes());
        log[8] = 1;
        log[16] = 6;
        log[24..28].copy_from_slice(&512_u32.to_le_bytes());
        let mut entry = |words: [u64; 4], text: &[u8], data: u64| {
            let mut sector = vec![0; 512];
            for (at, word) in words.into_iter().enumerate() {
                sector[at * 8..at * 8 + 8].copy_from_slice(&word.to_le_bytes());
            }
            sector[32..32 + text.len()].copy_from_slice(text);
            log.extend(sector);
            log.resize(log.len() + data as usize * 512, 0xEE);
        };
        entry([16, 8, 0, 0], b"", 8);
        // Half a block is a block; of what is discarded only whole ones are.
        entry([28, 2, LOG_FUA, 0], b"", 2);
        entry([4, 24, LOG_DISCARD, 0], b"", 0);
        entry([0, 0, LOG_FLUSH, 0], b"", 0);
        entry([0, 0, LOG_MARK, 6], b"123456", 0);
        entry([0, 0, LOG_MARK, 17], LOG_END.as_bytes(), 0);
        let bytes = of_log_writes(&head(), &mut std::io::Cursor::new(log)).unwrap();
        let trim = Recorded::Access(Access::plain(Operation::Trim, 1, 2));
        let expected = [write(2, 2), Recorded::Flush, trim, Recorded::Flush, Recorded::Phase { bytes: 123_456 }];
        assert_eq!(all(&bytes), expected);
        assert!(of_log_writes(&head(), &mut std::io::Cursor::new(vec![0; 512])).is_err());
    }
}
