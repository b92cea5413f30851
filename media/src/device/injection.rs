//! Faults on demand: what tests and the simulator do to a device. A host cannot reach any of this.

use super::chunks::{FAILURE_CLOSES, PROGRAM_FAILS};
use super::{EmulatedDevice, Mark};
use crate::contract::{ChunkState, NotifiedScope, NotifiedState};
use crate::store::StoreError;
use openftl_core::{ChunkId, Ppa};

/// How a program operation fails.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ProgramFailure {
    /// The unit holds nothing, the chunk goes on behind it ([`crate::Status::WriteFailedWriteNextUnit`]).
    NextUnit,
    /// The chunk is closed before the unit ([`crate::Status::WriteFailedChunkClosedEarly`]).
    ChunkClosed,
}

impl EmulatedDevice {
    /// From now on, until its chunk is reset, `ppa` cannot be read.
    ///
    /// # Errors
    /// If the store cannot note it.
    ///
    /// # Panics
    /// If nothing is written there.
    pub fn inject_read_failure(&mut self, ppa: Ppa) -> Result<(), StoreError> {
        let (chunk, block) = self.written(ppa);
        self.mark_lost(chunk, block)?;
        let entry = *self.chunks.get(chunk);
        self.settle(chunk, entry.state, entry.write_pointer)
    }

    /// From now on, until its chunk is reset or the device closed, `ppa` is read with high ECC.
    ///
    /// # Panics
    /// If nothing is written there.
    pub fn inject_high_ecc(&mut self, ppa: Ppa) {
        let (chunk, block) = self.written(ppa);
        self.mark(chunk, block, Mark::Weak);
    }

    /// The next `times` reads of `ppa` fail. Then it is good again, unless its chunk was reset before.
    ///
    /// # Panics
    /// If nothing is written there.
    pub fn inject_transient_read_failure(&mut self, ppa: Ppa, times: u32) {
        let (chunk, block) = self.written(ppa);
        self.mark(chunk, block, Mark::Failing { times });
    }

    /// The next program operation on `chunk` fails.
    ///
    /// # Panics
    /// If there is no such chunk.
    pub fn inject_program_failure(&mut self, chunk: ChunkId, failure: ProgramFailure) {
        assert!(self.chunks.exists(chunk), "{chunk:?} is on the device");
        *self.chunks.flags_mut(chunk) |= match failure {
            ProgramFailure::NextUnit => PROGRAM_FAILS,
            ProgramFailure::ChunkClosed => PROGRAM_FAILS | FAILURE_CLOSES,
        };
    }

    /// The next program operation on the device fails, whatever chunk it is on.
    pub fn inject_next_program_failure(&mut self, failure: ProgramFailure) {
        self.next_program_fails = Some(failure);
    }

    /// Turns one bit of the payload at `ppa`, and nobody notices: reads go well.
    ///
    /// # Errors
    /// If the store fails.
    ///
    /// # Panics
    /// If nothing is written there.
    pub fn corrupt(&mut self, ppa: Ppa) -> Result<(), StoreError> {
        let (chunk, block) = self.written(ppa);
        if self.is_lost(ppa) { Ok(()) } else { self.backing.corrupt(chunk, block) }
    }

    /// Exchanges what two blocks hold, payload and out-of-band bytes, as if each had been written to the other's place;
    /// nobody notices: reads go well. Where one of them is lost nothing happens.
    ///
    /// # Errors
    /// If the store fails.
    ///
    /// # Panics
    /// If nothing is written at one of them.
    pub fn misdirect(&mut self, one: Ppa, other: Ppa) -> Result<(), StoreError> {
        let (first, second) = (self.written(one), self.written(other));
        if self.is_lost(one) || self.is_lost(other) { Ok(()) } else { self.backing.exchange(first, second) }
    }

    /// Makes `chunk` look as if it had been erased `resets` times.
    ///
    /// # Errors
    /// If the store cannot note it.
    ///
    /// # Panics
    /// If there is no such chunk.
    pub fn set_wear(&mut self, chunk: ChunkId, resets: u32) -> Result<(), StoreError> {
        assert!(self.chunks.exists(chunk), "{chunk:?} is on the device");
        *self.chunks.resets_mut(chunk) = resets;
        let entry = *self.chunks.get(chunk);
        self.settle(chunk, entry.state, entry.write_pointer)
    }

    /// Takes `chunk` offline, with all it holds, and notifies the host.
    ///
    /// # Errors
    /// If the store cannot note it.
    ///
    /// # Panics
    /// If there is no such chunk.
    pub fn take_offline(&mut self, chunk: ChunkId) -> Result<(), StoreError> {
        assert!(self.chunks.exists(chunk), "{chunk:?} is on the device");
        if self.chunks.get(chunk).state != ChunkState::Offline {
            self.settle(chunk, ChunkState::Offline, 0)?;
            self.log.push(self.format.ppa(chunk, 0), NotifiedState::Unrecoverable, NotifiedScope::Chunk);
        }
        Ok(())
    }

    fn is_lost(&self, ppa: Ppa) -> bool {
        self.marks.get(&ppa) == Some(&Mark::Lost)
    }

    fn written(&self, ppa: Ppa) -> (ChunkId, u32) {
        let (chunk, block) = (self.format.chunk_of(ppa), self.format.block_of(ppa));
        let is_written = self.chunks.exists(chunk) && block < self.chunks.get(chunk).write_pointer;
        assert!(is_written, "something is written at {}", self.format.unpack(ppa));
        (chunk, block)
    }
}
