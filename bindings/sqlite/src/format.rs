//! What a store of pages holds of databases and of their write-ahead logs.
//!
//! Page `n` of file `f` is LPID `f << 32 | n`. File 0 is the directory. Page 0 of a file is its head; page 1 has the first bytes of the file.
//! Page 1 of a log has the 32 bytes that a log begins with, and each page behind it has a frame of the log: a page of the database, and 24 bytes.
//!
//! | directory page, bytes | field |
//! |---|---|
//! | 0-7 | `OXSQLDIR` |
//! | 8-9 | version 2 |
//! | 12-15 | pages of the directory |
//! | 16-19 | names in this page |
//! | 20-23 | number of the next file, in page 0: a number is used once. Version 1 has no such field |
//! | then for each: 4 | number of the file |
//! | 2 | bytes of the name |
//! | so many | the name, UTF-8 |
//!
//! | head of a file, bytes | field |
//! |---|---|
//! | 0-7 | `OXSQLFIL` |
//! | 8-9 | version 1 |
//! | 10 | what it is: 0 a database, 1 a log |
//! | 12-15 | bytes of a page |
//! | 16-23 | bytes of the file |
//!
//! | page of a file, bytes | field |
//! |---|---|
//! | 0 | how it is stored: 0 as it is, 1 in an LZ4 block, 2 in a Zstandard frame |
//! | 1- | its bytes |
//!
//! A page below the length of its file that the store does not have is all zeroes.

use crate::trouble::Trouble;
use std::cell::RefCell;
use std::collections::BTreeMap;

const DIRECTORY: [u8; 8] = *b"OXSQLDIR";
const FILE: [u8; 8] = *b"OXSQLFIL";
const VERSION: u16 = 1;
const DIRECTORY_VERSION: u16 = 2;
const DIRECTORY_HEAD_BYTES: usize = 24;
/// The same of version 1.
const OLD_DIRECTORY_HEAD_BYTES: usize = 20;
/// Bytes of a directory page, at most.
const DIRECTORY_PAGE_BYTES: usize = 16 << 10;
/// Bytes of a head.
const HEAD_BYTES: usize = 24;
const AS_IT_IS: u8 = 0;
const LZ4: u8 = 1;
const ZSTD: u8 = 2;
/// What compression has to save: a grain of the store.
const GRAIN_BYTES: usize = 64;
/// The longest page.
pub const PAGE_BYTES_MAX: u32 = 65536;

/// How the pages of a database are stored.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Compression {
    /// As they are.
    #[default]
    None,
    /// LZ4, if that saves a grain.
    Lz4,
    /// Zstandard, if that saves a grain.
    Zstd,
}

/// Bytes that a log begins with.
const LOG_HEAD_BYTES: u32 = 32;
/// Bytes of a frame of a log before its page.
const FRAME_HEAD_BYTES: u32 = 24;

/// What a file is.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum FileKind {
    /// A database.
    #[default]
    Database = 0,
    /// A write-ahead log.
    Log = 1,
}

/// A place in a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Spot {
    /// The page.
    pub page: u32,
    /// The byte in it.
    pub within: usize,
    /// Bytes of that page.
    pub bytes: usize,
}

/// Bytes and page size of a file.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Extent {
    /// What it is.
    pub kind: FileKind,
    /// Bytes of a page; 0: it is not known yet.
    pub page_bytes: u32,
    /// Bytes.
    pub length: u64,
}

impl Extent {
    /// A file without bytes.
    pub fn empty(kind: FileKind) -> Extent {
        Extent { kind, ..Extent::default() }
    }

    /// Bytes of the first page, if it is shorter than others.
    fn first_bytes(self) -> u32 {
        match self.kind {
            FileKind::Database => 0,
            FileKind::Log => LOG_HEAD_BYTES,
        }
    }

    /// The page with the last byte.
    pub fn pages(self) -> u32 {
        let first = u64::from(self.first_bytes());
        match self.page_bytes {
            0 => 0,
            _ if self.length == 0 => 0,
            bytes => self.length.saturating_sub(first).div_ceil(u64::from(bytes)) as u32 + u32::from(first > 0),
        }
    }

    /// Bytes of a page.
    pub fn bytes_of(self, page: u32) -> usize {
        let first = self.first_bytes();
        if first > 0 && page == 1 { first as usize } else { self.page_bytes as usize }
    }

    /// Where a byte is; `None`: there are no such files.
    pub fn locate(self, offset: u64) -> Option<Spot> {
        let (first, bytes) = (u64::from(self.first_bytes()), u64::from(self.page_bytes));
        if offset < first {
            return Some(Spot { page: 1, within: offset as usize, bytes: first as usize });
        }
        let page = (offset - first) / bytes + 1 + u64::from(first > 0);
        let page = u32::try_from(page).ok().filter(|page| *page < u32::MAX)?;
        Some(Spot { page, within: ((offset - first) % bytes) as usize, bytes: bytes as usize })
    }

    /// Bytes of a page in a file whose first bytes, at `offset`, are these.
    pub fn page_bytes_for(self, first: &[u8], offset: u64) -> u32 {
        let length = first.len() as u64;
        match self.kind {
            FileKind::Database if is_page_size(length) && offset.is_multiple_of(length) => length as u32,
            FileKind::Database => PAGE_BYTES_DEFAULT,
            FileKind::Log => FRAME_HEAD_BYTES + log_page_bytes(first).unwrap_or(PAGE_BYTES_DEFAULT),
        }
    }
}

/// Bytes of a page of a database where nothing says how many.
const PAGE_BYTES_DEFAULT: u32 = 4096;

/// Bytes of a page of the database in what a log begins with.
fn log_page_bytes(first: &[u8]) -> Option<u32> {
    let bytes = u32::from_be_bytes(*first.get(8..)?.first_chunk()?);
    is_page_size(u64::from(bytes)).then_some(bytes)
}

/// The LPID of a page of a file.
pub fn lpid(file: u32, page: u32) -> u64 {
    u64::from(file) << 32 | u64::from(page)
}

/// Four bytes of a page as a number.
fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// The head of a file.
pub fn write_head(extent: Extent) -> Vec<u8> {
    let mut bytes = vec![0; HEAD_BYTES];
    bytes[..8].copy_from_slice(&FILE);
    bytes[8..10].copy_from_slice(&VERSION.to_le_bytes());
    bytes[10] = extent.kind as u8;
    bytes[12..16].copy_from_slice(&extent.page_bytes.to_le_bytes());
    bytes[16..24].copy_from_slice(&extent.length.to_le_bytes());
    bytes
}

/// What a head says.
pub fn read_head(bytes: &[u8]) -> Result<Extent, Trouble> {
    let fault = |what: &str| Trouble::damaged(format!("the head of a file in the store {what}"));
    if bytes.len() < HEAD_BYTES || bytes[..8] != FILE {
        return Err(fault("is none: another program has written there"));
    }
    if bytes[8..10] != VERSION.to_le_bytes() {
        return Err(fault("is of a newer version; use a newer libopenftl_sqlite"));
    }
    let kind = match bytes[10] {
        0 => FileKind::Database,
        1 => FileKind::Log,
        _ => return Err(fault("is of a newer version; use a newer libopenftl_sqlite")),
    };
    let page_bytes = word(bytes, 12).expect("it is longer");
    let length = u64::from_le_bytes(*bytes[16..].first_chunk().expect("it is longer"));
    let of_database = match kind {
        FileKind::Database => page_bytes,
        FileKind::Log => page_bytes.saturating_sub(FRAME_HEAD_BYTES),
    };
    let is_possible = page_bytes == 0 && length == 0
        || is_page_size(u64::from(of_database)) && length.div_ceil(u64::from(page_bytes)) < u64::from(u32::MAX) - 1;
    if is_possible { Ok(Extent { kind, page_bytes, length }) } else { Err(fault("says what cannot be")) }
}

/// Whether pages can have so many bytes.
pub fn is_page_size(bytes: u64) -> bool {
    bytes.is_power_of_two() && (512..=u64::from(PAGE_BYTES_MAX)).contains(&bytes)
}

/// The files of a store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Directory {
    /// Their numbers, by name.
    pub names: BTreeMap<String, u32>,
    /// The number of the next one.
    pub next: u32,
}

impl Default for Directory {
    fn default() -> Directory {
        Directory { names: BTreeMap::new(), next: 1 }
    }
}

impl Directory {
    /// Its pages.
    pub fn write(&self) -> Vec<Vec<u8>> {
        let mut pages: Vec<(Vec<u8>, u32)> = vec![(vec![0; DIRECTORY_HEAD_BYTES], 0)];
        for (name, file) in &self.names {
            if pages.last().is_some_and(|(page, _)| page.len() + 6 + name.len() > DIRECTORY_PAGE_BYTES) {
                pages.push((vec![0; DIRECTORY_HEAD_BYTES], 0));
            }
            let (page, count) = pages.last_mut().expect("there is one");
            page.extend_from_slice(&file.to_le_bytes());
            page.extend_from_slice(&u16::try_from(name.len()).expect("names are short").to_le_bytes());
            page.extend_from_slice(name.as_bytes());
            *count += 1;
        }
        let all = pages.len() as u32;
        let sealed = pages.into_iter().map(|(mut page, count)| {
            page[..8].copy_from_slice(&DIRECTORY);
            page[8..10].copy_from_slice(&DIRECTORY_VERSION.to_le_bytes());
            page[12..16].copy_from_slice(&all.to_le_bytes());
            page[16..20].copy_from_slice(&count.to_le_bytes());
            page[20..24].copy_from_slice(&self.next.to_le_bytes());
            page
        });
        sealed.collect()
    }

    /// Adds the names in a page. Returns how many pages there are.
    pub fn read(&mut self, bytes: &[u8]) -> Result<u32, Trouble> {
        let fault = |what: &str| Trouble::damaged(format!("the directory of the store {what}"));
        if bytes.len() < OLD_DIRECTORY_HEAD_BYTES || bytes[..8] != DIRECTORY {
            return Err(fault("is none: the store has pages of another program; make a store for databases"));
        }
        let head_bytes = match u16::from(bytes[8]) | u16::from(bytes[9]) << 8 {
            1 => OLD_DIRECTORY_HEAD_BYTES,
            DIRECTORY_VERSION if bytes.len() >= DIRECTORY_HEAD_BYTES => DIRECTORY_HEAD_BYTES,
            _ => return Err(fault("is of a newer version; use a newer libopenftl_sqlite")),
        };
        let (all, count) = (word(bytes, 12).expect("it is longer"), word(bytes, 16).expect("it is longer"));
        if head_bytes == DIRECTORY_HEAD_BYTES {
            self.next = self.next.max(word(bytes, 20).expect("it is longer"));
        }
        let mut rest = &bytes[head_bytes..];
        for _ in 0..count {
            let (file, length) = match (word(rest, 0), rest.get(4..6)) {
                (Some(file @ 1..), Some(length)) => (file, usize::from(length[0]) | usize::from(length[1]) << 8),
                _ => return Err(fault("ends early")),
            };
            let name = rest.get(6..6 + length).ok_or_else(|| fault("ends early"))?;
            let name = std::str::from_utf8(name).map_err(|_| fault("has a name that is no UTF-8"))?;
            if self.names.values().any(|other| *other == file) || self.names.insert(name.to_owned(), file).is_some() {
                return Err(fault("has a file twice"));
            }
            self.next = self.next.max(file.saturating_add(1));
            rest = &rest[6 + length..];
        }
        Ok(all)
    }
}

thread_local! {
    /// It keeps its tables from page to page.
    static DECODER: RefCell<structured_zstd::decoding::FrameDecoder> = RefCell::new(structured_zstd::decoding::FrameDecoder::new());
}

/// Writes a page as it is stored to `stored`.
pub fn encode(page: &[u8], compression: Compression, stored: &mut Vec<u8>) {
    stored.clear();
    match compression {
        Compression::None => {}
        Compression::Lz4 => {
            stored.resize(1 + lz4_flex::block::get_maximum_output_size(page.len()), LZ4);
            if let Ok(bytes) = lz4_flex::block::compress_into(page, &mut stored[1..]) {
                stored.truncate(1 + bytes);
            }
        }
        Compression::Zstd => {
            stored.push(ZSTD);
            structured_zstd::encoding::compress(
                page,
                &mut *stored,
                structured_zstd::encoding::CompressionLevel::Default,
            );
        }
    }
    if stored.is_empty() || stored.len() - 1 + GRAIN_BYTES > page.len() {
        stored.clear();
        stored.push(AS_IT_IS);
        stored.extend_from_slice(page);
    }
}

/// Writes the page that is stored so to `page`. Returns whether it has as many bytes.
pub fn decode(stored: &[u8], page: &mut [u8]) -> bool {
    let Some((form, bytes)) = stored.split_first() else { return false };
    let length = match *form {
        AS_IT_IS if bytes.len() == page.len() => {
            page.copy_from_slice(bytes);
            Some(bytes.len())
        }
        LZ4 => lz4_flex::block::decompress_into(bytes, page).ok(),
        ZSTD => DECODER.with_borrow_mut(|decoder| decoder.decode_all(bytes, page).ok()),
        _ => None,
    };
    length == Some(page.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(stored: &[u8], bytes: usize) -> Option<Vec<u8>> {
        let mut page = vec![0; bytes];
        decode(stored, &mut page).then_some(page)
    }

    #[test]
    fn pages_come_back_and_what_does_not_compress_is_stored_as_it_is() {
        let page: Vec<u8> = (0..4096_u32).map(|byte| (byte / 9) as u8).collect();
        let noise: Vec<u8> = (0..4096_u32).map(|byte| (byte.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        let mut stored = Vec::new();
        for page in [page, noise] {
            for compression in [Compression::None, Compression::Lz4, Compression::Zstd] {
                encode(&page, compression, &mut stored);
                assert!(stored.len() <= 4097);
                assert_eq!(decoded(&stored, 4096).as_deref(), Some(&page[..]), "{compression:?}");
                assert_eq!((decoded(&stored, 8192), decoded(&stored, 4095)), (None, None), "{compression:?}");
            }
        }
        for (compression, form) in [(Compression::Lz4, LZ4), (Compression::Zstd, ZSTD)] {
            encode(&[7; 4096], compression, &mut stored);
            assert!(stored.len() < 64 && stored[0] == form, "{compression:?}: {} bytes", stored.len());
        }
        for broken in [&[][..], &[9, 9], &[1, 255, 255], &[2, 255, 255], &[2]] {
            assert_eq!(decoded(broken, 512), None);
        }
    }

    #[test]
    fn pages_of_any_kind_come_back() {
        let mut chance = 0x9e37_79b9_7f4a_7c15_u64;
        let mut next = move || {
            chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (chance >> 33) as usize
        };
        let mut stored = Vec::new();
        for round in 0..400 {
            let bytes = if round % 9 == 0 { 24 + 65536 } else { 32 << (next() % 10) };
            let (letters, copied) = (1 + next() % 255, next() % 4);
            let mut page: Vec<u8> = Vec::with_capacity(bytes);
            while page.len() < bytes {
                let part = (1 + next() % 60).min(bytes - page.len());
                match page.len().checked_sub(part) {
                    // Something again that was there before.
                    Some(room) if next() % 4 < copied => {
                        let from = next() % (room + 1);
                        page.extend_from_within(from..from + part);
                    }
                    _ => page.extend((0..part).map(|_| (next() % letters) as u8)),
                }
            }
            for compression in [Compression::None, Compression::Lz4, Compression::Zstd] {
                encode(&page, compression, &mut stored);
                assert!(stored.len() <= 1 + page.len());
                assert_eq!(decoded(&stored, bytes).as_ref(), Some(&page), "{compression:?}, round {round}");
            }
        }
    }

    #[test]
    fn a_directory_of_many_names_comes_back() {
        let names: BTreeMap<String, u32> =
            (1..2000).map(|file| (format!("{file}-{}", "n".repeat(file as usize % 90)), file)).collect();
        let directory = Directory { names, next: 2345 };
        let pages = directory.write();
        assert!(pages.len() > 1 && pages.iter().all(|page| page.len() <= DIRECTORY_PAGE_BYTES));
        let mut again = Directory::default();
        pages.iter().for_each(|page| assert_eq!(again.read(page).unwrap(), pages.len() as u32));
        assert_eq!(again, directory);
        for end in 0..pages[0].len().min(200) {
            assert!(Directory::default().read(&pages[0][..end]).is_err());
        }
        assert!(again.read(&pages[0]).is_err(), "names that come twice");
    }

    #[test]
    fn a_directory_of_version_1_is_read() {
        let mut page = [&DIRECTORY[..], &[1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0], &[7, 0, 0, 0, 2, 0], b"ab"].concat();
        let mut directory = Directory::default();
        assert_eq!(directory.read(&page).unwrap(), 1);
        assert_eq!((directory.names.get("ab"), directory.next), (Some(&7), 8));
        page[8] = 3;
        assert!(Directory::default().read(&page).is_err());
    }

    #[test]
    fn a_head_says_only_what_can_be() {
        let kind = FileKind::Database;
        let extent = Extent { kind, page_bytes: 512, length: 1536 };
        assert_eq!((read_head(&write_head(extent)).unwrap(), extent.pages()), (extent, 3));
        for (page_bytes, length) in [(0, 1), (1000, 1000), (131_072, 0), (512, u64::MAX)] {
            assert!(read_head(&write_head(Extent { kind, page_bytes, length })).is_err());
        }
        assert!(read_head(&write_head(extent)[..23]).is_err());
        let log = Extent { kind: FileKind::Log, page_bytes: 24 + 4096, length: 32 + 4120 };
        assert_eq!(read_head(&write_head(log)).unwrap(), log);
        assert!(read_head(&write_head(Extent { page_bytes: 4096, ..log })).is_err());
    }

    #[test]
    fn a_log_has_a_short_first_page_and_a_frame_in_each_other() {
        let log = Extent { kind: FileKind::Log, page_bytes: 24 + 512, length: 32 + 2 * 536 };
        assert_eq!((log.pages(), log.bytes_of(1), log.bytes_of(2)), (3, 32, 536));
        assert_eq!(log.locate(31), Some(Spot { page: 1, within: 31, bytes: 32 }));
        assert_eq!(log.locate(32 + 536 + 24), Some(Spot { page: 3, within: 24, bytes: 536 }));
        assert_eq!((Extent { length: 32, ..log }.pages(), Extent { length: 33, ..log }.pages()), (1, 2));
        let mut first = [0; 32];
        first[8..12].copy_from_slice(&512_u32.to_be_bytes());
        assert_eq!(Extent::empty(FileKind::Log).page_bytes_for(&first, 0), 536);
        assert_eq!(Extent::empty(FileKind::Log).page_bytes_for(&[], 0), 24 + 4096);
        assert_eq!(Extent::empty(FileKind::Database).page_bytes_for(&[0; 1024], 2048), 1024);
    }
}
