//! Which chunk is opened next.
//!
//! Host writes go round the parallel units, one write unit each, so that consecutive units are programmed side by side:
//! first every group, then the next parallel unit of every group. Within a parallel unit the least worn free chunk is
//! opened, but for data that rest: those go to the most worn of the group. Some free chunks are spoken for, so that nobody can ever be stuck:
//!
//! - **reserve**: each group keeps [`RELOCATION_RESERVE_CHUNKS`] for relocation;
//! - **spares**: chunks beyond the [`Plan`] are held back for chunks that go bad;
//! - **metadata**: what log and checkpoints may still need.

use crate::plan::{COLLECTION_HEADROOM_CHUNKS, Plan, RELOCATION_RESERVE_CHUNKS};
use openftl_core::{AddressFormat, ChunkId, Geometry, PuId};
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// Who asks for a chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Claim {
    /// A host frontier on one parallel unit.
    Host(PuId),
    /// The relocation frontier of a group.
    Relocation(u32),
    /// The same for data that rest: the most worn chunk of the group.
    WornRelocation(u32),
    /// Log, checkpoint or superblock; in this group if it has more than its reserve.
    Metadata(u32),
}

/// The free chunks.
pub struct Provisioning {
    format: AddressFormat,
    pus_per_group: u32,
    /// Free chunks of each parallel unit, by [`PuId`]; the least worn first.
    free: Vec<BTreeSet<(u32, ChunkId)>>,
    free_in_group: Vec<u32>,
    /// Chunks that are on their way to be free.
    coming_in_group: Vec<u32>,
    spares_in_group: Vec<u32>,
    free_total: u32,
    metadata_budget: u32,
    metadata_in_use: u32,
}

impl Provisioning {
    /// No chunk is free yet.
    #[must_use]
    pub fn new(geometry: &Geometry, plan: &Plan) -> Provisioning {
        Provisioning {
            format: geometry.format(),
            pus_per_group: geometry.pus_per_group,
            free: vec![BTreeSet::new(); geometry.format().pu_ids()],
            free_in_group: vec![0; geometry.groups as usize],
            coming_in_group: vec![0; geometry.groups as usize],
            spares_in_group: vec![0; geometry.groups as usize],
            free_total: 0,
            metadata_budget: plan.metadata_chunks() as u32,
            metadata_in_use: 0,
        }
    }

    /// Holds back `spares` chunks, spread over the groups.
    pub fn hold_spares(&mut self, spares: u32) {
        let groups = self.spares_in_group.len() as u32;
        for (group, held) in self.spares_in_group.iter_mut().enumerate() {
            *held = spares / groups + u32::from((group as u32) < spares % groups);
        }
    }

    /// A chunk has gone bad: one spare less is held back. Returns whether there was one, in this group or another.
    pub fn use_spare(&mut self, group: u32) -> bool {
        let groups = self.spares_in_group.len();
        (0..groups).map(|step| (group as usize + step) % groups).any(|group| {
            let held = &mut self.spares_in_group[group];
            let had = *held > 0;
            *held -= u32::from(had);
            had
        })
    }

    /// Chunks held back for others to go bad.
    #[must_use]
    pub fn spares(&self) -> u32 {
        self.spares_in_group.iter().sum()
    }

    /// Its state in a few words.
    pub(crate) fn describe(&self) -> String {
        format!(
            "{} of {} chunks for metadata in use, {} spares",
            self.metadata_in_use,
            self.metadata_budget,
            self.spares()
        )
    }

    /// A chunk is free from now on.
    pub fn give(&mut self, chunk: ChunkId, resets: u32) {
        let pu = self.format.pu_of(chunk);
        self.free[pu.0 as usize].insert((resets, chunk));
        self.free_in_group[self.format.group_of(pu) as usize] += 1;
        self.free_total += 1;
    }

    /// A chunk of `group` is on its way to be free.
    pub fn expect(&mut self, group: u32) {
        self.coming_in_group[group as usize] += 1;
    }

    /// It has arrived, or gone bad.
    pub fn arrived(&mut self, group: u32) {
        self.coming_in_group[group as usize] -= 1;
    }

    /// Chunks on their way to be free.
    #[must_use]
    pub fn coming(&self) -> u32 {
        self.coming_in_group.iter().sum()
    }

    /// Chunks of `group` on their way to be free.
    #[must_use]
    pub fn coming_in_group(&self, group: u32) -> u32 {
        self.coming_in_group[group as usize]
    }

    /// Free chunks that relocation in `group` may count on: its reserve, and what nobody else will need.
    #[must_use]
    pub fn relocation_chunks(&self, group: u32) -> u32 {
        let groups = self.free_in_group.len() as u32;
        let needed = groups * RELOCATION_RESERVE_CHUNKS + self.metadata_to_come();
        let beyond = self.free_total.saturating_sub(needed);
        let free = self.free_in_group(group);
        free.min(RELOCATION_RESERVE_CHUNKS + free.saturating_sub(RELOCATION_RESERVE_CHUNKS).min(beyond))
    }

    /// Free chunks of `group`.
    #[must_use]
    pub fn free_in_group(&self, group: u32) -> u32 {
        self.free_in_group[group as usize]
    }

    /// Free chunks of the drive.
    #[must_use]
    pub fn free_total(&self) -> u32 {
        self.free_total
    }

    /// Free chunks of the drive below which collection should begin.
    #[must_use]
    pub fn target(&self) -> u32 {
        let groups = self.free_in_group.len() as u32;
        groups * (RELOCATION_RESERVE_CHUNKS + COLLECTION_HEADROOM_CHUNKS) + self.spares() + self.metadata_to_come()
    }

    /// Free chunks of `group` below which it is collected however little that gives back: its reserve, one for the host,
    /// and its spares.
    #[must_use]
    pub fn fewest_in_group(&self, group: u32) -> u32 {
        RELOCATION_RESERVE_CHUNKS + 1 + self.spares_in_group[group as usize]
    }

    /// Chunks that log and checkpoints may still take.
    fn metadata_to_come(&self) -> u32 {
        self.metadata_budget.saturating_sub(self.metadata_in_use)
    }

    /// Chunks that host writes may still open, all groups together.
    #[must_use]
    pub fn host_chunks(&self) -> u32 {
        let groups = self.free_in_group.len() as u32;
        (0..groups).map(|group| self.host_chunks_in_group(group)).sum::<u32>().min(self.host_chunks_in_all())
    }

    fn host_chunks_in_group(&self, group: u32) -> u32 {
        let held = RELOCATION_RESERVE_CHUNKS + self.spares_in_group[group as usize];
        self.free_in_group[group as usize].saturating_sub(held)
    }

    fn host_chunks_in_all(&self) -> u32 {
        let groups = self.free_in_group.len() as u32;
        self.free_total.saturating_sub(groups * RELOCATION_RESERVE_CHUNKS + self.spares() + self.metadata_to_come())
    }

    /// Takes a free chunk for `claim`, or `None` if none may be had.
    pub fn take(&mut self, claim: Claim) -> Option<ChunkId> {
        let pu = match claim {
            Claim::Host(pu) => {
                let group = self.format.group_of(pu);
                if self.host_chunks_in_group(group) == 0 || self.host_chunks_in_all() == 0 {
                    return None;
                }
                pu
            }
            Claim::Relocation(group) => self.fullest_pu(group),
            Claim::WornRelocation(group) => self.most_worn_pu(group),
            Claim::Metadata(preferred) => {
                let groups = self.free_in_group.len() as u32;
                // A group's reserve only if another chunk of the group is on its way: relocation could not go on without.
                let left = |group: u32| match self.free_in_group(group) {
                    0 => 0,
                    free => free + self.coming_in_group[group as usize],
                };
                let group = if self.host_chunks_in_group(preferred % groups) > 0 {
                    preferred % groups
                } else {
                    (0..groups).max_by_key(|group| (left(*group), Reverse(*group)))?
                };
                if left(group) <= RELOCATION_RESERVE_CHUNKS {
                    return None;
                }
                self.fullest_pu(group)
            }
        };
        let free = &mut self.free[pu.0 as usize];
        let taken = if matches!(claim, Claim::WornRelocation(_)) { free.pop_last() } else { free.pop_first() };
        let (_, chunk) = taken?;
        self.free_in_group[self.format.group_of(pu) as usize] -= 1;
        self.free_total -= 1;
        if matches!(claim, Claim::Metadata(_)) {
            self.metadata_in_use += 1;
        }
        Some(chunk)
    }

    /// Chunks that log and checkpoints have.
    #[must_use]
    pub fn metadata_in_use(&self) -> u32 {
        self.metadata_in_use
    }

    /// A chunk of log or checkpoint is no longer in use (it comes back through [`Provisioning::give`] after its reset).
    pub fn end_metadata(&mut self) {
        self.metadata_in_use -= 1;
    }

    /// Counts a chunk that was found in use for log or checkpoint when the drive was opened.
    pub fn begin_metadata(&mut self) {
        self.metadata_in_use += 1;
    }

    /// The parallel unit of `group` with the most worn free chunk.
    fn most_worn_pu(&self, group: u32) -> PuId {
        (0..self.pus_per_group)
            .map(|pu| self.format.pu_id(group, pu))
            .max_by_key(|pu| self.free[pu.0 as usize].last().map(|(resets, _)| *resets))
            .expect("a group has at least one parallel unit")
    }

    fn fullest_pu(&self, group: u32) -> PuId {
        (0..self.pus_per_group)
            .map(|pu| self.format.pu_id(group, pu))
            .max_by_key(|pu| (self.free[pu.0 as usize].len(), Reverse(*pu)))
            .expect("a group has at least one parallel unit")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    fn provisioning() -> (Geometry, Provisioning) {
        let geometry = Geometry { chunks_per_pu: 64, ..Geometry::tiny() };
        let plan = Plan::new(&geometry, &Config { capacity_blocks: 512, ..Config::default() }).unwrap();
        let mut provisioning = Provisioning::new(&geometry, &plan);
        for chunk in geometry.chunk_ids() {
            provisioning.give(chunk, 0);
        }
        (geometry, provisioning)
    }

    #[test]
    fn the_least_worn_chunk_of_a_parallel_unit_is_opened_first() {
        let (geometry, mut provisioning) = provisioning();
        let pu = geometry.pu_ids().next().unwrap();
        let mut taken = Vec::new();
        while let Some(chunk) = provisioning.take(Claim::Host(pu)) {
            taken.push(chunk);
        }
        provisioning.give(taken[0], 2);
        provisioning.give(taken[1], 1);
        provisioning.give(taken[2], 3);
        let order: Vec<_> = (0..3).filter_map(|_| provisioning.take(Claim::Host(pu))).collect();
        assert_eq!(order, [taken[1], taken[0], taken[2]]);
    }

    #[test]
    fn the_host_never_gets_the_reserve_and_relocation_does() {
        let (geometry, mut provisioning) = provisioning();
        for pu in geometry.pu_ids() {
            while provisioning.take(Claim::Host(pu)).is_some() {}
        }
        for group in 0..geometry.groups {
            assert!(provisioning.free_in_group(group) >= RELOCATION_RESERVE_CHUNKS);
            assert!(provisioning.take(Claim::Relocation(group)).is_some());
        }
    }

    #[test]
    fn what_metadata_may_need_is_kept_from_the_host() {
        let (geometry, mut provisioning) = provisioning();
        for pu in geometry.pu_ids() {
            while provisioning.take(Claim::Host(pu)).is_some() {}
        }
        let budget = provisioning.metadata_budget;
        for number in 0..budget {
            assert!(provisioning.take(Claim::Metadata(number)).is_some(), "chunk {number} of {budget}");
        }
        for group in 0..geometry.groups {
            assert!(provisioning.free_in_group(group) >= RELOCATION_RESERVE_CHUNKS, "not at the expense of relocation");
        }
    }

    #[test]
    fn spares_are_used_one_for_each_bad_chunk() {
        let (_, mut provisioning) = provisioning();
        provisioning.hold_spares(3);
        assert_eq!(provisioning.spares(), 3);
        assert!(provisioning.use_spare(0) && provisioning.use_spare(0) && provisioning.use_spare(0));
        assert!(!provisioning.use_spare(1));
    }
}
