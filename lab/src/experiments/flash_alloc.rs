//! What each way of telling a drive about lifetimes gains: seed 002's evaluation, with the columns that nobody had.
//!
//! Every drive gets the same writes. What differs is what it is told of them, and what it makes of that:
//!
//! | drive | is told | placement |
//! |---|---|---|
//! | vanilla | nothing | `none`: in the order of time |
//! | hot/cold | nothing | `hot-cold`: what collection moves is kept apart |
//! | learned | nothing | `learned`: by the lifetimes that it infers |
//! | streams | each object's handle, 8 in all, round and round | `streams` |
//! | FDP | each kind of data, 16 handles in all | `fdp-persistent` |
//! | dedicated | each object's handle of 64, so that objects being written never share one: as on zones | `fdp-persistent` |
//! | FlashAlloc | each object, before it is written | `flash-alloc` |

use super::full_drive::FullDrive;
use super::{
    Assistant, Axis, Cell, Experiment, ExperimentError, Finding, Options, Paper, Plot, Report, Series, Source, Table,
};
use crate::{Binding, LoadSpec, Measured};
use openftl_core::units::{ByteSize, Share};
use openftl_core::{BLOCK_BYTES, Nanos};
use openftl_ftl::{Config, PlacementName};
use openftl_media::{Profile, Timing};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "flashalloc",
    question: "What does each way of telling a drive about lifetimes gain?",
    paper: Some(Paper {
        title: "FlashAlloc: Dedicating Flash Blocks By Objects",
        place: "evaluation 1 to 5",
        found: "On a 16 GB board with 10% over-provisioning, write amplification falls by 1.5, 2.5 and 0.3 for RocksDB, F2FS \
                and MySQL, throughput grows to 2 to 2.7, 1.8 and 1.2 times; for two tenants it falls from 2.5 to 1.6; \
                the mean latency of RocksDB's operations from 140.2 to 94.4 us, and p99.9 from 5694 to 3401 us.",
    }),
    memory_bytes: [512 << 20, 64 << 20],
    run,
};

const PROFILE: &str = "cosmos";
const QUEUE_DEPTH: usize = 32;
const OVER_PROVISIONING: Share = Share::percent(10);

const LOADS: [Workload; 9] = [
    Workload { text: "writers:2,fill=95%,access=16KiB", name: "2 writers" },
    Workload { text: "writers:4,fill=95%,access=16KiB", name: "4 writers" },
    Workload { text: "writers:8,fill=95%,access=16KiB", name: "8 writers" },
    Workload { text: "lsm:4", name: "LSM-tree" },
    // As the authors' scripts have it: four databases without a log, in one file system.
    Workload { text: "lsm:4,trees=4,log=no", name: "4 LSM-trees" },
    Workload { text: "lsm:4,trees=4,log=no,discard=no", name: "4 LSM-trees, no trims" },
    Workload { text: "log-structured-fs,fill=85%", name: "log-structured FS" },
    Workload { text: "double-write,fill=85%", name: "double-write" },
    Workload { text: "tenants:lsm:4+double-write,fill=85%", name: "LSM-tree + double-write" },
];
const FEW_WRITERS: usize = 0;
const MANY_WRITERS: usize = 2;
const LSM: usize = 3;
const LSMS: usize = 4;
const UNTRIMMED: usize = 5;
const FILE_SYSTEM: usize = 6;
const DATABASE: usize = 7;
const TENANTS: usize = 8;

struct Workload {
    text: &'static str,
    name: &'static str,
}

const DRIVES: [Drive; 7] = [
    Drive { name: "vanilla", placement: PlacementName::None, handles: 0 },
    Drive { name: "hot/cold", placement: PlacementName::HotCold, handles: 0 },
    Drive { name: "learned", placement: PlacementName::Learned, handles: 0 },
    Drive { name: "streams", placement: PlacementName::Streams, handles: 8 },
    Drive { name: "FDP", placement: PlacementName::FdpPersistent, handles: 16 },
    Drive { name: "dedicated", placement: PlacementName::FdpPersistent, handles: 64 },
    Drive { name: "FlashAlloc", placement: PlacementName::FlashAlloc, handles: 0 },
];
const VANILLA: usize = 0;
const STREAMS: usize = 3;
const FDP: usize = 4;
const FLASH_ALLOC: usize = 6;

struct Drive {
    name: &'static str,
    placement: PlacementName,
    handles: u8,
}

struct Scale {
    capacity: ByteSize,
    blocks_per_chunk: u32,
    warm_up: f64,
    drive_writes: f64,
    /// Which of [`DRIVES`].
    drives: &'static [usize],
    /// What the vanilla drive programs for each block of many writers, at least.
    vanilla_min: f64,
    /// What a drive that keeps apart what ends together programs for each block written, at most.
    kept_apart_max: f64,
}

const FULL: Scale = Scale {
    capacity: ByteSize(14 << 30),
    blocks_per_chunk: 256,
    warm_up: 3.0,
    drive_writes: 2.0,
    drives: &[0, 1, 2, 3, 4, 5, 6],
    vanilla_min: 2.0,
    kept_apart_max: 1.05,
};

const QUICK: Scale = Scale {
    capacity: ByteSize(256 << 20),
    blocks_per_chunk: 32,
    warm_up: 2.0,
    drive_writes: 1.0,
    drives: &[VANILLA, STREAMS, FDP, FLASH_ALLOC],
    vanilla_min: 1.3,
    kept_apart_max: 1.15,
};

/// One drive, one load.
struct Case {
    load: usize,
    drive: usize,
    measured: Measured,
}

impl Case {
    fn waf(&self) -> f64 {
        self.measured.statistics.waf()
    }

    /// Blocks that the host wrote in a second.
    fn speed(&self) -> f64 {
        let Measured { outcome, .. } = &self.measured;
        outcome.writes.blocks as f64 / outcome.ended.since(outcome.started).as_secs_f64()
    }
}

/// All of them.
struct Cases(Vec<Case>);

impl Cases {
    fn of(&self, load: usize, drive: usize) -> &Case {
        self.0.iter().find(|case| (case.load, case.drive) == (load, drive)).expect("every case was run")
    }

    fn waf(&self, load: usize, drive: usize) -> f64 {
        self.of(load, drive).waf()
    }

    /// Write amplification of the vanilla drive and with FlashAlloc, and how much faster that is.
    fn gain(&self, load: usize) -> String {
        let (vanilla, flash_alloc) = (self.of(load, VANILLA), self.of(load, FLASH_ALLOC));
        format!(
            "{}: {:.2} to {:.2}, by {:.2}, at {:.1} times the throughput",
            LOADS[load].name,
            vanilla.waf(),
            flash_alloc.waf(),
            vanilla.waf() - flash_alloc.waf(),
            flash_alloc.speed() / vanilla.speed()
        )
    }
}

fn run(options: Options, assistant: &mut dyn Assistant) -> Result<Report, ExperimentError> {
    let scale = if options.quick { QUICK } else { FULL };
    let runs = (LOADS.len() * scale.drives.len()) as f64;
    let began = assistant.cpu_time();
    let mut cases = Vec::new();
    for (load, Workload { name, .. }) in LOADS.iter().enumerate() {
        for &drive in scale.drives {
            let doing = format!("{name}, {}", DRIVES[drive].name);
            assistant.progress(cases.len() as f64 / runs, &doing);
            cases.push(Case { load, drive, measured: measured(&scale, load, drive, options.seed)? });
        }
    }
    let cpu = assistant.cpu_time() - began;
    assistant.progress(1.0, "done");
    Ok(report(options, &scale, &Cases(cases), cpu))
}

fn measured(scale: &Scale, load: usize, drive: usize, seed: u64) -> Result<Measured, ExperimentError> {
    let mut profile = Profile::builtin(PROFILE)?;
    profile.chip.blocks_per_chunk = scale.blocks_per_chunk;
    let Drive { placement, handles, .. } = DRIVES[drive];
    let binding = match placement {
        PlacementName::FlashAlloc => Binding::Allocate,
        _ if drive == FDP => Binding::ByKind { handles },
        _ if placement.heeds_handles() => Binding::ByObject { handles },
        _ => Binding::None,
    };
    let full_drive = FullDrive {
        profile,
        timing: Timing::Modelled,
        config: Config {
            capacity_blocks: scale.capacity.0 / BLOCK_BYTES as u64,
            over_provisioning: OVER_PROVISIONING,
            placement,
            handles: handles.max(1),
            ..Config::default()
        },
        load: LOADS[load].text.parse::<LoadSpec>()?,
        binding,
        queue_depth: QUEUE_DEPTH,
        pace: Nanos::ZERO,
        warm_up: scale.warm_up,
        drive_writes: scale.drive_writes,
        seed,
    };
    full_drive.run()
}

fn report(options: Options, scale: &Scale, cases: &Cases, cpu: Nanos) -> Report {
    let mut report = Report::new(&EXPERIMENT, options);
    let chunk = ByteSize(u64::from(scale.blocks_per_chunk) * BLOCK_BYTES as u64);
    report.parameter("NAND", format_args!("{PROFILE}: 8 groups of a die, chunks of {chunk}, in virtual time"));
    report.parameter("capacity", format_args!("{}, {OVER_PROVISIONING} over-provisioning", scale.capacity));
    report.parameter(
        "host",
        format_args!(
            "{QUEUE_DEPTH} requests at a time; {} capacities written to settle, {} measured",
            scale.warm_up, scale.drive_writes
        ),
    );
    for Workload { text, name } in &LOADS {
        report.parameter("load", format_args!("{name}: {text}"));
    }
    report.tables = vec![table(cases)];
    report.plots = vec![waf_plot(scale, cases), latency_plot(scale, cases)];
    report.findings = findings(scale, cases);
    report.notes = vec![
        "Write amplification counts all that was programmed: data, relocation, log, checkpoints, superblocks and padding."
            .to_owned(),
        "Latency is that of writes at a queue that is always full, so most of it is waiting; the paper's is that of \
         RocksDB's operations."
            .to_owned(),
        format!("{:.1} s of CPU time.", cpu.as_secs_f64()),
    ];
    report
}

fn table(cases: &Cases) -> Table {
    let mut table = Table::new(
        "placement",
        &[
            ("load", ""),
            ("drive", ""),
            ("WAF", ""),
            ("relocation WAF", ""),
            ("written", "MB/s"),
            ("write mean", "ms"),
            ("write p99", "ms"),
            ("write p99.9", "ms"),
            ("erases", ""),
            ("without a chunk", "blocks"),
            ("moved together", "blocks"),
        ],
    );
    for case in &cases.0 {
        let Measured { outcome, statistics, .. } = &case.measured;
        let millis = |nanos: f64| Cell::Number(nanos / 1e6, 2);
        let latency = &outcome.writes.latency;
        table.row(vec![
            Cell::Text(LOADS[case.load].name.to_owned()),
            Cell::Text(DRIVES[case.drive].name.to_owned()),
            Cell::Number(case.waf(), 3),
            Cell::Number(statistics.relocation_waf(), 3),
            Cell::Number(case.speed() * BLOCK_BYTES as f64 / 1e6, 1),
            millis(latency.mean()),
            millis(latency.value_at_quantile(0.99) as f64),
            millis(latency.value_at_quantile(0.999) as f64),
            Cell::Count(statistics.resets),
            Cell::Count(statistics.placement.unplaced + statistics.placement.spilled),
            Cell::Count(statistics.placement.merged),
        ]);
    }
    table
}

/// Writers against write amplification.
fn waf_plot(scale: &Scale, cases: &Cases) -> Plot {
    let writers = [(FEW_WRITERS, 2.0), (1, 4.0), (MANY_WRITERS, 8.0)];
    Plot {
        name: "writers",
        title: "Write amplification of concurrent writers".to_owned(),
        x: Axis { name: "writers", unit: "" },
        y: Axis { name: "write amplification", unit: "" },
        series: scale
            .drives
            .iter()
            .map(|&drive| Series {
                name: DRIVES[drive].name.to_owned(),
                points: writers.iter().map(|(load, count)| (*count, cases.waf(*load, drive))).collect(),
            })
            .collect(),
        caption: vec![EXPERIMENT.paper.map(|paper| format!("The paper: {}", paper.found)).unwrap_or_default()],
    }
}

fn latency_plot(scale: &Scale, cases: &Cases) -> Plot {
    const QUANTILES: [f64; 7] = [0.5, 0.75, 0.9, 0.95, 0.99, 0.995, 0.999];
    let points = |drive| {
        let latency = &cases.of(LSMS, drive).measured.outcome.writes.latency;
        let point = |quantile: &f64| (1.0 / (1.0 - quantile), latency.value_at_quantile(*quantile) as f64 / 1e6);
        QUANTILES.iter().map(point).collect()
    };
    Plot {
        name: "latency",
        title: "Latency of the writes of four LSM-trees".to_owned(),
        x: Axis { name: "requests that wait longer, one of", unit: "" },
        y: Axis { name: "latency", unit: "ms" },
        series: scale
            .drives
            .iter()
            .map(|&drive| Series { name: DRIVES[drive].name.to_owned(), points: points(drive) })
            .collect(),
        caption: Vec::new(),
    }
}

fn findings(scale: &Scale, cases: &Cases) -> Vec<Finding> {
    let gains = |loads: &[usize]| loads.iter().map(|load| cases.gain(*load)).collect::<Vec<_>>().join("; ");
    let is_ideal = |load| cases.waf(load, FLASH_ALLOC) <= scale.kept_apart_max;
    let writers = Finding {
        source: Source::Paper,
        claim: "The more files are written at a time, the more FlashAlloc gains.",
        check: "vanilla writes more with 8 writers than with 2; FlashAlloc at most 1.05 with either (1.15 on a small scale)",
        holds: cases.waf(MANY_WRITERS, VANILLA) > cases.waf(FEW_WRITERS, VANILLA)
            && is_ideal(FEW_WRITERS)
            && is_ideal(MANY_WRITERS),
        measured: gains(&[FEW_WRITERS, 1, MANY_WRITERS]),
        why: "A chunk that is written in the order of time holds blocks of every file that is being written, and these end at \
              different times.",
    };
    let logs = Finding {
        source: Source::Paper,
        claim: "Tables and segments in chunks of their own bring RocksDB and F2FS near a write amplification of 1.",
        check: "at most 1.05 for the LSM-trees and the log-structured file system (1.15 on a small scale)",
        holds: [LSM, LSMS, UNTRIMMED, FILE_SYSTEM].into_iter().all(is_ideal),
        measured: format!(
            "{}. The paper: by 1.5 at 2 to 2.7 times the throughput for RocksDB, by 2.5 at 1.8 times for F2FS",
            gains(&[LSM, LSMS, UNTRIMMED, FILE_SYSTEM])
        ),
        why: "How much that gains depends on what the vanilla drive has to do. What a tree keeps free for \
              compactions serves the drive as over-provisioning, and one tree writes few tables at a time; four trees write up \
              to twenty; and where nothing is trimmed, the drive has no room beyond its own.",
    };
    let database = Finding {
        source: Source::Paper,
        claim: "Keeping the double-write buffer apart from the pages lowers write amplification by less than an object store gains.",
        check: "lower than vanilla, and still above 1.05",
        holds: cases.waf(DATABASE, FLASH_ALLOC) < cases.waf(DATABASE, VANILLA) && !is_ideal(DATABASE),
        measured: format!("{}. The paper: by 0.3 at 1.2 times the throughput for MySQL", gains(&[DATABASE])),
        why: "Half of the writes are pages written in place at random: they are no object, and are collected as before.",
    };
    let tenants = Finding {
        source: Source::Paper,
        claim: "A tenant that announces its objects serves its neighbour.",
        check: "for an LSM-tree beside a database, lower than vanilla",
        holds: cases.waf(TENANTS, FLASH_ALLOC) < cases.waf(TENANTS, VANILLA),
        measured: format!("{}. The paper: from 2.5 to 1.6", gains(&[TENANTS])),
        why: "What the tree writes leaves the over-provisioning to the pages of the database.",
    };
    let waf = |load, drive: usize| format!("{} {:.2}", DRIVES[drive].name, cases.waf(load, drive));
    let streams_load = |load| [VANILLA, STREAMS, FDP, FLASH_ALLOC].map(|drive| waf(load, drive)).join(", ");
    let streams = Finding {
        source: Source::Paper,
        claim: "Multi-stream with 8 streams still suffers from write amplification.",
        check: "with a log-structured file system, it writes more than with FlashAlloc",
        holds: cases.waf(FILE_SYSTEM, STREAMS) > cases.waf(FILE_SYSTEM, FLASH_ALLOC),
        measured: [LSMS, UNTRIMMED, FILE_SYSTEM]
            .map(|load| format!("{}: {}", LOADS[load].name, streams_load(load)))
            .join("; "),
        why: "There are more segments than streams: hot and cold ones share them, and collection mixes what it moves. For \
              tables it is not so: those that share a stream are written at about the same time, and end soon after each \
              other.",
    };
    let latency = |drive| {
        let latency = &cases.of(LSMS, drive).measured.outcome.writes.latency;
        (latency.mean() / 1e6, latency.value_at_quantile(0.999) as f64 / 1e6)
    };
    let ((vanilla, vanilla_tail), (flash_alloc, flash_alloc_tail)) = (latency(VANILLA), latency(FLASH_ALLOC));
    let tail = Finding {
        source: Source::Paper,
        claim: "FlashAlloc lowers the mean latency of an LSM-tree's writes, and its tail.",
        check: "mean and p99.9 of the writes of four LSM-trees are below those of the vanilla drive",
        holds: flash_alloc < vanilla && flash_alloc_tail < vanilla_tail,
        measured: format!(
            "mean {vanilla:.1} to {flash_alloc:.1} ms, p99.9 {vanilla_tail:.1} to {flash_alloc_tail:.1} ms. The paper: \
             140.2 to 94.4 us, and 5694 to 3401 us"
        ),
        why: "Nothing is copied between the writes of the host.",
    };
    let apart = Finding {
        source: Source::OpenFtl,
        claim: "Where the vanilla drive writes twice as much or more, FDP and FlashAlloc write at most 1.05 times as much.",
        check: "8 writers; the vanilla drive at 2 or more (on a small scale 1.3 or more, and at most 1.15)",
        holds: cases.waf(MANY_WRITERS, VANILLA) >= scale.vanilla_min
            && is_ideal(MANY_WRITERS)
            && cases.waf(MANY_WRITERS, FDP) <= scale.kept_apart_max,
        measured: streams_load(MANY_WRITERS),
        why: "Each of the eight files that are written at a time has chunks of its own, and ends as a whole.",
    };
    vec![writers, logs, database, tenants, streams, tail, apart]
}
