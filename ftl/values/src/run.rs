//! Keys of the directory in their order, in pages that follow each other: a *run*. Behind them the first key of each page, in pages of the same
//! form: these alone are in memory.
//!
//! | bytes | field |
//! |---|---|
//! | 0-1 | `VR` |
//! | 2-3 | how many keys |
//! | 4 | keys: each its length (1 byte; with 128 the key was removed) and its bytes |

use crate::ids;
use crate::key::Key;

/// Bytes of a page of keys, at most.
pub(crate) const RUN_PAGE_BYTES: usize = 16 << 10;

/// Bytes of a key in it, at most.
pub(crate) const ENTRY_BYTES: u64 = 17;

const HEAD: [u8; 4] = *b"VR\0\0";
const REMOVED: u8 = 1 << 7;

/// A key of the directory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Entry {
    pub key: Key,
    /// It says that there is no such key, whatever older runs say.
    pub is_removed: bool,
}

/// A page that is being gathered.
#[derive(Clone, Debug)]
pub(crate) struct PageOfKeys {
    pub bytes: Vec<u8>,
    pub first: Option<Key>,
}

impl PageOfKeys {
    pub fn new() -> PageOfKeys {
        PageOfKeys { bytes: HEAD.to_vec(), first: None }
    }

    /// Whether there is room for another key.
    pub fn has_room(&self, key: &Key, most: usize) -> bool {
        self.bytes.len() + 1 + usize::from(key.length()) <= most
    }

    pub fn push(&mut self, Entry { key, is_removed }: Entry) {
        self.first.get_or_insert(key);
        self.bytes.push(key.length() | if is_removed { REMOVED } else { 0 });
        self.bytes.extend_from_slice(key.bytes());
        let count = u16::from_le_bytes([self.bytes[2], self.bytes[3]]) + 1;
        self.bytes[2..4].copy_from_slice(&count.to_le_bytes());
    }
}

/// The keys of a page. `None`: it is none of a run.
pub(crate) fn read_entries(bytes: &[u8]) -> Option<Vec<Entry>> {
    let (head, mut rest) = bytes.split_at_checked(HEAD.len())?;
    let count = u16::from_le_bytes([head[2], head[3]]);
    if head[..2] != HEAD[..2] {
        return None;
    }
    let mut entries: Vec<Entry> = Vec::with_capacity(count.into());
    for _ in 0..count {
        let (length, behind) = rest.split_first()?;
        let (key, behind) = behind.split_at_checked(usize::from(length & !REMOVED))?;
        let entry = Entry { key: Key::new(key).ok()?, is_removed: length & REMOVED != 0 };
        if entries.last().is_some_and(|last| last.key >= entry.key) {
            return None;
        }
        entries.push(entry);
        rest = behind;
    }
    rest.is_empty().then_some(entries)
}

/// A run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Run {
    /// What its first page is counted as.
    pub first_page: u64,
    /// The first key of each page.
    pub fences: Vec<Key>,
    /// Pages behind them that have the first keys.
    pub fence_pages: u32,
    /// How many keys it has, removed ones included.
    pub keys: u64,
}

impl Run {
    /// The page that a key is in, or would be.
    pub fn page_of(&self, key: &Key) -> usize {
        self.fences.partition_point(|fence| fence <= key).saturating_sub(1)
    }

    /// The number of a page.
    pub fn lpid(&self, page: usize) -> u64 {
        ids::run(self.first_page + page as u64)
    }

    /// The numbers of all pages, those of fences included.
    pub fn lpids(&self) -> impl Iterator<Item = u64> + '_ {
        (0..self.fences.len() + self.fence_pages as usize).map(|page| self.lpid(page))
    }
}

/// Pages of these keys, as first keys of pages are kept.
pub(crate) fn fence_pages(fences: &[Key], most: usize) -> Vec<Vec<u8>> {
    let (mut pages, mut page) = (Vec::new(), PageOfKeys::new());
    for key in fences {
        if !page.has_room(key, most) {
            pages.push(std::mem::replace(&mut page, PageOfKeys::new()).bytes);
        }
        page.push(Entry { key: *key, is_removed: false });
    }
    if page.first.is_some() {
        pages.push(page.bytes);
    }
    pages
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_as_they_were_written_and_no_part_of_them_is_some() {
        let entries: Vec<Entry> = (0..50_u32)
            .map(|number| Entry { key: Key::new(&number.to_be_bytes()).unwrap(), is_removed: number % 3 == 0 })
            .collect();
        let mut page = PageOfKeys::new();
        entries.iter().for_each(|entry| page.push(*entry));
        assert_eq!(page.first, Some(entries[0].key));
        assert!(
            page.has_room(&entries[0].key, page.bytes.len() + 5)
                && !page.has_room(&entries[0].key, page.bytes.len() + 4)
        );
        assert_eq!(read_entries(&page.bytes), Some(entries.clone()));
        assert!((0..page.bytes.len()).all(|end| read_entries(&page.bytes[..end]).is_none()));
        page.push(entries[7]);
        assert_eq!(read_entries(&page.bytes), None, "keys are in order");
        let keys: Vec<Key> = entries.iter().map(|entry| entry.key).collect();
        let pages = fence_pages(&keys, 30);
        let again: Vec<Key> =
            pages.iter().flat_map(|page| read_entries(page).unwrap()).map(|entry| entry.key).collect();
        assert_eq!((pages.len(), again), (10, keys));
    }

    #[test]
    fn a_key_is_in_the_page_that_begins_before_it() {
        let key = |text: &str| Key::new(text.as_bytes()).unwrap();
        let run = Run { first_page: 7, fences: vec![key("b"), key("d")], fence_pages: 1, keys: 9 };
        let pages = ["a", "b", "c", "d", "e"].map(|text| run.page_of(&key(text)));
        assert_eq!(pages, [0, 0, 0, 1, 1]);
        assert_eq!(run.lpids().collect::<Vec<_>>(), [ids::run(7), ids::run(8), ids::run(9)]);
    }
}
