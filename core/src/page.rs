//! Pages of payload that are handed on and not copied.
//!
//! ```text
//!   frame ──┐
//!           ├──▶ page: counted, 4096 bytes ──▶ freed when the last that holds it lets go ──▶ pool ──▶ the next that writes
//!   store ──┘
//! ```
//!
//! A [`Page`] is held as an `Arc` is: whoever programs a block holds on to the page of its frame, whoever reads it hands the page to
//! a frame, and relocation does both. What more than one holds is not written to ([`Page::bytes_mut`] refuses): a frame that is
//! filled again takes another page. So payload is copied only where one side changes what both of them hold.
//!
//! Pages are cut from large mappings. What is known of each (its count, its place) lies in a table beside them, so counting does
//! not touch the payload, and a page begins at a multiple of 4096. A pool gives all its memory back to the system at once, when its
//! last handle and its last page are gone, and none before: what it has is what was in use at most, beside memory that nobody
//! has touched.
//!
//! # Why this is sound
//! This module alone knows what is behind a pointer to an `Entry`:
//! - *An entry is there while somebody may look at it.* `Shared::owners` counts handles and pages that are out. Tables and mappings go
//!   with the last of either, which then is the only thread that knows of them.
//! - *Only one that nobody else holds a page of is written to.* `&mut [u8; 4096]` comes from `&mut Page` whose count is one. A count
//!   rises only through a `Page` that is borrowed, and there is no other. A count that another thread brought down to one did so
//!   with `Release`, and is read with `Acquire`.
//! - *A `Page` may go to another thread, and is shared with none* (`Send`, not `Sync`). So who finds the count at one knows that no
//!   other thread changes it, and raises it without an atomic read-modify-write, which would wait for all loads before it.
//! - *A free entry has one owner*: the list of freed ones (pushed with compare-and-swap, taken whole, so no entry is taken twice and
//!   none comes back in between), or the reserve under its lock.

use crate::BLOCK_BYTES;
use crate::memory::Mapping;
use std::cell::Cell;
use std::marker::PhantomData;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering, fence};
use std::sync::{Mutex, PoisonError};

/// Pages of the first mapping of a pool; each further one is twice as large, up to `MAPPING_PAGES_MAX`.
const MAPPING_PAGES_MIN: usize = 16;

/// Pages of the largest mapping: 64 MiB.
const MAPPING_PAGES_MAX: usize = (64 << 20) / BLOCK_BYTES;

/// Pages that [`FreshPages`] takes from the pool at a time.
const BATCH: usize = 32;

/// Pages that [`FreshPages`] keeps of those that are given back.
const READY_MAX: usize = 256;

#[cfg(target_arch = "x86_64")]
const CACHE_LINE_BYTES: usize = 64;

/// Lines that [`Page::prefetch`] fetches: four were faster than none, than eight and than all.
#[cfg(target_arch = "x86_64")]
const FETCHED_LINES: usize = 4;

type Bytes = [u8; BLOCK_BYTES];

/// What is known of a page.
struct Entry {
    /// Pages that hold it.
    count: AtomicUsize,
    bytes: NonNull<Bytes>,
    pool: NonNull<Shared>,
    /// The next free one.
    next: Cell<*mut Entry>,
}

/// What is behind a pool.
struct Shared {
    /// Handles, and pages that are out.
    owners: AtomicUsize,
    freed: AtomicPtr<Entry>,
    reserve: Mutex<Reserve>,
}

struct Reserve {
    /// Free entries that were given back together.
    ready: Vec<NonNull<Entry>>,
    /// A list of free entries.
    free: *mut Entry,
    mappings: Vec<Cut>,
    /// Of the last mapping: entries that were never in use.
    unused: usize,
}

/// A mapping that pages are cut from.
struct Cut {
    /// Kept while there may be pages of it.
    _memory: Mapping,
    /// From `Box::into_raw`: entries are changed through pointers to them.
    entries: NonNull<[Entry]>,
}

impl Drop for Cut {
    fn drop(&mut self) {
        // SAFETY: from `Box::into_raw`, and dropped once. Nobody has a pointer to an entry any more: see the module.
        drop(unsafe { Box::from_raw(self.entries.as_ptr()) });
    }
}

// SAFETY: pointers to entries that nobody else has: see the module.
unsafe impl Send for Reserve {}

impl Reserve {
    /// Another mapping, twice as large as the one before.
    #[cold]
    fn grow(&mut self, pool: NonNull<Shared>) {
        let pages = self.mappings.last().map_or(MAPPING_PAGES_MIN, |cut| cut.entries.len() * 2).min(MAPPING_PAGES_MAX);
        let Ok(memory) = Mapping::new(pages * BLOCK_BYTES) else {
            std::alloc::handle_alloc_error(std::alloc::Layout::new::<Bytes>());
        };
        let base = memory.base().cast::<Bytes>();
        let entries = (0..pages).map(|index| Entry {
            count: AtomicUsize::new(0),
            // SAFETY: inside the mapping, which has so many pages.
            bytes: unsafe { base.add(index) },
            pool,
            next: Cell::new(ptr::null_mut()),
        });
        let entries = Box::into_raw(entries.collect::<Box<[Entry]>>());
        let entries = NonNull::new(entries).expect("a box is somewhere");
        self.mappings.push(Cut { _memory: memory, entries });
        self.unused = pages;
    }

    /// A free entry.
    #[inline]
    fn take(&mut self, pool: NonNull<Shared>, freed: &AtomicPtr<Entry>) -> NonNull<Entry> {
        if let Some(entry) = self.ready.pop() {
            return entry;
        }
        if self.free.is_null() && !freed.load(Ordering::Relaxed).is_null() {
            self.free = freed.swap(ptr::null_mut(), Ordering::Acquire);
        }
        if let Some(entry) = NonNull::new(self.free) {
            // SAFETY: an entry of the reserve: it is there, and nobody else has it.
            self.free = unsafe { entry.as_ref() }.next.get();
            return entry;
        }
        if self.unused == 0 {
            self.grow(pool);
        }
        let entries = self.mappings.last().expect("it has just grown").entries;
        let first = entries.len() - self.unused;
        self.unused -= 1;
        // SAFETY: one of the entries of the mapping.
        unsafe { entries.cast::<Entry>().add(first) }
    }
}

impl Shared {
    /// One owner less; with the last all memory goes.
    ///
    /// # Safety
    /// The caller is one of the owners, and uses the pool no more.
    unsafe fn leave(pool: NonNull<Shared>) {
        // SAFETY: there while it has owners.
        if unsafe { pool.as_ref() }.owners.fetch_sub(1, Ordering::Release) == 1 {
            fence(Ordering::Acquire);
            // SAFETY: from `Box::into_raw`, and the last owner has left.
            drop(unsafe { Box::from_raw(pool.as_ptr()) });
        }
    }
}

/// Where pages come from, and where they go when nobody holds them.
pub struct PagePool(NonNull<Shared>);

// SAFETY: all that threads share behind it is atomic or under a lock.
unsafe impl Send for PagePool {}
// SAFETY: as above.
unsafe impl Sync for PagePool {}

impl Default for PagePool {
    fn default() -> PagePool {
        let reserve = Reserve { ready: Vec::new(), free: ptr::null_mut(), mappings: Vec::new(), unused: 0 };
        let shared = Shared {
            owners: AtomicUsize::new(1),
            freed: AtomicPtr::new(ptr::null_mut()),
            reserve: Mutex::new(reserve),
        };
        PagePool(NonNull::from(Box::leak(Box::new(shared))))
    }
}

impl Clone for PagePool {
    /// Another handle of the same pool.
    fn clone(&self) -> PagePool {
        self.shared().owners.fetch_add(1, Ordering::Relaxed);
        PagePool(self.0)
    }
}

impl Drop for PagePool {
    fn drop(&mut self) {
        // SAFETY: this handle is one of the owners, and ends here.
        unsafe { Shared::leave(self.0) };
    }
}

impl std::fmt::Debug for PagePool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PagePool({} pages)", self.pages())
    }
}

impl PagePool {
    #[inline]
    fn shared(&self) -> &Shared {
        // SAFETY: there while it has owners, of which this handle is one.
        unsafe { self.0.as_ref() }
    }

    /// Pages that the pool has memory for, in use or not.
    #[must_use]
    pub fn pages(&self) -> usize {
        let reserve = self.shared().reserve.lock().unwrap_or_else(PoisonError::into_inner);
        reserve.mappings.iter().map(|cut| cut.entries.len()).sum()
    }

    /// None of `pages` is needed any more. Those that somebody else holds go when he lets go of them, and the others without an
    /// atomic operation for each.
    pub fn give_back(&self, pages: impl IntoIterator<Item = Page>) {
        let mut reserve = self.shared().reserve.lock().unwrap_or_else(PoisonError::into_inner);
        let before = reserve.ready.len();
        for page in pages {
            if page.is_own() && page.entry().pool == self.0 {
                reserve.ready.push(page.entry);
                std::mem::forget(page);
            }
        }
        // This handle is an owner, too: none of these is the last.
        self.shared().owners.fetch_sub(reserve.ready.len() - before, Ordering::Release);
    }

    /// Appends `count` pages that nobody holds. They contain whatever they did.
    #[cold]
    fn take(&self, count: usize, pages: &mut Vec<Page>) {
        let shared = self.shared();
        let mut reserve = shared.reserve.lock().unwrap_or_else(PoisonError::into_inner);
        shared.owners.fetch_add(count, Ordering::Relaxed);
        pages.extend((0..count).map(|_| {
            let entry = reserve.take(self.0, &shared.freed);
            // SAFETY: a free entry, which is this thread's alone now.
            unsafe { entry.as_ref() }.count.store(1, Ordering::Relaxed);
            // SAFETY: as above.
            let bytes = unsafe { entry.as_ref() }.bytes;
            Page { entry, bytes, _not_sync: PhantomData }
        }));
    }
}

/// 4096 bytes, held as an `Arc` is.
pub struct Page {
    entry: NonNull<Entry>,
    /// Where the entry says that it is: whoever reads does not wait for the entry.
    bytes: NonNull<Bytes>,
    _not_sync: PhantomData<Cell<()>>,
}

// SAFETY: see the module.
unsafe impl Send for Page {}

impl Page {
    #[inline]
    fn entry(&self) -> &Entry {
        // SAFETY: there while a page of it is out.
        unsafe { self.entry.as_ref() }
    }

    /// Whether nobody else holds it.
    #[inline]
    #[must_use]
    pub fn is_own(&self) -> bool {
        self.entry().count.load(Ordering::Acquire) == 1
    }

    /// What it contains.
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> &[u8; BLOCK_BYTES] {
        // SAFETY: there while a page of it is out, and not written to while it is borrowed: see the module.
        unsafe { self.bytes.as_ref() }
    }

    /// Has the processor fetch what is known of the page, for whoever shares it or lets go of it soon.
    #[inline]
    pub fn announce(&self) {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            // SAFETY: a prefetch changes nothing, and every x86-64 has it.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(self.entry.as_ptr().cast_const().cast()) };
        }
    }

    /// Has the processor fetch the first of what it contains, for whoever looks at all of it soon. The processor fetches the rest
    /// by itself, but begins anew in each page, and waits for these lines then.
    #[inline]
    pub fn prefetch(&self) {
        #[cfg(target_arch = "x86_64")]
        for line in self.bytes().chunks_exact(CACHE_LINE_BYTES).take(FETCHED_LINES) {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            // SAFETY: a prefetch changes nothing, and every x86-64 has it.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()) };
        }
    }

    /// What it contains, to be changed. `None` if somebody else holds it.
    #[inline]
    #[must_use]
    pub fn bytes_mut(&mut self) -> Option<&mut [u8; BLOCK_BYTES]> {
        if !self.is_own() {
            return None;
        }
        let mut bytes = self.bytes;
        // SAFETY: nobody else holds it, and nobody will while this one is borrowed: see the module.
        Some(unsafe { bytes.as_mut() })
    }
}

impl Clone for Page {
    /// The same page, held once more.
    #[inline]
    fn clone(&self) -> Page {
        let count = &self.entry().count;
        if count.load(Ordering::Acquire) == 1 {
            // Only through this page could another thread get to it.
            count.store(2, Ordering::Relaxed);
        } else {
            count.fetch_add(1, Ordering::Relaxed);
        }
        Page { entry: self.entry, bytes: self.bytes, _not_sync: PhantomData }
    }
}

impl Drop for Page {
    #[inline]
    fn drop(&mut self) {
        let entry = self.entry();
        if entry.count.load(Ordering::Acquire) != 1 && entry.count.fetch_sub(1, Ordering::Release) != 1 {
            return;
        }
        fence(Ordering::Acquire);
        let pool = entry.pool;
        // SAFETY: the page that goes is one of the owners, and leaves last.
        let freed = unsafe { &pool.as_ref().freed };
        let mut first = freed.load(Ordering::Relaxed);
        loop {
            entry.next.set(first);
            match freed.compare_exchange_weak(first, self.entry.as_ptr(), Ordering::Release, Ordering::Relaxed) {
                Ok(_) => break,
                Err(other) => first = other,
            }
        }
        // SAFETY: as above, and nothing of the pool is used after it.
        unsafe { Shared::leave(pool) };
    }
}

impl std::fmt::Debug for Page {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Page(held by {})", self.entry().count.load(Ordering::Relaxed))
    }
}

/// Pages of a pool that are ready to be written to: taken some at a time, and given back without the pool.
#[derive(Default, Debug)]
pub struct FreshPages {
    pool: PagePool,
    ready: Vec<Page>,
}

impl FreshPages {
    /// None yet, of this pool.
    #[must_use]
    pub fn of(pool: PagePool) -> FreshPages {
        FreshPages { pool, ready: Vec::new() }
    }

    /// The pool.
    #[must_use]
    pub fn pool(&self) -> &PagePool {
        &self.pool
    }

    /// A page that nobody else holds. It contains whatever it did.
    #[inline]
    pub fn take(&mut self) -> Page {
        if self.ready.is_empty() {
            self.pool.take(BATCH, &mut self.ready);
        }
        self.ready.pop().expect("some have just been taken")
    }

    /// Makes `page` one that nobody else holds, with the same contents; `None` stands for zeroes. Returns the bytes that were copied
    /// for it.
    #[inline]
    pub fn make_own(&mut self, page: &mut Option<Page>) -> u64 {
        if page.as_ref().is_some_and(Page::is_own) {
            return 0;
        }
        let shared = page.replace(self.take());
        let bytes = page.as_mut().and_then(Page::bytes_mut).expect("a fresh page is nobody else's");
        match shared {
            None => {
                bytes.fill(0);
                0
            }
            Some(shared) => {
                bytes.copy_from_slice(shared.bytes());
                BLOCK_BYTES as u64
            }
        }
    }

    /// `page` is needed no more. If nobody else holds it, it is the next one to be taken.
    #[inline]
    pub fn give_back(&mut self, page: Page) {
        if self.ready.len() < READY_MAX && page.is_own() {
            self.ready.push(page);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(fresh: &mut FreshPages, byte: u8) -> Page {
        let mut page = fresh.take();
        page.bytes_mut().expect("a fresh page is nobody else's").fill(byte);
        page
    }

    #[test]
    fn what_two_hold_is_written_to_by_neither_until_one_has_let_go() {
        let mut fresh = FreshPages::default();
        let mut page = filled(&mut fresh, 1);
        let mut other = page.clone();
        assert!(page.bytes_mut().is_none() && other.bytes_mut().is_none());
        let third = other.clone();
        drop(page);
        assert!(other.bytes_mut().is_none());
        drop(third);
        other.bytes_mut().expect("the last one has it alone").fill(2);
        assert_eq!(other.bytes(), &[2; BLOCK_BYTES]);
    }

    #[test]
    fn pages_are_apart_aligned_and_used_again() {
        let mut fresh = FreshPages::default();
        let mut there = Vec::new();
        for round in 0..3 {
            let pages: Vec<Page> = (0..100).map(|index| filled(&mut fresh, index as u8 + round)).collect();
            for (index, page) in pages.iter().enumerate() {
                assert_eq!(page.bytes(), &[index as u8 + round; BLOCK_BYTES]);
                assert_eq!(page.bytes().as_ptr() as usize % BLOCK_BYTES, 0);
            }
            there.push(fresh.pool().pages());
        }
        assert!((100..300).contains(&there[0]) && there.iter().all(|pages| *pages == there[0]), "{there:?}");
    }

    #[test]
    fn what_is_given_back_is_taken_next_unless_somebody_holds_it() {
        let mut fresh = FreshPages::default();
        let page = filled(&mut fresh, 9);
        let place = page.bytes().as_ptr();
        let held = page.clone();
        fresh.give_back(page);
        assert_ne!(fresh.take().bytes().as_ptr(), place);
        fresh.give_back(held);
        assert_eq!(fresh.take().bytes().as_ptr(), place);
    }

    #[test]
    fn of_pages_that_are_given_back_together_those_that_nobody_holds_are_taken_next() {
        let mut fresh = FreshPages::default();
        let pages: Vec<Page> = (0..64).map(|index| filled(&mut fresh, index)).collect();
        let held: Vec<Page> = pages.iter().step_by(2).cloned().collect();
        let mut stranger = FreshPages::default();
        let pages_of_both = pages.into_iter().chain([stranger.take()]);
        fresh.pool().give_back(pages_of_both);
        let mut taken = Vec::new();
        fresh.pool().take(32, &mut taken);
        let mut contents: Vec<u8> = taken.iter().map(|page| page.bytes()[0]).collect();
        contents.sort_unstable();
        assert!(contents.iter().copied().eq((1..64).step_by(2)), "{contents:?}");
        assert!(held.iter().zip((0..64).step_by(2)).all(|(page, byte)| page.is_own() && page.bytes()[0] == byte));
    }

    #[test]
    fn a_page_outlives_its_pool_and_goes_back_to_it_from_another_thread() {
        let mut fresh = FreshPages::default();
        let pages: Vec<Page> = (0..2 * BATCH).map(|index| filled(&mut fresh, index as u8)).collect();
        let held = pages.clone();
        drop(fresh);
        let sum = |pages: &[Page]| pages.iter().map(|page| u64::from(page.bytes()[4095])).sum::<u64>();
        let expected = sum(&held);
        std::thread::scope(|scope| {
            let other = scope.spawn(move || sum(&pages));
            assert_eq!(sum(&held), expected);
            drop(held);
            assert_eq!(other.join().unwrap(), expected);
        });
    }

    #[test]
    fn threads_that_let_go_at_once_free_each_page_once() {
        const ROUNDS: usize = if cfg!(miri) { 3 } else { 200 };
        let mut fresh = FreshPages::default();
        for round in 0..ROUNDS {
            let pages: Vec<Page> = (0..64).map(|index| filled(&mut fresh, (index + round) as u8)).collect();
            let copies: Vec<Vec<Page>> = (0..2).map(|_| pages.clone()).collect();
            drop(pages);
            std::thread::scope(|scope| {
                for copy in copies {
                    scope.spawn(move || copy.into_iter().for_each(drop));
                }
            });
            let mut places: Vec<_> = (0..64).map(|_| fresh.take()).collect();
            assert!(places.iter_mut().all(|page| page.bytes_mut().is_some()));
            let mut places: Vec<_> = places.iter().map(|page| page.bytes().as_ptr()).collect();
            places.sort_unstable();
            places.dedup();
            assert_eq!(places.len(), 64, "a page that was freed twice would be handed out twice");
        }
        assert!(fresh.pool().pages() < 300, "what is let go of is used again");
    }
}
