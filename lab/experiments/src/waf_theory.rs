//! Write amplification of each victim policy over the over-provisioning, beside what theory says of it.
//!
//! Uniform random writes of 4 KiB on a full drive with instant media. Theory knows nothing of free chunks, open chunks, log
//! and checkpoints; so measured and computed are compared at the over-provisioning that garbage collection really had, and
//! only data and relocation count.

use super::full_drive::FullDrive;
use super::{Assistant, Check, Experiment, ExperimentError, Options, Run};
use openftl_core::units::{ByteSize, Share};
use openftl_core::{BLOCK_BYTES, Nanos};
use openftl_lab::figures::{Axis, Cell, Plot, Series, Table};
use openftl_lab::load_spec::Model;
use openftl_lab::theory;
use openftl_lab::{Binding, LoadSpec, Measured};
use openftl_media::{Profile, Timing};
use openftl_parts::{Config, VictimPolicy};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "waf-theory",
    question: "How near to theory is the write amplification of each victim policy?",
    paper: None,
    claims: &[],
    in_virtual_time: true,
    memory_bytes: [1 << 30, 128 << 20],
    run,
};

const PROFILE: &str = "cosmos";
const QUEUE_DEPTH: usize = 32;

const POLICIES: [VictimPolicy; 6] = [
    VictimPolicy::Greedy,
    VictimPolicy::CostBenefit,
    VictimPolicy::Windowed(Share::percent(25)),
    VictimPolicy::Choices(10),
    VictimPolicy::Choices(2),
    VictimPolicy::Fifo,
];

/// How far greedy may be from its theory.
const GREEDY_DEVIATION_MAX: f64 = 0.03;

struct Scale {
    blocks_per_chunk: u32,
    capacity: ByteSize,
    over_provisioning: &'static [u32],
    warm_up: f64,
    drive_writes: f64,
    /// How far the others may be from theirs.
    deviation_max: f64,
}

const FULL: Scale = Scale {
    blocks_per_chunk: 256,
    capacity: ByteSize(2 << 30),
    over_provisioning: &[7, 10, 15, 20, 28, 40],
    warm_up: 4.0,
    drive_writes: 2.0,
    deviation_max: 0.05,
};

const QUICK: Scale = Scale {
    blocks_per_chunk: 64,
    capacity: ByteSize(256 << 20),
    over_provisioning: &[10, 28],
    warm_up: 3.0,
    drive_writes: 1.0,
    deviation_max: 0.05,
};

struct Point {
    policy: VictimPolicy,
    over_provisioning: u32,
    effective: f64,
    measured: f64,
    theory: Option<f64>,
}

impl Point {
    fn deviation(&self) -> Option<f64> {
        self.theory.map(|theory| self.measured / theory - 1.0)
    }
}

/// What theory says of `policy`, where it has an answer.
fn theory_of(policy: VictimPolicy, over_provisioning: f64, pages: u32) -> Option<f64> {
    match policy {
        VictimPolicy::Greedy => Some(theory::greedy(over_provisioning, pages)),
        VictimPolicy::CostBenefit | VictimPolicy::MinimumDecliningCost => None,
        VictimPolicy::Fifo => Some(theory::fifo(over_provisioning)),
        VictimPolicy::Windowed(window) => Some(theory::windowed(over_provisioning, pages, window.as_f64())),
        VictimPolicy::Choices(choices) => Some(theory::choices(over_provisioning, pages, choices)),
    }
}

fn run(options: Options, assistant: &mut dyn Assistant) -> Result<Run, ExperimentError> {
    let scale = if options.quick { QUICK } else { FULL };
    let runs = POLICIES.len() * scale.over_provisioning.len();
    let began = assistant.cpu_time();
    let mut points = Vec::with_capacity(runs);
    for policy in POLICIES {
        for &over_provisioning in scale.over_provisioning {
            let doing = format!("{policy} at {over_provisioning}% over-provisioning");
            assistant.progress(points.len() as f64 / runs as f64, &doing);
            points.push(point(&scale, policy, over_provisioning, options.seed)?);
        }
    }
    let cpu = assistant.cpu_time() - began;
    assistant.progress(1.0, "done");
    Ok(told(&scale, &points, cpu))
}

fn point(scale: &Scale, policy: VictimPolicy, over_provisioning: u32, seed: u64) -> Result<Point, ExperimentError> {
    let mut profile = Profile::builtin(PROFILE)?;
    profile.chip.blocks_per_chunk = scale.blocks_per_chunk;
    let drive = FullDrive {
        profile,
        timing: Timing::Instant,
        config: Config {
            capacity_blocks: scale.capacity.0 / BLOCK_BYTES as u64,
            over_provisioning: Share::percent(over_provisioning),
            victim: policy,
            ..Config::default()
        },
        load: LoadSpec::new(Model::Uniform),
        binding: Binding::None,
        queue_depth: QUEUE_DEPTH,
        pace: Nanos::ZERO,
        warm_up: scale.warm_up,
        drive_writes: scale.drive_writes,
        seed,
    };
    let Measured { statistics, effective_over_provisioning: effective, geometry, .. } = drive.run()?;
    let theory = theory_of(policy, effective, geometry.blocks_per_chunk);
    Ok(Point { policy, over_provisioning, effective, measured: statistics.relocation_waf(), theory })
}

fn told(scale: &Scale, points: &[Point], cpu: Nanos) -> Run {
    let mut run = Run::default();
    let chunk = ByteSize(u64::from(scale.blocks_per_chunk) * BLOCK_BYTES as u64);
    run.parameter("NAND", format_args!("{PROFILE}: 8 groups of a die, instant, chunks of {chunk}"));
    run.parameter("capacity", scale.capacity);
    run.parameter(
        "host",
        format_args!(
            "uniform random writes of 4 KiB: {} capacities to settle, {} measured",
            scale.warm_up, scale.drive_writes
        ),
    );
    let mut table = Table::new(
        "waf",
        &[
            ("policy", ""),
            ("over-provisioning", "%"),
            ("effective", "%"),
            ("measured", ""),
            ("theory", ""),
            ("deviation", "%"),
        ],
    );
    let none = || Cell::Text("none".to_owned());
    for point in points {
        table.row(vec![
            Cell::Text(point.policy.to_string()),
            Cell::Count(u64::from(point.over_provisioning)),
            Cell::Number(point.effective * 100.0, 2),
            Cell::Number(point.measured, 3),
            point.theory.map_or_else(none, |theory| Cell::Number(theory, 3)),
            point.deviation().map_or_else(none, |deviation| Cell::Number(deviation * 100.0, 2)),
        ]);
    }
    run.tables.push(table);
    run.plots.push(plot(points));
    run.checks = checks(scale, points);
    run.notes = vec![
        "Compared at the effective over-provisioning: flash for data beyond the capacity, without the mean of what could \
         hold no data because it was free, being reset, or not yet written. Write amplification is that of data and \
         relocation alone.",
        "Victims are chosen within a group, and which group is collected by the same measure: the emptiest, the oldest, \
         or, of chance, the one whose chunks are the emptiest on average.",
    ];
    run.total("s of CPU time", cpu.as_secs_f64(), 1);
    run
}

/// What was measured, and the theory of it in the same colour.
fn plot(points: &[Point]) -> Plot {
    let of = |policy: VictimPolicy, of: fn(&Point) -> Option<f64>| -> Vec<(f64, f64)> {
        let points = points.iter().filter(|point| point.policy == policy);
        points.filter_map(|point| Some((point.effective * 100.0, of(point)?))).collect()
    };
    let measured = POLICIES.map(|policy| Series::new(policy.to_string(), of(policy, |point| Some(point.measured))));
    let theory = POLICIES.iter().enumerate().map(|(index, policy)| Series {
        theory_of: Some(index),
        ..Series::new(format!("{policy}, theory"), of(*policy, |point| point.theory))
    });
    Plot {
        name: "waf",
        title: "Write amplification by victim policy, measured and as theory has it".to_owned(),
        x: Axis::even("effective over-provisioning", "%"),
        y: Axis::even("WAF", ""),
        series: measured.into_iter().chain(theory.filter(|series| !series.points.is_empty())).collect(),
        caption: vec!["Uniform random writes of 4 KiB on a full drive; data and relocation alone.".to_owned()],
    }
}

/// The deviations of `policies` from theory: the greatest, and all of them in words.
fn deviations(points: &[Point], of: impl Fn(VictimPolicy) -> bool) -> (f64, String) {
    let mut worst = 0.0f64;
    let mut words = Vec::new();
    for policy in POLICIES.into_iter().filter(|policy| of(*policy)) {
        let all: Vec<f64> = points.iter().filter(|point| point.policy == policy).filter_map(Point::deviation).collect();
        let (low, high) =
            all.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), &one| (low.min(one), high.max(one)));
        worst = worst.max(low.abs()).max(high.abs());
        words.push(format!("{policy} {:+.2}% to {:+.2}%", low * 100.0, high * 100.0));
    }
    (worst, words.join(", "))
}

fn checks(scale: &Scale, points: &[Point]) -> Vec<Check> {
    let (worst, measured) = deviations(points, |policy| policy == VictimPolicy::Greedy);
    let greedy = Check {
        claim: "Greedy collection amplifies writes as the mean-field model says.",
        check: "within 3% of theory at every over-provisioning",
        holds: worst <= GREEDY_DEVIATION_MAX,
        measured,
        why: "Eight groups that are collected where the emptiest chunk is behave like one pool.",
    };
    let (worst, measured) =
        deviations(points, |policy| !matches!(policy, VictimPolicy::Greedy | VictimPolicy::CostBenefit));
    let others = Check {
        claim: "So do FIFO, a window, and choices drawn at random, each as its own model says.",
        check: "within 5% of theory at every over-provisioning",
        holds: worst <= scale.deviation_max,
        measured,
        why: "The group is chosen by the measure of the policy, so that eight queues are as good as one.",
    };
    let of = |policy: VictimPolicy| points.iter().filter(move |point| point.policy == policy);
    let order = [VictimPolicy::Greedy, VictimPolicy::Choices(10), VictimPolicy::Choices(2)];
    let is_ordered =
        order.windows(2).all(|pair| of(pair[0]).zip(of(pair[1])).all(|(few, many)| few.measured < many.measured));
    let words: Vec<String> = order
        .iter()
        .map(|policy| {
            let measured: Vec<String> = of(*policy).map(|point| format!("{:.2}", point.measured)).collect();
            format!("{policy} {}", measured.join(", "))
        })
        .collect();
    let ordered = Check {
        claim: "The more chunks a victim is chosen from, the fewer blocks have to move.",
        check: "at every over-provisioning greedy moves less than the best of ten, and that less than the best of two",
        holds: is_ordered,
        measured: words.join("; "),
        why: "Where all blocks are alike, the emptiest chunk is the best victim, and ten draws come close to it.",
    };
    vec![greedy, others, ordered]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn greedy_is_within_three_percent_of_theory() {
        let scale = Scale { blocks_per_chunk: 128, capacity: ByteSize(512 << 20), ..QUICK };
        for over_provisioning in [7, 20, 40] {
            let point = point(&scale, VictimPolicy::Greedy, over_provisioning, 3).unwrap();
            let deviation = point.deviation().unwrap();
            assert!(
                deviation.abs() <= 0.03,
                "{over_provisioning}%: {:.3} measured at {:.4} effective, {:+.2}% off",
                point.measured,
                point.effective,
                deviation * 100.0
            );
        }
    }
}
