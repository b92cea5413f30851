//! Named steps: each prints its name when it starts and its time when it ends, and the last lines of a run say what
//! became of all of them.

use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Ticks a second in which Linux counts the CPU time of processes, on every architecture that this project is built for.
const TICKS_PER_SECOND: u64 = 100;

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
    /// CPU time of this process and of those that it started and that have ended.
    cpu: Duration,
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
        let (started, cpu_before) = (Instant::now(), cpu_time("self"));
        let outcome = step();
        let (took, cpu) = (started.elapsed(), cpu_time("self").saturating_sub(cpu_before));
        let done = outcome == Outcome::Done;
        println!("<== {name}: {} ({}, {} of CPU)", words(&outcome), seconds(took), seconds(cpu));
        self.records.push(Record { name: name.to_owned(), outcome, took, cpu });
        done
    }

    /// Prints what became of every step. The exit code is 1 if one failed.
    pub fn finish(self) -> ExitCode {
        println!("\ncargo xtask {}", self.command);
        let width = self.records.iter().map(|record| record.name.len()).max().unwrap_or(0);
        println!("  {:width$}  {:>8}  {:>8}", "", "time", "CPU time");
        for Record { name, outcome, took, cpu } in &self.records {
            println!("  {name:width$}  {:>8}  {:>8}  {}", seconds(*took), seconds(*cpu), words(outcome));
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

/// CPU time so far of a process, by its number or `self`, and of all that it has waited for. Nothing where the system does not say it.
pub fn cpu_time(process: impl std::fmt::Display) -> Duration {
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    Duration::from_millis(ticks(&text) * 1000 / TICKS_PER_SECOND)
}

/// The sum of utime, stime, cutime and cstime in a line of `/proc/PID/stat`. The name before them may contain anything.
fn ticks(stat: &str) -> u64 {
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    fields.split_whitespace().skip(11).take(4).filter_map(|field| field.parse::<u64>().ok()).sum()
}

fn seconds(took: Duration) -> String {
    format!("{:.1} s", took.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_that_of_a_process_and_its_children() {
        let stat = "7 (a) b) R 1 7 7 0 -1 4194304 100 200 0 0 11 22 333 444 20 0 1 0 100 4096 50";
        assert_eq!(ticks(stat), 11 + 22 + 333 + 444);
        assert_eq!(ticks(""), 0);
    }
}
