//! Writers that fill segments from their first block to their last one, side by side; when room runs short the oldest segment that is full is
//! trimmed, or any.
//!
//! ```text
//!   writer 1        writer 2        full, the oldest first                              free
//!   ▐█████▒▒▒▒▌     ▐██▒▒▒▒▒▒▒▌     ▐██████████▌ ▐██████████▌ ▐██████████▌ …            ▐          ▌ …
//! ```
//!
//! Nothing is ever moved, so this is what append-only space is best at: a drive of segments or zones can be compared with one of blocks
//! under it. Reads are of any full segment.

use super::{Numbers, Object, ObjectConfig};
use crate::load::{Access, Hint, Load, Operation};
use crate::workload::{below, threshold};
use openftl_core::units::Share;
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::VecDeque;

/// Writers of segments.
pub struct Segments {
    rng: Xoshiro256PlusPlus,
    segment_blocks: u32,
    access_blocks: u32,
    /// Any full segment is trimmed, and not the oldest.
    any: bool,
    /// Draws below this read.
    reads_below: u64,
    writers: Vec<Option<Object>>,
    turn: usize,
    free: VecDeque<u64>,
    /// First blocks of full segments, the oldest first.
    full: VecDeque<u64>,
    /// Full ones that are kept.
    full_max: usize,
    numbers: Numbers,
}

impl Segments {
    /// Segments of a drive that so many writers need.
    #[must_use]
    pub fn segments_min(writers: u32) -> u64 {
        2 * u64::from(writers) + 1
    }

    /// `writers` writers, which read in between with a share of `reads`.
    ///
    /// # Panics
    /// If the drive has fewer segments than [`Segments::segments_min`].
    #[must_use]
    pub fn new(config: ObjectConfig, segment_blocks: u64, writers: u32, any: bool, reads: Share) -> Segments {
        let segments = config.drive_blocks / segment_blocks;
        assert!(segments >= Segments::segments_min(writers), "{segments} segments for {writers} writers");
        let live = config.live_blocks_max() / segment_blocks;
        Segments {
            rng: Xoshiro256PlusPlus::seed_from_u64(config.seed),
            segment_blocks: segment_blocks as u32,
            access_blocks: config.access_blocks,
            any,
            reads_below: threshold(reads),
            writers: vec![None; writers as usize],
            turn: 0,
            free: (0..segments).map(|segment| segment * segment_blocks).collect(),
            full: VecDeque::new(),
            full_max: live.saturating_sub(writers.into()).clamp(1, segments - u64::from(writers)) as usize,
            numbers: Numbers::default(),
        }
    }

    fn read(&mut self) -> Access {
        let segment = self.full[below(self.rng.next_u64(), self.full.len() as u64) as usize];
        let blocks = self.access_blocks.min(self.segment_blocks);
        let places = u64::from(self.segment_blocks / blocks);
        let first = segment + below(self.rng.next_u64(), places) * u64::from(blocks);
        Access::plain(Operation::Read, first, blocks)
    }

    /// The next writer writes on, or makes room for that.
    fn write(&mut self) -> Access {
        if let Some(mut segment) = self.writers[self.turn].take() {
            let access = segment.write(self.access_blocks);
            if segment.is_written() {
                self.full.push_back(segment.first);
            } else {
                self.writers[self.turn] = Some(segment);
            }
            self.turn = (self.turn + 1) % self.writers.len();
            return access;
        }
        if self.full.len() >= self.full_max {
            let place = if self.any { below(self.rng.next_u64(), self.full.len() as u64) as usize } else { 0 };
            let ends = self.full.remove(place).expect("it is one of them");
            self.free.push_back(ends);
            return Access::plain(Operation::Trim, ends, self.segment_blocks);
        }
        let first = self.free.pop_front().expect("what is not full is free, or a writer's");
        let hint = Hint { kind: self.turn as u8, object: self.numbers.next() };
        let segment = Object::new(first, self.segment_blocks, hint);
        self.writers[self.turn] = Some(segment);
        segment.allocate()
    }
}

impl Load for Segments {
    fn step(&mut self) -> Option<Access> {
        let reads = !self.full.is_empty() && self.rng.next_u64() < self.reads_below;
        Some(if reads { self.read() } else { self.write() })
    }

    fn fill_step(&mut self) -> Option<Access> {
        (self.full.len() < self.full_max).then(|| self.write())
    }

    fn kinds(&self) -> Vec<String> {
        (1..=self.writers.len()).map(|writer| format!("writer {writer}")).collect()
    }

    fn live_blocks_max(&self) -> u64 {
        (self.full_max + self.writers.len()) as u64 * u64::from(self.segment_blocks)
    }

    fn access_blocks_max(&self) -> u32 {
        self.access_blocks
    }
}
