//! The mixes of YCSB on everything that a database can stand on here, each on the same flash: a key-value drive, and RocksDB on a table drive (LightLSM),
//! on files on zones, on an ALFS on segments, and on ext4 on a block drive.
//!
//! ```text
//!   for each store, on new flash:
//!     load ──▶ a ──▶ b ──▶ c ──▶ f ──▶ d ──▶ e        the order that YCSB recommends: d and e insert
//!   values    requests ── 16 at a time ──▶ key-value drive, in this process
//!   others    requests.txt ── replay: 16 threads ── RocksDB ── plugin, or ext4 ──▶ drive     a process for each arrow above
//! ```
//!
//! All get the same requests for the same keys. The clock is this machine's, on both sides; the flash is slowed down, so that it and not the machine
//! is what databases wait for.
//!
//! | file | noun |
//! |---|---|
//! | this one | the flash, the requests, and who gets them |
//! | [`telling`] | tables, plots and checks |

mod telling;

use crate::ext4;
use crate::rocksdb::{Bench, Phase, RocksDb, of_host};
use crate::stack::{Drive, Room, STEP, Scratch, Stack, largest_table, slow_flash};
use openftl_blocks::Ftl;
use openftl_core::{BLOCK_BYTES, Clock, FrameForm, Nanos};
use openftl_experiments::{Assistant, Experiment, ExperimentError, Options, Run};
use openftl_lab::loads::{KeyLoad, KeyMix, KeyRequest};
use openftl_lab::value_trial::{Latencies, ValueTrial};
use openftl_media::{EmulatedDevice, Profile, Store, Timing};
use openftl_parts::Config;
use openftl_server::WallClock;
use openftl_tables::TablePlacement;
use openftl_values::{ValueConfig, ValueFtl};
use std::fmt::Write;
use telling::told;

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "ycsb-rocksdb",
    question: "Which interface serves a database: keys and values, or RocksDB on tables, on zones, on ALFS, or on ext4?",
    paper: None,
    claims: &[],
    in_virtual_time: false,
    memory_bytes: [3 << 30, 1 << 30],
    run,
};

const PROFILE: &str = "granby";
const VALUE_BYTES: u32 = 1024;
/// Requests under way, and threads of RocksDB.
const DEPTH: u64 = 16;
/// The step that inserts all keys.
const LOAD: &str = "load";
/// All steps together.
const ALL: &str = "all";

struct Scale {
    /// So much slower than the profile is the flash, in everything.
    slower: u32,
    blocks_per_chunk: u32,
    room: Room,
    keys: u64,
    /// Requests of each mix.
    requests: u64,
    /// Those of mix e, of which each asks for up to 100 keys.
    scans: u64,
    /// What is asked of each place, in the order that YCSB recommends, since the last two mixes insert.
    steps: &'static [&'static str],
}

const FULL: Scale = Scale {
    slower: 8,
    blocks_per_chunk: 96,
    room: Room { tables: 1 << 30, log_area: 128 << 20 },
    keys: 300_000,
    requests: 150_000,
    scans: 10_000,
    steps: &[LOAD, "a", "b", "c", "f", "d", "e"],
};
const QUICK: Scale = Scale {
    slower: 2,
    blocks_per_chunk: 24,
    room: Room { tables: 512 << 20, log_area: 64 << 20 },
    keys: 20_000,
    requests: 5_000,
    scans: 500,
    steps: &[LOAD, "a", "e"],
};

impl Scale {
    /// The flash of all stores, but for its size.
    fn profile(&self) -> Result<Profile, ExperimentError> {
        slow_flash(PROFILE, self.slower, self.blocks_per_chunk)
    }
}

/// Where the keys and their values are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// A key-value drive.
    Values,
    /// RocksDB.
    RocksDb(Stack),
}

impl Place {
    fn name(self) -> String {
        match self {
            Place::Values => "values".to_owned(),
            Place::RocksDb(Stack::Tables(_)) => "RocksDB, tables".to_owned(),
            Place::RocksDb(Stack::Ext4) => "RocksDB, ext4".to_owned(),
            Place::RocksDb(stack) => format!("RocksDB, {stack}"),
        }
    }
}

/// What was measured of a mix.
struct Measured {
    place: Place,
    mix: &'static str,
    requests: u64,
    /// Requests a second. None: of steps together.
    rate: Option<f64>,
    /// Microseconds: 50 %, 99 % and 99.9 % of the reads and scans, and of whatever writes. None: there were none.
    reads: Option<[f64; 3]>,
    writes: Option<[f64; 3]>,
    stored_bytes: f64,
    /// Written as tables by RocksDB.
    table_bytes: Option<f64>,
    programmed_bytes: f64,
    /// Read from media, for whatever purpose.
    read_bytes: f64,
    cpu_seconds: f64,
    /// Memory for where values are.
    index_bytes: f64,
    /// Reads that found nothing.
    missing: u64,
}

/// The requests of a step, and what it is called.
struct Step {
    mix: &'static str,
    requests: Vec<KeyRequest>,
}

/// Everything that each place is asked, in its order.
fn steps(scale: &Scale, seed: u64) -> Vec<Step> {
    let mut keys = scale.keys;
    let step = |name: &&'static str| {
        let Some((_, mix)) = KeyMix::ALL.into_iter().find(|(known, _)| known == name) else {
            return Step { mix: LOAD, requests: (0..scale.keys).map(KeyRequest::Insert).collect() };
        };
        let mut load = KeyLoad::new(mix, keys, seed);
        let count = if mix == KeyMix::E { scale.scans } else { scale.requests };
        let requests = (0..count).map(|_| load.step()).collect();
        keys = load.keys();
        Step { mix: name, requests }
    };
    scale.steps.iter().map(step).collect()
}

fn run(options: Options, assistant: &mut dyn Assistant) -> Result<Run, ExperimentError> {
    let scale = if options.quick { QUICK } else { FULL };
    let (rocksdb, profile, steps) = (RocksDb::find()?, scale.profile()?, steps(&scale, options.seed));
    let lacking = ext4::lacking();
    let mut places = vec![Place::Values];
    places.extend([Stack::Tables(TablePlacement::ByLoad), Stack::Zones, Stack::Alfs].map(Place::RocksDb));
    places.extend(lacking.is_empty().then_some(Place::RocksDb(Stack::Ext4)));
    let all = (places.len() * steps.len()) as f64;
    let (mut measured, mut done): (Vec<Measured>, f64) = (Vec::new(), 0.0);
    for place in places {
        let mut store = OnFlash::new(place, &scale, &profile, options.seed)?;
        for step in &steps {
            assistant.progress(done / all, &format!("{}, {}", place.name(), step.mix));
            done += 1.0;
            measured.push(match &mut store {
                OnFlash::Values(trial) => on_values(trial, step, assistant)?,
                OnFlash::RocksDb(stack, drive) => on_rocksdb(*stack, drive, &rocksdb, &profile, step)?,
            });
        }
        measured.push(together(place, &measured[measured.len() - steps.len()..]));
    }
    assistant.progress(1.0, "done");
    Ok(told(&scale, &profile, &rocksdb.version()?, &measured, &lacking))
}

/// What all steps of a place came to.
fn together(place: Place, steps: &[Measured]) -> Measured {
    let sum = |of: fn(&Measured) -> f64| steps.iter().map(of).sum::<f64>();
    Measured {
        place,
        mix: ALL,
        requests: steps.iter().map(|step| step.requests).sum(),
        rate: None,
        reads: None,
        writes: None,
        stored_bytes: sum(|step| step.stored_bytes),
        table_bytes: steps.iter().map(|step| step.table_bytes).sum(),
        programmed_bytes: sum(|step| step.programmed_bytes),
        read_bytes: sum(|step| step.read_bytes),
        cpu_seconds: sum(|step| step.cpu_seconds),
        index_bytes: steps.last().map_or(0.0, |step| step.index_bytes),
        missing: steps.iter().map(|step| step.missing).sum(),
    }
}

/// A place on new flash.
enum OnFlash {
    Values(Box<ValueTrial<EmulatedDevice, WallClock>>),
    RocksDb(Stack, Drive),
}

impl OnFlash {
    fn new(place: Place, scale: &Scale, profile: &Profile, seed: u64) -> Result<OnFlash, ExperimentError> {
        Ok(match place {
            Place::Values => OnFlash::Values(Box::new(key_value_drive(scale, profile, seed)?)),
            Place::RocksDb(stack) => OnFlash::RocksDb(stack, Drive::new(stack, profile, scale.room)?),
        })
    }
}

/// A key-value drive on the flash that a table drive with this room has.
fn key_value_drive(
    scale: &Scale,
    profile: &Profile,
    seed: u64,
) -> Result<ValueTrial<EmulatedDevice, WallClock>, ExperimentError> {
    let scratch = Scratch::new(profile, TablePlacement::default(), scale.room)?;
    let geometry = scratch.table_drive()?.geometry().map_err(of_host)?;
    let mut capacity = scale.room.tables + scale.room.log_area;
    loop {
        let capacity_blocks = capacity / BLOCK_BYTES as u64;
        let config = Config { capacity_blocks, payload: FrameForm::Bytes, drive_id: seed, ..Config::default() };
        let chunks = openftl_pages::chunks_per_pu(&geometry, &config, capacity)?;
        if chunks <= geometry.chunks_per_pu {
            let device =
                EmulatedDevice::new(profile.clone(), geometry.chunks_per_pu, Store::Ram, Timing::Modelled, seed)?;
            let mut clock = WallClock::new();
            let drive = ValueFtl::format(device, config, ValueConfig::default(), &mut clock).map_err(of_host)?;
            return Ok(ValueTrial::new(drive, clock, VALUE_BYTES, seed));
        }
        capacity = capacity
            .checked_sub(STEP)
            .filter(|left| *left > 0)
            .ok_or_else(|| of_host("flash as large as that of the table drive has no room for a key-value drive"))?;
    }
}

fn on_values(
    trial: &mut ValueTrial<EmulatedDevice, WallClock>,
    step: &Step,
    assistant: &mut dyn Assistant,
) -> Result<Measured, ExperimentError> {
    let blocks_read =
        |trial: &ValueTrial<EmulatedDevice, WallClock>| trial.drive.block().media().statistics().blocks_read;
    let read_before = blocks_read(trial);
    trial.drive.reset_statistics();
    (trial.latencies, trial.missing) = (Latencies::default(), 0);
    let (began, cpu_began) = (trial.clock.now(), assistant.cpu_time());
    trial.run(step.requests.iter().copied(), DEPTH, |_| ())?;
    let seconds = trial.clock.now().since(began).as_secs_f64();
    trial.flush()?;
    let cpu: Nanos = assistant.cpu_time() - cpu_began;
    let statistics = *trial.drive.statistics();
    Ok(Measured {
        place: Place::Values,
        mix: step.mix,
        requests: step.requests.len() as u64,
        rate: Some(step.requests.len() as f64 / seconds),
        reads: Latencies::percentiles(&trial.latencies.reads),
        writes: Latencies::percentiles(&trial.latencies.writes),
        stored_bytes: statistics.bytes_stored as f64,
        table_bytes: None,
        programmed_bytes: trial.nand_bytes() as f64,
        read_bytes: ((blocks_read(trial) - read_before) * BLOCK_BYTES as u64) as f64,
        cpu_seconds: cpu.as_secs_f64(),
        index_bytes: trial.drive.index_bytes() as f64,
        missing: trial.missing,
    })
}

/// The requests as the program reads them.
fn lines(requests: &[KeyRequest]) -> String {
    let mut lines = String::new();
    for request in requests {
        _ = match request {
            KeyRequest::Insert(key) => writeln!(lines, "i {key}"),
            KeyRequest::Read(key) => writeln!(lines, "r {key}"),
            KeyRequest::Update(key) => writeln!(lines, "u {key}"),
            KeyRequest::ReadModifyWrite(key) => writeln!(lines, "m {key}"),
            KeyRequest::Scan(key, count) => writeln!(lines, "s {key} {count}"),
        };
    }
    lines
}

fn on_rocksdb(
    stack: Stack,
    drive: &Drive,
    rocksdb: &RocksDb,
    profile: &Profile,
    step: &Step,
) -> Result<Measured, ExperimentError> {
    let file = drive.scratch().file("requests.txt");
    std::fs::write(&file, lines(&step.requests)).map_err(of_host)?;
    let mut replay = rocksdb.replay()?;
    replay.args([
        format!("--requests={}", file.display()),
        format!("--name={}", step.mix),
        format!("--threads={DEPTH}"),
        format!("--value_size={VALUE_BYTES}"),
        format!("--write_buffer_size={}", largest_table(profile)),
    ]);
    of_bench(stack, step, &drive.bench(rocksdb, replay)?)
}

fn of_bench(stack: Stack, step: &Step, bench: &Bench) -> Result<Measured, ExperimentError> {
    let percentiles = |name: &str| bench.phase(name).ok().map(|phase: &Phase| phase.percentiles);
    Ok(Measured {
        place: Place::RocksDb(stack),
        mix: step.mix,
        requests: step.requests.len() as u64,
        rate: Some(bench.phase(step.mix)?.rate),
        reads: percentiles("reads"),
        writes: percentiles("writes"),
        stored_bytes: bench.ticker("replay.stored.bytes") as f64,
        table_bytes: Some(
            (bench.ticker("rocksdb.flush.write.bytes") + bench.ticker("rocksdb.compact.write.bytes")) as f64,
        ),
        programmed_bytes: bench.count("/nand_blocks_written") * BLOCK_BYTES as f64,
        read_bytes: bench.count("/blocks_read") * BLOCK_BYTES as f64,
        cpu_seconds: bench.cpu_seconds,
        index_bytes: bench.ticker("replay.table.readers.bytes") as f64,
        missing: bench.ticker("replay.missing"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use openftl_values::ValueTarget;

    #[test]
    fn requests_are_written_as_the_program_reads_them() {
        let requests = [
            KeyRequest::Insert(7),
            KeyRequest::Read(8),
            KeyRequest::Update(9),
            KeyRequest::ReadModifyWrite(10),
            KeyRequest::Scan(11, 50),
        ];
        assert_eq!(lines(&requests), "i 7\nr 8\nu 9\nm 10\ns 11 50\n");
    }

    #[test]
    fn each_step_finds_the_keys_that_those_before_it_have_inserted() {
        let mut keys = 0;
        for Step { mix, requests } in steps(&FULL, 1) {
            let before = keys;
            for request in requests {
                if let KeyRequest::Insert(key) = request {
                    assert_eq!(key, keys, "{mix}: keys are inserted in their order");
                    keys += 1;
                }
                assert!(request.key() < keys, "{mix}: there is no key {} yet", request.key());
            }
            assert_eq!(keys > before, [LOAD, "d", "e"].contains(&mix), "{mix}");
        }
    }

    #[test]
    fn a_key_value_drive_is_on_no_more_flash_than_a_table_drive_and_holds_the_keys() {
        let profile = FULL.profile().unwrap();
        let trial = key_value_drive(&FULL, &profile, 1).unwrap();
        let keys = FULL.keys + FULL.requests;
        assert!(trial.drive.info().capacity_bytes > keys * u64::from(VALUE_BYTES));
        assert!(trial.drive.info().keys_max > keys);
    }
}
