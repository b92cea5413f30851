//! Writers side by side: each makes files one after the other, and deletes its oldest when its share is full.
//!
//! ```text
//!   writer 1  ▐aa│aa│aa│..▌                each has a part of the drive, file by file
//!   writer 2  ▐bbbb│bbbb│bbbb│....▌        parts and files differ, so lifetimes do
//! ```
//!
//! All write equally fast, in turns that chance decides. So the data of writer `k` live `k` times as long as those of the
//! first one, and what a drive gets is a mixture of all of them.

use super::{Numbers, Object, ObjectConfig};
use crate::load::{Access, Hint, Load};
use crate::workload::below;
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::VecDeque;

/// Blocks of the smallest files, where the drive is large: 8 MiB.
const FILE_BLOCKS: u64 = 2048;

/// Places for files that each writer has at least.
const PLACES_MIN: u64 = 8;

struct Writer {
    kind: u8,
    file_blocks: u32,
    /// Files that it keeps, with the one that it writes.
    files_max: usize,
    free: VecDeque<u64>,
    /// The oldest first.
    files: VecDeque<Object>,
    open: Option<Object>,
}

impl Writer {
    fn is_full(&self) -> bool {
        self.open.is_none() && self.files.len() == self.files_max
    }

    fn step(&mut self, access_blocks: u32, numbers: &mut Numbers) -> Access {
        if let Some(mut file) = self.open.take() {
            let access = file.write(access_blocks);
            if file.is_written() {
                self.files.push_back(file);
            } else {
                self.open = Some(file);
            }
            return access;
        }
        if self.files.len() == self.files_max
            && let Some(oldest) = self.files.pop_front()
        {
            self.free.push_back(oldest.first);
            return oldest.trim();
        }
        let first = self.free.pop_front().expect("a writer has as many places as it keeps files");
        let hint = Hint { kind: self.kind, object: numbers.next() };
        let file = Object::new(first, self.file_blocks, hint);
        self.open = Some(file);
        file.allocate()
    }
}

/// Writers of files with different lifetimes.
pub struct Writers {
    rng: Xoshiro256PlusPlus,
    writers: Vec<Writer>,
    access_blocks: u32,
    numbers: Numbers,
}

impl Writers {
    /// The least blocks of a drive on which so many writers have room.
    #[must_use]
    pub fn drive_blocks_min(writers: u32) -> u64 {
        PLACES_MIN * u64::from(writers) * u64::from(writers + 1) / 2
    }

    /// `writers` writers, whose shares are as 1 to 2 to 3 and so on, and whose files are of four sizes.
    ///
    /// # Panics
    /// If the drive has fewer blocks than [`Writers::drive_blocks_min`].
    #[must_use]
    pub fn new(config: ObjectConfig, writers: u32) -> Writers {
        let shares = u64::from(writers) * u64::from(writers + 1) / 2;
        let mut first = 0;
        let writers = (0..writers)
            .map(|index| {
                let share = config.drive_blocks * u64::from(index + 1) / shares;
                let base = FILE_BLOCKS.min(config.drive_blocks / 512).max(1) << (index % 4);
                let file_blocks = base.min(share / PLACES_MIN).max(1);
                let places = share / file_blocks;
                assert!(places > 0, "writer {index} of {writers} has no room on {} blocks", config.drive_blocks);
                let live = (u128::from(places) * u128::from(config.fill.millionths) / 1_000_000) as usize;
                let writer = Writer {
                    kind: index as u8,

                    file_blocks: file_blocks as u32,
                    files_max: live.max(1),
                    free: (0..places).map(|place| first + place * file_blocks).collect(),
                    files: VecDeque::with_capacity(live + 1),
                    open: None,
                };
                first += share;
                writer
            })
            .collect();
        let rng = Xoshiro256PlusPlus::seed_from_u64(config.seed);
        Writers { rng, writers, access_blocks: config.access_blocks, numbers: Numbers::default() }
    }

    fn turn(&mut self) -> usize {
        below(self.rng.next_u64(), self.writers.len() as u64) as usize
    }
}

impl Load for Writers {
    fn step(&mut self) -> Option<Access> {
        let turn = self.turn();
        Some(self.writers[turn].step(self.access_blocks, &mut self.numbers))
    }

    fn fill_step(&mut self) -> Option<Access> {
        let turn = self.turn();
        let count = self.writers.len();
        let next = (0..count).map(|index| (turn + index) % count).find(|&index| !self.writers[index].is_full())?;
        Some(self.writers[next].step(self.access_blocks, &mut self.numbers))
    }

    fn kinds(&self) -> Vec<String> {
        self.writers.iter().map(|writer| format!("writer {}", writer.kind + 1)).collect()
    }

    fn live_blocks_max(&self) -> u64 {
        self.writers.iter().map(|writer| writer.files_max as u64 * u64::from(writer.file_blocks)).sum()
    }

    fn access_blocks_max(&self) -> u32 {
        self.access_blocks
    }
}
