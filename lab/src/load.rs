//! What a host does to a drive, step by step, with what it knows of the lifetime of what it writes.
//!
//! ```text
//!   fill_step ─▶ fill_step ─▶ … ─▶ none      the first time, until the drive is as full as the load keeps it
//!   step ─▶ step ─▶ step ─▶ …                from then on; a load without an end never says none
//! ```
//!
//! A load is a sequence that its seed decides and no answer of the drive changes: every drive gets the same writes. What
//! of its hints a drive is told is up to a [`crate::Binding`].

use crate::trace::TraceError;
use openftl_core::Time;
use openftl_parts::target::Extent;

/// What is done to the blocks of an access.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Operation {
    /// They are read.
    Read,
    /// They are overwritten.
    Write,
    /// They are no longer needed, and read as zeroes.
    Trim,
    /// Everything acknowledged so far becomes durable; no block is meant.
    Flush,
    /// They are an object that is about to be written and will end as a whole. Not a request unless the binding tells it.
    Allocate,
}

impl Operation {
    /// Whether blocks have other contents afterwards.
    #[must_use]
    pub fn changes_blocks(self) -> bool {
        matches!(self, Operation::Write | Operation::Trim)
    }
}

/// What a host knows of the lifetime of blocks that it writes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Hint {
    /// Which kind of data: a place in [`Load::kinds`].
    pub kind: u8,
    /// Which object (file, table, segment) they are part of; 0 if of none. Numbers are given one after the other.
    pub object: u32,
}

/// One step of a host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Access {
    /// What is done.
    pub operation: Operation,
    /// First logical block.
    pub first: u64,
    /// How many; 0 for a flush. Those of an object that is allocated need not follow each other: see [`Load::extents`].
    pub blocks: u32,
    /// What is known of their lifetime. It says something where blocks are written or allocated.
    pub hint: Hint,
}

impl Access {
    /// A flush.
    pub const FLUSH: Access =
        Access { operation: Operation::Flush, first: 0, blocks: 0, hint: Hint { kind: 0, object: 0 } };

    /// Does something to blocks of which nothing is known.
    #[must_use]
    pub const fn plain(operation: Operation, first: u64, blocks: u32) -> Access {
        Access { operation, first, blocks, hint: Hint { kind: 0, object: 0 } }
    }
}

/// A host that uses a drive.
pub trait Load {
    /// What it does next; `None` when it has come to its end.
    fn step(&mut self) -> Option<Access>;

    /// What it does next while it fills the drive for the first time; `None` when the drive is filled.
    fn fill_step(&mut self) -> Option<Access>;

    /// Where the object is that the last step allocated; nothing if it is the access itself.
    fn extents(&self) -> Vec<Extent> {
        Vec::new()
    }

    /// When the last step is wanted, on a clock of the load's own; nothing if as soon as the host may ask for more.
    fn due(&self) -> Option<Time> {
        None
    }

    /// Names of the kinds of data that it writes, at least one and at most 256; a hint says which.
    fn kinds(&self) -> Vec<String>;

    /// The most blocks that hold something at a time: how full it keeps the drive.
    fn live_blocks_max(&self) -> u64;

    /// The most blocks of one read or write.
    fn access_blocks_max(&self) -> u32;

    /// Why it came to its end too early, if it did.
    fn failure(&self) -> Option<&TraceError> {
        None
    }
}

impl<L: Load + ?Sized> Load for Box<L> {
    fn step(&mut self) -> Option<Access> {
        (**self).step()
    }

    fn fill_step(&mut self) -> Option<Access> {
        (**self).fill_step()
    }

    fn extents(&self) -> Vec<Extent> {
        (**self).extents()
    }

    fn due(&self) -> Option<Time> {
        (**self).due()
    }

    fn kinds(&self) -> Vec<String> {
        (**self).kinds()
    }

    fn live_blocks_max(&self) -> u64 {
        (**self).live_blocks_max()
    }

    fn access_blocks_max(&self) -> u32 {
        (**self).access_blocks_max()
    }

    fn failure(&self) -> Option<&TraceError> {
        (**self).failure()
    }
}

/// The first time that a load fills the drive, as a load of its own that ends.
pub struct Filling<'a, L: ?Sized>(pub &'a mut L);

impl<L: Load + ?Sized> Load for Filling<'_, L> {
    fn step(&mut self) -> Option<Access> {
        self.0.fill_step()
    }

    fn fill_step(&mut self) -> Option<Access> {
        self.0.fill_step()
    }

    fn extents(&self) -> Vec<Extent> {
        self.0.extents()
    }

    fn kinds(&self) -> Vec<String> {
        self.0.kinds()
    }

    fn live_blocks_max(&self) -> u64 {
        self.0.live_blocks_max()
    }

    fn access_blocks_max(&self) -> u32 {
        self.0.access_blocks_max()
    }

    fn failure(&self) -> Option<&TraceError> {
        self.0.failure()
    }
}

/// A host that wants everything durable, once.
pub struct Flushing;

impl Load for Flushing {
    fn step(&mut self) -> Option<Access> {
        Some(Access::FLUSH)
    }

    fn fill_step(&mut self) -> Option<Access> {
        None
    }

    fn kinds(&self) -> Vec<String> {
        vec!["none".to_owned()]
    }

    fn live_blocks_max(&self) -> u64 {
        0
    }

    fn access_blocks_max(&self) -> u32 {
        1
    }
}

/// Writes the first blocks of a drive once, in order: how loads without files fill it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Sweep {
    next: u64,
    end: u64,
    step_blocks: u32,
}

impl Sweep {
    pub(crate) fn new(blocks: u64, step_blocks: u32) -> Sweep {
        Sweep { next: 0, end: blocks, step_blocks }
    }

    pub(crate) fn step(&mut self) -> Option<Access> {
        let blocks = (self.end - self.next).min(u64::from(self.step_blocks)) as u32;
        let access = Access::plain(Operation::Write, self.next, blocks);
        self.next += u64::from(blocks);
        (blocks > 0).then_some(access)
    }
}
