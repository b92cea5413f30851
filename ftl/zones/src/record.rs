//! What is on media of a zone beside its blocks, in a record of the area.
//!
//! A record is older than the zone: what has been written since is found by the write pointers of its chunks.

use crate::layout::{Layout, RECORD_COLUMN_BYTES, RECORD_HEAD_BYTES};
use openftl_core::ChunkId;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// What a record says of a zone.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum RecordState {
    /// It holds nothing. A block of records that was never written says so of each.
    #[default]
    Empty,
    /// It was being written, or was to be.
    Active,
    /// It is full, and all of it is on media.
    Full,
    /// It can be read only.
    ReadOnly,
    /// It can be neither read nor written.
    Offline,
}

/// Blocks of a zone that are kept in the area, because the medium did not have them for good when they had to be durable.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SavedTail {
    /// Which tail.
    pub tail: u32,
    /// The first block of the zone that is in it, which begins a unit.
    pub first: u32,
    /// The block behind the last one.
    pub end: u32,
    /// Which units from the first one on are in it, a bit each. The others are on media.
    pub units: Vec<u8>,
    /// Which blocks from `end` on are in it, a bit each: those of a window.
    pub window: Vec<u8>,
}

/// Bits for these numbers.
fn bits(bytes: usize, numbers: impl Iterator<Item = u32>) -> Vec<u8> {
    let mut bits = vec![0; bytes];
    numbers.for_each(|at| bits[at as usize / 8] |= 1 << (at % 8));
    bits
}

/// Whether bit `at` is one of them.
fn has_bit(bits: &[u8], at: u32) -> bool {
    bits.get(at as usize / 8).is_some_and(|bits| bits >> (at % 8) & 1 != 0)
}

impl SavedTail {
    /// A tail of these units of a zone from block `first` on, which begins a unit, up to block `end`; and of blocks of a window from there on.
    #[must_use]
    pub fn of(tail: u32, first: u32, units: &[u32], end: u32, in_window: &[u32], layout: &Layout) -> SavedTail {
        let units = units.iter().map(|unit| unit - first / layout.unit_blocks);
        let window = in_window.iter().map(|block| block - end);
        let (tail_bytes, window_bytes) = (tail_bytes(layout), window_bytes(layout));
        SavedTail { tail, first, end, units: bits(tail_bytes, units), window: bits(window_bytes, window) }
    }

    /// Whether block `block` of the zone is in it.
    #[must_use]
    pub fn has(&self, block: u32, layout: &Layout) -> bool {
        match block.checked_sub(self.end) {
            Some(behind) => has_bit(&self.window, behind),
            None => self.has_committed(block, layout),
        }
    }

    /// Whether blocks of a window are in it.
    #[must_use]
    pub fn has_window(&self) -> bool {
        self.window.iter().any(|bits| *bits != 0)
    }

    /// Whether block `block` of the zone is in it, and was before the write pointer.
    #[must_use]
    pub fn has_committed(&self, block: u32, layout: &Layout) -> bool {
        let after = block.checked_sub(self.first).filter(|_| block < self.end);
        after.is_some_and(|after| has_bit(&self.units, after / layout.unit_blocks))
    }
}

/// Bytes that say which units a tail has.
fn tail_bytes(layout: &Layout) -> usize {
    (layout.tail_blocks / layout.unit_blocks).div_ceil(8) as usize
}

/// Bytes that say which blocks of a window a tail has.
fn window_bytes(layout: &Layout) -> usize {
    layout.window_blocks.div_ceil(8) as usize
}

/// A record.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Record {
    /// The state.
    pub state: RecordState,
    /// Blocks that were durable by then: on media, or in the tail. After a clean stop that is all of the zone; after a power cut there may be
    /// more.
    pub written: u32,
    /// The number that each of its blocks says. Another life of the zone has another.
    pub number: u64,
    /// What the area has of it.
    pub saved: Option<SavedTail>,
    /// It has a window.
    pub has_window: bool,
    /// Its chunks, by column; each has at least a unit of it.
    pub chunks: Vec<Option<NamedChunk>>,
    /// Its zone descriptor extension, if the host has set one.
    pub extension: Option<Vec<u8>>,
}

/// A chunk that a record names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NamedChunk {
    /// Which.
    pub chunk: ChunkId,
    /// Blocks of it that count, where something else is behind them. `None`: all that were written.
    pub good: Option<u32>,
}

#[derive(FromBytes, IntoBytes, Immutable, Unaligned, KnownLayout, Clone, Copy)]
#[repr(C)]
struct Head {
    state: u8,
    flags: u8,
    tail: U16,
    written: U32,
    number: U64,
    first: U32,
    end: U32,
}

/// Bits of the flags: a tail has blocks of the zone; it has an extension; it has a window.
const HAS_TAIL: u8 = 1 << 0;
/// See above.
const HAS_EXTENSION: u8 = 1 << 1;
/// See above.
const HAS_WINDOW: u8 = 1 << 2;

/// No chunk; everything in a chunk.
const NONE: u32 = u32::MAX;

const _: () = assert!(size_of::<Head>() == RECORD_HEAD_BYTES);

impl Record {
    /// Writes it to `bytes`, which are as long as a record is.
    pub fn write(&self, bytes: &mut [u8], layout: &Layout) {
        let state = match self.state {
            RecordState::Empty => 0,
            RecordState::Active => 1,
            RecordState::Full => 2,
            RecordState::ReadOnly => 3,
            RecordState::Offline => 4,
        };
        let (tail, first, end) = self.saved.as_ref().map_or((0, 0, 0), |saved| (saved.tail, saved.first, saved.end));
        let head = Head {
            state,
            flags: if self.saved.is_some() { HAS_TAIL } else { 0 }
                | if self.extension.is_some() { HAS_EXTENSION } else { 0 }
                | if self.has_window { HAS_WINDOW } else { 0 },
            tail: U16::new(tail as u16),
            written: U32::new(self.written),
            number: U64::new(self.number),
            first: U32::new(first),
            end: U32::new(end),
        };
        let (to, rest) = bytes.split_at_mut(size_of::<Head>());
        to.copy_from_slice(head.as_bytes());
        let (chunks, rest) = rest.split_at_mut(self.chunks.len() * RECORD_COLUMN_BYTES);
        let (units, rest) = rest.split_at_mut(tail_bytes(layout));
        let (window, extension) = rest.split_at_mut(window_bytes(layout));
        match &self.extension {
            Some(bytes) => extension.copy_from_slice(bytes),
            None => extension.fill(0),
        }
        match &self.saved {
            Some(saved) => {
                units.copy_from_slice(&saved.units);
                window.copy_from_slice(&saved.window);
            }
            None => {
                units.fill(0);
                window.fill(0);
            }
        }
        // An empty zone that was never written is all zeroes, chunks included.
        for (to, named) in chunks.as_chunks_mut::<RECORD_COLUMN_BYTES>().0.iter_mut().zip(&self.chunks) {
            let [chunk, good] = match named {
                _ if self.state == RecordState::Empty => [0, 0],
                Some(named) => [named.chunk.0, named.good.unwrap_or(NONE)],
                None => [NONE, NONE],
            };
            to[..4].copy_from_slice(&chunk.to_le_bytes());
            to[4..].copy_from_slice(&good.to_le_bytes());
        }
    }

    /// Reads what [`Record::write`] wrote. `None`: no record.
    #[must_use]
    pub fn read(bytes: &[u8], layout: &Layout) -> Option<Record> {
        let (head, rest) = Head::ref_from_prefix(bytes).ok()?;
        let (chunks, rest) = rest.split_at_checked(layout.width as usize * RECORD_COLUMN_BYTES)?;
        let (units, rest) = rest.split_at_checked(tail_bytes(layout))?;
        let (window, rest) = rest.split_at_checked(window_bytes(layout))?;
        let (extension, _) = rest.split_at_checked(layout.extension_bytes as usize)?;
        let (has_tail, has_extension) = (head.flags & HAS_TAIL != 0, head.flags & HAS_EXTENSION != 0);
        let has_window = head.flags & HAS_WINDOW != 0;
        let is_known = head.flags & !(HAS_TAIL | HAS_EXTENSION | HAS_WINDOW) == 0;
        if !is_known || (has_extension && extension.is_empty()) || (has_window && window.is_empty()) {
            return None;
        }
        let state = match head.state {
            0 => RecordState::Empty,
            1 => RecordState::Active,
            2 => RecordState::Full,
            3 => RecordState::ReadOnly,
            4 => RecordState::Offline,
            _ => return None,
        };
        let saved = has_tail.then(|| SavedTail {
            tail: head.tail.get().into(),
            first: head.first.get(),
            end: head.end.get(),
            units: units.to_vec(),
            window: window.to_vec(),
        });
        let extension = has_extension.then(|| extension.to_vec());
        let named = |[chunk, good]: &[U32; 2]| match (chunk.get(), good.get()) {
            _ if state == RecordState::Empty => None,
            (NONE, _) => None,
            (chunk, good) => Some(NamedChunk { chunk: ChunkId(chunk), good: (good != NONE).then_some(good) }),
        };
        let chunks = <[[U32; 2]]>::ref_from_bytes(chunks).ok()?.iter().map(named).collect();
        let (written, number) = (head.written.get(), head.number.get());
        Some(Record { state, written, number, saved, has_window, chunks, extension })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use openftl_core::Geometry;

    #[test]
    fn a_record_is_read_back_and_zeroes_are_an_empty_zone() {
        let plain = Layout::new(&Geometry::tiny(), 3, 5, 2);
        for (layout, extension) in [
            (plain, None),
            (plain.with_extension(128), Some(vec![7; 128])),
            (plain.with_windows(16), None),
            (plain.with_windows(64).with_extension(64), Some(vec![9; 64])),
        ] {
            read_back(&layout, extension);
        }
        // A drive without extensions is as it was before there were any.
        assert_eq!(plain.with_extension(0), plain);
    }

    fn read_back(layout: &Layout, extension: Option<Vec<u8>>) {
        let bytes_of = layout.record_bytes();
        let unit = layout.unit_blocks;
        let end = 14 * unit + 1;
        let in_window: &[u32] = if layout.window_blocks > 0 { &[end, end + 3] } else { &[] };
        let saved = Some(SavedTail::of(7, 10 * unit, &[10, 11, 14], end, in_window, layout));
        let named = |chunk, good| Some(NamedChunk { chunk: ChunkId(chunk), good });
        let chunks = vec![named(9, None), None, named(0, Some(24))];
        for state in [RecordState::Active, RecordState::Full, RecordState::ReadOnly, RecordState::Offline] {
            for (saved, extension) in
                [(saved.clone(), None), (None, extension.clone()), (saved.clone(), extension.clone())]
            {
                let chunks = chunks.clone();
                let has_window = layout.window_blocks > 0;
                let record = Record { state, written: 12, number: 1 << 40, saved, has_window, chunks, extension };
                let mut bytes = vec![0xA5; bytes_of];
                record.write(&mut bytes, layout);
                assert_eq!(Record::read(&bytes, layout), Some(record));
            }
        }
        let empty = Record { chunks: vec![None; 3], ..Record::default() };
        assert_eq!(Record::read(&vec![0; bytes_of], layout), Some(empty));
    }

    #[test]
    fn a_tail_has_the_blocks_of_its_units_and_no_others() {
        let layout = Layout::new(&Geometry::tiny(), 2, 5, 2);
        let unit = layout.unit_blocks;
        let saved = SavedTail::of(0, 10 * unit, &[10, 12], 12 * unit + 1, &[], &layout);
        let has: Vec<u32> = (0..20 * unit).filter(|block| saved.has(*block, &layout)).collect();
        let expected: Vec<u32> = (10 * unit..11 * unit).chain([12 * unit]).collect();
        assert_eq!(has, expected);
        // And blocks of a window, each for itself, where the last unit ends or within it.
        let layout = layout.with_windows(16);
        let saved = SavedTail::of(0, 12 * unit, &[12], 12 * unit + 1, &[12 * unit + 1, 12 * unit + 5], &layout);
        let has: Vec<u32> = (0..20 * unit).filter(|block| saved.has(*block, &layout)).collect();
        assert_eq!(has, [12 * unit, 12 * unit + 1, 12 * unit + 5]);
        let committed: Vec<u32> = (0..20 * unit).filter(|block| saved.has_committed(*block, &layout)).collect();
        assert_eq!(committed, [12 * unit]);
    }

    #[test]
    fn what_is_no_record_is_refused() {
        let layout = Layout::new(&Geometry::tiny(), 1, 5, 2);
        for (at, byte) in [(0, 5), (0, 255), (1, 8), (1, HAS_EXTENSION), (1, HAS_WINDOW)] {
            let mut bytes = vec![0; layout.record_bytes()];
            bytes[at] = byte;
            assert_eq!(Record::read(&bytes, &layout), None);
        }
        assert_eq!(Record::read(&[0; 30], &layout), None, "shorter than a record");
    }
}
