//! What a store of pages holds of databases.
//!
//! Page `n` of file `f` is LPID `f << 32 | n`. File 0 is the directory. Page 0 of a file is its head; page 1 has the first bytes of the database.
//!
//! | directory page, bytes | field |
//! |---|---|
//! | 0-7 | `OXSQLDIR` |
//! | 8-9 | version 1 |
//! | 12-15 | pages of the directory |
//! | 16-19 | names in this page |
//! | then for each: 4 | number of the file |
//! | 2 | bytes of the name |
//! | so many | the name, UTF-8 |
//!
//! | head of a file, bytes | field |
//! |---|---|
//! | 0-7 | `OXSQLFIL` |
//! | 8-9 | version 1 |
//! | 12-15 | bytes of a page |
//! | 16-23 | bytes of the file |
//!
//! | page of a file, bytes | field |
//! |---|---|
//! | 0 | how it is stored: 0 as it is, 1 in an LZ4 block |
//! | 1- | its bytes |
//!
//! A page below the length of its file that the store does not have is all zeroes.

use crate::trouble::Trouble;
use std::collections::BTreeMap;

const DIRECTORY: [u8; 8] = *b"OXSQLDIR";
const FILE: [u8; 8] = *b"OXSQLFIL";
const VERSION: u16 = 1;
const DIRECTORY_HEAD_BYTES: usize = 20;
/// Bytes of a directory page, at most.
const DIRECTORY_PAGE_BYTES: usize = 16 << 10;
/// Bytes of a head.
const HEAD_BYTES: usize = 24;
const AS_IT_IS: u8 = 0;
const LZ4: u8 = 1;
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
}

/// Bytes and page size of a file.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Extent {
    /// Bytes of a page; 0: it is not known yet.
    pub page_bytes: u32,
    /// Bytes.
    pub length: u64,
}

impl Extent {
    /// How many pages there are.
    pub fn pages(self) -> u32 {
        if self.page_bytes == 0 { 0 } else { self.length.div_ceil(u64::from(self.page_bytes)) as u32 }
    }
}

/// The LPID of a page of a file.
pub fn lpid(file: u32, page: u32) -> u64 {
    u64::from(file) << 32 | u64::from(page)
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// The head of a file.
pub fn write_head(extent: Extent) -> Vec<u8> {
    let mut bytes = vec![0; HEAD_BYTES];
    bytes[..8].copy_from_slice(&FILE);
    bytes[8..10].copy_from_slice(&VERSION.to_le_bytes());
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
    let page_bytes = word(bytes, 12).expect("it is longer");
    let length = u64::from_le_bytes(*bytes[16..].first_chunk().expect("it is longer"));
    let is_possible = page_bytes == 0 && length == 0
        || is_page_size(u64::from(page_bytes)) && length.div_ceil(u64::from(page_bytes)) < u64::from(u32::MAX);
    if is_possible { Ok(Extent { page_bytes, length }) } else { Err(fault("says what cannot be")) }
}

/// Whether pages can have so many bytes.
pub fn is_page_size(bytes: u64) -> bool {
    bytes.is_power_of_two() && (512..=u64::from(PAGE_BYTES_MAX)).contains(&bytes)
}

/// The pages of the directory.
pub fn write_directory(names: &BTreeMap<String, u32>) -> Vec<Vec<u8>> {
    let mut pages: Vec<(Vec<u8>, u32)> = vec![(vec![0; DIRECTORY_HEAD_BYTES], 0)];
    for (name, file) in names {
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
        page[8..10].copy_from_slice(&VERSION.to_le_bytes());
        page[12..16].copy_from_slice(&all.to_le_bytes());
        page[16..20].copy_from_slice(&count.to_le_bytes());
        page
    });
    sealed.collect()
}

/// Adds the names in a page of the directory to `names`. Returns how many pages the directory has.
pub fn read_directory(bytes: &[u8], names: &mut BTreeMap<String, u32>) -> Result<u32, Trouble> {
    let fault = |what: &str| Trouble::damaged(format!("the directory of the store {what}"));
    if bytes.len() < DIRECTORY_HEAD_BYTES || bytes[..8] != DIRECTORY {
        return Err(fault("is none: the store has pages of another program; make a store for databases"));
    }
    if bytes[8..10] != VERSION.to_le_bytes() {
        return Err(fault("is of a newer version; use a newer libopenftl_sqlite"));
    }
    let (all, count) = (word(bytes, 12).expect("it is longer"), word(bytes, 16).expect("it is longer"));
    let mut rest = &bytes[DIRECTORY_HEAD_BYTES..];
    for _ in 0..count {
        let (file, length) = match (word(rest, 0), rest.get(4..6)) {
            (Some(file), Some(length)) if file > 0 => (file, usize::from(length[0]) | usize::from(length[1]) << 8),
            _ => return Err(fault("ends early")),
        };
        let name = rest.get(6..6 + length).ok_or_else(|| fault("ends early"))?;
        let name = std::str::from_utf8(name).map_err(|_| fault("has a name that is no UTF-8"))?;
        if names.values().any(|other| *other == file) || names.insert(name.to_owned(), file).is_some() {
            return Err(fault("has a file twice"));
        }
        rest = &rest[6 + length..];
    }
    Ok(all)
}

/// A page as it is stored.
pub fn encode(page: &[u8], compression: Compression) -> Vec<u8> {
    if compression == Compression::Lz4 {
        let mut stored = vec![LZ4];
        let most = lz4_flex::block::get_maximum_output_size(page.len());
        stored.resize(1 + most, 0);
        if let Ok(bytes) = lz4_flex::block::compress_into(page, &mut stored[1..])
            && bytes + GRAIN_BYTES <= page.len()
        {
            stored.truncate(1 + bytes);
            return stored;
        }
    }
    let mut stored = Vec::with_capacity(1 + page.len());
    stored.push(AS_IT_IS);
    stored.extend_from_slice(page);
    stored
}

/// The page that is stored so; `None`: it is none of `page_bytes`.
pub fn decode(stored: &[u8], page_bytes: u32) -> Option<Vec<u8>> {
    let (form, bytes) = stored.split_first()?;
    let page = match *form {
        AS_IT_IS => bytes.to_vec(),
        LZ4 => lz4_flex::block::decompress(bytes, page_bytes as usize).ok()?,
        _ => return None,
    };
    (page.len() == page_bytes as usize).then_some(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_come_back_and_what_does_not_compress_is_stored_as_it_is() {
        let page: Vec<u8> = (0..4096_u32).map(|byte| (byte / 9) as u8).collect();
        let noise: Vec<u8> = (0..4096_u32).map(|byte| (byte.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        for page in [page, noise] {
            for compression in [Compression::None, Compression::Lz4] {
                let stored = encode(&page, compression);
                assert!(stored.len() <= 4097);
                assert_eq!(decode(&stored, 4096).as_deref(), Some(&page[..]));
                assert_eq!(decode(&stored, 8192), None);
            }
        }
        assert!(encode(&[7; 4096], Compression::Lz4).len() < 64);
        assert_eq!((decode(&[], 512), decode(&[9, 9], 512), decode(&[1, 255, 255], 512)), (None, None, None));
    }

    #[test]
    fn a_directory_of_many_names_comes_back() {
        let names: BTreeMap<String, u32> =
            (1..2000).map(|file| (format!("{file}-{}", "n".repeat(file as usize % 90)), file)).collect();
        let pages = write_directory(&names);
        assert!(pages.len() > 1 && pages.iter().all(|page| page.len() <= DIRECTORY_PAGE_BYTES));
        let mut again = BTreeMap::new();
        pages.iter().for_each(|page| assert_eq!(read_directory(page, &mut again).unwrap(), pages.len() as u32));
        assert_eq!(again, names);
        for end in 0..pages[0].len().min(200) {
            assert!(read_directory(&pages[0][..end], &mut BTreeMap::new()).is_err());
        }
        assert!(read_directory(&pages[0], &mut again).is_err(), "names that come twice");
    }

    #[test]
    fn a_head_says_only_what_can_be() {
        let extent = Extent { page_bytes: 512, length: 1536 };
        assert_eq!((read_head(&write_head(extent)).unwrap(), extent.pages()), (extent, 3));
        for (page_bytes, length) in [(0, 1), (1000, 1000), (131_072, 0), (512, u64::MAX)] {
            assert!(read_head(&write_head(Extent { page_bytes, length })).is_err());
        }
        assert!(read_head(&write_head(extent)[..23]).is_err());
    }
}
