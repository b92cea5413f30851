//! A database that writes each page twice: first to a small double-write buffer, in order and round and round, then to
//! its place, at random.
//!
//! ```text
//!   ┌────────┬──────────────────────────────┬────────┐
//!   │ buffer │ pages                        │ (free) │      a batch: buffer ── flush ── pages ── flush
//!   └────────┴──────────────────────────────┴────────┘
//! ```
//!
//! Half of all writes live as long as the buffer's round takes, and the others as long as their page stays unpopular.

use super::{Numbers, Object, ObjectConfig};
use crate::load::{Access, Hint, Load, Operation, Sweep};
use crate::workload::{Scatter, below, threshold};
use crate::zipf::Zipf;
use openftl_core::units::Share;
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// Blocks of the double-write buffer, where the drive is large: 4 MiB.
const BUFFER_BLOCKS: u64 = 1024;

/// Pages that are written together.
const BATCH_PAGES: u64 = 64;

/// Blocks of the longest write to the buffer.
const BUFFER_ACCESS_BLOCKS: u32 = 64;

const BUFFER_KIND: u8 = 0;
const PAGE_KIND: u8 = 1;

/// What such a database is made from.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct DoubleWriteConfig {
    /// Drive, fill, page size (an access is a page) and seed.
    pub objects: ObjectConfig,
    /// The exponent of the pages' popularity.
    pub theta: f64,
    /// Share of the steps that read a page.
    pub reads: Share,
}

/// Where a batch of pages is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// Before its first write.
    Begin,
    /// On its way to the buffer.
    Buffer,
    /// In the buffer.
    Buffered,
    /// So many pages are in their places.
    Places(usize),
}

/// A database with a double-write buffer.
pub struct DoubleWrite {
    rng: Xoshiro256PlusPlus,
    zipf: Zipf,
    scatter: Scatter,
    pages: u64,
    page_blocks: u32,
    buffer: Object,
    batch: Vec<u64>,
    batch_pages: usize,
    phase: Phase,
    /// Where in the buffer this batch ends.
    batch_end: u32,
    read_below: u64,
    numbers: Numbers,
    sweep: Sweep,
    live_blocks: u64,
}

impl DoubleWrite {
    /// The database that `config` describes.
    ///
    /// # Panics
    /// If there is no room for the buffer and a batch of pages.
    #[must_use]
    pub fn new(config: DoubleWriteConfig) -> DoubleWrite {
        let ObjectConfig { drive_blocks, access_blocks, seed, .. } = config.objects;
        let page_blocks = u64::from(access_blocks);
        let room = BUFFER_BLOCKS.min(drive_blocks / 64).max(page_blocks);
        let batch_pages = BATCH_PAGES.min(room / page_blocks);
        let buffer_blocks = room / (batch_pages * page_blocks) * (batch_pages * page_blocks);
        let pages = (config.objects.live_blocks_max().saturating_sub(buffer_blocks)) / page_blocks;
        assert!(pages > batch_pages, "a database needs more room than {drive_blocks} blocks: {config:?}");
        let live_blocks = buffer_blocks + pages * page_blocks;
        DoubleWrite {
            rng: Xoshiro256PlusPlus::seed_from_u64(seed),
            zipf: Zipf::new(pages, config.theta),
            scatter: Scatter::new(pages),
            pages,
            page_blocks: access_blocks,
            buffer: Object {
                written: buffer_blocks as u32,
                ..Object::new(0, buffer_blocks as u32, Hint { kind: BUFFER_KIND, object: 0 })
            },
            batch: Vec::with_capacity(batch_pages as usize),
            batch_pages: batch_pages as usize,
            phase: Phase::Begin,
            batch_end: 0,
            read_below: threshold(config.reads),
            numbers: Numbers::default(),
            sweep: Sweep::new(live_blocks, BUFFER_ACCESS_BLOCKS),
            live_blocks,
        }
    }

    fn page(&mut self) -> u64 {
        self.scatter.of(self.zipf.draw(&mut self.rng))
    }

    /// Draws the pages of the next batch, none twice.
    fn draw_batch(&mut self) {
        self.batch.clear();
        while self.batch.len() < self.batch_pages {
            let mut page = self.page();
            while self.batch.contains(&page) {
                page = if page + 1 == self.pages { 0 } else { page + 1 };
            }
            self.batch.push(page);
        }
    }

    fn of_page(&self, operation: Operation, page: u64) -> Access {
        let first = u64::from(self.buffer.blocks) + page * u64::from(self.page_blocks);
        Access { operation, first, blocks: self.page_blocks, hint: Hint { kind: PAGE_KIND, object: 0 } }
    }
}

impl Load for DoubleWrite {
    fn step(&mut self) -> Option<Access> {
        if self.read_below != 0 && self.rng.next_u64() < self.read_below {
            let page = below(self.rng.next_u64(), self.pages);
            return Some(self.of_page(Operation::Read, page));
        }
        if self.phase == Phase::Begin {
            self.draw_batch();
            self.phase = Phase::Buffer;
            if self.buffer.is_written() {
                self.buffer.written = 0;
                self.buffer.hint.object = self.numbers.next();
                self.batch_end = self.batch_pages as u32 * self.page_blocks;
                return Some(self.buffer.allocate());
            }
            self.batch_end = self.buffer.written + self.batch_pages as u32 * self.page_blocks;
        }
        Some(match self.phase {
            Phase::Begin | Phase::Buffer => {
                let access = self.buffer.write(BUFFER_ACCESS_BLOCKS.min(self.batch_end - self.buffer.written));
                if self.buffer.written == self.batch_end {
                    self.phase = Phase::Buffered;
                }
                access
            }
            Phase::Buffered => {
                self.phase = Phase::Places(0);
                Access::FLUSH
            }
            Phase::Places(index) => match self.batch.get(index) {
                Some(&page) => {
                    self.phase = Phase::Places(index + 1);
                    self.of_page(Operation::Write, page)
                }
                None => {
                    self.phase = Phase::Begin;
                    Access::FLUSH
                }
            },
        })
    }

    fn fill_step(&mut self) -> Option<Access> {
        let mut access = self.sweep.step()?;
        if access.first >= u64::from(self.buffer.blocks) {
            access.hint.kind = PAGE_KIND;
        }
        Some(access)
    }

    fn kinds(&self) -> Vec<String> {
        vec!["double-write buffer".to_owned(), "pages".to_owned()]
    }

    fn live_blocks_max(&self) -> u64 {
        self.live_blocks
    }

    fn access_blocks_max(&self) -> u32 {
        self.page_blocks.max(BUFFER_ACCESS_BLOCKS)
    }
}
