//! Memory from the system in large pieces.

use rustix::io::Errno;
use rustix::mm::{self, Advice, MapFlags, ProtFlags};
use std::alloc::Layout;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

const HUGE_PAGE_BYTES: usize = 2 << 20;

/// What a mapping begins at a multiple of, if it is as long.
const ALIGNMENT: usize = 4096;

/// And a shorter one.
const CACHE_LINE_BYTES: usize = 64;

/// Zeroed memory, owned like a `Vec`, and never moved. The kernel hands out its pages when they are first touched.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a mapping is memory that nobody else knows of, owned like a Vec.
unsafe impl Send for Mapping {}
// SAFETY: a shared mapping gives away its address and its length, and nothing of what it holds.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// `bytes` bytes of zeroes, at a multiple of 4096 if they are as many, else of 64.
    ///
    /// # Errors
    /// If the system has no memory left.
    ///
    /// # Panics
    /// If `bytes` is zero.
    pub fn new(bytes: usize) -> Result<Mapping, Errno> {
        assert!(bytes > 0, "a mapping has bytes");
        if let Some(layout) = Mapping::on_heap(bytes) {
            // SAFETY: the layout is not empty.
            let base = unsafe { std::alloc::alloc_zeroed(layout) };
            return Ok(Mapping { base: NonNull::new(base).ok_or(Errno::NOMEM)?, bytes });
        }
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice.
        let base = unsafe {
            mm::mmap_anonymous(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )?
        };
        // SAFETY: the mapping made above. Huge pages are a wish: without them all works, a little slower.
        let _ = unsafe { mm::madvise(base, bytes, Advice::LinuxHugepage) };
        Ok(Mapping { base: NonNull::new(base.cast()).ok_or(Errno::NOMEM)?, bytes })
    }

    /// What is too small for huge pages is taken from the heap, which costs no system call: its layout there. An interpreter
    /// knows no other memory.
    fn on_heap(bytes: usize) -> Option<Layout> {
        if bytes >= HUGE_PAGE_BYTES && !cfg!(miri) {
            return None;
        }
        Layout::from_size_align(bytes, if bytes < ALIGNMENT { CACHE_LINE_BYTES } else { ALIGNMENT }).ok()
    }

    /// Where it begins.
    #[inline]
    #[must_use]
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Its length in bytes.
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if let Some(layout) = Mapping::on_heap(self.bytes) {
            // SAFETY: `base` was allocated with this layout, and whoever wrote through it outlives it no more.
            return unsafe { std::alloc::dealloc(self.base.as_ptr(), layout) };
        }
        // SAFETY: `base` and `bytes` are what mmap returned and was asked for, and whoever wrote through it outlives it no more.
        let result = unsafe { mm::munmap(self.base.as_ptr().cast(), self.bytes) };
        debug_assert!(result.is_ok(), "unmapping our own memory: {result:?}");
    }
}

/// A table of numbers of 32 bits, as large as a map of a drive, whose length never changes. In small pages of memory
/// nearly every access to it would miss the TLB.
#[derive(Debug)]
pub struct Words {
    memory: Mapping,
    len: usize,
}

impl Words {
    /// `len` zeroes.
    ///
    /// # Errors
    /// If the system has no memory left.
    pub fn zeroes(len: usize) -> Result<Words, Errno> {
        let bytes = len.checked_mul(size_of::<u32>()).ok_or(Errno::NOMEM)?;
        Ok(Words { memory: Mapping::new(bytes.max(size_of::<u32>()))?, len })
    }
}

impl Deref for Words {
    type Target = [u32];

    #[inline]
    fn deref(&self) -> &[u32] {
        // SAFETY: the mapping has `len` words, aligned to a cache line at least and zeroed at first, and is borrowed with `self`.
        unsafe { std::slice::from_raw_parts(self.memory.base().cast().as_ptr(), self.len) }
    }
}

impl DerefMut for Words {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u32] {
        // SAFETY: as above, and nobody else has the mapping.
        unsafe { std::slice::from_raw_parts_mut(self.memory.base().cast().as_ptr(), self.len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_either_kind_is_aligned_zeroed_and_writable_to_its_end() {
        for bytes in [ALIGNMENT, ALIGNMENT + 1, HUGE_PAGE_BYTES, HUGE_PAGE_BYTES + 1] {
            let mapping = Mapping::new(bytes).unwrap();
            assert_eq!((mapping.base().as_ptr() as usize % ALIGNMENT, mapping.bytes()), (0, bytes));
            // SAFETY: the last byte of the mapping, which nobody else knows of.
            unsafe {
                let last = mapping.base().as_ptr().add(bytes - 1);
                assert_eq!(*last, 0);
                *last = 7;
                assert_eq!(*last, 7);
            }
        }
    }

    #[test]
    fn words_of_any_number_are_zero_and_may_all_be_changed() {
        for len in [0, 1, 1000, HUGE_PAGE_BYTES / 4 + 1] {
            let mut words = Words::zeroes(len).unwrap();
            assert!(words.len() == len && words.iter().all(|word| *word == 0));
            words.fill(7);
            assert!(words.iter().all(|word| *word == 7));
        }
        assert_eq!(Words::zeroes(usize::MAX / 2).unwrap_err(), Errno::NOMEM);
    }
}
