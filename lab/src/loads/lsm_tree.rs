//! LSM-trees in one file system: logs, tables that are flushed and never overwritten, and compaction level by level.
//!
//! ```text
//!   host ─▶ log ▐▒▒▒▌ ─▶ memory ─ flush ─▶ level 0  ▐██▌▐██▌▐██▌      each table covers all keys
//!                                              │ all of them at once
//!                                              ▼
//!                                          level 1  ▐██▌▐██▌▐██▌▐█▌   tables cover keys of their own
//!                                              │ table by table, what overlaps least first
//!                                              ▼
//!                                          level 2  ▐██▌▐██▌▐██▌ …    ten times as large
//! ```
//!
//! Keys are overwritten uniformly, so how many blocks a merge makes can be computed: of the blocks of all keys in a range
//! each table holds a share, and shares of different levels are independent. Several flushes and compactions write at a
//! time, each its own table, and chance decides whose turn it is. A merge reads its inputs from the host's cache.
//!
//! What keeps trees going on a full file system: a compaction begins when there is room for all that it writes, and ends
//! with no more than it read. Logs and flushes are what takes more; they leave the room that the largest compaction of level 0
//! needs, and wait for it otherwise. The last levels are so large that some table can be flushed when nothing is left to
//! compact.

use super::space::{File, Space};
use super::{Numbers, ObjectConfig};
use crate::load::{Access, Hint, Load, Operation};
use crate::workload::below;
use openftl_parts::target::Extent;
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::VecDeque;

/// Blocks of a table, where the drive is large: 64 MiB.
const TABLE_BLOCKS: u64 = 16384;

/// Tables that fit on a small drive.
const TABLES_MIN: u64 = 200;

/// A level is so many times as large as the one above.
const FAN_OUT: u64 = 10;

/// Tables of level 0 from which on they are compacted, and at which writers wait.
const LEVEL_0_COMPACT: usize = 4;
const LEVEL_0_STOP: usize = 36;

/// Level 1 has at most so many tables where there are levels below it.
const LEVEL_1_TABLES_MAX: u64 = 4;

/// Tables of the last level at least.
const BOTTOM_TABLES_MIN: u64 = 2 * LEVEL_1_TABLES_MAX;

/// A table of a level that is over its target, and those of the next level that it overlaps: so many or fewer, on average of
/// all of the level's tables. Ends need not meet, so one more on either side.
const OVERLAP_TABLES: u64 = FAN_OUT + 3;

/// Filled memories that are not yet flushed, at which writers wait.
const MEMORIES_STOP: usize = 2;

/// Blocks of a write to the log: many commits at once.
const LOG_ACCESS_BLOCKS: u32 = 16;

/// Keys are told apart this finely: a block has 256 of them.
const KEYS_PER_BLOCK: u64 = 256;

/// What LSM-trees are made from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LsmConfig {
    /// Drive, fill (of all that files use, the outputs of compactions under way among them), access and seed.
    pub objects: ObjectConfig,
    /// Compactions of a tree that write at a time. A flush goes on beside them.
    pub jobs: u32,
    /// Trees that share the file system.
    pub trees: u32,
    /// Whether writes go to a log first.
    pub log: bool,
    /// Whether files that are deleted are trimmed.
    pub discard: bool,
}

#[derive(Clone, Debug)]
struct Table {
    low: u64,
    /// The key behind its last one.
    high: u64,
    blocks: u32,
    /// Where it is, as soon as it is begun.
    file: Option<File>,
    /// Whether a compaction reads it.
    busy: bool,
}

impl Table {
    /// The share of its keys that it holds.
    fn density(&self) -> f64 {
        f64::from(self.blocks) / blocks_of(self.low, self.high)
    }

    fn overlaps(&self, low: u64, high: u64) -> bool {
        self.low < high && low < self.high
    }
}

/// Blocks of all keys from `low` to below `high`.
fn blocks_of(low: u64, high: u64) -> f64 {
    (high - low) as f64 / KEYS_PER_BLOCK as f64
}

fn blocks(tables: &[Table]) -> u64 {
    tables.iter().map(|table| u64::from(table.blocks)).sum()
}

/// The file system that all trees use.
#[derive(Debug)]
struct Disk {
    space: Space,
    /// Blocks that files may have at a time, and that running jobs will still take.
    used_max: u64,
    promised: u64,
    /// Whether files that are deleted are trimmed.
    discard: bool,
    numbers: Numbers,
    /// Extents of the file that was made last.
    announced: Vec<Extent>,
    /// Whether a job may be possible that was not before.
    stirred: bool,
}

impl Disk {
    fn has_room(&self, blocks: u64) -> bool {
        self.space.used() + self.promised + blocks <= self.used_max
    }

    /// A new file, and what a host says of it.
    fn create(&mut self, blocks: u32, kind: usize) -> (File, Access) {
        let extents = self.space.allocate(u64::from(blocks));
        self.announced.clone_from(&extents);
        let file = File::new(extents, Hint { kind: kind as u8, object: self.numbers.next() });
        let access = file.allocate();
        (file, access)
    }

    /// Deletes `file`, or one more extent of it; none when all of it is gone.
    fn delete(&mut self, file: &mut File) -> Option<Access> {
        self.stirred = true;
        while let Some(extent) = file.extents.pop() {
            self.space.release(extent);
            if self.discard {
                let Extent { first, blocks } = extent;
                return Some(Access { operation: Operation::Trim, first, blocks: blocks as u32, hint: file.hint });
            }
        }
        None
    }
}

/// What clients have written and no table holds yet, as long as a table.
#[derive(Debug)]
struct Memory {
    filled: u32,
    log: Option<File>,
}

/// A flush or a compaction.
#[derive(Debug)]
struct Job {
    /// The level that it writes.
    level: usize,
    /// Written one after the other.
    outputs: Vec<Table>,
    /// Which of them is written.
    at: usize,
    /// Tables or a log that end with it.
    inputs: Vec<File>,
    is_installed: bool,
}

/// What a turn came to.
enum Turn {
    Step(Access),
    /// Nothing that the drive sees.
    Quiet,
    Ended,
}

#[derive(Debug)]
struct Tree {
    table_blocks: u32,
    access_blocks: u32,
    keys: u64,
    levels: Vec<Vec<Table>>,
    /// Blocks that each level should have.
    targets: Vec<u64>,
    has_log: bool,
    /// What clients write to.
    memory: Option<Memory>,
    full_memories: VecDeque<Memory>,
    /// Whether a memory is being flushed.
    is_flushing: bool,
    jobs: Vec<Job>,
    jobs_max: usize,
}

impl Tree {
    /// Files of a level are of this kind.
    fn kind(&self, level: usize) -> usize {
        level + usize::from(self.has_log)
    }

    /// Room that its next compaction may need when one more table has been flushed, as far as anybody has to care.
    fn compaction_blocks_max(&self) -> u64 {
        let flushes = 1 + u64::from(self.is_flushing);
        let level_0 = blocks(&self.levels[0]) + flushes * u64::from(self.table_blocks);
        // There are no more blocks than those of all keys.
        let merged = (level_0 + blocks(&self.levels[1])).min(self.keys / KEYS_PER_BLOCK + u64::from(self.table_blocks));
        merged.max(OVERLAP_TABLES * u64::from(self.table_blocks))
    }

    /// Whether clients can write: to the memory that they have, or to a new one. `spare` is what logs have to leave.
    fn is_stalled(&self, disk: &Disk, spare: u64) -> bool {
        let waiting = self.full_memories.len() + usize::from(self.is_flushing);
        self.memory.is_none()
            && (waiting >= MEMORIES_STOP
                || self.levels[0].len() + waiting >= LEVEL_0_STOP
                || !disk.has_room(spare + u64::from(self.table_blocks)))
    }

    /// Clients write: to the log, if there is one.
    fn write(&mut self, disk: &mut Disk) -> Turn {
        let Some(mut memory) = self.memory.take() else {
            let mut memory = Memory { filled: 0, log: None };
            let turn = if self.has_log {
                let (log, access) = disk.create(self.table_blocks, 0);
                memory.log = Some(log);
                Turn::Step(access)
            } else {
                Turn::Quiet
            };
            self.memory = Some(memory);
            return turn;
        };
        let turn = match &mut memory.log {
            Some(log) => {
                let access = log.write(LOG_ACCESS_BLOCKS.min(self.access_blocks));
                memory.filled += access.blocks;
                Turn::Step(access)
            }
            None => {
                memory.filled += self.access_blocks;
                Turn::Quiet
            }
        };
        if memory.filled >= self.table_blocks {
            self.full_memories.push_back(memory);
            disk.stirred = true;
        } else {
            self.memory = Some(memory);
        }
        turn
    }

    /// Begins whatever may begin; whether it was anything. `spare` is what flushes have to leave.
    fn begin_job(&mut self, disk: &mut Disk, spare: u64) -> bool {
        let compactions = self.jobs.len() - usize::from(self.is_flushing);
        let mut job = self.flush(disk, spare);
        if compactions < self.jobs_max {
            job = job.or_else(|| self.compact_level_0(disk)).or_else(|| self.compact(disk));
        }
        let Some(job) = job else { return false };
        disk.promised += blocks(&job.outputs);
        self.jobs.push(job);
        true
    }

    fn flush(&mut self, disk: &Disk, spare: u64) -> Option<Job> {
        if self.is_flushing || !disk.has_room(spare + u64::from(self.table_blocks)) {
            return None;
        }
        let memory = self.full_memories.pop_front()?;
        self.is_flushing = true;
        let outputs = self.split(0, self.keys, u64::from(self.table_blocks), 1);
        Some(Job { level: 0, outputs, at: 0, inputs: memory.log.into_iter().collect(), is_installed: false })
    }

    /// All of level 0, with all of level 1.
    fn compact_level_0(&mut self, disk: &Disk) -> Option<Job> {
        let is_due = self.levels[0].len() >= LEVEL_0_COMPACT && self.takes_more(1);
        if !is_due || self.levels[..2].iter().flatten().any(|table| table.busy) {
            return None;
        }
        let upper: f64 = 1.0 - self.levels[0].iter().map(|table| 1.0 - table.density()).product::<f64>();
        let kept = blocks(&self.levels[1]) as f64;
        self.merge(disk, 0, 0, self.keys, upper * blocks_of(0, self.keys) + kept * (1.0 - upper))
    }

    /// One table of the level that is most over its target.
    fn compact(&mut self, disk: &Disk) -> Option<Job> {
        let mut due: Vec<(f64, usize)> = (1..self.levels.len().saturating_sub(1))
            .map(|level| (self.score(level), level))
            .filter(|(score, level)| *score > 1.0 && self.takes_more(level + 1))
            .collect();
        due.sort_unstable_by(|a, b| b.0.total_cmp(&a.0));
        due.into_iter().find_map(|(_, level)| self.compact_one(disk, level))
    }

    /// What a level has of what it should.
    fn score(&self, level: usize) -> f64 {
        blocks(&self.levels[level]) as f64 / self.targets[level] as f64
    }

    /// Whether the level above may be compacted into this one: no level grows far beyond its target.
    fn takes_more(&self, level: usize) -> bool {
        level + 1 == self.levels.len() || self.score(level) <= 1.0
    }

    /// The table that overlaps least of the next level for its own size, of those that there is room for.
    fn compact_one(&mut self, disk: &Disk, level: usize) -> Option<Job> {
        let next = &self.levels[level + 1];
        let mut tables: Vec<(f64, u64, u64, f64)> = Vec::new();
        for table in self.levels[level].iter().filter(|table| !table.busy) {
            let (low, high, own) = (table.low, table.high, f64::from(table.blocks));
            let (mut overlap, mut merged, mut is_free) = (0.0, own, true);
            let from = next.partition_point(|other| other.high <= low);
            for other in next[from..].iter().take_while(|other| other.low < high) {
                let shared = blocks_of(other.low.max(low), other.high.min(high));
                overlap += f64::from(other.blocks);
                merged += f64::from(other.blocks) - shared * table.density() * other.density();
                is_free &= !other.busy;
            }
            if is_free {
                tables.push((overlap / own, low, high, merged));
            }
        }
        tables.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        tables.into_iter().find_map(|(_, low, high, merged)| self.merge(disk, level, low, high, merged))
    }

    /// The compaction of what `level` holds of these keys, with what it overlaps in the next, into so many blocks.
    fn merge(&mut self, disk: &Disk, level: usize, low: u64, high: u64, merged: f64) -> Option<Job> {
        let below = self.levels[level + 1].iter().filter(|table| table.overlaps(low, high));
        let (first, last) =
            below.fold((low, high), |(first, last), table| (first.min(table.low), last.max(table.high)));
        let most = ((last - first) / KEYS_PER_BLOCK).max(1);
        let merged = (merged.floor() as u64).clamp(1, most);
        if !disk.has_room(merged) {
            return None;
        }
        let outputs = self.split(first, last, merged, merged.div_ceil(u64::from(self.table_blocks)));
        let mut inputs = Vec::new();
        for table in self.levels[level..level + 2].iter_mut().flatten() {
            if table.overlaps(low, high) {
                table.busy = true;
                inputs.extend(table.file.clone());
            }
        }
        Some(Job { level: level + 1, outputs, at: 0, inputs, is_installed: false })
    }

    /// So many tables of about the same size, that share these keys.
    fn split(&self, low: u64, high: u64, blocks: u64, tables: u64) -> Vec<Table> {
        let key = |index: u64| low + (u128::from(high - low) * u128::from(index) / u128::from(tables)) as u64;
        (0..tables)
            .map(|index| {
                let size = blocks * (index + 1) / tables - blocks * index / tables;
                Table { low: key(index), high: key(index + 1), blocks: size as u32, file: None, busy: false }
            })
            .collect()
    }

    /// A turn of job number `index`.
    fn turn(&mut self, disk: &mut Disk, index: usize) -> Turn {
        let kind = self.kind(self.jobs[index].level);
        let job = &mut self.jobs[index];
        if let Some(table) = job.outputs.get_mut(job.at) {
            let Some(file) = &mut table.file else {
                disk.promised -= u64::from(table.blocks);
                let (file, access) = disk.create(table.blocks, kind);
                table.file = Some(file);
                return Turn::Step(access);
            };
            if !file.is_written() {
                return Turn::Step(file.write(self.access_blocks));
            }
            // A table counts once it is durable.
            job.at += 1;
            return Turn::Step(Access::FLUSH);
        }
        if !job.is_installed {
            self.install(index);
            disk.stirred = true;
        }
        let job = &mut self.jobs[index];
        while let Some(input) = job.inputs.last_mut() {
            match disk.delete(input) {
                Some(access) => return Turn::Step(access),
                None => job.inputs.pop(),
            };
        }
        self.jobs.remove(index);
        Turn::Ended
    }

    /// The tables of a job take the place of those that it read.
    fn install(&mut self, index: usize) {
        let job = &mut self.jobs[index];
        job.is_installed = true;
        let level = job.level;
        job.at = 0;
        let outputs = std::mem::take(&mut job.outputs);
        if level > 0 {
            for level in &mut self.levels[level - 1..=level] {
                let is_input = |table: &Table| {
                    let file = table.file.as_ref();
                    job.inputs.iter().any(|input| file.is_some_and(|file| file.extents[0] == input.extents[0]))
                };
                level.retain(|table| !table.busy || !is_input(table));
            }
        } else {
            self.is_flushing = false;
        }
        self.levels[level].extend(outputs);
        if level > 0 {
            self.levels[level].sort_unstable_by_key(|table| table.low);
        }
    }

    /// A bulk load: the last level, in the order of its keys.
    fn fill_step(&mut self, disk: &mut Disk) -> Option<Access> {
        let bottom = self.levels.len() - 1;
        let kind = self.kind(bottom);
        if let Some(file) = self.levels[bottom].last_mut().and_then(|table| table.file.as_mut())
            && !file.is_written()
        {
            return Some(file.write(self.access_blocks));
        }
        let low = self.levels[bottom].last().map_or(0, |table| table.high);
        if low == self.keys {
            return None;
        }
        let (file, access) = disk.create(self.table_blocks, kind);
        let high = low + u64::from(self.table_blocks) * KEYS_PER_BLOCK;
        self.levels[bottom].push(Table { low, high, blocks: self.table_blocks, file: Some(file), busy: false });
        Some(access)
    }
}

/// LSM-trees that share a file system.
pub struct LsmTrees {
    rng: Xoshiro256PlusPlus,
    disk: Disk,
    trees: Vec<Tree>,
    access_blocks: u32,
    drive_blocks: u64,
}

impl LsmTrees {
    /// The trees that `config` describes; `None` if there is no room for them to work in.
    #[must_use]
    pub fn new(config: LsmConfig) -> Option<LsmTrees> {
        let LsmConfig { objects, jobs, trees, log, discard } = config;
        let table_blocks = TABLE_BLOCKS.min(objects.drive_blocks / TABLES_MIN);
        if table_blocks == 0 || trees == 0 {
            return None;
        }
        let used_max = objects.live_blocks_max();
        let tables = bottom_tables(used_max / table_blocks, u64::from(trees), log)?;
        let mut targets = vec![tables * table_blocks];
        while targets[targets.len() - 1] > LEVEL_1_TABLES_MAX * table_blocks {
            targets.push(targets[targets.len() - 1] / FAN_OUT);
        }
        // Level 0 counts tables.
        targets.push(LEVEL_0_COMPACT as u64 * table_blocks);
        targets.reverse();
        let tree = || Tree {
            table_blocks: table_blocks as u32,
            access_blocks: objects.access_blocks,
            keys: tables * table_blocks * KEYS_PER_BLOCK,
            levels: targets.iter().map(|_| Vec::new()).collect(),
            targets: targets.clone(),
            has_log: log,
            memory: None,
            full_memories: VecDeque::new(),
            is_flushing: false,
            jobs: Vec::new(),
            jobs_max: jobs as usize,
        };
        Some(LsmTrees {
            rng: Xoshiro256PlusPlus::seed_from_u64(objects.seed),
            disk: Disk {
                space: Space::new(objects.drive_blocks),
                used_max,
                promised: 0,
                discard,
                numbers: Numbers::default(),
                announced: Vec::new(),
                stirred: true,
            },
            trees: (0..trees).map(|_| tree()).collect(),
            access_blocks: objects.access_blocks,
            drive_blocks: objects.drive_blocks,
        })
    }

    /// What logs and flushes have to leave for compactions.
    fn spare(&self) -> u64 {
        self.trees.iter().map(Tree::compaction_blocks_max).max().unwrap_or(0)
    }

    /// Begins whatever may begin.
    fn begin_jobs(&mut self) {
        while std::mem::take(&mut self.disk.stirred) {
            for tree in 0..self.trees.len() {
                let spare = self.spare();
                self.disk.stirred |= self.trees[tree].begin_job(&mut self.disk, spare);
            }
        }
    }

    /// One of all jobs and clients that can go on has its turn.
    fn turn(&mut self) -> Turn {
        let spare = self.spare();
        let clients: Vec<usize> =
            (0..self.trees.len()).filter(|&tree| !self.trees[tree].is_stalled(&self.disk, spare)).collect();
        let jobs: usize = self.trees.iter().map(|tree| tree.jobs.len()).sum();
        assert!(jobs + clients.len() > 0, "nothing can be written: {} blocks for the trees", self.disk.used_max);
        let mut draw = below(self.rng.next_u64(), (jobs + clients.len()) as u64) as usize;
        if let Some(&client) = clients.get(draw) {
            return self.trees[client].write(&mut self.disk);
        }
        draw -= clients.len();
        for tree in &mut self.trees {
            if draw < tree.jobs.len() {
                return tree.turn(&mut self.disk, draw);
            }
            draw -= tree.jobs.len();
        }
        unreachable!("there are as many jobs as were counted")
    }
}

/// As many tables of the last level as leave room for all that a tree has when there is nothing to compact, for a flush, and
/// for a compaction.
fn bottom_tables(tables_max: u64, trees: u64, log: bool) -> Option<u64> {
    let needed = |bottom: u64| {
        let (mut upper, mut level) = (0, bottom);
        while level > LEVEL_1_TABLES_MAX {
            level = level.div_ceil(FAN_OUT);
            upper += level;
        }
        let level_0 = LEVEL_0_COMPACT as u64;
        let logs = if log { MEMORIES_STOP as u64 + 1 } else { 0 };
        let compaction = (level_0 + 2 + level).max(OVERLAP_TABLES);
        trees * (bottom + upper + level_0 + logs) + 1 + compaction
    };
    (BOTTOM_TABLES_MIN..=tables_max).rev().find(|&bottom| needed(bottom) <= tables_max)
}

impl Load for LsmTrees {
    fn step(&mut self) -> Option<Access> {
        loop {
            self.begin_jobs();
            match self.turn() {
                Turn::Step(access) => return Some(access),
                Turn::Quiet => {}
                Turn::Ended => self.disk.stirred = true,
            }
        }
    }

    fn fill_step(&mut self) -> Option<Access> {
        let draw = below(self.rng.next_u64(), self.trees.len() as u64) as usize;
        let count = self.trees.len();
        (0..count).find_map(|index| self.trees[(draw + index) % count].fill_step(&mut self.disk))
    }

    fn extents(&self) -> Vec<Extent> {
        self.disk.announced.clone()
    }

    fn kinds(&self) -> Vec<String> {
        let tree = &self.trees[0];
        let levels = (0..tree.levels.len()).map(|level| format!("level {level}"));
        tree.has_log.then(|| "log".to_owned()).into_iter().chain(levels).collect()
    }

    fn live_blocks_max(&self) -> u64 {
        // What is deleted and not trimmed lives on, as far as the drive knows.
        if self.disk.discard { self.disk.used_max } else { self.drive_blocks }
    }

    fn access_blocks_max(&self) -> u32 {
        self.access_blocks
    }
}
