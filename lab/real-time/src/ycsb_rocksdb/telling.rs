//! What is told of a run: parameters, tables, plots and checks.

use super::{ALL, DEPTH, LOAD, Measured, PROFILE, Place, Scale, VALUE_BYTES};
use crate::stack::largest_table;
use openftl_core::units::ByteSize;
use openftl_experiments::{Check, Run};
use openftl_lab::figures::{Axis, Cell, Plot, Series, Table};
use openftl_media::Profile;

/// A mix stores so large a share of what it asks for, at least, or nothing is told of what that costs.
const STORED_MIN: f64 = 0.25;

pub fn told(scale: &Scale, profile: &Profile, version: &str, measured: &[Measured], lacking: &[String]) -> Run {
    let mut run = Run::default();
    let Scale { slower, room, keys, requests, scans, .. } = scale;
    let flash = room.tables + room.log_area;
    run.parameter(
        "flash",
        format_args!("{PROFILE}, {slower} times slower; as much for all as tables of {} need", ByteSize(flash)),
    );
    run.parameter(
        "keys",
        format_args!("{keys} with values of {VALUE_BYTES} bytes, {}", ByteSize(keys * u64::from(VALUE_BYTES))),
    );
    run.parameter("requests", format_args!("{requests} of each mix, of e {scans}; {DEPTH} at a time"));
    run.parameter(
        "values",
        "a key-value drive in the process that asks; its writes are volatile until a flush ends the mix",
    );
    run.parameter(
        "RocksDB",
        format_args!(
            "{version}, {DEPTH} threads; write buffers and tables of {}, Bloom filters, no cache of blocks, no compression; its log is written, not synced",
            ByteSize(largest_table(profile))
        ),
    );
    run.parameter(
        "ext4",
        match lacking {
            [] => "on a block drive: NBD, nbdfuse, loop device, all of it with direct I/O, discards".to_owned(),
            lacking => format!("left out: {}", lacking.join("; ")),
        },
    );
    run.tables = vec![costs(measured), latencies(measured)];
    let reads = |case: &Measured| case.reads.map(|[_, p99, _]| p99 / 1e3);
    run.plots = vec![
        plot("rate", "Requests a second by mix", Axis::decades("rate", "requests/s"), (scale, measured), |case| {
            case.rate
        }),
        plot("reads", "99 % of reads and scans end within", Axis::decades("time", "ms"), (scale, measured), reads),
    ];
    run.checks = checks(measured);
    run.notes = vec![
        "A real clock, and a database on the same cores: compare ratios within a run. A rate is of the requests alone; what was programmed, what was read \
         and CPU time have the flushes and compactions that the requests leave behind, and for RocksDB the opening of the database.",
        "Bytes programmed are told where at least every fourth request stores a value, and of all steps together: compactions and collection that \
         one step leaves are another's to do.",
        "Tables: what RocksDB gave to its file system as tables, in flushes and compactions. Its log is a byte more for each byte; of that ext4 \
         programs what the kernel writes back before it is deleted, and the others all.",
        "A store keeps what the mixes before have left, as YCSB recommends it: load, a, b, c, f, d, e.",
        "CPU is that of the host and of the drive: of one process; with ext4 of RocksDB, server and nbdfuse, but not of the kernel's own threads. A thread \
         that waits for flash spins at the end of its wait, with all drives.",
        "Index: of a key-value drive the memory for where values are, of RocksDB that of open tables (indexes and filters), without write buffers.",
        "A scan reads up to 100 values in the order of keys: a key-value drive lists the keys, and reads the values of all of them at once.",
    ];
    run
}

impl Measured {
    /// So many bytes for each byte of a value that was stored. None where little was: then they are mostly what steps before have left to do.
    fn for_each_byte(&self, bytes: Option<f64>) -> Option<f64> {
        let requested = self.requests as f64 * f64::from(VALUE_BYTES);
        bytes.filter(|_| self.stored_bytes >= STORED_MIN * requested).map(|bytes| bytes / self.stored_bytes)
    }

    fn waf(&self) -> Option<f64> {
        self.for_each_byte(Some(self.programmed_bytes))
    }
}

fn none() -> Cell {
    Cell::Text("none".to_owned())
}

fn costs(measured: &[Measured]) -> Table {
    let columns = [
        ("mix", ""),
        ("store", ""),
        ("rate", "1/s"),
        ("tables", "bytes/byte"),
        ("programmed", "bytes/byte"),
        ("from media", "KiB/request"),
        ("CPU", "µs/request"),
        ("index", "bytes/key"),
        ("not found", ""),
    ];
    let mut table = Table::new("ycsb-rocksdb", &columns);
    let keys = measured.iter().find(|case| case.mix == LOAD).map_or(1, |load| load.requests);
    for case in by_mix(measured) {
        let requests = case.requests as f64;
        table.row(vec![
            Cell::Text(case.mix.to_owned()),
            Cell::Text(case.place.name()),
            case.rate.map_or_else(none, |rate| Cell::Number(rate, 0)),
            case.for_each_byte(case.table_bytes).map_or_else(none, |bytes| Cell::Number(bytes, 2)),
            case.waf().map_or_else(none, |waf| Cell::Number(waf, 2)),
            Cell::Number(case.read_bytes / 1024.0 / requests, 2),
            Cell::Number(case.cpu_seconds * 1e6 / requests, 1),
            Cell::Number(case.index_bytes / keys as f64, 1),
            Cell::Count(case.missing),
        ]);
    }
    table
}

fn latencies(measured: &[Measured]) -> Table {
    let columns = [
        ("mix", ""),
        ("store", ""),
        ("reads p50", "µs"),
        ("reads p99", "µs"),
        ("reads p99.9", "µs"),
        ("writes p50", "µs"),
        ("writes p99", "µs"),
        ("writes p99.9", "µs"),
    ];
    let mut table = Table::new("latencies", &columns);
    for case in by_mix(measured).filter(|case| case.mix != ALL) {
        let mut row = vec![Cell::Text(case.mix.to_owned()), Cell::Text(case.place.name())];
        for percentiles in [case.reads, case.writes] {
            match percentiles {
                Some(percentiles) => row.extend(percentiles.map(|us| Cell::Number(us, 0))),
                None => row.extend([none(), none(), none()]),
            }
        }
        table.row(row);
    }
    table
}

/// By step, then by store.
fn by_mix(measured: &[Measured]) -> impl Iterator<Item = &Measured> {
    let first = measured.first().map(|case| case.place);
    let mixes = measured.iter().filter(move |case| Some(case.place) == first).map(|case| case.mix);
    mixes.flat_map(|mix| measured.iter().filter(move |case| case.mix == mix))
}

fn plot(
    name: &'static str,
    title: &str,
    y: Axis,
    (scale, measured): (&Scale, &[Measured]),
    figure: impl Fn(&Measured) -> Option<f64>,
) -> Plot {
    let mut places: Vec<Place> = Vec::new();
    for case in measured {
        if !places.contains(&case.place) {
            places.push(case.place);
        }
    }
    let line = |place: &Place| {
        let cases = measured.iter().filter(|case| case.place == *place);
        let points = cases.filter_map(|case| {
            let at = scale.steps.iter().position(|mix| *mix == case.mix)?;
            Some((at as f64, figure(case)?))
        });
        Series::new(place.name(), points.collect())
    };
    let series = places.iter().map(line).collect();
    Plot { name, title: title.to_owned(), x: Axis::names("step", scale.steps), y, series, caption: Vec::new() }
}

fn checks(measured: &[Measured]) -> Vec<Check> {
    let waf = |is_it: &dyn Fn(Place) -> bool| {
        let cases = measured.iter().filter(|case| case.mix == ALL && is_it(case.place));
        cases.filter_map(Measured::waf).fold(f64::INFINITY, f64::min)
    };
    let values = waf(&|place| place == Place::Values);
    let rocksdb = waf(&|place| place != Place::Values);
    let missing: u64 = measured.iter().filter(|case| !["d", ALL].contains(&case.mix)).map(|case| case.missing).sum();
    vec![
        Check {
            claim: "Every value that was stored is found.",
            check: "no read finds nothing but in mix d, which reads what is being inserted",
            holds: missing == 0,
            measured: format!("{missing} reads found nothing"),
            why: "All values that are read have their length and the number of their key, too, or the run ends.",
        },
        Check {
            claim: "A key-value drive writes less flash than RocksDB for the same updates.",
            check: "in all steps together fewer bytes programmed for each byte stored than on any drive below RocksDB",
            holds: values < rocksdb,
            measured: format!("{values:.2}, and {rocksdb:.2} with RocksDB at the least"),
            why: "RocksDB writes each value to its log and to a table, and again whenever tables are compacted; a key-value drive writes it once, \
                  and again when it is collected.",
        },
    ]
}
