//! `cargo xtask linux`: a Linux kernel that runs as a process, for the tests in which Linux is the NVMe host.
//!
//! ```text
//!   Debian's linux-source ──▶ sources ──▶ .config ──▶ target/linux/linux-uml
//!                                            ▲
//!                              xtask/linux/config
//! ```
//!
//! What Linux calls its architecture `um` needs neither root's rights nor virtualization. The kernel is kept, with the
//! configuration that it was built from: while that stays the same there is nothing to do.

use crate::shell;
use crate::steps::{Outcome, Steps};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Names the kernel that system tests boot.
pub const VARIABLE: &str = "OPENFTL_LINUX_UML";

/// Programs that the build needs, and the Debian packages that hold them.
const PROGRAMS: [(&str, &str); 8] = [
    ("gcc", "gcc"),
    ("make", "make"),
    ("bc", "bc"),
    ("flex", "flex"),
    ("bison", "bison"),
    ("xz", "xz-utils"),
    ("tar", "tar"),
    ("strip", "binutils"),
];

/// Builds the kernel, or finds that it is there.
pub fn run() -> ExitCode {
    let mut steps = Steps::new("linux");
    let folder = match folder() {
        Ok(folder) => folder,
        Err(error) => {
            eprintln!("cargo xtask linux: {error}");
            return ExitCode::FAILURE;
        }
    };
    if is_built(&folder) {
        steps.run("kernel", || Outcome::Done);
    } else {
        build(&mut steps, &folder);
    }
    let kernel = folder.join("linux-uml");
    if kernel.exists() {
        println!("\n{}: `cargo xtask test` finds it by itself; for other runs, {VARIABLE} names it", kernel.display());
    }
    steps.finish()
}

/// The kernel that system tests are to boot: what the variable says, or else the one that was built here.
pub fn kernel() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os(VARIABLE) {
        return Some(PathBuf::from(named));
    }
    let kernel = folder().ok()?.join("linux-uml");
    kernel.exists().then_some(kernel)
}

fn folder() -> Result<PathBuf, String> {
    Ok(shell::target_directory()?.join("linux"))
}

fn configuration() -> PathBuf {
    shell::root().join("xtask").join("linux").join("config")
}

fn is_built(folder: &Path) -> bool {
    let kept = std::fs::read_to_string(folder.join("config"));
    let wanted = std::fs::read_to_string(configuration());
    folder.join("linux-uml").exists() && matches!((kept, wanted), (Ok(kept), Ok(wanted)) if kept == wanted)
}

fn build(steps: &mut Steps, folder: &Path) {
    let work = folder.join("work");
    let mut source = PathBuf::new();
    let unpacked = steps.run("programs", programs)
        && steps.run("sources", || match sources(&work) {
            Ok(found) => {
                source = found;
                Outcome::Done
            }
            Err(error) => Outcome::Failed(error),
        });
    let built = unpacked
        && steps.run("configuration", || Outcome::of(configure(&source, &work)))
        && steps.run("kernel, about 15 minutes of one core", || Outcome::of(compile(&source, &work)));
    if built {
        steps.run("keep it", || Outcome::of(keep(&work, folder)));
    }
}

fn programs() -> Outcome {
    let absent = PROGRAMS.iter().filter(|(program, _)| shell::find(program).is_none());
    let packages: Vec<&str> = absent.map(|(_, package)| *package).collect();
    crate::setup::install_packages(&packages)
}

/// Downloads and unpacks the sources of the kernel that this Debian has, and returns their folder.
fn sources(work: &Path) -> Result<PathBuf, String> {
    if shell::find("apt-get").is_none() {
        let kernel = work.with_file_name("linux-uml");
        return Err(format!(
            "no apt-get here, and so no linux-source package; build a kernel of your own with ARCH=um and {}, and put \
             it at {} or let {VARIABLE} name it",
            configuration().display(),
            kernel.display()
        ));
    }
    // A build that failed after the long way to its sources goes on from there.
    let unpacked = work.join("unpacked");
    if let Ok(package) = std::fs::read_to_string(&unpacked) {
        return Ok(work.join(package));
    }
    _ = std::fs::remove_dir_all(work);
    std::fs::create_dir_all(work).map_err(|error| format!("cannot make {}: {error}", work.display()))?;
    let depends = shell::output(Command::new("apt-cache").args(["depends", "--important", "linux-source"]))?;
    let package = package_of(&depends)
        .ok_or_else(|| format!("`apt-cache depends linux-source` names no package (`apt-get update`?): {depends}"))?;
    shell::run(Command::new("apt-get").args(["download", "-q", package]).current_dir(work))?;
    let archive = only(work, "deb")?;
    shell::run(Command::new("dpkg-deb").arg("--extract").arg(&archive).arg("package").current_dir(work))?;
    let archive = only(&work.join("package").join("usr").join("src"), "xz")?;
    shell::run(Command::new("tar").arg("-xJf").arg(archive).current_dir(work))?;
    let source = work.join(package);
    let room = source.join("arch/x86/um/user-offsets.c");
    if let Ok(text) = std::fs::read_to_string(&room) {
        // Linux before 6.13 sets a fixed room aside for a process's floating-point registers. Those of processors with
        // matrix units do not fit in, and each program of the guest would die.
        std::fs::write(&room, text.replace("(HOST_FP_SIZE, 2696)", "(HOST_FP_SIZE, 11008)"))
            .map_err(|error| format!("cannot write {}: {error}", room.display()))?;
    }
    std::fs::write(&unpacked, package).map_err(|error| format!("cannot write {}: {error}", unpacked.display()))?;
    Ok(source)
}

/// The package that the one without a version depends on.
fn package_of(depends: &str) -> Option<&str> {
    let named = depends.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
    named.map(str::trim).find(|name| name.starts_with("linux-source-"))
}

/// The one file of a folder with this ending.
fn only(folder: &Path, extension: &str) -> Result<PathBuf, String> {
    let files = std::fs::read_dir(folder).map_err(|error| format!("cannot read {}: {error}", folder.display()))?;
    let mut paths = files.flatten().map(|file| file.path());
    let found = paths.find(|path| path.extension().is_some_and(|there| there == extension));
    found.ok_or_else(|| format!("there is no .{extension} file in {}", folder.display()))
}

fn make(source: &Path, work: &Path) -> Command {
    let mut command = Command::new("make");
    command.args(["--silent", "ARCH=um"]).arg(format!("O={}", work.join("built").display())).current_dir(source);
    command
}

fn configure(source: &Path, work: &Path) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("cannot write the configuration: {error}");
    let file = work.join("built").join(".config");
    std::fs::create_dir_all(work.join("built")).map_err(failed)?;
    shell::run(make(source, work).arg("x86_64_defconfig"))?;
    let ours = std::fs::read_to_string(configuration()).map_err(failed)?;
    let base = std::fs::read_to_string(&file).map_err(failed)?;
    // Of two lines about an option, Linux takes the later one.
    std::fs::write(&file, format!("{base}{ours}")).map_err(failed)?;
    shell::run(make(source, work).arg("olddefconfig"))?;
    let taken = std::fs::read_to_string(&file).map_err(failed)?;
    match ignored(&ours, &taken).as_slice() {
        [] => Ok(()),
        lines => Err(format!("these lines of {} were not taken over: {}", configuration().display(), lines.join("; "))),
    }
}

/// The options of `ours` that are not as they should be in `taken`. Of two lines with `# or` between them one is enough.
fn ignored<'a>(ours: &'a str, taken: &str) -> Vec<&'a str> {
    let is_set = |line: &str| line.starts_with("CONFIG_");
    let is_unset = |line: &str| line.starts_with("# CONFIG_") && line.ends_with(" is not set");
    let holds = |line: &str| {
        // An option whose group is off has no line at all.
        let name = line.split_whitespace().nth(1).map(|name| format!("{name}="));
        let is_off = |name: String| !taken.lines().any(|line| line.starts_with(&name));
        taken.lines().any(|there| there == line) || (is_unset(line) && name.is_some_and(is_off))
    };
    let lines: Vec<&str> = ours.lines().collect();
    let other_holds = |index: usize| {
        let before = index >= 2 && lines[index - 1] == "# or" && holds(lines[index - 2]);
        let after = lines.get(index + 1) == Some(&"# or") && lines.get(index + 2).is_some_and(|line| holds(line));
        before || after
    };
    let options = lines.iter().enumerate().filter(|(_, line)| is_set(line) || is_unset(line));
    options.filter(|(index, line)| !holds(line) && !other_holds(*index)).map(|(_, line)| *line).collect()
}

fn compile(source: &Path, work: &Path) -> Result<(), String> {
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    shell::run(make(source, work).args([&format!("--jobs={jobs}"), "linux"]))
}

fn keep(work: &Path, folder: &Path) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("cannot keep the kernel in {}: {error}", folder.display());
    let stripped = work.join("linux-uml");
    shell::run(Command::new("strip").arg("-o").arg(&stripped).arg(work.join("built").join("linux")))?;
    std::fs::rename(&stripped, folder.join("linux-uml")).map_err(failed)?;
    std::fs::copy(configuration(), folder.join("config")).map_err(failed)?;
    std::fs::remove_dir_all(work).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_package_with_a_version_is_found() {
        assert_eq!(package_of("linux-source\n  Depends: linux-source-6.1\n"), Some("linux-source-6.1"));
        assert_eq!(package_of("linux-source\n"), None);
    }

    #[test]
    fn an_option_that_was_not_taken_over_is_named() {
        let taken = "CONFIG_A=y\n# CONFIG_B is not set\nCONFIG_D=y\n";
        assert_eq!(ignored("# why\nCONFIG_A=y\n# CONFIG_B is not set\n# CONFIG_C is not set\n", taken), [""; 0]);
        assert_eq!(ignored("CONFIG_A=m\n# CONFIG_D is not set\n", taken), ["CONFIG_A=m", "# CONFIG_D is not set"]);
        assert_eq!(ignored("CONFIG_B=y\n", taken), ["CONFIG_B=y"]);
        assert_eq!(ignored("CONFIG_A=y\n# or\nCONFIG_B=y\n", taken), [""; 0]);
        assert_eq!(ignored("CONFIG_B=y\n# or\nCONFIG_A=y\n", taken), [""; 0]);
        assert_eq!(ignored("CONFIG_B=y\n# or\nCONFIG_E=y\n", taken), ["CONFIG_B=y", "CONFIG_E=y"]);
    }
}
