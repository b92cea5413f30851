//! `openftl sweep`, as one types it: killed, resumed, refused.

use crate::drive::{openftl, run_openftl};
use crate::program::{Running, wait_for};
use serde_json::Value;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A sweep in a folder of its own.
struct Sweep {
    folder: TempDir,
}

impl Sweep {
    fn new(text: &str) -> Sweep {
        let sweep = Sweep { folder: tempfile::tempdir().expect("a temporary folder") };
        std::fs::write(sweep.path("sweep.toml"), text).unwrap();
        sweep
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn words(&self, out: &str) -> Vec<String> {
        let path = |name| self.path(name).to_str().expect("a path of plain letters").to_owned();
        vec!["sweep".to_owned(), path("sweep.toml"), "--out".to_owned(), path(out), "--json".to_owned()]
    }

    /// Runs it to its end.
    fn run(&self, out: &str) -> Value {
        let words = self.words(out);
        let ended = run_openftl(words.iter().map(String::as_str)).succeeded();
        serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended}"))
    }
}

fn rows(path: &Path) -> usize {
    std::fs::read(path).map_or(0, |bytes| bytes.iter().filter(|byte| **byte == b'\n').count().saturating_sub(1))
}

const RUNS: &str = "workload = \"uniform\"\ncapacity = \"32MiB\"\nwarm_up = 1\n[grid]\nplacement = [\"none\", \"learned\"]\n\
                    seed = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20]\n";

#[test]
fn a_sweep_that_is_killed_again_and_again_ends_with_the_file_of_one_that_was_not() {
    let sweep = Sweep::new(RUNS);
    let whole = sweep.run("whole.csv");
    assert_eq!((&whole["runs"], &whole["found_done"]), (&Value::from(40), &Value::from(0)));
    let out = sweep.path("killed.csv");
    for wanted in [1, 7, 23] {
        let words = sweep.words("killed.csv");
        let mut running = Running::start(&openftl(), words.iter().map(String::as_str));
        // It may end before it is killed, on a machine that is quick: then it has all rows.
        wait_for("rows of a sweep", || (rows(&out) >= wanted).then_some(()));
        running.kill();
        assert!(rows(&out) >= wanted);
        // What a crash may leave of a row.
        let torn = std::fs::read_to_string(&out).unwrap();
        std::fs::write(&out, format!("{torn}40,cosmos,lear")).unwrap();
    }
    let found = sweep.run("killed.csv");
    assert!(found["found_done"].as_u64().is_some_and(|done| done >= 23), "{found}");
    assert_eq!(std::fs::read_to_string(&out).unwrap(), std::fs::read_to_string(sweep.path("whole.csv")).unwrap());
    assert_eq!(found["rows"], whole["rows"]);
    assert_eq!(sweep.run("killed.csv")["found_done"], 40);
}

#[test]
fn what_cannot_be_swept_is_refused_with_key_value_and_fix() {
    let small = "workload = \"uniform\"\ncapacity = \"16MiB\"\nwarm_up = 0\ndrive_writes = 0.1\n";
    let sweep = Sweep::new(&format!("{small}[grid]\nseed = [1, 2]\n"));
    sweep.run("out.csv");
    let refused = |text: &str, said: &[&str]| {
        std::fs::write(sweep.path("sweep.toml"), text).unwrap();
        let before = std::fs::read(sweep.path("out.csv")).unwrap();
        let words = sweep.words("out.csv");
        let ended = run_openftl(words.iter().map(String::as_str)).failed().saying(said);
        assert_eq!(ended.status.code(), Some(2), "{ended}");
        assert_eq!(std::fs::read(sweep.path("out.csv")).unwrap(), before, "the file is left alone");
    };
    refused(&format!("{small}[grid]\nseed = [3, 4]\n"), &["out.csv", "line 2", "another sweep", "fix: name another"]);
    refused(&format!("{small}placment = \"none\"\n"), &["sweep.toml", "placment", "fix: write"]);
    refused(&format!("{small}[grid]\nplacement = [\"nun\"]\n"), &["sweep.toml", "grid.placement[0]", "nun", "fix:"]);
    refused(&format!("{small}[[run]]\nseed = \"one\"\n"), &["sweep.toml", "run[0].seed", "one", "fix: write"]);
    refused("workload = uniform\n", &["sweep.toml", "line 1", "fix: correct"]);
    refused("capacity = \"16MiB\"\n", &["sweep.toml", "workload", "missing", "fix:"]);
    let ended = run_openftl(["sweep", "nowhere.toml"]).failed().saying(&["nowhere.toml", "no such file", "fix: name"]);
    assert_eq!(ended.status.code(), Some(2), "{ended}");
}
