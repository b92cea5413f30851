//! Rules of the house that no compiler knows: files stay short, modules of the FTLs do not import each other in a circle, a part
//! names no FTL, and an FTL reaches no other but those that it is composed of.

use crate::shell;
use crate::steps::Outcome;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Lines of a file, at most.
const LINES_MAX: usize = 700;

/// Types whose methods stand in many files of their crate, so each of these names the type and the type has each of them.
const SHARED: [&str; 4] = ["block_ftl::BlockFtl", "drive::ZoneFtl", "drive::PageFtl", "drive::ValueFtl"];

/// The crates below `ftl/`, and which of the others each is composed of.
const FTLS: [(&str, &[&str]); 8] = [
    ("parts", &[]),
    ("blocks", &["parts"]),
    ("tables", &["parts", "blocks"]),
    ("zones", &["parts", "blocks"]),
    ("segments", &["parts", "blocks", "zones"]),
    ("append", &["parts", "blocks"]),
    ("pages", &["parts", "blocks"]),
    ("values", &["parts", "blocks", "pages"]),
];

/// Whether the house is in order.
pub fn check() -> Outcome {
    let found =
        long_files().and_then(|mut found| {
            for (name, _) in FTLS {
                let modules = modules(&shell::root().join("ftl").join(name).join("src"))?;
                found.extend(circle(&imports(&modules)).map(|circle| {
                    format!("modules of ftl/{name} import each other in a circle: {}", circle.join(" → "))
                }));
            }
            found.extend(unlisted_crates()?);
            found.extend(reached_ftls()?);
            found.extend(named_ftls()?);
            Ok(found)
        });
    match found {
        Ok(found) if found.is_empty() => Outcome::Done,
        Ok(found) => Outcome::Failed(found.join("; ")),
        Err(error) => Outcome::Failed(error),
    }
}

/// Folders below `ftl/` that the list does not have.
fn unlisted_crates() -> Result<Vec<String>, String> {
    let folder = shell::root().join("ftl");
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    let mut found = Vec::new();
    for entry in std::fs::read_dir(&folder).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name().to_string_lossy().into_owned();
        if !FTLS.iter().any(|(known, _)| *known == name) {
            found.push(format!("ftl/{name} is not in the list of FTLs: say there what it is composed of"));
        }
    }
    Ok(found)
}

/// Crates below `ftl/` that depend on another one that they are not composed of.
fn reached_ftls() -> Result<Vec<String>, String> {
    let mut found = Vec::new();
    for (name, composed_of) in FTLS {
        let manifest = read(&shell::root().join("ftl").join(name).join("Cargo.toml"))?;
        for other in dependencies(&manifest) {
            if FTLS.iter().any(|(known, _)| *known == other) && !composed_of.contains(&other) {
                found.push(format!("ftl/{name} depends on ftl/{other}, which it is not composed of"));
            }
        }
    }
    Ok(found)
}

/// The crates of this project that a manifest depends on, tests aside, without `openftl-`.
fn dependencies(manifest: &str) -> Vec<&str> {
    let section = manifest.split("\n[dependencies]\n").nth(1).and_then(|rest| rest.split("\n[").next());
    let lines = section.unwrap_or_default().lines();
    lines.filter_map(|line| line.strip_prefix("openftl-")?.split(['.', ' ', '=']).next()).collect()
}

/// Parts that name an FTL, in code or in comments.
fn named_ftls() -> Result<Vec<String>, String> {
    let root = shell::root();
    let mut files = Vec::new();
    source_files(&root.join("ftl/parts/src"), &mut files)?;
    let mut found = Vec::new();
    for file in files {
        let name = file.strip_prefix(&root).expect("it is below the root").display().to_string();
        for (number, line) in read(&file)?.lines().enumerate() {
            if let Some(ftl) = ftl_named_in(line) {
                found.push(format!("{name}:{}: a part names {ftl}", number + 1));
            }
        }
    }
    Ok(found)
}

/// The type or the crate of an FTL that a line of code names.
fn ftl_named_in(line: &str) -> Option<String> {
    let words = line.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
    let is_crate = |word: &str| {
        let crates = word.strip_prefix("openftl_");
        crates.is_some_and(|word| FTLS[1..].iter().any(|(name, _)| *name == word))
    };
    words.filter(|word| (word.ends_with("Ftl") && *word != "Ftl") || is_crate(word)).map(str::to_owned).next()
}

/// Files of code that are longer than they may be.
fn long_files() -> Result<Vec<String>, String> {
    let root = shell::root();
    let mut files = Vec::new();
    for folder in ["alfs", "apps", "bindings", "core", "drive", "ftl", "fuzz", "host", "lab", "media", "sim", "xtask"] {
        source_files(&root.join(folder), &mut files)?;
    }
    let mut found = Vec::new();
    for file in files {
        let name = file.strip_prefix(&root).expect("it is below the root").display().to_string();
        let lines = read(&file)?.lines().count();
        if lines > LINES_MAX {
            found.push(format!("{name} has {lines} lines, and {LINES_MAX} are the most: split it where it folds"));
        }
    }
    Ok(found)
}

/// Adds the Rust files of a folder that are code: neither below `tests` nor tests beside the code.
pub fn source_files(folder: &Path, files: &mut Vec<PathBuf>) -> Result<(), String> {
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

/// Which modules each module imports from, but for the shared types.
fn imports(modules: &BTreeMap<String, String>) -> BTreeMap<&str, BTreeSet<&str>> {
    let owner = |path: &str| {
        let path: Vec<&str> = path.split("::").collect();
        (1..=path.len()).rev().find_map(|length| modules.get_key_value(&path[..length].join("::")))
    };
    modules
        .iter()
        .map(|(module, code)| {
            let paths = paths(module, code).into_iter().filter(|path| !SHARED.contains(&path.as_str()));
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
            [("block_ftl", "use crate::part::Part;".to_owned()), ("part", format!("use crate::block_ftl::{what};"))]
        };
        let check = |what: &str| of(&parts(what).each_ref().map(|(name, code)| (*name, code.as_str())));
        assert_eq!(check("BlockFtl"), None);
        assert!(check("{BlockFtl, Other}").is_some());
    }

    #[test]
    fn a_dependency_counts_and_one_of_tests_does_not() {
        let manifest = "[package]\nname = \"x\"\n\n[dependencies]\nopenftl-parts.workspace = true\nserde = \"1\"\n\n[dev-dependencies]\nopenftl-tables.workspace = true\n";
        assert_eq!(dependencies(manifest), ["parts"]);
    }

    #[test]
    fn a_part_that_names_an_ftl_is_found() {
        assert_eq!(ftl_named_in("/// See [`openftl_blocks::trims`].").as_deref(), Some("openftl_blocks"));
        assert_eq!(ftl_named_in("    ftl: &mut ZoneFtl,").as_deref(), Some("ZoneFtl"));
        assert_eq!(ftl_named_in("use openftl_core::Ppa; // the FTL, an Ftl, openftl_parts"), None);
    }

    #[test]
    fn the_house_is_in_order() {
        assert_eq!(check(), Outcome::Done);
    }
}
