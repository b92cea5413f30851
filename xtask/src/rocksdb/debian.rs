//! What Debian's packages of RocksDB have and what they lack: `db_stress`, which is compiled alone, against their library.

use super::{RELEASED, TESTED, how_to_use, install, plugin, required, trial};
use crate::shell;
use crate::steps::{Outcome, Steps};
use std::path::{Path, PathBuf};
use std::process::Command;

const PROGRAMS: [(&str, &str); 4] =
    [("c++", "g++"), ("cmake", "cmake"), ("ninja", "ninja-build"), ("db_bench", "rocksdb-tools")];
const HEADERS: [(&str, &str); 2] =
    [("/usr/include/rocksdb/version.h", "librocksdb-dev"), ("/usr/include/gflags/gflags.h", "libgflags-dev")];

/// What RocksDB's own build says of the platform.
const PLATFORM: [&str; 5] = [
    "-DROCKSDB_PLATFORM_POSIX",
    "-DROCKSDB_LIB_IO_POSIX",
    "-DOS_LINUX",
    "-DGFLAGS=gflags",
    "-DROCKSDB_SUPPORT_THREAD_LOCAL",
];

/// Puts db_stress and the plugin into `target/rocksdb-debian`, and returns what can be done with them.
pub fn build(steps: &mut Steps, target: &Path) -> Option<String> {
    let folder = folder(target);
    let built = steps.run("programs", || required(install(&PROGRAMS, &HEADERS)))
        && steps.run("plugin", || Outcome::of(plugin(target, &RELEASED, &folder, Path::new("/usr/include"), "none")))
        && steps.run("trial", || Outcome::of(trial(&folder, "db_bench")));
    if !built {
        return None;
    }
    if !folder.join("db_stress").exists() {
        steps.run("db_stress, half a minute: for tests", || Outcome::of(stress(&folder)));
    }
    Some(format!(
        "Tests find this RocksDB where {}={} says.\n{}",
        super::VARIABLE,
        folder.display(),
        how_to_use(&folder, "db_bench")
    ))
}

/// Where they are.
pub fn folder(target: &Path) -> PathBuf {
    target.join("rocksdb-debian")
}

/// The same as one step.
pub fn prepare(target: &Path) -> Outcome {
    let folder = folder(target);
    match install(&PROGRAMS, &HEADERS) {
        Outcome::Done => {}
        other => return other,
    }
    let stressed = if folder.join("db_stress").exists() { Ok(()) } else { stress(&folder) };
    Outcome::of(stressed.and_then(|()| plugin(target, &TESTED, &folder, Path::new("/usr/include"), "none")))
}

fn stress(folder: &Path) -> Result<(), String> {
    let work = folder.join("work");
    let failed = |error: std::io::Error| format!("cannot write to {}: {error}", work.display());
    _ = std::fs::remove_dir_all(&work);
    std::fs::create_dir_all(&work).map_err(failed)?;
    let source = sources(&work)?;
    let tool = source.join("db_stress_tool");
    let files = std::fs::read_dir(&tool).map_err(|error| format!("{}: {error}", tool.display()))?;
    let mut files: Vec<PathBuf> = files.flatten().map(|file| file.path()).collect();
    files.retain(|file| file.extension().is_some_and(|ending| ending == "cc"));
    files.sort();
    let unit: String = files.iter().map(|file| format!("#include \"{}\"\n", file.display())).collect();
    std::fs::write(work.join("db_stress.cc"), unit).map_err(failed)?;
    let mut compiler = Command::new("c++");
    compiler.args(["-std=c++17", "-O1", "-w"]).args(PLATFORM);
    compiler.arg("-I").arg(&source).arg("-I").arg(source.join("include"));
    compiler.arg("-o").arg(work.join("db_stress")).arg(work.join("db_stress.cc"));
    shell::run(compiler.args(["-lrocksdb", "-lgflags", "-lpthread", "-ldl"]))?;
    std::fs::rename(work.join("db_stress"), folder.join("db_stress")).map_err(failed)?;
    std::fs::remove_dir_all(&work).map_err(failed)
}

/// Downloads the source package that the installed library was built from, and returns the folder of its sources. The lists of
/// source packages are in `work`: those of the system stay as they are.
fn sources(work: &Path) -> Result<PathBuf, String> {
    let failed = |error: std::io::Error| format!("cannot write to {}: {error}", work.display());
    let parts = work.join("sources");
    std::fs::create_dir_all(&parts).map_err(failed)?;
    std::fs::create_dir_all(work.join("lists").join("partial")).map_err(failed)?;
    let mut found = false;
    for from in ["/etc/apt/sources.list", "/etc/apt/sources.list.d"] {
        let files = match std::fs::read_dir(from) {
            Ok(files) => files.flatten().map(|file| file.path()).collect(),
            Err(_) => vec![PathBuf::from(from)],
        };
        for file in files {
            let (Some(name), Ok(text)) = (file.file_name(), std::fs::read_to_string(&file)) else { continue };
            std::fs::write(parts.join(name), of_sources(&text)).map_err(failed)?;
            found = true;
        }
    }
    if !found {
        return Err("no apt sources in /etc/apt: --debian needs a Debian".to_owned());
    }
    let apt = |arguments: &[&str]| {
        let mut command = Command::new("apt-get");
        command.arg("-o").arg("Dir::Etc::SourceList=/dev/null");
        command.arg("-o").arg(format!("Dir::Etc::SourceParts={}", parts.display()));
        command.arg("-o").arg(format!("Dir::State::Lists={}", work.join("lists").display()));
        shell::run(command.arg("-q").args(arguments).current_dir(work))
    };
    let installed = ["--show", "--showformat=${source:Version}", "librocksdb-dev"];
    let version = shell::output(Command::new("dpkg-query").args(installed))?;
    apt(&["update"])?;
    apt(&["source", "--download-only", &format!("rocksdb={version}")])?;
    let files = std::fs::read_dir(work).map_err(failed)?.flatten().map(|file| file.path());
    let is_original = |file: &PathBuf| file.to_string_lossy().contains(".orig.tar.");
    let archive = files.into_iter().find(is_original).ok_or("the source package of rocksdb has no .orig.tar")?;
    shell::run(Command::new("tar").arg("-xf").arg(archive).current_dir(work))?;
    let mut folders = std::fs::read_dir(work).map_err(failed)?.flatten().map(|file| file.path());
    folders.find(|folder| folder.join("db_stress_tool").exists()).ok_or_else(|| "no db_stress_tool in it".to_owned())
}

/// The same sources of packages, of source packages: in either form that apt knows.
fn of_sources(text: &str) -> String {
    let line = |line: &str| match line {
        types if types.starts_with("Types:") => "Types: deb-src\n".to_owned(),
        package if package.starts_with("deb ") => format!("deb-src {}\n", &package[4..]),
        other => format!("{other}\n"),
    };
    text.lines().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_packages_become_lists_of_source_packages() {
        assert_eq!(of_sources("Types: deb\nURIs: http://d\n"), "Types: deb-src\nURIs: http://d\n");
        assert_eq!(of_sources("deb http://d stable main\n# deb\n"), "deb-src http://d stable main\n# deb\n");
    }
}
