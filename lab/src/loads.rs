//! Models of hosts: what applications do to a drive, with the objects that they write and end as a whole.
//!
//! Sizes follow from the drive's; `docs/WORKLOADS.md` says how, and what each model leaves out.

mod double_write;
mod journaled_fs;
mod key_mix;
mod log_structured_fs;
mod lsm_tree;
mod segments;
mod space;
mod tenants;
mod writers;

pub use double_write::{DoubleWrite, DoubleWriteConfig};
pub use journaled_fs::JournaledFs;
pub use key_mix::{KeyLoad, KeyMix, KeyRequest};
pub use log_structured_fs::LogStructuredFs;
pub use lsm_tree::{LsmConfig, LsmTrees};
pub use segments::Segments;
pub use tenants::Tenants;
pub use writers::Writers;

use crate::load::{Access, Hint, Operation};
use openftl_core::units::Share;

/// What models of objects are made from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ObjectConfig {
    /// Blocks of the drive.
    pub drive_blocks: u64,
    /// How much of it is live at most.
    pub fill: Share,
    /// Blocks of an access.
    pub access_blocks: u32,
    /// Chooses the whole sequence.
    pub seed: u64,
}

impl ObjectConfig {
    /// Blocks that are live at most.
    fn live_blocks_max(&self) -> u64 {
        (u128::from(self.drive_blocks) * u128::from(self.fill.millionths) / 1_000_000) as u64
    }
}

/// An object, in one extent, while it is written from its first block to its last.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Object {
    first: u64,
    blocks: u32,
    written: u32,
    hint: Hint,
}

impl Object {
    fn new(first: u64, blocks: u32, hint: Hint) -> Object {
        Object { first, blocks, written: 0, hint }
    }

    /// Says that it is about to be written.
    fn allocate(&self) -> Access {
        self.whole(Operation::Allocate)
    }

    /// Says that it has ended.
    fn trim(&self) -> Access {
        self.whole(Operation::Trim)
    }

    fn whole(&self, operation: Operation) -> Access {
        Access { operation, first: self.first, blocks: self.blocks, hint: self.hint }
    }

    /// The next of its blocks.
    fn write(&mut self, blocks_max: u32) -> Access {
        let blocks = blocks_max.min(self.blocks - self.written);
        let first = self.first + u64::from(self.written);
        self.written += blocks;
        Access { operation: Operation::Write, first, blocks, hint: self.hint }
    }

    fn is_written(&self) -> bool {
        self.written == self.blocks
    }
}

/// Numbers of objects, one after the other.
#[derive(Clone, Copy, Default, Debug)]
struct Numbers(u32);

impl Numbers {
    /// The next number; 0 is no object's.
    fn next(&mut self) -> u32 {
        self.0 = self.0.checked_add(1).unwrap_or(1);
        self.0
    }
}

#[cfg(test)]
#[path = "loads_tests.rs"]
mod tests;
