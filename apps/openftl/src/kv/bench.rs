//! `openftl kv bench`: a mix of YCSB on a new drive in memory, in virtual time.

use crate::cli::kv::KvBench;
use crate::failure::Failure;
use crate::terminal::{Live, say};
use hdrhistogram::Histogram;
use openftl_core::Clock;
use openftl_core::units::ByteSize;
use openftl_drive::value_drive::ValueDrive;
use openftl_lab::loads::{KeyLoad, KeyMix, KeyRequest};
use openftl_lab::picture::thousands;
use openftl_lab::value_trial::{Latencies, ValueTrial};
use openftl_pages::{GRAIN_BYTES, grains_of};
use openftl_parts::Durability;
use openftl_values::{Ftl, RECORD_BYTES, ValueTarget};
use serde::Serialize;
use std::fmt::Write;

/// How much of the drive is filled unless the number of keys is said.
const FILL: f64 = 0.8;

#[derive(Serialize)]
struct Measured {
    mix: &'static str,
    profile: String,
    value_bytes: u64,
    keys: u64,
    requests: u64,
    depth: u64,
    durable: bool,
    seed: u64,
    /// Of the share that is full when the mix begins.
    fill: f64,
    /// Of virtual time.
    seconds: f64,
    requests_per_second: f64,
    read_p50_us: f64,
    read_p99_us: f64,
    write_p50_us: f64,
    write_p99_us: f64,
    /// Bytes of values that were stored, and those that the NAND was programmed with.
    stored_bytes: u64,
    nand_bytes: u64,
    waf: f64,
    /// The same while the drive was filled.
    waf_of_filling: f64,
    reads_per_retrieve: f64,
    blocks_per_retrieve: f64,
    /// Bytes on media of the directory: of filling and of the mix.
    directory_bytes: u64,
    index_bytes: u64,
    index_bytes_per_key: f64,
    /// Stores of keys that share the number of another one.
    shared_numbers: u64,
    runs: Vec<u64>,
}

pub fn run(arguments: &KvBench) -> Result<(), Failure> {
    let drive = ValueDrive::read(&arguments.drive)?;
    let store = drive.in_memory(arguments.seed)?;
    let info = store.info();
    let value_bytes = u32::try_from(arguments.value.0).ok().filter(|bytes| *bytes <= info.value_max);
    let Some(value_bytes) = value_bytes else {
        return Err(Failure::bad_input(format_args!(
            "--value {}: the drive takes {} bytes at most",
            arguments.value, info.value_max
        ))
        .fix("ask for less, or for another profile"));
    };
    let on_media = u64::from(grains_of(value_bytes + RECORD_BYTES as u32)) * GRAIN_BYTES as u64;
    let most = ((info.capacity_bytes as f64 * FILL) as u64 / on_media).min(info.keys_max);
    let keys = arguments.keys.unwrap_or(most);
    let requests = arguments.requests.unwrap_or(keys);
    let inserts = if matches!(arguments.mix, KeyMix::D | KeyMix::E) { requests / 16 } else { 0 };
    let room = (info.capacity_bytes / on_media).min(info.keys_max);
    if keys == 0 || keys + inserts > room {
        return Err(Failure::bad_input(format_args!(
            "--keys {keys}: there is room for {room} of this size, those that are inserted included"
        ))
        .fix("ask for fewer, for fewer requests, or for a larger drive"));
    }
    let (ftl, clock) = store.into_parts();
    let mut host = ValueTrial::new(ftl, clock, value_bytes, arguments.seed);
    let mut live = Live::new(false);
    let show = |live: &mut Live, what: &str, done: u64, all: u64| {
        if live.is_due() {
            live.show(&[format!("{what}: {} of {}", thousands(done), thousands(all))]);
        }
    };
    host.run((0..keys).map(KeyRequest::Insert), arguments.depth, |done| show(&mut live, "filling", done, keys))
        .map_err(Failure::failed)?;
    host.flush().map_err(Failure::failed)?;
    let waf_of_filling = host.nand_bytes() as f64 / (keys * u64::from(value_bytes)).max(1) as f64;
    let filled = *host.drive.statistics();
    let index_bytes = host.drive.index_bytes();
    let known = host.drive.info();
    host.drive.reset_statistics();
    host.durability = if arguments.durable { Durability::Durable } else { Durability::Volatile };
    host.latencies = Latencies::default();
    let began = host.clock.now();
    let mut load = KeyLoad::new(arguments.mix, keys, arguments.seed);
    let steps = (0..requests).map(|_| load.step());
    host.run(steps, arguments.depth, |done| show(&mut live, "mix", done, requests)).map_err(Failure::failed)?;
    let seconds = host.clock.now().since(began).0 as f64 / 1e9;
    // What was acknowledged and is on its way belongs to the mix.
    host.flush().map_err(Failure::failed)?;
    live.clear();
    let (statistics, nand_bytes) = (*host.drive.statistics(), host.nand_bytes());
    let read_blocks = host.drive.store().statistics().0.host_blocks_read;
    let us = |histogram: &Histogram<u64>, quantile: f64| histogram.value_at_quantile(quantile) as f64 / 1e3;
    let name = KeyMix::ALL.iter().find(|(_, mix)| *mix == arguments.mix).expect("all of them are named").0;
    let per = |all: u64, of: u64| all as f64 / of.max(1) as f64;
    let measured = Measured {
        mix: name,
        profile: drive.profile().to_owned(),
        value_bytes: value_bytes.into(),
        keys,
        requests,
        depth: arguments.depth,
        durable: arguments.durable,
        seed: arguments.seed,
        fill: known.used_bytes as f64 / known.capacity_bytes as f64,
        seconds,
        requests_per_second: requests as f64 / seconds,
        read_p50_us: us(&host.latencies.reads, 0.5),
        read_p99_us: us(&host.latencies.reads, 0.99),
        write_p50_us: us(&host.latencies.writes, 0.5),
        write_p99_us: us(&host.latencies.writes, 0.99),
        stored_bytes: statistics.bytes_stored,
        nand_bytes,
        waf: per(nand_bytes, statistics.bytes_stored),
        waf_of_filling,
        reads_per_retrieve: per(statistics.retrieve_reads, statistics.retrieves),
        blocks_per_retrieve: per(read_blocks, statistics.retrieves),
        directory_bytes: [filled, statistics]
            .iter()
            .map(|statistics| statistics.change_bytes + statistics.run_bytes + statistics.manifest_bytes)
            .sum(),
        index_bytes,
        index_bytes_per_key: per(index_bytes, keys),
        shared_numbers: filled.shared + statistics.shared,
        runs: host.drive.runs(),
    };
    if arguments.json {
        return say(&crate::json(&measured)?);
    }
    say(&told(&measured))
}

fn told(measured: &Measured) -> String {
    let Measured { mix, value_bytes, keys, requests, depth, seconds, .. } = measured;
    let mut text = format!(
        "mix {mix}: {} keys with values of {value_bytes} bytes, {:.0}% full; {} requests, {depth} at a time\n",
        thousands(*keys),
        measured.fill * 100.0,
        thousands(*requests)
    );
    let rate = thousands(measured.requests_per_second as u64);
    _ = writeln!(text, "  rate         {rate} requests/s, in {seconds:.3} s of the drive");
    if measured.read_p99_us > 0.0 {
        _ = writeln!(text, "  reads        p50 {:.0} µs, p99 {:.0} µs", measured.read_p50_us, measured.read_p99_us);
    }
    if measured.write_p99_us > 0.0 || measured.stored_bytes > 0 {
        _ = writeln!(text, "  writes       p50 {:.0} µs, p99 {:.0} µs", measured.write_p50_us, measured.write_p99_us);
    }
    let (stored, nand) = (ByteSize(measured.stored_bytes), ByteSize(measured.nand_bytes));
    if measured.stored_bytes > 0 {
        _ = writeln!(text, "  stored       {stored}; NAND {nand}: write amplification {:.3}", measured.waf);
    }
    _ = writeln!(text, "  filling      write amplification {:.3}", measured.waf_of_filling);
    if measured.reads_per_retrieve > 0.0 {
        _ = writeln!(text, "  a Retrieve   reads {:.3} pages", measured.reads_per_retrieve);
    }
    _ = writeln!(
        text,
        "  directory    {} written, {:.1} bytes a key; runs of {} keys",
        ByteSize(measured.directory_bytes),
        measured.directory_bytes as f64 / *keys as f64,
        measured.runs.iter().map(|keys| thousands(*keys)).collect::<Vec<_>>().join(", ")
    );
    _ = writeln!(
        text,
        "  index        {} of memory, {:.2} bytes a key; {} keys share the number of another",
        ByteSize(measured.index_bytes),
        measured.index_bytes_per_key,
        thousands(measured.shared_numbers)
    );
    text
}
