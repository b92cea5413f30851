//! Which chunk is opened next.
//!
//! Host writes go round the parallel units, one write unit each, so that consecutive units are programmed side by side:
//! first every group, then the next parallel unit of every group. Within a parallel unit the least worn free chunk is
//! opened, but for data that rest: those go to the most worn of the group. Some free chunks are spoken for, so that nobody
//! can ever be stuck:
//!
//! - **reserve**: each group keeps [`RELOCATION_RESERVE_CHUNKS`] for relocation;
//! - **kept apart**: what collection may still open for blocks that a placement keeps apart;
//! - **spares**: chunks beyond the [`Plan`] are held back for chunks that go bad;
//! - **metadata**: what log and checkpoints may still need;
//! - **a tenant's**: each group's share for a [tenant](crate::tenant). Nothing else counts them as free.
//!
//! The copies of the metadata have different *homes*: every other group, or every other parallel unit of the one group.
//! They leave them only when there is no room.

use crate::flash::plan::{COLLECTION_HEADROOM_CHUNKS, Plan, RELOCATION_RESERVE_CHUNKS};
use crate::words::METADATA_COPIES;
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
    /// What relocation in a group keeps apart: never its reserve.
    Destination(u32),
    /// One copy of a checkpoint: in its home if there is more than the reserve, group after group by turns.
    Metadata {
        /// Which copy.
        copy: usize,
        /// Whose turn it is.
        turn: u32,
    },
    /// The same for one of the log. At the end of a drive's life, where the log asks when it cannot go on without, any chunk:
    /// what relocation would empty with it could not be reset.
    Log {
        /// Which copy.
        copy: usize,
        /// Whose turn it is.
        turn: u32,
    },
    /// The tenant, on one parallel unit.
    Tenant(PuId),
}

/// The free chunks.
pub struct Provisioning {
    format: AddressFormat,
    pus_per_group: u32,
    /// Free chunks of each parallel unit, by [`PuId`]; the least worn first.
    free: Vec<BTreeSet<(u32, ChunkId)>>,
    free_in_group: Vec<u32>,
    /// Chunks that are on their way to be free, and those of them that the device is resetting.
    coming_in_group: Vec<u32>,
    resetting_in_group: Vec<u32>,
    spares_in_group: Vec<u32>,
    /// Spares that were given away before a chunk was found to be bad.
    lent: u32,
    free_total: u32,
    metadata_budget: u32,
    metadata_in_use: u32,
    /// What [`Provisioning::host_chunks`] says: every write asks, and what it follows from changes with whole chunks.
    host_chunks: u32,
    /// Chunks that collection may still open for what is kept apart.
    kept_apart: u32,
    /// Chunks of each group that the tenant may have, and those that it has.
    tenant_share: Vec<u32>,
    tenant_in_use: Vec<u32>,
    /// Of those, chunks on their way to be free, or found and not yet known to be the tenant's.
    tenant_leaves: u32,
    tenant_gains: u64,
    is_at_end_of_life: bool,
    /// Nothing else makes room: metadata may take the reserves, and relocation chunks of other groups.
    reserves_are_lent: bool,
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
            resetting_in_group: vec![0; geometry.groups as usize],
            spares_in_group: vec![0; geometry.groups as usize],
            lent: 0,
            free_total: 0,
            metadata_budget: plan.metadata_chunks() as u32,
            metadata_in_use: 0,
            host_chunks: 0,
            kept_apart: 0,
            tenant_share: vec![0; geometry.groups as usize],
            tenant_in_use: vec![0; geometry.groups as usize],
            tenant_leaves: 0,
            tenant_gains: 0,
            is_at_end_of_life: false,
            reserves_are_lent: false,
        }
    }

    /// Gives the tenant a share of each group.
    pub fn share_with_tenant(&mut self, share: Vec<u32>) {
        self.tenant_share = share;
        self.tenant_gains += 1;
        self.count_host_chunks();
    }

    /// A chunk of `group` was found in use for the tenant when the drive was opened.
    pub fn begin_tenant_chunk(&mut self, group: u32) {
        self.tenant_in_use[group as usize] += 1;
        self.count_host_chunks();
    }

    /// A chunk of `group` is no longer in use for the tenant (it comes back through [`Provisioning::give`] after its reset).
    pub fn end_tenant_chunk(&mut self, group: u32) {
        self.tenant_in_use[group as usize] -= 1;
        self.tenant_gains += 1;
        self.count_host_chunks();
    }

    /// Rises whenever the tenant may have got a chunk that it could not have before.
    #[inline]
    #[must_use]
    pub fn tenant_gains(&self) -> u64 {
        self.tenant_gains
    }

    /// Chunks of `group` that the tenant may have, whether it has them or not.
    #[must_use]
    pub fn tenant_share(&self, group: u32) -> u32 {
        self.tenant_share[group as usize]
    }

    /// Chunks of `group` that the tenant does not have yet, and could when nothing waits for its reset.
    #[inline]
    #[must_use]
    pub fn tenant_share_left(&self, group: u32) -> u32 {
        self.tenant_share[group as usize].saturating_sub(self.tenant_in_use[group as usize])
    }

    /// Chunks in use for the tenant.
    #[must_use]
    pub fn tenant_in_use(&self) -> u32 {
        self.tenant_in_use.iter().sum()
    }

    /// Of the chunks in use for the tenant so many are on their way to be free, or not yet known to be its own.
    pub fn leave_by_tenant(&mut self, chunks: usize) {
        self.tenant_leaves = chunks as u32;
    }

    /// Chunks that the tenant has for now.
    #[must_use]
    pub fn held_by_tenant(&self) -> u32 {
        self.tenant_in_use().saturating_sub(self.tenant_leaves)
    }

    /// Whether the tenant has more of `group` than its share: what was left open there may have been found in use for it.
    #[must_use]
    pub fn tenant_has_too_much(&self, group: u32) -> bool {
        self.tenant_in_use[group as usize] > self.tenant_share[group as usize]
    }

    /// Free chunks of `pu` that the tenant may have now.
    #[must_use]
    pub fn tenant_chunks_on_pu(&self, pu: PuId) -> u32 {
        (self.free_on_pu(pu) as u32).min(self.tenant_share_left(self.format.group_of(pu)))
    }

    /// Free chunks of `group` that are kept for the tenant.
    #[inline]
    fn kept_for_tenant(&self, group: u32) -> u32 {
        self.tenant_share_left(group).min(self.free_in_group[group as usize])
    }

    /// Holds back `spares` chunks, spread over the groups.
    pub fn hold_spares(&mut self, spares: u32) {
        let groups = self.spares_in_group.len() as u32;
        for (group, held) in self.spares_in_group.iter_mut().enumerate() {
            *held = spares / groups + u32::from((group as u32) < spares % groups);
        }
        self.count_host_chunks();
    }

    /// A chunk has gone bad: one spare less is held back. Returns whether there was one, in this group or another.
    pub fn use_spare(&mut self, group: u32) -> bool {
        if self.lent > 0 {
            self.lent -= 1;
            return true;
        }
        if self.take_spare(group) {
            return true;
        }
        // Tables do with less before data do.
        let share = &mut self.tenant_share[group as usize];
        let had = *share > 0;
        *share -= u32::from(had);
        self.count_host_chunks();
        had
    }

    /// Holds one spare less back, ahead of the next chunk that goes bad: programs have failed in chunks that cannot be
    /// emptied, and so not be retired, before what was to be there is somewhere else. Returns whether there was one.
    pub fn lend_spare(&mut self) -> bool {
        let has_lent = self.take_spare(0);
        self.lent += u32::from(has_lent);
        has_lent
    }

    fn take_spare(&mut self, group: u32) -> bool {
        let groups = self.spares_in_group.len();
        let holder =
            (0..groups).map(|step| (group as usize + step) % groups).find(|group| self.spares_in_group[*group] > 0);
        let Some(holder) = holder else { return false };
        self.spares_in_group[holder] -= 1;
        self.count_host_chunks();
        true
    }

    /// Chunks held back for others to go bad.
    #[inline]
    #[must_use]
    pub fn spares(&self) -> u32 {
        self.spares_in_group.iter().sum()
    }

    /// Its state in a few words.
    pub fn describe(&self) -> String {
        let tenant: Vec<String> = self
            .tenant_in_use
            .iter()
            .zip(&self.tenant_share)
            .filter(|(in_use, share)| **in_use + **share > 0)
            .map(|(in_use, share)| format!("{in_use} of {share}"))
            .collect();
        format!(
            "{} of {} chunks for metadata in use, {} spares, for a tenant {tenant:?}",
            self.metadata_in_use,
            self.metadata_budget,
            self.spares()
        )
    }

    /// Keeps so many chunks from the host, for what collection keeps apart.
    pub fn keep_apart(&mut self, chunks: u32) {
        self.kept_apart = if self.is_at_end_of_life { 0 } else { chunks };
        self.count_host_chunks();
    }

    /// A chunk is free from now on.
    pub fn give(&mut self, chunk: ChunkId, resets: u32) {
        let pu = self.format.pu_of(chunk);
        self.reserves_are_lent = false;
        self.free[pu.0 as usize].insert((resets, chunk));
        self.free_in_group[self.format.group_of(pu) as usize] += 1;
        self.free_total += 1;
        self.tenant_gains += 1;
        self.count_host_chunks();
    }

    /// A chunk of `group` is on its way to be free.
    pub fn expect(&mut self, group: u32) {
        self.coming_in_group[group as usize] += 1;
    }

    /// The device resets it.
    pub fn begin_reset(&mut self, group: u32) {
        self.resetting_in_group[group as usize] += 1;
    }

    /// The reset has ended, one way or the other.
    pub fn end_reset(&mut self, group: u32) {
        self.resetting_in_group[group as usize] -= 1;
    }

    /// It has arrived, or gone bad.
    pub fn arrived(&mut self, group: u32) {
        self.coming_in_group[group as usize] -= 1;
    }

    /// Nothing else makes room: until a chunk is free again metadata may take the reserves, and relocation any free chunk.
    /// Returns whether that is new.
    pub fn lend_reserves(&mut self) -> bool {
        !std::mem::replace(&mut self.reserves_are_lent, true)
    }

    /// Chunks on their way to be free.
    #[inline]
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
        if self.reserves_are_lent {
            return self.free_total();
        }
        let groups = self.free_in_group.len() as u32;
        let needed = groups * RELOCATION_RESERVE_CHUNKS + self.metadata_to_come();
        let beyond = self.free_total().saturating_sub(needed);
        let free = self.free_in_group(group);
        free.min(RELOCATION_RESERVE_CHUNKS + free.saturating_sub(RELOCATION_RESERVE_CHUNKS).min(beyond))
    }

    /// Free chunks of `group`, those for the tenant not counted.
    #[inline]
    #[must_use]
    pub fn free_in_group(&self, group: u32) -> u32 {
        self.free_in_group[group as usize] - self.kept_for_tenant(group)
    }

    /// Chunks of `group` that are free or on their way, with `more` of which it does not know yet, once the tenant has given back
    /// `leaving` and taken all of their share.
    #[must_use]
    pub fn room_to_come(&self, group: u32, more: u32, leaving: u32) -> u32 {
        let index = group as usize;
        let all = self.free_in_group[index] + self.coming_in_group[index] + more;
        let kept = self.tenant_share[index].saturating_sub(self.tenant_in_use[index] - leaving);
        all.saturating_sub(kept)
    }

    /// Free chunks of `pu`.
    #[must_use]
    pub fn free_on_pu(&self, pu: PuId) -> usize {
        self.free[pu.0 as usize].len()
    }

    /// Free chunks of the drive, those for the tenant not counted.
    #[inline]
    #[must_use]
    pub fn free_total(&self) -> u32 {
        let groups = 0..self.tenant_share.len() as u32;
        self.free_total - groups.map(|group| self.kept_for_tenant(group)).sum::<u32>()
    }

    /// Free chunks of the drive below which collection should begin.
    #[inline]
    #[must_use]
    pub fn target(&self) -> u32 {
        let groups = self.free_in_group.len() as u32;
        let held = self.spares() + self.metadata_to_come() + self.kept_apart;
        groups * (RELOCATION_RESERVE_CHUNKS + COLLECTION_HEADROOM_CHUNKS) + held
    }

    /// Free chunks of `group` below which it is collected however little that gives back: its reserve, one for the host,
    /// and its spares.
    #[inline]
    #[must_use]
    pub fn fewest_in_group(&self, group: u32) -> u32 {
        RELOCATION_RESERVE_CHUNKS + 1 + self.spares_in_group[group as usize]
    }

    /// Chunks that log and checkpoints may still take.
    #[inline]
    #[must_use]
    pub fn metadata_to_come(&self) -> u32 {
        self.metadata_budget.saturating_sub(self.metadata_in_use)
    }

    /// Chunks that host writes may still open, all groups together.
    #[inline]
    #[must_use]
    pub fn host_chunks(&self) -> u32 {
        self.host_chunks
    }

    /// Counts them anew: something has changed that they follow from.
    fn count_host_chunks(&mut self) {
        let groups = 0..self.free_in_group.len() as u32;
        let in_groups = groups.map(|group| self.host_chunks_in_group(group)).sum::<u32>();
        self.host_chunks = in_groups.min(self.host_chunks_in_all());
    }

    #[inline]
    fn host_chunks_in_group(&self, group: u32) -> u32 {
        let held = RELOCATION_RESERVE_CHUNKS + self.spares_in_group[group as usize];
        self.free_in_group(group).saturating_sub(held)
    }

    #[inline]
    fn host_chunks_in_all(&self) -> u32 {
        let groups = self.free_in_group.len() as u32;
        let held = self.spares() + self.metadata_to_come() + self.kept_apart;
        self.free_total().saturating_sub(groups * RELOCATION_RESERVE_CHUNKS + held)
    }

    /// Takes a free chunk for `claim`, or `None` if none may be had.
    pub fn take(&mut self, claim: Claim) -> Option<ChunkId> {
        let pu = match claim {
            Claim::Host(pu) => {
                let group = self.format.group_of(pu);
                // Most of those who ask again and again find that there is none anywhere.
                if self.host_chunks == 0 || self.host_chunks_in_group(group) == 0 {
                    return None;
                }
                pu
            }
            Claim::Destination(group) if self.relocation_chunks(group) <= RELOCATION_RESERVE_CHUNKS => {
                return None;
            }
            Claim::Relocation(group) if self.reserves_are_lent && self.free_in_group(group) == 0 => {
                let groups = 0..self.free_in_group.len() as u32;
                self.fullest_pu(groups.max_by_key(|group| (self.free_in_group(*group), Reverse(*group)))?)
            }
            Claim::Relocation(group) | Claim::Destination(group) => self.fullest_pu(group),
            Claim::WornRelocation(group) => self.most_worn_pu(group),
            Claim::Metadata { copy, turn } => self.metadata_pu(copy, turn, self.reserves_are_lent)?,
            Claim::Log { copy, turn } => {
                self.metadata_pu(copy, turn, self.reserves_are_lent || self.is_at_end_of_life)?
            }
            Claim::Tenant(pu) if self.tenant_chunks_on_pu(pu) == 0 => return None,
            Claim::Tenant(pu) => pu,
        };
        let free = &mut self.free[pu.0 as usize];
        let taken = if matches!(claim, Claim::WornRelocation(_)) { free.pop_last() } else { free.pop_first() };
        let (_, chunk) = taken?;
        self.free_in_group[self.format.group_of(pu) as usize] -= 1;
        self.free_total -= 1;
        match claim {
            Claim::Metadata { .. } | Claim::Log { .. } => self.metadata_in_use += 1,
            Claim::Tenant(pu) => self.begin_tenant_chunk(self.format.group_of(pu)),
            _ => {}
        }
        self.count_host_chunks();
        Some(chunk)
    }

    /// Takes a certain free chunk, which was reset so often, for the tenant. Returns whether it was there.
    pub fn take_for_tenant(&mut self, chunk: ChunkId, resets: u32) -> bool {
        let pu = self.format.pu_of(chunk);
        let is_there = self.tenant_chunks_on_pu(pu) > 0 && self.free[pu.0 as usize].remove(&(resets, chunk));
        if is_there {
            let group = self.format.group_of(pu);
            self.free_in_group[group as usize] -= 1;
            self.free_total -= 1;
            self.begin_tenant_chunk(group);
        }
        is_there
    }

    fn metadata_pu(&self, copy: usize, turn: u32, has_reserves: bool) -> Option<PuId> {
        let groups = self.free_in_group.len() as u32;
        let copies = METADATA_COPIES as u32;
        let homes = (groups + copies - 1 - copy as u32) / copies;
        // Where the one whose turn it is has none to spare, those behind it: chunks that are read at once are rarely in one group.
        let homes = (0..homes).map(|behind| copy as u32 + (turn + behind) % homes * copies);
        // A group's reserve only if the device is resetting another chunk of the group: relocation could not go on without,
        // and a reset that waits for the log may wait for the very chunk that is wanted.
        let left = |group: u32| match self.free_in_group(group) {
            0 => 0,
            free => free + self.resetting_in_group[group as usize],
        };
        let only = (groups == 1).then_some(0);
        let group = homes
            .chain(only)
            .find(|group| self.host_chunks_in_group(*group) > 0)
            .or_else(|| (0..groups).max_by_key(|group| (left(*group), Reverse(*group))))?;
        let kept = if has_reserves { 0 } else { RELOCATION_RESERVE_CHUNKS };
        if left(group) <= kept {
            return None;
        }
        if groups > 1 {
            return Some(self.fullest_pu(group));
        }
        let free = |pu: &PuId| self.free[pu.0 as usize].len();
        let home = (0..self.pus_per_group).filter(|pu| pu % copies == copy as u32);
        let home = home.map(|pu| self.format.pu_id(group, pu)).max_by_key(|pu| (free(pu), Reverse(*pu)));
        Some(home.filter(|pu| free(pu) > 0).unwrap_or_else(|| self.fullest_pu(group)))
    }

    /// Chunks that log and checkpoints have.
    #[must_use]
    pub fn metadata_in_use(&self) -> u32 {
        self.metadata_in_use
    }

    /// A chunk of log or checkpoint is no longer in use (it comes back through [`Provisioning::give`] after its reset).
    pub fn end_metadata(&mut self) {
        self.metadata_in_use -= 1;
        self.count_host_chunks();
    }

    /// Counts a chunk that was found in use for log or checkpoint when the drive was opened.
    pub fn begin_metadata(&mut self) {
        self.metadata_in_use += 1;
        self.count_host_chunks();
    }

    /// Nothing new will be written, only what was acknowledged is saved: what was kept for later may be used for that.
    pub fn end_of_life(&mut self) {
        self.spares_in_group.fill(0);
        // Room for what was acknowledged comes before what placement is to keep apart.
        self.kept_apart = 0;
        // The tenant opens none any more, and the log may have what it would have had.
        self.tenant_share.fill(0);
        self.is_at_end_of_life = true;
        self.count_host_chunks();
    }

    /// At the end of its life a drive may do without the checkpoints that would shorten its log: of what was kept for metadata
    /// stays a chunk for each copy of the log. Returns whether there was more.
    pub fn lend_metadata(&mut self) -> bool {
        let kept = self.metadata_in_use + METADATA_COPIES as u32;
        let had = self.is_at_end_of_life && self.metadata_budget > kept;
        if had {
            self.metadata_budget = kept;
            self.count_host_chunks();
        }
        had
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
        let geometry = Geometry { chunks_per_pu: 128, ..Geometry::tiny() };
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
    fn chunks_for_the_host_are_those_of_each_group_and_no_more_than_the_drive_can_spare() {
        let (geometry, mut provisioning) = provisioning();
        provisioning.hold_spares(3);
        provisioning.share_with_tenant((0..geometry.groups).map(|group| 20 * group).collect());
        provisioning.begin_tenant_chunk(geometry.groups - 1);
        for pu in geometry.pu_ids() {
            loop {
                let groups = (0..geometry.groups).map(|group| provisioning.host_chunks_in_group(group));
                assert_eq!(provisioning.host_chunks(), groups.sum::<u32>().min(provisioning.host_chunks_in_all()));
                if provisioning.take(Claim::Host(pu)).is_none() {
                    break;
                }
            }
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
            let claim = Claim::Metadata { copy: number as usize % METADATA_COPIES, turn: number };
            assert!(provisioning.take(claim).is_some(), "chunk {number} of {budget}");
        }
        for group in 0..geometry.groups {
            assert!(provisioning.free_in_group(group) >= RELOCATION_RESERVE_CHUNKS, "not at the expense of relocation");
        }
    }

    #[test]
    fn the_copies_of_the_metadata_have_different_homes() {
        for groups in [1, 2, 3, 8] {
            let geometry = Geometry { groups, chunks_per_pu: 128, ..Geometry::tiny() };
            let plan = Plan::new(&geometry, &Config { capacity_blocks: 512, ..Config::default() }).unwrap();
            let mut provisioning = Provisioning::new(&geometry, &plan);
            for chunk in geometry.chunk_ids() {
                provisioning.give(chunk, 0);
            }
            let format = geometry.format();
            let mut homes = [const { Vec::new() }; METADATA_COPIES];
            for turn in 0..6 {
                for (copy, homes) in homes.iter_mut().enumerate() {
                    let pu = format.pu_of(provisioning.take(Claim::Metadata { copy, turn }).unwrap());
                    homes.push(if groups == 1 { pu.0 } else { format.group_of(pu) });
                }
            }
            assert!(homes[0].iter().all(|home| !homes[1].contains(home)), "{groups} groups: {homes:?}");
            let used: rustc_hash::FxHashSet<u32> = homes.concat().into_iter().collect();
            assert_eq!(used.len() as u32, groups.max(2), "turns go round: {homes:?}");
        }
    }

    #[test]
    fn the_turn_of_a_home_without_room_goes_to_the_one_behind_it() {
        let geometry = Geometry { groups: 8, chunks_per_pu: 128, ..Geometry::tiny() };
        let format = geometry.format();
        let plan = Plan::new(&geometry, &Config { capacity_blocks: 512, ..Config::default() }).unwrap();
        let mut provisioning = Provisioning::new(&geometry, &plan);
        for chunk in geometry.chunk_ids().filter(|chunk| format.group_of(format.pu_of(*chunk)) != 4) {
            provisioning.give(chunk, 0);
        }
        let groups = [0, 1, 2, 3, 4].map(|turn| {
            let chunk = provisioning.take(Claim::Log { copy: 0, turn }).unwrap();
            format.group_of(format.pu_of(chunk))
        });
        assert_eq!(groups, [0, 2, 6, 6, 0]);
    }

    /// Found by the explorer: a worn-out drive gave its last free chunk to relocation while the log waited for one. What
    /// relocation emptied could not be reset before the log was durable.
    #[test]
    fn at_the_end_of_a_drives_life_the_log_may_have_what_is_kept_for_relocation() {
        let (geometry, mut provisioning) = provisioning();
        for group in 0..geometry.groups {
            while provisioning.free_in_group(group) > RELOCATION_RESERVE_CHUNKS {
                provisioning.take(Claim::Relocation(group)).unwrap();
            }
        }
        let (log, checkpoint) = (Claim::Log { copy: 0, turn: 0 }, Claim::Metadata { copy: 0, turn: 0 });
        assert_eq!([provisioning.take(log), provisioning.take(checkpoint)], [None, None]);
        provisioning.end_of_life();
        assert_eq!(provisioning.take(checkpoint), None);
        assert!(provisioning.take(log).is_some());
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
