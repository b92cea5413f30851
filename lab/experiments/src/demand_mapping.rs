//! How fast a drive is whose map is on media, and in memory only as far as a budget allows.
//!
//! The paper's drive has 32 % of the memory that its whole map takes, writes random places with a Pareto distribution, and reaches
//! 80 % of the speed. Here the same is done with budgets from 10 % on, by loads that write, that do both, and that only read:
//!
//! | load | places |
//! |---|---|
//! | uniform | any as likely as any other: the worst case of every cache |
//! | Pareto, scattered | four fifths of the accesses to a fifth of the places, which are scattered over the drive, as fio does it |
//! | Pareto, clustered | the same, and that fifth is the beginning of the drive |
//! | zipf 0.99 | steeper, in both forms |
//! | in order | one after the other; read only, as it was written: what the others read was written at random |
//!
//! Pareto 0.2 is a power law: the share of the k-th place falls as k^-0.861.
//!
//! The budget counts all that the map takes: directory, bitmap of valid blocks, changes and pages. Beside that are the schemes of
//! others (`baselines.rs`), and the hint about the journal of a file system (`journal.rs`).

mod baselines;
mod journal;

use self::baselines::Baselines;
use self::journal::Journal;
use super::full_drive::FullDrive;
use super::{Assistant, Check, Claim, Experiment, ExperimentError, Figure, Options, Paper, Run};
use openftl_core::units::{ByteSize, Share};
use openftl_core::{BLOCK_BYTES, Nanos};
use openftl_lab::figures::{Axis, Cell, Plot, Series, Table};
use openftl_lab::load::{Access, Load as Steps};
use openftl_lab::load_spec::Model;
use openftl_lab::trial::unwatched;
use openftl_lab::workload::{Pattern, Workload, WorkloadConfig};
use openftl_lab::{Binding, Limit, LoadSpec, Measured};
use openftl_media::{Profile, Timing};
use openftl_parts::map::cache::CachePolicy;
use openftl_parts::map::directory::PageSize;
use openftl_parts::map::memory::{MapBudget, MapMemory};
use openftl_parts::{Config, Purpose};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "demand-mapping",
    question: "How fast is a drive that has memory for a part of its map?",
    paper: Some(Paper {
        title: "Selective loading of the mapping table for Open-Channel SSDs",
        place: "section 4, figures 6a and 6b",
        found: "Random writes with a Pareto distribution reach 80% of the throughput with 32% of the memory; preferring the journal \
                of ext4 gains 10%.",
    }),
    claims: &["003-4", "003-5", "003-6"],
    in_virtual_time: true,
    memory_bytes: [1 << 30, 128 << 20],
    run,
};

const PROFILE: &str = "cosmos";
const QUEUE_DEPTH: usize = 64;
const OVER_PROVISIONING: Share = Share::percent(28);
/// The exponent of a power law by which a fifth of the places gets four fifths of the accesses: 1 - ln 0.8 / ln 0.2.
const PARETO: f64 = 0.861_353;
const ZIPF: f64 = 0.99;
const WRITES: Share = Share::percent(0);
const MIXED: Share = Share::percent(70);
const READS: Share = Share::percent(100);
/// Map pages programmed for each block that the host writes, with a small budget.
const PAGES_PER_WRITE_MAX: f64 = 0.12;
struct Scale {
    blocks_per_chunk: u32,
    capacity: ByteSize,
    warm_up: f64,
    /// Requests that are measured, as a share of the drive's blocks.
    requests: f64,
    /// The same of the database and its file system, which hardly write.
    journal_requests: f64,
    /// In percent of the whole map; 0: a map in memory.
    budgets: &'static [u32],
    /// The budget that is a small one.
    small: u32,
    /// The least speed of uniform writes with it, and with 32 %; and how that is said.
    speed_min: [f64; 2],
    writes_check: &'static str,
    /// What reads may be slower than the bound that their hits allow, and how that is said.
    bound_tolerance: f64,
    bound_check: &'static str,
    /// By how much the model may be wrong about our own writes, and how that is said.
    model_tolerance: f64,
    model_check: &'static str,
    /// What a hint may cost, in percent, and how that is said.
    hint_cost_max: f64,
    hint_check: &'static str,
}

const FULL: Scale = Scale {
    blocks_per_chunk: 256,
    capacity: ByteSize(8 << 30),
    warm_up: 1.5,
    requests: 0.5,
    journal_requests: 0.5,
    budgets: &[0, 10, 16, 32, 64, 100],
    small: 10,
    speed_min: [0.95, 0.98],
    writes_check: "95% of the speed at 10%, 98% at 32%",
    bound_tolerance: 0.03,
    bound_check: "at 10%, within 3% of one over one and the misses, or faster",
    model_tolerance: 0.1,
    model_check: "within 10% of what was measured of our own writes",
    hint_cost_max: 1.0,
    hint_check: "1% of the speed at most",
};

const QUICK: Scale = Scale {
    blocks_per_chunk: 64,
    capacity: ByteSize(256 << 20),
    warm_up: 0.75,
    requests: 0.25,
    journal_requests: 1.0,
    // Of a small map the least that is kept of changes is much.
    budgets: &[0, 16, 32, 100],
    small: 16,
    speed_min: [0.88, 0.88],
    writes_check: "88% of the speed at 16% and at 32%",
    // Few chunks have all map pages.
    bound_tolerance: 0.5,
    bound_check: "at 16%, half of one over one and the misses, or faster",
    model_tolerance: 0.25,
    model_check: "within 25% of what was measured of our own writes",
    // One pinned page is a tenth of so small a cache.
    hint_cost_max: 5.0,
    hint_check: "5% of the speed at most",
};

/// What the host does.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Load {
    name: &'static str,
    model: Places,
    reads: Share,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Places {
    Uniform,
    InOrder,
    PowerLaw { theta: f64, clustered: bool },
}

const fn load(name: &'static str, model: Places, reads: Share) -> Load {
    Load { name, model, reads }
}

impl Load {
    fn is_only_reads(&self) -> bool {
        self.reads == READS
    }

    fn is_only_writes(&self) -> bool {
        self.reads == WRITES
    }
}

const SCATTERED: Places = Places::PowerLaw { theta: PARETO, clustered: false };
const CLUSTERED: Places = Places::PowerLaw { theta: PARETO, clustered: true };
const ZIPF_CLUSTERED: Places = Places::PowerLaw { theta: ZIPF, clustered: true };

const LOADS: [Load; 9] = [
    load("writes, uniform", Places::Uniform, WRITES),
    load("writes, Pareto scattered", SCATTERED, WRITES),
    load("writes, Pareto clustered", CLUSTERED, WRITES),
    load("writes, zipf scattered", Places::PowerLaw { theta: ZIPF, clustered: false }, WRITES),
    load("70% reads, Pareto scattered", SCATTERED, MIXED),
    load("70% reads, Pareto clustered", CLUSTERED, MIXED),
    load("reads, uniform", Places::Uniform, READS),
    load("reads, zipf clustered", ZIPF_CLUSTERED, READS),
    load("reads, in order", Places::InOrder, READS),
];

struct Case {
    load: usize,
    budget: u32,
    measured: Measured,
}

impl Case {
    fn speed(&self) -> f64 {
        self.measured.outcome.iops().unwrap_or(0.0)
    }

    /// Map pages programmed for each block that the host wrote, both copies.
    fn pages_per_write(&self) -> f64 {
        let statistics = &self.measured.statistics;
        statistics.programmed_for(Purpose::Map) as f64 / statistics.host_blocks_written.max(1) as f64
    }

    /// Map pages read for each request.
    fn reads_per_request(&self) -> f64 {
        self.measured.statistics.map_pages_read as f64 / self.measured.outcome.requests().max(1) as f64
    }
}

/// All cases.
struct Cases(Vec<Case>);

impl Cases {
    fn of(&self, load: &str, budget: u32) -> &Case {
        let found = self.0.iter().find(|case| (LOADS[case.load].name, case.budget) == (load, budget));
        found.expect("every case was run")
    }

    /// The speed as a share of that with the whole map in memory.
    fn share(&self, load: &str, budget: u32) -> f64 {
        self.of(load, budget).speed() / self.of(load, 0).speed()
    }
}

fn run(options: Options, assistant: &mut dyn Assistant) -> Result<Run, ExperimentError> {
    let scale = if options.quick { QUICK } else { FULL };
    let profile = Profile::builtin(PROFILE)?;
    let runs = (LOADS.len() * scale.budgets.len() + journal::RUNS) as f64;
    let began = assistant.cpu_time();
    let mut cases = Vec::new();
    for (load, Load { name, .. }) in LOADS.iter().enumerate() {
        for &budget in scale.budgets {
            let memory = if budget == 0 { "whole map".to_owned() } else { format!("{budget}% of the map") };
            assistant.progress(cases.len() as f64 / runs, &format!("{name}, {memory}"));
            cases.push(Case { load, budget, measured: measured(&scale, load, budget, options.seed)? });
        }
    }
    let cases = Cases(cases);
    let mut all = Vec::new();
    for (load, Load { name, .. }) in LOADS.iter().enumerate() {
        all.push(Baselines::of(&scale, load, cases.of(name, 0), options.seed, &profile)?);
    }
    let done = cases.0.len();
    let journal = Journal::of(&scale, options.seed, &profile, |run, hint| {
        assistant.progress((done + run) as f64 / runs, &format!("journal, hint: {hint}"));
    })?;
    let cpu = assistant.cpu_time() - began;
    assistant.progress(1.0, "done");
    Ok(told(&scale, &cases, &all, &journal, cpu))
}

/// Capacities that are written before a load is measured, and requests that are measured.
fn lengths(scale: &Scale, load: usize) -> (f64, u64) {
    let Load { model: places, reads, .. } = LOADS[load];
    // As many requests, whatever part of them writes.
    let warm_up = match reads {
        _ if places == Places::InOrder => 0.0,
        MIXED => scale.warm_up * (1.0 - MIXED.as_f64()),
        _ => scale.warm_up,
    };
    let capacity_blocks = scale.capacity.0 / BLOCK_BYTES as u64;
    (warm_up, (capacity_blocks as f64 * scale.requests) as u64)
}

fn spec_of(load: usize) -> LoadSpec {
    let Load { model: places, reads, .. } = LOADS[load];
    let (model, clustered) = match places {
        Places::Uniform => (Model::Uniform, false),
        Places::InOrder => (Model::Sequential, false),
        Places::PowerLaw { theta, clustered } => (Model::Zipf { theta }, clustered),
    };
    LoadSpec { reads: Some(reads), clustered, ..LoadSpec::new(model) }
}

/// What is read at random was written at random before.
fn with_writes_before(scale: &Scale, load: usize, seed: u64, steps: Box<dyn Steps>) -> Box<dyn Steps> {
    let Load { model: places, reads, .. } = LOADS[load];
    if reads != READS || places == Places::InOrder {
        return steps;
    }
    let drive_blocks = scale.capacity.0 / BLOCK_BYTES as u64;
    let writes =
        WorkloadConfig { pattern: Pattern::Uniform, read_share: WRITES, access_blocks: 1, drive_blocks, seed: !seed };
    let left = (drive_blocks as f64 * scale.warm_up) as u64;
    Box::new(WrittenThenRead { writes: Workload::new(&writes), left, reads: steps })
}

/// The load, as the drive gets it.
fn load_of(scale: &Scale, load: usize, seed: u64) -> Result<Box<dyn Steps>, ExperimentError> {
    let capacity_blocks = scale.capacity.0 / BLOCK_BYTES as u64;
    let no_file = &mut |_: &str| Err(std::io::ErrorKind::Unsupported.into());
    let steps = spec_of(load).build(capacity_blocks, None, seed, no_file)?;
    Ok(with_writes_before(scale, load, seed, steps))
}

/// So many percent of the map.
fn map_memory(budget: u32) -> MapMemory {
    MapMemory {
        budget: MapBudget::Share(Share::percent(budget)),
        policy: CachePolicy::default(),
        page: PageSize::WHOLE,
    }
}

fn measured(scale: &Scale, load: usize, budget: u32, seed: u64) -> Result<Measured, ExperimentError> {
    let mut profile = Profile::builtin(PROFILE)?;
    profile.chip.blocks_per_chunk = scale.blocks_per_chunk;
    let (warm_up, requests) = lengths(scale, load);
    let drive = FullDrive {
        profile,
        timing: Timing::Modelled,
        config: Config {
            capacity_blocks: scale.capacity.0 / BLOCK_BYTES as u64,
            over_provisioning: OVER_PROVISIONING,
            map_memory: (budget > 0).then(|| map_memory(budget)),
            ..Config::default()
        },
        load: spec_of(load),
        binding: Binding::None,
        queue_depth: QUEUE_DEPTH,
        pace: Nanos::ZERO,
        warm_up,
        drive_writes: 0.0,
        seed,
    };
    let mut trial = drive.settled(|steps| with_writes_before(scale, load, seed, steps))?;
    let requests = Limit::Requests(requests);
    if LOADS[load].is_only_reads() {
        // The cache has what the fill left, and is to have what the load wants.
        trial.measure(requests, Nanos::ZERO, &mut unwatched)?;
    }
    Ok(trial.measure(requests, Nanos::ZERO, &mut unwatched)?)
}

/// Writes random blocks, so that what is read then is nowhere in order.
struct WrittenThenRead {
    writes: Workload,
    left: u64,
    reads: Box<dyn Steps>,
}

impl Steps for WrittenThenRead {
    fn step(&mut self) -> Option<Access> {
        if self.left == 0 {
            return self.reads.step();
        }
        self.left -= 1;
        self.writes.step()
    }

    fn fill_step(&mut self) -> Option<Access> {
        self.writes.fill_step()
    }

    fn kinds(&self) -> Vec<String> {
        self.reads.kinds()
    }

    fn live_blocks_max(&self) -> u64 {
        self.reads.live_blocks_max()
    }

    fn access_blocks_max(&self) -> u32 {
        self.reads.access_blocks_max()
    }
}

fn told(scale: &Scale, cases: &Cases, all: &[Baselines], journal: &Journal, cpu: Nanos) -> Run {
    let mut run = Run::default();
    let chunk = ByteSize(u64::from(scale.blocks_per_chunk) * BLOCK_BYTES as u64);
    run.parameter("NAND", format_args!("{PROFILE}: 8 groups of a die, chunks of {chunk}"));
    run.parameter("capacity", format_args!("{}, {OVER_PROVISIONING} over-provisioning", scale.capacity));
    run.parameter("whole map", ByteSize(scale.capacity.0 / BLOCK_BYTES as u64 * 4));
    run.parameter("host", format_args!("requests of 4 KiB, {QUEUE_DEPTH} at a time"));
    let mut table = Table::new(
        "speed",
        &[
            ("load", ""),
            ("memory", "% of the map"),
            ("in use", "KiB"),
            ("requests", "1/s"),
            ("speed", "% of the whole map's"),
            ("map pages programmed", "a block written"),
            ("map pages read", "a request"),
            ("changes", "a page"),
            ("WAF", ""),
            ("read p99", "us"),
        ],
    );
    for case in &cases.0 {
        let (statistics, outcome) = (&case.measured.statistics, &case.measured.outcome);
        let name = LOADS[case.load].name;
        let merged = statistics.map_changes_merged as f64 / statistics.map_pages_written.max(1) as f64;
        table.row(vec![
            Cell::Text(name.to_owned()),
            if case.budget == 0 { Cell::Text("in memory".to_owned()) } else { Cell::Count(case.budget.into()) },
            Cell::Number(case.measured.map_memory_bytes as f64 / 1024.0, 1),
            Cell::Number(case.speed(), 0),
            Cell::Number(cases.share(name, case.budget) * 100.0, 1),
            Cell::Number(case.pages_per_write(), 3),
            Cell::Number(case.reads_per_request(), 3),
            Cell::Number(merged, 1),
            Cell::Number(if statistics.host_blocks_written > 0 { statistics.waf() } else { 0.0 }, 3),
            Cell::Number(outcome.reads.latency.value_at_quantile(0.99) as f64 / 1e3, 0),
        ]);
    }
    run.tables = vec![table, baselines::table(all, cases), journal.table()];
    run.plots = vec![plot(scale, cases), baselines::plot(all, cases, PARETO_WRITES[0]), journal.plot()];
    run.claims = claims(scale, cases);
    run.claims.insert(1, journal.claim());
    run.checks = checks(scale, cases);
    run.checks.extend(baselines::checks(scale, all, cases));
    run.checks.extend(journal.checks(scale));
    run.notes = vec![
        "Memory is all that the map takes: directory, a bit for each block of flash, changes that are not in map pages yet, and map \
         pages. A write loads no map page; its change waits until the page is merged with it and others.",
        "fio scatters its Pareto: with regions of 4 MiB the hottest fifth of them gets 44% of the accesses. The clustered form is \
         what a cache of large mapping blocks needs; here both are told.",
        "The other schemes are a model: their map traffic follows from the load, and their speed from the time that dies spend on it. It \
         favours them: one copy of each map page, no collection of map chunks, no waiting.",
        "Reads are measured after as many of the same load, so that the cache has what it wants, and not what the fill left.",
    ];
    run.total("s of CPU time", cpu.as_secs_f64(), 1);
    run
}

fn plot(scale: &Scale, cases: &Cases) -> Plot {
    let series = LOADS.iter().map(|Load { name, .. }| {
        let points = scale.budgets.iter().filter(|budget| **budget > 0);
        Series::new(*name, points.map(|budget| (f64::from(*budget), cases.share(name, *budget) * 100.0)).collect())
    });
    Plot {
        name: "speed",
        title: "Speed with a part of the map in memory".to_owned(),
        x: Axis::even("memory for the map", "%"),
        y: Axis::even("of the speed with the whole map in memory", "%"),
        series: series.collect(),
        caption: vec!["The paper's only point is 80% at 32%, for random writes with a Pareto distribution.".to_owned()],
    }
}

const PARETO_WRITES: [&str; 2] = [LOADS[1].name, LOADS[2].name];

fn claims(scale: &Scale, cases: &Cases) -> Vec<Claim> {
    let small = scale.small;
    let at_32 = PARETO_WRITES.map(|name| {
        let ours = cases.share(name, 32) * 100.0;
        Figure::above(format!("{name}, 32%"), " %", 1, 80.0, "80 %", ours)
    });
    let more = PARETO_WRITES.map(|name| {
        let (least, most) = (cases.of(name, small).speed(), cases.of(name, 100).speed());
        Figure::above(format!("{name}, 100% over {small}%"), " times", 3, 1.0, "more", most / least)
    });
    vec![
        Claim::new(
            &["003-4"],
            "Random writes with a Pareto distribution reach 80% of the throughput with 32% of the memory.",
            at_32.into(),
            "A write needs no map page here: what is slower is the programming of merged pages, and not misses of a cache.",
        ),
        Claim::new(
            &["003-6"],
            "The more memory the map has, the higher the throughput.",
            more.into(),
            "More changes fit, so that each merged page takes more of them in.",
        ),
    ]
}

fn checks(scale: &Scale, cases: &Cases) -> Vec<Check> {
    let small = scale.small;
    let percent = |share: f64| format!("{:.1}%", share * 100.0);
    let uniform = LOADS[0].name;
    let [at_small, at_32] = [small, 32].map(|budget| cases.share(uniform, budget));
    let writes = Check {
        claim: "Uniform writes, the worst case, are nearly as fast with little of the map's memory.",
        check: scale.writes_check,
        holds: at_small >= scale.speed_min[0] && at_32 >= scale.speed_min[1],
        measured: format!("{} at {small}%, {} at 32%", percent(at_small), percent(at_32)),
        why: "Changes of many writes are merged into a page at once, and several batches of pages are on their way at a time.",
    };
    let pages = cases.of(uniform, small).pages_per_write();
    let wear = Check {
        claim: "Map pages wear the flash little.",
        check: "with little memory, 0.12 programmed for each block written, uniform, or fewer; both copies counted",
        holds: pages <= PAGES_PER_WRITE_MAX,
        measured: format!(
            "{pages:.3} uniform, {:.3} zipf scattered, {:.3} Pareto clustered",
            cases.of(LOADS[3].name, small).pages_per_write(),
            cases.of(PARETO_WRITES[1], small).pages_per_write()
        ),
        why: "The fullest pages are merged first.",
    };
    // A read that finds no page takes one read of flash more.
    let of_bound = |name: &str| {
        let case = cases.of(name, small);
        cases.share(name, small) * (1.0 + case.reads_per_request())
    };
    let reading = [LOADS[6].name, LOADS[7].name];
    let bound = Check {
        claim: "Reads are as fast as their hits allow.",
        check: scale.bound_check,
        holds: reading.iter().all(|name| of_bound(name) >= 1.0 - scale.bound_tolerance),
        measured: reading
            .map(|name| {
                let misses = cases.of(name, small).reads_per_request();
                format!(
                    "{name}: {} with {misses:.3} misses, {:.2} of the bound",
                    percent(cases.share(name, small)),
                    of_bound(name)
                )
            })
            .join("; "),
        why: "Map reads go to either copy, as many at a time as there are requests, and a request waits for its own alone.",
    };
    let in_order = cases.share(LOADS[8].name, small);
    let order = Check {
        claim: "What was written in order is read at full speed.",
        check: "98% of the speed with little memory",
        holds: in_order >= 0.98,
        measured: percent(in_order),
        why: "A page that was written in order takes a few bytes for each parallel unit.",
    };
    vec![writes, wear, bound, order]
}
