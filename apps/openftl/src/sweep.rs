//! `openftl sweep`: many runs of many settings over all processors, one row of a CSV each.
//!
//! ```text
//!   FILE.toml ── runs: list × grid ──▶ checked, all of them ──▶ those without a row ──▶ crew ──▶ row after row
//!                                                                    ▲                            │
//!   FILE.csv  ── rows that are complete, of these very settings ─────┘ ◀──────────────────────────┘
//! ```
//!
//! A row is appended when its run has ended, whichever comes first; a sweep that was interrupted goes on from the rows that
//! are there. When all runs are done the rows are put in order, so the file is the same however often it was interrupted.

mod plan;
mod rows;

use crate::cli;
use crate::crew::{self, Stage};
use crate::failure::Failure;
use crate::terminal::{Ink, Live, Palette, say, span};
use plan::Plan;
use rows::Rows;
use serde::Serialize;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::{Duration, Instant};

pub fn run(arguments: &cli::Sweep) -> Result<(), Failure> {
    let plan = Plan::read(&arguments.file)?;
    let out = arguments.out.clone().unwrap_or_else(|| arguments.file.with_extension("csv"));
    let summary = sweep(&plan, out, arguments.jobs, &mut Live::new(!arguments.json))?;
    if arguments.json {
        return say(&crate::json(&summary)?);
    }
    say(&summary.page(Palette::of_stdout()))
}

/// What was done.
#[derive(Serialize, Clone, PartialEq, Debug)]
struct Summary {
    out: PathBuf,
    /// Runs of the sweep.
    runs: usize,
    /// Of these, runs that were done already.
    found_done: usize,
    jobs: usize,
    wall_seconds: f64,
    /// Every row, as name and value, in the order of the runs.
    rows: Vec<BTreeMap<String, String>>,
}

fn sweep(plan: &Plan, out: PathBuf, jobs: Option<u32>, live: &mut Live) -> Result<Summary, Failure> {
    let mut rows = Rows::open(&out, plan)?;
    let left: Vec<usize> = (0..plan.runs.len()).filter(|run| !rows.has(*run)).collect();
    let jobs = crew::size(jobs, left.len());
    let started = Instant::now();
    let mut failed = None;
    crew::work(
        left.len(),
        jobs,
        |index, desk| {
            let run = &plan.runs[left[index]];
            run.task.run(&run.contender, desk).map(|tried| tried.map(|tried| run.row(left[index], &tried)))
        },
        |_, result| match result.and_then(|row| row.map_or(Ok(()), |row| rows.append(row))) {
            Ok(()) => ControlFlow::Continue(()),
            Err(failure) => {
                failed = Some(failure);
                ControlFlow::Break(())
            }
        },
        |done, under_way| {
            if live.is_due() {
                show_progress(live, done, under_way, left.len(), started.elapsed());
            }
        },
    );
    live.clear();
    if let Some(failure) = failed {
        return Err(failure);
    }
    let rows = rows.finish()?;
    let found_done = plan.runs.len() - left.len();
    let wall_seconds = started.elapsed().as_secs_f64();
    Ok(Summary { out, runs: plan.runs.len(), found_done, jobs, wall_seconds, rows })
}

fn show_progress(live: &mut Live, done: usize, under_way: &[(usize, Stage)], all: usize, elapsed: Duration) {
    let begun = under_way.iter().filter(|(_, stage)| stage.share < 1.0).count();
    let rest = match done {
        0 => format!("{begun} runs under way"),
        done => {
            let left = elapsed.mul_f64((all - done) as f64 / done as f64);
            format!("{done} of {all} runs, about {} left", span(left))
        }
    };
    live.show_share("sweep", done as f64 / all.max(1) as f64, &rest);
}

impl Summary {
    fn page(&self, palette: Palette) -> String {
        let Summary { out, runs, found_done, jobs, wall_seconds, .. } = self;
        let before = match found_done {
            0 => String::new(),
            found => format!("; {found} were done before"),
        };
        format!(
            "{} {} runs in {} on {jobs} threads{before}\nWritten: {}\n",
            palette.paint(Ink::Good, "✓"),
            runs - found_done,
            span(Duration::from_secs_f64(*wall_seconds)),
            out.display()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    const SMALL: &str = "capacity = \"16MiB\"\nwarm_up = 0\ndrive_writes = 0.5\nworkload = \"uniform\"\n\
                         [grid]\nplacement = [\"none\", \"learned\"]\nseed = [1, 2, 3]\n";

    fn swept(text: &str, out: &Path, jobs: u32) -> Result<Summary, Failure> {
        let plan = Plan::parse(text).map_err(|failure| failure.about("sweep.toml"))?;
        sweep(&plan, out.to_owned(), Some(jobs), &mut Live::silent())
    }

    #[test]
    fn an_interrupted_sweep_goes_on_and_ends_with_the_same_file() {
        let folder = tempfile::tempdir().unwrap();
        let [whole, broken] = ["whole.csv", "broken.csv"].map(|name| folder.path().join(name));
        assert_eq!(swept(SMALL, &whole, 1).unwrap().found_done, 0);
        let text = std::fs::read_to_string(&whole).unwrap();
        assert_eq!(text.lines().count(), 1 + 6, "{text}");
        let ends: Vec<usize> = text.match_indices('\n').map(|(at, _)| at + 1).collect();
        // Cut off behind each row, within each row, and within the header.
        for (at, found) in
            [(0, 0), (10, 0), (ends[0], 0), (ends[0] + 7, 0), (ends[2], 2), (ends[4] - 1, 3), (ends[6], 6)]
        {
            std::fs::write(&broken, &text[..at]).unwrap();
            let summary = swept(SMALL, &broken, 2).unwrap();
            assert_eq!((summary.runs, summary.found_done), (6, found), "cut off at {at}");
            assert_eq!(std::fs::read_to_string(&broken).unwrap(), text, "cut off at {at}");
            assert_eq!((summary.rows.len(), summary.rows[4]["seed"].as_str()), (6, "2"));
        }
    }

    #[test]
    fn the_file_of_another_sweep_is_refused_and_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("sweep.csv");
        swept(SMALL, &out, 2).unwrap();
        let before = std::fs::read_to_string(&out).unwrap();
        for other in [
            SMALL.replace("16MiB", "32MiB"),
            SMALL.replace("seed = [1, 2, 3]", "seed = [1, 2]"),
            SMALL.replace("[1, 2, 3]", "[3, 2, 1]"),
        ] {
            let failure = swept(&other, &out, 1).unwrap_err();
            let text = failure.to_string();
            assert!(text.contains("sweep.csv") && text.contains("another sweep") && text.contains("--out"), "{text}");
            assert_eq!(failure.exit_code(), std::process::ExitCode::from(2));
            assert_eq!(std::fs::read_to_string(&out).unwrap(), before);
        }
        for (broken, line) in
            [(before.replacen("learned", "learnt", 1), "line 5"), (format!("a,b\n{before}"), "line 1")]
        {
            std::fs::write(&out, &broken).unwrap();
            let text = swept(SMALL, &out, 1).unwrap_err().to_string();
            assert!(text.contains(line), "{text}");
            assert_eq!(std::fs::read_to_string(&out).unwrap(), broken);
        }
    }

    #[test]
    fn a_run_that_fails_is_named_and_what_is_done_stays() {
        let folder = tempfile::tempdir().unwrap();
        let profile = folder.path().join("frail.toml");
        let toml = include_str!("../../../profiles/tiny.toml").replace("endurance = 3000", "endurance = 4");
        std::fs::write(&profile, toml).unwrap();
        let out = folder.path().join("sweep.csv");
        let text = format!(
            "drive = \"{}\"\ncapacity = \"8MiB\"\nworkload = \"uniform\"\nwarm_up = 0\n[grid]\ndrive_writes = [0.1, 40]\n",
            profile.display()
        );
        let text = swept(&text, &out, 1).unwrap_err().to_string();
        assert!(text.contains("run 2") && text.contains("read-only"), "{text}");
        assert_eq!(std::fs::read_to_string(&out).unwrap().lines().count(), 1 + 1);
    }
}
