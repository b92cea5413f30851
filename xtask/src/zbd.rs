//! fio's own tests of zoned drives, for the system tests: Debian has them in the source package of fio, and in no other.
//!
//! ```text
//!   apt-cache madison fio ──▶ target/zbd/work: deb-src lines, package lists ──▶ fio_*.orig.tar.* ──▶ target/zbd/scripts
//! ```
//!
//! The machine's own lists of packages stay as they are. The scripts are kept, for the version of fio that is installed.

use crate::shell;
use crate::steps::Outcome;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Names the folder of the scripts.
pub const VARIABLE: &str = "OPENFTL_ZBD";

/// Where the scripts are in fio's sources.
const INSIDE: &str = "*/t/zbd/*";

/// The folder of the scripts: what the variable says, or else the one that was fetched.
pub fn scripts() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os(VARIABLE) {
        return Some(PathBuf::from(named));
    }
    let scripts = folder().ok()?.join("scripts");
    scripts.exists().then_some(scripts)
}

/// Fetches the scripts, unless they are there.
pub fn for_tests() -> Outcome {
    if std::env::var_os(VARIABLE).is_some() {
        return Outcome::Done;
    }
    for program in ["apt-get", "apt-cache", "dpkg-query", "tar", "fio"] {
        if shell::find(program).is_none() {
            let other = format!("{VARIABLE} may name a folder t/zbd of fio's sources");
            return Outcome::LeftOut(format!("no {program} here; {other}"));
        }
    }
    // Without the network, the tests that need the scripts are left out.
    folder().and_then(|folder| fetch(&folder)).map_or_else(Outcome::LeftOut, |()| Outcome::Done)
}

fn folder() -> Result<PathBuf, String> {
    Ok(shell::target_directory()?.join("zbd"))
}

fn fetch(folder: &Path) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("cannot keep fio's scripts in {}: {error}", folder.display());
    let version = shell::output(Command::new("dpkg-query").args(["--show", "--showformat=${source:Version}", "fio"]))?;
    let kept = folder.join("version");
    if std::fs::read_to_string(&kept).is_ok_and(|kept| kept == version) {
        return Ok(());
    }
    let offers = shell::output(Command::new("apt-cache").args(["madison", "fio"]))?;
    let lines = source_lines(&offers);
    if lines.is_empty() {
        return Err(format!("`apt-cache madison fio` names no archive (`apt-get update`?): {offers}"));
    }
    if folder.exists() {
        std::fs::remove_dir_all(folder).map_err(failed)?;
    }
    let work = folder.join("work");
    for name in ["lists/partial", "cache/archives/partial", "sources"] {
        std::fs::create_dir_all(work.join(name)).map_err(failed)?;
    }
    std::fs::write(work.join("sources.list"), lines.concat()).map_err(failed)?;
    let apt = |words: &[&str]| {
        let mut command = Command::new("apt-get");
        let option = |name: &str, value: &Path| ["-o".to_owned(), format!("{name}={}", value.display())];
        command.args(option("Dir::Etc::SourceList", &work.join("sources.list")));
        command.args(option("Dir::Etc::SourceParts", Path::new("/dev/null")));
        command.args(option("Dir::State::Lists", &work.join("lists")));
        command.args(option("Dir::Cache", &work.join("cache")));
        command.args(words).current_dir(work.join("sources")).stdin(std::process::Stdio::null());
        shell::run(&mut command)
    };
    apt(&["update", "-q"])?;
    apt(&["source", "-q", "--download-only", &format!("fio={version}")])?;
    let archive = original(&work.join("sources"))?;
    let scripts = folder.join("scripts");
    std::fs::create_dir_all(&scripts).map_err(failed)?;
    let mut unpack = Command::new("tar");
    unpack.arg("--extract").arg("--file").arg(&archive).arg("--directory").arg(&scripts);
    shell::run(unpack.args(["--strip-components=3", "--wildcards", INSIDE]))?;
    std::fs::remove_dir_all(&work).map_err(failed)?;
    std::fs::write(&kept, version).map_err(failed)
}

/// Lines of a sources.list by which apt finds sources where it finds the package: rows of `apt-cache madison` have a name, a
/// version, and an archive with its suite and component.
fn source_lines(offers: &str) -> Vec<String> {
    let mut lines = Vec::new();
    for row in offers.lines() {
        let Some(archive) = row.split('|').nth(2) else { continue };
        let mut words = archive.split_whitespace();
        if let (Some(address), Some((suite, component))) =
            (words.next(), words.next().and_then(|it| it.split_once('/')))
        {
            let line = format!("deb-src {address} {suite} {component}\n");
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
    }
    lines
}

/// The archive with the sources as fio's authors publish them.
fn original(folder: &Path) -> Result<PathBuf, String> {
    let files = std::fs::read_dir(folder).map_err(|error| format!("cannot read {}: {error}", folder.display()))?;
    let mut paths = files.flatten().map(|file| file.path());
    let is_archive = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.contains(".orig.tar.") && !name.ends_with(".asc")
    };
    paths.find(is_archive).ok_or_else(|| format!("apt-get left no .orig.tar file in {}", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_where_the_package_is() {
        let offers = "       fio |     3.33-3 | http://deb.debian.org/debian bookworm/main amd64 Packages\n\
                      \x20      fio |     3.33-3 | http://deb.debian.org/debian bookworm/main i386 Packages\n\
                      \x20      fio |     3.41-1 | http://deb.debian.org/debian bookworm-backports/main amd64 Packages\n";
        let lines = [
            "deb-src http://deb.debian.org/debian bookworm main\n",
            "deb-src http://deb.debian.org/debian bookworm-backports main\n",
        ];
        assert_eq!(source_lines(offers), lines);
        assert_eq!(source_lines("N: Unable to locate package fio\n"), [""; 0]);
    }
}
