//! A chunk that pages are written to, and what of it the medium does not have.
//!
//! ```text
//!   units   [ readable ][ programmed ][ under way ][ fills │      ]
//!   pages      ── 3 ──   ─ 8 ─ ── 1 ──── ─ 4 ─ ──── 9 ────│          in flight: those that reach into a unit that is not programmed
//! ```
//!
//! Frames of a unit are kept until it can be read and no page that reaches into it is in flight: if a program fails, all of such a page goes
//! elsewhere.

use crate::place::{GRAINS_PER_BLOCK, Place};
use openftl_core::{AddressFormat, ChunkId, Frame};
use openftl_parts::flash::units::{OpenId, UnitId};
use std::collections::VecDeque;

/// Stands for a block in which no page begins.
pub const NO_HEAD: u8 = u8::MAX;

/// How far a unit is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UnitState {
    /// It is not full.
    Filling,
    /// It is being written. It may survive a power cut already, and can be read.
    Written {
        /// Which.
        id: UnitId,
        /// It survives a power cut.
        is_programmed: bool,
        /// It can be read.
        is_readable: bool,
    },
}

/// A write unit.
pub struct PageUnit {
    /// Its first block.
    pub first: u32,
    /// Its blocks.
    pub frames: Vec<Frame>,
    /// In which grain of each block the first page begins there.
    pub heads: Vec<u8>,
    /// How far it is.
    pub state: UnitState,
    /// Its blocks on media, with padding; 0 while it fills.
    pub count: u32,
    /// Bytes of it that are headers of pages, and those that hold nothing.
    pub beside: Beside,
}

/// Bytes beside pages.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Beside {
    /// Of their headers.
    pub header: u64,
    /// That hold nothing.
    pub slack: u64,
}

/// What is written to a chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stream {
    /// What hosts put.
    Host,
    /// What moves.
    Moves,
    /// The log.
    Log,
}

/// Whose a page in flight is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Owner {
    /// Of a batch that is not committed: session, number, index of the change.
    Staged(u32, u64, u32),
    /// Of a mutation that is not in the log: its number, index of the change.
    Queued(u64, u32),
    /// Of one that is, with its bytes.
    Logged,
    /// It moves from there.
    Moves(Place),
    /// Of the log: it is the group with this number.
    Group(u64),
    /// Nobody's any more.
    Dead,
}

/// A page that the medium does not have for good.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InFlight {
    /// Which.
    pub lpid: u64,
    /// Where it is going to be.
    pub place: Place,
    /// Whose it is.
    pub owner: Owner,
}

/// See the module.
pub struct OpenChunk {
    /// The chunk.
    pub chunk: ChunkId,
    /// The same, while it can be written.
    pub open: OpenId,
    /// What is written to it.
    pub stream: Stream,
    /// The grain behind the last page.
    pub next_grain: u32,
    /// Units that have frames, in their order.
    pub units: VecDeque<PageUnit>,
    /// Pages in flight, in their order.
    pub pages: VecDeque<InFlight>,
    /// Units under way.
    pub under_way: u32,
    /// Nothing more is put there.
    pub is_full: bool,
    /// A program has failed at this block.
    pub failed_at: Option<u32>,
}

impl OpenChunk {
    /// One that goes on at block `next`.
    #[must_use]
    pub fn new(chunk: ChunkId, open: OpenId, stream: Stream, next: u32) -> OpenChunk {
        OpenChunk {
            chunk,
            open,
            stream,
            next_grain: next * GRAINS_PER_BLOCK,
            units: VecDeque::new(),
            pages: VecDeque::new(),
            under_way: 0,
            is_full: false,
            failed_at: None,
        }
    }

    /// The unit that has block `block`.
    #[must_use]
    pub fn unit_of(&self, block: u32) -> Option<&PageUnit> {
        let at = self.units.partition_point(|unit| unit.first <= block);
        let unit = self.units.get(at.checked_sub(1)?)?;
        ((block - unit.first) < unit.frames.len() as u32).then_some(unit)
    }

    /// The frame that has block `block`.
    #[must_use]
    pub fn frame(&self, block: u32) -> Option<Frame> {
        self.unit_of(block).map(|unit| unit.frames[(block - unit.first) as usize])
    }

    /// The unit that begins at block `first`.
    pub fn unit_at(&mut self, first: u32) -> Option<&mut PageUnit> {
        let at = self.units.binary_search_by_key(&first, |unit| unit.first).ok()?;
        self.units.get_mut(at)
    }

    /// The block before which everything survives a power cut.
    #[must_use]
    pub fn programmed_up_to(&self) -> u32 {
        let is_missing = |unit: &&PageUnit| !matches!(unit.state, UnitState::Written { is_programmed: true, .. });
        let missing = self.units.iter().find(is_missing).map_or(u32::MAX, |unit| unit.first);
        missing.min(self.failed_at.unwrap_or(u32::MAX))
    }

    /// Takes pages that are in flight no more.
    pub fn take_programmed(&mut self, format: AddressFormat) -> Vec<InFlight> {
        let end = self.programmed_up_to();
        let count = self.pages.iter().take_while(|page| page.place.blocks(format).end <= end).count();
        self.pages.drain(..count).collect()
    }

    /// Takes frames that are not needed any more.
    pub fn take_frames(&mut self, format: AddressFormat) -> Vec<Frame> {
        let needed = self.pages.front().map_or(u32::MAX, |page| page.place.blocks(format).start);
        let mut frames = Vec::new();
        while let Some(unit) = self.units.pop_front_if(|unit| {
            matches!(unit.state, UnitState::Written { is_programmed: true, is_readable: true, .. })
                && unit.first + unit.count <= needed
        }) {
            frames.extend(unit.frames);
        }
        frames
    }

    /// The page in flight that is to be at `place`.
    pub fn page_at(&mut self, place: Place) -> Option<&mut InFlight> {
        let at = self.pages.binary_search_by_key(&place, |page| page.place).ok()?;
        self.pages.get_mut(at)
    }
}
