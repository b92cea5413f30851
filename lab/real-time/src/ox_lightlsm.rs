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

use crate::ext4;
use crate::rocksdb::{Bench, Phase, RocksDb};
use crate::stack::{Drive, Room, Stack};
use openftl_core::BLOCK_BYTES;
use openftl_core::units::ByteSize;
use openftl_experiments::{Assistant, Check, Claim, Experiment, ExperimentError, Figure, Options, Paper, Run};
use openftl_lab::figures::{Axis, Cell, Plot, Series, Table};
use openftl_media::Profile;
use openftl_tables::TablePlacement;

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
/// What the paper's interface moves for a read: a write unit.
const PAPER_READ_KIB: f64 = 96.0;

/// Benchmarks after which all that was written is on the drive, and RocksDB has nothing left to do. The second sleeps for five seconds
/// first, and is for loads after which there may be something to compact.
const FLUSHED: &str = "flush";
const COMPACTED: &str = "flush,waitforcompaction";

/// Points of a plot over time.
const STEPS: usize = 40;

/// Bytes a second that are written while others read.
const WRITTEN_WHILE_READING: u64 = 4 << 20;

/// By-load may be so far behind the better of the others.
const BY_LOAD_MIN: f64 = 0.9;
/// What a clock is worth: rates nearer to each other than this share are the same.
const CLOCK: f64 = 0.03;
const WAF_MAX: f64 = 1.02;
/// By-load may be so far behind ext4.
const BESIDE_EXT4_MIN: f64 = 0.9;

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
        u64::from(profile.groups * profile.pus_per_group * self.blocks_per_chunk) * BLOCK_BYTES as u64
    }
}

/// One stack with one number of threads.
struct Measured {
    stack: Stack,
    threads: usize,
    rounds: Vec<Round>,
}

/// The load of the paper, once.
struct Round {
    fill: Bench,
    sequential: Bench,
    random: Bench,
}

/// The load with a write-ahead log.
struct Churn {
    stack: Stack,
    threads: usize,
    writes: Bench,
    mixed: Bench,
}

/// The paper's drive: smaller chunks, so that a table over all of them is smaller; and everything takes longer, so that RocksDB
/// waits for the drive and not for this machine.
fn nand(scale: &Scale) -> Result<Profile, ExperimentError> {
    let mut profile = Profile::builtin(PROFILE)?;
    profile.name = format!("{PROFILE}-slow");
    profile.chip.blocks_per_chunk = scale.blocks_per_chunk;
    profile.channel_mb_s /= scale.slower;
    profile.cache.mb_s /= scale.slower;
    profile.chip.erase_us *= scale.slower;
    for times in [&mut profile.chip.read_us, &mut profile.chip.program_us] {
        times.iter_mut().for_each(|time| *time *= scale.slower);
    }
    Ok(profile)
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
        drive.bench(&self.rocksdb, &arguments)
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

/// A kind of operation, and how to find its benchmark in a round.
#[derive(Clone, Copy)]
struct Kind {
    name: &'static str,
    bench: fn(&Round) -> &Bench,
}

const FILL: Kind = Kind { name: "fillseq", bench: |round| &round.fill };
const SEQUENTIAL: Kind = Kind { name: "readseq", bench: |round| &round.sequential };
const RANDOM: Kind = Kind { name: "readrandom", bench: |round| &round.random };

impl Kind {
    fn rate_in(self, round: &Round) -> f64 {
        rate((self.bench)(round), self.name)
    }
}

impl Measured {
    /// The rounds, the slowest first.
    fn sorted(&self, kind: Kind) -> Vec<&Round> {
        let mut rounds: Vec<&Round> = self.rounds.iter().collect();
        rounds.sort_by(|a, b| kind.rate_in(a).total_cmp(&kind.rate_in(b)));
        rounds
    }

    /// The round in the middle.
    fn median(&self, kind: Kind) -> &Round {
        self.sorted(kind)[self.rounds.len() / 2]
    }

    /// The benchmark in the middle.
    fn bench(&self, kind: Kind) -> &Bench {
        (kind.bench)(self.median(kind))
    }

    fn rate(&self, kind: Kind) -> f64 {
        kind.rate_in(self.median(kind))
    }

    /// The rates of the slowest round and of the fastest.
    fn range(&self, kind: Kind) -> [f64; 2] {
        let rounds = self.sorted(kind);
        [rounds[0], rounds[rounds.len() - 1]].map(|round| kind.rate_in(round))
    }
}

/// Everything that was measured.
struct Results {
    measured: Vec<Measured>,
    churned: Vec<Churn>,
    /// Why ext4 was left out; nothing if it was not.
    lacking: Vec<String>,
}

fn phase<'a>(bench: &'a Bench, name: &str) -> Option<&'a Phase> {
    bench.phase(name).ok()
}

fn rate(bench: &Bench, name: &str) -> f64 {
    phase(bench, name).map_or(f64::NAN, |phase| phase.rate)
}

/// What RocksDB gave to the drive for each byte that it was given: flushes, compactions and its log.
fn rocksdb_amplification(bench: &Bench) -> f64 {
    let written = ["rocksdb.flush.write.bytes", "rocksdb.compact.write.bytes", "rocksdb.wal.bytes"];
    let written: u64 = written.iter().map(|name| bench.ticker(name)).sum();
    written as f64 / bench.ticker("rocksdb.bytes.written") as f64
}

fn drive_amplification(bench: &Bench) -> f64 {
    bench.count("/write_amplification")
}

/// What was programmed for each byte that RocksDB was given.
fn amplification_of_all(bench: &Bench) -> f64 {
    bench.count("/nand_blocks_written") * BLOCK_BYTES as f64 / bench.ticker("rocksdb.bytes.written") as f64
}

/// KiB that came from media for each operation. What opening the database read counts.
fn kib_from_media(bench: &Bench) -> f64 {
    bench.count("/blocks_read") * BLOCK_BYTES as f64 / 1024.0 / bench.operations() as f64
}

fn micros_per_operation(bench: &Bench) -> f64 {
    bench.cpu_seconds * 1e6 / bench.operations() as f64
}

fn told(load: &Load<'_>, version: &str, results: &Results) -> Run {
    let mut run = Run::default();
    let (scale, table) = (load.scale, load.table_bytes());
    run.parameter(
        "drive",
        format_args!(
            "{PROFILE}, {} times slower, its chunks {} times smaller: a table over all of them has {}",
            scale.slower,
            Profile::builtin(PROFILE).map_or(0, |whole| whole.chip.blocks_per_chunk / scale.blocks_per_chunk),
            ByteSize(table)
        ),
    );
    run.parameter("RocksDB", format_args!("{version}, tables and write buffers of {}, Bloom filters", ByteSize(table)));
    run.parameter(
        "load",
        format_args!(
            "db_bench, keys of {KEY_BYTES} bytes, values of {VALUE_BYTES}, {} a thread, no compression, no cache",
            ByteSize(TABLES_PER_THREAD * table)
        ),
    );
    run.parameter("rounds", format_args!("{}, of which the one in the middle is told", scale.rounds));
    run.parameter(
        "zones, ALFS",
        "on no more flash: zones of 4 parallel units; segments of 32, a file system in the process of RocksDB",
    );
    run.parameter(
        "ext4",
        match results.lacking.as_slice() {
            [] => {
                "on a block drive with the same device: NBD, nbdfuse, loop device, all of it with direct I/O, discards"
                    .to_owned()
            }
            lacking => format!("left out: {}", lacking.join("; ")),
        },
    );
    let Results { measured, churned, .. } = results;
    run.tables = vec![figure_5(measured), writes(measured), churn(churned)];
    run.plots = [FILL, RANDOM, SEQUENTIAL].map(|kind| by_threads(kind, measured)).into();
    let most = scale.threads.iter().copied().max().unwrap_or(1);
    run.plots.push(over_time("one-thread", "fillseq over time, one thread", measured, 1));
    run.plots.push(over_time("most-threads", &format!("fillseq over time, {most} threads"), measured, most));
    let all = Cells { measured, threads: scale.threads };
    run.claims = all.claims(most);
    run.checks.push(all.by_load());
    run.checks.extend(all.beside_ext4());
    run.checks.extend([amplification(churned), blocks_of_a_read(measured)]);
    run.notes = vec![
        "A real clock, and a database on the same cores: compare ratios within a run. Rates are those of db_bench, which does not \
         wait for the last write buffers.",
        "All threads of fillseq write the same keys in the same order, as db_bench has it: with one thread nothing is compacted, with \
         more of them tables overlap and are. The write buffers hold up to half of what one thread writes, and less with more.",
        "CPU is that of db_bench, which has the drive inside it; for ext4 that of the server and of nbdfuse too, but not that of the \
         kernel's own threads, which serve the loop device and write back. Of the write-ahead log ext4 gives the drive only what is there \
         when the kernel writes back: it counts as RocksDB's, and what is deleted before is never programmed.",
    ];
    run
}

const PERCENTILES: [(&str, &str); 3] = [("p50", "µs"), ("p99", "µs"), ("p99.9", "µs")];

fn figure_5(measured: &[Measured]) -> Table {
    let mut columns = vec![("load", ""), ("threads", ""), ("placement", ""), ("rate", "ops/s")];
    columns.extend([("slowest", "ops/s"), ("fastest", "ops/s")]);
    columns.extend(PERCENTILES);
    columns.extend([("CPU", "µs/op"), ("from media", "KiB/op")]);
    let mut table = Table::new("figure-5", &columns);
    for kind in [FILL, SEQUENTIAL, RANDOM] {
        for cell in measured {
            let bench = cell.bench(kind);
            let mut row = begin_row(kind.name, cell.threads, cell.stack, bench);
            row.extend(cell.range(kind).map(|rate| Cell::Number(rate, 0)));
            row.extend(percentiles(kind.name, bench));
            row.extend([Cell::Number(micros_per_operation(bench), 1), Cell::Number(kib_from_media(bench), 2)]);
            table.row(row);
        }
    }
    table
}

fn begin_row(name: &str, threads: usize, stack: Stack, bench: &Bench) -> Vec<Cell> {
    vec![
        Cell::Text(name.to_owned()),
        Cell::Count(threads as u64),
        Cell::Text(stack.to_string()),
        Cell::Number(rate(bench, name), 0),
    ]
}

fn percentiles(name: &str, bench: &Bench) -> [Cell; 3] {
    let percentiles = phase(bench, name).map_or([f64::NAN; 3], |phase| phase.percentiles);
    percentiles.map(|micros| Cell::Number(micros, 1))
}

/// RocksDB's, the drive's, and that of both.
fn amplifications(bench: &Bench) -> [Cell; 3] {
    [rocksdb_amplification(bench), drive_amplification(bench), amplification_of_all(bench)]
        .map(|waf| Cell::Number(waf, 3))
}

/// What was written during fillseq, and what that did to the dies.
fn writes(measured: &[Measured]) -> Table {
    let mut table = Table::new(
        "writes",
        &[
            ("threads", ""),
            ("placement", ""),
            ("tables", ""),
            ("RocksDB", "WAF"),
            ("drive", "WAF"),
            ("both", "WAF"),
            ("wait of a unit", "ms"),
            ("behind others", "%"),
            ("theirs", "ms"),
            ("busiest die", "times the mean"),
        ],
    );
    for cell in measured {
        let fill = cell.bench(FILL);
        let mut row = vec![Cell::Count(cell.threads as u64), Cell::Text(cell.stack.to_string())];
        let [rocksdb, drive, both] = amplifications(fill);
        match cell.stack {
            Stack::Tables(_) => {
                row.push(Cell::Count(fill.count("/tables/committed") as u64));
                row.extend([rocksdb, drive, both]);
                row.extend([
                    Cell::Number(milliseconds(fill, "waited", "units"), 1),
                    Cell::Number(fill.count("/waits/units_behind_others") / fill.count("/waits/units") * 100.0, 0),
                    Cell::Number(milliseconds(fill, "waited_behind_others", "units_behind_others"), 1),
                    Cell::Number(busiest(fill), 2),
                ]);
            }
            // They know nothing of tables.
            Stack::Zones | Stack::Alfs | Stack::Ext4 => {
                let unknown = || Cell::Text("–".to_owned());
                row.extend([unknown(), rocksdb, drive, both, unknown(), unknown(), unknown(), unknown()]);
            }
        }
        table.row(row);
    }
    table
}

/// How long units waited for their die, on average.
fn milliseconds(bench: &Bench, waited: &str, units: &str) -> f64 {
    match bench.count(&format!("/waits/{units}")) {
        0.0 => 0.0,
        units => bench.count(&format!("/waits/{waited}")) / units / 1e6,
    }
}

/// The time that the busiest die was busy, against the mean of all.
fn busiest(bench: &Bench) -> f64 {
    let dies = bench.drive["pu_busy"].as_array().map_or(&[][..], Vec::as_slice);
    let busy: Vec<f64> = dies.iter().filter_map(serde_json::Value::as_f64).collect();
    busy.iter().copied().fold(0.0, f64::max) * busy.len() as f64 / busy.iter().sum::<f64>()
}

fn churn(churned: &[Churn]) -> Table {
    let mut columns = vec![("load", ""), ("threads", ""), ("placement", ""), ("rate", "ops/s")];
    columns.extend(PERCENTILES);
    columns.extend([("RocksDB", "WAF"), ("drive", "WAF"), ("both", "WAF"), ("CPU", "µs/op")]);
    let mut table = Table::new("churn", &columns);
    for (name, of) in [
        ("fillrandom", (|churn| &churn.writes) as fn(&Churn) -> &Bench),
        ("deleterandom", |churn| &churn.writes),
        ("overwrite", |churn| &churn.writes),
        ("readwhilewriting", |churn| &churn.mixed),
    ] {
        for churn in churned {
            let bench = of(churn);
            let mut row = begin_row(name, churn.threads, churn.stack, bench);
            row.extend(percentiles(name, bench));
            row.extend(amplifications(bench));
            row.push(Cell::Number(micros_per_operation(bench), 1));
            table.row(row);
        }
    }
    table
}

/// The stacks that were measured, in their order.
fn stacks(measured: &[Measured]) -> Vec<Stack> {
    let mut stacks = Vec::new();
    for cell in measured {
        if !stacks.contains(&cell.stack) {
            stacks.push(cell.stack);
        }
    }
    stacks
}

fn by_threads(kind: Kind, measured: &[Measured]) -> Plot {
    let line = |stack: Stack| {
        let cells: Vec<&Measured> = measured.iter().filter(|cell| cell.stack == stack).collect();
        let points = cells.iter().map(|cell| (cell.threads as f64, cell.rate(kind) / 1e3)).collect();
        // The rounds are what differs here, not the seeds.
        let ranges = cells.iter().map(|cell| {
            let [slowest, fastest] = cell.range(kind);
            [(cell.threads as f64, cell.threads as f64), (slowest / 1e3, fastest / 1e3)]
        });
        Series { ranges: ranges.collect(), ..Series::new(stack.to_string(), points) }
    };
    Plot {
        name: kind.name,
        title: format!("{}, by threads", kind.name),
        x: Axis::even("threads", ""),
        y: Axis::even("operations", "thousand/s"),
        series: stacks(measured).into_iter().map(line).collect(),
        caption: vec!["After Figure 5 of the paper; by-load, zones, ALFS and ext4 beside it.".to_owned()],
    }
}

fn over_time(name: &'static str, title: &str, measured: &[Measured], threads: usize) -> Plot {
    let line = |cell: &Measured| {
        let points = cell.bench(FILL).over_time(STEPS).into_iter().map(|(second, rate)| (second, rate / 1e3));
        Series::new(cell.stack.to_string(), points.collect())
    };
    Plot {
        name,
        title: title.to_owned(),
        x: Axis::even("time", "s"),
        y: Axis::even("operations", "thousand/s"),
        series: measured.iter().filter(|cell| cell.threads == threads).map(line).collect(),
        caption: vec![
            "After Figure 6 of the paper: where RocksDB waits for the drive, the line is at the bottom.".to_owned(),
        ],
    }
}

/// What was measured, for the findings about placements.
struct Cells<'a> {
    measured: &'a [Measured],
    threads: &'a [usize],
}

impl Cells<'_> {
    fn rate(&self, stack: Stack, threads: usize, kind: Kind) -> Option<f64> {
        let found = self.measured.iter().find(|cell| cell.stack == stack && cell.threads == threads);
        found.map(|cell| cell.rate(kind))
    }

    fn rates(&self, threads: usize, kind: Kind) -> [f64; 3] {
        Stack::TABLES.map(|stack| self.rate(stack, threads, kind).unwrap_or(f64::NAN))
    }

    /// `1, 2, 4`.
    fn each_thread(&self) -> String {
        self.threads.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")
    }

    /// How many times as fast horizontal placement is as vertical.
    fn ratio(&self, threads: usize, kind: Kind) -> f64 {
        let [horizontal, vertical, _] = self.rates(threads, kind);
        horizontal / vertical
    }

    /// The least and the greatest of a figure over all numbers of threads and both kinds of reads.
    fn of_reads(&self, figure: impl Fn(usize, Kind) -> f64) -> [f64; 2] {
        let all =
            [SEQUENTIAL, RANDOM].into_iter().flat_map(|kind| self.threads.iter().map(move |threads| (*threads, kind)));
        all.map(|(threads, kind)| figure(threads, kind))
            .fold([f64::INFINITY, f64::NEG_INFINITY], |[least, most], one| [least.min(one), most.max(one)])
    }

    /// What the paper's Figure 5 says. Of numbers of threads that were not measured, nothing.
    fn claims(&self, most: usize) -> Vec<Claim> {
        let [horizontal, vertical] = [0, 1].map(|stack: usize| move |threads: usize| self.rates(threads, FILL)[stack]);
        let others = || self.threads.iter().copied().filter(|threads| *threads != 2);
        let [least_of_reads, most_of_reads] = self.of_reads(|threads, kind| self.ratio(threads, kind));
        let mut claims = vec![
            Claim::new(
                &["000-15"],
                "With one thread fill-sequential is 4 times as fast with horizontal placement as with vertical.",
                vec![Figure::effect("horizontal against vertical", " times", 1, 4.0, 1.0, self.ratio(1, FILL))],
                "One thread fills one table after the other: vertical gives it the four dies of a group at a time, horizontal all 32. \
                 The first write buffers cost nothing with either.",
            ),
            Claim::new(
                &["000-16"],
                "With eight threads vertical is twice as fast as horizontal.",
                vec![Figure::effect(
                    format!("vertical against horizontal, {most} threads"),
                    " times",
                    2,
                    2.0,
                    1.0,
                    1.0 / self.ratio(most, FILL),
                )],
                "A die programs one unit after the other, whichever table it is of: tables that share all dies lose nothing that \
                 tables on groups of their own would have. The paper calls it unexpected, and names no reason.",
            ),
            Claim::new(
                &["000-12"],
                "Horizontal fill-sequential is best with two threads.",
                others()
                    .map(|threads| {
                        let ratio = horizontal(2) / horizontal(threads);
                        Figure::above(format!("two against {threads}"), " times", 2, 1.0 + CLOCK, "best", ratio)
                    })
                    .collect(),
                "Two threads keep the dies busy while one waits; more of them write the same keys again, and compactions follow.",
            ),
        ];
        let lost = |threads: usize| (1.0 - horizontal(threads) / horizontal(2)) * 100.0;
        let many: Vec<usize> = self.threads.iter().copied().filter(|threads| *threads > 2).collect();
        if !many.is_empty() {
            claims.push(Claim::new(
                &["000-13"],
                "Horizontal fill-sequential loses 60 % with four or eight threads.",
                many.iter().map(|threads| Figure::effect(format!("{threads} threads"), " %", 0, 60.0, 0.0, lost(*threads))).collect(),
                "Several threads write the same keys, of which compactions write some again. db_bench does not wait for the last write \
                 buffers, which hold up to half of what one thread writes and less with more.",
            ));
        }
        let steps = self.threads.windows(2).map(|pair| {
            let ratio = vertical(pair[1]) / vertical(pair[0]);
            Figure::above(format!("{} threads against {}", pair[1], pair[0]), " times", 2, 1.0 + CLOCK, "gains", ratio)
        });
        claims.push(Claim::new(
            &["000-14"],
            "Vertical fill-sequential gains with each doubling of the threads.",
            steps.collect(),
            "Tables that are written side by side have groups of their own, until compactions take the dies.",
        ));
        let slowest_fill = |threads: usize| horizontal(threads).min(vertical(threads));
        let beside = |threads: usize, kind: Kind| {
            let [one, other, _] = self.rates(threads, kind);
            one.max(other)
        };
        let figure = |name: &str, says, ratio: &dyn Fn(usize) -> f64| {
            let least = self.threads.iter().map(|threads| ratio(*threads)).fold(f64::INFINITY, f64::min);
            Figure::above(name, " times", 1, 2.0, says, least)
        };
        claims.push(Claim::new(
            &["000-11", "000-17"],
            "Writes are much faster than reads, and sequential reads than random ones.",
            vec![
                figure("fillseq against readseq, the least", "much faster", &|threads| slowest_fill(threads) / beside(threads, SEQUENTIAL)),
                figure("readseq against readrandom, the least", "much faster", &|threads| {
                    let [horizontal, vertical, _] = self.rates(threads, SEQUENTIAL);
                    horizontal.min(vertical) / beside(threads, RANDOM)
                }),
            ],
            "Writes are acknowledged from RocksDB's buffers. A sequential read takes a whole unit from NAND for many keys and reads \
             ahead, a random one waits for the NAND each time.",
        ));
        claims.push(Claim::new(
            &["000-18"],
            "Placement is marginal for reads.",
            vec![
                Figure::value("horizontal against vertical, the least", " times", 2, 1.0, 0.25, least_of_reads),
                Figure::value("the most", " times", 2, 1.0, 0.25, most_of_reads),
            ],
            "Random reads find one die each, whatever the placement. In sequential ones a reader and what it reads ahead are spread over \
             four dies with vertical placement, and over 32 with horizontal.",
        ));
        claims.push(Claim::new(
            &["000-18"],
            "Horizontal placement is ahead of vertical in all reads.",
            vec![Figure::above("horizontal against vertical, the least", " times", 2, 1.0 - CLOCK, "ahead", least_of_reads)],
            "Readers of one table share four dies with vertical placement, and 32 with horizontal. Within 3 % counts as no less, for what \
             a clock is worth.",
        ));
        claims
    }

    fn by_load(&self) -> Check {
        let ratios = self.threads.iter().map(|threads| {
            let [horizontal, vertical, by_load] = self.rates(*threads, FILL);
            by_load / horizontal.max(vertical)
        });
        let ratios: Vec<f64> = ratios.collect();
        Check {
            claim: "By-load is as good as the better of the two, however many threads there are.",
            check: "within 10 % of it in fillseq, at each number of threads",
            holds: ratios.iter().all(|ratio| *ratio >= BY_LOAD_MIN),
            measured: format!("{} times the better, with {} threads", each(&ratios), self.each_thread()),
            why: "While few tables are being written each has all groups; then each has the half that is written to least, and two tables \
                  need not meet.",
        }
    }

    /// Nothing if there was no ext4.
    fn beside_ext4(&self) -> Option<Check> {
        let by_load = Stack::Tables(TablePlacement::ByLoad);
        let mut least = f64::INFINITY;
        let mut words = Vec::new();
        for kind in [FILL, SEQUENTIAL, RANDOM] {
            let ratio =
                |threads: &usize| Some(self.rate(by_load, *threads, kind)? / self.rate(Stack::Ext4, *threads, kind)?);
            let ratios = self.threads.iter().map(ratio).collect::<Option<Vec<f64>>>()?;
            least = ratios.iter().copied().fold(least, f64::min);
            words.push(format!("{} {}", kind.name, each(&ratios)));
        }
        Some(Check {
            claim: "RocksDB is as fast on tables as on ext4 on a block drive with the same device.",
            check: "by-load at least 0.9 times as fast as ext4 in each load of Figure 5",
            holds: least >= BESIDE_EXT4_MIN,
            measured: format!("{} times, with {} threads", words.join("; "), self.each_thread()),
            why: "A table is written to the dies that the placement chose, without a file system, a kernel and a protocol in between; a \
                  block drive spreads whatever comes over all dies.",
        })
    }
}

fn each(ratios: &[f64]) -> String {
    ratios.iter().map(|ratio| format!("{ratio:.2}")).collect::<Vec<_>>().join(", ")
}

fn amplification(churned: &[Churn]) -> Check {
    let (tables, others): (Vec<&Churn>, Vec<&Churn>) =
        churned.iter().partition(|churn| Stack::TABLES.contains(&churn.stack));
    let most = tables.iter().map(|churn| drive_amplification(&churn.writes)).fold(0.0, f64::max);
    let relocated = |churn: &Churn| programmed(&churn.writes, "relocation");
    let deleted: f64 = tables.iter().map(|churn| churn.writes.count("/tables/deleted")).sum();
    let beside = others.iter().map(|churn| {
        let drive = drive_amplification(&churn.writes);
        format!("; {drive:.4} under {}, {:.0} blocks relocated", churn.stack, relocated(churn))
    });
    Check {
        claim: "What RocksDB writes is all that the drive programs, also where tables are deleted.",
        check: "write amplification of table drives at most 1.02 under fillrandom, deleterandom and overwrite, with the log",
        holds: most <= WAF_MAX,
        measured: format!(
            "{most:.4} at most; {deleted:.0} tables deleted, {:.0} blocks relocated{}",
            tables.iter().map(|churn| relocated(churn)).sum::<f64>(),
            beside.collect::<String>()
        ),
        why: "A deleted table is chunks to be reset. What is above 1 is padding for the most part: a sync makes a few blocks of the log \
              area durable, and they fill a write unit with nothing.",
    }
}

/// Blocks programmed for a purpose.
fn programmed(bench: &Bench, purpose: &str) -> f64 {
    let all = bench.drive["programmed"].as_array();
    let of = |pair: &serde_json::Value| (pair[0] == purpose).then(|| pair[1].as_f64()).flatten();
    all.and_then(|all| all.iter().find_map(of)).unwrap_or(0.0)
}

fn blocks_of_a_read(measured: &[Measured]) -> Check {
    let tables = measured.iter().filter(|cell| Stack::TABLES.contains(&cell.stack));
    let most = tables.map(|cell| kib_from_media(cell.bench(RANDOM))).fold(0.0, f64::max);
    Check {
        claim: "A point read moves the blocks of 4 KiB that it needs, and no write unit.",
        check: "readrandom reads less than a quarter of 96 KiB from media for each operation",
        holds: most < PAPER_READ_KIB / 4.0,
        measured: format!("{most:.1} KiB at most, against the 96 KiB of the paper's interface"),
        why: "A block of RocksDB is a little more than 4 KiB and begins anywhere, so that it lies on two blocks of the drive; the rest are \
              the index and the filters, read when the database is opened.",
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
