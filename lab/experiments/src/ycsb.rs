//! The six mixes of YCSB on a key-value drive, and on a store of fixed slots that a host keeps on a block FTL of the same flash.
//!
//! ```text
//!   values   key ──────────────────────────────────────▶ key-value drive: hash, page, map, directory
//!   slots    key ─▶ index in memory of the host: slot ──▶ block FTL: reads, and writes of the whole block that has the slot
//! ```
//!
//! The second is what a plain hash table of a host costs: no log, no space beside values, and no order of what survives a power cut but that of
//! blocks. It has no order of keys either, so no scans.

mod slots;

use self::slots::Slots;
use super::{Assistant, Check, Experiment, ExperimentError, Options, Run};
use openftl_blocks::{BlockFtl, Ftl};
use openftl_core::units::{ByteSize, Share};
use openftl_core::{BLOCK_BYTES, Clock, FrameForm, Nanos, VirtualClock};
use openftl_lab::figures::{Axis, Cell, Plot, Series, Table};
use openftl_lab::loads::{KeyLoad, KeyMix, KeyRequest};
use openftl_lab::value_trial::{Latencies, ValueTrial};
use openftl_media::{EmulatedDevice, Profile, Store, Timing};
use openftl_pages::{GRAIN_BYTES, grains_of};
use openftl_parts::{Config, chunks_per_pu};
use openftl_values::{RECORD_BYTES, ValueConfig, ValueFtl, ValueTarget};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "ycsb",
    question: "How fast is a key-value drive under the mixes of YCSB, and what does it write, beside slots of a host on a block FTL?",
    paper: None,
    claims: &[],
    in_virtual_time: true,
    memory_bytes: [2 << 30, 256 << 20],
    run,
};

const PROFILE: &str = "cosmos";
/// The names of all mixes.
const MIXES: &[&str] = &["a", "b", "c", "d", "e", "f"];
/// One field of ten, as YCSB has them, would be 100 bytes; a value is written whole.
const VALUE_BYTES: u32 = 1024;
const DEPTH: u64 = 16;
const OVER_PROVISIONING: Share = Share::percent(28);
/// Reads of pages for a Retrieve, at most.
const READS_MAX: f64 = 1.1;

struct Scale {
    capacity: ByteSize,
    blocks_per_chunk: u32,
    /// Of the key-value drive when a mix begins.
    fill: Share,
    /// For each key.
    requests: f64,
}

const FULL: Scale =
    Scale { capacity: ByteSize(256 << 20), blocks_per_chunk: 256, fill: Share::percent(80), requests: 0.5 };
const QUICK: Scale =
    Scale { capacity: ByteSize(128 << 20), blocks_per_chunk: 256, fill: Share::percent(20), requests: 0.5 };

/// What was measured of a mix.
struct Measured {
    mix: &'static str,
    is_values: bool,
    requests: u64,
    span: Nanos,
    latencies: Latencies,
    /// Of values that were stored.
    stored_bytes: u64,
    nand_bytes: u64,
    /// Blocks that were read, for a request of any kind.
    blocks_read: f64,
    /// Pages that were read for a Retrieve; of slots there are none.
    reads_per_retrieve: f64,
    /// Memory for where values are, for each key: of the drive, or of the host.
    index_bytes: f64,
    keys: u64,
}

impl Measured {
    fn rate(&self) -> f64 {
        self.requests as f64 / self.span.as_secs_f64()
    }

    fn waf(&self) -> Option<f64> {
        (self.stored_bytes > 0).then(|| self.nand_bytes as f64 / self.stored_bytes as f64)
    }
}

fn config(scale: &Scale, seed: u64) -> Config {
    Config {
        capacity_blocks: scale.capacity.0 / BLOCK_BYTES as u64,
        over_provisioning: OVER_PROVISIONING,
        payload: FrameForm::Bytes,
        drive_id: seed,
        ..Config::default()
    }
}

/// The flash of both drives.
fn device(scale: &Scale, seed: u64) -> Result<EmulatedDevice, ExperimentError> {
    let mut profile = Profile::builtin(PROFILE)?;
    profile.chip.blocks_per_chunk = scale.blocks_per_chunk;
    let shape = profile.geometry(profile.chunks_per_pu)?;
    let config = config(scale, seed);
    let of_blocks = chunks_per_pu(&shape, &config, Share::percent(0))?;
    let chunks = of_blocks.max(openftl_pages::chunks_per_pu(&shape, &config, scale.capacity.0)?);
    Ok(EmulatedDevice::new(profile, chunks, Store::Ram, Timing::Modelled, seed)?)
}

fn run(options: Options, assistant: &mut dyn Assistant) -> Result<Run, ExperimentError> {
    let scale = if options.quick { QUICK } else { FULL };
    let began = assistant.cpu_time();
    let mut all = Vec::new();
    for (name, mix) in KeyMix::ALL {
        assistant.progress(all.len() as f64 / 11.0, &format!("mix {name}, values"));
        let on_values = on_values(&scale, name, mix, options.seed)?;
        let keys = on_values.keys;
        all.push(on_values);
        // A hash table has no order of keys.
        if mix != KeyMix::E {
            assistant.progress(all.len() as f64 / 11.0, &format!("mix {name}, slots"));
            all.push(on_slots(&scale, name, mix, keys, options.seed)?);
        }
    }
    let cpu = assistant.cpu_time() - began;
    assistant.progress(1.0, "done");
    Ok(told(&scale, &all, cpu))
}

/// The requests of a mix.
fn requests(scale: &Scale, mix: KeyMix, keys: u64, seed: u64) -> (u64, impl Iterator<Item = KeyRequest>) {
    let count = (keys as f64 * scale.requests) as u64;
    let mut load = KeyLoad::new(mix, keys, seed);
    (count, (0..count).map(move |_| load.step()))
}

fn on_values(scale: &Scale, name: &'static str, mix: KeyMix, seed: u64) -> Result<Measured, ExperimentError> {
    let mut clock = VirtualClock::default();
    let drive = ValueFtl::format(device(scale, seed)?, config(scale, seed), ValueConfig::default(), &mut clock)?;
    let info = drive.info();
    let on_media = u64::from(grains_of(VALUE_BYTES + RECORD_BYTES as u32)) * GRAIN_BYTES as u64;
    // What is inserted has room beside it.
    let keys = (scale.fill.of(info.capacity_bytes) / on_media).min(info.keys_max * 4 / 5);
    let mut trial = ValueTrial::new(drive, clock, VALUE_BYTES, seed);
    trial.run((0..keys).map(KeyRequest::Insert), DEPTH, |_| ())?;
    trial.flush()?;
    trial.drive.reset_statistics();
    trial.latencies = Latencies::default();
    let began = trial.clock.now();
    let (count, steps) = requests(scale, mix, keys, seed);
    trial.run(steps, DEPTH, |_| ())?;
    let span = trial.clock.now().since(began);
    trial.flush()?;
    let statistics = *trial.drive.statistics();
    let read_blocks = trial.drive.store().statistics().0.host_blocks_read;
    let per = |all: u64, of: u64| if of == 0 { 0.0 } else { all as f64 / of as f64 };
    Ok(Measured {
        mix: name,
        is_values: true,
        requests: count,
        span,
        stored_bytes: statistics.bytes_stored,
        nand_bytes: trial.nand_bytes(),
        blocks_read: per(read_blocks, count),
        reads_per_retrieve: per(statistics.retrieve_reads, statistics.retrieves),
        index_bytes: trial.drive.index_bytes() as f64 / keys as f64,
        keys,
        latencies: trial.latencies,
    })
}

fn on_slots(scale: &Scale, name: &'static str, mix: KeyMix, keys: u64, seed: u64) -> Result<Measured, ExperimentError> {
    let mut clock = VirtualClock::default();
    let drive = BlockFtl::format(device(scale, seed)?, config(scale, seed), &mut clock)?;
    let mut slots = Slots::new(drive, clock, VALUE_BYTES as usize);
    slots.run((0..keys).map(KeyRequest::Insert), DEPTH)?;
    slots.reset_statistics()?;
    let began = slots.clock.now();
    let (count, steps) = requests(scale, mix, keys, seed);
    slots.run(steps, DEPTH)?;
    let span = slots.clock.now().since(began);
    slots.flush()?;
    let statistics = slots.statistics();
    Ok(Measured {
        mix: name,
        is_values: false,
        requests: count,
        span,
        stored_bytes: slots.stored_bytes,
        nand_bytes: statistics.nand_blocks_written() * BLOCK_BYTES as u64,
        blocks_read: statistics.host_blocks_read as f64 / count as f64,
        reads_per_retrieve: 0.0,
        index_bytes: slots.index_bytes() as f64 / keys as f64,
        keys,
        latencies: slots.latencies,
    })
}

fn told(scale: &Scale, all: &[Measured], cpu: Nanos) -> Run {
    let mut run = Run::default();
    run.parameter("NAND", format_args!("{PROFILE}, {} for the host; the same flash for both", scale.capacity));
    run.parameter(
        "keys",
        format_args!(
            "{}, with values of {VALUE_BYTES} bytes; a key-value drive is {} full of them",
            all[0].keys, scale.fill
        ),
    );
    run.parameter("host", format_args!("{DEPTH} requests at a time, {} for each key", scale.requests));
    run.tables.push(table(all));
    run.plots.push(plot(all));
    run.checks = checks(all);
    run.notes = vec![
        "Writes end when they can be read, on both. Write amplification is of the mix alone, NAND bytes over bytes of values that were stored; a \
         short mix does not bring a drive to its steady state.",
        "Slots: the index of the host is in memory alone, and a power cut leaves any of the blocks that were not flushed. A slot is a fourth of a \
         block, so an update reads the block and writes it whole; an insert fills the last block, which the host still has.",
        "Mix e is not run on slots: a hash table has no order of keys.",
        "A scan lists keys, and reads the values of all of them at once.",
        "RocksDB needs a real clock, so no figure of it could stand beside these: `ycsb-rocksdb` measures it, and a key-value drive with that clock.",
    ];
    run.total("s of CPU time", cpu.as_secs_f64(), 1);
    run
}

fn table(all: &[Measured]) -> Table {
    let columns = [
        ("mix", ""),
        ("store", ""),
        ("rate", "1/s"),
        ("reads p50", "µs"),
        ("reads p99", "µs"),
        ("writes p50", "µs"),
        ("writes p99", "µs"),
        ("WAF", ""),
        ("blocks read", "a request"),
        ("pages", "a Retrieve"),
        ("index", "bytes/key"),
    ];
    let mut table = Table::new("ycsb", &columns);
    let none = || Cell::Text("none".to_owned());
    for case in all {
        let us = |histogram: &hdrhistogram::Histogram<u64>, share: f64| match histogram.len() {
            0 => none(),
            _ => Cell::Number(histogram.value_at_quantile(share) as f64 / 1e3, 0),
        };
        let latencies = [
            (&case.latencies.reads, 0.5),
            (&case.latencies.reads, 0.99),
            (&case.latencies.writes, 0.5),
            (&case.latencies.writes, 0.99),
        ];
        let mut row = vec![
            Cell::Text(case.mix.to_owned()),
            Cell::Text(if case.is_values { "values" } else { "slots" }.to_owned()),
            Cell::Number(case.rate(), 0),
        ];
        row.extend(latencies.map(|(histogram, share)| us(histogram, share)));
        row.push(case.waf().map_or_else(none, |waf| Cell::Number(waf, 2)));
        row.push(Cell::Number(case.blocks_read, 2));
        row.push(if case.is_values { Cell::Number(case.reads_per_retrieve, 3) } else { none() });
        row.push(Cell::Number(case.index_bytes, 1));
        table.row(row);
    }
    table
}

fn plot(all: &[Measured]) -> Plot {
    let of = |is_values: bool| {
        let points = (0..).zip(MIXES).filter_map(|(at, name): (u32, _)| {
            let case = all.iter().find(|case| case.is_values == is_values && case.mix == *name)?;
            Some((f64::from(at), case.rate()))
        });
        points.collect()
    };
    Plot {
        name: "rate",
        title: "Requests a second by mix".to_owned(),
        x: Axis::names("mix", MIXES),
        y: Axis::even("rate", "requests/s"),
        series: vec![Series::new("values", of(true)), Series::new("slots", of(false))],
        caption: Vec::new(),
    }
}

fn checks(all: &[Measured]) -> Vec<Check> {
    let values: Vec<&Measured> = all.iter().filter(|case| case.is_values).collect();
    let reads = values.iter().map(|case| case.reads_per_retrieve).fold(0.0, f64::max);
    let written = |is_values: bool| {
        all.iter().find(|case| case.is_values == is_values && case.mix == "a").and_then(Measured::waf).unwrap_or(0.0)
    };
    vec![
        Check {
            claim: "A Retrieve reads one page.",
            check: "1.1 pages or fewer in every mix",
            holds: reads <= READS_MAX,
            measured: format!("{reads:.3} at most"),
            why: "Of 128 keys less than one shares its number with another; where a popular one does, each of its reads is of more pages.",
        },
        Check {
            claim: "Small values that change cost less flash as values than as slots of blocks.",
            check: "in mix a a lower write amplification than that of slots",
            holds: written(true) < written(false),
            measured: format!("{:.2}, and {:.2} with slots", written(true), written(false)),
            why: "A slot changes with its whole block, which has four.",
        },
    ]
}
