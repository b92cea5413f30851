//! `openftl compare`: several drives under the same load, side by side.

mod page;

use crate::cli;
use crate::contender::{Contender, ContenderSpec};
use crate::crew::{self, Stage};
use crate::failure::Failure;
use crate::figures::Figures;
use crate::metrics::{self, GROUPS};
use crate::provenance::Provenance;
use crate::result_file;
use crate::terminal::{Ink, Live, Palette, say};
use crate::trial::{Task, Tried};
use crate::zones_made::ZonesMade;
use openftl_core::Nanos;
use openftl_core::units::ByteSize;
use openftl_lab::figures::{Cell, Table};
use openftl_lab::load_spec::Model;
use openftl_lab::picture::{bar, thousands};
use openftl_parts::map::cache::CachePolicy;
use openftl_parts::{CollectionScope, PlacementName, PlacementStatistics, RelocateBy};
use serde::Serialize;
use std::fmt::Write;
use std::ops::ControlFlow;

/// What the host sees of a drive that is named by its profile, unless the command says otherwise.
pub const CAPACITY_DEFAULT: ByteSize = ByteSize(1 << 30);

/// Drives that still can be told apart.
const DRIVES_MAX: usize = 16;

pub fn run(arguments: &cli::Compare) -> Result<(), Failure> {
    let comparison = Comparison::prepare(arguments)?;
    let files = [arguments.csv.as_deref(), arguments.html.as_deref()];
    files.into_iter().flatten().try_for_each(result_file::check_writable)?;
    let findings = comparison.measure(arguments.jobs, &mut Live::new(!arguments.json))?;
    if let Some(path) = &arguments.csv {
        result_file::write(path, &findings.table().csv())?;
    }
    if let Some(path) = &arguments.html {
        result_file::write(path, &page::page(&findings).html())?;
    }
    if arguments.json {
        return say(&crate::json(&findings.json())?);
    }
    say(&findings.page(Palette::of_stdout()))
}

/// Drives and a load that were found possible.
pub struct Comparison {
    contenders: Vec<Contender>,
    task: Task,
    capacity: ByteSize,
}

/// What was measured.
pub struct Findings {
    pub drives: Vec<(Contender, Tried)>,
    pub task: Task,
    pub capacity: ByteSize,
}

impl Comparison {
    /// Reads the files and checks all that can be checked before anything runs.
    pub fn prepare(arguments: &cli::Compare) -> Result<Comparison, Failure> {
        if arguments.drives.len() > DRIVES_MAX {
            return Err(Failure::bad_input(format_args!(
                "--drive: {} drives are more than a page has room for",
                arguments.drives.len()
            ))
            .fix(format_args!("compare at most {DRIVES_MAX} at a time, or use `openftl sweep`")));
        }
        let mut contenders = Vec::with_capacity(arguments.drives.len());
        for text in &arguments.drives {
            let spec: ContenderSpec =
                text.parse().map_err(|failure: Failure| failure.about(format_args!("--drive {text}")))?;
            contenders.push(spec.gather(arguments.capacity, CAPACITY_DEFAULT)?);
        }
        let capacity = same_capacity(&contenders)?;
        distinct_names(&contenders)?;
        let about = |failure: Failure| failure.about(format_args!("--workload {}", arguments.workload));
        let mut load = Task::load(&arguments.workload, arguments.fill).map_err(about)?;
        // All drives get the same writes: those of segments say how large one is.
        if matches!(load.model, Model::LogStructuredFs | Model::Segments { .. }) && load.segment.is_none() {
            load.segment = contenders.iter().find_map(|contender| contender.segment);
        }
        let task = Task {
            load,
            seed: arguments.seed,
            warm_up: arguments.warm_up,
            drive_writes: arguments.drive_writes,
            queue_depth: arguments.queue_depth,
        };
        for contender in &contenders {
            task.check(&contender.settings).map_err(about)?;
        }
        Ok(Comparison { contenders, task, capacity })
    }

    /// Tries every drive; the first failure of the first drive that has one is told.
    pub fn measure(self, jobs: Option<u32>, live: &mut Live) -> Result<Findings, Failure> {
        let Comparison { contenders, task, capacity } = self;
        let mut tried: Vec<Option<Tried>> = contenders.iter().map(|_| None).collect();
        let mut failed: Option<(usize, Failure)> = None;
        crew::work(
            contenders.len(),
            crew::size(jobs, contenders.len()),
            |run, desk| task.run(&contenders[run], desk),
            |run, result| {
                match result {
                    Ok(one) => tried[run] = one,
                    Err(failure) => failed = Some((run, failure)),
                }
                if failed.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            },
            |done, under_way| {
                if live.is_due() {
                    live.show(&progress(&contenders, under_way, done, live.palette()));
                }
            },
        );
        live.clear();
        if let Some((_, failure)) = failed {
            return Err(failure);
        }
        let tried = tried.into_iter().map(|tried| tried.expect("no run failed or was stopped"));
        Ok(Findings { drives: contenders.into_iter().zip(tried).collect(), task, capacity })
    }
}

/// Drives of different size would not get the same writes.
fn same_capacity(contenders: &[Contender]) -> Result<ByteSize, Failure> {
    let first = &contenders[0];
    match contenders.iter().find(|contender| contender.capacity != first.capacity) {
        None => Ok(first.capacity),
        Some(other) => Err(Failure::bad_input(format_args!(
            "drive {} has capacity {}, and drive {} has {}: the same writes do not fit both",
            first.name, first.capacity, other.name, other.capacity
        ))
        .fix("say --capacity, which holds for all drives")),
    }
}

fn distinct_names(contenders: &[Contender]) -> Result<(), Failure> {
    for (index, contender) in contenders.iter().enumerate() {
        if contenders[..index].iter().any(|other| other.name == contender.name) {
            return Err(Failure::bad_input(format_args!("--drive {}: two drives have this name", contender.name))
                .fix("give one of them another, as cosmos:streams,name=mine"));
        }
    }
    Ok(())
}

fn progress(contenders: &[Contender], under_way: &[(usize, Stage)], done: usize, palette: Palette) -> Vec<String> {
    let line = |(run, stage): &(usize, Stage)| {
        let Stage { doing, share } = stage;
        let bar = palette.paint(Ink::Picture, &bar(*share, 24));
        format!("{doing:<10} {bar} {:>3.0}%  {}", (share * 100.0).min(100.0), contenders[*run].name)
    };
    let mut lines: Vec<String> = under_way.iter().map(line).collect();
    lines.push(format!("{done} of {} drives done", contenders.len()));
    lines
}

/// The one object that `--json` prints.
#[derive(Serialize)]
struct Object<'a> {
    workload: String,
    seed: u64,
    capacity_bytes: u64,
    warm_up_drive_writes: f64,
    drive_writes: f64,
    queue_depth: u32,
    drives: Vec<DriveObject<'a>>,
}

#[derive(Serialize)]
struct DriveObject<'a> {
    name: &'a str,
    profile: &'a str,
    /// Null of zones and segments, as are the next ones.
    over_provisioning: Option<f64>,
    victim: Option<String>,
    collection: Option<CollectionScope>,
    relocate_by: Option<RelocateBy>,
    #[serde(flatten)]
    zones: Option<ZonesMade>,
    collect_when_idle_ns: Option<Nanos>,
    map_memory: Option<String>,
    map_cache: Option<CachePolicy>,
    placement: Option<PlacementName>,
    binding: String,
    blocks_per_second: Option<f64>,
    erases: Erases,
    placement_statistics: &'a PlacementStatistics,
    blocks_verified: u64,
    #[serde(flatten)]
    figures: Figures,
}

/// Erases of a chunk in the measured phase.
#[derive(Serialize)]
struct Erases {
    min: u32,
    mean: f64,
    max: u32,
}

impl Findings {
    /// Every figure, a row for each drive.
    pub fn table(&self) -> Table {
        let made_by = Provenance::of_this_run();
        let columns = [("drive", "")].into_iter().chain(metrics::columns(&GROUPS));
        let columns = columns.chain(Provenance::COLUMNS.map(|name| (name, "")));
        let mut table = Table::new("compare", &columns.collect::<Vec<_>>());
        for (contender, tried) in &self.drives {
            let name = Cell::Text(contender.name.clone());
            let made_by = made_by.cells().map(|cell| Cell::Text(cell.to_owned()));
            table.row([name].into_iter().chain(metrics::row(&GROUPS, contender, tried)).chain(made_by).collect());
        }
        table
    }

    fn json(&self) -> impl Serialize + '_ {
        let Task { load, seed, warm_up, drive_writes, queue_depth } = &self.task;
        Object {
            workload: load.to_string(),
            seed: *seed,
            capacity_bytes: self.capacity.0,
            warm_up_drive_writes: *warm_up,
            drive_writes: *drive_writes,
            queue_depth: *queue_depth,
            drives: self.drives.iter().map(|(contender, tried)| DriveObject::of(contender, tried)).collect(),
        }
    }

    /// What all drives were put to, in one line.
    pub fn conditions(&self) -> String {
        let Task { load, seed, warm_up, drive_writes, queue_depth } = &self.task;
        format!(
            "{load} on {}: filled, {warm_up} drive writes to warm up, {drive_writes} measured; {queue_depth} requests at a \
             time, seed {seed}",
            self.capacity
        )
    }

    /// What is to be known of drives that are not what was asked for.
    pub fn notes(&self) -> impl Iterator<Item = String> + '_ {
        self.drives.iter().filter_map(|(contender, tried)| {
            if contender.settings.zones.is_some() {
                return None;
            }
            let note = contender.settings.drive.note_on(tried.measured.effective_over_provisioning)?;
            Some(format!("{}: {note}", contender.name))
        })
    }

    /// What each drive gains or loses against the first, a sentence each.
    pub fn verdicts(&self) -> impl Iterator<Item = String> + '_ {
        let (first, rest) = self.drives.split_first().expect("there are drives");
        rest.iter().map(move |drive| verdict(first, drive))
    }

    /// The page for people.
    fn page(&self, palette: Palette) -> String {
        let mut text = format!("{}\n", palette.paint(Ink::Bold, &self.conditions()));
        for verdict in self.verdicts() {
            _ = writeln!(text, "{verdict}");
        }
        for note in self.notes() {
            _ = writeln!(text, "{} {note}", palette.paint(Ink::Bad, "!"));
        }
        for group in &GROUPS {
            if let Some(table) = group.table(&self.drives) {
                _ = writeln!(text, "\n{}", palette.paint(Ink::Bold, group.title));
                for line in table.to_string().lines() {
                    _ = writeln!(text, "  {line}");
                }
            }
        }
        let verified: u64 = self.drives.iter().map(|(_, tried)| tried.blocks_verified).sum();
        _ = writeln!(
            text,
            "\nEvery drive got the same writes. {} blocks were read and compared, none was wrong.",
            thousands(verified)
        );
        text
    }
}

/// Nearer to each other than this share figures are the same.
const SAME: f64 = 0.005;

/// `streams: 33 % fewer programs, 1.7 times the throughput of vanilla`.
fn verdict(first: &(Contender, Tried), other: &(Contender, Tried)) -> String {
    let programs = other.1.measured.statistics.waf() / first.1.measured.statistics.waf() - 1.0;
    let programs = match programs {
        _ if programs.abs() < SAME => "as many programs".to_owned(),
        fewer if fewer < 0.0 => format!("{:.0} % fewer programs", -fewer * 100.0),
        more => format!("{:.0} % more programs", more * 100.0),
    };
    let speed = other.1.blocks_per_second().zip(first.1.blocks_per_second()).map(|(other, first)| other / first);
    let speed = match speed {
        None => String::new(),
        Some(ratio) if (ratio - 1.0).abs() < SAME => ", the same throughput".to_owned(),
        Some(ratio) if (0.9..1.1).contains(&ratio) => format!(", {ratio:.2} times the throughput"),
        Some(ratio) => format!(", {ratio:.1} times the throughput"),
    };
    format!("{}: {programs}{speed}, against {}", other.0.name, first.0.name)
}

impl<'a> DriveObject<'a> {
    fn of(contender: &'a Contender, tried: &'a Tried) -> DriveObject<'a> {
        let drive = &contender.settings.drive;
        let has_blocks = contender.zones.is_none();
        let (min, max) = tried.erases_range();
        DriveObject {
            name: &contender.name,
            profile: &contender.settings.profile.name,
            over_provisioning: has_blocks.then(|| drive.over_provisioning.as_f64()),
            victim: has_blocks.then(|| drive.victim.to_string()),
            collection: has_blocks.then_some(drive.collection),
            relocate_by: has_blocks.then_some(drive.relocate_by),
            zones: contender.zones.clone(),
            collect_when_idle_ns: drive.collect_when_idle,
            map_memory: drive.map_memory.map(|budget| budget.to_string()),
            map_cache: drive.map_memory.map(|_| drive.map_cache.unwrap_or_default()),
            placement: has_blocks.then_some(drive.placement),
            binding: contender.binding.to_string(),
            blocks_per_second: tried.blocks_per_second(),
            erases: Erases { min, mean: tried.erases_mean(), max },
            placement_statistics: &tried.measured.statistics.placement,
            blocks_verified: tried.blocks_verified,
            figures: tried.figures(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use expect_test::{Expect, expect};
    use std::process::ExitCode;

    fn prepare(line: &str) -> Result<Comparison, Failure> {
        let words = ["openftl", "compare"].into_iter().chain(line.split_whitespace());
        match cli::Cli::try_parse_from(words).unwrap().command {
            cli::Command::Compare(arguments) => Comparison::prepare(&arguments),
            other => panic!("{other:?}"),
        }
    }

    fn compare(line: &str, jobs: u32) -> Result<Findings, Failure> {
        prepare(line)?.measure(Some(jobs), &mut Live::silent())
    }

    const FOUR: &str = "--drive cosmos:none --drive cosmos:learned --drive cosmos:streams --drive cosmos:flash-alloc \
                        --capacity 32MiB --drive-writes 1 --warm-up 1";

    #[test]
    fn the_same_seed_gives_the_same_figures_whatever_the_jobs_and_every_drive_gets_the_same_writes() {
        for workload in ["writers:4,fill=80%", "uniform,reads=30%", "double-write"] {
            let csv = |seed, jobs| {
                let line = format!("{FOUR} --workload {workload} --seed {seed}");
                compare(&line, jobs).unwrap_or_else(|failure| panic!("{line}: {failure}")).table().csv()
            };
            assert_eq!(csv(1, 1), csv(1, 3), "{workload}");
            assert_ne!(csv(1, 1), csv(2, 1), "{workload}");
            let findings = compare(&format!("{FOUR} --workload {workload}"), 2).unwrap();
            let verdicts: Vec<String> = findings.verdicts().collect();
            assert_eq!(verdicts.len(), 3);
            for (verdict, (contender, _)) in verdicts.iter().zip(&findings.drives[1..]) {
                assert!(verdict.starts_with(&format!("{}: ", contender.name)), "{verdict}");
                assert!(verdict.contains(" programs, ") && verdict.ends_with(" against cosmos:none"), "{verdict}");
            }
            let host: Vec<u64> =
                findings.drives.iter().map(|(_, tried)| tried.measured.statistics.host_blocks_written).collect();
            assert!(host[0] >= 8192 && host.iter().all(|blocks| *blocks == host[0]), "{workload}: {host:?}");
            for (Contender { name, .. }, Tried { measured, .. }) in &findings.drives {
                let statistics = &measured.statistics;
                assert_eq!(statistics.programmed[0], host[0], "{name}: all that was written counts, and no more");
                let last = measured.samples.last().unwrap();
                assert!(measured.samples.len() > 16 && last.written == host[0], "{name}: {last:?}");
                assert!(
                    measured
                        .samples
                        .is_sorted_by(|one, next| one.seconds <= next.seconds && one.written <= next.written)
                );
            }
        }
    }

    #[test]
    fn only_who_heeds_objects_is_told_of_them() {
        let findings = compare(&format!("{FOUR} --workload writers:4"), 2).unwrap();
        let told: Vec<bool> =
            findings.drives.iter().map(|(_, tried)| tried.measured.statistics.placement.objects > 0).collect();
        assert_eq!(told, [false, false, false, true]);
        let blocks = |drive: usize| findings.drives[drive].1.measured.statistics.placement.blocks.len();
        assert!(blocks(0) <= 1 && blocks(2) > 4, "streams are told with handles");
        let page = findings.page(Palette::PLAIN);
        for words in ["cosmos:flash-alloc", "by-object:8", "relocation WAF", "p99.99", "announced"] {
            assert!(page.contains(words), "{words}: {page}");
        }
        assert!(!page.contains("Latency of reads"), "nothing was read");
    }

    #[test]
    fn the_object_has_the_fields_that_scripts_rely_on() {
        let findings = compare(&format!("{FOUR} --workload uniform,reads=50%"), 2).unwrap();
        let object = serde_json::to_value(findings.json()).unwrap();
        assert_eq!(object["drives"].as_array().unwrap().len(), 4);
        let drive = &object["drives"][2];
        for field in ["name", "placement", "binding", "profile", "trace_hash"] {
            assert!(drive[field].is_string(), "{field}: {drive}");
        }
        for field in ["waf", "relocation_waf", "blocks_per_second", "iops", "virtual_seconds"] {
            assert!(drive[field].as_f64().is_some_and(|value| value > 0.0), "{field}: {drive}");
        }
        for kind in ["read_latency_ns", "write_latency_ns"] {
            for field in ["mean", "p50", "p99", "p999", "p9999", "max"] {
                assert!(drive[kind][field].is_u64(), "{kind}, {field}: {drive}");
            }
        }
        assert!(drive["erases"]["max"].is_u64() && drive["placement_statistics"]["unplaced"].is_u64(), "{drive}");
    }

    #[test]
    fn a_drive_that_wears_out_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let profile = folder.path().join("frail.toml");
        let toml = include_str!("../../../profiles/tiny.toml").replace("endurance = 3000", "endurance = 4");
        std::fs::write(&profile, toml).unwrap();
        let line = format!(
            "--drive tiny --drive {},name=frail --capacity 8MiB --workload uniform --drive-writes 40",
            profile.display()
        );
        let failure = compare(&line, 2).err().expect("it wears out");
        assert!(failure.to_string().contains("drive frail: it turned read-only"), "{failure}");
        assert_eq!(failure.exit_code(), ExitCode::from(1));
    }

    #[track_caller]
    fn check(line: &str, expected: Expect) {
        let failure = prepare(line).err().expect("it is refused");
        assert_eq!(failure.exit_code(), ExitCode::from(2));
        expected.assert_eq(&failure.to_string());
    }

    #[test]
    fn what_cannot_be_is_refused_before_anything_runs() {
        check(
            "--drive cosmos --workload zipfian",
            expect![[r#"
            error: --workload zipfian: `zipfian` is no load (did you mean zipf?)
              fix: write uniform, sequential, zipf, hot-cold, writers, lsm, log-structured-fs, segments, double-write, tenants or trace"#]],
        );
        check(
            "--drive cosmos --workload zipf:nine",
            expect!["error: --workload zipf:nine: zipf:nine: write an exponent from 0 to 8, as 0.99"],
        );
        check(
            "--drive cosmos --workload uniform,reads=100%",
            expect![[r#"
            error: --workload uniform,reads=100%: nothing is ever written
              fix: write less than reads=100%: what is compared is measured by what is written"#]],
        );
        check(
            "--drive cosmos --workload tenants:lsm*2 --fill 50%",
            expect![[r#"
            error: --workload tenants:lsm*2: fill 50%: each tenant of a drive has its own
              fix: write it behind each of them, as tenants:lsm,fill=70%+uniform,fill=70%"#]],
        );
        check(
            "--drive cosmos --workload lsm --fill 99%",
            expect!["error: --workload lsm: fill=99%: write a share from 20% to 95%"],
        );
        check(
            "--drive cosmos --workload lsm --capacity 8MiB",
            expect![[r#"
            error: --workload lsm: lsm:4 needs 16 MiB at least, and has 8 MiB here
              fix: make the drive larger"#]],
        );
        check(
            "--drive cosmos --workload trace:nowhere.csv",
            expect![[r#"
            error: --workload trace:nowhere.csv: trace nowhere.csv: No such file or directory (os error 2)
              fix: name a file that can be read"#]],
        );
        check(
            "--drive cosmos --drive cosmos --workload lsm",
            expect![[r#"
            error: --drive cosmos: two drives have this name
              fix: give one of them another, as cosmos:streams,name=mine"#]],
        );
        check(
            "--drive cosmos:no --workload lsm",
            expect![[r#"
                error: --drive cosmos:no: placement=no: "no" is no placement: choose none, hot-cold, learned, streams, streams-kept, fdp, fdp-persistent or flash-alloc
                  fix: write one of them"#]],
        );
        check(
            "--drive cosmos --workload lsm --capacity 0",
            expect![[r#"
            error: drive cosmos: capacity = 0: a drive has at least one block of 4 KiB
              fix: choose a size like 512MiB or 8GiB"#]],
        );
    }

    #[test]
    fn drives_of_different_size_are_refused_unless_the_size_is_said() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("small.toml");
        std::fs::write(&path, "[media]\ncapacity = \"16MiB\"\n").unwrap();
        let line = format!("--drive cosmos --drive {} --workload uniform", path.display());
        let failure = prepare(&line).err().expect("one has 1 GiB, the other 16 MiB");
        assert!(failure.to_string().contains("1 GiB") && failure.to_string().contains("16 MiB"), "{failure}");
        assert_eq!(prepare(&format!("{line} --capacity 32MiB")).unwrap().capacity, ByteSize(32 << 20));
    }
}
