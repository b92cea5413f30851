//! What recovery reads and how long it takes, from small drives to large ones, at one interval between checkpoints.
//!
//! Each drive gets the same transactions at the same moments, and fails shortly before its second checkpoint would begin:
//!
//! ```text
//!   0 s          15 s            29 s
//!   ├────────────┼───────────────✂
//!   writes       checkpoint       power cut: 14 s of log to replay, whatever the capacity
//! ```
//!
//! By then the checkpoint of the largest drive has been written too; until it is, recovery would read the log of the
//! interval before as well.
//!
//! Only what is written takes memory, so the large drives are nearly empty: that is no advantage to them, because a map
//! entry that says "nowhere" is loaded like any other.

use super::crash::{Crash, Recovered};
use super::{Assistant, Check, Experiment, ExperimentError, Options, Run};
use openftl_core::units::ByteSize;
use openftl_core::{BLOCK_BYTES, Nanos};
use openftl_lab::figures::{Axis, Cell, Plot, Series, Table};
use openftl_parts::Config;

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "recovery-scale",
    question: "What does recovery read, and how long does it take, on drives from 1 GiB to 1 TiB?",
    paper: None,
    claims: &[],
    in_virtual_time: true,
    memory_bytes: [6 << 30, 256 << 20],
    run,
};

const PROFILE: &str = "granby";
const QUEUE_DEPTH: usize = 8;
/// Slow enough for the smallest drive, which collects garbage all the time.
const PACE: Nanos = Nanos::from_millis(8);

/// More log than an interval writes.
const LOG_BLOCKS_ENDLESS: u64 = 1 << 19;

/// Log blocks read on the drive that reads most, as a multiple of those on the drive that reads least.
const LOG_RATIO_MAX: f64 = 1.25;

struct Scale {
    blocks_per_chunk: u32,
    capacities: &'static [ByteSize],
    interval: Nanos,
    failure: Nanos,
}

const FULL: Scale = Scale {
    blocks_per_chunk: 6144,
    capacities: &[
        ByteSize(1 << 30),
        ByteSize(4 << 30),
        ByteSize(16 << 30),
        ByteSize(64 << 30),
        ByteSize(256 << 30),
        ByteSize(1 << 40),
    ],
    interval: Nanos::from_millis(15_000),
    failure: Nanos::from_millis(29_000),
};

/// Small chunks, because the log is cut and read chunk by chunk.
const QUICK: Scale = Scale {
    blocks_per_chunk: 384,
    capacities: &[ByteSize(1 << 30), ByteSize(2 << 30), ByteSize(4 << 30)],
    interval: Nanos::from_millis(1_000),
    failure: Nanos::from_millis(1_950),
};

fn run(options: Options, assistant: &mut dyn Assistant) -> Result<Run, ExperimentError> {
    let scale = if options.quick { QUICK } else { FULL };
    let mut recovered = Vec::new();
    for (index, &capacity) in scale.capacities.iter().enumerate() {
        let doing = format!("a drive of {capacity}");
        let crash = Crash {
            profile: PROFILE,
            blocks_per_chunk: scale.blocks_per_chunk,
            config: Config {
                capacity_blocks: capacity.0 / BLOCK_BYTES as u64,
                checkpoint_interval: Some(scale.interval),
                checkpoint_log_blocks: Some(LOG_BLOCKS_ENDLESS),
                ..Config::default()
            },
            queue_depth: QUEUE_DEPTH,
            pace: PACE,
            after: scale.failure,
            seed: options.seed,
        };
        recovered.push(crash.run(assistant, |assistant, share| {
            assistant.progress((index as f64 + share.min(1.0)) / scale.capacities.len() as f64, &doing);
        })?);
    }
    assistant.progress(1.0, "done");
    Ok(told(&scale, &recovered))
}

fn told(scale: &Scale, recovered: &[Recovered]) -> Run {
    let mut run = Run::default();
    run.parameter(
        "NAND",
        format_args!(
            "{PROFILE}: 8 groups of 4 dies, TLC, chunks of {}",
            ByteSize(u64::from(scale.blocks_per_chunk) * BLOCK_BYTES as u64)
        ),
    );
    run.parameter(
        "host",
        format_args!("durable random writes of 4 KiB to 1 MiB, one every {} ms", PACE.as_secs_f64() * 1e3),
    );
    run.parameter("checkpoints", format_args!("every {} s", scale.interval.as_secs_f64()));
    run.parameter("failure", format_args!("power cut at {} s", scale.failure.as_secs_f64()));
    let mut table = Table::new(
        "recovery",
        &[
            ("capacity", ""),
            ("taken", "checkpoints"),
            ("written", "GiB"),
            ("log read", "blocks"),
            ("checkpoint read", "blocks"),
            ("others read", "blocks"),
            ("log", "s"),
            ("map load", "s"),
            ("rest", "s"),
            ("recovery", "s"),
            ("CPU", "s"),
        ],
    );
    for (capacity, recovered) in scale.capacities.iter().zip(recovered) {
        let seconds = |time: Nanos| Cell::Number(time.as_secs_f64(), 3);
        let (log, checkpoint, rest) = (recovered.log(), recovered.checkpoint(), recovered.rest());
        table.row(vec![
            Cell::Text(capacity.to_string()),
            Cell::Count(recovered.checkpoints),
            Cell::Number((recovered.written_blocks * BLOCK_BYTES as u64) as f64 / f64::from(1 << 30), 1),
            Cell::Count(log.blocks_read),
            Cell::Count(checkpoint.blocks_read),
            Cell::Count(rest.blocks_read),
            seconds(log.time),
            seconds(checkpoint.time),
            seconds(rest.time),
            seconds(recovered.whole().time),
            seconds(recovered.cpu),
        ]);
    }
    run.tables.push(table);
    let gib = |capacity: &ByteSize| capacity.0 as f64 / f64::from(1 << 30);
    let series = |name: &str, of: &dyn Fn(&Recovered) -> Nanos| {
        let seconds = recovered.iter().map(|one| of(one).as_secs_f64());
        Series::new(name, scale.capacities.iter().map(gib).zip(seconds).collect())
    };
    run.plots.push(Plot {
        name: "recovery",
        title: "Recovery by capacity, at one interval between checkpoints".to_owned(),
        x: Axis::decades("capacity", "GiB"),
        y: Axis::decades("time on the drive's clock", "s"),
        series: vec![
            series("log", &|one| one.log().time),
            series("map load", &|one| one.checkpoint().time),
            series("rest", &|one| one.rest().time),
        ],
        caption: vec![
            "The log follows from the interval alone. The map is loaded whole, so its part grows with the capacity."
                .to_owned(),
        ],
    });
    run.checks.push(check(recovered));
    let verified: u64 = recovered.iter().map(|recovered| recovered.verified_blocks).sum();
    run.notes = vec![
        "The whole map is kept in memory and loaded before the first request: that part grows with the capacity, and \
         so does the time that the NAND is busy writing a checkpoint.",
        "Each drive got the same load for as long as every other; the large ones are nearly empty, which spares their map \
         nothing: an entry that says \"nowhere\" is loaded like any other.",
        "Times are those of the NAND, in virtual time; CPU time is that of this machine, and not in them.",
    ];
    run.total(
        "blocks were read and compared after the recoveries: what had been acknowledged was there",
        verified as f64,
        0,
    );
    run
}

fn check(recovered: &[Recovered]) -> Check {
    let range = |of: &dyn Fn(&Recovered) -> f64| {
        recovered.iter().map(of).fold((f64::INFINITY, 0.0f64), |(low, high), one| (low.min(one), high.max(one)))
    };
    let (fewest, most) = range(&|one| one.log().blocks_read as f64);
    let (fastest, slowest) = range(&|one| one.log().time.as_secs_f64());
    Check {
        claim: "What recovery reads of the log follows from the checkpoint interval, not from the capacity.",
        check: "the drive that reads most of its log reads 1.25 times what the one reads that reads least, or less",
        holds: most <= LOG_RATIO_MAX * fewest,
        measured: format!(
            "{fewest:.0} to {most:.0} log blocks ({:.2} times), {fastest:.3} to {slowest:.3} s",
            most / fewest
        ),
        why: "A checkpoint begins at each interval and cuts the log at its beginning, however long it takes to write.",
    }
}
