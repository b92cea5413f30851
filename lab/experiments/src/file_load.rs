//! What programs do to the files of a file system, step by step: the same for every file system, in virtual time or on a mounted one.
//!
//! | load | files | writes |
//! |---|---|---|
//! | `random` | four | blocks of 4 KiB anywhere |
//! | `sequential` | of 4 MiB | one file after the other is overwritten from its beginning to its end |
//! | `postmark` | of 5 to 256 KiB | files are made, removed and appended to; every 64 transactions all of it is synced |
//! | `oltp` | a database with a rollback journal, as SQLite's | 1 to 8 pages a transaction: the journal is made, written and synced, the pages are written and synced, the journal is removed |
//! | `tpc-c` | a database with a write-ahead log, as SQLite's | 10 to 29 pages a transaction are appended to the log, which is synced; after 1,000 pages they go to the database |
//!
//! Pages are skewed: four fifths of the updates go to a fifth of the database. Nothing is read: what a recording of another file system
//! shows are its writes alone.

use openftl_core::BLOCK_BYTES;
use openftl_core::units::Share;
use openftl_lab::workload::{below, threshold};
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::str::FromStr;

/// One step of a program. Files have numbers, and each number is used once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileStep {
    /// An empty file is made.
    Make {
        /// Which.
        file: u32,
    },
    /// Bytes are written.
    Write {
        /// To which file.
        file: u32,
        /// First byte.
        offset: u64,
        /// How many, up to [`WRITE_BYTES_MAX`].
        bytes: u32,
    },
    /// What was written to a file becomes durable.
    Sync {
        /// Which.
        file: u32,
    },
    /// Everything becomes durable.
    SyncAll,
    /// A file loses its name.
    Remove {
        /// Which.
        file: u32,
    },
}

impl FileStep {
    /// Bytes that it writes.
    #[must_use]
    pub fn bytes(self) -> u64 {
        if let FileStep::Write { bytes, .. } = self { bytes.into() } else { 0 }
    }
}

/// What a file is called.
#[must_use]
pub fn name_of(file: u32) -> String {
    format!("file{file}")
}

/// Bytes of one write, at most.
pub const WRITE_BYTES_MAX: u32 = 128 << 10;

const BLOCK: u64 = BLOCK_BYTES as u64;
const RANDOM_FILES: u32 = 4;
const SEQUENTIAL_FILE_BYTES: u64 = 4 << 20;

/// Sizes of the files of `postmark`, of what is appended to them, and transactions from one sync to the next.
const MAIL_BYTES: (u64, u64) = (5_120, 262_144);
const APPEND_BYTES_MAX: u64 = 16_384;
const TRANSACTIONS_PER_SYNC: u32 = 64;

/// Of SQLite's files: the header of a journal and what each page has beside it there, the header of a log and of its frames.
const JOURNAL_HEADER_BYTES: u32 = 512;
const JOURNAL_RECORD_BYTES: u32 = 4 + BLOCK_BYTES as u32 + 4;
const LOG_HEADER_BYTES: u32 = 32;
const FRAME_BYTES: u32 = 24 + BLOCK_BYTES as u32;

/// Pages in the log after which they go to the database: SQLite's default.
const LOG_FRAMES: u32 = 1_000;

/// The part of a database that is hot, and of the updates that go there.
const HOT_PART: u64 = 5;
const HOT_UPDATES: Share = Share::percent(80);

/// The file of a database, and of its log.
const DATABASE: u32 = 0;
const LOG: u32 = 1;

/// Which load.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum FileModel {
    /// `random`, as the module says, and so on.
    Random,
    /// `sequential`.
    Sequential,
    /// `postmark`.
    Postmark,
    /// `oltp`.
    Oltp,
    /// `tpc-c`.
    TpcC,
}

impl FileModel {
    /// All of them.
    pub const ALL: [FileModel; 5] =
        [FileModel::Random, FileModel::Sequential, FileModel::Postmark, FileModel::Oltp, FileModel::TpcC];

    /// What it is called.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            FileModel::Random => "random",
            FileModel::Sequential => "sequential",
            FileModel::Postmark => "postmark",
            FileModel::Oltp => "oltp",
            FileModel::TpcC => "tpc-c",
        }
    }
}

impl fmt::Display for FileModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for FileModel {
    type Err = String;

    fn from_str(text: &str) -> Result<FileModel, String> {
        let known = FileModel::ALL.into_iter().find(|model| model.name() == text);
        known.ok_or_else(|| format!("`{text}` is no load of files: write random, sequential, postmark, oltp or tpc-c"))
    }
}

/// Bytes that are written while files of so many bytes age, and then while all is measured.
#[must_use]
pub fn phases(data_bytes: u64) -> [u64; 2] {
    [data_bytes, data_bytes / 2]
}

/// Bytes that a load writes while its files are made, while they age, and while all is measured: whole steps.
#[must_use]
pub fn phase_bytes(model: FileModel, data_bytes: u64, seed: u64) -> [u64; 3] {
    let mut load = FileLoad::new(model, data_bytes, seed);
    let mut filled = 0;
    while let Some(step) = load.fill_step() {
        filled += step.bytes();
    }
    let [aged, measured] = phases(data_bytes).map(|bytes| {
        let mut written = 0;
        while written < bytes {
            written += load.step().bytes();
        }
        written
    });
    [filled, aged, measured]
}

/// A program at work on files.
pub struct FileLoad {
    model: FileModel,
    rng: Xoshiro256PlusPlus,
    /// Bytes that files have in all, at most.
    data_bytes: u64,
    pending: VecDeque<FileStep>,
    /// Files that are there, with their bytes; of `postmark` all, of others those of the data.
    files: Vec<(u32, u64)>,
    live_bytes: u64,
    next_file: u32,
    is_filled: bool,
    transactions: u32,
    /// Of a database: frames in its log, and the pages that they have.
    frames: u32,
    logged: BTreeSet<u64>,
}

impl FileLoad {
    /// Files of so many bytes; `seed` decides everything that is left to chance.
    #[must_use]
    pub fn new(model: FileModel, data_bytes: u64, seed: u64) -> FileLoad {
        FileLoad {
            model,
            rng: Xoshiro256PlusPlus::seed_from_u64(seed),
            data_bytes,
            pending: VecDeque::new(),
            files: Vec::new(),
            live_bytes: 0,
            next_file: 0,
            is_filled: false,
            transactions: 0,
            frames: 0,
            logged: BTreeSet::new(),
        }
    }

    /// The next step, while the files are made; `None` when they are there.
    pub fn fill_step(&mut self) -> Option<FileStep> {
        if self.pending.is_empty() && !self.is_filled {
            self.fill();
        }
        self.pending.pop_front()
    }

    /// The next step when the files are there. It has no end.
    pub fn step(&mut self) -> FileStep {
        loop {
            if let Some(step) = self.pending.pop_front() {
                return step;
            }
            match self.model {
                FileModel::Random => self.overwrite_a_block(),
                FileModel::Sequential => self.overwrite_a_file(),
                FileModel::Postmark => self.handle_mail(),
                FileModel::Oltp => self.commit_by_journal(),
                FileModel::TpcC => self.commit_to_log(),
            }
        }
    }

    fn below(&mut self, bound: u64) -> u64 {
        below(self.rng.next_u64(), bound)
    }

    fn new_file(&mut self) -> u32 {
        self.next_file += 1;
        self.next_file - 1
    }

    fn write(&mut self, file: u32, mut offset: u64, mut bytes: u64) {
        while bytes > 0 {
            let now = bytes.min(WRITE_BYTES_MAX.into());
            self.pending.push_back(FileStep::Write { file, offset, bytes: now as u32 });
            (offset, bytes) = (offset + now, bytes - now);
        }
    }

    /// Makes a file of so many bytes.
    fn make(&mut self, bytes: u64) {
        let file = self.new_file();
        self.pending.push_back(FileStep::Make { file });
        self.write(file, 0, bytes);
        self.files.push((file, bytes));
        self.live_bytes += bytes;
    }

    /// Makes one more of the first files, or all are there.
    fn fill(&mut self) {
        let rest = self.data_bytes - self.live_bytes;
        let bytes = match self.model {
            FileModel::Random => self.data_bytes / u64::from(RANDOM_FILES) / BLOCK * BLOCK,
            FileModel::Sequential => SEQUENTIAL_FILE_BYTES,
            FileModel::Postmark => self.mail_bytes(),
            FileModel::Oltp => rest - self.journal_bytes_max(),
            FileModel::TpcC => rest - u64::from(LOG_FRAMES + 32) * u64::from(FRAME_BYTES),
        };
        let is_database = matches!(self.model, FileModel::Oltp | FileModel::TpcC);
        if bytes <= rest && (!is_database || self.files.is_empty()) {
            let whole = if is_database { bytes / BLOCK * BLOCK } else { bytes };
            return self.make(whole);
        }
        self.is_filled = true;
        if self.model == FileModel::TpcC {
            let file = self.new_file();
            self.pending.push_back(FileStep::Make { file });
        }
        self.pending.push_back(FileStep::SyncAll);
    }

    fn journal_bytes_max(&self) -> u64 {
        u64::from(JOURNAL_HEADER_BYTES + 8 * JOURNAL_RECORD_BYTES)
    }

    fn overwrite_a_block(&mut self) {
        let blocks = self.files[0].1 / BLOCK;
        let place = self.below(blocks * self.files.len() as u64);
        let (file, offset) = (self.files[(place / blocks) as usize].0, place % blocks * BLOCK);
        self.write(file, offset, BLOCK);
    }

    fn overwrite_a_file(&mut self) {
        let index = self.below(self.files.len() as u64) as usize;
        let (file, bytes) = self.files[index];
        self.write(file, 0, bytes);
    }

    fn mail_bytes(&mut self) -> u64 {
        MAIL_BYTES.0 + self.below(MAIL_BYTES.1 - MAIL_BYTES.0 + 1)
    }

    /// A transaction: a file comes, or goes where they have no room, and another one grows where there is room.
    fn handle_mail(&mut self) {
        let bytes = self.mail_bytes();
        if self.live_bytes + bytes <= self.data_bytes {
            self.make(bytes);
        } else {
            let index = self.below(self.files.len() as u64) as usize;
            let (file, bytes) = self.files.swap_remove(index);
            self.live_bytes -= bytes;
            self.pending.push_back(FileStep::Remove { file });
        }
        let (index, more) = (self.below(self.files.len() as u64) as usize, 1 + self.below(APPEND_BYTES_MAX));
        if self.live_bytes + more <= self.data_bytes {
            let (file, bytes) = self.files[index];
            self.write(file, bytes, more);
            self.files[index].1 += more;
            self.live_bytes += more;
        }
        self.transactions += 1;
        if self.transactions.is_multiple_of(TRANSACTIONS_PER_SYNC) {
            self.pending.push_back(FileStep::SyncAll);
        }
    }

    /// Different pages of the database.
    fn pages(&mut self, count: u64) -> BTreeSet<u64> {
        let pages = self.files[DATABASE as usize].1 / BLOCK;
        let hot = (pages / HOT_PART).max(1);
        let mut found = BTreeSet::new();
        while (found.len() as u64) < count {
            let is_hot = self.rng.next_u64() < threshold(HOT_UPDATES);
            found.insert(if is_hot { self.below(hot) } else { hot + self.below(pages - hot) });
        }
        found
    }

    fn commit_by_journal(&mut self) {
        let count = 1 + self.below(8);
        let (pages, journal) = (self.pages(count), self.new_file());
        self.pending.push_back(FileStep::Make { file: journal });
        self.write(journal, 0, u64::from(JOURNAL_HEADER_BYTES) + count * u64::from(JOURNAL_RECORD_BYTES));
        self.pending.push_back(FileStep::Sync { file: journal });
        pages.iter().for_each(|page| self.write(DATABASE, page * BLOCK, BLOCK));
        self.pending.push_back(FileStep::Sync { file: DATABASE });
        self.pending.push_back(FileStep::Remove { file: journal });
    }

    fn commit_to_log(&mut self) {
        let count = 10 + self.below(20);
        let pages = self.pages(count);
        let offset = u64::from(LOG_HEADER_BYTES) + u64::from(self.frames) * u64::from(FRAME_BYTES);
        if self.frames == 0 {
            self.write(LOG, 0, LOG_HEADER_BYTES.into());
        }
        self.write(LOG, offset, count * u64::from(FRAME_BYTES));
        self.pending.push_back(FileStep::Sync { file: LOG });
        self.frames += count as u32;
        self.logged.extend(pages);
        if self.frames >= LOG_FRAMES {
            self.frames = 0;
            let logged = std::mem::take(&mut self.logged);
            logged.iter().for_each(|page| self.write(DATABASE, page * BLOCK, BLOCK));
            self.pending.push_back(FileStep::Sync { file: DATABASE });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Runs a load, with the sizes of the files as a file system would have them.
    fn sizes_after(model: FileModel, data_bytes: u64, steps: u32) -> (BTreeMap<u32, u64>, u64) {
        let mut load = FileLoad::new(model, data_bytes, 7);
        let (mut sizes, mut written, mut most) = (BTreeMap::new(), 0, 0);
        let mut take = |step: FileStep| {
            match step {
                FileStep::Make { file } => assert!(sizes.insert(file, 0).is_none(), "{model}: {step:?}"),
                FileStep::Write { file, offset, bytes } => {
                    let size = sizes.get_mut(&file).expect("it was made");
                    assert!(offset <= *size && (1..=WRITE_BYTES_MAX).contains(&bytes), "{model}: {step:?}");
                    *size = (*size).max(offset + u64::from(bytes));
                }
                FileStep::Remove { file } => assert!(sizes.remove(&file).is_some(), "{model}: {step:?}"),
                FileStep::Sync { file } => assert!(sizes.contains_key(&file), "{model}: {step:?}"),
                FileStep::SyncAll => {}
            }
            most = most.max(sizes.values().sum());
        };
        while let Some(step) = load.fill_step() {
            take(step);
        }
        for _ in 0..steps {
            let step = load.step();
            written += step.bytes();
            take(step);
        }
        assert!(most <= data_bytes && most * 20 > data_bytes * 18, "{model}: {most} of {data_bytes} bytes");
        (sizes, written)
    }

    #[test]
    fn files_have_the_bytes_that_they_may_have_and_are_there_when_they_are_used() {
        for model in FileModel::ALL {
            let (sizes, written) = sizes_after(model, 64 << 20, 20_000);
            assert!(written > 16 << 20, "{model}: {written} bytes in {} files", sizes.len());
            assert_eq!(model.name().parse(), Ok(model));
        }
        assert!("mail".parse::<FileModel>().unwrap_err().contains("postmark"));
    }

    #[test]
    fn a_seed_decides_every_step() {
        let steps = |seed| {
            let mut load = FileLoad::new(FileModel::Postmark, 16 << 20, seed);
            while load.fill_step().is_some() {}
            (0..500).map(|_| load.step()).collect::<Vec<_>>()
        };
        assert_eq!(steps(1), steps(1));
        assert_ne!(steps(1), steps(2));
    }
}
