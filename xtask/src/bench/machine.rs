//! The machine that figures were measured on, in one line.

use crate::shell;
use std::process::Command;

/// Processor, cores, memory, kernel, compiler, commit.
pub fn describe() -> String {
    let processor = line_of("/proc/cpuinfo", "model name").unwrap_or_else(|| "unknown processor".to_owned());
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let memory = line_of("/proc/meminfo", "MemTotal").and_then(|text| text.split(' ').next()?.parse::<u64>().ok());
    let memory = memory.map_or_else(|| "unknown".to_owned(), |kib| format!("{:.0} GiB", kib as f64 / (1 << 20) as f64));
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().unwrap_or("unknown");
    let compiler = first_line(Command::new("rustc").arg("--version"));
    let commit = first_line(Command::new("git").args(["describe", "--always", "--dirty"]).current_dir(shell::root()));
    format!("{processor}, {cores} cores, {memory}, Linux {}, load {load}, {compiler}, OpenFTL {commit}", kernel.trim())
}

fn line_of(file: &str, key: &str) -> Option<String> {
    let text = std::fs::read_to_string(file).ok()?;
    let line = text.lines().find(|line| line.starts_with(key))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn first_line(command: &mut Command) -> String {
    let text = shell::output(command).unwrap_or_default();
    text.lines().next().unwrap_or("unknown").to_owned()
}
