//! What is told of a drive that was tried: every figure once, with its name and unit, for tables, CSV and pages alike.

use crate::contender::Contender;
use crate::figures::Latency;
use crate::trial::Tried;
use openftl_core::BLOCK_BYTES;
use openftl_lab::figures::{Cell, Table};
use openftl_parts::{Purpose, Statistics};

/// Figures that stand in one table.
pub struct Group {
    /// Its title.
    pub title: &'static str,
    /// What is in it.
    metrics: &'static [Metric],
}

/// One figure of a drive.
struct Metric {
    /// What it is called in a group.
    name: &'static str,
    /// What it is called in a CSV, where groups are not to be seen.
    column: &'static str,
    unit: &'static str,
    of: fn(&Contender, &Tried) -> Cell,
}

const fn metric(
    name: &'static str,
    column: &'static str,
    unit: &'static str,
    of: fn(&Contender, &Tried) -> Cell,
) -> Metric {
    Metric { name, column, unit, of }
}

/// All of them. The first says what the drives are, the others what was measured.
pub static GROUPS: [Group; 7] = [
    Group {
        title: "Drives",
        metrics: &[
            metric("profile", "profile", "", |contender, _| text(&contender.settings.profile.name)),
            metric("over-provisioning", "over-provisioning", "%", |contender, _| {
                of_blocks(contender, Cell::Number(contender.settings.drive.over_provisioning.as_f64() * 100.0, 1))
            }),
            metric("map memory", "map memory", "KiB", |_, tried| {
                Cell::Number(tried.measured.map_memory_bytes as f64 / 1024.0, 1)
            }),
            metric("victim", "victim", "", |contender, _| of_blocks(contender, text(contender.settings.drive.victim))),
            metric("placement", "placement", "", |contender, _| {
                of_blocks(contender, text(contender.settings.drive.placement))
            }),
            metric("binding", "binding", "", |contender, _| text(contender.binding)),
        ],
    },
    Group {
        title: "Write amplification, and blocks programmed by purpose",
        metrics: &[
            metric("effective over-provisioning", "effective over-provisioning", "%", |_, tried| {
                Cell::Number(tried.measured.effective_over_provisioning * 100.0, 1)
            }),
            metric("WAF", "waf", "", |_, tried| Cell::Number(statistics(tried).waf(), 3)),
            metric("relocation WAF", "relocation waf", "", |_, tried| {
                Cell::Number(statistics(tried).relocation_waf(), 3)
            }),
            metric("host", "host", "blocks", |_, tried| Cell::Count(statistics(tried).host_blocks_written)),
            metric("data", "data", "blocks", |_, tried| programmed(tried, Purpose::Data)),
            metric("relocation", "relocation", "blocks", |_, tried| programmed(tried, Purpose::Relocation)),
            metric("map", "map", "blocks", |_, tried| programmed(tried, Purpose::Map)),
            metric("log", "log", "blocks", |_, tried| programmed(tried, Purpose::Log)),
            metric("checkpoint", "checkpoint", "blocks", |_, tried| programmed(tried, Purpose::Checkpoint)),
            metric("superblock", "superblock", "blocks", |_, tried| programmed(tried, Purpose::Superblock)),
            metric("padding", "padding", "blocks", |_, tried| programmed(tried, Purpose::Padding)),
            metric("zones", "zones", "blocks", |_, tried| programmed(tried, Purpose::Tenant)),
        ],
    },
    Group {
        title: "Speed, in simulated time",
        metrics: &[
            metric("throughput", "throughput", "blocks/s", |_, tried| {
                Cell::Number(tried.blocks_per_second().unwrap_or(0.0), 0)
            }),
            metric("bandwidth", "bandwidth", "MiB/s", |_, tried| {
                let bytes = tried.blocks_per_second().unwrap_or(0.0) * BLOCK_BYTES as f64;
                Cell::Number(bytes / f64::from(1 << 20), 1)
            }),
            metric("time", "time", "s", |_, tried| Cell::Number(tried.measured.outcome.seconds(), 3)),
            metric("throttled", "throttled", "times", |_, tried| Cell::Count(statistics(tried).throttled)),
        ],
    },
    Group {
        title: "Latency of reads",
        metrics: &[
            metric("mean", "read mean", "µs", |_, tried| read(tried, |latency| latency.mean)),
            metric("p50", "read p50", "µs", |_, tried| read(tried, |latency| latency.p50)),
            metric("p99", "read p99", "µs", |_, tried| read(tried, |latency| latency.p99)),
            metric("p99.9", "read p99.9", "µs", |_, tried| read(tried, |latency| latency.p999)),
            metric("p99.99", "read p99.99", "µs", |_, tried| read(tried, |latency| latency.p9999)),
            metric("max", "read max", "µs", |_, tried| read(tried, |latency| latency.max)),
        ],
    },
    Group {
        title: "Latency of writes",
        metrics: &[
            metric("mean", "write mean", "µs", |_, tried| write(tried, |latency| latency.mean)),
            metric("p50", "write p50", "µs", |_, tried| write(tried, |latency| latency.p50)),
            metric("p99", "write p99", "µs", |_, tried| write(tried, |latency| latency.p99)),
            metric("p99.9", "write p99.9", "µs", |_, tried| write(tried, |latency| latency.p999)),
            metric("p99.99", "write p99.99", "µs", |_, tried| write(tried, |latency| latency.p9999)),
            metric("max", "write max", "µs", |_, tried| write(tried, |latency| latency.max)),
        ],
    },
    Group {
        title: "Garbage collection, and requests of the host to groups that were collected",
        metrics: &[
            metric("collected", "collected", "chunks", |_, tried| {
                Cell::Count(statistics(tried).groups.iter().map(|group| group.victims).sum())
            }),
            metric("moved", "moved", "blocks", |_, tried| {
                Cell::Count(statistics(tried).groups.iter().map(|group| group.relocated).sum())
            }),
            metric("to marked groups", "to marked groups", "%", |_, tried| {
                Cell::Number(statistics(tried).encounters.marked_share() * 100.0, 2)
            }),
            metric("to collecting groups", "to collecting groups", "%", |_, tried| {
                Cell::Number(statistics(tried).encounters.met_share() * 100.0, 2)
            }),
            metric("erases", "erases", "", |_, tried| {
                Cell::Count(tried.erases.iter().map(|erases| u64::from(*erases)).sum())
            }),
            metric("least", "erases min", "a chunk", |_, tried| Cell::Count(tried.erases_range().0.into())),
            metric("mean", "erases mean", "a chunk", |_, tried| Cell::Number(tried.erases_mean(), 2)),
            metric("most", "erases max", "a chunk", |_, tried| Cell::Count(tried.erases_range().1.into())),
        ],
    },
    Group {
        title: "What became of wishes about placement",
        metrics: &[
            metric("unplaced", "unplaced", "blocks", |_, tried| Cell::Count(statistics(tried).placement.unplaced)),
            metric("spilled", "spilled", "blocks", |_, tried| Cell::Count(statistics(tried).placement.spilled)),
            metric("merged", "merged", "blocks", |_, tried| Cell::Count(statistics(tried).placement.merged)),
            metric("announced", "objects", "objects", |_, tried| Cell::Count(statistics(tried).placement.objects)),
            metric("written", "objects written", "objects", |_, tried| {
                Cell::Count(statistics(tried).placement.objects_written)
            }),
            metric("trimmed", "objects trimmed", "objects", |_, tried| {
                Cell::Count(statistics(tried).placement.objects_trimmed)
            }),
            metric("replaced", "objects replaced", "objects", |_, tried| {
                Cell::Count(statistics(tried).placement.objects_replaced)
            }),
            metric("refused", "objects refused", "objects", |_, tried| {
                Cell::Count(statistics(tried).placement.objects_refused)
            }),
        ],
    },
];

impl Group {
    /// Its table, with a row for each drive; `None` if there is nothing to tell.
    pub fn table(&self, drives: &[(Contender, Tried)]) -> Option<Table> {
        let columns = self.metrics.iter().map(|metric| (metric.name, metric.unit));
        let mut table = Table::new(self.title, &[("drive", "")].into_iter().chain(columns).collect::<Vec<_>>());
        for (contender, tried) in drives {
            let cells = self.metrics.iter().map(|metric| (metric.of)(contender, tried));
            table.row([text(&contender.name)].into_iter().chain(cells).collect());
        }
        let says_nothing = |cell: &Cell| matches!(cell, Cell::Count(0)) || *cell == Cell::Text(String::new());
        let silent = table.rows.iter().all(|row| row[1..].iter().all(says_nothing));
        (!silent).then_some(table)
    }
}

/// The figures of these groups as columns of a CSV.
pub fn columns(groups: &'static [Group]) -> impl Iterator<Item = (&'static str, &'static str)> {
    groups.iter().flat_map(|group| group.metrics).map(|metric| (metric.column, metric.unit))
}

/// The figures of one drive, in the order of [`columns`].
pub fn row(groups: &'static [Group], contender: &Contender, tried: &Tried) -> impl Iterator<Item = Cell> {
    groups.iter().flat_map(|group| group.metrics).map(move |metric| (metric.of)(contender, tried))
}

fn text(word: impl ToString) -> Cell {
    Cell::Text(word.to_string())
}

fn statistics(tried: &Tried) -> &Statistics {
    &tried.measured.statistics
}

/// What only drives of blocks have.
fn of_blocks(contender: &Contender, cell: Cell) -> Cell {
    if contender.zones.is_some() { text("none") } else { cell }
}

fn programmed(tried: &Tried, purpose: Purpose) -> Cell {
    Cell::Count(statistics(tried).programmed_for(purpose))
}

fn read(tried: &Tried, of: fn(Latency) -> u64) -> Cell {
    microseconds(Latency::of_some(&tried.measured.outcome.reads).map(of))
}

fn write(tried: &Tried, of: fn(Latency) -> u64) -> Cell {
    microseconds(Latency::of_some(&tried.measured.outcome.writes).map(of))
}

fn microseconds(nanos: Option<u64>) -> Cell {
    nanos.map_or_else(|| text(""), |nanos| Cell::Number(nanos as f64 / 1000.0, 1))
}

impl Tried {
    /// Blocks that the host moved, a second of the drive's clock; `None` if no time passed.
    pub fn blocks_per_second(&self) -> Option<f64> {
        let outcome = &self.measured.outcome;
        (outcome.seconds() > 0.0).then(|| (outcome.reads.blocks + outcome.writes.blocks) as f64 / outcome.seconds())
    }

    /// Erases of the chunks that were erased least and most.
    pub fn erases_range(&self) -> (u32, u32) {
        let erases = || self.erases.iter().copied();
        (erases().min().unwrap_or(0), erases().max().unwrap_or(0))
    }

    /// Erases of a chunk.
    pub fn erases_mean(&self) -> f64 {
        self.erases.iter().map(|erases| f64::from(*erases)).sum::<f64>() / self.erases.len().max(1) as f64
    }
}
