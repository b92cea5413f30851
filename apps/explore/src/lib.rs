//! `openftl explore`: histories drawn from seeds, played on simulated drives, and judged; the first that fails is made
//! short.

use openftl_command_line::cli;
use openftl_command_line::failure::Failure;
use openftl_command_line::terminal::{Ink, Live, Palette, say};
use openftl_core::TraceHash;
use openftl_lab::picture::thousands;
use openftl_sim::step::{parse_steps, write_steps};
use openftl_sim::{Drives, Explored, Run, Tally, explore, shrink};
use serde::Serialize;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// How long it goes on if nothing else is said.
const MINUTES: f64 = 1.0;

#[derive(Serialize)]
struct Findings {
    first_seed: u64,
    #[serde(flatten)]
    tally: Tally,
    seconds: f64,
    histories_per_minute: f64,
    jobs: usize,
    /// Over all runs, whatever their order; the same on every machine.
    trace_hash: String,
    failure: Option<Failed>,
}

/// A history that fails, made short.
#[derive(Serialize)]
struct Failed {
    seed: u64,
    message: String,
    place: String,
    setting: String,
    /// Steps before it was made short.
    steps_drawn: usize,
    steps: String,
    replay: String,
}

fn drives(arguments: &cli::Explore) -> Drives {
    arguments.drives.parse().expect("the command line takes the words of the simulator")
}

/// Looks for histories, or plays one.
///
/// # Errors
/// If one fails.
pub fn run(arguments: &cli::Explore) -> Result<(), Failure> {
    let findings = match &arguments.steps {
        Some(steps) => replay(arguments, steps)?,
        None => search(arguments)?,
    };
    match arguments.json {
        true => say(&openftl_command_line::json(&findings)?)?,
        false => say(&page(&findings, Palette::of_stdout()))?,
    }
    match findings.failure {
        None => Ok(()),
        Some(failed) => {
            Err(Failure::failed(format_args!("the history of seed {} fails", failed.seed))
                .fix("read docs/SIMULATION.md"))
        }
    }
}

/// Plays one history that was written down.
fn replay(arguments: &cli::Explore, steps: &str) -> Result<Findings, Failure> {
    let seed = arguments.seed;
    let started = Instant::now();
    let steps = parse_steps(steps).map_err(|error| Failure::bad_input(format_args!("--steps: {error}")))?;
    let run = Run::with_steps(seed, drives(arguments), steps).map_err(|error| {
        Failure::bad_input(format_args!("--steps: {error}"))
            .fix("give the --seed and the --drives that the steps were printed with")
    })?;
    let explored = explore(&run);
    let mut totals = Totals::default();
    totals.add(seed, &explored);
    let failure = explored.failure.map(|failure| Failed::of(&run, drives(arguments), run.steps.len(), &failure));
    Ok(totals.findings(seed, 1, started, failure))
}

/// Plays the histories of one seed after the other until one fails, or it is enough.
fn search(arguments: &cli::Explore) -> Result<Findings, Failure> {
    let started = Instant::now();
    let stop = Arc::new(AtomicBool::new(false));
    // A failure stops the search too, and its history is still made short then.
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        for flag in [&stop, &interrupted] {
            signal_hook::flag::register(signal, flag.clone()).map_err(Failure::failed)?;
        }
    }
    let jobs = arguments
        .jobs
        .map_or_else(|| std::thread::available_parallelism().map_or(1, std::num::NonZero::get), |jobs| jobs as usize);
    let end = arguments.seed.saturating_add(arguments.runs.unwrap_or(u64::MAX));
    let minutes = arguments.minutes.or(if arguments.runs.is_none() { Some(MINUTES) } else { None });
    let deadline = minutes.map(|minutes| started + Duration::from_secs_f64(minutes * 60.0));
    let mut live = if arguments.json { Live::silent() } else { Live::new(true) };
    let mut totals = Totals::default();
    let mut failing = None;
    let next = AtomicU64::new(arguments.seed);
    let drives = drives(arguments);
    std::thread::scope(|scope| {
        let (sender, receiver) = channel();
        for _ in 0..jobs {
            let (sender, stop, next) = (sender.clone(), &stop, &next);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end || sender.send((seed, explore(&Run::draw_of(seed, drives)))).is_err() {
                        break;
                    }
                }
            });
        }
        drop(sender);
        loop {
            match receiver.recv_timeout(Duration::from_millis(100)) {
                Ok((seed, explored)) => {
                    totals.add(seed, &explored);
                    if let Some(failure) = explored.failure {
                        stop.store(true, Ordering::Relaxed);
                        // Several threads may fail before they stop: the lowest seed is told.
                        if failing.as_ref().is_none_or(|(other, _)| seed < *other) {
                            failing = Some((seed, failure));
                        }
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                stop.store(true, Ordering::Relaxed);
            }
            if live.is_due() {
                live.show(&[totals.line(started, failing.is_some())]);
            }
        }
    });
    let failure = failing.map(|(seed, failure)| {
        let run = Run::draw_of(seed, drives);
        let shrunk = shrink(&run, &failure, |shrunk| {
            if live.is_due() {
                let (steps, attempts) = (shrunk.run.steps.len(), thousands(shrunk.attempts.into()));
                live.show(&[format!("seed {seed} fails; its history has {steps} steps after {attempts} attempts")]);
            }
            !interrupted.load(Ordering::Relaxed)
        });
        Failed::of(&shrunk.run, drives, run.steps.len(), &shrunk.failure)
    });
    live.clear();
    Ok(totals.findings(arguments.seed, jobs, started, failure))
}

#[derive(Default)]
struct Totals {
    tally: Tally,
    trace: u64,
}

impl Totals {
    fn add(&mut self, seed: u64, explored: &Explored) {
        self.tally += &explored.tally;
        // Threads end in any order: what is added up must not depend on it.
        let mut trace = explored.trace;
        trace.add(seed);
        self.trace = self.trace.wrapping_add(trace.0);
    }

    fn line(&self, started: Instant, has_failed: bool) -> String {
        let Tally { runs, cuts, recovery_cuts, .. } = self.tally;
        format!(
            "{} histories, {} a minute; {} power cuts, {} faults, {}",
            thousands(runs),
            thousands(per_minute(runs, started.elapsed().as_secs_f64()) as u64),
            thousands(cuts + recovery_cuts),
            thousands(self.tally.faults()),
            if has_failed { "one fails" } else { "none fails" },
        )
    }

    fn findings(self, first_seed: u64, jobs: usize, started: Instant, failure: Option<Failed>) -> Findings {
        let seconds = started.elapsed().as_secs_f64();
        Findings {
            first_seed,
            histories_per_minute: per_minute(self.tally.runs, seconds),
            tally: self.tally,
            seconds,
            jobs,
            trace_hash: TraceHash(self.trace).to_string(),
            failure,
        }
    }
}

fn per_minute(runs: u64, seconds: f64) -> f64 {
    runs as f64 * 60.0 / seconds.max(1e-3)
}

impl Failed {
    fn of(run: &Run, drives: Drives, steps_drawn: usize, failure: &openftl_sim::Failure) -> Failed {
        let steps = write_steps(&run.steps);
        Failed {
            seed: run.seed,
            message: failure.message.clone(),
            place: failure.place.clone(),
            setting: run.setting.to_string(),
            steps_drawn,
            replay: match drives {
                Drives::All => format!("openftl explore --seed {} --steps '{steps}'", run.seed),
                drives => format!("openftl explore --seed {} --drives {} --steps '{steps}'", run.seed, drives),
            },
            steps,
        }
    }
}

fn page(findings: &Findings, palette: Palette) -> String {
    let mut text = String::new();
    let Tally { runs, steps, events, cuts, recovery_cuts, restarts, worn_out, .. } = findings.tally;
    if let Some(failed) = &findings.failure {
        let title = format!("✗ seed {}: {}", failed.seed, failed.message);
        _ = writeln!(text, "{}\n  at      {}", palette.paint(Ink::Bad, &title), failed.place);
        _ = writeln!(text, "  drive   {}", failed.setting);
        let count = failed.steps.split_whitespace().count();
        _ = writeln!(text, "  history {count} steps of {}: {}", failed.steps_drawn, failed.steps);
        _ = writeln!(text, "  replay  {}\n", failed.replay);
    } else {
        _ = writeln!(text, "{}", palette.paint(Ink::Good, &format!("✓ {} histories, none fails", thousands(runs))));
    }
    _ = writeln!(
        text,
        "  {} histories from seed {} on in {:.1} s, {} a minute on {} threads",
        thousands(runs),
        findings.first_seed,
        findings.seconds,
        thousands(findings.histories_per_minute as u64),
        findings.jobs,
    );
    _ = writeln!(
        text,
        "  {} steps, {} events; {} power cuts, and {} of recoveries; {} clean restarts; {} drives wore out",
        thousands(steps),
        thousands(events),
        thousands(cuts),
        thousands(recovery_cuts),
        thousands(restarts),
        thousands(worn_out),
    );
    let faults: Vec<String> =
        findings.tally.faults.iter().map(|(kind, count)| format!("{} {}", kind.word(), thousands(*count))).collect();
    _ = writeln!(text, "  faults: {}", if faults.is_empty() { "none".to_owned() } else { faults.join(", ") });
    _ = writeln!(text, "  trace hash {}", findings.trace_hash);
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;
    use strum::VariantNames;

    #[test]
    fn the_command_line_has_the_words_of_the_simulator() {
        assert_eq!(cli::DRIVES, Drives::VARIANTS);
        assert_eq!(cli::DRIVES[0], Drives::default().to_string());
    }

    #[test]
    fn a_failure_comes_with_the_command_that_replays_it() {
        let run = Run::with_steps(7, Drives::All, parse_steps("w0+1 f x4").unwrap()).unwrap();
        let failure = openftl_sim::Failure { place: "a.rs:1".to_owned(), message: "block 0 is lost".to_owned() };
        let failed = Failed { setting: "a small drive".to_owned(), ..Failed::of(&run, Drives::All, 200, &failure) };
        let tally = Tally { runs: 8, steps: 1_234, cuts: 20, ..Tally::default() };
        let findings = Findings {
            first_seed: 0,
            tally,
            seconds: 0.5,
            histories_per_minute: 960.0,
            jobs: 2,
            trace_hash: TraceHash(1).to_string(),
            failure: Some(failed),
        };
        expect![[r#"
            ✗ seed 7: block 0 is lost
              at      a.rs:1
              drive   a small drive
              history 3 steps of 200: w0+1 f x4
              replay  openftl explore --seed 7 --steps 'w0+1 f x4'

              8 histories from seed 0 on in 0.5 s, 960 a minute on 2 threads
              1 234 steps, 0 events; 20 power cuts, and 0 of recoveries; 0 clean restarts; 0 drives wore out
              faults: none
              trace hash 0000000000000001
        "#]]
        .assert_eq(&page(&findings, Palette::PLAIN));
    }

    #[test]
    fn the_same_runs_have_the_same_hash_in_any_order() {
        let explored: Vec<(u64, Explored)> = (0..3).map(|seed| (seed, explore(&Run::draw(seed)))).collect();
        let hash = |order: [usize; 3]| {
            let mut totals = Totals::default();
            order.iter().for_each(|index| totals.add(explored[*index].0, &explored[*index].1));
            totals.trace
        };
        assert_eq!(hash([0, 1, 2]), hash([2, 0, 1]));
        assert_ne!(explored[0].1.trace, explored[1].1.trace);
    }
}
