//! What the placement of tables does to RocksDB: db_bench on a table drive, by placement and by the number of threads, and beside it on files on zones, on
//! an ALFS on segments, and on ext4 on a block drive, each with the same device.
//!
//! ```text
//!   for each stack:
//!     a new drive ── fillrandom, deleterandom, overwrite ──▶ readwhilewriting  with a write-ahead log
//!   for each number of threads, several rounds of each stack in turn:
//!     a new drive ── fillseq ──▶ readseq ──▶ readrandom                        without one, as in the paper
//! ```
//!
//! Each arrow is another process on the same drive, so that the drive's statistics are of one kind of load. The drive is the
//! paper's, smaller and slower: see [`nand`]. What it does in real time is what RocksDB waits for; the clock is this
//! machine's, so only ratios within a run say something, and what is told of several rounds is the one in the middle.
//!
//! | file | noun |
//! |---|---|
//! | this one | the loads, and the drive |
//! | [`measured`] | what was measured |
//! | [`telling`] | tables and plots of it |
//! | [`findings`] | what follows from it |

mod findings;
mod measured;
mod telling;

use crate::ext4;
use crate::rocksdb::{Bench, RocksDb};
use crate::stack::{Drive, Room, Stack, largest_table, slow_flash};
use measured::{Churn, Measured, Results, Round};
use openftl_experiments::{Assistant, Experiment, ExperimentError, Options, Paper, Run};
use openftl_media::Profile;
use telling::told;

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "ox-lightlsm",
    question: "Where should the tables of RocksDB lie: on all groups, on one each, or by what is being written?",
    paper: Some(Paper {
        title: "Open-Channel SSD (What is it Good For)",
        place: "section 4.3, Figures 5 and 6",
        found: "With one thread fill-sequential is 4 times as fast with horizontal placement as with vertical; it is best with two, \
                and loses 60% with four or eight, where vertical, which gains with threads, is twice as fast. Reads hardly depend on \
                the placement; horizontal is always ahead.",
    }),
    claims: &["000-11", "000-12", "000-13", "000-14", "000-15", "000-16", "000-17", "000-18"],
    in_virtual_time: false,
    memory_bytes: [6 << 30, 2 << 30],
    run,
};

const PROFILE: &str = "granby";

/// As in the paper.
const KEY_BYTES: u64 = 16;
const VALUE_BYTES: u64 = 1024;
/// Tables that each thread fills: 3 GB of 768 MB.
const TABLES_PER_THREAD: u64 = 4;

/// Benchmarks after which all that was written is on the drive, and RocksDB has nothing left to do. The second sleeps for five seconds
/// first, and is for loads after which there may be something to compact.
const FLUSHED: &str = "flush";
const COMPACTED: &str = "flush,waitforcompaction";

/// Points of a plot over time.
const STEPS: usize = 40;

/// Bytes a second that are written while others read.
const WRITTEN_WHILE_READING: u64 = 4 << 20;

struct Scale {
    /// So much slower than the paper's drive is this one, in everything.
    slower: u32,
    blocks_per_chunk: u32,
    room: Room,
    threads: &'static [usize],
    /// An odd number, so that one is in the middle.
    rounds: usize,
    /// Random reads of each thread.
    reads: u64,
    churn: ChurnScale,
}

/// How much there is of the load with a log.
struct ChurnScale {
    threads: usize,
    /// What ends the writes.
    settled: &'static str,
    /// Seconds of reading while one more thread writes.
    seconds: u64,
}

const FULL: Scale = Scale {
    slower: 16,
    blocks_per_chunk: 192,
    room: Room { tables: 3 << 30, log_area: 512 << 20 },
    threads: &[1, 2, 4, 8],
    rounds: 3,
    reads: 1_000,
    churn: ChurnScale { threads: 4, settled: COMPACTED, seconds: 8 },
};
const QUICK: Scale = Scale {
    slower: 4,
    blocks_per_chunk: 24,
    room: Room { tables: 1 << 30, log_area: 128 << 20 },
    threads: &[1, 2],
    rounds: 1,
    reads: 200,
    churn: ChurnScale { threads: 2, settled: FLUSHED, seconds: 1 },
};

impl Scale {
    fn table_bytes(&self, profile: &Profile) -> u64 {
        largest_table(profile)
    }
}

/// The paper's drive: smaller chunks, so that a table over all of them is smaller, and slower.
fn nand(scale: &Scale) -> Result<Profile, ExperimentError> {
    slow_flash(PROFILE, scale.slower, scale.blocks_per_chunk)
}

fn run(options: Options, assistant: &mut dyn Assistant) -> Result<Run, ExperimentError> {
    let scale = if options.quick { QUICK } else { FULL };
    let load = Load { rocksdb: RocksDb::find()?, profile: nand(&scale)?, seed: options.seed, scale: &scale };
    let lacking = ext4::lacking();
    let mut stacks = Stack::OF_PLUGIN.to_vec();
    stacks.extend(lacking.is_empty().then_some(Stack::Ext4));
    let steps = ((3 * scale.threads.len() * scale.rounds + 2) * stacks.len()) as f64;
    let mut done = 0;
    let mut next = |words: String| {
        assistant.progress(f64::from(done) / steps, &words);
        done += 1;
    };
    let mut churned = Vec::new();
    for &stack in &stacks {
        let mut next = |words: &str| next(format!("{stack}, {} threads: {words}", scale.churn.threads));
        churned.push(load.churn(stack, &mut next)?);
    }
    let mut measured = Vec::new();
    for &threads in scale.threads {
        let new = |stack: &Stack| Measured { stack: *stack, threads, rounds: Vec::new() };
        let mut cells: Vec<Measured> = stacks.iter().map(new).collect();
        for round in 1..=scale.rounds {
            for cell in &mut cells {
                let stack = cell.stack;
                let mut next = |words: &str| next(format!("{stack}, {threads} threads, round {round}: {words}"));
                cell.rounds.push(load.round(stack, threads, &mut next)?);
            }
        }
        measured.extend(cells);
    }
    assistant.progress(1.0, "done");
    let version = load.rocksdb.version()?;
    Ok(told(&load, &version, &Results { measured, churned, lacking }))
}

/// What db_bench is told.
struct Load<'a> {
    rocksdb: RocksDb,
    profile: Profile,
    seed: u64,
    scale: &'a Scale,
}

impl Load<'_> {
    fn table_bytes(&self) -> u64 {
        self.scale.table_bytes(&self.profile)
    }

    /// Keys that there are, and that each thread fills.
    fn keys(&self) -> u64 {
        TABLES_PER_THREAD * self.table_bytes() / (KEY_BYTES + VALUE_BYTES)
    }

    /// Runs benchmarks on a drive.
    fn bench(&self, drive: &Drive, threads: usize, more: &[&str]) -> Result<Bench, ExperimentError> {
        let table = self.table_bytes();
        let mut arguments = vec![
            format!("--threads={threads}"),
            format!("--num={}", self.keys()),
            format!("--seed={}", self.seed.max(1)),
            format!("--key_size={KEY_BYTES}"),
            format!("--value_size={VALUE_BYTES}"),
            "--compression_type=none".to_owned(),
            "--cache_size=0".to_owned(),
            "--bloom_bits=10".to_owned(),
            format!("--write_buffer_size={table}"),
            format!("--target_file_size_base={table}"),
            format!("--max_bytes_for_level_base={}", 4 * table),
            // As many tables may be on their way to the drive as threads fill them.
            format!("--max_write_buffer_number={}", threads + 1),
            format!("--max_background_flushes={threads}"),
            format!("--max_background_compactions={threads}"),
        ];
        arguments.extend(more.iter().map(|word| (*word).to_owned()));
        let mut db_bench = self.rocksdb.db_bench();
        db_bench.args(arguments);
        drive.bench(&self.rocksdb, db_bench)
    }

    fn round(&self, stack: Stack, threads: usize, next: &mut dyn FnMut(&str)) -> Result<Round, ExperimentError> {
        next("fillseq");
        let drive = Drive::new(stack, &self.profile, self.scale.room)?;
        // What one thread writes in order is never compacted.
        let fill = format!("--benchmarks=fillseq,{}", if threads == 1 { FLUSHED } else { COMPACTED });
        let often = format!("--stats_interval={}", self.keys() / STEPS as u64);
        let fill = self.bench(&drive, threads, &[&fill, "--disable_wal", &often])?;
        next("readseq");
        let reads = format!("--reads={}", self.keys() / 2);
        let sequential = self.bench(&drive, threads, &["--benchmarks=readseq", "--use_existing_db", &reads])?;
        next("readrandom");
        let reads = format!("--reads={}", self.scale.reads);
        let random = self.bench(&drive, threads, &["--benchmarks=readrandom", "--use_existing_db", &reads])?;
        Ok(Round { fill, sequential, random })
    }

    fn churn(&self, stack: Stack, next: &mut dyn FnMut(&str)) -> Result<Churn, ExperimentError> {
        let ChurnScale { threads, settled, seconds } = self.scale.churn;
        next("fillrandom, deleterandom, overwrite");
        let drive = Drive::new(stack, &self.profile, self.scale.room)?;
        let writes = format!("--benchmarks=fillrandom,deleterandom,overwrite,{settled}");
        let writes = self.bench(&drive, threads, &[&writes])?;
        next("readwhilewriting");
        let duration = format!("--duration={seconds}");
        let written = format!("--benchmark_write_rate_limit={WRITTEN_WHILE_READING}");
        let mixed = ["--benchmarks=readwhilewriting", "--use_existing_db", &duration, &written];
        let mixed = self.bench(&drive, threads, &mixed)?;
        Ok(Churn { stack, threads, writes, mixed })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_drive_is_the_papers_but_smaller_and_slower() {
        let (whole, slow) = (Profile::builtin(PROFILE).unwrap(), nand(&FULL).unwrap());
        assert_eq!((slow.groups, slow.pus_per_group), (whole.groups, whole.pus_per_group));
        assert_eq!(slow.chip.program_us[0], whole.chip.program_us[0] * FULL.slower);
        assert_eq!(slow.program_blocks(), whole.program_blocks(), "units are as large as before");
        slow.validate().unwrap();
        nand(&QUICK).unwrap().validate().unwrap();
        assert_eq!(FULL.table_bytes(&slow), 24 << 20);
    }
}
