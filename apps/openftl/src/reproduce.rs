//! `openftl reproduce`: an experiment of a paper, made again, with a verdict.

mod bounced;
mod ext4;
mod ox_copies;
mod ox_lightlsm;
mod rocksdb;
mod stack;

use crate::cli;
use crate::failure::Failure;
use crate::measure::show;
use crate::settings::check_memory;
use crate::terminal::{Ink, Live, Palette, say};
use openftl_core::Nanos;
use openftl_lab::experiments::{ALL, Assistant, Experiment, Options, Paper, Report};
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Those of the laboratory, in virtual time, and those that need sockets and a real clock.
fn experiments() -> impl Iterator<Item = &'static Experiment> {
    ALL.iter().chain([&ox_copies::EXPERIMENT, &ox_lightlsm::EXPERIMENT])
}

pub fn run(arguments: &cli::Reproduce) -> Result<(), Failure> {
    let palette = Palette::of_stdout();
    let Some(name) = &arguments.name else {
        return say(&if arguments.json { crate::json(&listed())? } else { list(palette) });
    };
    let (report, files) = reproduce(name, arguments, Live::new(true))?;
    say(&if arguments.json { crate::json(&report)? } else { page(&report, &files, palette) })?;
    match report.findings.iter().filter(|finding| !finding.holds).count() {
        0 => Ok(()),
        1 => Err(Failure::failed(format_args!("{}: one finding does not hold", report.experiment))),
        count => Err(Failure::failed(format_args!("{}: {count} findings do not hold", report.experiment))),
    }
}

/// Runs the experiment and writes its files.
fn reproduce(name: &str, arguments: &cli::Reproduce, live: Live) -> Result<(Report, Vec<PathBuf>), Failure> {
    let Some(experiment) = experiments().find(|experiment| experiment.name == name) else {
        let names: Vec<&str> = experiments().map(|experiment| experiment.name).collect();
        return Err(Failure::bad_input(format_args!("there is no experiment `{name}`"))
            .fix(format_args!("choose one of: {}", names.join(", "))));
    };
    let [full, quick] = experiment.memory_bytes;
    check_memory(if arguments.quick { quick } else { full }, "close other programs, or try --quick")?;
    make_folder(&arguments.out)?;
    let mut bench = Bench { live, name: experiment.name };
    let options = Options { seed: arguments.seed, quick: arguments.quick };
    let report = (experiment.run)(options, &mut bench)
        .map_err(|error| Failure::failed(format_args!("{}: {error}", experiment.name)))?;
    let files = write_files(&arguments.out, &report)?;
    Ok((report, files))
}

/// Shows progress, and reads the process's CPU time.
struct Bench {
    live: Live,
    name: &'static str,
}

impl Assistant for Bench {
    fn progress(&mut self, share: f64, doing: &str) {
        if self.live.is_due() {
            show(&mut self.live, self.name, share, doing);
        }
    }

    fn cpu_time(&mut self) -> Nanos {
        let time = clock_gettime(ClockId::ProcessCPUTime);
        Nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
    }
}

fn make_folder(folder: &Path) -> Result<(), Failure> {
    std::fs::create_dir_all(folder).map_err(|error| {
        Failure::bad_input(format_args!("--out {}: {error}", folder.display())).fix("name a folder that can be written")
    })
}

/// Writes a CSV file for each table and an SVG file for each plot. The first of each has just the experiment's name.
fn write_files(folder: &Path, report: &Report) -> Result<Vec<PathBuf>, Failure> {
    let tables = report.tables.iter().map(|table| (table.name, "csv", table.csv())).enumerate();
    let plots = report.plots.iter().map(|plot| (plot.name, "svg", plot.svg())).enumerate();
    let mut files = Vec::new();
    for (index, (name, ending, text)) in tables.chain(plots) {
        let part = if index == 0 { String::new() } else { format!("-{name}") };
        let path = folder.join(format!("{}{part}.{ending}", report.experiment));
        std::fs::write(&path, text)
            .map_err(|error| Failure::failed(format_args!("cannot write {}: {error}", path.display())))?;
        files.push(path);
    }
    Ok(files)
}

/// An experiment, as `--list --json` has it.
#[derive(Serialize)]
struct Listed {
    name: &'static str,
    question: &'static str,
    paper: Option<Paper>,
}

fn listed() -> Vec<Listed> {
    experiments().map(|&Experiment { name, question, paper, .. }| Listed { name, question, paper }).collect()
}

fn list(palette: Palette) -> String {
    let mut text = String::new();
    for experiment in experiments() {
        _ = writeln!(text, "{}\n  {}", palette.paint(Ink::Bold, experiment.name), experiment.question);
        if let Some(Paper { title, place, .. }) = experiment.paper {
            _ = writeln!(text, "  {}", palette.paint(Ink::Dim, &format!("{title}, {place}")));
        }
    }
    _ = writeln!(text, "\nRun one: openftl reproduce {}", ALL[0].name);
    text
}

/// The page for people.
fn page(report: &Report, files: &[PathBuf], palette: Palette) -> String {
    let mut text = format!("{}\n", palette.paint(Ink::Bold, report.question));
    if let Some(Paper { title, place, found }) = report.paper {
        _ = writeln!(text, "  {}", palette.paint(Ink::Dim, &format!("{title}, {place}")));
        _ = writeln!(text, "  The paper: {found}");
    }
    text.push('\n');
    for parameter in &report.parameters {
        _ = writeln!(text, "  {:<12} {}", parameter.name, parameter.value);
    }
    let scale = if report.quick { "  (small scale)" } else { "" };
    _ = writeln!(text, "  {:<12} {}{scale}", "seed", report.seed);
    for table in &report.tables {
        text.push('\n');
        for line in table.to_string().lines() {
            _ = writeln!(text, "  {line}");
        }
    }
    for finding in &report.findings {
        let (sign, ink) = if finding.holds { ("✓", Ink::Good) } else { ("✗", Ink::Bad) };
        let verdict = palette.paint(ink, &format!("{sign} {}", finding.verdict()));
        _ = writeln!(text, "\n{verdict}: {}", palette.paint(Ink::Bold, finding.claim));
        _ = writeln!(text, "  measured  {}", finding.measured);
        _ = writeln!(text, "  {}", palette.paint(Ink::Dim, &format!("checked   {}", finding.check)));
        _ = writeln!(text, "  why       {}", finding.why);
    }
    text.push('\n');
    for note in &report.notes {
        _ = writeln!(text, "{note}");
    }
    let files: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
    _ = writeln!(text, "\nWritten: {}", files.join(", "));
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use std::process::ExitCode;

    fn try_reproduce(line: &str) -> Result<(Report, Vec<PathBuf>), Failure> {
        let words = ["openftl", "reproduce"].into_iter().chain(line.split_whitespace());
        match cli::Cli::try_parse_from(words).unwrap().command {
            cli::Command::Reproduce(arguments) => {
                reproduce(arguments.name.as_deref().unwrap(), &arguments, Live::silent())
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_quick_run_leaves_a_table_and_a_plot_and_tells_of_both() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("new");
        let (report, files) = try_reproduce(&format!("ox-recovery --quick --out {}", out.display())).unwrap();
        assert_eq!(files, [out.join("ox-recovery.csv"), out.join("ox-recovery.svg")]);
        let [csv, svg] = [0, 1].map(|file: usize| std::fs::read_to_string(&files[file]).unwrap());
        assert!(csv.starts_with("checkpoints,") && csv.lines().count() == 1 + 4 * 6, "{csv}");
        assert!(svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>"), "{svg}");
        let page = page(&report, &files, Palette::PLAIN);
        for words in ["✓ reproduced: ", "✓ holds: ", "ox-recovery.csv", "Figure 3", "(small scale)"] {
            assert!(page.contains(words), "{words}: {page}");
        }
        let json: serde_json::Value = serde_json::from_str(&crate::json(&report).unwrap()).unwrap();
        assert_eq!(json["tables"][0]["rows"].as_array().unwrap().len(), 4 * 6);
        assert!(json["findings"].as_array().unwrap().iter().all(|finding| finding["holds"] == true), "{json}");
    }

    #[test]
    fn an_experiment_that_does_not_exist_is_named_with_those_that_do() {
        let failure = try_reproduce("ox-recover").unwrap_err();
        let text = failure.to_string();
        assert!(text.contains("`ox-recover`") && text.contains("ox-recovery, recovery-scale"), "{text}");
        assert_eq!(failure.exit_code(), ExitCode::from(2));
    }

    #[test]
    fn a_folder_that_cannot_be_is_refused_before_anything_runs() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "in the way").unwrap();
        let failure = try_reproduce(&format!("ox-recovery --out {}", file.display())).unwrap_err();
        assert!(failure.to_string().contains("--out"), "{failure}");
    }

    #[test]
    fn the_list_has_every_experiment_with_its_question() {
        let text = list(Palette::PLAIN);
        for experiment in experiments() {
            assert!(text.contains(experiment.name) && text.contains(experiment.question), "{text}");
        }
        assert_eq!(listed().len(), experiments().count());
    }
}
