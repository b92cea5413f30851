//! A real RocksDB, as `cargo xtask rocksdb` leaves it: its `db_bench` and our `replay`, as processes of their own, and what they print.

use openftl_drive::plugin::{PLUGIN, VARIABLE};
use openftl_experiments::ExperimentError;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The folder with RocksDB's programs and the plugin.
pub struct RocksDb {
    folder: PathBuf,
    /// Somebody wants an end of it. db_bench hears of it by itself, and what it runs on is taken down before this process ends.
    /// In the folder, or installed: Debian's is.
    db_bench: PathBuf,
    is_told_to_stop: Arc<AtomicBool>,
}

/// The program for the plugin in `folder`, if there is one.
fn db_bench_with(folder: &Path) -> Option<PathBuf> {
    let installed = std::env::var_os("PATH").unwrap_or_default();
    std::iter::once(folder.to_owned())
        .chain(std::env::split_paths(&installed))
        .map(|folder| folder.join("db_bench"))
        .find(|file| file.is_file())
}

impl RocksDb {
    /// The one that the variable names, or the one in the folder where this program was built.
    ///
    /// # Errors
    /// If it is not there, with a word on how to make it.
    pub fn find() -> Result<RocksDb, ExperimentError> {
        let is_there = |folder: &PathBuf| folder.join(PLUGIN).exists() && db_bench_with(folder).is_some();
        let fix = "make it with `cargo xtask rocksdb`";
        if let Some(folder) = std::env::var_os(VARIABLE).map(PathBuf::from) {
            return match is_there(&folder) {
                true => RocksDb::of(folder),
                false => Err(ExperimentError::Host(format!(
                    "{VARIABLE} is {}, where there is no db_bench with {PLUGIN}: {fix}",
                    folder.display()
                ))),
            };
        }
        let program = std::env::current_exe().map_err(of_host)?;
        let found = program.ancestors().skip(1).map(|folder| folder.join("rocksdb")).find(is_there);
        let found = found.ok_or_else(|| {
            ExperimentError::Host(format!(
                "there is no RocksDB with its plugin beside {}: {fix}, or let {VARIABLE} name its folder",
                program.display()
            ))
        })?;
        RocksDb::of(found)
    }

    fn of(folder: PathBuf) -> Result<RocksDb, ExperimentError> {
        let is_told_to_stop = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(&is_told_to_stop)).map_err(of_host)?;
        }
        let db_bench = db_bench_with(&folder).ok_or_else(|| of_host("db_bench is gone"))?;
        Ok(RocksDb { folder, db_bench, is_told_to_stop })
    }

    /// What it calls itself.
    pub fn version(&self) -> Result<String, ExperimentError> {
        let output = self.program().arg("--version").output().map_err(of_host)?;
        let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        Ok(text.rsplit(' ').next().unwrap_or_default().to_owned())
    }

    /// The plugin.
    pub fn plugin(&self) -> PathBuf {
        self.folder.join(PLUGIN)
    }

    /// Its db_bench, which is to print what it counts.
    pub fn db_bench(&self) -> Command {
        let mut command = self.program();
        command.args(["--statistics", "--histogram"]);
        command
    }

    /// The program that replays requests for keys, as `cargo xtask rocksdb` leaves it beside the plugin.
    pub fn replay(&self) -> Result<Command, ExperimentError> {
        let replay = self.folder.join("replay");
        match replay.is_file() {
            true => Ok(self.of_folder(&replay)),
            false => Err(ExperimentError::Host(format!(
                "there is no {}: `cargo xtask rocksdb` makes it now, and did not before",
                replay.display()
            ))),
        }
    }

    fn program(&self) -> Command {
        self.of_folder(&self.db_bench)
    }

    fn of_folder(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env("LD_LIBRARY_PATH", &self.folder);
        command
    }

    /// Runs it to its end.
    pub fn run(&self, mut command: Command) -> Result<Bench, ExperimentError> {
        let before = children_cpu_seconds()?;
        self.go_on()?;
        let output = command.stdin(Stdio::null()).output().map_err(of_host)?;
        self.go_on()?;
        let cpu_seconds = children_cpu_seconds()? - before;
        let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        if !output.status.success() {
            let last = errors.trim().rsplit(['\n', '\r']).next().unwrap_or_default();
            let name = Path::new(command.get_program()).file_name().unwrap_or_default().to_string_lossy().into_owned();
            return Err(ExperimentError::Host(format!("{name} ended with {}: {last}", output.status)));
        }
        Ok(Bench {
            phases: phases(&text),
            tickers: tickers(&text),
            stretches: stretches(&errors),
            drive: serde_json::Value::Null,
            cpu_seconds,
        })
    }

    /// An error if somebody wants an end of it.
    fn go_on(&self) -> Result<(), ExperimentError> {
        match self.is_told_to_stop.load(Ordering::Relaxed) {
            true => Err(ExperimentError::Host("stopped; everything is taken down again".to_owned())),
            false => Ok(()),
        }
    }
}

/// What a run of db_bench found.
#[derive(Clone, Debug)]
pub struct Bench {
    pub(super) phases: Vec<Phase>,
    pub(super) tickers: HashMap<String, u64>,
    pub(super) stretches: Vec<Stretch>,
    /// The drive's own statistics.
    pub drive: serde_json::Value,
    /// CPU time of the process, and of those that its drive needs.
    pub cpu_seconds: f64,
}

impl Bench {
    /// The benchmark of that name.
    pub fn phase(&self, name: &str) -> Result<&Phase, ExperimentError> {
        let found = self.phases.iter().find(|phase| phase.name == name);
        found.ok_or_else(|| ExperimentError::Host(format!("RocksDB's program printed no result of {name}")))
    }

    /// One of RocksDB's counters.
    pub fn ticker(&self, name: &str) -> u64 {
        self.tickers.get(name).copied().unwrap_or(0)
    }

    /// Operations of all benchmarks.
    pub fn operations(&self) -> u64 {
        self.phases.iter().map(|phase| phase.operations).sum()
    }

    /// Seconds since the beginning, and operations a second of all threads around then, in so many steps: of a benchmark that was told to
    /// print how far its threads are, with `--stats_interval`.
    pub fn over_time(&self, steps: usize) -> Vec<(f64, f64)> {
        let end = self.stretches.iter().map(|stretch| stretch.end).fold(0.0, f64::max);
        let step = end / steps as f64;
        let operations = |from: f64| -> f64 {
            self.stretches.iter().map(|stretch| stretch.operations_between(from, from + step)).sum()
        };
        let from = (0..steps).map(|number| number as f64 * step);
        from.filter(|_| step > 0.0).map(|from| (from + step / 2.0, operations(from) / step)).collect()
    }

    /// A count of the drive.
    pub fn count(&self, name: &str) -> f64 {
        self.drive.pointer(name).and_then(serde_json::Value::as_f64).unwrap_or(f64::NAN)
    }
}

/// One benchmark of a run.
#[derive(Clone, PartialEq, Debug)]
pub struct Phase {
    /// Its name.
    pub name: String,
    /// Operations of all threads a second.
    pub rate: f64,
    /// Operations.
    pub operations: u64,
    /// 50 %, 99 % and 99.9 % of the operations were done within so many microseconds.
    pub percentiles: [f64; 3],
}

/// `fillseq : 22.880 micros/op 43524 ops/sec 4.319 seconds 188000 operations; …`, and its first percentiles below.
fn phases(text: &str) -> Vec<Phase> {
    let mut phases: Vec<Phase> = Vec::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let before = |unit: &str| {
            let at = words.iter().position(|word| *word == unit)?;
            words[at.checked_sub(1)?].parse::<f64>().ok()
        };
        if let (Some(name), Some(rate), Some(operations)) = (words.first(), before("ops/sec"), before("operations;")) {
            let name = name.trim_end_matches(':').to_owned();
            phases.push(Phase { name, rate, operations: operations as u64, percentiles: [f64::NAN; 3] });
        } else if let (Some(phase), Some(&"Percentiles:")) = (phases.last_mut(), words.first())
            && phase.percentiles[0].is_nan()
        {
            let after = |name: &str| {
                let at = words.iter().position(|word| *word == name)?;
                words.get(at + 1)?.parse::<f64>().ok()
            };
            phase.percentiles = ["P50:", "P99:", "P99.9:"].map(|name| after(name).unwrap_or(f64::NAN));
        }
    }
    phases
}

/// `rocksdb.bytes.written COUNT : 20960000`.
fn tickers(text: &str) -> HashMap<String, u64> {
    let lines = text.lines().filter_map(|line| line.split_once(" COUNT : "));
    lines.filter_map(|(name, count)| Some((name.to_owned(), count.trim().parse().ok()?))).collect()
}

/// What one thread did, evenly as far as is known, from one time to another: seconds since it began.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Stretch {
    begin: f64,
    end: f64,
    operations: f64,
}

impl Stretch {
    fn operations_between(self, from: f64, to: f64) -> f64 {
        let shared = self.end.min(to) - self.begin.max(from);
        if shared > 0.0 { self.operations * shared / (self.end - self.begin) } else { 0.0 }
    }
}

/// `… ... thread 0: (1000,3000) ops and (2000.0,2500.0) ops/second in (0.500000,1.200000) seconds`: since the last such line, since the
/// beginning.
fn stretches(text: &str) -> Vec<Stretch> {
    let of = |line: &str| {
        let (_, rest) = line.split_once("... thread ")?;
        let mut pairs = rest.split('(').skip(1).filter_map(|pair| pair.split_once(')')?.0.split_once(','));
        let operations = pairs.next()?.0.parse().ok()?;
        let (since_last, end) = pairs.nth(1)?;
        let end: f64 = end.parse().ok()?;
        Some(Stretch { begin: end - since_last.parse::<f64>().ok()?, end, operations })
    };
    text.split(['\n', '\r']).filter_map(of).collect()
}

/// CPU time of all child processes that have ended and been waited for.
fn children_cpu_seconds() -> Result<f64, ExperimentError> {
    cpu_seconds("/proc/self/stat", [16, 17])
}

/// CPU time in two fields of a file as in proc_pid_stat(5): 14 and 15 are the process's own, in user mode and in the kernel; 16 and 17
/// those of its children.
pub fn cpu_seconds(file: &str, fields: [usize; 2]) -> Result<f64, ExperimentError> {
    let text = std::fs::read_to_string(file).map_err(of_host)?;
    // The second field is a name in parentheses, and may have spaces.
    let words: Vec<&str> = text.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks: u64 = fields.iter().filter_map(|field| words.get(field - 3)?.parse::<u64>().ok()).sum();
    Ok(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

pub fn of_host(error: impl std::fmt::Display) -> ExperimentError {
    ExperimentError::Host(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRINTED: &str = "\
fillseq      :      22.880 micros/op 43524 ops/sec 4.319 seconds 188000 operations;   43.2 MB/s
Microseconds per write:
Percentiles: P50: 0.80 P75: 1.62 P99: 5.63 P99.9: 50.35 P99.99: 33242.86
readrandom   :    1445.043 micros/op 692 ops/sec 7.225 seconds 5000 operations;    0.7 MB/s (5000 of 5000 found)
Percentiles: P50: 891.23 P75: 1227.17 P99: 9539.06 P99.9: 20800.00 P99.99: 28010.00
Percentiles: P50: 1.00 P75: 1.00 P99: 1.00 P99.9: 1.00 P99.99: 1.00
rocksdb.bytes.written COUNT : 20960000
rocksdb.db.get.micros P50 : 1.0 P95 : 2.0 COUNT : 7 SUM : 9
";

    #[test]
    fn each_benchmark_has_its_rate_and_its_own_percentiles() {
        let found = phases(PRINTED);
        assert_eq!(found.iter().map(|phase| phase.name.as_str()).collect::<Vec<_>>(), ["fillseq", "readrandom"]);
        assert_eq!((found[0].rate, found[0].operations), (43524.0, 188_000));
        assert_eq!((found[0].percentiles, found[1].percentiles), ([0.8, 5.63, 50.35], [891.23, 9539.06, 20800.0]));
    }

    #[test]
    fn counters_are_found_by_name() {
        assert_eq!(tickers(PRINTED).get("rocksdb.bytes.written"), Some(&20_960_000));
    }

    #[test]
    fn how_far_each_thread_is_makes_a_rate_over_time() {
        let printed = "\
2026/11/22-19:00:00 ... thread 0: (1000,1000) ops and (2000.0,2000.0) ops/second in (0.500000,0.500000) seconds
2026/11/22-19:00:01 ... thread 0: (1000,2000) ops and (2000.0,2000.0) ops/second in (0.500000,1.000000) seconds
... finished 3000 ops\r2026/11/22-19:00:02 ... thread 1: (500,500) ops and (250.0,250.0) ops/second in (2.000000,2.000000) seconds
";
        let stretches = stretches(printed);
        assert_eq!(stretches.len(), 3);
        assert_eq!(stretches[1], Stretch { begin: 0.5, end: 1.0, operations: 1000.0 });
        let drive = serde_json::Value::Null;
        let bench = Bench { phases: vec![], tickers: HashMap::new(), stretches, drive, cpu_seconds: 0.0 };
        assert_eq!(bench.over_time(2), [(0.5, 2250.0), (1.5, 250.0)]);
        assert_eq!(Bench { stretches: vec![], ..bench }.over_time(2), []);
    }
}
