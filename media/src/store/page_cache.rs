//! A simulated page cache over a simulated disk: what a crash of the machine leaves of a drive file.
//!
//! Writes and holes reach the cache; only a sync takes them to the disk. A crash keeps, of each page that was not synced, any
//! of the versions that it had since the last sync, or of each of its sectors another: as if the system had written pages back
//! in any order, at any time, or not at all. All of it follows from a seed.
//!
//! A crash can be taken in the midst of an operation of the store: [`PageCache::crash_at`] notes the state before one
//! operation of the disk, whatever happens afterwards.

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::SplitMix64;
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

const PAGE_BYTES: usize = 4096;
/// What a disk writes whole or not at all.
const SECTOR_BYTES: usize = 512;
/// Versions of a page that are kept until the next sync: the oldest and the newest ones.
const VERSIONS_MAX: usize = 6;

type Page = Box<[u8; PAGE_BYTES]>;

/// A file behind a simulated page cache. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct PageCache(Arc<(Mutex<State>, Condvar)>);

#[derive(Debug, Default)]
struct State {
    bytes: u64,
    /// What processes read.
    cached: BTreeMap<u64, Page>,
    on_disk: BTreeMap<u64, Page>,
    /// The versions of pages since the last sync, oldest first.
    unsynced: BTreeMap<u64, Vec<Page>>,
    operations: u64,
    syncs: u64,
    crash_at: Option<u64>,
    crashed: Option<Remains>,
    next_sync_fails: bool,
    syncs_held: bool,
}

/// What a crash leaves to choose from.
#[derive(Clone, Debug)]
struct Remains {
    on_disk: BTreeMap<u64, Page>,
    unsynced: BTreeMap<u64, Vec<Page>>,
}

impl PageCache {
    /// An empty file.
    #[must_use]
    pub fn new() -> PageCache {
        PageCache::default()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.0.lock().expect("nobody panics with the lock held")
    }

    /// Operations of the disk so far: writes, holes and syncs.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.state().operations
    }

    /// Syncs so far.
    #[must_use]
    pub fn syncs(&self) -> u64 {
        self.state().syncs
    }

    /// The machine crashes before operation number `operation`. What happens afterwards leaves no trace.
    pub fn crash_at(&self, operation: u64) {
        self.state().crash_at = Some(operation);
    }

    /// Whether the machine has crashed.
    #[must_use]
    pub fn has_crashed(&self) -> bool {
        self.state().crashed.is_some()
    }

    /// The next sync fails, and as on a real system the pages that it did not write count as written.
    pub fn fail_next_sync(&self) {
        self.state().next_sync_fails = true;
    }

    /// Has syncs wait from now on, until [`PageCache::release_syncs`].
    pub fn hold_syncs(&self) {
        self.state().syncs_held = true;
    }

    /// Lets syncs go on.
    pub fn release_syncs(&self) {
        self.state().syncs_held = false;
        self.0.1.notify_all();
    }

    /// The file after a crash of the machine: at the moment of [`PageCache::crash_at`] if that has come, or now.
    #[must_use]
    pub fn crash(&self, seed: u64) -> PageCache {
        let state = self.state();
        let now = || Remains { on_disk: state.on_disk.clone(), unsynced: state.unsynced.clone() };
        let Remains { on_disk: mut left, unsynced } = state.crashed.clone().unwrap_or_else(now);
        let mut chance = SplitMix64::seed_from_u64(seed);
        // How many of the pages that were not synced are written back: none, few, half, most, all.
        let written_back = [0, 10, 50, 90, 100][(chance.next_u64() % 5) as usize];
        for (number, versions) in unsynced {
            if chance.next_u64() % 100 >= written_back {
                continue;
            }
            let old = left.remove(&number).unwrap_or_else(blank);
            let choice = |chance: &mut SplitMix64| match chance.next_u64() as usize % (versions.len() + 2) {
                0 => &old,
                number => &versions[(number - 1).min(versions.len() - 1)],
            };
            let mut page = choice(&mut chance).clone();
            if chance.next_u64().is_multiple_of(4) {
                for sector in (0..PAGE_BYTES).step_by(SECTOR_BYTES) {
                    let range = sector..sector + SECTOR_BYTES;
                    page[range.clone()].copy_from_slice(&choice(&mut chance)[range]);
                }
            }
            left.insert(number, page);
        }
        let after = State { bytes: state.bytes, cached: left.clone(), on_disk: left, ..State::default() };
        PageCache(Arc::new((Mutex::new(after), Condvar::new())))
    }

    /// The file as the next process finds it when this one has died: the page cache outlives it.
    #[must_use]
    pub fn of_next_process(&self) -> PageCache {
        let State { bytes, cached, on_disk, unsynced, .. } = &*self.state();
        let (cached, on_disk, unsynced) = (cached.clone(), on_disk.clone(), unsynced.clone());
        let next = State { bytes: *bytes, cached, on_disk, unsynced, ..State::default() };
        PageCache(Arc::new((Mutex::new(next), Condvar::new())))
    }

    pub(super) fn len(&self) -> u64 {
        self.state().bytes
    }

    /// The length of a file survives: a drive file gets its length once, and is synced then.
    pub(super) fn set_len(&self, bytes: u64) {
        self.state().bytes = bytes;
    }

    pub(super) fn read(&self, bytes: &mut [u8], at: u64) -> io::Result<()> {
        let state = self.state();
        if at + bytes.len() as u64 > state.bytes {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        for (number, start, range) in pages(at, bytes.len()) {
            let room = &mut bytes[range.clone()];
            match state.cached.get(&number) {
                Some(page) => room.copy_from_slice(&page[start..start + range.len()]),
                None => room.fill(0),
            }
        }
        Ok(())
    }

    pub(super) fn write(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        let mut state = self.state();
        state.begin();
        state.bytes = state.bytes.max(at + bytes.len() as u64);
        for (number, start, range) in pages(at, bytes.len()) {
            let len = range.len();
            state.change(number, |page| page[start..start + len].copy_from_slice(&bytes[range]));
        }
        Ok(())
    }

    pub(super) fn punch(&self, at: u64, bytes: u64) {
        let mut state = self.state();
        state.begin();
        for (number, start, range) in pages(at, bytes as usize) {
            if state.cached.contains_key(&number) {
                state.change(number, |page| page[start..start + range.len()].fill(0));
            }
        }
    }

    pub(super) fn sync(&self) -> io::Result<()> {
        let mut state = self.state();
        while state.syncs_held {
            state = self.0.1.wait(state).expect("nobody panics with the lock held");
        }
        state.begin();
        state.syncs += 1;
        let State { cached, on_disk, unsynced, next_sync_fails, .. } = &mut *state;
        if std::mem::take(next_sync_fails) {
            unsynced.clear();
            return Err(rustix::io::Errno::IO.into());
        }
        for number in std::mem::take(unsynced).into_keys() {
            on_disk.insert(number, cached[&number].clone());
        }
        Ok(())
    }
}

impl State {
    fn begin(&mut self) {
        if self.crash_at == Some(self.operations) {
            self.crashed = Some(Remains { on_disk: self.on_disk.clone(), unsynced: self.unsynced.clone() });
        }
        self.operations += 1;
    }

    fn change(&mut self, number: u64, change: impl FnOnce(&mut [u8; PAGE_BYTES])) {
        let page = self.cached.entry(number).or_insert_with(blank);
        change(page);
        let versions = self.unsynced.entry(number).or_default();
        if versions.len() == VERSIONS_MAX {
            versions.remove(VERSIONS_MAX / 2);
        }
        versions.push(page.clone());
    }
}

fn blank() -> Page {
    Box::new([0; PAGE_BYTES])
}

/// The pages of a range: number, first byte in the page, bytes in the range.
fn pages(at: u64, bytes: usize) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let here = at + done as u64;
        let start = (here % PAGE_BYTES as u64) as usize;
        let len = (PAGE_BYTES - start).min(bytes - done);
        let range = done..done + len;
        done += len;
        (len > 0).then_some((here / PAGE_BYTES as u64, start, range))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(cache: &PageCache, at: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0xEE; len];
        cache.read(&mut bytes, at).unwrap();
        bytes
    }

    #[test]
    fn what_is_synced_survives_and_what_is_not_does_so_in_any_combination() {
        let cache = PageCache::new();
        cache.set_len(1 << 20);
        cache.write(&[1; 9000], 100).unwrap();
        cache.sync().unwrap();
        for page in 0..8 {
            cache.write(&[2; 4096], page * 4096).unwrap();
            cache.write(&[3; 4096], page * 4096).unwrap();
        }
        cache.punch(4096, 4096);
        assert_eq!(read(&cache, 4096, 1), [0]);
        let mut found: Vec<std::collections::BTreeSet<u8>> = vec![Default::default(); 8];
        let mut torn = 0;
        for seed in 0..400 {
            let left = cache.crash(seed);
            for (page, found) in found.iter_mut().enumerate() {
                let bytes = read(&left, page as u64 * 4096, 4096);
                found.extend([bytes[1000], bytes[4000]]);
                torn += u64::from(bytes[1000] != bytes[4000]);
            }
        }
        assert_eq!(found[0], [1, 2, 3].into());
        assert_eq!(found[1], [0, 1, 2, 3].into());
        assert_eq!(found[5], [0, 2, 3].into());
        assert!(torn > 100, "{torn}");
        cache.sync().unwrap();
        let left = cache.crash(1);
        assert_eq!((read(&left, 0, 1), read(&left, 4096, 1), read(&left, 30_000, 1)), (vec![3], vec![0], vec![3]));
    }

    #[test]
    fn a_sync_that_fails_loses_what_it_should_have_written_also_if_it_is_tried_again() {
        let cache = PageCache::new();
        cache.write(&[7; 10], 0).unwrap();
        cache.fail_next_sync();
        cache.sync().unwrap_err();
        cache.sync().unwrap();
        assert_eq!(read(&cache, 0, 1), [7]);
        assert_eq!(read(&cache.crash(1), 0, 1), [0]);
    }

    #[test]
    fn a_crash_leaves_the_state_before_its_operation() {
        let cache = PageCache::new();
        cache.write(&[1], 0).unwrap();
        cache.crash_at(2);
        cache.sync().unwrap();
        assert!(!cache.has_crashed());
        cache.write(&[2], 0).unwrap();
        cache.sync().unwrap();
        assert!(cache.has_crashed());
        assert!((0..50).all(|seed| read(&cache.crash(seed), 0, 1) == [1]));
    }
}
