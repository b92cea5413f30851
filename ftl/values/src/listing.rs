//! Lists of keys in their order: changes and runs are gone through together, and what is newer says whether there is a key. A list remembers
//! nothing of the one before: it begins with the key that it is given.

use crate::asked::{Deed, Listing, Phase};
use crate::directory::smallest;
use crate::drive::ValueFtl;
use crate::error::ValueError;
use crate::key::Key;
use crate::payload::gathered;
use crate::request::Facts;
use crate::run::read_entries;
use openftl_core::{BLOCK_BYTES, Frame, Frames};
use openftl_pages::StoreError;
use openftl_parts::target::Target;
use std::ops::Bound;

/// Bytes of a key in a list, with its length before it and zeroes behind it.
fn listed_bytes(key: &Key) -> usize {
    (2 + usize::from(key.length())).next_multiple_of(4)
}

/// Writes bytes to frames from byte `at` on.
fn write(pool: &mut Frames, frames: &[Frame], at: usize, bytes: &[u8]) {
    let (mut at, mut rest) = (at, bytes);
    while !rest.is_empty() {
        let count = (BLOCK_BYTES - at % BLOCK_BYTES).min(rest.len());
        let frame = pool.bytes_mut(frames[at / BLOCK_BYTES]);
        frame[at % BLOCK_BYTES..][..count].copy_from_slice(&rest[..count]);
        (at, rest) = (at + count, &rest[count..]);
    }
}

/// The keys of a list as [`ValueRequest::List`](crate::ValueRequest::List) writes it. `None`: it is none.
#[must_use]
pub fn keys_of_list(list: &[u8]) -> Option<Vec<Key>> {
    let (count, mut rest) = list.split_first_chunk::<4>()?;
    let count = usize::try_from(u32::from_le_bytes(*count)).ok()?;
    // Each takes four bytes at least: what is claimed makes no room for more.
    let mut keys = Vec::with_capacity(count.min(rest.len() / 4));
    for _ in 0..count {
        let (length, behind) = rest.split_first_chunk::<2>()?;
        let length = usize::from(u16::from_le_bytes(*length));
        let key = Key::new(behind.get(..length)?).ok()?;
        rest = rest.get(listed_bytes(&key)..)?;
        keys.push(key);
    }
    rest.is_empty().then_some(keys)
}

impl Listing {
    fn bound(&self) -> Bound<&Key> {
        match &self.position {
            None => Bound::Unbounded,
            Some(key) if self.is_behind => Bound::Excluded(key),
            Some(key) => Bound::Included(key),
        }
    }

    /// Whether a key was gone through, or is before the first one.
    fn has_passed(&self, key: &Key) -> bool {
        self.position.as_ref().is_some_and(|position| if self.is_behind { key <= position } else { key < position })
    }
}

impl ValueFtl {
    /// Writes keys until a page has to be read, there is no room, or there are no more.
    pub(crate) fn go_on_listing(&mut self, at: usize) {
        let asked = self.asked[at].as_mut().expect("a request under way");
        let Deed::List(listing) = &mut asked.deed else { unreachable!("it is a list") };
        let generation = self.directory.generation;
        if listing.generation != Some(generation) {
            listing.cursors = self.directory.cursors(0, listing.position.as_ref());
            listing.generation = Some(generation);
        }
        loop {
            let lacking = listing.cursors.iter().position(|cursor| cursor.lacks_page(&self.directory.runs));
            if let Some(cursor) = lacking {
                asked.phase = Phase::Run { cursor, generation };
                return self.read(at);
            }
            let change = self.directory.next_change_from(listing.bound());
            let heads = listing.cursors.iter().filter_map(|cursor| cursor.head());
            let Some(next) = smallest(change.into_iter().chain(heads)) else { break };
            let bytes = listed_bytes(&next.key);
            if !next.is_removed {
                if listing.written + bytes > listing.bytes_max {
                    break;
                }
                let mut listed = [0; 20];
                listed[..2].copy_from_slice(&u16::from(next.key.length()).to_le_bytes());
                listed[2..][..next.key.bytes().len()].copy_from_slice(next.key.bytes());
                write(self.store.frames_mut(), &listing.frames, listing.written, &listed[..bytes]);
                listing.written += bytes;
                listing.keys += 1;
            }
            listing.cursors.iter_mut().for_each(|cursor| cursor.pass(&next.key));
            (listing.position, listing.is_behind) = (Some(next.key), true);
        }
        write(self.store.frames_mut(), &listing.frames, 0, &listing.keys.to_le_bytes());
        let facts = Facts { bytes: listing.written as u32, keys: listing.keys };
        self.end(at, Ok(facts));
    }

    /// A page of a run was read for a list.
    pub(crate) fn run_was_read(&mut self, at: usize, cursor: usize, generation: u64, bytes: Result<u32, StoreError>) {
        let asked = self.asked[at].as_ref().expect("a request under way");
        let Deed::List(listing) = &asked.deed else { unreachable!("it is a list") };
        // After a merge the page may be another one, or none: it is read again, as one of the run that has its keys now.
        if generation == self.directory.generation {
            let page = listing.cursors[cursor].page;
            let read = bytes.map(|bytes| gathered(self.store.frames(), &asked.own, bytes as usize));
            let entries = read.ok().and_then(|read| read_entries(&read));
            self.release_own(at);
            let Some(entries) = entries else { return self.end(at, Err(ValueError::Unrecovered)) };
            let Deed::List(listing) = &mut self.asked(at).deed else { unreachable!("it is a list") };
            let first = entries.partition_point(|entry| listing.has_passed(&entry.key));
            let cursor = &mut listing.cursors[cursor];
            (cursor.entries, cursor.at, cursor.page) = (entries, first, page + 1);
        } else {
            self.release_own(at);
        }
        self.go_on_listing(at);
    }
}
