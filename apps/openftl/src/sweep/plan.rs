//! What is to be run: a TOML file whose list and grid give many runs.
//!
//! ```toml
//! workload = "writers:8"          # what holds for all runs
//! capacity = "64MiB"
//!
//! [grid]                          # every combination of these, the last one changing soonest
//! placement = ["none", "streams"]
//! seed = [1, 2, 3]
//!
//! [[run]]                         # each with the whole grid; left out: the grid once
//! workload = "writers:8,fill=90%"
//! ```

use crate::compare::CAPACITY_DEFAULT;
use crate::contender::{Contender, ContenderSpec};
use crate::failure::Failure;
use crate::metrics::{self, GROUPS};
use crate::provenance::Provenance;
use crate::small_file;
use crate::trial::{Task, Tried};
use openftl_core::units::Share;
use openftl_lab::figures::Column;
use openftl_parts::CollectionScope;
use std::collections::BTreeMap;
use std::path::Path;
use std::str::FromStr;
use toml::{Table, Value};

/// What can be set for a run, and the order in which a grid goes through it.
pub const KEYS: [&str; 19] = [
    "drive",
    "placement",
    "binding",
    "victim",
    "collection",
    "relocate_by",
    "collect_when_idle",
    "over_provisioning",
    "map_memory",
    "map_cache",
    "handles",
    "objects_max",
    "capacity",
    "workload",
    "fill",
    "queue_depth",
    "warm_up",
    "drive_writes",
    "seed",
];

/// Of [`KEYS`]: the options of a drive.
const OPTIONS: std::ops::Range<usize> = 1..11;

/// More than anybody waits for.
const RUNS_MAX: usize = 100_000;

/// Every run.
#[derive(Debug)]
pub struct Plan {
    /// In order.
    pub runs: Vec<Run>,
}

/// One run: a drive and what is done to it.
#[derive(Debug)]
pub struct Run {
    /// The drive.
    pub contender: Contender,
    /// What is done to it.
    pub task: Task,
    /// The values of [`KEYS`], defaults filled in.
    pub parameters: Vec<String>,
}

/// A value, and where it stands.
#[derive(Clone, PartialEq, Debug)]
struct Setting {
    place: String,
    text: String,
}

/// What is set for a run, by key.
type Settings = BTreeMap<&'static str, Setting>;

impl Plan {
    /// Reads a file. Files that it names are looked for from where the command is run.
    pub fn read(path: &Path) -> Result<Plan, Failure> {
        let text = small_file::read_text(path).map_err(|error| {
            Failure::bad_input(format_args!("{}: {error}", path.display()))
                .fix("name a TOML file that says what to run; docs/sweep.toml is one")
        })?;
        Plan::parse(&text).map_err(|failure| failure.about(path.display()))
    }

    /// Understands the text of a file, and checks every run.
    pub fn parse(text: &str) -> Result<Plan, Failure> {
        let mut table: Table = toml::from_str(text)
            .map_err(|error| Failure::bad_input(error.to_string().trim_end()).fix("correct the line"))?;
        table.remove("description");
        let grid = match table.remove("grid") {
            None => Table::new(),
            Some(Value::Table(grid)) => grid,
            Some(value) => return Err(no_table("grid", &value)),
        };
        let list = match table.remove("run") {
            None => vec![Table::new()],
            Some(Value::Array(runs)) => runs.into_iter().map(|run| table_of("run", run)).collect::<Result<_, _>>()?,
            Some(value) => return Err(no_table("run", &value)),
        };
        let common = settings("", &table)?;
        let axes = axes(&grid)?;
        let size = axes.iter().try_fold(list.len(), |size, (_, values)| size.checked_mul(values.len()));
        if size.is_none_or(|size| size > RUNS_MAX) {
            return Err(Failure::bad_input(format_args!("grid: there are more than {RUNS_MAX} runs"))
                .fix("take values out, or make several sweeps of it"));
        }
        let mut runs = Vec::new();
        for (index, run) in list.iter().enumerate() {
            let own = settings(&format!("run[{index}]."), run)?;
            if let Some((key, _)) = axes.iter().find(|(key, _)| own.contains_key(key)) {
                return Err(Failure::bad_input(format_args!("run[{index}].{key}: grid.{key} has values too"))
                    .fix("take it out of one of them"));
            }
            let mut settings = common.clone();
            settings.extend(own);
            combine(&axes, settings, &mut runs)?;
        }
        Ok(Plan { runs })
    }
}

/// Adds a run for each combination of the values along the axes.
fn combine(axes: &[(&'static str, Vec<Setting>)], settings: Settings, runs: &mut Vec<Run>) -> Result<(), Failure> {
    let Some(((key, values), rest)) = axes.split_first() else {
        let number = runs.len() + 1;
        runs.push(Run::new(&settings, number).map_err(|failure| failure.about(format_args!("run {number}")))?);
        return Ok(());
    };
    for value in values {
        let mut settings = settings.clone();
        settings.insert(key, value.clone());
        combine(rest, settings, runs)?;
    }
    Ok(())
}

fn no_table(key: &str, value: &Value) -> Failure {
    Failure::bad_input(format_args!("{key} = {value} is no table"))
        .fix("write [grid] with a list for each key, and [[run]] with a value for each")
}

fn table_of(key: &str, value: Value) -> Result<Table, Failure> {
    match value {
        Value::Table(table) => Ok(table),
        value => Err(no_table(key, &value)),
    }
}

fn known(place: &str) -> Result<&'static str, Failure> {
    let key = place.rsplit('.').next().unwrap_or(place);
    KEYS.into_iter().find(|known| *known == key).ok_or_else(|| {
        Failure::bad_input(format_args!("{place}: there is no such key"))
            .fix(format_args!("write {}, [grid] or [[run]]", KEYS.join(", ")))
    })
}

fn settings(before: &str, table: &Table) -> Result<Settings, Failure> {
    let mut settings = Settings::new();
    for (key, value) in table {
        let place = format!("{before}{key}");
        settings.insert(known(&place)?, Setting { text: scalar(&place, value)?, place });
    }
    Ok(settings)
}

/// The keys of a grid in their order, each with its values.
fn axes(grid: &Table) -> Result<Vec<(&'static str, Vec<Setting>)>, Failure> {
    let mut axes = Vec::new();
    for (key, value) in grid {
        let place = format!("grid.{key}");
        let Value::Array(values) = value else {
            return Err(Failure::bad_input(format_args!("{place} = {value} is no list"))
                .fix(format_args!("write {key} = [{value}], or put it above [grid]")));
        };
        if values.is_empty() {
            return Err(Failure::bad_input(format_args!("{place} = []: nothing would be run"))
                .fix("write a value, or take the key out"));
        }
        let setting = |(index, value)| {
            let place = format!("{place}[{index}]");
            Ok(Setting { text: scalar(&place, value)?, place })
        };
        let settings = values.iter().enumerate().map(setting).collect::<Result<Vec<_>, Failure>>()?;
        axes.push((known(&place)?, settings));
    }
    axes.sort_by_key(|(key, _)| KEYS.iter().position(|known| known == key));
    Ok(axes)
}

fn scalar(place: &str, value: &Value) -> Result<String, Failure> {
    match value {
        Value::String(text) if !text.contains(['\n', '\r']) => Ok(text.clone()),
        Value::Integer(number) => Ok(number.to_string()),
        Value::Float(number) => Ok(number.to_string()),
        value => Err(Failure::bad_input(format_args!("{place} = {value} is neither a word nor a number"))
            .fix("write a text in quotes, or a number")),
    }
}

impl Run {
    fn new(settings: &Settings, number: usize) -> Result<Run, Failure> {
        let mut spec: ContenderSpec = match settings.get("drive") {
            None => "cosmos".parse()?,
            Some(setting) => setting.text.parse().map_err(|failure: Failure| failure.about(setting.words()))?,
        };
        for key in &KEYS[OPTIONS] {
            if let Some(setting) = settings.get(key) {
                spec.set(&key.replace('_', "-"), &setting.text).map_err(|failure| failure.about(setting.words()))?;
            }
        }
        spec.name = Some(format!("of run {number}"));
        let contender = spec.gather(read(settings, "capacity", "64MiB")?, CAPACITY_DEFAULT)?;
        let fill: Option<Share> = read(settings, "fill", "80%")?;
        let workload = settings.get("workload").ok_or_else(|| {
            Failure::bad_input("workload is missing").fix("write what the host does, as workload = \"uniform\"")
        })?;
        let about = |failure: Failure| failure.about(workload.words());
        let task = Task {
            load: Task::load(&workload.text, fill).map_err(about)?,
            seed: read(settings, "seed", "1")?.unwrap_or(1),
            warm_up: drive_writes(settings, "warm_up", 0.0)?,
            drive_writes: drive_writes(settings, "drive_writes", f64::MIN_POSITIVE)?,
            queue_depth: queue_depth(settings)?,
        };
        task.check(&contender.settings).map_err(about)?;
        let parameters = parameters(&spec, &contender, &task, fill);
        Ok(Run { contender, task, parameters })
    }

    /// The row of this run, the `index`th from 0.
    pub fn row(&self, index: usize, tried: &Tried) -> Vec<String> {
        let figures = metrics::row(&GROUPS[1..], &self.contender, tried).map(|cell| cell.to_string());
        let hash = tried.measured.outcome.trace_hash.to_string();
        let made_by = Provenance::of_this_run();
        // The row says what ran; the command line says only where its file is.
        let [version, commit, _] = made_by.cells().map(str::to_owned);
        self.beginning(index).into_iter().chain(figures).chain([hash, version, commit]).collect()
    }

    /// The part of the row that is known before it has run.
    pub fn beginning(&self, index: usize) -> Vec<String> {
        [(index + 1).to_string()].into_iter().chain(self.parameters.iter().cloned()).collect()
    }
}

/// The names of a row's fields.
pub fn header() -> Vec<String> {
    let figures = metrics::columns(&GROUPS[1..]).map(|(name, unit)| Column { name, unit }.header());
    let [version, commit, _] = Provenance::COLUMNS;
    let last = ["trace_hash", version, commit];
    ["run"].into_iter().chain(KEYS).map(str::to_owned).chain(figures).chain(last.map(str::to_owned)).collect()
}

/// The values of [`KEYS`] as they hold, in that order.
fn parameters(spec: &ContenderSpec, contender: &Contender, task: &Task, fill: Option<Share>) -> Vec<String> {
    let drive = &contender.settings.drive;
    let collection = match drive.collection {
        CollectionScope::Marked => "marked",
        CollectionScope::DeviceWide => "device-wide",
    };
    vec![
        spec.source.clone(),
        drive.placement.to_string(),
        contender.binding.to_string(),
        drive.victim.to_string(),
        collection.to_owned(),
        drive.relocate_by.to_string(),
        drive.collect_when_idle.map_or_else(String::new, |silence| silence.to_string()),
        drive.over_provisioning.to_string(),
        drive.map_memory.map_or_else(String::new, |budget| budget.to_string()),
        drive.map_cache.map_or_else(String::new, |policy| policy.to_string()),
        drive.handles.to_string(),
        drive.objects_max.to_string(),
        drive.capacity.to_string(),
        task.load.to_string(),
        fill.map_or_else(String::new, |fill| fill.to_string()),
        task.queue_depth.to_string(),
        task.warm_up.to_string(),
        task.drive_writes.to_string(),
        task.seed.to_string(),
    ]
}

impl Setting {
    /// Where it stands, and what it is.
    fn words(&self) -> String {
        format!("{} = {:?}", self.place, self.text)
    }
}

fn read<T: FromStr>(settings: &Settings, key: &'static str, example: &str) -> Result<Option<T>, Failure> {
    let Some(setting) = settings.get(key) else { return Ok(None) };
    setting.text.parse().map(Some).map_err(|_| {
        Failure::bad_input(format_args!("{} cannot be understood", setting.words()))
            .fix(format_args!("write it like {example}"))
    })
}

fn drive_writes(settings: &Settings, key: &'static str, least: f64) -> Result<f64, Failure> {
    match read::<f64>(settings, key, "2 or 0.5")? {
        None => Ok(2.0),
        Some(value) if value.is_finite() && value >= least => Ok(value),
        Some(_) => Err(Failure::bad_input(format_args!("{} cannot be written", settings[key].words()))
            .fix("write capacities that are written, as 2 or 0.5")),
    }
}

fn queue_depth(settings: &Settings) -> Result<u32, Failure> {
    match read::<u32>(settings, "queue_depth", "32")? {
        None => Ok(32),
        Some(depth) if (1..=1024).contains(&depth) => Ok(depth),
        Some(_) => Err(Failure::bad_input(format_args!("{} is no queue depth", settings["queue_depth"].words()))
            .fix("write a number from 1 to 1024")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    #[test]
    fn a_list_and_a_grid_give_every_combination_and_the_last_key_changes_soonest() {
        let plan = Plan::parse(
            "workload = \"uniform\"\ncapacity = \"32MiB\"\nseed = 7\n[grid]\ndrive_writes = [1, 2]\nplacement = [\"none\", \
             \"fdp\"]\n[[run]]\nvictim = \"greedy\"\n[[run]]\nvictim = \"fifo\"\nworkload = \"writers:4\"\n",
        )
        .unwrap();
        let of = |key: &str| {
            let at = KEYS.iter().position(|known| *known == key).unwrap();
            plan.runs.iter().map(|run| run.parameters[at].as_str()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(of("placement"), "none none fdp fdp none none fdp fdp");
        assert_eq!(of("binding"), "none none by-kind:8 by-kind:8 none none by-kind:8 by-kind:8");
        assert_eq!(of("drive_writes"), "1 2 1 2 1 2 1 2");
        assert_eq!(of("victim"), "greedy greedy greedy greedy fifo fifo fifo fifo");
        assert_eq!(of("workload").matches("writers:4").count(), 4);
        assert_eq!((of("seed"), of("warm_up")), ("7 7 7 7 7 7 7 7".to_owned(), "2 2 2 2 2 2 2 2".to_owned()));
        assert_eq!(header().len(), plan.runs[0].beginning(0).len() + metrics::columns(&GROUPS[1..]).count() + 3);
        let header = header();
        assert!(header.iter().all(|name| header.iter().filter(|other| *other == name).count() == 1), "{header:?}");
    }

    #[test]
    fn the_example_of_the_documents_is_understood() {
        Plan::parse(include_str!("../../../../docs/sweep.toml")).unwrap_or_else(|failure| panic!("{failure}"));
    }

    #[track_caller]
    fn check(text: &str, expected: Expect) {
        expected.assert_eq(&Plan::parse(text).unwrap_err().to_string());
    }

    #[test]
    fn what_cannot_be_is_refused_with_key_value_and_fix() {
        let uniform = |rest: &str| format!("workload = \"uniform\"\ncapacity = \"32MiB\"\n{rest}");
        check(
            "seed = 1\n",
            expect![[r#"
            error: run 1: workload is missing
              fix: write what the host does, as workload = "uniform""#]],
        );
        check(
            "seed = 1\nsede = 2\n",
            expect![[r#"
            error: sede: there is no such key
              fix: write drive, placement, binding, victim, collection, relocate_by, collect_when_idle, over_provisioning, map_memory, map_cache, handles, objects_max, capacity, workload, fill, queue_depth, warm_up, drive_writes, seed, [grid] or [[run]]"#]],
        );
        check(
            "seed = \n",
            expect![[r#"
            error: TOML parse error at line 1, column 8
              |
            1 | seed = 
              |        ^
            string values must be quoted, expected literal string
              fix: correct the line"#]],
        );
        check(
            "workload = \"unifrom\"\n",
            expect![[r#"
            error: run 1: workload = "unifrom": `unifrom` is no load (did you mean uniform?)
              fix: write uniform, sequential, zipf, hot-cold, writers, lsm, log-structured-fs, segments, double-write, tenants or trace"#]],
        );
        check(
            &uniform("seed = \"one\"\n"),
            expect![[r#"
            error: run 1: seed = "one" cannot be understood
              fix: write it like 1"#]],
        );
        check(
            &uniform("drive_writes = -1\n"),
            expect![[r#"
            error: run 1: drive_writes = "-1" cannot be written
              fix: write capacities that are written, as 2 or 0.5"#]],
        );
        check(
            &uniform("queue_depth = 0\n"),
            expect![[r#"
            error: run 1: queue_depth = "0" is no queue depth
              fix: write a number from 1 to 1024"#]],
        );
        check(
            &uniform("fill = \"half\"\n"),
            expect![[r#"
            error: run 1: fill = "half" cannot be understood
              fix: write it like 80%"#]],
        );
        check(
            &uniform("[grid]\nplacement = [\"none\", \"stream\"]\n"),
            expect![[r#"
                error: run 2: grid.placement[1] = "stream": placement=stream: "stream" is no placement: choose none, hot-cold, learned, streams, streams-kept, fdp, fdp-persistent or flash-alloc
                  fix: write one of them"#]],
        );
        check(
            &uniform("[grid]\nplacement = \"none\"\n"),
            expect![[r#"
            error: grid.placement = "none" is no list
              fix: write placement = ["none"], or put it above [grid]"#]],
        );
        check(
            &uniform("[grid]\nseed = []\n"),
            expect![[r#"
            error: grid.seed = []: nothing would be run
              fix: write a value, or take the key out"#]],
        );
        check(
            &uniform("[grid]\nseed = [[1]]\n"),
            expect![[r#"
            error: grid.seed[0] = [1] is neither a word nor a number
              fix: write a text in quotes, or a number"#]],
        );
        check(
            &uniform("grid = 7\n"),
            expect![[r#"
            error: grid = 7 is no table
              fix: write [grid] with a list for each key, and [[run]] with a value for each"#]],
        );
        check(
            &uniform("[grid]\nseed = [1]\n[[run]]\nseed = 2\n"),
            expect![[r#"
            error: run[0].seed: grid.seed has values too
              fix: take it out of one of them"#]],
        );
        check(
            &uniform("[[run]]\n[[run]]\ndrive = \"cosmo\"\n"),
            expect![[r#"
            error: run 2: drive cosmo: profile cosmo: there is no profile `cosmo`; the builtin ones are bluedbm, cosmos, granby, qlc, tiny, westlake, znand
              fix: choose one of them, or name a TOML file like ./mine.toml"#]],
        );
        let many = format!("[{}]", vec!["1"; 400].join(", "));
        check(
            &uniform(&format!("[grid]\nseed = {many}\nhandles = {many}\n")),
            expect![[r#"
            error: grid: there are more than 100000 runs
              fix: take values out, or make several sweeps of it"#]],
        );
    }
}
