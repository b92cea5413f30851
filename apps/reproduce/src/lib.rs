//! `openftl reproduce`: an experiment of a paper, made again with several seeds, with a verdict.

mod page;

use openftl_command_line::cli;
use openftl_command_line::crew;
use openftl_command_line::failure::Failure;
use openftl_command_line::memory;
use openftl_command_line::provenance::Provenance;
use openftl_command_line::result_file;
use openftl_command_line::terminal::{Ink, Live, Palette, say};
use openftl_core::Nanos;
use openftl_experiments::{ALL, Assistant, Experiment, ExperimentError, Options, Paper, Report, Run, Verdict};
use openftl_lab::figures::{Cell, Column, Table};
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;
use std::fmt::Write;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

/// Seeds, unless somebody says how many: of what the seed decides, and of what a real clock has a part in. Those take turns within
/// a run instead.
const SEEDS: u32 = 5;
const SEEDS_IN_REAL_TIME: u32 = 1;

/// Those of the laboratory, in virtual time, and those that need sockets and a real clock.
fn experiments() -> impl Iterator<Item = &'static Experiment> {
    ALL.iter().chain(openftl_lab_real_time::ALL)
}

/// The names of all experiments.
fn names() -> impl Iterator<Item = &'static str> {
    experiments().map(|experiment| experiment.name)
}

/// Runs an experiment, or lists them.
///
/// # Errors
/// If there is no such experiment, it comes to no end, or one of its checks does not hold.
pub fn run(arguments: &cli::Reproduce) -> Result<(), Failure> {
    let palette = Palette::of_stdout();
    let Some(name) = &arguments.name else {
        return say(&if arguments.json { openftl_command_line::json(&listed())? } else { list(palette) });
    };
    let (report, files) = reproduce(name, arguments, Live::new(true))?;
    say(&if arguments.json { openftl_command_line::json(&report)? } else { told(&report, &files, palette) })?;
    match report.checks.iter().filter(|check| !check.holds).count() {
        0 => Ok(()),
        1 => Err(Failure::failed(format_args!("{}: one check does not hold", report.experiment))),
        count => Err(Failure::failed(format_args!("{}: {count} checks do not hold", report.experiment))),
    }
}

/// Runs the experiment and writes its files.
fn reproduce(name: &str, arguments: &cli::Reproduce, live: Live) -> Result<(Report, Vec<PathBuf>), Failure> {
    let Some(experiment) = experiments().find(|experiment| experiment.name == name) else {
        let names: Vec<&str> = names().collect();
        return Err(Failure::bad_input(format_args!("there is no experiment `{name}`"))
            .fix(format_args!("choose one of: {}", names.join(", "))));
    };
    let count = arguments.seeds.unwrap_or(if experiment.in_virtual_time { SEEDS } else { SEEDS_IN_REAL_TIME });
    let last = arguments.seed.checked_add(u64::from(count) - 1).ok_or_else(|| {
        Failure::bad_input(format_args!("--seed {}: no {count} seeds from there on", arguments.seed))
            .fix("choose a smaller one")
    })?;
    let seeds: Vec<u64> = (arguments.seed..=last).collect();
    make_folder(&arguments.out)?;
    arguments.html.as_deref().map_or(Ok(()), result_file::check_writable)?;
    let runs = runs(experiment, arguments.quick, &seeds, live)?;
    let report = Report::of(experiment, arguments.quick, seeds, runs);
    let mut files = write_files(&arguments.out, &report)?;
    if let Some(file) = &arguments.html {
        result_file::write(file, &page::page(&report).html())?;
        files.push(file.clone());
    }
    Ok((report, files))
}

/// A run for each seed, as many at a time as there are processors and memory for; one at a time where the clock is real.
fn runs(experiment: &Experiment, quick: bool, seeds: &[u64], mut live: Live) -> Result<Vec<Run>, Failure> {
    let [full, small] = experiment.memory_bytes;
    let memory = if quick { small } else { full };
    memory::check(memory, "close other programs, or try --quick")?;
    let room =
        memory::available().map_or(1, |available| usize::try_from(available / memory.max(1)).unwrap_or(1)).max(1);
    let jobs = if experiment.in_virtual_time { crew::size(None, seeds.len()).min(room) } else { 1 };
    let mut results: Vec<Option<Result<Run, ExperimentError>>> = seeds.iter().map(|_| None).collect();
    crew::work(
        seeds.len(),
        jobs,
        |index, desk| {
            let seed = seeds[index];
            (experiment.run)(Options { seed, quick }, &mut Bench { desk, seed })
        },
        |index, result| {
            let failed = result.is_err();
            results[index] = Some(result);
            if failed { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        },
        |ended, under_way| {
            if live.is_due() {
                let under_way_shares: f64 = under_way.iter().map(|(_, stage)| stage.share).sum();
                let share = (ended as f64 + under_way_shares) / seeds.len() as f64;
                let doing = under_way.first().map_or("", |(_, stage)| &*stage.doing);
                live.show_share(experiment.name, share, doing);
            }
        },
    );
    live.clear();
    let failed = |error| Failure::failed(format_args!("{}: {error}", experiment.name));
    // Of runs that were not begun there is nothing, because another failed.
    results.into_iter().flatten().collect::<Result<Vec<Run>, ExperimentError>>().map_err(failed)
}

/// Tells how far a run is, and reads the CPU time of its thread.
struct Bench<'a, 'b> {
    desk: &'a crew::Desk<'b>,
    seed: u64,
}

impl Assistant for Bench<'_, '_> {
    fn progress(&mut self, share: f64, doing: &str) {
        _ = self.desk.say(format!("seed {}: {doing}", self.seed), share);
    }

    fn cpu_time(&mut self) -> Nanos {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        Nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
    }
}

fn make_folder(folder: &Path) -> Result<(), Failure> {
    std::fs::create_dir_all(folder).map_err(|error| {
        Failure::bad_input(format_args!("--out {}: {error}", folder.display())).fix("name a folder that can be written")
    })
}

/// Writes a CSV file for each table, with the figures of every seed, and an SVG file for each plot. The first of each has just the
/// experiment's name.
fn write_files(folder: &Path, report: &Report) -> Result<Vec<PathBuf>, Failure> {
    let tables = (0..report.tables.len()).filter_map(|index| report.table_of_all_seeds(index)).map(with_provenance);
    let tables = tables.map(|table| (table.name, "csv", table.csv())).enumerate();
    let plots = report.plots.iter().map(|plot| (plot.name, "svg", plot.svg())).enumerate();
    let mut files = Vec::new();
    for (index, (name, ending, text)) in tables.chain(plots) {
        let part = if index == 0 { String::new() } else { format!("-{name}") };
        let path = folder.join(format!("{}{part}.{ending}", report.experiment));
        result_file::write(&path, &text)?;
        files.push(path);
    }
    Ok(files)
}

/// The table with what made it at the end of each row.
fn with_provenance(mut table: Table) -> Table {
    let made_by = Provenance::of_this_run();
    table.columns.extend(Provenance::COLUMNS.map(|name| Column { name, unit: "" }));
    for row in &mut table.rows {
        row.extend(made_by.cells().map(|cell| Cell::Text(cell.to_owned())));
    }
    table
}

/// An experiment, as `--list --json` has it.
#[derive(Serialize)]
struct Listed {
    name: &'static str,
    question: &'static str,
    in_virtual_time: bool,
    paper: Option<Paper>,
}

fn listed() -> Vec<Listed> {
    let listed = |&Experiment { name, question, in_virtual_time, paper, .. }: &Experiment| Listed {
        name,
        question,
        in_virtual_time,
        paper,
    };
    experiments().map(listed).collect()
}

fn list(palette: Palette) -> String {
    let mut text = String::new();
    for experiment in experiments() {
        let clock = if experiment.in_virtual_time { "" } else { "  (on a real clock)" };
        _ = writeln!(text, "{}{clock}\n  {}", palette.paint(Ink::Bold, experiment.name), experiment.question);
        if let Some(Paper { title, place, .. }) = experiment.paper {
            _ = writeln!(text, "  {}", palette.paint(Ink::Dim, &format!("{title}, {place}")));
        }
    }
    _ = writeln!(text, "\nRun one: openftl reproduce {}", ALL[0].name);
    text
}

/// The report for people.
fn told(report: &Report, files: &[PathBuf], palette: Palette) -> String {
    let mut text = format!("{}\n", palette.paint(Ink::Bold, report.question));
    if let Some(Paper { title, place, found }) = report.paper {
        _ = writeln!(text, "  {}", palette.paint(Ink::Dim, &format!("{title}, {place}")));
        _ = writeln!(text, "  The paper: {found}");
    }
    text.push('\n');
    for parameter in &report.parameters {
        _ = writeln!(text, "  {:<12} {}", parameter.name, parameter.value);
    }
    let scale = if report.quick { "  (small scale: it shows that it works, not what is so)" } else { "" };
    _ = writeln!(text, "  {:<12} {}{scale}", "seeds", listing(&report.seeds));
    for table in &report.tables {
        text.push('\n');
        for line in table.to_string().lines() {
            _ = writeln!(text, "  {line}");
        }
    }
    if report.seeds.len() > 1 {
        _ = writeln!(
            text,
            "\n  {}",
            palette.paint(Ink::Dim, "Figures are medians over the seeds; the CSV files have each.")
        );
    }
    for finding in &report.findings {
        let (sign, ink) = match finding.verdict {
            Verdict::Reproduced => ("✓", Ink::Good),
            Verdict::DirectionOnly => ("~", Ink::Fair),
            Verdict::NotReproduced => ("✗", Ink::Bad),
        };
        let verdict = palette.paint(ink, &format!("{sign} {}", finding.headline()));
        _ = writeln!(text, "\n{verdict}: {}", palette.paint(Ink::Bold, finding.claim));
        _ = writeln!(text, "  paper     {}", finding.paper);
        _ = writeln!(text, "  ours      {}", finding.ours);
        _ = writeln!(text, "  {}", palette.paint(Ink::Dim, &format!("asked     {}", finding.asked)));
        _ = writeln!(text, "  why       {}", finding.why);
    }
    for check in &report.checks {
        let (sign, ink) = if check.holds { ("✓", Ink::Good) } else { ("✗", Ink::Bad) };
        let verdict = palette.paint(ink, &format!("{sign} {}", check.headline()));
        _ = writeln!(text, "\n{verdict}: {}", palette.paint(Ink::Bold, check.claim));
        _ = writeln!(text, "  measured  {}", check.measured);
        _ = writeln!(text, "  {}", palette.paint(Ink::Dim, &format!("checked   {}", check.check)));
        _ = writeln!(text, "  why       {}", check.why);
    }
    text.push('\n');
    for note in report.notes.iter().map(|note| (*note).to_owned()).chain(totals(report)) {
        _ = writeln!(text, "{note}");
    }
    let files: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
    _ = writeln!(text, "\nWritten: {}", files.join(", "));
    text
}

/// `1 to 5`, or `1`.
fn listing(seeds: &[u64]) -> String {
    match seeds {
        [first, .., last] => format!("{first} to {last}"),
        [only] => only.to_string(),
        [] => String::new(),
    }
}

/// What was counted over all seeds, a sentence each.
fn totals(report: &Report) -> impl Iterator<Item = String> + '_ {
    report.totals.iter().map(|total| format!("{:.*} {}.", total.decimals, total.amount, total.what))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use std::process::ExitCode;

    #[test]
    fn the_command_line_has_the_names_of_all_experiments() {
        assert_eq!(cli::EXPERIMENTS.to_vec(), names().collect::<Vec<_>>());
    }

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
        let html = folder.path().join("page.html");
        let command = format!("ox-recovery --quick --seeds 2 --out {} --html {}", out.display(), html.display());
        let (report, files) = try_reproduce(&command).unwrap();
        assert_eq!(files, [out.join("ox-recovery.csv"), out.join("ox-recovery.svg"), html]);
        let [csv, svg, html] = [0, 1, 2].map(|file: usize| std::fs::read_to_string(&files[file]).unwrap());
        assert!(csv.starts_with("seed,checkpoints,") && csv.lines().count() == 1 + 2 * 4 * 6, "{csv}");
        assert!(csv.lines().next().unwrap().ends_with(",version,commit,command"), "{csv}");
        assert!(svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>"), "{svg}");
        let told = told(&report, &files, Palette::PLAIN);
        let words =
            ["✓ reproduced (", "✗ not reproduced (", "✓ holds (", "ox-recovery.csv", "Figure 3", "(small scale: "];
        for words in words.into_iter().chain(["1 to 2", "of 2 seeds)", "blocks were read and compared"]) {
            assert!(told.contains(words), "{words}: {told}");
        }
        for finding in &report.findings {
            assert!(html.contains(finding.verdict.words()), "{html}");
        }
        let json: serde_json::Value = serde_json::from_str(&openftl_command_line::json(&report).unwrap()).unwrap();
        assert_eq!(json["tables"][0]["rows"].as_array().unwrap().len(), 4 * 6);
        for finding in json["findings"].as_array().unwrap() {
            assert!(["reproduced", "direction only", "not reproduced"].contains(&finding["verdict"].as_str().unwrap()));
            assert!(
                finding["claim"].is_string() && finding["paper"].is_string() && finding["ours"].is_string(),
                "{finding}"
            );
            assert!(finding["seeds"] == 2 && finding["seeds_held"].as_u64().unwrap() <= 2, "{finding}");
        }
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

    /// Every row of the table of claims: its number and what covers it.
    fn claims() -> Vec<(String, String)> {
        let text = include_str!("../../../docs/EXPERIMENTS.md");
        let rows = text.lines().filter(|line| line.starts_with("| 00"));
        let cells = rows.map(|row| row.trim_matches('|').split('|').map(str::trim).collect::<Vec<_>>());
        cells.map(|cells| (cells[0].to_owned(), cells[cells.len() - 1].to_owned())).collect()
    }

    /// Words in backquotes, each with the word before.
    fn quoted(cell: &str) -> Vec<(&str, &str)> {
        let pieces: Vec<&str> = cell.split('`').collect();
        let pairs = pieces.chunks_exact(2);
        pairs.map(|pair| (pair[0].split_whitespace().next_back().unwrap_or_default(), pair[1])).collect()
    }

    #[test]
    fn every_claim_with_a_number_has_a_row_and_what_covers_it_is_there() {
        let claims = claims();
        assert_eq!(claims.len(), 31 + 9 + 17 + 7 + 9, "the numeric claims of five papers");
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut sources = String::new();
        for folder in ["core", "media", "ftl", "sim", "lab", "host", "apps"] {
            read_sources(&root.join(folder), &mut sources);
        }
        let benches = std::fs::read_to_string(root.join("xtask/src/bench/mod.rs")).unwrap();
        for (number, cell) in &claims {
            let judges: Vec<&str> = experiments()
                .filter(|experiment| experiment.claims.contains(&number.as_str()))
                .map(|one| one.name)
                .collect();
            let named: Vec<&str> =
                quoted(cell).into_iter().filter(|(before, _)| *before == "judged:").map(|(_, name)| name).collect();
            assert_eq!(named, judges, "{number}: {cell}");
            for (before, name) in quoted(cell) {
                let is_there = match before {
                    "test" => sources.contains(&format!("fn {name}(")),
                    "bench" => benches.contains(&format!("(\"{name}\",")),
                    _ => experiments().any(|experiment| experiment.name == name),
                };
                assert!(is_there, "{number}: there is no {before} `{name}`");
            }
            let says_nothing = ["none yet", "cannot be measured here", "contradicted in"];
            assert!(
                !quoted(cell).is_empty() || says_nothing.iter().any(|words| cell.starts_with(words)),
                "{number}: {cell}"
            );
        }
        let numbers: Vec<&str> = experiments().flat_map(|experiment| experiment.claims).copied().collect();
        assert!(numbers.iter().all(|number| claims.iter().any(|(row, _)| row == number)), "{numbers:?}");
    }

    fn read_sources(folder: &Path, text: &mut String) {
        for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
            let path = entry.path();
            if path.is_dir() {
                read_sources(&path, text);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                text.push_str(&std::fs::read_to_string(&path).unwrap());
            }
        }
    }
}
