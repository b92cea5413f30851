//! What there is of a zone while the medium does not have all of it for good.
//!
//! ```text
//!   blocks of the zone   [ readable …… | on media, not readable yet | under way | waiting | being filled ]
//!                                       └──────────────── frames: `units` ─────────────────────────────┘
//! ```
//!
//! Each column is a chunk that is written from its first block on. Where that cannot go on (a program failed, a power cut has left
//! something behind the last good block) the column moves: its good blocks are copied to another chunk, which goes on. Until all of
//! them can be read there they are read where they were, and the record names the old chunk: what the new one has beyond is in the tail.
//!
//! ```text
//!   without chunk ──▶ copying ──▶ ready ──▶ failing ──▶ without chunk
//!         └── nothing to copy ──────▲  (a unit could not be programmed; the others of that chunk end)
//!                  copying ──▶ stuck      (a block of the old chunk is lost: the zone is read only)
//! ```

use crate::columns::Columns;
use crate::layout::Layout;
use crate::record::{NamedChunk, SavedTail};
use crate::window::Window;
use openftl_core::{ChunkId, Frame};
use openftl_parts::flash::Flash;
use openftl_parts::flash::units::{OpenId, UnitId};
use std::collections::VecDeque;

/// What a unit of a zone is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum UnitState {
    /// It is not full.
    Filling,
    /// It is to be written.
    Waiting,
    /// It is being written; it may be on media already, and survive a power cut.
    UnderWay { id: UnitId, is_programmed: bool },
    /// An earlier life of the drive has written it, and it can be read when more is written behind it.
    Kept,
    /// It can be read on media: its frames are gone.
    Readable,
}

/// A write unit of a zone.
pub(crate) struct ZoneUnit {
    pub(crate) state: UnitState,
    /// Its first blocks that are on media, and have no frames.
    pub(crate) skip: u32,
    pub(crate) frames: Vec<Frame>,
}

/// What a column is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// It has no chunk to be written to.
    WithoutChunk,
    /// What is in the old chunk is copied: so many blocks have been.
    Copying { copied: u32 },
    /// Units go to its chunk.
    Ready,
    /// A unit could not be written at this block. The others of its chunk end first.
    Failing { at: u32 },
}

/// A chunk that a column moves away from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct OldChunk {
    pub(crate) chunk: ChunkId,
    pub(crate) open: Option<OpenId>,
    /// Its good blocks that are copied: those of a unit that began have frames.
    pub(crate) blocks: u32,
    /// All its good blocks.
    pub(crate) good: u32,
}

/// The chunk that a column is written to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NewChunk {
    pub(crate) chunk: ChunkId,
    pub(crate) open: Option<OpenId>,
    /// Blocks that were submitted, that survive a power cut, and that can be read.
    pub(crate) submitted: u32,
    pub(crate) programmed: u32,
    pub(crate) readable: u32,
}

/// A column of a zone.
pub(crate) struct Column {
    pub(crate) stage: Stage,
    pub(crate) old: Option<OldChunk>,
    pub(crate) new: Option<NewChunk>,
    /// A unit of it, before which none waits to be written.
    pub(crate) waiting_from: u32,
    /// Units of it under way, copies included.
    pub(crate) under_way: u32,
    /// A unit that is to be copied is being read.
    pub(crate) reading: Option<Vec<Frame>>,
    /// It leaves its chunk because that is weak, whether anything waits to be written or not.
    pub(crate) is_refreshed: bool,
}

impl Column {
    pub(crate) const EMPTY: Column = Column {
        stage: Stage::WithoutChunk,
        old: None,
        new: None,
        waiting_from: 0,
        under_way: 0,
        reading: None,
        is_refreshed: false,
    };

    /// Whether everything has ended that was on its way to a chunk that takes nothing more, so that all of that can be read.
    pub(crate) fn is_at_rest(&self, flash: &Flash) -> bool {
        let is_open = self.new.and_then(|new| new.open).is_some_and(|open| flash.units.chunk_if_open(open).is_some());
        self.under_way == 0 && self.reading.is_none() && !is_open
    }

    /// Whether all that it has is in `chunk`, which nothing of it is about to leave.
    pub(crate) fn rests_in(&self, chunk: ChunkId) -> bool {
        match (self.old, self.new, self.stage) {
            (None, Some(new), Stage::Ready) => new.chunk == chunk,
            (Some(old), None, Stage::WithoutChunk) => old.chunk == chunk,
            _ => false,
        }
    }

    /// Up to where its new chunk may hold what it should: a unit that failed is missing there, whatever was written behind it.
    pub(crate) fn end_of_good(&self) -> u32 {
        match self.stage {
            Stage::Failing { at } => at,
            _ => u32::MAX,
        }
    }

    /// The chunk that a record may name, and how much of it survives a power cut.
    pub(crate) fn named(&self) -> Option<NamedChunk> {
        match (&self.old, &self.new) {
            (Some(old), _) => Some(NamedChunk { chunk: old.chunk, good: Some(old.good) }),
            (None, Some(new)) if new.programmed > 0 => Some(NamedChunk { chunk: new.chunk, good: None }),
            (None, _) => None,
        }
    }

    /// Blocks of it that can be read on media.
    pub(crate) fn good_blocks(&self) -> u32 {
        self.old.map_or(0, |old| old.blocks).max(self.new.map_or(0, |new| new.readable))
    }

    /// The chunk in which block `at` of the column can be read.
    pub(crate) fn chunk_with(&self, at: u32) -> Option<ChunkId> {
        match (&self.old, &self.new) {
            (Some(old), new) if at < old.blocks && new.is_none_or(|new| at >= new.readable) => Some(old.chunk),
            (_, Some(new)) => Some(new.chunk),
            _ => None,
        }
    }
}

/// What there is of a zone beside its blocks on media.
pub(crate) struct Writer {
    pub(crate) zone: u32,
    pub(crate) number: u64,
    /// The zone has been reset: nothing of this is needed, and units are under way.
    pub(crate) is_orphan: bool,
    /// Nothing more will be written: what is there is padded until it can be read.
    pub(crate) is_ending: bool,
    /// All of the zone was on media before this was made, and its record says so: only a column of it moves.
    pub(crate) is_whole: bool,
    pub(crate) columns: Vec<Column>,
    /// Units of which something is not readable on media, the first of which is `first_unit`.
    pub(crate) units: VecDeque<ZoneUnit>,
    pub(crate) first_unit: u32,
    /// Something may be done for it.
    pub(crate) is_stirred: bool,
    /// Columns that something may be done for. There is nothing to do for the others but those of the next two.
    pub(crate) awake: Columns,
    /// Columns that wanted a chunk, and there was none.
    pub(crate) without_room: Columns,
    /// Columns with units that wait until the device has completed others of their column.
    pub(crate) waiting_for_units: Columns,
    /// Some units may be [`UnitState::Kept`].
    pub(crate) may_keep: bool,
    /// What the record says, or is to say, of the tail.
    pub(crate) saved: Option<SavedTail>,
    /// Blocks that are on media for good, or in the tail: all that were written when it was last flushed.
    pub(crate) durable: u32,
    /// What the last record says of that.
    pub(crate) recorded: u32,
    /// What the host may write in any order, from the write pointer on.
    pub(crate) window: Option<Window>,
    /// Blocks before that of which the area has an older version.
    pub(crate) stale: Vec<u32>,
}

impl Writer {
    pub(crate) fn new(zone: u32, number: u64, width: u32) -> Writer {
        Writer {
            zone,
            number,
            is_orphan: false,
            is_ending: false,
            is_whole: false,
            columns: (0..width).map(|column| Column { waiting_from: column, ..Column::EMPTY }).collect(),
            units: VecDeque::new(),
            first_unit: 0,
            is_stirred: false,
            awake: Columns::none(width),
            without_room: Columns::none(width),
            waiting_for_units: Columns::none(width),
            may_keep: false,
            saved: None,
            durable: 0,
            recorded: 0,
            window: None,
            stale: Vec::new(),
        }
    }

    pub(crate) fn unit(&self, unit: u32) -> Option<&ZoneUnit> {
        self.units.get(unit.checked_sub(self.first_unit)? as usize)
    }

    pub(crate) fn unit_mut(&mut self, unit: u32) -> Option<&mut ZoneUnit> {
        self.units.get_mut(unit.checked_sub(self.first_unit)? as usize)
    }

    /// The unit behind the last one.
    pub(crate) fn end_unit(&self) -> u32 {
        self.first_unit + self.units.len() as u32
    }

    /// The first unit of a column that waits to be written.
    #[inline]
    pub(crate) fn first_waiting(&self, column: u32) -> Option<u32> {
        let mut unit = self.columns[column as usize].waiting_from;
        while unit < self.end_unit() {
            if self.unit(unit).is_some_and(|unit| unit.state == UnitState::Waiting) {
                return Some(unit);
            }
            unit += self.columns.len() as u32;
        }
        None
    }

    /// Whether there may be something to do for a column.
    #[inline]
    pub(crate) fn may_go_on(&self, column: u32) -> bool {
        let Column { stage, is_refreshed, .. } = self.columns[column as usize];
        match stage {
            Stage::Ready => self.first_waiting(column).is_some(),
            Stage::WithoutChunk => is_refreshed || self.first_waiting(column).is_some(),
            Stage::Copying { .. } | Stage::Failing { .. } => true,
        }
    }

    /// Whether it may have something to do when one of its units, chunks or reads has ended. Most have not: what was to be written
    /// behind it has been.
    #[inline]
    pub(crate) fn may_act(&self) -> bool {
        !self.awake.is_empty() || self.is_ending || self.is_orphan || self.may_keep
    }

    /// Whether a column may have something to do when a chunk has come, or something else of the drive has changed.
    pub(crate) fn may_act_elsewhere(&self) -> bool {
        self.may_act() || !self.without_room.is_empty() || !self.waiting_for_units.is_empty()
    }

    /// Something may be done for all columns that have something to do.
    pub(crate) fn wake_all(&mut self) {
        for column in 0..self.columns.len() as u32 {
            if self.may_go_on(column) {
                self.awake.insert(column);
            }
        }
    }

    /// Units before `first` are on media, and it has none yet.
    pub(crate) fn begin_with(&mut self, first: u32) {
        let width = self.columns.len() as u32;
        self.first_unit = first;
        for (column, at) in self.columns.iter_mut().zip(0..) {
            column.waiting_from = first + (at + width - first % width) % width;
        }
    }

    /// Begins the next unit, with a list that another had.
    pub(crate) fn begin_unit(&mut self, unit_blocks: u32, spare: &mut Vec<Vec<Frame>>) {
        let frames = spare.pop().unwrap_or_else(|| Vec::with_capacity(unit_blocks as usize));
        self.units.push_back(ZoneUnit { state: UnitState::Filling, skip: 0, frames });
    }

    /// Forgets units that can be read on media. Their lists of frames are `spare` from now on.
    pub(crate) fn forget_readable(&mut self, spare: &mut Vec<Vec<Frame>>) {
        while let Some(unit) = self.units.pop_front_if(|unit| unit.state == UnitState::Readable) {
            spare.push(unit.frames);
            self.first_unit += 1;
        }
    }

    /// Whether all of it is on media for good, and nothing moves.
    pub(crate) fn is_settled(&self) -> bool {
        let is_at_rest = |column: &Column| {
            let is_moving =
                column.reading.is_some() || column.is_refreshed || (column.old.is_some() && column.new.is_some());
            column.under_way == 0 && !is_moving
        };
        self.units.is_empty() && self.columns.iter().all(is_at_rest)
    }

    /// Whether a unit that an earlier life of the drive has written can be read on media by now, for good.
    pub(crate) fn is_kept_readable(&self, flash: &Flash, layout: &Layout, unit: u32) -> bool {
        let (column, at) = layout.place_of_unit(unit);
        let Column { old, new, .. } = &self.columns[column as usize];
        // A chunk that the column has left is closed.
        let in_old = old.map_or(0, |old| old.blocks);
        let in_new = new.map_or(0, |new| {
            let written_behind = new.open.and_then(|open| flash.units.readable_up_to(open)).unwrap_or(0);
            new.readable.max(written_behind)
        });
        in_old.max(in_new) >= at + layout.unit_blocks
    }

    /// Units of it under way.
    pub(crate) fn under_way(&self) -> u32 {
        self.columns.iter().map(|column| column.under_way).sum()
    }

    /// Whether the area has block `block` as it is now.
    pub(crate) fn has_saved(&self, block: u32, layout: &Layout) -> bool {
        let in_window = self.window.as_ref().and_then(|window| window.is_stale(block));
        let is_stale = in_window.unwrap_or_else(|| self.stale.contains(&block));
        !is_stale && self.saved.as_ref().is_some_and(|saved| saved.has(block, layout))
    }

    /// The area has everything before block `end` as it is now, or needs it no more.
    pub(crate) fn all_saved_before(&mut self, end: u32) {
        self.stale.retain(|block| *block >= end);
        if let Some(window) = &mut self.window {
            window.all_saved_before(end);
        }
    }
}
