//! The scripts of SQLite's suite, in Tcl: which of them run on a store of pages, and why others do not.

use super::{RunStore, Suite};
use crate::shell;
use std::collections::{BTreeMap, BTreeSet};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long a script may take.
const TIME_MAX: Duration = Duration::from_secs(300);

/// Runs the scripts of the list, and compares the list with those that there are.
pub fn run(suite: &Suite) -> Result<(), String> {
    let file = shell::root().join("bindings/sqlite/tests/suite/scripts.txt");
    let text = std::fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
    let listed = read(&text).map_err(|error| format!("{}: {error}", file.display()))?;
    let folder = suite.source.join("test");
    let entries = std::fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let there: BTreeSet<String> = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.strip_suffix(".test").map(str::to_owned))
        .collect();
    let unknown: Vec<&String> = there.iter().filter(|name| !listed.contains_key(*name)).collect();
    if !unknown.is_empty() {
        println!("Scripts that the list does not have: {unknown:?}");
    }
    let (mut failed, mut ran, mut left_out) = (Vec::new(), 0, BTreeMap::new());
    for (name, reason) in listed.iter().filter(|(name, _)| there.contains(*name)) {
        match reason {
            Some(reason) => *left_out.entry(reason.as_str()).or_insert(0) += 1,
            None => {
                ran += 1;
                if let Err(error) = run_script(suite, name) {
                    println!("{name}: {error}");
                    failed.push(name.as_str());
                }
            }
        }
    }
    println!("{ran} scripts, of which {} failed; left out:", failed.len());
    left_out.iter().for_each(|(reason, count)| println!("  {count:>4} {reason}"));
    if failed.is_empty() { Ok(()) } else { Err(format!("scripts that fail: {}", failed.join(" "))) }
}

/// Runs a script with a new store.
fn run_script(suite: &Suite, name: &str) -> Result<(), String> {
    let RunStore { folder, environment } = suite.store(name)?;
    let log = folder.join("out");
    let broken = |error: std::io::Error| format!("{}: {error}", folder.display());
    let output = std::fs::File::create(&log).map_err(broken)?;
    let mut command = Command::new(suite.build.join("testfixture"));
    command.arg(suite.source.join("test").join(format!("{name}.test"))).envs(environment).current_dir(&folder);
    command.stdin(Stdio::null()).stderr(output.try_clone().map_err(broken)?).stdout(output);
    let (mut child, started) = (command.spawn().map_err(broken)?, Instant::now());
    let status = loop {
        if let Some(status) = child.try_wait().map_err(broken)? {
            break Some(status);
        }
        if started.elapsed() > TIME_MAX {
            child.kill().map_err(broken)?;
            child.wait().map_err(broken)?;
            break None;
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    let text = String::from_utf8_lossy(&std::fs::read(&log).map_err(broken)?).into_owned();
    let is_sound = status.is_some_and(|status| status.success()) && text.contains("0 errors out of");
    if is_sound {
        return std::fs::remove_dir_all(&folder).map_err(broken);
    }
    let last: Vec<&str> = text.lines().rev().take(8).collect();
    let how = status.map_or_else(|| format!("not ended after {} s", TIME_MAX.as_secs()), |status| status.to_string());
    Err(format!("{how}; {}\n  {}", log.display(), last.into_iter().rev().collect::<Vec<_>>().join("\n  ")))
}

/// The scripts of a list; those with a reason do not run.
fn read(text: &str) -> Result<BTreeMap<String, Option<String>>, String> {
    let mut listed = BTreeMap::new();
    let mut reason = None;
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(section) = line.strip_prefix('[') {
            let section = section.strip_suffix(']').ok_or_else(|| format!("line {}: no ] at the end", number + 1))?;
            reason = Some(if section == "run" { None } else { Some(section.to_owned()) });
            continue;
        }
        let reason = reason.clone().ok_or_else(|| format!("line {}: a section comes first: [run]", number + 1))?;
        for name in line.split_whitespace() {
            if listed.insert(name.to_owned(), reason.clone()).is_some() {
                return Err(format!("line {}: {name} is there twice", number + 1));
            }
        }
    }
    Ok(listed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_sections_and_each_script_once() {
        let listed = read("# scripts\n[run]\na b\n c\n\n[looks at files]\nd\n").unwrap();
        assert_eq!(listed["a"], None);
        assert_eq!((listed.len(), listed["d"].as_deref()), (4, Some("looks at files")));
        for (text, words) in [("a", "a section"), ("[run]\na a", "twice"), ("[run", "no ]")] {
            assert!(read(text).unwrap_err().contains(words), "{text}");
        }
    }

    #[test]
    fn the_list_of_the_project_can_be_read() {
        let text = std::fs::read_to_string(shell::root().join("bindings/sqlite/tests/suite/scripts.txt")).unwrap();
        let listed = read(&text).unwrap();
        assert!(listed.values().filter(|reason| reason.is_none()).count() > 100);
    }
}
