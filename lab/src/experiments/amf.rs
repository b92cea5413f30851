//! A log on a log, and a log on flash: what a file system that is a log costs on a page FTL and on segments (Application-Managed Flash).
//!
//! ```text
//!   in place          application ─▶ blocks ────────────────────▶ page FTL: collects
//!   log on a page FTL application ─▶ log, which is cleaned ──────▶ page FTL: collects what the log has left behind
//!   log on segments   application ─▶ log, which is cleaned ──────▶ segments: nothing is ever moved
//! ```
//!
//! All three have the same flash and hold the same data; what the page FTL keeps for itself as over-provisioning the log on segments has as
//! free segments. Figures are for each block that the application writes: its cleaner's copies and its nodes are work.
//!
//! The first has the part of EXT4, the second that of F2FS, the third that of ALFS. They are models
//! ([`LogStructuredFs`](crate::loads::LogStructuredFs), and overwriting in place with the same popularity): no journal, no directories, no
//! checkpoints.

use super::{
    Assistant, Axis, Cell, Check, Claim, Experiment, ExperimentError, Figure, Options, Paper, Plot, Run, Series, Table,
};
use crate::load::{Access, Load, Operation};
use crate::load_spec::Model;
use crate::trace::TraceError;
use crate::trial::unwatched;
use crate::{Binding, BlockDrive, Limit, LoadSpec, Measured, Trial, WarmUp};
use openftl_blocks::{BlockFtl, Ftl};
use openftl_core::units::{ByteSize, Share};
use openftl_core::{BLOCK_BYTES, FrameForm, Nanos, Time, VirtualClock};
use openftl_media::{EmulatedDevice, Profile, Store, Timing};
use openftl_parts::target::Extent;
use openftl_parts::{BlockTarget, Config, chunks_per_pu};
use openftl_zones::sizing::zones_holding;
use openftl_zones::{Face, Layout, Limits, ZoneConfig, ZoneFtl};
use std::cell::RefCell;
use std::rc::Rc;

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "amf",
    question: "What does a log-structured file system save on segments, against a page FTL of the same flash?",
    paper: Some(Paper {
        title: "Application-Managed Flash",
        place: "slides 21 to 27",
        found: "Erases fall so that flash lives 6% longer than under EXT4 and 37% longer than under F2FS, both on a page FTL; the map \
                shrinks to a 128th, and performance grows by 80%.",
    }),
    claims: &["004-3", "004-5", "004-6", "004-7", "004-9"],
    in_virtual_time: true,
    memory_bytes: [2 << 30, 256 << 20],
    run,
};

const PROFILE: &str = "bluedbm";
const QUEUE_DEPTH: usize = 64;
/// What the page FTL has beyond its capacity, and how much of that is data: all in percent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Condition {
    over_provisioning: u64,
    data: u64,
}

const CONDITIONS: [Condition; 4] = [
    Condition { over_provisioning: 28, data: 70 },
    Condition { over_provisioning: 28, data: 85 },
    Condition { over_provisioning: 7, data: 70 },
    Condition { over_provisioning: 7, data: 85 },
];

/// The one that claims are about: neither is told of the paper's systems, and here the page FTL is best off.
const CLAIMED: Condition = CONDITIONS[0];

impl Condition {
    fn words(self) -> String {
        let Condition { over_provisioning, data } = self;
        format!("{data} % data, {over_provisioning} % over-provisioning")
    }
}

/// Segments that are written in part: five logs, and what may be left of others.
const OPEN_SEGMENTS: u32 = 6;

const ROLES: [Role; 3] = [Role::InPlace, Role::LogOnPages, Role::LogOnSegments];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Role {
    InPlace,
    LogOnPages,
    LogOnSegments,
}

impl Role {
    fn name(self) -> &'static str {
        match self {
            Role::InPlace => "in place, page FTL",
            Role::LogOnPages => "log, page FTL",
            Role::LogOnSegments => "log, segments",
        }
    }
}

struct Scale {
    groups: u32,
    pus_per_group: u32,
    /// Of the page FTL.
    capacity: ByteSize,
    warm_up: f64,
    drive_writes: f64,
}

const FULL: Scale = Scale { groups: 8, pus_per_group: 4, capacity: ByteSize(8 << 30), warm_up: 5.0, drive_writes: 1.0 };

const QUICK: Scale =
    Scale { groups: 2, pus_per_group: 1, capacity: ByteSize(192 << 20), warm_up: 2.0, drive_writes: 2.0 };

/// Blocks that a load has written, by kind.
type Written = Rc<RefCell<Vec<u64>>>;

/// A load whose writes are counted.
struct Counted {
    load: Box<dyn Load>,
    written: Written,
}

impl Counted {
    fn count(&self, step: Option<Access>) -> Option<Access> {
        if let Some(Access { operation: Operation::Write, blocks, hint, .. }) = step {
            self.written.borrow_mut()[usize::from(hint.kind)] += u64::from(blocks);
        }
        step
    }
}

impl Load for Counted {
    fn step(&mut self) -> Option<Access> {
        let step = self.load.step();
        self.count(step)
    }

    fn fill_step(&mut self) -> Option<Access> {
        let step = self.load.fill_step();
        self.count(step)
    }

    fn extents(&self) -> Vec<Extent> {
        self.load.extents()
    }

    fn due(&self) -> Option<Time> {
        self.load.due()
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

    fn failure(&self) -> Option<&TraceError> {
        self.load.failure()
    }
}

/// One system, so full.
struct Case {
    role: Role,
    condition: Condition,
    measured: Measured,
    /// Blocks that the application wrote, blocks of nodes, and blocks that the cleaner moved.
    application: u64,
    nodes: u64,
    cleaned: u64,
}

impl Case {
    fn per_block(&self, count: u64) -> f64 {
        count as f64 / self.application as f64
    }

    /// Of the file system, of the FTL.
    fn copies(&self) -> [f64; 2] {
        let moved: u64 = self.measured.statistics.groups.iter().map(|group| group.relocated).sum();
        [self.per_block(self.cleaned), self.per_block(moved)]
    }

    /// Chunks erased for a chunk that the application filled.
    fn erases(&self) -> f64 {
        self.per_block(self.measured.statistics.resets * u64::from(self.measured.geometry.blocks_per_chunk))
    }

    /// Blocks a second.
    fn speed(&self) -> f64 {
        self.application as f64 / self.measured.outcome.seconds()
    }
}

fn profile(scale: &Scale) -> Result<Profile, ExperimentError> {
    let mut profile = Profile::builtin(PROFILE)?;
    (profile.groups, profile.pus_per_group) = (scale.groups, scale.pus_per_group);
    Ok(profile)
}

fn run(options: Options, assistant: &mut dyn Assistant) -> Result<Run, ExperimentError> {
    let scale = if options.quick { QUICK } else { FULL };
    let began = assistant.cpu_time();
    let mut cases = Vec::new();
    for condition in CONDITIONS {
        for role in ROLES {
            let share = cases.len() as f64 / (CONDITIONS.len() * ROLES.len()) as f64;
            assistant.progress(share, &format!("{}, {}", role.name(), condition.words()));
            cases.push(case(&scale, role, condition, options.seed)?);
        }
    }
    let cpu = assistant.cpu_time() - began;
    assistant.progress(1.0, "done");
    told(&scale, &cases, cpu)
}

fn case(scale: &Scale, role: Role, condition: Condition, seed: u64) -> Result<Case, ExperimentError> {
    let profile = profile(scale)?;
    let blocks = scale.capacity.0 / BLOCK_BYTES as u64;
    let pages = Config {
        capacity_blocks: blocks,
        over_provisioning: Share::percent(condition.over_provisioning as u32),
        payload: FrameForm::Stamp,
        drive_id: seed,
        ..Config::default()
    };
    let shape = profile.geometry(profile.chunks_per_pu)?;
    let chunks = chunks_per_pu(&shape, &pages, Share::percent(0))?;
    let device = EmulatedDevice::new(profile, chunks, Store::Stamps, Timing::Modelled, seed)?;
    let mut clock = VirtualClock::default();
    let drive: BlockDrive<EmulatedDevice> = match role {
        Role::InPlace | Role::LogOnPages => BlockFtl::format(device, pages, &mut clock)?.into(),
        Role::LogOnSegments => {
            let limits = Limits { max_open: OPEN_SEGMENTS, max_active: OPEN_SEGMENTS };
            let segments = ZoneConfig {
                face: Face::Segments,
                width: shape.pus(),
                limits,
                zones: None,
                extension_bytes: 0,
                window_blocks: 0,
            };
            let config = Config { drive_id: seed, ..Config::default() };
            ZoneFtl::format(device, config, segments, &mut clock)?.into()
        }
    };
    let data = blocks * condition.data / 100;
    let spec = match role {
        Role::InPlace => LoadSpec {
            access: Some(ByteSize(BLOCK_BYTES as u64)),
            fill: Some(share(data, blocks)),
            ..LoadSpec::new(Model::HotCold { accesses: Share::percent(90), space: Share::percent(10) })
        },
        Role::LogOnPages | Role::LogOnSegments => LoadSpec {
            access: Some(ByteSize(BLOCK_BYTES as u64)),
            fill: Some(share(data, BlockTarget::blocks(&drive))),
            segment: drive.segment_blocks().map(|blocks| ByteSize(blocks * BLOCK_BYTES as u64)),
            ..LoadSpec::new(Model::LogStructuredFs)
        },
    };
    let mut no_trace = |_: &str| Err(std::io::ErrorKind::Unsupported.into());
    let load = spec.build(BlockTarget::blocks(&drive), drive.segment_blocks(), seed, &mut no_trace)?;
    let written: Written = Rc::new(RefCell::new(vec![0; load.kinds().len()]));
    let load = Box::new(Counted { load, written: written.clone() });
    let mut trial = Trial::new(drive, clock, load, QUEUE_DEPTH, Binding::None);
    trial.prepare(WarmUp::DriveWrites(scale.warm_up), &mut unwatched)?;
    let before = written.borrow().clone();
    let limit = Limit::BlocksWritten((blocks as f64 * scale.drive_writes) as u64);
    let measured = trial.measure(limit, Nanos::ZERO, &mut unwatched)?;
    let of: Vec<u64> = written.borrow().iter().zip(before).map(|(after, before)| after - before).collect();
    trial.read_back(&mut unwatched)?;
    let (application, nodes, cleaned) = match of[..] {
        // Hot, warm and cold data, nodes and cold nodes.
        [hot, warm, cold, nodes, cold_nodes] => (hot + warm, nodes, cold + cold_nodes),
        _ => (of.iter().sum(), 0, 0),
    };
    Ok(Case { role, condition, measured, application, nodes, cleaned })
}

fn share(part: u64, of: u64) -> Share {
    Share { millionths: (part as f64 / of as f64 * 1e6) as u32 }
}

fn case_of(cases: &[Case], role: Role, condition: Condition) -> &Case {
    cases.iter().find(|case| (case.role, case.condition) == (role, condition)).expect("every case was run")
}

fn told(scale: &Scale, cases: &[Case], cpu: Nanos) -> Result<Run, ExperimentError> {
    let mut run = Run::default();
    let geometry = cases[0].measured.geometry;
    run.parameter(
        "NAND",
        format_args!(
            "{PROFILE} with {} groups of {} dies, chunks of {}; the same flash for all three",
            scale.groups,
            scale.pus_per_group,
            ByteSize(u64::from(geometry.blocks_per_chunk) * BLOCK_BYTES as u64),
        ),
    );
    run.parameter("page FTL", format_args!("{} and its over-provisioning, greedy", scale.capacity));
    run.parameter(
        "segments",
        format_args!(
            "{} each, all that the flash has room for",
            ByteSize(u64::from(geometry.pus() * geometry.blocks_per_chunk) * BLOCK_BYTES as u64)
        ),
    );
    run.parameter(
        "application",
        format_args!(
            "overwrites blocks of 4 KiB, 90% of them in a tenth of its data; {QUEUE_DEPTH} requests at a time"
        ),
    );
    let mut table = Table::new(
        "amf",
        &[
            ("spare", "%"),
            ("data", "%"),
            ("system", ""),
            ("throughput", "blocks/s"),
            ("copies of the log", "a block"),
            ("copies of the FTL", "a block"),
            ("nodes", "a block"),
            ("programs", "a block"),
            ("erases", "a chunk"),
            ("write p99", "us"),
            ("map", "KiB"),
        ],
    );
    for case in cases {
        let Case { role, condition, measured, nodes, .. } = case;
        let [of_log, of_ftl] = case.copies();
        table.row(vec![
            Cell::Count(condition.over_provisioning),
            Cell::Count(condition.data),
            Cell::Text(role.name().to_owned()),
            Cell::Number(case.speed(), 0),
            Cell::Number(of_log, 2),
            Cell::Number(of_ftl, 2),
            Cell::Number(case.per_block(*nodes), 2),
            Cell::Number(case.per_block(measured.statistics.nand_blocks_written()), 2),
            Cell::Number(case.erases(), 2),
            Cell::Number(measured.outcome.writes.latency.value_at_quantile(0.99) as f64 / 1e3, 0),
            Cell::Number(measured.map_memory_bytes as f64 / 1024.0, 0),
        ]);
    }
    run.tables.push(table);
    run.plots.push(plot(cases));
    run.claims = claims(cases)?;
    run.checks = checks(cases);
    run.notes = vec![
        "Spare: what the page FTL has beyond its capacity; the log on segments has it as free segments. Data: of the page FTL's capacity. \
         Claims are judged where the page FTL is best off: 28 % spare, 70 % data.",
        "Of each block that the application writes; the log's copies are those of its cleaner. In place nothing is copied by the host, and \
         EXT4's journal is not modelled.",
        "Erases are those of chunks, for a chunk full of what the application wrote.",
    ];
    run.total("s of CPU time", cpu.as_secs_f64(), 1);
    Ok(run)
}

fn plot(cases: &[Case]) -> Plot {
    let series = ROLES.map(|role| {
        let points = CONDITIONS
            .iter()
            .zip(1..)
            .map(|(condition, at)| (f64::from(at), case_of(cases, role, *condition).erases()));
        Series::new(role.name(), points.collect())
    });
    let conditions = CONDITIONS.iter().zip(1..).map(|(condition, at)| format!("{at}: {}", condition.words()));
    Plot {
        name: "erases",
        title: "Erases, for what the application wrote".to_owned(),
        x: Axis::even("condition", ""),
        y: Axis::even("erases", "a chunk written by the application"),
        series: series.into(),
        caption: vec![format!(
            "Less is better: flash lives as much longer. {}.",
            conditions.collect::<Vec<_>>().join("; ")
        )],
    }
}

fn claims(cases: &[Case]) -> Result<Vec<Claim>, ExperimentError> {
    let [in_place, on_pages, on_segments] = ROLES.map(|role| case_of(cases, role, CLAIMED));
    let lifetime = |other: &Case| (other.erases() / on_segments.erases() - 1.0) * 100.0;
    let faster = |other: &Case| on_segments.speed() / other.speed();
    let memory = |bytes: u64| {
        let profile = Profile::builtin(PROFILE)?;
        let shape = profile.geometry(profile.chunks_per_pu)?;
        let count = zones_holding(&shape, shape.pus(), bytes / BLOCK_BYTES as u64);
        Ok::<f64, ExperimentError>(Layout::new(&shape, shape.pus(), count, 1).map_bytes() as f64)
    };
    let (half, whole) = (memory(512 << 30)?, memory(1 << 40)?);
    let page_map = (1_u64 << 40) as f64 / 1024.0;
    let mib = f64::from(1 << 20);
    Ok(vec![
        Claim::new(
            &["004-3"],
            "Random writes are faster with AMF, and slowest with F2FS on a page FTL.",
            vec![
                Figure::above("against F2FS's part", " times", 2, 1.0, "more", faster(on_pages)),
                Figure::above("against EXT4's part", " times", 2, 1.0, "more", faster(in_place)),
                Figure::above(
                    "EXT4's part against F2FS's",
                    " times",
                    2,
                    1.0,
                    "more",
                    in_place.speed() / on_pages.speed(),
                ),
            ],
            "The log on a page FTL pays for two cleaners. In place, the drive alone collects, and it does that with all of the spare \
             flash; a log on segments has that spare itself. The models leave out what EXT4 and F2FS write beside data.",
        ),
        Claim::new(
            &["004-5"],
            "Flash lives 6 % longer than under EXT4, and 37 % longer than under F2FS.",
            vec![
                Figure::effect("longer than EXT4's part", " %", 0, 6.0, 0.0, lifetime(in_place)),
                Figure::effect("longer than F2FS's part", " %", 0, 37.0, 0.0, lifetime(on_pages)),
            ],
            "Erases for what the application writes, by the same data on the same flash. How full the paper's systems were, and over \
             which programs the mean goes, is not told.",
        ),
        Claim {
            by_definition: true,
            ..Claim::new(
                &["004-6"],
                "A map of segments takes 4 MB for 512 GB, and 8 MB for 1 TB.",
                vec![
                    Figure::value("512 GiB", " MiB", 2, 4.0, 0.5, half / mib),
                    Figure::value("1 TiB", " MiB", 2, 8.0, 1.0, whole / mib),
                ],
                "Four bytes for a chunk of 128 blocks, and eight for a segment.",
            )
        },
        Claim::new(
            &["004-7"],
            "The controller needs 128 times less DRAM, and performance grows by 80 %.",
            vec![
                Figure::effect("less memory for the map", " times", 0, 128.0, 1.0, page_map / whole),
                Figure::effect("throughput against F2FS's part", " times", 2, 1.8, 1.0, faster(on_pages)),
            ],
            "The first is a property of the erase block. Against what the 80 % are is not told; here it is F2FS's part.",
        ),
        Claim::new(
            &["004-9"],
            "A log on a page FTL is managed twice.",
            vec![
                Figure::above("copies of the log, a block", "", 2, 0.0, "some", on_pages.copies()[0]),
                Figure::above("copies of the FTL below it, a block", "", 2, 0.0, "some", on_pages.copies()[1]),
            ],
            "Segments of the log and chunks of the FTL are not the same, so both have to move what the other could have left.",
        ),
    ])
}

fn checks(cases: &[Case]) -> Vec<Check> {
    let of = |role| CONDITIONS.map(|condition| case_of(cases, role, condition));
    let waf = of(Role::LogOnSegments).map(|case| case.measured.statistics.waf());
    let copied = of(Role::LogOnSegments).map(|case| case.copies()[1]);
    let erases = |role| of(role).map(|case| case.erases());
    let listed = |figures: [f64; CONDITIONS.len()], decimals: usize| {
        figures.map(|figure| format!("{figure:.decimals$}")).join(", ")
    };
    let (on_segments, on_pages) = (erases(Role::LogOnSegments), erases(Role::LogOnPages));
    vec![
        Check {
            claim: "The drive writes what its host writes, and moves nothing.",
            check: "programs for each block of the host under the log on segments: 1.02 or less; none is a copy",
            holds: waf.iter().all(|waf| *waf <= 1.02) && copied.iter().all(|copies| *copies == 0.0),
            measured: format!("{}; no copies", listed(waf, 4)),
            why: "A segment is erased when its host trims it, and has nothing in it then.",
        },
        Check {
            claim: "The log wears segments less than a page FTL, however full they are.",
            check: "erases of the log on segments are fewer than those of the log on the page FTL, in each condition",
            holds: on_segments.iter().zip(&on_pages).all(|(segments, pages)| segments < pages),
            measured: format!("segments: {}; page FTL: {}", listed(on_segments, 2), listed(on_pages, 2)),
            why: "The spare flash is in one place, where the cleaner has it, and nothing is copied twice.",
        },
    ]
}
