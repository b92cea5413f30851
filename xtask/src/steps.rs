//! Named steps: each prints its name when it starts and its time when it ends, and the last lines of a run say what
//! became of all of them.

use std::process::ExitCode;
use std::time::{Duration, Instant};

/// What became of a step.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It did what its name says.
    Done,
    /// It could not run here, for this reason. The run goes on and is not failed by it.
    LeftOut(String),
    /// It ran and failed, for this reason.
    Failed(String),
}

impl Outcome {
    /// `Done` for success, `Failed` with the reason otherwise.
    pub fn of(result: Result<(), String>) -> Outcome {
        result.map_or_else(Outcome::Failed, |()| Outcome::Done)
    }
}

struct Record {
    name: String,
    outcome: Outcome,
    took: Duration,
}

/// The steps of one run.
pub struct Steps {
    command: &'static str,
    started: Instant,
    records: Vec<Record>,
}

impl Steps {
    /// No step yet. `command` is the name of the run.
    pub fn new(command: &'static str) -> Steps {
        Steps { command, started: Instant::now(), records: Vec::new() }
    }

    /// Runs one step and returns whether it was done.
    pub fn run(&mut self, name: &str, step: impl FnOnce() -> Outcome) -> bool {
        println!("\n==> {name}");
        let started = Instant::now();
        let outcome = step();
        let took = started.elapsed();
        let done = outcome == Outcome::Done;
        println!("<== {name}: {} ({})", words(&outcome), seconds(took));
        self.records.push(Record { name: name.to_owned(), outcome, took });
        done
    }

    /// Prints what became of every step. The exit code is 1 if one failed.
    pub fn finish(self) -> ExitCode {
        println!("\ncargo xtask {}", self.command);
        let width = self.records.iter().map(|record| record.name.len()).max().unwrap_or(0);
        for Record { name, outcome, took } in &self.records {
            println!("  {name:width$}  {:>8}  {}", seconds(*took), words(outcome));
        }
        let failed = self.records.iter().filter(|record| matches!(record.outcome, Outcome::Failed(_))).count();
        let total = seconds(self.started.elapsed());
        if failed == 0 {
            println!("cargo xtask {}: ok, {total}", self.command);
            ExitCode::SUCCESS
        } else {
            println!("cargo xtask {}: FAILED, {failed} of {} steps, {total}", self.command, self.records.len());
            ExitCode::FAILURE
        }
    }
}

fn words(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Done => "done".to_owned(),
        Outcome::LeftOut(reason) => format!("left out: {reason}"),
        Outcome::Failed(reason) => format!("FAILED: {reason}"),
    }
}

fn seconds(took: Duration) -> String {
    format!("{:.1} s", took.as_secs_f64())
}
