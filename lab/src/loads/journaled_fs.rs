//! A database in a file system that journals data, as ext4 does with `data=journal`: each changed page is written to the journal
//! first, in order and round and round, and to its home later.
//!
//! ```text
//!   ┌─────────────┬──────────┬─────────────┐    update ─▶ transaction ─▶ journal: descriptor, pages, commit ── flush
//!   │ home        │ journal  │ home        │                           └▶ home, when the journal is three quarters full
//!   └─────────────┴──────────┴─────────────┘
//! ```
//!
//! A page that a later transaction has too is written to its home once, for the later one.

use crate::load::{Access, Hint, Load, Operation, Sweep};
use crate::workload::{Pattern, Workload, WorkloadConfig};
use openftl_core::units::Share;
use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;

/// The journal's part of the drive: 64 MiB of 8 GiB, as mke2fs chooses it.
const JOURNAL_PART: u64 = 128;

/// Pages of a transaction.
const TRANSACTION_PAGES: usize = 64;

/// A descriptor and a commit record.
const RECORD_BLOCKS: u64 = 2;

/// Blocks of the longest write to the journal.
const ACCESS_BLOCKS: u32 = 64;

const JOURNAL_KIND: u8 = 0;
const HOME_KIND: u8 = 1;

/// The database and its file system.
pub struct JournaledFs {
    drive_blocks: u64,
    journal: Range<u64>,
    /// Reads and updates of pages.
    database: Workload,
    /// Blocks that are written before the first read.
    writes_first: u64,
    running: BTreeSet<u64>,
    /// Transactions in the journal, the oldest first.
    journaled: VecDeque<Vec<u64>>,
    /// The newest transaction of each page, by its number.
    newest: Vec<u32>,
    oldest: u32,
    /// Where the journal goes on.
    next: u64,
    used: u64,
    pending: VecDeque<Access>,
    sweep: Sweep,
}

impl JournaledFs {
    /// On a drive of so many blocks; pages are as popular as Zipf's law with this exponent says. Before `writes_first` blocks are
    /// written nothing is read.
    ///
    /// # Panics
    /// If the drive has no room for a journal of four transactions.
    #[must_use]
    pub fn new(drive_blocks: u64, theta: f64, reads: Share, writes_first: u64, seed: u64) -> JournaledFs {
        let journal = JournaledFs::journal_of(drive_blocks);
        let journal_blocks = journal.end - journal.start;
        assert!(
            journal_blocks >= 4 * (TRANSACTION_PAGES as u64 + RECORD_BLOCKS),
            "a journal of {journal_blocks} blocks"
        );
        let pages = drive_blocks - journal_blocks;
        let database = Workload::new(&WorkloadConfig {
            pattern: Pattern::Zipf { theta },
            read_share: reads,
            access_blocks: 1,
            drive_blocks: pages,
            seed,
        });
        JournaledFs {
            drive_blocks,
            next: journal.start,
            journal,
            database,
            writes_first,
            running: BTreeSet::new(),
            journaled: VecDeque::new(),
            newest: vec![0; pages as usize],
            oldest: 1,
            used: 0,
            pending: VecDeque::new(),
            sweep: Sweep::new(drive_blocks, ACCESS_BLOCKS),
        }
    }

    /// The blocks of the journal of such a drive: in its middle, as of ext4.
    #[must_use]
    pub fn journal_of(drive_blocks: u64) -> Range<u64> {
        drive_blocks / 2..drive_blocks / 2 + drive_blocks / JOURNAL_PART
    }

    fn home_of(&self, page: u64) -> u64 {
        if page < self.journal.start { page } else { page + self.journal.end - self.journal.start }
    }

    fn commit(&mut self) {
        let number = self.oldest + self.journaled.len() as u32;
        let pages: Vec<u64> = std::mem::take(&mut self.running).into_iter().collect();
        pages.iter().for_each(|page| self.newest[*page as usize] = number);
        let mut left = pages.len() as u64 + RECORD_BLOCKS;
        self.used += left;
        while left > 0 {
            let blocks = left.min(self.journal.end - self.next).min(ACCESS_BLOCKS.into());
            let hint = Hint { kind: JOURNAL_KIND, object: 0 };
            self.pending.push_back(Access {
                operation: Operation::Write,
                first: self.next,
                blocks: blocks as u32,
                hint,
            });
            left -= blocks;
            self.next += blocks;
            if self.next == self.journal.end {
                self.next = self.journal.start;
            }
        }
        self.pending.push_back(Access::FLUSH);
        self.journaled.push_back(pages);
        while self.used > (self.journal.end - self.journal.start) * 3 / 4 {
            self.checkpoint();
        }
    }

    /// The pages of the oldest transaction go home.
    fn checkpoint(&mut self) {
        let Some(pages) = self.journaled.pop_front() else { return };
        self.used -= pages.len() as u64 + RECORD_BLOCKS;
        for page in pages.into_iter().filter(|page| self.newest[*page as usize] == self.oldest) {
            let hint = Hint { kind: HOME_KIND, object: 0 };
            let first = self.home_of(page);
            self.pending.push_back(Access { operation: Operation::Write, first, blocks: 1, hint });
        }
        self.oldest += 1;
    }
}

impl Load for JournaledFs {
    fn step(&mut self) -> Option<Access> {
        loop {
            if let Some(access) = self.pending.pop_front() {
                self.writes_first = self.writes_first.saturating_sub(access.blocks.into());
                return Some(access);
            }
            let access = self.database.next_access();
            if access.operation == Operation::Read {
                if self.writes_first > 0 {
                    continue;
                }
                return Some(Access::plain(Operation::Read, self.home_of(access.first), 1));
            }
            self.running.insert(access.first);
            if self.running.len() == TRANSACTION_PAGES {
                self.commit();
            }
        }
    }

    fn fill_step(&mut self) -> Option<Access> {
        self.sweep.step()
    }

    fn kinds(&self) -> Vec<String> {
        vec!["journal".to_owned(), "home".to_owned()]
    }

    fn live_blocks_max(&self) -> u64 {
        self.drive_blocks
    }

    fn access_blocks_max(&self) -> u32 {
        ACCESS_BLOCKS
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    const BLOCKS: u64 = 1 << 16;

    #[test]
    fn the_journal_is_overwritten_in_order_and_every_page_goes_home_later() {
        let mut load = JournaledFs::new(BLOCKS, 0.99, Share::percent(30), 5_000, 5);
        let journal = JournaledFs::journal_of(BLOCKS);
        let (mut next, mut laps, mut home, mut reads, mut journaled) = (journal.start, 0, 0_u64, 0_u64, 0_u64);
        let mut times: BTreeMap<u64, u32> = BTreeMap::new();
        for _ in 0..60_000 {
            let access = load.step().expect("it has no end");
            let is_of_journal = journal.contains(&access.first) && access.operation != Operation::Flush;
            match access.operation {
                Operation::Read => {
                    assert!(!is_of_journal && journaled + home >= 5_000);
                    reads += 1;
                }
                Operation::Write if is_of_journal => {
                    assert_eq!(access.first, next);
                    journaled += u64::from(access.blocks);
                    next += u64::from(access.blocks);
                    if next == journal.end {
                        (next, laps) = (journal.start, laps + 1);
                    }
                }
                Operation::Write => {
                    assert_eq!(access.blocks, 1);
                    home += 1;
                    *times.entry(access.first).or_default() += 1;
                }
                _ => {}
            }
        }
        assert!(laps > 20 && home > 10_000 && reads > 10_000, "{laps} {home} {reads}");
        // What changes in several transactions goes home for the last of them.
        assert!(home < journaled && journaled < 2 * home, "{home} {journaled}");
        assert!(times.values().any(|times| *times > 3), "popular pages go home again and again");
    }

    #[test]
    fn the_first_time_fills_the_drive() {
        let mut load = JournaledFs::new(BLOCKS, 0.99, Share::percent(0), 0, 5);
        let blocks: u64 = std::iter::from_fn(|| load.fill_step()).map(|access| u64::from(access.blocks)).sum();
        assert_eq!(blocks, BLOCKS);
    }
}
