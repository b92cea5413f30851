//! What zones cost and save: programs for each block of the host, what a flush in the middle of a write unit costs, and whom resets disturb.
//!
//! ```text
//!   amplification   the same writes of whole zones, on zones and on a page FTL of the same flash
//!   flushes         a flush after so much of each zone: what is no whole write unit is saved twice
//!   reads           beside writes and resets of other zones: narrow zones, zones of a group, zones of the whole device
//!   file systems    of Linux above zones and above a page FTL: what each writes, and what its drive makes of it
//! ```

mod file_systems;

use super::full_drive::percentiles;
use super::{Assistant, Check, Experiment, ExperimentError, Options, Run};
use crate::file_trace::Head;
use openftl_blocks::{BlockFtl, Ftl};
use openftl_core::units::{ByteSize, Share};
use openftl_core::{BLOCK_BYTES, FrameForm, Geometry, Nanos, VirtualClock};
use openftl_lab::figures::{Axis, Cell, Plot, Series, Table};
use openftl_lab::load::{Access, Load, Operation};
use openftl_lab::load_spec::Model;
use openftl_lab::trial::unwatched;
use openftl_lab::{Binding, BlockDrive, Limit, LoadSpec, Measured, Trial, WarmUp};
use openftl_media::{EmulatedDevice, Profile, Store, Timing};
use openftl_parts::{BlockTarget, Config, chunks_per_pu};
use openftl_zones::{Face, Limits, ZoneConfig, ZoneFtl};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "zns",
    question: "What do zones save against a page FTL of the same flash, and what do flushes and wide zones cost?",
    paper: None,
    claims: &[],
    in_virtual_time: true,
    memory_bytes: [2 << 30, 256 << 20],
    run,
};

const PROFILE: &str = "granby";
const WRITERS: u32 = 8;
const QUEUE_DEPTH: usize = 32;
/// What the page FTL has beyond its capacity.
const OVER_PROVISIONING: Share = Share::percent(10);
/// So much of either drive is live.
const FILL: Share = Share::percent(85);
/// Flushes come after so much of each zone.
const INTERVALS: [u64; 5] = [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];
/// A host that reads in peace has this share of the requests that the slowest drive ends in a second.
const PEACEFUL: f64 = 0.25;
const READ_SHARE: Share = Share::percent(70);
/// Programs for each block of the host, without flushes.
const AMPLIFICATION_MAX: f64 = 1.01;

struct Scale {
    groups: u32,
    pus_per_group: u32,
    blocks_per_chunk: u32,
    /// Of the page FTL.
    capacity: ByteSize,
    drive_writes: f64,
    /// As many of the replays.
    file_systems: usize,
}

const FULL: Scale = Scale {
    groups: 8,
    pus_per_group: 4,
    blocks_per_chunk: 1536,
    capacity: ByteSize(16 << 30),
    drive_writes: 2.0,
    file_systems: 6,
};

const QUICK: Scale = Scale {
    groups: 4,
    pus_per_group: 2,
    blocks_per_chunk: 384,
    capacity: ByteSize(384 << 20),
    drive_writes: 2.0,
    file_systems: 2,
};

/// The recordings that the experiment replays and no other has: what each is called, and what it is of.
pub fn recordings() -> impl Iterator<Item = (&'static str, Head)> {
    file_systems::recordings()
}

/// Which drive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Pages,
    /// Parallel units of a zone.
    Zones(u32),
}

impl Kind {
    fn name(self) -> String {
        match self {
            Kind::Pages => "page FTL".to_owned(),
            Kind::Zones(1) => "zones of one die".to_owned(),
            Kind::Zones(width) => format!("zones of {width} dies"),
        }
    }
}

/// A load that flushes when so many blocks are written.
struct Flushed {
    load: Box<dyn Load>,
    every: u64,
    written: u64,
}

impl Load for Flushed {
    fn step(&mut self) -> Option<Access> {
        if self.written >= self.every {
            self.written -= self.every;
            return Some(Access::FLUSH);
        }
        let step = self.load.step();
        if let Some(Access { operation: Operation::Write, blocks, .. }) = step {
            self.written += u64::from(blocks);
        }
        step
    }

    fn fill_step(&mut self) -> Option<Access> {
        self.load.fill_step()
    }

    fn kinds(&self) -> Vec<String> {
        self.load.kinds()
    }

    fn live_blocks_max(&self) -> u64 {
        self.load.live_blocks_max()
    }

    fn access_blocks_max(&self) -> u32 {
        self.load.access_blocks_max()
    }
}

/// What is asked of a drive.
struct Asked {
    kind: Kind,
    any: bool,
    reads: Share,
    /// Bytes of each zone after which a flush comes.
    flush_after: Option<u64>,
    pace: Nanos,
    drive_writes: f64,
}

impl Asked {
    fn plain(kind: Kind, scale: &Scale) -> Asked {
        let drive_writes = scale.drive_writes;
        Asked { kind, any: false, reads: Share::default(), flush_after: None, pace: Nanos::ZERO, drive_writes }
    }

    fn measured(&self, scale: &Scale, seed: u64) -> Result<Measured, ExperimentError> {
        let mut profile = Profile::builtin(PROFILE)?;
        (profile.groups, profile.pus_per_group) = (scale.groups, scale.pus_per_group);
        profile.chip.blocks_per_chunk = scale.blocks_per_chunk;
        let blocks = scale.capacity.0 / BLOCK_BYTES as u64;
        let pages = Config {
            capacity_blocks: blocks,
            over_provisioning: OVER_PROVISIONING,
            payload: FrameForm::Stamp,
            drive_id: seed,
            ..Config::default()
        };
        let shape = profile.geometry(profile.chunks_per_pu)?;
        let chunks = chunks_per_pu(&shape, &pages, Share::percent(0))?;
        let device = EmulatedDevice::new(profile, chunks, Store::Stamps, Timing::Modelled, seed)?;
        let mut clock = VirtualClock::default();
        let drive: BlockDrive<EmulatedDevice> = match self.kind {
            Kind::Pages => BlockFtl::format(device, pages, &mut clock)?.into(),
            Kind::Zones(width) => {
                let limits = Limits { max_open: WRITERS, max_active: WRITERS };
                let zones =
                    ZoneConfig { face: Face::Zones, width, limits, zones: None, extension_bytes: 0, window_blocks: 0 };
                ZoneFtl::format(device, Config { drive_id: seed, ..Config::default() }, zones, &mut clock)?.into()
            }
        };
        let of_group = u64::from(shape.pus_per_group) * u64::from(shape.blocks_per_chunk);
        let segment_blocks = drive.segment_blocks().unwrap_or(of_group);
        let bytes = |blocks: u64| ByteSize(blocks * BLOCK_BYTES as u64);
        let access = self.flush_after.unwrap_or(64 << 10).min(64 << 10);
        let spec = LoadSpec {
            access: Some(ByteSize(access)),
            reads: Some(self.reads),
            fill: Some(FILL),
            segment: Some(bytes(segment_blocks)),
            ..LoadSpec::new(Model::Segments { writers: WRITERS, any: self.any })
        };
        let mut no_trace = |_: &str| Err(std::io::ErrorKind::Unsupported.into());
        let mut load = spec.build(BlockTarget::blocks(&drive), drive.segment_blocks(), seed, &mut no_trace)?;
        if let Some(bytes) = self.flush_after {
            let every = bytes / BLOCK_BYTES as u64 * u64::from(WRITERS);
            load = Box::new(Flushed { load, every, written: 0 });
        }
        // Who flushes waits for it.
        let queue_depth = if self.flush_after.is_some() { 1 } else { QUEUE_DEPTH };
        let mut trial = Trial::new(drive, clock, load, queue_depth, Binding::None);
        trial.prepare(WarmUp::DriveWrites(if self.flush_after.is_some() { 0.0 } else { 1.0 }), &mut unwatched)?;
        let limit = Limit::BlocksMoved((blocks as f64 * self.drive_writes) as u64);
        let measured = trial.measure(limit, self.pace, &mut unwatched)?;
        trial.read_back(&mut unwatched)?;
        Ok(measured)
    }
}

struct Amplification {
    kind: Kind,
    any: bool,
    measured: Measured,
}

struct Flushes {
    interval: u64,
    measured: Measured,
}

struct Reads {
    kind: Kind,
    measured: Measured,
}

fn run(options: Options, assistant: &mut dyn Assistant) -> Result<Run, ExperimentError> {
    let scale = if options.quick { QUICK } else { FULL };
    let seed = options.seed;
    let began = assistant.cpu_time();
    let of_group = Kind::Zones(scale.pus_per_group);
    let mut amplification = Vec::new();
    for any in [false, true] {
        for kind in [Kind::Pages, of_group] {
            let ends = if any { "any segment ends" } else { "the oldest segment ends" };
            assistant.progress(amplification.len() as f64 * 0.1, &format!("{}, {ends}", kind.name()));
            let measured = Asked { any, ..Asked::plain(kind, &scale) }.measured(&scale, seed)?;
            amplification.push(Amplification { kind, any, measured });
        }
    }
    let mut flushes = Vec::new();
    for interval in INTERVALS {
        assistant
            .progress(0.4 + flushes.len() as f64 * 0.06, &format!("a flush after {} of a zone", ByteSize(interval)));
        let asked = Asked { flush_after: Some(interval), drive_writes: 0.1, ..Asked::plain(of_group, &scale) };
        flushes.push(Flushes { interval, measured: asked.measured(&scale, seed)? });
    }
    let widths = [Kind::Zones(1), of_group, Kind::Zones(scale.groups * scale.pus_per_group)];
    let mut slowest = f64::INFINITY;
    for kind in widths {
        assistant.progress(0.7, &format!("{}, as fast as it can", kind.name()));
        let asked = Asked { reads: READ_SHARE, drive_writes: 0.2, ..Asked::plain(kind, &scale) };
        slowest = slowest.min(asked.measured(&scale, seed)?.outcome.iops().unwrap_or(f64::INFINITY));
    }
    let pace = Nanos((1e9 / (slowest * PEACEFUL)) as u64);
    let mut reads = Vec::new();
    for kind in widths {
        assistant.progress(0.8 + reads.len() as f64 * 0.06, &format!("{}, in peace", kind.name()));
        let asked = Asked { reads: READ_SHARE, pace, drive_writes: 1.0, ..Asked::plain(kind, &scale) };
        reads.push(Reads { kind, measured: asked.measured(&scale, seed)? });
    }
    let on_zones = file_systems::cases(&scale, seed, |share, words| assistant.progress(0.95 + share * 0.05, words))?;
    let cpu = assistant.cpu_time() - began;
    assistant.progress(1.0, "done");
    let mut run = told(&scale, &amplification, &flushes, &reads, cpu);
    run.parameter("file systems", file_systems::parameter());
    run.tables.push(file_systems::table(&on_zones));
    run.checks.push(file_systems::check(&on_zones));
    Ok(run)
}

fn micros(nanos: u64) -> Cell {
    Cell::Number(nanos as f64 / 1e3, 0)
}

fn told(scale: &Scale, amplification: &[Amplification], flushes: &[Flushes], reads: &[Reads], cpu: Nanos) -> Run {
    let mut run = Run::default();
    let geometry: Geometry = reads[0].measured.geometry;
    let chunk = u64::from(geometry.blocks_per_chunk) * BLOCK_BYTES as u64;
    run.parameter(
        "NAND",
        format_args!(
            "{PROFILE} with {} groups of {} dies, chunks of {}, write units of {}; {} of flash for each drive",
            scale.groups,
            scale.pus_per_group,
            ByteSize(chunk),
            ByteSize(u64::from(geometry.ws_opt) * BLOCK_BYTES as u64),
            ByteSize(geometry.bytes())
        ),
    );
    run.parameter("page FTL", format_args!("{} with {OVER_PROVISIONING} over-provisioning, greedy", scale.capacity));
    run.parameter(
        "host",
        format_args!("{WRITERS} writers that fill segments as large as zones; {FILL} of either drive is live"),
    );
    run.tables.push(amplification_table(amplification));
    run.tables.push(flush_table(flushes));
    run.tables.push(read_table(reads));
    run.plots.push(Plot {
        name: "reads",
        title: "Latency of reads beside writes and resets of other zones".to_owned(),
        x: Axis::decades("latency", "us"),
        y: Axis::nines("share of reads that took no longer"),
        series: reads
            .iter()
            .map(|Reads { kind, measured }| Series::new(kind.name(), percentiles(&measured.outcome.reads.latency)))
            .collect(),
        caption: vec![
            "The same requests at the same pace. A curve further left is better: reads of one zone meet a die that another one programs or \
             erases."
                .to_owned(),
        ],
    });
    run.checks = checks(amplification, flushes, reads);
    run.notes = vec![
        "Where the oldest segment ends first, a page FTL finds chunks that hold nothing. Where any may end, chunks that several writers \
         share are left in part, and it has to move the rest.",
        "Saved by flushes: blocks behind the last whole write unit of each zone, in both copies of the area's accounts: its data, its log, \
         padding.",
    ];
    run.total("s of CPU time", cpu.as_secs_f64(), 1);
    run
}

fn amplification_table(cases: &[Amplification]) -> Table {
    let mut table = Table::new(
        "amplification",
        &[
            ("drive", ""),
            ("ends", ""),
            ("throughput", "MiB/s"),
            ("programs", "a block"),
            ("write p99", "us"),
            ("erases", "chunks"),
            ("map", "KiB"),
        ],
    );
    for Amplification { kind, any, measured } in cases {
        let bytes = measured.outcome.writes.blocks as f64 * BLOCK_BYTES as f64;
        table.row(vec![
            Cell::Text(kind.name()),
            Cell::Text(if *any { "any segment" } else { "the oldest" }.to_owned()),
            Cell::Number(bytes / f64::from(1 << 20) / measured.outcome.seconds(), 0),
            Cell::Number(measured.statistics.waf(), 4),
            micros(measured.outcome.writes.latency.value_at_quantile(0.99)),
            Cell::Count(measured.statistics.resets),
            Cell::Number(measured.map_memory_bytes as f64 / 1024.0, 1),
        ]);
    }
    table
}

fn flush_table(cases: &[Flushes]) -> Table {
    let mut table = Table::new(
        "flushes",
        &[("flush after", "KiB of each zone"), ("programs", "a block"), ("throughput", "MiB/s"), ("flush p99", "us")],
    );
    for Flushes { interval, measured } in cases {
        let bytes = measured.outcome.writes.blocks as f64 * BLOCK_BYTES as f64;
        table.row(vec![
            Cell::Count(interval >> 10),
            Cell::Number(measured.statistics.waf(), 2),
            Cell::Number(bytes / f64::from(1 << 20) / measured.outcome.seconds(), 0),
            micros(measured.outcome.flushes.latency.value_at_quantile(0.99)),
        ]);
    }
    table
}

fn read_table(cases: &[Reads]) -> Table {
    let mut table = Table::new(
        "reads",
        &[
            ("zones", ""),
            ("requests", "1/s"),
            ("read p50", "us"),
            ("read p99", "us"),
            ("read p99.9", "us"),
            ("resets", "chunks"),
        ],
    );
    for Reads { kind, measured } in cases {
        let latency = &measured.outcome.reads.latency;
        table.row(vec![
            Cell::Text(kind.name()),
            Cell::Number(measured.outcome.iops().unwrap_or(0.0), 0),
            micros(latency.value_at_quantile(0.5)),
            micros(latency.value_at_quantile(0.99)),
            micros(latency.value_at_quantile(0.999)),
            Cell::Count(measured.statistics.resets),
        ]);
    }
    table
}

fn checks(amplification: &[Amplification], flushes: &[Flushes], reads: &[Reads]) -> Vec<Check> {
    let p99 = |reads: &Reads| reads.measured.outcome.reads.latency.value_at_quantile(0.99) as f64 / 1e6;
    let latencies: Vec<f64> = reads.iter().map(p99).collect();
    let waf = |zoned: bool, any: bool| {
        let case = amplification.iter().find(|case| (case.kind != Kind::Pages, case.any) == (zoned, any));
        case.expect("every case was run").measured.statistics.waf()
    };
    let costs: Vec<f64> = flushes.iter().map(|flushes| flushes.measured.statistics.waf()).collect();
    let words =
        flushes.iter().zip(&costs).map(|(flushes, cost)| format!("{cost:.2} at {}", ByteSize(flushes.interval)));
    let words = words.collect::<Vec<_>>().join(", ");
    vec![
        Check {
            claim: "Zones are written once for each block of the host, whichever of them ends.",
            check: "1.01 programs for a block of the host, or fewer, without flushes",
            holds: [false, true].iter().all(|any| waf(true, *any) <= AMPLIFICATION_MAX),
            measured: format!(
                "zones: {:.4} where the oldest ends, {:.4} where any does; page FTL: {:.3} and {:.3}",
                waf(true, false),
                waf(true, true),
                waf(false, false),
                waf(false, true)
            ),
            why: "A zone has chunks of its own, and ends as a whole.",
        },
        Check {
            claim: "A flush costs less the more is written between two of them.",
            check: "programs for a block of the host do not rise from one interval to the next, and fall by half from the first to the last",
            holds: costs.is_sorted_by(|before, after| before >= after) && costs[0] >= 2.0 * costs[costs.len() - 1],
            measured: words,
            why: "A flush saves at most a write unit of each zone, however much was written before it.",
        },
        Check {
            claim: "Zones on the dies of a group disturb reads of other zones less than zones on all dies.",
            check: "p99 of reads beside writes and resets, at the same pace: at most half",
            holds: 2.0 * latencies[1] <= latencies[2],
            measured: reads
                .iter()
                .zip(&latencies)
                .map(|(reads, p99)| format!("{}: {p99:.1} ms", reads.kind.name()))
                .collect::<Vec<_>>()
                .join("; "),
            why: "The writers of zones that share all dies are everywhere at once, and so is an erased zone; what they do to a die is no \
                  less for a narrow zone, but there are others where nobody is at work.",
        },
    ]
}
