//! Rules of the house that no compiler knows: files stay short, and modules of the FTL do not import each other in a circle.

use crate::shell;
use crate::steps::Outcome;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Lines of a file, at most.
const LINES_MAX: usize = 700;

/// Files that are longer, and the lines that they may have: each is to be split where it folds, and none may grow.
const LONG: [(&str, usize); 7] = [
    ("sim/src/world.rs", 1040),
    ("ftl/src/tables/drive.rs", 850),
    ("sim/src/table_world.rs", 920),
    ("lab/real-time/src/ox_lightlsm.rs", 820),
    ("ftl/src/superblock.rs", 770),
    ("host/nvme-auth/src/messages.rs", 750),
    ("host/nvme/src/target.rs", 730),
];

/// The type that parts of the FTL still share: its methods stand with the parts, so each of them names it and it has each of them.
const SHARED: &str = "block::BlockFtl";

/// Whether the house is in order.
pub fn check() -> Outcome {
    let found = long_files().and_then(|mut found| {
        let modules = modules(&shell::root().join("ftl/src"))?;
        found.extend(
            circle(&imports(&modules))
                .map(|circle| format!("modules of ftl import in a circle: {}", circle.join(" → "))),
        );
        Ok(found)
    });
    match found {
        Ok(found) if found.is_empty() => Outcome::Done,
        Ok(found) => Outcome::Failed(found.join("; ")),
        Err(error) => Outcome::Failed(error),
    }
}

/// Files of code that are longer than they may be.
fn long_files() -> Result<Vec<String>, String> {
    let root = shell::root();
    let mut files = Vec::new();
    for folder in ["apps", "bindings", "core", "drive", "ftl", "fuzz", "host", "lab", "media", "sim", "xtask"] {
        source_files(&root.join(folder), &mut files)?;
    }
    let mut found = Vec::new();
    for file in files {
        let name = file.strip_prefix(&root).expect("it is below the root").display().to_string();
        let most = LONG.iter().find(|(long, _)| *long == name).map_or(LINES_MAX, |(_, lines)| *lines);
        let lines = read(&file)?.lines().count();
        if lines > most {
            found.push(format!("{name} has {lines} lines, and {most} are the most: split it where it folds"));
        }
    }
    Ok(found)
}

/// Adds the Rust files of a folder that are code: neither below `tests` nor tests beside the code.
fn source_files(folder: &Path, files: &mut Vec<PathBuf>) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() {
            if !["tests", "target", "examples", "corpus"].contains(&&*name) {
                source_files(&path, files)?;
            }
        } else if name.ends_with(".rs") && !name.ends_with("_tests.rs") {
            files.push(path);
        }
    }
    Ok(())
}

fn read(file: &Path) -> Result<String, String> {
    std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))
}

/// The code of each module of a crate without comments and tests, by its path from the crate's root.
fn modules(source: &Path) -> Result<BTreeMap<String, String>, String> {
    let mut files = Vec::new();
    source_files(source, &mut files)?;
    let mut modules = BTreeMap::new();
    for file in files {
        let name = file.strip_prefix(source).expect("it is below the folder").with_extension("");
        let parts: Vec<_> = name.iter().map(|part| part.to_string_lossy()).filter(|part| part != "mod").collect();
        if parts != ["lib"] {
            let text = read(&file)?;
            let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
            let lines: Vec<&str> = code.lines().map(|line| line.split("//").next().unwrap_or_default()).collect();
            modules.insert(parts.join("::"), lines.join("\n"));
        }
    }
    Ok(modules)
}

/// Which modules each module imports from, but for the shared type.
fn imports(modules: &BTreeMap<String, String>) -> BTreeMap<&str, BTreeSet<&str>> {
    let owner = |path: &str| {
        let path: Vec<&str> = path.split("::").collect();
        (1..=path.len()).rev().find_map(|length| modules.get_key_value(&path[..length].join("::")))
    };
    modules
        .iter()
        .map(|(module, code)| {
            let paths = paths(module, code).into_iter().filter(|path| path != SHARED);
            let owners = paths.filter_map(|path| owner(&path).map(|(owner, _)| owner.as_str()));
            (module.as_str(), owners.filter(|owner| owner != module).collect())
        })
        .collect()
}

/// The paths within the crate that `use` declarations of a module name.
fn paths(module: &str, code: &str) -> Vec<String> {
    let mut paths = Vec::new();
    let starts = code.match_indices("use ").filter(|(at, _)| *at == 0 || code[..*at].ends_with(['\n', ' ']));
    for (at, word) in starts {
        let Some(end) = code[at..].find(';') else { continue };
        let tree: String = code[at + word.len()..at + end].split_whitespace().collect();
        expand("", &tree, &mut paths);
    }
    let within = |path: String| {
        if let Some(rest) = path.strip_prefix("crate::") {
            return Some(rest.to_owned());
        }
        let (mut above, mut rest) = (module, path.as_str());
        while let Some(further) = rest.strip_prefix("super::") {
            above = above.rsplit_once("::").map_or("", |(above, _)| above);
            rest = further;
        }
        let is_above = rest.len() < path.len();
        is_above.then(|| if above.is_empty() { rest.to_owned() } else { format!("{above}::{rest}") })
    };
    paths.into_iter().filter_map(within).collect()
}

/// Adds every path of a tree such as `a::{b, c::{d}}`, from which blanks were taken.
fn expand(before: &str, tree: &str, paths: &mut Vec<String>) {
    let Some((head, rest)) = tree.split_once('{') else {
        paths.push(format!("{before}{tree}"));
        return;
    };
    let before = format!("{before}{head}");
    let body = rest.strip_suffix('}').unwrap_or(rest);
    let (mut depth, mut start) = (0, 0);
    for (at, letter) in body.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                expand(&before, &body[start..at], paths);
                start = at + 1;
            }
            _ => {}
        }
    }
    if start < body.len() {
        expand(&before, &body[start..], paths);
    }
}

/// Modules that import each other in a circle, the first of them again at the end, if there are some.
fn circle(imports: &BTreeMap<&str, BTreeSet<&str>>) -> Option<Vec<String>> {
    let mut done = BTreeSet::new();
    imports.keys().find_map(|module| walk(module, imports, &mut Vec::new(), &mut done))
}

fn walk<'a>(
    module: &'a str,
    imports: &BTreeMap<&'a str, BTreeSet<&'a str>>,
    way: &mut Vec<&'a str>,
    done: &mut BTreeSet<&'a str>,
) -> Option<Vec<String>> {
    if let Some(at) = way.iter().position(|other| *other == module) {
        return Some(way[at..].iter().chain([&module]).map(|name| (*name).to_owned()).collect());
    }
    if done.contains(module) {
        return None;
    }
    way.push(module);
    let found = imports.get(module).into_iter().flatten().find_map(|next| walk(next, imports, way, done));
    way.pop();
    done.insert(module);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(files: &[(&str, &str)]) -> Option<Vec<String>> {
        let modules = files.iter().map(|(name, code)| ((*name).to_owned(), (*code).to_owned())).collect();
        circle(&imports(&modules))
    }

    #[test]
    fn modules_that_import_each_other_are_found_however_they_name_each_other() {
        assert_eq!(of(&[("a", "use crate::b::B;"), ("b", "use std::fmt;")]), None);
        let tree = "use crate::{\n    b::B,\n    c::d::{self, D},\n};\n";
        let circle = of(&[("a", tree), ("b", ""), ("c::d", "pub(crate) use crate::a::A;")]);
        assert_eq!(circle.unwrap(), ["a", "c::d", "a"]);
        let circle = of(&[("c::d", "use super::e::E;"), ("c::e", "use super::d;")]);
        assert_eq!(circle.unwrap(), ["c::d", "c::e", "c::d"]);
        let circle = of(&[("a", "use crate::c::d::D;"), ("c::d", "use super::super::a;")]);
        assert_eq!(circle.unwrap(), ["a", "c::d", "a"]);
    }

    #[test]
    fn the_type_that_parts_share_makes_no_circle_and_what_else_stands_with_it_does() {
        let parts = |what: &str| {
            [("block", "use crate::part::Part;".to_owned()), ("part", format!("use crate::block::{what};"))]
        };
        let check = |what: &str| of(&parts(what).each_ref().map(|(name, code)| (*name, code.as_str())));
        assert_eq!(check("BlockFtl"), None);
        assert!(check("{BlockFtl, Other}").is_some());
    }

    #[test]
    fn the_house_is_in_order() {
        assert_eq!(check(), Outcome::Done);
    }

    /// A name in the list that is gone, or short by now, would let another grow unseen.
    #[test]
    fn every_file_of_the_list_is_there_and_too_long() {
        for (name, most) in LONG {
            let lines = read(&shell::root().join(name)).unwrap().lines().count();
            assert!((LINES_MAX + 1..=most).contains(&lines), "{name} has {lines} lines: correct the list");
        }
    }
}
