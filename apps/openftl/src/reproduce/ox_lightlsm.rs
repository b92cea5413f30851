//! What the placement of tables does to RocksDB: db_bench on a table drive, by placement and by the number of threads.
//!
//! ```text
//!   for each number of threads, each placement in turn:
//!     a new drive ── fillseq ──▶ readseq ──▶ readrandom                        without a write-ahead log, as in the paper
//!     a new drive ── fillrandom, overwrite, deleterandom ──▶ readwhilewriting  with it, and only at some numbers of threads
//! ```
//!
//! Each arrow is another process on the same drive, so that the drive's statistics are of one kind of load. The drive is the
//! paper's, smaller and slower: see [`nand`]. What it does in real time is what RocksDB waits for; the clock is this
//! machine's, so only ratios within a run say something.

use super::rocksdb::{Bench, Drive, Phase, RocksDb};
use openftl_core::BLOCK_BYTES;
use openftl_core::units::ByteSize;
use openftl_ftl::tables::TablePlacement;
use openftl_lab::experiments::{
    Assistant, Axis, Cell, Experiment, ExperimentError, Finding, Options, Paper, Plot, Report, Series, Source, Table,
};
use openftl_media::Profile;

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "ox-lightlsm",
    question: "Where should the tables of RocksDB lie: on all groups, on one each, or by what is being written?",
    paper: Some(Paper {
        title: "Open-Channel SSD (What is it Good For)",
        place: "section 4.3, Figures 5 and 6",
        found: "With one thread fill-sequential is 4 times as fast with horizontal placement as with vertical; with eight threads \
                vertical is twice as fast. Reads hardly depend on the placement; horizontal is always ahead.",
    }),
    memory_bytes: [6 << 30, 2 << 30],
    run,
};

const PROFILE: &str = "granby";

/// So much slower than the paper's drive is this one, in everything.
const SLOWER: u32 = 16;

/// As in the paper.
const KEY_BYTES: u64 = 16;
const VALUE_BYTES: u64 = 1024;
/// Tables that each thread fills: 3 GB of 768 MB.
const TABLES_PER_THREAD: u64 = 4;
/// What the paper's interface moves for a read: a write unit.
const PAPER_READ_BYTES: f64 = 96.0 * 1024.0;

/// Bytes a second that are written while others read.
const WRITTEN_WHILE_READING: u64 = 4 << 20;

/// By-load may be so far behind the better of the others.
const BY_LOAD_MIN: f64 = 0.9;
const WAF_MAX: f64 = 1.02;

struct Scale {
    blocks_per_chunk: u32,
    capacity: u64,
    log_area: u64,
    threads: &'static [usize],
    /// Where there is also a load with a log.
    churn_threads: &'static [usize],
    churn_placements: &'static [TablePlacement],
    /// Random reads of each thread.
    reads: u64,
    /// Seconds of reading while one more thread writes.
    seconds: u64,
}

const FULL: Scale = Scale {
    blocks_per_chunk: 192,
    capacity: 3 << 30,
    log_area: 512 << 20,
    threads: &[1, 2, 4, 8],
    churn_threads: &[4],
    churn_placements: &TablePlacement::ALL,
    reads: 2_000,
    seconds: 8,
};
const QUICK: Scale = Scale {
    blocks_per_chunk: 24,
    capacity: 1 << 30,
    log_area: 128 << 20,
    threads: &[1, 2],
    churn_threads: &[2],
    churn_placements: &[TablePlacement::ByLoad],
    reads: 200,
    seconds: 1,
};

impl Scale {
    fn table_bytes(&self, profile: &Profile) -> u64 {
        u64::from(profile.groups * profile.pus_per_group * self.blocks_per_chunk) * BLOCK_BYTES as u64
    }
}

/// One placement with one number of threads.
struct Measured {
    placement: TablePlacement,
    threads: usize,
    fill: Bench,
    /// Operations in each second of the fill.
    seconds: Vec<(f64, f64)>,
    sequential: Bench,
    random: Bench,
    churn: Option<Churn>,
}

/// The load with a write-ahead log.
struct Churn {
    writes: Bench,
    mixed: Bench,
}

/// The paper's drive: smaller chunks, so that a table over all of them is smaller; and everything takes longer, so that RocksDB
/// waits for the drive and not for this machine.
fn nand(scale: &Scale) -> Result<Profile, ExperimentError> {
    let mut profile = Profile::builtin(PROFILE)?;
    profile.name = format!("{PROFILE}-slow");
    profile.chip.blocks_per_chunk = scale.blocks_per_chunk;
    profile.channel_mb_s /= SLOWER;
    profile.cache.mb_s /= SLOWER;
    profile.chip.erase_us *= SLOWER;
    for times in [&mut profile.chip.read_us, &mut profile.chip.program_us] {
        times.iter_mut().for_each(|time| *time *= SLOWER);
    }
    Ok(profile)
}

fn run(options: Options, assistant: &mut dyn Assistant) -> Result<Report, ExperimentError> {
    let scale = if options.quick { QUICK } else { FULL };
    let rocksdb = RocksDb::find()?;
    let profile = nand(&scale)?;
    let steps = (scale.threads.len() * TablePlacement::ALL.len()) as f64;
    let mut measured: Vec<Measured> = Vec::new();
    for &threads in scale.threads {
        for placement in TablePlacement::ALL {
            assistant.progress(measured.len() as f64 / steps, &format!("{placement}, {threads} threads"));
            measured.push(measure(&rocksdb, &profile, &scale, placement, threads, options.seed)?);
        }
    }
    assistant.progress(1.0, "done");
    Ok(report(options, &scale, &profile, &rocksdb.version()?, &measured))
}

fn measure(
    rocksdb: &RocksDb,
    profile: &Profile,
    scale: &Scale,
    placement: TablePlacement,
    threads: usize,
    seed: u64,
) -> Result<Measured, ExperimentError> {
    let table = scale.table_bytes(profile);
    let keys = TABLES_PER_THREAD * table / (KEY_BYTES + VALUE_BYTES);
    let drive = || Drive::new(profile, placement, [scale.capacity, scale.log_area]);
    let bench = |drive: &Drive, more: &[&str]| {
        let mut arguments = vec![
            format!("--threads={threads}"),
            format!("--num={keys}"),
            format!("--seed={}", seed.max(1)),
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
        drive.bench(rocksdb, &arguments)
    };
    let filled = drive()?;
    let fill = bench(&filled, &["--benchmarks=fillseq,waitforcompaction", "--disable_wal"])?;
    let seconds = filled.seconds()?;
    let sequential = bench(&filled, &["--benchmarks=readseq", "--use_existing_db"])?;
    let reads = format!("--reads={}", scale.reads);
    let random = bench(&filled, &["--benchmarks=readrandom", "--use_existing_db", &reads])?;
    drop(filled);
    let churn = match scale.churn_threads.contains(&threads) && scale.churn_placements.contains(&placement) {
        false => None,
        true => {
            let churned = drive()?;
            let writes = bench(&churned, &["--benchmarks=fillrandom,overwrite,deleterandom,flush,waitforcompaction"])?;
            let duration = format!("--duration={}", scale.seconds);
            let written = format!("--benchmark_write_rate_limit={WRITTEN_WHILE_READING}");
            let mixed = ["--benchmarks=readwhilewriting", "--use_existing_db", &duration, &written];
            let mixed = bench(&churned, &mixed)?;
            Some(Churn { writes, mixed })
        }
    };
    Ok(Measured { placement, threads, fill, seconds, sequential, random, churn })
}

impl Measured {
    fn fill_rate(&self) -> f64 {
        rate(&self.fill, "fillseq")
    }

    fn sequential_rate(&self) -> f64 {
        rate(&self.sequential, "readseq")
    }

    fn random_rate(&self) -> f64 {
        rate(&self.random, "readrandom")
    }

    /// Bytes that came from media for each random read. What opening the database read counts.
    fn media_bytes_per_read(&self) -> f64 {
        self.random.count("/blocks_read") * BLOCK_BYTES as f64 / self.random.operations() as f64
    }
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

fn micros_per_operation(bench: &Bench) -> f64 {
    bench.cpu_seconds * 1e6 / bench.operations() as f64
}

fn report(options: Options, scale: &Scale, profile: &Profile, version: &str, measured: &[Measured]) -> Report {
    let mut report = Report::new(&EXPERIMENT, options);
    let table = scale.table_bytes(profile);
    report.parameter(
        "drive",
        format_args!(
            "{PROFILE}, {} times slower, its chunks {} times smaller: a table over all of them has {}",
            SLOWER,
            Profile::builtin(PROFILE).map_or(0, |whole| whole.chip.blocks_per_chunk / scale.blocks_per_chunk),
            ByteSize(table)
        ),
    );
    report.parameter(
        "RocksDB",
        format_args!("{version}, tables and write buffers of {}, Bloom filters", ByteSize(table)),
    );
    report.parameter(
        "load",
        format_args!(
            "db_bench, keys of {KEY_BYTES} bytes, values of {VALUE_BYTES}, {} a thread, no compression, no cache",
            ByteSize(TABLES_PER_THREAD * table)
        ),
    );
    report.tables = vec![figure_5(measured), writes(measured), churn(measured)];
    report.plots.push(by_threads("fillseq", "fillseq, by threads", measured, Measured::fill_rate));
    report.plots.push(by_threads("readrandom", "readrandom, by threads", measured, Measured::random_rate));
    report.plots.push(by_threads("readseq", "readseq, by threads", measured, Measured::sequential_rate));
    let most = scale.threads.iter().copied().max().unwrap_or(1);
    report.plots.push(over_time("one-thread", "fillseq over time, one thread", measured, 1));
    report.plots.push(over_time("most-threads", "fillseq over time, most threads", measured, most));
    let of = |placement: TablePlacement, threads: usize| {
        let found = measured.iter().find(|cell| cell.placement == placement && cell.threads == threads);
        found.expect("every placement was measured with every number of threads")
    };
    let all = Cells { of: &of, threads: scale.threads };
    report.findings =
        vec![all.one_writer(), all.many_writers(most), all.reads(), all.by_load(), amplification(measured)];
    report.findings.push(blocks_of_a_read(measured));
    report.notes = vec![
        "A real clock, and a database on the same cores: compare ratios within a run. Rates are those of db_bench, which does not \
         wait for the last write buffers."
            .to_owned(),
        "All threads of fillseq write the same keys in the same order, as db_bench has it: with one thread nothing is compacted, with \
         more of them tables overlap and are. The write buffers hold up to half of what one thread writes, and less with more."
            .to_owned(),
    ];
    report
}

const PERCENTILES: [(&str, &str); 3] = [("p50", "µs"), ("p99", "µs"), ("p99.9", "µs")];

fn figure_5(measured: &[Measured]) -> Table {
    let mut columns = vec![("load", ""), ("threads", ""), ("placement", ""), ("rate", "ops/s")];
    columns.extend(PERCENTILES);
    columns.extend([("CPU", "µs/op"), ("from media", "KiB/op")]);
    let mut table = Table::new("figure-5", &columns);
    for (name, of) in [
        ("fillseq", (|cell| &cell.fill) as fn(&Measured) -> &Bench),
        ("readseq", |cell| &cell.sequential),
        ("readrandom", |cell| &cell.random),
    ] {
        for cell in measured {
            let bench = of(cell);
            let read = bench.count("/blocks_read") * BLOCK_BYTES as f64 / 1024.0 / bench.operations() as f64;
            let mut row = begin_row(name, cell, bench);
            row.extend([Cell::Number(micros_per_operation(bench), 1), Cell::Number(read, 2)]);
            table.row(row);
        }
    }
    table
}

fn begin_row(name: &str, cell: &Measured, bench: &Bench) -> Vec<Cell> {
    let percentiles = phase(bench, name).map_or([f64::NAN; 3], |phase| phase.percentiles);
    let mut row = vec![
        Cell::Text(name.to_owned()),
        Cell::Count(cell.threads as u64),
        Cell::Text(cell.placement.to_string()),
        Cell::Number(rate(bench, name), 0),
    ];
    row.extend(percentiles.map(|micros| Cell::Number(micros, 1)));
    row
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
        let (rocksdb, drive) = (rocksdb_amplification(&cell.fill), drive_amplification(&cell.fill));
        table.row(vec![
            Cell::Count(cell.threads as u64),
            Cell::Text(cell.placement.to_string()),
            Cell::Count(cell.fill.count("/tables/committed") as u64),
            Cell::Number(rocksdb, 3),
            Cell::Number(drive, 4),
            Cell::Number(rocksdb * drive, 3),
            Cell::Number(milliseconds(&cell.fill, "waited", "units"), 1),
            Cell::Number(cell.fill.count("/waits/units_behind_others") / cell.fill.count("/waits/units") * 100.0, 0),
            Cell::Number(milliseconds(&cell.fill, "waited_behind_others", "units_behind_others"), 1),
            Cell::Number(busiest(&cell.fill), 2),
        ]);
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

fn churn(measured: &[Measured]) -> Table {
    let mut columns = vec![("load", ""), ("threads", ""), ("placement", ""), ("rate", "ops/s")];
    columns.extend(PERCENTILES);
    columns.extend([("RocksDB", "WAF"), ("drive", "WAF"), ("both", "WAF"), ("CPU", "µs/op")]);
    let mut table = Table::new("churn", &columns);
    for (name, of) in [
        ("fillrandom", (|churn| &churn.writes) as fn(&Churn) -> &Bench),
        ("overwrite", |churn| &churn.writes),
        ("deleterandom", |churn| &churn.writes),
        ("readwhilewriting", |churn| &churn.mixed),
    ] {
        for (cell, churn) in measured.iter().filter_map(|cell| Some((cell, cell.churn.as_ref()?))) {
            let bench = of(churn);
            let (rocksdb, drive) = (rocksdb_amplification(bench), drive_amplification(bench));
            let mut row = begin_row(name, cell, bench);
            row.extend([
                Cell::Number(rocksdb, 2),
                Cell::Number(drive, 4),
                Cell::Number(rocksdb * drive, 2),
                Cell::Number(micros_per_operation(bench), 1),
            ]);
            table.row(row);
        }
    }
    table
}

fn by_threads(name: &'static str, title: &str, measured: &[Measured], of: fn(&Measured) -> f64) -> Plot {
    let line = |placement: TablePlacement| Series {
        name: placement.to_string(),
        points: measured
            .iter()
            .filter(|cell| cell.placement == placement)
            .map(|cell| (cell.threads as f64, of(cell) / 1e3))
            .collect(),
    };
    Plot {
        name,
        title: title.to_owned(),
        x: Axis { name: "threads", unit: "" },
        y: Axis { name: "operations", unit: "thousand/s" },
        series: TablePlacement::ALL.map(line).into(),
        caption: vec!["After Figure 5 of the paper, and by-load beside it.".to_owned()],
    }
}

fn over_time(name: &'static str, title: &str, measured: &[Measured], threads: usize) -> Plot {
    let line = |cell: &Measured| Series {
        name: cell.placement.to_string(),
        points: cell.seconds.iter().map(|(second, rate)| (*second, rate / 1e3)).collect(),
    };
    Plot {
        name,
        title: title.to_owned(),
        x: Axis { name: "time", unit: "s" },
        y: Axis { name: "operations", unit: "thousand/s" },
        series: measured.iter().filter(|cell| cell.threads == threads).map(line).collect(),
        caption: vec![
            "After Figure 6 of the paper: where RocksDB waits for the drive, the line is at the bottom.".to_owned(),
        ],
    }
}

/// Everything that was measured, for the findings about placements.
struct Cells<'a> {
    of: &'a dyn Fn(TablePlacement, usize) -> &'a Measured,
    threads: &'a [usize],
}

impl Cells<'_> {
    fn rates(&self, threads: usize, of: fn(&Measured) -> f64) -> [f64; 3] {
        TablePlacement::ALL.map(|placement| of((self.of)(placement, threads)))
    }

    fn one_writer(&self) -> Finding {
        let [horizontal, vertical, _] = self.rates(1, Measured::fill_rate);
        Finding {
            source: Source::Paper,
            claim: "With one thread fill-sequential is 4 times as fast with horizontal placement as with vertical.",
            check: "2.8 to 5.6 times",
            holds: (2.8..=5.6).contains(&(horizontal / vertical)),
            measured: format!(
                "{:.1} times: {horizontal:.0} against {vertical:.0} operations a second",
                horizontal / vertical
            ),
            why: "One thread fills one table after the other: vertical gives it the four dies of a group at a time, horizontal all 32. \
                  The first write buffers cost nothing with either.",
        }
    }

    fn many_writers(&self, most: usize) -> Finding {
        let [horizontal, vertical, _] = self.rates(most, Measured::fill_rate);
        Finding {
            source: Source::Paper,
            claim: "With eight threads vertical is twice as fast as horizontal.",
            check: "1.4 to 2.8 times, with the most threads",
            holds: (1.4..=2.8).contains(&(vertical / horizontal)),
            measured: format!(
                "{:.2} times with {most} threads: {vertical:.0} against {horizontal:.0} operations a second",
                vertical / horizontal
            ),
            why: "A die programs one unit after the other, whichever table it is of: tables that share all dies lose nothing that \
                  tables on groups of their own would have. The paper calls it unexpected, and names no reason.",
        }
    }

    fn reads(&self) -> Finding {
        let mut least = f64::INFINITY;
        let mut words = Vec::new();
        for (name, of) in
            [("readseq", Measured::sequential_rate as fn(&Measured) -> f64), ("readrandom", Measured::random_rate)]
        {
            let ratios = self.threads.iter().map(|threads| {
                let [horizontal, vertical, _] = self.rates(*threads, of);
                horizontal / vertical
            });
            let ratios: Vec<f64> = ratios.collect();
            least = ratios.iter().copied().fold(least, f64::min);
            words.push(format!("{name} {}", each(&ratios)));
        }
        let threads: Vec<String> = self.threads.iter().map(usize::to_string).collect();
        Finding {
            source: Source::Paper,
            claim: "Horizontal placement is ahead of vertical in all reads.",
            check: "at least 0.97 times as fast in each, for what a clock is worth",
            holds: least >= 0.97,
            measured: format!("{} times, with {} threads", words.join("; "), threads.join(", ")),
            why: "Readers of one table share four dies with vertical placement, and 32 with horizontal.",
        }
    }

    fn by_load(&self) -> Finding {
        let ratios = self.threads.iter().map(|threads| {
            let [horizontal, vertical, by_load] = self.rates(*threads, Measured::fill_rate);
            by_load / horizontal.max(vertical)
        });
        let ratios: Vec<f64> = ratios.collect();
        let threads: Vec<String> = self.threads.iter().map(usize::to_string).collect();
        Finding {
            source: Source::OpenFtl,
            claim: "By-load is as good as the better of the two, however many threads there are.",
            check: "within 10 % of it in fillseq, at each number of threads",
            holds: ratios.iter().all(|ratio| *ratio >= BY_LOAD_MIN),
            measured: format!("{} times the better, with {} threads", each(&ratios), threads.join(", ")),
            why: "While few tables are being written each has all groups; then each has the half that is written to least, and two tables \
                  need not meet. A rate is of one run: with the most threads it differs by a fifth from run to run.",
        }
    }
}

fn each(ratios: &[f64]) -> String {
    ratios.iter().map(|ratio| format!("{ratio:.2}")).collect::<Vec<_>>().join(", ")
}

fn amplification(measured: &[Measured]) -> Finding {
    let churned = || measured.iter().filter_map(|cell| cell.churn.as_ref());
    let most = churned().map(|churn| drive_amplification(&churn.writes)).fold(0.0, f64::max);
    let relocated: f64 = churned().map(|churn| programmed(&churn.writes, "relocation")).sum();
    let deleted: f64 = churned().map(|churn| churn.writes.count("/tables/deleted")).sum();
    Finding {
        source: Source::OpenFtl,
        claim: "What RocksDB writes is all that the drive programs, also where tables are deleted.",
        check: "write amplification of the drive at most 1.02 under fillrandom, overwrite and deleterandom, with the log",
        holds: most <= WAF_MAX,
        measured: format!("{most:.4} at most; {deleted:.0} tables deleted, {relocated:.0} blocks relocated"),
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

fn blocks_of_a_read(measured: &[Measured]) -> Finding {
    let bytes: Vec<f64> = measured.iter().map(Measured::media_bytes_per_read).collect();
    let most = bytes.iter().copied().fold(0.0, f64::max);
    Finding {
        source: Source::OpenFtl,
        claim: "A point read moves the blocks of 4 KiB that it needs, and no write unit.",
        check: "readrandom reads less than a quarter of 96 KiB from media for each operation",
        holds: most < PAPER_READ_BYTES / 4.0,
        measured: format!("{:.1} KiB at most, against the 96 KiB of the paper's interface", most / 1024.0),
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
        assert_eq!(slow.chip.program_us[0], whole.chip.program_us[0] * SLOWER);
        assert_eq!(slow.program_blocks(), whole.program_blocks(), "units are as large as before");
        slow.validate().unwrap();
        nand(&QUICK).unwrap().validate().unwrap();
        assert_eq!(FULL.table_bytes(&slow), 24 << 20);
    }
}
