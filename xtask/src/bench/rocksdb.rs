//! RocksDB's own cost: db_bench on a table drive of instant media inside its process, against RocksDB's file system on tmpfs.
//!
//! Both keep their data in this machine's memory, and neither waits for anything, so that what is left is software. They take turns,
//! each time with a new drive and folder; medians are compared. Each is filled four times: what it costs a machine to find memory for the
//! first fill is told apart.

use super::Tool;
use super::figure::{Figure, Goal, Unmeasured, median};
use super::nbd::Folder;
use crate::shell;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Turns of each.
const ROUNDS: usize = 5;
/// Keys, with values of 1 KiB.
const KEYS: &str = "400000";
/// What is measured, and how fast the drive has to be against tmpfs.
const MEASURED: [(&str, Option<f64>); 3] = [("first fillseq", None), ("fillseq", Some(0.9)), ("readrandom", Some(1.0))];

/// As in the paper: keys of 16 bytes, no compression, no cache.
const LOAD: [&str; 8] = [
    "--benchmarks=fillseq,fillseq,fillseq,fillseq,flush,waitforcompaction,readrandom",
    "--key_size=16",
    "--value_size=1024",
    "--compression_type=none",
    "--cache_size=0",
    "--bloom_bits=10",
    "--seed=1",
    "--histogram=false",
];

/// The same load on both.
pub fn measure(_: &Tool) -> Result<Figure, Unmeasured> {
    let programs = programs()?;
    let memory = Path::new("/dev/shm");
    if !memory.is_dir() {
        return Err(Unmeasured::Missing("there is no tmpfs at /dev/shm".to_owned()));
    }
    let folder = Folder::new_in(memory)?;
    let drive = folder.path.join("drive.toml");
    let text = "[media]\nprofile = \"cosmos\"\ncapacity = \"1GiB\"\nstore = \"ram\"\ntiming = \"instant\"\n\
                [ftl]\nkind = \"tables\"\nlog_area = \"512MiB\"\n";
    std::fs::write(&drive, text).map_err(|error| format!("cannot write {}: {error}", drive.display()))?;
    let database = folder.path.join("db");
    let on_drive = || {
        let mut command = db_bench(&programs);
        command.env("LD_PRELOAD", programs.join("libopenftl_rocksdb.so"));
        command.arg(format!("--fs_uri=openftl://{}", drive.display())).arg("--db=/db");
        command
    };
    let on_tmpfs = || {
        let mut command = db_bench(&programs);
        command.arg(format!("--db={}", database.display()));
        command
    };
    let mut figure = Figure { commands: vec![shell::line(&on_drive()), shell::line(&on_tmpfs())], ..Figure::default() };
    let mut rates: [[Vec<f64>; 3]; 2] = Default::default();
    for _ in 0..ROUNDS {
        for (of, mut command) in [(0, on_drive()), (1, on_tmpfs())] {
            for (rates, rate) in rates[of].iter_mut().zip(run(&mut command)?) {
                rates.push(rate);
            }
            if of == 1 {
                std::fs::remove_dir_all(&database).map_err(|error| format!("{}: {error}", database.display()))?;
            }
        }
    }
    let [ours, theirs] = rates;
    for ((name, goal), (ours, theirs)) in MEASURED.into_iter().zip(ours.into_iter().zip(theirs)) {
        let ratios: Vec<f64> = ours.iter().zip(&theirs).map(|(ours, theirs)| ours / theirs).collect();
        figure.value(format!("table drive: {name}"), median(ours), "ops/s", None);
        figure.value(format!("tmpfs: {name}"), median(theirs), "ops/s", None);
        figure.value(format!("table drive to tmpfs: {name}"), median(ratios), "", goal.map(Goal::AtLeast));
    }
    figure.notes.push(format!("Medians of {ROUNDS} turns each, taken alternately; ratios are those of neighbours."));
    Ok(figure)
}

/// The folder that `cargo xtask rocksdb` leaves.
fn programs() -> Result<PathBuf, Unmeasured> {
    let named = std::env::var_os(crate::rocksdb::VARIABLE).map(PathBuf::from);
    let folder = named.map_or_else(|| shell::target_directory().map(|target| target.join("rocksdb")), Ok)?;
    if folder.join("db_bench").exists() && folder.join("libopenftl_rocksdb.so").exists() {
        return Ok(folder);
    }
    Err(Unmeasured::Missing(format!("{} has no RocksDB with the plugin (`cargo xtask rocksdb`)", folder.display())))
}

fn db_bench(programs: &Path) -> Command {
    let mut command = Command::new(programs.join("db_bench"));
    command.args(LOAD).arg(format!("--num={KEYS}")).env("LD_LIBRARY_PATH", programs).stdin(Stdio::null());
    command
}

/// Operations a second of what is measured.
fn run(command: &mut Command) -> Result<[f64; 3], Unmeasured> {
    let line = shell::line(command);
    let output = command.output().map_err(|error| format!("`{line}` does not start: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(Unmeasured::Failed(format!("`{line}` ended with {}: {said}", output.status)));
    }
    match (&rates(&text, "fillseq")[..], &rates(&text, "readrandom")[..]) {
        ([first, .., last], [random]) => Ok([*first, *last, *random]),
        _ => Err(Unmeasured::Failed(format!("`{line}` printed no rates of fills and of reads: {text}"))),
    }
}

/// Of lines like `fillseq : 22.880 micros/op 43524 ops/sec …`.
fn rates(text: &str, name: &str) -> Vec<f64> {
    let lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<&str>>());
    let of_name = lines.filter(|words| words.first().is_some_and(|word| word.trim_end_matches(':') == name));
    let rate = |words: Vec<&str>| {
        let at = words.iter().position(|word| *word == "ops/sec")?;
        words.get(at.checked_sub(1)?)?.parse().ok()
    };
    of_name.filter_map(rate).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rates_of_a_benchmark_are_found_by_its_name() {
        let text = "fillseq      :      22.880 micros/op 43524 ops/sec 4.319 seconds 188000 operations;   43.2 MB/s\n\
                    fillseq      :      11.440 micros/op 87048 ops/sec 2.160 seconds 188000 operations;   86.4 MB/s\n\
                    readrandom   :       4.045 micros/op 247218 ops/sec 7.2 seconds 5000 operations;    0.7 MB/s\n";
        assert_eq!(rates(text, "fillseq"), [43_524.0, 87_048.0]);
        assert_eq!((rates(text, "readrandom"), rates(text, "readseq")), (vec![247_218.0], vec![]));
    }
}
