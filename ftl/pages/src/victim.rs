//! Which chunk is cleaned next, and how far the one is that is being cleaned.

use crate::place::Place;
use openftl_core::{ChunkId, Frame};
use openftl_parts::cleaning::victim::VictimPolicy;
use std::collections::BTreeMap;

/// Whether victims are chosen by `policy`. Others are taken for [`VictimPolicy::Greedy`].
#[must_use]
pub fn cleans_by(policy: VictimPolicy) -> bool {
    matches!(policy, VictimPolicy::Greedy | VictimPolicy::CostBenefit | VictimPolicy::MinimumDecliningCost)
}

/// What is read of a victim at a time.
pub(crate) struct Window {
    /// Its first block.
    pub first: u32,
    /// Its blocks.
    pub frames: Vec<Frame>,
    /// Blocks that could not be read.
    pub lost: Vec<bool>,
    /// Commands that have not ended.
    pub commands: u32,
}

/// A chunk that is being cleaned.
pub(crate) struct Victim {
    pub chunk: ChunkId,
    /// Pages of batches that were not committed when it was chosen: session, number, index of the change.
    pub held: BTreeMap<Place, (u32, u64, u32)>,
    /// The grain from which on it is to be looked at.
    pub grain: u32,
    /// Grains that may be left of blocks so that its pages do not cross them.
    pub slack_grains_left: u32,
    pub window: Option<Window>,
    /// Blocks of the page that is to move next, if it is longer than what was read.
    pub wanted_blocks: u32,
    /// Grains of the page that is to move next, if it has found no room.
    pub refused_grains: Option<u32>,
    /// All of it was looked at, and pages are left: the number from which on the map is looked through for them.
    pub left_from: u64,
}

/// The chunk that is being cleaned, if one is.
#[derive(Default)]
pub(crate) struct Cleaning {
    pub at: Option<Victim>,
}

impl Cleaning {
    /// The chunk.
    pub(crate) fn victim(&self) -> Option<ChunkId> {
        self.at.as_ref().map(|victim| victim.chunk)
    }
}
