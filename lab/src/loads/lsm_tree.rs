//! An LSM-tree: a write-ahead log, tables that are flushed and never overwritten, and compaction level by level.
//!
//! ```text
//!   host ─▶ log ▐▒▒▒▌ ─▶ memory ─ flush ─▶ level 0  ▐██▌▐██▌▐██▌      each table covers all keys
//!                                              │ all of them at once
//!                                              ▼
//!                                          level 1  ▐██▌▐██▌▐██▌▐█▌   tables cover keys of their own
//!                                              │ table by table, round and round
//!                                              ▼
//!                                          level 2  ▐██▌▐██▌▐██▌ …    ten times as large
//! ```
//!
//! Keys are overwritten uniformly, so how many blocks a merge makes can be computed: of the blocks of all keys in a range
//! each table holds a share, and shares of different levels are independent. Several flushes and compactions write at a
//! time, each its own table, and chance decides whose turn it is. A merge reads its inputs from the host's cache.

use super::{Numbers, Object, ObjectConfig};
use crate::load::{Access, Hint, Load};
use crate::workload::below;
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::VecDeque;

/// Blocks of a table, where the drive is large: 64 MiB.
const TABLE_BLOCKS: u64 = 16384;

/// Places for tables on a small drive.
const PLACES_MIN: u64 = 512;

/// A level is so many times as large as the one above.
const FAN_OUT: u64 = 10;

/// Tables of level 0 from which on they are compacted, and at which writers wait.
const LEVEL_0_COMPACT: usize = 4;
const LEVEL_0_STOP: usize = 8;

/// Tables of the last level at least: enough for one more level between it and level 0.
const BOTTOM_TABLES_MIN: u64 = FAN_OUT * LEVEL_0_COMPACT as u64;

/// Logs whose memory is not yet flushed at which writers wait.
const LOGS_STOP: usize = 2;

/// Blocks of a write to the log: many commits at once.
const LOG_ACCESS_BLOCKS: u32 = 16;

/// Keys are told apart this finely: a block has 256 of them.
const KEYS_PER_BLOCK: u64 = 256;

const LOG_KIND: u8 = 0;

#[derive(Clone, Copy, Debug)]
struct Table {
    low: u64,
    /// The key behind its last one.
    high: u64,
    object: Object,
    /// Whether a compaction reads it.
    busy: bool,
}

impl Table {
    /// The share of its keys that it holds.
    fn density(&self) -> f64 {
        f64::from(self.object.blocks) / blocks_of(self.low, self.high)
    }

    fn overlaps(&self, low: u64, high: u64) -> bool {
        self.low < high && low < self.high
    }
}

/// Blocks of all keys from `low` to below `high`.
fn blocks_of(low: u64, high: u64) -> f64 {
    (high - low) as f64 / KEYS_PER_BLOCK as f64
}

/// A flush or a compaction.
#[derive(Debug)]
struct Job {
    /// The level that it writes.
    level: usize,
    /// Written one after the other; their places are chosen when they begin.
    outputs: Vec<Table>,
    /// Which of them is written.
    at: usize,
    has_begun: bool,
    /// Tables or a log that end with it.
    inputs: Vec<Object>,
    is_installed: bool,
}

/// What a job's turn came to.
enum Turn {
    Step(Access),
    /// All of its tables are written.
    Written,
    Ended,
}

/// An LSM-tree on a drive.
pub struct LsmTree {
    rng: Xoshiro256PlusPlus,
    access_blocks: u32,
    table_blocks: u32,
    keys: u64,
    free: VecDeque<u64>,
    /// Places that may be used at a time, those in use, and those that running jobs will still take.
    places_max: usize,
    places_used: usize,
    places_promised: usize,
    levels: Vec<Vec<Table>>,
    /// Blocks that each level should have.
    targets: Vec<u64>,
    /// Where the next compaction of a level begins.
    cursors: Vec<u64>,
    log: Option<Object>,
    /// Full logs whose memory waits to be flushed.
    full_logs: VecDeque<Object>,
    flushing: usize,
    jobs: Vec<Job>,
    jobs_max: usize,
    /// Whether a job may be possible that was not before.
    stirred: bool,
    numbers: Numbers,
}

impl LsmTree {
    /// The tree that `config` describes, with at most `jobs` flushes and compactions at a time; `None` if there is no room
    /// for them to work in.
    #[must_use]
    pub fn new(config: ObjectConfig, jobs: u32) -> Option<LsmTree> {
        let table_blocks = TABLE_BLOCKS.min(config.drive_blocks / PLACES_MIN);
        if table_blocks == 0 {
            return None;
        }
        let places = config.drive_blocks / table_blocks;
        let places_max = config.live_blocks_max() / table_blocks;
        let jobs_max = jobs as usize;
        let tables = Self::bottom_tables(places_max, u64::from(jobs))?;
        let mut targets = vec![tables * table_blocks];
        while targets[targets.len() - 1] / table_blocks >= FAN_OUT * LEVEL_0_COMPACT as u64 {
            targets.push(targets[targets.len() - 1] / FAN_OUT);
        }
        // Level 0 counts tables.
        targets.push(LEVEL_0_COMPACT as u64 * table_blocks);
        targets.reverse();
        Some(LsmTree {
            rng: Xoshiro256PlusPlus::seed_from_u64(config.seed),
            access_blocks: config.access_blocks,
            table_blocks: table_blocks as u32,
            keys: tables * table_blocks * KEYS_PER_BLOCK,
            free: (0..places).map(|place| place * table_blocks).collect(),
            places_max: places_max as usize,
            places_used: 0,
            places_promised: 0,
            levels: targets.iter().map(|_| Vec::new()).collect(),
            cursors: vec![0; targets.len()],
            targets,
            log: None,
            full_logs: VecDeque::new(),
            flushing: 0,
            jobs: Vec::with_capacity(jobs_max),
            jobs_max,
            stirred: true,
            numbers: Numbers::default(),
        })
    }

    /// As many tables of the last level as leave room for all others and for what compactions write.
    fn bottom_tables(places: u64, jobs: u64) -> Option<u64> {
        let needed = |tables: u64| {
            let (mut upper, mut level) = (0, tables);
            while level >= FAN_OUT * LEVEL_0_COMPACT as u64 {
                level /= FAN_OUT;
                // A level may be over its target, and its tables are not all full.
                upper += level + level / 4 + 2 + jobs;
            }
            let logs = LOGS_STOP as u64 + 2;
            let largest = level + level / 4 + 2 + LEVEL_0_STOP as u64;
            tables + upper + logs + LEVEL_0_STOP as u64 + largest + (jobs - 1) * (FAN_OUT + 3)
        };
        (BOTTOM_TABLES_MIN..=places).rev().find(|&tables| needed(tables) <= places)
    }

    fn place(&mut self) -> u64 {
        self.places_used += 1;
        self.free.pop_front().expect("no more places are promised than there are")
    }

    fn has_room(&self, tables: usize) -> bool {
        self.places_used + self.places_promised + tables <= self.places_max
    }

    fn hint(&mut self, kind: usize) -> Hint {
        Hint { kind: kind as u8, object: self.numbers.next() }
    }

    fn is_stalled(&self) -> bool {
        self.log.is_none()
            && (self.full_logs.len() + self.flushing >= LOGS_STOP
                || self.levels[0].len() + self.flushing >= LEVEL_0_STOP
                || !self.has_room(1))
    }

    /// The host's clients write to the log.
    fn write_log(&mut self) -> Access {
        let Some(mut log) = self.log.take() else {
            let hint = self.hint(usize::from(LOG_KIND));
            let log = Object::new(self.place(), self.table_blocks, hint);
            self.log = Some(log);
            return log.allocate();
        };
        let access = log.write(LOG_ACCESS_BLOCKS.min(self.access_blocks));
        if log.is_written() {
            self.full_logs.push_back(log);
            self.stirred = true;
        } else {
            self.log = Some(log);
        }
        access
    }

    /// Begins whatever may begin.
    fn begin_jobs(&mut self) {
        while std::mem::take(&mut self.stirred) && self.jobs.len() < self.jobs_max {
            let Some(job) = self.flush().or_else(|| self.compact_level_0()).or_else(|| self.compact()) else { return };
            self.places_promised += job.outputs.len();
            self.jobs.push(job);
            self.stirred = true;
        }
    }

    fn flush(&mut self) -> Option<Job> {
        if self.full_logs.is_empty() || !self.has_room(1) {
            return None;
        }
        let log = self.full_logs.pop_front()?;
        self.flushing += 1;
        let outputs = self.split(0, self.keys, u64::from(self.table_blocks), 1);
        Some(Job { level: 0, outputs, at: 0, has_begun: false, inputs: vec![log], is_installed: false })
    }

    /// All of level 0, with all of level 1.
    fn compact_level_0(&mut self) -> Option<Job> {
        let is_due = self.levels[0].len() >= LEVEL_0_COMPACT && self.takes_more(1);
        if !is_due || self.levels[..2].iter().flatten().any(|table| table.busy) {
            return None;
        }
        let upper: f64 = 1.0 - self.levels[0].iter().map(|table| 1.0 - table.density()).product::<f64>();
        let all = blocks_of(0, self.keys);
        let kept: f64 = self.levels[1].iter().map(|table| f64::from(table.object.blocks)).sum();
        let blocks = upper * all + kept * (1.0 - upper);
        self.merge(0, 0, self.keys, blocks)
    }

    /// One table of the level that is most over its target.
    fn compact(&mut self) -> Option<Job> {
        let mut due: Vec<(f64, usize)> = (1..self.levels.len().saturating_sub(1))
            .map(|level| (self.score(level), level))
            .filter(|(score, level)| *score > 1.0 && self.takes_more(level + 1))
            .collect();
        due.sort_unstable_by(|a, b| b.0.total_cmp(&a.0));
        due.into_iter().find_map(|(_, level)| self.compact_one(level))
    }

    /// What a level has of what it should.
    fn score(&self, level: usize) -> f64 {
        let blocks: u64 = self.levels[level].iter().map(|table| u64::from(table.object.blocks)).sum();
        blocks as f64 / self.targets[level] as f64
    }

    /// Whether the level above may be compacted into this one: no level grows far beyond its target.
    fn takes_more(&self, level: usize) -> bool {
        level + 1 == self.levels.len() || self.score(level) <= 1.0
    }

    fn compact_one(&mut self, level: usize) -> Option<Job> {
        let tables = &self.levels[level];
        let start = tables.partition_point(|table| table.low < self.cursors[level]);
        let next = &self.levels[level + 1];
        let fits = |index: &usize| {
            let table = &tables[*index];
            !table.busy && !next.iter().any(|other| other.busy && other.overlaps(table.low, table.high))
        };
        let index = (start..tables.len()).chain(0..start).find(fits)?;
        let table = tables[index];
        let mut blocks = f64::from(table.object.blocks);
        for other in next.iter().filter(|other| other.overlaps(table.low, table.high)) {
            let shared = blocks_of(other.low.max(table.low), other.high.min(table.high));
            blocks += f64::from(other.object.blocks) - shared * table.density() * other.density();
        }
        let job = self.merge(level, table.low, table.high, blocks)?;
        self.cursors[level] = if table.high >= self.keys { 0 } else { table.high };
        Some(job)
    }

    /// The compaction of what `level` holds of these keys, with what it overlaps in the next, into so many blocks.
    fn merge(&mut self, level: usize, low: u64, high: u64, blocks: f64) -> Option<Job> {
        let below = self.levels[level + 1].iter().filter(|table| table.overlaps(low, high));
        let (first, last) =
            below.fold((low, high), |(first, last), table| (first.min(table.low), last.max(table.high)));
        let most = ((last - first) / KEYS_PER_BLOCK).max(1);
        let blocks = (blocks.round() as u64).clamp(1, most);
        let outputs = blocks.div_ceil(u64::from(self.table_blocks));
        if !self.has_room(outputs as usize) {
            return None;
        }
        let outputs = self.split(first, last, blocks, outputs);
        let mut inputs = Vec::new();
        for table in self.levels[level..level + 2].iter_mut().flatten() {
            if table.overlaps(low, high) {
                table.busy = true;
                inputs.push(table.object);
            }
        }
        Some(Job { level: level + 1, outputs, at: 0, has_begun: false, inputs, is_installed: false })
    }

    /// So many tables of about the same size, that share these keys.
    fn split(&self, low: u64, high: u64, blocks: u64, tables: u64) -> Vec<Table> {
        let key = |index: u64| low + (u128::from(high - low) * u128::from(index) / u128::from(tables)) as u64;
        (0..tables)
            .map(|index| {
                let size = blocks * (index + 1) / tables - blocks * index / tables;
                let object = Object::new(0, size as u32, Hint::default());
                Table { low: key(index), high: key(index + 1), object, busy: false }
            })
            .collect()
    }

    /// A turn of job number `index`.
    fn turn(&mut self, index: usize) -> Turn {
        let Job { level, at, has_begun, is_installed, .. } = self.jobs[index];
        if at < self.jobs[index].outputs.len() {
            if !has_begun {
                let (first, hint) = (self.place(), self.hint(level + 1));
                self.places_promised -= 1;
                let job = &mut self.jobs[index];
                job.has_begun = true;
                let blocks = job.outputs[at].object.blocks;
                job.outputs[at].object = Object::new(first, blocks, hint);
                return Turn::Step(job.outputs[at].object.allocate());
            }
            let job = &mut self.jobs[index];
            let object = &mut job.outputs[at].object;
            if object.is_written() {
                // A table counts once it is durable.
                (job.at, job.has_begun) = (at + 1, false);
                return Turn::Step(Access::FLUSH);
            }
            return Turn::Step(object.write(self.access_blocks));
        }
        if !is_installed {
            return Turn::Written;
        }
        match self.jobs[index].inputs.pop() {
            Some(input) => {
                self.places_used -= 1;
                self.free.push_back(input.first);
                self.stirred = true;
                Turn::Step(input.trim())
            }
            None => Turn::Ended,
        }
    }

    /// The tables of a job take the place of those that it read.
    fn install(&mut self, index: usize) {
        let job = &mut self.jobs[index];
        job.is_installed = true;
        let level = job.level;
        for level in &mut self.levels[level.saturating_sub(1)..=level] {
            level.retain(|table| job.inputs.iter().all(|input| input.first != table.object.first));
        }
        self.levels[level].append(&mut job.outputs);
        job.at = 0;
        if level == 0 {
            self.flushing -= 1;
        } else {
            self.levels[level].sort_unstable_by_key(|table| table.low);
        }
        self.stirred = true;
    }
}

impl Load for LsmTree {
    fn step(&mut self) -> Option<Access> {
        loop {
            self.begin_jobs();
            let clients = u64::from(!self.is_stalled());
            let draw = below(self.rng.next_u64(), self.jobs.len() as u64 + clients) as usize;
            if draw == self.jobs.len() {
                assert!(clients > 0, "nothing can be written: {} places for the tree", self.places_max);
                return Some(self.write_log());
            }
            match self.turn(draw) {
                Turn::Step(access) => return Some(access),
                Turn::Written => self.install(draw),
                Turn::Ended => {
                    self.jobs.remove(draw);
                    self.stirred = true;
                }
            }
        }
    }

    /// A bulk load: the last level, in the order of its keys.
    fn fill_step(&mut self) -> Option<Access> {
        let bottom = self.levels.len() - 1;
        let access_blocks = self.access_blocks;
        if let Some(last) = self.levels[bottom].last_mut().filter(|table| !table.object.is_written()) {
            return Some(last.object.write(access_blocks));
        }
        let low = self.levels[bottom].last().map_or(0, |table| table.high);
        if low == self.keys {
            return None;
        }
        let (first, hint) = (self.place(), self.hint(bottom + 1));
        let object = Object::new(first, self.table_blocks, hint);
        let high = low + u64::from(self.table_blocks) * KEYS_PER_BLOCK;
        self.levels[bottom].push(Table { low, high, object, busy: false });
        Some(object.allocate())
    }

    fn kinds(&self) -> Vec<String> {
        let levels = (0..self.levels.len()).map(|level| format!("level {level}"));
        std::iter::once("log".to_owned()).chain(levels).collect()
    }

    fn live_blocks_max(&self) -> u64 {
        self.places_max as u64 * u64::from(self.table_blocks)
    }

    fn access_blocks_max(&self) -> u32 {
        self.access_blocks
    }
}
