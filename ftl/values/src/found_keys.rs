//! What the pages of values say of keys, when nothing else says it any more.
//!
//! A key that shares its number is in the list of that number, and its value in a page of its own. After the index of pages was rebuilt, each page has
//! the newest version that is left of it: pages that were deleted may be back, a batch may be there in part, and a list may be an old one, if the
//! newer one cannot be read. Versions grow from page to page, and each batch puts values before their list:
//!
//! | a value that the list of its number does not name | then |
//! |---|---|
//! | it is older than the list | it was deleted: its page goes |
//! | it is newer | the list is an old one: it takes the key in |
//! | there is no list, but a value of one key in its place, and that is newer | it was deleted |
//! | the same, and that is older | the list is lost: a new one takes the keys of both in |
//! | there is nothing in its place | the list is lost: a new one takes the key in |
//!
//! Of two values of one key the newer one counts.

use crate::checking::Found;
use crate::ids::{extent, number_of_extent, slot_of_extent};
use crate::key::Key;
use crate::record::{list_bytes, read_list};
use openftl_parts::open_error::OpenError;
use std::collections::{BTreeMap, BTreeSet};

/// A value whose key shares its number, with its version.
#[derive(Clone, Copy)]
struct Sharing {
    key: Key,
    slot: u16,
    version: u64,
}

/// The page of a number that becomes one of the values that share it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Copied {
    pub number: u64,
    pub key: Key,
    pub slot: u16,
}

/// See the module.
#[derive(Default)]
pub(crate) struct FoundKeys {
    /// Pages that are the value of one key.
    single: BTreeMap<u64, Key>,
    /// Lists: keys and their places.
    lists: BTreeMap<u64, Vec<(Key, u16)>>,
    extents: BTreeMap<u64, Key>,
    /// All keys that have a value.
    pub keys: BTreeSet<Key>,
    /// Pages whose bytes are to be in another one.
    pub copies: Vec<Copied>,
    /// What is to be written; `None`: deleted.
    pub changes: Vec<(u64, Option<Vec<u8>>)>,
}

impl FoundKeys {
    pub(crate) fn take(&mut self, found: Found) {
        match found {
            Found::Value(lpid, key, number) if number == lpid => {
                self.single.insert(lpid, key);
                self.keys.insert(key);
            }
            // An entry that cannot be is left out, so the list is written anew.
            Found::Listed(lpid, key, _, slot) => self.lists.entry(lpid).or_default().push((key, slot)),
            Found::Extent(lpid, key, number) if number == number_of_extent(lpid) => {
                self.extents.insert(lpid, key);
            }
            Found::Value(lpid, ..) | Found::Extent(lpid, ..) | Found::Nothing(lpid) => self.changes.push((lpid, None)),
        }
    }

    /// Brings lists and the values that they name together. `lost` are pages of such values that the medium has lost: whose they are only a list says.
    ///
    /// # Errors
    /// Those of `version_of`, which says in which version a page is there.
    pub(crate) fn join(
        &mut self,
        lost: &BTreeSet<u64>,
        number_of: impl Fn(&Key) -> u64,
        version_of: &mut dyn FnMut(u64) -> Result<u64, OpenError>,
    ) -> Result<(), OpenError> {
        let mut named = BTreeSet::new();
        let mut kept: BTreeMap<u64, Vec<(Key, u16)>> = BTreeMap::new();
        for (lpid, list) in &self.lists {
            let is_there = |(key, slot): &&(Key, u16)| {
                let page = extent(*lpid, *slot);
                number_of(key) == *lpid && (lost.contains(&page) || self.extents.get(&page) == Some(key))
            };
            let list: Vec<(Key, u16)> = list.iter().filter(is_there).copied().collect();
            named.extend(list.iter().map(|(_, slot)| extent(*lpid, *slot)));
            kept.insert(*lpid, list);
        }
        let mut unnamed: BTreeMap<u64, Vec<Sharing>> = BTreeMap::new();
        for (lpid, key) in self.extents.iter().filter(|(lpid, _)| !named.contains(lpid)) {
            let sharing = Sharing { key: *key, slot: slot_of_extent(*lpid), version: version_of(*lpid)? };
            unnamed.entry(number_of_extent(*lpid)).or_default().push(sharing);
        }
        for (number, sharing) in unnamed {
            let single = self.single.get(&number).copied();
            let has_page = single.is_some() || self.lists.contains_key(&number);
            let than = if has_page { version_of(number)? } else { 0 };
            let list = kept.remove(&number).unwrap_or_default();
            let list = self.take_in(number, list, sharing, than, version_of)?;
            kept.insert(number, list);
            self.keep_single(number, single, kept.get_mut(&number).expect("it was just put there"));
        }
        for (number, list) in kept {
            self.keys.extend(list.iter().map(|(key, _)| *key));
            let is_as_found = match self.lists.get(&number) {
                Some(found) => *found == list,
                None => list.is_empty(),
            };
            if !is_as_found {
                self.changes.push((number, (!list.is_empty()).then(|| list_bytes(&list))));
            }
        }
        let without_list = lost.iter().filter(|lpid| !named.contains(lpid));
        self.changes.extend(without_list.map(|lpid| (*lpid, None)));
        Ok(())
    }

    /// The list takes values in that are newer than the page of their number. Others go.
    fn take_in(
        &mut self,
        number: u64,
        mut list: Vec<(Key, u16)>,
        mut sharing: Vec<Sharing>,
        than: u64,
        version_of: &mut dyn FnMut(u64) -> Result<u64, OpenError>,
    ) -> Result<Vec<(Key, u16)>, OpenError> {
        // The newest of each key comes first.
        sharing.sort_by_key(|sharing| std::cmp::Reverse(sharing.version));
        for Sharing { key, slot, version } in sharing {
            let other = list.iter().position(|(other, _)| *other == key);
            let is_newer = match other {
                Some(at) => version_of(extent(number, list[at].1))? < version,
                None => true,
            };
            if version < than || !is_newer {
                self.changes.push((extent(number, slot), None));
                continue;
            }
            if let Some(at) = other {
                self.changes.push((extent(number, list[at].1), None));
                list.remove(at);
            }
            list.push((key, slot));
        }
        Ok(list)
    }

    /// What was the value of one key, and is to be a list, is a value among others.
    fn keep_single(&mut self, number: u64, single: Option<Key>, list: &mut Vec<(Key, u16)>) {
        let Some(key) = single.filter(|_| !list.is_empty()) else { return };
        let is_free = |slot: &u16| {
            list.iter().all(|(_, other)| other != slot) && !self.extents.contains_key(&extent(number, *slot))
        };
        if list.iter().all(|(other, _)| *other != key) {
            let slot = (0..).find(is_free).expect("there are more places than keys");
            self.copies.push(Copied { number, key, slot });
            list.push((key, slot));
        }
    }

    /// A page cannot be copied, for it cannot be read: its key has no value.
    pub(crate) fn leave_out(&mut self, Copied { number, key, slot }: Copied) {
        self.keys.remove(&key);
        for (_, bytes) in self.changes.iter_mut().filter(|(lpid, _)| *lpid == number) {
            let mut list = bytes.as_deref().and_then(read_list).unwrap_or_default();
            list.retain(|(_, other)| *other != slot);
            *bytes = (!list.is_empty()).then(|| list_bytes(&list));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> Key {
        Key::new(text.as_bytes()).expect("a short key")
    }

    fn number_of(key: &Key) -> u64 {
        u64::from(key.bytes()[0])
    }

    /// Of these records, with the versions of pages; all others have 1.
    fn joined(found: Vec<Found>, lost: &[u64], versions: &[(u64, u64)]) -> FoundKeys {
        let mut keys = FoundKeys::default();
        found.into_iter().for_each(|found| keys.take(found));
        let versions: BTreeMap<u64, u64> = versions.iter().copied().collect();
        let lost = lost.iter().copied().collect();
        keys.join(&lost, number_of, &mut |lpid| Ok(versions.get(&lpid).copied().unwrap_or(1))).unwrap();
        keys
    }

    fn list(entries: &[(&str, u16)]) -> Option<Vec<u8>> {
        Some(list_bytes(&entries.iter().map(|(text, slot)| (key(text), *slot)).collect::<Vec<_>>()))
    }

    fn expect(found: &FoundKeys, keys: &[&str], changes: &[(u64, Option<Vec<u8>>)]) {
        assert_eq!(found.keys, keys.iter().map(|text| key(text)).collect());
        let found: BTreeMap<u64, Option<Vec<u8>>> = found.changes.iter().cloned().collect();
        assert_eq!(found, changes.iter().cloned().collect());
    }

    const A: u64 = b'a' as u64;

    fn listed(entries: &[(&str, u16)]) -> Vec<Found> {
        entries.iter().map(|(text, slot)| Found::Listed(A, key(text), A, *slot)).collect()
    }

    fn value(text: &str, slot: u16) -> Found {
        Found::Extent(extent(A, slot), key(text), A)
    }

    #[test]
    fn lists_and_the_values_that_they_name_are_brought_together() {
        let (b, c) = (u64::from(b'b'), u64::from(b'c'));
        // Of the list of a, place 1 has another key, place 2 has nothing, and place 3 is lost.
        let mut found = listed(&[("a0", 0), ("a1", 1), ("a2", 2), ("a3", 3)]);
        found.extend([Found::Value(c, key("c"), c), Found::Value(7, key("d"), u64::from(b'd'))]);
        found.extend([value("a0", 0), value("ax", 1)]);
        // Of b there is no list.
        found.extend([Found::Extent(extent(b, 4), key("b4"), b), Found::Nothing(9)]);
        let found = joined(found, &[extent(A, 3), extent(A, 9)], &[(A, 2)]);
        let changes = [
            (7, None),
            (9, None),
            (A, list(&[("a0", 0), ("a3", 3)])),
            (extent(A, 1), None),
            (extent(A, 9), None),
            (b, list(&[("b4", 4)])),
        ];
        expect(&found, &["a0", "a3", "b4", "c"], &changes);
        assert!(found.copies.is_empty());
    }

    #[test]
    fn a_list_that_is_older_than_a_value_takes_its_key_in() {
        let found = || listed(&[("a0", 0)]).into_iter().chain([value("a0", 0), value("a1", 1)]).collect::<Vec<_>>();
        let stale = joined(found(), &[], &[(A, 5), (extent(A, 1), 6)]);
        expect(&stale, &["a0", "a1"], &[(A, list(&[("a0", 0), ("a1", 1)]))]);
        // One that is newer has left it out.
        let current = joined(found(), &[], &[(A, 5), (extent(A, 1), 4)]);
        expect(&current, &["a0"], &[(extent(A, 1), None)]);
    }

    #[test]
    fn of_two_values_of_a_key_the_newer_one_counts() {
        let found = || listed(&[("a0", 0)]).into_iter().chain([value("a0", 0), value("a0", 1)]).collect::<Vec<_>>();
        let newer = joined(found(), &[], &[(A, 3), (extent(A, 0), 2), (extent(A, 1), 6)]);
        expect(&newer, &["a0"], &[(extent(A, 0), None), (A, list(&[("a0", 1)]))]);
        let older = joined(found(), &[], &[(A, 3), (extent(A, 0), 7), (extent(A, 1), 6)]);
        expect(&older, &["a0"], &[(extent(A, 1), None)]);
        // Of values that no list names, too.
        let none = joined(vec![value("a0", 0), value("a0", 1)], &[], &[(extent(A, 1), 6)]);
        expect(&none, &["a0"], &[(extent(A, 0), None), (A, list(&[("a0", 1)]))]);
    }

    #[test]
    fn a_value_in_the_place_of_a_list_that_is_lost_becomes_one_of_several() {
        let found = |texts: [&str; 2]| vec![Found::Value(A, key("a"), A), value(texts[0], 0), value(texts[1], 1)];
        let versions = [(A, 3), (extent(A, 0), 5), (extent(A, 1), 6)];
        let shared = joined(found(["a", "a1"]), &[], &versions);
        expect(&shared, &["a", "a1"], &[(A, list(&[("a1", 1), ("a", 0)]))]);
        assert!(shared.copies.is_empty());
        let lost = joined(found(["a0", "a1"]), &[], &versions);
        expect(&lost, &["a", "a0", "a1"], &[(A, list(&[("a1", 1), ("a0", 0), ("a", 2)]))]);
        let copied = Copied { number: A, key: key("a"), slot: 2 };
        assert_eq!(lost.copies, [copied]);
        // If that cannot be read to its end, the others are there without it.
        let mut without = lost;
        without.leave_out(copied);
        expect(&without, &["a0", "a1"], &[(A, list(&[("a1", 1), ("a0", 0)]))]);
        // One that was put when the others had been deleted stays as it is.
        let alone = joined(found(["a0", "a1"]), &[], &[(A, 9)]);
        expect(&alone, &["a"], &[(extent(A, 0), None), (extent(A, 1), None)]);
    }
}
