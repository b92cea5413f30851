//! The work that each parallel unit has: whoever may read either of two copies chooses by it.
//!
//! A die carries out its commands in order, so a read of the die with less to do ends sooner. The work is estimated: an FTL does not
//! know how long a program or a reset takes on this device.

use crate::flash::reads::Read;
use crate::flash::units::Unit;
use openftl_core::{AddressFormat, ChunkId, Ppa, PuId};

/// A program counts as so many reads of one block: a guess, rather low for MLC.
const PROGRAM_READS: u32 = 8;

/// A reset counts as so many.
const RESET_READS: u32 = 16;

/// Commands of each parallel unit that the device has, or will be handed, weighed in reads of one block.
#[derive(Default)]
pub struct Backlog {
    /// By parallel unit; nothing where nobody asks.
    reads: Vec<u32>,
}

impl Backlog {
    /// Of a device with addresses like these.
    #[must_use]
    pub fn new(format: AddressFormat) -> Backlog {
        Backlog { reads: vec![0; format.pu_ids()] }
    }

    /// Which of `places` is on the parallel unit with the least to do; the first of several.
    #[must_use]
    pub fn least<const N: usize>(&self, format: AddressFormat, places: [Ppa; N]) -> usize {
        let of = |place: Ppa| self.reads.get(format.pu_of(format.chunk_of(place)).0 as usize).copied().unwrap_or(0);
        (0..N).min_by_key(|index| of(places[*index])).unwrap_or(0)
    }

    /// Whether somebody asks.
    #[inline]
    pub(super) fn is_kept(&self) -> bool {
        !self.reads.is_empty()
    }

    fn change(&mut self, pu: PuId, reads: u32, is_more: bool) {
        let of = &mut self.reads[pu.0 as usize];
        debug_assert!(is_more || *of >= reads, "a command ends that was not counted when it was submitted");
        *of = if is_more { of.saturating_add(reads) } else { of.saturating_sub(reads) };
    }

    /// A read is to be done, or was.
    pub(super) fn read(&mut self, format: AddressFormat, read: &Read, is_more: bool) {
        for place in read.places() {
            self.change(format.pu_of(format.chunk_of(*place)), 1, is_more);
        }
    }

    /// A unit is to be programmed, or was.
    pub(super) fn unit(&mut self, format: AddressFormat, unit: &Unit, is_more: bool) {
        self.change(format.pu_of(unit.chunk), PROGRAM_READS, is_more);
    }

    /// A chunk is to be reset, or was.
    pub(super) fn reset(&mut self, format: AddressFormat, chunk: ChunkId, is_more: bool) {
        self.change(format.pu_of(chunk), RESET_READS, is_more);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flash::reads::{Reader, Reads};
    use openftl_core::{Frame, Geometry};

    #[test]
    fn the_place_with_less_to_do_is_chosen_until_its_work_is_done() {
        let geometry = Geometry::tiny();
        let format = geometry.format();
        let on = |pu: usize, block: u32| format.ppa(format.chunk_id(geometry.pu_ids().nth(pu).unwrap(), 0), block);
        let mut backlog = Backlog::new(format);
        let mut reads = Reads::default();
        let id = reads.begin(Reader::Map, 0);
        for block in 0..3 {
            reads.get_mut(id).add(on(0, block), Frame(block));
        }
        backlog.read(format, reads.get(id), true);
        assert_eq!(backlog.least(format, [on(0, 9), on(1, 9)]), 1);
        backlog.reset(format, format.chunk_of(on(1, 0)), true);
        assert_eq!(backlog.least(format, [on(0, 9), on(1, 9)]), 0, "three reads are done sooner than a reset");
        backlog.reset(format, format.chunk_of(on(1, 0)), false);
        assert_eq!(backlog.least(format, [on(0, 9), on(1, 9)]), 1);
        backlog.read(format, reads.get(id), false);
        assert_eq!(backlog.least(format, [on(0, 9), on(1, 9)]), 0, "the first of two that have nothing to do");
    }

    #[test]
    fn where_nobody_asks_the_first_place_is_as_good() {
        let format = Geometry::tiny().format();
        let backlog = Backlog::default();
        assert!(!backlog.is_kept());
        assert_eq!(backlog.least(format, [Ppa(0), format.ppa(ChunkId(1), 0)]), 0);
    }
}
