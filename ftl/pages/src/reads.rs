//! Pages that are being read.

use crate::place::Place;
use crate::request::StoreDone;
use openftl_core::{Frame, FrameForm};
use openftl_parts::flash::Flash;
use std::collections::{BTreeMap, VecDeque};

/// What a read is for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum ReadFor {
    /// A host that asked for bytes from this one on.
    Host { offset: u32, frames: Vec<Frame> },
    /// A host that asked for facts.
    Stat,
    /// A batch that waits to know the version of what is there.
    Condition(Place),
    /// A check, of the whole page.
    Check,
}

/// A read that has not begun.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Wanted {
    pub tag: u64,
    pub lpid: u64,
    pub what: ReadFor,
}

/// A page that the log has with its bytes, and that has no place yet.
pub(crate) struct Carried {
    pub version: u64,
    pub bytes: Vec<u8>,
}

/// A page that is being read.
pub(crate) struct PageRead {
    pub wanted: Wanted,
    pub place: Place,
    /// Blocks of the chunk, each with a frame of the drive's own.
    pub blocks: Vec<(u32, Frame)>,
    pub commands: u32,
    pub is_lost: bool,
}

/// See the module.
#[derive(Default)]
pub(crate) struct PageReads {
    pub all: Vec<Option<PageRead>>,
    /// Those that wait for frames.
    pub waiting: VecDeque<Wanted>,
    pub done: Vec<StoreDone>,
    /// Versions of pages of which batches wait to know them; `None`: it is being read. What is there no more is not here, either.
    pub versions: BTreeMap<Place, Option<u64>>,
    /// Pages that could not be read when they were checked.
    pub lost: Vec<u64>,
}

impl PageReads {
    /// Whether no page is being read, or waits for frames.
    pub(crate) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.all.iter().all(Option::is_none)
    }
}

/// Leaves of the map that are being read.
#[derive(Default)]
pub(crate) struct LeafReads {
    /// Whether there are to be frames for them.
    pub has_frames: bool,
    /// Those that no read has.
    pub frames: Vec<Frame>,
    /// Those under way, by the slots of the leaves.
    pub under_way: BTreeMap<u32, Frame>,
    /// Pages that are to be read, by the slots of the leaves that they wait for.
    pub waiting: BTreeMap<u32, Vec<Wanted>>,
}

impl LeafReads {
    /// None yet, with frames for some from when it is known for how many.
    pub(crate) fn new(has_frames: bool) -> LeafReads {
        LeafReads { has_frames, ..LeafReads::default() }
    }

    /// Takes back frames for so many reads, before a host can.
    pub(crate) fn keep_frames(&mut self, flash: &mut Flash, reads_max: usize) {
        while self.frames.len() + self.under_way.len() < reads_max {
            let Some(frame) = flash.frames.acquire(FrameForm::Bytes) else { return };
            self.frames.push(frame);
        }
    }
}
