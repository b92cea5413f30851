//! What a simulator asks of a device: to be copied, when something happens inside it, whether two are alike, and what a
//! block holds. A host cannot reach any of this.

use super::EmulatedDevice;
use super::chunks::LOST_BLOCKS;
use crate::store::{Fetched, StoreError};

use openftl_core::{Frame, Frames, Ppa, PuId, Time, TraceHash};

impl EmulatedDevice {
    /// The same device once more: from now on each goes its own way. `None` for a device that is kept in a file.
    ///
    /// # Errors
    /// Without memory for it.
    pub fn fork(&self) -> Result<Option<EmulatedDevice>, StoreError> {
        let Some(backing) = self.backing.fork()? else { return Ok(None) };
        Ok(Some(EmulatedDevice {
            profile: self.profile.clone(),
            geometry: self.geometry,
            format: self.format,
            chunks: self.chunks.clone(),
            marks: self.marks.clone(),
            erases: self.erases.clone(),
            chance: self.chance.clone(),
            schedule: self.schedule.clone(),
            backing,
            queue: self.queue.clone(),
            commits: self.commits.clone(),
            log: self.log.clone(),
            statistics: self.statistics,
            store_error: None,
            dulbe: self.dulbe,
            next_program_fails: self.next_program_fails,
            silent: self.silent.clone(),
            now: self.now,
        }))
    }

    /// The moments from now on at which what a power cut leaves becomes another: the present one, and those at which a
    /// program operation enters the cache, begins or ends, or an erase begins or ends. In order, each once.
    #[must_use]
    pub fn instants(&self) -> Vec<Time> {
        let programs = self.schedule.programs().flat_map(|program| [program.accepted, program.begins, program.done]);
        let erases = self.erases.iter().flat_map(|erase| [erase.begins, erase.done]);
        let mut instants: Vec<Time> = programs.chain(erases).filter(|instant| *instant > self.now).collect();
        instants.push(self.now);
        instants.sort_unstable();
        instants.dedup();
        instants
    }

    /// The same of one die.
    #[must_use]
    pub fn instants_of(&self, pu: PuId) -> Vec<Time> {
        let programs =
            self.schedule.programs_of(pu).flat_map(|program| [program.accepted, program.begins, program.done]);
        let erases = self.erases.iter().filter(|erase| self.format.pu_of(erase.chunk) == pu);
        let erases = erases.flat_map(|erase| [erase.begins, erase.done]);
        let mut instants: Vec<Time> = programs.chain(erases).filter(|instant| *instant > self.now).collect();
        instants.push(self.now);
        instants.sort_unstable();
        instants.dedup();
        instants
    }

    /// From now on each sense, program and erase takes up to `percent` longer or shorter than the profile says; how much follows
    /// from `seed`.
    pub fn set_jitter(&mut self, percent: u32, seed: u64) {
        self.schedule.set_jitter(percent, seed);
    }

    /// Whether a power cut at `at` finds a program operation that it can tear: one under way whose data are in no protected
    /// cache.
    #[must_use]
    pub fn would_tear(&self, at: Time) -> bool {
        !self.schedule.is_protected()
            && self.schedule.programs().any(|program| program.begins <= at && at < program.done)
    }

    /// A hash over all that a power cut leaves: states, write pointers and wear of all chunks, what is the matter with their blocks,
    /// and what these say of themselves. Devices of one profile with the same fingerprint are alike, whatever they were given, where
    /// nothing is left to chance. Of blocks that are kept whole only the out-of-band bytes count, which have a checksum of the rest.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        let mut hash = TraceHash::START;
        for id in self.geometry.chunk_ids() {
            let chunk = self.chunks.get(id);
            hash.add(u64::from(chunk.write_pointer) << 32 | u64::from(chunk.resets));
            hash.add(u64::from(chunk.flags) << 8 | chunk.state as u64);
            let has_lost = chunk.flags & LOST_BLOCKS != 0;
            for block in 0..chunk.write_pointer {
                if !has_lost || self.marks.get(&self.format.ppa(id, block)) != Some(&super::Mark::Lost) {
                    self.backing.add_to(&mut hash, id, block);
                }
            }
        }
        for (ppa, mark) in &self.marks {
            let (kind, left) = match *mark {
                super::Mark::Lost => (0, 0),
                super::Mark::Weak => (1, 0),
                super::Mark::Failing { times } => (2, times),
                super::Mark::Fading { reads } => (3, reads),
            };
            hash.add(ppa.0);
            hash.add(u64::from(left) << 2 | kind);
        }
        hash.0
    }

    /// Brings what the store keeps at `ppa` into `frame`, whatever the rules of reading say and without any time. `false` if
    /// nothing is written there, it is lost, or the frame cannot hold it.
    pub fn look(&mut self, ppa: Ppa, frames: &mut Frames, frame: Frame) -> bool {
        let (chunk, block) = (self.format.chunk_of(ppa), self.format.block_of(ppa));
        let is_written = self.chunks.exists(chunk) && block < self.chunks.get(chunk).write_pointer;
        is_written
            && self.marks.get(&ppa) != Some(&super::Mark::Lost)
            && self.backing.read(chunk, block, frames, frame) == Fetched::Good
    }
}
