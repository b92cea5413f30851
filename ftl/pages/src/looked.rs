//! What the map says when it is asked: of a page, and of what a checkpoint is to write.

use crate::leaf::Leaf;
use crate::place::Place;
use openftl_parts::map::cache::CachePolicy;

/// What the index may take of the memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IndexMemory {
    /// Bytes, all counted.
    pub bytes: u64,
    /// Which leaves stay.
    pub policy: CachePolicy,
}

/// What the index says of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Looked {
    /// It is there, or nowhere.
    At(Option<Place>),
    /// That is in the leaf of this slot, which is not in memory, and will be read.
    Missing(u32),
    /// The medium has lost that leaf.
    Lost,
}

/// A leaf that is to be written, to which block.
pub struct LeafToWrite {
    /// Its first number.
    pub first: u64,
    /// Its block, among those for leaves.
    pub slot: u32,
    /// As it is to be written.
    pub leaf: Leaf,
    /// It has nothing, and the block is to be given back.
    pub is_gone: bool,
    /// It has changes that do not count yet.
    pub stays_dirty: bool,
}

/// What is to be written so that a leaf is.
pub enum NextToWrite {
    /// Nothing.
    None,
    /// The leaf has to be read before.
    Missing,
    /// This one. If it is another one, that leaf comes later.
    Leaf(LeafToWrite),
}
