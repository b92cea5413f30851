//! Suites and programs of others, each on a file system of its own that it finds empty.

use super::Suites;
use super::volume::at;
use crate::shell;
use crate::steps::Outcome;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// Operations of fsx for each seed.
const FSX_OPERATIONS: &str = "10000";

/// All operations of fsx that Linux has, those that look at bytes most often.
const FSX: &str = "flen = 262144
[opsize]
max = 65536
min = 1
[weights]
close_open = 1.0
invalidate = 1.0
mapread = 10.0
mapwrite = 10.0
read = 10.0
write = 10.0
truncate = 5.0
fsync = 1.0
fdatasync = 1.0
posix_fallocate = 2.0
punch_hole = 2.0
sendfile = 2.0
posix_fadvise = 1.0
copy_file_range = 2.0
";

/// Stressors that are about other file systems, or about the whole machine.
const STRESSORS_LEFT_OUT: &str = "binderfs,bind-mount,procfs,verity";
const STRESSOR_SECONDS: &str = "5s";

/// Small and large files, as the paper's Postmark has them, in fewer files.
const POSTMARK: &str =
    "set number 500\nset transactions 5000\nset size 5120 524288\nset read 4096\nset write 4096\nrun\nquit\n";

/// What a run of pjdfstest ends with.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Summary {
    failed: u32,
    skipped: u32,
    passed: u32,
}

impl Summary {
    /// Of the line `Summary: 0 failed, 1 skipped, 397 passed, …`.
    fn read(text: &str) -> Option<Summary> {
        let line = text.lines().find_map(|line| line.trim().strip_prefix("Summary: "))?;
        let count = |what: &str| line.split(", ").find_map(|part| part.strip_suffix(what)?.trim().parse().ok());
        Some(Summary { failed: count(" failed")?, skipped: count(" skipped")?, passed: count(" passed")? })
    }
}

impl Suites {
    /// The POSIX rules of names, modes, owners and times. Tests that mount read-only run for themselves: other tests leave files open that they
    /// have written (on every file system), and then the kernel refuses such a mount.
    pub fn pjdfstest(&self) -> Result<(), String> {
        let volume = self.volume("pjdfstest")?;
        let mounted = volume.mount(&["--allow-other"])?;
        let (tools, other) = (volume.folder.join("bin"), volume.folder.join("other"));
        for folder in [&tools, &other] {
            fs::create_dir(folder).map_err(|error| at(folder, &error))?;
        }
        // Debian's helper of FUSE mounts refuses to mount them anew, so the suite's mount(8) goes to the kernel itself.
        let own = shell::find("mount").ok_or("there is no mount(8)")?;
        let script = format!("#!/bin/sh\nexec {} -i \"$@\"\n", own.display());
        let helper = tools.join("mount");
        fs::write(&helper, script).map_err(|error| at(&helper, &error))?;
        shell::output(Command::new("chmod").arg("755").arg(&helper))?;
        let mut users = Vec::new();
        for user in ["nobody", "daemon"] {
            let group = shell::output(Command::new("id").args(["-gn", user]))?;
            users.push(format!("[\"{user}\", \"{}\"]", group.trim()));
        }
        let path = std::env::var("PATH").unwrap_or_default();
        let mut sum = Summary::default();
        for (pattern, remounts) in [(None, false), (Some("erofs"), true)] {
            let file = volume.folder.join("pjdfstest.toml");
            // The kernel's times of files are those of its ticks, ten milliseconds apart at most.
            let text = format!(
                "[features]\nposix_fallocate = {{}}\nrename_ctime = {{}}\nutime_now = {{}}\nutimensat = {{}}\n\
                 [settings]\nnaptime = 0.02\nallow_remount = {remounts}\n[dummy_auth]\nentries = [{}]\n",
                users.join(", ")
            );
            fs::write(&file, text).map_err(|error| at(&file, &error))?;
            let mut command = Command::new(self.tool("pjdfstest"));
            command.arg("-c").arg(&file).arg("-p").arg(&volume.root).arg("-s").arg(&other).args(pattern);
            let command = command.env("PATH", format!("{}:{path}", tools.display()));
            let (text, status) = shell::output_and_status(command)?;
            let found = Summary::read(&text).ok_or(format!("pjdfstest ended with {status} and without a summary"))?;
            if found.failed > 0 || !status.success() {
                return Err(format!("{text}\npjdfstest ended with {status}: {found:?}"));
            }
            sum.passed += found.passed;
            // The second run has tests of the first, which skipped them.
            sum.skipped = if remounts { sum.skipped.saturating_sub(found.passed) } else { found.skipped };
        }
        println!("pjdfstest: {} passed, {} skipped, 0 failed", sum.passed, sum.skipped);
        mounted.unmount()
    }

    /// Random operations on one file, each read compared.
    pub fn fsx(&self, seeds: u32) -> Result<(), String> {
        let volume = self.volume("fsx")?;
        let mounted = volume.mount(&[])?;
        let config = volume.folder.join("fsx.toml");
        fs::write(&config, FSX).map_err(|error| at(&config, &error))?;
        for seed in 1..=seeds {
            let file = volume.root.join("file");
            let mut command = Command::new(self.tool("fsx"));
            command.args(["-q", "-N", FSX_OPERATIONS, "-S", &seed.to_string(), "-f"]).arg(&config);
            command.arg("-P").arg(&volume.folder).arg(&file);
            shell::output(&mut command)?;
            fs::remove_file(&file).map_err(|error| at(&file, &error))?;
        }
        println!("fsx: {seeds} seeds of {FSX_OPERATIONS} operations, 0 failed");
        mounted.unmount()
    }

    /// Each of its stressors of file systems, with its results verified.
    pub fn stress_ng(&self) -> Result<(), String> {
        let volume = self.volume("stress-ng")?;
        let mounted = volume.mount(&[])?;
        let mut command = Command::new("stress-ng");
        command.args(["--class", "filesystem", "--sequential", "1", "--timeout", STRESSOR_SECONDS, "--verify"]);
        command.args(["--exclude", STRESSORS_LEFT_OUT, "--temp-path"]).arg(&volume.root).arg("--log-file");
        let log = volume.folder.join("stress-ng.log");
        shell::run(command.arg(&log).stdout(Stdio::null()).stderr(Stdio::null()))
            .map_err(|error| format!("{error}: {}", log.display()))?;
        let text = fs::read_to_string(&log).map_err(|error| at(&log, &error))?;
        let dispatched = text.lines().find(|line| line.contains("dispatching hogs:")).unwrap_or_default();
        let skipped = text.lines().filter(|line| line.contains("skipping stressor")).count();
        println!("stress-ng: {} stressors, {skipped} skipped, 0 failed", dispatched.split(", ").count());
        mounted.unmount()
    }

    /// The file operations of a file server, by several clients at a time.
    pub fn dbench(&self) -> Result<(), String> {
        let volume = self.volume("dbench")?;
        let mounted = volume.mount(&[])?;
        let text = shell::output(Command::new("dbench").args(["-t", "20", "-D"]).arg(&volume.root).arg("4"))?;
        println!("dbench: {}", text.lines().rev().find(|line| line.contains("Throughput")).ok_or("no result")?);
        mounted.unmount()
    }

    /// Many small files that come and go.
    pub fn postmark(&self) -> Result<(), String> {
        let volume = self.volume("postmark")?;
        let mounted = volume.mount(&[])?;
        let config = volume.folder.join("postmark");
        let text = format!("set location {}\n{POSTMARK}", volume.root.display());
        fs::write(&config, text).map_err(|error| at(&config, &error))?;
        let text = shell::output(Command::new("postmark").arg(&config))?;
        for what in ["created (", "deleted ("] {
            println!("postmark: {}", text.lines().find(|line| line.contains(what)).ok_or("no result")?.trim());
        }
        mounted.unmount()
    }

    /// One large file, and many small ones.
    pub fn bonnie(&self) -> Result<(), String> {
        let volume = self.volume("bonnie")?;
        let mounted = volume.mount(&[])?;
        let mut command = Command::new(shell::find("bonnie++").ok_or("bonnie++ is not installed")?);
        command.args(["-q", "-u", "root", "-r", "256", "-s", "512", "-n", "8:4096:0", "-d"]).arg(&volume.root);
        println!("bonnie++: {}", shell::output(&mut command)?.trim());
        mounted.unmount()
    }

    /// This project: cloned, a part of it built, and all objects checked, before and after the volume is mounted anew.
    pub fn git(&self) -> Outcome {
        match shell::root().join(".git").exists() {
            true => Outcome::of(self.clone_and_build()),
            false => Outcome::LeftOut("this project is no git repository here".to_owned()),
        }
    }

    fn clone_and_build(&self) -> Result<(), String> {
        let volume = self.volume("git")?;
        let clone = volume.root.join("clone");
        let git = |arguments: &[&str]| {
            let mut command = Command::new("git");
            shell::run(command.arg("-C").arg(&clone).args(arguments).stdin(Stdio::null()))
        };
        let mounted = volume.mount(&[])?;
        let mut command = Command::new("git");
        shell::run(command.args(["clone", "--quiet", "--no-hardlinks"]).arg(shell::root()).arg(&clone))?;
        let mut build = shell::cargo(["build", "--offline", "--quiet", "--package", "openftl-crc32c"]);
        build.env_remove("CARGO_TARGET_DIR").arg("--manifest-path").arg(clone.join("Cargo.toml"));
        shell::run(build.arg("--target-dir").arg(volume.root.join("target")))?;
        git(&["fsck", "--full", "--strict", "--no-progress"])?;
        mounted.unmount()?;
        let mounted = volume.mount(&[])?;
        git(&["fsck", "--full", "--strict", "--no-progress"])?;
        // An index that knows no file's times, so each file is read.
        remove(&clone.join(".git/index"))?;
        git(&["read-tree", "HEAD"])?;
        git(&["diff", "--quiet", "HEAD"])?;
        println!("git: a clone that is built, checked, and the same after the next mount");
        mounted.unmount()
    }
}

fn remove(path: &Path) -> Result<(), String> {
    fs::remove_file(path).map_err(|error| at(path, &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_of_pjdfstest_is_read() {
        let text = "x ok\n\nSummary: 2 failed, 14 skipped, 384 passed, 0 expected failures, 398 total\n";
        assert_eq!(Summary::read(text), Some(Summary { failed: 2, skipped: 14, passed: 384 }));
        assert_eq!(Summary::read("no such line"), None);
    }
}
