//! What is weak of zones and waits to move, and the column that does.

use openftl_core::ChunkId;
use openftl_parts::flash::Flash;
use openftl_parts::words::Care;
use std::collections::VecDeque;

/// The owner of reads that check a chunk. No column has this number.
pub(crate) const CHECK: u64 = u64::MAX;

/// What waits to be refreshed, and what is.
#[derive(Default)]
pub(crate) struct Refresh {
    /// Nothing begins: the drive is being opened or closed.
    pub(crate) is_stopped: bool,
    pub(crate) waiting: VecDeque<ChunkId>,
    /// What could not begin before may be able to now.
    pub(crate) may_begin: bool,
    /// A full zone wants a chunk to move to, and there is none.
    pub(crate) lacks_room: bool,
    pub(crate) under_way: Option<UnderWay>,
}

/// A column of which the chunk is weak.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct UnderWay {
    pub(crate) zone: u32,
    /// The life of the zone.
    pub(crate) number: u64,
    pub(crate) column: u32,
    pub(crate) chunk: ChunkId,
    pub(crate) care: Care,
    pub(crate) step: Step,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// So many blocks of the chunk can be read, and so many are being read.
    Checking { checked: u32, reading: u32 },
    /// The column is on its way: [`Column::is_refreshed`](crate::writer::Column::is_refreshed).
    Moving,
}

impl Refresh {
    /// Nothing waits, and nothing begins yet.
    pub(crate) fn stopped() -> Refresh {
        Refresh { is_stopped: true, ..Refresh::default() }
    }

    /// What could not begin before may be able to now.
    pub(crate) fn try_again(&mut self, flash: &mut Flash) {
        if !self.waiting.is_empty() {
            (self.may_begin, self.lacks_room) = (true, false);
            flash.stirred = true;
        }
    }
}
