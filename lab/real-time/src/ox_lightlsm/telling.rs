//! What is told of a run: parameters, tables and plots.

use super::findings::{Cells, amplification, blocks_of_a_read};
use super::measured::{
    Churn, FILL, Kind, Measured, RANDOM, Results, SEQUENTIAL, amplification_of_all, drive_amplification,
    kib_from_media, micros_per_operation, phase, rate, rocksdb_amplification,
};
use super::{KEY_BYTES, Load, PROFILE, STEPS, TABLES_PER_THREAD, VALUE_BYTES};
use crate::rocksdb::Bench;
use crate::stack::Stack;
use openftl_core::units::ByteSize;
use openftl_experiments::Run;
use openftl_lab::figures::{Axis, Cell, Plot, Series, Table};
use openftl_media::Profile;

pub fn told(load: &Load<'_>, version: &str, results: &Results) -> Run {
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
