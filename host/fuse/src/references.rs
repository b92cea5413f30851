//! References: how often the kernel knows each file, and how often it has each open.
//!
//! A file that the kernel knows keeps its number, and its bytes, when it has lost its last name; the file system is told by `hold` and `release`.
//! The counts are kept here, too: the kernel sends no `FORGET` at an unmount, and one that is too large must not take references of open files.
//! The root folder is always there, so it is not counted.

use openftl_alfs::{FileSystem, Inode};
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// References of one file.
#[derive(Clone, Copy, Default, Debug)]
struct Counts {
    /// Replies with the file, less those taken back.
    lookups: u64,
    /// Open files and folders.
    opens: u64,
}

/// References of all files that the kernel knows.
#[derive(Default, Debug)]
pub(crate) struct References(HashMap<Inode, Counts>);

impl References {
    /// The kernel knows `inode` once more.
    pub(crate) fn look_up<F: FileSystem + ?Sized>(&mut self, fs: &mut F, inode: Inode) {
        if inode != Inode::ROOT {
            self.0.entry(inode).or_default().lookups += 1;
            fs.hold(inode, 1);
        }
    }

    /// The kernel has `inode` open once more.
    pub(crate) fn open<F: FileSystem + ?Sized>(&mut self, fs: &mut F, inode: Inode) {
        if inode != Inode::ROOT {
            self.0.entry(inode).or_default().opens += 1;
            fs.hold(inode, 1);
        }
    }

    /// The kernel takes so many lookups back. Returns `false` if there were not so many; all of them are gone.
    pub(crate) fn forget<F: FileSystem + ?Sized>(&mut self, fs: &mut F, inode: Inode, lookups: u64) -> bool {
        self.take(fs, inode, Counts { lookups, opens: 0 })
    }

    /// The kernel closes `inode` once. Returns `false` if it was not open.
    pub(crate) fn close<F: FileSystem + ?Sized>(&mut self, fs: &mut F, inode: Inode) -> bool {
        self.take(fs, inode, Counts { lookups: 0, opens: 1 })
    }

    fn take<F: FileSystem + ?Sized>(&mut self, fs: &mut F, inode: Inode, wanted: Counts) -> bool {
        if inode == Inode::ROOT {
            return true;
        }
        let Entry::Occupied(mut entry) = self.0.entry(inode) else { return wanted.lookups + wanted.opens == 0 };
        let counts = entry.get_mut();
        let (lookups, opens) = (wanted.lookups.min(counts.lookups), wanted.opens.min(counts.opens));
        counts.lookups -= lookups;
        counts.opens -= opens;
        if counts.lookups + counts.opens == 0 {
            entry.remove();
        }
        if lookups + opens > 0 {
            let were_held = fs.release(inode, lookups + opens);
            assert!(were_held, "the file system holds inode {inode} as often as the kernel knows it");
        }
        (lookups, opens) == (wanted.lookups, wanted.opens)
    }

    /// The connection is over: the kernel knows nothing. In the order of inode numbers, so that each run does the same.
    pub(crate) fn end<F: FileSystem + ?Sized>(&mut self, fs: &mut F) {
        let mut files: Vec<_> = self.0.drain().collect();
        files.sort_unstable_by_key(|(inode, _)| *inode);
        for (inode, counts) in files {
            let were_held = fs.release(inode, counts.lookups + counts.opens);
            assert!(were_held, "the file system holds inode {inode} as often as the kernel knows it");
        }
    }

    /// Files that the kernel knows, without the root folder.
    pub(crate) fn files(&self) -> usize {
        self.0.len()
    }
}
