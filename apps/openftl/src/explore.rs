//! `openftl explore`: tries histories of drives, each drawn from a seed, until one fails or enough were sound.
//!
//! ```text
//!   seeds ──▶ jobs, one thread each ──▶ tally
//!                 │ a history fails
//!                 └──▶ shrunk ──▶ steps, and the command that plays them again
//! ```

use crate::cli;
use crate::failure::Failure;
use crate::measure::show;
use crate::terminal::{Ink, Live, Palette, say};
use openftl_core::TraceHash;
use openftl_lab::picture::thousands;
use openftl_sim::caught::Failure as Found;
use openftl_sim::step::{parse_steps, write_steps};
use openftl_sim::{Run, Tally, explore, shrink};
use serde::Serialize;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Runs unless the command says otherwise.
const RUNS_DEFAULT: u64 = 1_000;

/// How often progress is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// What was explored, for scripts.
#[derive(Serialize)]
struct Report {
    first_seed: u64,
    runs: u64,
    jobs: usize,
    wall_seconds: f64,
    histories_per_minute: f64,
    steps: u64,
    events: u64,
    power_cuts: u64,
    power_cuts_during_recovery: u64,
    clean_restarts: u64,
    drives_worn_out: u64,
    faults: BTreeMap<&'static str, u64>,
    /// Of all runs in the order of their seeds; null if a run failed or the time decided how many there were.
    trace_hash: Option<String>,
    failure: Option<Failed>,
}

/// A run that failed, and the short one that it was shrunk to.
#[derive(Serialize)]
struct Failed {
    seed: u64,
    setting: String,
    failure: Found,
    steps: usize,
    shrunk_to: String,
    shrunk_steps: usize,
    shrunk_failure: Found,
    attempts: u32,
    command: String,
}

/// What the jobs share.
struct Shared {
    next: AtomicU64,
    stop: Arc<AtomicBool>,
    done: Mutex<Done>,
}

#[derive(Default)]
struct Done {
    tally: Tally,
    traces: BTreeMap<u64, TraceHash>,
    /// The run with the lowest seed of those that failed, and how.
    failure: Option<(Run, Found)>,
}

pub fn run(arguments: &cli::Explore) -> Result<(), Failure> {
    if let Some(steps) = &arguments.steps {
        return replay(arguments, steps);
    }
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).map_err(Failure::failed)?;
    }
    let jobs = arguments.jobs.map_or_else(|| std::thread::available_parallelism().map_or(1, usize::from), usize::from);
    let limit = match (arguments.runs, arguments.minutes) {
        (Some(runs), _) => Limit::Runs(runs),
        (None, Some(minutes)) => Limit::Time(Duration::from_secs_f64(minutes * 60.0)),
        (None, None) => Limit::Runs(RUNS_DEFAULT),
    };
    let started = Instant::now();
    let shared = Shared { next: AtomicU64::new(0), stop, done: Mutex::default() };
    let mut live = if arguments.json { Live::silent() } else { Live::new(true) };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..jobs).map(|_| scope.spawn(|| work(&shared, arguments.seed, limit))).collect();
        while !workers.iter().all(std::thread::ScopedJoinHandle::is_finished) {
            std::thread::sleep(LOOK_EVERY);
            if let Limit::Time(time) = limit
                && started.elapsed() >= time
            {
                shared.stop.store(true, Ordering::Relaxed);
            }
            if live.is_due() {
                progress(&mut live, &shared, limit, started);
            }
        }
    });
    let Done { tally, traces, failure } = shared.done.into_inner().expect("no job died");
    let wall_seconds = started.elapsed().as_secs_f64();
    let repeatable = matches!(limit, Limit::Runs(runs) if runs == tally.runs) && failure.is_none();
    let failure = failure.map(|(run, found)| {
        if live.is_due() {
            live.show(&[format!("a history of {} steps failed; it is being shrunk", run.steps.len())]);
        }
        shrunk(&run, found)
    });
    live.clear();
    let report = Report {
        first_seed: arguments.seed,
        runs: tally.runs,
        jobs,
        wall_seconds,
        histories_per_minute: tally.runs as f64 / wall_seconds.max(1e-9) * 60.0,
        steps: tally.steps,
        events: tally.events,
        power_cuts: tally.cuts,
        power_cuts_during_recovery: tally.recovery_cuts,
        clean_restarts: tally.restarts,
        drives_worn_out: tally.worn_out,
        faults: tally.faults.iter().map(|(kind, count)| (kind.word(), *count)).collect(),
        trace_hash: repeatable.then(|| hash(&traces).to_string()),
        failure,
    };
    say(&if arguments.json { crate::json(&report)? } else { page(&report, Palette::of_stdout()) })?;
    match &report.failure {
        None => Ok(()),
        Some(failed) => Err(defect(failed)),
    }
}

/// How much is explored.
#[derive(Clone, Copy)]
enum Limit {
    Runs(u64),
    Time(Duration),
}

/// One job: run after run, until there are enough, or one failed anywhere.
fn work(shared: &Shared, first_seed: u64, limit: Limit) {
    while !shared.stop.load(Ordering::Relaxed) {
        let number = shared.next.fetch_add(1, Ordering::Relaxed);
        if matches!(limit, Limit::Runs(runs) if number >= runs) {
            return;
        }
        let run = Run::draw(first_seed.wrapping_add(number));
        let explored = explore(&run);
        let mut done = shared.done.lock().expect("no job dies with it");
        done.tally += &explored.tally;
        match explored.failure {
            None => _ = done.traces.insert(run.seed, explored.trace),
            Some(failure) => {
                shared.stop.store(true, Ordering::Relaxed);
                if done.failure.as_ref().is_none_or(|(other, _)| run.seed < other.seed) {
                    done.failure = Some((run, failure));
                }
            }
        }
    }
}

fn hash(traces: &BTreeMap<u64, TraceHash>) -> TraceHash {
    let mut hash = TraceHash::START;
    for (seed, trace) in traces {
        hash.add(*seed);
        hash.add(trace.0);
    }
    hash
}

fn progress(live: &mut Live, shared: &Shared, limit: Limit, started: Instant) {
    let done = shared.done.lock().expect("no job dies with it");
    let Tally { runs, cuts, recovery_cuts, .. } = done.tally;
    let elapsed = started.elapsed().as_secs_f64();
    let share = match limit {
        Limit::Runs(all) => runs as f64 / all.max(1) as f64,
        Limit::Time(time) => elapsed / time.as_secs_f64().max(1e-9),
    };
    let rest = format!(
        "{} histories, {} a minute, {} power cuts, {} during recovery, {} faults",
        thousands(runs),
        thousands((runs as f64 / elapsed.max(1e-9) * 60.0) as u64),
        thousands(cuts),
        thousands(recovery_cuts),
        thousands(done.tally.faults())
    );
    show(live, "explore", share, &rest);
}

fn shrunk(run: &Run, failure: Found) -> Failed {
    let shrunk = shrink(run, &failure);
    let steps = write_steps(&shrunk.run.steps);
    Failed {
        seed: run.seed,
        setting: run.setting.to_string(),
        failure,
        steps: run.steps.len(),
        command: format!("openftl explore --seed {} --steps '{steps}'", run.seed),
        shrunk_to: steps,
        shrunk_steps: shrunk.run.steps.len(),
        shrunk_failure: shrunk.failure,
        attempts: shrunk.attempts,
    }
}

fn defect(failed: &Failed) -> Failure {
    Failure::failed(format_args!("a history of seed {} failed: {}", failed.seed, failed.shrunk_failure))
        .fix(format_args!("this is a defect of the FTL, or of what judges it; play it again: {}", failed.command))
}

/// Plays the steps that a failure was shrunk to.
fn replay(arguments: &cli::Explore, steps: &str) -> Result<(), Failure> {
    let bad = |error: &dyn std::fmt::Display| {
        Failure::bad_input(format_args!("--steps: {error}"))
            .fix("give the steps as `openftl explore` printed them, with the seed that it printed")
    };
    let steps = parse_steps(steps).map_err(|error| bad(&error))?;
    let run = Run::with_steps(arguments.seed, steps).map_err(|error| bad(&error))?;
    let explored = explore(&run);
    let palette = Palette::of_stdout();
    let trace = explored.trace.to_string();
    if arguments.json {
        let outcome = serde_json::json!({
            "seed": run.seed, "setting": run.setting.to_string(), "steps": run.steps.len(), "trace_hash": trace,
            "failure": explored.failure,
        });
        say(&crate::json(&outcome)?)?;
    } else if explored.failure.is_none() {
        let sound = palette.paint(Ink::Good, "sound");
        say(&format!("{}\n{} steps: {sound}, trace {trace}", run.setting, run.steps.len()))?;
    } else {
        say(&format!("{}\n{}", run.setting, write_steps(&run.steps)))?;
    }
    match explored.failure {
        None => Ok(()),
        Some(failure) => Err(Failure::failed(format_args!("the history fails: {failure}"))
            .fix("this is a defect of the FTL, or of what judges it")),
    }
}

fn page(report: &Report, palette: Palette) -> String {
    let mut text = String::new();
    let verdict = match &report.failure {
        None => palette.paint(Ink::Good, "all sound"),
        Some(_) => palette.paint(Ink::Bad, "one failed"),
    };
    _ = writeln!(
        text,
        "{} histories in {:.1} s ({} a minute): {verdict}",
        thousands(report.runs),
        report.wall_seconds,
        thousands(report.histories_per_minute as u64)
    );
    for (what, count) in [
        ("steps", report.steps),
        ("events", report.events),
        ("power cuts", report.power_cuts),
        ("of recoveries", report.power_cuts_during_recovery),
        ("clean restarts", report.clean_restarts),
        ("worn out", report.drives_worn_out),
    ] {
        _ = writeln!(text, "  {what:<16} {:>14}", thousands(count));
    }
    for (kind, count) in &report.faults {
        _ = writeln!(text, "  {:<16} {:>14}", format!("fault: {kind}"), thousands(*count));
    }
    if let Some(trace) = &report.trace_hash {
        _ = writeln!(text, "  {:<16} {trace:>14}", "trace");
    }
    if let Some(failed) = &report.failure {
        _ = writeln!(text, "\n{}  seed {}", palette.paint(Ink::Bad, "failed"), failed.seed);
        _ = writeln!(text, "  {}\n  {}", failed.setting, failed.failure);
        _ = writeln!(
            text,
            "  shrunk from {} to {} steps in {} attempts:\n    {}\n  {}",
            failed.steps, failed.shrunk_steps, failed.attempts, failed.shrunk_to, failed.shrunk_failure
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seeds_have_the_same_hash_whoever_ran_them_when() {
        let shared = || Shared { next: AtomicU64::new(0), stop: Arc::default(), done: Mutex::default() };
        let (alone, together) = (shared(), shared());
        work(&alone, 7, Limit::Runs(6));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| work(&together, 7, Limit::Runs(6)));
            }
        });
        let of = |shared: Shared| {
            let done = shared.done.into_inner().unwrap();
            assert!(done.failure.is_none(), "{:?}", done.failure.map(|(_, failure)| failure));
            (done.tally, hash(&done.traces))
        };
        assert_eq!(of(alone), of(together));
    }
}
