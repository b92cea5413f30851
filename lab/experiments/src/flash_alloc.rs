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

use super::full_drive::{FullDrive, percentiles};
use super::{Assistant, Check, Claim, Experiment, ExperimentError, Figure, Options, Paper, Run};
use hdrhistogram::Histogram;
use openftl_core::units::{ByteSize, Share};
use openftl_core::{BLOCK_BYTES, Nanos};
use openftl_lab::figures::{Axis, Cell, Plot, Series, Table};
use openftl_lab::{Binding, LoadSpec, Measured};
use openftl_media::{Profile, Timing};
use openftl_parts::{Config, PlacementName};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "flashalloc",
    question: "What does each way of telling a drive about lifetimes gain?",
    paper: Some(Paper {
        title: "FlashAlloc: Dedicating Flash Blocks By Objects",
        place: "evaluation 1 to 5",
        found: "On a 16 GB board with 10% over-provisioning, write amplification falls by 1.5, 2.5 and 0.3 for RocksDB, F2FS \
                and MySQL, throughput grows to 2 to 2.7, 1.8 and 1.2 times; for two tenants it falls from 2.5 to 1.6, and \
                both are twice as fast; the mean latency of RocksDB's operations from 140.2 to 94.4 us, and p99.9 from 5694 to 3401 us.",
    }),
    claims: &["002-1", "002-2", "002-3", "002-4", "002-5", "002-6", "002-7", "002-8", "002-10", "002-11", "002-12"],
    in_virtual_time: true,
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
const LSMS: usize = 4;
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

    /// What FlashAlloc takes off the write amplification of the vanilla drive.
    fn saved(&self, load: usize) -> f64 {
        self.waf(load, VANILLA) - self.waf(load, FLASH_ALLOC)
    }

    /// How many times as fast as the vanilla drive FlashAlloc is.
    fn faster(&self, load: usize) -> f64 {
        self.of(load, FLASH_ALLOC).speed() / self.of(load, VANILLA).speed()
    }

    /// What FlashAlloc makes of a latency of the writes of four LSM-trees.
    fn slower(&self, of: fn(&Histogram<u64>) -> f64) -> f64 {
        let latency = |drive| of(&self.of(LSMS, drive).measured.outcome.writes.latency);
        latency(FLASH_ALLOC) / latency(VANILLA)
    }
}

fn run(options: Options, assistant: &mut dyn Assistant) -> Result<Run, ExperimentError> {
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
    Ok(told(&scale, &Cases(cases), cpu))
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

fn told(scale: &Scale, cases: &Cases, cpu: Nanos) -> Run {
    let mut run = Run::default();
    let chunk = ByteSize(u64::from(scale.blocks_per_chunk) * BLOCK_BYTES as u64);
    run.parameter("NAND", format_args!("{PROFILE}: 8 groups of a die, chunks of {chunk}, in virtual time"));
    run.parameter("capacity", format_args!("{}, {OVER_PROVISIONING} over-provisioning", scale.capacity));
    run.parameter(
        "host",
        format_args!(
            "{QUEUE_DEPTH} requests at a time; {} capacities written to settle, {} measured",
            scale.warm_up, scale.drive_writes
        ),
    );
    for Workload { text, name } in &LOADS {
        run.parameter("load", format_args!("{name}: {text}"));
    }
    run.tables = vec![table(cases)];
    run.plots = vec![waf_plot(scale, cases), latency_plot(scale, cases)];
    run.claims = claims(scale, cases);
    run.checks = vec![apart(scale, cases)];
    run.notes = vec![
        "Write amplification counts all that was programmed: data, relocation, log, checkpoints, superblocks and padding.",
        "Latency is that of writes at a queue that is always full, so most of it is waiting; the paper's is that of \
         RocksDB's operations.",
    ];
    run.total("s of CPU time", cpu.as_secs_f64(), 1);
    run
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
        x: Axis::even("writers", ""),
        y: Axis::even("write amplification", ""),
        series: scale
            .drives
            .iter()
            .map(|&drive| {
                let points = writers.iter().map(|(load, count)| (*count, cases.waf(*load, drive)));
                Series::new(DRIVES[drive].name, points.collect())
            })
            .collect(),
        caption: EXPERIMENT.paper.iter().map(|paper| format!("The paper: {}", paper.found)).collect(),
    }
}

fn latency_plot(scale: &Scale, cases: &Cases) -> Plot {
    let series = |&drive: &usize| {
        let latency = &cases.of(LSMS, drive).measured.outcome.writes.latency;
        Series::new(DRIVES[drive].name, percentiles(latency))
    };
    Plot {
        name: "latency",
        title: "Latency of the writes of four LSM-trees".to_owned(),
        x: Axis::decades("latency", "us"),
        y: Axis::nines("share of writes that took no longer"),
        series: scale.drives.iter().map(series).collect(),
        caption: vec!["A curve further left is better.".to_owned()],
    }
}

fn claims(scale: &Scale, cases: &Cases) -> Vec<Claim> {
    let saved = |load, paper| Figure::effect("WAF saved", "", 2, paper, 0.0, cases.saved(load));
    let near_one = |load| {
        Figure::value("WAF with FlashAlloc", "", 2, 1.0, scale.kept_apart_max - 1.0, cases.waf(load, FLASH_ALLOC))
    };
    let faster = |load, paper: f64| Figure::effect("throughput", " times", 1, paper, 1.0, cases.faster(load));
    let writers = Claim::new(
        &["002-1"],
        "The more files are written at a time, the more FlashAlloc gains.",
        vec![Figure::above(
            "WAF saved with 8 writers beyond that with 2",
            "",
            2,
            0.1,
            "more",
            cases.saved(MANY_WRITERS) - cases.saved(FEW_WRITERS),
        )],
        "A chunk that is written in the order of time holds blocks of every file that is being written, and these end at \
         different times.",
    );
    let tables = Claim::new(
        &["002-2", "002-4"],
        "Tables in chunks of their own take 1.5 off RocksDB's write amplification, which comes near 1.",
        vec![saved(LSMS, 1.5), near_one(LSMS)],
        "Four trees, as the authors' scripts have it. How much there is to gain depends on what the vanilla drive has to do: what \
         a tree keeps free for compactions serves it as over-provisioning, where it is trimmed. The rows with one tree and without \
         trims show both ends.",
    );
    let tables_faster = Claim::new(
        &["002-3"],
        "RocksDB writes 2 to 2.7 times as fast.",
        vec![Figure::range("throughput", " times", 1, [2.0, 2.7], 1.0, cases.faster(LSMS))],
        "What is not copied leaves its time to the host. The load is a model of the trees' writes and never waits for anything else.",
    );
    let segments = Claim::new(
        &["002-4", "002-5"],
        "Segments in chunks of their own take 2.5 off F2FS's write amplification, which comes near 1.",
        vec![saved(FILE_SYSTEM, 2.5), near_one(FILE_SYSTEM)],
        "A segment that is cleaned is trimmed as a whole, and so is its chunk.",
    );
    let segments_faster = Claim::new(
        &["002-5"],
        "F2FS writes 1.8 times as fast.",
        vec![faster(FILE_SYSTEM, 1.8)],
        "As for tables: the model waits for nothing but the drive.",
    );
    let database = Claim::new(
        &["002-6"],
        "Keeping MySQL's double-write buffer apart takes 0.3 off the write amplification, at 1.2 times the throughput.",
        vec![saved(DATABASE, 0.3), faster(DATABASE, 1.2)],
        "Half of the writes are the buffer's, which become invalid together. The other half are pages written in place at random: \
         they are no object, and are collected as before, with all of the over-provisioning to themselves.",
    );
    let tenants = Claim::new(
        &["002-7"],
        "For RocksDB beside MySQL write amplification falls by 0.9 (2.5 to 1.6), and both are twice as fast.",
        vec![saved(TENANTS, 0.9), faster(TENANTS, 2.0)],
        "What the tree writes leaves the over-provisioning to the pages of the database. The two share one queue here, so that both \
         are faster by the same factor.",
    );
    let streams = Claim::new(
        &["002-8"],
        "Multi-stream with 8 streams still suffers from write amplification for RocksDB's tables.",
        vec![Figure::above(
            "WAF with 8 streams beyond that with FlashAlloc",
            "",
            2,
            0.1,
            "suffers",
            cases.waf(LSMS, STREAMS) - cases.waf(LSMS, FLASH_ALLOC),
        )],
        "Tables that share a stream are written at about the same time and end soon after each other, so that they share chunks \
         with little harm. For the segments of a log-structured file system it is as the paper says: see its rows.",
    );
    let latency = |name: &str, says, of| Figure::below(name, " times", 2, 0.95, says, cases.slower(of));
    let tail = Claim::new(
        &["002-10", "002-11", "002-12"],
        "FlashAlloc lowers the latency of RocksDB's operations: the mean, p99 and p99.9.",
        vec![
            latency("mean", "140.2 to 94.4 us", Histogram::mean),
            latency("p99", "20.9 to 18.3 us", |latency| latency.value_at_quantile(0.99) as f64),
            latency("p99.9", "5694 to 3401 us", |latency| latency.value_at_quantile(0.999) as f64),
        ],
        "Nothing is copied between the writes of the host. These are the writes of four LSM-trees at a queue that is always full, \
         and no operations of a database: only their direction can be compared.",
    );
    vec![writers, tables, tables_faster, segments, segments_faster, database, tenants, streams, tail]
}

fn apart(scale: &Scale, cases: &Cases) -> Check {
    let waf = |drive: usize| format!("{} {:.2}", DRIVES[drive].name, cases.waf(MANY_WRITERS, drive));
    let is_apart = |drive| cases.waf(MANY_WRITERS, drive) <= scale.kept_apart_max;
    Check {
        claim: "Where the vanilla drive writes twice as much or more, FDP and FlashAlloc write at most 1.05 times as much.",
        check: "8 writers; the vanilla drive at 2 or more (on a small scale 1.3 or more, and at most 1.15)",
        holds: cases.waf(MANY_WRITERS, VANILLA) >= scale.vanilla_min && is_apart(FLASH_ALLOC) && is_apart(FDP),
        measured: [VANILLA, STREAMS, FDP, FLASH_ALLOC].map(waf).join(", "),
        why: "Each of the eight files that are written at a time has chunks of its own, and ends as a whole.",
    }
}
