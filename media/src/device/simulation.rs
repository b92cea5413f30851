//! What a simulator asks of a device: to be copied, when something happens inside it, whether two are alike, and what a
//! block holds. A host cannot reach any of this.

use super::EmulatedDevice;
use super::chunks::ABSENT;
use crate::store::{Fetched, StoreError};

use openftl_core::{Frame, Frames, Ppa, Time, TraceHash};

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

    /// Whether a power cut at `at` finds a program operation that it can tear: one under way whose data are in no protected
    /// cache.
    #[must_use]
    pub fn would_tear(&self, at: Time) -> bool {
        !self.schedule.is_protected()
            && self.schedule.programs().any(|program| program.begins <= at && at < program.done)
    }

    /// A hash over states, write pointers, wear and lost blocks of all chunks. What the blocks hold is not in it: of two
    /// forks of one device that were given the same commands so far, those with the same fingerprint are alike.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        let mut hash = TraceHash::START;
        for chunk in
            self.geometry.chunk_ids().map(|chunk| self.chunks.get(chunk)).filter(|chunk| chunk.flags & ABSENT == 0)
        {
            hash.add(u64::from(chunk.write_pointer) << 32 | u64::from(chunk.resets));
            hash.add(u64::from(chunk.flags) << 8 | chunk.state as u64);
        }
        for (ppa, mark) in &self.marks {
            hash.add(ppa.0 << 1 | u64::from(*mark == super::Mark::Lost));
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
