//! What a drive is like, and of which runs its directory is: one page.
//!
//! | bytes | field |
//! |---|---|
//! | 0-3 | `OXVM` |
//! | 4-5 | version 1 |
//! | 6 | bits of the number of a key |
//! | 7 | bytes of a key, at most |
//! | 8-11 | bytes of a value, at most |
//! | 12-15 | bit 0: stores are durable |
//! | 16-23 | keys, at most |
//! | 24-39 | seed of the numbers |
//! | 40-47 | keys that there are, without the changes of the directory |
//! | 48-55 | bytes of these |
//! | 56-63 | what the next page of a run is counted as |
//! | 64-67 | changes of the directory before they go to a run, at most |
//! | 68-71 | runs, the oldest one first; of each: first page (8 bytes), pages (4), pages with first keys (4), keys (8) |

use crate::change::Count;
use crate::ids;
use crate::key::KEY_BYTES_MAX;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, Unaligned};

const MAGIC: [u8; 4] = *b"OXVM";
const VERSION: u16 = 1;
const DURABLE: u32 = 1;

/// What a drive is like, from when it is made on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Shape {
    pub number_bits: u32,
    pub key_max: u8,
    pub value_max: u32,
    pub durable_stores: bool,
    pub keys_max: u64,
    pub seed: [u64; 2],
    pub changes_max: u32,
}

impl Shape {
    /// That of a drive whose manifest has not been read.
    pub const UNKNOWN: Shape = Shape {
        number_bits: 0,
        key_max: 0,
        value_max: 0,
        durable_stores: false,
        keys_max: 0,
        seed: [0; 2],
        changes_max: 0,
    };
}

/// A run as the manifest has it: without its first keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RunNote {
    pub first_page: u64,
    pub pages: u32,
    pub fence_pages: u32,
    pub keys: u64,
}

/// See the module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Manifest {
    pub shape: Shape,
    pub count: Count,
    pub next_page: u64,
    pub runs: Vec<RunNote>,
}

#[derive(FromBytes, IntoBytes, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
struct Head {
    magic: [u8; 4],
    version: U16,
    number_bits: u8,
    key_max: u8,
    value_max: U32,
    flags: U32,
    keys_max: U64,
    seed: [U64; 2],
    keys: U64,
    key_bytes: U64,
    next_page: U64,
    changes_max: U32,
    runs: U32,
}

#[derive(FromBytes, IntoBytes, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
struct RunBytes {
    first_page: U64,
    pages: U32,
    fence_pages: U32,
    keys: U64,
}

const _: () = assert!(size_of::<Head>() == 72 && size_of::<RunBytes>() == 24);

impl Manifest {
    pub fn to_bytes(&self) -> Vec<u8> {
        let Shape { number_bits, key_max, value_max, durable_stores, keys_max, seed, changes_max } = self.shape;
        let head = Head {
            magic: MAGIC,
            version: VERSION.into(),
            number_bits: number_bits as u8,
            key_max,
            value_max: value_max.into(),
            flags: U32::new(if durable_stores { DURABLE } else { 0 }),
            keys_max: keys_max.into(),
            seed: seed.map(U64::new),
            keys: self.count.keys.into(),
            key_bytes: self.count.key_bytes.into(),
            next_page: self.next_page.into(),
            changes_max: changes_max.into(),
            runs: U32::new(self.runs.len() as u32),
        };
        let mut bytes = head.as_bytes().to_vec();
        for RunNote { first_page, pages, fence_pages, keys } in &self.runs {
            let run = RunBytes {
                first_page: (*first_page).into(),
                pages: (*pages).into(),
                fence_pages: (*fence_pages).into(),
                keys: (*keys).into(),
            };
            bytes.extend_from_slice(run.as_bytes());
        }
        bytes
    }

    /// `None`: it is none.
    pub fn read(bytes: &[u8]) -> Option<Manifest> {
        let (head, rest) = Head::read_from_prefix(bytes).ok()?;
        let shape = Shape {
            number_bits: head.number_bits.into(),
            key_max: head.key_max,
            value_max: head.value_max.get(),
            durable_stores: head.flags.get() & DURABLE != 0,
            keys_max: head.keys_max.get(),
            seed: head.seed.map(|word| word.get()),
            changes_max: head.changes_max.get(),
        };
        let is_possible = shape.number_bits <= ids::NUMBER_BITS_MAX
            && (1..=KEY_BYTES_MAX).contains(&usize::from(shape.key_max))
            && shape.keys_max > 0
            && shape.changes_max > 0
            && rest.len() == head.runs.get() as usize * size_of::<RunBytes>();
        if head.magic != MAGIC || head.version.get() != VERSION || !is_possible {
            return None;
        }
        let runs = <[RunBytes]>::ref_from_bytes(rest).ok()?.iter().map(|run| RunNote {
            first_page: run.first_page.get(),
            pages: run.pages.get(),
            fence_pages: run.fence_pages.get(),
            keys: run.keys.get(),
        });
        let count = Count { keys: head.keys.get(), key_bytes: head.key_bytes.get() };
        Some(Manifest { shape, count, next_page: head.next_page.get(), runs: runs.collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_is_read_as_it_was_written() {
        let shape = Shape {
            number_bits: 20,
            key_max: 16,
            value_max: 1000,
            durable_stores: true,
            keys_max: 5000,
            seed: [1, 2],
            changes_max: 9,
        };
        let run = |number| RunNote { first_page: number, pages: 3, fence_pages: 1, keys: 77 };
        let manifest =
            Manifest { shape, count: Count { keys: 4, key_bytes: 50 }, next_page: 99, runs: vec![run(5), run(9)] };
        let bytes = manifest.to_bytes();
        assert_eq!(bytes[..16], *b"OXVM\x01\x00\x14\x10\xe8\x03\x00\x00\x01\x00\x00\x00");
        assert_eq!(Manifest::read(&bytes), Some(manifest));
        assert!((0..bytes.len()).all(|end| Manifest::read(&bytes[..end]).is_none()));
        for (at, byte) in [(0, 0), (4, 2), (6, 49), (7, 0), (7, 17), (68, 1)] {
            let mut other = bytes.clone();
            other[at] = byte;
            assert_eq!(Manifest::read(&other), None, "byte {at}");
        }
    }
}
