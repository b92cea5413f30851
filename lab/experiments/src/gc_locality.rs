//! How much of the host's load meets garbage collection: in one group at a time, as OX-Block does it, and everywhere at once.
//!
//! Three rules, on drives of 16 and 8 groups, with a host that takes its time and one that does not:
//!
//! | rule | groups collected at a time |
//! |---|---|
//! | one group | never more than one |
//! | as needed | one of eight while there is room, more as it runs short: the default |
//! | device-wide | all that are short of free chunks |
//!
//! The work of collection is the same wherever it is done, so over a long time its share of the commands need not differ.
//! What a rule decides is whom it meets while it is at work. That is what the paper's percentages are of.

use super::full_drive::{FullDrive, percentiles};
use super::{Assistant, Check, Claim, Experiment, ExperimentError, Figure, Options, Paper, Run};
use openftl_core::units::{ByteSize, Share};
use openftl_core::{BLOCK_BYTES, Nanos};
use openftl_lab::figures::{Axis, Cell, Plot, Series, Table};
use openftl_lab::load_spec::Model;
use openftl_lab::{Binding, LoadSpec, Measured};
use openftl_media::{Profile, Timing};
use openftl_parts::{CollectionScope, Config};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "gc-locality",
    question: "How much of the host's load is left in peace by garbage collection, one group at a time and device-wide?",
    paper: Some(Paper {
        title: "Open-Channel SSD (What is it Good For)",
        place: "section 4.3, Garbage Collection",
        found: "A group is marked and its victims are recycled, so 93.7% of reads and writes are not affected on 16 \
                channels, and 87.5% on 8.",
    }),
    claims: &["000-7", "000-8"],
    in_virtual_time: true,
    memory_bytes: [1 << 30, 128 << 20],
    run,
};

const PROFILE: &str = "cosmos";
const QUEUE_DEPTH: usize = 32;
const OVER_PROVISIONING: Share = Share::percent(20);
const READ_SHARE: Share = Share::percent(50);
const GROUPS: [u32; 2] = [16, 8];
/// A host that takes its time has this share of the requests that the saturated drive ends in a second.
const PEACEFUL: f64 = 0.25;
/// What a percentage may differ from that of the paper.
const TOLERANCE_PERCENT: f64 = 1.0;
/// How many times as many commands device-wide collection meets while it is at work, at least.
const DEVICE_WIDE_RATIO_MIN: f64 = 1.25;

/// How many times as often one rule may meet the host over the whole time as the other.
const OVERALL_RATIO_MAX: f64 = 1.5;

const RULES: [Rule; 3] = [
    Rule { name: "one group", collection: CollectionScope::Marked, marked_groups_max: Some(1) },
    Rule { name: "as needed", collection: CollectionScope::Marked, marked_groups_max: None },
    Rule { name: "device-wide", collection: CollectionScope::DeviceWide, marked_groups_max: None },
];
const ONE_GROUP: usize = 0;
const DEVICE_WIDE: usize = 2;

struct Rule {
    name: &'static str,
    collection: CollectionScope,
    marked_groups_max: Option<u32>,
}

struct Scale {
    blocks_per_chunk: u32,
    /// Of a group.
    group: ByteSize,
    warm_up: f64,
    drive_writes: f64,
}

const FULL: Scale = Scale { blocks_per_chunk: 256, group: ByteSize(128 << 20), warm_up: 3.0, drive_writes: 1.0 };

const QUICK: Scale = Scale { blocks_per_chunk: 64, group: ByteSize(16 << 20), warm_up: 2.0, drive_writes: 3.0 };

/// One drive, one rule, one load.
struct Case {
    groups: u32,
    rule: usize,
    saturated: bool,
    measured: Measured,
}

impl Case {
    /// Of the commands while any group was marked, the share that went to one that was not.
    fn in_peace(&self) -> f64 {
        1.0 - self.measured.statistics.encounters.share_while_collecting()
    }
}

fn run(options: Options, assistant: &mut dyn Assistant) -> Result<Run, ExperimentError> {
    let scale = if options.quick { QUICK } else { FULL };
    let runs = (2 * GROUPS.len() * RULES.len()) as f64;
    let began = assistant.cpu_time();
    let mut cases: Vec<Case> = Vec::new();
    for groups in GROUPS {
        // All rules get the load of the first: a quarter of what it can bear.
        let mut pace = Nanos::ZERO;
        for saturated in [true, false] {
            for (rule, Rule { name, .. }) in RULES.iter().enumerate() {
                let load = if saturated { "saturated" } else { "in peace" };
                assistant.progress(cases.len() as f64 / runs, &format!("{groups} groups, {name}, {load}"));
                let measured =
                    measured(&scale, groups, rule, if saturated { Nanos::ZERO } else { pace }, options.seed)?;
                if saturated && rule == ONE_GROUP {
                    let iops = measured.outcome.iops().unwrap_or(f64::INFINITY);
                    pace = Nanos((1e9 / (iops * PEACEFUL)) as u64);
                }
                cases.push(Case { groups, rule, saturated, measured });
            }
        }
    }
    let cpu = assistant.cpu_time() - began;
    assistant.progress(1.0, "done");
    Ok(told(&scale, &cases, cpu))
}

fn measured(scale: &Scale, groups: u32, rule: usize, pace: Nanos, seed: u64) -> Result<Measured, ExperimentError> {
    let mut profile = Profile::builtin(PROFILE)?;
    profile.groups = groups;
    profile.chip.blocks_per_chunk = scale.blocks_per_chunk;
    let Rule { collection, marked_groups_max, .. } = RULES[rule];
    let drive = FullDrive {
        profile,
        timing: Timing::Modelled,
        config: Config {
            capacity_blocks: u64::from(groups) * scale.group.0 / BLOCK_BYTES as u64,
            over_provisioning: OVER_PROVISIONING,
            collection,
            marked_groups_max,
            ..Config::default()
        },
        load: LoadSpec { reads: Some(READ_SHARE), ..LoadSpec::new(Model::Uniform) },
        binding: Binding::None,
        queue_depth: QUEUE_DEPTH,
        pace,
        warm_up: scale.warm_up,
        drive_writes: scale.drive_writes,
        seed,
    };
    drive.run()
}

fn told(scale: &Scale, cases: &[Case], cpu: Nanos) -> Run {
    let mut run = Run::default();
    let chunk = ByteSize(u64::from(scale.blocks_per_chunk) * BLOCK_BYTES as u64);
    run.parameter("NAND", format_args!("{PROFILE} with 16 and 8 groups of a die, chunks of {chunk}"));
    run.parameter("capacity", format_args!("{} a group, {OVER_PROVISIONING} over-provisioning", scale.group));
    run.parameter(
        "host",
        format_args!(
            "random requests of 4 KiB, {READ_SHARE} reads; saturated: {QUEUE_DEPTH} at a time; in peace: a quarter as many"
        ),
    );
    let mut table = Table::new(
        "locality",
        &[
            ("groups", ""),
            ("load", ""),
            ("rule", ""),
            ("requests", "1/s"),
            ("collecting", "% of commands"),
            ("then in peace", "%"),
            ("to marked groups", "% of all"),
            ("beside collection", "% of all"),
            ("read p50", "us"),
            ("read p99", "us"),
            ("read p99.9", "us"),
            ("write p99", "us"),
            ("WAF", ""),
        ],
    );
    for Case { groups, rule, saturated, measured } in cases {
        let (outcome, encounters) = (&measured.outcome, &measured.statistics.encounters);
        let percent = |share: f64| Cell::Number(share * 100.0, 2);
        let micros = |nanos: u64| Cell::Number(nanos as f64 / 1e3, 0);
        let (reads, writes) = (&outcome.reads.latency, &outcome.writes.latency);
        table.row(vec![
            Cell::Count(u64::from(*groups)),
            Cell::Text(if *saturated { "saturated" } else { "in peace" }.to_owned()),
            Cell::Text(RULES[*rule].name.to_owned()),
            Cell::Number(outcome.iops().unwrap_or(0.0), 0),
            percent(encounters.collecting as f64 / encounters.commands.max(1) as f64),
            percent(1.0 - encounters.share_while_collecting()),
            percent(encounters.marked_share()),
            percent(encounters.met_share()),
            micros(reads.value_at_quantile(0.5)),
            micros(reads.value_at_quantile(0.99)),
            micros(reads.value_at_quantile(0.999)),
            micros(writes.value_at_quantile(0.99)),
            Cell::Number(measured.statistics.waf(), 3),
        ]);
    }
    run.tables.push(table);
    run.plots.push(plot(cases));
    run.claims = vec![locality(cases)];
    run.checks = checks(cases);
    run.notes = vec![
        "Commands are reads of the host and programs of what it wrote, looked at when the device got them: whether any \
         group was marked then (collecting), whether theirs was, and whether a read, a program or a reset of collection \
         was under way in theirs.",
        "Resets wait until the log is durable, so some come after a group is no longer marked: they are in the last of \
         these shares, and not in the others.",
    ];
    run.total("s of CPU time", cpu.as_secs_f64(), 1);
    run
}

fn plot(cases: &[Case]) -> Plot {
    let peaceful = cases.iter().filter(|case| !case.saturated);
    Plot {
        name: "reads",
        title: "Latency of reads beside writes, a quarter of what saturates the drive".to_owned(),
        x: Axis::decades("latency", "us"),
        y: Axis::nines("share of reads that took no longer"),
        series: peaceful
            .map(|Case { groups, rule, measured, .. }| {
                let name = format!("{groups} groups, {}", RULES[*rule].name);
                Series::new(name, percentiles(&measured.outcome.reads.latency))
            })
            .collect(),
        caption: vec!["A curve further left is better. The paper has no latencies.".to_owned()],
    }
}

fn case(cases: &[Case], groups: u32, rule: usize, saturated: bool) -> &Case {
    let found = cases.iter().find(|case| (case.groups, case.rule, case.saturated) == (groups, rule, saturated));
    found.expect("every case was run")
}

/// What every rule left in peace, on both drives.
fn peace(cases: &[Case], saturated: bool) -> String {
    let words = GROUPS.map(|groups| {
        let shares: Vec<String> = RULES
            .iter()
            .enumerate()
            .map(|(rule, Rule { name, .. })| {
                format!("{name} {:.2}%", case(cases, groups, rule, saturated).in_peace() * 100.0)
            })
            .collect();
        format!("{groups} groups: {}", shares.join(", "))
    });
    words.join("; ")
}

fn locality(cases: &[Case]) -> Claim {
    let figures = GROUPS.map(|groups| {
        let paper = (1.0 - 1.0 / f64::from(groups)) * 100.0;
        let ours = case(cases, groups, ONE_GROUP, false).in_peace() * 100.0;
        Figure::value(format!("{groups} groups"), " %", 2, paper, TOLERANCE_PERCENT, ours)
    });
    Claim {
        by_definition: true,
        ..Claim::new(
            EXPERIMENT.claims,
            "While one group is collected, 93.75% of the reads and writes are left in peace on 16 groups, 87.5% on 8.",
            figures.into(),
            "One group of 16 or of 8 is marked, and reads of random blocks and programs that go round the groups find each as \
             often as any other: the share could only differ if they did not. Host at a quarter of saturation.",
        )
    }
}

fn checks(cases: &[Case]) -> Vec<Check> {
    let met = |groups, rule, saturated| 1.0 - case(cases, groups, rule, saturated).in_peace();
    let ratio = |groups| met(groups, DEVICE_WIDE, false) / met(groups, ONE_GROUP, false);
    let everywhere = Check {
        claim: "While device-wide collection is at work, it meets a larger part of the commands.",
        check: "1.25 times as many as in one group at a time, or more; host at a quarter of saturation",
        holds: GROUPS.iter().all(|&groups| ratio(groups) >= DEVICE_WIDE_RATIO_MIN),
        measured: format!("{:.1} times on 16 groups, {:.1} times on 8", ratio(16), ratio(8)),
        why: "Writes go round the groups, so that all of them run short of free chunks at about the same time.",
    };
    let all = |groups, rule| case(cases, groups, rule, false).measured.statistics.encounters.met_share() * 100.0;
    let p99 = |groups, rule| {
        case(cases, groups, rule, false).measured.outcome.reads.latency.value_at_quantile(0.99) as f64 / 1e6
    };
    let words = GROUPS.map(|groups| {
        format!(
            "{groups} groups: {:.2}% of all commands with one group, {:.2}% device-wide; p99 of reads {:.1} ms and {:.1} ms",
            all(groups, ONE_GROUP),
            all(groups, DEVICE_WIDE),
            p99(groups, ONE_GROUP),
            p99(groups, DEVICE_WIDE)
        )
    });
    let longer = Check {
        claim: "Over the whole time, the host meets collection about as often by either rule.",
        check: "of all commands at a quarter of saturation, those beside a command of collection differ by 1.5 times or less",
        holds: GROUPS.iter().all(|&groups| {
            let ratio = all(groups, ONE_GROUP) / all(groups, DEVICE_WIDE);
            (1.0 / OVERALL_RATIO_MAX..=OVERALL_RATIO_MAX).contains(&ratio)
        }),
        measured: words.join("; "),
        why: "The same blocks are moved, on one die after the other or on all at once. So the tail of the latency is no \
              shorter for it: locality decides who waits together, not how much is waited.",
    };
    let never_less = GROUPS.iter().all(|&groups| {
        (ONE_GROUP..=DEVICE_WIDE)
            .all(|rule| met(groups, rule, true) >= 1.0 / f64::from(groups) - TOLERANCE_PERCENT / 100.0)
    });
    let speed = |groups, rule| case(cases, groups, rule, true).measured.outcome.iops().unwrap_or(0.0);
    let saturated = Check {
        claim: "A host that saturates the drive is left in peace no more than that, by any rule.",
        check: "of the commands while a group is marked, the share in peace is at most that of one group, to within a point",
        holds: never_less,
        measured: format!(
            "{}; requests a second on 8 groups: one group {:.0}, as needed {:.0}, device-wide {:.0}",
            peace(cases, true),
            speed(8, 0),
            speed(8, 1),
            speed(8, 2)
        ),
        why: "Where room runs short, the default has more groups collected side by side; where a \
              limit of one leaves no other way to make room, it is broken.",
    };
    vec![everywhere, longer, saturated]
}
