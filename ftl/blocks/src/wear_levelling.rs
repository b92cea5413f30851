//! Wear levelling: every chunk is reset about as often as any other.
//!
//! The *dynamic* half lives in [`openftl_parts::flash::provisioning`]: what the host writes goes to the least worn free chunk. That is no
//! help against data that rest, because the chunks below them are never free. The *static* half moves such data:
//!
//! ```text
//!   closed, fewest resets ── its data rest ──▶ the most worn free chunk, which rests with them
//!            │
//!            └──▶ free, the least worn of its parallel unit: what the host writes next goes there
//! ```
//!
//! That costs as many writes as a chunk has blocks, and spares the worn chunk about as many resets as the limit says. So on
//! a drive of which the share c rests, a limit of n adds c/n to the write amplification and leaves n of the resets that a
//! chunk stands unused; both together are least near n = √(2c × endurance). On a drive whose data are all alike nothing is
//! moved: there it is enough that of victims as empty as each other the least worn is collected
//! ([`openftl_parts::flash::chunk_table::ChunkTable::victim`]).
//!
//! Groups need no levelling between them: the frontier goes round all parallel units, so each group is written alike,
//! whatever the host writes.

use crate::block_ftl::BlockFtl;
use openftl_core::ChunkId;

/// How far beyond the limit wear may spread while data move.
pub const WEAR_SPREAD_SLACK: u32 = 8;

/// Resets in a group between two chunks that are moved there, at least: moving costs no more than one write in so many.
const RESETS_PER_MOVE_MIN: u32 = 8;

/// Which groups wear unevenly.
pub struct WearLevelling {
    groups: Vec<Group>,
    /// Groups in which a chunk is to be moved.
    due: u32,
}

#[derive(Clone, Copy, Default)]
struct Group {
    /// Since a chunk was last moved.
    resets: u32,
    /// A chunk is to be moved.
    due: bool,
}

impl WearLevelling {
    /// Nothing is uneven yet.
    #[must_use]
    pub fn new(groups: u32) -> WearLevelling {
        WearLevelling { groups: vec![Group::default(); groups as usize], due: 0 }
    }

    /// Groups in which data are to be moved.
    #[inline]
    #[must_use]
    pub fn due(&self) -> u32 {
        self.due
    }

    /// A chunk of `group` is being moved.
    pub(crate) fn begin(&mut self, group: u32) {
        self.set_due(group, false);
        self.groups[group as usize].resets = 0;
    }

    fn set_due(&mut self, group: u32, due: bool) {
        let was = std::mem::replace(&mut self.groups[group as usize].due, due);
        self.due = self.due + u32::from(due) - u32::from(was);
    }
}

impl BlockFtl {
    /// How much more often than any closed chunk of `group` the most worn one was reset.
    fn wear_spread(&self, group: u32) -> u32 {
        let least = self.flash.chunks.least_worn_closed(group).map(|(resets, _)| resets);
        least.map_or(0, |least| self.flash.chunks.most_resets(group) - least)
    }

    /// `chunk` was reset: looks whether its group wears unevenly now.
    pub(crate) fn watch_wear(&mut self, chunk: ChunkId) {
        let Some(most) = self.config.wear_spread_max else { return };
        let group = self.flash.group_of(chunk);
        let is_due = self.wear_spread(group) > most;
        let watched = &mut self.wear_levelling.groups[group as usize];
        watched.resets = watched.resets.saturating_add(1);
        let may_move = watched.resets >= RESETS_PER_MOVE_MIN;
        self.wear_levelling.set_due(group, is_due && may_move);
    }

    /// The chunk of `group` whose data rest while others wear: little worn, and closed for a whole drive write at least.
    /// What was written lately to a chunk that is little worn will make room by itself.
    pub(crate) fn resting(&mut self, group: u32) -> Option<ChunkId> {
        let most = self.config.wear_spread_max.filter(|_| self.wear_levelling.groups[group as usize].due)?;
        let resets_below = self.flash.chunks.most_resets(group).saturating_sub(most);
        let closed_by = self.buffer.head().checked_sub(self.flash.plan.capacity_blocks);
        let resting = closed_by.and_then(|closed_by| self.flash.chunks.resting(group, resets_below, closed_by));
        // Looked for again after the next reset.
        self.wear_levelling.set_due(group, resting.is_some());
        resting
    }
}
