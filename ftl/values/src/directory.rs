//! The directory: all keys, in their order.
//!
//! ```text
//!   changes        ▒▒▒▒▒▒▒   in memory, sorted; on media a page each, written with the value
//!   ── merged in the background, one batch ──
//!   runs           ▓▓▓▓      the newest       a page has some thousand keys; its first key is in memory
//!                  ▓▓▓▓▓▓▓▓▓
//!                  ▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓   the oldest
//! ```
//!
//! What is newer says whether there is a key. A merge takes the changes, and of the runs those that are not much larger than what goes into them:
//! so a key is written again as often as the drive has doubled, and there are few runs.

use crate::key::Key;
use crate::run::{Entry, Run};
use std::collections::BTreeMap;
use std::ops::Bound;

/// A change that no run has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Pending {
    pub is_removed: bool,
    /// What its page is counted as.
    pub counted: u64,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Directory {
    /// Changes, and older ones that a merge is taking.
    pub changes: BTreeMap<Key, Pending>,
    pub merging: BTreeMap<Key, Pending>,
    /// Pages of changes that newer ones of their keys have taken the place of, which go with the next merge.
    pub outdated: Vec<u64>,
    /// The oldest one first.
    pub runs: Vec<Run>,
    /// What the next change, and the next page of a run, is counted as.
    pub next_change: u64,
    pub next_page: u64,
    /// Changes with each merge: who remembers runs looks again.
    pub generation: u64,
}

/// Keys of a run that are gone through.
#[derive(Debug)]
pub(crate) struct Cursor {
    /// Its place among the runs.
    pub run: usize,
    /// The next page that is read.
    pub page: usize,
    /// Keys of the page before it, and those that were gone through.
    pub entries: Vec<Entry>,
    pub at: usize,
}

impl Cursor {
    /// The next key, if it has been read.
    pub fn head(&self) -> Option<Entry> {
        self.entries.get(self.at).copied()
    }

    /// Whether a page has to be read to know the next key.
    pub fn lacks_page(&self, runs: &[Run]) -> bool {
        self.head().is_none() && self.page < runs[self.run].fences.len()
    }

    /// Goes on behind a key.
    pub fn pass(&mut self, key: &Key) {
        if self.head().is_some_and(|head| head.key <= *key) {
            self.at += 1;
        }
    }
}

impl Directory {
    /// Changes that no run has.
    pub fn pending(&self) -> usize {
        self.changes.len() + self.merging.len()
    }

    /// Keys of all runs, removed ones and those of several runs included.
    pub fn run_keys(&self) -> u64 {
        self.runs.iter().map(|run| run.keys).sum()
    }

    /// Bytes of memory that it takes.
    pub fn bytes(&self) -> u64 {
        let fences: usize = self.runs.iter().map(|run| run.fences.capacity()).sum();
        (fences * size_of::<Key>() + self.pending() * size_of::<(Key, Pending)>()) as u64
    }

    /// The first run that a merge of the changes takes, with those behind it.
    pub fn first_to_merge(&self, live_keys: u64, changes_max: u64) -> usize {
        // Keys that were removed, and those that several runs have, are not to pile up.
        if self.run_keys() > live_keys + live_keys / 2 + 2 * changes_max {
            return 0;
        }
        let (mut first, mut keys) = (self.runs.len(), self.changes.len() as u64);
        while first > 0 && self.runs[first - 1].keys <= 2 * keys {
            first -= 1;
            keys += self.runs[first].keys;
        }
        first
    }

    /// The next key in memory at `from`, or behind it.
    pub fn next_change_from(&self, from: Bound<&Key>) -> Option<Entry> {
        let range = (from, Bound::Unbounded);
        let newer = self.changes.range::<Key, _>(range).next();
        let older = self.merging.range::<Key, _>(range).next();
        // Of two changes of a key the newer one counts.
        let first = match (newer, older) {
            (Some(newer), Some(older)) if older.0 < newer.0 => Some(older),
            (Some(newer), _) => Some(newer),
            (None, older) => older,
        };
        first.map(|(key, pending)| Entry { key: *key, is_removed: pending.is_removed })
    }

    /// Cursors of runs from `first` on, the newest one first, before the first key that is not before `from`.
    pub fn cursors(&self, first: usize, from: Option<&Key>) -> Vec<Cursor> {
        let cursor = |run: usize| {
            let page = from.map_or(0, |key| self.runs[run].page_of(key));
            Cursor { run, page, entries: Vec::new(), at: 0 }
        };
        (first..self.runs.len()).rev().map(cursor).collect()
    }
}

/// The smallest of the next keys, as the first that has it says: the newest come first.
pub(crate) fn smallest(heads: impl Iterator<Item = Entry>) -> Option<Entry> {
    heads.reduce(|first, other| if other.key < first.key { other } else { first })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> Key {
        Key::new(text.as_bytes()).unwrap()
    }

    fn run(keys: u64) -> Run {
        Run { first_page: 0, fences: vec![key("a")], fence_pages: 1, keys }
    }

    #[test]
    fn a_merge_takes_runs_that_are_not_much_larger_and_all_when_most_of_them_says_nothing() {
        let mut directory = Directory { runs: vec![run(1000), run(90), run(20), run(10)], ..Directory::default() };
        (0..10).for_each(|number| {
            directory.changes.insert(key(&number.to_string()), Pending { is_removed: false, counted: number });
        });
        assert_eq!(directory.first_to_merge(1100, 10), 2, "10 and 10, 20 and 20, but not 90");
        directory.runs[1].keys = 80;
        assert_eq!(directory.first_to_merge(1100, 10), 1);
        assert_eq!(directory.first_to_merge(100, 10), 0);
    }

    #[test]
    fn of_two_changes_of_a_key_the_newer_one_counts() {
        let mut directory = Directory::default();
        let pending = |is_removed| Pending { is_removed, counted: 0 };
        directory.merging.insert(key("a"), pending(false));
        directory.merging.insert(key("b"), pending(false));
        directory.changes.insert(key("b"), pending(true));
        directory.changes.insert(key("c"), pending(false));
        let next = |from| directory.next_change_from(from).map(|entry| (entry.key, entry.is_removed));
        let (a, b, c) = (key("a"), key("b"), key("c"));
        assert_eq!(next(Bound::Unbounded), Some((a, false)));
        assert_eq!(next(Bound::Excluded(&a)), Some((b, true)));
        assert_eq!(next(Bound::Excluded(&b)), Some((c, false)));
        assert_eq!(next(Bound::Excluded(&c)), None);
    }
}
